//! Watches the packet threads of the UPF, so that one that hangs is found within milliseconds.
//!
//! A thread is suspected while it is awake and makes no turn, or sleeps although there is something to receive. Whether it hangs, the kernel says: a loaded
//! host gives a thread no processor for tens of milliseconds, and such a thread would be no better off in another process.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tracing::{debug, warn};
use whimbrel_user_io::{Beat, Beats, ThreadState, readable, run_in_real_time};

use super::service::Service;
use crate::function::descriptors;

/// Time between two looks: one costs some microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Looks in a row at which a thread is suspected and stopped.
const STOPPED_LOOKS: u32 = 2;
/// Likewise, and waits for something else than packets: a packet thread does so for 5 ms at most.
const WAITING_LOOKS: u32 = 4;
/// Likewise, and waits for a disk: memory that was paged out comes back sooner.
const DISK_LOOKS: u32 = 100;
/// The time of a processor that a turn may take.
const TURN_MAX: Duration = Duration::from_millis(100);

/// The thread that watches, and what it has found.
pub(super) struct UpfWatch {
    /// The process that hangs; zero: none.
    hangs: Arc<AtomicU32>,
}

/// What was seen of a packet thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Suspicion {
    beat: Beat,
    /// Looks in a row at which it was suspected.
    looks: u32,
    /// The time that it had had of a processor at the first of them.
    ran: Option<Duration>,
}

impl Suspicion {
    fn new(beat: Beat) -> Self {
        Self { beat, looks: 0, ran: None }
    }

    /// The thread is suspected once more. Returns whether it hangs.
    fn again(&mut self, state: ThreadState) -> bool {
        self.looks += 1;
        match state {
            ThreadState::Stopped => self.looks >= STOPPED_LOOKS,
            ThreadState::Waits => self.looks >= WAITING_LOOKS,
            ThreadState::WaitsForDisk => self.looks >= DISK_LOOKS,
            ThreadState::Runs(spent) => {
                let before = *self.ran.get_or_insert(spent);
                spent.saturating_sub(before) >= TURN_MAX
            }
            ThreadState::Other => false,
        }
    }
}

impl UpfWatch {
    /// Watches the process that shows its beats there. `frames`: TAP devices, of which the first thread has all; `found` wakes the manager. Errors: one
    /// sentence.
    pub(super) fn start(
        beats: Beats,
        service: Service,
        frames: usize,
        found: impl Fn() + Send + 'static,
    ) -> Result<Self, String> {
        let hangs = Arc::new(AtomicU32::new(0));
        let finds = hangs.clone();
        let watch = move || {
            if !run_in_real_time() {
                debug!("the thread that watches the UPF has no real-time priority: a loaded host delays it");
            }
            let mut watcher =
                Watcher { beats, service, frames, ports: Vec::new(), process: 0, seen: BTreeMap::new() };
            loop {
                std::thread::sleep(LOOK_EVERY);
                if let Some((process, thread)) = watcher.look() {
                    warn!(process, "the packet thread {thread} of the UPF hangs: it takes no packets");
                    finds.store(process, Ordering::Release);
                    found();
                }
            }
        };
        std::thread::Builder::new()
            .name("upf-watch".into())
            .spawn(watch)
            .map_err(|e| format!("the thread that watches the UPF cannot be started: {e}"))?;
        Ok(Self { hangs })
    }

    /// The process that hangs, once.
    pub(super) fn take(&self) -> Option<u32> {
        Some(self.hangs.swap(0, Ordering::AcqRel)).filter(|process| *process != 0)
    }
}

struct Watcher {
    beats: Beats,
    service: Service,
    frames: usize,
    /// Sockets and devices of the UPF.
    ports: Vec<OwnedFd>,
    /// Whose threads these are.
    process: u32,
    seen: BTreeMap<usize, Suspicion>,
}

impl Watcher {
    /// Looks at all threads. Returns the process, and the thread of it that hangs, once for each process.
    fn look(&mut self) -> Option<(u32, usize)> {
        let process = self.beats.process()?;
        if process != self.process {
            (self.process, self.seen) = (process, BTreeMap::new());
        }
        if self.ports.is_empty() {
            self.ports = self.service.duplicates(descriptors::UPF_PORTS);
        }
        let all: Vec<(usize, Beat)> = self.beats.read().collect();
        let mut inputs = None;
        for (n, beat) in &all {
            let seen = self.seen.entry(*n).or_insert(Suspicion::new(*beat));
            let waits = beat.sleeps && {
                let ports = &self.ports;
                let inputs: &Vec<bool> = inputs.get_or_insert_with(|| readable(ports).unwrap_or_default());
                !has_input(inputs, *n, all.len(), self.frames)
            };
            if seen.beat != *beat || waits {
                *seen = Suspicion::new(*beat);
            } else if seen.looks < u32::MAX && seen.again(ThreadState::of(process, beat.thread)) {
                // It is reported once.
                seen.looks = u32::MAX;
                return Some((process, *n));
            }
        }
        None
    }
}

/// Whether one of a thread's sockets and devices has something to receive: of each address and each data network every thread has one, in order, and
/// the first thread has the TAP devices behind them.
fn has_input(readable: &[bool], thread: usize, threads: usize, frames: usize) -> bool {
    let shared = readable.len().saturating_sub(frames);
    readable.iter().enumerate().any(|(at, is)| {
        let owner = if at < shared { at % threads.max(1) } else { 0 };
        *is && owner == thread
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Beat = Beat { thread: 7, turns: 3, sleeps: false };

    fn looks(states: impl IntoIterator<Item = ThreadState>) -> Option<usize> {
        let mut suspicion = Suspicion::new(BEAT);
        states.into_iter().position(|state| suspicion.again(state))
    }

    #[test]
    fn a_stopped_thread_hangs_at_once_and_one_that_waits_a_little_later() {
        assert_eq!(looks([ThreadState::Stopped; 9]), Some(1));
        assert_eq!(looks([ThreadState::Waits; 9]), Some(3));
        assert_eq!(looks([ThreadState::WaitsForDisk; 99]), None);
        assert_eq!(looks([ThreadState::Other; 999]), None);
    }

    #[test]
    fn a_thread_that_gets_no_processor_does_not_hang_and_one_that_uses_it_up_does() {
        let starved = ThreadState::Runs(Duration::from_secs(3));
        assert_eq!(looks([starved; 999]), None);
        let runs = |ms: u64| ThreadState::Runs(Duration::from_millis(3000 + ms));
        assert_eq!(looks((0..99).map(|n| runs(5 * n))), Some(20), "100 ms in one turn");
    }

    #[test]
    fn each_thread_has_its_own_inputs() {
        // Two addresses of N3 and one data network for two threads, and a TAP device.
        let mut inputs = [false; 7];
        inputs[3] = true;
        assert_eq!([0, 1].map(|n| has_input(&inputs, n, 2, 1)), [false, true]);
        inputs = [false; 7];
        inputs[6] = true;
        assert_eq!([0, 1].map(|n| has_input(&inputs, n, 2, 1)), [true, false]);
        assert!(!has_input(&[], 0, 1, 0));
    }
}
