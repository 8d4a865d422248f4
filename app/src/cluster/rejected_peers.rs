//! Callers that are turned away. Anybody who reaches the port may call, so each address is told in the log once for each reason, and counted
//! from then on: the log is not theirs to fill.

use std::net::{IpAddr, SocketAddr};

use whimbrel_ids::Instant;

use crate::log_limiter::LogLimiter;

/// Those of one port.
#[derive(Debug)]
pub(super) struct RejectedPeers {
    told: LogLimiter<(IpAddr, &'static str)>,
    total: u64,
}

impl Default for RejectedPeers {
    fn default() -> Self {
        Self { told: LogLimiter::new("callers that are turned away"), total: 0 }
    }
}

impl RejectedPeers {
    /// One was turned away for a reason of this name. Whether that is to be told.
    pub(super) fn allows(&mut self, now: Instant, peer: SocketAddr, reason: &'static str) -> bool {
        self.total += 1;
        self.told.allows(now, (peer.ip(), reason))
    }

    /// How many were.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::log_limiter::LINES_MAX;

    #[test]
    fn each_address_and_reason_is_told_once_an_hour() {
        let mut rejected_peers = RejectedPeers::default();
        let (a, a_again) = ("192.0.2.1:5000".parse().unwrap(), "192.0.2.1:5001".parse().unwrap());
        let b = "192.0.2.2:5000".parse().unwrap();
        let at = |s: u64| Instant::ZERO + Duration::from_secs(s);
        assert!(rejected_peers.allows(at(9), a, "wrong_key"));
        assert!(!rejected_peers.allows(at(10), a_again, "wrong_key"), "it calls again");
        assert!(
            rejected_peers.allows(at(11), a, "no_greeting") && rejected_peers.allows(at(12), b, "wrong_key")
        );
        assert!(!rejected_peers.allows(at(3608), a, "wrong_key"));
        assert!(rejected_peers.allows(at(3609), a, "wrong_key"));
        assert_eq!(rejected_peers.total(), 6);
    }

    #[test]
    fn whoever_calls_from_many_addresses_fills_a_screen_and_no_log() {
        let mut rejected_peers = RejectedPeers::default();
        let from = |n: u32| SocketAddr::from((n.to_be_bytes(), 1));
        let told =
            (0..100_000).filter(|n| rejected_peers.allows(Instant::ZERO, from(*n), "wrong_key")).count();
        assert_eq!((told, rejected_peers.total()), (LINES_MAX, 100_000));
    }
}
