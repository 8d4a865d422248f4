//! The audit log: a line for each access to personal data, by the API or by a command (TS 33.117 §4.2.3.2.5,
//! TS 33.515 §4.2.3.2.5).
//!
//! The file is in the directory of the subscribers' file, readable by its owner only. It holds no personal data and no key: a subscriber
//! has a pseudonym, the same in each line, that only the holder of the key file can resolve.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tracing::warn;
use whimbrel_ids::Supi;
use whimbrel_store::Store;

use crate::clock;

/// A file of this length is set aside, and the one set aside before is deleted: the two hold some 200,000 accesses.
const OCTETS_MAX: u64 = 16 << 20;

/// One access.
pub(crate) struct Access<'a> {
    /// Address of the API's client, or user of this host.
    pub(crate) caller: &'a str,
    /// The user or API token, where the API knows one.
    pub(crate) user: Option<&'a str>,
    /// What was requested, without variable parts.
    pub(crate) request: &'a str,
    /// The subscriber that it is about, if it is about one.
    pub(crate) subscriber: Option<&'a str>,
    /// Outcome: an HTTP status, or `begun`.
    pub(crate) outcome: &'a str,
}

/// The user that runs a command.
pub(crate) fn user() -> String {
    format!("uid={}", rustix::process::getuid().as_raw())
}

/// The audit log of a store.
pub(crate) fn file_of(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".audit");
    name.into()
}

/// Records an access. If that fails, it is logged, and the access is granted all the same: a full disk must not lock an operator out.
pub(crate) fn record(path: &Path, store: Option<&Store>, access: &Access<'_>) {
    let subscriber = access.subscriber.and_then(|text| {
        // However it was written.
        let text = text.parse::<Supi>().map_or_else(|_| text.to_owned(), |supi| supi.to_string());
        store?.pseudonym(&text)
    });
    let subscriber = subscriber.as_deref().unwrap_or("-");
    let user = access.user.map(|user| format!(" user={user}")).unwrap_or_default();
    let line = format!(
        "{} caller={}{user} request={:?} subscriber={subscriber} outcome={}\n",
        clock::rfc3339(clock::now()),
        access.caller,
        access.request,
        access.outcome
    );
    let file = file_of(path);
    if let Err(e) = append(&file, line.as_bytes()) {
        warn!("an access to personal data could not be recorded in {}: {e}", file.display());
    }
}

/// Octets of the log's end that are read for its newest lines.
const READ_MAX: u64 = 1 << 20;

/// The newest lines, newest first; none if there is no log yet.
pub(crate) fn newest(store: &Path, limit: usize) -> std::io::Result<Vec<String>> {
    let mut file = match fs::File::open(file_of(store)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_MAX)))?;
    let mut octets = Vec::new();
    file.take(READ_MAX).read_to_end(&mut octets)?;
    let text = String::from_utf8_lossy(&octets);
    // The first line may have lost its beginning.
    let whole = text.lines().skip(usize::from(length > READ_MAX));
    let mut lines: Vec<String> = whole.map(str::to_owned).collect();
    lines.reverse();
    lines.truncate(limit);
    Ok(lines)
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
        let access = Access {
            caller: "uid=0",
            user: None,
            request: "show",
            subscriber: Some("imsi-999700000000001"),
            outcome: "200",
        };
        record(&folder.join("s.db"), None, &access);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("caller=uid=0 request=\"show\" subscriber=- outcome=200\n"), "{text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        record(&folder.join("s.db"), None, &Access { user: Some("anna"), ..access });
        let newest = newest(&folder.join("s.db"), 1).unwrap();
        assert!(newest.len() == 1 && newest[0].contains("caller=uid=0 user=anna request="), "{newest:?}");
        fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(OCTETS_MAX).unwrap();
        record(&folder.join("s.db"), None, &access);
        record(&folder.join("s.db"), None, &access);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
        assert_eq!(fs::metadata(folder.join("s.db.audit.1")).unwrap().len(), OCTETS_MAX);
        fs::remove_dir_all(&folder).unwrap();
    }
}
