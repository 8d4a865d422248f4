//! A unit: the functions of one host as processes under a manager, of which each may die (docs/unit.md).
//!
//! The manager ([`manage`]) starts two CTAs, of which one is the replica of the other, several CPFs and a UPF, witnesses their ends by
//! pidfds, and starts them again. It takes etcd's place ([`records`]), and keeps the descriptors that have to outlive a function
//! ([`descriptors`](crate::function::descriptors)). The functions' side of a unit is
//! [`function`](crate::function).

mod areas;
mod canary;
mod manager;
mod process;
mod program;
mod records;
mod restarts;
mod service;
mod upf_watch;
mod upgrade;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use self::manager::Manager;
use crate::config::Config;
use crate::function::UnitDirectory;
use crate::function::channel::{self, Lines};
pub use crate::function::messages::{CanaryOrder, CanaryStatus, FunctionStatus, Phase, Share, UnitStatus};
use crate::function::messages::{ManagerRequest, RequestSubject};
use crate::logging;
use crate::sbfd::ReflectorThread;
use crate::signals::termination_signals;

/// How long the manager may take for an answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// An upgrade is silent for a step at most.
const STEP_WITHIN: Duration = Duration::from_secs(60);

/// Manages a unit until SIGINT or SIGTERM. Errors: one sentence.
pub fn manage(config: Config, file: Option<PathBuf>) -> Result<(), String> {
    if let Some((key, what, fix)) = crate::config::unit_conflict(&config) {
        return Err(format!("{key}: {what}; {fix}"));
    }
    let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
    let mut signals = termination_signals()?;
    let _logging = logging::start_as(config.log, Some("manager"))?;
    // It has the functions' descriptors.
    crate::memory_access::close();
    // The manager answers for the host: it outlives the other processes.
    let reflector = config.sbfd.reflecting.map(ReflectorThread::start).transpose();
    let _reflector = reflector.inspect_err(|e| warn!("sbfd.listen: {e}")).unwrap_or_default();
    for warning in config.warnings() {
        warn!("{warning}");
    }
    let mut manager = Manager::start(config, file)?;
    info!(process = std::process::id(), "the manager of the unit runs");
    manager.run(&mut signals)
}

/// Asks the manager of the unit that runs with this directory for its functions. Errors: one sentence.
pub fn status(directory: &Path) -> Result<UnitStatus, String> {
    let stream = ask(directory, RequestSubject::Status {}, ANSWERED_WITHIN)?;
    let silent = || "the manager of the unit does not answer".to_string();
    let line = Lines::of(&stream).next_line().ok().flatten().ok_or_else(silent)?;
    serde_json::from_slice(&line).map_err(|e| format!("the manager answers something else: {e}"))
}

/// Gives the manager an order about a canary. `say` gets each line of the manager. Errors: one sentence.
pub fn canary(
    directory: &Path,
    order: CanaryOrder,
    say: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    let order = match order {
        CanaryOrder::Begin { program, share } => {
            let program = program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?;
            CanaryOrder::Begin { program, share }
        }
        other => other,
    };
    let promotes = matches!(order, CanaryOrder::Promote {});
    let last = lines_of(ask(directory, RequestSubject::Canary(order), STEP_WITHIN)?, say)?;
    if !last.starts_with("done") {
        return Err("the order was not carried out".into());
    }
    if promotes { renewed(directory) } else { Ok(()) }
}

/// Has the functions replaced by a program. `say` gets each line of the manager. Errors: one sentence.
pub fn upgrade(
    directory: &Path,
    program: Option<&Path>,
    say: impl FnMut(&str) -> Result<(), String>,
) -> Result<(), String> {
    let program = match program {
        Some(program) => program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?,
        None => std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?,
    };
    let last = lines_of(ask(directory, RequestSubject::Upgrade { program }, STEP_WITHIN)?, say)?;
    if !last.starts_with("done") {
        return Err("the upgrade did not come to its end".into());
    }
    renewed(directory)
}

/// Has the control functions restarted one after the other, while the UPF goes on. `say` gets each line of the manager. Errors: one sentence.
pub fn restart_control(directory: &Path, say: impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
    let last = lines_of(ask(directory, RequestSubject::RestartControl {}, STEP_WITHIN)?, say)?;
    if !last.starts_with("done") {
        return Err("the restart did not come to its end".into());
    }
    renewed(directory)
}

/// Passes the manager's lines on. Returns the last one. Errors: those of `say`.
fn lines_of(stream: UnixStream, mut say: impl FnMut(&str) -> Result<(), String>) -> Result<String, String> {
    let mut lines = Lines::of(&stream);
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line() {
        last = String::from_utf8_lossy(&line).into_owned();
        say(&last)?;
    }
    Ok(last)
}

/// Waits for the manager that replaces itself. Errors: one sentence.
fn renewed(directory: &Path) -> Result<(), String> {
    let until = Instant::now() + ANSWERED_WITHIN;
    while status(directory).is_ok_and(|status| status.renews) || status(directory).is_err() {
        if Instant::now() >= until {
            return Err("the functions are replaced, but the manager does not answer".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn ask(directory: &Path, subject: RequestSubject, within: Duration) -> Result<UnixStream, String> {
    let directory = UnitDirectory::of(directory);
    let question = ManagerRequest { token: directory.token()?, subject };
    let cannot = |e: std::io::Error| {
        format!(
            "no manager answers at {}: {e}; start it with `whimbrel run --unit`",
            directory.socket().display()
        )
    };
    let stream = UnixStream::connect(directory.socket()).map_err(cannot)?;
    stream.set_read_timeout(Some(within)).map_err(cannot)?;
    let line = serde_json::to_vec(&question).map_err(|e| e.to_string())?;
    channel::send(&stream, &line, &[]).map_err(cannot)?;
    Ok(stream)
}
