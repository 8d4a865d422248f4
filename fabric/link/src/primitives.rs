//! The primitives under Noise: X25519, AES-256-GCM and SHA-256, of the crates that the product uses anyway, and the system's randomness.
//!
//! `snow` brings primitives of its own behind features that are off here: they would be second versions of these crates, and keys in them
//! would not be wiped.

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

/// Octets of an authentication tag.
pub(crate) const TAG: usize = 16;

/// Provides Noise with its primitives.
pub(crate) struct Primitives;

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(System))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(X25519::default()) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::new(Sha::default()) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM).then(|| Box::new(AesGcm::default()) as Box<dyn Cipher>)
    }
}

/// The system's randomness.
pub(crate) struct System;

impl Random for System {
    fn try_fill_bytes(&mut self, mut dest: &mut [u8]) -> Result<(), Error> {
        while !dest.is_empty() {
            match getrandom(&mut *dest, GetRandomFlags::empty()) {
                Ok(filled) => dest = &mut dest[filled..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Error::Rng),
            }
        }
        Ok(())
    }
}

/// A key pair. The dalek crate wipes the secret; the copy that Noise's interface wants to be able to read is wiped here.
#[derive(Default)]
struct X25519 {
    secret: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, privkey: &[u8]) {
        self.secret.copy_from_slice(privkey);
        self.public = PublicKey::from(&StaticSecret::from(*self.secret)).to_bytes();
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; 32]);
        rng.try_fill_bytes(&mut *secret)?;
        self.set(&*secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let theirs: [u8; 32] = pubkey.get(..32).and_then(|k| k.try_into().ok()).ok_or(Error::Dh)?;
        let shared = StaticSecret::from(*self.secret).diffie_hellman(&PublicKey::from(theirs));
        // A point of small order would make a shared secret that is publicly known.
        if !shared.was_contributory() {
            return Err(Error::Dh);
        }
        out[..32].copy_from_slice(shared.as_bytes());
        Ok(())
    }
}

#[derive(Default)]
struct Sha(Sha256);

impl Hash for Sha {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Sha256::new();
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..32].copy_from_slice(&core::mem::take(&mut self.0).finalize());
    }
}

/// The cipher, once it has its key; it wipes what it made of it.
#[derive(Default)]
struct AesGcm(Option<Aes256Gcm>);

impl AesGcm {
    /// The cipher, whose key Noise sets before it uses it.
    fn keyed(&self) -> &Aes256Gcm {
        self.0.as_ref().expect("Noise keys a cipher before it uses it")
    }
}

/// The Noise Protocol Framework, §12.4: 32 zero bits, then the counter in network order.
fn nonce(counter: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    nonce.into()
}

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = Some(Aes256Gcm::new(key.into()));
    }

    fn encrypt(&self, counter: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, tag) = out[..plaintext.len() + TAG].split_at_mut(plaintext.len());
        let buffers = InOutBuf::new(plaintext, text).expect("both are of one length");
        let sealed = self.keyed().encrypt_inout_detached(&nonce(counter), authtext, buffers);
        tag.copy_from_slice(&sealed.expect("GCM takes far longer messages than Noise's 64 KiB"));
        plaintext.len() + TAG
    }

    fn decrypt(
        &self,
        counter: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let (text, tag) = ciphertext.split_last_chunk::<TAG>().ok_or(Error::Decrypt)?;
        let out = out.get_mut(..text.len()).ok_or(Error::Decrypt)?;
        let buffers = InOutBuf::new(text, out).map_err(|_| Error::Decrypt)?;
        let opened =
            self.keyed().decrypt_inout_detached(&nonce(counter), authtext, buffers, &Tag::from(*tag));
        opened.map(|()| text.len()).map_err(|_| Error::Decrypt)
    }
}
