//! A timer that `poll` can wait for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A timer of the monotonic clock.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: plain values in, a descriptor or -1 out.
        super::owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }).map(Self)
    }

    /// It expires once, after this time; what it was set to before does not count. Zero: it does not expire.
    pub(crate) fn set(&self, after: Duration) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos().into() };
        let time = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: `time` lives through the call, and the former setting is not asked for. It does not fail for times that are in range.
        unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const time, std::ptr::null_mut()) };
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
