//! Dispatches the NGAP messages of a UE to their procedures (TS 38.413 §10.4, unexpected messages; §10.6, wrong AP IDs).

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};
use whimbrel_nas::mm;
use whimbrel_ngap::ie::{Cause, CauseNas, CauseProtocol, CauseRadioNetwork, UeNgapIdPair};
use whimbrel_ngap::msg::{
    DownlinkNasTransport, ErrorIndication, UeContextResumeFailure, UeContextSuspendFailure,
    UplinkNasTransport,
};
use whimbrel_ngap::{Message, peek};

use super::connection::{adopt, lost};
use super::context_setup::context_answered;
use super::n2::{emit, ids, is_releasing, refuse_names, release_command, send, send_nas};
use super::nas::{self, FirstNasMessage};
use super::ran_node::error_indication;
use super::user_location::locate;
use super::{
    an_release, handover, location_reporting, n14, nas_dispatch, paging, path_switch, predicted_handover,
    radio_capability_check, rrc_inactive, session_indication, session_resources, target,
};
use crate::envelope::{AssociationId, Disposition, HandoverTarget};
use crate::event::{Event, MessageDropReason};
use crate::input::Input;
use crate::procedure::{Lane, Ue, out_of_state};
use crate::services::nsmf::N2Outcome;
use crate::state::{DownlinkProtection, Target, UeContext};

/// The first message of a connection.
///
/// It changes the UE that it names only if its MAC verifies under that UE's keys; else it belongs to an unauthenticated
/// UE and runs in a slot of its own.
pub(crate) fn initial_ue_message(
    ue: Ue,
    association: AssociationId,
    amf_ue_ngap_id: AmfUeNgapId,
    octets: &[u8],
    addressed: bool,
) {
    let m = match Message::decode(octets) {
        Ok(Message::InitialUeMessage(m)) => m,
        Ok(_) => return refuse_first(ue, association, Some(error_indication(CauseProtocol::SemanticError))),
        Err(refusal) => return refuse_first(ue, association, refusal.error_indication()),
    };
    let (known, connected) = ue.with(|p| (p.amf.security.current.is_some(), p.amf.connection.is_some()));
    // A UE that has not arrived yet is still its former AMF's. Nor is one here that another AMF has by now.
    let is_here = |p: &mut UeContext| {
        let has_left = p.amf.outbound().is_some_and(|d| d.given.is_some());
        !has_left && (p.amf.tmsi.is_some() || p.amf.inbound().is_none_or(|a| a.is_forwarded()))
    };
    let is_in_transfer = |p: &mut UeContext| {
        let leaves = p.amf.outbound().is_some_and(|d| d.is_leaving);
        leaves || p.amf.inbound().is_some_and(|a| a.is_forwarded())
    };
    let bears = |p: &mut UeContext| m.five_g_s_tmsi.is_none_or(|t| p.amf.bears(t.tmsi)) && is_here(p);
    // An unauthenticated UE has no 5G-TMSI: a message with one is for the earlier UE of this slot.
    if known && !ue.with(bears) || !known && connected {
        return ue.update_batch(|b| b.disposition = Disposition::OtherUe);
    }
    if known && ue.with(is_in_transfer) {
        return ue.update_batch(|b| b.disposition = Disposition::NotYet);
    }
    match nas::receive_first(ue, &m.nas_pdu, known, addressed) {
        FirstNasMessage::OtherUe => ue.update_batch(|b| b.disposition = Disposition::OtherUe),
        FirstNasMessage::Elsewhere(tmsi) => ue.update_batch(|b| b.disposition = Disposition::Elsewhere(tmsi)),
        FirstNasMessage::Unreadable(unread) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: unread.why });
            // The gNB is to release such a connection (TS 24.501 §7.2.1).
            refuse_first(ue, association, None);
            if let Some(answer) = unread.answer() {
                let mut pdu = Vec::new();
                answer.encode(&mut pdu);
                let transport = DownlinkNasTransport::new(amf_ue_ngap_id, m.ran_ue_ngap_id, pdu);
                emit(ue, association, &transport.into(), None);
            }
            let ids = UeNgapIdPair::new(amf_ue_ngap_id, m.ran_ue_ngap_id);
            emit(ue, association, &release_command(ids, CauseNas::Unspecified).into(), None);
        }
        FirstNasMessage::Read(received) => {
            adopt(ue, association, amf_ue_ngap_id, &m, received.protected);
            nas_dispatch::received(ue, *received);
        }
    }
}

/// Ends the slot that a first message got if it holds nothing yet.
fn refuse_first(ue: Ue, association: AssociationId, answer: Option<ErrorIndication>) {
    if let Some(answer) = answer {
        emit(ue, association, &answer.into(), None);
    }
    if ue.with(|p| p.amf.security.current.is_none() && p.amf.connection.is_none()) {
        ue.update_batch(|b| b.disposition = Disposition::Ended);
    }
}

/// A later message of a connection. `to`: the target gNB of HANDOVER REQUIRED.
pub(crate) fn uplink(ue: Ue, association: AssociationId, octets: &[u8], to: Option<&HandoverTarget>) {
    if n14::removal::pass_on(ue, association, octets) {
        return;
    }
    let named = peek(octets);
    let ids = named.and_then(|n| Some((n.amf_ue_ngap_id?, n.ran_ue_ngap_id)));
    let message = match Message::decode(octets) {
        Ok(m) => m,
        Err(refusal) => {
            if let Some(answer) = refusal.error_indication() {
                emit(ue, association, &answer.into(), None);
            }
            return;
        }
    };
    // The sender has no connection of this UE yet: it names the source gNB's.
    if let Message::PathSwitchRequest(m) = message {
        return path_switch::start(ue, association, Box::new(m));
    }
    match side(ue, association, ids) {
        Ok(HandoverSide::Serving) => dispatch(ue, message, to),
        Ok(HandoverSide::Target) => of_target(ue, message),
        Ok(HandoverSide::Source) => of_source(ue, message),
        Ok(HandoverSide::Predicted) => predicted_handover::of_target(ue, message),
        Err(cause) => {
            // Messages that end a connection, and error indications, get no answer (TS 38.413 §10.6).
            let ends = matches!(message, Message::UeContextReleaseComplete(_) | Message::ErrorIndication(_));
            let silent =
                ids.is_some_and(|(amf_id, _)| was_recently_released(ue, association, amf_id, ends)) || ends;
            if let Some((amf_id, ran_id)) = ids
                && !silent
            {
                refuse_names(ue, association, cause, amf_id, ran_id);
            }
            if cause == CauseRadioNetwork::InconsistentRemoteUeNgapId {
                lost(ue); // both sides release a connection with inconsistent AP IDs (§10.6)
            }
        }
    }
}

/// Whether a message is of a connection that ended while the message was in transit. `ends`: it shows that the gNB
/// knows by now.
fn was_recently_released(
    ue: Ue,
    association: AssociationId,
    amf_ue_ngap_id: AmfUeNgapId,
    ends: bool,
) -> bool {
    let now = ue.now();
    ue.with(|p| {
        let Some(recently_released) = &mut p.amf.recently_released else { return false };
        let crossed = recently_released.has(now, association, amf_ue_ngap_id);
        if ends {
            recently_released.confirmed(association, amf_ue_ngap_id);
        }
        if recently_released.forget(now) {
            p.amf.recently_released = None;
        }
        crossed
    })
}

/// Which of the UE's gNBs a message came from.
enum HandoverSide {
    Serving,
    /// The target of a handover.
    Target,
    /// The former one, which still forwards packets.
    Source,
    /// The target of a predicted handover.
    Predicted,
}

/// The connection that a message belongs to, by association and both AP IDs (TS 38.413 §10.6).
fn side(
    ue: Ue,
    association: AssociationId,
    ids: Option<(AmfUeNgapId, Option<RanUeNgapId>)>,
) -> Result<HandoverSide, CauseRadioNetwork> {
    let (amf, ran) = ids.ok_or(CauseRadioNetwork::UnknownLocalUeNgapId)?;
    ue.with(|p| {
        let is_of = |t: &Target| {
            let named = ran.is_none_or(|ran| t.ran_ue_ngap_id.is_none_or(|known| known == ran));
            t.association == association && t.amf_ue_ngap_id == amf && named
        };
        let of_target = p.amf.mobility.target.as_deref().is_some_and(is_of);
        let of_predicted =
            p.amf.mobility.predicted.as_ref().is_some_and(|p| p.request.is_some() && is_of(&p.target));
        let serving =
            p.amf.connection.as_ref().filter(|c| c.association == association && c.amf_ue_ngap_id == amf);
        let of_source = p
            .amf
            .mobility
            .forwarding_source
            .as_ref()
            .and_then(|s| s.connection.as_ref())
            .is_some_and(|c| c.association == association && c.amf_ue_ngap_id == amf);
        match serving {
            _ if of_target => Ok(HandoverSide::Target),
            _ if of_source => Ok(HandoverSide::Source),
            _ if of_predicted => Ok(HandoverSide::Predicted),
            Some(c) if ran.is_none_or(|ran| ran == c.ran_ue_ngap_id) => Ok(HandoverSide::Serving),
            Some(_) => Err(CauseRadioNetwork::InconsistentRemoteUeNgapId),
            None => Err(CauseRadioNetwork::UnknownLocalUeNgapId),
        }
    })
}

/// The longest UE radio capability that is stored: segments of UECapabilityInformation make 16 of 9000 octets at most
/// (TS 38.331 §5.7.7), if it is longer, the next gNB asks the UE for it.
const RADIO_CAPABILITY_OCTETS_MAX: usize = 16 * 9000;

fn dispatch(ue: Ue, message: Message, to: Option<&HandoverTarget>) {
    match message {
        Message::UplinkNasTransport(m) => uplink_nas(ue, m),
        Message::UeContextReleaseRequest(m) => an_release::requested(ue, m.cause),
        Message::UeRadioCapabilityInfoIndication(m) => {
            if (1..=RADIO_CAPABILITY_OCTETS_MAX).contains(&m.ue_radio_capability.len()) {
                ue.with(|p| p.amf.radio.capability = Some(m.ue_radio_capability.into()));
                radio_capability_check::forget(ue);
                radio_capability_check::begin(ue);
            }
            if let Some(capability) = m.ue_radio_capability_for_paging {
                paging::keep_capability(ue, capability);
            }
        }
        Message::UeRadioCapabilityCheckResponse(m) => radio_capability_check::answered(ue, &m),
        Message::InitialContextSetupResponse(_) | Message::InitialContextSetupFailure(_) => {
            context_answer(ue, message)
        }
        Message::PduSessionResourceSetupResponse(m) => {
            session_resources::n2_items(ue, m.pdu_session_resource_setup_list_su_res, N2Outcome::SetUp);
            session_resources::n2_items(
                ue,
                m.pdu_session_resource_failed_to_setup_list_su_res,
                N2Outcome::SetupFailed,
            );
        }
        Message::PduSessionResourceReleaseResponse(m) => {
            session_resources::n2_items(
                ue,
                m.pdu_session_resource_released_list_rel_res,
                N2Outcome::Released,
            );
        }
        Message::PduSessionResourceModifyResponse(m) => {
            session_resources::n2_items(ue, m.pdu_session_resource_modify_list_mod_res, N2Outcome::Modified);
            let failed = m.pdu_session_resource_failed_to_modify_list_mod_res;
            session_resources::n2_items(ue, failed, N2Outcome::ModifyFailed);
        }
        Message::PduSessionResourceModifyIndication(m) => session_indication::start(ue, m),
        Message::UeContextReleaseComplete(ref m) => {
            if is_releasing(ue) {
                if let Some(place) = &m.user_location_information {
                    locate(ue, place); // TS 23.502 §4.2.6 step 4
                }
                paging::keep_recommended(ue, m);
            }
            let input = Input::Ngap(Box::new(message));
            if ue.with(|p| p.lanes.deliver(Lane::Mobility, input)).is_err() {
                // No procedure awaits it any more; the connection has ended all the same.
                if is_releasing(ue) { lost(ue) } else { out_of_state(ue) }
            }
        }
        Message::UeContextModificationResponse(_) | Message::UeContextModificationFailure(_) => {
            let input = Input::Ngap(Box::new(message));
            if ue.with(|p| p.lanes.deliver(Lane::Mobility, input)).is_err() {
                out_of_state(ue);
            }
        }
        Message::PduSessionResourceNotify(m) => {
            session_resources::n2_items(ue, m.pdu_session_resource_released_list_not, N2Outcome::Lost);
            session_resources::notified(ue, &m.pdu_session_resource_notify_list);
        }
        // A message that is repeated by timer is sent again at once (TS 38.413 §8.6.4).
        Message::NasNonDeliveryIndication(_) => {
            ue.event(Event::Repeated("NAS NON DELIVERY INDICATION"));
            ue.with(|p| p.lanes.undelivered());
        }
        Message::ErrorIndication(m) => match m.cause {
            Some(Cause::RadioNetwork(
                CauseRadioNetwork::UnknownLocalUeNgapId | CauseRadioNetwork::InconsistentRemoteUeNgapId,
            )) => target::serving_lost(ue), // the gNB does not have this connection (§10.6)
            _ => out_of_state(ue),
        },
        Message::HandoverRequired(m) => handover::start(ue, Box::new(m), to.cloned()),
        Message::HandoverCancel(m) => target::cancel(ue, m),
        Message::UplinkRanStatusTransfer(m) => handover::ran_status_transfer(ue, m),
        Message::UplinkRanEarlyStatusTransfer(m) => handover::ran_early_status_transfer(ue, m),
        Message::LocationReport(m) => location_reporting::reported(ue, &m),
        Message::LocationReportingFailureIndication(m) => location_reporting::failed(ue, &m),
        // §8.11.4: the event names the trace and the subscriber.
        Message::CellTrafficTrace(m) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::CellTraffic { subject, trace: m.ngran_trace_id, cell: m.ngran_cgi });
        }
        // There is no CIoT optimisation (TS 23.501 §5.31.18): suspend and resume requests are refused, and the UE's
        // state stays.
        Message::UeContextSuspendRequest(m) => {
            let failure = UeContextSuspendFailure::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, unserved());
            send(ue, &failure.into(), None);
        }
        Message::UeContextResumeRequest(m) => {
            let failure = UeContextResumeFailure::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, unserved());
            send(ue, &failure.into(), None);
        }
        Message::RrcInactiveTransitionReport(m) => rrc_inactive::reported(ue, &m),
        Message::SecondaryRatDataUsageReport(m) => {
            session_resources::secondary_rat_usage(ue, &m.pdu_session_resource_secondary_rat_usage_list)
        }
        // There is no LMF, and the procedure has no answer (TS 38.413 §8.10.3).
        Message::UplinkUeAssociatedNrppaTransport(m) => {
            if predicted_handover::container(ue, &m) {
                return;
            }
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: MessageDropReason::UnservedPayload });
        }
        // Of a handover that has ended: a gNB repeats unacknowledged messages after it lost the AMF's endpoint.
        Message::HandoverRequestAcknowledge(_) | Message::HandoverFailure(_) | Message::HandoverNotify(_) => {
            out_of_state(ue)
        }
        _ => {
            out_of_state(ue);
            let mut answer = error_indication(CauseProtocol::MessageNotCompatibleWithReceiverState);
            (answer.amf_ue_ngap_id, answer.ran_ue_ngap_id) = ids(ue).unzip();
            send(ue, &answer.into(), None);
        }
    }
}

/// The refusal of a procedure that is not supported.
fn unserved() -> Cause {
    CauseProtocol::MessageNotCompatibleWithReceiverState.into()
}

/// UPLINK NAS TRANSPORT (TS 38.413 §8.6.3).
pub(crate) fn uplink_nas(ue: Ue, m: UplinkNasTransport) {
    if let Some(location) = &m.user_location_information {
        locate(ue, location);
    }
    match nas::receive(ue, &m.nas_pdu) {
        Ok(received) if is_releasing(ue) && !crosses_release(&received.message) => out_of_state(ue),
        Ok(received) => nas_dispatch::received(ue, received),
        Err(unread) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: unread.why });
            if let Some(answer) = unread.answer() {
                send_nas(ue, &answer, DownlinkProtection::Current);
            }
        }
    }
}

/// Delivers the answer to the procedure that awaits it. The answer to a session's setup concerns only the sessions in
/// it.
fn context_answer(ue: Ue, message: Message) {
    let awaited = ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.context_pending));
    if !awaited && matches!(message, Message::InitialContextSetupFailure(_)) {
        // A CTA that takes over may repeat the request. The gNB refuses a context whose UE has left meanwhile.
        return out_of_state(ue);
    }
    let input = Input::Ngap(Box::new(message));
    if let Err(Input::Ngap(message)) = ue.with(|p| p.lanes.deliver(Lane::Mobility, input))
        && context_answered(ue, *message).is_err()
    {
        an_release::requested(ue, CauseRadioNetwork::FailureInRadioInterfaceProcedure.into());
    }
}

/// Messages from before the release of the connection that are processed all the same. Requests are not: they cannot be answered here, and
/// the UE repeats them on its next connection.
const fn crosses_release(message: &mm::Message) -> bool {
    matches!(
        message,
        mm::Message::DeregistrationRequestUeOriginating(_)
            | mm::Message::DeregistrationAcceptUeTerminated(_)
            | mm::Message::ConfigurationUpdateComplete(_)
            | mm::Message::RegistrationComplete(_)
    )
}

/// Handles a message of the target gNB.
fn of_target(ue: Ue, message: Message) {
    match message {
        Message::UplinkNasTransport(m) => uplink_nas(ue, m),
        Message::HandoverRequestAcknowledge(_) | Message::HandoverFailure(_) | Message::HandoverNotify(_) => {
            let input = Input::Ngap(Box::new(message));
            if ue.with(|p| p.lanes.deliver(Lane::Handover, input)).is_err() {
                out_of_state(ue);
            }
        }
        // The target releases the UE before it has arrived (TS 38.413 §8.3.2).
        Message::UeContextReleaseRequest(m) => {
            if let Some(target) = ue.with(|p| p.amf.mobility.target.as_deref().cloned()) {
                target::release_target(ue, &target, m.cause);
            }
            target::gone(ue);
        }
        Message::ErrorIndication(m) => match m.cause {
            Some(Cause::RadioNetwork(
                CauseRadioNetwork::UnknownLocalUeNgapId | CauseRadioNetwork::InconsistentRemoteUeNgapId,
            )) => target::gone(ue), // it does not have the UE (§10.6)
            _ => out_of_state(ue),
        },
        _ => out_of_state(ue),
    }
}

/// Handles a message of the former gNB.
fn of_source(ue: Ue, message: Message) {
    match message {
        Message::UeContextReleaseRequest(_) => target::release_source(ue), // it is being released anyway
        Message::ErrorIndication(_) => target::source_gone(ue, |_| true),
        _ => out_of_state(ue),
    }
}
