//! The SMF's part of an N2 handover: TS 23.502 §4.9.1.3.2 steps 4 to 7 and 11, §4.9.1.3.3 steps 7, 8 and 15, TS 38.413
//! §9.3.4.10, §9.3.4.11.

use std::net::IpAddr;

use whimbrel_ids::{PduSessionId, SNssai};
use whimbrel_ngap::ie::{
    Cause, CauseProtocol, CauseRadioNetwork, DataForwardingResponseDrbItem, UpTransportLayerInformation,
};
use whimbrel_ngap::transfer::{HandoverCommandTransfer, HandoverRequestAcknowledgeTransfer};
use whimbrel_pfcp::ie::FTeid;
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::CreatedPdr;

use super::context::{an_tunnel, tunnel};
use super::n4::{self, At, Downlink};
use super::path_switch::{end_without_gnb, is_being_released};
use super::{intermediate_upf, release_at_gnb, rule_change, up_connection};
use crate::config::HandoverDownlink;
use crate::envelope::OutputId;
use crate::procedure::{Interrupt, Lane, Ue};
use crate::refusal::Refusal;
use crate::services::nsmf::AdmittedSession;
use crate::state::{DEFAULT_QFI, IntermediateUpfStage, Tunnel, UpState};

/// The N2 SM information for the target gNB; `None`: the session has no user plane to hand over.
pub(crate) fn handover_required(ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)> {
    let active = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.up == UpState::Active));
    if !active || is_being_released(ue, psi) {
        return None;
    }
    ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        let n3 = intermediate_upf::uplink_tunnel_at_target(p, psi)?;
        Some((session.s_nssai, session.setup_request_transfer(n3).to_vec()))
    })
}

/// Reads the target's answer for an admitted session. The forwarding tunnels in the command are the target's own.
pub(crate) fn admitted(ue: Ue, psi: PduSessionId, transfer: &[u8]) -> Result<AdmittedSession, Cause> {
    let t = HandoverRequestAcknowledgeTransfer::decode(transfer)
        .map_err(|_| CauseProtocol::AbstractSyntaxErrorReject)?;
    if !ue.with(|p| p.sessions.contains_key(&psi)) {
        return Err(CauseRadioNetwork::UnknownPduSessionId.into()); // it ended meanwhile
    }
    if !t.qos_flow_setup_response_list.iter().any(|f| f.qos_flow_identifier == DEFAULT_QFI) {
        return Err(CauseRadioNetwork::UnkownQosFlowId.into()); // a session needs its default flow
    }
    let tunnel = an_tunnel(&t.dl_ngu_up_tnl_information).ok_or(CauseProtocol::SemanticError)?;
    let mut command = HandoverCommandTransfer::new();
    command.qos_flow_to_be_forwarded_list = t
        .qos_flow_setup_response_list
        .iter()
        .filter(|f| f.data_forwarding_accepted.is_some())
        .map(|f| f.qos_flow_identifier)
        .collect();
    command.dl_forwarding_up_tnl_information = t.dl_forwarding_up_tnl_information;
    command.data_forwarding_response_drb_list = t.data_forwarding_response_drb_list;
    command.ul_forwarding_up_tnl_information = t.ul_forwarding_up_tnl_information;
    command.additional_ul_forwarding_up_tnl_information = t.additional_ul_forwarding_up_tnl_information;
    Ok(AdmittedSession { psi, command, tunnel })
}

/// §4.9.1.3.2 steps 11 and 12: prepares the UPF for the handover. It buffers downlink packets from now on, unless the operator
/// prefers forwarding; and for indirect forwarding it relays what the source forwards.
///
/// Not before the target has admitted the session: until then the UE is at its source, for an unknown time. And not later:
/// once the source has HANDOVER COMMAND, the UE leaves within milliseconds, without notice: unless the handover was `expected`, the UPF's
/// answer is awaited. A session for which the UPF has no tunnels is handed over without forwarding.
pub(crate) async fn start_forwarding(
    ue: Ue,
    admitted: Vec<AdmittedSession>,
    direct: Vec<PduSessionId>,
    expected: bool,
) -> Result<Vec<AdmittedSession>, Interrupt> {
    let held = ue.config().smf.handover_downlink == HandoverDownlink::Buffer;
    let prepared = prepared_at_upf(ue);
    let (changing, admitted): (Vec<_>, Vec<_>) =
        admitted.into_iter().partition(|s| ue.with(|p| intermediate_upf::is_planned(p, s.psi)));
    let mut done = Vec::with_capacity(admitted.len() + changing.len());
    let mut relayed = Vec::new();
    let mut asked = Vec::with_capacity(admitted.len());
    for mut session in admitted {
        let psi = session.psi;
        let targets = tunnels(&mut session.command);
        let forwarded = !targets.is_empty();
        let passed_on: Vec<Tunnel> = match direct.contains(&psi) {
            true => Vec::new(),
            false => targets.iter().filter_map(|t| an_tunnel(t)).collect(),
        };
        let rules = u8::try_from(passed_on.len()).ok().filter(|_| forwarded);
        if !passed_on.is_empty() {
            relayed.push(psi);
        }
        let request = departure(ue, psi, &passed_on, held);
        if rule_change::is_empty(&request) {
            note(ue, psi, rules);
            done.push(session);
            continue;
        }
        match n4::ask_at(ue, ue.with(|p| At::access(p, psi)), request) {
            Some(request) => {
                note(ue, psi, rules);
                // The answer brings nothing that HANDOVER COMMAND waits for.
                match expected && passed_on.is_empty() {
                    true => done.push(session),
                    false => asked.push((psi, (session, !passed_on.is_empty()), request)),
                }
            }
            None => done.push(unforwarded(session)),
        }
    }
    for (psi, (mut session, passed_on), answer) in n4::modifications_answered(ue, asked).await? {
        if !passed_on {
            done.push(session);
            continue;
        }
        if let (Err(Refusal::Upf(Some(_))), true) = (&answer, held) {
            let _ = n4::ask_downlink(ue, psi, Downlink::Hold); // without forwarding tunnels
        }
        let ours = answer.ok().and_then(|m| m.created_pdrs.iter().map(given).collect::<Option<Vec<_>>>());
        let mut theirs = tunnels(&mut session.command);
        match ours {
            Some(ours) if ours.len() == theirs.len() => {
                theirs.iter_mut().zip(ours).for_each(|(t, ours)| **t = tunnel(ours));
                done.push(session);
            }
            _ => done.push(unforwarded(session)),
        }
    }
    relayed.extend(changing.iter().map(|s| s.psi));
    done.extend(intermediate_upf::depart(ue, changing, &direct, expected).await?);
    done.sort_by_key(|s| s.psi);
    for s in &done {
        // A UPF that got the target's tunnel when the target was prepared, and only buffers since, still expects the UE.
        if !prepared.contains(&s.psi) || relayed.contains(&s.psi) || !held {
            expect(ue, s.psi, s.tunnel);
        }
    }
    Ok(done)
}

/// The sessions whose UPF expects the UE at the target already.
fn prepared_at_upf(ue: Ue) -> Vec<PduSessionId> {
    ue.with(|p| p.sessions.values().filter(|s| s.departing).map(|s| s.psi).collect())
}

fn departure(ue: Ue, psi: PduSessionId, targets: &[Tunnel], held: bool) -> SessionModificationRequest {
    let config = ue.config();
    ue.with(|p| {
        let upf = At::access(p, psi).map(|at| at.upf);
        let n3 = upf.map_or_else(Default::default, |upf| config.smf.rule_form(upf).n3_ip_version);
        n4::departure(targets, held, &n4::marks_at_access(p, psi), n3)
    })
}

/// A UE is expected at another gNB, with this downlink tunnel. The UPF does not wait for the path switch: it uses the tunnel as soon as
/// a packet of the UE arrives from that gNB (Synergy §III-C).
fn expect(ue: Ue, psi: PduSessionId, tunnel: Tunnel) {
    let config = ue.config();
    let expected = ue.with(|p| {
        // Where the UPF changes, it is the anchor that switches.
        let (at, from, to, marks) = match intermediate_upf::is_planned(p, psi) {
            true => {
                let to = intermediate_upf::downlink_tunnel_at_target(p, psi, tunnel);
                let marks = p.sessions.get(&psi)?.qos.marks.clone();
                (At::anchor(p, psi)?, intermediate_upf::downlink_tunnel(p, psi)?, to, marks)
            }
            false => {
                let from = *p.sessions.get(&psi)?.an.as_deref()?;
                (At::access(p, psi)?, from, tunnel, n4::marks_at_access(p, psi))
            }
        };
        let predicts = config.smf.upfs.get(usize::from(at.upf.0)).is_some_and(|u| u.predicts);
        // If both tunnels have one address, packets do not show at which gNB the UE is.
        (predicts && from.address != to.address).then_some(())?;
        p.sessions.get_mut(&psi)?.departing = true;
        Some((at, n4::predicted(Downlink::SwitchTo(to), &marks)))
    });
    if let Some((at, request)) = expected {
        let _ = n4::ask_at(ue, Some(at), request);
    }
}

/// The target of a predicted handover has admitted a session.
pub(crate) fn expect_arrival(ue: Ue, session: &AdmittedSession) {
    intermediate_upf::expect(ue, session.psi, session.tunnel);
    expect(ue, session.psi, session.tunnel);
}

/// The handover has ended. If it failed, the buffered packets go to the source gNB, before any newer ones.
pub(crate) fn handover_ended(ue: Ue) {
    let held: Vec<(PduSessionId, bool, Tunnel)> = ue.with(|p| {
        let departing: Vec<PduSessionId> = p
            .sessions
            .values_mut()
            .filter_map(|s| std::mem::take(&mut s.departing).then_some(s.psi))
            .collect();
        let source = |psi| match intermediate_upf::is_planned(p, psi) {
            true => Some((psi, true, intermediate_upf::downlink_tunnel(p, psi)?)),
            false => Some((psi, false, *p.sessions.get(&psi)?.an.as_deref()?)),
        };
        departing.into_iter().filter_map(source).collect()
    });
    for (psi, at_anchor, source) in held {
        let _ = match at_anchor {
            true => n4::ask_anchor(ue, psi, Downlink::To(source)),
            false => n4::ask_downlink(ue, psi, Downlink::To(source)),
        };
    }
    intermediate_upf::discard_all(ue);
}

/// The forwarding tunnels of a command that a UPF can replace by its own, in a fixed order.
pub(super) fn tunnels(command: &mut HandoverCommandTransfer) -> Vec<&mut UpTransportLayerInformation> {
    let of_session = command
        .dl_forwarding_up_tnl_information
        .iter_mut()
        .chain(&mut command.ul_forwarding_up_tnl_information);
    let of_bearers = command.data_forwarding_response_drb_list.iter_mut().flat_map(
        |DataForwardingResponseDrbItem {
             dl_forwarding_up_tnl_information: dl,
             ul_forwarding_up_tnl_information: ul,
             ..
         }| dl.iter_mut().chain(ul),
    );
    of_session.chain(of_bearers).chain(&mut command.additional_ul_forwarding_up_tnl_information).collect()
}

/// An admitted session without forwarding tunnels.
pub(super) fn unforwarded(mut session: AdmittedSession) -> AdmittedSession {
    session.command = HandoverCommandTransfer::new();
    session
}

/// The UPF's tunnel of a forwarding rule.
pub(super) fn given(pdr: &CreatedPdr) -> Option<Tunnel> {
    match pdr.local_f_teid {
        Some(FTeid::Given { teid, ipv4, ipv6 }) => {
            Some(Tunnel { teid, address: ipv4.map(IpAddr::V4).or(ipv6.map(IpAddr::V6))? })
        }
        _ => None,
    }
}

/// Stores how packets are forwarded, to end that if the handover fails.
fn note(ue: Ue, psi: PduSessionId, forwarding: Option<u8>) {
    ue.with(|p| {
        let mut serving = p
            .intermediate_upfs
            .iter_mut()
            .filter(|i| i.psi == psi && i.stage == IntermediateUpfStage::Serving);
        let at_anchor = match (serving.next(), forwarding) {
            (Some(intermediate), Some(rules)) => {
                intermediate.forwarding = rules;
                Some(0)
            }
            (_, forwarding) => forwarding,
        };
        if let Some(s) = p.sessions.get_mut(&psi) {
            (s.forwarding, s.departing) = (at_anchor, true);
        }
    });
}

/// Whether packets of any session are forwarded between gNBs, or pass a UPF that the UE has left.
pub(crate) fn is_forwarding(ue: Ue) -> bool {
    ue.with(|p| p.sessions.values().any(|s| s.forwarding.is_some()) || intermediate_upf::has_former(p))
}

/// §4.9.1.3.3 step 15: releases the UPF's forwarding tunnels. Nothing waits for the answer: the CTA repeats the request.
pub(crate) fn stop_forwarding(ue: Ue) {
    let forwarding: Vec<(PduSessionId, u8)> = ue.with(|p| {
        let sessions = p.sessions.iter_mut();
        sessions.filter_map(|(&psi, s)| Some((psi, s.forwarding.take()?))).collect()
    });
    for (psi, rules) in forwarding.into_iter().filter(|(_, rules)| *rules > 0) {
        let _ = n4::ask_modification(ue, psi, n4::no_forwarding(rules));
    }
    intermediate_upf::release_former(ue);
}

/// §4.9.1.3.3 steps 7 to 10: the UE is at the target: switches the downlink tunnels. Buffered packets are sent first; the former
/// tunnels get end markers.
pub(crate) fn request_path_updates(
    ue: Ue,
    admitted: &[AdmittedSession],
) -> Vec<(PduSessionId, (), OutputId)> {
    let mut asked = Vec::with_capacity(admitted.len());
    for AdmittedSession { psi, tunnel, .. } in admitted {
        let request = match ue.with(|p| intermediate_upf::is_planned(p, *psi)) {
            true => intermediate_upf::switch(ue, *psi, *tunnel),
            false => n4::ask_downlink(ue, *psi, Downlink::SwitchTo(*tunnel)),
        };
        match request {
            Some(request) => {
                ue.with(|p| {
                    intermediate_upf::arrived(p, *psi);
                    p.sessions.get_mut(psi).map(|s| s.active_at(*tunnel))
                });
                asked.push((*psi, (), request));
            }
            // It ended during the handover, which the target does not know.
            None => release_at_gnb(ue, *psi),
        }
    }
    asked
}

/// The UPF's answers. A session that the UPF lost is released; one that was not handed over is deactivated until the UE
/// requests it (step 8).
pub(crate) async fn paths_switched(
    ue: Ue,
    asked: Vec<(PduSessionId, (), OutputId)>,
) -> Result<(), Interrupt> {
    let taken: Vec<PduSessionId> = asked.iter().map(|(psi, ..)| *psi).collect();
    for psi in up_connection::at_gnb(ue) {
        if !taken.contains(&psi) && !is_being_released(ue, psi) {
            up_connection::deactivate(ue.on(Lane::Session(psi)), psi);
        }
    }
    for (psi, (), answer) in n4::modifications_answered(ue, asked).await? {
        if answer.is_err() && !is_being_released(ue, psi) {
            release_at_gnb(ue, psi);
            end_without_gnb(ue, psi, whimbrel_nas::ie::SmCause::NetworkFailure);
        }
    }
    Ok(())
}
