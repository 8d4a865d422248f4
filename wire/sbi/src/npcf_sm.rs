//! Npcf_SMPolicyControl: TS 29.512 §5.6.

use core::net::Ipv4Addr;

use crate::common::{
    AccessType, DateTime, Dnai, Dnn, FiveQi, FiveQiPriorityLevel, Gpsi, GroupId, Guami, InvalidParam,
    Ipv4AddrMask, Ipv6Prefix, NfInstanceId, NfSetId, PduSessionType, Pei, PlmnIdNid, PresenceInfo,
    ProblemDetails, RatType, SbiAmbr, SbiArp, SbiBitRate, SbiPduSessionId, ShortText, Snssai,
    SubscribedDefaultQos, Supi, SupportedFeatures, Uri, UserLocation,
};
use crate::json::{BoundedList, BoundedMap};
use crate::nudm_sdm::ChargingCharacteristics;

ranged! {
    /// Averaging window in milliseconds. TS 29.571 §5.5.2.
    pub struct AverWindow(u16) in 1..=4095;
    /// Maximum data burst volume in octets. TS 29.571 §5.5.2.
    pub struct MaxDataBurstVol(u16) in 1..=4095;
    /// Packet loss in tenths of a percent. TS 29.571 §5.5.2.
    pub struct PacketLossRate(u16) in 0..=1000;
}

text! {
    /// Packet filter in the form of an IPFilterRule (RFC 6733 §4.3.1, TS 29.214 §5.3.8). TS 29.514 §5.6.3.2.
    pub struct FlowDescription(1024, |t| t.bytes().all(|c| c.is_ascii_graphic() || c == b' '), "a packet filter such as permit out ip from any to assigned");
    /// Packet error rate, as `1E-6`. TS 29.571 §5.5.2.
    pub struct PacketErrRate(4, |t| {
        matches!(t.as_bytes(), [a, b'E', b'-', b] if a.is_ascii_digit() && b.is_ascii_digit())
    }, "a packet error rate such as 1E-6");
}

enumeration! {
    /// Event at which an SMF reports to the PCF. TS 29.512 §5.6.3.6.
    pub enum PolicyControlRequestTrigger: extensible {
        PlmnCh = "PLMN_CH",
        ResMoRe = "RES_MO_RE",
        AcTyCh = "AC_TY_CH",
        UeIpCh = "UE_IP_CH",
        AnChCor = "AN_CH_COR",
        UsRe = "US_RE",
        AppSta = "APP_STA",
        AppSto = "APP_STO",
        AnInfo = "AN_INFO",
        CmSesFail = "CM_SES_FAIL",
        PsDaOff = "PS_DA_OFF",
        DefQosCh = "DEF_QOS_CH",
        SeAmbrCh = "SE_AMBR_CH",
        QosNotif = "QOS_NOTIF",
        NoCredit = "NO_CREDIT",
        ReallocOfCredit = "REALLO_OF_CREDIT",
        PraCh = "PRA_CH",
        SareaCh = "SAREA_CH",
        ScnnCh = "SCNN_CH",
        ReTimeout = "RE_TIMEOUT",
        ResRelease = "RES_RELEASE",
        SuccResAllo = "SUCC_RES_ALLO",
        RatTyCh = "RAT_TY_CH",
        RefQosIndCh = "REF_QOS_IND_CH",
        NumOfPacketFilter = "NUM_OF_PACKET_FILTER",
        UeStatusResume = "UE_STATUS_RESUME",
        UeTzCh = "UE_TZ_CH",
        ScellCh = "SCELL_CH",
        UserLocationCh = "USER_LOCATION_CH",
        SuccQosUpdate = "SUCC_QOS_UPDATE",
    }
    /// State of a rule. TS 29.512 §5.6.3.8.
    pub enum RuleStatus: extensible {
        Active = "ACTIVE",
        Inactive = "INACTIVE",
    }
    /// Reason for which a rule is not in force. TS 29.512 §5.6.3.9.
    pub enum RuleFailureCode: extensible {
        UnkRuleId = "UNK_RULE_ID",
        RaGrErr = "RA_GR_ERR",
        SerIdErr = "SER_ID_ERR",
        NfMal = "NF_MAL",
        ResLim = "RES_LIM",
        MaxNrQosFlow = "MAX_NR_QoS_FLOW",
        MissFlowInfo = "MISS_FLOW_INFO",
        ResAlloFail = "RES_ALLO_FAIL",
        UnsuccQosVal = "UNSUCC_QOS_VAL",
        IncorFlowInfo = "INCOR_FLOW_INFO",
        AppIdErr = "APP_ID_ERR",
        NoQosFlowBound = "NO_QOS_FLOW_BOUND",
        FilterRes = "FILTER_RES",
        UnknownRefId = "UNKNOWN_REF_ID",
        IncorrectCondData = "INCORRECT_COND_DATA",
        RefIdCollision = "REF_ID_COLLISION",
    }
    /// Failure that a report is about. TS 29.512 §5.6.3.15.
    pub enum FailureCause: extensible {
        PccRuleEvent = "PCC_RULE_EVENT",
        PccQosFlowEvent = "PCC_QOS_FLOW_EVENT",
        RulePermanentError = "RULE_PERMANENT_ERROR",
        RuleTemporaryError = "RULE_TEMPORARY_ERROR",
        PolDecError = "POL_DEC_ERROR",
    }
    /// Direction of a packet filter. TS 29.512 §5.6.3.3.
    pub enum FlowDirection: extensible {
        Downlink = "DOWNLINK",
        Uplink = "UPLINK",
        Bidirectional = "BIDIRECTIONAL",
        Unspecified = "UNSPECIFIED",
    }
    /// Gate of a flow. TS 29.514 §5.6.3.12.
    pub enum FlowStatus: extensible {
        EnabledUplink = "ENABLED-UPLINK",
        EnabledDownlink = "ENABLED-DOWNLINK",
        Enabled = "ENABLED",
        Disabled = "DISABLED",
        Removed = "REMOVED",
    }
    /// Quantity that is charged. TS 29.512 §5.6.3.5.
    pub enum MeteringMethod: extensible {
        Duration = "DURATION",
        Volume = "VOLUME",
        DurationVolume = "DURATION_VOLUME",
        Event = "EVENT",
    }
    /// Grouping of usage in reports. TS 29.512 §5.6.3.4.
    pub enum ReportingLevel: extensible {
        SerIdLevel = "SER_ID_LEVEL",
        RatGrLevel = "RAT_GR_LEVEL",
        SponConLevel = "SPON_CON_LEVEL",
    }
    /// Kind of a redirection's address. TS 29.512 §5.6.3.12.
    pub enum RedirectAddressType: extensible {
        Ipv4Addr = "IPV4_ADDR",
        Ipv6Addr = "IPV6_ADDR",
        Url = "URL",
        SipUri = "SIP_URI",
    }
    /// Reason for which a PCF ends an association. TS 29.512 §5.6.3.23.
    pub enum SmPolicyAssociationReleaseCause: extensible {
        Unspecified = "UNSPECIFIED",
        UeSubscription = "UE_SUBSCRIPTION",
        InsufficientRes = "INSUFFICIENT_RES",
        ValidationConditionNotMet = "VALIDATION_CONDITION_NOT_MET",
        ReactivationRequested = "REACTIVATION_REQUESTED",
    }
    /// Reason for which a session ended. TS 29.512 §5.6.3.24.
    pub enum PduSessionRelCause: extensible {
        PsToCsHo = "PS_TO_CS_HO",
        RuleError = "RULE_ERROR",
    }
    /// State of a QoS flow's guarantee. TS 29.514 §5.6.3.9.
    pub enum QosNotifType: extensible {
        Guaranteed = "GUARANTEED",
        NotGuaranteed = "NOT_GUARANTEED",
    }
    /// Selection of the data network. TS 29.502 §6.1.6.3.17.
    pub enum DnnSelectionMode: extensible {
        Verified = "VERIFIED",
        UeDnnNotVerified = "UE_DNN_NOT_VERIFIED",
        NwDnnNotVerified = "NW_DNN_NOT_VERIFIED",
    }
}

object! {
    /// Policy with its context, `GET /sm-policies/{smPolicyId}`. TS 29.512 §5.6.2.2.
    pub struct SmPolicyControl {
        pub context: SmPolicyContextData,
        pub policy: SmPolicyDecision,
    }
    /// Session for which a policy is asked, `POST /sm-policies`. TS 29.512 §5.6.2.3.
    pub struct SmPolicyContextData {
        pub acc_net_ch_id: Option<AccNetChId>,
        pub gpsi: Option<Gpsi>,
        pub supi: Supi,
        pub inter_grp_ids: Option<BoundedList<GroupId, 0>>,
        pub pdu_session_id: SbiPduSessionId,
        pub pdu_session_type: PduSessionType,
        #[serde(rename = "chargingcharacteristics")]
        pub charging_characteristics: Option<ChargingCharacteristics>,
        pub dnn: Dnn,
        pub dnn_sel_mode: Option<DnnSelectionMode>,
        pub notification_uri: Uri,
        pub access_type: Option<AccessType>,
        pub rat_type: Option<RatType>,
        pub serving_network: Option<PlmnIdNid>,
        pub user_location_info: Option<UserLocation>,
        pub ue_time_zone: Option<ShortText>,
        pub pei: Option<Pei>,
        pub ipv4_address: Option<Ipv4Addr>,
        pub ipv6_address_prefix: Option<Ipv6Prefix>,
        pub ip_domain: Option<ShortText>,
        pub subs_sess_ambr: Option<SbiAmbr>,
        pub auth_prof_index: Option<ShortText>,
        pub subs_def_qos: Option<SubscribedDefaultQos>,
        pub num_of_pack_filter: Option<u32>,
        pub online: Option<bool>,
        pub offline: Option<bool>,
        #[serde(rename = "3gppPsDataOffStatus")]
        pub ps_data_off_status: Option<bool>,
        pub ref_qos_indication: Option<bool>,
        pub slice_info: Snssai,
        pub serv_nf_id: Option<ServingNfIdentity>,
        pub supp_feat: Option<SupportedFeatures>,
        pub smf_id: Option<NfInstanceId>,
        pub recovery_time: Option<DateTime>,
        pub ipv4_frame_route_list: Option<BoundedList<Ipv4AddrMask, 0>>,
        pub ipv6_frame_route_list: Option<BoundedList<Ipv6Prefix, 0>>,
    }
    /// Policy of a session. In an update, null in a map removes the entry. TS 29.512 §5.6.2.4.
    #[derive(Default)]
    pub struct SmPolicyDecision {
        pub sess_rules: Option<BoundedMap<ShortText, Option<SessionRule>>>,
        pub pcc_rules: Option<BoundedMap<ShortText, Option<PccRule>>>,
        pub pcscf_rest_indication: Option<bool>,
        pub qos_decs: Option<BoundedMap<ShortText, Option<QosData>>>,
        pub chg_decs: Option<BoundedMap<ShortText, Option<ChargingData>>>,
        pub charging_info: Option<ChargingInformation>,
        pub traff_cont_decs: Option<BoundedMap<ShortText, Option<TrafficControlData>>>,
        pub um_decs: Option<BoundedMap<ShortText, Option<UsageMonitoringData>>>,
        pub qos_chars: Option<BoundedMap<ShortText, Option<QosCharacteristics>>>,
        /// Number of seconds.
        #[serde(rename = "reflectiveQoSTimer")]
        pub reflective_qos_timer: Option<u32>,
        pub conds: Option<BoundedMap<ShortText, Option<ConditionData>>>,
        pub revalidation_time: Option<DateTime>,
        pub offline: Option<bool>,
        pub online: Option<bool>,
        pub offline_ch_only: Option<bool>,
        pub policy_ctrl_req_triggers: Option<BoundedList<PolicyControlRequestTrigger, 0>>,
        pub last_req_rule_data: Option<BoundedList<RequestedRuleData, 0>>,
        pub pra_infos: Option<BoundedMap<ShortText, Option<PresenceInfo>>>,
        pub rel_cause: Option<SmPolicyAssociationReleaseCause>,
        pub supp_feat: Option<SupportedFeatures>,
    }
    /// Changed policy, sent to the SMF's `/update`. TS 29.512 §5.6.2.5.
    pub struct SmPolicyNotification {
        pub resource_uri: Option<Uri>,
        pub sm_policy_decision: Option<SmPolicyDecision>,
    }
    /// PCC rule. TS 29.512 §5.6.2.6.
    pub struct PccRule {
        pub flow_infos: Option<BoundedList<FlowInformation, 0>>,
        pub app_id: Option<ShortText>,
        /// Version of the content.
        pub cont_ver: Option<u64>,
        pub pcc_rule_id: ShortText,
        pub precedence: Option<u32>,
        pub app_reloc: Option<bool>,
        pub ref_qos_data: Option<BoundedList<ShortText, 0, 1>>,
        pub ref_alt_qos_params: Option<BoundedList<ShortText, 0>>,
        pub ref_tc_data: Option<BoundedList<ShortText, 0, 1>>,
        pub ref_chg_data: Option<BoundedList<ShortText, 0, 1>>,
        pub ref_chg_n3g_data: Option<BoundedList<ShortText, 0, 1>>,
        pub ref_um_data: Option<BoundedList<ShortText, 0, 1>>,
        pub ref_um_n3g_data: Option<BoundedList<ShortText, 0, 1>>,
        pub ref_cond_data: Option<ShortText>,
        pub ref_qos_mon: Option<BoundedList<ShortText, 0, 1>>,
    }
    /// Rule of a whole session. TS 29.512 §5.6.2.7.
    pub struct SessionRule {
        pub auth_sess_ambr: Option<SbiAmbr>,
        pub auth_def_qos: Option<AuthorizedDefaultQos>,
        pub sess_rule_id: ShortText,
        pub ref_um_data: Option<ShortText>,
        pub ref_um_n3g_data: Option<ShortText>,
        pub ref_cond_data: Option<ShortText>,
    }
    /// QoS of rules that name it. TS 29.512 §5.6.2.8.
    pub struct QosData {
        pub qos_id: ShortText,
        #[serde(rename = "5qi")]
        pub five_qi: Option<FiveQi>,
        pub maxbr_ul: Option<SbiBitRate>,
        pub maxbr_dl: Option<SbiBitRate>,
        pub gbr_ul: Option<SbiBitRate>,
        pub gbr_dl: Option<SbiBitRate>,
        pub arp: Option<SbiArp>,
        pub qnc: Option<bool>,
        pub priority_level: Option<FiveQiPriorityLevel>,
        pub aver_window: Option<AverWindow>,
        pub max_data_burst_vol: Option<MaxDataBurstVol>,
        pub reflective_qos: Option<bool>,
        pub sharing_key_dl: Option<ShortText>,
        pub sharing_key_ul: Option<ShortText>,
        pub max_packet_loss_rate_dl: Option<PacketLossRate>,
        pub max_packet_loss_rate_ul: Option<PacketLossRate>,
        pub def_qos_flow_indication: Option<bool>,
        pub ext_max_data_burst_vol: Option<u32>,
        /// Number of milliseconds.
        pub packet_delay_budget: Option<u32>,
        pub packet_error_rate: Option<PacketErrRate>,
    }
    /// Times and accesses at which a rule is in force. TS 29.512 §5.6.2.9.
    pub struct ConditionData {
        pub cond_id: ShortText,
        pub activation_time: Option<DateTime>,
        pub deactivation_time: Option<DateTime>,
        pub access_type: Option<AccessType>,
        pub rat_type: Option<RatType>,
    }
    /// Gates and redirection of rules that name it. TS 29.512 §5.6.2.10.
    pub struct TrafficControlData {
        pub tc_id: ShortText,
        pub flow_status: Option<FlowStatus>,
        pub redirect_info: Option<RedirectInformation>,
        pub mute_notif: Option<bool>,
        pub traffic_steering_pol_id_dl: Option<ShortText>,
        pub traffic_steering_pol_id_ul: Option<ShortText>,
        pub route_to_locs: Option<BoundedList<RouteToLocation, 0>>,
    }
    /// Way to a data network access. TS 29.571 §5.4.4.15.
    pub struct RouteToLocation {
        pub dnai: Dnai,
        pub route_prof_id: Option<ShortText>,
    }
    /// Charging of rules that name it. TS 29.512 §5.6.2.11.
    pub struct ChargingData {
        pub chg_id: ShortText,
        pub metering_method: Option<MeteringMethod>,
        pub offline: Option<bool>,
        pub online: Option<bool>,
        pub sdf_handl: Option<bool>,
        pub rating_group: Option<u32>,
        pub reporting_level: Option<ReportingLevel>,
        pub service_id: Option<u32>,
        pub sponsor_id: Option<ShortText>,
        pub app_svc_prov_id: Option<ShortText>,
        pub af_charging_identifier: Option<u32>,
    }
    /// Usage that is reported. TS 29.512 §5.6.2.12.
    pub struct UsageMonitoringData {
        pub um_id: ShortText,
        /// Octets, as the next members.
        pub volume_threshold: Option<u64>,
        pub volume_threshold_uplink: Option<u64>,
        pub volume_threshold_downlink: Option<u64>,
        /// Number of seconds.
        pub time_threshold: Option<u32>,
        pub monitoring_time: Option<DateTime>,
        pub next_vol_threshold: Option<u64>,
        pub next_vol_threshold_uplink: Option<u64>,
        pub next_vol_threshold_downlink: Option<u64>,
        pub next_time_threshold: Option<u32>,
        pub inactivity_time: Option<u32>,
        pub ex_usage_pcc_rule_ids: Option<BoundedList<ShortText, 0>>,
    }
    /// Redirection of traffic. TS 29.512 §5.6.2.13.
    pub struct RedirectInformation {
        pub redirect_enabled: Option<bool>,
        pub redirect_address_type: Option<RedirectAddressType>,
        pub redirect_server_address: Option<Uri>,
    }
    /// Packet filter. TS 29.512 §5.6.2.14.
    pub struct FlowInformation {
        pub flow_description: Option<FlowDescription>,
        pub pack_filt_id: Option<ShortText>,
        pub packet_filter_usage: Option<bool>,
        pub tos_traffic_class: Option<ShortText>,
        pub spi: Option<ShortText>,
        pub flow_label: Option<ShortText>,
        pub flow_direction: Option<FlowDirection>,
    }
    /// End of a session's policy, `POST /sm-policies/{smPolicyId}/delete`. TS 29.512 §5.6.2.15.
    #[derive(Default)]
    pub struct SmPolicyDeleteData {
        pub user_location_info: Option<UserLocation>,
        pub ue_time_zone: Option<ShortText>,
        pub serving_network: Option<PlmnIdNid>,
        pub user_location_info_time: Option<DateTime>,
        pub accu_usage_reports: Option<BoundedList<AccuUsageReport, 0>>,
        pub pdu_sess_rel_cause: Option<PduSessionRelCause>,
    }
    /// QoS characteristics of a 5QI that is not standardised. TS 29.512 §5.6.2.16.
    pub struct QosCharacteristics {
        #[serde(rename = "5qi")]
        pub five_qi: FiveQi,
        pub resource_type: QosResourceType,
        pub priority_level: FiveQiPriorityLevel,
        /// Number of milliseconds.
        pub packet_delay_budget: u32,
        pub packet_error_rate: PacketErrRate,
        pub averaging_window: Option<AverWindow>,
        pub max_data_burst_vol: Option<MaxDataBurstVol>,
        pub ext_max_data_burst_vol: Option<u32>,
    }
    /// Charging functions of a session. TS 29.512 §5.6.2.17.
    pub struct ChargingInformation {
        pub primary_chf_address: Uri,
        pub secondary_chf_address: Option<Uri>,
        pub primary_chf_set_id: Option<NfSetId>,
        pub primary_chf_instance_id: Option<NfInstanceId>,
        pub secondary_chf_set_id: Option<NfSetId>,
        pub secondary_chf_instance_id: Option<NfInstanceId>,
    }
    /// Usage since the last report. TS 29.512 §5.6.2.18.
    pub struct AccuUsageReport {
        pub ref_um_ids: ShortText,
        pub vol_usage: Option<u64>,
        pub vol_usage_uplink: Option<u64>,
        pub vol_usage_downlink: Option<u64>,
        pub time_usage: Option<u32>,
        pub next_vol_usage: Option<u64>,
        pub next_vol_usage_uplink: Option<u64>,
        pub next_vol_usage_downlink: Option<u64>,
        pub next_time_usage: Option<u32>,
    }
    /// Report of events, `POST /sm-policies/{smPolicyId}/update`. TS 29.512 §5.6.2.19.
    #[derive(Default)]
    pub struct SmPolicyUpdateContextData {
        pub rep_policy_ctrl_req_triggers: Option<BoundedList<PolicyControlRequestTrigger, 0>>,
        pub acc_net_ch_ids: Option<BoundedList<AccNetChId, 0>>,
        pub access_type: Option<AccessType>,
        pub rat_type: Option<RatType>,
        pub serving_network: Option<PlmnIdNid>,
        pub user_location_info: Option<UserLocation>,
        pub ue_time_zone: Option<ShortText>,
        pub rel_ipv4_address: Option<Ipv4Addr>,
        pub ipv4_address: Option<Ipv4Addr>,
        pub ip_domain: Option<ShortText>,
        pub ipv6_address_prefix: Option<Ipv6Prefix>,
        pub rel_ipv6_address_prefix: Option<Ipv6Prefix>,
        pub subs_sess_ambr: Option<SbiAmbr>,
        pub auth_prof_index: Option<ShortText>,
        pub subs_def_qos: Option<SubscribedDefaultQos>,
        pub num_of_pack_filter: Option<u32>,
        pub accu_usage_reports: Option<BoundedList<AccuUsageReport, 0>>,
        #[serde(rename = "3gppPsDataOffStatus")]
        pub ps_data_off_status: Option<bool>,
        pub rule_reports: Option<BoundedList<RuleReport, 0>>,
        pub sess_rule_reports: Option<BoundedList<SessionRuleReport, 0>>,
        pub qnc_reports: Option<BoundedList<QosNotificationControlInfo, 0>>,
        pub user_location_info_time: Option<DateTime>,
        pub rep_pra_infos: Option<BoundedMap<ShortText, PresenceInfo>>,
        pub ref_qos_indication: Option<bool>,
        pub serv_nf_id: Option<ServingNfIdentity>,
        pub invalid_policy_decs: Option<BoundedList<InvalidParam, 0>>,
        pub inter_grp_ids: Option<BoundedList<GroupId, 0>>,
    }
    /// End of an association, sent to the SMF's `/terminate`. TS 29.512 §5.6.2.21.
    pub struct SmTerminationNotification {
        pub resource_uri: Uri,
        pub cause: SmPolicyAssociationReleaseCause,
    }
    /// Charging identifier of an access network. TS 29.512 §5.6.2.23.
    pub struct AccNetChId {
        pub acc_net_cha_id_value: Option<u32>,
        pub acc_net_charg_id: Option<ShortText>,
        pub ref_pcc_rule_ids: Option<BoundedList<ShortText, 0>>,
        pub session_ch_scope: Option<bool>,
    }
    /// Rules whose data the PCF wants. TS 29.512 §5.6.2.24.
    pub struct RequestedRuleData {
        pub ref_pcc_rule_ids: BoundedList<ShortText>,
        pub req_data: BoundedList<ShortText>,
    }
    /// State of rules. TS 29.512 §5.6.2.27.
    pub struct RuleReport {
        pub pcc_rule_ids: BoundedList<ShortText>,
        pub rule_status: RuleStatus,
        pub cont_vers: Option<BoundedList<u64, 0>>,
        pub failure_code: Option<RuleFailureCode>,
        pub alt_qos_param_id: Option<ShortText>,
    }
    /// State of session rules. TS 29.512 §5.6.2.37.
    pub struct SessionRuleReport {
        pub rule_ids: BoundedList<ShortText>,
        pub rule_status: RuleStatus,
        pub sess_rule_failure_code: Option<RuleFailureCode>,
    }
    /// Guarantee of a QoS flow that was lost or is met again. TS 29.512 §5.6.2.32.
    pub struct QosNotificationControlInfo {
        pub ref_pcc_rule_ids: BoundedList<ShortText>,
        pub notif_type: QosNotifType,
        pub cont_ver: Option<u64>,
        pub alt_qos_param_id: Option<ShortText>,
    }
    /// QoS of the default flow. TS 29.512 §5.6.2.34.
    pub struct AuthorizedDefaultQos {
        #[serde(rename = "5qi")]
        pub five_qi: Option<FiveQi>,
        pub arp: Option<SbiArp>,
        pub priority_level: Option<FiveQiPriorityLevel>,
        pub aver_window: Option<AverWindow>,
        pub max_data_burst_vol: Option<MaxDataBurstVol>,
        pub maxbr_ul: Option<SbiBitRate>,
        pub maxbr_dl: Option<SbiBitRate>,
        pub gbr_ul: Option<SbiBitRate>,
        pub gbr_dl: Option<SbiBitRate>,
        pub ext_max_data_burst_vol: Option<u32>,
    }
    /// Rules that an SMF could not put in force, the body of a refusal. TS 29.512 §5.6.2.36.
    #[derive(Default)]
    pub struct ErrorReport {
        pub error: Option<ProblemDetails>,
        pub rule_reports: Option<BoundedList<RuleReport, 0>>,
        pub sess_rule_reports: Option<BoundedList<SessionRuleReport, 0>>,
        pub invalid_policy_decs: Option<BoundedList<InvalidParam, 0>>,
    }
    /// AMF that serves the UE. TS 29.512 §5.6.2.38.
    pub struct ServingNfIdentity {
        pub serv_nf_inst_id: Option<NfInstanceId>,
        pub guami: Option<Guami>,
    }
    /// Rules of a notification that an SMF could not put in force. TS 29.512 §5.6.2.33.
    pub struct PartialSuccessReport {
        pub failure_cause: FailureCause,
        pub rule_reports: Option<BoundedList<RuleReport, 0>>,
        pub sess_rule_reports: Option<BoundedList<SessionRuleReport, 0>>,
        pub invalid_policy_decs: Option<BoundedList<InvalidParam, 0>>,
    }
}

enumeration! {
    /// Treatment of a flow's guarantee. TS 29.571 §5.5.3.6.
    pub enum QosResourceType: extensible {
        NonGbr = "NON_GBR",
        NonCriticalGbr = "NON_CRITICAL_GBR",
        CriticalGbr = "CRITICAL_GBR",
    }
}
