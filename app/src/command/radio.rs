//! `whimbrel warning send|cancel|list`, `whimbrel overload`, `whimbrel gnb reset`, `whimbrel reload`.

use clap::Args;
use serde_json::{Value, json};

use super::operation::{Status, Waiting, order};
use super::{Done, print, print_json, table};
use crate::client::{Client, path_part};
use crate::console::{OverloadView, WarningView};

/// What is sent, and where.
#[derive(Args)]
pub(crate) struct WarningOptions {
    /// Message identifier: 4370 and above are public warnings of CMAS, 4352 to 4356 of ETWS (TS 23.041 §9.4.1.2.2).
    #[arg(long)]
    id: u16,
    /// Serial number; another number is another warning (TS 23.041 §9.4.1.2.1).
    #[arg(long)]
    serial: u16,
    /// What is broadcast.
    #[arg(long, default_value = "")]
    text: String,
    /// ETWS primary notification: earthquake, tsunami, earthquake-and-tsunami, test or other.
    #[arg(long)]
    etws: Option<String>,
    /// Tracking area code; may be given more than once. Without area or cell it is broadcast everywhere.
    #[arg(long = "tac")]
    tacs: Vec<u32>,
    /// NR cell identity, nine hexadecimal digits; may be given more than once.
    #[arg(long = "cell")]
    cells: Vec<String>,
    /// Seconds between broadcasts.
    #[arg(long, default_value_t = 30)]
    period: u32,
    /// Broadcasts; 0: until it is cancelled.
    #[arg(long, default_value_t = 0)]
    broadcasts: u16,
    /// Beside what is broadcast already, not in its place.
    #[arg(long)]
    concurrent: bool,
}

/// Sends a warning message, and waits for what each gNB does with it.
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

/// Every warning at every gNB, a line each.
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

/// Shows, or decides, whether gNBs are told to spare the core.
pub(crate) fn overload(client: Client, wish: Option<&str>) -> Done {
    let view: OverloadView = match wish {
        None => client.get("/api/v1/overload")?,
        Some(wish) => client.send("POST", &format!("/api/v1/overload/{wish}"), None)?,
    };
    let state = if view.overloaded { "gNBs are told to spare the core" } else { "there is no overload" };
    let who = if view.order == "rule" { "by the configured rule" } else { "by your order" };
    print(&format!("{state}, {who}\n"))
}

/// Resets all connections of a gNB.
pub(crate) fn reset(waiting: &Waiting, gnb: &str) -> Result<Status, String> {
    order(waiting, "POST", &format!("/api/v1/gnbs/{}/reset", path_part(gnb)), None)
}

/// Has the configuration read anew.
pub(crate) fn reload(client: Client) -> Done {
    let told: Value = client.send("POST", "/api/v1/reload", None)?;
    let kept: Vec<&str> = told["kept"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match kept.as_slice() {
        [] => print("the configuration is in force\n"),
        kept => print(&format!(
            "the configuration is in force, but for these, which wait for the next start: {}\n",
            kept.join(", ")
        )),
    }
}
