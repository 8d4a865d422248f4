//! Elements of ours: enterprise-specific ones (TS 29.244 §8.1.1), which other implementations skip.

use whimbrel_ids::{DecodeErrorKind, Reader};

use crate::codec::Ie;
use crate::error::Error;

/// Whose they are: the number that RFC 5612 keeps for examples, for the project has none of its own.
const ENTERPRISE_ID: u16 = 32473;

/// The request is for the time when its UE arrives, as the CP function will send it then: its rules wait until a packet shows that the
/// UE has come by way of where they lead. A UP function that does not know this element would apply them at once, so it is only sent to
/// UP functions that are known to support it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnArrival;

impl Ie for OnArrival {
    const NAME: &'static str = "On Arrival";

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        match r.u16("Enterprise ID")? {
            ENTERPRISE_ID => Ok(Self),
            _ => Err(Error::new(DecodeErrorKind::Unknown, Self::NAME, at)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&ENTERPRISE_ID.to_be_bytes());
    }
}
