//! From a TEID that an SMF allocated to the session that has it.
//!
//! A TEID of the UPF's own names the index of its session ([`Teids`](crate::session_id::Teids)); one of an SMF names nothing, so it is
//! looked up: open addressing with linear probing, in one allocation that is made for all sessions at once. Only a UPF with
//! [`Config::smf_f_teids`](crate::Config::smf_f_teids) has such a table.

use whimbrel_ids::Teid;
use whimbrel_prefetch::prefetch;

use crate::session_id::mix;

/// Places at least: a cache line's.
const PLACES_MIN: usize = 8;

/// A place of the table: TEID above session index. No TEID is zero, so zero is vacant.
type Place = u64;

const VACANT: Place = 0;

/// TEIDs that SMFs allocated, each with the index of its session.
pub(crate) struct SmfTeids {
    /// A power of two of them, at most half of which are taken.
    places: Vec<Place>,
    taken: usize,
    /// The hash is keyed, as SMFs choose what is hashed.
    key: u64,
}

impl SmfTeids {
    /// None; with room for so many sessions of one tunnel.
    pub(crate) fn new(sessions: u32, seed: u64) -> Self {
        // Fresh pages of zeros cost nothing until they are used.
        let places = (sessions as usize * 2).next_power_of_two().max(PLACES_MIN);
        Self { places: vec![VACANT; places], taken: 0, key: mix(seed ^ 0x534d_4654) }
    }

    #[inline]
    fn home(&self, teid: u32) -> usize {
        mix(self.key ^ u64::from(teid)) as usize & (self.places.len() - 1)
    }

    #[inline]
    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    /// Begins to load what [`Self::get`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, teid: Teid) {
        if let Some(place) = self.places.get(self.home(teid.0)) {
            prefetch(place);
        }
    }

    /// Where a TEID is, or the vacant place where it would be.
    #[inline]
    fn find(&self, teid: u32) -> (usize, Option<u32>) {
        let mut at = self.home(teid);
        // Ends: half of the places are vacant.
        loop {
            let place = self.places[at];
            if place == VACANT || (place >> 32) as u32 == teid {
                return (at, (place != VACANT).then_some(place as u32));
            }
            at = self.next(at);
        }
    }

    /// The index of the session that has a TEID.
    #[inline]
    pub(crate) fn get(&self, teid: Teid) -> Option<u32> {
        self.find(teid.0).1
    }

    /// From now on this session has the TEID, even if another one had it before.
    pub(crate) fn insert(&mut self, teid: Teid, session: u32) {
        if teid.0 == 0 {
            return;
        }
        let (at, former) = self.find(teid.0);
        self.places[at] = u64::from(teid.0) << 32 | u64::from(session);
        if former.is_none() {
            self.taken += 1;
            if self.taken * 2 > self.places.len() {
                self.grow();
            }
        }
    }

    /// A session has a TEID no longer. Nothing happens if another one has it by now.
    pub(crate) fn remove(&mut self, teid: Teid, session: u32) {
        let (mut vacated, had) = self.find(teid.0);
        if teid.0 == 0 || had != Some(session) {
            return;
        }
        self.taken -= 1;
        // Those behind it move up, as far as that leads to no place before their own.
        let mut at = vacated;
        loop {
            at = self.next(at);
            let place = self.places[at];
            if place == VACANT {
                break;
            }
            let mask = self.places.len() - 1;
            let home = self.home((place >> 32) as u32);
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(vacated) & mask {
                self.places[vacated] = place;
                vacated = at;
            }
        }
        self.places[vacated] = VACANT;
    }

    /// Sessions have more tunnels than one.
    #[cold]
    fn grow(&mut self) {
        let doubled = vec![VACANT; self.places.len() * 2];
        for place in std::mem::replace(&mut self.places, doubled).into_iter().filter(|p| *p != VACANT) {
            let (at, _) = self.find((place >> 32) as u32);
            self.places[at] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test] // against an ordered map, with so few TEIDs and places that they meet, and past the room of the beginning
    fn the_table_is_a_map() {
        for seed in 0..20 {
            let (mut table, mut map) = (SmfTeids::new(4, seed), BTreeMap::new());
            let mut state = seed;
            for _ in 0..20_000 {
                state = mix(state.wrapping_add(0x9e37_79b9));
                let (teid, session) = (Teid(state as u32 % 97), (state >> 32) as u32 % 3);
                if state >> 60 < 9 {
                    table.insert(teid, session);
                    map.insert(teid, session);
                    map.remove(&Teid(0));
                } else {
                    table.remove(teid, session);
                    if map.get(&teid) == Some(&session) {
                        map.remove(&teid);
                    }
                }
                assert_eq!(table.taken, map.len());
                assert!(table.taken * 2 <= table.places.len());
            }
            for n in 0..97 {
                assert_eq!(table.get(Teid(n)), map.get(&Teid(n)).copied(), "seed {seed}, TEID {n}");
            }
            for (teid, session) in map {
                table.remove(teid, session);
            }
            assert!(table.places.iter().all(|p| *p == VACANT));
        }
    }
}
