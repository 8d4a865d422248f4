//! What tries inputs for a control function (`resilience/src/cpf/trial.rs`): a process of this program that runs `whimbrel taste`, and a thread that
//! hands it one trial after the other, waits for it, and puts another in its place when it dies or takes too long.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use tracing::{error, warn};
use whimbrel_control::config::Config;
use whimbrel_resilience::{Taster, ToTaster, Trial};

/// How long a trial may take, the start of its process included: a phone's longest replay takes milliseconds.
const TRIED_WITHIN: Duration = Duration::from_secs(1);
/// Memory of the process that tries: hundreds of times what one phone needs.
const TASTER_OCTETS: u64 = 1 << 30;
/// Octets of trials that are handed over before the first answer: the pipe takes them even if nobody reads.
const AHEAD_OCTETS: usize = 32 * 1024;
/// The longest message: a phone's log and its state.
const MESSAGE_OCTETS_MAX: usize = 1 << 20;

enum Order {
    Configure(Arc<Config>),
    Try(u64, Trial),
}

/// The trials of a control function.
pub(super) struct Tasting {
    orders: Sender<Order>,
    outcomes: Receiver<(u64, u64, bool)>,
    woken: UnixStream,
}

impl Tasting {
    /// With this program. Errors: one sentence.
    pub(super) fn start() -> Result<Self, String> {
        let program =
            std::env::current_exe().map_err(|e| format!("the program does not find itself: {e}"))?;
        Self::with(program, &["taste"], TRIED_WITHIN)
    }

    fn with(program: PathBuf, arguments: &'static [&'static str], within: Duration) -> Result<Self, String> {
        let failed = |e: io::Error| format!("inputs cannot be tried: {e}");
        let (woken, wakes) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        let (orders, taken) = channel();
        let (told, outcomes) = channel();
        let mut thread = Thread { program, arguments, within, running: None, config: None, told, wakes };
        let work = move || thread.run(&taken);
        std::thread::Builder::new().name("taster".into()).spawn(work).map_err(failed)?;
        Ok(Self { orders, outcomes, woken })
    }

    /// The configuration that is in force for the trials to come.
    pub(super) fn configure(&self, config: &Arc<Config>) {
        let _ = self.orders.send(Order::Configure(config.clone()));
    }

    /// Has inputs tried in a life of the control function.
    pub(super) fn have_tried(&self, life: u64, trial: Trial) {
        let _ = self.orders.send(Order::Try(life, trial));
    }

    /// Takes an outcome: the life that it is of, the trial, whether it did no harm.
    pub(super) fn outcome(&self) -> Option<(u64, u64, bool)> {
        let outcome = self.outcomes.try_recv().ok();
        if outcome.is_none() {
            // Wakes for outcomes that were taken already; one that comes after this look has a wake behind it.
            let _ = (&self.woken).read(&mut [0; 64]);
            return self.outcomes.try_recv().ok();
        }
        outcome
    }

    /// Ready for reading when there is an outcome.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

struct Running {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Thread {
    program: PathBuf,
    arguments: &'static [&'static str],
    within: Duration,
    running: Option<Running>,
    config: Option<Arc<Config>>,
    told: Sender<(u64, u64, bool)>,
    wakes: UnixStream,
}

impl Thread {
    fn run(&mut self, orders: &Receiver<Order>) {
        let mut waiting = VecDeque::new();
        loop {
            let next = match waiting.is_empty() {
                true => orders.recv().ok(),
                false => orders.try_recv().ok(),
            };
            match next {
                Some(Order::Configure(config)) => {
                    self.config = Some(config.clone());
                    // A process that is there already is told; else one is started, so that it is warm when it is needed.
                    let told = message(&ToTaster::Configure(config));
                    if self.running.as_mut().is_none_or(|r| r.send(&[told]).is_err()) {
                        self.start();
                    }
                }
                Some(Order::Try(life, trial)) => {
                    let id = trial.id;
                    waiting.push_back((life, id, message(&ToTaster::Try(trial))));
                }
                None if waiting.is_empty() => return, // the control function is gone
                None => self.try_them(&mut waiting),
            }
        }
    }

    /// Tries what waits, as far as the process that does so comes out of it.
    fn try_them(&mut self, waiting: &mut VecDeque<(u64, u64, Vec<u8>)>) {
        if self.running.is_none() {
            self.start();
        }
        let Some(running) = &mut self.running else {
            // Phones wait: better untried than never.
            waiting.drain(..).for_each(|(life, id, _)| self.tell(life, id, true));
            return;
        };
        let mut octets = 0;
        let ahead = waiting.iter().take_while(|(.., message)| {
            let first = octets == 0;
            octets += message.len();
            first || octets <= AHEAD_OCTETS
        });
        let ahead: Vec<&[u8]> = ahead.map(|(.., message)| message.as_slice()).collect();
        let handed = ahead.len();
        let mut alive = running.send(&ahead).is_ok();
        for _ in 0..handed {
            let Some(&(life, id, _)) = waiting.front() else { return };
            alive = alive && running.answer(self.within) == Some(id);
            waiting.pop_front();
            if !alive {
                error!(
                    trial = id,
                    "a message ended the process that tried it: its phone is given up (a fault of ours; please report it)"
                );
                self.running = None;
                self.tell(life, id, false);
                return self.start();
            }
            let _ = self.told.send((life, id, true));
        }
        let _ = self.wakes.write(&[0]);
    }

    fn tell(&mut self, life: u64, id: u64, unharmed: bool) {
        let _ = self.told.send((life, id, unharmed));
        let _ = self.wakes.write(&[0]);
    }

    fn start(&mut self) {
        let started = Running::start(&self.program, self.arguments);
        let told = started.and_then(|mut running| {
            if let Some(config) = &self.config {
                running.send(&[message(&ToTaster::Configure(config.clone()))])?;
            }
            Ok(running)
        });
        self.running = told.map_err(|e| warn!("there is no process that tries inputs: {e}")).ok();
    }
}

impl Running {
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

    /// The trial that it came out of, if it says so in time.
    fn answer(&mut self, within: Duration) -> Option<u64> {
        let until = Instant::now() + within;
        let mut answer = [0; 8];
        let mut read = 0;
        while read < answer.len() {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return None,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return None,
                Ok(_) => {}
            }
            match self.from.read(&mut answer[read..]) {
                Ok(0) | Err(_) => return None,
                Ok(octets) => read += octets,
            }
        }
        Some(u64::from_be_bytes(answer))
    }
}

/// Its octets behind their number.
fn message(message: &ToTaster) -> Vec<u8> {
    let mut octets = vec![0; 4];
    message.write(&mut octets);
    let length = (octets.len() - 4) as u32;
    octets[..4].copy_from_slice(&length.to_be_bytes());
    octets
}

/// The process that tries: messages come on standard input, the numbers of trials that did no harm go to standard output.
/// Errors: one sentence.
pub(crate) fn taste() -> Result<(), String> {
    let limit = |octets| Rlimit { current: Some(octets), maximum: Some(octets) };
    // What it holds are phones' keys: no image of it shall lie about. Without the bounds it is still a process that nobody misses.
    let _ = setrlimit(Resource::Core, limit(0));
    let _ = setrlimit(Resource::As, limit(TASTER_OCTETS));
    let (mut taster, mut input, mut output) = (Taster::default(), io::stdin().lock(), io::stdout().lock());
    let mut octets = Vec::new();
    loop {
        let mut length = [0; 4];
        if input.read_exact(&mut length).is_err() {
            return Ok(()); // the control function is gone
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_OCTETS_MAX {
            return Err("what is to be tried is too long".into());
        }
        octets.clear();
        octets.resize(length, 0);
        input.read_exact(&mut octets).map_err(|e| e.to_string())?;
        let message = ToTaster::read(&octets).map_err(|e| e.to_string())?;
        if let Some(trial) = taster.handle(message).map_err(|e| e.to_string())? {
            output
                .write_all(&trial.to_be_bytes())
                .and_then(|()| output.flush())
                .map_err(|e| e.to_string())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_control::PhoneId;

    use super::*;

    fn trial(id: u64) -> Trial {
        Trial { id, phone: PhoneId { slot: 1, generation: 1 }, state: None, inputs: Vec::new() }
    }

    /// The outcomes of so many trials by a shell that does this for them.
    fn outcomes(script: &'static [&'static str], trials: u64) -> Vec<(u64, u64, bool)> {
        let tasting = Tasting::with("/bin/sh".into(), script, Duration::from_millis(100)).unwrap();
        (1..=trials).for_each(|id| tasting.have_tried(7, trial(id)));
        let mut outcomes = Vec::new();
        while outcomes.len() < trials as usize {
            let _ = poll(&mut [PollFd::from_borrowed_fd(tasting.fd(), PollFlags::IN)], None);
            outcomes.extend(std::iter::from_fn(|| tasting.outcome()));
        }
        outcomes
    }

    #[test]
    fn who_dies_or_does_not_come_back_has_tried_poison() {
        for script in [&["-c", "exit 1"][..], &["-c", "kill -9 $$"], &["-c", "exec sleep 5"]] {
            assert_eq!(outcomes(script, 2), [(7, 1, false), (7, 2, false)], "{script:?}");
        }
    }

    #[test]
    fn what_comes_after_poison_is_tried_by_another() {
        // It answers the first trial, and then is gone.
        let script = &["-c", r"head -c 1 > /dev/null; printf '\0\0\0\0\0\0\0\1'; exit 1"];
        assert_eq!(outcomes(script, 2), [(7, 1, true), (7, 2, false)]);
    }

    #[test]
    fn where_nobody_can_try_inputs_are_run_all_the_same() {
        let tasting = Tasting::with("/nonexistent".into(), &[], TRIED_WITHIN).unwrap();
        tasting.have_tried(7, trial(1));
        let _ = poll(&mut [PollFd::from_borrowed_fd(tasting.fd(), PollFlags::IN)], None);
        assert_eq!(tasting.outcome(), Some((7, 1, true)));
    }
}
