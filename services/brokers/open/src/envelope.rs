//! HPKE (RFC 9180) in base mode and AES-128-GCM, as SAP and the veiled attach use them. Each protocol has its own labels, so that octets of one are
//! none of the other.
//!
//! The suite is fixed: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM.

use aes_gcm::Aes128Gcm;
use aes_gcm::aead::{AeadInOut, KeyInit};
use hkdf::Hkdf;
use hpke::rand_core::{TryCryptoRng, TryRng};
use hpke::{Deserializable, OpModeR, OpModeS, Serializable};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::crypto::{PrivateKey, Seed, Share};

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

impl Protocol {
    /// `N` octets of a seed, for the use that `label` names.
    pub fn draw<const N: usize>(&self, seed: &Seed, label: &str) -> Zeroizing<[u8; N]> {
        let mut out = Zeroizing::new([0; N]);
        expand(&Hkdf::new(None, seed.octets()), &[self.seed, label.as_bytes()], &mut out[..]);
        out
    }
}

/// HKDF-Expand with `info` in parts.
pub(crate) fn expand(prk: &Hkdf<Sha256>, info: &[&[u8]], out: &mut [u8]) {
    prk.expand_multi_info(info, out).expect("fewer octets than 255 digests");
}

type SuiteAead = hpke::aead::AesGcm128;
type SuiteKdf = hpke::kdf::HkdfSha256;
type SuiteKem = hpke::kem::X25519HkdfSha256;
type KemPublic = <SuiteKem as hpke::Kem>::PublicKey;
type KemPrivate = <SuiteKem as hpke::Kem>::PrivateKey;
type KemEncapped = <SuiteKem as hpke::Kem>::EncappedKey;

/// Octets that AES-128-GCM adds.
pub const TAG_OCTETS: usize = 16;

/// The ciphertext and its tag.
pub(crate) fn seal(cipher: &Aes128Gcm, nonce: &[u8; 12], plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(plain.len() + TAG_OCTETS);
    out.extend_from_slice(plain);
    let tag = cipher.encrypt_inout_detached(nonce.into(), &[], out.as_mut_slice().into());
    out.extend_from_slice(&tag.expect("far under 64 GiB"));
    out
}

/// The plaintext, if the tag is right.
pub(crate) fn unseal(cipher: &Aes128Gcm, nonce: &[u8; 12], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (text, tag) = sealed.split_last_chunk::<TAG_OCTETS>()?;
    let mut out = Zeroizing::new(text.to_vec());
    cipher.decrypt_inout_detached(nonce.into(), &[], out.as_mut_slice().into(), tag.into()).ok()?;
    Some(out)
}

/// AES-128-GCM for one message: a key, and the nonce that belongs to it.
pub struct OneCipher(Aes128Gcm, [u8; 12]);

impl OneCipher {
    /// Of derived octets: the key, then the nonce.
    pub fn new(okm: &[u8; 28]) -> Self {
        let mut nonce = [0; 12];
        nonce.copy_from_slice(&okm[16..]);
        Self(Aes128Gcm::new_from_slice(&okm[..16]).expect("16 octets"), nonce)
    }

    /// The ciphertext and its tag.
    pub fn seal(&self, plain: &[u8]) -> Vec<u8> {
        seal(&self.0, &self.1, plain)
    }

    /// The plaintext, if the tag is right.
    pub fn open(&self, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        unseal(&self.0, &self.1, sealed)
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
        expand(&Hkdf::new(None, self.1.octets()), &[self.0.draw], out);
        self.1 = Seed::new(*self.0.draw(&self.1, "next draw"));
        Ok(())
    }
}

impl TryCryptoRng for Draw {}

/// The sender's side of an HPKE context in base mode.
pub struct Sender {
    /// The encapsulated key.
    pub enc: [u8; 32],
    context: hpke::aead::AeadCtxS<SuiteAead, SuiteKdf, SuiteKem>,
    protocol: Protocol,
}

impl Sender {
    /// To `recipient`; `None` if its public key is of small order.
    pub fn new(protocol: Protocol, recipient: &Share, info: &[u8], seed: &Seed) -> Option<Self> {
        let recipient = KemPublic::from_bytes(&recipient.0).ok()?;
        let mut draw = Draw(protocol, Seed::new(*protocol.draw(seed, "encapsulation")));
        let (enc, context) = hpke::setup_sender_with_rng::<SuiteAead, SuiteKdf, SuiteKem>(
            &OpModeS::Base,
            &recipient,
            info,
            &mut draw,
        )
        .ok()?;
        Some(Self { enc: enc.to_bytes().into(), context, protocol })
    }

    /// Seals the next message.
    pub fn seal(&mut self, plain: &[u8], aad: &[u8]) -> Vec<u8> {
        self.context.seal(plain, aad).expect("the first of 2^64 messages")
    }

    /// What both ends share.
    pub fn secret(&self) -> Zeroizing<[u8; 32]> {
        let mut secret = Zeroizing::new([0; 32]);
        self.context.export(self.protocol.exporter, &mut secret[..]).expect("32 octets");
        secret
    }
}

/// The message, and what both ends share.
pub type Opened = (Zeroizing<Vec<u8>>, Zeroizing<[u8; 32]>);

/// Opens one message of an HPKE context in base mode, and gives what both ends share; `None` if it was not sealed to this key with these octets
/// around it.
pub fn open(
    protocol: Protocol,
    key: &PrivateKey,
    (enc, info): (&[u8; 32], &[u8]),
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
    context.export(protocol.exporter, &mut secret[..]).expect("32 octets");
    Some((plain, secret))
}
