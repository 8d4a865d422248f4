//! Which loads get a yield: those that miss often, in order of frequency, as long as what their hits cost stays within a bound.

use std::collections::BTreeMap;

use crate::profile::{Counts, Profile};
use crate::refusal::SkipReason;

/// What is chosen by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadChoice {
    /// Least share of a load's runs that miss.
    pub(crate) miss_rate_min: f64,
    /// Greatest share of the profiled time that yields at hits may cost.
    pub(crate) bound: f64,
}

/// Half of a load's runs have to miss, and hits may cost a tenth of the time: the middle of what the experiment over the bound compares.
pub(crate) const DEFAULT: LoadChoice = LoadChoice { miss_rate_min: 0.5, bound: 0.10 };

/// For each load that is a candidate: `Ok` if it gets a yield.
pub(crate) fn select(
    loads: &[u64],
    profile: &Profile,
    choice: LoadChoice,
) -> BTreeMap<u64, Result<Counts, SkipReason>> {
    let mut chosen = BTreeMap::new();
    let mut candidates = Vec::new();
    for &at in loads {
        let counts = profile.instructions.get(&at).copied().unwrap_or_default();
        if counts.loads == 0 {
            chosen.insert(at, Err(SkipReason::NotRun));
        } else if (counts.misses as f64) < counts.loads as f64 * choice.miss_rate_min {
            chosen.insert(at, Err(SkipReason::RareMisses));
        } else {
            candidates.push((at, counts));
        }
    }
    candidates.sort_by_key(|&(at, counts)| (std::cmp::Reverse(counts.loads), at));
    let allowed = profile.total_ns() * choice.bound;
    let mut spent = 0.0;
    for (at, counts) in candidates {
        let hits = counts.loads.saturating_sub(counts.misses) as f64 * profile.memory_ns;
        if spent + hits <= allowed {
            spent += hits;
            chosen.insert(at, Ok(counts));
        } else {
            chosen.insert(at, Err(SkipReason::OverBound));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(loads: &[(u64, u64, u64)]) -> Profile {
        let instructions =
            loads.iter().map(|&(at, loads, misses)| (at, Counts { runs: loads, loads, misses })).collect();
        Profile { memory_ns: 100.0, instruction_ns: 1.0, instructions, ..Profile::default() }
    }

    #[test]
    fn a_load_that_misses_seldom_is_left() {
        let chosen =
            select(&[1, 2, 3], &profile(&[(1, 100, 49), (2, 100, 50)]), LoadChoice { bound: 9.0, ..DEFAULT });
        assert_eq!(chosen[&1], Err(SkipReason::RareMisses));
        assert!(chosen[&2].is_ok());
        assert_eq!(chosen[&3], Err(SkipReason::NotRun));
    }

    #[test]
    fn loads_are_taken_by_frequency_while_their_hits_stay_within_the_bound() {
        // Total: 1,600 runs and 1,500 misses: 151,600 ns, of which 5 % are 7,580 ns: the hits of the first cost 6,000, those of the second
        // 3,000 more, those of the third 1,000.
        let profile = profile(&[(1, 1000, 940), (2, 400, 370), (3, 200, 190)]);
        let chosen = select(&[1, 2, 3], &profile, LoadChoice { miss_rate_min: 0.5, bound: 0.05 });
        assert!(chosen[&1].is_ok());
        assert_eq!(chosen[&2], Err(SkipReason::OverBound));
        assert!(chosen[&3].is_ok());
    }
}
