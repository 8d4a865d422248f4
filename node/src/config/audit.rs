//! The audit log: how long it is kept, and where a copy goes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::section::Section;
use super::value::Value;

/// Days that entries are kept by default: a quarter of a year, in which most intrusions are found.
const KEEP_DAYS: u32 = 90;
/// Longest time that can be asked for: ten years.
const KEEP_DAYS_MAX: u32 = 3660;
/// MiB of all files together by default: five million accesses.
const MIB_MAX: u32 = 1024;

/// The audit log.
#[derive(Clone, Debug)]
pub struct Audit {
    /// Entries that are younger than this many days are not deleted for newer ones.
    pub keep_days: u32,
    /// MiB of all files together; beyond it the oldest are deleted whatever their age, so that the disk is not filled.
    pub mib_max: u32,
    pub mirror: Mirror,
}

impl Default for Audit {
    fn default() -> Self {
        Self { keep_days: KEEP_DAYS, mib_max: MIB_MAX, mirror: Mirror::None }
    }
}

/// Where a copy of each line goes as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mirror {
    None,
    /// This host's journal.
    Journald,
    /// A socket of this host's syslog.
    Syslog(PathBuf),
    /// A syslog server, by UDP (RFC 5426).
    SyslogServer(SocketAddr),
}

impl std::fmt::Display for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Journald => f.write_str("journald"),
            Self::Syslog(socket) => socket.display().fmt(f),
            Self::SyslogServer(address) => address.fmt(f),
        }
    }
}

impl Value for Mirror {
    fn read(text: &str) -> Result<Self, String> {
        match text.trim() {
            "none" => Ok(Self::None),
            "journald" => Ok(Self::Journald),
            "syslog" => Ok(Self::Syslog(Path::new("/dev/log").into())),
            path if path.starts_with('/') => Ok(Self::Syslog(path.into())),
            address => address.parse().map(Self::SyslogServer).map_err(|_| {
                "none, journald, syslog, the socket of a syslog such as /dev/log, or a server such as 192.0.2.9:514".into()
            }),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Audit {
    let doc = "The audit log beside the store: a line for each access to personal data and each change, each line with the hash of the one before \
               (docs/console.md). `whimbrel audit verify` checks it.";
    root.section("audit", doc, |s| {
        let keep_days = s.value(
            "keep_days",
            KEEP_DAYS,
            "Days for which each entry is kept at least; it is deleted within a week after that.",
        );
        let is_within = (1..=KEEP_DAYS_MAX).contains(&keep_days);
        s.bound("keep_days", is_within, format!("{keep_days} is out of bounds"), format!("1 to {KEEP_DAYS_MAX}"));
        let mib_max = s.value(
            "mib_max",
            MIB_MAX,
            "MiB of all its files together. Beyond it the oldest entries are deleted whatever their age, with an error in the log.",
        );
        let is_within = (64..=1 << 20).contains(&mib_max);
        s.bound("mib_max", is_within, format!("{mib_max} is out of bounds"), "64 to 1048576");
        let mirror = s.value(
            "mirror",
            Mirror::None,
            "Where a copy of each line goes at once: none; journald; syslog, or the path of its socket; or ADDRESS:PORT of a syslog server, by \
             UDP. Syslog gets it in the form of RFC 5424. A change of the file on this host does not change a copy elsewhere.",
        );
        Audit { keep_days, mib_max, mirror }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_of_copies_reads_as_it_is_shown() {
        for text in ["none", "journald", "/run/log", "192.0.2.9:514", "[2001:db8::9]:514"] {
            assert_eq!(Mirror::read(text).unwrap().show(), text);
        }
        assert_eq!(Mirror::read("syslog"), Ok(Mirror::Syslog("/dev/log".into())));
        assert!(Mirror::read("loghost").is_err());
    }
}
