//! The home network's private keys, with which SUCIs are deconcealed (TS 33.501 Annex C.3).

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::section::Section;
use super::value::{SecretHex, unhex, words};

/// Most key pairs; key identifiers are one octet.
const KEYS_MAX: usize = 256;
/// Octets of a key file: 64 hexadecimal digits and white space, or a PEM with its comments.
const FILE_OCTETS_MAX: u64 = 16 << 10;

/// One key pair; only the private key is configured.
#[derive(Clone)]
pub struct HomeNetworkKey {
    /// Home network public key identifier (TS 23.003 §2.2B).
    pub id: u8,
    pub scheme: Scheme,
    /// The private key: 32 octets, of X25519 (A) or secp256r1 (B).
    pub private_key: [u8; 32],
}

impl std::fmt::Debug for HomeNetworkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HomeNetworkKey {{ id: {}, scheme: {:?}, … }}", self.id, self.scheme)
    }
}

/// Protection schemes of TS 33.501 Annex C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// ECIES with X25519.
    A,
    /// ECIES with secp256r1.
    B,
}

words! { Scheme { Scheme::A = "A", Scheme::B = "B", } }

pub(super) fn read(root: &mut Section<'_, '_>) -> Vec<HomeNetworkKey> {
    let doc = "Private keys with which SUCIs of profiles A and B are deconcealed (TS 33.501 Annex C). Each item: \
               `id` (0 to 255, as on the SIM), `scheme` (A or B), and `private_key_file` (a file of 64 hexadecimal \
               digits, readable by its owner only) or `private_key` (the digits themselves, quoted).";
    let keys = root.sections("home_network_keys", 0, doc, |s, i| {
        let id = s.value("id", u8::try_from(i + 1).unwrap_or(1), "Home network public key identifier.");
        let scheme = s.value("scheme", Scheme::A, "Protection scheme.");
        let file: Option<PathBuf> =
            s.optional("private_key_file", "/etc/whimbrel/suci-1.key", "File of the key.");
        let inline: Option<SecretHex> = s.optional("private_key", "…", "The key itself.");
        let octets = match (file, inline) {
            (Some(file), None) if !s.may_open("private_key_file", &file) => return None,
            (Some(file), None) => match read_file(&file) {
                Ok(octets) => Some(octets),
                Err((what, fix)) => {
                    s.refuse("private_key_file", what, fix);
                    return None;
                }
            },
            (None, Some(hex)) => Some(hex.0),
            (Some(_), Some(_)) => {
                s.refuse("private_key", "the key is given twice", "keep `private_key_file` alone");
                return None;
            }
            (None, None) => None,
        };
        match octets.map(<[u8; 32]>::try_from) {
            Some(Ok(private_key)) if super::typed::private_key(scheme, private_key).is_none() => {
                s.refuse(
                    "scheme",
                    format!("the key is not a key of scheme {scheme:?}"),
                    "write the scheme of the key, or use another key",
                );
                None
            }
            Some(Ok(private_key)) => Some(HomeNetworkKey { id, scheme, private_key }),
            Some(Err(octets)) => {
                let what =
                    format!("the private key has {} octets, a key of scheme A or B has 32", octets.len());
                s.refuse("private_key", what, "write 64 hexadecimal digits");
                None
            }
            None => {
                s.refuse(
                    "private_key_file",
                    "the key is missing",
                    "give `private_key_file` or `private_key`",
                );
                None
            }
        }
    });
    if keys.len() > KEYS_MAX {
        root.refuse(
            "home_network_keys",
            format!("{} keys are too many", keys.len()),
            format!("keep {KEYS_MAX}"),
        );
    }
    keys.into_iter().flatten().collect()
}

fn read_file(file: &std::path::Path) -> Result<Vec<u8>, (String, String)> {
    let cannot = |e: std::io::Error| {
        (format!("{} cannot be read: {e}", file.display()), "name a file that this user may read".into())
    };
    let opened = whimbrel_files::open(file).map_err(cannot)?;
    let meta = opened.metadata().map_err(cannot)?;
    if meta.permissions().mode() & 0o077 != 0 {
        let what = format!(
            "{} may be read by others (mode {:o})",
            file.display(),
            meta.permissions().mode() & 0o777
        );
        return Err((what, format!("chmod 600 {}", file.display())));
    }
    let wrong = || {
        let what = format!("{} does not hold a key", file.display());
        (what, "put 64 hexadecimal digits into it".to_string())
    };
    let mut text = Zeroizing::new(String::new());
    let read = opened.take(FILE_OCTETS_MAX + 1).read_to_string(&mut text);
    if read.map_err(cannot)? as u64 > FILE_OCTETS_MAX {
        return Err(wrong());
    }
    let digits: Zeroizing<String> = Zeroizing::new(text.split_whitespace().collect());
    unhex(&digits).ok_or_else(wrong)
}
