//! `whimbrel support-bundle`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::Running;
use crate::support_bundle;
use whimbrel_cli::{Done, print};

#[derive(Args)]
pub(crate) struct Options {
    /// File to write: an archive that tar opens.
    file: PathBuf,
    #[command(flatten)]
    at: Running,
}

pub(crate) fn run(options: &Options) -> Done {
    let (client, file) = (options.at.client()?, options.at.config_file());
    let names = support_bundle::write(&options.file, &client, file.as_deref())?;
    print(&format!(
        "{} was written, without keys, tokens and identities of subscribers. Look into it before you send it (tar -xf): {}\n",
        options.file.display(),
        names.join(", ")
    ))
}
