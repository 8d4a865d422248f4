//! One connection: its octets both ways, and what they are.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use whimbrel_ids::Instant;

use crate::event::{Counters, DownReason, Events};
use crate::frame::{self, BadGreeting, FRAME_HEADER};
use crate::{LinkId, Settings, socket};

/// Memory that a link keeps for what it sends while nothing waits: what a busy turn fills.
const KEPT_OCTETS: usize = 1024 * 1024;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// TCP's handshake is under way.
    Calling,
    /// The peer has not said yet who it is.
    Greeting,
    /// Frames pass.
    Up,
}

/// What a connection that reads is given.
pub(crate) struct Turn<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) events: &'a mut Events,
    pub(crate) counters: &'a mut Counters,
    /// Whether a stranger may become a peer.
    pub(crate) room: bool,
}

pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) we_called: bool,
    pub(crate) phase: Phase,
    /// When it must be up.
    pub(crate) due: Instant,
    /// The socket takes no more: wait until it does.
    pub(crate) blocked: bool,
    /// The beginning of something whose end has not come.
    incoming: Vec<u8>,
    /// Frames that wait.
    queue: Vec<u8>,
    /// What is being written, of which `sent` octets are.
    wire: Vec<u8>,
    sent: usize,
}

impl Connection {
    pub(crate) fn new(
        socket: TcpStream,
        peer: SocketAddr,
        we_called: bool,
        due: Instant,
        hello: &[u8],
    ) -> Self {
        let phase = if we_called { Phase::Calling } else { Phase::Greeting };
        let mut wire = Vec::new();
        frame::write_greeting(hello, &mut wire);
        let (incoming, queue) = (Vec::new(), Vec::new());
        Self { socket, peer, we_called, phase, due, blocked: we_called, incoming, queue, wire, sent: 0 }
    }

    /// Queues a frame. Errors: the link must end.
    pub(crate) fn send(&mut self, octets: &[u8], settings: &Settings) -> Result<(), DownReason> {
        if octets.len() > settings.frame_octets_max {
            return Err(DownReason::FrameTooLong);
        }
        let waiting = self.queue.len() + (self.wire.len() - self.sent);
        if waiting + FRAME_HEADER + octets.len() > settings.queue_octets_max {
            return Err(DownReason::QueueFull);
        }
        frame::write_frame(octets, &mut self.queue);
        Ok(())
    }

    /// Writes what waits, once. Errors: the link must end.
    pub(crate) fn flush(&mut self, counters: &mut Counters) -> Result<(), DownReason> {
        if self.blocked {
            return Ok(());
        }
        if self.sent == self.wire.len() {
            self.wire.clear();
            self.sent = 0;
            if self.queue.is_empty() {
                self.queue.shrink_to(KEPT_OCTETS);
                return Ok(());
            }
            if self.phase != Phase::Up {
                return Ok(());
            }
            self.wire.shrink_to(KEPT_OCTETS);
            core::mem::swap(&mut self.queue, &mut self.wire);
        }
        match self.socket.write(&self.wire[self.sent..]) {
            Ok(octets) => {
                self.sent += octets;
                self.blocked = self.sent < self.wire.len();
                counters.octets_out += octets as u64;
                counters.writes += 1;
                Ok(())
            }
            Err(e) if later(&e) => {
                self.blocked = true;
                Ok(())
            }
            Err(e) => Err(broken(&e)),
        }
    }

    /// The socket is ready for something: a call that came about, or room to write. Errors: the link must end.
    pub(crate) fn writable(&mut self) -> Result<(), DownReason> {
        if self.phase == Phase::Calling {
            socket::outcome(&self.socket).map_err(|_| DownReason::Unreachable)?;
            self.phase = Phase::Greeting;
        }
        self.blocked = false;
        Ok(())
    }

    /// Reads once. Errors: the link must end.
    pub(crate) fn read(
        &mut self,
        link: LinkId,
        scratch: &mut [u8],
        turn: &mut Turn<'_>,
    ) -> Result<(), DownReason> {
        let octets = match self.socket.read(scratch) {
            Ok(0) if self.incoming.is_empty() && self.phase == Phase::Up => return Err(DownReason::Closed),
            Ok(0) => return Err(DownReason::Truncated),
            Ok(octets) => octets,
            Err(e) if later(&e) => return Ok(()),
            Err(e) => return Err(broken(&e)),
        };
        turn.counters.octets_in += octets as u64;
        let octets = &scratch[..octets];
        if self.incoming.is_empty() {
            let taken = self.take(link, octets, turn)?;
            self.incoming.extend_from_slice(&octets[taken..]);
            return Ok(());
        }
        let mut incoming = core::mem::take(&mut self.incoming);
        incoming.extend_from_slice(octets);
        let taken = self.take(link, &incoming, turn)?;
        incoming.drain(..taken);
        if incoming.is_empty() {
            incoming = Vec::new();
        }
        self.incoming = incoming;
        Ok(())
    }

    /// Takes what is whole of `octets`, and says how much that was.
    fn take(&mut self, link: LinkId, octets: &[u8], turn: &mut Turn<'_>) -> Result<usize, DownReason> {
        let mut taken = 0;
        if self.phase != Phase::Up {
            let hello = frame::greeting(octets).map_err(|bad| match bad {
                BadGreeting::Foreign => DownReason::Foreign,
                BadGreeting::Version => DownReason::Version,
                BadGreeting::TooLong => DownReason::HelloTooLong,
            })?;
            let Some(hello) = hello else { return Ok(0) };
            if !self.we_called && !turn.room {
                return Err(DownReason::NoRoom);
            }
            turn.events.up(link, self.peer, hello, self.we_called);
            turn.counters.up += 1;
            self.phase = Phase::Up;
            taken = frame::GREETING_HEADER + hello.len();
        }
        let frames = frame::frames(&octets[taken..], turn.settings.frame_octets_max, |frame| {
            turn.events.frame(link, frame);
            turn.counters.frames_in += 1;
        });
        frames.map(|octets| taken + octets).map_err(|frame::TooLong| DownReason::FrameTooLong)
    }
}

fn later(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn broken(e: &Error) -> DownReason {
    if e.kind() == ErrorKind::TimedOut { DownReason::Vanished } else { DownReason::Broken }
}
