//! Sets of PDU sessions, one bit each (TS 24.501 §9.11.3.13, §9.11.3.42 to §9.11.3.44, §9.11.3.57).

use whimbrel_ids::{DecodeError, PduSessionId, Reader};

use super::MmCause;
use crate::codec::Ie;

/// A set of PDU session identities: uplink data status, PDU session status, allowed PDU session status and PDU session
/// reactivation result are all coded so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PduSessionSet(u16);

impl PduSessionSet {
    /// Of bits, bit n for the session n; bit 0 is spare.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & !1)
    }

    /// As bits, bit n for the session n.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether a session is in the set.
    pub const fn contains(self, id: PduSessionId) -> bool {
        self.0 & 1 << id.value() != 0
    }

    /// Adds a session.
    pub const fn insert(&mut self, id: PduSessionId) {
        self.0 |= 1 << id.value();
    }

    /// Removes a session.
    pub const fn remove(&mut self, id: PduSessionId) {
        self.0 &= !(1 << id.value());
    }

    /// Whether no session is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The sessions, in the order of their identities.
    pub fn iter(self) -> impl Iterator<Item = PduSessionId> {
        (1..=15).filter_map(PduSessionId::new).filter(move |id| self.contains(*id))
    }
}

impl FromIterator<PduSessionId> for PduSessionSet {
    fn from_iter<I: IntoIterator<Item = PduSessionId>>(ids: I) -> Self {
        let mut set = Self::default();
        ids.into_iter().for_each(|id| set.insert(id));
        set
    }
}

impl Ie for PduSessionSet {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self::from_bits(u16::from_le_bytes(r.array("PDU session status")?)))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }
}

/// PDU session reactivation result error cause (TS 24.501 §9.11.3.43): why the user plane of each was not set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReactivationErrors(pub Vec<(PduSessionId, MmCause)>);

/// Entries of a PDU session reactivation result error cause (TS 24.501 §9.11.3.43: 512 octets of value at most).
const REACTIVATION_ERRORS_MAX: usize = 256;

impl Ie for ReactivationErrors {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut errors = Vec::new();
        while r.remaining() >= 2 && errors.len() < REACTIVATION_ERRORS_MAX {
            let id = PduSessionId::new(r.u8("PDU session ID")?);
            let cause = MmCause::decode(r)?;
            errors.extend(id.map(|id| (id, cause)));
        }
        Ok(Self(errors))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for (id, cause) in self.0.iter().take(REACTIVATION_ERRORS_MAX) {
            out.extend_from_slice(&[id.value(), cause.value()]);
        }
    }
}

/// A PDU session identity as an element of its own (TS 24.501 §9.11.3.41).
impl Ie for PduSessionId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let invalid = r.error(whimbrel_ids::DecodeErrorKind::InvalidValue, "PDU session ID");
        PduSessionId::new(r.u8("PDU session ID")?).ok_or(invalid)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.value());
    }
}
