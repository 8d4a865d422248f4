//! Memory in pages of 2 MiB, for tables that packets go all over.
//!
//! With millions of sessions nearly every packet asks for a page that the processor has no translation of: in pages of 4 KiB even the
//! tables of translations do not fit into the caches. `./x bench upf throughput` shows the difference. The crate is apart so that the packet
//! pipeline itself has no unsafe code.
//!
//! Pages come from what the host has set aside (`vm.nr_hugepages`), else from the kernel's transparent ones, else they are small ones
//! and nothing but the speed is another.

mod octets;
mod region;

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

pub use octets::PageOctets;
use region::PageRegion;

/// Octets of a large page on x86-64, and on AArch64 with small pages of 4 KiB.
pub const PAGE_OCTETS: usize = 2 << 20;

/// A list of fixed length that never moves: in large pages, if it fills at least one.
pub struct Pages<T> {
    region: PageRegion,
    len: usize,
    of: std::marker::PhantomData<T>,
}

// SAFETY: it owns its elements as a boxed slice does; no other code has a pointer to them.
unsafe impl<T: Send> Send for Pages<T> {}
// SAFETY: as above; shared, it gives out shared references alone.
unsafe impl<T: Sync> Sync for Pages<T> {}

impl<T: Default> Pages<T> {
    /// So many, each as it is by default. There is no way on without memory: the process ends, as it does when a `Vec` finds none.
    pub fn new(len: usize) -> Self {
        let region = PageRegion::of::<T>(len);
        // Of an element whose default panics, those before it are not dropped: leaked, never used.
        for n in 0..len {
            // SAFETY: the region has room for `len` elements of `T`, aligned for it, and is not shared yet.
            unsafe { region.first::<T>().add(n).write(T::default()) };
        }
        Self { region, len, of: std::marker::PhantomData }
    }
}

/// A cache line that is all zero until it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

impl Pages<Line> {
    /// So many, which take memory only when they are first touched.
    pub fn lines(len: usize) -> Self {
        // All zero is a line, and that is what the region is.
        Self { region: PageRegion::of::<Line>(len), len, of: std::marker::PhantomData }
    }
}

impl<T> Pages<T> {
    fn first(&self) -> NonNull<T> {
        self.region.first()
    }
}

impl<T> Deref for Pages<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` has written all `len` elements, or they are lines, and they live as long as the region, which is ours.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Pages<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `&mut self` excludes other readers.
        unsafe { slice::from_raw_parts_mut(self.first().as_ptr(), self.len) }
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: all are elements, as in `deref`, and no code uses them after this; the region itself goes when its field
        // does.
        unsafe { std::ptr::drop_in_place::<[T]>(&mut **self) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn what_is_written_stays_and_all_of_it_is_dropped() {
        let one = Rc::new(());
        for len in [0, 1, 1000, 300_000] {
            let mut list = Pages::<Option<Rc<()>>>::new(len);
            assert_eq!(list.len(), len);
            assert!(list.iter().all(Option::is_none));
            list.iter_mut().for_each(|e| *e = Some(Rc::clone(&one)));
            assert_eq!(Rc::strong_count(&one), len + 1);
            drop(list);
            assert_eq!(Rc::strong_count(&one), 1);
        }
    }

    #[test]
    fn a_long_list_begins_at_a_large_page_and_any_list_where_its_elements_may() {
        #[repr(align(128))]
        #[derive(Default)]
        struct Aligned(u8);
        let large = Pages::<Aligned>::new(PAGE_OCTETS / 128);
        assert!((large.as_ptr() as usize).is_multiple_of(PAGE_OCTETS));
        let small = Pages::<Aligned>::new(3);
        assert!((small.as_ptr() as usize).is_multiple_of(128));
        assert_eq!(large[7].0 + small[2].0, 0);
    }

    #[test]
    fn lines_are_zero_until_they_are_written() {
        for len in [3, PAGE_OCTETS / 64] {
            let mut lines = Pages::lines(len);
            assert!(lines.iter().all(|l| *l == Line::default()));
            lines[len - 1] = Line([7; 8]);
            assert_eq!((lines[len - 2], lines[len - 1]), (Line::default(), Line([7; 8])));
        }
    }
}
