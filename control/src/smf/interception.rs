//! Lawful interception of a UE's sessions: the UPF sends copies of what it forwards to the operator's LI function (TS 29.244 §5.2.3.1, TS 33.127
//! §6.2.3).
//!
//! Where copies go is part of the broker's grant, so it ends with that. Each rule that forwards gets it wherever it is written: at the
//! establishment of a session, when its tunnel changes, and when its UPF is restored.

use whimbrel_pfcp::ie::{ApplyAction, DestinationInterface, FarId, OuterHeaderCreation};
use whimbrel_pfcp::msg::{SessionEstablishmentRequest, SessionModificationRequest};
use whimbrel_pfcp::rule::{DuplicatingParameters, UpdateDuplicatingParameters, UpdateFar};

use super::n4::{self, At};
use super::rules::UPLINK_FAR;
use crate::procedure::{Lane, Ue};
use crate::state::{Tunnel, UpState};

/// Rules from here on forward a handover's packets from one gNB to another: these were copied already.
const FORWARDING_FARS: FarId = FarId(0xff00);

/// The operator has an order, or it has ended: copies go to `to` from now on. No effect on a UE without a veiled session.
pub(crate) fn intercept(ue: Ue, to: Option<Tunnel>) {
    let sessions: Vec<_> = ue.with(|p| {
        let Some(veil) = &mut p.veil else { return Vec::new() };
        veil.copies_to = to;
        // What a handover holds back goes on under the rules that end it.
        let held = p.lanes.procedure(Lane::Handover).is_some();
        let active = |up: UpState| up == UpState::Active && !held;
        p.sessions.values().map(|s| (s.psi, active(s.up), s.qos.marks.clone())).collect()
    });
    for (psi, active, marks) in sessions {
        let downlink = marks.fars().map(|(far, _)| far).filter(|_| active);
        let forward = |far| UpdateFar { apply_action: Some(ApplyAction::FORW), ..UpdateFar::new(far) };
        let update_fars = [UPLINK_FAR].into_iter().chain(downlink).map(forward).collect();
        n4::post(ue, psi, SessionModificationRequest { update_fars, ..Default::default() });
    }
}

fn copies_to(ue: Ue) -> Option<Tunnel> {
    ue.with(|p| p.veil.as_ref().and_then(|veil| veil.copies_to))
}

fn is_copied(far: FarId, action: Option<ApplyAction>) -> bool {
    far.0 < FORWARDING_FARS.0 && action.is_some_and(|action| action.has(ApplyAction::FORW))
}

/// Has a new session's rules duplicate.
pub(super) fn mark_establishment(ue: Ue, request: &mut SessionEstablishmentRequest) {
    let Some(to) = copies_to(ue) else { return };
    for far in request.create_fars.iter_mut().filter(|far| is_copied(far.far_id, Some(far.apply_action))) {
        far.apply_action = far.apply_action | ApplyAction::DUPL;
        far.duplicating_parameters = vec![DuplicatingParameters {
            destination_interface: DestinationInterface::LiFunction,
            outer_header_creation: Some(OuterHeaderCreation::gtpu(to.teid, to.address)),
            transport_level_marking: None,
            forwarding_policy: None,
        }];
    }
}

/// Has changed rules duplicate, if they are those of the anchor: an intermediate UPF sends no copies.
pub(super) fn mark_modification(ue: Ue, at: At, request: &mut SessionModificationRequest) {
    let Some(to) = copies_to(ue) else { return };
    if ue.with(|p| p.sessions.keys().all(|&psi| At::anchor(p, psi) != Some(at))) {
        return;
    }
    for far in request.update_fars.iter_mut().filter(|far| is_copied(far.far_id, far.apply_action)) {
        far.apply_action = far.apply_action.map(|action| action | ApplyAction::DUPL);
        far.update_duplicating_parameters = vec![UpdateDuplicatingParameters {
            destination_interface: Some(DestinationInterface::LiFunction),
            outer_header_creation: Some(OuterHeaderCreation::gtpu(to.teid, to.address)),
            transport_level_marking: None,
            forwarding_policy: None,
        }];
    }
}
