//! What keeps the user plane from starting, or from being all that was asked: cause, effect and fix in one sentence each.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use whimbrel_user::ConfigError;

pub use crate::host::route::NoInterface;
pub use crate::host::upkeep::{HostProblem, HostReport};

/// Why the user plane does not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration contradicts itself.
    Config(ConfigError),
    /// There is not one device for each data network.
    Devices {
        /// Number of configured devices.
        devices: usize,
        /// Data networks configured.
        networks: usize,
    },
    /// The GTP-U socket could not be bound.
    Bind {
        /// The address and port.
        address: SocketAddr,
        /// The system's reason.
        error: io::Error,
    },
    /// A TUN device could not be made.
    Tun {
        /// Name of the device.
        device: String,
        /// The system's reason.
        error: io::Error,
    },
    /// A TUN device could not be given its addresses.
    Link {
        /// Name of the device.
        device: String,
        /// The system's reason.
        error: io::Error,
    },
    /// A TAP device could not be brought up, or become a port of its bridge.
    Frames {
        /// Name of the device.
        device: String,
        /// The bridge, if it was to be a port of one.
        bridge: Option<String>,
        /// The system's reason.
        error: io::Error,
    },
    /// AF_XDP was asked for, and cannot be had.
    AfXdp(Obstacle),
    /// The kernel does not say which addresses are the host's, which UEs are not to reach.
    HostAddresses(io::Error),
    /// A pool of UEs is one of this host's networks.
    Pool(HostProblem),
    /// The system gave no descriptor or no thread.
    System(io::Error),
}

/// Why packets do not come by AF_XDP.
#[derive(Debug)]
pub enum Obstacle {
    /// There is no Ethernet interface for it.
    Interface(NoInterface),
    /// N3's IPv4 address is on one interface and its IPv6 address on another.
    TwoInterfaces,
    /// The driver does not give frames without copying, which alone is worth taking them from the kernel unasked.
    Copies {
        /// The interface's name.
        interface: String,
    },
    /// The kernel does not say what the driver can.
    Features {
        /// The interface's name.
        interface: String,
        /// The system's reason.
        error: io::Error,
    },
    /// The driver takes VLAN tags off, and the program would not know frames of a VLAN from others.
    TagsTaken {
        /// The interface's name.
        interface: String,
    },
    /// An Ethernet interface was named, and neither a router on it nor a tunnel's end.
    NoRouter {
        /// The interface's name.
        interface: String,
    },
    /// A fast path was asked for, and no packet could take it.
    NoFastPath,
    /// There is no memory for a fast path.
    Memory(io::Error),
    /// The kernel does not take the program.
    Program(io::Error),
    /// The program could not be attached to the interface.
    Attach {
        /// Name of the interface.
        interface: String,
        /// The system's reason.
        error: io::Error,
    },
    /// The interface's queues could not be had.
    Rings {
        /// Name of the interface.
        interface: String,
        /// The system's reason.
        error: io::Error,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(NoInterface::NoAddress) => f.write_str("no interface of this host has N3's address"),
            Self::Interface(NoInterface::NoSuch(name)) => write!(f, "this host has no interface {name}"),
            Self::Interface(NoInterface::NoEthernet(name)) => {
                write!(f, "it would be on {name}, which is no Ethernet interface")
            }
            Self::Interface(NoInterface::Unknown(e)) => {
                write!(f, "the kernel does not say what its interfaces are ({e})")
            }
            Self::TwoInterfaces => f.write_str("N3's IPv4 and IPv6 addresses are on two interfaces"),
            Self::Copies { interface } => {
                write!(f, "the driver of {interface} has no zero-copy (`n3.io: af_xdp` takes it as it is)")
            }
            Self::Features { interface, error } => write!(
                f,
                "the kernel does not say what the driver of {interface} can ({error}); Linux 6.3 and later do \
                 (`n3.io: af_xdp` tries it)"
            ),
            Self::TagsTaken { interface } => write!(
                f,
                "the driver of {interface} takes VLAN tags off before the program sees them: have it leave them there \
                 (ethtool -K {interface} rxvlan off)"
            ),
            Self::NoRouter { interface } => {
                write!(f, "{interface} leads to no router: name one in `n6_routers`, or a tunnel's end in `n6_gre`")
            }
            Self::NoFastPath => f.write_str(
                "`n3.io: xdp` takes an IPv4 address for N3, and a data network with `n6_interface` and an IPv4 router in \
                 `n6_routers`, neither in a VLAN: packets go from interface to interface there",
            ),
            Self::Program(e) | Self::Memory(e) if e.raw_os_error() == Some(libc::EPERM) => f.write_str(
                "loading an XDP program is not permitted: that takes root, or CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, \
                 outside of a user namespace",
            ),
            Self::Program(e) => write!(f, "the kernel does not take the XDP program ({e}); Linux 5.9 or later does"),
            Self::Memory(e) => write!(f, "the kernel has no memory for the sessions of a fast path ({e})"),
            Self::Attach { interface, error } => match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST) => {
                    write!(f, "{interface} has another XDP program (ip link shows it)")
                }
                _ => write!(f, "the driver of {interface} does not take an XDP program ({error})"),
            },
            Self::Rings { interface, error } => match error.raw_os_error() {
                Some(libc::EBUSY) => write!(f, "another program has the queues of {interface}"),
                Some(libc::EMSGSIZE) => {
                    write!(f, "the MTU of {interface} is more than AF_XDP carries in a frame, 3,822")
                }
                Some(libc::ENOBUFS | libc::ENOMEM) => {
                    write!(f, "the rings of {interface} may not be locked in memory ({error}; ulimit -l)")
                }
                _ => write!(f, "{interface} has no AF_XDP queues ({error})"),
            },
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::Devices { devices, networks } => write!(
                f,
                "{devices} TUN devices are configured for {networks} data networks, so the user plane does not start: \
                 give one for each"
            ),
            Self::Bind { address, error } => bind(f, address, error),
            Self::Tun { device, error } => tun(f, device, error),
            Self::Link { device, error } => write!(
                f,
                "{device} could not be given its addresses ({error}), so UEs could not reach the data network: \
                 run as root, with CAP_NET_ADMIN, or in a user namespace (unshare -Urn)"
            ),
            Self::Frames { device, bridge: Some(bridge), error } => write!(
                f,
                "{device} could not become a port of the bridge {bridge} ({error}), so Ethernet sessions would reach \
                 no host: make the bridge first (ip link add {bridge} type bridge), or name none"
            ),
            Self::Frames { device, bridge: None, error } => write!(
                f,
                "{device} could not be brought up ({error}), so Ethernet sessions would reach no host: run as root, with \
                 CAP_NET_ADMIN, or in a user namespace (unshare -Urn)"
            ),
            Self::AfXdp(obstacle) => {
                write!(f, "AF_XDP was asked for and cannot be had, so no packets would come: {obstacle}")
            }
            Self::HostAddresses(error) => write!(
                f,
                "the kernel does not say which addresses are this host's ({error}), and UEs are to reach none of them: let the \
                 program open netlink sockets (AF_NETLINK)"
            ),
            Self::Pool(problem) => problem.fmt(f),
            Self::System(error) => {
                write!(
                    f,
                    "the system refused a thread or a descriptor ({error}): raise its limits (ulimit -n, -u)"
                )
            }
        }
    }
}

fn bind(f: &mut fmt::Formatter<'_>, address: &SocketAddr, error: &io::Error) -> fmt::Result {
    let effect = "so gNBs could not send packets";
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => write!(
            f,
            "another program has UDP port {} on {}, {effect}: stop it (ss -lunp shows it) or give the UPF another N3 \
             address",
            address.port(),
            address.ip()
        ),
        Some(libc::EADDRNOTAVAIL) => write!(
            f,
            "this host has no address {}, {effect}: set the UPF's N3 address to one of `ip address`",
            address.ip()
        ),
        _ => write!(f, "UDP {address} could not be bound ({error}), {effect}: check the UPF's N3 address"),
    }
}

fn tun(f: &mut fmt::Formatter<'_>, device: &str, error: &io::Error) -> fmt::Result {
    let effect = "so UEs could not reach the data network";
    match error.raw_os_error() {
        Some(libc::EACCES) => write!(
            f,
            "this user may not open /dev/net/tun, {effect}: let it (chmod 666 /dev/net/tun, as most systems have it) or \
             run as root"
        ),
        Some(libc::EPERM) => write!(
            f,
            "making the TUN device {device} is not permitted, {effect}: run as root, with CAP_NET_ADMIN, or in a user \
             namespace (unshare -Urn)"
        ),
        Some(libc::ENOENT | libc::ENODEV) => {
            write!(f, "this host has no /dev/net/tun, {effect}: load the module (modprobe tun)")
        }
        Some(libc::EBUSY) => {
            write!(f, "another program has the interface {device}, {effect}: stop it or give another name")
        }
        _ => write!(f, "the TUN device {device} could not be made ({error}), {effect}: give another name"),
    }
}

impl std::error::Error for StartError {}

impl From<ConfigError> for StartError {
    fn from(e: ConfigError) -> Self {
        Self::Config(e)
    }
}

/// Something that was asked for and could not be had; the user plane runs without it.
#[derive(Debug)]
pub enum Notice {
    /// Address translation of the host has failed.
    Nat(io::Error),
    /// Forwarding between the host's interfaces.
    Forwarding(io::Error),
    /// Polling of drivers by packet threads.
    BusyPoll(io::Error),
    /// Packets of a TUN device to the thread that has their UE.
    Steering(io::Error),
    /// Keeping up what was set on the host.
    Upkeep(io::Error),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nat(e) if e.raw_os_error() == Some(libc::EPERM) => f.write_str(
                "setting up address translation is not permitted, so UEs reach this host but nothing beyond it: run \
                 as root or with CAP_NET_ADMIN, or route the pools to this host yourself",
            ),
            Self::Nat(e) => write!(
                f,
                "the kernel has no nftables masquerading ({e}), so UEs reach this host but nothing beyond it: load \
                 nft_masq and nft_chain_nat, or route the pools to this host yourself"
            ),
            Self::BusyPoll(e) => write!(
                f,
                "packet threads do not poll every driver ({e}), so interrupts wake them as ever: it takes a driver with XDP, Linux 5.11 \
                 and root or CAP_NET_ADMIN, or leave `n3.busy_poll_us` out"
            ),
            Self::Steering(e) => write!(
                f,
                "the kernel does not steer packets for UEs to their packet threads ({e}), so threads hand them over, which \
                 takes longer: run as root or with CAP_BPF, outside of a user namespace"
            ),
            Self::Upkeep(e) => write!(
                f,
                "the kernel does not report changes of interfaces and addresses ({e}), so what another program changes is not put back: let the \
                 program open netlink sockets (AF_NETLINK), and raise its limits (ulimit -n, -u)"
            ),
            Self::Forwarding(e) => write!(
                f,
                "forwarding could not be switched on ({e}), so UEs reach this host but nothing beyond it: run as \
                 root, or set net.ipv4.ip_forward=1 and net.ipv6.conf.all.forwarding=1 yourself, for a container on its host"
            ),
        }
    }
}
