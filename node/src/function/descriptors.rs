//! The descriptors that outlive a function: sockets, devices and shared memory. The process that opens one gives it to the manager
//! ([`keep`]), which hands a duplicate to each process that may replace the function, and the successor takes it ([`take`]).
//!
//! Names begin with the functions that get them: `cta/` or `upf/`. Those of shared memory (`area/`, `bell/`)
//! are in `area_names`.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_resilience::CodeVersion;
use whimbrel_shm::{AreaArrivals, Pool};

use super::area_names::{PoolKind, take_areas};
use super::channel::{self, Lines};

use super::messages::{Descriptors, Hello, ManagerRequest, RequestSubject};
use super::{Function, UnitFunction};

/// The listener of the API.
pub const API: &str = "cta/api";
/// The listener of this host's commands.
pub const API_SOCKET: &str = "cta/api-socket";
/// The SMF's socket of N4 with UPFs elsewhere.
pub const N4: &str = "cta/n4";
/// The SMF's socket of N4 with the UPF of the unit.
pub const UNIT_N4: &str = "cta/n4-unit";

/// The UPF's socket of N4 with SMFs elsewhere.
pub const UPF_N4: &str = "upf/n4";
/// The UPF's socket of N4 with the SMF of the unit.
pub const UPF_UNIT_N4: &str = "upf/n4-unit";
/// How the names of the UPF's sockets of N3 and of its devices begin; numbers follow.
pub const UPF_PORTS: &str = "upf/port-";
/// The first of them.
pub const UPF_FIRST_PORT: &str = "upf/port-0";
/// Where the UPF's packet threads show that they live.
pub const UPF_BEATS: &str = "upf/beats";
/// Between two beats, by which the manager knows that this process runs.
const BEAT: Duration = Duration::from_millis(100);
/// Looks in a row at which the control thread may have made no turn; it makes two a second at least.
const STILL_MAX: u32 = 15;

/// Turns of the control thread; 0: this process has none.
static TURNS: AtomicU64 = AtomicU64::new(0);

/// The control thread has made a turn.
pub fn turned() {
    TURNS.fetch_add(1, Ordering::Relaxed);
}

/// This process sends beats: a replica of the UPF does when it can take over.
static READY: AtomicBool = AtomicBool::new(true);

/// The replica of the UPF can take over from now on.
pub fn stands_ready() {
    READY.store(true, Ordering::Release);
    wake_beats();
}

/// This process is a replica of the UPF that waits. It does nothing that could make it hang, and is to take no time of a processor, so it sends a manager one beat
/// alone, which says that it stands ready.
static WAITS: AtomicBool = AtomicBool::new(false);

/// The replica of the UPF takes over.
pub fn takes_over() {
    WAITS.store(false, Ordering::Release);
    wake_beats();
}

/// The thread that sends beats looks again at what it waits for.
fn wake_beats() {
    // Not between its look and its wait.
    drop(held());
    CHANGED.notify_all();
}

/// Between two attempts to reach the manager.
const RETRY: Duration = Duration::from_millis(50);
/// How long the first connection may take: the manager listens before it starts a function.
const JOINED_WITHIN: Duration = Duration::from_secs(5);

/// The descriptors that this process has, by their names.
struct HeldDescriptors {
    descriptors: BTreeMap<String, OwnedFd>,
    /// The connection to the manager, and how many there have been.
    manager: Option<UnixStream>,
    connections: u64,
    /// The manager has sent what it keeps for this function.
    joined: bool,
    /// This process is a function of a unit.
    in_unit: bool,
    /// The number of its areas.
    area: Option<usize>,
    /// Pools in which this process has mapped its area, and which no links use yet.
    pools: BTreeMap<PoolKind, Pool>,
    /// Areas of other processes that have arrived, by pool.
    arrivals: BTreeMap<PoolKind, AreaArrivals>,
}

impl HeldDescriptors {
    /// Takes what has come from the manager. An area of this process is mapped at once, and given back: the manager seals it, and gives it to others.
    fn receive(&mut self, mut descriptors: Vec<(String, OwnedFd)>) {
        for (name, area) in take_areas(&mut descriptors) {
            let is_own = self.area == Some(name.number) && !self.arrivals.contains_key(&name.pool);
            if !is_own {
                if let Some(arrivals) = self.arrivals.get(&name.pool) {
                    arrivals.put(name.number, area);
                }
                continue;
            }
            match Pool::open(&area, name.number) {
                Ok(pool) => {
                    self.arrivals.insert(name.pool, pool.arrivals());
                    self.pools.insert(name.pool, pool);
                    let given = name.descriptors().into_iter().zip([area.memory, area.bell]);
                    self.keep(given.collect());
                }
                Err(e) => warn!("links to other functions go over sockets: {e}"),
            }
        }
        // A manager of an earlier version hands out a memory of all functions.
        descriptors.retain(|(name, _)| !name.starts_with("pool/"));
        self.descriptors.extend(descriptors);
    }

    /// Has descriptors kept, which are also given to the next manager.
    fn keep(&mut self, given: Vec<(String, OwnedFd)>) {
        if let Some(manager) = &self.manager {
            let names = Descriptors(given.iter().map(|(name, _)| name.clone()).collect());
            let line = serde_json::to_vec(&names).unwrap_or_default();
            let descriptors: Vec<BorrowedFd<'_>> = given.iter().map(|(_, d)| d.as_fd()).collect();
            // A manager that is gone gets them with the next connection.
            let _ = channel::send(manager, &line, &descriptors);
        }
        self.descriptors.extend(given);
    }
}

static HELD: Mutex<HeldDescriptors> = Mutex::new(HeldDescriptors {
    descriptors: BTreeMap::new(),
    manager: None,
    connections: 0,
    joined: false,
    in_unit: false,
    area: None,
    pools: BTreeMap::new(),
    arrivals: BTreeMap::new(),
});
static CHANGED: Condvar = Condvar::new();

fn held() -> MutexGuard<'static, HeldDescriptors> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A duplicate of the descriptor of this name; `None` if none is kept, or this process is not in a unit.
pub fn take(name: &str) -> Option<OwnedFd> {
    held().descriptors.get(name)?.try_clone().ok()
}

/// Duplicates of all descriptors whose names begin so, with their names.
pub fn all(prefix: &str) -> Vec<(String, OwnedFd)> {
    let held = held();
    let of = held.descriptors.iter().filter(|(name, _)| name.starts_with(prefix));
    of.filter_map(|(name, descriptor)| Some((name.clone(), descriptor.try_clone().ok()?))).collect()
}

/// Has a descriptor kept for the process that replaces this one. In a process that is not in a unit this has no effect. A descriptor of
/// this name that was kept before is replaced.
pub fn keep(name: &str, descriptor: BorrowedFd<'_>) {
    let mut held = held();
    if !held.in_unit {
        return;
    }
    let Ok(duplicate) = descriptor.try_clone_to_owned() else { return };
    held.keep(vec![(name.into(), duplicate)]);
}

/// This process's areas of the unit's shared memory, once; links stay on their sockets where there is none.
pub fn pools() -> Vec<Pool> {
    std::mem::take(&mut held().pools).into_values().collect()
}

/// Connects to the manager, and keeps connecting while this process lives: a new manager gets the descriptors again. Errors: one sentence.
pub fn join(own: &UnitFunction) -> Result<(), String> {
    {
        let mut held = held();
        (held.in_unit, held.area) = (true, own.area);
    }
    READY.store(own.function != Function::UpfReplica, Ordering::Release);
    WAITS.store(own.function == Function::UpfReplica, Ordering::Release);
    let own = own.clone();
    std::thread::Builder::new()
        .name("unit".into())
        .spawn(move || {
            loop {
                let _ = connect(&own);
                held().manager = None;
                std::thread::sleep(RETRY);
            }
        })
        .map_err(|e| format!("the thread that talks to the unit's manager cannot be started: {e}"))?;
    let beats = std::thread::Builder::new().name("beat".into()).spawn(beat);
    beats.map_err(|e| {
        format!("the thread that shows the unit's manager that this one runs cannot be started: {e}")
    })?;
    let waited = CHANGED.wait_timeout_while(held(), JOINED_WITHIN, |held| !held.joined);
    if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
        return Err("the unit's manager does not answer, so this function has no descriptors".into());
    }
    Ok(())
}

/// Sends the manager a line without descriptors now and then, as long as the control thread makes turns.
fn beat() {
    let (mut seen, mut still, mut shown) = (0, 0, 0);
    loop {
        shown = wait_as_replica(shown);
        std::thread::sleep(BEAT);
        let turns = TURNS.load(Ordering::Relaxed);
        still = if turns == seen && turns > 0 { still + 1 } else { 0 };
        seen = turns;
        let runs = still < STILL_MAX && READY.load(Ordering::Acquire);
        if let Some(manager) = held().manager.as_ref().filter(|_| runs) {
            channel::beat(manager);
        }
    }
}

/// Waits as long as this process is a replica of the UPF that waits, with a beat over each connection once it stands ready. `shown`: the last connection over which
/// it has sent one, as it is returned.
fn wait_as_replica(mut shown: u64) -> u64 {
    let mut held = held();
    while WAITS.load(Ordering::Acquire) {
        if let Some(manager) = held.manager.as_ref().filter(|_| READY.load(Ordering::Acquire))
            && held.connections != shown
        {
            channel::beat(manager);
            shown = held.connections;
        }
        held = CHANGED.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
    shown
}

/// One connection to the manager, until it ends.
fn connect(own: &UnitFunction) -> std::io::Result<()> {
    let stream = UnixStream::connect(own.directory.socket())?;
    let again = {
        let mut held = held();
        let names = held.descriptors.keys().cloned().collect();
        let hello = Hello {
            function: own.function.to_string(),
            code: CodeVersion::own().to_string(),
            descriptors: Descriptors(names),
            areas: true,
        };
        let question = ManagerRequest { token: own.token.clone(), subject: RequestSubject::Hello(hello) };
        let descriptors: Vec<BorrowedFd<'_>> = held.descriptors.values().map(AsFd::as_fd).collect();
        channel::send(&stream, &serde_json::to_vec(&question)?, &descriptors)?;
        held.manager = Some(stream.try_clone()?);
        held.connections += 1;
        CHANGED.notify_all();
        held.joined
    };
    if again {
        info!("this function is connected to a new manager of its unit");
    }
    let mut lines = Lines::of(&stream);
    while let Some(line) = lines.next_line()? {
        let Descriptors(names) = serde_json::from_slice(&line)?;
        let descriptors = lines.take_descriptors(names.len())?;
        let mut held = held();
        held.receive(names.into_iter().zip(descriptors).collect());
        held.joined = true;
        CHANGED.notify_all();
    }
    if held().joined {
        warn!("the unit's manager is gone: this function continues, and connects to the next manager");
    }
    Ok(())
}
