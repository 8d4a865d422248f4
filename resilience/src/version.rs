//! Which code runs a log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of the code that runs UEs' inputs: a digest of its sources, made at build time. A log is replayed only by the version that ran
/// it. Versions have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CodeVersion(pub u32);

impl CodeVersion {
    /// The version of this build.
    const BUILT: Self = Self(include!(concat!(env!("OUT_DIR"), "/code_version")));

    /// The version of this process. Debug builds and the feature `faults` take it from `WHIMBREL_CODE_VERSION` (a number), so that one
    /// build can act as two versions.
    pub fn own() -> Self {
        #[cfg(any(debug_assertions, feature = "faults"))]
        {
            static OVERRIDE: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();
            let read = || std::env::var("WHIMBREL_CODE_VERSION").ok()?.parse().ok();
            OVERRIDE.get_or_init(read).map_or(Self::BUILT, Self)
        }
        #[cfg(not(any(debug_assertions, feature = "faults")))]
        Self::BUILT
    }
}

/// As shown to operators.
impl fmt::Display for CodeVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}
