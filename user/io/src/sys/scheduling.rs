//! Which processor the calling thread runs on, and when: what measurements beside another thread need.

use std::io;

/// It runs on this processor alone, as do threads that it starts.
pub(crate) fn run_on(processor: usize) -> io::Result<()> {
    // SAFETY: a set of processors is a plain array of bits, for which zeros are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if processor >= 8 * size_of_val(&set) {
        return Err(io::Error::other("no such processor"));
    }
    // SAFETY: the number was checked to be within the set.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: zero is the calling thread, and `set` is as long as the length and lives through the call.
    super::check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) }).map(drop)
}

/// When the calling thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Only when nothing else wants its processor (`SCHED_IDLE`).
    Idle,
    /// The same priority as other threads.
    Usual,
    /// Before all others of less priority (`SCHED_FIFO`, 1 to 99).
    RealTime(u8),
}

/// It runs when this priority says, as do threads that it starts.
pub(crate) fn run_at(priority: Priority) -> io::Result<()> {
    let (policy, value) = match priority {
        Priority::Idle => (libc::SCHED_IDLE, 0),
        Priority::Usual => (libc::SCHED_OTHER, 0),
        Priority::RealTime(value) => (libc::SCHED_FIFO, value),
    };
    let parameter = libc::sched_param { sched_priority: value.into() };
    // SAFETY: zero is the calling thread, and `parameter` lives through the call.
    super::check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) }).map(drop)
}
