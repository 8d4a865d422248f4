//! Rules of all bodies: TS 29.501 §5.2.2 and TS 29.500 §5.2.7.2.

use whimbrel_sbi_types::BodyErrorKind::{Format, MandatoryIncorrect, MandatoryMissing, OptionalIncorrect};
use whimbrel_sbi_types::common::{PatchItem, ProblemDetails, RatType, SbiAmbr, Snssai};
use whimbrel_sbi_types::json::AnyJson;
use whimbrel_sbi_types::nausf::{ConfirmationData, EapSession, FiveGAuthData, UEAuthenticationCtx};
use whimbrel_sbi_types::nnrf::{
    AccessTokenClaims, AccessTokenReq, Audience, GrantType, NfProfile, NfStatus, SearchResult, heartbeat,
};
use whimbrel_sbi_types::nudm_sdm::{AccessAndMobilitySubscriptionData, SmSubsData};
use whimbrel_sbi_types::nudm_ueau::{
    AuthType, AuthenticationInfoRequest, AuthenticationInfoResult, AuthenticationVector,
};
use whimbrel_sbi_types::{from_slice, to_vec};

const REQUEST: &str = r#"{
    "servingNetworkName": "5G:mnc070.mcc999.3gppnetwork.org",
    "ausfInstanceId": "4947a69a-f61b-4bc1-b9da-47c9c5d14b64",
    "resynchronizationInfo": {"rand": "000102030405060708090a0b0c0d0e0f", "auts": "000102030405060708090a0b0c0d"}
}"#;

fn text<T: serde::Serialize>(body: &T) -> String {
    String::from_utf8(to_vec(body)).unwrap()
}

#[test] // TS 29.501 §5.2.2.2: a member that is not known is skipped, however deep it is
fn unknown_members_are_skipped_and_not_written() {
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let later = REQUEST.replacen('{', &format!(r#"{{"later": {deep}, "other": {{"a": null}},"#), 1);
    let read: AuthenticationInfoRequest = from_slice(later.as_bytes()).unwrap();
    assert_eq!(read, from_slice(REQUEST.as_bytes()).unwrap());
    assert!(!text(&read).contains("later"));
}

#[test]
fn nesting_of_ten_thousand_is_refused_wherever_it_is() {
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    for body in [deep.clone(), REQUEST.replacen('{', &format!(r#"{{"later": {deep},"#), 1)] {
        assert_eq!(from_slice::<AuthenticationInfoRequest>(body.as_bytes()).unwrap_err().kind, Format);
    }
}

#[test] // TS 29.501 §5.2.2.2: a member without a value is left out; null reads as none
fn no_null_is_written() {
    let read: Snssai = from_slice(br#"{"sst": 1, "sd": null}"#).unwrap();
    assert_eq!(text(&read), r#"{"sst":1}"#);
    assert_eq!(text(&ProblemDetails::default()), "{}");
    assert_eq!(text(&AccessAndMobilitySubscriptionData::default()), "{}");
}

#[test] // TS 29.509 §6.1.6.2.6: RES* is null where the UE gave none, and is not left out
fn the_null_of_a_confirmation_is_written() {
    let none: ConfirmationData = from_slice(br#"{"resStar": null}"#).unwrap();
    assert_eq!(text(&none), r#"{"resStar":null}"#);
    let e = from_slice::<ConfirmationData>(b"{}").unwrap_err();
    assert_eq!((e.kind, &*e.pointer), (MandatoryMissing, "/resStar"));
}

#[test] // Programs in Go write null and "" for what they do not have
fn null_and_empty_text_are_none_in_optional_members_alone() {
    let read: ProblemDetails =
        from_slice(br#"{"cause": "", "detail": null, "title": "t", "status": null}"#).unwrap();
    assert_eq!(text(&read), r#"{"title":"t"}"#);
    let read: SearchResult = from_slice(br#"{"validityPeriod": 100, "nfInstances": null}"#).unwrap();
    assert_eq!(text(&read), r#"{"validityPeriod":100,"nfInstances":[]}"#);
    assert!(from_slice::<SearchResult>(b"{}").is_err());
    let e = from_slice::<AuthenticationInfoRequest>(
        REQUEST.replace("5G:mnc070.mcc999.3gppnetwork.org", "").as_bytes(),
    );
    assert_eq!(e.unwrap_err().kind, MandatoryIncorrect);
    let e = from_slice::<ProblemDetails>(br#"{"invalidParams": [{"param": ""}]}"#).unwrap_err();
    assert_eq!((e.kind, &*e.pointer), (OptionalIncorrect, "/invalidParams/0/param"));
}

#[test] // TS 29.501 §5.3.8: a value that this release does not name is kept
fn unknown_values_of_enumerations_are_kept_and_bounded() {
    let rat: RatType = from_slice(br#""NR_ON_THE_MOON""#).unwrap();
    assert_eq!((rat.as_str(), text(&rat)), ("NR_ON_THE_MOON", r#""NR_ON_THE_MOON""#.into()));
    assert_eq!(from_slice::<RatType>(br#""LTE-M""#), Ok(RatType::LteM));
    for wrong in [format!("\"{}\"", "X".repeat(65)), r#""A B""#.into(), "7".into(), "null".into()] {
        assert!(from_slice::<RatType>(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test] // TS 29.500 §5.2.7.2: the cause says what is wrong, the pointer where
fn refusals_name_their_kind_and_member() {
    let body = |from: &str, to: &str| REQUEST.replacen(from, to, 1);
    for (body, kind, pointer) in [
        ("".into(), Format, ""),
        ("{".into(), Format, ""),
        (format!("{REQUEST}x"), Format, ""),
        ("\"\u{1}\"".into(), Format, ""),
        ("7".into(), MandatoryIncorrect, ""),
        ("[]".into(), MandatoryIncorrect, ""),
        ("{}".into(), MandatoryMissing, "/servingNetworkName"),
        (body("5G:", "6G:"), MandatoryIncorrect, "/servingNetworkName"),
        (body("\"ausfInstanceId\"", "\"x\""), MandatoryMissing, "/ausfInstanceId"),
        (body("\"000102", "\"00010"), OptionalIncorrect, "/resynchronizationInfo/rand"),
        (body("\"rand\"", "\"r\""), OptionalIncorrect, "/resynchronizationInfo/rand"),
        (body("\"servingNetworkName\"", "\"ausfInstanceId\":0,\"x\""), MandatoryIncorrect, "/ausfInstanceId"),
    ] {
        let e = from_slice::<AuthenticationInfoRequest>(body.as_bytes()).unwrap_err();
        assert_eq!((e.kind, &*e.pointer), (kind, pointer), "{body}: {e}");
        assert!(e.reason.len() <= 200);
    }
    let twice = REQUEST.replacen('{', r#"{"ausfInstanceId": "4947a69a-f61b-4bc1-b9da-47c9c5d14b64","#, 1);
    assert!(
        from_slice::<AuthenticationInfoRequest>(twice.as_bytes()).is_err(),
        "a member that stands there twice"
    );
}

#[test] // A member's name is 4096 octets long, or has the signs of a pointer
fn pointers_are_bounded_and_escaped() {
    let name = "a/~".repeat(2000);
    let body = format!(r#"{{"pduSessions":{{"{name}":7}}}}"#);
    let e = from_slice::<whimbrel_sbi_types::nudm_sdm::UeContextInSmfData>(body.as_bytes()).unwrap_err();
    assert!(e.pointer.len() <= 200, "{e}");
}

#[test]
fn members_are_not_taken_from_an_array_in_their_order() {
    assert!(from_slice::<SbiAmbr>(br#"["1 bps", "2 bps"]"#).is_err());
    assert!(from_slice::<SbiAmbr>(br#"{"uplink": "1 bps", "downlink": "2 bps"}"#).is_ok());
}

#[test]
fn arrays_maps_and_numbers_beyond_their_bounds_are_refused() {
    let instance =
        r#"{"nfInstanceId":"4947a69a-f61b-4bc1-b9da-47c9c5d14b64","nfType":"UDM","nfStatus":"REGISTERED"}"#;
    let result = |n: usize| format!(r#"{{"nfInstances":[{}]}}"#, vec![instance; n].join(","));
    assert_eq!(from_slice::<SearchResult>(result(1024).as_bytes()).unwrap().nf_instances.len(), 1024);
    assert!(from_slice::<SearchResult>(result(1025).as_bytes()).is_err());
    assert!(from_slice::<NfProfile>(instance.replace("}", r#","load":101}"#).as_bytes()).is_err());
    assert!(from_slice::<NfProfile>(instance.replace("}", r#","load":100}"#).as_bytes()).is_ok());
    let sessions = |n: usize| {
        let session = r#"{"dnn":"internet","smfInstanceId":"4947a69a-f61b-4bc1-b9da-47c9c5d14b64","plmnId":{"mcc":"001","mnc":"01"}}"#;
        let all: Vec<String> = (0..n).map(|n| format!("\"{n}\":{session}")).collect();
        format!(r#"{{"pduSessions":{{{}}}}}"#, all.join(","))
    };
    type Sessions = whimbrel_sbi_types::nudm_sdm::UeContextInSmfData;
    let read = from_slice::<Sessions>(sessions(256).as_bytes()).unwrap();
    assert_eq!(read.sessions().map(|(id, _)| u32::from(id.value())).sum::<u32>(), 255 * 128);
    assert!(from_slice::<Sessions>(sessions(257).as_bytes()).is_err());
    for wrong in ["-1", "256", "1.5", "\"1\"", "1e400"] {
        assert!(from_slice::<Snssai>(format!(r#"{{"sst":{wrong}}}"#).as_bytes()).is_err(), "{wrong}");
    }
}

#[test] // TS 29.503 §6.3.6.2.8, TS 29.509 §6.1.6.2.4: vectors and challenges of both methods
fn vectors_and_challenges_of_both_methods_are_distinguished() {
    let aka = r#"{"authType":"5G_AKA","authenticationVector":{"avType":"5G_HE_AKA","rand":"0f0e0d0c0b0a09080706050403020100",
        "xresStar":"00000000000000000000000000000001","autn":"0f0e0d0c0b0a09080706050403020100",
        "kausf":"0000000000000000000000000000000000000000000000000000000000000002"},"supi":"imsi-001010000000001"}"#;
    let result: AuthenticationInfoResult = from_slice(aka.as_bytes()).unwrap();
    assert_eq!(result.auth_type, AuthType::FiveGAka);
    assert!(matches!(result.authentication_vector, Some(AuthenticationVector::FiveGHeAka(_))));
    let eap = r#"{"authType":"EAP_AKA_PRIME","authenticationVector":{"avType":"EAP_AKA_PRIME","rand":"0F0E0D0C0B0A09080706050403020100",
        "xres":"0000000000000001","autn":"0f0e0d0c0b0a09080706050403020100","ckPrime":"0f0e0d0c0b0a09080706050403020100",
        "ikPrime":"0f0e0d0c0b0a09080706050403020100"}}"#;
    let result: AuthenticationInfoResult = from_slice(eap.as_bytes()).unwrap();
    assert!(
        matches!(&result.authentication_vector, Some(AuthenticationVector::EapAkaPrime(v)) if v.xres.octets().len() == 8)
    );
    let challenge = r#"{"authType":"5G_AKA","5gAuthData":{"rand":"0f0e0d0c0b0a09080706050403020100",
        "hxresStar":"0f0e0d0c0b0a09080706050403020100","autn":"0f0e0d0c0b0a09080706050403020100"},
        "_links":{"5g-aka":{"href":"http://ausf/nausf-auth/v1/ue-authentications/1/5g-aka-confirmation"}}}"#;
    let context: UEAuthenticationCtx = from_slice(challenge.as_bytes()).unwrap();
    assert!(context.confirmation().unwrap().as_str().ends_with("/1/5g-aka-confirmation"));
    let eap = r#"{"authType":"EAP_AKA_PRIME","5gAuthData":"AQEACA==","_links":{"eap-session":[{"href":"/e"},{"href":"/f"}]}}"#;
    let context: UEAuthenticationCtx = from_slice(eap.as_bytes()).unwrap();
    assert_eq!(context.confirmation().unwrap().as_str(), "/e");
    assert!(matches!(&context.five_g_auth_data, FiveGAuthData::Eap(e) if e.octets() == [1, 1, 0, 8]));
    let long = format!(r#"{{"eapPayload":"{}"}}"#, "A".repeat(2004));
    assert!(from_slice::<EapSession>(long.as_bytes()).is_err());
    assert!(from_slice::<EapSession>(long.replacen("AAAA", "", 1).as_bytes()).is_ok());
}

#[test] // TS 29.503 §6.1.6.2.79: an array, or an object with references
fn session_data_are_read_in_both_forms() {
    let slice = r#"{"singleNssai":{"sst":1},"dnnConfigurations":{"internet":{"pduSessionTypes":{"defaultSessionType":"IPV4"},
        "sscModes":{"defaultSscMode":"SSC_MODE_1"},"5gQosProfile":{"5qi":9,"arp":{"priorityLevel":8,"preemptCap":"NOT_PREEMPT",
        "preemptVuln":"NOT_PREEMPTABLE"}},"sessionAmbr":{"uplink":"1 Gbps","downlink":"2 Gbps"}}}}"#;
    let data: SmSubsData = from_slice(format!("[{slice}]").as_bytes()).unwrap();
    let dnns = data.individual()[0].dnn_configurations.as_ref().unwrap();
    let (dnn, configuration) = dnns.first_key_value().unwrap();
    assert_eq!((dnn.as_str(), configuration.session_ambr.unwrap().downlink.0), ("internet", 2_000_000_000));
    let extended = format!(r#"{{"sharedSmSubsDataIds":["00101-a"],"individualSmSubsData":[{slice}]}}"#);
    assert_eq!(from_slice::<SmSubsData>(extended.as_bytes()).unwrap().individual(), data.individual());
}

#[test] // TS 29.510 §5.2.2.3.2: a heartbeat replaces the state, and the load
fn a_heartbeat_is_a_patch_of_state_and_load() {
    let patch = heartbeat(&NfStatus::Registered, whimbrel_sbi_types::common::Percentage::new(7));
    let expected = r#"[{"op":"replace","path":"/nfStatus","value":"REGISTERED"},{"op":"replace","path":"/load","value":7}]"#;
    assert_eq!(text(&patch), expected);
    let item: PatchItem = from_slice(br#"{"op":"add","path":"/a","value":null}"#).unwrap();
    assert_eq!(item.value, Some(AnyJson::Null));
    assert_eq!(text(&item), r#"{"op":"add","path":"/a","value":null}"#);
}

#[test] // TS 29.510 §6.3.5.2: the request is a form, the audience a type or instances
fn token_requests_are_forms_and_audiences_are_types_or_instances() {
    let plmn: whimbrel_ids::PlmnId = "999/70".parse().unwrap();
    let request = AccessTokenReq {
        grant_type: GrantType::ClientCredentials,
        nf_instance_id: "4947a69a-f61b-4bc1-b9da-47c9c5d14b64".parse().unwrap(),
        nf_type: Some(whimbrel_sbi_types::nnrf::NfType::Amf),
        target_nf_type: Some(whimbrel_sbi_types::nnrf::NfType::Udm),
        scope: "nudm-sdm nudm-uecm".parse().unwrap(),
        target_nf_instance_id: None,
        requester_plmn: Some(plmn.into()),
        target_plmn: None,
    };
    assert_eq!(
        request.to_form(),
        "grant_type=client_credentials&nfInstanceId=4947a69a-f61b-4bc1-b9da-47c9c5d14b64&nfType=AMF&targetNfType=UDM\
         &scope=nudm-sdm%20nudm-uecm&requesterPlmn=%7B%22mcc%22%3A%22999%22%2C%22mnc%22%3A%2270%22%7D"
    );
    let claims = |aud: &str| {
        let id = "4947a69a-f61b-4bc1-b9da-47c9c5d14b64";
        let body = format!(r#"{{"iss":"{id}","sub":"{id}","aud":{aud},"scope":"nudm-sdm","exp":1}}"#);
        from_slice::<AccessTokenClaims>(body.as_bytes()).map(|claims| claims.aud)
    };
    assert!(matches!(claims(r#""UDM""#), Ok(Some(Audience::Type(_)))));
    assert!(matches!(
        claims(r#"["4947a69a-f61b-4bc1-b9da-47c9c5d14b64"]"#),
        Ok(Some(Audience::Instances(_)))
    ));
    assert!(claims("[]").is_err() && claims(r#"["UDM"]"#).is_err());
}
