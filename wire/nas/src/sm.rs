//! 5GS session management: the messages of TS 24.501 §8.3.

use whimbrel_ids::{PduSessionId, Reader};

use crate::EPD_5GSM;
use crate::codec::message_set;
use crate::error::{NasError, NasErrorKind};

pub use crate::msg::session_authentication::*;
pub use crate::msg::session_establishment::*;
pub use crate::msg::session_modification::*;
pub use crate::msg::session_release::*;

message_set! {
    /// The body of a 5GSM message (TS 24.501 §8.3; code points §9.7).
    Body {
        0xC1 "PDU SESSION ESTABLISHMENT REQUEST" EstablishmentRequest,
        0xC2 "PDU SESSION ESTABLISHMENT ACCEPT" EstablishmentAccept,
        0xC3 "PDU SESSION ESTABLISHMENT REJECT" EstablishmentReject,
        0xC5 "PDU SESSION AUTHENTICATION COMMAND" SessionAuthenticationCommand,
        0xC6 "PDU SESSION AUTHENTICATION COMPLETE" SessionAuthenticationComplete,
        0xC7 "PDU SESSION AUTHENTICATION RESULT" SessionAuthenticationResult,
        0xC9 "PDU SESSION MODIFICATION REQUEST" ModificationRequest,
        0xCA "PDU SESSION MODIFICATION REJECT" ModificationReject,
        0xCB "PDU SESSION MODIFICATION COMMAND" ModificationCommand,
        0xCC "PDU SESSION MODIFICATION COMPLETE" ModificationComplete,
        0xCD "PDU SESSION MODIFICATION COMMAND REJECT" ModificationCommandReject,
        0xD1 "PDU SESSION RELEASE REQUEST" ReleaseRequest,
        0xD2 "PDU SESSION RELEASE REJECT" ReleaseReject,
        0xD3 "PDU SESSION RELEASE COMMAND" ReleaseCommand,
        0xD4 "PDU SESSION RELEASE COMPLETE" ReleaseComplete,
        0xD6 "5GSM STATUS" SmStatus,
    }
}

/// Procedure transaction identity (TS 24.007 §11.2.3.1a).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pti(pub u8);

impl Pti {
    /// No procedure transaction identity assigned: the network began.
    pub const UNASSIGNED: Pti = Pti(0);
    /// The value that is reserved.
    pub const RESERVED: Pti = Pti(255);

    /// Whether it names a transaction that a UE began (1 to 254; 255 is reserved, TS 24.501 §7.3.1).
    pub const fn is_assigned(self) -> bool {
        self.0 != 0 && self.0 != 255
    }
}

/// A 5GSM message: its header (TS 24.501 §9.1.1) and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// PDU session identity; `None` if none is assigned.
    pub pdu_session_id: Option<PduSessionId>,
    /// Procedure transaction identity, as received: the procedures answer a wrong one by §7.3.1.
    pub pti: Pti,
    /// Body of the message.
    pub body: Body,
}

impl Message {
    /// A message of a session.
    pub fn new(pdu_session_id: PduSessionId, pti: Pti, body: impl Into<Body>) -> Self {
        Self { pdu_session_id: Some(pdu_session_id), pti, body: body.into() }
    }

    /// Which message it is.
    pub const fn message_type(&self) -> MessageType {
        self.body.message_type()
    }

    /// Reads a 5GSM message.
    ///
    /// Spec: TS 24.501 §7, §9.1.1. Errors: see [`NasErrorKind`].
    pub fn decode(octets: &[u8]) -> Result<Self, NasError> {
        let mut r = Reader::new(octets);
        let short = |_| NasError::new(NasErrorKind::TooShort);
        let epd = r.u8("extended protocol discriminator").map_err(short)?;
        if epd != EPD_5GSM {
            return Err(NasError::new(NasErrorKind::ProtocolDiscriminator(epd)));
        }
        let [session, pti, octet] = r.array("header").map_err(short)?;
        let error = |kind| NasError { kind, message_type: Some(octet), sm_header: Some((session, pti)) };
        let pdu_session_id = match session {
            0 => None,
            _ => Some(PduSessionId::new(session).ok_or(error(NasErrorKind::PduSessionIdentity(session)))?),
        };
        let message_type = MessageType::from_u8(octet).ok_or(error(NasErrorKind::MessageType(octet)))?;
        let body = Body::decode_body(message_type, &mut r).map_err(error)?;
        Ok(Self { pdu_session_id, pti: Pti(pti), body })
    }

    /// Appends the message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let session = self.pdu_session_id.map_or(0, PduSessionId::value);
        out.extend_from_slice(&[EPD_5GSM, session, self.pti.0, self.message_type().value()]);
        self.body.encode_body(out);
    }

    /// The message as octets of its own.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.encode(&mut out);
        out
    }
}
