//! The regions' memory: mapped, read, written, paged out.
//!
//! Unsafe code is needed for the mappings themselves, for madvise(2) and mincore(2), and for a counter that
//! is stored beside octets of the caller in the same memory. Every method checks its range against the
//! region, and whatever is written or counted takes `&mut self`, so that no reference from
//! [`RegionMemory::octets`] can be alive: a wrong offset reads wrong octets but is not undefined behaviour.

use std::io;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::device::Device;
use crate::record::{HEADER_OCTETS, RecordHeader, UNIT_OCTETS};

/// Octets of a region: a large page of x86-64.
pub const REGION_OCTETS: usize = 2 << 20;

/// Where cold regions are paged out to.
#[derive(Clone, Debug, Default)]
pub enum Backing {
    /// Nowhere: all regions stay in fast memory.
    #[default]
    None,
    /// The kernel's swap: zram, zswap or a disk.
    Swap,
    /// A file of the heap's own, created at this path and deleted at once.
    File(PathBuf),
    /// A device that the caller provides.
    Device(Arc<dyn Device>),
}

/// The memory of the regions, each mapped or not.
#[derive(Default)]
pub(crate) struct RegionMemory(Vec<Option<NonNull<u8>>>);

// SAFETY: the mappings belong to this value alone, and are reached through `&self` and `&mut self` like a boxed slice.
unsafe impl Send for RegionMemory {}

impl RegionMemory {
    pub(crate) fn regions(&self) -> usize {
        self.0.len()
    }

    /// Adds an unmapped region.
    pub(crate) fn add(&mut self) {
        self.0.push(None);
    }

    pub(crate) fn is_mapped(&self, region: usize) -> bool {
        self.0[region].is_some()
    }

    /// Maps a region. It is zero.
    ///
    /// Errors: no address space or no memory.
    pub(crate) fn map(&mut self, region: usize) -> io::Result<()> {
        if self.0[region].is_none() {
            self.0[region] = Some(map_aligned()?);
        }
        Ok(())
    }

    /// Gives a region's memory back to the kernel.
    pub(crate) fn unmap(&mut self, region: usize) {
        if let Some(at) = self.0[region].take() {
            unmap(at, REGION_OCTETS);
        }
    }

    fn at(&self, region: usize, offset: usize, octets: usize) -> NonNull<u8> {
        let at = self.0[region].expect("the region is mapped");
        assert!(offset <= REGION_OCTETS && octets <= REGION_OCTETS - offset, "beyond the end of its region");
        // SAFETY: within the mapping, checked above.
        unsafe { at.add(offset) }
    }

    fn at_record(&self, region: usize, offset: usize) -> NonNull<u8> {
        assert!(offset.is_multiple_of(UNIT_OCTETS), "records begin at whole units");
        self.at(region, offset, UNIT_OCTETS)
    }

    pub(crate) fn header(&self, region: usize, offset: usize) -> RecordHeader {
        let at = self.at_record(region, offset);
        // SAFETY: eight octets that are mapped, aligned to sixteen; any octets are integers.
        unsafe { RecordHeader { len: at.add(2).cast().read(), owner: at.add(4).cast().read() } }
    }

    pub(crate) fn set_header(&mut self, region: usize, offset: usize, header: RecordHeader) {
        let at = self.at_record(region, offset);
        // SAFETY: as in `header`, and `&mut self` excludes readers.
        unsafe {
            at.add(2).cast().write(header.len);
            at.add(4).cast().write(header.owner);
        }
    }

    /// A record's access counter: a 16-bit atomic of its own, which is never read by a wider access.
    pub(crate) fn access_counter(&mut self, region: usize, offset: usize) -> &AtomicU16 {
        let at = self.at_record(region, offset);
        // SAFETY: two octets, mapped and aligned; `&mut self` excludes every other reference to them.
        unsafe { at.cast::<AtomicU16>().as_ref() }
    }

    /// Adds to a record's access counter, saturating.
    #[inline]
    pub(crate) fn add_accesses(&mut self, region: usize, offset: usize, by: u16) {
        let counter = self.access_counter(region, offset);
        let value = counter.load(Ordering::Relaxed);
        if value != u16::MAX {
            counter.store(value.saturating_add(by), Ordering::Relaxed);
        }
    }

    /// The caller's octets of a record.
    pub(crate) fn octets(&self, region: usize, offset: usize, len: usize) -> &[u8] {
        self.raw_octets(region, offset + HEADER_OCTETS, len)
    }

    /// Octets of a region, with headers and counters.
    pub(crate) fn raw_octets(&self, region: usize, offset: usize, len: usize) -> &[u8] {
        let at = self.at(region, offset, len);
        // SAFETY: `len` octets are mapped there, and there is no writer while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), len) }
    }

    pub(crate) fn set_octets(&mut self, region: usize, offset: usize, octets: &[u8]) {
        let at = self.at(region, offset + HEADER_OCTETS, octets.len());
        // SAFETY: as many octets are mapped there, `&mut self` excludes readers, and the caller's slice is not in our mapping.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(octets).cast(), octets.len()) };
    }

    /// Copies a record with its header and counter to another region.
    pub(crate) fn copy(&mut self, from: (usize, usize), to: (usize, usize), span: usize) {
        assert_ne!(from.0, to.0, "a record moves to another region");
        let (source, target) = (self.at(from.0, from.1, span), self.at(to.0, to.1, span));
        // SAFETY: both ranges are mapped, in different mappings; `&mut self` excludes readers.
        unsafe { target.copy_from_nonoverlapping(source, span) };
    }

    /// Pages out a part of a region into swap. What the kernel cannot page out stays where it is.
    pub(crate) fn page_out(&self, region: usize, offset: usize, octets: usize) {
        let at = self.at(region, offset, octets);
        // SAFETY: the range is ours, and MADV_PAGEOUT changes no octet of it.
        unsafe { libc::madvise(at.as_ptr().cast(), octets, libc::MADV_PAGEOUT) };
    }

    /// Pages of a region that are in fast memory, by mincore(2).
    pub(crate) fn resident_pages(&self, region: usize) -> usize {
        if !self.is_mapped(region) {
            return 0;
        }
        let mut pages = [0u8; REGION_OCTETS / 4096];
        let at = self.at(region, 0, REGION_OCTETS);
        // SAFETY: the range is mapped, and there is one octet for each of its pages of at least 4 KiB.
        let result = unsafe { libc::mincore(at.as_ptr().cast(), REGION_OCTETS, pages.as_mut_ptr()) };
        if result == 0 { pages.iter().filter(|page| *page & 1 == 1).count() } else { pages.len() }
    }
}

impl Drop for RegionMemory {
    fn drop(&mut self) {
        self.0.iter().flatten().for_each(|at| unmap(*at, REGION_OCTETS));
    }
}

/// Maps a region at a multiple of its size.
fn map_aligned() -> io::Result<NonNull<u8>> {
    let readable = libc::PROT_READ | libc::PROT_WRITE;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // Twice the size holds an aligned region; what is around it is given back.
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), 2 * REGION_OCTETS, readable, anonymous, -1, 0) };
    let mapped = if first == libc::MAP_FAILED { None } else { NonNull::new(first.cast::<u8>()) };
    let first = mapped.ok_or_else(io::Error::last_os_error)?;
    let before = first.as_ptr().align_offset(REGION_OCTETS);
    // SAFETY: an aligned region is within the two that are mapped.
    let at = unsafe { first.add(before) };
    unmap(first, before);
    // SAFETY: as above.
    unmap(unsafe { at.add(REGION_OCTETS) }, REGION_OCTETS - before);
    Ok(at)
}

fn unmap(at: NonNull<u8>, octets: usize) {
    if octets > 0 {
        // SAFETY: the callers name mappings of theirs to which there is no reference any longer.
        unsafe { libc::munmap(at.as_ptr().cast(), octets) };
    }
}
