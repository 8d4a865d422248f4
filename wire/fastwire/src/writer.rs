//! Writes front to back: a table before the objects to which it points, so that octets are appended and never moved.

use crate::layout::{Form, Inline, Plan, Spot};

/// How many vtables are remembered, to be shared by tables of the same shape. A message has about ten; beyond the
/// bound a vtable may be written twice.
const VTABLES_KEPT: usize = 24;

/// Appends one root table, and what hangs on it, to a vector of octets.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Where the buffer begins in `out`.
    base: usize,
    form: Form,
    vtables: [u32; VTABLES_KEPT],
    kept: usize,
}

impl<'a> Writer<'a> {
    /// Begins a buffer after what `out` already holds: the offset of the root, to be set by the first table.
    pub fn new(out: &'a mut Vec<u8>, form: Form) -> Self {
        let base = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, base, form, vtables: [0; VTABLES_KEPT], kept: 0 }
    }

    /// The form that unions take.
    #[inline]
    pub fn form(&self) -> Form {
        self.form
    }

    /// The place of the offset of the root table.
    #[inline]
    pub fn root(&self) -> Spot {
        Spot { at: self.base, tag: 0 }
    }

    /// Pads until the next octet is `ahead` octets before a multiple of `align`, a power of two.
    #[inline]
    fn pad(&mut self, ahead: usize, align: usize) {
        let at = self.out.len() - self.base + ahead;
        let short = at.wrapping_neg() & (align - 1);
        self.out.extend_from_slice(&[0; 8][..short & 7]);
    }

    /// Sets the offset at `spot` to the next appended object.
    #[inline]
    fn point(&mut self, spot: Spot) {
        let distance = (self.out.len() - spot.at) as u32;
        self.out[spot.at..spot.at + 4].copy_from_slice(&distance.to_le_bytes());
    }

    /// Appends a table of this layout, its fields zero, and sets the offset at `spot` to it. Gives its position.
    pub fn table<const N: usize>(&mut self, spot: Spot, plan: &Plan<N>) -> usize {
        let entries = plan.entries[..plan.used].as_flattened();
        let [a, b] = (entries.len() as u16 + 4).to_le_bytes();
        let [c, d] = plan.size.to_le_bytes();
        let head = [a, b, c, d];
        let known = self.vtables[..self.kept].iter().map(|at| *at as usize).find(|at| {
            let vtable = &self.out[*at..];
            vtable.starts_with(&head) && vtable[4..].starts_with(entries)
        });
        // A field of eight octets follows the four of the vtable's offset.
        let (ahead, align) = if plan.wide { (4, 8) } else { (0, 4) };
        let vtable = known.unwrap_or_else(|| {
            // No padding between the two: the vtable's length is even, as its own alignment asks.
            self.pad(ahead + 4 + entries.len(), align);
            let at = self.out.len();
            self.out.extend_from_slice(&head);
            self.out.extend_from_slice(entries);
            if self.kept < VTABLES_KEPT {
                self.vtables[self.kept] = at as u32;
                self.kept += 1;
            }
            at
        });
        self.pad(ahead, align);
        self.point(spot);
        let at = self.out.len();
        self.out.extend_from_slice(&((at - vtable) as u32).to_le_bytes());
        self.out.resize(at + usize::from(plan.size), 0);
        at
    }

    /// Appends a vector of `n` items whose octets are yet zero, and sets the offset at `spot` to it. Gives the
    /// position of the first item.
    pub fn vector(&mut self, spot: Spot, n: usize, item: Inline) -> usize {
        self.pad(4, usize::from(item.align()).max(4));
        self.point(spot);
        self.out.extend_from_slice(&(n as u32).to_le_bytes());
        let at = self.out.len();
        self.out.resize(at + n * usize::from(item.size()), 0);
        at
    }

    /// Appends octets as a vector, and sets the offset at `spot` to it.
    pub fn octets(&mut self, spot: Spot, v: &[u8]) {
        self.pad(0, 4);
        self.point(spot);
        self.out.extend_from_slice(&(v.len() as u32).to_le_bytes());
        self.out.extend_from_slice(v);
    }

    /// Appends a string, and sets the offset at `spot` to it.
    pub fn string(&mut self, spot: Spot, v: &str) {
        self.octets(spot, v.as_bytes());
        self.out.push(0);
    }

    /// Appends room for a value that an offset points to, and sets the offset at `spot` to it. Gives its place.
    pub fn alone(&mut self, spot: Spot, value: Inline) -> Spot {
        self.pad(0, usize::from(value.align()));
        self.point(spot);
        let at = self.out.len();
        self.out.resize(at + usize::from(value.size()), 0);
        Spot { at, tag: 0 }
    }

    /// Sets the octets of a number (least significant first) or of a struct.
    #[inline]
    pub fn put<const N: usize>(&mut self, at: usize, v: [u8; N]) {
        self.out[at..at + N].copy_from_slice(&v);
    }
}
