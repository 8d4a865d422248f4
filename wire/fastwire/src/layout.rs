//! The positions of a table's fields.

/// Which of the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// FlatBuffers as every reader of it expects.
    Plain,
    /// Alternatives of unions with a single value have no table.
    SingleValue,
}

/// What a field is to the table that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// A number of this many octets (1, 2, 4 or 8); absent, it reads as zero.
    Scalar(u16),
    /// A struct of `size` octets.
    Struct {
        /// A multiple of `align`.
        size: u16,
        /// 1, 2, 4 or 8.
        align: u16,
    },
    /// The offset of a vector or string.
    Vector,
    /// The offset of a table.
    Table,
    /// A union: an octet that names the alternative, and an offset.
    Union,
}

impl Inline {
    /// How many slots of the vtable it takes.
    pub const fn slots(self) -> usize {
        match self {
            Inline::Union => 2,
            _ => 1,
        }
    }

    /// How many octets it takes in the table, or in a vector.
    pub const fn size(self) -> u16 {
        match self {
            Inline::Scalar(size) | Inline::Struct { size, .. } => size,
            Inline::Vector | Inline::Table | Inline::Union => 4,
        }
    }

    /// What its position is a multiple of.
    pub const fn align(self) -> u16 {
        match self {
            Inline::Scalar(size) => size,
            Inline::Struct { align, .. } => align,
            Inline::Vector | Inline::Table | Inline::Union => 4,
        }
    }
}

/// The place of a field in the octets: of its value, and of the octet that names the alternative if it is a union.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Of the value.
    pub at: usize,
    /// Of the name of the alternative.
    pub tag: usize,
}

/// The layout of one table: which of its `N` slots are present, and their positions. Fields are to be added by falling
/// alignment (8, 4, 2, 1), so that no octet is lost between them.
#[derive(Clone, Debug)]
pub struct Plan<const N: usize> {
    /// As in the vtable: offsets from the start of the table.
    pub(crate) entries: [[u8; 2]; N],
    /// How many of them are needed.
    pub(crate) used: usize,
    /// How many octets the table has.
    pub(crate) size: u16,
    /// Whether some field wants a multiple of eight.
    pub(crate) wide: bool,
}

impl<const N: usize> Default for Plan<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Plan<N> {
    /// A table without fields: the offset of its vtable alone.
    #[inline]
    pub const fn new() -> Self {
        Self { entries: [[0; 2]; N], used: 0, size: 4, wide: false }
    }

    /// Adds the parts of a field that want this alignment: the passes for 8, 4, 2 and 1 together add it whole.
    #[inline]
    pub const fn add(&mut self, slot: usize, field: Inline, align: u16) {
        match field {
            Inline::Union if align == 4 => self.place(slot + 1, 4),
            Inline::Union if align == 1 => self.place(slot, 1),
            Inline::Union => {}
            _ if field.align() == align => {
                self.wide |= align == 8;
                self.place(slot, field.size());
            }
            _ => {}
        }
    }

    /// Adds a field of a table that has no other.
    #[inline]
    pub const fn add_only(&mut self, field: Inline) {
        self.add(0, field, 8);
        self.add(0, field, 4);
        self.add(0, field, 2);
        self.add(0, field, 1);
    }

    #[inline]
    const fn place(&mut self, slot: usize, size: u16) {
        self.entries[slot] = self.size.to_le_bytes();
        self.size += size;
        if self.used <= slot {
            self.used = slot + 1;
        }
    }

    /// The position of a field in the table that begins at `table`.
    #[inline]
    pub const fn spot(&self, table: usize, slot: usize, field: Inline) -> Spot {
        let first = table + u16::from_le_bytes(self.entries[slot]) as usize;
        match field {
            Inline::Union => {
                Spot { tag: first, at: table + u16::from_le_bytes(self.entries[slot + 1]) as usize }
            }
            _ => Spot { at: first, tag: 0 },
        }
    }
}
