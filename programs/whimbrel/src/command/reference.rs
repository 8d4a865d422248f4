//! Pages of the documentation that the program writes itself (`docs/reference/`).

use clap::{Command, ValueEnum};
use whimbrel_cli::{Done, print};

/// A page of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    /// All configuration keys, with types, defaults and bounds.
    Configuration,
    /// All routes of the API, and its schemas.
    Api,
    /// All commands, with their options.
    Cli,
    /// All metrics, with kind and labels.
    Metrics,
}

/// Prints a page; `command` is the command line.
pub(crate) fn run(page: Page, command: Command) -> Done {
    print(&match page {
        Page::Configuration => whimbrel_node::config::reference(),
        Page::Api => whimbrel_api::reference(),
        Page::Cli => cli(command),
        Page::Metrics => whimbrel_node::observation::metrics_page(),
    })
}

/// The page `docs/reference/cli.md`.
pub(crate) fn cli(command: Command) -> String {
    const EXIT_STATUS: &str = "Commands that change a UE, a session or\na gNB report the outcome in their exit status ([operations.md](../operations.md)).";
    whimbrel_cli::reference::page(command, "whimbrel reference cli", EXIT_STATUS)
}
