//! Bounded queues for what is not in every burst's way: copies of packets, and packets in memory. Each has a descriptor to wait for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::sys::event::Event;

/// A bounded queue. The receiver looks at a flag, and takes the lock only if something is there.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    filled: AtomicBool,
    event: Event,
    max: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(max: usize) -> io::Result<Self> {
        Ok(Self { items: Mutex::default(), filled: AtomicBool::new(false), event: Event::new()?, max })
    }

    /// Appends; gives the item back if the queue is full.
    #[cfg(feature = "measure")]
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        if items.len() >= self.max {
            return Err(item);
        }
        items.push_back(item);
        if !self.filled.swap(true, Ordering::AcqRel) {
            self.event.raise();
        }
        Ok(())
    }

    /// Appends all, in order, and wakes the receiver once; what does not fit stays.
    pub(crate) fn extend(&self, from: &mut Vec<T>) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let n = from.len().min(self.max.saturating_sub(items.len()));
        items.extend(from.drain(..n));
        if n > 0 && !self.filled.swap(true, Ordering::AcqRel) {
            self.event.raise();
        }
    }

    /// Takes all that is queued.
    pub(crate) fn take(&self) -> VecDeque<T> {
        if !self.filled.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        self.filled.store(false, Ordering::Release);
        self.event.lower();
        std::mem::take(&mut *items)
    }
}

impl<T> AsFd for Queue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
