//! The condition of each part of the program, with a sentence.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Condition of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// The part works.
    Up,
    /// It works with a limitation, which its sentence names.
    Limited,
    /// It does not work.
    Down,
}

/// A part of the core, with its condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Component {
    /// `n2`, `n3`, `n4`, `n6`, `store`, `api`, `cta`, `cta_replica`, `cpfs`, `sbfd`, `postgres`.
    pub name: String,
    /// Condition of the part.
    pub condition: Condition,
    /// Where it listens; or cause, effect and fix of the problem.
    pub detail: String,
}

/// All parts, by name.
#[derive(Debug, Default)]
pub struct Components(BTreeMap<&'static str, Component>);

impl Components {
    /// Sets a part's condition.
    pub fn set(&mut self, name: &'static str, condition: Condition, detail: impl Into<String>) {
        self.0.insert(name, Component { name: name.into(), condition, detail: detail.into() });
    }

    /// The part of this name.
    pub fn get(&self, name: &str) -> Option<&Component> {
        self.0.get(name)
    }

    /// The parts by name.
    pub fn all(&self) -> impl Iterator<Item = &Component> {
        self.0.values()
    }

    /// The worst condition of all.
    pub fn overall(&self) -> Condition {
        self.all().map(|c| c.condition).max().unwrap_or(Condition::Up)
    }
}
