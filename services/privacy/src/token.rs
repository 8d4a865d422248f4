//! Tokens: what the operator shows the broker in place of its name (Ô of chapter 4.4.1).
//!
//! A token is a fresh Ed25519 key of the operator's and an epoch. The broker makes it good with the oblivious
//! function of that epoch's issuing key without seeing it, and knows it again, without knowing whose it is,
//! by the output, which both sides can compute and which never travels. The key signs everything that the
//! operator later asks in the token's session group.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::crypto::{VerifyingKey, hash};
use crate::msg::MessageField;
use crate::voprf::Element;

/// Tokens in a batch. All wallets ask for as many, so that a batch says nothing of how many tokens an operator needs.
pub const BATCH: usize = 64;

/// H(token): what the operator broadcasts, and the name of the token's session group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// The first octets, by which the operator finds the token that a request is for.
    pub const fn tag(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }
}

impl core::fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let [a, b, c, d] = self.tag();
        write!(f, "TokenHash({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

impl MessageField for TokenHash {
    const NAME: &'static str = "token hash";
    const FIELD_OCTETS_MAX: usize = 32;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(r.array(Self::NAME)?))
    }
}

/// The tag of the token that a user heard, in clear in its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenTag([u8; 4]);

impl TokenTag {
    /// Tag of this token.
    pub const fn new(token: &TokenHash) -> Self {
        Self(token.tag())
    }

    /// True if it is this token's.
    pub fn is_of(&self, token: &TokenHash) -> bool {
        self.0 == token.tag()
    }
}

impl MessageField for TokenTag {
    const NAME: &'static str = "token tag";
    const FIELD_OCTETS_MAX: usize = 4;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(r.array(Self::NAME)?))
    }
}

/// A token, without the secrets that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The epoch of the issuing key.
    pub epoch: u32,
    /// The operator's fresh key.
    pub key: VerifyingKey,
}

impl Token {
    /// Octets of a token.
    pub const OCTETS: usize = 4 + 32;

    /// The input of the oblivious function: it names the issuing key, so that a token is good for one issuer and one epoch.
    pub fn input(&self, issuer: &Element) -> Vec<u8> {
        let epoch = self.epoch.to_be_bytes();
        [&b"VEIL-v1 token\0"[..], issuer.octets(), &epoch, &self.key.octets()].concat()
    }

    /// Hash of the token.
    pub fn hash(&self, issuer: &Element) -> TokenHash {
        TokenHash(hash(&[b"VEIL-v1 token hash\0", &self.input(issuer)]))
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.key.octets());
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let epoch = r.u32("epoch")?;
        let invalid = r.error(DecodeErrorKind::InvalidValue, "token key");
        let key = VerifyingKey::from_octets(r.array("token key")?).ok_or(invalid)?;
        Ok(Self { epoch, key })
    }
}
