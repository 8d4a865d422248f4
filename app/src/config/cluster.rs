//! CPFs as processes of their own: where they come to, and how many hold a UE's state; and the CTA's CTA replica.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_etcd::Access;
use whimbrel_ids::Tac;
use whimbrel_resilience::LogLimits;
use whimbrel_resilience::detector::Timing;
use whimbrel_resilience::membership::Configuration;
use whimbrel_resilience::region::{Areas, Region, Regions};

use super::section::Section;

/// Whether UEs are served by other processes, and how these are treated.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// `None`: UEs are served in this process.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) region: Region,
    pub(crate) neighbours: Vec<Region>,
    /// The gNBs that are in other regions than the CTA's own.
    pub(crate) areas: Areas,
    pub(crate) backups: u8,
    /// How long a log waits for a backup that does not say that it holds the UE's state.
    pub(crate) outdated_after: Duration,
    /// MiB of messages that are kept for all UEs.
    pub(crate) log_mib: u32,
    pub(crate) heartbeat: Timing,
    /// `None`: the CTA has no CTA replica.
    pub(crate) pair: Option<PairOf>,
}

/// The pair of CTAs of which this is one.
#[derive(Clone, Debug)]
pub(crate) struct PairOf {
    /// The witness.
    pub(crate) etcd: Access,
    /// Name of the cluster at etcd.
    pub(crate) name: String,
    /// Which of the CTAs this is.
    pub(crate) number: u16,
    /// The UEs that the pair serves: those of one home.
    pub(crate) home: u16,
    /// How long it is listed without being heard by etcd.
    pub(crate) lease: Duration,
}

impl Cluster {
    /// The regions of the cluster. They make a map: that was checked when the configuration was read.
    pub(crate) fn regions(&self) -> impl Iterator<Item = Region> {
        std::iter::once(&self.region).chain(&self.neighbours).cloned()
    }

    /// With what is decided for the whole cluster in place of what is said here. Errors: one sentence, where both do not fit together.
    pub(crate) fn under(&self, decided: &Configuration) -> Result<Self, String> {
        let mut cluster = self.clone();
        if let Some(regions) = &decided.regions {
            cluster.neighbours = regions.iter().filter(|at| **at != self.region).cloned().collect();
        }
        cluster.areas = decided.areas.clone().unwrap_or(cluster.areas);
        cluster.backups = decided.backups.unwrap_or(cluster.backups);
        cluster.heartbeat = decided.heartbeat.unwrap_or(cluster.heartbeat);
        Regions::new(cluster.regions()).map_err(|e| format!("`regions`: {e}"))?;
        let is_known = |at: &&Region| cluster.regions().any(|known| known == **at);
        if let Some(at) = cluster.areas.regions().find(|at| !is_known(at)) {
            return Err(format!("`areas`: there is no region {at}: name it in `regions`"));
        }
        Ok(cluster)
    }

    /// What the CTA keeps of UEs' logs.
    pub(crate) fn logs(&self) -> LogLimits {
        LogLimits {
            outdated_after: self.outdated_after,
            octets: (self.log_mib as usize) << 20,
            ..LogLimits::default()
        }
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Cluster {
    root.section("cluster", "CPFs as processes of their own, which may die (docs/cluster.md).", |s| {
        let listen = s.optional(
            "listen",
            "127.0.0.1:7380",
            "Where CPFs (`whimbrel cpf`) come to. Without: UEs are served in this process, and register anew \
             when it dies.",
        );
        let key_file = s.optional(
            "key_file",
            "/etc/whimbrel/cluster.key",
            "File with the cluster's key, 64 hexadecimal digits, the same at each process; `openssl rand -hex 32` makes one. \
             Without: processes of one host only, at loopback addresses.",
        );
        let region: Region =
            s.value("region", "home/site".parse().expect("two names"), "This CTA's region: a geohash of the digits 0 to 3, or larger/own.");
        let neighbours: Vec<Region> =
            s.list("neighbours", vec![], "Other regions whose CPFs may come here, to hold backups, or to serve UEs there.");
        let areas = read_areas(s, &region, &neighbours);
        let backups = s.value("backups", 1u8, "How many other CPFs hold each UE's state.");
        let outdated_after = s.value(
            "outdated_after",
            LogLimits::default().outdated_after,
            "A backup that has not got a UE's state for so long is told that what it holds is outdated, if another one has the state: 1 s \
             to 1 h.",
        );
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&outdated_after) {
            s.refuse("outdated_after", "a procedure takes seconds, and a log is not kept for days", "write 1s to 1h");
        }
        let log_mib = s.value("log_mib", 512u32, "MiB of messages that are kept until UEs' backups need them no more: 1 to 65,536.");
        if !(1..=65_536).contains(&log_mib) {
            s.refuse("log_mib", format!("{log_mib} is out of bounds"), "write 1 to 65536");
        }
        let interval = s.value(
            "heartbeat_interval",
            Duration::from_millis(20),
            "Between two heartbeats to a CPF: 20 ms to 1 s.",
        );
        let misses = s.value("heartbeat_misses", 3u8, "After so many without an answer it is taken for dead: 2 to 16.");
        let experiment = s.value(
            "heartbeat_experiment",
            false,
            "Heartbeats may follow each other after 1 ms, and one be enough, at which those who live are taken for dead now and then.",
        );
        let etcd: Vec<String> = s.list(
            "etcd",
            vec![],
            "Where etcd is reached, such as https://192.0.2.9:2379: with it, this CTA and another one are a pair, of which one serves \
             and the other CTA replicas it. Without: UEs register anew when the CTA dies.",
        );
        let ca_file: Option<PathBuf> = s.optional(
            "etcd_ca_file",
            "/etc/whimbrel/etcd-ca.pem",
            "The certificates of who vouches for etcd's, as PEM: for https://.",
        );
        let certificate_file: Option<PathBuf> = s.optional(
            "etcd_certificate_file",
            "/etc/whimbrel/etcd-client.pem",
            "This CTA's certificate, as PEM: where etcd wants to see one.",
        );
        let certificate_key_file: Option<PathBuf> =
            s.optional("etcd_certificate_key_file", "/etc/whimbrel/etcd-client.key", "The certificate's key, as PEM.");
        let user: Option<String> =
            s.optional("etcd_user", "whimbrel", "The user at etcd, where it has users.");
        let password_file: Option<PathBuf> =
            s.optional("etcd_password_file", "/etc/whimbrel/etcd.password", "File with the user's password.");
        let number = s.optional("cta", "1", "Which of the CTAs at etcd this is: 1 to 65535, each its own.");
        let name = s.value("name", "whimbrel".to_owned(), "The cluster's name at etcd.");
        let home = s.value("home", 1u16, "The UEs that this pair of CTAs serves; another pair has another number.");
        let lease = s.value("lease", Duration::from_secs(5), "How long a CTA stays listed that etcd does not hear: 5 s to 1 h.");
        if certificate_file.is_some() != certificate_key_file.is_some() {
            s.refuse("etcd_certificate_file", "a certificate and its key belong together", "name both files, or none");
        }
        if user.is_some() != password_file.is_some() {
            s.refuse("etcd_user", "a user and a password belong together", "write `etcd_user` and `etcd_password_file`, or neither");
        }
        if ca_file.is_none() && etcd.iter().any(|at| at.starts_with("https://")) {
            s.refuse("etcd", "nothing says who vouches for etcd's certificate", "write `etcd_ca_file`");
        }
        if etcd.is_empty() && number.is_some() {
            s.refuse("cta", "a number means nothing without etcd", "name etcd in `cluster.etcd`, or leave the number out");
        }
        if !etcd.is_empty() {
            if listen.is_none() {
                s.refuse("etcd", "a CTA replica serves CPFs that outlive the CTA, and none can come", "write `listen`");
            }
            if number.is_none_or(|n: u16| n == 0) {
                s.refuse("etcd", "nothing says which of the two CTAs this is", "write `cta: 1` here and `cta: 2` at the other");
            }
            if name.is_empty() || name.contains('/') {
                s.refuse("name", "a name at etcd is not empty and has no `/`", "write a word");
            }
            if !(Duration::from_secs(5)..=Duration::from_secs(3600)).contains(&lease) {
                s.refuse("lease", "an election at etcd takes two seconds, and a day is no lease", "write 5s to 1h");
            }
        }
        let etcd = Access {
            endpoints: etcd,
            ca_file,
            certificate: certificate_file.zip(certificate_key_file),
            user: user.zip(password_file),
        };
        let pair = number.filter(|_| !etcd.endpoints.is_empty()).map(|number| PairOf { etcd, name, number, home, lease });
        let most = Configuration::BACKUPS_MAX;
        if backups > most {
            s.refuse("backups", format!("{backups} backups of a UE are of no use"), format!("write 0 to {most}"));
        }
        let of = if experiment { Timing::experiment } else { Timing::new };
        let heartbeat = of(interval, misses).unwrap_or_else(|e| {
            s.refuse("heartbeat_interval", e.to_string(), "write values in these bounds");
            Timing::default()
        });
        if let Err(e) = Regions::new(std::iter::once(&region).chain(&neighbours).cloned()) {
            s.refuse("neighbours", e.to_string(), "name each region once");
        }
        Cluster { listen, key_file, region, neighbours, areas, backups, outdated_after, log_mib, heartbeat, pair }
    })
}

fn read_areas(cluster: &mut Section<'_, '_>, region: &Region, neighbours: &[Region]) -> Areas {
    let doc = "gNBs of this CTA that are in other regions than its own: each item has `region`, one of `neighbours`, and `tacs` or `gnbs`. \
               UEs there are served by that region's CPFs, and a handover between regions takes their state along.";
    let mut areas = Areas::default();
    cluster.sections("areas", 0, doc, |s, _| {
        let at: Region = s.value("region", region.clone(), "Which region these are in.");
        let tacs: Vec<Tac> = s.list("tacs", vec![], "Tracking areas: of gNBs that are not named themselves.");
        let gnbs: Vec<u32> =
            s.list("gnbs", vec![], "gNBs, by their identifiers within the network, as decimal numbers.");
        if at != *region && !neighbours.contains(&at) {
            s.refuse("region", format!("no CPF of the region {at} may come here"), "name it in `neighbours`");
        }
        if tacs.is_empty() && gnbs.is_empty() {
            s.refuse("region", "no gNB is said to be there", "write `tacs` or `gnbs`");
        }
        if let Err(e) = areas.add(&at, gnbs, tacs) {
            s.refuse("region", e.to_string(), "name each gNB and tracking area once");
        }
    });
    areas
}
