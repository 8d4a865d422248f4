//! The command line: it runs a broker, and works on its database whether the broker runs or not.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use tracing::info;
use whimbrel_broker_client::veil::record::Recorder;
use whimbrel_broker_server::engine::{Engine, EpochRule};
use whimbrel_broker_server::server::{self, Entrances};
use whimbrel_broker_server::storage::{Sqlite, Storage};
use whimbrel_broker_server::veil::engine::{VeilConfig, VeilEngine};
use whimbrel_cli::pages::PageCommand;
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_ids::Instant;
use whimbrel_node::clock::rfc3339;
use whimbrel_node::config::broker as config;
use whimbrel_node::logging;
use whimbrel_node::signals::{termination_signals, wait};

use crate::agency::{self, AgencyCommand};
use crate::relay::{self, RelayCommand};
use crate::{epoch, init, operator, period, settle, settlement, user, veil};

/// A broker (docs/open.md), and its relays and agencies (docs/veil.md): operators serve its users without a contract.
#[derive(Parser)]
#[command(name = "whimbrel-broker", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: BrokerCommand,
}

#[derive(Subcommand)]
enum BrokerCommand {
    /// Write a configuration with new keys into a folder, and print what to do next.
    Init(init::Options),
    /// Run the broker until SIGINT or SIGTERM.
    Run {
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Check the configuration, keys and certificates without starting anything.
    Check {
        #[command(flatten)]
        config: BrokerFile,
    },
    /// Print the defaults as a commented YAML file.
    Config,
    /// Users: the holders of a SIM of this broker.
    User {
        #[command(subcommand)]
        command: user::UserCommand,
    },
    /// Operators: which are allowed, and their reputation.
    Operator {
        #[command(subcommand)]
        command: operator::OperatorCommand,
    },
    /// Keys to which users seal their identities.
    Epoch {
        #[command(subcommand)]
        command: epoch::EpochCommand,
    },
    /// Veiled users, epochs of their tokens, orders of agencies (docs/veil.md).
    Veil {
        #[command(subcommand)]
        command: veil::VeilCommand,
    },
    /// Grants that were given.
    Grant {
        #[command(subcommand)]
        command: GrantCommand,
    },
    /// Settlement periods of veiled sessions: their tables, witnesses, and what operators were paid.
    Period {
        #[command(subcommand)]
        command: period::PeriodCommand,
    },
    /// At an operator: claim what the broker owes for the veiled sessions that a core reported (docs/veil.md). Proves the sum, which takes
    /// seconds; the core may run.
    Settle(settle::SettleOptions),
    /// Add up and sign what an operator is due.
    Statement(settlement::StatementOptions),
    /// What usage reports say of operators and users.
    Reputation(settlement::ReputationOptions),
    /// Keys and orders of an agency that has veiled users' sessions intercepted or located (docs/veil.md).
    Agency {
        #[command(subcommand)]
        command: AgencyCommand,
    },
    /// Relays between operators and the broker of veiled UEs (docs/veil.md).
    Relay {
        #[command(subcommand)]
        command: RelayCommand,
    },
    /// Print the reference of the commands as Markdown (docs/reference).
    Reference,
    #[command(flatten)]
    Pages(PageCommand),
}

#[derive(Subcommand)]
pub(crate) enum GrantCommand {
    /// List the latest grants, newest first.
    List {
        /// Number of grants to list.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Print JSON, an array.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: BrokerFile,
    },
}

/// Where the broker's configuration is.
#[derive(Args, Clone, Debug)]
pub(crate) struct BrokerFile {
    /// Configuration file; without it, broker.yaml here or in /etc/whimbrel.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

impl BrokerFile {
    /// The database that the configuration names, and what else commands need.
    pub(crate) fn open(&self) -> Result<(config::BrokerStore, Sqlite), String> {
        let known = config::load_store(self.file.as_deref()).map_err(|e| e.to_string())?;
        let storage = Sqlite::open(&known.store).map_err(|e| e.to_string())?;
        Ok((known, storage))
    }

    pub(crate) fn storage(&self) -> Result<Sqlite, String> {
        self.open().map(|(_, storage)| storage)
    }
}

/// Runs the command that the program was started with.
pub(crate) fn run() -> ExitCode {
    whimbrel_cli::exit_status(command(Cli::parse().command).map(|()| ExitCode::SUCCESS))
}

/// Runs a command. Errors: one sentence.
fn command(command: BrokerCommand) -> Done {
    match command {
        BrokerCommand::Init(options) => init::run(&options),
        BrokerCommand::Run { config } => serve(&config),
        BrokerCommand::Check { config } => {
            let broker = config::load(config.file.as_deref()).map_err(|e| e.to_string())?;
            print(&format!("the configuration of {} is in order\n", broker.machine.domain))
        }
        BrokerCommand::Config => print(&config::defaults()),
        BrokerCommand::User { command } => user::run(command),
        BrokerCommand::Operator { command } => operator::run(command),
        BrokerCommand::Epoch { command } => epoch::run(command),
        BrokerCommand::Veil { command } => veil::run(command),
        BrokerCommand::Grant { command: GrantCommand::List { limit, json, config } } => {
            grants(&mut config.storage()?, limit, json)
        }
        BrokerCommand::Period { command } => period::run(command),
        BrokerCommand::Settle(options) => settle::run(&options),
        BrokerCommand::Statement(options) => settlement::statement(options),
        BrokerCommand::Reputation(options) => settlement::reputation(options),
        BrokerCommand::Agency { command } => agency::run(command),
        BrokerCommand::Relay { command } => relay::run(command),
        BrokerCommand::Reference => print(&reference()),
        BrokerCommand::Pages(command) => command.run(Cli::command()),
    }
}

/// The page `docs/reference/cli-broker.md`.
fn reference() -> String {
    whimbrel_cli::reference::page(Cli::command(), "whimbrel-broker reference", "")
}

fn serve(file: &BrokerFile) -> Done {
    let broker = config::load(file.file.as_deref()).map_err(|e| e.to_string())?;
    let mut signals = termination_signals()?;
    let _logging = logging::start(broker.log)?;
    let storage = Sqlite::open(&broker.store).map_err(|e| e.to_string())?;
    let (home, storage) = (broker.home, Box::new(storage));
    let epochs = EpochRule {
        begin_after_s: broker.epoch_begins_after.as_secs(),
        end_after_s: broker.epoch_ends_after.as_secs(),
    };
    let engine = Engine::start_with_home(broker.machine, home, broker.listed_only, epochs, storage)?;
    let veil = broker.veil.map(veil_engine).transpose()?;
    let entrances = Entrances { open: engine.entrance(), veil: veil.as_ref().map(VeilEngine::entrance) };
    let server = server::start(broker.listen, broker.admin, broker.tls, entrances)?;
    info!(address = %server.address, admin = %server.admin, "the broker listens");
    let alive = || engine.is_alive() && veil.as_ref().is_none_or(VeilEngine::is_alive);
    wait(&mut signals, alive);
    let died = !alive();
    info!("the broker stops");
    drop(server);
    drop(veil);
    drop(engine);
    if died {
        Err("the broker's thread ended: this is a fault of the program, please report it".into())
    } else {
        Ok(())
    }
}

fn veil_engine(veil: config::VeilConfig) -> Result<VeilEngine, String> {
    let config::VeilConfig { machine, store, record, home_keys, agencies } = veil;
    let recorder = record.as_deref().map(Recorder::open).transpose()?.unwrap_or_default();
    VeilEngine::start(VeilConfig { machine, store, recorder, home_keys, agencies })
}

fn grants(storage: &mut dyn Storage, limit: u32, json: bool) -> Done {
    let grants = storage.grants(limit as usize).map_err(|e| e.to_string())?;
    if json {
        let grants = grants.iter().map(|g| {
            serde_json::json!({
                "user": g.user, "operator": g.operator, "pseudonym": whimbrel_broker_client::hex(&g.pseudonym),
                "valid_from": date(g.validity_s.0), "valid_until": date(g.validity_s.1),
            })
        });
        return print_json(&grants.collect());
    }
    let rows: Vec<Vec<String>> = grants
        .iter()
        .map(|g| {
            let (from, until) = (date(g.validity_s.0), date(g.validity_s.1));
            vec![from, until, g.operator.clone(), g.user.clone(), whimbrel_broker_client::hex(&g.pseudonym)]
        })
        .collect();
    print(&table(&["FROM", "UNTIL", "OPERATOR", "USER", "PSEUDONYM"], &rows))
}

/// A second since the Unix epoch as RFC 3339 writes it.
pub(crate) fn date(secs: u64) -> String {
    rfc3339(Instant(secs.saturating_mul(1_000_000)))
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
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli-broker.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == reference(), "docs/reference is stale: ./x reference");
    }
}
