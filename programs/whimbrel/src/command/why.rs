//! `whimbrel why`: one sentence that says why a UE or a gNB is not on, and the history behind it.

use whimbrel_api::WhyAnswer;
use whimbrel_cli::Done;
use whimbrel_node::client::{Client, path_part};

pub(crate) fn run(client: Client, subject: &str, json: bool) -> Done {
    let path = format!("/api/v1/why/{}", path_part(subject));
    if json {
        return whimbrel_cli::print_json(&client.get::<serde_json::Value>(&path)?);
    }
    let answer: WhyAnswer = client.get(&path)?;
    let mut text = format!("{}\n", answer.sentence);
    for (title, lines) in [
        ("What happened, newest first:", &answer.history),
        ("Refusals of UEs through it, newest first:", &answer.refused_ues),
    ] {
        if !lines.is_empty() {
            text += &format!("\n{title}\n");
            text.extend(lines.iter().map(|line| format!("  {line}\n")));
        }
    }
    whimbrel_cli::print(&text)
}
