//! The new code: blocks that get yields are moved into a segment of their own, and a jump is left where each began.
//!
//! All else stays where it was linked: calls (so return addresses, exceptions and backtraces are as before), tables, data, and the rest of each
//! moved block, which is as good as its copy for code that jumps there. A yield costs two jumps more than one that is compiled in.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code as Opcode, FlowControl, IcedError, Instruction, InstructionBlock,
    MemoryOperand, OpKind, Register,
};
use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};

use crate::code::Code;
use crate::distance::{Counter, InLoop};
use crate::elf::ElfProgram;
use crate::layout::{self, HEADER_OCTETS};
use crate::liveness::{FLAGS, Set, general_of, masks_of, vectors_of};
use crate::refusal::{ProgramRefusal, SkipReason};

const LE: Endianness = Endianness::Little;
/// Octets of a jump that reaches everywhere.
const JUMP_OCTETS: usize = 5;
/// Octets below the stack pointer that belong to the function that runs: System V ABI x86-64 §3.2.2.
const RED_ZONE: i64 = 128;
/// Labels: addresses that no instruction of a program has, of those that are added, and of the copies of those that are moved. An address
/// of code that is computed or stored stays the old one, so that pointers to functions stay equal.
const ADDED_FROM: u64 = 1 << 62;
const MOVED_FROM: u64 = 1 << 61;
const PAGE: u64 = 4096;

/// What is instrumented as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstrumentedRole {
    Primary,
    Scavenger,
}

/// What is inserted before an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Insertion {
    /// Prefetch and yield; a scavenger's goes to the next scavenger if `next` is set.
    Load { next: bool },
    /// A scavenger's return to the primary.
    Distance(Counter),
}

/// The insertions of a program, by instruction.
pub(crate) type Insertions = BTreeMap<usize, Vec<Insertion>>;

/// Adds yields in loops.
pub(crate) fn add_loops(insertions: &mut Insertions, loops: &[InLoop]) {
    for l in loops {
        insertions.entry(l.before).or_default().insert(0, Insertion::Distance(l.counter));
    }
}

/// Whether something can be inserted before an instruction.
pub(crate) fn may_change(program: &ElfProgram, code: &Code, index: usize) -> Result<(), SkipReason> {
    if let Some(why) = program.functions[code.owner[index]].refused {
        return Err(SkipReason::Function(why));
    }
    let range = code.movable(index);
    let octets = code.octets(&range);
    if octets < JUMP_OCTETS || !range.contains(&index) {
        return Err(SkipReason::ShortBlock(octets));
    }
    Ok(())
}

/// Writes instructions that are added.
struct Emitter<'a> {
    live: &'a [Set],
    vector_octets: u32,
    flag: u64,
    bound_sixteenths: u32,
    role: InstrumentedRole,
    out: Vec<Instruction>,
    added: u64,
    /// What the next instruction is jumped to as.
    label: Option<u64>,
}

type Encoded<T = ()> = Result<T, IcedError>;

impl Emitter<'_> {
    fn push(&mut self, mut instruction: Instruction) {
        let at = self.label.take().unwrap_or_else(|| self.new_label());
        instruction.set_ip(at);
        self.out.push(instruction);
    }

    fn new_label(&mut self) -> u64 {
        self.added += 16;
        ADDED_FROM + self.added
    }

    /// The next instruction is at this label: if it has another one already, a `nop` takes that.
    fn place(&mut self, label: u64) {
        if self.label.is_some() {
            self.push(Instruction::with(Opcode::Nopd));
        }
        self.label = Some(label);
    }

    fn branch(&mut self, opcode: Opcode, to: u64) -> Encoded {
        self.push(Instruction::with_branch(opcode, to)?);
        Ok(())
    }

    fn move_stack(&mut self, by: i64) -> Encoded {
        self.push(Instruction::with2(Opcode::Lea_r64_m, Register::RSP, at(Register::RSP, by))?);
        Ok(())
    }

    fn skip_unless_harvested(&mut self, skip: u64) -> Encoded {
        self.push(Instruction::with2(Opcode::Cmp_rm8_imm8, rip(self.flag), 0)?);
        self.branch(Opcode::Je_rel32_64, skip)
    }

    /// A prefetch of what a load reads, and a yield.
    fn load(&mut self, index: usize, load: &Instruction, next: bool) -> Encoded {
        if let Some(operand) = operand(load) {
            self.push(Instruction::with1(Opcode::Prefetcht0_m8, operand)?);
        }
        let flags = self.live[index] & FLAGS != 0;
        let skip = self.new_label();
        if flags {
            self.move_stack(-RED_ZONE)?;
            self.push(Instruction::with(Opcode::Pushfq));
        }
        self.skip_unless_harvested(skip)?;
        if self.role == InstrumentedRole::Primary {
            self.push(Instruction::with2(Opcode::Cmp_rm8_imm8, gs(layout::ENABLED), 0)?);
            self.branch(Opcode::Je_rel32_64, skip)?;
        }
        self.switch(self.live[index], flags, next)?;
        self.place(skip);
        if flags {
            self.push(Instruction::with(Opcode::Popfq));
            self.move_stack(RED_ZONE)?;
        }
        Ok(())
    }

    /// Counts, and yields when the distance is used up.
    fn distance(&mut self, index: usize, counter: Counter) -> Encoded {
        let live = self.live[index];
        let flags = live & FLAGS != 0;
        let skip = self.new_label();
        let end = self.new_label();
        if flags {
            self.move_stack(-RED_ZONE)?;
            self.push(Instruction::with(Opcode::Pushfq));
        }
        match counter {
            Counter::Free { register, iterations } => {
                self.push(Instruction::with1(Opcode::Dec_rm32, register)?);
                self.push(Instruction::with2(Opcode::Cmp_rm32_imm32, register, iterations)?);
                self.branch(Opcode::Jb_rel32_64, end)?;
                let refill = self.new_label();
                self.skip_unless_harvested(refill)?;
                self.switch(live, flags, false)?;
                self.place(refill);
                self.push(Instruction::with2(Opcode::Mov_r32_imm32, register, iterations - 1)?);
            }
            Counter::Induction { register, mask } => {
                self.push(Instruction::with2(Opcode::Test_rm32_imm32, register, mask)?);
                self.branch(Opcode::Jne_rel32_64, end)?;
                self.skip_unless_harvested(skip)?;
                self.switch(live, flags, false)?;
            }
            Counter::Memory { sixteenths } => {
                self.skip_unless_harvested(skip)?;
                self.push(Instruction::with2(Opcode::Sub_rm32_imm32, gs(layout::BUDGET), sixteenths)?);
                self.branch(Opcode::Jns_rel32_64, end)?;
                self.switch(live, flags, false)?;
                self.push(Instruction::with2(
                    Opcode::Mov_rm32_imm32,
                    gs(layout::BUDGET),
                    self.bound_sixteenths,
                )?);
            }
        }
        self.place(skip);
        self.place(end);
        if flags {
            self.push(Instruction::with(Opcode::Popfq));
            self.move_stack(RED_ZONE)?;
        }
        Ok(())
    }

    /// Saves what is live, goes to the other side, and restores it when that comes back. The stack pointer is below the red zone already if
    /// flags were saved.
    fn switch(&mut self, live: Set, below: bool, next: bool) -> Encoded {
        if !below {
            self.move_stack(-RED_ZONE)?;
        }
        let general: Vec<Register> = general_of(live).map(|r| Register::RAX + r).collect();
        let vectors: Vec<u32> = vectors_of(live).collect();
        let masks: Vec<u32> = masks_of(live).collect();
        for &r in &general {
            self.push(Instruction::with1(Opcode::Push_r64, r)?);
        }
        let width = if vectors.iter().any(|&v| v >= 16) { 64 } else { i64::from(self.vector_octets) };
        let room = vectors.len() as i64 * width + masks.len() as i64 * 8;
        if room > 0 {
            self.move_stack(-room)?;
        }
        self.vectors(&vectors, &masks, width, true)?;
        let resume = self.new_label();
        let rax = Register::RAX;
        let rcx = Register::RCX;
        match self.role {
            InstrumentedRole::Primary => {
                self.push(Instruction::with2(Opcode::Mov_rm8_imm8, gs(layout::ENABLED), 0)?);
                self.push(Instruction::with2(Opcode::Add_rm64_imm8, gs(layout::YIELDS), 1)?);
                self.push(Instruction::with2(Opcode::Lea_r64_m, rax, rip(resume))?);
                self.push(Instruction::with2(
                    Opcode::Mov_rm64_r64,
                    gs(layout::PRIMARY + layout::SLOT_INSTRUCTION),
                    rax,
                )?);
                self.push(Instruction::with2(
                    Opcode::Mov_rm64_r64,
                    gs(layout::PRIMARY + layout::SLOT_STACK),
                    Register::RSP,
                )?);
                self.push(Instruction::with2(Opcode::Mov_r64_rm64, rax, gs(layout::FIRST))?);
                self.push(Instruction::with2(Opcode::Mov_rm64_r64, gs(layout::CURRENT), rax)?);
                self.push(Instruction::with2(
                    Opcode::Mov_r64_rm64,
                    Register::RSP,
                    at(rax, layout::SLOT_STACK),
                )?);
                self.push(Instruction::with1(Opcode::Jmp_rm64, at(rax, layout::SLOT_INSTRUCTION))?);
                self.place(resume);
                self.push(Instruction::with2(Opcode::Mov_rm8_imm8, gs(layout::ENABLED), 1)?);
            }
            InstrumentedRole::Scavenger => {
                self.push(Instruction::with2(Opcode::Mov_r64_rm64, rax, gs(layout::CURRENT))?);
                self.push(Instruction::with2(Opcode::Lea_r64_m, rcx, rip(resume))?);
                self.push(Instruction::with2(
                    Opcode::Mov_rm64_r64,
                    at(rax, layout::SLOT_STACK),
                    Register::RSP,
                )?);
                self.push(Instruction::with2(Opcode::Mov_rm64_r64, at(rax, layout::SLOT_INSTRUCTION), rcx)?);
                if next {
                    self.push(Instruction::with2(Opcode::Mov_r64_rm64, rax, at(rax, layout::SLOT_NEXT))?);
                    self.push(Instruction::with2(Opcode::Mov_rm64_r64, gs(layout::CURRENT), rax)?);
                    self.push(Instruction::with2(
                        Opcode::Mov_r64_rm64,
                        Register::RSP,
                        at(rax, layout::SLOT_STACK),
                    )?);
                    self.push(Instruction::with1(Opcode::Jmp_rm64, at(rax, layout::SLOT_INSTRUCTION))?);
                } else {
                    self.push(Instruction::with2(
                        Opcode::Mov_r64_rm64,
                        Register::RSP,
                        gs(layout::PRIMARY + layout::SLOT_STACK),
                    )?);
                    self.push(Instruction::with1(
                        Opcode::Jmp_rm64,
                        gs(layout::PRIMARY + layout::SLOT_INSTRUCTION),
                    )?);
                }
                self.place(resume);
            }
        }
        self.vectors(&vectors, &masks, width, false)?;
        if room > 0 {
            self.move_stack(room)?;
        }
        for &r in general.iter().rev() {
            self.push(Instruction::with1(Opcode::Pop_r64, r)?);
        }
        if !below {
            self.move_stack(RED_ZONE)?;
        }
        Ok(())
    }

    fn vectors(&mut self, vectors: &[u32], masks: &[u32], width: i64, save: bool) -> Encoded {
        for (k, &v) in vectors.iter().enumerate() {
            let place = at(Register::RSP, k as i64 * width);
            let (register, store, load) = match width {
                16 => (Register::XMM0, Opcode::Movups_xmmm128_xmm, Opcode::Movups_xmm_xmmm128),
                32 => (Register::YMM0, Opcode::VEX_Vmovups_ymmm256_ymm, Opcode::VEX_Vmovups_ymm_ymmm256),
                _ => (
                    Register::ZMM0,
                    Opcode::EVEX_Vmovups_zmmm512_k1z_zmm,
                    Opcode::EVEX_Vmovups_zmm_k1z_zmmm512,
                ),
            };
            self.store_or_load(register + v, place, store, load, save)?;
        }
        for (k, &m) in masks.iter().enumerate() {
            let place = at(Register::RSP, vectors.len() as i64 * width + k as i64 * 8);
            self.store_or_load(
                Register::K0 + m,
                place,
                Opcode::VEX_Kmovq_m64_kr,
                Opcode::VEX_Kmovq_kr_km64,
                save,
            )?;
        }
        Ok(())
    }

    fn store_or_load(
        &mut self,
        register: Register,
        place: MemoryOperand,
        store: Opcode,
        load: Opcode,
        save: bool,
    ) -> Encoded {
        self.push(if save {
            Instruction::with2(store, place, register)?
        } else {
            Instruction::with2(load, register, place)?
        });
        Ok(())
    }
}

fn gs(at: i64) -> MemoryOperand {
    MemoryOperand::new(Register::None, Register::None, 1, at, 8, false, Register::GS)
}

fn rip(to: u64) -> MemoryOperand {
    MemoryOperand::new(Register::RIP, Register::None, 1, to as i64, 8, false, Register::None)
}

fn at(base: Register, by: i64) -> MemoryOperand {
    MemoryOperand::new(
        base,
        Register::None,
        1,
        by,
        if i8::try_from(by).is_ok() { 1 } else { 8 },
        false,
        Register::None,
    )
}

/// The memory operand of a load, for a prefetch of the same; `None` if it is of several addresses.
fn operand(n: &Instruction) -> Option<MemoryOperand> {
    if n.is_vsib() {
        return None;
    }
    let displacement =
        if n.is_ip_rel_memory_operand() { n.ip_rel_memory_address() } else { n.memory_displacement64() }
            as i64;
    Some(MemoryOperand::new(
        n.memory_base(),
        n.memory_index(),
        n.memory_index_scale(),
        displacement,
        n.memory_displ_size(),
        false,
        n.segment_prefix(),
    ))
}

/// What is asked of a rewrite beside the insertions.
pub(crate) struct Parameters<'a> {
    pub(crate) role: InstrumentedRole,
    pub(crate) live: &'a [Set],
    pub(crate) vector_octets: u32,
    pub(crate) bound_ns: f64,
    /// Yields to the next scavenger among a thousand at loads.
    pub(crate) special: u64,
    pub(crate) report: &'a str,
}

/// Writes the instrumented program.
pub(crate) fn rewrite(
    program: &ElfProgram,
    code: &Code,
    insertions: &Insertions,
    parameters: &Parameters<'_>,
) -> Result<Vec<u8>, ProgramRefusal> {
    let mut data = program.data.clone();
    let places = Places::find(&data)?;
    let moved: BTreeMap<usize, std::ops::Range<usize>> = insertions
        .keys()
        .map(|&index| {
            let range = code.movable(index);
            (range.start, range)
        })
        .collect();
    let starts: BTreeSet<u64> = moved.keys().map(|&index| code.instructions[index].ip()).collect();
    let target = |to: u64| if starts.contains(&to) { MOVED_FROM + to } else { to };
    let mut emitter = Emitter {
        live: parameters.live,
        vector_octets: parameters.vector_octets,
        flag: places.flag,
        bound_sixteenths: (parameters.bound_ns * 16.0) as u32,
        role: parameters.role,
        out: Vec::new(),
        added: 0,
        label: None,
    };
    let encoding = |e: IcedError| ProgramRefusal::Encoding(e.to_string());
    for range in moved.values() {
        for index in range.clone() {
            let mut original = code.instructions[index];
            emitter.label = Some(MOVED_FROM + original.ip());
            for insertion in insertions.get(&index).into_iter().flatten() {
                match *insertion {
                    Insertion::Load { next } => emitter.load(index, &original, next),
                    Insertion::Distance(counter) => emitter.distance(index, counter),
                }
                .map_err(encoding)?;
            }
            if original.op_count() > 0 && original.op0_kind() == OpKind::NearBranch64 {
                original.set_near_branch64(target(original.near_branch_target()));
            }
            emitter.push(original);
        }
        let last = &code.instructions[range.end - 1];
        if !matches!(
            last.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::Return | FlowControl::IndirectBranch
        ) {
            emitter.branch(Opcode::Jmp_rel32_64, target(last.next_ip())).map_err(encoding)?;
        }
    }
    let base = places.address + HEADER_OCTETS as u64;
    let new = if emitter.out.is_empty() {
        Vec::new()
    } else {
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let encoded =
            BlockEncoder::encode(64, InstructionBlock::new(&emitter.out, base), options).map_err(encoding)?;
        let at: BTreeMap<u64, u32> = emitter
            .out
            .iter()
            .map(Instruction::ip)
            .zip(encoded.new_instruction_offsets.iter().copied())
            .collect();
        for (&first, range) in &moved {
            let from = code.instructions[first].ip();
            let to = base + u64::from(at[&(MOVED_FROM + from)]);
            patch_jump(program, &mut data, from, to, code.octets(range))?;
        }
        encoded.code_buffer
    };
    places.append(&mut data, program, &new, parameters);
    Ok(data)
}

/// Puts a jump where a moved block begins. The octets behind it stay.
fn patch_jump(
    program: &ElfProgram,
    data: &mut [u8],
    from: u64,
    to: u64,
    room: usize,
) -> Result<(), ProgramRefusal> {
    assert!(room >= JUMP_OCTETS, "a block of {room} octets cannot hold a jump");
    let (address, file) = program
        .code
        .iter()
        .find(|(at, file)| from >= *at && from < at + file.len() as u64)
        .ok_or_else(|| ProgramRefusal::Encoding("a block outside of code".into()))?;
    let at = file.start + (from - address) as usize;
    let distance = i32::try_from(to.wrapping_sub(from + JUMP_OCTETS as u64) as i64)
        .map_err(|_| ProgramRefusal::Encoding("the new segment is too far away".into()))?;
    data[at] = 0xe9;
    data[at + 1..at + JUMP_OCTETS].copy_from_slice(&distance.to_le_bytes());
    Ok(())
}

/// Where in the file and in memory additions go.
struct Places {
    /// Of the program header that is used for the new segment.
    spare_header: usize,
    /// Of the header of the writable segment, which grows by the flag.
    writable_header: usize,
    writable_octets: u64,
    flag: u64,
    address: u64,
}

impl Places {
    fn find(data: &[u8]) -> Result<Self, ProgramRefusal> {
        let bad = |e: object::Error| ProgramRefusal::NotElf(e.to_string());
        let header = FileHeader64::<Endianness>::parse(data).map_err(bad)?;
        let segments = header.program_headers(LE, data).map_err(bad)?;
        let header_at = |k: usize| header.e_phoff(LE) as usize + k * usize::from(header.e_phentsize(LE));
        // The property note says that indirect jumps end at marks, which yields do not; other notes nothing reads at run time.
        let spare = [elf::PT_GNU_PROPERTY, elf::PT_NOTE]
            .iter()
            .find_map(|&kind| segments.iter().rposition(|s| s.p_type(LE) == kind))
            .ok_or(ProgramRefusal::NoSpareHeader)?;
        let mut loads = segments.iter().enumerate().filter(|(_, s)| s.p_type(LE) == elf::PT_LOAD);
        let (writable, segment) = loads.next_back().ok_or(ProgramRefusal::NoWritableSegment)?;
        // Loadable segments are in order of their addresses, and so has the new one to be.
        if segment.p_flags(LE) & elf::PF_W == 0 || spare < writable {
            return Err(ProgramRefusal::NoWritableSegment);
        }
        let end = segment.p_vaddr(LE) + segment.p_memsz(LE);
        let flag = end.next_multiple_of(8);
        let place = (flag + 8).next_multiple_of(PAGE);
        Ok(Self {
            spare_header: header_at(spare),
            writable_header: header_at(writable),
            writable_octets: flag + 8 - segment.p_vaddr(LE),
            flag,
            address: place,
        })
    }

    fn append(&self, data: &mut Vec<u8>, program: &ElfProgram, new: &[u8], parameters: &Parameters<'_>) {
        data.resize(data.len().next_multiple_of(PAGE as usize), 0);
        let offset = data.len() as u64;
        let octets = (HEADER_OCTETS + new.len()) as u64;
        let text = program.code.iter().map(|(at, file)| (*at, at + file.len() as u64));
        let (from, to) = text.fold((u64::MAX, 0), |(from, to), (a, b)| (from.min(a), to.max(b)));
        let role = match parameters.role {
            InstrumentedRole::Primary => layout::ROLE_PRIMARY,
            InstrumentedRole::Scavenger => layout::ROLE_SCAVENGER,
        };
        data.extend(layout::MAGIC);
        for word in
            [self.flag, program.main.unwrap_or(0), role, parameters.special, from, to - from, offset + octets]
        {
            data.extend(word.to_le_bytes());
        }
        data.extend(new);
        data.extend(parameters.report.as_bytes());
        let mut header = Vec::new();
        header.extend(elf::PT_LOAD.to_le_bytes());
        header.extend((elf::PF_R | elf::PF_X).to_le_bytes());
        for word in [offset, self.address, self.address, octets, octets, PAGE] {
            header.extend(word.to_le_bytes());
        }
        data[self.spare_header..self.spare_header + header.len()].copy_from_slice(&header);
        let memory = self.writable_header + 40;
        data[memory..memory + 8].copy_from_slice(&self.writable_octets.to_le_bytes());
        if parameters.role == InstrumentedRole::Scavenger {
            clear_executable_mark(data);
        }
    }
}

/// The dynamic linker loads no second program that is marked as one.
fn clear_executable_mark(data: &mut [u8]) {
    let Ok(header) = FileHeader64::<Endianness>::parse(&*data) else { return };
    let Ok(sections) = header.sections(LE, &*data) else { return };
    let Some(section) = sections.iter().find(|s| s.sh_type(LE) == elf::SHT_DYNAMIC) else { return };
    let from = section.sh_offset(LE) as usize;
    let Ok(Some((entries, _))) = sections.dynamic(LE, &*data) else { return };
    let marked = entries.iter().position(|d| d.tag32(LE) == Some(elf::DT_FLAGS_1));
    if let Some(k) = marked {
        let value = entries[k].d_val(LE) & !u64::from(elf::DF_1_PIE);
        data[from + k * 16 + 8..from + k * 16 + 16].copy_from_slice(&value.to_le_bytes());
    }
}
