//! An eventfd: one thread wakes another that may be in `poll`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A flag that `poll` can wait for.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain values in, a descriptor or -1 out.
        super::owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }).map(Self)
    }

    /// Wakes the thread that waits for it.
    pub(crate) fn raise(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is 8 readable octets. It fails only when the counter is full, and then it is raised anyway.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Clears the event for the next wait.
    pub(crate) fn lower(&self) {
        let mut count = [0u8; 8];
        // SAFETY: `count` is 8 writable octets. It fails only when it was not raised.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
