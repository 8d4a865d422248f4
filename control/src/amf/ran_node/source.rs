//! Shares of a source in the AMF's tables of associations, so that one host cannot take them all. A source is an IPv4 address or an IPv6 /64
//! prefix, from which one host can take any address.

use std::collections::BTreeMap;

use whimbrel_ids::GlobalGnbId;

use super::{RanNode, RanNodes};
use crate::config::IpPrefix;
use crate::envelope::AssociationId;

impl RanNode {
    /// The source that it is counted under. Associations of unknown address are one source.
    fn source(&self) -> Option<IpPrefix> {
        self.addresses.first().map(|address| IpPrefix::of_source(*address))
    }
}

/// How many entries each source has.
fn count<'a>(nodes: impl Iterator<Item = &'a RanNode>) -> Vec<(Option<IpPrefix>, usize)> {
    let mut counts: BTreeMap<_, (Option<IpPrefix>, usize)> = BTreeMap::new();
    for node in nodes {
        let source = node.source();
        let key = source.map(|s| (s.address, s.length));
        counts.entry(key).or_insert((source, 0)).1 += 1;
    }
    counts.into_values().collect()
}

/// The oldest of these that is of one of the sources.
fn oldest<'a>(
    nodes: impl Iterator<Item = (&'a AssociationId, &'a RanNode)>,
    sources: &[Option<IpPrefix>],
) -> Option<AssociationId> {
    let of_them = nodes.filter(|(_, n)| sources.contains(&n.source()));
    of_them.min_by_key(|(association, n)| (n.since, **association)).map(|(association, _)| *association)
}

impl RanNodes {
    /// Of the associations without NG SETUP, the oldest of the sources that have most of them.
    pub(super) fn oldest_waiting_of_the_largest_source(&self) -> Option<AssociationId> {
        let waiting = || self.nodes.iter().filter(|(_, n)| n.gnb.is_none());
        let counts = count(waiting().map(|(_, n)| n));
        let most = counts.iter().map(|(_, n)| *n).max()?;
        let largest: Vec<_> = counts.into_iter().filter(|(_, n)| *n == most).map(|(s, _)| s).collect();
        oldest(waiting(), &largest)
    }

    /// The association of a gNB that makes room for that of another: the oldest of the source with most gNBs, where that source has more
    /// than the newcomer's would have. gNBs that the configuration lists are not asked to go. `None`: the newcomer is refused.
    pub(super) fn makes_room(&self, association: AssociationId) -> Option<AssociationId> {
        let source = self.nodes.get(&association)?.source();
        let listed = |gnb: Option<GlobalGnbId>| gnb.is_some_and(|gnb| self.listed(gnb).is_some());
        let others = || self.nodes.iter().filter(|(a, n)| **a != association && n.gnb.is_some());
        let counts = count(others().map(|(_, n)| n));
        let own = counts.iter().find(|(s, _)| *s == source).map_or(0, |(_, n)| *n) + 1;
        let (largest, most) = counts.into_iter().max_by_key(|(_, n)| *n)?;
        if most <= own {
            return None;
        }
        oldest(others().filter(|(_, n)| !listed(n.gnb)), &[largest])
    }
}
