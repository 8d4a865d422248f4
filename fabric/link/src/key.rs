//! The cluster's key.

use std::io::{Error, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Keys in one file, at most: the one in force, and those before or after it while it changes.
pub const KEYS_MAX: usize = 4;
/// Longest key file that is read: the keys and a comment's worth of blanks.
const FILE_OCTETS_MAX: u64 = 1024;

/// The secret that the processes of a cluster share. Wiped when dropped, hidden in `Debug`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct ClusterKey([u8; 32]);

impl ClusterKey {
    /// From its octets, which must be random: a key that can be guessed protects nothing.
    pub const fn new(octets: [u8; 32]) -> Self {
        Self(octets)
    }

    /// Its octets: secret.
    pub const fn octets(&self) -> &[u8; 32] {
        &self.0
    }

    /// The keys of a file: one a line, 64 hexadecimal digits each, the one for outgoing links first. `openssl rand -hex 32` makes one.
    ///
    /// Errors: [`KeyError`]; also for a file that every user can read.
    pub fn read(path: &Path) -> Result<Vec<ClusterKey>, KeyError> {
        let unreadable = |e| KeyError::Unreadable(path.to_owned(), e);
        let file = whimbrel_files::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(KeyError::Exposed(path.to_owned(), mode));
        }
        // Room for the longest file, so that the text is never moved and a copy left behind.
        let mut text = Zeroizing::new(String::with_capacity(FILE_OCTETS_MAX as usize + 1));
        file.take(FILE_OCTETS_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        let malformed = || KeyError::Malformed(path.to_owned());
        if text.len() as u64 > FILE_OCTETS_MAX {
            return Err(malformed());
        }
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys: Option<Vec<ClusterKey>> = lines.map(from_hex).collect();
        keys.filter(|keys| (1..=KEYS_MAX).contains(&keys.len())).ok_or_else(malformed)
    }
}

impl core::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

fn from_hex(text: &str) -> Option<ClusterKey> {
    let digits = text.as_bytes();
    let mut key = ClusterKey([0; 32]);
    if digits.len() != 2 * key.0.len() {
        return None;
    }
    for (octet, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        *octet = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
    }
    Some(key)
}

/// Why a key file gives no keys.
#[derive(Debug)]
pub enum KeyError {
    /// It cannot be read.
    Unreadable(PathBuf, Error),
    /// Every user can read it; its mode.
    Exposed(PathBuf, u32),
    /// It does not hold one to [`KEYS_MAX`] keys of 64 hexadecimal digits.
    Malformed(PathBuf),
}

impl core::fmt::Display for KeyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            KeyError::Unreadable(path, e) => {
                write!(f, "the cluster's key file {} cannot be read: {e}", path.display())
            }
            KeyError::Exposed(path, mode) => {
                write!(
                    f,
                    "every user can read the cluster's key file {0} (mode {mode:o}): run chmod 600 {0}",
                    path.display()
                )
            }
            KeyError::Malformed(path) => write!(
                f,
                "the cluster's key file {} does not hold keys of 64 hexadecimal digits, one a line: `openssl rand -hex 32` makes one",
                path.display()
            ),
        }
    }
}

impl core::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The outcome for a file with this content and mode.
    fn read(name: &str, content: &[u8], mode: u32) -> Result<Vec<ClusterKey>, KeyError> {
        let path = std::env::temp_dir().join(format!("whimbrel-link-key-{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let keys = ClusterKey::read(&path);
        fs::remove_file(&path).unwrap();
        keys
    }

    #[test]
    fn keys_stand_one_a_line_the_one_to_call_with_first() {
        let text = format!("{}\n\n  {}\r\n", "0aF1".repeat(16), "22".repeat(32));
        let keys = read("two", text.as_bytes(), 0o640).unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[0].octets()[..4], [0x0a, 0xf1, 0x0a, 0xf1]);
        assert_eq!(keys[1].octets(), &[0x22; 32]);
        assert_eq!(format!("{:?}", keys[0]), "ClusterKey(…)");
    }

    #[test]
    fn what_is_no_key_file_is_refused() {
        let key = "ab".repeat(32);
        for (name, content) in [
            ("empty", String::new()),
            ("short", key[1..].to_owned()),
            ("long", format!("{key}a")),
            ("letters", key.replace('a', "g")),
            ("sign", key.replacen("ab", "+b", 1)),
            ("many", format!("{key}\n").repeat(KEYS_MAX + 1)),
            ("huge", " ".repeat(2000) + &key),
        ] {
            assert!(matches!(read(name, content.as_bytes(), 0o600), Err(KeyError::Malformed(_))), "{name}");
        }
        assert!(matches!(read("binary", &[0xff; 64], 0o600), Err(KeyError::Unreadable(..))));
        assert!(matches!(read("open", key.as_bytes(), 0o644), Err(KeyError::Exposed(_, 0o644))));
        assert!(matches!(ClusterKey::read(Path::new("/nonexistent/key")), Err(KeyError::Unreadable(..))));
    }
}
