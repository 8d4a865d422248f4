//! The firewall of a data network, and its address translation.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use whimbrel_user::{
    FIREWALL_RULES_MAX, FLOWS_MAX, Firewall, FirewallRule, Ipv4Net, NAT_ADDRESSES_MAX, Nat, Timeouts,
};

use super::data_network::DataNetworkConfig;
use super::section::{Pass, Section};
use super::value::{NetworkPrefix, Value};

impl Value for FirewallRule {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| {
            "a rule such as `deny in 6 from any to any 25` (in: from UEs) or `permit out 17 from 192.0.2.0/24 to \
             10.45.0.7 5060` (out: to UEs)"
                .into()
        })
    }

    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

/// Reads the keys.
pub(super) fn read(s: &mut Section<'_, '_>) -> Option<Firewall> {
    let doc = "Stateful firewall for IP sessions of this data network: UEs can open flows, and only answers come in, unless `rules` \
               say otherwise; IPv4 addresses can be translated. See docs/firewall.md.";
    s.section("firewall", doc, |s| {
        let on = s.value("on", false, "Enable the firewall.");
        let rules = s.list(
            "rules",
            vec![],
            "Rules for the first packet of a flow, in order; the first match decides. `permit` or `deny`, `in` (from UEs) or \
             `out` (to UEs), protocol, `from` and `to`.",
        );
        let between_ues =
            s.value("between_ues", true, "UEs can open flows to UEs of this data network.");
        let flows_max = s.value("flows", Firewall::FLOWS_MAX, "Most flows, 96 octets each.");
        let flows_per_ue = s.value("flows_per_ue", Firewall::FLOWS_PER_UE, "Most flows of one UE.");
        let timeouts = timeouts(s);
        let pools: Vec<NetworkPrefix<Ipv4Addr>> = s.list(
            "nat_pool",
            vec![],
            "Outside IPv4 addresses for address translation, such as 192.0.2.10/32, which must be routed to this host. Empty: the UPF does \
             not translate.",
        );
        let ports_per_ue = s.value(
            "nat_ports_per_ue",
            Nat::PORTS_PER_UE,
            "Most outside ports and ICMP identifiers of one UE.",
        );
        let reachable = s.value(
            "nat_reachable",
            false,
            "Endpoint-independent filtering (RFC 4787 §5): any host can send to an open outside port, as \
             calls and games between UEs need.",
        );
        let nat = (!pools.is_empty()).then(|| Nat {
            pools: pools.iter().map(|p| Ipv4Net { address: p.address, prefix: p.length }).collect(),
            ports_per_ue,
            reachable,
        });
        let f = Firewall { rules, between_ues, flows_max, flows_per_ue, timeouts, nat };
        check_rules(s, on, &f);
        on.then_some(f)
    })
}

fn timeouts(s: &mut Section<'_, '_>) -> Timeouts {
    let d = Timeouts::default();
    let least = Timeouts::LEAST;
    let mut time = |key, default, least: Duration, doc| {
        let given: Duration = s.value(key, default, doc);
        let what = format!("{} is below the lower bound", given.show());
        s.bound(key, given >= least, what, format!("{} or more", least.show()));
        given
    };
    Timeouts {
        udp: time("udp", d.udp, least.udp, "Timeout of a UDP flow without packets (RFC 4787 §4.3)."),
        tcp: time("tcp", d.tcp, least.tcp, "Timeout of an open TCP connection (RFC 5382 §5)."),
        tcp_transitory: time(
            "tcp_transitory",
            d.tcp_transitory,
            least.tcp_transitory,
            "Timeout of a TCP connection that is opening, closing or reset.",
        ),
        icmp: time("icmp", d.icmp, least.icmp, "Timeout of an ICMP query (RFC 5508 §3.2)."),
        other: time("other", d.other, least.other, "Timeout of other protocols."),
    }
}

fn check_rules(s: &mut Section<'_, '_>, on: bool, f: &Firewall) {
    for (i, rule) in f.rules.iter().enumerate() {
        if let Some((j, before)) = f.rules[..i].iter().enumerate().find(|(_, b)| b.covers(rule)) {
            let (what, fix) = match before.agrees_with(rule) {
                true => (format!("`{rule}` is redundant: `{before}` does the same"), "remove it".to_owned()),
                false => (
                    format!("`{rule}` is never reached: `{before}` matches all its packets"),
                    format!("put it before item {}, or remove one of them", j + 1),
                ),
            };
            s.refuse("rules", what, fix);
        }
    }
    if f.rules.len() > FIREWALL_RULES_MAX {
        let what = format!("the list has {} rules", f.rules.len());
        s.refuse("rules", what, format!("keep at most {FIREWALL_RULES_MAX}, each range of ports counted"));
    }
    let what = format!("{} flows are out of bounds", f.flows_max);
    s.bound("flows", (1..=FLOWS_MAX).contains(&f.flows_max), what, format!("1 to {FLOWS_MAX}"));
    s.bound("flows_per_ue", f.flows_per_ue != 0, "without flows a UE can send nothing", "1 to 65535");
    let Some(nat) = &f.nat else { return };
    if !on {
        s.refuse("nat_pool", "the firewall, which translates addresses, is not enabled", "write `on: true`");
    }
    let addresses: u64 = nat.pools.iter().map(|p| 1u64 << (32 - p.prefix.min(32))).sum();
    if addresses > NAT_ADDRESSES_MAX {
        let fix = format!("keep {NAT_ADDRESSES_MAX} in all: each serves tens of thousands of flows");
        s.refuse("nat_pool", format!("there are {addresses} addresses, more than needed"), fix);
    }
    if nat.ports_per_ue == 0 {
        s.refuse("nat_ports_per_ue", "without a port a UE can send nothing", "write 1 to 65535");
    }
}

fn ipv4_pools(network: &DataNetworkConfig) -> impl Iterator<Item = NetworkPrefix<Ipv4Addr>> {
    network.ipv4_pool.into_iter().chain(network.reserved_pools.iter().filter_map(|r| r.ipv4_pool))
}

/// What firewalls may say alone, but not together with the pools and addresses of all data networks.
pub(super) fn check(networks: &[DataNetworkConfig], n3: IpAddr, pass: &mut Pass) {
    for (i, network) in networks.iter().enumerate() {
        let Some(f) = &network.firewall else { continue };
        let key = |key: &str| format!("data_networks[{i}].firewall.{key}");
        let own4 = || ipv4_pools(network);
        for rule in &f.rules {
            let Some((address, length)) = rule.ues() else { continue };
            if address.is_ipv4() && own4().next().is_none() {
                let what =
                    format!("`{rule}` names an IPv4 address of UEs, but `{}` has no IPv4 pool", network.dnn);
                pass.refuse(&key("rules"), what, "remove it, or give the data network an `ipv4_pool`");
            }
            let outside = |p: &Ipv4Net| match address {
                IpAddr::V4(address) if length > 0 => NetworkPrefix { address: p.address, length: p.prefix }
                    .overlaps(&NetworkPrefix { address, length }),
                _ => false,
            };
            if f.nat.iter().flat_map(|n| &n.pools).any(outside) {
                let what =
                    format!("`{rule}` names a translated address, but rules match the UEs' own addresses");
                pass.refuse(&key("rules"), what, "write UEs' addresses of the `ipv4_pool`");
            }
        }
        let Some(nat) = &f.nat else { continue };
        if own4().next().is_none() {
            let what = format!("`{}` has no IPv4 addresses to translate", network.dnn);
            pass.refuse(&key("nat_pool"), what, "give it an `ipv4_pool`, or remove `nat_pool`");
        }
        let pools = nat.pools.iter().map(|p| NetworkPrefix { address: p.address, length: p.prefix });
        for pool in pools {
            for other in networks {
                for ues in ipv4_pools(other).filter(|p| p.overlaps(&pool)) {
                    let what = format!("{pool} overlaps {ues}, the pool of `{}`", other.dnn);
                    pass.refuse(&key("nat_pool"), what, "choose addresses outside of all pools");
                }
            }
            if matches!(n3, IpAddr::V4(a) if pool.contains(a)) {
                let what = format!("{pool} contains N3's address {n3}");
                pass.refuse(&key("nat_pool"), what, "choose addresses that no interface of this host has");
            }
            let earlier = networks[..i].iter().filter_map(|n| Some((n, n.firewall.as_ref()?.nat.as_ref()?)));
            for (other, nat) in earlier {
                if nat
                    .pools
                    .iter()
                    .any(|p| pool.overlaps(&NetworkPrefix { address: p.address, length: p.prefix }))
                {
                    let what = format!("{pool} overlaps the `nat_pool` of `{}`", other.dnn);
                    pass.refuse(&key("nat_pool"), what, "give each data network addresses of its own");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn firewall(text: &str) -> Result<Option<Firewall>, String> {
        let text = format!("data_networks:\n  - dnn: internet\n    firewall:\n{text}");
        let config = crate::config::parse(&text, Path::new("w.yaml"));
        config.map(|c| c.data_networks[0].firewall.clone()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_firewall_is_off_by_default() {
        assert_eq!(firewall("      udp: 3min\n"), Ok(None));
    }

    #[test]
    fn rules_and_translation() {
        let text = "      on: true\n      rules: [deny in 6 from any to any 25, permit out 17 from any to 10.45.0.7 5060]\n      \
                    nat_pool: 192.0.2.10/31\n      nat_reachable: true\n";
        let f = firewall(text).unwrap().unwrap();
        assert_eq!(f.rules[1].to_string(), "permit out 17 from any to 10.45.0.7 5060");
        assert_eq!(f.timeouts, Timeouts::default());
        assert!(f.nat.is_some_and(|n| n.reachable && n.pools[0].prefix == 31));
    }

    #[test]
    fn contradictions_are_reported_with_a_fix() {
        for (text, sentence) in [
            ("      rules: [deny in]\n", "write a rule such as `deny in 6 from any to any 25`"),
            (
                "      on: true\n      rules: [deny in ip from any to any, permit in 6 from any to any 443]\n",
                "firewall.rules: `permit in 6 from any to any 443` is never reached: `deny in ip from any to any` matches all its packets; \
                 put it before item 1",
            ),
            (
                "      on: true\n      rules: [deny in 6 from any to any, deny in 6 from any to any 25]\n",
                "`deny in 6 from any to any 25` is redundant: `deny in 6 from any to any` does the same; remove it",
            ),
            ("      udp: 1min\n", "firewall.udp: 1min is below the lower bound; write 2min or more"),
            ("      on: true\n      flows: 0\n", "write 1 to 16777216"),
            (
                "      nat_pool: 192.0.2.10/32\n",
                "firewall.nat_pool: the firewall, which translates addresses, is not enabled",
            ),
            ("      on: true\n      nat_pool: 192.0.0.0/16\n", "there are 65536 addresses, more than needed"),
            (
                "      on: true\n      nat_pool: 10.45.1.0/24\n",
                "10.45.1.0/24 overlaps 10.45.0.0/16, the pool of `internet`",
            ),
            (
                "      on: true\n      nat_pool: 192.0.2.10/32\n    ipv4_pool: none\n",
                "`internet` has no IPv4 addresses to translate",
            ),
            (
                "      on: true\n      nat_pool: 192.0.2.10/32\nn3:\n  address: 192.0.2.10\n",
                "192.0.2.10/32 contains N3's address 192.0.2.10",
            ),
            (
                "      on: true\n      nat_pool: 192.0.2.10/32\n      rules: [permit out 6 from any to 192.0.2.10 443]\n",
                "names a translated address, but rules match the UEs' own addresses",
            ),
            (
                "      on: true\n      rules: [permit out 6 from any to 10.45.0.7 443]\n    ipv4_pool: none\n",
                "names an IPv4 address of UEs, but `internet` has no IPv4 pool",
            ),
            (
                "      on: true\n      nat_pool: 192.0.2.0/30\n  - dnn: ims\n    firewall:\n      on: true\n      nat_pool: 192.0.2.3/32\n",
                "192.0.2.3/32 overlaps the `nat_pool` of `internet`",
            ),
        ] {
            let error = firewall(text).expect_err(text);
            assert!(error.contains(sentence), "{text}{error}");
        }
    }
}
