//! Two CTAs, one of which is played by the test. Where they need an etcd, they pass without a word to it if the program is not installed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use whimbrel_control::udm::{AuthenticationSubscription, Directory, Subscribers, Subscription, UdmError};
use whimbrel_ids::{Instant, Supi};
use whimbrel_link::{Event, Events, LinkId, Links};
use whimbrel_resilience::cta_replica::PrimaryCta;
use whimbrel_resilience::detector::Incarnation;
use whimbrel_resilience::link::{HeartbeatKey, Hello, Role, ToCtaReplica, ToPrimaryCta};
use whimbrel_resilience::membership::{CtaInstance, Home};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{Cta, Input, Order, Outbox};
use whimbrel_security::SqnOffset;

use super::at_etcd::{Etcd, Listed};
use super::{cluster_of_pair, pool_of_pair};
use crate::clock;
use crate::cluster::heartbeat::HeartbeatResponder;
use crate::cluster::pair_replica::{PairReplica, ReplicaEvent};
use crate::cluster::witness::Witness;
use crate::cluster::{PairPrimary, Pool};
use crate::config::{self, PairOf};
use crate::console::{Console, Counter};
use crate::entropy::SystemEntropy;
use crate::log_limiter::Lines;

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

struct Nobody;

impl Subscribers for Nobody {
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

type Serving = PrimaryCta<Nobody, SystemEntropy>;

/// A CTA that serves no UE, and ue_queries its UPF for an association when it is time.
fn serving(pool: &Pool) -> Serving {
    let config = config::default();
    let directory = Directory::new(config.control().amf.plmn, config.home_network_keys());
    let entropy = SystemEntropy::new().unwrap();
    let told = Arc::new(config.control());
    PrimaryCta::new(Cta::of_region(told, directory, Nobody, entropy, (), pool.rings(), clock::now()))
}

fn free() -> SocketAddr {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// One of a pair that serves, in a life that etcd has listed or that is made up.
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
    let home = Home { term: 1, primary: active, cta_replica: None };
    PairPrimary::new(
        witness,
        HeartbeatResponder::start(free()).unwrap(),
        home,
        (vec![LOCALHOST], LOCALHOST),
        vec![],
    )
}

#[test] // SIGSTOP and SIGCONT: the CTA replica has taken over meanwhile, and what it said before lies in the socket
fn what_a_cta_replica_said_before_one_was_held_up_lets_nothing_leave() {
    let mut pool = pool_of_pair();
    let (mut active, mut pair) = (serving(&pool), pair(&pair_of(None), false));
    let (now, mut out) = (clock::now(), Outbox::default());
    active.snapshot().unwrap();
    active.wait();
    active.handle(now, Input::Tick, &mut out).unwrap();
    assert_eq!((out.pfcp.len(), active.waiting()), (0, 1), "the UPF is to be asked for an association");
    assert!(!pair.was_away(Duration::from_millis(1), active.last(), active.waiting()));
    assert!(pair.was_away(Duration::from_secs(6), active.last(), active.waiting()));
    pair.said(now, ToPrimaryCta::Held(active.last()), &mut active, &mut pool, &mut out);
    assert_eq!(out.pfcp.len(), 0, "the UPF may have heard something else by now");
    active.handle(now, Input::Waited(Duration::ZERO), &mut out).unwrap();
    pair.said(now, ToPrimaryCta::Held(active.last()), &mut active, &mut pool, &mut out);
    assert_eq!(out.pfcp.len(), 1, "it is the CTA replica still");
}

#[test] // its link ended again just after it was resumed: it calls once more
fn what_a_cpf_is_to_hear_waits_for_its_next_call_and_comes_once() {
    let mut pool = pool_of_pair();
    let mut peer = super::Caller::new(&pool, Hello::own(Role::Cpf).to_octets());
    peer.tell(&super::join());
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
        active.order(now, Order::Configure(Arc::new(config::default().control())), &mut out);
        out.cpfs.iter().map(|(to, _)| *to).collect::<Vec<_>>()
    };
    assert_eq!(configure(&mut active), [cpf], "the first message of its link");
    active.parts(cpf);
    assert_eq!(configure(&mut active), [], "it would not come");
    assert!(active.snapshot().is_none(), "no CTA replica follows while one is awaited");
    assert_eq!(active.resume(cpf, 1).expect("its link goes on").len(), 1, "the second");
    assert_eq!(configure(&mut active), [cpf], "the third");
    active.parts(cpf);
    assert_eq!(
        active.resume(cpf, 1).expect("its link goes on").len(),
        2,
        "it lacks what it lacked, and the third"
    );
    active.parts(CpfId(2));
    assert!(active.resume(CpfId(2), 0).is_none(), "nobody has that number");
}

fn pair_of(etcd: Option<&Etcd>) -> PairOf {
    let etcd = etcd.map_or_else(|| "http://127.0.0.1:9".into(), |etcd| etcd.client.clone());
    let access = whimbrel_etcd::Access { endpoints: vec![etcd], ..Default::default() };
    PairOf { etcd: access, name: "west".into(), number: 1, home: 1, lease: Duration::from_secs(5) }
}

#[test] // a CTA replica that panics over what it gets, and is started again and again
fn a_cta_replica_that_cannot_follow_does_not_hold_ues_up_again_at_once() {
    let Some(etcd) = Etcd::new("copies") else { return };
    let two = Listed::new(&etcd, 2, free());
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
        pair.said(now, offer, &mut active, &mut pool, &mut out);
        let copied = pair.follower().is_some();
        pair.cta_replica_lost(&mut active, &mut pool, &mut out);
        copied
    };
    assert!(follow(&mut pair, now));
    assert!(!follow(&mut pair, now), "UEs have the time");
    assert!(follow(&mut pair, now + Duration::from_secs(60)));
    pair.hastens();
    assert!(follow(&mut pair, now), "one that stops gives away what it has");
}

#[test] // its heartbeats pass, and nothing else in one direction or both
fn a_cta_replica_that_takes_nothing_is_given_up_and_not_for_what_this_one_slept() {
    let Some(etcd) = Etcd::new("takes") else { return };
    let two = Listed::new(&etcd, 2, free());
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
        pair.said(now, offer, &mut active, &mut pool, &mut out);
        let before = active.handle(now, Input::Tick, &mut out).unwrap();
        pair.record(now, &mut pool, &before);
        pair.said(now, ToPrimaryCta::Held(0), &mut active, &mut pool, &mut out);
        let waits = active.handle(now, Input::Waited(Duration::ZERO), &mut out).unwrap();
        pair.record(now, &mut pool, &waits);
        let mut follows = |pair: &mut PairPrimary, now| {
            pair.turn(now, &mut active, &mut pool, &mut out);
            pair.follower().is_some()
        };
        assert!(follows(&mut pair, now + Duration::from_millis(400)));
        if !sleeps.is_zero() {
            pair.was_away(sleeps, 2, 1);
            assert!(follows(&mut pair, now + sleeps + Duration::from_millis(450)), "it had no time");
        }
        assert!(!follows(&mut pair, now + sleeps + Duration::from_millis(550)));
    }
}

#[test] // what it is there for comes after that
fn who_called_just_before_a_cta_serves_is_heard() {
    let (of, console) = (pair_of(None), Console::new(clock::now()).unwrap());
    let cluster = cluster_of_pair(of.clone());
    let mut standby =
        PairReplica::open(&of, &cluster, (vec![LOCALHOST], LOCALHOST), None, console.clone()).unwrap();
    let mut links = Links::open(whimbrel_link::Settings::new(Hello::own(Role::Cpf).to_octets())).unwrap();
    let link = links.connect(clock::now(), standby.address().unwrap());
    let (mut events, end) = (Events::default(), clock::now() + Duration::from_secs(20));
    while !standby.has_callers() || links.counters().up == 0 {
        assert!(clock::now() < end, "it does not come to it");
        standby.turn(clock::now());
        standby.flush();
        links.drain(clock::now(), &mut events);
        links.flush();
    }
    let active = CtaInstance { cta: of.number, incarnation: Incarnation(1) };
    let succession = standby.succeed(Home { term: 1, primary: active, cta_replica: None }, None);
    let (told, mut entropy) = (Arc::new(config::default().control()), SystemEntropy::new().unwrap());
    let (mut pool, _pair) = succession.enter(clock::now(), &cluster, told, &mut entropy, console).unwrap();
    let mut octets = Vec::new();
    super::join().write(&mut octets);
    links.send(link, &octets);
    while pool.rings().members().count() == 0 {
        assert!(clock::now() < end, "it is not heard");
        links.drain(clock::now(), &mut events);
        links.flush();
        pool.turn(clock::now());
        pool.flush();
    }
}

/// The links of a CTA that etcd lists as the one that serves, and another that is to follow it.
fn one_that_serves_and_another(etcd: &Etcd) -> (Links, Listed, PairReplica, Arc<Console>) {
    let mut settings = whimbrel_link::Settings::new(Hello::own(Role::Cta).to_octets());
    settings.listen = Some("127.0.0.1:0".parse().unwrap());
    let links = Links::open(settings).unwrap();
    let one = Listed::new(etcd, 1, links.local_addr().unwrap());
    one.serves();
    let of = PairOf { number: 2, ..pair_of(Some(etcd)) };
    let (cluster, console) = (cluster_of_pair(of.clone()), Console::new(clock::now()).unwrap());
    let standby =
        PairReplica::open(&of, &cluster, (vec![LOCALHOST], LOCALHOST), None, console.clone()).unwrap();
    (links, one, standby, console)
}

#[test]
fn what_a_cta_replica_holds_it_says_once() {
    let Some(etcd) = Etcd::new("held") else { return };
    let (mut links, _one, mut standby, console) = one_that_serves_and_another(&etcd);
    let mut serves = Serves { link: None, held: Vec::new() };
    let mut events = Events::default();
    let end = clock::now() + Duration::from_secs(20);
    let (mut holds, mut told) = (false, 0);
    while told < 10 {
        assert!(clock::now() < end, "it does not come to it");
        holds |= standby.turn(clock::now()).iter().any(|h| matches!(h, ReplicaEvent::Snapshot(_)));
        if holds {
            told += 1;
            standby.held(if told <= 8 { 5 } else { 6 });
        }
        standby.flush();
        links.drain(clock::now(), &mut events);
        events.iter().for_each(|event| serves.takes(event, &mut links));
        links.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    let nonsense = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    nonsense.send_to(b"no heartbeat", standby.address().unwrap()).unwrap();
    while serves.held.len() < 2 || console.metrics.sample("whimbrel_heartbeats_ignored_total") == 0 {
        assert!(clock::now() < end, "{:?}", serves.held);
        standby.turn(clock::now());
        links.drain(clock::now(), &mut events);
        events.iter().for_each(|event| serves.takes(event, &mut links));
    }
    assert_eq!(serves.held, [5, 6]);
}

#[test] // its lease ran out while it made its copy: etcd did not hear it
fn one_that_etcd_lists_no_more_is_watched_where_it_was_called() {
    let Some(etcd) = Etcd::new("watched") else { return };
    let (mut links, one, mut standby, _) = one_that_serves_and_another(&etcd);
    let heartbeats = std::net::UdpSocket::bind(links.local_addr().unwrap()).unwrap();
    heartbeats.set_nonblocking(true).unwrap();
    let (mut serves, mut events) = (Serves { link: None, held: Vec::new() }, Events::default());
    let end = clock::now() + Duration::from_secs(20);
    while serves.link.is_none() {
        assert!(clock::now() < end, "it does not follow");
        standby.turn(clock::now());
        standby.flush();
        links.drain(clock::now(), &mut events);
        events.iter().for_each(|event| serves.takes(event, &mut links));
        if serves.link.is_none() {
            links.flush();
        }
    }
    one.leaves(1);
    std::thread::sleep(Duration::from_millis(300)); // so that the standby has heard that, too
    links.flush();
    while heartbeats.recv(&mut [0; 256]).is_err() {
        assert!(clock::now() < end, "no heartbeat comes");
        standby.turn(clock::now());
        standby.flush();
        links.drain(clock::now(), &mut events);
        links.flush();
    }
}

#[test] // another build's snapshot, say: five times a second a copy, and some lines
fn a_cta_replica_that_cannot_follow_calls_less_and_less_often_and_is_told_once() {
    let Some(etcd) = Etcd::new("begins-anew") else { return };
    let (mut links, _one, mut standby, console) = one_that_serves_and_another(&etcd);
    let (lines, mut events) = (Arc::new(AtomicUsize::new(0)), Events::default());
    let (mut later, mut put_off, mut first) = (Duration::ZERO, Vec::new(), None);
    let end = clock::now() + Duration::from_secs(20);
    tracing::subscriber::with_default(Lines(lines.clone()), || {
        while put_off.len() < 8 {
            assert!(clock::now() < end, "it does not come to it: {put_off:?}");
            let now = clock::now() + later;
            if standby.turn(now).iter().any(|heard| matches!(heard, ReplicaEvent::Snapshot(_))) {
                standby.give_up(now, "snapshot", "it is of no use");
                put_off.push(standby.put_off());
                later += standby.put_off();
                first.get_or_insert(lines.load(Ordering::Relaxed));
            }
            standby.flush();
            links.drain(clock::now(), &mut events);
            events.iter().for_each(|event| Serves { link: None, held: Vec::new() }.takes(event, &mut links));
            links.flush();
        }
    });
    assert_eq!(put_off, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000].map(Duration::from_millis));
    assert_eq!(console.metrics.counter(Counter::CtaReplicaRestarts), 8);
    let told = lines.load(Ordering::Relaxed) - first.expect("it follows");
    assert_eq!(told, 7, "each time that it follows, and not again that it cannot");
    standby.give_up(clock::now() + later + Duration::from_secs(61), "snapshot", "it is of no use");
    assert_eq!(standby.put_off(), Duration::from_millis(500), "it could follow for a while");
}

/// One that serves, as far as its CTA replica sees.
struct Serves {
    link: Option<LinkId>,
    held: Vec<u64>,
}

impl Serves {
    fn takes(&mut self, event: Event<'_>, links: &mut Links) {
        let Event::Frame { link, octets } = event else { return };
        match ToPrimaryCta::read(octets).unwrap() {
            ToPrimaryCta::Follow { .. } => {
                assert!(self.link.replace(link).is_none(), "it follows once");
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
