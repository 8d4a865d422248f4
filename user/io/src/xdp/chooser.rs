//! The program by which a TUN device with several queues chooses one for a packet to a UE.

use super::asm::{Assembler, JumpCondition, Reg, Size};
use crate::sys::bpf::Instruction;

/// Where the destination is, as far as pools tell addresses apart: IPv4's, and the lower half of an IPv6 prefix of 64 bits.
const IPV4_AT: i32 = 16;
const IPV6_PREFIX_AT: i32 = 28;

/// The queue of a packet is what the lowest bits of its UE's address, or prefix, say, as the shard of its session is. What is no IP
/// packet is not seen here. `queues` is a power of two.
pub(crate) fn by_ue(queues: u32) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let (six, found) = (a.label(), a.label());
    a.copy(Reg::R6, Reg::R1);
    a.load_packet(Size::B, 0);
    a.and(Reg::R0, 0xf0);
    a.jump_if(Reg::R0, JumpCondition::Equal, 0x60, six);
    a.load_packet(Size::W, IPV4_AT);
    a.jump(found);
    a.place(six);
    a.load_packet(Size::W, IPV6_PREFIX_AT);
    a.place(found);
    a.and(Reg::R0, queues as i32 - 1);
    a.exit();
    a.finish()
}
