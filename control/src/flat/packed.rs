//! An input as stored in a log: the fields that all inputs of a UE share are left out, to save memory.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::exchange::ENVELOPE_VERSION;
use super::{CRC, Flat, FlatError, Form, FrameWriter, HEAD, wipe};
use crate::envelope::{Envelope, UeId};

/// An input without its frame and without the fields of its log: code version, UE, and the CTA's term. Wiped when it is
/// freed, for it may hold keys; `Debug` shows only its length.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedInput(Box<[u8]>);

/// The fields that all inputs of a log share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOf {
    /// Version of the code that runs them.
    pub code_version: u32,
    /// The UE whose log it is.
    pub ue: UeId,
    /// Term of the CTA.
    pub cta_term: u32,
}

impl LogOf {
    /// The header of an envelope's octets.
    fn octets(self) -> ([u8; SHARED_MAX], usize) {
        let Self { code_version, ue, cta_term } = self;
        let mut octets = [0; SHARED_MAX];
        let length = postcard::to_slice(&(code_version, ue, cta_term), &mut octets).map_or(0, |o| o.len());
        (octets, length)
    }
}

/// Varints of 32, 32, 16 and 32 bits.
const SHARED_MAX: usize = 5 + 5 + 3 + 5;

impl PackedInput {
    /// Packs the frame of an input of this UE. `None` if it is another UE's, or no input.
    pub fn of(flat: &Flat, of: LogOf) -> Option<Self> {
        let (shared, length) = of.octets();
        let body = flat.octets().get(HEAD..)?;
        let kept = body.get(..body.len().checked_sub(CRC)?)?.strip_prefix(&shared[..length])?;
        Some(Self(kept.into()))
    }

    /// The original frame.
    pub fn to_flat(&self, of: LogOf) -> Flat {
        let (shared, length) = of.octets();
        let mut to = FrameWriter::begin(Form::Envelope, ENVELOPE_VERSION, length + self.0.len());
        to.extend(&shared[..length]);
        to.extend(&self.0);
        to.end()
    }

    /// The input itself.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`], if it came from another process.
    pub fn read(&self, of: LogOf) -> Result<Envelope, FlatError> {
        Envelope::from_flat(self.to_flat(of).octets())
    }

    /// Number of stored octets.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for PackedInput {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for PackedInput {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        whimbrel_ids::serde_as::octets(from, "an input", |octets| Some(Self(octets.into())))
    }
}

impl Drop for PackedInput {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl fmt::Debug for PackedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedInput({} octets)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::{Instant, Tmsi};

    use super::*;
    use crate::envelope::{AssociationId, Payload};
    use crate::upf::UpfStates;

    const UE: UeId = UeId { slot: 70_000, generation: 300 };
    const LOG: LogOf = LogOf { code_version: 1 << 31, ue: UE, cta_term: 1 };

    fn input() -> Envelope {
        Envelope {
            code_version: LOG.code_version,
            ue: UE,
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
        let packed = PackedInput::of(&flat, LOG).unwrap();
        assert_eq!(packed.to_flat(LOG), flat);
        assert_eq!(format!("{:?}", packed.read(LOG).unwrap()), format!("{:?}", input()));
        let octets = postcard::to_allocvec(&packed).unwrap();
        assert_eq!(postcard::from_bytes::<PackedInput>(&octets), Ok(packed.clone()));
        // Frame and CRC, the code version, a slot of three octets, a generation of two, the term.
        assert_eq!(flat.octets().len() - packed.len(), HEAD + CRC + 5 + 3 + 2 + 1);
    }

    #[test]
    fn only_an_input_of_the_ue_is_packed() {
        let flat = input().to_flat();
        assert_eq!(PackedInput::of(&flat, LogOf { ue: UeId { slot: 70_001, ..UE }, ..LOG }), None);
        assert_eq!(PackedInput::of(&flat, LogOf { cta_term: 2, ..LOG }), None);
        assert_eq!(PackedInput::of(&Flat([3, 0, 1, 2].as_slice().into()), LOG), None);
    }
}
