//! `whimbrel drain`: gives the UEs of a core to another AMF of its set, and waits until they are there.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use whimbrel_cli::{Done, print, print_json};
use whimbrel_node::client::{Client, path_part};
use whimbrel_node::observation::RemovalView;

use crate::cli::Running;

/// How often the number of UEs is polled.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The options of `whimbrel drain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Name in `peer_amfs` of the AMF that takes the UEs over; default: the first one of the set that is connected.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Longest time to wait, in seconds. The UEs that are left then go on moving.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    within: u64,
    /// Show whether the core is being drained, and how far it is.
    #[arg(long, conflicts_with_all = ["to", "within", "cancel"])]
    show: bool,
    /// End it: the core serves new UEs again. UEs that went stay where they are.
    #[arg(long, conflicts_with_all = ["to", "within"])]
    cancel: bool,
    #[command(flatten)]
    at: Running,
}

/// Has the core give its UEs to another AMF of its set.
pub(crate) fn drain(o: &Options) -> Done {
    let client = o.at.client()?;
    let path = "/api/v1/removal";
    if o.show || o.cancel {
        let view: RemovalView = if o.show { client.get(path)? } else { client.send("DELETE", path, None)? };
        return if o.at.json { print_json(&json!(view)) } else { print(&sentence(&view)) };
    }
    let query = o.to.as_deref().map(|to| format!("?successor={}", path_part(to))).unwrap_or_default();
    let mut view: RemovalView = client.send("POST", &format!("{path}{query}"), None)?;
    let until = Instant::now() + Duration::from_secs(o.within);
    while !is_done(&view) && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
        view = look(&client, path)?;
    }
    if o.at.json {
        print_json(&json!(view))?;
    } else {
        print(&sentence(&view))?;
    }
    match is_done(&view) {
        true => Ok(()),
        false => Err(format!("{} UEs are left after {} s; they go on moving", view.ues_left, o.within)),
    }
}

fn look(client: &Client, path: &str) -> Result<RemovalView, String> {
    client.get(path)
}

fn is_done(view: &RemovalView) -> bool {
    view.announced && view.ues_left == 0
}

fn sentence(view: &RemovalView) -> String {
    match &view.successor {
        None => "the core is not being drained\n".to_owned(),
        Some(to) if is_done(view) => {
            format!("all UEs are at {to}, and gNBs send none here: the core can be stopped\n")
        }
        Some(to) => format!("{} UEs are left to go to {to}\n", view.ues_left),
    }
}
