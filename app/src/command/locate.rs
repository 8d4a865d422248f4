//! `whimbrel ue locate`.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::{Done, print, print_json};
use crate::api::Status;
use crate::cli::Running;
use crate::client::{Client, path_part};
use crate::console::{EventRecord, UeView};

/// How long a report is waited for: a UE that is idle is paged four times, two seconds apart.
const WITHIN: Duration = Duration::from_secs(9);
/// How often it is looked whether it has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What is to be known of a UE's place.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// SUPI, imsi-999700000000001 or its digits.
    supi: String,
    /// Page an idle UE for it, in place of its last known place.
    #[arg(long)]
    current: bool,
    /// Have each change of its cell reported from now on.
    #[arg(long, conflicts_with_all = ["current", "area", "stop"])]
    follow: bool,
    /// Have it reported when it comes to this tracking area and when it leaves it, from now on.
    #[arg(long, value_name = "TAC", conflicts_with_all = ["current", "stop"])]
    area: Option<u32>,
    /// No reports any more.
    #[arg(long, conflicts_with = "current")]
    stop: bool,
    #[command(flatten)]
    at: Running,
}

/// Says where a UE is, or has it followed.
pub(crate) fn run(o: &Options) -> Done {
    let client = o.at.client()?;
    let path = format!("/api/v1/ues/{}", path_part(&o.supi));
    let standing = match (o.follow, o.area, o.stop) {
        (true, ..) => Some(("cells".to_string(), "each change of its cell is reported from now on")),
        (_, Some(tac), _) => {
            Some((format!("area&tac={tac}"), "its coming and going is reported from now on"))
        }
        (_, _, true) => Some(("stop".to_string(), "it is not followed any more")),
        _ => None,
    };
    if let Some((report, said)) = standing {
        client.post(&format!("{path}/locate?report={report}"))?;
        return print(&format!("{}: {said}; GET /api/v1/events shows the reports\n", o.supi));
    }
    let ue: UeView = client.get(&path)?;
    if ue.mode == "connected" || o.current {
        ask(client, &path, &ue.supi)?;
    }
    place(&client.get(&path)?, o.at.json)
}

/// Has the UE's gNB tell where it is now.
fn ask(client: Client, path: &str, supi: &str) -> Done {
    let mut since = client.get::<Status>("/api/v1/status")?.last_event;
    client.post(&format!("{path}/locate"))?;
    let begun = Instant::now();
    while begun.elapsed() < WITHIN {
        let events: Vec<EventRecord> = client.get(&format!("/api/v1/events?since={since}&limit=1000"))?;
        for event in &events {
            since = since.max(event.seq);
            match event.kind.as_str() {
                "located" if event.subject == supi => return Ok(()),
                "not.located" if event.subject == supi => return Err(format!("{supi}: {}", event.text)),
                _ => {}
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Err(format!("no gNB told where {supi} is; `whimbrel ue show {supi}` says where it was last"))
}

fn place(ue: &UeView, as_json: bool) -> Done {
    if as_json {
        return print_json(&json!({
            "supi": ue.supi, "mode": ue.mode, "tai": ue.tai, "cell": ue.cell, "seen": ue.seen, "seen_s": ue.seen_s,
        }));
    }
    let Some(tai) = &ue.tai else { return Err(format!("nobody has told where {} is", ue.supi)) };
    let cell = ue.cell.as_ref().map(|c| format!(", cell {c}")).unwrap_or_default();
    let age = ue.seen_s.map(|s| format!(", {s} s ago")).unwrap_or_default();
    print(&format!("{} is {}: TAI {tai}{cell}{age}\n", ue.supi, ue.mode))
}
