//! The content of the bodies: the schema that views, messages of protobuf and tables of FlatBuffers have in common. Names and order are those of
//! `whimbrel-sbi-types`, which names the tables of the specifications; without one of its members this does not compile.

use std::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_sbi_types::common::{Base64Octets, DateTime, Link, SbiBitRate, Tac};
use whimbrel_sbi_types::nudm_ueau::Xres;
use whimbrel_sbi_types::{
    BoundedList, common, namf_comm, nausf, nnrf, npcf_sm, nsmf_pdu_session, nudm_sdm, nudm_ueau, nudm_uecm,
};

use super::*;

objects! {
    common::Snssai { sst: required uint32, sd: optional bytes, }
    common::PlmnIdNid { mcc: required string, mnc: required string, nid: optional string, }
    common::Guami { plmn_id: required message PlmnIdNid, amf_id: required bytes, }
    common::RefToBinaryData { content_id: required string, }
    common::PlmnId { mcc: required string, mnc: required string, }
    common::Tai { plmn_id: required message PlmnId, tac: required bytes, nid: optional string, }
    common::Ecgi { plmn_id: required message PlmnId, eutra_cell_id: required string, nid: optional string, }
    common::GNbId { bit_length: required uint32, gnb_value: required string, }
    common::GlobalRanNodeId {
        plmn_id: required message PlmnId, n3_iwf_id: optional string, g_nb_id: optional message GNbId, nge_nb_id: optional string,
        nid: optional string,
    }
    common::EutraLocation {
        tai: required message Tai, ecgi: required message Ecgi, age_of_location_information: optional uint32,
        ue_location_timestamp: optional int64, global_ngenb_id: optional message GlobalRanNodeId,
    }
    common::Ncgi { plmn_id: required message PlmnId, nr_cell_id: required string, nid: optional string, }
    common::NrLocation {
        tai: required message Tai, ncgi: required message Ncgi, age_of_location_information: optional uint32,
        ue_location_timestamp: optional int64, geographical_information: optional string, geodetic_information: optional string,
        global_gnb_id: optional message GlobalRanNodeId,
    }
    common::N3gaLocation {
        n3gpp_tai: optional message Tai, n3_iwf_id: optional string, ue_ipv4_addr: optional uint32,
        ue_ipv6_addr: optional message Ipv6Address, port_number: optional uint32,
    }
    common::UserLocation {
        eutra_location: optional message EutraLocation, nr_location: optional message NrLocation,
        n3ga_location: optional message N3gaLocation,
    }
    common::BackupAmfInfo { backup_amf: required string, guami_list: repeated message Guami, }
    nsmf_pdu_session::SmContextCreateData {
        supi: optional string, unauthenticated_supi: optional bool, pei: optional string, gpsi: optional string,
        pdu_session_id: optional uint32, dnn: optional string, selected_dnn: optional string, s_nssai: optional message Snssai,
        hplmn_snssai: optional message Snssai, serving_nf_id: required string, guami: optional message Guami, service_name: optional string,
        serving_network: required message PlmnIdNid, request_type: optional string, n1_sm_msg: optional message RefToBinaryData,
        an_type: required string, rat_type: optional string, presence_in_ladn: optional string, ue_location: optional message UserLocation,
        ue_time_zone: optional string, sm_context_status_uri: required string, old_pdu_session_id: optional uint32, pcf_id: optional string,
        nrf_uri: optional string, supported_features: optional string, sel_mode: optional string,
        backup_amf_info: repeated message BackupAmfInfo, routing_indicator: optional string,
    }
    nsmf_pdu_session::SmContextCreatedData {
        pdu_session_id: optional uint32, s_nssai: optional message Snssai, up_cnx_state: optional string,
        n2_sm_info: optional message RefToBinaryData, n2_sm_info_type: optional string, ho_state: optional string, gpsi: optional string,
        smf_service_instance_id: optional string, recovery_time: optional int64, supported_features: optional string,
    }
    common::NgApCause { group: required uint32, value: required uint32, }
    nsmf_pdu_session::SmContextUpdateData {
        pei: optional string, serving_nf_id: optional string, guami: optional message Guami, serving_network: optional message PlmnIdNid,
        backup_amf_info: repeated message BackupAmfInfo, an_type: optional string, rat_type: optional string,
        presence_in_ladn: optional string, ue_location: optional message UserLocation, ue_time_zone: optional string,
        up_cnx_state: optional string, ho_state: optional string, to_be_switched: optional bool, failed_to_be_switched: optional bool,
        n1_sm_msg: optional message RefToBinaryData, n2_sm_info: optional message RefToBinaryData, n2_sm_info_type: optional string,
        target_serving_nf_id: optional string, sm_context_status_uri: optional string, data_forwarding: optional bool,
        release: optional bool, cause: optional string, ng_ap_cause: optional message NgApCause, five_g_mm_cause_value: optional uint32,
        s_nssai: optional message Snssai, supported_features: optional string,
    }
    nsmf_pdu_session::SmContextUpdatedData {
        up_cnx_state: optional string, ho_state: optional string, n1_sm_msg: optional message RefToBinaryData,
        n2_sm_info: optional message RefToBinaryData, n2_sm_info_type: optional string, data_forwarding: optional bool,
        cause: optional string, supported_features: optional string,
    }
    namf_comm::N1MessageContainer {
        n1_message_class: required string, n1_message_content: required message RefToBinaryData, nf_id: optional string,
        service_instance_id: optional string,
    }
    namf_comm::N2InfoContent {
        ngap_message_type: optional uint32, ngap_ie_type: optional string, ngap_data: required message RefToBinaryData,
    }
    namf_comm::N2SmInformation {
        pdu_session_id: required uint32, n2_info_content: optional message N2InfoContent, s_nssai: optional message Snssai,
        subject_to_ho: optional bool,
    }
    namf_comm::N2InfoContainer { n2_information_class: required string, sm_info: optional message N2SmInformation, }
    common::SbiArp {
        priority_level: required uint32, preempt_cap: required string, preempt_vuln: required string,
    }
    namf_comm::AreaOfValidity { tai_list: repeated message Tai, }
    namf_comm::N1N2MessageTransferReqData {
        n1_message_container: optional message N1MessageContainer, n2_info_container: optional message N2InfoContainer,
        skip_ind: optional bool, last_msg_indication: optional bool, pdu_session_id: optional uint32, lcs_correlation_id: optional string,
        ppi: optional uint32, arp: optional message SbiArp, five_qi: optional uint32, n1n2_failure_txf_notif_uri: optional string,
        smf_reallocation_ind: optional bool, area_of_validity: optional message AreaOfValidity, supported_features: optional string,
        old_guami: optional message Guami, ext_buf_support: optional bool, target_access: optional string, nf_id: optional string,
    }
    namf_comm::N1N2MessageTransferRspData { cause: required string, supported_features: optional string, }
    nudm_ueau::ResynchronizationInfo { rand: required bytes, auts: required bytes, }
    nausf::AuthenticationInfo {
        supi_or_suci: required string, serving_network_name: required string,
        resynchronization_info: optional message ResynchronizationInfo, pei: optional string, udm_group_id: optional string,
        routing_indicator: optional string, cell_cag_info: repeated string, n5gc_ind: optional bool, supported_features: optional string,
        nswo_ind: optional bool, disaster_roaming_ind: optional bool, onboarding_ind: optional bool,
    }
    nausf::UEAuthenticationCtx {
        auth_type: required string, five_g_auth_data: required message FiveGAuthData, links: repeated message LinksValueSchemaEntry,
        serving_network_name: optional string,
    }
    nudm_ueau::AuthenticationInfoRequest {
        supported_features: optional string, serving_network_name: required string,
        resynchronization_info: optional message ResynchronizationInfo, ausf_instance_id: required string, cell_cag_info: repeated string,
        n5gc_ind: optional bool, nswo_ind: optional bool, disaster_roaming_ind: optional bool,
    }
    nudm_ueau::AuthenticationInfoResult {
        auth_type: required string, supported_features: optional string, authentication_vector: optional message AuthenticationVector,
        supi: optional string, akma_ind: optional bool, auth_aaa: optional bool, routing_id: optional string,
    }
    nudm_uecm::EpsInterworkingInfo { eps_iwk_pgws: repeated message EpsIwkPgwEntry, }
    nudm_uecm::Amf3GppAccessRegistration {
        amf_instance_id: required string, supported_features: optional string, purge_flag: optional bool, pei: optional string,
        ims_vo_ps: optional string, dereg_callback_uri: required string, amf_service_name_dereg: optional string,
        pcscf_restoration_callback_uri: optional string, amf_service_name_pcscf_rest: optional string,
        initial_registration_ind: optional bool, emergency_registration_ind: optional bool, guami: required message Guami,
        backup_amf_info: repeated message BackupAmfInfo, dr_flag: optional bool, rat_type: required string, urrp_indicator: optional bool,
        amf_ee_subscription_id: optional string, eps_interworking_info: optional message EpsInterworkingInfo,
        ue_srvcc_capability: optional bool, registration_time: optional int64, no_ee_subscription_ind: optional bool, supi: optional string,
        ue_reachable_ind: optional string, re_registration_required: optional bool, admin_dereg_sub_withdrawn: optional bool,
        data_restoration_callback_uri: optional string, reset_ids: repeated string, disaster_roaming_ind: optional bool,
    }
    npcf_sm::AccNetChId {
        acc_net_cha_id_value: optional uint32, acc_net_charg_id: optional string, ref_pcc_rule_ids: repeated string,
        session_ch_scope: optional bool,
    }
    common::SbiAmbr { uplink: required uint64, downlink: required uint64, }
    common::SubscribedDefaultQos { five_qi: required uint32, arp: required message SbiArp, priority_level: optional uint32, }
    npcf_sm::ServingNfIdentity { serv_nf_inst_id: optional string, guami: optional message Guami, }
    npcf_sm::SmPolicyContextData {
        acc_net_ch_id: optional message AccNetChId, gpsi: optional string, supi: required string, inter_grp_ids: repeated string,
        pdu_session_id: required uint32, pdu_session_type: required string, charging_characteristics: optional string, dnn: required string,
        dnn_sel_mode: optional string, notification_uri: required string, access_type: optional string, rat_type: optional string,
        serving_network: optional message PlmnIdNid, user_location_info: optional message UserLocation, ue_time_zone: optional string,
        pei: optional string, ipv4_address: optional uint32, ipv6_address_prefix: optional string, ip_domain: optional string,
        subs_sess_ambr: optional message SbiAmbr, auth_prof_index: optional string, subs_def_qos: optional message SubscribedDefaultQos,
        num_of_pack_filter: optional uint32, online: optional bool, offline: optional bool, ps_data_off_status: optional bool,
        ref_qos_indication: optional bool, slice_info: required message Snssai, serv_nf_id: optional message ServingNfIdentity,
        supp_feat: optional string, smf_id: optional string, recovery_time: optional int64, ipv4_frame_route_list: repeated string,
        ipv6_frame_route_list: repeated string,
    }
    npcf_sm::AuthorizedDefaultQos {
        five_qi: optional uint32, arp: optional message SbiArp, priority_level: optional uint32, aver_window: optional uint32,
        max_data_burst_vol: optional uint32, maxbr_ul: optional uint64, maxbr_dl: optional uint64, gbr_ul: optional uint64,
        gbr_dl: optional uint64, ext_max_data_burst_vol: optional uint32,
    }
    npcf_sm::SessionRule {
        auth_sess_ambr: optional message SbiAmbr, auth_def_qos: optional message AuthorizedDefaultQos, sess_rule_id: required string,
        ref_um_data: optional string, ref_um_n3g_data: optional string, ref_cond_data: optional string,
    }
    npcf_sm::FlowInformation {
        flow_description: optional string, pack_filt_id: optional string, packet_filter_usage: optional bool,
        tos_traffic_class: optional string, spi: optional string, flow_label: optional string, flow_direction: optional string,
    }
    npcf_sm::PccRule {
        flow_infos: repeated message FlowInformation, app_id: optional string, cont_ver: optional uint64, pcc_rule_id: required string,
        precedence: optional uint32, app_reloc: optional bool, ref_qos_data: repeated string, ref_alt_qos_params: repeated string,
        ref_tc_data: repeated string, ref_chg_data: repeated string, ref_chg_n3g_data: repeated string, ref_um_data: repeated string,
        ref_um_n3g_data: repeated string, ref_cond_data: optional string, ref_qos_mon: repeated string,
    }
    npcf_sm::QosData {
        qos_id: required string, five_qi: optional uint32, maxbr_ul: optional uint64, maxbr_dl: optional uint64, gbr_ul: optional uint64,
        gbr_dl: optional uint64, arp: optional message SbiArp, qnc: optional bool, priority_level: optional uint32,
        aver_window: optional uint32, max_data_burst_vol: optional uint32, reflective_qos: optional bool, sharing_key_dl: optional string,
        sharing_key_ul: optional string, max_packet_loss_rate_dl: optional uint32, max_packet_loss_rate_ul: optional uint32,
        def_qos_flow_indication: optional bool, ext_max_data_burst_vol: optional uint32, packet_delay_budget: optional uint32,
        packet_error_rate: optional string,
    }
    npcf_sm::ChargingData {
        chg_id: required string, metering_method: optional string, offline: optional bool, online: optional bool, sdf_handl: optional bool,
        rating_group: optional uint32, reporting_level: optional string, service_id: optional uint32, sponsor_id: optional string,
        app_svc_prov_id: optional string, af_charging_identifier: optional uint32,
    }
    npcf_sm::ChargingInformation {
        primary_chf_address: required string, secondary_chf_address: optional string, primary_chf_set_id: optional string,
        primary_chf_instance_id: optional string, secondary_chf_set_id: optional string, secondary_chf_instance_id: optional string,
    }
    npcf_sm::RedirectInformation {
        redirect_enabled: optional bool, redirect_address_type: optional string, redirect_server_address: optional string,
    }
    npcf_sm::RouteToLocation { dnai: required string, route_prof_id: optional string, }
    npcf_sm::TrafficControlData {
        tc_id: required string, flow_status: optional string, redirect_info: optional message RedirectInformation,
        mute_notif: optional bool, traffic_steering_pol_id_dl: optional string, traffic_steering_pol_id_ul: optional string,
        route_to_locs: repeated message RouteToLocation,
    }
    npcf_sm::UsageMonitoringData {
        um_id: required string, volume_threshold: optional uint64, volume_threshold_uplink: optional uint64,
        volume_threshold_downlink: optional uint64, time_threshold: optional uint32, monitoring_time: optional int64,
        next_vol_threshold: optional uint64, next_vol_threshold_uplink: optional uint64, next_vol_threshold_downlink: optional uint64,
        next_time_threshold: optional uint32, inactivity_time: optional uint32, ex_usage_pcc_rule_ids: repeated string,
    }
    npcf_sm::QosCharacteristics {
        five_qi: required uint32, resource_type: required string, priority_level: required uint32, packet_delay_budget: required uint32,
        packet_error_rate: required string, averaging_window: optional uint32, max_data_burst_vol: optional uint32,
        ext_max_data_burst_vol: optional uint32,
    }
    npcf_sm::ConditionData {
        cond_id: required string, activation_time: optional int64, deactivation_time: optional int64, access_type: optional string,
        rat_type: optional string,
    }
    npcf_sm::RequestedRuleData { ref_pcc_rule_ids: repeated string, req_data: repeated string, }
    common::PresenceInfo {
        pra_id: optional string, additional_pra_id: optional string, presence_state: optional string,
        tracking_area_list: repeated message Tai, ncgi_list: repeated message Ncgi,
    }
    npcf_sm::SmPolicyDecision {
        sess_rules: repeated message SessionRuleEntry, pcc_rules: repeated message PccRuleEntry, pcscf_rest_indication: optional bool,
        qos_decs: repeated message QosDataEntry, chg_decs: repeated message ChargingDataEntry,
        charging_info: optional message ChargingInformation, traff_cont_decs: repeated message TrafficControlDataEntry,
        um_decs: repeated message UsageMonitoringDataEntry, qos_chars: repeated message QosCharacteristicsEntry,
        reflective_qos_timer: optional uint32, conds: repeated message ConditionDataEntry, revalidation_time: optional int64,
        offline: optional bool, online: optional bool, offline_ch_only: optional bool, policy_ctrl_req_triggers: repeated string,
        last_req_rule_data: repeated message RequestedRuleData, pra_infos: repeated message PresenceInfoEntry, rel_cause: optional string,
        supp_feat: optional string,
    }
    nausf::Av5gAka { rand: required bytes, hxres_star: required bytes, autn: required bytes, }
    nudm_ueau::AvEapAkaPrime {
        av_type: required string, rand: required bytes, xres: required bytes, autn: required bytes, ck_prime: required bytes,
        ik_prime: required bytes,
    }
    nudm_ueau::Av5GHeAka {
        av_type: required string, rand: required bytes, xres_star: required bytes, autn: required bytes, kausf: required bytes,
    }
    nudm_uecm::EpsIwkPgw {
        pgw_fqdn: required string, smf_instance_id: required string, plmn_id: optional message PlmnId,
    }
}

eithers! {
    nausf::FiveGAuthData { FiveGAka five_g_aka: message Av5gAka, Eap eap: bytes, }
    nudm_ueau::AuthenticationVector {
        EapAkaPrime eap_aka_prime: message AvEapAkaPrime, FiveGHeAka five_g_he_aka: message Av5GHeAka,
    }
}

entries! {
    SessionRuleEntry of SessionRule;
    PccRuleEntry of PccRule;
    QosDataEntry of QosData;
    ChargingDataEntry of ChargingData;
    TrafficControlDataEntry of TrafficControlData;
    UsageMonitoringDataEntry of UsageMonitoringData;
    QosCharacteristicsEntry of QosCharacteristics;
    ConditionDataEntry of ConditionData;
    PresenceInfoEntry of PresenceInfo;
    EpsIwkPgwEntry of EpsIwkPgw;
    LinksValueSchemaEntry of LinksValueSchema;
}

// One link or several.
view! { LinksValueSchema { is_one: required bool, links: repeated string, } }
body! { common::LinksValueSchema = LinksValueSchema }

// Numbers of 128 bits are in none of the forms.
view! { Ipv6Address { high: required uint64, low: required uint64, } }

impl<'a> Real<'a, LinksValueSchema<'a>> for common::LinksValueSchema {
    fn view(&'a self) -> LinksValueSchema<'a> {
        let (is_one, links) = match self {
            Self::One(link) => (true, std::slice::from_ref(link)),
            Self::Several(links) => (false, &**links),
        };
        let links = links.iter().map(|link| link.href.as_str()).collect();
        LinksValueSchema { is_one, links, lifetime: PhantomData }
    }

    fn real(view: LinksValueSchema<'a>) -> Option<Self> {
        let links = view.links.into_iter().map(|link| Some(Link { href: link.parse().ok()? }));
        let mut links: Vec<_> = links.collect::<Option<_>>()?;
        match (view.is_one, links.len()) {
            (true, 1) => links.pop().map(Self::One),
            (true, _) => None,
            (false, _) => BoundedList::new(links).map(Self::Several),
        }
    }
}

impl<'a> Real<'a, Ipv6Address<'a>> for Ipv6Addr {
    fn view(&'a self) -> Ipv6Address<'a> {
        let bits = self.to_bits();
        Ipv6Address { high: (bits >> 64) as u64, low: bits as u64, lifetime: PhantomData }
    }

    fn real(view: Ipv6Address<'a>) -> Option<Self> {
        Some(Self::from_bits(u128::from(view.high) << 64 | u128::from(view.low)))
    }
}

/// Texts and enumerations.
macro_rules! texts {
    ($($module:ident: $($name:ident)+;)*) => {$($(
        impl<'a> Real<'a, &'a str> for $module::$name {
            fn view(&'a self) -> &'a str {
                self.as_str()
            }

            fn real(view: &'a str) -> Option<Self> {
                view.parse().ok()
            }
        }
    )+)*};
}

texts! {
    common: AccessType CagId Dnai Dnn EutraCellId Fqdn GNbValue GeographicalInformation Gpsi GroupId Ipv4AddrMask Ipv6Prefix Mcc Mnc N3IwfId
        NfGroupId NfInstanceId NfSetId NgeNbId Nid NrCellId PduSessionType Pei PreemptionCapability PreemptionVulnerability PresenceState
        RatType RoutingIndicator ShortText Supi SupiOrSuci SupportedFeatures Uri;
    namf_comm: N1MessageClass N1N2MessageTransferCause N2InformationClass NgapIeType;
    nnrf: ServiceName;
    npcf_sm: DnnSelectionMode FlowDescription FlowDirection FlowStatus MeteringMethod PacketErrRate PolicyControlRequestTrigger
        QosResourceType RedirectAddressType ReportingLevel SmPolicyAssociationReleaseCause;
    nsmf_pdu_session: HoState N2SmInfoType SmCause SmRequestType UpCnxState;
    nudm_sdm: ChargingCharacteristics;
    nudm_ueau: AuthType AvType ServingNetworkName;
    nudm_uecm: ImsVoPs UeReachableInd;
}

/// Octets of a fixed number.
macro_rules! octets {
    ($($module:ident: $($name:ident)+;)*) => {$($(
        impl<'a> Real<'a, &'a [u8]> for $module::$name {
            fn view(&'a self) -> &'a [u8] {
                &self.0
            }

            fn real(view: &'a [u8]) -> Option<Self> {
                view.try_into().ok().map($module::$name)
            }
        }
    )+)*};
}

octets! {
    common: AmfId Sd;
    nausf: HxresStar;
    nudm_ueau: Autn Auts CkPrime IkPrime Kausf Rand XresStar;
}

impl<'a> Real<'a, &'a [u8]> for Tac {
    fn view(&'a self) -> &'a [u8] {
        match self {
            Self::Bits24(octets) => octets,
            Self::Bits16(octets) => octets,
        }
    }

    fn real(view: &'a [u8]) -> Option<Self> {
        view.try_into().map(Self::Bits24).or_else(|_| view.try_into().map(Self::Bits16)).ok()
    }
}

impl<'a> Real<'a, &'a [u8]> for Xres {
    fn view(&'a self) -> &'a [u8] {
        self.octets()
    }

    fn real(view: &'a [u8]) -> Option<Self> {
        Self::new(view)
    }
}

impl<'a, const MAX: usize> Real<'a, &'a [u8]> for Base64Octets<MAX> {
    fn view(&'a self) -> &'a [u8] {
        self.octets()
    }

    fn real(view: &'a [u8]) -> Option<Self> {
        Self::new(view)
    }
}

/// Numbers, each by what makes a number of it and it of a number.
macro_rules! numbers {
    ($($name:ty as $number:ty: $view:expr, $real:expr;)*) => {$(
        impl Real<'_, $number> for $name {
            fn view(&self) -> $number {
                let view: fn(Self) -> $number = $view;
                view(*self)
            }

            fn real(view: $number) -> Option<Self> {
                let real: fn($number) -> Option<Self> = $real;
                real(view)
            }
        }
    )*};
}

numbers! {
    bool as bool: |it| it, Some;
    u8 as u32: u32::from, |n| n.try_into().ok();
    u16 as u32: u32::from, |n| n.try_into().ok();
    u32 as u32: |it| it, Some;
    u64 as u64: |it| it, Some;
    DateTime as i64: DateTime::unix_ms, |ms| Some(DateTime::from_unix_ms(ms));
    Ipv4Addr as u32: Ipv4Addr::to_bits, |bits| Some(Ipv4Addr::from_bits(bits));
    SbiBitRate as u64: |rate| rate.0, |rate| Some(SbiBitRate(rate));
}

/// Numbers of a range.
macro_rules! ranged {
    ($($module:ident: $($name:ident)+;)*) => {numbers! {$($(
        $module::$name as u32: |it| it.value().into(), |n| $module::$name::new(n.try_into().ok()?);
    )+)*}};
}

ranged! {
    common: ArpPriorityLevel FiveQi FiveQiPriorityLevel GNbIdLength LocationAge SbiPduSessionId;
    npcf_sm: AverWindow MaxDataBurstVol PacketLossRate;
}

#[cfg(test)]
impl SmContextCreateData<'_> {
    /// Leaves nothing that a reader of JSON accepts.
    pub(super) fn refuse(&mut self) {
        self.serving_nf_id = "no UUID";
    }
}
