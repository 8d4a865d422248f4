//! The manager's socket: the functions agree over it, give and get descriptors, and operators ask over it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_resilience::membership::{EtcdFailure, EtcdRequest, WatchedChange};

use super::areas::ProcessAreas;
use super::records::{ProcessRun, Records, key_of};
use crate::clock;
use crate::function::channel::{self, Lines};
use crate::function::directory::{self, UnitDirectory};
use crate::function::messages::{
    CanaryOrder, Descriptors, Hello, ManagerRequest, RequestSubject, UnitStatus,
};
use crate::function::{AreaName, Function, take_areas};
use crate::log_limiter::LogLimiter;

/// Connections at once: each function has two, and one for a moment.
const CONNECTIONS_MAX: usize = 256;
/// How long a peer may take for its question, and for an answer that does not fit into its buffer.
const PEER_WITHIN: Duration = Duration::from_secs(2);

/// An order of an operator, for the manager.
pub(super) enum ManagerOrder {
    /// The functions, for an operator.
    Status(Sender<UnitStatus>),
    /// Replace the functions by this program. Each line goes to the operator.
    Upgrade(PathBuf, Sender<String>),
    /// Restart the control functions. Each line goes to the operator.
    RestartControl(Sender<String>),
    /// An order about a canary. Each line goes to the operator.
    Canary(CanaryOrder, Sender<String>),
}

/// A watch of a function.
struct Watch {
    prefix: String,
    stream: UnixStream,
}

/// A function that has connected.
struct JoinedFunction {
    stream: UnixStream,
    code: String,
    /// True if the process can use areas of shared memory.
    areas: bool,
    /// Lines that have come from it: one each tenth of a second, as long as it runs.
    beats: u64,
}

/// A process of the unit.
#[derive(Clone, Copy)]
struct UnitProcess {
    function: Function,
    run: ProcessRun,
    /// The number of its areas; `None`: it has none.
    area: Option<usize>,
}

struct ServiceState {
    token: String,
    directory: UnitDirectory,
    records: Records,
    watches: Vec<Watch>,
    /// The processes of the unit.
    admitted: BTreeMap<i32, UnitProcess>,
    /// Through which they reach each other.
    areas: ProcessAreas,
    joined: BTreeMap<Function, JoinedFunction>,
    descriptors: BTreeMap<String, OwnedFd>,
    /// Connections, descriptors and requests that were refused.
    refused: u64,
    log: LogLimiter<&'static str>,
}

/// The socket, with what it serves from.
#[derive(Clone)]
pub(super) struct Service {
    state: Arc<Mutex<ServiceState>>,
    orders: Sender<ManagerOrder>,
    /// Wakes the manager.
    wake: Arc<OwnedFd>,
    connections: Arc<AtomicUsize>,
}

impl Service {
    /// Listens at the socket of the directory. `records`: those of the manager before, if functions of it run. Errors: one sentence.
    pub(super) fn start(
        directory: &UnitDirectory,
        records: Records,
        orders: Sender<ManagerOrder>,
        wake: Arc<OwnedFd>,
    ) -> Result<Self, String> {
        let socket = directory.socket();
        let _ = std::fs::remove_file(&socket);
        let cannot = |e: io::Error| format!("the manager cannot listen at {}: {e}", socket.display());
        let listener = UnixListener::bind(&socket).map_err(cannot)?;
        let state = ServiceState {
            token: directory.token()?,
            directory: directory.clone(),
            records,
            watches: Vec::new(),
            admitted: BTreeMap::new(),
            areas: ProcessAreas::default(),
            joined: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            refused: 0,
            log: LogLimiter::new("what processes send to the unit's manager"),
        };
        let state = Arc::new(Mutex::new(state));
        let service = Self { state, orders, wake, connections: Arc::default() };
        let accepting = service.clone();
        let accept = move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => accepting.accept(stream),
                    // Out of descriptors: the next try would fail at once as well.
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            }
        };
        std::thread::Builder::new().name("unit".into()).spawn(accept).map_err(cannot)?;
        Ok(service)
    }

    fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits the process that `start` starts: it may ask before this returns. With a number for its areas, it gets areas of its own.
    pub(super) fn admit(
        &self,
        function: Function,
        area: Option<usize>,
        start: impl FnOnce() -> io::Result<ProcessRun>,
    ) -> io::Result<ProcessRun> {
        let mut state = self.state();
        let run = start()?;
        let unit = state.records.unit_id();
        area.iter().for_each(|number| state.areas.create(unit, function, run, *number));
        state.admitted.insert(run.pid, UnitProcess { function, run, area });
        Ok(run)
    }

    /// Admits a process that an earlier manager has started. It gives its areas back itself.
    pub(super) fn admit_adopted(&self, function: Function, area: Option<usize>, run: ProcessRun) {
        self.state().admitted.insert(run.pid, UnitProcess { function, run, area });
    }

    /// A process has ended: its records are deleted, which the other functions learn at once.
    pub(super) fn ended(&self, run: ProcessRun) {
        let mut state = self.state();
        state.areas.ended(run);
        if let Some(UnitProcess { function, .. }) = state.admitted.remove(&run.pid)
            && !state.admitted.values().any(|other| other.function == function)
        {
            state.joined.remove(&function);
        }
        let changes = state.records.end_run(run);
        state.publish(&changes);
    }

    /// A process is another function from now on: the replica of the UPF is the UPF.
    pub(super) fn rename(&self, run: ProcessRun, to: Function) {
        let mut state = self.state();
        let Some(admitted) = state.admitted.get_mut(&run.pid).filter(|of| of.run == run) else {
            return;
        };
        let from = std::mem::replace(&mut admitted.function, to);
        state.areas.rename(run, to);
        if let Some(joined) = state.joined.remove(&from) {
            state.joined.insert(to, joined);
        }
    }

    /// What is read from the records.
    pub(super) fn records<R>(&self, read: impl FnOnce(&Records) -> R) -> R {
        read(&self.state().records)
    }

    /// Writes the configuration of the unit, which its CTAs learn at once.
    pub(super) fn configure(&self, value: &[u8]) {
        let mut state = self.state();
        let changes = state.records.configure(value);
        state.publish(&changes);
    }

    /// The code of a function that has connected.
    pub(super) fn code_of(&self, function: Function) -> Option<String> {
        self.state().joined.get(&function).map(|joined| joined.code.clone())
    }

    /// How many beats have come from a function that is connected.
    pub(super) fn beats_of(&self, function: Function) -> u64 {
        self.state().joined.get(&function).map_or(0, |joined| joined.beats)
    }

    /// A function is replaced: its successor connects then.
    pub(super) fn forget(&self, function: Function) {
        self.state().joined.remove(&function);
    }

    /// Duplicates of the descriptors whose names are this and a number from zero on.
    pub(super) fn duplicates(&self, prefix: &str) -> Vec<OwnedFd> {
        let state = self.state();
        let of = |n: usize| state.descriptors.get(&format!("{prefix}{n}"))?.try_clone().ok();
        (0..).map_while(of).collect()
    }

    /// A duplicate of the descriptor of this name, if it is kept.
    pub(super) fn duplicate(&self, name: &str) -> Option<OwnedFd> {
        self.state().descriptors.get(name)?.try_clone().ok()
    }

    /// Whether a descriptor of this name is kept.
    pub(super) fn keeps(&self, name: &str) -> bool {
        self.state().descriptors.contains_key(name)
    }

    /// Keeps a descriptor that the manager has opened.
    pub(super) fn keep(&self, name: &str, descriptor: OwnedFd) {
        self.state().keep(vec![(name.into(), descriptor)], None);
    }

    /// The names of the descriptors that are kept, and how much was refused.
    pub(super) fn kept(&self) -> (Vec<String>, u64) {
        let state = self.state();
        (state.descriptors.keys().cloned().chain(state.areas.names()).collect(), state.refused)
    }

    fn accept(&self, stream: UnixStream) {
        if self.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            return self.state().refuse("crowd", "there are too many connections");
        }
        let service = self.clone();
        let serve = move || {
            if let Err(e) = service.serve(&stream)
                && e.kind() == io::ErrorKind::InvalidData
            {
                let pid = peer(&stream).unwrap_or_default();
                let sentence =
                    format!("the process {pid} sends a line that is too long or not of this protocol: {e}");
                service.state().refuse("line", &sentence);
                // A function's connection has another handle here; closed, it connects again.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            service.connections.fetch_sub(1, Ordering::AcqRel);
        };
        if std::thread::Builder::new().name("unit peer".into()).spawn(serve).is_err() {
            self.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// One connection, until it ends.
    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PEER_WITHIN))?;
        stream.set_write_timeout(Some(PEER_WITHIN))?;
        let (pid, user) = (peer(stream)?, user_of(stream)?);
        let mut lines = Lines::of(stream);
        let Some(line) = lines.next_line()? else { return Ok(()) };
        let question: ManagerRequest = match serde_json::from_slice(&line) {
            Ok(question) => question,
            Err(e) => {
                self.state().refuse("question", &format!("the process {pid} sends no question: {e}"));
                return Ok(());
            }
        };
        let admitted = {
            let mut state = self.state();
            if !equal_in_constant_time(&question.token, &state.token) {
                state.refuse("token", &format!("the process {pid} does not have the unit's token"));
                return Ok(());
            }
            state.admitted.get(&pid).copied()
        };
        let run = match (question.subject, admitted) {
            (RequestSubject::Status {}, _) => return self.show(stream),
            (
                RequestSubject::Upgrade { .. }
                | RequestSubject::RestartControl {}
                | RequestSubject::Canary(_),
                _,
            ) if !may_order(user) => {
                let sentence =
                    format!("the process {pid} of user {user} gives an order that only root may give");
                self.state().refuse("order", &sentence);
                let answer = "failed: the unit's manager takes this order from root alone (docs/security.md): use sudo";
                return channel::send(stream, answer.as_bytes(), &[]);
            }
            (RequestSubject::Upgrade { program }, _) => {
                return self.follow_order(stream, |lines| ManagerOrder::Upgrade(program, lines));
            }
            (RequestSubject::RestartControl {}, _) => {
                return self.follow_order(stream, ManagerOrder::RestartControl);
            }
            (RequestSubject::Canary(order), _) => {
                return self.follow_order(stream, |lines| ManagerOrder::Canary(order, lines));
            }
            (RequestSubject::Request(request), Some(UnitProcess { run, .. })) => {
                return self.answer(stream, run, request);
            }
            (RequestSubject::Hello(hello), Some(admitted))
                if is_called(admitted.function, &hello.function) =>
            {
                self.hello(stream, &mut lines, admitted, hello)?;
                admitted.run
            }
            (RequestSubject::Request(_) | RequestSubject::Hello(_), _) => {
                let sentence = format!("the process {pid} is not that function of this unit");
                self.state().refuse("function", &sentence);
                return Ok(());
            }
        };
        stream.set_read_timeout(None)?;
        while let Some(line) = lines.next_line()? {
            let Descriptors(names) = serde_json::from_slice(&line)?;
            let mut descriptors: Vec<_> =
                lines.take_descriptors(names.len()).map(|all| names.into_iter().zip(all).collect())?;
            let mut state = self.state();
            if let Some(admitted) = state.admitted.get(&run.pid).copied().filter(|of| of.run == run) {
                let function = admitted.function;
                state.joined.get_mut(&function).into_iter().for_each(|joined| joined.beats += 1);
                state.share_areas(admitted, &mut descriptors);
                let (own, others): (Vec<_>, Vec<_>) =
                    descriptors.into_iter().partition(|(name, _)| is_of(name, function));
                state.refuse_others(function, &others);
                state.keep(own, Some(function));
            }
        }
        Ok(())
    }

    /// A function has connected: it gets what is kept for it, and its own descriptors are kept.
    fn hello(
        &self,
        stream: &UnixStream,
        lines: &mut Lines<'_>,
        admitted: UnitProcess,
        hello: Hello,
    ) -> io::Result<()> {
        let Hello { code, descriptors: Descriptors(names), areas, .. } = hello;
        let function = admitted.function;
        let descriptors = lines.take_descriptors(names.len())?;
        let mut state = self.state();
        let mut descriptors = names.iter().cloned().zip(descriptors).collect();
        state.share_areas(admitted, &mut descriptors);
        // What every function holds comes back with the first of them that connects to a new manager.
        let (its, others): (Vec<_>, Vec<_>) =
            descriptors.into_iter().partition(|(name, _)| is_for(name, function));
        state.refuse_others(function, &others);
        let missing = its.into_iter().filter(|(name, _)| !state.descriptors.contains_key(name)).collect();
        state.joined.insert(function, JoinedFunction { stream: stream.try_clone()?, code, areas, beats: 0 });
        state.keep(missing, Some(function));
        let for_it = state.descriptors.iter();
        let for_it: Vec<_> = for_it.filter(|(n, _)| is_for(n, function) && !names.contains(n)).collect();
        let areas = if areas { state.areas.for_process(function, admitted.run) } else { Vec::new() };
        let for_it: Vec<_> = areas.iter().map(|(name, d)| (name, d)).chain(for_it).collect();
        let names = Descriptors(for_it.iter().map(|(name, _)| (*name).clone()).collect());
        let descriptors: Vec<BorrowedFd<'_>> = for_it.iter().map(|(_, d)| d.as_fd()).collect();
        channel::send(stream, &serde_json::to_vec(&names)?, &descriptors)?;
        drop(state);
        self.wake();
        Ok(())
    }

    /// Answers a request as etcd would.
    fn answer(&self, stream: &UnixStream, run: ProcessRun, request: EtcdRequest) -> io::Result<()> {
        let mut state = self.state();
        if let EtcdRequest::Watch { prefix, from } = request {
            let Some(changes) = state.records.changes_since(&prefix, from) else { return Ok(()) };
            if !changes.is_empty() {
                channel::send(stream, &serde_json::to_vec(&changes)?, &[])?;
            }
            state.watches.push(Watch { prefix, stream: stream.try_clone()? });
            drop(state);
            // Until the peer ends it.
            stream.set_read_timeout(None)?;
            let _ = Lines::of(stream).next_line();
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return Ok(());
        }
        let (answer, changes) = state.records.handle(run, request);
        if let Err(EtcdFailure::Unreachable(why)) = &answer {
            state.refuse("request", &format!("the process {} asks for too much: {why}", run.pid));
        }
        state.publish(&changes);
        channel::send(stream, &serde_json::to_vec(&answer)?, &[])?;
        drop(state);
        if !changes.is_empty() {
            self.wake();
        }
        Ok(())
    }

    fn show(&self, stream: &UnixStream) -> io::Result<()> {
        let (answer, answered) = std::sync::mpsc::channel();
        if self.orders.send(ManagerOrder::Status(answer)).is_ok() {
            self.wake();
            if let Ok(status) = answered.recv_timeout(PEER_WITHIN) {
                channel::send(stream, &serde_json::to_vec(&status)?, &[])?;
            }
        }
        Ok(())
    }

    /// Gives the manager an order, and the operator each line that comes of it.
    fn follow_order(
        &self,
        stream: &UnixStream,
        order: impl FnOnce(Sender<String>) -> ManagerOrder,
    ) -> io::Result<()> {
        let (answer, answered) = std::sync::mpsc::channel();
        if self.orders.send(order(answer)).is_ok() {
            self.wake();
            for line in answered {
                channel::send(stream, line.as_bytes(), &[])?;
            }
        }
        Ok(())
    }

    fn wake(&self) {
        // A counter at its limit is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl ServiceState {
    /// Sends changes to the watches, and writes the records for the next manager.
    fn publish(&mut self, changes: &[WatchedChange]) {
        if changes.is_empty() {
            return;
        }
        self.watches.retain(|watch| {
            let of = changes.iter().filter(|change| key_of(change).starts_with(&watch.prefix));
            let of: Vec<&WatchedChange> = of.collect();
            let line = serde_json::to_vec(&of).unwrap_or_default();
            let sent = channel::send(&watch.stream, &line, &[]);
            if sent.is_err() {
                let _ = watch.stream.shutdown(std::net::Shutdown::Both);
            }
            sent.is_ok()
        });
        self.save();
    }

    fn save(&mut self) {
        let octets = serde_json::to_vec(&self.records).unwrap_or_default();
        if let Err(e) = directory::replace(&self.directory.records(), &octets)
            && self.log.allows(clock::now(), "records")
        {
            warn!("the records of this unit cannot be written, so they end with this manager: {e}");
        }
    }

    /// Keeps descriptors, and hands each to the functions that may need it.
    fn keep(&mut self, descriptors: Vec<(String, OwnedFd)>, from: Option<Function>) {
        for (name, descriptor) in descriptors {
            if self.descriptors.len() >= channel::DESCRIPTORS_MAX && !self.descriptors.contains_key(&name) {
                self.refuse("room", &format!("there is no room for the descriptor `{name}`"));
                continue;
            }
            if from.is_some() {
                info!(name, "a descriptor is kept for the function that replaces its owner");
            }
            let line = serde_json::to_vec(&Descriptors(vec![name.clone()])).unwrap_or_default();
            for (function, joined) in &self.joined {
                if is_for(&name, *function) && Some(*function) != from {
                    // A function that is gone gets it with its next connection.
                    let _ = channel::send(&joined.stream, &line, &[descriptor.as_fd()]);
                }
            }
            self.descriptors.insert(name, descriptor);
        }
    }

    /// Takes areas that a process has mapped out of what it gives, seals them, and hands them to the functions that are linked with it.
    fn share_areas(&mut self, owner: UnitProcess, descriptors: &mut Vec<(String, OwnedFd)>) {
        for (name, area) in take_areas(descriptors) {
            let UnitProcess { function, run, area: number } = owner;
            match self.areas.mapped(name, (function, run, number), area) {
                Ok(true) => self.give_area(name),
                Ok(false) => {}
                Err(e) => {
                    let [memory, _] = name.descriptors();
                    self.refuse("name", &format!("{function} gives the area `{memory}`, which is not its own or cannot be sealed: {e}"));
                }
            }
        }
    }

    /// Hands an area to the functions that are linked with its owner.
    fn give_area(&mut self, name: AreaName) {
        for (function, joined) in self.joined.iter().filter(|(_, joined)| joined.areas) {
            let Some(given) = self.areas.for_linked(name, *function) else { continue };
            let names = Descriptors(given.iter().map(|(name, _)| name.clone()).collect());
            let line = serde_json::to_vec(&names).unwrap_or_default();
            let descriptors: Vec<BorrowedFd<'_>> = given.iter().map(|(_, d)| d.as_fd()).collect();
            // A function that is gone gets it with its next connection.
            let _ = channel::send(&joined.stream, &line, &descriptors);
        }
    }

    /// Descriptors under names that are another function's: kept, they would take its sockets away.
    fn refuse_others(&mut self, function: Function, others: &[(String, OwnedFd)]) {
        for (name, _) in others {
            self.refuse(
                "name",
                &format!("{function} gives a descriptor of the name `{name}`, which is not its own"),
            );
        }
    }

    fn refuse(&mut self, kind: &'static str, why: &str) {
        self.refused += 1;
        if self.log.allows(clock::now(), kind) {
            warn!(
                "the unit's manager refuses what a process sends: {why}; more of this kind is only counted (`whimbrel unit`)"
            );
        }
    }
}

/// The process at the other end.
fn peer(stream: &UnixStream) -> io::Result<i32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.pid.as_raw_nonzero().get())
}

/// The user of the process at the other end, when it connected.
fn user_of(stream: &UnixStream) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
}

/// True if a user may have the manager run programs. The unit's token is no proof of that: every function has
/// it, also those that parse messages of peers. systemd runs `ExecReload=+` as root.
fn may_order(user: u32) -> bool {
    user == 0
}

/// Whether a process of this function may call itself so: a replica of the UPF keeps its name when it becomes the UPF.
fn is_called(function: Function, name: &str) -> bool {
    function.to_string() == name || function == Function::Upf && name == Function::UpfReplica.to_string()
}

/// Whether a function may give a descriptor of this name in place of the one that is kept.
fn is_of(name: &str, function: Function) -> bool {
    match name.split('/').next() {
        Some("cta") => matches!(function, Function::Cta(_)),
        _ => is_for(name, function),
    }
}

/// Whether a function gets the descriptors of this name.
fn is_for(name: &str, function: Function) -> bool {
    match name.split('/').next() {
        // The UPF does not use them, and keeps them for CTAs that start when no other process of the unit is left.
        Some("cta") => !matches!(function, Function::Cpf(_) | Function::Network(..)),
        Some("upf") => matches!(function, Function::Upf | Function::UpfReplica),
        _ => false,
    }
}

/// Compares secrets in a time that does not depend on where they differ.
fn equal_in_constant_time(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use rustix::event::{EventfdFlags, eventfd};
    use whimbrel_etcd::{Agent, EtcdAccess, LocalAccess};
    use whimbrel_resilience::CodeVersion;
    use whimbrel_resilience::membership::{
        Event, HomeClaim, Member, MemberId, MembershipCommand, MembershipSettings,
    };

    use super::*;
    use crate::function::directory::ManagerLock;
    use crate::function::{CLUSTER, HOME};

    const CTA: Function = Function::Cta(1);

    /// A manager's socket, to which this process is the first CTA.
    struct Unit {
        _folder: tempfile::TempDir,
        _lock: ManagerLock,
        directory: UnitDirectory,
        service: Service,
        me: ProcessRun,
    }

    fn unit() -> Unit {
        let folder = tempfile::tempdir().unwrap();
        let directory = UnitDirectory::of(&folder.path().join("u"));
        let lock = directory.take().unwrap();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let (orders, _) = std::sync::mpsc::channel();
        let service = Service::start(&directory, Records::new(7), orders, wake).unwrap();
        let me = ProcessRun { pid: std::process::id() as i32, started: 1 };
        Unit { _folder: folder, _lock: lock, directory, service, me }
    }

    impl Unit {
        fn admit(&self) {
            let me = self.me;
            self.service.admit(CTA, Some(0), || Ok(me)).unwrap();
        }

        /// The answer to a first line; `None`: the connection is closed without one.
        fn ask(&self, line: &str) -> Option<String> {
            let mut stream = UnixStream::connect(self.directory.socket()).unwrap();
            // The manager may close before all of a long line is written.
            let _ = stream.write_all(format!("{line}\n").as_bytes());
            Lines::of(&stream).next_line().unwrap_or_default().map(|line| String::from_utf8(line).unwrap())
        }

        fn grant(&self, token: &str) -> Option<String> {
            self.ask(&format!(r#"{{"token":"{token}","request":{{"Grant":{{"ttl_s":5}}}}}}"#))
        }
    }

    #[test]
    fn a_forged_token_and_a_process_that_is_not_of_the_unit_are_refused_and_counted() {
        let unit = unit();
        let token = unit.directory.token().unwrap();
        assert_eq!(unit.grant(&token), None, "this process was not started by the manager");
        unit.admit();
        let answer = unit.grant(&token).unwrap();
        assert!(answer.contains("Granted"), "{answer}");
        assert_eq!(unit.grant(&"0".repeat(64)), None, "a forged token");
        assert_eq!(unit.grant(""), None);
        assert_eq!(unit.ask("GET / HTTP/1.1"), None, "no question at all");
        let other = r#"{"function":"upf","code":"1","descriptors":[]}"#;
        assert_eq!(unit.ask(&format!(r#"{{"token":"{token}","hello":{other}}}"#)), None, "another function");
        assert_eq!(unit.service.kept().1, 5);
        // A line without an end, and one that lists no descriptors.
        assert_eq!(unit.ask(&"x".repeat(100_000)), None);
        let stream = UnixStream::connect(unit.directory.socket()).unwrap();
        let hello = r#"{"function":"cta-1","code":"1","descriptors":[]}"#;
        writeln!(&stream, r#"{{"token":"{token}","hello":{hello}}}"#).unwrap();
        let mut lines = Lines::of(&stream);
        assert_eq!(lines.next_line().unwrap().as_deref(), Some(&b"[]"[..]));
        writeln!(&stream, "rubbish").unwrap();
        assert_eq!(lines.next_line().unwrap_or_default(), None, "the connection is closed");
        let deadline = Instant::now() + Duration::from_secs(20);
        while unit.service.kept().1 < 7 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(unit.service.kept().1, 7);
    }

    #[test]
    fn orders_that_run_programs_are_taken_from_root_alone_even_with_the_token() {
        assert!(may_order(0) && !may_order(1000) && !may_order(u32::MAX));
        let unit = unit();
        let token = unit.directory.token().unwrap();
        let is_root = rustix::process::geteuid().is_root();
        for order in
            [r#""restart_control":{}"#, r#""upgrade":{"program":"/bin/true"}"#, r#""canary":{"promote":{}}"#]
        {
            let answer = unit.ask(&format!(r#"{{"token":"{token}",{order}}}"#));
            // No manager takes orders here, so that one which is taken has no answer.
            assert_eq!(answer.is_some_and(|line| line.starts_with("failed: ")), !is_root, "{order}");
        }
        assert_eq!(unit.service.kept().1, if is_root { 0 } else { 3 });
    }

    #[test] // fuzz/seeds/manager
    fn kept_first_lines_are_refused_as_their_names_say_and_the_manager_goes_on() {
        let unit = unit();
        unit.admit();
        let token = unit.directory.token().unwrap();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/manager");
        let mut kept = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            let line = std::fs::read_to_string(file.path()).unwrap().replace(&"0".repeat(64), &token);
            let before = unit.service.kept().1;
            let answer = unit.ask(&line);
            let refused = unit.service.kept().1 - before;
            let is_order = name.starts_with("canary-") || name == "upgrade";
            let is_refused =
                name.starts_with("refused-") || is_order && !rustix::process::geteuid().is_root();
            assert_eq!(refused, u64::from(is_refused), "{name}: {answer:?}");
            kept += 1;
        }
        assert!(kept > 10, "{kept} lines");
        assert!(unit.grant(&token).is_some());
    }

    #[test]
    fn a_descriptor_that_a_cta_gives_goes_to_the_other_cta_and_not_to_the_upf() {
        let unit = unit();
        unit.admit();
        let token = unit.directory.token().unwrap();
        let stream = UnixStream::connect(unit.directory.socket()).unwrap();
        let question = ManagerRequest {
            token,
            subject: RequestSubject::Hello(Hello {
                function: "cta-1".into(),
                code: "1".into(),
                descriptors: Descriptors(vec!["cta/n4".into()]),
                areas: false,
            }),
        };
        let given = tempfile::tempfile().unwrap();
        channel::send(&stream, &serde_json::to_vec(&question).unwrap(), &[given.as_fd()]).unwrap();
        let mut lines = Lines::of(&stream);
        assert_eq!(lines.next_line().unwrap().as_deref(), Some(&b"[]"[..]), "it has all that is kept");
        assert_eq!(unit.service.kept().0, ["cta/n4", "area/control-00", "area/n4-00"]);
        // The other CTA opens something later, and so does the UPF.
        for name in ["upf/n4", "cta/api"] {
            unit.service.keep(name, tempfile::tempfile().unwrap().into());
        }
        assert_eq!(lines.next_line().unwrap().as_deref(), Some(&br#"["cta/api"]"#[..]));
        assert_eq!(lines.take_descriptors(1).unwrap().len(), 1);
        assert_eq!(unit.service.code_of(CTA).as_deref(), Some("1"));
    }

    #[test]
    fn a_function_that_gives_descriptors_of_another_is_refused_and_counted_and_the_others_stay() {
        let unit = unit();
        unit.admit();
        let token = unit.directory.token().unwrap();
        let own = tempfile::tempfile().unwrap();
        unit.service.keep("upf/n4", own.try_clone().unwrap().into());
        let stream = UnixStream::connect(unit.directory.socket()).unwrap();
        let names = |names: &[&str]| Descriptors(names.iter().map(|name| (*name).into()).collect());
        let hello = Hello {
            function: "cta-1".into(),
            code: "1".into(),
            descriptors: names(&["upf/beats", "cta/n4"]),
            areas: false,
        };
        let question = ManagerRequest { token, subject: RequestSubject::Hello(hello) };
        let forged = tempfile::tempfile().unwrap();
        let two = [forged.as_fd(), forged.as_fd()];
        channel::send(&stream, &serde_json::to_vec(&question).unwrap(), &two).unwrap();
        let mut lines = Lines::of(&stream);
        assert_eq!(lines.next_line().unwrap().as_deref(), Some(&b"[]"[..]));
        let kept = |names: &[&str], refused| {
            let all = names.iter().chain(&["area/control-00", "area/n4-00"]);
            assert_eq!(unit.service.kept(), (all.map(|name| (*name).to_owned()).collect(), refused));
        };
        kept(&["cta/n4", "upf/n4"], 1);
        let later = names(&["upf/n4", "area/n4-01", "bell/n4-01", "cta/api"]);
        let four = [forged.as_fd(); 4];
        channel::send(&stream, &serde_json::to_vec(&later).unwrap(), &four).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !unit.service.keeps("cta/api") && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        kept(&["cta/api", "cta/n4", "upf/n4"], 3);
        let inode = |file: &std::fs::File| std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
        let now = std::fs::File::from(unit.service.duplicate("upf/n4").unwrap());
        assert_eq!(inode(&now), inode(&own), "the UPF's socket is not replaced");
    }

    #[test]
    fn the_replica_of_the_upf_keeps_its_connection_when_it_is_the_upf_and_may_connect_again() {
        let unit = unit();
        let me = unit.me;
        unit.service.admit(Function::UpfReplica, None, || Ok(me)).unwrap();
        let token = unit.directory.token().unwrap();
        let hello = |name: &str| {
            let other = format!(r#"{{"function":"{name}","code":"9","descriptors":[]}}"#);
            unit.ask(&format!(r#"{{"token":"{token}","hello":{other}}}"#))
        };
        assert_eq!(hello("upf"), None, "it is not the UPF");
        assert_eq!(hello("upf-replica").as_deref(), Some("[]"));
        assert_eq!(unit.service.code_of(Function::Upf), None);
        unit.service.rename(me, Function::Upf);
        assert_eq!(unit.service.code_of(Function::Upf).as_deref(), Some("9"));
        assert_eq!(unit.service.code_of(Function::UpfReplica), None);
        // To the next manager it says the name with which it was started.
        assert_eq!(hello("upf-replica").as_deref(), Some("[]"));
        assert_eq!(hello("cta-1"), None);
    }

    #[test]
    fn a_cta_claims_its_home_at_the_manager_and_its_record_ends_with_its_process() {
        let unit = unit();
        unit.admit();
        let token = unit.directory.token().unwrap();
        let local = LocalAccess { socket: unit.directory.socket(), token };
        let settings = MembershipSettings {
            cluster: CLUSTER.into(),
            me: MemberId::Cta(1),
            member: Member {
                region: "home/site".into(),
                address: "127.0.0.1:1".parse().unwrap(),
                draining: false,
                code_version: CodeVersion::own(),
            },
            lease: Duration::from_secs(5),
        };
        let (sender, events) = std::sync::mpsc::channel();
        let on_update = move |update: whimbrel_etcd::MembershipUpdate<'_>| drop(sender.send(update.event));
        let access = EtcdAccess { local: Some(local), ..EtcdAccess::default() };
        let agent = Agent::start(settings, &access, on_update).unwrap();
        let until = |is: &dyn Fn(&Event) -> bool| {
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline {
                if events.recv_timeout(Duration::from_secs(1)).is_ok_and(|event| is(&event)) {
                    return true;
                }
            }
            false
        };
        assert!(until(&|e| matches!(e, Event::Joined(_))));
        assert!(agent.command(MembershipCommand::Claim(HOME, HomeClaim::Found)));
        assert!(until(&|e| matches!(e, Event::Claimed(..))));
        let home = unit.service.records(Records::serving_ctas).unwrap();
        assert_eq!((home.primary.cta, Some(home.primary)), (1, unit.service.records(|r| r.cta(1))));
        unit.service.ended(unit.me);
        assert_eq!(unit.service.records(|r| r.cta(1)), None);
        let saved: Records =
            serde_json::from_slice(&std::fs::read(unit.directory.records()).unwrap()).unwrap();
        assert_eq!(saved.serving_ctas(), Some(home), "the next manager knows the primary");
    }
}
