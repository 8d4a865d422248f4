//! Collisions of procedures: whether a new one starts, waits, or is ignored while another one runs (TS 23.502 §4.9.1, TS
//! 24.501 §6.3.2.5, §6.4.2.6, §6.4.3.6). Those of 5GMM procedures are in `amf/nas_dispatch.rs`.

use crate::procedure::Procedure;
use crate::state::{DownlinkProtection, Phase};

#[cfg(test)]
mod tests;

/// What is done with a request that collides with a running procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollisionVerdict {
    /// It starts; the running procedure is interrupted.
    Proceed,
    /// It starts once the running procedure has ended.
    Wait,
    /// It is dropped; the running procedure goes on.
    Ignore,
}

/// HANDOVER REQUIRED and PATH SWITCH REQUEST against other procedures of the UE, its connection or an earlier handover: TS
/// 23.502 §4.9.1, TS 38.413 §8.4.1.2, §8.4.4.2. [`CollisionVerdict::Ignore`]: the gNB is refused, and the running procedure goes
/// on.
pub(crate) fn handover_meets(running: Option<Procedure>) -> CollisionVerdict {
    match running {
        // The connection is being released: there is nothing to hand over.
        Some(Procedure::AnRelease) => CollisionVerdict::Ignore,
        // A later handover supersedes the earlier one, whose target is released.
        Some(Procedure::Handover | Procedure::PathSwitch) => CollisionVerdict::Proceed,
        // NAS procedures continue beside it; their messages are judged by `message_meets`.
        None
        | Some(
            Procedure::Registration
            | Procedure::DeregistrationByUe
            | Procedure::DeregistrationByNetwork
            | Procedure::Authentication
            | Procedure::SubscriptionChange
            | Procedure::ServiceRequest
            | Procedure::Paging
            | Procedure::UeContextTransfer
            | Procedure::ConfigurationUpdate,
        ) => CollisionVerdict::Proceed,
        // Sessions have lanes of their own, and wait for the handover where they need a gNB (TS 23.502 §4.9.1.3.1).
        Some(
            Procedure::PduSessionModifyIndication
            | Procedure::PduSessionEstablishment
            | Procedure::PduSessionModificationByUe
            | Procedure::PduSessionModificationByNetwork
            | Procedure::PduSessionReleaseByUe
            | Procedure::PduSessionReleaseByNetwork
            | Procedure::UpConnectionActivation
            | Procedure::UpConnectionDeactivation
            | Procedure::PduSessionResourceSetup
            | Procedure::SessionRestoration
            | Procedure::ChargingUpdate
            | Procedure::PolicyUpdate
            | Procedure::SmContextUpdate,
        ) => CollisionVerdict::Proceed,
    }
}

/// A 5GMM message to a UE in handover. During preparation it is sent, except SECURITY MODE COMMAND (TS 33.501 §6.9.5).
/// During execution it is held.
pub(crate) fn message_meets(phase: Option<Phase>, security: DownlinkProtection) -> CollisionVerdict {
    match (phase, security) {
        (
            Some(Phase::Waiting | Phase::Preparing),
            DownlinkProtection::Plain | DownlinkProtection::Current,
        ) => CollisionVerdict::Proceed,
        (Some(Phase::Waiting | Phase::Preparing), DownlinkProtection::Proposed) => CollisionVerdict::Wait,
        (Some(Phase::Executing) | None, _) => CollisionVerdict::Wait,
    }
}

/// PDU SESSION MODIFICATION REQUEST: TS 24.501 §6.4.2.6, §6.3.2.5, §6.3.3.5.
pub(crate) fn modification_meets(running: Option<Procedure>) -> CollisionVerdict {
    match running {
        None => CollisionVerdict::Proceed,
        // The network's modification goes on, and the UE aborts its own (§6.4.2.5 b); likewise a release (§6.4.2.6 b).
        Some(
            Procedure::PduSessionModificationByNetwork
            | Procedure::PduSessionReleaseByUe
            | Procedure::PduSessionReleaseByNetwork,
        ) => CollisionVerdict::Ignore,
        // The same request again: T3591 answers it (§7.3.1).
        Some(Procedure::PduSessionModificationByUe) => CollisionVerdict::Ignore,
        // The UE has its accept before the gNB has answered, and setup and deactivation of the user plane are short: it
        // waits.
        Some(_) => CollisionVerdict::Wait,
    }
}

/// PDU SESSION RELEASE REQUEST: TS 24.501 §6.4.3.6, §6.3.2.5 c, §6.3.3.5.
pub(crate) fn release_meets(running: Option<Procedure>) -> CollisionVerdict {
    match running {
        // The network's release goes on: its command answers both (§6.4.3.6). So does the UE's own, repeated.
        Some(Procedure::PduSessionReleaseByNetwork | Procedure::PduSessionReleaseByUe) => {
            CollisionVerdict::Ignore
        }
        // A modification, or any other procedure, is interrupted (§6.3.2.5 c).
        _ => CollisionVerdict::Proceed,
    }
}
