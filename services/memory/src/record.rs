//! A record in a region: header, then the caller's octets.

use std::num::NonZeroU32;

/// Records begin at multiples of this.
pub(crate) const UNIT_OCTETS: usize = 16;
/// Octets of the header in front of a record: counter (2), length (2), owner (4).
pub(crate) const HEADER_OCTETS: usize = 8;
/// The longest record. Its length has 16 bits.
pub const MAX_RECORD_OCTETS: usize = u16::MAX as usize;

/// Units in a region, as a power of two: 2 MiB in units of 16 octets.
const UNIT_BITS: u32 = 17;
/// Regions that a [`RecordLocation`] can name: 64 GiB.
pub(crate) const MAX_REGIONS: usize = 1 << (32 - UNIT_BITS);

/// The index of the entry in the caller's table that holds the record's [`RecordLocation`].
pub type Owner = u32;

/// The owner in the header of a record that was removed.
pub(crate) const REMOVED: Owner = Owner::MAX;

/// Where a record is: region and unit in 32 bits, so that `Option<RecordLocation>` takes four octets in the caller's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordLocation(NonZeroU32);

impl RecordLocation {
    /// `None` for unit 0 of region 0, where no record begins.
    pub(crate) fn new(region: usize, offset: usize) -> Option<Self> {
        let unit = u32::try_from(offset / UNIT_OCTETS).ok()?;
        let region = u32::try_from(region).ok()?;
        NonZeroU32::new(region << UNIT_BITS | unit).map(Self)
    }

    /// As a number, for a table that stores places of several kinds.
    #[must_use]
    pub fn number(self) -> NonZeroU32 {
        self.0
    }

    /// The place of a number that [`RecordLocation::number`] gave. A place without a record is refused when it is used.
    #[must_use]
    pub fn from_number(number: NonZeroU32) -> Self {
        Self(number)
    }

    pub(crate) fn region(self) -> usize {
        (self.0.get() >> UNIT_BITS) as usize
    }

    /// Octets from the region's beginning.
    pub(crate) fn offset(self) -> usize {
        (self.0.get() & ((1 << UNIT_BITS) - 1)) as usize * UNIT_OCTETS
    }
}

/// What the header says, without the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) len: u16,
    pub(crate) owner: Owner,
}

impl RecordHeader {
    /// Octets that a record of this length takes, header and rounding included.
    pub(crate) fn span(self) -> usize {
        span(usize::from(self.len))
    }

    pub(crate) fn is_removed(self) -> bool {
        self.owner == REMOVED
    }

    /// The counter and the header of a record in a copy of its region; `None` at the end of the copy.
    pub(crate) fn read(octets: &[u8]) -> Option<(u16, Self)> {
        let (counter, octets) = octets.split_first_chunk()?;
        let (len, octets) = octets.split_first_chunk()?;
        let (owner, _) = octets.split_first_chunk()?;
        let header = Self { len: u16::from_ne_bytes(*len), owner: u32::from_ne_bytes(*owner) };
        Some((u16::from_ne_bytes(*counter), header))
    }
}

/// Octets that a record with so many of the caller's octets takes.
pub(crate) fn span(len: usize) -> usize {
    (HEADER_OCTETS + len).next_multiple_of(UNIT_OCTETS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::REGION_OCTETS;

    #[test]
    fn a_place_keeps_region_and_offset_in_four_octets() {
        assert_eq!(size_of::<Option<RecordLocation>>(), 4);
        assert_eq!(REGION_OCTETS / UNIT_OCTETS, 1 << UNIT_BITS);
        for (region, offset) in [(0, 16), (1, 0), (MAX_REGIONS - 1, REGION_OCTETS - UNIT_OCTETS)] {
            let place = RecordLocation::new(region, offset).unwrap();
            assert_eq!((place.region(), place.offset()), (region, offset));
        }
        assert_eq!(RecordLocation::new(0, 0), None);
    }

    #[test]
    fn a_record_takes_its_header_and_whole_units() {
        assert_eq!([0, 1, 8, 9, 400].map(span), [16, 16, 16, 32, 416]);
    }
}
