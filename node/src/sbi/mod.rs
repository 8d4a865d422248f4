//! The core's edge towards network functions of other vendors (TS 23.501 §7.2): a thread of its own has the HTTP/2 connections. What the
//! machines of UEs ask leaves here, and answers and callbacks come back as inputs of the CTA.

#![allow(clippy::result_large_err, reason = "a refusal is a response, and is made once for a request")]

mod amf;
mod callbacks;
mod charging;
#[cfg(test)]
mod charging_tests;
pub(crate) mod chf;
#[cfg(test)]
mod chf_tests;
mod identity;
mod nrf;
mod offered;
mod peer;
mod policy;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod recorded_tests;
mod registration;
mod reload;
#[cfg(test)]
mod reload_tests;
#[cfg(test)]
mod scripted;
pub(crate) mod smf;
#[cfg(test)]
mod smf_tests;
mod subscription;
#[cfg(test)]
mod token_tests;
mod udm;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::sync::{Mutex, mpsc as queue, oneshot};
use tracing::{info, warn};
use whimbrel_charging::{Notification, NotificationType};
use whimbrel_control::charging::{ChargingAnswer, RatingGroup};
use whimbrel_control::remote_amf::{
    SmContextAnswer, SmContextExchange, SmContextOperation, SmContextRequest, TransferAnswer, TransferOutcome,
};
use whimbrel_control::sm_contexts::{SmfAnswer, SmfOrder};
use whimbrel_control::sm_policy::{PolicyAnswer, PolicyNotification};
use whimbrel_control::udm::{NfType, ServiceFault, UdmAnswer, UdmError, UdmRequest};
use whimbrel_control::{Event, OutputId, Procedure, UeEvent, UeId};
use whimbrel_ids::{Guami, PduSessionId, Supi};
use whimbrel_resilience::{AmfQuery, ChargingQuery, PolicyQuery, SmfQuery, UdmQuery};
use whimbrel_sbi::nrf::NrfClient;
use whimbrel_sbi::{ReceivedRequest, SbiResponse, SbiServer, ServerSettings};
use whimbrel_sbi_types::common::NfInstanceId;

use self::amf::RemoteAmfs;
use self::charging::Charging;
use self::chf::ChfThread;
use self::nrf::NrfService;
pub use self::offered::SubscriptionForm;
use self::offered::pdu_session::SmContextInputs;
use self::offered::{CallbackPolicy, OfferedServices, ServiceAuthorization};
use self::peer::{Peer, PeerSource};
use self::policy::PolicyControl;
use self::reload::{SbiFileWatch, SbiTlsConfig};
use self::smf::RemoteSmContexts;
pub use self::smf::amf_services::OrderOutcome;
use self::udm::{Consumer, Udm};
use crate::config::Config;
use crate::config::sbi::{ChfSource, OfferedService, PcfSource, Sbi, SmfSource, UdmSource};
use crate::observation::{Console, Metric, MetricSample};

/// Requests under way: two seconds of the busiest core's registrations. Further ones are answered with [`ServiceFault::Busy`].
const UNDER_WAY_MAX: usize = 4_096;

/// A later input of the CTA.
pub enum SbiInput {
    /// The UDM's answer to a request, with the request.
    Answer(UeId, OutputId, Box<(UdmRequest, UdmAnswer)>),
    /// The CHF's answer to a request.
    Charged(UeId, OutputId, Box<ChargingAnswer>),
    /// The CHF orders a session's usage to be reported, or with `abort` its charging to end.
    ChargingNotified {
        /// The subscriber of the session.
        supi: Supi,
        /// Identity of the session.
        psi: PduSessionId,
        /// Charging of the session ends.
        abort: bool,
    },
    /// The PCF's answer to a request.
    Decided(UeId, OutputId, Box<PolicyAnswer>),
    /// The PCF has an order for a session.
    PolicyNotified {
        /// The subscriber of the session.
        supi: Supi,
        /// Identity of the session.
        psi: PduSessionId,
        /// New policies, or the end of the session.
        notification: Box<PolicyNotification>,
        /// Gets whether the subscriber is here, once the order is taken.
        taken: oneshot::Sender<bool>,
    },
    /// The answer of another vendor's SMF to a request about a session.
    SmContext(UeId, OutputId, PduSessionId, Box<SmfAnswer>),
    /// Another vendor's SMF has an order for a session.
    SmfOrdered {
        /// The subscriber of the session.
        supi: Supi,
        /// Identity of the session.
        psi: PduSessionId,
        /// Messages for UE and gNB, or the end of the session.
        order: Box<SmfOrder>,
        /// Gets what becomes of the order.
        taken: oneshot::Sender<OrderOutcome>,
    },
    /// An AMF of another vendor has a request about an SM context.
    SmContextRequested {
        /// Operation that it asks for.
        operation: SmContextOperation,
        /// Gets the answer.
        reply: oneshot::Sender<Box<SmContextAnswer>>,
    },
    /// The answer of such an AMF to a transfer.
    Transferred(UeId, TransferAnswer),
    /// The UDM has deregistered a subscriber from this AMF.
    Deregistered(Supi),
    /// The UDM has changed a subscription.
    SubscriptionChanged(Supi),
}

/// The remote network functions, as the control thread sees them.
pub struct NetworkFunctions {
    /// The charging function of this core.
    chf: Option<ChfThread>,
    /// Octets that requests for a quota ask it for; `None`: the SMF of this core asks another CHF, or none.
    embedded: Option<BTreeMap<RatingGroup, u64>>,
    sender: Option<queue::UnboundedSender<ThreadInput>>,
    inputs: mpsc::Receiver<SbiInput>,
    input: mpsc::Sender<SbiInput>,
    /// Answered without a request to the UDM.
    refused: Vec<SbiInput>,
    /// Requests of AMFs that are not answered yet.
    exchanges: BTreeMap<SmContextExchange, oneshot::Sender<Box<SmContextAnswer>>>,
    /// The number of the next one. Numbers of another run of this core lead nowhere.
    next_exchange: u64,
    /// Services are offered to others, or a PCF has associations for UEs.
    follows_ues: bool,
    console: Arc<Console>,
    counts: Arc<SbiFigures>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Input of the thread of the interfaces, from the control thread.
enum ThreadInput {
    Query(UdmQuery),
    Charging(ChargingQuery),
    Policy(PolicyQuery),
    SmContext(SmfQuery),
    Amf(Box<AmfQuery>),
    /// The answer to a request of an AMF.
    SmContextAnswered(oneshot::Sender<Box<SmContextAnswer>>, Box<SmContextAnswer>),
    /// The charging function of this core has an order for the consumer of a session.
    ChargingOrder(Notification),
    /// A subscriber has registered at the AMF of this core.
    RegisteredHere(Supi),
    /// A subscriber is not registered there any more.
    DeregisteredHere(Supi),
    /// Subscribers have changed in the store; all of them with `None`.
    SubscribersChanged(Option<Vec<Supi>>),
}

/// A request to another function.
enum RemoteQuery {
    Udm(UdmQuery),
    Charging(ChargingQuery),
    Policy(PolicyQuery),
    SmContext(SmfQuery),
}

/// Figures of the interfaces.
#[derive(Default)]
pub(super) struct SbiFigures {
    asked: AtomicU64,
    answered: AtomicU64,
    callbacks: AtomicU64,
    under_way: AtomicUsize,
    faults: std::sync::Mutex<BTreeMap<&'static str, u64>>,
}

impl NetworkFunctions {
    /// Starts what is configured; `None` if nothing is. Errors: one sentence.
    ///
    /// `form` gives the control plane's form of a subscription in the store.
    pub fn start(
        config: &Config,
        console: Arc<Console>,
        form: SubscriptionForm,
    ) -> Result<Option<Self>, String> {
        let has_chf = config.uses_own_chf() && !config.is_own_process(NfType::Chf);
        if config.sbi.is_none() && !has_chf {
            return Ok(None);
        }
        let counts = Arc::new(SbiFigures::default());
        let (input, inputs) = mpsc::channel();
        let (sender, queries) = queue::unbounded_channel();
        let chf = has_chf.then(|| {
            let (input, sender) = (input.clone(), sender.clone());
            let notified = console.clone();
            ChfThread::start(config, console.clone(), move |order| {
                pass_order(order, &input, &sender, &notified)
            })
        });
        let mut functions = Self {
            chf: chf.transpose()?,
            embedded: config.has_embedded_chf().then(|| config.requested_octets()),
            sender: None,
            inputs,
            input,
            refused: Vec::new(),
            exchanges: BTreeMap::new(),
            next_exchange: offered::random_number(),
            follows_ues: config
                .sbi
                .as_ref()
                .is_some_and(|sbi| !sbi.subscriber_services().is_empty() || sbi.pcf != PcfSource::Embedded),
            console,
            counts,
            thread: None,
        };
        if let Some(sbi) = &config.sbi {
            functions.serve(config, sbi, form, queries)?;
            functions.sender = Some(sender);
        }
        Ok(Some(functions))
    }

    /// Starts the thread of the interfaces to other functions.
    fn serve(
        &mut self,
        config: &Config,
        sbi: &Sbi,
        form: SubscriptionForm,
        queries: queue::UnboundedReceiver<ThreadInput>,
    ) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("the service-based interfaces cannot be served: {e}"))?;
        let consumer = consumer(config, sbi);
        let tls = SbiTlsConfig::new(sbi)?;
        let watch = SbiFileWatch::new(sbi, &consumer, tls.clone());
        let (console, counts, input) = (self.console.clone(), self.counts.clone(), self.input.clone());
        let mut edge = {
            let _entered = runtime.enter();
            SbiThread::new(config, sbi, consumer, &tls, console, counts, input, form)?
        };
        // Nothing else has it yet.
        let offered = edge.offered.as_mut().and_then(Arc::get_mut);
        let inputs = SmContextInputs::new(self.input.clone(), self.console.clone());
        if let Some(offered) = offered {
            offered.use_sm_contexts(inputs);
            if let Some(chf) = &self.chf {
                offered.use_chf(chf.handle().clone());
            }
        }
        let listener = std::net::TcpListener::bind(sbi.address)
            .map_err(|e| format!("`sbi.address`: {} cannot be listened on: {e}", sbi.address))?;
        let settings = peer::server_settings(&tls);
        let thread = std::thread::Builder::new()
            .name("sbi".into())
            .spawn(move || {
                runtime.block_on(edge.run(listener, settings, watch, queries));
                // A connection that hangs must not keep the core from stopping.
                runtime.shutdown_background();
            })
            .map_err(|e| format!("the thread of the service-based interfaces cannot start: {e}"))?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Passes a request on.
    pub fn ask(&mut self, query: UdmQuery) {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        if self.send(ThreadInput::Query(query.clone())) {
            return;
        }
        let UdmQuery { ue, to, request } = query;
        let answer = failed(&request, ServiceFault::Busy);
        self.refused.push(SbiInput::Answer(ue, to, Box::new((request, answer))));
        // The answer is taken in the next turn, which begins at once.
        self.console.commands.wake();
    }

    /// Passes a request to the CHF on.
    pub fn charge(&mut self, query: ChargingQuery) {
        let (ue, to) = (query.ue, query.to);
        if let (Some(chf), Some(requested)) = (&self.chf, &self.embedded) {
            let (input, console) = (self.input.clone(), self.console.clone());
            return chf::embedded::ask(chf.handle(), requested, query.request, move |answer| {
                if input.send(SbiInput::Charged(ue, to, Box::new(answer))).is_ok() {
                    console.commands.wake();
                }
            });
        }
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        if self.send(ThreadInput::Charging(query)) {
            return;
        }
        let answer = ChargingAnswer::Failed(ServiceFault::Busy);
        self.refused.push(SbiInput::Charged(ue, to, Box::new(answer)));
        self.console.commands.wake();
    }

    /// Passes a request to the PCF on.
    pub fn decide(&mut self, query: PolicyQuery) {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        let (ue, to) = (query.ue, query.to);
        if self.send(ThreadInput::Policy(query)) {
            return;
        }
        let answer = PolicyAnswer::Failed(ServiceFault::Busy);
        self.refused.push(SbiInput::Decided(ue, to, Box::new(answer)));
        self.console.commands.wake();
    }

    /// Passes a request to another vendor's SMF on.
    pub fn ask_smf(&mut self, query: SmfQuery) {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        let (ue, to, psi) = (query.ue, query.to, query.request.psi);
        if self.send(ThreadInput::SmContext(query)) {
            return;
        }
        let answer = SmfAnswer::Failed(ServiceFault::Busy);
        self.refused.push(SbiInput::SmContext(ue, to, psi, Box::new(answer)));
        self.console.commands.wake();
    }

    /// Numbers a request of an AMF, whose answer `reply` gets. `None` if too many wait.
    pub fn begin_exchange(
        &mut self,
        operation: SmContextOperation,
        reply: oneshot::Sender<Box<SmContextAnswer>>,
    ) -> Option<SmContextRequest> {
        if self.exchanges.len() >= UNDER_WAY_MAX {
            self.exchanges.retain(|_, reply| !reply.is_closed());
        }
        if self.exchanges.len() >= UNDER_WAY_MAX {
            return None;
        }
        self.next_exchange = self.next_exchange.wrapping_add(1);
        let exchange = SmContextExchange(self.next_exchange);
        self.exchanges.insert(exchange, reply);
        Some(SmContextRequest { exchange, operation })
    }

    /// Answers a request of an AMF. For one of another run of this core, or of a CTA before this one, no request waits.
    pub fn answer_exchange(&mut self, exchange: SmContextExchange, answer: Box<SmContextAnswer>) {
        if let (Some(reply), Some(sender)) = (self.exchanges.remove(&exchange), &self.sender) {
            // In the order of what is asked of AMFs. The thread ends after this.
            let _ = sender.send(ThreadInput::SmContextAnswered(reply, answer));
        }
    }

    /// Passes a request to an AMF on.
    pub fn transfer(&mut self, query: AmfQuery) {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        let (ue, psi) = (query.ue, query.request.psi);
        let transfers = query.request.is_transfer();
        if !self.send(ThreadInput::Amf(query.into())) && transfers {
            let outcome = TransferOutcome::Failed(ServiceFault::Busy);
            let answer = TransferAnswer { psi, set_up: true, outcome };
            self.refused.push(SbiInput::Transferred(ue, answer));
            self.console.commands.wake();
        }
    }

    /// Passes a request on if there is room for it.
    fn send(&self, input: ThreadInput) -> bool {
        let Some(sender) = &self.sender else { return false };
        if self.counts.under_way.load(Ordering::Relaxed) >= UNDER_WAY_MAX {
            return false;
        }
        self.counts.under_way.fetch_add(1, Ordering::Relaxed);
        sender.send(input).is_ok()
    }

    /// A UE has registered here: an AMF that uses the UDM of this core and had it before deletes it, and the PCF has an association for it as
    /// long as it is registered.
    pub fn event(&self, event: &UeEvent) {
        let (subject, input): (_, fn(Supi) -> ThreadInput) = match &event.event {
            Event::Completed { procedure: Procedure::Registration, subject, .. } => {
                (subject, ThreadInput::RegisteredHere)
            }
            Event::Completed {
                procedure: Procedure::DeregistrationByUe | Procedure::DeregistrationByNetwork,
                subject,
                ..
            }
            | Event::Deregistered { subject, .. } => (subject, ThreadInput::DeregisteredHere),
            _ => return,
        };
        if let Some(supi) = subject.supi {
            self.pass(input(supi));
        }
    }

    /// Subscribers have changed in the store; all of them with `None`.
    pub fn subscribers_changed(&self, subscribers: Option<&[Supi]>) {
        self.pass(ThreadInput::SubscribersChanged(subscribers.map(<[Supi]>::to_vec)));
    }

    fn pass(&self, input: ThreadInput) {
        if let Some(sender) = self.sender.as_ref().filter(|_| self.follows_ues) {
            // The thread ends after this.
            let _ = sender.send(input);
        }
    }

    /// The inputs since the last turn.
    pub fn turn(&mut self) -> Vec<SbiInput> {
        let mut inputs = std::mem::take(&mut self.refused);
        inputs.extend(self.inputs.try_iter());
        inputs
    }

    /// Samples for the endpoint /metrics.
    pub fn samples(&self) -> Vec<MetricSample> {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let mut samples = vec![
            one(Metric::SbiRequests, load(&self.counts.asked)),
            one(Metric::SbiAnswers, load(&self.counts.answered)),
            one(Metric::SbiCallbacks, load(&self.counts.callbacks)),
        ];
        let faults = self.counts.faults.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        samples.extend(faults.iter().map(|(reason, count)| MetricSample {
            metric: Metric::SbiFaults,
            label: Some((*reason).into()),
            value: *count,
        }));
        samples.extend(self.chf.iter().flat_map(ChfThread::samples));
        samples
    }
}

impl Drop for NetworkFunctions {
    fn drop(&mut self) {
        // The thread ends when no sender is left: that of the charging function is one.
        self.chf = None;
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Another vendor's SMF, and what its requests to the AMF are checked with.
struct RemoteSmf {
    contexts: RemoteSmContexts,
    authorization: ServiceAuthorization,
    callbacks: CallbackPolicy,
    /// The root of this core's services.
    root: String,
}

/// State of the thread of the interfaces.
struct SbiThread {
    udm: Option<Udm>,
    charging: Option<Charging>,
    policy: Option<PolicyControl>,
    smf: Option<RemoteSmf>,
    offered: Option<Arc<OfferedServices>>,
    nrf: Option<Arc<NrfService>>,
    /// This core's functions at the NRF.
    registered: Vec<NrfClient>,
    /// AMFs of other vendors, where the SMF is offered.
    amfs: Option<Arc<RemoteAmfs>>,
    input: mpsc::Sender<SbiInput>,
    console: Arc<Console>,
    counts: Arc<SbiFigures>,
}

impl SbiThread {
    #[allow(clippy::too_many_arguments, reason = "each is a part of the thread, made once")]
    fn new(
        config: &Config,
        sbi: &Sbi,
        consumer: Consumer,
        tls: &SbiTlsConfig,
        console: Arc<Console>,
        counts: Arc<SbiFigures>,
        input: mpsc::Sender<SbiInput>,
        form: SubscriptionForm,
    ) -> Result<Self, String> {
        let client = peer::client(tls);
        // Before what reads its public key.
        let nrf = sbi.offer.contains(&OfferedService::Nrf);
        let nrf = nrf
            .then(|| NrfService::new(config, sbi, &consumer, console.clone(), client.clone()).map(Arc::new));
        let nrf = nrf.transpose()?;
        let registered = registration::register(config, sbi, &consumer, &client)?;
        // Without an NRF the configuration is refused.
        let of_nrf = |target| {
            let uses_tokens = sbi.access_tokens;
            (!registered.is_empty()).then(|| PeerSource::Nrf { nrf: registered.clone(), target, uses_tokens })
        };
        let udm = match &sbi.udm {
            UdmSource::Embedded => None,
            UdmSource::At(root) => Some(PeerSource::At(root.clone())),
            UdmSource::Nrf => of_nrf(whimbrel_sbi_types::nnrf::NfType::Udm),
        };
        let chf = match &sbi.chf {
            ChfSource::Off | ChfSource::Embedded => None,
            ChfSource::At(root) => Some(PeerSource::At(root.clone())),
            ChfSource::Nrf => of_nrf(whimbrel_sbi_types::nnrf::NfType::Chf),
        };
        let pcf = match &sbi.pcf {
            PcfSource::Embedded => None,
            PcfSource::At(root) => Some(PeerSource::At(root.clone())),
            PcfSource::Nrf => of_nrf(whimbrel_sbi_types::nnrf::NfType::Pcf),
        };
        let smf = match &sbi.smf {
            SmfSource::Embedded => None,
            SmfSource::At(root) => Some(PeerSource::At(root.clone())),
            SmfSource::Nrf => of_nrf(whimbrel_sbi_types::nnrf::NfType::Smf),
        };
        let services = sbi.subscriber_services();
        let amfs = services.contains(&OfferedService::Smf).then(|| {
            let root = consumer.root.clone();
            let (within, counts) = (sbi.answer_within, counts.clone());
            RemoteAmfs::new(client.clone(), registered.clone(), sbi.access_tokens, within, root, counts)
        });
        let offered = (!services.is_empty()).then(|| {
            let store = crate::subscribers::open(&config.store)?;
            let own = CallbackPolicy::new(vec![sbi.address, config.api.address]);
            Ok::<_, String>(OfferedServices::new(
                services,
                config.amf.plmn,
                consumer.root.clone(),
                (ServiceAuthorization::new(sbi, &consumer)?, own),
                (store, form),
                (console.clone(), client.clone()),
                config.control().smf.data_networks,
            ))
        });
        let offered = offered.transpose()?.map(Arc::new);
        let peer = |nf, source| {
            Peer::new(nf, source, client.clone(), sbi.answer_within, console.clone(), counts.clone())
        };
        let charging = chf.map(|source| {
            let peer = peer(NfType::Chf, source);
            info!("sessions are charged at the CHF {}", peer.root_text());
            Charging::new(peer, consumer.clone(), sbi.address.ip(), config.requested_octets())
        });
        let policy = pcf.map(|source| {
            let peer = peer(NfType::Pcf, source);
            info!("sessions have the policies of the PCF {}", peer.root_text());
            PolicyControl::new(peer, consumer.clone())
        });
        let smf = smf.map(|source| {
            let peer = peer(NfType::Smf, source);
            info!("sessions have the SMF {}", peer.root_text());
            Ok::<_, String>(RemoteSmf {
                contexts: RemoteSmContexts::new(peer, client.clone(), consumer.clone(), sbi.answer_within),
                authorization: ServiceAuthorization::new(sbi, &consumer)?,
                callbacks: CallbackPolicy::new(vec![sbi.address, config.api.address]),
                root: consumer.root.clone(),
            })
        });
        let smf = smf.transpose()?;
        let udm = udm.map(|source| {
            let peer = peer(NfType::Udm, source);
            info!("subscribers are those of the UDM {}", peer.root_text());
            Udm::new(peer, consumer)
        });
        Ok(Self { udm, charging, policy, smf, offered, nrf, registered, amfs, input, console, counts })
    }

    /// Serves callbacks and requests until no sender is left.
    async fn run(
        self,
        listener: std::net::TcpListener,
        settings: ServerSettings,
        watch: SbiFileWatch,
        mut inputs: queue::UnboundedReceiver<ThreadInput>,
    ) {
        let edge = Arc::new(self);
        let served = edge.clone();
        let server = SbiServer::start(listener, settings, move |request| {
            let edge = served.clone();
            async move { edge.serve(&request).await }
        });
        if let Some(nrf) = &edge.nrf {
            tokio::spawn(nrf.clone().run());
        }
        tokio::spawn(watch.run(edge.offered.clone()));
        let _server = server.map_err(|e| warn!("other network functions cannot reach this core: {e}"));
        // The requests of one UE go one after the other: a UDM may want to know of the authentication before it registers the AMF. So do
        // those of one session to the CHF, and to the PCF.
        let mut lanes: BTreeMap<(NfType, UeId, Option<PduSessionId>), Arc<Mutex<()>>> = BTreeMap::new();
        let mut transfers: BTreeMap<(UeId, PduSessionId), Arc<Mutex<()>>> = BTreeMap::new();
        while let Some(input) = inputs.recv().await {
            if let ThreadInput::Amf(query) = input {
                if transfers.len() >= 2 * UNDER_WAY_MAX {
                    transfers.retain(|_, lane| Arc::strong_count(lane) > 1);
                }
                let lane = transfers.entry((query.ue, query.request.psi)).or_default().clone();
                let edge = edge.clone();
                tokio::spawn(async move {
                    let _turn = lane.lock().await;
                    edge.transfer(*query).await;
                });
                continue;
            }
            let (lane, query) = match (input, &edge.offered) {
                (ThreadInput::Query(query), _) => ((NfType::Udm, query.ue, None), RemoteQuery::Udm(query)),
                (ThreadInput::Charging(query), _) => {
                    ((NfType::Chf, query.ue, Some(query.request.psi)), RemoteQuery::Charging(query))
                }
                (ThreadInput::Policy(query), _) => {
                    ((NfType::Pcf, query.ue, Some(query.request.psi)), RemoteQuery::Policy(query))
                }
                (ThreadInput::SmContext(query), _) => {
                    ((NfType::Smf, query.ue, Some(query.request.psi)), RemoteQuery::SmContext(query))
                }
                (ThreadInput::SmContextAnswered(reply, answer), _) => {
                    // The request may have ended meanwhile.
                    let _ = reply.send(answer);
                    continue;
                }
                (ThreadInput::Amf(_), _) => continue,
                (ThreadInput::RegisteredHere(supi), offered) => {
                    offered.iter().for_each(|offered| offered.registered_here(supi));
                    edge.clone().tell_pcf(supi, true);
                    continue;
                }
                (ThreadInput::DeregisteredHere(supi), _) => {
                    edge.clone().tell_pcf(supi, false);
                    continue;
                }
                (ThreadInput::SubscribersChanged(subscribers), offered) => {
                    offered.iter().for_each(|offered| offered.changed(subscribers.as_deref()));
                    continue;
                }
                (ThreadInput::ChargingOrder(order), offered) => {
                    offered.iter().for_each(|offered| offered.order_charging(&order));
                    continue;
                }
            };
            if lanes.len() >= 2 * UNDER_WAY_MAX {
                lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
            }
            let lane = lanes.entry(lane).or_default().clone();
            let edge = edge.clone();
            tokio::spawn(async move {
                let _turn = lane.lock().await;
                match query {
                    RemoteQuery::Udm(query) => edge.answer(query).await,
                    RemoteQuery::Charging(query) => edge.charge(query).await,
                    RemoteQuery::Policy(query) => edge.decide(query).await,
                    RemoteQuery::SmContext(query) => edge.ask_smf(query).await,
                }
            });
        }
        registration::deregister(&edge.registered).await;
        if let Some(nrf) = &edge.nrf {
            nrf.save();
        }
    }

    /// The PCF has an AM policy association for a UE from its registration to its deregistration.
    fn tell_pcf(self: Arc<Self>, supi: Supi, registered: bool) {
        if self.policy.is_none() {
            return;
        }
        tokio::spawn(async move {
            match &self.policy {
                Some(policy) if registered => policy.registered(supi).await,
                Some(policy) => policy.deregistered(supi).await,
                None => {}
            }
        });
    }

    /// Answers a request of another function: to a service that is offered, or a callback.
    async fn serve(&self, request: &ReceivedRequest) -> SbiResponse {
        if let Some(nrf) = &self.nrf
            && let Some(response) = nrf.serve(request)
        {
            return response;
        }
        if let Some(offered) = &self.offered
            && let Some(response) = offered.serve(request).await
        {
            return response;
        }
        if let Some(response) = self.serve_smf(request).await {
            return response;
        }
        self.callback(request).await
    }

    async fn answer(&self, UdmQuery { ue, to, request }: UdmQuery) {
        let answer = match &self.udm {
            Some(udm) => udm.answer(&request).await,
            None => failed(&request, ServiceFault::NoInstance),
        };
        self.answered(SbiInput::Answer(ue, to, Box::new((request, answer))));
    }

    async fn charge(&self, ChargingQuery { ue, to, request }: ChargingQuery) {
        let answer = match &self.charging {
            Some(charging) => charging.answer(&request).await,
            None => ChargingAnswer::Failed(ServiceFault::NoInstance),
        };
        self.answered(SbiInput::Charged(ue, to, Box::new(answer)));
    }

    async fn decide(&self, PolicyQuery { ue, to, request }: PolicyQuery) {
        let answer = match &self.policy {
            Some(policy) => policy.answer(&request).await,
            None => PolicyAnswer::Failed(ServiceFault::NoInstance),
        };
        self.answered(SbiInput::Decided(ue, to, Box::new(answer)));
    }

    async fn ask_smf(&self, SmfQuery { ue, to, request }: SmfQuery) {
        let answer = match &self.smf {
            Some(smf) => smf.contexts.answer(&request).await,
            None => SmfAnswer::Failed(ServiceFault::NoInstance),
        };
        self.answered(SbiInput::SmContext(ue, to, request.psi, Box::new(answer)));
    }

    async fn transfer(&self, AmfQuery { ue, request, .. }: AmfQuery) {
        let answer = match &self.amfs {
            Some(amfs) => amfs.send(&request).await,
            None => None,
        };
        match answer {
            Some(answer) => self.answered(SbiInput::Transferred(ue, answer)),
            None => {
                self.counts.under_way.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Passes an answer to the control thread.
    fn answered(&self, answer: SbiInput) {
        self.counts.under_way.fetch_sub(1, Ordering::Relaxed);
        if self.input.send(answer).is_ok() {
            self.console.commands.wake();
        }
    }
}

/// Passes an order of the charging function of this core on: to the SMF of this core, or to another one.
fn pass_order(
    order: &Notification,
    input: &mpsc::Sender<SbiInput>,
    sender: &queue::UnboundedSender<ThreadInput>,
    console: &Console,
) {
    if order.consumer.is_some() {
        // Without a thread of the interfaces, no session is another SMF's.
        let _ = sender.send(ThreadInput::ChargingOrder(order.clone()));
        return;
    }
    let Some(psi) = order.pdu_session_id.and_then(PduSessionId::new) else { return };
    let abort = order.order == NotificationType::AbortCharging;
    if input.send(SbiInput::ChargingNotified { supi: order.supi, psi, abort }).is_ok() {
        console.commands.wake();
    }
}

/// This core's functions as others know them. Their identities are the same after a restart.
fn consumer(config: &Config, sbi: &Sbi) -> Consumer {
    let guami = Guami { plmn: config.amf.plmn, amf_id: config.amf.amf_id };
    let instance = |function: &str| {
        let name = format!("whimbrel {function} {} {:?} {}", guami.plmn, guami.amf_id, sbi.address);
        NfInstanceId::new(&uuid_of(&name)).expect("a UUID")
    };
    let scheme = if sbi.tls.certificate.is_some() { "https" } else { "http" };
    Consumer {
        plmn: config.amf.plmn,
        guami,
        amf: instance("AMF"),
        smf: instance("SMF"),
        ausf: instance("AUSF"),
        udm: instance("UDM"),
        pcf: instance("PCF"),
        nrf: instance("NRF"),
        chf: instance("CHF"),
        ims_vops: config.amf.ims_vops,
        callback_root: format!("{scheme}://{}{}", sbi.address, callbacks::PATH),
        root: format!("{scheme}://{}", sbi.address),
    }
}

/// A UUID by the digest of a name, marked as version 4, as NF instance identities are (TS 29.571 §5.3.2): free5GC's NRF refuses others.
fn uuid_of(name: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let mut octets = [0; 16];
    octets.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    octets[6] = octets[6] & 0x0f | 0x40;
    octets[8] = octets[8] & 0x3f | 0x80;
    let hex = |part: &[u8]| part.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    let parts = [&octets[..4], &octets[4..6], &octets[6..8], &octets[8..10], &octets[10..]];
    parts.map(hex).join("-")
}

/// The answer to a request that failed.
pub(crate) fn failed(request: &UdmRequest, fault: ServiceFault) -> UdmAnswer {
    let error = UdmError::Remote(fault);
    match request {
        UdmRequest::GenerateAuthData { .. } => UdmAnswer::AuthData(Err((error, None))),
        UdmRequest::Register(_) | UdmRequest::Subscription(_) => UdmAnswer::Registered(Err(error)),
        UdmRequest::Deregister(_) => UdmAnswer::Deregistered,
        UdmRequest::EnterSlices(_)
        | UdmRequest::RegisterGuest { .. }
        | UdmRequest::ConfirmAuthentication { .. }
        | UdmRequest::RegisterSession { .. }
        | UdmRequest::DeregisterSession(..) => UdmAnswer::Noted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_identity_is_a_uuid_that_follows_from_the_name() {
        let id = uuid_of("whimbrel AMF");
        assert_eq!(id, uuid_of("whimbrel AMF"));
        assert_ne!(id, uuid_of("whimbrel SMF"));
        assert_eq!((&id[14..15], id.len()), ("4", 36));
        assert!(["8", "9", "a", "b"].contains(&&id[19..20]), "{id}");
        assert!(NfInstanceId::new(&id).is_ok());
    }
}
