//! Service-based interfaces: network functions of other vendors, and where they reach this core (TS 23.501 §7.2, TS 29.500).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_control::config::{FailureHandling, UdmFunction};
use whimbrel_control::udm::NfType;
use whimbrel_sbi_types::common::NfInstanceId;

use super::Config;
use super::section::{Pass, Section};
use super::value::{Value, words};

/// The service-based interfaces of this core.
#[derive(Clone, Debug)]
pub struct Sbi {
    /// Where other functions reach this core.
    pub address: SocketAddr,
    /// The NRF at which this core registers, and which it asks for other functions.
    pub nrf: Option<ApiRoot>,
    /// Requests carry access tokens of the NRF.
    pub access_tokens: bool,
    /// Where requests to the UDM go.
    pub udm: UdmSource,
    /// Where requests to the CHF go.
    pub chf: ChfSource,
    /// Where requests to the PCF go.
    pub pcf: PcfSource,
    /// Treatment of sessions while the PCF does not answer.
    pub pcf_failure_handling: FailureHandling,
    /// Where sessions have their SMF.
    pub smf: SmfSource,
    /// Services that this core offers to other functions.
    pub offer: Vec<OfferedService>,
    /// The NRF of this core suspends and removes instances that send no heartbeat.
    pub demand_heartbeats: bool,
    /// How long another function may take for an answer.
    pub answer_within: Duration,
    pub tls: SbiTls,
    /// Keys of NRFs, whose access tokens the services of this core demand.
    pub token_key: Option<PathBuf>,
    /// The NRF whose tokens are accepted, where it is to be one alone.
    pub token_issuer: Option<NfInstanceId>,
}

/// Certificates of TLS.
#[derive(Clone, Debug, Default)]
pub struct SbiTls {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Authorities whose certificates other functions have to show.
    pub authorities: Option<PathBuf>,
}

/// The API root of a function: scheme and authority (TS 29.501 §4.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRoot {
    pub tls: bool,
    /// Host and port.
    pub authority: String,
}

impl ApiRoot {
    /// The root as the beginning of a URI, without a slash at its end.
    pub fn uri(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }
}

impl Value for ApiRoot {
    fn read(text: &str) -> Result<Self, String> {
        let form = || "an API root such as http://192.0.2.7:7777 or https://nrf.example:443".to_owned();
        let (scheme, rest) = text.trim().split_once("://").ok_or_else(form)?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(form()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if rest.is_empty() || rest.len() > 260 || !rest.chars().all(plain) {
            return Err(form());
        }
        let has_port = rest.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
        });
        let authority = match (has_port, tls) {
            (true, _) => rest.to_owned(),
            (false, true) => format!("{rest}:443"),
            (false, false) => format!("{rest}:80"),
        };
        Ok(Self { tls, authority })
    }

    fn show(&self) -> String {
        self.uri()
    }
}

/// Where requests to the UDM go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UdmSource {
    /// To the subscriber store of this core.
    #[default]
    Embedded,
    /// To a UDM that the NRF names.
    Nrf,
    /// To the UDM at this API root.
    At(ApiRoot),
}

impl Value for UdmSource {
    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            "embedded" => Ok(Self::Embedded),
            "nrf" => Ok(Self::Nrf),
            other => ApiRoot::read(other)
                .map(Self::At)
                .map_err(|_| "embedded, nrf, or the API root of a UDM such as http://192.0.2.7:7777".into()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Embedded => "embedded".into(),
            Self::Nrf => "nrf".into(),
            Self::At(root) => root.show(),
        }
    }
}

/// Where requests to the charging function go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ChfSource {
    /// Nothing is charged.
    #[default]
    Off,
    /// To the charging function of this core.
    Embedded,
    /// To a CHF that the NRF names.
    Nrf,
    /// To the CHF at this API root.
    At(ApiRoot),
}

impl Value for ChfSource {
    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            "off" => Ok(Self::Off),
            "embedded" => Ok(Self::Embedded),
            "nrf" => Ok(Self::Nrf),
            other => ApiRoot::read(other).map(Self::At).map_err(|_| {
                "off, embedded, nrf, or the API root of a CHF such as http://192.0.2.9:7777".into()
            }),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "off".into(),
            Self::Embedded => "embedded".into(),
            Self::Nrf => "nrf".into(),
            Self::At(root) => root.show(),
        }
    }
}

/// Where requests to the policy control function go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PcfSource {
    /// Sessions have the policy of their data network and of the subscriber.
    #[default]
    Embedded,
    /// To a PCF that the NRF names.
    Nrf,
    /// To the PCF at this API root.
    At(ApiRoot),
}

impl Value for PcfSource {
    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            "embedded" => Ok(Self::Embedded),
            "nrf" => Ok(Self::Nrf),
            other => ApiRoot::read(other)
                .map(Self::At)
                .map_err(|_| "embedded, nrf, or the API root of a PCF such as http://192.0.2.6:7777".into()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Embedded => "embedded".into(),
            Self::Nrf => "nrf".into(),
            Self::At(root) => root.show(),
        }
    }
}

/// Where sessions have their SMF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SmfSource {
    /// In this core.
    #[default]
    Embedded,
    /// At an SMF that the NRF names.
    Nrf,
    /// At the SMF with this API root.
    At(ApiRoot),
}

impl Value for SmfSource {
    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            "embedded" => Ok(Self::Embedded),
            "nrf" => Ok(Self::Nrf),
            other => ApiRoot::read(other)
                .map(Self::At)
                .map_err(|_| "embedded, nrf, or the API root of an SMF such as http://192.0.2.5:7777".into()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Embedded => "embedded".into(),
            Self::Nrf => "nrf".into(),
            Self::At(root) => root.show(),
        }
    }
}

impl Value for NfInstanceId {
    fn read(text: &str) -> Result<Self, String> {
        Self::new(text.trim())
            .map_err(|_| "an NF instance identity such as 4947a69a-f61b-4bc1-b9da-47c9c5d14b64".into())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A function of this core that others may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedService {
    /// The UDM: Nudm_UEAuthentication, Nudm_UECM, Nudm_SDM.
    Udm,
    /// The AUSF: Nausf_UEAuthentication.
    Ausf,
    /// The PCF: Npcf_SMPolicyControl, Npcf_AMPolicyControl.
    Pcf,
    /// The NRF: Nnrf_NFManagement, Nnrf_NFDiscovery, Nnrf_AccessToken.
    Nrf,
    /// The CHF: Nchf_ConvergedCharging.
    Chf,
    /// The SMF: Nsmf_PDUSession.
    Smf,
}

words! { OfferedService {
    OfferedService::Udm = "udm",
    OfferedService::Ausf = "ausf",
    OfferedService::Pcf = "pcf",
    OfferedService::Nrf = "nrf",
    OfferedService::Chf = "chf",
    OfferedService::Smf = "smf",
} }

/// Half of the guard of a UE's request, so that one that is lost is repeated within it.
const ANSWER_WITHIN: Duration = Duration::from_millis(2_400);

/// Reads the section. `chf_source` is where requests to the CHF go, which is known without an address, too.
pub(super) fn read(root: &mut Section<'_, '_>, chf_source: &mut ChfSource) -> Option<Sbi> {
    let doc = "Service-based interfaces to network functions of other vendors (docs/sbi.md). Served if `address` is given.";
    root.section("sbi", doc, |s| {
        let address = s.optional::<SocketAddr>(
            "address",
            "192.0.2.1:7777",
            "Address and TCP port at which other functions reach this core (HTTP/2): with callbacks, and with requests to its services.",
        );
        let nrf = s.optional::<ApiRoot>(
            "nrf",
            "http://192.0.2.7:7777",
            "The NRF, at which this core registers and which it asks for other functions (TS 29.510).",
        );
        let access_tokens = s.value(
            "access_tokens",
            false,
            "Requests to functions that the NRF names carry access tokens of the NRF (OAuth 2.0, TS 33.501 §13.4.1).",
        );
        let udm = s.value(
            "udm",
            UdmSource::Embedded,
            "Where requests to the UDM go: `embedded` (the subscribers of this core), `nrf` (a UDM that the NRF names), or a UDM's API root.",
        );
        let chf = s.value(
            "chf",
            ChfSource::Off,
            "Where requests to the CHF go for data networks with `charging`: `off`, `embedded` (the charging function of this core), `nrf` (a CHF that the \
             NRF names), or a CHF's API root.",
        );
        let pcf = s.value(
            "pcf",
            PcfSource::Embedded,
            "Where requests to the PCF go: `embedded` (flows of the data network and the subscriber), `nrf` (a PCF that the NRF names), or a PCF's API root.",
        );
        let pcf_failure_handling = s.value(
            "pcf_failure_handling",
            FailureHandling::Continue,
            "While the PCF does not answer: `continue` (sessions begin with the flows of their data network and subscriber), or `terminate` (no session begins).",
        );
        let smf = s.value(
            "smf",
            SmfSource::Embedded,
            "Where sessions have their SMF: `embedded` (in this core), `nrf` (an SMF that the NRF names), or an SMF's API root (TS 29.502).",
        );
        chf_source.clone_from(&chf);
        let offer = s.list::<OfferedService>(
            "offer",
            vec![],
            "Services of this core for the functions of other vendors: over its subscribers `udm` (TS 29.503), `ausf` (TS 29.509) and `pcf` (TS 29.512, TS 29.507); `chf` (TS 32.291); `smf` (TS 29.502); `nrf` (TS 29.510), at which its own functions register too if `sbi.nrf` is not given.",
        );
        let demand_heartbeats = s.value(
            "demand_heartbeats",
            true,
            "The NRF of this core suspends instances that send no heartbeats, and then removes them (TS 29.510 §5.2.2.3.2). `false`: instances that have never sent one stay until they deregister, as free5GC's functions need it.",
        );
        let answer_within = s.value(
            "answer_within",
            ANSWER_WITHIN,
            "How long another function may take. A UE's request is repeated once, after half of `timers.guard`.",
        );
        let doc = "TLS of these interfaces, for roots with https. Without a certificate this core is reached in clear.";
        let tls = s.section("tls", doc, |s| SbiTls {
            certificate: s.optional("certificate", "/etc/whimbrel/sbi.pem", "This core's certificate chain (PEM)."),
            key: s.optional("key", "/etc/whimbrel/sbi.key", "Its private key (PEM)."),
            authorities: s.optional(
                "authorities",
                "/etc/whimbrel/sbi-ca.pem",
                "Authorities of other functions' certificates (PEM). With `certificate`, functions that connect must show one of theirs.",
            ),
        });
        let token_key = s.optional::<PathBuf>(
            "token_key",
            "/etc/whimbrel/nrf.pem",
            "Public keys or certificates of NRFs (PEM). With it, the services of this core are for requests with an access token that one of them signed (TS 33.501 §13.4.1.1.2).",
        );
        let token_issuer = s.optional::<NfInstanceId>(
            "token_issuer",
            "4947a69a-f61b-4bc1-b9da-47c9c5d14b64",
            "NF instance identity of the NRF whose tokens are accepted. Without it, that of no token is looked at.",
        );
        let Some(address) = address else {
            let is_remote = !matches!(chf, ChfSource::Off | ChfSource::Embedded);
            let is_used =
                udm != UdmSource::Embedded || is_remote || pcf != PcfSource::Embedded || smf != SmfSource::Embedded || !offer.is_empty();
            if nrf.is_some() || is_used {
                s.refuse("address", "other functions could not notify this core", "write the address and port at which they reach it");
            }
            return None;
        };
        Some(Sbi {
            address,
            nrf,
            access_tokens,
            udm,
            chf,
            pcf,
            pcf_failure_handling,
            smf,
            offer,
            demand_heartbeats,
            answer_within,
            tls,
            token_key,
            token_issuer,
        })
    })
}

impl Config {
    /// The UDM to which requests go.
    pub(super) fn udm_function(&self) -> UdmFunction {
        if self.has_remote_udm() || self.is_own_process(NfType::Udm) {
            UdmFunction::Remote
        } else {
            UdmFunction::Embedded
        }
    }

    /// True if registrations are those of another vendor's UDM.
    pub fn has_remote_udm(&self) -> bool {
        self.sbi.as_ref().is_some_and(|sbi| sbi.udm != UdmSource::Embedded)
    }

    /// True if sessions have another vendor's SMF.
    pub(super) fn uses_remote_smf(&self) -> bool {
        self.sbi.as_ref().is_some_and(|sbi| sbi.smf != SmfSource::Embedded)
    }

    /// Treatment of sessions while the PCF does not answer; `None` without a PCF.
    pub(super) fn pcf_failure_handling(&self) -> Option<FailureHandling> {
        let remote = self.sbi.as_ref().filter(|sbi| sbi.pcf != PcfSource::Embedded);
        // The policies of a PCF of this unit are those that sessions have without one.
        let own = self.is_own_process(NfType::Pcf).then_some(FailureHandling::Continue);
        remote.map(|sbi| sbi.pcf_failure_handling).or(own)
    }

    /// The key with which the NRF of this core signs access tokens: beside the store, made at the first start.
    pub fn nrf_token_key(&self) -> PathBuf {
        self.store.path.with_extension("nrf.key")
    }

    /// Its public key, for `sbi.token_key` of other producers.
    pub fn nrf_public_key(&self) -> PathBuf {
        self.store.path.with_extension("nrf.pem")
    }

    /// The instances and subscriptions of the NRF of this core, for its next start.
    pub fn nrf_state(&self) -> PathBuf {
        self.store.path.with_extension("nrf.jsonl")
    }
}

impl Sbi {
    /// The NRF of this core's own functions: the one that is named, or its own.
    pub fn nrf_root(&self) -> Option<ApiRoot> {
        let own = || ApiRoot { tls: self.tls.certificate.is_some(), authority: self.address.to_string() };
        self.nrf.clone().or_else(|| self.offer.contains(&OfferedService::Nrf).then(own))
    }

    /// The services that are offered over the subscribers of this core.
    pub fn subscriber_services(&self) -> Vec<OfferedService> {
        self.offer.iter().copied().filter(|offered| *offered != OfferedService::Nrf).collect()
    }
}

/// Reports contradictions between the keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let Some(sbi) = &config.sbi else { return };
    if sbi.udm == UdmSource::Nrf && sbi.nrf_root().is_none() {
        pass.refuse(
            "sbi.udm",
            "no NRF is named that could tell where the UDM is",
            "write `sbi.nrf`, or the API root of the UDM",
        );
    }
    if sbi.chf == ChfSource::Nrf && sbi.nrf_root().is_none() {
        pass.refuse(
            "sbi.chf",
            "no NRF is named that could say where the CHF is",
            "write `sbi.nrf`, or the API root of the CHF",
        );
    }
    if sbi.pcf == PcfSource::Nrf && sbi.nrf.is_none() {
        pass.refuse(
            "sbi.pcf",
            "no NRF is named that could say where the PCF is",
            "write `sbi.nrf`, or the API root of the PCF",
        );
    }
    if sbi.smf == SmfSource::Nrf && sbi.nrf_root().is_none() {
        pass.refuse(
            "sbi.smf",
            "no NRF is named that could say where the SMF is",
            "write `sbi.nrf`, or the API root of the SMF",
        );
    }
    if sbi.smf != SmfSource::Embedded && !config.peer_amfs.amfs.is_empty() {
        pass.refuse(
            "sbi.smf",
            "sessions of another vendor's SMF do not move to the AMFs of `peer_amfs`",
            "remove `peer_amfs`, or `sbi.smf`",
        );
    }
    if sbi.smf != SmfSource::Embedded && sbi.offer.contains(&OfferedService::Smf) {
        pass.refuse(
            "sbi.smf",
            "this core offers an SMF of its own, which its AMF would find at the NRF",
            "remove `smf` from `sbi.offer`, or `sbi.smf`",
        );
    }
    if sbi.smf != SmfSource::Embedded && config.foresight.enabled {
        pass.refuse(
            "sbi.smf",
            "another vendor's SMF would take a predicted handover for one that has begun",
            "remove `foresight.enabled`, or `sbi.smf`",
        );
    }
    let is_own_nrf = sbi.nrf.is_none() && sbi.offer.contains(&OfferedService::Nrf);
    if is_own_nrf && sbi.tls.certificate.is_some() && sbi.tls.authorities.is_none() {
        pass.refuse(
            "sbi.offer",
            "this core's own functions could not check the certificate of its NRF, at which they register",
            "write `sbi.tls.authorities`",
        );
    }
    if !sbi.demand_heartbeats && !sbi.offer.contains(&OfferedService::Nrf) {
        pass.refuse(
            "sbi.demand_heartbeats",
            "this core offers no NRF",
            "add `nrf` to `sbi.offer`, or remove the key",
        );
    }
    if sbi.token_key.is_some() && sbi.subscriber_services().is_empty() {
        pass.refuse(
            "sbi.token_key",
            "this core offers no service whose requests could carry access tokens",
            "write `sbi.offer`, or remove the key",
        );
    }
    if sbi.token_issuer.is_some() && sbi.token_key.is_none() {
        pass.refuse(
            "sbi.token_issuer",
            "no access token is checked without a key of the NRF",
            "write `sbi.token_key`, or remove the issuer",
        );
    }
    if sbi.tls.certificate.is_some() != sbi.tls.key.is_some() {
        pass.refuse("sbi.tls.key", "certificate and key belong together", "name both files, or neither");
    }
    if sbi.address.ip().is_unspecified() {
        pass.refuse(
            "sbi.address",
            "other functions cannot send callbacks to an unspecified address",
            "write the address at which they reach this host",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_root_is_a_scheme_and_an_authority() {
        let root = |text: &str| ApiRoot::read(text).map(|r| r.uri());
        assert_eq!(root("http://192.0.2.7:7777/").as_deref(), Ok("http://192.0.2.7:7777"));
        assert_eq!(root("https://nrf.example").as_deref(), Ok("https://nrf.example:443"));
        assert_eq!(root("http://[2001:db8::1]:80").as_deref(), Ok("http://[2001:db8::1]:80"));
        for wrong in ["192.0.2.7:7777", "ftp://a:1", "http://", "http://a/b", "http://a b", "http://u@h:1"] {
            assert!(root(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_own_nrf_is_that_of_the_own_functions_unless_another_is_named() {
        let read = |lines: &str| {
            let text = format!("sbi:\n  address: 192.0.2.1:7777\n{lines}");
            super::super::parse(&text, std::path::Path::new("w.yaml")).map_err(|e| e.to_string())
        };
        let root = |lines: &str| read(lines).unwrap().sbi.unwrap().nrf_root().map(|root| root.uri());
        assert_eq!(root("  offer: [udm]\n"), None);
        assert_eq!(root("  offer: [nrf]\n  udm: nrf\n").as_deref(), Some("http://192.0.2.1:7777"));
        let other = "  offer: [nrf]\n  nrf: http://192.0.2.9:7777\n";
        assert_eq!(root(other).as_deref(), Some("http://192.0.2.9:7777"));
        let tls = "  offer: [nrf]\n  tls:\n    certificate: a.pem\n    key: a.key\n";
        assert!(read(tls).unwrap_err().contains("write `sbi.tls.authorities`"));
        assert_eq!(
            root(&format!("{tls}    authorities: b.pem\n")).as_deref(),
            Some("https://192.0.2.1:7777")
        );
        assert!(read("  demand_heartbeats: false\n").unwrap_err().contains("add `nrf` to `sbi.offer`"));
        assert!(read("  offer: [nrf]\n  token_key: nrf.pem\n").unwrap_err().contains("write `sbi.offer`"));
    }

    #[test]
    fn keys_of_access_tokens_that_have_no_use_are_refused_with_their_line_and_a_fix() {
        let refused = |text: &str| {
            let read = super::super::parse(text, std::path::Path::new("w.yaml"));
            read.err().map(|e| e.to_string()).unwrap_or_default()
        };
        let with = |lines: &str| refused(&format!("sbi:\n  address: 192.0.2.1:7777\n{lines}"));
        let sentence = with("  token_key: nrf.pem\n");
        assert!(sentence.contains("w.yaml:3") && sentence.contains("write `sbi.offer`"), "{sentence}");
        let issuer = "  token_issuer: 4947a69a-f61b-4bc1-b9da-47c9c5d14b64\n";
        let sentence = with(&format!("  offer: [udm]\n{issuer}"));
        assert!(sentence.contains("w.yaml:4") && sentence.contains("write `sbi.token_key`"), "{sentence}");
        let key = "  offer: [udm]\n  token_key: nrf.pem\n";
        let sentence = with(&format!("{key}  token_issuer: nrf\n"));
        assert!(sentence.contains("w.yaml:5") && sentence.contains("an NF instance identity"), "{sentence}");
        assert_eq!(with(&format!("{key}{issuer}")), "");
    }
}
