//! The CTA's end of the links to the network functions of its unit that are processes of their own
//! ([`NetworkFunctionProcess`](crate::network_function::NetworkFunctionProcess) is the other end).
//!
//! Each request may be repeated without harm, so that one whose function dies goes to another instance, or waits for the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::charging::ChargingAnswer;
use whimbrel_control::sm_policy::{PolicyAnswer, PolicyOperation};
use whimbrel_control::udm::{Identity, NfType, ServiceFault, UdmRequest};
use whimbrel_control::{OutputId, UeId};
use whimbrel_ids::{Instant, SNssai, Supi};
use whimbrel_link::{Event, LinkId};
use whimbrel_resilience::CodeVersion;
use whimbrel_resilience::link::{
    FromFunction, FunctionAnswer, FunctionRequest, Hello, LinkRole, PolicyReference, ToFunction,
};
use whimbrel_resilience::region::Canary;

use super::{CpfPool, PoolEvent};
use crate::config::Unit;
use crate::function::{Function, UnitDirectory};
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Metric, MetricSample};

/// Between two looks for functions that have started: as long as one is missing, and later.
const LOOK_SOON: Duration = Duration::from_millis(50);
const LOOK_LATER: Duration = Duration::from_secs(1);
/// How long an answer may take: in this time a process that hangs is found, killed and started again.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Requests that await their answers. Further ones fail with [`ServiceFault::Busy`].
const UNDER_WAY_MAX: usize = 4096;

/// A request of a UE to a network function of this unit.
#[derive(Clone, Debug)]
pub struct FunctionQuery {
    /// The UE whose machine awaits the answer.
    pub ue: UeId,
    /// The output that the answer names.
    pub to: OutputId,
    pub request: FunctionRequest,
}

/// A request that has no answer yet.
struct SentRequest {
    query: FunctionQuery,
    nf: NfType,
    /// `None`: no instance can take it now.
    link: Option<LinkId>,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstanceState {
    Calling,
    /// Its first message has not come.
    Up(CodeVersion),
    Serves(CodeVersion, Option<SNssai>),
}

/// A process of a network function.
struct Instance {
    link: LinkId,
    at: SocketAddr,
    state: InstanceState,
}

/// The links to all of them.
pub(super) struct FunctionLinks {
    /// Where they write the addresses of their links.
    directory: UnitDirectory,
    /// How many there are to be.
    expected: usize,
    kinds: Vec<NfType>,
    instances: BTreeMap<Function, Instance>,
    /// Instances whose versions of the link messages differ, by their addresses: they are not connected to again.
    refused: BTreeMap<Function, SocketAddr>,
    look_at: Instant,
    requests: BTreeMap<u64, SentRequest>,
    next: u64,
    /// Requests, and those that failed, by function.
    counts: BTreeMap<NfType, (u64, u64)>,
    /// Functions of which a request has failed since one was answered.
    failing: BTreeSet<NfType>,
    log: LogLimiter<(NfType, String)>,
}

impl FunctionLinks {
    fn serving(&self, nf: NfType) -> impl Iterator<Item = (LinkId, CodeVersion, Option<SNssai>)> + '_ {
        self.instances.iter().filter_map(move |(function, instance)| match (function, instance.state) {
            (Function::Network(kind, _), InstanceState::Serves(code, slice)) if *kind == nf => {
                Some((instance.link, code, slice))
            }
            _ => None,
        })
    }

    /// The instance for a request: of the session's slice, if that has instances of its own, and of the canary's code for the canary's UEs.
    fn choose(&self, query: &FunctionQuery, canary: Option<&Canary>) -> Option<LinkId> {
        let (nf, slice) = (function_of(&query.request), slice_of(&query.request));
        let mut all: Vec<_> = self.serving(nf).filter(|(.., of)| of.is_none() || *of == slice).collect();
        if all.iter().any(|(.., of)| of.is_some()) {
            all.retain(|(.., of)| of.is_some());
        }
        if let Some(canary) = canary {
            let is_its =
                canary.takes(query.ue) || supi_of(&query.request).is_some_and(|supi| canary.lists(supi));
            let fits = |code: CodeVersion| (code == canary.code) == is_its;
            if all.iter().any(|(_, code, _)| fits(*code)) {
                all.retain(|(_, code, _)| fits(*code));
            }
        }
        let n = query.ue.slot as usize % all.len().max(1);
        all.get(n).map(|(link, ..)| *link)
    }

    fn instance_of(&mut self, link: LinkId) -> Option<(Function, &mut Instance)> {
        self.instances.iter_mut().find(|(_, i)| i.link == link).map(|(function, i)| (*function, i))
    }
}

impl CpfPool {
    /// Requests to network functions of this unit go to their processes from now on.
    pub fn link_functions(&mut self, directory: UnitDirectory, unit: &Unit, slices: &[SNssai]) {
        let expected = unit.network_functions(slices).iter().map(|(.., n)| usize::from(*n)).sum();
        if expected == 0 {
            return;
        }
        self.functions = Some(FunctionLinks {
            directory,
            expected,
            kinds: unit.functions.clone(),
            instances: BTreeMap::new(),
            refused: BTreeMap::new(),
            look_at: Instant::ZERO,
            requests: BTreeMap::new(),
            next: 0,
            counts: BTreeMap::new(),
            failing: BTreeSet::new(),
            log: LogLimiter::new("the network functions of this unit"),
        });
    }

    /// True if requests to this function go to a process of this unit.
    pub fn has_function(&self, nf: NfType) -> bool {
        self.functions.as_ref().is_some_and(|functions| functions.kinds.contains(&nf))
    }

    /// Passes a request on, or has it wait for an instance.
    pub fn ask_function(&mut self, now: Instant, query: FunctionQuery) {
        let canary = self.cluster.roll.configuration().and_then(|c| c.canary.as_ref());
        let Some(functions) = &mut self.functions else { return };
        let nf = function_of(&query.request);
        functions.counts.entry(nf).or_default().0 += 1;
        let link = functions.choose(&query, canary);
        let (number, until) = (functions.next, now + ANSWERED_WITHIN);
        functions.next += 1;
        let is_full = functions.requests.len() >= UNDER_WAY_MAX;
        functions.requests.insert(number, SentRequest { query, nf, link: None, until });
        if is_full {
            return self.function_failed(now, number, ServiceFault::Busy);
        }
        if let Some(link) = link {
            self.send_request(number, link);
        }
    }

    /// An order was handled.
    pub fn order_taken(&mut self, link: LinkId, number: u64) {
        self.send_to_function(link, &ToFunction::Taken(number));
    }

    /// Requests and failures, for the endpoint /metrics.
    pub fn function_samples(&self) -> Vec<MetricSample> {
        let counts = self.functions.iter().flat_map(|functions| &functions.counts);
        let samples = counts.flat_map(|(nf, (asked, failed))| {
            let sample = |metric, value| MetricSample { metric, label: Some(word_of(*nf).into()), value };
            [sample(Metric::FunctionRequests, *asked), sample(Metric::FunctionFaults, *failed)]
        });
        samples.collect()
    }

    /// When functions are looked for, or a request fails.
    pub(super) fn functions_deadline(&self) -> Option<Instant> {
        let functions = self.functions.as_ref()?;
        let until = functions.requests.values().map(|request| request.until).min();
        [Some(functions.look_at), until].into_iter().flatten().min()
    }

    fn send_to_function(&mut self, link: LinkId, message: &ToFunction) {
        self.frame.clear();
        message.write(&mut self.frame);
        self.links.send(link, &self.frame);
    }

    fn send_request(&mut self, number: u64, link: LinkId) {
        let Some(functions) = &mut self.functions else { return };
        let Some(sent) = functions.requests.get_mut(&number) else { return };
        sent.link = Some(link);
        let request = sent.query.request.clone();
        self.send_to_function(link, &ToFunction::Request { number, request });
    }

    /// Sends the requests that wait, as far as an instance takes them.
    fn send_waiting(&mut self) {
        let canary = self.cluster.roll.configuration().and_then(|c| c.canary.as_ref());
        let Some(functions) = &self.functions else { return };
        let waiting = functions.requests.iter().filter(|(_, sent)| sent.link.is_none());
        let due: Vec<(u64, LinkId)> = waiting
            .filter_map(|(number, sent)| Some((*number, functions.choose(&sent.query, canary)?)))
            .collect();
        due.into_iter().for_each(|(number, link)| self.send_request(number, link));
    }

    /// Looks for functions that have started, and for requests whose time is over.
    pub(super) fn turn_functions(&mut self, now: Instant) {
        let Some(functions) = &mut self.functions else { return };
        if functions.look_at <= now {
            for (function, at) in functions.directory.function_links_at() {
                let is_known = functions.instances.contains_key(&function);
                if !is_known && functions.refused.get(&function) != Some(&at) {
                    let link = self.links.connect(now, at);
                    functions
                        .instances
                        .insert(function, Instance { link, at, state: InstanceState::Calling });
                }
            }
            let serves = |i: &&Instance| matches!(i.state, InstanceState::Serves(..));
            let is_complete = functions.instances.values().filter(serves).count() >= functions.expected;
            functions.look_at = now + if is_complete { LOOK_LATER } else { LOOK_SOON };
        }
        let late = functions.requests.iter().filter(|(_, sent)| sent.until <= now);
        let late: Vec<(u64, bool)> = late.map(|(number, sent)| (*number, sent.link.is_some())).collect();
        for (number, was_sent) in late {
            let fault = if was_sent { ServiceFault::TimedOut } else { ServiceFault::NotConnected };
            self.function_failed(now, number, fault);
        }
    }

    fn function_failed(&mut self, now: Instant, number: u64, fault: ServiceFault) {
        let Some(functions) = &mut self.functions else { return };
        let Some(sent) = functions.requests.remove(&number) else { return };
        functions.counts.entry(sent.nf).or_default().1 += 1;
        functions.failing.insert(sent.nf);
        let sentence = format!(
            "the {} of this unit fails: {fault}; look at its process with `whimbrel unit`, and at its log",
            sent.nf
        );
        if functions.log.allows(now, (sent.nf, fault.to_string())) {
            warn!("{sentence}");
        }
        self.show_function(sent.nf, Condition::Limited, sentence);
        let FunctionQuery { ue, to, request } = sent.query;
        let answer = match &request {
            FunctionRequest::Udm(request) => FunctionAnswer::Udm(crate::sbi::failed(request, fault)),
            FunctionRequest::Pcf(_) => FunctionAnswer::Pcf(PolicyAnswer::Failed(fault)),
            FunctionRequest::Chf(_) => FunctionAnswer::Chf(ChargingAnswer::Failed(fault)),
        };
        self.pool_events.push(PoolEvent::FunctionAnswered(FunctionQuery { ue, to, request }, answer));
    }

    /// Takes an event if it is of a link to a function. Returns whether it is.
    pub(super) fn function_event(&mut self, now: Instant, event: &Event<'_>) -> bool {
        let (Event::Up { link, .. } | Event::Frame { link, .. } | Event::Down { link, .. }) = event else {
            return false;
        };
        let Some(functions) = &mut self.functions else { return false };
        let Some((function, instance)) = functions.instance_of(*link) else { return false };
        match event {
            Event::Up { hello, .. } => {
                let why = match Hello::from_octets(hello) {
                    Ok(Hello { role: LinkRole::Function, code }) => {
                        instance.state = InstanceState::Up(code);
                        return true;
                    }
                    Ok(_) => "it is no network function".to_owned(),
                    Err(e) => e.to_string(),
                };
                warn!(%function, "a network function of this unit gets no requests: {why}");
                let at = instance.at;
                functions.refused.insert(function, at);
                self.drop_function(now, function);
            }
            Event::Frame { octets, .. } => match (FromFunction::read(octets), instance.state) {
                (Ok(FromFunction::Serves { slice, .. }), InstanceState::Up(code)) => {
                    instance.state = InstanceState::Serves(code, slice);
                    info!(%function, "a network function of this unit serves");
                    if let Function::Network(nf, _) = function {
                        self.show_function(nf, Condition::Up, "a process of this unit answers");
                    }
                    self.send_waiting();
                }
                (Ok(FromFunction::Answer { number, answer }), InstanceState::Serves(..)) => {
                    self.function_answered(now, number, answer);
                }
                (Ok(FromFunction::Order { number, order }), InstanceState::Serves(..)) => {
                    self.pool_events.push(PoolEvent::FunctionOrdered(*link, number, order));
                }
                (Ok(_), _) | (Err(_), _) => {
                    warn!(%function, "a network function of this unit sends a message that is not due: its link is closed");
                    self.drop_function(now, function);
                }
            },
            Event::Down { reason, .. } => {
                if matches!(instance.state, InstanceState::Serves(..)) {
                    warn!(%function, %reason, "a network function of this unit is lost: its requests go to another instance, or wait for the next one");
                }
                self.forget_function(now, function);
            }
            Event::Rejected { .. } => {}
        }
        true
    }

    fn function_answered(&mut self, now: Instant, number: u64, answer: FunctionAnswer) {
        let Some(functions) = &mut self.functions else { return };
        // One that was too late is not awaited any more.
        let Some(sent) = functions.requests.get(&number) else { return };
        let fits = match &answer {
            FunctionAnswer::Udm(_) => sent.nf == NfType::Udm,
            FunctionAnswer::Pcf(_) => sent.nf == NfType::Pcf,
            FunctionAnswer::Chf(_) => sent.nf == NfType::Chf,
        };
        if !fits {
            return self.function_failed(now, number, ServiceFault::InvalidAnswer);
        }
        if let Some(sent) = functions.requests.remove(&number) {
            if functions.failing.remove(&sent.nf) {
                self.show_function(sent.nf, Condition::Up, "a process of this unit answers");
            }
            self.pool_events.push(PoolEvent::FunctionAnswered(sent.query, answer));
        }
    }

    /// Closes the link to a function.
    fn drop_function(&mut self, now: Instant, function: Function) {
        let link =
            self.functions.as_ref().and_then(|functions| functions.instances.get(&function)).map(|i| i.link);
        link.iter().for_each(|link| self.links.close(*link));
        self.forget_function(now, function);
    }

    /// A function has no link any more: its requests are repeated.
    fn forget_function(&mut self, now: Instant, function: Function) {
        let Some(functions) = &mut self.functions else { return };
        let Some(Instance { link, .. }) = functions.instances.remove(&function) else { return };
        functions.look_at = functions.look_at.min(now + LOOK_SOON);
        functions
            .requests
            .values_mut()
            .filter(|sent| sent.link == Some(link))
            .for_each(|sent| sent.link = None);
        if let Function::Network(nf, _) = function
            && functions.serving(nf).next().is_none()
        {
            self.show_function(
                nf,
                Condition::Limited,
                "none of its processes serves: requests wait for the next one",
            );
        }
        self.send_waiting();
    }

    /// Shows a function's condition in the status.
    fn show_function(&self, nf: NfType, condition: Condition, detail: impl Into<String>) {
        self.console.components(|c| c.set(word_of(nf), condition, detail));
    }
}

fn function_of(request: &FunctionRequest) -> NfType {
    match request {
        FunctionRequest::Udm(_) => NfType::Udm,
        FunctionRequest::Pcf(_) => NfType::Pcf,
        FunctionRequest::Chf(_) => NfType::Chf,
    }
}

/// The slice of the request's session, where the function is placed by it.
fn slice_of(request: &FunctionRequest) -> Option<SNssai> {
    match request {
        FunctionRequest::Pcf(request) => match &request.operation {
            PolicyOperation::Create(session) => Some(session.s_nssai),
            PolicyOperation::Update { reference, .. } | PolicyOperation::Delete { reference } => {
                PolicyReference::read(reference).map(|of| of.s_nssai)
            }
        },
        FunctionRequest::Udm(_) | FunctionRequest::Chf(_) => None,
    }
}

fn supi_of(request: &FunctionRequest) -> Option<Supi> {
    match request {
        FunctionRequest::Pcf(request) => Some(request.supi),
        FunctionRequest::Chf(request) => Some(request.supi),
        FunctionRequest::Udm(request) => match request {
            UdmRequest::GenerateAuthData { identity: Identity::Supi(supi), .. }
            | UdmRequest::Register(supi)
            | UdmRequest::Subscription(supi)
            | UdmRequest::Deregister(supi)
            | UdmRequest::ConfirmAuthentication { supi, .. }
            | UdmRequest::RegisterSession { supi, .. }
            | UdmRequest::DeregisterSession(supi, _)
            | UdmRequest::RegisterGuest { supi, .. } => Some(*supi),
            UdmRequest::GenerateAuthData { identity: Identity::Suci(suci), .. } => suci.plain_supi(),
            UdmRequest::EnterSlices(_) => None,
        },
    }
}

/// The function in metrics and in the status.
const fn word_of(nf: NfType) -> &'static str {
    match nf {
        NfType::Udm => "udm",
        NfType::Pcf => "pcf",
        NfType::Chf => "chf",
        NfType::Smf => "smf",
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_control::sm_policy::PolicyRequest;
    use whimbrel_control::udm::UdmAnswer;
    use whimbrel_ids::{PduSessionId, Seid};
    use whimbrel_link::{LinkEvents, LinkSettings, Links};
    use whimbrel_resilience::region::CanaryUes;
    use whimbrel_shm::{Made, create};

    use super::*;
    use crate::clock;
    use crate::cluster::tests::pool_of_pair;
    use crate::config;

    /// A function whose answers the test gives.
    struct ScriptedFunction {
        links: Links,
        caller: Option<LinkId>,
        requests: Vec<(u64, FunctionRequest)>,
        taken: Vec<u64>,
    }

    impl ScriptedFunction {
        fn turn(&mut self, serves: &FromFunction) {
            let mut events = LinkEvents::default();
            self.links.drain(clock::now(), &mut events);
            for event in events.iter() {
                match event {
                    Event::Up { link, .. } => {
                        self.caller = Some(link);
                        self.send(serves);
                    }
                    Event::Frame { octets, .. } => match ToFunction::read(octets).unwrap() {
                        ToFunction::Request { number, request } => self.requests.push((number, request)),
                        ToFunction::Taken(number) => self.taken.push(number),
                    },
                    _ => {}
                }
            }
            self.links.flush();
        }

        fn send(&mut self, message: &FromFunction) {
            let mut octets = Vec::new();
            message.write(&mut octets);
            self.links.send(self.caller.unwrap(), &octets);
            self.links.flush();
        }
    }

    /// A CTA and its unit's directory.
    struct TestUnit {
        folder: tempfile::TempDir,
        made: Made,
        cta: CpfPool,
    }

    fn unit(yaml: &str) -> TestUnit {
        let (folder, made) = (tempfile::tempdir().unwrap(), create().unwrap());
        let mut cta = pool_of_pair();
        cta.links.share(made.open(0).unwrap()).unwrap();
        let config = config::parse(yaml, std::path::Path::new("u.yaml")).unwrap();
        cta.link_functions(UnitDirectory::of(folder.path()), &config.unit, &config.cluster.slices);
        TestUnit { folder, made, cta }
    }

    impl TestUnit {
        /// A function that listens, in the area of this number.
        fn function(&self, function: Function, area: usize, code: CodeVersion) -> ScriptedFunction {
            let hello = Hello { role: LinkRole::Function, code };
            let mut settings = LinkSettings::new(hello.to_octets());
            settings.listen = Some(([127, 0, 0, 1], 0).into());
            let mut links = Links::open(settings).unwrap();
            links.share(self.made.open(area).unwrap()).unwrap();
            let directory = UnitDirectory::of(self.folder.path());
            directory.announce_function_link(function, links.local_addr().unwrap()).unwrap();
            ScriptedFunction { links, caller: None, requests: Vec::new(), taken: Vec::new() }
        }

        /// Lets all work until something is the case. Returns what has come of requests.
        fn until(
            &mut self,
            functions: &mut [(&mut ScriptedFunction, FromFunction)],
            mut is: impl FnMut(&CpfPool, &[(&mut ScriptedFunction, FromFunction)]) -> bool,
        ) -> Vec<PoolEvent> {
            let mut all = Vec::new();
            for _ in 0..20_000 {
                functions.iter_mut().for_each(|(function, serves)| function.turn(serves));
                all.extend(self.cta.turn(clock::now()));
                self.cta.flush();
                if is(&self.cta, functions) {
                    return all;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            panic!("it is not the case");
        }
    }

    fn serves(function: NfType, slice: Option<SNssai>) -> FromFunction {
        FromFunction::Serves { function, slice }
    }

    fn serving(cta: &CpfPool) -> usize {
        let is = |i: &&Instance| matches!(i.state, InstanceState::Serves(..));
        cta.functions.as_ref().unwrap().instances.values().filter(is).count()
    }

    fn query(slot: u32, request: FunctionRequest) -> FunctionQuery {
        FunctionQuery { ue: UeId { slot, generation: 1 }, to: OutputId { clock: 1, index: 0 }, request }
    }

    fn register(slot: u32) -> FunctionQuery {
        query(slot, FunctionRequest::Udm(UdmRequest::Register(supi())))
    }

    fn supi() -> Supi {
        "imsi-999700000000001".parse().unwrap()
    }

    fn answers(events: &[PoolEvent]) -> Vec<String> {
        let of = |event: &PoolEvent| match event {
            PoolEvent::FunctionAnswered(query, answer) => Some(format!("{} {answer:?}", query.ue.slot)),
            _ => None,
        };
        events.iter().filter_map(of).collect()
    }

    const UDM: [Function; 2] = [Function::Network(NfType::Udm, 1), Function::Network(NfType::Udm, 2)];

    #[test]
    fn a_request_waits_for_an_instance_goes_to_another_one_when_that_is_lost_and_is_answered_once() {
        let mut unit = unit("unit: { functions: [udm], function_instances: 2 }");
        unit.cta.ask_function(clock::now(), register(4));
        assert!(answers(&unit.cta.turn(clock::now())).is_empty());
        let mut first = unit.function(UDM[0], 1, CodeVersion::own());
        unit.until(&mut [(&mut first, serves(NfType::Udm, None))], |_, all| all[0].0.requests.len() == 1);
        let mut second = unit.function(UDM[1], 2, CodeVersion::own());
        let all = &mut [(&mut first, serves(NfType::Udm, None)), (&mut second, serves(NfType::Udm, None))];
        unit.until(all, |cta, _| serving(cta) == 2 && cta.links.shared() == 2);
        // By the UE: one of an odd slot is the second one's.
        unit.cta.ask_function(clock::now(), register(5));
        unit.until(all, |_, all| all[1].0.requests.len() == 1);
        drop(first);
        let all = &mut [(&mut second, serves(NfType::Udm, None))];
        unit.until(all, |cta, all| serving(cta) == 1 && all[0].0.requests.len() == 2);
        assert_eq!(second.requests[1].0, 0, "under its number");
        for (number, _) in second.requests.clone() {
            let answer = FunctionAnswer::Udm(UdmAnswer::Noted);
            second.send(&FromFunction::Answer { number, answer: answer.clone() });
            second.send(&FromFunction::Answer { number, answer });
        }
        let mut come = Vec::new();
        for _ in 0..2000 {
            come.extend(answers(&unit.cta.turn(clock::now())));
            std::thread::sleep(Duration::from_micros(100));
        }
        come.sort();
        assert_eq!(come, ["4 Udm(Noted)", "5 Udm(Noted)"]);
        assert!(unit.cta.functions.as_ref().unwrap().requests.is_empty());
    }

    #[test]
    fn a_request_without_an_answer_fails_in_its_time_and_one_of_another_function_is_refused() {
        let mut unit = unit("unit: { functions: [udm] }");
        unit.cta.ask_function(clock::now(), register(1));
        let later = clock::now() + ANSWERED_WITHIN + Duration::from_secs(1);
        let failed = answers(&unit.cta.turn(later));
        assert_eq!(failed, ["1 Udm(Registered(Err(Remote(NotConnected))))"]);
        let mut udm = unit.function(UDM[0], 1, CodeVersion::own());
        unit.cta.functions.as_mut().unwrap().look_at = Instant::ZERO;
        unit.cta.ask_function(clock::now(), register(2));
        let all = &mut [(&mut udm, serves(NfType::Udm, None))];
        unit.until(all, |_, all| all[0].0.requests.len() == 1);
        let number = udm.requests[0].0;
        let answer = FunctionAnswer::Chf(ChargingAnswer::Failed(ServiceFault::Busy));
        udm.send(&FromFunction::Answer { number, answer });
        let mut come = Vec::new();
        let all = &mut [(&mut udm, serves(NfType::Udm, None))];
        come.extend(unit.until(all, |cta, _| cta.functions.as_ref().unwrap().requests.is_empty()));
        assert_eq!(answers(&come), ["2 Udm(Registered(Err(Remote(InvalidAnswer))))"]);
        let condition = |cta: &CpfPool| cta.console.components(|c| c.get("udm").map(|udm| udm.condition));
        assert_eq!(condition(&unit.cta), Some(Condition::Limited));
        unit.cta.ask_function(clock::now(), register(3));
        let all = &mut [(&mut udm, serves(NfType::Udm, None))];
        unit.until(all, |_, all| all[0].0.requests.len() == 2);
        let number = udm.requests[1].0;
        udm.send(&FromFunction::Answer { number, answer: FunctionAnswer::Udm(UdmAnswer::Noted) });
        let all = &mut [(&mut udm, serves(NfType::Udm, None))];
        unit.until(all, |cta, _| cta.functions.as_ref().unwrap().requests.is_empty());
        assert_eq!(condition(&unit.cta), Some(Condition::Up));
        let samples = unit.cta.function_samples();
        assert_eq!(samples.iter().map(|sample| sample.value).collect::<Vec<_>>(), [3, 2]);
        // What is no message, or not due, ends the link.
        udm.send(&serves(NfType::Udm, None));
        unit.until(&mut [], |cta, _| serving(cta) == 0);
        assert_eq!(condition(&unit.cta), Some(Condition::Limited));
    }

    #[test]
    fn a_function_of_another_version_gets_no_request() {
        let mut unit = unit("unit: { functions: [udm] }");
        let mut other = Hello::own(LinkRole::Cpf).to_octets();
        for hello in [other.clone(), {
            other[9] ^= 1;
            other
        }] {
            let mut settings = LinkSettings::new(hello);
            settings.listen = Some(([127, 0, 0, 1], 0).into());
            let mut links = Links::open(settings).unwrap();
            let at = links.local_addr().unwrap();
            UnitDirectory::of(unit.folder.path()).announce_function_link(UDM[0], at).unwrap();
            let refused = |cta: &CpfPool| cta.functions.as_ref().unwrap().refused.get(&UDM[0]) == Some(&at);
            for _ in 0..20_000 {
                links.drain(clock::now(), &mut LinkEvents::default());
                links.flush();
                unit.cta.turn(clock::now());
                unit.cta.flush();
                if refused(&unit.cta) {
                    break;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            assert!(refused(&unit.cta) && serving(&unit.cta) == 0);
        }
    }

    #[test]
    fn sessions_go_to_the_instance_of_their_slice_and_the_canarys_ues_to_that_of_its_code() {
        let mut unit = unit("unit: { functions: [pcf] }\nslices: [1, 2, 3]\ncluster: { slices: [2] }");
        let (own, other) = (CodeVersion::own(), CodeVersion(CodeVersion::own().0 ^ 1));
        let functions = unit.cta.functions.as_mut().unwrap();
        assert_eq!(functions.expected, 2);
        let mut add = |n: u16, code, slice| {
            let (link, at) = (LinkId(n.into()), ([127, 0, 0, 1], n).into());
            let instance = Instance { link, at, state: InstanceState::Serves(code, slice) };
            functions.instances.insert(Function::Network(NfType::Pcf, n), instance);
        };
        add(1, own, None);
        add(2, own, Some(SNssai::sst(2)));
        add(3, other, None);
        let update = |slot, reference: &str| {
            let operation = PolicyOperation::Update { reference: reference.into(), report: Box::default() };
            let psi = PduSessionId::new(1).unwrap();
            query(
                slot,
                FunctionRequest::Pcf(PolicyRequest { supi: supi(), psi, session: Seid(1), operation }),
            )
        };
        let chosen = |unit: &TestUnit, reference, canary: Option<&Canary>| -> BTreeSet<u64> {
            let functions = unit.cta.functions.as_ref().unwrap();
            let all = (0..20).filter_map(|slot| functions.choose(&update(slot, reference), canary));
            all.map(|link| link.0).collect()
        };
        assert_eq!(chosen(&unit, "1/internet", None), [1, 3].into());
        assert_eq!(chosen(&unit, "2/internet", None), [2].into());
        assert_eq!(chosen(&unit, "3/internet", None), [1, 3].into(), "that of no slice serves the others");
        let canary = |ues| Canary { code: other, ues };
        assert_eq!(chosen(&unit, "1/internet", Some(&canary(CanaryUes::Percent(0)))), [1].into());
        assert_eq!(chosen(&unit, "1/internet", Some(&canary(CanaryUes::Percent(100)))), [3].into());
        assert_eq!(
            chosen(&unit, "1/internet", Some(&canary(CanaryUes::Listed([supi()].into())))),
            [3].into()
        );
        assert_eq!(chosen(&unit, "2/internet", Some(&canary(CanaryUes::Percent(100)))), [2].into());
        let functions = unit.cta.functions.as_mut().unwrap();
        functions.instances.remove(&Function::Network(NfType::Pcf, 2));
        assert_eq!(chosen(&unit, "2/internet", None), [1, 3].into(), "without its own instance");
        unit.cta.functions.as_mut().unwrap().instances.clear();
        assert_eq!(chosen(&unit, "2/internet", None), BTreeSet::new());
    }
}
