//! Waiting for several descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of the descriptors can be read, or the time is over.
pub(crate) fn readable(fds: &[BorrowedFd<'_>], within: Duration) -> io::Result<()> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|f| libc::pollfd { fd: f.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let timeout = libc::timespec { tv_sec: within.as_secs() as _, tv_nsec: within.subsec_nanos().into() };
    // SAFETY: `polled` is an array of as many entries as given, `timeout` lives through the call, no mask is given.
    let result =
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &timeout, std::ptr::null()) };
    match super::check(result) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(()),
    }
}
