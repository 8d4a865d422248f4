//! Why a gNB's request, a UE or a session was refused: one type for the failed check, the cause on the wire and the
//! text for the operator.
//!
//! A refusal has what was offered and what would have been accepted. The wire causes are in one `match` for each
//! protocol, with their clauses; none has a `_` arm, so that a new refusal needs a cause.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, PlmnId, SNssai, Tai};
use whimbrel_nas::ie::{MmCause, SmCause, SscMode};

use crate::config::Config;
use crate::flat::text::{self, Text};
use crate::open::Unreachable;
use crate::services::nchf::ChargingDenial;
use crate::services::npcf::PolicyDenial;
use crate::services::{NfType, ServiceFault};
use crate::state::SessionTypes;

/// Refusals of a UE (5GMM), in classes that the operator may give another cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RefusalKind {
    /// No such subscriber.
    UnknownSubscriber,
    /// The subscriber is barred.
    Barred,
    /// The UE failed authentication.
    Authentication,
    /// The SUCI cannot be de-concealed.
    Identity,
    /// The UE and the network share no acceptable algorithm.
    Algorithm,
    /// The tracking area is not served.
    TrackingArea,
    /// The subscription does not allow the tracking area.
    ForbiddenArea,
    /// The subscription bars the radio, or services in the area.
    Restricted,
    /// The network is not served.
    Plmn,
    /// No slice that the UE may use is offered here.
    Slice,
    /// A limit or a store is exhausted.
    Congestion,
    /// The data network is not subscribed or not configured.
    Dnn,
    /// The session type is not allowed.
    SessionType,
    /// Addresses or other resources of the user plane ran out.
    Resources,
    /// The CHF gives no quota.
    Charging,
    /// The PCF does not permit the session.
    Policy,
    /// Another network function does not answer.
    NetworkFailure,
    /// The peer broke the protocol.
    Protocol,
}

/// Default back-off of a refused UE.
const BACK_OFF: Duration = Duration::from_secs(120);

impl RefusalKind {
    /// Whether it refuses a session (5GSM) and not the UE (5GMM).
    pub fn is_of_session(self) -> bool {
        matches!(self, Self::Dnn | Self::SessionType | Self::Resources | Self::Charging | Self::Policy)
    }
}

/// A refusal and its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The subscriber is not in the store.
    UnknownSubscriber,
    /// The subscriber is barred.
    Barred,
    /// RES* was wrong: the UE has another K or OPc (TS 24.501 §5.4.1.3.5).
    WrongResponse,
    /// The UE reported a MAC failure: it has another K or OPc (5GMM cause #20).
    MacFailure,
    /// The UE reported a synch failure again after resynchronisation (5GMM cause #21).
    SynchFailure,
    /// The UE refused the challenge for another reason: its 5GMM cause, or one for its EAP message.
    ChallengeRefused(u8),
    /// AUTS was not made with the subscriber's key.
    BadAuts,
    /// The SUCI's home-network key identifier is not configured.
    UnknownHomeNetworkKey(u8),
    /// The SUCI does not decrypt under the configured key.
    BadSuci,
    /// The SUCI or SUPI is of another network.
    OtherHomeNetwork(PlmnId),
    /// The UE gave no usable identity.
    NoIdentity,
    /// The UE considers itself registered, but has no context here.
    NoContext,
    /// It requested emergency services, which are not configured.
    Emergency,
    /// The equipment is on the operator's list of barred equipment.
    EquipmentRefused,
    /// The equipment does not send its identity, which has to be looked up.
    EquipmentUnknown,
    /// Congestion: the network rejects requests without priority; which.
    Congested(#[serde(with = "text")] Text),
    /// The UE supports none of the configured algorithms.
    NoCommonAlgorithm {
        /// NEA0 to NEA7 that the UE supports, highest bit first.
        ciphering: u8,
        /// NIA0 to NIA7 that the UE supports, highest bit first.
        integrity: u8,
    },
    /// The UE refused the security mode (5GMM cause in its SECURITY MODE REJECT).
    SecurityModeRejected(u8),
    /// The tracking area is not served.
    TaiNotServed(Tai),
    /// The subscription forbids the tracking area (TS 23.501 §5.3.4.1.1).
    AreaForbidden(Tai),
    /// The subscription bars the radio (TS 23.501 §5.3.4.1.1).
    RadioBarred,
    /// The UE may not start services in this tracking area (TS 24.501 §5.3.5.2).
    RestrictedServiceArea(Tai),
    /// The UE is outside the LADN service area (TS 23.501 §5.6.5).
    OutOfLadn(Dnn, Tai),
    /// None of the requested, subscribed and offered slices is common.
    NoSlice {
        /// Asked for by the UE; empty: the subscribed defaults.
        requested: Vec<SNssai>,
        /// Slices of the subscription.
        subscribed: Vec<SNssai>,
    },
    /// The UE did not answer any repetition.
    NoAnswer(#[serde(with = "text")] Text),
    /// The gNB did not answer, or its answer cannot be used.
    RadioFailure(#[serde(with = "text")] Text),
    /// A limit is reached.
    Limit(#[serde(with = "text")] Text),
    /// The subscriber store failed.
    StoreUnavailable,
    /// An operation of a remote network function failed.
    NetworkFunction(NfType, ServiceFault),
    /// The CHF refuses to charge the subscriber for the session.
    Charging(ChargingDenial),
    /// The PCF refuses the session.
    Policy(PolicyDenial),
    /// The remote UDM has no such subscriber.
    UnknownToUdm,
    /// The remote UDM does not accept this serving network.
    ServingNetworkNotAuthorized,
    /// The remote UDM does not let the subscriber roam here.
    RoamingNotAllowed,
    /// The UPF does not answer, or refused with this PFCP cause.
    Upf(Option<u8>),
    /// No address is left in the data network's pool.
    PoolEmpty(Dnn),
    /// The subscriber may not use this data network in this slice.
    DnnNotSubscribed {
        /// The DNN that the UE asked for.
        dnn: Dnn,
        /// In this slice.
        s_nssai: SNssai,
        /// What is subscribed there.
        subscribed: Vec<Dnn>,
    },
    /// The data network is subscribed but not configured.
    DnnNotConfigured(Dnn),
    /// The slice is not among the UE's allowed ones.
    SliceNotAllowed(SNssai),
    /// The session type is not allowed; these are.
    SessionType(SessionTypes),
    /// The UE requested QoS that is invalid or not allowed; with the 5GSM cause (TS 24.501 §6.4.2.4).
    Qos(SmCause),
    /// The UE refused a modification of its session with this cause (TS 24.501 §6.3.2.4).
    ModificationRejected(SmCause),
    /// The SSC mode is not allowed.
    SscMode {
        /// The SSC mode that the UE asked for.
        asked: SscMode,
        /// The mode that is allowed besides mode 1.
        subscribed: SscMode,
    },
    /// The session requires user plane integrity protection, which the UE does not support (TS 24.501 §9.11.4.7).
    IntegrityRate,
    /// A protocol violation.
    Protocol(#[serde(with = "text")] Text),
    /// The gNB refused a request.
    RefusedByGnb {
        /// Its NGAP message, and the list in it, if any.
        #[serde(with = "text")]
        message: Text,
        /// Group, name and number of the NGAP cause (TS 38.413 §9.3.1.2).
        cause: String,
    },
    /// A broker's user is not served.
    Broker {
        /// The broker's domain.
        broker: String,
        /// The broker's reason of refusal.
        why: BrokerFault,
    },
}

/// Why a broker's user is not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BrokerFault {
    /// Users of this broker are not served.
    NotServed,
    /// The broker was not reached.
    Unreachable(Unreachable),
    /// The broker refuses, with its signature.
    Refused(Box<BrokerRefusal>),
    /// The broker does not accept this operator's identity; why.
    Rejected(String),
    /// The broker's answer is invalid; why.
    BadAnswer(String),
    /// The broker demands interception or filtering, which is not supported.
    Orders,
    /// The UE has sent the identity in clear that this operator must not learn.
    InClear,
}

/// A broker's signed refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerRefusal {
    /// Cause as the standard writes it.
    pub cause: String,
    /// Whether it concerns this operator rather than the user.
    pub of_operator: bool,
    /// The refusal as the broker signed it, for the UE; empty where that is an ordinary one.
    #[serde(with = "crate::flat::octets::owned")]
    pub signed: Vec<u8>,
}

impl fmt::Display for BrokerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => f.write_str("whose users are not served here"),
            Self::Unreachable(why) => write!(f, "which was not reached: {why}"),
            Self::Refused(refused) => write!(f, "which refuses: {}", refused.cause),
            Self::Rejected(cause) => write!(f, "which rejects this operator: {cause}"),
            Self::BadAnswer(why) => write!(f, "whose answer is not taken: {why}"),
            Self::Orders => {
                f.write_str("which wants the session intercepted or filtered, and that is not done here")
            }
            Self::InClear => f.write_str("whose UE does not conceal its identity"),
        }
    }
}

/// The UPF is overloaded, or in graceful release (TS 29.244 §8.2.1).
pub(crate) const UPF_CONGESTED: u8 = whimbrel_pfcp::ie::Cause::PfcpEntityInCongestion as u8;

impl Refusal {
    /// The class of refusal whose cause applies.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::UnknownSubscriber | Self::UnknownToUdm => RefusalKind::UnknownSubscriber,
            Self::Barred => RefusalKind::Barred,
            Self::WrongResponse
            | Self::MacFailure
            | Self::SynchFailure
            | Self::ChallengeRefused(_)
            | Self::BadAuts => RefusalKind::Authentication,
            Self::UnknownHomeNetworkKey(_)
            | Self::BadSuci
            | Self::NoIdentity
            | Self::EquipmentRefused
            | Self::EquipmentUnknown
            | Self::NoContext => RefusalKind::Identity,
            Self::OtherHomeNetwork(_) | Self::ServingNetworkNotAuthorized | Self::RoamingNotAllowed => {
                RefusalKind::Plmn
            }
            Self::Broker { why, .. } => match why {
                BrokerFault::NotServed => RefusalKind::Plmn,
                BrokerFault::Refused(refused) if refused.of_operator => RefusalKind::Plmn,
                BrokerFault::Refused(_) | BrokerFault::InClear => RefusalKind::Authentication,
                BrokerFault::Unreachable(_)
                | BrokerFault::Rejected(_)
                | BrokerFault::BadAnswer(_)
                | BrokerFault::Orders => RefusalKind::NetworkFailure,
            },
            Self::NoCommonAlgorithm { .. } | Self::SecurityModeRejected(_) | Self::IntegrityRate => {
                RefusalKind::Algorithm
            }
            Self::TaiNotServed(_) => RefusalKind::TrackingArea,
            Self::AreaForbidden(_) => RefusalKind::ForbiddenArea,
            Self::RadioBarred | Self::RestrictedServiceArea(_) | Self::OutOfLadn(..) => {
                RefusalKind::Restricted
            }
            Self::NoSlice { .. } | Self::SliceNotAllowed(_) => RefusalKind::Slice,
            Self::Limit(_) | Self::Congested(_) => RefusalKind::Congestion,
            Self::StoreUnavailable | Self::NetworkFunction(..) | Self::Upf(_) => RefusalKind::NetworkFailure,
            Self::PoolEmpty(_) => RefusalKind::Resources,
            Self::Charging(_) => RefusalKind::Charging,
            Self::Policy(_) => RefusalKind::Policy,
            Self::DnnNotSubscribed { .. } | Self::DnnNotConfigured(_) => RefusalKind::Dnn,
            Self::SessionType(_) | Self::SscMode { .. } => RefusalKind::SessionType,
            Self::Qos(_) | Self::ModificationRejected(_) => RefusalKind::Protocol,
            Self::Emergency
            | Self::NoAnswer(_)
            | Self::RadioFailure(_)
            | Self::RefusedByGnb { .. }
            | Self::Protocol(_) => RefusalKind::Protocol,
        }
    }

    /// The 5GMM cause for the UE (TS 24.501 §9.11.3.2, Annex A), unless the operator chose another.
    ///
    /// A subscriber that the store does not know gets #3, as in TS 29.524 §4.3.2. A wrong key leads to AUTHENTICATION
    /// REJECT, which has no cause; #3 is for the log.
    pub fn mm_cause(&self, config: &Config) -> MmCause {
        // The operator's cause for a session's refusal is a 5GSM cause, with other meanings of the numbers.
        if !self.kind().is_of_session()
            && let Some(cause) = self.configured(config).and_then(MmCause::from_u8)
        {
            return cause;
        }
        match self {
            Self::UnknownSubscriber | Self::UnknownToUdm => MmCause::IllegalUe,
            Self::Barred => MmCause::FiveGsServicesNotAllowed,
            Self::WrongResponse
            | Self::MacFailure
            | Self::SynchFailure
            | Self::ChallengeRefused(_)
            | Self::BadAuts => MmCause::IllegalUe,
            Self::UnknownHomeNetworkKey(_) | Self::BadSuci => MmCause::IllegalUe,
            // TS 29.524 §4.3.2.
            Self::OtherHomeNetwork(_) | Self::RoamingNotAllowed => MmCause::PlmnNotAllowed,
            Self::ServingNetworkNotAuthorized => MmCause::ServingNetworkNotAuthorized,
            // A SAP UE acts on its broker's signed refusal; without one it tries another network.
            Self::Broker { why, .. } => match why {
                BrokerFault::NotServed | BrokerFault::Orders | BrokerFault::InClear => {
                    MmCause::PlmnNotAllowed
                }
                BrokerFault::Refused(refused) if refused.of_operator => MmCause::PlmnNotAllowed,
                BrokerFault::Refused(_) => MmCause::IllegalUe,
                BrokerFault::Unreachable(_) | BrokerFault::Rejected(_) | BrokerFault::BadAnswer(_) => {
                    MmCause::Congestion
                }
            },
            Self::NoIdentity | Self::NoContext => MmCause::UeIdentityCannotBeDerived,
            Self::NoCommonAlgorithm { .. } | Self::IntegrityRate => MmCause::UeSecurityCapabilitiesMismatch,
            Self::SecurityModeRejected(_) => MmCause::SecurityModeRejectedUnspecified,
            Self::TaiNotServed(_) => MmCause::NoSuitableCellsInTrackingArea,
            Self::AreaForbidden(_) => MmCause::TrackingAreaNotAllowed,
            Self::RadioBarred => MmCause::N1ModeNotAllowed,
            Self::RestrictedServiceArea(_) => MmCause::RestrictedServiceArea,
            Self::OutOfLadn(..) => MmCause::LadnNotAvailable,
            Self::NoSlice { .. } | Self::SliceNotAllowed(_) => MmCause::NoNetworkSlicesAvailable,
            Self::Limit(_)
            | Self::Congested(_)
            | Self::StoreUnavailable
            | Self::NetworkFunction(..)
            | Self::Charging(_)
            | Self::Policy(_)
            | Self::PoolEmpty(_)
            | Self::Upf(_) => MmCause::Congestion,
            Self::DnnNotSubscribed { .. } | Self::DnnNotConfigured(_) => {
                MmCause::DnnNotSupportedOrNotSubscribed
            }
            Self::SessionType(_) | Self::SscMode { .. } => MmCause::PayloadWasNotForwarded,
            Self::Qos(_) | Self::ModificationRejected(_) => MmCause::PayloadWasNotForwarded,
            Self::EquipmentRefused | Self::EquipmentUnknown => MmCause::IllegalMe, // TS 24.501 §5.5.1.2.5
            // After #5 only this attempt fails (§5.5.1.2.7).
            Self::Emergency => MmCause::PeiNotAccepted,
            Self::NoAnswer(_) | Self::RadioFailure(_) | Self::RefusedByGnb { .. } | Self::Protocol(_) => {
                MmCause::ProtocolErrorUnspecified
            }
        }
    }

    /// The 5GSM cause for a UE whose session was refused (TS 24.501 §9.11.4.2, Annex B).
    pub fn sm_cause(&self, config: &Config) -> SmCause {
        if self.kind().is_of_session()
            && let Some(cause) = self.configured(config).and_then(SmCause::from_u8)
        {
            return cause;
        }
        match self {
            Self::DnnNotSubscribed { .. } | Self::DnnNotConfigured(_) => SmCause::MissingOrUnknownDnn,
            Self::SliceNotAllowed(_) | Self::NoSlice { .. } => SmCause::MissingOrUnknownDnnInSlice,
            Self::OutOfLadn(..) => SmCause::OutOfLadnServiceArea,
            Self::IntegrityRate => SmCause::IntegrityProtectionDataRateTooLow,
            Self::SessionType(allowed) => only(*allowed),
            Self::SscMode { .. } => SmCause::NotSupportedSscMode,
            Self::Qos(cause) | Self::ModificationRejected(cause) => *cause,
            Self::PoolEmpty(_) | Self::Limit(_) | Self::Congested(_) => SmCause::InsufficientResources,
            Self::Upf(Some(UPF_CONGESTED)) => SmCause::InsufficientResources,
            Self::Upf(_) | Self::StoreUnavailable | Self::NetworkFunction(..) => SmCause::NetworkFailure,
            Self::RadioFailure(_) | Self::RefusedByGnb { .. } => SmCause::InsufficientResources,
            Self::Charging(_) | Self::Policy(_) => SmCause::UserAuthenticationOrAuthorizationFailed,
            Self::NoAnswer(_) => SmCause::NetworkFailure,
            Self::Protocol(_) => SmCause::ProtocolErrorUnspecified,
            Self::UnknownSubscriber
            | Self::UnknownToUdm
            | Self::Barred
            | Self::WrongResponse
            | Self::MacFailure
            | Self::SynchFailure
            | Self::ChallengeRefused(_)
            | Self::BadAuts
            | Self::UnknownHomeNetworkKey(_)
            | Self::BadSuci
            | Self::OtherHomeNetwork(_)
            | Self::ServingNetworkNotAuthorized
            | Self::RoamingNotAllowed
            | Self::NoIdentity
            | Self::NoContext
            | Self::Emergency
            | Self::EquipmentRefused
            | Self::EquipmentUnknown
            | Self::NoCommonAlgorithm { .. }
            | Self::SecurityModeRejected(_)
            | Self::TaiNotServed(_)
            | Self::AreaForbidden(_)
            | Self::RadioBarred
            | Self::RestrictedServiceArea(_)
            | Self::Broker { .. } => SmCause::UserAuthenticationOrAuthorizationFailed,
        }
    }

    fn configured(&self, config: &Config) -> Option<u8> {
        config.refusals.get(&self.kind()).and_then(|a| a.cause)
    }

    /// The back-off that the operator set for this class: T3346, or the session's back-off timer.
    ///
    /// Congestion has a default: without it, refused UEs come back at once (TS 24.501 §5.3.9).
    pub fn back_off(&self, config: &Config) -> Option<Duration> {
        let own = config.refusals.get(&self.kind()).and_then(|a| a.back_off);
        own.or(match self {
            Self::Congested(_) => Some(BACK_OFF),
            _ => None,
        })
    }

    /// Whether AUTHENTICATION REJECT was sent, so that no other reject follows.
    pub fn reject_was_sent(&self) -> bool {
        matches!(
            self,
            Self::WrongResponse | Self::MacFailure | Self::SynchFailure | Self::ChallengeRefused(_)
        )
    }
}

/// The cause that names the only allowed type, or #28 for an unknown type (TS 24.501 §6.4.1.4.1).
fn only(allowed: SessionTypes) -> SmCause {
    let SessionTypes { ipv4, ipv6, ethernet, unstructured } = allowed;
    match (ipv4, ipv6, ethernet, unstructured) {
        (true, false, false, false) => SmCause::PduSessionTypeIpv4OnlyAllowed,
        (false, true, false, false) => SmCause::PduSessionTypeIpv6OnlyAllowed,
        (true, true, false, false) => SmCause::PduSessionTypeIpv4v6OnlyAllowed,
        (false, false, true, false) => SmCause::PduSessionTypeEthernetOnlyAllowed,
        (false, false, false, true) => SmCause::PduSessionTypeUnstructuredOnlyAllowed,
        _ => SmCause::UnknownPduSessionType,
    }
}

/// The reason as text: what was offered and what was expected.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSubscriber => f.write_str("the subscriber is not in the store"),
            Self::Barred => f.write_str("the subscriber is barred"),
            Self::WrongResponse => {
                f.write_str("its RES* was wrong: its K or OPc differs from the subscriber's")
            }
            Self::MacFailure => {
                f.write_str("it reported a MAC failure: its K or OPc differs from the subscriber's")
            }
            Self::SynchFailure => {
                f.write_str("it reported a synch failure (SQN out of range), again after resynchronisation")
            }
            Self::ChallengeRefused(cause) => {
                write!(f, "it refused the challenge with {}", MmCauseName(*cause))
            }
            Self::BadAuts => {
                f.write_str("its resynchronisation token AUTS was not made with the subscriber's key")
            }
            Self::UnknownHomeNetworkKey(id) => {
                write!(f, "its SUCI is concealed for home network key {id}, which is not configured")
            }
            Self::BadSuci => f.write_str("its SUCI does not decrypt under the configured home network key"),
            Self::OtherHomeNetwork(plmn) => {
                write!(f, "its home network is {plmn}, which is not served here")
            }
            Self::Broker { broker, why } => write!(f, "it is a user of broker {broker}, {why}"),
            Self::NoIdentity => f.write_str("it gave no usable identity"),
            Self::NoContext => {
                f.write_str("it has no context in the AMF, although it sent a message of a registered UE")
            }
            Self::Emergency => f.write_str("it requested emergency service, which is not configured"),
            Self::EquipmentRefused => f.write_str("its equipment is listed in `access.refused_equipment`"),
            Self::EquipmentUnknown => f.write_str("it did not report its PEI"),
            Self::Congested(key) => {
                write!(f, "`access.congestion.{key}` rejects requests that have no priority")
            }
            Self::NoCommonAlgorithm { ciphering, integrity } => write!(
                f,
                "there is no common algorithm: it offers NEA {} and NIA {}",
                Bits(*ciphering),
                Bits(*integrity)
            ),
            Self::SecurityModeRejected(cause) => {
                write!(f, "it rejected the security mode with {}", MmCauseName(*cause))
            }
            Self::TaiNotServed(tai) => write!(f, "tracking area {tai} is not served"),
            Self::AreaForbidden(tai) => write!(f, "its subscription forbids tracking area {tai}"),
            Self::RadioBarred => f.write_str("its subscription bars New Radio"),
            Self::RestrictedServiceArea(tai) => {
                write!(f, "its subscription allows no services in tracking area {tai}")
            }
            Self::OutOfLadn(dnn, tai) => {
                write!(
                    f,
                    "it requested DNN `{dnn}`, a local area data network that is not served in tracking area {tai}"
                )
            }
            Self::NoSlice { requested, subscribed } => {
                write!(
                    f,
                    "none of its slices can be used: it requested {} and is subscribed to {}",
                    NameList(requested),
                    NameList(subscribed)
                )
            }
            Self::SliceNotAllowed(s) => write!(f, "slice {s} is not among its allowed slices"),
            Self::NoAnswer(to) => write!(f, "it did not answer {to}"),
            Self::RadioFailure(what) => write!(f, "its gNB failed: {what}"),
            Self::RefusedByGnb { message, cause } => {
                write!(f, "its gNB answered with {message}, cause {cause}")
            }
            Self::Limit(name) => write!(f, "the limit `{name}` is reached"),
            Self::StoreUnavailable => f.write_str("the subscriber store did not answer"),
            Self::NetworkFunction(function, fault) => write!(f, "the {function} failed: {fault}"),
            Self::Charging(denial) => write!(f, "the CHF gives no quota: {denial}"),
            Self::Policy(denial) => write!(f, "the PCF does not permit the session: {denial}"),
            Self::UnknownToUdm => f.write_str("the UDM does not have the subscriber"),
            Self::ServingNetworkNotAuthorized => f.write_str("its UDM does not accept this serving network"),
            Self::RoamingNotAllowed => f.write_str("its UDM does not let it roam here"),
            Self::Upf(None) => f.write_str("the UPF did not answer"),
            Self::Upf(Some(cause)) => match whimbrel_pfcp::ie::Cause::from_code(*cause) {
                Some(name) => write!(f, "the UPF refused with PFCP cause #{cause} ({name})"),
                None => write!(f, "the UPF refused with PFCP cause #{cause}"),
            },
            Self::PoolEmpty(dnn) => write!(f, "no address is left in the pool of `{dnn}`"),
            Self::DnnNotSubscribed { dnn, s_nssai, subscribed } => {
                write!(
                    f,
                    "it requested DNN `{dnn}` in slice {s_nssai}, but is subscribed to {} there",
                    NameList(subscribed)
                )
            }
            Self::DnnNotConfigured(dnn) => {
                write!(f, "DNN `{dnn}` is subscribed, but no data network of that name is configured")
            }
            Self::SessionType(allowed) => {
                write!(f, "it requested a PDU session type that is not allowed (allowed: {allowed})")
            }
            Self::Qos(cause) => {
                write!(f, "it requested QoS that is not allowed: 5GSM cause #{} ({cause})", *cause as u8)
            }
            Self::ModificationRejected(cause) => {
                write!(
                    f,
                    "it answered with PDU SESSION MODIFICATION COMMAND REJECT, 5GSM cause #{} ({cause})",
                    *cause as u8
                )
            }
            Self::SscMode { asked, .. } => {
                write!(f, "it requested SSC mode {}, which is not allowed", *asked as u8)
            }
            Self::IntegrityRate => {
                f.write_str("it does not support integrity protection of user packets, which is required")
            }
            Self::Protocol(what) => write!(f, "it violated the protocol: {what}"),
        }
    }
}

/// A bitmap of algorithms as their numbers.
struct Bits(u8);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for n in (0..8).filter(|n| self.0 & 0x80 >> n != 0) {
            write!(f, "{}{n}", if first { "" } else { "," })?;
            first = false;
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}

/// A 5GMM cause with its number and the standard's name.
struct MmCauseName(u8);

impl fmt::Display for MmCauseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "5GMM cause #{}", self.0)?;
        MmCause::from_u8(self.0).map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

/// A list of names as text.
struct NameList<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for NameList<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.0.split_first() else { return f.write_str("none") };
        write!(f, "`{first}`")?;
        rest.iter().try_for_each(|name| write!(f, ", `{name}`"))
    }
}
