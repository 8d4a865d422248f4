//! The mapping of a pool. `unsafe` stands here and nowhere else in the crate: safe code cannot map a file that others write to. A copy
//! through pread(2) and pwrite(2) costs a system call for each frame, several hundred nanoseconds, where the mapping takes some tens
//! (`./x bench l25gc fabric`).

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

/// Neither shorter nor longer.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// A file in memory whose size is fixed: no process that has it can take pages away under a mapping.
pub(crate) fn sealed_file(octets: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(c"whimbrel-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, octets as u64)?;
    fcntl_add_seals(&file, SIZE_SEALS | SealFlags::SEAL)?;
    Ok(file)
}

/// All words of a pool, of which one range may be written.
pub struct Mapping {
    start: NonNull<c_void>,
    words: usize,
    writable: Range<usize>,
}

// SAFETY: the mapping belongs to this value alone and is valid in any thread; its words are accessed atomically only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `words` words of a file. `writable` begins and ends at pages.
    ///
    /// Errors: the file is not sealed, which is refused because another process could shorten it and end this one; it has another size;
    /// those of mmap(2).
    pub(crate) fn open(file: impl AsFd, words: usize, writable: Range<usize>) -> io::Result<Self> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if !fcntl_get_seals(&file)?.contains(SIZE_SEALS) {
            return invalid("the memory's size is not sealed");
        }
        if u64::try_from(fstat(&file)?.st_size).ok() != Some(8 * words as u64) || writable.end > words {
            return invalid("the memory has another size");
        }
        // SAFETY: the kernel chooses an address that nothing else has; the size is that of the file, which is sealed.
        let start =
            unsafe { mmap(std::ptr::null_mut(), 8 * words, ProtFlags::READ, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self { start, words, writable: writable.clone() };
        // SAFETY: the range is within the mapping, which is new: nothing refers to it.
        unsafe {
            let own = mapping.start.as_ptr().byte_add(8 * writable.start);
            mprotect(own, 8 * writable.len(), MprotectFlags::READ | MprotectFlags::WRITE)?;
        }
        Ok(mapping)
    }

    /// All words. Those outside of the writable range can only be loaded, and relaxed, which on every processor is a plain load.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, begins at a page, and lives as long as `self`; any content is a valid integer, and every
        // process accesses it atomically.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.words) }
    }

    /// The word at a place that may be written.
    pub(crate) fn writable(&self, at: usize) -> Option<&AtomicU64> {
        self.writable_range(at, 1).first()
    }

    /// So many words that may be written; none if any of them may not.
    pub(crate) fn writable_range(&self, at: usize, words: usize) -> &[AtomicU64] {
        let end = at.saturating_add(words);
        let is_writable = self.writable.start <= at && end <= self.writable.end;
        if is_writable { self.words().get(at..end).unwrap_or_default() } else { &[] }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and no reference into it outlives this value.
        let _ = unsafe { munmap(self.start.as_ptr(), 8 * self.words) };
    }
}
