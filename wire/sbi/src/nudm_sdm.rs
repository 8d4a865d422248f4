//! Nudm_SubscriberDataManagement: TS 29.503 §6.1.6.

use crate::common::{
    AccessType, Area, Base64Octets, CagId, CoreNetworkType, DateTime, Dnn, DnnOrWildcard, Fqdn, Gpsi,
    GroupId, Guami, IpAddr, Ipv4AddrMask, Ipv6Prefix, NfGroupId, NfInstanceId, NfSetId, NotifyItem,
    PduSessionType, PlmnId, RatType, RfspIndex, RoutingIndicator, SbiAmbr, SbiPduSessionId, SbiUpSecurity,
    ServiceAreaRestriction, SharedDataId, ShortText, Snssai, SnssaiKey, SscMode, SubscribedDefaultQos, Supi,
    SupportedFeatures, Uri,
};
use crate::json::{BoundedList, BoundedMap};
use crate::nnrf::ServiceName;

/// Slices of a subscriber: TS 23.501 §5.15.4 has up to 16.
pub const SUBSCRIBED_SLICES_MAX: usize = 16;

text! {
    /// Charging characteristics: 4 hexadecimal digits (TS 32.298 §5.1.2.2.7). TS 29.503 §6.1.6.3.2.
    pub struct ChargingCharacteristics(16, |t| t.bytes().all(|c| c.is_ascii_alphanumeric()), "charging characteristics such as 0400");
    /// Data set in a query of several. TS 29.503 §6.1.6.3.3.
    pub struct DataSetName(32, |t| t.bytes().all(|c| c.is_ascii_graphic()), "a data set such as AM");
}

enumeration! {
    /// Services that an operator bars. TS 29.571 §5.7.3.2.
    pub enum OdbPacketServices: extensible {
        AllPacketServices = "ALL_PACKET_SERVICES",
        RoamerAccessHplmnAp = "ROAMER_ACCESS_HPLMN_AP",
        RoamerAccessVplmnAp = "ROAMER_ACCESS_VPLMN_AP",
    }
    /// Treatment of sessions when their anchor changes with the RAT. TS 29.503 §6.1.6.3.7.
    pub enum PduSessionContinuityInd: extensible {
        MaintainPduSession = "MAINTAIN_PDUSESSION",
        ReconnectPduSession = "RECONNECT_PDUSESSION",
        ReleasePduSession = "RELEASE_PDUSESSION",
    }
}

/// Steering or parameters for the UE in the coding of TS 24.501, which the UDM has protected.
pub type TransparentContainer = Base64Octets<2048>;

object! {
    /// Slices of a subscriber, `GET /{supi}/nssai`. TS 29.503 §6.1.6.2.2.
    pub struct Nssai {
        pub supported_features: Option<SupportedFeatures>,
        pub default_single_nssais: BoundedList<Snssai>,
        pub single_nssais: Option<BoundedList<Snssai, 0>>,
        pub provisioning_time: Option<DateTime>,
        pub additional_snssai_data: Option<BoundedMap<SnssaiKey, AdditionalSnssaiData>>,
        pub suppress_nssrg_ind: Option<bool>,
    }
    /// Properties of a subscribed slice. TS 29.503 §6.1.6.2.46.
    pub struct AdditionalSnssaiData {
        pub required_authn_authz: Option<bool>,
    }
    /// Subscription to changes, `POST /{ueId}/sdm-subscriptions`. TS 29.503 §6.1.6.2.3.
    pub struct SdmSubscription {
        pub nf_instance_id: NfInstanceId,
        pub implicit_unsubscribe: Option<bool>,
        pub expires: Option<DateTime>,
        /// Deviation: may be missing or empty, as in a request of free5GC's AMF, which then gets no notification.
        pub callback_reference: Option<Uri>,
        pub amf_service_name: Option<ServiceName>,
        /// Deviation: null reads as none, as in a request of free5GC's AMF.
        #[serde(deserialize_with = "crate::json::null_as_empty")]
        pub monitored_resource_uris: BoundedList<Uri, 0>,
        pub single_nssai: Option<Snssai>,
        pub dnn: Option<Dnn>,
        pub subscription_id: Option<ShortText>,
        pub plmn_id: Option<PlmnId>,
        pub immediate_report: Option<bool>,
        pub supported_features: Option<SupportedFeatures>,
        pub nf_change_filter: Option<bool>,
        pub unique_subscription: Option<bool>,
        pub data_restoration_callback_uri: Option<Uri>,
    }
    /// Access and mobility, `GET /{supi}/am-data`. TS 29.503 §6.1.6.2.4.
    #[derive(Default)]
    pub struct AccessAndMobilitySubscriptionData {
        pub supported_features: Option<SupportedFeatures>,
        pub gpsis: Option<BoundedList<Gpsi, 0>>,
        pub hss_group_id: Option<NfGroupId>,
        pub internal_group_ids: Option<BoundedList<GroupId, 0>>,
        pub subscribed_ue_ambr: Option<SbiAmbr>,
        pub nssai: Option<Nssai>,
        pub rat_restrictions: Option<BoundedList<RatType, 0>>,
        pub forbidden_areas: Option<BoundedList<Area, 0>>,
        pub service_area_restriction: Option<ServiceAreaRestriction>,
        pub core_network_type_restrictions: Option<BoundedList<CoreNetworkType, 0>>,
        pub rfsp_index: Option<RfspIndex>,
        /// Periodic registration timer in seconds.
        pub subs_reg_timer: Option<u32>,
        pub ue_usage_type: Option<u32>,
        pub mps_priority: Option<bool>,
        pub mcs_priority: Option<bool>,
        /// Active time of MICO in seconds.
        pub active_time: Option<u32>,
        pub sor_info: Option<SorInfo>,
        pub sor_info_expect_ind: Option<bool>,
        pub upu_info: Option<UpuInfo>,
        pub routing_indicator: Option<RoutingIndicator>,
        pub mico_allowed: Option<bool>,
        pub shared_am_data_ids: Option<BoundedList<SharedDataId, 0>>,
        pub odb_packet_services: Option<OdbPacketServices>,
        pub subscribed_dnn_list: Option<BoundedList<DnnOrWildcard, 0>>,
        /// Service gap in seconds.
        pub service_gap_time: Option<u32>,
        pub cag_data: Option<CagData>,
        pub nssai_inclusion_allowed: Option<bool>,
        pub primary_rat_restrictions: Option<BoundedList<RatType, 0>>,
        pub secondary_rat_restrictions: Option<BoundedList<RatType, 0>>,
        pub iab_operation_allowed: Option<bool>,
        pub remote_prov_ind: Option<bool>,
        #[serde(rename = "3gppChargingCharacteristics")]
        pub charging_characteristics: Option<ChargingCharacteristics>,
    }
    /// Steering of roaming. TS 29.503 §6.1.6.2.26.
    pub struct SorInfo {
        pub ack_ind: bool,
        pub provisioning_time: DateTime,
        pub sor_transparent_container: Option<TransparentContainer>,
    }
    /// Parameters for the UE. TS 29.503 §6.1.6.2.33.
    pub struct UpuInfo {
        pub upu_reg_ind: Option<bool>,
        pub upu_ack_ind: Option<bool>,
        pub provisioning_time: DateTime,
        pub upu_transparent_container: Option<TransparentContainer>,
    }
    /// Closed access groups of a subscriber by PLMN. TS 29.503 §6.1.6.2.42.
    pub struct CagData {
        pub cag_infos: BoundedMap<ShortText, CagInfo>,
        pub provisioning_time: Option<DateTime>,
    }
    /// Closed access groups in a PLMN. TS 29.503 §6.1.6.2.43.
    pub struct CagInfo {
        pub allowed_cag_list: BoundedList<CagId, 0>,
        pub cag_only_indicator: Option<bool>,
    }
    /// DNNs of each slice, `GET /{supi}/smf-select-data`. TS 29.503 §6.1.6.2.5.
    #[derive(Default)]
    pub struct SmfSelectionSubscriptionData {
        pub supported_features: Option<SupportedFeatures>,
        pub subscribed_snssai_infos: Option<BoundedMap<SnssaiKey, SnssaiInfo>>,
        pub shared_snssai_infos_id: Option<SharedDataId>,
        pub hss_group_id: Option<NfGroupId>,
    }
    /// DNN of a slice. TS 29.503 §6.1.6.2.6.
    pub struct DnnInfo {
        pub dnn: DnnOrWildcard,
        pub default_dnn_indicator: Option<bool>,
        pub lbo_roaming_allowed: Option<bool>,
        pub iwk_eps_ind: Option<bool>,
        pub dnn_barred: Option<bool>,
        pub invoke_nef_ind: Option<bool>,
        pub smf_list: Option<BoundedList<NfInstanceId>>,
        pub same_smf_ind: Option<bool>,
    }
    /// DNNs of a slice. TS 29.503 §6.1.6.2.7.
    pub struct SnssaiInfo {
        pub dnn_infos: BoundedList<DnnInfo>,
    }
    /// Sessions of a slice, `GET /{supi}/sm-data`. TS 29.503 §6.1.6.2.8.
    pub struct SessionManagementSubscriptionData {
        pub single_nssai: Snssai,
        pub dnn_configurations: Option<BoundedMap<DnnOrWildcard, DnnConfiguration>>,
        pub internal_group_ids: Option<BoundedList<GroupId, 0>>,
        pub shared_dnn_configurations_id: Option<SharedDataId>,
        pub odb_packet_services: Option<OdbPacketServices>,
        #[serde(rename = "3gppChargingCharacteristics")]
        pub charging_characteristics: Option<ChargingCharacteristics>,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// Sessions of a DNN. TS 29.503 §6.1.6.2.9.
    pub struct DnnConfiguration {
        pub pdu_session_types: PduSessionTypes,
        pub ssc_modes: SscModes,
        pub iwk_eps_ind: Option<bool>,
        #[serde(rename = "5gQosProfile")]
        pub five_g_qos_profile: Option<SubscribedDefaultQos>,
        pub session_ambr: Option<SbiAmbr>,
        #[serde(rename = "3gppChargingCharacteristics")]
        pub charging_characteristics: Option<ChargingCharacteristics>,
        pub static_ip_address: Option<BoundedList<IpAddr, 0>>,
        pub up_security: Option<SbiUpSecurity>,
        pub pdu_session_continuity_ind: Option<PduSessionContinuityInd>,
        pub redundant_session_allowed: Option<bool>,
        pub ipv4_frame_route_list: Option<BoundedList<FrameRouteInfo, 0>>,
        pub ipv6_frame_route_list: Option<BoundedList<FrameRouteInfo, 0>>,
        pub atsss_allowed: Option<bool>,
        pub secondary_auth: Option<bool>,
        pub dn_aaa_ip_address_allocation: Option<bool>,
        pub dn_aaa_address: Option<IpAddr>,
        pub dn_aaa_fqdn: Option<Fqdn>,
    }
    /// Types of session that a DNN allows. TS 29.503 §6.1.6.2.11.
    pub struct PduSessionTypes {
        pub default_session_type: Option<PduSessionType>,
        pub allowed_session_types: Option<BoundedList<PduSessionType, 0>>,
    }
    /// Modes of continuity that a DNN allows. TS 29.503 §6.1.6.2.12.
    pub struct SscModes {
        pub default_ssc_mode: SscMode,
        /// Modes beside the default. Deviation: three are read, where the table has two at most.
        pub allowed_ssc_modes: Option<BoundedList<SscMode, 0, 3>>,
    }
    /// Route behind a UE. TS 29.503 §6.1.6.2.56.
    pub struct FrameRouteInfo {
        pub ipv4_mask: Option<Ipv4AddrMask>,
        pub ipv6_prefix: Option<Ipv6Prefix>,
    }
    /// SMS subscription, `GET /{supi}/sms-data`. TS 29.503 §6.1.6.2.13.
    pub struct SmsSubscriptionData {
        pub sms_subscribed: Option<bool>,
        pub shared_sms_subs_data_id: Option<SharedDataId>,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// Several data sets in one answer, `GET /{supi}?dataset-names=…`. TS 29.503 §6.1.6.2.15.
    #[derive(Default)]
    pub struct SubscriptionDataSets {
        pub am_data: Option<AccessAndMobilitySubscriptionData>,
        pub smf_sel_data: Option<SmfSelectionSubscriptionData>,
        pub uec_amf_data: Option<UeContextInAmfData>,
        pub uec_smf_data: Option<UeContextInSmfData>,
        pub sms_subs_data: Option<SmsSubscriptionData>,
        pub sm_data: Option<SmSubsData>,
    }
    /// Sessions of a UE and their SMFs, `GET /{supi}/ue-context-in-smf-data`. TS 29.503 §6.1.6.2.16.
    #[derive(Default)]
    pub struct UeContextInSmfData {
        pub pdu_sessions: Option<BoundedMap<ShortText, RegisteredPduSession, 256>>,
        pub pgw_info: Option<BoundedList<PgwInfo, 0>>,
    }
    /// SMF of a session. TS 29.503 §6.1.6.2.17, `PduSession`.
    pub struct RegisteredPduSession {
        pub dnn: Dnn,
        pub smf_instance_id: NfInstanceId,
        pub plmn_id: PlmnId,
        pub single_nssai: Option<Snssai>,
    }
    /// Gateway of a session that may move to EPS. TS 29.503 §6.1.6.2.20.
    pub struct PgwInfo {
        pub dnn: Dnn,
        pub pgw_fqdn: Fqdn,
        pub plmn_id: Option<PlmnId>,
        pub epdg_ind: Option<bool>,
        pub registration_time: Option<DateTime>,
    }
    /// AMFs of a UE. TS 29.503 §6.1.6.2.61.
    pub struct UeContextInAmfData {
        pub amf_info: Option<BoundedList<ServingAmf, 1, 2>>,
    }
    /// AMF of a UE. TS 29.503 §6.1.6.2.64, `AmfInfo`.
    pub struct ServingAmf {
        pub amf_instance_id: NfInstanceId,
        pub guami: Guami,
        pub access_type: Option<AccessType>,
    }
    /// Changes of subscriber data, sent to the callback of a subscription. TS 29.503 §6.1.6.2.21.
    pub struct ModificationNotification {
        pub notify_items: BoundedList<NotifyItem>,
    }
    /// Identities of a subscriber, `GET /{ueId}/id-translation-result`. TS 29.503 §6.1.6.2.18.
    pub struct IdTranslationResult {
        pub supported_features: Option<SupportedFeatures>,
        pub supi: Supi,
        pub gpsi: Option<Gpsi>,
    }
    /// Session data by reference to what several subscribers share. TS 29.503 §6.1.6.2.80.
    pub struct ExtendedSmSubsData {
        pub shared_sm_subs_data_ids: BoundedList<SharedDataId>,
        pub individual_sm_subs_data: Option<BoundedList<SessionManagementSubscriptionData, 0, SUBSCRIBED_SLICES_MAX>>,
    }
    /// Session data in an object of Open5GS, which no clause has.
    pub struct ListedSmSubsData {
        #[serde(rename = "SessionManagementSubscriptionDataList")]
        pub list: BoundedList<SessionManagementSubscriptionData, 0, SUBSCRIBED_SLICES_MAX>,
    }
    /// SMSF of a UE. TS 29.503 §6.1.6.2.24.
    pub struct SmsfInfo {
        pub smsf_instance_id: NfInstanceId,
        pub plmn_id: PlmnId,
        pub smsf_set_id: Option<NfSetId>,
    }
}

either! {
    /// Session data of the subscribed slices. TS 29.503 §6.1.6.2.79.
    pub enum SmSubsData {
        /// Data of each slice.
        Slices(BoundedList<SessionManagementSubscriptionData, 0, SUBSCRIBED_SLICES_MAX>),
        /// Data by reference.
        Extended(Box<ExtendedSmSubsData>),
        /// Data of each slice in an object, as Open5GS writes them in an answer of several data sets.
        Listed(ListedSmSubsData),
    }
}

impl SmSubsData {
    /// The data that stand in the body itself.
    pub fn individual(&self) -> &[SessionManagementSubscriptionData] {
        match self {
            Self::Slices(slices) => slices,
            Self::Listed(listed) => &listed.list,
            Self::Extended(extended) => extended.individual_sm_subs_data.as_deref().unwrap_or_default(),
        }
    }
}

impl UeContextInSmfData {
    /// The sessions by their identities.
    pub fn sessions(&self) -> impl Iterator<Item = (SbiPduSessionId, &RegisteredPduSession)> {
        let sessions = self.pdu_sessions.iter().flat_map(|map| map.iter());
        sessions.filter_map(|(id, session)| Some((SbiPduSessionId::new(id.as_str().parse().ok()?)?, session)))
    }
}
