//! Pools of UEs hold nothing that UEs, or the core, send packets to: such packets would go to a UE.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_user::{Ipv4Net, Ipv6Net};

use super::section::Pass;
use super::value::NetworkPrefix;
use super::{Config, DataNetworkConfig};

/// Notes servers and gNBs whose addresses are UEs'.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    servers(&config.data_networks, pass);
    gnb_networks(config, pass);
}

fn ipv4_pools(network: &DataNetworkConfig) -> impl Iterator<Item = NetworkPrefix<Ipv4Addr>> {
    network.ipv4_pool.into_iter().chain(network.reserved_pools.iter().filter_map(|r| r.ipv4_pool))
}

fn ipv6_pools(network: &DataNetworkConfig) -> impl Iterator<Item = NetworkPrefix<Ipv6Addr>> {
    network.ipv6_pool.into_iter().chain(network.reserved_pools.iter().filter_map(|r| r.ipv6_pool))
}

/// The pool of UEs that holds an address, if that is not this host's own: the first one of an IPv4 pool, and the first prefix of an IPv6 pool.
fn pool_with(networks: &[DataNetworkConfig], address: IpAddr) -> Option<(String, &DataNetworkConfig)> {
    let is_ue = |network: &DataNetworkConfig| match address {
        IpAddr::V4(a) => {
            let own =
                |p: &NetworkPrefix<Ipv4Addr>| Ipv4Net { address: p.address, prefix: p.length }.gateway() == a;
            ipv4_pools(network).find(|p| p.contains(a) && !own(p)).map(|p| p.to_string())
        }
        IpAddr::V6(a) => {
            let own = |p: &NetworkPrefix<Ipv6Addr>| {
                let gateway = Ipv6Net { address: p.address, prefix: p.length }.gateway();
                gateway.segments()[..4] == a.segments()[..4]
            };
            ipv6_pools(network).find(|p| p.contains(a) && !own(p)).map(|p| p.to_string())
        }
    };
    networks.iter().find_map(|network| Some((is_ue(network)?, network)))
}

/// Refuses a DNS server or P-CSCF whose address is in a pool of UEs.
fn servers(networks: &[DataNetworkConfig], pass: &mut Pass) {
    for (i, network) in networks.iter().enumerate() {
        let dns = network.dns.iter().map(|a| (a, "dns", "DNS server"));
        for (address, key, what) in dns.chain(network.p_cscf.iter().map(|a| (a, "p_cscf", "P-CSCF"))) {
            let Some((pool, of)) = pool_with(networks, *address) else { continue };
            let sentence = format!(
                "the {what} {address} is in {pool}, the pool of UEs of `{}`, so no UE reaches it",
                of.dnn
            );
            let fix =
                "give it an address outside of all pools; of a pool only the first address is this host's";
            pass.refuse(&format!("data_networks[{i}].{key}"), sentence, fix);
        }
    }
}

/// gNBs are no UEs, and are answered by another interface.
fn gnb_networks(config: &Config, pass: &mut Pass) {
    for network_of_gnbs in &config.n3.gnb_networks {
        let of_gnbs = network_of_gnbs.0;
        for (i, network) in config.data_networks.iter().enumerate() {
            let mut pass = |key: &str, pool: String| {
                let sentence = format!(
                    "{pool} overlaps {}/{}, a network of gNBs (`n3.gnb_networks`), so that they cannot be answered",
                    of_gnbs.address, of_gnbs.prefix
                );
                pass.refuse(&format!("data_networks[{i}].{key}"), sentence, "choose another pool");
            };
            match of_gnbs.address {
                IpAddr::V4(address) => {
                    let of_gnbs = NetworkPrefix { address, length: of_gnbs.prefix };
                    ipv4_pools(network)
                        .filter(|p| p.overlaps(&of_gnbs))
                        .for_each(|p| pass("ipv4_pool", p.to_string()));
                }
                IpAddr::V6(address) => {
                    let of_gnbs = NetworkPrefix { address, length: of_gnbs.prefix };
                    ipv6_pools(network)
                        .filter(|p| p.overlaps(&of_gnbs))
                        .for_each(|p| pass("ipv6_pool", p.to_string()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn parsed(text: &str) -> Result<(), String> {
        crate::config::parse(text, Path::new("w.yaml")).map(drop).map_err(|e| e.to_string())
    }

    #[test]
    fn servers_and_gnbs_among_the_addresses_of_ues_are_refused() {
        for (text, sentence) in [
            (
                "data_networks:\n  - dnn: internet\n    dns: 10.45.0.9\n",
                "data_networks[0].dns: the DNS server 10.45.0.9 is in 10.45.0.0/16, the pool of UEs of `internet`",
            ),
            (
                "data_networks:\n  - dnn: ims\n    ipv6_pool: fd00:45::/48\n    p_cscf: \"fd00:45:0:7::1\"\n",
                "the P-CSCF fd00:45:0:7::1 is in fd00:45::/48",
            ),
            (
                "data_networks:\n  - dnn: a\n  - dnn: b\n    ipv4_pool: 10.46.0.0/16\n    ipv6_pool: none\n    dns: 10.45.3.3\n",
                "data_networks[1].dns: the DNS server 10.45.3.3 is in 10.45.0.0/16, the pool of UEs of `a`",
            ),
            ("n3:\n  gnb_networks: 10.45.8.0/24\n", "10.45.0.0/16 overlaps 10.45.8.0/24, a network of gNBs"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(sentence), "{error}");
        }
        // The first address is the gateway's, which is this host.
        parsed("data_networks:\n  - dnn: internet\n    dns: 10.45.0.1\nn3:\n  gnb_networks: 192.0.2.0/24\n")
            .unwrap();
    }
}
