//! Headers of a frame that a program reads, checks and changes.

use super::asm::{Assembler, Do, JumpCondition, Label, Reg, Size};
use super::steer::{DATA, DATA_END, ETHERNET, UDP, half, within};

/// Helpers of linux/bpf.h, none of which is kept for GPL programs.
mod helper {
    pub(super) const CSUM_DIFF: i32 = 28;
    pub(super) const XDP_ADJUST_TAIL: i32 = 65;
}

/// Octets of IPv4's and UDP's headers.
pub(super) const OUTER: i16 = 28;
/// Octets of a datagram whose checksum is verified here, less than twice this.
const CHUNK_MAX: i32 = 1024;

/// `to` = two octets, as a number.
pub(super) fn length(a: &mut Assembler, to: Reg, from: Reg, at: i16) {
    a.load(Size::H, to, from, at);
    a.big_endian_16(to);
}

/// Goes on only if a register and so many more are no more than another.
pub(super) fn at_most(a: &mut Assembler, less: Reg, more: i32, than: Reg, up: Label) {
    a.copy(Reg::R4, less);
    a.add(Reg::R4, more);
    a.jump_if_reg(Reg::R4, JumpCondition::Greater, than, up);
}

/// Folds the sum in a register to 16 bits. Uses `R5`.
pub(super) fn fold(a: &mut Assembler, sum: Reg) {
    // Of five words of 32 bits: three more bits the first time, one the second.
    for _ in 0..3 {
        a.copy(Reg::R5, sum);
        a.shift_right(Reg::R5, 16);
        a.and(sum, 0xffff);
        a.combine(sum, Do::Add, Reg::R5);
    }
}

/// `R4` = the sum of the words of an IPv4 header without options, folded. Uses `R5`.
pub(super) fn header_sum(a: &mut Assembler, at: Reg, offset: i16) {
    a.load(Size::W, Reg::R4, at, offset);
    for i in 1..5 {
        a.load(Size::W, Reg::R5, at, offset + 4 * i);
        a.combine(Reg::R4, Do::Add, Reg::R5);
    }
    fold(a, Reg::R4);
}

/// Goes on only if the checksum of an IPv4 header without options is right.
pub(super) fn checksum(a: &mut Assembler, at: Reg, offset: i16, up: Label) {
    header_sum(a, at, offset);
    a.jump_if(Reg::R4, JumpCondition::NotEqual, 0xffff, up);
}

/// Goes on only if the UDP datagram's checksum is right or left out, `R8` being its octets. `R2`, `R3`, `R6` and `R8` stay.
///
/// The sum of the pseudo-header alone, as virtual links leave it, is right too.
pub(super) fn datagram_checksum(a: &mut Assembler, up: Label) {
    let done = a.label();
    a.load(Size::H, Reg::R5, Reg::R2, ETHERNET + 26);
    a.jump_if(Reg::R5, JumpCondition::Equal, 0, done);
    a.jump_if(Reg::R8, JumpCondition::Greater, 2 * CHUNK_MAX as u32 - 1, up);
    // The pseudo-header: addresses, protocol, length.
    a.load(Size::W, Reg::R7, Reg::R2, ETHERNET + 12);
    a.load(Size::W, Reg::R4, Reg::R2, ETHERNET + 16);
    a.combine(Reg::R7, Do::Add, Reg::R4);
    a.add(Reg::R7, half([0, UDP as u8]) as i32);
    a.load(Size::H, Reg::R4, Reg::R2, ETHERNET + 24);
    a.combine(Reg::R7, Do::Add, Reg::R4);
    fold(a, Reg::R7);
    a.load(Size::H, Reg::R5, Reg::R2, ETHERNET + 26);
    a.jump_if_reg(Reg::R7, JumpCondition::Equal, Reg::R5, done);
    a.copy(Reg::R9, Reg::R2);
    a.add(Reg::R9, (ETHERNET + 20).into());
    // In pieces that halve: the helper takes lengths that the verifier knows.
    let mut octets = CHUNK_MAX;
    while octets >= 4 {
        let next = a.label();
        a.copy(Reg::R4, Reg::R8);
        a.and(Reg::R4, octets);
        a.jump_if(Reg::R4, JumpCondition::Equal, 0, next);
        a.load(Size::W, Reg::R3, Reg::R6, DATA_END);
        a.copy(Reg::R4, Reg::R9);
        a.add(Reg::R4, octets);
        a.jump_if_reg(Reg::R4, JumpCondition::Greater, Reg::R3, up);
        a.set(Reg::R1, 0);
        a.set(Reg::R2, 0);
        a.copy(Reg::R3, Reg::R9);
        a.set(Reg::R4, octets);
        a.copy(Reg::R5, Reg::R7);
        a.call(helper::CSUM_DIFF);
        a.copy(Reg::R7, Reg::R0);
        a.add(Reg::R9, octets);
        a.place(next);
        octets /= 2;
    }
    a.load(Size::W, Reg::R3, Reg::R6, DATA_END);
    for (octets, size) in [(2, Size::H), (1, Size::B)] {
        let next = a.label();
        a.copy(Reg::R4, Reg::R8);
        a.and(Reg::R4, octets);
        a.jump_if(Reg::R4, JumpCondition::Equal, 0, next);
        a.copy(Reg::R4, Reg::R9);
        a.add(Reg::R4, octets);
        a.jump_if_reg(Reg::R4, JumpCondition::Greater, Reg::R3, up);
        a.load(size, Reg::R4, Reg::R9, 0);
        if cfg!(target_endian = "big") && octets == 1 {
            a.multiply(Reg::R4, 256);
        }
        a.combine(Reg::R7, Do::Add, Reg::R4);
        a.add(Reg::R9, octets);
        a.place(next);
    }
    fold(a, Reg::R7);
    a.jump_if(Reg::R7, JumpCondition::NotEqual, 0xffff, up);
    a.load(Size::W, Reg::R2, Reg::R6, DATA);
    a.load(Size::W, Reg::R3, Reg::R6, DATA_END);
    within(a, ETHERNET + OUTER + 16 + 20, up);
    a.place(done);
}

/// Reloads `R2` and `R3`: the frame and its end.
pub(super) fn frame(a: &mut Assembler) {
    a.load(Size::W, Reg::R2, Reg::R6, DATA);
    a.load(Size::W, Reg::R3, Reg::R6, DATA_END);
}

/// Cuts a frame to the octets in a register, which survives a call.
pub(super) fn trim(a: &mut Assembler, octets: Reg, leave: Label) {
    let whole = a.label();
    frame(a);
    a.combine(Reg::R3, Do::Subtract, Reg::R2);
    a.copy(Reg::R2, octets);
    a.combine(Reg::R2, Do::Subtract, Reg::R3);
    a.jump_if(Reg::R2, JumpCondition::Equal, 0, whole);
    a.copy(Reg::R1, Reg::R6);
    a.call(helper::XDP_ADJUST_TAIL);
    a.jump_if(Reg::R0, JumpCondition::NotEqual, 0, leave);
    a.place(whole);
}

/// Goes on only with an IPv6 packet without extension headers, of TCP, UDP or ICMPv6.
pub(super) fn no_extension(a: &mut Assembler, at: Reg, offset: i16, up: Label) {
    let known = a.label();
    a.load(Size::B, Reg::R5, at, offset + 6);
    for protocol in [6, UDP, 58] {
        a.jump_if(Reg::R5, JumpCondition::Equal, protocol, known);
    }
    a.jump(up);
    a.place(known);
}

/// Takes a hop off the packet behind the Ethernet header at `R2`: of IPv4 by RFC 1141, with the carry.
pub(super) fn hop_off(a: &mut Assembler, v4: bool) {
    if !v4 {
        a.load(Size::B, Reg::R4, Reg::R2, ETHERNET + 7);
        a.add(Reg::R4, -1);
        a.store(Size::B, Reg::R2, ETHERNET + 7, Reg::R4);
        return;
    }
    a.load(Size::B, Reg::R4, Reg::R2, ETHERNET + 8);
    a.add(Reg::R4, -1);
    a.store(Size::B, Reg::R2, ETHERNET + 8, Reg::R4);
    a.load(Size::H, Reg::R4, Reg::R2, ETHERNET + 10);
    a.add(Reg::R4, half([1, 0]) as i32);
    a.copy(Reg::R5, Reg::R4);
    a.shift_right(Reg::R5, 16);
    a.combine(Reg::R4, Do::Add, Reg::R5);
    a.store(Size::H, Reg::R2, ETHERNET + 10, Reg::R4);
}
