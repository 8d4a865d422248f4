//! The table of sessions: a direct index, in blocks, so that no session waits for a table that moves.
//!
//! Most UEs have one session of two PDRs without filters. Such a session is *plain*: what a packet needs of it is two cache lines
//! ([`Hot`]), the rest is folded small ([`Cold`]). The others, and plain ones while something happens to them that is not a packet
//! that passes, are a [`SessionU`]. No other module sees the difference: [`Sessions::get`] unfolds, [`Sessions::fold`] folds what can be folded.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_ids::{Instant, Teid};
use whimbrel_pages::{PAGE_OCTETS, Pages};
use whimbrel_prefetch::prefetch;

use super::fast::Offloader;
use super::plain::{Cold, Hot, Second, Shapes};
use super::session::{SessionCounters, SessionU};
use crate::config::DnIndex;
use crate::session_id::SessionId;

/// Sessions of a block: their hot parts fill a large page, which is laid out while a driver's queue fills. With twelve million sessions
/// the places of all blocks stay in the first cache.
const BLOCK: usize = PAGE_OCTETS / size_of::<Hot>();

/// How long a session that the stages decided on stays unfolded, at least.
const FOLD_EVERY: Duration = Duration::from_secs(60);

/// A session, apart from its hot part.
#[derive(Default)]
enum Rest {
    #[default]
    Vacant,
    Plain(Box<Cold>),
    Full(Box<SessionU>),
}

/// A list in blocks of [`BLOCK`], of those indices that are of one shard.
pub(super) struct Blocks<T> {
    blocks: Vec<Pages<T>>,
    /// The lowest bits of an index, which are the same in all.
    shard_bits: u32,
}

impl<T: Default> Blocks<T> {
    fn new(shard_bits: u32) -> Self {
        Self { blocks: Vec::new(), shard_bits }
    }

    /// Where an index is: its block, and its place there.
    #[inline]
    fn at(&self, index: u32) -> (usize, usize) {
        let n = (index >> self.shard_bits) as usize;
        (n / BLOCK, n % BLOCK)
    }

    #[inline]
    fn get(&self, index: u32) -> Option<&T> {
        let (block, at) = self.at(index);
        self.blocks.get(block)?.get(at)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        let (block, at) = self.at(index);
        self.blocks.get_mut(block)?.get_mut(at)
    }

    /// Places in all blocks, vacant ones included.
    fn len(&self) -> u32 {
        (self.blocks.len() * BLOCK) as u32
    }

    /// The place, which is made if there is none yet.
    fn place(&mut self, index: u32) -> &mut T {
        let (block, at) = self.at(index);
        while self.blocks.len() <= block {
            self.blocks.push(Pages::new(BLOCK));
        }
        &mut self.blocks[block][at]
    }
}

/// All sessions, by index.
pub(super) struct Sessions {
    hot: Blocks<Hot>,
    rest: Blocks<Rest>,
    shapes: Shapes,
    /// How many are plain.
    plain: u64,
    /// Offloads plain sessions, if there is a fast path.
    offloader: Option<Offloader>,
}

impl Sessions {
    /// None; of a shard whose name is so many bits of an index.
    pub(super) fn new(shard_bits: u32) -> Self {
        let (hot, rest) = (Blocks::new(shard_bits), Blocks::new(shard_bits));
        Self { hot, rest, shapes: Shapes::default(), plain: 0, offloader: None }
    }

    pub(super) fn attach_fast_path(&mut self, offloader: Offloader) {
        self.offloader = Some(offloader);
    }

    pub(super) fn offloader(&mut self) -> Option<&mut Offloader> {
        self.offloader.as_mut()
    }

    /// Offloads what waits to be offloaded, as [`Offloader::offload_ready`] does.
    pub(super) fn offload_ready(&mut self, now: Instant, drained: bool) {
        if let Some(offloader) = &mut self.offloader {
            offloader.offload_ready(now, drained, &mut self.hot);
        }
    }

    /// How many are folded.
    pub(super) fn plain(&self) -> u64 {
        self.plain
    }

    /// How many are offloaded.
    pub(super) fn offloaded(&self) -> u64 {
        self.offloader.as_ref().map_or(0, Offloader::offloaded)
    }

    /// When that is due.
    pub(super) fn next_offload(&self) -> Option<Instant> {
        self.offloader.as_ref()?.next_deadline()
    }

    /// Does something with the hot part of a session that is offloaded, as [`Offloader::with_reclaimed`] does.
    #[cold]
    pub(super) fn with_reclaimed<T>(&mut self, index: u32, f: impl FnOnce(&mut Hot) -> T) -> Option<T> {
        self.offloader.as_mut()?.with_reclaimed(index, self.hot.get_mut(index)?, f)
    }

    /// Does something with the hot part of a plain session that has a second meter, and with that.
    #[cold]
    pub(super) fn with_second<T>(
        &mut self,
        index: u32,
        f: impl FnOnce(&mut Hot, &mut Second) -> T,
    ) -> Option<T> {
        let Rest::Plain(cold) = self.rest.get_mut(index)? else { return None };
        Some(f(self.hot.get_mut(index)?, cold.second()?))
    }

    /// The session's hot part. Of one that is not plain, or not there, it says just that.
    #[inline]
    pub(super) fn hot(&mut self, index: u32) -> Option<&mut Hot> {
        self.hot.get_mut(index)
    }

    /// Whether there is a plain session.
    #[inline]
    pub(super) fn is_plain(&self, index: u32) -> bool {
        self.hot.get(index).is_some_and(Hot::is_plain)
    }

    /// Begins to load the session's hot part.
    #[inline]
    pub(super) fn prefetch(&self, index: u32) {
        if let Some(hot) = self.hot.get(index) {
            hot.prefetch();
        }
    }

    /// The session, unless it is folded.
    #[inline]
    pub(super) fn full(&self, index: u32) -> Option<&SessionU> {
        match self.rest.get(index)? {
            Rest::Full(s) => Some(s),
            Rest::Plain(_) | Rest::Vacant => None,
        }
    }

    /// The place of a local tunnel in the session, folded or not.
    pub(super) fn place(&self, index: u32, teid: Teid) -> Option<usize> {
        match self.rest.get(index)? {
            Rest::Vacant => None,
            Rest::Plain(cold) => cold.tunnels().iter().position(|t| *t == teid).filter(|_| teid != Teid(0)),
            Rest::Full(s) => s.rules.place(teid),
        }
    }

    /// Whether the session's rules name an address as the other end of a local tunnel, or name none there.
    pub(super) fn takes_from(&self, index: u32, teid: Teid, peer: IpAddr) -> bool {
        match self.rest.get(index) {
            Some(Rest::Plain(_)) => {
                self.hot.get(index).is_some_and(|hot| hot.is_gnb(peer) || hot.names_no_gnb())
            }
            Some(Rest::Full(s)) => s.rules.takes_from(teid, peer),
            Some(Rest::Vacant) | None => false,
        }
    }

    /// The session, unfolded; the caller folds it afterwards.
    pub(super) fn get(&mut self, index: u32) -> Option<&mut SessionU> {
        let rest = self.rest.get_mut(index)?;
        if let Rest::Plain(cold) = rest {
            let hot = self.hot.get_mut(index)?;
            if let Some(offloader) = &mut self.offloader {
                offloader.reclaim(index, hot);
            }
            *rest = Rest::Full(Box::new(cold.unfold(hot, index)));
            *hot = Hot::default();
            self.plain -= 1;
        }
        match rest {
            Rest::Full(s) => Some(s),
            Rest::Plain(_) | Rest::Vacant => None,
        }
    }

    /// Takes the session out of the table.
    pub(super) fn take(&mut self, index: u32) -> Option<Box<SessionU>> {
        self.get(index)?;
        match std::mem::take(self.rest.get_mut(index)?) {
            Rest::Full(s) => Some(s),
            Rest::Plain(_) | Rest::Vacant => None,
        }
    }

    /// Puts a session into the table, in the place of what was there.
    pub(super) fn put(&mut self, index: u32, session: Box<SessionU>) {
        *self.hot.place(index) = Hot::default();
        *self.rest.place(index) = Rest::Full(session);
    }

    /// Folds the session, if it is plain now.
    pub(super) fn fold(&mut self, index: u32) {
        let Some(rest) = self.rest.get_mut(index) else { return };
        let Rest::Full(session) = rest else { return };
        if let (Some((hot, cold)), Some(place)) =
            (Cold::fold(session, &mut self.shapes), self.hot.get_mut(index))
        {
            *place = hot;
            *rest = Rest::Plain(Box::new(cold));
            self.plain += 1;
            if let Some(offloader) = &mut self.offloader {
                offloader.start_offload(index, place);
            }
        }
    }

    /// Folds the session if it is plain, now and then: a UE that misbehaves does not have it folded and unfolded with every packet.
    pub(super) fn fold_in_time(&mut self, now: Instant, index: u32) {
        let Some(Rest::Full(session)) = self.rest.get_mut(index) else { return };
        let (at, never) = (session.state.fold_at, session.state.fold_at == Instant::ZERO);
        let due = !never && at <= now;
        if due || never {
            session.state.fold_at = now + FOLD_EVERY;
        }
        if due {
            self.fold(index);
        }
    }

    /// Does something with a session as it is now, folded or not, which it stays.
    pub(super) fn with_snapshot<T>(&self, index: u32, f: impl FnOnce(&SessionU) -> T) -> Option<T> {
        match self.rest.get(index)? {
            Rest::Vacant => None,
            Rest::Full(s) => Some(f(s)),
            Rest::Plain(cold) => {
                let hot = self.hot.get(index)?;
                let offloaded = self.offloader.as_ref().and_then(|l| l.snapshot(index, hot));
                Some(f(&cold.unfold(offloaded.as_ref().unwrap_or(hot), index)))
            }
        }
    }

    /// Which of the sessions that stood at this index it is.
    pub(super) fn generation(&self, index: u32) -> Option<u32> {
        match self.rest.get(index)? {
            Rest::Vacant => None,
            Rest::Plain(cold) => Some(cold.generation()),
            Rest::Full(s) => Some(s.state.generation),
        }
    }

    /// Places of the table, vacant ones included: indices without the bits of the shard.
    pub(super) fn places(&self) -> u32 {
        self.rest.len()
    }

    /// Begins to load the place that [`Self::prefetch_usage`] reads.
    #[inline]
    pub(super) fn prefetch_place(&self, place: u32) {
        if let Some(rest) = self.rest.get(place << self.rest.shard_bits) {
            prefetch(rest);
        }
    }

    /// Begins to load what [`Self::usage_at`] reads of a plain session.
    #[inline]
    pub(super) fn prefetch_usage(&self, place: u32) {
        self.prefetch(place << self.rest.shard_bits);
        if let Some(Rest::Plain(cold)) = self.rest.get(place << self.rest.shard_bits) {
            cold.prefetch_counters();
        }
    }

    /// The data network of the session at a place, its last packet, and what it sent, received and lost.
    #[inline]
    pub(super) fn usage_at(&self, place: u32) -> Option<(DnIndex, Instant, SessionCounters)> {
        let index = place << self.rest.shard_bits;
        match self.rest.get(index)? {
            Rest::Vacant => None,
            Rest::Full(s) => Some((s.rules.data_network, s.state.last_packet, s.state.counters)),
            Rest::Plain(cold) => {
                let hot = self.hot.get(index)?;
                let offloaded = self.offloader.as_ref().and_then(|l| l.snapshot(index, hot));
                let hot = offloaded.as_ref().unwrap_or(hot);
                Some((hot.data_network(), hot.last_packet(), cold.counters(hot)))
            }
        }
    }

    /// What it sent, received and lost.
    pub(super) fn counters(&self, id: SessionId) -> Option<SessionCounters> {
        match self.rest.get(id.index)? {
            Rest::Plain(c) if c.generation() == id.generation => {
                let hot = self.hot.get(id.index)?;
                let offloaded = self.offloader.as_ref().and_then(|l| l.snapshot(id.index, hot));
                Some(c.counters(offloaded.as_ref().unwrap_or(hot)))
            }
            Rest::Full(s) if s.state.generation == id.generation => Some(s.state.counters),
            _ => None,
        }
    }
}
