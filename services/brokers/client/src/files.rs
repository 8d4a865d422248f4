//! Keys and SAP certificates in files: hexadecimal digits, with comments behind `#`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use whimbrel_open::crypto::{SigningKey, VerifyingKey};
use whimbrel_open::msg::{Certificate, Subject};
use zeroize::Zeroizing;

use crate::{hex, unhex};

/// Octets of a key or certificate file: the longest certificate is a tenth of it.
const FILE_OCTETS_MAX: u64 = 16 << 10;

/// Writes a new file that its owner alone can read. Errors: one sentence, also if the file exists.
pub fn write_private(path: &Path, text: &str) -> Result<(), String> {
    write(path, text, 0o600)
}

/// Writes a new file. Errors: one sentence, also if the file exists.
pub fn write_public(path: &Path, text: &str) -> Result<(), String> {
    write(path, text, 0o644)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut f| f.write_all(text.as_bytes())).map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} exists; choose another name or remove it", path.display())
        }
        _ => format!("{} cannot be written: {e}", path.display()),
    })
}

/// Replaces a file by one that its owner alone can read, so that a crash leaves the one or the other. No two files have the same new one:
/// several processes write files that differ in their extension alone.
pub fn write_durably(path: &Path, octets: &[u8]) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(new)?;
    file.write_all(octets)?;
    file.sync_all()?;
    std::fs::rename(new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The octets of a file. Errors: one sentence.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
    let text =
        Zeroizing::new(whimbrel_files::read_text(path, FILE_OCTETS_MAX).map_err(|e| match e.kind() {
            std::io::ErrorKind::FileTooLarge => {
                format!("{} is too long for a key or a certificate", path.display())
            }
            _ => cannot(e),
        })?);
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: Zeroizing<String> = Zeroizing::new(lines.flat_map(str::split_whitespace).collect());
    unhex(&digits).ok_or_else(|| format!("{} does not hold hexadecimal digits", path.display()))
}

/// Makes a signing key in a new file that its owner alone can read. Errors: one sentence.
pub fn make_key(path: &Path) -> Result<SigningKey, String> {
    let octets = Zeroizing::new(crate::random::<32>()?);
    let key = SigningKey::new(&octets);
    let text = Zeroizing::new(format!(
        "# Ed25519 private key. Keep a copy in a safe place.\n{}\n",
        hex(&octets[..])
    ));
    write_private(path, &text)?;
    Ok(key)
}

/// Reads a signing key. Errors: one sentence, also if others can read the file.
pub fn read_key(path: &Path) -> Result<SigningKey, String> {
    read_secret(path).map(|octets| SigningKey::new(&octets))
}

/// Reads the 32 octets of a private key. Errors: one sentence, also if others can read the file.
pub fn read_secret(path: &Path) -> Result<Zeroizing<[u8; 32]>, String> {
    let meta = std::fs::metadata(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(format!("others can read {0}; run chmod 600 {0}", path.display()));
    }
    let octets = Zeroizing::new(read(path)?);
    let octets: &[u8; 32] = octets[..]
        .try_into()
        .map_err(|_| format!("{} does not hold a key of 64 hexadecimal digits", path.display()))?;
    Ok(Zeroizing::new(*octets))
}

/// A public key of 64 hexadecimal digits.
pub fn public_key(text: &str) -> Option<VerifyingKey> {
    VerifyingKey::from_octets(unhex(text.trim())?.try_into().ok()?)
}

/// A certificate as the text of its file.
pub fn certificate_text(certificate: &Certificate) -> String {
    let subject = match &certificate.subject {
        Subject::Operator(id) => format!("operator {id}"),
        Subject::Broker(domain) => format!("broker {domain}"),
    };
    let (from, until) = (certificate.validity.from, certificate.validity.until);
    format!(
        "# SAP certificate of {subject}\n# public key {}\n# serial {}, valid from {from} until {until} (seconds since 1970)\n{}\n",
        hex(&certificate.key.octets()),
        certificate.serial,
        hex(&certificate.to_octets())
    )
}

/// Reads a certificate. Errors: one sentence.
pub fn read_certificate(path: &Path) -> Result<Certificate, String> {
    Certificate::parse(&read(path)?).map_err(|e| format!("{} is no SAP certificate: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test] // the core writes STORE.wallet while `whimbrel-broker settle` writes STORE.claims
    fn a_file_is_not_written_through_the_new_one_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("store.new"), "another's").unwrap();
        for name in ["store.wallet", "store.claims"] {
            write_durably(&at(name), name.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at(name)).unwrap(), name);
            assert_eq!(fs::metadata(at(name)).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_to_string(at("store.new")).unwrap(), "another's");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing else is left");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broker.key");
        let key = make_key(&path).unwrap();
        assert_eq!(read_key(&path).unwrap().verifying_key(), key.verifying_key());
        assert!(make_key(&path).unwrap_err().contains("exists"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read_key(&path).unwrap_err().contains("chmod 600"));
    }
}
