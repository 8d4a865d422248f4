//! The PCF: the policies of sessions are the flows of data network and subscriber (TS 29.512).

use std::collections::BTreeMap;

use whimbrel_control::config::DataNetwork;
use whimbrel_control::policy::{Setup, merged};
use whimbrel_control::sm_policy::{
    PccRule, PolicyAnswer, PolicyAssociation, PolicyDecision, PolicyDenial, PolicyNotification,
    PolicyOperation, PolicyRequest, PolicyTriggers, RuleQos, SessionRule,
};
use whimbrel_control::udm::{ServiceFault, Subscribers, UdmError};
use whimbrel_ids::{Dnn, Instant, PduSessionId, SNssai, Supi};
use whimbrel_resilience::link::{FunctionAnswer, FunctionOrder, FunctionRequest, PolicyReference};
use whimbrel_store::Changes;

use super::{LOOKED_EVERY, Producer, RequestId};
use crate::config::Config;
use crate::core::StoredSubscribers;
use crate::subscribers;

/// Sessions whose policies are notified when they change: as many as an AMF may have UEs. A further session gets them with its next event.
const SESSIONS_MAX: usize = 1 << 20;

/// A session that has policies.
struct PolicySession {
    s_nssai: SNssai,
    dnn: Dnn,
    decision: PolicyDecision,
}

/// The flows, and the sessions that have been asked for.
pub(super) struct PcfProducer {
    data_networks: BTreeMap<Dnn, DataNetwork>,
    subscribers: StoredSubscribers,
    sessions: BTreeMap<(Supi, PduSessionId), PolicySession>,
    refresh_at: Instant,
}

impl PcfProducer {
    /// Opens the store. Errors: one sentence.
    pub(super) fn open(config: &Config) -> Result<Self, String> {
        Ok(Self {
            data_networks: config.control().smf.data_networks,
            subscribers: StoredSubscribers::new(subscribers::open(&config.store)?),
            sessions: BTreeMap::new(),
            refresh_at: Instant::ZERO,
        })
    }

    fn answer(&mut self, PolicyRequest { supi, psi, operation, .. }: PolicyRequest) -> PolicyAnswer {
        let (s_nssai, dnn) = match operation {
            PolicyOperation::Create(session) => (session.s_nssai, session.dnn),
            PolicyOperation::Update { reference, .. } => match PolicyReference::read(&reference) {
                Some(PolicyReference { s_nssai, dnn }) => (s_nssai, dnn),
                None => return PolicyAnswer::Denied(PolicyDenial::ContextDenied),
            },
            PolicyOperation::Delete { .. } => {
                self.sessions.remove(&(supi, psi));
                return PolicyAnswer::Decided(Box::default());
            }
        };
        match self.decide(supi, s_nssai, &dnn) {
            Ok(decision) => {
                let reference = PolicyReference { s_nssai, dnn: dnn.clone() }.to_string().into();
                if self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&(supi, psi)) {
                    let session = PolicySession { s_nssai, dnn, decision: decision.clone() };
                    self.sessions.insert((supi, psi), session);
                }
                PolicyAnswer::Decided(Box::new(PolicyAssociation { reference, decision }))
            }
            Err(answer) => answer,
        }
    }

    /// The whole decision for a session. Flows that UEs or the operator ask for are not in it.
    fn decide(&mut self, supi: Supi, s_nssai: SNssai, dnn: &Dnn) -> Result<PolicyDecision, PolicyAnswer> {
        let subscription = self.subscribers.subscription(supi).map_err(|e| match e {
            UdmError::UserNotFound | UdmError::Barred => PolicyAnswer::Denied(PolicyDenial::UserUnknown),
            _ => PolicyAnswer::Failed(ServiceFault::NotConnected),
        })?;
        let slice = subscription.slice(s_nssai);
        let subscribed = slice.and_then(|slice| slice.dnns.iter().find(|of| of.dnn == *dnn));
        let subscribed = subscribed.ok_or(PolicyAnswer::Denied(PolicyDenial::ContextDenied))?;
        let network = self.data_networks.get(dnn).map_or(&[][..], |network| &network.flows);
        let mut decision = PolicyDecision {
            session_rule: SessionRule {
                ambr: Some(subscribed.session_ambr),
                default_qos: Some((subscribed.five_qi, subscribed.arp)),
            },
            triggers: Some(PolicyTriggers::SESSION_AMBR_CHANGE.with(PolicyTriggers::DEFAULT_QOS_CHANGE)),
            ..PolicyDecision::default()
        };
        for flow in merged(network, &subscribed.flows).filter(|flow| flow.setup == Setup::Always) {
            let id: Box<str> = flow.name.as_str().into();
            let rule = PccRule {
                precedence: Some(flow.precedence.into()),
                filters: flow.filters.clone(),
                qos: Some(id.clone()),
                gate: Some(id.clone()),
                ..PccRule::default()
            };
            let qos = RuleQos {
                five_qi: Some(flow.five_qi),
                arp: Some(flow.arp),
                gbr: flow.gbr,
                is_default_flow: false,
            };
            decision.rules.push((id.clone(), Some(rule)));
            decision.qos.push((id.clone(), Some(qos)));
            decision.gates.push((id, Some(flow.gate)));
        }
        Ok(decision)
    }

    /// The sessions of these subscribers whose policies have changed. A session whose subscriber is gone keeps its policies until the SMF ends it.
    fn changed(&mut self, of: impl Fn(Supi) -> bool) -> Vec<FunctionOrder> {
        let affected = self.sessions.iter().filter(|((supi, _), _)| of(*supi));
        let affected: Vec<_> =
            affected.map(|(id, session)| (*id, session.s_nssai, session.dnn.clone())).collect();
        let mut orders = Vec::new();
        for ((supi, psi), s_nssai, dnn) in affected {
            let Ok(decision) = self.decide(supi, s_nssai, &dnn) else { continue };
            let Some(session) = self.sessions.get_mut(&(supi, psi)) else { continue };
            if session.decision == decision {
                continue;
            }
            let former = std::mem::replace(&mut session.decision, decision.clone());
            let notification = PolicyNotification::Changed(with_removals(former, decision));
            orders.push(FunctionOrder::Policy { supi, psi, notification });
        }
        orders
    }
}

impl Producer for PcfProducer {
    fn handle(
        &mut self,
        _now: Instant,
        _from: RequestId,
        request: FunctionRequest,
    ) -> Option<FunctionAnswer> {
        let FunctionRequest::Pcf(request) = request else { return None };
        Some(FunctionAnswer::Pcf(self.answer(request)))
    }

    fn turn(&mut self, now: Instant) -> (Vec<(RequestId, FunctionAnswer)>, Vec<FunctionOrder>) {
        if self.refresh_at > now {
            return (Vec::new(), Vec::new());
        }
        self.refresh_at = now + LOOKED_EVERY;
        let orders = match self.subscribers.refresh() {
            Ok(Changes::Some(supis)) => self.changed(|supi| supis.contains(&supi)),
            Ok(Changes::All) => self.changed(|_| true),
            // A store that fails says so with the next request.
            Ok(Changes::None) | Err(_) => Vec::new(),
        };
        (Vec::new(), orders)
    }
}

/// The new decision, with the entries that the former one has and it does not.
pub(super) fn with_removals(former: PolicyDecision, mut new: PolicyDecision) -> PolicyDecision {
    fn add<T>(former: Vec<(Box<str>, Option<T>)>, new: &mut Vec<(Box<str>, Option<T>)>) {
        for (id, _) in former {
            if new.iter().all(|(other, _)| *other != id) {
                new.push((id, None));
            }
        }
    }
    add(former.rules, &mut new.rules);
    add(former.qos, &mut new.qos);
    add(former.gates, &mut new.gates);
    new
}
