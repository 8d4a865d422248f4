//! A cluster: CPFs as processes of their own, the replicas of UEs, and the pair of CTAs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_etcd::EtcdAccess;
use whimbrel_ids::{SNssai, Tac};
use whimbrel_resilience::LogLimits;
use whimbrel_resilience::detector::Timing;
use whimbrel_resilience::membership::Configuration;
use whimbrel_resilience::region::{GnbRegions, Region, Regions};

use super::sbfd::ProbingConfig;
use super::section::Section;

/// Lease of a CTA's record at etcd, which ends if etcd is not reached for this long. An election there takes two seconds, and a killed CTA
/// stays listed until its lease ends.
const CTA_LEASE: Duration = Duration::from_secs(5);

/// The cluster, if UEs are served by processes of their own.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// `None`: UEs are served in this process.
    pub listen: Option<SocketAddr>,
    pub key_file: Option<PathBuf>,
    pub region: Region,
    pub other_regions: Vec<Region>,
    /// The gNBs that are in other regions than the CTA.
    pub areas: GnbRegions,
    pub replicas: u8,
    /// Slices whose UEs have CPFs of their own, in order of preference.
    pub slices: Vec<SNssai>,
    /// Most MiB of all UEs' logs.
    pub log_mib: u32,
    pub heartbeat: Timing,
    /// Whether, and how, members are probed by S-BFD beside heartbeats: `sbfd`.
    pub sbfd: Option<ProbingConfig>,
    /// `None`: the CTA has no replica.
    pub pair: Option<PairOf>,
}

/// The pair of CTAs that this one belongs to.
#[derive(Clone, Debug)]
pub struct PairOf {
    /// Etcd, the witness.
    pub etcd: EtcdAccess,
    /// Name of the cluster at etcd.
    pub name: String,
    /// Number of this CTA.
    pub number: u16,
    /// Number of the pair.
    pub home: u16,
    /// Lease of its record at etcd.
    pub lease: Duration,
    /// Both CTAs are processes of one unit: what they share.
    pub host: Option<SharedHost>,
}

/// What two CTAs of one host share beside the subscriber store, the API's address and the SMF's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedHost {
    /// They have one SCTP endpoint, one after the other.
    pub shares_n2: bool,
    /// The number of the UPF of this host among `upfs`.
    pub upf: Option<u8>,
}

impl Cluster {
    /// The regions of the cluster; [`read`] has checked that they form a map.
    pub fn regions(&self) -> impl Iterator<Item = Region> {
        std::iter::once(&self.region).chain(&self.other_regions).cloned()
    }

    /// This configuration, overridden by that of the whole cluster. Errors: one sentence, if they contradict each other.
    pub fn under(&self, decided: &Configuration) -> Result<Self, String> {
        let mut cluster = self.clone();
        if let Some(regions) = &decided.regions {
            cluster.other_regions = regions.iter().filter(|at| **at != self.region).cloned().collect();
        }
        cluster.areas = decided.areas.clone().unwrap_or(cluster.areas);
        cluster.replicas = decided.backups.unwrap_or(cluster.replicas);
        cluster.heartbeat = decided.heartbeat.unwrap_or(cluster.heartbeat);
        Regions::new(cluster.regions()).map_err(|e| format!("`regions`: {e}"))?;
        let is_known = |at: &&Region| cluster.regions().any(|known| known == **at);
        if let Some(at) = cluster.areas.regions().find(|at| !is_known(at)) {
            return Err(format!("`areas`: there is no region {at}: name it in `regions`"));
        }
        Ok(cluster)
    }

    /// What this CTA shares with the other one of its unit.
    pub fn host(&self) -> Option<SharedHost> {
        self.pair.as_ref()?.host
    }

    /// Bounds of the UEs' logs at the CTA.
    pub fn logs(&self) -> LogLimits {
        LogLimits { octets: (self.log_mib as usize) << 20, ..LogLimits::default() }
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Cluster {
    root.section("cluster", "A cluster, in which processes serve UEs and may be lost (docs/cluster.md).", |s| {
        let listen = s.optional(
            "listen",
            "127.0.0.1:7380",
            "Address and port that CPFs (`whimbrel cpf`) connect to. Without it, this process serves the UEs itself, and they register again \
             when it dies.",
        );
        let key_file = s.optional(
            "key_file",
            "/etc/whimbrel/cluster.key",
            "File with the cluster's key, 64 hexadecimal digits, the same for all processes; `openssl rand -hex 32` makes one. \
             Without it, only processes of this host can connect, at loopback addresses.",
        );
        let region: Region =
            s.value("region", "home/site".parse().expect("two names"), "Region of this CTA: a geohash of the digits 0 to 3, or LARGER/OWN.");
        let other_regions: Vec<Region> =
            s.list("other_regions", vec![], "Other regions whose CPFs may connect, to hold replicas or to serve UEs of these regions.");
        let areas = read_areas(s, &region, &other_regions);
        let replicas = s.value("replicas", 1u8, "Replicas of each UE, at other CPFs than its primary.");
        let slices: Vec<SNssai> = s.list(
            "slices",
            vec![],
            "Slices whose UEs are served by CPFs of their own (`whimbrel cpf --slice`, `unit.slice_cpfs`), in order of preference: a UE \
             is for the first one that its subscriber has.",
        );
        let log_mib = s.value("log_mib", 512u32, "MiB of all UEs' logs together, which are kept until the replicas have confirmed a checkpoint: 1 to 65,536.");
        s.bound("log_mib", (1..=65_536).contains(&log_mib), format!("{log_mib} is out of bounds"), "1 to 65536");
        let interval = s.value(
            "heartbeat_interval",
            Duration::from_millis(20),
            "Time between two heartbeats to a CPF: 20 ms to 1 s.",
        );
        let misses = s.value("heartbeat_misses", 3u8, "A CPF is declared lost after this many heartbeats in a row without an answer: 2 to 16.");
        #[cfg(any(test, feature = "bench"))]
        let experiment = s.value(
            "heartbeat_experiment",
            false,
            "Permits an interval of 1 ms and a single miss, with which live CPFs are declared lost now and then. For measurements.",
        );
        let etcd: Vec<String> = s.list(
            "etcd",
            vec![],
            "URLs of etcd, such as https://192.0.2.9:2379. With it, this CTA and another one are a pair: one serves, and the other is its \
             replica. Without it, UEs register again when the CTA dies.",
        );
        let ca_file: Option<PathBuf> = s.optional(
            "etcd_ca_file",
            "/etc/whimbrel/etcd-ca.pem",
            "CA certificates that etcd's certificate is verified with, as PEM; needed for https://.",
        );
        let certificate_file: Option<PathBuf> = s.optional(
            "etcd_certificate_file",
            "/etc/whimbrel/etcd-client.pem",
            "Client certificate of this CTA, as PEM, if etcd requires one.",
        );
        let certificate_key_file: Option<PathBuf> =
            s.optional("etcd_certificate_key_file", "/etc/whimbrel/etcd-client.key", "Private key of the client certificate, as PEM.");
        let user: Option<String> =
            s.optional("etcd_user", "whimbrel", "User name at etcd, if it has users.");
        let password_file: Option<PathBuf> =
            s.optional("etcd_password_file", "/etc/whimbrel/etcd.password", "File with that user's password.");
        let number = s.optional("cta", "1", "Number of this CTA, 1 to 65535, unique in the cluster.");
        let name = s.value("name", "whimbrel".to_owned(), "Name of the cluster at etcd.");
        let home = s.value("home", 1u16, "Number of this pair of CTAs; each pair serves UEs of its own.");
        if certificate_file.is_some() != certificate_key_file.is_some() {
            s.refuse("etcd_certificate_file", "a certificate needs its key", "name both files, or none");
        }
        if user.is_some() != password_file.is_some() {
            s.refuse("etcd_user", "a user needs a password", "write `etcd_user` and `etcd_password_file`, or neither");
        }
        if ca_file.is_none() && etcd.iter().any(|at| at.starts_with("https://")) {
            s.refuse("etcd", "etcd's certificate cannot be verified", "write `etcd_ca_file`");
        }
        if etcd.is_empty() && number.is_some() {
            s.refuse("cta", "a CTA's number has no meaning without etcd", "write `cluster.etcd`, or leave the number out");
        }
        if !etcd.is_empty() {
            if listen.is_none() {
                s.refuse("etcd", "a pair of CTAs needs CPFs, and none can connect", "write `listen`");
            }
            if number.is_none_or(|n: u16| n == 0) {
                s.refuse("etcd", "the number of this CTA is missing", "write `cta: 1` here and `cta: 2` at the other");
            }
            if name.is_empty() || name.contains('/') {
                s.refuse("name", "a name at etcd must not be empty or contain `/`", "write a word");
            }
        }
        let etcd = EtcdAccess {
            endpoints: etcd,
            ca_file,
            certificate: certificate_file.zip(certificate_key_file),
            user: user.zip(password_file),
            local: None,
        };
        let pair = number.filter(|_| !etcd.endpoints.is_empty()).map(|number| PairOf { etcd, name, number, home, lease: CTA_LEASE, host: None });
        let most = Configuration::BACKUPS_MAX;
        let what = format!("{replicas} replicas of a UE are of no use");
        s.bound("replicas", replicas <= most, what, format!("0 to {most}"));
        let heartbeat = Timing::new(interval, misses);
        #[cfg(any(test, feature = "bench"))]
        let heartbeat = if experiment { Timing::experiment(interval, misses) } else { heartbeat };
        let heartbeat = heartbeat.unwrap_or_else(|e| {
            s.refuse("heartbeat_interval", e.to_string(), "write values in these bounds");
            Timing::default()
        });
        if let Err(e) = Regions::new(std::iter::once(&region).chain(&other_regions).cloned()) {
            s.refuse("other_regions", e.to_string(), "name each region once");
        }
        Cluster { listen, key_file, region, other_regions, areas, replicas, slices, log_mib, heartbeat, sbfd: None, pair }
    })
}

fn read_areas(cluster: &mut Section<'_, '_>, region: &Region, other_regions: &[Region]) -> GnbRegions {
    let doc = "gNBs of this CTA that are in other regions: each item has `region`, one of `other_regions`, and `tacs` or `gnbs`. \
               UEs there are served by that region's CPFs, and a handover between regions moves their state.";
    let mut areas = GnbRegions::default();
    cluster.sections("areas", 0, doc, |s, _| {
        let at: Region = s.value("region", region.clone(), "Region of these gNBs.");
        let tacs: Vec<Tac> =
            s.list("tacs", vec![], "Tracking area codes, for gNBs that are not listed in `gnbs`.");
        let gnbs: Vec<u32> = s.list("gnbs", vec![], "gNB IDs, as decimal numbers.");
        if at != *region && !other_regions.contains(&at) {
            s.refuse(
                "region",
                format!("CPFs of the region {at} may not connect"),
                "name it in `other_regions`",
            );
        }
        if tacs.is_empty() && gnbs.is_empty() {
            s.refuse("region", "it lists no gNB", "write `tacs` or `gnbs`");
        }
        if let Err(e) = areas.add(&at, gnbs, tacs) {
            s.refuse("region", e.to_string(), "name each gNB and tracking area once");
        }
    });
    areas
}
