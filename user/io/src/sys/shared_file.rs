//! A file of a memory file system, mapped: memory that outlives the process. Other processes map it too, so that each access is of atomic words.
//!
//! A memfd is sealed, so that no process can shorten it under the mapping. Any other file can be truncated by
//! each process that may write to it: [`Guard`] keeps this process alive then, and [`SharedFile::reserve`]
//! fails.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

use super::mapping::Mapping;
use super::truncation::Guard;
use super::{check, shared_words};

/// The mapping, and the file that it is of.
pub(crate) struct SharedFile {
    /// Of a file that is not sealed. Dropped before the mapping.
    guard: Option<Guard>,
    mapping: Mapping,
    file: File,
    /// What of the file is surely there.
    reserved: u64,
}

// SAFETY: the mapping belongs to this value alone, and goes with it.
unsafe impl Send for SharedFile {}

/// Seals a memfd against becoming shorter. False of a file that cannot be sealed, which another process can truncate.
fn seal(file: &File) -> bool {
    // SAFETY: fcntl(2) takes a descriptor that lives through the call, and plain values. What cannot be sealed says so below.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
    // SAFETY: likewise.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

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
        let mut it = Self::map(file, octets)?;
        it.reserve(octets.min(4096) as u64)?;
        Ok(it)
    }

    /// Maps a file that another process has locked and made. Errors: `NotFound` if it is not yet as long, and those of mmap(2).
    pub(crate) fn of_other(file: File, octets: usize) -> io::Result<Self> {
        let there = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if there < octets {
            return Err(io::ErrorKind::NotFound.into());
        }
        Self::map(file, there)
    }

    fn map(file: File, octets: usize) -> io::Result<Self> {
        let is_sealed = seal(&file);
        let mapping = Mapping::as_touched(octets, libc::MAP_SHARED, file.as_raw_fd())?;
        let guard = if is_sealed { None } else { Some(Guard::new(mapping.start.as_ptr(), octets)?) };
        Ok(Self { guard, mapping, file, reserved: 0 })
    }

    /// True if the file was found shorter than its mapping. Octets beyond its end are then zero, and writes
    /// there reach no other process.
    pub(crate) fn found_truncated(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::found_truncated)
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

    /// Has the file system find room for all up to there, so that a write does not find it full. Errors: the file was found truncated, and those of
    /// fallocate(2), but for that a file system does not know it.
    pub(crate) fn reserve(&mut self, until: u64) -> io::Result<()> {
        if self.found_truncated() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "another process has truncated the file",
            ));
        }
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

    /// All words, of which the last may reach beyond the end of the file, in its last page.
    fn words(&self) -> &[AtomicU64] {
        let words = self.mapping.octets.div_ceil(size_of::<AtomicU64>());
        // SAFETY: the mapping begins at a page and covers whole pages, so that it has all these words, as long as `self` lives: a file that became shorter is
        // sealed against that or guarded. Any content is a valid integer, and every process accesses it by atomic words.
        unsafe { std::slice::from_raw_parts(self.mapping.start.as_ptr().cast(), words) }
    }

    pub(crate) fn read(&self, at: u64, to: &mut [u8]) {
        let Some(n) = self.within(at, to.len()) else { return to.fill(0) };
        to[n..].fill(0);
        shared_words::read(self.words(), at as usize, &mut to[..n]);
    }

    pub(crate) fn write(&mut self, at: u64, octets: &[u8]) {
        let Some(n) = self.within(at, octets.len()) else { return };
        shared_words::write(self.words(), at as usize, &octets[..n]);
        // The order of writes is that of the machine's instructions, which is what remains when the process dies.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// How many of so many octets from there on are in the mapping; `None` if none.
    fn within(&self, at: u64, octets: usize) -> Option<usize> {
        let left = self.mapping.octets.checked_sub(usize::try_from(at).ok()?)?;
        Some(octets.min(left)).filter(|n| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str) -> (PathBuf, File) {
        let path = std::env::temp_dir().join(format!("whimbrel-shared-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        (path, file)
    }

    #[test]
    fn file_that_another_process_truncates_reads_as_zeroes_and_gives_an_error() {
        let (path, owned) = file("truncated");
        let mut own = SharedFile::new(owned, 40_000).unwrap();
        own.write(30_000, b"session");
        let other = File::options().read(true).write(true).open(&path).unwrap();
        let mut followed = SharedFile::of_other(other.try_clone().unwrap(), 40_000).unwrap();
        let mut read = [1; 7];
        followed.read(30_000, &mut read);
        assert_eq!(&read, b"session");
        assert!(!followed.found_truncated() && followed.reserve(40_000).is_ok());
        other.set_len(100).unwrap();
        followed.read(30_000, &mut read);
        assert_eq!(read, [0; 7]);
        assert!(followed.found_truncated());
        assert_eq!(followed.reserve(40_000).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        // The owner learns of it with its next access, and goes on.
        own.write(39_999, b"end");
        own.write(0, b"begin");
        assert!(own.found_truncated() && own.reserve(40_000).is_err());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn memfd_cannot_be_truncated_while_it_is_mapped() {
        let memory = File::from(crate::sys::memory_file(c"whimbrel-test").unwrap());
        let other = memory.try_clone().unwrap();
        let own = SharedFile::new(memory, 40_000).unwrap();
        assert_eq!(other.set_len(100).unwrap_err().raw_os_error(), Some(libc::EPERM));
        other.set_len(80_000).expect("the next program may need more");
        assert!(own.guard.is_none());
    }
}
