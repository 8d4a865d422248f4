//! The replay sandbox of a CPF (`resilience/src/cpf/trial.rs`): a process of this program that runs `whimbrel replay-sandbox`, and a thread that hands it
//! one trial after the other, waits for the outcomes, and starts another process when one dies or takes too long.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use tracing::{error, warn};
use whimbrel_control::config::Config;
use whimbrel_resilience::{ReplaySandbox, ToReplaySandbox, Trial, TrialOutcome};

/// How long a trial may take, the start of its process included: a UE's longest replay takes milliseconds.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(1);
/// Memory of the sandbox: hundreds of times what one UE needs.
const SANDBOX_OCTETS_MAX: u64 = 1 << 30;
/// Octets of trials that are written before the first report: the pipe takes them even if the sandbox does not read.
const AHEAD_OCTETS: usize = 32 * 1024;
/// The longest message: a UE's log and its state.
const MESSAGE_OCTETS_MAX: usize = 1 << 20;

/// A report of the sandbox, at the begin of a trial and after each input: the trial's number, and how many inputs did no harm.
const REPORT_OCTETS: usize = 12;

enum SandboxOrder {
    Configure(Arc<Config>),
    Try(u64, Trial),
}

/// The CPF's run that a trial belongs to, the trial's number, and its outcome.
type SandboxOutcome = (u64, u64, TrialOutcome);

/// The sandbox, as the CPF uses it. Dropped, it ends the process at once.
pub(super) struct Sandbox {
    /// `None` while it is dropped.
    orders: Option<Sender<SandboxOrder>>,
    outcomes: Receiver<SandboxOutcome>,
    /// Trials without an outcome.
    under_way: Cell<usize>,
    /// Readable when there are outcomes; shut down, it ends a wait of the thread.
    woken: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.woken.shutdown(Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Sandbox {
    /// Starts it with this program. Errors: one sentence.
    pub(super) fn start() -> Result<Self, String> {
        let program =
            std::env::current_exe().map_err(|e| format!("the path of this program is not known: {e}"))?;
        // In a unit test, this program is the test program: the arguments must select no test.
        let arguments: &[&str] =
            if cfg!(test) { &["--exact", "replay-sandbox"] } else { &["replay-sandbox"] };
        Self::with(program, arguments, TRIAL_TIME_MAX)
    }

    fn with(program: PathBuf, arguments: &'static [&'static str], within: Duration) -> Result<Self, String> {
        let failed = |e: io::Error| format!("the replay sandbox cannot be started: {e}");
        let (woken, wakes) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        let (orders, taken) = channel();
        let (report, outcomes) = channel();
        let mut thread = Thread { program, arguments, within, running: None, config: None, report, wakes };
        let work = move || thread.run(&taken);
        let thread = std::thread::Builder::new().name("sandbox".into()).spawn(work).map_err(failed)?;
        Ok(Self { orders: Some(orders), outcomes, under_way: Cell::new(0), woken, thread: Some(thread) })
    }

    /// Sets the configuration for the trials to come.
    pub(super) fn configure(&self, config: &Arc<Config>) {
        self.order(SandboxOrder::Configure(config.clone()));
    }

    /// Runs a trial for one run of the CPF.
    pub(super) fn run_trial(&self, run: u64, trial: Trial) {
        self.under_way.set(self.under_way.get() + 1);
        self.order(SandboxOrder::Try(run, trial));
    }

    fn order(&self, order: SandboxOrder) {
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
    }

    /// Whether a trial runs, or waits for those before it.
    pub(super) fn is_busy(&self) -> bool {
        self.under_way.get() > 0
    }

    /// Takes an outcome, if there is one.
    pub(super) fn outcome(&self) -> Option<SandboxOutcome> {
        let mut outcome = self.outcomes.try_recv().ok();
        if outcome.is_none() {
            // Clears wake-ups of outcomes that were taken already; an outcome that comes after this check is followed by a wake-up.
            let _ = (&self.woken).read(&mut [0; 64]);
            outcome = self.outcomes.try_recv().ok();
        }
        self.under_way.set(self.under_way.get() - usize::from(outcome.is_some()));
        outcome
    }

    /// Ready for reading when there is an outcome.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

/// A trial that the sandbox has not got yet.
struct WaitingTrial {
    run: u64,
    id: u64,
    inputs: u32,
    message: Vec<u8>,
}

struct SandboxProcess {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Drop for SandboxProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Thread {
    program: PathBuf,
    arguments: &'static [&'static str],
    within: Duration,
    running: Option<SandboxProcess>,
    config: Option<Arc<Config>>,
    report: Sender<SandboxOutcome>,
    wakes: UnixStream,
}

impl Thread {
    fn run(&mut self, orders: &Receiver<SandboxOrder>) {
        let mut waiting = VecDeque::new();
        loop {
            let next = match waiting.is_empty() {
                true => orders.recv().ok(),
                false => orders.try_recv().ok(),
            };
            match next {
                Some(SandboxOrder::Configure(config)) => {
                    self.config = Some(config.clone());
                    // A running sandbox gets it; else one is started, so that it is warm when it is needed.
                    let message = message(&ToReplaySandbox::Configure(config));
                    if self.running.as_mut().is_none_or(|r| r.send(&[message]).is_err()) {
                        self.start();
                    }
                }
                Some(SandboxOrder::Try(run, trial)) => {
                    let (id, inputs) = (trial.id, trial.inputs.len() as u32);
                    waiting.push_back(WaitingTrial {
                        run,
                        id,
                        inputs,
                        message: message(&ToReplaySandbox::Try(trial)),
                    });
                }
                None if waiting.is_empty() || self.is_over() => return, // the CPF is gone
                None => self.run_trials(&mut waiting),
            }
        }
    }

    /// Runs the waiting trials until one of them ends the sandbox.
    fn run_trials(&mut self, waiting: &mut VecDeque<WaitingTrial>) {
        if self.running.is_none() {
            self.start();
        }
        let Some(running) = &mut self.running else {
            // UEs wait: an input without a trial is better than none.
            waiting.drain(..).for_each(|w| self.report((w.run, w.id, TrialOutcome::Passed)));
            return;
        };
        let mut octets = 0;
        let ahead = waiting.iter().take_while(|w| {
            let first = octets == 0;
            octets += w.message.len();
            first || octets <= AHEAD_OCTETS
        });
        let ahead: Vec<&[u8]> = ahead.map(|w| w.message.as_slice()).collect();
        let handed = ahead.len();
        let alive = running.send(&ahead).is_ok();
        for _ in 0..handed {
            let Some(WaitingTrial { run, id, inputs, .. }) = waiting.pop_front() else { return };
            let mut outcome = TrialOutcome::CrashedAfter(0);
            if alive {
                outcome = running.outcome_of(id, inputs, self.within, &self.wakes);
            }
            if outcome != TrialOutcome::Passed {
                self.running = None;
                if self.is_over() {
                    return;
                }
                error!(
                    trial = id,
                    "a message ended the sandbox process that replayed it: its UE context is discarded (a fault of the program; please report it)"
                );
                self.report((run, id, outcome));
                return self.start();
            }
            // Its UE goes on while the next trial runs.
            let _ = self.report.send((run, id, outcome));
            let _ = self.wakes.write(&[0]);
        }
    }

    fn report(&mut self, outcome: SandboxOutcome) {
        let _ = self.report.send(outcome);
        let _ = self.wakes.write(&[0]);
    }

    /// Whether the CPF no longer waits for outcomes.
    fn is_over(&self) -> bool {
        is_closed(&self.wakes)
    }

    fn start(&mut self) {
        let started = SandboxProcess::start(&self.program, self.arguments);
        let configured = started.and_then(|mut running| {
            if let Some(config) = &self.config {
                running.send(&[message(&ToReplaySandbox::Configure(config.clone()))])?;
            }
            Ok(running)
        });
        self.running = configured.map_err(|e| warn!("the replay sandbox cannot be started: {e}")).ok();
    }
}

impl SandboxProcess {
    fn start(program: &PathBuf, arguments: &[&str]) -> io::Result<Self> {
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let none = || io::Error::from(io::ErrorKind::BrokenPipe);
        let (to, from) = (child.stdin.take().ok_or_else(none)?, child.stdout.take().ok_or_else(none)?);
        Ok(Self { child, to, from })
    }

    fn send(&mut self, messages: &[impl AsRef<[u8]>]) -> io::Result<()> {
        messages.iter().try_for_each(|m| self.to.write_all(m.as_ref()))
    }

    /// The outcome of a trial that was written to it.
    fn outcome_of(&mut self, id: u64, inputs: u32, within: Duration, ended: &UnixStream) -> TrialOutcome {
        let until = Instant::now() + within;
        let mut survived = 0;
        loop {
            match self.report(until, ended) {
                Some((of, all)) if of == id && all == inputs => return TrialOutcome::Passed,
                Some((of, so_far)) if of == id => survived = so_far,
                _ => return TrialOutcome::CrashedAfter(survived),
            }
        }
    }

    /// Its next report, if that comes in time and the CPF still waits for it.
    fn report(&mut self, until: Instant, ended: &UnixStream) -> Option<(u64, u32)> {
        let mut report = [0; REPORT_OCTETS];
        let mut read = 0;
        while read < REPORT_OCTETS {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.from, PollFlags::IN), PollFd::new(ended, PollFlags::RDHUP)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return None,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
                Ok(_) if !fds[1].revents().is_empty() => return None,
                Ok(_) => {}
            }
            match self.from.read(&mut report[read..]) {
                Ok(0) | Err(_) => return None,
                Ok(octets) => read += octets,
            }
        }
        let (id, inputs) = report.split_at(8);
        Some((u64::from_be_bytes(id.try_into().ok()?), u32::from_be_bytes(inputs.try_into().ok()?)))
    }
}

/// Whether the other end of a socket pair was closed or shut down.
fn is_closed(socket: &UnixStream) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// The octets of a message, after their number.
fn message(message: &ToReplaySandbox) -> Vec<u8> {
    let mut octets = vec![0; 4];
    message.write(&mut octets);
    let length = (octets.len() - 4) as u32;
    octets[..4].copy_from_slice(&length.to_be_bytes());
    octets
}

/// The sandbox process: messages come on standard input, reports go to standard output.
/// Errors: one sentence.
pub fn replay_sandbox() -> Result<(), String> {
    let limit = |octets| Rlimit { current: Some(octets), maximum: Some(octets) };
    // It holds UEs' keys: no core dump. Without these limits it works all the same.
    let _ = setrlimit(Resource::Core, limit(0));
    crate::memory_access::close();
    let _ = setrlimit(Resource::As, limit(SANDBOX_OCTETS_MAX));
    // When the CPF dies, an input that is never finished must not keep this process alive.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let (mut sandbox, mut input, mut output) =
        (ReplaySandbox::default(), io::stdin().lock(), io::stdout().lock());
    let mut octets = Vec::new();
    loop {
        let mut length = [0; 4];
        if input.read_exact(&mut length).is_err() {
            return Ok(()); // the CPF is gone
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_OCTETS_MAX {
            return Err("the message is too long".into());
        }
        octets.clear();
        octets.resize(length, 0);
        input.read_exact(&mut octets).map_err(|e| e.to_string())?;
        let message = ToReplaySandbox::read(&octets).map_err(|e| e.to_string())?;
        let mut written = Ok(());
        let write_report = |trial: u64, inputs: u32| {
            let mut report = [0; REPORT_OCTETS];
            report[..8].copy_from_slice(&trial.to_be_bytes());
            report[8..].copy_from_slice(&inputs.to_be_bytes());
            written = output.write_all(&report).and_then(|()| output.flush());
        };
        sandbox.handle(message, write_report).map_err(|e| e.to_string())?;
        written.map_err(|e| e.to_string())?;
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_control::UeId;

    use super::*;

    const ENDED: TrialOutcome = TrialOutcome::CrashedAfter(0);

    fn trial(id: u64) -> Trial {
        Trial { id, ue: UeId { slot: 1, generation: 1 }, state: None, inputs: Vec::new() }
    }

    /// The outcomes of this many trials, for which a shell runs a script.
    fn outcomes(script: &'static [&'static str], trials: u64) -> Vec<SandboxOutcome> {
        let sandbox = Sandbox::with("/bin/sh".into(), script, Duration::from_millis(100)).unwrap();
        (1..=trials).for_each(|id| sandbox.run_trial(7, trial(id)));
        let mut outcomes = Vec::new();
        while outcomes.len() < trials as usize {
            let _ = poll(&mut [PollFd::from_borrowed_fd(sandbox.fd(), PollFlags::IN)], None);
            outcomes.extend(std::iter::from_fn(|| sandbox.outcome()));
        }
        outcomes
    }

    #[test]
    fn a_trial_whose_process_dies_or_hangs_has_ended_it() {
        for script in [&["-c", "exit 1"][..], &["-c", "kill -9 $$"], &["-c", "exec sleep 5"]] {
            assert_eq!(outcomes(script, 2), [(7, 1, ENDED), (7, 2, ENDED)], "{script:?}");
        }
    }

    #[test]
    fn a_process_that_hangs_is_ended_with_its_cpf() {
        let folder = tempfile::tempdir().unwrap();
        let number = folder.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 1000", number.display());
        let script: &'static [&'static str] = Vec::from(["-c", script.leak()]).leak();
        let sandbox = Sandbox::with("/bin/sh".into(), script, Duration::from_secs(600)).unwrap();
        sandbox.run_trial(7, trial(1));
        let pid = loop {
            let text = std::fs::read_to_string(&number).unwrap_or_default();
            if let Ok(pid) = text.trim().parse::<u32>() {
                break pid;
            }
            std::thread::yield_now();
        };
        drop(sandbox);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "it was waited for");
    }

    #[test]
    fn trials_after_a_fatal_one_run_in_another_process() {
        // It reports the first trial, and then exits.
        let script = &["-c", r"head -c 1 > /dev/null; printf '\0\0\0\0\0\0\0\1\0\0\0\0'; exit 1"];
        assert_eq!(outcomes(script, 2), [(7, 1, TrialOutcome::Passed), (7, 2, ENDED)]);
    }

    #[test] // else each UE of a takeover would wait for the trials of all
    fn an_outcome_is_reported_while_the_next_trial_runs() {
        let script = &["-c", r"head -c 1 > /dev/null; printf '\0\0\0\0\0\0\0\1\0\0\0\0'; exec sleep 1000"];
        let sandbox = Sandbox::with("/bin/sh".into(), script, Duration::from_secs(600)).unwrap();
        (1..=2).for_each(|id| sandbox.run_trial(7, trial(id)));
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::from_borrowed_fd(sandbox.fd(), PollFlags::IN)], Some(&patience));
        assert_eq!(sandbox.outcome(), Some((7, 1, TrialOutcome::Passed)));
        assert_eq!((sandbox.outcome(), sandbox.is_busy()), (None, true));
    }

    #[test]
    fn without_a_sandbox_inputs_are_run_all_the_same() {
        let sandbox = Sandbox::with("/nonexistent".into(), &[], TRIAL_TIME_MAX).unwrap();
        sandbox.run_trial(7, trial(1));
        let _ = poll(&mut [PollFd::from_borrowed_fd(sandbox.fd(), PollFlags::IN)], None);
        assert!(sandbox.is_busy(), "its outcome was not taken yet");
        assert_eq!(sandbox.outcome(), Some((7, 1, TrialOutcome::Passed)));
        assert!(!sandbox.is_busy());
    }
}
