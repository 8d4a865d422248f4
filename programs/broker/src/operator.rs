//! `whimbrel-broker operator`.

use clap::Subcommand;
use serde_json::json;
use whimbrel_broker_server::storage::{KnownOperator, Storage};
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_open::id::OperatorId;

use crate::cli::BrokerFile;

#[derive(Subcommand)]
pub(crate) enum OperatorCommand {
    /// Add an operator, or change what is known of it. A running broker takes it up within a second.
    Add {
        /// PLMN, or PLMN and NID, such as 999/70 or 999/70:0000000001f.
        operator: OperatorId,
        /// Its reputation; without it, that of a newcomer. Below `policy.reputation_floor` it is refused.
        #[arg(long, value_name = "N")]
        reputation: Option<u16>,
        /// It may not serve users where `policy.operators` is listed.
        #[arg(long)]
        blocked: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// List all that is known of operators.
    List {
        /// Print JSON, an array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Forget an operator.
    Remove {
        /// PLMN, or PLMN and NID.
        operator: OperatorId,
        #[command(flatten)]
        config: BrokerFile,
    },
}

pub(crate) fn run(command: OperatorCommand) -> Done {
    match command {
        OperatorCommand::Add { operator, reputation, blocked, config } => {
            let known = KnownOperator { id: operator, allowed: !blocked, reputation };
            config.storage()?.set_operator(known).map_err(|e| e.to_string())?;
            print(&format!("operator {operator} is {}\n", if blocked { "blocked" } else { "allowed" }))
        }
        OperatorCommand::List { json, config } => list(&mut config.storage()?, json),
        OperatorCommand::Remove { operator, config } => {
            config.storage()?.remove_operator(operator).map_err(|e| e.to_string())?;
            print(&format!("operator {operator} is forgotten\n"))
        }
    }
}

fn list(storage: &mut dyn Storage, json: bool) -> Done {
    let operators = storage.operators().map_err(|e| e.to_string())?;
    if json {
        let operators = operators
            .iter()
            .map(|o| json!({"operator": o.id.to_string(), "allowed": o.allowed, "reputation": o.reputation}));
        return print_json(&operators.collect());
    }
    let row = |o: &KnownOperator| {
        let reputation = o.reputation.map_or("newcomer".into(), |r| r.to_string());
        vec![o.id.to_string(), if o.allowed { "yes".into() } else { "no".into() }, reputation]
    };
    print(&table(&["OPERATOR", "ALLOWED", "REPUTATION"], &operators.iter().map(row).collect::<Vec<_>>()))
}
