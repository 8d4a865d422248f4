//! Which of the sockets that share an address gets a datagram: a program of the classic kind, which needs no privileges, reads what the operator
//! has chosen and names the socket.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use whimbrel_user::Teids;

use crate::config::SpreadBy;
use crate::sys::check;

/// The accumulator, as what a classic program returns, and what an offset from the IP header begins with (linux/filter.h); `libc` has neither.
const BPF_A: u32 = 0x10;
const NETWORK_HEADER: u32 = (-0x10_0000i32) as u32;

/// Where the octets that say what follows are in a GTP-U header, where its TEID is, and where it ends without optional fields (TS 29.281 §5.1).
const FLAGS_AT: u32 = 0;
const TEID_AT: u32 = 4;
const HEADER_OCTETS: u32 = 8;
/// Flags: any optional field is there; a next extension header type is there.
const OPTIONAL: u32 = 7;
const EXTENDED: u32 = 4;
/// Where the type of the first extension header is.
const NEXT_TYPE_AT: u32 = 11;
/// Extension headers that are passed over: G-PDUs have the PDU session container, and few others (TS 29.281 §5.2.1).
const EXTENSIONS: usize = 4;

/// What tells UEs' addresses apart, in a packet of a UE: the source of IPv4, and the lower half of the prefix of an IPv6 source.
const UE_AT: u32 = 12;

/// The source address in an IP header of each version, and the source port behind a header without options.
const IPV4_SOURCE_AT: u32 = 12;
const IPV6_SOURCE_AT: u32 = 8;
const IPV4_OCTETS: u32 = 20;
const IPV6_OCTETS: u32 = 40;

/// Odd, so that no two words become one, and without a pattern: what `Teids` multiplies with in its first round.
const MULTIPLIER: u32 = 0x9a3f_52c5;

/// Has the kernel choose among so many sockets, a power of two, that share the address of this one. What cannot be read, such as the tunnel of a datagram
/// without one, goes to the first. Errors: those of setsockopt(2).
pub(super) fn spread(socket: &UdpSocket, by: SpreadBy, sockets: usize, teids: &Teids) -> io::Result<()> {
    let is_ipv4 = || socket.local_addr().map(|at| at.is_ipv4());
    let hash = match by {
        SpreadBy::Teid => of_tunnel(teids),
        SpreadBy::UeAddress => of_ue(),
        SpreadBy::GnbAddress => of_gnb(is_ipv4()?, false),
        SpreadBy::GnbFlow => of_gnb(is_ipv4()?, true),
    };
    attach(socket, hash, sockets)
}

/// The lowest bits of what the instructions leave in the accumulator name the socket.
fn attach(socket: &UdpSocket, mut program: Vec<libc::sock_filter>, sockets: usize) -> io::Result<()> {
    program.push(instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, sockets as u32 - 1));
    program.push(instruction(libc::BPF_RET | BPF_A, 0));
    let filter = libc::sock_fprog { len: program.len() as _, filter: program.as_mut_ptr() };
    // SAFETY: the option's value names the program, and both live through the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of_val(&filter) as _,
        )
    })
    .map(drop)
}

fn instruction(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Reads a word.
fn word(at: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

/// Multiplies, and combines the result with its upper bits, which depend on all bits of the factor.
fn mixed(multiplier: u32, shift: u32) -> [libc::sock_filter; 4] {
    [
        instruction(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, multiplier),
        instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
        instruction(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, shift),
        instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
    ]
}

/// The index of the session that has the tunnel, as `Teids::index_of` has it.
fn of_tunnel(teids: &Teids) -> Vec<libc::sock_filter> {
    let mut program = vec![word(TEID_AT)];
    for round in teids.rounds() {
        program.push(instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, round.key));
        program.extend(mixed(round.multiplier, round.shift));
    }
    program.push(instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_K, teids.last()));
    program
}

/// The UE's address as its packet has it, behind optional fields and extension headers.
fn of_ue() -> Vec<libc::sock_filter> {
    const OF_EXTENSION: usize = 6;
    const EXTENSIONS_AT: usize = 6;
    const INNER_AT: usize = EXTENSIONS_AT + OF_EXTENSION * EXTENSIONS;
    const PLAIN_AT: usize = INNER_AT + 2;
    let octet = |mode: u32, at: u32| instruction(libc::BPF_LD | libc::BPF_B | mode, at);
    let and = |mask: u32| instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask);
    // `at` is the place of the jump itself.
    let to_if_zero = |at: usize, to: usize| libc::sock_filter {
        jt: (to - at - 1) as u8,
        ..instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0)
    };
    let mut program = vec![
        octet(libc::BPF_ABS, FLAGS_AT),
        and(OPTIONAL),
        to_if_zero(2, PLAIN_AT),
        instruction(libc::BPF_LDX | libc::BPF_IMM, NEXT_TYPE_AT),
        and(EXTENDED),
        to_if_zero(5, INNER_AT),
    ];
    for n in 0..EXTENSIONS {
        // The index register is at a header's type, in front of it; a header's length is in words, and its last octet is the next type.
        program.extend([
            octet(libc::BPF_IND, 0),
            to_if_zero(EXTENSIONS_AT + n * OF_EXTENSION + 1, INNER_AT),
            octet(libc::BPF_IND, 1),
            instruction(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K, 2),
            instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
            instruction(libc::BPF_MISC | libc::BPF_TAX, 0),
        ]);
    }
    program.extend([
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, 1 + UE_AT),
        instruction(libc::BPF_JMP | libc::BPF_JA, 1),
        word(HEADER_OCTETS + UE_AT),
    ]);
    program
}

/// A hash of the source address, and of the source port too if it is of a `flow`.
fn of_gnb(is_ipv4: bool, flow: bool) -> Vec<libc::sock_filter> {
    let (words, port_at) = match is_ipv4 {
        true => (vec![IPV4_SOURCE_AT], IPV4_OCTETS),
        false => ((0..4).map(|n| IPV6_SOURCE_AT + 4 * n).collect(), IPV6_OCTETS),
    };
    let xor = instruction(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0);
    let keep = instruction(libc::BPF_MISC | libc::BPF_TAX, 0);
    let mut program = vec![instruction(libc::BPF_LDX | libc::BPF_IMM, 0)];
    for at in words {
        program.extend([word(NETWORK_HEADER.wrapping_add(at)), xor]);
        program.extend(mixed(MULTIPLIER, 15));
        program.push(keep);
    }
    if flow {
        let port = NETWORK_HEADER.wrapping_add(port_at);
        program.extend([instruction(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, port), xor]);
        program.extend(mixed(MULTIPLIER, 15));
    }
    program.extend(mixed(MULTIPLIER, 16));
    program
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    use super::*;
    use crate::sys::datagrams::shared::bind_shared;

    const SOCKETS: usize = 4;

    /// Sockets at one address, among which these instructions choose.
    struct Sockets(Vec<UdpSocket>);

    impl Sockets {
        /// Errors: this host has no such address.
        fn at(ip: IpAddr, hash: Vec<libc::sock_filter>) -> io::Result<Self> {
            let first = bind_shared((ip, 0).into())?;
            let at = first.local_addr()?;
            let mut all = vec![first];
            all.extend((1..SOCKETS).map(|_| bind_shared(at).unwrap()));
            attach(&all[0], hash, SOCKETS).unwrap();
            all.iter().for_each(|s| s.set_read_timeout(Some(Duration::from_millis(1))).unwrap());
            Ok(Self(all))
        }

        /// Which of them a datagram of this socket arrives at.
        fn of(&self, from: &UdpSocket, octets: &[u8]) -> usize {
            from.send_to(octets, self.0[0].local_addr().unwrap()).unwrap();
            let mut buffer = [0; 256];
            // It arrives at once, or later on a machine that does other things.
            let mut looks = (0..20_000).map(|look| look % SOCKETS);
            let arrived = looks.find(|n| self.0[*n].recv(&mut buffer).is_ok());
            arrived.expect("a datagram over the loopback device")
        }
    }

    fn ipv4(source: [u8; 4]) -> Vec<u8> {
        [&[0x45; 12][..], &source, &[8, 8, 8, 8]].concat()
    }

    fn ipv6(prefix: u64) -> Vec<u8> {
        [&[0x60; 8][..], &prefix.to_be_bytes(), &[9; 8], &[7; 16]].concat()
    }

    #[test] // TS 29.281 §5.1, §5.2.1: the inner packet is behind what the flags and extension headers say
    fn a_ues_packets_go_to_one_socket_by_its_address_whatever_headers_they_have() {
        let sockets = Sockets::at(Ipv4Addr::LOCALHOST.into(), of_ue()).unwrap();
        let gnb = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // A PDU session container, and one of two words.
        let (container, long) = (&[1, 0x10, 9][..], &[2, 1, 2, 3, 4, 5, 6][..]);
        let header = |flags: u8, rest: &[u8]| [&[0x30 | flags, 255, 0, 0, 1, 2, 3, 4][..], rest].concat();
        let headers = [
            header(0, &[]),
            header(2, &[0, 7, 0, 0x85]), // a sequence number; the type is without meaning
            header(4, &[0, 0, 0, 0]),
            header(4, &[&[0, 0, 0, 0x85][..], container, &[0]].concat()),
            header(6, &[&[0, 7, 0, 0x85][..], container, &[0x40], long, &[0]].concat()),
            header(
                7,
                &[&[0, 7, 0, 0x40][..], long, &[0x40], long, &[0x40], long, &[0x85], container, &[0]]
                    .concat(),
            ),
        ];
        for n in 0..=9u8 {
            for inner in [ipv4([10, 45, 77, 100 + n]), ipv6(0x2001_0db8_0045_0000 + u64::from(100 + n))] {
                for header in &headers {
                    let to = sockets.of(&gnb, &[header, &inner[..]].concat());
                    assert_eq!(to, usize::from(100 + n) % SOCKETS, "{header:02x?}");
                }
            }
        }
        assert_eq!(sockets.of(&gnb, &header(0, &[0x45])), 0, "no whole packet");
        assert_eq!(sockets.of(&gnb, &[0x30]), 0, "no header");
    }

    #[test]
    fn packets_of_one_gnb_go_to_one_socket_and_those_of_many_to_all() {
        let sockets = Sockets::at(Ipv4Addr::LOCALHOST.into(), of_gnb(true, false)).unwrap();
        let mut seen = [0; SOCKETS];
        for host in 0..64 {
            let ports = [(); 3].map(|()| UdpSocket::bind((Ipv4Addr::new(127, 0, 3, host), 0)).unwrap());
            let to: BTreeSet<usize> = ports.iter().map(|from| sockets.of(from, &[host; 40])).collect();
            assert_eq!(to.len(), 1, "gNB 127.0.3.{host}");
            seen[to.first().copied().unwrap()] += 1;
        }
        assert!(seen.iter().all(|gnbs| *gnbs >= 4), "{seen:?} of 64 gNBs");
    }

    #[test]
    fn packets_of_one_gnbs_port_go_to_one_socket_and_those_of_many_ports_to_all() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Ok(sockets) = Sockets::at(ip, of_gnb(ip.is_ipv4(), true)) else {
                assert!(ip.is_ipv6(), "a host can be without IPv6 alone");
                continue;
            };
            let mut seen = BTreeSet::new();
            let ports: Vec<_> = (0..64).map(|_| UdpSocket::bind((ip, 0)).unwrap()).collect();
            for from in &ports {
                let to: BTreeSet<usize> = (0..3).map(|n| sockets.of(from, &[n; 40])).collect();
                assert_eq!(to.len(), 1);
                seen.extend(to);
            }
            assert_eq!(seen.len(), SOCKETS, "{ip}");
            let gnb = Sockets::at(ip, of_gnb(ip.is_ipv4(), false)).unwrap();
            let all: BTreeSet<usize> = ports.iter().map(|from| gnb.of(from, &[1; 40])).collect();
            assert_eq!(all.len(), 1, "one gNB, {ip}");
        }
    }
}
