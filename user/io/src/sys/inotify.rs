//! An inotify instance with one file: it becomes readable when the file's content or time was set.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::check;

pub(crate) struct Inotify(OwnedFd);

impl Inotify {
    /// Watches a file from now on. Errors: those of inotify_init1(2) and inotify_add_watch(2).
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: plain values in, a descriptor or -1 out.
        let it = super::owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: the path ends with a zero and lives through the call.
        check(unsafe {
            libc::inotify_add_watch(it.as_raw_fd(), path.as_ptr(), libc::IN_MODIFY | libc::IN_ATTRIB)
        })?;
        Ok(Self(it))
    }

    /// Takes all events that are there.
    pub(crate) fn drain(&self) {
        let mut events = [0u8; 1024];
        // SAFETY: `events` is as many writable octets as given.
        while unsafe { libc::read(self.0.as_raw_fd(), events.as_mut_ptr().cast(), events.len()) } > 0 {}
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
