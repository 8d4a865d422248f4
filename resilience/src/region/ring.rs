//! The consistent hash.

use whimbrel_control::UeId;

use crate::replication::CpfId;

/// Points that each member has on a ring. With 256 no member of 3,000 rings of 2 to 16 owned more than 1.24 times its share or less than
/// 0.78 of it (the property test allows a little more), and a member costs 4 KB.
pub const VIRTUAL_NODES: u16 = 256;

/// A consistent-hash ring: a member owns the arcs that end at its points.
///
/// The same members give the same ring, in whatever order they came, on every host and in every version: the hash is fixed.
/// A member that leaves gives its arcs to the others and moves nothing else; one that comes takes only what becomes its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    members: Vec<CpfId>,
    /// The members' points on the circle of 2^64: position, index into `members`. In order.
    points: Vec<(u64, u16)>,
}

impl Ring {
    /// A ring of these members; one that is named twice counts once.
    pub fn new(members: impl IntoIterator<Item = CpfId>) -> Self {
        let mut members: Vec<CpfId> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        let mut points: Vec<(u64, u16)> = (0..=u16::MAX)
            .zip(&members)
            .flat_map(|(index, member)| (0..VIRTUAL_NODES).map(move |n| (point(*member, n), index)))
            .collect();
        points.sort_unstable();
        Self { members, points }
    }

    /// The members, each once, in the order in which they follow on a UE's position.
    pub fn walk(&self, ue: UeId) -> impl Iterator<Item = CpfId> {
        let key = position(ue);
        let from = self.points.partition_point(|(at, _)| *at < key);
        let mut met = vec![false; self.members.len()];
        self.points[from..]
            .iter()
            .chain(&self.points[..from])
            .filter(move |(_, index)| !core::mem::replace(&mut met[usize::from(*index)], true))
            .map(|(_, index)| self.members[usize::from(*index)])
            .take(self.members.len())
    }

    /// The first of them.
    pub fn first(&self, ue: UeId) -> Option<CpfId> {
        let key = position(ue);
        let at = self.points.partition_point(|(at, _)| *at < key);
        let (_, index) = self.points.get(at).or(self.points.first())?;
        Some(self.members[usize::from(*index)])
    }

    /// The members, in order of their numbers.
    pub fn members(&self) -> &[CpfId] {
        &self.members
    }
}

/// The positions of a member's points. Different ones never coincide, since [`mix`] is a bijection; nor does one with a
/// UE's position, whose numbers have another highest bit.
fn point(member: CpfId, n: u16) -> u64 {
    mix(1 << 63 | u64::from(member.0) << 16 | u64::from(n))
}

fn position(ue: UeId) -> u64 {
    mix(u64::from(ue.slot) << 16 | u64::from(ue.generation))
}

/// Which of a hundred equal shares of all UEs a UE is in; it has nothing to do with the UE's position.
pub(super) fn share(ue: UeId) -> u8 {
    (mix(1 << 62 | u64::from(ue.slot) << 16 | u64::from(ue.generation)) % 100) as u8
}

/// The `n`th value of SplitMix64 from the seed 0: it scatters numbers that follow each other, as slots and points do. No outside party
/// chooses them, so it needs no key.
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    fn ue(slot: u32, generation: u16) -> UeId {
        UeId { slot, generation }
    }

    fn ring(members: impl IntoIterator<Item = u16>) -> Ring {
        Ring::new(members.into_iter().map(CpfId))
    }

    /// What of the circle each member owns, as a multiple of its fair share.
    fn shares(ring: &Ring) -> BTreeMap<CpfId, f64> {
        let mut owned = BTreeMap::new();
        let mut before = ring.points.last().map_or(0, |(at, _)| *at);
        for (at, index) in &ring.points {
            let arc = at.wrapping_sub(before) as f64 / 2f64.powi(64);
            *owned.entry(ring.members[usize::from(*index)]).or_default() += arc * ring.members.len() as f64;
            before = *at;
        }
        owned
    }

    #[test] // the published beginning of SplitMix64 from the seed 0
    fn the_hash_is_splitmix64() {
        let published =
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f, 0xf88b_b8a8_724c_81ec];
        assert_eq!([1, 2, 3, 4].map(mix), published);
    }

    #[test] // to another outcome, every cluster that is upgraded would move its UEs
    fn a_ring_is_the_same_in_every_version() {
        let ring = ring([1, 2, 3, 4, 5]);
        let walked =
            |slot, generation| -> Vec<u16> { ring.walk(ue(slot, generation)).map(|c| c.0).collect() };
        assert_eq!(walked(0, 0), [4, 5, 3, 2, 1]);
        assert_eq!(walked(1, 0), [5, 2, 3, 1, 4]);
        assert_eq!(walked(1, 1), [4, 5, 3, 2, 1]);
        assert_eq!(walked(0xff_ffff, 0xffff), [1, 4, 5, 2, 3]);
    }

    #[test] // to another outcome, an upgrade amid a canary would move its UEs
    fn a_ues_share_is_the_same_in_every_version_and_each_has_as_many_ues() {
        assert_eq!([0, 1, 2, 3].map(|slot| share(ue(slot, 0))), [25, 93, 48, 26]);
        let mut ues = [0u32; 100];
        (0..100_000).for_each(|slot| ues[usize::from(share(ue(slot, 7)))] += 1);
        assert!(ues.iter().all(|n| (800..1200).contains(n)), "{ues:?}");
    }

    #[test]
    fn an_empty_ring_has_no_member_and_a_ring_of_one_has_one() {
        assert_eq!(ring([]).first(ue(1, 0)), None);
        assert_eq!(ring([]).walk(ue(1, 0)).count(), 0);
        assert_eq!(ring([7, 7]).walk(ue(1, 0)).collect::<Vec<_>>(), [CpfId(7)]);
    }

    proptest! {
        #[test]
        fn no_member_owns_much_more_or_less_than_its_share(members in btree_set(any::<u16>(), 1..=16)) {
            for (member, share) in shares(&ring(members)) {
                prop_assert!((0.68..1.35).contains(&share), "{member:?} has {share:.3} of its share");
            }
        }

        #[test]
        fn ues_of_consecutive_slots_spread_as_the_arcs_do(members in btree_set(any::<u16>(), 2..=8), from in 0..1u32 << 23) {
            let ring = ring(members);
            let mut ues = BTreeMap::new();
            for slot in from..from + 10_000 {
                *ues.entry(ring.first(ue(slot, 0)).unwrap()).or_insert(0.0) += ring.members.len() as f64 / 10_000.0;
            }
            for (member, share) in shares(&ring) {
                prop_assert!((ues[&member] - share).abs() < 0.2, "{member:?}: {} UEs, {share:.3} owned", ues[&member]);
            }
        }

        #[test]
        fn a_member_that_leaves_moves_only_its_own_ues(members in btree_set(any::<u16>(), 2..=16), gone in any::<prop::sample::Index>()) {
            let gone = CpfId(*gone.get(&members.iter().copied().collect::<Vec<_>>()));
            let before = ring(members);
            let after = Ring::new(before.members.iter().copied().filter(|m| *m != gone));
            for slot in 0..500 {
                let left: Vec<CpfId> = before.walk(ue(slot, 3)).filter(|m| *m != gone).collect();
                prop_assert_eq!(after.walk(ue(slot, 3)).collect::<Vec<_>>(), left);
                prop_assert_eq!(before.first(ue(slot, 3)), before.walk(ue(slot, 3)).next());
            }
        }
    }
}
