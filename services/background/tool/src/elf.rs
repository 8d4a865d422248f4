//! The program as it is linked: segments, functions, relocations, exception tables.

use std::collections::{BTreeMap, BTreeSet};

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, Pointer, UnwindSection};
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use object::{Endianness, Object, ObjectSection};

use crate::layout;
use crate::refusal::ProgramRefusal;

type ElfHeader = FileHeader64<Endianness>;
const LE: Endianness = Endianness::Little;

/// A function as the symbol table has it.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Why nothing in it is changed.
    pub(crate) refused: Option<&'static str>,
}

/// A relocation that the linker has kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    pub(crate) at: u64,
    /// What symbol and addend give.
    pub(crate) to: u64,
    pub(crate) relative: bool,
    /// Whether it is within code.
    pub(crate) in_code: bool,
}

/// What is known of a program before it is disassembled.
pub(crate) struct ElfProgram {
    pub(crate) data: Vec<u8>,
    pub(crate) build: String,
    pub(crate) functions: Vec<Function>,
    pub(crate) relocations: Vec<Relocation>,
    /// Addresses at which exceptions land, each with the beginning of the function that they pass through.
    pub(crate) landing_pads: BTreeSet<(u64, u64)>,
    /// Sections with code: address and place in the file.
    pub(crate) code: Vec<(u64, std::ops::Range<usize>)>,
    pub(crate) main: Option<u64>,
    /// A shared library: it has no interpreter, and names what it needs.
    pub(crate) is_library: bool,
    /// Has variables of a thread.
    pub(crate) has_thread_variables: bool,
    /// Runs where it was linked.
    pub(crate) is_fixed: bool,
    /// The name that programs link a library by.
    pub(crate) has_soname: bool,
    /// Functions that it takes from libraries.
    pub(crate) imports: BTreeSet<String>,
    /// Data that it has copies of, other than the standard streams.
    pub(crate) copied: Option<String>,
}

impl ElfProgram {
    /// Reads a program. Errors: it is of another kind, or says too little about itself.
    pub(crate) fn read(data: Vec<u8>) -> Result<Self, ProgramRefusal> {
        let bad = |e: object::Error| ProgramRefusal::NotElf(e.to_string());
        if data.len() > 19 && data.starts_with(b"\x7fELF") {
            let machine = u16::from_le_bytes([data[18], data[19]]);
            if data[4] != 2 || data[5] != 1 || machine != elf::EM_X86_64 {
                return Err(ProgramRefusal::Architecture(format!(
                    "ELF class {}, machine {machine}",
                    data[4]
                )));
            }
        }
        let header = ElfHeader::parse(&*data).map_err(bad)?;
        let segments = header.program_headers(LE, &*data).map_err(bad)?;
        let mut has_interpreter = false;
        for segment in segments {
            let flags = segment.p_flags(LE);
            has_interpreter |= segment.p_type(LE) == elf::PT_INTERP;
            if segment.p_type(LE) == elf::PT_LOAD {
                if flags & elf::PF_W != 0 && flags & elf::PF_X != 0 {
                    return Err(ProgramRefusal::WritableCode);
                }
                if segment.data(LE, &*data).is_ok_and(|d| d.starts_with(&layout::MAGIC)) {
                    return Err(ProgramRefusal::AlreadyInstrumented);
                }
            }
        }
        let sections = header.sections(LE, &*data).map_err(bad)?;
        // Most Go programs are static, and to link them in another way would not help.
        if sections.section_by_name(LE, b".go.buildinfo").is_some() {
            return Err(ProgramRefusal::Go);
        }
        let is_dynamic = segments.iter().any(|s| s.p_type(LE) == elf::PT_DYNAMIC);
        let is_library = header.e_type(LE) == elf::ET_DYN && !has_interpreter && is_dynamic;
        if !has_interpreter && (!is_library || is_static_pie(header, &data)) {
            return Err(ProgramRefusal::Static);
        }
        let mut code = Vec::new();
        for section in sections.iter() {
            if section.sh_flags(LE) & u64::from(elf::SHF_EXECINSTR) != 0
                && section.sh_type(LE) == elf::SHT_PROGBITS
            {
                let at = section.sh_offset(LE) as usize;
                code.push((section.sh_addr(LE), at..at + section.sh_size(LE) as usize));
            }
        }
        let symbols = sections.symbols(LE, &*data, elf::SHT_SYMTAB).map_err(bad)?;
        let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
        let mut main = None;
        for symbol in symbols.iter() {
            let name = symbol.name(LE, symbols.strings()).map_err(bad)?;
            let (from, size) = (symbol.st_value(LE), symbol.st_size(LE));
            if symbol.st_type() != elf::STT_FUNC || symbol.is_undefined(LE) {
                continue;
            }
            let name = String::from_utf8_lossy(name).into_owned();
            if name == "main" {
                main = Some(from);
            }
            let is_code = code.iter().any(|(at, file)| from >= *at && from + size <= at + file.len() as u64);
            if size == 0 || !is_code {
                continue;
            }
            let function = Function { name, from, to: from + size, refused: None };
            let known = functions.entry(from).or_insert_with(|| function.clone());
            if known.to < function.to {
                *known = function;
            }
        }
        if functions.is_empty() {
            return Err(ProgramRefusal::NoSymbols);
        }
        let mut functions: Vec<Function> = functions.into_values().collect();
        for i in 1..functions.len() {
            if functions[i].from < functions[i - 1].to {
                functions[i].refused = Some("overlaps with another");
                functions[i - 1].refused = Some("overlaps with another");
            }
        }
        let in_code = |at: u64| code.iter().any(|(from, file)| at >= *from && at < from + file.len() as u64);
        let mut relocations = Vec::new();
        let mut found = false;
        for section in sections.iter() {
            let Some((relas, symbols_at)) = section.rela(LE, &*data).map_err(bad)? else { continue };
            if section.sh_flags(LE) & u64::from(elf::SHF_ALLOC) != 0 {
                continue; // for the dynamic linker
            }
            let applies_to =
                sections.section(object::SectionIndex(section.sh_info(LE) as usize)).map_err(bad)?;
            let name = sections.section_name(LE, applies_to).map_err(bad)?;
            let is_code = applies_to.sh_flags(LE) & u64::from(elf::SHF_EXECINSTR) != 0;
            found |= is_code;
            let is_loaded = applies_to.sh_flags(LE) & u64::from(elf::SHF_ALLOC) != 0;
            if !is_loaded || name.starts_with(b".eh_frame") || name.starts_with(b".gcc_except_table") {
                continue;
            }
            let table = sections.symbol_table_by_index(LE, &*data, symbols_at).map_err(bad)?;
            for rela in relas {
                let Some(index) = rela.symbol(LE, false) else { continue };
                let symbol = table.symbol(index).map_err(bad)?;
                let to = symbol.st_value(LE).wrapping_add_signed(rela.r_addend(LE));
                let relative = match rela.r_type(LE, false) {
                    elf::R_X86_64_64 | elf::R_X86_64_32 | elf::R_X86_64_32S => false,
                    elf::R_X86_64_PC32 | elf::R_X86_64_PC64 | elf::R_X86_64_PLT32 => true,
                    _ => continue,
                };
                relocations.push(Relocation {
                    at: rela.r_offset(LE),
                    to,
                    relative,
                    in_code: in_code(rela.r_offset(LE)),
                });
            }
        }
        if !found {
            return Err(ProgramRefusal::NoRelocations);
        }
        let (imports, copied) = dynamic_symbols(header, &data)?;
        let build = build_id(&data);
        let has_thread_variables = segments.iter().any(|s| s.p_type(LE) == elf::PT_TLS);
        let is_fixed = header.e_type(LE) == elf::ET_EXEC;
        let has_soname = dynamic_value(header, &data, elf::DT_SONAME).is_some();
        let mut program = Self {
            build,
            functions,
            relocations,
            landing_pads: BTreeSet::new(),
            code,
            main,
            is_library,
            has_thread_variables,
            is_fixed,
            has_soname,
            imports,
            copied,
            data,
        };
        program.read_exception_tables()?;
        Ok(program)
    }

    /// Octets at an address that is in the file.
    pub(crate) fn at(&self, address: u64) -> Option<&[u8]> {
        let header = ElfHeader::parse(&*self.data).ok()?;
        for segment in header.program_headers(LE, &*self.data).ok()? {
            if segment.p_type(LE) == elf::PT_LOAD
                && let Some(offset) = address.checked_sub(segment.p_vaddr(LE))
                && offset < segment.p_filesz(LE)
            {
                let from = (segment.p_offset(LE) + offset) as usize;
                let to = (segment.p_offset(LE) + segment.p_filesz(LE)) as usize;
                return self.data.get(from..to);
            }
        }
        None
    }

    /// The index of the function that an address is in.
    pub(crate) fn function_at(&self, address: u64) -> Option<usize> {
        let after = self.functions.partition_point(|f| f.from <= address);
        let index = after.checked_sub(1)?;
        (address < self.functions[index].to).then_some(index)
    }

    fn read_exception_tables(&mut self) -> Result<(), ProgramRefusal> {
        let bad = |e: &dyn std::fmt::Display| ProgramRefusal::NotElf(format!(".eh_frame: {e}"));
        let file = object::File::parse(&*self.data).map_err(|e| bad(&e))?;
        let Some(section) = file.section_by_name(".eh_frame") else { return Ok(()) };
        let octets = section.data().map_err(|e| bad(&e))?;
        let frames = EhFrame::new(octets, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        let mut tables = Vec::new();
        let mut entries = frames.entries(&bases);
        while let Some(entry) = entries.next().map_err(|e| bad(&e))? {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde = partial.parse(EhFrame::cie_from_offset).map_err(|e| bad(&e))?;
            match fde.lsda() {
                Some(Pointer::Direct(at)) if at != 0 => tables.push((fde.initial_address(), Some(at))),
                Some(Pointer::Indirect(_)) => tables.push((fde.initial_address(), None)),
                _ => {}
            }
        }
        for (function, table) in tables {
            let pads = table.and_then(|at| self.at(at).and_then(|octets| landing_pads(octets, at, function)));
            match pads {
                Some(pads) => self.landing_pads.extend(pads.into_iter().map(|pad| (pad, function))),
                None => {
                    if let Some(index) = self.function_at(function) {
                        self.functions[index].refused = Some("has an exception table that is not understood");
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether a program without an interpreter is one by itself: it has an entry point and no needed libraries.
fn is_static_pie(header: &ElfHeader, data: &[u8]) -> bool {
    let flags = dynamic_value(header, data, elf::DT_FLAGS_1).unwrap_or(0);
    flags & u64::from(elf::DF_1_PIE) != 0
}

fn dynamic_value(header: &ElfHeader, data: &[u8], tag: u32) -> Option<u64> {
    let sections = header.sections(LE, data).ok()?;
    let (entries, _) = sections.dynamic(LE, data).ok()??;
    entries.iter().find(|d| d.tag32(LE) == Some(tag)).map(|d| d.d_val(LE))
}

/// Imported functions, and one datum that is copied from a library.
fn dynamic_symbols(
    header: &ElfHeader,
    data: &[u8],
) -> Result<(BTreeSet<String>, Option<String>), ProgramRefusal> {
    let bad = |e: object::Error| ProgramRefusal::NotElf(e.to_string());
    let sections = header.sections(LE, data).map_err(bad)?;
    let table = sections.symbols(LE, data, elf::SHT_DYNSYM).map_err(bad)?;
    let mut imports = BTreeSet::new();
    for symbol in table.iter() {
        if symbol.is_undefined(LE) {
            let name = symbol.name(LE, table.strings()).map_err(bad)?;
            imports.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    let mut copied = None;
    for section in sections.iter() {
        if section.sh_flags(LE) & u64::from(elf::SHF_ALLOC) == 0 {
            continue;
        }
        let Some((relas, _)) = section.rela(LE, data).map_err(bad)? else { continue };
        for rela in relas {
            if rela.r_type(LE, false) == elf::R_X86_64_COPY
                && let Some(index) = rela.symbol(LE, false)
            {
                let symbol = table.symbol(index).map_err(bad)?;
                let name =
                    String::from_utf8_lossy(symbol.name(LE, table.strings()).map_err(bad)?).into_owned();
                if !["stdin", "stdout", "stderr", "environ", "__environ"].contains(&&*name) {
                    copied = Some(name);
                }
            }
        }
    }
    Ok((imports, copied))
}

/// The build identifier, else a sum over all octets.
fn build_id(data: &[u8]) -> String {
    let id = object::File::parse(data).ok().and_then(|f| f.build_id().ok().flatten().map(<[u8]>::to_vec));
    match id {
        Some(id) => id.iter().map(|b| format!("{b:02x}")).collect(),
        None => {
            let sum = data
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
            format!("{sum:016x}-{}", data.len())
        }
    }
}

/// Octets of a table of exceptions, with their address.
struct Cursor<'a> {
    octets: &'a [u8],
    at: usize,
    address: u64,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.octets.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn fixed(&mut self, octets: usize, signed: bool) -> Option<u64> {
        let bytes = self.octets.get(self.at..self.at + octets)?;
        self.at += octets;
        let mut value = [if signed && bytes.last()? & 0x80 != 0 { 0xff } else { 0 }; 8];
        value[..octets].copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }

    /// A pointer in one of the encodings that compilers use here.
    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let here = self.address + self.at as u64;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.fixed(8, false)?,
            0x01 => self.uleb()?,
            0x02 => self.fixed(2, false)?,
            0x03 => self.fixed(4, false)?,
            0x0a => self.fixed(2, true)?,
            0x0b => self.fixed(4, true)?,
            _ => return None,
        };
        match encoding & 0xf0 {
            0x00 => Some(value),
            0x10 => Some(here.wrapping_add(value)),
            _ => None,
        }
    }
}

/// The addresses at which exceptions land that pass through the function at `function`. `None`: the table is not understood.
fn landing_pads(octets: &[u8], address: u64, function: u64) -> Option<BTreeSet<u64>> {
    let mut c = Cursor { octets, at: 0, address };
    let base = match c.byte()? {
        0xff => function,
        encoding => c.pointer(encoding)?,
    };
    if c.byte()? != 0xff {
        c.uleb()?;
    }
    let encoding = c.byte()?;
    let end = c.uleb()? as usize;
    let end = c.at + end;
    let mut pads = BTreeSet::new();
    while c.at < end {
        c.pointer(encoding)?;
        c.pointer(encoding)?;
        let pad = c.pointer(encoding)?;
        c.uleb()?;
        if pad != 0 {
            pads.insert(base.wrapping_add(pad));
        }
    }
    Some(pads)
}
