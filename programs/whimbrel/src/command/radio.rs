//! `whimbrel warning send|cancel|list`, `whimbrel overload`, `whimbrel gnb reset|disconnect`, `whimbrel reload`.

use clap::Args;
use serde_json::{Value, json};

use super::operation::{Status, Waiting, order};
use whimbrel_cli::{Done, print, print_json, table};
use whimbrel_node::client::{Client, path_part};
use whimbrel_node::observation::{DisconnectedView, OverloadView, WarningView};

/// A warning message and its area.
#[derive(Args)]
pub(crate) struct WarningOptions {
    /// Message identifier: 4370 and above are public warnings of CMAS, 4352 to 4356 of ETWS (TS 23.041 §9.4.1.2.2).
    #[arg(long)]
    id: u16,
    /// Serial number; a new number makes it a new warning (TS 23.041 §9.4.1.2.1).
    #[arg(long)]
    serial: u16,
    /// Text to broadcast.
    #[arg(long, default_value = "")]
    text: String,
    /// ETWS primary notification: earthquake, tsunami, earthquake-and-tsunami, test or other.
    #[arg(long)]
    etws: Option<String>,
    /// Tracking area code; may be repeated. Without --tac and --cell it is broadcast everywhere.
    #[arg(long = "tac")]
    tacs: Vec<u32>,
    /// NR cell identity, nine hexadecimal digits; may be repeated.
    #[arg(long = "cell")]
    cells: Vec<String>,
    /// Seconds between broadcasts.
    #[arg(long, default_value_t = 30)]
    period: u32,
    /// Number of broadcasts; 0: until it is cancelled.
    #[arg(long, default_value_t = 0)]
    broadcasts: u16,
    /// Broadcast it beside the warnings in force, instead of replacing them.
    #[arg(long)]
    concurrent: bool,
}

/// Sends a warning message, and waits for the answer of each gNB.
pub(crate) fn send(waiting: &Waiting, o: &WarningOptions) -> Result<Status, String> {
    let body = json!({
        "message_identifier": o.id, "serial_number": o.serial, "text": o.text, "etws": o.etws, "tacs": o.tacs,
        "cells": o.cells, "repetition_period_s": o.period, "broadcasts": o.broadcasts, "concurrent": o.concurrent,
    });
    order(waiting, "POST", "/api/v1/warnings", Some(&body))
}

/// Cancels a warning message.
pub(crate) fn cancel(waiting: &Waiting, id: u16, serial: u16) -> Result<Status, String> {
    order(waiting, "DELETE", &format!("/api/v1/warnings/{id}/{serial}"), None)
}

/// Lists each warning at each gNB, one a line.
pub(crate) fn warnings(client: Client, json: bool) -> Done {
    if json {
        return print_json(&client.get::<Value>("/api/v1/warnings")?);
    }
    let warnings: Vec<WarningView> = client.get("/api/v1/warnings")?;
    if warnings.is_empty() {
        return print("No warning was sent.\n");
    }
    let rows: Vec<Vec<String>> = warnings
        .iter()
        .flat_map(|w| {
            w.gnbs.iter().map(|g| {
                let (id, serial) = (w.message_identifier.to_string(), w.serial_number.to_string());
                vec![id, serial, w.state.clone(), w.area.join(" "), g.gnb.clone(), g.outcome.clone()]
            })
        })
        .collect();
    print(&table(&["ID", "SERIAL", "STATE", "AREA", "GNB", "OUTCOME"], &rows))
}

/// Shows or sets whether gNBs get OVERLOAD START.
pub(crate) fn overload(client: Client, order: Option<&str>) -> Done {
    let view: OverloadView = match order {
        None => client.get("/api/v1/overload")?,
        Some(order) => client.send("POST", &format!("/api/v1/overload/{order}"), None)?,
    };
    let state = if view.overloaded { "OVERLOAD START is in force at gNBs" } else { "there is no overload" };
    let by = if view.order == "rule" { "by the configured thresholds" } else { "by the operator's order" };
    print(&format!("{state}, {by}\n"))
}

/// Resets all connections of a gNB.
pub(crate) fn reset(waiting: &Waiting, gnb: &str) -> Result<Status, String> {
    order(waiting, "POST", &format!("/api/v1/gnbs/{}/reset", path_part(gnb)), None)
}

/// Disconnects a gNB.
pub(crate) fn disconnect(client: Client, gnb: &str) -> Done {
    let path = format!("/api/v1/gnbs/{}/disconnect", path_part(gnb));
    let DisconnectedView { gnb } = client.send("POST", &path, None)?;
    print(&format!(
        "{gnb} was disconnected; for 60 s no gNB gets its identity from the addresses that it had.\n"
    ))
}

/// Has the core reload its configuration.
pub(crate) fn reload(client: Client) -> Done {
    let answer: Value = client.send("POST", "/api/v1/reload", None)?;
    let kept: Vec<&str> = answer["kept"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match kept.as_slice() {
        [] => print("the configuration is in force\n"),
        kept => print(&format!(
            "the configuration is in force, except these keys, which need a restart: {}\n",
            kept.join(", ")
        )),
    }
}
