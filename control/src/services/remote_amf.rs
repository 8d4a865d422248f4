//! SM contexts that an AMF of another vendor has at this SMF: its requests (Nsmf_PDUSession, TS 29.502 §5.2.2), which are inputs of the UE,
//! their answers, and what the SMF asks of that AMF (Namf_Communication, TS 29.518 §5.2.2.3), which are outputs.

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, PduSessionId, SNssai, Seid, Supi, Tai};

use super::ServiceFault;
use crate::state::Arp;

/// Octets of a URI or an API root that an AMF names at most.
pub const AMF_URI_OCTETS_MAX: usize = 1024;

/// The request of an AMF that an answer belongs to: a number that the edge gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SmContextExchange(pub u64);

/// The name of an SM context in its URI: the CP SEID, which names UE and session, and which no other session of the UE has or had.
pub type SmContextRef = Seid;

/// A request of an AMF about an SM context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmContextRequest {
    /// The number that the answer names.
    pub exchange: SmContextExchange,
    /// Operation of the service.
    pub operation: SmContextOperation,
}

/// Operations of Nsmf_PDUSession (TS 29.502 §5.2.2), and the notification that a transfer failed (TS 29.518 §5.2.2.3.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmContextOperation {
    /// CreateSMContext: a session begins.
    Create(Box<SmContextCreation>),
    /// UpdateSMContext: a session changes.
    Update(SmContextRef, Box<SmContextUpdate>),
    /// ReleaseSMContext: a session ends.
    Release(SmContextRef),
    /// N1N2TransferFailureNotification: the UE was not reached.
    TransferFailed(SmContextRef),
}

/// The AMF that serves a UE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmfAddress {
    /// Its NF instance identity, for discovery at an NRF.
    pub instance: Option<Box<str>>,
    /// The root of its services, from the URI of its notifications.
    pub root: Box<str>,
}

/// SmContextCreateData (TS 29.502 §6.1.6.2.2), as far as it counts here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmContextCreation {
    /// Subscriber of the UE.
    pub supi: Supi,
    /// Identity of the session.
    pub psi: PduSessionId,
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// Its data network. `None`: the default one of the subscription.
    pub dnn: Option<Dnn>,
    /// The UE names an existing session.
    pub existing: bool,
    /// PDU SESSION ESTABLISHMENT REQUEST.
    pub n1: Vec<u8>,
    /// Where the UE is.
    pub tai: Option<Tai>,
    /// The AMF of the UE.
    pub amf: AmfAddress,
    /// Where the AMF is notified of the session's end.
    pub status_uri: Box<str>,
}

/// SmContextUpdateData (TS 29.502 §6.1.6.2.4), as far as it counts here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmContextUpdate {
    /// The requested state of the user plane.
    pub user_plane: Option<UserPlaneState>,
    /// The step of an N2 handover.
    pub handover: Option<HandoverStep>,
    /// A 5GSM message of the UE.
    pub n1: Option<Vec<u8>>,
    /// The session's part of a gNB's message.
    pub n2: Option<(N2SmKind, Vec<u8>)>,
    /// In an Xn handover, the target could not set up the session.
    pub failed_to_be_switched: bool,
    /// The session ends with this request.
    pub release: bool,
    /// Where the UE is.
    pub tai: Option<Tai>,
    /// The AMF that serves the UE from now on.
    pub amf: Option<AmfAddress>,
    /// Where it is notified of the session's end.
    pub status_uri: Option<Box<str>>,
}

/// State of a session's user plane (TS 29.502 §6.1.6.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserPlaneState {
    /// Packets flow in both directions.
    Activated,
    /// Downlink packets are buffered.
    Deactivated,
    /// The gNB is being asked for it.
    Activating,
}

/// State of an N2 handover (TS 29.502 §6.1.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverStep {
    /// The source gNB requires the handover.
    Preparing,
    /// The target gNB has answered.
    Prepared,
    /// The UE is at the target.
    Completed,
    /// The UE stays at the source.
    Cancelled,
}

/// Kinds of N2 SM information (TS 29.502 §6.1.6.3.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each name is the value's own")]
pub enum N2SmKind {
    PduResSetupReq,
    PduResSetupRsp,
    PduResSetupFail,
    PduResRelCmd,
    PduResRelRsp,
    PduResModReq,
    PduResModRsp,
    PduResModFail,
    PduResNty,
    PduResNtyRel,
    PduResModInd,
    PduResModCfm,
    PathSwitchReq,
    PathSwitchSetupFail,
    PathSwitchReqAck,
    PathSwitchReqFail,
    HandoverRequired,
    HandoverCmd,
    HandoverPrepFail,
    HandoverReqAck,
    HandoverResAllocFail,
    SecondaryRatUsage,
}

/// The answer to an [`SmContextRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SmContextAnswer {
    /// The SM context was created.
    Created {
        /// Name of the context.
        reference: SmContextRef,
        /// Identity of the session.
        psi: PduSessionId,
        /// Slice of the session.
        s_nssai: SNssai,
    },
    /// The request was carried out.
    Updated(Box<SmContextUpdated>),
    /// The request was refused.
    Refused {
        /// The cause for the AMF.
        error: SmContextError,
        /// A 5GSM message for the UE.
        n1: Option<Vec<u8>>,
        /// N2 SM information for a gNB.
        n2: Option<(N2SmKind, Vec<u8>)>,
    },
}

/// SmContextUpdatedData (TS 29.502 §6.1.6.2.5). With nothing in it, the answer has no body.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmContextUpdated {
    /// The state of the user plane.
    pub user_plane: Option<UserPlaneState>,
    /// The step of the handover that was taken.
    pub handover: Option<HandoverStep>,
    /// A 5GSM message for the UE.
    pub n1: Option<Vec<u8>>,
    /// N2 SM information for a gNB.
    pub n2: Option<(N2SmKind, Vec<u8>)>,
}

macro_rules! errors {
    ($($(#[$meta:meta])* $variant:ident = $status:literal $text:literal,)*) => {
        /// Why a request about an SM context is refused (TS 29.502 Table 6.1.7.3-1, TS 29.500 Table 5.2.7.2-1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "each name is the cause's own")]
        pub enum SmContextError {
            $($(#[$meta])* $variant,)*
        }

        impl SmContextError {
            /// The status of HTTP that the table gives.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$variant => $status,)*
                }
            }

            /// The cause in the body.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

errors! {
    N1SmError = 403 "N1_SM_ERROR",
    N2SmError = 403 "N2_SM_ERROR",
    SNssaiDenied = 403 "SNSSAI_DENIED",
    DnnDenied = 403 "DNN_DENIED",
    DnnNotSupported = 403 "DNN_NOT_SUPPORTED",
    PduTypeDenied = 403 "PDUTYPE_DENIED",
    SscDenied = 403 "SSC_DENIED",
    SubscriptionDenied = 403 "SUBSCRIPTION_DENIED",
    OutOfLadnServiceArea = 403 "OUT_OF_LADN_SERVICE_AREA",
    IntegrityProtectedMdrNotAcceptable = 403 "INTEGRITY_PROTECTED_MDR_NOT_ACCEPTABLE",
    ContextNotFound = 404 "CONTEXT_NOT_FOUND",
    HigherPriorityRequestOngoing = 409 "HIGHER_PRIORITY_REQUEST_ONGOING",
    InsufficientResources = 500 "INSUFFICIENT_RESOURCES",
    Congestion = 503 "NF_CONGESTION",
    NetworkFailure = 504 "NETWORK_FAILURE",
    UpfNotResponding = 504 "UPF_NOT_RESPONDING",
}

/// A request of the SMF to the AMF of a UE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmfRequest {
    /// Subscriber of the UE.
    pub supi: Supi,
    /// The AMF of the UE.
    pub amf: AmfAddress,
    /// Identity of the session.
    pub psi: PduSessionId,
    /// Operation of the AMF, or a notification.
    pub operation: AmfOperation,
}

/// Operations of an AMF for the SMF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AmfOperation {
    /// Namf_Communication_N1N2MessageTransfer (TS 29.518 §5.2.2.3.1).
    Transfer(Box<N1N2Transfer>),
    /// Nsmf_PDUSession_SMContextStatusNotify (TS 29.502 §5.2.2.5): the SM context was released.
    ContextReleased {
        /// The URI that the AMF named.
        uri: Box<str>,
    },
}

/// N1N2MessageTransferReqData (TS 29.518 §6.1.6.2.18).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct N1N2Transfer {
    /// The SM context, which a notification of failure names.
    pub reference: SmContextRef,
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// A 5GSM message for the UE.
    pub n1: Option<Vec<u8>>,
    /// N2 SM information for its gNB.
    pub n2: Option<(N2SmKind, Vec<u8>)>,
    /// Priority of the default QoS flow, for paging.
    pub arp: Arp,
}

/// The AMF's answer to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferAnswer {
    /// Identity of the session.
    pub psi: PduSessionId,
    /// The transfer had PDU_RES_SETUP_REQ.
    pub set_up: bool,
    /// The outcome of the transfer.
    pub outcome: TransferOutcome,
}

/// The outcome of a transfer (TS 29.518 §5.2.2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferOutcome {
    /// The messages were sent, or will be when the UE is reached.
    Initiated,
    /// The AMF does not have the UE, or the session.
    UeUnknown,
    /// The UE cannot be reached now.
    NotReachable,
    /// The AMF was not reached, or has refused.
    Failed(ServiceFault),
}

impl AmfRequest {
    /// True if it has messages for the UE or its gNB.
    pub fn is_transfer(&self) -> bool {
        matches!(self.operation, AmfOperation::Transfer(_))
    }

    /// The request as octets, for digests.
    pub(crate) fn digest_octets(&self) -> Vec<u8> {
        let mut octets = vec![self.psi.value()];
        match &self.operation {
            AmfOperation::Transfer(transfer) => {
                octets.push(0);
                octets.extend_from_slice(transfer.n1.as_deref().unwrap_or_default());
                write_n2(transfer.n2.as_ref(), &mut octets);
            }
            AmfOperation::ContextReleased { uri } => {
                octets.push(1);
                octets.extend_from_slice(uri.as_bytes());
            }
        }
        octets
    }
}

impl SmContextAnswer {
    /// The answer as octets, for digests.
    pub(crate) fn digest_octets(&self) -> Vec<u8> {
        let mut octets = Vec::new();
        match self {
            Self::Created { reference, psi, .. } => {
                octets.extend_from_slice(&[0, psi.value()]);
                octets.extend_from_slice(&reference.0.to_be_bytes());
            }
            Self::Updated(updated) => {
                let SmContextUpdated { user_plane, handover, n1, n2 } = &**updated;
                let number = |n: Option<u8>| n.map_or(0, |n| n + 1);
                let (user_plane, handover) = (user_plane.map(|u| u as u8), handover.map(|h| h as u8));
                octets.extend_from_slice(&[1, number(user_plane), number(handover)]);
                octets.extend_from_slice(n1.as_deref().unwrap_or_default());
                write_n2(n2.as_ref(), &mut octets);
            }
            Self::Refused { error, n1, n2 } => {
                octets.extend_from_slice(&[2, *error as u8]);
                octets.extend_from_slice(n1.as_deref().unwrap_or_default());
                write_n2(n2.as_ref(), &mut octets);
            }
        }
        octets
    }

    /// Octets of the messages in it.
    pub(crate) fn octets(&self) -> usize {
        let (n1, n2) = match self {
            Self::Created { .. } => (None, None),
            Self::Updated(updated) => (updated.n1.as_ref(), updated.n2.as_ref()),
            Self::Refused { n1, n2, .. } => (n1.as_ref(), n2.as_ref()),
        };
        n1.map_or(0, Vec::len) + n2.map_or(0, |(_, octets)| octets.len())
    }
}

impl SmContextOperation {
    /// Octets of the messages in it.
    pub(crate) fn octets(&self) -> usize {
        match self {
            Self::Create(creation) => creation.n1.len(),
            Self::Update(_, update) => {
                update.n1.as_ref().map_or(0, Vec::len) + update.n2.as_ref().map_or(0, |(_, o)| o.len())
            }
            Self::Release(_) | Self::TransferFailed(_) => 0,
        }
    }

    /// The SM context that it names; none in a creation.
    pub fn reference(&self) -> Option<SmContextRef> {
        match self {
            Self::Create(_) => None,
            Self::Update(reference, _) | Self::Release(reference) | Self::TransferFailed(reference) => {
                Some(*reference)
            }
        }
    }
}

fn write_n2(n2: Option<&(N2SmKind, Vec<u8>)>, octets: &mut Vec<u8>) {
    if let Some((kind, transfer)) = n2 {
        octets.push(*kind as u8);
        octets.extend_from_slice(transfer);
    }
}
