//! A canary: CPFs of a new code version serve some UEs beside the CPFs of the version in force, until it is promoted or rolled back.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use whimbrel_control::UeId;
use whimbrel_ids::{SNssai, Supi};

use super::ring::share;
use crate::CodeVersion;

/// UEs that a canary may list: the configuration with their SUPIs then fits into one line of a unit's manager.
pub const LISTED_MAX: usize = 500;

/// The new version, and the UEs that its CPFs serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// The code version of its CPFs.
    pub code: CodeVersion,
    /// Which UEs it serves.
    pub ues: CanaryUes,
}

/// Which UEs a canary serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CanaryUes {
    /// So many of a hundred, by a hash of the UE's slot: a UE stays on its side as long as it is registered, and a larger share contains a
    /// smaller one.
    Percent(u8),
    /// The subscribers of this list.
    Listed(BTreeSet<Supi>),
}

impl Canary {
    /// Whether the UE is among the share.
    pub fn takes(&self, ue: UeId) -> bool {
        matches!(self.ues, CanaryUes::Percent(percent) if share(ue) < percent)
    }

    /// Whether it serves no UE any more: its CPFs drain.
    pub fn ends(&self) -> bool {
        self.ues == CanaryUes::Percent(0)
    }

    /// The subscribers that are listed.
    pub fn listed(&self) -> impl Iterator<Item = Supi> + '_ {
        let listed = match &self.ues {
            CanaryUes::Listed(supis) => Some(supis),
            CanaryUes::Percent(_) => None,
        };
        listed.into_iter().flatten().copied()
    }

    /// Whether a subscriber is listed.
    pub fn lists(&self, supi: Supi) -> bool {
        matches!(&self.ues, CanaryUes::Listed(supis) if supis.contains(&supi))
    }
}

/// By which CPFs and network functions a UE is to be served, where there are several kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeKind {
    /// By those of the canary.
    pub canary: bool,
    /// By those of this slice; `None`: by those of no slice.
    pub slice: Option<SNssai>,
}
