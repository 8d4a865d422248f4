//! One end of a link without its socket: received octets in; events, and octets to send, out.

use core::mem::take;
use std::net::SocketAddr;

use crate::event::{Counters, DownReason, LinkEvents};
use crate::frame::{
    self, BadFrame, BadGreeting, Control, FRAME_HEADER, GREETING_HEADER, LinkItem, Protection, ShmAddress,
};
use crate::seal::{self, CallerHandshake, ForgedRecord, PROOF_OCTETS, SealedChannel, WrongKey};
use crate::{LinkId, LinkSettings};
use whimbrel_shm::FUNCTIONS;

/// Memory that a link keeps each way while nothing waits: what a busy turn fills.
const KEPT_OCTETS: usize = 1024 * 1024;
/// Pools of one process: a CTA has one with the CPFs, and one with the UPF.
pub(crate) const POOLS_MAX: usize = 2;
/// Octets sealed at once: as much as a socket takes, so that a link with a long queue does not hold up the others.
const SEALED_AT_ONCE: usize = 1024 * 1024;

/// The context in which octets are handled.
pub(crate) struct LinkTurn<'a> {
    pub(crate) link: LinkId,
    pub(crate) peer: SocketAddr,
    pub(crate) settings: &'a LinkSettings,
    pub(crate) events: &'a mut LinkEvents,
    pub(crate) counters: &'a mut Counters,
    /// Whether a pending link may come up.
    pub(crate) room: bool,
}

/// The progress of a link.
enum Stage {
    /// The peer's greeting is awaited. The caller under a key needs the rest of its handshake for it.
    Greeting(Option<CallerHandshake>),
    /// The greeting came, under the key: it may be a recording until a fresh record follows.
    Proving(Box<SealedChannel>, Vec<u8>),
    /// Frames pass, sealed if there is a key.
    Up(Option<Box<SealedChannel>>),
}

pub(crate) struct Protocol {
    we_called: bool,
    stage: Stage,
    /// An incomplete greeting, frame or record.
    incoming: Vec<u8>,
    /// An incomplete frame from records.
    opened: Vec<u8>,
    /// Frames that wait, of which `taken` octets have been sealed or copied.
    queue: Vec<u8>,
    taken: usize,
    /// What is being written, of which `written` octets are.
    wire: Vec<u8>,
    written: usize,
    shared: SharedMemoryState,
}

/// What is agreed about shared memory.
#[derive(Default)]
struct SharedMemoryState {
    /// Where the peer is, one place for each of its pools.
    places: Vec<ShmAddress>,
    /// The first of them in a pool of this end.
    peer: Option<ShmAddress>,
    /// This end has reported that it maps the peer's area, and the peer has reported the same of this end's.
    maps_peer: bool,
    is_mapped: bool,
    /// The peer's frames go through its ring from here on.
    ring: Option<u32>,
}

impl SharedMemoryState {
    fn heard(&mut self, own: &[ShmAddress], item: LinkItem<'_>) -> Result<(), BadFrame> {
        match item {
            // After the last one.
            LinkItem::Frame(_) if self.ring.is_some() => return Err(BadFrame::Control),
            LinkItem::Frame(_) => {}
            LinkItem::Control(Control::Place(place))
                if self.places.len() < POOLS_MAX && !self.has_named(place.pool) =>
            {
                let is_area = usize::from(place.function) < FUNCTIONS;
                let both = own.iter().any(|own| own.pool == place.pool && own.function != place.function);
                self.places.push(place);
                self.peer = self.peer.or((both && is_area).then_some(place));
            }
            LinkItem::Control(Control::Mapped) if self.peer.is_some() && !self.is_mapped => {
                self.is_mapped = true
            }
            LinkItem::Control(Control::Ring(generation)) if self.peer.is_some() && self.ring.is_none() => {
                self.ring = Some(generation);
            }
            LinkItem::Control(_) => return Err(BadFrame::Control),
        }
        Ok(())
    }

    fn has_named(&self, pool: u64) -> bool {
        self.places.iter().any(|place| place.pool == pool)
    }
}

impl Protocol {
    fn new(we_called: bool) -> Self {
        let (incoming, opened, queue, wire) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let stage = Stage::Greeting(None);
        let shared = SharedMemoryState::default();
        Self { we_called, stage, incoming, opened, queue, taken: 0, wire, written: 0, shared }
    }

    /// The caller's end. Errors: the system gives no randomness.
    pub(crate) fn calling(settings: &LinkSettings) -> Result<Self, DownReason> {
        let mut protocol = Self::new(true);
        match settings.keys.first() {
            None => frame::write_greeting(Protection::Plain, &settings.hello, &mut protocol.wire),
            Some(key) => {
                let prologue = frame::preamble(Protection::Sealed);
                let (calling, body) =
                    CallerHandshake::new(key, &prologue, &settings.hello).map_err(|_| DownReason::Broken)?;
                frame::write_greeting(Protection::Sealed, &body, &mut protocol.wire);
                protocol.stage = Stage::Greeting(Some(calling));
            }
        }
        Ok(protocol)
    }

    /// The called end. Under a key it sends nothing to a caller that has not proven to have the key.
    pub(crate) fn called(settings: &LinkSettings) -> Self {
        let mut protocol = Self::new(false);
        if settings.keys.is_empty() {
            frame::write_greeting(Protection::Plain, &settings.hello, &mut protocol.wire);
        }
        protocol
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Queues a frame. Errors: the link must end.
    pub(crate) fn send(&mut self, octets: &[u8], settings: &LinkSettings) -> Result<(), DownReason> {
        if octets.len() > settings.frame_octets_max {
            return Err(DownReason::FrameTooLong);
        }
        if self.waiting() + FRAME_HEADER + octets.len() > settings.queue_octets_max {
            return Err(DownReason::QueueFull);
        }
        frame::write_frame(octets, &mut self.queue);
        Ok(())
    }

    /// Where the peer is, if it shares memory with this end.
    pub(crate) fn peer_place(&self) -> Option<ShmAddress> {
        self.shared.peer.filter(|_| self.is_up())
    }

    /// The generation of the ring through which the peer's frames come.
    pub(crate) fn peer_ring(&self) -> Option<u32> {
        self.shared.ring
    }

    /// Reports to the peer, once, that this end maps its area.
    pub(crate) fn map_peer(&mut self) {
        if !std::mem::replace(&mut self.shared.maps_peer, true) {
            frame::write_control(Control::Mapped, &mut self.queue);
        }
    }

    /// True if the peer has reported that it maps the area of this end.
    pub(crate) fn is_mapped(&self) -> bool {
        self.shared.is_mapped
    }

    /// Announces that the following frames go through a ring of this generation.
    pub(crate) fn leave_for_ring(&mut self, generation: u32) {
        frame::write_control(Control::Ring(generation), &mut self.queue);
    }

    /// Octets that are queued and were not written yet.
    pub(crate) fn waiting(&self) -> usize {
        (self.queue.len() - self.taken) + (self.wire.len() - self.written)
    }

    /// The octets to write now. Errors: the link must end.
    pub(crate) fn outgoing(&mut self) -> Result<&[u8], DownReason> {
        if self.written == self.wire.len() {
            self.wire.clear();
            self.wire.shrink_to(KEPT_OCTETS);
            self.written = 0;
            match &mut self.stage {
                _ if self.queue.is_empty() => {}
                Stage::Up(None) => core::mem::swap(&mut self.queue, &mut self.wire),
                Stage::Up(Some(sealed)) => {
                    let until = self.queue.len().min(self.taken + SEALED_AT_ONCE);
                    sealed
                        .seal(&self.queue[self.taken..until], &mut self.wire)
                        .map_err(|ForgedRecord| DownReason::Forged)?;
                    self.taken = until;
                    // At least half has been written each time that the rest is moved.
                    if 2 * self.taken >= self.queue.len() {
                        self.queue.drain(..take(&mut self.taken));
                        self.queue.shrink_to(self.queue.len().max(KEPT_OCTETS));
                    }
                }
                Stage::Greeting(_) | Stage::Proving(..) => {}
            }
        }
        Ok(&self.wire[self.written..])
    }

    /// This many of them were written.
    pub(crate) fn wrote(&mut self, octets: usize) {
        self.written += octets;
    }

    /// Whether a write is incomplete.
    pub(crate) fn is_writing(&self) -> bool {
        self.written < self.wire.len()
    }

    /// Whether more may be written.
    pub(crate) fn has_more(&self) -> bool {
        self.is_writing() || self.is_up() && !self.queue.is_empty()
    }

    /// Why the link ends when the peer closes it now.
    pub(crate) fn closed(&self) -> DownReason {
        match self.stage {
            Stage::Up(_) if self.incoming.is_empty() && self.opened.is_empty() => DownReason::Closed,
            Stage::Up(_) => DownReason::Truncated,
            Stage::Greeting(_) | Stage::Proving(..) => DownReason::Left,
        }
    }

    /// Handles octets of the peer. Errors: the link must end; events before that stand.
    pub(crate) fn arrived(&mut self, octets: &[u8], turn: &mut LinkTurn<'_>) -> Result<(), DownReason> {
        if self.incoming.is_empty() {
            let taken = self.take(octets, turn)?;
            self.incoming.extend_from_slice(&octets[taken..]);
            return Ok(());
        }
        let mut incoming = take(&mut self.incoming);
        incoming.extend_from_slice(octets);
        let taken = self.take(&incoming, turn)?;
        if taken < incoming.len() {
            incoming.drain(..taken);
            self.incoming = incoming;
        }
        Ok(())
    }

    /// Handles what is complete in `octets`. Returns how many octets that was.
    fn take(&mut self, octets: &[u8], turn: &mut LinkTurn<'_>) -> Result<usize, DownReason> {
        let mut taken = 0;
        if matches!(self.stage, Stage::Greeting(_)) {
            let protection = Protection::of(turn.settings);
            let Some(body) = frame::greeting(octets, protection)? else { return Ok(0) };
            self.greeted(body, turn)?;
            taken = GREETING_HEADER + body.len();
        }
        if let Stage::Proving(sealed, hello) = &mut self.stage {
            let Some(proof) = octets[taken..].get(..PROOF_OCTETS) else { return Ok(taken) };
            if sealed.open(proof, &mut self.opened)? != PROOF_OCTETS {
                return Err(DownReason::Forged);
            }
            let hello = take(hello);
            if let Stage::Proving(sealed, _) = core::mem::replace(&mut self.stage, Stage::Greeting(None)) {
                self.up(Some(sealed), &hello, turn)?;
            }
            taken += PROOF_OCTETS;
        }
        let Stage::Up(sealed) = &mut self.stage else { return Ok(taken) };
        let (shared, places) = (&mut self.shared, &turn.settings.places);
        let each = |item: LinkItem<'_>| {
            shared.heard(places, item)?;
            if let LinkItem::Frame(frame) = item {
                turn.events.frame(turn.link, frame);
                turn.counters.frames_in += 1;
            }
            Ok(())
        };
        let octets_max = turn.settings.frame_octets_max;
        match sealed {
            None => taken += frame::frames(&octets[taken..], octets_max, each)?,
            Some(sealed) => {
                taken += sealed.open(&octets[taken..], &mut self.opened)?;
                let whole = frame::frames(&self.opened, octets_max, each)?;
                self.opened.drain(..whole);
                self.opened.shrink_to(KEPT_OCTETS);
            }
        }
        Ok(taken)
    }

    /// The peer's greeting came.
    fn greeted(&mut self, body: &[u8], turn: &mut LinkTurn<'_>) -> Result<(), DownReason> {
        let Stage::Greeting(calling) = &mut self.stage else { return Ok(()) };
        match calling.take() {
            Some(calling) => {
                let (mut sealed, hello) = calling.answered(body)?;
                sealed.seal(&[], &mut self.wire)?;
                self.up(Some(Box::new(sealed)), &hello, turn)
            }
            None if turn.settings.keys.is_empty() => self.up(None, body, turn),
            None => {
                let prologue = frame::preamble(Protection::Sealed);
                let (sealed, hello, answer) =
                    seal::answer(&turn.settings.keys, &prologue, body, &turn.settings.hello)?;
                frame::write_greeting(Protection::Sealed, &answer, &mut self.wire);
                self.stage = Stage::Proving(Box::new(sealed), hello);
                Ok(())
            }
        }
    }

    /// Says where this end is, before the frames that wait.
    fn announce(&mut self, places: &[ShmAddress]) {
        let mut first = Vec::new();
        places.iter().for_each(|place| frame::write_control(Control::Place(*place), &mut first));
        self.queue.splice(..0, first);
    }

    fn up(
        &mut self,
        sealed: Option<Box<SealedChannel>>,
        hello: &[u8],
        turn: &mut LinkTurn<'_>,
    ) -> Result<(), DownReason> {
        if !self.we_called && !turn.room {
            return Err(DownReason::NoRoom);
        }
        self.stage = Stage::Up(sealed);
        self.announce(&turn.settings.places);
        turn.events.up(turn.link, turn.peer, hello, self.we_called);
        turn.counters.up += 1;
        Ok(())
    }
}

impl From<BadGreeting> for DownReason {
    fn from(bad: BadGreeting) -> Self {
        match bad {
            BadGreeting::Foreign => DownReason::Foreign,
            BadGreeting::Version => DownReason::Version,
            BadGreeting::Protection => DownReason::Protection,
            BadGreeting::TooLong => DownReason::HelloTooLong,
        }
    }
}

impl From<BadFrame> for DownReason {
    fn from(bad: BadFrame) -> Self {
        match bad {
            BadFrame::TooLong => DownReason::FrameTooLong,
            BadFrame::Control => DownReason::BadControl,
        }
    }
}

impl From<WrongKey> for DownReason {
    fn from(WrongKey: WrongKey) -> Self {
        DownReason::WrongKey
    }
}

impl From<ForgedRecord> for DownReason {
    fn from(ForgedRecord: ForgedRecord) -> Self {
        DownReason::Forged
    }
}

#[cfg(any(test, feature = "hostile"))]
impl Protocol {
    /// Octets held for incomplete messages.
    pub(crate) fn held(&self) -> usize {
        self.incoming.len() + self.opened.len()
    }

    /// Adds octets to what is sent as if they were frames, as a malicious peer with the key may.
    pub(crate) fn send_raw(&mut self, octets: &[u8]) {
        self.queue.extend_from_slice(octets);
    }
}

#[cfg(test)]
mod tests;
