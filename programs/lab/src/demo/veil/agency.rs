//! The agency of `demo --scenario veil`: it has one user intercepted, and asks where another one is that calls emergency. It learns from the
//! broker which session is a user's now, signs an order for it, and opens what comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whimbrel_broker_client::{now, random};
use whimbrel_broker_server::veil::storage::VeilStorage;
use whimbrel_open::msg::Validity;
use whimbrel_privacy::ledger::{About, How, Party, Recording};
use whimbrel_privacy::msg::{Finding, Order, OrderKind, SealedCopy};

use crate::playground::veil::AgencyKeys;

/// How often it looks for sessions, answers and copies.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long an order holds, in seconds.
const ORDER_S: u64 = 120;
/// The emergency location comes within this.
pub(super) const LOCATED_WITHIN: Duration = Duration::from_secs(2);
/// Octets of a datagram with a copy.
const DATAGRAM_OCTETS: usize = 1 << 14;
/// Octets of a packet's head, in the ledger.
const HEAD_OCTETS: usize = 96;

/// What the agency has found.
#[derive(Default)]
pub(super) struct Found {
    /// How long each place of the emergency took, and the place.
    pub(super) places: Vec<(Duration, Vec<u8>)>,
    /// Interceptions that operators have confirmed.
    pub(super) interceptions: usize,
    /// Sessions that had ended when the order came.
    pub(super) too_late: usize,
    /// The packets of the intercepted sessions.
    pub(super) packets: Vec<Vec<u8>>,
    recordings: Vec<(&'static str, Vec<u8>)>,
}

impl Found {
    /// For the ledger.
    pub(super) fn recordings(&self) -> Vec<Recording> {
        let of = |(what, octets): &(&'static str, Vec<u8>)| {
            let how = if *what == "warrant" { How::Stored } else { How::Received };
            Recording { party: Party::Agency, how, what, about: About::default(), octets: octets.clone() }
        };
        self.recordings.iter().map(of).collect()
    }

    /// The packets that were copied and are of no address of these.
    pub(super) fn foreign(&self, own: &BTreeSet<Ipv4Addr>) -> usize {
        let is_own = |packet: &&Vec<u8>| {
            let at = |from: usize| packet.get(from..from + 4).and_then(|o| <[u8; 4]>::try_from(o).ok());
            [at(12), at(16)].into_iter().flatten().any(|a| own.contains(&Ipv4Addr::from(a)))
        };
        self.packets.iter().filter(|packet| !is_own(packet)).count()
    }
}

/// Works until `over`. `intercepted`, `emergency`: names of users. Errors: one sentence.
pub(super) fn work(
    keys: &AgencyKeys,
    mut storage: VeilStorage,
    (intercepted, emergency): (&str, &str),
    over: &AtomicBool,
) -> Result<Found, String> {
    let collector = UdpSocket::bind(keys.collector).map_err(|e| format!("{}: {e}", keys.collector))?;
    collector.set_nonblocking(true).map_err(|e| e.to_string())?;
    let mut found = Found::default();
    for name in [intercepted, emergency] {
        found.recordings.push(("warrant", name.as_bytes().to_vec()));
    }
    let (mut ordered, mut answered) = (BTreeMap::new(), BTreeSet::new());
    let mut sessions = BTreeSet::new();
    let mut datagram = vec![0; DATAGRAM_OCTETS];
    while !over.load(Ordering::Relaxed) {
        for (name, kind) in [(intercepted, OrderKind::Intercept), (emergency, OrderKind::Locate)] {
            for session in storage.sessions_of(name, 1).map_err(|e| e.to_string())? {
                if !sessions.insert((session.session, kind)) {
                    continue;
                }
                found.recordings.push(("session", [session.session, session.group.0].concat()));
                let from = now().as_secs();
                let validity = Validity { from, until: from + ORDER_S };
                let of = (session.session, session.group);
                let order = Order::signed(kind, of, validity, random()?, &keys.signing);
                storage.add_order(&order).map_err(|e| e.to_string())?;
                ordered.insert(order.hash(), Instant::now());
            }
        }
        for (order, answer) in storage.orders().map_err(|e| e.to_string())? {
            let Some(answer) = answer.filter(|_| answered.insert(order.hash())) else { continue };
            let took = ordered.get(&order.hash()).map_or(Duration::MAX, Instant::elapsed);
            match answer.open(&keys.private).ok_or("an answer does not open with the agency's key")? {
                Finding::Place(place) => {
                    found.recordings.push(("location", place.to_vec()));
                    found.places.push((took, place.to_vec()));
                }
                Finding::Intercepted => found.interceptions += 1,
                Finding::NotHere => found.too_late += 1,
            }
        }
        while let Ok(octets) = collector.recv(&mut datagram) {
            let copy = SealedCopy::parse(datagram.get(..octets).unwrap_or_default());
            let packet = copy.ok().and_then(|copy| copy.open(&keys.private));
            let packet = packet.ok_or("a copy does not open with the agency's key")?;
            found.recordings.push(("intercepted packet", packet.iter().take(HEAD_OCTETS).copied().collect()));
            found.packets.push(packet.to_vec());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(found)
}
