//! UDM, PCF and CHF of the experiment: what the program answers from, at the three distances of its service operations.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use whimbrel_control::charging::RatingGroup;
use whimbrel_control::config::{ChargingPolicy, Config as ControlConfig, FailureHandling, UdmFunction};
use whimbrel_control::udm::NfType;
use whimbrel_control::{OutputId, UeId};
use whimbrel_ids::Instant;
use whimbrel_link::{LinkId, Links};
use whimbrel_node::clock;
use whimbrel_node::config::{self, Config};
use whimbrel_node::core::subscription;
use whimbrel_node::network_function::{Producer, producer};
use whimbrel_node::observation::Console;
use whimbrel_node::sbi::{NetworkFunctions, SbiInput};
use whimbrel_node::subscribers;
use whimbrel_resilience::link::{FromFunction, FunctionAnswer, FunctionRequest, ToFunction};
use whimbrel_resilience::{ChargingQuery, Input, Outbox, PolicyQuery, UdmQuery};
use whimbrel_sim::{default_config, ue_config};
use whimbrel_store::{OperatorCode, SubscriberRecord};

/// The functions that have processes of their own.
pub(super) const KINDS: [NfType; 3] = [NfType::Udm, NfType::Pcf, NfType::Chf];

/// Distance of the functions from the CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FunctionsAt {
    /// The UDM is a part of the CTA, and there is neither PCF nor CHF.
    Embedded,
    /// All are called.
    Call,
    /// Each is a process, over a link.
    Process,
    /// Each is offered by a process over HTTP/2 with JSON.
    Http,
}

/// The control plane's configuration: sessions are charged, and have the policies of a PCF.
pub(super) fn control_config(at: FunctionsAt) -> ControlConfig {
    let mut config = default_config();
    if at != FunctionsAt::Embedded {
        config.udm = UdmFunction::Remote;
        config.smf.pcf = Some(FailureHandling::Terminate);
        let charging =
            ChargingPolicy { rating_group: RatingGroup(1), failure_handling: FailureHandling::Terminate };
        config.smf.data_networks.values_mut().for_each(|network| network.charging = Some(charging));
    }
    config
}

/// Writes the subscribers of so many UEs into a store of this folder, where there is none.
pub(super) fn write_subscribers(folder: &Path, ues: u32) -> io::Result<()> {
    let mut store = subscribers::open(&read_config(folder, "")?.store).map_err(io::Error::other)?;
    for n in 0..ues {
        let ue = ue_config(n);
        let record = SubscriberRecord::new(ue.supi, ue.k, OperatorCode::Opc(ue.opc));
        store.add(&record).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The configuration of a process in this folder, whose accounts are its own.
pub(super) fn read_config(folder: &Path, sbi: &str) -> io::Result<Config> {
    let at = |file: &str| folder.join(file).display().to_string();
    let yaml = format!(
        "store: {{ path: {}, key_file: {} }}\ndata_networks:\n  - dnn: internet\n    charging: {{ rating_group: 1, failure_handling: terminate }}\n\
         chf: {{ default_account: postpaid, path: {} }}\nsbi: {{ {} }}\n",
        at("store.db"),
        at("store.key"),
        at(&format!("charging-{}.db", std::process::id())),
        if sbi.is_empty() { "chf: embedded" } else { sbi },
    );
    config::parse(&yaml, Path::new("bench.yaml")).map_err(|e| io::Error::other(e.to_string()))
}

pub(super) fn wake() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

/// An address of loopback that nothing has.
pub(super) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The functions, as the CTA reaches them.
pub(super) enum Functions {
    Embedded,
    Call { producers: BTreeMap<NfType, Box<dyn Producer>>, requests: Requests, wake: Arc<OwnedFd> },
    Process { links: BTreeMap<NfType, LinkId>, requests: Requests },
    Http { functions: Box<NetworkFunctions>, console: Arc<Console>, under_way: u64 },
}

/// The requests that have no answer yet.
#[derive(Default)]
pub(super) struct Requests {
    next: u64,
    waiting: BTreeMap<u64, (UeId, OutputId, FunctionRequest)>,
}

impl Requests {
    fn insert(&mut self, ue: UeId, to: OutputId, request: &FunctionRequest) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, (ue, to, request.clone()));
        self.next
    }

    /// The input that an answer is.
    fn answered(&mut self, number: u64, answer: FunctionAnswer) -> io::Result<Input<'static>> {
        let (ue, to, request) = self.waiting.remove(&number).ok_or(io::ErrorKind::InvalidData)?;
        match (request, answer) {
            (FunctionRequest::Udm(request), FunctionAnswer::Udm(answer)) => {
                Ok(Input::Udm(ue, to, Box::new((request, answer))))
            }
            (_, FunctionAnswer::Pcf(answer)) => Ok(Input::Policy(ue, to, Box::new(answer))),
            (_, FunctionAnswer::Chf(answer)) => Ok(Input::Charging(ue, to, Box::new(answer))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn kind_of(request: &FunctionRequest) -> NfType {
    match request {
        FunctionRequest::Udm(_) => NfType::Udm,
        FunctionRequest::Pcf(_) => NfType::Pcf,
        FunctionRequest::Chf(_) => NfType::Chf,
    }
}

impl Functions {
    /// Functions that are called, with a store in this folder.
    pub(super) fn call(folder: &Path) -> io::Result<Self> {
        let config = read_config(folder, "")?;
        let wake = wake()?;
        let open = |nf| Ok((nf, producer(&config, nf, wake.clone()).map_err(io::Error::other)?));
        let producers = KINDS.into_iter().map(open).collect::<io::Result<_>>()?;
        Ok(Self::Call { producers, requests: Requests::default(), wake })
    }

    /// Functions that are processes, by their links.
    pub(super) fn process(links: BTreeMap<NfType, LinkId>) -> Self {
        Self::Process { links, requests: Requests::default() }
    }

    /// Readable when an answer has come beside links.
    pub(super) fn wake(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Http { console, .. } => Some(console.commands.wake_fd()),
            Self::Call { wake, .. } => Some(wake.as_fd()),
            Self::Embedded | Self::Process { .. } => None,
        }
    }

    /// The functions that a process offers at this address.
    pub(super) fn http(folder: &Path, at: SocketAddr) -> io::Result<Self> {
        let own = free_address()?;
        let sbi =
            format!("address: \"{own}\", udm: \"http://{at}\", pcf: \"http://{at}\", chf: \"http://{at}\"");
        let config = read_config(folder, &sbi)?;
        let console = Console::new(clock::now())?;
        let functions =
            NetworkFunctions::start(&config, console.clone(), subscription).map_err(io::Error::other)?;
        let functions = Box::new(functions.ok_or_else(|| io::Error::other("no function is configured"))?);
        Ok(Self::Http { functions, console, under_way: 0 })
    }

    /// True if all requests are answered.
    pub(super) fn is_at_rest(&self) -> bool {
        match self {
            Self::Embedded => true,
            Self::Call { requests, .. } | Self::Process { requests, .. } => requests.waiting.is_empty(),
            Self::Http { under_way, .. } => *under_way == 0,
        }
    }

    /// Sends what the CTA asks. Returns the answers that come at once.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        mut links: Option<&mut Links>,
    ) -> io::Result<Vec<Input<'static>>> {
        if let Self::Http { functions, under_way, .. } = self {
            *under_way += (out.udm.len() + out.policy.len() + out.charging.len()) as u64;
            out.udm.drain(..).for_each(|query| functions.ask(query));
            out.policy.drain(..).for_each(|query| functions.decide(query));
            out.charging.drain(..).for_each(|query| functions.charge(query));
            return Ok(Vec::new());
        }
        let udm =
            out.udm.drain(..).map(|UdmQuery { ue, to, request }| (ue, to, FunctionRequest::Udm(request)));
        let policy = out.policy.drain(..);
        let policy = policy.map(|PolicyQuery { ue, to, request }| (ue, to, FunctionRequest::Pcf(request)));
        let charging = out.charging.drain(..);
        let charging =
            charging.map(|ChargingQuery { ue, to, request }| (ue, to, FunctionRequest::Chf(request)));
        let mut inputs = Vec::new();
        for (ue, to, request) in udm.chain(policy).chain(charging) {
            let nf = kind_of(&request);
            match self {
                Self::Call { producers, requests, .. } => {
                    let number = requests.insert(ue, to, &request);
                    let producer = producers.get_mut(&nf).ok_or(io::ErrorKind::NotFound)?;
                    if let Some(answer) = producer.handle(now, (LinkId(0), number), request) {
                        inputs.push(requests.answered(number, answer)?);
                    }
                }
                Self::Process { links: of, requests } => {
                    let number = requests.insert(ue, to, &request);
                    let mut octets = Vec::new();
                    ToFunction::Request { number, request }.write(&mut octets);
                    if let (Some(links), Some(link)) = (&mut links, of.get(&nf)) {
                        links.send(*link, &octets);
                    }
                }
                Self::Embedded | Self::Http { .. } => {}
            }
        }
        Ok(inputs)
    }

    /// Takes a frame if it is of a function's link. Returns the input that it is.
    pub(super) fn frame(&mut self, link: LinkId, octets: &[u8]) -> io::Result<Option<Vec<Input<'static>>>> {
        let Self::Process { links, requests } = self else { return Ok(None) };
        if links.values().all(|own| *own != link) {
            return Ok(None);
        }
        match FromFunction::read(octets).map_err(io::Error::other)? {
            FromFunction::Answer { number, answer } => Ok(Some(vec![requests.answered(number, answer)?])),
            FromFunction::Serves { .. } | FromFunction::Order { .. } => Ok(Some(Vec::new())),
        }
    }

    /// Takes the answers that have come meanwhile.
    pub(super) fn turn(&mut self, now: Instant) -> io::Result<Vec<Input<'static>>> {
        match self {
            Self::Embedded | Self::Process { .. } => Ok(Vec::new()),
            Self::Call { producers, requests, wake } => {
                let _ = rustix::io::read(wake, &mut [0; 8]);
                let answers = producers.values_mut().flat_map(|producer| producer.turn(now).0);
                answers.map(|((_, number), answer)| requests.answered(number, answer)).collect()
            }
            Self::Http { functions, console, under_way } => {
                let _ = rustix::io::read(console.commands.wake_fd(), &mut [0; 8]);
                let inputs = functions.turn().into_iter().filter_map(|input| match input {
                    SbiInput::Answer(ue, to, exchange) => Some(Input::Udm(ue, to, exchange)),
                    SbiInput::Charged(ue, to, answer) => Some(Input::Charging(ue, to, answer)),
                    SbiInput::Decided(ue, to, answer) => Some(Input::Policy(ue, to, answer)),
                    // Nothing changes in mid-session.
                    _ => None,
                });
                let inputs: Vec<_> = inputs.collect();
                *under_way = under_way.saturating_sub(inputs.len() as u64);
                Ok(inputs)
            }
        }
    }
}
