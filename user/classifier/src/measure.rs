//! The packed form of rules and keys, for the classifiers that `programs/bench/` compares with.

use crate::key::{PacketKey, WORDS, word};
use crate::rule::Rule;

/// Words of a packed rule or key.
pub const PACKED_WORDS: usize = WORDS;

/// Word, lowest bit and bits of each field that is not a port: the address words and other whole words, then fields that
/// share a word.
pub const PLACES: [(usize, u32, u32); 20] = [
    (word::REMOTE, 0, 32),
    (word::REMOTE + 1, 0, 32),
    (word::REMOTE + 2, 0, 32),
    (word::REMOTE + 3, 0, 32),
    (word::LOCAL, 0, 32),
    (word::LOCAL + 1, 0, 32),
    (word::LOCAL + 2, 0, 32),
    (word::LOCAL + 3, 0, 32),
    (word::TEID, 0, 32),
    (word::SPI, 0, 32),
    (word::FLOW_LABEL, 0, 32),
    (word::APPLICATION, 0, 32),
    (word::NETWORK, 16, 16),
    (word::NETWORK, 0, 16),
    (word::PROTOCOL, 24, 8),
    (word::PROTOCOL, 16, 8),
    (word::PROTOCOL, 0, 8),
    (word::FLOW, 24, 8),
    (word::FLOW, 16, 8),
    (word::FLOW, 8, 8),
];

impl Rule {
    /// The values that it compares with.
    #[inline]
    pub fn value(&self) -> &[u32; PACKED_WORDS] {
        &self.value
    }

    /// The bits that it compares.
    #[inline]
    pub fn mask(&self) -> &[u32; PACKED_WORDS] {
        &self.mask
    }

    /// Ranges of the remote and the local port.
    #[inline]
    pub fn port_ranges(&self) -> [(u16, u16); 2] {
        self.ports
    }
}

impl PacketKey {
    /// The packed words.
    #[inline]
    pub fn words(&self) -> &[u32; PACKED_WORDS] {
        &self.words
    }

    /// Remote and local port.
    #[inline]
    pub fn port_pair(&self) -> [u16; 2] {
        self.ports()
    }
}
