//! The regions' memory: mapped, read, written, paged out.
//!
//! Unsafe code is needed for the mappings themselves, for madvise(2) and mincore(2), and for a counter that is stored beside octets
//! of the caller in the same memory. Every method checks its range against the region, and whatever is written or counted takes `&mut
//! self`, so that no reference given out by [`Memory::octets`] lives meanwhile: a wrong place reads wrong octets, and is never
//! undefined behaviour.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::record::{HEADER_OCTETS, Header, UNIT_OCTETS};

/// Octets of a region: a large page of x86-64.
pub const REGION_OCTETS: usize = 2 << 20;

/// Octets that are paged out in one step: at 20 µs a page to the slowest device that is of use, about a millisecond.
pub(crate) const PAGE_OUT_OCTETS: usize = 256 << 10;

/// Where cold regions go.
#[derive(Clone, Debug, Default)]
pub enum Backing {
    /// Nowhere: all regions stay in fast memory.
    #[default]
    None,
    /// The kernel's swap: zram, zswap or a disk.
    Swap,
    /// A file of the heap's own, created at this path and deleted at once.
    File(PathBuf),
}

pub(crate) struct Memory {
    regions: Vec<Region>,
    file: Option<File>,
    pages_out: bool,
}

struct Region {
    at: NonNull<u8>,
    in_file: bool,
}

// SAFETY: the mappings belong to this value alone, and are reached through `&self` and `&mut self` like a boxed slice.
unsafe impl Send for Memory {}

impl Memory {
    /// Errors: the backing file cannot be created.
    pub(crate) fn new(backing: &Backing) -> io::Result<Self> {
        let file = match backing {
            Backing::None | Backing::Swap => None,
            Backing::File(path) => {
                // Records may hold secrets: other users may not read the file while it has a name.
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
                std::fs::remove_file(path)?;
                Some(file)
            }
        };
        Ok(Self { regions: Vec::new(), file, pages_out: !matches!(backing, Backing::None) })
    }

    pub(crate) fn regions(&self) -> usize {
        self.regions.len()
    }

    pub(crate) fn pages_out(&self, region: usize) -> bool {
        self.pages_out && (self.file.is_none() || self.regions[region].in_file)
    }

    /// Whether a region's changed pages have to be written to its file before they can be paged out.
    pub(crate) fn writes_first(&self, region: usize) -> bool {
        self.regions[region].in_file
    }

    /// Maps one more region. Where the file cannot grow, the region has no backing and stays in fast memory.
    ///
    /// Errors: no address space or no memory.
    pub(crate) fn grow(&mut self) -> io::Result<()> {
        let offset = (self.regions.len() * REGION_OCTETS) as libc::off_t;
        let descriptor = self.file.as_ref().map(AsRawFd::as_raw_fd).filter(|descriptor| {
            // Blocks are reserved now: writing to a page of a file that a full disk cannot hold would be SIGBUS.
            // SAFETY: the descriptor is open as long as `self.file`.
            unsafe { libc::posix_fallocate(*descriptor, offset, REGION_OCTETS as libc::off_t) == 0 }
        });
        let at = map_aligned(descriptor.map(|descriptor| (descriptor, offset)))?;
        self.regions.push(Region { at, in_file: descriptor.is_some() });
        Ok(())
    }

    fn at(&self, region: usize, offset: usize, octets: usize) -> NonNull<u8> {
        let region = &self.regions[region];
        assert!(offset <= REGION_OCTETS && octets <= REGION_OCTETS - offset, "outside of its region");
        // SAFETY: within the mapping, checked above.
        unsafe { region.at.add(offset) }
    }

    fn at_record(&self, region: usize, offset: usize) -> NonNull<u8> {
        assert!(offset.is_multiple_of(UNIT_OCTETS), "records begin at whole units");
        self.at(region, offset, UNIT_OCTETS)
    }

    pub(crate) fn header(&self, region: usize, offset: usize) -> Header {
        let at = self.at_record(region, offset);
        // SAFETY: eight octets that are mapped, aligned to sixteen; any octets are integers.
        unsafe { Header { len: at.add(2).cast().read(), owner: at.add(4).cast().read() } }
    }

    pub(crate) fn set_header(&mut self, region: usize, offset: usize, header: Header) {
        let at = self.at_record(region, offset);
        // SAFETY: as in `header`, and `&mut self` excludes readers.
        unsafe {
            at.add(2).cast().write(header.len);
            at.add(4).cast().write(header.owner);
        }
    }

    /// A record's counter: a 16-bit atomic of its own, which is never read by a wider access.
    pub(crate) fn counter(&mut self, region: usize, offset: usize) -> &AtomicU16 {
        let at = self.at_record(region, offset);
        // SAFETY: two octets, mapped and aligned; `&mut self` excludes every other reference to them.
        unsafe { at.cast::<AtomicU16>().as_ref() }
    }

    /// Adds one, up to the counter's end.
    #[inline]
    pub(crate) fn count(&mut self, region: usize, offset: usize) {
        let counter = self.counter(region, offset);
        let value = counter.load(Ordering::Relaxed);
        if value != u16::MAX {
            counter.store(value + 1, Ordering::Relaxed);
        }
    }

    /// The caller's octets of a record.
    pub(crate) fn octets(&self, region: usize, offset: usize, len: usize) -> &[u8] {
        let at = self.at(region, offset + HEADER_OCTETS, len);
        // SAFETY: `len` octets are mapped there, and there is no writer while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), len) }
    }

    pub(crate) fn set_octets(&mut self, region: usize, offset: usize, octets: &[u8]) {
        let at = self.at(region, offset + HEADER_OCTETS, octets.len());
        // SAFETY: as many octets are mapped there, `&mut self` excludes readers, and the caller's slice is not in our mapping.
        unsafe { at.copy_from_nonoverlapping(NonNull::from(octets).cast(), octets.len()) };
    }

    /// Copies a record, header included, to another region.
    pub(crate) fn copy(&mut self, from: (usize, usize), to: (usize, usize), span: usize) {
        assert_ne!(from.0, to.0, "records move between regions");
        let source = self.at(from.0, from.1, span);
        let target = self.at(to.0, to.1, span);
        // SAFETY: both ranges are mapped, in different mappings; `&mut self` excludes readers.
        unsafe { target.copy_from_nonoverlapping(source, span) };
    }

    /// Begins to write a region's changed pages to its file. Does not wait; does nothing for swap, which is written when paged out. On
    /// overlayfs sync_file_range(2) has no effect, and the kernel writes the pages after half a minute of its own accord.
    pub(crate) fn begin_writing(&self, region: usize) {
        let (Some(file), true) = (&self.file, self.regions[region].in_file) else { return };
        let offset = (region * REGION_OCTETS) as libc::off64_t;
        let at = self.regions[region].at;
        // Shared pages are known to the file as changed only once the mapping has been looked at: MS_ASYNC costs nothing else.
        // SAFETY: the range is one mapping of ours, and neither call changes its octets.
        unsafe {
            libc::msync(at.as_ptr().cast(), REGION_OCTETS, libc::MS_ASYNC);
            let length = REGION_OCTETS as libc::off64_t;
            libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE);
        }
    }

    /// Pages out a part of a region. What the kernel cannot page out stays where it is.
    pub(crate) fn page_out(&self, region: usize, offset: usize, octets: usize) {
        let at = self.at(region, offset, octets);
        // SAFETY: the range is ours, and MADV_PAGEOUT changes no octet of it.
        unsafe { libc::madvise(at.as_ptr().cast(), octets, libc::MADV_PAGEOUT) };
    }

    /// Forgets a region's octets without reading them: it is zero, and in no tier, until it is written.
    pub(crate) fn discard(&mut self, region: usize) {
        let advice = if self.regions[region].in_file { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        let at = self.at(region, 0, REGION_OCTETS);
        // SAFETY: the range is one mapping of ours, and `&mut self` excludes readers of its octets.
        let result = unsafe { libc::madvise(at.as_ptr().cast(), REGION_OCTETS, advice) };
        if result == 0 && self.regions[region].in_file {
            let offset = (region * REGION_OCTETS) as libc::off_t;
            let descriptor = self.file.as_ref().map(AsRawFd::as_raw_fd);
            // The hole that MADV_REMOVE made is filled with blocks again, for the reason given in `grow`. Without them the region is not
            // written to a full disk: it is mapped again without backing.
            // SAFETY: the descriptor is open as long as `self.file`.
            let reserved = descriptor.is_some_and(|descriptor| unsafe {
                libc::posix_fallocate(descriptor, offset, REGION_OCTETS as libc::off_t) == 0
            });
            if !reserved && let Ok(at) = map_aligned(None) {
                unmap(self.regions[region].at, REGION_OCTETS);
                self.regions[region] = Region { at, in_file: false };
            }
        }
    }

    /// Pages of a region that are in fast memory, by mincore(2).
    pub(crate) fn resident_pages(&self, region: usize) -> usize {
        let mut pages = [0u8; REGION_OCTETS / 4096];
        let at = self.at(region, 0, REGION_OCTETS);
        // SAFETY: the range is mapped, and there is one octet for each of its pages of at least 4 KiB.
        let result = unsafe { libc::mincore(at.as_ptr().cast(), REGION_OCTETS, pages.as_mut_ptr()) };
        if result == 0 { pages.iter().filter(|page| *page & 1 == 1).count() } else { pages.len() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.regions.iter().for_each(|region| unmap(region.at, REGION_OCTETS));
    }
}

/// Maps a region at a multiple of its size, anonymous or of a file at an offset.
fn map_aligned(file: Option<(libc::c_int, libc::off_t)>) -> io::Result<NonNull<u8>> {
    let readable = libc::PROT_READ | libc::PROT_WRITE;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // Twice the size holds an aligned region; what is around it is given back.
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), 2 * REGION_OCTETS, readable, anonymous, -1, 0) };
    let first = not_failed(first)?;
    let before = first.as_ptr().align_offset(REGION_OCTETS);
    // SAFETY: an aligned region is within the two that are mapped.
    let at = unsafe { first.add(before) };
    unmap(first, before);
    // SAFETY: as above.
    unmap(unsafe { at.add(REGION_OCTETS) }, REGION_OCTETS - before);
    let Some((descriptor, offset)) = file else { return Ok(at) };
    let shared = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: MAP_FIXED replaces the anonymous mapping made above, to which there is no reference yet.
    let over = unsafe { libc::mmap(at.as_ptr().cast(), REGION_OCTETS, readable, shared, descriptor, offset) };
    not_failed(over).inspect_err(|_| unmap(at, REGION_OCTETS))
}

fn not_failed(at: *mut libc::c_void) -> io::Result<NonNull<u8>> {
    let mapped = if at == libc::MAP_FAILED { None } else { NonNull::new(at.cast()) };
    mapped.ok_or_else(io::Error::last_os_error)
}

fn unmap(at: NonNull<u8>, octets: usize) {
    if octets > 0 {
        // SAFETY: the callers name mappings of theirs to which there is no reference any longer.
        unsafe { libc::munmap(at.as_ptr().cast(), octets) };
    }
}
