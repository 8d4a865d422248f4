//! `whimbrel why`: one sentence that says why a phone or a gNB is not on, and the history behind it.

use super::Done;
use crate::api::WhyAnswer;
use crate::client::{Client, path_part};

pub(crate) fn run(client: Client, subject: &str, json: bool) -> Done {
    let path = format!("/api/v1/why/{}", path_part(subject));
    if json {
        return super::print_json(&client.get::<serde_json::Value>(&path)?);
    }
    let answer: WhyAnswer = client.get(&path)?;
    let mut text = format!("{}\n", answer.sentence);
    let older: Vec<_> = answer.refusals.iter().skip(1).collect();
    if !older.is_empty() {
        text += "\nBefore that:\n";
    }
    for refusal in older {
        text += &format!("  {}\n", refusal.sentence());
    }
    super::print(&text)
}
