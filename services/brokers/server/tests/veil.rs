//! Veiled users over the wire (LOCA, chapter 4): tokens, session groups, grants and reports through the direct channel and through a relay
//! pair; what a broker that is started again knows; two nodes on one file; relays that fail.

#[path = "veil_claims/mod.rs"]
mod claims;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ClientConfig;
use whimbrel_broker_client::client::Client;
use whimbrel_broker_client::veil::channel::{AnonymousChannel, Circuit, Direct, RelayPair};
use whimbrel_broker_client::veil::record::{self, Recorder};
use whimbrel_broker_client::veil::{QuestionKind, TlsEndpoint};
use whimbrel_broker_client::{now, tls};
use whimbrel_broker_server::engine::Entrance;
use whimbrel_broker_server::server::{self, Entrances, Server};
use whimbrel_broker_server::storage::UsimKeys;
use whimbrel_broker_server::veil::engine::{VeilConfig, VeilEngine};
use whimbrel_broker_server::veil::relay::{self, RelayRole};
use whimbrel_broker_server::veil::storage::{NamedHomeUser, NamedUser, VeilStorage};
use whimbrel_ids::PlmnId;
use whimbrel_open::crypto::{PrivateKey, Seed};
use whimbrel_open::id::{Domain, Nid, OperatorId, UserId};
use whimbrel_open::msg::{Certificate, EpochKey, Qos, Subject, Trust, Validity};
use whimbrel_privacy::broker::{BrokerConfig, Class, Counters, HomeUser, Policy, User};
use whimbrel_privacy::channel::{self, Failure, permit};
use whimbrel_privacy::crypto::{SigningKey, hash};
use whimbrel_privacy::log::{LogProof, LogRequest, LogTrust, Witness};
use whimbrel_privacy::msg::{
    Finding, GroupAnswer, GroupError, GroupRequest, Order, OrderKind, Orders, ReportAnswer, ReportError,
    Suci, usage_units,
};
use whimbrel_privacy::operator::{Contract, Group, HomeAttach, OperatorAttach, OperatorSession};
use whimbrel_privacy::relay::Resource;
use whimbrel_privacy::token::TokenHash;
use whimbrel_privacy::user::{UserAttach, UserSim};
use whimbrel_privacy::wallet::{Wallet, WalletConfig};
use whimbrel_security::{
    Autn, HomeNetworkKeys, HomeNetworkPrivateKey, Rand, ServingNetworkName, Sqn, Usim, UsimSqn,
};

const WITHIN: Duration = Duration::from_secs(5);
const NAMES: [&str; 3] = ["b.example", "relay.example", "gateway.example"];

fn domain() -> Domain {
    NAMES[0].parse().unwrap()
}

fn key(name: &str) -> SigningKey {
    SigningKey::new(&hash(&[name.as_bytes()]))
}

fn open_key(name: &str) -> whimbrel_open::crypto::SigningKey {
    whimbrel_open::crypto::SigningKey::new(&hash(&[name.as_bytes()]))
}

fn seed(name: &str) -> Seed {
    Seed::new(hash(&[b"seed", name.as_bytes()]))
}

fn operator() -> OperatorId {
    OperatorId { plmn: PlmnId::TEST, nid: Nid::new(7) }
}

fn validity() -> Validity {
    let now = now().as_secs();
    Validity { from: now - 3_600, until: now + 3 * 86_400 }
}

fn certificate() -> Certificate {
    let own = open_key("operator").verifying_key();
    Certificate::issue(&open_key("authority"), Subject::Operator(operator()), own, validity(), 1)
}

fn user() -> UserId {
    UserId([0xa1; 16])
}

/// The broker's key of the SUCIs of ordinary UEs.
fn suci_key() -> HomeNetworkPrivateKey {
    HomeNetworkPrivateKey::profile_a([6; 32])
}

/// Certificates of all three for TLS; gives what trusts them.
fn make_tls(folder: &Path) -> Arc<ClientConfig> {
    let mut roots = String::new();
    for name in NAMES {
        let made = tls::self_signed(name, now().as_secs()).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), &made.certificate).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), made.key).unwrap();
        roots += &made.certificate;
    }
    std::fs::write(folder.join("roots.pem"), roots).unwrap();
    tls::client(&folder.join("roots.pem")).unwrap()
}

fn own_tls(folder: &Path, name: &str) -> Arc<tokio_rustls::rustls::ServerConfig> {
    tls::server(&folder.join(format!("{name}.pem")), &folder.join(format!("{name}.key"))).unwrap()
}

/// A user, an issuing key in the log, and a witness's signature.
fn provision(folder: &Path) {
    let mut storage = VeilStorage::open(&folder.join("veil.db")).unwrap();
    let (revoked, class, prepaid, intercept) = (false, 0, false, false);
    let (key_of_user, counters) = (key("alice").verifying_key(), Counters::default());
    let user_of_broker = User { key: key_of_user, revoked, class, prepaid, intercept, counters };
    storage.add_user(&NamedUser { name: "alice".into(), id: user(), user: user_of_broker }).unwrap();
    let head = storage.begin_issuing(&domain(), validity(), &key("broker")).unwrap();
    let mut witness = Witness::new(domain(), key("broker").verifying_key(), key("witness"));
    let cosignature = witness.cosign(&head, storage.log(&domain()).unwrap().entries()).unwrap();
    storage.add_cosignature(head.size, &cosignature).unwrap();
    let early = storage.begin_issuing(&domain(), validity(), &key("broker"));
    assert!(early.unwrap_err().to_string().contains("too short"), "an epoch that marks an operator");
}

struct Service {
    engine: VeilEngine,
    server: Server,
}

impl Service {
    fn start(folder: &Path) -> Self {
        let policy = Policy {
            operators: [operator(), OperatorId { nid: Nid::new(8), ..operator() }].into(),
            batches_max: 4,
            group_s: 60,
            validity_s: 3_600,
            slice_octets: 1_000_000,
            poll_s: 2,
            classes: vec![Class {
                qos: Qos { ul_kbps: 10_000, dl_kbps: 50_000, five_qi: 9 },
                filters: Vec::new(),
            }],
        };
        let machine = BrokerConfig {
            domain: domain(),
            network: PlmnId::TEST,
            signing: key("broker"),
            trust: Trust::new(vec![open_key("authority").verifying_key()]).unwrap(),
            policy,
        };
        let recorder = Recorder::open(&folder.join("record")).unwrap();
        let mut home_keys = HomeNetworkKeys::new();
        home_keys.insert(1, suci_key());
        let agencies = vec![key("agency").verifying_key()];
        let config = VeilConfig { machine, store: folder.join("veil.db"), recorder, home_keys, agencies };
        let engine = VeilEngine::start(config).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let entrances =
            Entrances { open: Entrance::answered_by(|_| Vec::new()).unwrap(), veil: Some(engine.entrance()) };
        let server = server::start(here, here, own_tls(folder, NAMES[0]), entrances).unwrap();
        Self { engine, server }
    }

    fn place(&self) -> TlsEndpoint {
        TlsEndpoint { domain: domain(), address: self.server.address }
    }

    fn counted(&self, name: &str) -> u64 {
        let values = self.engine.entrance().metrics.values();
        values.into_iter().find(|(n, ..)| n.contains(name)).map(|(.., value)| value).unwrap()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A wallet with a batch, under the operator's name.
fn wallet(service: &Service, tls: &Arc<ClientConfig>) -> Wallet {
    let (client, runtime) = (Client::new(tls.clone()), runtime());
    let post = |kind: QuestionKind, octets: &[u8]| {
        runtime.block_on(client.post((kind.path(), 16 << 10), &service.place(), octets, WITHIN)).unwrap()
    };
    let trust = LogTrust::new(domain(), key("broker").verifying_key(), vec![key("witness").verifying_key()]);
    let mut wallet = Wallet::new(domain(), WalletConfig { age_min_s: 0, low_water: 1 });
    let proof = post(QuestionKind::Log, &LogRequest { broker: domain(), seen: 0 }.to_octets());
    wallet.add_issuing_key(&LogProof::parse(&proof).unwrap(), &trust.unwrap()).unwrap();
    assert!(wallet.begin_filling(now(), seed("batch")));
    let request = wallet.filling_request(&certificate(), &key("operator")).unwrap();
    let issued = post(QuestionKind::Tokens, &request);
    wallet.finish_filling(&request, &issued, now()).unwrap();
    wallet
}

fn ask(circuit: &dyn Circuit, resource: Resource, octets: &[u8]) -> Result<Vec<u8>, Failure> {
    runtime().block_on(circuit.ask(resource, octets, WITHIN))
}

fn direct(service: &Service, tls: &Arc<ClientConfig>) -> Arc<dyn Circuit> {
    let permitted = permit(channel::Kind::Direct, true).unwrap();
    Direct::new(permitted, service.place(), tls.clone(), None).unwrap().open()
}

fn open_group(wallet: &mut Wallet, circuit: &dyn Circuit) -> (TokenHash, Vec<u8>, Group) {
    let (token, request) = wallet.begin_spending(now(), &seed("spend")).unwrap();
    let answer = ask(circuit, Resource::Group, &request).unwrap();
    (token, request, wallet.finish_spending(token, &answer).unwrap())
}

/// A user's attach in a group, as the operator sees it: the question, and the session.
fn attach(folder: &Path, group: &Group, circuit: &dyn Circuit) -> (Vec<u8>, OperatorSession) {
    let state = VeilStorage::open(&folder.join("veil.db")).unwrap().load(now()).unwrap();
    let (id, private) = state.epochs.last().unwrap();
    let mut sim = UserSim {
        user: user(),
        broker: domain(),
        network: PlmnId::TEST,
        broker_key: key("broker").verifying_key(),
        epoch: EpochKey { id: *id, public: private.share() },
        signing: key("alice"),
        counter: state.users[0].user.counters.parts().0,
    };
    let (user, request) = UserAttach::begin(&mut sim, group.hash(), &seed("attach")).unwrap();
    let contract =
        Contract { broker: domain(), broker_key: key("broker").verifying_key(), network: PlmnId::TEST };
    let (asked, question) = OperatorAttach::ask(contract, request, &seed("operator")).unwrap();
    let question = question.sign(group).unwrap();
    let answer = ask(circuit, Resource::Attach, &question).unwrap();
    let challenging = asked.answer(&answer, now()).unwrap();
    let responding = user.challenge(&challenging.challenge().to_octets(), now()).unwrap();
    (question, challenging.respond(responding.response()).unwrap())
}

#[test] // chapter 4.4.1, 4.4.2, 4.4.5
fn a_token_is_issued_spent_and_reported_once_also_by_a_broker_that_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    let service = Service::start(folder);
    let circuit = direct(&service, &tls);
    let mut wallet = wallet(&service, &tls);
    let (_, request, group) = open_group(&mut wallet, &*circuit);
    let (question, session) = attach(folder, &group, &*circuit);
    let (of, presence) = (session.grant.grant.request, session.presence.clone());
    let report = group.report(domain(), (of, &presence), usage_units(1_500_000), [7; 32]).to_octets();
    let other = group.report(domain(), (of, &presence), 9, [8; 32]).to_octets();
    let taken = ReportAnswer::Taken.to_octets();
    assert_eq!(ask(&*circuit, Resource::Report, &report).unwrap(), taken);
    let answer = ask(&*circuit, Resource::Attach, &question).unwrap();
    drop((circuit, service));

    let service = Service::start(folder);
    let circuit = direct(&service, &tls);
    assert_eq!(
        ask(&*circuit, Resource::Attach, &question).unwrap(),
        answer,
        "the same question, the same answer"
    );
    assert!(matches!(
        GroupAnswer::parse(&ask(&*circuit, Resource::Group, &request).unwrap()).unwrap(),
        GroupAnswer::Opened { .. }
    ));
    // Another request of the same token.
    let mut again = GroupRequest::parse(&request).unwrap();
    again.nonce = [9; 16];
    let refused = GroupAnswer::parse(&ask(&*circuit, Resource::Group, &again.to_octets()).unwrap()).unwrap();
    assert!(matches!(refused, GroupAnswer::Refused(GroupError::NotIssued)), "its MAC is of another nonce");
    assert_eq!(ask(&*circuit, Resource::Report, &report).unwrap(), taken, "the same report again");
    let refused = ReportAnswer::Refused(ReportError::Reported).to_octets();
    assert_eq!(ask(&*circuit, Resource::Report, &other).unwrap(), refused);
    let billed = VeilStorage::open(&folder.join("veil.db")).unwrap().billed().unwrap();
    assert_eq!((billed.len(), billed[0].sessions, billed[0].units), (1, 1, 2));
}

#[test] // two nodes of a broker: the row that was inserted first counts
fn a_token_that_another_node_has_opened_is_not_opened_twice() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    let (first, second) = (Service::start(folder), Service::start(folder));
    let mut wallet = wallet(&first, &tls);
    let mut copy = Wallet::parse(&wallet.to_octets()).unwrap();
    let (to_first, to_second) = (direct(&first, &tls), direct(&second, &tls));
    let (token, request) = wallet.begin_spending(now(), &seed("one")).unwrap();
    // A wallet that was copied spends the same token by another request, at a node that has not seen the first.
    let other = (0..).find_map(|n| {
        let (of, request) =
            Wallet::parse(&copy.to_octets()).unwrap().begin_spending(now(), &seed(&format!("{n}")))?;
        (of == token).then_some(request)
    });
    let other = other.unwrap();
    assert_ne!(request, other);
    let opened = ask(&*to_first, Resource::Group, &request).unwrap();
    assert!(matches!(GroupAnswer::parse(&opened).unwrap(), GroupAnswer::Opened { .. }));
    let refused = ask(&*to_second, Resource::Group, &other).unwrap();
    assert_eq!(GroupAnswer::parse(&refused).unwrap(), GroupAnswer::Refused(GroupError::DoubleSpent));
    assert_eq!(second.counted("double_spent"), 1);
    assert_eq!(
        ask(&*to_second, Resource::Group, &request).unwrap(),
        opened,
        "the same request, the same answer"
    );
    assert_eq!(VeilStorage::open(&folder.join("veil.db")).unwrap().spent().unwrap(), 1);
    assert!(copy.begin_spending(now(), &seed("rest")).is_some());
}

fn relays(folder: &Path, tls: &Arc<ClientConfig>, broker: TlsEndpoint) -> (Server, Server, EpochKey) {
    let secret = PrivateKey::new([3; 32]);
    let gateway_key = EpochKey { id: 1, public: secret.share() };
    let here = |n| SocketAddr::from(([127, 0, 0, n], 0));
    let record = |name: &str| Recorder::open(&folder.join(format!("{name}.record"))).unwrap();
    let role = RelayRole::Gateway { key: (1, secret), broker };
    let gateway =
        relay::start(here(31), own_tls(folder, NAMES[2]), role, tls.clone(), 2_000, record("gateway"))
            .unwrap();
    let role = RelayRole::Relay {
        gateway: TlsEndpoint { domain: NAMES[2].parse().unwrap(), address: gateway.address },
    };
    let relay =
        relay::start(here(30), own_tls(folder, NAMES[1]), role, tls.clone(), 20, record("relay")).unwrap();
    (relay, gateway, gateway_key)
}

#[test] // chapter 4.4.2, step iii
fn a_relay_pair_carries_an_attach_and_neither_relay_knows_operator_and_request() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    let service = Service::start(folder);
    let mut wallet = wallet(&service, &tls);
    let (relay, gateway, gateway_key) = relays(folder, &tls, service.place());
    let place = TlsEndpoint { domain: NAMES[1].parse().unwrap(), address: relay.address };
    let own = [127, 0, 0, 5].into();
    let permitted = permit(channel::Kind::RelayPair, false).unwrap();
    let pair = RelayPair::new(permitted, (place, gateway_key), tls.clone(), Some(own)).unwrap();
    let circuit = pair.open();
    let (_, request, group) = open_group(&mut wallet, &*circuit);
    let (question, _) = attach(folder, &group, &*circuit);
    // The broker sees the gateway's address, the relay the operator's and nothing that it asks.
    let at_broker = record::read(&folder.join("record")).unwrap();
    let anonymous = at_broker.iter().filter(|e| e.what == "group request" || e.what == "operator request");
    let peers: Vec<_> = anonymous.map(|e| e.peer.split(':').next().unwrap()).collect();
    assert_eq!(peers, ["127.0.0.31", "127.0.0.31"]);
    let at_relay = record::read(&folder.join("relay.record")).unwrap();
    assert!(at_relay.iter().all(|e| e.peer.starts_with("127.0.0.5:")));
    let has = |octets: &[u8]| {
        at_relay.iter().any(|e| e.octets.windows(16).any(|w| octets.windows(16).any(|o| o == w)))
    };
    assert!(!has(&request) && !has(&question));
    // A relay without its gateway, and no relay: nothing leaves by another way.
    let asked = at_broker.len();
    drop(gateway);
    assert_eq!(ask(&*pair.open(), Resource::Group, &request), Err(Failure::Closed));
    drop(relay);
    assert_eq!(ask(&*pair.open(), Resource::Group, &request), Err(Failure::Closed));
    assert_eq!(record::read(&folder.join("record")).unwrap().len(), asked);
}

#[test]
fn what_is_no_request_of_a_veiled_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    let service = Service::start(folder);
    let circuit = direct(&service, &tls);
    for resource in [Resource::Group, Resource::Attach, Resource::Report] {
        let answer = ask(&*circuit, resource, b"no message").unwrap();
        assert_eq!(answer[2..], if resource == Resource::Attach { [3, 1] } else { [2, 1] }, "{resource:?}");
    }
    let long = vec![0; 64 << 10];
    assert_eq!(ask(&*circuit, Resource::Group, &long), Err(Failure::Closed), "HTTP refuses it");
    let (relay, ..) = relays(folder, &tls, service.place());
    let (client, place) =
        (Client::new(tls), TlsEndpoint { domain: NAMES[1].parse().unwrap(), address: relay.address });
    let sent = runtime().block_on(client.post(("/veil/v1/relay", 64), &place, b"not sealed", WITHIN));
    assert!(sent.unwrap_err().to_string().contains("400"));
}

/// What the running broker has taken up, within the time that its commands promise.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..100 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}");
}

#[test] // LOCA, chapter 4.4.2, second class; TS 33.501 §6.1.3.2
fn an_ordinary_user_that_is_added_to_a_running_broker_is_challenged_once_and_billed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    let mut service = Service::start(folder);
    let mut circuit = direct(&service, &tls);
    let mut wallet = wallet(&service, &tls);
    let (_, _, group) = open_group(&mut wallet, &*circuit);
    let supi: whimbrel_ids::Supi = "999700000000042".parse().unwrap();
    let keys = UsimKeys { k: [1; 16], opc: [2; 16] };
    let (revoked, class, prepaid, intercept, sqn) = (false, 0, false, false, Sqn::ZERO);
    let functions = keys.functions();
    let bob = HomeUser { user: UserId([0xb0; 16]), functions, revoked, class, prepaid, intercept, sqn };
    let mut storage = VeilStorage::open(&folder.join("veil.db")).unwrap();
    storage.add_home_user(&NamedHomeUser { name: "bob".into(), supi, keys, user: bob.clone() }).unwrap();

    let msin = whimbrel_security::suci::msin_of_supi(PlmnId::TEST, supi).unwrap();
    let suci = |n: u8| {
        let output = suci_key().public_key().conceal(&[n; 32], &msin).unwrap();
        Suci::new(1, 1, output.into()).unwrap()
    };
    let contract =
        Contract { broker: domain(), broker_key: key("broker").verifying_key(), network: PlmnId::TEST };
    let question = |n: u8| HomeAttach::ask(contract.clone(), suci(n), None, &seed(&format!("home {n}")));
    let mut n = 0;
    until("the user is not taken up", || {
        n += 1;
        let (asked, question) = question(n);
        let answer = ask(&*circuit, Resource::Attach, &group.sign_home(&question)).unwrap();
        asked.answer(&answer, now()).is_ok()
    });
    // The same question after a restart, and the UE's answer to it.
    let (asked, question) = question(n);
    let signed = group.sign_home(&question);
    let answer = ask(&*circuit, Resource::Attach, &signed).unwrap();
    drop((circuit, service));
    service = Service::start(folder);
    circuit = direct(&service, &tls);
    assert_eq!(ask(&*circuit, Resource::Attach, &signed).unwrap(), answer);
    let challenging = asked.answer(&answer, now()).unwrap();
    let (vector, name) = (challenging.vector(), ServingNetworkName::new(PlmnId::TEST));
    let mut usim = Usim::new(bob.functions, UsimSqn::default());
    let proved = usim.authenticate(&Rand(vector.rand), &Autn(vector.autn), &name).unwrap();
    let session = challenging.respond(proved.res_star.octets()).unwrap();
    let of = (session.grant.grant.request, &session.presence);
    let report = group.report(domain(), of, 4, [9; 32]).to_octets();
    assert_eq!(ask(&*circuit, Resource::Report, &report).unwrap(), ReportAnswer::Taken.to_octets());
    let billed = storage.billed().unwrap();
    assert_eq!((billed.len(), &billed[0].user[..], billed[0].units), (1, "bob", 4));
    let state = storage.load(now()).unwrap();
    assert!(state.home_users[0].user.sqn > Sqn::ZERO, "no SQN is used twice");
    assert_eq!(storage.sessions_of("bob", 1).unwrap()[0].session, of.0);
    // A revoked user is refused.
    storage.revoke("bob").unwrap();
    until("the revocation is not taken up", || {
        n += 1;
        let (asked, question) = HomeAttach::ask(contract.clone(), suci(n), None, &seed(&format!("late {n}")));
        let answer = ask(&*circuit, Resource::Attach, &group.sign_home(&question)).unwrap();
        asked.answer(&answer, now()).is_err()
    });
}

#[test] // chapter 4.4.4
fn an_agencys_order_reaches_the_operator_and_its_answer_the_agency() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    let service = Service::start(folder);
    let circuit = direct(&service, &tls);
    let mut wallet = wallet(&service, &tls);
    let (_, _, group) = open_group(&mut wallet, &*circuit);
    attach(folder, &group, &*circuit);
    let mut storage = VeilStorage::open(&folder.join("veil.db")).unwrap();
    let session = storage.sessions_of("alice", 1).unwrap().remove(0);
    let from = now().as_secs();
    let validity = Validity { from, until: from + 60 };
    let order = |by: &str| {
        Order::signed(OrderKind::Locate, (session.session, session.group), validity, [1; 16], &key(by))
    };
    storage.add_order(&order("no agency")).unwrap();
    storage.add_order(&order("agency")).unwrap();
    let poll = || {
        let request = group.orders(domain(), [3; 16]).to_octets();
        Orders::parse(&ask(&*circuit, Resource::Orders, &request).unwrap()).unwrap().0
    };
    until("the order is not passed on", || !poll().is_empty());
    assert_eq!(poll(), [order("agency")], "that of no known agency is not");
    let agency = PrivateKey::new([0xa9; 32]);
    let place = Finding::Place([7; 14]);
    let answer = group.answer(domain(), (order("agency").hash(), &agency.share()), &place, &seed("answer"));
    let answer = answer.unwrap();
    let taken = ask(&*circuit, Resource::OrderAnswer, &answer.to_octets()).unwrap();
    assert_eq!(taken, ReportAnswer::Taken.to_octets());
    assert_eq!((poll(), service.counted("orders")), (Vec::new(), 1));
    let kept = storage.orders().unwrap().into_iter().find_map(|(_, answer)| answer).unwrap();
    assert_eq!(kept.open(&agency), Some(place));
    // The answer is durable: a broker that begins again asks no more.
    drop((circuit, service));
    let service = Service::start(folder);
    let circuit = direct(&service, &tls);
    let request = group.orders(domain(), [4; 16]).to_octets();
    assert_eq!(Orders::parse(&ask(&*circuit, Resource::Orders, &request).unwrap()), Ok(Orders::default()));
}

#[test]
fn a_key_that_is_begun_or_ended_by_a_command_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    provision(folder);
    let mut storage = VeilStorage::open(&folder.join("veil.db")).unwrap();
    let ids = |storage: &VeilStorage| {
        storage.load(now()).unwrap().epochs.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(storage.begin_epoch().unwrap(), 2);
    assert_eq!(ids(&storage), [1, 2]);
    assert!(!storage.end_epoch(2).unwrap(), "the current one stays");
    assert!(storage.end_epoch(1).unwrap() && !storage.end_epoch(1).unwrap());
    assert_eq!(ids(&storage), [2]);
    assert!(storage.revoke("no user").is_err());
}

#[test]
fn a_relay_takes_its_quota_from_one_sender_and_serves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    let service = Service::start(folder);
    let (relay, ..) = relays(folder, &tls, service.place());
    let place = TlsEndpoint { domain: NAMES[1].parse().unwrap(), address: relay.address };
    let status = |last: u8, requests: usize| {
        let client = Client::new(tls.clone()).from_address(Some([127, 0, 0, last].into()));
        let post = async {
            let mut statuses = Vec::new();
            for _ in 0..requests {
                let answer = client.post(("/veil/v1/relay", 64), &place, b"not sealed", WITHIN).await;
                statuses.push(answer.unwrap_err().to_string());
            }
            statuses
        };
        runtime().block_on(post)
    };
    // 20 a second, and the burst of five seconds: more than that do not come through, however slowly the host sends them.
    let greedy = status(6, 400);
    assert!(greedy[0].contains("400") && greedy.iter().any(|e| e.contains("429")), "{greedy:?}");
    assert!(status(7, 3).iter().all(|e| e.contains("400")), "another sender");
}
