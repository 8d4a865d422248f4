//! A UE's N2 connection: its first message, its later ones, and what leaves on it.
//!
//! TS 38.413 §8.6.2.2, §8.6.3.2 (NAS transport), TS 38.413 §10.4 (messages at a wrong time), §10.6 (that name the wrong UE),
//! TS 23.502 §4.2.6 (release).

use whimbrel_ids::{AmfUeNgapId, PduSessionId, RanUeNgapId, Tai};
use whimbrel_nas::mm;
use whimbrel_ngap::ie::{
    Cause, CauseNas, CauseProtocol, CauseRadioNetwork, UeAggregateMaximumBitRate, UeNgapIdPair, UeNgapIds,
    UserLocationInformation,
};
use whimbrel_ngap::msg::{
    DownlinkNasTransport, ErrorIndication, InitialUeMessage, UeContextReleaseCommand, UeContextResumeFailure,
    UeContextSuspendFailure, UplinkNasTransport,
};
use whimbrel_ngap::{Message, peek};

use super::an_release;
use super::context_setup::context_answered;
use super::nas::{self, First};
use super::ran_node::error_indication;
use super::{handover, location_reporting, paging, radio_capability_check, rrc_inactive, target};
use crate::collision;
use crate::envelope::{AssociationId, Disposition, Effect, HandoverTarget};
use crate::event::{Dropped, Event};
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::smf;
use crate::state::{Connection, Security, Seen, UeContext};

/// The first message of a connection.
///
/// It touches the UE that it names only if it proves to come from that UE; else it is a stranger's, and runs
/// in a slot of its own.
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
    let (known, connected) = ue.with(|p| (p.amf.security.is_some(), p.amf.connection.is_some()));
    // One whose former AMF has it still is that one's.
    let is_here = |p: &mut UeContext| p.amf.between.is_none() || p.amf.tmsi.is_some();
    let bears = |p: &mut UeContext| m.five_g_s_tmsi.is_none_or(|t| p.bears(t.tmsi)) && is_here(p);
    // One that is still proving who it is bears no 5G-TMSI: what names it by one means whoever had its slot before.
    if known && !ue.with(bears) || !known && connected {
        return ue.remark(|b| b.disposition = Disposition::Stranger);
    }
    match nas::receive_first(ue, &m.nas_pdu, known, addressed) {
        First::Stranger => ue.remark(|b| b.disposition = Disposition::Stranger),
        First::Elsewhere(tmsi) => ue.remark(|b| b.disposition = Disposition::Elsewhere(tmsi)),
        First::Unreadable(unread) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: unread.why });
            // Nothing follows on such a connection: the gNB is told to let it go (TS 24.501 §7.2.1).
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
        First::Read(received) => {
            adopt(ue, association, amf_ue_ngap_id, &m, received.protected);
            collision::mm(ue, *received);
        }
    }
}

/// Ends the slot that a first message got if it holds nothing yet.
fn refuse_first(ue: Ue, association: AssociationId, answer: Option<ErrorIndication>) {
    if let Some(answer) = answer {
        emit(ue, association, &answer.into(), None);
    }
    if ue.with(|p| p.amf.security.is_none() && p.amf.connection.is_none()) {
        ue.remark(|b| b.disposition = Disposition::Ended);
    }
}

/// Takes the new connection in place of one that the UE may have had (TS 23.502 §4.2.2.2.2, §4.2.3.2): the gNB of the
/// former is told to let go, and what ran over it ends.
fn adopt(
    ue: Ue,
    association: AssociationId,
    amf_ue_ngap_id: AmfUeNgapId,
    m: &InitialUeMessage,
    secured: bool,
) {
    if let Some(former) = ue.with(|p| p.amf.connection.take()) {
        let ids = UeNgapIdPair::new(former.amf_ue_ngap_id, former.ran_ue_ngap_id);
        let command = release_command(ids, CauseRadioNetwork::ReleaseDueTo5gcGeneratedReason);
        emit(ue, former.association, &command.into(), None);
        part(ue, former.association, former.amf_ue_ngap_id);
        detach(ue);
    }
    ue.with(|p| {
        p.amf.reachable_until = None;
        p.amf.connection_until = None;
        p.amf.connection = Some(Box::new(Connection {
            association,
            amf_ue_ngap_id,
            ran_ue_ngap_id: m.ran_ue_ngap_id,
            context_set_up: false,
            context_pending: false,
            context_requested: m.ue_context_request.is_some(),
            ambr_told: None,
            follow_on: false,
            secured,
            releasing: false,
            establishment_cause: m.rrc_establishment_cause,
            rrc_inactive: false,
            pending_setups: Vec::new(),
        }));
    });
    locate(ue, &m.user_location_information);
    location_reporting::found(ue);
}

/// The connection is gone, by whatever way: what ran over it is interrupted, its sessions' user planes wait, and a
/// UE for which data arrived meanwhile is paged.
pub(crate) fn lost(ue: Ue) {
    detach(ue);
    an_release::begin_reachability(ue);
    super::page_if_awaited(ue);
}

fn detach(ue: Ue) {
    drop(target::abandon(ue));
    let sessions = smf::with_user_plane(ue);
    ue.with(|p| {
        p.amf.connection = None;
        p.amf.next_hop = None;
        p.amf.connection_until = None;
        p.lanes.interrupt(Lane::Mobility, Interrupt::ConnectionLost);
        p.lanes.interrupt_pending_setups(Interrupt::ConnectionLost);
        for psi in p.sessions.keys().copied().collect::<Vec<_>>() {
            // What lets the user plane go does not need the connection.
            if p.lanes.procedure(Lane::Session(psi)) != Some(Procedure::UpConnectionDeactivation) {
                p.lanes.interrupt(Lane::Session(psi), Interrupt::ConnectionLost);
            }
        }
    });
    smf::deactivate_all(ue, sessions);
}

/// The tracking area that a gNB tells.
pub(crate) fn location(location: &UserLocationInformation) -> Option<Tai> {
    match location {
        UserLocationInformation::UserLocationInformationNr(nr) => Some(nr.tai),
        UserLocationInformation::UserLocationInformationEutra(eutra) => Some(eutra.tai),
        _ => None,
    }
}

/// Notes where the UE is.
pub(crate) fn locate(ue: Ue, told: &UserLocationInformation) {
    let at = ue.now();
    let (tai, cell) = (location(told), location_reporting::cell(told));
    ue.with(|p| {
        p.amf.moved |= tai.is_some() && p.amf.tai != tai;
        p.amf.tai = tai.or(p.amf.tai);
        if let Some(cell) = cell {
            p.amf.seen = Some(Seen { cell, at });
        }
    });
}

/// A later message of a connection. `to`: where HANDOVER REQUIRED leads.
pub(crate) fn uplink(ue: Ue, association: AssociationId, octets: &[u8], to: Option<&HandoverTarget>) {
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
    // Its sender has no connection of this UE yet: it names another's.
    if let Message::PathSwitchRequest(m) = message {
        return collision::path_switch_requested(ue, association, Box::new(m));
    }
    match side(ue, association, ids) {
        Ok(Side::Serving) => dispatch(ue, message, to),
        Ok(Side::Target) => target::received(ue, message),
        Ok(Side::Source) => target::received_of_source(ue, message),
        Err(cause) => {
            // Those that end a connection, or are errors themselves, get no answer (TS 38.413 §10.6).
            let ends = matches!(message, Message::UeContextReleaseComplete(_) | Message::ErrorIndication(_));
            let silent = ids.is_some_and(|(amf_id, _)| has_parted(ue, association, amf_id, ends)) || ends;
            if let Some((amf_id, ran_id)) = ids
                && !silent
            {
                refuse_names(ue, association, cause, amf_id, ran_id);
            }
            if cause == CauseRadioNetwork::InconsistentRemoteUeNgapId {
                lost(ue); // both sides let go of a connection whose names they do not agree on (§10.6)
            }
        }
    }
}

/// A connection is over, and its gNB has yet to hear of it, or to answer.
pub(crate) fn part(ue: Ue, association: AssociationId, amf_ue_ngap_id: AmfUeNgapId) {
    let now = ue.now();
    ue.with(|p| p.amf.parted.get_or_insert_default().add(now, association, amf_ue_ngap_id));
}

/// Whether a gNB names a connection that was over before it could know. `ends`: it knows by now.
fn has_parted(ue: Ue, association: AssociationId, amf_ue_ngap_id: AmfUeNgapId, ends: bool) -> bool {
    let now = ue.now();
    ue.with(|p| {
        let Some(parted) = &mut p.amf.parted else { return false };
        let crossed = parted.has(now, association, amf_ue_ngap_id);
        if ends {
            parted.confirmed(association, amf_ue_ngap_id);
        }
        if parted.forget(now) {
            p.amf.parted = None;
        }
        crossed
    })
}

/// ERROR INDICATION for a message whose names are not those of any connection of the UE (TS 38.413 §10.6).
pub(crate) fn refuse_names(
    ue: Ue,
    association: AssociationId,
    cause: CauseRadioNetwork,
    amf_id: AmfUeNgapId,
    ran_id: Option<RanUeNgapId>,
) {
    let mut answer = error_indication(cause);
    (answer.amf_ue_ngap_id, answer.ran_ue_ngap_id) = (Some(amf_id), ran_id);
    emit(ue, association, &answer.into(), None);
}

/// Which of the UE's gNBs a message came from.
enum Side {
    Serving,
    /// The one that takes the UE over.
    Target,
    /// The one that it has left, which still forwards what it has.
    Source,
}

/// The connection that a message belongs to: its association, both identities (TS 38.413 §10.6).
fn side(
    ue: Ue,
    association: AssociationId,
    ids: Option<(AmfUeNgapId, Option<RanUeNgapId>)>,
) -> Result<Side, CauseRadioNetwork> {
    let (amf, ran) = ids.ok_or(CauseRadioNetwork::UnknownLocalUeNgapId)?;
    ue.with(|p| {
        let of_target = p.amf.target.as_ref().is_some_and(|t| {
            let named = ran.is_none_or(|ran| t.ran_ue_ngap_id.is_none_or(|known| known == ran));
            t.association == association && t.amf_ue_ngap_id == amf && named
        });
        let serving =
            p.amf.connection.as_ref().filter(|c| c.association == association && c.amf_ue_ngap_id == amf);
        let of_source = p
            .amf
            .source
            .as_ref()
            .and_then(|s| s.connection.as_ref())
            .is_some_and(|c| c.association == association && c.amf_ue_ngap_id == amf);
        match serving {
            _ if of_target => Ok(Side::Target),
            _ if of_source => Ok(Side::Source),
            Some(c) if ran.is_none_or(|ran| ran == c.ran_ue_ngap_id) => Ok(Side::Serving),
            Some(_) => Err(CauseRadioNetwork::InconsistentRemoteUeNgapId),
            None => Err(CauseRadioNetwork::UnknownLocalUeNgapId),
        }
    })
}

/// The longest UE radio capability that is stored: segments of UECapabilityInformation make 16 of 9000 octets at most
/// (TS 38.331 §5.7.7), and what is longer the next gNB asks the UE for.
const RADIO_CAPABILITY_OCTETS_MAX: usize = 16 * 9000;

fn dispatch(ue: Ue, message: Message, to: Option<&HandoverTarget>) {
    match message {
        Message::UplinkNasTransport(m) => uplink_nas(ue, m),
        Message::UeContextReleaseRequest(m) => collision::release_requested(ue, m.cause),
        Message::UeRadioCapabilityInfoIndication(m) => {
            if (1..=RADIO_CAPABILITY_OCTETS_MAX).contains(&m.ue_radio_capability.len()) {
                ue.with(|p| p.amf.radio_capability = Some(m.ue_radio_capability.into()));
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
            smf::n2_items(ue, m.pdu_session_resource_setup_list_su_res, smf::N2Outcome::SetUp);
            smf::n2_items(
                ue,
                m.pdu_session_resource_failed_to_setup_list_su_res,
                smf::N2Outcome::SetupFailed,
            );
        }
        Message::PduSessionResourceReleaseResponse(m) => {
            smf::n2_items(ue, m.pdu_session_resource_released_list_rel_res, smf::N2Outcome::Released);
        }
        Message::PduSessionResourceModifyResponse(m) => {
            smf::n2_items(ue, m.pdu_session_resource_modify_list_mod_res, smf::N2Outcome::Modified);
            let failed = m.pdu_session_resource_failed_to_modify_list_mod_res;
            smf::n2_items(ue, failed, smf::N2Outcome::ModifyFailed);
        }
        Message::PduSessionResourceModifyIndication(m) => super::session_indication::start(ue, m),
        Message::UeContextReleaseComplete(ref m) => {
            if is_releasing(ue) {
                if let Some(place) = &m.user_location_information {
                    locate(ue, place); // TS 23.502 §4.2.6 step 4
                }
                paging::keep_recommended(ue, m);
            }
            let input = Input::Ngap(Box::new(message));
            if ue.with(|p| p.lanes.deliver(Lane::Mobility, input)).is_err() {
                // Whatever awaited it has given way: the connection is gone all the same.
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
            smf::n2_items(ue, m.pdu_session_resource_released_list_not, smf::N2Outcome::Lost);
            smf::notified(ue, m.pdu_session_resource_notify_list);
        }
        // What is being repeated anyway is sent again now (TS 38.413 §8.6.4).
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
        Message::HandoverRequired(m) => collision::handover_required(ue, Box::new(m), to.cloned()),
        Message::HandoverCancel(m) => target::cancel(ue, m),
        Message::UplinkRanStatusTransfer(m) => handover::ran_status_transfer(ue, m),
        Message::UplinkRanEarlyStatusTransfer(m) => handover::ran_early_status_transfer(ue, m),
        Message::LocationReport(m) => location_reporting::reported(ue, &m),
        Message::LocationReportingFailureIndication(m) => location_reporting::failed(ue, &m),
        // §8.11.4: whom the trace is of, the operator learns with it.
        Message::CellTrafficTrace(m) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::CellTraffic { subject, trace: m.ngran_trace_id, cell: m.ngran_cgi });
        }
        // Nobody suspends here: there is no CIoT optimisation (TS 23.501 §5.31.18), and the UE stays as it is.
        Message::UeContextSuspendRequest(m) => {
            let failure = UeContextSuspendFailure::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, unserved());
            send(ue, &failure.into(), None);
        }
        Message::UeContextResumeRequest(m) => {
            let failure = UeContextResumeFailure::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, unserved());
            send(ue, &failure.into(), None);
        }
        Message::RrcInactiveTransitionReport(m) => rrc_inactive::reported(ue, &m),
        Message::SecondaryRatDataUsageReport(m) => smf::secondary_rat_usage(ue, m),
        // There is no LMF to whom it could go, and the procedure has no answer (TS 38.413 §8.10.3).
        Message::UplinkUeAssociatedNrppaTransport(_) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: Dropped::UnservedPayload });
        }
        // Of a handover that is over: a gNB that lost the AMF's endpoint says again what was not acknowledged.
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

/// The cause of what is not to be had here, and never was.
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
        Ok(received) => collision::mm(ue, received),
        Err(unread) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Dropped { subject, why: unread.why });
            if let Some(answer) = unread.answer() {
                send_nas(ue, &answer, Security::Current);
            }
        }
    }
}

/// To the procedure that awaits it; one that a session's setup caused is awaited by nobody but the sessions in it.
fn context_answer(ue: Ue, message: Message) {
    let input = Input::Ngap(Box::new(message));
    if let Err(Input::Ngap(message)) = ue.with(|p| p.lanes.deliver(Lane::Mobility, input))
        && context_answered(ue, *message).is_err()
    {
        collision::release_requested(ue, CauseRadioNetwork::FailureInRadioInterfaceProcedure.into());
    }
}

/// The gNB was told to let the UE go.
pub(crate) fn is_releasing(ue: Ue) -> bool {
    ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.releasing))
}

/// What a UE said before it heard that its connection ends, and what counts all the same. A request is made again on the
/// next connection, for it cannot be answered on this one.
const fn crosses_release(message: &mm::Message) -> bool {
    matches!(
        message,
        mm::Message::DeregistrationRequestUeOriginating(_)
            | mm::Message::DeregistrationAcceptUeTerminated(_)
            | mm::Message::ConfigurationUpdateComplete(_)
            | mm::Message::RegistrationComplete(_)
    )
}

pub(crate) fn out_of_state(ue: Ue) {
    let subject = ue.with(|p| p.subject());
    ue.event(Event::Dropped { subject, why: Dropped::OutOfState });
}

/// The identities of the UE's connection.
pub(crate) fn ids(ue: Ue) -> Option<(AmfUeNgapId, RanUeNgapId)> {
    ue.with(|p| p.amf.connection.as_ref().map(|c| (c.amf_ue_ngap_id, c.ran_ue_ngap_id)))
}

/// Sends an NGAP message on the UE's connection, if it has one that is not about to go.
pub(crate) fn send(ue: Ue, message: &Message, downlink_count: Option<u32>) {
    let connection = ue.with(|p| p.amf.connection.as_ref().filter(|c| !c.releasing).map(|c| c.association));
    if let Some(association) = connection {
        emit(ue, association, message, downlink_count);
    }
}

pub(crate) fn emit(ue: Ue, association: AssociationId, message: &Message, downlink_count: Option<u32>) {
    let mut octets = Vec::with_capacity(128);
    message.encode_in(association.syntax(), &mut octets);
    ue.emit(Effect::N2 { association, octets }, downlink_count);
}

/// Sends a 5GMM message in DOWNLINK NAS TRANSPORT.
pub(crate) fn send_nas(ue: Ue, message: &mm::Message, security: Security) {
    let Some((amf_ue_ngap_id, ran_ue_ngap_id)) = ids(ue).filter(|_| !is_releasing(ue)) else { return };
    if ue.with(|p| target::hold(p, message, security)) {
        return;
    }
    let Some((nas_pdu, count)) = nas::protect(ue, message, security) else { return };
    let transport = DownlinkNasTransport::new(amf_ue_ngap_id, ran_ue_ngap_id, nas_pdu);
    send(ue, &transport.into(), count);
}

/// The UE-AMBR for a message that sets these sessions up; `None` where it was told before (TS 38.413 §8.2.1.2).
pub(crate) fn ue_ambr(ue: Ue, sessions: &[PduSessionId]) -> Option<UeAggregateMaximumBitRate> {
    let config = ue.config();
    ue.with(|p| {
        let emergency = config.amf.access.emergency.as_ref().filter(|_| p.amf.emergency).map(|e| e.ambr);
        let ambr = emergency.or_else(|| smf::aggregate(p, sessions))?;
        let connection = p.amf.connection.as_mut()?;
        if connection.ambr_told.replace(ambr) == Some(ambr) {
            return None;
        }
        Some(UeAggregateMaximumBitRate::new(bits(ambr.dl_kbps), bits(ambr.ul_kbps)))
    })
}

/// kbit/s in bit/s, within what the information element holds (TS 38.413 §9.3.1.4: 4 Tbit/s).
pub(crate) fn bits(kbps: u64) -> u64 {
    kbps.saturating_mul(1000).min(4_000_000_000_000)
}

pub(crate) fn release_command(ids: UeNgapIdPair, cause: impl Into<Cause>) -> UeContextReleaseCommand {
    UeContextReleaseCommand::new(UeNgapIds::UeNgapIdPair(ids), cause.into())
}

/// Tells the gNB to let the connection go (TS 38.413 §8.3.3).
pub(crate) fn send_release_command(ue: Ue, cause: impl Into<Cause>) {
    let Some((amf, ran)) = ids(ue) else { return };
    send(ue, &release_command(UeNgapIdPair::new(amf, ran), cause).into(), None);
    ue.with(|p| p.amf.connection.iter_mut().for_each(|c| c.releasing = true));
}

/// Has a gNB let a connection go of which nothing is left here but its names. By ours alone it knows it only from our first message on; and it may
/// call another context by that, too.
pub fn release_of(amf_ue_ngap_id: AmfUeNgapId, ran_ue_ngap_id: Option<RanUeNgapId>) -> Message {
    let ids = match ran_ue_ngap_id {
        Some(ran) => UeNgapIds::UeNgapIdPair(UeNgapIdPair::new(amf_ue_ngap_id, ran)),
        None => UeNgapIds::AmfUeNgapId(amf_ue_ngap_id),
    };
    UeContextReleaseCommand::new(ids, CauseRadioNetwork::ReleaseDueTo5gcGeneratedReason.into()).into()
}

/// The same for one that its first message was to begin.
pub fn release_of_first(octets: &[u8], connection: AmfUeNgapId) -> Message {
    release_of(connection, peek(octets).and_then(|n| n.ran_ue_ngap_id))
}

/// The answer to a message whose AMF-UE-NGAP-ID nobody bears (TS 38.413 §10.6).
pub fn unknown_local_id(octets: &[u8]) -> Message {
    let named = peek(octets);
    let mut m = error_indication(CauseRadioNetwork::UnknownLocalUeNgapId);
    m.amf_ue_ngap_id = named.and_then(|n| n.amf_ue_ngap_id);
    m.ran_ue_ngap_id = named.and_then(|n| n.ran_ue_ngap_id);
    m.into()
}

/// The answer to a first message for which there is no slot.
pub fn overloaded(octets: &[u8], cause: impl Into<Cause>) -> Message {
    let mut m = error_indication(cause);
    m.ran_ue_ngap_id = peek(octets).and_then(|n| n.ran_ue_ngap_id);
    m.into()
}
