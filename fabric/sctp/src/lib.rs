//! SCTP on sockets: raw IP, UDP encapsulation (RFC 6951), or the kernel's own; one face for all three.
//!
//! A [`Transport`] belongs to one thread. Its loop waits on [`Transport::fds`] (or spins) until
//! [`Transport::next_deadline`], then
//!
//! ```text
//! drain(now, &mut events)   packets in, timers
//! … handle events, send() answers …
//! flush(now)                acknowledgements and answers out, bundled
//! ```
//!
//! What the host does beside us: with a raw SCTP socket open, Linux takes the protocol as served and sends no ICMP
//! "protocol unreachable" for it. ICMP that arrives is ignored, as it is easily forged: SCTP's own timers judge a path.
//! A host whose kernel SCTP is loaded would answer our associations with ABORT, so raw mode refuses to start there.
//! Peers on the same host that leave checksums to the network card are not understood by raw sockets; no card, no sum.

mod guard;
mod inherit;
mod kernel;
mod packets;
mod report;
mod store;
mod sys;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use whimbrel_ids::Instant;
use whimbrel_sctp::{Connect, Input, Send};

pub use inherit::{Inheritance, Sockets, Successor};
pub use report::{Mode, Obstacle, OpenError, TransportReport};
pub use store::create_store;
pub use whimbrel_sctp::{
    AdoptedAssociation, AssociationId, AssociationStatus, Config, Counters, Defect, DownReason, Event,
    Events, Former, Path, RequestRefusal, UserNotes,
};

use kernel::KernelTransport;
use packets::PacketTransport;

/// The UDP port of SCTP encapsulation (RFC 6951 §4.1).
pub const UDP_PORT: u16 = 9899;

/// How to open a [`Transport`].
#[derive(Clone, Debug)]
pub struct TransportSettings {
    /// Which way to the network.
    pub mode: Mode,
    /// Port, addresses and protocol values. The last two, what waits for the user and what comes back unacknowledged, the kernel's SCTP does not
    /// have. Without `local_addresses` all addresses of the host are served; a client
    /// may give port zero for any that is free.
    pub endpoint: Config,
    /// Our UDP port, for [`Mode::Udp`]; a client beside a server on one host needs another than its, or zero for any.
    pub udp_port: u16,
    /// Differentiated services code point of all packets. Default 46 (expedited forwarding), as for signalling.
    pub dscp: u8,
    /// Socket buffers asked for. Default 4 MiB: a burst of 2,000 UEs at 2 KB each.
    pub socket_buffer_octets: usize,
}

impl TransportSettings {
    /// The defaults: any mode that works.
    pub fn new(endpoint: Config) -> Self {
        Self {
            mode: Mode::Auto,
            endpoint,
            udp_port: UDP_PORT,
            dscp: 46,
            socket_buffer_octets: 4 * 1024 * 1024,
        }
    }
}

/// What the sockets did, in numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Packets handed to the kernel (messages, in kernel mode).
    pub packets_sent: u64,
    /// Packets that the kernel did not take; SCTP sends their content again.
    pub send_errors: u64,
    /// Errors while receiving, ICMP among them.
    pub receive_errors: u64,
}

enum EndpointState {
    Packets(Box<PacketTransport>),
    Kernel(Box<KernelTransport>),
}

/// SCTP for one thread, over whatever the host allows.
pub struct Transport {
    inner: EndpointState,
    report: TransportReport,
    /// Associations of the process before this one, until they are taken.
    adopted: Option<Vec<AdoptedAssociation>>,
}

impl Transport {
    /// Opens the sockets. `secret` must be fresh random octets: it keys cookies and tags.
    ///
    /// Errors: every mode that was tried and what stood in its way.
    pub fn open(settings: &TransportSettings, secret: [u8; 32], now: Instant) -> Result<Self, OpenError> {
        let candidates: &[Mode] = match settings.mode {
            Mode::Auto => &[Mode::Kernel, Mode::Raw, Mode::Udp],
            Mode::Kernel => &[Mode::Kernel],
            Mode::Raw => &[Mode::Raw],
            Mode::Udp => &[Mode::Udp],
        };
        let (mut obstacles, mut limits) = (Vec::new(), Vec::new());
        for mode in candidates {
            let opened = match mode {
                Mode::Kernel => KernelTransport::open(settings).map(|k| EndpointState::Kernel(Box::new(k))),
                _ => PacketTransport::open(*mode, settings, secret, now, &mut limits)
                    .map(|p| EndpointState::Packets(Box::new(p))),
            };
            match opened {
                Ok(inner) => {
                    let report = TransportReport { chosen: *mode, obstacles, limits };
                    return Ok(Self { inner, report, adopted: None });
                }
                // A port that is taken is taken: another way around it would only hide that.
                Err(o) if o.errno == Some(libc::EADDRINUSE) => {
                    return Err(OpenError { obstacles: vec![o] });
                }
                Err(o) => obstacles.push(o),
            }
        }
        Err(OpenError { obstacles })
    }

    /// What was chosen, and why not another.
    pub fn report(&self) -> &TransportReport {
        &self.report
    }

    /// The descriptors to wait on for input.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match &self.inner {
            EndpointState::Packets(t) => t.fds(),
            EndpointState::Kernel(t) => t.fds(),
        }
    }

    /// When [`Transport::drain`] and [`Transport::flush`] are due even without input; [`Instant::ZERO`] if now.
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.inner {
            EndpointState::Packets(t) => t.next_deadline(),
            EndpointState::Kernel(t) => t.next_deadline(),
        }
    }

    /// Takes what arrived and what timers did. `events` is cleared first. Never blocks.
    pub fn drain(&mut self, now: Instant, events: &mut Events) {
        match &mut self.inner {
            EndpointState::Packets(t) => t.drain(now, events),
            EndpointState::Kernel(t) => t.drain(now, events),
        }
    }

    /// Queues a message for the next flush.
    ///
    /// Errors: [`RequestRefusal`], such as a full send buffer; nothing was queued then.
    pub fn send(
        &mut self,
        association: AssociationId,
        stream: u16,
        ppid: u32,
        octets: &[u8],
    ) -> Result<(), RequestRefusal> {
        match &mut self.inner {
            EndpointState::Packets(t) => t.send(Send { association, stream, ppid, unordered: false, octets }),
            EndpointState::Kernel(t) => t.send(association, stream, ppid, octets),
        }
    }

    /// Sets whether received messages are acknowledged only when they are released: for a user that must have them at another host
    /// before that. False in [`Mode::Kernel`], which acknowledges by itself.
    pub fn hold_acknowledgements(&mut self, hold: bool) -> bool {
        match &mut self.inner {
            EndpointState::Packets(t) => t.endpoint_mut().hold_acknowledgements(hold),
            EndpointState::Kernel(_) => return false,
        }
        true
    }

    /// The first `messages` messages of an association may be acknowledged, counted since [`Event::Up`] (a restart of the peer begins no new
    /// count); the next flush does it. It has to follow within a few milliseconds: peers send again what is not acknowledged within their RTO,
    /// and a quarter of a MiB that is not released closes their window. A stale name changes nothing.
    pub fn release(&mut self, association: AssociationId, messages: u64) {
        if let EndpointState::Packets(t) = &mut self.inner {
            t.endpoint_mut().release(association, messages);
        }
    }

    /// Sends what waits.
    pub fn flush(&mut self, now: Instant) {
        if let EndpointState::Packets(t) = &mut self.inner {
            t.flush(now);
        }
    }

    /// Whether a message has not left this host yet: it waits for a flush, or for a peer's window or the congestion window. False in
    /// [`Mode::Kernel`], where the kernel has it.
    pub fn has_unsent(&self) -> bool {
        match &self.inner {
            EndpointState::Packets(t) => t.endpoint().has_unsent(),
            EndpointState::Kernel(_) => false,
        }
    }

    /// Opens an association; [`Event::Up`] or [`Event::Down`] follows. `udp_port` is the peer's, for [`Mode::Udp`].
    ///
    /// Errors: [`RequestRefusal`] if there is no usable address or no room.
    pub fn connect(
        &mut self,
        now: Instant,
        addresses: &[IpAddr],
        port: u16,
        udp_port: u16,
    ) -> Result<AssociationId, RequestRefusal> {
        match &mut self.inner {
            EndpointState::Packets(t) => t.connect(now, Connect { addresses, port, udp_port }),
            EndpointState::Kernel(t) => t.connect(addresses, port),
        }
    }

    /// Closes gracefully: what is queued is delivered first. A stale name changes nothing.
    pub fn shutdown(&mut self, now: Instant, association: AssociationId) {
        match &mut self.inner {
            EndpointState::Packets(t) => t.input(now, Input::Shutdown { association }),
            EndpointState::Kernel(t) => t.shutdown(association),
        }
    }

    /// Closes at once. A stale name changes nothing.
    pub fn abort(&mut self, now: Instant, association: AssociationId) {
        match &mut self.inner {
            EndpointState::Packets(t) => t.input(now, Input::Abort { association }),
            EndpointState::Kernel(t) => t.abort(association),
        }
    }

    /// Asks the peer of an association for a sign of life, by HEARTBEAT on its paths; in [`Mode::Kernel`] once a second at most. A stale name
    /// changes nothing.
    pub fn probe(&mut self, now: Instant, association: AssociationId) {
        match &mut self.inner {
            EndpointState::Packets(t) => t.input(now, Input::Probe { association }),
            EndpointState::Kernel(t) => t.probe(now, association),
        }
    }

    /// How much has come from the peer of an association: it grows with each answer to [`Transport::probe`], among others. `None` if the
    /// association is gone.
    pub fn heard(&self, association: AssociationId) -> Option<u64> {
        match &self.inner {
            EndpointState::Packets(t) => t.endpoint().heard(association),
            EndpointState::Kernel(t) => t.heard(association),
        }
    }

    /// Ends all associations: gracefully, and at `by` by ABORT those that a peer has not completed (RFC 9260 §9). New ones are refused.
    /// [`Transport::drain`] and [`Transport::flush`] go on until no association is left, or a little past `by`.
    pub fn stop(&mut self, now: Instant, by: Instant) {
        match &mut self.inner {
            EndpointState::Packets(t) => t.input(now, Input::Stop { by }),
            EndpointState::Kernel(t) => t.stop(now, by),
        }
    }

    /// What the next process would need to end the associations that are up; nothing in [`Mode::Kernel`], where the kernel ends them itself
    /// when this process does, however it ends.
    pub fn formers(&self) -> Vec<Former> {
        match &self.inner {
            EndpointState::Packets(t) => t.endpoint().formers().collect(),
            EndpointState::Kernel(_) => Vec::new(),
        }
    }

    /// Sends ABORT for an association of the process before this one, so that its peer learns of the restart at once.
    pub fn abort_former(&mut self, former: &Former) {
        if let EndpointState::Packets(t) = &mut self.inner {
            t.abort_former(former);
        }
    }

    /// The associations there are.
    pub fn associations(&self) -> Vec<AssociationId> {
        match &self.inner {
            EndpointState::Packets(t) => t.endpoint().associations().collect(),
            EndpointState::Kernel(t) => t.associations().collect(),
        }
    }

    /// How an association stands; `None` if it is gone, or the kernel's.
    pub fn status(&self, association: AssociationId) -> Option<AssociationStatus> {
        match &self.inner {
            EndpointState::Packets(t) => t.endpoint().status(association),
            EndpointState::Kernel(_) => None,
        }
    }

    /// What the endpoint (none in kernel mode) and the sockets counted.
    pub fn counters(&self) -> (Counters, IoCounters) {
        match &self.inner {
            EndpointState::Packets(t) => t.counters(),
            EndpointState::Kernel(t) => (Counters::default(), t.counters()),
        }
    }
}
