//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use whimbrel_resilience::CodeVersion;

use crate::client::Client;
use crate::command::broker::BrokerCommand;
use crate::command::open::OpenCommand;
use crate::command::operation::Waiting;
use crate::command::subscriber::SubscriberCommand;
use crate::command::{self, Done};
use crate::config;

/// A 5G core: AMF, SMF, UPF and their kin in one program.
#[derive(Parser)]
#[command(name = "whimbrel", version = VERSION.as_str(), arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The release, and the code by which a cluster tells versions apart.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (code {})", env!("CARGO_PKG_VERSION"), CodeVersion::own()));

#[derive(Subcommand)]
enum Command {
    /// Run the core until SIGINT or SIGTERM.
    Run(command::run::Options),
    /// Run a user plane alone, for the SMF of a core elsewhere, until SIGINT or SIGTERM.
    Upf(command::run::Options),
    /// Run a CPF for the CTA of a core elsewhere, until SIGINT or SIGTERM.
    Cpf(command::cpf::Options),
    /// Run inputs that may have ended a CPF in a process of their own: a CPF starts this itself.
    #[command(hide = true)]
    ReplaySandbox,
    /// Let emulated UEs use a core that is started for them, and say how it went.
    Demo(command::demo::Options),
    /// Measure.
    Bench {
        #[command(subcommand)]
        bench: crate::bench::Bench,
    },
    /// Let emulated gNBs and UEs use a core that runs somewhere.
    Ran(command::ran::Options),
    /// Check a configuration file without starting anything.
    Check {
        /// The file; without it, whimbrel.yaml here or in /etc/whimbrel.
        file: Option<PathBuf>,
    },
    /// Print the defaults as a commented YAML file.
    Config,
    /// A broker: the home of users whom operators serve without a contract (docs/open.md).
    Broker {
        #[command(subcommand)]
        command: BrokerCommand,
    },
    /// Keys and SAP certificates of operators, brokers and authorities (docs/open.md).
    Open {
        #[command(subcommand)]
        command: OpenCommand,
    },
    /// Subscribers: who may register, with which keys and services.
    Subscriber {
        #[command(subcommand)]
        command: SubscriberCommand,
    },
    /// Say why a UE or a gNB is not on, since when, and what to do.
    Why {
        /// SUPI (imsi-999700000000001), PEI or gNB (gnb-999/70-1).
        subject: String,
        #[command(flatten)]
        at: Running,
    },
    /// UEs that the running core knows.
    Ue {
        #[command(subcommand)]
        command: UeCommand,
    },
    /// gNBs that are up.
    Gnb {
        #[command(subcommand)]
        command: GnbCommand,
    },
    /// Warning messages to everybody in an area (TS 23.041).
    Warning {
        #[command(subcommand)]
        command: WarningCommand,
    },
    /// Whether gNBs are told to keep new connections away: shows it, or decides it.
    Overload {
        /// start, stop, or rule: the configured rule decides.
        #[arg(value_parser = ["start", "stop", "rule"])]
        order: Option<String>,
        #[command(flatten)]
        at: Running,
    },
    /// Have the running core read its configuration anew, as SIGHUP does.
    Reload {
        #[command(flatten)]
        at: Running,
    },
    /// PDU sessions of the running core.
    Session {
        #[command(subcommand)]
        command: SessionCommand,
    },
    /// Live view: gNBs, UEs, procedures, throughput, refusals.
    Top {
        /// Print one frame as text.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        at: Running,
    },
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
    /// Say where a UE is, or have it followed (TS 23.502 §4.10).
    Locate(command::locate::Options),
    /// Deregister a UE, and wait for its answer.
    Deregister {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: String,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Wait until a UE can be reached; later, the event "reachable" tells it.
    Notify {
        /// SUPI, imsi-999700000000001 or its digits.
        supi: String,
        #[command(flatten)]
        waiting: Waiting,
    },
}

#[derive(Subcommand)]
enum WarningCommand {
    /// Send one.
    Send {
        #[command(flatten)]
        warning: Box<command::radio::WarningOptions>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Cancel one.
    Cancel {
        /// Message identifier.
        #[arg(long)]
        id: u16,
        /// Serial number.
        #[arg(long)]
        serial: u16,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// List what was sent, and what became of it at each gNB.
    List {
        #[command(flatten)]
        at: Running,
    },
}

#[derive(Subcommand)]
enum SessionCommand {
    /// Modify a session (TS 23.502 §4.3.3.2): say one change.
    Modify(command::session::Change),
}

#[derive(Subcommand)]
enum GnbCommand {
    /// Reset all connections of a gNB (TS 38.413 §8.7.4).
    Reset {
        /// gnb-999/70-1, or its name.
        gnb: String,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// List all gNBs.
    List {
        #[command(flatten)]
        at: Running,
    },
}

/// Where the configuration stands.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigFile {
    /// Configuration file; without it, whimbrel.yaml here or in /etc/whimbrel, else the defaults.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
}

/// The running core that is asked.
#[derive(Args, Clone, Debug)]
pub(crate) struct Running {
    #[command(flatten)]
    config: ConfigFile,
    /// Address of its API, in place of the configuration's `api.address`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    api: Option<SocketAddr>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Running {
    pub(crate) fn client(&self) -> Result<Client, String> {
        let address = match self.api {
            Some(address) => address,
            None => {
                config::load(self.config.config_file.as_deref()).map_err(|e| e.to_string())?.0.api.address
            }
        };
        Ok(Client::new(address))
    }
}

/// Runs the command that the program was started with.
pub(crate) fn run() -> ExitCode {
    match command(Cli::parse().command) {
        Ok(code) => code,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command to its end: what the program ends with, or the sentence that says what went wrong.
fn command(command: Command) -> Result<ExitCode, String> {
    let done: Done = match command {
        Command::Run(options) => command::run::run(options),
        Command::Upf(options) => command::run::run_upf(options),
        Command::Cpf(options) => command::cpf::run(options),
        Command::ReplaySandbox => crate::cluster::replay_sandbox(),
        Command::Bench { bench } => crate::bench::run(&bench),
        Command::Demo(options) => command::demo::run(&options),
        Command::Ran(options) => return command::ran::run(&options),
        Command::Check { file } => command::check::run(file.as_deref()),
        Command::Config => command::print(&config::defaults()),
        Command::Broker { command } => command::broker::run(command),
        Command::Open { command } => command::open::run(command),
        Command::Subscriber { command } => command::subscriber::run(command),
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
            return command::show::tell_reachable(&waiting, &supi).map(Into::into);
        }
        Command::Session { command: SessionCommand::Modify(change) } => {
            return command::session::modify(&change).map(Into::into);
        }
        Command::Gnb { command: GnbCommand::List { at } } => command::show::gnbs(at.client()?, at.json),
        Command::Gnb { command: GnbCommand::Reset { gnb, waiting } } => {
            return command::radio::reset(&waiting, &gnb).map(Into::into);
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
        Command::Overload { order, at } => command::radio::overload(at.client()?, order.as_deref()),
        Command::Reload { at } => command::radio::reload(at.client()?),
        Command::Top { once, at } => command::top::run(at.client()?, once),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test] // CONTRIBUTING.md: a document that shows a command shows one that exists, with options that it has
    fn commands_in_documents_exist() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut wrong = Vec::new();
        let mut found = 0;
        for folder in ["", "docs", "app", "bench", "tests/interop", "tests/live"] {
            for entry in std::fs::read_dir(root.join(folder)).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap_or_default();
                if !name.ends_with(".md") || name == "CHANGELOG.md" {
                    continue;
                }
                let text = std::fs::read_to_string(entry.path()).unwrap();
                for line in commands_in(&text) {
                    found += 1;
                    if let Err(why) = exists(&line) {
                        wrong.push(format!("{folder}/{name}: `whimbrel {line}`: {why}"));
                    }
                }
            }
        }
        assert!(found > 50, "the documents show commands, and {found} were found");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// What follows `whimbrel ` at the beginning of a line of code, of a word in back ticks, or of what follows a `;`.
    fn commands_in(text: &str) -> Vec<String> {
        let mut commands = Vec::new();
        for (i, part) in text.split("```").enumerate() {
            let pieces: Vec<&str> = if i % 2 == 1 {
                part.lines().flat_map(|line| line.split("; ")).collect()
            } else {
                part.split('`').skip(1).step_by(2).collect()
            };
            let ours = pieces.into_iter().filter_map(|piece| piece.trim().strip_prefix("whimbrel "));
            commands.extend(
                ours.map(|c| c.split([';', '&', '|', '#', '>']).next().unwrap_or_default().trim().to_owned()),
            );
        }
        commands
    }

    /// Follows the words through the commands, and finds each option at the command that it stands behind.
    fn exists(line: &str) -> Result<(), String> {
        let mut command = Cli::command();
        command.build();
        for word in line.split_whitespace() {
            if let Some(long) = word.strip_prefix("--") {
                let long = long.split('=').next().unwrap_or_default();
                let known = command.get_arguments().any(|a| a.get_long() == Some(long));
                if !long.is_empty() && !known {
                    return Err(format!("`{}` has no option --{long}", command.get_name()));
                }
            } else if let Some(below) = command.find_subcommand(word) {
                command = below.clone();
            } else if command.has_subcommands() && word.chars().all(|c| c.is_ascii_lowercase()) {
                return Err(format!("`{}` has no command {word}", command.get_name()));
            }
        }
        Ok(())
    }

    #[test]
    fn commands_whose_outcome_comes_later_document_their_exit_status_and_their_wait() {
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
    fn the_configuration_is_named_by_c_wherever_it_is_used() {
        for line in ["run -c f", "why x -c f", "ue list -c f", "top --config f", "subscriber list -c f"] {
            let words = std::iter::once("whimbrel").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
