//! Certificates of operators and brokers: small statements that an authority signs.
//!
//! The chapter asks for a public key signed by a certificate authority (§3.4.1). An X.509 certificate of a public authority
//! cannot name a PLMN, and such authorities issue no client certificates any more; so the statement is ours: subject, key,
//! validity, serial number. An X.509 chain may still protect the connection between the operator and the broker, at the edge.

use std::collections::BTreeSet;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, Reader};

use crate::CLOCK_SKEW_MAX_S;
use crate::codec::{MessageField, MessageHead, read_signature, whole};
use crate::crypto::{Signature, SignedKind, SigningKey, VerifyingKey};
use crate::id::{Domain, OperatorId};

/// The head of a certificate, among the messages of SAP.
const HEAD: MessageHead = MessageHead { message_type: 7, version: 1 };

/// What an authority signs.
struct CertificateSignature;

impl SignedKind for CertificateSignature {
    fn label(self) -> &'static [u8] {
        b"SAP-v1 certificate\0"
    }
}

/// A span of time, in seconds since the Unix epoch; both ends belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: u64,
    /// The last second.
    pub until: u64,
}

impl Validity {
    /// Whether it contains `now`.
    pub fn contains(&self, now: Instant) -> bool {
        (self.from..=self.until).contains(&now.as_secs())
    }

    /// Whether it contains `now`, give or take what clocks may differ.
    pub fn contains_within_skew(&self, now: Instant) -> bool {
        let now = now.as_secs();
        now.saturating_add(CLOCK_SKEW_MAX_S) >= self.from
            && now <= self.until.saturating_add(CLOCK_SKEW_MAX_S)
    }
}

impl MessageField for Validity {
    const NAME: &'static str = "validity";
    const FIELD_OCTETS_MAX: usize = 16;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.from.to_be_bytes());
        out.extend_from_slice(&self.until.to_be_bytes());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { from: r.u64(Self::NAME)?, until: r.u64(Self::NAME)? })
    }
}

/// The holder of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An operator, by its PLMN and NID.
    Operator(OperatorId),
    /// A broker, by its domain.
    Broker(Domain),
}

/// The statement of an authority that a key belongs to an operator or a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whose key it is.
    pub subject: Subject,
    /// The key that is certified.
    pub key: VerifyingKey,
    /// When it may be used.
    pub validity: Validity,
    /// By which the authority revokes it.
    pub serial: u64,
    /// The authority's signature.
    pub signature: Signature,
}

/// Why a certificate proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateError {
    /// No authority that is trusted here signed it.
    Untrusted,
    /// Its validity has not begun.
    NotYetValid,
    /// Its validity is over.
    Expired,
    /// Its authority revoked it.
    Revoked,
    /// It is a broker's where an operator's is needed, or the other way round.
    OtherKind,
}

impl core::fmt::Display for CertificateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Untrusted => "no authority that is trusted signed the certificate",
            Self::NotYetValid => "the certificate is not valid yet",
            Self::Expired => "the certificate has expired",
            Self::Revoked => "the certificate is revoked",
            Self::OtherKind => "the certificate is not of the kind needed",
        })
    }
}

impl core::error::Error for CertificateError {}

impl Certificate {
    /// The longest: a broker's of 220 octets.
    pub const OCTETS_MAX: usize = 2 + 1 + 1 + Domain::OCTETS_MAX + 32 + 16 + 8 + 64;

    /// Signs a statement as an authority.
    pub fn issue(
        authority: &SigningKey,
        subject: Subject,
        key: VerifyingKey,
        validity: Validity,
        serial: u64,
    ) -> Self {
        let mut certificate = Self { subject, key, validity, serial, signature: Signature::NONE };
        certificate.signature = authority.sign(CertificateSignature, &certificate.signed_octets());
        certificate
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, Self::read)
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = self.signed_octets();
        out.extend_from_slice(&self.signature.0);
        out
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = HEAD.begin();
        match &self.subject {
            Subject::Operator(id) => {
                out.push(1);
                id.emit(&mut out);
            }
            Subject::Broker(domain) => {
                out.push(2);
                domain.emit(&mut out);
            }
        }
        out.extend_from_slice(&self.key.octets());
        self.validity.emit(&mut out);
        out.extend_from_slice(&self.serial.to_be_bytes());
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "certificate";
        HEAD.read(r)?;
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let subject = match r.u8(IE)? {
            1 => Subject::Operator(OperatorId::read(r)?),
            2 => Subject::Broker(Domain::read(r)?),
            _ => return Err(invalid),
        };
        let key = VerifyingKey::from_octets(r.array(IE)?).ok_or(invalid)?;
        let validity = Validity::read(r)?;
        Ok(Self { subject, key, validity, serial: r.u64(IE)?, signature: read_signature(r)? })
    }
}

/// The authorities that a party trusts, and what they revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    authorities: Vec<VerifyingKey>,
    revoked: BTreeSet<u64>,
}

impl Trust {
    /// The most authorities: each costs a signature check for a certificate that none of them signed.
    pub const AUTHORITIES_MAX: usize = 8;

    /// Trusts these. `None` if they are too many.
    pub fn new(authorities: Vec<VerifyingKey>) -> Option<Self> {
        (authorities.len() <= Self::AUTHORITIES_MAX).then(|| Self { authorities, revoked: BTreeSet::new() })
    }

    #[cfg(feature = "serde")]
    pub(crate) fn parts(&self) -> (Vec<VerifyingKey>, BTreeSet<u64>) {
        (self.authorities.clone(), self.revoked.clone())
    }

    #[cfg(feature = "serde")]
    pub(crate) fn from_parts((authorities, revoked): (Vec<VerifyingKey>, BTreeSet<u64>)) -> Option<Self> {
        Some(Self { revoked, ..Self::new(authorities)? })
    }

    /// Takes note that the certificates of this serial number are revoked.
    pub fn revoke(&mut self, serial: u64) {
        self.revoked.insert(serial);
    }

    /// The operator that `certificate` names, if an authority says so now. Errors: [`CertificateError`].
    pub fn operator(&self, certificate: &Certificate, now: Instant) -> Result<OperatorId, CertificateError> {
        let Subject::Operator(id) = certificate.subject else { return Err(CertificateError::OtherKind) };
        self.check(certificate, now)?;
        Ok(id)
    }

    /// The broker that `certificate` names, if an authority says so now. Errors: [`CertificateError`].
    pub fn broker<'a>(
        &self,
        certificate: &'a Certificate,
        now: Instant,
    ) -> Result<&'a Domain, CertificateError> {
        let Subject::Broker(domain) = &certificate.subject else { return Err(CertificateError::OtherKind) };
        self.check(certificate, now)?;
        Ok(domain)
    }

    fn check(&self, certificate: &Certificate, now: Instant) -> Result<(), CertificateError> {
        let octets = certificate.signed_octets();
        let signed = |key: &VerifyingKey| key.verifies(CertificateSignature, &octets, &certificate.signature);
        if !self.authorities.iter().any(signed) {
            return Err(CertificateError::Untrusted);
        }
        if now.as_secs() < certificate.validity.from {
            return Err(CertificateError::NotYetValid);
        }
        if now.as_secs() > certificate.validity.until {
            return Err(CertificateError::Expired);
        }
        if self.revoked.contains(&certificate.serial) {
            return Err(CertificateError::Revoked);
        }
        Ok(())
    }
}
