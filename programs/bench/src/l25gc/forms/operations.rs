//! The service operations that are measured, each with a request and its answer as a UE's registration or session causes them: bodies that
//! Open5GS and free5GC sent (`wire/sbi/testdata`), complemented by members that an AMF, SMF or PCF with all of a subscriber's data has.
//!
//! The content of N1 and N2 messages is in none of the forms: beside JSON it travels as parts of a multipart body.

use std::sync::LazyLock;

use whimbrel_sbi_types::namf_comm::{N1N2MessageTransferReqData, N1N2MessageTransferRspData};
use whimbrel_sbi_types::nausf::{AuthenticationInfo, UEAuthenticationCtx};
use whimbrel_sbi_types::npcf_sm::{SmPolicyContextData, SmPolicyDecision};
use whimbrel_sbi_types::nsmf_pdu_session::{
    SmContextCreateData, SmContextCreatedData, SmContextUpdateData, SmContextUpdatedData,
};
use whimbrel_sbi_types::nudm_ueau::{AuthenticationInfoRequest, AuthenticationInfoResult};
use whimbrel_sbi_types::nudm_uecm::Amf3GppAccessRegistration;

use super::Body;

/// A service operation: a request with its answer.
pub(in crate::l25gc) trait Form: Copy + Send + Sync + 'static {
    /// As the paper calls it.
    const NAME: &'static str;
    const METHOD: &'static str;
    const URI: &'static str;
    type Request: Body;
    type Answer: Body;

    /// One as a UE causes it.
    fn sample() -> Self;
    fn request(&self) -> &'static Self::Request;
    fn answer(&self) -> &'static Self::Answer;
}

macro_rules! operations {
    ($($name:ident: $request:ident => $answer:ident, $method:literal $path:literal, $asked:literal, $answered:literal;)*) => {$(
        #[derive(Clone, Copy)]
        pub(in crate::l25gc) struct $name(&'static ($request, $answer));

        impl Form for $name {
            const NAME: &'static str = stringify!($name);
            const METHOD: &'static str = $method;
            const URI: &'static str = concat!("http://127.0.0.2:29502", $path);
            type Request = $request;
            type Answer = $answer;

            fn sample() -> Self {
                static SAMPLE: LazyLock<($request, $answer)> = LazyLock::new(|| (parse($asked), parse($answered)));
                Self(&SAMPLE)
            }

            fn request(&self) -> &'static $request {
                &self.0.0
            }

            fn answer(&self) -> &'static $answer {
                &self.0.1
            }
        }
    )*};
}

fn parse<B: Body>(json: &str) -> B {
    whimbrel_sbi_types::from_slice(json.as_bytes()).expect("a body of the tables")
}

operations! {
    PostSmContexts: SmContextCreateData => SmContextCreatedData, "POST" "/nsmf-pdusession/v1/sm-contexts", r#"{
        "supi":"imsi-999700000000001","pei":"imeisv-4370816125816151","gpsi":"msisdn-0900000000","pduSessionId":1,"dnn":"internet",
        "sNssai":{"sst":1,"sd":"010203"},"servingNfId":"aaaaaaaa-0000-41f1-8000-00000000000a",
        "guami":{"plmnId":{"mcc":"999","mnc":"70"},"amfId":"020040"},"serviceName":"namf-comm","servingNetwork":{"mcc":"999","mnc":"70"},
        "requestType":"INITIAL_REQUEST","n1SmMsg":{"contentId":"5gnas-sm"},"anType":"3GPP_ACCESS","ratType":"NR","ueLocation":{"nrLocation":{
        "tai":{"plmnId":{"mcc":"999","mnc":"70"},"tac":"000001"},"ncgi":{"plmnId":{"mcc":"999","mnc":"70"},"nrCellId":"000000010"},
        "ageOfLocationInformation":0,"ueLocationTimestamp":"2026-11-29T16:00:00Z",
        "globalGnbId":{"plmnId":{"mcc":"999","mnc":"70"},"gNbId":{"bitLength":24,"gNBValue":"000001"}}}},"ueTimeZone":"+01:00",
        "smContextStatusUri":"http://10.39.0.2:7785/namf-callback/v1/imsi-999700000000001/sm-context-status/1",
        "pcfId":"93a2b24e-ec16-41f1-beaa-dff9a92158dc","supportedFeatures":"4000000","selMode":"VERIFIED","routingIndicator":"0000"}"#,
    r#"{"pduSessionId":1,"sNssai":{"sst":1,"sd":"010203"},"upCnxState":"ACTIVATING","gpsi":"msisdn-0900000000",
        "smfServiceInstanceId":"nsmf-pdusession-1","recoveryTime":"2026-11-29T15:00:00Z","supportedFeatures":"4000000"}"#;

    UpdateSmContexts: SmContextUpdateData => SmContextUpdatedData, "POST" "/nsmf-pdusession/v1/sm-contexts/1/modify", r#"{
        "servingNfId":"aaaaaaaa-0000-41f1-8000-00000000000a","anType":"3GPP_ACCESS","ratType":"NR","ueLocation":{"nrLocation":{
        "tai":{"plmnId":{"mcc":"999","mnc":"70"},"tac":"000001"},"ncgi":{"plmnId":{"mcc":"999","mnc":"70"},"nrCellId":"000000010"},
        "ueLocationTimestamp":"2026-11-29T16:00:01Z"}},"ueTimeZone":"+01:00","upCnxState":"ACTIVATING",
        "n2SmInfo":{"contentId":"ngap-sm"},"n2SmInfoType":"PDU_RES_SETUP_RSP"}"#,
    r#"{"upCnxState":"ACTIVATED","n2SmInfo":{"contentId":"ngap-sm"},"n2SmInfoType":"PDU_RES_SETUP_REQ"}"#;

    N1N2MessageTransfer: N1N2MessageTransferReqData => N1N2MessageTransferRspData,
    "POST" "/namf-comm/v1/ue-contexts/imsi-999700000000001/n1-n2-messages", r#"{
        "n1MessageContainer":{"n1MessageClass":"SM","n1MessageContent":{"contentId":"5gnas-sm"}},"n2InfoContainer":{"n2InformationClass":"SM",
        "smInfo":{"pduSessionId":1,"n2InfoContent":{"ngapIeType":"PDU_RES_SETUP_REQ","ngapData":{"contentId":"ngap-sm"}},
        "sNssai":{"sst":1,"sd":"010203"}}},"skipInd":false,"pduSessionId":1,"ppi":0,
        "arp":{"priorityLevel":8,"preemptCap":"NOT_PREEMPT","preemptVuln":"NOT_PREEMPTABLE"},"5qi":9,
        "n1n2FailureTxfNotifURI":"http://10.39.0.4:7777/nsmf-callback/v1/n1-n2-failure/1","supportedFeatures":"0"}"#,
    r#"{"cause":"N1_N2_TRANSFER_INITIATED","supportedFeatures":"0"}"#;

    UeAuthentications: AuthenticationInfo => UEAuthenticationCtx, "POST" "/nausf-auth/v1/ue-authentications", r#"{
        "supiOrSuci":"suci-0-999-70-0000-0-0-0000000003","servingNetworkName":"5G:mnc070.mcc999.3gppnetwork.org",
        "resynchronizationInfo":{"rand":"9f75e17adc9cbc9095ed306f889afe14","auts":"8b8b15a98ade19f265c4a83dc698"}}"#,
    r#"{"authType":"5G_AKA","5gAuthData":{"rand":"a9acb9a82c1db1e694c2c9da9591ace3","hxresStar":"3aa594e5ff6b0682608eef5f6d9d3ae2",
        "autn":"b6139c42297280005cf6b8d258fcaeca"},
        "_links":{"5g-aka":{"href":"http://10.39.0.2:7781/nausf-auth/v1/ue-authentications/1/5g-aka-confirmation"}},
        "servingNetworkName":"5G:mnc070.mcc999.3gppnetwork.org"}"#;

    GenerateAuthData: AuthenticationInfoRequest => AuthenticationInfoResult,
    "POST" "/nudm-ueau/v1/suci-0-999-70-0000-0-0-0000000001/security-information/generate-auth-data", r#"{
        "servingNetworkName":"5G:mnc070.mcc999.3gppnetwork.org","ausfInstanceId":"a0f31876-ec16-41f1-ab49-557033575bd6",
        "resynchronizationInfo":{"rand":"9f75e17adc9cbc9095ed306f889afe14","auts":"8b8b15a98ade19f265c4a83dc698"}}"#,
    r#"{"authType":"5G_AKA","authenticationVector":{"avType":"5G_HE_AKA","rand":"a9acb9a82c1db1e694c2c9da9591ace3",
        "autn":"b6139c42297280005cf6b8d258fcaeca","xresStar":"f6337f97120a8f523ae020d7cb941108",
        "kausf":"ea7cea54dac7c8d55848939fa1362fa2826d3e10d2414e242e929be0c6b4dcfa"},"supi":"imsi-999700000000001"}"#;

    AmfRegistration: Amf3GppAccessRegistration => Amf3GppAccessRegistration,
    "PUT" "/nudm-uecm/v1/imsi-999700000000001/registrations/amf-3gpp-access", r#"{
        "amfInstanceId":"aaaaaaaa-0000-41f1-8000-00000000000a","pei":"imeisv-4370816125816151","imsVoPs":"HOMOGENEOUS_NON_SUPPORT",
        "deregCallbackUri":"http://10.39.0.2:7785/namf-callback/v1/imsi-999700000000001/dereg-notify",
        "guami":{"plmnId":{"mcc":"999","mnc":"70"},"amfId":"020040"},"ratType":"NR","initialRegistrationInd":true}"#,
    r#"{"amfInstanceId":"aaaaaaaa-0000-41f1-8000-00000000000a","pei":"imeisv-4370816125816151","imsVoPs":"HOMOGENEOUS_NON_SUPPORT",
        "deregCallbackUri":"http://10.39.0.2:7785/namf-callback/v1/imsi-999700000000001/dereg-notify",
        "guami":{"plmnId":{"mcc":"999","mnc":"70"},"amfId":"020040"},"ratType":"NR","initialRegistrationInd":true}"#;

    SmPolicies: SmPolicyContextData => SmPolicyDecision, "POST" "/npcf-smpolicycontrol/v1/sm-policies", r#"{
        "supi":"imsi-999700000000001","pduSessionId":1,"pduSessionType":"IPV4","dnn":"internet",
        "notificationUri":"http://10.38.0.1:7777/nsmf-callback/v1/sm-policies/1","accessType":"3GPP_ACCESS","ratType":"NR",
        "servingNetwork":{"mcc":"999","mnc":"70"},"ipv4Address":"10.61.0.1","subsSessAmbr":{"uplink":"200 Mbps","downlink":"100 Mbps"},
        "subsDefQos":{"5qi":9,"arp":{"priorityLevel":8,"preemptCap":"NOT_PREEMPT","preemptVuln":"NOT_PREEMPTABLE"},"priorityLevel":8},
        "sliceInfo":{"sst":1},"suppFeat":"4000000","userLocationInfo":{"nrLocation":{"tai":{"plmnId":{"mcc":"999","mnc":"70"},
        "tac":"000001"},"ncgi":{"plmnId":{"mcc":"999","mnc":"70"},"nrCellId":"000000010"}}}}"#,
    r#"{"sessRules":{"SessRuleId-1":{"authSessAmbr":{"uplink":"200 Mbps","downlink":"100 Mbps"},"authDefQos":{"5qi":9,
        "arp":{"priorityLevel":8,"preemptCap":"NOT_PREEMPT","preemptVuln":"NOT_PREEMPTABLE"},"priorityLevel":8},
        "sessRuleId":"SessRuleId-1"}},"pccRules":{"PccRuleId-1":{"flowInfos":[{"flowDescription":"permit out ip from any to assigned",
        "packFiltId":"PackFiltId-0","packetFilterUsage":true,"flowDirection":"BIDIRECTIONAL"}],"pccRuleId":"PccRuleId-1","precedence":255,
        "refChgData":["ChgId-1"]}},"chgDecs":{"ChgId-1":{"chgId":"ChgId-1","meteringMethod":"VOLUME","online":true,"ratingGroup":1,
        "reportingLevel":"RAT_GR_LEVEL"}},"policyCtrlReqTriggers":["PLMN_CH","RES_MO_RE","AC_TY_CH","UE_IP_CH","PS_DA_OFF","DEF_QOS_CH",
        "SE_AMBR_CH","QOS_NOTIF","RAT_TY_CH"],"suppFeat":"00000000"}"#;
}
