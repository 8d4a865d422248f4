//! UEs that attach veiled (LOCA, chapter 4): their broker, the tokens, the way to the broker.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_broker_client::veil::TlsEndpoint;
use whimbrel_broker_client::{files, unhex};
use whimbrel_control::config as control;
use whimbrel_ids::{Dnn, SNssai};
use whimbrel_open::crypto::Share;
use whimbrel_open::id::Domain;
use whimbrel_open::msg::{Certificate, EpochKey, Subject};
use whimbrel_privacy::channel::{Kind, Permitted, permit};
use whimbrel_privacy::crypto::{SigningKey, VerifyingKey};
use whimbrel_privacy::rotation::RotationConfig;
use whimbrel_privacy::wallet::WalletConfig;

use super::section::{Pass, Section};
use super::value::Value;
use super::{Config, HAS_DEMONSTRATION_KEYS};

/// A public key of 64 hexadecimal digits, under which a broker or a witness signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignedUnder(pub(super) VerifyingKey);

impl Value for SignedUnder {
    fn read(text: &str) -> Result<Self, String> {
        let octets = unhex(text.trim()).and_then(|octets| octets.try_into().ok());
        octets
            .and_then(VerifyingKey::from_octets)
            .map(Self)
            .ok_or_else(|| "a public key of 64 hexadecimal digits, quoted".into())
    }

    fn show(&self) -> String {
        format!("\"{}\"", whimbrel_broker_client::hex(&self.0.octets()))
    }
}

/// A public key of 64 hexadecimal digits, to which requests are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SealedTo(Share);

impl Value for SealedTo {
    fn read(text: &str) -> Result<Self, String> {
        let octets = unhex(text.trim()).and_then(|octets| octets.try_into().ok());
        octets
            .map(|octets| Self(Share(octets)))
            .ok_or_else(|| "a key of 64 hexadecimal digits, quoted".into())
    }

    fn show(&self) -> String {
        format!("\"{}\"", whimbrel_broker_client::hex(&self.0.0))
    }
}

/// An agency whose orders are carried out (docs/veil.md).
#[derive(Clone, Debug)]
pub struct Agency {
    /// Under which it signs orders.
    pub key: VerifyingKey,
    /// To which answers and copies are sealed.
    pub share: Share,
    /// Where copies of intercepted sessions go, as UDP datagrams.
    pub collector: Option<SocketAddr>,
}

/// How the broker is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChannelKind(Kind);

impl Value for ChannelKind {
    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            "direct" => Ok(Self(Kind::Direct)),
            "relay" => Ok(Self(Kind::RelayPair)),
            _ => Err("relay, or direct".into()),
        }
    }

    fn show(&self) -> String {
        match self.0 {
            Kind::Direct => "direct",
            Kind::RelayPair => "relay",
            Kind::Tor => "tor",
        }
        .into()
    }
}

/// The way to the broker.
#[derive(Clone, Debug)]
pub enum BrokerRoute {
    /// The broker sees this operator's address.
    Direct(Permitted),
    /// Through a relay to a gateway with this key.
    Relay(Permitted, TlsEndpoint, EpochKey),
}

/// What the operator decides about veiled UEs.
#[derive(Clone, Debug)]
pub struct VeilOperatorConfig {
    pub broker: TlsEndpoint,
    pub broker_key: VerifyingKey,
    /// Whose signatures over the broker's log of issuing keys count.
    pub witnesses: Vec<VerifyingKey>,
    /// This operator, as it takes tokens.
    pub certificate: Certificate,
    pub signing: SigningKey,
    pub s_nssai: SNssai,
    pub dnn: Dnn,
    pub answer_within: Duration,
    pub questions_per_gnb: u32,
    /// Whether ordinary UEs of the broker are authenticated by it, hidden from this operator.
    pub ordinary_ues: bool,
    pub tls_roots: PathBuf,
    pub way: BrokerRoute,
    /// Where connections come from.
    pub source: Option<IpAddr>,
    pub wallet: WalletConfig,
    pub rotation: RotationConfig,
    /// Sessions are reported after a random time of at most this.
    pub report_delay: Duration,
    /// How often `whimbrel-broker settle --repeat` asks the broker for its next settlement period.
    pub claim_every: Duration,
    /// Where H(token) is written for the gNBs.
    pub broadcast_file: Option<PathBuf>,
    /// Where all that passes between this operator and the broker is recorded.
    pub record: Option<PathBuf>,
    /// Whose orders are carried out.
    pub agencies: Vec<Agency>,
    /// How often the broker is asked for orders, for each session group with a session.
    pub orders_every: Duration,
    /// Where this host gets the copies that UPFs make of intercepted sessions, to seal them.
    pub li_function: Option<IpAddr>,
}

impl Config {
    /// Where the tokens are kept: beside the store.
    pub fn veil_wallet(&self) -> PathBuf {
        self.store.path.with_extension("wallet")
    }

    /// Where the keys of session groups are kept for a restart, encrypted: beside the store.
    pub fn veil_groups(&self) -> PathBuf {
        self.store.path.with_extension("groups")
    }

    /// Where the secrets of reported sessions are kept, by which `whimbrel-broker settle` claims them: beside the store.
    pub fn veil_claims(&self) -> PathBuf {
        self.store.path.with_extension("claims")
    }
}

impl VeilOperatorConfig {
    pub(super) fn control(&self) -> control::VeilPolicy {
        control::VeilPolicy {
            broker: self.broker.domain.clone(),
            broker_key: self.broker_key,
            s_nssai: self.s_nssai,
            dnn: self.dnn.clone(),
            answer_timeout: self.answer_within,
            questions_per_gnb: self.questions_per_gnb,
            ordinary_ues: self.ordinary_ues,
        }
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Option<VeilOperatorConfig> {
    let doc = "Veiled UEs of a broker (docs/veil.md): this operator does not learn their identity, the broker not their place. Served if `broker` is given.";
    root.section("veil", doc, |s| {
        let broker = s.optional::<Domain>(
            "broker",
            "broker.example",
            "The broker, whose PLMN this network broadcasts.",
        );
        let address = s.optional::<SocketAddr>("address", "192.0.2.7:7443", "Where the broker is reached.");
        let broker_key = s.optional::<SignedUnder>("broker_key", "\"64 digits\"", "Under which the broker signs.");
        let witnesses = s.list::<SignedUnder>(
            "witnesses",
            vec![],
            "Public keys of the witnesses of the broker's log; more than half must have signed it.",
        );
        let key_file = s.optional::<PathBuf>(
            "key_file",
            "/etc/whimbrel/operator.key",
            "This operator's private key, made by `whimbrel open key`, under which it takes tokens.",
        );
        let certificate = s.optional::<PathBuf>(
            "certificate",
            "/etc/whimbrel/operator.cert",
            "An authority's certificate of that key.",
        );
        let s_nssai = s.value("slice", SNssai::sst(1), "Slice of veiled UEs; one of `slices`.");
        let internet: Dnn = "internet".parse().expect("a DNN");
        let dnn = s.value("dnn", internet, "Data network of veiled UEs.");
        let answer_within = s.value(
            "answer_within",
            control::Open::ANSWER_TIMEOUT,
            "How long the broker may take, with the channel. A UE gives up after 15s (T3510, TS 24.501 Table 10.2.1).",
        );
        let questions_per_gnb = s.value(
            "questions_per_gnb",
            control::Open::QUESTIONS_PER_GNB,
            "Questions to the broker per second that UEs of one gNB may cause.",
        );
        let ordinary_ues = s.value(
            "ordinary_ues",
            false,
            "Ordinary UEs of `plmn` are the broker's users: the broker authenticates them, and this operator does not learn which they are. Its own subscribers are then not served.",
        );
        let tls_roots = s.value::<PathBuf>(
            "tls_roots",
            "/etc/ssl/certs/ca-certificates.crt".into(),
            "Whose TLS certificates of the broker and the relay are trusted (PEM).",
        );
        let kind = s.value(
            "channel",
            ChannelKind(Kind::RelayPair),
            "relay: through two relays that do not collude; direct: the broker sees this operator's address.",
        );
        let doc = "Allow `channel: direct`, which hides nothing. For tests.";
        let allow_direct = HAS_DEMONSTRATION_KEYS && s.value("allow_direct", false, doc);
        let source = s.optional::<IpAddr>("source", "192.0.2.5", "Address of this host that connections to the broker and the relay come from.");
        let relay = relay(s);
        let wallet = WalletConfig {
            age_min_s: s
                .value("token_age", Duration::from_secs(WalletConfig::DEFAULT.age_min_s), "How long a token rests before it is spent.")
                .as_secs(),
            low_water: s.value("low_water", WalletConfig::DEFAULT.low_water as u32, "Tokens are taken while there are fewer.") as usize,
        };
        let rotation = RotationConfig {
            broadcast_s: s
                .value("broadcast", Duration::from_secs(RotationConfig::DEFAULT.broadcast_s), "How long a token is broadcast.")
                .as_secs()
                .max(1),
            ..RotationConfig::DEFAULT
        };
        let report_delay = s.value(
            "report_delay",
            Duration::from_secs(60),
            "A session's usage is reported after a random time of at most this, so that the broker does not learn when it ended.",
        );
        let claim_every = s.value(
            "claim_every",
            Duration::from_secs(3_600),
            "How often `whimbrel-broker settle --repeat` asks the broker for its next settlement period, of which it claims the sum of this operator's sessions.",
        );
        let broadcast_file = s.optional::<PathBuf>(
            "broadcast_file",
            "/run/whimbrel/token",
            "H(token) to broadcast, 64 hexadecimal digits, is written here for the O&M of the gNBs; empty while there is none.",
        );
        let doc = "Everything that passes between this operator and the broker is appended here, to see what is learnt by it. It holds secrets: not in service.";
        let record = || s.optional::<PathBuf>("record", "/var/lib/whimbrel/veil.record", doc);
        let record = HAS_DEMONSTRATION_KEYS.then(record).flatten();
        let agencies = agencies(s);
        let orders_every = s.value(
            "orders_every",
            Duration::from_secs(1),
            "How often the broker is asked for orders of agencies, for each session group in which a UE is served.",
        );
        let li_function = s.optional::<IpAddr>(
            "li_function",
            "192.0.2.6",
            "Address of this host at which UPFs' copies of intercepted sessions arrive in GTP-U, to be sealed to the agency. Not that of N3.",
        );
        let broker = broker?;
        let given = [
            ("address", address.is_some()),
            ("broker_key", broker_key.is_some()),
            ("key_file", key_file.is_some()),
            ("certificate", certificate.is_some()),
        ];
        for (key, _) in given.into_iter().filter(|(_, given)| !given) {
            s.refuse(key, format!("`{key}` is missing beside `broker`"), "write it, or leave `broker` out");
        }
        let (Some(address), Some(SignedUnder(broker_key)), Some(key_file), Some(certificate_file)) =
            (address, broker_key, key_file, certificate)
        else {
            return None;
        };
        if witnesses.is_empty() {
            s.refuse("witnesses", "the broker's log has no witness", "name one at least: without, the broker could mark this operator's tokens");
        }
        // Both are asked: the answer names each file that was not opened.
        let (may_key, may_certificate) = (s.may_open("key_file", &key_file), s.may_open("certificate", &certificate_file));
        if !(may_key && may_certificate) {
            return None;
        }
        let certificate = files::read_certificate(&certificate_file);
        let certificate = match certificate {
            Ok(certificate) if matches!(certificate.subject, Subject::Operator(_)) => certificate,
            Ok(_) => {
                s.refuse("certificate", "the certificate is not an operator's", "have the authority certify --operator");
                return None;
            }
            Err(what) => {
                s.refuse("certificate", what, "name a file that `whimbrel open certify` made");
                return None;
            }
        };
        let signing = match files::read_secret(&key_file) {
            Ok(octets) => SigningKey::new(&octets),
            Err(what) => {
                s.refuse("key_file", what, "name a file that `whimbrel open key` made");
                return None;
            }
        };
        if signing.verifying_key().octets() != certificate.key.octets() {
            s.refuse("certificate", "the certificate is of another key than the one in `key_file`", "have the authority certify the public key that `whimbrel open key` printed");
        }
        let permitted = match permit(kind.0, allow_direct) {
            Ok(permitted) => permitted,
            Err(why) => {
                let fix = if HAS_DEMONSTRATION_KEYS {
                    "write `channel: relay`; in a test, `allow_direct: true`"
                } else {
                    "write `channel: relay`"
                };
                s.refuse("channel", why.to_string(), fix);
                return None;
            }
        };
        let way = match (kind.0, relay) {
            (Kind::RelayPair, Some((relay, gateway))) => BrokerRoute::Relay(permitted, relay, gateway),
            (Kind::RelayPair, None) => {
                s.refuse("relay", "`relay` is missing", "name the relay's domain and address, and the gateway's key");
                return None;
            }
            (Kind::Direct | Kind::Tor, _) => BrokerRoute::Direct(permitted),
        };
        Some(VeilOperatorConfig {
            broker: TlsEndpoint { domain: broker, address },
            broker_key,
            witnesses: witnesses.into_iter().map(|w| w.0).collect(),
            certificate,
            signing,
            s_nssai,
            dnn,
            answer_within,
            questions_per_gnb,
            ordinary_ues,
            tls_roots,
            way,
            source,
            wallet,
            rotation,
            report_delay,
            claim_every: claim_every.max(Duration::from_secs(1)),
            broadcast_file,
            record,
            agencies,
            orders_every: orders_every.max(ORDERS_EVERY_MIN),
            li_function,
        })
    })
}

/// The broker is not asked for orders more often.
const ORDERS_EVERY_MIN: Duration = Duration::from_millis(100);

fn agencies(s: &mut Section<'_, '_>) -> Vec<Agency> {
    let doc = "Agencies whose orders to intercept a session, or to say where its UE is, are carried out. Each item: `key`, under which it signs; `sealed_to`, its key for answers; `collector`, where copies go.";
    let read: Vec<Option<Agency>> = s.sections("agencies", 0, doc, |s, _| {
        let key = s.optional::<SignedUnder>("key", "\"64 digits\"", "");
        let share = s.optional::<SealedTo>("sealed_to", "\"64 digits\"", "");
        let collector = s.optional::<SocketAddr>("collector", "192.0.2.9:7655", "");
        let (Some(SignedUnder(key)), Some(SealedTo(share))) = (key, share) else {
            s.refuse(
                "key",
                "an agency needs `key` and `sealed_to`",
                "write what `whimbrel-broker agency key` printed",
            );
            return None;
        };
        Some(Agency { key, share, collector })
    });
    read.into_iter().flatten().collect()
}

fn relay(s: &mut Section<'_, '_>) -> Option<(TlsEndpoint, EpochKey)> {
    let doc = "The relay that passes sealed requests on, and the key of the gateway to which they are sealed. Two parties run them that do not collude.";
    s.section("relay", doc, |s| {
        let domain = s.optional::<Domain>("domain", "relay.example", "");
        let address = s.optional::<SocketAddr>("address", "192.0.2.8:7443", "");
        let key = s.optional::<SealedTo>(
            "gateway_key",
            "\"64 digits\"",
            "As `whimbrel-broker relay key` printed it.",
        );
        let id = s.value("gateway_key_id", 1u8, "");
        let place = TlsEndpoint { domain: domain?, address: address? };
        Some((place, EpochKey { id, public: key?.0 }))
    })
}

/// What may stand alone, but contradicts the rest.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let Some(veil) = &config.veil else { return };
    if !config.amf.slices.contains(&veil.s_nssai) {
        pass.refuse("veil.slice", "the slice is not offered", "add it to `slices`, or name one of them");
    }
    if !config.data_networks.iter().any(|n| n.dnn == veil.dnn) {
        pass.refuse(
            "veil.dnn",
            "there is no such data network",
            "add it to `data_networks`, or name one of them",
        );
    }
    if veil.li_function == Some(config.n3.address) {
        pass.refuse("veil.li_function", "it is the address of N3", "name another address of this host");
    }
    if veil.answer_within.is_zero() || veil.answer_within >= Duration::from_secs(15) {
        pass.refuse(
            "veil.answer_within",
            "the UE gives up before the broker may answer",
            "write less than 15s",
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use whimbrel_broker_client::{hex, now};
    use whimbrel_open::msg::Validity;

    use super::super::parse;
    use super::*;

    /// A folder with the key and certificate of an operator.
    fn operator() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let key = files::make_key(&folder.path().join("operator.key")).unwrap();
        let authority = whimbrel_open::crypto::SigningKey::new(&[7; 32]);
        let validity = Validity { from: now().as_secs() - 10, until: now().as_secs() + 3_600 };
        let subject = Subject::Operator("999/70".parse().unwrap());
        let certificate = Certificate::issue(&authority, subject, key.verifying_key(), validity, 1);
        files::write_public(&folder.path().join("operator.cert"), &files::certificate_text(&certificate))
            .unwrap();
        folder
    }

    fn read(folder: &Path, more: &str) -> Result<Config, String> {
        let (dir, key) = (folder.display(), hex(&SigningKey::new(&[1; 32]).verifying_key().octets()));
        let text = format!(
            "veil:\n  broker: b.example\n  address: \"127.0.0.9:7443\"\n  broker_key: \"{key}\"\n  witnesses: [\"{key}\"]\n  \
             key_file: {dir}/operator.key\n  certificate: {dir}/operator.cert\n{more}"
        );
        parse(&text, Path::new("x.yaml")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_direct_channel_is_refused_unless_it_is_forced() {
        assert!(crate::config::default().veil.is_none());
        let folder = operator();
        let refused = read(folder.path(), "  channel: direct\n").unwrap_err();
        assert!(refused.contains("shows the broker the operator's address"), "{refused}");
        let forced = read(folder.path(), "  channel: direct\n  allow_direct: true\n").unwrap();
        assert!(matches!(forced.veil.as_ref().unwrap().way, BrokerRoute::Direct(_)));
        assert!(forced.control().veil.is_some());
    }

    #[test]
    fn a_relay_pair_needs_its_relay_and_its_gateways_key() {
        let folder = operator();
        let refused = read(folder.path(), "").unwrap_err();
        assert!(refused.contains("`relay` is missing"), "{refused}");
        let key = "07".repeat(32);
        let more = format!(
            "  relay: {{ domain: r.example, address: \"127.0.0.8:7443\", gateway_key: \"{key}\" }}\n"
        );
        let veil = read(folder.path(), &more).unwrap().veil.unwrap();
        let BrokerRoute::Relay(_, relay, gateway) = veil.way else { panic!("a relay") };
        assert_eq!((relay.domain.as_str(), gateway.id, gateway.public.0), ("r.example", 1, [7; 32]));
        let refused = read(folder.path(), &(more + "  dnn: ims\n")).unwrap_err();
        assert!(refused.contains("no such data network"), "{refused}");
    }
}
