//! Which of a CTA's CPFs take UEs, by the list at etcd and the operator's configuration.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_ids::SNssai;

use super::{Configuration, MemberId, MembershipView};
use crate::CodeVersion;
use crate::region::{CpfState, Region, RegionError, Regions};
use crate::replication::CpfId;

/// A CPF that is connected to a CTA.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedCpf<'a> {
    /// Its number there.
    pub id: CpfId,
    /// Region of the CPF.
    pub region: &'a Region,
    /// The code that it runs.
    pub code: CodeVersion,
    /// The slice whose UEs it serves, if it serves one alone.
    pub slice: Option<SNssai>,
    /// The CPF drains.
    pub leaves: bool,
    /// Its number at etcd, once it was seen listed there.
    pub listed: Option<CpfId>,
}

/// What etcd lists of CPFs, as last known: it stays while etcd is away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpfRoster {
    /// By their numbers there, and whether they drain.
    listed: BTreeMap<CpfId, bool>,
    configuration: Option<Configuration>,
}

impl CpfRoster {
    /// What a view has of it.
    pub fn of(view: &MembershipView) -> Self {
        let listed = view.members().filter_map(|(id, listed)| match id {
            MemberId::Cpf(cpf) => Some((cpf, listed.member.draining)),
            MemberId::Cta(_) => None,
        });
        let configuration = view.configuration().map(|(_, configuration)| configuration.clone());
        Self { listed: listed.collect(), configuration }
    }

    /// The same with another decision of the operator.
    pub fn under(self, configuration: Option<Configuration>) -> Self {
        Self { configuration, ..self }
    }

    /// Whether a CPF of this number is listed.
    pub fn lists(&self, cpf: CpfId) -> bool {
        self.listed.contains_key(&cpf)
    }

    /// What the operator has decided for the whole cluster, if anything.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    fn drains(&self, cpf: CpfId) -> bool {
        self.configuration.as_ref().is_some_and(|c| c.draining.contains(&cpf))
            || self.listed.get(&cpf).is_some_and(|drains| *drains)
    }

    /// The map of these regions with the connected CPFs. On the rings are those that are listed; a CPF that etcd never listed is judged by
    /// its link alone, and one whose region is not among these is on no ring.
    ///
    /// Where the CPFs of a region run different code, its rings hold those of the version that most of them run, and among equals that of
    /// the first CPF: a log is replayed only by the version that ran it, so a successor has to run the same. CPFs of other versions wait,
    /// or drain if they have UEs. CPFs of the canary's version are on the rings beside them, and do not count; with a share of
    /// no UE they drain.
    ///
    /// A CPF that is listed no longer may live and not reach etcd. It is off the rings as long as others of its region are on them: if none
    /// would be left, etcd itself is out of reach, and its list is ignored. Errors: those of [`Regions::new`].
    pub fn map(
        &self,
        regions: impl IntoIterator<Item = Region>,
        present: &[ConnectedCpf<'_>],
    ) -> Result<Regions, RegionError> {
        let mut map = Regions::new(regions)?;
        let drains = |p: &ConnectedCpf<'_>| p.leaves || p.listed.is_some_and(|cpf| self.drains(cpf));
        let unheard = |p: &ConnectedCpf<'_>| p.listed.is_some_and(|cpf| !self.lists(cpf));
        let certain: BTreeSet<&Region> =
            present.iter().filter(|p| !drains(p) && !unheard(p)).map(|p| p.region).collect();
        let serves = |p: &ConnectedCpf<'_>| !drains(p) && (!unheard(p) || !certain.contains(p.region));
        let mut in_force: BTreeMap<&Region, BTreeMap<CodeVersion, (usize, Reverse<CpfId>)>> = BTreeMap::new();
        let canary = self.configuration.as_ref().and_then(|c| c.canary.as_ref());
        let serves_beside = canary.filter(|canary| !canary.ends()).map(|canary| canary.code);
        let canary = canary.map(|canary| canary.code);
        for p in present.iter().filter(|p| serves(p) && canary != Some(p.code)) {
            let (count, first) =
                in_force.entry(p.region).or_default().entry(p.code).or_insert((0, Reverse(p.id)));
            (*count, *first) = (*count + 1, (*first).max(Reverse(p.id)));
        }
        for p in present {
            let versions = in_force.get(p.region).into_iter().flatten();
            let code = versions.max_by_key(|(_, most)| **most).map(|(code, _)| *code);
            if map.join(p.id, p.region).is_ok() {
                map.runs(p.id, p.code);
                map.serves_slice(p.id, p.slice);
                if !serves(p) || ![code, serves_beside].contains(&Some(p.code)) {
                    map.set_state(p.id, CpfState::Draining);
                }
            }
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{Canary, CanaryUes};

    const HERE: &str = "north/harbour";
    const NEXT: &str = "north/town";

    fn roll(listed: &[(u16, bool)], drained: &[u16]) -> CpfRoster {
        let draining = drained.iter().map(|n| CpfId(*n)).collect();
        let listed = listed.iter().map(|(n, drains)| (CpfId(*n), *drains)).collect();
        CpfRoster { listed, configuration: Some(Configuration { draining, ..Configuration::default() }) }
    }

    /// The CPFs on the rings, of CPFs numbered from 1, with region, draining and number at etcd.
    fn on_rings(roll: &CpfRoster, present: &[(&str, bool, Option<u16>)]) -> Vec<u16> {
        let regions: Vec<Region> = present.iter().map(|(at, ..)| at.parse().unwrap()).collect();
        let present: Vec<ConnectedCpf<'_>> = (1..)
            .zip(present.iter().zip(&regions))
            .map(|(id, ((_, leaves, listed), region))| ConnectedCpf {
                id: CpfId(id),
                region,
                code: CodeVersion(1),
                slice: None,
                leaves: *leaves,
                listed: listed.map(CpfId),
            })
            .collect();
        let all = [HERE, NEXT].map(|text| text.parse::<Region>().unwrap());
        let map = roll.map(all.clone(), &present).unwrap();
        map.rings(&all[0], 1).unwrap().members().map(|cpf| cpf.0).collect()
    }

    #[test]
    fn listed_cpfs_are_on_the_rings_and_draining_ones_are_not() {
        let present = [(HERE, false, Some(70)), (HERE, false, Some(80)), (NEXT, false, Some(90))];
        assert_eq!(on_rings(&roll(&[(70, false), (80, false), (90, false)], &[]), &present), [1, 2, 3]);
        assert_eq!(
            on_rings(&roll(&[(70, true), (80, false), (90, false)], &[]), &present),
            [2, 3],
            "it says so"
        );
        assert_eq!(
            on_rings(&roll(&[(70, false), (80, false), (90, false)], &[80]), &present),
            [1, 3],
            "the operator decided so"
        );
        assert_eq!(on_rings(&roll(&[(70, false), (90, false)], &[]), &present), [1, 3], "its lease ran out");
    }

    #[test]
    fn a_cpf_that_etcd_never_listed_is_judged_by_its_link() {
        let present = [(HERE, false, None), (HERE, true, None), (HERE, false, Some(7))];
        assert_eq!(on_rings(&roll(&[(7, false)], &[]), &present), [1, 3]);
    }

    #[test]
    fn a_region_without_listed_cpfs_is_served_all_the_same() {
        let present = [(HERE, false, Some(70)), (HERE, false, Some(80)), (NEXT, false, Some(90))];
        assert_eq!(on_rings(&roll(&[(90, false)], &[]), &present), [1, 2, 3], "they do not reach etcd");
        assert_eq!(on_rings(&CpfRoster::default(), &present), [1, 2, 3], "nothing was heard of etcd");
        assert_eq!(on_rings(&roll(&[(90, false)], &[70]), &present), [2, 3], "an order is one");
    }

    #[test]
    fn on_a_regions_rings_are_those_of_the_version_that_most_run() {
        let (old, new) = (CodeVersion(9), CodeVersion(4));
        let regions = [HERE, NEXT].map(|text| text.parse::<Region>().unwrap());
        let on_rings = |present: &[(usize, CodeVersion, bool)]| -> Vec<u16> {
            let present = (1..).map(CpfId).zip(present).map(|(id, (at, code, leaves))| ConnectedCpf {
                id,
                region: &regions[*at],
                code: *code,
                slice: None,
                leaves: *leaves,
                listed: None,
            });
            let map = CpfRoster::default().map(regions.clone(), &present.collect::<Vec<_>>()).unwrap();
            map.rings(&regions[0], 1).unwrap().members().map(|cpf| cpf.0).collect()
        };
        let two = [(0, old, false), (0, old, false)];
        assert_eq!(on_rings(&[&two[..], &[(0, new, false)]].concat()), [1, 2]);
        assert_eq!(
            on_rings(&[&two[..], &[(0, new, false); 2]].concat()),
            [1, 2],
            "among equals the version of the first"
        );
        let one_leaves = [(0, old, true), (0, old, false), (0, new, false), (0, new, false)];
        assert_eq!(on_rings(&one_leaves), [3, 4]);
        assert_eq!(
            on_rings(&[&two[..], &[(1, new, false); 3]].concat()),
            [1, 2, 3, 4, 5],
            "each region by itself"
        );
    }

    #[test]
    fn cpfs_of_the_canarys_version_are_on_the_rings_beside_those_of_the_version_in_force() {
        let (old, new, third) = (CodeVersion(9), CodeVersion(4), CodeVersion(7));
        let here: Region = HERE.parse().unwrap();
        let on_rings = |canary: Option<(CodeVersion, u8)>, codes: &[CodeVersion]| -> Vec<u16> {
            let present = (1..).map(CpfId).zip(codes).map(|(id, code)| ConnectedCpf {
                id,
                region: &here,
                code: *code,
                slice: None,
                leaves: false,
                listed: None,
            });
            let canary = canary.map(|(code, percent)| Canary { code, ues: CanaryUes::Percent(percent) });
            let configuration = Configuration { canary, ..Configuration::default() };
            let roll = CpfRoster::default().under(Some(configuration));
            let map = roll.map([here.clone()], &present.collect::<Vec<_>>()).unwrap();
            map.rings(&here, 1).unwrap().members().map(|cpf| cpf.0).collect()
        };
        assert_eq!(on_rings(None, &[old, old, new]), [1, 2]);
        let tenth = Some((new, 10));
        assert_eq!(on_rings(tenth, &[old, old, new, third]), [1, 2, 3]);
        assert_eq!(on_rings(tenth, &[old, new, new, new]), [1, 2, 3, 4], "they are no majority");
        assert_eq!(on_rings(tenth, &[new, new]), [1, 2], "no other CPF is left");
        assert_eq!(on_rings(Some((new, 0)), &[new, new, old]), [3], "it is rolled back");
    }

    #[test]
    fn a_cpf_of_an_unknown_region_is_on_no_ring() {
        let region: Region = "elsewhere/site".parse().unwrap();
        let here: Region = HERE.parse().unwrap();
        let stray = ConnectedCpf {
            id: CpfId(1),
            region: &region,
            code: CodeVersion(1),
            slice: None,
            leaves: false,
            listed: None,
        };
        let map = CpfRoster::default().map([here.clone()], &[stray]).unwrap();
        assert_eq!(map.rings(&here, 1).unwrap().members().count(), 0);
    }
}
