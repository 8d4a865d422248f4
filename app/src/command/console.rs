//! `whimbrel console`: a one-time link to the console.

use serde_json::{Value, json};

use super::{Done, print, print_json};
use crate::client::Client;

pub(crate) fn run(client: &Client, json: bool) -> Done {
    let link: Value = client.send("POST", "/api/v1/links", None)?;
    let url = format!("{}{}", client.url(), link["path"].as_str().unwrap_or_default());
    let minutes = link["expires_s"].as_u64().unwrap_or_default() / 60;
    if json {
        return print_json(&json!({ "url": url, "expires_s": link["expires_s"] }));
    }
    print(&format!("{url}\nThe link works once, within {minutes} minutes.\n"))
}
