//! Who looked at or changed personal data: a line for each access, by the API or by a command (TS 33.117 §4.2.3.2.5,
//! TS 33.515 §4.2.3.2.5).
//!
//! The lines lie beside the subscribers' file, readable by its owner only. They hold no personal data and no key: a subscriber
//! stands there under a name that only the holder of the key file can lead back, the same in each line.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tracing::warn;
use whimbrel_ids::Supi;
use whimbrel_store::Store;

use crate::clock;

/// A file of this length is set aside, and the one set aside before is dropped: some 200,000 accesses are told.
const OCTETS_MAX: u64 = 16 << 20;

/// One access.
pub(crate) struct Access<'a> {
    /// By whom: an address of the API's, or a user of this host.
    pub(crate) who: &'a str,
    /// What was asked for, without variable parts.
    pub(crate) what: &'a str,
    /// The subscriber that was meant, if one was.
    pub(crate) whose: Option<&'a str>,
    /// What came of it.
    pub(crate) outcome: &'a str,
}

/// The user who runs a command.
pub(crate) fn user() -> String {
    format!("uid={}", rustix::process::getuid().as_raw())
}

/// Where the accesses to a store are told.
pub(crate) fn file_of(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".audit");
    name.into()
}

/// Writes an access down. One that cannot be written is told in the log, and is granted all the same: a full disk may not keep
/// an operator out.
pub(crate) fn record(path: &Path, store: Option<&Store>, access: &Access<'_>) {
    let whose = access.whose.and_then(|text| {
        // However it was written.
        let text = text.parse::<Supi>().map_or_else(|_| text.to_owned(), |supi| supi.to_string());
        store?.pseudonym(&text)
    });
    let whose = whose.as_deref().unwrap_or("-");
    let line = format!(
        "{} who={} what={:?} whose={whose} outcome={}\n",
        clock::rfc3339(clock::now()),
        access.who,
        access.what,
        access.outcome
    );
    let file = file_of(path);
    if let Err(e) = append(&file, line.as_bytes()) {
        warn!("an access to personal data could not be written to {}: {e}", file.display());
    }
}

fn append(file: &Path, line: &[u8]) -> std::io::Result<()> {
    if fs::metadata(file).is_ok_and(|m| m.len() >= OCTETS_MAX) {
        let mut aside = file.as_os_str().to_owned();
        aside.push(".1");
        fs::rename(file, aside)?;
    }
    // One write each: lines of several processes do not mix.
    OpenOptions::new().append(true).create(true).mode(0o600).open(file)?.write_all(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_bounded_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("whimbrel-audit-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("s.db.audit");
        let access =
            Access { who: "uid=0", what: "show", whose: Some("imsi-999700000000001"), outcome: "200" };
        record(&folder.join("s.db"), None, &access);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("who=uid=0 what=\"show\" whose=- outcome=200\n"), "{text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(OCTETS_MAX).unwrap();
        record(&folder.join("s.db"), None, &access);
        record(&folder.join("s.db"), None, &access);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
        assert_eq!(fs::metadata(folder.join("s.db.audit.1")).unwrap().len(), OCTETS_MAX);
        fs::remove_dir_all(&folder).unwrap();
    }
}
