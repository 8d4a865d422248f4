//! The thread that runs a process's membership.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{Receiver, Sender, WeakSender, channel};
use tokio::task::JoinHandle;
use whimbrel_ids::Instant;
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::membership::{
    EtcdFailure, EtcdRequest, Event, Input, Membership, MembershipCommand, MembershipSettings,
    MembershipView, Outbox,
};

use super::access::EtcdAccess;
use super::gateway::Gateway;
use super::json;
use super::local::LocalAccess;

/// Inputs that may wait: an answer, a few changes of a watch, commands of an operator.
const INPUTS_MAX: usize = 256;

/// What the process gets of each event.
pub struct MembershipUpdate<'a> {
    /// The change of the membership.
    pub event: Event,
    /// The cluster as it is known now.
    pub view: &'a MembershipView,
    /// The process's incarnation; `None` before it was listed for the first time.
    pub incarnation: Option<Incarnation>,
}

/// A process's membership, on a thread of its own. Dropped, it ends at once, and its lease expires later: to stop in order, give
/// [`MembershipCommand::Leave`] and wait for [`Event::Left`].
pub struct Agent {
    inputs: Sender<Input>,
}

impl Agent {
    /// Starts it. `on_update` is called on its thread for each event, and must not block.
    ///
    /// Errors: one sentence, if an endpoint or a file is invalid, or the thread cannot be started.
    pub fn start(
        settings: MembershipSettings,
        access: &EtcdAccess,
        on_update: impl FnMut(MembershipUpdate<'_>) + Send + 'static,
    ) -> Result<Self, String> {
        let way = match &access.local {
            Some(local) => RequestRoute::Manager(local.clone()),
            None => RequestRoute::Etcd(Arc::new(Gateway::new(access.clone())?)),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let (inputs, incoming) = channel(INPUTS_MAX);
        let carrier = Carrier { way, at: 0, watch: None, inputs: inputs.downgrade() };
        std::thread::Builder::new()
            .name("etcd".into())
            .spawn(move || runtime.block_on(run(Membership::new(settings), carrier, incoming, on_update)))
            .map_err(|e| e.to_string())?;
        Ok(Self { inputs })
    }

    /// Gives a command. Returns whether it was accepted: a full queue, and an agent whose thread has ended, accept none.
    pub fn command(&self, command: MembershipCommand) -> bool {
        self.inputs.try_send(Input::Command(command)).is_ok()
    }
}

async fn run(
    mut membership: Membership,
    mut carrier: Carrier,
    mut incoming: Receiver<Input>,
    mut on_update: impl FnMut(MembershipUpdate<'_>),
) {
    let begun = (std::time::Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let now = || Instant((begun.1 + begun.0.elapsed()).as_micros() as u64);
    let mut input = Input::Tick;
    loop {
        if let Input::Answered(_, Err(EtcdFailure::Unreachable(_))) = input {
            carrier.next_endpoint();
        }
        let mut out = Outbox::default();
        membership.handle(now(), input, &mut out);
        for (id, request) in out.requests {
            carrier.carry(id, request);
        }
        for event in out.events {
            on_update(MembershipUpdate {
                event,
                view: membership.view(),
                incarnation: membership.incarnation(),
            });
        }
        let wait = membership.next_deadline().map_or(Duration::from_secs(3600), |at| at.since(now()));
        input = match tokio::time::timeout(wait, incoming.recv()).await {
            Ok(Some(input)) => input,
            Ok(None) => return, // the agent was dropped
            Err(_) => Input::Tick,
        };
    }
}

/// Where requests go.
enum RequestRoute {
    Etcd(Arc<Gateway>),
    Manager(LocalAccess),
}

/// Sends requests to the present endpoint.
struct Carrier {
    way: RequestRoute,
    at: usize,
    watch: Option<JoinHandle<()>>,
    inputs: WeakSender<Input>,
}

impl Carrier {
    fn next_endpoint(&mut self) {
        self.at = self.at.wrapping_add(1);
    }

    fn carry(&mut self, id: u64, request: EtcdRequest) {
        match &self.way {
            RequestRoute::Etcd(gateway) => self.carry_to_etcd(gateway.clone(), id, request),
            RequestRoute::Manager(local) => self.carry_to_manager(local.clone(), id, request),
        }
    }

    fn carry_to_manager(&mut self, local: LocalAccess, id: u64, request: EtcdRequest) {
        let inputs = self.inputs.clone();
        if let EtcdRequest::Watch { .. } = request {
            return self.replace_watch(tokio::spawn(async move {
                let on_changes = |changes| {
                    let inputs = inputs.upgrade();
                    inputs.is_some_and(|inputs| inputs.try_send(Input::Watched(id, changes)).is_ok())
                };
                local.watch(request, on_changes).await;
                deliver(&inputs, Input::WatchEnded(id)).await;
            }));
        }
        tokio::spawn(async move {
            let answer = local.ask(request).await;
            deliver(&inputs, Input::Answered(id, answer)).await;
        });
    }

    fn replace_watch(&mut self, watch: JoinHandle<()>) {
        if let Some(earlier) = self.watch.replace(watch) {
            earlier.abort();
        }
    }

    fn carry_to_etcd(&mut self, gateway: Arc<Gateway>, id: u64, request: EtcdRequest) {
        let at = self.at;
        let inputs = self.inputs.clone();
        let (path, body) = json::request(&request);
        if let EtcdRequest::Watch { .. } = request {
            return self.replace_watch(tokio::spawn(async move {
                if let Ok(opened) = gateway.listen(at, path, &body).await {
                    let on_line = |line: &[u8]| match json::watched(line) {
                        // A full queue ends the watch: everything is read again.
                        Some(changes) if !changes.is_empty() => inputs
                            .upgrade()
                            .is_some_and(|inputs| inputs.try_send(Input::Watched(id, changes)).is_ok()),
                        changes => changes.is_some(),
                    };
                    opened.lines(on_line).await;
                }
                deliver(&inputs, Input::WatchEnded(id)).await;
            }));
        }
        tokio::spawn(async move {
            let answer = match gateway.ask(at, path, &body).await {
                Ok((ok, body)) => json::answer(&request, ok, &body),
                Err(why) => Err(EtcdFailure::Unreachable(why)),
            };
            deliver(&inputs, Input::Answered(id, answer)).await;
        });
    }
}

/// Delivers an input to the membership, if its agent still exists: requests under way do not keep it alive.
async fn deliver(inputs: &WeakSender<Input>, input: Input) {
    if let Some(inputs) = inputs.upgrade() {
        let _ = inputs.send(input).await;
    }
}
