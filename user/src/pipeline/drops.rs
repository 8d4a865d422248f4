//! Why packets are dropped, and how many of everything there were.

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
    /// The payload is not a whole IP packet.
    InnerMalformed = "inner_malformed",
    /// A phone used a source address that is not its own, or a MAC address that is another session's.
    SpoofedSource = "spoofed_source",
    /// A packet of link-local or multicast scope, which goes nowhere: a phone's, or the host's own on its device.
    LinkScope = "link_scope",
    /// No session has the destination address.
    UnknownUeAddress = "unknown_ue_address",
    /// A frame for an address that no session uses.
    UnknownMac = "unknown_mac",
    /// A frame whose destination is where it comes from.
    FrameReturns = "frame_returns",
    /// A phone uses more MAC addresses than a session may have.
    MacTableFull = "mac_table_full",
    /// Too many frames for groups in a second: not copied to other phones.
    FloodRate = "flood_rate",
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
    /// The slice's rate is nearly used up, and the packet's ends cannot be told of it by a mark.
    EarlyDrop = "early_drop",
    /// A URR's quota is used up.
    QuotaExhausted = "quota_exhausted",
    /// The FAR says to drop.
    FarDrop = "far_drop",
    /// The FAR forwards to the access side without naming a tunnel.
    NoTunnel = "no_tunnel",
    /// With its outer header the packet would exceed what GTP-U can say.
    TooLong = "too_long",
    /// The session's buffer for an idle phone is full.
    BufferFull = "buffer_full",
    /// All buffers for idle phones are full, or the rest is not for one phone alone.
    BuffersExhausted = "buffers_exhausted",
    /// A buffered packet was dropped at the SMF's word, or its session ended.
    BufferDiscarded = "buffer_discarded",
    /// Too many packets of the UPF's own wait to be sent.
    OutputFull = "output_full",
}

/// How many of everything there were since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets forwarded that phones sent.
    pub ul_packets: u64,
    /// Their octets, inner packets alone.
    pub ul_octets: u64,
    /// Packets forwarded to phones.
    pub dl_packets: u64,
    /// Their octets, inner packets alone.
    pub dl_octets: u64,
    /// Packets that went into buffers for idle phones.
    pub buffered: u64,
    /// Echo requests answered.
    pub echo_requests: u64,
    /// Echo requests sent.
    pub echo_requests_sent: u64,
    /// Paths to gNBs and UPFs that are supervised now.
    pub paths: u64,
    /// Those of them that do not answer.
    pub paths_failed: u64,
    /// Tunnels to peers that are one too many to be supervised.
    pub paths_unsupervised: u64,
    /// Error indications sent.
    pub error_indications_sent: u64,
    /// Error indications received that named a session's tunnel.
    pub error_indications_received: u64,
    /// End markers sent.
    pub end_markers_sent: u64,
    /// End markers received.
    pub end_markers_received: u64,
    /// End markers received and sent on.
    pub end_markers_relayed: u64,
    /// Packets of forwarding tunnels sent on, which count neither as uplink nor as downlink.
    pub relayed: u64,
    /// Router advertisements sent.
    pub router_advertisements: u64,
    /// Packets marked for congestion (ECN).
    pub ecn_marked: u64,
    /// Predictions that came true: a packet showed that the phone had arrived.
    pub predictions_true: u64,
    /// Packets without a session that the filters in front of the predictions knew, and the table did not.
    pub predictions_false: u64,
    /// Packets without a session that the filters did not know.
    pub predictions_filtered: u64,
    /// Predictions that found no room.
    pub predictions_refused: u64,
    /// Reports that found no room and were lost.
    pub reports_lost: u64,
    /// Sessions that stand.
    pub sessions: u64,
    /// Packets in buffers for idle phones now.
    pub held: u64,
    /// Dropped packets, by [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            ul_packets: 0,
            ul_octets: 0,
            dl_packets: 0,
            dl_octets: 0,
            buffered: 0,
            echo_requests: 0,
            echo_requests_sent: 0,
            paths: 0,
            paths_failed: 0,
            paths_unsupervised: 0,
            error_indications_sent: 0,
            error_indications_received: 0,
            end_markers_sent: 0,
            end_markers_received: 0,
            end_markers_relayed: 0,
            relayed: 0,
            router_advertisements: 0,
            ecn_marked: 0,
            predictions_true: 0,
            predictions_false: 0,
            predictions_filtered: 0,
            predictions_refused: 0,
            reports_lost: 0,
            sessions: 0,
            held: 0,
            dropped: [0; DropReason::COUNT],
        }
    }
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
