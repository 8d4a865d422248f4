//! A TUN device for a UE's PDU session, so that any program can use it.
//!
//! It gets the IPv4 address of the session, the link-local address of its IPv6 interface identifier, and the address in the
//! prefix that is advertised. In a network namespace of its own it gets default routes too; on the host, programs name the
//! device (`ping -I wbue0`).

use std::ffi::c_void;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

use super::namespace::Namespace;
use super::netlink::Netlink;

const TUNSETIFF: Opcode = 0x4004_54ca;
/// One packet per read, without a header.
const IFF_TUN_NO_PI: u16 = 0x1001;
/// Metric of the first device's default routes in a namespace: lower precedence than manual ones.
const METRIC: u32 = 100;
/// `O_NONBLOCK` on Linux.
const O_NONBLOCK: i32 = 0o4000;

/// A device could not be created; with the failed step.
#[derive(Debug)]
pub struct TunError {
    /// Name of the device.
    pub name: String,
    /// The step that failed.
    pub doing: &'static str,
    /// The system's error.
    pub error: io::Error,
}

impl fmt::Display for TunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TUN device {}: {}: {}", self.name, self.doing, self.error)
    }
}

impl std::error::Error for TunError {}

/// `struct ifreq`: a name and 24 octets that the request gives a meaning.
#[repr(C, align(8))]
struct IfReq {
    name: [u8; 16],
    data: [u8; 24],
}

/// An ioctl request with a structure.
struct IoctlRequest<'a, T>(Opcode, &'a mut T);

// SAFETY: TUNSETIFF takes a pointer to `ifreq`, reads and writes no more than it, and keeps no pointer; `open_here` alone makes
// requests, with this pair.
unsafe impl<T> Ioctl for IoctlRequest<'_, T> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.0
    }

    fn as_ptr(&mut self) -> *mut c_void {
        core::ptr::from_mut(self.1).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

fn request<T>(fd: BorrowedFd<'_>, opcode: Opcode, argument: &mut T) -> io::Result<()> {
    // SAFETY: see the implementation of `Ioctl` above; the structure outlives the call.
    Ok(unsafe { ioctl::ioctl(fd, IoctlRequest(opcode, argument)) }?)
}

impl IfReq {
    fn new(name: &str) -> Self {
        let mut out = Self { name: [0; 16], data: [0; 24] };
        // The last octet stays zero.
        out.name.iter_mut().take(15).zip(name.bytes()).for_each(|(to, from)| *to = from);
        out
    }

    fn with(mut self, data: &[u8]) -> Self {
        self.data.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        self
    }
}

/// Parameters of a device.
#[derive(Clone, Debug, Default)]
pub struct TunConfig {
    /// Name of the device.
    pub name: String,
    /// The session's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The link-local address of the session's interface identifier.
    pub link_local: Option<Ipv6Addr>,
    /// Link MTU in octets.
    pub mtu: Option<u16>,
    /// Number of earlier devices in the namespace, whose default routes have precedence.
    pub before: u32,
}

/// A TUN device; it is removed when dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    config: TunConfig,
    /// Its namespace; none: that of this process.
    namespace: Option<Arc<Namespace>>,
}

impl Tun {
    /// Creates a device with the addresses of a session. Errors: the step that failed.
    pub fn open(config: TunConfig, namespace: Option<Arc<Namespace>>) -> Result<Self, TunError> {
        let file = inside(namespace.as_deref(), &config.name, || open_here(&config, namespace.is_some()))??;
        Ok(Self { file, config, namespace })
    }

    /// Gives it the address in the prefix that the network advertises. Errors: the step that failed.
    pub fn add_prefix(&self, address: Ipv6Addr, mtu: Option<u32>) -> Result<(), TunError> {
        let failed = |doing| move |error| TunError { name: self.config.name.clone(), doing, error };
        let add = || {
            let netlink = Netlink::open().map_err(failed("opening a socket for its settings"))?;
            let index = netlink.index(&self.config.name).map_err(failed("asking its index"))?;
            if mtu.is_some() {
                netlink.bring_up(index, mtu).map_err(failed("setting its MTU"))?;
            }
            netlink.add_address(index, address.into(), 64).map_err(failed("setting its IPv6 address"))?;
            if self.namespace.is_some() {
                let metric = METRIC + self.config.before;
                netlink
                    .add_default_route(index, true, metric)
                    .map_err(failed("setting its IPv6 default route"))?;
            }
            Ok(())
        };
        inside(self.namespace.as_deref(), &self.config.name, add)?
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// To wait for packets.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The next packet of a program, if any.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        (&self.file).read(buffer).ok().filter(|n| *n > 0)
    }

    /// A packet for programs; one that the device refuses is lost.
    pub fn write(&self, packet: &[u8]) {
        let _lost = (&self.file).write(packet);
    }
}

/// Runs a function in a namespace, or in the present one.
fn inside<T: Send>(
    namespace: Option<&Namespace>,
    name: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, TunError> {
    match namespace {
        Some(namespace) => namespace.inside(work).map_err(|error| TunError {
            name: name.to_owned(),
            doing: "entering its namespace",
            error,
        }),
        None => Ok(work()),
    }
}

fn open_here(config: &TunConfig, default_route: bool) -> Result<File, TunError> {
    let name = config.name.as_str();
    let failed = |doing| move |error| TunError { name: name.to_owned(), doing, error };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(failed("opening /dev/net/tun"))?;
    let mut make = IfReq::new(name).with(&IFF_TUN_NO_PI.to_ne_bytes());
    request(file.as_fd(), TUNSETIFF, &mut make).map_err(failed("making it (needs CAP_NET_ADMIN)"))?;
    // No addresses and routes but those of the session. A kernel without IPv6 has no such files.
    for (setting, value) in [("addr_gen_mode", "1"), ("accept_ra", "0")] {
        let _no_ipv6 = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{setting}"), value);
    }
    let netlink = Netlink::open().map_err(failed("opening a socket for its settings"))?;
    let index = netlink.index(name).map_err(failed("asking its index"))?;
    netlink.bring_up(index, config.mtu.map(u32::from)).map_err(failed("bringing it up"))?;
    if let Some(address) = config.ipv4 {
        netlink.add_address(index, IpAddr::V4(address), 32).map_err(failed("setting its IPv4 address"))?;
        if default_route {
            let metric = METRIC + config.before;
            netlink
                .add_default_route(index, false, metric)
                .map_err(failed("setting its IPv4 default route"))?;
        }
    }
    if let Some(address) = config.link_local {
        netlink.add_address(index, IpAddr::V6(address), 64).map_err(failed("setting its IPv6 address"))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn ip(arguments: &str) -> String {
        let out = Command::new("ip").args(arguments.split(' ')).output().unwrap();
        assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    #[test]
    fn a_device_in_a_namespace_has_addresses_mtu_default_routes_and_gets_packets() {
        let ns = format!("wbtun-{}", std::process::id());
        let namespace = match Namespace::named(&ns) {
            Ok(namespace) if File::open("/dev/net/tun").is_ok() => Arc::new(namespace),
            _ => {
                eprintln!("skipped: a TUN device in a network namespace needs root and /dev/net/tun");
                return;
            }
        };
        let address = Ipv4Addr::new(10, 45, 0, 2);
        let config = TunConfig {
            name: "wbue0".into(),
            ipv4: Some(address),
            link_local: Some("fe80::9".parse().unwrap()),
            mtu: Some(1400),
            before: 0,
        };
        let tun = Tun::open(config, Some(namespace)).unwrap();
        tun.add_prefix("2001:db8:0:7::9".parse().unwrap(), Some(1380)).unwrap();
        let shown = ip(&format!("-n {ns} addr show dev wbue0"))
            + &ip(&format!("-n {ns} route show"))
            + &ip(&format!("-n {ns} -6 route show"));
        ip(&format!("netns exec {ns} bash -c echo>/dev/udp/192.0.2.1/9"));
        let mut buffer = [0; 2000];
        let mut seen = false;
        for _ in 0..200 {
            // IPv4, UDP, from the session's address.
            let n = tun.read(&mut buffer).unwrap_or(0);
            seen |= n > 20 && buffer[0] == 0x45 && buffer[9] == 17 && buffer[12..16] == address.octets();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for part in [
            "mtu 1380",
            "inet 10.45.0.2/32",
            "inet6 fe80::9/64",
            "inet6 2001:db8:0:7::9/64",
            "default dev wbue0 proto static scope link metric 100",
            "default dev wbue0 proto static metric 100",
            "UP",
        ] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert_eq!(shown.matches("inet6 ").count(), 2, "addresses of the kernel's own making: {shown}");
        assert!(seen);
    }
}
