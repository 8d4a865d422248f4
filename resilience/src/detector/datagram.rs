//! The heartbeat's octets.
//!
//! | octets | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 1 | kind: 1 probe, 2 answer |
//! | 4 | discriminator of the sender |
//! | 4 | discriminator of the receiver |
//! | 8 | incarnation of the sender |
//! | 8 | number of the probe |
//! | 8 | probe: the receiver's incarnations up to this one have been replaced; answer: the incarnation of the detector that asked |
//! | 16 | the first half of HMAC-SHA-256 over what is before |

use whimbrel_ids::{DecodeError, Reader};
use whimbrel_security::Hmac;

use super::{Discriminator, Incarnation};

/// Octets of a heartbeat.
pub const LENGTH: usize = SIGNED + CODE;
const SIGNED: usize = 34;
const CODE: usize = 16;
const VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeKind {
    Probe,
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    pub(super) kind: ProbeKind,
    pub(super) from: Discriminator,
    pub(super) to: Discriminator,
    pub(super) incarnation: Incarnation,
    pub(super) number: u64,
    /// In a probe, the replaced incarnation; in an answer, that of the detector.
    pub(super) other: Incarnation,
}

/// Why octets are no heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// Another length, version or kind, or no sender.
    Malformed,
    /// Not authenticated under the cluster's key.
    Forged,
}

impl Datagram {
    pub(super) fn write(&self, key: &Hmac) -> [u8; LENGTH] {
        let mut octets = [0; LENGTH];
        octets[0] = VERSION;
        octets[1] = match self.kind {
            ProbeKind::Probe => 1,
            ProbeKind::Answer => 2,
        };
        octets[2..6].copy_from_slice(&self.from.0.to_be_bytes());
        octets[6..10].copy_from_slice(&self.to.0.to_be_bytes());
        octets[10..18].copy_from_slice(&self.incarnation.0.to_be_bytes());
        octets[18..26].copy_from_slice(&self.number.to_be_bytes());
        octets[26..SIGNED].copy_from_slice(&self.other.0.to_be_bytes());
        let code = key.code(&[&octets[..SIGNED]]);
        octets[SIGNED..].copy_from_slice(&code[..CODE]);
        octets
    }

    pub(super) fn read(octets: &[u8], key: &Hmac) -> Result<Self, Unread> {
        let octets: &[u8; LENGTH] = octets.try_into().map_err(|_| Unread::Malformed)?;
        let (signed, code) = octets.split_at(SIGNED);
        let datagram = Self::fields(signed).ok().flatten().ok_or(Unread::Malformed)?;
        if !key.is_code(&[signed], code) {
            return Err(Unread::Forged);
        }
        Ok(datagram)
    }

    /// `None`: another version, an unknown kind, or no sender.
    fn fields(signed: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(signed);
        let kind = match (reader.u8("version")?, reader.u8("kind")?) {
            (VERSION, 1) => ProbeKind::Probe,
            (VERSION, 2) => ProbeKind::Answer,
            _ => return Ok(None),
        };
        let read = Self {
            kind,
            from: Discriminator(reader.u32("sender")?),
            to: Discriminator(reader.u32("receiver")?),
            incarnation: Incarnation(reader.u64("incarnation")?),
            number: reader.u64("number")?,
            other: Incarnation(reader.u64("other incarnation")?),
        };
        Ok((read.from.0 != 0 && read.incarnation.0 != 0).then_some(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_heartbeat_reads_as_it_was_written_and_no_other_octets_do(
            probe: bool, from in 1..u32::MAX, to: u32, incarnation in 1..u64::MAX, number: u64, other: u64,
            at in 0..LENGTH, flip in 1..=255u8, noise in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let key = Hmac::new(&[9; 32]);
            let sent = Datagram {
                kind: if probe { ProbeKind::Probe } else { ProbeKind::Answer },
                from: Discriminator(from),
                to: Discriminator(to),
                incarnation: Incarnation(incarnation),
                number,
                other: Incarnation(other),
            };
            let mut octets = sent.write(&key);
            prop_assert_eq!(Datagram::read(&octets, &key), Ok(sent));
            prop_assert_eq!(Datagram::read(&octets, &Hmac::new(&[8; 32])), Err(Unread::Forged));
            prop_assert_eq!(Datagram::read(&octets[..at], &key), Err(Unread::Malformed));
            octets[at] ^= flip;
            prop_assert!(Datagram::read(&octets, &key).is_err());
            prop_assert!(Datagram::read(&noise, &key).is_err());
        }
    }
}
