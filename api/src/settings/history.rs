//! Former versions of the configuration file, each with its time, its author and the whole text, beside the store and readable by its owner only.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;
use whimbrel_node::api_files::beside;
use whimbrel_node::clock;

/// Versions that are kept: more than a year of weekly changes.
pub(crate) const VERSIONS_MAX: usize = 64;
/// Octets of all versions together: a configuration has some thousand.
const OCTETS_MAX: usize = 8 << 20;

/// Octets of the file: JSON has at most six octets for one of a text.
const FILE_OCTETS_MAX: u64 = 8 * OCTETS_MAX as u64;

/// A version of the configuration file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Version {
    /// Number of the version, from 1.
    pub(super) number: u64,
    /// When it was saved, RFC 3339; of a change on the host, the file's own time.
    pub(super) at: String,
    /// The user or API token; empty: it was changed on the host.
    pub(super) by: String,
    /// What was done.
    pub(super) how: String,
    pub(super) text: String,
}

/// A version as lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationVersion")]
pub(in super::super) struct VersionView {
    /// Number of the version, from 1.
    pub(super) number: u64,
    /// When it was saved, RFC 3339; of a change on the host, the file's own time.
    pub(super) at: String,
    /// The user or API token; empty: it was changed on the host.
    pub(super) by: String,
    /// The way in which it came to be.
    pub(super) how: String,
    /// Lines that this version has and the one before does not.
    pub(super) added: usize,
    /// Lines that the version before has and this one does not.
    pub(super) removed: usize,
}

/// The folder with all versions.
pub(super) struct SettingsHistory(PathBuf);

impl SettingsHistory {
    /// The history beside a store.
    pub(super) fn of(store: &Path) -> Self {
        Self(beside(store, ".configurations"))
    }

    fn read(&self) -> io::Result<Vec<Version>> {
        match whimbrel_files::read(&self.0, FILE_OCTETS_MAX) {
            Ok(octets) => serde_json::from_slice(&octets).map_err(io::Error::from),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// The versions, newest first.
    pub(super) fn views(&self) -> io::Result<Vec<VersionView>> {
        let versions = self.read()?;
        let mut views = Vec::new();
        for (i, version) in versions.iter().enumerate() {
            let before = i.checked_sub(1).and_then(|i| versions.get(i)).map_or("", |v| v.text.as_str());
            let Version { number, at, by, how, text } = version.clone();
            let (added, removed) = (surplus(&text, before), surplus(before, &text));
            views.push(VersionView { number, at, by, how, added, removed });
        }
        views.reverse();
        Ok(views)
    }

    /// The version of this number, if it is kept.
    pub(super) fn version(&self, number: u64) -> io::Result<Option<Version>> {
        Ok(self.read()?.into_iter().find(|v| v.number == number))
    }

    /// Adds a version. Returns its number.
    pub(super) fn add(&self, by: &str, how: &str, text: String) -> io::Result<u64> {
        self.push(clock::rfc3339(clock::now()), by, how, text)
    }

    /// Adds what stands in the file, unless it is the newest version.
    pub(super) fn found(&self, text: &str, at: Option<SystemTime>) -> io::Result<()> {
        let versions = self.read()?;
        if versions.last().is_some_and(|v| v.text == text) {
            return Ok(());
        }
        let how = if versions.is_empty() { "first seen" } else { "changed on the host" };
        let at = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|d| Instant(d.as_micros() as u64));
        self.push(clock::rfc3339(at.unwrap_or_else(clock::now)), "", how, text.into()).map(drop)
    }

    fn push(&self, at: String, by: &str, how: &str, text: String) -> io::Result<u64> {
        let mut versions = self.read()?;
        let number = versions.last().map_or(0, |v| v.number) + 1;
        versions.push(Version { number, at, by: by.into(), how: how.into(), text });
        let octets = |versions: &[Version]| versions.iter().map(|v| v.text.len()).sum::<usize>();
        while versions.len() > 1 && (versions.len() > VERSIONS_MAX || octets(&versions) > OCTETS_MAX) {
            versions.remove(0);
        }
        let mut new = self.0.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let _ = fs::remove_file(&new);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&versions)?)?;
        file.sync_all()?;
        fs::rename(&new, &self.0)?;
        Ok(number)
    }
}

/// How many lines a text has that another one does not.
fn surplus(text: &str, other: &str) -> usize {
    let mut counts = std::collections::BTreeMap::new();
    other.lines().for_each(|line| *counts.entry(line).or_insert(0usize) += 1);
    text.lines()
        .filter(|line| match counts.get_mut(line) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        })
        .count()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn versions_are_bounded_private_and_numbered_on() {
        let folder = tempfile::tempdir().unwrap();
        let history = SettingsHistory::of(&folder.path().join("s.db"));
        for i in 0..VERSIONS_MAX + 6 {
            history.add("anna", "saved", format!("a: {i}\nb: 1\n")).unwrap();
        }
        let views = history.views().unwrap();
        assert_eq!((views.len(), views[0].number), (VERSIONS_MAX, VERSIONS_MAX as u64 + 6));
        assert_eq!((views[0].added, views[0].removed, views[0].by.as_str()), (1, 1, "anna"));
        assert!(history.version(1).unwrap().is_none(), "the oldest are dropped first");
        let mode = fs::metadata(folder.path().join("s.db.configurations")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_was_changed_on_the_host_is_a_version_once() {
        let folder = tempfile::tempdir().unwrap();
        let history = SettingsHistory::of(&folder.path().join("s.db"));
        for text in ["a", "a", "b", "b", "a"] {
            history.found(text, Some(UNIX_EPOCH)).unwrap();
        }
        let how: Vec<_> = history.views().unwrap().into_iter().map(|v| (v.number, v.how)).collect();
        let changed = "changed on the host".to_string();
        assert_eq!(how, [(3, changed.clone()), (2, changed), (1, "first seen".to_string())]);
        assert_eq!(history.version(1).unwrap().unwrap().at, "1970-01-01T00:00:00.000Z");
    }
}
