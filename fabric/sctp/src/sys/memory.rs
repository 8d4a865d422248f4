//! Memory that processes share: a sealed memfd and its mapping.
//!
//! Writing through the mapping costs tens of nanoseconds a packet, where pwrite(2) costs some hundred each time. Only the process that owns the
//! memory writes; others read with pread(2), which needs no reference to memory that may change under it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check;

/// A file in memory whose size is fixed: no process that has it can take pages away under a mapping.
pub(crate) fn sealed_file(octets: u64) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string that outlives the call.
    let fd = check(unsafe {
        libc::memfd_create(c"sctp-associations".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    })?;
    // SAFETY: the call just made this descriptor, and nothing else owns it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(octets)?;
    // SAFETY: fcntl(2) with F_ADD_SEALS takes an integer.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SIZE_SEALS | libc::F_SEAL_SEAL) })?;
    Ok(file.into())
}

/// Neither shorter nor longer.
const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// A sealed file and the mapping of all of it.
pub(crate) struct SharedMemory {
    file: File,
    start: NonNull<u8>,
    octets: usize,
}

// SAFETY: the mapping belongs to this value alone and is valid in any thread; what others write to its memory is touched by atomics only
// (`load`, `store`) or not read at all (`write`).
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Errors: the file is not sealed, which is refused because another holder could shorten it and end this process; those of mmap(2).
    pub(crate) fn open(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        // SAFETY: fcntl(2) with F_GET_SEALS takes no argument.
        let seals = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & SIZE_SEALS != SIZE_SEALS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file's size is not sealed"));
        }
        let octets = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses an address that nothing else has; the size is that of the file, which is sealed.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                octets,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { file, start, octets }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// Copies octets into the memory. Out of bounds, it writes nothing.
    pub(crate) fn write(&mut self, at: usize, octets: &[u8]) {
        if at.checked_add(octets.len()).is_none_or(|end| end > self.octets) {
            return;
        }
        // SAFETY: the range is inside the mapping, whose pages cannot go; the source is not in it, because no reference to it is ever given
        // out. No process reads this memory through a reference either.
        unsafe {
            std::ptr::copy_nonoverlapping(octets.as_ptr(), self.start.as_ptr().add(at), octets.len());
        }
    }

    /// Reads octets of the file; `None` out of bounds.
    pub(crate) fn read(&self, at: usize, octets: usize) -> Option<Vec<u8>> {
        if at.checked_add(octets).is_none_or(|end| end > self.octets) {
            return None;
        }
        let mut copy = vec![0; octets];
        self.file.read_exact_at(&mut copy, at as u64).ok()?;
        Some(copy)
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        let inside = at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= self.octets);
        // SAFETY: eight octets inside the mapping, aligned because the mapping begins at a page; every process accesses words atomically
        // only, and any content is a valid integer.
        inside.then(|| unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) })
    }

    /// The word at a place, a multiple of eight; zero out of bounds.
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    /// Sets a word, after all that was written before.
    pub(crate) fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// Adds one to a word, and returns the sum.
    pub(crate) fn increment(&self, at: usize) -> u64 {
        self.word(at).map_or(0, |word| word.fetch_add(1, Ordering::SeqCst).wrapping_add(1))
    }

    /// Makes a range zero and gives its pages back.
    pub(crate) fn clear(&self, at: usize, octets: usize) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let fd = self.file.as_fd().as_raw_fd();
        // SAFETY: fallocate(2) takes no pointers.
        check(unsafe { libc::fallocate(fd, mode, at as libc::off_t, octets as libc::off_t) })?;
        Ok(())
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and no reference into it outlives this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
    }
}
