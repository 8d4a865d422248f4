//! Subscribers as free5GC keeps them: a document for each part, joined by the subscriber's `ueId`.
//!
//! | collection | holds |
//! | --- | --- |
//! | `subscriptionData.authenticationData.authenticationSubscription` | K, OP or OPc, SQN, AMF |
//! | `subscriptionData.provisionedData.amData` | UE-AMBR, slices, MSISDN |
//! | `subscriptionData.provisionedData.smData` | data networks, one document a slice |
//!
//! A document names no collection, so it is known by its fields. The forms of the resources are those of TS 29.503 and TS 29.505.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use whimbrel_security::Sqn;

use super::{Database, Document, DocumentPosition, number, says_something};
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
}

impl Join {
    /// Takes a document, or says of it that it is not imported.
    pub(super) fn take(&mut self, database: &mut Database, place: &DocumentPosition, document: Value) {
        let has = |name: &str| document.get(name).is_some();
        let is_keys = has("permanentKey") || has("encPermanentKey");
        let is_access = has("subscribedUeAmbr") || has("nssai");
        let is_sessions = has("dnnConfigurations");
        if !(is_keys || is_access || is_sessions) {
            database.ignored.insert(kind_of(&document));
            return;
        }
        let Some(name) = document.get("ueId").and_then(Value::as_str).map(str::to_owned) else {
            let problem = ImportProblem::Json("the document names no subscriber: ueId is missing".into());
            database.documents.push(Document::bad(place, problem));
            return;
        };
        let parts = self.subscribers.entry(name.clone()).or_default();
        parts.named.get_or_insert_with(|| place.clone());
        let twice = |what: &str| {
            let why = format!("its {what} are in two documents: keep one");
            Document::bad(place, ImportProblem::Document { subscriber: name.clone(), why })
        };
        if is_keys {
            match parts.keys {
                Some(_) => database.documents.push(twice("keys")),
                None => parts.keys = Some((place.clone(), document)),
            }
        } else if is_access {
            match parts.access {
                // One for each PLMN in which it may be served; the first one stands.
                Some(_) => {
                    database.ignored.insert("amData of further serving PLMNs".into());
                }
                None => parts.access = Some(document),
            }
        } else {
            parts.sessions.push(document);
        }
    }

    /// Makes the subscribers of all that came.
    pub(super) fn finish(self, database: &mut Database) {
        for (name, parts) in self.subscribers {
            let document = match (&parts.keys, &parts.named) {
                (Some((place, keys)), _) => Document::good(place, &name, record(&name, keys, &parts)),
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

/// The name under which a document that is not imported is reported.
fn kind_of(document: &Value) -> String {
    let known = [
        ("subscribedSnssaiInfos", "smfSelectionSubscriptionData"),
        ("amPolicyData", "policyData.ues.amData"),
        ("subscCats", "policyData.ues.amData"),
        ("smPolicySnssaiData", "policyData.ues.smData"),
        ("qosRef", "policyData.ues.qosFlow or flowRule"),
        ("chargingMethod", "policyData.ues.chargingData"),
        ("amfInstanceId", "contextData.amf3gppAccess"),
        ("username", "userData"),
        ("tenantId", "tenantData"),
    ];
    let found = known.iter().find(|(field, _)| document.get(field).is_some());
    found.map_or("documents without a subscriber's data", |(_, kind)| *kind).into()
}

/// The JSON of a record of ours.
fn record(name: &str, keys: &Value, parts: &SubscriberParts) -> Value {
    let mut record = Map::new();
    record.insert("supi".into(), json!(name));
    let text = |paths: &[&str]| {
        let found = paths.iter().filter_map(|path| keys.pointer(path)?.as_str());
        found.map(str::trim).find(|text| !text.is_empty()).map(|text| json!(text))
    };
    // Plain and encrypted keys have names of their own; free5GC keeps both in clear.
    record.extend(text(&["/permanentKey/permanentKeyValue", "/encPermanentKey"]).map(|k| ("k".into(), k)));
    let codes = [
        ("opc", text(&["/opc/opcValue", "/encOpcKey"])),
        ("topc", text(&["/topc/topcValue", "/encTopcKey"])),
        ("op", text(&["/milenage/op/opValue"])),
    ];
    // OPc is what counts where OP stands beside it.
    record.extend(codes.into_iter().find_map(|(code, value)| Some((code.to_owned(), value?))));
    record.extend(text(&["/authenticationManagementField"]).map(|amf| ("amf".into(), amf)));
    if keys.get("authenticationMethod").and_then(Value::as_str) == Some("EAP_AKA_PRIME") {
        record.insert("auth".into(), json!("eap-aka-prime"));
    }
    let sqn = text(&["/sequenceNumber", "/sequenceNumber/sqn"]);
    if let Some(octets) = sqn.as_ref().and_then(Value::as_str).and_then(from_hex::<6>) {
        record.insert("sqn_offset".into(), json!(sqn_offset_after(Sqn::from_octets(octets)).value()));
    }
    let access = parts.access.as_ref().unwrap_or(&Value::Null);
    let gpsis = access.get("gpsis").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let msisdn = gpsis.iter().filter_map(Value::as_str).find(|gpsi| gpsi.starts_with("msisdn-"));
    record.extend(msisdn.map(|msisdn| ("msisdn".into(), json!(msisdn))));
    record.insert("subscription".into(), subscription(access, &parts.sessions));
    Value::Object(record)
}

fn subscription(access: &Value, sessions: &[Value]) -> Value {
    let mut subscription = Map::new();
    if let Some(ambr) = access.get("subscribedUeAmbr").filter(|ambr| says_something(ambr)) {
        subscription.insert("ue_ambr".into(), ambr.clone());
    }
    let named = |list: &str| -> Vec<String> {
        let list = access.pointer(&format!("/nssai/{list}")).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(s_nssai).collect()
    };
    let (default, further) = (named("defaultSingleNssais"), named("singleNssais"));
    let mut slices: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for slice in default.iter().chain(&further) {
        slices.entry(slice.clone()).or_default();
    }
    for document in sessions {
        let Some(slice) = document.get("singleNssai").and_then(s_nssai) else { continue };
        let dnns = slices.entry(slice).or_default();
        let configured = document.get("dnnConfigurations").and_then(Value::as_object);
        for (name, configuration) in configured.into_iter().flatten() {
            dnns.push(dnn(name, configuration, dnns.is_empty()));
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
    if !slices.is_empty() {
        subscription.insert("slices".into(), slices.into());
    }
    Value::Object(subscription)
}

fn s_nssai(value: &Value) -> Option<String> {
    let sst = value.get("sst").and_then(number)?;
    let sd = value.get("sd").and_then(Value::as_str).filter(|sd| !sd.is_empty());
    Some(sd.map_or_else(|| sst.to_string(), |sd| format!("{sst}-{sd}")))
}

/// A data network (TS 29.503 §6.1.6.2.9).
fn dnn(name: &str, configuration: &Value, default: bool) -> Value {
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
    if let Some(address) = at("/staticIpAddress/0/ipv4Addr") {
        dnn["ipv4"] = address.clone();
    }
    if let (Some(integrity), Some(confidentiality)) = (at("/upSecurity/upIntegr"), at("/upSecurity/upConfid"))
    {
        dnn["up_security"] = json!({ "integrity": integrity, "confidentiality": confidentiality });
    }
    dnn
}
