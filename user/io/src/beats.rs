//! Signs of life of the packet threads, in memory that another process reads: a process that watches a UPF of this host sees within milliseconds that one of
//! its threads hangs, and a thread that sleeps has nothing to do for it.
//!
//! Each thread has a line of its own. It counts its turns, and says before it sleeps that it does. A thread that is awake and makes no turn hangs, or gets no
//! processor; one that sleeps although there is something to receive hangs likewise. Which of the two it is, the kernel says ([`ThreadState`]).

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use whimbrel_user::SHARDS_MAX;

use crate::sys::words::Words;

/// Words of a thread: a cache line.
const LINE: usize = 8;
/// Words of a thread's line: its number in the system, its turns, and whether it sleeps.
const THREAD: usize = 0;
const TURNS: usize = 1;
const SLEEPS: usize = 2;
/// The lines of all threads, behind the one that has the process.
const LINES: usize = 1 + SHARDS_MAX as usize;

/// The signs of life of a UPF's packet threads.
pub struct Beats {
    words: Words,
    memory: OwnedFd,
}

/// What a thread has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The thread's number in the system.
    pub thread: u32,
    /// Its turns since it began.
    pub turns: u64,
    /// It waits for packets.
    pub sleeps: bool,
}

impl Beats {
    /// Memory for them, which is to be given to the UPF and to the process that watches it. Errors: those of memfd_create(2) and mmap(2).
    pub fn create() -> io::Result<Self> {
        Self::of(Words::memory(c"whimbrel-beats", LINES * LINE)?)
    }

    /// The memory that another process has created. Errors: those of mmap(2), and `InvalidData` if it is no such memory.
    pub fn of(memory: OwnedFd) -> io::Result<Self> {
        Ok(Self { words: Words::map(memory.as_fd(), LINES * LINE)?, memory })
    }

    /// This process has the packet threads from now on.
    pub(crate) fn begin(&self) {
        (0..LINES * LINE).for_each(|at| self.words.at(at).store(0, Ordering::Relaxed));
        self.words.at(0).store(std::process::id().into(), Ordering::Release);
    }

    fn word(&self, thread: usize, of: usize) -> &AtomicU64 {
        self.words.at((1 + thread) * LINE + of)
    }

    /// A thread has made a turn.
    pub(crate) fn turn(&self, thread: usize) {
        let turns = self.word(thread, TURNS);
        // No other thread writes it.
        turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A thread begins to wait for packets, or has ended that.
    pub(crate) fn sleeps(&self, thread: usize, sleeps: bool) {
        if self.word(thread, THREAD).load(Ordering::Relaxed) == 0 {
            self.word(thread, THREAD).store(crate::sys::thread_number().into(), Ordering::Relaxed);
        }
        self.word(thread, SLEEPS).store(sleeps.into(), Ordering::Release);
    }

    /// The process that has the packet threads; `None` before there was one.
    pub fn process(&self) -> Option<u32> {
        u32::try_from(self.words.at(0).load(Ordering::Acquire)).ok().filter(|pid| *pid != 0)
    }

    /// What the packet threads have shown, in their order; a thread that has not slept yet has not begun.
    pub fn read(&self) -> impl Iterator<Item = (usize, Beat)> {
        (0..usize::from(SHARDS_MAX)).filter_map(|n| {
            let sleeps = self.word(n, SLEEPS).load(Ordering::Acquire) != 0;
            let thread = u32::try_from(self.word(n, THREAD).load(Ordering::Relaxed)).ok()?;
            let turns = self.word(n, TURNS).load(Ordering::Relaxed);
            (thread != 0).then_some((n, Beat { thread, turns, sleeps }))
        })
    }
}

impl AsFd for Beats {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// It is stopped (SIGSTOP).
    Stopped,
    /// It waits for something.
    Waits,
    /// It waits for a disk, or for memory that is on one.
    WaitsForDisk,
    /// It runs, or could if it had a processor; and for how long it has had one.
    Runs(Duration),
    /// It has ended, or is traced by a debugger.
    Other,
}

impl ThreadState {
    /// Of a thread of another process.
    pub fn of(process: u32, thread: u32) -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{file}"));
        let Ok(stat) = read("stat") else { return Self::Other };
        // Behind the name, which may hold anything (proc(5)).
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        match state {
            Some('T') => Self::Stopped,
            Some('S') => Self::Waits,
            Some('D') => Self::WaitsForDisk,
            Some('R') => {
                let spent = read("schedstat").ok().and_then(|s| s.split_whitespace().next()?.parse().ok());
                spent.map_or(Self::Other, |ns| Self::Runs(Duration::from_nanos(ns)))
            }
            _ => Self::Other,
        }
    }
}

/// Which of the descriptors can be read now. Errors: those of poll(2).
pub fn readable(descriptors: &[OwnedFd]) -> io::Result<Vec<bool>> {
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    crate::sys::poll::which_are_readable(&all, Duration::ZERO)
}

/// Has this thread run before all others that are ready (SCHED_FIFO), so that a loaded host does not delay its looks; false if that is not permitted.
pub fn run_in_real_time() -> bool {
    crate::sys::run_in_real_time().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_sees_which_threads_turn_and_which_sleep() {
        let own = Beats::create().unwrap();
        let other = Beats::of(own.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!((other.process(), other.read().count()), (None, 0));
        own.begin();
        assert_eq!(other.process(), Some(std::process::id()));
        own.sleeps(1, true);
        own.turn(1);
        own.turn(1);
        let thread = crate::sys::thread_number();
        assert_eq!(other.read().collect::<Vec<_>>(), [(1, Beat { thread, turns: 2, sleeps: true })]);
        own.sleeps(1, false);
        assert!(other.read().all(|(_, beat)| !beat.sleeps));
        own.begin();
        assert_eq!(other.read().count(), 0, "a successor has threads of its own");
    }

    #[test]
    fn the_kernel_distinguishes_a_thread_that_runs_from_one_that_waits() {
        let process = std::process::id();
        assert!(matches!(ThreadState::of(process, crate::sys::thread_number()), ThreadState::Runs(_)));
        let (say, said) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || {
            say.send(crate::sys::thread_number()).unwrap();
            ended.recv().ok();
        });
        let thread = said.recv().unwrap();
        // It comes to its wait sooner or later.
        while ThreadState::of(process, thread) != ThreadState::Waits {
            std::thread::yield_now();
        }
        drop(end);
        waits.join().unwrap();
        assert_eq!(ThreadState::of(process, u32::MAX), ThreadState::Other);
    }

    #[test]
    fn memory_that_is_too_short_is_refused() {
        let short = Words::memory(c"short", LINE).unwrap();
        assert_eq!(Beats::of(short).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidData));
    }
}
