//! What a packet of a session with filters costs the pipeline: where its filters are asked each time, where its flow's rule is remembered
//! in memory behind the processor's own caches, in a small memory alone, or in one that stands in front of the other.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use serde_json::{Value, json};
use whimbrel_ids::{Instant, Teid};
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::{ApplyAction, FTeid, FarId, PdrId, Precedence, SdfFilter, SourceInterface};
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::{CreatePdr, Pdi, RemovePdr, UpdateFar};
use whimbrel_user::{
    BurstPacket, Config, Counters, DnIndex, FILTERS_PER_PDR_MAX, Input, Origin, Packet, PacketVerdict,
    SessionRules, UserPlaneChange,
};

use super::super::population::config;
use super::super::smf::{GNB, Net, SERVER, SMF, START, Session, UPF, activation, from_gnb, g_pdu, udp4};
use super::{BUFFERED, DRAWS, draws};
use crate::measure::{core_time, median};

/// Filters of a session.
pub(super) const FILTERS: [u16; 3] = [8, 64, 1_000];
/// Filters of all sessions: each takes some two hundred octets.
const FILTERS_OF_ALL: u32 = 65_536;
/// Sessions at least, and at most.
const SESSIONS: [u32; 2] = [128, 4_096];
/// Packets of a burst, as `user/io` receives them.
const BURST: usize = 32;
/// Packets of a round.
const ROUND: usize = 32_768;
/// Rounds until those flows are in the first level that are to be there, if as many are timed.
const WARM_ROUNDS: usize = 4;
/// Octets of a UE's packet.
const OCTETS: usize = 128;

/// Whether flows' rules are remembered, and where.
#[derive(Clone, Copy)]
pub(in crate::upf) struct Memory {
    name: &'static str,
    first: u32,
    second: u32,
}

/// Flows of the second level.
const SECOND: u32 = 1 << 21;

impl Memory {
    pub(in crate::upf) const ASKED: Self = Self { name: "filters asked", first: 0, second: 0 };
    /// One level that is as small as the first: for other flows filters are asked, as DeepMatch asks its host.
    const FIRST_LEVEL: Self =
        Self { name: "first level only (DeepMatch)", first: 0, second: Config::FLOWS_FIRST };
    pub(in crate::upf) const SECOND_LEVEL: Self =
        Self { name: "second level only", first: 0, second: SECOND };
    const TWO_LEVELS: Self = Self { name: "two levels", first: Config::FLOWS_FIRST, second: SECOND };
    const ALL: [Self; 4] = [Self::ASKED, Self::FIRST_LEVEL, Self::SECOND_LEVEL, Self::TWO_LEVELS];
}

/// What rules a session has beside its first two PDRs, which ask for nothing.
#[derive(Clone, Copy)]
pub(in crate::upf) struct Shape {
    /// Filters of all further PDRs: half of them of each way.
    filters: u16,
    /// Of a PDR at most.
    of_a_pdr: usize,
    /// The session has no PDR for packets to its UE.
    only_up: bool,
}

impl Shape {
    fn of_filters(filters: u16) -> Self {
        Self { filters, of_a_pdr: FILTERS_PER_PDR_MAX, only_up: false }
    }

    /// So many PDRs, one or an even number.
    pub(in crate::upf) fn of_pdrs(pdrs: u16) -> Self {
        Self { filters: pdrs.saturating_sub(2), of_a_pdr: 1, only_up: pdrs == 1 }
    }
}

/// A UPF whose sessions have filters.
pub(in crate::upf) struct World {
    net: Net,
    sessions: Vec<Session>,
    shape: Shape,
    now: Instant,
}

/// The server that a session's filter is of; the first one is of none.
fn server(filter: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(SERVER.to_bits() + u32::from(filter))
}

impl World {
    pub(in crate::upf) fn new(shape: Shape, sessions: u32, memory: Memory) -> Self {
        let config = Config { flows_first: memory.first, flows_second: memory.second, ..config(sessions) };
        let mut net = Net::with(config);
        let sessions = (0..sessions).map(|n| {
            let session = net.session(u64::from(n) + 1, true, false);
            if shape.only_up {
                let m = SessionModificationRequest {
                    remove_pdrs: vec![RemovePdr { pdr_id: PdrId(2) }],
                    ..Default::default()
                };
                net.modify(&session, m);
            }
            let each_way: Vec<u16> = (1..=shape.filters / 2).collect();
            for (n, filters) in (0u16..).zip(each_way.chunks(shape.of_a_pdr)) {
                let m = SessionModificationRequest {
                    create_pdrs: pdrs(&session, n, filters),
                    ..Default::default()
                };
                net.modify(&session, m);
            }
            session
        });
        let sessions = sessions.collect();
        Self { net, sessions, shape, now: START }
    }

    /// Every so many sessions are idle from now on: packets for them wait, as far as there is room.
    fn idle(&mut self) {
        for session in self.sessions.iter().step_by(BUFFERED) {
            let update_fars =
                vec![UpdateFar { apply_action: Some(ApplyAction::BUFF), ..UpdateFar::new(FarId(2)) }];
            self.net.modify(session, SessionModificationRequest { update_fars, ..Default::default() });
        }
    }

    /// A packet of a flow: its number says session, server, the UE's port and the way.
    fn fill(&self, flow: u32, slot: &mut BurstPacket) {
        let session = &self.sessions[flow as usize % self.sessions.len()];
        let of_session = flow / self.sessions.len() as u32;
        let remote = server((of_session % (u32::from(self.shape.filters) / 2 + 1)) as u16);
        let (ue, port) = (session.ipv4.expect("IPv4"), (of_session / 2) as u16);
        if of_session.is_multiple_of(2) && !self.shape.only_up {
            slot.origin = Origin::N6 { dn: DnIndex(0) };
            slot.packet.fill(&udp4(remote, ue, (443, port), OCTETS - 28));
        } else {
            slot.origin = from_gnb();
            slot.packet.fill(&g_pdu(session.teid, 1, &udp4(ue, remote, (port, 443), OCTETS - 28)));
        }
        slot.verdict = PacketVerdict::Pending;
    }

    /// A packet of each of these flows goes through; the time that it took.
    fn pass(&mut self, flows: impl Iterator<Item = u32>, slots: &mut [BurstPacket]) -> Duration {
        let mut filled = 0;
        for (slot, flow) in slots.iter_mut().zip(flows) {
            self.fill(flow, slot);
            filled += 1;
        }
        let begin = core_time();
        for burst in slots[..filled].chunks_mut(BURST) {
            self.now = Instant(self.now.0 + 3);
            self.net.upf.u.burst(self.now, burst);
        }
        core_time() - begin
    }

    /// Each flow is met once.
    pub(in crate::upf) fn meet(&mut self, flows: u32, slots: &mut [BurstPacket]) {
        for first in (0..flows).step_by(ROUND) {
            self.pass(first..flows, slots);
        }
    }

    /// Nanoseconds of a packet, and the share that the first level knew.
    pub(in crate::upf) fn measured(
        &mut self,
        draws: &[u32],
        slots: &mut [BurstPacket],
        rounds: usize,
    ) -> (f64, f64) {
        let mut all = Vec::with_capacity(rounds);
        let mut before = self.net.upf.u.counters();
        let warm = rounds.min(WARM_ROUNDS);
        for (round, draws) in draws.chunks(ROUND).cycle().take(rounds + warm).enumerate() {
            if round == warm {
                before = self.net.upf.u.counters();
            }
            let took = self.pass(draws.iter().copied(), slots);
            if round >= warm {
                all.push(took.as_nanos() as f64 / draws.len() as f64);
            }
        }
        let after = self.net.upf.u.counters();
        let met = |c: &Counters| c.flows_first + c.flows_second + c.flows_asked;
        let packets = (met(&after) - met(&before)).max(1) as f64;
        (median(all), (after.flows_first - before.flows_first) as f64 / packets)
    }
}

/// Packets in memory.
pub(in crate::upf) fn packets() -> Vec<BurstPacket> {
    let slot = |packet| BurstPacket { origin: from_gnb(), packet, verdict: PacketVerdict::Pending };
    Packet::many(ROUND, 2048).map(slot).collect()
}

/// PDRs of either way with these filters, which lead where the first ones do.
fn pdrs(session: &Session, n: u16, filters: &[u16]) -> Vec<CreatePdr> {
    let filter = |n: &u16| SdfFilter::flow(&format!("permit out 17 from {} to assigned", server(*n)));
    let sdf_filters: Vec<_> = filters.iter().map(filter).collect();
    let up = Pdi {
        f_teid: Some(FTeid::given(session.teid, UPF.into())),
        sdf_filters: sdf_filters.clone(),
        ..Pdi::from(SourceInterface::Access)
    };
    let down = Pdi { sdf_filters, ..Pdi::from(SourceInterface::Core) };
    let pdr = |(at, pdi, far)| CreatePdr::new(PdrId(10 + 2 * n + at), Precedence(100), pdi, FarId(far));
    [(0, up, 1), (1, down, 2)].map(pdr).into()
}

/// Changes of rules that are timed.
const CHANGES: u32 = 400;

/// Microseconds that a change of a session's rules takes the pipeline, median and 99th percentile: where UPF-C frees the former rules, as it
/// does, and where the pipeline is the last to have them.
fn changes(world: &mut World) -> [[f64; 2]; 2] {
    [(true, 100_000), (false, 200_000)].map(|(by_upf_c, sequences)| {
        let mut kept = Vec::new();
        let mut us: Vec<f64> = (0..CHANGES)
            .map(|n| {
                let session = &world.sessions[n as usize % world.sessions.len()];
                let octets = Message::from(activation(Teid(n + 1), GNB.ip()))
                    .to_octets(Some(session.up_seid), sequences + n);
                world.net.upf.c.handle(START, Input::Pfcp { peer: SMF, octets: &octets }, &mut world.net.out);
                world.net.out.datagrams.clear();
                let mut change = world.net.out.changes.pop().expect("a change");
                if let UserPlaneChange::Put { rules, .. } = &mut change {
                    match by_upf_c {
                        true => kept.push(Arc::clone(rules)),
                        false => *rules = Arc::new(SessionRules::clone(rules)),
                    }
                }
                let begin = Clock::now();
                world.net.upf.u.apply(START, change);
                begin.elapsed().as_nanos() as f64 / 1e3
            })
            .skip(world.sessions.len())
            .collect();
        us.sort_by(f64::total_cmp);
        [us[us.len() / 2], us[us.len() * 99 / 100]]
    })
}

/// Measures and prints; the rows.
pub(super) fn run(filters: &[u16], flows: &[u32], rounds: usize) -> Vec<Value> {
    println!(
        "\nthe pipeline, sessions with filters: ns a packet of {OCTETS} octets, bursts of {BURST}, half of them from UEs"
    );
    println!("with buffering, each {BUFFERED}th session is idle: its packets wait, or find no room");
    println!(
        "{:>8}{:>9}{:>10}  {:<16}{:<30}{:>8}{:>12}{:>14}",
        "filters", "sessions", "flows", "", "", "ns", "buffering", "first level"
    );
    let mut slots = packets();
    let mut rows = Vec::new();
    for &filters in filters {
        let sessions = (FILTERS_OF_ALL / u32::from(filters.max(1))).clamp(SESSIONS[0], SESSIONS[1]);
        let mut worlds = Memory::ALL.map(|m| World::new(Shape::of_filters(filters), sessions, m));
        let mut cells = Vec::new();
        for idle in [false, true] {
            if idle {
                worlds.iter_mut().for_each(World::idle);
            }
            for &flows in flows {
                worlds.iter_mut().for_each(|world| world.meet(flows, &mut slots));
                for (kind, draw) in DRAWS.iter().enumerate() {
                    let draws = draws(kind, flows, rounds);
                    for (world, memory) in worlds.iter_mut().zip(Memory::ALL) {
                        let (ns, first) = world.measured(&draws, &mut slots, rounds);
                        cells.push((idle, flows, draw, memory.name, ns, first));
                    }
                }
            }
        }
        if filters == 1_000
            && let Some(world) = worlds.last_mut()
        {
            let [ours, [median, p99]] = changes(world);
            println!(
                "a change of {filters} filters takes the pipeline {:.1} us (p99 {:.1}); {median:.1} ({p99:.1}) if it had to free the former ones",
                ours[0], ours[1]
            );
            rows.push(json!({ "filters": filters, "change_us": ours, "change_and_free_us": [median, p99] }));
        }
        let half = cells.len() / 2;
        for (plain, busy) in cells[..half].iter().zip(&cells[half..]) {
            let (_, flows, draw, name, ns, first) = *plain;
            let (busy_ns, busy_first) = (busy.4, busy.5);
            println!(
                "{filters:>8}{sessions:>9}{flows:>10}  {draw:<16}{name:<30}{ns:>8.1}{busy_ns:>12.1}{:>13.0}%",
                first * 100.0
            );
            let round = |v: f64| (v * 100.0).round() / 100.0;
            rows.push(json!({
                "filters": filters, "sessions": sessions, "flows": flows, "draw": draw, "memory": name, "ns": round(ns),
                "ns_buffering": round(busy_ns), "first_level": round(first), "first_level_buffering": round(busy_first),
            }));
        }
    }
    rows
}
