//! Runs an instrumented primary with the runtime and its scavengers.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{Error, layout, option};

/// The runtime, beside this program, among what cargo has built for it, or where the package has it.
fn runtime() -> Result<PathBuf, Error> {
    let here = std::env::current_exe()?;
    let folder = here.parent().unwrap_or(Path::new("/"));
    let name = "libwhimbrel_harvest_preload.so";
    [folder.join(name), folder.join("deps").join(name), folder.join("../lib/whimbrel-harvest").join(name)]
        .into_iter()
        // Tests build the second, and leave the first as it is.
        .filter_map(|p| Some((std::fs::metadata(&p).ok()?.modified().ok()?, p)))
        .max_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)))
        .map(|(_, p)| p)
        .ok_or_else(|| format!("{name} is not in {}", folder.display()).into())
}

pub(crate) fn run(arguments: &mut Vec<String>) -> Result<ExitCode, Error> {
    let mut scavengers = Vec::new();
    while let Some(scavenger) = option(arguments, "--scavenger")? {
        let program = scavenger.split(' ').next().unwrap_or_default();
        check(program, layout::ROLE_SCAVENGER, "scavenger")?;
        scavengers.push(scavenger);
    }
    let mut libraries = Libraries { of_primary: vec![runtime()?], of_scavengers: Vec::new() };
    while let Some(library) = option(arguments, "--library")? {
        libraries.add(&library)?;
    }
    let [primary, rest @ ..] = &arguments[..] else { return Err("run: which program?".into()) };
    check(primary, layout::ROLE_PRIMARY, "primary")?;
    let primary = std::fs::canonicalize(primary)?;
    let report = std::env::temp_dir().join(format!("whimbrel-harvest-{}.report", std::process::id()));
    // Each scavenger has libraries of its own, which need a place among the thread's variables.
    let mut tunables = std::env::var("GLIBC_TUNABLES").map(|t| t + ":").unwrap_or_default();
    tunables += &format!("glibc.rtld.nns={}", scavengers.len() + 2);
    let status = Command::new(&primary)
        .args(rest)
        .env("LD_PRELOAD", list_of_paths(&libraries.of_primary))
        .env("GLIBC_TUNABLES", tunables)
        .env("WHIMBREL_HARVEST_SCAVENGERS", scavengers.join("\n"))
        .env("WHIMBREL_HARVEST_LIBRARIES", list_of_paths(&libraries.of_scavengers))
        .env("WHIMBREL_HARVEST_REPORT", &report)
        .status()
        .map_err(|e| format!("{}: {e}", primary.display()))?;
    if let Ok(text) = std::fs::read_to_string(&report) {
        eprint!("{text}");
        std::fs::remove_file(&report)?;
    }
    Ok(match status.code() {
        Some(code) => ExitCode::from(code as u8),
        None => {
            eprintln!("whimbrel-harvest: {} ended with {status}", primary.display());
            ExitCode::FAILURE
        }
    })
}

/// Libraries that are loaded in place of those of the same name.
struct Libraries {
    /// Loaded before the primary, the runtime first.
    of_primary: Vec<PathBuf>,
    /// Loaded before each scavenger, where it is loaded.
    of_scavengers: Vec<PathBuf>,
}

impl Libraries {
    /// Adds an instrumented library to those of its role.
    fn add(&mut self, library: &str) -> Result<(), Error> {
        let path = std::fs::canonicalize(library).map_err(|e| format!("{library}: {e}"))?;
        // The dynamic linker's list of paths knows no quotes.
        if path.to_string_lossy().contains([' ', ':', '\n']) {
            return Err(format!("{library}: a library's path may have no space, colon or line break").into());
        }
        let data = std::fs::read(&path).map_err(|e| format!("{library}: {e}"))?;
        let at = header(&data).ok_or_else(|| format!("{library} is not instrumented"))?;
        match word(&data, at + layout::HEADER_ROLE) {
            Some(layout::ROLE_PRIMARY) => self.of_primary.push(path),
            _ => self.of_scavengers.push(path),
        }
        Ok(())
    }
}

fn list_of_paths(paths: &[PathBuf]) -> OsString {
    paths.iter().map(|p| p.as_os_str()).collect::<Vec<_>>().join(":".as_ref())
}

/// Errors: the program is not instrumented in this role.
fn check(program: &str, role: u64, name: &str) -> Result<(), Error> {
    let data = std::fs::read(program).map_err(|e| format!("{program}: {e}"))?;
    match header(&data) {
        None => Err(format!("{program} is not instrumented").into()),
        Some(at) if word(&data, at + layout::HEADER_ROLE) != Some(role) => {
            Err(format!("{program} is not instrumented as a {name}").into())
        }
        Some(_) => Ok(()),
    }
}

/// Where the header of an instrumented program begins: at a page.
fn header(data: &[u8]) -> Option<usize> {
    (0..data.len()).step_by(4096).rev().find(|&at| data[at..].starts_with(&layout::MAGIC))
}

fn word(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

/// The report in an instrumented program.
pub(crate) fn report(data: &[u8]) -> Option<String> {
    let at = word(data, header(data)? + layout::HEADER_REPORT)? as usize;
    Some(String::from_utf8_lossy(data.get(at..)?).into_owned())
}

/// Writes a program that can be run.
pub(crate) fn write_program(path: &Path, data: &[u8]) -> Result<(), Error> {
    let fail = |e: std::io::Error| format!("{}: {e}", path.display());
    std::fs::write(path, data).map_err(fail)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(fail)?;
    Ok(())
}
