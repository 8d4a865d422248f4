//! `whimbrel-broker epoch`.

use clap::Subcommand;
use whimbrel_broker_client::{hex, now, random};
use whimbrel_broker_server::storage::Storage;
use whimbrel_cli::{Done, print, table};
use whimbrel_open::crypto::PrivateKey;

use crate::cli::{BrokerFile, date};

#[derive(Subcommand)]
pub(crate) enum EpochCommand {
    /// List the keys, the current one last.
    List {
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Begin an epoch with a new key: users learn it at their next attach.
    Begin {
        #[command(flatten)]
        config: BrokerFile,
    },
    /// End an epoch and destroy its key: what users seal to it opens no more, and they learn the current key.
    End {
        /// Identifier of the key.
        id: u8,
        #[command(flatten)]
        config: BrokerFile,
    },
}

pub(crate) fn run(command: EpochCommand) -> Done {
    match command {
        EpochCommand::List { config } => {
            let epochs = config.storage()?.epochs().map_err(|e| e.to_string())?;
            let last = epochs.last().map(|e| e.id);
            let row = |e: &whimbrel_broker_server::storage::Epoch| {
                let state = if Some(e.id) == last { "current" } else { "former" };
                vec![e.id.to_string(), state.into(), date(e.begun_s), hex(&e.key.share().0)]
            };
            print(&table(
                &["KEY", "STATE", "BEGUN", "PUBLIC KEY"],
                &epochs.iter().map(row).collect::<Vec<_>>(),
            ))
        }
        EpochCommand::Begin { config } => {
            let key = PrivateKey::new(random()?);
            let id = config.storage()?.begin_epoch(key, now()).map_err(|e| e.to_string())?;
            print(&format!("epoch {id} has begun\n"))
        }
        EpochCommand::End { id, config } => {
            config.storage()?.end_epoch(id).map_err(|e| e.to_string())?;
            print(&format!("epoch {id} has ended, and its key is destroyed\n"))
        }
    }
}
