//! Why packets are dropped, and how many of everything there were.

use crate::config::DnIndex;

macro_rules! drop_reasons {
    ($( $(#[doc = $doc:literal])+ $name:ident = $metric:literal, )*) => {
        /// Why a packet was dropped. Nothing is lost unnamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $( $(#[doc = $doc])+ $name, )* }

        impl DropReason {
            /// All of them.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Its name in metrics.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => $metric, )* }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$name => concat!($($doc),+).trim_ascii_start(), )* }
            }
        }
    };
}

drop_reasons! {
    /// A datagram on the GTP-U port that is not a well-formed GTP-U message.
    GtpuMalformed = "gtpu_malformed",
    /// A GTP-U extension header that must be understood and is not.
    GtpuUnknownExtension = "gtpu_unknown_extension",
    /// A GTP-U message that a UPF has no use for here.
    GtpuUnexpected = "gtpu_unexpected",
    /// A tunnel that no session has; the sender gets an error indication.
    UnknownTunnel = "unknown_tunnel",
    /// GTP-U from an address of a UE, which is no gNB's.
    GtpuFromUe = "gtpu_from_ue",
    /// A packet of a session's tunnel from another address than the session's rules name for it.
    GtpuForeignPeer = "gtpu_foreign_peer",
    /// The payload is not a whole IP packet.
    InnerMalformed = "inner_malformed",
    /// A UE used a source address that is not its own, or a MAC address that is another session's.
    SpoofedSource = "spoofed_source",
    /// To or from an address that no data network has: loopback, link-local, multicast, broadcast. A UE's, or the host's own on its device.
    LinkScope = "link_scope",
    /// From a UE to a port on which the core listens, or to another network function.
    UeToCore = "ue_to_core",
    /// From a UE to an address of this host.
    UeToHost = "ue_to_host",
    /// From a UE to another UE.
    UeToUe = "ue_to_ue",
    /// From a UE to a network that the operator denies.
    UeToDenied = "ue_to_denied",
    /// No session has the destination address.
    UnknownUeAddress = "unknown_ue_address",
    /// No session has it, and too many such packets wait while it is asked about them.
    StraysFull = "strays_full",
    /// It waited for its session, which has not come.
    StrayAge = "stray_age",
    /// A frame for an address that no session uses.
    UnknownMac = "unknown_mac",
    /// A frame whose destination is where it comes from.
    FrameReturns = "frame_returns",
    /// A UE uses more MAC addresses than a session may have.
    MacTableFull = "mac_table_full",
    /// Too many frames for groups in a second: not copied to other UEs.
    FloodRate = "flood_rate",
    /// A rule of the data network's firewall denies it.
    FirewallDenied = "firewall_denied",
    /// From outside, and no UE has asked for it.
    FirewallUnasked = "firewall_unasked",
    /// It belongs to no flow and cannot begin one: TCP without SYN, an answer, an ICMP error about another flow.
    FirewallState = "firewall_state",
    /// A later fragment of a packet whose first one the firewall has not seen.
    FirewallFragment = "firewall_fragment",
    /// From UE to UE, which the data network's firewall does not let be.
    FirewallBetweenUes = "firewall_between_ues",
    /// No port of the UE's outside address is free, and none of those in use was found to give up.
    NatNoPort = "nat_no_port",
    /// A protocol without ports, which cannot be translated.
    NatProtocol = "nat_protocol",
    /// The session has no rule for the packet.
    NoMatchingPdr = "no_matching_pdr",
    /// A rule is for the packet, but for another QoS flow than the one that it came by.
    QfiMismatch = "qfi_mismatch",
    /// An end marker on a tunnel whose packets go to no other tunnel.
    EndMarkerIgnored = "end_marker_ignored",
    /// An error indication from another address than that of the tunnel that it names.
    ErrorIndicationForged = "error_indication_forged",
    /// An echo request beyond what is answered in a second.
    EchoRate = "echo_rate",
    /// A QER's gate is closed.
    GateClosed = "gate_closed",
    /// A QER's maximum bit rate is used up.
    RateExceeded = "rate_exceeded",
    /// The slice's rate is used up.
    SliceRateExceeded = "slice_rate_exceeded",
    /// The slice's rate is nearly used up, or the UE's buffer fills, and the packet's ends do not understand ECN marks.
    EarlyDrop = "early_drop",
    /// A URR's quota is used up.
    QuotaExhausted = "quota_exhausted",
    /// The FAR says to drop.
    FarDrop = "far_drop",
    /// The FAR forwards to the access side without naming a tunnel.
    NoTunnel = "no_tunnel",
    /// With its outer header the packet would exceed what GTP-U can say.
    TooLong = "too_long",
    /// The session's buffer for an idle UE is full.
    BufferFull = "buffer_full",
    /// The octets that the session may have buffered are used up.
    BufferOctets = "buffer_octets",
    /// All buffers for idle UEs are full, or the rest is not for one UE alone.
    BuffersExhausted = "buffers_exhausted",
    /// The octets that all sessions may have buffered are used up.
    BuffersOctets = "buffers_octets",
    /// A buffered packet waited longer than packets may.
    BufferAge = "buffer_age",
    /// A buffered packet was dropped at the SMF's word, or its session ended.
    BufferDiscarded = "buffer_discarded",
    /// Too many packets of the UPF's own wait to be sent.
    OutputFull = "output_full",
}

/// What a data network's firewall did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirewallCounters {
    /// Data network of the firewall.
    pub dn: DnIndex,
    /// Flows that stand.
    pub flows: u64,
    /// Flows that began.
    pub flows_begun: u64,
    /// Flows that gave way to others.
    pub flows_evicted: u64,
    /// Outside ports and identifiers in use.
    pub ports: u64,
    /// Ports that UEs with most gave up because their outside address had none that was free.
    pub ports_given_up: u64,
    /// Packets whose addresses were translated.
    pub translated: u64,
    /// Packets that each rule decided on: those that began flows, or would have.
    pub rules: Vec<u64>,
}

impl FirewallCounters {
    /// Those of another pipeline.
    fn add(&mut self, other: &Self) {
        self.flows += other.flows;
        self.flows_begun += other.flows_begun;
        self.flows_evicted += other.flows_evicted;
        self.ports += other.ports;
        self.ports_given_up += other.ports_given_up;
        self.translated += other.translated;
        for (own, other) in self.rules.iter_mut().zip(&other.rules) {
            *own += other;
        }
    }
}

macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident, )*) => {
        /// How many of everything there were since the start.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Counters {
            $( $(#[doc = $doc])+ pub $name: u64, )*
            /// The firewalls of data networks, in the order of these.
            pub firewalls: Vec<FirewallCounters>,
            /// Dropped packets, by [`DropReason`].
            pub dropped: [u64; DropReason::COUNT],
        }

        impl Default for Counters {
            fn default() -> Self {
                Self { $( $name: 0, )* firewalls: Vec::new(), dropped: [0; DropReason::COUNT] }
            }
        }

        impl std::ops::Add<&Self> for Counters {
            type Output = Self;

            fn add(mut self, other: &Self) -> Self {
                $( self.$name += other.$name; )*
                for other in &other.firewalls {
                    match self.firewalls.iter_mut().find(|own| own.dn == other.dn) {
                        Some(own) => own.add(other),
                        None => self.firewalls.push(other.clone()),
                    }
                }
                for (own, other) in self.dropped.iter_mut().zip(other.dropped) {
                    *own += other;
                }
                self
            }
        }
    };
}

counters! {
    /// Packets forwarded that UEs sent.
    ul_packets,
    /// Their octets, inner packets alone.
    ul_octets,
    /// Packets forwarded to UEs.
    dl_packets,
    /// Their octets, inner packets alone.
    dl_octets,
    /// Packets that went into buffers for idle UEs.
    buffered,
    /// Packets that no session had and that waited while it was asked.
    strays,
    /// Echo requests answered.
    echo_requests,
    /// Echo requests sent.
    echo_requests_sent,
    /// Paths to gNBs and UPFs that are supervised now.
    paths,
    /// Those of them that do not answer.
    paths_failed,
    /// Tunnels to peers that are one too many to be supervised.
    paths_unsupervised,
    /// Times that a peer named so many tunnels which no session has that it was suspended.
    peers_suspended,
    /// Error indications sent.
    error_indications_sent,
    /// Error indications received that named a session's tunnel.
    error_indications_received,
    /// End markers sent.
    end_markers_sent,
    /// Copies of packets sent to an LI function.
    copies_sent,
    /// End markers received.
    end_markers_received,
    /// End markers received and sent on.
    end_markers_relayed,
    /// Packets of forwarding tunnels sent on, which count neither as uplink nor as downlink.
    relayed,
    /// Router advertisements sent.
    router_advertisements,
    /// Packets marked for congestion (ECN).
    ecn_marked,
    /// Packets of sessions with filters of which the first level of flows knew the rule.
    flows_first,
    /// Those of which the second level knew it.
    flows_second,
    /// Those whose filters were asked.
    flows_asked,
    /// Addresses and flows that are known by name now.
    names_known,
    /// Predictions that came true: a packet showed that the UE had arrived.
    predictions_true,
    /// Packets without a session that the filters in front of the predictions knew, and the table did not.
    predictions_false,
    /// Packets without a session that the filters did not know, while the filters were not empty: within 5 s of a prediction.
    predictions_filtered,
    /// Predictions that found no room.
    predictions_refused,
    /// Reports that found no room and were lost.
    reports_lost,
    /// Sessions that stand.
    sessions,
    /// Packets in buffers for idle UEs now.
    held,
    /// Octets of the packets that wait.
    held_octets,
}

impl Counters {
    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }
}
