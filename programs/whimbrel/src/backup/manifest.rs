//! The first file of a backup: what the others are, and where they were.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What an archive's manifest says it is.
pub(crate) const FORMAT: &str = "whimbrel-backup";
/// The form of the archive that this version writes; it reads those up to this one.
pub(crate) const VERSION: u32 = 1;
/// Octets of a manifest at most.
pub(crate) const MANIFEST_OCTETS_MAX: u64 = 1 << 20;

/// The first file of an archive.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) format: String,
    pub(crate) version: u32,
    /// The program that wrote it.
    pub(crate) program: String,
    /// When, RFC 3339.
    pub(crate) created: String,
    /// Layout of the subscribers' file.
    pub(crate) layout: i64,
    pub(crate) subscribers: u64,
    pub(crate) files: Vec<Part>,
}

/// One further file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) octets: u64,
    /// SHA-256 in hexadecimal digits.
    pub(crate) sha256: String,
    /// Where it was.
    pub(crate) path: PathBuf,
}

impl Manifest {
    /// The manifest of an archive whose first file has this content; `None` if it is the manifest of something else.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let manifest: Self = serde_json::from_slice(text).ok()?;
        (manifest.format == FORMAT).then_some(manifest)
    }
}
