//! Which code runs a log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of the code that runs UEs' inputs: a digest of its sources, made when it is built. A log is run again by the version that ran it,
/// and by no other; one version is neither older nor newer than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CodeVersion(pub u32);

impl CodeVersion {
    /// What this program was built of.
    const BUILT: Self = Self(include!(concat!(env!("OUT_DIR"), "/code_version")));

    /// That of this process. Debug builds, and those with the feature `faults`, take another's name if `WHIMBREL_CODE_VERSION` says so (a number):
    /// two versions can be tried with one build.
    pub fn own() -> Self {
        #[cfg(any(debug_assertions, feature = "faults"))]
        {
            static WANTED: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
            let wanted = || std::env::var("WHIMBREL_CODE_VERSION").ok()?.parse().ok();
            WANTED.get_or_init(wanted).map_or(Self::BUILT, Self)
        }
        #[cfg(not(any(debug_assertions, feature = "faults")))]
        Self::BUILT
    }
}

/// As an operator reads it.
impl fmt::Display for CodeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}
