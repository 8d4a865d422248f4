//! The configuration: one YAML file. Every key is optional, every default documented, every error reported with its line and fix.
//!
//! [`load`] returns the typed configuration or all problems at once; [`defaults`] prints the same keys as commented
//! YAML, [`operator_defaults`] those of them that an operator sets (`operator_keys.rs`). Each key is named once, in the function of its section (`amf.rs`, `data_network.rs`, …).

mod access;
mod amf;
mod audit;
pub mod broker;
mod buffering;
mod charging;
pub mod chf;
mod cluster;
mod contradictions;
mod data_network;
mod deployment;
mod detection;
mod firewall;
mod flow;
mod foresight;
mod gnb_positions;
mod handover;
mod home_network_key;
mod interfaces;
pub mod isolation;
mod limits;
mod memory;
pub mod open;
mod operator_keys;
mod overload;
mod packet_logger;
mod peer_amfs;
mod pools;
pub mod problem;
mod reference;
mod refusals;
mod removed_keys;
mod router_link;
mod sbfd;
pub mod sbi;
pub mod secrets;
mod section;
mod service;
mod time_zone;
mod timers;
pub mod typed;
mod unit;
mod upf;
pub mod value;
pub mod veil;
pub mod yaml;
pub mod yaml_types;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use whimbrel_control::refusal::RefusalKind;
use whimbrel_ids::FiveQi;
use whimbrel_user::{Applications, Buffering, GuaranteedRates, SliceRate};

pub use audit::{Audit, Mirror};
pub use cluster::{Cluster, PairOf, SharedHost};
pub use data_network::{DataNetworkConfig, LadnLeaving, Protection, ReservedPool};
pub use deployment::{CoreCommand, Deployment};
pub use foresight::MODEL_OCTETS_MAX;
pub use gnb_positions::GnbPosition;
pub use home_network_key::{HomeNetworkKey, Scheme};
pub use interfaces::{IoChoice, N2, N3, N4, N6, SctpChoice};
pub use limits::Limits;
pub use memory::{MemoryConfig, MemoryOptions, SlowTier};
#[cfg(test)]
pub use peer_amfs::PeerAmfConfig;
pub use peer_amfs::PeerAmfs;
pub use refusals::{RefusalAnswer, word as refusal_word};
pub use sbfd::{ProbingConfig, ReflectorConfig, Sbfd, SbfdPeer};
pub use service::{Api, HttpEndpoint, KeepUes, Log, LogFormat, LogLevel, Otlp, SecondFactor, StoreConfig};
pub use time_zone::NetworkTimeZone;
pub use timers::Timers;
pub use unit::{CanaryBounds, Unit, conflict as unit_conflict};
pub use upf::ListedUpf;

use self::amf::Amf;
use self::problem::ConfigProblem;
use self::section::{Pass, Section};
use self::yaml::{Node, NodeValue, Position};

/// True in a build for demonstrations: with `open.overstate`, `veil.record`, `veil.allow_direct` and a
/// broker's `veil.record`. No package has these keys, because a core or a broker in service must not do what
/// they are for.
pub const HAS_DEMONSTRATION_KEYS: bool = cfg!(any(test, feature = "demonstrations"));

/// Default paths of the file; the first that exists is read.
pub const PLACES: [&str; 2] = ["whimbrel.yaml", "/etc/whimbrel/whimbrel.yaml"];
/// Most octets of a configuration file; a hundred data networks and keys need a tenth of it.
const FILE_OCTETS_MAX: u64 = 4 << 20;

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub amf: Amf,
    pub access: access::AccessConfig,
    pub timers: Timers,
    pub data_networks: Vec<DataNetworkConfig>,
    pub home_network_keys: Vec<HomeNetworkKey>,
    pub n2: N2,
    pub n3: N3,
    pub n4: N4,
    pub n6: N6,
    pub upfs: Vec<ListedUpf>,
    pub guaranteed_rates: Option<GuaranteedRates>,
    pub slice_rates: Vec<SliceRate>,
    pub detection: Applications,
    pub buffering: Buffering,
    pub cluster: Cluster,
    pub sbfd: Sbfd,
    pub unit: unit::Unit,
    pub packet_logger: packet_logger::PacketLogger,
    pub open: Option<open::Open>,
    /// Interfaces to network functions of other vendors.
    pub sbi: Option<sbi::Sbi>,
    pub chf: chf::Chf,
    pub veil: Option<veil::VeilOperatorConfig>,
    pub peer_amfs: PeerAmfs,
    pub handover: handover::Handover,
    pub foresight: foresight::Foresight,
    pub gnb_positions: Vec<GnbPosition>,
    pub markings: BTreeMap<FiveQi, u8>,
    pub downlink_data: whimbrel_control::config::Buffering,
    pub store: StoreConfig,
    pub api: Api,
    pub audit: Audit,
    pub log: Log,
    pub otlp: Otlp,
    pub limits: Limits,
    pub memory: MemoryConfig,
    pub overload: whimbrel_control::config::OverloadRule,
    pub refusals: Vec<(RefusalKind, RefusalAnswer)>,
    /// The files that it names.
    pub files: BTreeSet<PathBuf>,
    /// The kind of this process; the rest is configured for that.
    pub deployment: Deployment,
}

/// Why there is no configuration.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read: one sentence.
    File(String),
    /// The file has errors.
    Problems(PathBuf, Vec<ConfigProblem>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::File(sentence) => f.write_str(sentence),
            LoadError::Problems(file, problems) => f.write_str(problem::sentences(file, problems).trim_end()),
        }
    }
}

/// Reads the named file, or the first of [`PLACES`] that exists, or the defaults if none does.
///
/// Returns the configuration and the file that was read.
pub fn load(file: Option<&Path>) -> Result<(Config, Option<PathBuf>), LoadError> {
    let Some(file) = file.map(Path::to_path_buf).or_else(found) else {
        return parse("", Path::new("(defaults)")).map(|c| (c, None));
    };
    parse(&text_of(&file)?, &file).map(|config| (config, Some(file)))
}

/// The first of [`PLACES`] that exists.
pub fn found() -> Option<PathBuf> {
    PLACES.iter().map(PathBuf::from).find(|place| place.exists())
}

/// The store that a file names, or the default one; other keys of the file are not looked at, so that it is known also where what the
/// others name is missing.
pub fn store_of(file: Option<&Path>) -> Result<StoreConfig, LoadError> {
    let text = file.map(text_of).transpose()?.unwrap_or_default();
    parse_as(&text, file.unwrap_or(Path::new("(defaults)")), |pass, node| {
        service::store(&mut Section::root(pass, node))
    })
}

/// The file of the charging function's accounts that a file names, or the default one beside the store.
pub fn charging_file_of(file: Option<&Path>) -> Result<PathBuf, LoadError> {
    let text = file.map(text_of).transpose()?.unwrap_or_default();
    parse_as(&text, file.unwrap_or(Path::new("(defaults)")), |pass, node| {
        let mut root = Section::root(pass, node);
        let store = service::store(&mut root);
        chf::read(&mut root).path.unwrap_or_else(|| crate::api_files::charging_file(&store.path))
    })
}

/// What a configuration file says of files and secrets.
pub struct Marked {
    /// The files that it names.
    pub files: Vec<PathBuf>,
    /// Its keys and values as JSON, without comments, and with a note in place of each secret.
    pub redacted: serde_json::Value,
}

/// Reads a configuration file for its files and secrets; problems of its values do not count.
pub fn marked(file: &Path) -> Result<Marked, LoadError> {
    let text = text_of(file)?;
    let mut pass = Pass::without_files();
    let node = yaml::parse(text.trim_start_matches('\u{feff}')).map_err(|(at, what)| {
        LoadError::Problems(
            file.into(),
            vec![ConfigProblem { at, key: String::new(), what, fix: String::new() }],
        )
    })?;
    all_keys(&mut pass, &node);
    let redacted = redacted(&node, "", &pass.secrets);
    Ok(Marked { files: pass.files, redacted })
}

/// A node as JSON, its secrets replaced.
fn redacted(node: &Node, path: &str, secrets: &[String]) -> serde_json::Value {
    if secrets.iter().any(|secret| secret == path) {
        return "(removed)".into();
    }
    match &node.value {
        NodeValue::Null => serde_json::Value::Null,
        NodeValue::Text(text) => text.as_str().into(),
        NodeValue::List(items) => {
            let items = items.iter().enumerate();
            items.map(|(i, item)| redacted(item, &format!("{path}[{i}]"), secrets)).collect()
        }
        NodeValue::Map(map) => {
            let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let entries = map.iter().map(|(k, n)| (k.name.clone(), redacted(n, &below(&k.name), secrets)));
            serde_json::Value::Object(entries.collect())
        }
    }
}

/// The text of a configuration file. Errors: one sentence.
pub fn text_of(file: &Path) -> Result<String, LoadError> {
    let cannot = |why: &dyn fmt::Display| {
        let fix = "name an existing file, or no file to use the defaults (`whimbrel config` prints them)";
        LoadError::File(format!("the configuration {} cannot be read: {why}; {fix}", file.display()))
    };
    whimbrel_files::read_text(file, FILE_OCTETS_MAX).map_err(|e| cannot(&e))
}

/// Parses the text of `file`.
pub fn parse(text: &str, file: &Path) -> Result<Config, LoadError> {
    parse_as(text, file, |pass, node| {
        let config = all_keys(pass, node);
        contradictions::check(&config, pass);
        config
    })
}

/// Result of checking a configuration text that came over the API.
pub struct CheckedConfig {
    /// The configuration, without the content of files that were not opened.
    pub config: Result<Config, LoadError>,
    /// Keys whose file was not opened, since the running configuration does not name it.
    pub not_checked: Vec<String>,
}

/// Checks a text that came over the API. Its sender must not learn the content of files of this host: only files that the running
/// configuration names are opened, and no message has a secret.
pub fn check(text: &str, file: &Path, running: &Config) -> CheckedConfig {
    let text = text.trim_start_matches('\u{feff}');
    let refused = |problems| LoadError::Problems(file.to_path_buf(), problems);
    let node = match yaml::parse(text) {
        Ok(node) => node,
        Err((at, what)) => {
            let problem = ConfigProblem { at, key: String::new(), what, fix: String::new() };
            return CheckedConfig { config: Err(refused(vec![problem])), not_checked: Vec::new() };
        }
    };
    let mut pass = Pass::opening_only(running.files.clone());
    let config = all_keys(&mut pass, &node);
    contradictions::check(&config, &mut pass);
    let Pass { mut problems, not_checked, secret_places, .. } = pass;
    let secrets: Vec<&str> = secret_places.iter().map(|(_, text)| text.as_str()).collect();
    problems.iter_mut().for_each(|problem| problem.mask(&secrets));
    let config = if problems.is_empty() { Ok(config) } else { Err(refused(problems)) };
    CheckedConfig { config, not_checked }
}

/// Reads a text that stood in `file`, by the function that knows its keys.
fn parse_as<T>(text: &str, file: &Path, read: impl FnOnce(&mut Pass, &Node) -> T) -> Result<T, LoadError> {
    let refused = |problems| LoadError::Problems(file.to_path_buf(), problems);
    let text = text.trim_start_matches('\u{feff}');
    let node = yaml::parse(text).map_err(|(at, what)| {
        refused(vec![ConfigProblem { at, key: String::new(), what, fix: String::new() }])
    })?;
    let mut pass = Pass::default();
    let value = read(&mut pass, &node);
    if pass.problems.is_empty() { Ok(value) } else { Err(refused(pass.problems)) }
}

/// A new version of a running configuration.
pub struct ReloadedConfig {
    /// It, with the former values of keys that need a restart.
    pub config: Config,
    /// The keys whose change needs a restart.
    pub kept: Vec<String>,
}

/// Reloads the configuration. Keys on which UE identities, sockets and pools depend keep their values until the next start.
pub fn reload(running: &Config, file: Option<&Path>) -> Result<ReloadedConfig, String> {
    let (config, _) = load(file).map_err(|e| e.to_string())?;
    Ok(in_place_of(running, config))
}

/// A configuration in place of the running one, as far as that is possible without a restart.
pub fn in_place_of(running: &Config, mut config: Config) -> ReloadedConfig {
    config = config.deployed_as(running.deployment.clone());
    // Of N2 only its list of gNBs can change.
    let gnbs = std::mem::replace(&mut config.n2.gnbs, running.n2.gnbs.clone());
    let mut kept = Vec::new();
    macro_rules! keep {
        ($($key:literal $($field:ident).+),* $(,)?) => {$(
            if format!("{:?}", config.$($field).+) != format!("{:?}", running.$($field).+) {
                kept.push($key.to_string());
            }
            config.$($field).+ = running.$($field).+.clone();
        )*};
    }
    keep!(
        "plmn" amf.plmn, "amf" amf.amf_id, "data_networks" data_networks, "home_network_keys" home_network_keys,
        "n2" n2, "n3" n3, "n4" n4, "n6" n6, "upfs" upfs, "slice_rates" slice_rates, "detection" detection, "buffering" buffering,
        "cluster" cluster, "sbfd" sbfd, "foresight" foresight, "gnb_positions" gnb_positions, "unit" unit, "packet_logger" packet_logger, "open" open, "veil" veil, "sbi" sbi, "chf" chf, "store" store, "api" api, "audit" audit, "log" log,
        "otlp" otlp, "memory" memory,
    );
    config.n2.gnbs = gnbs;
    ReloadedConfig { config, kept }
}

/// The defaults of all keys as commented YAML.
pub fn defaults() -> String {
    printed(Pass::printing(), "This file has all keys with their defaults.")
}

/// The defaults of the keys that an operator sets, as commented YAML.
pub fn operator_defaults() -> String {
    let which = "This file has the keys that an operator sets, with their defaults; `whimbrel config --all` has all keys.";
    printed(Pass::printing_for_operators(), which)
}

fn printed(mut pass: Pass, which: &str) -> String {
    all_keys(&mut pass, &Node { at: Position::START, value: NodeValue::Null });
    format!(
        "# Configuration of whimbrel. Every key is optional.\n# {which}\n\
         # `whimbrel check FILE` reports the errors of a file before it is used.\n\n{}",
        pass.into_text()
    )
}

/// The reference of all keys as Markdown, `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut pass = Pass::describing();
    all_keys(&mut pass, &Node { at: Position::START, value: NodeValue::Null });
    let mut broker = Pass::describing();
    broker::all_keys(&mut broker);
    reference::page(&pass.into_reference(), &broker.into_reference())
}

/// The default configuration.
pub fn default() -> Config {
    parse("", Path::new("(defaults)")).expect("the defaults are consistent")
}

/// Every section in the order in which they are printed.
fn all_keys(pass: &mut Pass, node: &Node) -> Config {
    let mut root = Section::root(pass, node);
    let mut chf_source = sbi::ChfSource::default();
    let mut config = Config {
        amf: amf::read(&mut root),
        access: access::read(&mut root),
        timers: timers::read(&mut root),
        data_networks: data_network::read(&mut root),
        home_network_keys: home_network_key::read(&mut root),
        n2: interfaces::n2(&mut root),
        n3: interfaces::n3(&mut root),
        n4: interfaces::n4(&mut root),
        n6: interfaces::n6(&mut root),
        upfs: upf::read(&mut root),
        guaranteed_rates: upf::guaranteed_rates(&mut root),
        slice_rates: upf::slice_rates(&mut root),
        detection: detection::read(&mut root),
        buffering: buffering::read(&mut root),
        cluster: cluster::read(&mut root),
        sbfd: sbfd::read(&mut root),
        unit: unit::read(&mut root),
        packet_logger: packet_logger::read(&mut root),
        open: open::read(&mut root),
        veil: veil::read(&mut root),
        sbi: sbi::read(&mut root, &mut chf_source),
        chf: chf::read(&mut root),
        peer_amfs: peer_amfs::read(&mut root),
        handover: handover::read(&mut root),
        foresight: foresight::read(&mut root),
        gnb_positions: gnb_positions::read(&mut root),
        markings: flow::markings(&mut root),
        downlink_data: flow::downlink_data(&mut root),
        store: service::store(&mut root),
        api: service::api(&mut root),
        audit: audit::read(&mut root),
        log: service::log(&mut root),
        otlp: service::otlp(&mut root),
        limits: limits::read(&mut root),
        memory: memory::read(&mut root),
        overload: overload::read(&mut root),
        refusals: refusals::read(&mut root),
        files: BTreeSet::new(),
        deployment: Deployment::default(),
    };
    root.finish();
    config.chf.source = chf_source;
    config.files = pass.files.iter().cloned().collect();
    config.cluster.sbfd = config.sbfd.probing;
    config
}
