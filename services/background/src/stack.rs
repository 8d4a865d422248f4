//! Stacks of scavengers, each with a page below it that no one may touch.

use std::io;
use std::ptr::{self, NonNull};

/// Octets of a stack: what a thread of ours gets by default is 2 MiB, of which pages that are never touched cost nothing. A quarter of that
/// is enough for background work, and a guard page ends the process if it is not.
const STACK_OCTETS: usize = 512 << 10;
/// Octets that are never accessible: one page, the step in which compilers probe a large frame.
const GUARD_OCTETS: usize = 4096;

/// A mapped stack; unmapped when dropped.
pub(crate) struct Stack {
    bottom: NonNull<libc::c_void>,
}

impl Stack {
    /// Maps a stack. Errors: the system has no memory left, or allows no more mappings.
    pub(crate) fn new() -> io::Result<Self> {
        let (protection, flags) = (
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
        );
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that exists.
        let bottom =
            unsafe { libc::mmap(ptr::null_mut(), STACK_OCTETS + GUARD_OCTETS, protection, flags, -1, 0) };
        if bottom == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let bottom = NonNull::new(bottom).ok_or_else(|| io::Error::other("a stack at address zero"))?;
        let stack = Self { bottom };
        // SAFETY: the range is within the mapping above, which this value owns.
        let changed = unsafe {
            libc::mprotect(
                bottom.as_ptr().byte_add(GUARD_OCTETS),
                STACK_OCTETS,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if changed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }

    /// The end of the stack, from which it grows downwards; aligned to 4 KiB.
    pub(crate) fn top(&self) -> *mut u8 {
        self.bottom.as_ptr().cast::<u8>().wrapping_add(GUARD_OCTETS + STACK_OCTETS)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing runs on it: `Pool` keeps stacks of suspended work mapped.
        unsafe { libc::munmap(self.bottom.as_ptr(), STACK_OCTETS + GUARD_OCTETS) };
    }
}
