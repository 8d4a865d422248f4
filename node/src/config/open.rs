//! Users of brokers (CellBricks, chapter 3): which are served, on what terms, and the identity of this operator towards brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_broker_client::files;
use whimbrel_control::config as control;
use whimbrel_ids::{Dnn, PlmnId, SNssai};
use whimbrel_open::crypto::VerifyingKey;
use whimbrel_open::id::{Domain, Nid, OperatorId};
use whimbrel_open::msg::{FiveQis, Price, QosOffer, Subject, Terms, Trust};
use whimbrel_open::operator::Operator;
use whimbrel_store::BitRate;

use super::section::{Pass, Section};
use super::value::{Value, plain_values};
use super::{Config, HAS_DEMONSTRATION_KEYS};

plain_values! {
    u64: "a whole number of 0 to 18446744073709551615";
    Domain: "a domain in lower case, such as broker.example";
    OperatorId: "an operator as PLMN, or PLMN and NID of 11 digits, such as 999/70 or 999/70:0000000001f";
}

/// An Ed25519 public key of 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(pub VerifyingKey);

impl Value for PublicKey {
    fn read(text: &str) -> Result<Self, String> {
        files::public_key(text).map(Self).ok_or_else(|| {
            "a public key of 64 hexadecimal digits, quoted, as `whimbrel open key` prints it".into()
        })
    }

    fn show(&self) -> String {
        format!("\"{}\"", whimbrel_broker_client::hex(&self.0.octets()))
    }
}

/// The code of a currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Currency(pub [u8; 3]);

impl Value for Currency {
    fn read(text: &str) -> Result<Self, String> {
        let code =
            text.trim().as_bytes().try_into().ok().filter(|c: &[u8; 3]| c.iter().all(u8::is_ascii_uppercase));
        code.map(Self).ok_or_else(|| "a currency of three capital letters (ISO 4217), such as EUR".into())
    }

    fn show(&self) -> String {
        self.0.iter().map(|c| char::from(*c)).collect()
    }
}

/// What the operator decides about users of brokers.
#[derive(Clone, Debug)]
pub struct Open {
    /// The operator towards brokers: certificate, key, terms and trust.
    pub operator: Operator,
    /// SAP UEs of these brokers are served; empty: of every broker that an authority certifies.
    pub brokers: Vec<Domain>,
    /// Where brokers are, in place of DNS.
    pub addresses: BTreeMap<Domain, SocketAddr>,
    /// Brokers of ordinary UEs, by the PLMN of their SIMs.
    pub homes: BTreeMap<PlmnId, Domain>,
    pub s_nssai: SNssai,
    pub dnn: Dnn,
    pub answer_within: Duration,
    /// Whose TLS certificates are trusted.
    pub tls_roots: PathBuf,
    /// Questions to brokers that UEs of one gNB may cause in a second.
    pub questions_per_gnb: u32,
    /// Brokers that have paid for a lower share of what their users were served, in per cent, are not asked.
    pub reputation_floor: u16,
    /// Per cent by which usage reports claim more than was measured.
    pub overstate: u32,
}

impl Config {
    /// Where grants, usage reports and receipts of brokers are kept: beside the store.
    pub fn open_ledger(&self) -> PathBuf {
        self.store.path.with_extension("usage.db")
    }
}

impl Open {
    pub(super) fn control(&self) -> control::Open {
        control::Open {
            nid: self.operator.id().nid,
            trust: self.operator.trust.clone(),
            terms: self.operator.terms.clone(),
            brokers: (!self.brokers.is_empty())
                .then(|| self.brokers.iter().cloned().collect::<BTreeSet<_>>()),
            homes: self.homes.clone(),
            s_nssai: self.s_nssai,
            dnn: self.dnn.clone(),
            answer_timeout: self.answer_within,
            questions_per_gnb: self.questions_per_gnb,
        }
    }
}

/// The authorities of a section and what they revoked.
pub(super) fn trust(s: &mut Section<'_, '_>) -> Trust {
    let authorities = s.list::<PublicKey>(
        "authorities",
        vec![],
        "Public keys of the authorities whose SAP certificates are believed, at most 8.",
    );
    let revoked = s.list::<u64>("revoked", vec![], "Serial numbers of certificates that they revoked.");
    let keys = authorities.iter().map(|key| key.0).collect();
    let Some(mut trust) = Trust::new(keys) else {
        s.refuse("authorities", "these are more than 8 authorities", "leave out those that are not used");
        return Trust::default();
    };
    revoked.into_iter().for_each(|serial| trust.revoke(serial));
    trust
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Option<Open> {
    let doc = "Users of brokers, without a contract with them (docs/open.md). Served if `key_file` and `certificate` are given.";
    root.section("open", doc, |s| {
        let key_file = s.optional::<PathBuf>(
            "key_file",
            "/etc/whimbrel/operator.key",
            "This operator's private key, made by `whimbrel open key`.",
        );
        let certificate = s.optional::<PathBuf>(
            "certificate",
            "/etc/whimbrel/operator.cert",
            "An authority's SAP certificate of that key and this PLMN.",
        );
        let trust = trust(s);
        let doc = "Brokers whose SAP UEs are served. Empty: every broker that an authority certifies.";
        let brokers = s.list::<Domain>("brokers", vec![], doc);
        let doc = "Where brokers are reached, in place of DNS. Each has a `broker` and an `address` with its port. Others are looked up, and \
                   reached at public addresses on port 7443 only.";
        let addresses = s.sections("addresses", 0, doc, |s, _| {
            let broker = s.optional::<Domain>("broker", "broker.example", "");
            let address = s.optional::<SocketAddr>("address", "192.0.2.7:7443", "");
            if broker.is_none() || address.is_none() {
                s.refuse("broker", "`broker` or `address` is missing", "write both");
            }
            broker.zip(address)
        });
        let doc = "Brokers of ordinary UEs. Each has the `plmn` of the SIMs and the `broker` that issued them.";
        let homes = s.sections("homes", 0, doc, |s, _| {
            let plmn = s.optional::<PlmnId>("plmn", "999/71", "");
            let broker = s.optional::<Domain>("broker", "broker.example", "");
            if plmn.is_none() || broker.is_none() {
                s.refuse("plmn", "`plmn` or `broker` is missing", "write both");
            }
            plmn.zip(broker)
        });
        let terms = terms(s);
        let s_nssai = s.value("slice", SNssai::sst(1), "Slice of users of brokers; one of `slices`.");
        let internet: Dnn = "internet".parse().expect("a DNN");
        let dnn = s.value("dnn", internet, "Data network of users of brokers.");
        let answer_within = s.value(
            "answer_within",
            control::Open::ANSWER_TIMEOUT,
            "How long a broker may take. A UE gives up after 15s (T3510, TS 24.501 Table 10.2.1).",
        );
        let tls_roots = s.value::<PathBuf>(
            "tls_roots",
            "/etc/ssl/certs/ca-certificates.crt".into(),
            "Whose TLS certificates of brokers are trusted (PEM). Debian has the public authorities in this file.",
        );
        let questions_per_gnb = s.value(
            "questions_per_gnb",
            control::Open::QUESTIONS_PER_GNB,
            "Questions to brokers per second that UEs of one gNB may cause; an attach is one or two, and a busy gNB has some ten attaches.",
        );
        let reputation_floor = s.value(
            "reputation_floor",
            50u16,
            "Brokers that pay for a lower share of what was reported, in per cent, are not asked; 0: all are.",
        );
        let overstate = if HAS_DEMONSTRATION_KEYS { overstate(s) } else { 0 };
        let (key_file, certificate) = match (key_file, certificate) {
            (Some(key_file), Some(certificate)) => (key_file, certificate),
            (None, None) => return None,
            (None, Some(_)) => {
                s.refuse("certificate", "`key_file` is missing beside it", "name the file that `whimbrel open key` made");
                return None;
            }
            (Some(_), None) => {
                s.refuse("key_file", "`certificate` is missing beside it", "name the certificate that an authority made of it");
                return None;
            }
        };
        // Both are asked: the answer names each file that was not opened.
        let (may_key, may_certificate) = (s.may_open("key_file", &key_file), s.may_open("certificate", &certificate));
        if !(may_key && may_certificate) {
            return None;
        }
        let signing = match files::read_key(&key_file) {
            Ok(key) => key,
            Err(what) => {
                s.refuse("key_file", what, "name a file that `whimbrel open key` made");
                return None;
            }
        };
        let certificate = match files::read_certificate(&certificate) {
            Ok(certificate) => certificate,
            Err(what) => {
                s.refuse("certificate", what, "name a file that `whimbrel open certify` made");
                return None;
            }
        };
        if !matches!(certificate.subject, Subject::Operator(_)) {
            s.refuse("certificate", "the certificate is not an operator's", "have the authority certify --operator");
            return None;
        }
        let Some(operator) = Operator::new(certificate, signing, trust, terms?) else {
            s.refuse(
                "certificate",
                "the certificate is of another key than the one in `key_file`",
                "have the authority certify the public key that `whimbrel open key` printed",
            );
            return None;
        };
        Some(Open {
            operator,
            brokers,
            addresses: addresses.into_iter().flatten().collect(),
            homes: homes.into_iter().flatten().collect(),
            s_nssai,
            dnn,
            answer_within,
            tls_roots,
            questions_per_gnb,
            reputation_floor,
            overstate,
        })
    })
}

/// Of builds for demonstrations alone.
fn overstate(s: &mut Section<'_, '_>) -> u32 {
    s.value(
        "overstate",
        0u32,
        "Per cent by which usage reports claim more than was measured: to see a broker find it out. 0 in service.",
    )
}

fn terms(s: &mut Section<'_, '_>) -> Option<Terms> {
    let price = s.section("price", "What a MiB costs, in millionths of a unit of the currency.", |s| {
        let currency = s.value("currency", Currency(*b"EUR"), "ISO 4217.");
        let uplink = s.value("uplink", 100u32, "100 are 0.10 EUR a GiB.");
        let downlink = s.value("downlink", 200u32, "");
        Price::new(currency.0, uplink, downlink)
    });
    let rate = |bps: u64| BitRate::from_bps(bps).expect("above zero");
    let qos = s.section("qos", "The highest QoS that is offered for one session.", |s| {
        let uplink = s.value("uplink", rate(50_000_000), "Session AMBR.");
        let downlink = s.value("downlink", rate(200_000_000), "Session AMBR.");
        let five_qis = s.list::<u8>("five_qis", vec![9], "5QIs, ascending, at most 8 (TS 23.501 §5.7.4).");
        let Some(five_qis) = FiveQis::new(&five_qis) else {
            s.refuse(
                "five_qis",
                "these are not one to eight 5QIs in ascending order",
                "write, for example, [8, 9]",
            );
            return None;
        };
        let kbps = |rate: BitRate| u32::try_from(rate.kbps()).unwrap_or(u32::MAX);
        Some(QosOffer { ul_kbps_max: kbps(uplink), dl_kbps_max: kbps(downlink), five_qis })
    });
    let cycle = s.value("report_cycle", Duration::from_secs(60), "Time between two usage reports.");
    let report_cycle_s = u16::try_from(cycle.as_secs()).unwrap_or(u16::MAX);
    Some(Terms { price: price?, qos: qos?, report_cycle_s })
}

/// What may stand alone, but contradicts the rest.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let Some(open) = &config.open else { return };
    let id = open.operator.id();
    if id.plmn != config.amf.plmn {
        let what = format!("the certificate is of {id}, and this network is {}", config.amf.plmn);
        pass.refuse("open.certificate", what, "have the authority certify this PLMN, or change `plmn`");
    }
    if !config.amf.slices.contains(&open.s_nssai) {
        pass.refuse("open.slice", "the slice is not offered", "add it to `slices`, or name one of them");
    }
    if !config.data_networks.iter().any(|n| n.dnn == open.dnn) {
        pass.refuse(
            "open.dnn",
            "there is no such data network",
            "add it to `data_networks`, or name one of them",
        );
    }
    if open.answer_within.is_zero() || open.answer_within >= Duration::from_secs(15) {
        pass.refuse(
            "open.answer_within",
            "the UE gives up before the broker may answer",
            "write less than 15s",
        );
    }
    if open.overstate > 100 {
        pass.refuse("open.overstate", "no broker takes more than twice what was measured", "write 0");
    }
    if open.homes.contains_key(&config.amf.plmn) {
        pass.refuse("open.homes", "this operator's own PLMN is listed as a broker's", "leave it out");
    }
    let nid: Option<Nid> = id.nid;
    if nid.is_some() && !open.homes.is_empty() {
        let what = "ordinary UEs of other PLMNs do not select a non-public network by NID";
        pass.refuse("open.homes", what, "leave `homes` out, or have a certificate without NID");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use whimbrel_broker_client::now;
    use whimbrel_open::crypto::SigningKey;
    use whimbrel_open::msg::{Certificate, Validity};

    use super::super::parse;
    use super::*;

    /// A folder with the key and certificate of an operator.
    fn operator(id: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let key = files::make_key(&folder.path().join("operator.key")).unwrap();
        let authority = SigningKey::new(&[7; 32]);
        let validity = Validity { from: now().as_secs() - 10, until: now().as_secs() + 3_600 };
        let subject = Subject::Operator(id.parse().unwrap());
        let certificate = Certificate::issue(&authority, subject, key.verifying_key(), validity, 1);
        files::write_public(&folder.path().join("operator.cert"), &files::certificate_text(&certificate))
            .unwrap();
        folder
    }

    fn read(folder: &Path, more: &str) -> Result<Config, String> {
        let dir = folder.display();
        let text =
            format!("open:\n  key_file: {dir}/operator.key\n  certificate: {dir}/operator.cert\n{more}");
        parse(&text, Path::new("x.yaml")).map_err(|e| e.to_string())
    }

    #[test]
    fn users_of_brokers_are_served_once_key_and_certificate_are_given() {
        assert!(crate::config::default().control().open.is_none());
        let folder = operator("999/70");
        let more =
            "  brokers: [b.example]\n  addresses: [{ broker: b.example, address: \"127.0.0.9:7443\" }]\n";
        let open = read(folder.path(), more).unwrap().control().open.unwrap();
        assert!(open.serves(&"b.example".parse().unwrap()) && !open.serves(&"c.example".parse().unwrap()));
        assert!(
            read(folder.path(), "").unwrap().control().open.unwrap().serves(&"c.example".parse().unwrap())
        );
    }

    #[test]
    fn a_contradiction_is_reported_with_its_line_and_fix() {
        let folder = operator("999/71");
        let wrong = read(folder.path(), "").unwrap_err();
        assert!(wrong.starts_with("x.yaml:3:"), "{wrong}");
        assert!(
            wrong.contains("is of 999/71, and this network is 999/70; have the authority certify"),
            "{wrong}"
        );
        let folder = operator("999/70");
        for (more, line, what) in [
            ("  slice: 9\n", 4, "not offered"),
            ("  dnn: ims\n", 4, "no such data network"),
            ("  answer_within: 15s\n", 4, "gives up before"),
            ("  homes: [{ plmn: 999/70, broker: b.example }]\n", 4, "own PLMN"),
            ("  qos:\n    five_qis: [9, 8]\n", 5, "ascending order"),
            ("  authorities: [\"00\"]\n", 4, "64 hexadecimal digits"),
        ] {
            let wrong = read(folder.path(), more).unwrap_err();
            assert!(wrong.starts_with(&format!("x.yaml:{line}:")) && wrong.contains(what), "{wrong}");
        }
        let other = operator("999/70");
        std::fs::copy(other.path().join("operator.cert"), folder.path().join("operator.cert")).unwrap();
        assert!(read(folder.path(), "").unwrap_err().contains("of another key than the one in `key_file`"));
    }
}
