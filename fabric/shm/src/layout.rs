//! The place of each word of a pool.

/// Functions of a unit at a time, at most: two CTAs, a UPF, and CPFs, twice as many while they are upgraded.
pub const FUNCTIONS: usize = 16;
/// Descriptors of a ring: what a busy turn sends to one function. More waits at the sender.
pub const RING: usize = 256;
/// Words of a block: 2 KiB, in which nearly every message fits (a UE's checkpoint has some 1,100 octets).
const BLOCK_WORDS: usize = 256;
/// Words that processors share as one line, and words of a page.
const LINE: usize = 8;
const PAGE: usize = 512;

/// The form of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of functions with an area.
    pub functions: usize,
    /// Descriptors of a ring, a power of two.
    pub ring: usize,
    /// Words of a block.
    pub block_words: usize,
    /// Words between what different processes write.
    pub line: usize,
    /// Areas begin at a multiple of so many words.
    pub page: usize,
    /// Words of an area: its control words, these and its descriptors, all. They are computed once: a message's way takes a dozen
    /// places, and a division for each would take longer than the copy of the message.
    control_words: usize,
    slab_begins: usize,
    area_words: usize,
}

impl Layout {
    /// The form of every pool that [`create`](crate::create) makes.
    pub const POOL: Self = Self::new(FUNCTIONS, RING, BLOCK_WORDS, LINE, PAGE);

    /// `ring` is a power of two.
    pub(crate) const fn new(
        functions: usize,
        ring: usize,
        block_words: usize,
        line: usize,
        page: usize,
    ) -> Self {
        assert!(ring.is_power_of_two());
        let control_words = ((3 + 3 * functions) * line).next_multiple_of(page);
        let slab_begins = control_words + (2 * functions * ring).next_multiple_of(page);
        let area_words = (slab_begins + functions * ring * block_words).next_multiple_of(page);
        Self { functions, ring, block_words, line, page, control_words, slab_begins, area_words }
    }

    /// Octets of a block.
    pub const fn block_octets(&self) -> usize {
        8 * self.block_words
    }

    /// Blocks of an area: as many as its rings have descriptors.
    pub(crate) const fn blocks(&self) -> usize {
        self.functions * self.ring
    }

    /// Words of an area.
    pub const fn area_words(&self) -> usize {
        self.area_words
    }

    /// Words of a pool.
    pub const fn words(&self) -> usize {
        self.page + self.functions * self.area_words()
    }

    /// The first word of a function's area.
    pub const fn area(&self, of: usize) -> usize {
        self.page + of * self.area_words()
    }

    /// Counts the processes that have had the area.
    pub(crate) const fn owner(&self, of: usize) -> usize {
        self.area(of)
    }

    /// The last generation of a ring of this area.
    pub(crate) const fn generation(&self, of: usize) -> usize {
        self.area(of) + self.line
    }

    /// Odd while the function sleeps; another number each time.
    pub(crate) const fn sleep(&self, of: usize) -> usize {
        self.area(of) + 2 * self.line
    }

    /// Of the ring from `of` to `to`: generation, and how many descriptors were ever written.
    pub(crate) const fn head(&self, of: usize, to: usize) -> usize {
        self.area(of) + (3 + 3 * to) * self.line
    }

    /// Of the ring from `from` to `of`: generation, and how many descriptors were ever read.
    pub(crate) const fn tail(&self, of: usize, from: usize) -> usize {
        self.area(of) + (4 + 3 * from) * self.line
    }

    /// The generation of the ring from `of` to `to` while more waits than it holds.
    pub(crate) const fn blocked(&self, of: usize, to: usize) -> usize {
        self.area(of) + (5 + 3 * to) * self.line
    }

    /// The place in its ring of a descriptor that was so often preceded by others.
    pub(crate) const fn slot(&self, index: u32) -> usize {
        index as usize & (self.ring - 1)
    }

    /// The first of the two words of a descriptor.
    pub(crate) const fn descriptor(&self, of: usize, to: usize, index: u32) -> usize {
        let at = to * self.ring + self.slot(index);
        self.area(of) + self.control_words + 2 * at
    }

    /// The first word of an area's blocks.
    pub(crate) const fn slab(&self, of: usize) -> usize {
        self.area(of) + self.slab_begins
    }
}
