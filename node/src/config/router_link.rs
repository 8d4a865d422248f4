//! A dedicated interface of a data network, and its encapsulation: VLAN or GRE.

use std::net::IpAddr;

use whimbrel_user_io::{GreTunnel, RouterLink, Vlan};

use super::section::Section;

/// Reads the keys.
pub(super) fn read(s: &mut Section<'_, '_>) -> Option<RouterLink> {
    let interface: Option<String> = s.optional(
        "n6_interface",
        "eth2",
        "Dedicated interface of this data network, used by AF_XDP without the kernel's forwarding and address translation: \
         Ethernet, or a VLAN (`eth2.100`). See docs/packet-io.md.",
    );
    let routers: Vec<IpAddr> = s.list(
        "n6_routers",
        vec![],
        "Next hops for uplink packets on `n6_interface`: at most one IPv4 and one IPv6 address.",
    );
    let doc = "Only if `n6_interface` is a port of a software switch in a VLAN: the interface with the tagged frames. VLAN devices of \
               the kernel do not need it.";
    let (below, id) = s.section("n6_vlan", doc, |s| {
        let interface: Option<String> =
            s.optional("interface", "eth2", "Ethernet interface with the tagged frames.");
        let id: Option<u16> = s.optional("id", "100", "VLAN identifier, 1 to 4094.");
        (interface, id)
    });
    let doc = "GRE tunnel (RFC 2784) to a router over `n6_interface`, instead of `n6_routers`. Create the kernel's tunnel device too.";
    let (local, remote, key) = s.section("n6_gre", doc, |s| {
        let local: Option<IpAddr> = s.optional("local", "203.0.113.1", "Address of this host.");
        let remote: Option<IpAddr> = s.optional("remote", "203.0.113.2", "Address of the router.");
        let key: Option<u32> = s.optional("key", "7", "Key (RFC 2890), the same in both directions.");
        (local, remote, key)
    });
    let vlan = match (below, id) {
        (Some(interface), Some(id @ 1..=4094)) => Some(Vlan { interface, id }),
        (None, None) => None,
        (_, Some(id)) if !(1..=4094).contains(&id) => {
            s.refuse("n6_vlan.id", format!("{id} is not a VLAN identifier"), "write 1 to 4094");
            None
        }
        _ => {
            let what = "a VLAN needs an interface and an identifier";
            s.refuse("n6_vlan", what, "give it both `interface` and `id`, or leave it out");
            None
        }
    };
    let tunnel = match (local, remote) {
        (Some(local), Some(remote)) if local.is_ipv4() == remote.is_ipv4() && local != remote => {
            Some(GreTunnel { local, remote, key })
        }
        (Some(local), Some(remote)) => {
            let what = format!("a tunnel from {local} to {remote} is not possible");
            s.refuse("n6_gre.remote", what, "give both ends different addresses of one family");
            None
        }
        (None, None) if key.is_none() => None,
        _ => {
            s.refuse("n6_gre", "a tunnel has two ends", "give it both `local` and `remote`, or leave it out");
            None
        }
    };
    check_combination(s, interface.is_some(), &routers, vlan.is_some(), tunnel.is_some());
    interface.map(|interface| RouterLink { interface, routers, vlan, tunnel })
}

/// Reports keys that contradict each other.
fn check_combination(s: &mut Section<'_, '_>, interface: bool, routers: &[IpAddr], vlan: bool, tunnel: bool) {
    let together = "an interface and its routers must be set together";
    match (interface, routers.is_empty(), tunnel) {
        (true, true, false) => {
            s.refuse("n6_interface", together, "give it `n6_routers` or `n6_gre`, or leave both out");
        }
        (false, false, _) => s.refuse("n6_routers", together, "give it `n6_interface`, or leave both out"),
        (false, true, true) => {
            s.refuse("n6_gre", "a tunnel needs an interface", "give it `n6_interface`, or leave it out");
        }
        (true, false, true) => {
            s.refuse(
                "n6_gre",
                "the router is the remote end of the tunnel",
                "leave out `n6_routers`, or the tunnel",
            );
        }
        _ if vlan && !interface => {
            s.refuse("n6_vlan", "a VLAN needs an `n6_interface`", "give it `n6_interface`, or leave it out");
        }
        _ => {}
    }
    if [true, false].iter().any(|v4| routers.iter().filter(|r| r.is_ipv4() == *v4).count() > 1) {
        s.refuse(
            "n6_routers",
            "there can be one router for each address family",
            "keep one IPv4 and one IPv6 address",
        );
    }
}
