//! `whimbrel upf drain`: moves the sessions of a UPF to others before its maintenance, and waits until none is left.

use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_cli::{Done, print, print_json};
use whimbrel_node::client::{Client, path_part};
use whimbrel_node::observation::UpfDrainView;

use crate::cli::Running;

/// How often the number of UEs is polled.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// UEs whose sessions are released may take so long to answer (`RELEASE_TIME` in resilience/src/cta/upf_drain.rs), and some seconds are for the release itself.
const RELEASE_TIME: Duration = Duration::from_secs(40);

/// Orders to a running core about one of its UPFs.
#[derive(Subcommand, Clone)]
pub(crate) enum UpfOrder {
    /// Give new sessions to other UPFs, move those of SSC mode 2 and 3, release the rest after a time, and wait until none is left.
    Drain(DrainOptions),
}

/// The options of `whimbrel upf drain`.
#[derive(Args, Clone)]
pub(crate) struct DrainOptions {
    /// Name of the UPF in `upfs`.
    upf: String,
    /// Release the sessions that cannot be moved after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    within: u64,
    /// Show whether the UPF is being drained, and how far it is.
    #[arg(long, conflicts_with_all = ["within", "cancel"])]
    show: bool,
    /// End it: the UPF gets sessions again. Those that went stay where they are.
    #[arg(long, conflicts_with = "within")]
    cancel: bool,
    #[command(flatten)]
    at: Running,
}

/// Has the core move the sessions of a UPF to others.
pub(crate) fn drain(o: &DrainOptions) -> Done {
    let client = o.at.client()?;
    let path = format!("/api/v1/upfs/{}/drain", path_part(&o.upf));
    if o.show || o.cancel {
        let view: UpfDrainView =
            if o.show { client.get(&path)? } else { client.send("DELETE", &path, None)? };
        return if o.at.json { print_json(&json!(view)) } else { print(&sentence(&view)) };
    }
    let query = format!("{path}?within_s={}", o.within);
    let view: UpfDrainView = client.send("POST", &query, None)?;
    if let Some(place) = view.served_by_none_but.as_ref().filter(|_| !o.at.json) {
        print(&format!(
            "no other UPF that answers serves {place}: UEs cannot set up sessions there until `--cancel`\n"
        ))?;
    }
    let view = wait(&client, &path, o, view)?;
    if o.at.json {
        print_json(&json!(view))?;
    }
    match view.ues_left {
        0 => Ok(()),
        left => Err(format!("{left} UEs still have sessions at {}; they go on leaving it", o.upf)),
    }
}

/// Waits until no UE is left, and shows how many there are whenever that changes.
fn wait(client: &Client, path: &str, o: &DrainOptions, first: UpfDrainView) -> Result<UpfDrainView, String> {
    let until = Instant::now() + Duration::from_secs(o.within) + RELEASE_TIME;
    let mut view = first;
    if !o.at.json {
        print(&sentence(&view))?;
    }
    while view.ues_left > 0 && view.ordered_by.is_some() && Instant::now() < until {
        sleep(LOOK_EVERY);
        let now: UpfDrainView = client.get(path)?;
        if now.ues_left != view.ues_left && !o.at.json {
            print(&sentence(&now))?;
        }
        view = now;
    }
    Ok(view)
}

fn sentence(view: &UpfDrainView) -> String {
    let UpfDrainView { upf, ues_left, released_in_s, .. } = view;
    match (&view.ordered_by, ues_left) {
        (None, _) => format!("{upf} is not being drained; {ues_left} UEs have sessions there\n"),
        (Some(_), 0) => format!("no UE has a session at {upf}, and it gets none: it can be stopped\n"),
        (Some(_), _) => match released_in_s {
            Some(seconds) if *seconds > 0 => {
                format!(
                    "{ues_left} UEs have sessions at {upf}, which are released in {seconds} s at the latest\n"
                )
            }
            _ => format!("{ues_left} UEs have sessions at {upf}, which are being released\n"),
        },
    }
}
