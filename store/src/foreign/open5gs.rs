//! Subscribers as Open5GS keeps them: the documents of its collection `subscribers`, as mongoexport writes them.
//!
//! What has no counterpart here (PCC rules, IMEIs, flags of other systems) is left out.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use whimbrel_security::Sqn;

use super::{number, says_something};
use crate::record::sqn_offset_after;

/// Units of a bit rate, by their number.
const UNITS: [&str; 5] = ["bps", "Kbps", "Mbps", "Gbps", "Tbps"];
/// Session types, by their number.
const SESSION_TYPES: [(u64, &str); 3] = [(1, "IPV4"), (2, "IPV6"), (3, "IPV4V6")];
/// "Operator determined barring" among the values of `subscriber_status`.
const BARRED: u64 = 1;
/// "Enabled" among the values of pre-emption capability and vulnerability.
const ENABLED: u64 = 2;

/// The JSON of a record of ours, if the document is one of Open5GS.
pub(crate) fn converted(document: &Value) -> Option<Value> {
    let (imsi, security) = (document.get("imsi")?.as_str()?, document.get("security")?.as_object()?);
    let mut record = Map::new();
    record.insert("supi".into(), json!(imsi));
    for name in ["k", "op", "opc", "amf"] {
        if let Some(Value::String(text)) = security.get(name) {
            record.insert(name.into(), json!(text));
        }
    }
    if let Some(sqn) = security.get("sqn").and_then(number) {
        let [_, _, octets @ ..] = sqn.to_be_bytes();
        let offset = sqn_offset_after(Sqn::from_octets(octets)).value();
        record.insert("sqn_offset".into(), json!(offset));
    }
    if let Some(msisdn) = document.pointer("/msisdn/0").and_then(Value::as_str) {
        record.insert("msisdn".into(), json!(msisdn));
    }
    if document.get("subscriber_status").and_then(number) == Some(BARRED) {
        record.insert("status".into(), json!("barred"));
    }
    let mut subscription = Map::new();
    subscription.extend(ambr(document.get("ambr")).map(|a| ("ue_ambr".into(), a)));
    if let Some(Value::Array(slices)) = document.get("slice") {
        subscription.insert("slices".into(), slices.iter().map(slice).collect());
    }
    record.insert("subscription".into(), Value::Object(subscription));
    Some(Value::Object(record))
}

fn slice(document: &Value) -> Value {
    let sst = document.get("sst").and_then(number).unwrap_or(1);
    let s_nssai = match document.get("sd").and_then(Value::as_str) {
        Some(sd) => format!("{sst}-{sd}"),
        None => sst.to_string(),
    };
    let default = document.get("default_indicator").and_then(Value::as_bool).unwrap_or(true);
    let mut slice = json!({ "s_nssai": s_nssai, "default": default });
    if let Some(Value::Array(sessions)) = document.get("session") {
        slice["dnns"] = sessions.iter().enumerate().map(|(i, s)| dnn(s, i == 0)).collect();
    }
    slice
}

/// A data network. The first one of a slice is its default.
fn dnn(document: &Value, default: bool) -> Value {
    let mut dnn = json!({ "dnn": document.get("name"), "default": default });
    let kind = document.get("type").and_then(number);
    if let Some((_, kind)) = SESSION_TYPES.iter().find(|(number, _)| Some(*number) == kind) {
        dnn["session_type"] = json!(kind);
        if *kind != "IPV4V6" {
            dnn["allowed_session_types"] = json!([kind]);
        }
    }
    if let Some(five_qi) = document.pointer("/qos/index").and_then(number) {
        dnn["five_qi"] = json!(five_qi);
    }
    let arp = |name: &str| document.pointer("/qos/arp").and_then(|arp| arp.get(name)).and_then(number);
    if let Some(level) = arp("priority_level") {
        dnn["arp"] = json!({
            "priority_level": level,
            "may_preempt": arp("pre_emption_capability") == Some(ENABLED),
            "preemptable": arp("pre_emption_vulnerability") == Some(ENABLED),
        });
    }
    if let Some(ambr) = ambr(document.get("ambr")) {
        dnn["session_ambr"] = ambr;
    }
    // The name of the static address has changed between versions.
    for name in ["/ue/ipv4", "/ue/addr"] {
        if let Some(address) = document.pointer(name).and_then(Value::as_str) {
            dnn["ipv4"] = json!(address);
        }
    }
    dnn
}

fn ambr(document: Option<&Value>) -> Option<Value> {
    let rate = |direction: &str| {
        let rate = document?.get(direction)?;
        let unit = UNITS.get(usize::try_from(rate.get("unit").and_then(number)?).ok()?)?;
        Some(format!("{} {unit}", rate.get("value").and_then(number)?))
    };
    Some(json!({ "uplink": rate("uplink")?, "downlink": rate("downlink")? }))
}

/// Fields that say something which is not imported: by the place where they stand, those that are imported or say nothing of a
/// subscription.
const UNDERSTOOD: [(&str, &[&str]); 3] = [
    (
        "",
        &[
            "_id",
            "__v",
            "schema_version",
            "imsi",
            "msisdn",
            "security",
            "ambr",
            "slice",
            "subscriber_status",
            "network_access_mode",
            "subscribed_rau_tau_timer",
            "access_restriction_data",
        ],
    ),
    ("slice", &["_id", "sst", "sd", "default_indicator", "session"]),
    ("session", &["_id", "name", "type", "qos", "ambr", "ue"]),
];

/// Adds the names of the fields that say something and are not imported.
pub(super) fn ignored(document: &Value, names: &mut BTreeSet<String>) {
    fn items<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
        value.get(name).and_then(Value::as_array).into_iter().flatten()
    }
    let slices: Vec<&Value> = items(document, "slice").collect();
    let sessions: Vec<&Value> = slices.iter().flat_map(|slice| items(slice, "session")).collect();
    for ((place, understood), values) in UNDERSTOOD.iter().zip([vec![document], slices, sessions]) {
        for (name, value) in values.into_iter().filter_map(Value::as_object).flatten() {
            if !understood.contains(&name.as_str()) && says_something(value) {
                names.insert(if place.is_empty() { name.clone() } else { format!("{place}.{name}") });
            }
        }
    }
    let static_ipv6 = |session: &&Value| {
        ["/ue/ipv6", "/ue/addr6"].iter().any(|p| session.pointer(p).is_some_and(says_something))
    };
    if items(document, "slice").flat_map(|slice| items(slice, "session")).any(|s| static_ipv6(&s)) {
        names.insert("session.ue.ipv6".into());
    }
}
