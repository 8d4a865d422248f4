//! Npcf_AMPolicyControl: TS 29.507 §5.6.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::common::{
    AccessType, Dnn, Fqdn, Gpsi, GroupId, Guami, Pei, PlmnIdNid, PresenceInfo, RatType, RfspIndex, SbiAmbr,
    SbiBitRate, ServiceAreaRestriction, ShortText, Snssai, SnssaiKey, Supi, SupportedFeatures, Uri,
    UserLocation,
};
use crate::json::{BoundedList, BoundedMap};
use crate::nnrf::ServiceName;

enumeration! {
    /// Event at which an AMF reports to the PCF. TS 29.507 §5.6.3.3.
    pub enum AmRequestTrigger: extensible {
        LocCh = "LOC_CH",
        PraCh = "PRA_CH",
        ServAreaCh = "SERV_AREA_CH",
        RfspCh = "RFSP_CH",
        AllowedNssaiCh = "ALLOWED_NSSAI_CH",
        UeAmbrCh = "UE_AMBR_CH",
        UeSliceMbrCh = "UE_SLICE_MBR_CH",
        SmfSelectCh = "SMF_SELECT_CH",
        AccessTypeCh = "ACCESS_TYPE_CH",
        NwdafDataCh = "NWDAF_DATA_CH",
        TargetNssai = "TARGET_NSSAI",
    }
    /// Reason for which a PCF ends an association. TS 29.507 §5.6.3.4.
    pub enum PolicyAssociationReleaseCause: extensible {
        Unspecified = "UNSPECIFIED",
        UeSubscription = "UE_SUBSCRIPTION",
        InsufficientRes = "INSUFFICIENT_RES",
    }
}

object! {
    /// Association with its policy, the answer to `POST /policies`. TS 29.507 §5.6.2.2.
    pub struct PolicyAssociation {
        pub request: Option<PolicyAssociationRequest>,
        pub triggers: Option<BoundedList<AmRequestTrigger, 0>>,
        pub serv_area_res: Option<ServiceAreaRestriction>,
        pub rfsp: Option<RfspIndex>,
        pub target_rfsp: Option<RfspIndex>,
        pub smf_sel_info: Option<SmfSelectionData>,
        pub ue_ambr: Option<SbiAmbr>,
        pub ue_slice_mbrs: Option<BoundedList<UeSliceMbr, 0>>,
        pub pras: Option<BoundedMap<ShortText, PresenceInfo>>,
        pub supp_feat: SupportedFeatures,
    }
    /// Request for an association, `POST /policies`. TS 29.507 §5.6.2.3.
    pub struct PolicyAssociationRequest {
        pub notification_uri: Uri,
        pub alt_notif_ipv4_addrs: Option<BoundedList<Ipv4Addr, 0>>,
        pub alt_notif_ipv6_addrs: Option<BoundedList<Ipv6Addr, 0>>,
        pub alt_notif_fqdns: Option<BoundedList<Fqdn, 0>>,
        pub supi: Supi,
        pub gpsi: Option<Gpsi>,
        pub access_type: Option<AccessType>,
        pub access_types: Option<BoundedList<AccessType, 0, 2>>,
        pub pei: Option<Pei>,
        pub user_loc: Option<UserLocation>,
        pub time_zone: Option<ShortText>,
        pub serving_plmn: Option<PlmnIdNid>,
        pub rat_type: Option<RatType>,
        pub rat_types: Option<BoundedList<RatType, 0>>,
        pub group_ids: Option<BoundedList<GroupId, 0>>,
        pub serv_area_res: Option<ServiceAreaRestriction>,
        pub rfsp: Option<RfspIndex>,
        pub ue_ambr: Option<SbiAmbr>,
        pub ue_slice_mbrs: Option<BoundedList<UeSliceMbr, 0>>,
        pub allowed_snssais: Option<BoundedList<Snssai, 0>>,
        pub target_snssais: Option<BoundedList<Snssai, 0>>,
        pub n3g_allowed_snssais: Option<BoundedList<Snssai, 0>>,
        pub guami: Option<Guami>,
        /// Service of the AMF that takes notifications; the name is that of the table.
        #[serde(rename = "serviveName")]
        pub service_name: Option<ServiceName>,
        pub supp_feat: SupportedFeatures,
    }
    /// Report of events, `POST /policies/{polAssoId}/update`. TS 29.507 §5.6.2.4.
    #[derive(Default)]
    pub struct PolicyAssociationUpdateRequest {
        pub notification_uri: Option<Uri>,
        pub alt_notif_ipv4_addrs: Option<BoundedList<Ipv4Addr, 0>>,
        pub alt_notif_ipv6_addrs: Option<BoundedList<Ipv6Addr, 0>>,
        pub alt_notif_fqdns: Option<BoundedList<Fqdn, 0>>,
        pub triggers: Option<BoundedList<AmRequestTrigger, 0>>,
        pub serv_area_res: Option<ServiceAreaRestriction>,
        pub rfsp: Option<RfspIndex>,
        pub smf_sel_info: Option<SmfSelectionData>,
        pub ue_ambr: Option<SbiAmbr>,
        pub ue_slice_mbrs: Option<BoundedList<UeSliceMbr, 0>>,
        pub pra_statuses: Option<BoundedMap<ShortText, PresenceInfo>>,
        pub user_loc: Option<UserLocation>,
        pub allowed_snssais: Option<BoundedList<Snssai, 0>>,
        pub target_snssais: Option<BoundedList<Snssai, 0>>,
        pub access_types: Option<BoundedList<AccessType, 0, 2>>,
        pub rat_types: Option<BoundedList<RatType, 0>>,
        pub n3g_allowed_snssais: Option<BoundedList<Snssai, 0>>,
        pub guami: Option<Guami>,
    }
    /// Changed policy, as an answer to a report and as a notification. TS 29.507 §5.6.2.5.
    pub struct PolicyUpdate {
        /// Deviation: may be missing or empty, as in answers of free5GC.
        pub resource_uri: Option<Uri>,
        pub triggers: Option<BoundedList<AmRequestTrigger, 0>>,
        pub serv_area_res: Option<ServiceAreaRestriction>,
        pub rfsp: Option<RfspIndex>,
        pub target_rfsp: Option<RfspIndex>,
        pub smf_sel_info: Option<SmfSelectionData>,
        pub ue_ambr: Option<SbiAmbr>,
        pub ue_slice_mbrs: Option<BoundedList<UeSliceMbr, 0>>,
        /// Areas by their identities; null removes one.
        pub pras: Option<BoundedMap<ShortText, Option<PresenceInfo>>>,
    }
    /// End of an association, sent by the PCF. TS 29.507 §5.6.2.6.
    pub struct AmTerminationNotification {
        pub resource_uri: Uri,
        pub cause: PolicyAssociationReleaseCause,
    }
    /// Data networks for which the PCF chooses. TS 29.507 §5.6.2.8.
    pub struct SmfSelectionData {
        pub unsupp_dnn: Option<bool>,
        pub candidates: Option<BoundedMap<SnssaiKey, CandidateForReplacement>>,
        pub snssai: Option<Snssai>,
        pub mapping_snssai: Option<Snssai>,
        pub dnn: Option<Dnn>,
    }
    /// Data networks that the PCF replaces in a slice. TS 29.507 §5.6.2.9.
    pub struct CandidateForReplacement {
        pub snssai: Snssai,
        pub dnns: Option<BoundedList<Dnn, 0>>,
    }
    /// Bit rates of a UE in a slice. TS 29.507 §5.6.2.12.
    pub struct UeSliceMbr {
        pub slice_mbr: BoundedMap<SnssaiKey, SliceMbr>,
        pub serving_snssai: Snssai,
        pub mapped_home_snssai: Option<Snssai>,
    }
    /// Maximum bit rates in a slice. TS 29.571 §5.5.4.9.
    pub struct SliceMbr {
        pub uplink: SbiBitRate,
        pub downlink: SbiBitRate,
    }
}
