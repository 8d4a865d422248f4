//! PDU session modification: TS 23.502 §4.3.3.2, §4.3.5.1, TS 38.413 §8.2.3; NAS part TS 24.501 §6.3.2 (by the network), §6.4.2
//! (by the UE).
//!
//! What a session is to have stands in its context ([`PendingChange`]) until UE, gNB and UPF have it. So a change that meets an
//! idle UE, another procedure or the loss of the connection is not lost: it is made as soon as it can be.

use whimbrel_ids::{PduSessionId, Qfi};
use whimbrel_nas::ie::{
    BitRate, FlowOperation, FlowParameter, QosFlowDescription, QosFlowDescriptions, QosRule, QosRules,
    RuleOperation, SessionAmbr, SmCause,
};
use whimbrel_nas::sm::{self, ModificationCommand, ModificationReject, ModificationRequest, Pti};
use whimbrel_ngap::ie::{
    Cause, CauseNas, PduSessionAggregateMaximumBitRate, QosFlowAddOrModifyRequestItem, QosFlowWithCauseItem,
};
use whimbrel_ngap::transfer::{
    PduSessionResourceModifyRequestTransfer, PduSessionResourceModifyResponseTransfer,
    PduSessionResourceModifyUnsuccessfulTransfer,
};

use super::pending_change::{policies, want, without};
use super::qos::{Ground, level_qos};
use super::release::release_locally;
use super::requested_qos::{self, Terms};
use super::rule_change::Change;
use super::{n4, operation, pco, reanchoring, release, up_connection};
use crate::event::{Event, FailedFlow, SessionOutcome};
use crate::input::Input;
use crate::procedure::{End, Interrupt, Lane, Procedure, Repeated, Ue, attempt};
use crate::refusal::Refusal;
use crate::services::namf::N2SmInformation;
use crate::services::nsmf::N2Outcome;
use crate::state::{DEFAULT_QFI, PendingChange, QosFlow, UeContext, UpState, bits};

/// Whether a change waits for an idle UE.
pub(crate) fn has_pending_change(ue: &UeContext) -> bool {
    ue.sessions.values().any(|s| s.pending_change.is_some())
}

/// Begins the changes that can be made now: the UE is connected, and neither it nor the session is at something else.
pub(crate) fn begin_pending_changes(ue: Ue) {
    if !ue.with(|p| has_pending_change(p)) {
        return;
    }
    let ready: Vec<PduSessionId> = ue.with(|p| {
        let at_rest =
            matches!(p.lanes.procedure(Lane::Mobility), None | Some(Procedure::ConfigurationUpdate))
                && p.lanes.procedure(Lane::Handover).is_none(); // TS 23.502 §4.9.1.2.1: not while the gNB changes
        let there = p.amf.connection.as_ref().is_some_and(|c| c.secured) && p.amf.registered;
        let due = p.sessions.iter().filter(|(psi, s)| {
            s.pending_change.is_some() && p.lanes.procedure(Lane::Session(**psi)).is_none()
        });
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
        let Some(wanted) = ue.with(|p| p.sessions.get(&psi)?.pending_change.clone()) else { return };
        let began = ue.now();
        let done = modify(ue, psi, CommandToUe::by_network(), wanted).await;
        finish(ue, psi, procedure, began, done);
    });
}

/// The UE asks (TS 24.501 §6.4.2). Its request waits for what the session is at; collisions were judged before.
pub(super) fn by_ue(ue: Ue, psi: PduSessionId, pti: Pti, request: Box<ModificationRequest>) {
    let ue = ue.on(Lane::Session(psi));
    let procedure = Procedure::PduSessionModificationByUe;
    ue.follow(Lane::Session(psi), procedure, async move {
        let began = ue.now();
        let granted = match grant(ue, psi, &request) {
            Ok(granted) => granted,
            Err(cause) => return refuse(ue, psi, pti, cause, procedure),
        };
        let told = CommandToUe::in_answer(ue, psi, pti, &request);
        drop(request);
        want(ue, psi, |w| w.clone_from(&granted));
        let done = modify(ue, psi, told, granted).await;
        if let Err(End::Refused(Refusal::RadioFailure(_) | Refusal::RefusedByGnb { .. } | Refusal::Upf(_))) =
            &done
        {
            // The UE got no command, or it does not hold (TS 24.501 §6.4.2.4).
            let reject = ModificationReject::new(SmCause::InsufficientResources);
            super::send(ue, psi, sm::Message::new(psi, pti, reject));
        }
        finish(ue, psi, procedure, began, done);
    });
}

/// What the session has once the UE's request is granted (TS 24.501 §6.4.2.3). What a UE says of itself is kept.
fn grant(ue: Ue, psi: PduSessionId, request: &ModificationRequest) -> Result<Box<PendingChange>, SmCause> {
    let rules = request.qos_rules.as_ref().map_or(Ok(Vec::new()), QosRules::rules)?;
    let flows = request.qos_flow_descriptions.as_ref();
    let descriptions = flows.map_or(Ok(Vec::new()), QosFlowDescriptions::flows)?;
    let config = ue.config();
    ue.with(|p| {
        let s = p.sessions.get(&psi).ok_or(SmCause::InvalidPduSessionIdentity)?;
        let filters_max = request.max_packet_filters.map_or(s.filters_max, |m| m.value());
        let ground = Ground { filters_max, ..Ground::of(s, &config) };
        let terms = Terms { ground, policies: policies(p, s, &config) };
        let flows = requested_qos::grant(&terms, &s.flows, &rules, &descriptions)?;
        let wanted = Box::new(PendingChange { flows, ..PendingChange::of(s) });
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

/// Content of the command besides the change: in the answer to the UE's request, what it asked for.
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

/// Brings a session to what it is to have: TS 23.502 §4.3.3.2 steps 2a to 12. Flows that the gNB does not take are taken
/// back from the UE by a second round.
async fn modify(
    ue: Ue,
    psi: PduSessionId,
    mut told: CommandToUe,
    mut wanted: Box<PendingChange>,
) -> Result<AtGnb, End> {
    let mut at_gnb = AtGnb::default();
    loop {
        ue.amf().handover_over(ue).await?; // the gNB is asked where the UE then is (TS 38.413 §8.4.1.2)
        let Some(step) = Step::towards(ue, psi, &told, &wanted) else { return Ok(at_gnb) };
        if let Err(end) = n4_half(ue, psi, &wanted, Half::Before).await {
            return Err(unwanted(ue, psi, &wanted, end)); // step 2a: neither UE nor gNB has a command yet
        }
        let outcome = Box::pin(command(ue, psi, step)).await; // steps 3 to 11
        let not_taken = match outcome {
            Ok(GnbHas::AllBut(failed)) => at_gnb.add(failed, &wanted),
            Ok(GnbHas::Unknown(refusal)) => {
                at_gnb.refusal = Some(refusal);
                Vec::new()
            }
            Err(end) => return Err(undo(ue, psi, wanted, end)),
        };
        if let Err(end) = n4_half(ue, psi, &wanted, Half::After).await {
            return Err(Box::pin(take_back(ue, psi, wanted, end)).await); // step 12
        }
        keep(ue, psi, &wanted);
        without(ue, psi, &not_taken);
        want(ue, psi, |_| {}); // what it has it wants no more
        wanted.flows.retain(|f| !not_taken.contains(&f.qfi));
        told = CommandToUe::by_network();
    }
}

/// UE and UPF have it.
fn keep(ue: Ue, psi: PduSessionId, wanted: &PendingChange) {
    let until = ue.now() + ue.config().timers.pdu_session_address_lifetime;
    ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi) else { return };
        s.flows.clone_from(&wanted.flows);
        (s.ambr, s.five_qi, s.arp) = (wanted.ambr, wanted.five_qi, wanted.arp);
        if wanted.leaving && !s.is_leaving() {
            s.until = until;
        }
    });
}

/// Whether the UPF refused, and has the session as it was (TS 29.244 §6.3.3.3). One that does not answer, or has lost the session,
/// has not: its state is unknown.
fn stands_at_upf(end: &End) -> bool {
    let lost = whimbrel_pfcp::ie::Cause::SessionContextNotFound as u8;
    matches!(end, End::Refused(Refusal::Upf(Some(cause))) if *cause != lost)
}

/// What was refused is not tried again.
fn unwanted(ue: Ue, psi: PduSessionId, wanted: &PendingChange, end: End) -> End {
    if let End::Refused(_) = end {
        ue.with(|p| {
            if let Some(s) = p.sessions.get_mut(&psi) {
                s.pending_change = s.pending_change.take().filter(|w| **w != *wanted);
            }
        });
    }
    end
}

/// The UPF refused the second half of a change that UE and gNB have made already: they go back to what stands.
async fn take_back(ue: Ue, psi: PduSessionId, wanted: Box<PendingChange>, end: End) -> End {
    if !stands_at_upf(&end) {
        return end; // the session ends
    }
    let back = ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        Some((Change { session, flows: &wanted.flows, ambr: wanted.ambr }.undo(), PendingChange::of(session)))
    });
    let Some((at_upf, has)) = back else { return end };
    n4::post(ue, psi, at_upf);
    if let Some(step) = Step::between(ue, psi, &CommandToUe::by_network(), &wanted, &has)
        && let Err(interrupted @ End::Interrupted(_)) = command(ue, psi, step).await
    {
        return interrupted;
    }
    unwanted(ue, psi, &wanted, end)
}

#[derive(Clone, Copy)]
enum Half {
    Before,
    After,
}

async fn n4_half(ue: Ue, psi: PduSessionId, wanted: &PendingChange, half: Half) -> Result<(), End> {
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

/// One round of a modification: the messages for UE and gNB.
struct Step {
    command: sm::Message,
    /// For the gNB, where it has the session and sees a difference.
    transfer: Option<Vec<u8>>,
}

impl Step {
    /// From what the session has. `None` where there is nothing to do.
    fn towards(ue: Ue, psi: PduSessionId, told: &CommandToUe, wanted: &PendingChange) -> Option<Self> {
        let has = ue.with(|p| p.sessions.get(&psi).map(|s| PendingChange::of(s)))?;
        Self::between(ue, psi, told, &has, wanted)
    }

    fn between(
        ue: Ue,
        psi: PduSessionId,
        told: &CommandToUe,
        from: &PendingChange,
        to: &PendingChange,
    ) -> Option<Self> {
        let lifetime = ue.config().timers.pdu_session_address_lifetime;
        ue.with(|p| {
            let session = p.sessions.get_mut(&psi)?;
            session.pti = told.pti;
            if told.command.is_none() && from == to {
                return None;
            }
            let (rules, descriptions) = differences(from, to);
            let mut m = told.command.as_ref().map_or_else(ModificationCommand::new, |c| (**c).clone());
            m.qos_rules = QosRules::new(&rules);
            m.qos_flow_descriptions = QosFlowDescriptions::new(&descriptions);
            m.session_ambr = (from.ambr != to.ambr).then(|| SessionAmbr {
                downlink: BitRate::from_kbps(to.ambr.dl_kbps),
                uplink: BitRate::from_kbps(to.ambr.ul_kbps),
            });
            if to.leaving && !from.leaving {
                reanchoring::tell(lifetime, &mut m);
            }
            let command = sm::Message::new(psi, told.pti, m);
            let at_gnb = session.up == UpState::Active;
            let transfer = at_gnb.then(|| transfer(from, to)).flatten();
            let set_up = p.amf.connection.as_ref().is_some_and(|c| c.context_set_up);
            Some(Self { command, transfer: transfer.filter(|_| set_up) })
        })
    }
}

/// The rules and descriptions for the UE (TS 24.501 §9.11.4.12, §9.11.4.13): first deletions, so that their identifiers are free.
fn differences(from: &PendingChange, to: &PendingChange) -> (Vec<QosRule>, Vec<QosFlowDescription>) {
    let (mut rules, mut descriptions) = (Vec::new(), Vec::new());
    if from.five_qi != to.five_qi {
        let operation = FlowOperation::Modify;
        let parameters = vec![FlowParameter::FiveQi(to.five_qi)];
        descriptions.push(QosFlowDescription { qfi: DEFAULT_QFI, operation, e_bit: true, parameters });
    }
    let told = |w: &PendingChange| w.flows.iter().filter_map(QosFlow::for_ue).collect::<Vec<_>>();
    let (from, to) = (&told(from), &told(to));
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

/// The transfer for the gNB (TS 38.413 §9.3.4.3); `None` where it would see no difference.
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

/// What a gNB has of a change that the UE has made.
enum GnbHas {
    /// All but these flows, with the cause of each.
    AllBut(Vec<(Qfi, Cause)>),
    /// Unknown, for this reason: it gets the session again.
    Unknown(Refusal),
}

/// What a gNB did not take of a modification, for whoever wants to know its outcome.
#[derive(Default)]
struct AtGnb {
    failed_flows: Vec<FailedFlow>,
    refusal: Option<Refusal>,
}

impl AtGnb {
    /// Notes the flows that failed in one round. Gives their identifiers.
    fn add(&mut self, failed: Vec<(Qfi, Cause)>, wanted: &PendingChange) -> Vec<Qfi> {
        let not_taken = failed.iter().map(|(qfi, _)| *qfi).collect();
        self.failed_flows.extend(failed.into_iter().map(|(qfi, cause)| FailedFlow {
            qfi,
            name: wanted.flows.iter().find(|f| f.qfi == qfi).map(|f| f.name),
            cause: cause.in_words(),
        }));
        not_taken
    }
}

/// Steps 3 to 11: UE and gNB get the command, and both answer.
///
/// After the fifth expiry of T3591 the procedure is given up (TS 24.501 §6.3.2.5 a). A gNB that has not answered by then, or says
/// no to what the UE has, gives the session's resources up: whatever it answers later, they are set up anew as they are to be
/// (TS 38.413 §8.2.3.3).
async fn command(ue: Ue, psi: PduSessionId, step: Step) -> Result<GnbHas, End> {
    let Step { command, transfer } = step;
    let mut timer = Repeated::new("PDU SESSION MODIFICATION COMMAND", "T3591", ue.config().timers.t3591);
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
            // The UE has it: a gNB that has not, or does not answer, is not asked again but gets the session again.
            Ok(answer @ (None | Some(_))) if completed => {
                up_connection::give_up_at_gnb(ue, psi);
                let silent = Refusal::RadioFailure("no answer to PDU SESSION RESOURCE MODIFY REQUEST");
                return Ok(GnbHas::Unknown(answer.map_or(silent, |answer| refused_by_gnb(&answer))));
            }
            Ok(Some(answer)) => return Err(refused_by_gnb(&answer).into()),
            Ok(None) => super::send(ue, psi, command.clone()),
            Err(end) => {
                if not_taken.is_none() && matches!(end, End::Refused(_)) {
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

/// The change was not made: the UPF goes back, and a gNB that has it already too. One that was refused is not tried again; one
/// that was interrupted, and may be known to the UE, is made once it can be.
fn undo(ue: Ue, psi: PduSessionId, wanted: Box<PendingChange>, end: End) -> End {
    let back = ue.with(|p| {
        let session = p.sessions.get(&psi)?;
        let change = Change { session, flows: &wanted.flows, ambr: wanted.ambr };
        let at_gnb = session.up == UpState::Active && matches!(end, End::Refused(_));
        Some((change.undo(), at_gnb.then(|| transfer(&wanted, &PendingChange::of(session))).flatten()))
    });
    let Some((at_upf, at_gnb)) = back else { return end };
    n4::post(ue, psi, at_upf);
    if let Some(transfer) = at_gnb {
        ue.amf().n1_n2_message_transfer(ue, psi, None, N2SmInformation::Modify(transfer));
    }
    unwanted(ue, psi, &wanted, end)
}

/// How a modification ended.
fn finish(
    ue: Ue,
    psi: PduSessionId,
    procedure: Procedure,
    began: whimbrel_ids::Instant,
    done: Result<AtGnb, End>,
) {
    let more = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.pending_change.is_some()));
    match done {
        Ok(AtGnb { failed_flows, refusal }) => {
            let subject = ue.with(|p| p.subject());
            ue.event(Event::Completed { procedure, subject, took: ue.now().since(began) });
            let outcome = SessionOutcome::Completed { failed_flows, not_at_gnb: refusal, more };
            operation::ended(ue, psi, procedure, outcome);
            ue.amf().arm_inactivity_timer(ue);
        }
        Err(End::Interrupted(Interrupt::Superseded(_) | Interrupt::ConnectionLost)) => {}
        Err(End::Interrupted(_)) => {}
        Err(End::Refused(refusal)) => {
            let (gone, lost) = match &refusal {
                // The UE does not have the session (TS 24.501 §6.3.2.4).
                Refusal::ModificationRejected(c) => (*c == SmCause::InvalidPduSessionIdentity, false),
                // The UPF's state is unknown: the session is set up again. One that it refused to change stands.
                Refusal::Upf(_) => (false, !stands_at_upf(&End::Refused(refusal.clone()))),
                _ => (false, false),
            };
            let outcome = SessionOutcome::Refused { refusal: refusal.clone(), more };
            operation::ended(ue, psi, procedure, outcome);
            super::refused(ue, procedure, refusal);
            if gone {
                release_locally(ue, psi);
            } else if lost {
                release::by_network(ue, psi, SmCause::ReactivationRequested);
            }
            ue.amf().arm_inactivity_timer(ue);
        }
    }
}
