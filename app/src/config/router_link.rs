//! An interface of its own that a data network is reached by, and what its packets are put in there.

use std::net::IpAddr;

use whimbrel_user_io::{RouterLink, Tunnel, Vlan};

use super::section::Section;

/// What stands in the file.
pub(super) fn read(s: &mut Section<'_, '_>) -> Option<RouterLink> {
    let interface: Option<String> = s.optional(
        "n6_interface",
        "eth2",
        "An interface of its own, whose packets come and go by AF_XDP, past the kernel's forwarding and address translation: \
         Ethernet, or a VLAN (`eth2.100`). See docs/packet-io.md.",
    );
    let routers: Vec<IpAddr> = s.list(
        "n6_routers",
        vec![],
        "Who takes what UEs send over `n6_interface`: an IPv4 and an IPv6 address at most.",
    );
    let doc = "Where `n6_interface` is a software switch's port in a VLAN, whose frames have tags elsewhere. VLAN devices of \
               the kernel need none of this.";
    let (below, id) = s.section("n6_vlan", doc, |s| {
        let interface: Option<String> =
            s.optional("interface", "eth2", "The Ethernet interface that has the frames with tags.");
        let id: Option<u16> = s.optional("id", "100", "The VLAN's number: 1 to 4094.");
        (interface, id)
    });
    let doc = "A GRE tunnel (RFC 2784) to a router over `n6_interface`, instead of `n6_routers`. Make the kernel's own end too.";
    let (local, remote, key) = s.section("n6_gre", doc, |s| {
        let local: Option<IpAddr> = s.optional("local", "203.0.113.1", "This host's end.");
        let remote: Option<IpAddr> = s.optional("remote", "203.0.113.2", "The router's end.");
        let key: Option<u32> = s.optional("key", "7", "Its key (RFC 2890), the same both ways.");
        (local, remote, key)
    });
    let vlan = match (below, id) {
        (Some(interface), Some(id @ 1..=4094)) => Some(Vlan { interface, id }),
        (None, None) => None,
        (_, Some(id)) if !(1..=4094).contains(&id) => {
            s.refuse("n6_vlan.id", format!("{id} is no VLAN's number"), "write 1 to 4094");
            None
        }
        _ => {
            let what = "a VLAN is an interface with frames and a number";
            s.refuse("n6_vlan", what, "give it both `interface` and `id`, or leave it out");
            None
        }
    };
    let tunnel = match (local, remote) {
        (Some(local), Some(remote)) if local.is_ipv4() == remote.is_ipv4() && local != remote => {
            Some(Tunnel { local, remote, key })
        }
        (Some(local), Some(remote)) => {
            let what = format!("there is no tunnel from {local} to {remote}");
            s.refuse("n6_gre.remote", what, "give both ends an address of one family, each its own");
            None
        }
        (None, None) if key.is_none() => None,
        _ => {
            s.refuse("n6_gre", "a tunnel has two ends", "give it both `local` and `remote`, or leave it out");
            None
        }
    };
    judge(s, interface.is_some(), &routers, vlan.is_some(), tunnel.is_some());
    interface.map(|interface| RouterLink { interface, routers, vlan, tunnel })
}

/// What does not go together.
fn judge(s: &mut Section<'_, '_>, interface: bool, routers: &[IpAddr], vlan: bool, tunnel: bool) {
    let together = "an interface and its routers go together";
    match (interface, routers.is_empty(), tunnel) {
        (true, true, false) => {
            s.refuse("n6_interface", together, "give it `n6_routers` or `n6_gre`, or leave both out");
        }
        (false, false, _) => s.refuse("n6_routers", together, "give it `n6_interface`, or leave both out"),
        (false, true, true) => {
            s.refuse("n6_gre", "a tunnel goes over an interface", "give it `n6_interface`, or leave it out");
        }
        (true, false, true) => {
            s.refuse(
                "n6_gre",
                "a tunnel has its router at its other end",
                "leave out `n6_routers`, or the tunnel",
            );
        }
        _ if vlan && !interface => {
            s.refuse("n6_vlan", "a VLAN is `n6_interface`'s", "give it `n6_interface`, or leave it out");
        }
        _ => {}
    }
    if [true, false].iter().any(|v4| routers.iter().filter(|r| r.is_ipv4() == *v4).count() > 1) {
        s.refuse("n6_routers", "there is one way out for each family", "keep one IPv4 and one IPv6 address");
    }
}
