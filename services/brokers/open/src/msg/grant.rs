//! The grant: the broker's signed word, in clear, that the operator may serve one session of one of its
//! users. The operator can show it to a judge.

use whimbrel_broker_common::signed_message;
use whimbrel_ids::{DecodeError, Reader};

use super::terms::Terms;
use super::{MessageField, Qos, SapMessageType, Validity, read_signature, whole};
use crate::crypto::{Share, Signature, Signed, SigningKey, hash};
use crate::id::{Domain, OperatorId, Pseudonym};

/// The terms that the broker grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Domain of the broker.
    pub broker: Domain,
    /// The user part of the session's SUPI.
    pub pseudonym: Pseudonym,
    /// Identity of the operator.
    pub operator: OperatorId,
    /// The terms that the operator offered, price included.
    pub terms: Terms,
    /// What the broker takes of the QoS offered.
    pub qos: Qos,
    /// When the operator may serve.
    pub validity: Validity,
    /// The amount that the broker pays for at most, in millionths of a unit of the price's currency.
    pub credit_micros: u64,
    /// H(authReqU); of an ordinary UE that of the vector request.
    pub request: [u8; 32],
    /// The user's ephemeral share, for the operator; [`Grant::NO_SHARE`] of an ordinary UE.
    pub user_share: Share,
    /// The operator's ephemeral share, for the user.
    pub operator_share: Share,
    /// SHA-256 of the part sealed to the operator, so that the operator's orders (intercept, filters) are the
    /// broker's and can be proven to be.
    pub orders: [u8; 32],
}

impl Grant {
    /// In place of the share of an ordinary UE, which has none: no share of SAP, since it is of small order.
    pub const NO_SHARE: Share = Share::NONE;

    /// True if it is of an ordinary UE (class 2), whose usage the operator alone reports.
    pub fn is_of_ordinary_ue(&self) -> bool {
        self.user_share == Self::NO_SHARE
    }

    /// The octets that the broker signs.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = SapMessageType::Grant.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.pseudonym.0);
        self.operator.emit(&mut out);
        self.terms.emit(&mut out);
        self.qos.emit(&mut out);
        self.validity.emit(&mut out);
        out.extend_from_slice(&self.credit_micros.to_be_bytes());
        for part in [&self.request, &self.user_share.0, &self.operator_share.0, &self.orders] {
            out.extend_from_slice(part);
        }
        out
    }

    /// Parses one without its signature. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, Self::read)
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "grant";
        SapMessageType::Grant.read(r)?;
        Ok(Self {
            broker: Domain::read(r)?,
            pseudonym: Pseudonym(r.array(IE)?),
            operator: OperatorId::read(r)?,
            terms: Terms::read(r)?,
            qos: Qos::read(r)?,
            validity: Validity::read(r)?,
            credit_micros: r.u64(IE)?,
            request: r.array(IE)?,
            user_share: Share(r.array(IE)?),
            operator_share: Share(r.array(IE)?),
            orders: r.array(IE)?,
        })
    }

    /// H(authReqU ‖ grant), where H(authReqU) stands for authReqU: what K_SEAF is bound to.
    pub fn transcript(&self) -> [u8; 32] {
        hash(&[&self.request[..], &self.to_octets()].concat())
    }

    /// The session's SUPI.
    pub fn supi(&self) -> String {
        self.pseudonym.nai(&self.broker)
    }
}

/// A grant and the broker's signature on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedGrant {
    /// The grant that is signed.
    pub grant: Grant,
    /// The broker's signature.
    pub signature: Signature,
}

impl SignedGrant {
    /// The longest, in octets.
    pub const OCTETS_MAX: usize =
        2 + 1 + Domain::OCTETS_MAX + 16 + 10 + Terms::OCTETS_MAX + 9 + 16 + 8 + 4 * 32 + 64;

    /// Signs it as the broker.
    pub fn sign(grant: Grant, key: &SigningKey) -> Self {
        Self { grant, signature: Signature::NONE }.with_signature(key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        self.grant.to_octets()
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { grant: Grant::read(r)?, signature: read_signature(r)? })
    }
}

signed_message!(SignedGrant as Signed::Grant);
