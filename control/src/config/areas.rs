//! Areas within the network: where a UE may move without registering.

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Tac, Tai};

use super::Amf;

/// How the tracking areas served are joined into registration areas (TS 23.501 §5.9.4, TS 24.501 §5.3.4).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Areas {
    /// Registration areas; a UE gets the first that names where it is. None at all: everything served is one area. An area
    /// that no list names is an area of its own.
    pub registration: Vec<Vec<Tac>>,
}

impl Amf {
    /// The registration area for a UE that is here: its own tracking area first.
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
