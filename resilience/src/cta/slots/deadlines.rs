//! The deadlines of all UEs, in order.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use whimbrel_control::CompactMap;
use whimbrel_ids::Instant;

/// The deadlines of UEs, each with the UE's slot, in order: twelve octets each.
#[derive(Default)]
pub(super) struct Deadlines(CompactMap<[u32; 3], ()>);

impl Deadlines {
    pub(super) fn insert(&mut self, at: Instant, slot: u32) {
        self.0.insert([(at.0 >> 32) as u32, at.0 as u32, slot], ());
    }

    pub(super) fn remove(&mut self, at: Instant, slot: u32) {
        self.0.remove([(at.0 >> 32) as u32, at.0 as u32, slot]);
    }

    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.0.first().map(Self::unpacked)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Instant, u32)> + '_ {
        self.0.iter().map(Self::unpacked)
    }

    fn unpacked(([high, low, slot], ()): ([u32; 3], ())) -> (Instant, u32) {
        (Instant(u64::from(high) << 32 | u64::from(low)), slot)
    }
}

/// As a set of pairs is written.
impl Serialize for Deadlines {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter().collect::<Vec<_>>())
    }
}

impl<'de> Deserialize<'de> for Deadlines {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut deadlines = Self::default();
        for (at, slot) in Vec::<(Instant, u32)>::deserialize(from)? {
            deadlines.insert(at, slot);
        }
        Ok(deadlines)
    }
}
