//! `whimbrel console`: a one-time link to the console, and the way back in for a user without the second factor.

use serde_json::{Value, json};

use whimbrel_cli::{Done, print, print_json};
use whimbrel_node::client::Client;

pub(crate) fn run(client: &Client, json: bool, reset_second_factor: Option<&str>) -> Done {
    if let Some(user) = reset_second_factor {
        client.send::<Value>("DELETE", &format!("/api/v1/users/{user}/second-factor"), None)?;
        return print(&format!("{user} has no second factor any more, and has to log in again\n"));
    }
    let link: Value = client.send("POST", "/api/v1/links", None)?;
    let url = format!("{}{}", client.url(), link["path"].as_str().unwrap_or_default());
    let minutes = link["expires_s"].as_u64().unwrap_or_default() / 60;
    if json {
        return print_json(&json!({ "url": url, "expires_s": link["expires_s"] }));
    }
    print(&format!("{url}\nThe link works once, within {minutes} minutes.\n"))
}
