//! The UPFs of the SMF of this program, and which sessions each one serves (TS 23.501 §6.3.3.3).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use whimbrel_control::config as control;
use whimbrel_ids::{Dnn, SNssai, Tac};
use whimbrel_store::BitRate;
use whimbrel_user::{GuaranteedRates, SLICES_MAX, SliceRate};

use super::Config;
use super::data_network::check_pools;
use super::section::{Pass, Section};
use super::value::{NetworkPrefix, words};

/// A UPF of the list `upfs`.
#[derive(Clone, Debug)]
pub struct ListedUpf {
    pub name: String,
    /// Where it takes PFCP; `None`: it is the one of this program.
    pub address: Option<SocketAddr>,
    slices: Vec<SNssai>,
    dnns: Vec<Dnn>,
    tacs: Vec<Tac>,
    priority: u16,
    weight: u16,
    capacity: Option<u32>,
    predicts: bool,
    ue_pools: Vec<UePool>,
    interface_types: bool,
    n3_ip_version: control::N3IpVersion,
}

words! { control::N3IpVersion {
    control::N3IpVersion::Ipv4 = "ipv4",
    control::N3IpVersion::Ipv6 = "ipv6",
    control::N3IpVersion::Both = "both",
} }

/// Addresses for the UEs of one data network, which the SMF allocates.
#[derive(Clone, Debug)]
struct UePool {
    dnn: Dnn,
    ipv4_pool: Option<NetworkPrefix<Ipv4Addr>>,
    ipv6_pool: Option<NetworkPrefix<Ipv6Addr>>,
}

impl ListedUpf {
    /// As configured; `foresight`: handovers are predicted, which the UPF of this program supports.
    pub(super) fn predicting(mut self, foresight: bool) -> Self {
        self.predicts |= foresight && self.address.is_none();
        self
    }

    /// The one of this program, which has all sessions where no other is configured.
    pub fn here() -> Self {
        let control::Upf {
            name,
            slices,
            dnns,
            tacs,
            priority,
            weight,
            capacity,
            predicts,
            interface_types,
            n3_ip_version,
            ..
        } = control::Upf::default();
        let ue_pools = Vec::new();
        Self {
            name,
            address: None,
            slices,
            dnns,
            tacs,
            priority,
            weight,
            capacity,
            predicts,
            ue_pools,
            interface_types,
            n3_ip_version,
        }
    }

    pub(super) fn control(&self) -> control::Upf {
        control::Upf {
            name: self.name.clone(),
            slices: self.slices.clone(),
            dnns: self.dnns.clone(),
            tacs: self.tacs.clone(),
            priority: self.priority,
            weight: self.weight,
            capacity: self.capacity,
            address: self.address.map(|a| a.ip()),
            predicts: self.predicts,
            ue_pools: self.ue_pools.iter().map(UePool::control).collect(),
            interface_types: self.interface_types,
            n3_ip_version: self.n3_ip_version,
        }
    }
}

impl UePool {
    fn control(&self) -> control::UePool {
        control::UePool {
            dnn: self.dnn.clone(),
            ipv4: self.ipv4_pool.map(|p| (p.address, p.length)),
            ipv6: self.ipv6_pool.map(|p| (p.address, p.length)),
        }
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Vec<ListedUpf> {
    let doc = "UPFs of this core, if not only the one of this program (TS 23.501 §6.3.3). An item \
               without `address` is the UPF of this program. Each has `name`, `address`, `slices`, `dnns`, `tacs`, \
               `priority`, `weight`, `capacity`, `predicts`, `ue_pools`, `interface_types` and `n3_ip_version`; docs/upf.md shows how.";
    root.sections("upfs", 0, doc, |s, i| ListedUpf {
        name: s.value("name", format!("upf{}", i + 1), "Name in logs and metrics."),
        address: s.optional(
            "address",
            "192.0.2.2:8805",
            "Address and UDP port of its PFCP. Without it: the UPF of this program.",
        ),
        slices: s.list("slices", vec![], "Slices that it serves; empty: all."),
        dnns: s.list("dnns", vec![], "Data networks that it serves; empty: all."),
        tacs: s.list("tacs", vec![], "Tracking areas of the UEs that it serves; empty: all."),
        priority: s.value("priority", 0, "UPFs with the lowest number are selected first."),
        weight: s.value("weight", 100, "Its share of the sessions among UPFs of the same priority."),
        capacity: s.optional(
            "capacity",
            "100000",
            "UEs with sessions at which it counts as fully loaded. Not set: its load is what it reports (TS 29.244 §6.2.3), and one that reports none counts as \
             free.",
        ),
        predicts: s.value(
            "predicts",
            false,
            "It is a whimbrel, which supports rules for predicted handovers.",
        ),
        ue_pools: s.sections(
            "ue_pools",
            0,
            "Pools of UE addresses that the SMF allocates for this UPF (TS 23.501 §5.8.2.2.1), for a UPF that allocates none. No other core, UPF \
             or static address may have a part of them. Empty: the UPF allocates.",
            |s, _| ue_pool(s),
        ),
        interface_types: s.value(
            "interface_types",
            false,
            "Rules name the 3GPP interface of packets, N3 or N6 (TS 29.244 §8.2.118), which some UPFs need.",
        ),
        n3_ip_version: s.value(
            "n3_ip_version",
            control::N3IpVersion::Both,
            "IP version of its tunnels on N3 and N9: in F-TEIDs that it chooses and outer headers that it removes (TS 29.244 §8.2.3, §8.2.64). Some UPFs do \
             not understand rules that leave it open (`both`).",
        ),
    })
}

fn ue_pool(s: &mut Section<'_, '_>) -> UePool {
    let pool = UePool {
        dnn: match "internet".parse() {
            Ok(default) => s.value("dnn", default, "The data network."),
            Err(_) => unreachable!("the default name is valid"),
        },
        ipv4_pool: s.optional("ipv4_pool", "10.46.0.0/16", "IPv4 addresses; the first is left to the UPF."),
        ipv6_pool: s.optional(
            "ipv6_pool",
            "fd00:9997:46::/48",
            "IPv6 prefix, from which each session gets a /64; the first is left to the UPF.",
        ),
    };
    check_pools(s, pool.ipv4_pool, pool.ipv6_pool);
    if pool.ipv4_pool.is_none() && pool.ipv6_pool.is_none() {
        let what = format!("no address is given for UEs of `{}`", pool.dnn);
        s.refuse("ipv4_pool", what, "write `ipv4_pool` or `ipv6_pool`, or take the item out");
    }
    pool
}

/// Example of a slice's rate.
const RATE: BitRate = match BitRate::from_bps(1_000_000_000) {
    Some(rate) => rate,
    None => unreachable!(),
};

/// The guaranteed rates that the UPF of this program can accept; `None` if one of the two is not set.
pub(super) fn guaranteed_rates(root: &mut Section<'_, '_>) -> Option<GuaranteedRates> {
    let doc = "Total of the guaranteed rates (GFBR) that the UPF of this program and its links can provide. A GBR flow that \
               would exceed it is refused (5GSM cause #26), and its session begins without it. Not set: no limit.";
    root.section("guaranteed_rates", doc, |s| {
        let mut rate = |key, doc| s.optional::<BitRate>(key, "1 Gbps", doc).map(BitRate::kbps);
        let (up, down) = (rate("up", "Uplink."), rate("down", "Downlink."));
        if up.is_some() != down.is_some() {
            s.refuse("up", "only one direction is set", "write both `up` and `down`");
        }
        Some(GuaranteedRates { ul_kbps: up?, dl_kbps: down? })
    })
}

pub(super) fn slice_rates(root: &mut Section<'_, '_>) -> Vec<SliceRate> {
    let doc = "Rates that all sessions of a slice share in the UPF of this program. GBR flows get their guaranteed rates; packets of other flows are \
               marked (ECN) or dropped when the rate is nearly used up.";
    root.sections("slice_rates", 0, doc, |s, _| {
        let slice = s.value("slice", SNssai::sst(1), "The slice.");
        let mut rate = |key, doc| s.value(key, RATE, doc).kbps();
        SliceRate { slice, ul_kbps: rate("up", "Uplink."), dl_kbps: rate("down", "Downlink.") }
    })
}

/// Reports contradictions between the items, and with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    check_rates(&config.slice_rates, pass);
    let upfs = &config.upfs;
    if upfs.len() > whimbrel_control::UPFS_MAX {
        let what = format!("{} UPFs are more than one SMF serves", upfs.len());
        pass.refuse("upfs", what, format!("list at most {}", whimbrel_control::UPFS_MAX));
    }
    for (i, upf) in upfs.iter().enumerate() {
        let key = |key: &str| format!("upfs[{i}].{key}");
        let before = &upfs[..i];
        if before.iter().any(|u| u.name == upf.name) {
            let what = format!("two UPFs are called `{}`", upf.name);
            pass.refuse(&key("name"), what, "give each a name of its own");
        }
        if before.iter().any(|u| u.address.map(|a| a.ip()) == upf.address.map(|a| a.ip())) {
            let what = match upf.address {
                Some(address) => format!("two UPFs are at {}", address.ip()),
                None => "two UPFs have no address, and there is one in this program".into(),
            };
            pass.refuse(&key("address"), what, "give each an address of its own");
        }
        if let Some(dnn) = upf.dnns.iter().find(|d| config.data_networks.iter().all(|n| n.dnn != **d)) {
            let what = format!("the UPF `{}` is to serve `{dnn}`, which is not in `data_networks`", upf.name);
            pass.refuse(&key("dnns"), what, "add it to `data_networks`, or take it out");
        }
        check_ue_pools(config, pass, i, upf);
        if let Some(slice) = upf.slices.iter().find(|s| !config.amf.slices.contains(s)) {
            let what = format!("the UPF `{}` is to serve slice {slice}, which is not offered", upf.name);
            pass.refuse(&key("slices"), what, "add it to `slices`, or take it out");
        }
        if let Some(tac) = upf.tacs.iter().find(|t| !config.amf.tacs.contains(t)) {
            let what = format!("the UPF `{}` is to serve TAC {}, which is not served", upf.name, tac.value());
            pass.refuse(&key("tacs"), what, "add it to `tacs`, or take it out");
        }
        if upf.weight == 0 {
            let what = format!("a weight of 0 gives the UPF `{}` no session", upf.name);
            pass.refuse(&key("weight"), what, "write 1 to 65535, or take the item out");
        }
        if upf.capacity == Some(0) {
            let what = format!("the UPF `{}` has room for no UE", upf.name);
            pass.refuse(&key("capacity"), what, "write at least 1, or take the item out");
        }
        if let Some(address) = upf.address {
            check_address(config, pass, &key("address"), &upf.name, address);
        }
    }
    for network in config.data_networks.iter().filter(|_| !upfs.is_empty()) {
        let serves = |u: &ListedUpf| u.dnns.is_empty() || u.dnns.contains(&network.dnn);
        if !upfs.iter().any(serves) {
            let what =
                format!("no UPF serves the data network `{}`, so no session is possible there", network.dnn);
            pass.refuse("upfs", what, "name it in `dnns` of a UPF");
        }
    }
}

/// Pools belong to one UPF each, and to no other part of this core.
fn check_ue_pools(config: &Config, pass: &mut Pass, i: usize, upf: &ListedUpf) {
    let elsewhere =
        config.upfs[..i].iter().flat_map(|u| u.ue_pools.iter().map(|p| (format!("the UPF `{}`", u.name), p)));
    for (j, pool) in upf.ue_pools.iter().enumerate() {
        let key = |key: &str| format!("upfs[{i}].ue_pools[{j}].{key}");
        if upf.address.is_none() {
            let what = "the UPF of this program allocates UE addresses itself";
            pass.refuse(&key("dnn"), what, "write the pools in `data_networks`");
        }
        if config.data_networks.iter().all(|n| n.dnn != pool.dnn) {
            let what = format!("there is no data network `{}`", pool.dnn);
            pass.refuse(&key("dnn"), what, "add it to `data_networks`, or take the pool out");
        }
        if upf.ue_pools[..j].iter().any(|p| p.dnn == pool.dnn) {
            let what = format!("the UPF `{}` has two pools for `{}`", upf.name, pool.dnn);
            pass.refuse(&key("dnn"), what, "take one of them out");
        }
        let same = upf.ue_pools[..j].iter().map(|p| ("the same UPF".to_string(), p));
        for (whose, other) in elsewhere.clone().chain(same) {
            let v4 = pool.ipv4_pool.zip(other.ipv4_pool).is_some_and(|(a, b)| a.overlaps(&b));
            let v6 = pool.ipv6_pool.zip(other.ipv6_pool).is_some_and(|(a, b)| a.overlaps(&b));
            if v4 || v6 {
                let what = format!("a part of the pool is {whose}'s too, for `{}`", other.dnn);
                pass.refuse(&key(if v4 { "ipv4_pool" } else { "ipv6_pool" }), what, "choose another pool");
            }
        }
    }
}

fn check_rates(rates: &[SliceRate], pass: &mut Pass) {
    if rates.len() > SLICES_MAX {
        let what = format!("{} slices have a rate", rates.len());
        pass.refuse("slice_rates", what, format!("list at most {SLICES_MAX}"));
    }
    for (i, rate) in rates.iter().enumerate() {
        if rates[..i].iter().any(|r| r.slice == rate.slice) {
            let what = format!("slice {} has two rates", rate.slice);
            pass.refuse(&format!("slice_rates[{i}].slice"), what, "take one of them out");
        }
    }
}

fn check_address(config: &Config, pass: &mut Pass, key: &str, name: &str, address: SocketAddr) {
    let node_id = config.n4.node_id;
    if address.ip().is_unspecified() || address.port() == 0 {
        pass.refuse(
            key,
            format!("nothing can be sent to {address}"),
            "write the address that its `n4.listen` has",
        );
    } else if address.ip() == node_id {
        let what = format!("the UPF `{name}` has the address of this core's SMF, `n4.node_id`");
        pass.refuse(key, what, "write another, or leave `address` out for the UPF of this program");
    } else if node_id.is_unspecified() || (node_id.is_loopback() && !address.ip().is_loopback()) {
        let what = format!("the UPF `{name}` at {} cannot answer to {node_id}, `n4.node_id`", address.ip());
        pass.refuse("n4.node_id", what, "write the address of this host that UPFs reach");
    } else if node_id.is_ipv4() != address.is_ipv4() {
        let what =
            format!("the UPF `{name}` at {} and the SMF at {node_id} are of two families", address.ip());
        pass.refuse(key, what, "give both IPv4 or both IPv6 addresses");
    }
}
