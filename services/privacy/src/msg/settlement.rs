//! Settlement (chapter 4.4.5, "claiming phase"): the broker publishes the table of a period's reported
//! sessions; the operator, under its name, claims the sum of its rows with a proof that says not which they
//! are.
//!
//! The root of the table is signed by the broker and by witnesses, so that all operators see the same table.
//! What is proved, and how, is not here: a root and a nullifier are digests, a proof is octets.

use whimbrel_broker_common::certificate::Certificate;
use whimbrel_broker_common::crypto::Signature;
use whimbrel_broker_common::id::{Domain, OperatorId};
use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::{MessageField, MessageType, causes, emit_part, read_part, read_signature, signed_message, whole};
use crate::crypto::{Signed, SigningKey, VerifyingKey, hash};
use crate::log::{Cosignature, LogError, LogProof, LogTrust, emit_cosignatures, read_cosignatures};

/// A word of a digest is below this, the modulus of the field in which claims are proved.
const FIELD_MODULUS: u32 = 0x7f00_0001;

/// Whether octets are a digest of the field: eight words, each below the modulus.
pub fn is_field_digest(octets: &[u8; 32]) -> bool {
    octets.as_chunks::<4>().0.iter().all(|word| u32::from_be_bytes(*word) < FIELD_MODULUS)
}

/// The statement of the broker about a period: the root of its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeriodHead {
    /// Domain of the broker whose period it is.
    pub broker: Domain,
    /// Its number: 0, 1, 2 and so on.
    pub period: u32,
    /// Rows of the table; at most [`PeriodHead::ROWS_MAX`].
    pub rows: u32,
    /// Sessions for which every claim of the period has room.
    pub slots: u16,
    /// Root of the table.
    pub root: [u8; 32],
    /// The broker's signature.
    pub signature: Signature,
}

impl PeriodHead {
    /// The most rows of a table: a longer period is two.
    pub const ROWS_MAX: u32 = 1 << 20;
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 4 + 4 + 2 + 32 + 64;

    /// The head, signed by the broker.
    pub fn signed(
        broker: Domain,
        (period, rows, slots): (u32, u32, u16),
        root: [u8; 32],
        key: &SigningKey,
    ) -> Self {
        Self { broker, period, rows, slots, root, signature: Signature::NONE }.with_signature(key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::PeriodHead.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.period.to_be_bytes());
        out.extend_from_slice(&self.rows.to_be_bytes());
        out.extend_from_slice(&self.slots.to_be_bytes());
        out.extend_from_slice(&self.root);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        MessageType::PeriodHead.read(r)?;
        let (broker, period) = (Domain::read(r)?, r.u32("period")?);
        let too_many = r.error(DecodeErrorKind::TooMany, "rows");
        let rows = r.u32("rows")?;
        if rows > Self::ROWS_MAX {
            return Err(too_many);
        }
        let (slots, root) = (r.u16("slots")?, r.array("root")?);
        Ok(Self { broker, period, rows, slots, root, signature: read_signature(r)? })
    }

    /// True if the broker and enough witnesses have signed it. Errors: [`LogError`].
    pub fn check(&self, cosignatures: &[Cosignature], trust: &LogTrust) -> Result<(), LogError> {
        if self.broker != trust.broker {
            return Err(LogError::OtherBroker);
        }
        if !self.is_signed_by(&trust.broker_key) {
            return Err(LogError::BrokerSignature);
        }
        trust.check_witnesses(Signed::PeriodCosignature, &self.signed_octets(), cosignatures)
    }

    /// What the proof of an operator's claim is bound to.
    pub fn claim_context(&self, operator: &OperatorId) -> [u8; 32] {
        hash(&[b"VEIL-v1 claim context\0", &self.signed_octets(), operator.to_string().as_bytes()])
    }
}

signed_message!(PeriodHead as Signed::PeriodHead);

/// A witness of a broker's periods: it signs one head for each.
#[derive(Debug)]
pub struct PeriodWitness {
    broker: Domain,
    broker_key: VerifyingKey,
    signing: SigningKey,
    /// The last that was signed.
    last: Option<PeriodHead>,
}

impl PeriodWitness {
    /// Of the broker that signs with `broker_key`. `last` is the head that it signed last: store it.
    pub const fn new(
        broker: Domain,
        broker_key: VerifyingKey,
        signing: SigningKey,
        last: Option<PeriodHead>,
    ) -> Self {
        Self { broker, broker_key, signing, last }
    }

    /// Signs the head of the next period, or that of the last one again. Errors: [`LogError`]; then nothing changes.
    pub fn cosign(&mut self, head: &PeriodHead) -> Result<Cosignature, LogError> {
        if head.broker != self.broker {
            return Err(LogError::OtherBroker);
        }
        let signed = head.signed_octets();
        if !head.is_signed_by(&self.broker_key) {
            return Err(LogError::BrokerSignature);
        }
        let next = self.last.as_ref().map_or(Some(0), |last| last.period.checked_add(1));
        let same = self.last.as_ref().is_some_and(|last| last.signed_octets() == signed);
        if !same && Some(head.period) != next {
            return Err(LogError::Forked);
        }
        self.last = Some(head.clone());
        let signature = self.signing.sign(Signed::PeriodCosignature, &signed);
        Ok(Cosignature { witness: self.signing.verifying_key(), signature })
    }
}

/// The operator asks for a period's table, from a row on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRequest {
    /// Domain of the broker whose table it is.
    pub broker: Domain,
    /// Number of the period.
    pub period: u32,
    /// The first row of the answer.
    pub from: u32,
}

impl TableRequest {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 4 + 4;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::TableRequest.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.period.to_be_bytes());
        out.extend_from_slice(&self.from.to_be_bytes());
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::TableRequest.read(r)?;
            Ok(Self { broker: Domain::read(r)?, period: r.u32("period")?, from: r.u32("row")? })
        })
    }
}

/// A reported session: the nonce of its report, and its units.
pub type TableRow = ([u8; 32], u32);

/// Part of a period's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePart {
    /// Head of the table.
    pub head: PeriodHead,
    /// Those of the witnesses; at most [`LogProof::COSIGNATURES_MAX`].
    pub cosignatures: Vec<Cosignature>,
    /// The rows from the one that was asked for, in ascending order of their nonces; at most [`TablePart::ROWS_MAX`].
    pub rows: Vec<TableRow>,
}

impl TablePart {
    /// Rows of an answer: 300 kB.
    pub const ROWS_MAX: usize = 8_192;
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize =
        2 + 2 + PeriodHead::OCTETS_MAX + 1 + LogProof::COSIGNATURES_MAX * 96 + 2 + Self::ROWS_MAX * 36;

    /// Its octets. Panics on more cosignatures or rows than the bounds.
    pub fn to_octets(&self) -> Vec<u8> {
        assert!(self.rows.len() <= Self::ROWS_MAX);
        let mut out = MessageType::TablePart.begin();
        emit_part(&self.head.to_octets(), &mut out);
        emit_cosignatures(&self.cosignatures, &mut out);
        out.extend_from_slice(&(self.rows.len() as u16).to_be_bytes());
        for (nonce, units) in &self.rows {
            out.extend_from_slice(nonce);
            out.extend_from_slice(&units.to_be_bytes());
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::TablePart.read(r)?;
            let head = PeriodHead::parse(read_part(r, PeriodHead::OCTETS_MAX, "period head")?)?;
            let cosignatures = read_cosignatures(r)?;
            let too_many = r.error(DecodeErrorKind::TooMany, "rows");
            let count = usize::from(r.u16("rows")?);
            if count > Self::ROWS_MAX {
                return Err(too_many);
            }
            let mut rows = Vec::new();
            for _ in 0..count {
                rows.push((r.array("nonce")?, r.u32("units")?));
            }
            Ok(Self { head, cosignatures, rows })
        })
    }
}

/// The operator claims, under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Domain of the broker.
    pub broker: Domain,
    /// The operator's name and key.
    pub certificate: Certificate,
    /// Of which period.
    pub period: u32,
    /// The sum of the rows that are claimed.
    pub units: u64,
    /// One for each slot, at most [`ClaimRequest::SLOTS_MAX`]: those of the sessions, and of the slots that are free.
    pub nullifiers: Vec<[u8; 32]>,
    /// Proof of the claim.
    pub proof: Vec<u8>,
    /// The operator's signature.
    pub signature: Signature,
}

impl ClaimRequest {
    /// The most slots of a claim.
    pub const SLOTS_MAX: usize = 1_024;
    /// The longest proof.
    pub const PROOF_OCTETS_MAX: usize = 1 << 20;
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2
        + 1
        + Domain::OCTETS_MAX
        + 2
        + Certificate::OCTETS_MAX
        + 4
        + 8
        + 2
        + Self::SLOTS_MAX * 32
        + 4
        + Self::PROOF_OCTETS_MAX
        + 64;

    /// The claim, signed by the owner of the certificate.
    pub fn signed(
        (broker, period): (Domain, u32),
        certificate: Certificate,
        units: u64,
        (nullifiers, proof): (Vec<[u8; 32]>, Vec<u8>),
        key: &SigningKey,
    ) -> Self {
        let signature = Signature::NONE;
        Self { broker, certificate, period, units, nullifiers, proof, signature }.with_signature(key)
    }

    /// Whether the certificate's owner signed it.
    pub fn is_signed(&self) -> bool {
        self.is_signed_by(&self.certificate.key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::ClaimRequest.begin();
        self.broker.emit(&mut out);
        emit_part(&self.certificate.to_octets(), &mut out);
        out.extend_from_slice(&self.period.to_be_bytes());
        out.extend_from_slice(&self.units.to_be_bytes());
        let slots = u16::try_from(self.nullifiers.len()).expect("a claim has at most 1,024 slots");
        out.extend_from_slice(&slots.to_be_bytes());
        self.nullifiers.iter().for_each(|nullifier| out.extend_from_slice(nullifier));
        let length = u32::try_from(self.proof.len()).expect("a proof has at most 2^20 octets");
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.proof);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        MessageType::ClaimRequest.read(r)?;
        let broker = Domain::read(r)?;
        let certificate = Certificate::parse(read_part(r, Certificate::OCTETS_MAX, "certificate")?)?;
        let (period, units) = (r.u32("period")?, r.u64("units")?);
        let nullifiers = read_nullifiers(r)?;
        let too_long = r.error(DecodeErrorKind::InvalidLength, "proof");
        let length = usize::try_from(r.u32("proof")?).unwrap_or(usize::MAX);
        if length > Self::PROOF_OCTETS_MAX {
            return Err(too_long);
        }
        let proof = r.take(length, "proof")?.to_vec();
        Ok(Self { broker, certificate, period, units, nullifiers, proof, signature: read_signature(r)? })
    }
}

signed_message!(ClaimRequest as Signed::Claim);

fn read_nullifiers(r: &mut Reader<'_>) -> Result<Vec<[u8; 32]>, DecodeError> {
    let too_many = r.error(DecodeErrorKind::TooMany, "nullifiers");
    let count = usize::from(r.u16("nullifiers")?);
    if count > ClaimRequest::SLOTS_MAX {
        return Err(too_many);
    }
    (0..count).map(|_| r.array("nullifier")).collect()
}

causes! {
    /// Why the broker does not pay a claim, or has no such table.
    ClaimRefusal, "claim refusal" {
        /// The octets are no claim.
        Malformed = 1, "the claim is malformed";
        /// It is for another broker.
        OtherBroker = 2, "the claim is for another broker";
        /// No authority that the broker trusts signed the certificate, or it is revoked or not valid now.
        Certificate = 3, "the operator's certificate is not trusted, revoked or not valid now";
        /// The signature is not the operator's.
        OperatorSignature = 4, "the operator's signature is wrong";
        /// The broker has no contract with the operator.
        OperatorNotAllowed = 5, "the broker has no contract with the operator";
        /// The broker has closed no such period.
        UnknownPeriod = 6, "the broker has closed no such period";
        /// The claim has not as many slots as the period's head says.
        Slots = 7, "the claim has another number of slots than all claims of the period";
        /// A nullifier stands in the claim twice.
        Repeated = 8, "a session is claimed twice in the claim";
        /// A nullifier stands in a claim that was paid.
        Claimed = 9, "a session of the claim was claimed before";
        /// The sum is higher than that of any table.
        Overflow = 10, "the sum of the claim is higher than that of any table";
        /// The proof is none.
        Proof = 11, "the proof of the claim is malformed";
        /// The proof does not prove the claim.
        NotProven = 12, "the proof does not prove the claim";
        /// The operator has made as many claims of the period as it may.
        TooMany = 13, "the operator has made as many claims of the period as it may";
    }
}

/// The answer of the broker to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// It is paid, now or before.
    Paid(Payment),
    /// It is not.
    Refused(ClaimRefusal),
}

/// That a claim is paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Hash of the claim.
    pub claim: [u8; 32],
    /// Of which period.
    pub period: u32,
    /// Units that are paid.
    pub units: u64,
    /// The broker's signature.
    pub signature: Signature,
}

impl Payment {
    /// The payment of a claim, signed by the broker.
    pub fn signed(claim: [u8; 32], period: u32, units: u64, key: &SigningKey) -> Self {
        let mut payment = Self { claim, period, units, signature: Signature::NONE };
        payment.signature = key.sign(Signed::Payment, &payment.signed_octets());
        payment
    }

    /// True if it is the broker's word on this claim.
    pub fn is_of(&self, claim: &[u8], key: &VerifyingKey) -> bool {
        self.claim == hash(&[claim]) && key.verifies(Signed::Payment, &self.signed_octets(), &self.signature)
    }

    fn signed_octets(&self) -> Vec<u8> {
        [&self.claim[..], &self.period.to_be_bytes(), &self.units.to_be_bytes()].concat()
    }
}

impl ClaimAnswer {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + 32 + 4 + 8 + 64;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::ClaimAnswer.begin();
        match self {
            Self::Paid(payment) => {
                out.push(1);
                out.extend_from_slice(&payment.signed_octets());
                out.extend_from_slice(&payment.signature.0);
            }
            Self::Refused(cause) => out.extend_from_slice(&[2, *cause as u8]),
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::ClaimAnswer.read(r)?;
            let unknown = r.error(DecodeErrorKind::Unknown, "claim answer");
            match r.u8("claim answer")? {
                1 => {
                    let (claim, period, units) = (r.array("claim")?, r.u32("period")?, r.u64("units")?);
                    Ok(Self::Paid(Payment { claim, period, units, signature: read_signature(r)? }))
                }
                2 => Ok(Self::Refused(ClaimRefusal::read(r)?)),
                _ => Err(unknown),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> SigningKey {
        SigningKey::new(&hash(&[name.as_bytes()]))
    }

    fn head(period: u32, root: u8) -> PeriodHead {
        let broker = "b.example".parse().unwrap();
        PeriodHead::signed(broker, (period, 3, 32), [root; 32], &key("broker"))
    }

    fn witness() -> PeriodWitness {
        let broker = "b.example".parse().unwrap();
        PeriodWitness::new(broker, key("broker").verifying_key(), key("witness"), None)
    }

    #[test]
    fn a_witness_signs_one_root_of_a_period() {
        let mut witness = witness();
        assert_eq!(witness.cosign(&head(1, 1)), Err(LogError::Forked), "a period is left out");
        let first = witness.cosign(&head(0, 1)).unwrap();
        assert_eq!(witness.cosign(&head(0, 1)), Ok(first), "the same again");
        assert_eq!(witness.cosign(&head(0, 2)), Err(LogError::Forked), "another root of the period");
        assert!(witness.cosign(&head(1, 2)).is_ok());
        assert_eq!(witness.cosign(&head(0, 1)), Err(LogError::Forked), "an earlier period");
        let other = PeriodHead { signature: Signature([1; 64]), ..head(2, 1) };
        assert_eq!(witness.cosign(&other), Err(LogError::BrokerSignature));
    }

    #[test]
    fn an_operator_believes_a_head_that_broker_and_witnesses_signed() {
        let (broker, witnesses) = (head(0, 1).broker, vec![key("witness").verifying_key()]);
        let trust = LogTrust::new(broker, key("broker").verifying_key(), witnesses).unwrap();
        let cosignature = witness().cosign(&head(0, 1)).unwrap();
        assert_eq!(head(0, 1).check(&[cosignature], &trust), Ok(()));
        assert_eq!(head(0, 1).check(&[], &trust), Err(LogError::TooFewWitnesses));
        assert_eq!(head(0, 2).check(&[cosignature], &trust), Err(LogError::TooFewWitnesses), "another root");
        let unsigned = PeriodHead { signature: Signature([1; 64]), ..head(0, 1) };
        assert_eq!(unsigned.check(&[cosignature], &trust), Err(LogError::BrokerSignature));
        let operator: OperatorId = "999/72".parse().unwrap();
        assert_ne!(head(0, 1).claim_context(&operator), head(1, 1).claim_context(&operator));
        assert_ne!(head(0, 1).claim_context(&operator), head(0, 1).claim_context(&"999/71".parse().unwrap()));
    }

    #[test]
    fn messages_of_settlement_are_read_back() {
        let cosignatures = vec![witness().cosign(&head(0, 1)).unwrap()];
        let part = TablePart { head: head(0, 1), cosignatures, rows: vec![([1; 32], 2), ([3; 32], 4)] };
        assert_eq!(TablePart::parse(&part.to_octets()).as_ref(), Ok(&part));
        let request = TableRequest { broker: head(0, 1).broker, period: 7, from: 9 };
        assert_eq!(TableRequest::parse(&request.to_octets()).as_ref(), Ok(&request));
        let payment = Payment::signed(hash(&[b"claim"]), 7, 1 << 40, &key("broker"));
        assert!(payment.is_of(b"claim", &key("broker").verifying_key()));
        assert!(!payment.is_of(b"other", &key("broker").verifying_key()));
        assert!(!Payment { units: 1, ..payment.clone() }.is_of(b"claim", &key("broker").verifying_key()));
        let refusals = ClaimRefusal::ALL.iter().map(|cause| ClaimAnswer::Refused(*cause));
        for answer in refusals.chain([ClaimAnswer::Paid(payment)]) {
            assert_eq!(ClaimAnswer::parse(&answer.to_octets()), Ok(answer));
        }
    }

    #[test]
    fn a_digest_of_the_field_has_each_word_below_the_modulus() {
        assert!(is_field_digest(&[0x7e; 32]));
        for word in 0..8 {
            let mut octets = [0; 32];
            octets[4 * word..][..4].copy_from_slice(&(FIELD_MODULUS - 1).to_be_bytes());
            assert!(is_field_digest(&octets));
            octets[4 * word..][..4].copy_from_slice(&FIELD_MODULUS.to_be_bytes());
            assert!(!is_field_digest(&octets), "word {word}");
        }
    }
}
