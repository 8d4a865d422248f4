//! The functions over a store, and a process with its CTAs.

use std::path::Path;
use std::sync::Mutex;

use whimbrel_control::UeAddress;
use whimbrel_control::sm_policy::{
    PolicyAnswer, PolicyDecision, PolicyDenial, PolicyNotification, PolicyOperation, PolicyRequest,
    PolicySession, SessionRule,
};
use whimbrel_control::udm::{AuthMethod, Identity, UdmAnswer, UdmError, UdmRequest, Vector};
use whimbrel_ids::{PduSessionId, Seid, Supi};
use whimbrel_link::LinkSettings;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_security::{K, Opc};
use whimbrel_store::{OperatorCode, Store, SubscriberRecord};

use super::*;
use crate::config;

const FLOW: &str = "data_networks:\n  - dnn: internet\n    flows:\n      - name: voice\n        five_qi: 1\n        guaranteed_up: 64 Kbps\n        guaranteed_down: 96 Kbps\n        filters: [\"downlink permit out 17 from any 5004 to assigned\"]\n        precedence: 12\n";

/// A configuration, and its store as another process has it open.
struct Stored {
    config: Config,
    store: Store,
    _folder: tempfile::TempDir,
}

fn stored(yaml: &str) -> Stored {
    let folder = tempfile::tempdir().unwrap();
    let at = |file: &str| folder.path().join(file).display().to_string();
    let yaml = format!("store: {{ path: {}, key_file: {} }}\n{yaml}", at("s.db"), at("s.key"));
    let config = config::parse(&yaml, Path::new("w.yaml")).unwrap();
    let store = crate::subscribers::open(&config.store).unwrap();
    Stored { config, store, _folder: folder }
}

fn supi() -> Supi {
    "imsi-999700000000001".parse().unwrap()
}

fn record() -> SubscriberRecord {
    SubscriberRecord::new(supi(), K::new([1; 16]), OperatorCode::Opc(Opc::new([2; 16])))
}

fn put(store: &mut Store, record: &SubscriberRecord) {
    store.edit(record.supi, |stored| *stored = record.clone()).unwrap();
}

const FROM: RequestId = (LinkId(1), 1);

fn answer(function: &mut dyn Producer, request: FunctionRequest) -> FunctionAnswer {
    function.handle(clock::now(), FROM, request).expect("an answer at once")
}

fn udm(function: &mut dyn Producer, request: UdmRequest) -> UdmAnswer {
    match answer(function, FunctionRequest::Udm(request)) {
        FunctionAnswer::Udm(answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_subscriber_is_authenticated_as_soon_as_it_is_added_and_its_subscription_is_the_present_one() {
    let mut stored = stored("");
    let mut function = UdmProducer::open(&stored.config).unwrap();
    let request = || UdmRequest::GenerateAuthData {
        identity: Identity::Supi(supi()),
        rand: [7; 16],
        resynchronisation: None,
    };
    let unknown = udm(&mut function, request());
    assert!(matches!(unknown, UdmAnswer::AuthData(Err((UdmError::UserNotFound, Some(_))))), "{unknown:?}");
    stored.store.add(&record()).unwrap();
    let UdmAnswer::AuthData(Ok(data)) = udm(&mut function, request()) else { panic!("no vector") };
    assert!(matches!(data.vector, Vector::FiveGAka(_)));
    let rate = |function: &mut UdmProducer, request| match udm(function, request) {
        UdmAnswer::Registered(Ok(subscription)) => subscription.ue_ambr.dl_kbps,
        other => panic!("{other:?}"),
    };
    let before = rate(&mut function, UdmRequest::Register(supi()));
    let mut changed = record();
    let ambr = serde_json::json!({ "uplink": "5 Mbps", "downlink": "7 Mbps" });
    std::sync::Arc::make_mut(&mut changed.subscription).ue_ambr = serde_json::from_value(ambr).unwrap();
    put(&mut stored.store, &changed);
    assert_eq!(rate(&mut function, UdmRequest::Subscription(supi())), 7000);
    assert_ne!(before, 7000);
    let success =
        UdmRequest::ConfirmAuthentication { supi: supi(), method: AuthMethod::FiveGAka, success: true };
    assert!(matches!(udm(&mut function, success), UdmAnswer::Noted));
    assert!(matches!(udm(&mut function, UdmRequest::Deregister(supi())), UdmAnswer::Deregistered));
    assert!(
        function
            .handle(clock::now(), FROM, policy(PolicyOperation::Delete { reference: "".into() }))
            .is_none()
    );
}

fn policy(operation: PolicyOperation) -> FunctionRequest {
    let psi = PduSessionId::new(1).unwrap();
    FunctionRequest::Pcf(PolicyRequest { supi: supi(), psi, session: Seid(7), operation })
}

fn create(dnn: &str) -> FunctionRequest {
    policy(PolicyOperation::Create(Box::new(PolicySession {
        s_nssai: SNssai::sst(1),
        dnn: dnn.parse().unwrap(),
        session_type: PduSessionType::Ipv4,
        address: UeAddress { ipv4: None, ipv6: None, interface_id: [0; 8] },
        subscribed: SessionRule::default(),
        tai: None,
    })))
}

fn decided(
    function: &mut dyn Producer,
    request: FunctionRequest,
) -> Result<(String, PolicyDecision), PolicyDenial> {
    match answer(function, request) {
        FunctionAnswer::Pcf(PolicyAnswer::Decided(of)) => Ok((of.reference.to_string(), of.decision)),
        FunctionAnswer::Pcf(PolicyAnswer::Denied(denial)) => Err(denial),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_has_the_flows_of_its_data_network_and_what_changes_of_them_is_ordered_once() {
    let mut stored = stored(FLOW);
    stored.store.add(&record()).unwrap();
    let mut function = PcfProducer::open(&stored.config).unwrap();
    function.turn(clock::now());
    let (reference, decision) = decided(&mut function, create("internet")).unwrap();
    assert_eq!(reference, "1/internet");
    let (id, rule) = &decision.rules[0];
    let rule = rule.as_ref().unwrap();
    assert_eq!(
        (&**id, rule.precedence, rule.filters.len(), rule.qos.as_deref()),
        ("voice", Some(12), 1, Some("voice"))
    );
    let gbr = decision.qos[0].1.unwrap().gbr.unwrap();
    assert_eq!((gbr.guaranteed.ul_kbps, gbr.guaranteed.dl_kbps), (64, 96));
    assert_eq!(decided(&mut function, create("ims")), Err(PolicyDenial::ContextDenied));
    // Another process, or the next one, knows the session by its reference.
    let mut other = PcfProducer::open(&stored.config).unwrap();
    let update = |reference: &str| {
        policy(PolicyOperation::Update { reference: reference.into(), report: Box::default() })
    };
    assert_eq!(decided(&mut other, update(&reference)), Ok((reference.clone(), decision)));
    for wrong in ["", "1", "1/", "x/internet", "1/internet/2"] {
        assert!(decided(&mut other, update(wrong)).is_err(), "{wrong}");
    }
    // A change of the subscriber is an order to the process that knows the session.
    let mut changed = record();
    let subscription = std::sync::Arc::make_mut(&mut changed.subscription);
    let ambr = serde_json::json!({ "uplink": "5 Mbps", "downlink": "7 Mbps" });
    subscription.slices[0].dnns[0].session_ambr = serde_json::from_value(ambr).unwrap();
    put(&mut stored.store, &changed);
    let later = clock::now() + 2 * LOOKED_EVERY;
    let (_, orders) = function.turn(later);
    let [FunctionOrder::Policy { notification: PolicyNotification::Changed(decision), .. }] = &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!(decision.session_rule.ambr.unwrap().dl_kbps, 7000);
    assert!(function.turn(later + 2 * LOOKED_EVERY).1.is_empty());
    decided(&mut function, policy(PolicyOperation::Delete { reference: reference.into() })).unwrap();
    put(&mut stored.store, &record());
    assert!(function.turn(later + 4 * LOOKED_EVERY).1.is_empty(), "the session has ended");
    stored.store.remove(supi()).unwrap();
    function.turn(later + 6 * LOOKED_EVERY);
    assert_eq!(decided(&mut function, create("internet")), Err(PolicyDenial::UserUnknown));
}

#[test]
fn entries_that_a_decision_loses_are_in_the_change_without_a_value() {
    let mut stored = stored(FLOW);
    stored.store.add(&record()).unwrap();
    let mut function = PcfProducer::open(&stored.config).unwrap();
    let (_, with) = decided(&mut function, create("internet")).unwrap();
    let without = PolicyDecision { rules: vec![], qos: vec![], gates: vec![], ..with.clone() };
    let change = pcf::with_removals(with.clone(), without);
    assert_eq!((&*change.rules[0].0, &change.rules[0].1), ("voice", &None));
    assert!(change.qos[0].1.is_none() && change.gates[0].1.is_none());
    assert_eq!(pcf::with_removals(PolicyDecision::default(), with.clone()), with);
}

/// A function with one order, that answers later.
struct LateProducer(Arc<Mutex<Vec<FunctionOrder>>>, Vec<RequestId>);

impl Producer for LateProducer {
    fn handle(
        &mut self,
        _now: Instant,
        from: RequestId,
        _request: FunctionRequest,
    ) -> Option<FunctionAnswer> {
        self.1.push(from);
        None
    }

    fn turn(&mut self, _now: Instant) -> (Vec<(RequestId, FunctionAnswer)>, Vec<FunctionOrder>) {
        let answers = self.1.drain(..).map(|from| (from, FunctionAnswer::Udm(UdmAnswer::Noted)));
        (answers.collect(), std::mem::take(&mut self.0.lock().unwrap()))
    }
}

/// A CTA's end.
struct CallingCta {
    links: Links,
    link: LinkId,
    up: bool,
    came: Vec<FromFunction>,
}

impl CallingCta {
    fn new(to: std::net::SocketAddr, role: LinkRole) -> Self {
        let mut links = Links::open(LinkSettings::new(Hello::own(role).to_octets())).unwrap();
        let link = links.connect(clock::now(), to);
        Self { links, link, up: false, came: Vec::new() }
    }

    fn send(&mut self, message: &ToFunction) {
        let mut octets = Vec::new();
        message.write(&mut octets);
        self.links.send(self.link, &octets);
    }

    /// Lets both work for a while. Returns what has come, as text.
    fn turns(&mut self, process: &mut NetworkFunctionProcess) -> Vec<String> {
        for _ in 0..200 {
            process.turn(clock::now());
            let mut events = LinkEvents::default();
            self.links.drain(clock::now(), &mut events);
            for event in events.iter() {
                match event {
                    Event::Up { .. } => self.up = true,
                    Event::Down { .. } => self.up = false,
                    Event::Frame { octets, .. } => self.came.push(FromFunction::read(octets).unwrap()),
                    Event::Rejected { .. } => {}
                }
            }
            self.links.flush();
            std::thread::sleep(Duration::from_micros(200));
        }
        self.came.drain(..).map(|message| format!("{message:?}")).collect()
    }
}

#[test]
fn an_order_comes_again_to_the_next_cta_until_one_confirms_it_and_only_ctas_are_served() {
    let mut settings = LinkSettings::new(Hello::own(LinkRole::Function).to_octets());
    settings.listen = Some(([127, 0, 0, 1], 0).into());
    let links = Links::open(settings).unwrap();
    let at = links.local_addr().unwrap();
    let orders = Arc::new(Mutex::new(Vec::new()));
    let producer = Box::new(LateProducer(orders.clone(), Vec::new()));
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
    let mut process = NetworkFunctionProcess::over(NfType::Pcf, Some(SNssai::sst(2)), producer, links, wake);
    let mut cta = CallingCta::new(at, LinkRole::Cta);
    let serves = "Serves { function: Pcf, slice: Some(2) }";
    assert_eq!(cta.turns(&mut process), [serves]);
    let psi = PduSessionId::new(1).unwrap();
    orders.lock().unwrap().push(FunctionOrder::Charging { supi: supi(), psi, abort: true });
    cta.send(&ToFunction::Request { number: 9, request: create("internet") });
    let mut came = cta.turns(&mut process);
    came.sort();
    assert!(
        came[0].starts_with("Answer { number: 9") && came[1].starts_with("Order { number: 0"),
        "{came:?}"
    );
    // It dies before it confirms.
    drop(cta);
    let mut cpf = CallingCta::new(at, LinkRole::Cpf);
    assert!(cpf.turns(&mut process).is_empty() && !cpf.up, "it is no CTA");
    let mut next = CallingCta::new(at, LinkRole::Cta);
    let came = next.turns(&mut process);
    assert!(came[0] == serves && came[1].starts_with("Order { number: 0"), "{came:?}");
    next.send(&ToFunction::Taken(0));
    next.turns(&mut process);
    let mut last = CallingCta::new(at, LinkRole::Cta);
    assert_eq!(last.turns(&mut process), [serves]);
    // A message that is none ends the link.
    last.links.send(last.link, b"\xff\xff");
    last.turns(&mut process);
    assert!(!last.up && next.turns(&mut process).is_empty() && next.up);
}
