//! The condition of each part of the program: what is up, and what is missing, in a sentence.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How well a part serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Condition {
    /// It serves.
    Up,
    /// It serves with a limit that its sentence tells.
    Limited,
    /// It does not serve.
    Down,
}

/// One part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Component {
    /// `n2`, `n3`, `n4`, `n6`, `store`, `api`.
    pub(crate) name: String,
    /// How well it serves.
    pub(crate) condition: Condition,
    /// Where it listens; or cause, effect and fix of what is missing.
    pub(crate) detail: String,
}

/// All parts.
#[derive(Debug, Default)]
pub(crate) struct Components(BTreeMap<&'static str, Component>);

impl Components {
    /// Sets a part's condition.
    pub(crate) fn set(&mut self, name: &'static str, condition: Condition, detail: impl Into<String>) {
        self.0.insert(name, Component { name: name.into(), condition, detail: detail.into() });
    }

    /// The parts by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Component> {
        self.0.values()
    }

    /// The worst condition of all.
    pub(crate) fn overall(&self) -> Condition {
        self.all().map(|c| c.condition).max().unwrap_or(Condition::Up)
    }
}
