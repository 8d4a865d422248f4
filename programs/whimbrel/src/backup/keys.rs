//! Keys and passphrases of sealed backups, in files.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use whimbrel_broker_common::crypto::{PrivateKey, Share};
use whimbrel_node::config::value::unhex;
use whimbrel_node::entropy::SystemEntropy;
use zeroize::Zeroizing;

use super::suffixed;

/// Stands before the digits of a public key.
const PUBLIC: &str = "whimbrel-backup-public-key ";
/// Stands before the digits of a private key.
const PRIVATE: &str = "whimbrel-backup-private-key ";
/// Octets of a key's or a passphrase's file at most.
const FILE_OCTETS_MAX: u64 = 4096;
/// Characters of a passphrase at least: as for the console's passwords.
const PASSPHRASE_CHARACTERS_MIN: usize = 10;

/// Makes a private key in a new file, and its public key in another, whose path it returns.
pub(crate) fn make_key(file: &Path) -> Result<PathBuf, String> {
    let octets = Zeroizing::new(SystemEntropy::new()?.octets::<32>());
    let public = suffixed(file, ".pub");
    for (file, text, mode) in [
        (file, Zeroizing::new(format!("{PRIVATE}{}\n", *hex(&octets))), 0o600),
        (&public, Zeroizing::new(format!("{PUBLIC}{}\n", *hex(&PrivateKey::new(*octets).share().0))), 0o644),
    ] {
        let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
        let written =
            made.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => {
                format!("{} exists: name another file; a key is never replaced", file.display())
            }
            _ => format!("{} cannot be written: {e}", file.display()),
        })?;
    }
    Ok(public)
}

/// The public key in a file that [`make_key`] made.
pub(crate) fn public_key(file: &Path) -> Result<Share, String> {
    let (text, _) = text_of(file)?;
    let Some(digits) = text.trim().strip_prefix(PUBLIC) else {
        let fix = match text.starts_with(PRIVATE) {
            true => format!("it is a private key: name {}.pub, which was made with it", file.display()),
            false => "make a pair of keys with `whimbrel backup keygen FILE`, and name FILE.pub".into(),
        };
        return Err(format!("{} has no public key: {fix}", file.display()));
    };
    Ok(Share(octets_of(digits, file)?))
}

/// The private key in a file that [`make_key`] made.
pub(crate) fn private_key(file: &Path) -> Result<PrivateKey, String> {
    let (text, is_exposed) = text_of(file)?;
    let Some(digits) = text.trim().strip_prefix(PRIVATE) else {
        return Err(format!(
            "{} has no private key: name the file that `whimbrel backup keygen` made, without .pub",
            file.display()
        ));
    };
    if is_exposed {
        return Err(exposed(file));
    }
    Ok(PrivateKey::new(octets_of(digits, file)?))
}

fn octets_of(digits: &str, file: &Path) -> Result<[u8; 32], String> {
    let octets = unhex(digits).map(Zeroizing::new).and_then(|octets| octets.as_slice().try_into().ok());
    octets.ok_or_else(|| format!("{} is damaged: a key has 64 hexadecimal digits", file.display()))
}

/// The passphrase in a file: its first line.
pub(crate) fn passphrase(file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let (text, is_exposed) = text_of(file)?;
    if is_exposed {
        return Err(exposed(file));
    }
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() < PASSPHRASE_CHARACTERS_MIN {
        return Err(format!(
            "the passphrase in {} is too short: write at least {PASSPHRASE_CHARACTERS_MIN} characters into its first line",
            file.display()
        ));
    }
    Ok(Zeroizing::new(line.as_bytes().to_vec()))
}

fn exposed(file: &Path) -> String {
    format!("every user can read {0}: run chmod 600 {0}", file.display())
}

/// The text of a small file, which may be a pipe, and whether everyone can read it.
fn text_of(file: &Path) -> Result<(Zeroizing<String>, bool), String> {
    let cannot = |e: std::io::Error| format!("{} cannot be read: {e}", file.display());
    let opened = File::open(file).map_err(cannot)?;
    let found = opened.metadata().map_err(cannot)?;
    let is_exposed = found.is_file() && found.permissions().mode() & 0o007 != 0;
    let mut octets = Zeroizing::new(Vec::with_capacity(FILE_OCTETS_MAX as usize + 1));
    opened.take(FILE_OCTETS_MAX + 1).read_to_end(&mut octets).map_err(cannot)?;
    let text = std::str::from_utf8(&octets).ok().filter(|_| octets.len() as u64 <= FILE_OCTETS_MAX);
    let text = text.ok_or_else(|| format!("{} is no text of a line", file.display()))?;
    Ok((Zeroizing::new(text.to_owned()), is_exposed))
}

fn hex(octets: &[u8; 32]) -> Zeroizing<String> {
    Zeroizing::new(octets.iter().map(|octet| format!("{octet:02x}")).collect())
}
