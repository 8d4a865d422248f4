//! The operator: passes on a request with its terms, and checks what the broker answers (chapter 3.4.1, Figure 3.3).

mod home;

use whimbrel_broker_common::check_all;
use whimbrel_broker_common::crypto::k_seaf;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant};

use crate::crypto::{K_SEAF, KSeaf, PrivateKey, SAP, Seed, Share, SigningKey, hash};
use crate::id::{Domain, OperatorId};
use crate::msg::{
    AnswerBody, AnswerKey, AnswerT, AnswerU, AuthReqT, AuthReqU, Certificate, CertificateError, Confirmation,
    ConfirmationQuestion, Filter, OperatorOrders, Rejection, SignedGrant, SignedRefusal, Subject, Terms,
    Trust, VectorQuestion, VectorRequest, emit_part, read_part, whole,
};
use crate::usage::{Delivery, Report, SealedReport, SignedReport};

pub use home::{Challenge, HomeAttach, HomeSession};

/// What an operator is and offers.
#[derive(Clone, Debug)]
pub struct Operator {
    id: OperatorId,
    certificate: Certificate,
    signing: SigningKey,
    /// Whose word on brokers it believes.
    pub trust: Trust,
    /// What it offers.
    pub terms: Terms,
}

impl Operator {
    /// The operator that the certificate names. `None` if that is none, or if `signing` is not the key of the certificate.
    pub fn new(certificate: Certificate, signing: SigningKey, trust: Trust, terms: Terms) -> Option<Self> {
        let Subject::Operator(id) = certificate.subject else { return None };
        let own = certificate.key == signing.verifying_key();
        own.then_some(Self { id, certificate, signing, trust, terms })
    }

    /// Its PLMN and NID.
    pub const fn id(&self) -> OperatorId {
        self.id
    }

    /// Signs what it has measured (chapter 3.4.3).
    pub fn sign_report(&self, report: Report) -> SignedReport {
        report.sign(&self.signing)
    }

    /// Sealed reports for the broker, signed. `received`: the number of the last receipt that it has of the broker. Panics on more than
    /// [`Delivery::REPORTS_MAX`] reports.
    pub fn deliver(
        &self,
        broker: Domain,
        now: Instant,
        received: u64,
        reports: Vec<SealedReport>,
    ) -> Delivery {
        Delivery::signed(broker, self.certificate.clone(), now, received, reports, &self.signing)
    }
}

/// Why the operator does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorError {
    /// The octets are no answer.
    Malformed(DecodeError),
    /// The broker does not take the operator for the operator that it claims to be.
    Rejected(Rejection),
    /// The broker refuses; the user may have its word.
    Refused(Box<SignedRefusal>),
    /// The broker's certificate proves nothing.
    BrokerCertificate(CertificateError),
    /// The certificate is of another broker than the one asked.
    OtherBroker,
    /// The broker did not sign it.
    BrokerSignature,
    /// It is for another operator.
    OtherOperator,
    /// It is for another request: an answer out of another session.
    OtherRequest,
    /// The answer names another ephemeral share than the operator's.
    OtherShare,
    /// The grant is on terms that the operator did not offer.
    TermsNotOffered,
    /// The grant asks for a QoS that the operator did not offer.
    QosNotOffered,
    /// The grant is not valid now.
    NotValidNow,
    /// The sealed part is not the one that the grant names.
    OtherOrders,
    /// The sealed part does not open, or holds no orders.
    Orders,
    /// The user's share is of small order.
    WeakShare,
    /// The answer is to another kind of question.
    OtherAnswer,
}

impl core::fmt::Display for OperatorError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Malformed(e) => return write!(f, "{e}"),
            Self::Rejected(cause) => return write!(f, "the broker rejects the operator's request: {cause}"),
            Self::Refused(refusal) => return write!(f, "{} refuses: {}", refusal.broker, refusal.cause),
            Self::BrokerCertificate(e) => return write!(f, "the broker is not believed: {e}"),
            Self::OtherBroker => "the answer is of another broker than the one asked",
            Self::BrokerSignature => "the broker's signature is wrong",
            Self::OtherOperator => "the answer is for another operator",
            Self::OtherRequest => "the answer is for another request",
            Self::OtherShare => "the answer names another ephemeral share",
            Self::TermsNotOffered => "the broker grants on terms that were not offered",
            Self::QosNotOffered => "the broker grants a QoS that was not offered",
            Self::NotValidNow => "the grant is not valid now",
            Self::OtherOrders => "the broker's orders are not those that its grant names",
            Self::Orders => "the broker's orders do not open",
            Self::WeakShare => "the user's ephemeral share is of small order",
            Self::OtherAnswer => "the answer is to another kind of question",
        })
    }
}

impl core::error::Error for OperatorError {}

impl From<DecodeError> for OperatorError {
    fn from(e: DecodeError) -> Self {
        Self::Malformed(e)
    }
}

/// The question that the operator asks a broker, before the operator has signed it: the machine that asks holds no key of
/// the operator's, and the edge that sends the question signs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// authReqT: may the operator serve this user on these terms?
    Attach {
        /// The user's request.
        request: AuthReqU,
        /// The terms that the operator offers.
        terms: Terms,
        /// The operator's ephemeral share.
        share: Share,
    },
    /// The challenge of an ordinary UE, on these terms.
    Vector {
        /// The question, which names the UE.
        question: VectorQuestion,
        /// The terms that the operator offers.
        terms: Terms,
    },
    /// The key and the grant for an ordinary UE that has responded, on these terms.
    Confirmation {
        /// The question with the UE's response.
        question: ConfirmationQuestion,
        /// The terms that the operator offers.
        terms: Terms,
    },
}

impl Question {
    /// The broker that the operator asks.
    pub const fn broker(&self) -> &Domain {
        match self {
            Self::Attach { request, .. } => request.broker(),
            Self::Vector { question, .. } => &question.broker,
            Self::Confirmation { question, .. } => &question.broker,
        }
    }

    /// The octets for the broker, signed by the operator at this time. The broker knows a question again whenever it was signed.
    pub fn sign(&self, operator: &Operator, now: Instant) -> Vec<u8> {
        let (id, certificate, key) = (operator.id, operator.certificate.clone(), &operator.signing);
        match self {
            Self::Attach { request, terms, share } => {
                let offer = (terms.clone(), *share);
                AuthReqT::signed(request.clone(), certificate, id, offer, now, key).to_octets()
            }
            Self::Vector { question, terms } => {
                let by = (id, certificate, key);
                VectorRequest::signed(question.clone(), by, terms.clone(), now).to_octets()
            }
            Self::Confirmation { question, terms } => {
                let by = (id, certificate, key);
                Confirmation::signed(question.clone(), by, terms.clone(), now).to_octets()
            }
        }
    }

    /// Its octets, for processes of the operator's.
    pub fn to_octets(&self) -> Vec<u8> {
        match self {
            Self::Attach { request, terms, share } => {
                let mut out = vec![1];
                emit_part(&request.to_octets(), &mut out);
                emit_part(&terms.to_octets(), &mut out);
                out.extend_from_slice(&share.0);
                out
            }
            Self::Vector { question, terms } => with_terms(2, &question.to_octets(), terms),
            Self::Confirmation { question, terms } => with_terms(3, &question.to_octets(), terms),
        }
    }

    /// Parses them. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "question";
        whole(octets, |r| {
            let unknown = r.error(DecodeErrorKind::Unknown, IE);
            match r.u8(IE)? {
                1 => Ok(Self::Attach {
                    request: AuthReqU::parse(read_part(r, AuthReqU::OCTETS_MAX, "authReqU")?)?,
                    terms: Terms::parse(read_part(r, Terms::OCTETS_MAX, "terms")?)?,
                    share: Share(r.array("share")?),
                }),
                2 => Ok(Self::Vector { question: VectorQuestion::read(r)?, terms: Terms::read(r)? }),
                3 => Ok(Self::Confirmation {
                    question: ConfirmationQuestion::read(r)?,
                    terms: Terms::read(r)?,
                }),
                _ => Err(unknown),
            }
        })
    }
}

fn with_terms(kind: u8, question: &[u8], terms: &Terms) -> Vec<u8> {
    [&[kind][..], question, &terms.to_octets()].concat()
}

/// What a refusal means to the operator that has sent this request to this broker.
fn refused(
    (broker, id, request): (&Domain, OperatorId, &[u8; 32]),
    refusal: SignedRefusal,
    certificate: &Certificate,
) -> OperatorError {
    if !refusal.is_signed_by(&certificate.key) {
        OperatorError::BrokerSignature
    } else if refusal.broker != *broker {
        OperatorError::OtherBroker
    } else if refusal.asker != id {
        OperatorError::OtherOperator
    } else if refusal.request != *request {
        OperatorError::OtherRequest
    } else {
        OperatorError::Refused(Box::new(refusal))
    }
}

/// The operator has asked and waits. What it has asked is a function of the request, its terms and the seed, so a replica that has these
/// asks the same.
#[derive(Debug)]
pub struct OperatorAttach {
    id: OperatorId,
    terms: Terms,
    broker: Domain,
    request: [u8; 32],
    private: PrivateKey,
}

impl OperatorAttach {
    /// The operator `id` passes on the user's request and offers `terms`. Gives what is to be signed and sent.
    pub fn ask(id: OperatorId, terms: Terms, request: AuthReqU, seed: &Seed) -> (Self, Question) {
        let private = SAP.ephemeral_key(seed);
        let share = private.share();
        let (broker, hash) = (request.broker().clone(), request.hash());
        let attach = Self { id, terms: terms.clone(), broker, request: hash, private };
        (attach, Question::Attach { request, terms, share })
    }

    /// Passes on the user's request. Gives the octets for the broker.
    pub fn begin(operator: &Operator, request: AuthReqU, now: Instant, seed: &Seed) -> (Self, Vec<u8>) {
        let (attach, question) = Self::ask(operator.id, operator.terms.clone(), request, seed);
        let asked = question.sign(operator, now);
        (attach, asked)
    }

    /// Checks the broker's answer, with what the operator trusts now, and derives K_SEAF. An answer that fails a check changes nothing.
    pub fn answer(
        &self,
        octets: &[u8],
        trust: &Trust,
        now: Instant,
    ) -> Result<OperatorSession, OperatorError> {
        let AnswerT { certificate, body } = AnswerT::parse(octets)?;
        // A rejection carries no signature, so the certificate beside it proves nothing.
        if let AnswerBody::Rejected(cause) = body {
            return Err(OperatorError::Rejected(cause));
        }
        let broker = trust.broker(&certificate, now).map_err(OperatorError::BrokerCertificate)?;
        if *broker != self.broker {
            return Err(OperatorError::OtherBroker);
        }
        match body {
            AnswerBody::Rejected(cause) => Err(OperatorError::Rejected(cause)),
            AnswerBody::Challenged(_) | AnswerBody::Released { .. } => Err(OperatorError::OtherAnswer),
            AnswerBody::Refused(refusal) => Err(self.refused(refusal, &certificate)),
            AnswerBody::Granted { grant, orders, answer_u } => {
                self.check(&grant, &certificate, &orders, now)?;
                let key = AnswerKey::new(&self.request, self.id, &self.terms, &self.private.share());
                let orders =
                    OperatorOrders::open(&self.private, &key, &orders).ok_or(OperatorError::Orders)?;
                let OperatorOrders { ss, intercept, filters } = orders;
                let (share, transcript) = (&grant.grant.user_share, grant.grant.transcript());
                let k_seaf =
                    k_seaf(K_SEAF, &ss, &self.private, share, &transcript).ok_or(OperatorError::WeakShare)?;
                Ok(OperatorSession { grant, k_seaf, intercept, filters, answer_u })
            }
        }
    }

    fn refused(&self, refusal: SignedRefusal, certificate: &Certificate) -> OperatorError {
        refused((&self.broker, self.id, &self.request), refusal, certificate)
    }

    fn check(
        &self,
        signed: &SignedGrant,
        certificate: &Certificate,
        orders: &[u8],
        now: Instant,
    ) -> Result<(), OperatorError> {
        let grant = &signed.grant;
        check_all([
            (signed.is_signed_by(&certificate.key), OperatorError::BrokerSignature),
            (grant.broker == self.broker, OperatorError::OtherBroker),
            (grant.operator == self.id, OperatorError::OtherOperator),
            (grant.request == self.request, OperatorError::OtherRequest),
            (grant.operator_share == self.private.share(), OperatorError::OtherShare),
            (grant.terms == self.terms, OperatorError::TermsNotOffered),
            (self.terms.qos.covers(&grant.qos), OperatorError::QosNotOffered),
            (grant.validity.contains_within_skew(now), OperatorError::NotValidNow),
            (grant.orders == hash(orders), OperatorError::OtherOrders),
        ])
    }
}

/// The state of an attach at the operator. The ephemeral key and ss are gone once the attach is dropped.
#[derive(Debug)]
pub struct OperatorSession {
    /// The evidence that the operator shows to a judge.
    pub grant: SignedGrant,
    /// Where the 5G key hierarchy starts.
    pub k_seaf: KSeaf,
    /// True if the operator must intercept.
    pub intercept: bool,
    /// Traffic that the operator must drop.
    pub filters: Vec<Filter>,
    /// For the user, in the EAP message of SECURITY MODE COMMAND.
    pub answer_u: AnswerU,
}
