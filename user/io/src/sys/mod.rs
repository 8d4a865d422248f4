//! System calls with a safe face. Everything `unsafe` of this crate is here: the standard library has neither batched
//! datagrams, nor TUN devices, nor netlink, nor AF_XDP's rings, nor a poll over several descriptors.

pub(crate) mod bpf;
pub(crate) mod datagrams;
pub(crate) mod event;
pub(crate) mod netlink;
pub(crate) mod poll;
pub(crate) mod tun;
pub(crate) mod xsk;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The result of a system call that returns -1 for an error.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The descriptor that a system call has just made.
fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: `fd` was returned by a call that makes a new descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
