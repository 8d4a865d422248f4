//! The SMF's part of an Xn handover: TS 23.502 §4.9.1.2.2 steps 2 to 7, TS 38.413 §9.3.4.8, §9.3.4.9.

use whimbrel_ids::{PduSessionId, Tac};
use whimbrel_nas::ie::SmCause;
use whimbrel_ngap::ie::{Cause, CauseMisc, CauseProtocol, CauseRadioNetwork, PduSessionResourceItem};
use whimbrel_ngap::transfer::{
    PathSwitchRequestAcknowledgeTransfer, PathSwitchRequestSetupFailedTransfer, PathSwitchRequestTransfer,
};

use super::context::{an_tunnel, tunnel};
use super::n4::{self, Downlink};
use super::{intermediate_upf, release, up_connection};
use crate::event::Event;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::services::nsmf::SwitchedSession;
use crate::state::{DEFAULT_QFI, Tunnel, UpState};

/// Steps 3 and 4: switches each session's downlink tunnel to the target; the former tunnel gets an end marker. The requests
/// are sent at once and answered in any order.
///
/// Where the target is in another UPF's area, that UPF is established first (§4.9.1.2.3, §4.9.1.2.4 steps 2 to 4). If none can be, the session
/// keeps its path: the UE is at the target already.
pub(crate) async fn switch_paths(
    ue: Ue,
    items: &[PduSessionResourceItem],
    tac: Option<Tac>,
) -> Result<Vec<SwitchedSession>, Interrupt> {
    let mut named = Vec::new();
    if let Some(tac) = tac {
        let at_target = |item: &PduSessionResourceItem| {
            let transfer = PathSwitchRequestTransfer::decode(&item.transfer).ok()?;
            Some((item.pdu_session_id, Some(an_tunnel(&transfer.dl_ngu_up_tnl_information)?)))
        };
        let sessions: Vec<_> = items.iter().filter_map(at_target).collect();
        named = intermediate_upf::name_target(ue, &sessions, tac);
        intermediate_upf::prepare(ue, &sessions, tac).await?;
    }
    let mut switched = Vec::with_capacity(items.len());
    let mut asked = Vec::with_capacity(items.len());
    for item in items {
        let psi = item.pdu_session_id;
        match judge(ue, item) {
            Ok((tunnel, transfer)) => {
                // In a tunnel that the source does not have, no end marker is needed.
                let leaves = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| up_connection::is_active(s)));
                let downlink = if leaves { Downlink::SwitchTo(tunnel) } else { Downlink::To(tunnel) };
                let request = match ue.with(|p| intermediate_upf::is_planned(p, psi)) {
                    true => intermediate_upf::switch(ue, psi, tunnel),
                    false => n4::ask_downlink(ue, psi, downlink),
                };
                match request {
                    Some(request) => asked.push((psi, (tunnel, transfer), request)),
                    None => switched.push(SwitchedSession { psi, transfer: Err(no_user_plane()) }),
                }
            }
            Err(cause) => switched.push(SwitchedSession { psi, transfer: Err(cause) }),
        }
    }
    for (psi, (tunnel, transfer), answer) in n4::modifications_answered(ue, asked).await? {
        let there = answer.is_ok()
            && ue.with(|p| {
                intermediate_upf::arrived(p, psi);
                p.sessions.get_mut(&psi).map(|s| s.active_at(tunnel)).is_some()
            });
        let transfer = if there { Ok(transfer) } else { Err(no_user_plane()) };
        switched.push(SwitchedSession { psi, transfer });
    }
    intermediate_upf::forget_target(ue, named);
    Ok(switched)
}

fn no_user_plane() -> Cause {
    CauseMisc::NotEnoughUserPlaneProcessingResources.into()
}

/// Checks a session's item; returns the target's tunnel and the transfer for the target.
fn judge(ue: Ue, item: &PduSessionResourceItem) -> Result<(Tunnel, Vec<u8>), Cause> {
    let psi = item.pdu_session_id;
    if is_being_released(ue, psi) {
        return Err(CauseRadioNetwork::InteractionWithOtherProcedure.into());
    }
    let coming_up = up_connection::is_coming_up(ue, psi);
    let asked = PathSwitchRequestTransfer::decode(&item.transfer);
    let judged: Result<_, Cause> = ue.with(|p| {
        let session = p.sessions.get(&psi).filter(|s| s.up != UpState::Establishing && !coming_up);
        let session = session.ok_or(CauseRadioNetwork::UnknownPduSessionId)?;
        let asked = asked.map_err(|_| CauseProtocol::AbstractSyntaxErrorReject)?;
        if !asked.qos_flow_accepted_list.iter().any(|f| f.qos_flow_identifier == DEFAULT_QFI) {
            return Err(CauseRadioNetwork::UnkownQosFlowId.into()); // a session needs its default flow
        }
        let to = an_tunnel(&asked.dl_ngu_up_tnl_information).ok_or(CauseProtocol::SemanticError)?;
        let mut answer = PathSwitchRequestAcknowledgeTransfer::new();
        answer.ul_ngu_up_tnl_information =
            intermediate_upf::uplink_tunnel_at_target(p, psi).or(session.n3).map(tunnel);
        // TS 33.501 §6.6.1, TS 33.515 §4.2.2.1.3: a target with another policy, or none, gets the SMF's.
        let at_target = asked.user_plane_security_information.map(|i| i.security_indication);
        answer.security_indication = session.security_indication().filter(|p| at_target.as_ref() != Some(p));
        Ok((to, answer.to_vec(), at_target.is_some() && answer.security_indication.is_some()))
    });
    let (to, answer, differs) = judged?;
    if differs {
        let subject = ue.with(|p| p.subject());
        ue.event(Event::UpSecurityPolicyDiffers { subject, psi });
    }
    Ok((to, answer))
}

/// Whether a session is being released.
pub(crate) fn is_being_released(ue: Ue, psi: PduSessionId) -> bool {
    is_releasing(ue.with(|p| p.lanes.procedure(Lane::Session(psi))))
}

/// Whether this procedure releases a session.
pub(super) fn is_releasing(running: Option<Procedure>) -> bool {
    matches!(running, Some(Procedure::PduSessionReleaseByUe | Procedure::PduSessionReleaseByNetwork))
}

/// Steps 2 and 7: handles the sessions that were not switched. `failed` are those that the target could not set up.
///
/// A session that the UPF lost is released, and so is one whose security policy the target cannot fulfil. The others are
/// deactivated until the UE requests them.
pub(crate) fn not_switched(ue: Ue, switched: &[SwitchedSession], failed: &[PduSessionResourceItem]) {
    let at_gnb = up_connection::at_gnb(ue);
    for psi in ue.with(|p| p.sessions.keys().copied().collect::<Vec<_>>()) {
        if is_being_released(ue, psi) {
            continue;
        }
        let outcome = switched.iter().find(|s| s.psi == psi).map(|s| s.transfer.as_ref().err());
        match outcome {
            Some(None) => {}
            Some(Some(Cause::Misc(_))) => end_without_gnb(ue, psi, SmCause::NetworkFailure),
            _ if failed.iter().any(|i| i.pdu_session_id == psi && unprotected(&i.transfer)) => {
                end_without_gnb(ue, psi, SmCause::RegularDeactivation);
            }
            _ if at_gnb.contains(&psi) => up_connection::deactivate(ue.on(Lane::Session(psi)), psi),
            _ => {}
        }
    }
}

/// Releases a session without resources at a gNB: only the UE gets a message.
pub(super) fn end_without_gnb(ue: Ue, psi: PduSessionId, cause: SmCause) {
    ue.with(|p| {
        if let Some(s) = p.sessions.get_mut(&psi) {
            s.inactive();
        }
    });
    release::by_network(ue, psi, cause);
}

fn unprotected(transfer: &[u8]) -> bool {
    PathSwitchRequestSetupFailedTransfer::decode(transfer).is_ok_and(|t| {
        matches!(
            t.cause,
            Cause::RadioNetwork(
                CauseRadioNetwork::UpIntegrityProtectionNotPossible
                    | CauseRadioNetwork::UpConfidentialityProtectionNotPossible
            )
        )
    })
}
