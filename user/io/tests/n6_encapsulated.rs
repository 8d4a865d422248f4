//! A data network behind a VLAN, and behind GRE tunnels, by AF_XDP. Many kernels are built without either, so the far end's tags and headers
//! are put on and taken off here, octet by octet, and the kernels on both sides do the rest.

use super::common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use common::*;
use whimbrel_user_io::{Config, GreTunnel, N3Io, RouterLink, StartError, UserPlane, Vlan};

const KINDS: [(&str, N3Io); 2] = [("udp", N3Io::Udp), ("af_xdp", N3Io::AfXdp)];
const SERVER_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 2);
/// What is reached through tunnels.
const BEYOND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const BEYOND_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 1);
const VLAN: u16 = 100;

/// The packet thread takes nothing from the kernel's forwarding, which is off.
fn by(n3_io: N3Io, link: RouterLink) -> Config {
    let mut config = config(n3_io);
    config.forwarding = false;
    config.devices[0].link = Some(link);
    config
}

/// Something that carries packets between the ends of a link until it is dropped.
struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Calls `carry` with the readable descriptor.
    fn between(descriptors: Vec<RawFd>, mut carry: impl FnMut(usize) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let entry = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
            let mut polled: Vec<_> = descriptors.iter().map(entry).collect();
            while !stopped.load(Ordering::Relaxed) {
                // SAFETY: as many entries as given, which live through the call.
                unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, 20) };
                let ready = polled.iter().enumerate().filter(|(_, p)| p.revents & libc::POLLIN != 0);
                ready.map(|(i, _)| i).collect::<Vec<_>>().into_iter().for_each(&mut carry);
            }
        };
        Self { stop, thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|e| e.is_ok()));
    }
}

/// The next packet; none where a socket has an ICMP error instead: a kernel without GRE answers what is not for UEs so.
fn read(mut from: &File) -> Vec<u8> {
    let mut octets = vec![0; 4096];
    let n = from.read(&mut octets).unwrap_or(0);
    octets.truncate(n);
    octets
}

/// The server behind a trunk: here `n6`, whose frames have tags, and `n6v`, the kernel's own end of the VLAN.
fn trunk() -> (Namespace, Relay) {
    let server = Namespace::beside(
        "unused",
        "unused-too",
        ["192.0.2.101/31", "fd00:1::1/64"],
        ["192.0.2.100/31", "fd00:1::2/64"],
    );
    let (trunk, own, far) = (device("n6", true), device("n6v", true), server.device("server", true));
    sh("ip link set n6 up; ip link set n6v up; ip address add 203.0.113.1/24 dev n6v
        ip address add 2001:db8:113::1/64 dev n6v nodad");
    server.sh("ip link set server up; ip address add 203.0.113.2/24 dev server
         ip address add 2001:db8:113::2/64 dev server nodad
         ip route add 10.45.0.0/16 via 203.0.113.1; ip -6 route add 2001:db8:45::/48 via 2001:db8:113::1");
    let descriptors = vec![trunk.as_raw_fd(), own.as_raw_fd(), far.as_raw_fd()];
    let relay = Relay::between(descriptors, move |which| match which {
        0 => {
            let frame = read(&trunk);
            if frame[12..16] == [0x81, 0, 0, VLAN as u8] {
                (&far).write_all(&[&frame[..12], &frame[16..]].concat()).unwrap();
            }
        }
        1 => (&far).write_all(&read(&own)).unwrap(),
        _ => {
            let frame = read(&far);
            let tagged = [&frame[..12], &[0x81, 0, 0xa0, VLAN as u8], &frame[12..]].concat();
            (&trunk).write_all(&tagged).unwrap();
            (&own).write_all(&frame).unwrap();
        }
    });
    (server, relay)
}

fn by_vlan(io: N3Io) -> Config {
    let vlan = Some(Vlan { interface: "n6".into(), id: VLAN });
    let routers = vec![SERVER.into(), SERVER_IPV6.into()];
    by(io, RouterLink { interface: "n6v".into(), routers, vlan, tunnel: None })
}

#[test] // IEEE 802.1Q: tags both ways, a priority among them; ARP and neighbour discovery by the kernel's own end
fn a_data_network_behind_a_vlan() {
    with_io("a_data_network_behind_a_vlan", &KINDS, |io, ran| {
        let (_server, _relay) = trunk();
        let Some(mut net) = Control::start(by_vlan(io)) else { return };
        pings(&mut net, &ran, SERVER, SERVER_IPV6);
    });
}

#[test]
fn the_fast_path_has_no_vlan_and_says_so() {
    with_io("the_fast_path_has_no_vlan_and_says_so", &[("xdp", N3Io::Xdp)], |io, _ran| {
        let (_server, _relay) = trunk();
        let text = UserPlane::start(by_vlan(io)).err().expect("refused").to_string();
        assert!(text.contains("neither in a VLAN"), "{text}");
    });
}

/// Pings both ways, of all lengths that UEs send, by rings alone.
fn pings(net: &mut Control, ran: &Namespace, v4: Ipv4Addr, v6: Ipv6Addr) {
    let (id, teid, ue, prefix) = net.session();
    let ue6 = Ipv6Addr::from_bits(prefix.to_bits() | 5);
    let gnb = ran.socket(GNB.into());
    for (sequence, payload) in [(1, 20), (2, 1300), (3, 1372)] {
        let reply = exchange(&gnb, teid, &ping4(ue, v4, sequence, payload), |p| {
            p.first() == Some(&0x45) && p[20] == 0 && p[26..28] == sequence.to_be_bytes()
        });
        assert_eq!((reply.len(), &reply[12..20]), (28 + payload, &[v4.octets(), ue.octets()].concat()[..]));
        assert_eq!((reply[8], checksum(&reply[..20], 0)), (63, 0), "a hop less");
        let reply = exchange(&gnb, teid, &ping6(ue6, v6, sequence, payload - 20), |p| {
            p.first() == Some(&0x60) && p[40] == 129 && p[46..48] == sequence.to_be_bytes()
        });
        assert_eq!((reply.len(), reply[7]), (28 + payload, 63));
    }
    let counters = net.session_counters(id);
    assert!(counters.ul_packets >= 6 && counters.dl_packets >= 6, "{counters:?}");
    let by_rings = || {
        let io = net.handle.io_counters();
        io.n6_sent >= io.n6_sent_by_device + 6 && io.n6_received >= 6
    };
    eventually(by_rings, || format!("{:?}", net.handle.io_counters()));
    let io = net.handle.io_counters();
    assert_eq!((io.malformed, io.send_errors, io.send_full), (0, 0, 0), "{io:?}");
}

/// A raw socket of GRE.
fn gre_socket(v4: bool) -> File {
    use std::os::fd::FromRawFd;
    let family = if v4 { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain values in, a descriptor or -1 out, which nothing else has.
    unsafe {
        let fd = libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_GRE);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        File::from_raw_fd(fd)
    }
}

/// The other end of a tunnel, with what is beyond it: GRE's header is all that is not the kernel's.
fn far_end(server: &Namespace, tunnel: GreTunnel) -> Relay {
    let far = server.device("far", false);
    server.sh(&format!(
        "ip link set far mtu 1400 up; ip address add {BEYOND}/32 dev far; ip address add {BEYOND_IPV6}/128 dev far nodad
         ip route add 10.45.0.0/16 dev far src {BEYOND}; ip route add 2001:db8:45::/48 dev far src {BEYOND_IPV6}"
    ));
    let v4 = tunnel.local.is_ipv4();
    let socket = server.enter(move || {
        let socket = gre_socket(v4);
        let to = SocketAddr::new(tunnel.local, 0);
        // The standard library connects a socket of any kind, if it is made as one of UDP.
        let socket = UdpSocket::from(std::os::fd::OwnedFd::from(socket));
        socket.connect(to).unwrap();
        File::from(std::os::fd::OwnedFd::from(socket))
    });
    let key = tunnel.key.map(u32::to_be_bytes);
    let header = key.map_or(4, |_| 8);
    Relay::between(vec![socket.as_raw_fd(), far.as_raw_fd()], move |which| {
        if which == 0 {
            let packet = read(&socket);
            if packet.is_empty() {
                return;
            }
            let gre = if v4 { &packet[20..] } else { &packet[..] };
            let flags = if key.is_some() { 0x20 } else { 0 };
            assert_eq!(gre[..2], [flags, 0]);
            assert!(key.is_none_or(|k| gre[4..8] == k));
            let kind: [u8; 2] = if gre[header] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
            assert_eq!(gre[2..4], kind);
            (&far).write_all(&gre[header..]).unwrap();
        } else {
            let packet = read(&far);
            let flags = if key.is_some() { 0x20 } else { 0 };
            let kind: [u8; 2] = if packet[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
            let key = key.as_ref().map_or(&[][..], |k| &k[..]);
            // The error of what went before is not this one's.
            let octets = [&[flags, 0][..], &kind, key, &packet].concat();
            (&socket).write_all(&octets).or_else(|_| (&socket).write_all(&octets)).ok();
        }
    })
}

fn by_tunnel(io: N3Io, v4: bool, key: Option<u32>) -> (Config, GreTunnel) {
    let (local, remote): (IpAddr, IpAddr) = match v4 {
        true => (Ipv4Addr::new(203, 0, 113, 1).into(), SERVER.into()),
        false => (Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 1).into(), SERVER_IPV6.into()),
    };
    let tunnel = GreTunnel { local, remote, key };
    (by(io, RouterLink { interface: "n6".into(), routers: vec![], vlan: None, tunnel: Some(tunnel) }), tunnel)
}

#[test] // RFC 2784, RFC 2890
fn a_data_network_behind_gre_over_ipv4() {
    with_io("a_data_network_behind_gre_over_ipv4", &KINDS, |io, ran| {
        let server = Namespace::server();
        let (config, tunnel) = by_tunnel(io, true, Some(0x0102_0304));
        let _relay = far_end(&server, tunnel);
        let Some(mut net) = Control::start(config) else { return };
        pings(&mut net, &ran, BEYOND, BEYOND_IPV6);
    });
}

#[test] // RFC 7676
fn a_data_network_behind_gre_over_ipv6() {
    with_io("a_data_network_behind_gre_over_ipv6", &KINDS, |io, ran| {
        let server = Namespace::server();
        let (config, tunnel) = by_tunnel(io, false, None);
        let _relay = far_end(&server, tunnel);
        let Some(mut net) = Control::start(config) else { return };
        pings(&mut net, &ran, BEYOND, BEYOND_IPV6);
    });
}

#[test]
fn what_a_tunnel_does_not_hold_goes_to_the_kernel_whole() {
    with_io("what_a_tunnel_does_not_hold_goes_to_the_kernel_whole", &KINDS, |io, ran| {
        let server = Namespace::server();
        let (config, tunnel) = by_tunnel(io, true, Some(7));
        let _relay = far_end(&server, tunnel);
        // The tunnel takes 28 octets of each frame's 1,420.
        sh("ip link set n6 mtu 1420");
        let Some(mut net) = Control::start(config) else { return };
        let (_, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        exchange(&gnb, teid, &ping4(ue, BEYOND, 1, 1364), |p| p.first() == Some(&0x45) && p[20] == 0);
        let before = net.handle.io_counters();
        gnb.send_to(&g_pdu(teid, &ping4(ue, BEYOND, 2, 1365)), (UPF, 2152)).unwrap();
        let left_out = || net.handle.io_counters().n6_sent_by_device > before.n6_sent_by_device;
        eventually(left_out, || format!("{:?}", net.handle.io_counters()));
    });
}

#[test]
fn an_interface_without_a_router_is_one_sentence() {
    if !inside("an_interface_without_a_router_is_one_sentence") {
        return;
    }
    let _ran = Namespace::ran();
    let link = RouterLink { interface: "n3".into(), routers: vec![], vlan: None, tunnel: None };
    let Err(e @ StartError::AfXdp(_)) = UserPlane::start(by(N3Io::Udp, link)) else { panic!() };
    assert!(e.to_string().contains("n3 leads to no router: name one in `n6_routers`"), "{e}");
}
