//! UE radio capabilities, shared: phones of one make on one radio have the same, a kilobyte or more each.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Distinct capabilities that are shared: makes of phones times kinds of cells, with room to spare. Beyond it each phone
/// keeps its own.
const SHARED_MAX: usize = 4096;

/// One copy of each capability that is in use. Who shares with whom shows in no output.
#[derive(Debug, Default)]
pub(super) struct RadioCapabilities(BTreeSet<Arc<[u8]>>);

impl RadioCapabilities {
    /// Puts the shared copy in place of a phone's own.
    pub(super) fn share(&mut self, capability: &mut Arc<[u8]>) {
        if Arc::strong_count(capability) > 1 {
            return; // it is shared already
        }
        if let Some(shared) = self.0.get(capability) {
            *capability = shared.clone();
            return;
        }
        if self.0.len() >= SHARED_MAX {
            self.0.retain(|c| Arc::strong_count(c) > 1);
        }
        if self.0.len() < SHARED_MAX {
            self.0.insert(capability.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_capabilities_are_kept_once() {
        let mut all = RadioCapabilities::default();
        let (mut a, mut b): (Arc<[u8]>, Arc<[u8]>) = (vec![1; 900].into(), vec![1; 900].into());
        all.share(&mut a);
        all.share(&mut b);
        assert!(Arc::ptr_eq(&a, &b));
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_nobody_uses_goes() {
        let mut all = RadioCapabilities::default();
        for n in 0..2 * SHARED_MAX as u32 {
            all.share(&mut Arc::from(n.to_be_bytes().as_slice()));
        }
        assert!(all.0.len() <= SHARED_MAX);
    }
}
