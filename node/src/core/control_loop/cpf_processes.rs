//! CPFs that are processes of their own, and the other CTA, as the control loop has them (docs/cluster.md).

use whimbrel_resilience::membership::CtaInstance;

use crate::cluster::{CpfPool, InputWatchdog, PairPrimary};
use crate::core::subscriber_copy::SubscriberFeed;

/// The CPFs that serve UEs, where they are processes of their own.
pub(super) struct CpfProcesses {
    pub(super) pool: CpfPool,
    /// `None`: there is no second CTA.
    pub(super) pair: Option<PrimaryOfPair>,
}

/// The state of the primary CTA of a pair beside its CPFs: a second CTA can be its replica.
pub(super) struct PrimaryOfPair {
    pub(super) primary: PairPrimary,
    /// The CTA that gets a copy of the subscriber store.
    pub(super) copies_to: Option<CtaInstance>,
    /// The part of the store that still has to go there.
    pub(super) feed: Option<SubscriberFeed>,
    /// Another CTA has taken over.
    pub(super) replaced: bool,
    /// Ends the process when one input is not finished in time: another thread answers heartbeats, so the CTA replica would not
    /// notice.
    pub(super) watchdog: InputWatchdog,
}

impl PrimaryOfPair {
    pub(super) fn new(primary: PairPrimary) -> Result<Self, String> {
        let watchdog = InputWatchdog::start("CTA")?;
        Ok(Self { primary, copies_to: None, feed: None, replaced: false, watchdog })
    }
}
