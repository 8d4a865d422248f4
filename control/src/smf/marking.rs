//! Transport level marking: the outer DSCP of packets to a gNB (TS 23.501 §5.8.2.11.6, TS 29.244 §8.2.12).
//!
//! A marking belongs to a FAR, so flows with another DSCP than the default flow's have a FAR of their own; all FARs lead to the same
//! tunnel. The set of FARs is fixed when the session is established, by its policy at that time: a change of the tunnel changes all of
//! them.

use whimbrel_pfcp::ie::{FarId, TransportLevelMarking};

use super::rules::DOWNLINK_FAR;
use crate::state::Marks;

impl Marks {
    /// The markings of the default flow and of the other possible flows.
    pub(super) fn of(default: u8, others: impl Iterator<Item = u8>) -> Self {
        let mut all = vec![default];
        for dscp in others {
            if !all.contains(&dscp) {
                all.push(dscp);
            }
        }
        if all == [0] { Self::default() } else { Self(all.into()) }
    }

    /// The index of a DSCP; the default flow's if it is not included.
    pub(super) fn place(&self, dscp: u8) -> u8 {
        let at = self.0.iter().position(|d| *d == dscp).unwrap_or(0);
        u8::try_from(at).unwrap_or(0)
    }

    /// The downlink FARs with their markings.
    pub(super) fn fars(&self) -> impl Iterator<Item = (FarId, Option<TransportLevelMarking>)> {
        let none = self.0.is_empty().then_some(&0);
        (0..).zip(self.0.iter().chain(none)).map(|(place, dscp)| {
            // With several FARs, zero is set explicitly, for else the UPF would keep another marking.
            let marking = TransportLevelMarking { value: dscp << 2, mask: 0xfc };
            (downlink_far(place), (!self.0.is_empty()).then_some(marking))
        })
    }

    /// That of the default flow alone: an intermediate UPF does not know the flows, and marks all packets alike.
    pub(super) fn of_default_flow(&self) -> Self {
        Self(self.0.iter().take(1).copied().collect())
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The FAR of an index.
pub(super) const fn downlink_far(place: u8) -> FarId {
    FarId(DOWNLINK_FAR.0 + place as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.244 §8.2.12: a session without markings has one FAR without the IE
    fn each_dscp_has_a_far() {
        let fars = |m: &Marks| m.fars().map(|(f, m)| (f.0, m.map(|m| m.value))).collect::<Vec<_>>();
        let plain = Marks::of(0, [0, 0].into_iter());
        assert_eq!((fars(&plain), plain.place(0), plain.place(46)), (vec![(2, None)], 0, 0));
        let voice = Marks::of(0, [46, 0, 34, 46].into_iter());
        assert_eq!(fars(&voice), [(2, Some(0)), (3, Some(46 << 2)), (4, Some(34 << 2))]);
        assert_eq!([0, 46, 34, 10].map(|dscp| voice.place(dscp)), [0, 1, 2, 0]);
    }
}
