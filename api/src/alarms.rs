//! What is wrong now, worst first, each with its reason and its fix: the answers of `why` for what is down or refused.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};
use super::{HandlerContext, why};
use whimbrel_node::clock;
use whimbrel_node::observation::{Condition, Name};

/// Refused UEs and lost gNBs that are listed: as many as a person reads. The rest stands in `GET /api/v1/refusals`.
const OF_EACH_MAX: usize = 20;

/// An alarm as the API gives it.
#[derive(Serialize, JsonSchema)]
pub(super) struct Alarm {
    /// `critical`: a part of the core does not serve. `major`: a gNB is down. `minor`: a UE or session is refused, or a part is limited.
    #[schemars(extend("enum" = ["critical", "major", "minor"]))]
    severity: &'static str,
    /// Its subject: a part of the core, a gNB, a UE.
    subject: String,
    /// Since when, RFC 3339; `None` where no time is known.
    since: Option<String>,
    /// The fault, and its reason.
    sentence: String,
    /// How to mend it.
    fix: Option<String>,
}

impl Alarm {
    /// Of an answer of `why`, which ends in the fix.
    fn new(severity: &'static str, subject: String, since: Option<String>, answer: &str) -> Self {
        let (sentence, fix) = match answer.rsplit_once("; fix: ") {
            Some((sentence, fix)) => (format!("{sentence}."), Some(capitalised(fix))),
            None => (answer.to_string(), None),
        };
        Self { severity, subject, since, sentence: capitalised(&sentence), fix }
    }
}

fn capitalised(text: &str) -> String {
    // Names of UEs, gNBs and commands stand as they are.
    let is_name = text.starts_with(['`', '5']) || text.starts_with("imsi-") || text.starts_with("gnb-");
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !is_name => first.to_uppercase().chain(chars).collect(),
        _ => text.into(),
    }
}

pub(super) async fn list(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<Json<Vec<Alarm>>> {
    let mut alarms = Vec::new();
    let parts = shared.console.components(|c| c.all().cloned().collect::<Vec<_>>());
    for part in parts.into_iter().filter(|p| p.condition != Condition::Up) {
        let severity = if part.condition == Condition::Down { "critical" } else { "minor" };
        alarms.push(Alarm::new(severity, part.name, None, &part.detail));
    }
    for (name, since) in shared.console.histories(|h| h.troubled(OF_EACH_MAX)) {
        let severity = if matches!(name, Name::Gnb(_)) { "major" } else { "minor" };
        let subject = why::shown(&name);
        let answer = why::remembered(&shared, &name, &subject).await;
        alarms.push(Alarm::new(severity, subject, Some(clock::rfc3339(since)), &answer.sentence));
    }
    alarms.sort_by_key(|a| match a.severity {
        "critical" => 0,
        "major" => 1,
        _ => 2,
    });
    TypedReply::json(&alarms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_stands_apart_from_the_sentence() {
        let answer = "imsi-1 is not registered: it is barred; fix: `whimbrel subscriber edit`.";
        let alarm = Alarm::new("minor", "imsi-1".into(), None, answer);
        assert_eq!(alarm.sentence, "imsi-1 is not registered: it is barred.");
        assert_eq!(alarm.fix.as_deref(), Some("`whimbrel subscriber edit`."));
        let alarm = Alarm::new("critical", "n2".into(), None, "no gNB can connect");
        assert_eq!((alarm.sentence.as_str(), alarm.fix), ("No gNB can connect", None));
    }
}
