//! The manager of a unit: it starts the functions as processes of this host, witnesses their ends, starts them again, and keeps what has to
//! outlive them. When it is killed itself, they continue, and the next manager adopts them.

mod functions;
mod hang_checks;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::Signal;
use tracing::{error, info, warn};
use whimbrel_control::udm::NfType;
use whimbrel_resilience::region::UeKind;

use self::functions::{FunctionRecord, ManagedFunction, adopt, free_area, missing, missing_network};
use super::canary::Canary;
use super::process::Process;
use super::program::{Program, ProgramRules};
use super::records::{ProcessRun, Records};
use super::restarts::RestartVerdict;
use super::service::{ManagerOrder, Service};
use super::upf_watch::UpfWatch;
use super::upgrade::Upgrade;
use crate::client::Client;
use crate::config::{Config, MemoryOptions};
use crate::entropy::SystemEntropy;
use crate::function::directory::{self, ManagerLock, UnitDirectory};
use crate::function::messages::{CanaryOrder, FunctionStatus, UnitStatus};
use crate::function::{AREA, Function, FunctionOptions, descriptors};
use crate::local_socket;
use crate::observation::Metric;
use crate::port_owner::cannot_listen;

/// How long the functions of an earlier manager have to connect, before what they hold is opened again.
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);
/// How long a function may take to end when it is asked to; a CTA waits ten seconds for SMFs at most.
const ENDED_WITHIN: Duration = Duration::from_secs(15);
/// How long the last answer to an operator may take before the manager replaces itself.
const ANSWERED_WITHIN: Duration = Duration::from_millis(200);
/// How long the first CTA has to serve before the second one may.
const FIRST_SERVES_WITHIN: Duration = Duration::from_secs(3);
/// How long the UPF's replica waits for a UPF that has its sockets, and after the one before it has become the UPF: so long that the UPF has the
/// processor first.
const FIRST_UPF_WITHIN: Duration = Duration::from_secs(3);
const NEXT_REPLICA_AFTER: Duration = Duration::from_millis(100);
/// The longest time without a look at what is due.
const CHECKED_EVERY: Duration = Duration::from_millis(100);

/// The manager of a unit.
pub(super) struct Manager {
    directory: UnitDirectory,
    config: Config,
    file: Option<PathBuf>,
    /// The program of functions that are started.
    pub(super) program: Program,
    /// Rules for programs other than the one that the manager runs.
    rules: ProgramRules,
    functions: BTreeMap<Function, ManagedFunction>,
    pub(super) service: Service,
    orders: Receiver<ManagerOrder>,
    wake: Arc<OwnedFd>,
    /// The upgrade under way.
    upgrade: Option<Upgrade>,
    /// The canary under way, and what became of the last one.
    canary: Option<Canary>,
    canary_outcome: Option<String>,
    /// The log has that all functions are there.
    complete: bool,
    /// It replaces itself by the program that is in force.
    renews: Option<Instant>,
    /// When functions that hang were looked for last.
    looked: Instant,
    /// Finds a UPF that hangs; `None`: it is found by its missing beats alone.
    upf_watch: Option<UpfWatch>,
    /// SIGHUP has come.
    reloads: Arc<AtomicBool>,
    _lock: ManagerLock,
}

impl Manager {
    /// Takes the runtime directory, adopts the functions that run, and starts the others. Errors: one sentence.
    pub(super) fn start(config: Config, file: Option<PathBuf>) -> Result<Self, String> {
        let reloads = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGHUP, reloads.clone())
            .map_err(|e| format!("signals cannot be awaited: {e}"))?;
        let directory = UnitDirectory::of(&config.unit.directory);
        let lock = directory.take()?;
        let program = Program::own()?;
        let rules = ProgramRules::new(config.unit.upgrade_key.as_deref())?;
        let mut functions = adopt(&directory, &program, &rules);
        // The UPF has ended since, and its replica is the UPF.
        if !functions.contains_key(&Function::Upf)
            && let Some(replica) = functions.remove(&Function::UpfReplica)
        {
            functions.insert(Function::Upf, replica);
        }
        if functions.is_empty() {
            directory.clear();
        }
        let records = records_of(&directory, &functions)?;
        let (orders_in, orders) = channel();
        let no_wake = |e| format!("the system gives no eventfd: {e}");
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_wake)?);
        let service = Service::start(&directory, records, orders_in, wake.clone())?;
        for (function, member) in &mut functions {
            let Some(process) = &member.process else { continue };
            let run = process.run;
            service.admit_adopted(*function, member.area, run);
            info!(%function, process = run.pid, "a function that runs is adopted");
        }
        let gone: Vec<ProcessRun> = service.records(|records| {
            let runs = |run: &ProcessRun| {
                functions.values().any(|m| m.process.as_ref().is_some_and(|p| p.run == *run))
            };
            records.holders().filter(|run| !runs(run)).collect()
        });
        gone.into_iter().for_each(|run| service.ended(run));
        let mut manager = Self {
            directory,
            config,
            file,
            program,
            rules,
            functions,
            service,
            orders,
            wake,
            upgrade: None,
            canary: None,
            canary_outcome: None,
            complete: false,
            renews: None,
            looked: Instant::now(),
            upf_watch: None,
            reloads,
            _lock: lock,
        };
        manager.open_api()?;
        manager.upf_watch =
            manager.watch_upf().inspect_err(|e| warn!("a UPF that hangs is detected late: {e}")).ok();
        manager.add_missing();
        (manager.canary, manager.canary_outcome) = Canary::resume(&manager);
        let stands = manager.canary_cpfs().len() as u16;
        if let Some(program) = manager.canary.as_ref().and_then(Canary::serves_with) {
            let lacking = manager.config.unit.canary.cpfs.saturating_sub(stands);
            manager.add_canary_cpfs(lacking, &program);
        }
        // The first CTA serves first: gNBs are configured with its endpoint.
        let alone = manager.service.records(Records::serving_ctas).is_none();
        if let Some(second) =
            manager.functions.get_mut(&Function::Cta(2)).filter(|m| alone && m.due.is_some())
        {
            second.due = Some(Instant::now() + FIRST_SERVES_WITHIN);
        }
        let upf_stands = manager.runs(Function::Upf);
        if let Some(replica) = manager.functions.get_mut(&Function::UpfReplica).filter(|m| m.due.is_some()) {
            replica.due =
                Some(Instant::now() + if upf_stands { NEXT_REPLICA_AFTER } else { FIRST_UPF_WITHIN });
        }
        manager.start_due();
        Ok(manager)
    }

    /// Opens the API's listeners, unless a function of the manager before holds them.
    fn open_api(&self) -> Result<(), String> {
        let address = self.config.api.address;
        let until = Instant::now() + CONNECTED_WITHIN;
        let adopted = self.functions.keys().any(|function| !matches!(function, Function::Cpf(_)));
        while adopted && !self.service.keeps(descriptors::API) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.service.keeps(descriptors::API) {
            let listener =
                TcpListener::bind(address).map_err(|e| cannot_listen("api.address", "TCP", address, &e))?;
            info!(%address, "the API listens");
            self.service.keep(descriptors::API, listener.into());
        }
        if !self.service.keeps(descriptors::API_SOCKET) {
            self.open_api_socket()?;
        }
        Ok(())
    }

    /// Opens the socket of this host's commands, which each primary CTA serves in its turn.
    fn open_api_socket(&self) -> Result<(), String> {
        let socket = self.directory.api_socket();
        let listener = local_socket::listen(&socket).map_err(|e| e.to_string())?;
        self.service.keep(descriptors::API_SOCKET, listener.into());
        // Where `--unit` alone makes this a unit, commands cannot tell from the configuration.
        if !self.config.unit.enabled
            && let Err(e) = local_socket::link(&self.config.store.path, &socket)
        {
            warn!(
                "commands find this unit with `unit.enabled: true` only: no link beside the store can be made: {e}"
            );
        }
        Ok(())
    }

    /// The functions that a unit lacks.
    fn add_missing(&mut self) {
        let config = &self.config;
        let slices = config.cluster.slices.iter().map(|slice| (Some(*slice), config.unit.slice_cpfs));
        let required: Vec<_> = [(None, config.unit.cpfs)].into_iter().chain(slices).collect();
        let there: Vec<_> = self.functions.iter().map(|(function, member)| (*function, member.ues)).collect();
        let network = config.unit.network_functions(&config.cluster.slices);
        for (function, ues) in missing(&required, &there).into_iter().chain(missing_network(&network, &there))
        {
            self.add_for(function, &self.program.clone(), ues);
        }
    }

    /// The CPFs that are missing beside those of the canary.
    pub(super) fn add_missing_cpfs(&mut self) {
        self.add_missing();
    }

    /// CPFs of the canary, and a network function of each kind that may have several, which are started at once.
    pub(super) fn add_canary_cpfs(&mut self, n: u16, program: &Program) {
        let canary = UeKind { canary: true, slice: None };
        let last = self.last_cpf();
        (1..=n).for_each(|n| self.add_for(Function::Cpf(last + n), program, canary));
        let stand = self.canary_network_functions();
        for nf in self.config.unit.functions.clone() {
            let is_it = |function: &Function| matches!(function, Function::Network(kind, _) if *kind == nf);
            if nf == NfType::Chf || stand.iter().any(is_it) {
                continue;
            }
            let free = (1..=u16::MAX).map(|n| Function::Network(nf, n));
            let free = free.clone().find(|function| !self.functions.contains_key(function));
            free.iter().for_each(|function| self.add_for(*function, program, canary));
        }
    }

    /// The network functions of the canary.
    pub(super) fn canary_network_functions(&self) -> Vec<Function> {
        let its = |(function, member): &(&Function, &ManagedFunction)| {
            matches!(function, Function::Network(..)) && member.ues.canary
        };
        self.functions.iter().filter(its).map(|(function, _)| *function).collect()
    }

    /// Replaces the network functions by the program that is in force: requests wait meanwhile.
    pub(super) fn replace_network_functions(&mut self) {
        let is_one = |(function, member): &(&Function, &ManagedFunction)| {
            matches!(function, Function::Network(..)) && !member.ues.canary
        };
        let all: Vec<Function> =
            self.functions.iter().filter(is_one).map(|(function, _)| *function).collect();
        all.into_iter().for_each(|function| self.replace(function));
    }

    /// The highest number of a CPF.
    pub(super) fn last_cpf(&self) -> u16 {
        let number = |function: &Function| if let Function::Cpf(n) = function { *n } else { 0 };
        self.functions.keys().map(number).max().unwrap_or(0)
    }

    /// The CPFs: those of the canary, or the others.
    pub(super) fn cpfs(&self, canary: bool) -> Vec<(Function, UeKind)> {
        let cpfs =
            self.functions.iter().filter(|(f, m)| matches!(f, Function::Cpf(_)) && m.ues.canary == canary);
        cpfs.map(|(function, member)| (*function, member.ues)).collect()
    }

    /// The CPFs of the canary.
    pub(super) fn canary_cpfs(&self) -> Vec<Function> {
        self.cpfs(true).into_iter().map(|(function, _)| function).collect()
    }

    /// How often CPFs of the canary have ended unasked.
    pub(super) fn canary_ends(&self) -> u64 {
        self.functions.values().filter(|member| member.ues.canary).map(|member| member.ended).sum()
    }

    /// Whether a CPF that is not the canary's runs this code.
    pub(super) fn runs_code(&self, code: &str) -> bool {
        self.cpfs(false).iter().any(|(cpf, _)| self.service.code_of(*cpf).as_deref() == Some(code))
    }

    /// Whether there is a CTA replica.
    pub(super) fn is_complete(&self) -> bool {
        self.service.records(Records::serving_ctas).is_some_and(|home| home.cta_replica.is_some())
    }

    /// The configuration of the unit.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Where the canary is written down.
    pub(super) fn canary_file(&self) -> PathBuf {
        self.directory.canary()
    }

    /// What became of the last canary.
    pub(super) fn canary_outcome(&self) -> Option<String> {
        self.canary_outcome.clone()
    }

    pub(super) fn set_canary_outcome(&mut self, outcome: String) {
        self.canary_outcome = Some(outcome);
    }

    /// All CPFs run the canary's program: it is that of the unit from now on.
    pub(super) fn canary_is_everyones(&mut self) {
        let Some(canary) = self.canary.take() else { return };
        if let Some(program) = canary.program() {
            self.program = program.clone();
        }
        // The others of their kind get its program, too.
        self.canary_network_functions().into_iter().for_each(|function| self.ask_to_leave(function));
        self.functions.values_mut().for_each(|member| member.ues.canary = false);
        self.save();
        canary.promoted(self);
    }

    pub(super) fn set_upgrade(&mut self, upgrade: Upgrade) {
        self.upgrade = Some(upgrade);
    }

    /// Whether an upgrade is under way.
    pub(super) fn upgrades(&self) -> bool {
        self.upgrade.is_some()
    }

    /// A further function, which is started at once.
    pub(super) fn add(&mut self, function: Function) {
        self.add_for(function, &self.program.clone(), UeKind::default());
    }

    /// The same with a program and for UEs of its own.
    pub(super) fn add_for(&mut self, function: Function, program: &Program, ues: UeKind) {
        let area = free_area(self.functions.values());
        let managed = ManagedFunction::new(program.clone(), area, ues);
        self.functions.insert(function, managed);
    }

    fn command(&self, function: Function, program: &Program) -> Command {
        let mut command = program.command();
        match function {
            Function::Upf | Function::UpfReplica => command.arg("upf"),
            Function::Cta(_) => command.arg("run"),
            Function::Cpf(_) => command.args(["cpf", "--region", &self.config.cluster.region.to_string()]),
            Function::Network(..) => command.arg("network-function"),
        };
        let slice = self.functions.get(&function).and_then(|member| member.ues.slice);
        if let Some(slice) = slice {
            command.args(["--slice", &slice.to_string()]);
        }
        if let Function::Cpf(n) = function {
            let memory = &self.config.memory;
            let file = memory.file.as_ref().unwrap_or(&self.config.store.path);
            command.args(MemoryOptions::arguments(memory, &file.with_extension(format!("ues-cpf-{n}"))));
        }
        command.args(FunctionOptions::arguments(function, self.directory.path()));
        // A CPF gets its configuration from the CTA.
        if let Some(file) = self.file.as_ref().filter(|_| !matches!(function, Function::Cpf(_))) {
            command.arg("--config").arg(file);
        }
        command
    }

    /// The second CTA starts when the first one serves.
    fn start_second_cta(&mut self) {
        let Some(second) = self.functions.get_mut(&Function::Cta(2)) else { return };
        if second.ended == 0 && second.due.is_some() && self.service.records(Records::serving_ctas).is_some()
        {
            second.due = Some(Instant::now());
        }
    }

    /// The replica of the UPF starts when the UPF has opened what it takes over, and not before: it would be the UPF itself.
    fn start_upf_replica(&mut self) {
        let has = |name: &str| self.service.keeps(name);
        let stands = self.runs(Function::Upf) && self.service.beats_of(Function::Upf) > 0;
        let opened = stands && has(descriptors::UPF_UNIT_N4) && has(descriptors::UPF_FIRST_PORT);
        let Some(replica) = self.functions.get_mut(&Function::UpfReplica).filter(|m| m.process.is_none())
        else {
            return;
        };
        let now = Instant::now();
        if !stands && replica.due.is_some_and(|at| at <= now + NEXT_REPLICA_AFTER) {
            replica.due = Some(now + NEXT_REPLICA_AFTER);
        } else if opened && replica.ended == 0 && replica.due.is_some_and(|at| at > now + NEXT_REPLICA_AFTER)
        {
            replica.due = Some(now);
        }
    }

    /// The UPF has ended and its replica has its sessions: that is the UPF now. Returns whether there was a replica.
    fn promote_upf_replica(&mut self) -> bool {
        let Some(replica) = self.functions.remove(&Function::UpfReplica) else { return false };
        self.add(Function::UpfReplica);
        if let Some(next) = self.functions.get_mut(&Function::UpfReplica) {
            (next.ended, next.restarts) = (replica.ended, replica.restarts);
            next.due = replica.due.max(Some(Instant::now() + NEXT_REPLICA_AFTER));
        }
        let Some(process) = replica.process else { return false };
        self.service.rename(process.run, Function::Upf);
        info!(function = %Function::Upf, process = process.run.pid, "the replica of the UPF goes on in its place");
        let mut former = None;
        if let Some(upf) = self.functions.get_mut(&Function::Upf) {
            // A process keeps its areas.
            former = std::mem::replace(&mut upf.area, replica.area);
            (upf.process, upf.program, upf.since, upf.due) =
                (Some(process), replica.program, replica.since, None);
            (upf.beats, upf.silent) = (0, 0);
        }
        if let Some(next) = self.functions.get_mut(&Function::UpfReplica) {
            next.area = former;
        }
        true
    }

    /// Starts the functions whose time has come.
    fn start_due(&mut self) {
        let now = Instant::now();
        let due = |m: &ManagedFunction| m.process.is_none() && m.due.is_some_and(|at| at <= now);
        let functions: Vec<Function> =
            self.functions.iter().filter(|(_, m)| due(m)).map(|(function, _)| *function).collect();
        for function in functions {
            let Some((program, area)) = self.functions.get(&function).map(|m| (m.program.clone(), m.area))
            else {
                continue;
            };
            let mut command = self.command(function, &program);
            match area {
                Some(area) => command.env(AREA, area.to_string()),
                None => command.env_remove(AREA),
            };
            let mut started = None;
            let admitted = self.service.admit(function, area, || {
                let process = Process::start(command)?;
                let run = process.run;
                started = Some(process);
                Ok(run)
            });
            let Some(member) = self.functions.get_mut(&function) else { continue };
            (member.due, member.since, member.served) = (None, now, false);
            match admitted {
                Ok(run) => {
                    info!(%function, process = run.pid, "a function is started");
                    member.process = started;
                }
                Err(e) => {
                    warn!(%function, "the program {} cannot be started: {e}", program.path().display());
                    self.ended(function, Duration::ZERO);
                }
            }
            self.save();
        }
    }

    /// What the next manager adopts.
    fn save(&self) {
        let left: Vec<FunctionRecord> = self
            .functions
            .iter()
            .filter_map(|(function, m)| {
                let run = m.process.as_ref()?.run;
                let (function, program) = (function.to_string(), m.program.path().to_path_buf());
                Some(FunctionRecord { function, run, program, area: m.area, ues: m.ues })
            })
            .collect();
        let written = serde_json::to_vec(&left)
            .map_err(std::io::Error::from)
            .and_then(|octets| directory::replace(&self.directory.functions(), &octets));
        if let Err(e) = written {
            warn!("the list of functions cannot be written, so no later manager can adopt them: {e}");
        }
    }

    /// A function has ended after it lived for so long: when it starts again.
    fn ended(&mut self, function: Function, lived: Duration) {
        let Some(member) = self.functions.get_mut(&function) else { return };
        member.ended += 1;
        match member.restarts.ended(lived) {
            RestartVerdict::StartAfter(pause) => member.due = Some(Instant::now() + pause),
            RestartVerdict::GiveUp => error!(
                %function,
                "a function ends each time soon after its start and is not started any more; the lines of its own log above say why: mend \
                 that, then start the unit again"
            ),
        }
    }

    /// Witnesses the ends of functions.
    fn witness(&mut self) {
        let is_over = |m: &ManagedFunction| m.process.as_ref().is_some_and(has_ended);
        let over: Vec<Function> =
            self.functions.iter().filter(|(_, m)| is_over(m)).map(|(function, _)| *function).collect();
        for function in over {
            let Some(member) = self.functions.get_mut(&function) else { continue };
            let (Some(process), lived) = (member.process.take(), member.since.elapsed()) else { continue };
            let run = process.run;
            self.service.ended(run);
            let status = process.reap();
            if std::mem::take(&mut member.replaced) {
                info!(%function, process = run.pid, "a function has ended, as it was asked to ({status})");
                member.due = Some(Instant::now());
            } else if member.leaves {
                info!(%function, process = run.pid, "a function has ended, as it was asked to ({status})");
                self.functions.remove(&function);
                self.directory.withdraw_function_link(function);
            } else {
                warn!(%function, process = run.pid, "a function has ended unasked ({status}): it is started again");
                self.complete = false;
                self.ended(function, lived);
            }
            if function == Function::Upf {
                self.promote_upf_replica();
            }
            self.save();
        }
    }

    /// Manages until a signal comes. Errors: one sentence.
    pub(super) fn run(&mut self, signals: &mut UnixStream) -> Result<(), String> {
        signals.set_nonblocking(true).map_err(|e| format!("signals cannot be awaited: {e}"))?;
        let mut octet = [0];
        loop {
            match signals.read(&mut octet) {
                Ok(n) if n > 0 => break,
                _ => {}
            }
            self.end_hanging_upf();
            self.witness();
            self.end_hanging_ctas();
            self.end_silent_functions();
            self.start_second_cta();
            self.start_upf_replica();
            self.start_due();
            while let Ok(order) = self.orders.try_recv() {
                self.order(order);
            }
            if let Some(upgrade) = self.upgrade.take() {
                self.upgrade = upgrade.step(self);
            }
            if let Some(canary) = self.canary.take() {
                self.canary = canary.step(self);
            }
            if self.renews.take_if(|at| *at <= Instant::now()).is_some() {
                self.become_new();
            }
            if self.reloads.swap(false, Ordering::AcqRel) {
                self.reload();
            }
            self.report_complete();
            let ctas = self.functions.iter().filter(|(f, _)| matches!(f, Function::Cta(_)));
            if ctas.filter(|(_, m)| m.process.is_some() || m.due.is_some()).count() == 0 {
                self.stop(signals);
                return Err("no CTA can be started, so no UE can be served".into());
            }
            self.wait(signals);
        }
        info!("the unit stops: its functions end in order");
        self.stop(signals);
        Ok(())
    }

    /// SIGHUP: the primary CTA reloads the configuration, and passes it to the CPFs; network functions start again.
    fn reload(&mut self) {
        let primary = self.service.records(Records::serving_ctas).map(|home| Function::Cta(home.primary.cta));
        let process = primary.and_then(|function| self.functions.get(&function)?.process.as_ref());
        match process {
            Some(process) => process.signal(Signal::HUP),
            None => warn!("no CTA serves now, so the configuration is not reloaded: send SIGHUP again"),
        }
        // Their policies are of the configuration with which they start.
        self.replace_network_functions();
    }

    /// Waits until something happens or is due.
    fn wait(&self, signals: &UnixStream) {
        let now = Instant::now();
        let due = self.functions.values().filter_map(|m| m.due).map(|at| at.saturating_duration_since(now));
        let upgrade = self.upgrade.as_ref().map(|_| Duration::from_millis(20));
        let due = due.chain(self.renews.map(|at| at.saturating_duration_since(now)));
        let wait = due.chain(upgrade).min().unwrap_or(CHECKED_EVERY).min(CHECKED_EVERY);
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let processes = self.functions.values().filter_map(|m| m.process.as_ref()).map(AsFd::as_fd);
        let fds = [signals.as_fd(), self.wake.as_fd()].into_iter().chain(processes);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    fn report_complete(&mut self) {
        if self.complete || self.upgrade.is_some() {
            return;
        }
        let (home, cpfs) = self.service.records(|records| (records.serving_ctas(), records.cpf_count()));
        let Some(home) = home else { return };
        let upf_has_replica = self.service.beats_of(Function::UpfReplica) > 0;
        let all = upf_has_replica && self.functions.values().all(|m| m.process.is_some());
        if let (Some(replica), true) = (home.cta_replica, all && cpfs >= usize::from(self.config.unit.cpfs)) {
            self.complete = true;
            info!(
                primary = home.primary.cta,
                replica = replica.cta,
                cpfs,
                "the unit is complete: each of its processes may die"
            );
        }
    }

    fn order(&mut self, order: ManagerOrder) {
        match order {
            ManagerOrder::Status(answer) => {
                // A connection that has ended needs no answer.
                let _ = answer.send(self.status());
            }
            ManagerOrder::Upgrade(_, lines) | ManagerOrder::RestartControl(lines)
                if self.upgrade.is_some() =>
            {
                let _ = lines.send("an upgrade is under way already".into());
            }
            ManagerOrder::Upgrade(_, lines) | ManagerOrder::RestartControl(lines)
                if self.canary.is_some() =>
            {
                let _ = lines.send(
                    "failed: a canary is under way: promote it or roll it back first (`whimbrel canary`)"
                        .into(),
                );
            }
            ManagerOrder::Upgrade(program, lines) => {
                if let Some(program) = self.open_program(&program, &lines) {
                    self.upgrade = Upgrade::begin(self, program, lines);
                }
            }
            ManagerOrder::RestartControl(lines) => self.upgrade = Upgrade::of_control(self, lines),
            ManagerOrder::Canary(order, lines) => self.canary_order(order, lines),
        }
    }

    /// Opens a program that an operator has named. `None` if it is not to be run: the operator has got the reason.
    fn open_program(&self, path: &std::path::Path, lines: &Sender<String>) -> Option<Program> {
        let opened = Program::open(path, &self.rules);
        let refused = |sentence: &String| {
            warn!("{sentence}");
            // If the operator's connection has ended, the log has the line.
            let _ = lines.send(format!("failed: {sentence}"));
        };
        opened.inspect_err(refused).ok()
    }

    /// Rules for programs that may run beside the one of this manager.
    pub(super) fn program_rules(&self) -> &ProgramRules {
        &self.rules
    }

    fn canary_order(&mut self, order: CanaryOrder, lines: Sender<String>) {
        match (self.canary.take(), order) {
            (Some(mut canary), order) => {
                canary.order(self, order, lines);
                self.canary = Some(canary);
            }
            (None, _) if self.upgrade.is_some() => {
                let _ = lines.send("failed: an upgrade is under way".into());
            }
            (None, CanaryOrder::Begin { program, share }) => {
                if let Some(program) = self.open_program(&program, &lines) {
                    self.canary = Canary::begin(self, program, share, lines);
                }
            }
            (None, _) => {
                let _ = lines.send(
                    "failed: no canary is under way: begin one with `whimbrel upgrade PROGRAM --canary 10%`"
                        .into(),
                );
            }
        }
    }

    fn status(&self) -> UnitStatus {
        let home = self.service.records(Records::serving_ctas);
        let (descriptors, refused) = self.service.kept();
        let functions = self.functions.iter().map(|(function, m)| {
            let state = match (&m.process, function) {
                (None, _) if m.due.is_none() => "given-up",
                (None, _) => "starting",
                (Some(_), _) if m.leaves => "leaving",
                (Some(_), Function::Cta(n)) => {
                    match (home, self.service.records(|records| records.cta(*n))) {
                        (Some(home), Some(cta)) if home.primary == cta => "primary",
                        (Some(home), Some(cta)) if home.cta_replica == Some(cta) => "replica",
                        _ => "starting",
                    }
                }
                (Some(_), Function::UpfReplica) if self.service.beats_of(*function) == 0 => "starting",
                (Some(_), Function::UpfReplica) => "frozen",
                (Some(_), _) if m.ues.canary => "canary",
                (Some(_), _) => "running",
            };
            FunctionStatus {
                name: function.to_string(),
                pid: m.process.as_ref().map(|p| p.run.pid),
                state: state.into(),
                code: self.service.code_of(*function).unwrap_or_default(),
                ended: m.ended,
                up_s: m.process.as_ref().map_or(0, |_| m.since.elapsed().as_secs()),
            }
        });
        UnitStatus {
            manager: std::process::id() as i32,
            functions: functions.collect(),
            descriptors,
            refused,
            renews: self.renews.is_some(),
            canary: self.canary.as_ref().map(|canary| canary.status().clone()),
            last_canary: self.canary_outcome(),
        }
    }

    /// Replaces a function by the program that is in force: it is asked to end, and its successor starts at once.
    pub(super) fn replace(&mut self, function: Function) {
        if let Some(member) = self.functions.get_mut(&function) {
            member.program = self.program.clone();
            member.replaced = true;
            member.process.iter().for_each(|process| process.signal(Signal::TERM));
        }
        self.service.forget(function);
    }

    /// Replaces the replica of the UPF by the program that is in force; nothing depends on the process that ends.
    pub(super) fn replace_upf_replica(&mut self) {
        if let Some(member) = self.functions.get_mut(&Function::UpfReplica) {
            member.program = self.program.clone();
            member.replaced = true;
            member.process.iter().for_each(|process| process.signal(Signal::KILL));
        }
        self.service.forget(Function::UpfReplica);
    }

    /// Has this manager replace itself by the program that is in force, as soon as it has answered. The functions are not touched.
    pub(super) fn renew(&mut self) {
        self.renews = Some(Instant::now() + ANSWERED_WITHIN);
    }

    /// This process becomes a manager of the new program, under the same number: it adopts the functions, which remain its children.
    fn become_new(&self) {
        let mut command = self.program.command();
        command.args(std::env::args_os().skip(1));
        info!(program = %self.program.path().display(), "the manager replaces itself");
        let error = std::os::unix::process::CommandExt::exec(&mut command);
        error!("the manager cannot replace itself, and continues as it is: {error}");
    }

    /// Whether both CTAs have one SCTP endpoint.
    pub(super) fn shares_n2(&self) -> bool {
        self.config.unit.replica_n2_addresses.is_empty()
    }

    /// Whether each UE could lose another CPF, as the primary CTA says.
    pub(super) fn all_ues_have_replicas(&self) -> bool {
        let client = Client::of_unit(&self.config);
        client.metric(Metric::UesWithoutBackup, None).is_ok_and(|ues| ues == 0.0)
    }

    /// Whether a function runs.
    pub(super) fn runs(&self, function: Function) -> bool {
        self.functions.get(&function).is_some_and(|m| m.process.is_some())
    }

    /// Asks a function to end in order; it is not started again.
    pub(super) fn ask_to_leave(&mut self, function: Function) {
        if let Some(member) = self.functions.get_mut(&function) {
            member.leaves = true;
            match &member.process {
                Some(process) => process.signal(Signal::TERM),
                None => drop(self.functions.remove(&function)),
            }
        }
    }

    /// Ends the functions in order: the CTA replica, the primary, which releases gNBs and UPFs, the CPFs, which have no UE to hand
    /// over then, and the UPF. A second signal ends them at once.
    fn stop(&mut self, signals: &mut UnixStream) {
        let primary = self.service.records(Records::serving_ctas).map(|home| Function::Cta(home.primary.cta));
        let is_primary = |function: &Function| Some(*function) == primary;
        let mut ctas: Vec<Function> =
            self.functions.keys().copied().filter(|function| matches!(function, Function::Cta(_))).collect();
        ctas.sort_by_key(is_primary);
        let mut at_once = false;
        // It would become the UPF.
        if let Some(process) = self.functions.remove(&Function::UpfReplica).and_then(|m| m.process) {
            let run = process.run;
            process.signal(Signal::KILL);
            process.reap();
            self.service.ended(run);
        }
        for function in ctas.into_iter().chain([Function::Upf]) {
            self.end(function, signals, &mut at_once);
        }
        for member in std::mem::take(&mut self.functions).into_values() {
            if let Some(process) = member.process {
                let run = process.run;
                process.signal(Signal::KILL);
                process.reap();
                self.service.ended(run);
            }
        }
        self.directory.clear();
    }

    fn end(&mut self, function: Function, signals: &mut UnixStream, at_once: &mut bool) {
        let Some(process) = self.functions.get_mut(&function).and_then(|m| m.process.take()) else { return };
        process.signal(Signal::TERM);
        let until = Instant::now() + ENDED_WITHIN;
        let mut octet = [0];
        while !has_ended(&process) {
            *at_once |= signals.read(&mut octet).is_ok_and(|n| n > 0);
            if *at_once || Instant::now() >= until {
                process.signal(Signal::KILL);
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let run = process.run;
        let status = process.reap();
        info!(%function, process = run.pid, "a function has ended ({status})");
        self.service.ended(run);
    }
}

/// The records of the functions that run; new ones if none does. Errors: one sentence.
fn records_of(
    directory: &UnitDirectory,
    functions: &BTreeMap<Function, ManagedFunction>,
) -> Result<Records, String> {
    if !functions.is_empty()
        && let Ok(octets) = fs::read(directory.records())
    {
        match serde_json::from_slice(&octets) {
            Ok(records) => return Ok(records),
            Err(e) => {
                warn!("the records of this unit cannot be read, so its CTAs cannot replace each other: {e}")
            }
        }
    }
    let unit: [u8; 8] = SystemEntropy::new()?.octets();
    Ok(Records::new(u64::from_ne_bytes(unit)))
}

fn has_ended(process: &Process) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}
