//! The configuration file of `whimbrel-broker`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;
use whimbrel_broker_client::{PORT, files, tls};
use whimbrel_ids::PlmnId;
use whimbrel_open::broker::{BrokerConfig, Home, Policy};
use whimbrel_open::id::{Domain, OperatorId};
use whimbrel_open::msg::{Price, Qos, Subject, Trust};
use whimbrel_privacy::broker::Class;
use whimbrel_security::HomeNetworkKeys;
use whimbrel_store::BitRate;

use super::open::{Currency, trust};
use super::section::{Pass, Section};
use super::value::words;
use super::veil::SignedUnder;
use super::yaml::{Node, NodeValue, Position};
use super::{HAS_DEMONSTRATION_KEYS, LoadError, Log, home_network_key, parse_as, service, text_of};

/// Where the file is looked for if none is named.
pub const PLACES: [&str; 2] = ["broker.yaml", "/etc/whimbrel/broker.yaml"];

/// Everything that a broker's operator decides.
#[derive(Debug)]
pub struct BrokerServerConfig {
    pub machine: BrokerConfig,
    /// Its home network, if it has ordinary UEs.
    pub home: Option<Home>,
    pub listed_only: bool,
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub tls: Arc<ServerConfig>,
    pub store: PathBuf,
    /// A new epoch key is made when the current one is so old; zero: by command only.
    pub epoch_begins_after: Duration,
    /// An epoch key is destroyed when it is so old.
    pub epoch_ends_after: Duration,
    pub log: Log,
    /// Veiled users, if there are any.
    pub veil: Option<VeilConfig>,
}

/// What the commands need that work on the database alone.
#[derive(Debug)]
pub struct BrokerStore {
    pub domain: Domain,
    /// The home network of its ordinary UEs.
    pub home_plmn: Option<PlmnId>,
    /// The PLMN of its veiled users.
    pub veil_plmn: Option<PlmnId>,
    /// The same private key, as it signs for them.
    pub veil_signing: whimbrel_privacy::crypto::SigningKey,
    pub store: PathBuf,
    /// The public key under which the broker signs, and the private one.
    pub key: whimbrel_open::crypto::VerifyingKey,
    pub signing: whimbrel_open::crypto::SigningKey,
    /// The file of the certificate.
    pub certificate: PathBuf,
}

/// Which operators are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operators {
    Any,
    Listed,
}

words! { Operators { Operators::Any = "any", Operators::Listed = "listed", } }

/// Reads the named file, or the first of [`PLACES`] that exists.
pub fn load(file: Option<&Path>) -> Result<BrokerServerConfig, LoadError> {
    let (text, file) = found(file)?;
    parse_as(&text, &file, |pass, node| read(pass, node, true).0)?.ok_or_else(|| missing(&file))
}

/// The same for a command that works on the database: what only the running broker needs may still be missing.
pub fn load_store(file: Option<&Path>) -> Result<BrokerStore, LoadError> {
    let (text, file) = found(file)?;
    parse_as(&text, &file, |pass, node| read(pass, node, false).1)?.ok_or_else(|| missing(&file))
}

fn missing(file: &Path) -> LoadError {
    LoadError::File(format!("{}: the broker's domain or key is missing", file.display()))
}

fn found(file: Option<&Path>) -> Result<(String, PathBuf), LoadError> {
    let place = || PLACES.iter().map(PathBuf::from).find(|place| place.exists());
    let Some(file) = file.map(Path::to_path_buf).or_else(place) else {
        return Err(LoadError::File(format!(
            "there is no broker's configuration in {}; make one with `whimbrel-broker init`, or name it with -c",
            PLACES.join(" or ")
        )));
    };
    Ok((text_of(&file)?, file))
}

/// The defaults as commented YAML.
pub fn defaults() -> String {
    let mut pass = Pass::printing();
    all_keys(&mut pass);
    format!(
        "# Configuration of a broker (docs/open.md). `whimbrel-broker init` writes one with keys and certificates.\n\n{}",
        pass.into_text()
    )
}

/// Every section, without a file.
pub(super) fn all_keys(pass: &mut Pass) {
    read(pass, &Node { at: Position::START, value: NodeValue::Null }, false);
}

fn read(pass: &mut Pass, node: &Node, runs: bool) -> (Option<BrokerServerConfig>, Option<BrokerStore>) {
    let printing = pass.is_printing();
    let mut root = Section::root(pass, node);
    let s = &mut root;
    let domain =
        s.optional::<Domain>("domain", "broker.example", "The broker's domain: the realm of its users.");
    let key_file = s.value::<PathBuf>("key_file", "broker.key".into(), "The key that signs grants.");
    let certificate = s.value::<PathBuf>(
        "certificate",
        "broker.cert".into(),
        "An authority's SAP certificate of that key and domain.",
    );
    let store = s.value::<PathBuf>(
        "store",
        "broker.db".into(),
        "The database, made at need, readable by its owner only: users, epoch keys, grants.",
    );
    let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let listen = s.value("listen", any(PORT), "Where operators connect: HTTP/2 over TLS 1.3.");
    let admin = s.section(
        "admin",
        "HTTP/1.1 with /health and /metrics. It has no login: keep it on loopback.",
        |s| s.value("address", SocketAddr::from(([127, 0, 0, 1], 8071)), "Address and TCP port."),
    );
    let tls = s.section("tls", "The certificate of the domain for TLS (X.509), and its key, in PEM.", |s| {
        let pem = s.value::<PathBuf>("certificate", "tls.pem".into(), "With the chain to its authority.");
        let key = s.value::<PathBuf>("key", "tls.key".into(), "");
        if !runs {
            return None;
        }
        let made = tls::server(&pem, &key);
        made.map_err(|e| s.refuse("certificate", e, "write the files that the TLS authority gave you")).ok()
    });
    let trust = trust(s);
    let (policy, listed_only) = policy(s);
    let home = home(s);
    let (epoch_begins_after, epoch_ends_after) =
        s.section("epochs", "Keys to which users seal their identities.", |s| {
            let days = |days: u64| Duration::from_secs(days * 86_400);
            let begin = s.value(
                "begin_after",
                days(7),
                "A new key is made when the current one is so old; 0s: by command only.",
            );
            let end = s.value(
                "end_after",
                days(60),
                "A key is destroyed when it is so old: what users seal to it opens no more.",
            );
            (begin, end)
        });
    let veil = veil(s);
    let log = service::log(s);
    if printing {
        root.finish();
        return (None, None);
    }
    let Some(domain) = domain else {
        s.refuse("domain", "the broker's domain is missing", "write, for example, `domain: broker.example`");
        root.finish();
        return (None, None);
    };
    let mut secret = [0; 32];
    let signing = match files::read_secret(&key_file) {
        Ok(octets) => {
            secret = *octets;
            Some(whimbrel_open::crypto::SigningKey::new(&octets))
        }
        Err(what) => {
            s.refuse(
                "key_file",
                what,
                "name the file that `whimbrel-broker init` or `whimbrel open key` made",
            );
            None
        }
    };
    let known = signing.as_ref().map(|key| BrokerStore {
        domain: domain.clone(),
        home_plmn: home.as_ref().map(|h| h.plmn),
        veil_plmn: veil.as_ref().map(|v| v.network),
        store: store.clone(),
        key: key.verifying_key(),
        signing: key.clone(),
        veil_signing: whimbrel_privacy::crypto::SigningKey::new(&secret),
        certificate: certificate.clone(),
    });
    let certificate = runs.then(|| files::read_certificate(&certificate));
    let certificate = match certificate {
        None => None,
        Some(Err(what)) => {
            s.refuse("certificate", what, "have an authority make it with `whimbrel open certify --broker`");
            None
        }
        Some(Ok(certificate)) => {
            let named = certificate.subject == Subject::Broker(domain.clone());
            if !named {
                s.refuse(
                    "certificate",
                    "the certificate names another broker",
                    format!("have the authority certify --broker {domain}"),
                );
            } else if signing.as_ref().is_some_and(|key| key.verifying_key() != certificate.key) {
                let fix = "have the authority certify the public key that `whimbrel-broker init` printed";
                s.refuse("certificate", "the certificate is of another key than the one in `key_file`", fix);
            }
            Some(certificate)
        }
    };
    root.finish();
    let broker =
        signing.zip(certificate).zip(tls).zip(policy).map(|(((signing, certificate), tls), policy)| {
            let veil = veil.map(|veil| veil.made((&domain, &trust, &secret), &store));
            let machine = BrokerConfig { domain, certificate, signing, trust, policy };
            BrokerServerConfig {
                machine,
                home,
                listed_only,
                listen,
                admin,
                tls,
                store,
                epoch_begins_after,
                epoch_ends_after,
                log,
                veil,
            }
        });
    (broker, known)
}

/// Veiled users, as the file has them.
struct VeiledUsersSection {
    network: PlmnId,
    operators: Vec<OperatorId>,
    class: Class,
    group: Duration,
    validity: Duration,
    slice_mb: u32,
    batches: u32,
    record: Option<PathBuf>,
    home_keys: HomeNetworkKeys,
    agencies: Vec<whimbrel_privacy::crypto::VerifyingKey>,
}

impl VeiledUsersSection {
    fn made(self, (domain, trust, secret): (&Domain, &Trust, &[u8; 32]), store: &Path) -> VeilConfig {
        let policy = whimbrel_privacy::broker::Policy {
            operators: self.operators.into_iter().collect(),
            batches_max: self.batches,
            group_s: self.group.as_secs(),
            validity_s: self.validity.as_secs(),
            slice_octets: u64::from(self.slice_mb) * 1_000_000,
            poll_s: 2,
            classes: vec![self.class],
        };
        let machine = whimbrel_privacy::broker::BrokerConfig {
            domain: domain.clone(),
            network: self.network,
            signing: whimbrel_privacy::crypto::SigningKey::new(secret),
            trust: trust.clone(),
            policy,
        };
        let Self { record, home_keys, agencies, .. } = self;
        VeilConfig { machine, store: veil_store(store), record, home_keys, agencies }
    }
}

/// Where veiled users are kept: beside the others.
pub fn veil_store(store: &Path) -> PathBuf {
    store.with_extension("veil.db")
}

/// The section `veil` of a broker's configuration.
#[derive(Debug)]
pub struct VeilConfig {
    pub machine: whimbrel_privacy::broker::BrokerConfig,
    pub store: PathBuf,
    pub record: Option<PathBuf>,
    /// Of the SUCIs of its ordinary UEs.
    pub home_keys: HomeNetworkKeys,
    /// Whose orders are passed on.
    pub agencies: Vec<whimbrel_privacy::crypto::VerifyingKey>,
}

fn veil(s: &mut Section<'_, '_>) -> Option<VeiledUsersSection> {
    let doc = "Veiled users, which operators serve without learning their identity (docs/veil.md). Served if `plmn` is given.";
    s.section("veil", doc, |s| {
        let network = s.optional::<PlmnId>("plmn", "999/72", "The broker's PLMN, which all its operators broadcast.");
        let operators = s.list::<OperatorId>("operators", vec![], "Operators that get tokens: those with a contract.");
        let rate = |bps: u64| BitRate::from_bps(bps).expect("above zero");
        let uplink = s.value("uplink", rate(10_000_000), "Session AMBR of every user: what differs would tell users apart.");
        let downlink = s.value("downlink", rate(50_000_000), "Session AMBR.");
        let kbps = |rate: BitRate| u32::try_from(rate.kbps()).unwrap_or(u32::MAX);
        let five_qi = s.value("five_qi", 9u8, "5QI of the default QoS flow (TS 23.501 §5.7.4).");
        let qos = Qos { ul_kbps: kbps(uplink), dl_kbps: kbps(downlink), five_qi };
        let group = s.value("group", Duration::from_secs(60), "How long UEs may attach in a session group, that is with one token.");
        let validity = s.value("grant_validity", Duration::from_secs(3_600), "How long a grant is valid; UEs attach again long before.");
        let slice_mb = s.value("slice_mb", 100u32, "The slice of prepaid users, in millions of octets.");
        let batches = s.value("batches", 1_000u32, "Batches of 64 tokens that an operator gets in an epoch at most.");
        let doc = "All that the broker receives, sends and stores of veiled users is appended here, to see what it learns. It holds identities: not in service.";
        let record = || s.optional::<PathBuf>("record", "/var/lib/whimbrel/broker.record", doc);
        let record = HAS_DEMONSTRATION_KEYS.then(record).flatten();
        let class = Class { qos, filters: Vec::new() };
        // The ordinary UEs of `plmn`: operators authenticate them without learning which they are.
        let home_keys = super::typed::home_network_keys(&home_network_key::read(s));
        let agencies = s.list::<SignedUnder>(
            "agencies",
            vec![],
            "Public keys of the agencies whose orders to intercept and to locate are passed on.",
        );
        let agencies = agencies.into_iter().map(|key| key.0).collect();
        let network = network?;
        Some(VeiledUsersSection { network, operators, class, group, validity, slice_mb, batches, record, home_keys, agencies })
    })
}

/// The home network of ordinary UEs.
fn home(s: &mut Section<'_, '_>) -> Option<Home> {
    let doc = "The home network of users that have a USIM in place of a key pair (docs/open.md). Served if `plmn` is given.";
    s.section("home", doc, |s| {
        let plmn = s.optional::<PlmnId>("plmn", "999/71", "The first digits of the IMSIs; operators list it in `open.homes`.");
        let credit_micros = s.value(
            "credit",
            500_000u64,
            "What is paid for a session of such a user at most, in millionths of a unit: the operator alone reports its usage.",
        );
        let keys = home_network_key::read(s);
        let plmn = plmn?;
        Some(Home { plmn, keys: super::typed::home_network_keys(&keys), credit_micros })
    })
}

fn policy(s: &mut Section<'_, '_>) -> (Option<Policy>, bool) {
    s.section("policy", "On what terms operators may serve the users.", |s| {
        let operators = s.value(
            "operators",
            Operators::Any,
            "any: every operator that an authority certifies; listed: those of `whimbrel-broker operator add`.",
        );
        let cap = s.section("price_cap", "The highest price of a MiB, in millionths of a unit of the currency.", |s| {
            let currency = s.value("currency", Currency(*b"EUR"), "ISO 4217.");
            let uplink = s.value("uplink", 1_000u32, "1000 are 1.02 EUR a GiB.");
            let downlink = s.value("downlink", 1_000u32, "");
            Price::new(currency.0, uplink, downlink)
        });
        let floor = s.value("reputation_floor", 10u16, "Operators whose reputation is below this are refused.");
        let newcomer = s.value("reputation_newcomer", 20u16, "The reputation of an operator of which nothing is known.");
        let validity = s.value("grant_validity", Duration::from_secs(24 * 3_600), "How long an operator may serve on one grant.");
        let credit_micros = s.value("credit", 5_000_000u64, "What is paid for a session at most, in millionths of a unit.");
        let policy = cap.map(|price_cap| Policy {
            operators: None,
            price_cap,
            reputation_floor: floor,
            reputation_newcomer: newcomer,
            validity_s: validity.as_secs(),
            credit_micros,
        });
        (policy, operators == Operators::Listed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_defaults_read_back_as_far_as_they_can() {
        let wrong =
            parse_as(&defaults(), Path::new("broker.yaml"), |pass, node| read(pass, node, false).1.is_some());
        let wrong = wrong.unwrap_err().to_string();
        assert_eq!(wrong.lines().count(), 1, "{wrong}");
        assert!(wrong.contains("domain: the broker's domain is missing; write"), "{wrong}");
    }

    #[test]
    fn what_a_broker_lacks_is_reported_with_its_line_and_fix() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().display();
        files::make_key(&folder.path().join("broker.key")).unwrap();
        let text = format!(
            "domain: b.example\nkey_file: {dir}/broker.key\ncertificate: {dir}/broker.cert\npolicy: {{ operator: any }}\n"
        );
        let wrong =
            parse_as(&text, Path::new("broker.yaml"), |pass, node| read(pass, node, true).0.is_some());
        let wrong = wrong.unwrap_err().to_string();
        for part in [
            "broker.yaml:3:",
            "have an authority make it",
            "broker.yaml:4:",
            "did you mean `operators`?",
            "tls.certificate",
        ] {
            assert!(wrong.contains(part), "{part}: {wrong}");
        }
    }
}
