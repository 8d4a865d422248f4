//! Policies of a PCF for PDU sessions: TS 23.502 §4.16.4 to §4.16.6, TS 29.512 §4.2. A session has an association with the PCF from its
//! beginning to its end; PCC rules become QoS flows, and what the PCF changes is one more change of the session.

use whimbrel_ids::{PduSessionId, Qfi, Seid};
use whimbrel_nas::ie::SmCause;

use super::charging::subscriber;
use super::pending_change::{policies, set_pending};
use super::policy_change::{flows, terms};
use super::qos::QosConstraints;
use super::{modification, release};
use crate::config::FailureHandling;
use crate::envelope::Effect;
use crate::event::Event;
use crate::input::Input;
use crate::policy::FlowName;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::npcf::{
    PolicyAnswer, PolicyDecision, PolicyNotification, PolicyOperation, PolicyReport, PolicyRequest,
    PolicySession, PolicyTriggers, SessionRule,
};
use crate::services::{NfType, ServiceFault};
use crate::state::{PendingChange, SessionPolicy, Subscription};

/// The HTTP status of an association that the PCF does not have.
const NOT_FOUND: ServiceFault = ServiceFault::Status(404);

/// A request goes on where the UE loses its connection.
#[derive(Clone, Copy)]
struct WhileIdle(bool);

/// SM Policy Association Establishment (TS 23.502 §4.16.4): the session gets the PCF's policies before the UE has it.
pub(super) async fn associate(ue: Ue, psi: PduSessionId) -> Result<(), ProcedureEnd> {
    let Some(handling) = ue.config().smf.pcf else { return Ok(()) };
    if subscriber(ue, psi).is_none() {
        return Ok(());
    }
    match create(ue, psi, WhileIdle(false)).await? {
        PolicyAnswer::Decided(_) => {}
        PolicyAnswer::Denied(denial) => return Err(Refusal::Policy(denial).into()),
        PolicyAnswer::Failed(fault) => {
            let refusal = Refusal::NetworkFunction(NfType::Pcf, fault);
            if handling == FailureHandling::Terminate {
                return Err(refusal.into());
            }
            super::refused(ue, Procedure::PduSessionEstablishment, refusal);
        }
    }
    let Some(mut target) = target(ue, psi) else { return Err(Refusal::Protocol("the session ended").into()) };
    let applied = modification::modify_at_upf(ue, psi, target.clone()).await;
    // A UPF that lacks resources for guaranteed rates gets the session without them, and the PCF a report.
    if let Err(ProcedureEnd::Refused(Refusal::Upf(Some(_)))) = &applied
        && target.flows.iter().any(|flow| flow.gbr.is_some())
    {
        target.flows.retain(|flow| flow.gbr.is_none());
        modification::modify_at_upf(ue, psi, target).await?;
    } else {
        applied?;
    }
    settle(ue, psi, &[]);
    Ok(())
}

/// Npcf_SMPolicyControl_Create. If it fails, the session has the policy of its data network.
async fn create(ue: Ue, psi: PduSessionId, while_idle: WhileIdle) -> Result<PolicyAnswer, ProcedureEnd> {
    let tai = ue.amf().ue_state(ue).tai;
    let session = ue.with(|p| {
        let s = p.sessions.get_mut(&psi)?;
        s.policy.get_or_insert_default().reference = Box::default();
        let qos = &s.qos;
        let subscribed = SessionRule { ambr: Some(qos.ambr), default_qos: Some((qos.five_qi, qos.arp)) };
        let (dnn, s_nssai, session_type) = (s.dnn.clone(), s.s_nssai, s.session_type);
        Some(PolicySession { s_nssai, dnn, session_type, address: s.address, subscribed, tai })
    });
    let session = session.ok_or(Refusal::Protocol("the session ended"))?;
    let answer = ask(ue, psi, PolicyOperation::Create(session.into()), while_idle).await?;
    match &answer {
        PolicyAnswer::Decided(association) => {
            let reference = association.reference.clone();
            ue.with(|p| {
                if let Some(policy) = p.sessions.get_mut(&psi).and_then(|s| s.policy.as_mut()) {
                    **policy = SessionPolicy { reference, ..SessionPolicy::default() };
                }
            });
            decide(ue, psi, association.decision.clone());
        }
        // A PCF whose answer is late has an association that is to be deleted.
        PolicyAnswer::Denied(_) | PolicyAnswer::Failed(_) => {
            let taken = ue.with(|p| {
                let s = p.sessions.get_mut(&psi)?;
                Some((s.cp_seid, s.policy.take()?))
            });
            let timed_out = answer == PolicyAnswer::Failed(ServiceFault::TimedOut);
            if let Some((seid, policy)) = taken.filter(|_| timed_out) {
                end(ue, psi, seid, *policy);
            }
        }
    }
    Ok(answer)
}

/// Npcf_SMPolicyControl_Delete (TS 23.502 §4.16.6); nothing waits for it.
pub(super) fn end(ue: Ue, psi: PduSessionId, session: Seid, policy: SessionPolicy) {
    ue.with(|p| {
        let end = Interrupt::Superseded(Procedure::PduSessionReleaseByNetwork);
        p.lanes.interrupt(Lane::Policy(psi), end);
    });
    let Some(supi) = ue.with(|p| p.subject().supi) else { return };
    let operation = PolicyOperation::Delete { reference: policy.reference };
    ue.emit(Effect::Policy(PolicyRequest { supi, psi, session, operation }.into()), None);
}

/// An order of the PCF (TS 23.502 §4.16.5.2, §4.16.6).
pub(crate) fn notified(ue: Ue, psi: PduSessionId, notification: PolicyNotification) {
    let is_associated = ue.with(|p| {
        let policy = p.sessions.get(&psi).and_then(|s| s.policy.as_ref());
        policy.is_some_and(|policy| !policy.reference.is_empty())
    });
    match notification {
        _ if !is_associated => ue.update_batch(|b| b.no_effect = true),
        PolicyNotification::Changed(decision) => changed(ue, psi, decision),
        PolicyNotification::Terminated { reactivate: true } => {
            release::withdraw(ue, psi, SmCause::ReactivationRequested);
        }
        PolicyNotification::Terminated { reactivate: false } => {
            release::withdraw(ue, psi, SmCause::RegularDeactivation);
        }
    }
}

/// The session is modified as the PCF has decided; an idle UE is paged (TS 23.502 §4.3.3.2 step 1b).
fn changed(ue: Ue, psi: PduSessionId, decision: PolicyDecision) {
    decide(ue, psi, decision);
    if let Some(target) = target(ue, psi) {
        set_pending(ue, psi, |pending| {
            let PendingChange { flows, ambr, five_qi, arp, leaving: _ } = target;
            (pending.flows, pending.ambr, pending.five_qi, pending.arp) = (flows, ambr, five_qi, arp);
        });
        settle(ue, psi, &[]);
        ue.amf().page_if_awaited(ue);
    }
    report_due(ue, psi);
}

/// Takes a decision over into the session's policies.
fn decide(ue: Ue, psi: PduSessionId, decision: PolicyDecision) {
    let config = ue.config();
    ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi).map(|s| &mut **s) else { return };
        let predefined = config.smf.data_networks.get(&s.dnn).map_or(&[][..], |network| &network.flows);
        if let Some(policy) = &mut s.policy {
            policy.decide(decision, predefined, (s.qos.five_qi, s.qos.arp), s.address);
        }
    });
}

/// The session as its policies want it.
fn target(ue: Ue, psi: PduSessionId) -> Option<PendingChange> {
    let config = ue.config();
    ue.with(|p| {
        let s = p.sessions.get(&psi)?;
        let mut target = PendingChange::of(s);
        target.flows = flows(s, &policies(p, s, &config), QosConstraints::of(s, &config));
        if let Some(policy) = &s.policy {
            target.ambr = policy.session_rule.ambr.unwrap_or(target.ambr);
            (target.five_qi, target.arp) =
                policy.session_rule.default_qos.unwrap_or((target.five_qi, target.arp));
        }
        Some(target)
    })
}

/// Rules whose flows the session neither has nor is to get, and those of `lost` flows, are not in force: this is reported to the PCF.
pub(super) fn settle(ue: Ue, psi: PduSessionId, lost: &[Qfi]) {
    ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi).map(|s| &mut **s) else { return };
        let Some(policy) = &mut s.policy else { return };
        let pending = s.qos.pending_change.iter().flat_map(|pending| &pending.flows);
        let kept: Vec<FlowName> = s
            .qos
            .flows
            .iter()
            .filter(|flow| s.qos.pending_change.is_none() && !lost.contains(&flow.qfi))
            .chain(pending)
            .map(|flow| flow.name)
            .collect();
        let gone: Vec<FlowName> =
            policy.flows.iter().map(|flow| flow.name).filter(|name| !kept.contains(name)).collect();
        gone.into_iter().for_each(|name| policy.lose(name));
    });
    report_due(ue, psi);
}

/// Reports a changed subscription to a PCF that asked for the event (TS 29.512 §4.2.4.7).
pub(super) fn subscription_changed(ue: Ue, former: &Subscription) {
    let sessions: Vec<PduSessionId> = ue.with(|p| p.sessions.keys().copied().collect());
    for psi in sessions {
        ue.with(|p| {
            let Some(s) = p.sessions.get(&psi) else { return };
            let now = p.subscription().and_then(|subscription| terms(subscription, s));
            let before = terms(former, s);
            let Some((now, before)) = now.zip(before).map(|(now, before)| (now.clone(), before.clone()))
            else {
                return;
            };
            let Some(policy) = p.sessions.get_mut(&psi).and_then(|s| s.policy.as_mut()) else { return };
            let PolicyReport { triggers, subscribed, .. } = &mut policy.due;
            if now.session_ambr != before.session_ambr
                && policy.triggers.has(PolicyTriggers::SESSION_AMBR_CHANGE)
            {
                *triggers = triggers.with(PolicyTriggers::SESSION_AMBR_CHANGE);
                subscribed.ambr = Some(now.session_ambr);
            }
            if (now.five_qi, now.arp) != (before.five_qi, before.arp)
                && policy.triggers.has(PolicyTriggers::DEFAULT_QOS_CHANGE)
            {
                *triggers = triggers.with(PolicyTriggers::DEFAULT_QOS_CHANGE);
                subscribed.default_qos = Some((now.five_qi, now.arp));
            }
        });
        report_due(ue, psi);
    }
}

/// The PCF gets what is due.
pub(super) fn report_due(ue: Ue, psi: PduSessionId) {
    let is_due = ue.with(|p| {
        let policy = p.sessions.get(&psi).and_then(|s| s.policy.as_ref());
        policy.is_some_and(|policy| !policy.due.is_empty() && !policy.reference.is_empty())
            && p.lanes.procedure(Lane::Policy(psi)).is_none()
    });
    if is_due {
        let ue = ue.on(Lane::Policy(psi));
        ue.start(Lane::Policy(psi), Procedure::PolicyUpdate, update(ue, psi));
    }
}

/// SM Policy Association Modification (TS 23.502 §4.16.5.1), until nothing is due any more.
async fn update(ue: Ue, psi: PduSessionId) {
    loop {
        let due = ue.with(|p| {
            let policy = p.sessions.get_mut(&psi)?.policy.as_mut()?;
            let report = std::mem::take(&mut policy.due);
            (!report.is_empty()).then(|| (policy.reference.clone(), report))
        });
        let Some((reference, report_to_pcf)) = due else { return };
        let began = ue.now();
        let operation = PolicyOperation::Update { reference, report: report_to_pcf.into() };
        match ask(ue, psi, operation, WhileIdle(true)).await {
            Ok(PolicyAnswer::Decided(association)) => {
                changed(ue, psi, association.decision);
                let (procedure, subject) = (Procedure::PolicyUpdate, ue.with(|p| p.subject()));
                ue.event(Event::Completed { procedure, subject, took: ue.now().since(began) });
            }
            // A PCF that has lost the association gets another one.
            Ok(PolicyAnswer::Failed(NOT_FOUND)) => match create(ue, psi, WhileIdle(true)).await {
                Ok(PolicyAnswer::Decided(_)) => changed(ue, psi, PolicyDecision::default()),
                Ok(PolicyAnswer::Denied(denial)) => {
                    report(ue, Refusal::Policy(denial));
                    return release::withdraw(ue, psi, SmCause::RegularDeactivation);
                }
                Ok(PolicyAnswer::Failed(fault)) => {
                    report(ue, Refusal::NetworkFunction(NfType::Pcf, fault));
                    return match ue.config().smf.pcf {
                        Some(FailureHandling::Terminate) => {
                            release::withdraw(ue, psi, SmCause::RegularDeactivation)
                        }
                        // The data network's policy takes the place of the PCF's.
                        Some(FailureHandling::Continue) | None => changed(ue, psi, PolicyDecision::default()),
                    };
                }
                Err(_superseded) => return,
            },
            Ok(PolicyAnswer::Denied(denial)) => return report(ue, Refusal::Policy(denial)),
            // The policies stay as they are.
            Ok(PolicyAnswer::Failed(fault)) => {
                return report(ue, Refusal::NetworkFunction(NfType::Pcf, fault));
            }
            Err(_superseded) => return, // the session has ended
        }
    }
}

/// Asks a second time after half of the guard, since a takeover between question and answer loses the answer.
///
/// Of an association that is made twice, the node deletes the first.
async fn ask(
    ue: Ue,
    psi: PduSessionId,
    operation: PolicyOperation,
    WhileIdle(while_idle): WhileIdle,
) -> Result<PolicyAnswer, Interrupt> {
    let guard = ue.config().timers.guard;
    let failed = PolicyAnswer::Failed(ServiceFault::Busy);
    let session = ue.with(|p| p.sessions.get(&psi).map(|s| s.cp_seid));
    let Some((supi, session)) = subscriber(ue, psi).zip(session) else { return Ok(failed) };
    let request = PolicyRequest { supi, psi, session, operation };
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(ue.emit(Effect::Policy(request.clone().into()), None));
        let until = ue.now() + guard / 2;
        loop {
            match ue.any_answer(asked.clone(), until.since(ue.now())).await {
                Ok(Input::Policy(answer)) => return Ok(*answer),
                Err(Interrupt::ConnectionLost) if while_idle => {}
                Ok(_) | Err(Interrupt::TimedOut) => break,
                Err(other) => return Err(other),
            }
        }
    }
    Ok(PolicyAnswer::Failed(ServiceFault::TimedOut))
}

fn report(ue: Ue, refusal: Refusal) {
    super::refused(ue, Procedure::PolicyUpdate, refusal);
}
