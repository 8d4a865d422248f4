//! The three forms of the forwarding decision against the reference model of `user/tests/reference`, by the same sessions, rules and packets:
//! the program in the driver with the pipeline behind it, the pipeline with plain sessions, and the stages alone. Packet for packet, octet for octet,
//! count for count.

#[path = "../../../tests/reference/account.rs"]
mod account;
#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/reference/model.rs"]
mod model;
#[path = "../../../tests/reference/pair.rs"]
mod pair;

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use whimbrel_ids::Instant;
use whimbrel_user::{
    BurstPacket, Destination, DnIndex, FastEntry, FastPath, Origin, PacketVerdict, Shards, fast_state,
};

use self::common::{GNB, UPF};
use self::pair::{Driver, Pair, SEATS};
use super::fast::{DROPS, Time};
use super::steer::{self, SteeredFrames, UeAddressPool};
use crate::ports::af_xdp::xdp_fast_path::{FastPathMemory, XdpFastPath};
use crate::sys::bpf::{Program, SharedArray, SocketMap};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const GNB_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 10];
const MTU: u32 = 1_500;
/// Attempts to load a program.
const LOADS_MAX: usize = 5;
/// Verdicts of an XDP program.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

fn pool(first: [u8; 4], prefix: u8) -> UeAddressPool {
    let mut gateway = first;
    gateway[3] += 1;
    UeAddressPool { first: first.into(), prefix, gateway: gateway.into(), mtu: 1400 }
}

/// A program with all that the fast path needs, N3 and N6 on one interface.
struct Bench {
    program: Program,
    offloaded: XdpFastPath,
    clock: SharedArray<AtomicU64>,
    _sockets: SocketMap,
}

impl Bench {
    /// `None`, with a sentence, where the host does not permit it.
    fn new() -> Option<Self> {
        let config = common::config();
        let (first, gateway) = ("2001:db8:45::".parse().unwrap(), "2001:db8:45::1".parse().unwrap());
        let pools = [
            (pool([10, 45, 0, 0], 29), DnIndex(0)),
            (pool([10, 46, 0, 0], 16), DnIndex(1)),
            (UeAddressPool { first, prefix: 48, gateway, mtu: 1400 }, DnIndex(0)),
        ];
        let memory = match FastPathMemory::new(config.sessions_max, &pools, vec![DnIndex(0), DnIndex(1)]) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: BPF maps are not permitted here ({e})");
                return None;
            }
            other => Arc::new(other.unwrap()),
        };
        let clock = SharedArray::new(1).unwrap();
        let sockets = SocketMap::new(1).unwrap();
        memory.set_device(0, 1).unwrap();
        let fast = memory.fast(config.teids(), &pair::isolation().deny, UPF, 2152, Time::Test(clock.fd()));
        let steered = SteeredFrames {
            ipv4: Some(UPF),
            pools: pools.iter().map(|(pool, _)| *pool).collect(),
            ..SteeredFrames::new(MAC, None, 2152)
        };
        let code = steer::program(&[steered], sockets.fd(), Some(&fast));
        // The kernel's verifier gives up when a signal comes, as it does on a busy host.
        let load = || Program::load(&code).map_err(|e| (e.kind(), e.to_string()));
        let program = std::iter::repeat_with(load)
            .take(LOADS_MAX)
            .find(|p| !matches!(p, Err((std::io::ErrorKind::WouldBlock, _))))
            .unwrap_or_else(|| panic!("the verifier was interrupted {LOADS_MAX} times"))
            .unwrap_or_else(|(_, e)| panic!("{e}"));
        let mut offloaded = XdpFastPath { memory, settles_in: Duration::ZERO };
        let IpAddr::V4(gnb) = GNB.ip() else { unreachable!() };
        let (to_gnb, to_network, to_network_ipv6) = offloaded.hops(DnIndex(0), gnb).unwrap();
        let hop = |mac| Some(crate::ports::af_xdp::xdp_fast_path::Hop { mac, mtu: MTU });
        offloaded.memory.set_hop(to_gnb, 0, MAC, hop(GNB_MAC));
        offloaded.memory.set_hop(to_network, 0, MAC, hop(ROUTER_MAC));
        offloaded.memory.set_hop(to_network_ipv6, 0, MAC, hop(ROUTER_MAC));
        Some(Self { program, offloaded, clock, _sockets: sockets })
    }

    /// The pipeline with this before it; `fast` counts the packets that it forwards, of IPv4 and of IPv6.
    fn before(self, u: &mut Shards, fast: Rc<Cell<[usize; 2]>>) -> Driver {
        let Self { program, offloaded, clock, _sockets } = self;
        let only = "the fast path is for one pipeline";
        u.only()
            .expect(only)
            .attach_fast_path(Box::new(XdpFastPath { memory: Arc::clone(&offloaded.memory), ..offloaded }));
        Box::new(move |u: &mut Shards, now: Instant, slots: &mut [BurstPacket]| {
            let u = u.only().expect(only);
            let _sockets = &_sockets; // live as long as the program
            clock[0].store(now.0, Ordering::Relaxed);
            for slot in slots {
                u.offload_ready(now, true);
                let before = offloaded.counted();
                let (verdict, frame) = program.run(&framed(slot)).unwrap();
                if verdict == XDP_REDIRECT {
                    let mut counts = fast.get();
                    counts[usize::from(is_ipv6(slot))] += 1;
                    fast.set(counts);
                }
                match verdict {
                    XDP_PASS => u.burst(now, std::slice::from_mut(slot)),
                    XDP_REDIRECT => arrived(slot, &frame),
                    XDP_DROP => {
                        let after = offloaded.counted();
                        let reasons = DROPS.into_iter();
                        let mut new =
                            reasons.filter(|r| after.dropped[*r as usize] != before.dropped[*r as usize]);
                        slot.verdict = PacketVerdict::Drop(new.next().expect("a reason"));
                        assert_eq!(new.next(), None);
                    }
                    other => panic!("{other}"),
                }
            }
            u.collect_counters();
        })
    }
}

fn sum(octets: &[u8]) -> u32 {
    let words = octets.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Where a checksum is, and the header that it is over.
fn with_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = !(sum(header) as u16);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Where the UE's packet begins in a datagram with the usual headers.
fn inner_at(message: &[u8]) -> usize {
    if message.first() == Some(&0x34) { 16 } else { 8 }
}

/// Whether the UE's packet is one of IPv6.
fn is_ipv6(slot: &BurstPacket) -> bool {
    let octets = slot.packet.octets();
    let at = if matches!(slot.origin, Origin::N3 { .. }) { inner_at(octets) } else { 0 };
    octets.get(at).is_some_and(|first| first >> 4 == 6)
}

/// The frame that brings a packet; the UE's packet has a right checksum there.
fn framed(slot: &BurstPacket) -> Vec<u8> {
    let mut octets = slot.packet.octets().to_vec();
    let at = if matches!(slot.origin, Origin::N3 { .. }) { inner_at(&octets) } else { 0 };
    let six = is_ipv6(slot);
    if octets.len() >= at + 20 && !six {
        with_checksum(&mut octets[at..at + 20]);
    }
    let to_ue = !matches!(slot.origin, Origin::N3 { .. });
    let mut frame = [&MAC[..], &[2; 6], if six && to_ue { &[0x86, 0xdd] } else { &[8, 0] }].concat();
    let Origin::N3 { peer, local } = slot.origin else {
        frame.extend_from_slice(&octets);
        return frame;
    };
    let (IpAddr::V4(from), IpAddr::V4(to)) = (peer.ip(), local) else { panic!() };
    let datagram = 8 + octets.len() as u16;
    let mut ip = [&[0x45, 0][..], &(20 + datagram).to_be_bytes(), &[0, 1, 0, 0, 64, 17, 0, 0]].concat();
    ip.extend_from_slice(&from.octets());
    ip.extend_from_slice(&to.octets());
    with_checksum(&mut ip);
    frame.extend_from_slice(&ip);
    let mut udp = [peer.port().to_be_bytes(), 2152u16.to_be_bytes(), datagram.to_be_bytes(), [0; 2]].concat();
    udp.extend_from_slice(&octets);
    // Without a checksum, with one, and with what a virtual link leaves there.
    let pseudo = [&from.octets()[..], &to.octets(), &[0, 17], &datagram.to_be_bytes()].concat();
    let checksum = match octets.len() % 3 {
        0 => 0,
        1 => !(sum(&[&sum(&pseudo).to_be_bytes()[..], &sum(&udp).to_be_bytes()].concat()) as u16),
        _ => sum(&pseudo) as u16,
    };
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&udp);
    frame
}

/// Reads what the program has sent as what the pipeline would have decided.
fn arrived(slot: &mut BurstPacket, frame: &[u8]) {
    let original = slot.packet.octets().to_vec();
    let to_gnb = !matches!(slot.origin, Origin::N3 { .. });
    let six = |octets: &[u8]| octets[0] >> 4 == 6;
    let kind = if six(&frame[14..]) { [0x86, 0xdd] } else { [8, 0] };
    assert_eq!((&frame[6..12], &frame[12..14]), (&MAC[..], &kind[..]));
    assert!(frame.len() <= 14 + MTU as usize, "{} octets", frame.len());
    let mut packet = frame[14..].to_vec();
    let (inner, was) = if to_gnb {
        assert_eq!(frame[..6], GNB_MAC);
        let IpAddr::V4(gnb) = GNB.ip() else { panic!() };
        assert_eq!(sum(&packet[..20]), 0xffff, "the header's checksum");
        let octets = packet.len() as u16;
        assert_eq!((packet[0], &packet[2..4]), (0x45, &octets.to_be_bytes()[..]));
        assert_eq!(packet[6..10], [0, 0, 64, 17]);
        assert_eq!(packet[12..20], [UPF.octets(), gnb.octets()].concat());
        let words = [2152, 2152, octets - 20, 0].map(u16::to_be_bytes);
        assert_eq!(&packet[20..28], words.as_flattened());
        let tos = packet[1];
        packet.drain(..28);
        slot.verdict = PacketVerdict::Send(Destination::N3 { peer: SocketAddr::new(GNB.ip(), 2152), tos });
        (inner_at(&packet), 0)
    } else {
        assert_eq!(frame[..6], ROUTER_MAC);
        slot.verdict = PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) });
        (0, inner_at(&original))
    };
    // A hop less, one of which is left, and else as it came.
    assert_ne!(packet[inner + if six(&packet[inner..]) { 7 } else { 8 }], 0);
    if six(&packet[inner..]) {
        packet[inner + 7] += 1;
        assert_eq!(packet[inner + 7], original[was + 7]);
        return slot.packet.fill(&packet);
    }
    let header = &mut packet[inner..inner + 20];
    assert_eq!((sum(header), header[8]), (0xffff, original[was + 8] - 1));
    header[8] += 1;
    header[10..12].copy_from_slice(&original[was + 10..was + 12]);
    slot.packet.fill(&packet);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn driver_plain_sessions_and_stages_each_decide_as_the_model_decides(
        steps in proptest::collection::vec(any::<(u8, u8, u16)>(), 1..60),
    ) {
        let Some(bench) = Bench::new() else { return Ok(()) };
        let fast = Rc::default();
        let driver = Pair::with(|u| bench.before(u, Rc::clone(&fast)));
        let counters = [driver, Pair::new(), Pair::of_stages()].map(|pair| {
            let mut pair = pair.mostly_plain().of_both_families();
            steps.iter().for_each(|step| pair.step(*step));
            (0..SEATS).for_each(|at| pair.delete(at));
            pair.net.upf.u.counters()
        });
        prop_assert_eq!(&counters[0], &counters[1]);
        prop_assert_eq!(&counters[1], &counters[2]);
    }
}

/// Else the test above would show nothing.
#[test]
fn the_program_forwards_most_packets_of_a_plain_session_and_drops_for_every_reason_of_its() {
    let Some(bench) = Bench::new() else { return };
    let (fast, offloaded) =
        (Rc::default(), XdpFastPath { memory: Arc::clone(&bench.offloaded.memory), ..bench.offloaded });
    let mut pair = Pair::with(|u| bench.before(u, Rc::clone(&fast)));
    pair.scope.wide = false;
    // A session of one QoS flow without rates, and one as our SMF asks for it; one of 64 kbit/s; and its gates closed.
    pair.establish(0, 0x41);
    pair.establish(2, 0x2000);
    (0..100).for_each(|random| pair.burst(random as usize % 2 * 2, random));
    let counters = pair.net.upf.u.counters().clone();
    let all = counters.ul_packets + counters.dl_packets;
    let [forwarded, _] = fast.get();
    // Of the packets from UEs each fourth comes by way of another gNB than the session's.
    assert!(all > 1_000 && forwarded * 6 > all as usize * 5, "{forwarded} of {all}");
    pair.establish(1, 0x09);
    (0..20).for_each(|random| pair.burst(1, random));
    pair.step((5, 1, 5));
    (100..110).for_each(|random| pair.burst(1, random));
    let counted = offloaded.counted();
    for reason in DROPS {
        assert!(counted.dropped[reason as usize] > 0, "{reason:?}");
    }
    (0..3).for_each(|at| pair.delete(at));
}

/// Nor without this. What a UE sends from an address of its link has its session taken back for a minute, so time passes between bursts.
#[test]
fn the_program_forwards_packets_of_both_families() {
    let Some(bench) = Bench::new() else { return };
    let fast = Rc::default();
    let mut pair = Pair::with(|u| bench.before(u, Rc::clone(&fast))).of_both_families();
    pair.scope.wide = false;
    pair.establish(0, 0x1041);
    for random in 0..100 {
        pair.net.now = pair.net.now + Duration::from_secs(61);
        pair.burst(0, random);
    }
    let counters = pair.net.upf.u.counters().clone();
    let (all, [ipv4, ipv6]) = (counters.ul_packets + counters.dl_packets, fast.get());
    assert!(all > 1_000 && ipv4 * 4 > all as usize && ipv6 * 6 > all as usize, "{ipv4}, {ipv6} of {all}");
    pair.delete(0);
}

#[test]
fn a_ue_is_found_at_its_sessions_own_place_and_at_any_other() {
    let Some(bench) = Bench::new() else { return };
    let ue = std::net::Ipv4Addr::new(10, 45, 0, 5);
    let own = 5 - whimbrel_user::POOL_RESERVED_FIRST as usize;
    let entries = bench.offloaded.entries();
    let have = |index: usize, address: [u8; 4]| {
        let entry = &entries[index];
        let IpAddr::V4(gnb) = GNB.ip() else { unreachable!() };
        entry.ue_ipv4.store(u32::from_ne_bytes(address), Ordering::Relaxed);
        entry.gnb_ipv4.store(u32::from_ne_bytes(gnb.octets()), Ordering::Relaxed);
        entry.ul_kbps.store(FastEntry::UNPOLICED, Ordering::Relaxed);
        entry.dl_kbps.store(FastEntry::UNPOLICED, Ordering::Relaxed);
        entry.gnb_hop.store(to_gnb(&bench), Ordering::Relaxed);
        entry.room.store(1_000_000, Ordering::Relaxed);
        entry.state.store(fast_state::FREE, Ordering::Relaxed);
    };
    let place = bench.offloaded.ipv4(DnIndex(0), ue).unwrap();
    let mut packet = [&[0x45, 0, 0, 40, 0, 0, 0, 0, 9, 17, 0, 0, 198, 51, 100, 1][..], &ue.octets()].concat();
    with_checksum(&mut packet);
    packet.resize(40, 7);
    let frame = [&MAC[..], &[2; 6], &[8, 0], &packet].concat();
    let verdict = || bench.program.verdict(&frame).unwrap();
    assert_eq!(verdict(), XDP_PASS, "no session has it");
    have(own, ue.octets());
    assert_eq!(verdict(), XDP_REDIRECT, "the map has no other session");
    have(own, [10, 45, 0, 6]);
    assert_eq!(verdict(), XDP_PASS);
    have(own + 1, ue.octets());
    place.store(own as u64 + 2, Ordering::Relaxed);
    assert_eq!(verdict(), XDP_REDIRECT);
    let packets = |index: usize| entries[index].dl_packets.load(Ordering::Relaxed);
    assert_eq!((packets(own), packets(own + 1)), (1, 1));
}

/// The number of the hop to the gNB.
fn to_gnb(bench: &Bench) -> u16 {
    bench.offloaded.memory.gnbs()[0].1
}
