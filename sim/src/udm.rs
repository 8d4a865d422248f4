//! The remote UDM of the simulation, for a core whose configuration says [`UdmFunction::Remote`](whimbrel_control::config::UdmFunction::Remote).

use std::time::Duration;

use whimbrel_control::udm::{Directory, ServiceFault, UdmAnswer, UdmError, UdmRequest};
use whimbrel_control::{OutputId, UeId};
use whimbrel_ids::Supi;
use whimbrel_resilience::{Input, UdmQuery};

use crate::queue::InFlight;
use crate::{Sim, SimSubscribers};

/// One way between the core and the UDM, in microseconds: least, and greatest.
const LATENCY_MICROS: (u64, u64) = (300, 5_000);

/// How the remote UDM behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdmState {
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

/// The remote UDM.
pub struct RemoteUdm {
    directory: Directory,
    /// Subscribers of the UDM.
    pub subscribers: SimSubscribers,
    /// How it behaves.
    pub state: UdmState,
    /// The requests that have arrived, in order.
    pub requests: Vec<UdmRequest>,
}

impl RemoteUdm {
    pub(crate) fn new(directory: Directory) -> Self {
        Self {
            directory,
            subscribers: SimSubscribers::default(),
            state: UdmState::default(),
            requests: Vec::new(),
        }
    }
}

/// A message between the host of a CTA and the remote UDM.
#[derive(Debug)]
pub(crate) enum UdmMessage {
    Request { host: u64, query: UdmQuery },
    Answer { host: u64, ue: UeId, to: OutputId, exchange: Box<(UdmRequest, UdmAnswer)> },
}

impl Sim {
    /// The remote UDM.
    pub fn remote_udm(&mut self) -> &mut RemoteUdm {
        &mut self.remote_udm
    }

    /// The remote UDM notifies the AMF that a subscriber is registered elsewhere (TS 29.503 §5.3.2.3.2).
    pub fn deregister_by_udm(&mut self, supi: Supi) {
        self.cta_input(Input::DeregisteredByUdm(supi));
    }

    pub(crate) fn udm_leaves(&mut self, host: u64, queries: Vec<UdmQuery>) {
        for query in queries {
            self.over_udm_link(UdmMessage::Request { host, query });
        }
    }

    fn over_udm_link(&mut self, message: UdmMessage) {
        let (least, greatest) = LATENCY_MICROS;
        let latency = Duration::from_micros(least + self.rng.below(greatest - least));
        self.send(self.now + latency, InFlight::Udm(message));
    }

    pub(crate) fn udm_arrives(&mut self, message: UdmMessage) {
        match message {
            UdmMessage::Request { host, query: UdmQuery { ue, to, request } } => {
                let RemoteUdm { directory, subscribers, state, requests } = &mut self.remote_udm;
                if *state == UdmState::Silent {
                    return;
                }
                requests.push(request.clone());
                let answer = match state {
                    UdmState::Failing(fault) => failed(&request, *fault),
                    _ => directory.handle(self.now, ue, request.clone(), subscribers).answer,
                };
                if *state != UdmState::AnswersLost {
                    let exchange = Box::new((request, answer));
                    self.over_udm_link(UdmMessage::Answer { host, ue, to, exchange });
                }
            }
            // An answer to a host that was replaced is lost.
            UdmMessage::Answer { host, ue, to, exchange } => {
                if host == self.control.pair.host() && !self.has_no_cta() {
                    self.cta_input(Input::Udm(ue, to, exchange));
                }
            }
        }
    }
}

fn failed(request: &UdmRequest, fault: ServiceFault) -> UdmAnswer {
    let error = UdmError::Remote(fault);
    match request {
        UdmRequest::GenerateAuthData { .. } => UdmAnswer::AuthData(Err((error, None))),
        UdmRequest::Register(_) | UdmRequest::Subscription(_) => UdmAnswer::Registered(Err(error)),
        _ => UdmAnswer::Noted,
    }
}
