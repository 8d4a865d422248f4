//! `whimbrel unit`, `whimbrel upgrade` and `whimbrel canary`: the functions of the unit that runs on this host.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Deserialize;
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_ids::Supi;
use whimbrel_node::client::Client;
use whimbrel_node::config;
use whimbrel_node::observation::VersionView;
use whimbrel_node::unit::{self, CanaryOrder, CanaryStatus, Phase, Share, UnitStatus};

use crate::cli::ConfigFile;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    order: Option<UnitCommand>,
    #[command(flatten)]
    config: ConfigFile,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum UnitCommand {
    /// Restart functions one after the other, while UEs are served.
    Restart {
        /// Which: `control` is the CTAs, the CPFs and the manager; the UPF does not stop.
        part: Part,
        #[command(flatten)]
        config: ConfigFile,
    },
}

/// The functions that are restarted.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    Control,
}

#[derive(Args)]
pub(crate) struct UpgradeOptions {
    /// The new program; default: this one, which restarts the functions.
    program: Option<PathBuf>,
    /// Have CPFs of the new program serve this share of UEs beside the others, such as 10%: see `whimbrel canary`.
    #[arg(long, value_name = "PERCENT", requires = "program", conflicts_with = "ues", value_parser = percent)]
    canary: Option<u8>,
    /// The same for these UEs: SUPIs, separated by commas, or a file with one a line.
    #[arg(long, value_name = "FILE|SUPI,…", requires = "program")]
    ues: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Args)]
pub(crate) struct CanaryOptions {
    #[command(subcommand)]
    order: Option<CanaryCommand>,
    #[command(flatten)]
    config: ConfigFile,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum CanaryCommand {
    /// Change the share of UEs that the new version serves.
    Share {
        /// Such as 25%.
        #[arg(value_parser = percent)]
        percent: u8,
    },
    /// Replace all functions by the new program, one after the other.
    Promote,
    /// Move all UEs back to the version before, and end the new CPFs.
    RollBack,
}

/// `whimbrel unit`.
pub(crate) fn show(options: &Options) -> Done {
    if let Some(UnitCommand::Restart { part: Part::Control, config }) = &options.order {
        let (config, _) = config::load(config.config_file.as_deref()).map_err(|e| e.to_string())?;
        return unit::restart_control(&config.unit.directory, |line| print(&format!("{line}\n")));
    }
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let status = unit::status(&config.unit.directory)?;
    if options.json {
        return print_json(&serde_json::to_value(&status).map_err(|e| e.to_string())?);
    }
    print(&text(&status))
}

/// The functions of a unit as a table.
pub(crate) fn text(status: &UnitStatus) -> String {
    let row = |f: &unit::FunctionStatus| {
        let pid = f.pid.map_or("-".into(), |pid| pid.to_string());
        vec![
            f.name.clone(),
            f.state.clone(),
            pid,
            f.code.clone(),
            format!("{} s", f.up_s),
            f.ended.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = status.functions.iter().map(row).collect();
    let mut text = table(&["FUNCTION", "STATE", "PROCESS", "CODE", "UP", "ENDED"], &rows);
    text += &format!("manager: process {}; descriptors that are kept: ", status.manager);
    text += &if status.descriptors.is_empty() { "none".into() } else { status.descriptors.join(", ") };
    if status.refused > 0 {
        text += &format!("; refused connections, descriptors and requests: {}", status.refused);
    }
    text + "\n"
}

/// `whimbrel upgrade`.
pub(crate) fn upgrade(options: &UpgradeOptions) -> Done {
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let directory = &config.unit.directory;
    let say = |line: &str| print(&format!("{line}\n"));
    let share = match (options.canary, &options.ues) {
        (Some(percent), _) => Some(Share::Percent(percent)),
        (None, Some(text)) => Some(Share::Ues(ues(text)?)),
        (None, None) => None,
    };
    match (share, &options.program) {
        (Some(share), Some(program)) => {
            unit::canary(directory, CanaryOrder::Begin { program: program.clone(), share }, say)
        }
        _ => unit::upgrade(directory, options.program.as_deref(), say),
    }
}

/// `whimbrel canary`.
pub(crate) fn canary(options: &CanaryOptions) -> Done {
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let directory = &config.unit.directory;
    let order = match options.order {
        Some(CanaryCommand::Share { percent }) => CanaryOrder::Share(Share::Percent(percent)),
        Some(CanaryCommand::Promote) => CanaryOrder::Promote {},
        Some(CanaryCommand::RollBack) => CanaryOrder::RollBack {},
        None => {
            let status = unit::status(directory)?;
            let client = Client::of_unit(&config);
            // Without a CTA that answers, the manager's part is shown all the same.
            let versions = client.get::<Versions>("/api/v1/cluster").unwrap_or_default().versions;
            return match options.json {
                true => print_json(&serde_json::json!({
                    "canary": status.canary, "versions": versions, "last": status.last_canary,
                })),
                false => {
                    print(&canary_text(status.canary.as_ref(), &versions, status.last_canary.as_deref()))
                }
            };
        }
    };
    unit::canary(directory, order, |line| print(&format!("{line}\n")))
}

/// What the API shows of the code versions.
#[derive(Default, Deserialize)]
struct Versions {
    versions: Vec<VersionView>,
}

fn canary_text(canary: Option<&CanaryStatus>, versions: &[VersionView], last: Option<&str>) -> String {
    let mut text = match canary {
        None => "No canary is under way: `whimbrel upgrade PROGRAM --canary 10%` begins one.\n".into(),
        Some(canary) => {
            let phase = match canary.phase {
                Phase::Starts => "its CPFs start, for",
                Phase::Serves => "serves",
                Phase::IsPromoted => "is being promoted; it serves",
                Phase::IsRolledBack => "is being rolled back; it serves",
            };
            let CanaryStatus { program, code, share, since, .. } = canary;
            format!("The canary of code {code} ({}, since {since}) {phase} {share}.\n", program.display())
        }
    };
    if !versions.is_empty() {
        let micros = |us: Option<u64>| us.map_or("-".into(), |us| format!("{us} us"));
        let row = |v: &VersionView| {
            vec![
                format!("{}{}", v.code, if v.canary { " (canary)" } else { "" }),
                v.ues.to_string(),
                v.procedures.to_string(),
                v.failed.to_string(),
                v.cpfs_lost.to_string(),
                micros(v.answer_p50_us),
                micros(v.answer_p99_us),
            ]
        };
        let rows: Vec<Vec<String>> = versions.iter().map(row).collect();
        text +=
            &table(&["CODE", "UES", "PROCEDURES", "FAILED", "CPFS LOST", "ANSWER P50", "ANSWER P99"], &rows);
    }
    if let Some(last) = last {
        text += &format!("last: {last}\n");
    }
    text
}

/// A share of UEs. Errors: one sentence.
fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<u8>();
    let number = number.ok().filter(|percent| (1..=100).contains(percent));
    number.ok_or_else(|| format!("`{text}` is no share of UEs: write 1% to 100%"))
}

/// Octets of a list of SUPIs: more than a million have 24 MiB.
const LIST_OCTETS_MAX: u64 = 64 << 20;

/// SUPIs of an argument: of the file that it names, or of itself. Errors: one sentence.
fn ues(text: &str) -> Result<Vec<Supi>, String> {
    let listed = match Path::new(text).is_file() {
        true => whimbrel_files::read_text(Path::new(text), LIST_OCTETS_MAX)
            .map_err(|e| format!("--ues: {text}: {e}"))?,
        false => text.to_owned(),
    };
    let all = listed.split([',', '\n']).map(str::trim).filter(|supi| !supi.is_empty());
    let supi = |supi: &str| {
        supi.parse::<Supi>().map_err(|_| {
            format!("--ues: `{supi}` is neither a file nor a SUPI, such as imsi-999700000000001")
        })
    };
    all.map(supi).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_and_listed_ues_come_from_the_argument_or_from_a_file() {
        assert_eq!((percent("10%"), percent("100")), (Ok(10), Ok(100)));
        for wrong in ["0%", "101%", "ten", "-1%", ""] {
            assert!(percent(wrong).unwrap_err().contains("is no share"), "{wrong}");
        }
        let two = ues("imsi-999700000000001, imsi-999700000000002").unwrap();
        assert_eq!(two.len(), 2);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ues");
        std::fs::write(&file, "imsi-999700000000001\n\nimsi-999700000000002\n").unwrap();
        assert_eq!(ues(file.to_str().unwrap()), Ok(two));
        assert!(ues("/nonexistent").unwrap_err().contains("neither a file nor a SUPI"));
    }

    #[test]
    fn a_canary_is_shown_with_what_each_version_has_done() {
        let version = |code: &str, canary, failed| VersionView {
            code: code.into(),
            canary,
            ues: 3,
            procedures: 40,
            failed,
            cpfs_lost: 0,
            answer_p50_us: Some(21),
            answer_p99_us: None,
        };
        let canary = CanaryStatus {
            program: "/opt/whimbrel".into(),
            code: "00000002".into(),
            share: Share::Percent(10),
            since: "2026-01-01T00:00:00Z".into(),
            phase: Phase::Serves,
        };
        assert_eq!(
            canary_text(Some(&canary), &[version("00000002", true, 1), version("5be0cd19", false, 0)], None),
            "The canary of code 00000002 (/opt/whimbrel, since 2026-01-01T00:00:00Z) serves 10 % of UEs.\n\
             CODE               UES  PROCEDURES  FAILED  CPFS LOST  ANSWER P50  ANSWER P99\n\
             00000002 (canary)  3    40          1       0          21 us       -\n\
             5be0cd19           3    40          0       0          21 us       -\n"
        );
        let none = canary_text(None, &[], Some("code 2 was promoted"));
        assert!(
            none.starts_with("No canary is under way") && none.ends_with("last: code 2 was promoted\n"),
            "{none}"
        );
    }

    #[test]
    fn the_functions_of_a_unit_are_shown_with_their_states() {
        let function = |name: &str, pid| unit::FunctionStatus {
            name: name.into(),
            pid,
            state: "running".into(),
            code: "5be0cd19".into(),
            ended: 2,
            up_s: 7,
        };
        let status = UnitStatus {
            manager: 5,
            functions: vec![function("upf", Some(17)), function("cpf-1", None)],
            descriptors: vec!["cta/api".into(), "area/n4-00".into()],
            refused: 1,
            renews: false,
            canary: None,
            last_canary: None,
        };
        assert_eq!(
            text(&status),
            "FUNCTION  STATE    PROCESS  CODE      UP   ENDED\n\
             upf       running  17       5be0cd19  7 s  2\n\
             cpf-1     running  -        5be0cd19  7 s  2\n\
             manager: process 5; descriptors that are kept: cta/api, area/n4-00; refused connections, descriptors and requests: 1\n"
        );
    }
}
