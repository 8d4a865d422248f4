//! `whimbrel capture`: the messages of a UE, for Wireshark and tshark.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cli::Running;
use whimbrel_cli::Done;
use whimbrel_node::client::path_part;

#[derive(Args)]
pub(crate) struct Options {
    /// The UE: its SUPI, imsi-999700000000001 or its digits.
    #[arg(long, value_name = "SUPI")]
    ue: String,
    /// Go on with new messages, and the UE's packets on N3, until the reader ends: `whimbrel capture --ue SUPI --live | wireshark -k -i -`.
    #[arg(long)]
    live: bool,
    /// Write into this file instead of the standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    at: Running,
}

pub(crate) fn run(options: &Options) -> Done {
    let path = format!("/api/v1/ues/{}/capture?live={}", path_part(&options.ue), options.live);
    let client = options.at.client()?;
    match &options.output {
        None => client.copy(&path, &mut std::io::stdout().lock()),
        Some(file) => {
            use std::os::unix::fs::OpenOptionsExt;
            // It holds identities, and what UEs sent.
            let made =
                std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
            let mut out = made.map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
            client.copy(&path, &mut out)?;
            out.flush().map_err(|e| format!("{} cannot be written: {e}", file.display()))
        }
    }
}
