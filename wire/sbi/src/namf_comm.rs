//! Namf_Communication, the transfer of N1 and N2 messages: TS 29.518 §6.1.6. Binary parts are beside the JSON in `multipart/related`.

use crate::common::{
    AccessType, FiveQi, Guami, NfInstanceId, ProblemDetails, RefToBinaryData, SbiArp, SbiPduSessionId,
    ShortText, Snssai, SupportedFeatures, Tai, Uri,
};
use crate::json::BoundedList;

enumeration! {
    /// Kind of an N1 message. TS 29.518 §6.1.6.3.4.
    pub enum N1MessageClass: extensible {
        FiveGmm = "5GMM",
        Sm = "SM",
        Lpp = "LPP",
        Sms = "SMS",
        Updp = "UPDP",
        Lcs = "LCS",
    }
    /// Kind of N2 information. TS 29.518 §6.1.6.3.5.
    pub enum N2InformationClass: extensible {
        Sm = "SM",
        Nrppa = "NRPPa",
        Pws = "PWS",
        PwsBcal = "PWS-BCAL",
        PwsRf = "PWS-RF",
        Ran = "RAN",
        V2x = "V2X",
        Prose = "PROSE",
    }
    /// Kind of a part with an information element of NGAP. TS 29.518 §6.1.6.3.9.
    pub enum NgapIeType: extensible {
        PduResSetupReq = "PDU_RES_SETUP_REQ",
        PduResRelCmd = "PDU_RES_REL_CMD",
        PduResModReq = "PDU_RES_MOD_REQ",
        HandoverCmd = "HANDOVER_CMD",
        HandoverRequired = "HANDOVER_REQUIRED",
        HandoverPrepFail = "HANDOVER_PREP_FAIL",
        NrppaPdu = "NRPPA_PDU",
        SecondaryRatUsage = "SECONDARY_RAT_USAGE",
    }
    /// Outcome of a transfer. TS 29.518 §6.1.6.3.12.
    pub enum N1N2MessageTransferCause: extensible {
        AttemptingToReachUe = "ATTEMPTING_TO_REACH_UE",
        TransferInitiated = "N1_N2_TRANSFER_INITIATED",
        WaitingForAsynchronousTransfer = "WAITING_FOR_ASYNCHRONOUS_TRANSFER",
        UeNotResponding = "UE_NOT_RESPONDING",
        N1MsgNotTransferred = "N1_MSG_NOT_TRANSFERRED",
        N2MsgNotTransferred = "N2_MSG_NOT_TRANSFERRED",
        UeNotReachableForSession = "UE_NOT_REACHABLE_FOR_SESSION",
        TemporaryRejectRegistrationOngoing = "TEMPORARY_REJECT_REGISTRATION_ONGOING",
        TemporaryRejectHandoverOngoing = "TEMPORARY_REJECT_HANDOVER_ONGOING",
        RejectionDueToPagingRestriction = "REJECTION_DUE_TO_PAGING_RESTRICTION",
        AnNotResponding = "AN_NOT_RESPONDING",
        FailureCauseUnspecified = "FAILURE_CAUSE_UNSPECIFIED",
    }
}

object! {
    /// Messages for a UE and its gNB, `POST /ue-contexts/{ueContextId}/n1-n2-messages`. TS 29.518 §6.1.6.2.18.
    #[derive(Default)]
    pub struct N1N2MessageTransferReqData {
        pub n1_message_container: Option<N1MessageContainer>,
        pub n2_info_container: Option<N2InfoContainer>,
        pub skip_ind: Option<bool>,
        pub last_msg_indication: Option<bool>,
        pub pdu_session_id: Option<SbiPduSessionId>,
        pub lcs_correlation_id: Option<ShortText>,
        /// Paging policy indicator.
        pub ppi: Option<u8>,
        pub arp: Option<SbiArp>,
        #[serde(rename = "5qi")]
        pub five_qi: Option<FiveQi>,
        #[serde(rename = "n1n2FailureTxfNotifURI")]
        pub n1n2_failure_txf_notif_uri: Option<Uri>,
        pub smf_reallocation_ind: Option<bool>,
        pub area_of_validity: Option<AreaOfValidity>,
        pub supported_features: Option<SupportedFeatures>,
        pub old_guami: Option<Guami>,
        pub ext_buf_support: Option<bool>,
        pub target_access: Option<AccessType>,
        pub nf_id: Option<NfInstanceId>,
    }
    /// Outcome of a transfer. TS 29.518 §6.1.6.2.19.
    pub struct N1N2MessageTransferRspData {
        pub cause: N1N2MessageTransferCause,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// Areas in which the N2 information applies. TS 29.518 §6.1.6.2.20.
    pub struct AreaOfValidity {
        pub tai_list: BoundedList<Tai, 0>,
    }
    /// N1 message. TS 29.518 §6.1.6.2.17.
    pub struct N1MessageContainer {
        pub n1_message_class: N1MessageClass,
        pub n1_message_content: RefToBinaryData,
        pub nf_id: Option<NfInstanceId>,
        pub service_instance_id: Option<ShortText>,
    }
    /// N2 information. TS 29.518 §6.1.6.2.15.
    pub struct N2InfoContainer {
        pub n2_information_class: N2InformationClass,
        pub sm_info: Option<N2SmInformation>,
    }
    /// N2 information of a session. TS 29.518 §6.1.6.2.26.
    pub struct N2SmInformation {
        pub pdu_session_id: SbiPduSessionId,
        pub n2_info_content: Option<N2InfoContent>,
        pub s_nssai: Option<Snssai>,
        pub subject_to_ho: Option<bool>,
    }
    /// Information element of NGAP, in a part. TS 29.518 §6.1.6.2.27.
    pub struct N2InfoContent {
        pub ngap_message_type: Option<u32>,
        pub ngap_ie_type: Option<NgapIeType>,
        pub ngap_data: RefToBinaryData,
    }
    /// Transfer that failed after its answer, sent to the sender. TS 29.518 §6.1.6.2.30.
    pub struct N1N2MsgTxfrFailureNotification {
        pub cause: N1N2MessageTransferCause,
        pub n1n2_msg_data_uri: Uri,
    }
    /// Refusal of a transfer. TS 29.518 §6.1.6.2.31.
    pub struct N1N2MessageTransferError {
        pub error: ProblemDetails,
        pub err_info: Option<N1N2MsgTxfrErrDetail>,
    }
    /// Wait until a transfer may be tried again. TS 29.518 §6.1.6.2.32.
    pub struct N1N2MsgTxfrErrDetail {
        /// Number of seconds.
        pub retry_after: Option<u32>,
        pub highest_prio_arp: Option<SbiArp>,
        /// Number of seconds.
        pub max_waiting_time: Option<u32>,
    }
}
