//! Which gNBs are of which region.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Tac;

use super::Region;

/// The regions of a CTA's gNBs, where they are not all of its own. NGAP carries no place, so the operator configures it: for some gNBs by
/// their identifiers, of the others by their tracking areas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GnbRegions {
    gnbs: BTreeMap<u32, Region>,
    tacs: BTreeMap<u32, Region>,
}

/// An error in areas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AreaError {
    /// A gNB is of two regions.
    Gnb(u32, Region, Region),
    /// A tracking area is.
    Tac(Tac, Region, Region),
}

impl fmt::Display for AreaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gnb(gnb, a, b) => write!(f, "the gNB {gnb} is configured in {a} and in {b}"),
            Self::Tac(tac, a, b) => {
                write!(f, "the tracking area {} is configured in {a} and in {b}", tac.value())
            }
        }
    }
}

impl std::error::Error for AreaError {}

impl GnbRegions {
    /// These gNBs and tracking areas are of the region. Errors: one of them is of another already.
    pub fn add(
        &mut self,
        region: &Region,
        gnbs: impl IntoIterator<Item = u32>,
        tacs: impl IntoIterator<Item = Tac>,
    ) -> Result<(), AreaError> {
        for gnb in gnbs {
            if let Some(other) = self.gnbs.insert(gnb, region.clone()).filter(|other| other != region) {
                return Err(AreaError::Gnb(gnb, other, region.clone()));
            }
        }
        for tac in tacs {
            if let Some(other) = self.tacs.insert(tac.value(), region.clone()).filter(|other| other != region)
            {
                return Err(AreaError::Tac(tac, other, region.clone()));
            }
        }
        Ok(())
    }

    /// The region of a gNB with this identifier and these tracking areas, of which the first that is known counts. `None`: not configured.
    pub fn region_of(&self, gnb_id: u32, tacs: &[Tac]) -> Option<&Region> {
        let by_tac = || tacs.iter().find_map(|tac| self.tacs.get(&tac.value()));
        self.gnbs.get(&gnb_id).or_else(by_tac)
    }

    /// The regions, some more than once.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.gnbs.values().chain(self.tacs.values())
    }

    /// Whether no gNB is configured.
    pub fn is_empty(&self) -> bool {
        self.gnbs.is_empty() && self.tacs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(text: &str) -> Region {
        text.parse().unwrap()
    }

    fn tac(n: u32) -> Tac {
        Tac::new(n).unwrap()
    }

    #[test]
    fn the_region_of_a_gnb_goes_before_the_region_of_its_tracking_area() {
        let mut areas = GnbRegions::default();
        areas.add(&region("1220"), [7], [tac(1), tac(2)]).unwrap();
        areas.add(&region("1221"), [8], [tac(3)]).unwrap();
        assert_eq!(areas.region_of(8, &[tac(1)]), Some(&region("1221")));
        assert_eq!(
            areas.region_of(9, &[tac(9), tac(3), tac(1)]),
            Some(&region("1221")),
            "the first that is known"
        );
        assert_eq!(areas.region_of(9, &[tac(9)]), None);
    }

    #[test]
    fn a_gnb_or_a_tracking_area_of_two_regions_is_refused_with_both() {
        let mut areas = GnbRegions::default();
        areas.add(&region("1220"), [7], [tac(1)]).unwrap();
        areas.add(&region("1220"), [7], [tac(1)]).unwrap();
        let (a, b) = (region("1220"), region("1221"));
        assert_eq!(areas.clone().add(&b, [7], []), Err(AreaError::Gnb(7, a.clone(), b.clone())));
        assert_eq!(areas.add(&b, [], [tac(1)]), Err(AreaError::Tac(tac(1), a, b)));
    }
}
