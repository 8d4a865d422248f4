//! Copies of the user plane packets of single UEs, for captures through the API.
//!
//! The control thread has the UPF copy N3 while a tap is open, and hands each copy to the taps whose tunnels it is in. Bounded: a reader that
//! is too slow loses copies, never the core.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use whimbrel_user_io::TappedDatagram;

use super::locked;

/// Captures at once: each has the UPF copy all of N3.
const TAPS_MAX: usize = 4;
/// Copies of no tunnel that is followed, which are kept for a while: a UE's first packets come before its tunnels are known.
const RECENT_MAX: usize = 1024;
/// Copies that wait for a reader: a second at 50 Mbit/s.
const WAITING_MAX: usize = 4096;

/// The port to which all of GTP-U is sent (TS 29.281 §4.4.2.3).
const GTPU_PORT: u16 = 2152;

/// A GTP-U tunnel's end: address and TEID.
pub type TunnelEnd = (IpAddr, u32);

struct Tap {
    id: u64,
    tunnels: BTreeSet<TunnelEnd>,
    waiting: VecDeque<TappedDatagram>,
}

#[derive(Default)]
struct TapList {
    opened: u64,
    taps: Vec<Tap>,
    recent: VecDeque<TappedDatagram>,
}

/// The taps that are open.
#[derive(Default)]
pub struct Taps {
    open: AtomicUsize,
    all: Mutex<TapList>,
}

impl Taps {
    /// Opens a tap, which gets nothing before it has tunnels. `None`: too many are open.
    pub fn open(&self) -> Option<u64> {
        let mut all = locked(&self.all);
        if all.taps.len() >= TAPS_MAX {
            return None;
        }
        all.opened += 1;
        let id = all.opened;
        all.taps.push(Tap { id, tunnels: BTreeSet::new(), waiting: VecDeque::new() });
        self.open.store(all.taps.len(), Ordering::Release);
        Some(id)
    }

    /// Closes a tap.
    pub fn close(&self, id: u64) {
        let mut all = locked(&self.all);
        all.taps.retain(|tap| tap.id != id);
        if all.taps.is_empty() {
            all.recent = VecDeque::new();
        }
        self.open.store(all.taps.len(), Ordering::Release);
    }

    /// Sets the tunnels whose packets a tap gets.
    pub fn follow(&self, id: u64, tunnels: BTreeSet<TunnelEnd>) {
        let mut all = locked(&self.all);
        let TapList { taps, recent, .. } = &mut *all;
        let Some(tap) = taps.iter_mut().find(|tap| tap.id == id) else { return };
        let former = std::mem::replace(&mut tap.tunnels, tunnels);
        let is_new = |end: &TunnelEnd| tap.tunnels.contains(end) && !former.contains(end);
        tap.waiting.extend(recent.iter().filter(|d| end_of(d).is_some_and(|end| is_new(&end))).cloned());
        tap.waiting.truncate(WAITING_MAX);
    }

    /// The copies since the last call.
    pub fn take(&self, id: u64) -> VecDeque<TappedDatagram> {
        let mut all = locked(&self.all);
        let tap = all.taps.iter_mut().find(|tap| tap.id == id);
        tap.map(|tap| std::mem::take(&mut tap.waiting)).unwrap_or_default()
    }

    /// Whether N3 has to be copied.
    pub fn is_tapping(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// A packet crossed N3.
    pub fn push(&self, datagram: &TappedDatagram) {
        let Some(end) = end_of(datagram) else { return };
        let mut all = locked(&self.all);
        for tap in all.taps.iter_mut().filter(|tap| tap.tunnels.contains(&end)) {
            if tap.waiting.len() < WAITING_MAX {
                tap.waiting.push_back(datagram.clone());
            }
        }
        if !all.taps.is_empty() {
            if all.recent.len() == RECENT_MAX {
                all.recent.pop_front();
            }
            all.recent.push_back(datagram.clone());
        }
    }
}

/// The tunnel's end that a datagram is for; `None` if it is not GTP-U.
fn end_of(datagram: &TappedDatagram) -> Option<TunnelEnd> {
    // TS 29.281 §5.1: the TEID stands in octets 5 to 8.
    let teid = datagram.octets.get(4..8).filter(|_| datagram.to.port() == GTPU_PORT)?;
    Some((datagram.to.ip(), teid.iter().fold(0, |teid, octet| teid << 8 | u32::from(*octet))))
}

#[cfg(test)]
mod tests {
    use whimbrel_ids::Instant;

    use super::*;

    fn packet(to: &str, teid: u8) -> TappedDatagram {
        let octets = vec![0x30, 255, 0, 0, 0, 0, 0, teid];
        TappedDatagram {
            at: Instant(1),
            from: "127.0.0.2:2152".parse().unwrap(),
            to: to.parse().unwrap(),
            octets,
        }
    }

    #[test]
    fn a_tap_gets_the_packets_of_its_tunnels_alone() {
        let taps = Taps::default();
        assert!(!taps.is_tapping());
        let (one, other) = (taps.open().unwrap(), taps.open().unwrap());
        taps.follow(one, [("127.0.0.1".parse().unwrap(), 7)].into());
        taps.push(&packet("127.0.0.1:2152", 7));
        taps.push(&packet("127.0.0.1:2152", 8));
        taps.push(&packet("127.0.0.9:2152", 7));
        taps.push(&TappedDatagram { octets: vec![0x30], ..packet("127.0.0.1:2152", 7) });
        assert_eq!((taps.take(one).len(), taps.take(one).len(), taps.take(other).len()), (1, 0, 0));
        // A tunnel that becomes known later brings what has crossed it lately, once.
        taps.follow(other, [("127.0.0.1".parse().unwrap(), 8)].into());
        taps.follow(other, [("127.0.0.1".parse().unwrap(), 8)].into());
        assert_eq!(taps.take(other).len(), 1);
        taps.close(one);
        taps.close(other);
        assert!(!taps.is_tapping());
    }

    #[test]
    fn taps_and_their_copies_are_bounded() {
        let taps = Taps::default();
        let id = taps.open().unwrap();
        (1..TAPS_MAX).for_each(|_| assert!(taps.open().is_some()));
        assert!(taps.open().is_none());
        taps.follow(id, [("127.0.0.1".parse().unwrap(), 7)].into());
        (0..WAITING_MAX + 5).for_each(|_| taps.push(&packet("127.0.0.1:2152", 7)));
        assert_eq!(taps.take(id).len(), WAITING_MAX);
    }
}
