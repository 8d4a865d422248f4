//! Lets UEs rest between two turns of the control loop, and keeps the process within its memory (`memory.limit`).

mod rest_heap;

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tracing::warn;
use whimbrel_ids::Instant;
use whimbrel_memory::Backing;
use whimbrel_resilience::Cpf;

use self::rest_heap::{RestHeap, RestHeapState};
use crate::config::{Config, MemoryConfig, SlowTier};
use crate::observation::{Condition, Console, Metric, MetricSample};

/// Time between two slices of work while messages arrive.
const SLICE_EVERY: Duration = Duration::from_millis(1);
/// UEs that are looked at in a slice: more go idle in a second only with more than 30,000 connections released in it.
const UES_PER_SLICE: usize = 32;
/// Records that are looked at in a slice: some hundred microseconds.
const RECORDS_PER_SLICE: usize = 1000;
/// Regions get at least so much, however much the rest of the process takes.
const FAST_MIN: u64 = 32 << 20;

/// Time between two measurements of the process.
const MEASURED_EVERY: Duration = Duration::from_millis(500);

/// The memory of UEs at rest.
pub struct UeMemory {
    limit: u64,
    heap: Rc<RestHeapState>,
    next_slice: Instant,
    next_measurement: Instant,
    /// The process was above its limit when it was last measured.
    is_full: bool,
}

impl UeMemory {
    /// Gives the CPF of this process its store for UEs at rest, if a limit is configured.
    pub fn start(config: &Config, cpf: Option<&mut Cpf>, console: &Console) -> Option<Self> {
        let (opened, condition, detail) = Self::open(&config.memory, &config.store.path, cpf?)?;
        console.components(|c| c.set("memory", condition, detail));
        Some(opened)
    }

    /// Gives a CPF its store for UEs at rest, if a limit is configured; with the condition of the slow tier. `beside`: the file has this
    /// name and another extension, if it has no name in the configuration.
    pub fn open(memory: &MemoryConfig, beside: &Path, cpf: &mut Cpf) -> Option<(Self, Condition, String)> {
        let limit = memory.limit?.0;
        let (backing, fault) = backing(memory, beside);
        let opened = RestHeap::new(limit, backing).or_else(|e| {
            warn!("UEs at rest stay in memory: the file for them cannot be created: {e}");
            RestHeap::new(limit, Backing::None).map(|opened| (opened.0, opened.1))
        });
        let (heap, state) = opened.ok()?;
        cpf.set_rest_store(Box::new(heap), memory.rest_after);
        let (condition, detail) = match fault {
            Some(sentence) => {
                warn!("UEs at rest stay in memory: {sentence}");
                (Condition::Limited, sentence)
            }
            None => (Condition::Up, format!("UEs rest after {:?}", memory.rest_after)),
        };
        let opened = Self {
            limit,
            heap: state,
            next_slice: Instant::ZERO,
            next_measurement: Instant::ZERO,
            is_full: false,
        };
        Some((opened, condition, detail))
    }

    /// Works for some hundred microseconds at most. Returns whether there is more to do.
    pub fn turn(&mut self, now: Instant, busy: bool, cpf: Option<&mut Cpf>) -> bool {
        if now >= self.next_measurement {
            self.next_measurement = now + MEASURED_EVERY;
            self.adjust();
        }
        let Some(cpf) = cpf.filter(|_| !busy || now >= self.next_slice) else { return false };
        self.next_slice = now + SLICE_EVERY;
        let stored = |cpf: &Cpf| cpf.rest_counters().map(|counters| counters.stored);
        let before = stored(cpf);
        cpf.rest(now, UES_PER_SLICE, RECORDS_PER_SLICE);
        self.heap.is_busy.get() || stored(cpf) != before
    }

    /// Sets what regions may take of the limit: what the rest of the process leaves.
    fn adjust(&mut self) {
        let resident = resident();
        self.is_full = resident > self.limit;
        let rest = resident.saturating_sub(self.heap.stats.get().fast_octets);
        self.heap.fast_octets.set(self.limit.saturating_sub(rest).max(FAST_MIN));
    }

    /// Whether UEs that are only added for a measurement should wait until cold records have left memory.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    pub fn samples(&self, cpf: Option<&Cpf>) -> Vec<MetricSample> {
        let counters = cpf.and_then(Cpf::rest_counters).unwrap_or_default();
        let (heap, stats) = (&self.heap, self.heap.stats.get());
        let micros = |d: Duration| u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        let one = |metric, value| MetricSample { metric, label: None, value };
        let of = |metric, label: &str, value| MetricSample { metric, label: Some(label.into()), value };
        vec![
            one(Metric::MemoryLimit, self.limit),
            one(Metric::UesAtRest, counters.at_rest),
            one(Metric::UeRecords, counters.record_octets),
            of(Metric::UeMemory, "fast", stats.fast_octets),
            of(Metric::UeMemory, "slow", stats.slow_octets),
            of(Metric::UeRecordReads, "fast", stats.fast_reads),
            of(Metric::UeRecordReads, "slow", stats.slow_reads),
            one(Metric::UesStored, counters.stored),
            one(Metric::UeRecordsMoved, stats.moved),
            one(Metric::UeRecordStall, micros(heap.stalled.get())),
            one(Metric::UeRecordStallLongest, micros(heap.longest_stall.get())),
            one(Metric::UeRelocationLongest, micros(heap.longest_slice.get())),
            one(Metric::UesNotStored, counters.no_room),
            one(Metric::UeRecordsDamaged, counters.damaged),
        ]
    }
}

/// Where cold records go, and why they cannot go where the configuration says.
fn backing(memory: &MemoryConfig, beside: &Path) -> (Backing, Option<String>) {
    match memory.slow {
        SlowTier::None => (Backing::None, None),
        SlowTier::Zram => match fs::read_to_string("/proc/swaps") {
            Ok(swaps) if swaps.contains("zram") => (Backing::Swap, None),
            _ => (Backing::None, Some("`memory.slow` is zram, and the host has no swap on zram".into())),
        },
        SlowTier::File => {
            // Each life of a CPF has a file of its own.
            let name = format!("ues-{}", std::process::id());
            let beside = || -> PathBuf { beside.with_extension(name) };
            (Backing::File(memory.file.clone().unwrap_or_else(beside)), None)
        }
    }
}

/// Octets of this process in memory.
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
