//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args, CommandFactory, Parser, Subcommand};
use whimbrel_cli::pages::PageCommand;
use whimbrel_cli::{Done, moved, print};
use whimbrel_node::client::Client;
use whimbrel_node::config;
use whimbrel_resilience::CodeVersion;

use crate::command;
use crate::command::foresight::ForesightCommand;
use crate::command::open::OpenCommand;
use crate::command::operation::Waiting;
use crate::command::subscriber::SubscriberCommand;

/// A 5G core: AMF, SMF, UPF, UDM and AUSF in one program.
#[derive(Parser)]
#[command(name = "whimbrel", version = VERSION.as_str(), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The release, and the code number by which a cluster distinguishes builds.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (code {})", env!("CARGO_PKG_VERSION"), CodeVersion::own()));

#[derive(Subcommand)]
enum Command {
    /// Run the core until SIGINT or SIGTERM.
    Run(command::run::RunOptions),
    /// Show the functions of the unit that runs on this host (docs/unit.md).
    Unit(command::unit::Options),
    /// Replace the functions of the unit that runs on this host by another program, one after the other, while UEs are served.
    Upgrade(command::unit::UpgradeOptions),
    /// Show, promote or roll back a canary: CPFs of a new program that serve some UEs (`whimbrel upgrade PROGRAM --canary 10%`).
    Canary(command::unit::CanaryOptions),
    /// Run a UPF alone, for the SMF of a core on another host, until SIGINT or SIGTERM.
    Upf(command::run::UpfOptions),
    /// Run the packet logger in front of two UPFs on two hosts (docs/design/packet-logger.md), until SIGINT or SIGTERM.
    PacketLogger(command::packet_logger::Options),
    /// Run a CPF, a process that serves UEs for the CTA of a cluster, until SIGINT or SIGTERM.
    Cpf(command::cpf::Options),
    /// Run a UDM, PCF or CHF of a unit: its manager starts this itself (`unit.functions`).
    #[command(hide = true)]
    NetworkFunction(command::network_function::Options),
    /// Answer S-BFD probes to this host (RFC 7880), until SIGINT or SIGTERM: for nodes that run no other part of Whimbrel.
    Reflect(command::reflect::Options),
    /// Run inputs that may have ended a CPF in a process of their own: a CPF starts this itself.
    #[command(hide = true)]
    ReplaySandbox,
    /// `whimbrel-lab demo`.
    #[command(hide = true, disable_help_flag = true)]
    Demo(Moved),
    /// `whimbrel-lab ran`.
    #[command(hide = true, disable_help_flag = true)]
    Ran(Moved),
    /// Check a configuration file without starting anything.
    Check {
        /// Configuration file; default: whimbrel.yaml in this folder, else in /etc/whimbrel.
        file: Option<PathBuf>,
    },
    /// Print the configuration keys that an operator sets, with their defaults and reasons, as a YAML file.
    Config {
        /// Print all keys.
        #[arg(long)]
        all: bool,
    },
    /// `whimbrel-broker`.
    #[command(hide = true, disable_help_flag = true)]
    Broker(Moved),
    /// Prediction of handovers: its state, and predictors in files (docs/foresight.md).
    Foresight {
        #[command(subcommand)]
        command: ForesightCommand,
    },
    /// Keys and SAP certificates of operators, brokers and authorities (docs/open.md).
    Open {
        #[command(subcommand)]
        command: OpenCommand,
    },
    /// `whimbrel-broker agency`.
    #[command(hide = true, disable_help_flag = true)]
    Agency(Moved),
    /// `whimbrel-broker relay`.
    #[command(hide = true, disable_help_flag = true)]
    Relay(Moved),
    /// Print the reference of the metrics that a dashboard, an alert, a page or a command uses, as Markdown.
    Metrics {
        /// Print all metrics (docs/metrics.md).
        #[arg(long)]
        all: bool,
    },
    /// Print a page of the reference as Markdown (docs/reference).
    Reference {
        /// Page to print.
        page: command::reference::Page,
    },
    /// Manage subscribers: their keys, slices and data networks.
    Subscriber {
        #[command(subcommand)]
        command: SubscriberCommand,
    },
    /// Copy all subscribers between the file and PostgreSQL (docs/postgres.md).
    Store {
        #[command(subcommand)]
        command: command::store::StoreCommand,
    },
    #[command(flatten)]
    Pages(PageCommand),
    /// Import the subscribers of another core from its exported database.
    Import {
        #[command(subcommand)]
        command: command::import::ImportCommand,
    },
    /// Write a backup: subscribers, keys, users, configuration (docs/backup.md). The core may run.
    Backup(command::backup::BackupOptions),
    /// Restore a backup. The core must not run; what was there is kept beside it.
    Restore(command::backup::RestoreOptions),
    /// The audit log of the API and of commands (docs/console.md).
    Audit {
        #[command(subcommand)]
        command: command::audit::AuditCommand,
    },
    /// Bring the subscribers' store to the layout of this release, or back to the one before.
    Migrate(command::backup::MigrateOptions),
    /// Print configurations of gNBs and UEs that attach to this core.
    GnbConfig {
        #[command(subcommand)]
        command: command::gnb_config::GnbConfigCommand,
    },
    /// Explain why a UE is not registered or a gNB not set up, and how to fix it.
    Why {
        /// SUPI (imsi-999700000000001), PEI, 5G-GUTI, IP address, gNB (gnb-999/70-1) or part of the core (n2, upf).
        subject: String,
        #[command(flatten)]
        at: Running,
    },
    /// Show and control the UEs of the running core.
    Ue {
        #[command(subcommand)]
        command: UeCommand,
    },
    /// List, reset or disconnect the gNBs of the running core.
    Gnb {
        #[command(subcommand)]
        command: GnbCommand,
    },
    /// Accounts, credit and charging records of the core's own charging function.
    Charging {
        #[command(subcommand)]
        command: command::charging::ChargingCommand,
    },
    /// Send public warning messages to an area (TS 23.041).
    Warning {
        #[command(subcommand)]
        command: WarningCommand,
    },
    /// Show or set whether gNBs get OVERLOAD START.
    Overload {
        /// start or stop, until the next order; rule: the configured thresholds decide. Without it, show the state.
        #[arg(value_parser = ["start", "stop", "rule"])]
        order: Option<String>,
        #[command(flatten)]
        at: Running,
    },
    /// Give all UEs of the running core to another AMF of its set, and wait until none is left (TS 23.501 §5.21.2.2.1).
    Drain(command::drain::Options),
    /// Make the running core reload its configuration file, as SIGHUP does.
    Reload {
        #[command(flatten)]
        at: Running,
    },
    /// Show or set the level of the running core's log.
    LogLevel(command::log_level::Options),
    /// Write what a support request needs into one file, without keys, tokens and identities.
    SupportBundle(command::support_bundle::Options),
    /// Show where UE contexts are, in fast and slow memory, and what they would cost without records (docs/memory.md).
    Memory {
        #[command(flatten)]
        at: Running,
    },
    /// Modify or release PDU sessions of the running core.
    Session {
        #[command(subcommand)]
        command: SessionCommand,
    },
    /// Write the messages of a UE as a capture for Wireshark and tshark (docs/console.md).
    Capture(command::capture::Options),
    /// Print a one-time link to the console of the running core (docs/console.md).
    Console {
        /// Remove the second factor of this user, whose telephone was lost, instead.
        #[arg(long, value_name = "USER")]
        reset_second_factor: Option<String>,
        #[command(flatten)]
        at: Running,
    },
    /// Show a live view of gNBs, UEs, procedures, throughput and refusals.
    Top {
        /// Print one frame as text.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        at: Running,
    },
}

/// A command that another program has now: its arguments are not read.
#[derive(Args)]
struct Moved {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

#[derive(Subcommand)]
enum UeCommand {
    /// List all UEs.
    List {
        #[command(flatten)]
        at: Running,
    },
    /// Show one UE.
    Show {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: String,
        #[command(flatten)]
        at: Running,
    },
    /// Print the location of a UE, or have it tracked (TS 23.502 §4.10).
    Locate(command::locate::Options),
    /// Deregister a UE and wait for its answer.
    Deregister {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: String,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Wait until the UE becomes reachable; the core also emits the event `reachable`.
    Notify {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: String,
        #[command(flatten)]
        waiting: Waiting,
    },
}

#[derive(Subcommand)]
enum WarningCommand {
    /// Send a warning message.
    Send {
        #[command(flatten)]
        warning: Box<command::radio::WarningOptions>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Cancel a warning message.
    Cancel {
        /// Identifier of the message.
        #[arg(long)]
        id: u16,
        /// Serial number of the message.
        #[arg(long)]
        serial: u16,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// List warning messages with their outcome at each gNB.
    List {
        #[command(flatten)]
        at: Running,
    },
}

#[derive(Subcommand)]
enum SessionCommand {
    /// Change one property of a session (TS 23.502 §4.3.3.2), or release it.
    Modify(command::session::Change),
}

#[derive(Subcommand)]
enum GnbCommand {
    /// Reset all UE connections of a gNB (TS 38.413 §8.7.4).
    Reset {
        /// Identity (gnb-999/70-1) or RAN node name.
        gnb: String,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Disconnect a gNB. For a minute its addresses do not get its identity, so that the gNB whose identity it is connects first.
    Disconnect {
        /// Identity (gnb-999/70-1) or RAN node name.
        gnb: String,
        #[command(flatten)]
        at: Running,
    },
    /// List all gNBs.
    List {
        #[command(flatten)]
        at: Running,
    },
}

/// The configuration file.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigFile {
    /// Configuration file; default: whimbrel.yaml in this folder, else in /etc/whimbrel, else built-in defaults.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
}

/// The running core that a command talks to.
#[derive(Args, Clone, Debug)]
pub(crate) struct Running {
    #[command(flatten)]
    config: ConfigFile,
    /// Address of a core's API on the network, for which WHIMBREL_TOKEN is set to an API token; default: the core of this host, over its socket.
    #[arg(long, value_name = "ADDRESS:PORT")]
    api: Option<SocketAddr>,
    /// Print the answer as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Running {
    /// The configuration file that is used, if there is one.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        self.config.config_file.clone().or_else(config::found)
    }

    pub(crate) fn client(&self) -> Result<Client, String> {
        let config = config::load(self.config.config_file.as_deref()).map_err(|e| e.to_string());
        match (self.api, config) {
            (Some(address), Ok((config, _))) => {
                Ok(Client::new(address).with_certificate_of(&config.store.path))
            }
            (Some(address), Err(_)) => Ok(Client::new(address)),
            (None, config) => {
                let (config, _) = config?;
                Ok(Client::of(&config))
            }
        }
    }
}

/// Runs the command that the program was started with.
pub(crate) fn run() -> ExitCode {
    whimbrel_cli::exit_status(command(Cli::parse().command))
}

/// Runs a command. Errors: one sentence.
fn command(command: Command) -> Result<ExitCode, String> {
    let done: Done = match command {
        Command::Run(options) => command::run::run(options),
        Command::Upf(options) => command::run::run_upf(options),
        Command::PacketLogger(options) => command::packet_logger::run(&options),
        Command::Unit(options) => command::unit::show(&options),
        Command::Upgrade(options) => command::unit::upgrade(&options),
        Command::Canary(options) => command::unit::canary(&options),
        Command::Cpf(options) => command::cpf::run(options),
        Command::NetworkFunction(options) => command::network_function::run(options),
        Command::Reflect(options) => command::reflect::run(&options),
        Command::ReplaySandbox => whimbrel_node::cluster::replay_sandbox(),
        Command::Demo(_) => return Ok(moved("whimbrel demo", "whimbrel-lab demo")),
        Command::Ran(_) => return Ok(moved("whimbrel ran", "whimbrel-lab ran")),
        Command::Check { file } => command::check::run(file.as_deref()),
        Command::Config { all: true } => print(&config::defaults()),
        Command::Config { all: false } => print(&config::operator_defaults()),
        Command::Broker(_) => return Ok(moved("whimbrel broker", "whimbrel-broker")),
        Command::Foresight { command } => command::foresight::run(&command),
        Command::Open { command } => command::open::run(command),
        Command::Agency(_) => return Ok(moved("whimbrel agency", "whimbrel-broker agency")),
        Command::Relay(_) => return Ok(moved("whimbrel relay", "whimbrel-broker relay")),
        Command::Metrics { all: true } => print(&whimbrel_node::observation::metrics_page()),
        Command::Metrics { all: false } => print(&whimbrel_node::observation::read_metrics_page()),
        Command::Reference { page } => command::reference::run(page, Cli::command()),
        Command::Subscriber { command } => command::subscriber::run(command),
        Command::Store { command } => command::store::run(command),
        Command::Pages(command) => command.run(Cli::command()),
        Command::Import { command } => command::import::run(&command),
        Command::Backup(options) => command::backup::backup(&options),
        Command::Restore(options) => command::backup::restore(&options),
        Command::Audit { command } => command::audit::run(&command),
        Command::Migrate(options) => command::backup::migrate(&options),
        Command::GnbConfig { command } => command::gnb_config::run(&command),
        Command::Why { subject, at } => command::why::run(at.client()?, &subject, at.json),
        Command::Ue { command: UeCommand::List { at } } => command::show::ues(at.client()?, at.json),
        Command::Ue { command: UeCommand::Show { supi, at } } => {
            command::show::ue(at.client()?, &supi, at.json)
        }
        Command::Ue { command: UeCommand::Locate(options) } => command::locate::run(&options),
        Command::Ue { command: UeCommand::Deregister { supi, waiting } } => {
            return command::show::deregister(&waiting, &supi).map(Into::into);
        }
        Command::Ue { command: UeCommand::Notify { supi, waiting } } => {
            return command::show::notify_reachable(&waiting, &supi).map(Into::into);
        }
        Command::Session { command: SessionCommand::Modify(change) } => {
            return command::session::modify(&change).map(Into::into);
        }
        Command::Gnb { command: GnbCommand::List { at } } => command::show::gnbs(at.client()?, at.json),
        Command::Gnb { command: GnbCommand::Reset { gnb, waiting } } => {
            return command::radio::reset(&waiting, &gnb).map(Into::into);
        }
        Command::Gnb { command: GnbCommand::Disconnect { gnb, at } } => {
            command::radio::disconnect(at.client()?, &gnb)
        }
        Command::Warning { command } => match command {
            WarningCommand::Send { warning, waiting } => {
                return command::radio::send(&waiting, &warning).map(Into::into);
            }
            WarningCommand::Cancel { id, serial, waiting } => {
                return command::radio::cancel(&waiting, id, serial).map(Into::into);
            }
            WarningCommand::List { at } => command::radio::warnings(at.client()?, at.json),
        },
        Command::Charging { command } => command::charging::run(command),
        Command::Drain(options) => command::drain::drain(&options),
        Command::Overload { order, at } => command::radio::overload(at.client()?, order.as_deref()),
        Command::Reload { at } => command::radio::reload(at.client()?),
        Command::LogLevel(options) => command::log_level::run(&options),
        Command::SupportBundle(options) => command::support_bundle::run(&options),
        Command::Memory { at } => command::memory::run(&at.client()?, at.json),
        Command::Capture(options) => command::capture::run(&options),
        Command::Console { reset_second_factor, at } => {
            command::console::run(&at.client()?, at.json, reset_second_factor.as_deref())
        }
        Command::Top { once, at } => command::top::run(at.client()?, once),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_command_has_a_manual_page_and_completions() {
        let folder = tempfile::tempdir().unwrap();
        PageCommand::Man { folder: folder.path().to_owned() }.run(Cli::command()).unwrap();
        for page in ["whimbrel.1", "whimbrel-backup.1", "whimbrel-subscriber-import.1"] {
            assert!(folder.path().join(page).exists(), "{page}");
        }
        for shell in ["bash", "zsh", "fish"] {
            let text = whimbrel_cli::pages::completions(shell.parse().unwrap(), &mut Cli::command());
            assert!(text.contains("support-bundle"), "{shell}");
        }
    }

    #[test] // CONTRIBUTING.md: a document that shows a command shows one that exists, with options that it has
    fn commands_in_documents_exist() {
        let found = whimbrel_cli::documents::commands(&Cli::command());
        let wrong: Vec<_> = found.iter().filter(|(_, checked)| checked.is_err()).collect();
        assert!(found.len() > 50, "the documents show commands, and {} were found", found.len());
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn commands_that_other_programs_have_now_take_any_arguments() {
        for line in
            ["ran x.yaml --ues 3 -- ping -c 1 ::1", "demo --help", "broker run -c f", "agency", "relay key f"]
        {
            let words = std::iter::once("whimbrel").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }

    #[test] // CONTRIBUTING.md: what the documents say of a command is what it does
    fn the_command_reference_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == command::reference::cli(Cli::command()), "docs/reference is stale: ./x reference");
    }

    #[test]
    fn commands_that_wait_document_their_exit_status_and_options() {
        for path in
            ["session modify", "ue deregister", "ue notify", "gnb reset", "warning send", "warning cancel"]
        {
            let words = std::iter::once("whimbrel").chain(path.split(' ')).chain(["--help"]);
            let help = Cli::try_parse_from(words).err().expect("help").to_string();
            for part in ["Exit status: 0 done", "--no-wait", "--wait <SECONDS>"] {
                assert!(help.contains(part), "{path}: {part}\n{help}");
            }
        }
        let line = |wait: &[&str]| {
            let words = ["whimbrel", "gnb", "reset", "x"].iter().chain(wait);
            Cli::try_parse_from(words).is_ok()
        };
        assert!(line(&["--no-wait"]) && line(&["--wait", "30"]));
        assert!(!line(&["--wait", "31"]) && !line(&["--wait", "3", "--no-wait"]));
    }

    #[test]
    fn every_command_that_reads_the_configuration_takes_dash_c() {
        for line in ["run -c f", "why x -c f", "ue list -c f", "top --config f", "subscriber list -c f"] {
            let words = std::iter::once("whimbrel").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
