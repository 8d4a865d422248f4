//! Class 2: an ordinary 3GPP UE of a broker's, which has K and no key pair. The broker is its home network:
//! it challenges the UE through the operator, and releases SUPI, K_SEAF and grant when the operator shows the
//! UE's response (5G-AKA with home control, TS 33.501 §6.1.3.2).

use whimbrel_broker_common::envelope::TAG_OCTETS;
use whimbrel_broker_common::session::{emit_filters, read_filters};
use whimbrel_broker_common::signed_message;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, PlmnId, Reader, Supi};
use zeroize::Zeroizing;

use super::terms::Terms;
use super::{
    Certificate, Filter, MessageField, Resynchronisation, SCHEME_OUTPUT_OCTETS_MAX, SapMessageType,
    emit_part, read_flag, read_part, read_signature, whole,
};
use crate::crypto::{KSeaf, PrivateKey, SAP, Seed, Share, Signature, Signed, SigningKey, hash};
use crate::id::{Domain, OperatorId};

/// How the operator names a UE to the broker.
#[derive(Clone, PartialEq, Eq)]
pub enum Subscriber {
    /// As the UE has it authenticated before.
    Supi(Supi),
    /// A SUCI of type IMSI (TS 23.003 §2.2B).
    Suci {
        /// PLMN of the home network.
        plmn: PlmnId,
        /// Protection scheme identifier.
        scheme: u8,
        /// Home network public key identifier.
        key_id: u8,
        /// Scheme output; of the null scheme the MSIN in BCD. At most [`SCHEME_OUTPUT_OCTETS_MAX`].
        output: Box<[u8]>,
    },
}

/// Redacted: a SUPI identifies a person.
impl core::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Subscriber(…)")
    }
}

impl Subscriber {
    const OCTETS_MAX: usize = 1 + 3 + 1 + 1 + 2 + SCHEME_OUTPUT_OCTETS_MAX;

    fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Supi(supi) => {
                out.push(1);
                emit_supi(*supi, out);
            }
            Self::Suci { plmn, scheme, key_id, output } => {
                out.push(2);
                plmn.emit(out);
                out.extend_from_slice(&[*scheme, *key_id]);
                emit_part(output, out);
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "subscriber";
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        match r.u8(IE)? {
            1 => Ok(Self::Supi(read_supi(r)?)),
            2 => Ok(Self::Suci {
                plmn: PlmnId::from_nas_octets(r.array(IE)?).ok_or(invalid)?,
                scheme: Some(r.u8(IE)?).filter(|scheme| *scheme < 16).ok_or(invalid)?,
                key_id: r.u8(IE)?,
                output: read_part(r, SCHEME_OUTPUT_OCTETS_MAX, IE)?.into(),
            }),
            _ => Err(invalid),
        }
    }
}

/// The digits of an IMSI, one an octet, behind their number. A SUPI of a broker's ordinary UE is no network access identifier.
fn emit_supi(supi: Supi, out: &mut Vec<u8>) {
    let digits: Vec<u8> = supi.digits().collect();
    out.push(digits.len() as u8);
    out.extend_from_slice(&digits);
}

fn read_supi(r: &mut Reader<'_>) -> Result<Supi, DecodeError> {
    const IE: &str = "SUPI";
    let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
    let count = usize::from(r.u8(IE)?);
    Supi::from_digits(r.take(count, IE)?.iter().copied()).ok_or(invalid)
}

/// The operator that asks, what it offers, and its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Certificate of the operator.
    pub certificate: Certificate,
    /// The terms that the operator offers.
    pub terms: Terms,
    /// The operator's time, in seconds since the Unix epoch.
    pub time: u64,
    /// The operator's signature over the question, its identity, terms and time.
    pub signature: Signature,
}

impl Asker {
    const OCTETS_MAX: usize = 2 + Certificate::OCTETS_MAX + Terms::OCTETS_MAX + 8 + 64;

    fn signed(
        kind: Signed,
        question: &[u8],
        (operator, certificate, key): (OperatorId, Certificate, &SigningKey),
        terms: Terms,
        now: Instant,
    ) -> Self {
        let mut asker = Self { certificate, terms, time: now.as_secs(), signature: Signature::NONE };
        asker.signature = key.sign(kind, &asker.signed_octets(question, operator));
        asker
    }

    fn has_signed(&self, kind: Signed, question: &[u8], operator: OperatorId) -> bool {
        self.certificate.key.verifies(kind, &self.signed_octets(question, operator), &self.signature)
    }

    fn signed_octets(&self, question: &[u8], operator: OperatorId) -> Vec<u8> {
        let mut out = keyed_octets(question, operator, &self.terms);
        out.extend_from_slice(&self.time.to_be_bytes());
        out
    }

    fn emit(&self, out: &mut Vec<u8>) {
        emit_part(&self.certificate.to_octets(), out);
        self.terms.emit(out);
        out.extend_from_slice(&self.time.to_be_bytes());
        out.extend_from_slice(&self.signature.0);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            certificate: Certificate::parse(read_part(r, Certificate::OCTETS_MAX, "certificate")?)?,
            terms: Terms::read(r)?,
            time: r.u64("time")?,
            signature: read_signature(r)?,
        })
    }
}

fn keyed_octets(question: &[u8], operator: OperatorId, terms: &Terms) -> Vec<u8> {
    let mut out = question.to_vec();
    operator.emit(&mut out);
    terms.emit(&mut out);
    out
}

/// The operator asks for a challenge of a UE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorQuestion {
    /// Domain of the broker.
    pub broker: Domain,
    /// The UE that is to be authenticated.
    pub subscriber: Subscriber,
    /// Random: another question, another challenge.
    pub nonce: [u8; 16],
    /// The USIM has refused the challenge before this one.
    pub resynchronisation: Option<Resynchronisation>,
}

impl VectorQuestion {
    pub(crate) const OCTETS_MAX: usize =
        2 + 1 + Domain::OCTETS_MAX + Subscriber::OCTETS_MAX + 16 + 1 + 16 + 14;

    /// By what the broker and the operator know it: H(question ‖ operator ‖ terms). The signature and its
    /// time do not count, so that the broker gives the same answer to a question that the operator has signed
    /// again.
    pub fn hash(&self, operator: OperatorId, terms: &Terms) -> [u8; 32] {
        hash(&keyed_octets(&self.to_octets(), operator, terms))
    }

    pub(crate) fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::VectorRequest.begin();
        self.broker.emit(&mut out);
        self.subscriber.emit(&mut out);
        out.extend_from_slice(&self.nonce);
        self.resynchronisation.emit(&mut out);
        out
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        SapMessageType::VectorRequest.read(r)?;
        let (broker, subscriber) = (Domain::read(r)?, Subscriber::read(r)?);
        Ok(Self { broker, subscriber, nonce: r.array("nonce")?, resynchronisation: MessageField::read(r)? })
    }
}

/// [`VectorQuestion`], signed by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorRequest {
    /// The question that is signed.
    pub question: VectorQuestion,
    /// The operator that asks.
    pub asker: Asker,
}

/// The operator has the UE's response and asks for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationQuestion {
    /// Domain of the broker.
    pub broker: Domain,
    /// [`VectorQuestion::hash`] of the question that led to the challenge.
    pub request: [u8; 32],
    /// RES* (TS 33.501 Annex A.4).
    pub res_star: [u8; 16],
    /// The operator's ephemeral share, to which K_SEAF is sealed.
    pub share: Share,
}

impl ConfirmationQuestion {
    pub(crate) const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 32 + 16 + 32;

    /// By what the broker knows it again.
    pub fn hash(&self, operator: OperatorId, terms: &Terms) -> [u8; 32] {
        hash(&keyed_octets(&self.to_octets(), operator, terms))
    }

    pub(crate) fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::Confirmation.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.request);
        out.extend_from_slice(&self.res_star);
        out.extend_from_slice(&self.share.0);
        out
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        SapMessageType::Confirmation.read(r)?;
        Ok(Self {
            broker: Domain::read(r)?,
            request: r.array("request")?,
            res_star: r.array("RES*")?,
            share: Share(r.array("share")?),
        })
    }
}

/// [`ConfirmationQuestion`], signed by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// The question that is signed.
    pub question: ConfirmationQuestion,
    /// The operator that asks.
    pub asker: Asker,
}

/// Both are a question and its asker.
macro_rules! signed_questions {
    ($($name:ident of $question:ident as $kind:ident;)+) => {$(
        impl $name {
            /// Octets of the longest such message.
            pub const OCTETS_MAX: usize = $question::OCTETS_MAX + Asker::OCTETS_MAX;

            /// The question, signed by the owner of the certificate.
            pub fn signed(
                question: $question,
                by: (OperatorId, Certificate, &SigningKey),
                terms: Terms,
                now: Instant,
            ) -> Self {
                let asker = Asker::signed(Signed::$kind, &question.to_octets(), by, terms, now);
                Self { question, asker }
            }

            /// Whether the certificate's owner, `operator`, signed it.
            pub fn is_signed_by(&self, operator: OperatorId) -> bool {
                self.asker.has_signed(Signed::$kind, &self.question.to_octets(), operator)
            }

            /// The octets that `MESSAGES.md` lays out.
            pub fn to_octets(&self) -> Vec<u8> {
                let mut out = self.question.to_octets();
                self.asker.emit(&mut out);
                out
            }

            /// Parses one. Errors: [`DecodeError`].
            pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
                whole(octets, |r| Ok(Self { question: $question::read(r)?, asker: Asker::read(r)? }))
            }
        }
    )+};
}

signed_questions! {
    VectorRequest of VectorQuestion as VectorRequest;
    Confirmation of ConfirmationQuestion as Confirmation;
}

/// The broker's challenge of a UE: the 5G serving environment vector of TS 33.501 §6.1.3.2 step 5.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedChallenge {
    /// Domain of the broker.
    pub broker: Domain,
    /// The operator, to whose serving network name the vector is bound.
    pub operator: OperatorId,
    /// [`VectorQuestion::hash`].
    pub request: [u8; 32],
    /// RAND of the challenge.
    pub rand: [u8; 16],
    /// AUTN of the challenge.
    pub autn: [u8; 16],
    /// The digest of the response (TS 33.501 Annex A.5).
    pub hxres_star: [u8; 16],
    /// The broker's signature.
    pub signature: Signature,
}

/// Redacted, as vectors are.
impl core::fmt::Debug for SignedChallenge {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SignedChallenge({} to {}, …)", self.broker, self.operator)
    }
}

impl SignedChallenge {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 10 + 32 + 3 * 16 + 64;

    /// Signs it as the broker.
    #[must_use]
    pub fn sign(self, key: &SigningKey) -> Self {
        self.with_signature(key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::Challenge.begin();
        self.broker.emit(&mut out);
        self.operator.emit(&mut out);
        for part in [&self.request[..], &self.rand, &self.autn, &self.hxres_star] {
            out.extend_from_slice(part);
        }
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        SapMessageType::Challenge.read(r)?;
        Ok(Self {
            broker: Domain::read(r)?,
            operator: OperatorId::read(r)?,
            request: r.array("request")?,
            rand: r.array("RAND")?,
            autn: r.array("AUTN")?,
            hxres_star: r.array("HXRES*")?,
            signature: read_signature(r)?,
        })
    }
}

signed_message!(SignedChallenge as Signed::Challenge);

/// `info` of the HPKE context from the broker to the operator.
const RELEASE_INFO: &[u8] = b"SAP-v1 release";

/// The part of an answer that the broker seals to the operator with the grant.
#[derive(Clone, PartialEq, Eq)]
pub struct Release {
    /// SUPI of the subscriber.
    pub supi: Supi,
    /// The anchor key.
    pub k_seaf: KSeaf,
    /// True if the operator must intercept the session.
    pub intercept: bool,
    /// Traffic that the operator must drop; at most [`OperatorOrders::FILTERS_MAX`](super::OperatorOrders::FILTERS_MAX).
    pub filters: Vec<Filter>,
}

impl core::fmt::Debug for Release {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Release(…)")
    }
}

impl Release {
    /// The longest, sealed.
    pub(crate) const SEALED_OCTETS_MAX: usize = 32 + 16 + 32 + 1 + Filter::LIST_OCTETS_MAX + TAG_OCTETS;

    /// Seals it to the operator's share, for the confirmation of this hash: an encapsulated key and a
    /// ciphertext. `None` if the share is of small order.
    pub fn seal(&self, share: &Share, confirmation: &[u8; 32], seed: &Seed) -> Option<Box<[u8]>> {
        SAP.seal_part(share, RELEASE_INFO, seed, (self.to_octets(), confirmation))
    }

    /// Opens it with the operator's ephemeral key. `None` if it was not sealed to it for the confirmation of this hash.
    pub fn open(private: &PrivateKey, confirmation: &[u8; 32], sealed: &[u8]) -> Option<Self> {
        Self::parse(&SAP.open_part(private, RELEASE_INFO, sealed, confirmation)?).ok()
    }

    /// Its octets. Panics on more filters than the bound.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(Self::SEALED_OCTETS_MAX));
        emit_supi(self.supi, &mut out);
        out.extend_from_slice(self.k_seaf.octets());
        out.push(u8::from(self.intercept));
        emit_filters(&self.filters, &mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let (supi, k_seaf) = (read_supi(r)?, KSeaf::new(r.array("K_SEAF")?));
            Ok(Self { supi, k_seaf, intercept: read_flag(r, "intercept")?, filters: read_filters(r)? })
        })
    }
}
