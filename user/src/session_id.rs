//! A session's names: index and generation, its SEID and its TEIDs (TS 33.513 §4.2.2.6).

use whimbrel_ids::{Seid, Teid};

use crate::limits::{SESSIONS_MAX, TEID_INDEX_BITS, TEID_INDEX_BITS_MAX};

/// A session of this UPF: where it stands in the table, and which of the sessions that stood there it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Index in the session tables.
    pub index: u32,
    /// Changes whenever the index is used anew, so that a late message finds nothing.
    pub generation: u32,
}

impl SessionId {
    /// The UP function's SEID: generation above index; never zero.
    pub const fn seid(self) -> Seid {
        Seid((self.generation as u64) << 32 | (self.index as u64 + 1))
    }

    /// The session that such a SEID names, if any could.
    pub const fn from_seid(seid: Seid) -> Option<Self> {
        let low = (seid.0 & 0xffff_ffff) as u32;
        if low == 0 || low > SESSIONS_MAX {
            None
        } else {
            Some(Self { index: low - 1, generation: (seid.0 >> 32) as u32 })
        }
    }
}

/// How a TEID is made of a session's index and a tag: the index has as many bits as the UPF's sessions need, so that a
/// small UPF's tunnels are the harder to guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TeidLayout {
    index_bits: u32,
}

impl TeidLayout {
    /// For so many sessions at most.
    pub(crate) const fn of(sessions_max: u32) -> Self {
        let bits = u32::BITS - sessions_max.leading_zeros();
        let index_bits = if bits < TEID_INDEX_BITS {
            TEID_INDEX_BITS
        } else if bits > TEID_INDEX_BITS_MAX {
            TEID_INDEX_BITS_MAX
        } else {
            bits
        };
        Self { index_bits }
    }

    pub(crate) const fn index_mask(self) -> u32 {
        (1 << self.index_bits) - 1
    }

    /// The local tunnel at place `n` of a session, which was given `given` before: its index below a tag that cannot
    /// be guessed without the key.
    pub(crate) const fn teid(self, session: SessionId, n: u8, given: u16, key: u64) -> Teid {
        let name = (session.generation as u64) << 32 ^ (session.index as u64) << 8 ^ n as u64;
        let mixed = mix(key ^ name);
        // By odd steps, so that a name comes back only after all others.
        let random = (mixed as u32).wrapping_add(((mixed >> 32) as u32 | 1).wrapping_mul(given as u32));
        // Two bits tell the tunnels of one session apart; the rest is random. The index is offset by one so
        // that no tunnel is zero, which names none (TS 29.281 §5.1).
        let tag = random << 2 | (n as u32 & 3);
        Teid(tag << self.index_bits | ((session.index + 1) & self.index_mask()))
    }

    /// Where the session of a TEID would stand.
    pub(crate) const fn index_of(self, teid: Teid) -> u32 {
        (teid.0 & self.index_mask()).wrapping_sub(1) & self.index_mask()
    }
}

/// A keyed mixing of 64 bits (the finaliser of SplitMix64, twice around the key). It hides nothing worth
/// more than a tag of ten bits: guessing one is stopped by counting, not by this.
pub(crate) const fn mix(mut z: u64) -> u64 {
    let mut round = 0;
    while round < 2 {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        round += 1;
    }
    z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seid_and_teid_lead_back_to_the_session() {
        for sessions_max in [1, 1000, (1 << 20) - 1, 1 << 20, 12_000_000, SESSIONS_MAX - 1] {
            let layout = TeidLayout::of(sessions_max);
            for index in [0, 1, 77, sessions_max - 1].map(|i| i.min(sessions_max - 1)) {
                let id = SessionId { index, generation: 0xdead_beef };
                assert_eq!(SessionId::from_seid(id.seid()), Some(id));
                for n in 0..4 {
                    let teid = layout.teid(id, n, 0, 42);
                    assert_eq!(layout.index_of(teid), index);
                    assert_ne!(teid, Teid(0));
                    assert_ne!(teid, layout.teid(id, (n + 1) % 4, 0, 42));
                }
            }
        }
        assert_eq!(SessionId::from_seid(Seid(0)), None);
        assert_eq!(SessionId::from_seid(Seid(u64::from(u32::MAX))), None);
    }
}
