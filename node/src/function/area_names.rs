//! Names of the areas of shared memory through which the functions of a unit reach each other, as they stand
//! among the descriptors.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use whimbrel_shm::Area;

/// The pools of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolKind {
    /// CTAs, CPFs and network functions.
    Control,
    /// CTAs and UPF.
    N4,
}

/// An area of a pool, by the number of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AreaName {
    pub pool: PoolKind,
    pub number: usize,
}

impl AreaName {
    /// Under which its memory and its bell are handed on.
    pub fn descriptors(self) -> [String; 2] {
        let pool = match self.pool {
            PoolKind::Control => "control",
            PoolKind::N4 => "n4",
        };
        ["area", "bell"].map(|what| format!("{what}/{pool}-{:02}", self.number))
    }

    /// The area of whose descriptors this is a name, and whether it is that of the bell.
    pub fn of(name: &str) -> Option<(Self, bool)> {
        let (what, rest) = name.split_once('/')?;
        let is_bell = match what {
            "area" => false,
            "bell" => true,
            _ => return None,
        };
        let (pool, number) = rest.split_once('-')?;
        let pool = match pool {
            "control" => PoolKind::Control,
            "n4" => PoolKind::N4,
            _ => return None,
        };
        let number = number.parse().ok().filter(|n| *n < whimbrel_shm::FUNCTIONS)?;
        Some((Self { pool, number }, is_bell))
    }
}

/// Takes the areas out of descriptors with their names; those of which the memory or the bell is missing are dropped.
pub fn take_areas(descriptors: &mut Vec<(String, OwnedFd)>) -> Vec<(AreaName, Area)> {
    let mut halves: BTreeMap<AreaName, (Option<OwnedFd>, Option<OwnedFd>)> = BTreeMap::new();
    let mut order = Vec::new();
    for (name, descriptor) in descriptors.extract_if(.., |(name, _)| AreaName::of(name).is_some()) {
        let Some((name, is_bell)) = AreaName::of(&name) else { continue };
        let (memory, bell) = halves.entry(name).or_default();
        *(if is_bell { bell } else { memory }) = Some(descriptor);
        if !order.contains(&name) {
            order.push(name);
        }
    }
    let area = |name| match halves.remove(&name)? {
        (Some(memory), Some(bell)) => Some((name, Area { memory, bell })),
        _ => None,
    };
    order.into_iter().filter_map(area).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_areas() {
        let name = AreaName { pool: PoolKind::N4, number: 11 };
        let [memory, bell] = name.descriptors();
        assert_eq!((AreaName::of(&memory), AreaName::of(&bell)), (Some((name, false)), Some((name, true))));
        for other in ["area/n4-16", "area/n4", "area/n5-01", "pool/memory", "cta/n4", "area/n4-x"] {
            assert_eq!(AreaName::of(other), None, "{other}");
        }
    }
}
