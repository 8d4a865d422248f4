//! Addresses and MTU of a TUN device. They vanish with it.

use std::net::{IpAddr, Ipv6Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use whimbrel_user::DataNetwork;

use crate::config::FramesDevice;
use crate::sys::netlink::{Netlink, NetlinkRequest, attributes, interface_index};

/// How long the kernel may take to route an IPv6 address to itself: one entry of its work queue.
const ROUTED_WITHIN: Duration = Duration::from_millis(500);

/// Brings a device up with the gateway's address of each pool, whose prefix is the route to the UEs, and with routes to the addresses
/// that they are translated to. What was set, in words.
pub(crate) fn set_up(name: &str, dn: &DataNetwork) -> io::Result<Vec<String>> {
    let index = interface_index(name)?;
    let mut netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    let mut done = Vec::new();
    netlink.ask(vec![link(index, dn.mtu)])?;
    done.push(format!("made the interface {name} with an MTU of {}", dn.mtu));
    for pool in dn.all_ipv4_pools() {
        netlink.ask(vec![address(index, pool.gateway().into(), pool.prefix)])?;
        done.push(format!("gave {name} the address {}/{}", pool.gateway(), pool.prefix));
    }
    for pool in dn.nat_pools() {
        netlink.ask(vec![route(index, pool.first(), pool.prefix)])?;
        done.push(format!(
            "routed {}/{} to {name}",
            std::net::Ipv4Addr::from_bits(pool.first()),
            pool.prefix
        ));
    }
    for pool in dn.all_ipv6_pools() {
        netlink.ask(vec![address(index, pool.gateway().into(), pool.prefix)])?;
        await_local_route(pool.gateway());
        done.push(format!("gave {name} the address {}/{}", pool.gateway(), pool.prefix));
    }
    Ok(done)
}

/// Brings a TAP device up, as a port of its bridge if it is to be one. What was set, in words.
pub(crate) fn set_up_frames(frames: &FramesDevice, mtu: u16) -> io::Result<Vec<String>> {
    let FramesDevice { device, bridge } = frames;
    let index = interface_index(device)?;
    let mut request = link(index, mtu);
    let mut done = vec![format!("made the interface {device} for Ethernet frames")];
    if let Some(bridge) = bridge {
        let bridge_index = interface_index(bridge)?;
        request = request.attribute(libc::IFLA_MASTER, &bridge_index.to_ne_bytes());
        done.push(format!("made {device} a port of {bridge}"));
    }
    Netlink::open(libc::NETLINK_ROUTE)?.ask(vec![request])?;
    Ok(done)
}

/// Packets that wait in a device while its reader does not take them, as when the UPF dies and its replica goes on: a second at 4,000 packets a
/// second, and some 10 MiB of full ones.
const QUEUE_PACKETS: u32 = 4096;

/// struct ifinfomsg: up, with an MTU and a queue.
fn link(index: u32, mtu: u16) -> NetlinkRequest {
    let up = (libc::IFF_UP as u32).to_ne_bytes();
    let words = [[libc::AF_UNSPEC as u8, 0, 0, 0], index.to_ne_bytes(), up, up];
    // The kernel's order: family, padding, type (2 octets), index, flags, change.
    NetlinkRequest::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, words.as_flattened())
        .attribute(libc::IFLA_MTU, &u32::from(mtu).to_ne_bytes())
        .attribute(libc::IFLA_TXQLEN, &QUEUE_PACKETS.to_ne_bytes())
}

/// struct ifaddrmsg: an address whose prefix becomes a route, usable at once.
fn address(index: u32, address: IpAddr, prefix: u8) -> NetlinkRequest {
    let (family, octets) = match address {
        IpAddr::V4(a) => (libc::AF_INET, a.octets().to_vec()),
        IpAddr::V6(a) => (libc::AF_INET6, a.octets().to_vec()),
    };
    // There is no other host on the link, so no duplicate address detection.
    let mut fixed = vec![family as u8, prefix, libc::IFA_F_NODAD as u8, libc::RT_SCOPE_UNIVERSE];
    fixed.extend_from_slice(&index.to_ne_bytes());
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    NetlinkRequest::new(libc::RTM_NEWADDR, flags, &fixed)
        .attribute(libc::IFA_LOCAL, &octets)
        .attribute(libc::IFA_ADDRESS, &octets)
}

/// Waits until the kernel routes an IPv6 address to itself, which it does from a work queue, also without duplicate address detection. Before that it
/// sends a packet for the address back into the device. What takes longer than [`ROUTED_WITHIN`] is not waited for.
fn await_local_route(address: Ipv6Addr) {
    let route = format!("{:032x} 80 ", address.to_bits());
    let begun = Instant::now();
    while begun.elapsed() < ROUTED_WITHIN {
        let routes = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
        if routes.lines().any(|line| line.starts_with(&route)) {
            return;
        }
        sleep(Duration::from_millis(1));
    }
}

/// IPv4 networks that the main table has the device reach: first address and prefix. Errors: the kernel does not say.
pub(super) fn routes_of(index: u32) -> io::Result<Vec<(u32, u8)>> {
    let mut netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    netlink.filter_strictly();
    let fixed = [libc::AF_INET as u8, 0, 0, 0, libc::RT_TABLE_MAIN, 0, 0, 0, 0, 0, 0, 0];
    let request = NetlinkRequest::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &fixed);
    let answers = netlink.query(request.attribute(libc::RTA_OIF, &index.to_ne_bytes()))?;
    let route = |answer: &Vec<u8>| {
        let all: Vec<_> = attributes(answer.get(12..)?).collect();
        let of = |which: u16| {
            all.iter().find(|(kind, _)| *kind == which).and_then(|(_, v)| v.first_chunk::<4>().copied())
        };
        let is_by_it = of(libc::RTA_OIF).map(u32::from_ne_bytes) == Some(index);
        let first = of(libc::RTA_DST).map_or(0, u32::from_be_bytes);
        is_by_it.then_some((first, *answer.get(1)?))
    };
    Ok(answers.iter().filter_map(route).collect())
}

/// struct rtmsg: a network that is reached by the device.
fn route(index: u32, first: u32, prefix: u8) -> NetlinkRequest {
    // Family, lengths of destination and source, type of service, table, origin, scope, kind; then flags.
    let fixed = [
        [libc::AF_INET as u8, prefix, 0, 0],
        [libc::RT_TABLE_MAIN, libc::RTPROT_STATIC, libc::RT_SCOPE_LINK, libc::RTN_UNICAST],
        [0; 4],
    ];
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    NetlinkRequest::new(libc::RTM_NEWROUTE, flags, fixed.as_flattened())
        .attribute(libc::RTA_DST, &first.to_be_bytes())
        .attribute(libc::RTA_OIF, &index.to_ne_bytes())
}
