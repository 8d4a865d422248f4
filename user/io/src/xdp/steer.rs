//! The XDP program that redirects frames of the user plane to AF_XDP sockets and passes all others to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::asm::{Assembler, JumpCondition, Label, Reg, Size};
use super::fast::{self, Fast};
use crate::gre::GreTunnel;
use crate::sys::bpf::Instruction;

/// The frames that are redirected on an Ethernet interface, of one VLAN or untagged.
#[derive(Clone, Debug)]
pub(crate) struct SteeredFrames {
    /// VLAN identifier of the frames.
    pub(crate) vlan: Option<u16>,
    /// The interface's own Ethernet address; frames to other addresses are passed to the kernel.
    pub(crate) mac: [u8; 6],
    /// N3: whole, unfragmented datagrams without IP options to these addresses and this port.
    pub(crate) ipv4: Option<Ipv4Addr>,
    /// IPv6 address of the interface.
    pub(crate) ipv6: Option<Ipv6Addr>,
    pub(crate) port: u16,
    /// N6: packets to UEs.
    pub(crate) pools: Vec<UeAddressPool>,
    /// N6 too: tunnels with packets to UEs.
    pub(crate) tunnels: Vec<(GreTunnel, Vec<UeAddressPool>)>,
}

/// UEs' addresses of a data network. Packets that the kernel must answer are passed to it: those that are too long for
/// UEs, have no hops left, or are for the host's own address in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UeAddressPool {
    /// The first address of all.
    pub(crate) first: IpAddr,
    /// Length of the prefix in bits.
    pub(crate) prefix: u8,
    /// The host's own.
    pub(crate) gateway: IpAddr,
    /// Octets of a packet to a UE.
    pub(crate) mtu: u16,
}

impl SteeredFrames {
    /// Steering without any session.
    pub(crate) fn new(mac: [u8; 6], vlan: Option<u16>, port: u16) -> Self {
        Self { vlan, mac, ipv4: None, ipv6: None, port, pools: Vec::new(), tunnels: Vec::new() }
    }

    /// Sets the addresses of N3.
    pub(crate) fn with_addresses(mut self, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        for address in addresses {
            match address {
                IpAddr::V4(a) => self.ipv4 = Some(a),
                IpAddr::V6(a) => self.ipv6 = Some(a),
            }
        }
        self
    }
}

impl UeAddressPool {
    /// Whether an address is of it.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(a)) => {
                (first.to_bits() ^ a.to_bits()).leading_zeros() >= self.prefix.into()
            }
            (IpAddr::V6(first), IpAddr::V6(a)) => {
                (first.to_bits() ^ a.to_bits()).leading_zeros() >= self.prefix.into()
            }
            _ => false,
        }
    }

    /// Words of its first address and of its mask, in the program's byte order.
    pub(super) fn words(&self) -> Vec<(u32, u32)> {
        let octets = octets(self.first);
        let mask = |i: usize| {
            let bits = usize::from(self.prefix).saturating_sub(i * 8).min(8);
            (0xff00u32 >> bits) as u8
        };
        let masks: Vec<u8> = (0..octets.len()).map(mask).collect();
        octets.chunks(4).zip(masks.chunks(4)).map(|(f, m)| (word(f) & word(m), word(m))).collect()
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

/// Helper `bpf_redirect_map` of linux/bpf.h.
const REDIRECT_MAP: i32 = 51;
/// Verdict of an XDP program: the kernel goes on with the frame.
const XDP_PASS: i32 = 2;
/// Fields of struct xdp_md.
pub(super) const DATA: i16 = 0;
pub(super) const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

pub(super) const ETHERNET: i16 = 14;
/// Octets of a VLAN's tag.
const TAG: i16 = 4;
pub(super) const UDP: u32 = 17;
const GRE: u32 = 47;

/// Four octets as the program loads them: in the order of memory, on any host.
pub(super) fn word(octets: &[u8]) -> u32 {
    u32::from_ne_bytes([octets[0], octets[1], octets[2], octets[3]])
}

/// Two octets likewise.
pub(super) fn half(octets: [u8; 2]) -> u32 {
    u16::from_ne_bytes(octets).into()
}

/// Offsets of IP header fields in a frame.
#[derive(Clone, Copy)]
struct HeaderLayout {
    start: i16,
    source: i16,
    destination: i16,
    /// Octets of the packet, or of what follows the header.
    length: i16,
    /// What the length does not count.
    uncounted: u32,
    hops: i16,
    protocol: i16,
    payload: i16,
}

impl HeaderLayout {
    /// Of a packet without options that begins at an octet.
    fn of(v4: bool, start: i16) -> Self {
        let at = |v4_at: i16, v6_at: i16| start + if v4 { v4_at } else { v6_at };
        Self {
            start,
            source: at(12, 8),
            destination: at(16, 24),
            length: at(2, 4),
            uncounted: if v4 { 0 } else { 40 },
            hops: at(8, 7),
            protocol: at(9, 6),
            payload: at(20, 40),
        }
    }
}

/// EtherType of a family, in Ethernet and in GRE.
pub(super) fn kind(v4: bool) -> u32 {
    half(if v4 { [0x08, 0x00] } else { [0x86, 0xdd] })
}

/// The program: selected frames go to the socket of the frame's queue in the map `sockets`, or to the kernel if there is none.
/// The fast path, if any, gets untagged frames first. Panics: if nothing is selected.
pub(crate) fn program(to: &[SteeredFrames], sockets: i32, fast: Option<&Fast>) -> Vec<Instruction> {
    assert!(!to.is_empty(), "something is steered");
    let mut a = Assembler::default();
    let labels = Labels { pass: a.label(), take: a.label(), down: [a.label(), a.label()] };
    a.copy(Reg::R6, Reg::R1);
    a.load(Size::W, Reg::R2, Reg::R1, DATA);
    a.load(Size::W, Reg::R3, Reg::R1, DATA_END);
    let mut goes_down = [false; 2];
    for lane in to {
        let other = a.label();
        let fast = fast.filter(|_| lane.vlan.is_none());
        for (goes, v4) in goes_down.iter_mut().zip(FAMILIES) {
            *goes |= fast.is_some_and(|f| lane.pools.iter().any(|p| p.first.is_ipv4() == v4 && f.has(p)));
        }
        steer(&mut a, lane, fast, &labels, other);
        a.place(other);
    }
    a.jump(labels.pass);
    for ((label, goes), v4) in labels.down.into_iter().zip(goes_down).zip(FAMILIES) {
        if let Some(fast) = fast.filter(|_| goes) {
            a.place(label);
            fast::downlink(&mut a, fast, v4, labels.take);
        }
    }
    a.place(labels.take);
    a.load(Size::W, Reg::R2, Reg::R6, RX_QUEUE_INDEX);
    a.map(Reg::R1, sockets);
    a.set(Reg::R3, XDP_PASS);
    a.call(REDIRECT_MAP);
    a.exit();
    a.place(labels.pass);
    a.set(Reg::R0, XDP_PASS);
    a.exit();
    a.finish()
}

/// Jump targets of the program.
struct Labels {
    pass: Label,
    take: Label,
    /// Labels of the downlink, by address family.
    down: [Label; 2],
}

/// Whether a family is IPv4.
const FAMILIES: [bool; 2] = [true, false];

/// Judges frames of one VLAN, or untagged ones; jumps to `other` for other frames.
fn steer(a: &mut Assembler, to: &SteeredFrames, fast: Option<&Fast>, labels: &Labels, other: Label) {
    let &Labels { pass, take, down } = labels;
    let of_pool = |a: &mut Assembler, at: &HeaderLayout, p: &UeAddressPool, down| match fast
        .and_then(|f| f.places.iter().find(|(of, _)| of == p))
    {
        Some((_, first)) => pool(a, at, p, &mut |a| fast::place(a, p, *first, down), pass),
        None => pool(a, at, p, &mut |a| a.jump(take), pass),
    };
    let of = |v4: bool| move |p: &&UeAddressPool| p.first.is_ipv4() == v4;
    let has_pool = |v4: bool| {
        let of_n3 = if v4 { to.ipv4.is_some() } else { to.ipv6.is_some() };
        of_n3
            || to.pools.iter().any(|p| of(v4)(&p))
            || to.tunnels.iter().any(|(t, _)| t.remote.is_ipv4() == v4)
    };
    let start = ETHERNET + if to.vlan.is_some() { TAG } else { 0 };
    let (v4, v6) = (HeaderLayout::of(true, start), HeaderLayout::of(false, start));
    within(a, v4.payload, other);
    a.load(Size::H, Reg::R5, Reg::R2, 12);
    if let Some(id) = to.vlan {
        a.jump_if(Reg::R5, JumpCondition::NotEqual, half([0x81, 0x00]), other);
        a.load(Size::H, Reg::R5, Reg::R2, ETHERNET);
        a.and(Reg::R5, half([0x0f, 0xff]) as i32);
        a.jump_if(Reg::R5, JumpCondition::NotEqual, half(id.to_be_bytes()), other);
        a.load(Size::H, Reg::R5, Reg::R2, start - 2);
    }
    let ipv4 = a.label();
    a.jump_if(Reg::R5, JumpCondition::Equal, kind(true), ipv4);
    a.jump_if(Reg::R5, JumpCondition::NotEqual, kind(false), other);
    expect(a, Size::W, 0, word(&to.mac), pass);
    expect(a, Size::H, 4, half([to.mac[4], to.mac[5]]), pass);
    if has_pool(false) {
        within(a, v6.payload, pass);
        if let Some(address) = to.ipv6 {
            let other = a.label();
            expect_address(a, v6.destination, address.into(), other);
            port(a, &v6, to.port, pass);
            a.jump(take);
            a.place(other);
        }
        to.tunnels.iter().filter(|(t, _)| t.remote.is_ipv6()).for_each(|t| tunnel(a, &v6, t, take, pass));
        to.pools.iter().filter(of(false)).for_each(|p| of_pool(a, &v6, p, down[1]));
    }
    a.jump(pass);
    a.place(ipv4);
    expect(a, Size::W, 0, word(&to.mac), pass);
    expect(a, Size::H, 4, half([to.mac[4], to.mac[5]]), pass);
    if has_pool(true) {
        expect(a, Size::B, start, 0x45, pass); // no options
        if let Some(address) = to.ipv4 {
            let other = a.label();
            expect_address(a, v4.destination, address.into(), other);
            unfragmented(a, &v4, pass);
            port(a, &v4, to.port, pass);
            match fast {
                Some(fast) => fast::uplink(a, fast, take),
                None => a.jump(take),
            }
            a.place(other);
        }
        to.tunnels.iter().filter(|(t, _)| t.remote.is_ipv4()).for_each(|t| tunnel(a, &v4, t, take, pass));
        to.pools.iter().filter(of(true)).for_each(|p| of_pool(a, &v4, p, down[0]));
    }
    a.jump(pass);
}

/// Continues only with an unfragmented IPv4 packet.
fn unfragmented(a: &mut Assembler, at: &HeaderLayout, pass: Label) {
    a.load(Size::H, Reg::R5, Reg::R2, at.start + 6);
    a.and(Reg::R5, half([0x3f, 0xff]) as i32);
    a.jump_if(Reg::R5, JumpCondition::NotEqual, 0, pass);
}

/// Continues only with a UDP datagram to the port.
fn port(a: &mut Assembler, at: &HeaderLayout, port: u16, pass: Label) {
    within(a, at.payload + 8, pass);
    expect(a, Size::B, at.protocol, UDP, pass);
    expect(a, Size::H, at.payload + 2, half(port.to_be_bytes()), pass);
}

/// Redirects packets of a tunnel to UEs, passes those that the kernel must answer, and continues with frames that are not of the
/// tunnel.
fn tunnel(
    a: &mut Assembler,
    at: &HeaderLayout,
    (tunnel, pools): &(GreTunnel, Vec<UeAddressPool>),
    take: Label,
    pass: Label,
) {
    let other = a.label();
    expect(a, Size::B, at.protocol, GRE, other);
    expect_address(a, at.destination, tunnel.local, other);
    expect_address(a, at.source, tunnel.remote, other);
    if tunnel.remote.is_ipv4() {
        unfragmented(a, at, pass);
    }
    let inner = at.payload + tunnel.header_octets() as i16;
    for v4 in [true, false] {
        let next = a.label();
        let within_tunnel = HeaderLayout::of(v4, inner);
        within(a, within_tunnel.payload, next);
        expect(a, Size::H, at.payload + 2, kind(v4), next);
        expect(a, Size::H, at.payload, half(tunnel.flags()), other);
        if let Some(key) = tunnel.key {
            expect(a, Size::W, at.payload + 4, word(&key.to_be_bytes()), other);
        }
        if v4 {
            expect(a, Size::B, inner, 0x45, pass); // no options
        }
        for p in pools.iter().filter(|p| p.first.is_ipv4() == v4) {
            pool(a, &within_tunnel, p, &mut |a| a.jump(take), pass);
        }
        a.jump(pass);
        a.place(next);
    }
    a.jump(pass);
    a.place(other);
}

/// Redirects packets to UEs of a pool, passes those that the kernel must answer, and continues with the rest.
fn pool(
    a: &mut Assembler,
    at: &HeaderLayout,
    pool: &UeAddressPool,
    take: &mut dyn FnMut(&mut Assembler),
    pass: Label,
) {
    let (other, ue, alive) = (a.label(), a.label(), a.label());
    for (i, (first, mask)) in pool.words().into_iter().enumerate().filter(|(_, (_, mask))| *mask != 0) {
        a.load(Size::W, Reg::R5, Reg::R2, at.destination + 4 * i as i16);
        a.and(Reg::R5, mask as i32);
        a.jump_if(Reg::R5, JumpCondition::NotEqual, first, other);
    }
    expect_address(a, at.destination, pool.gateway, ue);
    a.jump(pass);
    a.place(ue);
    a.load(Size::H, Reg::R5, Reg::R2, at.length);
    a.big_endian_16(Reg::R5);
    a.jump_if(Reg::R5, JumpCondition::Greater, u32::from(pool.mtu) - at.uncounted, pass);
    a.load(Size::B, Reg::R5, Reg::R2, at.hops);
    a.jump_if(Reg::R5, JumpCondition::Greater, 1, alive);
    a.jump(pass);
    a.place(alive);
    take(a);
    a.place(other);
}

/// Continues only if the frame has this address there.
fn expect_address(a: &mut Assembler, at: i16, address: IpAddr, other: Label) {
    for (i, octets) in octets(address).chunks(4).enumerate() {
        expect(a, Size::W, at + 4 * i as i16, word(octets), other);
    }
}

/// Continues only if the frame has this many octets.
pub(super) fn within(a: &mut Assembler, octets: i16, pass: Label) {
    a.copy(Reg::R4, Reg::R2);
    a.add(Reg::R4, octets.into());
    a.jump_if_reg(Reg::R4, JumpCondition::Greater, Reg::R3, pass);
}

/// Continues only if the frame has this value there.
pub(super) fn expect(a: &mut Assembler, size: Size, offset: i16, value: u32, pass: Label) {
    a.load(size, Reg::R5, Reg::R2, offset);
    a.jump_if(Reg::R5, JumpCondition::NotEqual, value, pass);
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::sys::bpf::{Program, SocketMap};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const XDP_REDIRECT: u32 = 4;
    const PASS: u32 = XDP_PASS as u32;

    /// A frame with a UDP datagram to port 2152, as the program expects it.
    fn frame(v4: bool) -> Vec<u8> {
        let mut f = [&MAC[..], &[2, 0, 0, 0, 0, 9]].concat();
        if v4 {
            f.extend_from_slice(&[
                8, 0, 0x45, 0, 0, 36, 0, 1, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 9, 192, 0, 2, 1,
            ]);
        } else {
            f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 64]);
            f.extend_from_slice(&"2001:db8::9".parse::<Ipv6Addr>().unwrap().octets());
            f.extend_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        }
        f.extend_from_slice(&[0x30, 0x39, 8, 0x68, 0, 16, 0, 0, 0x32, 1, 0, 0, 0, 0, 0, 0]);
        f
    }

    /// A map with a socket for the first queue; `None`, with a printed reason, if the host does not permit it.
    fn sockets() -> Option<(SocketMap, OwnedFd)> {
        let sockets = match SocketMap::new(4) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: BPF maps are not permitted here ({e})");
                return None;
            }
            other => other.unwrap(),
        };
        let socket = crate::sys::xsk::tests::unbound();
        sockets.set(0, socket.as_fd()).unwrap();
        Some((sockets, socket))
    }

    /// With another octet at a place.
    fn with(v4: bool, at: usize, octet: u8) -> Vec<u8> {
        let mut f = frame(v4);
        f[at] = octet;
        f
    }

    #[test] // by the kernel's own interpreter or compiler, after its verifier
    fn our_datagrams_are_taken_and_everything_else_is_left_to_the_kernel() {
        let Some((sockets, _socket)) = sockets() else { return };
        let (v4, v6) = (IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse::<IpAddr>().unwrap());
        let steered = |addresses: &[IpAddr]| {
            let to = SteeredFrames::new(MAC, None, 2152).with_addresses(addresses.iter().copied());
            Program::load(&program(&[to], sockets.fd(), None)).unwrap_or_else(|e| panic!("{e}"))
        };
        let both = steered(&[v4, v6]);
        let verdict = |frame: &[u8]| both.verdict(frame).unwrap();
        assert_eq!((verdict(&frame(true)), verdict(&frame(false))), (XDP_REDIRECT, XDP_REDIRECT));
        assert_eq!(steered(&[v4]).verdict(&frame(false)).unwrap(), PASS, "no address of that family");
        assert_eq!(steered(&[v6]).verdict(&frame(true)).unwrap(), PASS);
        let passed = [
            ("another's frame", with(true, 5, 7)),
            ("a broadcast", [&[0xff; 6], &frame(true)[6..]].concat()),
            ("ARP", with(true, 13, 6)),
            ("IP options", with(true, 14, 0x46)),
            ("a first fragment", with(true, 20, 0x20)),
            ("a later fragment", with(true, 21, 1)),
            ("SCTP", with(true, 23, 132)),
            ("another address", with(true, 33, 2)),
            ("another port", with(true, 37, 0x69)),
            ("ICMPv6", with(false, 20, 58)),
            ("an IPv6 fragment", with(false, 20, 44)),
            ("another IPv6 address, first word", with(false, 38, 0x21)),
            ("another IPv6 address, last word", with(false, 53, 2)),
            ("another port over IPv6", with(false, 57, 0x69)),
            ("a frame cut in the UDP header", frame(true)[..41].to_vec()),
            ("an IPv6 frame cut in the UDP header", frame(false)[..61].to_vec()),
            ("the shortest frame", frame(true)[..14].to_vec()),
        ];
        for (what, frame) in passed {
            assert_eq!(verdict(&frame), PASS, "{what}");
        }
    }

    /// A packet to an address, of a length and with hops left.
    fn packet(to: &str, octets: u16, hops: u8) -> Vec<u8> {
        let v4 = to.parse::<IpAddr>().unwrap().is_ipv4();
        let mut f = frame(v4);
        let (destination, length, hop_limit) = if v4 { (30, octets, 22) } else { (38, octets - 40, 21) };
        let (at, to) = (if v4 { 16 } else { 18 }, super::octets(to.parse().unwrap()));
        f[at..at + 2].copy_from_slice(&length.to_be_bytes());
        f[hop_limit] = hops;
        f[destination..destination + to.len()].copy_from_slice(&to);
        f
    }

    #[test]
    fn packets_to_ues_are_taken_unless_the_kernel_must_answer() {
        let Some((sockets, _socket)) = sockets() else { return };
        let pool = |first: &str, prefix, gateway: &str| UeAddressPool {
            first: first.parse().unwrap(),
            prefix,
            gateway: gateway.parse().unwrap(),
            mtu: 1400,
        };
        let pools = vec![
            pool("10.45.0.0", 16, "10.45.0.1"),
            pool("10.46.8.0", 21, "10.46.8.1"),
            pool("2001:db8:45::", 48, "2001:db8:45::1"),
            pool("fd00:9997::", 33, "fd00:9997::1"),
        ];
        for pool in &pools {
            assert!(pool.contains(pool.first) && pool.contains(pool.gateway));
        }
        let steered = |n3: Option<Ipv4Addr>| {
            let to = SteeredFrames { ipv4: n3, pools: pools.clone(), ..SteeredFrames::new(MAC, None, 2152) };
            Program::load(&program(&[to], sockets.fd(), None)).unwrap_or_else(|e| panic!("{e}"))
        };
        let alone = steered(None);
        let cases = [
            ("a UE", packet("10.45.0.2", 1400, 2), true),
            ("the last address", packet("10.45.255.255", 100, 64), true),
            ("one beyond", packet("10.46.0.0", 100, 64), false),
            ("the second pool", packet("10.46.15.255", 100, 64), true),
            ("beyond the second pool", packet("10.46.16.0", 100, 64), false),
            ("the host itself", packet("10.45.0.1", 100, 64), false),
            ("too long for UEs", packet("10.45.0.2", 1401, 64), false),
            ("no hops left", packet("10.45.0.2", 100, 1), false),
            ("a UE by IPv6", packet("2001:db8:45:1::77", 1400, 2), true),
            ("another network by IPv6", packet("2001:db8:46::77", 100, 64), false),
            ("a prefix inside a word", packet("fd00:9997:7fff::1", 100, 64), true),
            ("beyond it", packet("fd00:9997:8000::1", 100, 64), false),
            ("the host itself by IPv6", packet("2001:db8:45::1", 100, 64), false),
            ("too long by IPv6", packet("2001:db8:45:1::77", 1401, 64), false),
            ("no hops left by IPv6", packet("2001:db8:45:1::77", 100, 1), false),
            ("N3 is elsewhere", frame(true), false),
        ];
        for (what, frame, taken) in cases {
            assert_eq!(alone.verdict(&frame).unwrap(), if taken { XDP_REDIRECT } else { PASS }, "{what}");
        }
        let both = steered(Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(both.verdict(&frame(true)).unwrap(), XDP_REDIRECT, "N3 and N6 on one interface");
        assert_eq!(both.verdict(&packet("10.45.0.2", 100, 64)).unwrap(), XDP_REDIRECT);
    }

    /// A frame with a tag put in.
    fn tagged(frame: &[u8], tag: u16) -> Vec<u8> {
        [&frame[..12], &[0x81, 0], &tag.to_be_bytes(), &frame[12..]].concat()
    }

    fn ues(first: &str, prefix: u8, gateway: &str) -> UeAddressPool {
        UeAddressPool { first: first.parse().unwrap(), prefix, gateway: gateway.parse().unwrap(), mtu: 1400 }
    }

    #[test] // IEEE 802.1Q §9.6: the number is the lower twelve bits, the others a priority
    fn frames_of_a_vlan_are_distinguished_from_others() {
        let Some((sockets, _socket)) = sockets() else { return };
        let n3 = SteeredFrames {
            ipv4: Some(Ipv4Addr::new(192, 0, 2, 1)),
            ..SteeredFrames::new(MAC, Some(7), 2152)
        };
        let pools = vec![ues("10.45.0.0", 16, "10.45.0.1"), ues("2001:db8:45::", 48, "2001:db8:45::1")];
        let other_mac = [2, 0, 0, 0, 0, 3];
        let n6 = SteeredFrames { pools: pools.clone(), ..SteeredFrames::new(other_mac, Some(0x123), 2152) };
        let plain = SteeredFrames {
            pools: vec![ues("10.46.0.0", 16, "10.46.0.1")],
            ..SteeredFrames::new(MAC, None, 2152)
        };
        let both =
            Program::load(&program(&[plain, n3, n6], sockets.fd(), None)).unwrap_or_else(|e| panic!("{e}"));
        let to_other = |mut frame: Vec<u8>| {
            frame[..6].copy_from_slice(&other_mac);
            frame
        };
        let ue = to_other(packet("10.45.0.2", 100, 64));
        let ue6 = to_other(packet("2001:db8:45:1::77", 100, 64));
        let cases = [
            ("a datagram in the VLAN", tagged(&frame(true), 7), true),
            ("with a priority", tagged(&frame(true), 0xe007), true),
            ("in another VLAN", tagged(&frame(true), 8), false),
            ("in the other VLAN that is steered", tagged(&frame(true), 0x123), false),
            ("without a tag", frame(true), false),
            ("a tag within a tag", tagged(&tagged(&frame(true), 7), 7), false),
            ("cut", tagged(&frame(true), 7)[..45].to_vec(), false),
            ("a UE in its VLAN", tagged(&ue, 0x123), true),
            ("a UE in its VLAN by IPv6", tagged(&ue6, 0x123), true),
            ("a UE in the other VLAN", tagged(&packet("10.45.0.2", 100, 64), 7), false),
            ("a UE without a tag", ue.clone(), false),
            ("a UE of the network without a tag", packet("10.46.0.2", 100, 64), true),
            ("the same in a VLAN", tagged(&to_other(packet("10.46.0.2", 100, 64)), 0x123), false),
            ("to another's address in the VLAN", tagged(&packet("10.45.0.2", 100, 64), 0x123), false),
            ("too long", tagged(&to_other(packet("10.45.0.2", 1401, 64)), 0x123), false),
        ];
        for (what, frame, taken) in cases {
            assert_eq!(both.verdict(&frame).unwrap(), if taken { XDP_REDIRECT } else { PASS }, "{what}");
        }
    }

    #[test]
    fn tunnels_give_what_is_for_ues_and_the_kernel_has_the_rest() {
        let Some((sockets, _socket)) = sockets() else { return };
        let ends = |v4| if v4 { ["203.0.113.1", "203.0.113.2"] } else { ["2001:db8::1", "2001:db8::2"] };
        let tunnel = |v4: bool, key: Option<u32>| {
            let [local, remote] = ends(v4).map(|a| a.parse().unwrap());
            GreTunnel { local, remote, key }
        };
        // What the other end writes.
        let wrapped = |t: GreTunnel, inner: &[u8]| {
            let far_end = GreTunnel { local: t.remote, remote: t.local, ..t };
            let mut room = [0; 2000];
            use crate::ports::af_xdp::packet;
            let link = packet::FrameAddresses { to: MAC, from: [9; 6], vlan: None };
            let n = packet::write(&mut room, link, Some(&far_end), inner);
            room[..n].to_vec()
        };
        let inner = |to: &str, octets: u16, hops: u8| packet(to, octets, hops)[14..].to_vec();
        let all = vec![ues("10.45.0.0", 16, "10.45.0.1"), ues("2001:db8:45::", 48, "2001:db8:45::1")];
        for v4 in [true, false] {
            for key in [None, Some(7)] {
                let t = tunnel(v4, key);
                let other_key = GreTunnel { key: Some(8), ..t };
                let tunnels = vec![(other_key, vec![ues("10.46.0.0", 16, "10.46.0.1")]), (t, all.clone())];
                let to = SteeredFrames { tunnels, ..SteeredFrames::new(MAC, None, 2152) };
                let it = Program::load(&program(&[to], sockets.fd(), None)).unwrap_or_else(|e| panic!("{e}"));
                let mut fragment = wrapped(t, &inner("10.45.0.2", 100, 64));
                fragment[20] |= 0x20;
                let mut checksummed = wrapped(t, &inner("10.45.0.2", 100, 64));
                checksummed[if v4 { 34 } else { 54 }] |= 0x80;
                let cases = [
                    ("a UE", wrapped(t, &inner("10.45.0.2", 1400, 9)), true),
                    ("a UE by IPv6", wrapped(t, &inner("2001:db8:45:1::77", 1400, 9)), true),
                    ("another pool", wrapped(t, &inner("10.46.0.2", 100, 9)), false),
                    ("by the other tunnel", wrapped(other_key, &inner("10.46.0.2", 100, 9)), true),
                    ("a UE of this by the other", wrapped(other_key, &inner("10.45.0.2", 100, 9)), false),
                    (
                        "another key",
                        wrapped(GreTunnel { key: Some(9), ..t }, &inner("10.45.0.2", 100, 9)),
                        false,
                    ),
                    (
                        "the way back",
                        wrapped(
                            GreTunnel { local: t.remote, remote: t.local, ..t },
                            &inner("10.45.0.2", 100, 9),
                        ),
                        false,
                    ),
                    ("not by a tunnel", packet("10.45.0.2", 100, 9), false),
                    ("the host itself", wrapped(t, &inner("10.45.0.1", 100, 9)), false),
                    ("too long", wrapped(t, &inner("10.45.0.2", 1401, 9)), false),
                    ("no hops left", wrapped(t, &inner("10.45.0.2", 100, 2)), false),
                    ("a checksum", checksummed, false),
                    ("a fragment", fragment, !v4), // IPv6 has another field there
                ];
                for (what, frame, taken) in cases {
                    let verdict = it.verdict(&frame).unwrap();
                    assert_eq!(verdict, if taken { XDP_REDIRECT } else { PASS }, "{what}, {v4}, {key:?}");
                }
            }
        }
    }
}
