//! The sessions as the control side knows them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use whimbrel_ids::{Instant, Seid, Teid};
use whimbrel_pfcp::ie::FSeid;

use super::admission::PromisedRates;
use crate::config::Config;
use crate::pipeline::shard_of;
use crate::pool::{NumberPool, POOL_RESERVED_FIRST, POOL_RESERVED_FIRST_IPV6, Pools};
use crate::rules::{NetworkPools, SessionRules, upper};
use crate::session_id::{SessionId, Teids, mix};
use crate::smf_f_teids::SmfTeids;

/// Former rules that wait until no packet thread uses them: with a thousand filters each, two hundred megabytes.
const RETIRED_MAX: usize = 1_024;
/// Places that are left free before one is used again, besides a part of those that are taken. An address follows its place, and the
/// UE behind an address should not change faster than peers forget.
const REST_MIN: usize = 1_024;
/// So that tables grow by no more than an eighth.
const REST_PART: usize = 8;
/// Of those looked at with each input: more than an input retires.
const RETIRED_AT_ONCE: usize = 4;

/// A session of an SMF.
pub(super) struct N4Session {
    pub(super) rules: Arc<SessionRules>,
    pub(super) association: u32,
    pub(super) cp_f_seid: FSeid,
    /// What the rules will be when the UE has moved, as predicted, and since when.
    pub(super) predicted: Option<(Instant, Arc<SessionRules>)>,
    /// It stands for a predicted UE, until then unless the SMF confirms it.
    pub(super) provisional_until: Option<Instant>,
    generation: u32,
}

impl N4Session {
    /// Which of the sessions that stood at its place it is.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// Where requests about it go: the SMF's end of it.
    pub(super) fn cp_address(&self) -> Option<IpAddr> {
        address(&self.cp_f_seid)
    }
}

/// All sessions, by place, and by the SMF's name of them.
pub(super) struct Sessions {
    slots: Vec<Option<Box<N4Session>>>,
    /// The generation that a place's next session gets. Kept apart: it outlives the session.
    generations: Vec<u32>,
    /// Free places of each shard.
    free: Box<[VecDeque<u32>]>,
    /// The shard that gets the next session.
    turn: u8,
    by_cp_seid: BTreeMap<(u32, Seid, Option<IpAddr>), u32>,
    pub(super) pools: Vec<NetworkPools>,
    /// Their tunnels, where SMFs allocate them.
    pub(super) smf_teids: Option<SmfTeids>,
    retired: RetiredRules,
    sessions_max: u32,
    seed: u64,
    /// To flows of guaranteed rate.
    promised: PromisedRates,
    len: usize,
    /// Places that have changed since they were taken last, where a state is kept.
    touched: Option<Vec<u32>>,
}

/// A place, and the session there.
pub(super) struct SessionPlace<'a> {
    pub(super) generation: u32,
    pub(super) session: Option<&'a N4Session>,
}

/// A session of a former process.
pub(super) struct FormerSession {
    pub(super) association: u32,
    pub(super) cp_f_seid: FSeid,
    pub(super) provisional_until: Option<Instant>,
    pub(super) rules: Arc<SessionRules>,
    pub(super) predicted: Option<(Instant, Arc<SessionRules>)>,
}

impl Sessions {
    pub(super) fn new(config: &Config, run: u64) -> Self {
        let pools = config.data_networks.iter().map(|dn| {
            let ipv4 = dn.all_ipv4_pools().map(|p| {
                // Nor the broadcast address.
                let first = u64::from(p.first()) + u64::from(POOL_RESERVED_FIRST);
                NumberPool::new(first, p.numbers().saturating_sub(u64::from(POOL_RESERVED_FIRST) + 1))
            });
            let begins = u64::from(POOL_RESERVED_FIRST_IPV6);
            let ipv6 = dn.all_ipv6_pools().map(|p| NumberPool::new(p.first() + begins, p.numbers() - begins));
            NetworkPools { ipv4: Pools::new(ipv4.collect()), ipv6: Pools::new(ipv6.collect()) }
        });
        Self {
            slots: Vec::new(),
            generations: Vec::new(),
            free: vec![VecDeque::new(); config.shards.into()].into(),
            turn: 0,
            by_cp_seid: BTreeMap::new(),
            pools: pools.collect(),
            smf_teids: config.smf_f_teids.then(|| SmfTeids::new(config.sessions_max, config.seed)),
            retired: RetiredRules::default(),
            sessions_max: config.sessions_max,
            seed: run,
            len: 0,
            promised: PromisedRates::default(),
            touched: None,
        }
    }

    /// From now on places that change are noted.
    pub(super) fn keep_touched(&mut self) {
        self.touched = Some(Vec::new());
    }

    /// The places that have changed since the last call.
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn touch(&mut self, index: u32) {
        self.touched.iter_mut().for_each(|t| t.push(index));
    }

    /// A place that was made.
    pub(super) fn place(&self, index: u32) -> Option<SessionPlace<'_>> {
        let session = self.slots.get(index as usize)?.as_deref();
        let generation = session.map_or(self.generations[index as usize], |s| s.generation);
        Some(SessionPlace { generation, session })
    }

    /// Seats the sessions of a former process at their places; the others are free, those that were freed first first. A session whose address
    /// another one has is left out.
    pub(super) fn restore(&mut self, places: Vec<(SessionId, Option<FormerSession>)>) {
        let mut vacated = Vec::new();
        for (id, kept) in places {
            if !kept.is_some_and(|kept| self.seat(id, kept)) {
                self.vacate(id);
                vacated.push(id.index);
            }
        }
        self.set_free(vacated);
    }

    /// Seats a session of another process at its place, which is vacant; false if another one has its address or a tunnel of it. [`Self::set_free`] follows
    /// with the places that are free.
    pub(super) fn seat(&mut self, id: SessionId, kept: FormerSession) -> bool {
        let has = |teids: &SmfTeids| kept.rules.tunnels().any(|t| teids.get(t).is_some());
        if self.smf_teids.as_ref().is_some_and(has) || !self.take_addresses(&kept.rules) {
            return false;
        }
        self.take_tunnels(id.index, &kept.rules);
        self.make_until(id.index);
        self.generations[id.index as usize] = id.generation;
        let FormerSession { association, cp_f_seid, provisional_until, rules, predicted } = kept;
        self.promised = self.promised.with(PromisedRates::of(&rules));
        self.by_cp_seid.insert(key(association, &cp_f_seid), id.index);
        self.len += 1;
        let generation = id.generation;
        let session = N4Session { rules, association, cp_f_seid, predicted, provisional_until, generation };
        self.slots[id.index as usize] = Some(Box::new(session));
        true
    }

    /// Takes the session of another process away that [`Self::seat`] has seated.
    pub(super) fn unseat(&mut self, index: u32) -> Option<(SessionId, Box<N4Session>)> {
        let s = self.slots.get_mut(index as usize)?.take()?;
        self.by_cp_seid.remove(&key(s.association, &s.cp_f_seid));
        self.len -= 1;
        self.give_back(&s.rules);
        self.give_back_tunnels(index, &s.rules);
        self.promised = self.promised.without(PromisedRates::of(&s.rules));
        Some((SessionId { index, generation: s.generation }, s))
    }

    /// A vacant place of another process, and the generation of its next session.
    pub(super) fn vacate(&mut self, id: SessionId) {
        self.make_until(id.index);
        self.generations[id.index as usize] = id.generation;
    }

    fn make_until(&mut self, index: u32) {
        for made in self.slots.len() as u32..=index {
            self.slots.push(None);
            self.generations.push(self.first_generation(made));
        }
    }

    /// The places without a session are free: first those that never had one, then these, in the order in which they were freed.
    pub(super) fn set_free(&mut self, vacated: Vec<u32>) {
        let known: BTreeSet<u32> = vacated.iter().copied().collect();
        let is_free = |i: &u32| self.slots[*i as usize].is_none();
        let never = (0..self.slots.len() as u32).filter(|i| is_free(i) && !known.contains(i));
        let all: Vec<u32> = never.chain(vacated.iter().copied()).collect();
        self.free.iter_mut().for_each(VecDeque::clear);
        for index in all {
            self.free_of(index).push_back(index);
        }
    }

    /// Takes the addresses of rules from their pools; none if one of them is taken.
    fn take_addresses(&mut self, rules: &SessionRules) -> bool {
        let Some(pools) = self.pools.get_mut(usize::from(rules.data_network.0)) else { return false };
        let ipv4 = rules.ue_ipv4.map(|a| u64::from(a.to_bits()));
        if ipv4.is_some_and(|n| !pools.ipv4.take(n)) {
            return false;
        }
        let fits = rules.ue_ipv6.is_none_or(|a| pools.ipv6.take(upper(a)));
        if !fits && let Some(n) = ipv4 {
            pools.ipv4.give_back(n);
        }
        fits
    }

    /// Notes the tunnels of rules as a session's, where SMFs allocate them.
    fn take_tunnels(&mut self, index: u32, rules: &SessionRules) {
        if let Some(teids) = &mut self.smf_teids {
            rules.tunnels().for_each(|t| teids.insert(t, index));
        }
    }

    /// The tunnels of rules are a session's no longer.
    fn give_back_tunnels(&mut self, index: u32, rules: &SessionRules) {
        if let Some(teids) = &mut self.smf_teids {
            rules.tunnels().for_each(|t| teids.remove(t, index));
        }
    }

    /// The session of a local tunnel, as far as the tunnel names one.
    pub(super) fn of_tunnel(&self, teids: &Teids, teid: Teid) -> Option<&N4Session> {
        let index = match &self.smf_teids {
            Some(given) => given.get(teid)?,
            None => teids.index_of(teid),
        };
        self.at(index)
    }

    fn first_generation(&self, index: u32) -> u32 {
        mix(self.seed ^ u64::from(index) << 32) as u32
    }

    /// What all sessions together are promised.
    pub(super) fn promised(&self) -> PromisedRates {
        self.promised
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A place for a new session, of the first shard if it is to be; `None` if all are taken. It stays free until [`Self::put`].
    pub(super) fn vacant(&mut self, of_first: bool) -> Option<SessionId> {
        let shards = self.shards();
        let index = if of_first {
            self.vacant_of(0)?
        } else {
            self.turn = shard_of(u64::from(self.turn) + 1, shards);
            let from = self.turn;
            (0..shards).find_map(|n| self.vacant_of(shard_of(u64::from(from + n), shards)))?
        };
        Some(SessionId { index, generation: self.generations[index as usize] })
    }

    /// The place of a session that is restored with a tunnel that it had; `None` if another one has it, or there is no such place.
    pub(super) fn vacant_with(&mut self, teids: &Teids, teid: Teid) -> Option<SessionId> {
        let index = teids.index_of(teid);
        if index >= self.sessions_max {
            return None;
        }
        while self.slots.len() <= index as usize {
            let made = self.slots.len() as u32;
            self.slots.push(None);
            self.generations.push(self.first_generation(made));
            self.free_of(made).push_back(made);
        }
        let generation = teids.generation_of(teid, self.generations[index as usize]);
        self.slots[index as usize].is_none().then_some(SessionId { index, generation })
    }

    fn shards(&self) -> u8 {
        self.free.len() as u8
    }

    /// A free place of a shard: the one that has been free for longest, or a new one while few are free. Places are made in order, so those
    /// of other shards may come to be beside it.
    fn vacant_of(&mut self, shard: u8) -> Option<u32> {
        let rest = REST_MIN.max(self.len / REST_PART) / self.free.len();
        loop {
            let free = &self.free[usize::from(shard)];
            let made = self.slots.len() as u32 >= self.sessions_max;
            if free.len() > rest || made {
                return free.front().copied();
            }
            let index = self.slots.len() as u32;
            self.slots.push(None);
            self.generations.push(self.first_generation(index));
            self.free_of(index).push_back(index);
        }
    }

    fn free_of(&mut self, index: u32) -> &mut VecDeque<u32> {
        let shard = shard_of(index.into(), self.shards());
        &mut self.free[usize::from(shard)]
    }

    /// The session at a place.
    pub(super) fn at(&self, index: u32) -> Option<&N4Session> {
        self.slots.get(index as usize)?.as_deref()
    }

    pub(super) fn get(&self, id: SessionId) -> Option<&N4Session> {
        self.slots.get(id.index as usize)?.as_deref().filter(|s| s.generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut N4Session> {
        self.touch(id.index);
        self.slots.get_mut(id.index as usize)?.as_deref_mut().filter(|s| s.generation == id.generation)
    }

    /// The session that an SMF already calls so.
    pub(super) fn of_cp(&self, association: u32, cp: &FSeid) -> Option<SessionId> {
        let index = *self.by_cp_seid.get(&key(association, cp))?;
        let generation = self.slots.get(index as usize)?.as_ref()?.generation;
        Some(SessionId { index, generation })
    }

    /// Seats a session at the vacant place, or replaces the one that is there.
    pub(super) fn put(
        &mut self,
        id: SessionId,
        association: u32,
        cp_f_seid: FSeid,
        rules: Arc<SessionRules>,
    ) {
        if self.slots.len() <= id.index as usize {
            return;
        }
        if let Some(old) = self.slots[id.index as usize].take() {
            self.by_cp_seid.remove(&key(old.association, &old.cp_f_seid));
            self.promised = self.promised.without(PromisedRates::of(&old.rules));
            self.give_back_tunnels(id.index, &old.rules);
            self.retired.put(old.rules);
        } else {
            // `vacant` gave the front of the list, and nothing came between; a restored session takes its own place.
            let free = self.free_of(id.index);
            if free.front() == Some(&id.index) {
                free.pop_front();
            } else {
                free.retain(|index| *index != id.index);
            }
            self.generations[id.index as usize] = id.generation;
            self.len += 1;
        }
        self.touch(id.index);
        self.promised = self.promised.with(PromisedRates::of(&rules));
        self.take_tunnels(id.index, &rules);
        self.slots[id.index as usize] = Some(Box::new(N4Session {
            rules,
            association,
            cp_f_seid,
            predicted: None,
            provisional_until: None,
            generation: id.generation,
        }));
        self.by_cp_seid.insert(key(association, &cp_f_seid), id.index);
    }

    /// Gives a session other rules.
    pub(super) fn set_rules(&mut self, id: SessionId, rules: Arc<SessionRules>) {
        if let Some(s) = self.get_mut(id) {
            let now = PromisedRates::of(&rules);
            let former = std::mem::replace(&mut s.rules, Arc::clone(&rules));
            self.promised = self.promised.without(PromisedRates::of(&former)).with(now);
            self.give_back_tunnels(id.index, &former);
            self.take_tunnels(id.index, &rules);
            self.retired.put(former);
        }
    }

    /// Frees former rules that no packet thread has any more.
    pub(super) fn free_retired(&mut self) {
        self.retired.free();
    }

    /// The SMF's end of a session has moved, to this association.
    pub(super) fn rename(&mut self, id: SessionId, association: u32, cp_f_seid: FSeid) {
        let Some(s) = self.get_mut(id) else { return };
        let before = (std::mem::replace(&mut s.association, association), s.cp_f_seid);
        s.cp_f_seid = cp_f_seid;
        self.by_cp_seid.remove(&key(before.0, &before.1));
        self.by_cp_seid.insert(key(association, &cp_f_seid), id.index);
    }

    /// Ends a session; its addresses are free again.
    pub(super) fn remove(&mut self, id: SessionId) -> Option<Box<N4Session>> {
        self.get(id)?;
        self.touch(id.index);
        let s = self.slots.get_mut(id.index as usize)?.take()?;
        self.by_cp_seid.remove(&key(s.association, &s.cp_f_seid));
        let generation = &mut self.generations[id.index as usize];
        // Names of tunnels count on from there: a session that had none has a SEID of its own all the same.
        *generation = generation.wrapping_add(u32::from(s.rules.tunnels_given).max(1));
        self.free_of(id.index).push_back(id.index);
        self.len -= 1;
        self.give_back(&s.rules);
        self.give_back_tunnels(id.index, &s.rules);
        self.promised = self.promised.without(PromisedRates::of(&s.rules));
        self.retired.put(Arc::clone(&s.rules));
        Some(s)
    }

    fn give_back(&mut self, rules: &SessionRules) {
        if let Some(pools) = self.pools.get_mut(usize::from(rules.data_network.0)) {
            if let Some(a) = rules.ue_ipv4 {
                pools.ipv4.give_back(u64::from(a.to_bits()));
            }
            if let Some(a) = rules.ue_ipv6 {
                pools.ipv6.give_back(upper(a));
            }
        }
    }

    /// All sessions with their identities.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionId, &N4Session)> {
        let all = self.slots.iter().enumerate();
        all.filter_map(|(i, s)| {
            let s = s.as_deref()?;
            Some((SessionId { index: i as u32, generation: s.generation }, s))
        })
    }

    /// The sessions of one association.
    pub(super) fn of(&self, association: u32) -> Vec<SessionId> {
        let all = self.slots.iter().enumerate();
        let of =
            all.filter_map(|(i, s)| s.as_deref().filter(|s| s.association == association).map(|s| (i, s)));
        of.map(|(i, s)| SessionId { index: i as u32, generation: s.generation }).collect()
    }
}

/// Former rules with many filters. The last owner frees them, at some ten nanoseconds a filter; that must not be a packet thread.
#[derive(Default)]
struct RetiredRules(VecDeque<Arc<SessionRules>>);

impl RetiredRules {
    /// Keeps them if they are long to free. Beyond the bound a packet thread may be the last to have the oldest after all.
    fn put(&mut self, rules: Arc<SessionRules>) {
        if rules.compared.worth {
            self.0.truncate(RETIRED_MAX - 1);
            self.0.push_front(rules);
        }
    }

    /// Frees some of the oldest, as far as no packet thread has them; the others are looked at another time.
    fn free(&mut self) {
        for _ in 0..self.0.len().min(RETIRED_AT_ONCE) {
            if let Some(rules) = self.0.pop_back().filter(|rules| Arc::strong_count(rules) > 1) {
                self.0.push_front(rules);
            }
        }
    }
}

fn key(association: u32, cp: &FSeid) -> (u32, Seid, Option<IpAddr>) {
    (association, cp.seid, address(cp))
}

pub(super) fn address(cp: &FSeid) -> Option<IpAddr> {
    cp.ipv4.map(IpAddr::V4).or(cp.ipv6.map(IpAddr::V6))
}
