//! One codec in the place of another. The core reads and writes NGAP with its own codec; where another one is to be measured, the time
//! that this takes for the very same message is added to the core's, and the time of our own is taken off.

use std::hint::black_box;

use whimbrel_ngap::Message;
use whimbrel_ngap::fast::Form;

use super::clock::timed;
use crate::codec::rasn_ngap;

/// What NGAP is read and written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    /// ASN.1, by our own codec.
    Lean,
    /// ASN.1, by rasn, which builds values and allocates for them.
    Conventional,
    /// FlatBuffers with single-value unions, read to a value.
    Flat,
}

impl Codec {
    /// How much longer, in nanoseconds, than with our own codec it takes to read a message that a gNB sent.
    pub(super) fn more_to_read(self, octets: &[u8]) -> i64 {
        match self {
            Self::Lean => 0,
            Self::Conventional => {
                let (_, theirs) = timed(|| black_box(rasn_ngap::read(octets)));
                theirs as i64 - ours_reads(octets).1
            }
            Self::Flat => {
                let (Some(message), ours) = ours_reads(octets) else { return 0 };
                let mut flat = Vec::with_capacity(octets.len() + 256);
                message.encode_fast(Form::SingleValue, &mut flat);
                let (_, theirs) = timed(|| black_box(Message::decode_fast(&flat, Form::SingleValue)));
                theirs as i64 - ours
            }
        }
    }

    /// The same for writing one that goes to a gNB.
    pub(super) fn more_to_write(self, octets: &[u8]) -> i64 {
        if self == Self::Lean {
            return 0;
        }
        let Ok(message) = Message::decode(octets) else { return 0 };
        let theirs = match self {
            Self::Lean => 0,
            Self::Conventional => {
                let Ok(message) = rasn_ngap::read(octets) else { return 0 };
                timed(|| black_box(rasn_ngap::write(&message))).1
            }
            Self::Flat => {
                let mut flat = Vec::with_capacity(octets.len() + 256);
                timed(|| message.encode_fast(Form::SingleValue, black_box(&mut flat))).1
            }
        };
        let mut out = Vec::with_capacity(octets.len());
        let (_, ours) = timed(|| message.encode(black_box(&mut out)));
        theirs as i64 - ours as i64
    }
}

fn ours_reads(octets: &[u8]) -> (Option<Message>, i64) {
    let (message, ours) = timed(|| black_box(Message::decode(octets).ok()));
    (message, ours as i64)
}
