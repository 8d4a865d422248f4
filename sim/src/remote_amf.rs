//! An AMF of another vendor, as the core sees it: a test has its requests sent, and reads what comes back.

use std::collections::BTreeMap;

use whimbrel_control::remote_amf::{
    AmfRequest, SmContextAnswer, SmContextExchange, SmContextOperation, SmContextRequest,
};
use whimbrel_resilience::{AmfQuery, Input};

use crate::Sim;

/// The AMF's record of what it has received.
#[derive(Debug, Default)]
pub struct SimRemoteAmf {
    /// The answers to its requests; each should come once.
    pub answers: BTreeMap<SmContextExchange, Vec<SmContextAnswer>>,
    /// Requests of the SMF, in order.
    pub requests: Vec<AmfRequest>,
    exchanges: u64,
}

impl Sim {
    /// The AMF of another vendor, for tests to look at.
    pub fn remote_amf(&mut self) -> &mut SimRemoteAmf {
        &mut self.remote_amf
    }

    /// The AMF sends a request.
    pub fn remote_amf_asks(&mut self, operation: SmContextOperation) -> SmContextExchange {
        self.remote_amf.exchanges += 1;
        let exchange = SmContextExchange(self.remote_amf.exchanges);
        let request = SmContextRequest { exchange, operation };
        self.cta_input(Input::SmContextRequested(request.into()));
        exchange
    }

    pub(crate) fn remote_amf_gets(
        &mut self,
        queries: Vec<AmfQuery>,
        answers: Vec<(SmContextExchange, Box<SmContextAnswer>)>,
    ) {
        for (exchange, answer) in answers {
            self.remote_amf.answers.entry(exchange).or_default().push(*answer);
        }
        // An AMF's answer that the messages were sent has no effect.
        self.remote_amf.requests.extend(queries.into_iter().map(|query| query.request));
    }
}
