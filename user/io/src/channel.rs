//! The way between UPF-C and the packet thread: values in order, bounded, without a lock, and without a system call unless the receiver
//! sleeps.
//!
//! A change is written once, and is the packet thread's from then on: both sides never see the same memory, so there is nothing to guard.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, mpsc};

use crate::sys::event::Event;

/// What both ends look at.
#[derive(Debug)]
struct ChannelGate {
    /// Values sent, or about to be, and not received.
    waiting: AtomicUsize,
    /// The receiver wants to be woken.
    asleep: AtomicBool,
    event: Event,
}

/// The sending end, of which there may be several.
#[derive(Debug)]
pub struct Sender<T> {
    values: mpsc::Sender<T>,
    gate: Arc<ChannelGate>,
    max: usize,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    values: mpsc::Receiver<T>,
    gate: Arc<ChannelGate>,
}

/// Both ends of a way on which at most `max` values wait. Errors: no descriptor is free.
pub fn channel<T>(max: usize) -> io::Result<(Sender<T>, Receiver<T>)> {
    let gate =
        ChannelGate { waiting: AtomicUsize::new(0), asleep: AtomicBool::new(false), event: Event::new()? };
    let (gate, (sender, values)) = (Arc::new(gate), mpsc::channel());
    Ok((Sender { values: sender, gate: Arc::clone(&gate), max }, Receiver { values, gate }))
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), gate: Arc::clone(&self.gate), max: self.max }
    }
}

impl<T> Sender<T> {
    /// Sends a value. Errors: gives it back if too many wait, or the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), T> {
        if self.gate.waiting.fetch_add(1, Ordering::SeqCst) >= self.max {
            self.gate.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(value);
        }
        self.values.send(value).map_err(|e| e.0)?;
        // Either the receiver, about to sleep, sees the count, or this sees that it sleeps.
        if self.gate.asleep.swap(false, Ordering::SeqCst) {
            self.gate.event.raise();
        }
        Ok(())
    }

    /// Wakes the receiver, if it sleeps, for what it was given otherwise: it has to look for that after [`Receiver::sleep`].
    pub fn rouse(&self) {
        // Either this sees that it sleeps, or what it was given is seen before it does.
        fence(Ordering::SeqCst);
        if self.gate.asleep.load(Ordering::Relaxed) && self.gate.asleep.swap(false, Ordering::SeqCst) {
            self.gate.event.raise();
        }
    }

    /// Wakes the receiver without a value.
    pub fn wake(&self) {
        self.gate.event.raise();
    }
}

impl<T> Receiver<T> {
    /// The values that have come, `most` of them.
    #[inline]
    pub fn take(&self, most: usize) -> impl Iterator<Item = T> {
        let there = self.gate.waiting.load(Ordering::Acquire).min(most);
        (0..there).map_while(|_| {
            let value = self.values.try_recv().ok()?;
            self.gate.waiting.fetch_sub(1, Ordering::SeqCst);
            Some(value)
        })
    }

    /// From now on whoever sends makes [`Self::as_fd`] readable, once; whether nothing is there yet.
    pub fn sleep(&self) -> bool {
        self.gate.event.lower();
        self.gate.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.gate.waiting.load(Ordering::SeqCst) == 0
    }

    /// The receiver looks by itself again.
    pub fn awake(&self) {
        self.gate.asleep.store(false, Ordering::SeqCst);
    }
}

impl<T> AsFd for Receiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.gate.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::poll;
    use std::time::Duration;

    #[test]
    fn values_come_in_order_and_those_beyond_the_bound_come_back() {
        let (sender, receiver) = channel(3).unwrap();
        assert_eq!(
            (0..5).map(|n| sender.send(n)).collect::<Vec<_>>(),
            [Ok(()), Ok(()), Ok(()), Err(3), Err(4)]
        );
        assert_eq!(receiver.take(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(sender.send(5), Ok(()));
        assert_eq!(receiver.take(9).collect::<Vec<_>>(), [2, 5]);
        drop(receiver);
        assert_eq!(sender.send(6), Err(6));
    }

    #[test]
    fn no_value_is_slept_over() {
        const VALUES: u32 = 20_000;
        let (sender, receiver) = channel(64).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..VALUES {
                    let mut value = n;
                    while let Err(back) = sender.send(value) {
                        value = back;
                        std::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < VALUES {
                for value in receiver.take(16) {
                    assert_eq!(value, next);
                    next += 1;
                }
                if next < VALUES && receiver.sleep() {
                    // A wake-up that is lost makes this test last for hours.
                    poll::readable(&[receiver.as_fd()], Duration::from_secs(10)).unwrap();
                }
                receiver.awake();
            }
        });
    }
}
