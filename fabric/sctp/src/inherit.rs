//! Sockets and associations that outlive the process that serves them.
//!
//! One process opens [`Sockets`] and [`create_store`](crate::create_store)s the memory for associations. It gives duplicates of both to the
//! process that serves N2, and keeps its own. If that one ends, in whatever way, the next one gets duplicates, too, and
//! [inherits](Transport::inherit) the associations; what peers sent meanwhile waits in the sockets.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use whimbrel_ids::Instant;
use whimbrel_sctp::{AdoptedAssociation, AssociationId, Defect, Endpoint, Layout, Store, UserNotes};

use crate::guard::PortGuard;
use crate::packets::{PacketTransport, Socket, open_sockets, refuse_beside_kernel_sctp};
use crate::report::{Mode, Obstacle, OpenError, TransportReport};
use crate::store::AssociationStore;
use crate::{EndpointState, Transport, TransportSettings};

/// Open sockets without an endpoint.
#[derive(Debug)]
pub struct Sockets {
    sockets: Vec<Socket>,
    report: TransportReport,
    /// No other program serves these addresses and this port as long as the sockets stand.
    _guards: Vec<PortGuard>,
}

impl Sockets {
    /// Opens them: raw ones, or UDP. [`Mode::Auto`] takes UDP where raw sockets are not permitted.
    ///
    /// Errors: what stands in the way. [`Mode::Kernel`] does: the kernel acknowledges messages by itself, and what the process that served it
    /// has not handled is lost with it. So does a loaded kernel SCTP.
    pub fn open(settings: &TransportSettings) -> Result<Self, OpenError> {
        let candidates: &[Mode] = match settings.mode {
            Mode::Auto => &[Mode::Raw, Mode::Udp],
            Mode::Raw => &[Mode::Raw],
            Mode::Udp => &[Mode::Udp],
            Mode::Kernel => return Err(OpenError { obstacles: vec![kernel_has_no_successor()] }),
        };
        let (mut obstacles, mut limits) = (Vec::new(), Vec::new());
        if settings.mode != Mode::Udp {
            refuse_beside_kernel_sctp().map_err(|o| OpenError { obstacles: vec![o] })?;
        }
        for mode in candidates {
            match open_sockets(*mode, settings, *mode == Mode::Raw, &mut limits) {
                Ok((sockets, guards)) => {
                    let report = TransportReport { chosen: *mode, obstacles, limits };
                    return Ok(Self { sockets, report, _guards: guards });
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

    /// Each socket and the address that it is bound to, which may be unspecified.
    pub fn fds(&self) -> impl Iterator<Item = (IpAddr, BorrowedFd<'_>)> {
        self.sockets.iter().map(|s| (s.local, s.fd.as_fd()))
    }
}

fn kernel_has_no_successor() -> Obstacle {
    Obstacle {
        mode: Mode::Kernel,
        cause: "the kernel's SCTP acknowledges messages before they are handled".into(),
        effect: "a process that takes over would not have them, so associations would have to end with each process",
        fix: "use `sctp: raw` or `sctp: udp`, or do without processes that take over",
        errno: None,
    }
}

/// What a process is given by the one that keeps the sockets.
#[derive(Debug)]
pub struct Inheritance {
    /// How the sockets carry SCTP: [`TransportReport::chosen`] of [`Sockets::report`].
    pub mode: Mode,
    /// Duplicates of [`Sockets::fds`].
    pub sockets: Vec<(IpAddr, OwnedFd)>,
    /// A duplicate of what [`create_store`](crate::create_store) gave.
    pub store: OwnedFd,
}

/// A transport that takes the place of another one.
pub struct Successor {
    /// It serves the sockets, and [has adopted](Transport::take_adopted) associations.
    pub transport: Transport,
    /// Associations whose saved state is damaged, and why: their peers set up others.
    pub refused: Vec<(u32, Defect)>,
}

impl Transport {
    /// Serves sockets that another process has opened, and continues the associations of the process that served them before, which sends nothing from
    /// here on. `settings`: as for [`Transport::open`], of which the mode and the UDP port are those of the sockets.
    ///
    /// Errors: the memory is none for associations, or has too little room for those of this configuration.
    pub fn inherit(settings: &TransportSettings, from: Inheritance, now: Instant) -> io::Result<Successor> {
        let Inheritance { mode, sockets, store } = from;
        let mut config = settings.endpoint.clone();
        config.export = true;
        let (store, secret) = AssociationStore::take(store)?;
        if !Layout::of(&config).fits(&store.layout()) {
            let message = "the memory has too little room for associations of this configuration";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let generation = u32::try_from(store.generation()).unwrap_or(u32::MAX);
        let endpoint = Endpoint::successor(config, secret, generation, now);
        let sockets = sockets.into_iter().map(|(local, fd)| Socket { fd, local }).collect();
        let mut packets = PacketTransport::over(mode, (sockets, Vec::new()), endpoint, Some(store));
        let (adopted, refused) = packets.adopt(now);
        let report = TransportReport { chosen: mode, obstacles: Vec::new(), limits: Vec::new() };
        let transport =
            Self { inner: EndpointState::Packets(Box::new(packets)), report, adopted: Some(adopted) };
        Ok(Successor { transport, refused })
    }

    /// The associations that it continues: each is to be [resumed](Transport::resume) or aborted, and then they are to be
    /// [settled](Transport::settle). `None`: it has inherited nothing, or they were taken.
    pub fn take_adopted(&mut self) -> Option<Vec<AdoptedAssociation>> {
        self.adopted.take()
    }

    /// An adopted association goes on. The user has its first `messages` messages; the others, if they were not released, are among the next
    /// events.
    pub fn resume(&mut self, now: Instant, association: AssociationId, messages: u64) {
        if let EndpointState::Packets(t) = &mut self.inner {
            t.resume(now, association, messages);
        }
    }

    /// Every adopted association was resumed or aborted: from now on a successor continues from this process. Before that, nothing may be
    /// drained, sent or flushed.
    pub fn settle(&mut self) {
        if let EndpointState::Packets(t) = &mut self.inner {
            t.settle();
        }
    }

    /// Whether another process has inherited the associations: nothing is received or sent here any more.
    pub fn is_fenced(&mut self) -> bool {
        match &mut self.inner {
            EndpointState::Packets(t) => t.is_fenced(),
            EndpointState::Kernel(_) => false,
        }
    }

    /// Keeps a name with an association, for a successor. A stale one changes nothing.
    pub fn set_label(&mut self, association: AssociationId, label: u64) {
        if let EndpointState::Packets(t) = &mut self.inner {
            t.endpoint_mut().set_label(association, label);
        }
    }

    /// Keeps the number of the user's last output with an association, for a successor: what was queued up to it is not to be sent again. A
    /// stale name changes nothing.
    pub fn set_mark(&mut self, association: AssociationId, mark: u64) {
        if let EndpointState::Packets(t) = &mut self.inner {
            t.endpoint_mut().set_mark(association, mark);
        }
    }

    /// What is kept with an association; `None` if it is gone, or the kernel's.
    pub fn notes(&self, association: AssociationId) -> Option<UserNotes> {
        match &self.inner {
            EndpointState::Packets(t) => t.endpoint().notes(association),
            EndpointState::Kernel(_) => None,
        }
    }
}
