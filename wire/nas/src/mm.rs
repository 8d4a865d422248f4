//! 5GS mobility management: the messages of TS 24.501 §8.2, plain.

use whimbrel_ids::Reader;

use crate::codec::message_set;
use crate::error::{NasError, NasErrorKind};
use crate::{EPD_5GMM, SECURITY_HEADER_PLAIN};

pub use crate::msg::authentication::*;
pub use crate::msg::configuration_update::*;
pub use crate::msg::deregistration::*;
pub use crate::msg::identity::*;
pub use crate::msg::nas_transport::*;
pub use crate::msg::registration_accept::*;
pub use crate::msg::registration_reject::*;
pub use crate::msg::registration_request::*;
pub use crate::msg::security_mode::*;
pub use crate::msg::service::*;
pub use crate::msg::slice_authentication::*;
pub use crate::msg::status::*;

message_set! {
    /// A 5GMM message (TS 24.501 §8.2; code points §9.7).
    Message {
        0x41 "REGISTRATION REQUEST" RegistrationRequest,
        0x42 "REGISTRATION ACCEPT" RegistrationAccept,
        0x43 "REGISTRATION COMPLETE" RegistrationComplete,
        0x44 "REGISTRATION REJECT" RegistrationReject,
        0x45 "DEREGISTRATION REQUEST (UE originating)" DeregistrationRequestUeOriginating,
        0x46 "DEREGISTRATION ACCEPT (UE originating)" DeregistrationAcceptUeOriginating,
        0x47 "DEREGISTRATION REQUEST (UE terminated)" DeregistrationRequestUeTerminated,
        0x48 "DEREGISTRATION ACCEPT (UE terminated)" DeregistrationAcceptUeTerminated,
        0x4C "SERVICE REQUEST" ServiceRequest,
        0x4D "SERVICE REJECT" ServiceReject,
        0x4E "SERVICE ACCEPT" ServiceAccept,
        0x4F "CONTROL PLANE SERVICE REQUEST" ControlPlaneServiceRequest,
        0x50 "NETWORK SLICE-SPECIFIC AUTHENTICATION COMMAND" SliceAuthenticationCommand,
        0x51 "NETWORK SLICE-SPECIFIC AUTHENTICATION COMPLETE" SliceAuthenticationComplete,
        0x52 "NETWORK SLICE-SPECIFIC AUTHENTICATION RESULT" SliceAuthenticationResult,
        0x54 "CONFIGURATION UPDATE COMMAND" ConfigurationUpdateCommand,
        0x55 "CONFIGURATION UPDATE COMPLETE" ConfigurationUpdateComplete,
        0x56 "AUTHENTICATION REQUEST" AuthenticationRequest,
        0x57 "AUTHENTICATION RESPONSE" AuthenticationResponse,
        0x58 "AUTHENTICATION REJECT" AuthenticationReject,
        0x59 "AUTHENTICATION FAILURE" AuthenticationFailure,
        0x5A "AUTHENTICATION RESULT" AuthenticationResult,
        0x5B "IDENTITY REQUEST" IdentityRequest,
        0x5C "IDENTITY RESPONSE" IdentityResponse,
        0x5D "SECURITY MODE COMMAND" SecurityModeCommand,
        0x5E "SECURITY MODE COMPLETE" SecurityModeComplete,
        0x5F "SECURITY MODE REJECT" SecurityModeReject,
        0x64 "5GMM STATUS" MmStatus,
        0x65 "NOTIFICATION" Notification,
        0x66 "NOTIFICATION RESPONSE" NotificationResponse,
        0x67 "UL NAS TRANSPORT" UlNasTransport,
        0x68 "DL NAS TRANSPORT" DlNasTransport,
    }
}

impl Message {
    /// Reads a plain 5GMM message.
    ///
    /// Spec: TS 24.501 §7, §9.1.1. Errors: see [`NasErrorKind`]; a security protected message is one of them.
    pub fn decode(octets: &[u8]) -> Result<Self, NasError> {
        let mut r = Reader::new(octets);
        let short = |_| NasError::new(NasErrorKind::TooShort);
        let [epd, header] = r.array("header").map_err(short)?;
        if epd != EPD_5GMM {
            return Err(NasError::new(NasErrorKind::ProtocolDiscriminator(epd)));
        }
        // Bits 8 to 5 are spare: a later release may use them.
        if header & 0x0f != SECURITY_HEADER_PLAIN {
            return Err(NasError::new(NasErrorKind::SecurityProtected(header & 0x0f)));
        }
        let octet = r.u8("message type").map_err(short)?;
        let error = |kind| NasError { message_type: Some(octet), ..NasError::new(kind) };
        let message_type = MessageType::from_u8(octet).ok_or(error(NasErrorKind::MessageType(octet)))?;
        Self::decode_body(message_type, &mut r).map_err(error)
    }

    /// Appends the plain message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[EPD_5GMM, SECURITY_HEADER_PLAIN, self.message_type().value()]);
        self.encode_body(out);
    }

    /// The plain message as octets of its own.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64); // most messages fit; see the encoded vectors
        self.encode(&mut out);
        out
    }
}
