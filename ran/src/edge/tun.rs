//! A TUN device for a phone's session, so that any program can use it.
//!
//! It gets the IPv4 address of the session and the link-local address of its IPv6 interface identifier. Global IPv6
//! addresses and routes are left to who uses the device (`ping -I wbue0` needs none).

use std::ffi::c_void;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

const TUNSETIFF: Opcode = 0x4004_54ca;
const SIOCSIFFLAGS: Opcode = 0x8914;
const SIOCSIFADDR: Opcode = 0x8916;
const SIOCSIFNETMASK: Opcode = 0x891c;
const SIOCSIFMTU: Opcode = 0x8922;
const SIOCGIFINDEX: Opcode = 0x8933;
const IFF_UP_RUNNING: u16 = 0x41;
/// A packet a read, without a header before it.
const IFF_TUN_NO_PI: u16 = 0x1001;
const AF_INET: u16 = 2;
/// `O_NONBLOCK` on Linux.
const O_NONBLOCK: i32 = 0o4000;

/// A device could not be made; says which step failed.
#[derive(Debug)]
pub struct TunError {
    /// The device.
    pub name: String,
    /// What was being done.
    pub doing: &'static str,
    /// What the system said.
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

/// `struct in6_ifreq`.
#[repr(C)]
struct In6IfReq {
    address: [u8; 16],
    prefix_len: u32,
    index: i32,
}

/// A request that reads and writes a structure of ours.
struct Request<'a, T>(Opcode, &'a mut T);

// SAFETY: the opcodes above take a pointer to the structure that `Request` is made with (`ifreq`, or `in6_ifreq` for an
// IPv6 socket), read and write no more than it, and keep no pointer; `open` alone makes requests, with these pairs.
unsafe impl<T> Ioctl for Request<'_, T> {
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
    Ok(unsafe { ioctl::ioctl(fd, Request(opcode, argument)) }?)
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

    /// `struct sockaddr_in` of an address.
    fn with_ipv4(self, address: Ipv4Addr) -> Self {
        let [f0, f1] = AF_INET.to_ne_bytes();
        let [a, b, c, d] = address.octets();
        self.with(&[f0, f1, 0, 0, a, b, c, d])
    }
}

/// A TUN device; it is gone when dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
}

impl Tun {
    /// Makes a device with the addresses of a session, in the network namespace `netns` of `/run/netns`, if given, else in that of the
    /// calling thread. Errors: the step that failed.
    pub fn open(
        name: &str,
        netns: Option<&str>,
        ipv4: Option<Ipv4Addr>,
        link_local: Option<Ipv6Addr>,
        mtu: Option<u16>,
    ) -> Result<Self, TunError> {
        let Some(netns) = netns else { return Self::open_here(name, ipv4, link_local, mtu) };
        // A namespace is entered by a thread of its own, so that the caller stays where it is.
        let inside = || {
            let failed =
                |error: io::Error| TunError { name: name.into(), doing: "entering its namespace", error };
            let file = File::open(format!("/run/netns/{netns}")).map_err(failed)?;
            let network = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(file.as_fd(), Some(network))
                .map_err(|e| failed(e.into()))?;
            Self::open_here(name, ipv4, link_local, mtu)
        };
        std::thread::scope(|s| s.spawn(inside).join()).unwrap_or_else(|_| {
            let error = io::Error::other("the thread in the namespace ended");
            Err(TunError { name: name.into(), doing: "entering its namespace", error })
        })
    }

    fn open_here(
        name: &str,
        ipv4: Option<Ipv4Addr>,
        link_local: Option<Ipv6Addr>,
        mtu: Option<u16>,
    ) -> Result<Self, TunError> {
        let failed = |doing| move |error| TunError { name: name.to_owned(), doing, error };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(failed("opening /dev/net/tun"))?;
        let mut make = IfReq::new(name).with(&IFF_TUN_NO_PI.to_ne_bytes());
        request(file.as_fd(), TUNSETIFF, &mut make).map_err(failed("making it (needs CAP_NET_ADMIN)"))?;
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed("opening a socket for its settings"))?;
        let set =
            |opcode, mut r: IfReq, doing| request(socket.as_fd(), opcode, &mut r).map_err(failed(doing));
        if let Some(mtu) = mtu {
            let mtu = i32::from(mtu).to_ne_bytes();
            set(SIOCSIFMTU, IfReq::new(name).with(&mtu), "setting its MTU")?;
        }
        if let Some(ipv4) = ipv4 {
            set(SIOCSIFADDR, IfReq::new(name).with_ipv4(ipv4), "setting its IPv4 address")?;
            set(SIOCSIFNETMASK, IfReq::new(name).with_ipv4(Ipv4Addr::BROADCAST), "setting its netmask")?;
        }
        let flags = IFF_UP_RUNNING.to_ne_bytes();
        set(SIOCSIFFLAGS, IfReq::new(name).with(&flags), "bringing it up")?;
        if let Some(address) = link_local {
            let mut index = IfReq::new(name);
            request(socket.as_fd(), SIOCGIFINDEX, &mut index).map_err(failed("asking its index"))?;
            let [a, b, c, d, ..] = index.data;
            let index = i32::from_ne_bytes([a, b, c, d]);
            let v6 = UdpSocket::bind("[::]:0").map_err(failed("opening an IPv6 socket for its settings"))?;
            let mut set = In6IfReq { address: address.octets(), prefix_len: 64, index };
            request(v6.as_fd(), SIOCSIFADDR, &mut set).map_err(failed("setting its IPv6 address"))?;
        }
        Ok(Self { file })
    }

    /// To wait for packets.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The next packet of a program, if one waits.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        (&self.file).read(buffer).ok().filter(|n| *n > 0)
    }

    /// A packet for programs; one that the device does not take is lost, as on any network.
    pub fn write(&self, packet: &[u8]) {
        let _lost = (&self.file).write(packet);
    }
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
    fn a_device_in_a_namespace_gets_its_addresses_and_packets() {
        let ns = format!("wbran-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &ns]).status();
        if !made.is_ok_and(|s| s.success()) || std::fs::File::open("/dev/net/tun").is_err() {
            eprintln!("skipped: a TUN device in a network namespace needs root, iproute2 and /dev/net/tun");
            return;
        }
        let address = Ipv4Addr::new(10, 45, 0, 2);
        let link_local: Ipv6Addr = "fe80::9".parse().unwrap();
        let tun = Tun::open("wbue0", Some(&ns), Some(address), Some(link_local), Some(1400)).unwrap();
        let shown = ip(&format!("-n {ns} addr show dev wbue0"));
        ip(&format!("-n {ns} route add default dev wbue0"));
        ip(&format!("netns exec {ns} bash -c echo>/dev/udp/192.0.2.1/9"));
        let mut buffer = [0; 2000];
        let mut seen = false;
        for _ in 0..200 {
            // IPv4, UDP, from the session's address.
            let n = tun.read(&mut buffer).unwrap_or(0);
            seen |= n > 20 && buffer[0] == 0x45 && buffer[9] == 17 && buffer[12..16] == address.octets();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        ip(&format!("netns del {ns}"));
        for part in ["mtu 1400", "inet 10.45.0.2/32", "inet6 fe80::9/64", "UP"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
        assert!(seen);
    }
}
