//! Sites of homes, as many UEs as a country has: `./x sim --sites [--ues 10000,100000,1000000] [--fixed] [--at-rest 10000000] [--plant FAULT]`.
//!
//! One line of each size: what a UE takes in memory, messages, processor time and latency, and the ratio to the first size. The exit status is 1 if a
//! promise is broken (no UE registers again, no session is lost, no address is given twice), or if a figure is not within a tenth of that of the first size.

#[expect(clippy::disallowed_methods, reason = "plots are files")]
#[allow(dead_code, reason = "plots of names are drawn elsewhere")]
#[path = "../../programs/bench/src/plot.rs"]
mod plot;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use plot::{Axis, Plot, Series};
use whimbrel_control::Prf;
use whimbrel_sim::{
    Activity, SiteFigures, SiteLink, SitesFault, SitesMemory, SitesMeter, SitesPlan, SitesRun,
};

/// Counts what is given out.
struct CountedHeap;

static GIVEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for CountedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        GIVEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountedHeap = CountedHeap;

/// How far a figure may be from that of the first size.
const TOLERANCE: f64 = 0.1;
/// UEs of a gNB: as many as the gNBs of a district have together with the UEs of the smallest size.
const UES_OF_GNB: u32 = 100;
/// gNBs of a district.
const GNBS_OF_DISTRICT: u32 = 50;
const HOURS_OF_MONTH: f64 = 730.0;

struct SitesOptions {
    ues: Vec<u32>,
    /// Eight sites of eight homes at each size.
    fixed: bool,
    sites: Option<u8>,
    homes: Option<u8>,
    at_rest: u64,
    minutes: u64,
    seed: u64,
    no_replicas: bool,
    fault: Option<SitesFault>,
    plots: Option<PathBuf>,
}

const USAGE: &str = "usage: sites [--ues N,N,...] [--fixed] [--sites N] [--homes N] [--at-rest N] [--minutes M] [--seed S] [--no-replicas] \
                     [--plant home-forgets|overlapping-pools|scan] [--plots FOLDER]";

fn options() -> Option<SitesOptions> {
    let mut options = SitesOptions {
        ues: vec![10_000, 100_000, 1_000_000],
        fixed: false,
        sites: None,
        homes: None,
        at_rest: 0,
        minutes: 10,
        seed: 1,
        no_replicas: false,
        fault: None,
        plots: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--fixed" => options.fixed = true,
            "--no-replicas" => options.no_replicas = true,
            "--ues" => {
                options.ues = arguments.next()?.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
            }
            "--sites" => options.sites = Some(within(arguments.next()?, 2, 8)?),
            "--homes" => options.homes = Some(within(arguments.next()?, 2, 8)?),
            "--at-rest" => options.at_rest = arguments.next()?.parse().ok()?,
            "--minutes" => {
                options.minutes = arguments.next()?.parse().ok().filter(|m| (1..=600).contains(m))?
            }
            "--seed" => options.seed = arguments.next()?.parse().ok()?,
            "--plots" => options.plots = Some(arguments.next()?.into()),
            "--plant" => {
                options.fault = Some(match arguments.next()?.as_str() {
                    "home-forgets" => SitesFault::HomeForgets,
                    "overlapping-pools" => SitesFault::OverlappingPools,
                    "scan" => SitesFault::Scan,
                    _ => return None,
                });
            }
            _ => return None,
        }
    }
    // The numbers of equipment have six digits.
    Some(options).filter(|o| !o.ues.is_empty() && o.ues.iter().all(|n| (200..=1_000_000).contains(n)))
}

fn within(number: String, least: u8, most: u8) -> Option<u8> {
    number.parse().ok().filter(|n| (least..=most).contains(n))
}

impl SitesOptions {
    fn plan(&self, ues: u32) -> SitesPlan {
        // In proportion: two sites of two homes for 10,000 UEs, four of four for 100,000, eight of eight for 1,000,000.
        let in_proportion = match ues {
            ..50_000 => 2,
            50_000..500_000 => 4,
            _ => 8,
        };
        let of = |wished: Option<u8>| wished.unwrap_or(if self.fixed { 8 } else { in_proportion });
        let sites = of(self.sites);
        let districts = ues / UES_OF_GNB / GNBS_OF_DISTRICT / u32::from(sites);
        SitesPlan {
            sites,
            homes: of(self.homes),
            districts: districts.max(1) as u16,
            ues,
            at_rest: self.at_rest,
            replicas: !self.no_replicas,
            arrival: Duration::from_secs(120),
            measured: Duration::from_secs(60 * self.minutes),
            pause: Duration::from_secs(300),
            seed: self.seed,
            fault: self.fault,
        }
    }
}

/// A size with what was measured.
struct SizeFigures {
    plan: SitesPlan,
    memory: SitesMemory,
    resident: u64,
    figures: Vec<Figure>,
    /// Processor time of the reference work, in microseconds.
    reference_us: f64,
}

/// Name, value, and what it has to be.
type Figure = (String, f64, Must);

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Must {
    /// Within a tenth of that of the first size.
    BeFlat,
    /// Not more than a tenth above that, as a multiple of the time of the reference work.
    BeFlatTime,
    /// Printed and not judged.
    Nothing,
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let mut sizes: Vec<SizeFigures> = Vec::new();
    let mut failed = false;
    for &ues in &options.ues {
        let (size, broken) = measure(options.plan(ues));
        for line in &broken {
            println!("broken: {line}");
        }
        failed |= !broken.is_empty();
        failed |= print(&size, sizes.first());
        sizes.push(size);
    }
    if let Some(folder) = &options.plots
        && let Err(e) = draw(&sizes, folder)
    {
        eprintln!("the plot is not written: {e}");
        failed = true;
    }
    if let Some(largest) = sizes.last() {
        month(largest);
    }
    json(&sizes, failed);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn measure(plan: SitesPlan) -> (SizeFigures, Vec<String>) {
    let began = clock();
    println!(
        "\n{} UEs, {} sites of {} homes, {} gNBs{}",
        plan.ues,
        plan.sites,
        plan.homes,
        plan.gnbs(),
        if plan.at_rest > 0 { format!("; {} UEs beside them at rest", plan.at_rest) } else { String::new() }
    );
    let meter = SitesMeter { nanos, octets: || GIVEN.load(Ordering::Relaxed), reference };
    let mut run = SitesRun::new(plan, meter);
    run.live();
    let broken = run.verdict();
    let counted = run.figures().clone();
    let registered = run.registered();
    let (resident, held) = (resident(), run.replicas_held());
    let noted = run.noted().to_vec();
    let memory = run.take_apart();
    println!(
        "  {:.0} s of processor and waiting; {} handovers failed, {} messages of homes came late, {} connections released by the core, {} messages that gNBs did not expect, {} contexts superseded, {} NAS messages discarded",
        began.elapsed().as_secs_f64(),
        counted.handovers_failed,
        counted.n14_errors,
        counted.released_by_core,
        counted.violations,
        counted.superseded,
        counted.discarded,
    );
    for line in noted.iter().take(5) {
        println!("  noted: {line}");
    }
    println!("  UEs at homes: {registered:?}; {held} have a replica");
    if counted.drained > 0 {
        println!(
            "  of the {} UEs of the drained home each took {:.1} messages to another home, {:.1} on N4, and {:.1} µs of processor time",
            counted.drained,
            per_drained(&counted, counted.messages_in_all(Activity::Removal, SiteLink::N14WithinSite) as f64),
            per_drained(&counted, counted.messages_in_all(Activity::Removal, SiteLink::N4) as f64),
            per_drained(&counted, counted.processor_us_in_all(Activity::Removal)),
        );
    }
    let n = plan.ues;
    let all = u64::from(n) + plan.at_rest;
    let each = |octets: usize| octets as f64 / all as f64;
    let mut figures = vec![
        ("octets at its home".to_owned(), each(memory.homes), Must::BeFlat),
        (
            "octets of a replica, at both homes".to_owned(),
            memory.replicas as f64 / held.max(1) as f64,
            if plan.replicas { Must::BeFlat } else { Must::Nothing },
        ),
        ("octets at the UPF".to_owned(), each(memory.upfs), Must::Nothing),
        ("procedures an hour".to_owned(), counted.procedures_per_hour(n), Must::BeFlat),
        (
            "processor time an hour, ms".to_owned(),
            counted.processor_us_per_hour(n) / 1_000.0,
            Must::BeFlatTime,
        ),
    ];
    for (link, name) in [
        (SiteLink::N14WithinSite, "messages to homes of its site an hour"),
        (SiteLink::N14BetweenSites, "messages to homes of other sites an hour"),
        (SiteLink::N2, "messages on N2 an hour"),
        (SiteLink::N4, "messages on N4 an hour"),
    ] {
        let (messages, octets) = counted.traffic_per_hour(link, n);
        // Of a few, chance decides: a handover is five messages.
        let enough = messages * f64::from(n) * plan.measured.as_secs_f64() / 3_600.0 >= 5_000.0;
        let must = if enough { Must::BeFlat } else { Must::Nothing };
        figures.push((name.to_owned(), messages, must));
        if matches!(link, SiteLink::N14WithinSite | SiteLink::N14BetweenSites) {
            figures.push((name.replace("messages", "octets"), octets, must));
        }
    }
    let (p50, p99) = counted.input_us();
    figures.push(("processor time of an input, p50, µs".to_owned(), p50, Must::BeFlatTime));
    figures.push(("processor time of an input, p99, µs".to_owned(), p99, Must::BeFlatTime));
    println!(
        "  {:<26} {:>10} {:>12} {:>8} {:>8} {:>10} {:>10} {:>9} {:>6}",
        "procedure", "count", "processor µs", "N2", "N4", "N14 within", "N14 between", "hops", "p99"
    );
    for activity in Activity::PROCEDURES {
        let count = counted.count(activity);
        if count == 0 {
            continue;
        }
        let name = activity.name();
        let messages = |link| counted.messages(activity, link);
        let (hops, p99) = counted.hops(activity);
        println!(
            "  {name:<26} {count:>10} {:>12.1} {:>8.2} {:>8.2} {:>10.2} {:>10.2} {hops:>9.2} {p99:>6}",
            counted.processor_us(activity),
            messages(SiteLink::N2),
            messages(SiteLink::N4),
            messages(SiteLink::N14WithinSite),
            messages(SiteLink::N14BetweenSites),
        );
        // Of a few, chance decides.
        let must = |must| if count >= 1_000 { must } else { Must::Nothing };
        figures.push((
            format!("{name}: processor time, µs"),
            counted.processor_us(activity),
            must(Must::BeFlatTime),
        ));
        let homes = messages(SiteLink::N14WithinSite) + messages(SiteLink::N14BetweenSites);
        // Where a home that is drained is the only reason, it depends on its share.
        if homes > 0.5 {
            figures.push((format!("{name}: messages between homes"), homes, must(Must::BeFlat)));
        }
        figures.push((format!("{name}: hops"), hops, must(Must::BeFlat)));
    }
    (SizeFigures { plan, memory, resident, figures, reference_us: counted.reference_us() }, broken)
}

fn per_drained(counted: &SiteFigures, all: f64) -> f64 {
    all / counted.drained as f64
}

/// Prints the figures beside those of the first size. Returns whether one is not flat.
fn print(size: &SizeFigures, first: Option<&SizeFigures>) -> bool {
    let mut failed = false;
    println!("  {:<48} {:>12} {:>9} {:>9}", "for each UE", "", "ratio", "by ref.");
    let slower = first.map_or(1.0, |first| size.reference_us / first.reference_us);
    for (name, value, must) in &size.figures {
        let former = first.and_then(|first| first.figures.iter().find(|(n, ..)| n == name));
        let ratio = former.filter(|(_, v, _)| *v != 0.0).map(|(_, v, _)| value / v);
        let by_reference = ratio.filter(|_| *must == Must::BeFlatTime).map(|r| r / slower);
        let judged = by_reference.or(ratio).filter(|_| *must != Must::Nothing);
        let off = judged.filter(|r| {
            // Of a time only its growth is a fault: the machine is not as fast at each moment.
            let distance = if *must == Must::BeFlatTime { r - 1.0 } else { (r - 1.0).abs() };
            former.is_some_and(|f| f.2 == *must) && distance > TOLERANCE
        });
        failed |= off.is_some();
        let text = |ratio: Option<f64>| ratio.map_or(String::new(), |r| format!("{r:.3}"));
        let mark = if off.is_some() { "  not flat" } else { "" };
        println!("  {name:<48} {value:>12.2} {:>9} {:>9}{mark}", text(ratio), text(by_reference));
    }
    println!(
        "  the reference work takes {:.1} µs of processor time; `by ref.` is the ratio as a multiple of that",
        size.reference_us
    );
    let mib = |octets: usize| octets >> 20;
    println!(
        "  MiB in all: homes {}, replicas {}, UPFs {}, emulated gNBs and UEs {}; resident {}",
        mib(size.memory.homes),
        mib(size.memory.replicas),
        mib(size.memory.upfs),
        mib(size.memory.ran),
        size.resident >> 20
    );
    failed
}

/// The cost of a million UEs a month, computed from the figures.
fn month(size: &SizeFigures) {
    let of = |name: &str| size.figures.iter().find(|(n, ..)| n == name).map_or(0.0, |(_, v, _)| *v);
    let cores = of("processor time an hour, ms") * 1e6 / 3_600_000.0;
    let gib = |octets: f64| octets / f64::from(1 << 30);
    println!("\ncomputed from the figures of {} UEs: what a million UEs cost", size.plan.ues);
    println!("  {:<64} {:>10.2}", "processor cores of homes, on average", cores);
    println!("  {:<64} {:>10.0}", "core hours a month", cores * HOURS_OF_MONTH);
    println!("  {:<64} {:>10.2}", "GiB of memory at homes", gib(of("octets at its home") * 1e6));
    println!(
        "  {:<64} {:>10.2}",
        "GiB of memory of replicas",
        gib(of("octets of a replica, at both homes") * 1e6)
    );
    for (name, what) in [
        ("octets to homes of other sites an hour", "GiB between sites a month"),
        ("octets to homes of its site an hour", "GiB between homes of a site a month"),
    ] {
        println!("  {what:<64} {:>10.1}", gib(of(name) * 1e6 * HOURS_OF_MONTH));
    }
}

fn draw(sizes: &[SizeFigures], folder: &Path) -> std::io::Result<()> {
    let Some(first) = sizes.first() else { return Ok(()) };
    let shown = [
        "octets at its home",
        "octets of a replica, at both homes",
        "processor time an hour, ms",
        "messages to homes of its site an hour",
        "messages to homes of other sites an hour",
        "processor time of an input, p50, µs",
        "registration: hops",
        "handover between sites: hops",
    ];
    let of =
        |size: &SizeFigures, name: &str| size.figures.iter().find(|(n, ..)| n == name).map(|(_, v, _)| *v);
    let series = shown.iter().map(|name| {
        let base = of(first, name).unwrap_or(0.0);
        let points = sizes.iter().filter_map(|size| {
            Some((f64::from(size.plan.ues).log10(), of(size, name).filter(|_| base > 0.0)? / base))
        });
        Series { name: (*name).to_owned(), points: points.collect() }
    });
    let plot = Plot {
        title: "Sites of homes: figures of a UE, beside those of the first size",
        x: "UEs, power of ten",
        y: "ratio to the first size",
        log_y: false,
        axis: Axis::Numbers,
        series: series.collect(),
    };
    plot.write(folder, "sites")
}

fn json(sizes: &[SizeFigures], failed: bool) {
    let quoted = |size: &SizeFigures| {
        let figures = size.figures.iter().map(|(name, value, _)| format!("\"{name}\": {value:.3}"));
        format!("{{\"ues\": {}, {}}}", size.plan.ues, figures.collect::<Vec<_>>().join(", "))
    };
    let sizes: Vec<String> = sizes.iter().map(quoted).collect();
    println!(
        "{{\"bench\": \"sites\", \"figures\": {{\"failed\": {failed}, \"sizes\": [{}]}}}}",
        sizes.join(", ")
    );
}

/// Memory that the system holds for this process, in octets.
#[expect(clippy::disallowed_methods, reason = "shown beside the allocator's count")]
fn resident() -> u64 {
    let status = std::fs::read("/proc/self/status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status).into_owned();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock that the core must not")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// Some tens of microseconds: what a core does all the time, in little memory.
fn reference() {
    let prf = Prf::new(&[7; 16]);
    let mut records: BTreeMap<u128, Box<[u8]>> = BTreeMap::new();
    for n in 0..256 {
        let block = prf.block(n);
        records.insert(u128::from_be_bytes(block), block.repeat(8).into_boxed_slice());
    }
    std::hint::black_box(records.values().map(|r| u64::from(r[0])).sum::<u64>());
}

/// Processor time of this thread: what else the machine does is not in it.
fn nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
