//! PDU session modification: TS 23.502 §4.3.3.2, §4.3.5.1, TS 38.413 §8.2.3; NAS part TS 24.501 §6.3.2 (by the network), §6.4.2
//! (by the UE).
//!
//! The target state of a session is in its context ([`PendingChange`]) until UE, gNB and UPF have it. So a change is not lost
//! if the UE is idle, another procedure runs or the connection is lost: it is made as soon as possible.

use whimbrel_ids::{PduSessionId, Qfi};
use whimbrel_nas::ie::{
    BitRate, FlowOperation, FlowParameter, QosFlowDescription, QosFlowDescriptions, QosRule, QosRules,
    RuleOperation, SessionAmbr, SmCause, SscMode,
};
use whimbrel_nas::sm::{self, ModificationCommand, ModificationReject, ModificationRequest, Pti};
use whimbrel_ngap::ie::{
    Cause, CauseNas, PduSessionAggregateMaximumBitRate, QosFlowAddOrModifyRequestItem, QosFlowWithCauseItem,
};
use whimbrel_ngap::transfer::{
    PduSessionResourceModifyRequestTransfer, PduSessionResourceModifyResponseTransfer,
    PduSessionResourceModifyUnsuccessfulTransfer,
};

use super::pending_change::{policies, set_pending, without};
use super::qos::{QosConstraints, level_qos};
use super::release::release_locally;
use super::requested_qos::{self, Terms};
use super::rule_change::RuleChange;
use super::{n4, operation, pco, reanchoring, release, up_connection};
use crate::config::Smf;
use crate::event::{Event, FailedFlow, SessionOutcome};
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, RepeatedMessage, Ue, attempt};
use crate::refusal::Refusal;
use crate::services::namf::N2SmInformation;
use crate::services::nsmf::N2Outcome;
use crate::state::{DEFAULT_QFI, PendingChange, QosFlow, SmContext, UeContext, UpState, bits};

/// Whether a change waits for an idle UE.
pub(crate) fn has_pending_change(ue: &UeContext) -> bool {
    ue.sessions.values().any(|s| s.qos.pending_change.is_some())
}

/// Starts the changes that can be made now: the UE is connected, and no other procedure of it or of the session runs.
pub(crate) fn begin_pending_changes(ue: Ue) {
    if !ue.with(|p| has_pending_change(p)) {
        return;
    }
    let state = ue.amf().ue_state(ue);
    let there = state.secured && state.registered;
    let ready: Vec<(PduSessionId, bool)> = ue.with(|p| {
        let at_rest =
            matches!(p.lanes.procedure(Lane::Mobility), None | Some(Procedure::ConfigurationUpdate))
                && p.lanes.procedure(Lane::Handover).is_none(); // TS 23.502 §4.9.1.2.1: not while the gNB changes
        let due = p.sessions.iter().filter(|(psi, s)| {
            s.qos.pending_change.is_some() && p.lanes.procedure(Lane::Session(**psi)).is_none()
        });
        due.map(|(&psi, s)| (psi, ends(s))).filter(|_| at_rest && there).collect()
    });
    for (psi, ends) in ready {
        match ends {
            true => release::by_network(ue, psi, SmCause::ReactivationRequested),
            false => by_network(ue, psi),
        }
    }
}

/// True if a session is to leave its UPF and cannot be replaced before it ends: in SSC mode 3 alone the UE sets up another one first (TS 23.501 §5.6.9.2).
fn ends(s: &SmContext) -> bool {
    s.ssc_mode != SscMode::Three
        && s.qos.pending_change.as_ref().is_some_and(|w| w.leaving && !s.is_leaving())
}

fn by_network(ue: Ue, psi: PduSessionId) {
    let ue = ue.on(Lane::Session(psi));
    let procedure = Procedure::PduSessionModificationByNetwork;
    ue.start(Lane::Session(psi), procedure, async move {
        let Some(pending) = ue.with(|p| p.sessions.get(&psi)?.qos.pending_change.clone()) else { return };
        let began = ue.now();
        let done = modify(ue, psi, CommandToUe::by_network(), pending).await;
        finish(ue, psi, procedure, began, done);
    });
}

/// UE-requested modification (TS 24.501 §6.4.2). It starts after the session's running procedure; collisions were
/// resolved before.
pub(super) fn by_ue(ue: Ue, psi: PduSessionId, pti: Pti, request: Box<ModificationRequest>) {
    let ue = ue.on(Lane::Session(psi));
    let procedure = Procedure::PduSessionModificationByUe;
    ue.follow(Lane::Session(psi), procedure, async move {
        let began = ue.now();
        let granted = match grant(ue, psi, &request) {
            Ok(granted) => granted,
            Err(cause) => return refuse(ue, psi, pti, cause, procedure),
        };
        let to_ue = CommandToUe::in_answer(ue, psi, pti, &request);
        drop(request);
        set_pending(ue, psi, |w| w.clone_from(&granted));
        let done = modify(ue, psi, to_ue, granted).await;
        if let Err(ProcedureEnd::Refused(
            Refusal::RadioFailure(_) | Refusal::RefusedByGnb { .. } | Refusal::Upf(_),
        )) = &done
        {
            // The UE got no command, or the change was undone (TS 24.501 §6.4.2.4).
            let reject = ModificationReject::new(SmCause::InsufficientResources);
            super::send(ue, psi, sm::Message::new(psi, pti, reject));
        }
        finish(ue, psi, procedure, began, done);
    });
}

/// The session's target state if the UE's request is granted (TS 24.501 §6.4.2.3). The UE's capabilities in it are
/// stored.
fn grant(ue: Ue, psi: PduSessionId, request: &ModificationRequest) -> Result<Box<PendingChange>, SmCause> {
    let rules = request.qos_rules.as_ref().map_or(Ok(Vec::new()), QosRules::rules)?;
    let flows = request.qos_flow_descriptions.as_ref();
    let descriptions = flows.map_or(Ok(Vec::new()), QosFlowDescriptions::flows)?;
    let config = ue.config();
    ue.with(|p| {
        let s = p.sessions.get(&psi).ok_or(SmCause::InvalidPduSessionIdentity)?;
        let filters_max = request.max_packet_filters.map_or(s.qos.filters_max, |m| m.value());
        let ground = QosConstraints { filters_max, ..QosConstraints::of(s, &config) };
        let terms = Terms { ground, policies: policies(p, s, &config) };
        let flows = requested_qos::grant(&terms, &s.qos.flows, &rules, &descriptions)?;
        let pending = Box::new(PendingChange { flows, ..PendingChange::of(s) });
        if let Some(s) = p.sessions.get_mut(&psi) {
            s.qos.filters_max = filters_max;
            if let Some(rate) = request.integrity_max_data_rate {
                s.full_rate_integrity = rate.uplink == whimbrel_nas::ie::IntegrityDataRate::Full;
            }
        }
        Ok(pending)
    })
}

/// PDU SESSION MODIFICATION REJECT (TS 24.501 §6.4.2.4).
fn refuse(ue: Ue, psi: PduSessionId, pti: Pti, cause: SmCause, procedure: Procedure) {
    super::send(ue, psi, sm::Message::new(psi, pti, ModificationReject::new(cause)));
    super::refused(ue, procedure, Refusal::Qos(cause));
}

/// The command without the change: in the answer to a UE's request, the other IEs that it asked for.
struct CommandToUe {
    pti: Pti,
    command: Option<Box<ModificationCommand>>,
}

impl CommandToUe {
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

/// Brings a session to its target state: TS 23.502 §4.3.3.2 steps 2a to 12. Flows that the gNB refuses are removed at
/// the UE by a second command.
async fn modify(
    ue: Ue,
    psi: PduSessionId,
    mut to_ue: CommandToUe,
    mut pending: Box<PendingChange>,
) -> Result<AtGnb, ProcedureEnd> {
    let mut at_gnb = AtGnb::default();
    loop {
        ue.amf().handover_over(ue).await?; // then the serving gNB is asked (TS 38.413 §8.4.1.2)
        let Some(step) = ModificationStep::towards(ue, psi, &to_ue, &pending) else { return Ok(at_gnb) };
        if let Err(end) = n4_half(ue, psi, &pending, Half::Before).await {
            return Err(drop_pending(ue, psi, &pending, end)); // step 2a: neither UE nor gNB has a command yet
        }
        let outcome = Box::pin(command(ue, psi, step)).await; // steps 3 to 11
        let not_taken = match outcome {
            Ok(GnbHas::AllBut(failed)) => at_gnb.add(failed, &pending),
            Ok(GnbHas::Unknown(refusal)) => {
                at_gnb.refusal = Some(refusal);
                Vec::new()
            }
            Err(end) => return Err(undo(ue, psi, pending, end)),
        };
        if let Err(end) = n4_half(ue, psi, &pending, Half::After).await {
            return Err(Box::pin(take_back(ue, psi, pending, end)).await); // step 12
        }
        keep(ue, psi, &pending);
        without(ue, psi, &not_taken);
        set_pending(ue, psi, |_| {}); // clears the change if it is made
        pending.flows.retain(|f| !not_taken.contains(&f.qfi));
        to_ue = CommandToUe::by_network();
    }
}

/// Brings a session to its target state at the UPF, before UE and gNB have the session.
pub(super) async fn modify_at_upf(
    ue: Ue,
    psi: PduSessionId,
    pending: PendingChange,
) -> Result<(), ProcedureEnd> {
    n4_half(ue, psi, &pending, Half::Before).await?;
    n4_half(ue, psi, &pending, Half::After).await?;
    keep(ue, psi, &pending);
    set_pending(ue, psi, |_| {}); // a change that came meanwhile may be made already
    Ok(())
}

/// Stores the change that UE and UPF have made.
fn keep(ue: Ue, psi: PduSessionId, pending: &PendingChange) {
    let until = ue.now() + ue.config().timers.pdu_session_address_lifetime;
    ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi) else { return };
        s.qos.flows.clone_from(&pending.flows);
        (s.qos.ambr, s.qos.five_qi, s.qos.arp) = (pending.ambr, pending.five_qi, pending.arp);
        if pending.leaving && !s.is_leaving() {
            s.until = until;
        }
    });
}

/// Whether the UPF refused and kept the session unchanged (TS 29.244 §6.3.3.3). If it does not answer, or has lost the session,
/// its state is unknown.
fn stands_at_upf(end: &ProcedureEnd) -> bool {
    let lost = whimbrel_pfcp::ie::Cause::SessionContextNotFound as u8;
    matches!(end, ProcedureEnd::Refused(Refusal::Upf(Some(cause))) if *cause != lost)
}

/// Drops a refused change, so that it is not tried again.
fn drop_pending(ue: Ue, psi: PduSessionId, pending: &PendingChange, end: ProcedureEnd) -> ProcedureEnd {
    if let ProcedureEnd::Refused(_) = end {
        ue.with(|p| {
            if let Some(s) = p.sessions.get_mut(&psi) {
                s.qos.pending_change = s.qos.pending_change.take().filter(|w| **w != *pending);
            }
        });
    }
    end
}

/// The UPF refused the second half of a change that UE and gNB have made already: it is undone there.
async fn take_back(
    ue: Ue,
    psi: PduSessionId,
    pending: Box<PendingChange>,
    end: ProcedureEnd,
) -> ProcedureEnd {
    if !stands_at_upf(&end) {
        return end; // the session ends
    }
    let config = ue.config();
    let back = ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        Some((rule_change(&config.smf, session, &pending).undo(), PendingChange::of(session)))
    });
    let Some((at_upf, has)) = back else { return end };
    n4::post(ue, psi, at_upf);
    if let Some(step) = ModificationStep::between(ue, psi, &CommandToUe::by_network(), &pending, &has)
        && let Err(interrupted @ ProcedureEnd::Interrupted(_)) = command(ue, psi, step).await
    {
        return interrupted;
    }
    drop_pending(ue, psi, &pending, end)
}

#[derive(Clone, Copy)]
enum Half {
    Before,
    After,
}

/// The change of a session's rules at its UPF.
fn rule_change<'a>(smf: &Smf, session: &'a SmContext, pending: &'a PendingChange) -> RuleChange<'a> {
    let form = smf.rule_form(session.upf);
    RuleChange { session, flows: &pending.flows, ambr: pending.ambr, form }
}

async fn n4_half(ue: Ue, psi: PduSessionId, pending: &PendingChange, half: Half) -> Result<(), ProcedureEnd> {
    let config = ue.config();
    let request = ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        let change = rule_change(&config.smf, session, pending);
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

/// One step of a modification: the messages for UE and gNB.
struct ModificationStep {
    command: sm::Message,
    /// For the gNB, if it has the session and its parameters change.
    transfer: Option<Vec<u8>>,
}

impl ModificationStep {
    /// The step from the present state. `None` if there is nothing to do.
    fn towards(ue: Ue, psi: PduSessionId, to_ue: &CommandToUe, pending: &PendingChange) -> Option<Self> {
        let has = ue.with(|p| p.sessions.get(&psi).map(|s| PendingChange::of(s)))?;
        Self::between(ue, psi, to_ue, &has, pending)
    }

    fn between(
        ue: Ue,
        psi: PduSessionId,
        to_ue: &CommandToUe,
        from: &PendingChange,
        to: &PendingChange,
    ) -> Option<Self> {
        let lifetime = ue.config().timers.pdu_session_address_lifetime;
        let set_up = ue.amf().ue_state(ue).context_set_up;
        ue.with(|p| {
            let session = p.sessions.get_mut(&psi)?;
            session.pti = to_ue.pti;
            if to_ue.command.is_none() && from == to {
                return None;
            }
            let (rules, descriptions) = differences(from, to);
            let mut m = to_ue.command.as_ref().map_or_else(ModificationCommand::new, |c| (**c).clone());
            m.qos_rules = QosRules::new(&rules);
            m.qos_flow_descriptions = QosFlowDescriptions::new(&descriptions);
            m.session_ambr = (from.ambr != to.ambr).then(|| SessionAmbr {
                downlink: BitRate::from_kbps(to.ambr.dl_kbps),
                uplink: BitRate::from_kbps(to.ambr.ul_kbps),
            });
            if to.leaving && !from.leaving {
                reanchoring::add_lifetime(lifetime, &mut m);
            }
            let command = sm::Message::new(psi, to_ue.pti, m);
            let at_gnb = session.up == UpState::Active;
            let transfer = at_gnb.then(|| transfer(from, to)).flatten();
            Some(Self { command, transfer: transfer.filter(|_| set_up) })
        })
    }
}

/// The rules and descriptions for the UE (TS 24.501 §9.11.4.12, §9.11.4.13): deletions first, so that their identifiers are free.
fn differences(from: &PendingChange, to: &PendingChange) -> (Vec<QosRule>, Vec<QosFlowDescription>) {
    let (mut rules, mut descriptions) = (Vec::new(), Vec::new());
    if from.five_qi != to.five_qi {
        let operation = FlowOperation::Modify;
        let parameters = vec![FlowParameter::FiveQi(to.five_qi)];
        descriptions.push(QosFlowDescription { qfi: DEFAULT_QFI, operation, e_bit: true, parameters });
    }
    let to_ue = |w: &PendingChange| w.flows.iter().filter_map(QosFlow::for_ue).collect::<Vec<_>>();
    let (from, to) = (&to_ue(from), &to_ue(to));
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

/// The transfer for the gNB (TS 38.413 §9.3.4.3); `None` if its parameters do not change.
fn transfer(from: &PendingChange, to: &PendingChange) -> Option<Vec<u8>> {
    let mut t = PduSessionResourceModifyRequestTransfer::new();
    t.pdu_session_aggregate_maximum_bit_rate = (from.ambr != to.ambr)
        .then(|| PduSessionAggregateMaximumBitRate::new(bits(to.ambr.dl_kbps), bits(to.ambr.ul_kbps)));
    let mut change = |qfi, parameters| {
        let mut item = QosFlowAddOrModifyRequestItem::new(qfi);
        item.qos_flow_level_qos_parameters = Some(parameters);
        t.qos_flow_add_or_modify_request_list.push(item);
    };
    if (from.five_qi, from.arp) != (to.five_qi, to.arp) {
        change(DEFAULT_QFI, level_qos(to.five_qi, to.arp, None, false));
    }
    for flow in &to.flows {
        let old = from.flows.iter().find(|f| f.qfi == flow.qfi);
        if old.is_none_or(|o| o.differs_for_gnb(flow)) {
            change(flow.qfi, flow.level_qos());
        }
    }
    let gone = from.flows.iter().filter(|f| to.flows.iter().all(|g| g.qfi != f.qfi));
    t.qos_flow_to_release_list =
        gone.map(|f| QosFlowWithCauseItem::new(f.qfi, Cause::Nas(CauseNas::NormalRelease))).collect();
    (t != PduSessionResourceModifyRequestTransfer::new()).then(|| t.to_vec())
}

/// The state at the gNB of a change that the UE has made.
enum GnbHas {
    /// All except these flows, with their causes.
    AllBut(Vec<(Qfi, Cause)>),
    /// Unknown, for this reason: the session is set up again.
    Unknown(Refusal),
}

/// What a gNB refused of a modification, for its outcome.
#[derive(Default)]
struct AtGnb {
    failed_flows: Vec<FailedFlow>,
    refusal: Option<Refusal>,
}

impl AtGnb {
    /// Adds the flows that failed in one step. Returns their identifiers.
    fn add(&mut self, failed: Vec<(Qfi, Cause)>, pending: &PendingChange) -> Vec<Qfi> {
        let not_taken = failed.iter().map(|(qfi, _)| *qfi).collect();
        self.failed_flows.extend(failed.into_iter().map(|(qfi, cause)| FailedFlow {
            qfi,
            name: pending.flows.iter().find(|f| f.qfi == qfi).map(|f| f.name),
            cause: cause.in_words(),
        }));
        not_taken
    }
}

/// Steps 3 to 11: the command to UE and gNB, and their answers.
///
/// After the fifth expiry of T3591 the procedure is aborted (TS 24.501 §6.3.2.5 a). If the gNB has not answered by then, or
/// refuses a change that the UE has made, its resources are released and set up again with the new state, whatever it answers
/// later (TS 38.413 §8.2.3.3).
async fn command(ue: Ue, psi: PduSessionId, step: ModificationStep) -> Result<GnbHas, ProcedureEnd> {
    let ModificationStep { command, transfer } = step;
    let mut timer =
        RepeatedMessage::new("PDU SESSION MODIFICATION COMMAND", "T3591", ue.config().timers.t3591);
    let mut not_taken = if let Some(transfer) = transfer {
        ue.amf().n1_n2_message_transfer(ue, psi, Some(&command), N2SmInformation::Modify(transfer));
        None
    } else {
        super::send(ue, psi, command.clone());
        Some(Vec::new())
    };
    let mut completed = false;
    loop {
        if completed && let Some(not_taken) = not_taken {
            return Ok(GnbHas::AllBut(not_taken));
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
            // The UE has made the change: a gNB that refused, or is silent, is not asked again; the session is set up
            // there again.
            Ok(answer @ (None | Some(_))) if completed => {
                up_connection::give_up_at_gnb(ue, psi);
                let silent = Refusal::RadioFailure("no answer to PDU SESSION RESOURCE MODIFY REQUEST");
                return Ok(GnbHas::Unknown(answer.map_or(silent, |answer| refused_by_gnb(&answer))));
            }
            Ok(Some(answer)) => return Err(refused_by_gnb(&answer).into()),
            Ok(None) => super::send(ue, psi, command.clone()),
            Err(end) => {
                if not_taken.is_none() && matches!(end, ProcedureEnd::Refused(_)) {
                    up_connection::give_up_at_gnb(ue, psi);
                }
                return Err(end);
            }
        }
    }
}

fn failed_flows(transfer: &[u8]) -> Vec<(Qfi, Cause)> {
    let transfer = PduSessionResourceModifyResponseTransfer::decode(transfer);
    let failed = transfer.map(|t| t.qos_flow_failed_to_add_or_modify_list).unwrap_or_default();
    failed.into_iter().map(|f| (f.qos_flow_identifier, f.cause)).collect()
}

/// TS 38.413 §8.2.3.3: the session is in PDUSessionResourceFailedToModifyListModRes, with a cause.
fn refused_by_gnb(answer: &Input) -> Refusal {
    let cause = match answer {
        Input::N2Sm(_, transfer) => PduSessionResourceModifyUnsuccessfulTransfer::decode(transfer).ok(),
        _ => None,
    };
    Refusal::RefusedByGnb {
        message: "PDU SESSION RESOURCE MODIFY RESPONSE (PDUSessionResourceFailedToModifyListModRes)",
        cause: cause.map_or_else(|| "not readable".into(), |t| t.cause.in_words()),
    }
}

/// The change was not made: undoes it at the UPF, and at the gNB if that has made it. A refused change is dropped; an
/// interrupted one, which the UE may know, is made later.
fn undo(ue: Ue, psi: PduSessionId, pending: Box<PendingChange>, end: ProcedureEnd) -> ProcedureEnd {
    let config = ue.config();
    let back = ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        let change = rule_change(&config.smf, session, &pending);
        let at_gnb = session.up == UpState::Active && matches!(end, ProcedureEnd::Refused(_));
        Some((change.undo(), at_gnb.then(|| transfer(&pending, &PendingChange::of(session))).flatten()))
    });
    let Some((at_upf, at_gnb)) = back else { return end };
    n4::post(ue, psi, at_upf);
    if let Some(transfer) = at_gnb {
        ue.amf().n1_n2_message_transfer(ue, psi, None, N2SmInformation::Modify(transfer));
    }
    drop_pending(ue, psi, &pending, end)
}

/// Reports the outcome of a modification.
fn finish(
    ue: Ue,
    psi: PduSessionId,
    procedure: Procedure,
    began: whimbrel_ids::Instant,
    done: Result<AtGnb, ProcedureEnd>,
) {
    let more = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.qos.pending_change.is_some()));
    match done {
        Ok(AtGnb { failed_flows, refusal }) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Completed { procedure, subject, took: ue.now().since(began) });
            let outcome = SessionOutcome::Completed { failed_flows, not_at_gnb: refusal, more };
            operation::ended(ue, psi, procedure, outcome);
            ue.amf().arm_inactivity_timer(ue);
        }
        Err(ProcedureEnd::Interrupted(Interrupt::Superseded(_) | Interrupt::ConnectionLost)) => {}
        Err(ProcedureEnd::Interrupted(_)) => {}
        Err(ProcedureEnd::Refused(refusal)) => {
            let (gone, lost) = match &refusal {
                // The UE does not have the session (TS 24.501 §6.3.2.4).
                Refusal::ModificationRejected(c) => (*c == SmCause::InvalidPduSessionIdentity, false),
                // The UPF's state is unknown: the session is set up again. If it refused the change, the session stays.
                Refusal::Upf(_) => (false, !stands_at_upf(&ProcedureEnd::Refused(refusal.clone()))),
                _ => (false, false),
            };
            let outcome = SessionOutcome::Refused { refusal: refusal.clone(), more };
            operation::ended(ue, psi, procedure, outcome);
            super::refused(ue, procedure, refusal);
            super::sm_policy::settle(ue, psi, &[]);
            if gone {
                release_locally(ue, psi);
            } else if lost {
                release::by_network(ue, psi, SmCause::ReactivationRequested);
            }
            ue.amf().arm_inactivity_timer(ue);
        }
    }
}
