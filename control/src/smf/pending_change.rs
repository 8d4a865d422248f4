//! The target state of a session, which a modification applies as soon as possible (TS 23.502 §4.3.3.2 step 1).

use whimbrel_ids::{PduSessionId, Qfi};
use whimbrel_nas::ie::{SmCause, SscMode};

use super::qos::{QosConstraints, flow_of};
use super::{operation, release, up_connection};
use crate::config::Config;
use crate::event::SessionOutcome;
use crate::policy::{FlowName, FlowPolicy, merged};
use crate::procedure::Ue;
use crate::state::{Modification, PendingChange, SmContext, UeContext};

/// Changes the target state of a session. Returns an outcome if that is its present state.
pub(super) fn set_pending(
    ue: Ue,
    psi: PduSessionId,
    change: impl FnOnce(&mut PendingChange),
) -> Option<SessionOutcome> {
    ue.with(|p| {
        let s = p.sessions.get_mut(&psi)?;
        let has = PendingChange::of(s);
        // Based on an earlier pending change, which is kept.
        let mut target = s.qos.pending_change.take().map_or_else(|| has.clone(), |w| *w);
        change(&mut target);
        s.qos.pending_change = (target != has).then(|| Box::new(target));
        s.qos.pending_change.is_none().then_some(SessionOutcome::Unchanged("the session is so already"))
    })
}

/// The operator changes a session (TS 23.502 §4.3.3.2 step 1d); an idle UE is paged. An order that needs no procedure, or cannot
/// be carried out, is answered at once.
pub(crate) fn by_operator(ue: Ue, psi: PduSessionId, modification: Modification) {
    let at_once = match modification {
        Modification::AddFlow(name) => add_flow(ue, psi, name),
        Modification::Reanchor => match ue.with(|p| p.sessions.get(&psi).map(|s| s.ssc_mode)) {
            Some(SscMode::Two) => return release::by_network(ue, psi, SmCause::ReactivationRequested),
            Some(SscMode::Three) => set_pending(ue, psi, |w| w.leaving = true),
            // TS 23.501 §5.6.9.2.1
            Some(SscMode::One) => {
                Some(SessionOutcome::NotPossible("a session of SSC mode 1 keeps its anchor"))
            }
            None => None,
        },
        Modification::RemoveFlow(name) => of_flow(ue, psi, name, |w| w.flows.retain(|f| f.name != name)),
        Modification::Ambr(ambr) => set_pending(ue, psi, |w| w.ambr = ambr),
        Modification::Gate(name, gate) => of_flow(ue, psi, name, |w| {
            w.flows.iter_mut().filter(|f| f.name == name).for_each(|f| f.gate = gate);
        }),
        Modification::Deactivate => match up_connection::deactivate_at_gnb(ue, psi) {
            true => return,
            false => Some(SessionOutcome::Unchanged("the session has no user plane")),
        },
        Modification::Release => return release::withdraw(ue, psi, SmCause::RegularDeactivation),
    };
    let at_once = match ue.with(|p| p.sessions.contains_key(&psi)) {
        true => at_once,
        false => Some(SessionOutcome::NotPossible("the session has ended")),
    };
    match at_once {
        Some(outcome) => operation::answered(ue, psi, modification, outcome),
        None => ue.amf().page_if_awaited(ue),
    }
}

fn add_flow(ue: Ue, psi: PduSessionId, name: FlowName) -> Option<SessionOutcome> {
    let config = ue.config();
    let flow = ue.with(|p| {
        let s = p.sessions.get(&psi)?;
        let known = s.qos.pending_change.as_ref().map_or(&s.qos.flows, |w| &w.flows);
        if known.iter().any(|f| f.name == name) {
            let under_way = s.qos.flows.iter().all(|f| f.name != name);
            return Some(if under_way {
                Ok(None)
            } else {
                Err(SessionOutcome::Unchanged("it has the flow"))
            });
        }
        let policies = policies(p, s, &config);
        let Some(policy) = policies.into_iter().find(|f| f.name == name) else {
            let why = "the policy of its data network has no flow of this name";
            return Some(Err(SessionOutcome::NotPossible(why)));
        };
        let why = "the flow does not fit the session: its type, its packet filters, or their precedence";
        Some(
            flow_of(policy, known, QosConstraints::of(s, &config))
                .map(Some)
                .ok_or(SessionOutcome::NotPossible(why)),
        )
    });
    match flow? {
        Ok(Some(flow)) => set_pending(ue, psi, |w| w.flows.push(flow)),
        Ok(None) => None,
        Err(outcome) => Some(outcome),
    }
}

/// A change of a flow that the session has, or that is pending.
fn of_flow(
    ue: Ue,
    psi: PduSessionId,
    name: FlowName,
    change: impl FnOnce(&mut PendingChange),
) -> Option<SessionOutcome> {
    let has = ue.with(|p| {
        let session = p.sessions.get(&psi);
        session.is_some_and(|s| {
            let pending = s.qos.pending_change.iter().flat_map(|w| &w.flows);
            s.qos.flows.iter().chain(pending).any(|f| f.name == name)
        })
    });
    if !has {
        return Some(SessionOutcome::NotPossible("the session has no flow of this name"));
    }
    set_pending(ue, psi, change)
}

/// Removes flows that the gNB could not set up, or has released (TS 23.502 §4.3.3.2 step 1e).
pub(super) fn without(ue: Ue, psi: PduSessionId, lost: &[Qfi]) {
    if !lost.is_empty() {
        set_pending(ue, psi, |w| w.flows.retain(|f| !lost.contains(&f.qfi)));
        super::sm_policy::settle(ue, psi, lost);
    }
}

/// The flow policies of a session.
pub(super) fn policies<'a>(p: &'a UeContext, s: &'a SmContext, config: &'a Config) -> Vec<&'a FlowPolicy> {
    if let Some(policy) = &s.policy {
        return policy.flows.iter().collect();
    }
    let network = config.smf.data_networks.get(&s.dnn).map_or(&[][..], |n| &n.flows);
    let slice = p.subscription().and_then(|sub| sub.slice(s.s_nssai));
    let dnn = slice.and_then(|slice| slice.dnns.iter().find(|d| d.dnn == s.dnn));
    merged(network, dnn.map_or(&[], |d| &d.flows)).collect()
}
