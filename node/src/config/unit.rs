//! A unit: the functions of this host as processes under a manager (docs/unit.md).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use whimbrel_control::udm::NfType;
use whimbrel_ids::SNssai;

use super::Config;
use super::sbi::{OfferedService, PcfSource, UdmSource};
use super::section::{Pass, Section};
use super::value::words;

/// Most CPFs of one host.
const CPFS_MAX: u16 = 64;
/// CPFs of one slice.
const SLICE_CPFS_MAX: u16 = 16;
/// Processes of one network function.
const FUNCTION_INSTANCES_MAX: u16 = 4;
/// Node identity of the UPF on N4 in a unit whose UPF serves no other SMF (TS 29.244 §8.2.38), of the SMF's family. It is a name: nothing is
/// bound to it.
const UPF_IPV4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 88);
const UPF_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x88);

/// The section `unit` of the configuration.
#[derive(Clone, Debug)]
pub struct Unit {
    pub enabled: bool,
    pub directory: PathBuf,
    pub cpfs: u16,
    /// Further CPFs of each slice in `cluster.slices`.
    pub slice_cpfs: u16,
    /// Network functions that are processes of their own.
    pub functions: Vec<NfType>,
    /// Processes of each of them that may have several.
    pub function_instances: u16,
    pub canary: CanaryBounds,
    pub replica_n2_addresses: Vec<IpAddr>,
    pub upgrade_key: Option<PathBuf>,
}

words! { NfType {
    NfType::Udm = "udm",
    NfType::Pcf = "pcf",
    NfType::Chf = "chf",
    NfType::Smf = "smf",
} }

impl Unit {
    /// The network functions of a unit with these slices: so many of each kind, for the sessions of a slice or of no other.
    pub fn network_functions(&self, slices: &[SNssai]) -> Vec<(NfType, Option<SNssai>, u16)> {
        let n = self.function_instances;
        let of = |nf: &NfType| match nf {
            NfType::Udm => vec![(NfType::Udm, None, n)],
            NfType::Pcf => {
                let slices = slices.iter().map(|slice| (NfType::Pcf, Some(*slice), n));
                [(NfType::Pcf, None, n)].into_iter().chain(slices).collect()
            }
            // All requests go into one file, one transaction after the other.
            NfType::Chf => vec![(NfType::Chf, None, 1)],
            // The configuration is refused.
            NfType::Smf => Vec::new(),
        };
        self.functions.iter().flat_map(of).collect()
    }
}

/// A canary, and when it is rolled back by itself.
#[derive(Clone, Copy, Debug)]
pub struct CanaryBounds {
    /// CPFs of the new program.
    pub cpfs: u16,
    /// Percent points by which its share of failed procedures may exceed that of the others.
    pub error_margin: u8,
    /// Procedures of the new version before the shares are compared.
    pub samples: u64,
    /// CPFs that the new version may lose more than the others.
    pub deaths: u64,
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Unit {
    let doc = "A unit: CTA, its replica, CPFs and UPF as processes of this host, of which each may die (docs/unit.md).";
    root.section("unit", doc, |s| {
        let unit = Unit {
            enabled: s.value("enabled", false, "Run as a unit, as `whimbrel run --unit` does."),
            directory: s.value(
                "directory",
                "/run/whimbrel".into(),
                "Runtime directory of the manager, which only its user may read. A reboot must empty it, and a restart of the manager \
                 must not.",
            ),
            cpfs: s.value("cpfs", 2, "CPFs, 2 to 64: each UE is served by one and has its replica at another one."),
            slice_cpfs: s.value("slice_cpfs", 1, "Further CPFs for each slice in `cluster.slices`, 1 to 16."),
            functions: s.list(
                "functions",
                vec![],
                "Network functions with processes of their own: udm, pcf, chf. The CTA reaches them through shared memory. A PCF decides the policies of sessions by the \
                 flows of data network and subscriber, with one more PCF for each slice in `cluster.slices`; a CHF is that of `sbi.chf: embedded`.",
            ),
            function_instances: s.value("function_instances", 1, "Processes of each such UDM and PCF, 1 to 4: where one dies, its requests go to another one at once."),
            canary: read_canary(s),
            replica_n2_addresses: s.list(
                "replica_n2_addresses",
                vec![],
                "Addresses of this host for the second CTA, if gNBs support several SCTP endpoints of an AMF (TS 38.412 §7): they then stay \
                 connected when a CTA dies. Without them both CTAs have the endpoint of `n2.addresses`, one after the other.",
            ),
            upgrade_key: s.optional(
                "upgrade_key",
                "/etc/whimbrel/upgrade.pem",
                "File with an Ed25519 public key in PEM. If it is given, the manager runs another program than its own only with a signature of this key beside \
                 it, in PROGRAM.sig (TS 33.117 §4.2.3.3.5).",
            ),
        };
        let twice = unit.functions.iter().enumerate().any(|(n, nf)| unit.functions[..n].contains(nf));
        if twice {
            s.refuse("functions", "a function is listed twice", "list each once; `function_instances` says how many processes it has");
        }
        let what = format!("{} CPFs are too few for a replica of each UE, or too many", unit.cpfs);
        s.bound("cpfs", (2..=CPFS_MAX).contains(&unit.cpfs), what, format!("2 to {CPFS_MAX}"));
        let n = unit.function_instances;
        let what = format!("{n} processes of a function are none, or too many for one host");
        s.bound("function_instances", (1..=FUNCTION_INSTANCES_MAX).contains(&n), what, format!("1 to {FUNCTION_INSTANCES_MAX}"));
        let n = unit.slice_cpfs;
        let what = format!("{n} CPFs for each slice are none, or too many for one host");
        s.bound("slice_cpfs", (1..=SLICE_CPFS_MAX).contains(&n), what, format!("1 to {SLICE_CPFS_MAX}"));
        unit
    })
}

fn read_canary(unit: &mut Section<'_, '_>) -> CanaryBounds {
    let doc = "A canary: CPFs of a new program beside the others (`whimbrel upgrade --canary`), and when it is rolled back by itself.";
    unit.section("canary", doc, |s| {
        let bounds = CanaryBounds {
            cpfs: s.value("cpfs", 2, "CPFs of the new program, 2 to 64: each UE has its replica at one of the same code."),
            error_margin: s.value(
                "error_margin",
                2,
                "Percent points, 0 to 100, by which the new version's share of failed procedures may exceed that of the other one.",
            ),
            samples: s.value("samples", 200, "Procedures that the new version has run before these shares are compared. A small network, in which 200 take hours, needs fewer."),
            deaths: s.value("deaths", 2, "CPFs that the new version may lose more than the other one."),
        };
        let what = format!("{} CPFs are too few for a replica of each UE, or too many", bounds.cpfs);
        s.bound("cpfs", (2..=CPFS_MAX).contains(&bounds.cpfs), what, format!("2 to {CPFS_MAX}"));
        let what = format!("{} percent points are no share", bounds.error_margin);
        s.bound("error_margin", bounds.error_margin <= 100, what, "0 to 100");
        bounds
    })
}

impl Config {
    /// True if a network function of this unit is a process of its own: in a CTA, requests to it go there.
    pub fn is_own_process(&self, nf: NfType) -> bool {
        self.deployment.unit_function().is_some() && self.unit.functions.contains(&nf)
    }

    /// The UPF of the unit on N4: where other SMFs reach it, or its name alone.
    pub fn unit_upf(&self) -> SocketAddr {
        let name = match self.n4.node_id {
            IpAddr::V4(_) => IpAddr::V4(UPF_IPV4),
            IpAddr::V6(_) => IpAddr::V6(UPF_IPV6),
        };
        self.n4.listen.unwrap_or(SocketAddr::new(name, whimbrel_user::Config::PFCP_PORT))
    }
}

/// What contradicts a unit in a configuration: the key, what is wrong, and the fix.
pub fn conflict(config: &Config) -> Option<(&'static str, String, &'static str)> {
    if config.cluster.listen.is_some() || config.cluster.pair.is_some() {
        let what = "a unit has links of its own between its functions, and a cluster's cannot be added";
        return Some(("cluster.listen", what.into(), "leave it out, or do without the unit"));
    }
    if config.packet_logger.address.is_some() {
        let what = "the UPF of a unit has its replica on the same host, and no packet logger in front";
        return Some(("packet_logger.address", what.into(), "leave it out, or do without the unit"));
    }
    let node = config.n4.node_id;
    let upf = config.unit_upf();
    let key = if config.n4.listen.is_some() { "n4.listen" } else { "n4.node_id" };
    if upf.ip().is_unspecified() || upf.ip() == node || upf.is_ipv4() != node.is_ipv4() {
        let what = format!(
            "the UPF of the unit at {upf} and its SMF at {node} (`n4.node_id`) need a node identity each, of one family"
        );
        return Some((key, what, "write another address of this host"));
    }
    let two = &config.unit.replica_n2_addresses;
    if let Some(both) = two.iter().find(|a| config.n2.addresses.contains(a)) {
        let what = format!("{both} is in `n2.addresses` too");
        return Some(("unit.replica_n2_addresses", what, "write other addresses, or none"));
    }
    None
}

/// Reports contradictions with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let sbi = config.sbi.as_ref();
    for (nf, is_elsewhere, what, fix) in [
        (
            NfType::Udm,
            sbi.is_some_and(|sbi| sbi.udm != UdmSource::Embedded),
            "`sbi.udm` names the UDM of another vendor",
            "remove `udm` here, or `sbi.udm`",
        ),
        (
            NfType::Pcf,
            sbi.is_some_and(|sbi| sbi.pcf != PcfSource::Embedded),
            "`sbi.pcf` names the PCF of another vendor",
            "remove `pcf` here, or `sbi.pcf`",
        ),
        (
            NfType::Chf,
            !config.has_embedded_chf(),
            "this core's CHF is not in use",
            "write `sbi.chf: embedded`, or remove `chf` here",
        ),
        (
            NfType::Chf,
            sbi.is_some_and(|sbi| sbi.offer.contains(&OfferedService::Chf)),
            "the CTA offers the CHF to other SMFs (`sbi.offer`), and the process that has the accounts sends the orders about their sessions",
            "remove `chf` here, or from `sbi.offer`",
        ),
        (
            NfType::Smf,
            true,
            "the SMF of this core is in the processes that serve UEs",
            "remove `smf` here; `sbi.smf` names the SMF of another vendor",
        ),
    ] {
        if is_elsewhere && config.unit.functions.contains(&nf) {
            pass.refuse("unit.functions", what, fix);
        }
    }
    if let Some((key, what, fix)) = conflict(config).filter(|_| config.unit.enabled) {
        pass.refuse(key, what, fix);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn problems(yaml: &str) -> String {
        match crate::config::parse(yaml, Path::new("u.yaml")) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn what_contradicts_a_unit_is_named_with_its_key() {
        assert_eq!(problems("unit: { enabled: true }"), "");
        assert_eq!(problems("unit: { enabled: true }\nn4: { node_id: \"::1\" }"), "");
        assert_eq!(problems("cluster: { listen: \"127.0.0.1:7380\" }"), "", "without a unit all is well");
        for (yaml, key) in [
            ("unit: { enabled: true, cpfs: 1 }", "unit.cpfs"),
            ("unit: { canary: { cpfs: 1 } }", "unit.canary.cpfs"),
            ("unit: { canary: { error_margin: 101 } }", "unit.canary.error_margin"),
            ("unit: { slice_cpfs: 0 }", "unit.slice_cpfs"),
            ("unit: { functions: [amf] }", "unit.functions"),
            ("unit: { functions: [udm, udm] }", "unit.functions"),
            ("unit: { functions: [udm], function_instances: 5 }", "unit.function_instances"),
            ("unit: { functions: [chf] }", "unit.functions"),
            (
                "unit: { functions: [udm] }\nsbi: { address: 127.0.0.1:7777, udm: \"http://127.0.0.1:7779\" }",
                "unit.functions",
            ),
            (
                "unit: { functions: [pcf] }\nsbi: { address: 127.0.0.1:7777, pcf: \"http://127.0.0.1:7779\" }",
                "unit.functions",
            ),
            ("unit: { enabled: true }\ncluster: { listen: \"127.0.0.1:7380\" }", "cluster.listen"),
            ("unit: { enabled: true, upf_address: \"127.0.0.1:8805\" }", "upf_address"),
            ("unit: { enabled: true }\nn4: { node_id: 127.0.0.88 }", "n4.node_id"),
            ("unit: { enabled: true }\nn4: { listen: \"[::1]:8805\" }", "n4.listen"),
            ("unit: { enabled: true }\nn4: { listen: \"0.0.0.0:8805\" }", "n4.listen"),
            ("unit: { enabled: true, replica_n2_addresses: [127.0.0.1] }", "unit.replica_n2_addresses"),
        ] {
            assert!(problems(yaml).contains(key), "{yaml}: {}", problems(yaml));
        }
    }
}
