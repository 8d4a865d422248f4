//! `whimbrel backup`, `restore` and `migrate`: they work on the store's files themselves.

use std::path::PathBuf;

use clap::Args;

use super::{Done, print};
use crate::audit::{self, Access};
use crate::cli::ConfigFile;
use crate::{backup, config, subscribers};

#[derive(Args)]
pub(crate) struct BackupOptions {
    /// File to write, readable by its owner only.
    file: PathBuf,
    /// Leave the key file out: without it the subscribers' keys in the backup cannot be read.
    #[arg(long)]
    without_key: bool,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Args)]
pub(crate) struct RestoreOptions {
    /// Backup that `whimbrel backup` has written.
    file: PathBuf,
    /// Restore the configuration and the files that it names, too, although there is a configuration.
    #[arg(long)]
    with_configuration: bool,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Args)]
pub(crate) struct MigrateOptions {
    /// Go back to the layout of the release before this one.
    #[arg(long)]
    back: bool,
    #[command(flatten)]
    config: ConfigFile,
}

/// Records that the subscribers' keys were read or replaced.
fn recorded(store: &std::path::Path, audit: &config::Audit, request: &str) {
    let caller = audit::user();
    audit::record(
        store,
        audit,
        None,
        &Access { caller: &caller, user: None, request, subscriber: None, outcome: "done" },
    );
}

pub(crate) fn backup(options: &BackupOptions) -> Done {
    let (config, file) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let written = backup::write(&config, file.as_deref(), &options.file, !options.without_key)?;
    recorded(&config.store.path, &config.audit, "backup");
    let subscribers = written.subscribers;
    let mut text =
        format!("{} was written: {subscribers} subscribers, and these files:\n", options.file.display());
    for path in &written.files {
        text += &format!("  {}\n", path.display());
    }
    text += match written.with_key {
        true => {
            "It has the key file: anyone with a copy can clone every SIM. Keep it where only you can read it.\n"
        }
        false => "It lacks the key file: keep that elsewhere, or the subscribers' keys are lost.\n",
    };
    print(&text)
}

pub(crate) fn restore(options: &RestoreOptions) -> Done {
    let configuration = options.config.config_file.as_deref();
    let done = backup::restore(&options.file, configuration, options.with_configuration)?;
    recorded(&done.store, &config::Audit::default(), "restore");
    let mut text = format!("{} subscribers were restored, as of {}:\n", done.subscribers, done.created);
    for path in &done.files {
        text += &format!("  {}\n", path.display());
    }
    for path in &done.set_aside {
        text += &format!("the former file is now {}\n", path.display());
    }
    if done.kept_configuration {
        text += "The present configuration was kept; --with-configuration restores that of the backup.\n";
    }
    print(&text)
}

pub(crate) fn migrate(options: &MigrateOptions) -> Done {
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let path = &config.store.path;
    if !path.exists() {
        return Err(format!(
            "there is no store at {}: name the core's configuration with -c",
            path.display()
        ));
    }
    let layout = match options.back {
        true => whimbrel_store::downgrade(path).map_err(|e| e.to_string())?,
        false => {
            // Opening it brings it to this version's layout.
            subscribers::open(&config.store)?;
            whimbrel_store::LAYOUT
        }
    };
    print(&format!("{} has layout {layout}\n", path.display()))
}
