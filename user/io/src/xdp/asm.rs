//! Instructions of BPF (RFC 9669), as many as our programs need, with labels to jump to.

use crate::sys::bpf::Instruction;

/// A register. `R1` to `R5` are arguments and lost in a call, `R0` is the result, `R6` to `R9` survive, `Frame` is the end of the
/// stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    Frame,
}

/// Octets that a load or a store takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Size {
    B = 0x10,
    H = 0x08,
    W = 0x00,
    D = 0x18,
}

/// When a jump is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum JumpCondition {
    Equal = 0x10,
    Greater = 0x20,
    NotEqual = 0x50,
    Less = 0xa0,
    LessOrEqual = 0xb0,
}

/// What is done with two registers, in all 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Do {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Or = 0x40,
    ShiftRight = 0x70,
}

/// A place in the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// A program under construction.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Instruction>,
    /// Where each label is, once placed.
    labels: Vec<Option<usize>>,
    /// Jumps whose distance is still to be written, and where to.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn emit(&mut self, op: u8, to: Reg, from: Reg, offset: i16, immediate: i32) {
        self.code.push(Instruction { op, registers: (from as u8) << 4 | to as u8, offset, immediate });
    }

    /// A label that is not placed yet.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// `to = *(from + offset)`, zero-extended.
    pub(super) fn load(&mut self, size: Size, to: Reg, from: Reg, offset: i16) {
        self.emit(0x61 | size as u8, to, from, offset, 0);
    }

    /// `R0` = what a socket's packet has there, as a number: the program ends with zero where it ends before. `R6` is the packet.
    pub(super) fn load_packet(&mut self, size: Size, at: i32) {
        self.emit(0x20 | size as u8, Reg::R0, Reg::R0, 0, at);
    }

    /// `*(to + offset) = from`.
    pub(super) fn store(&mut self, size: Size, to: Reg, offset: i16, from: Reg) {
        self.emit(0x63 | size as u8, to, from, offset, 0);
    }

    /// `*(to + offset) = value`.
    pub(super) fn store_value(&mut self, size: Size, to: Reg, offset: i16, value: i32) {
        self.emit(0x62 | size as u8, to, Reg::R0, offset, value);
    }

    /// Where the word at `to + offset` is what `R0` says, it becomes `from`; `R0` is what it was. It is atomic.
    pub(super) fn compare_exchange(&mut self, to: Reg, offset: i16, from: Reg) {
        self.emit(0xc3, to, from, offset, 0xf1);
    }

    /// The word at `to + offset` becomes `from`, and `from` what it was, after all stores before it.
    #[cfg_attr(target_arch = "x86_64", expect(dead_code, reason = "stores keep their order there"))]
    pub(super) fn exchange(&mut self, to: Reg, offset: i16, from: Reg) {
        self.emit(0xc3, to, from, offset, 0xe1);
    }

    /// Adds atomically to the word at `to + offset`.
    pub(super) fn add_shared(&mut self, to: Reg, offset: i16, from: Reg) {
        self.emit(0xc3, to, from, offset, 0);
    }

    /// `to = to ∘ from`.
    pub(super) fn combine(&mut self, to: Reg, what: Do, from: Reg) {
        self.emit(0x0f | what as u8, to, from, 0, 0);
    }

    /// `to *= value`.
    pub(super) fn multiply(&mut self, to: Reg, value: i32) {
        self.emit(0x27, to, Reg::R0, 0, value);
    }

    /// `to /= value`.
    pub(super) fn divide(&mut self, to: Reg, value: i32) {
        self.emit(0x37, to, Reg::R0, 0, value);
    }

    /// `to >>= bits`.
    pub(super) fn shift_right(&mut self, to: Reg, bits: i32) {
        self.emit(0x77, to, Reg::R0, 0, bits);
    }

    /// `to = !to`.
    pub(super) fn invert(&mut self, to: Reg) {
        self.emit(0xa7, to, Reg::R0, 0, -1);
    }

    /// `to = -to`.
    pub(super) fn negate(&mut self, to: Reg) {
        self.emit(0x87, to, Reg::R0, 0, 0);
    }

    /// `to = value`, of 64 bits.
    pub(super) fn set_wide(&mut self, to: Reg, value: u64) {
        self.emit(0x18, to, Reg::R0, 0, value as u32 as i32);
        self.emit(0, Reg::R0, Reg::R0, 0, (value >> 32) as i32);
    }

    /// `to = value`.
    pub(super) fn set(&mut self, to: Reg, value: i32) {
        self.emit(0xb7, to, Reg::R0, 0, value);
    }

    /// `to = from`.
    pub(super) fn copy(&mut self, to: Reg, from: Reg) {
        self.emit(0xbf, to, from, 0, 0);
    }

    /// `to += value`.
    pub(super) fn add(&mut self, to: Reg, value: i32) {
        self.emit(0x07, to, Reg::R0, 0, value);
    }

    /// `to &= value`.
    pub(super) fn and(&mut self, to: Reg, value: i32) {
        self.emit(0x57, to, Reg::R0, 0, value);
    }

    /// In the lower 32 bits, the upper ones become zero: `to ^= value`.
    pub(super) fn differ_32(&mut self, to: Reg, value: u32) {
        self.emit(0xa4, to, Reg::R0, 0, value as i32);
    }

    /// Likewise: `to *= value`.
    pub(super) fn multiply_32(&mut self, to: Reg, value: u32) {
        self.emit(0x24, to, Reg::R0, 0, value as i32);
    }

    /// Likewise: `to ^= from`.
    pub(super) fn differ_from_32(&mut self, to: Reg, from: Reg) {
        self.emit(0xac, to, from, 0, 0);
    }

    /// `to =` its lower 16 bits, which were loaded from big-endian octets, as a number.
    pub(super) fn big_endian_16(&mut self, to: Reg) {
        self.emit(0xdc, to, Reg::R0, 0, 16);
    }

    /// `to =` its lower 32 bits, which were loaded from big-endian octets, as a number; and the way back.
    pub(super) fn big_endian_32(&mut self, to: Reg) {
        self.emit(0xdc, to, Reg::R0, 0, 32);
    }

    /// Jumps where the lower 32 bits of a register compare so with a value.
    pub(super) fn jump_if(&mut self, a: Reg, when: JumpCondition, value: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x06 | when as u8, a, Reg::R0, 0, value as i32);
    }

    /// Jumps where all 64 bits of a register compare so with a value: what the verifier wants of addresses.
    pub(super) fn jump_if_value(&mut self, a: Reg, when: JumpCondition, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05 | when as u8, a, Reg::R0, 0, value);
    }

    /// Jumps where two registers compare so, all 64 bits: the form in which the verifier sees bounds of pointers.
    pub(super) fn jump_if_reg(&mut self, a: Reg, when: JumpCondition, b: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05 | 0x08 | when as u8, a, b, 0, 0);
    }

    /// Emits a jump to the label.
    pub(super) fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.emit(0x05, Reg::R0, Reg::R0, 0, 0);
    }

    /// `to =` the map of a descriptor.
    pub(super) fn map(&mut self, to: Reg, fd: i32) {
        // An instruction of two slots; the source register says that the value is a map's descriptor.
        self.emit(0x18, to, Reg::R1, 0, fd);
        self.emit(0, Reg::R0, Reg::R0, 0, 0);
    }

    /// Calls a helper of the kernel.
    pub(super) fn call(&mut self, helper: i32) {
        self.emit(0x85, Reg::R0, Reg::R0, 0, helper);
    }

    /// Ends the program with `R0`.
    pub(super) fn exit(&mut self) {
        self.emit(0x95, Reg::R0, Reg::R0, 0, 0);
    }

    /// The program. Panics: if a jump leads to a label that was never placed, a defect of the program's writer.
    pub(super) fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("every label is placed");
            self.code[at].offset = (to as isize - at as isize - 1) as i16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // RFC 9669 §4: octets of the instructions, jumps counted from the next one
    fn instructions_are_those_of_the_standard() {
        let mut a = Assembler::default();
        let end = a.label();
        a.load(Size::H, Reg::R5, Reg::R2, 12);
        a.jump_if(Reg::R5, JumpCondition::NotEqual, 0x0008, end);
        a.set(Reg::R0, 1);
        a.place(end);
        a.exit();
        let words: Vec<_> = a.finish().iter().map(|i| (i.op, i.registers, i.offset, i.immediate)).collect();
        let expected = [(0x69, 0x25, 12, 0), (0x56, 0x05, 1, 8), (0xb7, 0x00, 0, 1), (0x95, 0, 0, 0)];
        assert_eq!(words, expected);
    }
}
