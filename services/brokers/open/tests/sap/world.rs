//! The parties of the tests: an authority, two operators, two brokers, two users.

use core::time::Duration;

use whimbrel_ids::{Instant, PlmnId};
use whimbrel_open::broker::{Broker, BrokerConfig, Policy, User};
use whimbrel_open::crypto::{PrivateKey, Seed, SigningKey};
use whimbrel_open::id::{Domain, Nid, OperatorId, UserId};
use whimbrel_open::msg::{Certificate, FiveQis, Price, Qos, QosOffer, Subject, Terms, Trust, Validity};
use whimbrel_open::operator::Operator;
use whimbrel_open::user::UserSim;

pub(crate) const NOW: Instant = Instant(1_800_000_000_000_000);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
pub(crate) const ALICE: UserId = UserId([0xa1; 16]);
pub(crate) const EVE: UserId = UserId([0xee; 16]);
pub(crate) const VALIDITY: Validity = Validity { from: 1_799_000_000, until: 1_801_000_000 };
pub(crate) const EPOCH: u8 = 7;

pub(crate) fn t1() -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: None }
}

pub(crate) fn t2() -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: Nid::new(2) }
}

pub(crate) fn domain(name: &str) -> Domain {
    name.parse().unwrap()
}

pub(crate) fn key(name: &str) -> SigningKey {
    SigningKey::new(&whimbrel_open::crypto::hash(name.as_bytes()))
}

pub(crate) fn seed(name: &str, n: u64) -> Seed {
    Seed::new(whimbrel_open::crypto::hash(format!("{name} {n}").as_bytes()))
}

pub(crate) fn epoch_key(broker: &str) -> PrivateKey {
    PrivateKey::new(whimbrel_open::crypto::hash(format!("epoch of {broker}").as_bytes()))
}

pub(crate) fn trust() -> Trust {
    Trust::new(vec![key("authority").verifying_key()]).unwrap()
}

pub(crate) fn operator_certificate(id: OperatorId, name: &str) -> Certificate {
    Certificate::issue(&key("authority"), Subject::Operator(id), key(name).verifying_key(), VALIDITY, 1)
}

pub(crate) fn broker_certificate(name: &str) -> Certificate {
    Certificate::issue(
        &key("authority"),
        Subject::Broker(domain(name)),
        key(name).verifying_key(),
        VALIDITY,
        2,
    )
}

pub(crate) fn terms(dl_micros_per_mib: u32) -> Terms {
    Terms {
        price: Price::new(*b"EUR", 100, dl_micros_per_mib).unwrap(),
        qos: QosOffer { ul_kbps_max: 50_000, dl_kbps_max: 200_000, five_qis: FiveQis::new(&[8, 9]).unwrap() },
        report_cycle_s: 60,
    }
}

pub(crate) fn operator(id: OperatorId, name: &str) -> Operator {
    let certificate = operator_certificate(id, name);
    Operator::new(certificate, key(name), trust(), terms(200)).unwrap()
}

pub(crate) fn user(name: &str) -> User {
    User {
        key: key(name).verifying_key(),
        revoked: false,
        qos: Qos { ul_kbps: 10_000, dl_kbps: 100_000, five_qi: 9 },
        intercept: false,
        filters: Vec::new(),
        counter: 0,
        ticket: 0,
    }
}

pub(crate) fn broker(name: &str) -> Broker {
    let policy = Policy {
        operators: None,
        price_cap: Price::new(*b"EUR", 1_000, 1_000).unwrap(),
        reputation_floor: 10,
        reputation_newcomer: 20,
        validity_s: 3_600,
        credit_micros: 5_000_000,
    };
    let config = BrokerConfig {
        domain: domain(name),
        certificate: broker_certificate(name),
        signing: key(name),
        trust: trust(),
        policy,
    };
    let mut broker = Broker::new(config, (EPOCH, epoch_key(name)), [9; 16]).unwrap();
    broker.set_user(ALICE, user("alice"));
    broker.set_user(EVE, user("eve"));
    broker
}

pub(crate) fn sim(name: &str, id: UserId, broker: &Broker) -> UserSim {
    UserSim {
        user: id,
        broker: broker.config.domain.clone(),
        broker_key: broker.config.signing.verifying_key(),
        epoch: broker.epoch(),
        signing: key(name),
        counter: 0,
        ticket: None,
    }
}
