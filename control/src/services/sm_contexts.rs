//! Nsmf_PDUSession at another vendor's SMF (TS 29.502 §5.2.2), and what that SMF asks of the AMF (TS 29.518 §5.2.2.3). A request is an output of the
//! UE, the answer a later input, and so is each message that the SMF sends.

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, PduSessionId, Pei, SNssai, Supi, Tai};
use whimbrel_ngap::ie::NgranCgi;

use super::ServiceFault;
pub use super::remote_amf::{HandoverStep, N2SmKind};

/// A request to the SMF about one PDU session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmfRequest {
    /// Subscriber of the session.
    pub supi: Supi,
    /// Identity of the session.
    pub psi: PduSessionId,
    /// Operation of the service.
    pub operation: SmfOperation,
}

/// Operations at the SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfOperation {
    /// Nsmf_PDUSession_CreateSMContext (TS 29.502 §5.2.2.2).
    Create(Box<NewSmContext>),
    /// Nsmf_PDUSession_UpdateSMContext (TS 29.502 §5.2.2.3).
    Update {
        /// The SM context.
        reference: Box<str>,
        /// The change of the session.
        change: Box<SmContextChange>,
    },
    /// Nsmf_PDUSession_ReleaseSMContext (TS 29.502 §5.2.2.4).
    Release {
        /// The SM context.
        reference: Box<str>,
        /// Place of the UE.
        place: UePlace,
    },
    /// N1N2TransferFailureNotification (TS 29.518 §5.2.2.3.2): the UE was not reached.
    ReportFailure {
        /// Where the SMF is notified.
        uri: Box<str>,
    },
}

/// Where a UE is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UePlace {
    /// Its tracking area.
    pub tai: Option<Tai>,
    /// Its cell, by the last report of a gNB.
    pub cell: Option<NgranCgi>,
}

/// A new session (SmContextCreateData, TS 29.502 §6.1.6.2.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSmContext {
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
    /// An existing session of the UE.
    pub existing: bool,
    /// An emergency session.
    pub emergency: bool,
    /// Equipment of the UE.
    pub pei: Option<Pei>,
    /// Place of the UE.
    pub place: UePlace,
    /// The UE's 5GSM message.
    pub n1: Vec<u8>,
}

/// A change of an SM context (SmContextUpdateData, TS 29.502 §6.1.6.2.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmContextChange {
    /// A 5GSM message of the UE.
    pub n1: Option<Vec<u8>>,
    /// An information element of NGAP.
    pub n2: Option<N2Part>,
    /// The user plane that the session is to have.
    pub user_plane: Option<UserPlaneChange>,
    /// State of a handover.
    pub handover: Option<HandoverStep>,
    /// The path switch request lists the session: `true` to be switched, `false` as failed.
    pub path_switch: Option<bool>,
    /// Place of the UE.
    pub place: UePlace,
}

/// A part of a request or an answer: the kind of an information element of NGAP, and its octets.
pub type N2Part = (N2SmKind, Vec<u8>);

/// A change of a session's user plane (UpCnxState, TS 29.502 §6.1.6.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserPlaneChange {
    /// ACTIVATING: it is to be set up.
    Activating,
    /// DEACTIVATED: packets for the UE wait in the UPF.
    Deactivated,
}

/// The SMF's answer, or its failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfAnswer {
    /// The SM context was created.
    Created {
        /// Its identity at the SMF; at most 256 octets.
        reference: Box<str>,
    },
    /// The change was taken, or the context released.
    Done(Box<SmfMessage>),
    /// The SMF refuses.
    Refused {
        /// Status of HTTP.
        status: u16,
        /// Messages for the UE and its gNB.
        message: Box<SmfMessage>,
    },
    /// The SMF failed.
    Failed(ServiceFault),
}

/// Messages of the SMF for a UE and its gNB: in an answer, or of the SMF's own accord (N1N2MessageTransfer, TS 29.518 §5.2.2.3.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmfMessage {
    /// A 5GSM message for the UE.
    pub n1: Option<Vec<u8>>,
    /// An information element for the gNB.
    pub n2: Option<N2Part>,
    /// An idle UE is not paged for it (skipInd).
    pub skip: bool,
    /// Priority of the flow whose packets wait, 1 to 15.
    pub priority: Option<u8>,
    /// Where the SMF is notified if the UE is not reached.
    pub failure_uri: Option<Box<str>>,
}

/// An order of the SMF in mid-session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmfOrder {
    /// Namf_Communication_N1N2MessageTransfer (TS 29.518 §5.2.2.3.1).
    Transfer(SmfMessage),
    /// Nsmf_PDUSession_SMContextStatusNotify (TS 29.502 §5.2.2.5): the SMF has released the SM context.
    Released,
}

impl SmfRequest {
    /// Octets for the digest of an output.
    pub(crate) fn digest_octets(&self) -> Vec<u8> {
        let (operation, text): (u8, &str) = match &self.operation {
            SmfOperation::Create(_) => (0, ""),
            SmfOperation::Update { reference, .. } => (1, reference),
            SmfOperation::Release { reference, .. } => (2, reference),
            SmfOperation::ReportFailure { uri } => (3, uri),
        };
        let mut octets = vec![self.psi.value(), operation];
        if let SmfOperation::Update { change, .. } = &self.operation {
            octets.extend(change.n1.iter().flatten());
            octets.extend(change.n2.iter().flat_map(|(_, octets)| octets));
        }
        octets.extend_from_slice(text.as_bytes());
        octets
    }
}
