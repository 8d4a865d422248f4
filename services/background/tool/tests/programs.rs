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
        if kind == "cpp" {
            command.arg("-std=c++20");
        }
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
        let profile = program.with_extension("profile");
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
        self.instrument_with("--everything", role, program, profile)
    }

    /// `option` has no value, or ends with it.
    fn instrument_with(&self, option: &str, role: &str, program: &Path, profile: &Path) -> Output {
        let out = program.with_extension(role);
        let (option, value) = option.split_once(' ').unwrap_or((option, ""));
        let mut arguments: Vec<&OsStr> = vec!["instrument".as_ref(), role.as_ref(), option.as_ref()];
        arguments.extend((!value.is_empty()).then(|| OsStr::new(value)));
        arguments.extend([
            "--profile".as_ref(),
            profile.as_ref(),
            "-o".as_ref(),
            out.as_os_str(),
            program.as_os_str(),
        ]);
        tool(arguments)
    }

    /// Compiles and instruments, with a yield before every load.
    fn everything(&self, source: &str, role: &str) -> (PathBuf, PathBuf) {
        let program = self.compile(source, arguments_of(source));
        let profile = self.empty_profile(&program);
        let done = self.instrument(role, &program, &profile);
        assert!(done.status.success(), "{source}: {}", stderr(&done));
        let instrumented = program.with_extension(role);
        (program, instrumented)
    }
}

/// What a program is compiled with beside what all are.
fn arguments_of(source: &str) -> &'static [&'static str] {
    match source {
        _ if source.ends_with(".rs") => &[],
        // As a scavenger it would have copies of a library's tables of virtual functions otherwise.
        "virtuals.cpp" | "frames.cpp" => &["-Wl,--emit-relocs", "-fPIC"],
        "interpreter.c" | "masks.c" => &["-Wl,--emit-relocs", "-O3"],
        _ => &["-Wl,--emit-relocs"],
    }
}

/// What a program prints and how it ends.
fn outcome(output: &Output) -> (String, Option<i32>) {
    (stdout(output), output.status.code())
}

/// Loads with a yield in an instrumented program.
fn sites(instrumented: &Path) -> usize {
    let report = stdout(&tool(["report".as_ref(), instrumented.as_os_str()]));
    report.lines().filter(|l| l.starts_with("yield at ")).count()
}

/// A profile by which some of the loads miss, of those that have a yield in a program with yields everywhere.
fn partial_profile(program: &Path, instrumented: &Path) -> PathBuf {
    let report = stdout(&tool(["report".as_ref(), instrumented.as_os_str()]));
    let mut text = fs::read_to_string(program.with_extension("profile")).expect("a profile");
    let places =
        report.lines().filter_map(|l| l.strip_prefix("yield at ")).filter_map(|l| l.split(' ').next());
    for (k, at) in places.enumerate() {
        text += &format!("i {at} 1000 1000 {}\n", [990, 3, 700][k % 3]);
    }
    let profile = program.with_extension("partial");
    fs::write(&profile, text).expect("written");
    profile
}

/// The corpus: programs, and why one cannot be a scavenger.
struct Corpus {
    bench: Bench,
    /// PtrChase as the primary, and Scan as the scavenger, of all others.
    chase: PathBuf,
    scan: PathBuf,
}

impl Corpus {
    fn new() -> Self {
        let bench = Bench::new();
        let (_, chase) = bench.everything("ptrchase.c", "primary");
        let (_, scan) = bench.everything("scan.c", "scavenger");
        Self { bench, chase, scan }
    }

    /// The program prints what it did: with yields everywhere and where a profile has them, by itself and beside others, as primary and as
    /// scavenger, unless it is refused as one for this reason.
    fn is_unchanged(&self, source: &str, refused: Option<&str>) {
        let program = self.bench.compile(source, arguments_of(source));
        let expected = outcome(&Command::new(&program).output().expect("runs"));
        let profile = self.bench.empty_profile(&program);
        let primary = self.instrumented("--everything", "primary", &program, &profile);
        let alone = outcome(&Command::new(&primary).output().expect("runs"));
        assert_eq!(alone, expected, "{source} alone");
        let yields = self.beside_scans(source, &primary, &expected);
        assert!(yields > 100, "{source}: {yields} yields");
        let (partial, all) = (partial_profile(&program, &primary), sites(&primary));
        let primary = self.instrumented("--bound 15", "primary", &program, &partial);
        self.beside_scans(source, &primary, &expected);
        assert!(
            sites(&primary) < all,
            "{source}: {} yields by its profile, {all} everywhere",
            sites(&primary)
        );

        if let Some(reason) = refused {
            let done = self.bench.instrument("scavenger", &program, &profile);
            assert_eq!(done.status.code(), Some(2), "{source}: {reason}");
            assert!(stderr(&done).contains(reason), "{source}: {} instead of {reason}", stderr(&done));
            return;
        }
        for (option, profile) in [("--everything", &profile), ("--distance 40", &partial)] {
            let scavenger = self.instrumented(option, "scavenger", &program, profile);
            let alone = outcome(&Command::new(&scavenger).output().expect("runs"));
            assert_eq!(alone, expected, "{source} alone as a scavenger");
            self.in_stalls(source, &scavenger, &expected.0);
        }
    }

    fn instrumented(&self, option: &str, role: &str, program: &Path, profile: &Path) -> PathBuf {
        let done = self.bench.instrument_with(option, role, program, profile);
        assert!(done.status.success(), "{}: {}", program.display(), stderr(&done));
        program.with_extension(role)
    }

    /// Runs it beside three that add up memory; how often it yielded.
    fn beside_scans(&self, source: &str, primary: &Path, expected: &(String, Option<i32>)) -> u64 {
        let scavenger = format!("{} 100000000", self.scan.display());
        let mut arguments = vec!["run".to_owned()];
        for _ in 0..3 {
            arguments.extend(["--scavenger".to_owned(), scavenger.clone()]);
        }
        arguments.push(primary.display().to_string());
        let harvested = tool(arguments);
        let text = stderr(&harvested);
        assert_eq!(&outcome(&harvested), expected, "{source} harvested: {text}");
        let yields = text.split("harvest: ").nth(1).and_then(|t| t.split(' ').next());
        yields.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{source}: {text}"))
    }

    /// Runs it in the stalls of PtrChase: all that it prints is there, what its destructors print, too.
    fn in_stalls(&self, source: &str, scavenger: &Path, expected: &str) {
        let (scavenger, chase) = (scavenger.display().to_string(), self.chase.display().to_string());
        let harvested = tool(["run", "--scavenger", &scavenger, &chase, "1", "3000000"]);
        let (printed, text) = (stdout(&harvested), stderr(&harvested));
        assert!(text.contains(", 1 of 1 scavengers finished"), "{source}: {text}");
        assert!(printed.contains(expected), "{source}: {expected:?} is not in {printed:?}");
        assert_eq!(printed.lines().count(), expected.lines().count() + 1, "{source}: {printed:?}");
    }
}

const THREADS: Option<&str> = Some("calls pthread_create: a scavenger has no threads");
const SIGNALS: Option<&str> = Some(": signals belong to the primary");
const CHILDREN: Option<&str> = Some("calls fork: a scavenger has no process of its own");
const COPIES: Option<&str> = Some("of a library, which a scavenger does not share; compile it with -fPIC");

#[test]
fn lists_tables_and_jumps_are_unchanged() {
    let corpus = Corpus::new();
    for source in ["lists.c", "tables.c", "jumps.c", "recursion.c", "interpreter.c", "text.c"] {
        corpus.is_unchanged(source, None);
    }
}

#[test]
fn numbers_vectors_and_functions_found_at_run_time_are_unchanged() {
    let corpus = Corpus::new();
    for source in ["numbers.c", "sorts.c", "wide.c", "masks.c", "loaded.c", "graph.c"] {
        corpus.is_unchanged(source, None);
    }
}

#[test]
fn threads_signals_and_children_are_unchanged() {
    let corpus = Corpus::new();
    corpus.is_unchanged("threads.c", THREADS);
    corpus.is_unchanged("signals.c", SIGNALS);
    corpus.is_unchanged("faults.c", SIGNALS);
    corpus.is_unchanged("processes.c", CHILDREN);
}

#[test]
fn rust_with_panics_that_unwind_is_unchanged() {
    let corpus = Corpus::new();
    corpus.is_unchanged("unwinding.rs", THREADS);
    corpus.is_unchanged("traits.rs", THREADS);
    corpus.is_unchanged("generic.rs", Some("destructors of a thread's variables"));
}

#[test]
fn cpp_with_exceptions_is_unchanged() {
    if !have("g++") {
        return eprintln!("skipped: no g++");
    }
    let corpus = Corpus::new();
    corpus.is_unchanged("exceptions.cpp", COPIES);
    corpus.is_unchanged("virtuals.cpp", None);
    corpus.is_unchanged("frames.cpp", None);
    corpus.is_unchanged("workers.cpp", Some("_M_start_thread"));
}

#[test]
fn a_scavenger_has_handlers_of_signals_that_are_never_sent_to_it() {
    let corpus = Corpus::new();
    corpus.is_unchanged("interrupts.c", None);
    // One for a fault of its own would have to be called, and one that it raises would be the process's: that scavenger ends, and the primary goes on.
    let chase = corpus.chase.display().to_string();
    for (argument, reason) in [
        ("faults", "wants to handle signal 11, but signals belong to the primary"),
        ("raises", "raises signal 2, which would be the primary's"),
    ] {
        let scavenger = format!("{} {argument}", corpus.bench.path("interrupts.scavenger").display());
        let harvested = tool(["run", "--scavenger", &scavenger, &chase, "1", "3000000"]);
        let (printed, text) = (stdout(&harvested), stderr(&harvested));
        assert_eq!((printed.lines().count(), harvested.status.code()), (1, Some(0)), "{printed:?}: {text}");
        assert!(text.contains(reason), "{text}");
        assert!(text.contains(", 1 of 1 scavengers finished"), "{text}");
    }
}

#[test]
fn a_thread_that_began_without_scavengers_gets_those_of_one_that_waits_for_it() {
    let corpus = Corpus::new();
    let (program, primary) = corpus.bench.everything("pool.c", "primary");
    let expected = outcome(&Command::new(&program).output().expect("runs"));
    let yields = corpus.beside_scans("pool.c", &primary, &expected);
    // The main thread has but the few loads of its own; the other has 10,000 in each of twenty jobs.
    assert!(yields > 100_000, "{yields} yields");
}

#[test]
fn loads_of_a_shared_library_yield_too() {
    let corpus = Corpus::new();
    let bench = &corpus.bench;
    let library = bench.compile("shelf.c", &["-shared", "-fPIC", "-Wl,--emit-relocs,-soname,libshelf.so"]);
    let original = bench.path("libshelf.so");
    fs::rename(&library, &original).expect("renamed");
    let folder = bench.folder.path().display().to_string();
    let program = bench.compile(
        "shelves.c",
        &["-Wl,--emit-relocs", "-L", &folder, "-lshelf", &format!("-Wl,-rpath,{folder}")],
    );
    let expected = outcome(&Command::new(&program).output().expect("runs"));
    assert_eq!(expected.1, Some(3));
    let instrumented = |role: &str, what: &Path| {
        let done = bench.instrument(role, what, &bench.empty_profile(what));
        assert!(done.status.success(), "{}: {}", what.display(), stderr(&done));
        what.with_extension(role).display().to_string()
    };
    let as_primary = [instrumented("primary", &program), instrumented("primary", &original)];
    let as_scavenger = [instrumented("scavenger", &program), instrumented("scavenger", &original)];

    let scan = format!("{} 100000000", corpus.scan.display());
    let yields = |more: &[&str]| {
        let mut arguments = vec!["run", "--scavenger", &scan];
        arguments.extend(more);
        arguments.push(&as_primary[0]);
        let harvested = tool(&arguments);
        let text = stderr(&harvested);
        assert_eq!(outcome(&harvested), expected, "{more:?}: {text}");
        let yields = text.split("harvest: ").nth(1).and_then(|t| t.split(' ').next());
        yields.and_then(|n| n.parse::<u64>().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let (without, with) = (yields(&[]), yields(&["--library", &as_primary[1]]));
    // Thirty times through all items of all shelves.
    assert!(with > without + 30 * 3000, "{without} yields without the library, {with} with it");
    // The primary's library is not the scavengers', though they have one of the same name.
    yields(&["--library", &as_primary[1], "--library", &as_scavenger[1], "--scavenger", &as_scavenger[0]]);

    let chase = corpus.chase.display().to_string();
    let in_stalls = |more: &[&str]| {
        let mut arguments = vec!["run", "--scavenger", &as_scavenger[0]];
        arguments.extend(more);
        arguments.extend([&*chase, "1", "3000000"]);
        let harvested = tool(&arguments);
        let (printed, text) = (stdout(&harvested), stderr(&harvested));
        assert_eq!(harvested.status.code(), Some(0), "{more:?}: {text}");
        assert!(printed.contains(&expected.0), "{more:?}: {printed}");
        assert!(text.contains(", 1 of 1 scavengers finished"), "{more:?}: {text}");
    };
    in_stalls(&["--library", &as_scavenger[1]]);

    let refused = |library: &Path, reason: &str| {
        let library = library.display().to_string();
        let done = tool(["run", "--scavenger", &scan, "--library", &library, &as_primary[0]]);
        assert_eq!(done.status.code(), Some(2), "{reason}");
        assert!(stderr(&done).contains(reason), "{} instead of {reason}", stderr(&done));
    };
    refused(&original, "is not instrumented");
    let nameless = bench.compile("shelf.c", &["-shared", "-fPIC", "-Wl,--emit-relocs"]);
    let done = bench.instrument("primary", &nameless, &bench.empty_profile(&nameless));
    assert!(stderr(&done).contains("the library has no name (DT_SONAME)"), "{}", stderr(&done));
}

#[test]
fn samples_of_loads_make_a_profile() {
    let bench = Bench::new();
    let program = bench.compile("ptrchase.c", &["-Wl,--emit-relocs"]);
    let everything = bench.empty_profile(&program);
    assert!(bench.instrument("primary", &program, &everything).status.success());
    let report = stdout(&tool(["report".as_ref(), program.with_extension("primary").as_os_str()]));
    let places: Vec<u64> = report
        .lines()
        .filter_map(|l| l.strip_prefix("yield at 0x")?.split(' ').next())
        .filter_map(|at| u64::from_str_radix(at, 16).ok())
        .collect();
    let [often, seldom] = [places[0], places[1]];
    // A text as `perf script` of Linux prints it, made for this program: the values of data sources are those of published lines of PEBS
    // (first cache) and IBS (memory). The program is mapped as the linker lays it out: its code's offsets in the file are its addresses.
    let path = program.canonicalize().expect("a program").display().to_string();
    let base = 0x55d0_c1a0_0000_u64;
    let mut text = format!(
        "ptrchase  4711/4711  12.000102: PERF_RECORD_MMAP2 4711/4711: [{base:#x}(0x1000) @ 0 fe:00 1234 0]: r--p {path}\n\
         ptrchase  4711/4711  12.000103: PERF_RECORD_MMAP2 4711/4711: [{:#x}(0x1000) @ 0x1000 fe:00 1234 0]: r-xp {path}\n",
        base + 0x1000
    );
    let mut sample = |at: u64, source: &str| {
        text += &format!(
            "ptrchase  4711/4711  12.000345:       1000 cpu/mem-loads,ldlat=3/P:     7f26a1b2c3c0 {source}    412     {:x}\n",
            base + at
        );
    };
    let memory = "      1a29081042 |OP LOAD|LVL RAM hit|SNP N/A|TLB L2 hit|LCK N/A|BLK  N/A";
    let first_cache = "     10268100142 |OP LOAD|LVL L1 or L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A";
    for k in 0..10 {
        sample(often, if k < 8 { memory } else { first_cache });
        sample(seldom, if k < 1 { memory } else { first_cache });
    }
    let (samples, profile, out) = (bench.path("samples"), bench.path("of-samples"), bench.path("out"));
    let profiled = |text: &str| {
        fs::write(&samples, text).expect("written");
        tool([
            "profile".as_ref(),
            "--perf".as_ref(),
            samples.as_os_str(),
            "--memory-ns".as_ref(),
            "100".as_ref(),
            "-o".as_ref(),
            profile.as_os_str(),
            program.as_os_str(),
        ])
    };
    let done = profiled(&text);
    assert!(done.status.success(), "{}", stderr(&done));
    let done = tool([
        "instrument".as_ref(),
        "primary".as_ref(),
        "--bound".as_ref(),
        "1000".as_ref(),
        "--profile".as_ref(),
        profile.as_os_str(),
        "-o".as_ref(),
        out.as_os_str(),
        program.as_os_str(),
    ]);
    assert!(done.status.success(), "{}", stderr(&done));
    let report = stdout(&tool(["report".as_ref(), out.as_os_str()]));
    assert!(report.contains("profile by perf, 20 samples of loads"), "{report}");
    let yields: Vec<&str> = report.lines().filter(|l| l.starts_with("yield at ")).collect();
    assert_eq!(yields.len(), 1, "{report}");
    assert!(yields[0].starts_with(&format!("yield at {often:#x} main+")), "{report}");
    assert!(yields[0].ends_with("10000 loads, 80 % miss"), "{report}");

    let refused = |text: &str, reason: &str| {
        let done = profiled(text);
        assert_eq!(done.status.code(), Some(2), "{reason}");
        assert!(stderr(&done).contains(reason), "{} instead of {reason}", stderr(&done));
    };
    let without_mappings: String = text.lines().skip(2).map(|l| format!("{l}\n")).collect();
    refused(&without_mappings, "and none says where it was mapped; print samples with `perf script -F");
    refused("", "of 0 samples 0 are of loads");
    refused(&text.replace("ldlat=3/P:     7f26a1b2c3c0       1a", "ldlat=3/P:     zz"), "line 3: ");
}

#[test]
fn assembly_that_points_the_stack_pointer_at_data_is_left_as_it_is() {
    let corpus = Corpus::new();
    corpus.is_unchanged("odd_stack.c", None);
    let report = stdout(&tool(["report".as_ref(), corpus.bench.path("odd_stack.scavenger").as_os_str()]));
    assert!(
        report.contains("function gather is not changed: it changes the stack pointer in an unusual way"),
        "{report}"
    );
}

#[test]
fn a_primary_that_makes_its_code_writable_is_ended_with_the_reason() {
    let bench = Bench::new();
    let (_, scan) = bench.everything("scan.c", "scavenger");
    let (_, primary) = bench.everything("self_modifying.c", "primary");
    let (scan, primary) = (format!("{} 1000000", scan.display()), primary.display().to_string());
    for by in ["mprotect", "syscall"] {
        let ended = tool(["run", "--scavenger", &scan, &primary, by]);
        assert_eq!((stdout(&ended), ended.status.code()), (String::new(), Some(126)), "{by}");
        assert!(
            stderr(&ended).contains("code that changes itself cannot be harvested"),
            "{}",
            stderr(&ended)
        );
    }
}

#[test]
fn a_scavenger_with_variables_of_a_thread_is_refused() {
    let bench = Bench::new();
    // Without the refusal it finds what the primary, or its C library, has at this place: it printed 0 here.
    fs::write(
        bench.path("own.c"),
        "#include <stdio.h>\n__thread int first = 1;\nint main(int n, char **_) { first += n; printf(\"%d\\n\", first); }\n",
    )
    .expect("written");
    let program = bench.path("own");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-w", "-fPIC", "-Wl,--emit-relocs", "-o"]).arg(&program).arg(bench.path("own.c"));
    assert!(compiler.status().expect("a compiler").success());
    let profile = bench.empty_profile(&program);
    let done = bench.instrument("scavenger", &program, &profile);
    assert_eq!(done.status.code(), Some(2));
    assert!(stderr(&done).contains("the program has variables of a thread"), "{}", stderr(&done));
    assert!(bench.instrument("primary", &program, &profile).status.success());
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

    // Go's compiler writes this section, whatever links the program.
    let (with_go, section) = (plain.path("go"), plain.path("section"));
    fs::write(&section, "Go buildinf:").expect("written");
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--add-section").arg(format!(".go.buildinfo={}", section.display()));
    assert!(objcopy.arg(&program).arg(&with_go).status().expect("objcopy").success());
    refused(&with_go, "primary", "a Go program: its goroutines have stacks of a few KiB");

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
    // The load of the chase is the only one that loads a register through itself.
    let listing =
        Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(&program).output().expect("objdump");
    let listing = stdout(&listing);
    let line = listing.lines().find(|l| {
        let operands = l.split_once("mov ").and_then(|(_, operands)| operands.trim().split_once("),"));
        operands.is_some_and(|(from, to)| from.strip_prefix('(') == Some(to))
    });
    let line = line.expect("a load of a register through itself");
    let address = line.trim().split(':').next().expect("an address");
    let mut text = fs::read_to_string(&profile).expect("a profile");
    text += &format!("i 0x{address} 1000 1000 950\n");
    fs::write(&profile, text).expect("written");
    let out = bench.path("out");
    let instrument = |role: &str| {
        let arguments: [&OsStr; 7] = [
            "instrument".as_ref(),
            role.as_ref(),
            "--profile".as_ref(),
            profile.as_ref(),
            "-o".as_ref(),
            out.as_ref(),
            program.as_ref(),
        ];
        assert!(tool(arguments).status.success());
        stdout(&tool(["report".as_ref(), out.as_os_str()]))
    };
    let report = instrument("primary");
    assert!(report.contains(&format!("yield at 0x{address} main+")), "{report}");
    assert!(report.contains("1000 loads, 95 % miss"), "{report}");
    assert!(report.contains("loads without a yield: it did not run in the profile"), "{report}");

    // As a scavenger it goes on to the next one at each load, and its loop has no other yield: it would break the chain.
    let report = instrument("scavenger");
    assert!(report.contains("95 % miss; goes on to the next scavenger"), "{report}");
    let load = u64::from_str_radix(address, 16).expect("an address");
    let in_chase = report.lines().filter_map(|l| l.strip_prefix("yield in the loop at 0x")).any(|l| {
        let at = l.split(' ').next().and_then(|at| u64::from_str_radix(at, 16).ok());
        at.is_some_and(|at| (load..load + 16).contains(&at))
    });
    assert!(!in_chase, "{report}");
}
