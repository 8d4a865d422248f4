//! Usage reports at the broker's thread with its database (chapter 3.4.3): receipts, reputation, statements, and a start after a crash.

use std::path::Path;

use tokio::sync::oneshot;
use whimbrel_broker_client::ledger::LedgerFile;
use whimbrel_broker_client::{now, random, statement};
use whimbrel_broker_server::engine::{Engine, EpochRule};
use whimbrel_broker_server::storage::{KnownOperator, NamedUser, Sqlite, Storage, UsageStorage};
use whimbrel_ids::{Instant, PlmnId};
use whimbrel_open::admission::Peer;
use whimbrel_open::broker::{BrokerConfig, Policy, User};
use whimbrel_open::crypto::{Seed, SigningKey, hash};
use whimbrel_open::id::{Domain, OperatorId, UserId};
use whimbrel_open::msg::{
    Certificate, EpochKey, FiveQis, Price, Qos, QosOffer, RefusalCause, SignedGrant, Subject, Terms, Trust,
    Validity,
};
use whimbrel_open::operator::{Operator, OperatorAttach, OperatorError};
use whimbrel_open::usage::{
    DeliveryAnswer, Meter, Outcome, ReportedBy, SealedReport, SignedReceipt, SignedReport, Statement,
};
use whimbrel_open::user::{UserAttach, UserSim};

const T: OperatorId = OperatorId { plmn: PlmnId::TEST, nid: None };
const MIB: u64 = 1 << 20;

fn key(name: &str) -> SigningKey {
    SigningKey::new(&hash(name.as_bytes()))
}

fn domain() -> Domain {
    "b.example".parse().unwrap()
}

fn trust() -> Trust {
    Trust::new(vec![key("authority").verifying_key()]).unwrap()
}

fn seed() -> Seed {
    Seed::new(random().unwrap())
}

fn certificate(subject: Subject, name: &str) -> Certificate {
    let validity = Validity { from: now().as_secs() - 60, until: now().as_secs() + 3_600 };
    Certificate::issue(&key("authority"), subject, key(name).verifying_key(), validity, 1)
}

fn operator() -> Operator {
    let terms = Terms {
        price: Price::new(*b"EUR", 100, 200).unwrap(),
        qos: QosOffer { ul_kbps_max: 50_000, dl_kbps_max: 200_000, five_qis: FiveQis::new(&[9]).unwrap() },
        report_cycle_s: 60,
    };
    Operator::new(certificate(Subject::Operator(T), "t"), key("t"), trust(), terms).unwrap()
}

fn user(n: usize) -> NamedUser {
    let name = format!("user-{n}");
    let id = UserId(hash(name.as_bytes())[..16].try_into().unwrap());
    let user = User {
        key: key(&name).verifying_key(),
        revoked: false,
        qos: Qos { ul_kbps: 10_000, dl_kbps: 100_000, five_qi: 9 },
        intercept: false,
        filters: Vec::new(),
        counter: 0,
        ticket: 0,
    };
    NamedUser { name, id, user }
}

fn start(folder: &Path) -> Engine {
    let policy = Policy {
        operators: None,
        price_cap: Price::new(*b"EUR", 1_000, 1_000).unwrap(),
        reputation_floor: 10,
        reputation_newcomer: 20,
        validity_s: 3_600,
        credit_micros: 5_000_000,
    };
    let config = BrokerConfig {
        domain: domain(),
        certificate: certificate(Subject::Broker(domain()), "b"),
        signing: key("b"),
        trust: trust(),
        policy,
    };
    let storage = Sqlite::open(&folder.join("broker.db")).unwrap();
    let rule = EpochRule { begin_after_s: 0, end_after_s: u64::MAX };
    Engine::start(config, false, rule, Box::new(storage)).unwrap()
}

fn answered(asked: Option<oneshot::Receiver<Vec<u8>>>) -> Vec<u8> {
    asked.expect("room").blocking_recv().expect("an answer")
}

/// A session at the operator: what both count.
struct Session {
    grant: SignedGrant,
    user: usize,
    of_user: Meter,
    of_operator: Meter,
}

fn attach(engine: &Engine, n: usize, counter: u64, epoch: EpochKey) -> Result<Session, OperatorError> {
    let operator = operator();
    let (user, broker_key) = (user(n), key("b").verifying_key());
    let signing = key(&user.name);
    let mut sim =
        UserSim { user: user.id, broker: domain(), broker_key, epoch, signing, counter, ticket: None };
    let (_, request) = UserAttach::begin(&mut sim, T, &seed()).unwrap();
    let (waiting, octets) = OperatorAttach::begin(&operator, request, now(), &seed());
    let answer = answered(engine.entrance().ask(Peer(1), octets));
    let grant = waiting.answer(&answer, &operator.trust, now())?.grant;
    let meter = |by| Meter::new(by, &grant.grant, now());
    let (of_user, of_operator) = (meter(ReportedBy::User), meter(ReportedBy::Operator));
    Ok(Session { grant, user: n, of_user, of_operator })
}

impl Session {
    /// Both count so many octets downlink, and report: the operator's report with its hash, both sealed.
    fn report(&mut self, measured: u64, claimed: u64, epoch: EpochKey) -> (SignedReport, Vec<SealedReport>) {
        self.of_user.count(false, 100, measured);
        self.of_operator.count(false, 100, claimed);
        let at = Instant(now().0 + 1_000_000);
        let of_operator = operator().sign_report(self.of_operator.report(at, false));
        let of_user = self.of_user.report(at, false).sign(&key(&user(self.user).name));
        let sealed = [&of_operator, &of_user].map(|r| r.seal(&epoch, &seed()).unwrap());
        (of_operator, sealed.into())
    }
}

/// Delivers reports. Gives what came of each, and the receipts after `received`.
fn deliver(engine: &Engine, received: u64, reports: Vec<SealedReport>) -> (Vec<Outcome>, Vec<SignedReceipt>) {
    let operator = operator();
    let delivery = operator.deliver(domain(), now(), received, reports);
    let answer = answered(engine.entrance().deliver(delivery.to_octets()));
    let (_, outcomes, receipts) = DeliveryAnswer::verify(&answer, &delivery, T, &trust(), now()).unwrap();
    (outcomes.iter().map(|o| Outcome::ALL[usize::from(*o)]).collect(), receipts)
}

/// A folder with the users, and the broker's current epoch key.
fn populated(users: usize) -> (tempfile::TempDir, EpochKey) {
    let folder = tempfile::tempdir().unwrap();
    let mut storage = Sqlite::open(&folder.path().join("broker.db")).unwrap();
    let state = storage.load(now()).unwrap();
    storage.add_users(&(0..users).map(user).collect::<Vec<_>>()).unwrap();
    let epoch = state.epochs.last().unwrap();
    let epoch = EpochKey { id: epoch.id, public: epoch.key.share() };
    (folder, epoch)
}

#[test]
fn a_receipt_survives_the_broker_and_a_statement_is_checked_against_the_operators_ledger() {
    let (folder, epoch) = populated(1);
    let engine = start(folder.path());
    let mut session = attach(&engine, 0, 0, epoch).unwrap();
    let (report, sealed) = session.report(MIB, MIB, epoch);
    let mut ledger = LedgerFile::open(&folder.path().join("operator.db")).unwrap();
    ledger.keep_grant(&session.grant).unwrap();
    ledger.keep_reports(std::slice::from_ref(&report)).unwrap();
    assert_eq!(deliver(&engine, 0, Vec::new()).1, [], "nothing was reported yet");
    let (outcomes, receipts) = deliver(&engine, 0, sealed.clone());
    assert_eq!(outcomes, [Outcome::Accepted, Outcome::Accepted]);
    assert_eq!(receipts.len(), 1);
    assert_eq!(receipts[0].receipt.totals.micros, 200);
    drop(engine);

    // The answer was lost, and the broker starts again.
    let engine = start(folder.path());
    let (outcomes, again) = deliver(&engine, 0, sealed);
    assert_eq!((outcomes, &again), (vec![Outcome::Doubled; 2], &receipts));
    assert_eq!(deliver(&engine, 1, Vec::new()).1, []);
    let (next, sealed) = session.report(MIB, MIB, epoch);
    let (_, second) = deliver(&engine, 1, sealed);
    assert_eq!(second[0].receipt.serial, 2, "numbers go on");
    drop(engine);

    ledger.keep_receipts(&receipts).unwrap();
    assert_eq!(ledger.last_receipt(&domain()), Ok(1));
    let lines =
        Sqlite::open(&folder.path().join("broker.db")).unwrap().receipts(T, 0, Statement::LINES_MAX).unwrap();
    let made = Statement::sign(domain(), T, now().as_secs(), lines, &key("b")).unwrap();
    let file = folder.path().join("statement");
    let of_broker = certificate(Subject::Broker(domain()), "b");
    std::fs::write(&file, statement::text(&of_broker, &made)).unwrap();
    let (read_certificate, read) = statement::read(&file).unwrap();
    assert_eq!((&read_certificate, &read), (&of_broker, &made));
    let unknown = ledger.check(&read).unwrap_err();
    assert!(unknown.contains("receipt 2: this operator sent no such report"), "{unknown}");
    ledger.keep_reports(&[next]).unwrap();
    let checked = ledger.check(&read).unwrap();
    assert_eq!((checked.lines, checked.missing, checked.totals.micros), (2, 0, 400));
    let later = Statement { lines: read.lines[1..].to_vec(), ..read };
    assert_eq!(ledger.check(&later).unwrap().lines, 1, "what came before is in the ledger");
}

#[test]
fn an_operator_that_claims_more_than_its_users_confirm_gets_no_further_grant() {
    let (folder, epoch) = populated(7);
    let engine = start(folder.path());
    for n in 0..6 {
        let mut session = attach(&engine, n, 0, epoch).unwrap();
        let (_, sealed) = session.report(MIB, MIB + MIB / 5, epoch);
        assert_eq!(deliver(&engine, 0, sealed).0, [Outcome::Accepted; 2]);
    }
    let refused = |engine: &Engine, counter| match attach(engine, 6, counter, epoch).map(drop) {
        Err(OperatorError::Refused(refusal)) => refusal.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&engine, 0), RefusalCause::OperatorReputation);
    drop(engine);
    let engine = start(folder.path());
    assert_eq!(refused(&engine, 1), RefusalCause::OperatorReputation, "a start forgets nothing");
    let mut storage = Sqlite::open(&folder.path().join("broker.db")).unwrap();
    let standings = storage.standings().unwrap();
    let operator = standings.iter().find(|s| s.is_operator).unwrap();
    assert_eq!((operator.reputation, operator.standing.blames), (5, 1));
    assert!(standings.iter().filter(|s| !s.is_operator).all(|s| !s.suspect));
    // The staff's word stands above it.
    storage.set_operator(KnownOperator { id: T, allowed: true, reputation: Some(50) }).unwrap();
    drop(engine);
    let engine = start(folder.path());
    assert!(attach(&engine, 6, 2, epoch).is_ok());
}

#[test]
fn reports_of_an_uncertified_operator_are_rejected_and_garbage_is_not_stored() {
    let (folder, epoch) = populated(1);
    let engine = start(folder.path());
    let garbage = answered(engine.entrance().deliver(vec![10, 1, 0xff]));
    let answer = DeliveryAnswer::parse(&garbage).unwrap();
    assert!(matches!(answer.body, whimbrel_open::usage::DeliveryBody::Rejected(_)));
    let mut session = attach(&engine, 0, 0, epoch).unwrap();
    let (report, _) = session.report(MIB, MIB, epoch);
    let other = whimbrel_open::crypto::PrivateKey::new([9; 32]).share();
    let wrong = [EpochKey { id: epoch.id.wrapping_add(1), ..epoch }, EpochKey { public: other, ..epoch }];
    let sealed = wrong.iter().map(|key| report.seal(key, &seed()).unwrap()).collect();
    assert_eq!(deliver(&engine, 0, sealed).0, [Outcome::Sealed; 2]);
    drop(engine);
    let state = Sqlite::open(&folder.path().join("broker.db")).unwrap().load_usage(now()).unwrap();
    assert_eq!((state.grants.len(), state.reports.len()), (1, 0));
}
