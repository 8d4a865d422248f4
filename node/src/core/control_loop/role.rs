//! The three deployments of a core with an AMF (docs/cluster.md), once it serves UEs.

use whimbrel_resilience::membership::CtaInstance;

use crate::cluster::{InputWatchdog, PairPrimary, Pool};
use crate::core::subscriber_copy::SubscriberFeed;

/// Where UEs are served, and what replicates this process.
pub(super) enum Role {
    /// UEs are served in this process.
    Single,
    /// CPFs are processes of their own.
    Region(Box<Pool>),
    /// The same, and a second CTA can be the replica of this one.
    Pair(Box<PairRole>),
}

/// The primary CTA of a pair.
pub(super) struct PairRole {
    pub(super) pool: Pool,
    pub(super) primary: PairPrimary,
    /// The CTA that gets a copy of the subscriber store.
    pub(super) copies_to: Option<CtaInstance>,
    /// What of the store still has to go there.
    pub(super) feed: Option<SubscriberFeed>,
    /// Another CTA has taken over.
    pub(super) replaced: bool,
    /// Ends the process when one input is not finished in time: another thread answers heartbeats, so the CTA replica would not
    /// notice.
    pub(super) watchdog: InputWatchdog,
}

impl Role {
    pub(super) fn pool(&self) -> Option<&Pool> {
        match self {
            Self::Single => None,
            Self::Region(pool) => Some(pool),
            Self::Pair(pair) => Some(&pair.pool),
        }
    }

    pub(super) fn pool_mut(&mut self) -> Option<&mut Pool> {
        match self {
            Self::Single => None,
            Self::Region(pool) => Some(pool),
            Self::Pair(pair) => Some(&mut pair.pool),
        }
    }

    pub(super) fn pair(&self) -> Option<&PairRole> {
        match self {
            Self::Pair(pair) => Some(pair),
            Self::Single | Self::Region(_) => None,
        }
    }

    pub(super) fn pair_mut(&mut self) -> Option<&mut PairRole> {
        match self {
            Self::Pair(pair) => Some(pair),
            Self::Single | Self::Region(_) => None,
        }
    }

    /// Whether another CTA has taken over.
    pub(super) fn is_replaced(&self) -> bool {
        self.pair().is_some_and(|pair| pair.replaced)
    }
}
