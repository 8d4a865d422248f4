//! The links of one process.

use core::mem::MaybeUninit;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use snow::types::Random;
use whimbrel_ids::Instant;
use whimbrel_shm::{Pool, PortFault};

use crate::connection::LinkConnection;
use crate::event::{Counters, DownReason, LinkEvents};
use crate::frame::{HELLO_OCTETS_MAX, ShmAddress};
use crate::primitives::System;
use crate::protocol::{LinkTurn, POOLS_MAX, Protocol};
use crate::rings::{FrameRingReceiver, FrameRingSender, PoolRings, RingEnd, SOCKET_POLL_INTERVAL};
use crate::{LinkId, LinkOpenError, LinkSettings, socket};

/// Octets read from one link in one turn, so that other links do not wait.
const READ_OCTETS: usize = 256 * 1024;
/// Connections that are handled, and accepted, in one turn.
const READY_PER_TURN: usize = 64;
/// The listener's number in epoll; links are numbered from one.
const LISTENER: u64 = 0;
/// The number of the bell in epoll.
const BELL: u64 = u64::MAX;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Links of one process, for one thread.
pub struct Links {
    settings: LinkSettings,
    epoll: OwnedFd,
    listener: Option<TcpListener>,
    connections: BTreeMap<LinkId, LinkConnection>,
    /// Events that happened outside of `drain`, which returns them.
    deferred: LinkEvents,
    last: u64,
    counters: Counters,
    scratch: Box<[u8]>,
    /// The pools of this process.
    rings: Vec<PoolRings>,
    /// When sockets were last looked at.
    polled: Instant,
}

impl Links {
    /// Opens the listener, if there is to be one.
    ///
    /// Errors: [`LinkOpenError`].
    pub fn open(settings: LinkSettings) -> Result<Self, LinkOpenError> {
        if settings.hello.len() > HELLO_OCTETS_MAX {
            return Err(LinkOpenError::HelloTooLong(settings.hello.len()));
        }
        match settings.listen {
            Some(at) if settings.keys.is_empty() && !at.ip().is_loopback() => {
                return Err(LinkOpenError::Unprotected(at));
            }
            _ => {}
        }
        if !settings.keys.is_empty() {
            System.try_fill_bytes(&mut [0]).map_err(|_| LinkOpenError::NoRandomness)?;
        }
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| LinkOpenError::System(e.into()))?;
        let listener = match settings.listen {
            None => None,
            Some(at) => {
                let listener = socket::listen(at).map_err(|e| LinkOpenError::Listen(at, e))?;
                epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)
                    .map_err(|e| LinkOpenError::System(e.into()))?;
                Some(listener)
            }
        };
        Ok(Self {
            settings,
            epoll,
            listener,
            connections: BTreeMap::new(),
            deferred: LinkEvents::default(),
            last: LISTENER,
            counters: Counters::default(),
            scratch: vec![0; READ_OCTETS].into_boxed_slice(),
            rings: Vec::new(),
            polled: Instant::ZERO,
        })
    }

    /// Frames to and from processes that have this pool, too, go through it. Links that are up already stay on their sockets.
    ///
    /// Errors: the system has no room for the bell, or there are two pools already; the pool is not used.
    pub fn share(&mut self, pool: Pool) -> std::io::Result<()> {
        if self.rings.len() >= POOLS_MAX {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let rings = PoolRings::of(pool);
        rings.register_bell(&self.epoll, epoll::EventData::new_u64(BELL))?;
        let port = &rings.pool.port;
        // An area's number is below sixteen.
        let function = port.own() as u8;
        let place = ShmAddress { pool: rings.pool.id(), function, incarnation: port.incarnation() };
        self.settings.places.push(place);
        self.rings.push(rings);
        Ok(())
    }

    /// Peers of links that are made from now on get this first, at most [`HELLO_OCTETS_MAX`] octets.
    ///
    /// Panics: if it is longer.
    pub fn set_hello(&mut self, hello: Vec<u8>) {
        assert!(hello.len() <= HELLO_OCTETS_MAX, "a hello has {HELLO_OCTETS_MAX} octets at most");
        self.settings.hello = hello;
    }

    /// Links whose frames leave through shared memory.
    pub fn shared(&self) -> usize {
        self.connections.values().filter(|c| c.ring_out.is_some()).count()
    }

    /// Where peers connect to, with the port that was found.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|l| l.local_addr().ok())
    }

    /// The descriptor to wait on for reading: it is ready when [`Links::drain`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// When [`Links::drain`] and [`Links::flush`] are due even if nothing arrives; [`Instant::ZERO`] if now. The caller is about to wait: until
    /// the next `drain`, peers that share memory wake this process through [`Links::fd`].
    pub fn next_deadline(&self) -> Option<Instant> {
        self.rings.iter().for_each(|rings| rings.pool.port.before_sleep());
        let port = |pool: usize| self.rings.get(pool).map(|rings| &rings.pool.port);
        let is_due = |c: &LinkConnection| {
            let arrived =
                c.ring_in.as_ref().is_some_and(|ring| port(ring.pool).is_some_and(|p| ring.has_data(p)));
            let unblocked =
                |ring: &FrameRingSender| port(ring.pool).is_some_and(|p| p.is_unblocked(ring.peer()));
            arrived || c.ring_out.as_ref().is_some_and(unblocked)
        };
        if !self.rings.is_empty() && self.connections.values().any(is_due) {
            return Some(Instant::ZERO);
        }
        // A socket with room gives no event; a turn seals a bounded amount, and more may be ready.
        let has_more = |c: &LinkConnection| !c.blocked && c.protocol.has_more();
        if !self.deferred.is_empty() || self.connections.values().any(has_more) {
            return Some(Instant::ZERO);
        }
        self.connections.values().filter(|c| !c.protocol.is_up()).map(|c| c.due).min()
    }

    /// Connects to a peer. `Up` or `Down` follows; frames that are sent meanwhile wait.
    pub fn connect(&mut self, now: Instant, to: SocketAddr) -> LinkId {
        let link = self.next_name();
        if let Err(reason) = self.call(now, link, to) {
            self.counters.ended(reason);
            self.deferred.down(link, reason);
        }
        link
    }

    fn call(&mut self, now: Instant, link: LinkId, to: SocketAddr) -> Result<(), DownReason> {
        if self.settings.keys.is_empty() && !to.ip().is_loopback() {
            return Err(DownReason::Unprotected);
        }
        if self.links() >= self.settings.links_max {
            return Err(DownReason::NoRoom);
        }
        let protocol = Protocol::calling(&self.settings)?;
        let socket = socket::call(to, self.settings.silence_max).map_err(|_| DownReason::Unreachable)?;
        let due = now + self.settings.greeting_max;
        let (connecting, blocked) = (true, true);
        let (ring_out, ring_in) = (None, None);
        let connection = LinkConnection {
            socket,
            protocol,
            peer: to,
            we_called: true,
            due,
            connecting,
            blocked,
            ring_out,
            ring_in,
        };
        self.add(link, connection).map_err(|_| DownReason::Unreachable)
    }

    /// Queues a frame for the next flush. A full queue, or a frame longer than allowed, ends the link. For a link that has ended, nothing happens.
    pub fn send(&mut self, link: LinkId, frame: &[u8]) {
        let Some(connection) = self.connections.get_mut(&link) else { return };
        let rings = connection.ring_out.as_ref().and_then(|ring| self.rings.get_mut(ring.pool));
        let sent = match (&mut connection.ring_out, rings) {
            (Some(ring), Some(rings)) => {
                if frame.len() > self.settings.frame_octets_max {
                    Err(DownReason::FrameTooLong)
                } else if ring.queued_octets() + frame.len() > self.settings.queue_octets_max {
                    Err(DownReason::QueueFull)
                } else {
                    ring.send(&mut rings.pool.port, frame).map_err(|_| DownReason::BadRing)
                }
            }
            _ => connection.protocol.send(frame, &self.settings),
        };
        match sent {
            Ok(()) => self.counters.frames_out += 1,
            Err(reason) => self.end(link, reason),
        }
    }

    /// Octets that wait to be sent on a link; zero if it has ended. Beyond [`LinkSettings::queue_octets_max`] it ends.
    pub fn waiting(&self, link: LinkId) -> usize {
        let of = |c: &LinkConnection| {
            c.protocol.waiting() + c.ring_out.as_ref().map_or(0, FrameRingSender::queued_octets)
        };
        self.connections.get(&link).map_or(0, of)
    }

    /// Sends what waits, with one write for each link.
    pub fn flush(&mut self) {
        let mut broken = Vec::new();
        for (link, connection) in &mut self.connections {
            let was_blocked = connection.blocked;
            let flushed =
                flush_ring(connection, &mut self.rings).and_then(|()| connection.flush(&mut self.counters));
            let waits = match flushed {
                Ok(()) if connection.blocked && !was_blocked => wait_for(&self.epoll, *link, connection),
                Ok(()) => Ok(()),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = waits {
                broken.push((*link, reason));
            }
        }
        for (link, reason) in broken {
            self.end(link, reason);
        }
    }

    /// Closes a link. What waits is still written as far as the connection takes it at once; no event follows.
    pub fn close(&mut self, link: LinkId) {
        if let Some(mut connection) = self.connections.remove(&link) {
            if let Some(ring) = &mut connection.ring_out
                && let Some(rings) = self.rings.get_mut(ring.pool)
            {
                let _ = ring.flush(&mut rings.pool.port);
                rings.pool.port.end(ring.peer(), false);
            }
            end_ring_in(&mut connection, &mut self.rings);
            let _ = connection.flush(&mut self.counters);
        }
    }

    /// Receives, and applies timeouts. `events` is cleared first. Never blocks.
    pub fn drain(&mut self, now: Instant, events: &mut LinkEvents) {
        events.clear();
        core::mem::swap(events, &mut self.deferred);
        for (pool, rings) in self.rings.iter_mut().enumerate() {
            let connections = &self.connections;
            rings.add_arrived(|of| connections.values().any(|c| c.uses(pool, of)));
        }
        if self.drain_rings(now, events) {
            return;
        }
        let mut ready = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_PER_TURN];
        // An interrupted wait is repeated in the next turn.
        let ready =
            epoll::wait(&self.epoll, &mut ready, Some(&AT_ONCE)).map_or(&mut [][..], |(ready, _)| ready);
        for event in ready {
            // Copies: the structure is packed.
            let (name, flags) = ({ event.data }.u64(), { event.flags });
            match name {
                LISTENER => self.accept(now, events),
                BELL => {} // rings are looked at in any case
                name => self.serve(LinkId(name), flags, events),
            }
        }
        self.expire(now, events);
    }

    /// The counters of all links.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn serve(&mut self, link: LinkId, flags: epoll::EventFlags, events: &mut LinkEvents) {
        let pending = self.connections.get(&link).is_some_and(LinkConnection::is_pending);
        let room = !pending || self.links() < self.settings.links_max;
        let Some(connection) = self.connections.get_mut(&link) else { return };
        let mut turn = LinkTurn {
            link,
            peer: connection.peer,
            settings: &self.settings,
            events,
            counters: &mut self.counters,
            room,
        };
        let mut served = Ok(());
        if connection.blocked
            && flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR | epoll::EventFlags::HUP)
        {
            served = connection.writable().and_then(|()| wait_for(&self.epoll, link, connection));
        }
        if served.is_ok() && flags != epoll::EventFlags::OUT {
            served = connection.read(&mut self.scratch, &mut turn);
        }
        if let (None, Some(peer), Some(generation)) =
            (&connection.ring_in, connection.protocol.peer_place(), connection.protocol.peer_ring())
            && let Some((pool, rings)) = pool_of(&mut self.rings, peer)
        {
            connection.ring_in = Some(FrameRingReceiver::from(pool, &rings.pool.port, peer, generation));
        }
        if let Err(mut reason) = served {
            // What the peer wrote before it closed the link is there.
            if let Some(ring) = &mut connection.ring_in
                && let Some(rings) = self.rings.get_mut(ring.pool)
            {
                while let Ok(true) = ring.take(&mut rings.pool.port, READ_OCTETS, &mut turn) {}
                reason = ring.map_close_reason(reason);
            }
            self.finish(link, reason, events);
        }
    }

    /// Receives through shared memory. Returns whether sockets may wait until a later turn.
    fn drain_rings(&mut self, now: Instant, events: &mut LinkEvents) -> bool {
        let mut slept = false;
        self.rings.iter().for_each(|rings| slept |= rings.pool.port.after_sleep());
        let mut ended = Vec::new();
        let mut is_used = false;
        for (link, connection) in &mut self.connections {
            let Some(ring) = &mut connection.ring_in else { continue };
            let Some(rings) = self.rings.get_mut(ring.pool) else { continue };
            is_used = true;
            let mut turn = LinkTurn {
                link: *link,
                peer: connection.peer,
                settings: &self.settings,
                events,
                counters: &mut self.counters,
                room: true,
            };
            let Err(end) = ring.take(&mut rings.pool.port, READ_OCTETS, &mut turn) else { continue };
            let reason = match end {
                RingEnd::Link(reason) => reason,
                RingEnd::ClosedByPeer => superseded(connection, &mut self.scratch, &mut turn),
            };
            ended.push((*link, reason));
        }
        let soon = is_used && !slept && now < self.polled + SOCKET_POLL_INTERVAL;
        if !soon {
            self.polled = now;
        }
        for (link, reason) in ended {
            self.finish(link, reason, events);
        }
        soon
    }

    fn accept(&mut self, now: Instant, events: &mut LinkEvents) {
        for _ in 0..READY_PER_TURN {
            let Some(Ok((socket, peer))) = self.listener.as_ref().map(TcpListener::accept) else { return };
            if self.pending() >= self.settings.pending_max {
                let longest = self.connections.iter().find(|(_, c)| c.is_pending()).map(|(link, _)| *link);
                match longest {
                    Some(link) => self.finish(link, DownReason::Displaced, events),
                    None => return,
                }
            }
            let link = self.next_name();
            let tuned =
                socket.set_nonblocking(true).and_then(|()| socket::tune(&socket, self.settings.silence_max));
            let (protocol, due) = (Protocol::called(&self.settings), now + self.settings.greeting_max);
            let (connecting, blocked) = (false, false);
            let (ring_out, ring_in) = (None, None);
            let connection = LinkConnection {
                socket,
                protocol,
                peer,
                we_called: false,
                due,
                connecting,
                blocked,
                ring_out,
                ring_in,
            };
            if tuned.and_then(|()| self.add(link, connection)).is_err() {
                self.counters.ended(DownReason::Broken);
                events.rejected(peer, DownReason::Broken);
            }
        }
    }

    fn add(&mut self, link: LinkId, connection: LinkConnection) -> std::io::Result<()> {
        epoll::add(
            &self.epoll,
            &connection.socket,
            epoll::EventData::new_u64(link.0),
            interest(&connection),
        )?;
        self.connections.insert(link, connection);
        Ok(())
    }

    fn expire(&mut self, now: Instant, events: &mut LinkEvents) {
        let late = |c: &LinkConnection| !c.protocol.is_up() && c.due <= now;
        let late: Vec<LinkId> =
            self.connections.iter().filter(|(_, c)| late(c)).map(|(link, _)| *link).collect();
        for link in late {
            let calling = self.connections.get(&link).is_some_and(|c| c.connecting);
            let reason = if calling { DownReason::Unreachable } else { DownReason::NoGreeting };
            self.finish(link, reason, events);
        }
    }

    /// Ends a link, or rejects a pending one.
    fn finish(&mut self, link: LinkId, reason: DownReason, events: &mut LinkEvents) {
        let Some(mut connection) = self.connections.remove(&link) else { return };
        self.counters.ended(reason);
        end_ring_in(&mut connection, &mut self.rings);
        // After its end of the connection is closed, a peer reads nothing more.
        let gone = matches!(reason, DownReason::Closed | DownReason::Truncated | DownReason::Broken);
        if let Some(ring) = &connection.ring_out
            && let Some(rings) = self.rings.get_mut(ring.pool)
        {
            rings.pool.port.end(ring.peer(), gone);
        }
        if let (DownReason::BadRing, Some(peer)) = (reason, connection.protocol.peer_place())
            && let Some((_, rings)) = pool_of(&mut self.rings, peer)
        {
            rings.distrust(peer);
        }
        if connection.is_pending() {
            events.rejected(connection.peer, reason);
        } else {
            events.down(link, reason);
        }
    }

    /// Ends a link outside of `drain`, which reports it later.
    fn end(&mut self, link: LinkId, reason: DownReason) {
        let mut deferred = core::mem::take(&mut self.deferred);
        self.finish(link, reason, &mut deferred);
        self.deferred = deferred;
    }

    fn next_name(&mut self) -> LinkId {
        self.last += 1;
        LinkId(self.last)
    }

    fn links(&self) -> usize {
        self.connections.values().filter(|c| !c.is_pending()).count()
    }

    fn pending(&self) -> usize {
        self.connections.values().filter(|c| c.is_pending()).count()
    }
}

/// The pool in which a peer has named its place.
fn pool_of(rings: &mut [PoolRings], peer: ShmAddress) -> Option<(usize, &mut PoolRings)> {
    rings.iter_mut().enumerate().find(|(_, rings)| rings.pool.id() == peer.pool)
}

/// The ring of a link that has ended may be used by another one.
fn end_ring_in(connection: &mut LinkConnection, rings: &mut [PoolRings]) {
    if let Some(ring) = &mut connection.ring_in
        && let Some(rings) = rings.get_mut(ring.pool)
    {
        ring.release(&mut rings.pool.port);
    }
}

/// Frames leave the socket for the ring if the peer shares memory, and each end maps the area of the other one; and what waits for room in it is written.
fn flush_ring(connection: &mut LinkConnection, rings: &mut [PoolRings]) -> Result<(), DownReason> {
    if let (None, Some(peer)) = (&connection.ring_out, connection.protocol.peer_place())
        && let Some((pool, rings)) = pool_of(rings, peer)
        && rings.has_mapped(peer)
    {
        connection.protocol.map_peer();
        if connection.protocol.is_mapped()
            && let Some(generation) = rings.begin_sending(peer)
        {
            connection.protocol.leave_for_ring(generation);
            connection.ring_out = Some(FrameRingSender::to(pool, peer));
        }
    }
    match &mut connection.ring_out {
        Some(ring) => match rings.get_mut(ring.pool) {
            Some(rings) => ring.flush(&mut rings.pool.port).map_err(|_: PortFault| DownReason::BadRing),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

/// Why a link ends whose ring has another generation: the peer has ended it, which its socket shows, or it wrote rubbish.
fn superseded(connection: &mut LinkConnection, scratch: &mut [u8], turn: &mut LinkTurn<'_>) -> DownReason {
    connection.read(scratch, turn).err().unwrap_or(DownReason::BadRing)
}

/// What to wait for on a connection: room to write only if something waits to be written.
fn interest(connection: &LinkConnection) -> epoll::EventFlags {
    match connection.blocked {
        true => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        false => epoll::EventFlags::IN,
    }
}

fn wait_for(epoll: &OwnedFd, link: LinkId, connection: &LinkConnection) -> Result<(), DownReason> {
    epoll::modify(epoll, &connection.socket, epoll::EventData::new_u64(link.0), interest(connection))
        .map_err(|_| DownReason::Broken)
}
