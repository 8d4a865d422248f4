//! Profiles with callgrind, where there are no performance counters.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::calibrate::Cache;
use crate::elf::ElfProgram;
use crate::profile::{self, Profile};

/// Runs of a program by itself, and how long they last together before there is no other.
const RUNS_MAX: u32 = 16;
const RUNS_LAST: Duration = Duration::from_millis(400);

/// Reads the program, or the library, that a profile is of; with the path by which processes have it.
pub(crate) fn read_object(object: &str) -> Result<(ElfProgram, PathBuf), Error> {
    let path = std::fs::canonicalize(object).map_err(|e| format!("{object}: {e}"))?;
    let read = ElfProgram::read(std::fs::read(&path)?).map_err(|e| format!("{object} is refused: {e}"))?;
    Ok((read, path))
}

/// Runs a program by itself, to see what an instruction takes, and under callgrind with the given last cache. `library`: the counts are of this one
/// of its libraries.
pub(crate) fn profile(command: &[String], library: Option<&str>, cache: Cache) -> Result<Profile, Error> {
    let [program, arguments @ ..] = command else { return Err("profile: which program?".into()) };
    let path = std::fs::canonicalize(program).map_err(|e| format!("{program}: {e}"))?;
    let (read, object) = read_object(library.unwrap_or(program))?;
    // The kernel counts as computing what runs when its timer ticks, every few milliseconds: several runs, if one is short.
    let (begin, begun) = (children_ns(), Instant::now());
    let mut times = 0;
    while times < RUNS_MAX && begun.elapsed() < RUNS_LAST {
        run_quietly(Command::new(&path).args(arguments), program)?;
        times += 1;
    }
    let ns = (children_ns() - begin) / f64::from(times);

    let folder = std::env::temp_dir().join(format!("whimbrel-harvest-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let out = folder.join("callgrind");
    let ll = format!("{},{},{}", cache.octets, cache.ways, cache.line);
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args([
            "--tool=callgrind",
            "--cache-sim=yes",
            // What is read in order, processors load ahead.
            "--simulate-hwpref=yes",
            "--dump-instr=yes",
            "--compress-pos=no",
            "--compress-strings=no",
        ])
        .arg(format!("--LL={ll}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(&path)
        .args(arguments);
    let done = run_quietly(&mut valgrind, "valgrind").and_then(|()| Ok(std::fs::read_to_string(&out)?));
    std::fs::remove_dir_all(&folder)?;
    let (mut profile, totals) = profile::from_callgrind(&done?, &name(&object))?;
    if profile.instructions.is_empty() {
        return Err(format!("{program} ran nothing of {}", name(&object)).into());
    }
    profile.build = read.build;
    profile.source = format!("callgrind LL={ll}");
    profile.memory_ns = cache.memory_ns;
    let computing = ns - totals.misses as f64 * cache.memory_ns;
    // A processor completes no more than six instructions a cycle, and none in less than a tenth of that time.
    profile.instruction_ns = (computing / totals.runs.max(1) as f64).clamp(0.05, 5.0);
    Ok(profile)
}

pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}

fn run_quietly(command: &mut Command, name: &str) -> Result<(), Error> {
    let status =
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(|e| format!("{name}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}").into()) }
}

/// Nanoseconds that children have computed so far.
fn children_ns() -> f64 {
    // SAFETY: all octets zero are a value of the structure, and the call overwrites it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    usage.ru_utime.tv_sec as f64 * 1e9 + usage.ru_utime.tv_usec as f64 * 1e3
}
