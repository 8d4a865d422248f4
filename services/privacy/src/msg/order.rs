//! Orders of an agency (chapter 4.4.4): to intercept a session, or to say where its UE is. They name the
//! session and no user; the agency learns from the broker which session is a user's now. The broker passes an
//! order on and answers nothing in the operator's place: what the operator answers is sealed to the agency.

use whimbrel_broker_common::certificate::Validity;
use whimbrel_broker_common::crypto::{PrivateKey, Seed, Share, Signature};
use whimbrel_broker_common::envelope::TAG_OCTETS;
use whimbrel_broker_common::id::Domain;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, Reader};
use zeroize::Zeroizing;

use super::{MessageField, MessageType, causes, emit_part, read_part, read_signature, signed_message, whole};
use crate::crypto::{Signed, SigningKey, VEIL, VerifyingKey, hash};
use crate::token::TokenHash;

/// `info` of the HPKE context of an answer, from the operator to the agency.
const ANSWER_INFO: &[u8] = b"VEIL-v1 order answer";

causes! {
    /// What an agency orders.
    OrderKind, "order" {
        /// Copies of all packets of the session.
        Intercept = 1, "intercept";
        /// Where the UE is, for an emergency.
        Locate = 2, "locate";
    }
}

/// An order. All are of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What is ordered.
    pub kind: OrderKind,
    /// The agency, by the key under which it signs.
    pub agency: VerifyingKey,
    /// H(the user's request), the session (Û).
    pub session: [u8; 32],
    /// H(token), the session group.
    pub group: TokenHash,
    /// When it holds.
    pub validity: Validity,
    /// Random: two orders differ.
    pub nonce: [u8; 16],
    /// Of the agency.
    pub signature: Signature,
}

impl Order {
    /// Octets of each.
    pub const OCTETS: usize = 2 + 1 + 32 + 32 + 32 + 16 + 16 + 64;

    /// The order, signed by the agency.
    pub fn signed(
        kind: OrderKind,
        (session, group): ([u8; 32], TokenHash),
        validity: Validity,
        nonce: [u8; 16],
        key: &SigningKey,
    ) -> Self {
        let (agency, signature) = (key.verifying_key(), Signature::NONE);
        Self { kind, agency, session, group, validity, nonce, signature }.with_signature(key)
    }

    /// Whether the agency that it names signed it.
    pub fn is_signed(&self) -> bool {
        self.is_signed_by(&self.agency)
    }

    /// Whether it holds now.
    pub fn is_valid(&self, now: Instant) -> bool {
        self.validity.contains_within_skew(now)
    }

    /// H(order), its name.
    pub fn hash(&self) -> [u8; 32] {
        hash(&[&self.to_octets()])
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::Order.begin();
        out.push(self.kind as u8);
        out.extend_from_slice(&self.agency.octets());
        out.extend_from_slice(&self.session);
        out.extend_from_slice(&self.group.0);
        self.validity.emit(&mut out);
        out.extend_from_slice(&self.nonce);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "order";
        MessageType::Order.read(r)?;
        let kind = OrderKind::read(r)?;
        let invalid = r.error(DecodeErrorKind::InvalidValue, "agency");
        let agency = VerifyingKey::from_octets(r.array("agency")?).ok_or(invalid)?;
        let (session, group) = (r.array(IE)?, TokenHash(r.array(IE)?));
        let (validity, nonce) = (Validity::read(r)?, r.array(IE)?);
        Ok(Self { kind, agency, session, group, validity, nonce, signature: read_signature(r)? })
    }
}

signed_message!(Order as Signed::Order);

/// Ô asks whether there are orders for its session group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrdersRequest {
    /// Domain of the broker.
    pub broker: Domain,
    /// The session group.
    pub group: TokenHash,
    /// Random octets of this request.
    pub nonce: [u8; 16],
    /// Under the token's key.
    pub signature: Signature,
}

impl OrdersRequest {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 32 + 16 + 64;

    /// The request, signed by the owner of the token.
    pub fn signed(broker: Domain, group: TokenHash, nonce: [u8; 16], key: &SigningKey) -> Self {
        Self { broker, group, nonce, signature: Signature::NONE }.with_signature(key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::OrdersRequest.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.group.0);
        out.extend_from_slice(&self.nonce);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        MessageType::OrdersRequest.read(r)?;
        let (broker, group) = (Domain::read(r)?, TokenHash(r.array("group")?));
        Ok(Self { broker, group, nonce: r.array("nonce")?, signature: read_signature(r)? })
    }
}

signed_message!(OrdersRequest as Signed::OrdersRequest);

/// The broker's answer: orders that the operator has not answered yet. The broker signs nothing: each order has the agency's signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders(pub Vec<Order>);

impl Orders {
    /// The most in one answer: what goes into a relayed one. Further ones come when these are answered.
    pub const MAX: usize = 8;

    /// Its octets. Panics on more orders than the bound.
    pub fn to_octets(&self) -> Vec<u8> {
        assert!(self.0.len() <= Self::MAX);
        let mut out = MessageType::Orders.begin();
        out.push(self.0.len() as u8);
        self.0.iter().for_each(|order| out.extend_from_slice(&order.to_octets()));
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r: &mut Reader<'_>| {
            MessageType::Orders.read(r)?;
            let too_many = r.error(DecodeErrorKind::TooMany, "orders");
            let count = usize::from(r.u8("orders")?);
            if count > Self::MAX {
                return Err(too_many);
            }
            let orders = (0..count).map(|_| Order::parse(r.take(Order::OCTETS, "order")?));
            orders.collect::<Result<_, _>>().map(Self)
        })
    }
}

/// What the operator answers an agency, in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The session is not here, or not any more.
    NotHere,
    /// Its packets are copied from now on.
    Intercepted,
    /// TAI (TS 38.413 §9.3.3.11) and NR CGI (TS 38.413 §9.3.1.7) of the UE, as there.
    Place([u8; Finding::PLACE_OCTETS]),
}

impl Finding {
    /// Octets of a place: PLMN and TAC, PLMN and cell identity.
    pub const PLACE_OCTETS: usize = 3 + 3 + 3 + 5;
    const OCTETS: usize = 1 + Self::PLACE_OCTETS;

    /// Its octets: all are of one length.
    pub fn to_octets(&self) -> Zeroizing<Vec<u8>> {
        let (kind, place) = match self {
            Self::NotHere => (1, [0; Self::PLACE_OCTETS]),
            Self::Intercepted => (2, [0; Self::PLACE_OCTETS]),
            Self::Place(place) => (3, *place),
        };
        Zeroizing::new([&[kind], &place[..]].concat())
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let unknown = r.error(DecodeErrorKind::Unknown, "finding");
            let (kind, place) = (r.u8("finding")?, r.array("place")?);
            match (kind, place) {
                (1, place) if place == [0; Self::PLACE_OCTETS] => Ok(Self::NotHere),
                (2, place) if place == [0; Self::PLACE_OCTETS] => Ok(Self::Intercepted),
                (3, place) => Ok(Self::Place(place)),
                _ => Err(unknown),
            }
        })
    }
}

/// `info` of the HPKE context of a copy, from the operator to the agency.
const COPY_INFO: &[u8] = b"VEIL-v1 copy";

/// The copy of a packet, sealed to the agency: a datagram to its collector. Each is sealed by itself, since datagrams are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedCopy {
    /// Hash of the order.
    pub order: [u8; 32],
    /// Counts from 0: the agency sees what was lost.
    pub number: u64,
    enc: [u8; 32],
    sealed: Box<[u8]>,
}

impl SealedCopy {
    /// Octets of the longest packet that is copied.
    pub const PACKET_OCTETS_MAX: usize = 9_000;

    fn head(order: &[u8; 32], number: u64) -> Vec<u8> {
        let mut out = MessageType::Copy.begin();
        out.extend_from_slice(order);
        out.extend_from_slice(&number.to_be_bytes());
        out
    }

    /// Seals the copy of a packet. `None` if the agency's share is of small order.
    pub fn seal(order: [u8; 32], number: u64, packet: &[u8], agency: &Share, seed: &Seed) -> Option<Self> {
        let plain = Zeroizing::new(packet.to_vec());
        let (enc, sealed, _) = VEIL.seal(agency, COPY_INFO, seed, |_| (plain, Self::head(&order, number)))?;
        Some(Self { order, number, enc, sealed })
    }

    /// The packet, opened with the agency's private key.
    pub fn open(&self, key: &PrivateKey) -> Option<Zeroizing<Vec<u8>>> {
        let head = Self::head(&self.order, self.number);
        VEIL.open(key, &self.enc, COPY_INFO, &self.sealed, &head).map(|(packet, _)| packet)
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Self::head(&self.order, self.number);
        out.extend_from_slice(&self.enc);
        emit_part(&self.sealed, &mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::Copy.read(r)?;
            let (order, number, enc) = (r.array("order")?, r.u64("number")?, r.array("encapsulated key")?);
            let sealed = read_part(r, Self::PACKET_OCTETS_MAX + TAG_OCTETS, "sealed packet")?.into();
            Ok(Self { order, number, enc, sealed })
        })
    }
}

/// Ô's answer to an order, sealed to the agency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderAnswer {
    /// The broker, which passes it on.
    pub broker: Domain,
    /// The session group.
    pub group: TokenHash,
    /// Hash of the order.
    pub order: [u8; 32],
    /// `enc` and the sealed [`Finding`].
    pub sealed: Box<[u8; Self::SEALED_OCTETS]>,
    /// Under the token's key.
    pub signature: Signature,
}

impl OrderAnswer {
    const SEALED_OCTETS: usize = 32 + Finding::OCTETS + TAG_OCTETS;
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 32 + 32 + 2 + Self::SEALED_OCTETS + 64;

    /// Seals what the operator has found to the agency's share. `None` if that is of small order.
    pub fn seal(
        (broker, group): (Domain, TokenHash),
        order: [u8; 32],
        finding: &Finding,
        agency: &Share,
        seed: &Seed,
        key: &SigningKey,
    ) -> Option<Self> {
        let sealed = VEIL.seal_part(agency, ANSWER_INFO, seed, (finding.to_octets(), &order))?;
        let sealed = <Vec<u8>>::from(sealed).try_into().expect("a finding is of one length");
        Some(
            Self { broker, group, order, sealed: Box::new(sealed), signature: Signature::NONE }
                .with_signature(key),
        )
    }

    /// Opens it with the agency's private key.
    pub fn open(&self, key: &PrivateKey) -> Option<Finding> {
        Finding::parse(&VEIL.open_part(key, ANSWER_INFO, &self.sealed[..], &self.order)?).ok()
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::OrderAnswer.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.group.0);
        out.extend_from_slice(&self.order);
        emit_part(&self.sealed[..], &mut out);
        out
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        MessageType::OrderAnswer.read(r)?;
        let (broker, group, order) = (Domain::read(r)?, TokenHash(r.array("group")?), r.array("order")?);
        let length = r.error(DecodeErrorKind::InvalidLength, "sealed finding");
        let sealed = read_part(r, Self::SEALED_OCTETS, "sealed finding")?;
        let sealed = Box::new(sealed.try_into().map_err(|_| length)?);
        Ok(Self { broker, group, order, sealed, signature: read_signature(r)? })
    }
}

signed_message!(OrderAnswer as Signed::OrderAnswer);
