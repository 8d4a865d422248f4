//! The programs that demonstrations and measurements start: the core, and the broker.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that is not this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `whimbrel`.
    Core,
    /// `whimbrel-broker`.
    Broker,
}

impl Program {
    /// Its name, which is that of its file and of its package.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Core => "whimbrel",
            Self::Broker => "whimbrel-broker",
        }
    }

    /// The environment variable that names its file.
    fn variable(self) -> &'static str {
        match self {
            Self::Core => "WHIMBREL",
            Self::Broker => "WHIMBREL_BROKER",
        }
    }

    /// Its file: the one beside this program, which is of the same build; else the one that its variable names; else the first in PATH.
    /// Errors: one sentence.
    pub(crate) fn file(self) -> Result<PathBuf, String> {
        let own = env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
        let (named, path) = (env::var_os(self.variable()), env::var_os("PATH").unwrap_or_default());
        self.find(own.parent(), named.as_deref(), &path)
    }

    fn find(self, beside: Option<&Path>, named: Option<&OsStr>, path: &OsStr) -> Result<PathBuf, String> {
        let beside = beside.map(|folder| folder.join(self.name())).filter(|file| file.is_file());
        let in_path =
            || env::split_paths(path).map(|folder| folder.join(self.name())).find(|file| file.is_file());
        beside.or_else(|| named.map(PathBuf::from)).or_else(in_path).ok_or_else(|| {
            let (name, variable) = (self.name(), self.variable());
            format!(
                "the program {name} is neither beside this one nor in PATH: install the package {name}, build it with `./x demo`, or set \
                 {variable} to its file"
            )
        })
    }

    /// A command that runs it. Errors: one sentence.
    pub(crate) fn command(self) -> Result<Command, String> {
        self.file().map(Command::new)
    }

    /// The same on one processor.
    pub(crate) fn command_on(self, cpu: Option<u32>) -> Result<Command, String> {
        let Some(cpu) = cpu else { return self.command() };
        let mut taskset = Command::new("taskset");
        taskset.args(["--cpu-list", &cpu.to_string()]).arg(self.file()?);
        Ok(taskset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_the_same_build_comes_before_the_named_one_and_that_of_the_path() {
        let [build, path] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let in_path = path.path().join("whimbrel");
        std::fs::write(&in_path, "").unwrap();
        let find = |named: Option<&str>| {
            Program::Core.find(Some(build.path()), named.map(OsStr::new), path.path().as_os_str())
        };
        assert_eq!(find(None), Ok(in_path));
        assert_eq!(find(Some("/opt/core")), Ok("/opt/core".into()));
        std::fs::write(build.path().join("whimbrel"), "").unwrap();
        assert_eq!(find(Some("/opt/core")), Ok(build.path().join("whimbrel")));
    }

    #[test]
    fn the_sentence_of_an_absent_program_says_how_to_get_it() {
        let absent = Program::Broker.find(None, None, OsStr::new("")).unwrap_err();
        for part in ["whimbrel-broker", "./x demo", "WHIMBREL_BROKER"] {
            assert!(absent.contains(part), "{absent}");
        }
    }
}
