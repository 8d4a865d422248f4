//! Nchf_ConvergedCharging: TS 32.291 §6.1.6.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::common::{
    AmfId, DateTime, Dnn, Fqdn, Gpsi, Ipv6Prefix, NfInstanceId, PduSessionType, Pei, PlmnId, PresenceInfo,
    ProblemDetails, RatType, SbiAmbr, SbiPduSessionId, ShortText, Snssai, SscMode, SubscribedDefaultQos,
    Supi, SupportedFeatures, Uri, UserLocation,
};
use crate::json::{BoundedList, BoundedMap};
use crate::npcf_sm::{AuthorizedDefaultQos, DnnSelectionMode, FlowDescription, QosData};
use crate::nudm_sdm::ChargingCharacteristics;

enumeration! {
    /// Node that asks for charging. TS 32.291 §6.1.6.3.6.
    pub enum NodeFunctionality: extensible {
        Amf = "AMF",
        Smf = "SMF",
        Smsf = "SMSF",
        PgwCSmf = "PGW_C_SMF",
        ISmf = "I_SMF",
        VSmf = "V_SMF",
        Nef = "NEF",
        Pcf = "PCF",
        Udm = "UDM",
        Upf = "UPF",
    }
    /// Event at which usage is reported. TS 32.291 §6.1.6.3.5.
    pub enum TriggerType: extensible {
        QuotaThreshold = "QUOTA_THRESHOLD",
        Qht = "QHT",
        Final = "FINAL",
        QuotaExhausted = "QUOTA_EXHAUSTED",
        ValidityTime = "VALIDITY_TIME",
        OtherQuotaType = "OTHER_QUOTA_TYPE",
        ForcedReauthorisation = "FORCED_REAUTHORISATION",
        UnusedQuotaTimer = "UNUSED_QUOTA_TIMER",
        UnitCountInactivityTimer = "UNIT_COUNT_INACTIVITY_TIMER",
        AbnormalRelease = "ABNORMAL_RELEASE",
        QosChange = "QOS_CHANGE",
        VolumeLimit = "VOLUME_LIMIT",
        TimeLimit = "TIME_LIMIT",
        EventLimit = "EVENT_LIMIT",
        PlmnChange = "PLMN_CHANGE",
        UserLocationChange = "USER_LOCATION_CHANGE",
        RatChange = "RAT_CHANGE",
        SessionAmbrChange = "SESSION_AMBR_CHANGE",
        UeTimezoneChange = "UE_TIMEZONE_CHANGE",
        TariffTimeChange = "TARIFF_TIME_CHANGE",
        MaxNumberOfChangesInChargingConditions = "MAX_NUMBER_OF_CHANGES_IN_CHARGING_CONDITIONS",
        ManagementIntervention = "MANAGEMENT_INTERVENTION",
        ServingNodeChange = "SERVING_NODE_CHANGE",
        RemovalOfUpf = "REMOVAL_OF_UPF",
        AdditionOfUpf = "ADDITION_OF_UPF",
        StartOfServiceDataFlow = "START_OF_SERVICE_DATA_FLOW",
        TaiChange = "TAI_CHANGE",
        HandoverCancel = "HANDOVER_CANCEL",
        HandoverStart = "HANDOVER_START",
        HandoverComplete = "HANDOVER_COMPLETE",
        GfbrGuaranteedStatusChange = "GFBR_GUARANTEED_STATUS_CHANGE",
    }
    /// Time of a report. TS 32.291 §6.1.6.3.4.
    pub enum TriggerCategory: extensible {
        ImmediateReport = "IMMEDIATE_REPORT",
        DeferredReport = "DEFERRED_REPORT",
    }
    /// Kind of charging of a container. TS 32.291 §6.1.6.3.8.
    pub enum QuotaManagementIndicator: extensible {
        OnlineCharging = "ONLINE_CHARGING",
        OfflineCharging = "OFFLINE_CHARGING",
        QuotaManagementSuspended = "QUOTA_MANAGEMENT_SUSPENDED",
    }
    /// Outcome of a rating group. TS 32.291 §6.1.6.3.14.
    pub enum ChargingResultCode: extensible {
        Success = "SUCCESS",
        EndUserServiceDenied = "END_USER_SERVICE_DENIED",
        QuotaManagementNotApplicable = "QUOTA_MANAGEMENT_NOT_APPLICABLE",
        QuotaLimitReached = "QUOTA_LIMIT_REACHED",
        EndUserServiceRejected = "END_USER_SERVICE_REJECTED",
        UserUnknown = "USER_UNKNOWN",
        RatingFailed = "RATING_FAILED",
        QuotaManagement = "QUOTA_MANAGEMENT",
    }
    /// Treatment of a session whose CHF fails. TS 32.291 §6.1.6.3.10.
    pub enum FailureHandling: extensible {
        Terminate = "TERMINATE",
        Continue = "CONTINUE",
        RetryAndTerminate = "RETRY_AND_TERMINATE",
    }
    /// Treatment of traffic after the last quota. TS 32.291 §6.1.6.3.9.
    pub enum FinalUnitAction: extensible {
        Terminate = "TERMINATE",
        Redirect = "REDIRECT",
        RestrictAccess = "RESTRICT_ACCESS",
    }
    /// Order of a CHF. TS 32.291 §6.1.6.3.2.
    pub enum ChargingNotificationType: extensible {
        Reauthorization = "REAUTHORIZATION",
        AbortCharging = "ABORT_CHARGING",
    }
    /// Use of another CHF. TS 32.291 §6.1.6.3.11.
    pub enum SessionFailover: extensible {
        NotSupported = "FAILOVER_NOT_SUPPORTED",
        Supported = "FAILOVER_SUPPORTED",
    }
    /// Source of the charging characteristics. TS 32.291 §6.1.6.3.16.
    pub enum ChargingCharacteristicsSelectionMode: extensible {
        HomeDefault = "HOME_DEFAULT",
        RoamingDefault = "ROAMING_DEFAULT",
        VisitingDefault = "VISITING_DEFAULT",
    }
    /// Roaming of a subscriber. TS 32.291 §6.1.6.3.19.
    pub enum RoamerInOut: extensible {
        InBound = "IN_BOUND",
        OutBound = "OUT_BOUND",
    }
}

/// Rating groups in a request: those of a session's rules.
pub const RATING_GROUPS_MAX: usize = 64;

object! {
    /// Begin, update and end of charging, `POST /chargingdata`, `…/update`, `…/release`. TS 32.291 §6.1.6.2.1.1.
    pub struct ChargingDataRequest {
        pub subscriber_identifier: Option<Supi>,
        pub charging_id: Option<u32>,
        pub nf_consumer_identification: NfIdentification,
        pub invocation_time_stamp: DateTime,
        pub invocation_sequence_number: u32,
        pub retransmission_indicator: Option<bool>,
        pub one_time_event: Option<bool>,
        pub notify_uri: Option<Uri>,
        pub supported_features: Option<SupportedFeatures>,
        pub service_specification_info: Option<ShortText>,
        pub multiple_unit_usage: Option<BoundedList<MultipleUnitUsage, 0, RATING_GROUPS_MAX>>,
        pub triggers: Option<BoundedList<ChargingTrigger, 0>>,
        #[serde(rename = "pDUSessionChargingInformation")]
        pub pdu_session_charging_information: Option<PduSessionChargingInformation>,
    }
    /// Quotas of a CHF. TS 32.291 §6.1.6.2.1.2.
    pub struct ChargingDataResponse {
        pub invocation_time_stamp: DateTime,
        pub invocation_sequence_number: u32,
        pub invocation_result: Option<InvocationResult>,
        pub session_failover: Option<SessionFailover>,
        pub supported_features: Option<SupportedFeatures>,
        pub multiple_unit_information: Option<BoundedList<MultipleUnitInformation, 0, RATING_GROUPS_MAX>>,
        pub triggers: Option<BoundedList<ChargingTrigger, 0>>,
        #[serde(rename = "pDUSessionChargingInformation")]
        pub pdu_session_charging_information: Option<PduSessionChargingInformation>,
    }
    /// Order of a CHF, sent to `notifyUri`. TS 32.291 §6.1.6.2.1.3.
    pub struct ChargingNotifyRequest {
        pub notification_type: ChargingNotificationType,
        pub reauthorization_details: Option<BoundedList<ReauthorizationDetails, 0>>,
    }
    /// Answer to an order of a CHF. TS 32.291 §6.1.6.2.1.14.
    pub struct ChargingNotifyResponse {
        pub invocation_result: Option<InvocationResult>,
    }
    /// Usage of a rating group. TS 32.291 §6.1.6.2.1.5.
    pub struct MultipleUnitUsage {
        pub rating_group: u32,
        pub requested_unit: Option<RequestedUnit>,
        pub used_unit_container: Option<BoundedList<UsedUnitContainer, 0>>,
        #[serde(rename = "uPFID")]
        pub upf_id: Option<NfInstanceId>,
    }
    /// Failure of a CHF, and what to do. TS 32.291 §6.1.6.2.1.10.
    pub struct InvocationResult {
        pub error: Option<ProblemDetails>,
        pub failure_handling: Option<FailureHandling>,
    }
    /// Event with its limit. TS 32.291 §6.1.6.2.1.11.
    pub struct ChargingTrigger {
        pub trigger_type: Option<TriggerType>,
        /// Deviation: may be missing, as in answers of free5GC.
        pub trigger_category: Option<TriggerCategory>,
        /// Number of seconds.
        pub time_limit: Option<u32>,
        pub volume_limit: Option<u32>,
        pub volume_limit64: Option<u64>,
        pub event_limit: Option<u32>,
        pub max_number_ofccc: Option<u32>,
        pub tariff_time_change: Option<DateTime>,
    }
    /// Quota of a rating group. TS 32.291 §6.1.6.2.1.6.
    pub struct MultipleUnitInformation {
        pub result_code: Option<ChargingResultCode>,
        pub rating_group: u32,
        pub granted_unit: Option<GrantedUnit>,
        pub triggers: Option<BoundedList<ChargingTrigger, 0>>,
        /// Seconds, as the next member.
        pub validity_time: Option<u32>,
        pub quota_holding_time: Option<u32>,
        pub final_unit_indication: Option<FinalUnitIndication>,
        pub time_quota_threshold: Option<u32>,
        pub volume_quota_threshold: Option<u64>,
        pub unit_quota_threshold: Option<u32>,
        #[serde(rename = "uPFID")]
        pub upf_id: Option<NfInstanceId>,
    }
    /// Quota that is asked for; without members, the CHF chooses. TS 32.291 §6.1.6.2.1.7.
    #[derive(Copy, Default)]
    pub struct RequestedUnit {
        pub time: Option<u32>,
        pub total_volume: Option<u64>,
        pub uplink_volume: Option<u64>,
        pub downlink_volume: Option<u64>,
        pub service_specific_units: Option<u64>,
    }
    /// Usage since the last report. TS 32.291 §6.1.6.2.1.8.
    pub struct UsedUnitContainer {
        pub service_id: Option<u32>,
        pub quota_management_indicator: Option<QuotaManagementIndicator>,
        pub triggers: Option<BoundedList<ChargingTrigger, 0>>,
        pub trigger_timestamp: Option<DateTime>,
        pub time: Option<u32>,
        pub total_volume: Option<u64>,
        pub uplink_volume: Option<u64>,
        pub downlink_volume: Option<u64>,
        pub service_specific_units: Option<u64>,
        pub event_time_stamps: Option<BoundedList<DateTime, 0>>,
        pub local_sequence_number: u32,
        #[serde(rename = "pDUContainerInformation")]
        pub pdu_container_information: Option<PduContainerInformation>,
    }
    /// Quota that is granted. TS 32.291 §6.1.6.2.1.9.
    #[derive(Copy, Default)]
    pub struct GrantedUnit {
        pub tariff_time_change: Option<DateTime>,
        pub time: Option<u32>,
        pub total_volume: Option<u64>,
        pub uplink_volume: Option<u64>,
        pub downlink_volume: Option<u64>,
        pub service_specific_units: Option<u64>,
    }
    /// Treatment of traffic after this quota. TS 32.291 §6.1.6.2.1.12.
    pub struct FinalUnitIndication {
        /// Deviation: may be missing or empty, as in answers of free5GC.
        pub final_unit_action: Option<FinalUnitAction>,
        pub restriction_filter_rule: Option<FlowDescription>,
        pub restriction_filter_rule_list: Option<BoundedList<FlowDescription, 0>>,
        pub filter_id: Option<ShortText>,
        pub filter_id_list: Option<BoundedList<ShortText, 0>>,
        pub redirect_server: Option<RedirectServer>,
    }
    /// Server to which traffic is redirected. TS 32.291 §6.1.6.2.1.13.
    pub struct RedirectServer {
        pub redirect_address_type: ChargingRedirectAddressType,
        pub redirect_server_address: Uri,
    }
    /// Rating groups that are authorised again. TS 32.291 §6.1.6.2.1.15.
    pub struct ReauthorizationDetails {
        pub service_id: Option<u32>,
        pub rating_group: Option<u32>,
        pub quota_management_indicator: Option<QuotaManagementIndicator>,
    }
    /// Identity of a node. TS 32.291 §6.1.6.2.1.4.
    pub struct NfIdentification {
        /// Deviation: any text, since free5GC's SMF writes no instance identity.
        #[serde(rename = "nFName")]
        pub nf_name: Option<ShortText>,
        #[serde(rename = "nFIPv4Address")]
        pub nf_ipv4_address: Option<Ipv4Addr>,
        #[serde(rename = "nFIPv6Address")]
        pub nf_ipv6_address: Option<Ipv6Addr>,
        #[serde(rename = "nFPLMNID")]
        pub nf_plmn_id: Option<PlmnId>,
        pub node_functionality: NodeFunctionality,
        #[serde(rename = "nFFqdn")]
        pub nf_fqdn: Option<Fqdn>,
    }
    /// Charging of a PDU session. TS 32.291 §6.1.6.2.2.1.
    #[derive(Default)]
    pub struct PduSessionChargingInformation {
        pub charging_id: Option<u32>,
        #[serde(rename = "sMFchargingId")]
        pub smf_charging_id: Option<ShortText>,
        pub user_information: Option<ChargedUser>,
        #[serde(rename = "userLocationinfo")]
        pub user_location_info: Option<UserLocation>,
        pub presence_reporting_area_information: Option<BoundedMap<ShortText, PresenceInfo>>,
        #[serde(rename = "uetimeZone")]
        pub ue_time_zone: Option<ShortText>,
        pub pdu_session_information: Option<PduSessionInformation>,
        /// Number of seconds.
        pub unit_count_inactivity_timer: Option<u32>,
    }
    /// Subscriber of a session, `UserInformation`. TS 32.291 §6.1.6.2.2.2.
    pub struct ChargedUser {
        #[serde(rename = "servedGPSI")]
        pub served_gpsi: Option<Gpsi>,
        #[serde(rename = "servedPEI")]
        pub served_pei: Option<Pei>,
        pub unauthenticated_flag: Option<bool>,
        pub roamer_in_out: Option<RoamerInOut>,
    }
    /// PDU session. TS 32.291 §6.1.6.2.2.3.
    pub struct PduSessionInformation {
        pub network_slicing_info: Option<NetworkSlicingInfo>,
        #[serde(rename = "pduSessionID")]
        pub pdu_session_id: SbiPduSessionId,
        pub pdu_type: Option<PduSessionType>,
        pub ssc_mode: Option<SscMode>,
        pub h_plmn_id: Option<PlmnId>,
        #[serde(rename = "servingNetworkFunctionID")]
        pub serving_network_function_id: Option<ServingNetworkFunctionId>,
        pub rat_type: Option<RatType>,
        pub dnn_id: Dnn,
        pub dnn_selection_mode: Option<DnnSelectionMode>,
        pub charging_characteristics: Option<ChargingCharacteristics>,
        pub charging_characteristics_selection_mode: Option<ChargingCharacteristicsSelectionMode>,
        pub start_time: Option<DateTime>,
        pub stop_time: Option<DateTime>,
        pub session_stop_indicator: Option<bool>,
        pub pdu_address: Option<PduAddress>,
        /// Reason for the end.
        pub diagnostics: Option<u32>,
        #[serde(rename = "authorizedQoSInformation")]
        pub authorized_qos_information: Option<AuthorizedDefaultQos>,
        #[serde(rename = "subscribedQoSInformation")]
        pub subscribed_qos_information: Option<SubscribedDefaultQos>,
        #[serde(rename = "authorizedSessionAMBR")]
        pub authorized_session_ambr: Option<SbiAmbr>,
        #[serde(rename = "subscribedSessionAMBR")]
        pub subscribed_session_ambr: Option<SbiAmbr>,
        #[serde(rename = "servingCNPlmnId")]
        pub serving_cn_plmn_id: Option<PlmnId>,
    }
    /// Slice of a session. TS 32.291 §6.1.6.2.2.4.
    #[derive(Copy)]
    pub struct NetworkSlicingInfo {
        #[serde(rename = "sNSSAI")]
        pub s_nssai: Snssai,
    }
    /// AMF or another node that serves a session. TS 32.291 §6.1.6.2.2.6.
    pub struct ServingNetworkFunctionId {
        pub serving_network_function_information: NfIdentification,
        #[serde(rename = "aMFId")]
        pub amf_id: Option<AmfId>,
    }
    /// Addresses of a session. TS 32.291 §6.1.6.2.2.5.
    #[derive(Default)]
    pub struct PduAddress {
        #[serde(rename = "pduIPv4Address")]
        pub pdu_ipv4_address: Option<Ipv4Addr>,
        #[serde(rename = "pduIPv6AddresswithPrefix")]
        pub pdu_ipv6_address_with_prefix: Option<Ipv6AddressWithPrefix>,
        #[serde(rename = "pduAddressprefixlength")]
        pub pdu_address_prefix_length: Option<u8>,
        #[serde(rename = "iPv4dynamicAddressFlag")]
        pub ipv4_dynamic_address_flag: Option<bool>,
        #[serde(rename = "iPv6dynamicPrefixFlag")]
        pub ipv6_dynamic_prefix_flag: Option<bool>,
        pub add_ipv6_addr_prefixes: Option<Ipv6Prefix>,
    }
    /// Circumstances of a container's usage. TS 32.291 §6.1.6.2.2.7.
    #[derive(Default)]
    pub struct PduContainerInformation {
        #[serde(rename = "timeofFirstUsage")]
        pub time_of_first_usage: Option<DateTime>,
        #[serde(rename = "timeofLastUsage")]
        pub time_of_last_usage: Option<DateTime>,
        #[serde(rename = "qoSInformation")]
        pub qos_information: Option<QosData>,
        pub af_charging_identifier: Option<u32>,
        pub user_location_information: Option<UserLocation>,
        #[serde(rename = "uetimeZone")]
        pub ue_time_zone: Option<ShortText>,
        #[serde(rename = "rATType")]
        pub rat_type: Option<RatType>,
        #[serde(rename = "servingNodeID")]
        pub serving_node_id: Option<BoundedList<ServingNetworkFunctionId, 0>>,
        pub presence_reporting_area_information: Option<BoundedMap<ShortText, PresenceInfo>>,
        pub sponsor_identity: Option<ShortText>,
        pub charging_rule_base_name: Option<ShortText>,
    }
}

text! {
    /// IPv6 address, with a prefix length or without. TS 32.291 §6.1.6.2.2.5.
    pub struct Ipv6AddressWithPrefix(43, |t| {
        t.split('/').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
            && t.split_once('/').is_none_or(|(_, length)| length.parse::<u8>().is_ok_and(|n| n <= 128))
    }, "an IPv6 address such as 2001:db8::1");
}

enumeration! {
    /// Kind of a redirection's address. TS 32.291 §6.1.6.3.15.
    pub enum ChargingRedirectAddressType: extensible {
        Ipv4 = "IPV4",
        Ipv6 = "IPV6",
        Url = "URL",
        Uri = "URI",
    }
}
