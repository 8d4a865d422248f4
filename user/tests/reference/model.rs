//! A UPF of one data network, as simple as it can be: no tables, no bursts, nothing prepared. What it decides on a packet is read off
//! the clauses, and it knows only the sessions that the test puts in.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_gtpu::{GpduHeader, PduSessionInformation};
use whimbrel_ids::{Instant, Qfi, Teid};
use whimbrel_user::{Buffering, Destination, DnIndex, DropReason};

use super::account::{self, Account, Used};
use super::common::{GNB, HELD, SERVER};

/// Ports of the server, of which one at a time may have rules of its own.
pub(crate) const PORTS: [u16; 2] = [5060, 80];

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent(Destination, Vec<u8>),
    Held,
    Dropped(DropReason),
}

/// What FAR 2 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Forward(Teid),
    Buffer {
        /// The SMF is told of the first packet.
        tell: bool,
    },
    Drop,
}

/// Tokens of one direction, in thousandths of a bit.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: u128,
    filled: Instant,
}

impl Bucket {
    /// 200 ms at full rate, and ten packets of 1,500 octets at least.
    fn take(&mut self, now: Instant, kbps: u64, octets: usize) -> bool {
        let (kbps, cost) = (u128::from(kbps), octets as u128 * 8_000);
        let depth = if kbps == 0 { 0 } else { (kbps * 200_000).max(15_000 * 8_000) };
        self.tokens = (self.tokens + kbps * u128::from(now.0 - self.filled.0)).min(depth);
        self.filled = now;
        let passes = self.tokens >= cost;
        self.tokens -= if passes { cost } else { 0 };
        passes
    }
}

/// A QER: every packet that has one passes all that the session has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enforced {
    /// Closed gates, uplink and downlink.
    pub(crate) closed: [bool; 2],
    /// kbit/s of each direction.
    mbr: Option<[u64; 2]>,
    buckets: [Bucket; 2],
}

impl Enforced {
    pub(crate) fn new(now: Instant, mbr: Option<[u64; 2]>) -> Self {
        Self { closed: [false; 2], mbr, buckets: [Bucket { tokens: FULL, filled: now }; 2] }
    }

    pub(crate) fn set_mbr(&mut self, now: Instant, mbr: [u64; 2]) {
        if self.mbr != Some(mbr) {
            *self = Self { closed: self.closed, ..Self::new(now, Some(mbr)) };
        }
    }

    fn take(&mut self, now: Instant, way: usize, octets: usize) -> bool {
        self.mbr.is_none_or(|mbr| self.buckets[way].take(now, mbr[way], octets))
    }
}

/// A session, its rules, and what was counted.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) teid: Teid,
    pub(crate) ue: Ipv4Addr,
    /// Its prefix of 64 bits.
    pub(crate) ue6: Option<Ipv6Addr>,
    /// PDR 1 is for QoS flow 1 alone.
    pub(crate) one_flow: bool,
    /// PDRs 3 and 4, of this port of the server, stand before the others: packets are neither metered nor counted, and of no QoS flow.
    pub(crate) signalling: Option<u16>,
    pub(crate) action: Action,
    pub(crate) qers: Vec<Enforced>,
    pub(crate) accounts: Vec<Account>,
    bounds: Buffering,
    /// Since when, and the packet.
    pub(crate) held: VecDeque<(Instant, Vec<u8>)>,
    notified: bool,
    pub(crate) ul_packets: u64,
    pub(crate) dl_packets: u64,
    pub(crate) dropped: u64,
}

/// What waits in all sessions together: packets and octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) packets: usize,
    pub(crate) octets: usize,
}

/// What a packet led to besides its fate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Not told, but as much of all sessions.
    pub(crate) waiting: Waiting,
    /// Downlink data was reported.
    pub(crate) downlink_data: usize,
    /// Usage was reported.
    pub(crate) usage: Vec<Used>,
}

const FULL: u128 = u64::MAX as u128;

impl Seat {
    pub(crate) fn new(
        teid: Teid,
        ue: Ipv4Addr,
        action: Action,
        qers: Vec<Enforced>,
        bounds: Buffering,
    ) -> Self {
        Self {
            teid,
            ue,
            ue6: None,
            one_flow: false,
            signalling: None,
            action,
            qers,
            accounts: Vec::new(),
            bounds,
            held: VecDeque::new(),
            notified: false,
            ul_packets: 0,
            dl_packets: 0,
            dropped: 0,
        }
    }

    pub(crate) fn set_action(&mut self, action: Action) {
        if self.action != action {
            (self.action, self.notified) = (action, false);
        }
    }

    /// After any change of rules: what is held meets them, in order. What is sent then.
    pub(crate) fn changed(&mut self, now: Instant, told: &mut Told) -> Vec<Fate> {
        let held = self.let_go(told);
        let again = held.into_iter().map(|(since, p)| self.waited(now, since, p, told));
        again.filter(|f| *f != Fate::Held).collect()
    }

    /// Nothing waits any more.
    pub(crate) fn let_go(&mut self, told: &mut Told) -> VecDeque<(Instant, Vec<u8>)> {
        told.waiting.packets -= self.held.len();
        told.waiting.octets -= self.held_octets();
        std::mem::take(&mut self.held)
    }

    fn held_octets(&self) -> usize {
        self.held.iter().map(|(_, p)| p.len()).sum()
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let old = self.held.front().map(|(since, _)| *since + self.bounds.age);
        self.accounts.iter().filter_map(Account::next).chain(old).min()
    }

    /// The time is later than it was.
    pub(crate) fn advanced(&mut self, now: Instant, told: &mut Told) {
        account::advance(&mut self.accounts, now, &mut told.usage);
        while let Some((since, packet)) = self.held.front()
            && now.since(*since) >= self.bounds.age
        {
            told.waiting.packets -= 1;
            told.waiting.octets -= packet.len();
            self.held.pop_front();
            self.dropped += 1;
            self.notified &= !self.held.is_empty();
        }
    }

    /// A phone's packet, of a tunnel of this session and with a container of QoS flow `qfi`, whole.
    pub(crate) fn uplink(&mut self, now: Instant, qfi: u8, inner: Vec<u8>, told: &mut Told) -> Fate {
        let special = self.signalling == Some(ports(&inner)[1]);
        let fate = if is_link_local(&inner) {
            Fate::Dropped(DropReason::LinkScope)
        } else if !special && self.one_flow && qfi != 1 {
            Fate::Dropped(DropReason::QfiMismatch)
        } else if !self.is_own(&inner) {
            Fate::Dropped(DropReason::SpoofedSource)
        } else {
            match self.enforced(now, 0, special, inner.len(), told) {
                Err(reason) => Fate::Dropped(reason),
                Ok(()) => Fate::Sent(Destination::N6 { dn: DnIndex(0) }, inner),
            }
        };
        self.count(0, fate)
    }

    /// A packet of the data network for this phone, whole.
    pub(crate) fn downlink(&mut self, now: Instant, inner: Vec<u8>, told: &mut Told) -> Fate {
        self.waited(now, now, inner, told)
    }

    /// The same of one that has waited.
    fn waited(&mut self, now: Instant, since: Instant, inner: Vec<u8>, told: &mut Told) -> Fate {
        let (octets, all) = (inner.len(), told.waiting);
        let special = self.signalling == Some(ports(&inner)[0]);
        let fate = match self.action {
            Action::Drop => Fate::Dropped(DropReason::FarDrop),
            Action::Buffer { .. } if self.held.len() == HELD => Fate::Dropped(DropReason::BufferFull),
            Action::Buffer { .. }
                if self.held_octets() + octets > self.bounds.octets_per_session as usize =>
            {
                Fate::Dropped(DropReason::BufferOctets)
            }
            Action::Buffer { .. } if all.packets == self.bounds.packets as usize => {
                Fate::Dropped(DropReason::BuffersExhausted)
            }
            Action::Buffer { .. } if all.octets + octets > self.bounds.octets as usize => {
                Fate::Dropped(DropReason::BuffersOctets)
            }
            Action::Buffer { tell } => {
                told.waiting = Waiting { packets: all.packets + 1, octets: all.octets + octets };
                told.downlink_data += usize::from(tell && !self.notified);
                self.notified |= tell;
                self.held.push_back((since, inner));
                Fate::Held
            }
            Action::Forward(gnb) => match self.enforced(now, 1, special, inner.len(), told) {
                Err(reason) => Fate::Dropped(reason),
                Ok(()) => {
                    let flow = Qfi::new(1).filter(|_| !special);
                    let container = flow.map(|qfi| PduSessionInformation::Dl { qfi, rqi: false, ppi: None });
                    let header = GpduHeader::new(gnb, container);
                    let mut octets = vec![0; header.octets_len()];
                    header.write_before(inner.len(), &mut octets).expect("room");
                    Fate::Sent(Destination::N3 { peer: GNB, tos: 0 }, [octets, inner].concat())
                }
            },
        };
        self.count(1, fate)
    }

    /// Whether the source is the phone's: its IPv4 address, or any address of its prefix.
    fn is_own(&self, inner: &[u8]) -> bool {
        match inner[0] >> 4 {
            4 => inner[12..16] == self.ue.octets(),
            _ => self.ue6.is_some_and(|prefix| inner[8..16] == prefix.octets()[..8]),
        }
    }

    fn count(&mut self, way: usize, fate: Fate) -> Fate {
        match fate {
            Fate::Sent(..) if way == 0 => self.ul_packets += 1,
            Fate::Sent(..) => self.dl_packets += 1,
            Fate::Dropped(_) => self.dropped += 1,
            Fate::Held => {}
        }
        fate
    }

    /// Quotas, gates, rates; then the accounts.
    fn enforced(
        &mut self,
        now: Instant,
        way: usize,
        special: bool,
        octets: usize,
        told: &mut Told,
    ) -> Result<(), DropReason> {
        if special {
            return Ok(());
        }
        if self.accounts.iter().any(|a| a.exhausted) {
            return Err(DropReason::QuotaExhausted);
        }
        if self.qers.iter().any(|q| q.closed[way]) {
            return Err(DropReason::GateClosed);
        }
        // Of what one of them refuses, the others take nothing.
        let mut after = self.qers.clone();
        if !after.iter_mut().all(|q| q.take(now, way, octets)) {
            return Err(DropReason::RateExceeded);
        }
        self.qers = after;
        self.accounts.iter_mut().for_each(|a| a.count(now, way, octets as u64));
        account::report(&mut self.accounts, now, &mut told.usage);
        Ok(())
    }
}

/// Source and destination port, behind headers without options.
fn ports(inner: &[u8]) -> [u16; 2] {
    let at = if inner[0] >> 4 == 4 { 20 } else { 40 };
    [at, at + 2].map(|at| u16::from_be_bytes([inner[at], inner[at + 1]]))
}

/// Whether a source address is one of the link alone (fe80::/10).
fn is_link_local(inner: &[u8]) -> bool {
    inner[0] >> 4 == 6 && inner[8] == 0xfe && inner[9] >> 6 == 2
}

/// The far end of every packet, in either family.
pub(crate) fn server() -> (Ipv4Addr, Ipv6Addr) {
    (SERVER, Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1))
}
