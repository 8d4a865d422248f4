//! Geohashes with two bits a character, as Neutrino §4.3 uses them.

use core::fmt;

/// A cell of the earth's surface: each character halves it in longitude (its upper bit) and in latitude (its lower bit).
///
/// The bits are those of the common geohash, which writes five of them in a character: `ezs42` is `123333001001` and one
/// bit more. A cell of twelve characters is 10 km wide at the equator and 5 km high; one character less is a cell four times as large.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Geohash {
    /// The characters, the last one lowest.
    bits: u64,
    length: u8,
}

impl Geohash {
    /// Characters at most: a cell of twenty-four is 2 m wide, less than what position services tell apart.
    pub const LENGTH_MAX: u8 = 24;

    /// The cell of this length that contains a place; degrees, north and east positive. `None`: no such place or length.
    pub fn of(latitude: f64, longitude: f64, length: u8) -> Option<Self> {
        let earth = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        if !earth || !(1..=Self::LENGTH_MAX).contains(&length) {
            return None;
        }
        let (mut south, mut north, mut west, mut east) = (-90.0, 90.0, -180.0, 180.0);
        let mut bits = 0;
        for _ in 0..length {
            bits = bits << 2
                | halve(&mut west, &mut east, longitude) << 1
                | halve(&mut south, &mut north, latitude);
        }
        Some(Self { bits, length })
    }

    /// From its characters, `0` to `3`.
    pub fn parse(text: &str) -> Option<Self> {
        let length = u8::try_from(text.len()).ok().filter(|n| (1..=Self::LENGTH_MAX).contains(n))?;
        let bits = text.bytes().try_fold(0, |bits, c| match c {
            b'0'..=b'3' => Some(bits << 2 | u64::from(c - b'0')),
            _ => None,
        })?;
        Some(Self { bits, length })
    }

    /// The cell four times as large around this one; `None` for a quarter of the earth.
    pub fn wider(self) -> Option<Self> {
        (self.length > 1).then(|| Self { bits: self.bits >> 2, length: self.length - 1 })
    }

    /// Whether the other cell is this one or within it.
    pub fn covers(self, other: Self) -> bool {
        other.length >= self.length && other.bits >> (2 * (other.length - self.length)) == self.bits
    }

    /// Number of characters.
    pub fn length(self) -> u8 {
        self.length
    }
}

/// The half of an interval that contains a value: 1 is the upper one.
fn halve(low: &mut f64, high: &mut f64, value: f64) -> u64 {
    let middle = (*low + *high) / 2.0;
    if value >= middle {
        *low = middle;
        1
    } else {
        *high = middle;
        0
    }
}

impl fmt::Display for Geohash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..self.length).rev().try_for_each(|place| write!(f, "{}", self.bits >> (2 * place) & 3))
    }
}

impl fmt::Debug for Geohash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Geohash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The common geohash's characters, five bits each, as ours: an odd last bit is left out.
    fn from_common(text: &str) -> String {
        const ALPHABET: &str = "0123456789bcdefghjkmnpqrstuvwxyz";
        let bits: Vec<usize> = text
            .chars()
            .filter_map(|c| ALPHABET.find(c))
            .flat_map(|v| (0..5).rev().map(move |place| v >> place & 1))
            .collect();
        bits.chunks_exact(2).map(|pair| (pair[0] * 2 + pair[1]).to_string()).collect()
    }

    #[test] // places whose geohash is published: near León, in Jutland, in Curitiba
    fn cells_are_those_of_the_common_geohash() {
        for (latitude, longitude, common) in [
            (42.605, -5.603, "ezs42"),
            (57.64911, 10.40744, "u4pruydqqvj"),
            (-25.382708, -49.265506, "6gkzwgjzn820"),
        ] {
            let ours: String = from_common(common).chars().take(24).collect();
            let cell = Geohash::of(latitude, longitude, ours.len() as u8).unwrap();
            assert_eq!(cell.to_string(), ours, "{common}");
        }
        assert_eq!(Geohash::of(42.605, -5.603, 12).unwrap().to_string(), "123333001001");
    }

    #[test]
    fn places_and_lengths_that_are_none_have_no_cell() {
        for (latitude, longitude, length) in [
            (91.0, 0.0, 4),
            (0.0, 180.5, 4),
            (f64::NAN, 0.0, 4),
            (0.0, f64::INFINITY, 4),
            (0.0, 0.0, 0),
            (0.0, 0.0, 25),
        ] {
            assert_eq!(Geohash::of(latitude, longitude, length), None);
        }
        for text in ["", "4", "12a", "0123012301230123012301230"] {
            assert_eq!(Geohash::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_cell_reads_as_it_prints_and_is_within_its_wider_ones(
            latitude in -90.0..=90.0, longitude in -180.0..=180.0, length in 2..=24u8,
        ) {
            let cell = Geohash::of(latitude, longitude, length).unwrap();
            prop_assert_eq!(Geohash::parse(&cell.to_string()), Some(cell));
            let wider = cell.wider().unwrap();
            prop_assert_eq!(Geohash::of(latitude, longitude, length - 1), Some(wider));
            prop_assert!(wider.covers(cell) && !cell.covers(wider) && cell.covers(cell));
        }
    }
}
