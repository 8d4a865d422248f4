//! The connections of a listener, shared fairly among their sources.
//!
//! A listener that waits for room lets one peer with idle connections shut all others out. Here a new
//! connection is always accepted: each source has a share, and when the table is full, the oldest connection
//! of the source with the most is closed for it.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};
use tracing::warn;

/// Between two log lines about connections that were closed for others.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The network prefix that a peer is counted under: an IPv4 address, or the /64 of an IPv6 address, of which one host may use any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerPrefix(IpAddr);

impl PeerPrefix {
    /// A number that no other prefix has: no IPv6 address that is in use begins with 32 zeros.
    pub fn number(self) -> u64 {
        match self.0 {
            IpAddr::V4(four) => four.to_bits().into(),
            IpAddr::V6(six) => (six.to_bits() >> 64) as u64,
        }
    }

    /// The prefix of an address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & !u128::from(u64::MAX))),
            four => four,
        })
    }
}

impl fmt::Display for PeerPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(four) => write!(f, "{four}"),
            IpAddr::V6(six) => write!(f, "{six}/64"),
        }
    }
}

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct SlotBounds {
    /// Connections at once.
    pub total: usize,
    /// Connections of one source at once.
    pub share: usize,
}

struct SlotTable<S> {
    next: u64,
    /// The connections, oldest first; to drop the sender closes one.
    open: BTreeMap<u64, (S, oneshot::Sender<()>)>,
    of_source: BTreeMap<S, BTreeSet<u64>>,
    /// Connections that were closed for others, all and since the last log line.
    closed: u64,
    unlogged: u64,
    logged: Option<Instant>,
}

/// The connections of one listener.
pub struct ConnectionSlots<S>(Arc<ListenerSlots<S>>);

struct ListenerSlots<S> {
    listener: &'static str,
    bounds: SlotBounds,
    table: Mutex<SlotTable<S>>,
    ended: Notify,
}

impl<S> ListenerSlots<S> {
    fn table(&self) -> MutexGuard<'_, SlotTable<S>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection; dropping it gives the place back.
pub struct ConnectionSlot<S: Copy + Ord> {
    inner: Arc<ListenerSlots<S>>,
    number: u64,
    revoked: oneshot::Receiver<()>,
}

impl<S: Copy + Ord + fmt::Display> ConnectionSlots<S> {
    /// No connection yet. `listener` is its name in the log.
    pub fn new(listener: &'static str, bounds: SlotBounds) -> Self {
        let table = SlotTable {
            next: 0,
            open: BTreeMap::new(),
            of_source: BTreeMap::new(),
            closed: 0,
            unlogged: 0,
            logged: None,
        };
        Self(Arc::new(ListenerSlots { listener, bounds, table: Mutex::new(table), ended: Notify::new() }))
    }

    /// A place for a new connection of this source, for which another one may have to end.
    pub fn take(&self, source: S) -> ConnectionSlot<S> {
        let SlotBounds { total, share } = self.0.bounds;
        let mut table = self.0.table();
        let own = table.of_source.get(&source).map_or(0, BTreeSet::len);
        let victim = if own >= share {
            Some(source)
        } else if table.open.len() >= total {
            table.largest_source()
        } else {
            None
        };
        if let Some(victim) = victim {
            table.close_oldest_of(victim);
            self.log(&mut table, victim);
        }
        let number = table.next;
        table.next += 1;
        let (sender, revoked) = oneshot::channel();
        table.open.insert(number, (source, sender));
        table.of_source.entry(source).or_default().insert(number);
        ConnectionSlot { inner: self.0.clone(), number, revoked }
    }

    fn log(&self, table: &mut SlotTable<S>, victim: S) {
        table.closed += 1;
        table.unlogged += 1;
        if table.logged.is_some_and(|at| at.elapsed() < LOGGED_EVERY) {
            return;
        }
        let (listener, SlotBounds { total, share }) = (self.0.listener, self.0.bounds);
        warn!(
            from = %victim, closed = table.unlogged,
            "{listener}: the oldest connection of {victim} is closed for a new one: {total} connections, or {share} of one sender, are all \
             that are kept open"
        );
        (table.unlogged, table.logged) = (0, Some(Instant::now()));
    }

    /// Connections that were closed for others so far.
    pub fn closed(&self) -> u64 {
        self.0.table().closed
    }

    /// Waits until no connection is open.
    pub async fn emptied(&self) {
        loop {
            let ended = self.0.ended.notified();
            if self.0.table().open.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

impl<S: Copy + Ord> SlotTable<S> {
    /// The source with the most connections; of several, the one that has been there longest.
    fn largest_source(&self) -> Option<S> {
        let by_size = |(_, numbers): &(&S, &BTreeSet<u64>)| {
            (numbers.len(), core::cmp::Reverse(numbers.first().copied()))
        };
        self.of_source.iter().max_by_key(by_size).map(|(source, _)| *source)
    }

    fn close_oldest_of(&mut self, source: S) {
        let oldest = self.of_source.get(&source).and_then(|numbers| numbers.first().copied());
        oldest.into_iter().for_each(|number| self.remove(number));
    }

    fn remove(&mut self, number: u64) {
        let Some((source, _)) = self.open.remove(&number) else { return };
        if let Some(numbers) = self.of_source.get_mut(&source) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.of_source.remove(&source);
            }
        }
    }
}

impl<S: Copy + Ord> ConnectionSlot<S> {
    /// Ends when the connection has to be closed for another one.
    pub async fn revoked(&mut self) {
        // The sender is dropped, not used.
        let _ = (&mut self.revoked).await;
    }
}

impl<S: Copy + Ord> Drop for ConnectionSlot<S> {
    fn drop(&mut self) {
        self.inner.table().remove(self.number);
        self.inner.ended.notify_one();
    }
}

impl<S> Clone for ConnectionSlots<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for ConnectionSlots<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionSlots({})", self.0.table().open.len())
    }
}

impl<S: Copy + Ord> fmt::Debug for ConnectionSlot<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionSlot({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> PeerPrefix {
        PeerPrefix::of(text.parse().unwrap())
    }

    fn is_revoked(slot: &mut ConnectionSlot<PeerPrefix>) -> bool {
        !matches!(slot.revoked.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    #[test]
    fn a_host_is_one_source_whichever_address_of_its_64_it_uses() {
        assert_eq!(prefix("2001:db8:1:2::1"), prefix("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(prefix("2001:db8:1:2::1"), prefix("2001:db8:1:3::1"));
        assert_eq!(prefix("::ffff:192.0.2.1"), prefix("192.0.2.1"));
        assert_ne!(prefix("192.0.2.1"), prefix("192.0.2.2"));
        assert_eq!(prefix("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
    }

    #[test]
    fn the_oldest_connection_of_the_largest_source_ends_for_a_new_one() {
        let slots = ConnectionSlots::new("test", SlotBounds { total: 4, share: 3 });
        let (greedy, modest, newcomer) = (prefix("192.0.2.1"), prefix("192.0.2.2"), prefix("192.0.2.3"));
        let mut first = slots.take(modest);
        let mut of_greedy: Vec<_> = (0..3).map(|_| slots.take(greedy)).collect();
        let mut third = slots.take(newcomer);
        assert!(is_revoked(&mut of_greedy[0]) && !is_revoked(&mut of_greedy[1]));
        let mut fourth = slots.take(greedy);
        assert!(is_revoked(&mut of_greedy[1]), "the table is full, and this source has the most");
        assert!(![&mut first, &mut third, &mut fourth].into_iter().any(is_revoked));
        assert_eq!(slots.closed(), 2);
    }

    #[test]
    fn a_source_has_no_more_than_its_share_of_an_empty_table() {
        let slots = ConnectionSlots::new("test", SlotBounds { total: 100, share: 2 });
        let mut all: Vec<_> = (0..5).map(|_| slots.take(prefix("2001:db8::1"))).collect();
        assert_eq!(all.iter_mut().map(is_revoked).collect::<Vec<_>>(), [true, true, true, false, false]);
        all.clear();
        assert!(slots.0.table().open.is_empty() && slots.0.table().of_source.is_empty());
    }

    #[test]
    fn an_ended_connection_gives_its_place_back() {
        let slots = ConnectionSlots::new("test", SlotBounds { total: 1, share: 1 });
        drop(slots.take(prefix("192.0.2.1")));
        let mut kept = slots.take(prefix("192.0.2.2"));
        assert!(!is_revoked(&mut kept) && slots.closed() == 0);
    }
}
