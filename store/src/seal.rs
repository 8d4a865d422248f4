//! Keys at rest: AES-256-GCM-SIV (RFC 8452) under a key that lives in a file of its own.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use aes_gcm_siv::aead::{AeadInOut, KeyInit};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use whimbrel_ids::Supi;
use whimbrel_security::{K, K256, LongTermKey, Op, Opc, Top, Topc};
use zeroize::Zeroizing;

use crate::error::{StoreError, of_file};
use crate::record::OperatorCode;
use crate::text::{from_hex, to_hex};

/// Octets of a key file: 64 hexadecimal digits and the end of the line, with room for blanks.
const KEY_FILE_OCTETS_MAX: u64 = 4 << 10;
/// Octets of a nonce.
const NONCE: usize = 12;
/// Octets of an authentication tag.
const TAG: usize = 16;
/// A kind and two keys of 16 octets.
const PLAIN: usize = 33;
/// A kind and two keys of 32 octets; a shorter K stands at the beginning of its place.
const PLAIN_TUAK: usize = 65;

const KIND_OPC: u8 = 0;
const KIND_OP: u8 = 1;
const KIND_TOPC: u8 = 2;
const KIND_TOP: u8 = 3;
/// K has 256 bits.
const KIND_LONG: u8 = 0x80;

/// Seals under the first key of a key file, and opens under that one and the former one in its second line, which a rotation leaves there.
pub(crate) struct Sealer {
    key: Aes256GcmSiv,
    former: Option<Aes256GcmSiv>,
}

impl Sealer {
    /// Reads the key file; creates it, with a new key and mode 0600, where `create` allows.
    pub(crate) fn open(key_file: &Path, create: bool, store: &Path) -> Result<Self, StoreError> {
        match fs::metadata(key_file) {
            Ok(meta) if meta.permissions().mode() & 0o007 != 0 => {
                let mode = meta.permissions().mode() & 0o777;
                Err(StoreError::KeyFileExposed { key_file: key_file.to_owned(), mode })
            }
            Ok(_) => Self::read(key_file),
            Err(e) if e.kind() == io::ErrorKind::NotFound && create => {
                create_key_file(key_file)?;
                Self::read(key_file)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(StoreError::KeyFileMissing { key_file: key_file.to_owned(), path: store.to_owned() })
            }
            Err(e) => Err(of_file(key_file, e)),
        }
    }

    fn read(key_file: &Path) -> Result<Self, StoreError> {
        let text = match whimbrel_files::read_text(key_file, KEY_FILE_OCTETS_MAX) {
            Ok(text) => Zeroizing::new(text),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                return Err(StoreError::KeyFileInvalid { key_file: key_file.to_owned() });
            }
            Err(e) => return Err(of_file(key_file, e)),
        };
        let mut keys = text.split_whitespace().map(|line| {
            let key: Option<[u8; 32]> = from_hex(line);
            let key = key.ok_or_else(|| StoreError::KeyFileInvalid { key_file: key_file.to_owned() })?;
            Ok(Aes256GcmSiv::new((&*Zeroizing::new(key)).into()))
        });
        let key = keys
            .next()
            .unwrap_or_else(|| Err(StoreError::KeyFileInvalid { key_file: key_file.to_owned() }))?;
        let former = keys.next().transpose()?;
        match keys.next() {
            None => Ok(Self { key, former }),
            Some(_) => Err(StoreError::KeyFileInvalid { key_file: key_file.to_owned() }),
        }
    }

    /// True if the key file has a former key, too.
    pub(crate) fn has_former(&self) -> bool {
        self.former.is_some()
    }

    /// The same without the former key.
    pub(crate) fn without_former(&self) -> Self {
        Self { key: self.key.clone(), former: None }
    }

    /// True if both seal under the same key.
    pub(crate) fn has_key_of(&self, other: &Self) -> bool {
        const SAME: &str = "the same key";
        self.pseudonym(SAME) == other.pseudonym(SAME)
    }

    /// Nonce, ciphertext and tag of `plain`, bound to `context`.
    pub(crate) fn seal<const N: usize>(&self, context: &[u8], plain: [u8; N]) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| StoreError::NoRandomness)?;
        let mut plain = Zeroizing::new(plain);
        let tag = self.key.encrypt_inout_detached(&Nonce::from(nonce), context, plain.as_mut_slice().into());
        // Only a text of 64 GiB is too long for the cipher.
        let tag = tag.map_err(|_| StoreError::NoRandomness)?;
        let mut sealed = Vec::with_capacity(NONCE + N + TAG);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&*plain);
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// What was sealed for this context under this key; `None` for anything else.
    pub(crate) fn open_sealed<const N: usize>(
        &self,
        context: &[u8],
        sealed: &[u8],
    ) -> Option<Zeroizing<[u8; N]>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE>()?;
        let (text, tag) = rest.split_last_chunk::<TAG>()?;
        let mut plain = Zeroizing::new(<[u8; N]>::try_from(text).ok()?);
        self.decrypt(nonce, context, text, plain.as_mut_slice(), tag)?;
        Some(plain)
    }

    /// Deciphers `text`, which `plain` holds, in place, under one of the keys.
    fn decrypt(
        &self,
        nonce: &[u8; NONCE],
        context: &[u8],
        text: &[u8],
        plain: &mut [u8],
        tag: &[u8; TAG],
    ) -> Option<()> {
        [Some(&self.key), self.former.as_ref()].into_iter().flatten().find_map(|key| {
            plain.copy_from_slice(text);
            let (nonce, tag) = (Nonce::from(*nonce), (*tag).into());
            key.decrypt_inout_detached(&nonce, context, (&mut *plain).into(), &tag).ok()
        })
    }

    /// Nonce, ciphertext and tag of `plain`, which is overwritten, bound to `context`.
    pub(crate) fn seal_octets(&self, context: &[u8], plain: &mut [u8]) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| StoreError::NoRandomness)?;
        let tag = self.key.encrypt_inout_detached(&Nonce::from(nonce), context, (&mut *plain).into());
        // Only a text of 64 GiB is too long for the cipher.
        let tag = tag.map_err(|_| StoreError::NoRandomness)?;
        Ok([&nonce[..], plain, &tag].concat())
    }

    /// What was sealed for this context under this key; `None` for anything else.
    pub(crate) fn open_octets(&self, context: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE>()?;
        let (text, tag) = rest.split_last_chunk::<TAG>()?;
        let mut plain = Zeroizing::new(text.to_vec());
        self.decrypt(nonce, context, text, plain.as_mut_slice(), tag)?;
        Some(plain)
    }

    /// A name for `text` that only the holder of the key can lead back, the same each time.
    pub(crate) fn pseudonym(&self, text: &str) -> Option<String> {
        let mut nothing: [u8; 0] = [];
        let context = [b"pseudonym ".as_slice(), text.as_bytes()].concat();
        // The cipher bears one nonce for all: nothing is ciphered, and the tag is a MAC of the text (RFC 8452 §9).
        let tag = self.key.encrypt_inout_detached(
            &Nonce::from([0; NONCE]),
            &context,
            nothing.as_mut_slice().into(),
        );
        Some(to_hex(tag.ok()?.get(..8)?))
    }

    /// Seals the keys of a subscriber.
    pub(crate) fn seal_keys(
        &self,
        supi: Supi,
        k: &LongTermKey,
        operator_code: &OperatorCode,
    ) -> Result<Vec<u8>, StoreError> {
        let context = supi.to_string();
        let long = if matches!(k, LongTermKey::K256(_)) { KIND_LONG } else { 0 };
        let (kind, code) = match operator_code {
            OperatorCode::Opc(opc) => (KIND_OPC, &opc.octets()[..]),
            OperatorCode::Op(op) => (KIND_OP, &op.octets()[..]),
            OperatorCode::Topc(topc) => (KIND_TOPC, &topc.octets()[..]),
            OperatorCode::Top(top) => (KIND_TOP, &top.octets()[..]),
        };
        if code.len() == 16 && long == 0 {
            let mut plain = Zeroizing::new([0; PLAIN]);
            fill(plain.as_mut_slice(), kind, k.octets(), code, 17);
            self.seal(context.as_bytes(), *plain)
        } else {
            let mut plain = Zeroizing::new([0; PLAIN_TUAK]);
            fill(plain.as_mut_slice(), kind | long, k.octets(), code, 33);
            self.seal(context.as_bytes(), *plain)
        }
    }

    /// The keys of a subscriber; `None` if they were not sealed for it under this key.
    pub(crate) fn open_keys(&self, supi: Supi, sealed: &[u8]) -> Option<(LongTermKey, OperatorCode)> {
        let context = supi.to_string();
        if sealed.len() == NONCE + PLAIN_TUAK + TAG {
            return opened_tuak(&*self.open_sealed::<PLAIN_TUAK>(context.as_bytes(), sealed)?);
        }
        let plain = self.open_sealed::<PLAIN>(context.as_bytes(), sealed)?;
        let k = K::new(plain[1..17].try_into().ok()?);
        let code = plain[17..].try_into().ok()?;
        let operator_code = match plain[0] {
            KIND_OPC => OperatorCode::Opc(Opc::new(code)),
            KIND_OP => OperatorCode::Op(Op::new(code)),
            _ => return None,
        };
        Some((k.into(), operator_code))
    }
}

/// A kind, K behind it, and the operator's code at `at`.
fn fill(plain: &mut [u8], kind: u8, k: &[u8], code: &[u8], at: usize) {
    let place = plain.iter_mut();
    place.zip(std::iter::once(&kind).chain(k)).for_each(|(to, from)| *to = *from);
    plain[at..].iter_mut().zip(code).for_each(|(to, from)| *to = *from);
}

fn opened_tuak(plain: &[u8; PLAIN_TUAK]) -> Option<(LongTermKey, OperatorCode)> {
    let k = if plain[0] & KIND_LONG != 0 {
        LongTermKey::K256(K256::new(plain[1..33].try_into().ok()?))
    } else {
        K::new(plain[1..17].try_into().ok()?).into()
    };
    let code = plain[33..].try_into().ok()?;
    match plain[0] & !KIND_LONG {
        KIND_TOPC => Some((k, OperatorCode::Topc(Topc::new(code)))),
        KIND_TOP => Some((k, OperatorCode::Top(Top::new(code)))),
        _ => None,
    }
}

/// Puts a new key in front of the present one of a key file, with the same owner and mode; a key before that goes. Whole or not at all.
pub(crate) fn add_key(key_file: &Path) -> Result<(), StoreError> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(key.as_mut_slice()).map_err(|_| StoreError::NoRandomness)?;
    let key = Zeroizing::new(to_hex(&*key));
    change_key_file(key_file, |present| Zeroizing::new(format!("{}\n{present}\n", *key)))
}

/// Removes the former key of a key file.
pub(crate) fn drop_former_key(key_file: &Path) -> Result<(), StoreError> {
    change_key_file(key_file, |present| Zeroizing::new(format!("{present}\n")))
}

fn change_key_file(key_file: &Path, text: impl FnOnce(&str) -> Zeroizing<String>) -> Result<(), StoreError> {
    let failed = |e| of_file(key_file, e);
    let present = Zeroizing::new(whimbrel_files::read_text(key_file, KEY_FILE_OCTETS_MAX).map_err(failed)?);
    let invalid = || StoreError::KeyFileInvalid { key_file: key_file.to_owned() };
    let text = text(present.split_whitespace().next().ok_or_else(invalid)?);
    let meta = fs::metadata(key_file).map_err(failed)?;
    let mut draft = key_file.as_os_str().to_owned();
    draft.push(".new");
    let draft = PathBuf::from(draft);
    let _ = fs::remove_file(&draft);
    let changed = write_private(&draft, text.as_bytes())
        .and_then(|()| chown(&draft, Some(meta.uid()), Some(meta.gid())))
        .and_then(|()| fs::set_permissions(&draft, meta.permissions()))
        .and_then(|()| fs::rename(&draft, key_file))
        .and_then(|()| {
            let folder = key_file.parent().filter(|folder| !folder.as_os_str().is_empty());
            fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        });
    if changed.is_err() {
        let _ = fs::remove_file(&draft);
    }
    changed.map_err(failed)
}

/// Creates a key file whole or not at all: two processes that start together end with the same key.
fn create_key_file(key_file: &Path) -> Result<(), StoreError> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(key.as_mut_slice()).map_err(|_| StoreError::NoRandomness)?;
    let text = Zeroizing::new(to_hex(&*key) + "\n");
    let mut mark = [0; 8];
    getrandom::fill(&mut mark).map_err(|_| StoreError::NoRandomness)?;
    let mut draft = key_file.as_os_str().to_owned();
    draft.push(format!(".{}", to_hex(&mark)));
    let draft = PathBuf::from(draft);
    let written =
        write_private(&draft, text.as_bytes()).and_then(|()| match fs::hard_link(&draft, key_file) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    let _ = fs::remove_file(&draft);
    written.map_err(|e| of_file(key_file, e))
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
