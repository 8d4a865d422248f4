//! `whimbrel-harvest profile | instrument | run | report`: other programs run while a compiled program waits for memory.

mod calibrate;
mod code;
mod distance;
mod elf;
mod instrument;
#[allow(dead_code, reason = "the runtime uses the rest")]
mod layout;
mod liveness;
mod measure;
mod perf;
mod profile;
mod refusal;
mod rewrite;
mod run;
mod select;

use std::path::PathBuf;
use std::process::ExitCode;

use instrument::{Options, Without};
use rewrite::InstrumentedRole;

const USAGE: &str = "\
Usage: whimbrel-harvest COMMAND

  profile [--ll OCTETS,WAYS,LINE --memory-ns N] [--object LIBRARY] -o PROFILE PROGRAM [ARGS]
                      count instructions and misses of the last cache with valgrind; the cache is measured unless it is given;
                      of a library that the program loads, with --object
  profile --perf FILE [--memory-ns N] -o PROFILE PROGRAM|LIBRARY
                      take them from samples of loads (PEBS, IBS) that `perf script` has printed
  instrument primary|scavenger --profile PROFILE -o OUT [--bound PERCENT] [--miss-rate PERCENT] [--distance NS] [--everything]
             [--without liveness|induction|registers]... PROGRAM|LIBRARY
                      insert yields: at loads that miss; in a scavenger's loops, too
  run [--scavenger \"PROGRAM ARGS\"]... [--library LIBRARY]... PRIMARY [ARGS]
                      run an instrumented primary with instrumented scavengers in its stalls, and with instrumented libraries in place of
                      those of the same name: the primary with those that are instrumented as primary, scavengers with the others
  report PROGRAM      which loads and loops of an instrumented program have yields, and why others have none
";

type Error = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() || arguments[0] == "help" || arguments[0] == "--help" {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if arguments[0] == "--version" {
        println!("whimbrel-harvest {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let command = arguments.remove(0);
    let done = match &*command {
        "profile" => profile_command(&mut arguments),
        "instrument" => instrument_command(&mut arguments),
        "run" => run::run(&mut arguments),
        "report" => report_command(&arguments),
        "man" => man_command(&arguments),
        _ => Err(format!("unknown command {command:?}\n{USAGE}").into()),
    };
    match done {
        Ok(code) => code,
        Err(e) => {
            eprintln!("whimbrel-harvest: {e}");
            ExitCode::from(2)
        }
    }
}

/// Takes `--name VALUE` out of the arguments before the program's.
fn option(arguments: &mut Vec<String>, name: &str) -> Result<Option<String>, Error> {
    let program = program_at(arguments);
    let Some(at) = arguments[..program].iter().position(|a| a == name) else { return Ok(None) };
    if at + 1 >= arguments.len() {
        return Err(format!("{name} needs a value").into());
    }
    arguments.remove(at);
    Ok(Some(arguments.remove(at)))
}

/// Takes `--name` out of the arguments before the program's.
fn flag(arguments: &mut Vec<String>, name: &str) -> bool {
    let program = program_at(arguments);
    let at = arguments[..program].iter().position(|a| a == name);
    at.inspect(|&at| drop(arguments.remove(at))).is_some()
}

/// Where the program stands: behind the options, of which all but one have a value.
fn program_at(arguments: &[String]) -> usize {
    let mut at = 0;
    while at < arguments.len() && arguments[at].starts_with('-') {
        at += if arguments[at] == "--everything" { 1 } else { 2 };
    }
    at.min(arguments.len())
}

fn required(value: Option<String>, name: &str) -> Result<String, Error> {
    value.ok_or_else(|| format!("{name} is missing\n{USAGE}").into())
}

fn number(value: Option<String>, default: f64) -> Result<f64, Error> {
    match value {
        None => Ok(default),
        Some(text) => match text.parse::<f64>() {
            Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
            _ => Err(format!("{text:?} is no positive number").into()),
        },
    }
}

fn profile_command(arguments: &mut Vec<String>) -> Result<ExitCode, Error> {
    let cache = option(arguments, "--ll")?;
    let memory_ns = option(arguments, "--memory-ns")?;
    let out = required(option(arguments, "-o")?, "-o")?;
    let object = option(arguments, "--object")?;
    if let Some(samples) = option(arguments, "--perf")? {
        if cache.is_some() || object.is_some() {
            return Err(
                "--perf goes with neither --ll nor --object: samples are of what the processor did".into()
            );
        }
        let memory_ns = match memory_ns {
            Some(ns) => number(Some(ns), 0.0)?,
            None => calibrate::measure().memory_ns,
        };
        let [program] = &arguments[..] else { return Err(USAGE.into()) };
        let (mut read, path) = measure::read_object(program)?;
        let text = std::fs::read(&samples).map_err(|e| format!("{samples}: {e}"))?;
        let text = String::from_utf8_lossy(&text);
        let profile = perf::profile(&text, &mut read, &measure::name(&path), memory_ns)
            .map_err(|e| format!("{samples}: {e}"))?;
        return write_profile(&out, &profile);
    }
    let cache = match (cache, memory_ns) {
        (Some(text), Some(ns)) => calibrate::Cache::parse(&text, number(Some(ns), 0.0)?)?,
        (None, None) => calibrate::measure(),
        _ => return Err("--ll and --memory-ns go together".into()),
    };
    write_profile(&out, &measure::profile(arguments, object.as_deref(), cache)?)
}

fn write_profile(out: &str, profile: &profile::Profile) -> Result<ExitCode, Error> {
    std::fs::write(out, profile.write()).map_err(|e| format!("{out}: {e}"))?;
    println!("{out}: {} instructions, {}", profile.instructions.len(), profile.source);
    Ok(ExitCode::SUCCESS)
}

fn instrument_command(arguments: &mut Vec<String>) -> Result<ExitCode, Error> {
    if arguments.is_empty() {
        return Err(USAGE.into());
    }
    let role = match &*arguments.remove(0) {
        "primary" => InstrumentedRole::Primary,
        "scavenger" => InstrumentedRole::Scavenger,
        other => {
            return Err(format!("{other:?}: a program is instrumented as primary or as scavenger").into());
        }
    };
    let profile = PathBuf::from(required(option(arguments, "--profile")?, "--profile")?);
    let out = required(option(arguments, "-o")?, "-o")?;
    let mut choice = select::DEFAULT;
    choice.bound = number(option(arguments, "--bound")?, choice.bound * 100.0)? / 100.0;
    choice.miss_rate_min = number(option(arguments, "--miss-rate")?, choice.miss_rate_min * 100.0)? / 100.0;
    let distance = option(arguments, "--distance")?;
    let everything = flag(arguments, "--everything");
    let mut without = Without::default();
    while let Some(name) = option(arguments, "--without")? {
        match &*name {
            "liveness" => without.liveness = true,
            "induction" => without.induction = true,
            "registers" => without.registers = true,
            other => return Err(format!("{other:?} is no optimisation").into()),
        }
    }
    let [program] = &arguments[..] else { return Err(USAGE.into()) };
    let text = std::fs::read_to_string(&profile).map_err(|e| format!("{}: {e}", profile.display()))?;
    let profile = profile::Profile::read(&text)?;
    let data = std::fs::read(program).map_err(|e| format!("{program}: {e}"))?;
    // What a primary waits for one miss.
    let distance_ns = number(distance, profile.memory_ns)?;
    let options = Options { role, choice, everything, distance_ns, without };
    let done =
        instrument::instrument(data, &profile, options).map_err(|e| format!("{program} is refused: {e}"))?;
    run::write_program(&PathBuf::from(&out), &done.data)?;
    println!("{out}: {}", done.report.lines().nth(1).unwrap_or_default());
    if done.taken == 0 {
        println!("{out}: no load has a yield; `whimbrel-harvest report {out}` says why");
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual page into a folder, for the package.
fn man_command(arguments: &[String]) -> Result<ExitCode, Error> {
    let [folder] = arguments else { return Err(USAGE.into()) };
    let usage = USAGE.replace('\\', "\\e").replace('-', "\\-");
    let page = format!(
        ".TH WHIMBREL-HARVEST 1 \"\" \"whimbrel-harvest {}\"\n\
         .SH NAME\nwhimbrel-harvest \\- run other programs while a compiled program waits for memory\n\
         .SH SYNOPSIS\n.B whimbrel-harvest\nCOMMAND [ARGUMENTS]\n\
         .SH DESCRIPTION\nPrograms and libraries that are linked with \\-\\-emit\\-relocs are profiled, instrumented and run in one another's stalls.\n\
         .SH COMMANDS\n.nf\n{usage}.fi\n",
        env!("CARGO_PKG_VERSION")
    );
    let path = PathBuf::from(folder).join("whimbrel-harvest.1");
    std::fs::write(&path, page).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn report_command(arguments: &[String]) -> Result<ExitCode, Error> {
    let [program] = arguments else { return Err(USAGE.into()) };
    let data = std::fs::read(program).map_err(|e| format!("{program}: {e}"))?;
    let report = run::report(&data).ok_or_else(|| format!("{program} is not instrumented"))?;
    print!("{report}");
    Ok(ExitCode::SUCCESS)
}
