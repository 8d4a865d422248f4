//! Seamless BFD on the host (RFC 7880, RFC 7881): the threads that probe and that answer, and what the core makes of a failure.
//!
//! Both threads run under SCHED_FIFO where the process may: an ordinary thread of a loaded host is held up for milliseconds, and would report or cause false
//! failures. Neither waits for a lock that an ordinary thread holds.

mod initiator;
mod peers;
mod reflector;

use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_resilience::sbfd::{SbfdCounters, SbfdDrop};

use crate::observation::{Metric, MetricSample};

pub use initiator::{SbfdProber, SbfdVerdict};
pub use peers::{PeerEvent, SbfdPeers};
pub use reflector::ReflectorThread;

/// Datagrams that a thread takes before it does something else.
const PER_TURN_MAX: usize = 64;
/// How long it sleeps after a turn that was full: a flood must not take a processor away from ordinary threads.
const FLOOD_PAUSE: Duration = Duration::from_millis(1);
/// How often a thread checks whether it is to end, if nothing is due before.
const STOP_CHECKED_EVERY: Duration = Duration::from_millis(200);
/// Room for a datagram: what is longer than a packet with authentication is cut, and then refused or ignored.
const DATAGRAM_OCTETS: usize = 64;

/// Gives this thread a real-time priority, if that is configured, and says what was reached. `name`: what the thread does.
fn take_priority(name: &str, configured: bool) -> bool {
    let reached = configured && whimbrel_user_io::run_in_real_time();
    match (configured, reached) {
        (_, true) => tracing::info!("the thread that {name} runs under SCHED_FIFO"),
        (true, false) => tracing::warn!(
            "the thread that {name} runs as an ordinary one: it has neither CAP_SYS_NICE nor RLIMIT_RTPRIO; a loaded host delays it by milliseconds, so false \
             failures are likely with less than 20 ms (docs/design/sbfd.md)"
        ),
        (false, false) => {}
    }
    reached
}

/// What initiators and reflectors of this process counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SbfdFigures {
    pub probing: SbfdCounters,
    pub reflecting: SbfdCounters,
    /// Peers that answer, and all that are probed.
    pub sessions: (u64, u64),
}

impl std::ops::Add for SbfdFigures {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            probing: self.probing + other.probing,
            reflecting: self.reflecting + other.reflecting,
            sessions: (self.sessions.0 + other.sessions.0, self.sessions.1 + other.sessions.1),
        }
    }
}

impl SbfdFigures {
    /// For the metrics.
    pub fn samples(self) -> impl Iterator<Item = MetricSample> {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let dropped = SbfdDrop::all().map(move |why| MetricSample {
            metric: Metric::SbfdDropped,
            label: Some(why.label().into()),
            value: self.probing.dropped(why) + self.reflecting.dropped(why),
        });
        let counts = [
            one(Metric::SbfdSessions, self.sessions.1),
            one(Metric::SbfdSessionsUp, self.sessions.0),
            one(Metric::SbfdProbes, self.probing.sent),
            one(Metric::SbfdAnswers, self.probing.accepted),
            one(Metric::SbfdReflected, self.reflecting.sent),
            one(Metric::SbfdFailures, self.probing.failures),
            one(Metric::SbfdDeferred, self.probing.deferred),
            one(Metric::SbfdLate, self.probing.late),
        ];
        counts.into_iter().chain(dropped)
    }
}

/// Logs each reason for which packets are dropped once an hour, when its counter has grown.
#[derive(Debug)]
pub struct DropLog {
    logged: crate::log_limiter::LogLimiter<SbfdDrop>,
    seen: SbfdCounters,
}

impl Default for DropLog {
    fn default() -> Self {
        Self { logged: crate::log_limiter::LogLimiter::new("S-BFD packets"), seen: SbfdCounters::default() }
    }
}

impl DropLog {
    pub fn log(&mut self, now: Instant, counters: SbfdCounters) {
        for why in SbfdDrop::all() {
            if counters.dropped(why) > self.seen.dropped(why) && self.logged.allows(now, why) {
                tracing::warn!(
                    "an S-BFD packet is dropped: {why}; further ones are only counted ({})",
                    Metric::SbfdDropped.name()
                );
            }
        }
        self.seen = counters;
    }
}
