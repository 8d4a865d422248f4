//! How reports come to the broker: the operator sends its own and passes on those of its users, and the broker answers with receipts.

use whimbrel_broker_common::{check_all, signed_message};
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, Reader};

use super::receipt::SignedReceipt;
use super::report::SealedReport;
use crate::CLOCK_SKEW_MAX_S;
use crate::crypto::{Signature, Signed, SigningKey, hash};
use crate::id::{Domain, OperatorId};
use crate::msg::{
    Certificate, CertificateError, EpochKey, MessageField, Rejection, SapMessageType, Trust, emit_part,
    read_part, read_signature, whole,
};

/// Reports that the operator sends at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Domain of the broker.
    pub broker: Domain,
    /// Certificate of the operator.
    pub certificate: Certificate,
    /// The operator's time, in seconds since the Unix epoch.
    pub time: u64,
    /// The highest number of the broker's receipts that the operator has: the broker answers with those that come after.
    pub received: u64,
    /// The reports as they were sealed.
    pub reports: Vec<SealedReport>,
    /// The operator's signature.
    pub signature: Signature,
}

impl Delivery {
    /// The most reports at once: what keeps a request under 32 KiB.
    pub const REPORTS_MAX: usize = 64;
    /// The longest, in octets.
    pub const OCTETS_MAX: usize = 2
        + 1
        + Domain::OCTETS_MAX
        + 2
        + Certificate::OCTETS_MAX
        + 8
        + 8
        + 1
        + Self::REPORTS_MAX * (2 + SealedReport::OCTETS_MAX)
        + 64;

    /// Signs one as the operator. Panics on more reports than the bound.
    pub fn signed(
        broker: Domain,
        certificate: Certificate,
        now: Instant,
        received: u64,
        reports: Vec<SealedReport>,
        key: &SigningKey,
    ) -> Self {
        assert!(reports.len() <= Self::REPORTS_MAX);
        let (time, signature) = (now.as_secs(), Signature::NONE);
        Self { broker, certificate, time, received, reports, signature }.with_signature(key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::UsageDelivery.begin();
        self.broker.emit(&mut out);
        emit_part(&self.certificate.to_octets(), &mut out);
        out.extend_from_slice(&self.time.to_be_bytes());
        out.extend_from_slice(&self.received.to_be_bytes());
        out.push(self.reports.len() as u8);
        self.reports.iter().for_each(|r| emit_part(&r.to_octets(), &mut out));
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        SapMessageType::UsageDelivery.read(r)?;
        let broker = Domain::read(r)?;
        let certificate = Certificate::parse(read_part(r, Certificate::OCTETS_MAX, "certificate")?)?;
        let (time, received) = (r.u64("time")?, r.u64("receipt number")?);
        let too_many = r.error(DecodeErrorKind::TooMany, "reports");
        let count = usize::from(r.u8("reports")?);
        if count > Self::REPORTS_MAX {
            return Err(too_many);
        }
        let report = |r: &mut Reader<'_>| {
            SealedReport::parse(read_part(r, SealedReport::OCTETS_MAX, "sealed report")?)
        };
        let reports = (0..count).map(|_| report(r)).collect::<Result<_, _>>()?;
        Ok(Self { broker, certificate, time, received, reports, signature: read_signature(r)? })
    }

    /// Its sender, as the broker may believe. Errors: why the broker rejects it.
    pub fn authenticate(
        &self,
        broker: &Domain,
        trust: &Trust,
        now: Instant,
    ) -> Result<OperatorId, Rejection> {
        if self.broker != *broker {
            return Err(Rejection::OtherBroker);
        }
        let id = trust.operator(&self.certificate, now).map_err(|e| match e {
            CertificateError::Untrusted | CertificateError::OtherKind => Rejection::CertificateUntrusted,
            CertificateError::NotYetValid => Rejection::CertificateNotYetValid,
            CertificateError::Expired => Rejection::CertificateExpired,
            CertificateError::Revoked => Rejection::CertificateRevoked,
        })?;
        if !self.is_signed_by(&self.certificate.key) {
            return Err(Rejection::OperatorSignature);
        }
        if self.time.abs_diff(now.as_secs()) > CLOCK_SKEW_MAX_S {
            return Err(Rejection::ClockSkew);
        }
        Ok(id)
    }
}

signed_message!(Delivery as Signed::UsageDelivery);

/// The statement of the broker about a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryBody {
    /// The reports were looked at.
    Taken {
        /// The key to which the next reports are sealed.
        key: EpochKey,
        /// What came of each report, in their order: see [`super::Outcome`].
        outcomes: Vec<u8>,
        /// Receipts whose numbers come after the one that the operator has, ascending.
        receipts: Vec<SignedReceipt>,
        /// The broker's signature.
        signature: Signature,
    },
    /// The operator is not authenticated, or the broker has no room.
    Rejected(Rejection),
}

/// The broker's answer to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryAnswer {
    /// Certificate of the broker.
    pub certificate: Certificate,
    /// H of the delivery.
    pub delivery: [u8; 32],
    /// The answer that is signed.
    pub body: DeliveryBody,
}

/// Why the operator does not believe an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// The octets are no such answer.
    Malformed(DecodeError),
    /// The broker rejects what the operator sent.
    Rejected(Rejection),
    /// The broker's certificate proves nothing.
    BrokerCertificate(CertificateError),
    /// The certificate is of another broker than the one that was asked.
    OtherBroker,
    /// The broker did not sign it.
    BrokerSignature,
    /// It answers another delivery.
    OtherDelivery,
    /// It does not say what came of each report.
    Outcomes,
    /// A receipt in it is not the broker's, or for another operator.
    Receipt,
}

impl core::fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed(e) => return write!(f, "{e}"),
            Self::Rejected(cause) => return write!(f, "the broker rejects the reports: {cause}"),
            Self::BrokerCertificate(e) => return write!(f, "the broker is not believed: {e}"),
            Self::OtherBroker => "the answer is of another broker than the one asked",
            Self::BrokerSignature => "the broker's signature is wrong",
            Self::OtherDelivery => "the answer is for another delivery",
            Self::Outcomes => "the answer does not say what came of each report",
            Self::Receipt => "a receipt is not the broker's, or is for another operator",
        })
    }
}

impl core::error::Error for DeliveryError {}

impl DeliveryAnswer {
    /// The most receipts in one answer: what keeps it under 64 KiB.
    pub const RECEIPTS_MAX: usize = 120;
    /// The longest, in octets.
    pub const OCTETS_MAX: usize = 2
        + 2
        + Certificate::OCTETS_MAX
        + 32
        + 1
        + 33
        + 1
        + Delivery::REPORTS_MAX
        + 1
        + Self::RECEIPTS_MAX * (2 + SignedReceipt::OCTETS_MAX)
        + 64;

    /// Signs one as the broker. Panics on more receipts than the bound.
    pub fn signed(
        certificate: Certificate,
        delivery: &[u8],
        key: EpochKey,
        outcomes: Vec<u8>,
        receipts: Vec<SignedReceipt>,
        signing: &SigningKey,
    ) -> Self {
        assert!(receipts.len() <= Self::RECEIPTS_MAX && outcomes.len() <= Delivery::REPORTS_MAX);
        let signature = Signature::NONE;
        let body = DeliveryBody::Taken { key, outcomes, receipts, signature };
        let mut answer = Self { certificate, delivery: hash(delivery), body };
        let signed = signing.sign(Signed::UsageAnswer, &answer.signed_octets());
        if let DeliveryBody::Taken { signature, .. } = &mut answer.body {
            *signature = signed;
        }
        answer
    }

    /// A rejection, which is not signed.
    pub fn rejected(certificate: Certificate, delivery: &[u8], cause: Rejection) -> Self {
        Self { certificate, delivery: hash(delivery), body: DeliveryBody::Rejected(cause) }
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::UsageAnswer.begin();
        emit_part(&self.certificate.to_octets(), &mut out);
        out.extend_from_slice(&self.delivery);
        match &self.body {
            DeliveryBody::Taken { key, outcomes, receipts, .. } => {
                out.push(1);
                key.emit(&mut out);
                out.push(outcomes.len() as u8);
                out.extend_from_slice(outcomes);
                out.push(receipts.len() as u8);
                receipts.iter().for_each(|r| emit_part(&r.to_octets(), &mut out));
            }
            DeliveryBody::Rejected(cause) => out.extend_from_slice(&[2, *cause as u8]),
        }
        out
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = self.signed_octets();
        if let DeliveryBody::Taken { signature, .. } = &self.body {
            out.extend_from_slice(&signature.0);
        }
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "answer to reports";
        whole(octets, |r| {
            SapMessageType::UsageAnswer.read(r)?;
            let certificate = Certificate::parse(read_part(r, Certificate::OCTETS_MAX, "certificate")?)?;
            let delivery = r.array(IE)?;
            let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
            let body = match r.u8(IE)? {
                1 => Self::read_taken(r)?,
                2 => DeliveryBody::Rejected(Rejection::read(r)?),
                _ => return Err(invalid),
            };
            Ok(Self { certificate, delivery, body })
        })
    }

    fn read_taken(r: &mut Reader<'_>) -> Result<DeliveryBody, DecodeError> {
        const IE: &str = "answer to reports";
        let key = EpochKey::read(r)?;
        let too_many = r.error(DecodeErrorKind::TooMany, IE);
        let count = usize::from(r.u8(IE)?);
        if count > Delivery::REPORTS_MAX {
            return Err(too_many);
        }
        let outcomes = r.take(count, IE)?.to_vec();
        let too_many = r.error(DecodeErrorKind::TooMany, "receipts");
        let count = usize::from(r.u8(IE)?);
        if count > Self::RECEIPTS_MAX {
            return Err(too_many);
        }
        let receipt =
            |r: &mut Reader<'_>| SignedReceipt::parse(read_part(r, SignedReceipt::OCTETS_MAX, "receipt")?);
        let receipts = (0..count).map(|_| receipt(r)).collect::<Result<_, _>>()?;
        Ok(DeliveryBody::Taken { key, outcomes, receipts, signature: read_signature(r)? })
    }

    /// Reads the broker's answer to `delivery` as the operator, and checks every signature in it. Gives the
    /// broker's current key, what came of each report, and the receipts.
    pub fn verify(
        octets: &[u8],
        delivery: &Delivery,
        operator: OperatorId,
        trust: &Trust,
        now: Instant,
    ) -> Result<(EpochKey, Vec<u8>, Vec<SignedReceipt>), DeliveryError> {
        let answer = Self::parse(octets).map_err(DeliveryError::Malformed)?;
        let signed = answer.signed_octets();
        let (key, outcomes, receipts, signature) = match answer.body {
            DeliveryBody::Rejected(cause) => return Err(DeliveryError::Rejected(cause)),
            DeliveryBody::Taken { key, outcomes, receipts, signature } => {
                (key, outcomes, receipts, signature)
            }
        };
        let broker = trust.broker(&answer.certificate, now).map_err(DeliveryError::BrokerCertificate)?;
        let by = &answer.certificate.key;
        let mine = |r: &SignedReceipt| {
            r.is_signed_by(by) && r.receipt.operator == operator && r.receipt.broker == delivery.broker
        };
        check_all([
            (*broker == delivery.broker, DeliveryError::OtherBroker),
            (by.verifies(Signed::UsageAnswer, &signed, &signature), DeliveryError::BrokerSignature),
            (answer.delivery == hash(&delivery.to_octets()), DeliveryError::OtherDelivery),
            (outcomes.len() == delivery.reports.len(), DeliveryError::Outcomes),
            (receipts.iter().all(mine), DeliveryError::Receipt),
        ])?;
        Ok((key, outcomes, receipts))
    }
}
