//! The regions of a cluster, and the CPFs in them.

use std::collections::BTreeMap;
use std::fmt;

use whimbrel_ids::SNssai;

use super::{Geohash, GnbRegions, Member, Region, Rings};
use crate::CodeVersion;
use crate::replication::CpfId;

/// Whether a CPF takes new UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpfState {
    /// The CPF serves UEs.
    Serving,
    /// It keeps its UEs, as primary and as backup, and gets no more.
    Draining,
}

/// An error in the regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// Two regions have the same name.
    SameName(Region, Region),
    /// One geohash cell is within the other: a gNB would be in both.
    Overlap(Region, Region),
    /// There is no such region.
    Unknown(Region),
    /// The CPF is in the cluster already, there.
    SameCpf(CpfId, Region),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameName(a, b) => write!(
                f,
                "two regions are called `{}` ({a} and {b}): give one of them another name",
                a.name()
            ),
            Self::Overlap(a, b) => {
                write!(
                    f,
                    "the region {b} is within the region {a}: a gNB there would be in both; leave out one"
                )
            }
            Self::Unknown(region) => write!(f, "no region {region} is configured"),
            Self::SameCpf(cpf, region) => {
                write!(f, "a CPF of the number {} is in the region {region} already", cpf.0)
            }
        }
    }
}

impl std::error::Error for RegionError {}

/// The map of a cluster. It changes when CPFs come, drain and go; rings are taken from it again then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions {
    /// The regions, by name.
    regions: BTreeMap<String, Region>,
    cpfs: BTreeMap<CpfId, (Region, CpfState)>,
    /// Those that run other code than this program.
    other_code: BTreeMap<CpfId, CodeVersion>,
    /// Those that serve one slice alone.
    slices: BTreeMap<CpfId, SNssai>,
}

impl Regions {
    /// The regions as configured. Errors: [`RegionError::SameName`], [`RegionError::Overlap`].
    pub fn new(regions: impl IntoIterator<Item = Region>) -> Result<Self, RegionError> {
        let mut map = Self::default();
        for region in regions {
            if let Some(other) = map.regions.insert(region.name(), region.clone()) {
                return Err(RegionError::SameName(other, region));
            }
        }
        let cells: Vec<(Geohash, &Region)> =
            map.regions.values().filter_map(|r| Some((r.cell()?, r))).collect();
        for (cell, region) in &cells {
            if let Some((_, inner)) = cells.iter().find(|(other, _)| other != cell && cell.covers(*other)) {
                return Err(RegionError::Overlap((*region).clone(), (*inner).clone()));
            }
        }
        Ok(map)
    }

    /// A CPF comes to a region. Errors: [`RegionError::Unknown`], [`RegionError::SameCpf`].
    pub fn join(&mut self, cpf: CpfId, region: &Region) -> Result<(), RegionError> {
        self.known(region)?;
        if let Some((present, _)) = self.cpfs.get(&cpf) {
            return Err(RegionError::SameCpf(cpf, present.clone()));
        }
        self.cpfs.insert(cpf, (region.clone(), CpfState::Serving));
        Ok(())
    }

    /// Sets the code version that a CPF runs; this program's by default.
    pub fn runs(&mut self, cpf: CpfId, code: CodeVersion) {
        match code == CodeVersion::own() {
            true => drop(self.other_code.remove(&cpf)),
            false => drop(self.other_code.insert(cpf, code)),
        }
    }

    /// Sets the slice whose UEs a CPF serves; none by default.
    pub fn serves_slice(&mut self, cpf: CpfId, slice: Option<SNssai>) {
        match slice {
            Some(slice) => drop(self.slices.insert(cpf, slice)),
            None => drop(self.slices.remove(&cpf)),
        }
    }

    /// It takes UEs from now on, or does not. Whether it is in the cluster.
    pub fn set_state(&mut self, cpf: CpfId, state: CpfState) -> bool {
        self.cpfs.get_mut(&cpf).map(|(_, s)| *s = state).is_some()
    }

    /// It is gone, in order or not. Whether it was in the cluster.
    pub fn leave(&mut self, cpf: CpfId) -> bool {
        self.other_code.remove(&cpf);
        self.slices.remove(&cpf);
        self.cpfs.remove(&cpf).is_some()
    }

    /// Where a CPF is: of a UE's backups, the one in the region that the UE moves to makes its handover a fast
    /// one (Neutrino §4.3).
    pub fn region_of(&self, cpf: CpfId) -> Option<&Region> {
        self.cpfs.get(&cpf).map(|(region, _)| region)
    }

    /// The region whose cell contains a place; degrees, north and east positive.
    pub fn at(&self, latitude: f64, longitude: f64) -> Option<&Region> {
        let place = Geohash::of(latitude, longitude, Geohash::LENGTH_MAX)?;
        self.regions.values().find(|r| r.cell().is_some_and(|cell| cell.covers(place)))
    }

    /// The rings of a region's CTAs, with so many backups a UE. Errors: [`RegionError::Unknown`].
    pub fn rings(&self, region: &Region, backups: usize) -> Result<Rings, RegionError> {
        self.rings_with(region, GnbRegions::default(), backups)
    }

    /// The rings of CTAs that have gNBs of other regions too. Errors: [`RegionError::Unknown`].
    pub fn rings_with(&self, home: &Region, areas: GnbRegions, backups: usize) -> Result<Rings, RegionError> {
        areas.regions().chain([home]).try_for_each(|region| self.known(region))?;
        let serving = self.cpfs.iter().filter(|(_, (_, state))| *state == CpfState::Serving);
        let code = |cpf| self.other_code.get(cpf).copied().unwrap_or_else(CodeVersion::own);
        let on_rings = serving.map(|(cpf, (region, _))| {
            let slice = self.slices.get(cpf).copied();
            (*cpf, Member { region: region.clone(), code: code(cpf), slice })
        });
        Ok(Rings::new(home.clone(), areas, on_rings.collect(), backups))
    }

    fn known(&self, region: &Region) -> Result<(), RegionError> {
        match self.regions.get(&region.name()) {
            Some(known) if known == region => Ok(()),
            _ => Err(RegionError::Unknown(region.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(text: &str) -> Region {
        text.parse().unwrap()
    }

    fn map(regions: &[&str]) -> Result<Regions, RegionError> {
        Regions::new(regions.iter().map(|r| region(r)))
    }

    #[test]
    fn two_regions_of_one_name_are_refused_with_both() {
        for (a, b) in [("1223", "1223"), ("north/harbour", "south/harbour")] {
            let error = map(&[a, "31", b]).unwrap_err();
            assert_eq!(error, RegionError::SameName(region(a), region(b)));
        }
        let message = map(&["north/harbour", "south/harbour"]).unwrap_err().to_string();
        assert_eq!(
            message,
            "two regions are called `harbour` (north/harbour and south/harbour): give one of them another name"
        );
    }

    #[test]
    fn a_cell_within_another_is_refused() {
        assert_eq!(map(&["1223", "12231"]), Err(RegionError::Overlap(region("1223"), region("12231"))));
        assert_eq!(map(&["12231", "1223"]), Err(RegionError::Overlap(region("1223"), region("12231"))));
        assert!(map(&["1223", "12211", "12210"]).is_ok(), "cells of different size beside each other");
    }

    #[test]
    fn a_cpf_is_in_one_region_that_is_there() {
        let mut map = map(&["10", "11", "north/harbour"]).unwrap();
        assert_eq!(map.join(CpfId(1), &region("10")), Ok(()));
        assert_eq!(map.join(CpfId(1), &region("11")), Err(RegionError::SameCpf(CpfId(1), region("10"))));
        assert_eq!(map.join(CpfId(2), &region("12")), Err(RegionError::Unknown(region("12"))));
        assert_eq!(
            map.join(CpfId(2), &region("south/harbour")),
            Err(RegionError::Unknown(region("south/harbour")))
        );
        assert_eq!(map.region_of(CpfId(1)), Some(&region("10")));
        assert!(map.leave(CpfId(1)) && !map.leave(CpfId(1)));
        assert_eq!(map.join(CpfId(1), &region("11")), Ok(()));
        assert!(!map.set_state(CpfId(9), CpfState::Draining));
    }

    #[test]
    fn a_place_is_in_the_region_whose_cell_covers_it() {
        let map = map(&["123333", "12332", "north/harbour"]).unwrap();
        assert_eq!(map.at(42.605, -5.603), Some(&region("123333")));
        assert_eq!(map.at(-42.605, -5.603), None);
    }
}
