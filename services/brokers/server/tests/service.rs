//! The broker as operators meet it: its listener, its database and its clock are real.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_broker_client::client::{AskError, Client};
use whimbrel_broker_client::{now, random, tls};
use whimbrel_broker_server::engine::{Engine, EpochRule};
use whimbrel_broker_server::profile::SimProfile;
use whimbrel_broker_server::server::{self, Server};
use whimbrel_broker_server::storage::{
    KnownOperator, NamedHomeUser, NamedUser, Sqlite, Storage, StorageError, UsimKeys,
};
use whimbrel_ids::{Instant, PlmnId, Supi};
use whimbrel_open::broker::{BrokerConfig, Home, HomeUser, Policy, User};
use whimbrel_open::crypto::{Seed, SigningKey, hash};
use whimbrel_open::id::{Domain, OperatorId, UserId};
use whimbrel_open::msg::{
    Certificate, EpochKey, FiveQis, Price, Qos, QosOffer, RefusalCause, Rejection, Subject, Subscriber,
    Terms, Trust, Validity,
};
use whimbrel_open::operator::{HomeAttach, Operator, OperatorAttach, OperatorError};
use whimbrel_open::user::{UserAttach, UserSim};
use whimbrel_security::{Autn, HomeNetworkKeys, Rand, ServingNetworkName, Sqn, Usim, UsimSqn};

const T: OperatorId = OperatorId { plmn: PlmnId::TEST, nid: None };
const WITHIN: Duration = Duration::from_secs(20);

fn key(name: &str) -> SigningKey {
    SigningKey::new(&hash(name.as_bytes()))
}

fn domain() -> Domain {
    "b.example".parse().unwrap()
}

fn trust() -> Trust {
    let mut trust = Trust::new(vec![key("authority").verifying_key()]).unwrap();
    trust.revoke(66);
    trust
}

fn certificate(subject: Subject, name: &str, (from, until): (i64, i64), serial: u64) -> Certificate {
    let at = |days: i64| now().as_secs().saturating_add_signed(days * 86_400);
    let validity = Validity { from: at(from), until: at(until) };
    Certificate::issue(&key("authority"), subject, key(name).verifying_key(), validity, serial)
}

fn operator_with(certificate: Certificate) -> Operator {
    let terms = Terms {
        price: Price::new(*b"EUR", 100, 200).unwrap(),
        qos: QosOffer { ul_kbps_max: 50_000, dl_kbps_max: 200_000, five_qis: FiveQis::new(&[9]).unwrap() },
        report_cycle_s: 60,
    };
    Operator::new(certificate, key("operator"), trust(), terms).unwrap()
}

fn operator() -> Operator {
    operator_with(certificate(Subject::Operator(T), "operator", (-1, 1), 1))
}

fn user(name: &str) -> NamedUser {
    let user = User {
        key: key(name).verifying_key(),
        revoked: false,
        qos: Qos { ul_kbps: 10_000, dl_kbps: 100_000, five_qi: 9 },
        intercept: false,
        filters: Vec::new(),
        counter: 0,
        ticket: 0,
    };
    NamedUser { name: name.into(), id: UserId(hash(name.as_bytes())[..16].try_into().unwrap()), user }
}

struct Service {
    engine: Engine,
    server: Server,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

const NO_RULE: EpochRule = EpochRule { begin_after_s: 0, end_after_s: u64::MAX };

impl Service {
    fn start(folder: &Path) -> Self {
        Self::start_named(folder, "b.example", false)
    }

    fn start_named(folder: &Path, tls_name: &str, listed_only: bool) -> Self {
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
            certificate: certificate(Subject::Broker(domain()), "broker", (-1, 1), 2),
            signing: key("broker"),
            trust: trust(),
            policy,
        };
        let storage = Sqlite::open(&folder.join("broker.db")).unwrap();
        let storage = Box::new(storage);
        let engine = Engine::start_with_home(config, Some(home()), listed_only, NO_RULE, storage).unwrap();
        let made = tls::self_signed(tls_name, now().as_secs()).unwrap();
        let (pem, secret) = (folder.join("tls.pem"), folder.join("tls.key"));
        std::fs::write(&pem, made.certificate).unwrap();
        std::fs::write(&secret, made.key).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let server =
            server::start(here, here, tls::server(&pem, &secret).unwrap(), engine.entrance()).unwrap();
        let client = Client::new(tls::client(&pem).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { engine, server, client, runtime }
    }

    fn ask(&self, octets: &[u8]) -> Result<Vec<u8>, AskError> {
        self.runtime.block_on(self.client.ask(&domain(), self.server.address, octets, WITHIN))
    }

    /// Attaches a user through an operator whose clock shows `at`.
    fn attach(&self, operator: &Operator, sim: &mut UserSim, at: Instant) -> Result<(), OperatorError> {
        let (attach, request) = UserAttach::begin(sim, operator.id(), &Seed::new(random().unwrap())).unwrap();
        let (waiting, octets) = OperatorAttach::begin(operator, request, at, &Seed::new(random().unwrap()));
        let answer = self.ask(&octets).expect("an answer");
        let served = waiting.answer(&answer, &operator.trust, now())?;
        let tentative = attach.answer(&served.answer_u.to_octets(), now()).expect("an answer for the user");
        assert_eq!(*tentative.k_seaf(), served.k_seaf);
        tentative.commit(attach, sim);
        Ok(())
    }

    fn health(&self) -> String {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(self.server.admin).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }
}

/// A database with a user, and the user's SIM.
fn with_user(folder: &Path, name: &str) -> UserSim {
    let mut storage = Sqlite::open(&folder.join("broker.db")).unwrap();
    let state = storage.load(now()).unwrap();
    storage.add_users(&[user(name)]).unwrap();
    let epoch = state.epochs.last().unwrap();
    UserSim {
        user: user(name).id,
        broker: domain(),
        broker_key: key("broker").verifying_key(),
        epoch: EpochKey { id: epoch.id, public: epoch.key.share() },
        signing: key(name),
        counter: 0,
        ticket: None,
    }
}

#[test]
fn an_attach_over_http2_and_tls_is_granted_stored_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let service = Service::start(folder.path());
    for _ in 0..3 {
        service.attach(&operator(), &mut sim, now()).unwrap();
    }
    assert!(sim.ticket.is_some());
    let grants = Sqlite::open(&folder.path().join("broker.db")).unwrap().grants(10).unwrap();
    assert_eq!(grants.len(), 3);
    assert!(grants.iter().all(|g| g.user == "alice" && g.operator == "999/70"));
    let metrics = service.engine.entrance().metrics;
    assert_eq!(metrics.granted(), 3);
    assert!(metrics.text().contains("whimbrel_broker_grants_total 3\n"), "{}", metrics.text());
    assert!(service.health().starts_with("HTTP/1.1 200"));
}

#[test]
fn a_broker_that_was_restarted_gives_the_same_answer_and_takes_no_used_counter() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let seed = |n: u8| Seed::new([n; 32]);
    let (_, request) = UserAttach::begin(&mut sim, T, &seed(1)).unwrap();
    let at = now();
    let (_, octets) = OperatorAttach::begin(&operator(), request.clone(), at, &seed(2));
    let service = Service::start(folder.path());
    let first = service.ask(&octets).unwrap();
    drop(service);
    let service = Service::start(folder.path());
    let again = service.ask(&octets).unwrap();
    assert!(first == again, "the stored answer is given again");
    let (waiting, other) = OperatorAttach::begin(&operator(), request, at, &seed(3));
    let refusal = waiting.answer(&service.ask(&other).unwrap(), &trust(), now()).unwrap_err();
    assert!(matches!(refusal, OperatorError::Refused(r) if r.cause == RefusalCause::CounterUsed));
    service.attach(&operator(), &mut sim, now()).unwrap();
}

#[test]
fn a_certificate_that_is_expired_revoked_or_of_another_authority_is_rejected_for_that_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let service = Service::start(folder.path());
    let named = |validity, serial| certificate(Subject::Operator(T), "operator", validity, serial);
    let mut forged = named((-1, 1), 1);
    forged.serial = 2;
    for (certificate, cause) in [
        (named((-3, -2), 1), Rejection::CertificateExpired),
        (named((2, 3), 1), Rejection::CertificateNotYetValid),
        (named((-1, 1), 66), Rejection::CertificateRevoked),
        (forged, Rejection::CertificateUntrusted),
    ] {
        let refused = service.attach(&operator_with(certificate), &mut sim, now());
        assert_eq!(refused, Err(OperatorError::Rejected(cause)));
        assert_eq!(service.engine.entrance().metrics.rejected(cause), 1);
    }
    service.attach(&operator(), &mut sim, now()).unwrap();
}

#[test]
fn an_operator_whose_clock_is_a_day_off_is_rejected_for_its_clock() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let service = Service::start(folder.path());
    let day = Duration::from_secs(86_400);
    for at in [now() + day, now() - day] {
        let refused = service.attach(&operator(), &mut sim, at);
        assert_eq!(refused, Err(OperatorError::Rejected(Rejection::ClockSkew)));
    }
}

#[test]
fn bodies_that_are_no_request_are_refused_and_the_broker_serves_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let service = Service::start(folder.path());
    for garbage in [&b""[..], b"\x02\x01", &[0xff; 600], b"{\"a\": 1}"] {
        let answer = service.ask(garbage).unwrap();
        assert_eq!(answer.last(), Some(&(Rejection::Malformed as u8)), "{garbage:?}");
    }
    assert_eq!(service.ask(&[2; 4_000]), Err(AskError::Http(domain(), 413)));
    service.attach(&operator(), &mut sim, now()).unwrap();
}

#[test]
fn a_tls_certificate_of_another_name_is_refused_by_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    with_user(folder.path(), "alice");
    let service = Service::start_named(folder.path(), "other.example", false);
    assert_eq!(service.ask(b"x"), Err(AskError::TlsName(domain())));
}

#[test]
fn a_broker_whose_tls_certificate_has_no_trusted_authority_is_refused_by_the_operator() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut service = Service::start(folder.path());
    let unsigned = Service::start(other.path());
    service.client = unsigned.client;
    assert_eq!(service.ask(b"x"), Err(AskError::TlsUntrusted(domain())));
}

#[test]
fn what_a_command_changes_is_in_force_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let service = Service::start_named(folder.path(), "b.example", true);
    let mut commands = Sqlite::open(&folder.path().join("broker.db")).unwrap();
    let refused = |done: Result<(), OperatorError>| match done {
        Err(OperatorError::Refused(refusal)) => Some(refusal.cause),
        Ok(()) => None,
        other => panic!("{other:?}"),
    };
    let mut until = |cause: Option<RefusalCause>| {
        let begin = std::time::Instant::now();
        while refused(service.attach(&operator(), &mut sim, now())) != cause {
            assert!(begin.elapsed() < WITHIN, "not {cause:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(Some(RefusalCause::OperatorNotAllowed));
    commands.set_operator(KnownOperator { id: T, allowed: true, reputation: None }).unwrap();
    until(None);
    commands.set_operator(KnownOperator { id: T, allowed: true, reputation: Some(3) }).unwrap();
    until(Some(RefusalCause::OperatorReputation));
    commands.set_operator(KnownOperator { id: T, allowed: true, reputation: None }).unwrap();
    commands.revoke_user("alice").unwrap();
    until(Some(RefusalCause::UserRevoked));
}

#[test]
fn an_epoch_that_ended_opens_nothing_and_the_refusal_brings_the_current_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let mut commands = Sqlite::open(&folder.path().join("broker.db")).unwrap();
    let first = sim.epoch.id;
    let second =
        commands.begin_epoch(whimbrel_open::crypto::PrivateKey::new(random().unwrap()), now()).unwrap();
    assert!(matches!(commands.end_epoch(second), Err(StorageError::CurrentEpoch(_))));
    let service = Service::start(folder.path());
    service.attach(&operator(), &mut sim, now()).unwrap();
    assert_eq!(sim.epoch.id, second, "the answer brought the current key");
    commands.end_epoch(first).unwrap();
    drop(service);
    let service = Service::start(folder.path());
    let (attach, request) = {
        sim.epoch.id = first;
        UserAttach::begin(&mut sim, T, &Seed::new([1; 32])).unwrap()
    };
    let (waiting, octets) = OperatorAttach::begin(&operator(), request, now(), &Seed::new([2; 32]));
    let refused = waiting.answer(&service.ask(&octets).unwrap(), &trust(), now());
    let Err(OperatorError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.cause, RefusalCause::UnknownKey);
    let refusal = attach.refusal(&refusal.to_octets()).unwrap();
    assert_eq!(refusal.key.map(|k| k.id), Some(second));
}

#[test]
fn a_connection_that_the_broker_closed_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let mut service = Service::start(folder.path());
    service.attach(&operator(), &mut sim, now()).unwrap();
    let at = service.server.address;
    let (pem, secret) = (folder.path().join("tls.pem"), folder.path().join("tls.key"));
    let tls = tls::server(&pem, &secret).unwrap();
    let elsewhere = SocketAddr::from(([127, 0, 0, 1], 0));
    // The old listener is gone before the new one takes its port.
    let old = std::mem::replace(
        &mut service.server,
        server::start(elsewhere, elsewhere, tls.clone(), service.engine.entrance()).unwrap(),
    );
    drop(old);
    service.server = server::start(at, elsewhere, tls, service.engine.entrance()).unwrap();
    service.attach(&operator(), &mut sim, now()).unwrap();
}

#[test]
fn the_profile_of_a_sim_reads_back_and_names_the_field_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let sim = with_user(folder.path(), "alice");
    let profile = SimProfile::new(&sim, &hash(b"alice"));
    let text = serde_json::to_string(&profile).unwrap();
    let mut read: SimProfile = serde_json::from_str(&text).unwrap();
    let again = read.sim().unwrap();
    assert_eq!((again.user, again.epoch), (sim.user, sim.epoch));
    assert_eq!(again.signing.verifying_key(), sim.signing.verifying_key());
    read.epoch_key.pop();
    assert_eq!(read.sim().err(), Some("epoch_key"));
}

#[test]
fn two_users_of_one_name_are_refused_and_none_is_added() {
    let folder = tempfile::tempdir().unwrap();
    let mut storage = Sqlite::open(&folder.path().join("broker.db")).unwrap();
    let taken = storage.add_users(&[user("alice"), user("bob"), user("alice")]);
    assert!(matches!(taken, Err(StorageError::UserExists(name)) if name == "alice"));
    assert!(storage.list_users("", 10).unwrap().is_empty());
    assert!(matches!(storage.revoke_user("bob"), Err(StorageError::UnknownUser(_))));
}

#[test]
fn many_attaches_at_once_share_commits() {
    let folder = tempfile::tempdir().unwrap();
    let mut sims: Vec<UserSim> = Vec::new();
    {
        let mut sim = with_user(folder.path(), "first");
        let mut storage = Sqlite::open(&folder.path().join("broker.db")).unwrap();
        let names: Vec<String> = (0..40).map(|n| format!("user{n}")).collect();
        storage.add_users(&names.iter().map(|n| user(n)).collect::<Vec<_>>()).unwrap();
        for name in &names {
            sim.user = user(name).id;
            sim.signing = key(name);
            let UserSim { user, ref broker, broker_key, epoch, ref signing, .. } = sim;
            let (broker, signing) = (broker.clone(), signing.clone());
            sims.push(UserSim { user, broker, broker_key, epoch, signing, counter: 0, ticket: None });
        }
    }
    let service = Service::start(folder.path());
    let operator = operator();
    let asked: Vec<_> = sims
        .iter_mut()
        .map(|sim| {
            let (_, request) = UserAttach::begin(sim, T, &Seed::new(random().unwrap())).unwrap();
            OperatorAttach::begin(&operator, request, now(), &Seed::new(random().unwrap()))
        })
        .collect();
    let (client, at) = (Arc::new(service.client), service.server.address);
    service.runtime.block_on(async {
        let mut tasks = Vec::new();
        for (waiting, octets) in asked {
            let client = client.clone();
            tasks.push(tokio::spawn(
                async move { (waiting, client.ask(&domain(), at, &octets, WITHIN).await) },
            ));
        }
        for task in tasks {
            let (waiting, answer) = task.await.unwrap();
            waiting.answer(&answer.unwrap(), &trust(), now()).unwrap();
        }
    });
    assert_eq!(service.engine.entrance().metrics.granted(), 40);
}

/// The home network of the tests' USIMs.
fn home() -> Home {
    Home { plmn: "999/71".parse().unwrap(), keys: HomeNetworkKeys::new(), credit_micros: 1_000 }
}

fn usim(name: &str, imsi: &str) -> NamedHomeUser {
    let keys = UsimKeys { k: [0x46; 16], opc: [0xcd; 16] };
    let user = HomeUser {
        user: UserId(hash(name.as_bytes())[..16].try_into().unwrap()),
        functions: keys.functions(),
        revoked: false,
        qos: user(name).user.qos,
        intercept: false,
        filters: Vec::new(),
        sqn: Sqn::ZERO,
    };
    NamedHomeUser { name: name.into(), supi: imsi.parse().unwrap(), keys, user }
}

/// The operator has asked for a challenge of an ordinary UE; and what it has asked.
fn ask_for_challenge(supi: Supi) -> (HomeAttach, Vec<u8>) {
    let operator = operator();
    let offer = (operator.id(), operator.terms.clone());
    let seed = Seed::new(random().unwrap());
    let (attach, question) = HomeAttach::ask(offer, domain(), Subscriber::Supi(supi), None, &seed);
    (attach, question.sign(&operator, now()))
}

#[test] // TS 33.501 §6.1.3.2; SQN is durable before the vector leaves
fn an_ordinary_ue_is_challenged_confirmed_and_granted_by_a_broker_that_restarts_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let user = usim("carol", "999710000000001");
    Sqlite::open(&folder.path().join("broker.db")).unwrap().add_home_user(&user).unwrap();
    let mut ue = Usim::new(user.user.functions.clone(), UsimSqn::default());
    let name = ServingNetworkName::new(T.plmn);
    for sqn in 1..=2 {
        let service = Service::start(folder.path());
        let (attach, asked) = ask_for_challenge(user.supi);
        let first = service.ask(&asked).unwrap();
        drop(service);
        let service = Service::start(folder.path());
        assert!(service.ask(&asked).unwrap() == first, "the same challenge");
        let challenge = attach.challenge(&first, &trust(), now()).unwrap();
        let proved = ue.authenticate(&Rand(challenge.rand), &Autn(challenge.autn), &name).unwrap();
        let res_star = *proved.res_star.octets();
        let confirmation = attach.confirm(res_star).sign(&operator(), now());
        let answer = service.ask(&confirmation).unwrap();
        let session = attach.release(&answer, res_star, &trust(), now()).unwrap();
        assert_eq!((session.supi, session.k_seaf.octets()), (user.supi, proved.k_seaf.octets()));
        drop(service);
        let service = Service::start(folder.path());
        assert!(service.ask(&confirmation).unwrap() == answer, "the same grant");
        let mut storage = Sqlite::open(&folder.path().join("broker.db")).unwrap();
        assert_eq!(storage.home_users().unwrap()[0].user.sqn.seq(), sqn);
        let grants = storage.grants(10).unwrap();
        assert!(grants.len() == sqn as usize && grants[0].user == "carol" && grants[0].operator == "999/70");
    }
}

#[test]
fn a_usim_that_a_command_adds_or_revokes_is_in_force_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let user = usim("carol", "999710000000001");
    let mut commands = Sqlite::open(&folder.path().join("broker.db")).unwrap();
    let until = |cause: Option<RefusalCause>| {
        let begin = std::time::Instant::now();
        loop {
            let (attach, asked) = ask_for_challenge(user.supi);
            let refused = match attach.challenge(&service.ask(&asked).unwrap(), &trust(), now()) {
                Err(OperatorError::Refused(refusal)) => Some(refusal.cause),
                Ok(_) => None,
                other => panic!("{other:?}"),
            };
            if refused == cause {
                return;
            }
            assert!(begin.elapsed() < WITHIN, "not {cause:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(Some(RefusalCause::UnknownUser));
    commands.add_home_user(&user).unwrap();
    until(None);
    commands.revoke_user("carol").unwrap();
    until(Some(RefusalCause::UserRevoked));
}

#[test]
fn a_name_is_of_one_user_whether_it_has_a_usim_or_a_key_pair() {
    let folder = tempfile::tempdir().unwrap();
    let mut storage = Sqlite::open(&folder.path().join("broker.db")).unwrap();
    storage.add_users(&[user("alice")]).unwrap();
    storage.add_home_user(&usim("carol", "999710000000001")).unwrap();
    for taken in [usim("alice", "999710000000002"), usim("dave", "999710000000001")] {
        assert!(matches!(storage.add_home_user(&taken), Err(StorageError::UserExists(_))));
    }
    assert!(matches!(storage.add_users(&[user("carol")]), Err(StorageError::UserExists(_))));
    assert_eq!((storage.home_users().unwrap().len(), storage.list_users("", 9).unwrap().len()), (1, 1));
}

#[test] // the layout before ordinary UEs
fn a_database_of_version_1_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broker.db");
    Sqlite::open(&file).unwrap().add_users(&[user("alice")]).unwrap();
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("DROP TABLE home_user; DROP TABLE home_answer; PRAGMA user_version = 1;").unwrap();
    drop(db);
    let mut storage = Sqlite::open(&file).unwrap();
    storage.add_home_user(&usim("carol", "999710000000001")).unwrap();
    assert_eq!(storage.list_users("", 9).unwrap().len(), 1);
}

#[test]
fn idle_connections_of_one_sender_do_not_shut_an_operator_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut sim = with_user(folder.path(), "alice");
    let service = Service::start(folder.path());
    let idle: Vec<_> =
        (0..300).map(|_| std::net::TcpStream::connect(service.server.address).unwrap()).collect();
    service.attach(&operator(), &mut sim, now()).unwrap();
    let text = service.engine.entrance().metrics.text();
    let closed = text.lines().find_map(|l| l.strip_prefix("whimbrel_broker_connections_closed_total "));
    assert!(closed.unwrap().parse::<u64>().unwrap() >= 300 - 256, "{text}");
    drop(idle);
}
