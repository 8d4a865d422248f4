//! Nsmf_PDUSession, as an AMF and an SMF use it without roaming: TS 29.502 §6.1.6. Binary parts are beside the JSON in `multipart/related`.

use crate::common::{
    AccessType, BackupAmfInfo, DateTime, Dnn, Gpsi, Guami, NfInstanceId, NgApCause, Pei, PlmnIdNid,
    PresenceState, ProblemDetails, RatType, RefToBinaryData, RoutingIndicator, SbiPduSessionId, ShortText,
    Snssai, Supi, SupportedFeatures, Uri, UserLocation,
};
use crate::json::BoundedList;
use crate::nnrf::ServiceName;
use crate::npcf_sm::DnnSelectionMode;

enumeration! {
    /// State of a session's user plane. TS 29.502 §6.1.6.3.2.
    pub enum UpCnxState: extensible {
        Activated = "ACTIVATED",
        Deactivated = "DEACTIVATED",
        Activating = "ACTIVATING",
        Suspended = "SUSPENDED",
    }
    /// State of a handover. TS 29.502 §6.1.6.3.3.
    pub enum HoState: extensible {
        None = "NONE",
        Preparing = "PREPARING",
        Prepared = "PREPARED",
        Completed = "COMPLETED",
        Cancelled = "CANCELLED",
    }
    /// Request of a UE for a session. TS 29.502 §6.1.6.3.4.
    pub enum SmRequestType: extensible {
        InitialRequest = "INITIAL_REQUEST",
        ExistingPduSession = "EXISTING_PDU_SESSION",
        InitialEmergencyRequest = "INITIAL_EMERGENCY_REQUEST",
        ExistingEmergencyPduSession = "EXISTING_EMERGENCY_PDU_SESSION",
    }
    /// State of a resource. TS 29.502 §6.1.6.3.7.
    pub enum ResourceStatus: extensible {
        Released = "RELEASED",
        Unchanged = "UNCHANGED",
        Transferred = "TRANSFERRED",
        Updated = "UPDATED",
    }
    /// Reason of an update or a release. TS 29.502 §6.1.6.3.8.
    pub enum SmCause: extensible {
        RelDueToHo = "REL_DUE_TO_HO",
        EpsFallback = "EPS_FALLBACK",
        RelDueToUpSec = "REL_DUE_TO_UP_SEC",
        DnnCongestion = "DNN_CONGESTION",
        SNssaiCongestion = "S_NSSAI_CONGESTION",
        RelDueToReactivation = "REL_DUE_TO_REACTIVATION",
        FiveGAnNotResponding = "5G_AN_NOT_RESPONDING",
        RelDueToSliceNotAvailable = "REL_DUE_TO_SLICE_NOT_AVAILABLE",
        RelDueToDuplicateSessionId = "REL_DUE_TO_DUPLICATE_SESSION_ID",
        PduSessionStatusMismatch = "PDU_SESSION_STATUS_MISMATCH",
        HoFailure = "HO_FAILURE",
        InsufficientUpResources = "INSUFFICIENT_UP_RESOURCES",
        PduSessionHandedOver = "PDU_SESSION_HANDED_OVER",
        PduSessionResumed = "PDU_SESSION_RESUMED",
    }
    /// Kind of a part with an information element of NGAP. TS 29.502 §6.1.6.3.15.
    pub enum N2SmInfoType: extensible {
        PduResSetupReq = "PDU_RES_SETUP_REQ",
        PduResSetupRsp = "PDU_RES_SETUP_RSP",
        PduResSetupFail = "PDU_RES_SETUP_FAIL",
        PduResRelCmd = "PDU_RES_REL_CMD",
        PduResRelRsp = "PDU_RES_REL_RSP",
        PduResModReq = "PDU_RES_MOD_REQ",
        PduResModRsp = "PDU_RES_MOD_RSP",
        PduResModFail = "PDU_RES_MOD_FAIL",
        PduResNty = "PDU_RES_NTY",
        PduResNtyRel = "PDU_RES_NTY_REL",
        PduResModInd = "PDU_RES_MOD_IND",
        PduResModCfm = "PDU_RES_MOD_CFM",
        PathSwitchReq = "PATH_SWITCH_REQ",
        PathSwitchSetupFail = "PATH_SWITCH_SETUP_FAIL",
        PathSwitchReqAck = "PATH_SWITCH_REQ_ACK",
        PathSwitchReqFail = "PATH_SWITCH_REQ_FAIL",
        HandoverRequired = "HANDOVER_REQUIRED",
        HandoverCmd = "HANDOVER_CMD",
        HandoverPrepFail = "HANDOVER_PREP_FAIL",
        HandoverReqAck = "HANDOVER_REQ_ACK",
        HandoverResAllocFail = "HANDOVER_RES_ALLOC_FAIL",
        SecondaryRatUsage = "SECONDARY_RAT_USAGE",
    }
}

object! {
    /// New session, `POST /sm-contexts`. TS 29.502 §6.1.6.2.2.
    pub struct SmContextCreateData {
        pub supi: Option<Supi>,
        pub unauthenticated_supi: Option<bool>,
        pub pei: Option<Pei>,
        pub gpsi: Option<Gpsi>,
        pub pdu_session_id: Option<SbiPduSessionId>,
        pub dnn: Option<Dnn>,
        pub selected_dnn: Option<Dnn>,
        pub s_nssai: Option<Snssai>,
        pub hplmn_snssai: Option<Snssai>,
        pub serving_nf_id: NfInstanceId,
        pub guami: Option<Guami>,
        pub service_name: Option<ServiceName>,
        pub serving_network: PlmnIdNid,
        pub request_type: Option<SmRequestType>,
        pub n1_sm_msg: Option<RefToBinaryData>,
        pub an_type: AccessType,
        pub rat_type: Option<RatType>,
        pub presence_in_ladn: Option<PresenceState>,
        pub ue_location: Option<UserLocation>,
        pub ue_time_zone: Option<ShortText>,
        pub sm_context_status_uri: Uri,
        pub old_pdu_session_id: Option<SbiPduSessionId>,
        pub pcf_id: Option<NfInstanceId>,
        pub nrf_uri: Option<Uri>,
        pub supported_features: Option<SupportedFeatures>,
        pub sel_mode: Option<DnnSelectionMode>,
        pub backup_amf_info: Option<BoundedList<BackupAmfInfo, 0>>,
        pub routing_indicator: Option<RoutingIndicator>,
    }
    /// Answer to a new session. TS 29.502 §6.1.6.2.3.
    #[derive(Default)]
    pub struct SmContextCreatedData {
        pub pdu_session_id: Option<SbiPduSessionId>,
        pub s_nssai: Option<Snssai>,
        pub up_cnx_state: Option<UpCnxState>,
        pub n2_sm_info: Option<RefToBinaryData>,
        pub n2_sm_info_type: Option<N2SmInfoType>,
        pub ho_state: Option<HoState>,
        pub gpsi: Option<Gpsi>,
        pub smf_service_instance_id: Option<ShortText>,
        pub recovery_time: Option<DateTime>,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// Change of a session, `POST /sm-contexts/{smContextRef}/modify`. TS 29.502 §6.1.6.2.4.
    #[derive(Default)]
    pub struct SmContextUpdateData {
        pub pei: Option<Pei>,
        pub serving_nf_id: Option<NfInstanceId>,
        pub guami: Option<Guami>,
        pub serving_network: Option<PlmnIdNid>,
        pub backup_amf_info: Option<BoundedList<BackupAmfInfo, 0>>,
        pub an_type: Option<AccessType>,
        pub rat_type: Option<RatType>,
        pub presence_in_ladn: Option<PresenceState>,
        pub ue_location: Option<UserLocation>,
        pub ue_time_zone: Option<ShortText>,
        pub up_cnx_state: Option<UpCnxState>,
        pub ho_state: Option<HoState>,
        pub to_be_switched: Option<bool>,
        pub failed_to_be_switched: Option<bool>,
        pub n1_sm_msg: Option<RefToBinaryData>,
        pub n2_sm_info: Option<RefToBinaryData>,
        pub n2_sm_info_type: Option<N2SmInfoType>,
        pub target_serving_nf_id: Option<NfInstanceId>,
        pub sm_context_status_uri: Option<Uri>,
        pub data_forwarding: Option<bool>,
        pub release: Option<bool>,
        pub cause: Option<SmCause>,
        pub ng_ap_cause: Option<NgApCause>,
        #[serde(rename = "5gMmCauseValue")]
        pub five_g_mm_cause_value: Option<u32>,
        pub s_nssai: Option<Snssai>,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// Answer to a change. TS 29.502 §6.1.6.2.5.
    #[derive(Default)]
    pub struct SmContextUpdatedData {
        pub up_cnx_state: Option<UpCnxState>,
        pub ho_state: Option<HoState>,
        pub n1_sm_msg: Option<RefToBinaryData>,
        pub n2_sm_info: Option<RefToBinaryData>,
        pub n2_sm_info_type: Option<N2SmInfoType>,
        pub data_forwarding: Option<bool>,
        pub cause: Option<SmCause>,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// End of a session, `POST /sm-contexts/{smContextRef}/release`. TS 29.502 §6.1.6.2.6.
    #[derive(Default)]
    pub struct SmContextReleaseData {
        pub cause: Option<SmCause>,
        pub ng_ap_cause: Option<NgApCause>,
        #[serde(rename = "5gMmCauseValue")]
        pub five_g_mm_cause_value: Option<u32>,
        pub ue_location: Option<UserLocation>,
        pub ue_time_zone: Option<ShortText>,
        pub n2_sm_info: Option<RefToBinaryData>,
        pub n2_sm_info_type: Option<N2SmInfoType>,
    }
    /// State of a session, sent to the AMF. TS 29.502 §6.1.6.2.8.
    pub struct SmContextStatusNotification {
        pub status_info: StatusInfo,
    }
    /// State of a resource with its reason. TS 29.502 §6.1.6.2.18.
    pub struct StatusInfo {
        pub resource_status: ResourceStatus,
        pub cause: Option<SmCause>,
        pub an_type: Option<AccessType>,
    }
    /// Refusal of a new session. TS 29.502 §6.1.6.2.19.
    pub struct SmContextCreateError {
        pub error: ProblemDetails,
        pub n1_sm_msg: Option<RefToBinaryData>,
        pub n2_sm_info: Option<RefToBinaryData>,
        pub n2_sm_info_type: Option<N2SmInfoType>,
        pub recovery_time: Option<DateTime>,
    }
    /// Refusal of a change. TS 29.502 §6.1.6.2.20.
    pub struct SmContextUpdateError {
        pub error: ProblemDetails,
        pub n1_sm_msg: Option<RefToBinaryData>,
        pub n2_sm_info: Option<RefToBinaryData>,
        pub n2_sm_info_type: Option<N2SmInfoType>,
        pub up_cnx_state: Option<UpCnxState>,
        pub recovery_time: Option<DateTime>,
    }
}
