//! A file of a memory file system, mapped: memory that outlives the process.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;

use super::check;
use super::mapping::Mapping;

/// The mapping, and the file that it is of.
pub(crate) struct SharedFile {
    mapping: Mapping,
    file: File,
    /// What of the file is surely there.
    reserved: u64,
}

// SAFETY: the mapping belongs to this value alone, and goes with it.
unsafe impl Send for SharedFile {}

impl SharedFile {
    /// Maps a file, which is made so long if it is shorter, and locks it. Errors: `WouldBlock` where another process has it, and those of
    /// ftruncate(2) and mmap(2).
    pub(crate) fn new(file: File, octets: usize) -> io::Result<Self> {
        file.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            TryLockError::Error(e) => e,
        })?;
        let octets = octets.max(usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX));
        file.set_len(octets as u64)?;
        let mapping = Mapping::as_touched(octets, libc::MAP_SHARED, file.as_raw_fd())?;
        let mut it = Self { mapping, file, reserved: 0 };
        it.reserve(octets.min(4096) as u64)?;
        Ok(it)
    }

    /// Maps a file that another process has locked and made. Errors: `NotFound` if it is not yet as long, and those of mmap(2).
    pub(crate) fn of_other(file: File, octets: usize) -> io::Result<Self> {
        let there = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if there < octets {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mapping = Mapping::as_touched(there, libc::MAP_SHARED, file.as_raw_fd())?;
        Ok(Self { mapping, file, reserved: 0 })
    }

    /// [`Self::reserve`] finds room behind this place alone.
    pub(crate) fn reserve_behind(mut self, at: u64) -> Self {
        self.reserved = at;
        self
    }

    /// The file, by which its lock can be awaited: the lock is this value's, too. Errors: those of dup(2).
    pub(crate) fn try_clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(crate) fn octets(&self) -> u64 {
        self.mapping.octets as u64
    }

    /// Has the file system find room for all up to there, so that a write does not find it full. Errors: those of fallocate(2), but for that a
    /// file system does not know it.
    pub(crate) fn reserve(&mut self, until: u64) -> io::Result<()> {
        let until = until.min(self.octets());
        if until <= self.reserved {
            return Ok(());
        }
        let (from, more) = (self.reserved as libc::off_t, (until - self.reserved) as libc::off_t);
        // SAFETY: fallocate(2) takes a descriptor that lives through the call, and plain values.
        match check(unsafe { libc::fallocate(self.file.as_raw_fd(), 0, from, more) }) {
            Err(e) if e.raw_os_error() != Some(libc::EOPNOTSUPP) => return Err(e),
            _ => {}
        }
        self.reserved = until;
        Ok(())
    }

    pub(crate) fn read(&self, at: u64, to: &mut [u8]) {
        let Some(n) = self.within(at, to.len()) else { return to.fill(0) };
        to[n..].fill(0);
        // SAFETY: `within` has seen that so many octets are in the mapping; `to` is memory of this process's own. The lock keeps other
        // processes of this program from writing meanwhile; what others write is octets all the same.
        unsafe {
            std::ptr::copy_nonoverlapping(self.mapping.start.as_ptr().add(at as usize), to.as_mut_ptr(), n)
        };
    }

    pub(crate) fn write(&mut self, at: u64, octets: &[u8]) {
        let Some(n) = self.within(at, octets.len()) else { return };
        // SAFETY: as in `read`, the other way.
        unsafe {
            std::ptr::copy_nonoverlapping(octets.as_ptr(), self.mapping.start.as_ptr().add(at as usize), n)
        };
        // The order of writes is that of the machine's instructions, which is what remains when the process dies.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// How many of so many octets from there on are in the mapping; `None` if none.
    fn within(&self, at: u64, octets: usize) -> Option<usize> {
        let left = self.mapping.octets.checked_sub(usize::try_from(at).ok()?)?;
        Some(octets.min(left)).filter(|n| *n > 0)
    }
}
