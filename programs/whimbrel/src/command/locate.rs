//! `whimbrel ue locate`.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::cli::Running;
use whimbrel_api::CoreStatus;
use whimbrel_cli::{Done, print, print_json};
use whimbrel_node::client::{Client, path_part};
use whimbrel_node::observation::{EventRecord, UeView};

/// How long to wait for a location report: an idle UE is paged four times, two seconds apart.
const WITHIN: Duration = Duration::from_secs(9);
/// How often the events are polled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What to locate.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// SUPI, imsi-999700000000001 or its digits.
    supi: String,
    /// Page an idle UE to get its current location; default: its last known location.
    #[arg(long)]
    current: bool,
    /// Report each change of its cell from now on.
    #[arg(long, conflicts_with_all = ["current", "area", "stop"])]
    follow: bool,
    /// Report from now on when it enters or leaves this tracking area.
    #[arg(long, value_name = "TAC", conflicts_with_all = ["current", "stop"])]
    area: Option<u32>,
    /// Stop the reports.
    #[arg(long, conflicts_with = "current")]
    stop: bool,
    #[command(flatten)]
    at: Running,
}

/// Prints the location of a UE, or starts or stops its reports.
pub(crate) fn run(o: &Options) -> Done {
    let client = o.at.client()?;
    let path = format!("/api/v1/ues/{}", path_part(&o.supi));
    let standing = match (o.follow, o.area, o.stop) {
        (true, ..) => Some(("cells".to_string(), "each change of its cell will be reported")),
        (_, Some(tac), _) => {
            Some((format!("area&tac={tac}"), "entering and leaving the tracking area will be reported"))
        }
        (_, _, true) => Some(("stop".to_string(), "reports are stopped")),
        _ => None,
    };
    if let Some((report, effect)) = standing {
        client.post(&format!("{path}/locate?report={report}"))?;
        return print(&format!("{}: {effect}; GET /api/v1/events lists them\n", o.supi));
    }
    let ue: UeView = client.get(&path)?;
    if ue.mode == "connected" || o.current {
        ask(&client, &path, &ue.supi)?;
    }
    place(&client.get(&path)?, o.at.json)
}

/// Requests a location report from the UE's gNB.
fn ask(client: &Client, path: &str, supi: &str) -> Done {
    let mut since = client.get::<CoreStatus>("/api/v1/status")?.last_event;
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
    Err(format!("no gNB reported the location of {supi}; `whimbrel ue show {supi}` has the last known one"))
}

fn place(ue: &UeView, as_json: bool) -> Done {
    if as_json {
        return print_json(&json!({
            "supi": ue.supi, "mode": ue.mode, "tai": ue.tai, "cell": ue.cell, "seen": ue.seen, "seen_s": ue.seen_s,
        }));
    }
    let Some(tai) = &ue.tai else { return Err(format!("the location of {} is not known", ue.supi)) };
    let cell = ue.cell.as_ref().map(|c| format!(", cell {c}")).unwrap_or_default();
    let age = ue.seen_s.map(|s| format!(", {s} s ago")).unwrap_or_default();
    print(&format!("{} is {}: TAI {tai}{cell}{age}\n", ue.supi, ue.mode))
}
