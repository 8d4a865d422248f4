//! A broker of veiled UEs, the operator's wallet of its tokens, and its users (LOCA, chapter 4).
//!
//! The wallet stands beside the CTA, as the file does in which the program keeps it. It has no channel: messages to the broker take the
//! same way as those of CellBricks.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_control::config::{Config, Open, VeilPolicy};
use whimbrel_control::open::{BrokerAnswer, Unreachable, VeilHomeQuestion, VeilQuestion};
use whimbrel_control::{OutputId, UeId};
use whimbrel_ids::{Instant, PlmnId, SNssai, Supi};
use whimbrel_open::crypto::{PrivateKey, Seed};
use whimbrel_open::id::{Domain, Nid, OperatorId, Pseudonym, UserId};
use whimbrel_open::msg::{Certificate, Qos, Subject, Trust, Validity};
use whimbrel_privacy::broker::{
    Broker, BrokerConfig, BrokerEvent, BrokerOutput, Class, Counters, HomeUser, Policy, Record, User,
};
use whimbrel_privacy::crypto::{SigningKey, hash};
use whimbrel_privacy::log::{KeyEntry, KeyLog, LogTrust, Witness};
use whimbrel_privacy::msg::Grant;
use whimbrel_privacy::operator::Group;
use whimbrel_privacy::token::TokenHash;
use whimbrel_privacy::user::UserSim;
use whimbrel_privacy::voprf::IssuerKey;
use whimbrel_privacy::wallet::{Wallet, WalletConfig};
use whimbrel_ran::ue::{SuciSource, UeConfig, VeilCard};
use whimbrel_security::{HomeNetworkKeys, HomeNetworkPrivateKey, Milenage, Sqn, UsimSqn};

use crate::open::{Asker, BrokerLoss, BrokerState, OverSap};
use crate::{EPOCH, GnbIndex, Sim, UeIndex, ue_config};

/// The domain of the broker of veiled UEs.
pub const VEIL_BROKER: &str = "veil.example";

const QOS: Qos = Qos { ul_kbps: 20_000, dl_kbps: 50_000, five_qi: 9 };

/// The broker, and what the operator has of it.
pub(crate) struct SimVeil {
    broker: Broker,
    /// What survives it.
    users: BTreeMap<UserId, User>,
    home_users: BTreeMap<Supi, HomeUser>,
    records: Vec<Record>,
    wallet: Wallet,
    /// Open session groups; UEs hear the last one's token.
    groups: Vec<Group>,
    state: BrokerState,
    asked: u64,
    loss: Option<(u64, BrokerLoss)>,
    granted: BTreeMap<Pseudonym, Grant>,
    last_answer: Option<Vec<u8>>,
    runs: u64,
}

fn domain() -> Domain {
    VEIL_BROKER.parse().expect("a domain")
}

fn key(of: &str) -> SigningKey {
    SigningKey::new(&hash(&[of.as_bytes()]))
}

fn open_key(of: &str) -> whimbrel_open::crypto::SigningKey {
    whimbrel_open::crypto::SigningKey::new(&hash(&[of.as_bytes()]))
}

fn validity() -> Validity {
    let now = EPOCH.as_secs();
    Validity { from: now - 86_400, until: now + 7 * 86_400 }
}

fn operator() -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: Nid::new(1) }
}

fn issuer() -> (KeyEntry, IssuerKey) {
    let key = IssuerKey::derive(&[5; 32], b"").expect("a key");
    (KeyEntry { broker: domain(), epoch: 0, key: *key.public(), validity: validity() }, key)
}

fn broker() -> Broker {
    let policy = Policy {
        operators: [operator()].into(),
        batches_max: 4,
        group_s: 60,
        validity_s: 24 * 3600,
        slice_octets: 1_000_000,
        poll_s: 2,
        classes: vec![Class { qos: QOS, filters: Vec::new() }],
    };
    let config = BrokerConfig {
        domain: domain(),
        network: PlmnId::TEST,
        signing: key("veil broker"),
        trust: Trust::new(vec![open_key("authority").verifying_key()]).expect("one"),
        policy,
    };
    let mut broker = Broker::new(config, (1, PrivateKey::new([4; 32])));
    let (entry, key) = issuer();
    broker.add_issuer(entry, key).expect("its own key");
    let mut keys = HomeNetworkKeys::new();
    keys.insert(SUCI_KEY_ID, HomeNetworkPrivateKey::profile_a(SUCI_KEY));
    broker.set_home_keys(keys);
    broker
}

/// The broker's key of SUCIs, and its identifier.
const SUCI_KEY: [u8; 32] = [6; 32];
const SUCI_KEY_ID: u8 = 3;

/// A wallet with a batch of tokens.
fn wallet(broker: &mut Broker) -> (Wallet, Option<Record>) {
    let mut log = KeyLog::new(domain());
    log.append(issuer().0).expect("the first epoch");
    let mut witness = Witness::new(domain(), key("veil broker").verifying_key(), key("witness"));
    let cosignature = witness.cosign(&log.head(&key("veil broker")), log.entries()).expect("a true log");
    let witnesses = vec![key("witness").verifying_key()];
    let trust = LogTrust::new(domain(), key("veil broker").verifying_key(), witnesses).expect("one");
    let mut wallet = Wallet::new(domain(), WalletConfig { age_min_s: 0, low_water: 1 });
    let proof = log.prove(0, 0, vec![cosignature], &key("veil broker")).expect("there is an epoch");
    wallet.add_issuing_key(&proof, &trust).expect("a true log");
    assert!(wallet.begin_filling(EPOCH, Seed::new([1; 32])));
    let own = open_key("veil operator").verifying_key();
    let subject = Subject::Operator(operator());
    let certificate = Certificate::issue(&open_key("authority"), subject, own, validity(), 1);
    let request = wallet.filling_request(&certificate, &key("veil operator")).expect("it fills");
    let issued = broker.issue(&request, EPOCH);
    wallet.finish_filling(&request, &issued.octets, EPOCH).expect("a true batch");
    (wallet, issued.record)
}

/// Serves veiled UEs.
pub fn veil_config(config: &mut Config) {
    config.veil = Some(VeilPolicy {
        broker: domain(),
        broker_key: key("veil broker").verifying_key(),
        s_nssai: SNssai::sst(1),
        dnn: "internet".parse().expect("a DNN"),
        answer_timeout: Open::ANSWER_TIMEOUT,
        questions_per_gnb: Open::QUESTIONS_PER_GNB,
        ordinary_ues: false,
    });
}

impl Sim {
    /// The broker of veiled UEs, and a wallet of its tokens, one of which is broadcast.
    pub fn add_veil_broker(&mut self) {
        let mut broker = broker();
        let (wallet, record) = wallet(&mut broker);
        self.veil = Some(Box::new(SimVeil {
            broker,
            users: BTreeMap::new(),
            home_users: BTreeMap::new(),
            records: record.into_iter().collect(),
            wallet,
            groups: Vec::new(),
            state: BrokerState::Answering,
            asked: 0,
            loss: None,
            granted: BTreeMap::new(),
            last_answer: None,
            runs: 0,
        }));
        self.rotate_token();
    }

    fn veil_mut(&mut self) -> &mut SimVeil {
        self.veil.as_mut().expect("a broker of veiled UEs")
    }

    /// The next token is broadcast: all veiled UEs hear it. The groups of those before stay open until their end.
    ///
    /// # Panics
    /// If the wallet is empty, or the broker opens no group.
    pub fn rotate_token(&mut self) {
        let now = self.now;
        let veil = self.veil_mut();
        veil.runs += 1;
        let seed = Seed::new(hash(&[b"rotation", &veil.runs.to_be_bytes()]));
        let (token, request) = veil.wallet.begin_spending(now, &seed).expect("a token");
        let output = veil.broker.open_group(&request, now);
        assert!(matches!(output.event, BrokerEvent::Opened(_)), "{:?}", output.event);
        veil.records.extend(output.record);
        let group = veil.wallet.finish_spending(token, &output.octets).expect("the broker's answer");
        veil.groups.push(group);
        self.broadcast(Some(token));
    }

    fn broadcast(&mut self, token: Option<TokenHash>) {
        self.ran.ues.iter_mut().for_each(|node| node.ue.hear_token(token));
    }

    /// The operator's groups are lost, as with a process that held them. UEs hear the last token until another is broadcast.
    pub fn lose_groups(&mut self) {
        self.veil_mut().groups.clear();
    }

    /// The `n`th UE, with a SIM for veiled attaches, which hears the token. `prepaid`: it gets its credit in slices.
    pub fn add_veil_ue(&mut self, gnb: GnbIndex, n: u32, prepaid: bool) -> UeIndex {
        let signing = key(&format!("veil user {n}"));
        let user = UserId(hash(&[b"veil user", &n.to_be_bytes()])[..16].try_into().expect("16 octets"));
        let (revoked, class, intercept, counters) = (false, 0, false, Counters::default());
        let record = User { key: signing.verifying_key(), revoked, class, prepaid, intercept, counters };
        let veil = self.veil_mut();
        veil.users.insert(user, record.clone());
        veil.broker.set_user(user, record);
        let (epoch, token) = (veil.broker.epoch(), veil.groups.last().map(Group::hash));
        let broker_key = key("veil broker").verifying_key();
        let card =
            UserSim { user, broker: domain(), network: PlmnId::TEST, broker_key, epoch, signing, counter: 0 };
        let card = VeilCard::new(card, Seed::new(hash(&[b"seed", &n.to_be_bytes()])));
        let mut config = ue_config(n);
        config.suci = SuciSource::Veil(Box::new(card));
        let ue = self.add_ue(gnb, config);
        self.ue_mut(ue).hear_token(token);
        ue
    }

    /// The `n`th UE, an ordinary one whose home network is the broker of veiled UEs. Its SUCIs are concealed.
    pub fn add_veil_home_ue(&mut self, gnb: GnbIndex, n: u32, sqn: UsimSqn) -> UeIndex {
        let mut config = ue_config(n);
        config.sqn = sqn;
        self.subscribe_veil_home(&config, n);
        let key = HomeNetworkPrivateKey::profile_a(SUCI_KEY).public_key();
        config.suci = SuciSource::Concealed {
            key: std::sync::Arc::new(key),
            key_id: SUCI_KEY_ID,
            seed: hash(&[b"suci", &n.to_be_bytes()]),
        };
        self.add_ue(gnb, config)
    }

    /// The broker of veiled UEs takes this UE for a user of its own.
    fn subscribe_veil_home(&mut self, config: &UeConfig, n: u32) {
        let user = UserId(hash(&[b"veil home user", &n.to_be_bytes()])[..16].try_into().expect("16 octets"));
        let functions = Milenage::new(&config.k, config.opc.clone()).into();
        let (revoked, class, prepaid, intercept, sqn) = (false, 0, false, false, Sqn::ZERO);
        let record = HomeUser { user, functions, revoked, class, prepaid, intercept, sqn };
        let veil = self.veil_mut();
        veil.home_users.insert(config.supi, record.clone());
        veil.broker.set_home_user(config.supi, record);
    }

    /// The machine of the broker of veiled UEs.
    pub fn veil_broker_mut(&mut self) -> &mut Broker {
        &mut self.veil_mut().broker
    }

    /// Has the broker of veiled UEs fare so from now on.
    pub fn set_veil_broker(&mut self, state: BrokerState) {
        self.veil_mut().state = state;
    }

    /// How many questions have come to it.
    pub fn veil_asked(&self) -> u64 {
        self.veil.as_ref().map_or(0, |veil| veil.asked)
    }

    /// What it has answered last.
    pub fn veil_last_answer(&self) -> Option<&[u8]> {
        self.veil.as_ref()?.last_answer.as_deref()
    }

    /// It is lost at the n-th question that comes to it.
    pub fn lose_veil_broker_at(&mut self, question: u64, how: BrokerLoss) {
        self.veil_mut().loss = Some((question, how));
    }

    /// What it has granted, by pseudonyms.
    pub fn veil_granted(&self) -> impl ExactSizeIterator<Item = &Grant> {
        self.veil.as_ref().map_or(const { &BTreeMap::new() }, |veil| &veil.granted).values()
    }

    /// A question leaves a CTA's host under the token that its UE heard; without such a token it is answered here.
    pub(crate) fn veil_leaves(&mut self, host: u64, ue: UeId, to: OutputId, question: &VeilQuestion) {
        let (now, broker) = (self.now, question.request.broker().clone());
        let open = self.veil_mut().groups.iter().filter(|group| now.as_secs() <= group.until());
        let signed = open.filter_map(|group| question.sign(group)).next();
        let from = Asker { host, ue, to };
        match signed {
            Some(octets) => {
                self.over_sap(core::time::Duration::ZERO, OverSap::Question { from, broker, octets })
            }
            None => self.sap_answered(from, BrokerAnswer::Unreachable(Unreachable::NoToken)),
        }
    }

    /// The same of an ordinary UE's question, under the token that is broadcast.
    pub(crate) fn veil_home_leaves(
        &mut self,
        host: u64,
        ue: UeId,
        to: OutputId,
        question: &VeilHomeQuestion,
    ) {
        let (now, broker) = (self.now, question.broker.clone());
        let group = self.veil_mut().groups.last().filter(|group| now.as_secs() <= group.until());
        let signed = group.map(|group| group.sign_home(question));
        let from = Asker { host, ue, to };
        match signed {
            Some(octets) => {
                self.over_sap(core::time::Duration::ZERO, OverSap::Question { from, broker, octets })
            }
            None => self.sap_answered(from, BrokerAnswer::Unreachable(Unreachable::NoToken)),
        }
    }

    /// A question comes to the broker of veiled UEs: what it answers, and after how long.
    pub(crate) fn veil_is_asked(
        &mut self,
        octets: &[u8],
        entropy: [u8; 32],
    ) -> Option<(core::time::Duration, BrokerAnswer)> {
        let now: Instant = self.now;
        let veil = self.veil_mut();
        let after = match veil.state {
            BrokerState::Silent => return None,
            BrokerState::Unreachable(why) => {
                return Some((core::time::Duration::ZERO, BrokerAnswer::Unreachable(why)));
            }
            BrokerState::Slow(after) => after,
            BrokerState::Answering | BrokerState::OneBehind => core::time::Duration::ZERO,
        };
        veil.asked += 1;
        let loss = veil.loss.filter(|(at, _)| *at == veil.asked).map(|(_, how)| how);
        if loss == Some(BrokerLoss::Before) {
            veil.take_place();
            return None;
        }
        let BrokerOutput { octets, event, record } = veil.broker.attach(octets, now, &Seed::new(entropy));
        veil.records.extend(record);
        if let BrokerEvent::Granted(session) | BrokerEvent::Challenged(session) = event {
            let twice = veil.granted.insert(session.grant.pseudonym, session.grant);
            assert!(twice.is_none(), "a pseudonym is of one grant");
        }
        if loss.is_some() {
            veil.take_place();
        }
        veil.last_answer = Some(octets.clone());
        (loss != Some(BrokerLoss::Durable)).then_some((after, BrokerAnswer::Octets(octets)))
    }

    /// Each context of a veiled UE has the grant of its own pseudonym, which the broker has given once.
    pub(crate) fn check_veil_grants(&self) {
        let mut used = BTreeSet::new();
        for context in self.contexts().filter(|c| c.amf.registered && c.veil.is_some()) {
            let Some(held) = &context.veil else { continue };
            let grant = &held.grant.grant;
            let granted = self.veil.as_ref().and_then(|veil| veil.granted.get(&grant.pseudonym));
            assert_eq!(granted, Some(grant), "the broker has not granted that");
            assert!(context.amf.supi.is_some_and(|s| s.value() == grant.supi()), "another's grant");
            assert!(context.amf.pei.is_none(), "the UE's equipment is known");
            assert!(used.insert(grant.pseudonym), "a grant is used twice");
        }
    }
}

impl SimVeil {
    /// Another broker begins where this one has ended, with what was durable.
    fn take_place(&mut self) {
        self.broker = broker();
        for (id, user) in &self.users {
            self.broker.set_user(*id, user.clone());
        }
        for (supi, user) in &self.home_users {
            self.broker.set_home_user(*supi, user.clone());
        }
        self.records.iter().for_each(|record| self.broker.restore(record.clone()));
    }
}
