//! The ledger of a recorded run: two operators, a broker, four users that attach twice at each operator, all of it searched.

use std::collections::BTreeSet;

use whimbrel_broker_common::id::UserId;
use whimbrel_privacy::broker::{Broker, BrokerEvent, BrokerOutput};
use whimbrel_privacy::ledger::{About, Field, How, Ledger, Party, Recording, Value};
use whimbrel_privacy::operator::{Group, OperatorAttach};
use whimbrel_privacy::user::{UserAttach, UserSim};
use whimbrel_privacy::wallet::Wallet;

use crate::world::*;

const USERS: u32 = 4;
const OPERATORS: u32 = 2;
const TOKENS: u32 = 2;

/// A fault that is put into the run, to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leak {
    Nothing,
    /// The channel is direct, and the broker logs the peer's address.
    ChannelAddress,
    /// The broker stores the operator's name beside the group: the two were asked over one connection.
    OperatorBesideGroup,
    /// The channel's circuit is kept from token to token, so that its name is known again.
    SharedCircuit,
    /// The operator logs a user's key, as a classic core logs its SUPI.
    UserKeyAtOperator,
    /// The operator sees the masked IMEISV of the UE.
    Imeisv,
    /// The operator reports the UE's cell to the broker.
    CellToBroker,
    /// The broker gets the UE's address.
    UeAddressToBroker,
}

fn user_id(user: u32) -> UserId {
    let mut id = [0; 16];
    id.copy_from_slice(&whimbrel_privacy::crypto::hash(&[b"user", &user.to_be_bytes()])[..16]);
    UserId(id)
}

fn operator_address(operator: u32) -> [u8; 4] {
    [198, 51, 100, 7 + operator as u8]
}

/// PLMN and NR cell identity: the place of a UE. Each cell sees several users: one that is alone in its cell is known again by that.
fn cell(operator: u32, n: u32) -> Vec<u8> {
    let nci = 0x5a_1000_0000u64 + u64::from(operator * 0x3000 + n * 0x11);
    [&[0x99, 0xf9, 0x07][..], &nci.to_be_bytes()[3..]].concat()
}

fn ue_address(operator: u32, user: u32, token: u32) -> [u8; 4] {
    [10, 45, (operator * 10 + token + 3) as u8, (user * 16 + 77) as u8]
}

struct Run {
    recordings: Vec<Recording>,
    values: Vec<Value>,
    leak: Leak,
}

impl Run {
    fn record(&mut self, party: Party, how: How, what: &'static str, about: About, octets: &[u8]) {
        self.recordings.push(Recording { party, how, what, about, octets: octets.to_vec() });
    }

    /// A message between the operator and the broker, which both have.
    fn asked(&mut self, what: &'static str, about: About, octets: &[u8]) {
        self.record(Party::Operator, How::Sent, what, about, octets);
        self.record(Party::Broker, How::Received, what, about, octets);
    }

    fn answered(&mut self, what: &'static str, about: About, octets: &[u8]) {
        self.record(Party::Broker, How::Sent, what, about, octets);
        self.record(Party::Operator, How::Received, what, about, octets);
    }

    fn value(&mut self, field: Field, octets: &[u8]) {
        self.values.push(Value::new(field, octets));
    }

    fn with(leak: Leak) -> Self {
        let mut run = Self { recordings: Vec::new(), values: Vec::new(), leak };
        let mut broker = broker();
        let name = |user: u32| format!("user {user}");
        let mut sims: Vec<UserSim> = (0..USERS)
            .map(|n| {
                broker.set_user(user_id(n), user(&name(n)));
                sim(&name(n), user_id(n), &broker)
            })
            .collect();
        for n in 0..USERS {
            run.value(Field::UserIdentity, &user_id(n).0);
            run.value(Field::UserIdentity, &key(&name(n)).verifying_key().octets());
            let stored = [&user_id(n).0[..], &key(&name(n)).verifying_key().octets()].concat();
            run.record(Party::Broker, How::Stored, "user", About::default(), &stored);
        }
        for operator in 0..OPERATORS {
            let mut wallet = wallet();
            run.fill(&mut wallet, &mut broker, operator);
            for token in 0..TOKENS {
                let group = run.open(&mut wallet, &mut broker, operator, token);
                for user in 0..USERS {
                    let session = operator * TOKENS + token;
                    let about = About { session: Some((user, session)), token: Some((operator, token)) };
                    run.attach(&mut broker, &mut sims[user as usize], &group, about);
                }
            }
        }
        run
    }

    /// Registration: the operator under its name. It happens for a batch, so none of it is about a token.
    fn fill(&mut self, wallet: &mut Wallet, broker: &mut Broker, operator: u32) {
        let n = u64::from(operator) + 1;
        let own = certificate(n);
        self.value(Field::OperatorIdentity, name(n).to_string().as_bytes());
        self.value(Field::OperatorIdentity, &own.key.octets());
        self.value(Field::OperatorIdentity, &own.serial.to_be_bytes());
        self.value(Field::OperatorIdentity, &operator_address(operator));
        assert!(wallet.begin_filling(NOW, seed("batch", n)));
        let request = wallet.filling_request(&own, &key(&format!("operator {n}"))).unwrap();
        let BrokerOutput { octets, record, .. } = broker.issue(&request, NOW);
        let about = About::default();
        self.asked("tokens requested", about, &request);
        self.answered("tokens issued", about, &octets);
        self.record(Party::Broker, How::Stored, "batch", about, &record.unwrap().to_octets());
        wallet.finish_filling(&request, &octets, NOW).unwrap();
        self.record(Party::Operator, How::Stored, "wallet", about, &wallet.to_octets());
    }

    /// Ô, over the anonymous channel.
    fn open(&mut self, wallet: &mut Wallet, broker: &mut Broker, operator: u32, token: u32) -> Group {
        let about = About { session: None, token: Some((operator, token)) };
        let n = u64::from(operator * 10 + token);
        let (hash, request) = wallet.begin_spending(at(AGE_S), &seed("spend", n)).unwrap();
        let BrokerOutput { octets, record, .. } = broker.open_group(&request, at(AGE_S));
        self.asked("group request", about, &request);
        self.answered("group answer", about, &octets);
        let mut stored = record.unwrap().to_octets();
        if self.leak == Leak::OperatorBesideGroup {
            stored.extend_from_slice(name(u64::from(operator) + 1).to_string().as_bytes());
        }
        self.record(Party::Broker, How::Stored, "spent token", about, &stored);
        let circuit = whimbrel_privacy::crypto::hash(&[b"circuit", &operator.to_be_bytes(), &hash.0]);
        let peer = match self.leak {
            Leak::ChannelAddress => operator_address(operator).to_vec(),
            Leak::SharedCircuit => {
                whimbrel_privacy::crypto::hash(&[b"circuit", &operator.to_be_bytes()]).to_vec()
            }
            _ => circuit.to_vec(),
        };
        self.record(Party::Broker, How::Received, "channel", about, &peer);
        self.value(Field::CoLocation, &hash.0);
        wallet.finish_spending(hash, &octets).unwrap()
    }

    fn attach(&mut self, broker: &mut Broker, sim: &mut UserSim, group: &Group, about: About) {
        let ((user, session), (operator, token)) = (about.session.unwrap(), about.token.unwrap());
        let n = u64::from(user * 100 + session);
        self.record(
            Party::Operator,
            How::Sent,
            "broadcast",
            About { session: None, ..about },
            &group.hash().0,
        );
        let (attach, request) = UserAttach::begin(sim, group.hash(), &seed("u", n)).unwrap();
        self.record(Party::Operator, How::Received, "user request", about, &request.to_octets());
        let asked = OperatorAttach::ask(contract(), request, &seed("o", n));
        let (waiting, question) = asked.unwrap();
        let question = question.sign(group).unwrap();
        let BrokerOutput { octets, record, event } = broker.attach(&question, at(AGE_S), &seed("b", n));
        let BrokerEvent::Granted(granted) = event else { panic!("{event:?}") };
        self.asked("operator request", about, &question);
        self.answered("answer", about, &octets);
        self.record(Party::Broker, How::Stored, "used counter", about, &record.unwrap().to_octets());
        let stored = [&granted.user.0[..], &granted.grant.to_octets()].concat();
        self.record(Party::Broker, How::Stored, "session", about, &stored);
        let challenging = waiting.answer(&octets, at(AGE_S)).unwrap();
        let challenge = challenging.challenge().to_octets();
        self.record(Party::Operator, How::Sent, "challenge", about, &challenge);
        let responding = attach.challenge(&challenge, at(AGE_S)).unwrap();
        let response = responding.response().to_message();
        self.record(Party::Operator, How::Received, "response", about, &response);
        let at_operator = challenging.respond(responding.response()).unwrap();
        responding.commit(attach, sim);
        // What the core of the operator stores of the UE: its place, its address.
        let (place, address) = (cell(operator, (user + token) % 3), ue_address(operator, user, token));
        self.value(Field::Location, &place);
        self.value(Field::Address, &address);
        let mut stored = at_operator.record();
        if self.leak == Leak::UserKeyAtOperator {
            stored.extend_from_slice(&sim.signing.verifying_key().octets());
        }
        if self.leak == Leak::Imeisv {
            stored.extend_from_slice(format!("35{:08}FFFF01", 48_151_623 + user * 42).as_bytes());
        }
        self.record(Party::Operator, How::Stored, "UE context", about, &[&stored[..], &place].concat());
        self.record(Party::Operator, How::Stored, "PDU session", about, &address);
        if self.leak == Leak::CellToBroker {
            self.record(Party::Broker, How::Received, "operator request", about, &place);
        }
        if self.leak == Leak::UeAddressToBroker {
            self.record(Party::Broker, How::Received, "operator request", about, &address);
        }
    }

    /// What is not about a token is registration, in which the broker deals with the operator by name (chapter 4.4.1): it is judged apart.
    fn ledger(&self) -> Ledger {
        let registration = ["tokens requested", "tokens issued", "batch", "wallet"];
        let of_sessions: Vec<_> =
            self.recordings.iter().filter(|r| !registration.contains(&r.what)).cloned().collect();
        Ledger::of(&self.values, &of_sessions, &[b"b.example"])
    }

    fn registration(&self) -> Ledger {
        let of_registration: Vec<_> = self
            .recordings
            .iter()
            .filter(|r| r.about == About::default() && r.what != "user")
            .cloned()
            .collect();
        Ledger::of(&self.values, &of_registration, &[b"b.example"])
    }
}

fn row(ledger: &Ledger) -> [BTreeSet<Field>; 2] {
    [Party::Operator, Party::Broker].map(|party| ledger.row(party))
}

/// The row LOCA of Table 4.1: the operator has the location, the broker the user's identity.
fn row_of_table() -> [BTreeSet<Field>; 2] {
    [[Field::Location].into(), [Field::UserIdentity].into()]
}

#[test] // Table 4.1, row LOCA
fn the_sums_of_the_ledger_are_the_row_of_the_table() {
    let run = Run::with(Leak::Nothing);
    let ledger = run.ledger();
    assert_eq!(row(&ledger), row_of_table(), "\n{ledger}");
    // Beside the table: the operator knows the address that it gives; the broker knows which users are at one operator (chapter 4.5.3).
    assert!(ledger.sum(Party::Operator).contains(&Field::Address));
    assert!(!ledger.sum(Party::Broker).contains(&Field::Address));
    assert!(ledger.sum(Party::Broker).contains(&Field::CoLocation));
    // In registration the broker knows the operator, and nothing of any user.
    let registration = run.registration();
    assert_eq!(registration.sum(Party::Broker), [Field::OperatorIdentity].into(), "\n{registration}");
}

#[test]
fn each_planted_leak_is_found_in_its_message_or_store() {
    for (leak, party, field, what) in [
        (Leak::ChannelAddress, Party::Broker, Field::OperatorIdentity, "channel"),
        (Leak::OperatorBesideGroup, Party::Broker, Field::OperatorIdentity, "spent token"),
        (Leak::SharedCircuit, Party::Broker, Field::OperatorIdentity, "channel"),
        (Leak::UserKeyAtOperator, Party::Operator, Field::UserIdentity, "UE context"),
        (Leak::Imeisv, Party::Operator, Field::Trajectory, "UE context"),
        (Leak::CellToBroker, Party::Broker, Field::Location, "operator request"),
        (Leak::UeAddressToBroker, Party::Broker, Field::Address, "operator request"),
    ] {
        let ledger = Run::with(leak).ledger();
        assert_eq!(ledger.lines_with(party, field), [what], "{leak:?}\n{ledger}");
    }
}

#[test]
fn the_documentation_has_the_ledger_as_it_is() {
    let documented = include_str!("../../../../docs/veil.md");
    let run = Run::with(Leak::Nothing);
    for table in [run.ledger().to_string(), run.registration().to_string()] {
        assert!(documented.contains(&table), "docs/veil.md must have this table:\n{table}");
    }
}
