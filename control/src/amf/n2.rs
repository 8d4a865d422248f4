//! Sends on N2: NGAP messages to the UE's gNB, and 5GMM messages in DOWNLINK NAS TRANSPORT (TS 38.413 §8.6.2).

use whimbrel_ids::{AmfUeNgapId, PduSessionId, RanUeNgapId};
use whimbrel_nas::mm;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork, UeAggregateMaximumBitRate, UeNgapIdPair, UeNgapIds};
use whimbrel_ngap::msg::{DownlinkNasTransport, UeContextReleaseCommand};
use whimbrel_ngap::{Message, peek};

use super::nas;
use super::ran_node::error_indication;
use crate::collision::{self, CollisionVerdict};
use crate::envelope::{AssociationId, Effect};
use crate::procedure::Ue;
use crate::state::{DownlinkProtection, Phase, UeContext, bits};

/// The identities of the UE's connection.
pub(crate) fn ids(ue: Ue) -> Option<(AmfUeNgapId, RanUeNgapId)> {
    ue.with(|p| p.amf.connection.as_ref().map(|c| (c.amf_ue_ngap_id, c.ran_ue_ngap_id)))
}

/// UE CONTEXT RELEASE COMMAND was sent.
pub(crate) fn is_releasing(ue: Ue) -> bool {
    ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.releasing))
}

/// Sends an NGAP message on the UE's connection, unless it is being released.
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
pub(crate) fn send_nas(ue: Ue, message: &mm::Message, security: DownlinkProtection) {
    let Some((amf_ue_ngap_id, ran_ue_ngap_id)) = ids(ue).filter(|_| !is_releasing(ue)) else { return };
    if ue.with(|p| hold(p, message, security)) {
        return;
    }
    let Some((nas_pdu, count)) = nas::protect(ue, message, security) else { return };
    let transport = DownlinkNasTransport::new(amf_ue_ngap_id, ran_ue_ngap_id, nas_pdu);
    send(ue, &transport.into(), count);
}

/// The UE-AMBR for a message that sets these sessions up; `None` if the gNB has it (TS 38.413 §8.2.1.2).
pub(crate) fn ue_ambr(ue: Ue, sessions: &[PduSessionId]) -> Option<UeAggregateMaximumBitRate> {
    let (config, sum) = (ue.config(), ue.smf().ue_ambr(ue, sessions));
    ue.with(|p| {
        let emergency = config.amf.access.emergency.as_ref().filter(|_| p.amf.emergency).map(|e| e.ambr);
        let ambr = emergency.or(sum)?;
        let connection = p.amf.connection.as_mut()?;
        if connection.ambr_sent.replace(ambr) == Some(ambr) {
            return None;
        }
        Some(UeAggregateMaximumBitRate::new(bits(ambr.dl_kbps), bits(ambr.ul_kbps)))
    })
}

/// ERROR INDICATION for a message whose NGAP identities match no connection of the UE (TS 38.413 §10.6).
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

/// Notes a connection that has ended and whose gNB does not know so yet.
pub(crate) fn note_released(ue: Ue, association: AssociationId, amf_ue_ngap_id: AmfUeNgapId) {
    let now = ue.now();
    ue.with(|p| p.amf.recently_released.get_or_insert_default().add(now, association, amf_ue_ngap_id));
}

pub(crate) fn release_command(ids: UeNgapIdPair, cause: impl Into<Cause>) -> UeContextReleaseCommand {
    UeContextReleaseCommand::new(UeNgapIds::UeNgapIdPair(ids), cause.into())
}

/// UE CONTEXT RELEASE COMMAND to the serving gNB (TS 38.413 §8.3.3).
pub(crate) fn send_release_command(ue: Ue, cause: impl Into<Cause>) {
    let Some((amf, ran)) = ids(ue) else { return };
    send(ue, &release_command(UeNgapIdPair::new(amf, ran), cause).into(), None);
    ue.with(|p| p.amf.connection.iter_mut().for_each(|c| c.releasing = true));
}

/// UE CONTEXT RELEASE COMMAND for a connection without a context here. Both identities are sent: a gNB knows the AMF-UE-NGAP-ID only from
/// the first downlink message on.
pub fn release_of(amf_ue_ngap_id: AmfUeNgapId, ran_ue_ngap_id: Option<RanUeNgapId>) -> Message {
    let ids = match ran_ue_ngap_id {
        Some(ran) => UeNgapIds::UeNgapIdPair(UeNgapIdPair::new(amf_ue_ngap_id, ran)),
        None => UeNgapIds::AmfUeNgapId(amf_ue_ngap_id),
    };
    UeContextReleaseCommand::new(ids, CauseRadioNetwork::ReleaseDueTo5gcGeneratedReason.into()).into()
}

/// The same for a connection whose first message was refused.
pub fn release_of_first(octets: &[u8], connection: AmfUeNgapId) -> Message {
    release_of(connection, peek(octets).and_then(|n| n.ran_ue_ngap_id))
}

/// The answer to a message with an unknown AMF-UE-NGAP-ID (TS 38.413 §10.6).
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

/// Bound on held messages, above what the procedures of one UE send at once: one of the UE and one of each session.
const HELD_MAX: usize = 16;

/// Holds a message while the UE is in handover. SECURITY MODE COMMAND is not sent during a handover (TS 33.501 §6.9.5).
fn hold(ue: &mut UeContext, message: &mm::Message, security: DownlinkProtection) -> bool {
    let Some(target) = &mut ue.amf.mobility.target else { return hold_for_transfer(ue, message, security) };
    if collision::message_meets(target.by.phase(), security) == CollisionVerdict::Proceed {
        return false;
    }
    keep(&mut target.held, message, security);
    true
}

/// A message that is being retransmitted is held once; beyond the limit, its timer repeats it.
fn keep(
    held: &mut Vec<(mm::Message, DownlinkProtection)>,
    message: &mm::Message,
    security: DownlinkProtection,
) {
    if held.len() < HELD_MAX && !held.iter().any(|(held, _)| held == message) {
        held.push((message.clone(), security));
    }
}

/// Holds a message while the UE's context is being transferred: a COUNT that is used here would be unknown to the
/// target.
fn hold_for_transfer(ue: &mut UeContext, message: &mm::Message, security: DownlinkProtection) -> bool {
    let Some(d) = ue.amf.outbound_mut() else { return false };
    if d.phase == Phase::Waiting {
        return false;
    }
    keep(&mut d.held, message, security);
    true
}
