//! Finds the process that holds a port, for the error message of a start that failed.

use std::fmt::Display;
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Why a socket cannot be opened, in a sentence with the fix. `key` names the setting, `protocol` is TCP or UDP.
pub fn cannot_listen(key: &str, protocol: &str, address: SocketAddr, e: &std::io::Error) -> String {
    use std::io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let port = address.port();
    match e.kind() {
        AddrInUse => {
            let holder = owner_of_port(protocol, port).map_or("another process".into(), |o| o.to_string());
            format!(
                "{protocol} port {port} of {} is in use by {holder}: stop that process, or choose another \
                 address or port with `{key}`",
                address.ip()
            )
        }
        AddrNotAvailable => format!(
            "{} is not an address of this host (it has {}): set `{key}` to one of these",
            address.ip(),
            own_addresses()
        ),
        PermissionDenied => format!(
            "this user may not open {protocol} port {port}: choose a port above 1023 with `{key}`, or grant \
             CAP_NET_BIND_SERVICE"
        ),
        _ => format!("{protocol} port {port} of {} cannot be opened: {e}; see `{key}`", address.ip()),
    }
}

/// A process that holds a port.
#[derive(Debug, PartialEq)]
pub struct Owner {
    pub name: String,
    pub pid: u32,
}

impl Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// The process that holds a local port, as far as this user may see it.
pub fn owner_of_port(protocol: &str, port: u16) -> Option<Owner> {
    let tables = match protocol {
        "TCP" => ["/proc/net/tcp", "/proc/net/tcp6"],
        _ => ["/proc/net/udp", "/proc/net/udp6"],
    };
    let inode = tables.iter().find_map(|table| inode_of(&fs::read_to_string(table).ok()?, protocol, port))?;
    let link = format!("socket:[{inode}]");
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(fds) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds =
            fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|l| l.as_os_str() == link.as_str()));
        if holds {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(Owner { name: name.trim().into(), pid });
        }
    }
    None
}

/// The inode of the socket bound to a port, from one of the kernel's tables (proc(5): columns 2 and 10; state 0A is
/// LISTEN).
fn inode_of(table: &str, protocol: &str, port: u16) -> Option<u64> {
    let local = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let listens = protocol != "TCP" || columns.get(3) == Some(&"0A");
        (listens && columns.get(1)?.ends_with(&local)).then(|| columns.get(9)?.parse().ok()).flatten()
    })
}

/// This host's addresses, from the kernel's tables.
pub fn own_addresses() -> String {
    let mut addresses: Vec<IpAddr> = Vec::new();
    if let Ok(trie) = fs::read_to_string("/proc/net/fib_trie") {
        let mut last: Option<IpAddr> = None;
        for line in trie.lines() {
            if let Some(address) = line.trim().strip_prefix("|-- ") {
                last = address.parse().ok();
            } else if line.contains("/32 host LOCAL") {
                addresses.extend(last.take());
            }
        }
    }
    if let Ok(six) = fs::read_to_string("/proc/net/if_inet6") {
        let hex = six.lines().filter_map(|l| u128::from_str_radix(l.get(..32)?, 16).ok());
        addresses.extend(hex.map(|n| IpAddr::V6(n.into())));
    }
    addresses.sort();
    addresses.dedup();
    let shown: Vec<String> = addresses.iter().take(8).map(IpAddr::to_string).collect();
    if shown.is_empty() { "none".into() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let owner = owner_of_port("TCP", address.port()).unwrap();
        assert_eq!(owner.pid, std::process::id());
        let e = std::net::TcpListener::bind(address).unwrap_err();
        let error = cannot_listen("api.address", "TCP", address, &e);
        assert!(error.contains("is in use by") && error.contains(&owner.pid.to_string()), "{error}");
    }

    #[test]
    fn the_message_about_a_wrong_address_lists_the_hosts_addresses() {
        let address: SocketAddr = "192.0.2.77:9".parse().unwrap();
        let e = std::net::UdpSocket::bind(address).unwrap_err();
        let error = cannot_listen("n3.address", "UDP", address, &e);
        assert!(error.contains("not an address of this host") && error.contains("127.0.0.1"), "{error}");
    }
}
