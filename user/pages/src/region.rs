//! Raw memory: mapped in large pages, or of the allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::PAGE_OCTETS;

/// Memory that is ours, all zero at first.
pub(crate) struct PageRegion {
    at: NonNull<u8>,
    layout: Layout,
    mapped: bool,
}

impl PageRegion {
    /// For so many of a type.
    pub(crate) fn of<T>(len: usize) -> Self {
        let Ok(layout) = Layout::array::<T>(len) else { panic!("more than the address space") };
        if layout.size() >= PAGE_OCTETS
            && layout.align() <= PAGE_OCTETS
            && let Some(at) = map(layout.size())
        {
            return Self { at, layout, mapped: true };
        }
        if layout.size() == 0 {
            return Self { at: NonNull::<T>::dangling().cast(), layout, mapped: false };
        }
        // SAFETY: the layout's size is not zero.
        let at = unsafe { alloc_zeroed(layout) };
        let Some(at) = NonNull::new(at) else { handle_alloc_error(layout) };
        Self { at, layout, mapped: false }
    }

    /// Where it begins.
    #[inline]
    pub(crate) fn first<T>(&self) -> NonNull<T> {
        self.at.cast()
    }
}

impl Drop for PageRegion {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: `map` mapped this number of octets there, and no reference into them is left.
            unsafe { libc::munmap(self.at.as_ptr().cast(), whole_pages(self.layout.size())) };
        } else if self.layout.size() != 0 {
            // SAFETY: `alloc_zeroed` gave it for this layout.
            unsafe { dealloc(self.at.as_ptr(), self.layout) };
        }
    }
}

fn whole_pages(octets: usize) -> usize {
    octets.next_multiple_of(PAGE_OCTETS)
}

/// Maps whole large pages: those that the host has set aside, else some that the kernel is asked to make large. `None`: no memory.
fn map(octets: usize) -> Option<NonNull<u8>> {
    let octets = whole_pages(octets);
    map_anonymous(octets, libc::MAP_HUGETLB).or_else(|| {
        // More than needed, for what is needed begins at a multiple of a large page.
        let first = map_anonymous(octets + PAGE_OCTETS, 0)?;
        let before = first.as_ptr().align_offset(PAGE_OCTETS);
        // SAFETY: `before` is less than a large page, and there is one more than `octets`.
        let at = unsafe { first.add(before) };
        unmap(first, before);
        // SAFETY: the end of what is kept is within what was mapped.
        unmap(unsafe { at.add(octets) }, PAGE_OCTETS - before);
        // SAFETY: the range is mapped and ours; advice changes no octet of it, and refused it is the same memory in small pages.
        unsafe { libc::madvise(at.as_ptr().cast(), octets, libc::MADV_HUGEPAGE) };
        Some(at)
    })
}

fn map_anonymous(octets: usize, flags: libc::c_int) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), octets, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    (at != libc::MAP_FAILED).then(|| NonNull::new(at.cast()))?
}

/// Gives a part of a fresh mapping back.
fn unmap(at: NonNull<u8>, octets: usize) {
    if octets > 0 {
        // SAFETY: the callers name parts of what they have just mapped, to which there is no reference.
        unsafe { libc::munmap(at.as_ptr().cast(), octets) };
    }
}
