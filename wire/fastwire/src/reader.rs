//! Reads untrusted octets.

use std::cell::Cell;

use whimbrel_ids::{DecodeError, DecodeErrorKind};

use crate::layout::{Form, Inline};

/// A received buffer.
#[derive(Debug)]
pub struct ReceivedBuffer<'a> {
    octets: &'a [u8],
    form: Form,
    /// Total octets of the objects visited so far. No object is within another, so more than were received means that
    /// some offset leads back.
    visited: Cell<usize>,
}

impl<'a> ReceivedBuffer<'a> {
    /// What came, in the form that was agreed on.
    pub fn new(octets: &'a [u8], form: Form) -> Self {
        Self { octets, form, visited: Cell::new(0) }
    }

    /// The root table.
    ///
    /// Errors: as [`Slot::table`].
    pub fn root(&self, ie: &'static str) -> Result<Table<'_, 'a>, DecodeError> {
        self.root_slot(ie).table()
    }

    /// The place of the offset of the root table.
    pub fn root_slot(&self, ie: &'static str) -> Slot<'_, 'a> {
        Slot { of: self, octets: self.octets, at: 0, tag: 0, ie }
    }
}

/// The place of a value.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'r, 'a> {
    of: &'r ReceivedBuffer<'a>,
    octets: &'a [u8],
    at: usize,
    tag: u8,
    ie: &'static str,
}

impl<'r, 'a> Slot<'r, 'a> {
    /// The form that unions have.
    #[inline]
    pub fn form(&self) -> Form {
        self.of.form
    }

    /// Which alternative of a union this is; 0 if it is no union.
    #[inline]
    pub fn tag(&self) -> u8 {
        self.tag
    }

    /// An error of this value.
    #[cold]
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.ie, self.at)
    }

    /// The octets of a number (least significant first) or of a struct.
    ///
    /// Errors: [`DecodeError`] of kind `Truncated` beyond the end.
    #[inline]
    pub fn get<const N: usize>(&self) -> Result<[u8; N], DecodeError> {
        let octets = self.octets.get(self.at..).and_then(<[u8]>::first_chunk);
        octets.copied().ok_or_else(|| self.error(DecodeErrorKind::Truncated))
    }

    /// The target of the offset stored here; adds to the visited octets.
    fn follow(&self, octets: impl FnOnce(usize) -> Option<usize>) -> Result<usize, DecodeError> {
        let distance = u32::from_le_bytes(self.get()?) as usize;
        let at = self.at.saturating_add(distance);
        let octets = octets(at).ok_or_else(|| self.error(DecodeErrorKind::Truncated))?;
        let visited = self.of.visited.get() + octets;
        if visited > self.octets.len() {
            return Err(self.error(DecodeErrorKind::TooMany));
        }
        self.of.visited.set(visited);
        Ok(at)
    }

    /// The table that the offset here leads to.
    ///
    /// Errors: [`DecodeError`] of kind `Truncated` where an offset leads out of the buffer, `InvalidLength` for a
    /// vtable that is too short, `TooMany` where more is visited than was received.
    pub fn table(&self) -> Result<Table<'r, 'a>, DecodeError> {
        let at = self.follow(|_| Some(4))?;
        let slot = Slot { at, ..*self };
        let distance = i32::from_le_bytes(slot.get()?);
        let vtable = usize::try_from(at as i64 - i64::from(distance)).ok();
        let vtable = vtable.and_then(|v| self.octets.get(v..)).unwrap_or_default();
        let Some(&[a, b, c, d]) = vtable.first_chunk() else {
            return Err(slot.error(DecodeErrorKind::Truncated));
        };
        let [length, size] = [[a, b], [c, d]].map(|n| usize::from(u16::from_le_bytes(n)));
        if size > self.octets.len() - at {
            return Err(slot.error(DecodeErrorKind::Truncated));
        }
        let entries = vtable.get(4..length).ok_or_else(|| slot.error(DecodeErrorKind::InvalidLength))?;
        Ok(Table { slot, entries, size })
    }

    /// The octets of the vector or string that the offset here leads to, as they came.
    ///
    /// Errors: [`DecodeError`] of kind `Truncated` where they lead out of the buffer, `TooMany` as [`Slot::table`].
    pub fn octets(&self) -> Result<&'a [u8], DecodeError> {
        self.vector(1).map(|v| v.octets)
    }

    /// The text of the string that the offset here leads to.
    ///
    /// Errors: those of [`Slot::octets`]; `InvalidValue` if it is not UTF-8.
    pub fn string(&self) -> Result<&'a str, DecodeError> {
        core::str::from_utf8(self.octets()?).map_err(|_| self.error(DecodeErrorKind::InvalidValue))
    }

    /// The vector that the offset here leads to, of items of `size` octets.
    ///
    /// Errors: those of [`Slot::octets`].
    pub fn vector(&self, size: u16) -> Result<Vector<'r, 'a>, DecodeError> {
        let size = usize::from(size);
        let (mut n, mut items) = (0, &[][..]);
        let at = self.follow(|at| {
            n = u32::from_le_bytes(*self.octets.get(at..)?.first_chunk()?) as usize;
            items = self.octets.get(at + 4..)?.get(..n.checked_mul(size)?)?;
            Some(items.len() + 4)
        })?;
        Ok(Vector { slot: Slot { at: at + 4, ..*self }, octets: items, n, size })
    }

    /// The value that the offset here leads to.
    ///
    /// Errors: those of [`Slot::octets`].
    pub fn alone(&self, size: u16) -> Result<Slot<'r, 'a>, DecodeError> {
        let end = |at: usize| at.checked_add(usize::from(size)).filter(|end| *end <= self.octets.len());
        let at = self.follow(|at| end(at).map(|end| end - at))?;
        Ok(Slot { at, ..*self })
    }
}

/// A received table.
#[derive(Clone, Copy, Debug)]
pub struct Table<'r, 'a> {
    slot: Slot<'r, 'a>,
    /// The vtable without its head.
    entries: &'a [u8],
    /// How many octets the table has; all of them came.
    size: usize,
}

impl<'r, 'a> Table<'r, 'a> {
    /// The place of a field of `size` octets, if the table has it.
    ///
    /// Errors: [`DecodeError`] of kind `Truncated` for a field beyond the end of the table.
    #[inline]
    fn slot(&self, slot: usize, size: u16, ie: &'static str) -> Result<Option<Slot<'r, 'a>>, DecodeError> {
        let Some(entry) = self.entries.get(2 * slot..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
        let entry = usize::from(u16::from_le_bytes(*entry));
        let place = Slot { at: self.slot.at + entry, tag: 0, ie, ..self.slot };
        if entry != 0 && entry + usize::from(size) > self.size {
            return Err(place.error(DecodeErrorKind::Truncated));
        }
        Ok((entry != 0).then_some(place))
    }

    /// The place of a field, if the table has it; of a union, the octet that names it is in `slot`, its value in the
    /// next.
    ///
    /// Errors: [`DecodeError`] of kind `Truncated` for a field beyond the end of the table.
    #[inline]
    pub fn field(
        &self,
        slot: usize,
        of: Inline,
        ie: &'static str,
    ) -> Result<Option<Slot<'r, 'a>>, DecodeError> {
        if of != Inline::Union {
            return self.slot(slot, of.size(), ie);
        }
        let Some(name) = self.slot(slot, 1, ie)? else { return Ok(None) };
        let [tag] = name.get()?;
        let value = self.slot(slot + 1, of.size(), ie)?;
        Ok(value.filter(|_| tag != 0).map(|value| Slot { tag, ..value }))
    }

    /// What a number reads as that the table does not have.
    #[inline]
    pub fn zero(&self, ie: &'static str) -> Slot<'r, 'a> {
        Slot { octets: &[0; 8], at: 0, tag: 0, ie, ..self.slot }
    }

    /// An error of this table: of a field that it lacks.
    #[cold]
    pub fn missing(&self, ie: &'static str) -> DecodeError {
        DecodeError::new(DecodeErrorKind::MissingMandatory, ie, self.slot.at)
    }
}

/// A received vector.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'r, 'a> {
    slot: Slot<'r, 'a>,
    octets: &'a [u8],
    n: usize,
    size: usize,
}

impl<'r, 'a> Vector<'r, 'a> {
    /// How many items it has.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The places of the items.
    pub fn iter(&self) -> impl Iterator<Item = Slot<'r, 'a>> + use<'r, 'a> {
        let Self { slot, n, size, .. } = *self;
        (0..n).map(move |i| Slot { at: slot.at + i * size, ..slot })
    }
}
