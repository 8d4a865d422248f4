//! Which registers and flags hold values that may still be read: all that a yield has to preserve.
//!
//! The analysis is one flow graph of the whole program. Compilers let a caller keep values in registers of which it knows that a local
//! function does not change them, against the calling convention; so what is live behind a call of a local function counts as live where that
//! function returns, and no local call ends a register's life. A call may not return, but throw: then callers up the stack get their registers
//! back as they are at the call, so all that callees preserve is live there.

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::code::Code;

/// A set of registers: 16 general, 32 vector, 8 mask, and 6 flags, a bit each.
pub(crate) type Set = u64;

const VECTORS_AT: u32 = 16;
const MASKS_AT: u32 = 48;
const FLAGS_AT: u32 = 56;

/// The arithmetic flags.
pub(crate) const FLAGS: Set = 0x3f << FLAGS_AT;
const GENERAL: Set = 0xffff;
const VECTORS: Set = 0xffff_ffff << VECTORS_AT;
const MASKS: Set = 0xff << MASKS_AT;
const ALL_BUT_FLAGS: Set = GENERAL | VECTORS | MASKS;

/// Registers that only processors with AVX-512 have: mask registers and the upper vector registers.
pub(crate) const AVX512: Set = MASKS | 0xffff << (VECTORS_AT + 16);

/// What a switch saves that knows nothing of the program: all but mask registers and the upper vector registers, which few programs use.
pub(crate) const ORDINARY: Set = GENERAL | 0xffff << VECTORS_AT | FLAGS;

const fn general(register: u32) -> Set {
    1 << register
}
// Numbers of the general registers as instructions encode them.
const RAX: u32 = 0;
const RCX: u32 = 1;
const RDX: u32 = 2;
const RBX: u32 = 3;
const RSP: u32 = 4;
const RBP: u32 = 5;
const RSI: u32 = 6;
const RDI: u32 = 7;

/// System V ABI x86-64 §3.2.1: a callee preserves them.
const PRESERVED: Set = general(RBX) | general(RSP) | general(RBP) | 0xf << 12;
/// §3.2.3: arguments, the number of vector registers in RAX, the static chain in R10.
const ARGUMENTS: Set = general(RDI)
    | general(RSI)
    | general(RDX)
    | general(RCX)
    | 0b111 << 8
    | general(RAX)
    | 0xff << VECTORS_AT;
/// §3.2.3: returned values.
const RESULTS: Set = general(RAX) | general(RDX) | 0b11 << VECTORS_AT;

/// What one instruction reads and overwrites.
#[derive(Clone, Copy, Default)]
pub(crate) struct Effect {
    pub(crate) reads: Set,
    /// As a whole, so that the value before is gone.
    pub(crate) kills: Set,
    pub(crate) writes: Set,
}

/// Bits of a register; of `FS` and the like none.
pub(crate) fn bits(register: Register) -> Set {
    let full = register.full_register();
    if full.is_gpr64() {
        1 << full.number()
    } else if full.is_vector_register() {
        1 << (VECTORS_AT as usize + full.number())
    } else if full.is_k() {
        1 << (MASKS_AT as usize + full.number())
    } else {
        0
    }
}

/// General registers of a set, by number.
pub(crate) fn general_of(set: Set) -> impl Iterator<Item = u32> {
    (0..16).filter(move |r| set >> r & 1 != 0 && *r != RSP)
}

/// Vector registers of a set, by number.
pub(crate) fn vectors_of(set: Set) -> impl Iterator<Item = u32> {
    (0..32).filter(move |r| set >> (VECTORS_AT + r) & 1 != 0)
}

/// Mask registers of a set, by number.
pub(crate) fn masks_of(set: Set) -> impl Iterator<Item = u32> {
    (0..8).filter(move |r| set >> (MASKS_AT + r) & 1 != 0)
}

/// Octets of the widest vector register that a program uses.
pub(crate) fn vector_octets(instructions: &[Instruction]) -> u32 {
    let mut octets = 16;
    for n in instructions {
        for k in 0..n.op_count() {
            if n.op_kind(k) == OpKind::Register {
                let r = n.op_register(k);
                octets = octets.max(if r.is_zmm() || r.is_k() {
                    64
                } else if r.is_ymm() {
                    32
                } else {
                    16
                });
            }
        }
    }
    octets
}

/// Reads what each instruction does.
pub(crate) fn effects(instructions: &[Instruction], vector_octets: u32) -> Vec<Effect> {
    let mut factory = InstructionInfoFactory::new();
    instructions.iter().map(|n| effect(n, &mut factory, vector_octets)).collect()
}

fn effect(n: &Instruction, factory: &mut InstructionInfoFactory, vector_octets: u32) -> Effect {
    let mut e = Effect::default();
    for used in factory.info(n).used_registers() {
        let register = used.register();
        let bits = bits(register);
        let whole = register.is_gpr64()
            || register.is_gpr32()
            || register.is_k()
            || register.is_vector_register() && register.size() as u32 >= vector_octets;
        match used.access() {
            OpAccess::Read | OpAccess::CondRead => e.reads |= bits,
            OpAccess::Write => {
                e.writes |= bits;
                if whole {
                    e.kills |= bits;
                }
            }
            OpAccess::CondWrite => e.writes |= bits,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                e.reads |= bits;
                e.writes |= bits;
            }
            OpAccess::None | OpAccess::NoMemAccess => {}
        }
    }
    e.reads |= u64::from(n.rflags_read() & 0x3f) << FLAGS_AT;
    let modified = u64::from(n.rflags_modified() & 0x3f) << FLAGS_AT;
    e.writes |= modified;
    e.kills |= modified;
    // A shift by a count that may be zero leaves the flags.
    if matches!(
        n.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Shld
            | Mnemonic::Shrd
    ) || n.has_rep_prefix()
        || n.has_repne_prefix()
    {
        e.kills &= !FLAGS;
    }
    if n.mnemonic() == Mnemonic::Syscall {
        e.reads |= general(RAX) | general(RDI) | general(RSI) | general(RDX) | 0b101 << 8 | general(10);
    }
    e
}

/// What is live before each instruction.
pub(crate) fn live_before(code: &Code, functions: usize, effects: &[Effect]) -> Vec<Set> {
    let count = code.instructions.len();
    let mut live = vec![0; count];
    // Behind calls of each function by name, and where it returns.
    let mut behind_calls = vec![PRESERVED | RESULTS; functions];
    let groups = groups(code, functions);
    loop {
        let mut changed = false;
        for i in (0..count).rev() {
            let n = &code.instructions[i];
            let owner = code.owner[i];
            let successors = code.successors(i);
            let mut after = successors.known.iter().fold(0, |set, &s| set | live[s]);
            let group = groups[owner];
            if successors.leaves {
                after |= ARGUMENTS | behind_calls[group];
            }
            if successors.unknown {
                after |= ALL_BUT_FLAGS;
            }
            let before = match n.flow_control() {
                FlowControl::Return => behind_calls[group] | effects[i].reads,
                FlowControl::Call | FlowControl::IndirectCall => {
                    let pads = code.landing_pads(owner).iter().fold(0, |set, &p| set | live[p]);
                    let callee = (n.op0_kind() == OpKind::NearBranch64)
                        .then(|| code.index_of(n.near_branch_target()))
                        .flatten();
                    if let Some(callee) = callee {
                        let callee_group = groups[code.owner[callee]];
                        let merged = behind_calls[callee_group] | after & !FLAGS;
                        changed |= merged != behind_calls[callee_group];
                        behind_calls[callee_group] = merged;
                        (after & !FLAGS) | live[callee] | ARGUMENTS | PRESERVED | pads
                    } else {
                        ARGUMENTS | PRESERVED | pads | effects[i].reads
                    }
                }
                _ => (after & !effects[i].kills) | effects[i].reads,
            };
            if before | live[i] != live[i] {
                live[i] |= before;
                changed = true;
            }
        }
        if !changed {
            return live;
        }
    }
}

/// Functions that jump into one another return to the same callers: the representative of each.
fn groups(code: &Code, functions: usize) -> Vec<usize> {
    let mut joined: BTreeMap<usize, usize> = BTreeMap::new();
    fn root(joined: &BTreeMap<usize, usize>, mut of: usize) -> usize {
        while let Some(&next) = joined.get(&of) {
            of = next;
        }
        of
    }
    let mut join = |a: usize, b: usize| {
        let (a, b) = (root(&joined, a), root(&joined, b));
        if a != b {
            joined.insert(a.max(b), a.min(b));
        }
    };
    for function in 0..functions {
        code.landing_pads(function).iter().for_each(|&pad| join(function, code.owner[pad]));
    }
    for i in 0..code.instructions.len() {
        let n = &code.instructions[i];
        if matches!(n.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            continue;
        }
        code.successors(i).known.iter().for_each(|&s| join(code.owner[i], code.owner[s]));
    }
    (0..functions).map(|f| root(&joined, f)).collect()
}
