//! The fast path's part of the XDP program: it judges packets of offloaded sessions, rewrites them and sends them to the other side, all
//! in the driver. An unusual packet is passed unchanged to the pipeline.
//!
//! Checks and counters are in the same order as in `whimbrel_user` for a plain session; the tests of
//! [`super::reference`] compare both, packet for packet.

use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;

use whimbrel_user::{
    DestinationFilter, DropReason, FastEntry, POOL_RESERVED_FIRST, POOL_RESERVED_FIRST_IPV6, Teids,
    fast_state,
};

use super::asm::{Assembler, Do, JumpCondition, Label, Reg, Size};
use super::headers::{
    OUTER, at_most, checksum, datagram_checksum, frame, header_sum, hop_off, length, no_extension, trim,
};
use super::steer::{ETHERNET, UDP, UeAddressPool, expect, half, kind, within, word};

/// Parameters shared by all programs of the fast path.
#[derive(Clone, Debug)]
pub(crate) struct Fast {
    /// Descriptors of maps: sessions ([`FastEntry`]), sessions by UE ([`AtomicU64`]: index and one), by IPv4 address and by IPv6
    /// prefix, next hops ([`Hop`]), the interfaces by which frames leave, counters ([`ProcessorCounters`]) by processor.
    pub(crate) sessions: i32,
    pub(crate) ues: i32,
    pub(crate) prefixes: i32,
    pub(crate) hops: i32,
    pub(crate) devices: i32,
    pub(crate) counters: i32,
    /// The words of [`DestinationFilter`].
    pub(crate) suspects: i32,
    /// How the session of a TEID is found.
    pub(crate) teids: Teids,
    /// UEs' addresses, and destinations that are denied to UEs.
    pub(crate) pools: Vec<UeAddressPool>,
    /// Index of a pool's first address in `ues`, or `prefixes`.
    pub(crate) places: Vec<(UeAddressPool, u32)>,
    pub(crate) time: Time,
    /// Address of N3 on this host.
    pub(crate) own: [u8; 4],
    pub(crate) port: u16,
}

impl Fast {
    /// Whether there are UEs of a pool.
    pub(super) fn has(&self, pool: &UeAddressPool) -> bool {
        self.places.iter().any(|(of, _)| of == pool)
    }
}

/// The source of time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// The kernel's monotonic clock at its last tick, plus this offset in microseconds. Token buckets fill in the same steps, which are
    /// small compared with their size; reading the exact time costs as much as the lock, as it waits for memory too.
    Kernel {
        /// Offset to the pipeline's clock.
        offset_us: u64,
    },
    /// The descriptor of a map with the time.
    #[cfg(test)]
    Test(i32),
}

/// A next hop: the Ethernet address to which frames go, in the order of octets, and the octets that a packet may have above it (none:
/// the address is not known); the address from which they go, and the number of the interface above it.
pub(crate) type Hop = [AtomicU64; 2];

/// Counters of one processor, by [`slot`].
pub(crate) type ProcessorCounters = [AtomicU64; slot::COUNT];

/// Places in [`ProcessorCounters`].
pub(crate) mod slot {
    pub(crate) const UL_PACKETS: usize = 0;
    pub(crate) const UL_OCTETS: usize = 1;
    pub(crate) const DL_PACKETS: usize = 2;
    pub(crate) const DL_OCTETS: usize = 3;
    /// Drops of packets from UEs, in the order of [`super::DROPS`].
    pub(crate) const UL_DROPPED: usize = 4;
    /// Drops of packets to UEs, likewise.
    pub(crate) const DL_DROPPED: usize = 8;
    /// Counted packets that were dropped for lack of headroom.
    pub(crate) const NO_ROOM: usize = 12;
    pub(crate) const COUNT: usize = 16;
}

/// Why packets are dropped here.
pub(crate) const DROPS: [DropReason; 4] =
    [DropReason::QfiMismatch, DropReason::SpoofedSource, DropReason::GateClosed, DropReason::RateExceeded];

/// Helpers of linux/bpf.h, none of which is restricted to GPL programs.
mod helper {
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const GET_SMP_PROCESSOR_ID: i32 = 8;
    pub(super) const XDP_ADJUST_HEAD: i32 = 44;
    pub(super) const REDIRECT_MAP: i32 = 51;
    pub(super) const KTIME_GET_COARSE_NS: i32 = 160;
}

const XDP_DROP: i32 = 1;

/// Times that a program checks whether a lock is free: longer than an uninterrupted holder needs.
const LOOKS: i32 = 64;
/// Microseconds in which every bucket fills: half an hour, so that a rate times this is less than 64 bits.
const FILLED_IN_US: u32 = i32::MAX as u32;
/// A packet from the UE without a QoS flow.
const NO_FLOW: i32 = 0x100;

// Places on the stack.
const KEY: i16 = -8;
const NOW: i16 = -16;
const HOP_TO: i16 = -24;
const HOP_MTU: i16 = -18;
const HOP_FROM: i16 = -32;
const HOP_DEVICE: i16 = -26;
/// Octets of the GTP-U header.
const HEADER: i16 = -40;
/// Octets of the UE's packet.
const OCTETS: i16 = -48;
/// Of a packet from the UE: its tunnel, followed by the sender's address. Of one to the UE: the gNB's tunnel and address.
const TEID: i16 = -56;
const GNB: i16 = -52;
const CONTAINER: i16 = -64;
const TOS: i16 = -60;
const IDENTIFICATION: i16 = -72;
/// The session's entry.
const ENTRY: i16 = -80;
/// Of a packet to the UE: the index of its address among the UEs.
const PLACE: i16 = -88;
/// The second word of the UE's prefix.
const PREFIX: i16 = -84;
#[cfg(test)]
const SAVED: i16 = -96;

/// One direction of the fast path.
#[derive(Clone, Copy)]
struct FastDirection {
    kbps: i16,
    tokens: i16,
    octets: i16,
    packets: i16,
    closed: u16,
    hop: i16,
    counted: usize,
    dropped: usize,
    /// The first of [`DROPS`] that it has.
    first_drop: usize,
}

const UP: FastDirection = FastDirection {
    kbps: offset_of!(FastEntry, ul_kbps) as i16,
    tokens: offset_of!(FastEntry, ul_tokens) as i16,
    octets: offset_of!(FastEntry, ul_octets) as i16,
    packets: offset_of!(FastEntry, ul_packets) as i16,
    closed: FastEntry::UL_CLOSED,
    hop: offset_of!(FastEntry, network_hop) as i16,
    counted: slot::UL_PACKETS,
    dropped: slot::UL_DROPPED,
    first_drop: 0,
};

/// The same by IPv6.
const UP_IPV6: FastDirection = FastDirection { hop: offset_of!(FastEntry, network_ipv6_hop) as i16, ..UP };

const DOWN: FastDirection = FastDirection {
    kbps: offset_of!(FastEntry, dl_kbps) as i16,
    tokens: offset_of!(FastEntry, dl_tokens) as i16,
    octets: offset_of!(FastEntry, dl_octets) as i16,
    packets: offset_of!(FastEntry, dl_packets) as i16,
    closed: FastEntry::DL_CLOSED,
    hop: offset_of!(FastEntry, gnb_hop) as i16,
    counted: slot::DL_PACKETS,
    dropped: slot::DL_DROPPED,
    first_drop: 2,
};

macro_rules! field {
    ($name:ident) => {
        offset_of!(FastEntry, $name) as i16
    };
}

/// A datagram to N3 over IPv4, of which the headers of IP and UDP are there: `R2` is the frame, `R3` its end, `R6` the context.
///
/// A packet that is not judged here goes to `up`, where only `R6` is valid.
pub(super) fn uplink(a: &mut Assembler, fast: &Fast, up: Label) {
    let (extended, inner, four) = (a.label(), a.label(), a.label());
    // Two headers, the longer GTP-U header, and the UE's packet's.
    within(a, ETHERNET + OUTER + 16 + 20, up);
    let gtpu = ETHERNET + OUTER;
    a.load(Size::W, Reg::R5, Reg::R2, gtpu + 4);
    a.big_endian_32(Reg::R5);
    a.store(Size::W, Reg::Frame, TEID, Reg::R5);
    a.load(Size::W, Reg::R4, Reg::R2, ETHERNET + 12);
    a.store(Size::W, Reg::Frame, GNB, Reg::R4);
    index_of(a, &fast.teids);
    a.store(Size::W, Reg::Frame, KEY, Reg::R5);
    keep_frame(a);
    fetch(a, fast, up);
    take_frame(a);
    checksum(a, Reg::R2, ETHERNET, up);
    length(a, Reg::R7, Reg::R2, ETHERNET + 2);
    a.copy(Reg::R4, Reg::R2);
    a.add(Reg::R4, ETHERNET.into());
    a.combine(Reg::R4, Do::Add, Reg::R7);
    a.jump_if_reg(Reg::R4, JumpCondition::Greater, Reg::R3, up);
    length(a, Reg::R8, Reg::R2, ETHERNET + 24);
    at_most(a, Reg::R8, 20, Reg::R7, up);
    datagram_checksum(a, up);
    length(a, Reg::R7, Reg::R2, ETHERNET + OUTER + 2);
    at_most(a, Reg::R7, 16, Reg::R8, up);
    a.load(Size::H, Reg::R5, Reg::R2, gtpu);
    a.jump_if(Reg::R5, JumpCondition::Equal, half([0x34, 0xff]), extended);
    a.jump_if(Reg::R5, JumpCondition::NotEqual, half([0x30, 0xff]), up);
    a.store_value(Size::D, Reg::Frame, HEADER, 8);
    a.set(Reg::R8, NO_FLOW);
    a.set(Reg::R1, 8);
    a.copy(Reg::R9, Reg::R2);
    a.add(Reg::R9, i32::from(gtpu) + 8);
    a.jump(inner);
    a.place(extended);
    // The PDU session container of the uplink, of one unit, and nothing else.
    expect(a, Size::H, gtpu + 11, half([0x85, 1]), up);
    expect(a, Size::B, gtpu + 15, 0, up);
    a.load(Size::B, Reg::R5, Reg::R2, gtpu + 13);
    a.and(Reg::R5, 0xf0);
    a.jump_if(Reg::R5, JumpCondition::NotEqual, 0x10, up);
    a.load(Size::B, Reg::R8, Reg::R2, gtpu + 14);
    a.and(Reg::R8, 0x3f);
    a.store_value(Size::D, Reg::Frame, HEADER, 16);
    a.set(Reg::R1, 16);
    a.copy(Reg::R9, Reg::R2);
    a.add(Reg::R9, i32::from(gtpu) + 16);
    a.place(inner);
    a.load(Size::B, Reg::R5, Reg::R9, 0);
    a.jump_if(Reg::R5, JumpCondition::Equal, 0x45, four);
    a.and(Reg::R5, 0xf0);
    a.jump_if(Reg::R5, JumpCondition::NotEqual, 0x60, up);
    from_ue(a, fast, false, up);
    a.place(four);
    from_ue(a, fast, true, up);
}

/// `R5` = the index of the session of the TEID in it, as whimbrel_user's `Teids::index_of` finds it: some four nanoseconds, in which nothing is
/// waited for. Uses `R4`.
fn index_of(a: &mut Assembler, teids: &Teids) {
    for round in teids.rounds() {
        a.differ_32(Reg::R5, round.key);
        a.multiply_32(Reg::R5, round.multiplier);
        a.copy(Reg::R4, Reg::R5);
        a.shift_right(Reg::R4, round.shift as i32);
        a.differ_from_32(Reg::R5, Reg::R4);
    }
    a.differ_32(Reg::R5, teids.last());
    a.and(Reg::R5, teids.index_mask() as i32);
}

/// The UE's packet is at `R9`, of a family; `R1` is the octets of the GTP-U header, `R7` of what its length counts, `R8` the QoS flow.
fn from_ue(a: &mut Assembler, fast: &Fast, v4: bool, up: Label) {
    let (flow, leave) = (a.label(), a.label());
    let unusual = (!v4).then(|| a.label());
    if !v4 {
        a.copy(Reg::R4, Reg::R9);
        a.add(Reg::R4, 40);
        a.jump_if_reg(Reg::R4, JumpCondition::Greater, Reg::R3, up);
    }
    a.load(Size::B, Reg::R5, Reg::R9, if v4 { 8 } else { 7 });
    a.jump_if(Reg::R5, JumpCondition::LessOrEqual, 1, up); // no hops left: the kernel answers
    if v4 {
        checksum(a, Reg::R9, 0, up);
        length(a, Reg::R5, Reg::R9, 2);
        a.jump_if(Reg::R5, JumpCondition::Less, 20, up);
    } else {
        no_extension(a, Reg::R9, 0, unusual.unwrap_or(up));
        length(a, Reg::R5, Reg::R9, 4);
        a.add(Reg::R5, 40);
    }
    a.store(Size::D, Reg::Frame, OCTETS, Reg::R5);
    a.combine(Reg::R5, Do::Add, Reg::R1);
    a.add(Reg::R7, 8);
    a.jump_if_reg(Reg::R5, JumpCondition::Greater, Reg::R7, up);
    // Packets to UEs and to denied destinations go to the pipeline.
    for pool in fast.pools.iter().filter(|p| p.first.is_ipv4() == v4) {
        let other = a.label();
        for (i, (first, mask)) in pool.words().into_iter().enumerate().filter(|(_, (_, mask))| *mask != 0) {
            a.load(Size::W, Reg::R4, Reg::R9, if v4 { 16 } else { 24 } + 4 * i as i16);
            a.and(Reg::R4, mask as i32);
            a.jump_if(Reg::R4, JumpCondition::NotEqual, first, other);
        }
        a.jump(up);
        a.place(other);
    }
    suspected(a, fast, v4, up);
    if v4 {
        a.load(Size::W, Reg::R7, Reg::R9, 12);
    } else {
        // Neither end is link-local or unspecified, and the destination is no multicast address.
        for at in [8, 24] {
            a.load(Size::B, Reg::R5, Reg::R9, at);
            for first in [0, 0xfe, 0xff] {
                a.jump_if(Reg::R5, JumpCondition::Equal, first, up);
            }
        }
        a.load(Size::W, Reg::R7, Reg::R9, 12);
        a.store(Size::W, Reg::Frame, PREFIX, Reg::R7);
        a.load(Size::W, Reg::R7, Reg::R9, 8);
    }
    a.jump_if(Reg::R7, JumpCondition::Equal, 0, up); // unspecified, as in sessions without an address of the family
    now(a, fast, up);
    a.load(Size::D, Reg::R9, Reg::Frame, ENTRY);
    let held = LockedSession::lock(a, up);
    a.load(Size::W, Reg::R1, Reg::R9, field!(teid));
    a.load(Size::W, Reg::R2, Reg::Frame, TEID);
    a.jump_if_reg(Reg::R1, JumpCondition::NotEqual, Reg::R2, held.other);
    // Packets from another address than the session's gNB go to the pipeline.
    a.load(Size::W, Reg::R1, Reg::R9, field!(gnb_ipv4));
    a.load(Size::W, Reg::R2, Reg::Frame, GNB);
    a.jump_if_reg(Reg::R1, JumpCondition::NotEqual, Reg::R2, held.other);
    a.load(Size::B, Reg::R1, Reg::R9, field!(ul_flow));
    a.jump_if(Reg::R1, JumpCondition::Equal, FastEntry::ANY_FLOW.into(), flow);
    a.jump_if_reg(Reg::R1, JumpCondition::NotEqual, Reg::R8, held.drops[0]);
    a.place(flow);
    is_ues(a, v4, Reg::R9, Reg::R7, held.drops[1]);
    let way = if v4 { UP } else { UP_IPV6 };
    pass(a, fast, way, &held);
    unlock(a, fast_state::FREE);
    count(a, fast, way, up);
    // The frame now begins fourteen octets before the UE's packet.
    a.load(Size::D, Reg::R9, Reg::Frame, HEADER);
    a.add(Reg::R9, (ETHERNET + OUTER).into());
    a.combine(Reg::R9, Do::Add, Reg::R8);
    trim(a, Reg::R9, leave);
    a.load(Size::D, Reg::R2, Reg::Frame, HEADER);
    a.add(Reg::R2, OUTER.into());
    a.copy(Reg::R1, Reg::R6);
    a.call(helper::XDP_ADJUST_HEAD);
    a.jump_if(Reg::R0, JumpCondition::NotEqual, 0, leave);
    frame(a);
    within(a, ETHERNET + 20, leave);
    hop_off(a, v4);
    send(a, fast, v4);
    held.finish(a, fast, way, up);
    no_room(a, fast, leave, up);
    if let Some(unusual) = unusual {
        a.place(unusual);
        a.load(Size::D, Reg::R9, Reg::Frame, ENTRY);
        a.load(Size::W, Reg::R1, Reg::R9, field!(teid));
        a.load(Size::W, Reg::R2, Reg::Frame, TEID);
        a.jump_if_reg(Reg::R1, JumpCondition::NotEqual, Reg::R2, up);
        a.load(Size::W, Reg::R1, Reg::R9, field!(gnb_ipv4));
        a.load(Size::W, Reg::R2, Reg::Frame, GNB);
        a.jump_if_reg(Reg::R1, JumpCondition::NotEqual, Reg::R2, up);
        leave_word(a, up);
    }
}

/// Continues only with a UE's packet at `R9` whose destination is certainly allowed; others go to the pipeline. `R8` and `R9` stay.
fn suspected(a: &mut Assembler, fast: &Fast, v4: bool, up: Label) {
    let destination = if v4 { 16 } else { 24 };
    if v4 {
        // Addresses of no data network: `is_special` of whimbrel_user. Those of IPv6 are checked with the source.
        a.load(Size::B, Reg::R4, Reg::R9, destination);
        for first in [0, 127] {
            a.jump_if(Reg::R4, JumpCondition::Equal, first, up);
        }
        a.jump_if(Reg::R4, JumpCondition::Greater, 223, up);
        a.load(Size::H, Reg::R4, Reg::R9, destination);
        a.jump_if(Reg::R4, JumpCondition::Equal, half([169, 254]), up);
    }
    a.store_value(Size::W, Reg::Frame, KEY, 0);
    look_up(a, fast.suspects, up);
    let (multipliers, below) = DestinationFilter::HASH;
    for (i, multiplier) in multipliers.into_iter().take(if v4 { 1 } else { 4 }).enumerate() {
        let (word, sum) = if i == 0 { (Reg::R4, None) } else { (Reg::R5, Some(Reg::R4)) };
        a.load(Size::W, word, Reg::R9, destination + 4 * i as i16);
        a.multiply(word, multiplier as i32);
        sum.into_iter().for_each(|sum| a.combine(sum, Do::Add, word));
    }
    a.shift_right(Reg::R4, below as i32);
    a.copy(Reg::R5, Reg::R4);
    // The word, by its octets, and the bit in it.
    a.shift_right(Reg::R4, 3);
    a.and(Reg::R4, (DestinationFilter::WORDS as i32 - 1) * 8);
    a.and(Reg::R5, 63);
    a.combine(Reg::R0, Do::Add, Reg::R4);
    a.load(Size::D, Reg::R4, Reg::R0, 0);
    a.combine(Reg::R4, Do::ShiftRight, Reg::R5);
    a.and(Reg::R4, 1);
    a.jump_if(Reg::R4, JumpCondition::NotEqual, 0, up);
}

/// A packet of the session whose entry is at `R9` goes up, and so must the following ones.
fn leave_word(a: &mut Assembler, up: Label) {
    a.set(Reg::R2, 1);
    a.add_shared(Reg::R9, field!(passed), Reg::R2);
    a.store_value(Size::H, Reg::R9, field!(missed), 1);
    a.jump(up);
}

/// Continues only if the session at a register has the UE's address, or the prefix whose first word is in a register.
fn is_ues(a: &mut Assembler, v4: bool, entry: Reg, first: Reg, other: Label) {
    let field = if v4 { field!(ue_ipv4) } else { field!(ue_ipv6) };
    a.load(Size::W, Reg::R1, entry, field);
    a.jump_if_reg(Reg::R1, JumpCondition::NotEqual, first, other);
    if !v4 {
        a.load(Size::W, Reg::R1, entry, field + 4);
        a.load(Size::W, Reg::R2, Reg::Frame, PREFIX);
        a.jump_if_reg(Reg::R1, JumpCondition::NotEqual, Reg::R2, other);
    }
}

/// A packet to a UE of a pool, of a family, without options, of a length and with hops that may be: likewise, and `R5` is where its
/// address is among the UEs, `R1` the session that UPF-C gives it where it can.
pub(super) fn downlink(a: &mut Assembler, fast: &Fast, v4: bool, up: Label) {
    let (bare, headers, leave, done) = (a.label(), a.label(), a.label(), a.label());
    let unusual = (!v4).then(|| a.label());
    let (another, found) = (a.label(), a.label());
    let destination = ETHERNET + if v4 { 16 } else { 24 };
    a.store(Size::W, Reg::Frame, KEY, Reg::R1);
    a.store(Size::W, Reg::Frame, PLACE, Reg::R5);
    keep_frame(a);
    if !v4 {
        a.load(Size::W, Reg::R9, Reg::R2, destination + 4);
        a.store(Size::W, Reg::Frame, PREFIX, Reg::R9);
    }
    a.load(Size::W, Reg::R9, Reg::R2, destination);
    fetch(a, fast, another);
    is_ues(a, v4, Reg::R0, Reg::R9, another);
    a.jump(found);
    a.place(another);
    a.load(Size::W, Reg::R1, Reg::Frame, PLACE);
    a.store(Size::W, Reg::Frame, KEY, Reg::R1);
    look_up(a, if v4 { fast.ues } else { fast.prefixes }, up);
    a.load(Size::D, Reg::R1, Reg::R0, 0);
    a.jump_if(Reg::R1, JumpCondition::Equal, 0, up);
    a.add(Reg::R1, -1);
    a.store(Size::W, Reg::Frame, KEY, Reg::R1);
    fetch(a, fast, up);
    a.place(found);
    take_frame(a);
    if v4 {
        checksum(a, Reg::R2, ETHERNET, up);
        length(a, Reg::R8, Reg::R2, ETHERNET + 2);
        a.jump_if(Reg::R8, JumpCondition::Less, 20, up);
    } else {
        no_extension(a, Reg::R2, ETHERNET, unusual.unwrap_or(up));
        length(a, Reg::R8, Reg::R2, ETHERNET + 4);
        a.add(Reg::R8, 40);
    }
    a.copy(Reg::R4, Reg::R2);
    a.add(Reg::R4, ETHERNET.into());
    a.combine(Reg::R4, Do::Add, Reg::R8);
    a.jump_if_reg(Reg::R4, JumpCondition::Greater, Reg::R3, up);
    a.store(Size::D, Reg::Frame, OCTETS, Reg::R8);
    a.load(Size::W, Reg::R7, Reg::R2, destination);
    now(a, fast, up);
    a.load(Size::D, Reg::R9, Reg::Frame, ENTRY);
    let held = LockedSession::lock(a, up);
    is_ues(a, v4, Reg::R9, Reg::R7, held.other);
    // Read under the lock, as it may change.
    for (field, to) in [(field!(container), CONTAINER), (field!(gnb_teid), TEID), (field!(gnb_ipv4), GNB)] {
        a.load(Size::W, Reg::R1, Reg::R9, field);
        a.store(Size::W, Reg::Frame, to, Reg::R1);
    }
    a.load(Size::B, Reg::R1, Reg::R9, field!(tos));
    a.store(Size::W, Reg::Frame, TOS, Reg::R1);
    a.store_value(Size::D, Reg::Frame, HEADER, 8);
    a.load(Size::W, Reg::R1, Reg::Frame, CONTAINER);
    a.jump_if(Reg::R1, JumpCondition::Equal, 0, bare);
    a.store_value(Size::D, Reg::Frame, HEADER, 16);
    a.place(bare);
    pass(a, fast, DOWN, &held);
    unlock(a, fast_state::FREE);
    count(a, fast, DOWN, up);
    frame(a);
    within(a, ETHERNET + 20, leave);
    hop_off(a, v4);
    a.copy(Reg::R9, Reg::R8);
    a.add(Reg::R9, ETHERNET.into());
    trim(a, Reg::R9, leave);
    a.load(Size::D, Reg::R2, Reg::Frame, HEADER);
    a.add(Reg::R2, OUTER.into());
    a.negate(Reg::R2);
    a.copy(Reg::R1, Reg::R6);
    a.call(helper::XDP_ADJUST_HEAD);
    a.jump_if(Reg::R0, JumpCondition::NotEqual, 0, leave);
    frame(a);
    within(a, ETHERNET + OUTER + 16, leave);
    ip_header(a, fast);
    // UDP: ports, length, no checksum (RFC 768; the UE's packet has its own).
    let udp = ETHERNET + 20;
    let port = half(fast.port.to_be_bytes());
    a.store_value(Size::H, Reg::R2, udp, port as i32);
    a.store_value(Size::H, Reg::R2, udp + 2, half(whimbrel_gtpu::PORT.to_be_bytes()) as i32);
    a.copy(Reg::R5, Reg::R8);
    a.load(Size::D, Reg::R4, Reg::Frame, HEADER);
    a.combine(Reg::R5, Do::Add, Reg::R4);
    a.add(Reg::R5, 8);
    a.big_endian_16(Reg::R5);
    a.store(Size::H, Reg::R2, udp + 4, Reg::R5);
    a.store_value(Size::H, Reg::R2, udp + 6, 0);
    let gtpu = ETHERNET + OUTER;
    a.load(Size::W, Reg::R5, Reg::Frame, TEID);
    a.store(Size::W, Reg::R2, gtpu + 4, Reg::R5);
    a.add(Reg::R4, -8);
    a.combine(Reg::R4, Do::Add, Reg::R8);
    a.big_endian_16(Reg::R4);
    a.store(Size::H, Reg::R2, gtpu + 2, Reg::R4);
    a.load(Size::W, Reg::R5, Reg::Frame, CONTAINER);
    a.jump_if(Reg::R5, JumpCondition::NotEqual, 0, headers);
    a.store_value(Size::H, Reg::R2, gtpu, half([0x30, 0xff]) as i32);
    a.jump(done);
    a.place(headers);
    a.store_value(Size::H, Reg::R2, gtpu, half([0x34, 0xff]) as i32);
    a.store_value(Size::W, Reg::R2, gtpu + 8, word(&[0, 0, 0, 0x85]) as i32);
    a.store(Size::W, Reg::R2, gtpu + 12, Reg::R5);
    a.place(done);
    send(a, fast, true);
    held.finish(a, fast, DOWN, up);
    no_room(a, fast, leave, up);
    if let Some(unusual) = unusual {
        a.place(unusual);
        a.load(Size::D, Reg::R9, Reg::Frame, ENTRY);
        leave_word(a, up);
    }
}

/// `R5` = where the address to which the packet at `R2` goes is among the UEs, `R1` = the index of the session that has it, if it is as
/// UPF-C prefers it, and on to [`downlink`].
pub(super) fn place(a: &mut Assembler, pool: &UeAddressPool, first: u32, down: Label) {
    // Of a prefix its lower word: a pool has the upper one.
    let (at, of_pool, begins) = match pool.first {
        IpAddr::V4(of_pool) => (ETHERNET + 16, of_pool.to_bits(), POOL_RESERVED_FIRST),
        IpAddr::V6(of_pool) => (ETHERNET + 28, (of_pool.to_bits() >> 64) as u32, POOL_RESERVED_FIRST_IPV6),
    };
    a.load(Size::W, Reg::R5, Reg::R2, at);
    a.big_endian_32(Reg::R5);
    // In 32 bits, as they are stored.
    a.copy(Reg::R1, Reg::R5);
    a.add(Reg::R1, 0u32.wrapping_sub(of_pool).wrapping_sub(begins) as i32);
    a.add(Reg::R5, first.wrapping_sub(of_pool) as i32);
    a.jump(down);
}

/// A session whose lock the program holds, and the exits.
struct LockedSession {
    /// The packet belongs to another session, and goes up.
    other: Label,
    /// Nothing has changed: the packet goes up, and so do the following ones.
    up: Label,
    /// It is dropped, by [`DROPS`].
    drops: [Label; DROPS.len()],
}

impl LockedSession {
    /// Takes the lock of the session at `R9`, or goes up; for a watched session that is counted. `R7` to `R9` stay.
    fn lock(a: &mut Assembler, up: Label) -> Self {
        let (again, taken, not_watched) = (a.label(), a.label(), a.label());
        let held = Self { other: a.label(), up: a.label(), drops: DROPS.map(|_| a.label()) };
        a.set(Reg::R1, LOOKS);
        a.set(Reg::R2, fast_state::BUSY as i32);
        a.place(again);
        a.set(Reg::R0, fast_state::FREE as i32);
        a.compare_exchange(Reg::R9, field!(state), Reg::R2);
        a.jump_if(Reg::R0, JumpCondition::Equal, fast_state::FREE, taken);
        a.jump_if(Reg::R0, JumpCondition::NotEqual, fast_state::WATCHED, not_watched);
        a.set(Reg::R2, 1);
        a.add_shared(Reg::R9, field!(passed), Reg::R2);
        // The pipeline may have taken the entry, and read the count, since the state was read: the session's next
        // packet must not overtake this one.
        a.set(Reg::R0, fast_state::WATCHED as i32);
        a.set(Reg::R2, fast_state::WATCHED as i32);
        a.compare_exchange(Reg::R9, field!(state), Reg::R2);
        a.jump_if(Reg::R0, JumpCondition::Equal, fast_state::WATCHED, up);
        a.store_value(Size::H, Reg::R9, field!(missed), 1);
        a.jump(up);
        a.place(not_watched);
        a.jump_if(Reg::R0, JumpCondition::NotEqual, fast_state::BUSY, up);
        a.add(Reg::R1, -1);
        a.jump_if(Reg::R1, JumpCondition::NotEqual, 0, again);
        a.store_value(Size::H, Reg::R9, field!(missed), 1);
        a.jump(up);
        a.place(taken);
        a.load(Size::H, Reg::R1, Reg::R9, field!(missed));
        a.jump_if(Reg::R1, JumpCondition::NotEqual, 0, held.up);
        held
    }

    /// The code of the exits.
    fn finish(self, a: &mut Assembler, fast: &Fast, way: FastDirection, up: Label) {
        let dropped = a.label();
        for (i, label) in self.drops.into_iter().enumerate().skip(way.first_drop) {
            a.place(label);
            a.set(Reg::R7, (way.dropped + i) as i32 * 8);
            a.jump(dropped);
        }
        a.place(dropped);
        a.load(Size::W, Reg::R1, Reg::R9, field!(dropped));
        a.jump_if(Reg::R1, JumpCondition::Equal, u32::MAX, self.up);
        a.add(Reg::R1, 1);
        a.store(Size::W, Reg::R9, field!(dropped), Reg::R1);
        unlock(a, fast_state::FREE);
        counters(a, fast, up);
        a.combine(Reg::R0, Do::Add, Reg::R7);
        add(a, 0, 1);
        a.set(Reg::R0, XDP_DROP);
        a.exit();
        a.place(self.other);
        unlock(a, fast_state::FREE);
        a.jump(up);
        a.place(self.up);
        unlock(a, fast_state::BEHIND);
        a.jump(up);
    }
}

/// Releases the lock of the session at `R9`, after all writes under it.
fn unlock(a: &mut Assembler, to: u32) {
    #[cfg(target_arch = "x86_64")] // whose stores are seen in their order
    a.store_value(Size::W, Reg::R9, field!(state), to as i32);
    #[cfg(not(target_arch = "x86_64"))]
    {
        a.set(Reg::R1, to as i32);
        a.exchange(Reg::R9, field!(state), Reg::R1);
    }
}

/// Headroom, gate, next hop, rate and usage of the session at `R9`; afterwards `R8` is the octets of the UE's packet.
fn pass(a: &mut Assembler, fast: &Fast, way: FastDirection, held: &LockedSession) {
    let (filled, unpoliced, counted, later) = (a.label(), a.label(), a.label(), a.label());
    a.load(Size::D, Reg::R8, Reg::Frame, OCTETS);
    a.load(Size::W, Reg::R7, Reg::R9, field!(room));
    a.jump_if_reg(Reg::R8, JumpCondition::Greater, Reg::R7, held.up);
    a.combine(Reg::R7, Do::Subtract, Reg::R8);
    a.load(Size::H, Reg::R1, Reg::R9, field!(gates));
    a.and(Reg::R1, way.closed.into());
    a.jump_if(Reg::R1, JumpCondition::NotEqual, 0, held.drops[2]);
    a.load(Size::H, Reg::R1, Reg::R9, way.hop);
    a.store(Size::W, Reg::Frame, KEY, Reg::R1);
    look_up(a, fast.hops, held.up);
    for (from, to) in [(0, HOP_TO), (8, HOP_FROM)] {
        a.load(Size::D, Reg::R1, Reg::R0, from);
        a.store(Size::D, Reg::Frame, to, Reg::R1);
    }
    a.copy(Reg::R2, Reg::R8);
    if way.counted == slot::DL_PACKETS {
        a.load(Size::D, Reg::R1, Reg::Frame, HEADER);
        a.combine(Reg::R2, Do::Add, Reg::R1);
        a.add(Reg::R2, OUTER.into());
    }
    a.load(Size::H, Reg::R1, Reg::Frame, HOP_MTU);
    a.jump_if_reg(Reg::R2, JumpCondition::Greater, Reg::R1, held.up);
    // The buckets of both directions fill.
    a.load(Size::D, Reg::R1, Reg::Frame, NOW);
    a.load(Size::D, Reg::R2, Reg::R9, field!(filled));
    a.jump_if_reg(Reg::R1, JumpCondition::LessOrEqual, Reg::R2, filled);
    a.store(Size::D, Reg::R9, field!(filled), Reg::R1);
    a.combine(Reg::R1, Do::Subtract, Reg::R2);
    let short = a.label();
    a.set(Reg::R2, FILLED_IN_US as i32);
    a.jump_if_reg(Reg::R1, JumpCondition::LessOrEqual, Reg::R2, short);
    a.copy(Reg::R1, Reg::R2);
    a.place(short);
    for (kbps, tokens) in [(field!(ul_kbps), field!(ul_tokens)), (field!(dl_kbps), field!(dl_tokens))] {
        let (none, full, deep) = (a.label(), a.label(), a.label());
        a.load(Size::W, Reg::R2, Reg::R9, kbps);
        a.jump_if(Reg::R2, JumpCondition::Equal, FastEntry::UNPOLICED, none);
        a.load(Size::W, Reg::R4, Reg::R9, field!(window_us));
        a.combine(Reg::R4, Do::Multiply, Reg::R2);
        a.jump_if_value(Reg::R4, JumpCondition::Equal, 0, deep); // rate zero
        a.set(Reg::R3, FastEntry::DEPTH_MIN as i32);
        a.jump_if_reg(Reg::R4, JumpCondition::Greater, Reg::R3, deep);
        a.copy(Reg::R4, Reg::R3);
        a.place(deep);
        a.combine(Reg::R2, Do::Multiply, Reg::R1);
        a.load(Size::D, Reg::R3, Reg::R9, tokens);
        a.combine(Reg::R3, Do::Add, Reg::R2);
        a.jump_if_reg(Reg::R3, JumpCondition::LessOrEqual, Reg::R4, full);
        a.copy(Reg::R3, Reg::R4);
        a.place(full);
        a.store(Size::D, Reg::R9, tokens, Reg::R3);
        a.place(none);
    }
    a.place(filled);
    a.load(Size::W, Reg::R1, Reg::R9, way.kbps);
    a.jump_if(Reg::R1, JumpCondition::Equal, FastEntry::UNPOLICED, unpoliced);
    a.copy(Reg::R1, Reg::R8);
    a.multiply(Reg::R1, 8000);
    a.load(Size::D, Reg::R2, Reg::R9, way.tokens);
    a.jump_if_reg(Reg::R1, JumpCondition::Greater, Reg::R2, held.drops[3]);
    a.combine(Reg::R2, Do::Subtract, Reg::R1);
    a.store(Size::D, Reg::R9, way.tokens, Reg::R2);
    a.place(unpoliced);
    a.load(Size::D, Reg::R1, Reg::Frame, NOW);
    a.load(Size::W, Reg::R2, Reg::R9, field!(ul_packets));
    a.load(Size::W, Reg::R3, Reg::R9, field!(dl_packets));
    a.combine(Reg::R2, Do::Or, Reg::R3);
    a.jump_if(Reg::R2, JumpCondition::NotEqual, 0, counted);
    a.store(Size::D, Reg::R9, field!(first_packet), Reg::R1);
    a.place(counted);
    // The pipeline may have seen one since the last tick.
    a.load(Size::D, Reg::R2, Reg::R9, field!(last_packet));
    a.jump_if_reg(Reg::R1, JumpCondition::LessOrEqual, Reg::R2, later);
    a.store(Size::D, Reg::R9, field!(last_packet), Reg::R1);
    a.place(later);
    a.store(Size::W, Reg::R9, field!(room), Reg::R7);
    a.load(Size::W, Reg::R1, Reg::R9, way.packets);
    a.add(Reg::R1, 1);
    a.store(Size::W, Reg::R9, way.packets, Reg::R1);
    a.load(Size::W, Reg::R1, Reg::R9, way.octets);
    a.combine(Reg::R1, Do::Add, Reg::R8);
    a.store(Size::W, Reg::R9, way.octets, Reg::R1);
}

/// Counts a packet that passes, of `R8` octets, among those of all sessions.
fn count(a: &mut Assembler, fast: &Fast, way: FastDirection, up: Label) {
    counters(a, fast, up);
    let at = way.counted as i16 * 8;
    add(a, at, 1);
    a.store(Size::D, Reg::Frame, IDENTIFICATION, Reg::R1);
    a.load(Size::D, Reg::R1, Reg::R0, at + 8);
    a.combine(Reg::R1, Do::Add, Reg::R8);
    a.store(Size::D, Reg::R0, at + 8, Reg::R1);
}

/// `R0` = the counters of this processor. There is an entry for each processor, so the exit `up` is never taken.
fn counters(a: &mut Assembler, fast: &Fast, up: Label) {
    a.call(helper::GET_SMP_PROCESSOR_ID);
    a.store(Size::W, Reg::Frame, KEY, Reg::R0);
    look_up(a, fast.counters, up);
}

/// Adds to a word at `R0`, which has no other writer; `R1` is what it is then.
fn add(a: &mut Assembler, at: i16, value: i32) {
    a.load(Size::D, Reg::R1, Reg::R0, at);
    a.add(Reg::R1, value);
    a.store(Size::D, Reg::R0, at, Reg::R1);
}

/// A counted packet is dropped: the driver has left no headroom.
fn no_room(a: &mut Assembler, fast: &Fast, leave: Label, up: Label) {
    a.place(leave);
    counters(a, fast, up);
    add(a, slot::NO_ROOM as i16 * 8, 1);
    a.set(Reg::R0, XDP_DROP);
    a.exit();
}

/// `R0` = the entry of a map by the number on the stack; goes elsewhere where there is none.
fn look_up(a: &mut Assembler, map: i32, none: Label) {
    a.map(Reg::R1, map);
    a.copy(Reg::R2, Reg::Frame);
    a.add(Reg::R2, KEY.into());
    a.call(helper::MAP_LOOKUP_ELEM);
    a.jump_if_value(Reg::R0, JumpCondition::Equal, 0, none);
}

/// Saves the frame and its end over calls, so that the verifier knows its bounds.
fn keep_frame(a: &mut Assembler) {
    a.copy(Reg::R7, Reg::R2);
    a.copy(Reg::R8, Reg::R3);
}

/// Restores what [`keep_frame`] has saved.
fn take_frame(a: &mut Assembler) {
    a.copy(Reg::R2, Reg::R7);
    a.copy(Reg::R3, Reg::R8);
}

/// Stores the entry of the session whose index is on the stack, and prefetches both its cache lines while the headers are checked. The
/// lock waits for earlier loads, and later loads wait for the lock, so that otherwise the lines would be loaded one after the other.
fn fetch(a: &mut Assembler, fast: &Fast, up: Label) {
    look_up(a, fast.sessions, up);
    a.store(Size::D, Reg::Frame, ENTRY, Reg::R0);
    a.load(Size::W, Reg::R1, Reg::R0, field!(teid));
    a.load(Size::W, Reg::R1, Reg::R0, field!(state));
}

/// Stores the time.
fn now(a: &mut Assembler, fast: &Fast, up: Label) {
    let _ = up; // of a test alone
    match fast.time {
        Time::Kernel { offset_us } => {
            a.call(helper::KTIME_GET_COARSE_NS);
            a.divide(Reg::R0, 1000);
            a.set_wide(Reg::R1, offset_us);
            a.combine(Reg::R0, Do::Add, Reg::R1);
        }
        #[cfg(test)]
        Time::Test(map) => {
            a.load(Size::W, Reg::R1, Reg::Frame, KEY);
            a.store(Size::W, Reg::Frame, SAVED, Reg::R1);
            a.store_value(Size::W, Reg::Frame, KEY, 0);
            look_up(a, map, up);
            a.load(Size::D, Reg::R0, Reg::R0, 0);
            a.load(Size::W, Reg::R1, Reg::Frame, SAVED);
            a.store(Size::W, Reg::Frame, KEY, Reg::R1);
        }
    }
    a.store(Size::D, Reg::Frame, NOW, Reg::R0);
}

/// The header of IPv4 towards the gNB. Routers may fragment the packet, as with any other kind of I/O.
fn ip_header(a: &mut Assembler, fast: &Fast) {
    let at = ETHERNET;
    a.store_value(Size::B, Reg::R2, at, 0x45);
    a.load(Size::W, Reg::R5, Reg::Frame, TOS);
    a.store(Size::B, Reg::R2, at + 1, Reg::R5);
    a.load(Size::D, Reg::R5, Reg::Frame, HEADER);
    a.combine(Reg::R5, Do::Add, Reg::R8);
    a.add(Reg::R5, OUTER.into());
    a.big_endian_16(Reg::R5);
    a.store(Size::H, Reg::R2, at + 2, Reg::R5);
    a.load(Size::D, Reg::R5, Reg::Frame, IDENTIFICATION);
    a.store(Size::H, Reg::R2, at + 4, Reg::R5);
    a.store_value(Size::H, Reg::R2, at + 6, 0);
    a.store_value(Size::H, Reg::R2, at + 8, half([64, UDP as u8]) as i32);
    a.store_value(Size::H, Reg::R2, at + 10, 0);
    a.store_value(Size::W, Reg::R2, at + 12, word(&fast.own) as i32);
    a.load(Size::W, Reg::R5, Reg::Frame, GNB);
    a.store(Size::W, Reg::R2, at + 16, Reg::R5);
    header_sum(a, Reg::R2, at);
    a.invert(Reg::R4);
    a.store(Size::H, Reg::R2, at + 10, Reg::R4);
}

/// Writes the Ethernet header at `R2` of a packet of a family, and sends the frame by the next hop.
fn send(a: &mut Assembler, fast: &Fast, v4: bool) {
    for (from, to) in [(HOP_TO, 0), (HOP_FROM, 6)] {
        a.load(Size::W, Reg::R4, Reg::Frame, from);
        a.store(Size::W, Reg::R2, to, Reg::R4);
        a.load(Size::H, Reg::R4, Reg::Frame, from + 4);
        a.store(Size::H, Reg::R2, to + 4, Reg::R4);
    }
    a.store_value(Size::H, Reg::R2, 12, kind(v4) as i32);
    a.map(Reg::R1, fast.devices);
    a.load(Size::H, Reg::R2, Reg::Frame, HOP_DEVICE);
    a.set(Reg::R3, XDP_DROP);
    a.call(helper::REDIRECT_MAP);
    a.exit();
}
