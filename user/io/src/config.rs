//! What the user plane is to be started with.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whimbrel_gtpu::PORT;
use whimbrel_ids::Instant;
use whimbrel_user::DataNetwork;

use crate::gre::GreTunnel;
use crate::harvest::Harvest;

/// The program's one clock.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// A clock anchored to the wall now, that never steps back; for a program that has no own.
pub fn system_clock() -> Clock {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = std::time::Instant::now();
    Arc::new(move || Instant((epoch + start.elapsed()).as_micros() as u64))
}

/// How a data network is reached from this host.
#[derive(Clone, Debug)]
pub struct DataNetworkDevice {
    /// Name of its TUN device, at most 15 octets.
    pub device: String,
    /// Masquerade UEs' addresses behind the host's own.
    pub nat: bool,
    /// Its own interface, if it has one.
    pub link: Option<RouterLink>,
    /// Where Ethernet sessions reach it, if they do.
    pub frames: Option<FramesDevice>,
}

/// An Ethernet interface over which a data network is reached by AF_XDP, past the kernel's forwarding. The TUN device stays
/// for what goes to this host or is for the kernel to answer.
#[derive(Clone, Debug)]
pub struct RouterLink {
    /// Name of the interface.
    pub interface: String,
    /// Next hops for uplink packets: an IPv4 and an IPv6 address at most.
    pub routers: Vec<IpAddr>,
    /// The VLAN on another interface that its frames go by, where the kernel does not say so itself: it does of its own VLAN devices, and
    /// not of a software switch's ports.
    pub vlan: Option<Vlan>,
    /// A tunnel to a router, instead of `routers`.
    pub tunnel: Option<GreTunnel>,
}

/// Frames of an Ethernet interface that have a tag (IEEE 802.1Q).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Name of the interface.
    pub interface: String,
    /// The VLAN's number, 1 to 4094.
    pub id: u16,
}

/// How Ethernet sessions reach a data network: a TAP device, on its own or as a port of a bridge.
#[derive(Clone, Debug)]
pub struct FramesDevice {
    /// Name of the TAP device, at most 15 octets.
    pub device: String,
    /// A bridge of the host that it becomes a port of.
    pub bridge: Option<String>,
}

/// How the packets of N3 are to be taken from the host and given to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum N3Io {
    /// By AF_XDP if the driver gives it frames without copying, else by UDP sockets.
    #[default]
    Auto,
    /// By UDP sockets: everywhere, without special rights.
    Udp,
    /// By AF_XDP, or not at all.
    AfXdp,
    /// By AF_XDP, with a program that handles the packets of plain sessions wholly in the driver; or not at all.
    Xdp,
}

/// What the kernel spreads datagrams from gNBs among the sockets of the packet threads by. Whatever it is, the thread that has the session decides on a packet: one
/// that arrives at another thread is handed to it, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpreadBy {
    /// The TEID, which leads to the session's thread.
    #[default]
    Teid,
    /// The UE's address in the packet, or its IPv6 prefix, which leads to the session's thread where UPF-C has chosen it.
    UeAddress,
    /// A hash of the gNB's address.
    GnbAddress,
    /// A hash of the gNB's address and its UDP port.
    GnbFlow,
}

/// What the user plane is to be started with.
#[derive(Clone)]
pub struct Config {
    /// The UPF itself.
    pub user: whimbrel_user::Config,
    /// One for each of its data networks, in their order.
    pub devices: Vec<DataNetworkDevice>,
    /// The port of GTP-U; other than 2152 in tests alone.
    pub port: u16,
    /// How N3's packets come and go.
    pub n3_io: N3Io,
    /// What N3's datagrams are spread among several packet threads' sockets by.
    pub spread_by: SpreadBy,
    /// How long a packet thread looks at rings before it sleeps, with the driver receiving as it looks; zero: it sleeps soon, and interrupts
    /// wake it. Without AF_XDP it is of no concern.
    pub busy_poll: Duration,
    /// Let the host forward between its interfaces, if it does not yet.
    pub forwarding: bool,
    /// A file that notes which settings of the host are changed while they are, for the case of a kill.
    pub journal: Option<PathBuf>,
    /// A state is kept for a successor: what sessions have counted is reported for it, and packets are taken from [`begin`](crate::Handle::begin) on.
    pub keeps_state: bool,
    /// The file of that state, in which packets that wait for idle UEs are kept too.
    pub held: Option<Arc<File>>,
    /// For so long from the start no error indications are sent to gNBs: SMFs may restore sessions.
    pub restored_within: Duration,
    /// How much the packet threads' background work may cost packets.
    pub harvest: Harvest,
    /// The program's clock.
    pub clock: Clock,
}

impl Config {
    /// A user plane with a device `prefixN` for each data network, without address translation.
    pub fn new(user: whimbrel_user::Config, prefix: &str) -> Self {
        let device = |(i, dn): (usize, &DataNetwork)| DataNetworkDevice {
            device: format!("{prefix}{i}"),
            nat: false,
            link: None,
            frames: dn.ethernet.then(|| FramesDevice { device: format!("{prefix}{i}-eth"), bridge: None }),
        };
        let devices = user.data_networks.iter().enumerate().map(device).collect();
        Self {
            user,
            devices,
            port: PORT,
            n3_io: N3Io::default(),
            spread_by: SpreadBy::default(),
            busy_poll: Duration::ZERO,
            forwarding: false,
            journal: None,
            keeps_state: false,
            held: None,
            restored_within: Duration::ZERO,
            harvest: Harvest::Off,
            clock: system_clock(),
        }
    }

    /// Where gNBs send to.
    pub(crate) fn n3_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let all = [self.user.n3_ipv4.map(IpAddr::V4), self.user.n3_ipv6.map(IpAddr::V6)];
        let port = self.port;
        all.into_iter().flatten().map(move |ip| SocketAddr::new(ip, port))
    }
}
