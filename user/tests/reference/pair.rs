//! The pipeline and the model side by side: random sessions, rules, changes of rules between packets, and packets in bursts of any
//! size, which may come to the pipeline by way of a fast path.

#[path = "steps.rs"]
mod steps;
#[path = "traffic.rs"]
mod traffic;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::account::{Account, Used};
use super::common::*;
use super::model::{
    Action, Enforced, Fate, HOST, PERMITTED, PORTS, Reports, Seat, Slice, UNPLACED_AGE, WINDOW_MS, Waiting,
};
#[allow(unused_imports, reason = "of captures")]
pub(crate) use steps::is_change;
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{Instant, Qfi, SNssai, Seid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

/// UEs at once.
pub(crate) const SEATS: usize = 4;

/// The flow that uplink packets are of, where there is one.
const FLOW: Qfi = match Qfi::new(1) {
    Some(qfi) => qfi,
    None => panic!(),
};

/// The gNB to which UEs are expected to come.
const TARGET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10)), 2152);

/// Whoever is there is no gNB: nothing names it.
const FOREIGN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)), 2152);

/// Where the gNBs are, so that their packets are taken before a session names one; and where the core listens.
pub(crate) fn isolation() -> Isolation {
    Isolation {
        core: vec![CoreEndpoint { address: UPF.into(), protocol: 17, port: 2152 }],
        deny: [("198.51.100.0", 24), ("2001:db8:66::", 48)]
            .map(|(address, prefix)| IpNetwork { address: address.parse().unwrap(), prefix })
            .into(),
        allow: vec![format!("permit in 17 from any to {PERMITTED}").parse().unwrap()],
        gnb_networks: vec![IpNetwork { address: GNB.ip(), prefix: 30 }],
        ..Isolation::default()
    }
}

/// The slice whose rate is reached now and then; that of other sessions has none.
pub(crate) const SLICE: SliceRate = SliceRate { slice: SNssai::sst(2), ul_kbps: 4_000, dl_kbps: 8_000 };

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
pub(crate) type Driver = Box<dyn FnMut(&mut Shards, Instant, &mut [BurstPacket])>;

/// What has packets decided on, which is to be as the model says.
pub(crate) type Judge<U> = Box<dyn FnMut(&mut U, Instant, &[Judged])>;

/// Both, side by side.
pub(crate) struct Pair<U: Plane = Upf> {
    pub(crate) net: Net<U>,
    seats: Vec<Option<(Session, Seat)>>,
    pub(crate) reports: Reports,
    cp_seid: u64,
    both_families: bool,
    /// Numbers of reports that came.
    seen: BTreeSet<u32>,
    judge: Judge<U>,
    /// What is to be counted of all sessions together.
    decided: Decided,
    /// Packets so far that came in fragments.
    fragments: u16,
    /// What is to go on because a UE came while packets did.
    drained: Vec<Fate>,
    pub(crate) scope: Scope,
}

/// What a UPF can be asked to show packet for packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) bounds: Buffering,
    /// The model's time is its own.
    pub(crate) times: bool,
    /// What comes from UEs and what goes to them comes in one order.
    pub(crate) one_source: bool,
    /// Nothing but our packets comes.
    pub(crate) quiet: bool,
    /// Packets of a burst.
    pub(crate) burst_max: usize,
    /// Some of them are none of any UE's: malformed, or of their link alone. Whose tunnel they came by is looked at closely for a while.
    pub(crate) odd: bool,
    /// UEs are expected at another gNB, and come.
    pub(crate) predicts: bool,
    /// Sessions share the rate of their slice, so it counts whose packet is first.
    pub(crate) sliced: bool,
    /// With packets that links of tests do not carry, and rules whose effect is not seen behind a link: type of service of outer headers.
    pub(crate) wide: bool,
    /// Each session has a network behind its UE, to which no packet goes: so none is plain, and the stages decide on every packet.
    pub(crate) stages_only: bool,
    /// Of most sessions the rules are such that they are plain: of all rules together few are.
    pub(crate) mostly_plain: bool,
}

impl Scope {
    pub(crate) const ALL: Self = Self {
        bounds: BUFFERING,
        times: true,
        one_source: true,
        quiet: true,
        burst_max: 100,
        odd: true,
        predicts: true,
        sliced: true,
        wide: true,
        stages_only: false,
        mostly_plain: false,
    };
}

/// Packets of all sessions together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decided {
    passed: [u64; 2],
    /// What gNBs forward, and end markers.
    relayed: u64,
    waiting: Waiting,
    dropped: Vec<u64>,
}

impl Decided {
    fn none() -> Self {
        Self { passed: [0; 2], relayed: 0, waiting: Waiting::default(), dropped: vec![0; DropReason::COUNT] }
    }

    fn add(&mut self, fate: &Fate) {
        match fate {
            Fate::Sent(Destination::N3 { .. }, _) => self.passed[1] += 1,
            Fate::Sent(..) => self.passed[0] += 1,
            Fate::Relayed(..) => self.relayed += 1,
            Fate::Dropped(reason) => self.dropped[*reason as usize] += 1,
            Fate::Held => {}
        }
    }

    /// As a UPF has counted.
    fn of(counters: &Counters, scope: Scope) -> Self {
        let mut it = Self {
            passed: [counters.ul_packets, counters.dl_packets],
            relayed: counters.relayed + counters.end_markers_relayed + counters.end_markers_sent,
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
            BurstPacket { origin: *origin, packet, verdict: PacketVerdict::Pending }
        };
        let mut slots: Vec<_> = judged.iter().map(slot).collect();
        driver(&mut upf.u, now, &mut slots);
        for (slot, (origin, octets, fate)) in slots.iter().zip(judged) {
            let got = match slot.verdict {
                PacketVerdict::Send(to) => Fate::Sent(to, slot.packet.octets().to_vec()),
                PacketVerdict::Drop(reason) => Fate::Dropped(reason),
                PacketVerdict::Taken => Fate::Held,
                PacketVerdict::Pending | PacketVerdict::Hand { .. } => panic!("undecided"),
            };
            let fate = match fate.clone() {
                Fate::Relayed(to, octets) => Fate::Sent(to, octets),
                other => other,
            };
            assert_eq!(got, fate, "{origin:?} {octets:02x?}");
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

    /// The same sessions and packets, on which the stages alone decide.
    pub(crate) fn of_stages() -> Self {
        let pair = Self::new();
        Self { scope: Scope { stages_only: true, ..pair.scope }, ..pair }
    }

    /// A pair whose driver is made by a function.
    #[allow(dead_code, reason = "of the fast path in the driver")]
    pub(crate) fn with(driver: impl FnOnce(&mut Shards) -> Driver) -> Self {
        Self::made(1, driver)
    }

    /// Of a UPF that keeps its sessions in a state.
    #[allow(dead_code, reason = "of UPFs that keep a state")]
    pub(crate) fn keeping_state(shards: u8, memory: &Memory) -> Self {
        let mut out = Outbox::default();
        let (upf, _) = with_state(Self::config(shards), START, memory, &mut out);
        let mut net = Net::on(upf);
        net.associate();
        let judge = each(Box::new(|u, now, slots| u.burst(now, slots)));
        net.upf.u.set_host_addresses([IpNetwork::host(HOST.into())].into_iter().collect());
        Self::of(net, Scope::ALL, judge)
    }

    /// The UPF dies, after what it had counted was written, and another one goes on with its state.
    #[allow(dead_code, reason = "of UPFs that keep a state")]
    pub(crate) fn restart(&mut self, shards: u8, memory: &Memory) {
        let now = self.net.now;
        self.net.upf.keep_all_counted(now, &mut self.net.out);
        let (upf, restored) = with_state(Self::config(shards), now, memory, &mut self.net.out);
        assert_eq!((restored.sessions, restored.lost), (self.seats.iter().flatten().count(), 0));
        self.net.upf = upf;
        self.net.upf.u.set_host_addresses([IpNetwork::host(HOST.into())].into_iter().collect());
        assert_eq!(self.net.upf.outputs(0), [], "UEs have their advertisements");
        for (_, seat) in self.seats.iter_mut().flatten() {
            seat.restarted(now, &mut self.reports);
        }
        self.reports.slice = self.scope.sliced.then(|| Slice::new(now, [SLICE.ul_kbps, SLICE.dl_kbps]));
        // The counters of all sessions together begin at zero.
        self.decided = Decided::none();
    }

    fn config(shards: u8) -> Config {
        let path_failure = Duration::from_secs(1_000_000);
        let (slices, isolation) = (vec![SLICE], isolation());
        Config { shards, buffering: BUFFERING, slices, isolation, path_failure, ..config() }
    }

    fn made(shards: u8, driver: impl FnOnce(&mut Shards) -> Driver) -> Self {
        let mut net = Net::with(Self::config(shards));
        let judge = each(driver(&mut net.upf.u));
        net.upf.u.set_host_addresses([IpNetwork::host(HOST.into())].into_iter().collect());
        Self::of(net, Scope::ALL, judge)
    }
}

impl<U: Plane> Pair<U> {
    /// With a UPF that has an association and no session.
    pub(crate) fn of(net: Net<U>, scope: Scope, judge: Judge<U>) -> Self {
        let slice = scope.sliced.then(|| Slice::new(START, [SLICE.ul_kbps, SLICE.dl_kbps]));
        Self {
            judge,
            net,
            seats: (0..SEATS).map(|_| None).collect(),
            reports: Reports { slice, ..Reports::default() },
            cp_seid: 0,
            both_families: false,
            seen: BTreeSet::new(),
            decided: Decided::none(),
            fragments: 0,
            drained: Vec::new(),
            scope,
        }
    }

    /// Most sessions are such as are plain, where they may be.
    pub(crate) fn mostly_plain(self) -> Self {
        Self { scope: Scope { mostly_plain: true, ..self.scope }, ..self }
    }

    /// With IPv6 too: some UEs have both, and packets are of either.
    pub(crate) fn of_both_families(self) -> Self {
        Self { both_families: true, ..self }
    }

    /// Whether the newest session is one of those that are to be plain.
    fn is_to_be_plain(&self) -> bool {
        self.scope.mostly_plain && !self.cp_seid.is_multiple_of(8)
    }

    pub(crate) fn establish(&mut self, at: usize, mut n: u16) {
        self.cp_seid += 1;
        if !self.scope.times {
            n = n & 0x3fff | 0x40; // no rates, and no rule for time
        }
        if self.is_to_be_plain() {
            n &= !0x8006; // no rules for ports, one URR
            n |= if n & 0x180 == 0x080 { 0x100 } else { 0 }; // limits are far
            n |= if n & 0x600 == 0x400 { 0x200 } else { 0 };
        }
        // As our SMF asks for it, or with one QER; the second with rates of its own, or without.
        let (ours, twice_metered) = (n & 0x2000 != 0, n & 0x6000 == 0x6000);
        let asked_for = if ours { smf_establishment } else { establishment };
        let mut m = asked_for(self.cp_seid, true, self.both_families && n & 0x1000 != 0);
        let (one_flow, signalling) = (n & 1 != 0, n & 6 == 6);
        let sliced = self.scope.sliced && self.cp_seid.is_multiple_of(4) && !self.is_to_be_plain();
        m.s_nssai = if sliced { Some(SLICE.slice) } else { m.s_nssai };
        m.create_pdrs[0].pdi.qfis = if one_flow { vec![FLOW] } else { vec![] };
        if signalling {
            for i in 0..2 {
                let mut pdr = m.create_pdrs[i].clone();
                (pdr.pdr_id, pdr.precedence) = (PdrId(3 + i as u16), Precedence(100));
                pdr.pdi.qfis.clear();
                pdr.pdi.sdf_filters = steps::filters(PORTS[0], n);
                (pdr.qer_ids, pdr.urr_ids) = (vec![], vec![]);
                m.create_pdrs.push(pdr);
            }
            // Both from the UE have one tunnel.
            for i in [0, 2] {
                m.create_pdrs[i].pdi.f_teid =
                    Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(1) });
            }
        }
        let mbr = [[1_000_000_000; 2], [64; 2], [0, 1_000_000], [1_000_000_000; 2]][usize::from(n >> 3) % 4];
        let rates = |[ul_kbps, dl_kbps]: [u64; 2]| QerBitRate { ul_kbps, dl_kbps };
        let second = [[200_000, 64], [100, 100]][usize::from(n >> 3) % 2];
        let mbrs = [(n & 0x40 == 0).then_some(mbr), twice_metered.then_some(second)];
        for (qer, mbr) in m.create_qers.iter_mut().zip(mbrs) {
            qer.mbr = mbr.map(rates);
        }
        // Over so long that buckets are deep, over less than a fast path takes, and over the usual time.
        let window_ms =
            self.scope.wide.then(|| [1_000, 20, WINDOW_MS, WINDOW_MS, WINDOW_MS][self.cp_seid as usize % 5]);
        m.create_qers[0].averaging_window = window_ms.map(AveragingWindow);
        let enforced = |(id, mbr): (u32, _)| {
            let window_ms = window_ms.filter(|_| id == 1).unwrap_or(WINDOW_MS);
            Enforced::new(self.net.now, id, mbr, [0; 2]).over(window_ms)
        };
        let marks = (
            self.scope.wide && self.cp_seid.is_multiple_of(3),
            Some(5).filter(|_| self.scope.wide && self.cp_seid.is_multiple_of(7)),
        );
        for qer in m.create_qers.iter_mut().filter(|q| q.qfi.is_some()) {
            (qer.rqi, qer.paging_policy_indicator) =
                (marks.0.then_some(Rqi::RQI), marks.1.map(PagingPolicyIndicator));
        }
        if self.scope.stages_only {
            let behind = FramedRoute::new(Ipv4Addr::new(198, 18, at as u8, 0), 24).unwrap();
            m.create_pdrs.iter_mut().for_each(|pdr| pdr.pdi.framed_routes = vec![behind]);
        }
        let qers = (1..).zip(mbrs).take(m.create_qers.len()).map(enforced).collect();
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
        let action = Action::Buffer { notify: !ours };
        let mut seat = Seat::new(session.teid, session.ipv4.unwrap(), action, qers, self.scope.bounds);
        (seat.one_flow, seat.signalling, seat.ue6) = (one_flow, signalling.then_some(PORTS[0]), session.ipv6);
        (seat.accounts, seat.sliced, seat.marks) = (accounts, sliced, marks);
        self.seats[at] = Some((session, seat));
        if n & 0x800 == 0 {
            self.step((1, at as u8, n));
        }
    }

    /// The last usage is what the model has counted.
    pub(crate) fn delete(&mut self, at: usize) {
        let Some((session, mut seat)) = self.seats[at].take() else { return };
        let discarded = seat.take_held(&mut self.reports).len();
        self.decided.dropped[DropReason::GtpuForeignPeer as usize] += seat.unplaced.len() as u64;
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
        assert_eq!(self.timed(usage), self.timed(last.collect()));
    }

    /// Reports, without times where these are not the model's.
    fn timed(&self, mut reports: Vec<Used>) -> Vec<Used> {
        if !self.scope.times {
            reports.iter_mut().for_each(|used| *used = used.without_times());
        }
        reports
    }

    fn modify(&mut self, at: usize, m: SessionModificationRequest) -> SessionModificationResponse {
        let (session, _) = self.seats[at].clone().expect("a session");
        let r = self.net.modify(&session, m);
        assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
        r
    }

    /// Sends a change of rules; what was held comes out as the model has it.
    fn change(&mut self, at: usize, m: SessionModificationRequest) {
        self.change_behind(at, None, m);
    }

    /// The same, behind something else that is sent.
    fn change_behind(
        &mut self,
        at: usize,
        first: Option<Fate>,
        m: SessionModificationRequest,
    ) -> SessionModificationResponse {
        let (_, seat) = self.seats[at].as_mut().expect("a session");
        seat.awaited = None;
        let fates = seat.changed(self.net.now, &mut self.reports);
        let r = self.modify(at, m);
        let sent = self.sent(first.into_iter().chain(fates).collect());
        assert_eq!(by_tunnel(self.net.upf.outputs(sent.len())), by_tunnel(sent));
        r
    }

    /// What goes out of what becomes of packets, which counts.
    fn sent(&mut self, fates: Vec<Fate>) -> Vec<(Destination, Vec<u8>)> {
        fates.iter().for_each(|fate| self.decided.add(fate));
        let sent = fates.into_iter().filter_map(|f| match f {
            Fate::Sent(to, octets) | Fate::Relayed(to, octets) => {
                Some((to, self.net.upf.as_sent(to, octets)))
            }
            Fate::Held | Fate::Dropped(_) => None,
        });
        sent.collect()
    }

    /// Some packets at once, half of them of one UE.
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
        let mut judged = Vec::new();
        for _ in 0..=next() % self.scope.burst_max {
            self.judged([[at, next()][next() % 2], kind(next()), next()], &mut judged);
        }
        judged.iter().for_each(|(_, _, fate)| self.decided.add(fate));
        let drained = std::mem::take(&mut self.drained);
        let drained = self.sent(drained);
        (self.judge)(&mut self.net.upf, self.net.now, &judged);
        self.compare_counted();
        self.net.upf.settle(self.net.now, &mut self.net.out);
        assert_eq!(by_tunnel(self.net.upf.outputs(0)), by_tunnel(drained));
    }

    /// Packets of a UE, of both families both ways, whatever becomes of them.
    #[allow(dead_code, reason = "of I/O that has to be warm")]
    pub(crate) fn offer(&mut self, at: usize, put: impl FnOnce(&mut U, &[Judged])) {
        let all = [0, 0x100].into_iter().flat_map(|six| [(0, 0x79 | six), (6, 0x79 | six)]);
        let mut judged = Vec::new();
        all.for_each(|(kind, n)| self.judged([at, kind, n], &mut judged));
        put(&mut self.net.upf, &judged);
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
            seat.advanced(to, &mut self.reports);
            self.decided.dropped[DropReason::BufferAge as usize] += seat.dropped - before;
            let unplaced = seat.unplaced.len();
            seat.unplaced.retain(|since| to.since(*since) < UNPLACED_AGE);
            self.decided.dropped[DropReason::GtpuForeignPeer as usize] +=
                (unplaced - seat.unplaced.len()) as u64;
        }
    }

    /// What was counted of all sessions together is what the model has.
    fn compare_counted(&mut self) {
        self.decided.waiting = self.reports.waiting;
        for reason in self.reports.gave_way.drain(..) {
            self.decided.dropped[reason as usize] += 1;
        }
        let Self { net, decided, scope, .. } = self;
        decided.dropped[DropReason::LinkScope as usize] *= u64::from(scope.quiet);
        let counters = net.upf.counters(&|c| Decided::of(c, *scope) == *decided);
        assert_eq!(Decided::of(&counters, *scope), *decided);
    }

    /// The SMF gets the reports that the model has; each report is answered.
    pub(crate) fn compare_reports(&mut self) {
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
        let reports = std::mem::take(&mut self.reports);
        (self.reports.waiting, self.reports.slice, self.reports.gave_way) =
            (reports.waiting, reports.slice, reports.gave_way);
        self.compare_counted();
        assert_eq!(downlink_data, reports.downlink_data);
        let sorted = |v: Vec<Used>| {
            let mut v = self.timed(v);
            v.sort_by_key(|used| format!("{used:?}"));
            v
        };
        assert_eq!(sorted(usage), sorted(reports.usage));
    }
}

/// Whether it is a packet of a session: no error indication and no router advertisement (RFC 4861 §4.2), which other tests cover.
pub(crate) fn is_of_a_session((to, octets): &(Destination, Vec<u8>)) -> bool {
    let Destination::N3 { .. } = to else { return true };
    let m = Gtpu::parse(octets).unwrap();
    let advertises = m.payload.first().is_some_and(|o| o >> 4 == 6)
        && m.payload.get(40) == Some(&134)
        && m.payload[6] == 58;
    match m.message_type {
        message_type::G_PDU => !advertises,
        other => other == message_type::END_MARKER,
    }
}

/// Datagrams of sessions, those of each tunnel and marking in their order: an end marker ends its own tunnel, and may come behind what has
/// gone into the next one. Sessions of these tests may have one gNB tunnel in common, and differ in their marking.
fn by_tunnel(all: Vec<(Destination, Vec<u8>)>) -> Vec<(Destination, Vec<u8>)> {
    let mut all: Vec<_> = all.into_iter().filter(is_of_a_session).collect();
    all.sort_by_key(|(to, octets)| {
        let tos = if let Destination::N3 { tos, .. } = to { *tos } else { 0 };
        (octets[4..8].to_vec(), tos)
    });
    all
}

fn total(octets: u64) -> Volume {
    Volume { total: Some(octets), ..Volume::default() }
}

/// Three URRs more: one linked to the first, with limits by direction, one of time, and one of events.
fn more_accounts(m: &mut SessionEstablishmentRequest) -> [Account; 3] {
    let threshold = Volume { ul: Some(4_000), dl: Some(60_000), total: None };
    let triggers = ReportingTriggers::VOLTH | ReportingTriggers::LIUSA;
    let mut octets = CreateUrr::new(UrrId(2), MeasurementMethod::VOLUM, triggers);
    (octets.volume_threshold, octets.linked_urr_ids) = (Some(threshold), vec![UrrId(1)]);
    let triggers = ReportingTriggers::TIMTH | ReportingTriggers::TIMQU;
    let mut time = CreateUrr::new(UrrId(3), MeasurementMethod::DURAT, triggers);
    (time.time_threshold, time.time_quota) = (Some(TimeThreshold(2)), Some(TimeQuota(7)));
    let triggers = ReportingTriggers::EVETH | ReportingTriggers::EVEQU;
    let mut events = CreateUrr::new(UrrId(4), MeasurementMethod::EVENT, triggers);
    events.inactivity_detection_time = Some(InactivityDetectionTime(1));
    (events.event_threshold, events.event_quota) = (Some(EventThreshold(2)), Some(EventQuota(5)));
    m.create_urrs.extend([octets, time, events]);
    for pdr in m.create_pdrs.iter_mut().filter(|pdr| !pdr.urr_ids.is_empty()) {
        pdr.urr_ids = vec![UrrId(1), UrrId(2), UrrId(3), UrrId(4)];
    }
    [
        Account { id: 2, threshold: Some(threshold), linked_to: Some(1), ..Account::default() },
        Account { id: 3, timed: true, threshold_s: Some(2), quota_s: Some(7), ..Account::default() },
        Account {
            id: 4,
            silence: Some(Duration::from_secs(1)),
            threshold_events: Some(2),
            quota_events: Some(5),
            ..Account::default()
        },
    ]
}
