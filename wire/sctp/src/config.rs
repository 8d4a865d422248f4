//! The settings of an endpoint.

use core::time::Duration;
use std::net::IpAddr;

/// Settings of an [`Endpoint`](crate::Endpoint). `Config::new(port)` has the defaults named on each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Our SCTP port. Packets to other ports are not ours and are ignored.
    pub port: u16,
    /// Our addresses. With two or more, those that suit the peer are listed in INIT and INIT ACK (multihoming).
    pub local_addresses: Vec<IpAddr>,
    /// Whether a peer's INIT may open an association (a server). Default: yes.
    pub accept_inbound: bool,
    /// Outbound streams asked for. Default 32: stream 0 and enough others to keep UEs from waiting for each other.
    pub outbound_streams: u16,
    /// Inbound streams granted at most. Default 1024; two octets of memory each.
    pub inbound_streams_max: u16,
    /// Largest IP packet sent, IP (and UDP) header included, in octets. Default 1500.
    pub mtu_octets: u16,
    /// RTO before any measurement. Default 1 s (RFC 9260 §16).
    pub rto_initial: Duration,
    /// Smallest RTO. Deviation: 400 ms instead of 1 s (RFC 9260 §16): backhaul is short, and 400 ms is still twice
    /// the 200 ms for which common peers delay a SACK.
    pub rto_min: Duration,
    /// Largest RTO. Deviation: 10 s instead of 60 s, so that a peer's return is noticed within seconds.
    pub rto_max: Duration,
    /// Idle time between HEARTBEATs of a path, to which its RTO is added. Deviation: 10 s instead of 30 s, so that a dead gNB is
    /// noticed sooner. Zero switches heartbeats of confirmed paths off.
    ///
    /// A peer on one path that falls silent is noticed after at most this interval, one RTO, and `association_max_retrans` + 1
    /// timeouts: the RTO, which doubles from one to the next up to `rto_max`.
    pub heartbeat_interval: Duration,
    /// Unanswered transmissions in a row, over all paths, before the association is given up (RFC 9260 §8.1). Default 10. A peer
    /// with several confirmed paths may leave as many unanswered as `path_max_retrans` allows all of them together.
    pub association_max_retrans: u32,
    /// Unanswered transmissions in a row before a path counts as down. Default 5.
    pub path_max_retrans: u32,
    /// INIT or COOKIE ECHO retransmissions before a connect fails. Default 8.
    pub init_max_retrans: u32,
    /// How long a state cookie is valid. Default 60 s (RFC 9260 §16).
    pub cookie_life: Duration,
    /// How long a SACK may be delayed. Default zero: DATA is acknowledged at the next flush, because peers that
    /// leave Nagle's algorithm on hold their next message until the last is acknowledged.
    pub sack_delay: Duration,
    /// Most octets held for one association, out of order or unassembled; the window offered. Default 256 KiB.
    pub receive_window_octets: u32,
    /// Most octets queued for one association, sent or not, until acknowledged. Default 1 MiB.
    pub send_buffer_octets: usize,
    /// Most packets of new DATA that one flush sends to one association. Deviation: 16 instead of Max.Burst 4
    /// (RFC 9260 §6.1), because a gNB's burst of UEs is answered in one flush.
    pub burst_packets_max: u16,
    /// Most associations at once. Default 4096.
    pub associations_max: usize,
    /// Whether DATA is acknowledged only after the user has released it ([`Endpoint::release`](crate::Endpoint::release)), which it must
    /// do within a small part of a peer's smallest RTO. Default: no.
    pub hold_acknowledgements: bool,
    /// Adaptation code point by which this endpoint and its peers agree on the upper-layer protocol (RFC 5061 §4.2.6). The side that connects
    /// sends it; the other side sends it only to peers that sent the same, so that peers without it see nothing new. Default: none.
    pub adaptation: Option<u32>,
    /// Whether unacknowledged messages are handed back when an association ends
    /// ([`Event::Unacknowledged`](crate::Event::Unacknowledged)). Default: no.
    pub return_unacknowledged: bool,
    /// Whether a successor may continue the associations ([`Endpoint::export`](crate::Endpoint::export)), which has to be called then.
    /// Default: no.
    pub export: bool,
}

impl Config {
    /// The defaults, for an endpoint at `port`.
    pub fn new(port: u16) -> Self {
        Self {
            port,
            local_addresses: Vec::new(),
            accept_inbound: true,
            outbound_streams: 32,
            inbound_streams_max: 1024,
            mtu_octets: 1500,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(400),
            rto_max: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(10),
            association_max_retrans: 10,
            path_max_retrans: 5,
            init_max_retrans: 8,
            cookie_life: Duration::from_secs(60),
            sack_delay: Duration::ZERO,
            receive_window_octets: 256 * 1024,
            send_buffer_octets: 1024 * 1024,
            burst_packets_max: 16,
            associations_max: 4096,
            hold_acknowledgements: false,
            adaptation: None,
            return_unacknowledged: false,
            export: false,
        }
    }

    /// The same settings with each value limited to what the protocol can carry.
    pub(crate) fn sane(mut self) -> Self {
        /// Slightly less than the smallest IPv6 MTU; below it INIT ACK and its cookie would not fit.
        const MTU_OCTETS_MIN: u16 = 576;
        self.mtu_octets = self.mtu_octets.max(MTU_OCTETS_MIN);
        self.outbound_streams = self.outbound_streams.max(1);
        self.inbound_streams_max = self.inbound_streams_max.max(1);
        self.receive_window_octets = self.receive_window_octets.max(crate::packet::A_RWND_MIN);
        self.rto_min = self.rto_min.max(Duration::from_millis(1));
        self.rto_max = self.rto_max.max(self.rto_min);
        self.rto_initial = self.rto_initial.clamp(self.rto_min, self.rto_max);
        self.burst_packets_max = self.burst_packets_max.max(1);
        self
    }
}
