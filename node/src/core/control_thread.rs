//! The control thread: its start, its roles one after the other, and how it is stopped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::{error, info};
use whimbrel_resilience::cta_replica::CtaReplica;
use whimbrel_sctp_io::Transport;
use whimbrel_store::Store;

use super::control_loop::ControlLoop;
use super::core_time::CoreTime;
use super::home_link::HomeLink;
use super::replica;
use super::smf_n4::SmfN4;
use super::subscribers::StoredSubscribers;
use super::upf::LocalUpf;
use crate::cluster::{CpfPool, PairReplica};
use crate::config::Config;
use crate::entropy::SystemEntropy;
use crate::observation::Console;
use crate::sbfd::ReflectorThread;

/// How long to look for the next message before blocking: a wake-up costs 30 µs, ten times as much as a message.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// Why a CTA has no replica.
pub(super) const NOT_PAIRED: &str = "`cluster.etcd` is not configured";

/// The CTA with what the program gives it.
pub(super) type Cta = whimbrel_resilience::Cta<StoredSubscribers, SystemEntropy, CoreTime>;
/// The CTA while it is the replica.
pub(super) type ReplicaCta = CtaReplica<StoredSubscribers, SystemEntropy, CoreTime>;

/// Whether the control thread is to stop, and whether without waiting for its peers.
#[derive(Default)]
pub(super) struct StopRequest {
    asked: AtomicBool,
    at_once: AtomicBool,
}

impl StopRequest {
    /// Whether the thread is to end.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Whether it is to end without waiting for gNBs, UPFs, SMFs or the other CTA.
    pub(super) fn is_at_once(&self) -> bool {
        self.at_once.load(Ordering::Acquire)
    }
}

/// The running thread. Dropped, it ends in order: associations are shut down.
pub struct ControlThread {
    stop: Arc<StopRequest>,
    console: Arc<Console>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.ask_to_stop();
        if self.thread.take().is_some_and(|t| t.join().is_err()) {
            error!("the control thread ended in a panic");
        }
    }
}

impl ControlThread {
    /// Asks the thread to end in order; it has ended when [`Self::is_alive`] returns false.
    pub fn ask_to_stop(&self) {
        self.stop.asked.store(true, Ordering::Release);
        self.console.commands.wake();
    }

    /// Asks the thread to end without waiting for its peers: gNBs get ABORT.
    pub fn ask_to_stop_at_once(&self) {
        self.stop.at_once.store(true, Ordering::Release);
        self.ask_to_stop();
    }

    /// The thread still runs: by itself it ends in a panic, or when another CTA has taken over.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }
}

/// What the control thread is started with, in each deployment.
pub struct Parts {
    pub config: Arc<Config>,
    pub console: Arc<Console>,
    pub store: Store,
    pub entropy: SystemEntropy,
    /// N2; `None` where the host has no way for SCTP: N4 and the console are served all the same.
    pub n2: Option<Transport>,
    /// The file that keeps the SCTP associations for the next start, should this program be killed.
    pub remembered_in: Option<PathBuf>,
    /// The UPF; `None` where the host has no way for packets, so that no session can be established with it.
    pub upf: Option<LocalUpf>,
    /// N4 with external UPFs, if any are configured.
    pub smf_n4: Option<SmfN4>,
    /// Answers S-BFD probes to this host.
    pub reflector: Option<ReflectorThread>,
    pub capture: Option<PathBuf>,
    /// UEs that are added like those that register, for a demonstration.
    pub added_ues: u32,
    /// The exchange with other homes of the same subscribers, if there are any.
    pub home: Option<Arc<HomeLink>>,
    /// What a CTA of a unit opens when it becomes the primary, because the primary before it had it.
    pub at_promotion: Option<Opening>,
}

/// Opens what only the primary of a unit has. Errors: one sentence.
pub type Opening = Box<dyn FnOnce(&mut Parts) -> Result<(), String> + Send>;

/// Starts the control thread of a core in one process. Errors: one sentence.
pub fn start_single(parts: Parts) -> Result<ControlThread, String> {
    start(parts, ControlLoop::single)
}

/// Starts the control thread of a UPF without an SMF. Errors: one sentence.
pub fn start_upf(parts: Parts) -> Result<ControlThread, String> {
    start(parts, ControlLoop::of_upf)
}

/// Starts the control thread of a CTA, to which CPFs connect. Errors: one sentence.
pub fn start_cluster_cta(mut parts: Parts) -> Result<ControlThread, String> {
    let control = Arc::new(parts.config.control());
    let (cluster, console) = (&parts.config.cluster, parts.console.clone());
    let pool = CpfPool::open(cluster, control, &mut parts.entropy, console)?;
    log_address(pool.address());
    start(parts, move |parts| ControlLoop::of_cta(parts, pool))
}

/// Starts the control thread of one of two CTAs: each begins as the replica, and etcd, or the manager of a
/// unit, makes one the primary. Errors: one sentence.
pub fn start_paired_cta(parts: Parts) -> Result<ControlThread, String> {
    let config = &parts.config;
    let pair = config.cluster.pair.as_ref().ok_or(NOT_PAIRED)?;
    // If both CTAs have the same endpoint, gNBs have no second one to connect to.
    let shares_n2 = pair.host.is_some_and(|host| host.shares_n2);
    let addresses = if shares_n2 { Vec::new() } else { config.n2.addresses.clone() };
    let endpoints = (addresses, config.n4.node_id);
    let replica = PairReplica::open(pair, &config.cluster, endpoints, None, parts.console.clone())?;
    log_address(replica.address());
    let replica = Box::new(replica);
    spawn(parts, |parts, stop, ready| {
        let _ = ready.send(Ok(()));
        serve_as_pair(parts, replica, stop);
    })
}

/// Says where CPFs and the other CTA connect to.
fn log_address(at: Option<SocketAddr>) {
    if let Some(at) = at {
        info!("CPFs connect to {at}");
    }
}

/// Starts the thread with the loop that `make` makes there. Errors: those of `make`, and that there is no
/// thread, in one sentence.
fn start(
    parts: Parts,
    make: impl FnOnce(Parts) -> Result<ControlLoop, String> + Send + 'static,
) -> Result<ControlThread, String> {
    spawn(parts, |parts, stop, ready| match make(parts) {
        Ok(control_loop) => {
            let _ = ready.send(Ok(()));
            // No other CTA can replace this one, so the loop ends only because it was asked to.
            let _ = control_loop.run(stop);
        }
        Err(sentence) => {
            let _ = ready.send(Err(sentence));
        }
    })
}

/// Runs `serve` on the control thread, and waits for what it reports by its sender. UEs' procedures are
/// created on the thread that runs them: their futures never leave it. Errors: one sentence.
fn spawn(
    parts: Parts,
    serve: impl FnOnce(Parts, &StopRequest, &SyncSender<Result<(), String>>) + Send + 'static,
) -> Result<ControlThread, String> {
    let console = parts.console.clone();
    let stop = Arc::new(StopRequest::default());
    let stopping = stop.clone();
    let (ready, started) = sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(move || serve(parts, &stopping, &ready))
        .map_err(|e| format!("the control thread cannot be started: {e}"))?;
    let control = ControlThread { stop, console, thread: Some(thread) };
    match started.recv() {
        Ok(outcome) => outcome.map(|()| control),
        Err(_) => Err("the control thread ended in a panic at its start".into()),
    }
}

/// A CTA of a pair is the replica until it takes over, and again after the other CTA has taken over.
fn serve_as_pair(mut parts: Parts, mut replica: Box<PairReplica>, stop: &StopRequest) {
    while let Some((mut ready, takeover)) = replica::run_as_replica(parts, *replica, stop) {
        if let Some(open) = ready.at_promotion.take()
            && let Err(sentence) = open(&mut ready)
        {
            return error!("this CTA cannot serve: {sentence}");
        }
        match ControlLoop::of_primary_cta(ready, takeover).and_then(|control_loop| control_loop.run(stop)) {
            Ok(Some(next)) => (parts, replica) = next,
            Ok(None) => return,
            Err(sentence) => return error!("this CTA stops: {sentence}"),
        }
    }
}
