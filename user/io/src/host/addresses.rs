//! The addresses that the kernel takes packets for: asked for at the start, and again whenever they change.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use whimbrel_user::{HostAddresses, IpNetwork};

use crate::sys::event::Event;
use crate::sys::netlink::{Netlink, NetlinkRequest, attributes};
use crate::sys::poll;

/// Time between two looks when the kernel reports no change: of what it does not report, such as a local route added by hand.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long changes may follow each other before they are looked at together: an interface brings several addresses.
const TOGETHER: Duration = Duration::from_millis(2);

/// The table of local routes and its types (linux/rtnetlink.h).
const TAKEN: [u8; 3] = [libc::RTN_LOCAL, libc::RTN_BROADCAST, libc::RTN_ANYCAST];

/// The host's addresses as they are now: those of its interfaces, and what its table of local routes has besides, broadcast among them.
pub(crate) fn now() -> io::Result<HostAddresses> {
    let mut netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    netlink.filter_strictly();
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let fixed = [family as u8, 0, 0, 0, 0, 0, 0, 0];
        for answer in netlink.query(NetlinkRequest::new(libc::RTM_GETADDR, libc::NLM_F_DUMP, &fixed))? {
            all.extend(addresses_of(&answer));
        }
        // struct rtmsg: family, lengths of destination and source, type of service, table, origin, scope, type, flags.
        let fixed = [family as u8, 0, 0, 0, libc::RT_TABLE_LOCAL, 0, 0, 0, 0, 0, 0, 0];
        let routes = match netlink.query(NetlinkRequest::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP, &fixed)) {
            // A family without a route has no table yet, or is switched off.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => Vec::new(),
            other => other?,
        };
        all.extend(routes.iter().filter_map(|r| route_of(r)));
    }
    Ok(all.into_iter().collect())
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(octets).ok().map(IpAddr::from);
    v4().or_else(v6)
}

/// The addresses of an interface in an answer.
fn addresses_of(answer: &[u8]) -> impl Iterator<Item = IpNetwork> {
    // IFA_ADDRESS of a link from point to point is the other end's.
    let mut all: Vec<_> = attributes(answer.get(8..).unwrap_or_default()).collect();
    let local = all.iter().any(|(kind, _)| *kind == libc::IFA_LOCAL);
    all.retain(|(kind, _)| match *kind {
        libc::IFA_LOCAL | libc::IFA_BROADCAST | libc::IFA_ANYCAST => true,
        libc::IFA_ADDRESS => !local,
        _ => false,
    });
    all.into_iter().filter_map(|(_, a)| ip(a)).map(IpNetwork::host)
}

/// What a route has the kernel take, if it is a local one.
fn route_of(answer: &[u8]) -> Option<IpNetwork> {
    let (family, prefix, table, kind) = (*answer.first()?, *answer.get(1)?, *answer.get(4)?, *answer.get(7)?);
    if table != libc::RT_TABLE_LOCAL || !TAKEN.contains(&kind) {
        return None;
    }
    let destination = attributes(answer.get(12..)?).find(|(kind, _)| *kind == libc::RTA_DST);
    let any = if i32::from(family) == libc::AF_INET { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    Some(IpNetwork { address: destination.map_or(Some(any), |(_, a)| ip(a))?, prefix })
}

/// What the thread of a [`AddressWatch`] is to do.
struct Wishes {
    stop: AtomicBool,
    /// It looks now and then, too, and not only when the kernel reports a change.
    looks: AtomicBool,
    changed: Event,
}

/// A thread that sees to changes; dropping it ends it.
pub(crate) struct AddressWatch {
    wishes: Arc<Wishes>,
    thread: Option<JoinHandle<()>>,
}

impl AddressWatch {
    /// Calls `tell` with the host's addresses whenever they differ from `known`; until [`Self::begin`] only when the kernel reports a change, unless it
    /// `looks` from the start. Errors: the system gives no descriptor or thread.
    pub(crate) fn start(
        mut known: HostAddresses,
        looks: bool,
        mut tell: impl FnMut(Arc<HostAddresses>) + Send + 'static,
    ) -> io::Result<Self> {
        let mut changes = Netlink::open(libc::NETLINK_ROUTE)?;
        changes.subscribe((libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32)?;
        let (stop, looks) = (AtomicBool::new(false), AtomicBool::new(looks));
        let wishes = Arc::new(Wishes { stop, looks, changed: Event::new()? });
        let wished = Arc::clone(&wishes);
        let thread = std::thread::Builder::new().name("upf-host".into()).spawn(move || {
            loop {
                // What changed between the last look and this is in the socket already.
                if let Ok(addresses) = now()
                    && addresses != known
                {
                    known = addresses;
                    tell(Arc::new(known.clone()));
                }
                let fds = [changes.as_fd(), wished.changed.as_fd()];
                // A wish that comes after this leaves the event raised, and ends the wait.
                let looks = wished.looks.load(Ordering::SeqCst);
                let waited =
                    if looks { poll::readable(&fds, LOOK_EVERY) } else { poll::until_readable(&fds) };
                if waited.is_err() {
                    std::thread::sleep(TOGETHER);
                }
                wished.changed.lower();
                if wished.stop.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(TOGETHER);
                changes.drain();
            }
        })?;
        Ok(Self { wishes, thread: Some(thread) })
    }

    /// From now on it looks now and then, too.
    pub(crate) fn begin(&self) {
        self.wishes.looks.store(true, Ordering::SeqCst);
        self.wishes.changed.raise();
    }
}

impl Drop for AddressWatch {
    fn drop(&mut self) {
        self.wishes.stop.store(true, Ordering::SeqCst);
        self.wishes.changed.raise();
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::Attributes;

    fn network(address: &str, prefix: u8) -> IpNetwork {
        IpNetwork { address: address.parse().unwrap(), prefix }
    }

    #[test]
    fn local_and_broadcast_routes_of_the_local_table_are_the_hosts() {
        let route = |table: u8, kind: u8, prefix: u8, to: &[u8]| {
            let fixed = [libc::AF_INET as u8, prefix, 0, 0, table, 2, 254, kind, 0, 0, 0, 0];
            let destination = Attributes::default().with(libc::RTA_DST, to);
            route_of(&[&fixed[..], destination.octets()].concat())
        };
        assert_eq!(route(255, 2, 32, &[192, 0, 2, 7]), Some(network("192.0.2.7", 32)));
        assert_eq!(route(255, 3, 32, &[192, 0, 2, 255]), Some(network("192.0.2.255", 32)));
        assert_eq!(route(255, 2, 24, &[198, 51, 100, 0]), Some(network("198.51.100.0", 24)));
        assert_eq!(route(254, 1, 24, &[192, 0, 2, 0]), None, "a route of the main table");
        assert_eq!(route(100, 2, 0, &[0, 0, 0, 0]), None, "of a table that only marked packets meet");
    }

    #[test]
    fn of_a_link_from_point_to_point_the_near_end_is_the_hosts() {
        let message = |all: &[(u16, [u8; 4])]| {
            let attributes = all.iter().fold(Attributes::default(), |to, (kind, a)| to.with(*kind, a));
            [&[libc::AF_INET as u8, 32, 0, 0, 1, 0, 0, 0][..], attributes.octets()].concat()
        };
        let (near, far) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let of = |all: &[(u16, [u8; 4])]| addresses_of(&message(all)).collect::<Vec<_>>();
        assert_eq!(of(&[(libc::IFA_ADDRESS, far), (libc::IFA_LOCAL, near)]), [network("192.0.2.1", 32)]);
        assert_eq!(of(&[(libc::IFA_ADDRESS, near)]), [network("192.0.2.1", 32)]);
    }

    #[test]
    fn the_hosts_loopback_address_is_one_of_its_own() {
        let host = now().unwrap();
        // A namespace whose loopback device is down has none.
        let up = std::net::UdpSocket::bind("127.0.0.1:0").is_ok() && !host.singles().is_empty();
        assert!(!up || host.contains("127.0.0.1".parse().unwrap()), "{host:?}");
    }
}
