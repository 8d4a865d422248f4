//! A process of a unit: its start, and its end by a pidfd, also of a process that a former manager started.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, test_kill_process, waitid,
};

use super::records::ProcessRun;

/// The start of a process that /proc did not list from its beginning. A later manager takes such a process over
/// while /proc does not list it, or lists it as a function.
const UNKNOWN_START: u64 = 0;

/// A running process.
pub(super) struct Process {
    pub(super) run: ProcessRun,
    pidfd: OwnedFd,
    /// `None`: an earlier manager has started it.
    child: Option<Child>,
}

impl Process {
    /// Starts a program. The terminal's signals do not reach it: the manager stops it in its turn. Errors: those of the system.
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let mut child = command.spawn()?;
        let opened = run_of(child.id() as i32);
        match opened {
            Ok((run, pidfd)) => Ok(Self { run, pidfd, child: Some(child) }),
            Err(e) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(e)
            }
        }
    }

    /// Takes over a process that an earlier manager has started; `None` if it has ended: another process may have its number.
    pub(super) fn adopt(run: ProcessRun) -> Option<Self> {
        let pid = Pid::from_raw(run.pid)?;
        let pidfd = open(pid).ok()?;
        // After the pidfd was opened, so that it is of this process.
        let is_it = match started(run.pid) {
            Ok(started) => {
                started == run.started || (run.started == UNKNOWN_START && is_function(run.pid, &pidfd))
            }
            Err(e) => e.kind() == io::ErrorKind::NotFound && is_hidden(run.pid, &pidfd),
        };
        is_it.then_some(Self { run, pidfd, child: None })
    }

    pub(super) fn signal(&self, signal: Signal) {
        // A process that has ended needs no signal.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// It has ended: how, if this manager has started it.
    pub(super) fn reap(mut self) -> String {
        match self.child.as_mut().map(Child::wait) {
            Some(Ok(status)) => status.to_string(),
            _ => {
                // A child of this process if the manager has replaced itself since; else its parent has waited for it.
                let _ =
                    waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                "unknown status".into()
            }
        }
    }
}

impl AsFd for Process {
    /// Readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// True if a process of this user runs but /proc does not list it. With hidepid or `ProtectProc=invisible`,
/// /proc hides processes whose memory is closed to the reader. Of this user's processes only functions have
/// their memory closed.
fn is_hidden(pid: i32, pidfd: &OwnedFd) -> bool {
    let is_listed = fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    !is_listed && Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok()) && !has_ended(pidfd)
}

/// True if the process that the pidfd refers to has ended.
fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

fn open(pid: Pid) -> io::Result<OwnedFd> {
    pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(io::Error::from)
}

/// How long a process may have no command line: the kernel lets the parent go on before it has set the new program's arguments.
const MAX_EXEC_TIME: Duration = Duration::from_millis(500);

/// True if a process that /proc lists was started as a function of a unit. /proc does not list one from its exec until the kernel has opened its
/// memory, which for the UPF and its replica it then stays.
fn is_function(pid: i32, pidfd: &OwnedFd) -> bool {
    let begun = Instant::now();
    loop {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !line.is_empty() || has_ended(pidfd) || begun.elapsed() > MAX_EXEC_TIME {
            return line.split(|octet| *octet == 0).any(|argument| argument == b"--function");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A child that has just been started. It may have closed its memory by now, so that /proc does not list it.
fn run_of(pid: i32) -> io::Result<(ProcessRun, OwnedFd)> {
    let pidfd = open(Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?)?;
    let started = match started(pid) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && is_hidden(pid, &pidfd) => UNKNOWN_START,
        read => read?,
    };
    Ok((ProcessRun { pid, started }, pidfd))
}

/// When a process started, in ticks since the boot: field 22 of its `stat` (proc(5)), counted behind the name, which may hold anything. A
/// process that has ended and is not yet waited for counts as ended.
fn started(pid: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = behind.split_whitespace();
    let state = fields.next().unwrap_or("Z");
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    started.filter(|_| !matches!(state, "Z" | "X")).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends_within(process: &Process, seconds: i64) -> bool {
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn the_end_of_a_process_is_witnessed_by_its_pidfd_also_of_an_adopted_one() {
        let mut command = Command::new("sleep");
        command.arg("100");
        let process = Process::start(command).unwrap();
        let adopted = Process::adopt(process.run).unwrap();
        assert!(!ends_within(&adopted, 0));
        let another = ProcessRun { started: process.run.started + 1, ..process.run };
        assert!(Process::adopt(another).is_none(), "another process has its number");
        adopted.signal(Signal::KILL);
        assert!(ends_within(&adopted, 10) && ends_within(&process, 10));
        assert!(process.reap().contains("signal: 9"));
        assert_eq!(adopted.reap(), "unknown status");
    }

    #[test]
    fn a_program_that_does_not_exist_is_reported() {
        assert!(Process::start(Command::new("/nonexistent/program")).is_err());
    }

    #[test]
    fn a_process_whose_start_is_not_known_is_adopted_as_a_function_alone() {
        for (arguments, is_adopted) in [(&["--function", "upf-replica"][..], true), (&["upf-replica"], false)]
        {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "sleep 60; exit"]).args(arguments);
            let process = Process::start(command).unwrap();
            let adopted = Process::adopt(ProcessRun { started: UNKNOWN_START, ..process.run });
            assert_eq!(adopted.is_some(), is_adopted, "{arguments:?}");
            process.signal(Signal::KILL);
            assert!(ends_within(&process, 10));
            process.reap();
        }
    }
}
