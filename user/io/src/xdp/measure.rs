//! Programs that measurements need: see [`crate::measure`].

use std::mem::offset_of;
use std::net::Ipv4Addr;

use whimbrel_user::FastEntry;

use super::asm::{Assembler, Do, JumpCondition, Reg, Size};
use super::headers::{OUTER, checksum, frame as load_frame, hop_off};
use super::steer::{ETHERNET, half, within, word};
use crate::sys::bpf::Instruction;

/// Addresses of generated frames.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Ethernet address to which frames go.
    pub to_mac: [u8; 6],
    /// And of those that the UPF sends on.
    pub next_mac: [u8; 6],
    /// Address of the gNB.
    pub gnb: Ipv4Addr,
    /// The UPF's on N3.
    pub upf: Ipv4Addr,
    /// The far end of UEs.
    pub server: Ipv4Addr,
}

const PRANDOM_U32: i32 = 7;
const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;
const MAP_LOOKUP_ELEM: i32 = 1;
const KTIME_GET_NS: i32 = 5;
const KTIME_GET_COARSE_NS: i32 = 160;
const XDP_ADJUST_HEAD: i32 = 44;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
/// The outer headers, with GTP-U's of a PDU session container.
const GTPU: i16 = ETHERNET + OUTER;
const INNER: i16 = GTPU + 16;

fn ones(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// The header of an IPv4 packet with UDP.
fn ipv4(octets: usize, from: Ipv4Addr, to: Ipv4Addr) -> [u8; 20] {
    let mut h = [0; 20];
    h[0] = 0x45;
    h[2..4].copy_from_slice(&(octets as u16).to_be_bytes());
    h[8..10].copy_from_slice(&[64, 17]);
    h[12..16].copy_from_slice(&from.octets());
    h[16..20].copy_from_slice(&to.octets());
    let checksum = ones(&h);
    h[10..12].copy_from_slice(&checksum.to_be_bytes());
    h
}

/// The checksum of a UE's packet's header.
pub(crate) fn inner_checksum(uplink: bool, a: &Addresses, octets: usize, ue: Ipv4Addr) -> u16 {
    let (from, to) = if uplink { (ue, a.server) } else { (a.server, ue) };
    let h = ipv4(octets, from, to);
    u16::from_be_bytes([h[10], h[11]])
}

/// A frame, but for what differs from session to session.
pub(crate) fn frame(uplink: bool, a: &Addresses, octets: usize) -> Vec<u8> {
    let unspecified = Ipv4Addr::UNSPECIFIED;
    let mut f = [&a.to_mac[..], &[2, 0, 0, 0, 0, 0x99], &[8, 0]].concat();
    if uplink {
        let datagram = 8 + 16 + octets;
        f.extend_from_slice(&ipv4(20 + datagram, a.gnb, a.upf));
        f.extend_from_slice([2152, 2152, datagram as u16, 0].map(u16::to_be_bytes).as_flattened());
        f.extend_from_slice(&[0x34, 0xff]);
        f.extend_from_slice(&(octets as u16 + 8).to_be_bytes());
        f.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x85, 1, 0x10, 1, 0]);
        f.extend_from_slice(&ipv4(octets, unspecified, a.server));
    } else {
        f.extend_from_slice(&ipv4(octets, a.server, unspecified));
    }
    f.resize(f.len() + octets - 20, 7);
    f
}

/// Writes the headers of a frame of one of `count` sessions, and sends it out of an interface.
pub(crate) fn flood(
    uplink: bool,
    template: &[u8],
    sources: i32,
    count: u32,
    interface: u32,
) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let end = a.label();
    let inner = if uplink { INNER } else { ETHERNET };
    a.copy(Reg::R6, Reg::R1);
    a.call(PRANDOM_U32);
    a.set_wide(Reg::R1, count.into());
    a.combine(Reg::R0, Do::Multiply, Reg::R1);
    a.shift_right(Reg::R0, 32);
    a.store(Size::W, Reg::Frame, -8, Reg::R0);
    look_up(&mut a, sources, end);
    load_frame(&mut a);
    within(&mut a, inner + 20, end);
    let headers = &template[..inner as usize + 20];
    let (words, rest) = headers.as_chunks::<4>();
    for (i, octets) in words.iter().enumerate() {
        a.store_value(Size::W, Reg::R2, 4 * i as i16, word(octets) as i32);
    }
    if let &[x, y] = rest {
        a.store_value(Size::H, Reg::R2, 4 * words.len() as i16, half([x, y]) as i32);
    }
    if uplink {
        a.load(Size::W, Reg::R1, Reg::R0, 0);
        a.store(Size::W, Reg::R2, GTPU + 4, Reg::R1);
    }
    a.load(Size::W, Reg::R1, Reg::R0, 4);
    a.store(Size::W, Reg::R2, inner + if uplink { 12 } else { 16 }, Reg::R1);
    a.load(Size::H, Reg::R1, Reg::R0, 8);
    a.store(Size::H, Reg::R2, inner + 10, Reg::R1);
    a.set(Reg::R1, interface as i32);
    a.set(Reg::R2, 0);
    a.call(REDIRECT);
    a.exit();
    drops(&mut a, end);
    a.finish()
}

/// A program that drops all packets.
pub(crate) fn drop_all() -> Vec<Instruction> {
    always(XDP_DROP)
}

/// Lets everything pass.
pub(crate) fn pass_all() -> Vec<Instruction> {
    always(XDP_PASS)
}

fn always(verdict: i32) -> Vec<Instruction> {
    let mut a = Assembler::default();
    a.set(Reg::R0, verdict);
    a.exit();
    a.finish()
}

/// A bare program. Each of the first ones does what those before it do, and something more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BareProgram {
    /// Reads both lines of the session's entry, whose index the packet says; takes the outer headers off, or makes room for them; sends
    /// the packet on.
    Read,
    /// Writes counters into the entry.
    Write,
    /// Under the entry's lock.
    Lock,
    /// With the kernel's time of its last tick.
    Time,
    /// Verifies the checksums of IPv4 headers, and takes a hop off.
    Headers,
    /// As [`Self::Read`], but the index is what an array says at the place that the packet says.
    ByArray,
    /// As [`Self::Read`], but the entry is in a hash map.
    ByHash,
    /// As [`Self::Time`], with the time of now.
    ExactTime,
}

impl BareProgram {
    /// All, as they stand in a table.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Lock,
        Self::Time,
        Self::Headers,
        Self::ByArray,
        Self::ByHash,
        Self::ExactTime,
    ];

    /// Whether it does what another does too.
    fn does(self, what: Self) -> bool {
        match self {
            Self::ByArray | Self::ByHash => what == Self::Read,
            Self::ExactTime => what <= Self::Lock,
            _ => what <= self,
        }
    }
}

/// What bare programs read.
pub(crate) struct BareProgramMemory {
    /// Descriptors of maps: [`FastEntry`] by index and by name, and indices by place.
    pub(crate) entries: i32,
    pub(crate) by_hash: i32,
    pub(crate) by_array: i32,
    /// Where frames leave.
    pub(crate) devices: i32,
    /// Bits of a name that are an index.
    pub(crate) mask: u32,
}

/// The program of a step.
pub(crate) fn bare(
    step: BareProgram,
    uplink: bool,
    to: &Addresses,
    memory: &BareProgramMemory,
) -> Vec<Instruction> {
    const STATE: i16 = offset_of!(FastEntry, state) as i16;
    let mut a = Assembler::default();
    let end = a.label();
    a.copy(Reg::R6, Reg::R1);
    load_frame(&mut a);
    let (least, name) = if uplink { (INNER + 20, GTPU + 4) } else { (ETHERNET + 20, ETHERNET + 16) };
    within(&mut a, least, end);
    a.load(Size::W, Reg::R5, Reg::R2, name);
    if step != BareProgram::ByHash {
        a.big_endian_32(Reg::R5);
        a.and(Reg::R5, memory.mask as i32);
    }
    a.store(Size::W, Reg::Frame, -8, Reg::R5);
    if step == BareProgram::ByArray {
        look_up(&mut a, memory.by_array, end);
        a.load(Size::W, Reg::R5, Reg::R0, 0);
        a.store(Size::W, Reg::Frame, -8, Reg::R5);
    }
    look_up(&mut a, if step == BareProgram::ByHash { memory.by_hash } else { memory.entries }, end);
    a.copy(Reg::R9, Reg::R0);
    a.load(Size::W, Reg::R1, Reg::R9, 0);
    a.load(Size::W, Reg::R2, Reg::R9, STATE);
    if step.does(BareProgram::Headers) {
        load_frame(&mut a);
        within(&mut a, least, end);
        checksum(&mut a, Reg::R2, ETHERNET, end);
        if uplink {
            checksum(&mut a, Reg::R2, INNER, end);
        }
    }
    a.set(Reg::R7, 0);
    if step.does(BareProgram::Time) || step == BareProgram::ExactTime {
        a.call(if step == BareProgram::ExactTime { KTIME_GET_NS } else { KTIME_GET_COARSE_NS });
        a.copy(Reg::R7, Reg::R0);
    }
    if step.does(BareProgram::Lock) {
        a.set(Reg::R0, 0);
        a.set(Reg::R2, 1);
        a.compare_exchange(Reg::R9, STATE, Reg::R2);
        a.jump_if(Reg::R0, JumpCondition::NotEqual, 0, end);
    }
    // So that the measurement waits for the value, as a decision on it would.
    a.load(Size::W, Reg::R1, Reg::R9, 0);
    if !step.does(BareProgram::Lock) {
        a.load(Size::W, Reg::R2, Reg::R9, STATE);
        a.combine(Reg::R1, Do::Or, Reg::R2);
    }
    a.jump_if(Reg::R1, JumpCondition::NotEqual, 0, end);
    if step.does(BareProgram::Write) {
        for (field, value) in [
            (offset_of!(FastEntry, ul_packets), 1),
            (offset_of!(FastEntry, ul_octets), 100),
            (offset_of!(FastEntry, room), -100),
        ] {
            a.load(Size::W, Reg::R1, Reg::R9, field as i16);
            a.add(Reg::R1, value);
            a.store(Size::W, Reg::R9, field as i16, Reg::R1);
        }
        a.store(Size::D, Reg::R9, offset_of!(FastEntry, last_packet) as i16, Reg::R7);
    }
    if step.does(BareProgram::Lock) {
        a.set(Reg::R1, 0);
        a.store(Size::W, Reg::R9, STATE, Reg::R1);
    }
    a.copy(Reg::R1, Reg::R6);
    let more = i32::from(INNER - ETHERNET);
    a.set(Reg::R2, if uplink { more } else { -more });
    a.call(XDP_ADJUST_HEAD);
    load_frame(&mut a);
    within(&mut a, ETHERNET + 20, end);
    if step.does(BareProgram::Headers) {
        hop_off(&mut a, true);
    }
    let macs = [&to.next_mac[..], &[2, 0, 0, 0, 0, 1], &[8, 0]].concat();
    for (i, octets) in macs.chunks(2).enumerate() {
        a.store_value(Size::H, Reg::R2, 2 * i as i16, half([octets[0], octets[1]]) as i32);
    }
    a.map(Reg::R1, memory.devices);
    a.set(Reg::R2, 0);
    a.set(Reg::R3, XDP_DROP);
    a.call(REDIRECT_MAP);
    a.exit();
    drops(&mut a, end);
    a.finish()
}

fn look_up(a: &mut Assembler, map: i32, none: super::asm::Label) {
    a.map(Reg::R1, map);
    a.copy(Reg::R2, Reg::Frame);
    a.add(Reg::R2, -8);
    a.call(MAP_LOOKUP_ELEM);
    a.jump_if_value(Reg::R0, JumpCondition::Equal, 0, none);
}

fn drops(a: &mut Assembler, label: super::asm::Label) {
    a.place(label);
    a.set(Reg::R0, XDP_DROP);
    a.exit();
}
