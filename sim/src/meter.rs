//! The core's processing time, by a clock that the caller passes in.

use whimbrel_resilience::{Input, Outbox};

/// A message that the core has received or sent.
#[derive(Clone, Debug)]
pub enum Wire {
    /// An NGAP message.
    N2(Vec<u8>),
    /// A PFCP message.
    N4(Vec<u8>),
}

impl Wire {
    /// Octets of the message.
    pub fn octets(&self) -> &[u8] {
        match self {
            Self::N2(octets) | Self::N4(octets) => octets,
        }
    }
}

/// The core's work since the meter was last read.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Time within the core, in the clock's nanoseconds.
    pub nanos: u64,
    /// Time within UPFs.
    pub upf_nanos: u64,
    /// Inputs from outside.
    pub inputs: u64,
    /// Messages that the core received.
    pub received: Vec<Wire>,
    /// Messages that the core sent.
    pub sent: Vec<Wire>,
}

pub(crate) struct WorkMeter {
    clock: fn() -> u64,
    began: u64,
    pub(crate) work: Work,
}

impl WorkMeter {
    pub(crate) fn new(clock: fn() -> u64) -> Self {
        Self { clock, began: 0, work: Work::default() }
    }

    pub(crate) fn begin(&mut self, input: &Input<'_>) {
        match input {
            Input::Ngap(_, _, octets) => self.work.received.push(Wire::N2(octets.to_vec())),
            Input::Pfcp(_, octets) => self.work.received.push(Wire::N4(octets.to_vec())),
            _ => {}
        }
        self.work.inputs += 1;
        self.began = (self.clock)();
    }

    /// A UPF has worked since then.
    pub(crate) fn upf(&mut self, since: u64) {
        self.work.upf_nanos += (self.clock)().saturating_sub(since);
    }

    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    pub(crate) fn end(&mut self, out: &Outbox) {
        self.work.nanos += (self.clock)().saturating_sub(self.began);
        self.work.sent.extend(out.ngap.iter().map(|(_, _, octets)| Wire::N2(octets.clone())));
        self.work.sent.extend(out.pfcp.iter().map(|(_, octets)| Wire::N4(octets.clone())));
    }
}
