//! Nudm_UEContextManagement: TS 29.503 §6.2.6.

use crate::common::{
    AccessType, BackupAmfInfo, DateTime, Dnn, Fqdn, Guami, IpAddr, NfInstanceId, NfSetId, Pei, PlmnId,
    RatType, SbiPduSessionId, ShortText, Snssai, Supi, SupportedFeatures, Uri,
};
use crate::json::{BoundedList, BoundedMap};
use crate::nnrf::ServiceName;

enumeration! {
    /// IMS voice over PS sessions in the area of a UE. TS 29.503 §6.2.6.3.3.
    pub enum ImsVoPs: extensible {
        HomogeneousSupport = "HOMOGENEOUS_SUPPORT",
        HomogeneousNonSupport = "HOMOGENEOUS_NON_SUPPORT",
        NonHomogeneousOrUnknown = "NON_HOMOGENEOUS_OR_UNKNOWN",
    }
    /// Reason for which a registration ends. TS 29.503 §6.2.6.3.4.
    pub enum DeregistrationReason: extensible {
        UeInitialRegistration = "UE_INITIAL_REGISTRATION",
        UeRegistrationAreaChange = "UE_REGISTRATION_AREA_CHANGE",
        SubscriptionWithdrawn = "SUBSCRIPTION_WITHDRAWN",
        FiveGsToEpsMobility = "5GS_TO_EPS_MOBILITY",
        FiveGsToEpsMobilityUeInitialRegistration = "5GS_TO_EPS_MOBILITY_UE_INITIAL_REGISTRATION",
        ReregistrationRequired = "REREGISTRATION_REQUIRED",
        SmfContextTransferred = "SMF_CONTEXT_TRANSFERRED",
        DuplicatePduSession = "DUPLICATE_PDU_SESSION",
        DisasterConditionTerminated = "DISASTER_CONDITION_TERMINATED",
    }
    /// Reason of an SMF's registration. TS 29.503 §6.2.6.3.6.
    pub enum RegistrationReason: extensible {
        SmfContextTransferred = "SMF_CONTEXT_TRANSFERRED",
    }
    /// Reachability of a UE. TS 29.503 §6.2.6.3.7.
    pub enum UeReachableInd: extensible {
        Reachable = "REACHABLE",
        NotReachable = "NOT_REACHABLE",
        NotKnown = "UNKNOWN",
    }
}

object! {
    /// AMF of a UE in 3GPP access, `PUT /{ueId}/registrations/amf-3gpp-access`. TS 29.503 §6.2.6.2.2.
    pub struct Amf3GppAccessRegistration {
        pub amf_instance_id: NfInstanceId,
        pub supported_features: Option<SupportedFeatures>,
        pub purge_flag: Option<bool>,
        pub pei: Option<Pei>,
        pub ims_vo_ps: Option<ImsVoPs>,
        pub dereg_callback_uri: Uri,
        pub amf_service_name_dereg: Option<ServiceName>,
        pub pcscf_restoration_callback_uri: Option<Uri>,
        pub amf_service_name_pcscf_rest: Option<ServiceName>,
        pub initial_registration_ind: Option<bool>,
        pub emergency_registration_ind: Option<bool>,
        pub guami: Guami,
        pub backup_amf_info: Option<BoundedList<BackupAmfInfo>>,
        pub dr_flag: Option<bool>,
        pub rat_type: RatType,
        pub urrp_indicator: Option<bool>,
        pub amf_ee_subscription_id: Option<Uri>,
        pub eps_interworking_info: Option<EpsInterworkingInfo>,
        pub ue_srvcc_capability: Option<bool>,
        pub registration_time: Option<DateTime>,
        pub no_ee_subscription_ind: Option<bool>,
        pub supi: Option<Supi>,
        pub ue_reachable_ind: Option<UeReachableInd>,
        pub re_registration_required: Option<bool>,
        pub admin_dereg_sub_withdrawn: Option<bool>,
        pub data_restoration_callback_uri: Option<Uri>,
        pub reset_ids: Option<BoundedList<ShortText>>,
        pub disaster_roaming_ind: Option<bool>,
    }
    /// AMF of a UE in an access that is not 3GPP's, `PUT …/amf-non-3gpp-access`. TS 29.503 §6.2.6.2.3.
    pub struct AmfNon3GppAccessRegistration {
        pub amf_instance_id: NfInstanceId,
        pub supported_features: Option<SupportedFeatures>,
        pub purge_flag: Option<bool>,
        pub pei: Option<Pei>,
        pub ims_vo_ps: ImsVoPs,
        pub dereg_callback_uri: Uri,
        pub amf_service_name_dereg: Option<ServiceName>,
        pub guami: Guami,
        pub backup_amf_info: Option<BoundedList<BackupAmfInfo>>,
        pub rat_type: RatType,
        pub registration_time: Option<DateTime>,
        pub supi: Option<Supi>,
    }
    /// SMF of a session, `PUT /{ueId}/registrations/smf-registrations/{pduSessionId}`. TS 29.503 §6.2.6.2.4.
    pub struct SmfRegistration {
        pub smf_instance_id: NfInstanceId,
        pub smf_set_id: Option<NfSetId>,
        pub supported_features: Option<SupportedFeatures>,
        pub pdu_session_id: SbiPduSessionId,
        pub single_nssai: Snssai,
        pub dnn: Option<Dnn>,
        pub emergency_services: Option<bool>,
        pub pcscf_restoration_callback_uri: Option<Uri>,
        pub plmn_id: PlmnId,
        pub pgw_fqdn: Option<Fqdn>,
        pub pgw_ip_addr: Option<IpAddr>,
        pub epdg_ind: Option<bool>,
        pub dereg_callback_uri: Option<Uri>,
        pub registration_reason: Option<RegistrationReason>,
        pub registration_time: Option<DateTime>,
        pub pcf_id: Option<NfInstanceId>,
        pub data_restoration_callback_uri: Option<Uri>,
        pub reset_ids: Option<BoundedList<ShortText>>,
    }
    /// End of a registration, sent to the AMF's or SMF's callback. TS 29.503 §6.2.6.2.5.
    pub struct DeregistrationData {
        pub dereg_reason: DeregistrationReason,
        pub access_type: Option<AccessType>,
        pub pdu_session_id: Option<SbiPduSessionId>,
        pub new_smf_instance_id: Option<NfInstanceId>,
    }
    /// Change of an AMF's registration, `PATCH …/amf-3gpp-access`; `purgeFlag` ends it. TS 29.503 §6.2.6.2.7.
    pub struct Amf3GppAccessRegistrationModification {
        pub guami: Guami,
        pub purge_flag: Option<bool>,
        pub pei: Option<Pei>,
        pub ims_vo_ps: Option<ImsVoPs>,
        pub backup_amf_info: Option<BoundedList<BackupAmfInfo, 0>>,
        pub ue_srvcc_capability: Option<bool>,
    }
    /// The same in an access that is not 3GPP's. TS 29.503 §6.2.6.2.8.
    pub struct AmfNon3GppAccessRegistrationModification {
        pub guami: Guami,
        pub purge_flag: Option<bool>,
        pub pei: Option<Pei>,
        pub ims_vo_ps: Option<ImsVoPs>,
        pub backup_amf_info: Option<BoundedList<BackupAmfInfo, 0>>,
    }
    /// Gateways of a UE's sessions by DNN. TS 29.503 §6.2.6.2.11.
    pub struct EpsInterworkingInfo {
        pub eps_iwk_pgws: Option<BoundedMap<Dnn, EpsIwkPgw>>,
    }
    /// Gateway of a DNN. TS 29.503 §6.2.6.2.12.
    pub struct EpsIwkPgw {
        pub pgw_fqdn: Fqdn,
        pub smf_instance_id: NfInstanceId,
        pub plmn_id: Option<PlmnId>,
    }
    /// SMFs of a UE's sessions, `GET …/smf-registrations`. TS 29.503 §6.2.6.2.15.
    pub struct SmfRegistrationInfo {
        pub smf_registration_list: BoundedList<SmfRegistration>,
    }
    /// Order to an AMF to deregister a UE. TS 29.503 §6.2.6.2.19.
    pub struct AmfDeregInfo {
        pub dereg_reason: DeregistrationReason,
    }
    /// Equipment of a UE, `POST …/amf-3gpp-access/pei-update`. TS 29.503 §6.2.6.2.24.
    pub struct PeiUpdateInfo {
        pub pei: Pei,
    }
}
