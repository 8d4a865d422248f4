//! The gNB that takes a connected phone over, as long as it is not certain that it does.
//!
//! A phone in handover has two N2 connections: the one that serves it, and that of the target. What is kept of the second
//! stands in the phone's context, so that whatever ends the handover finds whom to tell.

use whimbrel_ids::{AmfUeNgapId, PduSessionId, RanUeNgapId};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};

use super::connection::{lost, out_of_state, uplink_nas};
use super::path_switch;
use crate::envelope::AssociationId;
use crate::shard::{Interrupt, Lane, Ue};

/// The target's end of a handover.
#[derive(Clone, Debug)]
pub struct Target {
    /// The gNB's association.
    pub association: AssociationId,
    /// Our name of the phone there.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The gNB's name of it, once told.
    pub ran_ue_ngap_id: Option<RanUeNgapId>,
    /// The serving gNB is gone: the phone has nowhere else to be.
    pub source_lost: bool,
    /// How the phone comes there.
    pub(crate) by: By,
}

/// How a phone comes to its target.
#[derive(Clone, Debug)]
pub(crate) enum By {
    /// Over Xn: it is there already and wants these sessions' paths switched (TS 38.413 §8.4.4).
    PathSwitch(Vec<PduSessionId>),
}

/// A message of the target.
pub(crate) fn received(ue: Ue, message: Message) {
    match message {
        Message::UplinkNasTransport(m) => uplink_nas(ue, m),
        Message::ErrorIndication(m) => match m.cause {
            Some(Cause::RadioNetwork(
                CauseRadioNetwork::UnknownLocalUeNgapId | CauseRadioNetwork::InconsistentRemoteUeNgapId,
            )) => gone(ue), // it does not have the phone (§10.6)
            _ => out_of_state(ue),
        },
        _ => out_of_state(ue),
    }
}

/// The target has lost the phone, or is lost itself. The phone stays where it was, if that is still there.
pub(crate) fn gone(ue: Ue) {
    let Some(target) = ue.with(|p| p.amf.target.take()) else { return };
    ue.with(|p| p.lanes.interrupt(Lane::Handover, Interrupt::ConnectionLost));
    if target.source_lost {
        lost(ue);
    }
}

/// The phone's connection ends, or the phone is found elsewhere: the handover is off, and its target is told.
pub(crate) fn abandon(ue: Ue) {
    let Some(target) = ue.with(|p| p.amf.target.take()) else { return };
    ue.with(|p| p.lanes.interrupt(Lane::Handover, Interrupt::ConnectionLost));
    match &target.by {
        By::PathSwitch(_) => path_switch::send_failure(ue, &target),
    }
}

/// A gNB's association, or its part for this phone, is gone: of the one that serves it, of the one that takes it over, or of
/// both.
pub(crate) fn association_lost(ue: Ue, association: AssociationId) {
    let (serving, target) = ue.with(|p| {
        let serving = p.amf.connection.as_ref().is_some_and(|c| c.association == association);
        (serving, p.amf.target.as_ref().map(|t| t.association == association))
    });
    match (serving, target) {
        (true, Some(false)) => source_lost(ue),
        (true, _) => lost(ue),
        (false, Some(true)) => gone(ue),
        (false, _) => {}
    }
}

/// The gNB that served the phone is lost. One that has left it already may still arrive at its target.
fn source_lost(ue: Ue) {
    ue.with(|p| {
        if let Some(target) = &mut p.amf.target {
            target.source_lost = true;
        }
    });
}
