//! The runtime of instrumented programs: `whimbrel-harvest run` preloads it into the primary.
//!
//! Scavengers are loaded into namespaces of their own, with libraries of their own, so that no lock, buffer or `errno` of a library is shared with
//! the primary. Each thread of the primary has a context at the base of GS, with the scavengers that it yields to. Instrumented code does the
//! switches; this library gives threads their scavengers when they begin, and takes them while they are blocked.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../src/layout.rs"]
#[allow(dead_code, reason = "the tool uses the rest")]
mod layout;

mod blocking;
mod load;
mod signals;
mod thread;
mod worker;

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use load::Image;
use worker::Pool;

/// What the constructor finds and loads.
pub(crate) struct Runtime {
    /// Images of the primary: the program, and its instrumented libraries.
    primary: Vec<Image>,
    pool: Pool,
    report: Option<String>,
}

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Scavengers that ended.
pub(crate) static FINISHED: AtomicU64 = AtomicU64::new(0);
/// Scavengers taken from blocked threads.
pub(crate) static STOLEN: AtomicU64 = AtomicU64::new(0);

pub(crate) fn runtime() -> Option<&'static Runtime> {
    RUNTIME.get()
}

impl Runtime {
    /// Lets yields of the primary happen, or passes over them.
    pub(crate) fn enable(&self, enabled: bool) {
        for image in &self.primary {
            // SAFETY: the octet is in the image's writable segment, which the tool has made larger for it, and nothing else writes it.
            unsafe { AtomicU8::from_ptr(image.flag) }.store(enabled.into(), Ordering::Relaxed);
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = begin;

/// Runs before any code of the primary.
extern "C" fn begin() {
    let scavengers = take_variable("WHIMBREL_HARVEST_SCAVENGERS");
    let libraries = take_variable("WHIMBREL_HARVEST_LIBRARIES").unwrap_or_default();
    let report = take_variable("WHIMBREL_HARVEST_REPORT");
    // Programs that the primary starts are not instrumented.
    take_variable("LD_PRELOAD");
    take_variable("GLIBC_TUNABLES");
    let primary = load::primary();
    if primary.is_empty() {
        return;
    }
    let libraries: Vec<&str> = libraries.split(':').filter(|l| !l.is_empty()).collect();
    let works = scavengers.iter().flat_map(|s| s.lines()).filter(|l| !l.is_empty());
    let works = works.map(|command| load::scavenger(command, &libraries));
    let works = match works.collect::<Result<Vec<_>, _>>() {
        Ok(works) => works,
        Err(why) => fail(&why),
    };
    if works.is_empty() {
        return;
    }
    let runtime = Runtime { primary, pool: Pool::new(works), report };
    let runtime = RUNTIME.get_or_init(|| runtime);
    thread::begin(runtime);
    // SAFETY: both functions are valid for the life of the process.
    unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
        libc::atexit(end);
    }
    runtime.enable(true);
}

/// A child process has one thread, and none of the work of its parent.
unsafe extern "C" fn in_child() {
    if let Some(runtime) = runtime() {
        runtime.enable(false);
    }
}

extern "C" fn end() {
    let Some(runtime) = runtime() else { return };
    runtime.enable(false);
    runtime.pool.stop_yields();
    let Some(report) = &runtime.report else { return };
    let text = format!(
        "harvest: {} yields of the primary, {} of {} scavengers finished, {} taken from blocked threads\n",
        thread::yields(),
        FINISHED.load(Ordering::Relaxed),
        runtime.pool.total(),
        STOLEN.load(Ordering::Relaxed)
    );
    if let Err(e) = std::fs::write(report, text) {
        eprintln!("whimbrel-harvest: {report}: {e}");
    }
}

/// Ends the process before the primary has done anything.
pub(crate) fn fail(why: &str) -> ! {
    eprintln!("whimbrel-harvest: {why}");
    // SAFETY: ends the process.
    unsafe { libc::_exit(126) }
}

/// Reads a variable of the environment and removes it.
fn take_variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok();
    // SAFETY: the constructor runs before there is another thread.
    unsafe { std::env::remove_var(name) };
    value
}

/// A function that this library stands before; looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    version: Option<&'static CStr>,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr, version: Option<&'static CStr>) -> Self {
        Self { name, version, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// # Safety
    /// `F` is the type of the function.
    pub(crate) unsafe fn get<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: names are terminated; the lookup changes nothing.
            found = unsafe {
                match self.version {
                    Some(version) => libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr()),
                    None => libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()),
                }
            };
            if found.is_null() {
                fail(&format!("no function {:?} in the libraries of the program", self.name));
            }
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: the caller names the type; sizes are equal.
        unsafe { std::mem::transmute_copy(&found) }
    }
}

/// Code that changes itself would change what was moved elsewhere: ends a primary that makes its own writable.
pub(crate) fn refuse_writable_code(from: usize, octets: usize, protection: c_int) {
    if protection & libc::PROT_WRITE != 0
        && let Some(runtime) = runtime()
        && runtime.primary.iter().any(|image| image.has_code_in(from, octets))
    {
        fail("the primary makes its code writable: code that changes itself cannot be harvested");
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(from: *mut c_void, octets: usize, protection: c_int) -> c_int {
    refuse_writable_code(from as usize, octets, protection);
    // SAFETY: the caller's arguments, passed on; the kernel checks them.
    unsafe { libc::syscall(libc::SYS_mprotect, from, octets, c_int::from(protection)) as c_int }
}
