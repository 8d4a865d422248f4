//! What keeps the user plane from starting, or from being all that was asked: cause, effect and fix in one sentence each.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use whimbrel_user::ConfigError;

/// Why the user plane does not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration contradicts itself.
    Config(ConfigError),
    /// There is not one device for each data network.
    Devices {
        /// Devices configured.
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
        /// Its name.
        device: String,
        /// The system's reason.
        error: io::Error,
    },
    /// A TUN device could not be given its addresses.
    Link {
        /// Its name.
        device: String,
        /// The system's reason.
        error: io::Error,
    },
    /// A TAP device could not be brought up, or become a port of its bridge.
    Frames {
        /// Its name.
        device: String,
        /// The bridge, if it was to be a port of one.
        bridge: Option<String>,
        /// The system's reason.
        error: io::Error,
    },
    /// The system gave no descriptor or no thread.
    System(io::Error),
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
                "{device} could not be given its addresses ({error}), so phones could not reach the data network: \
                 run as root, with CAP_NET_ADMIN, or in a user namespace (unshare -Urn)"
            ),
            Self::Frames { device, bridge: Some(bridge), error } => write!(
                f,
                "{device} could not become a port of the bridge {bridge} ({error}), so Ethernet sessions would reach \
                 nobody: make the bridge first (ip link add {bridge} type bridge), or name none"
            ),
            Self::Frames { device, bridge: None, error } => write!(
                f,
                "{device} could not be brought up ({error}), so Ethernet sessions would reach nobody: run as root, with \
                 CAP_NET_ADMIN, or in a user namespace (unshare -Urn)"
            ),
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
    let effect = "so phones could not reach the data network";
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
    /// Address translation.
    Nat(io::Error),
    /// Forwarding between the host's interfaces.
    Forwarding(io::Error),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nat(e) if e.raw_os_error() == Some(libc::EPERM) => f.write_str(
                "setting up address translation is not permitted, so phones reach this host but nothing beyond it: run \
                 as root or with CAP_NET_ADMIN, or route the pools to this host yourself",
            ),
            Self::Nat(e) => write!(
                f,
                "the kernel has no nftables masquerading ({e}), so phones reach this host but nothing beyond it: load \
                 nft_masq and nft_chain_nat, or route the pools to this host yourself"
            ),
            Self::Forwarding(e) => write!(
                f,
                "forwarding could not be switched on ({e}), so phones reach this host but nothing beyond it: run as \
                 root, or set net.ipv4.ip_forward=1 and net.ipv6.conf.all.forwarding=1 yourself"
            ),
        }
    }
}
