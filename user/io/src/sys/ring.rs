//! A ring by which one thread hands values to another, one writer and one reader: without a lock, a system call or an allocation.
//!
//! Values change places: putting one in returns an empty one of the ring's, and taking one out leaves an empty one there, so
//! buffers go round and are never copied. Own code because the library's queues take a value and give none back, so that one side
//! would run out of buffers; and safe code cannot have two threads write parts of one list.
//!
//! Invariant: `head` is written by the writer only and `tail` by the reader only, each with release order after what it did to the places
//! that it hands over, and read by the other with acquire order. Places from `tail` up to `head` are the reader's, the others the
//! writer's.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number on a cache line of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Index(AtomicUsize);

struct Ring<T> {
    places: Box<[UnsafeCell<T>]>,
    /// How many were put in.
    head: Index,
    /// How many were taken out.
    tail: Index,
}

// SAFETY: a place is touched by the thread whose it is, as the invariant says, and values go from one thread to the other.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    /// Changes a value for that at a place.
    ///
    /// # Safety
    /// The place is the caller's.
    unsafe fn change(&self, number: usize, value: &mut T) {
        let place = self.places[number & (self.places.len() - 1)].get();
        // SAFETY: no other code accesses the place, as the caller promises, and `value` is elsewhere: it is borrowed.
        unsafe { std::ptr::swap(place, value) };
    }
}

/// The writer's end.
pub(crate) struct Giver<T> {
    ring: Arc<Ring<T>>,
    /// Where the next value goes.
    own: usize,
    /// The reader's index as it was last seen.
    other: usize,
}

/// The reader's end.
pub(crate) struct Taker<T> {
    ring: Arc<Ring<T>>,
    own: usize,
    other: usize,
}

/// Both ends of a ring of so many places, a power of two, with empty values.
pub(crate) fn ring<T>(places: usize, empty: impl FnMut() -> T) -> (Giver<T>, Taker<T>) {
    assert!(places.is_power_of_two());
    let places = std::iter::repeat_with(empty).map(UnsafeCell::new).take(places).collect();
    let ring = Arc::new(Ring { places, head: Index::default(), tail: Index::default() });
    (Giver { ring: Arc::clone(&ring), own: 0, other: 0 }, Taker { ring, own: 0, other: 0 })
}

impl<T> Giver<T> {
    /// Puts a value in, which is an empty one afterwards; false, and nothing changed, where the ring is full. [`Self::publish`] shows it.
    pub(crate) fn put(&mut self, value: &mut T) -> bool {
        let places = self.ring.places.len();
        if self.own.wrapping_sub(self.other) == places {
            self.other = self.ring.tail.0.load(Ordering::Acquire);
            if self.own.wrapping_sub(self.other) == places {
                return false;
            }
        }
        // SAFETY: the reader has given this place back, and does not touch it before `head` is beyond it.
        unsafe { self.ring.change(self.own, value) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Shows the reader what was put in; whether that was anything.
    pub(crate) fn publish(&self) -> bool {
        let new = self.ring.head.0.load(Ordering::Relaxed) != self.own;
        if new {
            self.ring.head.0.store(self.own, Ordering::Release);
        }
        new
    }
}

impl<T> Taker<T> {
    /// Takes the next value, for which an empty one stays there; false, and nothing changed, where there is none. [`Self::release`]
    /// gives its place back.
    pub(crate) fn take(&mut self, empty: &mut T) -> bool {
        if self.own == self.other {
            self.other = self.ring.head.0.load(Ordering::Acquire);
            if self.own == self.other {
                return false;
            }
        }
        // SAFETY: the writer has shown this place, and does not touch it before `tail` is beyond it.
        unsafe { self.ring.change(self.own, empty) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Gives the places of what was taken back.
    pub(crate) fn release(&self) {
        if self.ring.tail.0.load(Ordering::Relaxed) != self.own {
            self.ring.tail.0.store(self.own, Ordering::Release);
        }
    }

    /// Whether nothing is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.head.0.load(Ordering::Acquire) == self.own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_takes_nothing_and_values_change_places() {
        let (mut giver, mut taker) = ring(2, || 0);
        let mut values = [1, 2, 3];
        assert_eq!(values.each_mut().map(|v| giver.put(v)), [true, true, false]);
        assert_eq!(values, [0, 0, 3], "empty ones came back");
        let mut into = 9;
        assert!(!taker.take(&mut into) && taker.is_empty(), "not shown yet");
        assert!(giver.publish() && !giver.publish());
        assert!(taker.take(&mut into) && !taker.is_empty());
        assert_eq!(into, 1);
        assert!(!giver.put(&mut values[2]), "its place was not given back");
        taker.release();
        assert!(giver.put(&mut values[2]));
        assert_eq!(values[2], 9, "what the reader left");
    }

    #[test]
    fn what_one_thread_puts_in_another_takes_out_whole_and_in_order() {
        const VALUES: usize = if cfg!(miri) { 300 } else { 300_000 };
        let (mut giver, mut taker) = ring(64, || vec![0; 2]);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut value = vec![0; 2];
                for n in 1..=VALUES {
                    value.fill(n);
                    while !giver.put(&mut value) {
                        giver.publish();
                        std::thread::yield_now();
                    }
                    if n % 7 == 0 {
                        giver.publish();
                    }
                    assert_eq!(value.len(), 2);
                }
                giver.publish();
            });
            let mut value = vec![0; 2];
            for n in 1..=VALUES {
                while !taker.take(&mut value) {
                    taker.release();
                    std::thread::yield_now();
                }
                assert_eq!(value, [n, n]);
            }
            taker.release();
        });
    }
}
