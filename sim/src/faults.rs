//! Faults of radio and N2.

use std::time::Duration;

use crate::Rng;

/// Rates per thousand messages, and latencies. The default has no faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// NAS messages that the radio loses.
    pub lost_per_mille: u64,
    /// NAS messages that arrive twice.
    pub repeated_per_mille: u64,
    /// NAS messages that others may overtake.
    pub reordered_per_mille: u64,
    /// First messages of a connection that a gNB sends twice.
    pub first_repeated_per_mille: u64,
    /// Least and greatest latency of the radio, in microseconds.
    pub radio_latency_micros: (u64, u64),
    /// Least and greatest latency of N2, in microseconds.
    pub n2_latency_micros: (u64, u64),
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            lost_per_mille: 0,
            repeated_per_mille: 0,
            reordered_per_mille: 0,
            first_repeated_per_mille: 0,
            radio_latency_micros: (2_000, 4_000), // a slot or two and scheduling
            n2_latency_micros: (100, 200),
        }
    }
}

impl Faults {
    /// A bad radio: one NAS message in ten is lost, one repeated, one overtaken.
    pub fn worst() -> Self {
        Self {
            lost_per_mille: 100,
            repeated_per_mille: 100,
            reordered_per_mille: 100,
            first_repeated_per_mille: 20,
            radio_latency_micros: (2_000, 80_000),
            ..Self::default()
        }
    }

    /// How often a message arrives.
    pub(crate) fn copies(&self, rng: &mut Rng) -> u32 {
        if rng.chance(self.lost_per_mille) {
            0
        } else if rng.chance(self.repeated_per_mille) {
            2
        } else {
            1
        }
    }

    pub(crate) fn reorders(&self, rng: &mut Rng) -> bool {
        rng.chance(self.reordered_per_mille)
    }

    pub(crate) fn radio_latency(&self, rng: &mut Rng) -> Duration {
        between(self.radio_latency_micros, rng)
    }

    pub(crate) fn n2_latency(&self, rng: &mut Rng) -> Duration {
        between(self.n2_latency_micros, rng)
    }
}

fn between((least, most): (u64, u64), rng: &mut Rng) -> Duration {
    Duration::from_micros(least + rng.below(most.saturating_sub(least) + 1))
}
