//! Words in memory that processes share.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use super::mapping::Mapping;
use super::{check, owned};

/// So many words, of which each is read and written as a whole.
pub(crate) struct Words {
    mapping: Mapping,
    words: usize,
}

// SAFETY: the mapping belongs to this value alone and goes with it; all access to it is by atomic operations.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Memory for so many words, all zero. Errors: those of memfd_create(2) and ftruncate(2).
    pub(crate) fn memory(name: &CStr, words: usize) -> io::Result<OwnedFd> {
        // SAFETY: the name lives through the call, which makes a new descriptor.
        let memory =
            owned(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
        // SAFETY: ftruncate(2) takes a descriptor that lives through the call, and a plain value.
        check(unsafe { libc::ftruncate(memory.as_raw_fd(), (words * 8) as libc::off_t) })?;
        // A process that maps it finds all of it for as long as it is mapped.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: fcntl(2) takes a descriptor that lives through the call, and plain values.
        check(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
        Ok(memory)
    }

    /// Maps it. Errors: `InvalidData` if it is not sealed or too short, and those of mmap(2).
    pub(crate) fn map(memory: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        // SAFETY: fcntl(2) takes a descriptor that lives through the call, and a plain value.
        let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
        // SAFETY: for this plain C struct all zeroes are a value, and fstat(2) writes one that lives through the call.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        check(unsafe { libc::fstat(memory.as_raw_fd(), &raw mut stat) })?;
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || stat.st_size < (words * 8) as libc::off_t {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { mapping: Mapping::new(words * 8, libc::MAP_SHARED, memory.as_raw_fd(), 0)?, words })
    }

    /// One of them. Panics: there are fewer.
    pub(crate) fn at(&self, n: usize) -> &AtomicU64 {
        assert!(n < self.words);
        // SAFETY: the mapping begins at a page, has so many words, cannot be shortened, and lives as long as this value; other processes
        // and threads access it by atomic operations alone.
        unsafe { &*self.mapping.start.as_ptr().cast::<AtomicU64>().add(n) }
    }
}
