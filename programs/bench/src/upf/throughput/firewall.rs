//! What a packet costs where a firewall stands before the data network, or address translation with it.
//!
//! A packet of a flow that stands is looked up by its ends; rules are looked at when a flow begins, so both are measured: packets of one
//! flow for each UE, both ways, and packets each of which begins a flow in the place of one that is past its time.

use std::net::Ipv4Addr;

use crate::upf::classifier::common::rule_sets::Random;
use serde_json::{Value, json};
use whimbrel_ids::Instant;
use whimbrel_user::{Config, DnIndex, Firewall, FirewallRule, Ipv4Net, Nat, Origin, PacketVerdict};

use super::super::population::{Packets, Population, address, config};
use super::super::smf::{SERVER, START, from_gnb, g_pdu, udp4};
use super::{BURST, SMALL};
use crate::measure::{core_time, median};

/// Number of UEs, a session each.
const SESSIONS: u32 = 10_000;
/// Packets of a round.
const ROUND: usize = 16_384;
/// Flows that stand at most: all UEs have one, and new ones soon find the table full.
const FLOWS: u32 = 32_768;
/// Rules of the firewall.
const RULES: [usize; 4] = [0, 10, 100, 1_000];
/// The server's port, and the UEs'.
const PORTS: (u16, u16) = (4_000, 53);

/// What stands between UEs and the data network.
#[derive(Clone, Copy)]
enum Setup {
    Nothing,
    Rules(usize),
    Translation,
}

impl Setup {
    fn name(self) -> String {
        match self {
            Self::Nothing => "nothing".into(),
            Self::Rules(n) => format!("firewall, {n} rules"),
            Self::Translation => "address translation".into(),
        }
    }

    fn config(self) -> Config {
        let mut config = config(SESSIONS);
        let firewall =
            |rules: Vec<FirewallRule>, nat| Firewall { rules, nat, flows_max: FLOWS, ..Firewall::default() };
        config.data_networks[0].firewall = match self {
            Self::Nothing => None,
            Self::Rules(n) => Some(firewall((0..n).map(rule).collect(), None)),
            Self::Translation => {
                let pool = Ipv4Net { address: Ipv4Addr::new(203, 0, 113, 0), prefix: 28 };
                Some(firewall(
                    Vec::new(),
                    Some(Nat { pools: vec![pool], ports_per_ue: Nat::PORTS_PER_UE, reachable: false }),
                ))
            }
        };
        config
    }
}

/// A rule that none of the packets meet: most packets meet none of an operator's.
fn rule(n: usize) -> FirewallRule {
    let (high, low) = (n / 250, n % 250);
    let text = match n % 3 {
        0 => format!("deny in 17 from any to 198.18.{high}.{low}"),
        1 => format!("deny in 6 from any to 198.51.{low}.0/24 {}", 1_000 + n),
        _ => format!("permit out 17 from 198.19.{low}.0/24 to any {}-{}", 2_000 + n, 2_010 + n),
    };
    text.parse().expect("a rule")
}

/// Nanoseconds of a packet of a standing flow, from UEs and to them, and of one that begins a flow.
struct Row {
    setup: Setup,
    up: f64,
    down: f64,
    begins: f64,
}

struct World {
    population: Population,
    packets: Packets,
    now: Instant,
    /// As the network sees each UE.
    outside: Vec<(Ipv4Addr, u16)>,
}

impl World {
    fn new(setup: Setup) -> Self {
        let population = Population::of(&setup.config());
        let outside = (0..SESSIONS).map(|n| (address(n), PORTS.0)).collect();
        Self { population, packets: Packets::new(ROUND, SMALL), now: START, outside }
    }

    /// A packet of a UE to the server, from this port.
    fn come_up(&mut self, at: usize, n: u32, port: u16) {
        let inner = udp4(address(n), SERVER, (port, PORTS.1), SMALL - 28);
        let slot = &mut self.packets.slots[at];
        slot.packet.fill(&g_pdu(self.population.teid(n), 1, &inner));
        (slot.origin, slot.verdict) = (from_gnb(), PacketVerdict::Pending);
    }

    /// The server's answer.
    fn come_down(&mut self, at: usize, n: u32) {
        let (ue, port) = self.outside[n as usize];
        let slot = &mut self.packets.slots[at];
        slot.packet.fill(&udp4(SERVER, ue, (PORTS.1, port), SMALL - 28));
        (slot.origin, slot.verdict) = (Origin::N6 { dn: DnIndex(0) }, PacketVerdict::Pending);
    }

    /// All packets in memory go through; nanoseconds of each.
    fn pass(&mut self) -> f64 {
        let begin = core_time();
        for burst in self.packets.slots.chunks_mut(BURST) {
            self.now = Instant(self.now.0 + 3);
            self.population.upf.burst(self.now, burst);
        }
        let ns = (core_time() - begin).as_nanos() as f64 / ROUND as f64;
        let passed = self.packets.slots.iter().all(|s| matches!(s.verdict, PacketVerdict::Send(_)));
        assert!(passed, "{:?}", self.population.upf.counters());
        ns
    }

    /// Each UE begins its flow; where it is then seen.
    fn begin_all(&mut self) {
        let ues: Vec<u32> = (0..SESSIONS).collect();
        for ues in ues.chunks(ROUND) {
            (0..ROUND).for_each(|at| self.come_up(at, ues[at % ues.len()], PORTS.0));
            self.pass();
            for (slot, n) in self.packets.slots.iter().zip(ues) {
                let inner = slot.packet.octets();
                let address: [u8; 4] = inner[12..16].try_into().expect("a header");
                self.outside[*n as usize] = (address.into(), u16::from_be_bytes([inner[20], inner[21]]));
            }
        }
    }

    fn row(mut self, setup: Setup, rounds: usize) -> Row {
        self.begin_all();
        let random = &mut Random::new(1);
        let mut seen = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for at in 0..ROUND {
                self.come_up(at, random.below(SESSIONS.into()) as u32, PORTS.0);
            }
            seen[0].push(self.pass());
            for at in 0..ROUND {
                self.come_down(at, random.below(SESSIONS.into()) as u32);
            }
            seen[1].push(self.pass());
        }
        for round in 0..rounds as u64 {
            for at in 0..ROUND {
                // A port that the UE has not had for long.
                let port = 10_000 + (round * ROUND as u64 + at as u64) / u64::from(SESSIONS) % 50_000;
                self.come_up(at, ((round as usize * ROUND + at) % SESSIONS as usize) as u32, port as u16);
            }
            seen[2].push(self.pass());
        }
        let [up, down, begins] = seen.map(median);
        Row { setup, up, down, begins }
    }
}

/// Measures and prints; the rows.
pub(super) fn run(rounds: usize) -> Value {
    println!("\nat the firewall of the data network: {SESSIONS} UEs, {SMALL} octets, ns a packet");
    println!("{:<24}{:>10}{:>10}{:>16}", "", "from", "to", "from, begins");
    println!("{:<24}{:>10}{:>10}{:>16}", "", "ues", "ues", "a flow");
    let rules = RULES.map(Setup::Rules);
    let all = [Setup::Nothing].into_iter().chain(rules).chain([Setup::Translation]);
    let rows = all.map(|setup| {
        let Row { setup, up, down, begins } = World::new(setup).row(setup, rounds);
        println!("{:<24}{up:>10.1}{down:>10.1}{begins:>16.1}", setup.name());
        let round = |v: f64| (v * 10.0).round() / 10.0;
        json!({ "setup": setup.name(), "up_ns": round(up), "down_ns": round(down), "begins_ns": round(begins) })
    });
    rows.collect()
}
