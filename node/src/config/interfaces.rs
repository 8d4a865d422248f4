//! Where the core listens and what it connects to: N2, N3, N4, N6.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use whimbrel_control::config as control;
use whimbrel_user::{FirewallRule, SHARDS_MAX};
use whimbrel_user_io::{Harvest, SpreadBy};

use super::gnb_positions::GnbName;
use super::isolation::NetworkOrAddress;
use super::section::Section;
use super::value::{Value, words};

/// Default address: an unconfigured core exposes nothing.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Most addresses of the SCTP endpoint; multi-homed gNBs have two.
const N2_ADDRESSES_MAX: usize = 8;

/// With [`PATH_MAX_RETRANS`] and [`RTO_MAX`] the loss of a gNB is detected after 4 s of silence, the RTO of 400 ms, and timeouts of
/// 0.4, 0.8, 1.6, 2 and 2 s, some 11 s in all; four losses in a row are survived.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(4);
const PATH_MAX_RETRANS: u32 = 4;
/// Longer than any round trip on N2, a satellite's included.
const RTO_MAX: Duration = Duration::from_secs(2);
/// Lowest RTO (`rto_min` of the SCTP endpoint's configuration).
const RTO_MIN: Duration = Duration::from_millis(400);

/// Longest busy polling in microseconds: longer than any pause of a loaded network.
const BUSY_POLL_US_MAX: u32 = 1_000_000;
/// Networks of SMFs: those of a region, generously.
const N4_PEERS_MAX: usize = 256;

/// More than ten times the delay is no budget.
const HARVEST_PERCENT_MAX: u16 = 1_000;

/// N2: NGAP over SCTP (TS 38.412).
#[derive(Clone, Debug)]
pub struct N2 {
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    pub sctp: SctpChoice,
    pub udp_port: u16,
    pub heartbeat_interval: Duration,
    pub path_max_retrans: u32,
    pub rto_max: Duration,
    pub fastwire: bool,
    /// The gNBs that may set up; empty: any.
    pub gnbs: Vec<N2Gnb>,
}

/// A gNB that may set up, and the networks that it may connect from.
#[derive(Clone, Debug)]
pub struct N2Gnb {
    gnb: GnbName,
    networks: Vec<NetworkOrAddress>,
}

impl N2Gnb {
    pub(super) fn control(&self) -> Option<control::AllowedGnb> {
        let (plmn, gnb_id) = self.gnb.parts()?;
        let network = |n: &NetworkOrAddress| control::IpPrefix { address: n.0.address, length: n.0.prefix };
        Some(control::AllowedGnb { plmn, gnb_id, networks: self.networks.iter().map(network).collect() })
    }
}

/// Which SCTP serves N2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SctpChoice {
    /// The kernel's if the host has it, else raw IP sockets, else UDP.
    Auto,
    /// The kernel's SCTP is used.
    Kernel,
    /// Our own over raw IP sockets.
    Raw,
    /// Our own over UDP (RFC 6951).
    Udp,
}

words! { SctpChoice {
    SctpChoice::Auto = "auto", SctpChoice::Kernel = "kernel", SctpChoice::Raw = "raw", SctpChoice::Udp = "udp",
} }

/// N3: GTP-U (TS 29.281).
#[derive(Clone, Debug)]
pub struct N3 {
    pub address: IpAddr,
    pub port: u16,
    pub io: IoChoice,
    pub threads: u8,
    pub spread_by: SpreadBy,
    pub busy_poll_us: u32,
    pub harvest: Harvest,
    pub gnb_networks: Vec<NetworkOrAddress>,
}

/// Packet I/O of N3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoChoice {
    /// AF_XDP if the driver supports zero-copy, else UDP sockets.
    Auto,
    /// UDP sockets on N3.
    Udp,
    /// AF_XDP; an error without it.
    AfXdp,
    /// AF_XDP with a fast path in the driver; an error without it.
    Xdp,
}

words! {
    IoChoice {
        IoChoice::Auto = "auto",
        IoChoice::Udp = "udp",
        IoChoice::AfXdp = "af_xdp",
        IoChoice::Xdp = "xdp",
    }
}

words! {
    SpreadBy {
        SpreadBy::Teid = "teid",
        SpreadBy::UeAddress = "ue_address",
        SpreadBy::GnbAddress = "gnb_address",
        SpreadBy::GnbFlow = "gnb_flow",
    }
}

impl Value for Harvest {
    fn read(text: &str) -> Result<Self, String> {
        let expected = || "off, or p95 and a percentage, such as p95 +30 %".to_string();
        let text = text.trim();
        if text == "off" {
            return Ok(Self::Off);
        }
        let percent = text.strip_prefix("p95").and_then(|rest| rest.trim().strip_prefix('+'));
        let percent = percent.and_then(|rest| rest.strip_suffix('%')).ok_or_else(expected)?;
        let percent = percent.trim().parse().ok().filter(|n| (1..=HARVEST_PERCENT_MAX).contains(n));
        percent.map(Self::p95).ok_or_else(expected)
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "off".into(),
            Self::P95 { percent, .. } => format!("p95 +{percent} %"),
        }
    }
}

/// N4: PFCP (TS 29.244).
#[derive(Clone, Debug)]
pub struct N4 {
    pub node_id: IpAddr,
    pub listen: Option<SocketAddr>,
    pub smfs: Vec<SocketAddr>,
    /// From where other SMFs may send, beside `smfs`; empty: from anywhere.
    pub peers: Vec<NetworkOrAddress>,
    /// The UPF is one of `whimbrel upf`, and its SMFs allocate the F-TEIDs.
    pub smf_f_teids: bool,
    pub path_failure: Duration,
}

/// N6: towards the data networks.
#[derive(Clone, Debug)]
pub struct N6 {
    pub device: String,
    pub nat: bool,
    pub forwarding: bool,
    pub ue_to_host: bool,
    pub ue_to_ue: bool,
    pub allow: Vec<FirewallRule>,
    pub deny: Vec<NetworkOrAddress>,
}

impl N6 {
    /// The TAP device of the `i`th data network: an interface's name has 15 octets at most.
    pub fn frames_device_of(&self, i: usize) -> String {
        format!("{:.12}{i}e", self.device)
    }

    /// The device of the `i`th data network.
    pub fn device_of(&self, i: usize) -> String {
        format!("{}{i}", self.device)
    }
}

pub(super) fn n2(root: &mut Section<'_, '_>) -> N2 {
    root.section("n2", "N2, towards gNBs: NGAP over SCTP.", |s| {
        let n2 = N2 {
            addresses: s.list(
                "addresses",
                vec![LOOPBACK],
                "Addresses of this host that gNBs connect to; several form one multi-homed endpoint.",
            ),
            port: s.value("port", 38412, "SCTP port (TS 38.412 §7)."),
            sctp: s.value(
                "sctp",
                SctpChoice::Auto,
                "SCTP implementation: kernel; raw, the program's own over raw IP sockets (needs CAP_NET_RAW); udp, its own \
                 over UDP (RFC 6951); or auto, the first of these that the host supports.",
            ),
            udp_port: s.value(
                "udp_port",
                9899,
                "UDP port of encapsulated SCTP (RFC 6951 §4.1). Another one is needed where 9899 is taken, as by the kernel's SCTP.",
            ),
            heartbeat_interval: s.value(
                "sctp_heartbeat_interval",
                HEARTBEAT_INTERVAL,
                "HB.interval (RFC 9260 §16): a gNB that sends nothing for this long gets a HEARTBEAT. The loss of a gNB is \
                 detected after this time and the timeouts of the next two keys, some 11 s by default (docs/n2.md).",
            ),
            path_max_retrans: s.value(
                "sctp_path_max_retrans",
                PATH_MAX_RETRANS,
                "Path.Max.Retrans (RFC 9260 §16), and Association.Max.Retrans for a gNB with one address: more unanswered retransmissions \
                 in a row end the association. 1 to 20.",
            ),
            rto_max: s.value(
                "sctp_rto_max",
                RTO_MAX,
                "RTO.Max (RFC 9260 §16): the timeout doubles with each retransmission, from 400 ms up to this. 400ms to 60s.",
            ),
            fastwire: s.value(
                "fastwire",
                true,
                "Use fastwire (NGAP messages in FlatBuffers) with gNBs that offer it when they connect, as whimbrel-lab ran \
                 --fastwire does. All other gNBs get ASN.1.",
            ),
            gnbs: n2_gnbs(s),
        };
        if n2.addresses.is_empty() || n2.addresses.len() > N2_ADDRESSES_MAX {
            let what = format!("an SCTP endpoint cannot have {} addresses", n2.addresses.len());
            s.refuse("addresses", what, format!("list 1 to {N2_ADDRESSES_MAX} of this host's addresses"));
        }
        nonzero(s, "port", n2.port);
        nonzero(s, "udp_port", n2.udp_port);
        let is_within =
            (Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&n2.heartbeat_interval);
        let what = "HEARTBEATs would be sent too often, or too seldom";
        s.bound("sctp_heartbeat_interval", is_within, what, "100ms to 1h");
        let what = format!("{} retransmissions are too few, or too many", n2.path_max_retrans);
        s.bound("sctp_path_max_retrans", (1..=20).contains(&n2.path_max_retrans), what, "1 to 20");
        let is_within = (RTO_MIN..=Duration::from_secs(60)).contains(&n2.rto_max);
        s.bound("sctp_rto_max", is_within, "a timeout is at least 400 ms and at most 60 s", "400ms to 60s");
        n2
    })
}

fn n2_gnbs(s: &mut Section<'_, '_>) -> Vec<N2Gnb> {
    let doc = "The gNBs that may set up NG, each with the networks that it may connect from; all others are refused. Without the list any gNB may, \
               and one that is up keeps its identity (docs/n2.md).";
    let mut named: Vec<GnbName> = Vec::new();
    s.sections("gnbs", 0, doc, |s, _| {
        let gnb = N2Gnb {
            gnb: s
                .optional("gnb", "999/70-1", "The gNB, as `whimbrel gnb list` shows it.")
                .unwrap_or_default(),
            networks: s.list("networks", vec![], "Networks or addresses that it connects from."),
        };
        if gnb.gnb.parts().is_none() {
            s.refuse("gnb", "the entry names no gNB", "name one, such as `gnb: 999/70-1`");
        } else if named.contains(&gnb.gnb) {
            s.refuse("gnb", format!("{} is listed twice", gnb.gnb.0), "list all its networks in one entry");
        }
        if gnb.networks.is_empty() {
            s.refuse(
                "networks",
                "without a network the gNB cannot connect",
                "list the addresses or networks that it connects from, such as `networks: [192.0.2.0/24]`",
            );
        }
        named.push(gnb.gnb.clone());
        gnb
    })
}

/// Default number of packet threads: one for each four processors. The others are for the control plane and the kernel, which needs as
/// much of a processor as a packet thread if packets come by sockets.
fn threads_of_host() -> u8 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (processors / 4).clamp(1, SHARDS_MAX.into());
    1 << threads.ilog2()
}

pub(super) fn n3(root: &mut Section<'_, '_>) -> N3 {
    root.section("n3", "N3, towards gNBs: user packets in GTP-U.", |s| {
        let n3 = N3 {
            address: s.value(
                "address",
                LOOPBACK,
                "Address of this host to which gNBs send user packets; NGAP carries it to them.",
            ),
            port: s.value(
                "port",
                2152,
                "UDP port (TS 29.281 §4.4.2.3). gNBs always send to 2152.",
            ),
            io: s.value(
                "io",
                IoChoice::Auto,
                "Packet I/O: udp, UDP sockets; af_xdp; xdp, which is af_xdp with a fast path for most packets in the driver; or auto, \
                 af_xdp if the driver supports zero-copy (needs root), else udp. The log says which is used and why. See \
                 docs/packet-io.md.",
            ),
            threads: s
                .optional(
                    "threads",
                    "4",
                    "Packet threads, among which the sessions are divided: 1, 2, 4, 8 or 16. Default: one for each four \
                     processors. AF_XDP uses at most as many as its interfaces have queues, xdp uses one.",
                )
                .unwrap_or_else(threads_of_host),
            spread_by: s.value(
                "spread_by",
                SpreadBy::Teid,
                "What the kernel spreads packets from gNBs among the packet threads' sockets by: teid or ue_address, which lead to the \
                 session's thread; gnb_address, a hash of the sender's address; or gnb_flow, of its address and UDP port. The session's \
                 thread decides on each packet in any case. With AF_XDP the network card does (docs/packet-io.md).",
            ),
            busy_poll_us: s.value(
                "busy_poll_us",
                0,
                "Busy polling: microseconds that packet threads poll AF_XDP's rings before they sleep, for less delay at the \
                 cost of a processor. 0: interrupts wake them.",
            ),
            harvest: s.value(
                "harvest",
                Harvest::Off,
                "Survey of all sessions' usage by the packet threads, in time that packets leave: off, or by how much the 95th percentile of \
                 a packet's time in its thread may grow for it, such as p95 +30 %. While a survey runs the threads poll. See docs/harvest.md.",
            ),
            gnb_networks: s.list(
                "gnb_networks",
                vec![],
                "Networks from which gNBs and other UPFs send user packets, if they send from other addresses than they report to the SMF. \
                 Packets of a session are also accepted from the address that the SMF names for it, or for any other session.",
            ),
        };
        let what = format!("busy polling for {} microseconds means that threads never sleep", n3.busy_poll_us);
        let bounds = format!("0 to {BUSY_POLL_US_MAX}");
        s.bound("busy_poll_us", n3.busy_poll_us <= BUSY_POLL_US_MAX, what, bounds);
        let is_possible = n3.threads.is_power_of_two() && n3.threads <= SHARDS_MAX;
        let what = format!("{} packet threads are not possible", n3.threads);
        s.bound("threads", is_possible, what, format!("1, 2, 4, 8 or {SHARDS_MAX}"));
        let by_card = matches!(n3.io, IoChoice::AfXdp | IoChoice::Xdp) && n3.spread_by != SpreadBy::Teid;
        if by_card {
            s.refuse(
                "spread_by",
                "with AF_XDP the network card spreads packets over its queues",
                "leave it out, and set the card's hash (`ethtool -N DEVICE rx-flow-hash udp4 …`), or write `io: udp`",
            );
        }
        if n3.address.is_unspecified() {
            s.refuse(
                "address",
                "gNBs cannot send to an unspecified address",
                "write an address of this host",
            );
        }
        nonzero(s, "port", n3.port);
        n3
    })
}

pub(super) fn n4(root: &mut Section<'_, '_>) -> N4 {
    root.section("n4", "N4, between SMF and UPF: PFCP. Within this program it is a function call; `listen` adds a socket for other SMFs.", |s| {
        let n4 = N4 {
            node_id: s.value("node_id", LOOPBACK, "Node identity of the SMF (TS 29.244 §8.2.38)."),
            listen: s.optional(
                "listen",
                "127.0.0.1:8805",
                "Address and UDP port on which the UPF accepts PFCP from other SMFs.",
            ),
            smfs: s.list(
                "smfs",
                vec![],
                "SMFs on other hosts with which the UPF sets up an association when it starts (TS 29.244 §6.2.6.3), each as address \
                 and port. Not needed for an SMF that sets up the association itself.",
            ),
            peers: s.list(
                "peers",
                vec![],
                "Addresses and networks from which the UPF takes PFCP at `listen`, besides those of `smfs`: all addresses of an SMF set, too. \
                 Datagrams from elsewhere are dropped and counted. Without this list every host that reaches `listen` may set up an association.",
            ),
            smf_f_teids: s.value(
                "smf_f_teids",
                false,
                "SMFs allocate the F-TEIDs of their sessions, as they could in release 15 (TS 29.244 §5.5.2), and the UPF none: for SMFs that do not \
                 leave it to the UPF. For `whimbrel upf` alone; docs/upf.md says what it costs.",
            ),
            path_failure: s.value(
                "path_failure",
                whimbrel_user::Config::PATH_FAILURE,
                "How long the UPF keeps the sessions of an SMF on another host that does not answer (TS 23.527 §4.4); an hour at least while another SMF of its \
                 set answers.",
            ),
        };
        if !n4.smfs.is_empty() && n4.listen.is_none() {
            let what = "SMFs cannot answer a UPF that does not listen";
            s.refuse("smfs", what, "write `listen`, an address of this host that they reach");
        }
        if !n4.peers.is_empty() && n4.listen.is_none() {
            let what = "no SMF reaches a UPF that does not listen";
            s.refuse("peers", what, "write `listen`, an address of this host that they reach, or leave `peers` out");
        }
        if n4.smf_f_teids && n4.listen.is_none() {
            let what = "no SMF reaches a UPF that does not listen";
            s.refuse("smf_f_teids", what, "write `listen`, an address of this host that they reach, or leave `smf_f_teids` out");
        }
        let n = n4.peers.len();
        s.bound("peers", n <= N4_PEERS_MAX, format!("{n} networks are too many"), format!("at most {N4_PEERS_MAX}"));
        n4
    })
}

pub(super) fn n6(root: &mut Section<'_, '_>) -> N6 {
    root.section("n6", "N6, towards the data networks: TUN devices of this host.", |s| {
        let mut n6 = N6 {
            ue_to_host: false,
            ue_to_ue: false,
            allow: Vec::new(),
            deny: Vec::new(),
            device: s.value(
                "device",
                "whimbrel".to_string(),
                "Prefix of the names of the TUN devices, one for each data network: whimbrel0, whimbrel1… They exist while the program runs.",
            ),
            nat: s.value(
                "nat",
                true,
                "Translate UE addresses to this host's address (masquerading) while the program runs. false: \
                 route the pools to this host yourself.",
            ),
            forwarding: s.value(
                "forwarding",
                true,
                "Enable IP forwarding on this host while the program runs.",
            ),
        };
        (n6.ue_to_host, n6.ue_to_ue, n6.allow, n6.deny) = super::isolation::read(s);
        // IFNAMSIZ of linux/if.h, less the closing zero and the number of the data network.
        let fits = (1..=13).contains(&n6.device.len())
            && n6.device.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
            && !matches!(n6.device.as_str(), "." | "../../../programs/whimbrel/src");
        let what = format!("`{}` is not a valid name of a network device", n6.device);
        s.bound("device", fits, what, "1 to 13 letters, digits, `-`, `_` or `.`");
        n6
    })
}

fn nonzero(s: &mut Section<'_, '_>, key: &str, port: u16) {
    s.bound(key, port != 0, "port 0 does not exist", "1 to 65535");
}
