//! `whimbrel log-level`: shows or sets the level of the running core's log.

use clap::Args;
use serde_json::Value;

use crate::cli::Running;
use whimbrel_cli::{Done, print, print_json};

#[derive(Args)]
pub(crate) struct Options {
    /// New level, until the next start. Without it, show the level.
    #[arg(value_parser = ["error", "warn", "info", "debug", "trace"])]
    level: Option<String>,
    /// Set the former level again after this time.
    #[arg(long = "for", value_name = "SECONDS", requires = "level")]
    seconds: Option<u32>,
    #[command(flatten)]
    at: Running,
}

pub(crate) fn run(options: &Options) -> Done {
    let client = options.at.client()?;
    let view: Value = match &options.level {
        None => client.get("/api/v1/log-level")?,
        Some(level) => {
            let seconds = options.seconds.unwrap_or(0);
            client.send("POST", &format!("/api/v1/log-level/{level}?seconds={seconds}"), None)?
        }
    };
    if options.at.json {
        return print_json(&view);
    }
    let [level, configured] = ["level", "configured"].map(|key| view[key].as_str().unwrap_or_default());
    print(&format!("the log's level is {level}; the configuration says {configured}\n"))
}
