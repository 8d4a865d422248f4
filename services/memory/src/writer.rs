//! The thread that writes regions to a device, so that the owner of a heap never waits for one.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::device::Device;

/// Copies of regions that wait to be written: 16 MiB of regions, so that at two cycles a second 32 MiB a second leave memory.
const COPIES_MAX: usize = 8;

/// A copy of a region, to be written.
pub(crate) struct Job {
    pub(crate) region: usize,
    /// Distinguishes it from other jobs for the same region.
    pub(crate) number: u32,
    /// Where on the device.
    pub(crate) offset: u64,
    pub(crate) octets: Vec<u8>,
}

/// What became of a job.
pub(crate) struct WriteOutcome {
    pub(crate) region: usize,
    pub(crate) number: u32,
    pub(crate) result: io::Result<()>,
}

pub(crate) struct RecordWriter {
    jobs: Sender<Job>,
    done: Receiver<(WriteOutcome, Vec<u8>)>,
    /// Memory of copies that are not in use.
    spare: Vec<Vec<u8>>,
    /// Copies in use.
    used: usize,
}

impl RecordWriter {
    /// Errors: no thread can be started.
    pub(crate) fn start(device: Arc<dyn Device>) -> io::Result<Self> {
        let (jobs, to_write) = channel::<Job>();
        let (report, done) = channel();
        // It ends with the heap, after the last job.
        thread::Builder::new().name("slow-tier".into()).spawn(move || {
            for Job { region, number, offset, octets } in to_write {
                let result = device.write(offset, &octets);
                if report.send((WriteOutcome { region, number, result }, octets)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, done, spare: Vec::new(), used: 0 })
    }

    /// Memory for one more copy; `None` while as many as may wait are waiting.
    pub(crate) fn buffer(&mut self) -> Option<Vec<u8>> {
        if self.used == COPIES_MAX {
            return None;
        }
        self.used += 1;
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        Some(buffer)
    }

    /// Writes a copy. Returns `false` if the thread is gone, since the device has panicked.
    pub(crate) fn write(&mut self, job: Job) -> bool {
        self.jobs.send(job).map_err(|unsent| self.give_back(unsent.0.octets)).is_ok()
    }

    /// A buffer that is not to be written.
    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        self.used -= 1;
        self.spare.push(buffer);
    }

    /// The next job that has ended.
    pub(crate) fn written(&mut self) -> Option<WriteOutcome> {
        let (written, buffer) = self.done.try_recv().ok()?;
        self.give_back(buffer);
        if self.used == 0 {
            self.spare.clear();
        }
        Some(written)
    }
}
