//! Where gNBs stand, for the map of the console. The core itself does not use it.

use whimbrel_ids::PlmnId;

use super::section::Section;
use super::value::Value;

/// Where a gNB stands.
#[derive(Clone, Debug, PartialEq)]
pub struct GnbPosition {
    pub gnb: GnbName,
    pub latitude: Degrees<90>,
    pub longitude: Degrees<180>,
}

/// A global gNB identifier as lists show it: `999/70-1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GnbName(pub String);

impl GnbName {
    /// Its PLMN and gNB ID.
    pub fn parts(&self) -> Option<(PlmnId, u32)> {
        let (plmn, id) = self.0.split_once('-')?;
        Some((plmn.parse().ok()?, u32::from_str_radix(id, 16).ok()?))
    }
}

impl Value for GnbName {
    fn read(text: &str) -> Result<Self, String> {
        let expected = || {
            "a gNB as `whimbrel gnb list` shows it: PLMN and identity in hexadecimal digits, such as 999/70-1a".to_string()
        };
        let text = text.trim();
        let (plmn, id) = text.strip_prefix("gnb-").unwrap_or(text).split_once('-').ok_or_else(expected)?;
        let id = u32::from_str_radix(id, 16).map_err(|_| expected())?;
        let plmn: PlmnId = plmn.parse().map_err(|_| expected())?;
        Ok(Self(format!("{plmn}-{id:x}")))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// Degrees, from minus to plus a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Degrees<const MAX: u8>(pub f64);

impl<const MAX: u8> Value for Degrees<MAX> {
    fn read(text: &str) -> Result<Self, String> {
        let degrees = text.trim().parse::<f64>().ok().filter(|d| d.abs() <= f64::from(MAX));
        degrees.map(Self).ok_or_else(|| format!("degrees of -{MAX} to {MAX}, such as 52.3702"))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Vec<GnbPosition> {
    let doc = "Where gNBs stand (WGS 84), for the map of the console, which else shows how they are connected. Each entry has `gnb` (as \
               `whimbrel gnb list` shows it), `latitude` and `longitude` in degrees.";
    root.sections("gnb_positions", 0, doc, |s, _| {
        let position = GnbPosition {
            gnb: s
                .optional("gnb", "999/70-1", "The gNB, as `whimbrel gnb list` shows it.")
                .unwrap_or_default(),
            latitude: s.value("latitude", Degrees(0.0), "Latitude in degrees, north positive."),
            longitude: s.value("longitude", Degrees(0.0), "Longitude in degrees, east positive."),
        };
        if position.gnb == GnbName::default() {
            s.refuse("gnb", "the position has no gNB", "name one, such as `gnb: 999/70-1`");
        }
        position
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gnb_is_named_as_lists_name_it() {
        for text in ["999/70-1a", "gnb-999/70-1A", " 999/70-0000001a "] {
            assert_eq!(GnbName::read(text), Ok(GnbName("999/70-1a".into())), "{text}");
        }
        assert!(GnbName::read("999/70").is_err() && GnbName::read("999/70-xyz").is_err());
    }

    #[test]
    fn degrees_are_bounded_and_numbers() {
        assert_eq!(Degrees::<90>::read("-89.5"), Ok(Degrees(-89.5)));
        for text in ["90.1", "NaN", "inf", "north"] {
            assert!(Degrees::<90>::read(text).is_err(), "{text}");
        }
    }
}
