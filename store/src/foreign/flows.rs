//! QoS flows of other cores' policies, as a subscription here has them (TS 23.503 §6.3.1).

use serde_json::{Value, json};

use crate::subscription::{FLOWS_MAX, SubscribedFlow};

/// The core's own check of a flow: its packet filters, its rates, its precedence. Errors: what is wrong, in words.
pub type FlowCheck<'a> = dyn Fn(&SubscribedFlow) -> Result<(), String> + 'a;

/// Names of protocols in packet filters, for which the core takes their numbers.
const PROTOCOLS: [(&str, &str); 7] = [
    ("icmp", "1"),
    ("tcp", "6"),
    ("udp", "17"),
    ("esp", "50"),
    ("ah", "51"),
    ("icmp6", "58"),
    ("sctp", "132"),
];

/// An IPFilterRule (TS 29.212 §5.4.2) whose protocol is a number.
pub(super) fn packet_filter(text: &str) -> String {
    let words = text.split_ascii_whitespace();
    let numbered = words.enumerate().map(|(at, word)| {
        let named = (at == 2).then(|| PROTOCOLS.iter().find(|(name, _)| *name == word)).flatten();
        named.map_or(word, |(_, number)| number)
    });
    numbered.collect::<Vec<_>>().join(" ")
}

/// Adds a flow to those of a DNN if the core takes it, else the reason to `notes`. `rule` is the flow's name in a sentence.
pub(super) fn add_flow(
    flows: &mut Vec<Value>,
    flow: Value,
    rule: &str,
    check: &FlowCheck<'_>,
    notes: &mut Vec<String>,
) {
    if flows.len() == FLOWS_MAX {
        notes.push(format!("{rule} is left out, because a DNN has at most {FLOWS_MAX} flows."));
        return;
    }
    let checked = |flow: &Value| {
        let flow = serde_json::from_value::<SubscribedFlow>(flow.clone()).map_err(|e| e.to_string())?;
        check(&flow)
    };
    let has_rates = flow.get("guaranteed").is_some();
    match checked(&flow) {
        Ok(()) if !has_rates && flow.get("maximum").is_some() => {
            notes.push(format!(
                "{rule} is imported without its maximum rate, because a flow without a guaranteed rate shares the session's AMBR."
            ));
            flows.push(without_rates(flow));
        }
        Ok(()) => flows.push(flow),
        Err(why) => {
            let bare = without_rates(flow);
            if has_rates && checked(&bare).is_ok() {
                notes.push(format!("{rule} is imported without its rates: {why}."));
                flows.push(bare);
            } else {
                notes.push(format!("{rule} is left out: {why}."));
            }
        }
    }
}

fn without_rates(mut flow: Value) -> Value {
    if let Some(map) = flow.as_object_mut() {
        map.remove("guaranteed");
        map.remove("maximum");
    }
    flow
}

/// Rates of both directions, if both say something.
pub(super) fn rates(uplink: Option<String>, downlink: Option<String>) -> Option<Value> {
    Some(json!({ "uplink": uplink?, "downlink": downlink? }))
}
