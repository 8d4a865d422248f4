//! A thread that ends the process when one input is not finished in time: heartbeats are answered by another thread, so no other process
//! would notice. The CPF that takes its UEs over replays such an input in the sandbox first.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_resilience::{InputProgress, Watchdog};

/// Between two checks.
const CHECKED_EVERY: Duration = Duration::from_millis(50);
/// Checks at which the same input may be seen: 250 ms at least, ten thousand times what an input takes.
const CHECKS_MAX: u32 = 6;

/// Watches the inputs of one working thread.
pub struct InputWatchdog(Arc<InputProgress>);

impl InputWatchdog {
    /// `what`: the kind of process, for the message. Errors: one sentence.
    pub fn start(what: &'static str) -> Result<Self, String> {
        let work = Arc::new(InputProgress::default());
        // The thread ends when the last holder is dropped.
        let watched = Arc::downgrade(&work);
        let look = move || {
            let mut dog = Watchdog::new(CHECKS_MAX);
            while let Some(work) = watched.upgrade() {
                if dog.look(&work) {
                    eprintln!(
                        "an input is not finished in time: this {what} exits (a fault of the program; please report it)"
                    );
                    std::process::abort();
                }
                drop(work);
                std::thread::sleep(CHECKED_EVERY);
            }
        };
        let started = std::thread::Builder::new().name("watchdog".into()).spawn(look);
        started.map_err(|e| format!("the watchdog of this {what} cannot be started: {e}"))?;
        Ok(Self(work))
    }

    /// Runs the work of one input.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.begin();
        let done = work();
        self.0.end();
        done
    }
}
