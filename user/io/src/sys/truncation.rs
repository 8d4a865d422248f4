//! Mappings of ordinary files, which any process that may write to the file can truncate. The kernel raises SIGBUS for what is touched beyond the end, and
//! nothing seals an ordinary file as a memfd is sealed. The handler of the signal puts memory of this process's own where the file was, so that the program
//! goes on, and the mapping's owner learns of it.
//!
//! `unsafe`: safe code installs no signal handler. The alternative, pread(2) and pwrite(2), takes a system call for each record of a session.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::check;

/// Mappings that are guarded at a time: a UPF has its state, and one more for each packet thread.
const MAPPINGS_MAX: usize = 256;

/// A guarded mapping, as the handler finds it.
struct GuardedMapping {
    is_taken: AtomicBool,
    /// Zero while there is none.
    start: AtomicUsize,
    octets: AtomicUsize,
    is_truncated: AtomicBool,
}

static PLACES: [GuardedMapping; MAPPINGS_MAX] = [const {
    GuardedMapping {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        octets: AtomicUsize::new(0),
        is_truncated: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];
/// Octets of a page; zero until the handler is installed.
static PAGE_OCTETS: AtomicUsize = AtomicUsize::new(0);
/// Former handler of SIGBUS, which gets signals about addresses outside of guarded mappings.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();
/// Some guarded file was found truncated.
static ANY: AtomicBool = AtomicBool::new(false);

/// True if a guarded file was found truncated since this process began.
pub(crate) fn was_found() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// The guard of a mapping; it is to be dropped before that is.
pub(crate) struct Guard(&'static GuardedMapping);

impl Guard {
    /// Guards a mapping. Errors: too many are guarded, and those of sigaction(2).
    pub(crate) fn new(start: *const u8, octets: usize) -> io::Result<Self> {
        install()?;
        let free = |p: &&GuardedMapping| !p.is_taken.swap(true, Ordering::AcqRel);
        let place = PLACES.iter().find(free).ok_or_else(|| io::Error::other("too many files are mapped"))?;
        place.is_truncated.store(false, Ordering::Relaxed);
        place.octets.store(octets, Ordering::Relaxed);
        place.start.store(start as usize, Ordering::Release);
        Ok(Self(place))
    }

    /// True if an access went beyond the end of the file.
    pub(crate) fn found_truncated(&self) -> bool {
        self.0.is_truncated.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

fn install() -> io::Result<()> {
    if PAGE_OCTETS.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    // SAFETY: sysconf(3) takes a plain value.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // SAFETY: for this plain C struct all zeroes are a value.
    let (mut action, mut former): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: both live through the call. The former handler is read first, so that two threads that install
    // at once both find it.
    check(unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut former) })?;
    if former.sa_sigaction != action.sa_sigaction {
        FORMER.get_or_init(|| former);
    }
    // SAFETY: as above; the handler calls only what is safe in a signal handler.
    check(unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) })?;
    PAGE_OCTETS.store(usize::try_from(page).unwrap_or(4096), Ordering::Release);
    Ok(())
}

/// Puts anonymous memory in place of the rest of a guarded mapping. It uses atomics, mmap(2) and sigaction(2) alone, so that it may interrupt anything.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO such a struct, and an address with this signal.
    let at = unsafe { (*info).si_addr() } as usize;
    let page_octets = PAGE_OCTETS.load(Ordering::Acquire).max(4096);
    for place in &PLACES {
        let (start, octets) = (place.start.load(Ordering::Acquire), place.octets.load(Ordering::Relaxed));
        if start == 0 || at.wrapping_sub(start) >= octets {
            continue;
        }
        let page = at - at % page_octets;
        let rest = (start + octets - page).next_multiple_of(page_octets);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: these pages are of a mapping whose owner still has its guard, and hold atomic words of any content. Errno is put back, since what was
        // interrupted may be about to read it.
        let mapped = unsafe {
            let errno = *libc::__errno_location();
            let mapped = libc::mmap(page as *mut libc::c_void, rest, protection, flags, -1, 0);
            *libc::__errno_location() = errno;
            mapped
        };
        if mapped != libc::MAP_FAILED {
            place.is_truncated.store(true, Ordering::Relaxed);
            ANY.store(true, Ordering::Relaxed);
            return;
        }
    }
    // The address is in no guarded mapping: the access happens again, under the former handler.
    // SAFETY: for this plain C struct all zeroes are a value, which is the default action.
    let default = || unsafe { std::mem::zeroed() };
    let former = FORMER.get().copied().unwrap_or_else(default);
    // SAFETY: the action lives through the call.
    unsafe { libc::sigaction(signal, &raw const former, std::ptr::null_mut()) };
}
