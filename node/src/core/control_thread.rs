//! The control thread: its start, its roles one after the other, and how it is stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::error;
use whimbrel_resilience::cta_replica::CtaReplica;
use whimbrel_sctp_io::Transport;
use whimbrel_store::Store;

use super::control_loop::{ControlLoop, Serves};
use super::core_time::CoreTime;
use super::replica;
use super::smf_n4::SmfN4;
use super::subscribers::StoredSubscribers;
use super::upf::LocalUpf;
use crate::cluster::{PairReplica, Pool};
use crate::config::Config;
use crate::entropy::SystemEntropy;
use crate::observation::Console;
use crate::sbfd::ReflectorThread;

/// How long to look for the next message before blocking: a wake-up costs 30 µs, ten times as much as a message.
pub(super) const SPIN: Duration = Duration::from_micros(50);

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

    /// Whether the thread still runs; it ends by itself only in a panic.
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
    /// What a CTA of a unit opens when it becomes the primary, because the primary before it had it.
    pub at_promotion: Option<Opening>,
}

/// Opens what only the primary of a unit has. Errors: one sentence.
pub type Opening = Box<dyn FnOnce(&mut Parts) -> Result<(), String> + Send>;

/// How UEs are served (docs/cluster.md).
pub enum Deployment {
    /// Not here: this process has a UPF for external SMFs alone.
    UpfOnly,
    /// In this process.
    Single,
    /// By CPFs that are processes of their own.
    Region(Box<Pool>),
    /// The same, with two CTAs: each begins as the replica, and etcd makes one the primary.
    Pair(Box<PairReplica>),
}

impl Deployment {
    /// Where CPFs and the other CTA connect to.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Self::UpfOnly | Self::Single => None,
            Self::Region(pool) => pool.address(),
            Self::Pair(replica) => replica.address(),
        }
    }
}

/// Starts the control thread. Errors: one sentence.
pub fn start(parts: Parts, deployment: Deployment) -> Result<ControlThread, String> {
    let console = parts.console.clone();
    let stop = Arc::new(StopRequest::default());
    let stopping = stop.clone();
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    // UEs' procedures are created on the thread that runs them: their futures never leave it.
    let serve = move || {
        let serves = match deployment {
            Deployment::Pair(replica) => {
                let _ = ready.send(Ok(()));
                return serve_as_pair(parts, replica, &stopping);
            }
            Deployment::UpfOnly => Serves::UpfOnly,
            Deployment::Single => Serves::Single,
            Deployment::Region(pool) => Serves::Region(pool),
        };
        match ControlLoop::new(parts, serves) {
            Ok(control_loop) => {
                let _ = ready.send(Ok(()));
                // No other CTA can replace this one, so the loop ends only because it was asked to.
                let _ = control_loop.run(&stopping);
            }
            Err(sentence) => {
                let _ = ready.send(Err(sentence));
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("control".into())
        .spawn(serve)
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
        let serves = Serves::Pair(Box::new(takeover));
        match ControlLoop::new(ready, serves).and_then(|control_loop| control_loop.run(stop)) {
            Ok(Some(next)) => (parts, replica) = next,
            Ok(None) => return,
            Err(sentence) => return error!("this CTA stops: {sentence}"),
        }
    }
}
