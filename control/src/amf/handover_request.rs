//! Resource allocation of an N2 handover: HANDOVER REQUEST (TS 38.413 §8.4.2.2, TS 23.502 §4.9.1.3.2 steps 4 to 9),
//! with the UE's security capabilities (TS 33.501 §6.7.3.2).

use whimbrel_ids::PduSessionId;
use whimbrel_ngap::ie::{
    CauseMisc, CauseRadioNetwork, PduSessionResourceSetupItemHoReq, UeAggregateMaximumBitRate,
};
use whimbrel_ngap::msg::{HandoverRequest, HandoverRequired};

use super::as_security::{Fresh, offer_chain, ue_security_capabilities};
use super::context_setup::masked;
use super::handover::FailedHandover;
use super::mobility_restrictions::mobility_restriction_list;
use super::n2::emit;
use super::{location_reporting, rrc_inactive};
use crate::envelope::HandoverTarget;
use crate::procedure::Ue;
use crate::refusal::Refusal;
use crate::state::{HandoverKind, HandoverSessions, Phase, bits};

/// Sends HANDOVER REQUEST with the sessions and a fresh {NH, NCC} (TS 33.501 §6.9.2.3.3): `keys`, if another AMF has derived them. `unserved`: the
/// sessions that no UPF can serve at the target.
pub(crate) fn request(
    ue: Ue,
    m: &HandoverRequired,
    to: &HandoverTarget,
    keys: Option<&Fresh>,
    unserved: &[PduSessionId],
) -> Result<HandoverSessions, FailedHandover> {
    let config = ue.config();
    let mut asked = HandoverSessions { sessions: Vec::new(), refused: Vec::new() };
    let mut items = Vec::new();
    for psi in m.pdu_session_resource_list_ho_rqd.iter().map(|i| i.pdu_session_id) {
        if asked.sessions.contains(&psi) || asked.refused.iter().any(|(known, _)| *known == psi) {
            continue;
        }
        if unserved.contains(&psi) {
            asked.refused.push((psi, CauseMisc::NotEnoughUserPlaneProcessingResources.into()));
            continue;
        }
        match ue.smf().prepare_handover(ue, psi) {
            Some((s_nssai, _)) if !to.slices.contains(&s_nssai) => {
                asked.refused.push((psi, CauseRadioNetwork::SliceNotSupported.into()));
            }
            Some((s_nssai, transfer)) => {
                asked.sessions.push(psi);
                items.push(PduSessionResourceSetupItemHoReq::new(psi, s_nssai, transfer));
            }
            None => asked.refused.push((psi, CauseRadioNetwork::UnknownPduSessionId.into())),
        }
    }
    if items.is_empty() {
        let unknown = || CauseRadioNetwork::UnknownPduSessionId.into();
        let cause = asked.refused.first().map_or_else(unknown, |(_, cause)| cause.clone());
        let refusal = match unserved.is_empty() {
            true => Refusal::Protocol("HANDOVER REQUIRED names no session that can be handed over"),
            false => Refusal::Upf(None),
        };
        return Err(FailedHandover::early(cause, refusal));
    }
    let ready = ue.with(|p| {
        let capabilities = ue_security_capabilities(p.amf.ue_security_capability.as_ref()?);
        let ambr = p.amf.subscription.as_ref()?.ue_ambr;
        let ambr = UeAggregateMaximumBitRate::new(bits(ambr.dl_kbps), bits(ambr.ul_kbps));
        let fresh = keys.cloned().or_else(|| offer_chain(&mut p.amf))?;
        Some((capabilities, ambr, fresh, p.amf.slices.allowed.clone()))
    });
    let Some((capabilities, ambr, fresh, allowed)) = ready else {
        // The connection was lost while the handover before this one ended.
        let cause = CauseRadioNetwork::InteractionWithOtherProcedure;
        return Err(FailedHandover::early(cause.into(), Refusal::Protocol("the UE's context is gone")));
    };
    let mut request = HandoverRequest::new(
        to.amf_ue_ngap_id,
        m.handover_type,
        m.cause.clone(),
        ambr,
        capabilities,
        fresh.context,
        items,
        allowed,
        m.source_to_target_transparent_container.clone(),
        config.amf.guami(),
    );
    request.new_security_context_ind = fresh.new;
    request.masked_imeisv = ue.with(|p| p.amf.pei.filter(|pei| pei.is_imeisv()).map(masked));
    request.mobility_restriction_list = mobility_restriction_list(ue);
    request.core_network_assistance_information_for_inactive = rrc_inactive::assistance(ue);
    request.rrc_inactive_transition_report_request = rrc_inactive::report_request(ue);
    request.location_reporting_request_type = location_reporting::standing(ue);
    emit(ue, to.association, &request.into(), None);
    ue.with(|p| {
        if let Some(t) = &mut p.amf.mobility.target {
            t.by = HandoverKind::N2(Phase::Preparing);
        }
    });
    Ok(asked)
}
