//! What only `bench` does with a playground: it reads the processes, and kills CPFs and waits for their successors.

use std::process::Child;
use std::time::Duration;

use super::{Playground, cpf_api};
use whimbrel_node::client::Client;
use whimbrel_node::observation::Metric;

/// The metrics are at most this old, with a margin.
const METRICS_AGE: Duration = Duration::from_millis(550);
/// The same of a CPF, which shows them once a second.
const CPF_METRICS_AGE: Duration = Duration::from_millis(1400);

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
        self.end_cpf(nth)?;
        self.replace_cpf(nth, region)
    }

    /// Kills a CPF as `kill -9` does, unless it has been killed already. Errors: one sentence.
    pub(crate) fn end_cpf(&mut self, nth: usize) -> Result<(), String> {
        let Some(cpf) = self.cpfs.get_mut(nth) else {
            return Err(format!("there is no CPF {nth}"));
        };
        let ended = cpf.kill().and_then(|()| cpf.wait());
        ended.map(drop).map_err(|e| format!("a CPF cannot be killed: {e}"))
    }

    /// Starts a CPF of that region in the place of one that has ended. Returns when it has joined and each UE has a replica again. Errors:
    /// one sentence.
    pub(crate) fn replace_cpf(&mut self, nth: usize, region: &str) -> Result<(), String> {
        self.cpfs[nth] = self.spawn_cpf(nth, region)?;
        self.await_cpfs()?;
        self.await_backups()
    }

    /// Starts one more CPF of that region. Returns when it has joined. Errors: one sentence.
    pub(crate) fn add_cpf(&mut self, region: &str) -> Result<(), String> {
        let process = self.spawn_cpf(self.cpfs.len(), region)?;
        self.cpfs.push(process);
        self.await_cpfs()
    }

    /// CPFs that are started from now on show their metrics: [`Self::inputs_run`].
    pub(crate) fn show_cpf_metrics(&mut self) {
        self.cpf_metrics = true;
    }

    /// How many inputs of UEs a CPF has run, and the microseconds that it took for them; nothing must go on meanwhile. Errors: one sentence.
    pub(crate) fn inputs_run(&self, nth: usize) -> Result<[f64; 2], String> {
        std::thread::sleep(CPF_METRICS_AGE);
        let cpf = Client::new(cpf_api(nth));
        Ok([cpf.metric(Metric::CpfInputs, None)?, cpf.metric(Metric::CpfBusy, None)? * 1e6])
    }

    /// Waits until the metrics have all that has happened.
    pub(crate) fn await_metrics(&self) {
        std::thread::sleep(METRICS_AGE);
    }

    fn await_backups(&self) -> Result<(), String> {
        self.await_metrics();
        self.until("UEs have no replica", |p| Ok(p.client.metric(Metric::UesWithoutBackup, None)? == 0.0))
    }
}
