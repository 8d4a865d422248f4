//! What a session is to have: the wishes that a modification makes true as soon as it can (TS 23.502 §4.3.3.2 step 1).

use serde::{Deserialize, Serialize};
use whimbrel_ids::{FiveQi, PduSessionId, Qfi};
use whimbrel_nas::ie::{SmCause, SscMode};

use super::context::SmContext;
use super::qos::{Ground, QosFlow, flow_of};
use super::{release, up_connection};
use crate::amf;
use crate::config::Config;
use crate::phone::Phone;
use crate::policy::{FlowGate, FlowName, FlowPolicy, merged};
use crate::shard::Ue;
use crate::udm::{Ambr, Arp};

/// What a session is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Its QoS flows beside the default one.
    pub flows: Vec<QosFlow>,
    /// Its AMBR.
    pub ambr: Ambr,
    /// 5QI of its default QoS flow.
    pub five_qi: FiveQi,
    /// Priority of its default QoS flow.
    pub arp: Arp,
    /// The phone was told to set its successor up (TS 23.502 §4.3.5.2).
    pub leaving: bool,
}

impl Wanted {
    /// What a session has.
    pub(super) fn of(s: &SmContext) -> Self {
        let (ambr, five_qi, arp) = (s.ambr, s.five_qi, s.arp);
        Self { flows: s.flows.clone(), ambr, five_qi, arp, leaving: s.is_leaving() }
    }
}

/// What an operator changes in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Modification {
    /// Sets up the flow that the policy has under this name.
    AddFlow(FlowName),
    /// Takes down the flow of this name.
    RemoveFlow(FlowName),
    /// Gives it this AMBR.
    Ambr(Ambr),
    /// Moves a session of SSC mode 2 or 3 to another anchor: it is released, and the phone asks anew (TS 23.502 §4.3.5.1); or
    /// the phone asks for its successor first (TS 23.502 §4.3.5.2).
    Reanchor,
    /// Opens or closes the gates of the flow of this name (TS 29.244 §5.4.3).
    Gate(FlowName, FlowGate),
    /// Lets its user plane go; the phone stays connected (TS 23.502 §4.3.7).
    Deactivate,
    /// Ends it (TS 23.502 §4.3.4.2 step 1e).
    Release,
}

/// Changes what a session is to have. Nothing happens where that is what it has.
pub(super) fn want(ue: Ue, psi: PduSessionId, change: impl FnOnce(&mut Wanted)) {
    ue.with(|p| {
        let Some(s) = p.sessions.get_mut(&psi) else { return };
        let has = Wanted::of(s);
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
                flow_of(policy, known, Ground::of(s, &config))
            });
            want(ue, psi, |w| w.flows.extend(flow));
        }
        Modification::Reanchor => match ue.with(|p| p.sessions.get(&psi).map(|s| s.ssc_mode)) {
            Some(SscMode::Two) => return release::by_network(ue, psi, SmCause::ReactivationRequested),
            Some(SscMode::Three) => want(ue, psi, |w| w.leaving = true),
            Some(SscMode::One) | None => return, // its anchor stays (TS 23.501 §5.6.9.2.1)
        },
        Modification::RemoveFlow(name) => want(ue, psi, |w| w.flows.retain(|f| f.name != name)),
        Modification::Ambr(ambr) => want(ue, psi, |w| w.ambr = ambr),
        Modification::Gate(name, gate) => want(ue, psi, |w| {
            w.flows.iter_mut().filter(|f| f.name == name).for_each(|f| f.gate = gate);
        }),
        Modification::Deactivate => return up_connection::let_go(ue, psi),
        Modification::Release => return release::withdraw(ue, psi, SmCause::RegularDeactivation),
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
pub(super) fn policies<'a>(p: &'a Phone, s: &SmContext, config: &'a Config) -> Vec<&'a FlowPolicy> {
    let network = config.smf.data_networks.get(&s.dnn).map_or(&[][..], |n| &n.flows);
    let slice = p.amf.subscription.as_ref().and_then(|sub| sub.slice(s.s_nssai));
    let dnn = slice.and_then(|slice| slice.dnns.iter().find(|d| d.dnn == s.dnn));
    merged(network, dnn.map_or(&[], |d| &d.flows)).collect()
}
