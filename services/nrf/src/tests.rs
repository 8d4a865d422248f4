//! The NRF as a whole: registration, heartbeats, discovery, subscriptions, tokens, a restart.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use whimbrel_ids::Instant;
use whimbrel_sbi_types::BoundedList;
use whimbrel_sbi_types::common::{NfInstanceId, PatchItem, ShortText, UriScheme};
use whimbrel_sbi_types::nnrf::{
    AccessTokenErrorCode, Audience, NfProfile, NfService, NfStatus, NfType, NotificationData, ServiceName,
    SubscriptionData,
};

use crate::registry::{INSTANCES_MAX, SUBSCRIPTIONS_MAX, TOTAL_OCTETS_MAX};
use crate::{DiscoveryParameters, Nrf, NrfIdentity, NrfRefusal, StatusNotification, StoredProfile};

const NRF: &str = "00000000-0000-4000-8000-0000000000ff";
const AMF: &str = "00000000-0000-4000-8000-000000000001";
const UDM: &str = "00000000-0000-4000-8000-000000000002";
const SMF: &str = "00000000-0000-4000-8000-000000000003";
const ABSENT: &str = "00000000-0000-4000-8000-000000000004";

/// Requests and answers of cores in use.
const RECORDED: &str = include_str!("../../../wire/sbi/testdata/recorded.jsonl");

fn id(text: &str) -> NfInstanceId {
    text.parse().unwrap()
}

fn at(seconds: u64) -> Instant {
    Instant(1_795_968_000_000_000) + Duration::from_secs(seconds)
}

fn nrf_with(demands_heartbeats: bool) -> Nrf {
    let mut profile = NfProfile::new(id(NRF), NfType::Nrf, NfStatus::Registered);
    let services = [ServiceName::NnrfNfm, ServiceName::NnrfDisc]
        .map(|name| NfService::new(ShortText::new(name.as_str()).unwrap(), name, UriScheme::Http));
    profile.nf_services = BoundedList::new(services.into());
    let plmn = serde_json::from_value(json!({"mcc": "999", "mnc": "70"})).unwrap();
    let root = "http://192.0.2.1:7777".into();
    Nrf::new(NrfIdentity { profile, root, plmn, demands_heartbeats }).unwrap()
}

fn nrf() -> Nrf {
    nrf_with(true)
}

fn stored(json: Value) -> Result<StoredProfile, NrfRefusal> {
    StoredProfile::read(json)
}

fn profile(id: &str, nf_type: &str) -> Value {
    json!({"nfInstanceId": id, "nfType": nf_type, "nfStatus": "REGISTERED", "ipv4Addresses": ["192.0.2.9"]})
}

fn service(name: &str) -> Value {
    json!({"serviceInstanceId": name, "serviceName": name, "scheme": "http", "nfServiceStatus": "REGISTERED",
        "versions": [{"apiVersionInUri": "v1", "apiFullVersion": "1.0.0"}]})
}

/// The profile with further members.
fn with(mut profile: Value, members: Value) -> Value {
    profile.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    profile
}

fn register(nrf: &mut Nrf, now: Instant, json: Value) -> bool {
    let profile = stored(json).unwrap();
    let id = profile.id();
    nrf.register(now, &id, profile).unwrap().is_new
}

fn patch(patch: Value) -> Vec<PatchItem> {
    whimbrel_sbi_types::from_slice::<BoundedList<PatchItem>>(&serde_json::to_vec(&patch).unwrap())
        .unwrap()
        .into_vec()
}

fn heartbeat() -> Vec<PatchItem> {
    patch(
        json!([{"op": "replace", "path": "/nfStatus", "value": "REGISTERED"}, {"op": "replace", "path": "/load", "value": 7}]),
    )
}

/// The instances of a discovery by an AMF.
fn discovered(nrf: &Nrf, query: &str) -> Vec<Value> {
    let query = format!("requester-nf-type=AMF&{query}");
    let query = DiscoveryParameters::read(&query).unwrap_or_else(|e| panic!("{query}: {e}"));
    nrf.discover(&query)["nfInstances"].as_array().unwrap().clone()
}

fn found(nrf: &Nrf, query: &str) -> usize {
    discovered(nrf, query).len()
}

#[test] // TS 29.510 §5.2.2.2.2, §5.2.2.3.1: 201, then 200; the profile is kept as it came, with the interval of heartbeats
fn a_profile_comes_back_as_it_was_registered() {
    let mut nrf = nrf();
    let vendor = with(
        profile(UDM, "UDM"),
        json!({"vendorSpecific-001": {"a": [1, null]}, "udmInfo": {"x": 1}, "nfServices": [service("nudm-sdm")]}),
    );
    assert!(register(&mut nrf, at(0), vendor.clone()));
    assert!(!register(&mut nrf, at(1), vendor.clone()));
    let expected = with(vendor, json!({"heartBeatTimer": 10}));
    assert_eq!(nrf.profile(&id(UDM)), Ok(expected.clone()));
    assert_eq!(discovered(&nrf, "target-nf-type=UDM"), [expected]);
    for (asked, granted) in [(0, 10), (7, 7), (4_000_000_000_u32, 300)] {
        register(&mut nrf, at(2), with(profile(UDM, "UDM"), json!({"heartBeatTimer": asked})));
        assert_eq!(nrf.profile(&id(UDM)).unwrap()["heartBeatTimer"], granted);
    }
}

#[test]
fn profiles_of_cores_in_use_are_registered_and_found() {
    let mut registered = 0;
    for line in RECORDED.lines() {
        let exchange: Value = serde_json::from_str(line).unwrap();
        let path = exchange["path"].as_str().unwrap();
        let is_profile = path.starts_with("/nnrf-nfm/v1/nf-instances/") && exchange["method"] == "PUT";
        if !is_profile || exchange["status"] != 0 {
            continue;
        }
        let json: Value = serde_json::from_str(exchange["body"].as_str().unwrap()).unwrap();
        let mut nrf = nrf();
        assert!(register(&mut nrf, at(0), json.clone()), "{line}");
        let nf_type = json["nfType"].as_str().unwrap();
        let query = format!("target-nf-type={nf_type}&requester-nf-type=SMF&requester-features=20");
        let result = nrf.discover(&DiscoveryParameters::read(&query).unwrap());
        let granted = json["heartBeatTimer"].as_u64().unwrap_or(10);
        let mut expected = with(json, json!({"heartBeatTimer": granted}));
        // Open5GS's PCF has services for AMFs, which an SMF does not get.
        if let Some(services) = expected.get_mut("nfServiceList").and_then(Value::as_object_mut) {
            let allows = |service: &Value| {
                service["allowedNfTypes"].as_array().is_none_or(|types| types.contains(&json!("SMF")))
            };
            services.retain(|_, service| allows(service));
        }
        assert_eq!(result["nfInstances"], json!([expected]), "{line}");
        registered += 1;
    }
    assert!(registered >= 2, "{registered}");
}

#[test] // TS 29.510 §5.2.2.2.2: the path names the instance
fn a_profile_of_another_instance_or_without_mandatory_members_is_refused() {
    let mut nrf = nrf();
    let refusal = nrf.register(at(0), &id(AMF), stored(profile(UDM, "UDM")).unwrap()).unwrap_err();
    assert_eq!((refusal.status, refusal.param.as_deref()), (400, Some("/nfInstanceId")));
    for (json, cause, param) in [
        (json!([]), "MANDATORY_IE_INCORRECT", None),
        (json!({"nfInstanceId": UDM, "nfType": "UDM"}), "MANDATORY_IE_MISSING", Some("/nfStatus")),
        (profile("4947a69a", "UDM"), "MANDATORY_IE_INCORRECT", Some("/nfInstanceId")),
        (with(profile(UDM, "UDM"), json!({"priority": 70_000})), "OPTIONAL_IE_INCORRECT", Some("/priority")),
        (
            with(profile(UDM, "UDM"), json!({"ipv4Addresses": ["x"]})),
            "OPTIONAL_IE_INCORRECT",
            Some("/ipv4Addresses/0"),
        ),
    ] {
        let refusal = stored(json).unwrap_err();
        assert_eq!((refusal.status, refusal.cause, refusal.param.as_deref()), (400, cause, param));
    }
    // A value of a later release is kept.
    assert!(register(&mut nrf, at(0), with(profile(UDM, "UDM_NEXT"), json!({"nfStatus": "RESTING"}))));
    assert_eq!((found(&nrf, "target-nf-type=UDM_NEXT"), found(&nrf, "target-nf-type=UDM")), (0, 0));
}

#[test] // TS 29.510 §5.2.2.3.2: an instance without heartbeats is suspended, then removed; a heartbeat brings it back
fn an_instance_without_heartbeats_is_suspended_and_removed() {
    let mut nrf = nrf();
    register(&mut nrf, at(0), profile(UDM, "UDM"));
    nrf.advance(at(21));
    assert_eq!(found(&nrf, "target-nf-type=UDM"), 1);
    nrf.advance(at(22));
    assert_eq!((found(&nrf, "target-nf-type=UDM"), nrf.counts()), (0, (1, 1)));
    assert_eq!(nrf.profile(&id(UDM)).unwrap()["nfStatus"], "SUSPENDED");
    assert!(nrf.update(at(100), &id(UDM), &heartbeat()).unwrap().is_heartbeat);
    assert_eq!((found(&nrf, "target-nf-type=UDM"), nrf.counts()), (1, (1, 0)));
    assert_eq!(nrf.profile(&id(UDM)).unwrap()["load"], 7);
    nrf.advance(at(220));
    assert_eq!(nrf.counts(), (1, 1));
    nrf.advance(at(221));
    assert_eq!(nrf.counts(), (0, 0));
    // It registers again: TS 29.510 §5.2.2.3.2.
    assert_eq!(nrf.update(at(222), &id(UDM), &heartbeat()).unwrap_err().status, 404);
    assert!(register(&mut nrf, at(223), profile(UDM, "UDM")));
}

#[test] // free5GC's functions send no heartbeats
fn instances_that_never_sent_a_heartbeat_stay_where_none_is_demanded() {
    let mut nrf = nrf_with(false);
    register(&mut nrf, at(0), profile(UDM, "UDM"));
    register(&mut nrf, at(0), profile(SMF, "SMF"));
    nrf.update(at(5), &id(SMF), &heartbeat()).unwrap();
    nrf.advance(at(1_000_000));
    assert_eq!((nrf.counts(), found(&nrf, "target-nf-type=UDM")), ((1, 0), 1));
}

#[test] // TS 29.510 §5.2.2.3.1, RFC 6902
fn a_patch_changes_members_and_neither_identity_nor_type() {
    let mut nrf = nrf();
    register(&mut nrf, at(0), profile(UDM, "UDM"));
    let updated = nrf.update(at(1), &id(UDM), &patch(json!([{"op": "add", "path": "/x-vendor", "value": {"y": 1}}, {"op": "add", "path": "/capacity", "value": 5}])));
    let updated = updated.unwrap();
    assert!(
        !updated.is_heartbeat && updated.profile["x-vendor"]["y"] == 1 && updated.profile["capacity"] == 5
    );
    let before = nrf.profile(&id(UDM)).unwrap();
    for (op, status) in [
        (json!({"op": "replace", "path": "/nfInstanceId", "value": AMF}), 403),
        (json!({"op": "replace", "path": "/nfType", "value": "AMF"}), 403),
        (json!({"op": "remove", "path": "/nfType"}), 400),
        (json!({"op": "replace", "path": "/capacity", "value": "much"}), 400),
        (json!({"op": "replace", "path": "/nfServices/0/load", "value": 1}), 400),
        (json!({"op": "add", "path": "../../etc", "value": 1}), 400),
        (json!({"op": "add", "path": "/../x/y", "value": 1}), 400),
        (json!({"op": "add", "path": "/big", "value": "x".repeat(crate::profile::PROFILE_OCTETS_MAX)}), 413),
    ] {
        let refusal = nrf.update(at(2), &id(UDM), &patch(json!([op]))).unwrap_err();
        assert_eq!(refusal.status, status, "{refusal}");
        assert_eq!(nrf.profile(&id(UDM)).unwrap(), before);
    }
}

#[test] // TS 29.510 §5.2.2.4
fn a_deregistered_instance_is_gone_and_the_nrf_itself_stays() {
    let mut nrf = nrf();
    register(&mut nrf, at(0), profile(UDM, "UDM"));
    assert_eq!(nrf.deregister(&id(UDM)), Ok(()));
    assert_eq!(nrf.deregister(&id(UDM)).unwrap_err().status, 404);
    assert_eq!(nrf.profile(&id(UDM)).unwrap_err().status, 404);
    assert_eq!(nrf.deregister(&id(NRF)).unwrap_err().status, 403);
    assert_eq!(nrf.update(at(1), &id(NRF), &heartbeat()).unwrap_err().status, 403);
    let own = stored(profile(NRF, "NRF")).unwrap();
    assert_eq!(nrf.register(at(1), &id(NRF), own).unwrap_err().status, 403);
    assert_eq!(found(&nrf, "target-nf-type=NRF&service-names=nnrf-disc"), 1);
}

#[test] // TS 29.510 §6.2.3.2.3.1: each parameter, with what it finds and what it excludes
fn each_parameter_of_a_discovery_excludes_what_does_not_fit() {
    let plmn = |mnc: &str| json!({"mcc": "999", "mnc": mnc});
    let dnns = |dnn: &str| json!([{"dnn": dnn}]);
    let amf = json!({"amfInfo": {"amfSetId": "001", "amfRegionId": "ca", "guamiList": [{"plmnId": plmn("70"), "amfId": "cafe00"}],
        "taiList": [{"plmnId": plmn("70"), "tac": "000001"}],
        "taiRangeList": [{"plmnId": plmn("70"), "tacRangeList": [{"start": "000010", "end": "00001f"}]}]}});
    let smf = json!({"sNssais": [{"sst": 1}, {"sst": 2, "sd": "00000a"}], "smfInfo": {"sNssaiSmfInfoList": [
        {"sNssai": {"sst": 1}, "dnnSmfInfoList": dnns("internet")},
        {"sNssai": {"sst": 2, "sd": "00000a"}, "dnnSmfInfoList": dnns("ims")}]}});
    let upf = json!({"upfInfo": {"sNssaiUpfInfoList": [{"sNssai": {"sst": 1, "sdRanges": [{"start": "000001", "end": "000009"}]},
        "dnnUpfInfoList": dnns("*")}]}});
    let udm = json!({"udmInfo": {"supiRanges": [{"start": "999700000000000", "end": "999700000000099"}], "routingIndicators": ["0", "12"]}});
    let pcf = json!({"pcfInfo": {"dnnList": ["internet"], "supiRanges": [{"pattern": "^imsi-99970.*$"}]}});
    let udr = json!({"udrInfo": {"supiRanges": [{"start": "999700000000000", "end": "999700000000099"}]}});
    let plmns = json!({"plmnList": [plmn("70"), plmn("71")]});
    let services = json!({"nfServices": [service("nudm-sdm"), with(service("nudm-ueau"), json!({"allowedNfTypes": ["AUSF"]})),
        with(service("nudm-ee"), json!({"nfServiceStatus": "SUSPENDED"}))]});
    let cases = [
        ("AMF", &amf, "amf-set-id=001", "amf-set-id=002"),
        ("AMF", &amf, "amf-region-id=ca", "amf-region-id=cb"),
        (
            "AMF",
            &amf,
            r#"guami={"plmnId":{"mcc":"999","mnc":"70"},"amfId":"cafe00"}"#,
            r#"guami={"plmnId":{"mcc":"999","mnc":"71"},"amfId":"cafe00"}"#,
        ),
        (
            "AMF",
            &amf,
            r#"tai={"plmnId":{"mcc":"999","mnc":"70"},"tac":"000001"}"#,
            r#"tai={"plmnId":{"mcc":"999","mnc":"70"},"tac":"000002"}"#,
        ),
        (
            "AMF",
            &amf,
            r#"tai={"plmnId":{"mcc":"999","mnc":"70"},"tac":"00001f"}"#,
            r#"tai={"plmnId":{"mcc":"999","mnc":"70"},"tac":"000020"}"#,
        ),
        ("SMF", &smf, r#"snssais=[{"sst":1}]"#, r#"snssais=[{"sst":3}]"#),
        ("SMF", &smf, r#"snssais=[{"sst":3},{"sst":2,"sd":"00000a"}]"#, r#"snssais=[{"sst":2}]"#),
        ("SMF", &smf, "dnn=internet", "dnn=else"),
        ("SMF", &smf, "dnn=Internet.mnc070.mcc999.gprs", "dnn=internet2"),
        ("SMF", &smf, r#"dnn=ims&snssais=[{"sst":2,"sd":"00000a"}]"#, r#"dnn=ims&snssais=[{"sst":1}]"#),
        (
            "UPF",
            &upf,
            r#"dnn=any&snssais=[{"sst":1,"sd":"000005"}]"#,
            r#"dnn=any&snssais=[{"sst":1,"sd":"00000a"}]"#,
        ),
        ("UDM", &udm, "supi=imsi-999700000000001", "supi=imsi-999700000000100"),
        ("UDM", &udm, "supi=imsi-999700000000099", "supi=imsi-99970000000001"),
        ("UDM", &udm, "supi=imsi-999700000000000", "supi=imsi-999699999999999"),
        ("UDM", &udm, "routing-indicator=12", "routing-indicator=1"),
        ("UDR", &udr, "supi=imsi-999700000000001", "supi=imsi-999700000000100"),
        // A pattern is not evaluated.
        ("PCF", &pcf, "dnn=internet&supi=imsi-1234567", "dnn=ims"),
        (
            "UDM",
            &plmns,
            r#"target-plmn-list=[{"mcc":"999","mnc":"71"}]"#,
            r#"target-plmn-list=[{"mcc":"999","mnc":"72"}]"#,
        ),
        (
            "UDM",
            &json!({}),
            r#"target-plmn-list=[{"mcc":"999","mnc":"70"}]"#,
            r#"target-plmn-list=[{"mcc":"999","mnc":"71"}]"#,
        ),
        (
            "UDM",
            &json!({}),
            "target-nf-instance-id=00000000-0000-4000-8000-000000000002",
            "target-nf-instance-id=00000000-0000-4000-8000-000000000003",
        ),
        ("UDM", &services, "service-names=nudm-sdm,nudm-pp", "service-names=nudm-pp"),
        ("UDM", &services, "service-names=nudm-sdm", "service-names=nudm-ueau"),
        ("UDM", &services, "service-names=nudm-sdm", "service-names=nudm-ee"),
        (
            "UDM",
            &json!({"allowedPlmns": [plmn("70")]}),
            "",
            r#"requester-plmn-list=[{"mcc":"999","mnc":"71"}]"#,
        ),
        (
            "UDM",
            &json!({"allowedPlmns": [plmn("71")]}),
            r#"requester-plmn-list=[{"mcc":"999","mnc":"71"}]"#,
            "",
        ),
        ("UDM", &json!({"allowedNfTypes": ["AMF"]}), "", "target-nf-type=SMF"),
    ];
    for (nf_type, members, fits, excluded) in cases {
        let mut nrf = nrf();
        register(&mut nrf, at(0), with(profile(UDM, nf_type), members.clone()));
        let base = format!("target-nf-type={nf_type}");
        assert_eq!(found(&nrf, &format!("{base}&{fits}")), 1, "{nf_type} {fits}");
        let excluding = if excluded.starts_with("target-nf-type") {
            excluded.into()
        } else {
            format!("{base}&{excluded}")
        };
        assert_eq!(found(&nrf, &excluding), 0, "{nf_type} {excluding}");
    }
    // What a profile does not say excludes nothing, but for an AMF's identity.
    let mut nrf = nrf();
    register(&mut nrf, at(0), profile(AMF, "AMF"));
    let anything = r#"snssais=[{"sst":9}]&dnn=x&supi=imsi-99999&routing-indicator=9&tai={"plmnId":{"mcc":"999","mnc":"70"},"tac":"000002"}"#;
    assert_eq!(
        (
            found(&nrf, &format!("target-nf-type=AMF&{anything}")),
            found(&nrf, "target-nf-type=AMF&amf-set-id=001")
        ),
        (1, 0)
    );
}

#[test] // TS 29.510 §6.2.3.2.3.1, §6.1.6.2.2: requesters that profiles and services allow
fn what_does_not_allow_the_requester_is_not_found() {
    let mut nrf = nrf();
    let services = json!({"nfServices": [service("nudm-sdm"), with(service("nudm-ueau"), json!({"allowedNfTypes": ["AUSF"]}))]});
    register(&mut nrf, at(0), with(profile(UDM, "UDM"), services));
    register(&mut nrf, at(0), with(profile(SMF, "UDM"), json!({"allowedNfTypes": ["SMF"]})));
    let by = |requester: &str, more: &str| {
        let query = format!("target-nf-type=UDM&requester-nf-type={requester}{more}");
        let result = nrf.discover(&DiscoveryParameters::read(&query).unwrap());
        let instances = result["nfInstances"].as_array().unwrap();
        let names = |instance: &Value| {
            let services = instance["nfServices"].as_array().map(Vec::as_slice).unwrap_or_default();
            services.iter().map(|s| s["serviceName"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        instances.iter().map(names).collect::<Vec<_>>()
    };
    assert_eq!(by("AMF", ""), [vec!["nudm-sdm"]]);
    assert_eq!(by("AUSF", ""), [vec!["nudm-sdm", "nudm-ueau"]]);
    assert_eq!(by("AUSF", "&service-names=nudm-ueau"), [vec!["nudm-ueau"]]);
    assert_eq!(by("SMF", ""), [vec!["nudm-sdm".to_owned()], vec![]]);
}

#[test] // TS 29.510 §6.2.6.2.3: an array for those that do not read the map of services
fn services_are_answered_in_the_form_that_the_consumer_reads() {
    let mut nrf = nrf();
    register(
        &mut nrf,
        at(0),
        with(
            profile(UDM, "UDM"),
            json!({"nfServiceList": {"a": service("nudm-sdm"), "b": service("nudm-uecm")}}),
        ),
    );
    let old = &discovered(&nrf, "target-nf-type=UDM&service-names=nudm-uecm")[0];
    assert_eq!((&old["nfServices"], old.get("nfServiceList")), (&json!([service("nudm-uecm")]), None));
    let new = &discovered(&nrf, "target-nf-type=UDM&service-names=nudm-uecm&requester-features=20")[0];
    assert_eq!((new.get("nfServices"), &new["nfServiceList"]), (None, &json!({"b": service("nudm-uecm")})));
}

#[test] // TS 29.510 §6.2.3.2.3.1: `limit`, `max-payload-size`
fn an_answer_is_bounded_and_says_how_many_there_are() {
    let mut nrf = nrf();
    for n in 0..300_u32 {
        let id = format!("00000000-0000-4000-8000-{n:012}");
        register(
            &mut nrf,
            at(0),
            with(profile(&id, "SMF"), json!({"priority": 300 - n, "x": "y".repeat(1000)})),
        );
    }
    let result = |query: &str| {
        let query = format!("target-nf-type=SMF&requester-nf-type=AMF{query}");
        nrf.discover(&DiscoveryParameters::read(&query).unwrap())
    };
    let limited = result("&limit=2");
    assert_eq!(
        (limited["nfInstances"].as_array().unwrap().len(), &limited["numNfInstComplete"]),
        (2, &json!(300))
    );
    assert_eq!(limited["nfInstances"][0]["priority"], 1);
    for (query, kilooctets) in [("", 124), ("&max-payload-size=10", 10), ("&max-payload-size=1000000", 2000)]
    {
        let result = result(query);
        let (octets, kept) =
            (serde_json::to_vec(&result).unwrap().len(), result["nfInstances"].as_array().unwrap().len());
        assert!(octets <= kilooctets * 1000 && kept >= 7, "{query}: {octets} octets, {kept} instances");
        assert_eq!(result.get("numNfInstComplete").is_some(), kept < 300, "{query}");
    }
}

fn subscribe(nrf: &mut Nrf, now: Instant, members: Value) -> Result<SubscriptionData, NrfRefusal> {
    let json = with(json!({"nfStatusNotificationUri": "http://192.0.2.8/notify"}), members);
    nrf.subscribe(now, &json, &"s1".parse().unwrap())
}

fn notified(nrf: &mut Nrf) -> Vec<(String, Option<String>)> {
    let read = |body: &[u8]| whimbrel_sbi_types::from_slice::<NotificationData>(body).unwrap();
    let all = nrf.take_notifications().into_iter().map(|n| read(&n.body));
    all.map(|n| (n.event.to_string(), n.nf_profile.map(|profile| profile.nf_status.to_string()))).collect()
}

#[test] // TS 29.510 §5.2.2.5, §5.2.2.6
fn subscribers_are_notified_of_what_happens_to_an_instance() {
    let mut nrf = nrf();
    let data =
        subscribe(&mut nrf, at(0), json!({"subscrCond": {"nfType": "UDM"}, "reqNfType": "AMF"})).unwrap();
    assert_eq!(data.subscription_id.unwrap().as_str(), "s1");
    assert_eq!(data.validity_time.unwrap().unix_ms(), at(24 * 3600).0 as i64 / 1000);
    let of = |event: &str, status: &str| (event.to_owned(), Some(status.to_owned()));
    register(&mut nrf, at(1), profile(UDM, "UDM"));
    register(&mut nrf, at(1), profile(SMF, "SMF"));
    assert_eq!(notified(&mut nrf), [of("NF_REGISTERED", "REGISTERED")]);
    nrf.update(at(2), &id(UDM), &heartbeat()).unwrap();
    register(&mut nrf, at(3), with(profile(UDM, "UDM"), json!({"load": 9})));
    assert_eq!(notified(&mut nrf), [], "a load alone is not notified");
    nrf.update(at(4), &id(UDM), &patch(json!([{"op": "add", "path": "/capacity", "value": 3}]))).unwrap();
    nrf.advance(at(30));
    nrf.advance(at(31));
    assert_eq!(
        notified(&mut nrf),
        [of("NF_PROFILE_CHANGED", "REGISTERED"), of("NF_PROFILE_CHANGED", "SUSPENDED")]
    );
    nrf.update(at(40), &id(UDM), &heartbeat()).unwrap();
    nrf.deregister(&id(UDM)).unwrap();
    assert_eq!(
        notified(&mut nrf),
        [of("NF_PROFILE_CHANGED", "REGISTERED"), ("NF_DEREGISTERED".into(), None)]
    );
    register(&mut nrf, at(41), with(profile(UDM, "UDM"), json!({"allowedNfTypes": ["SMF"]})));
    assert_eq!(notified(&mut nrf), [], "the subscriber is not allowed there");
    assert_eq!(nrf.unsubscribe(&"s1".parse().unwrap()), Ok(()));
    assert_eq!(nrf.unsubscribe(&"s1".parse().unwrap()).unwrap_err().cause, "SUBSCRIPTION_NOT_FOUND");
    register(&mut nrf, at(42), profile(UDM, "UDM"));
    assert_eq!(notified(&mut nrf), []);
}

#[test] // TS 29.510 §6.1.6.2.16, §6.1.6.2.35
fn a_subscription_is_to_its_condition_and_events_until_its_end() {
    for (members, count) in [
        (json!({}), 2),
        (json!({"reqNotifEvents": ["NF_DEREGISTERED"]}), 1),
        (json!({"subscrCond": {"nfInstanceId": UDM}}), 2),
        (json!({"subscrCond": {"nfInstanceId": AMF}}), 0),
        (json!({"subscrCond": {"serviceName": "nudm-sdm"}}), 2),
        (json!({"subscrCond": {"serviceName": "nudm-ee"}}), 0),
        // As free5GC writes it.
        (json!({"subscrCond": {"nfType": "UDM", "nfSetId": "", "guamiList": null, "serviceName": ""}}), 2),
    ] {
        let mut nrf = nrf();
        subscribe(&mut nrf, at(0), members.clone()).unwrap();
        register(&mut nrf, at(1), with(profile(UDM, "UDM"), json!({"nfServices": [service("nudm-sdm")]})));
        nrf.deregister(&id(UDM)).unwrap();
        assert_eq!(notified(&mut nrf).len(), count, "{members}");
    }
    let mut nrf = nrf();
    for condition in [
        json!({"nfSetId": "set1"}),
        json!({}),
        json!({"nfType": "UDM", "nfSetId": "set1"}),
        json!({"nfType": 1}),
    ] {
        let refusal = subscribe(&mut nrf, at(0), json!({"subscrCond": condition})).unwrap_err();
        assert_eq!(refusal.status, 400, "{condition}");
    }
    let asked = json!({"validityTime": crate::tests::date(100)});
    assert_eq!(subscribe(&mut nrf, at(0), asked).unwrap().validity_time.unwrap().to_string(), date(100));
    let renewed = patch(json!([{"op": "replace", "path": "/validityTime", "value": date(200)}]));
    nrf.renew(at(50), &"s1".parse().unwrap(), &renewed).unwrap();
    let other =
        patch(json!([{"op": "replace", "path": "/nfStatusNotificationUri", "value": "http://192.0.2.7/"}]));
    assert_eq!(nrf.renew(at(50), &"s1".parse().unwrap(), &other).unwrap_err().status, 403);
    nrf.advance(at(199));
    register(&mut nrf, at(199), profile(UDM, "UDM"));
    assert_eq!(notified(&mut nrf).len(), 1);
    nrf.advance(at(200));
    nrf.deregister(&id(UDM)).unwrap();
    assert_eq!(notified(&mut nrf).len(), 0);
}

fn date(seconds: u64) -> String {
    whimbrel_sbi_types::common::DateTime::from_unix_ms(at(seconds).0 as i64 / 1000).to_string()
}

#[test] // TS 29.510 §5.4.2.2, TS 33.501 §13.4.1.1
fn tokens_are_for_registered_instances_and_for_services_that_allow_them() {
    let mut nrf = nrf();
    register(&mut nrf, at(0), with(profile(AMF, "AMF"), json!({"plmnList": [{"mcc": "999", "mnc": "70"}]})));
    let services = json!({"nfServices": [service("nudm-sdm"), with(service("nudm-ueau"), json!({"allowedNfTypes": ["AUSF"]}))]});
    register(&mut nrf, at(0), with(profile(UDM, "UDM"), services));
    // A profile that does not allow AMFs, whose service says nothing of that.
    let closed = json!({"allowedNfTypes": ["SMF"], "nfServices": [service("npcf-smpolicycontrol")]});
    register(&mut nrf, at(0), with(profile(SMF, "PCF"), closed));
    let form = |members: &str| format!("grant_type=client_credentials&nfInstanceId={AMF}{members}");
    let token = |form: &str| nrf.token(at(5), form.as_bytes());
    let claims = token(&form("&nfType=AMF&targetNfType=UDM&scope=nudm-sdm")).unwrap();
    assert_eq!(
        (claims.iss, claims.sub, claims.aud),
        (Some(id(NRF)), id(AMF), Some(Audience::Type(NfType::Udm)))
    );
    assert_eq!((claims.scope.as_str(), claims.exp), ("nudm-sdm", at(605).as_secs()));
    let of_instance = token(&form(&format!("&targetNfInstanceId={UDM}&scope=nudm-sdm"))).unwrap();
    assert_eq!(of_instance.aud, Some(Audience::Instances(BoundedList::one(id(UDM)))));
    // This NRF's own services.
    assert!(token(&form("&nfType=AMF&targetNfType=NRF&scope=nnrf-disc")).is_ok());
    use AccessTokenErrorCode::{
        InvalidClient, InvalidRequest, InvalidScope, UnauthorizedClient, UnsupportedGrantType,
    };
    let unknown = format!(
        "grant_type=client_credentials&nfInstanceId={ABSENT}&nfType=SMF&targetNfType=UDM&scope=nudm-sdm"
    );
    for (form, error) in [
        (unknown, InvalidClient),
        (form("&nfType=SMF&targetNfType=UDM&scope=nudm-sdm"), InvalidClient),
        (form("&nfType=AMF&targetNfType=UDM&scope=nudm-ueau"), UnauthorizedClient),
        (form("&nfType=AMF&targetNfType=UDM&scope=nudm-sdm+nudm-ueau"), UnauthorizedClient),
        (form("&nfType=AMF&targetNfType=PCF&scope=npcf-smpolicycontrol"), UnauthorizedClient),
        (form("&nfType=AMF&targetNfType=UDM&scope=nudm-ee"), InvalidScope),
        (form("&nfType=AMF&targetNfType=AUSF&scope=nudm-sdm"), InvalidScope),
        (form(&format!("&targetNfInstanceId={SMF}&scope=nudm-sdm")), InvalidScope),
        (form("&nfType=AMF&targetNfType=UDM&scope=%22"), InvalidScope),
        (form("&nfType=AMF&scope=nudm-sdm"), InvalidRequest),
        (form("&nfType=AMF&targetNfType=UDM"), InvalidRequest),
        (form("&nfInstanceId=1&targetNfType=UDM&scope=nudm-sdm"), InvalidRequest),
        (form("&targetNfType=UDM&scope=nudm-sdm&requesterPlmn=99970"), InvalidRequest),
        (form(r#"&targetNfType=UDM&scope=nudm-sdm&requesterPlmn={"mcc":"999","mnc":"71"}"#), InvalidClient),
        (
            form("&targetNfType=UDM&scope=nudm-sdm").replace("client_credentials", "password"),
            UnsupportedGrantType,
        ),
        ("scope=%".into(), InvalidRequest),
        (String::new(), InvalidRequest),
    ] {
        assert_eq!(token(&form).map(drop).unwrap_err().error, error, "{form}");
    }
    assert_eq!(nrf.token(at(5), &[0xff]).unwrap_err().error, InvalidRequest);
}

#[test] // a million registrations, and profiles that are large
fn profiles_and_subscriptions_are_bounded() {
    let mut nrf = nrf();
    let small = |n: usize| stored(profile(&format!("00000000-0000-4000-8000-{n:012}"), "SMF")).unwrap();
    let taken = (0..1_000_000).take_while(|n| {
        let profile = small(*n);
        let id = profile.id();
        nrf.register(at(0), &id, profile).is_ok()
    });
    assert_eq!(taken.count(), INSTANCES_MAX - 1);
    let again = nrf.register(at(0), &id(UDM), small(2)).map(|registered| registered.is_new);
    assert_eq!(again, Ok(false), "one that is registered may register again");
    let further = small(1_000_000);
    let refusal = nrf.register(at(0), &further.id(), further).unwrap_err();
    assert_eq!((refusal.status, refusal.cause), (503, "NF_CONGESTION"));
    let mut nrf = self::nrf();
    let large = |n: usize| {
        let json = profile(&format!("00000000-0000-4000-8000-{n:012}"), "SMF");
        stored(with(json, json!({"x": "y".repeat(60_000)}))).unwrap()
    };
    let taken = (0..10_000).take_while(|n| {
        let profile = large(*n);
        let id = profile.id();
        nrf.register(at(0), &id, profile).is_ok()
    });
    let taken = taken.count();
    assert!((TOTAL_OCTETS_MAX / 61_000..=TOTAL_OCTETS_MAX / 60_000).contains(&taken), "{taken}");
    let json = json!({"nfStatusNotificationUri": "http://192.0.2.8/notify"});
    for n in 0..SUBSCRIPTIONS_MAX {
        nrf.subscribe(at(0), &json, &format!("s{n}").parse().unwrap()).unwrap();
    }
    assert_eq!(nrf.subscribe(at(0), &json, &"s".parse().unwrap()).unwrap_err().status, 503);
    nrf.take_notifications();
    nrf.deregister(&id("00000000-0000-4000-8000-000000000000")).unwrap();
    nrf.deregister(&id("00000000-0000-4000-8000-000000000001")).unwrap();
    assert_eq!((nrf.take_notifications().len(), nrf.notifications_lost()), (4096, 4096));
}

#[test] // after a restart instances go on with their heartbeats, and subscribers are still notified
fn the_state_survives_a_restart() {
    let mut before = nrf();
    assert_eq!(before.take_changed(), None);
    register(&mut before, at(0), with(profile(UDM, "UDM"), json!({"x-vendor": 1})));
    subscribe(&mut before, at(0), json!({"subscrCond": {"nfType": "UDM"}})).unwrap();
    let mut state = before.take_changed().unwrap();
    assert_eq!(state.lines().count(), 2);
    before.update(at(1), &id(UDM), &heartbeat()).unwrap();
    assert_eq!(before.take_changed(), None, "a heartbeat writes nothing");
    state.push_str("{\"profile\":{\"nfType\":\"UDM\"}}\n{}\n1\n{\"subscription\":{}}\n{\"profile\"");
    let mut after = nrf();
    assert_eq!(after.restore(at(1000), &state), 5);
    assert_eq!(discovered(&after, "target-nf-type=UDM")[0]["x-vendor"], 1);
    after.advance(at(1015));
    assert!(after.update(at(1016), &id(UDM), &heartbeat()).is_ok());
    assert_eq!(notified(&mut after), []);
    after.deregister(&id(UDM)).unwrap();
    assert_eq!(notified(&mut after), [("NF_DEREGISTERED".to_owned(), None)]);
    assert_eq!(nrf().restore(at(0), ""), 0);
}

proptest! {
    #[test] // the sum of octets is that of the profiles, whatever comes, and no more than there may be
    fn any_order_of_operations_keeps_the_sums(operations in prop::collection::vec((0_u8..5, 0_usize..4, 0_u64..40), 1..60)) {
        let mut nrf = nrf();
        let empty = nrf.octets();
        let mut now = at(0);
        for (operation, n, seconds) in operations {
            now = now + Duration::from_secs(seconds);
            let id = id(&format!("00000000-0000-4000-8000-{n:012}"));
            match operation {
                0 => drop(nrf.register(now, &id, stored(with(profile(id.as_str(), "SMF"), json!({"x": "y".repeat(n * 100)}))).unwrap())),
                1 => drop(nrf.update(now, &id, &heartbeat())),
                2 => drop(nrf.update(now, &id, &patch(json!([{"op": "add", "path": "/z", "value": [seconds]}])))),
                3 => drop(nrf.deregister(&id)),
                _ => nrf.advance(now),
            }
            let (registered, suspended) = nrf.counts();
            prop_assert!(suspended <= registered && registered <= 4);
            prop_assert_eq!(nrf.octets() == empty, registered == 0);
            let (ids, _) = nrf.list("").unwrap();
            let sum: usize = ids.iter().map(|id| match id.as_str() {
                NRF => empty,
                // The stored profile has its own state, not that which the NRF gives it.
                _ => serde_json::to_vec(&with(nrf.profile(id).unwrap(), json!({"nfStatus": "REGISTERED"}))).unwrap().len(),
            }).sum();
            prop_assert_eq!(sum, nrf.octets());
        }
        nrf.advance(now + Duration::from_secs(1_000_000));
        prop_assert_eq!((nrf.counts(), nrf.octets()), ((0, 0), empty));
    }
}

#[test] // as Open5GS's functions have it
fn a_subscriber_that_refuses_changes_is_notified_of_an_end_and_of_a_beginning() {
    let changed = |status: &str| {
        let profile = json!({ "nfInstanceId": AMF, "nfStatus": status });
        let body =
            json!({ "event": "NF_PROFILE_CHANGED", "nfInstanceUri": "http://x/a", "nfProfile": profile });
        let plain = StatusNotification::without_changes(body.to_string().as_bytes()).unwrap();
        serde_json::from_slice::<Value>(&plain).unwrap()
    };
    assert_eq!(changed("SUSPENDED"), json!({ "event": "NF_DEREGISTERED", "nfInstanceUri": "http://x/a" }));
    let back = changed("REGISTERED");
    assert_eq!(
        (&back["event"], &back["nfProfile"]["nfStatus"]),
        (&json!("NF_REGISTERED"), &json!("REGISTERED"))
    );
    for other in ["", "[]", "{\"event\":\"NF_REGISTERED\"}"] {
        assert_eq!(StatusNotification::without_changes(other.as_bytes()), None, "{other}");
    }
}
