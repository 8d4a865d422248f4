//! Waiting for several descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Waits until one of the descriptors can be read, or the time is over.
pub(crate) fn readable(fds: &[BorrowedFd<'_>], within: Duration) -> io::Result<()> {
    which_are_readable(fds, within).map(drop)
}

/// Waits until one of the descriptors can be read, however long that takes.
pub(crate) fn until_readable(fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    wait(fds, None).map(drop)
}

/// Waits until one of the descriptors can be read, or the time is over; which of them can be read then.
pub(crate) fn which_are_readable(fds: &[BorrowedFd<'_>], within: Duration) -> io::Result<Vec<bool>> {
    wait(fds, Some(within))
}

fn wait(fds: &[BorrowedFd<'_>], within: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|f| libc::pollfd { fd: f.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    let timeout = within.map(|within| libc::timespec {
        tv_sec: within.as_secs() as _,
        tv_nsec: within.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `polled` is an array of as many entries as given, `timeout` is none or lives through the call, no mask is given.
    let result =
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout, std::ptr::null()) };
    match super::check(result) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        Err(_) => Ok(vec![false; polled.len()]),
        Ok(_) => Ok(polled.iter().map(|p| p.revents & libc::POLLIN != 0).collect()),
    }
}
