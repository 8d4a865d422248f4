//! The command line.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use whimbrel_cli::pages::PageCommand;
use whimbrel_cli::{Done, print};

use crate::{demo, ran};

/// Emulated gNBs and UEs for a running core, and demonstrations that start a core.
#[derive(Parser)]
#[command(name = "whimbrel-lab", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a core in a network namespace, let emulated UEs use it, and print what was measured.
    Demo(Box<demo::Options>),
    /// Run a measurement on a core that is started for it.
    #[cfg(any(test, feature = "bench"))]
    Bench {
        #[command(subcommand)]
        bench: crate::bench::Bench,
    },
    /// Emulate gNBs and UEs that use a running core, here or on another host.
    Ran(Box<ran::Options>),
    /// Print the reference of the commands as Markdown (docs/reference).
    Reference,
    #[command(flatten)]
    Pages(PageCommand),
}

/// Runs the command that the program was started with.
pub(crate) fn run() -> ExitCode {
    whimbrel_cli::exit_status(command(Cli::parse().command))
}

/// Runs a command. Errors: one sentence.
fn command(command: Command) -> Result<ExitCode, String> {
    let done: Done = match command {
        Command::Demo(options) => demo::run(&options),
        #[cfg(any(test, feature = "bench"))]
        Command::Bench { bench } => crate::bench::run(&bench),
        Command::Ran(options) => return ran::run(&options),
        Command::Reference => print(&reference()),
        Command::Pages(command) => command.run(Cli::command()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// The page `docs/reference/cli-lab.md`.
fn reference() -> String {
    whimbrel_cli::reference::page(Cli::command(), "whimbrel-lab reference", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test] // CONTRIBUTING.md: a document that shows a command shows one that exists, with options that it has
    fn commands_in_documents_exist() {
        let found = whimbrel_cli::documents::commands(&Cli::command());
        let wrong: Vec<_> = found.iter().filter(|(_, checked)| checked.is_err()).collect();
        assert!(found.len() > 20, "the documents show commands, and {} were found", found.len());
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test] // CONTRIBUTING.md: what the documents say of a command is what it does
    fn the_command_reference_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli-lab.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == reference(), "docs/reference is stale: ./x reference");
    }
}
