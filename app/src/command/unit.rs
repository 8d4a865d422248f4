//! `whimbrel unit` and `whimbrel upgrade`: the functions of the unit that runs on this host.

use std::path::PathBuf;

use clap::Args;

use super::{Done, print, print_json, table};
use crate::cli::ConfigFile;
use crate::config;
use crate::unit::{self, Status};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    config: ConfigFile,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct UpgradeOptions {
    /// The new program; default: this one, which restarts the functions.
    program: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
}

/// `whimbrel unit`.
pub(crate) fn show(options: &Options) -> Done {
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let status = unit::status(&config.unit.directory)?;
    if options.json {
        return print_json(&serde_json::to_value(&status).map_err(|e| e.to_string())?);
    }
    print(&text(&status))
}

/// The functions of a unit as a table.
pub(crate) fn text(status: &Status) -> String {
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
    text += &if status.descriptors.is_empty() { "none".into() } else { names(&status.descriptors) };
    if status.refused > 0 {
        text += &format!("; refused connections: {}", status.refused);
    }
    text + "\n"
}

/// `whimbrel upgrade`.
pub(crate) fn upgrade(options: &UpgradeOptions) -> Done {
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    unit::upgrade(&config.unit.directory, options.program.as_deref(), |line| print(&format!("{line}\n")))
}

/// The descriptors' names; the pool, of which each function has a bell, is one.
fn names(descriptors: &[String]) -> String {
    let others = descriptors.iter().map(String::as_str).filter(|name| !name.starts_with("pool/bell-"));
    others.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let status = Status {
            manager: 5,
            functions: vec![function("upf", Some(17)), function("cpf-1", None)],
            descriptors: vec!["cta/api".into(), "pool/bell-00".into(), "pool/memory".into()],
            refused: 1,
            renews: false,
        };
        assert_eq!(
            text(&status),
            "FUNCTION  STATE    PROCESS  CODE      UP   ENDED\n\
             upf       running  17       5be0cd19  7 s  2\n\
             cpf-1     running  -        5be0cd19  7 s  2\n\
             manager: process 5; descriptors that are kept: cta/api, pool/memory; refused connections: 1\n"
        );
    }
}
