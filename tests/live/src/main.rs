//! The live fuzzer: `./x fuzz live [n2|n3|n4|api|console|unit|broker|all] [SECONDS] [--inputs N] [--seed N]`, or `--replay FILE`, or `named`.
//!
//! It starts the real program in a network namespace of its own, holds conversations with it as gNBs, UEs, SMFs, HTTP
//! clients, console users, processes of a unit and operators of a broker, and alters them: messages, elements, octets, order, names, protection, inside security and outside. Canary
//! UEs on gNBs of their own must go on working all the while, the program's memory, descriptors and threads must stay
//! within bounds, its log must tell of no fault, and nothing may be left when everybody has gone. What goes wrong is cut
//! down to the least that brings it about again, and written as a file for `--replay`.
//!
//! Ends with one line of JSON; the exit status says whether anything was found.

mod brokers;
mod canary;
mod console;
mod handover;
mod http;
mod hunt;
mod managers;
mod minimise;
mod mutate;
mod named;
mod nas;
mod op;
mod packets;
mod program;
mod radio;
mod rng;
mod smf;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde_json::json;

use hunt::{Plan, Work, hunt};
use op::{Case, Part};

/// The variable that says that this process is in a namespace of its own already.
const INSIDE: &str = "WHIMBREL_LIVE";
/// How long a number of inputs may take.
const INPUTS_WITHIN: Duration = Duration::from_secs(24 * 3600);
/// How long a case is cut down.
const MINIMISE: Duration = Duration::from_secs(600);
/// How long a case done again may take to show: above the canaries' patience.
const SETTLE: Duration = Duration::from_secs(16);
/// The same where the program itself says what went wrong: at once.
const SETTLE_LOGGED: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let options = Options::read(std::env::args().skip(1))?;
    if std::env::var_os(INSIDE).is_none() {
        return isolated();
    }
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
    if !up.is_ok_and(|s| s.success()) {
        return Err("the loopback device of the namespace cannot be set up: is iproute2 installed?".into());
    }
    match &options.replay {
        Some(file) => replay(&options, file),
        None if options.named => named::named(&options.program).map(|clean| ExitCode::from(u8::from(!clean))),
        None => search(&options),
    }
}

/// Runs this program again in a network namespace of its own; without root, as root of a user namespace.
fn isolated() -> Result<ExitCode, String> {
    let me = std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let status = command.arg(me).args(std::env::args_os().skip(1)).env(INSIDE, "1").status();
    let status = status.map_err(|e| format!("a network namespace cannot be made: {e}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(status.code().unwrap_or(2) as u8) })
}

/// Hunts for the time, and cuts down what it finds.
fn search(options: &Options) -> Result<ExitCode, String> {
    let work = Work::Draw { parts: options.parts.clone(), time: options.time, inputs: options.inputs };
    let outcome = hunt(&Plan { program: options.program.clone(), seed: options.seed, work })?;
    let mut report = json!({"fuzz": "live", "seed": options.seed, "finding": outcome.finding});
    if let (Some(report), Some(figures)) = (report.as_object_mut(), outcome.figures.as_object()) {
        report.extend(figures.clone());
    }
    let Some(finding) = outcome.finding else {
        println!("{report}");
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!("found after {} things done: {finding}", outcome.ops.len());
    let file = std::env::current_dir().unwrap_or_default().join(format!("live-{}.json", options.seed));
    let case = Case { finding: finding.clone(), seed: options.seed, ops: outcome.ops };
    write(&file, &case)?;
    if options.minimise {
        eprintln!("the whole case is in {}; cutting it down for {MINIMISE:?} at most", file.display());
        let settle = settle(&finding);
        let fails = |ops: &[op::Done]| {
            let work = Work::Again { ops: ops.to_vec(), settle };
            let again = hunt(&Plan { program: options.program.clone(), seed: options.seed, work });
            let again = again.ok().and_then(|o| o.finding);
            eprintln!(
                "  {} things: {}",
                ops.len(),
                again.as_deref().map_or("nothing", |f| f.lines().next().unwrap_or(f))
            );
            again.is_some()
        };
        match minimise::minimise(&case.ops, MINIMISE, fails) {
            Some(least) => write(&file, &Case { ops: least, ..case })?,
            None => eprintln!("done again, it did not go wrong: the case is left whole"),
        }
    }
    report["case"] = json!(file.display().to_string());
    println!("{report}");
    Ok(ExitCode::FAILURE)
}

fn settle(finding: &str) -> Duration {
    if finding.starts_with("the log says") || finding.starts_with("the core ended") {
        SETTLE_LOGGED
    } else {
        SETTLE
    }
}

fn replay(options: &Options, file: &Path) -> Result<ExitCode, String> {
    let cannot = |e: &dyn std::fmt::Display| format!("{} cannot be done again: {e}", file.display());
    let text = std::fs::read_to_string(file).map_err(|e| cannot(&e))?;
    let case: Case = serde_json::from_str(&text).map_err(|e| cannot(&e))?;
    let (n, settle) = (case.ops.len(), settle(&case.finding));
    let work = Work::Again { ops: case.ops, settle };
    let outcome = hunt(&Plan { program: options.program.clone(), seed: case.seed, work })?;
    println!("{}", json!({"fuzz": "live", "replayed": n, "was": case.finding, "finding": outcome.finding}));
    Ok(if outcome.finding.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write(file: &Path, case: &Case) -> Result<(), String> {
    let cannot = |e: &dyn std::fmt::Display| format!("{} cannot be written: {e}", file.display());
    let text = serde_json::to_string(case).map_err(|e| cannot(&e))?.replace("},{", "},\n{");
    std::fs::write(file, text).map_err(|e| cannot(&e))
}

struct Options {
    parts: Vec<Part>,
    time: Duration,
    inputs: Option<u64>,
    seed: u64,
    program: PathBuf,
    replay: Option<PathBuf>,
    minimise: bool,
    named: bool,
}

const USAGE: &str = "whimbrel-live [n2|n3|n4|api|console|unit|broker|all|named] [SECONDS] [--inputs N] [--seed N] [--program FILE] [--no-minimise] [--replay FILE]";

impl Options {
    fn read(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join("whimbrel")));
        let mut options = Self {
            parts: Part::TOGETHER.to_vec(),
            time: Duration::from_secs(60),
            inputs: None,
            seed: 1,
            program: beside.unwrap_or_else(|| "whimbrel".into()),
            replay: None,
            minimise: true,
            named: false,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(USAGE);
            match arg.as_str() {
                "named" => options.named = true,
                "all" => options.parts = Part::TOGETHER.to_vec(),
                "--inputs" => {
                    options.inputs = Some(value()?.parse().map_err(|_| USAGE)?);
                    options.time = INPUTS_WITHIN;
                }
                "--seed" => options.seed = value()?.parse().map_err(|_| USAGE)?,
                "--program" => options.program = value()?.into(),
                "--replay" => options.replay = Some(value()?.into()),
                "--no-minimise" => options.minimise = false,
                word => match (Part::ALL.iter().find(|p| p.name() == word), word.parse()) {
                    (Some(part), _) => options.parts = vec![*part],
                    (None, Ok(seconds)) => options.time = Duration::from_secs(seconds),
                    (None, Err(_)) => return Err(USAGE.into()),
                },
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let read = |line: &str| Options::read(line.split_whitespace().map(str::to_owned));
        let o = read("n2 30 --seed 7").expect("options");
        assert_eq!((o.parts, o.time.as_secs(), o.seed), (vec![Part::N2], 30, 7));
        assert_eq!(read("").expect("defaults").parts.len(), 6);
        assert_eq!(read("unit").expect("a part").parts, vec![Part::Unit]);
        assert_eq!(read("unit --inputs 1000 --seed 3").expect("inputs").inputs, Some(1000));
        assert!(read("n5").is_err() && read("--seed").is_err());
    }
}
