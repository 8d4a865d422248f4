//! Data types that all interfaces share: TS 29.571.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use whimbrel_ids as ids;

use crate::json::{AnyJson, BoundedList, BoundedMap, WrongValue, hex_vec, write_hex};

/// The longest URI, in octets: TS 29.501 has no bound; a header list of 16 KiB holds one of this length with its other fields.
const URI_OCTETS_MAX: usize = 2048;
/// The longest host name: RFC 1035 §2.3.4.
const FQDN_OCTETS_MAX: usize = 253;
/// The longest network access identifier: RFC 7542 §2.2. A SUPI or SUCI has its prefix before it.
const NAI_OCTETS_MAX: usize = 253;
/// The longest SUCI: a null-scheme or concealed identifier of that length in hexadecimal digits, with its prefix and parameters.
const SUCI_OCTETS_MAX: usize = 1024;
/// The longest text that is for people: a sentence or two, in octets.
const SENTENCE_OCTETS_MAX: usize = 1024;

fn digits(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_digit())
}

fn hex_digits(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_hexdigit())
}

fn graphic(text: &str) -> bool {
    text.bytes().all(|c| c.is_ascii_graphic())
}

fn no_control(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn is_subscriber(text: &str) -> bool {
    match text.split_once('-') {
        Some(("imsi", imsi)) => (5..=15).contains(&imsi.len()) && digits(imsi),
        _ => no_control(text),
    }
}

fn is_equipment(text: &str) -> bool {
    match text.split_once('-') {
        Some(("imei", imei)) => imei.len() == 15 && digits(imei),
        Some(("imeisv", imeisv)) => imeisv.len() == 16 && digits(imeisv),
        _ => graphic(text),
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    text.split('-').count() == lengths.len()
        && text.split('-').zip(lengths).all(|(part, n)| part.len() == n && hex_digits(part))
}

fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

text! {
    /// SUPI: `imsi-` and 5 to 15 digits, `nai-`, `gli-`, `gci-` and an identifier, or another form. TS 29.571 §5.3.2.
    pub struct Supi(4 + NAI_OCTETS_MAX, is_subscriber, "a SUPI such as imsi-999700000000001") redacted;
    /// SUPI or SUCI, as `suci-0-999-70-0-0-0-0000000001`. TS 29.571 §5.3.2.
    pub struct SupiOrSuci(SUCI_OCTETS_MAX, is_subscriber, "a SUPI or a SUCI such as suci-0-999-70-0-0-0-0000000001") redacted;
    /// GPSI: `msisdn-` and 5 to 15 digits, `extid-` and an external identifier, or another form. TS 29.571 §5.3.2.
    pub struct Gpsi(6 + NAI_OCTETS_MAX, no_control, "a GPSI such as msisdn-0900000000") redacted;
    /// Permanent equipment identifier: `imei-`, `imeisv-`, `mac-`, `eui-` or another form. TS 29.571 §5.3.2.
    pub struct Pei(128, is_equipment, "a PEI such as imeisv-4370816125816151") redacted;
    /// Internal group identifier. TS 29.571 §5.3.2.
    pub struct GroupId(64, graphic, "an internal group identifier");
    /// Identity of a group of UDM, AUSF, UDR, PCF or CHF. TS 29.571 §5.3.2.
    pub struct NfGroupId(128, graphic, "an NF group identifier");
    /// Identity of an NF set. TS 29.571 §5.3.2; its format is TS 23.003 §28.12.
    pub struct NfSetId(FQDN_OCTETS_MAX, graphic, "an NF set identifier");
    /// Identity of an NF service set. TS 29.571 §5.3.2; its format is TS 23.003 §28.13.
    pub struct NfServiceSetId(512, graphic, "an NF service set identifier");
    /// Identity of an NF instance: a UUID (RFC 9562). TS 29.571 §5.3.2.
    pub struct NfInstanceId(36, is_uuid, "a UUID such as 4947a69a-f61b-4bc1-b9da-47c9c5d14b64");
    /// Routing indicator of the SUCI: 1 to 4 digits. TS 23.003 §2.2B.
    pub struct RoutingIndicator(4, digits, "1 to 4 digits");
    /// Closed access group. TS 29.571 §5.3.2.
    pub struct CagId(8, |t| t.len() == 8 && hex_digits(t), "8 hexadecimal digits");
    /// Mobile country code. TS 29.571 §5.4.2.
    pub struct Mcc(3, |t| t.len() == 3 && digits(t), "3 digits");
    /// Mobile network code. TS 29.571 §5.4.2.
    pub struct Mnc(3, |t| t.len() >= 2 && digits(t), "2 or 3 digits");
    /// Network identifier of a standalone non-public network. TS 29.571 §5.4.2.
    pub struct Nid(11, |t| t.len() == 11 && hex_digits(t), "11 hexadecimal digits");
    /// Data network name, with the operator identifier or without. TS 29.571 §5.3.2.
    pub struct Dnn(ids::Dnn::LEN_MAX, |t| t.parse::<ids::Dnn>().is_ok(), "a DNN such as internet");
    /// Data network name, or `*` for all others. TS 29.571 §5.3.2.
    pub struct DnnOrWildcard(ids::Dnn::LEN_MAX, |t| t == "*" || t.parse::<ids::Dnn>().is_ok(), "a DNN such as internet, or *");
    /// Data network access identifier. TS 29.571 §5.4.2.
    pub struct Dnai(256, graphic, "a DNAI");
    /// Host name. TS 29.571 §5.2.2.
    ///
    /// Deviation: a name of one label, and labels with `_`, which names of containers have, are read as well.
    pub struct Fqdn(FQDN_OCTETS_MAX, is_host, "a host name");
    /// URI (RFC 3986), absolute or relative. TS 29.571 §5.2.2.
    pub struct Uri(URI_OCTETS_MAX, graphic, "a URI");
    /// IPv6 prefix. TS 29.571 §5.2.2.
    pub struct Ipv6Prefix(43, is_ipv6_prefix, "an IPv6 prefix such as 2001:db8::/64");
    /// IPv4 prefix. TS 29.571 §5.2.2.
    pub struct Ipv4AddrMask(18, is_ipv4_prefix, "an IPv4 prefix such as 198.51.100.0/24");
    /// Optional features that both sides agree on, as hexadecimal digits, the last of which has features 1 to 4. TS 29.571 §5.2.2.
    pub struct SupportedFeatures(64, hex_digits, "hexadecimal digits") or_empty;
    /// Data that several subscribers share. TS 29.503 §6.1.6.3.2.
    pub struct SharedDataId(128, graphic, "a shared data identifier");
    /// Text for people. TS 29.571 §5.2.4.1.
    pub struct Sentence(SENTENCE_OCTETS_MAX, |_| true, "a text of 1 to 1024 octets");
    /// Short text without control characters: a name, a version, an identity that the specification leaves open.
    pub struct ShortText(256, no_control, "a text of 1 to 256 octets without control characters");
    /// JSON Pointer (RFC 6901), or a path with the member's name. TS 29.571 §5.2.4.
    pub struct JsonPointer(1024, no_control, "a JSON Pointer");
    /// JSON Pointer of a change; empty for the whole resource (RFC 6901 §5). TS 29.571 §5.2.4.8.
    pub struct ChangePath(1024, no_control, "a JSON Pointer") or_empty;
    /// Cell identity of E-UTRA. TS 29.571 §5.4.2.
    pub struct EutraCellId(7, |t| t.len() == 7 && hex_digits(t), "7 hexadecimal digits");
    /// Cell identity of NR: 36 bits. TS 29.571 §5.4.2.
    pub struct NrCellId(9, |t| t.len() == 9 && hex_digits(t), "9 hexadecimal digits");
    /// Identity of an N3IWF, a TNGF or a W-AGF. TS 29.571 §5.4.2.
    pub struct N3IwfId(8, hex_digits, "hexadecimal digits");
    /// Identity of an ng-eNB. TS 29.571 §5.4.2.
    pub struct NgeNbId(32, graphic, "an ng-eNB identity such as MacroNGeNB-34B89");
    /// Location of a cell in the coding of TS 23.032. TS 29.571 §5.4.4.
    pub struct GeographicalInformation(20, hex_digits, "hexadecimal digits");
    /// Area of TS 23.003 that an operator names. TS 29.571 §5.4.2.
    pub struct AreaCode(64, no_control, "an area code");
    /// Slice as a member's name: `1` or `1-0000ab`. TS 29.571 §5.4.4.2.
    pub struct SnssaiKey(32, graphic, "a slice such as 1-0000ab");
}

fn is_ipv6_prefix(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    address.parse::<Ipv6Addr>().is_ok() && length.parse::<u8>().is_ok_and(|n| n <= 128)
}

fn is_ipv4_prefix(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    address.parse::<Ipv4Addr>().is_ok() && length.parse::<u8>().is_ok_and(|n| n <= 32)
}

octets! {
    /// AMF identifier: region, set and pointer. TS 29.571 §5.3.2.
    pub struct AmfId(3);
    /// AMF region. TS 29.571 §5.3.2.
    pub struct AmfRegionId(1);
    /// Slice differentiator. TS 29.571 §5.4.4.2.
    pub struct Sd(3);
}

ranged! {
    /// 5G QoS identifier. TS 29.571 §5.5.2.
    pub struct FiveQi(u8) in 0..=255;
    /// Priority level of a 5QI. TS 29.571 §5.5.2.
    pub struct FiveQiPriorityLevel(u8) in 1..=127;
    /// Priority level of allocation and retention. TS 29.571 §5.5.2.
    pub struct ArpPriorityLevel(u8) in 1..=15;
    /// QoS flow identifier. TS 29.571 §5.5.2.
    pub struct Qfi(u8) in 0..=63;
    /// Identity of a PDU session. TS 29.571 §5.4.2.
    pub struct SbiPduSessionId(u8) in 0..=255;
    /// Index to RAT/frequency selection priority. TS 29.571 §5.4.2.
    pub struct RfspIndex(u16) in 1..=256;
    /// Percentage. TS 29.510 §6.1.6.2.2.
    pub struct Percentage(u8) in 0..=100;
}

impl From<ids::PduSessionId> for SbiPduSessionId {
    fn from(id: ids::PduSessionId) -> Self {
        Self(id.value())
    }
}

enumeration! {
    /// Access of a UE. TS 29.571 §5.4.3.1.
    pub enum AccessType: closed {
        ThreeGppAccess = "3GPP_ACCESS",
        NonThreeGppAccess = "NON_3GPP_ACCESS",
    }
    /// Radio access technology. TS 29.571 §5.4.3.2.
    pub enum RatType: extensible {
        Nr = "NR",
        Eutra = "EUTRA",
        Wlan = "WLAN",
        Virtual = "VIRTUAL",
        Nbiot = "NBIOT",
        Wireline = "WIRELINE",
        WirelineCable = "WIRELINE_CABLE",
        WirelineBbf = "WIRELINE_BBF",
        LteM = "LTE-M",
        NrU = "NR_U",
        EutraU = "EUTRA_U",
        TrustedN3ga = "TRUSTED_N3GA",
        TrustedWlan = "TRUSTED_WLAN",
        Utra = "UTRA",
        Gera = "GERA",
        NrLeo = "NR_LEO",
        NrMeo = "NR_MEO",
        NrGeo = "NR_GEO",
        NrOtherSat = "NR_OTHER_SAT",
        NrRedcap = "NR_REDCAP",
    }
    /// Type of a PDU session. TS 29.571 §5.4.3.3.
    pub enum PduSessionType: extensible {
        Ipv4 = "IPV4",
        Ipv6 = "IPV6",
        Ipv4v6 = "IPV4V6",
        Unstructured = "UNSTRUCTURED",
        Ethernet = "ETHERNET",
    }
    /// Integrity protection of the user plane. TS 29.571 §5.4.3.4.
    pub enum UpIntegrity: extensible {
        Required = "REQUIRED",
        Preferred = "PREFERRED",
        NotNeeded = "NOT_NEEDED",
    }
    /// Ciphering of the user plane. TS 29.571 §5.4.3.5.
    pub enum UpConfidentiality: extensible {
        Required = "REQUIRED",
        Preferred = "PREFERRED",
        NotNeeded = "NOT_NEEDED",
    }
    /// Session and service continuity. TS 29.571 §5.4.3.6.
    pub enum SscMode: extensible {
        SscMode1 = "SSC_MODE_1",
        SscMode2 = "SSC_MODE_2",
        SscMode3 = "SSC_MODE_3",
    }
    /// Meaning of the areas of a restriction. TS 29.571 §5.4.3.8.
    pub enum RestrictionType: extensible {
        AllowedAreas = "ALLOWED_AREAS",
        NotAllowedAreas = "NOT_ALLOWED_AREAS",
    }
    /// Core network that a UE may use. TS 29.571 §5.4.3.9.
    pub enum CoreNetworkType: extensible {
        FiveGc = "5GC",
        Epc = "EPC",
    }
    /// State of a UE towards an area. TS 29.571 §5.4.3.20.
    pub enum PresenceState: extensible {
        InArea = "IN_AREA",
        OutOfArea = "OUT_OF_AREA",
        NotKnown = "UNKNOWN",
        Inactive = "INACTIVE",
    }
    /// Right to take resources from others. TS 29.571 §5.5.3.1.
    pub enum PreemptionCapability: extensible {
        NotPreempt = "NOT_PREEMPT",
        MayPreempt = "MAY_PREEMPT",
    }
    /// Exposure to the loss of resources to others. TS 29.571 §5.5.3.2.
    pub enum PreemptionVulnerability: extensible {
        NotPreemptable = "NOT_PREEMPTABLE",
        Preemptable = "PREEMPTABLE",
    }
    /// Operation of a patch (RFC 6902). TS 29.571 §5.2.3.2.
    pub enum PatchOperation: extensible {
        Add = "add",
        Copy = "copy",
        Move = "move",
        Remove = "remove",
        Replace = "replace",
        Test = "test",
    }
    /// Scheme of a URI. TS 29.571 §5.2.3.1.
    pub enum UriScheme: extensible {
        Http = "http",
        Https = "https",
    }
    /// Change of a member. TS 29.571 §5.2.3.3.
    pub enum ChangeType: extensible {
        Add = "ADD",
        Move = "MOVE",
        Remove = "REMOVE",
        Replace = "REPLACE",
    }
}

object! {
    /// Network of a country. TS 29.571 §5.4.4.3.
    #[derive(PartialOrd, Ord)]
    pub struct PlmnId {
        pub mcc: Mcc,
        pub mnc: Mnc,
    }
    /// Public or non-public network. TS 29.571 §5.4.4.33.
    #[derive(PartialOrd, Ord)]
    pub struct PlmnIdNid {
        pub mcc: Mcc,
        pub mnc: Mnc,
        pub nid: Option<Nid>,
    }
    /// Network slice. TS 29.571 §5.4.4.2.
    #[derive(Copy, PartialOrd, Ord)]
    pub struct Snssai {
        pub sst: u8,
        pub sd: Option<Sd>,
    }
    /// Network slice, or slices of a range of differentiators. TS 29.571 §5.4.4.2 and §5.4.4.84.
    pub struct ExtSnssai {
        pub sst: u8,
        pub sd: Option<Sd>,
        pub sd_ranges: Option<BoundedList<SdRange>>,
        pub wildcard_sd: Option<bool>,
    }
    /// Range of slice differentiators. TS 29.571 §5.4.4.85.
    pub struct SdRange {
        pub start: Option<Sd>,
        pub end: Option<Sd>,
    }
    /// Globally unique AMF identifier. TS 29.571 §5.3.4.1.
    pub struct Guami {
        pub plmn_id: PlmnIdNid,
        pub amf_id: AmfId,
    }
    /// Tracking area. TS 29.571 §5.4.4.4.
    pub struct Tai {
        pub plmn_id: PlmnId,
        pub tac: Tac,
        pub nid: Option<Nid>,
    }
    /// Cell of E-UTRA. TS 29.571 §5.4.4.5.
    pub struct Ecgi {
        pub plmn_id: PlmnId,
        pub eutra_cell_id: EutraCellId,
        pub nid: Option<Nid>,
    }
    /// Cell of NR. TS 29.571 §5.4.4.6.
    pub struct Ncgi {
        pub plmn_id: PlmnId,
        pub nr_cell_id: NrCellId,
        pub nid: Option<Nid>,
    }
    /// Identity of a gNB. TS 29.571 §5.4.4.29.
    pub struct GNbId {
        /// Bits of the identity: 22 to 32.
        pub bit_length: GNbIdLength,
        #[serde(rename = "gNBValue")]
        pub gnb_value: GNbValue,
    }
    /// Node of an access network: one of the identities is there. TS 29.571 §5.4.4.28.
    pub struct GlobalRanNodeId {
        pub plmn_id: PlmnId,
        pub n3_iwf_id: Option<N3IwfId>,
        pub g_nb_id: Option<GNbId>,
        pub nge_nb_id: Option<NgeNbId>,
        pub nid: Option<Nid>,
    }
    /// Place of a UE. TS 29.571 §5.4.4.7.
    pub struct UserLocation {
        pub eutra_location: Option<EutraLocation>,
        pub nr_location: Option<NrLocation>,
        pub n3ga_location: Option<N3gaLocation>,
    }
    /// Place of a UE in E-UTRA. TS 29.571 §5.4.4.8.
    pub struct EutraLocation {
        pub tai: Tai,
        pub ecgi: Ecgi,
        pub age_of_location_information: Option<LocationAge>,
        pub ue_location_timestamp: Option<DateTime>,
        pub global_ngenb_id: Option<GlobalRanNodeId>,
    }
    /// Place of a UE in NR. TS 29.571 §5.4.4.9.
    pub struct NrLocation {
        pub tai: Tai,
        pub ncgi: Ncgi,
        pub age_of_location_information: Option<LocationAge>,
        pub ue_location_timestamp: Option<DateTime>,
        pub geographical_information: Option<GeographicalInformation>,
        pub geodetic_information: Option<GeographicalInformation>,
        pub global_gnb_id: Option<GlobalRanNodeId>,
    }
    /// Place of a UE in an access that is not 3GPP's. TS 29.571 §5.4.4.10.
    pub struct N3gaLocation {
        pub n3gpp_tai: Option<Tai>,
        pub n3_iwf_id: Option<N3IwfId>,
        pub ue_ipv4_addr: Option<Ipv4Addr>,
        pub ue_ipv6_addr: Option<Ipv6Addr>,
        pub port_number: Option<u16>,
    }
    /// Address of a UE or node: one of the members is there. TS 29.571 §5.2.4.20.
    pub struct IpAddr {
        pub ipv4_addr: Option<Ipv4Addr>,
        pub ipv6_addr: Option<Ipv6Addr>,
        pub ipv6_prefix: Option<Ipv6Prefix>,
    }
    /// Allocation and retention priority. TS 29.571 §5.5.4.1.
    pub struct SbiArp {
        pub priority_level: ArpPriorityLevel,
        pub preempt_cap: PreemptionCapability,
        pub preempt_vuln: PreemptionVulnerability,
    }
    /// Aggregate maximum bit rate. TS 29.571 §5.5.4.2.
    #[derive(Copy)]
    pub struct SbiAmbr {
        pub uplink: SbiBitRate,
        pub downlink: SbiBitRate,
    }
    /// QoS that a subscriber's sessions begin with. TS 29.571 §5.4.4.1.
    pub struct SubscribedDefaultQos {
        #[serde(rename = "5qi")]
        pub five_qi: FiveQi,
        pub arp: SbiArp,
        pub priority_level: Option<FiveQiPriorityLevel>,
    }
    /// Protection of the user plane. TS 29.571 §5.4.4.11.
    pub struct SbiUpSecurity {
        pub up_integr: UpIntegrity,
        pub up_confid: UpConfidentiality,
    }
    /// Cause of NGAP. TS 29.571 §5.4.4.12.
    #[derive(Copy)]
    pub struct NgApCause {
        pub group: u32,
        pub value: u32,
    }
    /// AMF that takes over. TS 29.571 §5.4.4.13.
    pub struct BackupAmfInfo {
        pub backup_amf: Fqdn,
        pub guami_list: Option<BoundedList<Guami>>,
    }
    /// Part of a multipart body. TS 29.571 §5.4.4.14.
    pub struct RefToBinaryData {
        pub content_id: ShortText,
    }
    /// Area by tracking areas or by an operator's code. TS 29.571 §5.4.4.17.
    pub struct Area {
        pub tacs: Option<BoundedList<Tac>>,
        pub area_code: Option<AreaCode>,
    }
    /// Areas in which a UE may start communication. TS 29.571 §5.4.4.18.
    pub struct ServiceAreaRestriction {
        pub restriction_type: Option<RestrictionType>,
        pub areas: Option<BoundedList<Area, 0>>,
        #[serde(rename = "maxNumOfTAs")]
        pub max_num_of_tas: Option<u32>,
        #[serde(rename = "maxNumOfTAsForNotAllowedAreas")]
        pub max_num_of_tas_for_not_allowed_areas: Option<u32>,
    }
    /// Presence of a UE in an area. TS 29.571 §5.4.4.27.
    pub struct PresenceInfo {
        pub pra_id: Option<ShortText>,
        pub additional_pra_id: Option<ShortText>,
        pub presence_state: Option<PresenceState>,
        pub tracking_area_list: Option<BoundedList<Tai, 0>>,
        pub ncgi_list: Option<BoundedList<Ncgi, 0>>,
    }
    /// Body of a refusal (RFC 9457). TS 29.571 §5.2.4.1.
    #[derive(Default)]
    pub struct ProblemDetails {
        #[serde(rename = "type")]
        pub problem_type: Option<Uri>,
        pub title: Option<Sentence>,
        /// HTTP status of the response.
        pub status: Option<u16>,
        pub detail: Option<Sentence>,
        pub instance: Option<Uri>,
        /// Cause of TS 29.500 §5.2.7.2 or of the interface.
        pub cause: Option<ShortText>,
        pub invalid_params: Option<BoundedList<InvalidParam>>,
        pub supported_features: Option<SupportedFeatures>,
        pub access_token_error: Option<crate::nnrf::AccessTokenErr>,
        pub nrf_id: Option<Fqdn>,
    }
    /// Member or parameter that was refused. TS 29.571 §5.2.4.6.
    pub struct InvalidParam {
        pub param: JsonPointer,
        pub reason: Option<Sentence>,
    }
    /// Hyperlink. TS 29.571 §5.2.4.2.
    pub struct Link {
        pub href: Uri,
    }
    /// Operation of a patch (RFC 6902). TS 29.571 §5.2.4.3.
    pub struct PatchItem {
        pub op: PatchOperation,
        pub path: JsonPointer,
        pub from: Option<JsonPointer>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::any_json")]
        pub value: OptionalJson,
    }
    /// Change of a member of a resource. TS 29.571 §5.2.4.8.
    pub struct ChangeItem {
        pub op: ChangeType,
        pub path: ChangePath,
        pub from: Option<JsonPointer>,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::any_json")]
        pub orig_value: OptionalJson,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::json::any_json")]
        pub new_value: OptionalJson,
    }
    /// Changes of a resource. TS 29.571 §5.2.4.9.
    pub struct NotifyItem {
        pub resource_id: Uri,
        pub changes: BoundedList<ChangeItem>,
    }
    /// Other place of a resource, with a 307 or 308 response. TS 29.571 §5.2.4.17.
    pub struct RedirectResponse {
        pub cause: Option<ShortText>,
        pub target_scp: Option<Uri>,
        pub target_sepp: Option<Uri>,
    }
}

ranged! {
    /// Age of a location in minutes. TS 29.571 §5.4.4.9.
    pub struct LocationAge(u16) in 0..=32767;
    /// Bits of a gNB's identity. TS 29.571 §5.4.4.29.
    pub struct GNbIdLength(u8) in 22..=32;
}

text! {
    /// Identity of a gNB in hexadecimal digits, padded with zeros before it. TS 29.571 §5.4.4.29.
    pub struct GNbValue(8, |t| t.len() >= 6 && hex_digits(t), "6 to 8 hexadecimal digits");
}

/// Any JSON, in which null is a value, or none.
pub type OptionalJson = Option<AnyJson>;

either! {
    /// One link or several. TS 29.571 §5.2.4.4.
    pub enum LinksValueSchema {
        /// A single hyperlink.
        One(Link),
        /// Several hyperlinks of one relation.
        Several(BoundedList<Link>),
    }
}

/// Links by relation. TS 29.501 §4.7.5.
pub type Links = BoundedMap<ShortText, LinksValueSchema, 16>;

/// The links of a body that name a relation.
pub fn link<'a>(links: &'a Links, relation: &str) -> Option<&'a Uri> {
    match links.iter().find(|(name, _)| name.as_str() == relation)?.1 {
        LinksValueSchema::One(link) => Some(&link.href),
        LinksValueSchema::Several(links) => links.first().map(|link| &link.href),
    }
}

impl SupportedFeatures {
    /// True if feature `number`, from 1, is there (TS 29.571 §5.2.2).
    pub fn has(&self, number: u32) -> bool {
        let Some(index) = number.checked_sub(1) else { return false };
        let digit = self.as_str().bytes().rev().nth((index / 4) as usize);
        digit.and_then(|d| char::from(d).to_digit(16)).is_some_and(|d| d >> (index % 4) & 1 == 1)
    }
}

// Conversions from and to identifiers of the rest of the core.

impl From<ids::PlmnId> for PlmnId {
    fn from(plmn: ids::PlmnId) -> Self {
        let digits: String = plmn.digits().map(|d| char::from(b'0' + d)).collect();
        let (mcc, mnc) = digits.split_at(3);
        Self { mcc: Mcc(mcc.into()), mnc: Mnc(mnc.into()) }
    }
}

impl From<&PlmnId> for ids::PlmnId {
    fn from(plmn: &PlmnId) -> Self {
        let text = format!("{}/{}", plmn.mcc, plmn.mnc);
        text.parse().expect("3 digits and 2 or 3, as Mcc and Mnc have been checked")
    }
}

impl From<ids::PlmnId> for PlmnIdNid {
    fn from(plmn: ids::PlmnId) -> Self {
        let PlmnId { mcc, mnc } = plmn.into();
        Self { mcc, mnc, nid: None }
    }
}

impl From<&PlmnIdNid> for ids::PlmnId {
    fn from(PlmnIdNid { mcc, mnc, nid: _ }: &PlmnIdNid) -> Self {
        (&PlmnId { mcc: mcc.clone(), mnc: mnc.clone() }).into()
    }
}

impl From<ids::SNssai> for Snssai {
    fn from(slice: ids::SNssai) -> Self {
        let sd = slice.sd().map(|sd| {
            let [_, a, b, c] = sd.to_be_bytes();
            Sd([a, b, c])
        });
        Self { sst: slice.sst, sd }
    }
}

impl From<Snssai> for ids::SNssai {
    fn from(slice: Snssai) -> Self {
        let sd = slice.sd.map(|Sd([a, b, c])| u32::from_be_bytes([0, a, b, c]));
        Self::new(slice.sst, sd)
    }
}

impl From<Snssai> for ExtSnssai {
    fn from(Snssai { sst, sd }: Snssai) -> Self {
        Self { sst, sd, sd_ranges: None, wildcard_sd: None }
    }
}

impl From<ids::SNssai> for SnssaiKey {
    fn from(slice: ids::SNssai) -> Self {
        Self(slice.to_string().into())
    }
}

impl SnssaiKey {
    /// The slice. Read are `1`, `1-0000ab`, and the eight hexadecimal digits `010000ab` that free5GC writes.
    pub fn snssai(&self) -> Option<ids::SNssai> {
        let text = self.as_str();
        text.parse().ok().or_else(|| {
            let [sst, a, b, c] = crate::json::hex(text)?;
            Some(ids::SNssai::new(sst, Some(u32::from_be_bytes([0, a, b, c]))))
        })
    }
}

impl From<ids::Guami> for Guami {
    fn from(guami: ids::Guami) -> Self {
        Self { plmn_id: guami.plmn.into(), amf_id: AmfId(guami.amf_id.octets()) }
    }
}

impl From<&Guami> for ids::Guami {
    fn from(guami: &Guami) -> Self {
        Self { plmn: (&guami.plmn_id).into(), amf_id: ids::AmfId::from_octets(guami.amf_id.0) }
    }
}

impl From<ids::Tai> for Tai {
    fn from(tai: ids::Tai) -> Self {
        Self { plmn_id: tai.plmn.into(), tac: tai.tac.into(), nid: None }
    }
}

impl From<&Tai> for ids::Tai {
    fn from(tai: &Tai) -> Self {
        Self { plmn: (&tai.plmn_id).into(), tac: tai.tac.into() }
    }
}

impl From<&ids::Dnn> for Dnn {
    fn from(dnn: &ids::Dnn) -> Self {
        Self(dnn.as_str().into())
    }
}

impl From<&Dnn> for ids::Dnn {
    fn from(dnn: &Dnn) -> Self {
        dnn.as_str().parse().expect("a DNN, as it has been checked")
    }
}

impl From<&Dnn> for DnnOrWildcard {
    fn from(dnn: &Dnn) -> Self {
        Self(dnn.as_str().into())
    }
}

impl From<ids::Supi> for Supi {
    fn from(supi: ids::Supi) -> Self {
        let kind = if supi.is_nai() { "nai" } else { "imsi" };
        Self(format!("{kind}-{}", supi.value()).into())
    }
}

impl From<Supi> for SupiOrSuci {
    fn from(supi: Supi) -> Self {
        Self(supi.0)
    }
}

impl Supi {
    /// The digits of an IMSI of 6 to 15, as the rest of the core has them; `None` for other forms.
    pub fn imsi(&self) -> Option<ids::Supi> {
        let digits = self.as_str().strip_prefix("imsi-")?;
        ids::Supi::from_digits(digits.bytes().map(|d| d - b'0'))
    }
}

impl From<ids::NrCellId> for NrCellId {
    fn from(cell: ids::NrCellId) -> Self {
        Self(format!("{:09x}", cell.value()).into())
    }
}

/// Tracking area code: 24 bits as 6 hexadecimal digits, or 16 bits of E-UTRA as 4. TS 29.571 §5.4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tac {
    /// Area of the 5G system.
    Bits24([u8; 3]),
    /// Area of EPS.
    Bits16([u8; 2]),
}

impl From<ids::Tac> for Tac {
    fn from(tac: ids::Tac) -> Self {
        Self::Bits24(tac.octets())
    }
}

impl From<Tac> for ids::Tac {
    fn from(tac: Tac) -> Self {
        Self::from_octets(match tac {
            Tac::Bits24(octets) => octets,
            Tac::Bits16([a, b]) => [0, a, b],
        })
    }
}

impl fmt::Display for Tac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits24(octets) => write_hex(f, octets),
            Self::Bits16(octets) => write_hex(f, octets),
        }
    }
}

impl FromStr for Tac {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let long = crate::json::hex(text).map(Self::Bits24);
        let either = long.or_else(|| crate::json::hex(text).map(Self::Bits16));
        either.ok_or(WrongValue { expected: "4 or 6 hexadecimal digits" })
    }
}

crate::macros::serde_as_text!(Tac);

/// AMF set: 10 bits as 3 hexadecimal digits. TS 29.571 §5.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AmfSetId(u16);

impl AmfSetId {
    /// `None` above 10 bits.
    pub const fn new(set: u16) -> Option<Self> {
        if set < 1 << 10 { Some(Self(set)) } else { None }
    }

    /// The set as a number.
    pub const fn value(self) -> u16 {
        self.0
    }
}

impl fmt::Display for AmfSetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03x}", self.0)
    }
}

impl FromStr for AmfSetId {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        let set = if text.len() == 3 && hex_digits(text) { u16::from_str_radix(text, 16).ok() } else { None };
        set.and_then(Self::new).ok_or(WrongValue { expected: "3 hexadecimal digits of at most 3ff" })
    }
}

crate::macros::serde_as_text!(AmfSetId);

/// Bit rate in bit/s, such as `1 Gbps` in JSON; 1 Kbps is 1000 bit/s. A part of a bit/s is cut off. TS 29.571 §5.5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SbiBitRate(pub u64);

/// Units of bit rates with their bits per second, largest first.
const BIT_RATE_UNITS: [(&str, u64); 5] =
    [("Tbps", 1_000_000_000_000), ("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("Kbps", 1_000), ("bps", 1)];

impl fmt::Display for SbiBitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = BIT_RATE_UNITS.iter().find(|(_, size)| self.0 != 0 && self.0.is_multiple_of(*size));
        let (unit, size) = exact.unwrap_or(&("bps", 1));
        write!(f, "{} {unit}", self.0 / size)
    }
}

impl FromStr for SbiBitRate {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        parse_bit_rate(text).map(Self).ok_or(WrongValue { expected: "a bit rate such as 1.5 Gbps" })
    }
}

/// Number, optional fraction, blank, unit. `None` also for what 64 bits do not hold.
fn parse_bit_rate(text: &str) -> Option<u64> {
    /// Digits of a fraction that can change the result: those of a Tbps.
    const FRACTION_DIGITS: usize = 12;
    let (number, unit) = text.split_once(' ')?;
    let (_, size) = BIT_RATE_UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let is_number = |part: &str| !part.is_empty() && digits(part);
    if !is_number(whole) || !fraction.is_none_or(is_number) {
        return None;
    }
    let mut rate = whole.parse::<u64>().ok()?.checked_mul(*size)?;
    let mut place = *size;
    for digit in fraction.unwrap_or_default().bytes().take(FRACTION_DIGITS) {
        // A unit of 10^n has n places; below one bit/s nothing is left.
        place /= 10;
        rate = rate.checked_add(place * u64::from(digit - b'0'))?;
    }
    Some(rate)
}

crate::macros::serde_as_text!(SbiBitRate);

/// Octets in base64 (RFC 4648 §4), at most `MAX`. TS 29.571 §5.2.2, `Bytes`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Base64Octets<const MAX: usize>(Box<[u8]>);

impl<const MAX: usize> Base64Octets<MAX> {
    /// `None` if there are too many.
    pub fn new(octets: &[u8]) -> Option<Self> {
        (octets.len() <= MAX).then(|| Self(octets.into()))
    }

    /// The octets themselves.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> fmt::Debug for Base64Octets<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} octets", self.0.len())
    }
}

impl<const MAX: usize> fmt::Display for Base64Octets<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use base64::Engine as _;
        f.write_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<const MAX: usize> FromStr for Base64Octets<MAX> {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        use base64::Engine as _;
        let wrong = WrongValue { expected: "octets in base64 of the length that the member may have" };
        if text.len() > MAX.div_ceil(3) * 4 {
            return Err(wrong);
        }
        let octets = base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| wrong)?;
        Self::new(&octets).ok_or(wrong)
    }
}

impl<const MAX: usize> serde::Serialize for Base64Octets<MAX> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de, const MAX: usize> serde::Deserialize<'de> for Base64Octets<MAX> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(crate::json::TextVisitor::new("base64"))
    }
}

/// Hexadecimal octets of a variable number, at most `MAX`.
pub(crate) fn hex_of_length(text: &str, min: usize, max: usize) -> Option<Vec<u8>> {
    hex_vec(text, max).filter(|octets| octets.len() >= min)
}

/// Point in time in milliseconds since 1970, in JSON an RFC 3339 time of any offset, written in UTC. TS 29.571 §5.2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime {
    unix_ms: i64,
}

impl DateTime {
    /// The first time, 0001-01-01T00:00:00Z.
    const MIN_MS: i64 = -62_135_596_800_000;
    /// 9999-12-31T23:59:59.999Z, the last time that RFC 3339 can write.
    const MAX_MS: i64 = 253_402_300_799_999;

    /// A time beyond the years 1 to 9999 becomes the first or last of them.
    pub fn from_unix_ms(ms: i64) -> Self {
        Self { unix_ms: ms.clamp(Self::MIN_MS, Self::MAX_MS) }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_ms(self) -> i64 {
        self.unix_ms
    }

    /// Date and time of day in UTC.
    pub const fn utc(self) -> UtcTime {
        let (days, ms) = (self.unix_ms.div_euclid(86_400_000), self.unix_ms.rem_euclid(86_400_000));
        let (year, month, day) = civil_from_days(days);
        let weekday = (days + 3).rem_euclid(7);
        UtcTime {
            year,
            month,
            day,
            weekday,
            hour: ms / 3_600_000,
            minute: ms / 60_000 % 60,
            second: ms / 1000 % 60,
            ms: ms % 1000,
        }
    }

    /// The time of a date and a time of day in UTC; `None` if there is no such day or time. Second 60 is the first of the next minute, and
    /// the weekday is not looked at.
    pub fn from_utc(t: UtcTime) -> Option<Self> {
        let leap = t.year % 4 == 0 && (t.year % 100 != 0 || t.year % 400 == 0);
        let month_days = match t.month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        let is_time =
            (0..24).contains(&t.hour) && (0..60).contains(&t.minute) && (0..=60).contains(&t.second);
        if !(0..=9999).contains(&t.year)
            || !(1..=month_days).contains(&t.day)
            || !is_time
            || !(0..1000).contains(&t.ms)
        {
            return None;
        }
        let minutes = days_from_civil(t.year, t.month, t.day) * 1440 + t.hour * 60 + t.minute;
        Some(Self { unix_ms: (minutes * 60 + t.second) * 1000 + t.ms })
    }
}

/// Date and time of day in UTC, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each name is the field of a calendar or clock")]
pub struct UtcTime {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    /// Day of the week from Monday, 0.
    pub weekday: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub ms: i64,
}

/// Days from 1970-01-01 to a day of the Gregorian calendar, by eras of 400 years that begin in March.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day_of_year - (153 * mp + 2) / 5 + 1)
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.utc();
        write!(f, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", t.year, t.month, t.day, t.hour, t.minute, t.second)?;
        match t.ms {
            0 => f.write_str("Z"),
            part => write!(f, ".{part:03}Z"),
        }
    }
}

impl FromStr for DateTime {
    type Err = WrongValue;

    fn from_str(text: &str) -> Result<Self, WrongValue> {
        parse_date_time(text).ok_or(WrongValue { expected: "a time such as 2026-11-29T16:00:00Z" })
    }
}

fn parse_date_time(text: &str) -> Option<DateTime> {
    /// The longest that is read: nanoseconds and more digits than any clock gives.
    const OCTETS_MAX: usize = 64;
    let octets = text.as_bytes();
    if octets.len() > OCTETS_MAX || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, n: usize| -> Option<i64> {
        let part = text.get(from..from + n)?;
        if digits(part) { part.parse().ok() } else { None }
    };
    let sign =
        |at: usize, expected: &[u8]| octets.get(at).is_some_and(|c| expected.contains(c)).then_some(());
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    sign(4, b"-")?;
    sign(7, b"-")?;
    sign(10, b"Tt ")?;
    sign(13, b":")?;
    sign(16, b":")?;
    let rest = text.get(19..)?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
            rest.split_at(end)
        }
        None => ("", rest),
    };
    let mut ms = 0;
    for i in 0..3 {
        ms = ms * 10 + fraction.as_bytes().get(i).map_or(0, |d| i64::from(d - b'0'));
    }
    let offset_minutes = match zone.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), a, b, b':', c, d] if [a, b, c, d].iter().all(|d| d.is_ascii_digit()) => {
            let two = |a: &u8, b: &u8| i64::from(a - b'0') * 10 + i64::from(b - b'0');
            let (hours, minutes) = (two(a, b), two(c, d));
            if hours > 23 || minutes > 59 {
                return None;
            }
            (hours * 60 + minutes) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let local = DateTime::from_utc(UtcTime { year, month, day, weekday: 0, hour, minute, second, ms })?;
    let unix_ms = local.unix_ms - offset_minutes * 60_000;
    (DateTime::MIN_MS..=DateTime::MAX_MS).contains(&unix_ms).then_some(DateTime { unix_ms })
}

crate::macros::serde_as_text!(DateTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.571 §5.5.2: BitRate has a number, a blank and a unit
    fn bit_rates_are_read_in_each_unit_and_written_in_the_largest_that_is_exact() {
        for (text, rate) in [
            ("1 Gbps", 1_000_000_000),
            ("1.5 Mbps", 1_500_000),
            ("0.0015 Kbps", 1),
            ("0 bps", 0),
            ("18446744073709551615 bps", u64::MAX),
            ("2.000000000001999 Tbps", 2_000_000_000_001),
        ] {
            assert_eq!(text.parse(), Ok(SbiBitRate(rate)), "{text}");
        }
        for wrong in
            ["1Gbps", "1 gbps", "1. Mbps", ".5 Mbps", "-1 bps", "1 Gbps ", "", "18446745 Tbps", "1e3 bps"]
        {
            assert!(wrong.parse::<SbiBitRate>().is_err(), "{wrong}");
        }
        for (rate, text) in [
            (1_000_000_000, "1 Gbps"),
            (1_500_000_000, "1500 Mbps"),
            (1, "1 bps"),
            (0, "0 bps"),
            (u64::MAX, "18446744073709551615 bps"),
        ] {
            assert_eq!(SbiBitRate(rate).to_string(), text);
        }
    }

    #[test] // TS 29.571 §5.2.2: DateTime is that of RFC 3339
    fn times_are_read_in_any_offset_and_written_in_utc() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-29T16:00:00.5+01:30", 1_795_962_600_500),
            ("2024-02-29T23:59:60Z", 1_709_251_200_000),
            ("0001-01-01T00:00:00Z", DateTime::MIN_MS),
            ("9999-12-31T23:59:59.999999Z", DateTime::MAX_MS),
            ("2022-10-18t10:20:30.123456789z", 1_666_088_430_123),
        ] {
            assert_eq!(text.parse(), Ok(DateTime { unix_ms: ms }), "{text}");
        }
        assert_eq!(DateTime::from_unix_ms(1_709_251_200_007).to_string(), "2024-03-01T00:00:00.007Z");
        for wrong in [
            "2023-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T16:00:00",
            "2026-11-29T16:00:00.Z",
            "2026-11-29T16:00:00+1:00",
            "0001-01-01T00:00:00+00:01",
            "2026-11-2",
            "",
            "２026-11-29T16:00:00Z",
        ] {
            assert!(wrong.parse::<DateTime>().is_err(), "{wrong}");
        }
    }

    #[test] // TS 29.571 §5.2.2: the last digit has features 1 to 4
    fn features_are_counted_from_the_last_digit() {
        let features = SupportedFeatures::new("2f0").unwrap();
        let there: Vec<u32> = (0..20).filter(|n| features.has(*n)).collect();
        assert_eq!(there, [5, 6, 7, 8, 10]);
    }

    #[test]
    fn identifiers_of_the_core_go_there_and_back() {
        let plmn: ids::PlmnId = "001/01".parse().unwrap();
        assert_eq!(ids::PlmnId::from(&PlmnId::from(plmn)), plmn);
        let long: ids::PlmnId = "310/410".parse().unwrap();
        assert_eq!(ids::PlmnId::from(&PlmnIdNid::from(long)), long);
        for slice in [ids::SNssai::sst(1), ids::SNssai::new(1, Some(0x0000ab))] {
            assert_eq!(ids::SNssai::from(Snssai::from(slice)), slice);
            assert_eq!(SnssaiKey::from(slice).snssai(), Some(slice));
        }
        let written_otherwise = SnssaiKey::new("010000ab").unwrap();
        assert_eq!(written_otherwise.snssai(), Some(ids::SNssai::new(1, Some(0xab))));
        let guami = ids::Guami { plmn, amf_id: ids::AmfId::new(2, 0x155, 3).unwrap() };
        assert_eq!(ids::Guami::from(&Guami::from(guami)), guami);
        let tai = ids::Tai { plmn, tac: ids::Tac::new(0x01_2345).unwrap() };
        assert_eq!(ids::Tai::from(&Tai::from(tai)), tai);
        let supi = ids::Supi::from_digits([0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
        assert_eq!(Supi::from(supi).as_str(), "imsi-001010000000001");
        assert_eq!(Supi::from(supi).imsi(), Some(supi));
    }

    #[test]
    fn debug_shows_no_subscriber() {
        let supi = Supi::new("imsi-001010000000001").unwrap();
        assert_eq!(format!("{supi:?}"), "Supi(…)");
    }

    #[test] // TS 29.571 §5.3.2: patterns of identifiers
    fn identifiers_that_do_not_fit_their_pattern_are_refused() {
        assert!(Supi::new("imsi-1234").is_err() && Supi::new("imsi-1234567890123456").is_err());
        assert!(Supi::new("imsi-12345x").is_err() && Supi::new("").is_err() && Supi::new("nai-a\n").is_err());
        assert!(Supi::new(&format!("nai-{}", "a".repeat(254))).is_err());
        assert!(NfInstanceId::new("4947a69a-f61b-4bc1-b9da-47c9c5d14b64").is_ok());
        assert!(NfInstanceId::new("4947a69af-61b-4bc1-b9da-47c9c5d14b64").is_err());
        assert!(NfInstanceId::new("4947a69a-f61b-4bc1-b9da-47c9c5d14b6g").is_err());
        assert!(Fqdn::new("udm.5gc.mnc070.mcc999.3gppnetwork.org.").is_ok());
        assert!(Fqdn::new("a..b").is_err() && Fqdn::new("-a.b").is_err() && Fqdn::new("a b").is_err());
        assert!(Mnc::new("1").is_err() && Mnc::new("0x").is_err());
        assert!("400".parse::<AmfSetId>().is_err() && "+ff".parse::<AmfSetId>().is_err());
        assert!("zzzzzz".parse::<Tac>().is_err() && "00001".parse::<Tac>().is_err());
    }
}
