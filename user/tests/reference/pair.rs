//! The pipeline and the model side by side: random sessions, rules, changes of rules between packets, and packets in bursts of any
//! size, which may come to the pipeline by way of a fast path.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use super::account::{Account, Used};
use super::common::*;
use super::model::{self, Action, Enforced, Fate, PORTS, Seat, Told, Waiting};
use whimbrel_ids::{Instant, Qfi, Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

/// Phones at once.
pub(crate) const SEATS: usize = 4;

/// The flow that uplink packets are of, where there is one.
const FLOW: Qfi = match Qfi::new(1) {
    Some(qfi) => qfi,
    None => panic!(),
};

/// Bounds that are reached, each now and then.
pub(crate) const BUFFERING: Buffering = Buffering {
    packets_per_session: HELD as u16,
    octets_per_session: 92_000,
    packets: 300,
    octets: 215_000,
    strays: 0,
    age: Duration::from_millis(400),
    early_drop: false,
};

/// What takes bursts to the pipeline.
pub(crate) type Driver = Box<dyn FnMut(&mut Shards, Instant, &mut [Slot])>;

/// What has packets decided on, which is to be as the model says.
pub(crate) type Judge<U> = Box<dyn FnMut(&mut U, Instant, &[Judged])>;

/// Both, side by side.
pub(crate) struct Pair<U: Plane = Upf> {
    pub(crate) net: Net<U>,
    seats: Vec<Option<(Session, Seat)>>,
    pub(crate) told: Told,
    cp_seid: u64,
    both_families: bool,
    /// Numbers of reports that came.
    seen: BTreeSet<u32>,
    judge: Judge<U>,
    /// What is to be counted of all sessions together.
    decided: Decided,
    pub(crate) scope: Scope,
}

/// What a UPF can be asked to show packet for packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) bounds: Buffering,
    /// The model's time is its own.
    pub(crate) times: bool,
    /// What comes from phones and what goes to them comes in one order.
    pub(crate) one_source: bool,
    /// Nothing but our packets comes.
    pub(crate) quiet: bool,
    /// Packets of a burst.
    pub(crate) burst_max: usize,
    /// Some of them are none of any phone's: malformed, or of their link alone. Whose tunnel they came by is looked at closely for a while.
    pub(crate) odd: bool,
}

impl Scope {
    pub(crate) const ALL: Self =
        Self { bounds: BUFFERING, times: true, one_source: true, quiet: true, burst_max: 100, odd: true };
}

/// Packets of all sessions together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decided {
    passed: [u64; 2],
    waiting: Waiting,
    dropped: Vec<u64>,
}

impl Decided {
    fn add(&mut self, fate: &Fate) {
        match fate {
            Fate::Sent(Destination::N3 { .. }, _) => self.passed[1] += 1,
            Fate::Sent(..) => self.passed[0] += 1,
            Fate::Dropped(reason) => self.dropped[*reason as usize] += 1,
            Fate::Held => {}
        }
    }

    /// As a UPF has counted.
    fn of(counters: &Counters, scope: Scope) -> Self {
        let mut it = Self {
            passed: [counters.ul_packets, counters.dl_packets],
            waiting: Waiting { packets: counters.held as usize, octets: counters.held_octets as usize },
            dropped: counters.dropped.to_vec(),
        };
        it.dropped[DropReason::LinkScope as usize] *= u64::from(scope.quiet);
        it
    }
}

/// A packet of a burst: where it is from, its octets, and what the model says of it.
pub(crate) type Judged = (Origin, Vec<u8>, Fate);

/// Compares what each packet became.
fn each(mut driver: Driver) -> Judge<Upf> {
    Box::new(move |upf, now, judged| {
        let slot = |(origin, octets, _): &Judged| {
            let mut packet = Packet::with_room(2048);
            packet.fill(octets);
            Slot { origin: *origin, packet, verdict: Verdict::Pending }
        };
        let mut slots: Vec<_> = judged.iter().map(slot).collect();
        driver(&mut upf.u, now, &mut slots);
        for (slot, (origin, octets, fate)) in slots.iter().zip(judged) {
            let got = match slot.verdict {
                Verdict::Send(to) => Fate::Sent(to, slot.packet.octets().to_vec()),
                Verdict::Drop(reason) => Fate::Dropped(reason),
                Verdict::Taken => Fate::Held,
                Verdict::Pending | Verdict::Hand { .. } => panic!("undecided"),
            };
            assert_eq!(got, *fate, "{origin:?} {octets:02x?}");
        }
    })
}

impl Pair {
    /// With nothing before the pipeline.
    pub(crate) fn new() -> Self {
        Self::of_shards(1)
    }

    /// The same, in so many shards.
    pub(crate) fn of_shards(shards: u8) -> Self {
        Self::made(shards, |_| Box::new(|u, now, slots| u.burst(now, slots)))
    }

    /// With something.
    #[allow(dead_code, reason = "of the fast path in the driver")]
    pub(crate) fn with(driver: impl FnOnce(&mut Shards) -> Driver) -> Self {
        Self::made(1, driver)
    }

    fn made(shards: u8, driver: impl FnOnce(&mut Shards) -> Driver) -> Self {
        let mut config = Config { shards, buffering: BUFFERING, ..config() };
        config.path_failure = Duration::from_secs(1_000_000);
        let mut net = Net::with(config);
        let judge = each(driver(&mut net.upf.u));
        Self::of(net, Scope::ALL, judge)
    }
}

impl<U: Plane> Pair<U> {
    /// With a UPF that has an association and no session.
    pub(crate) fn of(net: Net<U>, scope: Scope, judge: Judge<U>) -> Self {
        Self {
            judge,
            net,
            seats: (0..SEATS).map(|_| None).collect(),
            told: Told::default(),
            cp_seid: 0,
            both_families: false,
            seen: BTreeSet::new(),
            decided: Decided {
                passed: [0; 2],
                waiting: Waiting::default(),
                dropped: vec![0; DropReason::COUNT],
            },
            scope,
        }
    }

    /// With IPv6 too: some phones have both, and packets are of either.
    pub(crate) fn of_both_families(self) -> Self {
        Self { both_families: true, ..self }
    }

    pub(crate) fn establish(&mut self, at: usize, mut n: u16) {
        self.cp_seid += 1;
        if !self.scope.times {
            n = n & 0x3fff | 0x40; // no rates, and no rule for time
        }
        // As our SMF asks for it, or with one QER; the second with rates of its own, or without.
        let (ours, twice_metered) = (n & 0x2000 != 0, n & 0x6000 == 0x6000);
        let asked_for = if ours { smf_establishment } else { establishment };
        let mut m = asked_for(self.cp_seid, true, self.both_families && n & 0x1000 != 0);
        let (one_flow, signalling) = (n & 1 != 0, n & 6 == 6);
        m.create_pdrs[0].pdi.qfis = if one_flow { vec![FLOW] } else { vec![] };
        if signalling {
            for i in 0..2 {
                let mut pdr = m.create_pdrs[i].clone();
                (pdr.pdr_id, pdr.precedence) = (PdrId(3 + i as u16), Precedence(100));
                pdr.pdi.qfis.clear();
                pdr.pdi.sdf_filters = filters(PORTS[0], n);
                (pdr.qer_ids, pdr.urr_ids) = (vec![], vec![]);
                m.create_pdrs.push(pdr);
            }
            // Both from the phone have one tunnel.
            for i in [0, 2] {
                m.create_pdrs[i].pdi.f_teid =
                    Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(1) });
            }
        }
        let mbr = [[1_000_000_000; 2], [64; 2], [0, 1_000_000], [1_000_000_000; 2]][usize::from(n >> 3) % 4];
        let rates = |[ul_kbps, dl_kbps]: [u64; 2]| BitRate { ul_kbps, dl_kbps };
        let mbrs = [(n & 0x40 == 0).then_some(mbr), twice_metered.then_some([200_000, 64])];
        for (qer, mbr) in m.create_qers.iter_mut().zip(mbrs) {
            qer.mbr = mbr.map(rates);
        }
        let qers = mbrs[..m.create_qers.len()].iter().map(|mbr| Enforced::new(self.net.now, *mbr)).collect();
        let limit = |octets: u64| match n & 0x20 == 0 {
            true => total(octets),
            false => Volume { total: Some(octets * 2), ul: Some(octets), dl: Some(octets + 3_000) },
        };
        let threshold = [None, Some(3_000), Some(70_000), Some(90_000)][usize::from(n >> 7) % 4];
        let quota = [None, None, Some(5_000), Some(80_000)][usize::from(n >> 9) % 4];
        let urr = &mut m.create_urrs[0];
        urr.reporting_triggers = ReportingTriggers::VOLTH | ReportingTriggers::VOLQU;
        urr.volume_threshold = threshold.map(limit);
        urr.volume_quota = quota.map(limit);
        let mut accounts = vec![Account {
            id: 1,
            threshold: urr.volume_threshold,
            quota: urr.volume_quota,
            ..Account::default()
        }];
        if n & 0x8000 != 0 {
            accounts.extend(more_accounts(&mut m));
        }
        let r = self.net.establish(m);
        let session = self.net.seated(self.cp_seid, &r);
        let action = Action::Buffer { tell: !ours };
        let mut seat = Seat::new(session.teid, session.ipv4.unwrap(), action, qers, self.scope.bounds);
        (seat.one_flow, seat.signalling, seat.ue6) = (one_flow, signalling.then_some(PORTS[0]), session.ipv6);
        seat.accounts = accounts;
        self.seats[at] = Some((session, seat));
        if n & 0x800 == 0 {
            self.step((1, at as u8, n));
        }
    }

    /// The last usage is what the model has counted.
    pub(crate) fn delete(&mut self, at: usize) {
        let Some((session, mut seat)) = self.seats[at].take() else { return };
        let discarded = seat.let_go(&mut self.told).len();
        self.decided.dropped[DropReason::BufferDiscarded as usize] += discarded as u64;
        let counters = self.net.upf.session_counters(session.id()).expect("counters");
        assert_eq!(
            (counters.ul_packets, counters.dl_packets, counters.dropped),
            (seat.ul_packets, seat.dl_packets, seat.dropped)
        );
        let r = self.net.delete(&session);
        let now = self.net.now;
        let usage: Vec<_> = r.usage_reports.iter().map(Used::of).collect();
        let last = seat.accounts.iter_mut().map(|a| a.report(now, UsageReportTrigger::TERMR));
        assert_eq!(usage, last.collect::<Vec<_>>());
    }

    /// Sends a change of rules; what was held comes out as the model has it.
    fn change(&mut self, at: usize, m: SessionModificationRequest) {
        let Some((session, seat)) = &mut self.seats[at] else { return };
        let fates = seat.changed(self.net.now, &mut self.told);
        let session = session.clone();
        assert_eq!(self.net.modify(&session, m).cause, Cause::RequestAccepted);
        fates.iter().for_each(|fate| self.decided.add(fate));
        let sent: Vec<_> = fates
            .into_iter()
            .filter_map(|f| match f {
                Fate::Sent(to, octets) => Some((to, self.net.upf.as_sent(to, octets))),
                Fate::Held | Fate::Dropped(_) => None,
            })
            .collect();
        let six = session.ipv6.is_some();
        let outputs = self.net.upf.outputs(sent.len()).into_iter();
        let others: Vec<_> = outputs.filter(|(_, octets)| !(six && is_advertisement(octets))).collect();
        assert_eq!(others, sent);
    }

    pub(crate) fn step(&mut self, (what, which, n): (u8, u8, u16)) {
        let at = usize::from(which) % SEATS;
        let now = self.net.now;
        let Some((_, seat)) = &mut self.seats[at] else { return self.establish(at, n) };
        match what % 16 {
            0 if n % 4 == 0 => self.delete(at),
            0..=3 => {
                let teid = Teid(u32::from(n % 3) + 1);
                seat.set_action(Action::Forward(teid));
                self.change(at, activation(teid, GNB.ip()));
            }
            4 => {
                let (action, apply) = if n & 1 == 0 {
                    (Action::Buffer { tell: true }, ApplyAction::BUFF | ApplyAction::NOCP)
                } else {
                    (Action::Drop, ApplyAction::DROP)
                };
                seat.set_action(action);
                let update_fars = vec![UpdateFar { apply_action: Some(apply), ..UpdateFar::new(FarId(2)) }];
                self.change(at, SessionModificationRequest { update_fars, ..Default::default() });
            }
            5 => {
                let gate = |closed| if closed { Gate::Closed } else { Gate::Open };
                let which = usize::from(n >> 4) % seat.qers.len();
                let closed = [n & 3 == 1, n & 12 == 4];
                let mbr = [u64::from(n) * 100, 100_000];
                seat.qers[which].closed = closed;
                let mbr = Some(mbr).filter(|_| self.scope.times);
                mbr.into_iter().for_each(|mbr| seat.qers[which].set_mbr(now, mbr));
                let qer = UpdateQer {
                    gate_status: Some(GateStatus { ul: gate(closed[0]), dl: gate(closed[1]) }),
                    mbr: mbr.map(|[ul_kbps, dl_kbps]| BitRate { ul_kbps, dl_kbps }),
                    ..UpdateQer::new(QerId(1 + which as u32))
                };
                let update_qers = vec![qer];
                self.change(at, SessionModificationRequest { update_qers, ..Default::default() });
            }
            6 => {
                let which = usize::from(n) % seat.accounts.len();
                let account = &mut seat.accounts[which];
                let mut urr = UpdateUrr::new(UrrId(account.id));
                if account.timed {
                    let quota = u32::from(n) % 16 + 1;
                    (urr.time_quota, account.quota_s) = (Some(TimeQuota(quota)), Some(quota.into()));
                } else {
                    let quota = total(u64::from(n) * 2);
                    (urr.volume_quota, account.quota) = (Some(quota), Some(quota));
                }
                account.renew(now);
                let update_urrs = vec![urr];
                self.change(at, SessionModificationRequest { update_urrs, ..Default::default() });
            }
            7 => {
                // Long enough now and then for sessions to be folded again.
                let passed = if n % 8 == 0 { 61_000_000 } else { u64::from(n) * 10 };
                let to = Instant(now.0 + if self.scope.times { passed } else { 0 });
                let next = |it: &Self| it.seats.iter().flatten().filter_map(|(_, seat)| seat.next()).min();
                // What is due on the way is seen to when it is.
                while let Some(at) = next(self).filter(|at| *at < to) {
                    self.advance(at);
                }
                self.advance(to);
            }
            8 if seat.signalling.is_some() => {
                let port = PORTS[usize::from(n >> 2) % 2];
                seat.signalling = Some(port);
                let up = FTeid::given(seat.teid, UPF.into());
                let [up, down] = [(SourceInterface::Access, Some(up)), (SourceInterface::Core, None)]
                    .map(|(from, f_teid)| Pdi { f_teid, sdf_filters: filters(port, n), ..Pdi::from(from) });
                let update = |(id, pdi)| UpdatePdr { pdi: Some(pdi), ..UpdatePdr::new(PdrId(id)) };
                let update_pdrs = [(3, up), (4, down)].map(update).into();
                self.change(at, SessionModificationRequest { update_pdrs, ..Default::default() });
            }
            _ => self.burst(at, u64::from(n) | u64::from(which) << 16),
        }
        self.compare_told();
    }

    /// Some packets at once, half of them of one phone.
    pub(crate) fn burst(&mut self, at: usize, mut random: u64) {
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize
        };
        // What goes one way, where only that comes in one order.
        let one_way = [&[0, 1, 2, 3, 4, 5, 12, 13, 15][..], &[6, 7, 8, 9, 10, 11, 14]][next() % 2];
        let one_way = &one_way[..one_way.len() - usize::from(!self.scope.odd)];
        let one_source = self.scope.one_source;
        let kind = |random: usize| if one_source { random } else { one_way[random % one_way.len()] };
        let judged: Vec<Judged> = (0..=next() % self.scope.burst_max)
            .filter_map(|_| self.judged([[at, next()][next() % 2], kind(next()), next()]))
            .collect();
        judged.iter().for_each(|(_, _, fate)| self.decided.add(fate));
        (self.judge)(&mut self.net.upf, self.net.now, &judged);
        self.compare_counted();
        self.net.upf.settle(self.net.now, &mut self.net.out);
        self.net.upf.outputs(0); // error indications
    }

    /// Packets of a phone, of both families both ways, whatever becomes of them.
    #[allow(dead_code, reason = "of I/O that has to be warm")]
    pub(crate) fn offer(&mut self, at: usize, put: impl FnOnce(&mut U, &[Judged])) {
        let all = [0, 0x100].into_iter().flat_map(|six| [(0, 0x79 | six), (6, 0x79 | six)]);
        let all: Vec<_> = all.filter_map(|(kind, n)| self.judged([at, kind, n])).collect();
        put(&mut self.net.upf, &all);
    }

    /// A session is deleted, whatever it has counted.
    #[allow(dead_code, reason = "of I/O that has to be warm")]
    pub(crate) fn forget(&mut self, at: usize) {
        let Some((session, _)) = self.seats[at].take() else { return };
        self.net.delete(&session);
    }

    fn advance(&mut self, to: Instant) {
        self.net.advance(to);
        for (_, seat) in self.seats.iter_mut().flatten() {
            let before = seat.dropped;
            seat.advanced(to, &mut self.told);
            self.decided.dropped[DropReason::BufferAge as usize] += seat.dropped - before;
        }
    }

    /// A packet, most often one that passes, and what becomes of it.
    fn judged(&mut self, [which, kind, n]: [usize; 3]) -> Option<Judged> {
        let now = self.net.now;
        let (_, seat) = self.seats[which % SEATS].as_mut()?;
        let payload = [0, 40, 1_372, 1_372][n % 4];
        let (port, own) = (PORTS[n >> 3 & 1], 7 + (n >> 9) as u16 % 8);
        let ((server, server6), told) = (model::server(), &mut self.told);
        // Of a phone without IPv6, an address of a prefix that nobody has.
        let nobody = Ipv6Addr::new(0x2001, 0xdb8, 0x45, 0xffff, 0, 0, 0, 0);
        let (six, prefix) = (self.both_families && n & 0x100 != 0, seat.ue6.unwrap_or(nobody));
        let ue6 = |step: u128| Ipv6Addr::from_bits(prefix.to_bits() + (step << 64) + n as u128 % 7);
        let up = |step: u8| match six {
            false => udp4((seat.ue.to_bits() + u32::from(step)).into(), server, (own, port), payload),
            true => udp6(ue6(step.into()), server6, (own, port), payload),
        };
        let down = |ue| match six {
            false => udp4(server, ue, (port, own), payload),
            true => udp6(server6, ue6(0), (port, own), payload),
        };
        let length_at = if six { 21 } else { 19 };
        let network = Origin::N6 { dn: DnIndex(0) };
        Some(match kind % 16 {
            0..=5 => {
                let (inner, qfi) = (up(0), if n & 0x70 == 0 { 2 } else { 1 });
                let mut octets = g_pdu(seat.teid, qfi, &inner);
                if n & 0x80 == 0 {
                    octets.extend_from_slice(&[0xee; 5]); // behind the datagram's own length
                }
                (from_gnb(), octets, seat.uplink(now, qfi, inner, told))
            }
            6..=11 => {
                let inner = down(seat.ue);
                let mut octets = inner.clone();
                if n & 0x80 == 0 {
                    octets.push(0xee); // behind the packet's own length
                }
                let fate = match six && seat.ue6.is_none() {
                    true => Fate::Dropped(DropReason::UnknownUeAddress),
                    false => seat.downlink(now, inner, told),
                };
                (network, octets, fate)
            }
            12 => {
                let inner = up(1);
                (from_gnb(), g_pdu(seat.teid, 1, &inner), seat.uplink(now, 1, inner, told))
            }
            13 => {
                let octets = g_pdu(Teid(seat.teid.0 ^ 1 << 31), 1, &up(0));
                (from_gnb(), octets, Fate::Dropped(DropReason::UnknownTunnel))
            }
            14 => {
                let octets = match six {
                    false => down("10.45.0.7".parse().ok()?),
                    true => udp6(server6, nobody, (port, 7), payload),
                };
                (network, octets, Fate::Dropped(DropReason::UnknownUeAddress))
            }
            _ if self.both_families && n & 3 == 3 => {
                let inner = udp6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), server6, (7, port), payload);
                (from_gnb(), g_pdu(seat.teid, 1, &inner), seat.uplink(now, 1, inner, told))
            }
            _ if n & 1 == 0 => {
                let mut octets = g_pdu(seat.teid, 1, &up(0));
                octets[length_at] = octets[length_at].wrapping_add(1); // the inner packet is longer than it is
                (from_gnb(), octets, Fate::Dropped(DropReason::InnerMalformed))
            }
            _ => {
                let mut octets = g_pdu(seat.teid, 1, &up(0));
                octets.truncate(n % octets.len());
                (from_gnb(), octets, Fate::Dropped(DropReason::GtpuMalformed))
            }
        })
    }

    /// What was counted of all sessions together is what the model has.
    fn compare_counted(&mut self) {
        self.decided.waiting = self.told.waiting;
        let Self { net, decided, scope, .. } = self;
        decided.dropped[DropReason::LinkScope as usize] *= u64::from(scope.quiet);
        let counters = net.upf.counters(&|c| Decided::of(c, *scope) == *decided);
        assert_eq!(Decided::of(&counters, *scope), *decided);
    }

    /// What the SMF was told is what the model has; each report is answered.
    pub(crate) fn compare_told(&mut self) {
        let (mut downlink_data, mut usage) = (0, Vec::new());
        loop {
            let reports = self.net.reports();
            if reports.is_empty() {
                break;
            }
            for (seid, sequence, m) in reports {
                // What was answered late came several times, under one number.
                let new = self.seen.insert(sequence);
                downlink_data += usize::from(new && m.downlink_data_report.is_some());
                usage.extend(m.usage_reports.iter().filter(|_| new).map(Used::of));
                let up = self.seats.iter().flatten().find(|(s, _)| s.cp_seid == seid);
                let up = up.map_or(Seid(0), |(s, _)| s.up_seid);
                let answer = Message::from(SessionReportResponse::new(Cause::RequestAccepted));
                let octets = answer.to_octets(Some(up), sequence);
                assert!(Frame::parse(&octets).is_ok());
                self.net.upf.pfcp(self.net.now, &octets, &mut self.net.out);
            }
        }
        let told = std::mem::take(&mut self.told);
        self.told.waiting = told.waiting;
        self.compare_counted();
        assert_eq!(downlink_data, told.downlink_data);
        let sorted = |mut v: Vec<Used>| {
            v.sort_by_key(|used| format!("{used:?}"));
            v
        };
        assert_eq!(sorted(usage), sorted(told.usage));
    }
}

/// A packet of UDP over IPv6.
fn udp6(source: Ipv6Addr, destination: Ipv6Addr, ports: (u16, u16), payload: usize) -> Vec<u8> {
    let mut udp: Vec<_> =
        [ports.0, ports.1, 8 + payload as u16, 0].into_iter().flat_map(u16::to_be_bytes).collect();
    udp.resize(8 + payload, 0xab);
    ipv6(source, destination, 17, &udp)
}

/// Whether it is a router advertisement for a phone (RFC 4861 §4.2), which other tests judge.
fn is_advertisement(octets: &[u8]) -> bool {
    let (_, _, inner) = at_gnb(octets);
    inner[0] >> 4 == 6 && inner[6] == 58 && inner[40] == 134
}

/// Filters of a port of the server: one, or one among several, of which there are now more than are asked one after the other.
fn filters(port: u16, n: u16) -> Vec<SdfFilter> {
    let ports = (20_000..20_000 + [0, 1, 15, 15][usize::from(n) % 4]).chain([port]);
    ports.map(|p| SdfFilter::flow(&format!("permit out 17 from any {p} to assigned"))).collect()
}

fn total(octets: u64) -> Volume {
    Volume { total: Some(octets), ..Volume::default() }
}

/// Two URRs more: one linked to the first, with limits by direction, and one of time.
fn more_accounts(m: &mut SessionEstablishmentRequest) -> [Account; 2] {
    let threshold = Volume { ul: Some(4_000), dl: Some(60_000), total: None };
    let triggers = ReportingTriggers::VOLTH | ReportingTriggers::LIUSA;
    let mut octets = CreateUrr::new(UrrId(2), MeasurementMethod::VOLUM, triggers);
    (octets.volume_threshold, octets.linked_urr_ids) = (Some(threshold), vec![UrrId(1)]);
    let triggers = ReportingTriggers::TIMTH | ReportingTriggers::TIMQU;
    let mut time = CreateUrr::new(UrrId(3), MeasurementMethod::DURAT, triggers);
    (time.time_threshold, time.time_quota) = (Some(TimeThreshold(2)), Some(TimeQuota(7)));
    m.create_urrs.extend([octets, time]);
    for pdr in m.create_pdrs.iter_mut().filter(|pdr| !pdr.urr_ids.is_empty()) {
        pdr.urr_ids = vec![UrrId(1), UrrId(2), UrrId(3)];
    }
    [
        Account { id: 2, threshold: Some(threshold), linked_to: Some(1), ..Account::default() },
        Account { id: 3, timed: true, threshold_s: Some(2), quota_s: Some(7), ..Account::default() },
    ]
}
