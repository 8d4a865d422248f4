//! Violations of TS 38.413 by the core.

use core::fmt;

use whimbrel_gtpu::GtpuError;
use whimbrel_ids::{AmfUeNgapId, DecodeError, PduSessionId, RanUeNgapId};
use whimbrel_ngap::{Cause, Refusal};

/// A violation of TS 38.413 by the core, which fails a test or demo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A message that cannot be decoded.
    Refused(Refusal),
    /// A message for a UE that has no context here (§8.7.4, cause unknown local UE NGAP ID).
    UnknownUe {
        /// Name of the message.
        message: &'static str,
        /// Its RAN UE NGAP ID.
        ran_ue_ngap_id: RanUeNgapId,
    },
    /// An AMF UE NGAP ID other than the one of this connection (cause inconsistent remote UE NGAP ID).
    InconsistentAmfUeNgapId {
        /// The one of the connection.
        known: AmfUeNgapId,
        /// The received one.
        given: AmfUeNgapId,
    },
    /// A stream that TS 38.412 §7 keeps for the other kind of signalling, or not the stream of this UE.
    WrongStream {
        /// Name of the message.
        message: &'static str,
        /// The stream on which it came.
        stream: u16,
    },
    /// A message that only a gNB sends, or an unexpected answer.
    Unexpected(&'static str),
    /// NG SETUP RESPONSE without a GUAMI or a slice of the gNB's own network (§8.7.1.2).
    SetupWithoutOwnPlmn,
    /// A security key of zeros.
    ZeroSecurityKey,
    /// A GUAMI that the AMF did not announce.
    ForeignGuami,
    /// Allowed NSSAI that the cell does not serve.
    AllowedNssaiNotServed,
    /// A first session without UE Aggregate Maximum Bit Rate (§9.2.2.1, §8.2.1.2).
    MissingUeAmbr,
    /// Another UE Radio Capability than the stored one.
    RadioCapabilityAltered,
    /// A session that exists already.
    SessionExists(PduSessionId),
    /// An unknown session.
    UnknownSession(PduSessionId),
    /// A transfer that cannot be read.
    Transfer(PduSessionId, DecodeError),
    /// An unusable tunnel: TEID zero, or an address family that the gNB does not have.
    UnusableTunnel(PduSessionId),
    /// Non-GBR flows without a session AMBR (§9.3.4.1).
    MissingSessionAmbr(PduSessionId),
    /// No QoS flow, or one named twice.
    BadQosFlows(PduSessionId),
    /// A missing answer of the AMF.
    NoAnswer(&'static str),
    /// A transparent container was changed.
    ContainerAltered,
    /// A session of a handover that the core lists neither as admitted nor as released, or as both.
    SessionUnaccounted(PduSessionId),
    /// PATH SWITCH REQUEST ACKNOWLEDGE with the next hop chaining count that is in use (TS 33.501 §6.9.2.3.2).
    NextHopNotFresh,
    /// Security capabilities other than those that the core gave before (TS 33.501 §6.7.3.1).
    SecurityCapabilitiesAltered,
    /// The gNB sent wrong ones, and the core did not correct them (TS 33.501 §6.7.3.1).
    SecurityCapabilitiesNotCorrected,
    /// Packets arrived over the new path without an end marker in the old one (TS 23.502 §4.9.1.2.2 step 7).
    MissingEndMarker(PduSessionId),
    /// A downlink packet without a QoS flow, or of one that the session does not have (TS 38.415 §5.4.1).
    DownlinkFlow(PduSessionId),
    /// GTP-U that cannot be read.
    Gtpu(GtpuError),
    /// ERROR INDICATION of the AMF.
    ErrorIndicated(Option<Cause>),
    /// PAGING for areas that the gNB does not serve.
    PagedElsewhere,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "the AMF sent a message that breaks NGAP: {refusal}"),
            Self::UnknownUe { message, ran_ue_ngap_id } => {
                write!(f, "{message} names RAN-UE-NGAP-ID {ran_ue_ngap_id}, which has no context")
            }
            Self::InconsistentAmfUeNgapId { known, given } => {
                write!(f, "AMF-UE-NGAP-ID {given} came on the connection of {known}")
            }
            Self::WrongStream { message, stream } => write!(f, "{message} came on stream {stream}"),
            Self::Unexpected(message) => write!(f, "{message} was not awaited"),
            Self::SetupWithoutOwnPlmn => f.write_str("NG SETUP RESPONSE serves none of the gNB's networks"),
            Self::ZeroSecurityKey => f.write_str("the security key is zero"),
            Self::ForeignGuami => f.write_str("the GUAMI is none that the AMF announced"),
            Self::AllowedNssaiNotServed => f.write_str("no slice of the allowed NSSAI is served in the cell"),
            Self::MissingUeAmbr => {
                f.write_str("the first session came without UE Aggregate Maximum Bit Rate")
            }
            Self::RadioCapabilityAltered => {
                f.write_str("the UE radio capability is not what the gNB had reported")
            }
            Self::SessionExists(id) => write!(f, "PDU session {id} stands already"),
            Self::UnknownSession(id) => write!(f, "PDU session {id} does not stand"),
            Self::Transfer(id, e) => write!(f, "the transfer of PDU session {id} cannot be read: {e}"),
            Self::UnusableTunnel(id) => write!(f, "the uplink tunnel of PDU session {id} cannot be used"),
            Self::MissingSessionAmbr(id) => {
                write!(f, "PDU session {id} has non-GBR flows and no session AMBR")
            }
            Self::BadQosFlows(id) => write!(f, "PDU session {id} has no QoS flow, or one twice"),
            Self::NoAnswer(message) => write!(f, "{message} was not answered"),
            Self::ContainerAltered => {
                f.write_str("a transparent container is not what the other gNB had written")
            }
            Self::SessionUnaccounted(id) => {
                write!(f, "the handover does not say what becomes of PDU session {id}")
            }
            Self::NextHopNotFresh => {
                f.write_str("the next hop chaining count is the one that is in use already")
            }
            Self::SecurityCapabilitiesAltered => {
                f.write_str("the UE security capabilities are not those that the core gave before")
            }
            Self::SecurityCapabilitiesNotCorrected => {
                f.write_str("the gNB named false UE security capabilities, and the core took them")
            }
            Self::MissingEndMarker(id) => {
                write!(f, "PDU session {id} moved to a new path, and no end marker came over the old one")
            }
            Self::DownlinkFlow(id) => {
                write!(f, "a downlink packet of PDU session {id} names no QoS flow, or one that is not there")
            }
            Self::Gtpu(e) => write!(f, "a datagram of GTP-U cannot be read: {e}"),
            Self::ErrorIndicated(Some(cause)) => write!(f, "ERROR INDICATION: {}", cause_text(cause)),
            Self::ErrorIndicated(None) => f.write_str("ERROR INDICATION without a cause"),
            Self::PagedElsewhere => f.write_str("PAGING for tracking areas of others"),
        }
    }
}

/// The name of a cause.
pub fn cause_text(cause: &Cause) -> &'static str {
    match cause {
        Cause::RadioNetwork(c) => c.as_str(),
        Cause::Transport(c) => c.as_str(),
        Cause::Nas(c) => c.as_str(),
        Cause::Protocol(c) => c.as_str(),
        Cause::Misc(c) => c.as_str(),
    }
}
