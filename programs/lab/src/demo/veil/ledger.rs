//! The knowledge ledger of a run: what each party received, sent and stored, searched for what it must not know
//! ([`whimbrel_privacy::ledger`]).
//!
//! Time is left out: seconds since the Unix epoch are blanked, since two things that happened in one second would else be taken for those of
//! one user (docs/veil.md, "What the ledger does not see").

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use whimbrel_broker_client::veil::record::RecordedMessage;
use whimbrel_ids::{Guti, STmsi};
use whimbrel_ngap::{ProcedureCode, peek};
use whimbrel_open::carriage::SuciNai;
use whimbrel_privacy::ledger::{About, Field, How, Ledger, Party, Recording, Value};
use whimbrel_privacy::msg::{
    Answer, AnswerBody, GroupAnswer, HomeRequest, OperatorRequest, Order, Orders, UsageReport, UserRequest,
};

use super::agency::Found;
use super::{EMERGENCY, INTERCEPTED};
use crate::playground::veil::{Class, DOMAIN, VeilPlayground};

/// What the demonstration knows of a session, and the parties do not.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) user: usize,
    /// H(the user's request).
    pub(super) request: [u8; 32],
    pub(super) group: [u8; 32],
    pub(super) pseudonym: [u8; 16],
    pub(super) address: Option<Ipv4Addr>,
}

/// What the demonstration knows of ordinary UEs: the addresses that they had, and the 5G-GUTIs.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenOfOrdinary {
    pub(super) addresses: BTreeSet<Ipv4Addr>,
    pub(super) gutis: BTreeSet<Guti>,
}

/// A leak that is planted, to see that the ledger finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leak {
    /// The operator's log names a user.
    Identity,
    /// The broker's store has a gNB's cell.
    Location,
    /// The broker hears from the operator's address.
    Operator,
    /// The operator stores a mark of each user that stays the same.
    Trajectory,
}

impl Leak {
    pub(super) const ALL: [Self; 4] = [Self::Identity, Self::Location, Self::Operator, Self::Trajectory];

    /// Whose knowledge it is, of what, and in which line.
    const fn is_of(self) -> (Party, Field, &'static str) {
        match self {
            Self::Identity => (Party::Operator, Field::UserIdentity, "log"),
            Self::Location => (Party::Broker, Field::Location, "session"),
            Self::Operator => (Party::Broker, Field::OperatorIdentity, "channel"),
            Self::Trajectory => (Party::Operator, Field::Trajectory, "UE context"),
        }
    }
}

/// What the parties have, sorted.
#[derive(Clone)]
pub(super) struct Recorded {
    /// Of attaches and sessions.
    operator: Vec<Recording>,
    broker: Vec<Recording>,
    /// Of the issuing of tokens, under the operator's name.
    registration: Vec<Recording>,
    /// Of the relays.
    relays: [Vec<RecordedMessage>; 2],
    /// Of the ordinary UEs.
    ordinary: SeenOfOrdinary,
    /// Of the agency.
    agency: Vec<Recording>,
}

/// Users whose sessions have a ledger of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    Veiled,
    Ordinary,
    /// Veiled, and under an agency's order.
    UnderOrder,
}

/// The ledgers, and what the relays saw.
pub(super) struct Ledgers {
    operator: Ledger,
    broker: Ledger,
    /// Of the sessions of ordinary UEs: of the operator, and of the broker.
    ordinary: [Ledger; 2],
    /// The same of users under order.
    under_order: [Ledger; 2],
    agency: Ledger,
    registration: Ledger,
    relays: Result<(), String>,
}

/// The party, and which of its recordings.
struct Truth {
    sessions: BTreeMap<[u8; 32], (u32, u32)>,
    /// Pseudonyms, to find the session of what names no request.
    pseudonyms: BTreeMap<[u8; 16], [u8; 32]>,
    groups: BTreeMap<[u8; 32], (u32, u32)>,
    group_of: BTreeMap<[u8; 32], [u8; 32]>,
    /// The scheme outputs of ordinary UEs' SUCIs, and the requests in which they stood.
    sucis: BTreeMap<Vec<u8>, [u8; 32]>,
    seconds: (u32, u32),
}

/// How long after a run its grants may end, in seconds, and how long before it tokens may have been made.
const SECONDS_AROUND: u32 = 8 * 86_400;

impl Truth {
    /// The session of an ordinary UE: the operator's request names it, and the broker's answer.
    fn add_ordinary(&mut self, playground: &VeilPlayground, entries: &[RecordedMessage]) {
        for entry in entries.iter().filter(|e| e.how == How::Sent) {
            let Ok(asked) = HomeRequest::parse(&entry.octets) else { continue };
            let (request, (_, _, output)) = (asked.question.hash(), asked.question.suci.parts());
            let Some(user) = playground.user_of_suci(output) else { continue };
            if self.sessions.contains_key(&request) {
                continue; // it was asked again
            }
            let nth = 1 + self.sessions.values().filter(|(of, _)| *of == user as u32).count() as u32;
            self.sessions.insert(request, (user as u32, nth));
            self.group_of.insert(request, asked.group.0);
            self.sucis.insert(output.to_vec(), request);
        }
        for entry in entries {
            if let Ok(Answer(AnswerBody::Challenged { grant, .. })) = Answer::parse(&entry.octets) {
                self.pseudonyms.insert(grant.grant.pseudonym.0, grant.grant.request);
            }
        }
    }

    fn of(seen: &[Seen], tokens: &[Vec<[u8; 32]>]) -> Self {
        let (mut sessions, mut nth) = (BTreeMap::new(), BTreeMap::new());
        for s in seen {
            let n: &mut u32 = nth.entry(s.user).or_default();
            *n += 1;
            sessions.insert(s.request, (s.user as u32, *n));
        }
        let of_operator = |(operator, tokens): (usize, &Vec<[u8; 32]>)| {
            let all = tokens.iter().enumerate().map(move |(n, token)| (*token, (operator as u32, n as u32)));
            all.collect::<Vec<_>>()
        };
        let groups = tokens.iter().enumerate().flat_map(of_operator).collect();
        let now = u32::try_from(whimbrel_broker_client::now().as_secs()).unwrap_or(u32::MAX);
        Self {
            sessions,
            pseudonyms: seen.iter().map(|s| (s.pseudonym, s.request)).collect(),
            groups,
            group_of: seen.iter().map(|s| (s.request, s.group)).collect(),
            sucis: BTreeMap::new(),
            seconds: (now - SECONDS_AROUND, now.saturating_add(SECONDS_AROUND)),
        }
    }

    fn about_session(&self, request: &[u8; 32]) -> About {
        let token = self.group_of.get(request).and_then(|group| self.groups.get(group)).copied();
        About { session: self.sessions.get(request).copied(), token }
    }

    fn about_group(&self, group: &[u8; 32]) -> About {
        About { session: None, token: self.groups.get(group).copied() }
    }

    /// Of what stands in the octets of a message or a record.
    fn about(&self, what: &str, octets: &[u8]) -> About {
        match what {
            "operator request" => match (OperatorRequest::parse(octets), HomeRequest::parse(octets)) {
                (Ok(asked), _) => self.about_session(&asked.request.hash()),
                (_, Ok(asked)) => self.about_session(&asked.question.hash()),
                _ => About::default(),
            },
            "answer" => match Answer::parse(octets) {
                Ok(Answer(AnswerBody::Granted { grant, .. } | AnswerBody::Challenged { grant, .. })) => {
                    self.about_session(&grant.grant.request)
                }
                _ => About::default(),
            },
            "group answer" => match GroupAnswer::parse(octets) {
                Ok(GroupAnswer::Opened { group, .. }) => self.about_group(&group.0),
                _ => About::default(),
            },
            "usage report" => {
                UsageReport::parse(octets).map(|r| self.about_session(&r.session)).unwrap_or_default()
            }
            "broadcast" | "spent token" => {
                octets.first_chunk::<32>().map(|group| self.about_group(group)).unwrap_or_default()
            }
            "usage" => octets.first_chunk::<32>().map(|s| self.about_session(s)).unwrap_or_default(),
            "order" => Order::parse(octets).map(|o| self.about_session(&o.session)).unwrap_or_default(),
            "orders" => match Orders::parse(octets).as_ref().map(|orders| &orders.0[..]) {
                Ok([first, ..]) => self.about_session(&first.session),
                _ => About::default(),
            },
            "session" => {
                let named = octets.windows(16).find_map(|w| self.pseudonyms.get(w));
                named.map(|request| self.about_session(request)).unwrap_or_default()
            }
            _ => About::default(),
        }
    }

    /// The request of the ordinary UE whose SUCI stands in a message.
    fn suci_in(&self, message: &[u8]) -> Option<[u8; 32]> {
        let stands = |output: &Vec<u8>| message.windows(output.len()).any(|w| w == output);
        self.sucis.iter().find(|(output, _)| stands(output)).map(|(_, request)| *request)
    }

    /// The octets without the seconds in them.
    fn without_time(&self, mut octets: Vec<u8>) -> Vec<u8> {
        let (first, last) = self.seconds;
        for at in 0..octets.len().saturating_sub(3) {
            let Some(four) = octets.get_mut(at..at + 4) else { continue };
            let value = u32::from_be_bytes([four[0], four[1], four[2], four[3]]);
            if (first..=last).contains(&value) {
                four.fill(0);
            }
        }
        octets
    }
}

/// The tokens that each operator has broadcast, in their order.
fn tokens(playground: &VeilPlayground) -> Result<Vec<Vec<[u8; 32]>>, String> {
    let of = |entries: Vec<RecordedMessage>| {
        let broadcast = entries.into_iter().filter(|e| e.what == "broadcast");
        broadcast.filter_map(|e| e.octets.try_into().ok()).collect()
    };
    playground.operators.iter().map(|o| o.record().map(of)).collect()
}

/// What is of the registration of tokens and of claims, where the operator shows its name.
const REGISTRATION: [&str; 11] = [
    "key log asked",
    "key log",
    "tokens requested",
    "tokens issued",
    "batch",
    "wallet",
    "table asked",
    "table",
    "claim, proof left out",
    "claim answer",
    "payment",
];

/// Sorts what the parties have recorded. Errors: one sentence.
pub(super) fn recorded(
    playground: &VeilPlayground,
    seen: &[Seen],
    ordinary: SeenOfOrdinary,
    shown: Vec<(&'static str, Vec<u8>)>,
) -> Result<Recorded, String> {
    let mut truth = Truth::of(seen, &tokens(playground)?);
    for o in &playground.operators {
        truth.add_ordinary(playground, &o.record()?);
    }
    let truth = truth;
    let (mut operator, mut broker, mut registration) = (Vec::new(), Vec::new(), Vec::new());
    for o in &playground.operators {
        let entries = o.record()?;
        // A group request names its token by the key alone: its answer follows in the recording of the same operator.
        let mut requests: BTreeMap<Vec<u8>, About> = BTreeMap::new();
        let mut asked: Option<Vec<u8>> = None;
        for entry in &entries {
            match entry.what.as_str() {
                "group request" => asked = Some(entry.octets.clone()),
                "group answer" => {
                    if let Some(request) = asked.take() {
                        requests.insert(request, truth.about("group answer", &entry.octets));
                    }
                }
                _ => {}
            }
        }
        for RecordedMessage { how, what, octets, .. } in entries {
            let about = requests.get(&octets).copied().unwrap_or_else(|| truth.about(&what, &octets));
            let of = if REGISTRATION.contains(&what.as_str()) { &mut registration } else { &mut operator };
            let octets = truth.without_time(octets);
            of.push(Recording { party: Party::Operator, how, what: name_of(&what), about, octets });
        }
        operator.extend(of_capture(&o.capture()?, o.amf, &truth));
        for (what, octets) in o.stored() {
            let (how, about) = (How::Stored, About::default());
            operator.push(Recording { party: Party::Operator, how, what, about, octets });
        }
    }
    for (what, octets) in shown {
        let (how, about) = (How::Stored, About::default());
        operator.push(Recording { party: Party::Operator, how, what, about, octets });
    }
    let requests: BTreeMap<Vec<u8>, About> = {
        let of = operator.iter().filter(|r| r.what == "group request");
        of.map(|r| (r.octets.clone(), r.about)).collect()
    };
    for RecordedMessage { how, what, peer, octets } in playground.broker_record()? {
        let octets = truth.without_time(octets);
        let about = requests.get(&octets).copied().unwrap_or_else(|| truth.about(&what, &octets));
        let of = if REGISTRATION.contains(&what.as_str()) { &mut registration } else { &mut broker };
        if how == How::Received {
            let address = peer.rsplit_once(':').map_or(peer.as_str(), |(address, _)| address);
            let octets = format!("{address}:").into_bytes();
            of.push(Recording { party: Party::Broker, how, what: "channel", about, octets });
        }
        of.push(Recording { party: Party::Broker, how, what: name_of(&what), about, octets });
    }
    let (how, about, octets) = (How::Stored, About::default(), playground.broker_log().into_bytes());
    broker.push(Recording { party: Party::Broker, how, what: "log", about, octets });
    let relays = [playground.relay_record("relay")?, playground.relay_record("gateway")?];
    Ok(Recorded { operator, broker, registration, relays, ordinary, agency: Vec::new() })
}

/// The name of a kind of recording, from those that parties use.
fn name_of(what: &str) -> &'static str {
    const NAMES: [&str; 31] = [
        "table asked",
        "table",
        "claim, proof left out",
        "claim answer",
        "payment",
        "key log asked",
        "key log",
        "tokens requested",
        "tokens issued",
        "group request",
        "group answer",
        "operator request",
        "answer",
        "usage report",
        "report answer",
        "failure",
        "failure answer",
        "broadcast",
        "wallet",
        "claim",
        "batch",
        "spent token",
        "session",
        "usage",
        "user",
        "channel",
        "orders asked",
        "orders",
        "order",
        "order answer",
        "order answer taken",
    ];
    NAMES.into_iter().find(|name| *name == what).unwrap_or("other")
}

/// The messages of a capture: N2 with its UEs, N4, and the heads of packets on N3.
fn of_capture(capture: &[u8], amf: Ipv4Addr, truth: &Truth) -> Vec<Recording> {
    const SCTP: u8 = 132;
    const HEAD_OCTETS: usize = 96;
    let mut recordings = Vec::new();
    let mut connections: BTreeMap<(Ipv4Addr, u64), [u8; 32]> = BTreeMap::new();
    // The messages of connections whose UE has not shown its SUCI yet.
    let mut unknown: BTreeMap<(Ipv4Addr, u64), Vec<usize>> = BTreeMap::new();
    for packet in packets(capture) {
        let Some(&[first, ..]) = packet.first_chunk::<20>() else { continue };
        let address =
            |at: usize| packet.get(at..at + 4).and_then(|o| <[u8; 4]>::try_from(o).ok()).map(Ipv4Addr::from);
        let (Some(from), Some(to), Some(protocol)) = (address(12), address(16), packet.get(9)) else {
            continue;
        };
        let Some(payload) = packet.get(usize::from(first & 15) * 4..) else { continue };
        let how = if from == amf { How::Sent } else { How::Received };
        let (what, octets, about) = if *protocol == SCTP {
            let Some(message) = payload.get(28..) else { continue };
            let gnb = if from == amf { to } else { from };
            let peeked = peek(message);
            let ran = peeked.and_then(|p| p.ran_ue_ngap_id).map(|id| (gnb, u64::from(id.0)));
            if let Some(ran) = ran.filter(|_| peeked.is_some_and(|p| p.procedure_code == INITIAL_UE_MESSAGE))
            {
                connections.remove(&ran);
                unknown.remove(&ran);
            }
            if let Some((ran, request)) = ran.zip(request_in(message).or_else(|| truth.suci_in(message))) {
                connections.insert(ran, request);
                for at in unknown.remove(&ran).into_iter().flatten() {
                    let before: Option<&mut Recording> = recordings.get_mut(at);
                    before.into_iter().for_each(|r| r.about = truth.about_session(&request));
                }
            }
            let request = ran.and_then(|ran| connections.get(&ran));
            if let Some(ran) = ran.filter(|_| request.is_none()) {
                unknown.entry(ran).or_default().push(recordings.len());
            }
            ("N2", message, request.map(|r| truth.about_session(r)).unwrap_or_default())
        } else {
            let port = |at: usize| payload.get(at..at + 2).map(|p| u16::from_be_bytes([p[0], p[1]]));
            let Some(message) = payload.get(8..) else { continue };
            match (port(0), port(2)) {
                (Some(8805), _) | (_, Some(8805)) => ("N4", message, About::default()),
                _ => {
                    ("N3, heads of packets", message.get(..HEAD_OCTETS).unwrap_or(message), About::default())
                }
            }
        };
        let octets = truth.without_time(octets.to_vec());
        recordings.push(Recording { party: Party::Operator, how, what, about, octets });
    }
    recordings
}

/// The packets of a capture file, as `--capture` writes it.
fn packets(capture: &[u8]) -> Vec<&[u8]> {
    let mut rest = capture.get(24..).unwrap_or_default();
    let mut packets = Vec::new();
    while let Some((head, more)) = rest.split_first_chunk::<16>() {
        let length = u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some((packet, more)) = more.split_at_checked(length) else { break };
        packets.push(packet);
        rest = more;
    }
    packets
}

/// H(the user's request) of the SUCI in an NGAP message.
fn request_in(message: &[u8]) -> Option<[u8; 32]> {
    const BEGIN: &[u8] = b"type1.rid";
    let begin = message.windows(BEGIN.len()).position(|w| w == BEGIN)?;
    let text = message.get(begin..)?;
    let end = text.windows(DOMAIN.len()).position(|w| w == DOMAIN.as_bytes())? + DOMAIN.len();
    let suci = SuciNai::parse(text.get(..end)?).ok()?;
    let request = UserRequest::from_scheme_output(suci.realm.clone(), suci.key_id, &suci.output).ok()?;
    Some(request.hash())
}

impl Recorded {
    /// Adds what the agency has.
    pub(super) fn add_agency(&mut self, found: &Found) {
        self.agency = found.recordings();
    }

    /// Plants a leak.
    fn plant(&mut self, leak: Leak, playground: &VeilPlayground, seen: &[Seen]) {
        let Some(user) = playground.users.first() else { return };
        let (how, about) = (How::Stored, About::default());
        match leak {
            Leak::Identity => {
                let octets = format!("the UE of {} registers", user.name).into_bytes();
                self.operator.push(Recording { party: Party::Operator, how, what: "log", about, octets });
            }
            Leak::Location => {
                let Some(octets) = locations(playground).pop() else { return };
                self.broker.push(Recording { party: Party::Broker, how, what: "session", about, octets });
            }
            Leak::Operator => {
                let octets = playground.operators.iter().map(|o| format!("{}:", o.amf)).collect::<String>();
                let (how, what) = (How::Received, "channel");
                let octets = octets.into_bytes();
                self.broker.push(Recording { party: Party::Broker, how, what, about, octets });
            }
            Leak::Trajectory => {
                for (n, s) in seen.iter().enumerate() {
                    let about = About { session: Some((s.user as u32, n as u32)), token: None };
                    let octets = whimbrel_privacy::crypto::hash(&[b"mark", &s.user.to_be_bytes()]).to_vec();
                    let what = Leak::Trajectory.is_of().2;
                    self.operator.push(Recording { party: Party::Operator, how, what, about, octets });
                }
            }
        }
    }

    /// The ledgers with a leak. Errors: the ledger does not find it.
    pub(super) fn find(&self, leak: Leak, playground: &VeilPlayground, seen: &[Seen]) -> Result<(), String> {
        let mut leaky = self.clone();
        leaky.plant(leak, playground, seen);
        let (party, field, line) = leak.is_of();
        let ledgers = leaky.ledgers(playground, seen);
        let ledger = if party == Party::Operator { &ledgers.operator } else { &ledgers.broker };
        let found = ledger.lines_with(party, field).contains(&line) && ledgers.judge().is_err();
        if found { Ok(()) } else { Err(format!("the ledger does not find a planted leak: {leak:?}")) }
    }

    /// The session groups of ordinary UEs.
    fn groups(&self) -> impl Iterator<Item = [u8; 32]> {
        let asked = self.operator.iter().filter(|r| r.what == "operator request");
        asked.filter_map(|r| HomeRequest::parse(&r.octets).ok()).map(|asked| asked.group.0)
    }

    /// Ledgers of all parties, from the recorded octets.
    pub(super) fn ledgers(&self, playground: &VeilPlayground, seen: &[Seen]) -> Ledgers {
        let value = |field, octets: &[u8]| Value::new(field, octets);
        let mut of_users = Vec::new();
        for user in &playground.users {
            of_users.push(value(Field::UserIdentity, &user.id.0));
            of_users.push(value(Field::UserIdentity, user.name.as_bytes()));
            of_users.push(value(Field::UserIdentity, &user.public()));
            if user.class == Class::Ordinary {
                let digits = user.supi().value();
                of_users
                    .extend([digits.as_bytes(), &user.k()].map(|octets| value(Field::UserIdentity, octets)));
                of_users.extend(user.msin().map(|msin| value(Field::UserIdentity, &msin)));
            }
        }
        let of_operators: Vec<Value> = playground
            .operators
            .iter()
            .flat_map(|o| {
                let texts = [o.id.to_string(), format!("{}:", o.amf)].map(String::into_bytes);
                texts.into_iter().chain([o.key.to_vec()]).map(|t| value(Field::OperatorIdentity, &t))
            })
            .collect();
        let of_places = locations(playground).into_iter().map(|place| value(Field::Location, &place));
        let groups: BTreeSet<[u8; 32]> = seen.iter().map(|s| s.group).chain(self.groups()).collect();
        let of_groups = groups.iter().map(|group| value(Field::CoLocation, group));
        let of_all = seen.iter().filter_map(|s| s.address).chain(self.ordinary.addresses.iter().copied());
        let addresses = of_all.flat_map(|a| {
            let [w, x, y, z] = a.octets();
            // As text; and as a PDU address (TS 24.501 §9.11.4.10) and a UE IP address (TS 29.244 §8.2.62) have it.
            [a.to_string().into_bytes(), vec![1, w, x, y, z], vec![2, w, x, y, z], vec![6, w, x, y, z]]
        });
        let addresses: BTreeSet<Vec<u8>> = addresses.collect();
        let of_addresses = addresses.iter().map(|a| value(Field::Address, a));
        let common: Vec<Value> =
            of_users.into_iter().chain(of_places).chain(of_groups).chain(of_addresses).collect();
        let for_broker: Vec<Value> = common.iter().cloned().chain(of_operators.iter().cloned()).collect();
        let of_gutis: Vec<Value> =
            self.ordinary.gutis.iter().map(|guti| value(Field::Trajectory, &guti_octets(*guti))).collect();
        let for_ordinary: Vec<Value> = common.iter().cloned().chain(of_gutis).collect();
        let public = [DOMAIN.as_bytes()];
        let of = |users, values: &[Value], recordings: &[Recording]| {
            Ledger::of(values, &of_users_alone(users, recordings, playground), &public)
        };
        let both = |users, values: &[Value]| {
            [of(users, values, &self.operator), of(users, &for_broker, &self.broker)]
        };
        let [operator, broker] = both(Users::Veiled, &common);
        Ledgers {
            relays: judge_relays(&self.relays, &for_broker),
            operator,
            broker,
            agency: Ledger::of(&common, &self.agency, &public),
            ordinary: both(Users::Ordinary, &for_ordinary),
            under_order: both(Users::UnderOrder, &common),
            registration: Ledger::of(&for_broker, &self.registration, &public),
        }
    }
}

/// INITIAL UE MESSAGE (TS 38.413 §9.4.7): a connection begins.
const INITIAL_UE_MESSAGE: ProcedureCode = ProcedureCode::INITIAL_UE_MESSAGE;

/// Recordings with the sessions of some users alone. Each session of another user counts as a user of its own: what stands in it too is not theirs alone.
fn of_users_alone(users: Users, recordings: &[Recording], playground: &VeilPlayground) -> Vec<Recording> {
    let is_of = |user: u32| {
        let class = playground.users.get(user as usize).map(|user| user.class);
        let ordered = [INTERCEPTED, EMERGENCY].contains(&(user as usize));
        match users {
            Users::Veiled => class == Some(Class::Veiled) && !ordered,
            Users::Ordinary => class == Some(Class::Ordinary),
            Users::UnderOrder => ordered,
        }
    };
    let mut others: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut of: Vec<Recording> = recordings.to_vec();
    for recording in &mut of {
        let Some(session) = recording.about.session.filter(|(user, _)| !is_of(*user)) else { continue };
        let next = u32::MAX - others.len() as u32;
        recording.about.session = Some((*others.entry(session).or_insert(next), 1));
    }
    of
}

/// A 5G-GUTI as it stands in NAS (TS 24.501 §9.11.3.4).
fn guti_octets(guti: Guti) -> Vec<u8> {
    let STmsi { set, pointer, tmsi } = guti.s_tmsi();
    let amf = (set << 6 | u16::from(pointer)).to_be_bytes();
    [&amf[..], &tmsi.0.to_be_bytes()].concat()
}

/// The cells of all gNBs, as they stand in NGAP (NR CGI).
pub(super) fn cells(playground: &VeilPlayground) -> Vec<Vec<u8>> {
    locations(playground).into_iter().step_by(2).collect()
}

/// Each place as it stands in NGAP (NR CGI, TS 38.413 §9.3.1.7), and the gNB's address.
fn locations(playground: &VeilPlayground) -> Vec<Vec<u8>> {
    let places = playground.operators.iter().flat_map(|o| o.gnb_places());
    places
        .flat_map(|place| {
            let id = place.config.id;
            // 28 bits of the gNB and 8 of the cell, at the upper end of five octets.
            let cell = (u64::from(id.gnb_id) << 12 | 1 << 4).to_be_bytes();
            let cgi = [&id.plmn.nas_octets()[..], &cell[3..]].concat();
            [cgi, format!("{}:", place.address).into_bytes()]
        })
        .collect()
}

/// The relay sees operators and nothing that they ask; the gateway sees what is asked, and no operator.
fn judge_relays([relay, gateway]: &[Vec<RecordedMessage>; 2], values: &[Value]) -> Result<(), String> {
    let recordings = |entries: &[RecordedMessage]| -> Vec<Recording> {
        let of = |octets: Vec<u8>| Recording {
            party: Party::Broker,
            how: How::Received,
            what: "channel",
            about: About::default(),
            octets,
        };
        entries.iter().flat_map(|e| [of(e.octets.clone()), of(e.peer.clone().into_bytes())]).collect()
    };
    let seen = |entries: &[RecordedMessage]| Ledger::of(values, &recordings(entries), &[]).sum(Party::Broker);
    let (relay, gateway) = (seen(relay), seen(gateway));
    // UE addresses are five octets here, which a million sealed octets may have by chance.
    let judged = |seen: &BTreeSet<Field>| seen.iter().copied().filter(|f| *f != Field::Address).collect();
    let (relay, gateway): (Vec<Field>, Vec<Field>) = (judged(&relay), judged(&gateway));
    if relay.iter().any(|field| *field != Field::OperatorIdentity) || !gateway.is_empty() {
        return Err(format!("the relay learnt {relay:?}, the gateway {gateway:?}"));
    }
    Ok(())
}

impl Ledgers {
    /// The ledgers as printed tables.
    pub(super) fn tables(&self) -> String {
        let both = |o: &Ledger, b: &Ledger| {
            let broker = b.of_party(Party::Broker);
            let rows = broker.lines().skip(2).map(|line| format!("{line}\n")).collect::<String>();
            o.of_party(Party::Operator) + &rows
        };
        format!(
            "what the parties know of attaches and sessions, from all that they received, sent and stored:\n{}\n\
             what they know of the attaches and sessions of ordinary UEs:\n{}\n\
             what they know of the attaches and sessions of users under an agency's order:\n{}\n\
             what the agency knows of them:\n{}\n\
             what they know of the issuing of tokens and of claims, where the operator shows its name:\n{}",
            both(&self.operator, &self.broker),
            both(&self.ordinary[0], &self.ordinary[1]),
            both(&self.under_order[0], &self.under_order[1]),
            self.agency.of_party(Party::Agency),
            both(&self.registration, &self.registration)
        )
    }

    /// Errors: what a party knows that it must not know, or does not know that it does, by the row LOCA of Table 4.1.
    pub(super) fn judge(&self) -> Result<(), String> {
        let [of_operator, of_broker] = &self.ordinary;
        let user = || BTreeSet::from([Field::UserIdentity]);
        // An ordinary UE registers again with the 5G-GUTI that its operator gave it.
        let leaks = || BTreeSet::from([Field::Location, Field::Trajectory]);
        let [operator_of_ordered, broker_of_ordered] = &self.under_order;
        let rows = [
            ("O", Party::Operator, &self.operator, BTreeSet::from([Field::Location])),
            ("B", Party::Broker, &self.broker, user()),
            ("O, of ordinary UEs,", Party::Operator, of_operator, leaks()),
            ("B, of ordinary UEs,", Party::Broker, of_broker, user()),
            // The one UE that is located has messages that no other has.
            ("O, of users under order,", Party::Operator, operator_of_ordered, leaks()),
            ("B, of users under order,", Party::Broker, broker_of_ordered, user()),
            (
                "the agency",
                Party::Agency,
                &self.agency,
                BTreeSet::from([Field::UserIdentity, Field::Location]),
            ),
        ];
        for (party, of, ledger, expected) in rows {
            let row = ledger.row(of);
            if row != expected {
                let lines =
                    |field: &Field| format!("{field} in {}", ledger.lines_with(of, *field).join(", "));
                let extra: Vec<String> = row.difference(&expected).map(lines).collect();
                let missing: Vec<String> = expected.difference(&row).map(Field::to_string).collect();
                return Err(format!(
                    "{party} knows what Table 4.1 does not give it: [{}]; it lacks: [{}]",
                    extra.join("; "),
                    missing.join("; ")
                ));
            }
        }
        self.relays.clone()
    }
}
