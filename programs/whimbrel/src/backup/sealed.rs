//! Sealed backups: a stream that only the holder of a key or of a passphrase can read, and of which no octet can be changed, moved, cut off
//! or added without notice. Both ends need the memory of one chunk.
//!
//! | octets | content |
//! | --- | --- |
//! | 16 | [`MAGIC`] with the version |
//! | 1 | [`FOR_RECIPIENT`] or [`FOR_PASSPHRASE`] |
//! | 48 or 28 | HPKE's encapsulated key and the tag of an empty message; or Argon2id's salt, memory in KiB, passes and lanes |
//! | 32 | a digest of the key, by which a wrong one is recognised, and which lets no second key open the same octets |
//! | … | chunks of 64 KiB, the last one shorter or as long, each with a tag of 16 octets |
//!
//! A chunk is sealed with AES-256-GCM under a key that no other stream has. Its nonce is its number and whether it is the last one (STREAM of
//! Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015).

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use argon2::{Algorithm, Argon2, Params, Version};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::{digest, hkdf};
use whimbrel_broker_common::crypto::{PrivateKey, Seed, Share};
use whimbrel_broker_common::envelope::Protocol;
use zeroize::Zeroizing;

/// Begins every sealed stream; its last octet is the version.
const MAGIC: [u8; 16] = *b"whimbrel-sealed\x01";
const FOR_RECIPIENT: u8 = 1;
const FOR_PASSPHRASE: u8 = 2;
/// Octets of a chunk's content: large enough that tags and calls cost little, small enough for any host.
pub(crate) const CHUNK_OCTETS: usize = 1 << 16;
const TAG_OCTETS: usize = 16;
const CONFIRMATION_OCTETS: usize = 32;
/// RFC 9106 §4, for hosts with little memory. Tests derive many keys without optimisation.
const COST: Cost = match cfg!(test) {
    true => Cost { memory_kib: 64, passes: 1, lanes: 1 },
    false => Cost { memory_kib: 64 << 10, passes: 3, lanes: 4 },
};
/// The most that a stream may ask of the host that opens it: 1 GiB for a few seconds.
const COST_MAX: Cost = Cost { memory_kib: 1 << 20, passes: 16, lanes: 16 };

/// Labels of HPKE in backups.
const PROTOCOL: Protocol = Protocol {
    seed: b"whimbrel backup v1 seed\0",
    draw: b"whimbrel backup v1 draw\0",
    exporter: b"whimbrel backup v1 secret\0",
};

/// Why a sealed stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealedError {
    /// The octets end within the head.
    Short,
    /// A later version has written it.
    LaterVersion,
    /// Sealed for a recipient, and no key of one was given.
    WantsKey,
    /// Sealed with a passphrase, and none was given.
    WantsPassphrase,
    /// The key or the passphrase is another one, or the head was changed.
    WrongKey,
    /// Octets were changed, moved, cut off or added.
    Damaged,
}

impl fmt::Display for SealedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "was cut short: use another backup",
            Self::LaterVersion => "was sealed by a later version of whimbrel: restore it with that version",
            Self::WantsKey => "is sealed for a key: name the private key's file with --key",
            Self::WantsPassphrase => {
                "is sealed with a passphrase: name the file that has it with --passphrase-file"
            }
            Self::WrongKey => {
                "is sealed with another key or passphrase, or its beginning was changed: nothing was read from it"
            }
            Self::Damaged => "was cut short or changed after it was sealed: use another backup",
        })
    }
}

impl std::error::Error for SealedError {}

impl From<SealedError> for io::Error {
    fn from(e: SealedError) -> Self {
        Self::new(io::ErrorKind::InvalidData, e)
    }
}

/// The error of a sealed stream within an error of input and output.
pub(crate) fn sealed_error(e: &io::Error) -> Option<SealedError> {
    e.get_ref()?.downcast_ref().copied()
}

/// Recipient or passphrase that a stream is sealed for.
pub(crate) enum Lock {
    Recipient(Share),
    Passphrase(Zeroizing<Vec<u8>>),
}

/// Private key or passphrase that opens a sealed stream.
pub(crate) enum Unlock {
    Key(PrivateKey),
    Passphrase(Zeroizing<Vec<u8>>),
}

/// Costs of Argon2id.
#[derive(Clone, Copy)]
struct Cost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl Cost {
    fn derive(self, passphrase: &[u8], salt: &[u8; 16]) -> Option<Zeroizing<[u8; 32]>> {
        let is_bounded = self.memory_kib <= COST_MAX.memory_kib
            && self.passes <= COST_MAX.passes
            && self.lanes <= COST_MAX.lanes;
        let params =
            is_bounded.then(|| Params::new(self.memory_kib, self.passes, self.lanes, Some(32)).ok())??;
        let mut secret = Zeroizing::new([0; 32]);
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        hasher.hash_password_into(passphrase, salt, &mut secret[..]).ok()?;
        Some(secret)
    }
}

/// The key of a stream's chunks.
#[derive(Clone)]
pub(crate) struct StreamKey(Zeroizing<[u8; 32]>);

impl StreamKey {
    /// The key and its digest, of the secret that both ends have and of the head before the digest.
    fn derive(secret: &[u8; 32], head: &[u8]) -> (Self, [u8; CONFIRMATION_OCTETS]) {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, digest::digest(&digest::SHA256, head).as_ref());
        let prk = salt.extract(secret);
        let draw = |label: &[u8]| {
            let mut octets = Zeroizing::new([0; 32]);
            let labels = [label];
            let drawn = prk.expand(&labels, hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut octets[..]));
            assert!(drawn.is_ok(), "HKDF gives 32 octets");
            octets
        };
        (Self(draw(b"whimbrel backup v1 chunks")), *draw(b"whimbrel backup v1 confirmation"))
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&AES_256_GCM, &self.0[..]);
        LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("the key has 32 octets")))
    }
}

/// The nonce of a chunk: its number, and whether it is the last one.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut octets = [0; 12];
    octets[..8].copy_from_slice(&number.to_be_bytes());
    octets[11] = is_last.into();
    Nonce::assume_unique_for_key(octets)
}

/// Makes the head of a new stream and the key of its chunks, of 32 and 16 random octets that nothing else is made of. Errors: the recipient's
/// public key is none.
pub(crate) fn begin(lock: &Lock, seed: &Seed, salt: &[u8; 16]) -> Result<(Vec<u8>, StreamKey), &'static str> {
    let mut head = MAGIC.to_vec();
    let secret = match lock {
        Lock::Recipient(share) => {
            head.push(FOR_RECIPIENT);
            let sealed = PROTOCOL.seal(share, &MAGIC, seed, |_| (Zeroizing::default(), Vec::new()));
            let (enc, tag, secret) = sealed.ok_or("the recipient's public key is none")?;
            head.extend_from_slice(&enc);
            head.extend_from_slice(&tag);
            secret
        }
        Lock::Passphrase(passphrase) => {
            head.push(FOR_PASSPHRASE);
            head.extend_from_slice(salt);
            for number in [COST.memory_kib, COST.passes, COST.lanes] {
                head.extend_from_slice(&number.to_be_bytes());
            }
            COST.derive(passphrase, salt).ok_or("this host lacks the memory for the passphrase's key")?
        }
    };
    let (key, confirmation) = StreamKey::derive(&secret, &head);
    head.extend_from_slice(&confirmation);
    Ok((head, key))
}

/// True if a file begins with the mark of a sealed stream of any version, or ends within that mark.
pub(crate) fn is_sealed(beginning: &[u8]) -> bool {
    let mark = &MAGIC[..MAGIC.len() - 1];
    !beginning.is_empty() && (beginning.starts_with(mark) || mark.starts_with(beginning))
}

/// Reads the head of a stream, and gives the key of its chunks, which follow.
pub(crate) fn open_head(input: &mut dyn Read, unlock: Option<&Unlock>) -> Result<StreamKey, io::Error> {
    let mut head = Vec::new();
    let mut more = |octets: usize| -> Result<Vec<u8>, io::Error> {
        let mut part = vec![0; octets];
        input.read_exact(&mut part).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => SealedError::Short.into(),
            _ => e,
        })?;
        head.extend_from_slice(&part);
        Ok(part)
    };
    if more(MAGIC.len())? != MAGIC {
        return Err(SealedError::LaterVersion.into());
    }
    let kind = more(1)?;
    let secret = match (kind.first(), unlock) {
        (Some(&FOR_RECIPIENT), Some(Unlock::Key(key))) => {
            let (enc, tag) = (fixed::<32>(&more(32)?), more(TAG_OCTETS)?);
            PROTOCOL.open(key, &enc, &MAGIC, &tag, &[]).map(|(_, secret)| secret)
        }
        (Some(&FOR_PASSPHRASE), Some(Unlock::Passphrase(passphrase))) => {
            let (salt, numbers) = (fixed::<16>(&more(16)?), more(12)?);
            let number = |at: usize| u32::from_be_bytes(fixed(&numbers[at..at + 4]));
            let cost = Cost { memory_kib: number(0), passes: number(4), lanes: number(8) };
            cost.derive(passphrase, &salt)
        }
        (Some(&FOR_RECIPIENT), _) => return Err(SealedError::WantsKey.into()),
        (Some(&FOR_PASSPHRASE), _) => return Err(SealedError::WantsPassphrase.into()),
        _ => return Err(SealedError::Damaged.into()),
    };
    let Some(secret) = secret else { return Err(SealedError::WrongKey.into()) };
    let before = head.clone();
    let mut confirmation = [0; CONFIRMATION_OCTETS];
    input.read_exact(&mut confirmation).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => SealedError::Short.into(),
        _ => e,
    })?;
    let (key, expected) = StreamKey::derive(&secret, &before);
    if confirmation != expected {
        return Err(SealedError::WrongKey.into());
    }
    Ok(key)
}

/// The first octets of what was read with that length.
fn fixed<const N: usize>(octets: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&octets[..N]);
    out
}

/// Seals what is written; [`Sealer::finish`] ends the stream.
pub(crate) struct Sealer<W: Write> {
    out: W,
    cipher: LessSafeKey,
    chunk: Zeroizing<Vec<u8>>,
    number: u64,
}

impl<W: Write> Sealer<W> {
    pub(crate) fn new(out: W, key: &StreamKey) -> Self {
        let chunk = Zeroizing::new(Vec::with_capacity(CHUNK_OCTETS + TAG_OCTETS));
        Self { out, cipher: key.cipher(), chunk, number: 0 }
    }

    fn end_chunk(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = nonce(self.number, is_last);
        let sealed = self.cipher.seal_in_place_append_tag(nonce, Aad::empty(), &mut *self.chunk);
        sealed.map_err(|_| io::Error::other("a chunk cannot be sealed"))?;
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        self.number += 1;
        Ok(())
    }

    /// Seals what is left as the last chunk.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.end_chunk(true)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        // A full chunk waits until it is known not to be the last.
        if self.chunk.len() == CHUNK_OCTETS && !octets.is_empty() {
            self.end_chunk(false)?;
        }
        let taken = octets.len().min(CHUNK_OCTETS - self.chunk.len());
        self.chunk.extend_from_slice(&octets[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the chunks behind a head. It gives no octet of a chunk whose tag is wrong.
pub(crate) struct Opener<R: BufRead> {
    input: R,
    cipher: LessSafeKey,
    chunk: Zeroizing<Vec<u8>>,
    /// Octets of the chunk that were read, and its content's length.
    read: usize,
    length: usize,
    number: u64,
    is_done: bool,
}

impl<R: BufRead> Opener<R> {
    pub(crate) fn new(input: R, key: &StreamKey) -> Self {
        let chunk = Zeroizing::new(Vec::with_capacity(CHUNK_OCTETS + TAG_OCTETS));
        Self { input, cipher: key.cipher(), chunk, read: 0, length: 0, number: 0, is_done: false }
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        self.chunk.clear();
        (self.read, self.length) = (0, 0);
        (&mut self.input).take((CHUNK_OCTETS + TAG_OCTETS) as u64).read_to_end(&mut self.chunk)?;
        let is_last = self.input.fill_buf()?.is_empty();
        let nonce = nonce(self.number, is_last);
        let opened = self.cipher.open_in_place(nonce, Aad::empty(), &mut self.chunk[..]);
        self.length = opened.map_err(|_| SealedError::Damaged)?.len();
        // An empty chunk ends an empty stream only, so that each content has one form.
        if self.length == 0 && self.number > 0 {
            return Err(SealedError::Damaged.into());
        }
        self.number += 1;
        self.is_done = is_last;
        Ok(())
    }
}

impl<R: BufRead> Read for Opener<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.read == self.length {
            if self.is_done {
                return Ok(0);
            }
            self.next_chunk()?;
        }
        let taken = out.len().min(self.length - self.read);
        out[..taken].copy_from_slice(&self.chunk[self.read..self.read + taken]);
        self.read += taken;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    fn lock(is_recipient: bool) -> (Lock, Unlock) {
        let passphrase = || Zeroizing::new(b"correct horse".to_vec());
        match is_recipient {
            true => {
                let key = PrivateKey::new(KEY);
                (Lock::Recipient(key.share()), Unlock::Key(key))
            }
            false => (Lock::Passphrase(passphrase()), Unlock::Passphrase(passphrase())),
        }
    }

    fn sealed(content: &[u8], lock: &Lock, seed: u8) -> Vec<u8> {
        let (head, key) = begin(lock, &Seed::new([seed; 32]), &[seed; 16]).unwrap();
        let mut sealer = Sealer::new(head, &key);
        sealer.write_all(content).unwrap();
        sealer.finish().unwrap()
    }

    fn opened(mut octets: &[u8], unlock: &Unlock) -> Result<Vec<u8>, SealedError> {
        let key = open_head(&mut octets, Some(unlock)).map_err(|e| sealed_error(&e).unwrap())?;
        let mut content = Vec::new();
        Opener::new(octets, &key).read_to_end(&mut content).map_err(|e| sealed_error(&e).unwrap())?;
        Ok(content)
    }

    /// Contents around the borders of chunks.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![
            0..200usize,
            CHUNK_OCTETS - 2..CHUNK_OCTETS + 3,
            2 * CHUNK_OCTETS - 2..2 * CHUNK_OCTETS + 3,
        ];
        (length, any::<u8>())
            .prop_map(|(length, first)| (0..length).map(|i| first.wrapping_add((i % 251) as u8)).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn what_was_sealed_comes_back(content in content(), is_recipient: bool, seed: u8) {
            let (lock, unlock) = lock(is_recipient);
            let octets = sealed(&content, &lock, seed);
            prop_assert!(is_sealed(&octets));
            prop_assert_eq!(opened(&octets, &unlock), Ok(content));
        }

        #[test]
        fn any_flipped_bit_is_found(content in content(), is_recipient: bool, at: prop::sample::Index, bit in 0..8u32) {
            let (lock, unlock) = lock(is_recipient);
            let mut octets = sealed(&content, &lock, 1);
            let at = at.index(octets.len());
            octets[at] ^= 1 << bit;
            prop_assert!(opened(&octets, &unlock).is_err(), "octet {at}");
        }

        #[test]
        fn any_truncation_and_any_addition_is_found(content in content(), is_recipient: bool, at: prop::sample::Index, more in prop::collection::vec(any::<u8>(), 1..40)) {
            let (lock, unlock) = lock(is_recipient);
            let octets = sealed(&content, &lock, 1);
            prop_assert!(opened(&octets[..at.index(octets.len())], &unlock).is_err());
            prop_assert!(opened(&[octets, more].concat(), &unlock).is_err());
        }

        #[test]
        fn another_key_opens_nothing(content in content(), is_recipient: bool, other in any::<[u8; 32]>()) {
            let (lock, unlock) = lock(is_recipient);
            let octets = sealed(&content, &lock, 1);
            let other = match &unlock {
                Unlock::Key(_) => Unlock::Key(PrivateKey::new(other)),
                Unlock::Passphrase(_) => Unlock::Passphrase(Zeroizing::new(other.to_vec())),
            };
            prop_assert_eq!(opened(&octets, &other), Err(SealedError::WrongKey));
        }

        #[test]
        fn any_octets_are_opened_or_refused(octets in prop::collection::vec(any::<u8>(), 0..300), is_recipient: bool) {
            let (_, unlock) = lock(is_recipient);
            let kind = [if is_recipient { FOR_RECIPIENT } else { FOR_PASSPHRASE }];
            prop_assert!(opened(&octets, &unlock).is_err());
            prop_assert!(opened(&[&MAGIC[..], &kind, &octets].concat(), &unlock).is_err());
        }
    }

    #[test]
    fn chunks_keep_their_order_and_their_number() {
        let (lock, unlock) = lock(true);
        let content: Vec<u8> = (0..4 * CHUNK_OCTETS).map(|i| (i / CHUNK_OCTETS) as u8).collect();
        let octets = sealed(&content, &lock, 1);
        let chunk = CHUNK_OCTETS + TAG_OCTETS;
        let (head, chunks) = octets.split_at(octets.len() - 4 * chunk);
        let ordered = |order: &[usize]| {
            let chunks = order.iter().flat_map(|i| &chunks[i * chunk..(i + 1) * chunk]);
            opened(&head.iter().chain(chunks).copied().collect::<Vec<_>>(), &unlock)
        };
        assert_eq!(ordered(&[0, 1, 2, 3]), Ok(content));
        for order in
            [&[1, 0, 2, 3][..], &[0, 1, 3], &[0, 1, 2], &[0, 0, 1, 2, 3], &[3], &[], &[0, 1, 2, 3, 3]]
        {
            assert_eq!(ordered(order), Err(SealedError::Damaged), "{order:?}");
        }
        // The head of another stream for the same recipient.
        let other = sealed(&[], &lock, 2);
        let mixed = [&other[..head.len()], chunks].concat();
        assert_eq!(opened(&mixed, &unlock), Err(SealedError::Damaged));
    }

    #[test]
    fn a_stream_that_asks_for_much_memory_is_refused_before_it_is_taken() {
        let (lock, unlock) = lock(false);
        let octets = sealed(b"content", &lock, 1);
        for (at, number) in [(33, COST_MAX.memory_kib + 1), (37, COST_MAX.passes + 1), (41, u32::MAX)] {
            let mut costly = octets.clone();
            costly[at..at + 4].copy_from_slice(&number.to_be_bytes());
            assert_eq!(opened(&costly, &unlock), Err(SealedError::WrongKey));
        }
    }

    #[test]
    fn what_is_missing_to_open_it_is_named() {
        for (is_recipient, wants) in [(true, SealedError::WantsKey), (false, SealedError::WantsPassphrase)] {
            let octets = sealed(b"content", &lock(is_recipient).0, 1);
            for given in [None, Some(lock(!is_recipient).1)] {
                let e = open_head(&mut &octets[..], given.as_ref()).map(drop).unwrap_err();
                assert_eq!(sealed_error(&e), Some(wants));
            }
        }
        let mut later = sealed(b"content", &lock(true).0, 1);
        later[15] = 2;
        assert_eq!(opened(&later, &lock(true).1), Err(SealedError::LaterVersion));
    }
}
