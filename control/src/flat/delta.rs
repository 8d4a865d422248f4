//! The difference between two checkpoints.

use serde::{Deserialize, Serialize};

use super::checkpoint::Checkpoint;
use super::{CRC, Flat, FlatError, Form, FrameWriter, HEAD, ReceivedFrame};
use crate::envelope::UeId;

/// Version of the form; it is increased with every change.
pub(super) const VERSION: u16 = 1;

/// Length of an anchor: octets that must match for two positions to be aligned.
const ANCHOR: usize = size_of::<u64>();
/// Search windows, tried in turn: most changes are of a number, and insertions, as a key or a session's tunnel, are
/// shorter than the last window.
const WINDOWS: [usize; 2] = [16, 96];

/// The edits from one checkpoint of a UE to a later one. They work on octets, and so for any version, if both
/// checkpoints have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    flat: Flat,
    head: DeltaHead,
    /// Offset of the edits in the frame.
    edits: usize,
}

/// The checkpoints between which it leads. The CRCs distinguish them from others with the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DeltaHead {
    ue: UeId,
    from: (u64, u32),
    to: (u64, u32),
}

/// One edit: octets copied from the base, then octets skipped, then octets inserted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Edit<'a> {
    pub(super) kept: u32,
    pub(super) dropped: u32,
    #[serde(borrow)]
    pub(super) added: &'a [u8],
}

/// Decodes edits one by one: their number, then each edit.
pub(super) struct Edits<'a> {
    left: u32,
    octets: &'a [u8],
}

impl<'a> Edits<'a> {
    pub(super) fn of(octets: &'a [u8]) -> Result<Self, FlatError> {
        let (left, octets) = postcard::take_from_bytes(octets).map_err(|_| FlatError::Malformed)?;
        Ok(Self { left, octets })
    }
}

impl<'a> Iterator for Edits<'a> {
    type Item = Result<Edit<'a>, FlatError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = postcard::take_from_bytes(self.octets);
        Some(read.map_err(|_| FlatError::Malformed).map(|(edit, octets)| {
            self.octets = octets;
            edit
        }))
    }
}

impl Delta {
    /// The delta from `base` to `next`. `None` if `next` itself is no longer, or is not a later checkpoint of the same
    /// UE.
    pub fn between(base: &Checkpoint, next: &Checkpoint) -> Option<Self> {
        let (a, b) = (base.about, next.about);
        if a.ue != b.ue || a.clock >= b.clock {
            return None;
        }
        let ((old, from), (new, to)) = (split(base.octets())?, split(next.octets())?);
        let head = DeltaHead { ue: a.ue, from: (a.clock, from), to: (b.clock, to) };
        let mut frame = FrameWriter::begin(Form::Delta, VERSION, new.len() / 4);
        frame.value(&head);
        let at = frame.0.len();
        frame.value(&edits(old, new));
        if frame.0.len() + CRC >= next.octets().len() {
            return None;
        }
        Some(Self { flat: frame.end(), head, edits: at })
    }

    /// Takes a delta from its octets.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`] and [`FlatError::Contradiction`].
    pub fn from_octets(octets: &[u8]) -> Result<Self, FlatError> {
        let frame = ReceivedFrame::open(Form::Delta, octets)?;
        if frame.version != VERSION {
            return Err(FlatError::UnknownVersion(frame.version));
        }
        let (head, rest) =
            postcard::take_from_bytes::<DeltaHead>(frame.body).map_err(|_| FlatError::Malformed)?;
        head.ue.check()?;
        let mut edits = Edits::of(rest)?;
        edits.try_for_each(|edit| edit.map(drop))?;
        if !edits.octets.is_empty() {
            return Err(FlatError::Malformed);
        }
        Ok(Self { flat: Flat(octets.into()), head, edits: HEAD + frame.body.len() - rest.len() })
    }

    /// Its octets. They may hold keys.
    pub fn octets(&self) -> &[u8] {
        self.flat.octets()
    }

    /// The frame with the delta in it.
    pub fn into_flat(self) -> Flat {
        self.flat
    }

    /// The UE of the delta.
    pub fn ue_id(&self) -> UeId {
        self.head.ue
    }

    /// Clock of the base.
    pub fn base_clock(&self) -> u64 {
        self.head.from.0
    }

    /// Clock of the result.
    pub fn clock(&self) -> u64 {
        self.head.to.0
    }

    /// Applies it to a base.
    ///
    /// Errors: [`FlatError::OtherBase`] unless `base` is the checkpoint that it was made from;
    /// [`FlatError::Damaged`] if the CRC of the result is wrong.
    pub fn apply(&self, base: &Checkpoint) -> Result<Checkpoint, FlatError> {
        let (old, crc) = split(base.octets()).ok_or(FlatError::OtherBase)?;
        if base.about.ue != self.head.ue || (base.about.clock, crc) != self.head.from {
            return Err(FlatError::OtherBase);
        }
        let (frame, _) = split(self.octets()).ok_or(FlatError::Malformed)?;
        let edits = Edits::of(frame.get(self.edits..).ok_or(FlatError::Malformed)?)?;
        let mut to = FrameWriter::empty();
        to.reserve(old.len() + frame.len() + CRC);
        edit(old, edits, &mut to)?;
        // The CRC proves the result, so it is not checked further.
        let flat = to.end();
        if split(flat.octets()).map(|(_, crc)| crc) != Some(self.head.to.1) {
            return Err(FlatError::Damaged);
        }
        let next = Checkpoint::from_made(flat)?;
        if (next.about.ue, next.about.clock) != (self.head.ue, self.head.to.0) {
            return Err(FlatError::Damaged);
        }
        Ok(next)
    }
}

/// A checkpoint split into body and CRC.
fn split(octets: &[u8]) -> Option<(&[u8], u32)> {
    octets.split_last_chunk::<CRC>().map(|(framed, crc)| (framed, u32::from_be_bytes(*crc)))
}

/// Writes the result of edits on `old`.
pub(super) fn edit<'a>(
    mut old: &[u8],
    edits: impl IntoIterator<Item = Result<Edit<'a>, FlatError>>,
    to: &mut FrameWriter,
) -> Result<(), FlatError> {
    for edit in edits {
        let edit = edit?;
        let kept = old.split_off(..edit.kept as usize).ok_or(FlatError::Malformed)?;
        old.split_off(..edit.dropped as usize).ok_or(FlatError::Malformed)?;
        to.extend(kept);
        to.extend(edit.added);
    }
    to.extend(old);
    Ok(())
}

/// The edits that turn `old` into `new`, found in one pass from the front: moved octets count as removed and inserted.
/// A common suffix needs no edit.
pub(super) fn edits<'a>(old: &[u8], new: &'a [u8]) -> Vec<Edit<'a>> {
    let same = same_at_the_end(old, new);
    let (mut old, mut new) = (&old[..old.len() - same], &new[..new.len() - same]);
    let mut edits = Vec::with_capacity(EDITS);
    loop {
        let kept = same_from_the_start(old, new);
        (old, new) = (&old[kept..], &new[kept..]);
        if old.is_empty() && new.is_empty() {
            return edits;
        }
        let resumed = WINDOWS.into_iter().find_map(|window| resumed(old, new, window));
        let (dropped, added) = resumed.unwrap_or((old.len(), new.len()));
        edits.push(Edit { kept: kept as u32, dropped: dropped as u32, added: &new[..added] });
        (old, new) = (&old[dropped..], &new[added..]);
    }
}

/// About the number of edits of most procedures.
const EDITS: usize = 16;

/// Length of the common prefix, compared in words.
fn same_from_the_start(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_chunks::<ANCHOR>().0.iter().zip(b.as_chunks::<ANCHOR>().0);
    let from = ANCHOR * words.take_while(|(a, b)| a == b).count();
    from + a[from..].iter().zip(&b[from..]).take_while(|(a, b)| a == b).count()
}

/// Length of the common suffix.
fn same_at_the_end(a: &[u8], b: &[u8]) -> usize {
    let words = a.as_rchunks::<ANCHOR>().1.iter().rev().zip(b.as_rchunks::<ANCHOR>().1.iter().rev());
    let from = ANCHOR * words.take_while(|(a, b)| a == b).count();
    let rest = |octets: &'_ [u8]| octets.len() - from;
    let octets = a[..rest(a)].iter().rev().zip(b[..rest(b)].iter().rev());
    from + octets.take_while(|(a, b)| a == b).count()
}

/// The nearest offsets in `old` and `new` at which the two match again, within a window.
fn resumed(old: &[u8], new: &[u8], window: usize) -> Option<(usize, usize)> {
    let mut places = [NOWHERE; 1 << HASH_BITS];
    for (place, anchor) in anchors(old, window).enumerate().rev() {
        places[hash(anchor)] = place as u8; // of two with one hash, the nearer
    }
    let mut best: Option<(usize, usize)> = None;
    for (added, anchor) in anchors(new, window).enumerate() {
        let near = |far: usize| best.is_none_or(|(d, a)| far < d + a);
        if !near(added) {
            break;
        }
        let dropped = usize::from(places[hash(anchor)]);
        if near(dropped + added)
            && old.get(dropped..dropped + ANCHOR).is_some_and(|o| *o == anchor.to_le_bytes())
        {
            best = Some((dropped, added));
        }
    }
    best
}

/// Several times the number of positions in a window.
const HASH_BITS: u32 = 8;
/// Beyond every window.
const NOWHERE: u8 = u8::MAX;

/// The anchors at each position of a window.
fn anchors(octets: &[u8], window: usize) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator {
    let octets = &octets[..octets.len().min(window + ANCHOR - 1)];
    octets.windows(ANCHOR).map(|anchor| anchor.first_chunk().map_or(0, |anchor| u64::from_le_bytes(*anchor)))
}

fn hash(anchor: u64) -> usize {
    (anchor.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HASH_BITS)) as usize
}
