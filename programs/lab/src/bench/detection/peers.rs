//! S-BFD alone: the time to find a peer that is killed, stopped or unplugged, and false failures, with threads of both kinds, on an idle and on a loaded host. The
//! reflector is a process in a network namespace of its own, behind a pair of virtual Ethernet devices.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_cli::print;
use whimbrel_node::config::ProbingConfig;
use whimbrel_node::sbfd::SbfdProber;
use whimbrel_resilience::sbfd::{SBFD_PORT, SbfdChange, SbfdDiscriminator, SbfdTarget, SbfdTiming};

use crate::programs::Program;

const OWN: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// Devices of the pair.
const DEVICES: [&str; 2] = ["sbfd0", "sbfd1"];
const MULTIPLIER: u8 = 3;
/// Ordinary threads that want a processor, for each processor, on a loaded host.
const HOGS: usize = 2;
/// Waiting time for a change: a peer that is down gets a probe a second.
const CHANGED_WITHIN: Duration = Duration::from_secs(10);

/// What ends the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Killed,
    Stopped,
    Unplugged,
}

impl Failure {
    const ALL: [Self; 3] = [Self::Killed, Self::Stopped, Self::Unplugged];

    fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Unplugged => "unplugged",
        }
    }
}

/// The results for one interval, kind of threads and load.
struct Row {
    interval_ms: u64,
    real_time: bool,
    loaded: bool,
    false_failures: u64,
    probes: u64,
    late: u64,
    /// By [`Failure`], sorted.
    found_ms: [Vec<f64>; 3],
}

/// Threads that compute until this is dropped.
struct Hogs(Arc<AtomicBool>, Vec<std::thread::JoinHandle<()>>);

impl Hogs {
    fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = |_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..count).map(hog).collect();
        Self(stop, threads)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The reflector's process.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // The kernel would remove it some time after the end of the namespace, which the next peer does not wait for.
        let _ = Command::new("ip").args(["link", "delete", DEVICES[0]]).stderr(Stdio::null()).status();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("`ip {arguments}` fails: {other:?}")),
    }
}

impl Peer {
    /// Starts it, and the devices between.
    fn start(real_time: bool) -> Result<Self, String> {
        let [own, its] = DEVICES;
        let program = Program::Core.file()?;
        let ordinary = if real_time { "" } else { "--ordinary" };
        let script = format!(
            "until ip link show {its} >/dev/null 2>&1; do sleep 0.01; done; ip address add {PEER}/30 dev {its}; ip link set {its} up; \
             exec \"$0\" reflect --listen {PEER}:{SBFD_PORT} {ordinary} 2>/dev/null"
        );
        let child = Command::new("unshare").args(["--net", "sh", "-c", &script]).arg(program).spawn();
        let peer = Self(child.map_err(|e| format!("`unshare` cannot be run: {e}"))?);
        let pid = peer.0.id();
        let namespace = |of: String| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
        let until = Instant::now() + CHANGED_WITHIN;
        while namespace(pid.to_string()) == namespace("self".into()) {
            if Instant::now() > until {
                return Err("the reflector gets no network of its own".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        ip(&format!("link add {own} type veth peer name {its}"))?;
        ip(&format!("address add {OWN}/30 dev {own}"))?;
        ip(&format!("link set {own} up"))?;
        ip(&format!("link set {its} netns {pid}"))?;
        Ok(peer)
    }

    fn signal(&self, name: &str) -> Result<(), String> {
        super::signal(self.0.id(), name)
    }
}

/// The next change to this state; others are counted.
fn await_change(prober: &mut SbfdProber<()>, expected: SbfdChange) -> Result<(), String> {
    let until = Instant::now() + CHANGED_WITHIN;
    loop {
        if prober.take().iter().any(|verdict| verdict.change == expected) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("S-BFD does not say {expected:?}"));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn probe(prober: &mut SbfdProber<()>) -> Result<(), String> {
    let discriminator =
        SbfdDiscriminator::new(u32::from(PEER)).ok_or("the peer's address is no discriminator")?;
    let address = SocketAddr::from((PEER, SBFD_PORT));
    prober.watch((), SbfdTarget { address, discriminator, among: false });
    await_change(prober, SbfdChange::Up)
}

fn measure(interval_ms: u64, real_time: bool, loaded: bool, options: &super::Options) -> Result<Row, String> {
    let timing =
        SbfdTiming::new(Duration::from_millis(interval_ms), MULTIPLIER).map_err(|e| e.to_string())?;
    let probing = ProbingConfig { timing, one_link: true, real_time };
    let mut peer = Peer::start(real_time)?;
    let mut prober = SbfdProber::start(OWN.into(), probing)?;
    // Changes are taken by this thread, which is ordinary: its own delay is part of what the control thread of the core would have.
    probe(&mut prober)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let hogs = loaded.then(|| Hogs::start(HOGS * processors));
    let before = prober.figures().probing;
    std::thread::sleep(Duration::from_secs(options.seconds.into()));
    let after = prober.figures().probing;
    let mut found_ms = [const { Vec::new() }; 3];
    for (failure, found) in Failure::ALL.into_iter().zip(&mut found_ms) {
        for _ in 0..options.hangs {
            probe(&mut prober)?;
            // Failures come at any point of an interval.
            std::thread::sleep(Duration::from_micros(20_000 + 977 * found.len() as u64 % 20_000));
            prober.take();
            let begun = Instant::now();
            match failure {
                Failure::Killed => peer.signal("KILL")?,
                Failure::Stopped => peer.signal("STOP")?,
                Failure::Unplugged => ip(&format!("link set {} down", DEVICES[0]))?,
            }
            let outcome = await_change(&mut prober, SbfdChange::Failed);
            found.push(begun.elapsed().as_secs_f64() * 1e3);
            outcome?;
            match failure {
                Failure::Killed => {
                    drop(peer);
                    peer = Peer::start(real_time)?;
                }
                Failure::Stopped => peer.signal("CONT")?,
                Failure::Unplugged => ip(&format!("link set {} up", DEVICES[0]))?,
            }
        }
        found.sort_by(f64::total_cmp);
    }
    drop(hogs);
    Ok(Row {
        interval_ms,
        real_time,
        loaded,
        false_failures: after.failures - before.failures,
        probes: after.sent - before.sent,
        late: after.late - before.late,
        found_ms,
    })
}

/// Measures and prints all rows. Returns them as JSON.
pub(super) fn run(options: &super::Options) -> Result<Vec<Value>, String> {
    print(&format!(
        "\nS-BFD with a peer in another namespace: {MULTIPLIER} probes without an answer; loaded: {HOGS} threads that compute for each processor; times with \
         that of `kill` or `ip`, p50 / max in ms\n\n"
    ))?;
    print(
        "threads     load    interval  found: killed   stopped         unplugged      false failures  late  probes\n",
    )?;
    let mut rows = Vec::new();
    for real_time in [false, true] {
        for loaded in [false, true] {
            for interval_ms in &options.sbfd_intervals_ms {
                let row = measure(*interval_ms, real_time, loaded, options)?;
                print(&row.line())?;
                rows.push(row.json());
            }
        }
    }
    Ok(rows)
}

impl Row {
    fn threads(&self) -> &'static str {
        if self.real_time { "SCHED_FIFO" } else { "ordinary" }
    }

    /// Median and longest.
    fn found(&self, failure: Failure) -> (f64, f64) {
        let sorted = &self.found_ms[Failure::ALL.iter().position(|f| *f == failure).unwrap_or_default()];
        let at = |n: usize| sorted.get(n).copied().unwrap_or(f64::NAN);
        (at(sorted.len() / 2), at(sorted.len().saturating_sub(1)))
    }

    fn line(&self) -> String {
        let found: Vec<String> = Failure::ALL
            .into_iter()
            .map(|failure| {
                let (p50, longest) = self.found(failure);
                format!("{p50:>6.1} /{longest:>6.1}")
            })
            .collect();
        let load = if self.loaded { "loaded" } else { "idle" };
        format!(
            "{:<10}  {load:<6}  {:>5} ms  {}  {:>14}  {:>4}  {:>6}\n",
            self.threads(),
            self.interval_ms,
            found.join("  "),
            self.false_failures,
            self.late,
            self.probes
        )
    }

    fn json(&self) -> Value {
        let mut row = json!({
            "threads": self.threads(), "loaded": self.loaded, "interval_ms": self.interval_ms, "multiplier": MULTIPLIER,
            "false_failures": self.false_failures, "late": self.late, "probes": self.probes,
        });
        for failure in Failure::ALL {
            let (p50, longest) = self.found(failure);
            row[failure.name()] = json!({ "found_p50_ms": p50, "found_max_ms": longest });
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_median_and_longest_of_each_failure() {
        let found_ms = [vec![1.0, 2.0, 9.0], vec![3.0], vec![]];
        let row = Row {
            interval_ms: 5,
            real_time: true,
            loaded: false,
            false_failures: 1,
            probes: 800,
            late: 2,
            found_ms,
        };
        assert_eq!((row.found(Failure::Killed), row.found(Failure::Stopped)), ((2.0, 9.0), (3.0, 3.0)));
        let json = row.json();
        assert_eq!((&json["threads"], &json["killed"]["found_max_ms"]), (&json!("SCHED_FIFO"), &json!(9.0)));
        assert!(json["unplugged"]["found_p50_ms"].is_null(), "nothing was measured");
        assert!(row.line().starts_with("SCHED_FIFO  idle        5 ms     2.0 /   9.0"), "{}", row.line());
    }
}
