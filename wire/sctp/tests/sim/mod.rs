//! A network of endpoints in virtual time, with seeded loss, delay, duplication and corruption.
#![allow(dead_code, unreachable_pub)] // each test file uses its part

pub mod craft;
pub mod replaced;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_sctp::{
    AssociationId, Config, Connect, DownReason, Endpoint, Event, Input, Outbox, Path, RequestRefusal, Send,
};

/// A small generator; the same seed gives the same run.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// An event, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Up(AssociationId, Vec<IpAddr>, u16, u16),
    Data(AssociationId, u16, u32, Vec<u8>),
    Unacknowledged(u16, Vec<u8>),
    Down(AssociationId, DownReason),
    Restarted(AssociationId),
    /// Follows the event of an association whose peer says an adaptation code point.
    Adaptation(u32),
    PathDown(IpAddr),
    PathUp(IpAddr),
    Refused(RequestRefusal),
}

/// An endpoint with its addresses and all events that it reported.
pub struct Node {
    pub endpoint: Endpoint,
    pub addresses: Vec<IpAddr>,
    pub seen: Vec<Seen>,
    pub packets: u64,
    /// Where its state is exported, and when it dies.
    pub replaced: Option<replaced::Replaced>,
}

impl Node {
    pub fn data(&self) -> Vec<(u16, Vec<u8>)> {
        let of = |s: &Seen| match s {
            Seen::Data(_, stream, _, octets) => Some((*stream, octets.clone())),
            _ => None,
        };
        self.seen.iter().filter_map(of).collect()
    }

    pub fn up(&self) -> Option<AssociationId> {
        self.seen.iter().rev().find_map(|s| if let Seen::Up(id, ..) = s { Some(*id) } else { None })
    }

    pub fn down(&self) -> Option<DownReason> {
        self.seen.iter().rev().find_map(|s| if let Seen::Down(_, r) = s { Some(*r) } else { None })
    }
}

/// How the network treats packets.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub loss_percent: u64,
    pub duplicate_percent: u64,
    pub corrupt_percent: u64,
    /// Delay is `delay` plus up to `jitter`: packets overtake each other.
    pub delay_us: u64,
    pub jitter_us: u64,
}

pub struct Net {
    pub now: Instant,
    pub nodes: Vec<Node>,
    pub random: Random,
    pub weather: Weather,
    /// Addresses that nothing comes from or goes to.
    pub cut: Vec<IpAddr>,
    /// Packets under way: (arrival, order) to (from, to, octets).
    flying: BTreeMap<(Instant, u64), (IpAddr, IpAddr, Vec<u8>)>,
    order: u64,
    /// Every packet that left, in order.
    pub sent: Vec<(IpAddr, IpAddr, Vec<u8>)>,
    out: Outbox,
}

pub const PORT: u16 = 38412;

pub fn address(node: u8, interface: u8) -> IpAddr {
    [10, interface, 0, node + 1].into()
}

impl Net {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant(1_700_000_000_000_000),
            nodes: Vec::new(),
            random: Random(seed),
            weather: Weather { delay_us: 500, ..Weather::default() },
            cut: Vec::new(),
            flying: BTreeMap::new(),
            order: 0,
            sent: Vec::new(),
            out: Outbox::default(),
        }
    }

    /// Adds a node with some interfaces; `tune` changes its configuration.
    pub fn add(&mut self, interfaces: u8, tune: impl FnOnce(&mut Config)) -> usize {
        let n = self.nodes.len();
        let addresses: Vec<IpAddr> = (0..interfaces).map(|i| address(n as u8, i)).collect();
        let mut config = Config::new(PORT);
        config.local_addresses = addresses.clone();
        tune(&mut config);
        let endpoint = Endpoint::new(config, self.secret(), self.now);
        self.nodes.push(Node { endpoint, addresses, seen: Vec::new(), packets: 0, replaced: None });
        n
    }

    fn secret(&mut self) -> [u8; 32] {
        std::array::from_fn(|_| self.random.next() as u8)
    }

    /// The node loses all state, as a process that is killed and started again.
    pub fn reboot(&mut self, n: usize) {
        let mut config = Config::new(PORT);
        config.local_addresses = self.nodes[n].addresses.clone();
        let secret = self.secret();
        self.nodes[n].endpoint = Endpoint::new(config, secret, self.now);
        self.nodes[n].seen.clear();
    }

    pub fn input(&mut self, n: usize, input: Input<'_>) {
        let mut out = std::mem::take(&mut self.out);
        self.nodes[n].endpoint.handle(self.now, input, &mut out);
        self.collect(n, out);
    }

    /// Handles and flushes, as the loop around a socket does.
    pub fn input_and_flush(&mut self, n: usize, input: Input<'_>) {
        self.input(n, input);
        self.flush(n);
    }

    pub fn flush(&mut self, n: usize) {
        let mut out = std::mem::take(&mut self.out);
        self.nodes[n].endpoint.flush(self.now, &mut out);
        self.collect(n, out);
    }

    pub fn connect(&mut self, from: usize, to: usize) -> AssociationId {
        let addresses = [self.nodes[to].addresses[0]];
        let mut out = std::mem::take(&mut self.out);
        let c = Connect { addresses: &addresses, port: PORT, udp_port: 0 };
        let id = self.nodes[from].endpoint.connect(self.now, c, &mut out).unwrap();
        self.collect(from, out);
        self.flush(from);
        id
    }

    pub fn send(&mut self, n: usize, id: AssociationId, stream: u16, octets: &[u8]) {
        let send = Send { association: id, stream, ppid: 60, unordered: false, octets };
        self.input_and_flush(n, Input::Send(send));
    }

    fn collect(&mut self, n: usize, mut out: Outbox) {
        self.nodes[n].die_or_export(self.now, &mut self.random, &mut out);
        for e in out.events.iter() {
            let adaptation = match e {
                Event::Up { adaptation, .. } | Event::Restarted { adaptation, .. } => adaptation,
                _ => None,
            };
            self.nodes[n].seen.push(match e {
                Event::Up { association, peer, inbound_streams, outbound_streams, .. } => {
                    Seen::Up(association, peer.to_vec(), inbound_streams, outbound_streams)
                }
                Event::Data { association, stream, ppid, octets } => {
                    Seen::Data(association, stream, ppid, octets.to_vec())
                }
                Event::Unacknowledged { stream, octets, .. } => Seen::Unacknowledged(stream, octets.to_vec()),
                Event::Down { association, reason } => Seen::Down(association, reason),
                Event::Restarted { association, .. } => Seen::Restarted(association),
                Event::PathDown { remote, .. } => Seen::PathDown(remote),
                Event::PathUp { remote, .. } => Seen::PathUp(remote),
                Event::Refused { refusal, .. } => Seen::Refused(refusal),
            });
            self.nodes[n].seen.extend(adaptation.map(Seen::Adaptation));
        }
        for (path, octets) in out.packets.iter() {
            self.nodes[n].packets += 1;
            let local = if path.local.is_unspecified() { self.nodes[n].addresses[0] } else { path.local };
            self.sent.push((local, path.remote, octets.to_vec()));
            self.launch(local, path.remote, octets.to_vec());
        }
        out.events.clear();
        out.packets.clear();
        self.out = out;
    }

    /// Puts a packet on the network.
    pub fn launch(&mut self, from: IpAddr, to: IpAddr, octets: Vec<u8>) {
        let w = self.weather;
        if self.cut.contains(&from) || self.cut.contains(&to) || self.random.percent(w.loss_percent) {
            return;
        }
        let copies = if self.random.percent(w.duplicate_percent) { 2 } else { 1 };
        for _ in 0..copies {
            let mut octets = octets.clone();
            if self.random.percent(w.corrupt_percent) {
                let at = self.random.below(octets.len() as u64) as usize;
                octets[at] ^= 1 << self.random.below(8);
            }
            let delay = w.delay_us + self.random.below(w.jitter_us + 1);
            self.order += 1;
            let arrival = self.now + Duration::from_micros(delay);
            self.flying.insert((arrival, self.order), (from, to, octets));
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let packet = self.flying.keys().next().map(|k| k.0);
        let timers = self.nodes.iter().filter_map(|n| n.endpoint.next_deadline());
        timers.chain(packet).min()
    }

    /// Runs until `until`.
    pub fn run_until(&mut self, until: Instant) {
        while let Some(t) = self.next_time().filter(|t| *t <= until) {
            self.now = self.now.max(t);
            while let Some(entry) = self.flying.first_entry().filter(|e| e.key().0 <= self.now) {
                let (from, to, octets) = entry.remove();
                if self.cut.contains(&from) || self.cut.contains(&to) {
                    continue;
                }
                let Some(n) = self.nodes.iter().position(|n| n.addresses.contains(&to)) else { continue };
                let path = Path { local: to, remote: from, udp_port: 0 };
                self.input_and_flush(n, Input::Packet { path, octets: &octets });
            }
            for n in 0..self.nodes.len() {
                if self.nodes[n].endpoint.next_deadline().is_some_and(|t| t <= self.now) {
                    self.input_and_flush(n, Input::Tick);
                }
            }
        }
        self.now = self.now.max(until);
    }

    pub fn run(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    pub fn seconds(&mut self, s: u64) {
        self.run(Duration::from_secs(s));
    }
}

/// Two nodes, the first connected to the second; the names that each gave the association.
pub fn pair(seed: u64) -> (Net, AssociationId, AssociationId) {
    let mut net = Net::new(seed);
    let (a, b) = (net.add(1, |_| {}), net.add(1, |_| {}));
    let client = net.connect(a, b);
    net.seconds(1);
    let server = net.nodes[b].up().expect("the server saw the association");
    assert_eq!(net.nodes[a].up(), Some(client));
    (net, client, server)
}
