//! `whimbrel backup`, `restore` and `migrate`: they work on the store's files themselves.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::backup::{self, Lock, RestoreOrder, Unlock};
use crate::cli::ConfigFile;
use whimbrel_api::audit::{self, AuditedAccess};
use whimbrel_cli::{Done, print};
use whimbrel_node::config;
use whimbrel_node::subscribers;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BackupOptions {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// File to write, readable by its owner only; - writes standard output.
    #[arg(required = true)]
    file: Option<PathBuf>,
    /// Seal the backup for the public key in this file (`whimbrel backup keygen`).
    #[arg(long, value_name = "FILE")]
    recipient: Option<PathBuf>,
    /// Seal the backup with the passphrase in the first line of this file.
    #[arg(long, value_name = "FILE", conflicts_with = "recipient")]
    passphrase_file: Option<PathBuf>,
    /// Do not seal the backup: every reader has the keys in it, and changes to it are not noticed.
    #[arg(long, conflicts_with_all = ["recipient", "passphrase_file"])]
    unsealed: bool,
    /// Leave the key file out: without it the subscribers' keys in the backup cannot be read.
    #[arg(long)]
    without_key: bool,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Subcommand)]
pub(crate) enum BackupCommand {
    /// Make a pair of keys: backups are sealed for the public one, in FILE.pub, and restored with the private one, in FILE.
    Keygen {
        /// File of the private key. Keep it on another host: with it and a backup every SIM can be cloned.
        file: PathBuf,
    },
}

#[derive(Args)]
pub(crate) struct RestoreOptions {
    /// Backup that `whimbrel backup` has written.
    file: PathBuf,
    /// Private key that opens a backup sealed for its public key.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// File whose first line has the passphrase of a backup that was sealed with it.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    passphrase_file: Option<PathBuf>,
    /// Restore a backup that is not sealed: nothing then proves its origin.
    #[arg(long, conflicts_with_all = ["key", "passphrase_file"])]
    unauthenticated: bool,
    /// Let the backup write below this folder, too; may be given several times.
    #[arg(long, value_name = "FOLDER")]
    allow: Vec<PathBuf>,
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
        &AuditedAccess { caller: &caller, user: None, request, subscriber: None, outcome: "done" },
    );
}

pub(crate) fn backup(options: &BackupOptions) -> Done {
    if let Some(BackupCommand::Keygen { file }) = &options.command {
        let public = backup::make_key(file)?;
        return print(&format!(
            "{0} has the private key: keep it on another host, and a copy of it in a safe\n{1} has the public key: whimbrel backup --recipient {1} FILE\n",
            file.display(),
            public.display()
        ));
    }
    let to = options.file.as_ref().ok_or("name the file to write")?;
    let lock = match (&options.recipient, &options.passphrase_file, options.unsealed) {
        (Some(file), ..) => Some(Lock::Recipient(backup::public_key(file)?)),
        (None, Some(file), _) => Some(Lock::Passphrase(backup::passphrase(file)?)),
        (None, None, true) => None,
        (None, None, false) => {
            return Err("choose the readers of the backup: --recipient FILE.pub (`whimbrel backup keygen FILE` makes the keys), --passphrase-file FILE, \
                        or --unsealed for everyone with a copy of it"
                .into());
        }
    };
    let (config, file) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let is_streamed = to.as_os_str() == "-";
    let written = if is_streamed {
        let out = &mut std::io::stdout().lock();
        backup::stream(&config, file.as_deref(), out, !options.without_key, lock.as_ref())?
    } else {
        backup::write(&config, file.as_deref(), to, !options.without_key, lock.as_ref())?
    };
    recorded(&config.store.path, &config.audit, "backup");
    let subscribers = written.subscribers;
    let name = if is_streamed { "the backup".into() } else { to.display().to_string() };
    let mut text = format!("{name} was written: {subscribers} subscribers, and these files:\n");
    for path in &written.files {
        text += &format!("  {}\n", path.display());
    }
    text += match (written.with_key, &lock) {
        (true, None) => {
            "It has the key file: anyone with a copy can clone every SIM. Keep it where only you can read it.\n"
        }
        (true, Some(Lock::Recipient(_))) => {
            "It is sealed: only the private key of that recipient opens it.\n"
        }
        (true, Some(Lock::Passphrase(_))) => "It is sealed: only the passphrase opens it.\n",
        (false, _) => "It lacks the key file: keep that elsewhere, or the subscribers' keys are lost.\n",
    };
    if is_streamed {
        eprint!("{text}");
        return Ok(());
    }
    print(&text)
}

pub(crate) fn restore(options: &RestoreOptions) -> Done {
    let unlock = match (&options.key, &options.passphrase_file) {
        (Some(file), _) => Some(Unlock::Key(backup::private_key(file)?)),
        (None, Some(file)) => Some(Unlock::Passphrase(backup::passphrase(file)?)),
        (None, None) => None,
    };
    let done = backup::restore(&RestoreOrder {
        archive: &options.file,
        configuration: options.config.config_file.as_deref(),
        with_configuration: options.with_configuration,
        allowed: &options.allow,
        unlock,
        unauthenticated: options.unauthenticated,
    })?;
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
