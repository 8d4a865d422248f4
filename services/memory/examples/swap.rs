//! The heap beside the kernel's own swap, and beside paging out whole pages, on the same traces: `./x bench tier swap [RECORDS] [ACCESSES] [PERCENT]`.
//!
//! All three have the same records in the same order and the same swap. `tier` is the heap, which collects hot records and pages cold regions out by itself.
//! `kernel` is an array in a memory cgroup: what leaves memory the kernel decides, as often as the others do. `pages` is an array whose 4 KiB pages are
//! counted exactly, and the coldest are paged out by MADV_PAGEOUT. What each has in memory at the end is printed. An access that meets a page in the swap is a major fault: misses are these faults,
//! whatever their cause. Time is the processor's time of the whole process, the kernel's part and all policies in it, because others may use the machine.
//!
//! Root and zram are needed: with none in use as swap it adds a device, and removes it at the end; meanwhile `vm.page-cluster` is zero for the machine.
//! Without zram, `--swap PATH` names a file or device that is swapped to instead, and the first line says so.

#![allow(clippy::disallowed_methods, reason = "a bench reads and writes the kernel's settings")]

#[path = "shared/trace.rs"]
mod trace;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::ptr::NonNull;

use whimbrel_memory::{Activation, Backing, Config, Heap, REGION_OCTETS, RecordLocation, Slice};

use crate::trace::{Random, Trace, Workload, settle, shuffled};

/// Octets of a record with its header: that of a UE with one session.
const SPAN: usize = 304;
const PAGE: usize = 4096;
/// Shares of the records that fast memory holds, in percent.
const LOCAL: [u64; 4] = [10, 20, 30, 50];
/// Accesses between which policies go on, as in `traces.rs`.
const ACCESSES: usize = 5000;
const SLICES_MAX: usize = 10_000;
const SLICE: usize = 1000;
/// Octets that a heap has in memory beside its limit: regions that it fills and pages out.
const BESIDE_FAST: usize = 3 * REGION_OCTETS;

/// Memory that the kernel counts beside the array: tables of its pages, eight octets for each, and batches that it charges in advance.
const TABLES_SHARE: usize = 512;
const TABLES: usize = 1 << 20;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench tier swap: {e}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<(), Failure> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let at = arguments.iter().position(|a| a == "--swap");
    let path =
        at.map(|at| arguments.drain(at..(at + 2).min(arguments.len())).next_back().unwrap_or_default());
    let numbers: Vec<usize> = arguments.iter().filter_map(|n| n.parse().ok()).collect();
    let records = numbers.first().copied().unwrap_or(500_000).clamp(200_000, 20_000_000);
    let accesses = numbers.get(1).copied().unwrap_or(8).clamp(1, 1000);
    let only = numbers.get(2).map(|percent| *percent as u64);
    let swap = Swap::begin((records * SPAN) as u64 * 2, path.map(PathBuf::from))?;
    println!(
        "{records} records of {SPAN} octets, half of each random; {accesses} accesses of each on average, then one that is measured; swap: {}",
        swap.name
    );
    let mut rows = Vec::new();
    for workload in [Workload::Zipf(0.99), Workload::Hotspot] {
        let mut random = Random::new(88_172_645_463_325_252);
        let trace = Trace::new(workload, records);
        let order = shuffled(records, &mut random);
        println!(
            "{:<8} {:>6} | {:>8} {:>8} {:>8} | {:>8} {:>8} {:>8} | {:>7} {:>7} {:>7} | {:>13} {:>13}",
            workload.name(),
            "local",
            "tier",
            "kernel",
            "pages",
            "tier",
            "kernel",
            "pages",
            "tier",
            "kernel",
            "pages",
            "kernel : tier",
            "pages : tier"
        );
        println!(
            "{:<8} {:>6} | {:>26} | {:>26} | {:>23} | {:>27}",
            "", "", "misses, % of accesses", "us an access", "MiB in memory", "misses; time"
        );
        for local in LOCAL.into_iter().filter(|l| only.is_none_or(|only| only == *l)) {
            let fast = records * local as usize / 100 * SPAN / REGION_OCTETS * REGION_OCTETS;
            let comparison = SwapComparison { trace: &trace, order: &order, accesses, fast };
            let [tier, kernel, pages] = [comparison.tier()?, comparison.kernel()?, comparison.pages()?];
            let ratio = |other: &Measured| {
                format!("{:>5.2}; {:>5.2}", other.misses / tier.misses.max(1e-9), other.us / tier.us)
            };
            println!(
                "{:<8} {local:>5}% | {:>8.2} {:>8.2} {:>8.2} | {:>8.3} {:>8.3} {:>8.3} | {:>7} {:>7} {:>7} | {:>13} {:>13}",
                "",
                100.0 * tier.misses,
                100.0 * kernel.misses,
                100.0 * pages.misses,
                tier.us,
                kernel.us,
                pages.us,
                tier.resident >> 20,
                kernel.resident >> 20,
                pages.resident >> 20,
                ratio(&kernel),
                ratio(&pages)
            );
            rows.push(format!(
                "{{\"workload\": \"{}\", \"local_percent\": {local}, \"misses\": {{\"tier\": {:.5}, \"kernel\": {:.5}, \"pages\": {:.5}}}, \
                 \"us\": {{\"tier\": {:.4}, \"kernel\": {:.4}, \"pages\": {:.4}}}}}",
                workload.name(), tier.misses, kernel.misses, pages.misses, tier.us, kernel.us, pages.us
            ));
        }
    }
    println!(
        "{{\"bench\": \"tier swap\", \"figures\": {{\"records\": {records}, \"swap\": \"{}\", \"rows\": [{}]}}}}",
        swap.name,
        rows.join(", ")
    );
    Ok(())
}

/// Figures of one way, while the accesses were measured.
struct Measured {
    /// Major faults of an access.
    misses: f64,
    /// Microseconds of the processor for an access, with all that moves or pages out.
    us: f64,
    /// Octets of the records that were in memory at the end.
    resident: usize,
}

/// The kernel's counters of this process.
#[derive(Clone, Copy)]
struct KernelCounters {
    faults: i64,
    us: f64,
}

fn usage() -> KernelCounters {
    // SAFETY: all octets zero are a value of the structure, and the call overwrites it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec as f64 * 1e6 + t.tv_usec as f64;
    KernelCounters { faults: usage.ru_majflt, us: us(usage.ru_utime) + us(usage.ru_stime) }
}

/// A record as its owner has it: one half random, so that it compresses as records of UEs do.
fn record(owner: u32) -> [u8; SPAN - 8] {
    let mut octets = [0x5a; SPAN - 8];
    let mut random = Random::new(u64::from(owner) * 2_654_435_761 + 1);
    for word in octets[..(SPAN - 8) / 2].chunks_exact_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes());
    }
    octets
}

fn read(octets: &[u8]) {
    std::hint::black_box(octets.iter().map(|octet| u64::from(*octet)).sum::<u64>());
}

/// One comparison: a trace with so much fast memory.
struct SwapComparison<'a> {
    trace: &'a Trace,
    order: &'a [u32],
    accesses: usize,
    fast: usize,
}

impl SwapComparison<'_> {
    /// Accesses until a policy knows the records, then those that are measured, by the same generator for each way.
    fn measure(&self, mut access: impl FnMut(usize, usize)) -> (f64, f64) {
        let mut random = Random::new(1);
        let count = self.order.len();
        for n in 1..=count * self.accesses {
            access(n, self.trace.access(&mut random));
        }
        let before = usage();
        for n in 1..=count {
            access(n, self.trace.access(&mut random));
        }
        let after = usage();
        ((after.faults - before.faults) as f64 / count as f64, (after.us - before.us) / count as f64)
    }

    fn tier(&self) -> Result<Measured, Failure> {
        // The distribution stays: all accesses count. Regions that are being filled or paged out are beside those of fast memory.
        let fast = self.fast.saturating_sub(BESIDE_FAST).max(BESIDE_FAST) as u64;
        let config = Config { decay_cycles: u32::MAX, ..Config::new(fast, Backing::Swap) };
        let mut heap = Heap::new(config, Activation::one_in(1))?;
        let mut places: Vec<Option<RecordLocation>> = vec![None; self.order.len()];
        for owner in self.order {
            places[*owner as usize] = Some(heap.insert(*owner, &record(*owner))?);
        }
        settle(&mut heap, &mut places, fast);
        let (misses, us) = self.measure(|n, owner| {
            let place = places[owner].expect("each record has a place");
            read(heap.read(owner as u32, place).expect("it is there"));
            let mut slices = if n % ACCESSES == 0 { SLICES_MAX } else { 0 };
            while slices > 0 {
                let slice = heap.colocate(SLICE, |owner, place| places[owner as usize] = Some(place));
                slices = if slice == Slice::Unfinished || heap.has_promotions() { slices - 1 } else { 0 };
            }
        });
        Ok(Measured { misses, us, resident: heap.resident_octets() as usize })
    }

    fn kernel(&self) -> Result<Measured, Failure> {
        let places = self.places();
        // What is in memory so far stays there, and does not count.
        // SAFETY: locks pages of this process, and unlocks them below.
        if unsafe { libc::mlockall(libc::MCL_CURRENT) } != 0 {
            return Err(format!("mlockall: {}", io::Error::last_os_error()).into());
        }
        let group = MemoryGroup::enter()?;
        let array = self.filled()?;
        let octets = self.fast + self.order.len() * SPAN / TABLES_SHARE + TABLES;
        group.reclaim_to(octets);
        let (misses, us) = self.measure(|n, owner| {
            read(array.record(places[owner]));
            if n % ACCESSES == 0 {
                group.reclaim_to(octets);
            }
        });
        let resident = array.resident();
        drop((array, group));
        // SAFETY: as above.
        unsafe { libc::munlockall() };
        Ok(Measured { misses, us, resident })
    }

    fn pages(&self) -> Result<Measured, Failure> {
        let places = self.places();
        let array = self.filled()?;
        let mut policy = PagePolicy::new(array.octets / PAGE, self.fast / PAGE);
        let (misses, us) = self.measure(|n, owner| {
            read(array.record(places[owner]));
            policy.count(places[owner]);
            if n % ACCESSES == 0 {
                policy.page_out(&array, self.order.len());
            }
        });
        Ok(Measured { misses, us, resident: array.resident() })
    }

    /// Where each owner's record is in an array that is filled in the order of insertion.
    fn places(&self) -> Vec<usize> {
        let mut places = vec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(i, owner)| places[*owner as usize] = i * SPAN);
        places
    }

    fn filled(&self) -> Result<Array, Failure> {
        let mut array = Array::new(self.order.len() * SPAN)?;
        for (i, owner) in self.order.iter().enumerate() {
            array.set(i * SPAN, &record(*owner));
        }
        Ok(array)
    }
}

/// Exact counts of pages, of which the most used stay.
struct PagePolicy {
    counts: Vec<u32>,
    is_here: Vec<bool>,
    /// Pages that were used since the last time, or that have not left yet.
    came: Vec<usize>,
    kept_max: usize,
    kept: usize,
    /// Pages that are used as often or less leave; computed again when accesses have changed the order.
    cutoff: u32,
    accesses: usize,
}

impl PagePolicy {
    fn new(pages: usize, kept_max: usize) -> Self {
        Self {
            counts: vec![0; pages],
            is_here: vec![true; pages],
            came: (0..pages).collect(),
            kept_max,
            kept: pages,
            cutoff: 0,
            accesses: 0,
        }
    }

    /// A record's first and last octet may be on two pages.
    fn count(&mut self, offset: usize) {
        for page in [offset / PAGE, (offset + SPAN - 9) / PAGE] {
            self.counts[page] += 1;
            if !self.is_here[page] {
                self.is_here[page] = true;
                self.came.push(page);
                self.kept += 1;
            }
            if (offset + SPAN - 9) / PAGE == offset / PAGE {
                break;
            }
        }
    }

    fn page_out(&mut self, array: &Array, records: usize) {
        self.accesses += ACCESSES;
        if self.accesses * 2 >= records || self.kept > self.kept_max * 2 {
            self.accesses = 0;
            let mut sorted = self.counts.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            self.cutoff = sorted[self.kept_max.min(sorted.len() - 1)];
            self.came = (0..self.counts.len()).filter(|page| self.is_here[*page]).collect();
        }
        let mut stay = Vec::new();
        for page in std::mem::take(&mut self.came) {
            if self.kept > self.kept_max && self.counts[page] <= self.cutoff {
                array.page_out(page);
                self.is_here[page] = false;
                self.kept -= 1;
            } else if self.counts[page] <= self.cutoff {
                stay.push(page);
            }
        }
        self.came = stay;
    }
}

/// Records side by side in memory that the kernel may swap, in pages of 4 KiB.
struct Array {
    at: NonNull<u8>,
    octets: usize,
}

impl Array {
    fn new(octets: usize) -> io::Result<Self> {
        let octets = octets.next_multiple_of(PAGE);
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours; the advice changes no octet.
        let at = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), octets, access, kind, -1, 0);
            if at == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(at, octets, libc::MADV_NOHUGEPAGE);
            at
        };
        NonNull::new(at.cast()).map(|at| Self { at, octets }).ok_or_else(io::Error::last_os_error)
    }

    fn set(&mut self, offset: usize, octets: &[u8]) {
        assert!(offset + octets.len() <= self.octets, "beyond the end of the array");
        // SAFETY: within the mapping, and `&mut self` excludes readers.
        unsafe { self.at.add(offset).copy_from_nonoverlapping(NonNull::from(octets).cast(), octets.len()) };
    }

    fn record(&self, offset: usize) -> &[u8] {
        assert!(offset + SPAN - 8 <= self.octets, "beyond the end of the array");
        // SAFETY: within the mapping, and there is no writer while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.at.add(offset).as_ptr(), SPAN - 8) }
    }

    fn page_out(&self, page: usize) {
        assert!(page * PAGE < self.octets, "beyond the end of the array");
        // SAFETY: a page of the mapping; MADV_PAGEOUT changes no octet of it.
        unsafe { libc::madvise(self.at.add(page * PAGE).as_ptr().cast(), PAGE, libc::MADV_PAGEOUT) };
    }

    /// Octets that are in memory, by mincore(2).
    fn resident(&self) -> usize {
        let mut pages = vec![0u8; self.octets / PAGE];
        // SAFETY: one octet for each page of the mapping.
        unsafe { libc::mincore(self.at.as_ptr().cast(), self.octets, pages.as_mut_ptr()) };
        pages.iter().filter(|page| **page & 1 == 1).count() * PAGE
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and nothing refers to it any longer.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.octets) };
    }
}

/// A memory cgroup that this process is in, until it is dropped.
struct MemoryGroup {
    group: PathBuf,
    before: PathBuf,
    is_first_version: bool,
}

impl MemoryGroup {
    /// All that is allocated from now on is counted. Errors: no right to make a group, or no memory controller.
    fn enter() -> Result<Self, Failure> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let of = |prefix: &str, root: &str| {
            let line = own.lines().find(|l| l.split(':').nth(1) == Some(prefix))?;
            Some(Path::new(root).join(line.splitn(3, ':').nth(2)?.trim_start_matches('/')))
        };
        let first = of("memory", "/sys/fs/cgroup/memory");
        let is_first_version = first.is_some();
        let before = first.or_else(|| of("", "/sys/fs/cgroup")).ok_or("no memory cgroup")?;
        let group = before.join(format!("whimbrel-bench-{}", std::process::id()));
        let made = fs::create_dir_all(&group)
            .and_then(|()| fs::write(group.join("cgroup.procs"), std::process::id().to_string()));
        made.map_err(|e| {
            format!("{}: {e}: the kernel's way needs a memory cgroup, and root", group.display())
        })?;
        Ok(Self { group, before, is_first_version })
    }

    /// Has the kernel choose what leaves memory until so much is left. A limit that stood all the time would end this process where the kernel finds
    /// all pages in use.
    fn reclaim_to(&self, octets: usize) {
        // What cannot be reclaimed now is tried again the next time.
        if self.is_first_version {
            let limit = self.group.join("memory.limit_in_bytes");
            let _ = fs::write(&limit, octets.to_string());
            let _ = fs::write(&limit, "-1");
        } else {
            let used = fs::read_to_string(self.group.join("memory.current")).unwrap_or_default();
            let over = used.trim().parse::<usize>().unwrap_or(0).saturating_sub(octets);
            let _ = fs::write(self.group.join("memory.reclaim"), over.to_string());
        }
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let left = fs::write(self.before.join("cgroup.procs"), std::process::id().to_string());
        if let Err(e) = left.and_then(|()| fs::remove_dir(&self.group)) {
            eprintln!("{}: {e}", self.group.display());
        }
    }
}

/// The swap that is measured with.
struct Swap {
    name: String,
    /// Undone at the end: the device or file, and the number of a zram device that was added.
    added: Option<(PathBuf, Option<String>)>,
    page_cluster: String,
}

const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
const ZRAM: &str = "/sys/class/zram-control";

impl Swap {
    /// Uses zram that is swapped to already, or adds a device; or swaps to `path`.
    fn begin(octets: u64, path: Option<PathBuf>) -> Result<Self, Failure> {
        let page_cluster = fs::read_to_string(PAGE_CLUSTER)?;
        let used = fs::read_to_string("/proc/swaps")?;
        let found = used.lines().skip(1).filter_map(|l| l.split_whitespace().next());
        let found: Vec<&str> = found.collect();
        let mut swap = Self { name: String::new(), added: None, page_cluster };
        if let Some(path) = path {
            swap.name = format!("{}, no zram", path.display());
            swap.add(path, None)?;
        } else if !found.is_empty() && found.iter().all(|path| path.contains("zram")) {
            swap.name = found.join(" ");
        } else if found.is_empty() {
            let number = fs::read_to_string(format!("{ZRAM}/hot_add")).map_err(|e| {
                format!("no zram device can be added ({ZRAM}/hot_add: {e}); --swap PATH names another swap")
            })?;
            let number = number.trim().to_owned();
            swap.added = Some((PathBuf::new(), Some(number.clone())));
            fs::write(format!("/sys/block/zram{number}/disksize"), octets.to_string())?;
            let compression = fs::read_to_string(format!("/sys/block/zram{number}/comp_algorithm"))?;
            let compression = compression.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
            swap.name = format!("zram, {compression}");
            swap.add(PathBuf::from(format!("/dev/zram{number}")), Some(number))?;
        } else {
            return Err(format!(
                "swapped to are {}, not zram: what is measured would be theirs",
                found.join(" ")
            )
            .into());
        }
        // A fault brings in its page alone.
        fs::write(PAGE_CLUSTER, "0").map_err(|e| format!("{PAGE_CLUSTER}: {e}"))?;
        Ok(swap)
    }

    fn add(&mut self, path: PathBuf, zram: Option<String>) -> Result<(), Failure> {
        for command in ["mkswap", "swapon"] {
            let done = Command::new(command).arg(&path).output().map_err(|e| format!("{command}: {e}"))?;
            if !done.status.success() {
                return Err(format!(
                    "{command} {}: {}",
                    path.display(),
                    String::from_utf8_lossy(&done.stderr)
                )
                .into());
            }
        }
        self.added = Some((path, zram));
        Ok(())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = fs::write(PAGE_CLUSTER, self.page_cluster.trim());
        let Some((path, zram)) = self.added.take() else { return };
        if !path.as_os_str().is_empty() {
            let _ = Command::new("swapoff").arg(&path).status();
        }
        if let Some(number) = zram
            && let Err(e) = fs::write(format!("{ZRAM}/hot_remove"), &number)
        {
            eprintln!("zram{number} stays: {e}");
        }
    }
}
