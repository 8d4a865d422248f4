//! Instrumented programs in memory.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use crate::layout;
use crate::worker;

/// An instrumented program in memory.
pub(crate) struct Image {
    /// The octet that lets its yields happen.
    pub(crate) flag: *mut u8,
    main: usize,
    special: u64,
    code_from: usize,
    code_octets: usize,
    has_thread_variables: bool,
}

// SAFETY: `flag` is accessed as an atomic only, and the mapping lives as long as the process.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// Whether any of its code is in a range of memory.
    pub(crate) fn has_code_in(&self, from: usize, octets: usize) -> bool {
        from < self.code_from + self.code_octets && self.code_from < from.saturating_add(octets)
    }
}

pub(crate) type Main = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
pub(crate) type Flush = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A program that runs in stalls.
pub(crate) struct Work {
    pub(crate) main: Main,
    pub(crate) flush: Option<Flush>,
    pub(crate) arguments: Vec<CString>,
    /// Share of its yields at loads that go on to the next scavenger.
    pub(crate) special: f64,
    /// It has variables of a thread, so it stays with one.
    pub(crate) stays: bool,
}

/// The parts of `struct link_map` that are public.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const [u64; 2],
}

/// The program of this process; `None` if it is not instrumented as a primary.
pub(crate) fn primary() -> Option<Image> {
    // SAFETY: the kernel's description of the program's headers, which stay mapped.
    let (headers, count) = unsafe {
        (libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr, libc::getauxval(libc::AT_PHNUM) as usize)
    };
    if headers.is_null() {
        return None;
    }
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(headers, count) };
    let table = headers.iter().find(|h| h.p_type == libc::PT_PHDR)?;
    let base = (headers.as_ptr() as usize).wrapping_sub(table.p_vaddr as usize);
    image(base, headers, layout::ROLE_PRIMARY)
}

/// Finds the header that the tool has added.
fn image(base: usize, headers: &[libc::Elf64_Phdr], role: u64) -> Option<Image> {
    let has_thread_variables = headers.iter().any(|h| h.p_type == libc::PT_TLS);
    for header in
        headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_filesz as usize >= layout::HEADER_OCTETS)
    {
        if header.p_flags & libc::PF_R == 0 {
            continue;
        }
        let at = base.wrapping_add(header.p_vaddr as usize) as *const u8;
        // SAFETY: a segment that is loaded and readable, and has that many octets.
        let octets = unsafe { std::slice::from_raw_parts(at, layout::HEADER_OCTETS) };
        if !octets.starts_with(&layout::MAGIC) {
            continue;
        }
        let word = |at: usize| octets[at..at + 8].iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
        let address = |at: usize| base.wrapping_add(word(at) as usize);
        return (word(layout::HEADER_ROLE) == role).then(|| Image {
            flag: address(layout::HEADER_FLAG) as *mut u8,
            main: address(layout::HEADER_MAIN),
            special: word(layout::HEADER_SPECIAL),
            code_from: address(layout::HEADER_TEXT),
            code_octets: word(layout::HEADER_TEXT + 8) as usize,
            has_thread_variables,
        });
    }
    None
}

/// Loads a scavenger into a namespace of its own: `PROGRAM ARGUMENTS`.
pub(crate) fn scavenger(command: &str) -> Result<Work, String> {
    let arguments: Vec<CString> =
        command.split(' ').map(|a| CString::new(a).map_err(|e| e.to_string())).collect::<Result<_, _>>()?;
    let path = std::fs::canonicalize(command.split(' ').next().unwrap_or_default())
        .map_err(|e| format!("{command}: {e}"))?;
    let path = CString::new(path.into_os_string().into_encoded_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: loading runs the initialisers of the scavenger and of its libraries, which the operator has chosen to run here.
    let handle =
        unsafe { libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(format!("{command}: {}", last_error()));
    }
    let mut map: *const LinkMap = ptr::null();
    // SAFETY: the request writes one pointer.
    if unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0 {
        return Err(format!("{command}: {}", last_error()));
    }
    // SAFETY: the dynamic linker keeps the map while the object is loaded, which is for ever.
    let map = unsafe { &*map };
    // SAFETY: a loaded object begins with its ELF header, and its program headers are in the same segment.
    let headers = unsafe {
        let elf = &*(map.base as *const libc::Elf64_Ehdr);
        std::slice::from_raw_parts(
            (map.base + elf.e_phoff as usize) as *const libc::Elf64_Phdr,
            usize::from(elf.e_phnum),
        )
    };
    let image = image(map.base, headers, layout::ROLE_SCAVENGER)
        .ok_or_else(|| format!("{command} is not instrumented as a scavenger"))?;
    replace_exits(map);
    // SAFETY: the name is terminated; the handle is open.
    let flush = unsafe { libc::dlsym(handle, c"fflush".as_ptr()) };
    // SAFETY: the flag is the scavenger's; it has not begun.
    unsafe { image.flag.write(1) };
    Ok(Work {
        // SAFETY: the symbol table of the scavenger says that its `main` is there.
        main: unsafe { std::mem::transmute::<usize, Main>(image.main) },
        // SAFETY: `fflush` of the scavenger's own C library.
        flush: unsafe { std::mem::transmute::<*mut c_void, Option<Flush>>(flush) },
        arguments,
        special: image.special as f64 / 1000.0,
        stays: image.has_thread_variables,
    })
}

fn last_error() -> String {
    // SAFETY: a terminated string of this thread, or null.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown error".into()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

/// A scavenger that exits ends alone, not with the process.
fn replace_exits(map: &LinkMap) {
    // SAFETY: the dynamic section and the tables that it names are of a loaded object; its length is given by its last entry. Entries of the
    // table of addresses are words that this object alone uses.
    unsafe {
        let entry = |tag: u64| {
            let mut at = map.dynamic;
            while (*at)[0] != 0 {
                if (*at)[0] == tag {
                    return (*at)[1] as usize;
                }
                at = at.add(1);
            }
            0
        };
        let absolute = |at: usize| if at < map.base { at + map.base } else { at };
        let (symbols, names) =
            (absolute(entry(DT_SYMTAB)) as *const libc::Elf64_Sym, absolute(entry(DT_STRTAB)));
        for (table, octets) in [(entry(DT_RELA), entry(DT_RELASZ)), (entry(DT_JMPREL), entry(DT_PLTRELSZ))] {
            if table == 0 || octets == 0 {
                continue;
            }
            let relocations = std::slice::from_raw_parts(absolute(table) as *const [u64; 3], octets / 24);
            for [at, info, _] in relocations {
                if !matches!(info & 0xffff_ffff, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                    continue;
                }
                let symbol = &*symbols.add((info >> 32) as usize);
                let name = CStr::from_ptr((names + symbol.st_name as usize) as *const c_char);
                if !matches!(name.to_bytes(), b"exit" | b"_exit" | b"_Exit" | b"quick_exit") {
                    continue;
                }
                let word = (map.base + *at as usize) as *mut usize;
                let page = (word as usize & !4095) as *mut c_void;
                libc::syscall(libc::SYS_mprotect, page, 4096_usize, libc::PROT_READ | libc::PROT_WRITE);
                word.write(worker::exit_of_scavenger as *const () as usize);
            }
        }
    }
}
