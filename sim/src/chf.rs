//! The CHF of the simulation, for data networks with charging: prepaid credit in octets, given in parts.

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_control::charging::{
    ChargingAnswer, ChargingDenial, ChargingGrant, ChargingOperation, ChargingRequest, FinalUnitAction,
    GrantedQuota, UsedUnits,
};
use whimbrel_control::{OutputId, ServiceFault, UeId};
use whimbrel_ids::Supi;
use whimbrel_resilience::{ChargingQuery, Input};

use crate::Sim;
use crate::queue::InFlight;

/// One way between the core and the CHF, in microseconds: least, and greatest.
const LATENCY_MICROS: (u64, u64) = (300, 5_000);

/// How the CHF behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChfState {
    /// Requests are answered.
    #[default]
    Answering,
    /// Requests are lost.
    Silent,
    /// Requests are executed, and the answers are lost.
    AnswersLost,
    /// The core's HTTP client reports this instead of an answer.
    Failing(ServiceFault),
}

/// A charging session at the CHF.
#[derive(Debug, Default)]
struct ChfSession {
    /// Octets that are granted and not reported as used.
    reserved: u64,
    /// Answers by invocationSequenceNumber: a request that comes again gets the same one.
    answers: BTreeMap<u32, ChargingAnswer>,
    ended: bool,
}

/// The CHF of all simulated data networks.
#[derive(Debug)]
pub struct SimChf {
    /// How it behaves.
    pub state: ChfState,
    /// Octets that each subscriber has left and that are not reserved. Subscribers that are not in it are unknown.
    pub credit: BTreeMap<Supi, u64>,
    /// Octets of a grant.
    pub part: u64,
    /// The threshold of each quota, in octets before its end.
    pub threshold: Option<u64>,
    /// Octets that were used, by subscriber.
    pub used: BTreeMap<Supi, u64>,
    /// The requests that have arrived, in order.
    pub requests: Vec<ChargingRequest>,
    sessions: BTreeMap<u32, ChfSession>,
}

impl Default for SimChf {
    fn default() -> Self {
        Self {
            state: ChfState::default(),
            credit: BTreeMap::new(),
            part: 100_000,
            threshold: None,
            used: BTreeMap::new(),
            requests: Vec::new(),
            sessions: BTreeMap::new(),
        }
    }
}

impl SimChf {
    /// Charging sessions that have not ended.
    pub fn open_sessions(&self) -> usize {
        self.sessions.values().filter(|s| !s.ended).count()
    }

    fn handle(&mut self, request: &ChargingRequest) -> ChargingAnswer {
        let ChargingRequest { supi, charging_id, sequence, operation, .. } = request;
        if let Some(answer) = self.sessions.get(charging_id).and_then(|s| s.answers.get(sequence)) {
            return answer.clone();
        }
        let Some(credit) = self.credit.get_mut(supi) else {
            return ChargingAnswer::Denied(ChargingDenial::UserUnknown);
        };
        let session = self.sessions.entry(*charging_id).or_default();
        if let ChargingOperation::Update { used, .. } | ChargingOperation::Release { used, .. } = operation {
            let UsedUnits { uplink, downlink, .. } = used;
            *self.used.entry(*supi).or_default() += uplink + downlink;
            *credit = (*credit + session.reserved).saturating_sub(uplink + downlink);
            session.reserved = 0;
        }
        let answer = match operation {
            ChargingOperation::Release { .. } => {
                session.ended = true;
                ChargingAnswer::Granted(ChargingGrant::default().into())
            }
            ChargingOperation::Update { last: true, .. } => {
                ChargingAnswer::Granted(ChargingGrant::default().into())
            }
            _ if *credit == 0 => {
                session.ended |= matches!(operation, ChargingOperation::Create(..));
                ChargingAnswer::Denied(ChargingDenial::QuotaLimitReached)
            }
            ChargingOperation::Create(..) | ChargingOperation::Update { .. } => {
                let part = self.part.min(*credit);
                (*credit, session.reserved) = (*credit - part, part);
                let quota = GrantedQuota {
                    total: Some(part),
                    volume_threshold: self.threshold,
                    last: (*credit == 0).then_some(FinalUnitAction::Terminate),
                    ..GrantedQuota::default()
                };
                let reference = format!("{charging_id:08x}").into();
                ChargingAnswer::Granted(ChargingGrant { reference, quota: Some(quota) }.into())
            }
        };
        session.answers.insert(*sequence, answer.clone());
        answer
    }
}

/// A message between the host of a CTA and the CHF.
#[derive(Debug)]
pub(crate) enum ChfMessage {
    Request { host: u64, query: ChargingQuery },
    Answer { host: u64, ue: UeId, to: OutputId, answer: Box<ChargingAnswer> },
}

impl Sim {
    /// The CHF, for tests to look at and to disturb.
    pub fn chf(&mut self) -> &mut SimChf {
        &mut self.chf
    }

    pub(crate) fn charging_leaves(&mut self, host: u64, queries: Vec<ChargingQuery>) {
        for query in queries {
            self.over_chf_link(ChfMessage::Request { host, query });
        }
    }

    fn over_chf_link(&mut self, message: ChfMessage) {
        let (least, greatest) = LATENCY_MICROS;
        let latency = Duration::from_micros(least + self.rng.below(greatest - least));
        self.send(self.now + latency, InFlight::Charging(message));
    }

    pub(crate) fn charging_arrives(&mut self, message: ChfMessage) {
        match message {
            ChfMessage::Request { host, query: ChargingQuery { ue, to, request } } => {
                let state = self.chf.state;
                if state == ChfState::Silent {
                    return;
                }
                self.chf.requests.push(request.clone());
                let answer = match state {
                    ChfState::Failing(fault) => ChargingAnswer::Failed(fault),
                    _ => self.chf.handle(&request),
                };
                if state != ChfState::AnswersLost {
                    let answer = Box::new(answer);
                    self.over_chf_link(ChfMessage::Answer { host, ue, to, answer });
                }
            }
            // An answer to a host that was replaced is lost.
            ChfMessage::Answer { host, ue, to, answer } => {
                if host == self.control.pair.host() && !self.has_no_cta() {
                    self.cta_input(Input::Charging(ue, to, answer));
                }
            }
        }
    }
}
