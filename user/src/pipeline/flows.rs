//! Which PDR the packets of a flow meet: filters are asked once a flow, and the answer is kept (Synergy §III-B.2).
//!
//! In two levels. The first is small enough for a core's second cache and holds the flows that were used last; the second is large, in
//! memory. An entry comes into the first with one of the further packets of its flow that pass: what waits for a UE, is dropped, or
//! comes once (a scan of ports) drives nothing out of it. An entry says which rule, and under which rules: each session has a number
//! that no rules had before, so that a change of rules invalidates its entries without a search. Entries count nothing, so one
//! that gives way costs the next packet of its flow a look at the filters, and nothing else.

use std::net::IpAddr;

use whimbrel_ids::Qfi;
use whimbrel_pages::{Line, Pages};
use whimbrel_prefetch::prefetch;

use super::stages::Ingress;
use crate::rules::{Compared, Flow};
use crate::session_id::mix;

/// Places among which a flow may stand, of each level.
const WAYS: usize = 8;
/// Bits of a place among [`WAYS`].
const WAY_BITS: u32 = WAYS.trailing_zeros();
/// One in so many packets whose flow the second level knows takes it into the first: busy flows come there soon, and where there are more
/// than it can hold, the way there and out again is gone seldom.
const TAKEN: u32 = 4;
/// The last word's bits that are the answer.
const ANSWER: u64 = 0xff;

/// A flow of a session under certain rules: all that they compare of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowKey([u64; 8]);

impl FlowKey {
    /// Of rules with this number, of a flow known by names of that word. What filters do not compare makes no flow another.
    #[inline]
    pub(super) fn new(
        rules_number: u64,
        compared: Compared,
        ingress: Ingress,
        flow: &Flow,
        names: u32,
    ) -> Self {
        let wide = |a: IpAddr| match a {
            IpAddr::V4(a) => (0, u64::from(a.to_bits())),
            IpAddr::V6(a) => ((a.to_bits() >> 64) as u64, a.to_bits() as u64),
        };
        let (remote, local) = (wide(flow.remote), wide(flow.local));
        let (remote_port, local_port) = flow.ports.unwrap_or_default();
        let tos = if compared.tos { flow.tos } else { 0 };
        let flow_label = if compared.flow_label { flow.flow_label } else { 0 };
        let spi = flow.spi.filter(|_| compared.spi);
        let qfi = ingress.qfi().filter(|_| compared.qfi).map_or(u8::MAX, Qfi::value);
        let is_there = u8::from(flow.remote.is_ipv6())
            | u8::from(flow.ports.is_some()) << 1
            | u8::from(spi.is_some()) << 2;
        let ports = u64::from(remote_port) << 48 | u64::from(local_port) << 32;
        let octets = u32::from_be_bytes([flow.protocol, tos, qfi, is_there]);
        Self([
            remote.0,
            remote.1,
            local.0,
            local.1,
            ports | u64::from(octets),
            u64::from(flow_label) << 32 | u64::from(spi.unwrap_or(0)),
            u64::from(names) << 32 | u64::from(ingress.teid.0),
            rules_number << ANSWER.count_ones(),
        ])
    }
}

/// Of a key: its lowest bits are the set, its highest the tag.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hash(u64);

impl Hash {
    fn tag(self) -> u16 {
        (self.0 >> (u64::BITS - u16::BITS + WAY_BITS)) as u16
    }
}

/// The ways of a set by last use, the last used first: a tag and the way each.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Set([u16; WAYS]);

impl Default for Set {
    fn default() -> Self {
        Self(std::array::from_fn(|way| way as u16))
    }
}

impl Set {
    /// The places in the order whose tag is this, as bits: all are compared at once.
    #[inline]
    fn of_tag(&self, tag: u16) -> u32 {
        let bit = |(order, word): (usize, &u16)| u32::from(word >> WAY_BITS == tag) << order;
        self.0.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
    }

    #[inline]
    fn way(&self, order: usize) -> usize {
        usize::from(self.0[order % WAYS]) % WAYS
    }

    /// That place comes to the front, those before it one behind.
    #[inline]
    fn used(&mut self, order: usize) {
        let word = self.0[order % WAYS];
        let before = self.0;
        for n in 1..WAYS {
            self.0[n] = if n <= order { before[n - 1] } else { before[n] };
        }
        self.0[0] = word;
    }
}

/// Flows in sets of [`WAYS`].
struct FlowSets {
    sets: Pages<Set>,
    entries: Pages<Line>,
}

impl FlowSets {
    /// For as many flows, or somewhat more.
    fn new(flows: usize) -> Self {
        let sets = flows.div_ceil(WAYS).next_power_of_two();
        Self { sets: Pages::new(sets), entries: Pages::lines(sets * WAYS) }
    }

    fn set(&self, hash: Hash) -> usize {
        hash.0 as usize & (self.sets.len() - 1)
    }

    /// Where an entry may be, the last used first: its place in the order of its set, and among all.
    #[inline]
    fn candidates(&self, hash: Hash) -> impl Iterator<Item = (usize, usize)> {
        let at = self.set(hash);
        let set = self.sets[at];
        let mut left = set.of_tag(hash.tag());
        std::iter::from_fn(move || {
            let order = left.trailing_zeros() as usize;
            (left != 0).then(|| {
                left &= left - 1;
                (order, at * WAYS + set.way(order))
            })
        })
    }

    /// The place of an entry in the order of its set, and its answer.
    #[inline]
    fn find(&self, key: &FlowKey, hash: Hash) -> Option<(usize, u8)> {
        self.candidates(hash).find_map(|(order, at)| {
            let Line(words) = &self.entries[at];
            let ([compared @ .., last], [same @ .., number]) = (words, &key.0);
            let differ = compared.iter().zip(same).fold(0, |differ, (a, b)| differ | (a ^ b));
            (differ | (last ^ number) & !ANSWER == 0).then_some((order, (last & ANSWER) as u8))
        })
    }

    /// The entry of that order was used.
    #[inline]
    fn used(&mut self, hash: Hash, order: usize) {
        let at = self.set(hash);
        if order > 0 {
            self.sets[at].used(order);
        }
    }

    /// Takes in a flow that it does not have, in the place of the one whose use is longest ago.
    fn take(&mut self, key: &FlowKey, hash: Hash, answer: u8) {
        let at = self.set(hash);
        let set = &mut self.sets[at];
        let way = set.way(WAYS - 1);
        set.0[WAYS - 1] = hash.tag() << WAY_BITS | way as u16;
        let mut words = key.0;
        words[7] |= u64::from(answer);
        self.entries[at * WAYS + way] = Line(words);
        self.sets[at].used(WAYS - 1);
    }
}

/// The level that knew which rule a packet meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The first level.
    First,
    /// The second level.
    Second,
}

/// Both levels of a pipeline.
pub(super) struct Flows {
    secret: [u64; 8],
    first: Option<FlowSets>,
    second: FlowSets,
    /// Counts packets up to [`TAKEN`].
    passed: u32,
}

impl Flows {
    /// For so many flows; `None` where the second level is to have none.
    pub(super) fn new(first: u32, second: u32, seed: u64) -> Option<Self> {
        let level = |flows: u32| (flows > 0).then(|| FlowSets::new(flows as usize));
        Some(Self {
            // UEs and servers choose what is hashed.
            secret: std::array::from_fn(|n| mix(seed ^ mix(n as u64))),
            first: level(first),
            second: level(second)?,
            passed: 0,
        })
    }

    /// Four products that do not wait for each other, and one of all.
    #[inline]
    pub(super) fn hash(&self, key: &FlowKey) -> Hash {
        let product = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| key.0[n] ^ self.secret[n]);
        Hash(product(product(a, b) ^ product(c, d) ^ product(e, f) ^ product(g, h), self.secret[0] | 1))
    }

    fn levels(&self) -> impl Iterator<Item = &FlowSets> {
        self.first.iter().chain([&self.second])
    }

    /// Begins to load where the flow may stand.
    #[inline]
    pub(super) fn prefetch_sets(&self, hash: Hash) {
        self.levels().for_each(|l| prefetch(&l.sets[l.set(hash)]));
    }

    /// Begins to load the flow, when its sets are there.
    #[inline]
    pub(super) fn prefetch_entry(&self, hash: Hash) {
        if let Some((level, at)) =
            self.levels().find_map(|l| l.candidates(hash).next().map(|(_, at)| (l, at)))
        {
            prefetch(&level.entries[at]);
        }
    }

    /// The answer of a flow, and the level that had it. It counts as used if packets with that answer pass.
    #[inline]
    pub(super) fn find(
        &mut self,
        key: &FlowKey,
        hash: Hash,
        passes: impl Fn(u8) -> bool,
    ) -> Option<(u8, Known)> {
        if let Some(first) = &mut self.first
            && let Some((order, answer)) = first.find(key, hash)
        {
            if passes(answer) {
                first.used(hash, order);
            }
            return Some((answer, Known::First));
        }
        let (order, answer) = self.second.find(key, hash)?;
        if passes(answer) {
            self.second.used(hash, order);
            self.passed = (self.passed + 1) % TAKEN;
            if let Some(first) = self.first.as_mut().filter(|_| self.passed == 0) {
                first.take(key, hash, answer);
            }
        }
        Some((answer, Known::Second))
    }

    /// Keeps the answer of a flow that [`Self::find`] did not know.
    pub(super) fn keep(&mut self, key: &FlowKey, hash: Hash, answer: u8) {
        self.second.take(key, hash, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use whimbrel_gtpu::PduSessionInformation;
    use whimbrel_ids::Teid;

    const ALL: Compared =
        Compared { named: true, ports: true, worth: true, tos: true, flow_label: true, spi: true, qfi: true };

    fn flow(n: u32) -> Flow {
        Flow {
            remote: Ipv4Addr::from_bits(n).into(),
            local: Ipv4Addr::new(10, 0, 0, 1).into(),
            ports: Some((1, 2)),
            protocol: 17,
            tos: 3,
            flow_label: 4,
            spi: Some(5),
        }
    }

    fn from_ue(qfi: u8) -> Ingress {
        let container = Qfi::new(qfi).map(|qfi| PduSessionInformation::Ul { qfi });
        Ingress { teid: Teid(7), container }
    }

    fn key(number: u64, n: u32) -> FlowKey {
        FlowKey::new(number, ALL, Ingress::NETWORK, &flow(n), 0)
    }

    fn find(flows: &mut Flows, key: &FlowKey, passes: bool) -> Option<(u8, Known)> {
        let hash = flows.hash(key);
        flows.find(key, hash, |_| passes)
    }

    fn keep(flows: &mut Flows, key: &FlowKey, answer: u8) {
        let hash = flows.hash(key);
        flows.keep(key, hash, answer);
    }

    #[test]
    fn whatever_is_compared_makes_another_flow_and_nothing_else_does() {
        let v6 = Ipv6Addr::from_bits(u128::from(flow(1).remote.is_ipv4()) | 1);
        let base = flow(1);
        let others = [
            Flow { remote: v6.into(), ..base },
            Flow { local: Ipv4Addr::new(10, 0, 0, 2).into(), ..base },
            Flow { ports: Some((2, 1)), ..base },
            Flow { ports: None, ..base },
            Flow { ports: Some((0, 0)), ..base },
            Flow { protocol: 6, ..base },
            Flow { tos: 0, ..base },
            Flow { flow_label: 0, ..base },
            Flow { spi: None, ..base },
            Flow { spi: Some(0), ..base },
        ];
        let mut all: Vec<_> = others.iter().map(|f| FlowKey::new(1, ALL, Ingress::NETWORK, f, 0)).collect();
        all.extend([
            key(1, 1),
            key(2, 1),
            FlowKey::new(1, ALL, from_ue(1), &base, 0),
            FlowKey::new(1, ALL, from_ue(1), &base, 1),
        ]);
        all.extend([2, 64].map(|qfi| FlowKey::new(1, ALL, from_ue(qfi), &base, 0)));
        for (n, a) in all.iter().enumerate() {
            assert!(!all[..n].contains(a), "{n}");
        }
        let ends = Compared { worth: true, ..Compared::default() };
        let of = |f: &Flow, qfi| FlowKey::new(1, ends, from_ue(qfi), f, 0);
        let same = Flow { tos: 0, flow_label: 0, spi: None, ..base };
        assert_eq!(of(&base, 1), of(&same, 2));
    }

    /// As many packets of it as bring a flow that stands into the first level.
    fn use_often(flows: &mut Flows, key: &FlowKey) {
        (0..TAKEN).for_each(|_| assert!(find(flows, key, true).is_some()));
    }

    #[test]
    fn a_flow_comes_into_the_first_level_with_further_packets_that_pass() {
        let flows = &mut Flows::new(8, 64, 1).unwrap();
        let one = key(1, 1);
        assert_eq!(find(flows, &one, true), None);
        keep(flows, &one, 9);
        for _ in 0..2 * TAKEN {
            assert_eq!(find(flows, &one, false), Some((9, Known::Second)), "held");
        }
        for _ in 0..TAKEN {
            assert_eq!(find(flows, &one, true), Some((9, Known::Second)));
        }
        assert_eq!(find(flows, &one, true), Some((9, Known::First)));
        assert_eq!(find(flows, &key(2, 1), true), None, "under other rules");
    }

    #[test]
    fn what_is_held_or_comes_once_drives_nothing_out_of_the_first_level() {
        let flows = &mut Flows::new(8, 1 << 12, 1).unwrap();
        for n in 0..8 {
            keep(flows, &key(1, n), 1);
            use_often(flows, &key(1, n));
        }
        for n in 8..1_000 {
            keep(flows, &key(1, n), 1);
            find(flows, &key(1, n), false);
        }
        // The one that was used least lately gives way to the first that passes.
        find(flows, &key(1, 0), true);
        use_often(flows, &key(1, 8));
        let first = |flows: &mut Flows, n| find(flows, &key(1, n), false).map(|(_, known)| known);
        assert_eq!(first(flows, 1), Some(Known::Second));
        for n in [0, 2, 3, 4, 5, 6, 7, 8] {
            assert_eq!(first(flows, n), Some(Known::First), "{n}");
        }
    }

    #[test]
    fn of_more_flows_than_there_are_places_each_is_answered_rightly_or_not_at_all() {
        let flows = &mut Flows::new(16, 256, 1).unwrap();
        let mut known = 0;
        for round in 0..20_000u32 {
            let n = (mix(round.into()) % 1024) as u32;
            match find(flows, &key(1, n), !n.is_multiple_of(3)) {
                Some((answer, _)) => {
                    assert_eq!(answer, n as u8);
                    known += 1;
                }
                None => keep(flows, &key(1, n), n as u8),
            }
        }
        assert!((4_000..6_000).contains(&known), "a quarter of them stand: {known}");
    }
}
