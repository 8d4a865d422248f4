//! Predicted handovers: Synergy §III-C, TS 23.502 §4.9.1.3.
//!
//! A predictor outside the AMF says at which gNB a connected UE will be within seconds. The AMF checks at once what HANDOVER REQUIRED would
//! be checked for, so that only the execution is left. The target gNB can be asked early if the source hands its container over: the AMF
//! requests that by a PDU of ours in NRPPa transport ([`EarlyHandover`]), which a gNB that does not know it drops. Else the gNBs notice
//! nothing, and no {NH, NCC} is used.
//!
//! A prediction is soft state of five seconds. It ends unnoticed if the UE stays, leaves or goes elsewhere: a target that was asked is
//! released.

use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, Tai};
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ngap::msg::{
    DownlinkUeAssociatedNrppaTransport, HandoverRequestAcknowledge, HandoverRequired,
    UplinkUeAssociatedNrppaTransport,
};
use whimbrel_ngap::{EarlyHandover, Message};

use super::handover::{self, admit, named, to_gnb};
use super::handover_request::request;
use super::mobility_restrictions::permitted;
use super::n2::{ids, send};
use super::{location_reporting, target};
use crate::envelope::HandoverTarget;
use crate::event::Sign;
use crate::procedure::{Lane, Procedure, Ue, out_of_state};
use crate::state::{HandoverKind, Phase, PredictedHandover, PredictedRequest, Target};

/// How long a prediction lives (Synergy §III-C.3): as long as the UPF's.
const LIFETIME: Duration = Duration::from_secs(5);

/// The predictor expects the UE at a gNB. A prediction that the UE's state does not allow has no effect.
pub(crate) fn start(ue: Ue, to: &HandoverTarget, gnb: GlobalGnbId, tai: Tai) {
    if !is_possible(ue, to, tai) {
        return ue.update_batch(|b| b.no_effect = true);
    }
    withdraw(ue); // of another gNB
    let until = ue.now() + LIFETIME;
    let (target, to) = (Target::asked_for(to), to.clone());
    ue.with(|p| {
        p.amf.mobility.predicted =
            Some(PredictedHandover { target, to, gnb, tai, until, request: None }.into());
    });
    let asks = ue.config().amf.prediction.early_containers;
    let sessions = ue.smf().sessions_with_user_plane(ue);
    if !ue.smf().changes_upf(ue, &sessions, tai.tac) {
        if asks {
            ask_source(ue, gnb, tai);
        }
        return;
    }
    // The UPF of the target's area is prepared first, since HANDOVER REQUEST names its tunnel.
    let ue = ue.on(Lane::Handover);
    ue.start(Lane::Handover, Procedure::Handover, async move {
        let unserved = ue.smf().prepare_upfs(ue, &sessions, tai.tac).await;
        let prepared = unserved.is_ok_and(|sessions| sessions.is_empty());
        let expected =
            ue.with(|p| p.amf.mobility.predicted.as_ref().is_some_and(|p| p.gnb == gnb && p.tai == tai));
        match (expected, prepared && asks) {
            (true, true) => ask_source(ue, gnb, tai),
            (true, false) => {}
            // It ended meanwhile. A handover that has begun prepares for itself.
            (false, _) if ue.with(|p| p.amf.mobility.target.is_none()) => ue.smf().handover_ended(ue),
            (false, _) => {}
        }
    });
}

fn is_possible(ue: Ue, to: &HandoverTarget, tai: Tai) -> bool {
    let free = ue.with(|p| {
        let elsewhere = p.amf.connection.as_ref().is_some_and(|c| c.association != to.association);
        let same = p.amf.mobility.predicted.as_ref().is_some_and(|p| p.target.association == to.association);
        let handed_over = p.amf.mobility.target.is_some() || p.lanes.procedure(Lane::Handover).is_some();
        elsewhere && !same && !handed_over && p.amf.outbound().is_none()
    });
    free && location_reporting::is_predicted(ue)
        && ue.config().amf.serves(tai)
        && to.tacs.contains(&tai.tac)
        && permitted(ue, tai).is_ok()
        && handover::ready(ue).is_ok()
}

/// Asks the serving gNB for the container that it would send to this target.
fn ask_source(ue: Ue, gnb: GlobalGnbId, tai: Tai) {
    let Some((amf_id, ran_id)) = ids(ue) else { return };
    let pdu = EarlyHandover::Ask { gnb, tai }.to_octets();
    let routing_id = EarlyHandover::ROUTING_ID.to_vec();
    send(ue, &DownlinkUeAssociatedNrppaTransport::new(amf_id, ran_id, routing_id, pdu).into(), None);
}

/// The serving gNB hands its container over early: the target is asked. Returns whether the PDU is one of these.
pub(crate) fn container(ue: Ue, m: &UplinkUeAssociatedNrppaTransport) -> bool {
    if m.routing_id != EarlyHandover::ROUTING_ID {
        return false;
    }
    let Some(EarlyHandover::Required(octets)) = EarlyHandover::read(&m.nrppa_pdu) else { return false };
    let Ok(Message::HandoverRequired(required)) = Message::decode(&octets) else { return false };
    let awaited = |gnb, tai| {
        ue.with(|p| {
            let predicted = p.amf.mobility.predicted.as_deref().filter(|p| p.request.is_none())?;
            (predicted.gnb == gnb && predicted.tai == tai).then(|| predicted.to.clone())
        })
    };
    let named = (to_gnb(&required).ok(), EarlyHandover::target(&required));
    let (Some(tai), Some(gnb)) = named else { return false };
    let Some(to) = awaited(gnb, tai) else {
        out_of_state(ue); // it came late, or was not requested
        return true;
    };
    // What cannot be handed over now is found out again when the gNB requires the handover.
    if let Ok(asked) = request(ue, &required, &to, None, &[]) {
        ue.with(|p| {
            if let Some(predicted) = &mut p.amf.mobility.predicted {
                predicted.target.by = HandoverKind::N2(Phase::Preparing);
                predicted.request = Some(PredictedRequest { required: required.into(), asked, answer: None });
            }
        });
    }
    true
}

/// A message of the predicted target gNB.
pub(crate) fn of_target(ue: Ue, message: Message) {
    match message {
        Message::HandoverRequestAcknowledge(m) => prepared(ue, m),
        Message::HandoverFailure(_) => {
            ue.with(|p| {
                if let Some(predicted) = &mut p.amf.mobility.predicted {
                    (predicted.target.by, predicted.request) = (HandoverKind::N2(Phase::Waiting), None);
                }
            });
        }
        Message::UeContextReleaseRequest(m) => withdraw_for(ue, m.cause),
        Message::ErrorIndication(_) => withdraw(ue),
        _ => out_of_state(ue),
    }
}

/// The target is prepared: the UPF learns its tunnels.
fn prepared(ue: Ue, m: HandoverRequestAcknowledge) {
    let asked = ue.with(|p| {
        let predicted = p.amf.mobility.predicted.as_mut()?;
        let request = predicted.request.as_ref().filter(|r| r.answer.is_none())?;
        predicted.target.ran_ue_ngap_id = Some(m.ran_ue_ngap_id);
        Some(request.asked.clone())
    });
    let Some(asked) = asked else { return out_of_state(ue) };
    let Ok((admitted, _)) = admit(ue, &asked, &m) else { return withdraw(ue) };
    ue.smf().expect_arrival(ue, &admitted);
    ue.with(|p| {
        if let Some(request) = p.amf.mobility.predicted.as_mut().and_then(|p| p.request.as_mut()) {
            request.answer = Some(m.into());
        }
    });
    location_reporting::sign(ue, || Sign::Prepared);
}

/// HANDOVER REQUIRED: what was prepared for this handover. Another prediction is withdrawn.
pub(crate) fn take(ue: Ue, m: &HandoverRequired, to: &HandoverTarget) -> Option<Box<PredictedHandover>> {
    let is_it = |p: &mut Box<PredictedHandover>| {
        p.target.association == to.association
            && p.request.as_ref().is_none_or(|r| {
                named(&r.required) == named(m)
                    && r.required.source_to_target_transparent_container
                        == m.source_to_target_transparent_container
            })
    };
    let taken = ue.with(|p| p.amf.mobility.predicted.take_if(is_it));
    withdraw(ue);
    taken
}

/// The prediction has expired.
pub(crate) fn expire(ue: Ue) {
    let now = ue.now();
    if ue.with(|p| p.amf.mobility.predicted.as_ref().is_some_and(|p| p.until <= now)) {
        withdraw(ue);
    }
}

/// An association is lost: a prediction for its gNB ends.
pub(crate) fn association_lost(ue: Ue, association: crate::envelope::AssociationId) {
    let gone = ue.with(|p| p.amf.mobility.predicted.take_if(|p| p.target.association == association));
    if gone.is_some() {
        ue.smf().handover_ended(ue);
    }
}

/// The prediction does not come true. A target gNB that was asked releases the UE, and the UPF no longer expects it there.
pub(crate) fn withdraw(ue: Ue) {
    withdraw_for(ue, CauseRadioNetwork::HandoverCancelled.into());
}

fn withdraw_for(ue: Ue, cause: Cause) {
    let Some(predicted) = ue.with(|p| p.amf.mobility.predicted.take()) else { return };
    if predicted.request.is_some() {
        target::release_target(ue, &predicted.target, cause);
    }
    ue.smf().handover_ended(ue);
}
