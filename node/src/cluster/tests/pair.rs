//! Two CTAs, one of which is played by the test. Tests that need etcd pass without it where the program is not installed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use whimbrel_control::udm::{AuthenticationSubscription, Directory, Subscribers, Subscription, UdmError};
use whimbrel_ids::{Instant, Supi};
use whimbrel_link::{Event, LinkEvents, LinkId, Links};
use whimbrel_resilience::cta_replica::PrimaryCta;
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::link::{HeartbeatKey, Hello, LinkRole, ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{CtaHome, CtaInstance};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{Cta, CtaOrder, Input, Outbox};
use whimbrel_security::SqnOffset;

use super::at_etcd::{Etcd, ListedCta};
use super::{cluster_of_pair, pool_of_pair};
use crate::clock;
use crate::cluster::heartbeat::HeartbeatResponder;
use crate::cluster::pair_replica::{PairReplica, ReplicaEvent};
use crate::cluster::witness::Witness;
use crate::cluster::{CpfPool, PairPrimary};
use crate::config::{self, PairOf};
use crate::entropy::SystemEntropy;
use crate::log_limiter::Lines;
use crate::observation::{Console, Metric};

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

struct NoSubscribers;

impl Subscribers for NoSubscribers {
    fn authentication(&mut self, _: Supi) -> Result<AuthenticationSubscription, UdmError> {
        Err(UdmError::UserNotFound)
    }

    fn subscription(&mut self, _: Supi) -> Result<Arc<Subscription>, UdmError> {
        Err(UdmError::UserNotFound)
    }

    fn save_sqn_offset(&mut self, _: Supi, _: SqnOffset) -> Result<(), UdmError> {
        Err(UdmError::UserNotFound)
    }
}

type Serving = PrimaryCta<NoSubscribers, SystemEntropy>;

/// A CTA without UEs that asks its UPF for an association when that is due.
fn serving(pool: &CpfPool) -> Serving {
    let config = config::default();
    let directory = Directory::new(config.control().amf.plmn, config.home_network_keys());
    let entropy = SystemEntropy::new().unwrap();
    let control = Arc::new(config.control());
    PrimaryCta::new(Cta::of_region(
        control,
        directory,
        NoSubscribers,
        entropy,
        (),
        pool.rings(),
        clock::now(),
    ))
}

fn free() -> SocketAddr {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The primary of a pair, in an incarnation that etcd has registered or that is made up.
fn pair(of: &PairOf, listed: bool) -> PairPrimary {
    let cluster = cluster_of_pair(of.clone());
    let witness = Witness::start(of, &cluster, free()).unwrap();
    let made_up = CtaInstance { cta: of.number, incarnation: Incarnation(1) };
    let active = loop {
        match witness.me() {
            Some(me) => break me,
            None if !listed => break made_up,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let home = CtaHome { term: 1, primary: active, cta_replica: None };
    PairPrimary::new(
        witness,
        HeartbeatResponder::start(free()).unwrap(),
        home,
        (vec![LOCALHOST], LOCALHOST),
        vec![],
    )
}

#[test] // SIGSTOP and SIGCONT: the CTA replica has taken over meanwhile, and its earlier confirmation is still in the socket
fn a_confirmation_from_before_the_primary_was_held_up_releases_no_output() {
    let mut pool = pool_of_pair();
    let (mut active, mut pair) = (serving(&pool), pair(&pair_of(None), false));
    let (now, mut out) = (clock::now(), Outbox::default());
    active.snapshot().unwrap();
    active.begin_holding();
    active.handle(now, Input::Tick, &mut out).unwrap();
    assert_eq!((out.pfcp.len(), active.waiting()), (0, 1), "the UPF is to be asked for an association");
    assert!(!pair.record_stall(Duration::from_millis(1), active.last(), active.waiting()));
    assert!(pair.record_stall(Duration::from_secs(6), active.last(), active.waiting()));
    pair.handle_replica_message(now, ToPrimaryCta::Held(active.last()), &mut active, &mut pool, &mut out);
    assert_eq!(out.pfcp.len(), 0, "the UPF may have got something else by now");
    active.handle(now, Input::Waited(Duration::ZERO), &mut out).unwrap();
    pair.handle_replica_message(now, ToPrimaryCta::Held(active.last()), &mut active, &mut pool, &mut out);
    assert_eq!(out.pfcp.len(), 1, "it is still the CTA replica");
}

#[test] // its link ended again just after it had resumed: it reconnects once more
fn messages_for_a_disconnected_cpf_wait_until_it_resumes_and_come_once() {
    let mut pool = pool_of_pair();
    let mut peer = super::Caller::new(&pool, Hello::own(LinkRole::Cpf).to_octets());
    peer.send(&super::join());
    while pool.rings().members().count() == 0 {
        pool.turn(clock::now());
        pool.flush();
        peer.links.drain(clock::now(), &mut peer.events);
        peer.links.flush();
    }
    let cpf = CpfId(1);
    let (mut active, now) = (serving(&pool), clock::now());
    let configure = |active: &mut Serving| {
        let mut out = Outbox::default();
        active.order(now, CtaOrder::Configure(Arc::new(config::default().control())), &mut out);
        out.cpfs.iter().map(|(to, _)| *to).collect::<Vec<_>>()
    };
    assert_eq!(configure(&mut active), [cpf], "the first message of its link");
    active.suspend_cpf(cpf);
    assert_eq!(configure(&mut active), [], "it would not arrive");
    assert!(active.snapshot().is_none(), "no replica begins while a CPF may reconnect");
    assert_eq!(active.resume(cpf, 1).expect("its link continues").len(), 1, "the second");
    assert_eq!(configure(&mut active), [cpf], "the third");
    active.suspend_cpf(cpf);
    assert_eq!(active.resume(cpf, 1).expect("its link continues").len(), 2, "the second, and the third");
    active.suspend_cpf(CpfId(2));
    assert!(active.resume(CpfId(2), 0).is_none(), "no CPF has that number");
}

fn pair_of(etcd: Option<&Etcd>) -> PairOf {
    let etcd = etcd.map_or_else(|| "http://127.0.0.1:9".into(), |etcd| etcd.client.clone());
    let access = whimbrel_etcd::EtcdAccess { endpoints: vec![etcd], ..Default::default() };
    PairOf {
        etcd: access,
        name: "west".into(),
        number: 1,
        home: 1,
        lease: Duration::from_secs(5),
        host: None,
    }
}

#[test] // a CTA replica that panics on what it gets, and is restarted again and again
fn after_a_snapshot_the_next_one_is_made_only_after_a_pause() {
    let Some(etcd) = Etcd::new("copies") else { return };
    let two = ListedCta::new(&etcd, 2, free());
    let mut pool = pool_of_pair();
    let (mut active, mut pair) = (serving(&pool), pair(&pair_of(Some(&etcd)), true));
    let place = two.place(2);
    while !pair.witness().lists(place) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let now = clock::now();
    let mut follow = |pair: &mut PairPrimary, now: Instant| {
        let (endpoints, smf) = (vec![LOCALHOST], LOCALHOST);
        let offer = ToPrimaryCta::Follow { place, address: free(), endpoints, smf };
        let mut out = Outbox::default();
        pair.handle_replica_message(now, offer, &mut active, &mut pool, &mut out);
        let copied = pair.other().is_some();
        pair.cta_replica_lost(&mut active, &mut pool, &mut out);
        copied
    };
    assert!(follow(&mut pair, now));
    assert!(!follow(&mut pair, now), "it is within the pause");
    assert!(follow(&mut pair, now + Duration::from_secs(60)));
    pair.allow_snapshot_now();
    assert!(follow(&mut pair, now), "a CTA that stops makes one at once");
}

#[test] // its heartbeats pass, and nothing else in one direction or both
fn a_replica_that_confirms_no_input_is_lost_but_not_for_time_in_which_the_primary_slept() {
    let Some(etcd) = Etcd::new("takes") else { return };
    let two = ListedCta::new(&etcd, 2, free());
    let place = two.place(2);
    for sleeps in [Duration::ZERO, Duration::from_secs(6)] {
        let mut pool = pool_of_pair();
        let (mut active, mut pair) = (serving(&pool), pair(&pair_of(Some(&etcd)), false));
        while !pair.witness().lists(place) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (now, mut out) = (clock::now(), Outbox::default());
        let (endpoints, smf) = (vec![LOCALHOST], LOCALHOST);
        let offer = ToPrimaryCta::Follow { place, address: free(), endpoints, smf };
        pair.handle_replica_message(now, offer, &mut active, &mut pool, &mut out);
        let before = active.handle(now, Input::Tick, &mut out).unwrap();
        pair.replicate(now, &mut pool, &before);
        pair.handle_replica_message(now, ToPrimaryCta::Held(0), &mut active, &mut pool, &mut out);
        let waits = active.handle(now, Input::Waited(Duration::ZERO), &mut out).unwrap();
        pair.replicate(now, &mut pool, &waits);
        let mut follows = |pair: &mut PairPrimary, now| {
            pair.turn(now, &mut active, &mut pool, &mut out);
            pair.other().is_some()
        };
        assert!(follows(&mut pair, now + Duration::from_millis(400)));
        if !sleeps.is_zero() {
            pair.record_stall(sleeps, 2, 1);
            assert!(follows(&mut pair, now + sleeps + Duration::from_millis(450)), "it had no time");
        }
        assert!(!follows(&mut pair, now + sleeps + Duration::from_millis(550)));
    }
}

#[test] // its first message comes after that
fn a_cpf_that_connects_just_before_a_promotion_joins() {
    let (of, console) = (pair_of(None), Console::new(clock::now()).unwrap());
    let cluster = cluster_of_pair(of.clone());
    let mut replica =
        PairReplica::open(&of, &cluster, (vec![LOCALHOST], LOCALHOST), None, console.clone()).unwrap();
    let mut links =
        Links::open(whimbrel_link::LinkSettings::new(Hello::own(LinkRole::Cpf).to_octets())).unwrap();
    let link = links.connect(clock::now(), replica.address().unwrap());
    let (mut events, end) = (LinkEvents::default(), clock::now() + Duration::from_secs(20));
    while !replica.has_pending_links() || links.counters().up == 0 {
        assert!(clock::now() < end, "the condition does not hold in time");
        replica.turn(clock::now());
        replica.flush();
        links.drain(clock::now(), &mut events);
        links.flush();
    }
    let active = CtaInstance { cta: of.number, incarnation: Incarnation(1) };
    let promotion = replica.promote(CtaHome { term: 1, primary: active, cta_replica: None }, None);
    let (control, mut entropy) = (Arc::new(config::default().control()), SystemEntropy::new().unwrap());
    let (mut pool, _pair) = promotion.enter(clock::now(), &cluster, control, &mut entropy, console).unwrap();
    let mut octets = Vec::new();
    super::join().write(&mut octets);
    links.send(link, &octets);
    while pool.rings().members().count() == 0 {
        assert!(clock::now() < end, "it does not join");
        links.drain(clock::now(), &mut events);
        links.flush();
        pool.turn(clock::now());
        pool.flush();
    }
}

/// The links of a CTA that etcd names as the primary, and a second CTA that is to replicate it.
fn primary_and_replica(etcd: &Etcd) -> (Links, ListedCta, PairReplica, Arc<Console>) {
    let mut settings = whimbrel_link::LinkSettings::new(Hello::own(LinkRole::Cta).to_octets());
    settings.listen = Some("127.0.0.1:0".parse().unwrap());
    let links = Links::open(settings).unwrap();
    let one = ListedCta::new(etcd, 1, links.local_addr().unwrap());
    one.serves();
    let of = PairOf { number: 2, ..pair_of(Some(etcd)) };
    let (cluster, console) = (cluster_of_pair(of.clone()), Console::new(clock::now()).unwrap());
    let replica =
        PairReplica::open(&of, &cluster, (vec![LOCALHOST], LOCALHOST), None, console.clone()).unwrap();
    (links, one, replica, console)
}

#[test]
fn an_input_is_confirmed_once() {
    let Some(etcd) = Etcd::new("held") else { return };
    let (mut links, _one, mut replica, console) = primary_and_replica(&etcd);
    let mut primary = PrimaryStub { link: None, held: Vec::new() };
    let mut events = LinkEvents::default();
    let end = clock::now() + Duration::from_secs(20);
    let (mut loaded, mut turns) = (false, 0);
    while turns < 10 {
        assert!(clock::now() < end, "the condition does not hold in time");
        loaded |= replica.turn(clock::now()).iter().any(|h| matches!(h, ReplicaEvent::Snapshot(_)));
        if loaded {
            turns += 1;
            replica.confirm(if turns <= 8 { 5 } else { 6 });
        }
        replica.flush();
        links.drain(clock::now(), &mut events);
        events.iter().for_each(|event| primary.takes(event, &mut links));
        links.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    let nonsense = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    nonsense.send_to(b"no heartbeat", replica.address().unwrap()).unwrap();
    while primary.held.len() < 2 || console.metrics.sample(Metric::HeartbeatsIgnored) == 0 {
        assert!(clock::now() < end, "{:?}", primary.held);
        replica.turn(clock::now());
        links.drain(clock::now(), &mut events);
        events.iter().for_each(|event| primary.takes(event, &mut links));
    }
    assert_eq!(primary.held, [5, 6]);
}

#[test] // its lease expired while it made its snapshot
fn a_primary_that_etcd_no_longer_lists_is_monitored_at_the_address_of_its_link() {
    let Some(etcd) = Etcd::new("watched") else { return };
    let (mut links, one, mut replica, _) = primary_and_replica(&etcd);
    let heartbeats = std::net::UdpSocket::bind(links.local_addr().unwrap()).unwrap();
    heartbeats.set_nonblocking(true).unwrap();
    let (mut primary, mut events) = (PrimaryStub { link: None, held: Vec::new() }, LinkEvents::default());
    let end = clock::now() + Duration::from_secs(20);
    while primary.link.is_none() {
        assert!(clock::now() < end, "it does not begin to replicate");
        replica.turn(clock::now());
        replica.flush();
        links.drain(clock::now(), &mut events);
        events.iter().for_each(|event| primary.takes(event, &mut links));
        if primary.link.is_none() {
            links.flush();
        }
    }
    one.leaves(1);
    std::thread::sleep(Duration::from_millis(300)); // so that the replica knows that, too
    links.flush();
    while heartbeats.recv(&mut [0; 256]).is_err() {
        assert!(clock::now() < end, "no heartbeat comes");
        replica.turn(clock::now());
        replica.flush();
        links.drain(clock::now(), &mut events);
        links.flush();
    }
}

#[test] // with a snapshot of another build, for instance: it took a snapshot five times a second
fn a_cta_that_cannot_replicate_pauses_longer_each_time_and_is_logged_once() {
    let Some(etcd) = Etcd::new("retries") else { return };
    let (mut links, _one, mut replica, console) = primary_and_replica(&etcd);
    let (lines, mut events) = (Arc::new(AtomicUsize::new(0)), LinkEvents::default());
    let (mut later, mut pauses, mut first) = (Duration::ZERO, Vec::new(), None);
    let end = clock::now() + Duration::from_secs(20);
    crate::log_limiter::with_subscriber(Lines(lines.clone()), || {
        while pauses.len() < 8 {
            assert!(clock::now() < end, "the pauses are too few: {pauses:?}");
            let now = clock::now() + later;
            if replica.turn(now).iter().any(|event| matches!(event, ReplicaEvent::Snapshot(_))) {
                replica.give_up(now, "snapshot", "it cannot be used");
                pauses.push(replica.retry_pause());
                later += replica.retry_pause();
                first.get_or_insert(lines.load(Ordering::Relaxed));
            }
            replica.flush();
            links.drain(clock::now(), &mut events);
            events
                .iter()
                .for_each(|event| PrimaryStub { link: None, held: Vec::new() }.takes(event, &mut links));
            links.flush();
        }
    });
    assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000].map(Duration::from_millis));
    assert_eq!(console.metrics.value(Metric::CtaReplicaRestarts), 8);
    let logged = lines.load(Ordering::Relaxed) - first.expect("it replicates");
    assert_eq!(logged, 7, "one line each time that it begins, and none again that it cannot");
    replica.give_up(clock::now() + later + Duration::from_secs(61), "snapshot", "it cannot be used");
    assert_eq!(replica.retry_pause(), Duration::from_millis(500), "it could replicate for a while");
}

/// A primary, as far as its replica sees.
struct PrimaryStub {
    link: Option<LinkId>,
    held: Vec<u64>,
}

impl PrimaryStub {
    fn takes(&mut self, event: Event<'_>, links: &mut Links) {
        let Event::Frame { link, octets } = event else { return };
        match ToPrimaryCta::read(octets).unwrap() {
            ToPrimaryCta::Follow { .. } => {
                assert!(self.link.replace(link).is_none(), "it offers itself once");
                let heartbeats = HeartbeatKey([7; 32]);
                for message in [
                    ToCtaReplica::Begin { octets: 1, heartbeats, endpoints: vec![] },
                    ToCtaReplica::Piece(&[1]),
                ] {
                    let mut octets = Vec::new();
                    message.write(&mut octets);
                    links.send(link, &octets);
                }
            }
            ToPrimaryCta::Held(number) => self.held.push(number),
            ToPrimaryCta::Pieces(_) => {}
        }
    }
}
