//! A UPF of one data network, as simple as it can be: no tables, no bursts, nothing prepared. What it decides on a packet is read off
//! the clauses, and it knows only the sessions that the test puts in.

#[path = "rates.rs"]
mod rates;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use whimbrel_gtpu::{GpduHeader, PduSessionInformation, message_type};
use whimbrel_ids::{Instant, Qfi, Teid};
use whimbrel_user::{Buffering, Destination, DnIndex, DropReason, UNKNOWN_PEER_PACKETS_PER_SESSION_MAX};

use super::account::{self, Account, Used};
use super::common::{HELD, SERVER, UPF};
pub(crate) use rates::{Enforced, Slice, WINDOW_MS};

/// Ports of the server, of which one at a time may have rules of its own.
pub(crate) const PORTS: [u16; 2] = [5060, 80];
/// The one of the flow beside the default one, and that flow's QER.
pub(crate) const FLOW_PORT: u16 = 443;
pub(crate) const FLOW_QER: u32 = 9;

/// A tunnel's end at a gNB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunnel {
    pub(crate) teid: Teid,
    pub(crate) gnb: SocketAddr,
    /// Type of service of the outer header.
    pub(crate) tos: u8,
}

impl Tunnel {
    /// The message that says that nothing more comes by it.
    pub(crate) fn end(self) -> Fate {
        let [a, b, c, d] = self.teid.0.to_be_bytes();
        Fate::Relayed(self.to(), vec![0x30, message_type::END_MARKER, 0, 0, a, b, c, d])
    }

    fn to(self) -> Destination {
        Destination::N3 { peer: self.gnb, tos: self.tos }
    }

    /// Whether it ends at the same place.
    fn is(self, other: Self) -> bool {
        (self.teid, self.gnb) == (other.teid, other.gnb)
    }
}

/// A UE's packet, and the port of its server, if it is known.
#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) octets: Vec<u8>,
    pub(crate) server: Option<u16>,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent(Destination, Vec<u8>),
    /// Sent, though it is no packet of the session's.
    Relayed(Destination, Vec<u8>),
    Held,
    Dropped(DropReason),
}

/// What FAR 2 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Forward(Tunnel),
    Buffer {
        /// The first packet is reported to the SMF.
        notify: bool,
    },
    Drop,
}

/// A QoS flow beside the default one: packets of [`FLOW_PORT`], by QoS flow 2.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// The QERs of its rules.
    pub(crate) qers: Vec<u32>,
    /// Its packets count as all others do.
    pub(crate) counted: bool,
}

/// Which rules a packet meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Flow,
    Signalling,
    Default,
}

/// Where a UE is expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) tunnel: Tunnel,
    /// An end marker goes to its source when it has come.
    pub(crate) marker: bool,
    pub(crate) since: Instant,
}

impl Awaited {
    /// Until the filter of its period is needed again, of eight of 625 ms.
    fn stands(&self, now: Instant) -> bool {
        now.0 / 625_000 < self.since.0 / 625_000 + 8
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
    pub(crate) flow: Option<Flow>,
    /// A tunnel for what its gNB forwards to another one's; and one that was.
    pub(crate) relay: Option<(Teid, Tunnel)>,
    pub(crate) was_relay: Option<Teid>,
    /// It is of the slice that has a rate.
    pub(crate) sliced: bool,
    /// Of the default flow: reflective QoS, and the paging policy.
    pub(crate) marks: (bool, Option<u8>),
    /// FAR 1 drops.
    pub(crate) uplink_dropped: bool,
    pub(crate) action: Action,
    /// Where its packets went last, though they may wait now.
    tunnel: Option<Tunnel>,
    pub(crate) awaited: Option<Awaited>,
    pub(crate) qers: Vec<Enforced>,
    pub(crate) accounts: Vec<Account>,
    bounds: Buffering,
    /// Since when, and the packet.
    pub(crate) held: VecDeque<(Instant, Inner)>,
    notified: bool,
    /// Since when packets wait that came from an address that nothing names.
    pub(crate) unplaced: Vec<Instant>,
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

/// What a packet leads to besides its fate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// Not reported: what waits in all sessions.
    pub(crate) waiting: Waiting,
    /// Not reported either: the rate of the slice that has one.
    pub(crate) slice: Option<Slice>,
    /// Packets that waited were dropped for others, by these bounds.
    pub(crate) gave_way: Vec<DropReason>,
    /// Downlink data was reported.
    pub(crate) downlink_data: usize,
    /// Usage was reported.
    pub(crate) usage: Vec<Used>,
}

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
            flow: None,
            relay: None,
            was_relay: None,
            sliced: false,
            marks: (false, None),
            uplink_dropped: false,
            action,
            tunnel: None,
            awaited: None,
            qers,
            accounts: Vec::new(),
            bounds,
            held: VecDeque::new(),
            notified: false,
            unplaced: Vec::new(),
            ul_packets: 0,
            dl_packets: 0,
            dropped: 0,
        }
    }

    /// What it is asked to do with packets from now on; the end of the tunnel that they do not take any more, if it is requested.
    pub(crate) fn set_action(&mut self, action: Action, marker: bool) -> Option<Fate> {
        if self.action != action {
            (self.action, self.notified) = (action, false);
        }
        let Action::Forward(tunnel) = action else { return None };
        let before = self.tunnel.replace(tunnel);
        before.filter(|before| marker && !before.is(tunnel)).map(Tunnel::end)
    }

    /// A packet of the UE comes by way of this gNB: if it is expected there, its rules begin. What is sent then.
    pub(crate) fn comes_by(&mut self, now: Instant, gnb: SocketAddr, reports: &mut Reports) -> Vec<Fate> {
        let Some(awaited) = self.awaited else { return Vec::new() };
        if !awaited.stands(now) {
            self.awaited = None;
        }
        if !awaited.stands(now) || awaited.tunnel.gnb != gnb || self.tunnel.is_some_and(|t| t.gnb == gnb) {
            return Vec::new();
        }
        self.awaited = None;
        let end = self.set_action(Action::Forward(awaited.tunnel), awaited.marker);
        end.into_iter().chain(self.changed(now, reports)).collect()
    }

    /// After any change of rules: what is held meets them, in order. What is sent then.
    pub(crate) fn changed(&mut self, now: Instant, reports: &mut Reports) -> Vec<Fate> {
        let held = self.take_held(reports);
        let again = held.into_iter().map(|(since, p)| self.waited(now, since, p, reports));
        again.filter(|f| *f != Fate::Held).collect()
    }

    /// Takes all packets that wait.
    pub(crate) fn take_held(&mut self, reports: &mut Reports) -> VecDeque<(Instant, Inner)> {
        reports.waiting.packets -= self.held.len();
        reports.waiting.octets -= self.held_octets();
        std::mem::take(&mut self.held)
    }

    /// The UPF goes on as another process: what it held is gone, and the next packet is reported as the first. What was predicted may come again
    /// for as long as at first; the end marker that was to be sent then is not known any more.
    #[allow(dead_code, reason = "of UPFs that keep a state")]
    pub(crate) fn restarted(&mut self, now: Instant, reports: &mut Reports) {
        self.take_held(reports);
        self.notified = false;
        self.unplaced.clear();
        self.awaited =
            self.awaited.filter(|a| a.stands(now)).map(|a| Awaited { since: now, marker: false, ..a });
    }

    fn held_octets(&self) -> usize {
        self.held.iter().map(|(_, p)| p.octets.len()).sum()
    }

    /// When something is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let old = self.held.front().map(|(since, _)| *since + self.bounds.age);
        self.accounts.iter().filter_map(Account::next).chain(old).min()
    }

    /// The time is later than it was.
    pub(crate) fn advanced(&mut self, now: Instant, reports: &mut Reports) {
        account::advance(&mut self.accounts, now, &mut reports.usage);
        while let Some((since, packet)) = self.held.front()
            && now.since(*since) >= self.bounds.age
        {
            reports.waiting.packets -= 1;
            reports.waiting.octets -= packet.octets.len();
            self.held.pop_front();
            self.dropped += 1;
            self.notified &= !self.held.is_empty();
        }
    }

    /// The rules of a packet whose server has this port, or shows none; a UE's is of a QoS flow. Errors: no rule is for both.
    fn met(&self, port: Option<u16>, qfi: Option<u8>) -> Result<Met, DropReason> {
        let of = |flow: u8| qfi.is_none_or(|qfi| qfi == flow);
        match port {
            Some(FLOW_PORT) if self.flow.is_some() && of(2) => Ok(Met::Flow),
            Some(port) if self.signalling == Some(port) => Ok(Met::Signalling),
            _ if self.one_flow && !of(1) => Err(DropReason::QfiMismatch),
            _ => Ok(Met::Default),
        }
    }

    /// A UE's packet, of a tunnel of this session and with a container of QoS flow `qfi`, whole.
    pub(crate) fn uplink(&mut self, now: Instant, qfi: u8, inner: Inner, reports: &mut Reports) -> Fate {
        let Inner { octets, server } = inner;
        let met = self.met(server, Some(qfi));
        let fate = match met {
            _ if is_link_local(&octets) => Fate::Dropped(DropReason::LinkScope),
            Err(reason) => Fate::Dropped(reason),
            Ok(_) if !self.is_own(&octets) => Fate::Dropped(DropReason::SpoofedSource),
            Ok(_) if self.uplink_dropped => Fate::Dropped(DropReason::FarDrop),
            Ok(_) if let Some(reason) = denied(&octets) => Fate::Dropped(reason),
            Ok(met) => match self.enforced(now, 0, met, octets.len(), reports) {
                Err(reason) => Fate::Dropped(reason),
                Ok(()) => Fate::Sent(Destination::N6 { dn: DnIndex(0) }, octets),
            },
        };
        self.count(0, fate)
    }

    /// The same from an address that nothing names: it waits for that, among a few.
    pub(crate) fn foreign(&mut self, now: Instant) -> Fate {
        if self.unplaced.len() == UNKNOWN_PEER_PACKETS_PER_SESSION_MAX {
            return Fate::Dropped(DropReason::GtpuForeignPeer);
        }
        self.unplaced.push(now);
        Fate::Held
    }

    /// A packet of the data network for this UE, whole.
    pub(crate) fn downlink(&mut self, now: Instant, inner: Inner, reports: &mut Reports) -> Fate {
        self.waited(now, now, inner, reports)
    }

    /// The same of one that has waited.
    fn waited(&mut self, now: Instant, since: Instant, inner: Inner, reports: &mut Reports) -> Fate {
        let octets = inner.octets.len();
        let fate = match self.action {
            Action::Drop => Fate::Dropped(DropReason::FarDrop),
            Action::Buffer { notify } => match self.kept(&inner, reports) {
                Err(reason) => Fate::Dropped(reason),
                Ok(()) => {
                    reports.waiting.packets += 1;
                    reports.waiting.octets += octets;
                    reports.downlink_data += usize::from(notify && !self.notified);
                    self.notified |= notify;
                    self.held.push_back((since, inner));
                    Fate::Held
                }
            },
            Action::Forward(tunnel) => match self.met(inner.server, None) {
                Err(reason) => Fate::Dropped(reason),
                Ok(met) => match self.enforced(now, 1, met, octets, reports) {
                    Err(reason) => Fate::Dropped(reason),
                    Ok(()) => Fate::Sent(tunnel.to(), to_gnb(tunnel, met, self.marks, inner.octets)),
                },
            },
        };
        self.count(1, fate)
    }

    /// Whether there is room for a packet to wait. For one of a guaranteed flow others of the session give way, the newest first.
    fn kept(&mut self, inner: &Inner, reports: &mut Reports) -> Result<(), DropReason> {
        while let Err(reason) = self.room(inner.octets.len(), reports.waiting) {
            let other = self.held.iter().rposition(|(_, p)| !self.is_promised(p));
            let Some(at) = other.filter(|_| self.is_promised(inner)) else { return Err(reason) };
            let (_, packet) = self.held.remove(at).expect("a packet");
            reports.waiting.packets -= 1;
            reports.waiting.octets -= packet.octets.len();
            reports.gave_way.push(reason);
            self.dropped += 1;
        }
        Ok(())
    }

    fn room(&self, octets: usize, all: Waiting) -> Result<(), DropReason> {
        let bounds = &self.bounds;
        if self.held.len() == HELD {
            Err(DropReason::BufferFull)
        } else if self.held_octets() + octets > bounds.octets_per_session as usize {
            Err(DropReason::BufferOctets)
        } else if all.packets == bounds.packets as usize {
            Err(DropReason::BuffersExhausted)
        } else if all.octets + octets > bounds.octets as usize {
            Err(DropReason::BuffersOctets)
        } else {
            Ok(())
        }
    }

    /// Whether a rate is guaranteed to a packet for the UE.
    fn is_promised(&self, inner: &Inner) -> bool {
        let Some(flow) = self.flow.as_ref().filter(|_| self.met(inner.server, None) == Ok(Met::Flow)) else {
            return false;
        };
        self.qers.iter().any(|q| flow.qers.contains(&q.id) && q.promises(1))
    }

    /// Whether the source is the UE's: its IPv4 address, or any address of its prefix.
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
            Fate::Held | Fate::Relayed(..) => {}
        }
        fate
    }

    /// Quotas, gates, rates, the slice's last; then the accounts.
    fn enforced(
        &mut self,
        now: Instant,
        way: usize,
        met: Met,
        octets: usize,
        reports: &mut Reports,
    ) -> Result<(), DropReason> {
        let flow = self.flow.as_ref().filter(|_| met == Met::Flow);
        let has = |q: &Enforced| match met {
            Met::Signalling => false,
            Met::Default => q.id != FLOW_QER,
            Met::Flow => flow.is_some_and(|f| f.qers.contains(&q.id)),
        };
        let counted = met != Met::Signalling && flow.is_none_or(|f| f.counted);
        if counted && self.accounts.iter().any(|a| a.exhausted) {
            return Err(DropReason::QuotaExhausted);
        }
        if self.qers.iter().any(|q| has(q) && q.closed[way]) {
            return Err(DropReason::GateClosed);
        }
        // Of what one of them refuses, the others take nothing.
        let mut after = self.qers.clone();
        if !after.iter_mut().filter(|q| has(q)).all(|q| q.take(now, way, octets)) {
            return Err(DropReason::RateExceeded);
        }
        if let Some(slice) = reports.slice.as_mut().filter(|_| self.sliced) {
            let guaranteed = after.iter_mut().filter(|q| has(q)).any(|q| q.guarantees(now, way, octets));
            if !slice.take(now, way, octets, guaranteed) {
                return Err(DropReason::SliceRateExceeded);
            }
        }
        self.qers = after;
        if counted {
            self.accounts.iter_mut().for_each(|a| a.count(now, way, octets as u64));
            account::report(&mut self.accounts, now, &mut reports.usage);
        }
        Ok(())
    }
}

/// How long a packet waits for its gNB to be named.
pub(crate) const UNPLACED_AGE: Duration = Duration::from_millis(500);

/// An address of the UPF's host, which UEs do not reach; one of a denied network, which they do.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
pub(crate) const PERMITTED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 53);

/// Why a UE's packet may not go where it is to go: to the UPF itself or its host, to another UE, to a denied network, to none at all.
fn denied(inner: &[u8]) -> Option<DropReason> {
    let to: IpAddr = match inner[0] >> 4 {
        4 => <[u8; 4]>::try_from(&inner[16..20]).unwrap().into(),
        _ => <[u8; 16]>::try_from(&inner[24..40]).unwrap().into(),
    };
    match to {
        IpAddr::V4(PERMITTED) => None,
        IpAddr::V4(a) if a == UPF => Some(DropReason::UeToCore),
        IpAddr::V4(HOST) => Some(DropReason::UeToHost),
        IpAddr::V4(a) if a.is_loopback() => Some(DropReason::LinkScope),
        IpAddr::V4(a) if a.octets()[..2] == [10, 45] => Some(DropReason::UeToUe),
        IpAddr::V4(a) if a.octets()[..3] == [198, 51, 100] => Some(DropReason::UeToDenied),
        // An address that a NAT64 translates to the UPF's (RFC 6052).
        IpAddr::V6(a) if a.segments()[..2] == [0x64, 0xff9b] => Some(DropReason::UeToCore),
        IpAddr::V6(a) if a.to_ipv4_mapped().is_some() => Some(DropReason::LinkScope),
        IpAddr::V6(a) if a.segments()[..3] == [0x2001, 0xdb8, 0x45] => Some(DropReason::UeToUe),
        IpAddr::V6(a) if a.segments()[..3] == [0x2001, 0xdb8, 0x66] => Some(DropReason::UeToDenied),
        _ => None,
    }
}

/// What a gNB is sent: the UE's packet with its QoS flow, if it is of one.
fn to_gnb(tunnel: Tunnel, met: Met, marks: (bool, Option<u8>), inner: Vec<u8>) -> Vec<u8> {
    let (flow, (rqi, ppi)) = match met {
        Met::Signalling => (None, (false, None)),
        Met::Default => (Qfi::new(1), marks),
        Met::Flow => (Qfi::new(2), (false, None)),
    };
    let container = flow.map(|qfi| PduSessionInformation::Dl { qfi, rqi, ppi });
    let header = GpduHeader::new(tunnel.teid, container);
    let mut octets = vec![0; header.octets_len()];
    header.write_before(inner.len(), &mut octets).expect("room");
    [octets, inner].concat()
}

/// Whether a source address is one of the link alone (fe80::/10).
fn is_link_local(inner: &[u8]) -> bool {
    inner[0] >> 4 == 6 && inner[8] == 0xfe && inner[9] >> 6 == 2
}

/// The far end of every packet, in either family.
pub(crate) fn server() -> (Ipv4Addr, Ipv6Addr) {
    (SERVER, Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1))
}
