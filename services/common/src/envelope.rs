//! HPKE (RFC 9180) in base mode and AES-128-GCM, as SAP and the veiled attach use them. Each protocol has its own labels, so that octets of
//! one are none of the other.
//!
//! The suite is fixed: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM.

use aes_gcm::Aes128Gcm;
use aes_gcm::aead::{AeadInOut, KeyInit};
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable, OpModeR, OpModeS, Serializable};
use zeroize::Zeroizing;

use crate::crypto::{PrivateKey, Seed, Share, derive, expand};

/// A protocol, by its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Before the use of what is drawn from a seed.
    pub seed: &'static [u8],
    /// Of what an HPKE sender draws.
    pub draw: &'static [u8],
    /// Of what both ends of an HPKE context share.
    pub exporter: &'static [u8],
}

/// What both ends of an HPKE context share.
pub type ExportedSecret = Zeroizing<[u8; 32]>;

/// A message that is sealed: the encapsulated key, the ciphertext, and what both ends then share.
pub type Sealed = ([u8; 32], Box<[u8]>, ExportedSecret);

/// The message, and what both ends share.
pub type Opened = (Zeroizing<Vec<u8>>, ExportedSecret);

impl Protocol {
    /// `N` octets of a seed, for the use that `label` names.
    pub fn draw<const N: usize>(&self, seed: &Seed, label: &str) -> Zeroizing<[u8; N]> {
        derive(seed.octets(), &[self.seed, label.as_bytes()])
    }

    /// The ephemeral key of an attach.
    pub fn ephemeral_key(&self, seed: &Seed) -> PrivateKey {
        PrivateKey::new(*self.draw(seed, "ephemeral key"))
    }

    /// Seals one message in base mode: `message` gives it, and the octets around it, for the encapsulated key. `None` if the recipient's key is
    /// of small order.
    pub fn seal(
        self,
        recipient: &Share,
        info: &[u8],
        seed: &Seed,
        message: impl FnOnce(&[u8; 32]) -> (Zeroizing<Vec<u8>>, Vec<u8>),
    ) -> Option<Sealed> {
        let recipient = KemPublic::from_bytes(&recipient.0).ok()?;
        let mut draw = Draw(self, Seed::new(*self.draw(seed, "encapsulation")));
        let (enc, mut context) = hpke::setup_sender_with_rng::<SuiteAead, SuiteKdf, SuiteKem>(
            &OpModeS::Base,
            &recipient,
            info,
            &mut draw,
        )
        .ok()?;
        let enc = enc.to_bytes().into();
        let (plain, aad) = message(&enc);
        let sealed = context.seal(&plain, &aad).expect("the first of 2^64 messages");
        let mut secret = Zeroizing::new([0; 32]);
        context.export(self.exporter, &mut secret[..]).expect("32 octets");
        Some((enc, sealed.into(), secret))
    }

    /// Opens one message; `None` if it was not sealed to this key with these octets around it.
    pub fn open(
        self,
        key: &PrivateKey,
        enc: &[u8; 32],
        info: &[u8],
        sealed: &[u8],
        aad: &[u8],
    ) -> Option<Opened> {
        let octets = Zeroizing::new(key.to_octets());
        let key = KemPrivate::from_bytes(&octets[..]).ok()?;
        let enc = KemEncapped::from_bytes(enc).ok()?;
        let mut context =
            hpke::setup_receiver::<SuiteAead, SuiteKdf, SuiteKem>(&OpModeR::Base, &key, &enc, info).ok()?;
        let plain = Zeroizing::new(context.open(sealed, aad).ok()?);
        let mut secret = Zeroizing::new([0; 32]);
        context.export(self.exporter, &mut secret[..]).expect("32 octets");
        Some((plain, secret))
    }

    /// Seals a part of a message: the encapsulated key, then the ciphertext. `None` if the recipient's key is of small order.
    pub fn seal_part(
        self,
        recipient: &Share,
        info: &[u8],
        seed: &Seed,
        (plain, aad): (Zeroizing<Vec<u8>>, &[u8]),
    ) -> Option<Box<[u8]>> {
        let (enc, sealed, _) = self.seal(recipient, info, seed, |_| (plain, aad.to_vec()))?;
        Some([&enc[..], &sealed].concat().into())
    }

    /// Opens such a part; `None` if it was not sealed to this key with these octets around it.
    pub fn open_part(
        self,
        key: &PrivateKey,
        info: &[u8],
        sealed: &[u8],
        aad: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let (enc, sealed) = sealed.split_first_chunk::<32>()?;
        self.open(key, enc, info, sealed, aad).map(|(plain, _)| plain)
    }
}

type SuiteAead = hpke::aead::AesGcm128;
type SuiteKdf = hpke::kdf::HkdfSha256;
type SuiteKem = hpke::kem::X25519HkdfSha256;
type KemPublic = <SuiteKem as hpke::Kem>::PublicKey;
type KemPrivate = <SuiteKem as hpke::Kem>::PrivateKey;
type KemEncapped = <SuiteKem as hpke::Kem>::EncappedKey;

/// Octets that AES-128-GCM adds.
pub const TAG_OCTETS: usize = 16;

/// AES-128-GCM under a key; each nonce is for one message.
pub struct Cipher(Aes128Gcm);

impl Cipher {
    /// Under this key.
    pub fn new(key: &[u8; 16]) -> Self {
        Self(Aes128Gcm::new(key.into()))
    }

    /// The ciphertext and its tag.
    pub fn seal(&self, nonce: &[u8; 12], plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(plain.len() + TAG_OCTETS);
        out.extend_from_slice(plain);
        let tag = self.0.encrypt_inout_detached(nonce.into(), &[], out.as_mut_slice().into());
        out.extend_from_slice(&tag.expect("far under 64 GiB"));
        out
    }

    /// The plaintext, if the tag is right.
    pub fn open(&self, nonce: &[u8; 12], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (text, tag) = sealed.split_last_chunk::<TAG_OCTETS>()?;
        let mut out = Zeroizing::new(text.to_vec());
        self.0.decrypt_inout_detached(nonce.into(), &[], out.as_mut_slice().into(), tag.into()).ok()?;
        Some(out)
    }
}

/// AES-128-GCM for one message: a key, and the nonce that belongs to it.
pub struct OneCipher(Cipher, [u8; 12]);

impl OneCipher {
    /// Of derived octets: the key, then the nonce.
    pub fn new(okm: &[u8; 28]) -> Self {
        let (mut key, mut nonce) = (Zeroizing::new([0; 16]), [0; 12]);
        key.copy_from_slice(&okm[..16]);
        nonce.copy_from_slice(&okm[16..]);
        Self(Cipher::new(&key), nonce)
    }

    /// The ciphertext and its tag.
    pub fn seal(&self, plain: &[u8]) -> Vec<u8> {
        self.0.seal(&self.1, plain)
    }

    /// The plaintext, if the tag is right.
    pub fn open(&self, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.0.open(&self.1, sealed)
    }
}

/// The draws of an HPKE sender.
struct Draw(Protocol, Seed);

impl TryRng for Draw {
    type Error = core::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        let mut out = [0; 4];
        self.try_fill_bytes(&mut out)?;
        Ok(u32::from_le_bytes(out))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        let mut out = [0; 8];
        self.try_fill_bytes(&mut out)?;
        Ok(u64::from_le_bytes(out))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
        expand(None, self.1.octets(), &[self.0.draw], out);
        self.1 = Seed::new(*self.0.draw(&self.1, "next draw"));
        Ok(())
    }
}

impl TryCryptoRng for Draw {}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: Protocol = Protocol { seed: b"test seed ", draw: b"test draw", exporter: b"test exporter" };

    #[test]
    fn both_ends_of_an_envelope_share_a_secret_and_nothing_else_opens_it() {
        let (key, message) = (PrivateKey::new([3; 32]), Zeroizing::new(b"plain".to_vec()));
        let seal = || {
            LABELS.seal(&key.share(), b"info", &Seed::new([4; 32]), |_| (message.clone(), b"aad".to_vec()))
        };
        let (enc, sealed, secret) = seal().unwrap();
        assert_eq!(seal().unwrap(), (enc, sealed.clone(), secret.clone()), "a replay gives the same octets");
        assert_eq!(LABELS.open(&key, &enc, b"info", &sealed, b"aad"), Some((message.clone(), secret)));
        for (info, aad) in [(&b"other"[..], &b"aad"[..]), (b"info", b"other")] {
            assert_eq!(LABELS.open(&key, &enc, info, &sealed, aad), None);
        }
        assert_eq!(LABELS.open(&PrivateKey::new([5; 32]), &enc, b"info", &sealed, b"aad"), None);
        let part =
            LABELS.seal_part(&key.share(), b"info", &Seed::new([4; 32]), (message.clone(), b"aad")).unwrap();
        assert_eq!(part[..], [&enc[..], &sealed].concat());
        assert_eq!(LABELS.open_part(&key, b"info", &part, b"aad"), Some(message));
        assert_eq!(LABELS.open_part(&key, b"info", &part[..31], b"aad"), None);
    }

    #[test]
    fn nothing_is_sealed_to_a_share_of_small_order() {
        let to =
            |share| LABELS.seal_part(&share, b"", &Seed::new([1; 32]), (Zeroizing::new(Vec::new()), b""));
        assert!(to(PrivateKey::new([9; 32]).share()).is_some() && to(Share::NONE).is_none());
    }
}
