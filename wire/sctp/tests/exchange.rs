//! Associations that work: opening, data in every size, shutdown, over good and bad networks.

use super::sim;

use proptest::prelude::*;
use sim::{Net, Random, Seen, Weather, address, pair};
use std::time::Duration;
use whimbrel_sctp::{Config, DownReason, Input, RequestRefusal, Send, State};

#[test] // RFC 9260 §5.1: four packets, and streams are the smaller of what both allow
fn an_association_opens_in_two_round_trips() {
    let mut net = Net::new(1);
    let a = net.add(1, |c| c.outbound_streams = 7);
    let b = net.add(1, |c| {
        c.inbound_streams_max = 5;
        c.outbound_streams = 3;
    });
    let id = net.connect(a, b);
    net.run(Duration::from_millis(2));
    assert_eq!(net.sent.len(), 4);
    assert_eq!(net.nodes[a].seen, [Seen::Up(id, vec![address(1, 0)], 3, 5)]);
    assert!(matches!(&net.nodes[b].seen[..], [Seen::Up(_, p, 5, 3)] if *p == [address(0, 0)]));
}

#[test] // RFC 5061 §4.2.6: it reaches only a peer that sends it too; another peer sees no difference
fn an_adaptation_is_agreed_on_by_both_or_not_at_all() {
    let reported = |client: Option<u32>, server: Option<u32>| {
        let mut net = Net::new(7);
        let a = net.add(1, |c| c.adaptation = client);
        let b = net.add(1, |c| c.adaptation = server);
        net.connect(a, b);
        net.run(Duration::from_millis(2));
        [a, b].map(|n| {
            assert!(net.nodes[n].up().is_some());
            net.nodes[n].seen.iter().find_map(|s| if let Seen::Adaptation(v) = s { Some(*v) } else { None })
        })
    };
    assert_eq!(reported(Some(7), Some(7)), [Some(7), Some(7)]);
    assert_eq!(reported(Some(7), Some(8)), [None, Some(7)], "the server may say why not");
    assert_eq!(reported(Some(7), None), [None, Some(7)]);
    assert_eq!(reported(None, Some(7)), [None, None]);
    assert_eq!(reported(None, None), [None, None]);
}

#[test] // RFC 9260 §5.2.4.1: after a restart the adaptation is that of the new INIT
fn a_restart_agrees_on_the_adaptation_again() {
    let mut net = Net::new(8);
    let a = net.add(1, |c| c.adaptation = Some(7));
    let b = net.add(1, |c| c.adaptation = Some(7));
    net.connect(a, b);
    net.seconds(1);
    assert_eq!(net.nodes[b].seen.last(), Some(&Seen::Adaptation(7)));
    net.reboot(a);
    net.connect(a, b);
    net.seconds(1);
    assert!(matches!(net.nodes[b].seen.last(), Some(Seen::Restarted(_))));
}

#[test] // RFC 9260 §6.9: fragments of a large message come back as one
fn messages_of_every_size_arrive_whole() {
    let (mut net, id, _) = pair(2);
    let sizes = [1, 2, 3, 4, 5, 1451, 1452, 1453, 2904, 2905, 60_000, 200_000];
    for (i, size) in sizes.into_iter().enumerate() {
        net.send(0, id, i as u16, &vec![i as u8; size]);
    }
    net.seconds(5);
    let got: Vec<_> = net.nodes[1].data().iter().map(|(s, o)| (*s, o.len())).collect();
    let want: Vec<_> = sizes.into_iter().enumerate().map(|(i, s)| (i as u16, s)).collect();
    assert_eq!(got, want);
    assert_eq!(net.nodes[0].endpoint.status(id).unwrap().queued_octets, 0);
}

#[test] // RFC 9260 §6.2: the acknowledgement rides on the reply
fn reply_and_sack_share_a_packet() {
    let (mut net, id, server) = pair(3);
    net.send(0, id, 0, b"request");
    let before = net.sent.len();
    let octets = net.sent[before - 1].2.clone();
    let path = whimbrel_sctp::Path { local: address(1, 0), remote: address(0, 0), udp_port: 0 };
    net.input(1, Input::Packet { path, octets: &octets });
    assert_eq!(net.sent.len(), before, "nothing leaves before the flush");
    net.send(1, server, 0, b"reply");
    assert_eq!(net.sent.len(), before + 1, "one packet");
    let packet = &net.sent[before].2;
    assert_eq!((packet[12], packet[12 + 16]), (3, 0), "SACK, then DATA");
}

#[test] // RFC 9260 §6.2: configured to wait, a lone DATA is acknowledged after the delay, two at once
fn delayed_sack_waits_for_the_second_packet() {
    let mut net = Net::new(4);
    let (a, b) = (net.add(1, |_| {}), net.add(1, |c| c.sack_delay = Duration::from_millis(200)));
    let id = net.connect(a, b);
    net.seconds(1);
    let before = net.nodes[b].packets;
    net.send(a, id, 0, b"one");
    net.run(Duration::from_millis(100));
    assert_eq!(net.nodes[b].packets, before);
    net.run(Duration::from_millis(150));
    assert_eq!(net.nodes[b].packets, before + 1);
    net.send(a, id, 0, b"two");
    net.send(a, id, 0, b"three");
    net.run(Duration::from_millis(10));
    assert_eq!(net.nodes[b].packets, before + 2);
}

#[test] // RFC 9260 §9.2: what is queued is delivered before the association closes
fn shutdown_delivers_what_is_queued() {
    let (mut net, id, _) = pair(5);
    net.weather.loss_percent = 20;
    for i in 0..100u8 {
        net.send(0, id, 1, &vec![i; 3000]);
    }
    net.input_and_flush(0, Input::Shutdown { association: id });
    assert_eq!(net.nodes[0].endpoint.status(id).unwrap().state, State::ShutdownPending);
    net.seconds(120);
    assert_eq!(net.nodes[1].data().len(), 100);
    assert_eq!(net.nodes[0].down(), Some(DownReason::Shutdown));
    assert_eq!(net.nodes[1].down(), Some(DownReason::Shutdown));
    assert_eq!(net.nodes[0].endpoint.associations().count(), 0);
    assert_eq!(net.nodes[0].endpoint.next_deadline(), None, "nothing is left behind");
}

#[test] // RFC 9260 §9.2: both sides at once
fn simultaneous_shutdown() {
    let (mut net, id, server) = pair(6);
    net.input_and_flush(0, Input::Shutdown { association: id });
    net.input_and_flush(1, Input::Shutdown { association: server });
    net.seconds(10);
    assert_eq!(net.nodes[0].down(), Some(DownReason::Shutdown));
    assert_eq!(net.nodes[1].down(), Some(DownReason::Shutdown));
}

#[test] // RFC 9260 §9.1
fn abort_ends_both_sides_at_once() {
    let (mut net, id, _) = pair(7);
    net.input_and_flush(0, Input::Abort { association: id });
    assert_eq!(net.nodes[0].down(), Some(DownReason::Aborted));
    net.run(Duration::from_millis(10));
    assert_eq!(net.nodes[1].down(), Some(DownReason::AbortedByPeer { cause: Some(12) }));
    net.send(0, id, 0, b"late");
    assert_eq!(
        net.nodes[0].seen.last(),
        Some(&Seen::Refused(RequestRefusal::UnknownAssociation)),
        "stale name"
    );
}

#[test] // RFC 9260 §6.6: an unordered message does not wait, an ordered one does, other streams do not
fn loss_on_one_stream_holds_up_no_other() {
    let (mut net, id, _) = pair(8);
    net.cut = vec![address(1, 0)];
    net.send(0, id, 1, b"lost");
    net.cut.clear();
    net.send(0, id, 1, b"waits");
    net.send(0, id, 2, b"passes");
    let unordered = Send { association: id, stream: 1, ppid: 0, unordered: true, octets: b"overtakes" };
    net.input_and_flush(0, Input::Send(unordered));
    net.run(Duration::from_micros(700)); // before the gaps that they report bring the lost one back
    assert_eq!(net.nodes[1].data(), [(2, b"passes".to_vec()), (1, b"overtakes".to_vec())]);
    net.seconds(3);
    let rest = &net.nodes[1].data()[2..];
    assert_eq!(rest, [(1, b"lost".to_vec()), (1, b"waits".to_vec())]);
}

#[test] // RFC 9260 §7.2.4: three reports of a gap bring the chunk back without a timer
fn fast_retransmit_needs_no_timer() {
    let (mut net, id, _) = pair(9);
    net.cut = vec![address(1, 0)];
    net.send(0, id, 0, b"lost");
    net.cut.clear();
    for _ in 0..3 {
        net.send(0, id, 0, b"more");
    }
    net.run(Duration::from_millis(10));
    assert_eq!(net.nodes[1].data().len(), 4);
    assert_eq!(net.nodes[0].endpoint.counters().data_chunks_retransmitted, 1);
}

/// Sends random messages both ways through a network of the given weather; all must arrive in order.
fn storm(seed: u64, weather: Weather, messages: usize) {
    let mut net = Net::new(seed);
    // In such weather ten losses in a row are ordinary; this is about data, not about patience.
    let patient = |c: &mut Config| (c.association_max_retrans, c.init_max_retrans) = (100, 100);
    let (a, b) = (net.add(1, patient), net.add(1, patient));
    net.weather = weather;
    let client = net.connect(a, b);
    net.seconds(600);
    let server = net.nodes[b].up().expect("the association opens in any weather");
    assert_eq!(net.nodes[a].up(), Some(client), "seed {seed}");
    let mut random = Random(seed);
    let mut expected = [vec![Vec::new(); 8], vec![Vec::new(); 8]];
    for _ in 0..messages {
        let from = random.below(2) as usize;
        let stream = random.below(8) as usize;
        let size = if random.percent(10) { random.below(20_000) } else { random.below(500) } as usize + 1;
        let message: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        net.send(from, [client, server][from], stream as u16, &message);
        expected[from][stream].push(message);
        net.run(Duration::from_micros(random.below(2000)));
    }
    net.seconds(900);
    for (from, expected) in expected.iter().enumerate() {
        let got = net.nodes[1 - from].data();
        for stream in 0..8u16 {
            let of: Vec<_> = got.iter().filter(|(s, _)| *s == stream).map(|(_, o)| o.clone()).collect();
            let want = &expected[usize::from(stream)];
            assert!(of == *want, "seed {seed}: stream {stream} got {} of {}", of.len(), want.len());
        }
    }
    assert!(net.nodes.iter().all(|n| n.down().is_none()), "seed {seed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test] // whatever the network does, each stream keeps its order and loses nothing
    fn storms_lose_nothing(seed in any::<u64>(), loss in 0u64..25, dup in 0u64..20, corrupt in 0u64..10, jitter in 0u64..30_000) {
        let weather = Weather { loss_percent: loss, duplicate_percent: dup, corrupt_percent: corrupt, delay_us: 300, jitter_us: jitter };
        storm(seed, weather, 150);
    }
}

/// The chunk types that `from` sent since `before`, in order.
fn chunk_types(net: &Net, before: usize, from: usize) -> Vec<u8> {
    let own = &net.nodes[from].addresses;
    net.sent[before..].iter().filter(|s| own.contains(&s.0)).flat_map(|s| sim::craft::kinds(&s.2)).collect()
}

#[test] // RFC 9260 §9.2: a stop that leaves time lets the peer acknowledge what is outstanding, and then ends gracefully
fn stop_shuts_down_once_outstanding_data_is_acknowledged() {
    let (mut net, id, _) = pair(20);
    net.send(0, id, 0, b"AMF STATUS INDICATION");
    let by = net.now + Duration::from_millis(500);
    net.input_and_flush(0, Input::Stop { by });
    net.run(Duration::from_millis(5));
    assert_eq!(net.nodes[1].data().len(), 1);
    assert_eq!([net.nodes[0].down(), net.nodes[1].down()], [Some(DownReason::Shutdown); 2]);
    assert_eq!(net.nodes[0].endpoint.next_deadline(), None);
}

#[test] // RFC 9260 §9.1: a peer that does not acknowledge in time gets ABORT at the deadline, not after T5
fn stop_aborts_associations_with_unacknowledged_data_at_the_deadline() {
    let (mut net, id, server) = pair(21);
    net.cut = vec![address(0, 0)]; // neither DATA nor SACK passes
    net.send(0, id, 0, b"outstanding");
    net.send(1, server, 0, b"outstanding");
    net.cut.clear();
    let before = net.sent.len();
    let by = net.now + Duration::from_millis(100); // before T3-rtx sends the DATA again
    net.input_and_flush(0, Input::Stop { by });
    net.run(Duration::from_millis(99));
    assert_eq!(net.nodes[1].down(), None);
    net.run(Duration::from_millis(2));
    assert_eq!(net.nodes[1].down(), Some(DownReason::AbortedByPeer { cause: Some(12) }));
    assert_eq!(chunk_types(&net, before, 0), [sim::craft::ABORT]);
    assert_eq!(net.nodes[0].endpoint.associations().count(), 0);
}

#[test] // RFC 9260 §9.1: without time to wait, and for a handshake that is not complete
fn stop_without_time_aborts_every_association_at_once() {
    let (mut net, id, _) = pair(22);
    let third = net.add(1, |_| {});
    net.connect(0, third);
    net.run(Duration::from_micros(1200)); // INIT ACK is there, COOKIE ACK is not
    net.send(0, id, 0, b"outstanding");
    let now = net.now;
    net.input_and_flush(0, Input::Stop { by: now });
    assert_eq!(net.nodes[0].endpoint.associations().count(), 0);
    net.seconds(1);
    assert_eq!(net.nodes[1].down(), Some(DownReason::AbortedByPeer { cause: Some(12) }));
    assert!(net.nodes[third].up().is_none() || net.nodes[third].down().is_some());
}

#[test] // a peer that comes while the endpoint stops learns that it is not served
fn a_stopped_endpoint_refuses_new_associations() {
    let (mut net, _, _) = pair(23);
    let late = net.add(1, |_| {});
    net.connect(late, 0);
    net.run(Duration::from_micros(600)); // INIT is there, COOKIE ECHO is not
    let by = net.now + Duration::from_millis(500);
    net.input_and_flush(0, Input::Stop { by });
    net.seconds(1);
    assert!(matches!(net.nodes[late].down(), Some(DownReason::AbortedByPeer { .. })));
    net.connect(late, 0);
    net.seconds(1);
    assert!(matches!(net.nodes[late].down(), Some(DownReason::AbortedByPeer { .. })));
    assert_eq!(net.nodes[0].endpoint.associations().count(), 0);
}

#[test] // RFC 9260 §8.4: whatever a peer says to an endpoint that has lost the association is answered with ABORT
fn a_restart_is_noticed_with_the_next_packet_also_over_udp() {
    for udp_port in [0, 9899] {
        let mut net = Net::new(24);
        let (a, b) = (net.add(1, |_| {}), net.add(1, |_| {}));
        let id = net.connect(a, b);
        net.seconds(1);
        net.reboot(b);
        net.send(a, id, 0, b"initial UE message");
        let octets = net.sent.last().expect("it left").2.clone();
        let path = whimbrel_sctp::Path { local: address(1, 0), remote: address(0, 0), udp_port };
        let mut out = whimbrel_sctp::Outbox::default();
        net.nodes[b].endpoint.handle(net.now, Input::Packet { path, octets: &octets }, &mut out);
        let answers: Vec<_> = out.packets.iter().map(|(to, o)| (to.udp_port, o.to_vec())).collect();
        let [(to, abort)] = answers.as_slice() else { panic!("one answer: {answers:?}") };
        assert_eq!(
            (*to, abort[12], abort[13] & 1),
            (udp_port, sim::craft::ABORT, 1),
            "to where it came from"
        );
        net.launch(address(1, 0), address(0, 0), abort.clone());
        net.run(Duration::from_millis(1));
        assert_eq!(net.nodes[a].down(), Some(DownReason::AbortedByPeer { cause: None }));
    }
}

#[test] // RFC 9260 §8.5.1: a successor that knows the peer's tag ends an association before the peer says anything
fn a_successor_aborts_the_associations_of_the_endpoint_before_it() {
    let (mut net, _, _) = pair(25);
    let formers: Vec<_> = net.nodes[1].endpoint.formers().collect();
    let [former] = formers.as_slice() else { panic!("one association: {formers:?}") };
    net.reboot(1);
    let abort = |net: &mut Net, former: &whimbrel_sctp::Former| {
        let mut out = whimbrel_sctp::Outbox::default();
        net.nodes[1].endpoint.abort_former(former, &mut out);
        let packets: Vec<_> = out.packets.iter().map(|(_, o)| o.to_vec()).collect();
        packets.into_iter().for_each(|o| net.launch(address(1, 0), address(0, 0), o));
        net.run(Duration::from_millis(1));
    };
    abort(&mut net, &whimbrel_sctp::Former { peer_tag: former.peer_tag ^ 1, ..*former });
    assert_eq!(net.nodes[0].down(), None, "a tag of another association");
    abort(&mut net, former);
    assert_eq!(net.nodes[0].down(), Some(DownReason::AbortedByPeer { cause: None }));
    // The peer is back: what was remembered does not touch its new association.
    net.connect(0, 1);
    net.seconds(1);
    abort(&mut net, former);
    assert_eq!((net.nodes[1].down(), net.nodes[1].endpoint.associations().count()), (None, 1));
}
