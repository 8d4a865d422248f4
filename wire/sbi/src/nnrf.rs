//! NRF services, NFManagement, NFDiscovery and AccessToken: TS 29.510 §6.1.6, §6.2.6, §6.3.5.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::common::{
    AccessType, AmfRegionId, AmfSetId, ChangeItem, DateTime, Dnai, DnnOrWildcard, ExtSnssai, Fqdn, Guami,
    IpAddr, NfGroupId, NfInstanceId, NfServiceSetId, NfSetId, Nid, PatchItem, PatchOperation, PduSessionType,
    Percentage, PlmnId, PlmnIdNid, RoutingIndicator, Sentence, ShortText, Snssai, SupportedFeatures, Tac,
    Tai, Uri, UriScheme,
};
use crate::json::{AnyJson, BoundedList, BoundedMap};

/// The longest token, in octets: a JWT of RSA-4096 with some hundred octets of claims has a third of it.
const TOKEN_OCTETS_MAX: usize = 4096;
/// Instances of an answer. An NRF of a large network has some hundreds of one type, and limits its answer by `limit`.
const INSTANCES_MAX: usize = 1024;

text! {
    /// Pattern of identities, a regular expression of ECMA-262. It is kept, and not evaluated here.
    pub struct IdentityPattern(512, |t| !t.chars().any(char::is_control), "a regular expression");
    /// First or last identity of a range: digits. TS 29.510 §6.1.6.2.9.
    pub struct RangeEnd(32, |t| t.bytes().all(|c| c.is_ascii_digit()), "digits");
    /// Identity of a subscription at an NRF. TS 29.510 §6.1.6.2.16.
    pub struct SubscriptionId(256, |t| t.bytes().all(|c| c.is_ascii_graphic()), "a subscription identifier");
    /// Services separated by blanks. TS 29.510 §6.3.5.2.2.
    pub struct Scope(2048, is_scope, "names of services separated by single blanks");
    /// Access token: a JWS in compact form (RFC 7515). Secret: its bearer is authorised.
    pub struct AccessToken(TOKEN_OCTETS_MAX, |t| t.bytes().all(|c| c.is_ascii_graphic()), "a token of at most 4096 octets") redacted;
}

fn is_scope(text: &str) -> bool {
    let sign = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b':' | b'-');
    text.split(' ').all(|service| !service.is_empty() && service.bytes().all(sign))
}

enumeration! {
    /// Type of a network function. TS 29.510 §6.1.6.3.3.
    pub enum NfType: extensible {
        Nrf = "NRF",
        Udm = "UDM",
        Amf = "AMF",
        Smf = "SMF",
        Ausf = "AUSF",
        Nef = "NEF",
        Pcf = "PCF",
        Smsf = "SMSF",
        Nssf = "NSSF",
        Udr = "UDR",
        Lmf = "LMF",
        Gmlc = "GMLC",
        FiveGEir = "5G_EIR",
        Sepp = "SEPP",
        Upf = "UPF",
        N3iwf = "N3IWF",
        Af = "AF",
        Udsf = "UDSF",
        Bsf = "BSF",
        Chf = "CHF",
        Nwdaf = "NWDAF",
        Pcscf = "PCSCF",
        Cbcf = "CBCF",
        Hss = "HSS",
        Scp = "SCP",
        Nssaaf = "NSSAAF",
        Nsacf = "NSACF",
    }
    /// State of an NF instance. TS 29.510 §6.1.6.3.7.
    pub enum NfStatus: extensible {
        Registered = "REGISTERED",
        Suspended = "SUSPENDED",
        Undiscoverable = "UNDISCOVERABLE",
    }
    /// State of a service of an NF instance. TS 29.510 §6.1.6.3.12.
    pub enum NfServiceStatus: extensible {
        Registered = "REGISTERED",
        Suspended = "SUSPENDED",
        Undiscoverable = "UNDISCOVERABLE",
    }
    /// Service of a network function. TS 29.510 §6.1.6.3.11.
    pub enum ServiceName: extensible {
        NnrfNfm = "nnrf-nfm",
        NnrfDisc = "nnrf-disc",
        NnrfOauth2 = "nnrf-oauth2",
        NudmSdm = "nudm-sdm",
        NudmUecm = "nudm-uecm",
        NudmUeau = "nudm-ueau",
        NudmEe = "nudm-ee",
        NudmPp = "nudm-pp",
        NamfComm = "namf-comm",
        NamfEvts = "namf-evts",
        NamfMt = "namf-mt",
        NamfLoc = "namf-loc",
        NsmfPdusession = "nsmf-pdusession",
        NsmfEventExposure = "nsmf-event-exposure",
        NausfAuth = "nausf-auth",
        NausfSorprotection = "nausf-sorprotection",
        NausfUpuprotection = "nausf-upuprotection",
        NpcfAmPolicyControl = "npcf-am-policy-control",
        NpcfSmpolicycontrol = "npcf-smpolicycontrol",
        NpcfPolicyauthorization = "npcf-policyauthorization",
        NpcfUePolicyControl = "npcf-ue-policy-control",
        NnssfNsselection = "nnssf-nsselection",
        NnssfNssaiavailability = "nnssf-nssaiavailability",
        NudrDr = "nudr-dr",
        N5gEirEic = "n5g-eir-eic",
        NbsfManagement = "nbsf-management",
        NchfSpendinglimitcontrol = "nchf-spendinglimitcontrol",
        NchfConvergedcharging = "nchf-convergedcharging",
        NchfOfflineonlycharging = "nchf-offlineonlycharging",
    }
    /// Transport of a service. TS 29.510 §6.1.6.3.10.
    pub enum TransportProtocol: extensible {
        Tcp = "TCP",
    }
    /// Kind of a notification that an instance takes without a subscription. TS 29.510 §6.1.6.3.4.
    pub enum NotificationType: extensible {
        N1Messages = "N1_MESSAGES",
        N2Information = "N2_INFORMATION",
        LocationNotification = "LOCATION_NOTIFICATION",
        DataRemovalNotification = "DATA_REMOVAL_NOTIFICATION",
        DataChangeNotification = "DATA_CHANGE_NOTIFICATION",
        DataRestorationNotification = "DATA_RESTORATION_NOTIFICATION",
    }
    /// Event of an NF instance. TS 29.510 §6.1.6.3.6.
    pub enum NotificationEventType: extensible {
        NfRegistered = "NF_REGISTERED",
        NfDeregistered = "NF_DEREGISTERED",
        NfProfileChanged = "NF_PROFILE_CHANGED",
    }
    /// Interface of a UPF. TS 29.510 §6.1.6.3.9.
    pub enum UpInterfaceType: extensible {
        N3 = "N3",
        N6 = "N6",
        N9 = "N9",
        DataForwarding = "DATA_FORWARDING",
    }
    /// Grant of a token request (RFC 6749 §4.4). TS 29.510 §6.3.5.2.2.
    pub enum GrantType: closed {
        ClientCredentials = "client_credentials",
    }
    /// Kind of a token (RFC 6750). TS 29.510 §6.3.5.2.3.
    pub enum TokenType: closed {
        Bearer = "Bearer",
    }
    /// Error of a token request (RFC 6749 §5.2). TS 29.510 §6.3.5.2.5.
    pub enum AccessTokenErrorCode: closed {
        InvalidRequest = "invalid_request",
        InvalidClient = "invalid_client",
        InvalidGrant = "invalid_grant",
        UnauthorizedClient = "unauthorized_client",
        UnsupportedGrantType = "unsupported_grant_type",
        InvalidScope = "invalid_scope",
    }
}

object! {
    /// NF instance, as it registers and as a discovery finds it. TS 29.510 §6.1.6.2.2 and §6.2.6.2.3.
    pub struct NfProfile {
        pub nf_instance_id: NfInstanceId,
        pub nf_instance_name: Option<ShortText>,
        pub nf_type: NfType,
        pub nf_status: NfStatus,
        /// Seconds between two heartbeats.
        pub heart_beat_timer: Option<u32>,
        pub plmn_list: Option<BoundedList<PlmnId, 0>>,
        pub snpn_list: Option<BoundedList<PlmnIdNid, 0>>,
        pub s_nssais: Option<BoundedList<ExtSnssai, 0>>,
        pub per_plmn_snssai_list: Option<BoundedList<PlmnSnssai, 0>>,
        pub nsi_list: Option<BoundedList<ShortText, 0>>,
        pub fqdn: Option<Fqdn>,
        pub inter_plmn_fqdn: Option<Fqdn>,
        pub ipv4_addresses: Option<BoundedList<Ipv4Addr, 0>>,
        pub ipv6_addresses: Option<BoundedList<Ipv6Addr, 0>>,
        pub allowed_plmns: Option<BoundedList<PlmnId, 0>>,
        pub allowed_nf_types: Option<BoundedList<NfType, 0>>,
        pub allowed_nf_domains: Option<BoundedList<ShortText, 0>>,
        pub allowed_nssais: Option<BoundedList<ExtSnssai, 0>>,
        /// Lower values are preferred.
        pub priority: Option<u16>,
        pub capacity: Option<u16>,
        pub load: Option<Percentage>,
        pub load_time_stamp: Option<DateTime>,
        pub locality: Option<ShortText>,
        pub udr_info: Option<UdrInfo>,
        pub udm_info: Option<UdmInfo>,
        pub ausf_info: Option<AusfInfo>,
        pub amf_info: Option<AmfInfo>,
        pub smf_info: Option<SmfInfo>,
        pub smf_info_list: Option<BoundedMap<ShortText, SmfInfo>>,
        pub upf_info: Option<UpfInfo>,
        pub pcf_info: Option<PcfInfo>,
        pub chf_info: Option<ChfInfo>,
        pub recovery_time: Option<DateTime>,
        pub nf_service_persistence: Option<bool>,
        pub nf_services: Option<BoundedList<NfService, 0>>,
        pub nf_service_list: Option<BoundedMap<ShortText, NfService>>,
        pub nf_profile_changes_support_ind: Option<bool>,
        pub nf_profile_changes_ind: Option<bool>,
        pub default_notification_subscriptions: Option<BoundedList<DefaultNotificationSubscription, 0>>,
        pub nf_set_id_list: Option<BoundedList<NfSetId, 0>>,
        pub serving_scope: Option<BoundedList<ShortText, 0>>,
        pub lc_h_support_ind: Option<bool>,
        pub olc_h_support_ind: Option<bool>,
        pub scp_domains: Option<BoundedList<ShortText, 0>>,
    }
    /// Service of an NF instance. TS 29.510 §6.1.6.2.3 and §6.2.6.2.4.
    pub struct NfService {
        pub service_instance_id: ShortText,
        pub service_name: ServiceName,
        pub versions: BoundedList<NfServiceVersion, 1, 16>,
        pub scheme: UriScheme,
        pub nf_service_status: NfServiceStatus,
        pub fqdn: Option<Fqdn>,
        pub inter_plmn_fqdn: Option<Fqdn>,
        pub ip_end_points: Option<BoundedList<IpEndPoint, 0>>,
        pub api_prefix: Option<ShortText>,
        pub default_notification_subscriptions: Option<BoundedList<DefaultNotificationSubscription, 0>>,
        pub allowed_plmns: Option<BoundedList<PlmnId, 0>>,
        pub allowed_nf_types: Option<BoundedList<NfType, 0>>,
        pub allowed_nf_domains: Option<BoundedList<ShortText, 0>>,
        pub allowed_nssais: Option<BoundedList<ExtSnssai, 0>>,
        /// Lower values are preferred.
        pub priority: Option<u16>,
        pub capacity: Option<u16>,
        pub load: Option<Percentage>,
        pub load_time_stamp: Option<DateTime>,
        pub recovery_time: Option<DateTime>,
        pub supported_features: Option<SupportedFeatures>,
        pub nf_service_set_id_list: Option<BoundedList<NfServiceSetId, 0>>,
        pub s_nssais: Option<BoundedList<ExtSnssai, 0>>,
        pub per_plmn_snssai_list: Option<BoundedList<PlmnSnssai, 0>>,
        pub oauth2_required: Option<bool>,
    }
    /// Notifications that an instance takes without a subscription. TS 29.510 §6.1.6.2.4.
    pub struct DefaultNotificationSubscription {
        pub notification_type: NotificationType,
        pub callback_uri: Uri,
        pub inter_plmn_callback_uri: Option<Uri>,
        pub n1_message_class: Option<ShortText>,
        pub n2_information_class: Option<ShortText>,
        pub versions: Option<BoundedList<ShortText, 0, 16>>,
        pub binding: Option<Sentence>,
        pub supported_features: Option<SupportedFeatures>,
    }
    /// Address of a service. TS 29.510 §6.1.6.2.5.
    pub struct IpEndPoint {
        pub ipv4_address: Option<Ipv4Addr>,
        pub ipv6_address: Option<Ipv6Addr>,
        pub transport: Option<TransportProtocol>,
        pub port: Option<u16>,
    }
    /// Subscribers of a UDR. TS 29.510 §6.1.6.2.6.
    #[derive(Default)]
    pub struct UdrInfo {
        pub group_id: Option<NfGroupId>,
        pub supi_ranges: Option<BoundedList<SupiRange, 0>>,
        pub gpsi_ranges: Option<BoundedList<IdentityRange, 0>>,
    }
    /// Subscribers of a UDM. TS 29.510 §6.1.6.2.7.
    #[derive(Default)]
    pub struct UdmInfo {
        pub group_id: Option<NfGroupId>,
        pub supi_ranges: Option<BoundedList<SupiRange, 0>>,
        pub gpsi_ranges: Option<BoundedList<IdentityRange, 0>>,
        pub routing_indicators: Option<BoundedList<RoutingIndicator, 0>>,
        pub suci_infos: Option<BoundedList<SuciInfo, 0>>,
    }
    /// Subscribers of an AUSF. TS 29.510 §6.1.6.2.8.
    #[derive(Default)]
    pub struct AusfInfo {
        pub group_id: Option<NfGroupId>,
        pub supi_ranges: Option<BoundedList<SupiRange, 0>>,
        pub routing_indicators: Option<BoundedList<RoutingIndicator, 0>>,
        pub suci_infos: Option<BoundedList<SuciInfo, 0>>,
    }
    /// Range of SUPIs. TS 29.510 §6.1.6.2.9.
    #[derive(Default)]
    pub struct SupiRange {
        pub start: Option<RangeEnd>,
        pub end: Option<RangeEnd>,
        pub pattern: Option<IdentityPattern>,
    }
    /// Range of GPSIs or external groups. TS 29.510 §6.1.6.2.10.
    #[derive(Default)]
    pub struct IdentityRange {
        pub start: Option<RangeEnd>,
        pub end: Option<RangeEnd>,
        pub pattern: Option<IdentityPattern>,
    }
    /// Concealed identities that an instance serves. TS 29.510 §6.1.6.2.71.
    pub struct SuciInfo {
        pub routing_inds: Option<BoundedList<RoutingIndicator, 0>>,
        pub h_nw_pub_key_ids: Option<BoundedList<u8, 0>>,
    }
    /// Areas and identities of an AMF. TS 29.510 §6.1.6.2.11.
    pub struct AmfInfo {
        pub amf_set_id: AmfSetId,
        pub amf_region_id: AmfRegionId,
        pub guami_list: BoundedList<Guami>,
        pub tai_list: Option<BoundedList<Tai, 0>>,
        pub tai_range_list: Option<BoundedList<TaiRange, 0>>,
        pub backup_info_amf_failure: Option<BoundedList<Guami, 0>>,
        pub backup_info_amf_removal: Option<BoundedList<Guami, 0>>,
        pub n2_interface_amf_info: Option<N2InterfaceAmfInfo>,
    }
    /// Slices and areas of an SMF. TS 29.510 §6.1.6.2.12.
    pub struct SmfInfo {
        #[serde(rename = "sNssaiSmfInfoList")]
        pub s_nssai_smf_info_list: BoundedList<SnssaiSmfInfoItem>,
        pub tai_list: Option<BoundedList<Tai, 0>>,
        pub tai_range_list: Option<BoundedList<TaiRange, 0>>,
        pub pgw_fqdn: Option<Fqdn>,
        pub pgw_ip_addr_list: Option<BoundedList<IpAddr, 0>>,
        pub access_type: Option<BoundedList<AccessType, 0, 2>>,
        pub priority: Option<u16>,
        pub vsmf_support_ind: Option<bool>,
        pub ismf_support_ind: Option<bool>,
    }
    /// Slices and areas of a UPF. TS 29.510 §6.1.6.2.13.
    pub struct UpfInfo {
        #[serde(rename = "sNssaiUpfInfoList")]
        pub s_nssai_upf_info_list: BoundedList<SnssaiUpfInfoItem>,
        pub smf_serving_area: Option<BoundedList<ShortText, 0>>,
        pub interface_upf_info_list: Option<BoundedList<InterfaceUpfInfoItem, 0>>,
        pub iwk_eps_ind: Option<bool>,
        pub pdu_session_types: Option<BoundedList<PduSessionType, 0>>,
        pub ue_ip_addr_ind: Option<bool>,
        pub tai_list: Option<BoundedList<Tai, 0>>,
        pub tai_range_list: Option<BoundedList<TaiRange, 0>>,
        pub priority: Option<u16>,
    }
    /// DNNs of a UPF in a slice. TS 29.510 §6.1.6.2.14.
    pub struct SnssaiUpfInfoItem {
        pub s_nssai: ExtSnssai,
        pub dnn_upf_info_list: BoundedList<DnnUpfInfoItem>,
    }
    /// DNN of a UPF. TS 29.510 §6.1.6.2.15.
    pub struct DnnUpfInfoItem {
        pub dnn: DnnOrWildcard,
        pub dnai_list: Option<BoundedList<Dnai, 0>>,
        pub pdu_session_types: Option<BoundedList<PduSessionType, 0>>,
    }
    /// Subscription to the state of NF instances, `POST /subscriptions`. TS 29.510 §6.1.6.2.16.
    pub struct SubscriptionData {
        pub nf_status_notification_uri: Uri,
        pub req_nf_instance_id: Option<NfInstanceId>,
        pub subscr_cond: Option<SubscrCond>,
        /// The NRF gives it: a request has none.
        pub subscription_id: Option<SubscriptionId>,
        pub validity_time: Option<DateTime>,
        pub req_notif_events: Option<BoundedList<NotificationEventType, 0>>,
        pub plmn_id: Option<PlmnId>,
        pub nid: Option<Nid>,
        pub req_nf_type: Option<NfType>,
        pub req_nf_fqdn: Option<Fqdn>,
        pub req_snssais: Option<BoundedList<ExtSnssai, 0>>,
        pub req_plmn_list: Option<BoundedList<PlmnId, 0>>,
        pub requester_features: Option<SupportedFeatures>,
        pub nrf_supported_features: Option<SupportedFeatures>,
    }
    /// State of an NF instance, sent to a subscriber. TS 29.510 §6.1.6.2.17.
    pub struct NotificationData {
        pub event: NotificationEventType,
        pub nf_instance_uri: Uri,
        pub nf_profile: Option<NfProfile>,
        pub profile_changes: Option<BoundedList<ChangeItem, 0>>,
    }
    /// Version of a service. TS 29.510 §6.1.6.2.19.
    pub struct NfServiceVersion {
        pub api_version_in_uri: ShortText,
        pub api_full_version: ShortText,
        pub expiry: Option<DateTime>,
    }
    /// Subscribers and DNNs of a PCF. TS 29.510 §6.1.6.2.20.
    #[derive(Default)]
    pub struct PcfInfo {
        pub group_id: Option<NfGroupId>,
        pub dnn_list: Option<BoundedList<DnnOrWildcard, 0>>,
        pub supi_ranges: Option<BoundedList<SupiRange, 0>>,
        pub gpsi_ranges: Option<BoundedList<IdentityRange, 0>>,
    }
    /// Address of a UPF's interface. TS 29.510 §6.1.6.2.24.
    pub struct InterfaceUpfInfoItem {
        pub interface_type: UpInterfaceType,
        pub ipv4_endpoint_addresses: Option<BoundedList<Ipv4Addr, 0>>,
        pub ipv6_endpoint_addresses: Option<BoundedList<Ipv6Addr, 0>>,
        pub endpoint_fqdn: Option<Fqdn>,
        pub network_instance: Option<ShortText>,
    }
    /// N2 addresses of an AMF. TS 29.510 §6.1.6.2.26.
    pub struct N2InterfaceAmfInfo {
        pub ipv4_endpoint_address: Option<BoundedList<Ipv4Addr, 0>>,
        pub ipv6_endpoint_address: Option<BoundedList<Ipv6Addr, 0>>,
        pub amf_name: Option<Fqdn>,
    }
    /// Ranges of tracking areas of a PLMN. TS 29.510 §6.1.6.2.27.
    pub struct TaiRange {
        pub plmn_id: PlmnId,
        pub tac_range_list: BoundedList<TacRange>,
        pub nid: Option<Nid>,
    }
    /// Range of tracking areas. TS 29.510 §6.1.6.2.28.
    pub struct TacRange {
        pub start: Option<Tac>,
        pub end: Option<Tac>,
        pub pattern: Option<IdentityPattern>,
    }
    /// DNNs of an SMF in a slice. TS 29.510 §6.1.6.2.29.
    pub struct SnssaiSmfInfoItem {
        pub s_nssai: ExtSnssai,
        pub dnn_smf_info_list: BoundedList<DnnSmfInfoItem>,
    }
    /// DNN of an SMF. TS 29.510 §6.1.6.2.30.
    pub struct DnnSmfInfoItem {
        pub dnn: DnnOrWildcard,
        pub dnai_list: Option<BoundedList<Dnai, 0>>,
    }
    /// Subscribers of a CHF. TS 29.510 §6.1.6.2.32.
    #[derive(Default)]
    pub struct ChfInfo {
        pub supi_range_list: Option<BoundedList<SupiRange, 0>>,
        pub gpsi_range_list: Option<BoundedList<IdentityRange, 0>>,
        pub group_id: Option<NfGroupId>,
        pub primary_chf_instance: Option<NfInstanceId>,
        pub secondary_chf_instance: Option<NfInstanceId>,
    }
    /// Instances to which a subscription applies: by instance, type or service. TS 29.510 §6.1.6.2.35.
    #[derive(Default)]
    pub struct SubscrCond {
        pub nf_instance_id: Option<NfInstanceId>,
        pub nf_type: Option<NfType>,
        pub service_name: Option<ServiceName>,
    }
    /// Slices of a PLMN. TS 29.510 §6.1.6.2.44.
    pub struct PlmnSnssai {
        pub plmn_id: PlmnId,
        pub s_nssai_list: BoundedList<ExtSnssai>,
        pub nid: Option<Nid>,
    }
    /// Answer to a discovery, `GET /nf-instances?…`. TS 29.510 §6.2.6.2.2.
    pub struct SearchResult {
        /// Seconds for which the answer may be kept.
        pub validity_period: Option<u32>,
        #[serde(deserialize_with = "crate::json::null_as_empty")]
        pub nf_instances: BoundedList<NfProfile, 0, INSTANCES_MAX>,
        pub search_id: Option<ShortText>,
        pub num_nf_inst_complete: Option<u32>,
        pub nrf_supported_features: Option<SupportedFeatures>,
    }
    /// Token that an NRF issued. TS 29.510 §6.3.5.2.3.
    pub struct AccessTokenRsp {
        #[serde(rename = "access_token")]
        pub access_token: AccessToken,
        #[serde(rename = "token_type")]
        pub token_type: TokenType,
        /// Seconds from the answer.
        #[serde(rename = "expires_in")]
        pub expires_in: Option<u32>,
        pub scope: Option<Scope>,
    }
    /// Claims of a token. TS 29.510 §6.3.5.2.4.
    pub struct AccessTokenClaims {
        /// Instance of the NRF. Deviation: may be missing, as free5GC leaves it empty.
        pub iss: Option<NfInstanceId>,
        pub sub: NfInstanceId,
        /// Deviation: may be missing, as free5GC leaves it empty.
        pub aud: Option<Audience>,
        pub scope: Scope,
        /// Seconds since 1970.
        pub exp: u64,
        pub consumer_plmn_id: Option<PlmnId>,
        pub producer_plmn_id: Option<PlmnId>,
        pub producer_snssai_list: Option<BoundedList<Snssai, 0>>,
        pub producer_nsi_list: Option<BoundedList<ShortText, 0>>,
        pub producer_nf_set_id: Option<NfSetId>,
        pub producer_nf_service_set_id: Option<NfServiceSetId>,
        pub source_nf_instance_id: Option<NfInstanceId>,
    }
    /// Refusal of a token request (RFC 6749 §5.2). TS 29.510 §6.3.5.2.5.
    pub struct AccessTokenErr {
        pub error: AccessTokenErrorCode,
        #[serde(rename = "error_description")]
        pub error_description: Option<Sentence>,
        #[serde(rename = "error_uri")]
        pub error_uri: Option<Uri>,
    }
    /// Request for a token, a form and no JSON: see [`AccessTokenReq::to_form`]. TS 29.510 §6.3.5.2.2.
    pub struct AccessTokenReq {
        #[serde(rename = "grant_type")]
        pub grant_type: GrantType,
        pub nf_instance_id: NfInstanceId,
        pub nf_type: Option<NfType>,
        pub target_nf_type: Option<NfType>,
        pub scope: Scope,
        pub target_nf_instance_id: Option<NfInstanceId>,
        pub requester_plmn: Option<PlmnId>,
        pub target_plmn: Option<PlmnId>,
    }
}

either! {
    /// Producers that a token is for: a type, or instances. TS 29.510 §6.3.5.2.4.
    pub enum Audience {
        /// Instances by their identities.
        Instances(BoundedList<NfInstanceId, 1, 64>),
        /// One instance: Deviation from the array of the clause, as free5GC writes it.
        Instance(NfInstanceId),
        /// All instances of a type.
        Type(NfType),
    }
}

impl NfProfile {
    /// A profile of the mandatory members; at least one of `fqdn`, `ipv4_addresses` and `ipv6_addresses` is to be set.
    pub fn new(nf_instance_id: NfInstanceId, nf_type: NfType, nf_status: NfStatus) -> Self {
        Self {
            nf_instance_id,
            nf_instance_name: None,
            nf_type,
            nf_status,
            heart_beat_timer: None,
            plmn_list: None,
            snpn_list: None,
            s_nssais: None,
            per_plmn_snssai_list: None,
            nsi_list: None,
            fqdn: None,
            inter_plmn_fqdn: None,
            ipv4_addresses: None,
            ipv6_addresses: None,
            allowed_plmns: None,
            allowed_nf_types: None,
            allowed_nf_domains: None,
            allowed_nssais: None,
            priority: None,
            capacity: None,
            load: None,
            load_time_stamp: None,
            locality: None,
            udr_info: None,
            udm_info: None,
            ausf_info: None,
            amf_info: None,
            smf_info: None,
            smf_info_list: None,
            upf_info: None,
            pcf_info: None,
            chf_info: None,
            recovery_time: None,
            nf_service_persistence: None,
            nf_services: None,
            nf_service_list: None,
            nf_profile_changes_support_ind: None,
            nf_profile_changes_ind: None,
            default_notification_subscriptions: None,
            nf_set_id_list: None,
            serving_scope: None,
            lc_h_support_ind: None,
            olc_h_support_ind: None,
            scp_domains: None,
        }
    }

    /// The services, from the map of TS 29.510 or from the array that it replaces.
    pub fn services(&self) -> impl Iterator<Item = &NfService> {
        let listed = self.nf_service_list.iter().flat_map(|map| map.values());
        let array = if self.nf_service_list.is_some() { None } else { self.nf_services.as_ref() };
        listed.chain(array.into_iter().flatten())
    }
}

impl NfService {
    /// A service of the mandatory members in version 1 (`v1`, `1.0.0`).
    pub fn new(service_instance_id: ShortText, service_name: ServiceName, scheme: UriScheme) -> Self {
        let v1 = NfServiceVersion {
            api_version_in_uri: ShortText::new("v1").expect("a name"),
            api_full_version: ShortText::new("1.0.0").expect("a name"),
            expiry: None,
        };
        Self {
            service_instance_id,
            service_name,
            versions: BoundedList::one(v1),
            scheme,
            nf_service_status: NfServiceStatus::Registered,
            fqdn: None,
            inter_plmn_fqdn: None,
            ip_end_points: None,
            api_prefix: None,
            default_notification_subscriptions: None,
            allowed_plmns: None,
            allowed_nf_types: None,
            allowed_nf_domains: None,
            allowed_nssais: None,
            priority: None,
            capacity: None,
            load: None,
            load_time_stamp: None,
            recovery_time: None,
            supported_features: None,
            nf_service_set_id_list: None,
            s_nssais: None,
            per_plmn_snssai_list: None,
            oauth2_required: None,
        }
    }
}

/// Body of a heartbeat, `PATCH /nf-instances/{nfInstanceID}`: state, and load if it is known. TS 29.510 §5.2.2.3.2.
pub fn heartbeat(status: &NfStatus, load: Option<Percentage>) -> BoundedList<PatchItem> {
    let replace = |path: &str, value: AnyJson| PatchItem {
        op: PatchOperation::Replace,
        path: path.parse().expect("a pointer"),
        from: None,
        value: Some(value),
    };
    let mut items = vec![replace("/nfStatus", status.as_str().into())];
    items.extend(load.map(|load| replace("/load", load.value().into())));
    BoundedList::new(items).expect("one or two items")
}

impl AccessTokenReq {
    /// The body, `application/x-www-form-urlencoded`. A PLMN is JSON in it, as TS 29.501 §5.3.13 has objects in queries.
    pub fn to_form(&self) -> String {
        let mut form = String::from("grant_type=");
        form.push_str(self.grant_type.as_str());
        let mut add = |name: &str, value: Option<&str>| {
            if let Some(value) = value {
                form.push('&');
                form.push_str(name);
                form.push('=');
                push_encoded(&mut form, value);
            }
        };
        let json = |plmn: &Option<PlmnId>| {
            plmn.as_ref().map(|plmn| String::from_utf8(crate::json::to_vec(plmn)).expect("JSON is UTF-8"))
        };
        add("nfInstanceId", Some(self.nf_instance_id.as_str()));
        add("nfType", self.nf_type.as_ref().map(NfType::as_str));
        add("targetNfType", self.target_nf_type.as_ref().map(NfType::as_str));
        add("scope", Some(self.scope.as_str()));
        add("targetNfInstanceId", self.target_nf_instance_id.as_ref().map(NfInstanceId::as_str));
        add("requesterPlmn", json(&self.requester_plmn).as_deref());
        add("targetPlmn", json(&self.target_plmn).as_deref());
        form
    }
}

/// Appends a value to a query or form; all but the unreserved signs of RFC 3986 §2.3 are encoded.
pub fn push_encoded(to: &mut String, value: &str) {
    for octet in value.bytes() {
        match octet {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => to.push(char::from(octet)),
            _ => {
                let digit = |d: u8| char::from(b"0123456789ABCDEF"[usize::from(d & 0xf)]);
                to.extend(['%', digit(octet >> 4), digit(octet)]);
            }
        }
    }
}
