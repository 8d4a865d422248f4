//! Packets that arrive at a set rate, as a driver's queue has them: what a packet thread does below saturation.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_user::{BurstPacket, Destination, Origin, Packet};

use crate::config::Config;
use crate::error::StartError;
use crate::handle::{Handle, HostSetup, spawn};
use crate::ports::Ports;
use crate::sys::timer::Timer;
use crate::thread::IoCounters;

/// Packets that wait for the thread at most: a driver's queue.
const QUEUE: usize = 4_096;
/// Last octets of a packet: a mark, and when it arrived.
const MARK: [u8; 8] = *b"arrived ";
const TAIL: usize = MARK.len() + size_of::<u64>();
/// Steps of a delay for each power of two nanoseconds, and all of them.
const STEPS: u64 = 32;
const DELAYS: usize = STEPS as usize * 40;

/// What became of packets.
#[derive(Clone, Debug)]
pub struct PacedOutcome {
    /// Packets that arrived.
    pub arrived: u64,
    /// Those that found the queue full.
    pub lost: u64,
    /// Those that were sent.
    pub sent: u64,
    /// Looks at the queue that found packets.
    pub bursts: u64,
    delays: Box<[u64]>,
}

impl Default for PacedOutcome {
    fn default() -> Self {
        Self { arrived: 0, lost: 0, sent: 0, bursts: 0, delays: vec![0; DELAYS].into() }
    }
}

impl PacedOutcome {
    fn delayed(&mut self, ns: u64) {
        let ns = ns.max(STEPS);
        let shift = ns.ilog2() - STEPS.ilog2();
        let at = u64::from(shift) * STEPS + (ns >> shift);
        self.delays[(at as usize).min(DELAYS - 1)] += 1;
    }

    /// The delay from arrival to sending of this part of the packets that were sent, in nanoseconds, to a thirty-second.
    pub fn delay_ns(&self, part: f64) -> u64 {
        let rank = (self.sent as f64 * part) as u64;
        let mut below = 0;
        for (at, count) in (0u64..).zip(&self.delays) {
            below += count;
            if below > rank {
                let shift = (at / STEPS).saturating_sub(1);
                return (at - shift * STEPS) << shift;
            }
        }
        0
    }
}

/// A measurement's end of a paced user plane.
#[derive(Clone, Debug)]
pub struct Pace(Arc<PacedSettings>);

#[derive(Debug)]
struct PacedSettings {
    /// Mean time between two packets in picoseconds; zero: none arrives.
    gap_ps: AtomicU64,
    busy_poll_us: AtomicU64,
    coalesced_ns: AtomicU64,
    counted: Mutex<PacedOutcome>,
}

impl Pace {
    /// From now on so many packets a second arrive, at random; none at zero. `busy_poll`: how long the thread looks at the queue before it sleeps;
    /// `coalesced`: how long after the first packet an interrupt wakes it then.
    pub fn set(&self, packets_per_s: f64, busy_poll: Duration, coalesced: Duration) {
        let gap = if packets_per_s > 0.0 { (1e12 / packets_per_s).max(1.0) as u64 } else { 0 };
        self.0.coalesced_ns.store(coalesced.as_nanos() as u64, Ordering::Relaxed);
        self.0.busy_poll_us.store(busy_poll.as_micros() as u64, Ordering::Relaxed);
        self.0.gap_ps.store(gap, Ordering::Relaxed);
    }

    /// What became of packets since the last call.
    pub fn take(&self) -> PacedOutcome {
        std::mem::take(&mut *self.0.counted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A packet of a measurement: where it comes from, and its octets, whose last 16 say when.
pub type Draw = Box<dyn FnMut(&mut Packet) -> Origin + Send>;

/// A user plane with one thread whose packets arrive as the [`Pace`] says, none at first. `draw` writes each into its buffer.
///
/// Errors: those of a start.
pub fn paced(config: Config, draw: Draw) -> Result<(Handle, Pace), StartError> {
    let setting = PacedSettings {
        gap_ps: AtomicU64::new(0),
        busy_poll_us: AtomicU64::new(0),
        coalesced_ns: AtomicU64::new(0),
        counted: Mutex::default(),
    };
    let pace = Pace(Arc::new(setting));
    let ports = PacedPorts {
        pace: pace.clone(),
        draw,
        timer: Timer::new().map_err(StartError::System)?,
        begin: Instant::now(),
        next_ps: 0,
        random: 0x9e37_79b9_7f4a_7c15,
        queue: VecDeque::with_capacity(QUEUE),
    };
    Ok((spawn(config, vec![ports], HostSetup::default())?, pace))
}

struct PacedPorts {
    pace: Pace,
    draw: Draw,
    timer: Timer,
    begin: Instant,
    /// When the next packet arrives, since the beginning.
    next_ps: u64,
    random: u64,
    /// When the packets arrived that wait, in nanoseconds since the beginning.
    queue: VecDeque<u64>,
}

impl PacedPorts {
    fn gap_ps(&self) -> u64 {
        self.pace.0.gap_ps.load(Ordering::Relaxed)
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// What has arrived until now: how many packets, and how many of them found no room.
    fn arrive(&mut self, now_ns: u64) -> (u64, u64) {
        let (gap, now) = (self.gap_ps(), now_ns * 1_000);
        let (mut arrived, mut lost) = (0, 0);
        if gap == 0 {
            self.next_ps = now;
            return (0, 0);
        }
        while self.next_ps <= now {
            if self.queue.len() == QUEUE {
                let more = (now - self.next_ps) / gap + 1;
                (arrived, lost) = (arrived + more, more);
                self.next_ps = now + 1;
                break;
            }
            self.queue.push_back(self.next_ps / 1_000);
            arrived += 1;
            // Exponential gaps, by xorshift.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let part = (self.random >> 11) as f64 / (1u64 << 53) as f64;
            self.next_ps += (-(1.0 - part).ln() * gap as f64) as u64 + 1;
        }
        (arrived, lost)
    }
}

impl Ports for PacedPorts {
    fn receive(&mut self, slots: &mut [BurstPacket], _: &mut IoCounters) -> usize {
        let (arrived, lost) = self.arrive(self.now_ns());
        let count = self.queue.len().min(slots.len());
        if count + arrived as usize == 0 {
            return 0;
        }
        for (slot, at) in slots.iter_mut().zip(self.queue.drain(..count)) {
            slot.origin = (self.draw)(&mut slot.packet);
            let from = slot.packet.len() - TAIL;
            let tail = &mut slot.packet.room()[from..from + TAIL];
            tail[..MARK.len()].copy_from_slice(&MARK);
            tail[MARK.len()..].copy_from_slice(&at.to_ne_bytes());
        }
        let mut counted = self.pace.0.counted.lock().unwrap_or_else(PoisonError::into_inner);
        (counted.arrived, counted.lost) = (counted.arrived + arrived, counted.lost + lost);
        counted.bursts += 1;
        count
    }

    fn send(&mut self, packets: &mut dyn Iterator<Item = (Destination, &Packet)>, _: &mut IoCounters) {
        let mut packets = packets.peekable();
        if packets.peek().is_none() {
            return;
        }
        let now = self.now_ns();
        let mut counted = self.pace.0.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, packet) in packets {
            let Some((rest, at)) = packet.octets().split_last_chunk::<8>() else { continue };
            if rest.ends_with(&MARK) {
                counted.sent += 1;
                counted.delayed(now.saturating_sub(u64::from_ne_bytes(*at)));
            }
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        // As an interrupt: when the next packet arrives. While none does, changes and the end wake the thread.
        let first = self.queue.front().copied().unwrap_or(self.next_ps / 1_000);
        let interrupt = first + self.pace.0.coalesced_ns.load(Ordering::Relaxed);
        let after = interrupt.saturating_sub(self.now_ns()).max(1);
        self.timer.set(Duration::from_nanos(if self.gap_ps() == 0 { 1_000_000 } else { after }));
        vec![self.timer.as_fd()]
    }

    fn busy_poll(&self) -> Duration {
        Duration::from_micros(self.pace.0.busy_poll_us.load(Ordering::Relaxed))
    }

    fn lost(&self) -> u64 {
        0 // `PacedOutcome::lost` counts them
    }
}
