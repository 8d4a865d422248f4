//! System calls with a safe face. Everything `unsafe` of this crate is here: the standard library has neither batched
//! datagrams, nor TUN devices, nor netlink, nor AF_XDP's rings, nor a poll over several descriptors.

pub(crate) mod bpf;
pub(crate) mod datagrams;
pub(crate) mod ethtool;
pub(crate) mod event;
pub(crate) mod inotify;
mod mapping;
pub(crate) mod netlink;
pub(crate) mod poll;
pub(crate) mod ring;
#[cfg(feature = "measure")]
pub(crate) mod scheduling;
pub(crate) mod shared_file;
mod shared_words;
#[cfg(feature = "measure")]
pub(crate) mod timer;
pub(crate) mod truncation;
pub(crate) mod tun;
pub(crate) mod words;
pub(crate) mod xsk;

use std::ffi::CStr;
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

/// A new file of memory. Errors: those of memfd_create(2).
pub(crate) fn memory_file(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name lives through the call, which makes a new descriptor.
    owned(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })
}

/// This thread's number in the system.
pub(crate) fn thread_number() -> u32 {
    // SAFETY: gettid(2) takes nothing and does not fail.
    unsafe { libc::gettid() }.unsigned_abs()
}

/// Gives this thread the lowest priority of those that run before all ordinary ones (SCHED_FIFO). Errors: those of sched_setscheduler(2).
pub(crate) fn run_in_real_time() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters live through the call; zero is this thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) }).map(drop)
}

/// The kernel's monotonic clock, in microseconds: that of `std`, which keeps the number to itself, and of BPF programs.
pub(crate) fn monotonic_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the struct, which lives through the call; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
