//! One connection: a socket, and the protocol on it.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use whimbrel_ids::Instant;

use crate::event::{Counters, DownReason};
use crate::protocol::{LinkTurn, Protocol};
use crate::rings::{FrameRingReceiver, FrameRingSender};
use crate::socket;

pub(crate) struct LinkConnection {
    pub(crate) socket: TcpStream,
    pub(crate) protocol: Protocol,
    pub(crate) peer: SocketAddr,
    pub(crate) we_called: bool,
    /// When it must be up.
    pub(crate) due: Instant,
    /// TCP's handshake is under way.
    pub(crate) connecting: bool,
    /// The socket has no room: wait until it has.
    pub(crate) blocked: bool,
    /// Where frames go, and come from, once they have left the socket.
    pub(crate) ring_out: Option<FrameRingSender>,
    pub(crate) ring_in: Option<FrameRingReceiver>,
}

impl LinkConnection {
    /// True if frames of this connection, in either direction, go through the area of `function`.
    pub(crate) fn uses(&self, pool: usize, function: usize) -> bool {
        self.ring_in.as_ref().is_some_and(|ring| (ring.pool, ring.peer()) == (pool, function))
            || self.ring_out.as_ref().is_some_and(|ring| (ring.pool, ring.peer()) == (pool, function))
    }

    /// Whether it is an incoming connection whose peer has not proven its hello.
    pub(crate) fn is_pending(&self) -> bool {
        !self.we_called && !self.protocol.is_up()
    }

    /// Writes what waits, once. Errors: the link must end.
    pub(crate) fn flush(&mut self, counters: &mut Counters) -> Result<(), DownReason> {
        if self.blocked {
            return Ok(());
        }
        let octets = self.protocol.outgoing()?;
        if octets.is_empty() {
            return Ok(());
        }
        match self.socket.write(octets) {
            Ok(octets) => {
                self.protocol.wrote(octets);
                self.blocked = self.protocol.is_writing();
                counters.octets_out += octets as u64;
                counters.writes += 1;
            }
            Err(e) if later(&e) => self.blocked = true,
            Err(e) => return Err(broken(&e)),
        }
        Ok(())
    }

    /// The socket is ready: the connection is established, or there is room to write. Errors: the link must end.
    pub(crate) fn writable(&mut self) -> Result<(), DownReason> {
        if self.connecting {
            socket::outcome(&self.socket).map_err(|_| DownReason::Unreachable)?;
            self.connecting = false;
        }
        self.blocked = false;
        Ok(())
    }

    /// Reads once. Errors: the link must end.
    pub(crate) fn read(&mut self, scratch: &mut [u8], turn: &mut LinkTurn<'_>) -> Result<(), DownReason> {
        match self.socket.read(scratch) {
            Ok(0) => Err(self.protocol.closed()),
            Ok(octets) => {
                turn.counters.octets_in += octets as u64;
                self.protocol.arrived(&scratch[..octets], turn)
            }
            Err(e) if later(&e) => Ok(()),
            Err(e) => Err(broken(&e)),
        }
    }
}

fn later(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn broken(e: &Error) -> DownReason {
    if e.kind() == ErrorKind::TimedOut { DownReason::Vanished } else { DownReason::Broken }
}
