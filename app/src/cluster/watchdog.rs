//! A thread that ends the process when one input does not come to its end: heartbeats are answered beside the working thread, so nobody else
//! would notice. Whoever takes the UEs over has such an input tried first.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_resilience::{InputProgress, Watchdog};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Looks at which one input may be seen: 250 ms at least, ten thousand times what an input takes.
const LOOKS_MAX: u32 = 6;

/// What the working thread is at, watched.
pub(crate) struct InputWatchdog(Arc<InputProgress>);

impl InputWatchdog {
    /// `what` it is whose work is watched. Errors: one sentence.
    pub(crate) fn start(what: &'static str) -> Result<Self, String> {
        let work = Arc::new(InputProgress::default());
        // It ends with the last who works.
        let watched = Arc::downgrade(&work);
        let look = move || {
            let mut dog = Watchdog::new(LOOKS_MAX);
            while let Some(work) = watched.upgrade() {
                if dog.look(&work) {
                    eprintln!(
                        "an input is not finished in time: this {what} exits (a fault of ours; please report it)"
                    );
                    std::process::abort();
                }
                drop(work);
                std::thread::sleep(LOOK);
            }
        };
        let started = std::thread::Builder::new().name("watchdog".into()).spawn(look);
        started.map_err(|e| format!("the {what} cannot be watched: {e}"))?;
        Ok(Self(work))
    }

    /// Does the work of one message.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.begin();
        let done = work();
        self.0.end();
        done
    }
}
