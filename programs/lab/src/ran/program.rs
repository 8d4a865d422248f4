//! A program that uses the PDU session of an emulated UE: started when the session is ready, its exit status is ours.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use whimbrel_ran::edge::Namespace;

/// Exit statuses of the program's absence, as shells and `env` have them.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;
/// Exit status of a run whose program was never started, as `env` and `timeout` have it.
pub(super) const NO_SESSION: u8 = 125;
/// What an interrupted program gets, and how long after the interrupt. A terminal has sent it SIGINT itself.
const ENDING: [(Duration, Signal); 3] = [
    (Duration::from_millis(500), Signal::INT),
    (Duration::from_millis(2500), Signal::TERM),
    (Duration::from_millis(4500), Signal::KILL),
];

/// The program, before, while and after it runs.
pub(super) struct Program {
    words: Vec<OsString>,
    state: State,
}

enum State {
    Waiting,
    Running { child: Child, interrupted: Option<Instant>, signals: usize },
    Ended(u8),
}

impl Program {
    pub(super) fn new(words: Vec<OsString>) -> Self {
        Self { words, state: State::Waiting }
    }

    /// Starts it in a namespace, unless it was started. Errors: a sentence; the program then counts as ended.
    pub(super) fn start(&mut self, namespace: &Namespace) -> Result<(), String> {
        let (State::Waiting, [program, arguments @ ..]) = (&self.state, self.words.as_slice()) else {
            return Ok(());
        };
        match namespace.spawn(Command::new(program).args(arguments)) {
            Ok(child) => {
                self.state = State::Running { child, interrupted: None, signals: 0 };
                Ok(())
            }
            Err(e) => {
                let absent = e.kind() == io::ErrorKind::NotFound;
                self.state = State::Ended(if absent { NOT_FOUND } else { NOT_STARTED });
                Err(format!("{} cannot be started: {e}", program.display()))
            }
        }
    }

    /// Whether it has ended, or will never be started since the run was interrupted before.
    pub(super) fn has_ended(&mut self, interrupted: bool) -> bool {
        let State::Running { child, interrupted: since, signals } = &mut self.state else {
            return interrupted || matches!(self.state, State::Ended(_));
        };
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => {
                self.state = State::Ended(status_of(status));
                return true;
            }
            Err(_) => {
                self.state = State::Ended(NOT_STARTED);
                return true;
            }
        }
        if interrupted {
            let since = *since.get_or_insert_with(Instant::now);
            if let Some((_, signal)) = ENDING.get(*signals).filter(|(after, _)| since.elapsed() >= *after) {
                *signals += 1;
                if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ended_meanwhile = kill_process(pid, *signal);
                }
            }
        }
        false
    }

    /// Its exit status; `None` if it was never started.
    pub(super) fn exit_code(&self) -> Option<ExitCode> {
        match self.state {
            State::Ended(code) => Some(ExitCode::from(code)),
            State::Waiting | State::Running { .. } => None,
        }
    }
}

/// A run that fails must not leave its program behind.
impl Drop for Program {
    fn drop(&mut self) {
        if let State::Running { child, .. } = &mut self.state {
            let _ended_meanwhile = child.kill();
            let _status = child.wait();
        }
    }
}

/// The exit status of a program; of one that a signal ended, 128 and the signal's number, as shells have it.
fn status_of(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(i32::from(NOT_STARTED), |s| 128 + s);
    u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(NOT_STARTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ended_by_a_signal_has_the_status_that_shells_give_it() {
        assert_eq!(status_of(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(status_of(ExitStatus::from_raw(2)), 130);
    }

    #[test]
    fn an_interrupted_program_is_ended_by_signals_of_rising_force() {
        // Ignores SIGINT, ends at SIGTERM.
        let child = Command::new("sh").args(["-c", "trap '' INT; sleep 60 & wait"]).spawn().unwrap();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        let mut program = Program::new(Vec::new());
        program.state = State::Running { child, interrupted: Some(long_ago), signals: 1 };
        assert!(!program.has_ended(false));
        while !program.has_ended(true) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(matches!(program.state, State::Ended(143)));
    }

    #[test]
    fn a_program_that_was_never_started_ends_with_the_interrupt() {
        let mut program = Program::new(vec!["true".into()]);
        assert!(!program.has_ended(false) && program.has_ended(true));
        assert!(program.exit_code().is_none());
    }
}
