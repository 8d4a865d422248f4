//! The audit log: a line for each access to personal data, by the API or by a command (TS 33.117 §4.2.3.2.5,
//! TS 33.515 §4.2.3.2.5).
//!
//! The file is in the directory of the subscribers' file, readable by its owner only. It holds no personal data and no key: a subscriber
//! has a pseudonym, the same in each line, that only the holder of the key file can resolve. Each line ends with the SHA-256 of the line
//! before, so that a line that was changed, removed or inserted shows ([`verify`]). Requests without
//! authentication are counted, not written one by one ([`repeated`]): a sender without a login cannot push
//! the other lines out.

mod mirror;
pub mod repeated;
mod verify;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use tracing::{error, warn};
use whimbrel_ids::Supi;
use whimbrel_node::api_files::audit_parts as set_aside;
use whimbrel_node::config::Audit;
use whimbrel_node::{api_files, clock};
use whimbrel_store::Store;

pub use verify::verify;

/// A file of this length is set aside; each holds some 80,000 accesses.
const OCTETS_MAX: u64 = 16 << 20;
/// A file whose first entry is this old is set aside, too: so no entry stays for much longer than it has to.
const FILE_AGE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Characters of a request that are written: the longest route has 70; commands have more words.
const REQUEST_MAX: usize = 512;
/// Octets of the longest line, with room.
const LINE_OCTETS_MAX: usize = 4 << 10;
/// Hexadecimal digits of a SHA-256.
const HASH_DIGITS: usize = 64;
/// Tries to write to a file that other processes set aside meanwhile.
const TRIES: usize = 8;

/// An access to personal data, or a change, as a line of the audit log has it.
#[derive(Clone, Copy)]
pub struct AuditedAccess<'a> {
    /// Address of the API's client, or user of this host.
    pub caller: &'a str,
    /// The user or API token, where the API knows one.
    pub user: Option<&'a str>,
    /// What was requested, without variable parts.
    pub request: &'a str,
    /// The subscriber that it is about, if it is about one.
    pub subscriber: Option<&'a str>,
    /// Outcome: an HTTP status, or `begun`.
    pub outcome: &'a str,
}

/// The user that runs a command.
pub fn user() -> String {
    format!("uid={}", rustix::process::getuid().as_raw())
}

/// The audit log of a store.
pub fn file_of(store: &Path) -> PathBuf {
    api_files::audit_file(store)
}

/// Records an access. If that fails, it is logged, and the access is granted all the same: a full disk must not lock an operator out.
pub fn record(path: &Path, config: &Audit, store: Option<&Store>, access: &AuditedAccess<'_>) {
    record_times(path, config, store, access, None);
}

/// Records that the same access came `times` more times within a minute.
pub fn record_again(path: &Path, config: &Audit, access: &AuditedAccess<'_>, times: u64) {
    record_times(path, config, None, access, Some(times));
}

fn record_times(
    path: &Path,
    config: &Audit,
    store: Option<&Store>,
    access: &AuditedAccess<'_>,
    times: Option<u64>,
) {
    let subscriber = access.subscriber.and_then(|text| {
        // However it was written.
        let text = text.parse::<Supi>().map_or_else(|_| text.to_owned(), |supi| supi.to_string());
        store?.pseudonym(&text)
    });
    let subscriber = subscriber.as_deref().unwrap_or("-");
    let user = access.user.map(|user| format!(" user={user}")).unwrap_or_default();
    let times = times.map(|times| format!(" times={times}")).unwrap_or_default();
    let request: String = access.request.chars().take(REQUEST_MAX).collect();
    let entry = format!(
        "{} caller={}{user} request={request:?} subscriber={subscriber} outcome={}{times}",
        clock::rfc3339(clock::now()),
        access.caller,
        access.outcome
    );
    let file = file_of(path);
    match append(&file, config, &entry) {
        Ok(line) => mirror::send(&config.mirror, &line),
        Err(e) => {
            warn!("an access to personal data could not be recorded in {}: {e}", file.display());
            mirror::send(&config.mirror, &entry);
        }
    }
}

/// Octets of the log's end that are read for its newest lines.
const READ_MAX: u64 = 1 << 20;

/// The newest lines, newest first; none if there is no log yet.
pub fn newest(store: &Path, limit: usize) -> io::Result<Vec<String>> {
    let file = file_of(store);
    let mut lines = Vec::new();
    for path in set_aside(&file)?.into_iter().map(|(_, path)| path).chain([file]).rev() {
        if lines.len() >= limit {
            break;
        }
        lines.extend(newest_of(&path)?);
    }
    lines.truncate(limit);
    Ok(lines)
}

/// The newest lines of one file, newest first.
fn newest_of(path: &Path) -> io::Result<Vec<String>> {
    let mut file = match whimbrel_files::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
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
    Ok(lines)
}

/// Appends an entry as a line with the hash of the line before. Returns the line.
fn append(file: &Path, config: &Audit, entry: &str) -> io::Result<String> {
    for _ in 0..TRIES {
        let mut open = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(file)?;
        // Commands write beside the core: one at a time reads the last line and adds the next.
        flock(&open, FlockOperation::LockExclusive)?;
        let meta = open.metadata()?;
        if !fs::metadata(file).is_ok_and(|m| (m.dev(), m.ino()) == (meta.dev(), meta.ino())) {
            // Another process set it aside while this one waited.
            continue;
        }
        // A container's root may not give files away; there the core is root as well, and writes the file all the same.
        let _ = give_to_owner_of_folder(&open, file);
        if meta.len() >= OCTETS_MAX
            || meta.len() > 0 && age_of_first(&open).is_some_and(|age| age > FILE_AGE_MAX)
        {
            let number = set_aside(file)?.last().map_or(0, |(number, _)| *number) + 1;
            fs::rename(file, aside(file, number))?;
            prune(file, config)?;
            continue;
        }
        let (former, torn) = match last_line(&mut open)? {
            Some((line, torn)) => (hash_of(&line), torn),
            None => hash_before(file)?,
        };
        let line = format!("{entry} former={former}");
        // One write for the line: a reader sees all of it or nothing.
        open.write_all(format!("{}{line}\n", if torn { "\n" } else { "" }).as_bytes())?;
        return Ok(line);
    }
    Err(io::Error::other("other processes set the file aside again and again"))
}

/// Gives a file that root made to the owner of its folder, the core's user. That user may have put a link to a file of root's there,
/// so only a file whose one name is in this folder is given.
fn give_to_owner_of_folder(open: &File, file: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (found, folder) = (open.metadata()?, fs::metadata(folder_of(file))?);
    let named = fs::symlink_metadata(file)?;
    let is_alone =
        found.is_file() && found.nlink() == 1 && (named.dev(), named.ino()) == (found.dev(), found.ino());
    if found.uid() == 0 && folder.uid() != 0 && is_alone {
        fchown(open, Some(folder.uid()), Some(folder.gid()))?;
    }
    Ok(())
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The hash with which a file begins: that of the last line of the file set aside before it, or zeros.
fn hash_before(file: &Path) -> io::Result<(String, bool)> {
    let Some((_, newest)) = set_aside(file)?.pop() else { return Ok(("0".repeat(HASH_DIGITS), false)) };
    let last = last_line(&mut whimbrel_files::open(&newest)?)?;
    Ok((last.map_or_else(|| "0".repeat(HASH_DIGITS), |(line, _)| hash_of(&line)), false))
}

/// The last line of a file, and whether its end is missing. `None`: the file is empty.
fn last_line(file: &mut File) -> io::Result<Option<(Vec<u8>, bool)>> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LINE_OCTETS_MAX as u64)))?;
    let mut end = Vec::new();
    file.take(LINE_OCTETS_MAX as u64).read_to_end(&mut end)?;
    let torn = end.last().is_some_and(|octet| *octet != b'\n');
    let whole = end.strip_suffix(b"\n").unwrap_or(&end);
    Ok((!end.is_empty())
        .then(|| (whole.rsplit(|octet| *octet == b'\n').next().unwrap_or_default().to_vec(), torn)))
}

/// The hash that the line after a line carries.
fn hash_of(line: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, line);
    digest.as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
}

/// How long ago the first entry of a file was written.
fn age_of_first(file: &File) -> Option<Duration> {
    use std::os::unix::fs::FileExt;
    /// A time as `clock::rfc3339` writes it.
    const TIME_OCTETS: usize = "2026-01-01T00:00:00.000Z".len();
    let mut time = [0; TIME_OCTETS];
    file.read_exact_at(&mut time, 0).ok()?;
    let at: Timestamp = std::str::from_utf8(&time).ok()?.parse().ok()?;
    let now = clock::now().as_secs();
    Some(Duration::from_secs(now.saturating_sub(u64::try_from(at.as_second()).ok()?)))
}

/// The name of a file that was set aside.
fn aside(file: &Path, number: u64) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Deletes files that were set aside: those whose newest entry is older than is kept, and the oldest where all are too large.
fn prune(file: &Path, config: &Audit) -> io::Result<()> {
    let mut files = Vec::new();
    for (_, path) in set_aside(file)? {
        let meta = fs::metadata(&path)?;
        files.push((path, meta.len(), meta.modified()?));
    }
    let mut octets: u64 = files.iter().map(|(_, octets, _)| octets).sum();
    let keep = Duration::from_secs(u64::from(config.keep_days) * 86_400);
    let octets_max = (u64::from(config.mib_max) << 20).saturating_sub(OCTETS_MAX);
    for (path, length, newest_entry) in files {
        let is_old = SystemTime::now().duration_since(newest_entry).is_ok_and(|age| age > keep);
        if !is_old && octets <= octets_max {
            break;
        }
        if !is_old {
            error!(
                "the audit log has more than `audit.mib_max` ({} MiB): {} is deleted before its time",
                config.mib_max,
                path.display()
            );
        }
        fs::remove_file(&path)?;
        octets -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ACCESS: AuditedAccess<'_> = AuditedAccess {
        caller: "uid=0",
        user: None,
        request: "show",
        subscriber: Some("imsi-999700000000001"),
        outcome: "200",
    };

    fn days_ago(file: &Path, days: u64) {
        let at = SystemTime::now() - Duration::from_secs(days * 86_400);
        File::options().append(true).open(file).unwrap().set_modified(at).unwrap();
    }

    #[test]
    fn the_file_is_private_and_a_full_one_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let (store, config) = (folder.path().join("s.db"), Audit::default());
        let file = folder.path().join("s.db.audit");
        record(&store, &config, None, &ACCESS);
        let text = fs::read_to_string(&file).unwrap();
        let end =
            format!("caller=uid=0 request=\"show\" subscriber=- outcome=200 former={}\n", "0".repeat(64));
        assert!(text.ends_with(&end), "{text}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        record(&store, &config, None, &AuditedAccess { user: Some("anna"), ..ACCESS });
        let lines = newest(&store, 1).unwrap();
        assert!(lines.len() == 1 && lines[0].contains("caller=uid=0 user=anna request="), "{lines:?}");
        OpenOptions::new().write(true).open(&file).unwrap().set_len(OCTETS_MAX).unwrap();
        record(&store, &config, None, &ACCESS);
        record(&store, &config, None, &ACCESS);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
        assert_eq!(fs::metadata(folder.path().join("s.db.audit.1")).unwrap().len(), OCTETS_MAX);
    }

    #[test]
    fn a_file_that_root_makes_belongs_to_the_owner_of_its_folder() {
        const CORE: u32 = 10_001;
        let folder = tempfile::tempdir().unwrap();
        // Only root can give files away.
        if !rustix::process::geteuid().is_root()
            || std::os::unix::fs::chown(folder.path(), Some(CORE), Some(CORE)).is_err()
        {
            return;
        }
        let (store, config) = (folder.path().join("s.db"), Audit::default());
        let file = file_of(&store);
        record(&store, &config, None, &ACCESS);
        let meta = fs::metadata(&file).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (CORE, CORE));
        // Also the file after one that was set aside.
        OpenOptions::new().write(true).open(&file).unwrap().set_len(OCTETS_MAX).unwrap();
        record(&store, &config, None, &ACCESS);
        assert!(aside(&file, 1).exists());
        assert_eq!(fs::metadata(&file).unwrap().uid(), CORE);
        // A link to a file of root's is not followed.
        let elsewhere = tempfile::tempdir().unwrap();
        let of_root = elsewhere.path().join("of-root");
        fs::write(&of_root, "").unwrap();
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&of_root, &file).unwrap();
        record(&store, &config, None, &ACCESS);
        assert_eq!(fs::metadata(&of_root).unwrap().uid(), 0);
    }

    #[test]
    fn entries_are_kept_for_their_days_and_deleted_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let (store, config) = (folder.path().join("s.db"), Audit { keep_days: 30, ..Audit::default() });
        let file = file_of(&store);
        for number in 1..=4 {
            fs::write(aside(&file, number), "x\n").unwrap();
        }
        days_ago(&aside(&file, 1), 40);
        days_ago(&aside(&file, 2), 31);
        days_ago(&aside(&file, 3), 29);
        prune(&file, &config).unwrap();
        let left: Vec<u64> = set_aside(&file).unwrap().into_iter().map(|(number, _)| number).collect();
        assert_eq!(left, [3, 4]);
        // A file that is as long as the bound takes the room of the oldest, however young they are.
        File::options().append(true).open(aside(&file, 4)).unwrap().set_len(64 << 20).unwrap();
        prune(&file, &Audit { mib_max: 80, ..config.clone() }).unwrap();
        assert_eq!(set_aside(&file).unwrap().len(), 1);
    }

    #[test]
    fn a_file_is_set_aside_when_its_first_entry_is_a_week_old() {
        let folder = tempfile::tempdir().unwrap();
        let (store, config) = (folder.path().join("s.db"), Audit::default());
        let file = file_of(&store);
        fs::write(&file, "2020-01-01T00:00:00.000Z caller=uid=0 request=\"x\" subscriber=- outcome=200\n")
            .unwrap();
        record(&store, &config, None, &ACCESS);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1);
        assert!(aside(&file, 1).exists());
        assert_eq!(newest(&store, 10).unwrap().len(), 2, "also lines of the file that was set aside");
    }

    #[test]
    fn processes_that_write_at_the_same_time_keep_the_chain() {
        let folder = tempfile::tempdir().unwrap();
        let (store, config) = (folder.path().join("s.db"), Audit::default());
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..50).for_each(|_| record(&store, &config, None, &ACCESS)));
            }
        });
        assert_eq!(verify(&store).unwrap().lines, 200);
    }
}
