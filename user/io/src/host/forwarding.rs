//! Settings of other programs that keep UEs from what is beyond this host: forwarding that is off, and chains of nftables that drop what no rule permits.

use std::io;

use super::nat::{nft, text};
use super::upkeep::HostProblem;
use crate::sys::netlink::{Netlink, NetlinkRequest, attributes};

const IPV4: &str = "/proc/sys/net/ipv4/ip_forward";
const IPV6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
/// The chain's hook (NF_INET_FORWARD), and its policy (NF_DROP).
const HOOK_FORWARD: u32 = 2;
const POLICY_DROP: u32 = 0;

/// Forwarding that is off, of the families that are needed.
pub(crate) fn that_is_off(ipv4: bool, ipv6: bool) -> impl Iterator<Item = HostProblem> {
    let needed = [(ipv4, IPV4, "net.ipv4.ip_forward"), (ipv6, IPV6, "net.ipv6.conf.all.forwarding")];
    needed.into_iter().filter_map(|(is_needed, path, setting)| {
        let is_off = is_needed && std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "0");
        is_off.then_some(HostProblem::ForwardingOff { setting })
    })
}

/// A chain that packets pass on their way from interface to interface.
#[derive(Debug, PartialEq, Eq)]
struct ForwardChain {
    family: u8,
    table: String,
    name: String,
}

/// A device of UEs, with what a rule for them may name instead: their networks.
pub(crate) struct NamedDevice<'a> {
    pub(crate) device: &'a str,
    pub(crate) networks: &'a [Vec<u8>],
}

/// Chains that drop packets of these devices. Errors: the kernel does not say, or has no nftables.
pub(crate) fn that_is_dropped(devices: &[NamedDevice<'_>]) -> io::Result<Vec<HostProblem>> {
    let mut netlink = Netlink::open(libc::NETLINK_NETFILTER)?;
    let chains = netlink.query(list(nft::GET_CHAIN, nft::FAMILY_UNSPEC))?;
    let mut problems = Vec::new();
    for chain in chains.iter().filter_map(|answer| that_drops(answer)) {
        let rules = netlink.query(list(nft::GET_RULE, chain.family).attribute(1, &text(&chain.table)))?;
        let octets = match chain.family {
            nft::FAMILY_IPV4 => &[4][..],
            nft::FAMILY_IPV6 => &[16],
            _ => &[4, 16],
        };
        for NamedDevice { device, networks } in devices {
            if !networks.iter().any(|network| octets.contains(&network.len())) {
                continue; // the chain is of the other family
            }
            let names = |rule: &Vec<u8>| {
                contains(rule, device.as_bytes()) || networks.iter().any(|network| contains(rule, network))
            };
            if !rules.iter().any(names) {
                problems.push(HostProblem::Dropped {
                    family: chain.family,
                    table: chain.table.clone(),
                    chain: chain.name.clone(),
                    device: (*device).to_owned(),
                });
            }
        }
    }
    Ok(problems)
}

fn list(kind: u16, family: u8) -> NetlinkRequest {
    NetlinkRequest::new(nft::SUBSYSTEM << 8 | kind, libc::NLM_F_DUMP, &[family, 0, 0, 0])
}

fn contains(octets: &[u8], part: &[u8]) -> bool {
    octets.windows(part.len().max(1)).any(|w| w == part)
}

/// The chain of an answer, if it is one of the forwarding hook whose policy is to drop.
fn that_drops(answer: &[u8]) -> Option<ForwardChain> {
    let family = *answer.first()?;
    let all = answer.get(4..)?;
    let find = |of, which: u16| attributes(of).find(|(kind, _)| *kind == which).map(|(_, value)| value);
    let be = |value: &[u8]| value.first_chunk().map(|b| u32::from_be_bytes(*b));
    let name = |which| Some(String::from_utf8_lossy(find(all, which)?).trim_end_matches('\0').to_owned());
    let hook = find(find(all, 4)?, 1).and_then(be)?;
    let policy = find(all, 5).and_then(be)?;
    let of_ip = [nft::FAMILY_INET, nft::FAMILY_IPV4, nft::FAMILY_IPV6].contains(&family);
    let drops = of_ip && hook == HOOK_FORWARD && policy == POLICY_DROP;
    Some(ForwardChain { family, table: name(1)?, name: name(3)? }).filter(|_| drops)
}

/// Rules of a table of the family inet. Errors: as above.
pub(crate) fn rules_of(table: &str) -> io::Result<usize> {
    let mut netlink = Netlink::open(libc::NETLINK_NETFILTER)?;
    let rules = netlink.query(list(nft::GET_RULE, nft::FAMILY_INET).attribute(1, &text(table)))?;
    let is_of_it = |rule: &&Vec<u8>| {
        let name = attributes(rule.get(4..).unwrap_or_default()).find(|(kind, _)| *kind == 1);
        name.is_some_and(|(_, name)| name == text(table))
    };
    Ok(rules.iter().filter(is_of_it).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::Attributes;

    #[test]
    fn chain_of_the_forwarding_hook_with_the_policy_drop_drops() {
        let chain = |family: u8, hook: u32, policy: u32| {
            let hook = Attributes::default().with(1, &hook.to_be_bytes()).with(2, &[0; 4]);
            let all = Attributes::default()
                .with(1, b"filter\0")
                .with(3, b"FORWARD\0")
                .nested(4, hook)
                .with(5, &policy.to_be_bytes());
            that_drops(&[&[family, 0, 0, 0][..], all.octets()].concat())
        };
        let found = chain(2, 2, 0).unwrap();
        assert_eq!((found.family, &*found.table, &*found.name), (2, "filter", "FORWARD"));
        assert_eq!(chain(2, 2, 1), None, "it accepts");
        assert_eq!(chain(2, 1, 0), None, "of packets to the host");
        assert_eq!(chain(7, 2, 0), None, "of a bridge");
        assert_eq!(that_drops(&[2, 0, 0, 0]), None);
    }
}
