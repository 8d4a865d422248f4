//! `whimbrel-broker settle` over the files of a core, and a broker that listens on loopback.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use whimbrel_broker_client::veil::record::Recorder;
use whimbrel_broker_client::veil::session_file::{ReportedSession, SessionFile};
use whimbrel_broker_client::{files, hex, now, tls};
use whimbrel_broker_server::engine::Entrance;
use whimbrel_broker_server::server::{self, Entrances, Server};
use whimbrel_broker_server::veil::claims::ClaimsStorage;
use whimbrel_broker_server::veil::engine::{VeilConfig, VeilEngine};
use whimbrel_broker_server::veil::storage::{NamedUser, VeilStorage};
use whimbrel_claims::{ClaimSecret, Slots, nonce};
use whimbrel_ids::PlmnId;
use whimbrel_open::id::{Domain, Nid, OperatorId, UserId};
use whimbrel_open::msg::{Certificate, Qos, Subject, Trust, Validity};
use whimbrel_privacy::broker::{BrokerConfig, Class, Counters, Policy, Record, User};
use whimbrel_privacy::crypto::SigningKey;
use whimbrel_privacy::msg::PeriodWitness;
use whimbrel_security::HomeNetworkKeys;

use super::broker;

const DOMAIN: &str = "b.example";
const USER: UserId = UserId([0xa1; 16]);

fn domain() -> Domain {
    DOMAIN.parse().unwrap()
}

fn broker_key() -> SigningKey {
    SigningKey::new(&[1; 32])
}

fn witness_key() -> SigningKey {
    SigningKey::new(&[2; 32])
}

fn authority() -> whimbrel_open::crypto::SigningKey {
    whimbrel_open::crypto::SigningKey::new(&[3; 32])
}

fn operator() -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: Nid::new(7) }
}

fn session(n: u8) -> ReportedSession {
    ReportedSession { group: [9; 32], session: [n; 32], units: u32::from(n), secret: [n; 32] }
}

/// A broker that has these sessions' reports.
struct Reported {
    _engine: VeilEngine,
    server: Server,
    store: PathBuf,
    witness: PeriodWitness,
}

impl Reported {
    fn start(folder: &Path, sessions: &[u8]) -> Self {
        let store = folder.join("veil.db");
        let mut storage = VeilStorage::open(&store).unwrap();
        let (revoked, class, prepaid, intercept) = (false, 0, false, false);
        let (key, counters) = (SigningKey::new(&[4; 32]).verifying_key(), Counters::default());
        let user = User { key, revoked, class, prepaid, intercept, counters };
        storage.add_user(&NamedUser { name: "alice".into(), id: USER, user }).unwrap();
        let record = |n: &u8| {
            let (nonce, units) = (nonce(&ClaimSecret::new(&session(*n).secret)), session(*n).units);
            Record::Reported { session: [*n; 32], user: USER, units, nonce, report: [*n; 32] }
        };
        storage.commit(&sessions.iter().map(record).collect::<Vec<_>>(), &[]).unwrap();
        let made = tls::self_signed(DOMAIN, now().as_secs()).unwrap();
        let (pem, secret) = (folder.join("tls.pem"), folder.join("tls.key"));
        fs::write(&pem, made.certificate).unwrap();
        fs::write(&secret, made.key).unwrap();
        let qos = Qos { ul_kbps: 10_000, dl_kbps: 50_000, five_qi: 9 };
        let policy = Policy {
            operators: [operator()].into(),
            batches_max: 4,
            group_s: 60,
            validity_s: 3_600,
            slice_octets: 1_000_000,
            poll_s: 2,
            classes: vec![Class { qos, filters: Vec::new() }],
        };
        let machine = BrokerConfig {
            domain: domain(),
            network: PlmnId::TEST,
            signing: broker_key(),
            trust: Trust::new(vec![authority().verifying_key()]).unwrap(),
            policy,
        };
        let (recorder, home_keys, agencies) = (Recorder::default(), HomeNetworkKeys::new(), Vec::new());
        let config = VeilConfig { machine, store: store.clone(), recorder, home_keys, agencies };
        let engine = VeilEngine::start(config).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let entrances =
            Entrances { open: Entrance::answered_by(|_| Vec::new()).unwrap(), veil: Some(engine.entrance()) };
        let server = server::start(here, here, tls::server(&pem, &secret).unwrap(), entrances).unwrap();
        let witness = PeriodWitness::new(domain(), broker_key().verifying_key(), witness_key(), None);
        Self { _engine: engine, server, store, witness }
    }

    /// Closes a period, which the witness signs.
    fn close_period(&mut self) {
        let mut storage = ClaimsStorage::open(&self.store).unwrap();
        let slots = Slots::new(Slots::MIN).unwrap();
        let head = storage.close_period(&domain(), slots, &broker_key()).unwrap().unwrap();
        storage.add_cosignature(head.period, &self.witness.cosign(&head).unwrap()).unwrap();
    }

    /// Periods, claims and units that the operator was paid.
    fn paid(&self) -> Vec<(u32, u64, u64)> {
        let paid = ClaimsStorage::open(&self.store).unwrap().paid().unwrap();
        paid.iter().map(|p| (p.period, p.claims, p.units)).collect()
    }

    /// The configuration of a core of the operator.
    fn core(&self, folder: &Path) -> String {
        let key = files::make_key(&folder.join("operator.key")).unwrap();
        let validity = Validity { from: now().as_secs() - 3_600, until: now().as_secs() + 86_400 };
        let subject = Subject::Operator(operator());
        let certificate = Certificate::issue(&authority(), subject, key.verifying_key(), validity, 1);
        fs::write(folder.join("operator.cert"), files::certificate_text(&certificate)).unwrap();
        let (dir, address) = (folder.display(), self.server.address);
        let keys = [broker_key(), witness_key()].map(|key| hex(&key.verifying_key().octets()));
        let yaml = format!(
            "store: {{ path: {dir}/core.db, key_file: {dir}/core.key }}\n\
             veil:\n  broker: {DOMAIN}\n  address: \"{address}\"\n  broker_key: \"{}\"\n  witnesses: [\"{}\"]\n  \
             key_file: {dir}/operator.key\n  certificate: {dir}/operator.cert\n  tls_roots: {dir}/tls.pem\n  \
             relay: {{ domain: r.example, address: \"127.0.0.1:9\", gateway_key: \"{}\" }}\n",
            keys[0],
            keys[1],
            "07".repeat(32),
        );
        let file = folder.join("core.yaml");
        fs::write(&file, yaml).unwrap();
        file.display().to_string()
    }
}

/// Output of `settle`, and the sentence with which it fails.
fn settle(config: &str) -> (String, String) {
    let output = broker(&["settle", "-c", config]);
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    let failed = if output.status.success() { String::new() } else { text(output.stderr) };
    (text(output.stdout), failed)
}

#[test] // chapter 4.4.5, "claiming phase"
fn sessions_that_a_core_reported_are_paid_once_and_leave_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut reported = Reported::start(folder, &[1, 2, 3]);
    let config = reported.core(folder);
    let sessions = SessionFile::new(folder.join("core.claims"));
    // The fourth is in no table yet.
    sessions.add(&[1, 2, 3, 4].map(|n| session(n).line()).concat()).unwrap();
    let none = "settled periods: 0; paid claims: 0, 0 MB; refused claims: 0; unpaid sessions:";
    assert_eq!(settle(&config), (format!("{none} 4\n"), String::new()), "no period is closed");
    reported.close_period();
    let settled = "settled periods: 1; paid claims: 1, 6 MB; refused claims: 0; unpaid sessions: 1\n";
    assert_eq!(settle(&config), (settled.into(), String::new()));
    assert_eq!(sessions.sessions().unwrap(), [session(4)]);
    assert_eq!(reported.paid(), [(0, 1, 1 + 2 + 3)]);
    assert_eq!(settle(&config), (format!("{none} 1\n"), String::new()), "the period is settled");
    assert_eq!(reported.paid(), [(0, 1, 6)]);
}

#[test]
fn a_settlement_that_cannot_be_made_says_why_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = Reported::start(folder, &[1]).core(folder);
    let lock = fs::File::create(folder.join("core.settle.lock")).unwrap();
    lock.lock().unwrap();
    let (_, failed) = settle(&config);
    assert!(failed.contains("another `whimbrel-broker settle` has "), "{failed}");
    drop(lock);
    let (_, failed) = settle(&config);
    assert!(failed.contains("no connection to 127.0.0.1:"), "the broker has stopped: {failed}");
    let other = folder.join("other.yaml");
    fs::write(&other, "plmn: 001/01\n").unwrap();
    let (_, failed) = settle(&other.display().to_string());
    assert!(
        failed.contains("other.yaml: the core serves no veiled UEs: `veil.broker` is missing"),
        "{failed}"
    );
}
