//! Completions and manual pages of a program, which packages install.

use std::path::PathBuf;

use clap::{Command, Subcommand};

use super::{Done, print};

/// Commands that write such pages; each program has them.
#[derive(Subcommand)]
pub enum PageCommand {
    /// Print a shell's completions of this command line.
    Completions {
        /// The shell that reads them.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    #[command(hide = true)]
    Man {
        /// The folder that the pages are written to.
        folder: PathBuf,
    },
}

impl PageCommand {
    /// Writes the pages of a command line. Errors: one sentence.
    pub fn run(self, mut command: Command) -> Done {
        match self {
            Self::Completions { shell } => print(&completions(shell, &mut command)),
            Self::Man { folder } => {
                let written = clap_mangen::generate_to(command, &folder);
                written.map_err(|e| format!("{} cannot be written: {e}", folder.display()))
            }
        }
    }
}

/// A shell's completions of a command line.
pub fn completions(shell: clap_complete::Shell, command: &mut Command) -> String {
    let (mut text, name) = (Vec::new(), command.get_name().to_owned());
    clap_complete::generate(shell, command, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
