//! One function's end of all its rings: what it sends, and what it receives.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use crate::layout::Layout;

/// Of a descriptor's first word: more pieces of this frame follow.
const MORE: u64 = 1 << 31;
/// Blocks of a ring that may be read already before the sender looks: few, so that the same blocks are used again while they are cached.
const LOOKED_AFTER: u32 = 32;

/// The part of a ring that may be taken before the sender learns it: it sends into the rest meanwhile.
const CONFIRMED_AFTER: u32 = 16;

/// Of so many looks that find no descriptor, one is at the ring's head: a look at the descriptor alone is what a message's way to a busy
/// receiver is made of, and the head shows no more than that the peer has ended the link, or wrote rubbish.
pub(crate) const HEAD_EVERY: u32 = 64;

/// The memory of a pool, and its bells.
pub trait Memory {
    /// The word at a place, relaxed; zero out of bounds.
    fn load(&self, at: usize) -> u64;
    /// Sets a word of the own area, relaxed; without effect elsewhere.
    fn store(&self, at: usize, value: u64);
    /// Copies words out, each as by [`Self::load`].
    fn read(&self, at: usize, into: &mut [u8]) {
        for (at, octets) in (at..).zip(into.chunks_mut(8)) {
            octets.copy_from_slice(&self.load(at).to_ne_bytes()[..octets.len()]);
        }
    }
    /// Copies words in, each as by [`Self::store`].
    fn write(&self, at: usize, octets: &[u8]) {
        for (at, octets) in (at..).zip(octets.chunks(8)) {
            self.store(at, padded(octets));
        }
    }
    /// A fence as [`std::sync::atomic::fence`] has it.
    fn fence(&self, order: Ordering);
    /// Rings the bell of a function.
    fn ring(&self, of: usize);
}

/// Why a link cannot be continued in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFault {
    /// The peer wrote what no function writes.
    Rubbish,
    /// The ring has another generation: the peer has ended the link, or wrote rubbish.
    Superseded,
}

/// The use of the ring to one other function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// By no link.
    Free,
    /// By a link.
    Open,
    /// By a link that this end has closed and whose last frames that process (by its incarnation) may still read.
    Closing(u32),
}

/// The ring to one other function. What this process has written is known here and never read back.
struct RingSender {
    used: Use,
    generation: u32,
    /// Descriptors that were written, that were published, and whose blocks are free again.
    head: u32,
    published: u32,
    freed: u32,
    blocks: Box<[u32]>,
    blocked: bool,
    /// The sleep of the peer for which the bell was rung.
    rung: u64,
}

/// The ring from one other function, under one generation.
#[derive(Debug)]
pub struct Receiver {
    peer: usize,
    generation: u32,
    tail: u32,
    confirmed: u32,
    /// Looks since the last piece that found none.
    looks: u32,
}

impl Receiver {
    /// The function that sends.
    pub fn peer(&self) -> usize {
        self.peer
    }
}

/// One function's end of its rings.
pub struct Port<M> {
    memory: M,
    layout: Layout,
    own: usize,
    incarnation: u32,
    generation: u32,
    senders: Vec<RingSender>,
    /// Free blocks of which some were used before; the last one that was freed is used first.
    free: Vec<u32>,
    sleep: Cell<u64>,
}

/// The last octets of a frame, as a word.
pub(crate) fn padded(octets: &[u8]) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(octets) {
        *to = *from;
    }
    u64::from_ne_bytes(word)
}

const fn word(generation: u32, low: u32) -> u64 {
    (generation as u64) << 32 | low as u64
}

const fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl<M: Memory> Port<M> {
    /// Takes the area over from the process that had it before.
    pub fn open(memory: M, layout: Layout, own: usize) -> Self {
        let incarnation = (memory.load(layout.owner(own)) as u32).wrapping_add(1);
        let generation = memory.load(layout.generation(own)) as u32;
        // Whatever the process before has left there, it means nothing under the generations of this one.
        for peer in 0..layout.functions {
            memory.store(layout.tail(own, peer), 0);
            memory.store(layout.head(own, peer), 0);
            memory.store(layout.blocked(own, peer), 0);
        }
        let sleep = memory.load(layout.sleep(own)) | 1;
        memory.store(layout.sleep(own), sleep.wrapping_add(1));
        memory.fence(Ordering::Release);
        memory.store(layout.owner(own), incarnation.into());
        let sender = || RingSender {
            used: Use::Free,
            generation: 0,
            head: 0,
            published: 0,
            freed: 0,
            blocks: vec![0; layout.ring].into_boxed_slice(),
            blocked: false,
            rung: 0,
        };
        let senders = std::iter::repeat_with(sender).take(layout.functions).collect();
        let free = (0..layout.blocks() as u32).rev().collect();
        let sleep = Cell::new(sleep.wrapping_add(1));
        Self { memory, layout, own, incarnation, generation, senders, free, sleep }
    }

    /// Which function this is.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Counts the processes that have been this function.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The memory, and its bells.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The same, to map other areas into it.
    pub(crate) fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// The octets of a piece, at most.
    pub fn piece_octets_max(&self) -> usize {
        self.layout.block_octets()
    }

    /// Begins to send to a function. Returns the generation, which its [`Receiver`] needs; `None` while another link uses the ring, or the peer
    /// has not read the last frames of the link before.
    pub fn begin(&mut self, peer: usize) -> Option<u32> {
        let owner = self.memory.load(self.layout.owner(peer)) as u32;
        // A tail that is out of range frees nothing: the ring stays in use.
        let _ = self.look(peer);
        let sender = self.senders.get_mut(peer).filter(|_| peer != self.own)?;
        match sender.used {
            Use::Open => return None,
            Use::Closing(of) if of == owner && sender.freed != sender.published => return None,
            Use::Closing(_) | Use::Free => {}
        }
        self.free_all(peer);
        self.generation = self.generation.wrapping_add(1).max(1);
        self.memory.store(self.layout.generation(self.own), self.generation.into());
        let sender = self.senders.get_mut(peer)?;
        (sender.head, sender.published, sender.freed) = (0, 0, 0);
        (sender.used, sender.generation, sender.blocked) = (Use::Open, self.generation, false);
        self.memory.store(self.layout.blocked(self.own, peer), 0);
        self.memory.fence(Ordering::Release);
        self.memory.store(self.layout.head(self.own, peer), word(self.generation, 0));
        Some(self.generation)
    }

    /// The link that sends to a function has ended. `gone`: by the peer, which reads nothing more.
    pub fn end(&mut self, peer: usize, gone: bool) {
        let owner = self.memory.load(self.layout.owner(peer)) as u32;
        let Some(sender) = self.senders.get_mut(peer) else { return };
        sender.used = Use::Closing(owner);
        if gone {
            self.free_all(peer);
        }
    }

    fn free_all(&mut self, peer: usize) {
        let Some(sender) = self.senders.get_mut(peer) else { return };
        while sender.freed != sender.head {
            self.free.push(sender.blocks[self.layout.slot(sender.freed)]);
            sender.freed = sender.freed.wrapping_add(1);
        }
        (sender.published, sender.used) = (sender.head, Use::Free);
    }

    /// Frees the blocks that a peer has read. Errors: its tail is none that it can have.
    fn look(&mut self, peer: usize) -> Result<(), PortFault> {
        let tail = self.memory.load(self.layout.tail(peer, self.own));
        self.memory.fence(Ordering::Acquire);
        let Some(sender) = self.senders.get_mut(peer) else { return Ok(()) };
        let (generation, tail) = halves(tail);
        // It has not begun to read.
        if generation != sender.generation || sender.generation == 0 {
            return Ok(());
        }
        if tail.wrapping_sub(sender.freed) > sender.published.wrapping_sub(sender.freed) {
            return Err(PortFault::Rubbish);
        }
        while sender.freed != tail {
            self.free.push(sender.blocks[self.layout.slot(sender.freed)]);
            sender.freed = sender.freed.wrapping_add(1);
        }
        Ok(())
    }

    fn is_full(&self, peer: usize) -> bool {
        self.senders.get(peer).is_none_or(|s| s.head.wrapping_sub(s.freed) as usize >= self.layout.ring)
    }

    /// Writes a piece of a frame, which [`Self::publish`] sends; a piece that is not the last has [`Self::piece_octets_max`]. Returns whether
    /// there was room: if not, the peer wakes this process when there is.
    ///
    /// Errors: the peer wrote rubbish.
    pub fn push(&mut self, peer: usize, octets: &[u8], last: bool) -> Result<bool, PortFault> {
        let Some(sender) = self.senders.get(peer) else { return Ok(false) };
        if sender.head.wrapping_sub(sender.freed) >= LOOKED_AFTER.min(self.layout.ring as u32) {
            self.look(peer)?;
        }
        if self.is_full(peer) {
            self.publish(peer);
            self.set_blocked(peer, true);
            return Ok(false);
        }
        self.set_blocked(peer, false);
        // There are as many blocks as descriptors.
        let Some(block) = self.free.pop() else { return Ok(false) };
        let offset = block as usize * self.layout.block_octets();
        let at = self.layout.slab(self.own) + block as usize * self.layout.block_words;
        let octets = octets.get(..self.layout.block_octets()).unwrap_or(octets);
        self.memory.write(at, octets);
        let Some(sender) = self.senders.get_mut(peer) else { return Ok(false) };
        let at = self.layout.descriptor(self.own, peer, sender.head);
        let more = if last { 0 } else { MORE };
        self.memory.store(at, (offset as u64) << 32 | more | octets.len() as u64);
        sender.blocks[self.layout.slot(sender.head)] = block;
        sender.head = sender.head.wrapping_add(1);
        Ok(true)
    }

    fn set_blocked(&mut self, peer: usize, blocked: bool) {
        let Some(sender) = self.senders.get_mut(peer).filter(|s| s.blocked != blocked) else { return };
        sender.blocked = blocked;
        let generation = if blocked { sender.generation } else { 0 };
        self.memory.store(self.layout.blocked(self.own, peer), generation.into());
    }

    /// Lets a peer see what was written, and wakes it if it sleeps.
    pub fn publish(&mut self, peer: usize) {
        let Some(sender) = self.senders.get_mut(peer).filter(|s| s.head != s.published) else { return };
        // The octets before the descriptors' names, and these before the head.
        self.memory.fence(Ordering::Release);
        while sender.published != sender.head {
            let at = self.layout.descriptor(self.own, peer, sender.published);
            self.memory.store(at + 1, word(sender.generation, sender.published));
            sender.published = sender.published.wrapping_add(1);
        }
        self.memory.fence(Ordering::Release);
        self.memory.store(self.layout.head(self.own, peer), word(sender.generation, sender.head));
        self.wake(peer);
    }

    /// Rings a peer's bell if it sleeps and this process has not rung since.
    fn wake(&mut self, peer: usize) {
        self.memory.fence(Ordering::SeqCst);
        let sleep = self.memory.load(self.layout.sleep(peer));
        let Some(sender) = self.senders.get_mut(peer) else { return };
        if !sleep.is_multiple_of(2) && sleep != sender.rung {
            sender.rung = sleep;
            self.memory.ring(peer);
        }
    }

    /// Whether a blocked ring has room again, or its peer wrote rubbish, as [`Self::push`] returns.
    pub fn is_unblocked(&self, peer: usize) -> bool {
        let Some(sender) = self.senders.get(peer).filter(|s| s.blocked) else { return false };
        let (generation, tail) = halves(self.memory.load(self.layout.tail(peer, self.own)));
        generation == sender.generation && tail != sender.freed
    }

    /// The ring from a peer that has begun to send under this generation.
    pub fn receiver(&self, peer: usize, generation: u32) -> Receiver {
        Receiver { peer, generation, tail: 0, confirmed: 0, looks: 0 }
    }

    /// Whether the next descriptor of a ring is there.
    fn is_named(&self, receiver: &Receiver) -> bool {
        let at = self.layout.descriptor(receiver.peer, self.own, receiver.tail);
        self.memory.load(at + 1) == word(receiver.generation, receiver.tail)
    }

    /// How many descriptors wait by the ring's head. It may be behind what was taken, since it is raised last.
    ///
    /// Errors: it is no head of this generation.
    fn waiting(&self, receiver: &Receiver) -> Result<u32, PortFault> {
        let (generation, head) = halves(self.memory.load(self.layout.head(receiver.peer, self.own)));
        self.memory.fence(Ordering::Acquire);
        let (ring, ahead) = (self.layout.ring as u32, head.wrapping_sub(receiver.tail));
        if generation != receiver.generation {
            Err(PortFault::Superseded)
        } else if ahead <= ring {
            Ok(ahead)
        } else if ahead.wrapping_neg() <= ring {
            Ok(0)
        } else {
            Err(PortFault::Rubbish)
        }
    }

    /// Whether something, or rubbish, waits in a ring.
    pub fn has_arrived(&self, receiver: &Receiver) -> bool {
        self.is_named(receiver) || self.waiting(receiver) != Ok(0)
    }

    /// Appends the next piece to `into`. Returns whether it is the last of its frame; `None` if nothing waits.
    ///
    /// Errors: what is there is no piece, and nothing of it was taken.
    pub fn take(&self, receiver: &mut Receiver, into: &mut Vec<u8>) -> Result<Option<bool>, PortFault> {
        let layout = &self.layout;
        if !self.is_named(receiver) {
            let looks = receiver.looks;
            receiver.looks = looks.wrapping_add(1);
            if !looks.is_multiple_of(HEAD_EVERY) || self.waiting(receiver)? == 0 {
                return Ok(None);
            }
            if !self.is_named(receiver) {
                return Err(PortFault::Rubbish);
            }
        }
        self.memory.fence(Ordering::Acquire);
        receiver.looks = 0;
        let at = layout.descriptor(receiver.peer, self.own, receiver.tail);
        // Once: whatever the peer writes meanwhile, this is what was checked.
        let place = self.memory.load(at);
        let (offset, length) = halves(place & !MORE);
        let (offset, length, is_last) = (offset as usize, length as usize, place & MORE == 0);
        let in_a_block = offset.is_multiple_of(layout.block_octets()) && length <= layout.block_octets();
        let is_whole = is_last || length == layout.block_octets();
        if offset >= layout.blocks() * layout.block_octets() || !in_a_block || !is_whole {
            return Err(PortFault::Rubbish);
        }
        let begin = into.len();
        into.resize(begin + length, 0);
        let words = layout.slab(receiver.peer) + offset / 8;
        self.memory.read(words, into.get_mut(begin..).unwrap_or_default());
        receiver.tail = receiver.tail.wrapping_add(1);
        Ok(Some(is_last))
    }

    /// Lets the peer use the blocks again that were taken, and wakes it if it waits for room. A few may wait for the next time: they keep no
    /// peer from sending.
    pub fn confirm(&mut self, receiver: &mut Receiver) {
        if receiver.tail.wrapping_sub(receiver.confirmed)
            >= (self.layout.ring as u32 / CONFIRMED_AFTER).max(1)
        {
            self.confirm_all(receiver);
        }
    }

    /// The same for all of them, when the link ends.
    pub fn confirm_all(&mut self, receiver: &mut Receiver) {
        if receiver.tail == receiver.confirmed {
            return;
        }
        receiver.confirmed = receiver.tail;
        self.memory.fence(Ordering::Release);
        self.memory
            .store(self.layout.tail(self.own, receiver.peer), word(receiver.generation, receiver.tail));
        self.memory.fence(Ordering::SeqCst);
        let blocked = self.memory.load(self.layout.blocked(receiver.peer, self.own));
        if blocked == u64::from(receiver.generation) {
            self.wake(receiver.peer);
        }
    }

    /// This process is about to sleep: processes that send from now on ring its bell. What was sent before is to be looked for once more after this.
    pub fn before_sleep(&self) {
        if self.sleep.get().is_multiple_of(2) {
            self.next_sleep();
        }
        self.memory.fence(Ordering::SeqCst);
    }

    /// This process does not sleep. Returns whether it did.
    pub fn after_sleep(&self) -> bool {
        let slept = !self.sleep.get().is_multiple_of(2);
        if slept {
            self.next_sleep();
        }
        slept
    }

    fn next_sleep(&self) {
        self.sleep.set(self.sleep.get().wrapping_add(1));
        self.memory.store(self.layout.sleep(self.own), self.sleep.get());
    }
}
