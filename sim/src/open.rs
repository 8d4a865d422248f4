//! Brokers of the simulation, the way to them, and their users (CellBricks, chapter 3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::config::{Config, Open};
use whimbrel_control::open::{BrokerAnswer, BrokerQuestion, Unreachable};
use whimbrel_control::{OutputId, UeContext, UeId};
use whimbrel_ids::{PlmnId, SNssai, Supi};
use whimbrel_open::broker::{Broker, BrokerConfig, BrokerEvent, Home, HomeUser, Policy, Record, User};
use whimbrel_open::crypto::{PrivateKey, Seed, SigningKey, hash};
use whimbrel_open::id::{Domain, Pseudonym, UserId};
use whimbrel_open::msg::{
    Certificate, EpochKey, FiveQis, Grant, Price, Qos, QosOffer, Subject, Terms, Trust, Validity,
};
use whimbrel_open::operator::Operator;
use whimbrel_open::user;
use whimbrel_ran::ue::{SapCard, SuciSource, UeConfig};
use whimbrel_resilience::Input;
use whimbrel_security::{HomeNetworkKeys, HomeNetworkPrivateKey, Milenage, Sqn};

use crate::veil::VEIL_BROKER;
use crate::{GnbIndex, InFlight, Sim, UeIndex, ue_config};

/// Least and greatest latency of the way to a broker, in microseconds: a data centre of the region.
const LATENCY_MICROS: (u64, u64) = (3_000, 8_000);
/// What the broker gives each user.
const QOS: Qos = Qos { ul_kbps: 20_000, dl_kbps: 50_000, five_qi: 9 };

/// What a broker pays for a session of an ordinary UE: 10 MiB downlink.
const HOME_CREDIT_MICROS: u64 = 2_000;

/// How a broker fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerState {
    /// It answers at once.
    Answering,
    /// It answers after this.
    Slow(Duration),
    /// Nothing comes of what it is asked.
    Silent,
    /// It is not reached.
    Unreachable(Unreachable),
    /// It answers each question as it has answered the one before.
    OneBehind,
}

/// How a broker is lost, at the n-th question that comes to it. Another takes its place at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerLoss {
    /// It has not taken the question.
    Before,
    /// Its answer is durable, and has not left.
    Durable,
    /// Its answer has left.
    After,
}

impl BrokerLoss {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Before, Self::Durable, Self::After];
}

/// The question that an answer is to: the CTA's host that asked, the UE, and its output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) host: u64,
    pub(crate) ue: UeId,
    pub(crate) to: OutputId,
}

/// A message between a CTA's host and a broker.
#[derive(Debug)]
pub(crate) enum OverSap {
    Question { from: Asker, broker: Domain, octets: Vec<u8> },
    Answer { to: Asker, answer: BrokerAnswer },
}

struct BrokerProcess {
    broker: Broker,
    state: BrokerState,
    /// What survives it.
    users: BTreeMap<UserId, User>,
    home: BTreeMap<Supi, HomeUser>,
    records: Vec<Record>,
    before: Option<Vec<u8>>,
    asked: u64,
    loss: Option<(u64, BrokerLoss)>,
}

#[derive(Default)]
pub(crate) struct Brokers {
    nodes: BTreeMap<Domain, BrokerProcess>,
    granted: BTreeMap<Pseudonym, Grant>,
    /// Questions that have left, where the brokers are not this simulation's: several operators share them.
    elsewhere: Option<Vec<(Asker, Domain, Vec<u8>)>>,
}

pub(crate) fn key(of: &str) -> SigningKey {
    SigningKey::new(&hash(of.as_bytes()))
}

const VALIDITY: Validity = Validity { from: 0, until: u64::MAX };

/// The PLMN of the USIMs of a broker of the simulation.
pub fn home_plmn() -> PlmnId {
    "999/71".parse().expect("a PLMN")
}

/// The home network's key under identifier 1, profile A.
pub fn home_key() -> HomeNetworkPrivateKey {
    HomeNetworkPrivateKey::profile_a(hash(b"home network key"))
}

/// Serves users of every broker that the simulation's authority certifies.
pub fn open_config(config: &mut Config) {
    config.open = Some(Open {
        nid: None,
        trust: Trust::new(vec![key("authority").verifying_key()]).expect("one"),
        terms: Terms {
            price: Price::new(*b"EUR", 100, 200).expect("a currency"),
            qos: QosOffer {
                ul_kbps_max: 100_000,
                dl_kbps_max: 200_000,
                five_qis: FiveQis::new(&[8, 9]).expect("two"),
            },
            report_cycle_s: 60,
        },
        brokers: None,
        homes: BTreeMap::new(),
        s_nssai: SNssai::sst(1),
        dnn: "internet".parse().expect("a DNN"),
        answer_timeout: Open::ANSWER_TIMEOUT,
        questions_per_gnb: Open::QUESTIONS_PER_GNB,
    });
}

/// The private key of a broker's epoch.
pub(crate) fn epoch_key(domain: &Domain, epoch: u8) -> PrivateKey {
    PrivateKey::new(hash(&[&[epoch], domain.as_str().as_bytes()].concat()))
}

/// A broker without users, which is the home network of this PLMN.
pub(crate) fn broker(domain: &Domain, epoch: u8, home: PlmnId) -> Broker {
    let (signing, subject) = (key(domain.as_str()), Subject::Broker(domain.clone()));
    let config = BrokerConfig {
        domain: domain.clone(),
        certificate: Certificate::issue(&key("authority"), subject, signing.verifying_key(), VALIDITY, 2),
        signing,
        trust: Trust::new(vec![key("authority").verifying_key()]).expect("one"),
        policy: Policy {
            operators: None,
            price_cap: Price::new(*b"EUR", 1_000, 1_000).expect("a currency"),
            reputation_floor: 0,
            reputation_newcomer: 0,
            validity_s: 24 * 3600,
            credit_micros: 1_000_000,
        },
    };
    let private = epoch_key(domain, epoch);
    let mut broker = Broker::new(config, (epoch, private), [7; 16]).expect("the certificate is its own");
    broker.set_home(home_network(home, HOME_CREDIT_MICROS));
    broker
}

pub(crate) fn home_network(plmn: PlmnId, credit_micros: u64) -> Home {
    let mut keys = HomeNetworkKeys::new();
    keys.insert(1, home_key());
    Home { plmn, keys, credit_micros }
}

/// The `n`th user of a broker: what the broker knows of it, and its SIM.
pub(crate) fn sap_user(n: u32, domain: &Domain, epoch: EpochKey) -> (UserId, User, SapCard) {
    let user = UserId(hash(&n.to_be_bytes())[..16].try_into().expect("16 octets"));
    let signing = key(&format!("user {n} of {domain}"));
    let record = User {
        key: signing.verifying_key(),
        revoked: false,
        qos: QOS,
        intercept: false,
        filters: Vec::new(),
        counter: 0,
        ticket: 0,
    };
    let broker_key = key(domain.as_str()).verifying_key();
    let sim =
        user::UserSim { user, broker: domain.clone(), broker_key, epoch, signing, counter: 0, ticket: None };
    (user, record, SapCard { sim, seed: Seed::new(hash(&[n as u8; 9])) })
}

/// The `n`th subscriber of a broker's home network.
pub(crate) fn home_subscriber(n: u32, home: PlmnId) -> UeConfig {
    let mut config = ue_config(n);
    let digits = home.digits().chain(format!("{n:010}").into_bytes().into_iter().map(|d| d - b'0'));
    config.supi = Supi::from_digits(digits.collect::<Vec<_>>()).expect("15 digits");
    let mut profile = (*config.profile).clone();
    profile.home_plmn = home;
    config.profile = Arc::new(profile);
    config
}

/// What a broker knows of its subscriber.
pub(crate) fn home_user(n: u32, config: &UeConfig) -> HomeUser {
    let id = hash(&[&b"home "[..], &n.to_be_bytes()].concat());
    HomeUser {
        user: UserId(id[..16].try_into().expect("16 octets")),
        functions: Milenage::new(&config.k, config.opc.clone()).into(),
        revoked: false,
        qos: QOS,
        intercept: false,
        filters: Vec::new(),
        sqn: Sqn::ZERO,
    }
}

impl Sim {
    /// A broker that everybody trusts. Its domain must have the form of one.
    pub fn add_broker(&mut self, domain: &str) {
        let domain: Domain = domain.parse().expect("a domain");
        let node = BrokerProcess {
            broker: broker(&domain, 1, home_plmn()),
            state: BrokerState::Answering,
            users: BTreeMap::new(),
            home: BTreeMap::new(),
            records: Vec::new(),
            before: None,
            asked: 0,
            loss: None,
        };
        self.brokers.nodes.insert(domain, node);
    }

    /// The `n`th UE, with the SIM of a broker.
    pub fn add_sap_ue(&mut self, gnb: GnbIndex, n: u32, domain: &str) -> UeIndex {
        let node = self.node(domain);
        let domain = domain.parse().expect("a domain");
        let (user, record, card) = sap_user(n, &domain, node.broker.epoch());
        node.users.insert(user, record.clone());
        node.broker.set_user(user, record);
        let mut config = ue_config(n);
        config.suci = SuciSource::Sap(Box::new(card));
        self.add_ue(gnb, config)
    }

    /// The `n`th UE, an ordinary one with a USIM of a broker, which is the home network of [`home_plmn`].
    pub fn add_home_ue(
        &mut self,
        gnb: GnbIndex,
        n: u32,
        domain: &str,
        change: impl FnOnce(&mut UeConfig),
    ) -> UeIndex {
        let mut config = home_subscriber(n, home_plmn());
        change(&mut config);
        let user = home_user(n, &config);
        let node = self.node(domain);
        node.home.insert(config.supi, user.clone());
        node.broker.set_home_user(config.supi, user);
        self.add_ue(gnb, config)
    }

    fn node(&mut self, domain: &str) -> &mut BrokerProcess {
        self.brokers.nodes.get_mut(&domain.parse().expect("a domain")).expect("a broker of the simulation")
    }

    /// A broker's machine.
    pub fn broker_mut(&mut self, domain: &str) -> &mut Broker {
        &mut self.node(domain).broker
    }

    /// Has a broker fare so from now on.
    pub fn set_broker(&mut self, domain: &str, state: BrokerState) {
        self.node(domain).state = state;
    }

    /// How many questions have come to a broker.
    pub fn asked(&mut self, domain: &str) -> u64 {
        self.node(domain).asked
    }

    /// What a broker has answered last.
    pub fn last_answer(&mut self, domain: &str) -> Option<&[u8]> {
        self.node(domain).before.as_deref()
    }

    /// A broker is lost at the n-th question that comes to it.
    pub fn lose_broker_at(&mut self, domain: &str, question: u64, how: BrokerLoss) {
        self.node(domain).loss = Some((question, how));
    }

    /// What brokers have granted, by pseudonyms.
    pub fn granted(&self) -> &BTreeMap<Pseudonym, Grant> {
        &self.brokers.granted
    }

    /// Questions leave a CTA's host, signed.
    pub(crate) fn sap_leaves(&mut self, host: u64, questions: Vec<(UeId, OutputId, BrokerQuestion)>) {
        for (ue, to, request) in questions {
            let question = match request {
                BrokerQuestion::Sap(question) => question,
                BrokerQuestion::Veil(question) => {
                    self.veil_leaves(host, ue, to, &question);
                    continue;
                }
                BrokerQuestion::VeilHome(question) => {
                    self.veil_home_leaves(host, ue, to, &question);
                    continue;
                }
            };
            let open = self.config.open.clone().expect("only an operator with brokers asks");
            let id = open.operator(self.config.amf.plmn);
            let signing = key(&format!("operator {id}"));
            let subject = Subject::Operator(id);
            let certificate =
                Certificate::issue(&key("authority"), subject, signing.verifying_key(), VALIDITY, 1);
            let operator = Operator::new(certificate, signing, open.trust, open.terms).expect("its own key");
            let (broker, octets) = (question.broker().clone(), question.sign(&operator, self.now));
            let from = Asker { host, ue, to };
            match &mut self.brokers.elsewhere {
                Some(elsewhere) => elsewhere.push((from, broker, octets)),
                None => self.over_sap(Duration::ZERO, OverSap::Question { from, broker, octets }),
            }
        }
    }

    /// The brokers are not this simulation's from now on; see [`Sim::sap_questions`].
    pub(crate) fn ask_elsewhere(&mut self) {
        self.brokers.elsewhere.get_or_insert_default();
    }

    /// Takes the questions that have left for brokers elsewhere.
    pub(crate) fn sap_questions(&mut self) -> Vec<(Asker, Domain, Vec<u8>)> {
        self.brokers.elsewhere.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn over_sap(&mut self, after: Duration, message: OverSap) {
        let (least, greatest) = LATENCY_MICROS;
        let latency = Duration::from_micros(least + self.rng.below(greatest - least));
        self.send(self.now + after + latency, InFlight::Sap(message));
    }

    pub(crate) fn sap_arrives(&mut self, message: OverSap) {
        match message {
            OverSap::Question { from, broker, octets } => {
                if let Some((after, answer)) = self.sap_asked(&broker, &octets) {
                    self.over_sap(after, OverSap::Answer { to: from, answer });
                }
            }
            OverSap::Answer { to, answer } => self.sap_answered(to, answer),
        }
    }

    /// A broker's answer arrives. One to a host that was replaced is lost.
    pub(crate) fn sap_answered(&mut self, to: Asker, answer: BrokerAnswer) {
        if to.host == self.control.pair.host() && !self.has_no_cta() {
            self.cta_input(Input::Broker(to.ue, to.to, answer));
        }
    }

    /// A question comes to a broker: what it answers, and after how long.
    fn sap_asked(&mut self, domain: &Domain, octets: &[u8]) -> Option<(Duration, BrokerAnswer)> {
        let now = self.now;
        let mut entropy = [0; 32];
        entropy[..16].copy_from_slice(&self.rng.octets());
        entropy[16..].copy_from_slice(&self.rng.octets());
        if domain.as_str() == VEIL_BROKER {
            return self.veil_is_asked(octets, entropy);
        }
        let Some(node) = self.brokers.nodes.get_mut(domain) else {
            return Some((Duration::ZERO, BrokerAnswer::Unreachable(Unreachable::NoAddress)));
        };
        let after = match node.state {
            BrokerState::Silent => return None,
            BrokerState::Unreachable(why) => return Some((Duration::ZERO, BrokerAnswer::Unreachable(why))),
            BrokerState::Slow(after) => after,
            BrokerState::Answering | BrokerState::OneBehind => Duration::ZERO,
        };
        node.asked += 1;
        let loss = node.loss.filter(|(at, _)| *at == node.asked).map(|(_, how)| how);
        if loss == Some(BrokerLoss::Before) {
            node.take_place(domain);
            return None;
        }
        let output = node.broker.answer(octets, now, &Seed::new(entropy));
        node.records.extend(output.record);
        if let BrokerEvent::Granted(session) = output.event {
            let twice = self.brokers.granted.insert(session.grant.pseudonym, session.grant);
            assert!(twice.is_none(), "a pseudonym is of one grant");
        }
        let node = self.brokers.nodes.get_mut(domain)?;
        if loss.is_some() {
            node.take_place(domain);
        }
        if loss == Some(BrokerLoss::Durable) {
            return None;
        }
        let before = node.before.replace(output.octets.clone());
        let octets = before.filter(|_| node.state == BrokerState::OneBehind).unwrap_or(output.octets);
        Some((after, BrokerAnswer::Octets(octets)))
    }

    /// No session without a grant, no grant used twice: each context of a broker's user is of a pseudonym that its broker has granted
    /// to this operator, and of no other context's.
    pub(crate) fn check_grants(&self) {
        if self.brokers.elsewhere.is_some() {
            return; // checked where the brokers are
        }
        let mut used = BTreeSet::new();
        let home = home_plmn();
        let guests = self.contexts().filter(|c| c.amf.supi.is_some_and(|s| s.is_nai() || s.is_of(home)));
        self.check_veil_grants();
        let served = |c: &&UeContext| c.veil.is_none() && (c.amf.registered || !c.sessions.is_empty());
        for context in guests.filter(served) {
            let Some(held) = &context.grant else { panic!("{:?} is served without a grant", context.id) };
            let grant = &held.grant.grant;
            assert_eq!(
                self.brokers.granted.get(&grant.pseudonym),
                Some(grant),
                "the broker has not granted that"
            );
            let named = context.amf.supi.is_some_and(|s| s.value() == grant.supi());
            assert!(named || grant.is_of_ordinary_ue(), "{:?} has another's grant", context.id);
            assert!(used.insert(grant.pseudonym), "a grant is used twice");
        }
    }
}

impl BrokerProcess {
    /// Another broker begins where this one has ended, with what was durable.
    fn take_place(&mut self, domain: &Domain) {
        self.broker = broker(domain, 1, home_plmn());
        for (id, user) in &self.users {
            self.broker.set_user(*id, user.clone());
        }
        for (supi, user) in &self.home {
            self.broker.set_home_user(*supi, user.clone());
        }
        for record in &self.records {
            self.broker.restore(record.clone());
        }
    }
}
