//! The grant: the broker's signed word, in clear, that the owner of a token may serve one session of one of the broker's users.

use whimbrel_broker_common::certificate::Validity;
use whimbrel_broker_common::crypto::{Share, Signature};
use whimbrel_broker_common::id::{Domain, Pseudonym};
use whimbrel_broker_common::session::Qos;
use whimbrel_ids::{DecodeError, PlmnId, Reader};

use super::{MessageField, MessageType, read_flag, read_signature, signed_message};
use crate::crypto::{Signed, SigningKey, transcript};
use crate::token::TokenHash;

/// The terms that the broker grants. What in it depends on the user is one of a few classes, since the operator must not know a user again by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Domain of the broker.
    pub broker: Domain,
    /// The PLMN that the operator broadcasts and whose serving network name stands in the keys: the broker's,
    /// no matter which operator serves.
    pub network: PlmnId,
    /// The user part of the session's SUPI: random.
    pub pseudonym: Pseudonym,
    /// The session group.
    pub group: TokenHash,
    /// The QoS of the user's class.
    pub qos: Qos,
    /// When the operator may serve.
    pub validity: Validity,
    /// The octets after which the operator asks the broker whether the session may go on; absent for
    /// post-paid users. All slices are equal: an exact remainder would link sessions.
    pub slice_octets: Option<u64>,
    /// H(the user's request).
    pub request: [u8; 32],
    /// The user's ephemeral share, for the operator.
    pub user_share: Share,
    /// The operator's ephemeral share, for the user.
    pub operator_share: Share,
    /// SHA-256 of the part sealed to the operator, so that the operator's orders (intercept, filters) are the
    /// broker's and can be proven to be.
    pub orders: [u8; 32],
    /// HXRES: by what the operator checks the user's response.
    pub expected: [u8; 32],
}

impl Grant {
    /// The octets that the broker signs.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::Grant.begin();
        self.broker.emit(&mut out);
        self.network.emit(&mut out);
        out.extend_from_slice(&self.pseudonym.0);
        out.extend_from_slice(&self.group.0);
        self.qos.emit(&mut out);
        self.validity.emit(&mut out);
        match self.slice_octets {
            None => out.push(0),
            Some(octets) => {
                out.push(1);
                out.extend_from_slice(&octets.to_be_bytes());
            }
        }
        let parts = [&self.request, &self.user_share.0, &self.operator_share.0, &self.orders, &self.expected];
        parts.into_iter().for_each(|part| out.extend_from_slice(part));
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "grant";
        MessageType::Grant.read(r)?;
        Ok(Self {
            broker: Domain::read(r)?,
            network: PlmnId::read(r)?,
            pseudonym: Pseudonym(r.array(IE)?),
            group: TokenHash(r.array(IE)?),
            qos: Qos::read(r)?,
            validity: Validity::read(r)?,
            slice_octets: match read_flag(r, "quota")? {
                false => None,
                true => Some(r.u64("quota")?),
            },
            request: r.array(IE)?,
            user_share: Share(r.array(IE)?),
            operator_share: Share(r.array(IE)?),
            orders: r.array(IE)?,
            expected: r.array(IE)?,
        })
    }

    /// H(H(the user's request) ‖ grant ‖ serving network): what K_SEAF is bound to.
    pub fn transcript(&self) -> [u8; 32] {
        transcript(&self.request, &self.to_octets(), self.network)
    }

    /// The SUPI of the session.
    pub fn supi(&self) -> String {
        self.pseudonym.nai(&self.broker)
    }
}

/// A grant with the broker's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedGrant {
    /// The grant that is signed.
    pub grant: Grant,
    /// The broker's signature.
    pub signature: Signature,
}

impl SignedGrant {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 3 + 16 + 32 + 9 + 16 + 9 + 5 * 32 + 64;

    /// Signs a grant.
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
