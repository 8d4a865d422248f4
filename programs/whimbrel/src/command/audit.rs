//! `whimbrel audit`: the audit log, checked.

use clap::Subcommand;

use crate::cli::ConfigFile;
use whimbrel_api::audit;
use whimbrel_cli::{Done, print};
use whimbrel_node::config;

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify that no line of the audit log was changed, removed or inserted; the core may run.
    Verify {
        #[command(flatten)]
        config: ConfigFile,
    },
}

pub(crate) fn run(command: &AuditCommand) -> Done {
    let AuditCommand::Verify { config } = command;
    let file = config.config_file.clone().or_else(config::found);
    let store = config::store_of(file.as_deref()).map_err(|e| e.to_string())?;
    let log = audit::verify(&store.path)?;
    let mut text = format!(
        "{} lines of {}: each follows the one before\n",
        log.lines,
        audit::file_of(&store.path).display()
    );
    if log.unchained > 0 {
        text += &format!("{} lines before them are of a release that did not chain\n", log.unchained);
    }
    if !log.is_from_the_beginning {
        text += "the lines before them were deleted when their time was over (`audit.keep_days`)\n";
    }
    text += &format!("hash of the last line: {}\n", log.last);
    text += "Lines that were removed at the end do not show here: compare this hash with the copy at `audit.mirror`.\n";
    print(&text)
}
