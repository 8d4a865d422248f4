//! What only `bench` does with a playground: it reads the processes, and kills CPFs and waits for their successors.

use std::process::Child;
use std::time::Duration;

use super::Playground;
use crate::console::Metric;

/// The metrics are at most this old, with a margin.
const METRICS_AGE: Duration = Duration::from_millis(550);

impl Playground {
    /// The process ids of the core and of its CPFs, if those are processes of their own. The core's is the first.
    pub(crate) fn pids(&self) -> Vec<u32> {
        [&self.core].into_iter().chain(&self.cpfs).map(Child::id).collect()
    }

    /// Waits until all CPFs are connected, also those that were declared lost and rejoin, and each UE has a replica. Errors: one
    /// sentence.
    pub(crate) fn await_members(&self) -> Result<(), String> {
        self.until("CPFs do not come back", |p| {
            let ways =
                ["a CPF joined", "heartbeats are not answered", "probes are not answered", "a CPF is lost"];
            let log = p.log();
            let [joined, silent, unreachable, lost] = ways.map(|text| log.matches(text).count());
            Ok(joined >= self.cpfs.len() + silent + unreachable + lost)
        })?;
        self.await_backups()
    }

    /// Kills a CPF as `kill -9` does and starts another one of that region in its place. Returns when the new CPF has joined and
    /// each UE has a replica again. Errors: one sentence.
    pub(crate) fn kill_cpf(&mut self, nth: usize, region: &str) -> Result<(), String> {
        let Some(cpf) = self.cpfs.get_mut(nth) else {
            return Err(format!("there is no CPF {nth}"));
        };
        let cannot = |e| format!("a CPF cannot be killed: {e}");
        cpf.kill().map_err(cannot)?;
        cpf.wait().map_err(cannot)?;
        self.cpfs[nth] = self.spawn_cpf(region)?;
        self.await_cpfs()?;
        self.await_backups()
    }

    fn await_backups(&self) -> Result<(), String> {
        std::thread::sleep(METRICS_AGE);
        self.until("UEs have no replica", |p| Ok(p.client.metric(Metric::UesWithoutBackup, None)? == 0.0))
    }
}
