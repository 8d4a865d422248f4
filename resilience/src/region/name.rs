//! The name of a region, and of the larger one that contains it.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Geohash;

/// A level-1 region, with the larger level-2 region around it.
///
/// Written as it is configured: a geohash prefix such as `122303`, whose larger region is `12230`; or, where the operator draws
/// the map, `NORTH/HARBOUR`: the larger region's name and its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Region(RegionNameKind);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RegionNameKind {
    Cell(Geohash),
    Named { wider: String, name: String },
}

/// Characters of a name at most: it stands in keys, metrics and logs.
const NAME_MAX: usize = 32;

/// What is wrong with a region's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidRegion {
    /// A geohash of one character, which has no larger region, or of too many.
    Length(String),
    /// Neither a geohash nor two names.
    Form(String),
}

impl fmt::Display for InvalidRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(text) => {
                write!(f, "the geohash `{text}` of a region needs 2 to {} characters", Geohash::LENGTH_MAX)
            }
            Self::Form(text) => write!(
                f,
                "`{text}` is no region: write a geohash of the digits 0 to 3, or the larger region's name and its own as in \
                 `north/harbour`, each a letter and then letters, digits or `-`, {NAME_MAX} at most"
            ),
        }
    }
}

impl std::error::Error for InvalidRegion {}

impl TryFrom<String> for Region {
    type Error = InvalidRegion;

    fn try_from(text: String) -> Result<Self, InvalidRegion> {
        text.parse()
    }
}

impl From<Region> for String {
    fn from(region: Region) -> Self {
        region.to_string()
    }
}

impl FromStr for Region {
    type Err = InvalidRegion;

    fn from_str(text: &str) -> Result<Self, InvalidRegion> {
        if !text.is_empty() && text.bytes().all(|c| matches!(c, b'0'..=b'3')) {
            return Geohash::parse(text)
                .filter(|cell| cell.length() > 1)
                .map(|cell| Self(RegionNameKind::Cell(cell)))
                .ok_or_else(|| InvalidRegion::Length(text.into()));
        }
        match text.split_once('/') {
            Some((wider, name)) if [wider, name].into_iter().all(is_name) => {
                Ok(Self(RegionNameKind::Named { wider: wider.into(), name: name.into() }))
            }
            _ => Err(InvalidRegion::Form(text.into())),
        }
    }
}

/// A name begins with a letter, so that it is never taken for a geohash.
fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

impl Region {
    /// Its own name, without the larger region's: what distinguishes regions.
    pub fn name(&self) -> String {
        match &self.0 {
            RegionNameKind::Cell(cell) => cell.to_string(),
            RegionNameKind::Named { name, .. } => name.clone(),
        }
    }

    /// Its cell, unless the operator named it.
    pub fn cell(&self) -> Option<Geohash> {
        match self.0 {
            RegionNameKind::Cell(cell) => Some(cell),
            RegionNameKind::Named { .. } => None,
        }
    }

    /// Whether the other region belongs to the larger region around this one. Smaller cells in a larger one do, whatever their
    /// length.
    pub fn wider_holds(&self, other: &Region) -> bool {
        match (&self.0, &other.0) {
            (RegionNameKind::Cell(own), RegionNameKind::Cell(other)) => {
                own.wider().is_some_and(|wider| wider.covers(*other))
            }
            (RegionNameKind::Named { wider: own, .. }, RegionNameKind::Named { wider: other, .. }) => {
                own == other
            }
            _ => false,
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            RegionNameKind::Cell(cell) => write!(f, "{cell}"),
            RegionNameKind::Named { wider, name } => write!(f, "{wider}/{name}"),
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(text: &str) -> Region {
        text.parse().unwrap()
    }

    #[test] // Neutrino §4.3: one character less is the level-2 region
    fn four_sibling_cells_are_one_larger_region() {
        let own = region("122303");
        for sibling in ["122300", "122301", "122302", "122303"] {
            assert!(own.wider_holds(&region(sibling)), "{sibling}");
        }
        assert!(own.wider_holds(&region("1223021")), "a denser part of the map");
        for other in ["122313", "1223", "north/harbour"] {
            assert!(!own.wider_holds(&region(other)), "{other}");
        }
    }

    #[test]
    fn named_regions_share_the_larger_one_that_they_name() {
        assert!(region("north/harbour").wider_holds(&region("north/old-town")));
        assert!(!region("north/harbour").wider_holds(&region("south/hills")));
        assert_eq!(region("north/harbour").name(), "harbour");
    }

    #[test]
    fn a_name_reads_as_it_prints_and_a_wrong_one_is_refused() {
        for text in ["10", "122303", "north/harbour", "N/a-1"] {
            assert_eq!(region(text).to_string(), text);
        }
        for text in ["1", "0123012301230123012301230"] {
            assert_eq!(text.parse::<Region>(), Err(InvalidRegion::Length(text.into())));
        }
        for text in ["", "124", "north", "north/", "/x", "a/b/c", "north/1", "north/a b", "north/x\n", "n/ä"]
        {
            assert_eq!(text.parse::<Region>(), Err(InvalidRegion::Form(text.into())), "{text}");
        }
        assert!("1".parse::<Region>().unwrap_err().to_string().contains("2 to 24 characters"));
        assert!("north".parse::<Region>().unwrap_err().to_string().contains("`north` is no region"));
    }
}
