//! What UEs have in common is kept once: UEs of one make on one radio have the same capability, a kilobyte or more
//! each, and subscribers with the same terms the same subscription. Who shares with whom shows in no output.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::state::{Subscription, UeContext};

/// Distinct values that are kept: makes of UEs times kinds of cells, or an operator's tariffs, with room to spare.
/// Beyond it each UE keeps its own.
const SHARED_MAX: usize = 4096;

/// One copy of each value that is in use.
#[derive(Debug)]
struct Kept<T: ?Sized>(BTreeSet<Arc<T>>);

impl<T: ?Sized + Ord> Kept<T> {
    /// Puts the kept copy in place of a UE's own.
    fn share(&mut self, own: &mut Arc<T>) {
        if let Some(kept) = self.0.get(own) {
            own.clone_from(kept);
            return;
        }
        if self.0.len() >= SHARED_MAX {
            self.0.retain(|kept| Arc::strong_count(kept) > 1);
        }
        if self.0.len() < SHARED_MAX {
            self.0.insert(own.clone());
        }
    }
}

/// What the UEs of a shard have in common.
#[derive(Debug)]
pub(super) struct Shared {
    radio_capabilities: Kept<[u8]>,
    subscriptions: Kept<Subscription>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { radio_capabilities: Kept(BTreeSet::new()), subscriptions: Kept(BTreeSet::new()) }
    }

    /// After an input of a UE: its radio may have told what it can do.
    pub(super) fn share_radio_capability(&mut self, ue: &mut UeContext) {
        if let Some(own) = &mut ue.amf.radio_capability
            && Arc::strong_count(own) == 1
        {
            self.radio_capabilities.share(own);
        }
    }

    /// After an answer of the UDM: it comes from another process, or from a directory that shares already.
    pub(super) fn share_subscription(&mut self, ue: &mut UeContext) {
        if let Some(own) = &mut ue.amf.subscription {
            self.subscriptions.share(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_kept_once() {
        let mut all = Kept(BTreeSet::new());
        let (mut a, mut b): (Arc<[u8]>, Arc<[u8]>) = (vec![1; 900].into(), vec![1; 900].into());
        all.share(&mut a);
        all.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_nobody_uses_goes() {
        let mut all = Kept(BTreeSet::new());
        for n in 0..2 * SHARED_MAX as u32 {
            all.share(&mut Arc::<[u8]>::from(n.to_be_bytes().as_slice()));
        }
        assert!(all.0.len() <= SHARED_MAX);
    }
}
