//! Two aggregators, one of which is played by the test. Where they need an etcd, they pass without a word to it if the program is not installed.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_link::{Event, Events, LinkId, Links};
use whimbrel_resilience::link::{HeartbeatKey, Hello, Role, ToActive, ToMirror};

use super::at_etcd::{Etcd, Listed};
use super::cluster_of_pair;
use crate::clock;
use crate::cluster::standby::{Heard, Standby};
use crate::config::PairOf;
use crate::console::Console;

const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn pair_of(etcd: Option<&Etcd>) -> PairOf {
    let etcd = etcd.map_or_else(|| "http://127.0.0.1:9".into(), |etcd| etcd.client.clone());
    let access = whimbrel_etcd::Access { endpoints: vec![etcd], ..Default::default() };
    PairOf { etcd: access, name: "west".into(), number: 1, home: 1, lease: Duration::from_secs(5) }
}

#[test]
fn what_a_mirror_holds_it_says_once() {
    let Some(etcd) = Etcd::new("held") else { return };
    let mut settings = whimbrel_link::Settings::new(Hello::own(Role::Aggregator).to_octets());
    settings.listen = Some("127.0.0.1:0".parse().unwrap());
    let mut links = Links::open(settings).unwrap();
    let one = Listed::new(&etcd, 1, links.local_addr().unwrap());
    one.serves();
    let of = PairOf { number: 2, ..pair_of(Some(&etcd)) };
    let console = Console::new(clock::now()).unwrap();
    let mut standby =
        Standby::open(&of, &cluster_of_pair(of.clone()), (vec![LOCALHOST], LOCALHOST), None, console)
            .unwrap();
    let mut serves = Serves { link: None, held: Vec::new() };
    let mut events = Events::default();
    let end = clock::now() + Duration::from_secs(20);
    let (mut holds, mut told) = (false, 0);
    while told < 10 {
        assert!(clock::now() < end, "it does not come to it");
        holds |= standby.turn(clock::now()).iter().any(|h| matches!(h, Heard::Snapshot(_)));
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
    while serves.held.len() < 2 {
        assert!(clock::now() < end, "{:?}", serves.held);
        links.drain(clock::now(), &mut events);
        events.iter().for_each(|event| serves.takes(event, &mut links));
    }
    assert_eq!(serves.held, [5, 6]);
}

/// One that serves, as far as its mirror sees.
struct Serves {
    link: Option<LinkId>,
    held: Vec<u64>,
}

impl Serves {
    fn takes(&mut self, event: Event<'_>, links: &mut Links) {
        let Event::Frame { link, octets } = event else { return };
        match ToActive::read(octets).unwrap() {
            ToActive::Follow { .. } => {
                assert!(self.link.replace(link).is_none(), "it follows once");
                let heartbeats = HeartbeatKey([7; 32]);
                for message in
                    [ToMirror::Begin { octets: 1, heartbeats, endpoints: vec![] }, ToMirror::Piece(&[1])]
                {
                    let mut octets = Vec::new();
                    message.write(&mut octets);
                    links.send(link, &octets);
                }
            }
            ToActive::Held(number) => self.held.push(number),
            ToActive::Pieces(_) => {}
        }
    }
}
