//! Buffers: each its own, or cut from memory in large pages that they share.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::Pages;

/// A fixed number of octets with one owner.
pub struct PageOctets {
    at: NonNull<u8>,
    len: usize,
    /// What they were cut from; `None`: a box of their own.
    of: Option<Arc<Pages<u8>>>,
}

// SAFETY: the octets are this value's alone, as those of a box are: pieces of one memory do not overlap, and no code reads the whole.
unsafe impl Send for PageOctets {}
// SAFETY: as above; shared, it gives out shared references alone.
unsafe impl Sync for PageOctets {}

impl PageOctets {
    /// So many, all zero.
    pub fn new(len: usize) -> Self {
        Self::from(vec![0; len].into_boxed_slice())
    }

    /// `count` times so many, all zero, next to each other in large pages. The memory goes when the last of them does.
    pub fn many(count: usize, len: usize) -> impl Iterator<Item = Self> {
        let all = Pages::<u8>::new(count.saturating_mul(len));
        let first = all.first();
        let all = Arc::new(all);
        (0..count).map(move |n| {
            // SAFETY: `count` pieces of `len` octets fill the memory, which `of` keeps; the n-th is given out once.
            Self { at: unsafe { first.add(n * len) }, len, of: Some(Arc::clone(&all)) }
        })
    }
}

impl From<Box<[u8]>> for PageOctets {
    fn from(octets: Box<[u8]>) -> Self {
        let len = octets.len();
        Self { at: NonNull::from(Box::leak(octets)).cast(), len, of: None }
    }
}

impl Clone for PageOctets {
    /// A box of their own with the same octets.
    fn clone(&self) -> Self {
        Self::from(Box::from(&**self))
    }
}

impl fmt::Debug for PageOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Deref for PageOctets {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `at` leads to `len` octets, which live as long as this value, and are its own.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for PageOctets {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` excludes other readers.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for PageOctets {
    fn drop(&mut self) {
        if self.of.is_none() {
            let whole = NonNull::slice_from_raw_parts(self.at, self.len);
            // SAFETY: `from` leaked a box of just these octets, and this is its end.
            drop(unsafe { Box::from_raw(whole.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_outlive_each_other() {
        let mut pieces: Vec<_> = PageOctets::many(3000, 1000).collect();
        for (n, piece) in pieces.iter_mut().enumerate() {
            assert!(piece.iter().all(|o| *o == 0));
            piece.fill(n as u8);
        }
        let kept = pieces.swap_remove(1234);
        assert!(pieces.iter().enumerate().all(|(n, p)| n == 1234 || p.iter().all(|o| *o == n as u8)));
        drop(pieces);
        assert_eq!(*kept, [210; 1000]);
        assert_eq!(*kept.clone(), *kept);
    }

    #[test]
    fn no_octets_are_octets_too() {
        assert!(PageOctets::new(0).is_empty());
        assert!(PageOctets::many(2, 0).all(|o| o.is_empty()));
        assert_eq!(PageOctets::many(0, 9).count(), 0);
    }
}
