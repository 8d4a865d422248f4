//! The change of a session's UPF in a handover: insertion, relocation and removal of an intermediate UPF (I-UPF): TS 23.502 §4.9.1.2.3, §4.9.1.2.4 (Xn),
//! §4.9.1.3.2, §4.9.1.3.3 (N2).
//!
//! The UE keeps its address, and so its anchor. Where the anchor does not serve the target's tracking area (`upfs[].tacs`), an intermediate UPF stands
//! between gNB and anchor: insertion. It gives way to another (relocation), or to the anchor itself (removal), as the UE goes on. Rates, filters and usage
//! are the anchor's: the intermediate UPF passes packets as they are, buffers them while the UE is handed over within its area or is idle, and forwards between
//! gNBs.
//!
//! | step | N2 | Xn |
//! | --- | --- | --- |
//! | the former UPF takes the target's packets until the path is switched | | [`name_target`] |
//! | the new UPF is selected, and established | [`prepare`], before HANDOVER REQUEST | [`prepare`], with the target's tunnel |
//! | it gets the target's tunnel; forwarding tunnels | [`depart`], before HANDOVER COMMAND | |
//! | the anchor switches the path and sends end markers | [`switch`], at HANDOVER NOTIFY | [`switch`], before the acknowledgement |
//! | the former one is released | [`release_former`], a second later | the same |

use whimbrel_ids::{PduSessionId, Seid, Tac};
use whimbrel_ngap::ie::UpTransportLayerInformation;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::{Cause, PdrId};
use whimbrel_pfcp::msg::{SessionEstablishmentResponse, SessionModificationRequest};
use whimbrel_pfcp::rule::RemoveFar;

use super::context::{an_tunnel, tunnel};
use super::handover::{self, given, unforwarded};
use super::n4::{self, At, Downlink};
use super::rule_change;
use super::rules::{self, DOWNLINK_PDR, UPLINK_PDR};
use super::selection::{self, TriedUpfs};
use crate::config::{HandoverDownlink, N3IpVersion, Smf};
use crate::envelope::{Effect, OutputId};
use crate::procedure::{Interrupt, Ue};
use crate::refusal::Refusal;
use crate::services::nsmf::AdmittedSession;
use crate::state::{IntermediateUpf, IntermediateUpfStage as Stage, Tunnel, UeContext};
use crate::upf::UpfId;

/// What a handover does to a session's UPFs.
enum UpfPathChange {
    /// The UPF that the gNB sends to serves the target's area too.
    None,
    /// The anchor serves it: the intermediate UPF is removed.
    Remove,
    /// This one is inserted, or takes the place of the former one.
    Insert(UpfId),
}

/// Whether the session's UPF changes with the handover that is being prepared.
pub(super) fn is_planned(p: &UeContext, psi: PduSessionId) -> bool {
    p.intermediate_upfs
        .iter()
        .any(|i| i.psi == psi && matches!(i.stage, Stage::Prepared | Stage::ToBeRemoved))
}

/// The core's end of the session's N3 tunnel for the target gNB.
pub(super) fn uplink_tunnel_at_target(p: &UeContext, psi: PduSessionId) -> Option<Tunnel> {
    match p.prepared_intermediate_upf(psi) {
        Some(prepared) => Some(prepared.n3),
        None if is_planned(p, psi) => p.sessions.get(&psi)?.n3,
        None => p.uplink_tunnel(psi),
    }
}

/// Where the anchor sends downlink packets once the UE is at the target, whose tunnel is `an`.
pub(super) fn downlink_tunnel_at_target(p: &UeContext, psi: PduSessionId, an: Tunnel) -> Tunnel {
    p.prepared_intermediate_upf(psi).map_or(an, |i| i.n9)
}

/// Where the anchor sends downlink packets now.
pub(super) fn downlink_tunnel(p: &UeContext, psi: PduSessionId) -> Option<Tunnel> {
    let intermediate = p.serving_intermediate_upf(psi).map(|i| i.n9);
    intermediate.or(p.sessions.get(&psi)?.an.as_deref().copied())
}

/// Whether the handover to this area changes the UPF of any of these sessions.
pub(crate) fn changes(ue: Ue, sessions: &[PduSessionId], tac: Tac) -> bool {
    let change = |psi| select(ue, psi, tac, &TriedUpfs::default());
    sessions.iter().any(|&psi| !matches!(change(psi), Ok(UpfPathChange::None)))
}

/// §4.9.1.3.2 step 5, §4.9.1.2.3 step 2: the UPF for a session in the target's area. Errors: those that serve it cannot be used.
fn select(ue: Ue, psi: PduSessionId, tac: Tac, tried: &TriedUpfs) -> Result<UpfPathChange, Refusal> {
    let serves = |upf| serves(ue, upf, tac);
    let Some((anchor, intermediate)) = ue.with(|p| {
        let anchor = p.sessions.get(&psi).filter(|s| s.up_seid.is_some() && s.n3.is_some())?.upf;
        Some((anchor, p.serving_intermediate_upf(psi).map(|i| i.upf)))
    }) else {
        return Ok(UpfPathChange::None); // a session that is not at a UPF is not handed over
    };
    if serves(intermediate.unwrap_or(anchor)) {
        return Ok(UpfPathChange::None);
    }
    if serves(anchor) {
        return Ok(UpfPathChange::Remove);
    }
    // An area that no UPF is configured for is served as before.
    Ok(selection::choose_intermediate(ue, psi, tac, tried)?
        .map_or(UpfPathChange::None, UpfPathChange::Insert))
}

/// Whether a UPF serves a tracking area.
fn serves(ue: Ue, upf: UpfId, tac: Tac) -> bool {
    let config = ue.config();
    config.smf.upfs.get(usize::from(upf.0)).is_some_and(|u| u.tacs.is_empty() || u.tacs.contains(&tac))
}

/// An N4 session that is being established at an intermediate UPF.
struct Attempt {
    upf: UpfId,
    cp_seid: Seid,
    tried: TriedUpfs,
}

/// §4.9.1.3.2 steps 5 and 6, §4.9.1.2.3 and §4.9.1.2.4 steps 2 to 4: establishes the sessions at intermediate UPFs for the target's area, where such
/// are needed; with the target's tunnel, if it is known. Returns the sessions that no UPF can serve there.
///
/// A UPF that refuses or does not answer is passed over. What an earlier preparation has left is used, if it is for this area.
pub(crate) async fn prepare(
    ue: Ue,
    sessions: &[(PduSessionId, Option<Tunnel>)],
    tac: Tac,
) -> Result<Vec<PduSessionId>, Interrupt> {
    let mut open: Vec<_> = sessions.iter().map(|&(psi, an)| (psi, an, TriedUpfs::default())).collect();
    let mut unserved = Vec::new();
    while !open.is_empty() {
        let mut asked = Vec::with_capacity(open.len());
        for (psi, an, tried) in open.drain(..) {
            match select(ue, psi, tac, &tried) {
                Ok(UpfPathChange::None) => discard(ue, psi),
                Ok(UpfPathChange::Remove) => {
                    discard(ue, psi);
                    ue.with(|p| set_stage(p, psi, Stage::Serving, Stage::ToBeRemoved));
                }
                Ok(UpfPathChange::Insert(_)) if is_prepared_for(ue, psi, tac) => {}
                Ok(UpfPathChange::Insert(upf)) => {
                    discard(ue, psi);
                    match establish(ue, psi, upf, an) {
                        Some((cp_seid, to)) => asked.push((psi, (an, Attempt { upf, cp_seid, tried }), to)),
                        None => unserved.push(psi),
                    }
                }
                Err(_) => unserved.push(psi),
            }
        }
        for (psi, (an, attempt), answer) in n4::answers(ue, asked).await? {
            let Attempt { upf, cp_seid, mut tried } = attempt;
            match answer.and_then(|m| established(psi, upf, cp_seid, &m)) {
                Some(new) => ue.with(|p| p.intermediate_upfs.push(new)),
                None => {
                    tried.insert(upf);
                    open.push((psi, an, tried));
                }
            }
        }
    }
    Ok(unserved)
}

/// §4.9.1.2.3, §4.9.1.2.4: in an Xn handover the target gNB sends uplink packets to the UPF of the source's area until PATH SWITCH REQUEST ACKNOWLEDGE has
/// given it the new tunnel. Where the UPF changes, no rule of the former one leads to the target, so that it would not take its packets (TS 29.281
/// §4.3.0): a rule names it there. Returns at which UPFs. Nothing waits for the answers.
pub(super) fn name_target(ue: Ue, sessions: &[(PduSessionId, Option<Tunnel>)], tac: Tac) -> Vec<At> {
    let mut named = Vec::new();
    for &(psi, an) in sessions {
        if changes(ue, &[psi], tac)
            && let (Some(at), Some(an)) = (ue.with(|p| At::access(p, psi)), an)
        {
            let create_fars = vec![n4::names_peer(an)];
            let _ =
                n4::ask_at(ue, Some(at), SessionModificationRequest { create_fars, ..Default::default() });
            named.push(at);
        }
    }
    named
}

/// The target has the new tunnel: what [`name_target`] has created is removed. A UPF takes what is still under way.
pub(super) fn forget_target(ue: Ue, named: Vec<At>) {
    for at in named {
        let remove_fars = vec![RemoveFar { far_id: n4::NAMES_PEER }];
        let _ = n4::ask_at(ue, Some(at), SessionModificationRequest { remove_fars, ..Default::default() });
    }
}

/// Whether an earlier preparation, for a predicted handover, is for this area.
fn is_prepared_for(ue: Ue, psi: PduSessionId, tac: Tac) -> bool {
    let prepared = ue.with(|p| p.prepared_intermediate_upf(psi).map(|i| i.upf));
    prepared.is_some_and(|upf| serves(ue, upf, tac))
}

fn establish(ue: Ue, psi: PduSessionId, upf: UpfId, an: Option<Tunnel>) -> Option<(Seid, OutputId)> {
    let config = ue.config();
    let (cp_seid, request) = ue.with(|p| {
        let cp_seid = p.id.seid(psi.value(), p.clock as u16);
        let s = p.sessions.get(&psi)?;
        let form = config.smf.rule_form(upf);
        let (node, buffering) = (config.smf.node_id, &config.smf.buffering);
        Some((cp_seid, rules::intermediate(s, cp_seid, node, buffering, an, form)?))
    })?;
    let octets = Message::from(request).to_octets(Some(Seid(0)), 0);
    Some((cp_seid, ue.emit(Effect::N4 { upf, octets }, None)))
}

fn established(psi: PduSessionId, upf: UpfId, cp_seid: Seid, m: &Message) -> Option<IntermediateUpf> {
    let Message::SessionEstablishmentResponse(m) = m else { return None };
    let m: &SessionEstablishmentResponse = m;
    let of = |id: PdrId| m.created_pdrs.iter().find(|pdr| pdr.pdr_id == id).and_then(given);
    (m.cause == Cause::RequestAccepted).then_some(())?;
    Some(IntermediateUpf {
        psi,
        upf,
        cp_seid,
        up_seid: m.up_f_seid?.seid,
        n3: of(UPLINK_PDR)?,
        n9: of(DOWNLINK_PDR)?,
        stage: Stage::Prepared,
        forwarding: 0,
    })
}

/// A session whose UPF changes, on the way of its forwarding tunnels from the target back to the source.
struct DepartingSession {
    session: AdmittedSession,
    /// The tunnels of the last UPF that was asked, in the order of the target's.
    forwarding: Vec<Tunnel>,
    indirect: bool,
}

/// §4.9.1.3.2 steps 11 and 12 with a change of UPF: the new UPF gets the target's tunnel. From now on the anchor buffers downlink packets, unless the
/// operator prefers forwarding. Indirect forwarding leads from the source by the former UPF and the new one to the target.
///
/// A session that the new UPF refuses is not handed over.
pub(super) async fn depart(
    ue: Ue,
    admitted: Vec<AdmittedSession>,
    direct: &[PduSessionId],
    expected: bool,
) -> Result<Vec<AdmittedSession>, Interrupt> {
    let config = ue.config();
    let held = config.smf.handover_downlink == HandoverDownlink::Buffer;
    let mut done = Vec::with_capacity(admitted.len());
    let mut asked = Vec::with_capacity(admitted.len());
    for mut session in admitted {
        let psi = session.psi;
        let targets = handover::tunnels(&mut session.command);
        let forwarded = !targets.is_empty();
        let passed_on: Vec<Tunnel> = match direct.contains(&psi) {
            true => Vec::new(),
            false => targets.iter().filter_map(|t| an_tunnel(t)).collect(),
        };
        let indirect = !passed_on.is_empty();
        let (at, request) = ue.with(|p| new_path(p, &config.smf, psi, session.tunnel, &passed_on, held));
        ue.with(|p| note(p, psi, ForwardingUpf::New, passed_on.len(), forwarded));
        let hold = (held && is_inserted(ue, psi)).then(|| n4::ask_anchor(ue, psi, Downlink::Hold)).flatten();
        asked.extend(hold.filter(|_| !expected).map(|to| (psi, None, to)));
        if rule_change::is_empty(&request) {
            done.push(session);
            continue;
        }
        let departing = DepartingSession { session, forwarding: Vec::new(), indirect };
        match n4::ask_at(ue, at, request) {
            Some(to) if indirect || !expected => asked.push((psi, Some(departing), to)),
            Some(_) => done.push(departing.session),
            None => {}
        }
    }
    let mut at_former = Vec::with_capacity(asked.len());
    for (psi, departing, answer) in n4::modifications_answered(ue, asked).await? {
        let Some(mut departing) = departing else { continue };
        match (answer, departing.indirect) {
            (Ok(_), false) => done.push(departing.session),
            (Ok(m), true) => match m.created_pdrs.iter().map(given).collect::<Option<Vec<_>>>() {
                Some(tunnels) => {
                    departing.forwarding = tunnels;
                    at_former.push((psi, departing));
                }
                None => done.push(unforwarded(departing.session)),
            },
            (Err(_), _) if is_inserted(ue, psi) => {} // no path by the new UPF
            (Err(_), _) => {
                // Without forwarding tunnels.
                let _ = held.then(|| n4::ask_anchor(ue, psi, Downlink::Hold));
                done.push(unforwarded(departing.session));
            }
        }
    }
    let mut asked = Vec::with_capacity(at_former.len());
    for (psi, departing) in at_former {
        let (at, request) = ue.with(|p| {
            let marks = n4::marks_at_access(p, psi);
            let at = At::access(p, psi);
            (at, n4::departure(&departing.forwarding, false, &marks, n3_of(&config.smf, at)))
        });
        ue.with(|p| note(p, psi, ForwardingUpf::Former, departing.forwarding.len(), true));
        match n4::ask_at(ue, at, request) {
            Some(to) => asked.push((psi, departing, to)),
            None => done.push(unforwarded(departing.session)),
        }
    }
    for (_, mut departing, answer) in n4::modifications_answered(ue, asked).await? {
        let ours = answer.ok().and_then(|m| m.created_pdrs.iter().map(given).collect::<Option<Vec<_>>>());
        let mut theirs: Vec<&mut UpTransportLayerInformation> =
            handover::tunnels(&mut departing.session.command);
        match ours {
            Some(ours) if ours.len() == theirs.len() => {
                theirs.iter_mut().zip(ours).for_each(|(t, ours)| **t = tunnel(ours));
                done.push(departing.session);
            }
            _ => done.push(unforwarded(departing.session)),
        }
    }
    Ok(done)
}

fn is_inserted(ue: Ue, psi: PduSessionId) -> bool {
    ue.with(|p| p.prepared_intermediate_upf(psi).is_some())
}

/// The request to the UPF that the target sends to.
fn new_path(
    p: &UeContext,
    smf: &Smf,
    psi: PduSessionId,
    an: Tunnel,
    forwarding: &[Tunnel],
    held: bool,
) -> (Option<At>, SessionModificationRequest) {
    let none = crate::state::Marks::default();
    let marks = p.sessions.get(&psi).map_or(&none, |s| &s.qos.marks);
    match p.prepared_intermediate_upf(psi) {
        Some(prepared) => {
            let marks = marks.of_default_flow();
            let at = At::of(prepared);
            let mut request = n4::departure(forwarding, false, &marks, n3_of(smf, Some(at)));
            request.update_fars = n4::modification(Downlink::To(an), &marks).update_fars;
            let former = p.serving_intermediate_upf(psi).filter(|_| !forwarding.is_empty());
            request.create_fars.extend(former.map(|former| n4::names_peer(former.n3)));
            (Some(at), request)
        }
        // The anchor takes the intermediate UPF's place: it switches to the target when the UE is there.
        None => {
            let at = At::anchor(p, psi);
            (at, n4::departure(forwarding, held, marks, n3_of(smf, at)))
        }
    }
}

/// IP versions of the tunnels of the UPF that is asked.
fn n3_of(smf: &Smf, at: Option<At>) -> N3IpVersion {
    at.map_or_else(Default::default, |at| smf.rule_form(at.upf).n3_ip_version)
}

/// Which of the two UPFs on the way of forwarded packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ForwardingUpf {
    Former,
    New,
}

/// Stores how many forwarding rules a UPF has.
fn note(p: &mut UeContext, psi: PduSessionId, place: ForwardingUpf, rules: usize, forwarded: bool) {
    let rules = u8::try_from(rules).unwrap_or(u8::MAX);
    let stage = match place {
        ForwardingUpf::New => Stage::Prepared,
        ForwardingUpf::Former
            if p.serving_intermediate_upf(psi).is_some_and(|i| i.stage == Stage::ToBeRemoved) =>
        {
            Stage::ToBeRemoved
        }
        ForwardingUpf::Former => Stage::Serving,
    };
    let intermediate = p.intermediate_upfs.iter_mut().find(|i| i.psi == psi && i.stage == stage);
    let at_anchor = intermediate.is_none();
    intermediate.into_iter().for_each(|i| i.forwarding = rules);
    if let Some(s) = p.sessions.get_mut(&psi) {
        s.departing = true;
        if forwarded {
            let former = s.forwarding.unwrap_or(0);
            s.forwarding = Some(if at_anchor { rules } else { former });
        }
    }
}

/// The target of a predicted handover is prepared: its intermediate UPF gets its tunnel.
pub(super) fn expect(ue: Ue, psi: PduSessionId, an: Tunnel) {
    let request = ue.with(|p| {
        let prepared = p.prepared_intermediate_upf(psi)?;
        let marks = p.sessions.get(&psi)?.qos.marks.of_default_flow();
        Some((At::of(prepared), n4::modification(Downlink::To(an), &marks)))
    });
    if let Some((at, request)) = request {
        let _ = n4::ask_at(ue, Some(at), request);
    }
}

/// §4.9.1.3.3 steps 8 to 10, §4.9.1.2.3 and §4.9.1.2.4 step 5: the request with which the anchor switches to the new path. Former tunnels get end markers, which
/// a former intermediate UPF passes on to the source gNB.
pub(super) fn switch(ue: Ue, psi: PduSessionId, an: Tunnel) -> Option<OutputId> {
    let (at, request) = ue.with(|p| {
        let to = downlink_tunnel_at_target(p, psi, an);
        let none = crate::state::Marks::default();
        let marks = p.sessions.get(&psi).map_or(&none, |s| &s.qos.marks);
        (At::anchor(p, psi), n4::modification(Downlink::SwitchTo(to), marks))
    });
    n4::ask_at(ue, at, request)
}

/// The UE is at the target: its intermediate UPF serves, and the former one passes only what is under way.
pub(super) fn arrived(p: &mut UeContext, psi: PduSessionId) {
    if !is_planned(p, psi) {
        return;
    }
    for i in p.intermediate_upfs.iter_mut().filter(|i| i.psi == psi) {
        i.stage = match i.stage {
            Stage::Prepared => Stage::Serving,
            Stage::Serving | Stage::ToBeRemoved | Stage::Left => Stage::Left,
        };
    }
}

/// Whether a UPF has been left and is not released yet.
pub(super) fn has_former(p: &UeContext) -> bool {
    p.intermediate_upfs.iter().any(|i| i.stage == Stage::Left)
}

/// §4.9.1.3.3 step 15, §4.9.1.2.4 step 8: what was under way has passed: forwarding rules are removed, and UPFs that the UE has left are released.
/// Nothing waits for the answers: the CTA repeats the requests.
pub(super) fn release_former(ue: Ue) {
    let (left, forwarding) = ue.with(|p| {
        let left: Vec<At> =
            p.intermediate_upfs.extract_if(.., |i| i.stage == Stage::Left).map(|i| At::of(&i)).collect();
        let serving =
            p.intermediate_upfs.iter_mut().filter(|i| i.stage != Stage::Prepared && i.forwarding > 0);
        let forwarding: Vec<(At, u8)> =
            serving.map(|i| (At::of(i), std::mem::take(&mut i.forwarding))).collect();
        (left, forwarding)
    });
    for (at, rules) in forwarding {
        let _ = n4::ask_at(ue, Some(at), n4::no_forwarding(rules));
    }
    left.into_iter().for_each(|at| n4::delete_at_upf(ue, at.upf, at.seid));
}

/// The handover has ended: what was prepared for its target and does not serve is released.
pub(super) fn discard_all(ue: Ue) {
    let sessions: Vec<PduSessionId> = ue.with(|p| p.intermediate_upfs.iter().map(|i| i.psi).collect());
    sessions.into_iter().for_each(|psi| discard(ue, psi));
}

fn discard(ue: Ue, psi: PduSessionId) {
    let prepared: Vec<At> = ue.with(|p| {
        set_stage(p, psi, Stage::ToBeRemoved, Stage::Serving);
        let of = |i: &mut IntermediateUpf| i.psi == psi && i.stage == Stage::Prepared;
        p.intermediate_upfs.extract_if(.., of).map(|i| At::of(&i)).collect()
    });
    prepared.into_iter().for_each(|at| n4::delete_at_upf(ue, at.upf, at.seid));
}

fn set_stage(p: &mut UeContext, psi: PduSessionId, from: Stage, to: Stage) {
    let of = p.intermediate_upfs.iter_mut().filter(|i| i.psi == psi && i.stage == from);
    of.for_each(|i| i.stage = to);
}
