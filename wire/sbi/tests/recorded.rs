//! Bodies of Open5GS and free5GC, as they were on the wire: each is read, and means the same when it is written and read again.
//!
//! A line of `testdata/recorded.jsonl` is a request or a response; `WHIMBREL_SBI_RECORDED` names a file of more of them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_sbi_types::common::{PatchItem, ProblemDetails};
use whimbrel_sbi_types::nausf::{
    AuthenticationInfo, ConfirmationData, ConfirmationDataResponse, EapSession, UEAuthenticationCtx,
};
use whimbrel_sbi_types::nchf::{ChargingDataRequest, ChargingDataResponse};
use whimbrel_sbi_types::nnrf::{
    AccessTokenErr, AccessTokenRsp, NfProfile, NotificationData, SearchResult, SubscriptionData,
};
use whimbrel_sbi_types::npcf_am::{PolicyAssociation, PolicyAssociationRequest};
use whimbrel_sbi_types::npcf_sm::{
    SmPolicyContextData, SmPolicyControl, SmPolicyDecision, SmPolicyDeleteData,
};
use whimbrel_sbi_types::nudm_sdm::{
    AccessAndMobilitySubscriptionData, Nssai, SdmSubscription, SmSubsData, SmfSelectionSubscriptionData,
    SmsSubscriptionData, SubscriptionDataSets, UeContextInSmfData,
};
use whimbrel_sbi_types::nudm_ueau::{AuthEvent, AuthenticationInfoRequest, AuthenticationInfoResult};
use whimbrel_sbi_types::nudm_uecm::{
    Amf3GppAccessRegistration, Amf3GppAccessRegistrationModification, DeregistrationData, SmfRegistration,
};
use whimbrel_sbi_types::{BoundedList, from_slice, to_vec};

/// A body on the wire.
#[derive(serde::Deserialize)]
struct Recorded {
    source: String,
    method: String,
    path: String,
    /// Status of a response; 0 of a request.
    status: u16,
    body: String,
}

/// A body is read, written and read again.
fn check<T: DeserializeOwned + Serialize + PartialEq>(recorded: &Recorded) -> Result<(), String> {
    let read: T = from_slice(recorded.body.as_bytes()).map_err(|e| e.to_string())?;
    let again: T = from_slice(&to_vec(&read)).map_err(|e| format!("when it is read again: {e}"))?;
    match read == again {
        true => Ok(()),
        false => Err("means something else when it is read again".into()),
    }
}

/// `None`: a body of an interface that is not supported, or that the program itself gets wrong in a way that is listed.
fn check_by_path(r: &Recorded) -> Option<Result<(), String>> {
    let path = r.path.split('?').next().unwrap();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_request = r.status == 0;
    if r.status >= 400 {
        return Some(match (r.status, path) {
            (400, "/oauth2/token") => check::<AccessTokenErr>(r),
            // free5GC answers to a wrong token with a member of its own alone.
            _ => check::<ProblemDetails>(r),
        });
    }
    Some(match (r.method.as_str(), parts.as_slice(), is_request) {
        ("PUT", ["nnrf-nfm", "v1", "nf-instances", _], _) => check::<NfProfile>(r),
        ("GET", ["nnrf-nfm", "v1", "nf-instances", _], false) => check::<NfProfile>(r),
        ("PATCH", ["nnrf-nfm", "v1", "nf-instances", _], true) => check::<BoundedList<PatchItem>>(r),
        ("PATCH", ["nnrf-nfm", "v1", "nf-instances", _], false) => check::<NfProfile>(r),
        ("POST", ["nnrf-nfm", "v1", "subscriptions"], _) => check::<SubscriptionData>(r),
        ("POST", ["nnrf-nfm", "v1", "nf-status-notify"], true) => check::<NotificationData>(r),
        ("GET", ["nnrf-disc", "v1", "nf-instances"], false) => check::<SearchResult>(r),
        ("POST", ["oauth2", "token"], false) => check::<AccessTokenRsp>(r),
        ("POST", ["nausf-auth", "v1", "ue-authentications"], true) => check::<AuthenticationInfo>(r),
        ("POST", ["nausf-auth", "v1", "ue-authentications"], false) => check::<UEAuthenticationCtx>(r),
        ("PUT", ["nausf-auth", .., "5g-aka-confirmation"], true) => check::<ConfirmationData>(r),
        ("PUT", ["nausf-auth", .., "5g-aka-confirmation"], false) => check::<ConfirmationDataResponse>(r),
        ("POST", ["nausf-auth", .., "eap-session"], _) => check::<EapSession>(r),
        ("POST", ["nudm-ueau", .., "generate-auth-data"], true) => check::<AuthenticationInfoRequest>(r),
        ("POST", ["nudm-ueau", .., "generate-auth-data"], false) => check::<AuthenticationInfoResult>(r),
        ("POST" | "PUT", ["nudm-ueau", _, _, "auth-events", ..], true) => check::<AuthEvent>(r),
        ("GET", ["nudm-sdm", "v2", _], false) => check::<SubscriptionDataSets>(r),
        ("GET", ["nudm-sdm", "v2", _, "nssai"], false) => check::<Nssai>(r),
        ("GET", ["nudm-sdm", "v2", _, "am-data"], false) => check::<AccessAndMobilitySubscriptionData>(r),
        ("GET", ["nudm-sdm", "v2", _, "smf-select-data"], false) => check::<SmfSelectionSubscriptionData>(r),
        ("GET", ["nudm-sdm", "v2", _, "sm-data"], false) => check::<SmSubsData>(r),
        ("GET", ["nudm-sdm", "v2", _, "sms-data"], false) => check::<SmsSubscriptionData>(r),
        ("GET", ["nudm-sdm", "v2", _, "ue-context-in-smf-data"], false) => check::<UeContextInSmfData>(r),
        ("POST", ["nudm-sdm", "v2", _, "sdm-subscriptions"], _) => check::<SdmSubscription>(r),
        ("PUT" | "GET", ["nudm-uecm", "v1", _, "registrations", "amf-3gpp-access"], _) => {
            check::<Amf3GppAccessRegistration>(r)
        }
        ("PATCH", ["nudm-uecm", "v1", _, "registrations", "amf-3gpp-access"], _) => {
            check::<Amf3GppAccessRegistrationModification>(r)
        }
        ("PUT", ["nudm-uecm", "v1", _, "registrations", "smf-registrations", _], _) => {
            check::<SmfRegistration>(r)
        }
        ("POST", ["namf-callback", "v1", .., "dereg-notify"], true) => check::<DeregistrationData>(r),
        ("POST", ["npcf-am-policy-control", "v1", "policies"], true) => check::<PolicyAssociationRequest>(r),
        ("POST" | "GET", ["npcf-am-policy-control", "v1", "policies", ..], false) if parts.len() < 5 => {
            check::<PolicyAssociation>(r)
        }
        ("POST", ["npcf-smpolicycontrol", "v1", "sm-policies"], true) => check::<SmPolicyContextData>(r),
        ("POST", ["npcf-smpolicycontrol", "v1", "sm-policies"], false) => check::<SmPolicyDecision>(r),
        ("GET", ["npcf-smpolicycontrol", "v1", "sm-policies", _], false) => check::<SmPolicyControl>(r),
        ("POST", ["npcf-smpolicycontrol", .., "delete"], true) => check::<SmPolicyDeleteData>(r),
        ("POST", ["npcf-smpolicycontrol", .., "update"], false) => check::<SmPolicyDecision>(r),
        ("POST", ["nchf-convergedcharging", ..], true) => check::<ChargingDataRequest>(r),
        ("POST", ["nchf-convergedcharging", ..], false) => check::<ChargingDataResponse>(r),
        _ => return None,
    })
}

#[test]
fn bodies_of_other_cores_are_read_and_mean_the_same_when_written() {
    let mut text = include_str!("../testdata/recorded.jsonl").to_owned();
    if let Ok(more) = std::env::var("WHIMBREL_SBI_RECORDED") {
        text.push_str(&std::fs::read_to_string(more).unwrap());
    }
    let (mut read, mut skipped, mut wrong) = (0, 0, Vec::new());
    for line in text.lines() {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        let Recorded { source, method, path, status, .. } = &recorded;
        match check_by_path(&recorded) {
            Some(Ok(())) => read += 1,
            Some(Err(e)) => wrong.push(format!("{source}: {method} {path} -> {status}: {e}")),
            None => {
                skipped += 1;
                println!("not supported: {source}: {method} {path} -> {status}");
            }
        }
    }
    println!("{read} bodies were read, {skipped} are of other interfaces");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), read + wrong.len(), wrong.join("\n"));
    assert!(read > 20);
}
