//! Memory shared with the kernel.

use std::io;
use std::ptr::NonNull;

/// Memory mapped from the kernel; gone when dropped.
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    pub(super) octets: usize,
}

impl Mapping {
    /// Errors: those of mmap(2).
    pub(super) fn new(
        octets: usize,
        flags: libc::c_int,
        fd: libc::c_int,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        Self::map(octets, flags | libc::MAP_POPULATE, fd, offset)
    }

    /// Of which pages are there when they are first touched. Errors: likewise.
    pub(super) fn as_touched(octets: usize, flags: libc::c_int, fd: libc::c_int) -> io::Result<Self> {
        Self::map(octets, flags, fd, 0)
    }

    fn map(octets: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses an address that nothing else has.
        let start: *mut libc::c_void =
            unsafe { libc::mmap(std::ptr::null_mut(), octets, protection, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, octets }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and all pointers into it end with it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
    }
}
