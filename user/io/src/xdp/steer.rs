//! The program that gives GTP-U of our address to AF_XDP sockets, and everything else to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::asm::{Assembler, Label, Reg, Size, When};
use crate::sys::bpf::Instruction;

/// What is taken from the kernel: whole, unfragmented datagrams without IP options to these addresses and this port.
#[derive(Clone, Debug)]
pub(crate) struct Steered {
    /// The interface's own Ethernet address; frames to others are the kernel's affair.
    pub(crate) mac: [u8; 6],
    pub(crate) ipv4: Option<Ipv4Addr>,
    pub(crate) ipv6: Option<Ipv6Addr>,
    pub(crate) port: u16,
}

impl Steered {
    /// The addresses among some that are given.
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

/// Helper `bpf_redirect_map` of linux/bpf.h.
const REDIRECT_MAP: i32 = 51;
/// Verdict of an XDP program: the kernel goes on with the frame.
const XDP_PASS: i32 = 2;
/// Fields of struct xdp_md.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

const ETHERNET: i16 = 14;
const UDP: u32 = 17;

/// Four octets as the program loads them: in the order of memory, on any host.
fn word(octets: &[u8]) -> u32 {
    u32::from_ne_bytes([octets[0], octets[1], octets[2], octets[3]])
}

/// Two octets likewise.
fn half(octets: [u8; 2]) -> u32 {
    u16::from_ne_bytes(octets).into()
}

/// The program: what is steered goes to the socket that `sockets`, a map by queue, has for the frame's queue, or to the
/// kernel where it has none.
pub(crate) fn program(to: &Steered, sockets: i32) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let (pass, take, ipv6) = (a.label(), a.label(), a.label());
    a.copy(Reg::R6, Reg::R1);
    a.load(Size::W, Reg::R2, Reg::R1, DATA);
    a.load(Size::W, Reg::R3, Reg::R1, DATA_END);
    // As far as an IPv4 datagram's ports; the shortest that can be of interest.
    within(&mut a, ETHERNET + 20 + 8, pass);
    expect(&mut a, Size::W, 0, word(&to.mac), pass);
    expect(&mut a, Size::H, 4, half([to.mac[4], to.mac[5]]), pass);
    a.load(Size::H, Reg::R5, Reg::R2, 12);
    if to.ipv6.is_some() {
        a.jump_if(Reg::R5, When::Equal, half([0x86, 0xdd]), ipv6);
    }
    a.jump_if(Reg::R5, When::NotEqual, half([0x08, 0x00]), pass);
    match to.ipv4 {
        Some(address) => {
            expect(&mut a, Size::B, ETHERNET, 0x45, pass); // no options
            a.load(Size::H, Reg::R5, Reg::R2, ETHERNET + 6);
            a.and(Reg::R5, half([0x3f, 0xff]) as i32); // a fragment: more of them, or not the first
            a.jump_if(Reg::R5, When::NotEqual, 0, pass);
            expect(&mut a, Size::B, ETHERNET + 9, UDP, pass);
            expect(&mut a, Size::W, ETHERNET + 16, word(&address.octets()), pass);
            expect(&mut a, Size::H, ETHERNET + 20 + 2, half(to.port.to_be_bytes()), pass);
            a.jump(take);
        }
        None => a.jump(pass),
    }
    a.place(ipv6);
    if let Some(address) = to.ipv6 {
        within(&mut a, ETHERNET + 40 + 8, pass);
        expect(&mut a, Size::B, ETHERNET + 6, UDP, pass);
        for (i, octets) in address.octets().chunks(4).enumerate() {
            expect(&mut a, Size::W, ETHERNET + 24 + 4 * i as i16, word(octets), pass);
        }
        expect(&mut a, Size::H, ETHERNET + 40 + 2, half(to.port.to_be_bytes()), pass);
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

/// Goes on only if the frame has as many octets.
fn within(a: &mut Assembler, octets: i16, pass: Label) {
    a.copy(Reg::R4, Reg::R2);
    a.add(Reg::R4, octets.into());
    a.jump_if_reg(Reg::R4, When::Greater, Reg::R3, pass);
}

/// Goes on only if the frame has this value there.
fn expect(a: &mut Assembler, size: Size, offset: i16, value: u32, pass: Label) {
    a.load(size, Reg::R5, Reg::R2, offset);
    a.jump_if(Reg::R5, When::NotEqual, value, pass);
}

#[cfg(test)]
mod tests {
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

    /// With another octet at a place.
    fn with(v4: bool, at: usize, octet: u8) -> Vec<u8> {
        let mut f = frame(v4);
        f[at] = octet;
        f
    }

    #[test] // by the kernel's own interpreter or compiler, after its verifier
    fn our_datagrams_are_taken_and_everything_else_is_left_to_the_kernel() {
        let sockets = match SocketMap::new(4) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: BPF maps are not permitted here ({e})");
                return;
            }
            other => other.unwrap(),
        };
        let socket = crate::sys::xsk::tests::unbound();
        sockets.set(0, std::os::fd::AsFd::as_fd(&socket)).unwrap();
        let (v4, v6) = (IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse::<IpAddr>().unwrap());
        let steered = |addresses: &[IpAddr]| {
            let none = Steered { mac: MAC, ipv4: None, ipv6: None, port: 2152 };
            let to = none.with_addresses(addresses.iter().copied());
            Program::load(&program(&to, sockets.fd())).unwrap_or_else(|e| panic!("{e}"))
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
}
