//! What became of a checkpoint, against the one before it.

use serde::{Deserialize, Serialize};

use super::checkpoint::Checkpoint;
use super::{CRC, Flat, FlatError, Form, Frame, Writer, read};
use crate::envelope::PhoneId;

/// Version of the form: another number with every change of it.
pub(super) const VERSION: u16 = 1;

/// Octets that must agree for two places to be taken as the same.
const ANCHOR: usize = size_of::<u64>();
/// How far apart two places may be: what is put in or taken out at once, a key or a session's tunnel, is shorter.
const WINDOW: usize = 96;

/// The step from one checkpoint of a phone to a later one. It says which octets differ, and so holds for checkpoints of
/// any version, as long as both are of the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    flat: Flat,
    head: Head,
}

/// Between which checkpoints it leads. The CRCs tell them from others of the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    phone: PhoneId,
    from: (u64, u32),
    to: (u64, u32),
}

/// The octets that are kept of the base, those that are dropped then, and those that come in their place.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Edit<'a> {
    kept: u32,
    dropped: u32,
    #[serde(borrow)]
    added: &'a [u8],
}

impl Delta {
    /// The step from `base` to `next`. `None` where `next` itself is no longer than that, or is not a later checkpoint of
    /// the same phone.
    pub fn between(base: &Checkpoint, next: &Checkpoint) -> Option<Self> {
        let (a, b) = (base.about, next.about);
        if a.phone != b.phone || a.clock >= b.clock {
            return None;
        }
        let ((old, from), (new, to)) = (split(base.octets())?, split(next.octets())?);
        let head = Head { phone: a.phone, from: (a.clock, from), to: (b.clock, to) };
        let flat = Writer::frame(Form::Delta, VERSION, new.len() / 4, &(head, edits(old, new)));
        (flat.octets().len() < next.octets().len()).then_some(Self { flat, head })
    }

    /// Takes a delta from its octets.
    ///
    /// Errors: each [`FlatError`] but [`FlatError::OtherBase`] and [`FlatError::Contradiction`].
    pub fn from_octets(octets: &[u8]) -> Result<Self, FlatError> {
        let frame = Frame::open(Form::Delta, octets)?;
        if frame.version != VERSION {
            return Err(FlatError::UnknownVersion(frame.version));
        }
        let (head, _edits): (Head, Vec<Edit<'_>>) = read(frame.body)?;
        head.phone.check()?;
        Ok(Self { flat: Flat(octets.into()), head })
    }

    /// Its octets. They may hold keys.
    pub fn octets(&self) -> &[u8] {
        self.flat.octets()
    }

    /// Whose it is.
    pub fn phone_id(&self) -> PhoneId {
        self.head.phone
    }

    /// Clock of the checkpoint that it begins at.
    pub fn base_clock(&self) -> u64 {
        self.head.from.0
    }

    /// Clock of the checkpoint that it leads to.
    pub fn clock(&self) -> u64 {
        self.head.to.0
    }

    /// The checkpoint that it leads to.
    ///
    /// Errors: [`FlatError::OtherBase`] unless `base` is the very checkpoint that it was made from;
    /// [`FlatError::Damaged`] where the two do not make what was meant.
    pub fn apply(&self, base: &Checkpoint) -> Result<Checkpoint, FlatError> {
        let (old, crc) = split(base.octets()).ok_or(FlatError::OtherBase)?;
        if base.about.phone != self.head.phone || (base.about.clock, crc) != self.head.from {
            return Err(FlatError::OtherBase);
        }
        let frame = Frame::open(Form::Delta, self.octets())?;
        let (_, edits): (Head, Vec<Edit<'_>>) = read(frame.body)?;
        let mut to = Writer(Vec::with_capacity(old.len() + self.octets().len()));
        edit(old, &edits, &mut to)?;
        let next = Checkpoint::from_flat(to.end())?;
        let made = split(next.octets()).map(|(_, crc)| crc);
        if (next.about.phone, next.about.clock, made)
            != (self.head.phone, self.head.to.0, Some(self.head.to.1))
        {
            return Err(FlatError::Damaged);
        }
        Ok(next)
    }
}

/// A checkpoint without its CRC, and that.
fn split(octets: &[u8]) -> Option<(&[u8], u32)> {
    octets.split_last_chunk::<CRC>().map(|(framed, crc)| (framed, u32::from_be_bytes(*crc)))
}

/// Writes what edits make of `old`.
pub(super) fn edit(mut old: &[u8], edits: &[Edit<'_>], to: &mut Writer) -> Result<(), FlatError> {
    for edit in edits {
        let kept = old.split_off(..edit.kept as usize).ok_or(FlatError::Malformed)?;
        old.split_off(..edit.dropped as usize).ok_or(FlatError::Malformed)?;
        to.extend(kept);
        to.extend(edit.added);
    }
    to.extend(old);
    Ok(())
}

/// What makes `new` of `old`: read once from the front, so that what moved counts as dropped and added. What both end
/// with needs no edit.
pub(super) fn edits<'a>(old: &[u8], new: &'a [u8]) -> Vec<Edit<'a>> {
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - same], &new[..new.len() - same]);
    let (places, anchors) = (Places::of(old), anchors(new));
    let (mut at, mut to) = (0, 0);
    let mut edits = Vec::new();
    loop {
        let kept = old[at..].iter().zip(&new[to..]).take_while(|(a, b)| a == b).count();
        (at, to) = (at + kept, to + kept);
        if at == old.len() && to == new.len() {
            return edits;
        }
        let resumed = places.nearest(at, anchors.get(to..).unwrap_or_default());
        let (dropped, added) = resumed.unwrap_or((old.len() - at, new.len() - to));
        edits.push(Edit { kept: kept as u32, dropped: dropped as u32, added: &new[to..to + added] });
        (at, to) = (at + dropped, to + added);
    }
}

/// The octets from each place on, as many as must agree.
fn anchors(octets: &[u8]) -> Vec<u64> {
    let number = |o: &[u8]| o.iter().fold(0, |n, o| n << 8 | u64::from(*o));
    let mut last = octets.get(..ANCHOR - 1).map_or(0, number);
    let next = |o: &u8| {
        last = last << 8 | u64::from(*o);
        last
    };
    octets.get(ANCHOR - 1..).unwrap_or_default().iter().map(next).collect()
}

/// Where in a string of octets each anchor is.
struct Places {
    anchors: Vec<u64>,
    /// The first place of the anchors of one hash, and to each place the next; [`NOWHERE`] ends the chain.
    first: [u32; 1 << HASH_BITS],
    next: Vec<u32>,
}

/// About twice as many hashes as a checkpoint has octets.
const HASH_BITS: u32 = 10;
const NOWHERE: u32 = u32::MAX;

impl Places {
    fn of(octets: &[u8]) -> Self {
        let anchors = anchors(octets);
        let mut places =
            Self { first: [NOWHERE; 1 << HASH_BITS], next: vec![NOWHERE; anchors.len()], anchors };
        for (place, anchor) in places.anchors.iter().enumerate().rev() {
            let first = &mut places.first[hash(*anchor)];
            places.next[place] = std::mem::replace(first, place as u32);
        }
        places
    }

    /// How far from `at`, and how far into `anchors`, the two strings are the same again; the nearest such place.
    fn nearest(&self, at: usize, anchors: &[u64]) -> Option<(usize, usize)> {
        let mut best: Option<(usize, usize)> = None;
        for (added, anchor) in anchors.iter().take(WINDOW).enumerate() {
            if best.is_some_and(|(d, a)| d + a <= added) {
                break;
            }
            let mut place = self.first[hash(*anchor)] as usize;
            while let Some(next) = self.next.get(place)
                && place < at + WINDOW
            {
                if place >= at && self.anchors[place] == *anchor {
                    let near = (place - at, added);
                    best = Some(best.filter(|(d, a)| d + a <= near.0 + near.1).unwrap_or(near));
                    break;
                }
                place = *next as usize;
            }
        }
        best
    }
}

fn hash(anchor: u64) -> usize {
    (anchor.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - HASH_BITS)) as usize
}
