//! PDU session modification: TS 23.502 §4.3.3.2, §4.3.5.1, TS 38.413 §8.2.3; NAS part TS 24.501 §6.3.2 (by the network), §6.4.2
//! (by the phone).
//!
//! What a session is to have stands in its context ([`Wanted`]) until phone, gNB and UPF have it. So a change that meets an
//! idle phone, another procedure or the loss of the connection is not lost: it is made as soon as it can be.

use whimbrel_ids::{PduSessionId, Qfi};
use whimbrel_nas::ie::{
    BitRate, FlowOperation, QosFlowDescription, QosFlowDescriptions, QosRule, QosRules, RuleOperation,
    SessionAmbr, SmCause, SscMode,
};
use whimbrel_nas::sm::{self, ModificationCommand, ModificationReject, ModificationRequest, Pti};
use whimbrel_ngap::ie::{
    Cause, CauseNas, PduSessionAggregateMaximumBitRate, QosFlowAddOrModifyRequestItem, QosFlowWithCauseItem,
};
use whimbrel_ngap::transfer::{
    PduSessionResourceModifyRequestTransfer, PduSessionResourceModifyResponseTransfer,
};

use super::context::{SmContext, UpState};
use super::qos::{QosFlow, flow_of};
use super::requested_qos::{self, Terms};
use super::rule_change::Change;
use super::{N2Outcome, n4, pco, release, release_locally};
use crate::amf;
use crate::amf::bits;
use crate::config::Config;
use crate::event::Event;
use crate::input::Input;
use crate::phone::Phone;
use crate::policy::{FlowName, FlowPolicy, merged};
use crate::procedure::{End, Repeated, attempt};
use crate::refusal::Refusal;
use crate::shard::{Interrupt, Lane, Procedure, Ue};
use crate::udm::Ambr;

/// What a session is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its QoS flows beside the default one.
    pub flows: Vec<QosFlow>,
    /// Its AMBR.
    pub ambr: Ambr,
}

/// What an operator changes in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modification {
    /// Sets up the flow that the policy has under this name.
    AddFlow(FlowName),
    /// Takes down the flow of this name.
    RemoveFlow(FlowName),
    /// Gives it this AMBR.
    Ambr(Ambr),
    /// Moves a session of SSC mode 2 to another anchor: it is released, and the phone asks anew (TS 23.502 §4.3.5.1).
    Reanchor,
    /// Opens or closes the gates of the flow of this name (TS 29.244 §5.4.3).
    Gate(FlowName, crate::policy::FlowGate),
}

/// Changes what a session is to have. Nothing happens where that is what it has.
pub(super) fn want(ue: Ue, psi: PduSessionId, change: impl FnOnce(&mut Wanted)) {
    ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi) else { return };
        let has = Wanted { flows: s.flows.clone(), ambr: s.ambr };
        // On top of what is under way, which is not lost by it.
        let mut wanted = s.wanted.take().map_or_else(|| has.clone(), |w| *w);
        change(&mut wanted);
        s.wanted = (wanted != has).then(|| Box::new(wanted));
    });
}

/// The operator changes a session (TS 23.502 §4.3.3.2 step 1d); a phone that is idle is paged.
pub(crate) fn by_operator(ue: Ue, psi: PduSessionId, modification: Modification) {
    let config = ue.config();
    match modification {
        Modification::AddFlow(name) => {
            let flow = ue.with(|p| {
                let s = p.sessions.get(&psi)?;
                let known = s.wanted.as_ref().map_or(&s.flows, |w| &w.flows);
                if known.iter().any(|f| f.name == name) {
                    return None;
                }
                let policies = policies(p, s, &config);
                let policy = policies.into_iter().find(|f| f.name == name)?;
                flow_of(policy, known, s.session_type, s.filters_max)
            });
            want(ue, psi, |w| w.flows.extend(flow));
        }
        Modification::Reanchor => {
            let moves = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.ssc_mode == SscMode::Two));
            if moves {
                return release::by_network(ue, psi, SmCause::ReactivationRequested);
            }
        }
        Modification::RemoveFlow(name) => want(ue, psi, |w| w.flows.retain(|f| f.name != name)),
        Modification::Ambr(ambr) => want(ue, psi, |w| w.ambr = ambr),
        Modification::Gate(name, gate) => want(ue, psi, |w| {
            w.flows.iter_mut().filter(|f| f.name == name).for_each(|f| f.gate = gate);
        }),
    }
    amf::page_if_awaited(ue);
}

/// A gNB could not set these flows up, or gave them up (TS 23.502 §4.3.3.2 step 1e): the session goes on without them.
pub(super) fn without(ue: Ue, psi: PduSessionId, lost: &[Qfi]) {
    if !lost.is_empty() {
        want(ue, psi, |w| w.flows.retain(|f| !lost.contains(&f.qfi)));
    }
}

/// The flows that the policy has for a session.
fn policies<'a>(p: &'a Phone, s: &SmContext, config: &'a Config) -> Vec<&'a FlowPolicy> {
    let network = config.smf.data_networks.get(&s.dnn).map_or(&[][..], |n| &n.flows);
    let slice = p.amf.subscription.as_ref().and_then(|sub| sub.slice(s.s_nssai));
    let dnn = slice.and_then(|slice| slice.dnns.iter().find(|d| d.dnn == s.dnn));
    merged(network, dnn.map_or(&[], |d| &d.flows)).collect()
}

/// Whether a change waits for an idle phone.
pub(crate) fn is_wanted(phone: &Phone) -> bool {
    phone.sessions.values().any(|s| s.wanted.is_some())
}

/// Begins the changes that can be made now: the phone is connected, and neither it nor the session is at something else.
pub(crate) fn begin_wanted(ue: Ue) {
    if !ue.with(|p| is_wanted(p)) {
        return;
    }
    let ready: Vec<PduSessionId> = ue.with(|p| {
        let at_rest =
            matches!(p.lanes.procedure(Lane::Mobility), None | Some(Procedure::ConfigurationUpdate))
                && p.lanes.procedure(Lane::Handover).is_none(); // TS 23.502 §4.9.1.2.1: not while the gNB changes
        let there = p.amf.connection.as_ref().is_some_and(|c| c.secured) && p.amf.registered;
        let due = p
            .sessions
            .iter()
            .filter(|(psi, s)| s.wanted.is_some() && p.lanes.procedure(Lane::Session(**psi)).is_none());
        due.map(|(&psi, _)| psi).filter(|_| at_rest && there).collect()
    });
    for psi in ready {
        by_network(ue, psi);
    }
}

fn by_network(ue: Ue, psi: PduSessionId) {
    let ue = ue.on(Lane::Session(psi));
    let procedure = Procedure::PduSessionModificationByNetwork;
    ue.start(Lane::Session(psi), procedure, async move {
        let Some(wanted) = ue.with(|p| p.sessions.get(&psi)?.wanted.clone()) else { return };
        let began = ue.now();
        let done = modify(ue, psi, Told::by_network(), wanted).await;
        finish(ue, psi, procedure, began, done);
    });
}

/// The phone asks (TS 24.501 §6.4.2). Its request waits for what the session is at; collisions were judged before.
pub(super) fn by_ue(ue: Ue, psi: PduSessionId, pti: Pti, request: Box<ModificationRequest>) {
    let ue = ue.on(Lane::Session(psi));
    let procedure = Procedure::PduSessionModificationByUe;
    ue.follow(Lane::Session(psi), procedure, async move {
        let began = ue.now();
        let granted = match grant(ue, psi, &request) {
            Ok(granted) => granted,
            Err(cause) => return refuse(ue, psi, pti, cause, procedure),
        };
        let told = Told::in_answer(ue, psi, pti, &request);
        drop(request);
        want(ue, psi, |w| w.clone_from(&granted));
        let done = modify(ue, psi, told, granted).await;
        if let Err(End::Refused(Refusal::RadioFailure(_) | Refusal::Upf(_))) = &done {
            // Nothing was told to the phone, or it does not hold (TS 24.501 §6.4.2.4).
            let reject = ModificationReject::new(SmCause::InsufficientResources);
            super::send(ue, psi, sm::Message::new(psi, pti, reject));
        }
        finish(ue, psi, procedure, began, done);
    });
}

/// What the session has once the phone's request is granted (TS 24.501 §6.4.2.3). What a phone says of itself is kept.
fn grant(ue: Ue, psi: PduSessionId, request: &ModificationRequest) -> Result<Box<Wanted>, SmCause> {
    let rules = request.qos_rules.as_ref().map_or(Ok(Vec::new()), QosRules::rules)?;
    let flows = request.qos_flow_descriptions.as_ref();
    let descriptions = flows.map_or(Ok(Vec::new()), QosFlowDescriptions::flows)?;
    let config = ue.config();
    ue.with(|p| {
        let s = p.sessions.get(&psi).ok_or(SmCause::InvalidPduSessionIdentity)?;
        let filters_max = request.max_packet_filters.map_or(s.filters_max, |m| m.value());
        let terms = Terms { session_type: s.session_type, filters_max, policies: policies(p, s, &config) };
        let flows = requested_qos::grant(&terms, &s.flows, &rules, &descriptions)?;
        let wanted = Box::new(Wanted { flows, ambr: s.ambr });
        if let Some(s) = p.sessions.get_mut(&psi) {
            s.filters_max = filters_max;
            if let Some(rate) = request.integrity_max_data_rate {
                s.full_rate_integrity = rate.uplink == whimbrel_nas::ie::IntegrityDataRate::Full;
            }
        }
        Ok(wanted)
    })
}

/// PDU SESSION MODIFICATION REJECT (TS 24.501 §6.4.2.4).
fn refuse(ue: Ue, psi: PduSessionId, pti: Pti, cause: SmCause, procedure: Procedure) {
    super::send(ue, psi, sm::Message::new(psi, pti, ModificationReject::new(cause)));
    super::refused(ue, procedure, Refusal::Qos(cause));
}

/// What the phone is told beside the change: in the answer to its request, what it asked for.
struct Told {
    pti: Pti,
    command: Option<Box<ModificationCommand>>,
}

impl Told {
    fn by_network() -> Self {
        Self { pti: Pti::UNASSIGNED, command: None }
    }

    fn in_answer(ue: Ue, psi: PduSessionId, pti: Pti, request: &ModificationRequest) -> Self {
        let config = ue.config();
        let mut command = ModificationCommand::new();
        ue.with(|p| {
            let Some(s) = p.sessions.get(&psi) else { return };
            let network = config.smf.data_networks.get(&s.dnn);
            command.extended_pco =
                network.and_then(|n| pco::answer(request.extended_pco.as_ref(), n, s.session_type));
            command.always_on =
                request.always_on_requested.map(|_| whimbrel_nas::ie::AlwaysOn { on: s.always_on });
        });
        Self { pti, command: Some(Box::new(command)) }
    }
}

/// Brings a session to what it is to have: TS 23.502 §4.3.3.2 steps 2a to 12. Flows that the gNB does not take are taken
/// back from the phone by a second round.
async fn modify(ue: Ue, psi: PduSessionId, mut told: Told, mut wanted: Box<Wanted>) -> Result<(), End> {
    loop {
        amf::handover_over(ue).await?; // the gNB is asked where the phone then is (TS 38.413 §8.4.1.2)
        let Some(step) = Step::towards(ue, psi, &told, &wanted) else { return Ok(()) };
        n4_half(ue, psi, &wanted, Half::Before).await?; // step 2a
        let outcome = Box::pin(command(ue, psi, step)).await; // steps 3 to 11
        let not_taken = match outcome {
            Ok(not_taken) => not_taken,
            Err(end) => return Err(undo(ue, psi, wanted, end)),
        };
        n4_half(ue, psi, &wanted, Half::After).await?; // step 12
        ue.with(|p| {
            if let Some(s) = p.sessions.get_mut(&psi) {
                s.flows.clone_from(&wanted.flows);
                s.ambr = wanted.ambr;
            }
        });
        without(ue, psi, &not_taken);
        want(ue, psi, |_| {}); // what it has it wants no more
        wanted.flows.retain(|f| !not_taken.contains(&f.qfi));
        told = Told::by_network();
    }
}

#[derive(Clone, Copy)]
enum Half {
    Before,
    After,
}

async fn n4_half(ue: Ue, psi: PduSessionId, wanted: &Wanted, half: Half) -> Result<(), End> {
    let request = ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        let change = Change { session, flows: &wanted.flows, ambr: wanted.ambr };
        Some(match half {
            Half::Before => change.before(),
            Half::After => change.after(),
        })
    });
    match request {
        Some(request) if super::rule_change::is_empty(&request) => Ok(()),
        Some(request) => n4::change(ue, psi, request).await,
        None => Err(Refusal::Protocol("the session ended").into()),
    }
}

/// One round of a modification: what phone and gNB are told.
struct Step {
    command: sm::Message,
    /// For the gNB, where it has the session and sees a difference.
    transfer: Option<Vec<u8>>,
}

impl Step {
    /// `None` where there is nothing to do.
    fn towards(ue: Ue, psi: PduSessionId, told: &Told, wanted: &Wanted) -> Option<Self> {
        ue.with(|p| {
            let session = p.sessions.get_mut(&psi)?;
            session.pti = told.pti;
            let (rules, descriptions) = differences(&session.flows, &wanted.flows);
            let ambr = (session.ambr != wanted.ambr).then_some(wanted.ambr);
            let gates = gates(&session.flows) != gates(&wanted.flows);
            if told.command.is_none()
                && rules.is_empty()
                && descriptions.is_empty()
                && ambr.is_none()
                && !gates
            {
                return None;
            }
            let mut m = told.command.as_ref().map_or_else(ModificationCommand::new, |c| (**c).clone());
            m.qos_rules = QosRules::new(&rules);
            m.qos_flow_descriptions = QosFlowDescriptions::new(&descriptions);
            m.session_ambr = ambr.map(|a| SessionAmbr {
                downlink: BitRate::from_kbps(a.dl_kbps),
                uplink: BitRate::from_kbps(a.ul_kbps),
            });
            let command = sm::Message::new(psi, told.pti, m);
            let at_gnb = session.up == UpState::Active;
            let transfer = at_gnb.then(|| transfer(&session.flows, wanted, ambr)).flatten();
            let set_up = p.amf.connection.as_ref().is_some_and(|c| c.context_set_up);
            Some(Self { command, transfer: transfer.filter(|_| set_up) })
        })
    }
}

fn gates(flows: &[QosFlow]) -> Vec<(Qfi, crate::policy::FlowGate)> {
    flows.iter().map(|f| (f.qfi, f.gate)).collect()
}

/// What the phone is told (TS 24.501 §9.11.4.12, §9.11.4.13): first what goes, so that its names are free for what comes.
fn differences(from: &[QosFlow], to: &[QosFlow]) -> (Vec<QosRule>, Vec<QosFlowDescription>) {
    let (mut rules, mut descriptions) = (Vec::new(), Vec::new());
    let same = |f: &QosFlow, g: &QosFlow| (f.qfi, f.name) == (g.qfi, g.name);
    for old in from {
        let new = to.iter().find(|f| same(f, old));
        for rule in &old.rules {
            if new.is_none_or(|n| n.rules.iter().all(|r| r.id != rule.id)) {
                rules.push(rule.rule(old.qfi, RuleOperation::Delete));
            }
        }
        if new.is_none() {
            descriptions.push(old.description(FlowOperation::Delete));
        }
    }
    for new in to {
        let old = from.iter().find(|f| same(f, new));
        match old {
            None => descriptions.push(new.description(FlowOperation::Create)),
            Some(old) if old.differs_for_gnb(new) => {
                descriptions.push(new.description(FlowOperation::Modify))
            }
            Some(_) => {}
        }
        for rule in &new.rules {
            let before = old.and_then(|o| o.rules.iter().find(|r| r.id == rule.id));
            let operation = match before {
                None => RuleOperation::Create(rule.filters.clone()),
                Some(b) if b.filters != rule.filters => RuleOperation::ReplaceFilters(rule.filters.clone()),
                Some(b) if b.precedence != rule.precedence => RuleOperation::KeepFilters,
                Some(_) => continue,
            };
            rules.push(rule.rule(new.qfi, operation));
        }
    }
    (rules, descriptions)
}

/// What the gNB is told (TS 38.413 §9.3.4.3); `None` where it would see no difference.
fn transfer(from: &[QosFlow], to: &Wanted, ambr: Option<Ambr>) -> Option<Vec<u8>> {
    let mut t = PduSessionResourceModifyRequestTransfer::new();
    t.pdu_session_aggregate_maximum_bit_rate =
        ambr.map(|a| PduSessionAggregateMaximumBitRate::new(bits(a.dl_kbps), bits(a.ul_kbps)));
    for flow in &to.flows {
        let old = from.iter().find(|f| f.qfi == flow.qfi);
        if old.is_none_or(|o| o.differs_for_gnb(flow)) {
            let mut item = QosFlowAddOrModifyRequestItem::new(flow.qfi);
            item.qos_flow_level_qos_parameters = Some(flow.level_qos());
            t.qos_flow_add_or_modify_request_list.push(item);
        }
    }
    let gone = from.iter().filter(|f| to.flows.iter().all(|g| g.qfi != f.qfi));
    t.qos_flow_to_release_list =
        gone.map(|f| QosFlowWithCauseItem::new(f.qfi, Cause::Nas(CauseNas::NormalRelease))).collect();
    let nothing = t.qos_flow_add_or_modify_request_list.is_empty() && t.qos_flow_to_release_list.is_empty();
    (ambr.is_some() || !nothing).then(|| t.to_vec())
}

/// Steps 3 to 11: phone and gNB are told, and both answer. Gives the flows that the gNB did not take.
///
/// After the fifth expiry of T3591 the procedure is given up (TS 24.501 §6.3.2.5 a).
async fn command(ue: Ue, psi: PduSessionId, step: Step) -> Result<Vec<Qfi>, End> {
    let Step { command, transfer } = step;
    let mut timer = Repeated::new("PDU SESSION MODIFICATION COMMAND", ue.config().timers.t3591);
    let mut not_taken = if let Some(transfer) = transfer {
        amf::modify_session_resources(ue, psi, transfer, Some(&command));
        None
    } else {
        super::send(ue, psi, command.clone());
        Some(Vec::new())
    };
    let mut completed = false;
    loop {
        if completed && let Some(not_taken) = not_taken {
            return Ok(not_taken);
        }
        let accepts = |i: &Input| match i {
            Input::Sm(m) => {
                matches!(m.body, sm::Body::ModificationComplete(_) | sm::Body::ModificationCommandReject(_))
            }
            Input::N2Sm(N2Outcome::Modified | N2Outcome::ModifyFailed, _) => true,
            _ => false,
        };
        match attempt(ue, &mut timer, accepts).await {
            Ok(Some(Input::Sm(m))) => match m.body {
                sm::Body::ModificationCommandReject(m) => {
                    return Err(Refusal::ModificationRejected(m.cause).into());
                }
                _ => completed = true,
            },
            Ok(Some(Input::N2Sm(N2Outcome::Modified, transfer))) => not_taken = Some(failed_flows(&transfer)),
            Ok(Some(_)) => {
                return Err(Refusal::RadioFailure("it could not modify the session's resources").into());
            }
            // The phone has it, and the gNB is silent: it is not asked again (TS 38.413 §8.2.3.3).
            _ if completed => {
                return Err(Refusal::RadioFailure("no answer to PDU SESSION RESOURCE MODIFY REQUEST").into());
            }
            Ok(None) => super::send(ue, psi, command.clone()),
            Err(end) => return Err(end),
        }
    }
}

fn failed_flows(transfer: &[u8]) -> Vec<Qfi> {
    let transfer = PduSessionResourceModifyResponseTransfer::decode(transfer);
    let failed = transfer.map(|t| t.qos_flow_failed_to_add_or_modify_list).unwrap_or_default();
    failed.into_iter().map(|f| f.qos_flow_identifier).collect()
}

/// The change was not made: the UPF goes back, and a gNB that has it already too. One that was refused is not tried again; one
/// that was interrupted, and may be known to the phone, is made once it can be.
fn undo(ue: Ue, psi: PduSessionId, wanted: Box<Wanted>, end: End) -> End {
    let back = ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        let change = Change { session, flows: &wanted.flows, ambr: wanted.ambr };
        let has = Wanted { flows: session.flows.clone(), ambr: session.ambr };
        let ambr = (has.ambr != wanted.ambr).then_some(has.ambr);
        let at_gnb = session.up == UpState::Active && matches!(end, End::Refused(_));
        Some((change.undo(), at_gnb.then(|| transfer(&wanted.flows, &has, ambr)).flatten()))
    });
    let Some((at_upf, at_gnb)) = back else { return end };
    n4::post(ue, psi, at_upf);
    if let Some(transfer) = at_gnb {
        amf::modify_session_resources(ue, psi, transfer, None);
    }
    if let End::Refused(_) = end {
        ue.with(|p| {
            if let Some(s) = p.sessions.get_mut(&psi) {
                s.wanted = s.wanted.take().filter(|w| *w != wanted);
            }
        });
    }
    end
}

/// How a modification ended.
fn finish(
    ue: Ue,
    psi: PduSessionId,
    procedure: Procedure,
    began: whimbrel_ids::Instant,
    done: Result<(), End>,
) {
    match done {
        Ok(()) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Completed { procedure, subject, took: ue.now().since(began) });
            amf::let_go_when_unused(ue);
        }
        Err(End::Interrupted(Interrupt::Superseded(_) | Interrupt::ConnectionLost)) => {}
        Err(End::Interrupted(_)) => {}
        Err(End::Refused(refusal)) => {
            let (gone, lost) = match &refusal {
                // The phone does not have the session (TS 24.501 §6.3.2.4).
                Refusal::ModificationRejected(c) => (*c == SmCause::InvalidPduSessionIdentity, false),
                // Nobody knows what the UPF has: the session begins anew.
                Refusal::Upf(_) => (false, true),
                _ => (false, false),
            };
            super::refused(ue, procedure, refusal);
            if gone {
                release_locally(ue, psi);
            } else if lost {
                release::by_network(ue, psi, SmCause::ReactivationRequested);
            }
            amf::let_go_when_unused(ue);
        }
    }
}
