//! Checks of decoded values that the types do not enforce and procedures rely on: a faulty peer could send others.

use std::time::Duration;

use whimbrel_nas::ie::TAI_LIST_MAX;

use super::FlatError;
use crate::policy::{APPLICATION_NAME_MAX, FILTERS_MAX};
use crate::state::{
    ALLOWED_SLICES_MAX, Arp, DEFAULT_RULE, FlowRule, QosFlow, SmContext, Subscription, UeContext,
};

/// QoS flows of a session: their identifiers are of six bits, and one is the default flow's (TS 24.501 §9.11.4.12).
const FLOWS_MAX: usize = 63;
/// QoS rules of a session: their identifiers are of eight bits, none is zero, and one is the default rule's (TS 24.501
/// §9.11.4.13).
const RULES_MAX: usize = 254;

/// A session's markings: a DSCP is of six bits.
const MARKS_MAX: usize = 64;

/// The longest timer value that a UE can get: 31 times 320 hours (TS 24.008 §10.5.7.4a).
const TIMER_MAX: Duration = Duration::from_secs(31 * 320 * 3600);

/// Whether a decoded UE context is valid.
pub(super) fn check(ue: &UeContext) -> Result<(), FlatError> {
    ue.id.check()?;
    let amf = &ue.amf;
    let claims = [
        (ue.sessions.iter().all(|(psi, s)| s.psi == *psi), "a session under the identity of another"),
        (
            ue.intermediate_upfs.iter().all(|i| ue.sessions.contains_key(&i.psi)),
            "an intermediate UPF of a session that is not there",
        ),
        (
            ue.remote_sessions.are_bounded(),
            "a session of another SMF under the identity of another, or with too much work",
        ),
        (amf.location.registration_area.len() <= TAI_LIST_MAX, "too many tracking areas"),
        (amf.slices.allowed.len() <= ALLOWED_SLICES_MAX, "too many slices"),
        (amf.radio.paging_aid.as_ref().is_none_or(|aid| aid.is_bounded()), "too many places to page in"),
        (amf.location.requests.as_ref().is_none_or(|l| l.is_bounded()), "too many areas to watch"),
        (
            amf.reach.as_ref().is_none_or(|r| r.t3512.max(r.mico_active_time) <= Some(TIMER_MAX)),
            "too long a timer",
        ),
        (ue.remote_amf.as_ref().is_none_or(|r| r.is_bounded()), "too long a URI of an AMF"),
        (ue.sessions.values().all(|s| has_room(s)), "QoS flows, rules or filters that cannot be"),
        (ue.sessions.values().all(|s| is_prioritized(s)), "a session's ARP priority level that cannot be"),
        (
            amf.subscription.as_ref().is_none_or(|s| subscribes_priorities(s)),
            "a subscribed ARP priority level that cannot be",
        ),
    ];
    let wrong = claims.into_iter().find(|(holds, _)| !holds);
    wrong.map_or(Ok(()), |(_, what)| Err(FlatError::Contradiction(what)))
}

fn is_named(r: &FlowRule) -> bool {
    r.application.as_ref().is_none_or(|a| (1..=APPLICATION_NAME_MAX).contains(&a.len()))
}

fn has_room(s: &SmContext) -> bool {
    let fits = |flows: &[QosFlow]| {
        let rules = || flows.iter().flat_map(|f| &f.rules);
        flows.len() <= FLOWS_MAX
            && rules().count() <= RULES_MAX
            && rules().all(|r| r.id > DEFAULT_RULE && r.filters.len() <= FILTERS_MAX && is_named(r))
    };
    s.qos.marks.len() <= MARKS_MAX
        && fits(&s.qos.flows)
        && s.qos.pending_change.as_ref().is_none_or(|w| fits(&w.flows))
}

/// ARP priority levels are 1 to 15 (TS 23.501 §5.7.2.2, TS 38.413 §9.3.1.19).
fn is_level(arp: Arp) -> bool {
    (1..=15).contains(&arp.priority)
}

fn is_prioritized(s: &SmContext) -> bool {
    let pending = s.qos.pending_change.as_deref();
    let flows = s.qos.flows.iter().chain(pending.into_iter().flat_map(|p| &p.flows));
    let defaults = [s.qos.arp].into_iter().chain(pending.map(|p| p.arp));
    defaults.chain(flows.map(|f| f.arp)).all(is_level)
}

fn subscribes_priorities(s: &Subscription) -> bool {
    let dnns = || s.slices.iter().flat_map(|s| &s.dnns);
    dnns().map(|d| d.arp).chain(dnns().flat_map(|d| &d.flows).map(|f| f.arp)).all(is_level)
}
