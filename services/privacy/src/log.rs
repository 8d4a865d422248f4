//! The log of issuing keys: append-only, witnessed, and with one place for each epoch.
//!
//! A broker that gave one operator a key of its own could tell that operator's tokens from all others. So every issuing key stands
//! in a Merkle tree (RFC 6962 §2.1), at the place that the number of its epoch names: a second key of the same epoch needs a second
//! tree. Witnesses sign a head only if it extends the one that they signed before, and only if epochs are as long as
//! [`EPOCH_S_MIN`], since an epoch of an hour could mark an operator as well as a key does. Operators take a key only from a head that
//! enough witnesses have signed and that extends the last head they have seen.

use std::collections::BTreeSet;

use whimbrel_broker_common::certificate::Validity;
use whimbrel_broker_common::crypto::Signature;
use whimbrel_broker_common::id::Domain;
use whimbrel_ids::{DecodeError, DecodeErrorKind, Instant, Reader};

use crate::crypto::{Signed, SigningKey, VerifyingKey, hash};
use crate::msg::{MessageField, MessageType, emit_part, read_part, read_signature, signed_message, whole};
use crate::voprf::Element;

/// The shortest time between the beginnings of two epochs: within it every operator's wallet fills at least once.
pub const EPOCH_S_MIN: u64 = 86_400;

/// The most epochs of a log: ten years of days. It bounds proofs and what a witness stores.
pub const EPOCHS_MAX: u64 = 4_096;

/// The longest proof: the depth of a tree of [`EPOCHS_MAX`] leaves, and one more for consistency.
pub const PROOF_MAX: usize = 13;

/// A hash of the tree.
pub type Hash = [u8; 32];

/// An issuing key: the leaf of its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEntry {
    /// Whose key it is.
    pub broker: Domain,
    /// The number of the epoch, which is the number of the leaf.
    pub epoch: u32,
    /// The issuing key.
    pub key: Element,
    /// From when tokens are issued, until when they open session groups.
    pub validity: Validity,
}

impl KeyEntry {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 4 + 32 + 16;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::KeyEntry.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(self.key.octets());
        self.validity.emit(&mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::KeyEntry.read(r)?;
            let (broker, epoch) = (Domain::read(r)?, r.u32("epoch")?);
            Ok(Self { broker, epoch, key: Element::read(r, "issuing key")?, validity: Validity::read(r)? })
        })
    }

    /// Whether tokens of the epoch are issued and redeemed at `now`.
    pub fn is_valid(&self, now: Instant) -> bool {
        (self.validity.from..=self.validity.until).contains(&now.as_secs())
    }

    fn leaf(&self) -> Hash {
        hash(&[&[0], &self.to_octets()])
    }
}

fn node(left: &Hash, right: &Hash) -> Hash {
    hash(&[&[1], left, right])
}

/// The largest power of two below `n`, which is above 1.
const fn split(n: usize) -> usize {
    1 << (usize::BITS - 1 - (n - 1).leading_zeros())
}

/// MTH of RFC 6962 §2.1.
fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => hash(&[]),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(split(leaves.len()));
            node(&root(left), &root(right))
        }
    }
}

/// PATH of RFC 6962 §2.1.1.
fn inclusion(index: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() <= 1 {
        return Vec::new();
    }
    let k = split(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut path, other) =
        if index < k { (inclusion(index, left), right) } else { (inclusion(index - k, right), left) };
    path.push(root(other));
    path
}

/// PROOF of RFC 6962 §2.1.2.
fn consistency(old: usize, leaves: &[Hash], whole: bool) -> Vec<Hash> {
    if old == leaves.len() {
        return if whole { Vec::new() } else { vec![root(leaves)] };
    }
    let k = split(leaves.len());
    let (left, right) = leaves.split_at(k);
    let (mut path, other) = if old <= k {
        (consistency(old, left, whole), right)
    } else {
        (consistency(old - k, right, false), left)
    };
    path.push(root(other));
    path
}

/// Verifies that a leaf stands at `index` of a tree (RFC 9162 §2.1.3.2).
pub fn verify_inclusion(leaf: Hash, index: u64, size: u64, path: &[Hash], expected: &Hash) -> bool {
    if index >= size || path.len() > PROOF_MAX {
        return false;
    }
    let (mut at, mut last, mut sum) = (index, size - 1, leaf);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            sum = node(sibling, &sum);
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            sum = node(&sum, sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && sum == *expected
}

/// Verifies that the tree of `new` extends that of `old` (RFC 9162 §2.1.4.2).
pub fn verify_consistency(old: (u64, &Hash), new: (u64, &Hash), path: &[Hash]) -> bool {
    let ((m, old_root), (n, new_root)) = (old, new);
    if m == n {
        return path.is_empty() && old_root == new_root;
    }
    if m == 0 {
        return path.is_empty();
    }
    if m > n || path.len() > PROOF_MAX {
        return false;
    }
    let mut path = path.iter();
    let (mut at, mut last) = (m - 1, n - 1);
    while at & 1 == 1 {
        (at, last) = (at >> 1, last >> 1);
    }
    // A power of two is a whole subtree of the new tree, and its own first hash.
    let first = if m.is_power_of_two() { Some(old_root) } else { path.next() };
    let Some(&first) = first else { return false };
    let (mut old_sum, mut new_sum) = (first, first);
    for sibling in path {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            (old_sum, new_sum) = (node(sibling, &old_sum), node(sibling, &new_sum));
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            new_sum = node(&new_sum, sibling);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && old_sum == *old_root && new_sum == *new_root
}

/// The statement of the broker about its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeHead {
    /// Whose log it is.
    pub broker: Domain,
    /// Leaves, which is the number of epochs so far.
    pub size: u64,
    /// Root of the tree.
    pub root: Hash,
    /// The broker's signature.
    pub signature: Signature,
}

impl TreeHead {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 8 + 32 + 64;

    fn sign(broker: Domain, size: u64, root: Hash, key: &SigningKey) -> Self {
        Self { broker, size, root, signature: Signature::NONE }.with_signature(key)
    }

    fn signed_octets(&self) -> Vec<u8> {
        let mut out = MessageType::TreeHead.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend_from_slice(&self.root);
        out
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        MessageType::TreeHead.read(r)?;
        let broker = Domain::read(r)?;
        let too_many = r.error(DecodeErrorKind::TooMany, "epochs");
        let size = r.u64("tree size")?;
        if size > EPOCHS_MAX {
            return Err(too_many);
        }
        Ok(Self { broker, size, root: r.array("root")?, signature: read_signature(r)? })
    }
}

signed_message!(TreeHead as Signed::TreeHead);

/// What a witness has signed: the same head as the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cosignature {
    /// Key of the witness.
    pub witness: VerifyingKey,
    /// Its signature over the head.
    pub signature: Signature,
}

/// Cosignatures behind their number. Panics on more than [`LogProof::COSIGNATURES_MAX`].
pub(crate) fn emit_cosignatures(cosignatures: &[Cosignature], out: &mut Vec<u8>) {
    assert!(cosignatures.len() <= LogProof::COSIGNATURES_MAX);
    out.push(cosignatures.len() as u8);
    for Cosignature { witness, signature } in cosignatures {
        out.extend_from_slice(&witness.octets());
        out.extend_from_slice(&signature.0);
    }
}

pub(crate) fn read_cosignatures(r: &mut Reader<'_>) -> Result<Vec<Cosignature>, DecodeError> {
    let mut cosignatures = Vec::new();
    for _ in 0..count(r, LogProof::COSIGNATURES_MAX, "cosignatures")? {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "witness");
        let witness = VerifyingKey::from_octets(r.array("witness")?).ok_or(invalid)?;
        cosignatures.push(Cosignature { witness, signature: read_signature(r)? });
    }
    Ok(cosignatures)
}

fn count(r: &mut Reader<'_>, max: usize, ie: &'static str) -> Result<usize, DecodeError> {
    let too_many = r.error(DecodeErrorKind::TooMany, ie);
    let count = usize::from(r.u8(ie)?);
    if count > max { Err(too_many) } else { Ok(count) }
}

/// A head with its cosignatures, and the entry that an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogProof {
    /// The head that the witnesses signed.
    pub head: TreeHead,
    /// Those of the witnesses; at most [`LogProof::COSIGNATURES_MAX`].
    pub cosignatures: Vec<Cosignature>,
    /// From the head that the operator has seen.
    pub consistency: Vec<Hash>,
    /// The entry that is proved.
    pub entry: KeyEntry,
    /// That it stands in the tree.
    pub inclusion: Vec<Hash>,
}

impl LogProof {
    /// The most witnesses that an operator need know.
    pub const COSIGNATURES_MAX: usize = 16;
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2
        + TreeHead::OCTETS_MAX
        + 1
        + Self::COSIGNATURES_MAX * 96
        + 2 * (1 + PROOF_MAX * 32)
        + 2
        + KeyEntry::OCTETS_MAX;

    /// Its octets. Panics on more cosignatures than the bound.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::LogProof.begin();
        out.extend_from_slice(&self.head.to_octets());
        emit_cosignatures(&self.cosignatures, &mut out);
        for path in [&self.consistency, &self.inclusion] {
            assert!(path.len() <= PROOF_MAX);
            out.push(path.len() as u8);
            path.iter().for_each(|hash| out.extend_from_slice(hash));
        }
        emit_part(&self.entry.to_octets(), &mut out);
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::LogProof.read(r)?;
            let head = TreeHead::read(r)?;
            let cosignatures = read_cosignatures(r)?;
            let mut paths = [Vec::new(), Vec::new()];
            for path in &mut paths {
                for _ in 0..count(r, PROOF_MAX, "proof")? {
                    path.push(r.array("proof")?);
                }
            }
            let [consistency, inclusion] = paths;
            let entry = KeyEntry::parse(read_part(r, KeyEntry::OCTETS_MAX, "key entry")?)?;
            Ok(Self { head, cosignatures, consistency, entry, inclusion })
        })
    }
}

/// The question that the operator asks of the broker's log: the newest key that is good now, with the proof that the log
/// extends what the operator has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Domain of the broker whose log it is.
    pub broker: Domain,
    /// Leaves that the operator has seen.
    pub seen: u64,
}

impl LogRequest {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 2 + 1 + Domain::OCTETS_MAX + 8;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MessageType::LogRequest.begin();
        self.broker.emit(&mut out);
        out.extend_from_slice(&self.seen.to_be_bytes());
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            MessageType::LogRequest.read(r)?;
            Ok(Self { broker: Domain::read(r)?, seen: r.u64("seen")? })
        })
    }
}

/// Why a key or a head is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// The head or the entry is of another broker.
    OtherBroker,
    /// The broker did not sign the head.
    BrokerSignature,
    /// The head does not extend the one seen before: the broker shows different logs to different parties.
    Forked,
    /// Too few of the known witnesses signed the head.
    TooFewWitnesses,
    /// The entry does not stand at the place of its epoch.
    NotIncluded,
    /// An epoch begins too early after the one before, or ends before it begins.
    EpochTooShort,
    /// The log is as long as it may be.
    Full,
}

impl core::fmt::Display for LogError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::OtherBroker => "the log is of another broker",
            Self::BrokerSignature => "the broker did not sign the head of its log",
            Self::Forked => "the log does not extend what it was before: the broker shows different logs",
            Self::TooFewWitnesses => "too few witnesses signed the head of the log",
            Self::NotIncluded => "the issuing key does not stand in the log at the place of its epoch",
            Self::EpochTooShort => "an epoch of the log is too short, or ends before it begins",
            Self::Full => "the log has as many epochs as it may have",
        })
    }
}

impl core::error::Error for LogError {}

/// A log, at the broker or at a witness.
#[derive(Clone, Debug)]
pub struct KeyLog {
    broker: Domain,
    entries: Vec<KeyEntry>,
    leaves: Vec<Hash>,
}

impl KeyLog {
    /// An empty one.
    pub const fn new(broker: Domain) -> Self {
        Self { broker, entries: Vec::new(), leaves: Vec::new() }
    }

    /// Entries of the log, in order.
    pub fn entries(&self) -> &[KeyEntry] {
        &self.entries
    }

    /// Adds the key of the next epoch. Errors: [`LogError`].
    pub fn append(&mut self, entry: KeyEntry) -> Result<(), LogError> {
        let next = self.entries.len() as u64;
        if entry.broker != self.broker {
            return Err(LogError::OtherBroker);
        }
        if next >= EPOCHS_MAX {
            return Err(LogError::Full);
        }
        if u64::from(entry.epoch) != next {
            return Err(LogError::NotIncluded);
        }
        let long = self.entries.last().is_none_or(|last| {
            last.validity.from.checked_add(EPOCH_S_MIN).is_some_and(|from| entry.validity.from >= from)
        });
        let lasts = entry.validity.from.checked_add(EPOCH_S_MIN);
        if !long || lasts.is_none_or(|until| entry.validity.until < until) {
            return Err(LogError::EpochTooShort);
        }
        self.leaves.push(entry.leaf());
        self.entries.push(entry);
        Ok(())
    }

    /// The head, signed.
    pub fn head(&self, key: &SigningKey) -> TreeHead {
        TreeHead::sign(self.broker.clone(), self.leaves.len() as u64, root(&self.leaves), key)
    }

    /// The entry of an epoch, with what an operator needs that has seen the tree at `seen` leaves. `None` if there is no such
    /// epoch, or the operator has seen more than there is.
    pub fn prove(
        &self,
        epoch: u32,
        seen: u64,
        cosignatures: Vec<Cosignature>,
        key: &SigningKey,
    ) -> Option<LogProof> {
        let index = usize::try_from(epoch).ok()?;
        let entry = self.entries.get(index)?.clone();
        let consistency = match usize::try_from(seen).ok()? {
            0 => Vec::new(),
            old if old <= self.leaves.len() => consistency(old, &self.leaves, true),
            _ => return None,
        };
        let inclusion = inclusion(index, &self.leaves);
        Some(LogProof { head: self.head(key), cosignatures, consistency, entry, inclusion })
    }
}

/// The whole log with its head, as witnesses get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStatement {
    /// Signed by the broker.
    pub head: TreeHead,
    /// All entries, in order.
    pub entries: Vec<KeyEntry>,
}

impl LogStatement {
    /// Of a log, signed by its broker.
    pub fn of(log: &KeyLog, key: &SigningKey) -> Self {
        Self { head: log.head(key), entries: log.entries().to_vec() }
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::new();
        emit_part(&self.head.to_octets(), &mut out);
        self.entries.iter().for_each(|entry| emit_part(&entry.to_octets(), &mut out));
        out
    }

    /// Parses one. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        whole(octets, |r| {
            let head = TreeHead::parse(read_part(r, TreeHead::OCTETS_MAX, "tree head")?)?;
            let mut entries = Vec::new();
            while !r.is_empty() {
                let too_many = r.error(DecodeErrorKind::TooMany, "key entries");
                if entries.len() as u64 >= head.size {
                    return Err(too_many);
                }
                entries.push(KeyEntry::parse(read_part(r, KeyEntry::OCTETS_MAX, "key entry")?)?);
            }
            Ok(Self { head, entries })
        })
    }

    /// As a witness with the key `signing`, which has signed `before`: signs it. Errors: [`LogError`], also if it does not extend that.
    pub fn cosign(
        &self,
        before: Option<&Self>,
        broker_key: VerifyingKey,
        signing: SigningKey,
    ) -> Result<Cosignature, LogError> {
        let mut witness = Witness::new(self.head.broker.clone(), broker_key, signing);
        let mut known = 0;
        if let Some(before) = before {
            witness.cosign(&before.head, &before.entries)?;
            known = before.entries.len();
        }
        witness.cosign(&self.head, self.entries.get(known..).unwrap_or_default())
    }
}

impl Cosignature {
    /// Its octets: the witness's key and the signature. `None` if the first name no key.
    pub fn from_octets(octets: &[u8; 96]) -> Option<Self> {
        let (key, signature) = octets.split_first_chunk::<32>()?;
        let witness = VerifyingKey::from_octets(*key)?;
        Some(Self { witness, signature: Signature(signature.try_into().ok()?) })
    }

    /// Whether the witness has signed this head.
    pub fn is_over(&self, head: &TreeHead) -> bool {
        self.witness.verifies(Signed::Cosignature, &head.signed_octets(), &self.signature)
    }
}

/// A witness: it follows a broker's log and signs what extends it.
#[derive(Debug)]
pub struct Witness {
    log: KeyLog,
    broker_key: VerifyingKey,
    signing: SigningKey,
}

impl Witness {
    /// Of the broker that signs with `broker_key`.
    pub const fn new(broker: Domain, broker_key: VerifyingKey, signing: SigningKey) -> Self {
        Self { log: KeyLog::new(broker), broker_key, signing }
    }

    /// Signs a head, given the entries that are new since the last. Errors: [`LogError`]; then nothing changes.
    pub fn cosign(&mut self, head: &TreeHead, new: &[KeyEntry]) -> Result<Cosignature, LogError> {
        if head.broker != self.log.broker {
            return Err(LogError::OtherBroker);
        }
        if !head.is_signed_by(&self.broker_key) {
            return Err(LogError::BrokerSignature);
        }
        let mut log = self.log.clone();
        new.iter().try_for_each(|entry| log.append(entry.clone()))?;
        if (log.leaves.len() as u64, root(&log.leaves)) != (head.size, head.root) {
            return Err(LogError::Forked);
        }
        self.log = log;
        let signature = self.signing.sign(Signed::Cosignature, &head.signed_octets());
        Ok(Cosignature { witness: self.signing.verifying_key(), signature })
    }
}

/// Which broker, and whose word on its log, an operator believes.
#[derive(Clone, Debug)]
pub struct LogTrust {
    /// Domain of the broker.
    pub broker: Domain,
    /// Key under which the broker signs.
    pub broker_key: VerifyingKey,
    /// Keys of the witnesses.
    pub witnesses: Vec<VerifyingKey>,
    /// How many of them must have signed: more than half, so that two forks cannot both have them.
    pub quorum: usize,
}

impl LogTrust {
    /// Of more than half of `witnesses`. `None` without witnesses, or with one named twice or more than the bound.
    pub fn new(broker: Domain, broker_key: VerifyingKey, witnesses: Vec<VerifyingKey>) -> Option<Self> {
        let distinct: BTreeSet<_> = witnesses.iter().map(VerifyingKey::octets).collect();
        let fits = (1..=LogProof::COSIGNATURES_MAX).contains(&witnesses.len());
        let quorum = witnesses.len() / 2 + 1;
        (fits && distinct.len() == witnesses.len()).then_some(Self { broker, broker_key, witnesses, quorum })
    }
}

impl LogTrust {
    /// Whether enough witnesses have signed these octets as what `kind` says.
    pub(crate) fn check_witnesses(
        &self,
        kind: Signed,
        octets: &[u8],
        cosignatures: &[Cosignature],
    ) -> Result<(), LogError> {
        let is_signed = |witness: &&VerifyingKey| {
            let own = |c: &Cosignature| c.witness == **witness;
            cosignatures.iter().any(|c| own(c) && witness.verifies(kind, octets, &c.signature))
        };
        let signed = self.witnesses.iter().filter(is_signed).count();
        if signed < self.quorum { Err(LogError::TooFewWitnesses) } else { Ok(()) }
    }
}

/// The last head that an operator has seen. Plain data; store it with the wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenHead {
    /// Number of leaves.
    pub size: u64,
    /// Root of the tree.
    pub root: Hash,
}

impl SeenHead {
    /// Before the first.
    pub const NONE: Self = Self { size: 0, root: [0; 32] };

    /// Checks a proof, and moves on to its head. Gives the key's entry. Errors: [`LogError`]; then nothing changes.
    pub fn advance(&mut self, proof: &LogProof, trust: &LogTrust) -> Result<KeyEntry, LogError> {
        let LogProof { head, cosignatures, consistency, entry, inclusion } = proof;
        if head.broker != trust.broker || entry.broker != trust.broker {
            return Err(LogError::OtherBroker);
        }
        if !head.is_signed_by(&trust.broker_key) {
            return Err(LogError::BrokerSignature);
        }
        if !verify_consistency((self.size, &self.root), (head.size, &head.root), consistency) {
            return Err(LogError::Forked);
        }
        trust.check_witnesses(Signed::Cosignature, &head.signed_octets(), cosignatures)?;
        if !verify_inclusion(entry.leaf(), entry.epoch.into(), head.size, inclusion, &head.root) {
            return Err(LogError::NotIncluded);
        }
        *self = Self { size: head.size, root: head.root };
        Ok(entry.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(n: usize) -> Vec<Hash> {
        (0..n).map(|i| hash(&[&[0], &[i as u8]])).collect()
    }

    #[test] // RFC 6962 §2.1: the hashes of the tree of seven leaves of §2.1.3, spelt out
    fn the_tree_is_that_of_rfc_6962() {
        let l = leaves(7);
        let (g, h, i, j) = (node(&l[0], &l[1]), node(&l[2], &l[3]), node(&l[4], &l[5]), l[6]);
        let (k, m) = (node(&g, &h), node(&i, &j));
        assert_eq!(root(&l), node(&k, &m));
        assert_eq!(inclusion(0, &l), [l[1], h, m]);
        assert_eq!(inclusion(3, &l), [l[2], g, m]);
        assert_eq!(inclusion(4, &l), [l[5], j, k]);
        assert_eq!(inclusion(6, &l), [i, k]);
        assert_eq!(consistency(3, &l, true), [l[2], l[3], g, m]);
        assert_eq!(consistency(4, &l, true), [m]);
        assert_eq!(consistency(6, &l, true), [i, j, k]);
        assert_eq!(root(&[]), hash(&[]));
    }

    #[test]
    fn every_leaf_and_every_growth_is_proven_and_no_altered_proof_is_accepted() {
        for n in 1..=17 {
            let l = leaves(n);
            let top = root(&l);
            for i in 0..n {
                let path = inclusion(i, &l);
                assert!(verify_inclusion(l[i], i as u64, n as u64, &path, &top));
                for j in 0..n {
                    let other = verify_inclusion(l[j], i as u64, n as u64, &path, &top);
                    let moved = verify_inclusion(l[i], j as u64, n as u64, &path, &top);
                    assert_eq!((other, moved), (i == j, i == j), "{i} {j} of {n}");
                }
                for at in 0..path.len() {
                    let mut altered = path.clone();
                    altered[at][0] ^= 1;
                    assert!(!verify_inclusion(l[i], i as u64, n as u64, &altered, &top));
                    altered.remove(at);
                    assert!(!verify_inclusion(l[i], i as u64, n as u64, &altered, &top));
                }
                assert!(!verify_inclusion(l[i], n as u64, n as u64, &path, &top));
            }
            for m in 1..=n {
                let (old, path) = (root(&l[..m]), consistency(m, &l, true));
                let holds = |old: &Hash, new: &Hash, path: &[Hash]| {
                    verify_consistency((m as u64, old), (n as u64, new), path)
                };
                assert!(holds(&old, &top, &path), "{m} of {n}");
                assert!(!holds(&hash(&[b"other"]), &top, &path));
                assert!(!holds(&old, &hash(&[b"other"]), &path));
                for at in 0..path.len() {
                    let mut altered = path.clone();
                    altered[at][0] ^= 1;
                    assert!(!holds(&old, &top, &altered));
                    altered.remove(at);
                    assert!(!holds(&old, &top, &altered));
                }
                assert!(!holds(&old, &top, &[&path[..], &[top]].concat()));
            }
        }
    }
}
