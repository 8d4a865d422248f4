//! Contradictions between keys.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use whimbrel_security::{CipheringAlgorithm, IntegrityAlgorithm};
use whimbrel_user::DATA_NETWORKS_MAX;

use super::section::Pass;
use super::{Config, DataNetworkConfig};

/// Tracking areas of one registration area list and slices of one PLMN that the messages can carry
/// (TS 24.501 §9.11.3.9: 16 identities; TS 38.413 §9.2.6.2: 1024 slices, of which a UE is allowed 8).
const TACS_MAX: usize = 16;
const SLICES_MAX: usize = 1024;

/// Notes every contradiction.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    lists(config, pass);
    algorithms(config, pass);
    emergency(config, pass);
    data_networks(&config.data_networks, pass);
    applications(config, pass);
    super::firewall::check(&config.data_networks, config.n3.address, pass);
    super::pools::check(config, pass);
    home_network_keys(config, pass);
    interfaces(config, pass);
    super::upf::check(config, pass);
    super::open::check(config, pass);
    super::foresight::check(config, pass);
    super::veil::check(config, pass);
    super::sbi::check(config, pass);
    super::charging::check(config, pass);
    super::chf::check(config, pass);
    super::peer_amfs::check(config, pass);
    cluster(config, pass);
    super::unit::check(config, pass);
    super::packet_logger::check(config, pass);
    super::memory::check(config, pass);
}

fn cluster(config: &Config, pass: &mut Pass) {
    if config.cluster.pair.is_some() && config.upfs().iter().any(|upf| upf.address.is_none()) {
        pass.refuse(
            "cluster.etcd",
            "the CTA replica continues with the sessions at UPFs, but the UPF of this program would be lost with this CTA",
            "run it as a process of its own (`whimbrel upf`) and name it in `upfs`",
        );
    }
}

fn lists(config: &Config, pass: &mut Pass) {
    not_empty(pass, "tacs", config.amf.tacs.len(), TACS_MAX, "no UE could register");
    not_empty(pass, "slices", config.amf.slices.len(), SLICES_MAX, "no UE could register");
    once(pass, "tacs", &config.amf.tacs);
    once(pass, "slices", &config.amf.slices);
    once(pass, "n2.addresses", &config.n2.addresses);
    if config.amf.name.is_empty() || config.amf.name.len() > 150 {
        pass.refuse("amf.name", "an AMF name has 1 to 150 characters (TS 38.413 §9.3.3.21)", "shorten it");
    }
    for (key, name) in [("full", &config.amf.network_name_full), ("short", &config.amf.network_name_short)] {
        // The element's length is one octet, less the octet of coding; UCS-2 doubles the characters.
        if name.encode_utf16().count() > 100 {
            pass.refuse(&format!("amf.network_name_{key}"), "the name is too long", "keep 100 characters");
        }
    }
}

fn algorithms(config: &Config, pass: &mut Pass) {
    not_empty(pass, "security.integrity", config.amf.integrity.len(), 3, "NAS could not be protected");
    not_empty(pass, "security.ciphering", config.amf.ciphering.len(), 4, "no algorithm could be chosen");
    if config.amf.integrity.contains(&IntegrityAlgorithm::Nia0) {
        pass.refuse(
            "security.integrity",
            "NIA0 protects nothing and is not allowed for registered UEs (TS 33.501 §5.5.2)",
            "list NIA2, NIA1 or NIA3",
        );
    }
    let nea0 = config.amf.ciphering.iter().position(|a| *a == CipheringAlgorithm::Nea0);
    if nea0.is_some_and(|at| at + 1 != config.amf.ciphering.len()) {
        pass.refuse(
            "security.ciphering",
            "every UE supports NEA0, so algorithms after it are never used",
            "put NEA0 last, or list only NEA0",
        );
    }
}

fn emergency(config: &Config, pass: &mut Pass) {
    let emergency = &config.access.emergency;
    if emergency.service == super::access::EmergencyFor::None {
        return;
    }
    if !config.data_networks.iter().any(|n| n.dnn == emergency.dnn) {
        let what = format!("the data network `{}` of emergency sessions is not configured", emergency.dnn);
        pass.refuse("access.emergency.dnn", what, "add it to `data_networks`, or name another");
    }
}

fn data_networks(networks: &[DataNetworkConfig], pass: &mut Pass) {
    if networks.is_empty() {
        pass.refuse("data_networks", "without a data network no session is possible", "list at least one");
    }
    if networks.len() > DATA_NETWORKS_MAX {
        let what = format!("there are {} data networks, more than a UPF serves", networks.len());
        pass.refuse("data_networks", what, format!("list at most {DATA_NETWORKS_MAX}"));
    }
    for (i, a) in networks.iter().enumerate() {
        for (j, b) in networks.iter().enumerate().take(i) {
            if a.dnn == b.dnn {
                let what = format!("the data network `{}` is listed twice", a.dnn);
                pass.refuse(
                    &format!("data_networks[{i}].dnn"),
                    what,
                    format!("see item {}; keep one", j + 1),
                );
            }
        }
    }
    let ipv4 = |n: &DataNetworkConfig| {
        n.ipv4_pool.into_iter().chain(n.reserved_pools.iter().filter_map(|r| r.ipv4_pool)).collect()
    };
    overlaps(pass, networks, "ipv4_pool", ipv4, |x, y| x.overlaps(y));
    let ipv6 = |n: &DataNetworkConfig| {
        n.ipv6_pool.into_iter().chain(n.reserved_pools.iter().filter_map(|r| r.ipv6_pool)).collect()
    };
    overlaps(pass, networks, "ipv6_pool", ipv6, |x, y| x.overlaps(y));
}

/// A UPF refuses a session with a rule about an unknown application. UPFs of other hosts have their own list.
fn applications(config: &Config, pass: &mut Pass) {
    if config.upfs().iter().all(|upf| upf.address.is_some()) {
        return;
    }
    let known = |name: &str| config.detection.known.iter().any(|a| *a.id == *name);
    for (i, network) in config.data_networks.iter().enumerate() {
        for (j, flow) in network.flows.iter().enumerate() {
            let named = network.treatments.get(&flow.name).map_or(&[][..], |t| &t.applications);
            for name in named.iter().filter(|n| !known(n)) {
                let what = format!(
                    "the application `{name}` is not described, so no session with this flow is possible"
                );
                let key = format!("data_networks[{i}].flows[{j}].applications");
                pass.refuse(&key, what, "describe it in `detection.applications`");
            }
        }
    }
}

/// No two pools of a family, of one network or of two, have an address in common.
fn overlaps<P: Display>(
    pass: &mut Pass,
    networks: &[DataNetworkConfig],
    key: &str,
    pools: impl Fn(&DataNetworkConfig) -> Vec<P>,
    overlaps: impl Fn(&P, &P) -> bool,
) {
    let of = |(i, n)| pools(n).into_iter().map(move |p| (i, n, p));
    let all: Vec<(usize, &DataNetworkConfig, P)> = networks.iter().enumerate().flat_map(of).collect();
    for (at, (i, a, x)) in all.iter().enumerate() {
        for (_, b, y) in all.iter().take(at).filter(|(_, _, y)| overlaps(x, y)) {
            let what = format!("{x} of `{}` overlaps {y} of `{}`", a.dnn, b.dnn);
            pass.refuse(
                &format!("data_networks[{i}].{key}"),
                what,
                "give each data network addresses of its own",
            );
        }
    }
}

fn home_network_keys(config: &Config, pass: &mut Pass) {
    let mut seen = BTreeMap::new();
    for (i, key) in config.home_network_keys.iter().enumerate() {
        if let Some(first) = seen.insert((key.scheme, key.id), i) {
            let what = format!("key identifier {} of scheme {:?} is listed twice", key.id, key.scheme);
            pass.refuse(
                &format!("home_network_keys[{i}].id"),
                what,
                format!("see item {}; number them", first + 1),
            );
        }
    }
}

fn interfaces(config: &Config, pass: &mut Pass) {
    let unspecified = config.n2.addresses.iter().any(|a| a.is_unspecified());
    if unspecified && config.n2.addresses.len() > 1 {
        let fix = "list the addresses, or the unspecified one alone";
        pass.refuse("n2.addresses", "an unspecified address includes all others", fix);
    }
    let elsewhere = config.upfs.iter().any(|u| u.address.is_some());
    let udp = [
        Some(("n3.port", config.n3.address, config.n3.port)),
        config.n4.listen.map(|l| ("n4.listen", l.ip(), l.port())),
        elsewhere.then_some(("upfs", config.n4.node_id, whimbrel_user::Config::PFCP_PORT)),
        config.n2.addresses.first().map(|a| ("n2.udp_port", *a, config.n2.udp_port)),
    ];
    let udp: Vec<_> = udp.into_iter().flatten().collect();
    for (i, a) in udp.iter().enumerate() {
        for b in udp.iter().take(i).filter(|b| a.2 == b.2 && meet(a.1, b.1)) {
            let what = format!("UDP port {} of {} is taken by {} already", a.2, a.1, b.0);
            pass.refuse(a.0, what, "choose another port");
        }
    }
    for network in &config.data_networks {
        let inside = match config.n3.address {
            IpAddr::V4(a) => network.ipv4_pool.is_some_and(|p| p.contains(a)),
            IpAddr::V6(a) => network.ipv6_pool.is_some_and(|p| p.contains(a)),
        };
        if inside {
            let what = format!(
                "{} is in the pool of `{}`, from which UEs get addresses",
                config.n3.address, network.dnn
            );
            pass.refuse("n3.address", what, "choose a pool that this host's networks do not use");
        }
    }
}

fn meet(a: IpAddr, b: IpAddr) -> bool {
    a == b || a.is_unspecified() || b.is_unspecified()
}

fn not_empty(pass: &mut Pass, key: &str, count: usize, most: usize, effect: &str) {
    if count == 0 && pass.is_given(key) && pass.problems.iter().all(|p| p.key != key) {
        pass.refuse(key, format!("the list is empty, so {effect}"), "list at least one");
    }
    if count > most {
        pass.refuse(key, format!("the list has {count} entries"), format!("keep at most {most}"));
    }
}

fn once<T: PartialEq + Display>(pass: &mut Pass, key: &str, list: &[T]) {
    for (i, item) in list.iter().enumerate() {
        if list[..i].contains(item) {
            pass.refuse(key, format!("{item} is listed twice"), "keep one");
        }
    }
}
