//! The TUN device of a PDU session, and its IPv6 prefix by router solicitation and advertisement (TS 23.501 §5.8.2.2).

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::Instant;

use super::namespace::Namespace;
use super::tun::{Tun, TunConfig, TunError};
use crate::ue::SessionInfo;
use crate::user_plane::router::{advertisement, link_local, solicitation, with_interface_id};

/// Router solicitations without an answer (RFC 4861 §10: MAX_RTR_SOLICITATIONS), and the time between them; shorter than
/// RTR_SOLICITATION_INTERVAL, since the router is one hop away and a program waits.
const SOLICITATIONS_MAX: u8 = 3;
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a session is usable by programs.
#[derive(Debug)]
enum SessionDeviceState {
    /// Its IPv6 prefix is not known yet.
    Soliciting { interface_id: [u8; 8], left: u8, due: Instant },
    /// Its addresses are complete, or no router answered.
    Addressed,
    /// Reported as usable.
    Ready,
}

/// A session's device.
#[derive(Debug)]
pub(super) struct SessionDevice {
    tun: Tun,
    dns: Vec<IpAddr>,
    state: SessionDeviceState,
    /// Whether it had a user plane at the last check.
    usable: bool,
}

impl SessionDevice {
    /// Errors: the step that failed.
    pub(super) fn open(
        name: String,
        session: &SessionInfo,
        before: u32,
        namespace: Option<Arc<Namespace>>,
    ) -> Result<Self, TunError> {
        let link_local = session.interface_id.map(link_local);
        let config = TunConfig { name, ipv4: session.ipv4, link_local, mtu: session.mtu, before };
        let v4 = session.dns_ipv4.iter().copied().map(IpAddr::from);
        let dns = v4.chain(session.dns_ipv6.iter().copied().map(IpAddr::from)).collect();
        let state = match session.interface_id {
            Some(interface_id) => {
                SessionDeviceState::Soliciting { interface_id, left: SOLICITATIONS_MAX, due: Instant::ZERO }
            }
            None => SessionDeviceState::Addressed,
        };
        Ok(Self { tun: Tun::open(config, namespace)?, dns, state, usable: false })
    }

    /// The next router solicitation, if due and the session has a user plane.
    pub(super) fn due(&mut self, now: Instant, usable: bool) -> Option<Vec<u8>> {
        self.usable = usable;
        let SessionDeviceState::Soliciting { interface_id, left, due } = &mut self.state else { return None };
        if !usable || *due > now {
            return None;
        }
        if *left == 0 {
            self.state = SessionDeviceState::Addressed;
            return None;
        }
        *left -= 1;
        *due = now + SOLICITATION_INTERVAL;
        Some(solicitation(link_local(*interface_id)))
    }

    /// Whether programs can use it from now on; true once.
    pub(super) fn becomes_ready(&mut self, usable: bool) -> bool {
        let ready = usable && matches!(self.state, SessionDeviceState::Addressed);
        if ready {
            self.state = SessionDeviceState::Ready;
        }
        ready
    }

    /// When the next solicitation is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self.state {
            SessionDeviceState::Soliciting { due, .. } if self.usable => Some(due),
            _ => None,
        }
    }

    /// A packet from the network: for programs, unless it is the awaited advertisement. Errors: its prefix cannot be set.
    pub(super) fn write(&mut self, packet: &[u8]) -> Result<(), TunError> {
        let SessionDeviceState::Soliciting { interface_id, .. } = &self.state else {
            self.tun.write(packet);
            return Ok(());
        };
        let Some(Ok(router)) = advertisement(packet) else {
            self.tun.write(packet);
            return Ok(());
        };
        let address: Ipv6Addr = with_interface_id(router.prefix, *interface_id);
        self.tun.add_prefix(address, router.mtu)?;
        self.dns.extend(
            router.dns.into_iter().map(IpAddr::from).filter(|d| !self.dns.contains(d)).collect::<Vec<_>>(),
        );
        self.state = SessionDeviceState::Addressed;
        Ok(())
    }

    /// Name of the device.
    pub(super) fn name(&self) -> &str {
        self.tun.name()
    }

    /// The DNS servers that the network announced.
    pub(super) fn dns(&self) -> &[IpAddr] {
        &self.dns
    }

    /// The next packet of a program, if any.
    pub(super) fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        self.tun.read(buffer)
    }

    /// To wait for packets.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.tun.fd()
    }
}
