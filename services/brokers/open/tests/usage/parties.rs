//! The user, the operator and the broker with fixed keys, and a session between them.

use whimbrel_ids::{Instant, PlmnId};
use whimbrel_open::crypto::{PrivateKey, Seed, Share, SigningKey, hash};
use whimbrel_open::id::{Domain, OperatorId, Pseudonym, UserId};
use whimbrel_open::msg::{
    Certificate, EpochKey, FiveQis, Grant, Price, Qos, QosOffer, Subject, Terms, Trust, Validity,
};
use whimbrel_open::operator::Operator;
use whimbrel_open::usage::{
    Accounted, Accounts, Direction, OpenSession, Outcome, PayRule, Report, ReportedBy, SignedReport,
};

pub(crate) const BEGUN_S: u64 = 1_000_000;
pub(crate) const USER: UserId = UserId([7; 16]);

pub(crate) fn key(name: &str) -> SigningKey {
    SigningKey::new(&hash(name.as_bytes()))
}

pub(crate) fn seed(n: u64) -> Seed {
    Seed::new(hash(&n.to_be_bytes()))
}

pub(crate) fn domain() -> Domain {
    "b.example".parse().unwrap()
}

pub(crate) fn epoch() -> (PrivateKey, EpochKey) {
    let private = PrivateKey::new(hash(b"epoch"));
    let public = private.share();
    (private, EpochKey { id: 3, public })
}

pub(crate) fn t() -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: None }
}

pub(crate) fn at(seconds: u64) -> Instant {
    Instant((BEGUN_S + seconds) * 1_000_000)
}

pub(crate) fn certificate(subject: Subject, name: &str) -> Certificate {
    let validity = Validity { from: 0, until: u64::MAX };
    Certificate::issue(&key("authority"), subject, key(name).verifying_key(), validity, 1)
}

pub(crate) fn trust() -> Trust {
    Trust::new(vec![key("authority").verifying_key()]).unwrap()
}

pub(crate) fn terms() -> Terms {
    Terms {
        price: Price::new(*b"EUR", 100, 200).unwrap(),
        qos: QosOffer {
            ul_kbps_max: 1_000_000,
            dl_kbps_max: 1_000_000,
            five_qis: FiveQis::new(&[9]).unwrap(),
        },
        report_cycle_s: 10,
    }
}

pub(crate) fn operator() -> Operator {
    Operator::new(certificate(Subject::Operator(t()), "t"), key("t"), trust(), terms()).unwrap()
}

pub(crate) fn grant() -> Grant {
    Grant {
        broker: domain(),
        pseudonym: Pseudonym([1; 16]),
        operator: t(),
        terms: terms(),
        qos: Qos { ul_kbps: 100_000, dl_kbps: 100_000, five_qi: 9 },
        validity: Validity { from: BEGUN_S, until: BEGUN_S + 3_600 },
        credit_micros: 1_000_000,
        request: [0; 32],
        user_share: Share([1; 32]),
        operator_share: Share([0; 32]),
        orders: [0; 32],
    }
}

pub(crate) fn direction(octets: u64, packets: u64, lost: u64) -> Direction {
    Direction { octets, packets, lost, kbps: 0, delay_us: 0 }
}

/// A report of a cycle of ten seconds.
pub(crate) fn report(by: ReportedBy, cycle: u32, ul: u64, dl: u64) -> Report {
    Report {
        by,
        broker: domain(),
        pseudonym: Pseudonym([1; 16]),
        operator: t(),
        cycle,
        end_ms: u64::from(cycle) * 10_000,
        duration_ms: 10_000,
        closed: false,
        uplink: direction(ul, ul / 1_000, 0),
        downlink: direction(dl, dl / 1_000, 0),
    }
}

pub(crate) fn signed(report: Report) -> SignedReport {
    let name = if report.by == ReportedBy::User { "u" } else { "t" };
    report.sign(&key(name))
}

pub(crate) fn accounts() -> Accounts {
    let mut accounts = Accounts::new(domain(), PayRule::DEFAULT);
    accounts.open(OpenSession::of_grant(&grant(), USER));
    accounts
}

/// The statement of the broker about a report that the operator delivers.
pub(crate) fn check(accounts: &Accounts, now: Instant, signed: &SignedReport) -> Outcome {
    let of_user = |user| (user == USER).then(|| key("u").verifying_key());
    accounts.check(now, (t(), &key("t").verifying_key()), of_user, signed)
}

/// Delivers a report that is to be accepted.
pub(crate) fn deliver(accounts: &mut Accounts, report: Report) -> Accounted {
    let (now, signed) = (at(report.end_ms / 1_000), signed(report));
    assert_eq!(check(accounts, now, &signed), Outcome::Accepted);
    accounts.take(now, &signed)
}
