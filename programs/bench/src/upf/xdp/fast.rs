//! The fast path in the driver, on one core: generator, the way between the virtual interfaces, the program, and the far end that drops.
//!
//! The generator's share is what the same frames cost where the interface of the UPF drops them at once; it is subtracted. So what is left
//! of the *bare* programs, and of the fast path, has the far end's reception in it. The first of the bare ones reads the memory of the
//! packet's session and sends the packet on without looking at anything; each of the next does something more that the fast path has to do,
//! so that it shows what each thing costs; and some show what it does otherwise. All alternate, on interfaces of their own.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use whimbrel_user::SessionId;
use whimbrel_user_io::measure::{Addresses, AttachedProgram, BareProgram, Flood, FrameSession, Ladder};
use whimbrel_user_io::{Handle, N3Io};

use super::{Cell, GNB, Namespace, Options, Plane, ROUTER, SERVER, UPF, Way, pin, sh, ue};
use crate::measure::{core_time, median};

/// Frames between two looks at the clock, of one system call where one way is sent: some 10 ms.
const FRAMES: u32 = 64 * 1024;
/// Of them, those of one way before it is the other's turn, where both are sent.
const TURN: u32 = 8 * 1024;
/// Octets of a UE's packet.
pub(super) const OCTETS: usize = 68;
/// Sessions whose rules are changed, one after the other.
const CHANGES: u32 = 20_000;
/// What a P4 switch takes (Synergy, figure 14d).
const P4_CHANGES_PER_S: f64 = 1_200.0;

/// What a packet costs, in nanoseconds of the one core.
#[derive(Default)]
struct Costs {
    generator: Vec<f64>,
    bare: [Vec<f64>; BareProgram::ALL.len()],
    fast: Vec<f64>,
}

/// One direction, with so many sessions.
pub(super) struct Row {
    way: Way,
    sessions: u32,
    costs: Costs,
}

/// Medians, in nanoseconds: the generator's share, and what bare programs and the fast path cost besides.
struct Medians {
    generator: f64,
    bare: [f64; BareProgram::ALL.len()],
    fast: f64,
}

impl Row {
    fn medians(&self) -> Medians {
        let generator = median(self.costs.generator.clone());
        let besides = |of: &[f64]| median(of.iter().map(|ns| ns - generator).collect());
        Medians {
            generator,
            bare: self.costs.bare.each_ref().map(|ns| besides(ns)),
            fast: besides(&self.costs.fast),
        }
    }
}

/// What a step is called, in the table and in the figures.
fn name(step: BareProgram) -> (&'static str, &'static str) {
    match step {
        BareProgram::Read => ("reads the session's entry", "read"),
        BareProgram::Write => ("and writes its counters", "write"),
        BareProgram::Lock => ("and takes its lock", "lock"),
        BareProgram::Time => ("and asks for the time", "time"),
        BareProgram::Headers => ("and verifies headers", "headers"),
        BareProgram::ByArray => ("reads, index by another array", "read_by_array"),
        BareProgram::ByHash => ("reads, by a hash map", "read_by_hash"),
        BareProgram::ExactTime => ("lock, and the exact time", "exact_time"),
    }
}

/// What all rounds showed.
pub(super) struct Shown {
    rows: Vec<Row>,
    /// Changes of rules a second, until the last holds, and until its session is the program's again.
    changes_per_s: Vec<f64>,
    back_per_s: Vec<f64>,
}

/// Ethernet address of an interface of this thread's namespace.
fn mac(interface: &str) -> io::Result<[u8; 6]> {
    let out = std::process::Command::new("ip").args(["-o", "link", "show", interface]).output()?;
    let line = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = line.split("link/ether ").nth(1).and_then(|t| t.split(' ').next()).unwrap_or_default();
    let octets: Vec<u8> = text.split(':').filter_map(|o| u8::from_str_radix(o, 16).ok()).collect();
    octets.try_into().map_err(|_| io::Error::other(format!("{interface} has no Ethernet address")))
}

/// Does something on a thread in a namespace.
fn there<T: Send>(namespace: &Namespace, what: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let pid = namespace.0.id();
    let run = || {
        Namespace::enter(pid)?;
        what()
    };
    thread::scope(|s| s.spawn(run).join()).map_err(|_| io::Error::other("a thread ended"))?
}

/// Ends and ours of both links.
struct Interfaces {
    gnb: &'static str,
    n3: &'static str,
    n6: &'static str,
    router: &'static str,
}

impl Interfaces {
    /// Those that the user plane has.
    const USED: Self = Self { gnb: "gnb", n3: "n3", n6: "n6", router: "router" };
    /// Those beside them for bare programs.
    const BARE: Self = Self { gnb: "gnb-bare", n3: "n3-bare", n6: "n6-bare", router: "router-bare" };

    /// Ours, the one that a way comes in by first.
    fn ours(&self, way: Way) -> io::Result<(u32, u32)> {
        let (from, to) = if way == Way::Up { (self.n3, self.n6) } else { (self.n6, self.n3) };
        Ok((index(from)?, index(to)?))
    }
}

/// Both ends, which drop whatever comes, and what stands between them.
struct Scene<'n> {
    ran: &'n Namespace,
    network: &'n Namespace,
    within: Duration,
    _ends: [AttachedProgram; 4],
}

impl<'n> Scene<'n> {
    fn new(ran: &'n Namespace, network: &'n Namespace, within: Duration) -> io::Result<Self> {
        let ends = [
            (ran, Interfaces::USED.gnb),
            (network, Interfaces::USED.router),
            (ran, Interfaces::BARE.gnb),
            (network, Interfaces::BARE.router),
        ];
        let [a, b, c, d] = ends.map(|(at, name)| there(at, || AttachedProgram::end(index(name)?)));
        Ok(Self { ran, network, within, _ends: [a?, b?, c?, d?] })
    }

    fn addresses(&self, way: Way, on: &Interfaces) -> io::Result<Addresses> {
        let (to, next) = match way {
            Way::Up => (on.n3, there(self.network, || mac(on.router))?),
            Way::Down => (on.n6, there(self.ran, || mac(on.gnb))?),
        };
        Ok(Addresses { to_mac: mac(to)?, next_mac: next, gnb: GNB, upf: UPF, server: SERVER })
    }

    /// Sets the neighbours by hand: there is no host that answers.
    fn introduce(&self) -> io::Result<()> {
        let text = |mac: [u8; 6]| mac.map(|o| format!("{o:02x}")).join(":");
        let (gnb, router) =
            (text(there(self.ran, || mac("gnb"))?), text(there(self.network, || mac("router"))?));
        sh(&format!(
            "ip neigh replace {GNB} lladdr {gnb} dev n3 nud permanent
             ip neigh replace {ROUTER} lladdr {router} dev n6 nud permanent"
        ))?;
        Ok(())
    }

    /// The namespace from which frames of a way come, and by which interface.
    fn from(&self, way: Way, on: &Interfaces) -> (&'n Namespace, &'static str) {
        match way {
            Way::Up => (self.ran, on.gnb),
            Way::Down => (self.network, on.router),
        }
    }

    /// Frames that have come to the other ends.
    fn came(&self, ways: &[Way], on: &Interfaces) -> io::Result<u64> {
        let one = |way: &Way| match way {
            Way::Up => self.network.received(on.router),
            Way::Down => self.ran.received(on.gnb),
        };
        ways.iter().map(one).sum()
    }

    /// Nanoseconds of the core for each frame, and the part of the frames that came to the other end, if they are to. Ways take turns.
    fn cost(
        &self,
        ways: &[Way],
        on: &Interfaces,
        octets: usize,
        sources: &[FrameSession],
        passes: bool,
    ) -> io::Result<(f64, f64)> {
        self.introduce()?;
        let addresses = ways.iter().map(|way| self.addresses(*way, on)).collect::<io::Result<Vec<_>>>()?;
        let flooded = || {
            let mut floods = Vec::new();
            for (&way, addresses) in ways.iter().zip(&addresses) {
                let (namespace, interface) = self.from(way, on);
                Namespace::enter(namespace.pid())?;
                let flood = Flood::new(way == Way::Up, addresses, octets, index(interface)?, sources)?;
                floods.push((way, namespace.pid(), flood));
            }
            pin(0, 0)?;
            for (way, pid, flood) in &floods {
                Namespace::enter(*pid)?;
                let end = Instant::now() + Duration::from_secs(if passes { 20 } else { 0 });
                while Instant::now() < end {
                    // Until the packet thread has written the next hops for its program.
                    let before = self.came(&[*way], on)?;
                    flood.run(64)?;
                    thread::sleep(Duration::from_millis(1));
                    if self.came(&[*way], on)? >= before + 64 {
                        break;
                    }
                }
            }
            let all = || {
                if let [(_, _, flood)] = &floods[..] {
                    return flood.run(FRAMES);
                }
                for (_, pid, flood) in floods.iter().cycle().take((FRAMES / TURN) as usize) {
                    Namespace::enter(*pid)?;
                    flood.run(TURN)?;
                }
                Ok(())
            };
            // Each session's memory is as near as it will be.
            for _ in 0..(ways.len() * sources.len()).div_ceil(FRAMES as usize) {
                all()?;
            }
            let before = self.came(ways, on)?;
            let (begun, start, mut frames) = (Instant::now(), core_time(), 0);
            while begun.elapsed() < self.within {
                all()?;
                frames += FRAMES;
            }
            io::Result::Ok((frames, core_time() - start, before))
        };
        let ended = thread::scope(|s| s.spawn(flooded).join());
        let (frames, spent, before) = ended.map_err(|_| io::Error::other("a thread ended"))??;
        let came = (self.came(ways, on)? - before) as f64;
        Ok((spent.as_nanos() as f64 / f64::from(frames), came / f64::from(frames)))
    }

    /// Nanoseconds of the core for each frame that is dropped as soon as it is there.
    fn generator(&self, ways: &[Way], octets: usize, sources: &[FrameSession]) -> io::Result<f64> {
        let on = &Interfaces::BARE;
        let drops = ways.iter().map(|way| AttachedProgram::end(on.ours(*way)?.0));
        let _drops = drops.collect::<io::Result<Vec<_>>>()?;
        Ok(self.cost(ways, on, octets, sources, false)?.0)
    }
}

/// Number of an interface of this thread's namespace.
fn index(interface: &str) -> io::Result<u32> {
    let out = std::process::Command::new("ip").args(["-o", "link", "show", interface]).output()?;
    let line = String::from_utf8_lossy(&out.stdout).into_owned();
    let number = line.split(':').next().and_then(|n| n.trim().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no interface {interface}")))
}

/// Interfaces of both ends, as long as this lives, with programs that let all pass: so they take what is redirected to them.
pub(in crate::upf) fn pass(ran: &Namespace, network: &Namespace) -> io::Result<[AttachedProgram; 2]> {
    Ok([
        there(ran, || AttachedProgram::pass(index("gnb")?))?,
        there(network, || AttachedProgram::pass(index("router")?))?,
    ])
}

/// Nanoseconds of the one core for packets by the fast path, besides the generator's share, in each round: of what goes these ways at a
/// time, with so many octets.
pub(in crate::upf) fn costs(
    of: &[(&[Way], usize)],
    rounds: usize,
    within: Duration,
    sessions: u32,
    ran: &Namespace,
    network: &Namespace,
) -> io::Result<Vec<Vec<f64>>> {
    let scene = Scene::new(ran, network, within)?;
    let plane = Plane::with(N3Io::Xdp, sessions, true, Duration::ZERO)?;
    wait_for(&plane.handle, sessions)?;
    let pairs = (0..).zip(&plane.teids);
    let sources: Vec<FrameSession> = pairs.map(|(n, teid)| FrameSession { teid: *teid, ue: ue(n) }).collect();
    let mut all = vec![Vec::new(); of.len()];
    for _ in 0..rounds {
        for ((ways, octets), ns) in of.iter().zip(&mut all) {
            let (cost, part) = scene.cost(ways, &Interfaces::USED, *octets, &sources, true)?;
            if part < 0.99 {
                return Err(io::Error::other(format!("not all came out: {:?}", plane.handle.io_counters())));
            }
            ns.push(cost - scene.generator(ways, *octets, &sources)?);
        }
    }
    Ok(all)
}

/// Measures. Errors: where it is not permitted.
pub(super) fn run(options: &Options, ran: &Namespace, network: &Namespace) -> io::Result<Shown> {
    let within = Duration::from_millis(options.milliseconds);
    let scene = Scene::new(ran, network, within)?;
    let mut shown = Shown { rows: Vec::new(), changes_per_s: Vec::new(), back_per_s: Vec::new() };
    for &sessions in &options.sessions {
        let plane = Plane::with(N3Io::Xdp, sessions, true, Duration::ZERO)?;
        wait_for(&plane.handle, sessions)?;
        let pairs = (0..).zip(&plane.teids);
        let sources: Vec<FrameSession> =
            pairs.map(|(n, teid)| FrameSession { teid: *teid, ue: ue(n) }).collect();
        let ladder = Ladder::new(&sources)?;
        let mut rows = Way::ALL.map(|way| Row { way, sessions, costs: Costs::default() });
        for _ in 0..options.rounds {
            for row in &mut rows {
                let (ns, part) = scene.cost(&[row.way], &Interfaces::USED, OCTETS, &sources, true)?;
                if part < 0.99 {
                    let counters = plane.handle.io_counters();
                    return Err(io::Error::other(format!("not all came out: {counters:?}")));
                }
                row.costs.fast.push(ns);
                row.costs.generator.push(scene.generator(&[row.way], OCTETS, &sources)?);
                let (on, up) = (&Interfaces::BARE, row.way == Way::Up);
                for (ns, step) in row.costs.bare.iter_mut().zip(BareProgram::ALL) {
                    let addresses = scene.addresses(row.way, on)?;
                    let _bare = ladder.attach(step, up, on.ours(row.way)?, &addresses)?;
                    let (cost, part) = scene.cost(&[row.way], on, OCTETS, &sources, true)?;
                    if part < 0.99 {
                        return Err(io::Error::other(format!("{step:?} loses packets")));
                    }
                    ns.push(cost);
                }
            }
        }
        if sessions == options.sessions[0] {
            for _ in 0..options.rounds {
                let (applied, back) = change(&plane, sessions)?;
                shown.changes_per_s.push(applied);
                shown.back_per_s.push(back);
            }
        }
        shown.rows.extend(rows);
    }
    Ok(shown)
}

/// Until all sessions are the program's.
fn wait_for(handle: &Handle, sessions: u32) -> io::Result<()> {
    let end = Instant::now() + Duration::from_secs(120);
    while handle.io_counters().fast_sessions < u64::from(sessions) {
        if Instant::now() > end {
            return Err(io::Error::other(format!(
                "not all sessions are offloaded: {:?}",
                handle.io_counters()
            )));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Changes rules of sessions, one after the other: how many a second until they hold, and until the program has all of them again.
fn change(plane: &Plane, sessions: u32) -> io::Result<(f64, f64)> {
    let start = Instant::now();
    for n in 0..CHANGES {
        plane.put(n % sessions, 1 + n)?;
    }
    let last = (CHANGES - 1) % sessions;
    while plane.handle.session_counters(SessionId { index: last, generation: last }).is_none() {}
    let applied = start.elapsed();
    wait_for(&plane.handle, sessions)?;
    let all = f64::from(CHANGES);
    Ok((all / applied.as_secs_f64(), all / start.elapsed().as_secs_f64()))
}

/// Prints. `floors`: packets' way by UDP and TUN with so many sessions, of which the packet thread's time alone is counted.
pub(super) fn show(shown: &Shown, floors: &[(u32, Cell)]) {
    println!(
        "\nthe fast path, {OCTETS} octets, all on one core: ns a packet besides the generator's share; UDP and TUN with as many sessions of \
         the same rules\n\
         {:>9} {:>10} {:>11} {:>8} {:>10} {:>7} {:>13} {:>12} {:>7}",
        "", "sessions", "generator", "bare", "fast path", "ratio", "Mpackets/s", "UDP and TUN", "times"
    );
    for row in &shown.rows {
        let Medians { generator, bare, fast } = row.medians();
        println!(
            "{:>9} {:>10} {generator:>11.0} {:>8.0} {fast:>10.0} {:>7.2} {:>13.2} {:>12.0} {:>7.1}",
            row.way.name(),
            row.sessions,
            bare[0],
            fast / bare[0],
            1e3 / fast,
            floor_of(row, floors),
            floor_of(row, floors) / fast
        );
    }
    println!(
        "aims: a ratio of 1.30 at most with a million sessions; 5 times UDP and TUN at least, of which only the packet thread's \
         time is counted here"
    );
    let heads =
        shown.rows.iter().map(|r| format!("{:>9} {:>8}", r.way.name(), r.sessions)).collect::<String>();
    println!(
        "\nwhere it goes: bare programs, ns a packet, and the fast path in times of them\n{:>30} {heads}",
        ""
    );
    for (n, step) in BareProgram::ALL.into_iter().enumerate() {
        let cells = shown.rows.iter().map(Row::medians);
        let cells = cells.map(|m| format!("{:>9.0} {:>8.2}", m.bare[n], m.fast / m.bare[n]));
        println!("{:>30} {}", name(step).0, cells.collect::<String>());
    }
    println!();
    let (applied, back) = (median(shown.changes_per_s.clone()), median(shown.back_per_s.clone()));
    println!(
        "changes of rules: {applied:.0} a second hold, {back:.0} a second are back in the driver; a P4 switch takes \
         {P4_CHANGES_PER_S:.0} (Synergy, figure 14d)"
    );
}

/// Nanoseconds of a packet by UDP and TUN, as many sessions as a row has, its way.
fn floor_of(row: &Row, floors: &[(u32, Cell)]) -> f64 {
    let of = |(sessions, cell): &&(u32, Cell)| (*sessions, cell.way) == (row.sessions, row.way);
    floors.iter().find(of).map_or(f64::NAN, |(_, cell)| cell.median(|s| s.thread_ns))
}

/// The same for the line at the end.
pub(super) fn figures(shown: &Shown, floors: &[(u32, Cell)]) -> Value {
    let row = |row: &Row| {
        let Medians { generator, bare, fast } = row.medians();
        let rounded = |v: f64| (v * 100.0).round() / 100.0;
        let steps = BareProgram::ALL
            .into_iter()
            .zip(bare)
            .map(|(step, ns)| (name(step).1.into(), rounded(ns).into()));
        json!({
            "way": row.way.name(),
            "sessions": row.sessions,
            "generator_ns": rounded(generator),
            "bare_ns": steps.collect::<serde_json::Map<String, Value>>(),
            "fast_ns": rounded(fast),
            "udp_tun_ns": rounded(floor_of(row, floors)),
            "of_bare": rounded(fast / bare[0]),
            "of_udp_tun": rounded(floor_of(row, floors) / fast),
        })
    };
    json!({
        "rows": shown.rows.iter().map(row).collect::<Vec<_>>(),
        "changes_per_s": median(shown.changes_per_s.clone()).round(),
        "changes_back_per_s": median(shown.back_per_s.clone()).round(),
    })
}
