//! The messages (TS 29.244 §7.4, §7.5).

mod association;
mod control_information;
mod heartbeat;
mod node_report;
mod pfd_management;
mod session_deletion;
mod session_establishment;
mod session_modification;
mod session_report;

pub use association::{
    AssociationReleaseRequest, AssociationReleaseResponse, AssociationSetupRequest, AssociationSetupResponse,
    AssociationUpdateRequest, AssociationUpdateResponse, SessionRetentionInformation,
};
pub use control_information::{LoadControlInformation, OverloadControlInformation};
pub use heartbeat::{HeartbeatRequest, HeartbeatResponse, VersionNotSupportedResponse};
pub use node_report::{
    NodeReportRequest, NodeReportResponse, UserPlanePathFailureReport, UserPlanePathRecoveryReport,
};
pub use pfd_management::{ApplicationPfds, PfdContext, PfdManagementRequest, PfdManagementResponse};
pub use session_deletion::{SessionDeletionRequest, SessionDeletionResponse};
pub use session_establishment::{SessionEstablishmentRequest, SessionEstablishmentResponse};
pub use session_modification::{SessionModificationRequest, SessionModificationResponse};
pub use session_report::{
    DownlinkDataReport, ErrorIndicationReport, SessionReportRequest, SessionReportResponse,
};

use whimbrel_ids::{DecodeErrorKind, Reader, Seid};

use crate::codec::{Ie, next_ie, read_optional};
use crate::error::Error;
use crate::header::{self, Frame, Header, message_type};

macro_rules! messages {
    ($( $(#[$meta:meta])* $name:ident($body:ident) = $code:ident, )*) => {
        /// Any message. Its body is boxed where it is large.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Message { $( $(#[$meta])* $name(Box<$body>), )* }

        impl Message {
            /// The code point in the header.
            pub const fn message_type(&self) -> u8 {
                match self { $( Self::$name(_) => message_type::$code, )* }
            }

            fn read(message_type: u8, r: &mut Reader<'_>) -> Result<Self, Error> {
                match message_type {
                    $( message_type::$code => Ok(Self::$name(Box::new(<$body as Ie>::read(r)?))), )*
                    _ => Err(Error::new(DecodeErrorKind::Unknown, "message type", 1)),
                }
            }

            fn write(&self, out: &mut Vec<u8>) {
                match self { $( Self::$name(m) => m.write(out), )* }
            }
        }

        $( impl From<$body> for Message {
            fn from(m: $body) -> Self {
                Self::$name(Box::new(m))
            }
        } )*
    };
}

messages! {
    /// TS 29.244 §7.4.2.1.
    HeartbeatRequest(HeartbeatRequest) = HEARTBEAT_REQUEST,
    /// TS 29.244 §7.4.2.2.
    HeartbeatResponse(HeartbeatResponse) = HEARTBEAT_RESPONSE,
    /// TS 29.244 §7.4.3.1.
    PfdManagementRequest(PfdManagementRequest) = PFD_MANAGEMENT_REQUEST,
    /// TS 29.244 §7.4.3.2.
    PfdManagementResponse(PfdManagementResponse) = PFD_MANAGEMENT_RESPONSE,
    /// TS 29.244 §7.4.4.1.
    AssociationSetupRequest(AssociationSetupRequest) = ASSOCIATION_SETUP_REQUEST,
    /// TS 29.244 §7.4.4.2.
    AssociationSetupResponse(AssociationSetupResponse) = ASSOCIATION_SETUP_RESPONSE,
    /// TS 29.244 §7.4.4.3.
    AssociationUpdateRequest(AssociationUpdateRequest) = ASSOCIATION_UPDATE_REQUEST,
    /// TS 29.244 §7.4.4.4.
    AssociationUpdateResponse(AssociationUpdateResponse) = ASSOCIATION_UPDATE_RESPONSE,
    /// TS 29.244 §7.4.4.5.
    AssociationReleaseRequest(AssociationReleaseRequest) = ASSOCIATION_RELEASE_REQUEST,
    /// TS 29.244 §7.4.4.6.
    AssociationReleaseResponse(AssociationReleaseResponse) = ASSOCIATION_RELEASE_RESPONSE,
    /// TS 29.244 §7.4.4.7.
    VersionNotSupportedResponse(VersionNotSupportedResponse) = VERSION_NOT_SUPPORTED_RESPONSE,
    /// TS 29.244 §7.4.5.1.
    NodeReportRequest(NodeReportRequest) = NODE_REPORT_REQUEST,
    /// TS 29.244 §7.4.5.2.
    NodeReportResponse(NodeReportResponse) = NODE_REPORT_RESPONSE,
    /// TS 29.244 §7.5.2.
    SessionEstablishmentRequest(SessionEstablishmentRequest) = SESSION_ESTABLISHMENT_REQUEST,
    /// TS 29.244 §7.5.3.
    SessionEstablishmentResponse(SessionEstablishmentResponse) = SESSION_ESTABLISHMENT_RESPONSE,
    /// TS 29.244 §7.5.4.
    SessionModificationRequest(SessionModificationRequest) = SESSION_MODIFICATION_REQUEST,
    /// TS 29.244 §7.5.5.
    SessionModificationResponse(SessionModificationResponse) = SESSION_MODIFICATION_RESPONSE,
    /// TS 29.244 §7.5.6.
    SessionDeletionRequest(SessionDeletionRequest) = SESSION_DELETION_REQUEST,
    /// TS 29.244 §7.5.7.
    SessionDeletionResponse(SessionDeletionResponse) = SESSION_DELETION_RESPONSE,
    /// TS 29.244 §7.5.8.
    SessionReportRequest(SessionReportRequest) = SESSION_REPORT_REQUEST,
    /// TS 29.244 §7.5.9.
    SessionReportResponse(SessionReportResponse) = SESSION_REPORT_RESPONSE,
}

/// Load and overload information of a session message (types 51 and 54), without reading the rest. What cannot be read
/// counts as absent (TS 29.244 §7.6.7).
pub fn control_information(
    frame: &Frame<'_>,
) -> (Option<LoadControlInformation>, Option<OverloadControlInformation>) {
    let (mut load, mut overload) = (None, None);
    let mut r = Reader::new(frame.body);
    while let Ok((ie_type, mut value)) = next_ie(&mut r) {
        match ie_type {
            51 => read_optional(&mut load, ie_type, &mut value),
            54 => read_optional(&mut overload, ie_type, &mut value),
            _ => {}
        }
    }
    (load, overload)
}

impl Message {
    /// Reads the body of a frame.
    ///
    /// Errors: [`Error`], whose cause and offending IE go into the answer; of kind `Unknown` with offending
    /// IE 0 for a message type that is not known here, which is discarded (TS 29.244 §7.6.4).
    pub fn parse(frame: &Frame<'_>) -> Result<Self, Error> {
        let base = if frame.header.seid.is_some() { 16 } else { 8 };
        Self::read(frame.header.message_type, &mut Reader::nested(frame.body, base))
    }

    /// Appends the whole message to `out`. `seid` is the receiver's, for session related messages;
    /// `sequence` keeps its lower 24 bits.
    ///
    /// Panics: if the message exceeds 65,535 octets; the bounds on a session's rules keep that out of reach.
    pub fn emit(&self, seid: Option<Seid>, sequence: u32, out: &mut Vec<u8>) {
        let sequence = sequence & header::SEQUENCE_MAX;
        let header =
            Header { message_type: self.message_type(), seid, sequence, priority: None, follow_on: false };
        let start = header.begin(out);
        self.write(out);
        header::finish(start, out);
    }

    /// The whole message in a buffer of its own.
    pub fn to_octets(&self, seid: Option<Seid>, sequence: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.emit(seid, sequence, &mut out);
        out
    }
}
