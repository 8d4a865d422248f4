//! The program that gives frames of the user plane to AF_XDP sockets, and everything else to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::asm::{Assembler, Label, Reg, Size, When};
use super::fast::{self, Fast};
use crate::sys::bpf::Instruction;

/// What is taken from the kernel on an interface.
#[derive(Clone, Debug)]
pub(crate) struct Steered {
    /// The interface's own Ethernet address; frames to others are the kernel's affair.
    pub(crate) mac: [u8; 6],
    /// N3: whole, unfragmented datagrams without IP options to these addresses and this port.
    pub(crate) ipv4: Option<Ipv4Addr>,
    /// Likewise.
    pub(crate) ipv6: Option<Ipv6Addr>,
    pub(crate) port: u16,
    /// N6: packets to phones.
    pub(crate) pools: Vec<Pool>,
}

/// Phones' addresses of a data network. What the kernel must answer is left to it: packets without IPv4 options that
/// are too long for phones, have no hops left, or are to the host's own address among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    /// The first address of all.
    pub(crate) first: IpAddr,
    /// Bits of it that all have.
    pub(crate) prefix: u8,
    /// The host's own.
    pub(crate) gateway: IpAddr,
    /// Octets of a packet to a phone.
    pub(crate) mtu: u16,
}

impl Steered {
    /// The addresses of N3 among some that are given.
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

impl Pool {
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

    /// Words of its first address and of its mask, as the program loads them.
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
pub(super) const UDP: u32 = 17;

/// Four octets as the program loads them: in the order of memory, on any host.
pub(super) fn word(octets: &[u8]) -> u32 {
    u32::from_ne_bytes([octets[0], octets[1], octets[2], octets[3]])
}

/// Two octets likewise.
pub(super) fn half(octets: [u8; 2]) -> u32 {
    u16::from_ne_bytes(octets).into()
}

/// Where fields of an IP header are in a frame.
struct Layout {
    destination: i16,
    /// Octets of the packet, or of what follows the header.
    length: i16,
    /// What the length does not count.
    uncounted: u32,
    hops: i16,
    protocol: i16,
    payload: i16,
}

const IPV4: Layout = Layout {
    destination: ETHERNET + 16,
    length: ETHERNET + 2,
    uncounted: 0,
    hops: ETHERNET + 8,
    protocol: ETHERNET + 9,
    payload: ETHERNET + 20,
};

const IPV6: Layout = Layout {
    destination: ETHERNET + 24,
    length: ETHERNET + 4,
    uncounted: 40,
    hops: ETHERNET + 7,
    protocol: ETHERNET + 6,
    payload: ETHERNET + 40,
};

/// The program: what is steered goes to the socket that `sockets`, a map by queue, has for the frame's queue, or to the
/// kernel where it has none. Before that the fast path has it, if there is one. Panics: if nothing is steered.
pub(crate) fn program(to: &Steered, sockets: i32, fast: Option<&Fast>) -> Vec<Instruction> {
    let (pools4, pools6): (Vec<Pool>, Vec<Pool>) = to.pools.iter().partition(|p| p.first.is_ipv4());
    let (with4, with6) = (to.ipv4.is_some() || !pools4.is_empty(), to.ipv6.is_some() || !pools6.is_empty());
    assert!(with4 || with6, "something is steered");
    let mut a = Assembler::default();
    let (pass, take, ipv6, down) = (a.label(), a.label(), a.label(), a.label());
    a.copy(Reg::R6, Reg::R1);
    a.load(Size::W, Reg::R2, Reg::R1, DATA);
    a.load(Size::W, Reg::R3, Reg::R1, DATA_END);
    within(&mut a, IPV4.payload, pass);
    expect(&mut a, Size::W, 0, word(&to.mac), pass);
    expect(&mut a, Size::H, 4, half([to.mac[4], to.mac[5]]), pass);
    a.load(Size::H, Reg::R5, Reg::R2, 12);
    if with6 {
        a.jump_if(Reg::R5, When::Equal, half([0x86, 0xdd]), ipv6);
    }
    a.jump_if(Reg::R5, When::NotEqual, half([0x08, 0x00]), pass);
    if with4 {
        expect(&mut a, Size::B, ETHERNET, 0x45, pass); // no options
        if let Some(address) = to.ipv4 {
            let other = a.label();
            expect(&mut a, Size::W, IPV4.destination, word(&address.octets()), other);
            a.load(Size::H, Reg::R5, Reg::R2, ETHERNET + 6);
            a.and(Reg::R5, half([0x3f, 0xff]) as i32); // a fragment: more of them, or not the first
            a.jump_if(Reg::R5, When::NotEqual, 0, pass);
            port(&mut a, &IPV4, to.port, pass);
            match fast {
                Some(fast) => fast::uplink(&mut a, fast, take),
                None => a.jump(take),
            }
            a.place(other);
        }
        for p in &pools4 {
            let place = fast.and_then(|f| f.places.iter().find(|(of, _)| of == p));
            match place {
                Some((_, first)) => pool(&mut a, &IPV4, p, &mut |a| fast::place(a, p, *first, down), pass),
                None => pool(&mut a, &IPV4, p, &mut |a| a.jump(take), pass),
            }
        }
    }
    a.jump(pass);
    if with6 {
        a.place(ipv6);
        within(&mut a, IPV6.payload, pass);
        if let Some(address) = to.ipv6 {
            let other = a.label();
            for (i, octets) in address.octets().chunks(4).enumerate() {
                expect(&mut a, Size::W, IPV6.destination + 4 * i as i16, word(octets), other);
            }
            port(&mut a, &IPV6, to.port, pass);
            a.jump(take);
            a.place(other);
        }
        pools6.iter().for_each(|p| pool(&mut a, &IPV6, p, &mut |a| a.jump(take), pass));
        a.jump(pass);
    }
    a.place(down);
    match fast {
        Some(fast) if !pools4.is_empty() => fast::downlink(&mut a, fast, take),
        _ => {}
    }
    a.place(take);
    a.load(Size::W, Reg::R2, Reg::R6, RX_QUEUE_INDEX);
    a.map(Reg::R1, sockets);
    a.set(Reg::R3, XDP_PASS);
    a.call(REDIRECT_MAP);
    a.exit();
    a.place(pass);
    a.set(Reg::R0, XDP_PASS);
    a.exit();
    a.finish()
}

/// Goes on only with a UDP datagram to the port.
fn port(a: &mut Assembler, at: &Layout, port: u16, pass: Label) {
    within(a, at.payload + 8, pass);
    expect(a, Size::B, at.protocol, UDP, pass);
    expect(a, Size::H, at.payload + 2, half(port.to_be_bytes()), pass);
}

/// Takes what is for phones of a pool, leaves to the kernel what it must answer, and goes on with the rest.
fn pool(a: &mut Assembler, at: &Layout, pool: &Pool, take: &mut dyn FnMut(&mut Assembler), pass: Label) {
    let (other, phone, alive) = (a.label(), a.label(), a.label());
    for (i, (first, mask)) in pool.words().into_iter().enumerate().filter(|(_, (_, mask))| *mask != 0) {
        a.load(Size::W, Reg::R5, Reg::R2, at.destination + 4 * i as i16);
        a.and(Reg::R5, mask as i32);
        a.jump_if(Reg::R5, When::NotEqual, first, other);
    }
    for (i, octets) in octets(pool.gateway).chunks(4).enumerate() {
        expect(a, Size::W, at.destination + 4 * i as i16, word(octets), phone);
    }
    a.jump(pass);
    a.place(phone);
    a.load(Size::H, Reg::R5, Reg::R2, at.length);
    a.big_endian_16(Reg::R5);
    a.jump_if(Reg::R5, When::Greater, u32::from(pool.mtu) - at.uncounted, pass);
    a.load(Size::B, Reg::R5, Reg::R2, at.hops);
    a.jump_if(Reg::R5, When::Greater, 1, alive);
    a.jump(pass);
    a.place(alive);
    take(a);
    a.place(other);
}

/// Goes on only if the frame has as many octets.
pub(super) fn within(a: &mut Assembler, octets: i16, pass: Label) {
    a.copy(Reg::R4, Reg::R2);
    a.add(Reg::R4, octets.into());
    a.jump_if_reg(Reg::R4, When::Greater, Reg::R3, pass);
}

/// Goes on only if the frame has this value there.
pub(super) fn expect(a: &mut Assembler, size: Size, offset: i16, value: u32, pass: Label) {
    a.load(size, Reg::R5, Reg::R2, offset);
    a.jump_if(Reg::R5, When::NotEqual, value, pass);
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;
    use crate::sys::bpf::{Program, SocketMap};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const XDP_REDIRECT: u32 = 4;
    const PASS: u32 = XDP_PASS as u32;

    /// A frame with a UDP datagram to port 2152, as the program wants it.
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

    /// A map with a socket for the first queue; `None`, with a sentence, where the host does not permit it.
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
            let none = Steered { mac: MAC, ipv4: None, ipv6: None, port: 2152, pools: Vec::new() };
            let to = none.with_addresses(addresses.iter().copied());
            Program::load(&program(&to, sockets.fd(), None)).unwrap_or_else(|e| panic!("{e}"))
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
    fn packets_to_phones_are_taken_unless_the_kernel_must_answer() {
        let Some((sockets, _socket)) = sockets() else { return };
        let pool = |first: &str, prefix, gateway: &str| Pool {
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
            let to = Steered { mac: MAC, ipv4: n3, ipv6: None, port: 2152, pools: pools.clone() };
            Program::load(&program(&to, sockets.fd(), None)).unwrap_or_else(|e| panic!("{e}"))
        };
        let alone = steered(None);
        let cases = [
            ("a phone", packet("10.45.0.2", 1400, 2), true),
            ("the last address", packet("10.45.255.255", 100, 64), true),
            ("one beyond", packet("10.46.0.0", 100, 64), false),
            ("the second pool", packet("10.46.15.255", 100, 64), true),
            ("beyond the second pool", packet("10.46.16.0", 100, 64), false),
            ("the host itself", packet("10.45.0.1", 100, 64), false),
            ("too long for phones", packet("10.45.0.2", 1401, 64), false),
            ("no hops left", packet("10.45.0.2", 100, 1), false),
            ("a phone by IPv6", packet("2001:db8:45:1::77", 1400, 2), true),
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
}
