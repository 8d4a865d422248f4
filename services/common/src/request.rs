//! The user's request, sealed to its broker: the operator reads the broker's domain in it, and little else.

use whimbrel_ids::{DecodeError, Reader};
use zeroize::Zeroizing;

use crate::AttachProtocol;
use crate::codec::{MessageField, emit_part, read_part, read_signature, whole};
use crate::crypto::{PrivateKey, Seed, Share, Signature, SigningKey, VerifyingKey, hash};
use crate::envelope::TAG_OCTETS;
use crate::id::{Domain, UserId};

/// A broker's public key of an epoch: users seal their requests to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochKey {
    /// Its identifier: the home network public key identifier of the SUCI.
    pub id: u8,
    /// Public key of the epoch.
    pub public: Share,
}

impl MessageField for EpochKey {
    const NAME: &'static str = "broker key";
    const FIELD_OCTETS_MAX: usize = 1 + 32;

    fn emit(&self, out: &mut Vec<u8>) {
        out.push(self.id);
        out.extend_from_slice(&self.public.0);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { id: r.u8(Self::NAME)?, public: Share(r.array(Self::NAME)?) })
    }
}

/// The part of a request that the user seals to its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedVector<P: AttachProtocol> {
    /// The user (idU).
    pub user: UserId,
    /// The operator that is to ask, as the user read it from the broadcast: its identity, or H(token).
    pub asker: P::Asker,
    /// Counter of the user's SIM, never used twice.
    pub counter: u64,
    /// Random octets of this attach.
    pub nonce: [u8; 16],
    /// The user's ephemeral share.
    pub share: Share,
    /// The user's signature over the head of the request, which ends with the encapsulated key, and over the fields above.
    pub signature: Signature,
}

impl<P: AttachProtocol> SealedVector<P> {
    /// The longest encoding.
    pub const OCTETS_MAX: usize = 16 + P::Asker::FIELD_OCTETS_MAX + 8 + 16 + 32 + 64;

    /// The fields, signed.
    pub fn signed(
        head: &[u8],
        (user, asker, counter): (UserId, P::Asker, u64),
        nonce: [u8; 16],
        share: Share,
        key: &SigningKey,
    ) -> Self {
        let mut vector = Self { user, asker, counter, nonce, share, signature: Signature::NONE };
        vector.signature = key.sign(P::SIGNED_REQUEST, &vector.signed_octets(head));
        vector
    }

    /// Whether the owner of `key` signed it for the request of this head.
    pub fn is_signed_by(&self, key: &VerifyingKey, head: &[u8]) -> bool {
        key.verifies(P::SIGNED_REQUEST, &self.signed_octets(head), &self.signature)
    }

    fn signed_octets(&self, head: &[u8]) -> Vec<u8> {
        let mut out = head.to_vec();
        self.emit_fields(&mut out);
        out
    }

    fn emit_fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.user.0);
        self.asker.emit(out);
        out.extend_from_slice(&self.counter.to_be_bytes());
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.share.0);
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::OCTETS_MAX);
        self.emit_fields(&mut out);
        out.extend_from_slice(&self.signature.0);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "user vector";
        whole(octets, |r| {
            let (user, asker) = (UserId(r.array(IE)?), P::Asker::read(r)?);
            let (counter, nonce, share) = (r.u64(IE)?, r.array(IE)?, Share(r.array(IE)?));
            Ok(Self { user, asker, counter, nonce, share, signature: read_signature(r)? })
        })
    }
}

/// The user's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRequest<P: AttachProtocol> {
    broker: Domain,
    key_id: u8,
    clear_part: P::ClearPart,
    enc: [u8; 32],
    sealed: Box<[u8]>,
}

impl<P: AttachProtocol> SealedRequest<P> {
    const SEALED_OCTETS_MAX: usize = SealedVector::<P>::OCTETS_MAX + TAG_OCTETS;
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2
        + 1
        + Domain::FIELD_OCTETS_MAX
        + P::ClearPart::FIELD_OCTETS_MAX
        + 32
        + if P::SEALED_HAS_LENGTH { 2 } else { 0 }
        + Self::SEALED_OCTETS_MAX;

    /// Seals what `vector` makes for the head of this request to the broker's key of an epoch. Gives the
    /// request and what the user and the broker then share; `None` if the key is of small order.
    pub fn seal(
        broker: Domain,
        key: &EpochKey,
        clear_part: P::ClearPart,
        seed: &Seed,
        vector: impl FnOnce(&[u8]) -> SealedVector<P>,
    ) -> Option<(Self, P::Exporter)> {
        let info = Self::info(&broker, key.id);
        let (enc, sealed, secret) = P::LABELS.seal(&key.public, &info, seed, |enc| {
            let head = Self::head_of(&broker, key.id, &clear_part, enc);
            (Zeroizing::new(vector(&head).to_octets()), head)
        })?;
        Some((Self { broker, key_id: key.id, clear_part, enc, sealed }, secret.into()))
    }

    /// Opens it with the broker's private key of the epoch. `None` if it was sealed to another key or altered.
    pub fn open(&self, key: &PrivateKey) -> Option<(Zeroizing<Vec<u8>>, P::Exporter)> {
        let info = Self::info(&self.broker, self.key_id);
        let (plain, secret) = P::LABELS.open(key, &self.enc, &info, &self.sealed, &self.head())?;
        Some((plain, secret.into()))
    }

    /// The user's broker (idB).
    pub const fn broker(&self) -> &Domain {
        &self.broker
    }

    /// Which of the broker's keys it is sealed to.
    pub const fn key_id(&self) -> u8 {
        self.key_id
    }

    /// The part that is read before the request is opened.
    pub const fn clear_part(&self) -> &P::ClearPart {
        &self.clear_part
    }

    /// Hash of the request.
    pub fn hash(&self) -> [u8; 32] {
        hash(&self.to_octets())
    }

    /// All before the sealed part, encapsulated key included: signed by the user and authenticated by the seal.
    pub fn head(&self) -> Vec<u8> {
        Self::head_of(&self.broker, self.key_id, &self.clear_part, &self.enc)
    }

    fn head_of(broker: &Domain, key_id: u8, clear_part: &P::ClearPart, enc: &[u8; 32]) -> Vec<u8> {
        let mut out = P::REQUEST.begin();
        out.push(key_id);
        broker.emit(&mut out);
        clear_part.emit(&mut out);
        out.extend_from_slice(enc);
        out
    }

    fn info(broker: &Domain, key_id: u8) -> Vec<u8> {
        [P::REQUEST_INFO, &[key_id], broker.as_str().as_bytes()].concat()
    }

    fn emit_sealed(&self, out: &mut Vec<u8>) {
        if P::SEALED_HAS_LENGTH {
            emit_part(&self.sealed, out);
        } else {
            out.extend_from_slice(&self.sealed);
        }
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = self.head();
        self.emit_sealed(&mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            P::REQUEST.read(r)?;
            let key_id = r.u8("broker key identifier")?;
            let broker = Domain::read(r)?;
            Self::read_rest(broker, key_id, r)
        })
    }

    fn read_rest(broker: Domain, key_id: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "sealed vector";
        let (clear_part, enc) = (P::ClearPart::read(r)?, r.array("encapsulated key")?);
        let sealed = if P::SEALED_HAS_LENGTH {
            read_part(r, Self::SEALED_OCTETS_MAX, IE)?
        } else {
            r.take(Self::SEALED_OCTETS_MAX, IE)?
        };
        Ok(Self { broker, key_id, clear_part, enc, sealed: sealed.into() })
    }

    /// The scheme output of the SUCI that carries it: the SUCI itself names the broker's domain and the key.
    pub fn to_scheme_output(&self) -> Vec<u8> {
        let mut out = P::REQUEST.begin();
        self.clear_part.emit(&mut out);
        out.extend_from_slice(&self.enc);
        self.emit_sealed(&mut out);
        out
    }

    /// From a SUCI: its realm, its home network public key identifier, its scheme output. Errors: [`DecodeError`].
    pub fn from_scheme_output(broker: Domain, key_id: u8, output: &[u8]) -> Result<Self, DecodeError> {
        whole(output, |r| {
            P::REQUEST.read(r)?;
            Self::read_rest(broker, key_id, r)
        })
    }
}
