//! Events of an emulated UE.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use whimbrel_ids::{Dnn, GlobalGnbId, Instant, PduSessionId, Qfi, SNssai};
use whimbrel_nas::ie::{
    IdentityType, MmCause, PduSessionType, QosFlowDescription, QosRule, RegistrationKind, SmCause,
};
use whimbrel_nas::mm::MessageType;
use whimbrel_open::msg::RefusalCause;

/// A measured procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MeasuredProcedure {
    /// Registration (TS 24.501 §5.5.1).
    Registration,
    /// Service request (§5.6.1).
    ServiceRequest,
    /// Deregistration by the UE (§5.5.2.2).
    Deregistration,
    /// PDU session establishment (§6.4.1).
    SessionEstablishment,
    /// PDU session modification by the UE (§6.4.2).
    SessionModification,
    /// PDU session release by the UE (§6.4.3).
    SessionRelease,
}

impl MeasuredProcedure {
    /// All, in the order of their clauses.
    pub const ALL: [Self; 6] = [
        Self::Registration,
        Self::ServiceRequest,
        Self::Deregistration,
        Self::SessionEstablishment,
        Self::SessionModification,
        Self::SessionRelease,
    ];
}

impl fmt::Display for MeasuredProcedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Registration => "registration",
            Self::ServiceRequest => "service request",
            Self::Deregistration => "deregistration",
            Self::SessionEstablishment => "session establishment",
            Self::SessionModification => "session modification",
            Self::SessionRelease => "session release",
        })
    }
}

/// The parameters of an accepted session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Identity of the session.
    pub id: PduSessionId,
    /// The type that the network selected.
    pub pdu_session_type: PduSessionType,
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The interface identifier of the IPv6 link-local address; the prefix comes by router advertisement.
    pub interface_id: Option<[u8; 8]>,
    /// DNS servers, IPv4.
    pub dns_ipv4: Vec<Ipv4Addr>,
    /// DNS servers, IPv6.
    pub dns_ipv6: Vec<Ipv6Addr>,
    /// IPv4 addresses of P-CSCFs.
    pub p_cscf_ipv4: Vec<Ipv4Addr>,
    /// IPv6 addresses of P-CSCFs.
    pub p_cscf_ipv6: Vec<Ipv6Addr>,
    /// IPv4 link MTU in octets.
    pub mtu: Option<u16>,
    /// The flow of the default QoS rule.
    pub qfi: Option<Qfi>,
    /// The present QoS rules.
    pub rules: Vec<QosRule>,
    /// The present QoS flow descriptions.
    pub flows: Vec<QosFlowDescription>,
    /// Session AMBR, downlink and uplink, kbit/s.
    pub ambr_kbps: (u64, u64),
    /// The data network.
    pub dnn: Option<Dnn>,
    /// Slice of the session.
    pub s_nssai: Option<SNssai>,
    /// RQ timer of derived rules.
    pub rq_timer: Option<Duration>,
    /// The cause in the accept, such as "IPv4 only allowed".
    pub cause: Option<SmCause>,
}

/// Why a procedure failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The network refused, with this cause.
    Mm(MmCause),
    /// The network refused the session, with this cause.
    Sm(SmCause),
    /// The network refused the authentication (AUTHENTICATION REJECT).
    AuthenticationRejected,
    /// The UE refused the network's challenge.
    ChallengeRefused(MmCause),
    /// The UE refused the SECURITY MODE COMMAND.
    SecurityModeRefused(MmCause),
    /// No answer came in time.
    TimedOut,
    /// The connection was lost.
    ConnectionLost,
    /// The gNB rejected the connection because of AMF overload.
    Barred,
    /// The state of the UE does not allow it.
    NotPossible,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mm(cause) => write!(f, "5GMM cause #{} {cause}", cause.value()),
            Self::Sm(cause) => write!(f, "5GSM cause #{} {cause}", cause.value()),
            Self::AuthenticationRejected => f.write_str("AUTHENTICATION REJECT"),
            Self::ChallengeRefused(cause) => {
                write!(f, "the UE refused the challenge: #{} {cause}", cause.value())
            }
            Self::SecurityModeRefused(cause) => {
                write!(f, "the UE refused the security mode: #{} {cause}", cause.value())
            }
            Self::TimedOut => f.write_str("no answer in time"),
            Self::ConnectionLost => f.write_str("the connection was lost"),
            Self::Barred => {
                f.write_str("the gNB kept the UE away, since the AMF is overloaded (OVERLOAD START)")
            }
            Self::NotPossible => f.write_str("not possible in this state"),
        }
    }
}

/// A violation of TS 24.501 or TS 33.501 by the core, seen from the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The gNB was given another K_gNB than the UE derives (TS 33.501 §6.8.1.1.2.2).
    KGnbDiffers,
    /// The target of a handover uses another key than the UE derives (TS 33.501 §6.9.2.3).
    HandoverKeyDiffers,
    /// The AMF gave the gNB an NH that does not match its NCC (TS 33.501 §6.9.2.3.2).
    NextHopDiffers,
    /// AS security without NAS security.
    AsSecurityTooEarly,
    /// An unprotected message that must be protected (TS 24.501 §4.4.4.2).
    Unprotected(MessageType),
    /// A downlink COUNT that was used before, for another message under the same keys (TS 33.501 §6.4.3.1).
    NasCountReuse,
    /// A message that cannot be decoded; its type octet, if known.
    Malformed(Option<u8>),
    /// A message that only UEs send, or one that the state does not allow.
    Unexpected(MessageType),
    /// The registration was accepted without any requested slice in the allowed NSSAI.
    AllowedNssai,
    /// The registration area does not include the UE's tracking area.
    RegistrationArea,
    /// A session was accepted with a type or an address that the UE cannot use.
    SessionAddress(PduSessionId),
    /// A downlink packet in another QoS flow than the UE's rules demand (TS 23.501 §5.7.1.5).
    DownlinkFlow(PduSessionId),
    /// QoS rules without a default rule, or an invalid change of them.
    QosRules(PduSessionId),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KGnbDiffers => f.write_str("K_gNB of the gNB is not the one that the UE derives"),
            Self::HandoverKeyDiffers => {
                f.write_str("the key after the handover is not the one that the UE derives")
            }
            Self::NextHopDiffers => {
                f.write_str("the next hop that the gNB was given is not the one of its chaining count")
            }
            Self::AsSecurityTooEarly => f.write_str("AS security before NAS security"),
            Self::Unprotected(m) => write!(f, "{m} came without protection"),
            Self::NasCountReuse => {
                f.write_str("a downlink NAS COUNT was used again, for another message under the same keys")
            }
            Self::Malformed(Some(octet)) => write!(f, "a NAS message of type {octet:#04x} cannot be read"),
            Self::Malformed(None) => f.write_str("a NAS message cannot be read"),
            Self::Unexpected(m) => write!(f, "{m} was not awaited"),
            Self::AllowedNssai => f.write_str(
                "the allowed NSSAI is empty, or another than was asked for without a word of that",
            ),
            Self::RegistrationArea => f.write_str("the registration area does not hold the UE's cell"),
            Self::SessionAddress(id) => write!(f, "PDU session {id} was accepted without a usable address"),
            Self::DownlinkFlow(id) => {
                write!(
                    f,
                    "a downlink packet of PDU session {id} came in another flow than its rules have for it"
                )
            }
            Self::QosRules(id) => write!(f, "the QoS rules of PDU session {id} make no sense"),
        }
    }
}

/// Event of a UE. `since` is when the first message of the procedure was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// REGISTRATION ACCEPT has come.
    Registered {
        /// When REGISTRATION REQUEST was sent.
        since: Instant,
        /// The kind of registration.
        kind: RegistrationKind,
    },
    /// REGISTRATION REJECT to a broker's UE: the cause that its broker has signed. Without one the UE may try another network.
    BrokerRefused(Option<RefusalCause>),
    /// SERVICE ACCEPT has come.
    ServiceAccepted {
        /// When SERVICE REQUEST was sent.
        since: Instant,
    },
    /// PDU SESSION ESTABLISHMENT ACCEPT.
    SessionUp {
        /// When the request was sent.
        since: Instant,
        /// Parameters of the session.
        session: Box<SessionInfo>,
    },
    /// PDU SESSION MODIFICATION COMMAND was received and executed.
    SessionModified {
        /// When the UE requested it, if it did.
        since: Option<Instant>,
        /// Identity of the session.
        session: PduSessionId,
    },
    /// A session was released by either side, or does not exist at the network.
    SessionReleased {
        /// When the UE requested it, if it did.
        since: Option<Instant>,
        /// Identity of the session.
        session: PduSessionId,
        /// The network's cause, if it sent one.
        cause: Option<SmCause>,
    },
    /// The radio bearers of a session were set up or released.
    UserPlane {
        /// Identity of the session.
        session: PduSessionId,
        /// Whether they are set up.
        up: bool,
    },
    /// It has completed a handover.
    HandedOver {
        /// The gNB of the cell.
        to: GlobalGnbId,
    },
    /// The UE is registered and has no connection.
    Idle,
    /// The UE is not registered any more.
    Deregistered {
        /// When it requested it, if it did.
        since: Option<Instant>,
        /// The network's cause, if any.
        cause: Option<MmCause>,
    },
    /// A procedure failed.
    Refused {
        /// When its first message was sent.
        since: Instant,
        /// The procedure that was refused.
        procedure: MeasuredProcedure,
        /// Its session, if any.
        session: Option<PduSessionId>,
        /// Reason of the refusal.
        reason: Reason,
        /// When the UE retries, if it does.
        retry_after: Option<Duration>,
    },
    /// It answers paging.
    Paged,
    /// IDENTITY REQUEST was received, for this identity.
    IdentityAsked(IdentityType),
    /// CONFIGURATION UPDATE COMMAND was received.
    ConfigurationUpdated {
        /// With a new 5G-GUTI.
        new_guti: bool,
    },
    /// 5GMM STATUS was received.
    Status(MmCause),
    /// 5GSM STATUS was received.
    SessionStatus(SmCause),
    /// A payload was received that the emulated UE ignores (SMS, LPP, SOR, UE policy): its type.
    Payload(u8),
    /// A message was discarded because of its protection: wrong MAC, repeated, or no keys for it.
    Discarded(Discard),
    /// A violation of the standard by the core.
    Violation(Violation),
}

/// Why a protected message was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Its MAC is wrong.
    MacMismatch,
    /// It is a replay.
    Replayed,
    /// There are no keys for it.
    NoContext,
}
