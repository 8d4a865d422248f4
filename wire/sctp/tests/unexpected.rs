//! Duplicate, unexpected and out-of-the-blue packets: RFC 9260 §5.2, §8.4, §8.5.

use super::sim;

use proptest::prelude::*;
use sim::craft::*;
use sim::{Net, Seen, address, pair};
use std::time::Duration;
use whimbrel_sctp::{DownReason, Input, Path, State};

/// Node 0 with a peer made by hand.
fn with_hand() -> (Net, Hand) {
    let mut net = Net::new(1);
    net.add(1, |_| {});
    let hand = Hand::open(&mut net, 5000, 100_000);
    assert!(net.nodes[0].up().is_some());
    net.nodes[0].seen.clear();
    (net, hand)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test] // RFC 9260 §5.2.1, §5.2.4 B: both open at once, at any offset, over any delay: one association
    fn simultaneous_open(seed in any::<u64>(), offset_us in 0u64..3000, jitter_us in 0u64..4000) {
        let mut net = Net::new(seed);
        let (a, b) = (net.add(2, |_| {}), net.add(2, |_| {}));
        net.weather.jitter_us = jitter_us;
        let id_a = net.connect(a, b);
        net.run(Duration::from_micros(offset_us));
        let there = net.nodes[b].endpoint.associations().next();
        // Unless the other's handshake was done already.
        let id_b = there.unwrap_or_else(|| net.connect(b, a));
        net.seconds(30);
        for (n, id) in [(a, id_a), (b, id_b)] {
            let ups = net.nodes[n].seen.iter().filter(|s| matches!(s, Seen::Up(..))).count();
            prop_assert_eq!(ups, 1);
            prop_assert_eq!(net.nodes[n].down(), None);
            prop_assert_eq!(net.nodes[n].endpoint.status(id).unwrap().state, State::Established);
            net.send(n, id, 3, b"hello");
        }
        net.seconds(5);
        prop_assert_eq!(net.nodes[a].data().len(), 1);
        prop_assert_eq!(net.nodes[b].data().len(), 1);
    }
}

#[test] // RFC 9260 §5.2.2, §5.2.4 A: a peer that lost its state comes back under the same name
fn a_rebooted_peer_restarts_the_association() {
    let (mut net, _, server) = pair(2);
    net.send(1, server, 0, b"never acknowledged");
    net.reboot(0);
    let client = net.connect(0, 1);
    net.seconds(1);
    assert!(net.nodes[0].up().is_some());
    let restarts = net.nodes[1].seen.iter().filter(|s| **s == Seen::Restarted(server)).count();
    assert_eq!((restarts, net.nodes[1].down()), (1, None));
    assert_eq!(net.nodes[1].endpoint.status(server).unwrap().queued_octets, 0, "what was queued is gone");
    net.send(0, client, 1, b"up");
    net.send(1, server, 1, b"down");
    net.seconds(1);
    assert_eq!(net.nodes[1].data().last().unwrap().1, b"up");
    assert_eq!(net.nodes[0].data(), [(1, b"down".to_vec())]);
    assert_eq!(net.nodes[1].endpoint.associations().count(), 1);
}

#[test] // RFC 9260 §5.2.2: a restart may not bring new addresses, or anyone could take an association over
fn restart_with_new_addresses_is_refused() {
    let (mut net, hand) = with_hand();
    let unknown = parameter(5, &[10, 9, 9, 9]);
    let init = chunk(INIT, 0, &init_value(77, 9000, (1, 1), 5, &unknown));
    let answer = hand.give(&mut net, &packet(hand.port, 0, std::slice::from_ref(&init)));
    assert_eq!((kinds(&answer[0]), cause(&answer[0])), (vec![ABORT], 11));
    assert_eq!(word(&answer[0], 4), 77, "with the INIT's own tag");
    // The same from an address that is not the association's, naming it.
    let ours = parameter(5, &[10, 0, 0, 100]);
    let init = chunk(INIT, 0, &init_value(77, 9000, (1, 1), 5, &ours));
    let answer = give_from(&mut net, address(55, 0), &packet(hand.port, 0, &[init]));
    assert_eq!((kinds(&answer[0]), cause(&answer[0])), (vec![ABORT], 11));
    assert!(net.nodes[0].seen.is_empty());
    let answer = hand.send(&mut net, &[data(3, hand.tsn, 0, 0, b"still here")]);
    assert_eq!(kinds(&answer[0]), [SACK]);
}

#[test] // RFC 9260 §5.2.4 D: the COOKIE ACK was lost
fn a_repeated_cookie_echo_is_answered_again() {
    let (mut net, _, _) = pair(3);
    let echo = net.sent.iter().find(|s| kinds(&s.2)[0] == COOKIE_ECHO).unwrap().clone();
    net.nodes[1].seen.clear();
    let before = net.sent.len();
    let path = Path { local: echo.1, remote: echo.0, udp_port: 0 };
    net.input_and_flush(1, Input::Packet { path, octets: &echo.2 });
    assert_eq!(kinds(&net.sent[before].2), [COOKIE_ACK]);
    assert!(net.nodes[1].seen.is_empty());
}

#[test] // RFC 9260 §5.2.4 C: a cookie of an INIT that was answered twice comes late: silence
fn a_late_cookie_is_discarded() {
    let mut net = Net::new(4);
    net.add(1, |_| {});
    let at = address(99, 0);
    let init = packet(5000, 0, &[chunk(INIT, 0, &init_value(77, 9000, (5, 5), 5, &[]))]);
    let acks: Vec<_> = (0..2).map(|_| chunks(&give_from(&mut net, at, &init)[0])[0].2.clone()).collect();
    let echo = |ack: &[u8]| packet(5000, word(ack, 0), &[chunk(COOKIE_ECHO, 0, &cookie(ack))]);
    assert_eq!(kinds(&give_from(&mut net, at, &echo(&acks[1]))[0]), [COOKIE_ACK]);
    net.nodes[0].seen.clear();
    assert!(give_from(&mut net, at, &echo(&acks[0])).is_empty());
    assert!(net.nodes[0].seen.is_empty());
}

#[test] // RFC 9260 §5.1.5, §5.2.6: a cookie that is too old is refused with its age, and a fresh INIT follows
fn a_stale_cookie_is_refused_and_the_client_begins_again() {
    let mut net = Net::new(5);
    let (a, b) = (net.add(1, |_| {}), net.add(1, |c| c.cookie_life = Duration::from_micros(600)));
    net.connect(a, b);
    net.run(Duration::from_millis(3));
    let errors = net.sent.iter().filter(|s| kinds(&s.2) == [ERROR]).count();
    assert!(errors >= 1, "COOKIE ECHO takes longer than the cookie lives");
    assert!(net.sent.iter().filter(|s| kinds(&s.2) == [INIT]).count() >= 2);
    net.seconds(100);
    assert_eq!(net.nodes[a].down(), Some(DownReason::NoAnswer), "not for ever");
    net.weather.delay_us = 100;
    net.connect(a, b);
    net.seconds(1);
    assert!(net.nodes[b].up().is_some());
}

#[test] // RFC 9260 §5.2.3, §5.2.5: an INIT ACK or COOKIE ACK out of place changes nothing
fn stray_acknowledgements_are_ignored() {
    let (mut net, hand) = with_hand();
    let init_ack = chunk(INIT_ACK, 0, &init_value(9, 9000, (1, 1), 5, &parameter(7, b"cookie")));
    assert!(hand.send(&mut net, &[init_ack]).is_empty());
    assert!(hand.send(&mut net, &[chunk(COOKIE_ACK, 0, &[])]).is_empty());
    assert!(net.nodes[0].seen.is_empty());
    assert_eq!(kinds(&hand.send(&mut net, &[data(3, hand.tsn, 0, 0, b"x")])[0]), [SACK]);
}

#[test] // RFC 9260 §5.2.2, §5.2.4: INIT and COOKIE ECHO of a rebooted peer while we wait for SHUTDOWN COMPLETE
fn a_closing_association_answers_init_with_shutdown_ack() {
    let (mut net, hand) = with_hand();
    let init = packet(hand.port, 0, &[chunk(INIT, 0, &init_value(78, 9000, (5, 5), 5, &[]))]);
    let early = chunks(&hand.give(&mut net, &init)[0])[0].2.clone();
    let cum = (hand.peer_tsn - 1).to_be_bytes();
    let answer = hand.send(&mut net, &[chunk(SHUTDOWN, 0, &cum)]);
    assert_eq!(kinds(&answer[0]), [SHUTDOWN_ACK]);
    assert_eq!(kinds(&hand.give(&mut net, &init)[0]), [SHUTDOWN_ACK]);
    let echo = packet(hand.port, word(&early, 0), &[chunk(COOKIE_ECHO, 0, &cookie(&early))]);
    let answer = hand.give(&mut net, &echo);
    assert_eq!((kinds(&answer[0]), cause(&answer[0])), (vec![SHUTDOWN_ACK, ERROR], 10));
    hand.send(&mut net, &[chunk(SHUTDOWN_COMPLETE, 0, &[])]);
    assert_eq!(net.nodes[0].seen, [Seen::Down(id_of(&net), DownReason::Shutdown)]);
}

fn id_of(net: &Net) -> whimbrel_sctp::AssociationId {
    match net.nodes[0].seen.last() {
        Some(Seen::Down(id, _)) => *id,
        other => panic!("{other:?}"),
    }
}

#[test] // RFC 9260 §8.4
fn out_of_the_blue_packets_get_the_standards_answer() {
    let mut net = Net::new(6);
    net.add(1, |_| {});
    let at = address(99, 0);
    let mut give = |chunks: &[Vec<u8>]| give_from(&mut net, at, &packet(5000, 0xabcd, chunks));
    for silent in [ABORT, SHUTDOWN_COMPLETE, COOKIE_ACK] {
        assert!(give(&[chunk(silent, 0, &[])]).is_empty(), "chunk {silent}");
    }
    let stale = parameter(3, &[0, 0, 0, 1]);
    assert!(give(&[chunk(ERROR, 0, &stale)]).is_empty());
    assert!(give(&[data(3, 1, 0, 0, b"x"), chunk(ABORT, 0, &[])]).is_empty(), "an ABORT anywhere");
    let answer = give(&[chunk(SHUTDOWN_ACK, 0, &[])]);
    assert_eq!(chunks(&answer[0]), [(SHUTDOWN_COMPLETE, 1, vec![])]);
    assert_eq!(word(&answer[0], 4), 0xabcd, "the tag is reflected, and the T bit says so");
    for other in [data(3, 1, 0, 0, b"x"), sack(1, 1), chunk(HEARTBEAT, 0, &[]), chunk(SHUTDOWN, 0, &[0; 4])] {
        let answer = give(&[other]);
        assert_eq!(chunks(&answer[0]), [(ABORT, 1, vec![])]);
        assert_eq!(word(&answer[0], 4), 0xabcd);
    }
    assert!(give(&[chunk(INIT, 0, &init_value(1, 9000, (1, 1), 1, &[]))]).is_empty(), "INIT with a tag");
    assert!(give(&[chunk(COOKIE_ECHO, 0, &[7; 120])]).is_empty(), "a cookie of another endpoint");
}

#[test] // RFC 9260 §8.5, §8.5.1
fn only_the_right_tag_is_believed() {
    let (mut net, hand) = with_hand();
    let wrong = |chunks: &[Vec<u8>], tag| packet(hand.port, tag, chunks);
    for tag in [0, hand.tag ^ 1, hand.own_tag] {
        assert!(hand.give(&mut net, &wrong(&[data(3, hand.tsn, 0, 0, b"x")], tag)).is_empty());
        assert!(hand.give(&mut net, &wrong(&[chunk(ABORT, 0, &[])], tag)).is_empty());
    }
    assert!(hand.give(&mut net, &wrong(&[chunk(ABORT, 1, &[])], hand.tag)).is_empty(), "T bit, wrong tag");
    assert!(net.nodes[0].seen.is_empty());
    hand.give(&mut net, &wrong(&[chunk(ABORT, 1, &[])], hand.own_tag));
    assert_eq!(net.nodes[0].down(), Some(DownReason::AbortedByPeer { cause: None }));
}

#[test] // RFC 9260 §5.1, §3.3.2: what an INIT may not say
fn a_bad_init_opens_nothing() {
    let mut net = Net::new(7);
    net.add(1, |_| {});
    let at = address(99, 0);
    let mut give = |value: &[u8]| give_from(&mut net, at, &packet(5000, 0, &[chunk(INIT, 0, value)]));
    assert!(give(&init_value(0, 9000, (1, 1), 1, &[])).is_empty(), "tag zero");
    assert!(give(&[1, 2, 3]).is_empty(), "short");
    for value in [
        init_value(5, 9000, (0, 1), 1, &[]),
        init_value(5, 9000, (1, 0), 1, &[]),
        init_value(5, 1499, (1, 1), 1, &[]),
    ] {
        assert_eq!(cause(&give(&value)[0]), 7);
    }
    let host_name = parameter(11, b"gnb.example\0");
    assert_eq!(cause(&give(&init_value(5, 9000, (1, 1), 1, &host_name))[0]), 5);
    let bundled = [chunk(INIT, 0, &init_value(5, 9000, (1, 1), 1, &[])), data(3, 1, 0, 0, b"x")];
    assert!(give_from(&mut net, at, &packet(5000, 0, &bundled)).is_empty(), "INIT must be alone");
    assert_eq!(net.nodes[0].endpoint.associations().count(), 0);
}

#[test] // RFC 9260 §3.2.1: unknown parameters are skipped, reported, or end the list, as their high bits say
fn unknown_parameters_of_init() {
    let mut net = Net::new(8);
    net.add(1, |_| {});
    let reported = |net: &mut Net, kind: u16| {
        let parameters = [parameter(kind, b"abc"), parameter(5, &[10, 7, 7, 7])].concat();
        let init = chunk(INIT, 0, &init_value(5, 9000, (1, 1), 1, &parameters));
        let answer = give_from(net, address(99, 0), &packet(5000, 0, &[init]));
        let value = chunks(&answer[0])[0].2.clone();
        let report = parameter(8, &parameter(kind, b"abc"));
        let whole = report[..4 + 7].to_vec();
        value.windows(whole.len()).any(|w| w[4..] == whole[4..] && w[..2] == whole[..2])
    };
    assert!(!reported(&mut net, 0x3333));
    assert!(reported(&mut net, 0x7333));
    assert!(!reported(&mut net, 0xb333));
    assert!(reported(&mut net, 0xc000));
}

#[test] // RFC 9260 §3.2: unknown chunks likewise
fn unknown_chunks() {
    let (mut net, hand) = with_hand();
    let mut tsn = hand.tsn;
    for (kind, reported, goes_on) in
        [(0x3e, false, false), (0x7e, true, false), (0xbe, false, true), (0xfe, true, true)]
    {
        let answer =
            hand.send(&mut net, &[chunk(kind, 0, b"what"), data(3, tsn, 0, (tsn - hand.tsn) as u16, b"x")]);
        let kinds: Vec<u8> = answer.iter().flat_map(|p| kinds(p)).collect();
        assert_eq!(kinds.contains(&ERROR), reported, "{kind:#x}");
        assert_eq!(kinds.contains(&SACK), goes_on, "{kind:#x}");
        tsn += u32::from(goes_on);
    }
}

#[test] // a client that lost the race for its INIT ACK gets ABORT, for no endpoint listens
fn connecting_to_a_peer_that_does_not_listen() {
    let mut net = Net::new(9);
    let (a, b) = (net.add(1, |_| {}), net.add(1, |c| c.accept_inbound = false));
    net.connect(a, b);
    net.seconds(1);
    assert_eq!(net.nodes[a].down(), Some(DownReason::AbortedByPeer { cause: None }));
    assert_eq!(net.nodes[b].endpoint.associations().count(), 0);
}

#[test] // RFC 9260 §5.1.6: T1-init gives up in the end
fn connecting_to_a_closed_port() {
    let mut net = Net::new(10);
    let (a, b) = (net.add(1, |_| {}), net.add(1, |_| {}));
    net.cut = vec![address(1, 0)];
    net.connect(a, b);
    net.seconds(120);
    assert_eq!(net.nodes[a].down(), Some(DownReason::NoAnswer));
    assert_eq!(net.sent.len(), 9, "the first and eight more");
    assert_eq!(net.nodes[a].endpoint.next_deadline(), None);
}
