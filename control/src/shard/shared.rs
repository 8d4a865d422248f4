//! Values that UEs share are stored once: UEs of one model in cells of one kind have the same radio capability, of a
//! kilobyte or more, and subscribers of one tariff the same subscription. Sharing does not affect outputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::state::{Subscription, UeContext};

/// Bound on distinct values: UE models times kinds of cells, or an operator's tariffs, with a margin. Beyond it each UE
/// has its own copy.
const SHARED_MAX: usize = 4096;

/// One copy of each value that is in use.
#[derive(Debug)]
struct SharedValue<T: ?Sized>(BTreeSet<Arc<T>>);

impl<T: ?Sized + Ord> SharedValue<T> {
    /// Replaces a UE's copy by the shared one.
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

/// The shared values of a shard's UEs.
#[derive(Debug)]
pub(super) struct SharedValues {
    radio_capabilities: SharedValue<[u8]>,
    subscriptions: SharedValue<Subscription>,
}

impl SharedValues {
    pub(super) fn new() -> Self {
        Self { radio_capabilities: SharedValue(BTreeSet::new()), subscriptions: SharedValue(BTreeSet::new()) }
    }

    /// After an input of a UE, which may have brought its radio capability.
    pub(super) fn share_radio_capability(&mut self, ue: &mut UeContext) {
        if let Some(own) = &mut ue.amf.radio.capability
            && Arc::strong_count(own) == 1
        {
            self.radio_capabilities.share(own);
        }
    }

    /// After an answer of the UDM from another process; a directory in this one shares already.
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
        let mut all = SharedValue(BTreeSet::new());
        let (mut a, mut b): (Arc<[u8]>, Arc<[u8]>) = (vec![1; 900].into(), vec![1; 900].into());
        all.share(&mut a);
        all.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn shared_values_are_bounded_and_freed_when_unused() {
        let mut all = SharedValue(BTreeSet::new());
        for n in 0..2 * SHARED_MAX as u32 {
            all.share(&mut Arc::<[u8]>::from(n.to_be_bytes().as_slice()));
        }
        assert!(all.0.len() <= SHARED_MAX);
    }
}
