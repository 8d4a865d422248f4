//! Subscribers as Open5GS keeps them: the documents of its collection `subscribers`, as mongoexport writes them.
//!
//! PCC rules with packet filters become flows. What has no counterpart here (IMEIs, flags of other systems) is left out.

use std::net::Ipv6Addr;

use serde_json::{Map, Value, json};
use whimbrel_security::Sqn;

use super::flows::{FlowCheck, add_flow, packet_filter, rates};
use super::{number, prefix_of, says_something};
use crate::record::sqn_offset_after;

/// Units of a bit rate, by their number.
const UNITS: [&str; 5] = ["bps", "Kbps", "Mbps", "Gbps", "Tbps"];
/// Session types, by their number.
const SESSION_TYPES: [(u64, &str); 5] =
    [(1, "IPV4"), (2, "IPV6"), (3, "IPV4V6"), (4, "UNSTRUCTURED"), (5, "ETHERNET")];
/// "Operator determined barring" among the values of `subscriber_status`.
const BARRED: u64 = 1;
/// "NR in 5GS not allowed" in `access_restriction_data` (TS 29.272 §7.3.31).
const NR_RESTRICTED: u64 = 1 << 10;
/// Bits of `access_restriction_data` that say nothing of 5G here: the default, "handover to non-3GPP access not allowed".
const RESTRICTIONS_PASSED_OVER: u64 = 1 << 5;
/// Directions of a packet filter, by their number.
const DIRECTIONS: [(u64, &str); 2] = [(1, "downlink "), (2, "uplink ")];
/// "Enabled" among the values of pre-emption capability and vulnerability.
const ENABLED: u64 = 2;

/// The JSON of a record of ours, if the document is one of Open5GS; what of it is not imported goes to `notes`.
pub(crate) fn converted(document: &Value, check: &FlowCheck<'_>, notes: &mut Vec<String>) -> Option<Value> {
    let (imsi, security) = (document.get("imsi")?.as_str()?, document.get("security")?.as_object()?);
    let mut record = Map::new();
    record.insert("supi".into(), json!(imsi));
    for name in ["k", "op", "opc", "amf"] {
        if let Some(text) = security.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()) {
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
        let slices = slices.iter().map(|s| slice(s, check, notes));
        subscription.insert("slices".into(), slices.collect());
    }
    let restrictions = document.get("access_restriction_data").and_then(number).unwrap_or_default();
    if restrictions & NR_RESTRICTED != 0 {
        subscription.insert("rat_restrictions".into(), json!(["NR"]));
    }
    if restrictions & !(NR_RESTRICTED | RESTRICTIONS_PASSED_OVER) != 0 {
        notes.push(
            "access_restriction_data: bits that restrict other radio access than NR are left out.".into(),
        );
    }
    note_fields(document, "", &FIELDS, notes);
    record.insert("subscription".into(), Value::Object(subscription));
    Some(Value::Object(record))
}

fn slice(document: &Value, check: &FlowCheck<'_>, notes: &mut Vec<String>) -> Value {
    let sst = document.get("sst").and_then(number).unwrap_or(1);
    let s_nssai = match document.get("sd").and_then(Value::as_str) {
        Some(sd) => format!("{sst}-{sd}"),
        None => sst.to_string(),
    };
    let default = document.get("default_indicator").and_then(Value::as_bool).unwrap_or(true);
    let mut slice = json!({ "s_nssai": s_nssai, "default": default });
    if let Some(Value::Array(sessions)) = document.get("session") {
        slice["dnns"] = sessions.iter().enumerate().map(|(i, s)| dnn(s, i == 0, check, notes)).collect();
    }
    note_fields(document, "slice.", &SLICE_FIELDS, notes);
    slice
}

/// A data network. The first one of a slice is its default.
fn dnn(document: &Value, default: bool, check: &FlowCheck<'_>, notes: &mut Vec<String>) -> Value {
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
    for name in ["/ue/ipv6", "/ue/addr6"] {
        if let Some(text) = document.pointer(name).and_then(Value::as_str).filter(|text| !text.is_empty()) {
            dnn["ipv6"] = static_prefix(text, notes);
        }
    }
    let routes =
        ["ipv4_framed_routes", "ipv6_framed_routes"].iter().filter_map(|name| document.get(name)?.as_array());
    let routes: Vec<&Value> = routes.flatten().filter(|route| says_something(route)).collect();
    if !routes.is_empty() {
        dnn["framed_routes"] = json!(routes);
    }
    let name = document.get("name").and_then(Value::as_str).unwrap_or_default();
    let mut flows = Vec::new();
    let rules = document.get("pcc_rule").and_then(Value::as_array);
    for (number, rule) in (1..).zip(rules.into_iter().flatten()) {
        flow(rule, number, name, &mut flows, check, notes);
    }
    if !flows.is_empty() {
        dnn["flows"] = flows.into();
    }
    note_fields(document, "session.", &SESSION_FIELDS, notes);
    dnn
}

/// The prefix of a static address: Open5GS sends its upper 64 bits in router advertisements, and the lower ones as the interface
/// identifier of the link-local address.
fn static_prefix(text: &str, notes: &mut Vec<String>) -> Value {
    let address = text.split_once('/').map_or(text, |(address, _)| address).parse::<Ipv6Addr>();
    // What is no address is left as it stands, for the error that names it.
    let Ok(address) = address else { return json!(text) };
    if address.to_bits() as u64 != 0 {
        notes.push(
            "session.ue.ipv6: the prefix of 64 bits is imported; the interface identifier is left out, because UEs choose their own.".into(),
        );
    }
    json!(prefix_of(address))
}

/// A PCC rule. Open5GS tries them in their order; those without packet filters wait for an application function.
fn flow(
    rule: &Value,
    place: u64,
    dnn: &str,
    flows: &mut Vec<Value>,
    check: &FlowCheck<'_>,
    notes: &mut Vec<String>,
) {
    let five_qi = rule.pointer("/qos/index").and_then(number).unwrap_or_default();
    let filters: Vec<String> = rule
        .get("flow")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|filter| {
            let direction = filter.get("direction").and_then(number);
            let direction = DIRECTIONS.iter().find(|(number, _)| Some(*number) == direction);
            let text = filter.get("description")?.as_str()?;
            Some(format!("{}{}", direction.map_or("", |(_, word)| word), packet_filter(text)))
        })
        .collect();
    if filters.is_empty() {
        notes.push(format!(
            "A PCC rule of {dnn} with 5QI {five_qi} and without packet filters is left out, because an application function would have to \
             ask for it, and this core has no interface for one."
        ));
        return;
    }
    let arp = |name: &str| rule.pointer("/qos/arp").and_then(|arp| arp.get(name)).and_then(number);
    let mut flow = json!({
        "name": format!("pcc-{place}"),
        "five_qi": five_qi,
        "precedence": place,
        "filters": filters,
        "arp": {
            "priority_level": arp("priority_level").unwrap_or(8),
            "may_preempt": arp("pre_emption_capability") == Some(ENABLED),
            "preemptable": arp("pre_emption_vulnerability") == Some(ENABLED),
        },
    });
    for (name, path) in [("guaranteed", "/qos/gbr"), ("maximum", "/qos/mbr")] {
        // An empty field of the web console is stored as zero, or not at all.
        let rate =
            |direction| bit_rate(rule.pointer(path)?.get(direction)?).filter(|rate| !rate.starts_with("0 "));
        if let Some(rates) = rates(rate("uplink"), rate("downlink")) {
            flow[name] = rates;
        }
    }
    add_flow(flows, flow, &format!("PCC rule {place} of {dnn}"), check, notes);
}

fn ambr(document: Option<&Value>) -> Option<Value> {
    let rate = |direction: &str| bit_rate(document?.get(direction)?);
    Some(json!({ "uplink": rate("uplink")?, "downlink": rate("downlink")? }))
}

fn bit_rate(document: &Value) -> Option<String> {
    let unit = UNITS.get(usize::try_from(document.get("unit").and_then(number)?).ok()?)?;
    Some(format!("{} {unit}", document.get("value").and_then(number)?))
}

/// A field's name, and why it is left out; of those that are imported or say nothing of a subscription, nothing.
type KnownField = (&'static str, Option<&'static str>);

const EPS: Option<&str> = Some("it says where the UE was registered in EPS");

const FIELDS: [KnownField; 18] = [
    ("_id", None),
    ("__v", None),
    ("schema_version", None),
    ("imsi", None),
    ("msisdn", None),
    ("security", None),
    ("ambr", None),
    ("slice", None),
    ("subscriber_status", None),
    ("network_access_mode", None),
    ("subscribed_rau_tau_timer", None),
    ("access_restriction_data", None),
    ("imeisv", Some("a subscription holds no identity of a device")),
    ("mme_host", EPS),
    ("mme_realm", EPS),
    ("mm_realm", EPS),
    ("purge_flag", EPS),
    ("operator_determined_barring", Some("a subscriber is barred as a whole, by subscriber_status")),
];
const SLICE_FIELDS: [KnownField; 5] =
    [("_id", None), ("sst", None), ("sd", None), ("default_indicator", None), ("session", None)];
const SESSION_FIELDS: [KnownField; 11] = [
    ("_id", None),
    ("name", None),
    ("type", None),
    ("qos", None),
    ("ambr", None),
    ("ue", None),
    ("pcc_rule", None),
    ("ipv4_framed_routes", None),
    ("ipv6_framed_routes", None),
    (
        "smf",
        Some("the control plane has one SMF, and the configuration says which UPF serves a data network"),
    ),
    ("lbo_roaming_allowed", Some("this core has no roaming")),
];

/// Notes the fields that say something and are not imported.
fn note_fields(document: &Value, place: &str, fields: &[KnownField], notes: &mut Vec<String>) {
    for (name, _) in document.as_object().into_iter().flatten().filter(|(_, value)| says_something(value)) {
        match fields.iter().find(|(field, _)| field == name) {
            Some((_, None)) => {}
            Some((_, Some(why))) => notes.push(format!("{place}{name} is left out, because {why}.")),
            None => notes.push(format!("{place}{name} is left out, because its meaning is not known.")),
        }
    }
    let numbers = document.get("msisdn").and_then(Value::as_array).map_or(0, Vec::len);
    if numbers > 1 {
        notes.push("Of several MSISDNs the first is imported, because a subscriber has one.".into());
    }
}
