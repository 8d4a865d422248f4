//! Where the core listens and what it connects to: N2, N3, N4, N6.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use whimbrel_user::{FirewallRule, SHARDS_MAX};

use super::isolation::Network;
use super::section::Section;
use super::value::words;

/// The loopback address that an unconfigured core lives on: nothing is exposed until an operator says so.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Addresses of one SCTP endpoint that are of use; multi-homed gNBs have two.
const N2_ADDRESSES_MAX: usize = 8;

/// With [`PATH_MAX_RETRANS`] and [`RTO_MAX`] a gNB that lost its power is noticed after 4 s of silence, the RTO of 400 ms, and timeouts of
/// 0.4, 0.8, 1.6, 2 and 2 s: some 11 s, and not by four losses in a row.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(4);
const PATH_MAX_RETRANS: u32 = 4;
/// Longer than any round trip on N2, a satellite's included.
const RTO_MAX: Duration = Duration::from_secs(2);
/// The RTO of a quick peer (`rto_min` of the SCTP endpoint's configuration).
const RTO_MIN: Duration = Duration::from_millis(400);

/// Microseconds of looking for packets at most: longer than any pause of a network that is used.
const BUSY_POLL_US_MAX: u32 = 1_000_000;

/// N2: NGAP over SCTP (TS 38.412).
#[derive(Clone, Debug)]
pub(crate) struct N2 {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) port: u16,
    pub(crate) sctp: SctpChoice,
    pub(crate) udp_port: u16,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) path_max_retrans: u32,
    pub(crate) rto_max: Duration,
    pub(crate) fastwire: bool,
}

/// Which SCTP serves N2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SctpChoice {
    /// The kernel's if the host has it, else raw IP sockets, else UDP.
    Auto,
    /// The kernel's.
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
pub(crate) struct N3 {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) io: IoChoice,
    pub(crate) threads: u8,
    pub(crate) busy_poll_us: u32,
    pub(crate) gnb_networks: Vec<Network>,
}

/// How N3's packets come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoChoice {
    /// AF_XDP where the driver gives it frames without copying, else UDP sockets.
    Auto,
    /// UDP sockets.
    Udp,
    /// AF_XDP, or not at all.
    AfXdp,
    /// AF_XDP, with a fast path in the driver; or not at all.
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

/// N4: PFCP (TS 29.244).
#[derive(Clone, Debug)]
pub(crate) struct N4 {
    pub(crate) node_id: IpAddr,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) smfs: Vec<SocketAddr>,
    pub(crate) path_failure: Duration,
}

/// N6: the way to the outside.
#[derive(Clone, Debug)]
pub(crate) struct N6 {
    pub(crate) device: String,
    pub(crate) nat: bool,
    pub(crate) forwarding: bool,
    pub(crate) ue_to_host: bool,
    pub(crate) ue_to_ue: bool,
    pub(crate) allow: Vec<FirewallRule>,
    pub(crate) deny: Vec<Network>,
}

impl N6 {
    /// The TAP device of the `i`th data network: an interface's name has 15 octets at most.
    pub(crate) fn frames_device_of(&self, i: usize) -> String {
        format!("{:.12}{i}e", self.device)
    }

    /// The device of the `i`th data network.
    pub(crate) fn device_of(&self, i: usize) -> String {
        format!("{}{i}", self.device)
    }
}

pub(super) fn n2(root: &mut Section<'_, '_>) -> N2 {
    root.section("n2", "N2, towards gNBs: NGAP over SCTP.", |s| {
        let n2 = N2 {
            addresses: s.list(
                "addresses",
                vec![LOOPBACK],
                "Addresses of this host that gNBs connect to; several make one multi-homed endpoint.",
            ),
            port: s.value("port", 38412, "SCTP port (TS 38.412 §7)."),
            sctp: s.value(
                "sctp",
                SctpChoice::Auto,
                "auto, kernel, raw or udp. auto takes the kernel's SCTP if the host has it, else its own over raw IP \
                 sockets (needs CAP_NET_RAW), else its own over UDP (RFC 6951).",
            ),
            udp_port: s.value("udp_port", 9899, "UDP port of encapsulated SCTP (RFC 6951 §4.1)."),
            heartbeat_interval: s.value(
                "sctp_heartbeat_interval",
                HEARTBEAT_INTERVAL,
                "HB.interval (RFC 9260 §16): a gNB that says nothing for so long is asked whether it is there. One that fell silent is \
                 noticed after this and the timeouts of the next two keys, some 11 s by default (docs/n2.md).",
            ),
            path_max_retrans: s.value(
                "sctp_path_max_retrans",
                PATH_MAX_RETRANS,
                "Path.Max.Retrans (RFC 9260 §16), and Association.Max.Retrans for a gNB of one address: after so many unanswered \
                 repetitions in a row it counts as lost. 1 to 20.",
            ),
            rto_max: s.value(
                "sctp_rto_max",
                RTO_MAX,
                "RTO.Max (RFC 9260 §16): the timeout doubles from 400 ms up to this with each repetition. 400ms to 60s.",
            ),
            fastwire: s.value(
                "fastwire",
                true,
                "Speak fastwire, the messages of NGAP in FlatBuffers, with gNBs that offer it when they connect; whimbrel ran \
                 --fastwire does. All others are spoken to in ASN.1 and notice nothing.",
            ),
        };
        if n2.addresses.is_empty() || n2.addresses.len() > N2_ADDRESSES_MAX {
            let what = format!("{} addresses make no SCTP endpoint", n2.addresses.len());
            s.refuse("addresses", what, format!("list 1 to {N2_ADDRESSES_MAX} of this host's addresses"));
        }
        nonzero(s, "port", n2.port);
        nonzero(s, "udp_port", n2.udp_port);
        if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&n2.heartbeat_interval) {
            let fix = "write 100ms to 1h";
            s.refuse("sctp_heartbeat_interval", "a silent gNB would be asked too often, or too late", fix);
        }
        if !(1..=20).contains(&n2.path_max_retrans) {
            let what = format!("{} repetitions are too few, or too many", n2.path_max_retrans);
            s.refuse("sctp_path_max_retrans", what, "write 1 to 20");
        }
        if !(RTO_MIN..=Duration::from_secs(60)).contains(&n2.rto_max) {
            s.refuse("sctp_rto_max", "a timeout is 400 ms at least, and 60 s at most", "write 400ms to 60s");
        }
        n2
    })
}

/// Packet threads where the operator names no number: one for each four processors. The control plane has the others, and the kernel,
/// which takes as much of a processor as a packet thread itself where packets come by sockets.
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
                "Address of this host that gNBs send user packets to; they are told it.",
            ),
            port: s.value(
                "port",
                2152,
                "UDP port (TS 29.281 §4.4.2.3); gNBs send to 2152 whatever stands here.",
            ),
            io: s.value(
                "io",
                IoChoice::Auto,
                "auto, udp, af_xdp or xdp: how packets come and go. auto takes AF_XDP if the interface's driver gives it \
                 frames without copying (needs root), else UDP sockets; the log says which and why. xdp is af_xdp with a fast \
                 path for most UEs' packets in the driver. See docs/packet-io.md.",
            ),
            threads: s
                .optional(
                    "threads",
                    "4",
                    "Threads that share the sessions, and so their packets: 1, 2, 4, 8 or 16. Without: one for each four \
                     processors. AF_XDP has no more than its interfaces have queues, xdp has one.",
                )
                .unwrap_or_else(threads_of_host),
            busy_poll_us: s.value(
                "busy_poll_us",
                0,
                "Microseconds that packet threads look at AF_XDP's rings, with the driver receiving as they look, before they \
                 sleep: less delay for a core's time. 0: interrupts wake them.",
            ),
            gnb_networks: s.list(
                "gnb_networks",
                vec![],
                "Networks from which gNBs and other UPFs send user packets, where one sends from other addresses than it names to the SMF. \
                 Without, packets of a session are taken from the address that the SMF names for it, and from addresses that it names for \
                 others.",
            ),
        };
        if n3.busy_poll_us > BUSY_POLL_US_MAX {
            let what = format!("looking for {} microseconds is no more than never sleeping", n3.busy_poll_us);
            s.refuse("busy_poll_us", what, format!("write 0 to {BUSY_POLL_US_MAX}"));
        }
        if !n3.threads.is_power_of_two() || n3.threads > SHARDS_MAX {
            let what = format!("there cannot be {} packet threads", n3.threads);
            s.refuse("threads", what, format!("write 1, 2, 4, 8 or {SHARDS_MAX}"));
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
    root.section("n4", "N4, between SMF and UPF: PFCP. A function call within this program; `listen` adds a socket for other SMFs.", |s| {
        let n4 = N4 {
            node_id: s.value("node_id", LOOPBACK, "Node identity of the SMF (TS 29.244 §8.2.38)."),
            listen: s.optional(
                "listen",
                "127.0.0.1:8805",
                "Address and UDP port on which the UPF also takes PFCP from another SMF.",
            ),
            smfs: s.list(
                "smfs",
                vec![],
                "SMFs elsewhere that the UPF asks for an association when it starts (TS 29.244 §6.2.6.3), each by address \
                 and port; an SMF that knows the UPF asks by itself.",
            ),
            path_failure: s.value(
                "path_failure",
                whimbrel_user::Config::PATH_FAILURE,
                "How long the UPF keeps the sessions of an SMF elsewhere that does not answer it (TS 23.527 §4.4).",
            ),
        };
        if !n4.smfs.is_empty() && n4.listen.is_none() {
            let what = "SMFs cannot answer a UPF that does not listen";
            s.refuse("smfs", what, "write `listen`, an address of this host that they reach");
        }
        n4
    })
}

pub(super) fn n6(root: &mut Section<'_, '_>) -> N6 {
    root.section("n6", "N6, towards the data networks: a TUN device of this host.", |s| {
        let mut n6 = N6 {
            ue_to_host: false,
            ue_to_ue: false,
            allow: Vec::new(),
            deny: Vec::new(),
            device: s.value(
                "device",
                "whimbrel".to_string(),
                "Names of the TUN devices, one a data network, made at start and removed at stop: whimbrel0, whimbrel1…",
            ),
            nat: s.value(
                "nat",
                true,
                "Lets UEs out under this host's address (masquerading), set up at start and removed at stop. false: \
                 route the pools to this host yourself.",
            ),
            forwarding: s.value(
                "forwarding",
                true,
                "Lets this host forward packets between its interfaces while the program runs, if it does not anyway.",
            ),
        };
        (n6.ue_to_host, n6.ue_to_ue, n6.allow, n6.deny) = super::isolation::read(s);
        // IFNAMSIZ of linux/if.h, less the closing zero and the number of the data network.
        let fits = (1..=13).contains(&n6.device.len())
            && n6.device.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
            && !matches!(n6.device.as_str(), "." | "..");
        if !fits {
            let what = format!("`{}` is no name for a network device", n6.device);
            s.refuse("device", what, "write 1 to 13 letters, digits, `-`, `_` or `.`");
        }
        n6
    })
}

fn nonzero(s: &mut Section<'_, '_>, key: &str, port: u16) {
    if port == 0 {
        s.refuse(key, "port 0 does not exist", "write 1 to 65535");
    }
}
