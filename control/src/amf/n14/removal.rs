//! Planned removal of an AMF (TS 23.501 §5.21.2.2.1): it forwards the contexts of its UEs to another AMF of its set. An idle UE keeps its 5G-GUTI until it comes
//! next; from then on the other AMF pages it, and has its sessions. A connected UE keeps its connection, under its names, and its packets pass as before: gNBs
//! learn by AMF STATUS INDICATION that the other AMF serves it. What they send before that is passed on.

use std::sync::Arc;

use whimbrel_ids::GlobalGnbId;
use whimbrel_ngap::ie::CauseRadioNetwork;

use super::registration::{self, BroughtSessions, UeHolder};
use super::send_n14;
use super::source::{self, alone};
use super::target::PATIENCE;
use crate::amf::{
    an_release, configuration_update, end, ngap_dispatch, paging, reach, ue_context_modification,
};
use crate::envelope::{AssociationId, HandoverTarget};
use crate::event::Event;
use crate::flat::Checkpoint;
use crate::n14::{ForwardedUe, N14Body, PeerAmfId, Relation, UeTransferState};
use crate::procedure::{Lane, Procedure, ProcedureEnd, Ue, out_of_state};
use crate::refusal::Refusal;
use crate::services::nsmf::TakenOverSessions;
use crate::state::{Connection, ContextTransfer, InboundTransfer, OutboundTransfer, UeContext};

/// Messages of a gNB that are held until it is known which AMF has the UE: a gNB awaits answers to most.
const HELD_UPLINK_MAX: usize = 64;

// The AMF that is removed.

/// Forwards the UE's context. A connection goes along if its gNB is named, else it is released first, and the CTA orders it again. A UE with a running
/// procedure stays for now.
pub(crate) fn relocate(ue: Ue, to: PeerAmfId, gnb: Option<GlobalGnbId>) {
    let is_free = |p: &mut UeContext| {
        p.amf.registered
            && !p.amf.emergency
            && !p.amf.has_unknown_nas_counts()
            && p.amf.mobility.context_transfer.is_none()
            && p.amf.mobility.target.is_none()
            && p.amf.mobility.forwarding_source.is_none()
            && p.lanes.idle()
    };
    let connected = ue.with(|p| p.amf.connection.is_some());
    let is_settled = |c: &Connection| {
        c.context_set_up && c.secured && !c.releasing && !c.rrc_inactive && c.pending_setups.is_empty()
    };
    if !ue.with(is_free)
        || connected && gnb.is_some() && !ue.with(|p| p.amf.connection.as_deref().is_some_and(is_settled))
    {
        return ue.update_batch(|b| b.no_effect = true);
    }
    if connected && gnb.is_none() {
        return an_release::start(ue, CauseRadioNetwork::ReleaseDueTo5gcGeneratedReason.into());
    }
    let gnb = gnb.filter(|_| connected);
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::UeContextTransfer, async move {
        let began = ue.now();
        let relation = Relation { source: ue.with(|p| p.id), token: ue.random() };
        let transfer = OutboundTransfer { is_connected: connected, ..OutboundTransfer::idle(to, relation) };
        ue.with(|p| p.amf.mobility.context_transfer = Some(ContextTransfer::Outbound(transfer).into()));
        if alone(ue, Lane::Mobility).await.is_err() || !forward(ue, to, relation, gnb) {
            if let Some(d) = ue.with(|p| p.amf.abort_outbound()) {
                source::over(ue, &d);
            }
            return;
        }
        registration::leave(ue, began, PATIENCE * 3, true, || false).await;
    });
}

fn forward(ue: Ue, to: PeerAmfId, relation: Relation, gnb: Option<GlobalGnbId>) -> bool {
    let upfs = ue.smf().session_upfs(ue);
    let state = ue.with(|p| {
        let mut rests = p.clone();
        rests.lanes = Default::default();
        rests.intermediate_upfs = Vec::new(); // sessions with one are not given
        let state = Checkpoint::of(&rests)?.into_flat();
        p.amf.outbound_mut()?.executing();
        Some(state)
    });
    let Some(state) = state else { return false };
    let forwarded = ForwardedUe { ue: UeTransferState { state, upfs }, gnb };
    send_n14(ue, to, relation, N14Body::ForwardUeContext(forwarded.into()));
    true
}

/// A message of the gNB of a UE that is being forwarded with its connection: it waits, or goes to the AMF that has the UE. Returns whether that is so.
pub(crate) fn pass_on(ue: Ue, association: AssociationId, octets: &[u8]) -> bool {
    let to = ue.with(|p| {
        let d = p.amf.outbound_mut().filter(|d| d.is_connected && d.may_have_come())?;
        if d.given.is_none() && d.held_uplink.len() < HELD_UPLINK_MAX {
            d.held_uplink.push((association, octets.into()));
        }
        Some((d.to, d.relation, d.given.is_some()))
    });
    if let Some((to, relation, true)) = to {
        send_n14(ue, to, relation, N14Body::Uplink(octets.to_vec()));
    }
    to.is_some()
}

/// The other AMF has the UE: what its gNB has sent meanwhile goes there.
pub(super) fn pass_on_held(ue: Ue) {
    let held = ue.with(|p| {
        let d = p.amf.outbound_mut()?;
        Some((d.to, d.relation, std::mem::take(&mut d.held_uplink)))
    });
    let Some((to, relation, held)) = held else { return };
    for (_, octets) in held {
        send_n14(ue, to, relation, N14Body::Uplink(octets.to_vec()));
    }
}

/// The UE stays: what its gNB has sent meanwhile is handled here.
pub(super) fn handle_held(ue: Ue, held: &[(AssociationId, Arc<[u8]>)]) {
    for (association, octets) in held {
        ngap_dispatch::uplink(ue, *association, octets, None);
    }
}

// The AMF that takes the UE over.

/// The UE has a slot of its own. `gnb`: the gNB that serves it, where it is connected here.
pub(crate) fn take_over(
    ue: Ue,
    from: PeerAmfId,
    relation: Relation,
    forwarded: &ForwardedUe,
    gnb: Option<&HandoverTarget>,
) {
    if ue.with(|p| p.amf.supi.is_some()) {
        // A UE that goes, or has gone, to another AMF is not here: that one forwards it again.
        let here = ue.with(|p| p.amf.registered && p.amf.mobility.context_transfer.is_none());
        let answer = if here { N14Body::RegisteredThere } else { N14Body::NotRegistered };
        return send_n14(ue, from, relation, answer);
    }
    let Some(brought) = take(ue, (from, relation), forwarded, gnb) else {
        send_n14(ue, from, relation, N14Body::NotRegistered);
        let what = Refusal::Protocol("a forwarded UE context that cannot be served here");
        return end::refused(ue, Procedure::UeContextTransfer, what);
    };
    ue.update_batch(|b| b.authenticated = true);
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::UeContextTransfer, async move {
        let began = ue.now();
        match registration::take_over(ue, brought).await {
            Ok(UeHolder::Here) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::UeContextTransfer, subject, took });
                if ue.with(|p| p.amf.connection.is_some()) {
                    return give_new_names(ue).await;
                }
                paging::page_if_awaited(ue);
            }
            Ok(UeHolder::AtSource) => {
                ended(ue, Refusal::Protocol("the AMF that forwarded the UE context keeps the UE"))
            }
            Err(ProcedureEnd::Refused(refusal)) => ended(ue, refusal),
            // The UE itself has come: its own procedure goes on.
            Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

/// gNB and UE learn of the AMF that has the connection by its GUAMI and 5G-GUTI.
async fn give_new_names(ue: Ue) {
    match ue_context_modification::new_guami(ue).await {
        Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
        _ => configuration_update::reallocate_guti(ue),
    }
}

fn take(
    ue: Ue,
    from: (PeerAmfId, Relation),
    forwarded: &ForwardedUe,
    gnb: Option<&HandoverTarget>,
) -> Option<BroughtSessions> {
    if forwarded.gnb.is_some() != gnb.is_some() {
        return None; // its gNB has no association with this AMF
    }
    let UeContext { mut amf, sessions, grant, veil, .. } =
        *Checkpoint::from_octets(forwarded.ue.state.octets()).ok()?.context().ok()?;
    let tai = amf.location.tai.filter(|tai| ue.config().amf.serves(*tai))?;
    if !registration::is_complete(&amf) {
        return None;
    }
    let connection = gnb.zip(amf.connection.take());
    if connection.is_some() != gnb.is_some() {
        return None;
    }
    let taken = registration::still_registered(ue, from.0, amf, tai)?;
    let (now, timers) = (ue.now(), ue.config().timers);
    ue.with(|p| {
        p.amf = taken;
        (p.grant, p.veil) = (grant, veil);
        match connection {
            Some((gnb, connection)) => {
                p.amf.connection = Some(Box::new(Connection { association: gnb.association, ..*connection }));
            }
            None => {
                p.amf.implicit_deregistration_at = Some(reach::implicitly_deregistered_at(p, &timers, now));
                reach::becomes_idle(p, now);
            }
        }
        let arrival = InboundTransfer::forwarded(from.0, from.1);
        p.amf.mobility.context_transfer = Some(ContextTransfer::Inbound(arrival).into());
    });
    let TakenOverSessions { sessions, coming, .. } =
        ue.smf().take_over_sessions(ue, sessions, &forwarded.ue.upfs);
    Some(BroughtSessions { sessions, coming })
}

/// A message that the UE's gNB has sent to its former AMF.
pub(crate) fn passed_on(ue: Ue, octets: &[u8]) {
    match ue.with(|p| p.amf.connection.as_ref().map(|c| c.association)) {
        Some(association) => ngap_dispatch::uplink(ue, association, octets, None),
        None => out_of_state(ue),
    }
}

/// The UE stays where it was, with its connection and its sessions.
fn ended(ue: Ue, refusal: Refusal) {
    ue.with(|p| {
        p.sessions.clear();
        p.amf.connection = None;
        p.amf.mobility.context_transfer = None;
    });
    end::refused(ue, Procedure::UeContextTransfer, refusal);
}
