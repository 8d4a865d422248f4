//! An AMF with two endpoints, one after the other of which is lost: TS 38.412 §7, TS 38.413 §8.7.3.2.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_ngap::{
    AmfConfigurationUpdate, AmfTnlAssociationToAddItem, AmfTnlAssociationToRemoveItem,
    CpTransportLayerInformation, Message, PPID, RanConfigurationUpdateAcknowledge,
};
use whimbrel_ran::edge::{Clock, GnbPlace, Mode, RunnerConfig, Silent};
use whimbrel_sctp_io::{AssociationId, Config, Event, Events, Transport, TransportSettings};

use crate::network::Network;
use crate::scenario::{SOCKETS, fleet, gnb, scenario, ues};

const PORT: u16 = 38412;
/// Nothing of a UE is under way after so long a silence.
const AT_REST: Duration = Duration::from_millis(60);

fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(127, 0, 9, 100 + host as u8).into()
}

fn information(host: usize) -> CpTransportLayerInformation {
    let IpAddr::V4(address) = address(host) else { panic!("it is an IPv4 address") };
    CpTransportLayerInformation::EndpointIpAddress(address.into())
}

/// How a host ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its associations are aborted.
    Aborted,
    /// Without a word: the other host says so.
    Silent,
    /// Likewise, with a message that it had got and not acknowledged.
    Unheard,
}

/// One AMF on two hosts, of which one serves.
struct Pair<'a> {
    network: &'a mut Network,
    hosts: [Option<Transport>; 2],
    serves: usize,
    /// The gNB's association with each host, once the AMF knows whose it is.
    lines: [Option<AssociationId>; 2],
    /// Messages of UEs that the host that serves has taken.
    taken: usize,
    last: Instant,
    switches: usize,
    end: End,
    /// The host that serves ends at once.
    ends: bool,
    /// Messages of each host's association that are acknowledged.
    released: [u64; 2],
    /// What is to come again.
    lost: VecDeque<Vec<u8>>,
}

impl Pair<'_> {
    fn open(host: usize) -> Transport {
        let mut endpoint = Config::new(PORT);
        endpoint.local_addresses = vec![address(host)];
        let mut settings = TransportSettings::new(endpoint);
        settings.mode = Mode::Udp;
        let mut transport = Transport::open(&settings, [host as u8; 32], Clock::default().now()).unwrap();
        assert!(transport.hold_acknowledgements(true));
        transport
    }

    fn turn(&mut self, now: Instant, events: &mut Events) {
        for host in 0..2 {
            let Some(transport) = &mut self.hosts[host] else { continue };
            transport.drain(now, events);
            for event in events.iter() {
                match event {
                    Event::Data { association, stream, octets, .. } => {
                        self.take(now, host, association, stream, octets);
                        if !self.ends || host != self.serves {
                            self.released[host] += 1;
                            let transport = self.hosts[host].as_mut().unwrap();
                            transport.release(association, self.released[host]);
                        }
                    }
                    Event::Down { .. } => self.lines[host] = None,
                    _ => {}
                }
            }
            self.hosts[host].as_mut().unwrap().flush(now);
        }
    }

    fn take(&mut self, now: Instant, host: usize, from: AssociationId, stream: u16, octets: &[u8]) {
        let answers = match Message::decode(octets).unwrap() {
            Message::RanConfigurationUpdate(m) => {
                assert!(m.global_ran_node_id.is_some() && stream == 0 && host != self.serves);
                self.lines[host] = Some(from);
                vec![(0, Message::from(RanConfigurationUpdateAcknowledge::new()).to_vec())]
            }
            Message::AmfConfigurationUpdateAcknowledge(_) => Vec::new(),
            message => {
                assert_eq!(host, self.serves, "{} to the host that does not serve", message.name());
                let other = self.lines[1 - host].is_some();
                if self.end == End::Unheard && other && (self.taken > 2 || self.ends) {
                    self.ends = true;
                    return self.lost.push_back(octets.to_vec());
                }
                if let Some(lost) = self.lost.pop_front() {
                    assert_eq!(octets, lost, "it is repeated first");
                }
                (self.taken, self.last) = (self.taken + 1, now);
                let mut answers = self.network.ngap(stream, octets);
                if let Message::NgSetupRequest(_) = message {
                    self.lines[host] = Some(from);
                    answers.push((0, Self::announcement(1 - host)));
                }
                answers
            }
        };
        let transport = self.hosts[host].as_mut().unwrap();
        for (stream, octets) in answers {
            transport.send(from, stream, PPID, &octets).unwrap();
        }
    }

    fn announcement(host: usize) -> Vec<u8> {
        let mut update = AmfConfigurationUpdate::new();
        update.amf_tnl_association_to_add_list = vec![AmfTnlAssociationToAddItem::new(information(host), 0)];
        Message::from(update).to_vec()
    }

    /// Once the UEs are idle and the gNB knows the other host, the serving host ends and returns as the further one.
    fn switch(&mut self, now: Instant) {
        let rests = self.end != End::Unheard && self.taken > 2 && now.since(self.last) > AT_REST;
        let (from, to) = (self.serves, 1 - self.serves);
        let [Some(_), Some(line)] = [self.lines[from], self.lines[to]] else { return };
        if !rests && !self.ends {
            return;
        }
        let mut ended = self.hosts[from].take().unwrap();
        if self.end == End::Aborted {
            ended.associations().into_iter().for_each(|a| ended.abort(now, a));
            ended.flush(now);
        }
        drop(ended);
        (self.lines[from], self.serves, self.released[from]) = (None, to, 0);
        self.ends = false;
        (self.taken, self.switches) = (0, self.switches + 1);
        self.hosts[from] = Some(Self::open(from));
        let transport = self.hosts[to].as_mut().unwrap();
        if self.end != End::Aborted {
            let mut update = AmfConfigurationUpdate::new();
            update.amf_tnl_association_to_remove_list =
                vec![AmfTnlAssociationToRemoveItem::new(information(from))];
            transport.send(line, 0, PPID, &Message::from(update).to_vec()).unwrap();
        }
        transport.send(line, 0, PPID, &Self::announcement(from)).unwrap();
    }
}

#[test]
fn a_gnb_goes_on_over_the_other_association_as_often_as_one_ends() {
    goes_on(End::Aborted);
}

#[test] // TS 38.413 §8.7.3.2
fn a_gnb_leaves_a_host_that_died_without_a_word_when_the_other_one_says_so() {
    goes_on(End::Silent);
}

#[test] // RFC 9260 §11.1
fn messages_unacknowledged_by_a_failed_host_are_repeated_to_the_other() {
    goes_on(End::Unheard);
}

fn goes_on(end: End) {
    let _alone = SOCKETS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let text = r#"{"ues": 1, "steps": ["register", {"wait": 0.3}, {"session": {"dnn": "internet"}}, {"wait": 0.3},
        "idle", {"wait": 0.3}, "return", {"wait": 0.3}, "deregister"]}"#;
    let scenario = scenario(text);
    let fleet = fleet(scenario.ues);
    let _upf = UdpSocket::bind("127.0.0.9:2152").unwrap();
    let config = RunnerConfig {
        amf: vec![address(0)],
        amf_port: PORT,
        sctp: Mode::Udp,
        sctp_udp_ports: (9899, 9899),
        gnbs: vec![GnbPlace {
            config: gnb(0),
            address: Ipv4Addr::new(127, 0, 9, 1).into(),
            amfs: Vec::new(),
        }],
        ues: ues(&fleet),
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(50),
        hop_delay: Duration::ZERO,
    };
    let done = AtomicBool::new(false);
    let mut network = Network::new(&fleet);
    let hosts = [0, 1].map(|host| Some(Pair::open(host)));
    let mut pair = Pair {
        network: &mut network,
        hosts,
        serves: 0,
        lines: [None; 2],
        taken: 0,
        last: Instant::ZERO,
        switches: 0,
        end,
        ends: false,
        released: [0; 2],
        lost: VecDeque::new(),
    };
    let reports = std::thread::scope(|s| {
        s.spawn(|| {
            let (clock, mut events) = (Clock::default(), Events::default());
            while !done.load(Ordering::Relaxed) {
                let now = clock.now();
                pair.turn(now, &mut events);
                pair.switch(now);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let reports = whimbrel_ran::edge::run(&config, &mut Silent);
        done.store(true, Ordering::Relaxed);
        reports
    });
    let report = &reports.unwrap()[0];
    assert!(report.is_clean(), "{}", report.json());
    assert!(pair.lost.is_empty(), "what was lost has come again");
    assert_eq!((report.completed, pair.switches > 1), (1, true), "{} switches", pair.switches);
}
