//! One path of an association: round-trip time, congestion window, timers, reachability (RFC 9260 §6.3, §7, §8.2).

use core::time::Duration;
use std::net::IpAddr;

use whimbrel_ids::Instant;

use crate::config::Config;
use crate::outbox::Path;

/// Initial window when packets are small, in octets (RFC 9260 §7.2.1).
const INITIAL_WINDOW_OCTETS: usize = 4404;

/// A HEARTBEAT that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) nonce: u64,
    pub(crate) sent: Instant,
    pub(crate) deadline: Instant,
}

/// RTT estimate and congestion window of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathMeasurements {
    pub(crate) srtt: Option<Duration>,
    pub(crate) rttvar: Duration,
    pub(crate) rto: Duration,
    pub(crate) cwnd: usize,
    pub(crate) ssthresh: usize,
}

/// State of one path.
#[derive(Clone, Debug)]
pub(crate) struct PathState {
    pub(crate) path: Path,
    /// Whether it answers (RFC 9260 §8.2).
    pub(crate) active: bool,
    /// Whether the peer proved that the address is its own (RFC 9260 §5.4).
    pub(crate) confirmed: bool,
    /// Unanswered transmissions in a row.
    pub(crate) errors: u32,
    srtt: Option<Duration>,
    rttvar: Duration,
    pub(crate) rto: Duration,
    pub(crate) cwnd: usize,
    pub(crate) ssthresh: usize,
    partial_acked: usize,
    /// Octets of user data in flight.
    pub(crate) flight: usize,
    /// While one SACK is handled: octets in flight before it, octets that it acknowledged, whether it reported a loss.
    pub(crate) flight_before: usize,
    pub(crate) acked_now: usize,
    pub(crate) lost_now: bool,
    /// The retransmission timer T3-rtx.
    pub(crate) t3: Option<Instant>,
    pub(crate) heartbeat: Option<Heartbeat>,
    /// When the next HEARTBEAT is due, if the path stays idle.
    pub(crate) heartbeat_due: Instant,
    /// When DATA was last sent on it.
    pub(crate) last_data_sent: Instant,
    /// Largest packet, SCTP header included.
    pub(crate) max_packet_octets: usize,
}

impl PathState {
    pub(crate) fn new(path: Path, confirmed: bool, now: Instant, config: &Config) -> Self {
        let packet_max = max_packet_octets(path, config);
        Self {
            path,
            active: true,
            confirmed,
            errors: 0,
            srtt: None,
            rttvar: Duration::ZERO,
            rto: config.rto_initial,
            cwnd: (4 * packet_max).min((2 * packet_max).max(INITIAL_WINDOW_OCTETS)),
            ssthresh: usize::MAX,
            partial_acked: 0,
            flight: 0,
            flight_before: 0,
            acked_now: 0,
            lost_now: false,
            t3: None,
            heartbeat: None,
            heartbeat_due: if confirmed { now + config.rto_initial + config.heartbeat_interval } else { now },
            last_data_sent: now,
            max_packet_octets: packet_max,
        }
    }

    /// Updates SRTT, RTTVAR and RTO from one round trip (RFC 9260 §6.3.1, RFC 6298 §2).
    pub(crate) fn update_rto(&mut self, rtt: Duration, config: &Config) {
        let srtt = match self.srtt {
            None => {
                self.rttvar = rtt / 2;
                rtt
            }
            Some(srtt) => {
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4;
                (srtt * 7 + rtt) / 8
            }
        };
        self.srtt = Some(srtt);
        self.rto = (srtt + self.rttvar * 4).clamp(config.rto_min, config.rto_max);
    }

    /// RTT estimate and congestion window, for the process that takes over.
    pub(crate) fn export_measurements(&self) -> PathMeasurements {
        let Self { srtt, rttvar, rto, cwnd, ssthresh, .. } = *self;
        PathMeasurements { srtt, rttvar, rto, cwnd, ssthresh }
    }

    /// Restores the measurements of the previous process, clamped to this endpoint's limits.
    pub(crate) fn restore_measurements(&mut self, before: PathMeasurements, config: &Config) {
        /// A minute; no round trip is longer than the largest RTO of any configuration.
        const LONGEST: Duration = Duration::from_secs(60);
        self.srtt = before.srtt.map(|srtt| srtt.min(LONGEST));
        self.rttvar = before.rttvar.min(LONGEST);
        self.rto = before.rto.clamp(config.rto_min, config.rto_max);
        self.cwnd =
            before.cwnd.clamp(self.max_packet_octets, config.send_buffer_octets.max(self.max_packet_octets));
        self.ssthresh = before.ssthresh.max(4 * self.max_packet_octets);
    }

    /// The smoothed round-trip time, once measured.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// A timer expired: RTO doubles (RFC 9260 §6.3.3 E2).
    pub(crate) fn back_off(&mut self, config: &Config) {
        self.rto = (self.rto * 2).min(config.rto_max);
    }

    /// The T3-rtx timer expired (RFC 9260 §7.2.3).
    pub(crate) fn handle_t3_rtx_expiry(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(4 * self.max_packet_octets);
        self.cwnd = self.max_packet_octets;
        self.partial_acked = 0;
    }

    /// Gap reports have shown a loss (RFC 9260 §7.2.4).
    pub(crate) fn halve_window(&mut self) {
        self.ssthresh = (self.cwnd / 2).max(4 * self.max_packet_octets);
        self.cwnd = self.ssthresh;
        self.partial_acked = 0;
    }

    /// A SACK advanced the Cumulative TSN Ack Point (RFC 9260 §7.2.1, §7.2.2).
    pub(crate) fn open_window(&mut self) {
        let (acked, flight_before) = (self.acked_now, self.flight_before);
        if self.cwnd <= self.ssthresh {
            if flight_before >= self.cwnd {
                self.cwnd += acked.min(self.max_packet_octets);
            }
        } else {
            self.partial_acked += acked;
            if self.partial_acked >= self.cwnd && flight_before >= self.cwnd {
                self.partial_acked -= self.cwnd;
                self.cwnd += self.max_packet_octets;
            }
            self.partial_acked = self.partial_acked.min(self.cwnd);
        }
        if self.flight == 0 {
            self.partial_acked = 0;
        }
    }

    /// Before DATA leaves: a window not used for a while shrinks (RFC 9260 §7.2.1).
    pub(crate) fn decay_idle_window(&mut self, now: Instant) {
        let mut idle = now.since(self.last_data_sent);
        let floor = 4 * self.max_packet_octets;
        while self.flight == 0 && idle >= self.rto && self.cwnd > floor {
            self.cwnd = (self.cwnd / 2).max(floor);
            idle = idle.saturating_sub(self.rto);
        }
        self.last_data_sent = now;
    }

    /// The earliest of its timers.
    pub(crate) fn deadline(&self) -> Instant {
        let t3 = self.t3.unwrap_or(Instant::FAR_FUTURE);
        t3.min(self.heartbeat.map_or(self.heartbeat_due, |h| h.deadline))
    }
}

/// The largest SCTP packet that the MTU leaves room for on a path, a multiple of four octets.
pub(crate) fn max_packet_octets(path: Path, config: &Config) -> usize {
    let ip = if matches!(path.remote, IpAddr::V4(_)) { 20 } else { 40 };
    let udp = if path.udp_port == 0 { 0 } else { 8 };
    (usize::from(config.mtu_octets) - ip - udp) & !3
}

/// Selects the local address for a remote one: same family, longest common prefix; the unspecified address if
/// there is none.
pub(crate) fn suitable_local(locals: &[IpAddr], remote: IpAddr) -> IpAddr {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    };
    let mut best: Option<(u32, IpAddr)> = None;
    for local in locals.iter().copied().filter(|l| l.is_ipv4() == remote.is_ipv4()) {
        let common = (bits(local) ^ bits(remote)).leading_zeros();
        if best.is_none_or(|(c, _)| common > c) {
            best = Some((common, local));
        }
    }
    best.map_or(
        if remote.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        },
        |(_, local)| local,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> PathState {
        let p = Path { local: [127, 0, 0, 1].into(), remote: [127, 0, 0, 1].into(), udp_port: 0 };
        PathState::new(p, true, Instant::ZERO, &Config::new(1))
    }

    #[test] // RFC 9260 §6.3.1
    fn rto_follows_the_round_trip_within_its_bounds() {
        let mut p = path();
        let config = Config { rto_min: Duration::from_millis(10), ..Config::new(1) };
        p.update_rto(Duration::from_millis(100), &config);
        assert_eq!(p.rto, Duration::from_millis(300));
        p.update_rto(Duration::from_millis(100), &config);
        assert_eq!(p.rto, Duration::from_millis(250));
        for _ in 0..100 {
            p.update_rto(Duration::from_micros(50), &config);
        }
        assert_eq!(p.rto, config.rto_min);
        for _ in 0..20 {
            p.back_off(&config);
        }
        assert_eq!(p.rto, config.rto_max);
    }

    #[test] // RFC 9260 §7.2.1: no growth unless the window was full
    fn window_grows_only_when_used() {
        let mut p = path();
        let cwnd = p.cwnd;
        (p.acked_now, p.flight_before) = (1000, cwnd - 1);
        p.open_window();
        assert_eq!(p.cwnd, cwnd);
        (p.acked_now, p.flight_before) = (1_000_000, cwnd);
        p.open_window();
        assert_eq!(p.cwnd, cwnd + p.max_packet_octets);
        p.handle_t3_rtx_expiry();
        assert_eq!(p.cwnd, p.max_packet_octets);
        assert_eq!(p.ssthresh, 4 * p.max_packet_octets);
    }

    #[test] // RFC 9260 §7.2.1: halved for each RTO of silence, not below four packets
    fn idle_window_shrinks() {
        let mut p = path();
        p.cwnd = 1_000_000;
        p.decay_idle_window(Instant::ZERO + Duration::from_secs(1));
        assert_eq!(p.cwnd, 500_000);
        p.decay_idle_window(Instant::ZERO + Duration::from_secs(1000));
        assert_eq!(p.cwnd, 4 * p.max_packet_octets);
    }

    #[test]
    fn local_address_with_the_longest_common_prefix() {
        let locals = [[10, 0, 1, 1].into(), [192, 168, 0, 1].into(), "fd00::1".parse().unwrap()];
        assert_eq!(suitable_local(&locals, [192, 168, 0, 9].into()), locals[1]);
        assert_eq!(suitable_local(&locals, "fd00::9".parse().unwrap()), locals[2]);
        assert!(suitable_local(&[], [1, 1, 1, 1].into()).is_unspecified());
    }
}
