//! Instructions, and where each may be reached from.
//!
//! An address that may be jumped to must not come to be within the five octets of a jump that is written into a program. So every target is
//! known here, or the function is refused: branches are read; relocations name labels and tables of code; exception tables name landing pads.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use crate::elf::ElfProgram;

/// All functions, disassembled.
pub(crate) struct Code {
    /// In order of addresses.
    pub(crate) instructions: Vec<Instruction>,
    /// The function of each.
    pub(crate) owner: Vec<usize>,
    /// Addresses that may be jumped to from elsewhere than the instruction before.
    pub(crate) targets: BTreeSet<u64>,
    /// Where jumps through tables go.
    tables: BTreeMap<u64, Vec<u64>>,
    /// Landing pads of each function.
    pads: BTreeMap<usize, Vec<usize>>,
}

/// Where control goes behind an instruction.
pub(crate) struct Successors {
    pub(crate) known: Vec<usize>,
    /// Also to a function that is not known, by a tail call.
    pub(crate) leaves: bool,
    /// Also to what is no instruction of a function.
    pub(crate) unknown: bool,
}

impl Code {
    /// Disassembles all functions of a program; refuses those that cannot be understood.
    pub(crate) fn read(program: &mut ElfProgram) -> Self {
        let mut code = Self {
            instructions: Vec::new(),
            owner: Vec::new(),
            targets: BTreeSet::new(),
            tables: BTreeMap::new(),
            pads: BTreeMap::new(),
        };
        for index in 0..program.functions.len() {
            code.read_function(program, index);
        }
        code.find_targets(program);
        for &(pad, from) in &program.landing_pads {
            match (program.function_at(from), code.index_of(pad)) {
                (Some(function), Some(index)) => code.pads.entry(function).or_default().push(index),
                (Some(function), None) => {
                    program.functions[function].refused = Some("has a landing pad within an instruction");
                }
                _ => {}
            }
        }
        code.check_targets(program);
        code
    }

    fn read_function(&mut self, program: &mut ElfProgram, index: usize) {
        let function = &program.functions[index];
        let (from, to) = (function.from, function.to);
        let Some(octets) =
            program.code.iter().find(|(at, file)| from >= *at && to <= at + file.len() as u64).and_then(
                |(at, file)| {
                    let begin = file.start + (from - at) as usize;
                    program.data.get(begin..begin + (to - from) as usize)
                },
            )
        else {
            return;
        };
        let mut refused = None;
        // Registers that hold a copy of the stack pointer somewhere in the function.
        let copies: BTreeSet<Register> = Decoder::with_ip(64, octets, from, DecoderOptions::NONE)
            .iter()
            .filter(|n| n.mnemonic() == Mnemonic::Mov && n.op1_register() == Register::RSP)
            .map(|n| n.op0_register())
            .collect();
        let mut decoder = Decoder::with_ip(64, octets, from, DecoderOptions::NONE);
        // Overlapping functions are disassembled from the end of the one before.
        let last = self.instructions.last().map_or(0, Instruction::next_ip);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                refused = Some("has octets that are no instructions");
                break;
            }
            if instruction.ip() < last {
                continue;
            }
            refused = refused.or_else(|| unsuitable(&instruction, &copies));
            self.instructions.push(instruction);
            self.owner.push(index);
        }
        let function = &mut program.functions[index];
        function.refused = function.refused.or(refused);
    }

    /// The instruction at exactly this address.
    pub(crate) fn index_of(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, Instruction::ip).ok()
    }

    fn find_targets(&mut self, program: &mut ElfProgram) {
        self.targets.extend(program.functions.iter().map(|f| f.from));
        self.targets.extend(program.landing_pads.iter().map(|&(pad, _)| pad));
        // Words of four octets, relative to a table: what tables do not account for is not understood.
        let mut entries: BTreeMap<u64, u64> = BTreeMap::new();
        for relocation in &program.relocations {
            match (relocation.relative, relocation.in_code) {
                (false, _) => {
                    self.targets.insert(relocation.to);
                }
                // A displacement counts from the end of its instruction, which is four octets behind it, or up to four more.
                (true, true) => {
                    if let Some(i) =
                        self.instructions.partition_point(|n| n.ip() <= relocation.at).checked_sub(1)
                        && self.instructions[i].next_ip() > relocation.at
                    {
                        let to = relocation.to.wrapping_add(self.instructions[i].next_ip() - relocation.at);
                        self.targets.insert(to);
                    } else {
                        self.targets.insert(relocation.to.wrapping_add(4));
                    }
                }
                (true, false) => {
                    entries.insert(relocation.at, relocation.to);
                }
            }
        }
        for i in 0..self.instructions.len() {
            let n = &self.instructions[i];
            match n.flow_control() {
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::Call
                    if n.op0_kind() == OpKind::NearBranch64 =>
                {
                    self.targets.insert(n.near_branch_target());
                }
                _ => {}
            }
        }
        self.find_tables(program, &mut entries);
        // What is left: a table whose function is not known.
        for &to in entries.values() {
            if let Some(function) = program.function_at(to) {
                program.functions[function].refused =
                    Some("may be reached by a table that is not understood");
            }
        }
    }

    /// Finds tables of displacements: their address is taken in the function that jumps through them.
    fn find_tables(&mut self, program: &mut ElfProgram, entries: &mut BTreeMap<u64, u64>) {
        let mut of_function: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let bases: BTreeSet<(usize, u64)> = (0..self.instructions.len())
            .filter(|&i| self.instructions[i].is_ip_rel_memory_operand())
            .map(|i| (self.owner[i], self.instructions[i].ip_rel_memory_address()))
            .collect();
        let all: BTreeSet<u64> = bases.iter().map(|&(_, base)| base).collect();
        let mut used = BTreeSet::new();
        for &(function, base) in &bases {
            for k in 0.. {
                let at = base + 4 * k;
                if k > 0 && all.contains(&at) {
                    break; // the next table
                }
                let Some(to) = entries.get(&at) else { break };
                let to = to.wrapping_sub(4 * k);
                if self.index_of(to).is_none() {
                    break;
                }
                used.insert(at);
                self.targets.insert(to);
                of_function.entry(function).or_default().push(to);
            }
        }
        entries.retain(|at, _| !used.contains(at));
        // Tables of addresses: all labels of the function that relocations in data name.
        let absolute = program.relocations.iter().filter(|r| !r.relative && !r.in_code);
        for to in absolute.map(|r| r.to).collect::<BTreeSet<_>>() {
            if let Some(function) = program.function_at(to)
                && program.functions[function].from != to
            {
                of_function.entry(function).or_default().push(to);
            }
        }
        for i in 0..self.instructions.len() {
            let n = &self.instructions[i];
            if n.flow_control() == FlowControl::IndirectBranch
                && let Some(targets) = of_function.get(&self.owner[i])
            {
                self.tables.insert(n.ip(), targets.clone());
            }
        }
    }

    /// Refuses functions that something jumps into between two instructions.
    fn check_targets(&self, program: &mut ElfProgram) {
        for &target in &self.targets {
            if let Some(function) = program.function_at(target)
                && self.index_of(target).is_none()
            {
                program.functions[function].refused = Some("is jumped into within an instruction");
            }
        }
    }

    /// Where control goes behind an instruction, calls taken as returning.
    pub(crate) fn successors(&self, index: usize) -> Successors {
        let n = &self.instructions[index];
        let mut s = Successors { known: Vec::new(), leaves: false, unknown: false };
        let next = (index + 1 < self.instructions.len() && self.instructions[index + 1].ip() == n.next_ip())
            .then_some(index + 1);
        match n.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt => {
                s.known.extend(next);
                s.unknown = next.is_none();
            }
            FlowControl::UnconditionalBranch => {
                s.known.extend(self.index_of(n.near_branch_target()));
                s.leaves = s.known.is_empty();
            }
            FlowControl::ConditionalBranch => {
                s.known.extend(self.index_of(n.near_branch_target()));
                s.leaves = s.known.is_empty();
                s.known.extend(next);
                s.unknown = next.is_none();
            }
            FlowControl::IndirectBranch => {
                // One that goes through a table of its function may be a tail call all the same.
                let targets = self.tables.get(&n.ip()).into_iter().flatten();
                s.known.extend(targets.filter_map(|&to| self.index_of(to)));
                s.leaves = true;
            }
            FlowControl::Return | FlowControl::Exception => {}
            FlowControl::XbeginXabortXend => s.unknown = true,
        }
        s
    }

    /// Landing pads of the function of an instruction.
    pub(crate) fn landing_pads(&self, function: usize) -> &[usize] {
        self.pads.get(&function).map_or(&[], Vec::as_slice)
    }

    /// The block of an instruction: from a target, or from behind a branch or a call, to the next such place.
    pub(crate) fn block(&self, index: usize) -> std::ops::Range<usize> {
        let mut from = index;
        while from > 0
            && self.owner[from - 1] == self.owner[index]
            && self.instructions[from - 1].next_ip() == self.instructions[from].ip()
            && !self.targets.contains(&self.instructions[from].ip())
            && self.instructions[from - 1].flow_control() == FlowControl::Next
        {
            from -= 1;
        }
        let mut to = index + 1;
        while to < self.instructions.len()
            && self.owner[to] == self.owner[index]
            && self.instructions[to - 1].next_ip() == self.instructions[to].ip()
            && !self.targets.contains(&self.instructions[to].ip())
            && self.instructions[to - 1].flow_control() == FlowControl::Next
        {
            to += 1;
        }
        from..to
    }

    /// The part of a block that can be moved: not the mark of an indirect jump's target, and not a call, so that return addresses, and with
    /// them exceptions and backtraces, stay what they were.
    pub(crate) fn movable(&self, index: usize) -> std::ops::Range<usize> {
        let mut block = self.block(index);
        if self.instructions[block.start].mnemonic() == Mnemonic::Endbr64 && block.start < index {
            block.start += 1;
        }
        let last = self.instructions[block.end - 1].flow_control();
        if matches!(last, FlowControl::Call | FlowControl::IndirectCall) {
            block.end -= 1;
        }
        block
    }

    /// Octets that a range takes where it was linked.
    pub(crate) fn octets(&self, range: &std::ops::Range<usize>) -> usize {
        range.clone().map(|i| self.instructions[i].len()).sum()
    }
}

/// Why a function that has this instruction is not changed. `copies`: registers that the function copies the stack pointer to.
fn unsuitable(n: &Instruction, copies: &BTreeSet<Register>) -> Option<&'static str> {
    if n.flow_control() == FlowControl::XbeginXabortXend {
        return Some("has transactions");
    }
    if matches!(
        n.mnemonic(),
        Mnemonic::Std | Mnemonic::Iretq | Mnemonic::Wrgsbase | Mnemonic::Wrfsbase | Mnemonic::Swapgs
    ) {
        return Some("changes the direction flag or a segment");
    }
    let mut operands =
        (0..n.op_count()).filter(|&k| n.op_kind(k) == OpKind::Register).map(|k| n.op_register(k));
    if n.segment_prefix() == Register::GS || operands.clone().any(|r| r == Register::GS) {
        return Some("uses the segment GS");
    }
    if operands.clone().any(|r| r.is_st() || r.is_mm())
        || matches!(n.mnemonic(), Mnemonic::Fxrstor | Mnemonic::Xrstor | Mnemonic::Fninit)
    {
        return Some("uses the x87 unit");
    }
    let exchanges = matches!(n.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd | Mnemonic::Cmpxchg);
    if operands.clone().any(|r| r == Register::RSP) && exchanges {
        return Some(ODD_STACK);
    }
    let writes_stack = operands.next() == Some(Register::RSP);
    if writes_stack {
        let ordinary = matches!(
            n.code(),
            Opcode::Add_rm64_imm8
                | Opcode::Add_rm64_imm32
                | Opcode::Sub_rm64_imm8
                | Opcode::Sub_rm64_imm32
                | Opcode::Sub_r64_rm64
                | Opcode::Sub_rm64_r64
                | Opcode::And_rm64_imm8
                | Opcode::And_rm64_imm32
                | Opcode::Cmp_rm64_r64
                | Opcode::Cmp_r64_rm64
                | Opcode::Cmp_rm64_imm8
                | Opcode::Test_rm64_r64
        ) || n.mnemonic() == Mnemonic::Push
            // From the stack or frame pointer, or what keeps the caller's where the stack is aligned.
            || n.mnemonic() == Mnemonic::Lea
                && matches!(n.memory_base(), Register::RSP | Register::RBP | Register::R10 | Register::R13)
            // From a copy of it, which compilers keep around arrays of variable size.
            || n.mnemonic() == Mnemonic::Mov
                && n.op1_kind() == OpKind::Register
                && (n.op1_register() == Register::RBP || copies.contains(&n.op1_register()));
        if !ordinary {
            return Some(ODD_STACK);
        }
    }
    None
}

/// Code that points RSP elsewhere than at a stack with room below it, as assembly does to read with `pop`, or to have stacks of its own: a yield there
/// would write over what is below.
const ODD_STACK: &str = "changes the stack pointer in an unusual way";
