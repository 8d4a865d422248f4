//! Instrumented programs do what they did: a yield before every load, other programs between any two of their instructions.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TOOL: &str = env!("CARGO_BIN_EXE_whimbrel-harvest");

/// A folder with a program of `tests/programs`, compiled.
struct Bench {
    folder: tempfile::TempDir,
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn tool<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    Command::new(TOOL).args(arguments).output().expect("the tool runs")
}

/// Whether a compiler can be run here.
fn have(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|o| o.status.success())
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a program; `more` are arguments of the compiler.
    fn compile(&self, source: &str, more: &[&str]) -> PathBuf {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
        let (stem, kind) = source.split_once('.').expect("a source file with an ending");
        let out = self.path(stem);
        let mut command = match kind {
            "c" => Command::new("gcc"),
            "cpp" => Command::new("g++"),
            _ => Command::new("rustc"),
        };
        if kind == "rs" {
            command.args(["-O", "--edition", "2024", "-Clink-arg=-Wl,--emit-relocs"]);
        } else {
            command.args(["-O2", "-w", "-pthread"]);
        }
        command.arg("-o").arg(&out).arg(path).args(more);
        if kind != "rs" {
            command.arg("-lm");
        }
        let done = command.output().expect("a compiler");
        assert!(done.status.success(), "{source}: {}", stderr(&done));
        out
    }

    /// A profile that says nothing of the program but its build, which the refusal of another build names.
    fn empty_profile(&self, program: &Path) -> PathBuf {
        let profile = self.path("profile");
        let write = |build: &str| {
            let text = format!(
                "whimbrel-harvest profile 1\nbuild {build}\nsource none\nmemory-ns 100\ninstruction-ns 0.2\n"
            );
            fs::write(&profile, text).expect("written");
        };
        write("none");
        let refused = self.instrument("primary", program, &profile);
        let text = stderr(&refused);
        assert!(text.contains("the profile is of build none, the program is build "), "{text}");
        write(text.trim().rsplit(' ').next().expect("a build"));
        profile
    }

    fn instrument(&self, role: &str, program: &Path, profile: &Path) -> Output {
        let out = program.with_extension(role);
        let arguments: [&OsStr; 8] = [
            "instrument".as_ref(),
            role.as_ref(),
            "--everything".as_ref(),
            "--profile".as_ref(),
            profile.as_ref(),
            "-o".as_ref(),
            out.as_ref(),
            program.as_ref(),
        ];
        tool(arguments)
    }

    /// Compiles and instruments, with a yield before every load.
    fn everything(&self, source: &str, role: &str) -> (PathBuf, PathBuf) {
        let program = self.compile(source, &["-Wl,--emit-relocs"][..usize::from(!source.ends_with(".rs"))]);
        let profile = self.empty_profile(&program);
        let done = self.instrument(role, &program, &profile);
        assert!(done.status.success(), "{source}: {}", stderr(&done));
        let instrumented = program.with_extension(role);
        (program, instrumented)
    }
}

/// Runs a program with yields at every load beside several that add up memory, and by itself.
fn are_unchanged_as_primaries(sources: &[&str]) {
    let bench = Bench::new();
    let (_, scan) = bench.everything("scan.c", "scavenger");
    for source in sources {
        is_unchanged_as_primary(&bench, source, &scan);
    }
}

fn is_unchanged_as_primary(bench: &Bench, source: &str, scan: &Path) {
    let (program, instrumented) = bench.everything(source, "primary");
    let expected = Command::new(&program).output().expect("runs");
    let alone = Command::new(&instrumented).output().expect("runs");
    assert_eq!(
        (stdout(&alone), alone.status.code()),
        (stdout(&expected), expected.status.code()),
        "{source} alone"
    );
    let scavenger = format!("{} 100000000", scan.display());
    let mut arguments = vec!["run".to_owned()];
    for _ in 0..3 {
        arguments.extend(["--scavenger".to_owned(), scavenger.clone()]);
    }
    arguments.push(instrumented.display().to_string());
    let harvested = tool(arguments);
    let text = stderr(&harvested);
    assert_eq!(
        (stdout(&harvested), harvested.status.code()),
        (stdout(&expected), expected.status.code()),
        "{source} harvested: {text}"
    );
    let yields =
        text.split("harvest: ").nth(1).and_then(|t| t.split(' ').next()).and_then(|n| n.parse::<u64>().ok());
    assert!(yields.is_some_and(|n| n > 1000), "{source}: {text}");
}

/// Runs a program in the stalls of PtrChase: all that it prints is there.
fn is_unchanged_as_scavenger(bench: &Bench, source: &str, chase: &Path) {
    let (program, instrumented) = bench.everything(source, "scavenger");
    let expected = stdout(&Command::new(&program).output().expect("runs"));
    let chase = chase.display().to_string();
    let harvested = tool(["run", "--scavenger", &instrumented.display().to_string(), &chase, "1", "3000000"]);
    let printed = stdout(&harvested);
    assert!(stderr(&harvested).contains(", 1 of 1 scavengers finished"), "{source}: {}", stderr(&harvested));
    assert!(printed.contains(&expected), "{source}: {expected:?} is not in {printed:?}");
    assert_eq!(printed.lines().count(), expected.lines().count() + 1, "{source}: {printed:?}");
}

#[test]
fn lists_tables_and_jumps_are_unchanged_as_primary() {
    are_unchanged_as_primaries(&["lists.c", "tables.c", "jumps.c"]);
}

#[test]
fn numbers_and_vectors_are_unchanged_as_primary() {
    are_unchanged_as_primaries(&["numbers.c", "sorts.c", "wide.c"]);
}

#[test]
fn threads_signals_and_children_are_unchanged_as_primary() {
    are_unchanged_as_primaries(&["threads.c", "signals.c", "processes.c"]);
}

#[test]
fn exceptions_that_unwind_are_unchanged_as_primary() {
    are_unchanged_as_primaries(&["unwinding.rs"]);
    if have("g++") {
        are_unchanged_as_primaries(&["exceptions.cpp"]);
    }
}

#[test]
fn programs_are_unchanged_as_scavengers_and_end_alone() {
    let bench = Bench::new();
    let (_, chase) = bench.everything("ptrchase.c", "primary");
    for source in ["lists.c", "tables.c", "jumps.c", "numbers.c", "sorts.c", "wide.c"] {
        is_unchanged_as_scavenger(&bench, source, &chase);
    }
}

#[test]
fn what_cannot_be_instrumented_is_refused_with_a_reason() {
    let bench = Bench::new();
    let program = bench.compile("lists.c", &["-Wl,--emit-relocs"]);
    let profile = bench.empty_profile(&program);
    let refused = |program: &Path, role: &str, reason: &str| {
        let done = bench.instrument(role, program, &profile);
        assert_eq!(done.status.code(), Some(2), "{reason}");
        assert!(stderr(&done).contains(reason), "{} instead of {reason}", stderr(&done));
    };
    let changed = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut data = fs::read(&program).expect("a program");
        change(&mut data);
        let path = bench.path(name);
        fs::write(&path, data).expect("written");
        path
    };
    refused(&changed("arm", &|d| d[18] = 183), "primary", "only 64-bit x86-64 programs");
    refused(&changed("cut", &|d| d.truncate(100)), "primary", "not an ELF program");
    let writable = changed("writable", &|d| {
        let header = (64..d.len()).step_by(56).find(|&at| d[at..at + 8] == [1, 0, 0, 0, 5, 0, 0, 0]);
        d[header.expect("a segment with code") + 4] = 7;
    });
    refused(&writable, "primary", "both writable and executable");

    assert!(bench.instrument("primary", &program, &profile).status.success());
    refused(&program.with_extension("primary"), "primary", "instrumented already");
    let plain = Bench::new();
    refused(&plain.compile("lists.c", &[]), "primary", "--emit-relocs");
    refused(&plain.compile("lists.c", &["-static", "-Wl,--emit-relocs"]), "primary", "static");
    refused(&plain.compile("lists.c", &["-s"]), "primary", "no ");
    refused(&plain.compile("sorts.c", &["-Wl,--emit-relocs"]), "primary", "the profile is of build");

    let threads = plain.compile("threads.c", &["-Wl,--emit-relocs"]);
    let profile = plain.empty_profile(&threads);
    let done = plain.instrument("scavenger", &threads, &profile);
    assert!(stderr(&done).contains("calls pthread_create: a scavenger has no threads"), "{}", stderr(&done));
    let run = tool(["run", "--scavenger", &threads.display().to_string(), &threads.display().to_string()]);
    assert!(stderr(&run).contains("is not instrumented"), "{}", stderr(&run));
}

#[test]
fn a_profile_decides_which_load_gets_a_yield_and_the_report_says_so() {
    let bench = Bench::new();
    let program = bench.compile("ptrchase.c", &["-Wl,--emit-relocs"]);
    let profile = bench.empty_profile(&program);
    // The load of the chase is the last one of `main` that loads a register through itself.
    let listing =
        Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&program).output().expect("objdump");
    let listing = stdout(&listing);
    let line = listing.lines().rfind(|l| {
        l.split_whitespace().eq([l.split_whitespace().next().unwrap_or(""), "mov", "(%rax),%rax"])
    });
    let Some(line) = line else { return eprintln!("skipped: this compiler chases otherwise") };
    let address = line.trim().split(':').next().expect("an address");
    let mut text = fs::read_to_string(&profile).expect("a profile");
    text += &format!("i 0x{address} 1000 1000 900\n");
    fs::write(&profile, text).expect("written");
    let out = bench.path("out");
    let arguments: [&OsStr; 7] = [
        "instrument".as_ref(),
        "primary".as_ref(),
        "--profile".as_ref(),
        profile.as_ref(),
        "-o".as_ref(),
        out.as_ref(),
        program.as_ref(),
    ];
    assert!(tool(arguments).status.success());
    let report = stdout(&tool(["report".as_ref(), out.as_os_str()]));
    assert!(report.contains(&format!("yield at 0x{address} main+")), "{report}");
    assert!(report.contains("1000 loads, 90 % miss"), "{report}");
    assert!(report.contains("loads without a yield: it did not run in the profile"), "{report}");
}
