//! Subscribers as free5GC keeps them: a document for each part, joined by the subscriber's `ueId`.
//!
//! | collection | holds |
//! | --- | --- |
//! | `subscriptionData.authenticationData.authenticationSubscription` | K, OP or OPc, SQN, AMF |
//! | `subscriptionData.provisionedData.amData` | UE-AMBR, slices, MSISDN |
//! | `subscriptionData.provisionedData.smData` | data networks, one document a slice |
//! | `policyData.ues.flowRule`, `policyData.ues.qosFlow` | packet filters, and the QoS that they refer to by `qosRef` |
//!
//! A document names no collection, so it is known by its fields. The forms of the resources are those of TS 29.503 and TS 29.505.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use whimbrel_security::Sqn;

use super::flows::{FlowCheck, add_flow, packet_filter, rates};
use super::{Database, Document, DocumentPosition, number, prefix_of, says_something};
use crate::import::ImportProblem;
use crate::record::sqn_offset_after;
use crate::text::from_hex;

/// The documents of all subscribers, as they come.
#[derive(Default)]
pub(super) struct Join {
    subscribers: BTreeMap<String, SubscriberParts>,
}

#[derive(Default)]
struct SubscriberParts {
    /// Where the subscriber was named first, and where its keys are.
    named: Option<DocumentPosition>,
    keys: Option<(DocumentPosition, Value)>,
    access: Option<Value>,
    sessions: Vec<Value>,
    /// Packet filters, and the QoS that they refer to.
    flow_rules: Vec<Value>,
    flow_qos: Vec<Value>,
}

/// Parts of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DocumentPart {
    Keys,
    Access,
    Sessions,
    FlowRule,
    FlowQos,
}

impl DocumentPart {
    /// A document's part, by its fields.
    fn of(document: &Value) -> Option<Self> {
        let has = |name: &str| document.get(name).is_some();
        Some(match () {
            () if has("permanentKey") || has("encPermanentKey") => Self::Keys,
            () if has("subscribedUeAmbr") || has("nssai") => Self::Access,
            () if has("dnnConfigurations") => Self::Sessions,
            () if has("qosRef") && has("5qi") => Self::FlowQos,
            () if has("qosRef") && has("filter") => Self::FlowRule,
            () => return None,
        })
    }
}

impl Join {
    /// Takes a document, or says of it that it is not imported.
    pub(super) fn take(&mut self, database: &mut Database, place: &DocumentPosition, document: Value) {
        let Some(part) = DocumentPart::of(&document) else {
            let subscriber = document.get("ueId").and_then(Value::as_str).unwrap_or_default();
            database.notes.add(place, subscriber, vec![left_out(&document)]);
            return;
        };
        let Some(name) = document.get("ueId").and_then(Value::as_str).map(str::to_owned) else {
            let problem = ImportProblem::Json("the document names no subscriber: ueId is missing".into());
            database.documents.push(Document::bad(place, problem));
            return;
        };
        let parts = self.subscribers.entry(name.clone()).or_default();
        parts.named.get_or_insert_with(|| place.clone());
        match part {
            DocumentPart::Keys => match &parts.keys {
                // The web console keeps a copy of them for itself.
                Some((_, known)) if !is_same_key(known, &document) => {
                    let why = "its keys are in two documents, and differ: keep one".into();
                    let problem = ImportProblem::Document { subscriber: name, why };
                    database.documents.push(Document::bad(place, problem));
                }
                Some((_, known)) if sqn(known) >= sqn(&document) => {}
                _ => parts.keys = Some((place.clone(), document)),
            },
            DocumentPart::Access if parts.access.is_some() => {
                // One for each PLMN in which it may be served; the first one stands.
                let sentence = "Of several amData of a subscriber the first is imported, because this core serves one PLMN.";
                database.notes.add(place, &name, vec![sentence.into()]);
            }
            DocumentPart::Access => parts.access = Some(document),
            DocumentPart::Sessions => parts.sessions.push(document),
            DocumentPart::FlowRule => parts.flow_rules.push(document),
            DocumentPart::FlowQos => parts.flow_qos.push(document),
        }
    }

    /// Makes the subscribers of all that came.
    pub(super) fn finish(self, database: &mut Database, check: &FlowCheck<'_>) {
        for (name, parts) in self.subscribers {
            let document = match (&parts.keys, &parts.named) {
                (Some((place, keys)), _) => {
                    let mut notes = Vec::new();
                    let record = record(&name, keys, &parts, check, &mut notes);
                    database.notes.add(place, &name, notes);
                    Document::good(place, &name, record)
                }
                (None, Some(place)) => {
                    let why = "it has no keys in these files: export subscriptionData.authenticationData.\
                               authenticationSubscription too"
                        .into();
                    Document::bad(place, ImportProblem::Document { subscriber: name, why })
                }
                (None, None) => continue,
            };
            database.documents.push(document);
        }
    }
}

/// Why a document is not imported.
fn left_out(document: &Value) -> String {
    let known = [
        (
            "subscribedSnssaiInfos",
            "smfSelectionSubscriptionData",
            "smData has the data networks of each slice",
        ),
        ("amPolicyData", "policyData.ues.amData", "this core has no policy categories"),
        ("subscCats", "policyData.ues.amData", "this core has no policy categories"),
        ("smPolicySnssaiData", "policyData.ues.smData", "it names again what smData has"),
        ("qosRef", "policyData.ues.qosFlow or flowRule", "it has neither a filter nor a 5QI"),
        ("chargingMethod", "policyData.ues.chargingData", "this core has no charging"),
        ("amfInstanceId", "contextData.amf3gppAccess", "UEs register again"),
        ("username", "userData", "it is an account of the web console"),
        ("email", "userData", "it is an account of the web console"),
        ("tenantId", "tenantData", "this core has no tenants"),
        ("tenantName", "tenantData", "this core has no tenants"),
        ("gpsi", "subscriptionData.identityData", "amData has the MSISDN"),
    ];
    match known.iter().find(|(field, ..)| document.get(field).is_some()) {
        Some((_, kind, why)) => format!("{kind} is left out, because {why}."),
        None => "A document that is none of a subscriber's is left out.".into(),
    }
}

/// SQN in both forms, as a number.
fn sqn(keys: &Value) -> Option<[u8; 6]> {
    let texts =
        ["/sequenceNumber", "/sequenceNumber/sqn"].iter().filter_map(|path| keys.pointer(path)?.as_str());
    texts.filter_map(from_hex::<6>).next()
}

/// A field's text under the first of several names that has one: plain and encrypted keys have names of their own, and free5GC
/// keeps both in clear.
fn text<'k>(keys: &'k Value, paths: &[&str]) -> Option<&'k str> {
    let found = paths.iter().filter_map(|path| keys.pointer(path)?.as_str());
    found.map(str::trim).find(|text| !text.is_empty())
}

const K_PATHS: [&str; 2] = ["/permanentKey/permanentKeyValue", "/encPermanentKey"];
const OPC_PATHS: [&str; 2] = ["/opc/opcValue", "/encOpcKey"];

/// True of the web console's copy, too, which has OP where OPc is derived from one.
fn is_same_key(one: &Value, other: &Value) -> bool {
    let is_same = |paths: &[&str]| match (text(one, paths), text(other, paths)) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        _ => paths == OPC_PATHS,
    };
    is_same(&K_PATHS) && is_same(&OPC_PATHS)
}

/// The JSON of a record of ours.
fn record(
    name: &str,
    keys: &Value,
    parts: &SubscriberParts,
    check: &FlowCheck<'_>,
    notes: &mut Vec<String>,
) -> Value {
    let mut record = Map::new();
    record.insert("supi".into(), json!(name));
    let text = |paths: &[&str]| text(keys, paths).map(|text| json!(text));
    record.extend(text(&K_PATHS).map(|k| ("k".into(), k)));
    let codes = [
        ("opc", text(&OPC_PATHS)),
        ("topc", text(&["/topc/topcValue", "/encTopcKey"])),
        ("op", text(&["/milenage/op/opValue"])),
    ];
    // OPc is what counts where OP stands beside it.
    record.extend(codes.into_iter().find_map(|(code, value)| Some((code.to_owned(), value?))));
    record.extend(text(&["/authenticationManagementField"]).map(|amf| ("amf".into(), amf)));
    if keys.get("authenticationMethod").and_then(Value::as_str) == Some("EAP_AKA_PRIME") {
        record.insert("auth".into(), json!("eap-aka-prime"));
    }
    if let Some(octets) = sqn(keys) {
        record.insert("sqn_offset".into(), json!(sqn_offset_after(Sqn::from_octets(octets)).value()));
    }
    let access = parts.access.as_ref().unwrap_or(&Value::Null);
    let gpsis = access.get("gpsis").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let msisdn = gpsis.iter().filter_map(Value::as_str).find(|gpsi| gpsi.starts_with("msisdn-"));
    record.extend(msisdn.map(|msisdn| ("msisdn".into(), json!(msisdn))));
    record.insert("subscription".into(), subscription(access, parts, check, notes));
    Value::Object(record)
}

fn subscription(
    access: &Value,
    parts: &SubscriberParts,
    check: &FlowCheck<'_>,
    notes: &mut Vec<String>,
) -> Value {
    let mut subscription = Map::new();
    if let Some(ambr) = access.get("subscribedUeAmbr").filter(|ambr| says_something(ambr)) {
        subscription.insert("ue_ambr".into(), ambr.clone());
    }
    let named = |list: &str| -> Vec<String> {
        let list = access.pointer(&format!("/nssai/{list}")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|value| s_nssai(value, &mut Vec::new())).collect()
    };
    let (default, further) = (named("defaultSingleNssais"), named("singleNssais"));
    let mut slices: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for slice in default.iter().chain(&further) {
        slices.entry(slice.clone()).or_default();
    }
    for document in &parts.sessions {
        let Some(slice) = document.get("singleNssai").and_then(|value| s_nssai(value, notes)) else {
            continue;
        };
        let dnns = slices.entry(slice.clone()).or_default();
        let configured = document.get("dnnConfigurations").and_then(Value::as_object);
        for (name, configuration) in configured.into_iter().flatten() {
            let mut dnn = dnn(name, configuration, dnns.is_empty(), notes);
            let flows = flows(&slice, name, parts, check, notes);
            if !flows.is_empty() {
                dnn["flows"] = flows.into();
            }
            dnns.push(dnn);
        }
    }
    let slices: Vec<Value> = slices
        .into_iter()
        .map(|(s_nssai, dnns)| {
            // Without a list of slices, each one is a default.
            let is_default = default.is_empty() || default.contains(&s_nssai);
            let mut slice = json!({ "s_nssai": s_nssai, "default": is_default });
            if !dnns.is_empty() {
                slice["dnns"] = dnns.into();
            }
            slice
        })
        .collect();
    if slices.is_empty() {
        notes.push(
            "No slice is subscribed in these files: slice 1 with the DNN `internet` is subscribed.".into(),
        );
    } else {
        subscription.insert("slices".into(), slices.into());
    }
    Value::Object(subscription)
}

fn s_nssai(value: &Value, notes: &mut Vec<String>) -> Option<String> {
    let sst = value.get("sst").and_then(number)?;
    let Some(sd) = value.get("sd").and_then(Value::as_str).filter(|sd| !sd.is_empty()) else {
        return Some(sst.to_string());
    };
    // OpenAirInterface writes SDs in decimal, too: its gNBs have the same slice as 0x00007b and as "123".
    match sd.parse::<u32>() {
        Ok(decimal) if sd.len() != 6 => {
            notes.push(format!(
                "The SD `{sd}` has not six hexadecimal digits and is read as a decimal number: {decimal:06x}."
            ));
            Some(format!("{sst}-{decimal:06x}"))
        }
        _ => Some(format!("{sst}-{sd}")),
    }
}

/// The flows of a DNN: each filter with the QoS of its `qosRef`. free5GC writes the slice as the hexadecimal digits of SST and SD.
fn flows(
    slice: &str,
    dnn: &str,
    parts: &SubscriberParts,
    check: &FlowCheck<'_>,
    notes: &mut Vec<String>,
) -> Vec<Value> {
    let (sst, sd) = slice.split_once('-').unwrap_or((slice, ""));
    let digits = format!("{:02x}{sd}", sst.parse::<u8>().unwrap_or_default());
    let is_here = |document: &&Value| {
        let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
        text("snssai").eq_ignore_ascii_case(&digits) && text("dnn") == dnn
    };
    let reference = |document: &Value| document.get("qosRef").and_then(number);
    let mut flows = Vec::new();
    for (place, rule) in (1..).zip(parts.flow_rules.iter().filter(is_here)) {
        let name = format!("Flow rule {place} of {dnn}");
        let qos = parts.flow_qos.iter().filter(is_here).find(|qos| reference(qos) == reference(rule));
        let Some(qos) = qos else {
            notes.push(format!("{name} is left out, because no QoS flow has its qosRef."));
            continue;
        };
        let rate = |name: &str| {
            qos.get(name).and_then(Value::as_str).filter(|rate| !rate.is_empty()).map(str::to_owned)
        };
        let filter = rule.get("filter").and_then(Value::as_str).unwrap_or_default();
        // An address, and ports behind it, of the far end; or a whole rule.
        let filter = if filter.starts_with("permit") {
            filter.to_owned()
        } else {
            format!("permit out ip from {filter} to assigned")
        };
        let mut flow = json!({
            "name": format!("flow-{place}"),
            "five_qi": qos.get("5qi").and_then(number),
            "precedence": rule.get("precedence").and_then(number),
            "filters": [packet_filter(&filter)],
        });
        for (name, [uplink, downlink]) in
            [("guaranteed", ["gbrUL", "gbrDL"]), ("maximum", ["mbrUL", "mbrDL"])]
        {
            if let Some(rates) = rates(rate(uplink), rate(downlink)) {
                flow[name] = rates;
            }
        }
        add_flow(&mut flows, flow, &name, check, notes);
    }
    flows
}

/// A data network (TS 29.503 §6.1.6.2.9).
fn dnn(name: &str, configuration: &Value, default: bool, notes: &mut Vec<String>) -> Value {
    let mut dnn = json!({ "dnn": name, "default": default });
    let at = |path: &str| configuration.pointer(path).filter(|value| says_something(value));
    let types = "/pduSessionTypes/defaultSessionType";
    if let Some(kind) = at(types) {
        dnn["session_type"] = kind.clone();
        let allowed = at("/pduSessionTypes/allowedSessionTypes").and_then(Value::as_array);
        let mut allowed = allowed.cloned().unwrap_or_default();
        if !allowed.contains(kind) {
            allowed.push(kind.clone());
        }
        dnn["allowed_session_types"] = allowed.into();
    }
    if let Some(mode) = at("/sscModes/defaultSscMode") {
        dnn["ssc_mode"] = mode.clone();
    }
    if let Some(five_qi) = at("/5gQosProfile/5qi").and_then(number) {
        dnn["five_qi"] = json!(five_qi);
    }
    if let Some(level) = at("/5gQosProfile/arp/priorityLevel").and_then(number) {
        let is = |path: &str, word: &str| at(path).and_then(Value::as_str) == Some(word);
        dnn["arp"] = json!({
            "priority_level": level,
            "may_preempt": is("/5gQosProfile/arp/preemptCap", "MAY_PREEMPT"),
            "preemptable": is("/5gQosProfile/arp/preemptVuln", "PREEMPTABLE"),
        });
    }
    if let Some(ambr) = at("/sessionAmbr") {
        dnn["session_ambr"] = ambr.clone();
    }
    let mut addresses = at("/staticIpAddress").and_then(Value::as_array).cloned().unwrap_or_default();
    addresses.retain(says_something);
    for address in &addresses {
        let text = |name: &str| address.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        for (name, value) in [
            ("ipv4", text("ipv4Addr").map(str::to_owned)),
            ("ipv6", text("ipv6Prefix").map(str::to_owned)),
            ("ipv6", text("ipv6Addr").map(|a| a.parse().map_or_else(|_| a.to_owned(), prefix_of))),
        ] {
            match value {
                Some(value) if dnn.get(name).is_none() => dnn[name] = json!(value),
                Some(_) => {
                    notes.push(format!("Of several static addresses in {name} the first is imported."))
                }
                None => {}
            }
        }
    }
    if let (Some(integrity), Some(confidentiality)) = (at("/upSecurity/upIntegr"), at("/upSecurity/upConfid"))
    {
        dnn["up_security"] = json!({ "integrity": integrity, "confidentiality": confidentiality });
    }
    dnn
}
