//! Instrumented programs in memory.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::layout;
use crate::signals;
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
pub(crate) type Finalize = unsafe extern "C" fn(*mut c_void);
pub(crate) type Destructor = unsafe extern "C" fn();

/// A program that runs in stalls.
pub(crate) struct Work {
    pub(crate) main: Main,
    pub(crate) flush: Option<Flush>,
    /// Runs what the program has registered for its end.
    pub(crate) finalize: Option<Finalize>,
    /// Its destructors, in the order in which they run.
    pub(crate) destructors: Vec<Destructor>,
    /// Of the program and of its instrumented libraries.
    flags: Vec<*mut u8>,
    pub(crate) arguments: Vec<CString>,
    /// Their addresses, and a null.
    pub(crate) argument_list: Vec<*const c_char>,
    /// Share of its yields at loads that go on to the next scavenger.
    pub(crate) special: f64,
    /// It has variables of a thread, so it stays with one.
    pub(crate) stays: bool,
}

// SAFETY: `flags` are accessed as atomics only; the rest is read, as are the arguments, which it owns.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

impl Work {
    /// From now on its yields are passed over: what the end of the process runs of it is on no coroutine.
    pub(crate) fn stop_yields(&self) {
        for &flag in &self.flags {
            // SAFETY: the octet is in the writable segment of the scavenger, or of its library, and nothing else writes it.
            unsafe { AtomicU8::from_ptr(flag) }.store(0, Ordering::Relaxed);
        }
    }
}

/// The parts of `struct link_map` that are public.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const [u64; 2],
    next: *const LinkMap,
    previous: *const LinkMap,
}

impl LinkMap {
    /// Program headers of the object.
    fn headers(&self) -> &[libc::Elf64_Phdr] {
        // SAFETY: a loaded object begins with its ELF header, and its program headers are in the same segment.
        unsafe {
            let elf = &*(self.base as *const libc::Elf64_Ehdr);
            std::slice::from_raw_parts(
                (self.base + elf.e_phoff as usize) as *const libc::Elf64_Phdr,
                usize::from(elf.e_phnum),
            )
        }
    }
}

/// All objects of the namespace of one.
fn namespace_of(map: &LinkMap) -> Vec<&LinkMap> {
    let mut maps = vec![map];
    let mut at = map.previous;
    // SAFETY: the dynamic linker's list, whose ends are null; no one else loads or unloads while the constructor runs.
    while let Some(map) = unsafe { at.as_ref() } {
        maps.push(map);
        at = map.previous;
    }
    at = map.next;
    // SAFETY: as above.
    while let Some(map) = unsafe { at.as_ref() } {
        maps.push(map);
        at = map.next;
    }
    maps
}

/// Images of this process that are instrumented as a primary: the program, and libraries that were loaded with it.
pub(crate) fn primary() -> Vec<Image> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, images: *mut c_void) -> c_int {
        // SAFETY: the dynamic linker describes an object that is loaded; `images` is the list below.
        let (info, images) = unsafe { (&*info, &mut *images.cast::<Vec<Image>>()) };
        if !info.dlpi_phdr.is_null() {
            // SAFETY: as above.
            let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
            images.extend(image(info.dlpi_addr as usize, headers, layout::ROLE_PRIMARY));
        }
        0
    }
    let mut images: Vec<Image> = Vec::new();
    // SAFETY: the function is called before this one returns, with the list alone.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut images).cast()) };
    images
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

/// Loads an object into a namespace.
fn load_into(namespace: libc::Lmid_t, path: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: loading runs the initialisers of the object and of its libraries, which the operator has chosen to run here.
    let handle = unsafe { libc::dlmopen(namespace, path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(last_error()) } else { Ok(handle) }
}

/// The namespace that an object was loaded into.
fn namespace_number(handle: *mut c_void) -> Option<libc::Lmid_t> {
    let mut namespace: libc::Lmid_t = 0;
    // SAFETY: the request writes one number.
    let result = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LMID, (&raw mut namespace).cast()) };
    (result == 0).then_some(namespace)
}

/// Loads a scavenger into a namespace of its own: `PROGRAM ARGUMENTS`. Instrumented libraries are loaded there first, and so take the place of
/// those that the scavenger names.
pub(crate) fn scavenger(command: &str, libraries: &[&str]) -> Result<Work, String> {
    let arguments: Vec<CString> =
        command.split(' ').map(|a| CString::new(a).map_err(|e| e.to_string())).collect::<Result<_, _>>()?;
    let path = std::fs::canonicalize(command.split(' ').next().unwrap_or_default())
        .map_err(|e| format!("{command}: {e}"))?;
    let path = CString::new(path.into_os_string().into_encoded_bytes()).map_err(|e| e.to_string())?;
    let mut namespace = libc::LM_ID_NEWLM;
    for library in libraries {
        let path = CString::new(*library).map_err(|e| e.to_string())?;
        let handle = load_into(namespace, &path)?;
        namespace = namespace_number(handle).ok_or_else(last_error)?;
    }
    let handle = load_into(namespace, &path).map_err(|e| format!("{command}: {e}"))?;
    let mut map: *const LinkMap = ptr::null();
    // SAFETY: the request writes one pointer.
    if unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } != 0 {
        return Err(format!("{command}: {}", last_error()));
    }
    // SAFETY: the dynamic linker keeps the map while the object is loaded, which is for ever.
    let map = unsafe { &*map };
    let image = image(map.base, map.headers(), layout::ROLE_SCAVENGER)
        .ok_or_else(|| format!("{command} is not instrumented as a scavenger"))?;
    let mut flags = vec![image.flag];
    let mut stays = image.has_thread_variables;
    for other in namespace_of(map).into_iter().filter(|other| other.base != 0 && other.base != map.base) {
        if let Some(library) = self::image(other.base, other.headers(), layout::ROLE_SCAVENGER) {
            flags.push(library.flag);
            stays |= library.has_thread_variables;
            replace_functions(other);
        }
    }
    replace_functions(map);
    let library = c_library(handle).ok_or_else(|| format!("{command}: {}", last_error()))?;
    let of_library = |name: &CStr| {
        // SAFETY: the name is terminated; the handle is open.
        unsafe { libc::dlsym(library, name.as_ptr()) }
    };
    copy_streams(map, &of_library);
    let (flush, finalize) = (of_library(c"fflush"), of_library(c"__cxa_finalize"));
    let destructors = take_destructors(map);
    // SAFETY: the flags are the scavenger's; it has not begun.
    flags.iter().for_each(|flag| unsafe { flag.write(1) });
    Ok(Work {
        // SAFETY: the symbol table of the scavenger says that its `main` is there.
        main: unsafe { std::mem::transmute::<usize, Main>(image.main) },
        // SAFETY: `fflush` of the scavenger's own C library.
        flush: unsafe { std::mem::transmute::<*mut c_void, Option<Flush>>(flush) },
        // SAFETY: `__cxa_finalize` of the scavenger's own C library.
        finalize: unsafe { std::mem::transmute::<*mut c_void, Option<Finalize>>(finalize) },
        destructors,
        flags,
        argument_list: arguments.iter().map(|a| a.as_ptr()).chain([ptr::null()]).collect(),
        arguments,
        special: image.special as f64 / 1000.0,
        stays,
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

/// The C library in the namespace of a scavenger.
fn c_library(scavenger: *mut c_void) -> Option<*mut c_void> {
    let namespace = namespace_number(scavenger)?;
    // SAFETY: the library is loaded already.
    let library =
        unsafe { libc::dlmopen(namespace, c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    (!library.is_null()).then_some(library)
}

const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const DT_FINI_ARRAY: u64 = 26;
const DT_FINI_ARRAYSZ: u64 = 28;
const R_X86_64_COPY: u64 = 5;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

/// The entry of the dynamic section with a tag.
///
/// # Safety
/// The object is loaded.
unsafe fn entry(map: &LinkMap, tag: u64) -> Option<*const [u64; 2]> {
    let mut at = map.dynamic;
    // SAFETY: the section ends with an entry whose tag is zero.
    unsafe {
        while (*at)[0] != 0 {
            if (*at)[0] == tag {
                return Some(at);
            }
            at = at.add(1);
        }
    }
    None
}

/// Lets a word of a loaded object be written, which the dynamic linker may have protected.
fn writable(word: usize) {
    let page = (word & !4095) as *mut c_void;
    // SAFETY: the page is of an object that this process has loaded; it is made no less accessible.
    unsafe { libc::syscall(libc::SYS_mprotect, page, 4096_usize, libc::PROT_READ | libc::PROT_WRITE) };
}

/// Destructors of a scavenger: taken from the dynamic linker, which would run them at the end of the process, whether the scavenger has come to
/// its own end or not.
fn take_destructors(map: &LinkMap) -> Vec<Destructor> {
    // SAFETY: the dynamic section of a loaded object, and the array that it names.
    unsafe {
        let (Some(array), Some(octets)) = (entry(map, DT_FINI_ARRAY), entry(map, DT_FINI_ARRAYSZ)) else {
            return Vec::new();
        };
        let from = (*array)[1] as usize;
        let from = if from < map.base { from + map.base } else { from };
        let functions = std::slice::from_raw_parts(from as *const Destructor, (*octets)[1] as usize / 8);
        let functions = functions.iter().rev().copied().collect();
        let word = &raw const (*octets)[1];
        writable(word as usize);
        word.cast_mut().write(0);
        functions
    }
}

/// Fills the scavenger's own `stdout` and the like, which the dynamic linker fills in a process's first program alone.
fn copy_streams(map: &LinkMap, of_library: &dyn Fn(&CStr) -> *mut c_void) {
    for_each_relocation(map, |at, kind, name| {
        if kind != R_X86_64_COPY {
            return;
        }
        let (own, library) = (at as *mut usize, of_library(name) as *const usize);
        // SAFETY: the tool has accepted copies of pointers alone; the library has them as well.
        unsafe {
            if !library.is_null() && *own == 0 {
                own.write(*library);
            }
        }
    });
}

/// Functions that mean the process: a scavenger that exits ends alone, and it gets no signals.
fn replace_functions(map: &LinkMap) {
    for_each_relocation(map, |at, kind, name| {
        if !matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
            return;
        }
        let replacement = match name.to_bytes() {
            b"exit" => worker::exit_of_scavenger as *const () as usize,
            b"_exit" | b"_Exit" | b"quick_exit" => worker::quick_exit_of_scavenger as *const () as usize,
            b"sigaction" => signals::sigaction_of_scavenger as *const () as usize,
            b"signal" => signals::signal_of_scavenger as *const () as usize,
            b"raise" => signals::raise_of_scavenger as *const () as usize,
            b"sigaltstack" => signals::sigaltstack_of_scavenger as *const () as usize,
            _ => return,
        };
        writable(at);
        // SAFETY: a word of the table of addresses, which this object alone uses.
        unsafe { (at as *mut usize).write(replacement) };
    });
}

/// Calls a function for each relocation with a symbol: the address, the kind, and the symbol's name.
fn for_each_relocation(map: &LinkMap, mut each: impl FnMut(usize, u64, &CStr)) {
    // SAFETY: the dynamic section and the tables that it names are of a loaded object; their lengths are given beside them.
    unsafe {
        let value = |tag: u64| entry(map, tag).map_or(0, |at| (*at)[1] as usize);
        let absolute = |at: usize| if at < map.base { at + map.base } else { at };
        let (symbols, names) =
            (absolute(value(DT_SYMTAB)) as *const libc::Elf64_Sym, absolute(value(DT_STRTAB)));
        for (table, octets) in [(value(DT_RELA), value(DT_RELASZ)), (value(DT_JMPREL), value(DT_PLTRELSZ))] {
            if table == 0 || octets == 0 {
                continue;
            }
            let relocations = std::slice::from_raw_parts(absolute(table) as *const [u64; 3], octets / 24);
            for [at, info, _] in relocations {
                let symbol = &*symbols.add((info >> 32) as usize);
                let name = CStr::from_ptr((names + symbol.st_name as usize) as *const c_char);
                each(map.base + *at as usize, info & 0xffff_ffff, name);
            }
        }
    }
}
