//! Records in memory for the control path, and which of them other processes have changed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use whimbrel_ids::Supi;

use crate::record::SubscriberRecord;
use crate::subscription::Subscription;

/// Records kept at most: two generations of this many, together some 100 MB.
const GENERATION_RECORDS: usize = 131_072;

/// What changed in the file since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// No change is followed.
    None,
    /// These subscribers were added, edited or removed.
    Some(Vec<Supi>),
    /// Many: an import, or more than the log of changes holds.
    All,
}

/// Records in two generations: what is used moves to the young one; when that is full, the old one is dropped.
#[derive(Default)]
pub(crate) struct Cache {
    young: HashMap<Supi, Arc<SubscriberRecord>>,
    old: HashMap<Supi, Arc<SubscriberRecord>>,
    /// Subscriptions in use, by their row: records share them.
    subscriptions: HashMap<i64, Weak<Subscription>>,
}

impl Cache {
    pub(crate) fn get(&mut self, supi: Supi) -> Option<Arc<SubscriberRecord>> {
        if let Some(record) = self.young.get(&supi) {
            return Some(Arc::clone(record));
        }
        let record = self.old.remove(&supi)?;
        self.insert(Arc::clone(&record));
        Some(record)
    }

    pub(crate) fn insert(&mut self, record: Arc<SubscriberRecord>) {
        if self.young.len() >= GENERATION_RECORDS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(record.supi, record);
    }

    /// Returns whether there was one.
    pub(crate) fn forget(&mut self, supi: Supi) -> bool {
        let young = self.young.remove(&supi);
        self.old.remove(&supi).or(young).is_some()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn subscription(&self, row: i64) -> Option<Arc<Subscription>> {
        self.subscriptions.get(&row)?.upgrade()
    }

    pub(crate) fn share_subscription(&mut self, row: i64, subscription: &Arc<Subscription>) {
        // At most half of these are of cached records: the rest is dead, or the caller's own.
        if self.subscriptions.len() >= 4 * GENERATION_RECORDS {
            self.subscriptions.retain(|_, s| s.strong_count() > 0);
        }
        self.subscriptions.insert(row, Arc::downgrade(subscription));
    }
}
