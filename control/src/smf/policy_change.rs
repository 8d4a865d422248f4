//! Subscription or policy change of an existing session: it is modified (TS 23.502 §4.3.3.2 steps 1b and 1c), or released if
//! it is no longer allowed (TS 23.502 §4.3.4.2 step 1b).

use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::{PduSessionType, SmCause};

use super::pending_change::{policies, set_pending};
use super::qos::{Numbering, QosConstraints, flow_of};
use super::release;
use crate::config::{Config, DataNetwork};
use crate::policy::{FlowPolicy, Setup};
use crate::procedure::Ue;
use crate::state::{Ambr, Arp, FlowRule, QosFlow, SmContext, SubscribedDnn, Subscription, UeContext};

/// What is done with a session.
enum PolicyVerdict {
    /// Release: it is no longer allowed, or not with its parameters.
    Release(SmCause),
    /// Modify: its flows and, if changed, AMBR, and 5QI and priority of the default flow.
    Change { flows: Vec<QosFlow>, ambr: Option<Ambr>, default: Option<(whimbrel_ids::FiveQi, Arp)> },
}

/// Nudm_SDM_Notification to the SMF (step 1c): the UE's subscription has changed.
pub(crate) fn subscription_changed(ue: Ue, former: &Subscription) {
    apply_policies(ue, Some(former));
}

/// Npcf_SMPolicyControl_UpdateNotify (step 1b): the operator's policy of data networks is in the configuration.
pub(crate) fn policy_changed(ue: Ue) {
    apply_policies(ue, None);
}

fn apply_policies(ue: Ue, former: Option<&Subscription>) {
    let config = ue.config();
    let verdicts: Vec<(PduSessionId, PolicyVerdict)> = ue.with(|p| {
        // Not for emergency sessions, and not for one that is being set up, which gets the new policy.
        let sessions = p.sessions.values().filter(|s| !s.emergency && s.n3.is_some());
        sessions.map(|s| (s.psi, judge(p, s, &config, former))).collect()
    });
    for (psi, verdict) in verdicts {
        match verdict {
            PolicyVerdict::Release(cause) => release::withdraw(ue, psi, cause),
            PolicyVerdict::Change { flows, ambr, default } => {
                set_pending(ue, psi, |w| {
                    w.flows = flows;
                    w.ambr = ambr.unwrap_or(w.ambr);
                    (w.five_qi, w.arp) = default.unwrap_or((w.five_qi, w.arp));
                });
            }
        }
    }
    if let Some(former) = former {
        super::sm_policy::subscription_changed(ue, former);
    }
    ue.amf().page_if_awaited(ue);
}

fn judge(p: &UeContext, s: &SmContext, config: &Config, former: Option<&Subscription>) -> PolicyVerdict {
    let network = config.smf.data_networks.get(&s.dnn);
    let now = p.subscription().and_then(|n| terms(n, s));
    let (Some(network), Some(now)) = (network, now) else {
        return PolicyVerdict::Release(SmCause::RegularDeactivation);
    };
    // The UE sets it up again, or is rejected with a cause.
    if !is_allowed(s.session_type, network, now) || static_address_changed(s, now) {
        return PolicyVerdict::Release(SmCause::ReactivationRequested);
    }
    // Keeps other changes by the operator or the policy.
    // A PCF decides on these itself.
    let before = former.and_then(|f| terms(f, s)).filter(|_| s.policy.is_none());
    let ambr = before.filter(|b| b.session_ambr != now.session_ambr).map(|_| now.session_ambr);
    let default = before.filter(|b| (b.five_qi, b.arp) != (now.five_qi, now.arp));
    let default = default.map(|_| (now.five_qi, now.arp));
    PolicyVerdict::Change {
        flows: flows(s, &policies(p, s, config), QosConstraints::of(s, config)),
        ambr,
        default,
    }
}

/// What the UE subscribes to for a session that it has; an emergency session's terms are the operator's.
pub(super) fn subscribed(ue: Ue, psi: PduSessionId) -> Option<SubscribedDnn> {
    let config = ue.config();
    ue.with(|p| {
        let s = p.sessions.get(&psi)?;
        match &config.amf.access.emergency {
            Some(emergency) if s.emergency => Some(emergency.terms()),
            _ => terms(p.subscription()?, s).cloned(),
        }
    })
}

pub(super) fn terms<'a>(subscription: &'a Subscription, s: &SmContext) -> Option<&'a SubscribedDnn> {
    subscription.slice(s.s_nssai)?.dnns.iter().find(|d| d.dnn == s.dnn)
}

fn is_allowed(session_type: PduSessionType, network: &DataNetwork, subscribed: &SubscribedDnn) -> bool {
    let types = subscribed.session_types;
    let (ipv4, ipv6) = (network.ipv4 && types.ipv4, network.ipv6 && types.ipv6);
    match session_type {
        PduSessionType::Ipv4 => ipv4,
        PduSessionType::Ipv6 => ipv6,
        PduSessionType::Ipv4v6 => ipv4 && ipv6,
        PduSessionType::Ethernet => network.ethernet && types.ethernet,
        PduSessionType::Unstructured => network.unstructured && types.unstructured,
    }
}

/// Whether the subscriber's static address has changed.
fn static_address_changed(s: &SmContext, subscribed: &SubscribedDnn) -> bool {
    let (v4, v6) = super::families(s.session_type);
    v4 && subscribed.static_ipv4.is_some_and(|a| s.address.ipv4 != Some(a))
        || v6 && subscribed.static_ipv6.is_some_and(|a| s.address.ipv6 != Some(a))
}

/// A session's flows under the new policy: existing ones are updated, flows for each session are added, and flows without
/// policy are removed.
pub(super) fn flows(s: &SmContext, policies: &[&FlowPolicy], ground: QosConstraints<'_>) -> Vec<QosFlow> {
    let standing = s.qos.pending_change.as_ref().map_or(&s.qos.flows, |w| &w.flows);
    let of = |f: &QosFlow| policies.iter().find(|p| p.name == f.name);
    let mut flows: Vec<QosFlow> = standing.iter().filter(|f| of(f).is_some()).cloned().collect();
    for at in 0..flows.len() {
        let flow = flows[at].clone();
        let Some(policy) = of(&flow) else { continue };
        if flow.of_ue {
            flows[at] = within(flow, policy);
            continue;
        }
        let others: Vec<QosFlow> = flows.iter().filter(|f| f.qfi != flow.qfi).cloned().collect();
        // Unchanged if its filters no longer fit.
        let Some(new) = flow_of(policy, &others, ground) else { continue };
        let rules = renamed(new.rules, &flow.rules, &flows);
        // Gates are the operator's to change, or the PCF's.
        let gate = if s.policy.is_some() { new.gate } else { flow.gate };
        flows[at] = QosFlow { qfi: flow.qfi, gate, fulfilled: flow.fulfilled, rules, ..new };
    }
    // Flows that the UE may no longer request are removed.
    flows.retain(|f| !f.of_ue || of(f).is_some_and(|p| p.setup == Setup::OnRequest));
    for policy in policies.iter().filter(|p| p.setup == Setup::Always) {
        if flows.iter().all(|f| f.name != policy.name) {
            flows.extend(flow_of(policy, &flows, ground));
        }
    }
    flows
}

/// The new rules of a flow; the rule with filters, and that of each application, keeps its identifier.
fn renamed(new: Vec<FlowRule>, former: &[FlowRule], flows: &[QosFlow]) -> Vec<FlowRule> {
    let mut free = Numbering::new(flows).rules();
    let rules = new.into_iter().filter_map(|rule| {
        let known = former.iter().find(|old| old.application == rule.application);
        Some(FlowRule { id: known.map(|old| old.id).or_else(|| free.next())?, ..rule })
    });
    rules.collect()
}

/// The UE's requested rates, limited by the new policy.
fn within(flow: QosFlow, policy: &FlowPolicy) -> QosFlow {
    let least =
        |a: Ambr, b: Ambr| Ambr { ul_kbps: a.ul_kbps.min(b.ul_kbps), dl_kbps: a.dl_kbps.min(b.dl_kbps) };
    let gbr = match (flow.gbr, policy.gbr) {
        (Some(has), Some(most)) => Some(crate::policy::Gbr {
            guaranteed: least(has.guaranteed, most.guaranteed),
            maximum: least(has.maximum, most.maximum),
        }),
        (_, gbr) => gbr,
    };
    QosFlow { five_qi: policy.five_qi, arp: policy.arp, gbr, ..flow }
}
