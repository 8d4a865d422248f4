//! The mappings of a pool's areas. `unsafe` stands here and nowhere else in the crate: safe code cannot map a file that others write to. A copy
//! through pread(2) and pwrite(2) costs a system call for each frame, several hundred nanoseconds, where the mapping takes some tens
//! (`./x bench l25gc fabric`).

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Neither shorter nor longer.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// The size seals, and no writes except through the mappings that exist.
const ALL_SEALS: SealFlags = SIZE_SEALS.union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// A file in memory whose size is fixed: no process that has it can take pages away under a mapping.
pub(crate) fn file_of_fixed_size(octets: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(c"whimbrel-area", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, octets as u64)?;
    fcntl_add_seals(&file, SIZE_SEALS)?;
    Ok(file)
}

/// From now on a file is written through the mappings that exist alone: a holder of its descriptor can neither write to it nor map it writable, also if it opens
/// the file again.
pub(crate) fn seal(file: impl AsFd) -> io::Result<()> {
    if fcntl_get_seals(&file)?.contains(ALL_SEALS) {
        return Ok(());
    }
    Ok(fcntl_add_seals(&file, ALL_SEALS)?)
}

/// Addresses for all words of a pool. An area that is not mapped reads as zeros; one may be written.
pub struct Mapping {
    start: NonNull<c_void>,
    /// Words that can be read: all, or none after a failure.
    words: usize,
    reserved: usize,
    writable: Range<usize>,
}

// SAFETY: the mapping belongs to this value alone and is valid in any thread; its words are accessed atomically only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Reserves addresses for `words` words, all of which are zero.
    ///
    /// Errors: those of mmap(2).
    pub(crate) fn reserve(words: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an address that nothing else has.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), 8 * words, ProtFlags::READ, flags)? };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, words, reserved: words, writable: 0..0 })
    }

    /// Maps the words of a file behind its first `skipped` ones to a range of words, in place of what is there. Both begin and end at pages.
    ///
    /// Errors: the file is not sealed, which is refused because another process could shorten it and end this one; it has another size; those of mmap(2).
    pub(crate) fn place(
        &mut self,
        file: impl AsFd,
        skipped: usize,
        at: Range<usize>,
        is_own: bool,
    ) -> io::Result<()> {
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if !fcntl_get_seals(&file)?.contains(SIZE_SEALS) {
            return invalid("the memory's size is not sealed");
        }
        if u64::try_from(fstat(&file)?.st_size).ok() != Some(8 * (skipped + at.len()) as u64)
            || at.end > self.words
        {
            return invalid("the memory has another size");
        }
        let may = if is_own { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the range is within the reservation, which belongs to this value; `&mut self`: no reference into it exists. The file's size is sealed.
        let placed = unsafe {
            let to = self.start.as_ptr().byte_add(8 * at.start);
            mmap(to, 8 * at.len(), may, MapFlags::SHARED | MapFlags::FIXED, &file, 8 * skipped as u64)
        };
        if let Err(e) = placed {
            self.clear(&at);
            return Err(e.into());
        }
        if is_own {
            self.writable = at;
        }
        Ok(())
    }

    /// Has a range of words read as zeros again, since the kernel may have left a hole there.
    fn clear(&mut self, at: &Range<usize>) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `place`.
        let cleared = unsafe {
            let to = self.start.as_ptr().byte_add(8 * at.start);
            mmap_anonymous(to, 8 * at.len(), ProtFlags::READ, flags)
        };
        if cleared.is_err() {
            (self.words, self.writable) = (0, 0..0);
        }
    }

    /// All words. Those outside of the writable range can only be loaded, and relaxed, which on every processor is a plain load.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words are mapped, begin at a page, and stay as long as `self` is borrowed; any content is a valid integer, and every process accesses it
        // atomically.
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
        // SAFETY: so much was reserved, and no reference into it outlives this value.
        let _ = unsafe { munmap(self.start.as_ptr(), 8 * self.reserved) };
    }
}
