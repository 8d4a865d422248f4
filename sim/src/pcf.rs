//! The PCF of the simulation, with the SMF's client of it: policies for sessions, and orders in mid-session.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_control::sm_policy::{
    PolicyAnswer, PolicyAssociation, PolicyDecision, PolicyDenial, PolicyNotification, PolicyOperation,
    PolicyRequest,
};
use whimbrel_control::{OutputId, ServiceFault, UeId};
use whimbrel_ids::{PduSessionId, Seid, Supi};
use whimbrel_resilience::{Input, PolicyQuery};

use crate::Sim;
use crate::queue::InFlight;

/// One way between the core and the PCF, in microseconds: least, and greatest.
const LATENCY_MICROS: (u64, u64) = (300, 5_000);

/// How the PCF behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PcfState {
    /// Requests are answered.
    #[default]
    Answering,
    /// Requests are lost.
    Silent,
    /// Requests are executed, and the answers are lost.
    AnswersLost,
    /// Creations are lost, and other requests are answered.
    SilentToCreate,
    /// The core's HTTP client reports this instead of an answer.
    Failing(ServiceFault),
}

/// The PCF of all simulated sessions.
#[derive(Debug, Default)]
pub struct SimPcf {
    /// How it behaves.
    pub state: PcfState,
    /// The policies of sessions that begin.
    pub decision: PolicyDecision,
    /// Sessions are refused.
    pub denial: Option<PolicyDenial>,
    /// The requests that have arrived, in order.
    pub requests: Vec<PolicyRequest>,
    /// The associations that are open. One that is made twice for a session replaces the first, as the SMF's client sees to it.
    associations: BTreeMap<(Supi, PduSessionId, Seid), Box<str>>,
    made: u32,
}

impl SimPcf {
    /// Associations that have not been deleted.
    pub fn open_associations(&self) -> usize {
        self.associations.len()
    }

    /// Loses its associations.
    pub fn forget(&mut self) {
        self.associations.clear();
    }

    fn handle(&mut self, request: &PolicyRequest) -> PolicyAnswer {
        let key = (request.supi, request.psi, request.session);
        let known = self.associations.get(&key);
        match &request.operation {
            PolicyOperation::Create(_) => {
                if let Some(denial) = self.denial {
                    return PolicyAnswer::Denied(denial);
                }
                self.made += 1;
                let reference: Box<str> = format!("{}", self.made).into();
                self.associations.insert(key, reference.clone());
                let decision = self.decision.clone();
                PolicyAnswer::Decided(PolicyAssociation { reference, decision }.into())
            }
            PolicyOperation::Update { reference, .. } if known != Some(reference) => {
                PolicyAnswer::Failed(ServiceFault::Status(404))
            }
            PolicyOperation::Update { .. } => PolicyAnswer::Decided(Box::default()),
            PolicyOperation::Delete { reference } => {
                if reference.is_empty() || known == Some(reference) {
                    self.associations.remove(&key);
                }
                PolicyAnswer::Decided(Box::default())
            }
        }
    }
}

/// A message between the host of a CTA and the PCF.
#[derive(Debug)]
pub(crate) enum PcfMessage {
    Request { host: u64, query: PolicyQuery },
    Answer { host: u64, ue: UeId, to: OutputId, answer: Box<PolicyAnswer> },
}

impl Sim {
    /// The PCF, for tests to look at and to disturb.
    pub fn pcf(&mut self) -> &mut SimPcf {
        &mut self.pcf
    }

    /// The PCF sends an order for a session.
    pub fn pcf_notifies(&mut self, supi: Supi, psi: PduSessionId, notification: PolicyNotification) {
        if let Some(ue) = self.cta().find(supi) {
            self.cta_input(Input::PolicyNotified(ue, psi, notification.into()));
        }
    }

    pub(crate) fn policy_leaves(&mut self, host: u64, queries: Vec<PolicyQuery>) {
        for query in queries {
            self.over_pcf_link(PcfMessage::Request { host, query });
        }
    }

    fn over_pcf_link(&mut self, message: PcfMessage) {
        let (least, greatest) = LATENCY_MICROS;
        let latency = Duration::from_micros(least + self.rng.below(greatest - least));
        self.send(self.now + latency, InFlight::Policy(message));
    }

    pub(crate) fn policy_arrives(&mut self, message: PcfMessage) {
        match message {
            PcfMessage::Request { host, query: PolicyQuery { ue, to, request } } => {
                let state = self.pcf.state;
                let is_create = matches!(request.operation, PolicyOperation::Create(_));
                if state == PcfState::Silent || state == PcfState::SilentToCreate && is_create {
                    return;
                }
                self.pcf.requests.push(request.clone());
                let answer = match state {
                    PcfState::Failing(fault) => PolicyAnswer::Failed(fault),
                    _ => self.pcf.handle(&request),
                };
                if state != PcfState::AnswersLost {
                    let answer = Box::new(answer);
                    self.over_pcf_link(PcfMessage::Answer { host, ue, to, answer });
                }
            }
            // An answer to a host that was replaced is lost.
            PcfMessage::Answer { host, ue, to, answer } => {
                if host == self.control.pair.host() && !self.has_no_cta() {
                    self.cta_input(Input::Policy(ue, to, answer));
                }
            }
        }
    }
}
