//! `whimbrel run`: starts the parts that the host can serve, reports the others, and stops in order.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tracing::{error, info, warn};
use whimbrel_api::{HandlerContext, Server};
use whimbrel_cli::Done;
use whimbrel_node::aftermath::{self, RunMark};
use whimbrel_node::clock;
use whimbrel_node::config::{self, Config, CoreCommand, Deployment, SctpChoice, SharedHost};
use whimbrel_node::core::{
    self, AssignmentOutcome, ControlThread, InheritedUpfState, LocalUpf, Opening, Parts, ReadyReplica,
    ReplicaWaitOutcome, SmfN4,
};
use whimbrel_node::entropy::SystemEntropy;
use whimbrel_node::function::{FunctionOptions, descriptors};
use whimbrel_node::logging;
use whimbrel_node::observation::{Condition, Console, ConsoleCommand};
use whimbrel_node::port_owner::cannot_listen;
use whimbrel_node::sbfd::ReflectorThread;
use whimbrel_node::signals::{termination_signals, wait};
use whimbrel_node::subscribers;
use whimbrel_node::unit;
use whimbrel_sctp_io::{Mode, OpenError, Successor, Transport};
use whimbrel_store::Store;
use whimbrel_user_io::{StartError, StateFile};

use super::upf_drain::{self, UpfOrder};
use crate::cli::ConfigFile;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    config: ConfigFile,
    /// Write N2, N3 and N4 to this pcap file, as on the wire.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    #[command(flatten)]
    function: FunctionOptions,
    /// Exit if a part of the core cannot serve, instead of reporting it by the API.
    #[arg(long)]
    strict: bool,
    /// Add so many registered, idle UEs, each like one of those that register first: for demonstrations (`whimbrel-lab demo`).
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    added_ues: u32,
}

#[derive(Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    options: Options,
    /// Run as a unit: CTA, its replica, CPFs and UPF as processes; any of them may be killed (docs/unit.md).
    #[arg(long, conflicts_with = "capture")]
    unit: bool,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct UpfOptions {
    #[command(subcommand)]
    order: Option<UpfOrder>,
    #[command(flatten)]
    options: Options,
    /// Keep the sessions in this file of a memory file system, such as /run/whimbrel/upf.state, and continue those that are in it.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

/// `whimbrel run`.
pub(crate) fn run(options: RunOptions) -> Done {
    serve(options.options, CoreCommand::Run { as_unit: options.unit })
}

/// `whimbrel upf`: no SMF, no AMF; or an order to the core about one of its UPFs.
pub(crate) fn run_upf(options: UpfOptions) -> Done {
    if let Some(UpfOrder::Drain(order)) = &options.order {
        return upf_drain::drain(order);
    }
    serve(options.options, CoreCommand::Upf { state: options.state })
}

/// Opens what a deployment needs; `None`: a signal came first.
type Open = fn(&mut CoreProcess) -> Result<Option<Opened>, String>;
/// Starts the control thread of a deployment.
type Start = fn(Parts) -> Result<ControlThread, String>;

/// Runs what this process is, until a signal comes.
fn serve(options: Options, command: CoreCommand) -> Done {
    let function = options.function.unit_function()?;
    let (config, file) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let deployment = Deployment::of(command, function, &config, file.as_deref())?;
    let (open, start): (Open, Start) = match &deployment {
        Deployment::Single => (CoreProcess::open_core, core::start_single),
        Deployment::ClusterCta => (CoreProcess::open_core, core::start_cluster_cta),
        Deployment::PairedCta => (CoreProcess::open_core, core::start_paired_cta),
        Deployment::UnitManager => return unit::manage(config, file),
        Deployment::UnitCta(_) => (CoreProcess::open_unit_cta, core::start_paired_cta),
        Deployment::UnitUpf(_) => (CoreProcess::open_unit_upf, core::start_upf),
        Deployment::UnitUpfReplica(_) => (CoreProcess::open_unit_upf_replica, core::start_upf),
        Deployment::UpfOnly { .. } => (CoreProcess::open_upf, core::start_upf),
        Deployment::UpfBehindLogger => (CoreProcess::open_upf_behind_logger, core::start_upf),
    };
    CoreProcess::begin(options, config.deployed_as(deployment), file)?.serve(open, start)
}

/// A process of a core, with what each has that serves.
struct CoreProcess {
    options: Options,
    config: Arc<Config>,
    file: Option<PathBuf>,
    signals: UnixStream,
    /// SIGHUP has come.
    reload: Arc<AtomicBool>,
    _logging: logging::Logging,
    entropy: SystemEntropy,
    store: Store,
    subscribers: u64,
    /// Brings the subscribers' file up to date, if it is a replica.
    replica: Option<core::ReplicaThread>,
    console: Arc<Console>,
    shared: Arc<HandlerContext>,
    /// `None` in a unit, whose primary CTA serves the API.
    api: Option<Server>,
}

/// The sockets and threads that a process has opened.
#[derive(Default)]
struct Opened {
    n2: Option<Transport>,
    smf_n4: Option<SmfN4>,
    upf: Option<LocalUpf>,
    reflector: Option<ReflectorThread>,
    mark: Option<RunMark>,
    at_promotion: Option<Opening>,
}

impl CoreProcess {
    fn begin(options: Options, config: Config, file: Option<PathBuf>) -> Result<Self, String> {
        let config = Arc::new(config);
        // Signals first, so that an early one stops the program in order too.
        let signals = termination_signals()?;
        let reload = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGHUP, reload.clone())
            .map_err(|e| format!("signals cannot be awaited: {e}"))?;
        let own = config.deployment.unit_function();
        let name = own.map(|own| own.function.to_string());
        let logging = logging::start_as(config.log, name.as_deref())?;
        if let Some(own) = own {
            descriptors::join(own)?;
        }
        // Once the manager has looked at this process. A UPF has no keys of UEs, and its manager looks at its threads.
        if !config.deployment.is_upf_alone() {
            whimbrel_node::memory_access::close();
        }
        let from = file.as_ref().map_or("the defaults".into(), |f| f.display().to_string());
        info!(version = env!("CARGO_PKG_VERSION"), configuration = from, "whimbrel starts");

        let entropy = SystemEntropy::new()?;
        let store = subscribers::open(&config.store)?;
        for warning in config.warnings().filter(|_| own.is_none()) {
            warn!("{warning}");
        }
        let count = store.count().map_err(|e| e.to_string())?;
        let console = Console::new(clock::now()).map_err(|e| format!("the system gives no eventfd: {e}"))?;
        whimbrel_node::observation::otlp::start(&config.otlp, &console)?;
        let shared = HandlerContext::new(console.clone(), config.clone(), file.clone());
        let api = match own {
            None => {
                let api = whimbrel_api::start(config.api.address, shared.clone())?;
                info!(address = %api.address, "the API listens");
                Some(api)
            }
            Some(_) => None,
        };
        let path = config.store.path.display();
        console.components(|c| c.set("store", Condition::Up, format!("{count} subscribers in {path}")));
        let serves_subscribers = !config.deployment.is_upf_alone();
        let replica = if serves_subscribers { core::ReplicaThread::start(&config, &console)? } else { None };
        Ok(Self {
            options,
            config,
            file,
            signals,
            reload,
            _logging: logging,
            entropy,
            store,
            subscribers: count,
            replica,
            console,
            shared,
            api,
        })
    }

    /// The whole core, or a CTA of a cluster, on a host of its own.
    fn open_core(&mut self) -> Result<Option<Opened>, String> {
        let mut n2 = n2(&self.config, &self.console, &mut self.entropy)?;
        let smf_n4 = core::open_smf_n4(&self.config)?;
        // If all UPFs are elsewhere, this host forwards no packets.
        let needs_upf =
            self.config.n4.listen.is_some() || self.config.upfs().iter().any(|u| u.address.is_none());
        let upf = if needs_upf { self.user_plane(InheritedUpfState::default())? } else { None };
        self.check_complete(n2.is_some() && (upf.is_some() || !needs_upf))?;
        let mark = self.mark_run(true, &mut n2);
        Ok(Some(Opened { n2, smf_n4, upf, mark, reflector: self.reflector()?, at_promotion: None }))
    }

    /// A CTA of a unit: the UPF is another process, and what the primary alone serves is opened at the
    /// promotion.
    fn open_unit_cta(&mut self) -> Result<Option<Opened>, String> {
        let host = self.config.cluster.host().ok_or("this process is in no unit")?;
        let mut n2 = match host.shares_n2 {
            true => None,
            false => n2(&self.config, &self.console, &mut self.entropy)?,
        };
        self.check_complete(n2.is_some() || host.shares_n2)?;
        let at_promotion = Some(primary_of_unit(host, self.shared.clone()));
        Ok(Some(Opened { n2: n2.take(), at_promotion, ..Opened::default() }))
    }

    /// A UPF for SMFs elsewhere.
    fn open_upf(&mut self) -> Result<Option<Opened>, String> {
        let path = self.config.deployment.upf_state();
        let state = path.as_deref().map(|path| core::open_state(&self.config, path)).transpose()?;
        let upf = self.user_plane(InheritedUpfState { state, logger: None })?;
        self.check_complete(upf.is_some())?;
        let mark = self.mark_run(path.is_none(), &mut None);
        Ok(Some(Opened { upf, mark, reflector: self.reflector()?, ..Opened::default() }))
    }

    fn open_unit_upf(&mut self) -> Result<Option<Opened>, String> {
        let path = self.config.deployment.upf_state().ok_or("this process is in no unit")?;
        let state = Some(core::open_state(&self.config, &path)?);
        let upf = self.user_plane(InheritedUpfState { state, logger: None })?;
        self.complete_unit_upf(upf)
    }

    /// The replica of a unit's UPF, which opens nothing before that UPF has ended.
    fn open_unit_upf_replica(&mut self) -> Result<Option<Opened>, String> {
        let path = self.config.deployment.upf_state().ok_or("this process is in no unit")?;
        let upf = match core::await_end_of_upf(&self.config, &path, &self.signals)? {
            ReplicaWaitOutcome::Stopped => return Ok(None),
            ReplicaWaitOutcome::Ready(replica) => Some(take_over(&self.config, &self.console, *replica)?),
            ReplicaWaitOutcome::Cold(state) => {
                self.user_plane(InheritedUpfState { state: Some(state), logger: None })?
            }
        };
        self.complete_unit_upf(upf)
    }

    /// The UPF of a unit takes links of the unit's CTAs.
    fn complete_unit_upf(&self, mut upf: Option<LocalUpf>) -> Result<Option<Opened>, String> {
        if let (Some(own), Some(upf)) = (self.config.deployment.unit_function(), &mut upf) {
            upf.take_links(own);
        }
        self.check_complete(upf.is_some())?;
        Ok(Some(Opened { upf, ..Opened::default() }))
    }

    /// A UPF that the packet logger makes the first one, or the replica of the one that serves. What is left
    /// of it, if it is killed, is with its replica.
    fn open_upf_behind_logger(&mut self) -> Result<Option<Opened>, String> {
        let upf = match core::await_assignment(&self.config, &mut self.entropy, &self.signals)? {
            AssignmentOutcome::Stopped => return Ok(None),
            AssignmentOutcome::TakenOver(upf) => {
                show_user_plane(&self.config, &self.console, &upf);
                Some(*upf)
            }
            AssignmentOutcome::First(logger, host) => {
                let state = StateFile::in_memory(&core::user_plane_config(&self.config, 0))
                    .map_err(|e| format!("there is no memory for the state: {e}"))?;
                self.user_plane(InheritedUpfState { state: Some(state), logger: Some((logger, host)) })?
            }
        };
        self.check_complete(upf.is_some())?;
        Ok(Some(Opened { upf, reflector: self.reflector()?, ..Opened::default() }))
    }

    fn user_plane(&mut self, inherited: InheritedUpfState) -> Result<Option<LocalUpf>, String> {
        user_plane(&self.config, &self.console, &mut self.entropy, inherited)
    }

    /// With `--strict`, a process of which a part cannot serve ends.
    fn check_complete(&self, is_complete: bool) -> Done {
        if self.options.strict && !is_complete { Err(degraded(&self.console)) } else { Ok(()) }
    }

    /// Notes that this process runs, so that the next one notices if it is killed; what it says of one that
    /// was, this one does. It comes last, so that a second start that finds the ports in use does not report
    /// a kill. The functions of a unit have one store, and another one is there when one is killed, so they
    /// note nothing. `loses_sessions`: a kill ends the sessions.
    fn mark_run(&self, loses_sessions: bool, n2: &mut Option<Transport>) -> Option<RunMark> {
        let path = &self.config.store.path;
        match RunMark::set(path) {
            Ok((mark, left)) => {
                if let Some(associations) = left {
                    if loses_sessions {
                        warn!("{}", aftermath::warning(self.subscribers));
                    }
                    if let Some(n2) = n2 {
                        associations.iter().for_each(|former| n2.abort_former(former));
                    }
                }
                Some(mark)
            }
            Err(e) => {
                warn!(
                    "a kill of this program will not be noticed by the next: no file can be made beside {}: {e}",
                    path.display()
                );
                None
            }
        }
    }

    /// Answers S-BFD probes; those to the functions of a unit are answered by its manager, as they share a
    /// host.
    fn reflector(&self) -> Result<Option<ReflectorThread>, String> {
        let reflector = self.config.sbfd.reflecting.map(ReflectorThread::start).transpose();
        let reflector = reflector.map_err(|e| format!("sbfd.listen: {e}"))?;
        if let Some(reflector) = &reflector {
            info!(at = %reflector.at(), "S-BFD probes are answered");
        }
        Ok(reflector)
    }

    fn serve(mut self, open: Open, start: Start) -> Done {
        let Some(opened) = open(&mut self)? else { return Ok(()) };
        let Self {
            options,
            config,
            file,
            mut signals,
            reload,
            _logging,
            entropy,
            store,
            console,
            api,
            replica,
            ..
        } = self;
        let Opened { n2, smf_n4, upf, reflector, mark, at_promotion } = opened;
        let parts = Parts {
            config: config.clone(),
            console: console.clone(),
            store,
            entropy,
            n2,
            remembered_in: mark.as_ref().map(|mark| mark.file().to_path_buf()),
            upf,
            smf_n4,
            reflector,
            capture: options.capture,
            added_ues: options.added_ues,
            home: replica.as_ref().map(core::ReplicaThread::home),
            at_promotion,
        };
        let control = start(parts)?;
        let plmn = config.amf.plmn;
        info!(%plmn, "ready");

        wait(&mut signals, || {
            if reload.swap(false, Ordering::AcqRel) {
                reload_now(&config, file.as_deref(), &console);
            }
            control.is_alive()
        });
        let died = !control.is_alive();
        info!("whimbrel stops");
        stop(control, &mut signals);
        drop(api);
        match console.components(|c| c.overall()) {
            _ if died => {
                std::mem::forget(mark); // the next start sends gNBs what this one cannot
                Err("the control thread has ended: another CTA has taken over, or a fault of the program, which is above in the log, has ended it"
                    .into())
            }
            Condition::Down => Err(degraded(&console)),
            Condition::Up | Condition::Limited => Ok(()),
        }
    }
}

/// How long a CTA of a unit that hands over may keep the sockets that its successor opens.
const RELEASED_WITHIN: Duration = Duration::from_secs(3);

/// The parts that only the primary CTA of a unit serves: the SMF's N4, the API, and N2 if the CTAs have one endpoint.
fn primary_of_unit(host: SharedHost, shared: Arc<HandlerContext>) -> Opening {
    Box::new(move |parts: &mut Parts| {
        let config = parts.config.clone();
        parts.smf_n4 = core::open_smf_n4(&config)?;
        if host.shares_n2 {
            open_shared_n2(parts)?;
        }
        if let Some(listener) = descriptors::take(descriptors::API) {
            // A manager of a release without this socket opens it after its own upgrade, which may be later than this.
            let local = || descriptors::take(descriptors::API_SOCKET).map(UnixListener::from);
            let api = whimbrel_api::start_on(listener.into(), local, config.api.address, shared)?;
            info!(address = %api.address, "this CTA serves the API");
            std::mem::forget(api); // it ends with the process
        }
        Ok(())
    })
}

/// Opens N2 with the associations of the primary before, where the SCTP implementation permits that. Errors: a sentence.
fn open_shared_n2(parts: &mut Parts) -> Result<(), String> {
    let (config, console) = (parts.config.clone(), parts.console.clone());
    // The kernel's associations end with their process.
    let inherited = match config.n2.sctp {
        SctpChoice::Kernel => Err("`n2.sctp` is kernel".into()),
        _ => core::inherit_n2(&config, &mut parts.entropy),
    };
    match inherited {
        Ok(Successor { transport, refused }) => {
            for (slot, defect) in refused {
                warn!(slot, "an association of a gNB is not continued, and the gNB connects again: {defect}");
            }
            show_n2(&config, &console, &transport);
            parts.n2 = Some(transport);
        }
        Err(sentence) => {
            warn!("gNBs connect again when a CTA of this unit dies: {sentence}");
            parts.n2 = retried(|| n2(&config, &console, &mut parts.entropy))?;
            let own = config.deployment.unit_function().ok_or("this process is in no unit")?;
            // gNBs learn at once that their association with the former CTA has ended.
            let (mark, left) = RunMark::set(&own.directory.associations())
                .map_err(|e| format!("the associations of gNBs cannot be written down: {e}"))?;
            for former in left.iter().flatten() {
                parts.n2.iter_mut().for_each(|n2| n2.abort_former(former));
            }
            parts.remembered_in = Some(mark.file().to_path_buf());
            std::mem::forget(mark); // it is for the next primary
        }
    }
    Ok(())
}

/// Retries to open what the CTA that hands over may not have closed yet.
fn retried<T>(mut open: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let until = std::time::Instant::now() + RELEASED_WITHIN;
    loop {
        match open() {
            Err(_) if std::time::Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            outcome => return outcome,
        }
    }
}

/// SIGHUP: reloads the configuration.
fn reload_now(running: &Config, file: Option<&std::path::Path>, console: &Console) {
    match config::reload(running, file) {
        Ok(config::ReloadedConfig { config, kept }) => {
            if !kept.is_empty() {
                warn!("these wait for the next start: {}", kept.join(", "));
            }
            if let Err(e) = console.commands.send(ConsoleCommand::Reconfigure(Box::new(config))) {
                error!("the new configuration is not in force: {e}");
            }
        }
        Err(sentence) => error!("the new configuration is not in force: {sentence}"),
    }
}

/// The parts that do not serve, one sentence each.
fn degraded(console: &Console) -> String {
    let sentences: Vec<String> = console.components(|c| {
        c.all()
            .filter(|c| c.condition == Condition::Down)
            .map(|c| format!("{}: {}", c.name, c.detail))
            .collect()
    });
    sentences.join("\n")
}

/// Opens N2 in the way that the host has. Errors that a change of the configuration would mend end the start; what the host
/// lacks is reported.
fn n2(config: &Config, console: &Console, entropy: &mut SystemEntropy) -> Result<Option<Transport>, String> {
    match core::open_n2(config, entropy) {
        Ok(transport) => {
            show_n2(config, console, &transport);
            Ok(Some(transport))
        }
        Err(e) if is_configured_wrong(&e) => Err(wrong(config, &e)),
        Err(e) => {
            let sentence = format!("no gNB can connect: {e}");
            error!("N2: {sentence}");
            console.components(|c| c.set("n2", Condition::Down, sentence));
            Ok(None)
        }
    }
}

/// Logs and reports how N2 is opened.
fn show_n2(config: &Config, console: &Console, transport: &Transport) {
    let report = transport.report();
    let addresses: Vec<String> = config.n2.addresses.iter().map(ToString::to_string).collect();
    let place = format!("SCTP ({}) on {} port {}", report.chosen, addresses.join(", "), config.n2.port);
    info!("N2: {place}");
    for obstacle in &report.obstacles {
        info!("{obstacle}");
    }
    report.limits.iter().for_each(|limit| warn!("{limit}"));
    // UDP was not configured: it is the fallback, which gNBs do not speak.
    let fell_back = report.chosen == Mode::Udp && config.n2.sctp == config::SctpChoice::Auto;
    let limited = fell_back || !report.limits.is_empty();
    let reasons = report.obstacles.iter().map(ToString::to_string).filter(|_| fell_back);
    let parts: Vec<String> = std::iter::once(place).chain(reasons).chain(report.limits.clone()).collect();
    let condition = if limited { Condition::Limited } else { Condition::Up };
    console.components(|c| {
        c.set("n2", condition, parts.iter().map(|t| t.trim_end_matches('.')).collect::<Vec<_>>().join("; "))
    });
}

/// The replica of the UPF is the UPF. Errors: one sentence.
fn take_over(config: &Config, console: &Console, replica: ReadyReplica) -> Result<LocalUpf, String> {
    let given = descriptors::take(descriptors::UPF_N4);
    let n4 = core::open_n4(config, given).map_err(|(at, e)| cannot_listen("n4.listen", "UDP", at, &e))?;
    let upf = replica.take_over(config, n4)?;
    show_user_plane(config, console, &upf);
    Ok(upf)
}

/// Logs and reports how N3 and N6 are connected.
fn show_user_plane(config: &Config, console: &Console, upf: &LocalUpf) {
    let at = format!("GTP-U on {} port {}, by {}", config.n3.address, config.n3.port, upf.n3_io());
    info!("N3: {at}");
    upf.host_changes().iter().for_each(|change| info!("N6: {change}"));
    let notices = upf.notices();
    notices.iter().for_each(|notice| warn!("N6: {notice}"));
    let condition = if notices.is_empty() { Condition::Up } else { Condition::Limited };
    let detail = if notices.is_empty() { upf.host_changes().join("; ") } else { notices.join("; ") };
    console.components(|c| c.set("n3", Condition::Up, at));
    console.components(|c| c.set("n6", condition, detail));
}

/// Starts the user plane. Errors that a change of the configuration would mend end the start; what the host lacks or
/// forbids is reported.
fn user_plane(
    config: &Config,
    console: &Console,
    entropy: &mut SystemEntropy,
    inherited: InheritedUpfState,
) -> Result<Option<LocalUpf>, String> {
    let n4 = match &inherited.logger {
        Some(_) => None, // the packet logger has it
        None => core::open_n4(config, descriptors::take(descriptors::UPF_N4))
            .map_err(|(at, e)| cannot_listen("n4.listen", "UDP", at, &e))?,
    };
    if let Some(n4) = &n4 {
        descriptors::keep(descriptors::UPF_N4, n4.as_fd());
    }
    if let Some(at) = config.n4.listen.filter(|_| n4.is_some()) {
        info!("N4: PFCP for other SMFs on {at}");
    }
    let fresh = u64::from_ne_bytes(entropy.octets());
    let seed = core::kept_seed(config, fresh);
    match LocalUpf::start(config, seed, n4, inherited) {
        Ok(upf) => {
            show_user_plane(config, console, &upf);
            Ok(Some(upf))
        }
        Err(StartError::Bind { address, error }) => Err(cannot_listen("n3.address", "UDP", address, &error)),
        Err(StartError::AfXdp(obstacle)) => Err(format!(
            "AF_XDP cannot be had: {obstacle}. `n3.io` and `n6_interface` ask for it: leave them out"
        )),
        Err(e @ (StartError::Config(_) | StartError::Devices { .. } | StartError::Pool(_))) => {
            Err(e.to_string())
        }
        Err(
            e @ (StartError::Tun { .. }
            | StartError::Link { .. }
            | StartError::Frames { .. }
            | StartError::HostAddresses(_)
            | StartError::System(_)),
        ) => {
            error!("N6: {e}");
            console.components(|c| c.set("n6", Condition::Down, e.to_string()));
            Ok(None)
        }
    }
}

fn is_configured_wrong(e: &OpenError) -> bool {
    use rustix::io::Errno;
    let wrong = [Errno::ADDRINUSE, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    e.obstacles.iter().any(|o| o.errno.is_some_and(|n| wrong.contains(&n)))
}

fn wrong(config: &Config, e: &OpenError) -> String {
    let address = config.n2.addresses.first().copied().unwrap_or(std::net::Ipv4Addr::LOCALHOST.into());
    let of = |o: &whimbrel_sctp_io::Obstacle| {
        let e = std::io::Error::from_raw_os_error(o.errno?);
        Some(match o.mode {
            Mode::Udp => {
                let at = std::net::SocketAddr::new(address, config.n2.udp_port);
                cannot_listen("n2.udp_port", "UDP", at, &e)
            }
            _ if e.kind() == std::io::ErrorKind::AddrNotAvailable => {
                let at = std::net::SocketAddr::new(address, config.n2.port);
                cannot_listen("n2.addresses", "SCTP", at, &e)
            }
            _ => o.to_string(),
        })
    };
    let decisive = e
        .obstacles
        .iter()
        .find_map(|o| is_configured_wrong(&OpenError { obstacles: vec![o.clone()] }).then(|| of(o)));
    decisive.flatten().unwrap_or_else(|| e.to_string())
}

/// How long the control thread has to end once it waits for no peer any more.
const ENDS_AT_ONCE_WITHIN: Duration = Duration::from_secs(1);

/// Stops the control thread in order. After a second signal it waits for no peer, and if it does not end, the program is ended.
fn stop(control: ControlThread, signals: &mut UnixStream) {
    control.ask_to_stop();
    let mut octet = [0];
    let mut ends_by: Option<std::time::Instant> = None;
    // On failure the polling interval stays as it was.
    let _ = signals.set_read_timeout(Some(Duration::from_millis(5)));
    while control.is_alive() {
        if signals.read(&mut octet).is_ok_and(|octets| octets > 0) && ends_by.is_none() {
            warn!("a second signal came: whimbrel ends without waiting for anybody");
            control.ask_to_stop_at_once();
            ends_by = Some(std::time::Instant::now() + ENDS_AT_ONCE_WITHIN);
        }
        if ends_by.is_some_and(|by| by < std::time::Instant::now()) {
            error!(
                "the control thread does not end: the program does, and leaves what it changed on this host"
            );
            std::process::exit(1);
        }
    }
}
