//! Veiled attach of the emulated UE (LOCA, chapter 4.4.2), against a core that serves with a token, and a broker.

use whimbrel_ids::{PlmnId, Supi};
use whimbrel_nas::ie::{EapMessage, MobileIdentity, Suci};
use whimbrel_nas::mm::MessageType;
use whimbrel_open::carriage::{EapCode, EapExpanded, SuciNai};
use whimbrel_open::crypto::{PrivateKey, Seed};
use whimbrel_open::id::{Domain, Nid, OperatorId, UserId};
use whimbrel_open::msg::{Certificate, Qos, Subject, Trust, Validity};
use whimbrel_privacy::broker::{Broker, BrokerConfig, BrokerEvent, Class, Counters, Policy, User};
use whimbrel_privacy::crypto::{Response, SigningKey, hash};
use whimbrel_privacy::ledger::{About, Field, How, Ledger, Party, Recording, Value};
use whimbrel_privacy::log::{KeyEntry, KeyLog, LogTrust, Witness};
use whimbrel_privacy::msg::{FailureCause, UserRequest};
use whimbrel_privacy::operator::{Challenging, Contract, Group, OperatorAttach, OperatorSession};
use whimbrel_privacy::user::UserSim;
use whimbrel_privacy::voprf::IssuerKey;
use whimbrel_privacy::wallet::{Wallet, WalletConfig};
use whimbrel_ran::ue::{MmState, SuciSource, UeCommand, VeilCard};
use whimbrel_security::{Abba, KAmf, KSeaf};

use crate::fake_core::{NOW, Net};

fn domain() -> Domain {
    "b.example".parse().unwrap()
}

fn key(name: &str) -> SigningKey {
    SigningKey::new(&hash(&[name.as_bytes()]))
}

fn seed(n: u64) -> Seed {
    Seed::new(hash(&[b"seed", &n.to_be_bytes()]))
}

fn user(n: u8) -> UserId {
    UserId(hash(&[b"user", &[n]])[..16].try_into().unwrap())
}

/// What serves veiled UEs beside the core: an open session group, and the broker.
pub struct Serving {
    pub broker: Broker,
    group: Group,
    challenging: Option<Challenging>,
    pub sessions: Vec<OperatorSession>,
    /// Failures of UEs, as they came.
    pub failures: Vec<Vec<u8>>,
    /// Sent in place of the broker's challenge.
    pub replay: Option<Vec<u8>>,
    pub challenges: Vec<Vec<u8>>,
    runs: u64,
}

impl Serving {
    fn new() -> Self {
        let (authority, validity) = (
            whimbrel_open::crypto::SigningKey::new(&[1; 32]),
            Validity { from: NOW.as_secs() - 86_400, until: NOW.as_secs() + 86_400 },
        );
        let operator = OperatorId { plmn: PlmnId::TEST, nid: Nid::new(1) };
        let own = whimbrel_open::crypto::SigningKey::new(&[2; 32]).verifying_key();
        let certificate = Certificate::issue(&authority, Subject::Operator(operator), own, validity, 1);
        let policy = Policy {
            operators: [operator].into(),
            batches_max: 1,
            group_s: 60,
            validity_s: 3_600,
            slice_octets: 10_000_000,
            poll_s: 2,
            classes: vec![Class {
                qos: Qos { ul_kbps: 10_000, dl_kbps: 50_000, five_qi: 9 },
                filters: Vec::new(),
            }],
        };
        let config = BrokerConfig {
            domain: domain(),
            network: PlmnId::TEST,
            signing: key("broker"),
            trust: Trust::new(vec![authority.verifying_key()]).unwrap(),
            policy,
        };
        let mut broker = Broker::new(config, (1, PrivateKey::new([4; 32])));
        let issuer = IssuerKey::derive(&[5; 32], b"").unwrap();
        let entry = KeyEntry { broker: domain(), epoch: 0, key: *issuer.public(), validity };
        let mut log = KeyLog::new(domain());
        log.append(entry.clone()).unwrap();
        broker.add_issuer(entry, issuer).unwrap();
        let mut witness = Witness::new(domain(), key("broker").verifying_key(), key("witness"));
        let cosignature = witness.cosign(&log.head(&key("broker")), log.entries()).unwrap();
        let witnesses = vec![key("witness").verifying_key()];
        let trust = LogTrust::new(domain(), key("broker").verifying_key(), witnesses).unwrap();
        let mut wallet = Wallet::new(domain(), WalletConfig { age_min_s: 0, low_water: 1 });
        wallet.add_issuing_key(&log.prove(0, 0, vec![cosignature], &key("broker")).unwrap(), &trust).unwrap();
        assert!(wallet.begin_filling(NOW, seed(1)));
        let request = wallet.filling_request(&certificate, &SigningKey::new(&[2; 32])).unwrap();
        wallet.finish_filling(&request, &broker.issue(&request, NOW).octets, NOW).unwrap();
        let (token, request) = wallet.begin_spending(NOW, &seed(2)).unwrap();
        let group = wallet.finish_spending(token, &broker.open_group(&request, NOW).octets).unwrap();
        let (challenging, sessions, failures, replay, challenges) = Default::default();
        Self { broker, group, challenging, sessions, failures, replay, challenges, runs: 10 }
    }

    /// A UE's SUCI: what its broker has it challenged with, in an EAP message.
    pub fn challenge(&mut self, suci: &Suci) -> EapMessage {
        let Suci::Nai { nai, .. } = suci else { panic!("{suci:?}") };
        let suci = SuciNai::parse(nai).unwrap();
        let request = UserRequest::from_scheme_output(suci.realm.clone(), suci.key_id, &suci.output).unwrap();
        let contract =
            Contract { broker: domain(), broker_key: key("broker").verifying_key(), network: PlmnId::TEST };
        self.runs += 1;
        let (asked, question) = OperatorAttach::ask(contract, request, &seed(self.runs)).unwrap();
        let question = question.sign(&self.group).expect("the UE heard this token");
        let output = self.broker.attach(&question, NOW, &seed(self.runs + 1_000));
        assert!(matches!(output.event, BrokerEvent::Granted(_)), "{:?}", output.event);
        let challenging = asked.answer(&output.octets, NOW).unwrap();
        let octets = challenging.challenge().to_octets();
        self.challenging = Some(challenging);
        self.challenges.push(octets.clone());
        let sent = self.replay.take().unwrap_or(octets);
        EapMessage::new(EapExpanded::new(EapCode::Request, 7, &sent).unwrap().to_octets()).unwrap()
    }

    /// A UE's response: the key, if the response is right.
    pub fn respond(&mut self, eap: &EapMessage) -> Option<KAmf> {
        let packet = EapExpanded::parse(eap).unwrap();
        assert_eq!((packet.code, packet.identifier), (EapCode::Response, 7));
        let Ok(response) = Response::parse(packet.data()) else {
            self.failures.push(packet.data().to_vec());
            return None;
        };
        let session = self.challenging.take().unwrap().respond(&response).ok()?;
        let grant = &session.grant.grant;
        let supi = Supi::from_nai(grant.pseudonym.0, grant.broker.as_str()).unwrap();
        let k_amf = KSeaf::new(*session.k_seaf.octets()).k_amf(supi, Abba::RELEASE_15);
        self.sessions.push(session);
        Some(k_amf)
    }
}

/// A network that serves veiled UEs, and the `n`th user's UE, which hears the token.
fn net(n: u8) -> Net {
    let mut serving = Serving::new();
    let signing = key(&format!("user {n}"));
    let record = User {
        key: signing.verifying_key(),
        revoked: false,
        class: 0,
        prepaid: false,
        intercept: false,
        counters: Counters::default(),
    };
    serving.broker.set_user(user(n), record);
    let sim = UserSim {
        user: user(n),
        broker: domain(),
        network: PlmnId::TEST,
        broker_key: key("broker").verifying_key(),
        epoch: serving.broker.epoch(),
        signing,
        counter: 0,
    };
    let card = VeilCard::new(sim, seed(u64::from(n) + 500));
    let mut net = Net::with(|c| c.suci = SuciSource::Veil(Box::new(card)));
    net.ue.hear_token(Some(serving.group.hash()));
    net.core.veil = Some(Box::new(serving));
    net
}

fn serving(net: &mut Net) -> &mut Serving {
    net.core.veil.as_mut().unwrap()
}

/// Detaches, and attaches again.
fn attach_again(net: &mut Net) {
    net.command(UeCommand::Deregister { switch_off: false });
    net.command(UeCommand::Register);
}

#[test] // chapter 4.4.2: challenge and response in AUTHENTICATION REQUEST and RESPONSE, the key in SECURITY MODE COMMAND
fn a_veiled_ue_registers_with_challenge_and_response() {
    let mut net = net(1);
    net.command(UeCommand::Register);
    assert_eq!(net.ue.state(), MmState::Registered);
    assert!(net.core.imeisv.is_none(), "the UE hides its equipment, though asked for it");
    let types = &net.core.uplink;
    for expected in [MessageType::AuthenticationResponse, MessageType::SecurityModeComplete] {
        assert_eq!(types.iter().filter(|t| **t == expected).count(), 1, "{types:?}");
    }
    let granted = net.ue.veil_session().unwrap().grant.clone();
    let sessions = &serving(&mut net).sessions;
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].grant.grant, granted);
}

#[test]
fn an_ue_that_hears_no_token_does_not_attach() {
    let mut net = net(1);
    net.ue.hear_token(None);
    net.command(UeCommand::Register);
    assert_ne!(net.ue.state(), MmState::Registered);
    assert!(serving(&mut net).sessions.is_empty());
}

#[test]
fn a_response_that_is_wrong_gives_the_operator_no_key() {
    let mut net = net(1);
    net.ue.faults_mut().wrong_res_star = true;
    net.command(UeCommand::Register);
    assert_ne!(net.ue.state(), MmState::Registered);
    assert!(serving(&mut net).sessions.is_empty() && net.ue.veil_session().is_none());
}

#[test] // a challenge that is played again finds no UE: the failure's cause is for the broker alone
fn a_replayed_challenge_gets_the_failure_that_every_wrong_challenge_gets() {
    let mut lengths = Vec::new();
    for replayed_to in [1, 2] {
        let mut first = net(1);
        first.command(UeCommand::Register);
        let own = serving(&mut first).challenges[0].clone();
        let mut other = net(replayed_to);
        if replayed_to == 1 {
            // The same UE, at its next attach.
            other.command(UeCommand::Register);
            serving(&mut other).replay = Some(own);
            attach_again(&mut other);
        } else {
            serving(&mut other).replay = Some(own);
            other.command(UeCommand::Register);
        }
        assert_ne!(other.ue.state(), MmState::Registered);
        let failures = std::mem::take(&mut serving(&mut other).failures);
        assert_eq!(failures.len(), 1);
        let (cause, _) = serving(&mut other).broker.failure(&failures[0]).unwrap();
        assert_eq!(cause, FailureCause::Sealed);
        lengths.push(failures[0].len());
    }
    assert_eq!(lengths[0], lengths[1]);
}

#[test] // chapter 4.4.3: what the operator receives in two attaches of a UE has nothing in common that others' have not
fn nothing_of_one_attach_is_in_the_next() {
    let mut recordings = Vec::new();
    let mut values = Vec::new();
    for n in [1, 2] {
        let mut net = net(n);
        net.record = Some(Vec::new());
        net.command(UeCommand::Register);
        let first = (net.record.replace(Vec::new()).unwrap(), net.ue.veil_session().unwrap().grant.supi());
        attach_again(&mut net);
        assert_eq!(net.ue.state(), MmState::Registered);
        let second = (net.record.take().unwrap(), net.ue.veil_session().unwrap().grant.supi());
        assert_ne!(first.1, second.1);
        // The second registration names no GUTI and no place where the UE was.
        let again = net.core.initial.last().unwrap();
        assert!(matches!(again.mobile_identity, MobileIdentity::Suci(_)));
        assert_eq!(again.last_visited_registered_tai, None);
        for (session, (octets, supi)) in (0..).zip([first, second]) {
            let about = About { session: Some((u32::from(n), session)), token: None };
            let all: Vec<u8> = octets.into_iter().flat_map(|(_, octets)| octets).collect();
            let octets = [&all[..], supi.as_bytes()].concat();
            let how = How::Received;
            recordings.push(Recording { party: Party::Operator, how, what: "N2 and the UE", about, octets });
        }
        values.push(Value::new(Field::UserIdentity, &user(n).0));
        values.push(Value::new(Field::UserIdentity, &key(&format!("user {n}")).verifying_key().octets()));
        values.push(Value::new(
            Field::UserIdentity,
            net.ue.config().supi.to_string().trim_start_matches("imsi-").as_bytes(),
        ));
    }
    let ledger = Ledger::of(&values, &recordings, &[b"@b.example"]);
    assert!(ledger.sum(Party::Operator).is_empty(), "\n{ledger}");
    let planted = Recording { octets: user(1).0.to_vec(), ..recordings[0].clone() };
    let ledger = Ledger::of(&values, &[&recordings[..], &[planted]].concat(), &[b"@b.example"]);
    assert_eq!(ledger.sum(Party::Operator), [Field::UserIdentity].into());
}
