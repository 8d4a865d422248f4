//! Information elements (TS 24.501 §9.11), one file per family.

mod area;
mod capability;
mod cause;
mod dnn;
mod mobile_identity;
mod network_name;
mod nssai;
mod octets;
mod payload;
mod pco;
mod pdu_session;
mod qos_flows;
mod qos_rules;
mod registration;
mod security;
mod session_status;
mod time;
mod timer;

pub use area::{
    LadnIndication, LadnInformation, PartialServiceArea, PartialTaiList, PlmnList, ServiceAreaList,
    TAI_LIST_MAX, TaiList,
};
pub use capability::{
    MmCapability, NetworkFeatureSupport, S1UeNetworkCapability, S1UeSecurityCapability, SmCapability,
    SmNetworkFeatureSupport, UeSecurityCapability,
};
pub use cause::{MmCause, SmCause};
pub use mobile_identity::{
    IdentityType, MobileIdentity, Msin, NaiFormat, RoutingIndicator, SchemeId, SchemeOutput, Suci,
};
pub use network_name::{NameCoding, NetworkName};
pub use nssai::{MappedSNssai, NSSAI_LEN_MAX, Nssai, RejectedNssai, SliceRejectCause};
pub use octets::Octets;
pub use payload::{MultiplePayloads, PayloadContainer, PayloadContainerType, PayloadEntry, RequestType};
pub use pco::{Container, ExtendedPco, Ipcp, PcoDirection, container_id};
pub use pdu_session::{
    AllowedSscMode, AlwaysOn, BitRate, CongestionReattemptIndicator, ControlPlaneOnly, IntegrityDataRate,
    IntegrityMaxDataRate, MaxPacketFilters, PduAddress, PduAddressKind, PduSessionType, ReattemptIndicator,
    SessionAmbr, SmPduDnRequestContainer, SscMode,
};
pub use qos_flows::{FlowOperation, FlowParameter, QosFlowDescription, QosFlowDescriptions};
pub use qos_rules::{
    FilterComponent, FilterDirection, PacketFilter, QosFlowBinding, QosRule, QosRules, RuleOperation,
};
pub use registration::{
    AccessType, Accesses, AdditionalConfigurationIndication, AdditionalInformationRequested,
    ConfigurationUpdateIndication, ControlPlaneServiceType, DeregistrationType, DrxParameters,
    MaPduSessionInformation, MicoIndication, N5gcIndication, NetworkSlicingIndication,
    Non3gppProvidedPolicies, NssaiInclusionMode, PriorityIndicator, RadioCapabilityIdDeletion,
    RegistrationKind, RegistrationResult, RegistrationType, ReleaseAssistanceIndication, ServiceType,
    SmsIndication, UeStatus, UpdateType, UsageSetting,
};
pub use security::{
    Abba, AdditionalSecurityInformation, Autn, Auts, CipheringAlgorithm, EapMessage, ImeisvRequest,
    IntegrityAlgorithm, NgKsi, Rand, ResStar, SecurityAlgorithms,
};
pub use session_status::{PduSessionSet, ReactivationErrors};
pub use time::{DaylightSaving, TimeZone, UniversalTime};
pub use timer::{GprsTimer, GprsTimer3};

/// EPS NAS message container (TS 24.501 §9.11.3.24): a whole EPS NAS message.
pub type EpsNasMessageContainer = Octets<1, 65535>;
/// NAS message container (TS 24.501 §9.11.3.33): a whole 5GMM message, ciphered or plain by its clause.
pub type NasMessageContainer = Octets<1, 65535>;
/// SOR transparent container (TS 24.501 §9.11.3.51); an acknowledgement has 17 octets.
pub type SorContainer = Octets<17, 65535>;
/// Emergency number list (TS 24.008 §10.5.3.13).
pub type EmergencyNumberList = Octets<3, 48>;
/// Extended emergency number list (TS 24.501 §9.11.3.26).
pub type ExtendedEmergencyNumberList = Octets<4, 65535>;
/// Operator-defined access category definitions (TS 24.501 §9.11.3.38).
pub type OperatorAccessCategories = Octets<0, 8320>;
/// Mapped EPS bearer contexts (TS 24.501 §9.11.4.8), for a UE that may move to EPS.
pub type MappedEpsBearerContexts = Octets<4, 65535>;
/// Information of up to 255 octets that is carried unread.
pub type Opaque = Octets<0, 255>;
/// Information of up to 65535 octets that is carried unread.
pub type LongOpaque = Octets<0, 65535>;
