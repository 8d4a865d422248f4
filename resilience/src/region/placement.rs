//! Which CPFs a UE gets.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use whimbrel_control::UeId;
use whimbrel_ids::SNssai;

use super::{Canary, CpfLoads, GnbRegions, Region, Ring, UeKind};
use crate::CodeVersion;
use crate::replication::CpfId;

/// A UE's CPFs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The CPF that serves the UE.
    pub primary: CpfId,
    /// Hold its state.
    pub backups: Vec<CpfId>,
    /// Backups that it lacks for want of CPFs.
    pub missing: usize,
}

/// The rings of a CTA's regions. A draining CPF is on none of them.
///
/// Neutrino §4.3 takes the backups that follow on the level-2 ring. Here regions that have none of the UE's backups yet come first:
/// two backups seldom fail together then, and more of the regions that a UE may move to hold its state. Before all that come those that run
/// the code of the UE's primary: no other can run its log again.
///
/// Where there are too few:
///
/// | there is | the UE gets |
/// | --- | --- |
/// | no CPF in the larger region but the region's own | backups from the level-1 ring: they fail with the region, not with the primary |
/// | fewer CPFs than the configured backups, in all | those, and the missing ones are reported |
/// | one CPF | no backup: if it is lost, its UEs register again |
/// | no CPF in the region | a primary from the level-2 ring: further away, but served |
/// | no CPF in the larger region | one of another region of the CTA's, and backups there |
/// | no CPF | none: it is refused as in congestion |
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "CpfTable", into = "CpfTable")]
pub struct Rings {
    home: Region,
    areas: GnbRegions,
    /// Of the home region, and of those that gNBs are in.
    levels: BTreeMap<Region, Levels>,
    /// All on the rings.
    members: BTreeMap<CpfId, Member>,
    everywhere: Ring,
    backups: usize,
    /// CPFs of another code version that are on the rings too, for some UEs.
    canary: Option<Box<Canary>>,
    /// Slices whose UEs have CPFs of their own, in order of preference.
    slices: Vec<SNssai>,
}

/// A CPF on the rings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where it is.
    pub region: Region,
    /// The code that it runs.
    pub code: CodeVersion,
    /// The slice whose UEs it serves; `None`: it serves those of no such slice.
    pub slice: Option<SNssai>,
}

/// The rings of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Levels {
    level1: Ring,
    level2: Ring,
    /// Regions that the level-2 ring's members are in.
    regions: usize,
}

/// What rings are made of, as it travels.
#[derive(Serialize, Deserialize)]
struct CpfTable {
    home: Region,
    areas: GnbRegions,
    members: BTreeMap<CpfId, Member>,
    backups: usize,
    canary: Option<Canary>,
    slices: Vec<SNssai>,
}

impl From<Rings> for CpfTable {
    fn from(Rings { home, areas, members, backups, canary, slices, .. }: Rings) -> Self {
        Self { home, areas, members, backups, canary: canary.map(|canary| *canary), slices }
    }
}

impl From<CpfTable> for Rings {
    fn from(CpfTable { home, areas, members, backups, canary, slices }: CpfTable) -> Self {
        Self::new(home, areas, members, backups).with_canary(canary).with_slices(slices)
    }
}

/// Whether CPFs of the region `other` take UEs of this one.
fn takes(region: &Region, other: &Region) -> bool {
    region == other || region.wider_holds(other)
}

impl Levels {
    fn new(region: &Region, members: &BTreeMap<CpfId, Member>) -> Self {
        let regions = || members.iter().map(|(cpf, member)| (cpf, &member.region));
        let within = || regions().filter(|(_, other)| takes(region, other));
        let ring = |own: bool| {
            let of_ring = within().filter(move |(_, other)| (*other == region) == own);
            Ring::new(of_ring.map(|(cpf, _)| *cpf))
        };
        let others = within().map(|(_, other)| other).filter(|other| *other != region);
        let regions = others.collect::<BTreeSet<_>>().len();
        Self { level1: ring(true), level2: ring(false), regions }
    }
}

impl Rings {
    /// Of these CPFs, which take UEs; those that are in no larger region of the CTA's are left out.
    pub(super) fn new(
        home: Region,
        areas: GnbRegions,
        mut members: BTreeMap<CpfId, Member>,
        backups: usize,
    ) -> Self {
        let own: BTreeSet<&Region> = areas.regions().chain([&home]).collect();
        members.retain(|_, member| own.iter().any(|region| takes(region, &member.region)));
        let levels = own.iter().map(|region| ((*region).clone(), Levels::new(region, &members))).collect();
        let everywhere = Ring::new(members.keys().copied());
        Self { home, areas, levels, members, everywhere, backups, canary: None, slices: Vec::new() }
    }

    /// The same with a canary.
    pub fn with_canary(self, canary: Option<Canary>) -> Self {
        Self { canary: canary.map(Box::new), ..self }
    }

    /// The same with slices whose UEs have CPFs of their own, in order of preference.
    pub fn with_slices(self, slices: Vec<SNssai>) -> Self {
        Self { slices, ..self }
    }

    /// The canary, if one runs.
    pub fn canary(&self) -> Option<&Canary> {
        self.canary.as_deref()
    }

    /// The slices whose UEs have CPFs of their own.
    pub fn slices(&self) -> &[SNssai] {
        &self.slices
    }

    /// Whether CPFs are of several kinds, so that a UE may have to move to another one.
    pub fn has_kinds(&self) -> bool {
        self.canary.is_some() || !self.slices.is_empty()
    }

    /// The region of gNBs without a configured one.
    pub fn home(&self) -> &Region {
        &self.home
    }

    /// Which gNBs are of other regions.
    pub fn areas(&self) -> &GnbRegions {
        &self.areas
    }

    fn levels(&self, region: &Region) -> &Levels {
        // A UE may be of a region that the CTA's configuration had before.
        self.levels.get(region).unwrap_or_else(|| &self.levels[&self.home])
    }

    /// The primary and the backups of a UE that begins in a region. `None`: no CPF takes UEs.
    pub fn place(&self, region: &Region, ue: UeId, kind: UeKind, loads: &CpfLoads) -> Option<Placement> {
        let levels = self.levels(region);
        let near = self.choose(&levels.level1, ue, kind, loads);
        let near = near.or_else(|| self.choose(&levels.level2, ue, kind, loads));
        let primary = near.or_else(|| self.choose(&self.everywhere, ue, kind, loads))?;
        let backups = self.further_backups(region, ue, primary, &[]);
        let missing = self.backups.saturating_sub(backups.len());
        Some(Placement { primary, backups, missing })
    }

    /// The first CPF of a ring that fits the UE best and has room.
    fn choose(&self, ring: &Ring, ue: UeId, kind: UeKind, loads: &CpfLoads) -> Option<CpfId> {
        let best = ring.members().iter().map(|cpf| self.fit(*cpf, kind)).max()?;
        let in_order: Vec<CpfId> = ring.walk(ue).filter(|cpf| self.fit(*cpf, kind) == best).collect();
        loads.first_with_room(&in_order)
    }

    /// How well a CPF fits a UE of this kind: the code first, since a canary's UEs are few and chosen.
    fn fit(&self, cpf: CpfId, kind: UeKind) -> (bool, bool) {
        let Some(member) = self.members.get(&cpf) else { return (false, false) };
        let is_canary = self.canary.as_ref().is_some_and(|canary| canary.code == member.code);
        (is_canary == kind.canary, member.slice == kind.slice)
    }

    /// A CPF of the UE's region that fits the UE better than its primary, to which it is to move; `backups` go first.
    pub fn better(
        &self,
        region: &Region,
        ue: UeId,
        kind: UeKind,
        primary: CpfId,
        backups: impl Iterator<Item = CpfId>,
        loads: &CpfLoads,
    ) -> Option<CpfId> {
        let present = self.fit(primary, kind);
        if present == (true, true) {
            return None;
        }
        let ring = &self.levels(region).level1;
        let best =
            ring.members().iter().map(|cpf| self.fit(*cpf, kind)).max().filter(|best| *best > present)?;
        let mut backups = backups.filter(|cpf| self.fit(*cpf, kind) == best && ring.members().contains(cpf));
        backups.next().or_else(|| self.choose(ring, ue, kind, loads))
    }

    /// Whether no CPF of the UE's region fits it better than this one.
    pub fn fits_best(&self, region: &Region, cpf: CpfId, kind: UeKind) -> bool {
        let ring = &self.levels(region).level1;
        ring.members().iter().all(|other| self.fit(*other, kind) <= self.fit(cpf, kind))
    }

    /// Backups that a UE lacks in the region with the fewest CPFs.
    pub fn missing(&self) -> usize {
        let any = UeId { slot: 0, generation: 0 };
        let of = |region: &Region| {
            let placed = self.place(region, any, UeKind::default(), &CpfLoads::default());
            placed.map_or(self.backups, |placed| placed.missing)
        };
        self.levels.keys().map(of).max().unwrap_or(self.backups)
    }

    /// The primary for a UE that comes to a region: one of the region's CPFs, or none.
    pub fn own(&self, region: &Region, ue: UeId, kind: UeKind, loads: &CpfLoads) -> Option<CpfId> {
        self.choose(&self.levels.get(region)?.level1, ue, kind, loads)
    }

    /// The region whose CPFs back a UE: its own, or, where its primary is of none that takes that one's UEs, the primary's.
    pub fn backed_in<'a>(&'a self, region: &'a Region, primary: CpfId) -> &'a Region {
        match self.backs(region, primary) {
            true => region,
            false => self.levels.keys().find(|other| self.backs(other, primary)).unwrap_or(region),
        }
    }

    /// The backups to add to `present` when a backup or the primary was lost or drains. A draining CPF does not count as a backup, though
    /// its checkpoint is used until another has it.
    pub fn further_backups(
        &self,
        region: &Region,
        ue: UeId,
        primary: CpfId,
        present: &[CpfId],
    ) -> Vec<CpfId> {
        self.in_place_of(&[], region, ue, primary, present)
    }

    /// The same without the CPFs in `late`, which are being replaced.
    pub fn in_place_of(
        &self,
        late: &[CpfId],
        region: &Region,
        ue: UeId,
        primary: CpfId,
        present: &[CpfId],
    ) -> Vec<CpfId> {
        let region = self.backed_in(region, primary);
        let mut backups: Vec<CpfId> =
            present.iter().copied().filter(|c| *c != primary && self.backs(region, *c)).collect();
        let kept = backups.len();
        let likeness = |c: CpfId| {
            let (of, own) = (self.members.get(&c), self.members.get(&primary));
            (of.map(|m| m.code) == own.map(|m| m.code), of.map(|m| m.slice) == own.map(|m| m.slice))
        };
        // Present backups that run other code do not count where there are enough of the same.
        let alike = |c: &CpfId| likeness(*c).0;
        let mut counted: Vec<CpfId> = backups.iter().copied().filter(alike).collect();
        let mut unlike: Vec<CpfId> = backups.iter().copied().filter(|c| !alike(c)).collect();
        for preferred in [(true, true), (true, false), (false, true), (false, false)] {
            if !preferred.0 {
                counted.append(&mut unlike);
            }
            if counted.len() >= self.backups {
                break;
            }
            let may = |c: CpfId| c != primary && !late.contains(&c) && likeness(c) == preferred;
            let before = counted.len();
            self.fill(region, ue, primary, may, &mut counted);
            backups.extend(counted[before..].iter().copied().filter(|c| !present.contains(c)));
        }
        backups.split_off(kept)
    }

    /// Adds CPFs for which `may` holds, until there are enough backups.
    fn fill(
        &self,
        region: &Region,
        ue: UeId,
        primary: CpfId,
        may: impl Fn(CpfId) -> bool,
        backups: &mut Vec<CpfId>,
    ) {
        let Levels { level1, level2, regions } = self.levels(region);
        let mut used: BTreeSet<&Region> =
            backups.iter().chain([&primary]).filter_map(|c| self.region_of(*c)).collect();
        let elsewhere = || level2.walk(ue).filter(|c| may(*c));
        let mut met = BTreeSet::new();
        for cpf in elsewhere() {
            if backups.len() >= self.backups || met.len() == *regions {
                break; // past the last region the rest of the ring need not be looked at
            }
            let region = &self.members[&cpf].region;
            met.insert(region);
            if used.insert(region) {
                backups.push(cpf);
            }
        }
        for cpf in elsewhere().chain(level1.walk(ue).filter(|c| may(*c))) {
            if backups.len() >= self.backups {
                break;
            }
            if !backups.contains(&cpf) {
                backups.push(cpf);
            }
        }
    }

    /// How many backups each UE should have.
    pub fn backups(&self) -> usize {
        self.backups
    }

    /// Whether there are more CPFs on the rings than one UE needs, so that a backup can be replaced.
    pub fn has_more(&self) -> bool {
        self.members.len() > 1 + self.backups
    }

    /// All on the rings.
    pub fn members(&self) -> impl Iterator<Item = CpfId> {
        self.members.keys().copied()
    }

    /// Whether a CPF takes UEs of the CTA's: as primary, or as a backup.
    pub fn serves(&self, cpf: CpfId) -> bool {
        self.members.contains_key(&cpf)
    }

    /// The region of a CPF that takes UEs.
    pub fn region_of(&self, cpf: CpfId) -> Option<&Region> {
        self.members.get(&cpf).map(|member| &member.region)
    }

    /// The code version of a CPF that takes UEs.
    pub fn code_of(&self, cpf: CpfId) -> Option<CodeVersion> {
        self.members.get(&cpf).map(|member| member.code)
    }

    /// Whether it takes UEs of this region.
    pub fn backs(&self, region: &Region, cpf: CpfId) -> bool {
        self.region_of(cpf).is_some_and(|at| takes(region, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{CanaryUes, CpfState, Regions};
    use proptest::prelude::*;

    const HERE: &str = "1223";
    /// The region, its three siblings, and one that is not of the larger region.
    const REGIONS: [&str; 5] = [HERE, "1220", "1221", "1222", "1230"];

    fn region(text: &str) -> Region {
        text.parse().unwrap()
    }

    fn ue(slot: u32) -> UeId {
        UeId { slot, generation: 0 }
    }

    /// A map with CPFs numbered from 0, each in the region of this index.
    fn map(cpfs: &[usize]) -> Regions {
        let mut map = Regions::new(REGIONS.map(region)).unwrap();
        for (id, at) in (0..).zip(cpfs) {
            map.join(CpfId(id), &region(REGIONS[*at])).unwrap();
        }
        map
    }

    fn rings(map: &Regions, backups: usize) -> Rings {
        map.rings(&region(HERE), backups).unwrap()
    }

    fn place(rings: &Rings, at: &Region, ue: UeId) -> Option<Placement> {
        rings.place(at, ue, UeKind::default(), &CpfLoads::default())
    }

    fn all(placement: Option<Placement>) -> BTreeSet<CpfId> {
        placement.map(|p| p.backups.into_iter().chain([p.primary]).collect()).unwrap_or_default()
    }

    #[test] // Neutrino §4.3
    fn the_primary_is_of_the_region_and_backups_are_of_its_siblings() {
        let map = map(&[0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
        let rings = rings(&map, 2);
        for slot in 0..200 {
            let placed = place(&rings, &region(HERE), ue(slot)).unwrap();
            assert!(placed.primary.0 < 3);
            assert!(placed.backups.iter().all(|c| (3..9).contains(&c.0)), "{placed:?}");
            assert_ne!(map.region_of(placed.backups[0]), map.region_of(placed.backups[1]));
            assert_eq!((placed.backups.len(), placed.missing), (2, 0));
        }
        assert!(rings.serves(CpfId(8)) && !rings.serves(CpfId(9)));
    }

    #[test]
    fn a_late_backup_is_not_chosen_again() {
        let rings = rings(&map(&[0, 1, 1, 2, 2]), 1);
        for slot in 0..200 {
            let placed = place(&rings, &region(HERE), ue(slot)).unwrap();
            let other = rings.in_place_of(&placed.backups, &region(HERE), ue(slot), placed.primary, &[]);
            assert!(other.len() == 1 && other != placed.backups);
        }
    }

    #[test]
    fn backups_run_what_the_primary_runs_where_there_are_such() {
        let mut map = map(&[0, 0, 0, 1, 1, 2, 2]);
        let other = CodeVersion(CodeVersion::own().0 ^ 1);
        for cpf in [1, 3, 5] {
            map.runs(CpfId(cpf), other);
        }
        let rings = rings(&map, 2);
        for slot in 0..200 {
            let placed = place(&rings, &region(HERE), ue(slot)).unwrap();
            let code = |c: &CpfId| rings.code_of(*c);
            assert!(placed.backups.iter().all(|c| code(c) == code(&placed.primary)), "{placed:?}");
            let present = [placed.backups[0]];
            assert_eq!(rings.further_backups(&region(HERE), ue(slot), placed.primary, &present).len(), 1);
        }
        map.runs(CpfId(5), CodeVersion::own());
        map.runs(CpfId(1), CodeVersion::own());
        let rings = map.rings(&region("1220"), 2).unwrap();
        let placed = place(&rings, &region("1220"), ue(1)).unwrap();
        assert_eq!(
            (placed.backups.len(), placed.missing),
            (2, 0),
            "other versions back it rather than none: {placed:?}"
        );
    }

    #[test] // the table at `Rings`, row by row
    fn with_too_few_a_ue_gets_what_is_there() {
        let place =
            |cpfs: &[usize], backups| super::tests::place(&rings(&map(cpfs), backups), &region(HERE), ue(7));
        let placed = |primary, backups: &[u16], missing| {
            Some(Placement {
                primary: CpfId(primary),
                backups: backups.iter().copied().map(CpfId).collect(),
                missing,
            })
        };
        let two = place(&[0, 0], 1).unwrap();
        assert_eq!((two.backups.len(), two.missing), (1, 0), "the smallest cluster: two nodes of one region");
        assert_ne!(two.backups[0], two.primary);
        assert_eq!(place(&[0, 1], 3), placed(0, &[1], 2));
        assert_eq!(place(&[0, 4], 1), placed(0, &[], 1), "another region's are not asked");
        assert_eq!(place(&[0], 1), placed(0, &[], 1));
        assert_eq!(place(&[1], 1), placed(0, &[], 1));
        assert_eq!(place(&[], 1), None);
        let missing = |cpfs: &[usize], backups| rings(&map(cpfs), backups).missing();
        assert_eq!(
            [missing(&[0, 1], 3), missing(&[0], 1), missing(&[], 1), missing(&[0, 1], 1)],
            [2, 1, 1, 0]
        );
        let inside = place(&[0, 0, 0, 1], 2).unwrap();
        assert_eq!(inside.backups[0], CpfId(3), "outside the region first");
        assert!(inside.backups[1].0 < 3);
    }

    #[test]
    fn a_draining_cpf_gets_no_more_ues_and_is_replaced_as_backup() {
        let mut map = map(&[0, 0, 1, 2]);
        map.set_state(CpfId(0), CpfState::Draining);
        map.set_state(CpfId(2), CpfState::Draining);
        let rings = rings(&map, 1);
        for slot in 0..200 {
            assert_eq!(all(place(&rings, &region(HERE), ue(slot))), BTreeSet::from([CpfId(1), CpfId(3)]));
        }
        assert_eq!(rings.further_backups(&region(HERE), ue(1), CpfId(0), &[CpfId(2)]), [CpfId(3)]);
        map.set_state(CpfId(2), CpfState::Serving);
        let rings = super::tests::rings(&map, 1);
        assert_eq!(
            rings.further_backups(&region(HERE), ue(1), CpfId(0), &[CpfId(2)]),
            [],
            "it takes UEs again: it stays"
        );
    }

    #[test] // Neutrino §4.2: after a failover the UE gets new backups
    fn after_a_failover_there_are_as_many_backups_as_before() {
        let mut map = map(&[0, 0, 1, 1, 2, 2, 3]);
        for slot in 0..200 {
            let before = place(&rings(&map, 2), &region(HERE), ue(slot)).unwrap();
            map.leave(before.primary);
            let (primary, kept) = (before.backups[0], before.backups[1]);
            let new = rings(&map, 2).further_backups(&region(HERE), ue(slot), primary, &[primary, kept]);
            assert_eq!(new.len(), 1);
            assert!(![before.primary, primary, kept].contains(&new[0]));
            assert_ne!(map.region_of(new[0]), map.region_of(primary), "another region than both");
            assert_ne!(map.region_of(new[0]), map.region_of(kept));
            map.join(before.primary, &region(HERE)).unwrap();
        }
    }

    proptest! {
        #[test]
        fn a_cpf_that_joins_or_leaves_changes_one_cpf_of_a_ue_at_most(
            cpfs in prop::collection::vec(0..5usize, 1..20), gone in any::<prop::sample::Index>(), backups in 0..4usize,
        ) {
            let mut map = map(&cpfs);
            let with = rings(&map, backups);
            let gone = CpfId(gone.index(cpfs.len()) as u16);
            map.leave(gone);
            let without = rings(&map, backups);
            for slot in 0..100 {
                let all_of = |rings: &Rings| all(place(rings, &region(HERE), ue(slot)));
                let (with, without) = (all_of(&with), all_of(&without));
                if with.contains(&gone) {
                    prop_assert!(with.difference(&without).eq([&gone]), "{with:?} {without:?}");
                } else {
                    prop_assert_eq!(with, without);
                }
            }
        }

        #[test]
        fn a_placement_names_no_cpf_twice_and_counts_missing_backups(
            cpfs in prop::collection::vec(0..5usize, 1..12), backups in 0..6usize, slot in 0..1u32 << 24,
        ) {
            let rings = rings(&map(&cpfs), backups);
            if let Some(placed) = place(&rings, &region(HERE), ue(slot)) {
                prop_assert_eq!(placed.backups.len() + placed.missing, backups);
                prop_assert_eq!(all(Some(placed.clone())).len(), placed.backups.len() + 1);
                let there = cpfs.iter().filter(|at| **at != 4).count();
                prop_assert!(placed.missing == 0 || placed.backups.len() + 1 == there);
            }
        }
    }

    const OLD: CodeVersion = CodeVersion(8);
    const NEW: CodeVersion = CodeVersion(9);

    /// Three CPFs of the old code and two of the new one, which serves a tenth of the UEs.
    fn with_canary() -> Rings {
        let mut map = map(&[0; 5]);
        (0..5).for_each(|id| map.runs(CpfId(id), if id < 3 { OLD } else { NEW }));
        rings(&map, 1).with_canary(Some(Canary { code: NEW, ues: CanaryUes::Percent(10) }))
    }

    #[test]
    fn a_canarys_ues_and_their_backups_are_at_cpfs_of_its_code_and_no_others_are() {
        let (rings, loads) = (with_canary(), CpfLoads::default());
        let mut ues = 0;
        for slot in 0..1000 {
            let canary = rings.canary().unwrap().takes(ue(slot));
            let kind = UeKind { canary, slice: None };
            let placed = rings.place(&region(HERE), ue(slot), kind, &loads).unwrap();
            for cpf in [placed.primary, placed.backups[0]] {
                assert_eq!(rings.code_of(cpf), Some(if canary { NEW } else { OLD }), "{placed:?}");
            }
            let present = || placed.backups.iter().copied();
            let better =
                |kind| rings.better(&region(HERE), ue(slot), kind, placed.primary, present(), &loads);
            assert_eq!(better(kind), None);
            let other = better(UeKind { canary: !canary, slice: None }).and_then(|cpf| rings.code_of(cpf));
            assert_eq!(other, Some(if canary { OLD } else { NEW }));
            ues += usize::from(canary);
        }
        assert!((70..130).contains(&ues), "{ues}");
    }

    #[test]
    fn a_larger_share_contains_a_smaller_one() {
        let takes = |percent, slot| Canary { code: NEW, ues: CanaryUes::Percent(percent) }.takes(ue(slot));
        assert!((0..1000).all(|slot| !takes(0, slot) && takes(100, slot)));
        assert!((0..1000).all(|slot| !takes(10, slot) || takes(20, slot)));
    }

    #[test] // it could not run the UE's log again
    fn a_backup_of_other_code_does_not_count_where_there_are_enough_of_the_same() {
        let rings = with_canary();
        let (old, new) = (CpfId(0), CpfId(4));
        let further =
            |primary, present: &[CpfId]| rings.further_backups(&region(HERE), ue(1), primary, present);
        let added = further(old, &[new]);
        assert!(added.len() == 1 && added[0].0 < 3, "{added:?}");
        assert_eq!(further(old, &[CpfId(1)]), []);
        assert_eq!(further(new, &[old]), [CpfId(3)]);
        let mut alone = map(&[0; 2]);
        alone.runs(CpfId(1), NEW);
        let alone = super::tests::rings(&alone, 1);
        assert_eq!(
            alone.further_backups(&region(HERE), ue(1), CpfId(0), &[]),
            [CpfId(1)],
            "better than none"
        );
        assert_eq!(alone.further_backups(&region(HERE), ue(1), CpfId(0), &[CpfId(1)]), []);
    }

    #[test]
    fn ues_of_a_slice_with_cpfs_of_its_own_are_served_there_and_others_are_not() {
        let slice: SNssai = "2-000007".parse().unwrap();
        let mut map = map(&[0; 4]);
        map.serves_slice(CpfId(3), Some(slice));
        let (rings, loads) = (rings(&map, 1).with_slices(vec![slice]), CpfLoads::default());
        let of = |slot, slice| {
            let placed = rings.place(&region(HERE), ue(slot), UeKind { canary: false, slice }, &loads);
            placed.map(|p| (p.primary, p.backups.len())).unwrap()
        };
        assert!((0..200).all(|slot| of(slot, Some(slice)) == (CpfId(3), 1)), "its backup is another CPF");
        assert!((0..200).all(|slot| of(slot, None).0 != CpfId(3)));
        map.leave(CpfId(3));
        let rings = super::tests::rings(&map, 1).with_slices(vec![slice]);
        let kind = UeKind { canary: false, slice: Some(slice) };
        assert!(rings.place(&region(HERE), ue(1), kind, &loads).is_some(), "better than none");
    }
}
