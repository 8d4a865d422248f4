//! A NAS message to the UE and, where one is needed, the UE context at its gNB: TS 38.413 §8.3.1, §8.2.1.

use whimbrel_ids::PduSessionId;
use whimbrel_nas::mm;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    Cause, CauseNas, PduSessionResourceItem, PduSessionResourceModifyItemModReq,
    PduSessionResourceSetupItemCxtReq, PduSessionResourceSetupItemSuReq, SecurityKey,
};
use whimbrel_ngap::msg::{
    InitialContextSetupRequest, PduSessionResourceModifyRequest, PduSessionResourceReleaseCommand,
    PduSessionResourceSetupRequest,
};
use whimbrel_ngap::transfer::PduSessionResourceReleaseCommandTransfer;

use super::as_security::{begin_chain, ue_security_capabilities};
use super::mobility_restrictions::mobility_restriction_list;
use super::n2::{ids, send, send_nas, ue_ambr};
use super::nas::protect;
use super::nas_transport::N1Sm;
use super::pending_setup::{self, is_setup_pending, release_sent, setup_requested};
use super::session_resources::n2_items;
use super::target::{handover_over, is_settled};
use super::{location_reporting, radio_capability_check, rrc_inactive};
use crate::event::Sign;
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nsmf::{N2Outcome, SmContextUpdateData};
use crate::state::DownlinkProtection;

/// A session to be set up at the gNB, and the NAS message that travels with it.
struct SetupItem {
    psi: PduSessionId,
    n1: Option<mm::Message>,
}

/// Namf_Communication_N1N2MessageTransfer (TS 23.502 §4.3.2.2.1 steps 11 and 12): a session's user plane at the gNB, and
/// its message to the UE. The gNB gets its UE context along the way if it has none yet.
pub(crate) async fn n1_n2_message_transfer(
    ue: Ue,
    psi: PduSessionId,
    n1: Option<N1Sm<'_>>,
) -> Result<(), ProcedureEnd> {
    while !may_ask_gnb(ue, psi).await? {}
    let n1 = n1.and_then(|n1| n1.transport(psi));
    let items = [SetupItem { psi, n1 }];
    if ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.context_set_up)) {
        set_up_sessions(ue, None, &items);
    } else {
        set_up_context(ue, None, &items);
    }
    Ok(())
}

/// Awaits one event after which the gNB may be asked for a session's resources. True when it may be asked: no handover runs, and
/// neither an INITIAL CONTEXT SETUP REQUEST nor an earlier setup of this session is outstanding.
async fn may_ask_gnb(ue: Ue, psi: PduSessionId) -> Result<bool, ProcedureEnd> {
    handover_over(ue).await?;
    let timers = ue.config().timers;
    let (event, what) = if is_context_pending(ue) {
        let set_up = ue.receive(|i| matches!(i, Input::ContextSetUp), timers.gnb_answer);
        (set_up, "no answer to INITIAL CONTEXT SETUP REQUEST")
    } else if is_setup_pending(ue, psi) {
        // The earlier setup times out after `session_setup`, which began before this wait.
        let answered =
            ue.receive(|i| matches!(i, Input::SessionSettled), timers.session_setup + timers.guard);
        (answered, "no answer to an earlier PDU SESSION RESOURCE SETUP REQUEST")
    } else {
        return Ok(true);
    };
    match event.await {
        Ok(_) => Ok(false),
        Err(Interrupt::TimedOut) => Err(Refusal::RadioFailure(what).into()),
        Err(other) => Err(other.into()),
    }
}

/// PDU SESSION RESOURCE RELEASE COMMAND, with the 5GSM message for the UE, if any (TS 38.413 §8.2.2).
pub(crate) fn release_session_resources(ue: Ue, psi: PduSessionId, n1: Option<N1Sm<'_>>) {
    let cause = Cause::Nas(CauseNas::NormalRelease);
    let transfer = PduSessionResourceReleaseCommandTransfer::new(cause).to_vec();
    release_session_resources_as(ue, psi, transfer, n1);
}

/// The same with the SMF's transfer.
pub(crate) fn release_session_resources_as(
    ue: Ue,
    psi: PduSessionId,
    transfer: Vec<u8>,
    n1: Option<N1Sm<'_>>,
) {
    let Some((amf_id, ran_id)) = ids(ue) else { return };
    let (nas_pdu, count) = nas_pdu(ue, n1.and_then(|n1| n1.transport(psi)).as_ref());
    let mut m = PduSessionResourceReleaseCommand::new(
        amf_id,
        ran_id,
        vec![PduSessionResourceItem::new(psi, transfer)],
    );
    m.nas_pdu = nas_pdu;
    send(ue, &m.into(), count);
    release_sent(ue, psi);
}

/// PDU SESSION RESOURCE MODIFY REQUEST, with the 5GSM message for the UE, if any (TS 38.413 §8.2.3).
pub(crate) fn modify_session_resources(ue: Ue, psi: PduSessionId, transfer: Vec<u8>, n1: Option<N1Sm<'_>>) {
    let Some((amf_id, ran_id)) = ids(ue) else { return };
    let n1 = n1.and_then(|n1| n1.transport(psi));
    let mut item = PduSessionResourceModifyItemModReq::new(psi, transfer);
    let count;
    (item.nas_pdu, count) = nas_pdu(ue, n1.as_ref());
    send(ue, &PduSessionResourceModifyRequest::new(amf_id, ran_id, vec![item]).into(), count);
}

/// Whether a gNB was asked for the UE's context and has not answered.
pub(crate) fn is_context_pending(ue: Ue) -> bool {
    ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.context_pending))
}

/// Proof that an INITIAL CONTEXT SETUP REQUEST is out and its answer awaited.
#[must_use = "the gNB's answer is awaited with `context_answer`"]
pub(crate) struct AwaitedContextSetup;

/// Sends `message` to the UE and sets up the user planes of `sessions`.
///
/// Uses INITIAL CONTEXT SETUP REQUEST if the gNB has requested a UE context (UE Context Request) or a session needs
/// one, else DOWNLINK NAS TRANSPORT.
pub(crate) fn deliver(
    ue: Ue,
    message: &mm::Message,
    sessions: &[PduSessionId],
) -> Option<AwaitedContextSetup> {
    // A setup that the gNB has not answered is not requested again: its answer is used when it comes.
    let mut sessions: Vec<PduSessionId> =
        sessions.iter().copied().filter(|&psi| !is_setup_pending(ue, psi)).collect();
    let mut later = Vec::new();
    if ue.smf().answers_later() {
        later = std::mem::take(&mut sessions);
    }
    let awaiting = deliver_with(ue, message, sessions);
    later.into_iter().for_each(|psi| ue.smf().update_sm_context(ue, psi, SmContextUpdateData::Activate));
    awaiting
}

fn deliver_with(ue: Ue, message: &mm::Message, sessions: Vec<PduSessionId>) -> Option<AwaitedContextSetup> {
    let items: Vec<SetupItem> = sessions.iter().map(|&psi| SetupItem { psi, n1: None }).collect();
    let (needs_context, has_context) = ue.with(|p| {
        let c = p.amf.connection.as_ref();
        let has_context = c.is_some_and(|c| c.context_set_up || c.context_pending);
        (c.is_some_and(|c| c.context_requested) || !sessions.is_empty(), has_context)
    });
    if needs_context && !has_context && set_up_context(ue, Some(message), &items).is_some() {
        return Some(AwaitedContextSetup);
    }
    if has_context && !sessions.is_empty() && is_settled(ue) {
        set_up_sessions(ue, Some(message), &items);
        sessions
            .iter()
            .for_each(|&psi| ue.smf().update_sm_context(ue, psi, SmContextUpdateData::SetupRequested));
    } else if has_context {
        send_nas(ue, message, DownlinkProtection::Current);
        sessions.iter().for_each(|&psi| ue.smf().update_sm_context(ue, psi, SmContextUpdateData::Activate)); // at the gNB that serves the UE then
    } else {
        send_nas(ue, message, DownlinkProtection::Current);
    }
    None
}

/// Whether an input answers an INITIAL CONTEXT SETUP REQUEST.
pub(crate) fn is_context_answer(input: &Input) -> bool {
    let Input::Ngap(m) = input else { return false };
    matches!(**m, Message::InitialContextSetupResponse(_) | Message::InitialContextSetupFailure(_))
}

/// Awaits the gNB's answer.
pub(crate) async fn context_answer(ue: Ue, _: AwaitedContextSetup) -> Result<(), ProcedureEnd> {
    match ue.receive(is_context_answer, ue.config().timers.gnb_answer).await {
        Ok(Input::Ngap(m)) => context_answered(ue, *m),
        Ok(_) => Ok(()),
        Err(Interrupt::TimedOut) => {
            Err(Refusal::RadioFailure("no answer to INITIAL CONTEXT SETUP REQUEST").into())
        }
        Err(other) => Err(other.into()),
    }
}

/// Takes the gNB's answer: the sessions that it set up, and those that it could not.
pub(crate) fn context_answered(ue: Ue, message: Message) -> Result<(), ProcedureEnd> {
    match message {
        Message::InitialContextSetupResponse(m) => {
            let sessions = ue.smf().session_ids(ue).into_iter().map(Lane::Session);
            ue.with(|p| {
                if let Some(c) = &mut p.amf.connection {
                    (c.context_set_up, c.context_pending) = (true, false);
                }
                for lane in sessions.chain([Lane::Handover]) {
                    // A lane that does not wait for it returns it.
                    let _ = p.lanes.deliver(lane, Input::ContextSetUp);
                }
            });
            n2_items(ue, m.pdu_session_resource_setup_list_cxt_res, N2Outcome::SetUp);
            let failed = m.pdu_session_resource_failed_to_setup_list_cxt_res;
            n2_items(ue, failed, N2Outcome::SetupFailed);
            pending_setup::context_answered(ue);
            location_reporting::sign(ue, || Sign::Connected);
            location_reporting::resume(ue);
            radio_capability_check::begin(ue);
            Ok(())
        }
        Message::InitialContextSetupFailure(m) => {
            let message = "INITIAL CONTEXT SETUP FAILURE";
            Err(Refusal::RefusedByGnb { message, cause: m.cause.in_words() }.into())
        }
        _ => Ok(()),
    }
}

fn set_up_context(ue: Ue, message: Option<&mm::Message>, items: &[SetupItem]) -> Option<()> {
    let config = ue.config();
    let (amf_id, ran_id) = ids(ue)?;
    let (allowed, capabilities, key) = ue.with(|p| {
        let capability = p.amf.ue_security_capability.as_ref()?;
        let capabilities = ue_security_capabilities(capability);
        let k_gnb = p.amf.security.k_amf.as_ref()?.k_gnb(p.amf.security.as_count.unwrap_or_default());
        begin_chain(&mut p.amf, &k_gnb);
        Some((p.amf.slices.allowed.clone(), capabilities, SecurityKey(*k_gnb.octets())))
    })?;
    let mut m =
        InitialContextSetupRequest::new(amf_id, ran_id, config.amf.guami(), allowed, capabilities, key);
    let mut count;
    (m.nas_pdu, count) = nas_pdu(ue, message);
    for SetupItem { psi, n1 } in items {
        let Some((s_nssai, transfer)) = ue.smf().n2_setup_info(ue, *psi) else { continue };
        let mut item = PduSessionResourceSetupItemCxtReq::new(*psi, s_nssai, transfer);
        let newer;
        (item.nas_pdu, newer) = nas_pdu(ue, n1.as_ref());
        count = newer.or(count);
        m.pdu_session_resource_setup_list_cxt_req.push(item);
        setup_requested(ue, *psi, true);
    }
    if !m.pdu_session_resource_setup_list_cxt_req.is_empty() {
        m.ue_aggregate_maximum_bit_rate = ue_ambr(ue, &named(items));
    }
    m.mobility_restriction_list = mobility_restriction_list(ue);
    m.core_network_assistance_information_for_inactive = rrc_inactive::assistance(ue);
    m.rrc_inactive_transition_report_request = rrc_inactive::report_request(ue);
    m.location_reporting_request_type = location_reporting::begin(ue);
    ue.with(|p| {
        m.ue_radio_capability = p.amf.radio.capability.as_ref().map(|c| c.to_vec());
        m.index_to_rfsp = p.amf.subscription.as_ref().and_then(|s| s.rfsp);
        m.masked_imeisv = p.amf.pei.filter(|pei| pei.is_imeisv()).map(masked);
        if let Some(c) = &mut p.amf.connection {
            c.context_pending = true;
        }
    });
    send(ue, &m.into(), count);
    Some(())
}

/// Sessions' resources on a connection that has its UE context.
fn set_up_sessions(ue: Ue, message: Option<&mm::Message>, items: &[SetupItem]) {
    let Some((amf_id, ran_id)) = ids(ue) else { return };
    let (pdu, mut count) = nas_pdu(ue, message);
    let mut list = Vec::with_capacity(items.len());
    for SetupItem { psi, n1 } in items {
        let Some((s_nssai, transfer)) = ue.smf().n2_setup_info(ue, *psi) else { continue };
        let mut item = PduSessionResourceSetupItemSuReq::new(*psi, s_nssai, transfer);
        let newer;
        (item.pdu_session_nas_pdu, newer) = nas_pdu(ue, n1.as_ref());
        count = newer.or(count);
        list.push(item);
        setup_requested(ue, *psi, false);
    }
    let mut m = PduSessionResourceSetupRequest::new(amf_id, ran_id, list);
    m.nas_pdu = pdu;
    m.ue_aggregate_maximum_bit_rate = ue_ambr(ue, &named(items));
    send(ue, &m.into(), count);
}

fn named(items: &[SetupItem]) -> Vec<PduSessionId> {
    items.iter().map(|i| i.psi).collect()
}

/// A protected NAS message and its COUNT, where there is one to send.
fn nas_pdu(ue: Ue, message: Option<&mm::Message>) -> (Option<Vec<u8>>, Option<u32>) {
    match message.and_then(|m| protect(ue, m, DownlinkProtection::Current)) {
        Some((pdu, count)) => (Some(pdu), count),
        None => (None, None),
    }
}

/// Masked IMEISV: 16 digits of 4 bits, the last four digits of the serial number set to ones (TS 38.413 §9.3.1.54).
pub(crate) fn masked(pei: whimbrel_ids::Pei) -> u64 {
    pei.digits().zip(0..).fold(0, |v, (d, i)| v << 4 | if (10..14).contains(&i) { 0xf } else { u64::from(d) })
}
