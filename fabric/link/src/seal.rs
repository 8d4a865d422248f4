//! Protection of a link: a Noise handshake under the cluster's key, then sealed records.
//!
//! `Noise_NNpsk0_25519_AESGCM_SHA256`, by `snow`. Each greeting's body is a message of the handshake with the hello in it; the
//! called end treats the link as up when the caller's first record opens, because a greeting alone could be a recording.

use sha2::{Digest, Sha256};
use snow::{Builder, HandshakeState, TransportState};
use zeroize::Zeroizing;

use crate::frame::HELLO_OCTETS_MAX;
use crate::key::ClusterKey;
use crate::primitives::{Primitives, TAG};

/// The longest body of a greeting: an ephemeral key, the hello, its tag.
pub(crate) const BODY_OCTETS_MAX: usize = 32 + HELLO_OCTETS_MAX + TAG;

const PROTOCOL: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// Octets before a record: its length.
const HEADER: usize = 2;
/// The longest record that Noise allows.
const RECORD_OCTETS_MAX: usize = 65_535;
/// The most that one record carries.
const CONTENT_OCTETS_MAX: usize = RECORD_OCTETS_MAX - TAG;
/// The record that proves that a caller is live: an empty one.
pub(crate) const PROOF_OCTETS: usize = HEADER + TAG;
/// After so many records of one direction its key is replaced by one that does not lead back to it. At most 4 GiB under one key: AES-GCM's bound
/// for a forger's chance under 2^-57 is some 400 GB (RFC 8446 §5.5).
pub(crate) const RECORDS_PER_KEY: u64 = 1 << 16;

/// The greeting does not come from a peer with the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongKey;

/// The peer did not seal this record, or not as the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForgedRecord;

/// The key that links derive from the cluster's key, which heartbeats use itself.
fn link_key(key: &ClusterKey) -> Zeroizing<[u8; 32]> {
    let mut hash = Sha256::new();
    hash.update(b"whimbrel link\x01");
    hash.update(key.octets());
    Zeroizing::new(hash.finalize().into())
}

fn builder<'a>(prologue: &'a [u8], psk: &'a [u8; 32]) -> Result<Builder<'a>, snow::Error> {
    Builder::with_resolver(PROTOCOL.parse()?, Box::new(Primitives)).prologue(prologue)?.psk(0, psk)
}

/// Writes a handshake message with our hello.
fn write(state: &mut HandshakeState, hello: &[u8]) -> Result<Vec<u8>, snow::Error> {
    let mut body = vec![0; BODY_OCTETS_MAX];
    let octets = state.write_message(hello, &mut body)?;
    body.truncate(octets);
    Ok(body)
}

/// Reads a handshake message; the peer's hello.
fn read(state: &mut HandshakeState, body: &[u8]) -> Result<Vec<u8>, snow::Error> {
    let mut hello = vec![0; body.len()];
    let octets = state.read_message(body, &mut hello)?;
    hello.truncate(octets);
    Ok(hello)
}

/// The caller's side of a handshake, while the answer is awaited.
pub(crate) struct CallerHandshake(Box<HandshakeState>);

impl CallerHandshake {
    /// The greeting's body, and what takes the answer. Errors: the system gives no randomness.
    pub(crate) fn new(
        key: &ClusterKey,
        prologue: &[u8],
        hello: &[u8],
    ) -> Result<(Self, Vec<u8>), snow::Error> {
        let mut state = builder(prologue, &link_key(key))?.build_initiator()?;
        let body = write(&mut state, hello)?;
        Ok((Self(Box::new(state)), body))
    }

    /// Takes the answer: its hello, and the link's seals. Errors: [`WrongKey`].
    pub(crate) fn answered(mut self, body: &[u8]) -> Result<(SealedChannel, Vec<u8>), WrongKey> {
        let hello = read(&mut self.0, body).map_err(|_| WrongKey)?;
        let transport = self.0.into_transport_mode().map_err(|_| WrongKey)?;
        Ok((SealedChannel::new(transport), hello))
    }
}

/// Answers a caller that has one of our keys: the seals, the caller's hello, the answer's body. The caller's message may be a recording: the
/// caller is live if it can open the answer, which its first record proves. Errors: [`WrongKey`].
pub(crate) fn answer(
    keys: &[ClusterKey],
    prologue: &[u8],
    body: &[u8],
    hello: &[u8],
) -> Result<(SealedChannel, Vec<u8>, Vec<u8>), WrongKey> {
    // Under a wrong key this costs hashes and a tag, no exchange of keys.
    let attempt = |key: &ClusterKey| {
        let mut state = builder(prologue, &link_key(key))?.build_responder()?;
        let theirs = read(&mut state, body)?;
        let answer = write(&mut state, hello)?;
        Ok::<_, snow::Error>((SealedChannel::new(state.into_transport_mode()?), theirs, answer))
    };
    keys.iter().find_map(|key| attempt(key).ok()).ok_or(WrongKey)
}

/// Seals records to the peer and opens its own.
pub(crate) struct SealedChannel {
    noise: TransportState,
}

impl SealedChannel {
    fn new(noise: TransportState) -> Self {
        Self { noise }
    }

    /// Appends `content` in as few records as it takes; in an empty one if there is none. Errors: after 2^64 records.
    pub(crate) fn seal(&mut self, content: &[u8], out: &mut Vec<u8>) -> Result<(), ForgedRecord> {
        let mut rest = content;
        loop {
            let (now, later) = rest.split_at(rest.len().min(CONTENT_OCTETS_MAX));
            let start = out.len();
            out.resize(start + HEADER + now.len() + TAG, 0);
            out[start..][..HEADER].copy_from_slice(&((now.len() + TAG) as u16).to_be_bytes());
            self.noise.write_message(now, &mut out[start + HEADER..]).map_err(|_| ForgedRecord)?;
            if self.noise.sending_nonce().is_multiple_of(RECORDS_PER_KEY) {
                self.noise.rekey_outgoing();
            }
            rest = later;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Opens each record that is all there and appends what it carries; says how many octets they took. Errors: [`ForgedRecord`].
    pub(crate) fn open(&mut self, octets: &[u8], out: &mut Vec<u8>) -> Result<usize, ForgedRecord> {
        let mut taken = 0;
        while let Some((header, rest)) = octets[taken..].split_first_chunk::<HEADER>() {
            let length = usize::from(u16::from_be_bytes(*header));
            let content = length.checked_sub(TAG).ok_or(ForgedRecord)?;
            let Some(record) = rest.get(..length) else { break };
            let start = out.len();
            out.resize(start + content, 0);
            self.noise.read_message(record, &mut out[start..]).map_err(|_| ForgedRecord)?;
            if self.noise.receiving_nonce().is_multiple_of(RECORDS_PER_KEY) {
                self.noise.rekey_incoming();
            }
            taken += HEADER + length;
        }
        Ok(taken)
    }
}
