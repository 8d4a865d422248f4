//! The parties of the experiments: an authority, an operator, a broker with its users, a TLS certificate.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tempfile::TempDir;
use whimbrel_broker_client::client::Client;
use whimbrel_broker_client::{now, random, tls};
use whimbrel_broker_server::engine::{Engine, Entrance, EpochRule};
use whimbrel_broker_server::server::{self, Server};
use whimbrel_broker_server::storage::{NamedUser, Sqlite, Storage};
use whimbrel_ids::PlmnId;
use whimbrel_open::broker::{BrokerConfig, Policy, User};
use whimbrel_open::crypto::{PrivateKey, Seed, SigningKey, hash};
use whimbrel_open::id::{Domain, OperatorId, UserId};
use whimbrel_open::msg::{
    Certificate, EpochKey, FiveQis, Price, Qos, QosOffer, Subject, Terms, Trust, Validity,
};
use whimbrel_open::operator::Operator;
use whimbrel_open::user::UserSim;

/// Identity of the operator.
pub(super) const OPERATOR: OperatorId = OperatorId { plmn: PlmnId::TEST, nid: None };

pub(super) fn failed(e: impl ToString) -> io::Error {
    io::Error::other(e.to_string())
}

pub(super) fn seed() -> io::Result<Seed> {
    random().map(Seed::new).map_err(failed)
}

pub(super) fn domain() -> Domain {
    "broker.example".parse().expect("a domain")
}

fn key(name: &str) -> SigningKey {
    SigningKey::new(&hash(name.as_bytes()))
}

fn certificate(subject: Subject, name: &str) -> Certificate {
    let validity = Validity { from: now().as_secs() - 60, until: now().as_secs() + 86_400 };
    Certificate::issue(&key("authority"), subject, key(name).verifying_key(), validity, 1)
}

fn trust() -> Trust {
    Trust::new(vec![key("authority").verifying_key()]).expect("one authority")
}

pub(super) fn operator() -> Operator {
    let terms = Terms {
        price: Price::new(*b"EUR", 100, 200).expect("a currency"),
        qos: QosOffer {
            ul_kbps_max: 50_000,
            dl_kbps_max: 200_000,
            five_qis: FiveQis::new(&[9]).expect("one 5QI"),
        },
        report_cycle_s: 60,
    };
    let certificate = certificate(Subject::Operator(OPERATOR), "operator");
    Operator::new(certificate, key("operator"), trust(), terms).expect("the certificate is of its key")
}

/// What a broker is configured with.
pub(super) fn broker_config() -> BrokerConfig {
    BrokerConfig {
        domain: domain(),
        certificate: certificate(Subject::Broker(domain()), "broker"),
        signing: key("broker"),
        trust: trust(),
        policy: Policy {
            operators: None,
            price_cap: Price::new(*b"EUR", 1_000, 1_000).expect("a currency"),
            reputation_floor: 10,
            reputation_newcomer: 20,
            validity_s: 3_600,
            credit_micros: 5_000_000,
        },
    }
}

/// The `n`th user as the broker knows it.
pub(super) fn user(n: usize) -> NamedUser {
    let name = format!("user-{n}");
    let user = User {
        key: key(&name).verifying_key(),
        revoked: false,
        qos: Qos { ul_kbps: 10_000, dl_kbps: 50_000, five_qi: 9 },
        intercept: false,
        filters: Vec::new(),
        counter: 0,
        ticket: 0,
    };
    let mut id = [0; 16];
    id[8..].copy_from_slice(&(n as u64).to_be_bytes());
    NamedUser { name, id: UserId(id), user }
}

/// The `n`th user's SIM.
pub(super) fn sim(n: usize, epoch: EpochKey) -> UserSim {
    let NamedUser { name, id, .. } = user(n);
    let signing = key(&name);
    UserSim {
        user: id,
        broker: domain(),
        broker_key: key("broker").verifying_key(),
        epoch,
        signing,
        counter: 0,
        ticket: None,
    }
}

/// The broker's key of an epoch where there is no database.
pub(super) fn epoch_key() -> PrivateKey {
    PrivateKey::new(hash(b"epoch"))
}

/// A running broker without a listener.
pub(super) struct Broker {
    pub(super) engine: Engine,
    pub(super) epoch: EpochKey,
    _folder: TempDir,
}

impl Broker {
    /// With a database on disk, and so many users.
    pub(super) fn start(users: usize) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut storage = Sqlite::open(&folder.path().join("broker.db")).map_err(failed)?;
        let users: Vec<NamedUser> = (0..users).map(user).collect();
        storage.add_users(&users).map_err(failed)?;
        let state = storage.load(now()).map_err(failed)?;
        let current = state.epochs.last().ok_or_else(|| failed("no epoch key"))?;
        let epoch = EpochKey { id: current.id, public: current.key.share() };
        let rule = EpochRule { begin_after_s: 0, end_after_s: u64::MAX };
        let engine = Engine::start(broker_config(), false, rule, Box::new(storage)).map_err(failed)?;
        Ok(Self { engine, epoch, _folder: folder })
    }
}

/// HTTP/2 over TLS for what answers behind an entrance.
pub(super) struct Service {
    pub(super) server: Server,
    folder: TempDir,
}

impl Service {
    pub(super) fn start(entrance: Entrance) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let made = tls::self_signed(domain().as_str(), now().as_secs()).map_err(failed)?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("tls.pem"), made.certificate)?;
        std::fs::write(path("tls.key"), made.key)?;
        let tls = tls::server(&path("tls.pem"), &path("tls.key")).map_err(failed)?;
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = server::start(here, here, tls, entrance).map_err(failed)?;
        Ok(Self { server, folder })
    }

    /// A client that has no connection yet and no TLS session to resume.
    pub(super) fn client(&self) -> io::Result<Client> {
        let roots: &Path = &self.folder.path().join("tls.pem");
        Ok(Client::new(tls::client(roots).map_err(failed)?))
    }
}
