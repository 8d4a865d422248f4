//! The file of sessions that were reported and are not paid, `STORE.claims`. The core adds to it; `whimbrel-broker settle`, another process,
//! takes out what the broker has paid. A lock of the file `STORE.claims.lock` keeps them
//! apart, because a session that is added while the file is replaced would be lost.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::{files, hex, unhex};

/// A reported session that is not paid: a line of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct ReportedSession {
    /// The token of its session group, as a hash.
    pub group: [u8; 32],
    /// The name that its grant gave it.
    pub session: [u8; 32],
    /// Usage, as it was reported.
    pub units: u32,
    /// By which it is claimed: the nonce of its report is a hash of it.
    pub secret: [u8; 32],
}

impl core::fmt::Debug for ReportedSession {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "ReportedSession({}, {} units, …)", hex(&self.session), self.units)
    }
}

impl ReportedSession {
    /// The line of the file, with its end.
    pub fn line(&self) -> String {
        format!("{} {} {} {}\n", hex(&self.group), hex(&self.session), self.units, hex(&self.secret))
    }

    /// The session of a line; `None` if it is of no session.
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let mut next = || parts.next();
        let (group, session, units, secret) = (next()?, next()?, next()?, next()?);
        let octets = |text: &str| unhex(text)?.try_into().ok();
        Some(Self {
            group: octets(group)?,
            session: octets(session)?,
            units: units.parse().ok()?,
            secret: octets(secret)?,
        })
    }
}

/// The file, by its path.
#[derive(Clone, Debug)]
pub struct SessionFile(PathBuf);

impl SessionFile {
    /// At this path.
    pub const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn lock_file(&self) -> io::Result<File> {
        let mut path = self.0.clone().into_os_string();
        path.push(".lock");
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    /// Adds lines, which are on disk when this returns; `false` if another process has the file just now. It never waits for that process, so
    /// that none stops a core. Errors: the file cannot be written.
    pub fn add(&self, lines: &str) -> io::Result<bool> {
        let lock = self.lock_file()?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(e)) => return Err(e),
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.0)?;
        file.write_all(lines.as_bytes())?;
        file.sync_data()?;
        Ok(true)
    }

    /// The sessions of the file; none if there is no file. Lines that are of no session are left out. Waits for a core that adds one, so that no
    /// line is read in part. Errors: one sentence.
    pub fn sessions(&self) -> Result<Vec<ReportedSession>, String> {
        let lock = self.lock_file().map_err(|e| self.cannot_write(&e))?;
        lock.lock().map_err(|e| self.cannot_write(&e))?;
        Ok(self.text()?.lines().filter_map(ReportedSession::parse).collect())
    }

    fn cannot_write(&self, e: &io::Error) -> String {
        format!("{} cannot be written: {e}", self.0.display())
    }

    fn text(&self) -> Result<String, String> {
        match whimbrel_files::read(&self.0, whimbrel_files::LIST_OCTETS_MAX) {
            Ok(octets) => Ok(String::from_utf8_lossy(&octets).into_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(e) => Err(format!("{} cannot be read: {e}", self.0.display())),
        }
    }

    /// Takes sessions out. Waits for a core that adds one. Errors: one sentence.
    pub fn remove(&self, is_paid: impl Fn(&ReportedSession) -> bool) -> Result<(), String> {
        let lock = self.lock_file().map_err(|e| self.cannot_write(&e))?;
        lock.lock().map_err(|e| self.cannot_write(&e))?;
        let text = self.text()?;
        let is_left = |line: &&str| ReportedSession::parse(line).is_none_or(|session| !is_paid(&session));
        let left: String = text.lines().filter(is_left).map(|line| format!("{line}\n")).collect();
        files::write_durably(&self.0, left.as_bytes()).map_err(|e| self.cannot_write(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(n: u8, units: u32) -> ReportedSession {
        ReportedSession { group: [n; 32], session: [n; 32], units, secret: [n; 32] }
    }

    #[test]
    fn a_line_of_the_file_is_read_back() {
        assert_eq!(ReportedSession::parse(session(3, 7).line().trim()), Some(session(3, 7)));
        assert!(ReportedSession::parse("no session").is_none());
        assert!(ReportedSession::parse("a b 7 0102").is_none(), "the secret is too short");
    }

    #[test] // docs/veil.md: the core and `whimbrel-broker settle` write the same file
    fn a_session_that_is_reported_while_paid_ones_are_removed_is_added_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let core = SessionFile::new(folder.path().join("whimbrel.claims"));
        let settle = core.clone();
        assert!(core.sessions().unwrap().is_empty());
        let lines = [session(1, 5), session(2, 6)].map(|s| s.line()).concat();
        assert!(core.add(&format!("{lines}a line of a later version\n")).unwrap());
        settle
            .remove(|session| {
                assert!(!core.add(&self::session(3, 7).line()).unwrap(), "the file is being replaced");
                session.units == 5
            })
            .unwrap();
        assert!(core.add(&session(3, 7).line()).unwrap());
        assert_eq!(core.sessions().unwrap(), [session(2, 6), session(3, 7)]);
        let text = std::fs::read_to_string(core.path()).unwrap();
        assert!(text.contains("a line of a later version\n"), "what is not understood stays");
    }
}
