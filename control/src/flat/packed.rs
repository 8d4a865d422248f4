//! An input as a log keeps it: many lie there at once, so what all inputs of a phone share is left out.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::exchange::ENVELOPE_VERSION;
use super::{CRC, Flat, FlatError, Form, HEAD, Writer, wipe};
use crate::envelope::{CODE_VERSION, Envelope, PhoneId};

/// An input without its frame and without what its log knows: the code version, the phone, and the aggregator's term.
/// Wiped when it is freed, for it may hold keys; `Debug` shows its length alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed(Box<[u8]>);

/// What an envelope's octets begin with.
fn shared(phone: PhoneId, cta_term: u32) -> ([u8; SHARED_MAX], usize) {
    let mut octets = [0; SHARED_MAX];
    let length = postcard::to_slice(&(CODE_VERSION, phone, cta_term), &mut octets).map_or(0, |o| o.len());
    (octets, length)
}

/// Varints of 16, 32, 16 and 32 bits.
const SHARED_MAX: usize = 3 + 5 + 3 + 5;

impl Packed {
    /// The input of a phone that was written as this frame. Nothing if it is another's, or no input's.
    pub fn of(flat: &Flat, phone: PhoneId, cta_term: u32) -> Option<Self> {
        let (shared, length) = shared(phone, cta_term);
        let body = flat.octets().get(HEAD..)?;
        let kept = body.get(..body.len().checked_sub(CRC)?)?.strip_prefix(&shared[..length])?;
        Some(Self(kept.into()))
    }

    /// The same frame.
    pub fn to_flat(&self, phone: PhoneId, cta_term: u32) -> Flat {
        let (shared, length) = shared(phone, cta_term);
        let mut to = Writer::begin(Form::Envelope, ENVELOPE_VERSION, length + self.0.len());
        to.extend(&shared[..length]);
        to.extend(&self.0);
        to.end()
    }

    /// The input itself.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`], where it came from another process.
    pub fn read(&self, phone: PhoneId, cta_term: u32) -> Result<Envelope, FlatError> {
        Envelope::from_flat(self.to_flat(phone, cta_term).octets())
    }

    /// How many octets are kept.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        whimbrel_ids::serde_as::octets(from, "an input", |octets| Some(Self(octets.into())))
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} octets)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::{Instant, Tmsi};

    use super::*;
    use crate::envelope::{AssociationId, Payload};
    use crate::upf::UpfStates;

    const PHONE: PhoneId = PhoneId { slot: 70_000, generation: 300 };

    fn input() -> Envelope {
        Envelope {
            code_version: CODE_VERSION,
            phone: PHONE,
            cta_term: 1,
            owner_term: 2,
            clock: 9,
            time: Instant(1 << 50),
            seed: [7; 16],
            tmsi: Tmsi(5),
            config_version: 1,
            upfs: UpfStates::ALL_USABLE,
            payload: Payload::Ngap { association: AssociationId(3), octets: vec![0x5a; 40].into() },
        }
    }

    #[test]
    fn an_input_is_unpacked_octet_for_octet() {
        let flat = input().to_flat();
        let packed = Packed::of(&flat, PHONE, 1).unwrap();
        assert_eq!(packed.to_flat(PHONE, 1), flat);
        assert_eq!(format!("{:?}", packed.read(PHONE, 1).unwrap()), format!("{:?}", input()));
        let octets = postcard::to_allocvec(&packed).unwrap();
        assert_eq!(postcard::from_bytes::<Packed>(&octets), Ok(packed.clone()));
        // Frame and CRC, the code version, a slot of three octets, a generation of two, the term.
        assert_eq!(flat.octets().len() - packed.len(), HEAD + CRC + 1 + 3 + 2 + 1);
    }

    #[test]
    fn only_an_input_of_the_phone_is_packed() {
        let flat = input().to_flat();
        assert_eq!(Packed::of(&flat, PhoneId { slot: 70_001, ..PHONE }, 1), None);
        assert_eq!(Packed::of(&flat, PHONE, 2), None);
        assert_eq!(Packed::of(&Flat([3, 0, 1, 2].as_slice().into()), PHONE, 1), None);
    }
}
