//! Two relays that do not collude: the operator seals each request to the second one (the gateway), and the
//! first one (the relay) passes it on. The relay sees the operator's address and nothing of the request; the
//! gateway sees the request and the relay's address. It is the division of oblivious HTTP (RFC 9458) with
//! messages of our own.
//!
//! Requests are padded to [`PADDED_OCTETS`], and answers too, so that the relay does not see which request is of which kind.

use whimbrel_broker_common::crypto::{PrivateKey, Seed};
use whimbrel_broker_common::envelope::TAG_OCTETS;
use whimbrel_broker_common::request::EpochKey;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};
use zeroize::Zeroizing;

use crate::crypto::{Exporter, VEIL};
use crate::msg::{MessageType, read_part, whole};

/// `info` of the HPKE context from the operator to the gateway.
const INFO: &[u8] = b"VEIL-v1 relayed request";

/// All requests and all answers of the anonymous channel, padded: more than the longest of both, an answer with a challenge.
pub const PADDED_OCTETS: usize = 2_048;

/// Octets of a relayed request.
pub const REQUEST_OCTETS: usize = 2 + 1 + 32 + PADDED_OCTETS + TAG_OCTETS;
/// Octets of a relayed answer.
pub const ANSWER_OCTETS: usize = 2 + 16 + PADDED_OCTETS + TAG_OCTETS;

/// The question that the operator asks the broker for. The gateway knows the broker's resource by it, and the relay does not see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Open a session group.
    Group = 1,
    /// Attach a user.
    Attach = 2,
    /// Usage of a session is reported.
    Report = 3,
    /// Pass a user's failure on.
    Failure = 4,
    /// Ask for an agency's orders.
    Orders = 5,
    /// An order is answered.
    OrderAnswer = 6,
}

impl Resource {
    /// All resources of the gateway.
    pub const ALL: [Self; 6] =
        [Self::Group, Self::Attach, Self::Report, Self::Failure, Self::Orders, Self::OrderAnswer];
}

/// What opens the gateway's answer to one request.
#[derive(Clone, Debug)]
pub struct AnswerOpener(Exporter);

/// What seals the gateway's answer to one request.
#[derive(Clone, Debug)]
pub struct AnswerSealer(Exporter);

fn padded(resource: u8, octets: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(Vec::with_capacity(PADDED_OCTETS));
    out.push(resource);
    let len = u16::try_from(octets.len()).ok()?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(octets);
    if out.len() > PADDED_OCTETS {
        return None;
    }
    out.resize(PADDED_OCTETS, 0);
    Some(out)
}

fn unpadded(plain: &[u8]) -> Result<(u8, Vec<u8>), DecodeError> {
    whole(plain, |r: &mut Reader<'_>| {
        let resource = r.u8("resource")?;
        let octets = read_part(r, PADDED_OCTETS, "relayed message")?.to_vec();
        let padding = r.error(DecodeErrorKind::InvalidValue, "padding");
        if r.take_rest().iter().any(|octet| *octet != 0) { Err(padding) } else { Ok((resource, octets)) }
    })
}

/// Seals a request to the gateway. `None` if it is too long, or the gateway's key is of small order.
pub fn seal_request(
    gateway: &EpochKey,
    resource: Resource,
    request: &[u8],
    seed: &Seed,
) -> Option<(Vec<u8>, AnswerOpener)> {
    let plain = padded(resource as u8, request)?;
    let mut head = MessageType::Relayed.begin();
    head.push(gateway.id);
    let (enc, sealed, secret) = VEIL.seal(&gateway.public, INFO, seed, |_| (plain, head.clone()))?;
    let mut out = head;
    out.extend_from_slice(&enc);
    out.extend_from_slice(&sealed);
    Some((out, AnswerOpener(secret.into())))
}

/// Opens a request at the gateway. Errors: [`DecodeError`], also if it was not sealed to this key.
pub fn open_request(
    (id, key): (u8, &PrivateKey),
    octets: &[u8],
) -> Result<(Resource, Vec<u8>, AnswerSealer), DecodeError> {
    const IE: &str = "relayed request";
    let wrong = DecodeError::new(DecodeErrorKind::InvalidValue, IE, 0);
    let (of, enc, sealed) = whole(octets, |r| {
        MessageType::Relayed.read(r)?;
        Ok((r.u8(IE)?, r.array::<32>(IE)?, r.take(PADDED_OCTETS + TAG_OCTETS, IE)?.to_vec()))
    })?;
    let mut head = MessageType::Relayed.begin();
    head.push(of);
    let opened = VEIL.open(key, &enc, INFO, &sealed, &head).filter(|_| of == id);
    let (plain, secret) = opened.ok_or(wrong)?;
    let (resource, request) = unpadded(&plain)?;
    let resource = Resource::ALL.into_iter().find(|r| *r as u8 == resource).ok_or(wrong)?;
    Ok((resource, request, AnswerSealer(secret.into())))
}

impl AnswerSealer {
    /// Seals the broker's answer, or that there is none. `None` if it is too long.
    pub fn seal(&self, answer: Option<&[u8]>, seed: &Seed) -> Option<Vec<u8>> {
        let plain = padded(u8::from(answer.is_some()), answer.unwrap_or_default())?;
        let salt = *VEIL.draw(seed, "relayed answer");
        let mut out = MessageType::RelayedAnswer.begin();
        out.extend_from_slice(&salt);
        out.extend_from_slice(&self.0.seal(&salt, &plain));
        Some(out)
    }
}

impl AnswerOpener {
    /// The broker's answer; `None` if the gateway got none. Errors: [`DecodeError`], also if it is not the
    /// gateway's answer to this request.
    pub fn open(&self, octets: &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
        const IE: &str = "relayed answer";
        let wrong = DecodeError::new(DecodeErrorKind::InvalidValue, IE, 0);
        let (salt, sealed) = whole(octets, |r| {
            MessageType::RelayedAnswer.read(r)?;
            Ok((r.array(IE)?, r.take(PADDED_OCTETS + TAG_OCTETS, IE)?.to_vec()))
        })?;
        let plain = self.0.open(&salt, &sealed).ok_or(wrong)?;
        match unpadded(&plain)? {
            (1, answer) => Ok(Some(answer)),
            (0, answer) if answer.is_empty() => Ok(None),
            _ => Err(wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway() -> (PrivateKey, EpochKey) {
        let key = PrivateKey::new([7; 32]);
        let public = EpochKey { id: 3, public: key.share() };
        (key, public)
    }

    #[test]
    fn a_request_and_its_answer_pass_the_relays_sealed_and_of_one_length() {
        let (key, public) = gateway();
        for (n, resource) in Resource::ALL.into_iter().enumerate() {
            let request = vec![n as u8 + 1; 100 * (n + 1)];
            let seed = Seed::new([n as u8; 32]);
            let (sealed, opener) = seal_request(&public, resource, &request, &seed).unwrap();
            assert_eq!(sealed.len(), REQUEST_OCTETS);
            assert!(!sealed.windows(50).any(|w| w == &request[..50]));
            let (got, octets, sealer) = open_request((3, &key), &sealed).unwrap();
            assert_eq!((got, &octets), (resource, &request));
            let answer = sealer.seal(Some(b"answer"), &Seed::new([9; 32])).unwrap();
            assert_eq!(answer.len(), ANSWER_OCTETS);
            assert_eq!(opener.open(&answer), Ok(Some(b"answer".to_vec())));
            assert_eq!(opener.open(&sealer.seal(None, &Seed::new([8; 32])).unwrap()), Ok(None));
        }
    }

    #[test]
    fn an_answer_to_another_request_or_an_altered_one_is_not_taken() {
        let (key, public) = gateway();
        let ask = |n| seal_request(&public, Resource::Group, b"request", &Seed::new([n; 32])).unwrap();
        let ((first, _), (_, other)) = (ask(1), ask(2));
        let (.., sealer) = open_request((3, &key), &first).unwrap();
        let answer = sealer.seal(Some(b"answer"), &Seed::new([9; 32])).unwrap();
        assert!(other.open(&answer).is_err(), "a replayed answer");
        for at in [3, 40, REQUEST_OCTETS - 1] {
            let mut altered = first.clone();
            altered[at] ^= 1;
            assert!(open_request((3, &key), &altered).is_err(), "octet {at}");
        }
        assert!(open_request((4, &key), &first).is_err(), "another key's identifier");
        let long = vec![0; PADDED_OCTETS];
        assert!(seal_request(&public, Resource::Group, &long, &Seed::new([1; 32])).is_none());
    }
}
