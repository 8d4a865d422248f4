//! The subscriber store of a CTA of a pair, and its copy at the other CTA: all of it when that one becomes the replica, then the changes.

use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::{Instant, Supi};
use whimbrel_store::{Changes, EXCERPT_MAX, Excerpt, Store, StoreError};

/// Between two excerpts, so that UEs do not wait for the copy: 100,000 subscribers take 16 s.
const BETWEEN: Duration = Duration::from_millis(10);
/// Changed subscribers that are kept by name; after more, the whole store is copied again.
const NAMED_MAX: usize = 4096;

/// The primary's side.
pub(super) struct SubscriberFeed {
    /// The subscriber after which all are still to be copied.
    rest: Option<Option<Supi>>,
    changed: BTreeSet<Supi>,
    due: Instant,
    /// The store has had no subscribers: it is new, and the other CTA's store may not be. What is added is copied, and nothing removed.
    is_new: bool,
}

impl SubscriberFeed {
    /// Begins to copy the whole store, or from a store without subscribers those that are added from now on.
    pub(super) fn begin(now: Instant, store: &Store) -> Self {
        let is_new = !has_subscribers(store);
        if is_new {
            warn!(
                "the subscriber store is empty: the other CTA's store is not overwritten; subscribers that are added here are copied"
            );
        }
        Self { rest: (!is_new).then_some(None), changed: BTreeSet::new(), due: now, is_new }
    }

    /// The store has changed.
    pub(super) fn changed(&mut self, changes: &Changes) {
        match changes {
            Changes::None => {}
            Changes::Some(supis) => self.changed.extend(supis),
            Changes::All => self.rest = Some(None),
        }
        if self.changed.len() > NAMED_MAX {
            (self.rest, self.changed) = (Some(None), BTreeSet::new());
        }
    }

    /// When the next excerpt is due, if there is one.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.rest.is_some() || !self.changed.is_empty()).then_some(self.due)
    }

    /// The next excerpt, if it is due. Errors: the store's; the excerpt is tried again.
    pub(super) fn next(&mut self, now: Instant, store: &mut Store) -> Result<Option<Excerpt>, StoreError> {
        if self.due().is_none_or(|due| due > now) {
            return Ok(None);
        }
        self.due = now + BETWEEN;
        self.is_new &= !has_subscribers(store);
        if self.is_new {
            (self.rest, self.changed) = (None, BTreeSet::new());
            return Ok(None);
        }
        if let Some(after) = self.rest {
            let excerpt = store.excerpt_after(after)?;
            self.rest = excerpt.last.map(Some);
            return Ok(Some(excerpt));
        }
        let supis: Vec<Supi> = self.changed.iter().copied().take(EXCERPT_MAX).collect();
        let excerpt = store.excerpt_of(&supis)?;
        self.changed.retain(|supi| !supis.contains(supi));
        Ok(Some(excerpt))
    }
}

fn has_subscribers(store: &Store) -> bool {
    store.count().is_ok_and(|count| count > 0)
}

/// The replica's side: a thread that writes excerpts, so that nothing waits for a disk. Dropped, it has written all of them.
pub(super) struct SubscriberCopy {
    excerpts: Option<Sender<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl SubscriberCopy {
    /// Starts to write into this store. Errors: one sentence.
    pub(super) fn start(mut store: Store) -> Result<Self, String> {
        let (excerpts, incoming) = channel::<Vec<u8>>();
        let write = move || {
            for excerpt in incoming {
                match store.take_over(&excerpt) {
                    Ok(done) if done.written + done.removed > 0 => {
                        info!(done.written, done.removed, "subscribers are copied from the primary CTA");
                    }
                    Ok(_) => {}
                    Err(e) => warn!("subscribers of the primary CTA cannot be copied: {e}"),
                }
            }
        };
        let thread = std::thread::Builder::new().name("subscribers".into()).spawn(write);
        let thread =
            thread.map_err(|e| format!("the thread that copies subscribers cannot be started: {e}"))?;
        Ok(Self { excerpts: Some(excerpts), thread: Some(thread) })
    }

    /// Takes an excerpt.
    pub(super) fn take(&self, excerpt: Vec<u8>) {
        let _ = self.excerpts.as_ref().map(|to| to.send(excerpt));
    }
}

impl Drop for SubscriberCopy {
    fn drop(&mut self) {
        drop(self.excerpts.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_security::{K, Opc};
    use whimbrel_store::{OperatorCode, SubscriberRecord};

    use super::*;

    fn supi(n: u32) -> Supi {
        format!("imsi-99970{n:010}").parse().unwrap()
    }

    fn record(n: u32) -> SubscriberRecord {
        SubscriberRecord::new(supi(n), K::new([1; 16]), OperatorCode::Opc(Opc::new([2; 16])))
    }

    #[test]
    fn a_store_is_copied_whole_and_then_as_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            Store::open(&folder.path().join(format!("{name}.db")), &folder.path().join(format!("{name}.key")))
                .unwrap()
        };
        let mut one = open("one");
        (0..100).for_each(|n| one.add(&record(n)).unwrap());
        open("other").add(&record(700)).unwrap();
        let mut feed = SubscriberFeed::begin(Instant(1), &one);
        let copy = SubscriberCopy::start(open("other")).unwrap();
        let copy_all = |one: &mut Store, feed: &mut SubscriberFeed| {
            let mut excerpts = 0;
            while let Some(due) = feed.due() {
                let excerpt = feed.next(due, one).unwrap().unwrap();
                assert!(feed.next(due, one).unwrap().is_none(), "there is a pause between two");
                copy.take(excerpt.octets().to_vec());
                excerpts += 1;
            }
            excerpts
        };
        assert_eq!(copy_all(&mut one, &mut feed), 2);
        one.remove(supi(5)).unwrap();
        feed.changed(&Changes::Some(vec![supi(5), supi(6)]));
        assert_eq!(copy_all(&mut one, &mut feed), 1);
        feed.changed(&Changes::All);
        assert_eq!(copy_all(&mut one, &mut feed), 2);
        drop(copy);
        let all = open("other").list(None, 1000).unwrap();
        assert_eq!(all, one.list(None, 1000).unwrap());
        assert_eq!(all.len(), 99);
    }

    #[test]
    fn an_empty_store_empties_no_other_and_what_is_added_to_it_later_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            Store::open(&folder.path().join(format!("{name}.db")), &folder.path().join(format!("{name}.key")))
                .unwrap()
        };
        let (mut one, mut other) = (open("one"), open("other"));
        other.add(&record(700)).unwrap();
        let mut feed = SubscriberFeed::begin(Instant(1), &one);
        assert_eq!(feed.due(), None);
        feed.changed(&Changes::All);
        assert!(feed.next(Instant(1), &mut one).unwrap().is_none() && feed.due().is_none());
        one.add(&record(1)).unwrap();
        feed.changed(&Changes::Some(vec![supi(1)]));
        let due = feed.due().unwrap();
        let excerpt = feed.next(due, &mut one).unwrap().unwrap();
        other.take_over(excerpt.octets()).unwrap();
        let copied: Vec<Supi> = other.list(None, 1000).unwrap().iter().map(|r| r.supi).collect();
        assert_eq!(copied, [supi(1), supi(700)]);
    }
}
