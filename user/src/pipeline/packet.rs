//! A packet in its buffer, with room in front for the headers that it may get.

use whimbrel_pages::PageOctets;

/// Octets kept free in front of a packet: the longest GTP-U header is 20, and drivers like cache lines.
pub const PACKET_HEADROOM: usize = 64;

/// A packet in its buffer.
#[derive(Clone, Debug)]
pub struct Packet {
    buffer: PageOctets,
    start: usize,
    end: usize,
    /// Its number at a packet logger; zero without one.
    counter: u64,
}

impl Packet {
    /// An empty packet whose buffer holds up to `octets` behind the headroom.
    pub fn with_room(octets: usize) -> Self {
        Self::in_buffer(PageOctets::new(PACKET_HEADROOM + octets))
    }

    /// `count` of them, next to each other in large pages: for a driver, whose packets exceed its core's caches.
    pub fn many(count: usize, octets: usize) -> impl Iterator<Item = Self> {
        PageOctets::many(count, PACKET_HEADROOM + octets).map(Self::in_buffer)
    }

    fn in_buffer(buffer: PageOctets) -> Self {
        Self { buffer, start: PACKET_HEADROOM, end: PACKET_HEADROOM, counter: 0 }
    }

    /// A packet of these octets, for tests and for what is built here.
    pub fn of(octets: &[u8]) -> Self {
        let mut p = Self::with_room(octets.len());
        p.fill(octets);
        p
    }

    /// Octets of the packet.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Its octets, to be changed in place.
    pub(crate) fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// How many octets it has.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where a receiver may write a new packet; [`Self::received`] says how much it wrote.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[PACKET_HEADROOM..]
    }

    /// The packet is now the first `octets` of its room (as many as there are at most).
    #[inline]
    pub fn received(&mut self, octets: usize) {
        self.start = PACKET_HEADROOM;
        self.end = (PACKET_HEADROOM + octets).min(self.buffer.len());
    }

    /// The packet is now a copy of `octets`, cut to its room.
    pub fn fill(&mut self, octets: &[u8]) {
        let n = octets.len().min(self.room().len());
        self.room()[..n].copy_from_slice(&octets[..n]);
        self.received(n);
    }

    /// Its counter at the packet logger that it came from; zero if it came from none.
    #[inline]
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// It came from a packet logger, with the logger's head of so many octets in front.
    pub fn came_logged(&mut self, counter: u64, head_octets: usize) {
        self.pull(head_octets);
        self.counter = counter;
    }

    #[inline]
    pub(crate) fn take_counter(&mut self) -> u64 {
        std::mem::take(&mut self.counter)
    }

    /// Drops `octets` from the front.
    #[inline]
    pub(crate) fn pull(&mut self, octets: usize) {
        self.start = (self.start + octets).min(self.end);
    }

    /// Keeps the first `octets`.
    #[inline]
    pub(crate) fn truncate(&mut self, octets: usize) {
        self.end = (self.start + octets).min(self.end);
    }

    /// The free octets in front, to be written from their end; [`Self::pushed`] says how many were.
    #[inline]
    pub(crate) fn headroom(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.start]
    }

    /// How many free octets there are in front.
    #[inline]
    pub(crate) fn headroom_octets(&self) -> usize {
        self.start
    }

    /// Writes octets in front; false, with nothing written, where there is no room.
    pub(crate) fn push(&mut self, octets: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(octets.len()) else { return false };
        self.buffer[start..self.start].copy_from_slice(octets);
        self.start = start;
        true
    }

    #[inline]
    pub(crate) fn pushed(&mut self, octets: usize) {
        self.start = self.start.saturating_sub(octets);
    }
}
