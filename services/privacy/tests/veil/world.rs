//! The parties of the tests: an authority, two operators, a broker with its witnesses, two users.

use whimbrel_broker_common::certificate::{Certificate, Subject, Trust, Validity};
use whimbrel_broker_common::crypto::{PrivateKey, Seed};
use whimbrel_broker_common::id::{Domain, Nid, OperatorId, UserId};
use whimbrel_broker_common::session::{Filter, Qos};
use whimbrel_ids::{Instant, PlmnId};
use whimbrel_privacy::broker::{
    Broker, BrokerConfig, BrokerEvent, BrokerOutput, Class, Counters, Policy, Record, User,
};
use whimbrel_privacy::crypto::{SigningKey, hash};
use whimbrel_privacy::log::{KeyEntry, KeyLog, LogTrust, Witness};
use whimbrel_privacy::operator::{Contract, Group};
use whimbrel_privacy::user::UserSim;
use whimbrel_privacy::voprf::IssuerKey;
use whimbrel_privacy::wallet::{Wallet, WalletConfig};

pub(crate) const NOW_S: u64 = 1_800_000_000;
pub(crate) const NOW: Instant = Instant(NOW_S * 1_000_000);
pub(crate) const DAY_S: u64 = 86_400;
pub(crate) const ALICE: UserId = UserId([0xa1; 16]);
pub(crate) const EVE: UserId = UserId([0xee; 16]);
pub(crate) const EPOCH: u8 = 7;
/// A token rests this long in the tests.
pub(crate) const AGE_S: u64 = 600;

pub(crate) fn at(s: u64) -> Instant {
    Instant((NOW_S + s) * 1_000_000)
}

pub(crate) fn domain() -> Domain {
    "b.example".parse().unwrap()
}

pub(crate) fn name(n: u64) -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: Nid::new(n) }
}

pub(crate) fn key(name: &str) -> SigningKey {
    SigningKey::new(&hash(&[name.as_bytes()]))
}

pub(crate) fn seed(name: &str, n: u64) -> Seed {
    Seed::new(hash(&[format!("{name} {n}").as_bytes()]))
}

pub(crate) fn epoch_key() -> PrivateKey {
    PrivateKey::new(hash(&[b"epoch"]))
}

fn open_key(name: &str) -> whimbrel_broker_common::crypto::SigningKey {
    whimbrel_broker_common::crypto::SigningKey::new(&hash(&[name.as_bytes()]))
}

pub(crate) fn trust() -> Trust {
    Trust::new(vec![open_key("authority").verifying_key()]).unwrap()
}

pub(crate) fn certificate(n: u64) -> Certificate {
    let key = open_key(&format!("operator {n}")).verifying_key();
    let validity = Validity { from: NOW_S - 30 * DAY_S, until: NOW_S + 30 * DAY_S };
    Certificate::issue(
        &open_key("authority"),
        Subject::Operator(name(n)),
        key,
        validity,
        0x0102_0304_0500 + n,
    )
}

pub(crate) fn user(name: &str) -> User {
    let (revoked, class, prepaid, intercept) = (false, 0, false, false);
    let counters = Counters::default();
    User { key: key(name).verifying_key(), revoked, class, prepaid, intercept, counters }
}

pub(crate) fn filter() -> Filter {
    Filter::new([10, 0, 0, 0].into(), 8).unwrap()
}

pub(crate) fn policy() -> Policy {
    let qos = |dl_kbps| Qos { ul_kbps: 10_000, dl_kbps, five_qi: 9 };
    Policy {
        operators: [1, 2].map(name).into(),
        batches_max: 3,
        group_s: 60,
        validity_s: 3_600,
        slice_octets: 10_000_000,
        poll_s: 2,
        classes: vec![
            Class { qos: qos(100_000), filters: Vec::new() },
            Class { qos: qos(20_000), filters: vec![filter()] },
        ],
    }
}

pub(crate) fn issuer(epoch: u32) -> (KeyEntry, IssuerKey) {
    let key = IssuerKey::derive(&hash(&[b"issuer", &epoch.to_be_bytes()]), b"").unwrap();
    let from = NOW_S - DAY_S + u64::from(epoch) * 2 * DAY_S;
    let validity = Validity { from, until: from + 3 * DAY_S };
    (KeyEntry { broker: domain(), epoch, key: *key.public(), validity }, key)
}

pub(crate) fn broker() -> Broker {
    let config = BrokerConfig {
        domain: domain(),
        network: PlmnId::TEST,
        signing: key("broker"),
        trust: trust(),
        policy: policy(),
    };
    let mut broker = Broker::new(config, (EPOCH, epoch_key()));
    for epoch in 0..2 {
        let (entry, key) = issuer(epoch);
        broker.add_issuer(entry, key).unwrap();
    }
    broker.set_user(ALICE, user("alice"));
    broker.set_user(EVE, user("eve"));
    broker
}

pub(crate) fn sim(name: &str, user: UserId, broker: &Broker) -> UserSim {
    UserSim {
        user,
        broker: domain(),
        network: PlmnId::TEST,
        broker_key: key("broker").verifying_key(),
        epoch: broker.epoch(),
        signing: key(name),
        counter: 0,
    }
}

pub(crate) fn contract() -> Contract {
    Contract { broker: domain(), broker_key: key("broker").verifying_key(), network: PlmnId::TEST }
}

pub(crate) fn log_trust() -> LogTrust {
    let witnesses = (0..3).map(|n| key(&format!("witness {n}")).verifying_key()).collect();
    LogTrust::new(domain(), key("broker").verifying_key(), witnesses).unwrap()
}

pub(crate) fn witnesses() -> Vec<Witness> {
    let witness = |n| Witness::new(domain(), key("broker").verifying_key(), key(&format!("witness {n}")));
    (0..3).map(witness).collect()
}

/// The log of both epochs.
pub(crate) fn log() -> KeyLog {
    let mut log = KeyLog::new(domain());
    (0..2).for_each(|epoch| log.append(issuer(epoch).0).unwrap());
    log
}

/// A wallet that knows the keys of both epochs.
pub(crate) fn wallet() -> Wallet {
    let (log, mut wallet) = (log(), Wallet::new(domain(), WalletConfig { age_min_s: AGE_S, low_water: 32 }));
    let head = log.head(&key("broker"));
    let cosign = |w: &mut Witness| w.cosign(&head, log.entries()).unwrap();
    let cosignatures: Vec<_> = witnesses().iter_mut().map(cosign).collect();
    for epoch in 0..2 {
        let proof = log.prove(epoch, wallet.seen().size, cosignatures.clone(), &key("broker")).unwrap();
        wallet.add_issuing_key(&proof, &log_trust()).unwrap();
    }
    wallet
}

/// Fills the wallet of operator `n` with a batch.
pub(crate) fn fill(wallet: &mut Wallet, broker: &mut Broker, n: u64, now: Instant, batch: u64) -> Vec<u8> {
    assert!(wallet.begin_filling(now, seed(&format!("batch of {n}"), batch)));
    let request = wallet.filling_request(&certificate(n), &key(&format!("operator {n}"))).unwrap();
    let output = broker.issue(&request, now);
    assert!(matches!(output.event, BrokerEvent::Issued(_)), "{:?}", output.event);
    wallet.finish_filling(&request, &output.octets, now).unwrap();
    request
}

/// Spends a token. Gives the open group and what the broker has recorded.
pub(crate) fn spend(wallet: &mut Wallet, broker: &mut Broker, now: Instant, n: u64) -> (Group, Record) {
    let (token, request) = wallet.begin_spending(now, &seed("spend", n)).unwrap();
    let BrokerOutput { octets, event, record } = broker.open_group(&request, now);
    assert!(matches!(event, BrokerEvent::Opened(opened) if opened == token), "{event:?}");
    (wallet.finish_spending(token, &octets).unwrap(), record.unwrap())
}

/// An open group of operator 1, as of `AGE_S` after now.
pub(crate) fn open_group(broker: &mut Broker) -> Group {
    let mut wallet = wallet();
    fill(&mut wallet, broker, 1, NOW, 1);
    spend(&mut wallet, broker, at(AGE_S), 1).0
}
