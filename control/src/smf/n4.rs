//! The SMF's end of N4: the requests of a session (TS 29.244 §5.2, §6.3.2.2, §6.3.3.2, §6.3.4.2), and the UPF's reports (TS
//! 29.244 §6.3.5.3, TS 23.502 §4.4.2.2, TS 23.527 §5.3).

use std::net::IpAddr;

use whimbrel_ids::{PduSessionId, Seid};
use whimbrel_pfcp::ie::{
    ApplyAction, Cause, Choice, DestinationInterface, FTeid, FailedRuleId, FarId, OnArrival,
    OuterHeaderCreation, PackedTimer, PdrId, Precedence, ReportType, SessionModificationFlags,
    SourceInterface, SuggestedBufferingPacketsCount, TransportLevelMarking,
};
use whimbrel_pfcp::msg::{
    SessionDeletionRequest, SessionEstablishmentResponse, SessionModificationRequest,
    SessionModificationResponse, SessionReportResponse,
};
use whimbrel_pfcp::rule::{
    CreateFar, CreatePdr, ForwardingParameters, Pdi, RemoveFar, RemovePdr, UpdateBarInReportResponse,
    UpdateFar, UpdateForwardingParameters,
};
use whimbrel_pfcp::{Frame, Message};

use super::interception;
use super::release_at_gnb;
use super::restoration::{self, is_lost};
use super::rules::{self, BAR};
use super::selection::{self, TriedUpfs};
use super::usage::count;
use crate::config::N3IpVersion;
use crate::envelope::{Effect, OutputId};
use crate::event::SessionChange;
use crate::input::Input;
use crate::policy::DEFAULT_PRECEDENCE;
use crate::procedure::{Interrupt, Lane, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::state::{IntermediateUpf, Marks, SubscribedDnn, Tunnel, UeContext, UpState, UsageReporting};
use crate::upf::UpfId;

/// N4 session establishment (TS 23.502 §4.4.1.2): returns the UPF's tunnel and addresses.
pub(super) async fn establish(
    ue: Ue,
    psi: PduSessionId,
    subscribed: SubscribedDnn,
) -> Result<(), ProcedureEnd> {
    let mut tried = TriedUpfs::default();
    let mut refusal = None;
    loop {
        let upf = match selection::choose(ue, psi, &tried) {
            Ok(upf) => upf,
            // No further UPF: the refusal is the last one's.
            Err(none) => return Err(refusal.unwrap_or(none).into()),
        };
        match establish_at(ue, psi, upf, &subscribed).await {
            Err(ProcedureEnd::Refused(why)) if is_of_this_upf(&why) => refusal = Some(why),
            done => return done,
        }
        tried.insert(upf);
    }
}

async fn establish_at(
    ue: Ue,
    psi: PduSessionId,
    upf: UpfId,
    subscribed: &SubscribedDnn,
) -> Result<(), ProcedureEnd> {
    let config = ue.config();
    loop {
        let request = ue.with(|p| {
            let reporting = usage_reporting(p, psi);
            let s = p.sessions.get_mut(&psi)?;
            s.upf = upf;
            let inactivity = config.timers.session_inactivity;
            let (node, buffering) = (config.smf.node_id, &config.smf.buffering);
            let form = config.smf.rule_form(upf);
            Some(rules::establishment(s, subscribed, node, buffering, inactivity, reporting, form))
        });
        let mut request = request.ok_or(Refusal::Protocol("the session ended"))?;
        interception::mark_establishment(ue, &mut request);
        return match ask(ue, upf, Some(Seid(0)), request.into()).await? {
            Message::SessionEstablishmentResponse(m) if m.cause == Cause::RequestAccepted => {
                established(ue, psi, &m)
            }
            Message::SessionEstablishmentResponse(m) if drop_gbr_flows(ue, psi, &m) => continue,
            Message::SessionEstablishmentResponse(m) => Err(refused(ue, psi, m.cause).into()),
            _ => Err(Refusal::Upf(None).into()),
        };
    }
}

/// What the UPF reports of a session's usage: as a broker's grant asks. An emergency session is not paid for.
fn usage_reporting(p: &UeContext, psi: PduSessionId) -> UsageReporting {
    let open = p.grant.as_ref().map(|grant| grant.usage_reporting());
    let paid = open.or(p.veil.as_ref().map(|session| session.usage_reporting()));
    let emergency = p.sessions.get(&psi).is_some_and(|s| s.emergency);
    paid.filter(|_| !emergency).unwrap_or_default()
}

/// A session that the UPF has lost is established there again, as it was (TS 23.527 §4.3).
pub(super) async fn restore(ue: Ue, psi: PduSessionId) -> Result<(), ProcedureEnd> {
    let config = ue.config();
    let subscribed = super::policy_change::subscribed(ue, psi).ok_or(Refusal::NoIdentity)?;
    let request = ue.with(|p| {
        let s = p.sessions.get(&psi)?;
        let inactivity = config.timers.session_inactivity;
        let reporting = usage_reporting(p, psi);
        let (node, buffering) = (config.smf.node_id, &config.smf.buffering);
        let form = config.smf.rule_form(s.upf);
        Some((s.upf, rules::restoration(s, &subscribed, node, buffering, inactivity, reporting, form)?))
    });
    let (upf, mut request) = request.ok_or(Refusal::Protocol("the session ended"))?;
    interception::mark_establishment(ue, &mut request);
    let restored = match ask(ue, upf, Some(Seid(0)), request.into()).await? {
        Message::SessionEstablishmentResponse(m) if m.cause == Cause::RequestAccepted => m.up_f_seid,
        // It has restored the session for a procedure that this one has replaced.
        Message::SessionEstablishmentResponse(_)
            if !ue.with(|p| p.sessions.get(&psi).is_some_and(|s| is_lost(s))) =>
        {
            return Ok(());
        }
        Message::SessionEstablishmentResponse(m) => return Err(Refusal::Upf(Some(m.cause as u8)).into()),
        _ => return Err(Refusal::Upf(None).into()),
    };
    ue.with(|p| {
        if let Some(s) = p.sessions.get_mut(&psi) {
            // The UPF numbers its usage reports from the beginning.
            (s.up_seid, s.usage.counted) = (restored.map(|f| f.seid), None);
            s.charging.iter_mut().for_each(|c| c.counted = None);
        }
    });
    Ok(())
}

/// The UPF lacks resources for a guaranteed bit rate: removes the session's GBR flows, as if a gNB refused them (TS 23.502 §4.3.2.2.1
/// step 16). Returns whether there were any.
fn drop_gbr_flows(ue: Ue, psi: PduSessionId, m: &SessionEstablishmentResponse) -> bool {
    let short =
        m.cause == Cause::NoResourcesAvailable && matches!(m.failed_rule_id, Some(FailedRuleId::Qer(_)));
    short
        && ue.with(|p| {
            let Some(s) = p.sessions.get_mut(&psi) else { return false };
            let flows = s.qos.flows.len();
            s.qos.flows.retain(|f| f.gbr.is_none());
            s.qos.flows.len() < flows
        })
}

/// Whether another UPF may serve the session: this one is silent, full, overloaded, or has no association.
fn is_of_this_upf(refusal: &Refusal) -> bool {
    const OF_IT: [Cause; 4] = [
        Cause::NoEstablishedPfcpAssociation,
        Cause::PfcpEntityInCongestion,
        Cause::SystemFailure,
        Cause::RequestRejected,
    ];
    match refusal {
        Refusal::Upf(None) | Refusal::PoolEmpty(_) => true,
        Refusal::Upf(Some(cause)) => OF_IT.iter().any(|c| *c as u8 == *cause),
        _ => false,
    }
}

/// Stores the UPF's choices.
fn established(ue: Ue, psi: PduSessionId, m: &SessionEstablishmentResponse) -> Result<(), ProcedureEnd> {
    let seid = m.up_f_seid.map(|f| f.seid);
    let tunnel = m.created_pdrs.iter().find_map(|pdr| match pdr.local_f_teid {
        Some(FTeid::Given { teid, ipv4, ipv6 }) => {
            let address = ipv4.map(IpAddr::V4).or(ipv6.map(IpAddr::V6))?;
            Some(Tunnel { teid, address })
        }
        _ => None,
    });
    let addresses = m.created_pdrs.iter().flat_map(|pdr| &pdr.ue_ip_addresses);
    let (mut v4, mut v6) = (None, None);
    for a in addresses {
        v4 = v4.or(a.ipv4.and_then(Choice::given));
        v6 = v6.or(a.ipv6.and_then(Choice::given));
    }
    let complete = ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi) else { return false };
        // The UPF reports what it chose; a subscriber's static address was in the request.
        (s.up_seid, s.n3, s.address.ipv4, s.address.ipv6) =
            (seid, tunnel, v4.or(s.address.ipv4), v6.or(s.address.ipv6));
        let (v4, v6) = super::families(s.session_type);
        seid.is_some()
            && tunnel.is_some()
            && (!v4 || s.address.ipv4.is_some())
            && (!v6 || s.address.ipv6.is_some())
    });
    if complete { Ok(()) } else { Err(Refusal::Upf(Some(Cause::MandatoryIeMissing as u8)).into()) }
}

fn refused(ue: Ue, psi: PduSessionId, cause: Cause) -> Refusal {
    let dnn = ue.with(|p| p.sessions.get(&psi).map(|s| s.dnn.clone()));
    match (cause, dnn) {
        (Cause::AllDynamicAddressesAreOccupied | Cause::NoResourcesAvailable, Some(dnn)) => {
            Refusal::PoolEmpty(dnn)
        }
        _ => Refusal::Upf(Some(cause as u8)),
    }
}

/// Where downlink packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downlink {
    /// To the gNB.
    To(Tunnel),
    /// To another gNB; the former tunnel gets an end marker (TS 29.281 §5.1, TS 23.501 §5.8.2.9).
    SwitchTo(Tunnel),
    /// Downlink packets are dropped.
    Discard,
    /// Buffered; the first packet is reported (TS 23.502 §4.2.6 step 6a).
    Buffer,
    /// Buffered without report, during a handover.
    Hold,
}

/// A PDU session's N4 session at one of its UPFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    /// The UPF that has the session.
    pub(super) upf: UpfId,
    /// The UP SEID.
    pub(super) seid: Seid,
}

impl At {
    /// At the PDU session anchor, which has the session's rules. `None`: that UPF does not have the session.
    pub(super) fn anchor(p: &UeContext, psi: PduSessionId) -> Option<Self> {
        p.sessions.get(&psi).and_then(|s| Some(Self { upf: s.upf, seid: s.up_seid? }))
    }

    /// At the UPF that sends downlink packets to the gNB: an intermediate one, or the anchor.
    pub(super) fn access(p: &UeContext, psi: PduSessionId) -> Option<Self> {
        p.serving_intermediate_upf(psi).map_or_else(|| Self::anchor(p, psi), |i| Some(Self::of(i)))
    }

    /// At an intermediate UPF.
    pub(super) fn of(i: &IntermediateUpf) -> Self {
        Self { upf: i.upf, seid: i.up_seid }
    }
}

/// N4 session modification (TS 23.502 §4.4.1.3): where downlink packets go.
pub(super) async fn modify(ue: Ue, psi: PduSessionId, downlink: Downlink) -> Result<(), ProcedureEnd> {
    let at = ue.with(|p| At::access(p, psi));
    change_at(ue, psi, at, downlink_update(ue, psi, downlink)).await
}

/// Changes a session's rules at its anchor.
pub(super) async fn change(
    ue: Ue,
    psi: PduSessionId,
    request: SessionModificationRequest,
) -> Result<(), ProcedureEnd> {
    let at = ue.with(|p| At::anchor(p, psi));
    change_at(ue, psi, at, request).await
}

async fn change_at(
    ue: Ue,
    psi: PduSessionId,
    at: Option<At>,
    mut request: SessionModificationRequest,
) -> Result<(), ProcedureEnd> {
    let at = at.ok_or(Refusal::Protocol("the session ended"))?;
    interception::mark_modification(ue, at, &mut request);
    let answer = ask(ue, at.upf, Some(at.seid), request.into()).await?;
    modified(ue, psi, answer)?;
    Ok(())
}

/// The request that changes where a session's downlink packets go, to the UPF that sends them to the gNB.
pub(super) fn downlink_update(ue: Ue, psi: PduSessionId, downlink: Downlink) -> SessionModificationRequest {
    modification(downlink, &ue.with(|p| marks_at_access(p, psi)))
}

/// The markings that the UPF distinguishes which sends to the gNB.
pub(super) fn marks_at_access(p: &UeContext, psi: PduSessionId) -> Marks {
    let marks = p.sessions.get(&psi).map(|s| &s.qos.marks);
    match p.serving_intermediate_upf(psi) {
        Some(_) => marks.map(Marks::of_default_flow).unwrap_or_default(),
        None => marks.cloned().unwrap_or_default(),
    }
}

/// The same for a session with these markings.
pub fn modification(downlink: Downlink, marks: &Marks) -> SessionModificationRequest {
    let update_fars = marks.fars().map(|(far, marking)| update_far(far, downlink, marking)).collect();
    SessionModificationRequest { update_fars, ..Default::default() }
}

fn update_far(far: FarId, downlink: Downlink, marking: Option<TransportLevelMarking>) -> UpdateFar {
    let mut far = UpdateFar::new(far);
    match downlink {
        Downlink::To(tunnel) | Downlink::SwitchTo(tunnel) => {
            let mut parameters = UpdateForwardingParameters::new();
            parameters.destination_interface = Some(DestinationInterface::Access);
            parameters.outer_header_creation = Some(OuterHeaderCreation::gtpu(tunnel.teid, tunnel.address));
            let end = matches!(downlink, Downlink::SwitchTo(_));
            parameters.transport_level_marking = marking;
            parameters.pfcpsmreq_flags = end.then_some(SessionModificationFlags::SNDEM);
            far.apply_action = Some(ApplyAction::FORW);
            far.update_forwarding_parameters = Some(parameters);
        }
        Downlink::Discard => far.apply_action = Some(ApplyAction::DROP),
        Downlink::Buffer => far.apply_action = Some(ApplyAction::BUFF | ApplyAction::NOCP),
        Downlink::Hold => far.apply_action = Some(ApplyAction::BUFF),
    }
    far
}

/// The same, to take effect when a packet of the UE shows that it has arrived at the target.
pub(super) fn predicted(downlink: Downlink, marks: &Marks) -> SessionModificationRequest {
    SessionModificationRequest { on_arrival: Some(OnArrival), ..modification(downlink, marks) }
}

fn modified(ue: Ue, psi: PduSessionId, answer: Message) -> Result<Box<SessionModificationResponse>, Refusal> {
    match answer {
        Message::SessionModificationResponse(m) if m.cause == Cause::RequestAccepted => {
            count(ue, psi, &m.usage_reports);
            Ok(m)
        }
        Message::SessionModificationResponse(m) => Err(Refusal::Upf(Some(m.cause as u8))),
        _ => Err(Refusal::Upf(None)),
    }
}

/// The request at the start of a handover: whether downlink packets are buffered, and forwarding tunnels from the source to the
/// target (TS 23.502 §4.9.1.3.2 step 11; `relay.rs` of the user plane says how it is to be asked). `n3`: of the UPF that is asked.
pub fn departure(
    targets: &[Tunnel],
    held: bool,
    marks: &Marks,
    n3: N3IpVersion,
) -> SessionModificationRequest {
    let mut request = match held {
        true => modification(Downlink::Hold, marks),
        false => SessionModificationRequest::default(),
    };
    for ((pdr, far), target) in forwarding_rules().zip(targets) {
        let mut detect = Pdi::from(SourceInterface::Access);
        detect.f_teid = Some(rules::chosen_tunnel(n3, None));
        let mut create = CreatePdr::new(pdr, Precedence(DEFAULT_PRECEDENCE.into()), detect, far);
        create.outer_header_removal = Some(rules::removed_header(n3));
        request.create_pdrs.push(create);
        let mut parameters = ForwardingParameters::to(DestinationInterface::Access);
        parameters.outer_header_creation = Some(OuterHeaderCreation::gtpu(target.teid, target.address));
        request.create_fars.push(CreateFar::forward(far, parameters));
    }
    request
}

/// The request that removes the first `count` forwarding tunnels.
pub fn no_forwarding(count: u8) -> SessionModificationRequest {
    let mut request = SessionModificationRequest::default();
    for (pdr_id, far_id) in forwarding_rules().take(count.into()) {
        request.remove_pdrs.push(RemovePdr { pdr_id });
        request.remove_fars.push(RemoveFar { far_id });
    }
    request
}

/// The FAR of [`names_peer`].
pub(super) const NAMES_PEER: FarId = FarId(0xfe00);

/// A FAR that no PDR has: by it a UPF knows another one, or a gNB, whose packets it is to take (TS 29.281 §4.3.0). Without it, they would come from an
/// address that nothing names.
pub(super) fn names_peer(peer: Tunnel) -> CreateFar {
    let mut parameters = ForwardingParameters::to(DestinationInterface::Access);
    parameters.outer_header_creation = Some(OuterHeaderCreation::gtpu(peer.teid, peer.address));
    CreateFar::forward(NAMES_PEER, parameters)
}

/// Rule identifiers of forwarding tunnels, outside the range of QoS rules.
fn forwarding_rules() -> impl Iterator<Item = (PdrId, FarId)> {
    (0..=u8::MAX).map(|n| (PdrId(0xff00 + u16::from(n)), FarId(0xff00 + u32::from(n))))
}

/// Sends a modification whose answer is awaited together with others ([`modifications_answered`]). `None`: the UPF does not
/// have the session.
pub(super) fn ask_at(ue: Ue, at: Option<At>, mut request: SessionModificationRequest) -> Option<OutputId> {
    let At { upf, seid } = at?;
    interception::mark_modification(ue, At { upf, seid }, &mut request);
    let octets = Message::from(request).to_octets(Some(seid), 0);
    Some(ue.emit(Effect::N4 { upf, octets }, None))
}

/// The same to the session's anchor.
pub(super) fn ask_modification(
    ue: Ue,
    psi: PduSessionId,
    request: SessionModificationRequest,
) -> Option<OutputId> {
    ask_at(ue, ue.with(|p| At::anchor(p, psi)), request)
}

/// The same to the anchor: where downlink packets go.
pub(super) fn ask_anchor(ue: Ue, psi: PduSessionId, downlink: Downlink) -> Option<OutputId> {
    let marks = ue.with(|p| p.sessions.get(&psi).map(|s| s.qos.marks.clone()))?;
    ask_modification(ue, psi, modification(downlink, &marks))
}

/// The same to the UPF that sends to the gNB: where downlink packets go.
pub(super) fn ask_downlink(ue: Ue, psi: PduSessionId, downlink: Downlink) -> Option<OutputId> {
    ask_at(ue, ue.with(|p| At::access(p, psi)), downlink_update(ue, psi, downlink))
}

/// Awaits the answers to concurrent modifications, in any order.
pub(super) async fn modifications_answered<T>(
    ue: Ue,
    asked: Vec<(PduSessionId, T, OutputId)>,
) -> Result<Vec<(PduSessionId, T, Result<Box<SessionModificationResponse>, Refusal>)>, Interrupt> {
    let answered = answers(ue, asked).await?.into_iter();
    let modified =
        |psi, m: Option<Box<Message>>| m.ok_or(Refusal::Upf(None)).and_then(|m| modified(ue, psi, *m));
    Ok(answered.map(|(psi, of, m)| (psi, of, modified(psi, m))).collect())
}

/// Awaits the answers to concurrent requests, in any order. `None`: the UPF did not answer.
pub(super) async fn answers<T>(
    ue: Ue,
    mut asked: Vec<(PduSessionId, T, OutputId)>,
) -> Result<Vec<(PduSessionId, T, Option<Box<Message>>)>, Interrupt> {
    let mut answered = Vec::with_capacity(asked.len());
    let until = ue.now() + ue.config().timers.guard;
    while !asked.is_empty() {
        let outstanding = asked.iter().map(|(_, _, request)| *request).collect();
        match ue.any_answer(outstanding, until.since(ue.now())).await {
            Ok(Input::Pfcp(to, message)) => {
                let Some(at) = asked.iter().position(|(_, _, request)| *request == to) else { continue };
                let (psi, of, _) = asked.remove(at);
                answered.push((psi, of, message));
            }
            Ok(_) => {}
            Err(Interrupt::TimedOut) => {
                answered.extend(asked.drain(..).map(|(psi, of, _)| (psi, of, None)));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(answered)
}

/// Changes a session's rules at the UPF without awaiting the answer, to undo a change.
pub(super) fn post(ue: Ue, psi: PduSessionId, request: SessionModificationRequest) {
    if !super::rule_change::is_empty(&request) {
        let _ = ask_modification(ue, psi, request);
    }
}

/// N4 session release (TS 23.502 §4.4.1.4), and the deletion of the SM context. The answer is not awaited: the CTA
/// repeats the request until the UPF answers.
pub(super) fn delete(ue: Ue, psi: PduSessionId) {
    super::establishment::emit_change(ue, psi, SessionChange::Released);
    super::udm_client::deregister_session(ue, psi);
    ue.amf().sm_context_released(ue, psi);
    let (at, anchor, session) = ue.with(|p| {
        let anchor = At::anchor(p, psi);
        let session = p.sessions.remove(&psi);
        let intermediate = p.intermediate_upfs.extract_if(.., |i| i.psi == psi);
        (intermediate.map(|i| At::of(&i)).collect::<Vec<_>>(), anchor, session)
    });
    at.into_iter().for_each(|at| delete_at_upf(ue, at.upf, at.seid));
    let deletion = anchor.map(|at| ask_deletion(ue, at));
    let Some(session) = session else { return };
    if let Some(charging) = session.charging {
        super::charging::end(ue, psi, *charging, deletion);
    }
    if let Some(policy) = session.policy {
        super::sm_policy::end(ue, psi, session.cp_seid, *policy);
    }
}

pub(super) fn delete_at_upf(ue: Ue, upf: UpfId, seid: Seid) {
    ask_deletion(ue, At { upf, seid });
}

fn ask_deletion(ue: Ue, At { upf, seid }: At) -> OutputId {
    ue.emit(Effect::N4 { upf, octets: deletion(seid) }, None)
}

/// The request that deletes a UPF's session.
pub fn deletion(seid: Seid) -> Vec<u8> {
    Message::from(SessionDeletionRequest::default()).to_octets(Some(seid), 0)
}

async fn ask(ue: Ue, upf: UpfId, seid: Option<Seid>, request: Message) -> Result<Message, ProcedureEnd> {
    let to = ue.emit(Effect::N4 { upf, octets: request.to_octets(seid, 0) }, None);
    match ue.answer(to, ue.config().timers.guard).await {
        Ok(Input::Pfcp(_, Some(m))) => Ok(*m),
        Ok(_) | Err(Interrupt::TimedOut) => Err(Refusal::Upf(None).into()),
        Err(other) => Err(other.into()),
    }
}

/// Delivers an answer of the UPF to the lane that asked. If none waits any more, a session that it established is
/// deleted.
pub(crate) fn answered(ue: Ue, to: OutputId, upf: UpfId, octets: Option<&[u8]>) {
    let frame = octets.and_then(|o| Frame::parse(o).ok());
    let cp_seid = frame.as_ref().and_then(|f| f.header.seid);
    let message = frame.and_then(|f| Message::parse(&f).ok());
    let input = Input::Pfcp(to, message.map(Box::new));
    let Err(Input::Pfcp(_, Some(message))) = ue.with(|p| p.lanes.answer(to, input)) else { return };
    if let Some(seid) = orphaned_session(&message)
        && !restoration::take_late(ue, upf, cp_seid, seid)
    {
        delete_at_upf(ue, upf, seid);
    }
}

/// The UP SEID of an accepted establishment.
fn orphaned_session(message: &Message) -> Option<Seid> {
    match message {
        Message::SessionEstablishmentResponse(m) if m.cause == Cause::RequestAccepted => {
            m.up_f_seid.map(|f| f.seid)
        }
        _ => None,
    }
}

/// The request that deletes a session that was established for a deleted UE context.
pub fn deletion_of_orphan(octets: &[u8]) -> Option<Vec<u8>> {
    let message = Message::parse(&Frame::parse(octets).ok()?).ok()?;
    orphaned_session(&message).map(deletion)
}

/// Whether a request changes the CP F-SEID, which is then its first IE (TS 29.244 §7.5.4.1).
pub fn changes_cp_f_seid(octets: &[u8]) -> bool {
    const F_SEID: [u8; 2] = 57u16.to_be_bytes(); // TS 29.244 §8.1.2
    let asks = octets.get(1) == Some(&whimbrel_pfcp::message_type::SESSION_MODIFICATION_REQUEST);
    asks && octets.get(16..18) == Some(&F_SEID)
}

/// A session report (TS 29.244 §7.5.8).
pub(crate) fn report(ue: Ue, upf: UpfId, psi: u8, octets: &[u8]) {
    let Ok(frame) = Frame::parse(octets) else { return };
    // Reports of an earlier session with this identity, or of another UPF, are not for this session.
    let at = |psi: &PduSessionId| {
        ue.with(|p| {
            let anchor = p.sessions.get(psi).map(|s| (s.upf, s.cp_seid, s.up_seid));
            let of_session = p.intermediate_upfs.iter().filter(|i| i.psi == *psi);
            let mut all = of_session.map(|i| (i.upf, i.cp_seid, Some(i.up_seid))).chain(anchor);
            all.find(|(at, cp_seid, _)| *at == upf && Some(*cp_seid) == frame.header.seid)
        })
    };
    let known = PduSessionId::new(psi).and_then(|psi| Some((psi, at(&psi)?.2)));
    // The session is being given to another SMF, to which the UPF sends the report then. An answer that it is unknown would delete it.
    if known.is_none() && ue.amf().ue_state(ue).leaving {
        return;
    }
    let (Some((psi, up_seid)), Ok(Message::SessionReportRequest(m))) = (known, Message::parse(&frame)) else {
        let unknown = SessionReportResponse::new(Cause::SessionContextNotFound);
        return answer_report(ue, upf, Seid(0), frame.header.sequence, unknown);
    };
    count(ue, psi, &m.usage_reports);
    super::charging::usage_reported(ue, psi);
    let seid = up_seid.unwrap_or(Seid(0));
    let mut response = SessionReportResponse::new(Cause::RequestAccepted);
    response.update_bar = m.downlink_data_report.is_some().then(|| extended(ue)).flatten();
    answer_report(ue, upf, seid, frame.header.sequence, response);
    // A session that the former SMF is giving to this one is activated when it is here.
    let is_here = up_seid.is_some();
    if m.downlink_data_report.is_some() && await_user_plane(ue, psi) && is_here {
        ue.amf().downlink_data(ue, psi);
    }
    if m.report_type.has(ReportType::UPIR) {
        super::up_connection::inactive(ue, psi);
    }
    // The gNB does not know the tunnel: packets wait until the UE asks again (TS 23.527 §5.3.3.1). An error about a former gNB's tunnel,
    // to which packets were still in transit, is ignored.
    let current = ue.with(|p| p.sessions.get(&psi).and_then(|s| s.an.as_deref().copied()));
    if m.error_indication_report
        .is_some_and(|r| r.remote_f_teids.iter().any(|f| current.is_some_and(|an| is(f, an))))
    {
        // A gNB that still has the UE releases the session's resources, so that they can be set up again.
        release_at_gnb(ue, psi);
        super::up_connection::deactivate(ue.on(Lane::Session(psi)), psi);
    }
}

/// Marks that downlink packets wait for a session. Returns false if it has a user plane.
fn await_user_plane(ue: Ue, psi: PduSessionId) -> bool {
    ue.with(|p| {
        p.sessions.get_mut(&psi).is_some_and(|s| {
            s.awaited = s.up == UpState::Inactive;
            s.awaited
        })
    })
}

/// Whether an F-TEID is this tunnel.
fn is(f_teid: &FTeid, tunnel: Tunnel) -> bool {
    match (*f_teid, tunnel.address) {
        (FTeid::Given { teid, ipv4, .. }, IpAddr::V4(a)) => teid == tunnel.teid && ipv4 == Some(a),
        (FTeid::Given { teid, ipv6, .. }, IpAddr::V6(a)) => teid == tunnel.teid && ipv6 == Some(a),
        _ => false,
    }
}

/// Extended buffering (TS 23.502 §4.2.3.3 step 2, TS 29.244 §5.2.4.2): the UE is not reachable for this number of seconds, and packets that
/// arrive until then are buffered without further reports.
fn extended(ue: Ue) -> Option<UpdateBarInReportResponse> {
    let sleeps = ue.amf().unreachable_for(ue)?;
    let packets = ue.config().smf.buffering.extended_packets;
    let seconds = u32::try_from(sleeps.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
    Some(UpdateBarInReportResponse {
        bar_id: BAR,
        downlink_data_notification_delay: None,
        dl_buffering_duration: Some(PackedTimer::from_seconds(seconds)),
        suggested_buffering_packets_count: packets.map(SuggestedBufferingPacketsCount),
    })
}

fn answer_report(ue: Ue, upf: UpfId, seid: Seid, sequence: u32, response: SessionReportResponse) {
    let octets = Message::from(response).to_octets(Some(seid), sequence);
    ue.emit(Effect::N4Answer { upf, octets }, None);
}

/// The answer to a report on an unknown session.
pub fn no_such_session(octets: &[u8]) -> Option<Vec<u8>> {
    let frame = Frame::parse(octets).ok()?;
    let response = SessionReportResponse::new(Cause::SessionContextNotFound);
    Some(Message::from(response).to_octets(Some(Seid(0)), frame.header.sequence))
}
