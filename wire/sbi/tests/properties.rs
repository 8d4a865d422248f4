//! `parse(emit(x)) == x`, and no octets make a parser panic.

use core::fmt::Debug;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use whimbrel_sbi_types::common::{
    AmfSetId, DateTime, Guami, NgApCause, ProblemDetails, SbiAmbr, SbiBitRate, Snssai, Supi,
    SupportedFeatures, Tac, Tai,
};
use whimbrel_sbi_types::nausf::{EapSession, UEAuthenticationCtx};
use whimbrel_sbi_types::nchf::{ChargingDataRequest, ChargingDataResponse};
use whimbrel_sbi_types::nnrf::{
    AccessTokenClaims, NfProfile, NotificationData, SearchResult, SubscriptionData,
};
use whimbrel_sbi_types::npcf_am::{PolicyAssociation, PolicyUpdate};
use whimbrel_sbi_types::npcf_sm::{SmPolicyContextData, SmPolicyDecision, SmPolicyUpdateContextData};
use whimbrel_sbi_types::nsmf_pdu_session::{SmContextCreateData, SmContextUpdateData};
use whimbrel_sbi_types::nudm_sdm::{SmSubsData, SubscriptionDataSets};
use whimbrel_sbi_types::nudm_ueau::{AuthenticationInfoRequest, AuthenticationInfoResult};
use whimbrel_sbi_types::nudm_uecm::{Amf3GppAccessRegistration, SmfRegistration};
use whimbrel_sbi_types::{from_slice, to_vec};

/// A value that is read means the same when it is written and read again, and has no null that stands for a missing member.
fn same_again<T: DeserializeOwned + Serialize + PartialEq + Debug>(octets: &[u8]) -> bool {
    let Ok(read) = from_slice::<T>(octets) else { return false };
    let written = to_vec(&read);
    assert_eq!(from_slice::<T>(&written).as_ref(), Ok(&read), "{}", String::from_utf8_lossy(&written));
    true
}

/// The same for every kind of body.
fn same_again_in_each(octets: &[u8]) -> usize {
    let read = [
        same_again::<AccessTokenClaims>(octets),
        same_again::<Amf3GppAccessRegistration>(octets),
        same_again::<AuthenticationInfoRequest>(octets),
        same_again::<AuthenticationInfoResult>(octets),
        same_again::<ChargingDataRequest>(octets),
        same_again::<ChargingDataResponse>(octets),
        same_again::<EapSession>(octets),
        same_again::<NfProfile>(octets),
        same_again::<NotificationData>(octets),
        same_again::<PolicyAssociation>(octets),
        same_again::<PolicyUpdate>(octets),
        same_again::<ProblemDetails>(octets),
        same_again::<SearchResult>(octets),
        same_again::<SmContextCreateData>(octets),
        same_again::<SmContextUpdateData>(octets),
        same_again::<SmPolicyContextData>(octets),
        same_again::<SmPolicyDecision>(octets),
        same_again::<SmPolicyUpdateContextData>(octets),
        same_again::<SmSubsData>(octets),
        same_again::<SmfRegistration>(octets),
        same_again::<SubscriptionData>(octets),
        same_again::<SubscriptionDataSets>(octets),
        same_again::<UEAuthenticationCtx>(octets),
    ];
    read.iter().filter(|read| **read).count()
}

/// Any JSON, with values that members have among them.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..300u64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[0-9a-f]{0,64}".prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "1 Gbps",
            "imsi-999700000000001",
            "internet",
            "REGISTERED",
            "2026-11-29T16:00:00Z"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map("[a-zA-Z0-9]{1,8}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A recorded body with members changed, removed or moved.
fn changed_body() -> impl Strategy<Value = Vec<u8>> {
    let bodies: Vec<String> = include_str!("../testdata/recorded.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].as_str().unwrap().to_owned())
        .filter(|body| serde_json::from_str::<Value>(body).is_ok())
        .collect();
    let changes = vec((any::<prop::sample::Index>(), any_json(), 0..3u8), 0..4);
    (prop::sample::select(bodies), changes).prop_map(|(body, changes)| {
        let mut body: Value = serde_json::from_str(&body).unwrap();
        for (at, value, kind) in changes {
            let mut pointers = Vec::new();
            pointers_of(&body, String::new(), &mut pointers);
            let pointer = at.get(&pointers).clone();
            let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
            match (kind, body.pointer_mut(parent)) {
                (0, Some(Value::Object(members))) => drop(members.remove(name)),
                (1, Some(Value::Object(members))) => drop(members.insert("later".into(), value)),
                _ => {
                    if let Some(member) = body.pointer_mut(&pointer) {
                        *member = value;
                    }
                }
            }
        }
        body.to_string().into_bytes()
    })
}

fn pointers_of(value: &Value, pointer: String, all: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, member)| pointers_of(member, format!("{pointer}/{name}"), all));
        }
        Value::Array(entries) => {
            entries
                .iter()
                .enumerate()
                .for_each(|(i, entry)| pointers_of(entry, format!("{pointer}/{i}"), all));
        }
        _ => {}
    }
    all.push(pointer);
}

proptest! {
    #[test] // TS 29.501 §5.2.2.2: any JSON is read or refused
    fn any_json_is_read_or_refused(body in any_json()) {
        same_again_in_each(body.to_string().as_bytes());
    }

    #[test]
    fn any_octets_are_read_or_refused(octets in vec(any::<u8>(), 0..64)) {
        same_again_in_each(&octets);
    }

    #[test]
    fn changed_bodies_are_read_or_refused(body in changed_body()) {
        same_again_in_each(&body);
    }

    #[test] // TS 29.571 §5.5.2
    fn bit_rates_mean_the_same_when_written(rate in any::<u64>(), octets in "[0-9. KMGTbps]{0,24}") {
        prop_assert_eq!(SbiBitRate(rate).to_string().parse(), Ok(SbiBitRate(rate)));
        if let Ok(rate) = octets.parse::<SbiBitRate>() {
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }

    #[test] // TS 29.571 §5.2.2
    fn times_mean_the_same_when_written(ms in any::<i64>(), text in "\\PC{0,40}") {
        let time = DateTime::from_unix_ms(ms);
        prop_assert_eq!(time.to_string().parse(), Ok(time));
        prop_assert_eq!(DateTime::from_utc(time.utc()), Some(time));
        let _ = text.parse::<DateTime>();
    }

    #[test]
    fn values_mean_the_same_when_written(
        sst in any::<u8>(), sd in any::<Option<[u8; 3]>>(), set in 0..1024u16, uplink in any::<u64>(), tac in any::<[u8; 3]>(), n in any::<u32>(),
    ) {
        let snssai = Snssai { sst, sd: sd.map(whimbrel_sbi_types::common::Sd) };
        prop_assert_eq!(from_slice::<Snssai>(&to_vec(&snssai)), Ok(snssai));
        let id = AmfSetId::new(set).unwrap();
        prop_assert_eq!(id.to_string().parse::<AmfSetId>(), Ok(id));
        let ambr = SbiAmbr { uplink: SbiBitRate(uplink), downlink: SbiBitRate(!uplink) };
        prop_assert_eq!(from_slice::<SbiAmbr>(&to_vec(&ambr)), Ok(ambr));
        let plmn: whimbrel_ids::PlmnId = "310/410".parse().unwrap();
        let tai = Tai { plmn_id: plmn.into(), tac: Tac::Bits24(tac), nid: None };
        prop_assert_eq!(from_slice::<Tai>(&to_vec(&tai)), Ok(tai));
        let cause = NgApCause { group: n, value: !n };
        prop_assert_eq!(from_slice::<NgApCause>(&to_vec(&cause)), Ok(cause));
        let guami = Guami { plmn_id: plmn.into(), amf_id: whimbrel_sbi_types::common::AmfId(tac) };
        prop_assert_eq!(from_slice::<Guami>(&to_vec(&guami)), Ok(guami));
    }

    #[test]
    fn texts_are_bounded(text in "\\PC{0,300}", features in "[0-9a-fA-F]{1,64}", number in 0..300u32) {
        let _ = Supi::new(&text);
        let _ = Supi::new(&format!("imsi-{text}"));
        prop_assert!(Supi::new(&"1".repeat(Supi::OCTETS_MAX + 1)).is_err());
        let _ = SupportedFeatures::new(&features).unwrap().has(number);
    }
}

#[test] // The property above is not held by refusing everything
fn most_recorded_bodies_are_read_by_some_type() {
    let lines = include_str!("../testdata/recorded.jsonl").lines();
    let bodies =
        lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].as_str().unwrap().to_owned());
    let read: Vec<bool> = bodies.map(|body| same_again_in_each(body.as_bytes()) > 0).collect();
    let count = read.iter().filter(|read| **read).count();
    assert!(count * 2 > read.len(), "{count} of {}", read.len());
}
