//! Peers whose links were rejected. Every host that reaches the port can connect, so each address is logged once for each reason and only
//! counted from then on: peers must not be able to fill the log.

use std::net::{IpAddr, SocketAddr};

use whimbrel_ids::Instant;

use crate::log_limiter::LogLimiter;

/// The rejected peers of one port.
#[derive(Debug)]
pub struct RejectedPeers {
    log: LogLimiter<(IpAddr, &'static str)>,
    total: u64,
}

impl Default for RejectedPeers {
    fn default() -> Self {
        Self { log: LogLimiter::new("links that are rejected"), total: 0 }
    }
}

impl RejectedPeers {
    /// Counts a rejected peer. Returns whether it is to be logged.
    pub fn allows(&mut self, now: Instant, peer: SocketAddr, reason: &'static str) -> bool {
        self.total += 1;
        self.log.allows(now, (peer.ip(), reason))
    }

    /// How many links were rejected.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::log_limiter::LINES_MAX;

    #[test]
    fn each_address_and_reason_is_logged_once_an_hour() {
        let mut rejected = RejectedPeers::default();
        let (a, a_again) = ("192.0.2.1:5000".parse().unwrap(), "192.0.2.1:5001".parse().unwrap());
        let b = "192.0.2.2:5000".parse().unwrap();
        let at = |s: u64| Instant::ZERO + Duration::from_secs(s);
        assert!(rejected.allows(at(9), a, "wrong_key"));
        assert!(!rejected.allows(at(10), a_again, "wrong_key"), "from another port");
        assert!(rejected.allows(at(11), a, "no_greeting") && rejected.allows(at(12), b, "wrong_key"));
        assert!(!rejected.allows(at(3608), a, "wrong_key"));
        assert!(rejected.allows(at(3609), a, "wrong_key"));
        assert_eq!(rejected.total(), 6);
    }

    #[test]
    fn links_from_many_addresses_do_not_fill_the_log() {
        let mut rejected = RejectedPeers::default();
        let from = |n: u32| SocketAddr::from((n.to_be_bytes(), 1));
        let logged = (0..100_000).filter(|n| rejected.allows(Instant::ZERO, from(*n), "wrong_key")).count();
        assert_eq!((logged, rejected.total()), (LINES_MAX, 100_000));
    }
}
