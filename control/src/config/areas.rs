//! Registration areas: where a UE may move without registering.

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Tac, Tai};

use super::Amf;

/// How the served tracking areas form registration areas (TS 23.501 §5.9.4, TS 24.501 §5.3.4).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RegistrationAreas {
    /// Lists of tracking areas; a UE gets the first list with its tracking area. No lists: all served areas are one. A
    /// tracking area in no list is a registration area of its own.
    pub registration: Vec<Vec<Tac>>,
}

impl Amf {
    /// The registration area for a tracking area, which comes first in it.
    pub fn registration_area(&self, here: Tai) -> impl Iterator<Item = Tai> + '_ {
        let lists = &self.areas.registration;
        let joined = match lists.iter().find(|list| list.contains(&here.tac)) {
            Some(list) => list.as_slice(),
            None if lists.is_empty() => &self.tacs,
            None => &[],
        };
        let others = joined.iter().copied().filter(move |&tac| tac != here.tac && self.tacs.contains(&tac));
        std::iter::once(here.tac).chain(others).map(move |tac| Tai { tac, ..here })
    }
}
