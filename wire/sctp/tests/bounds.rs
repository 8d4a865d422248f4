//! Limits of memory, windows and streams, and what happens at each.

use super::sim;

use sim::craft::*;
use sim::{Net, Seen, address, pair};
use std::time::Duration;
use whimbrel_sctp::{DownReason, Input, RequestRefusal, Send};

const BEGINNING: u8 = 2;
const END: u8 = 1;

/// Node 0 with a small window, and a peer made by hand.
fn small_window() -> (Net, Hand) {
    let mut net = Net::new(1);
    net.add(1, |c| c.receive_window_octets = 10_000);
    let hand = Hand::open(&mut net, 5000, 100_000);
    net.nodes[0].seen.clear();
    (net, hand)
}

/// Cumulative TSN, window and number of gaps of the SACK in an answer.
fn sack_of(answer: &[Vec<u8>]) -> (u32, u32, u16) {
    let all = answer.iter().flat_map(|p| chunks(p));
    let (_, _, v) = all.into_iter().find(|c| c.0 == SACK).expect("a SACK");
    (word(&v, 0), word(&v, 4), u16::from_be_bytes([v[8], v[9]]))
}

#[test] // RFC 9260 §6.2: what does not fit the window is not acknowledged, and the window says so
fn out_of_order_data_is_held_within_the_window() {
    let (mut net, hand) = small_window();
    let t = hand.tsn;
    for i in 1..50 {
        let answer = hand.send(&mut net, &[data(BEGINNING | END, t + i, 0, i as u16, &[7; 1000])]);
        let (cum, window, gaps) = sack_of(&answer);
        assert_eq!((cum, gaps), (t - 1, 1));
        assert!(window <= 10_000 - i.min(9) * 1000);
    }
    assert!(net.nodes[0].data().is_empty());
    let answer = hand.send(&mut net, &[data(BEGINNING | END, t, 0, 0, b"first")]);
    assert_eq!(sack_of(&answer), (t + 9, 10_000, 0), "nine were held, the others come again");
    assert_eq!(net.nodes[0].data().len(), 10);
}

#[test] // many gaps, each a small chunk: the list of gaps is bounded
fn gaps_are_bounded() {
    let mut net = Net::new(2);
    net.add(1, |_| {});
    let hand = Hand::open(&mut net, 5000, 100_000);
    for i in 1..2000 {
        let answer = hand.send(&mut net, &[data(BEGINNING | END, hand.tsn + 2 * i, 0, 2 * i as u16, b"x")]);
        assert_eq!(u32::from(sack_of(&answer).2), i.min(256));
        assert!(answer.iter().all(|p| p.len() <= 1480));
    }
    let far = hand.send(&mut net, &[data(BEGINNING | END, hand.tsn + 70_000, 0, 1, b"x")]);
    assert_eq!(sack_of(&far).2, 256, "too far ahead for a gap block");
}

#[test] // a message that never ends may fill its window twice, no more
fn an_endless_message_ends_the_association() {
    let (mut net, hand) = small_window();
    for i in 0..100 {
        let flags = if i == 0 { BEGINNING } else { 0 };
        let answer = hand.send(&mut net, &[data(flags, hand.tsn + i, 0, 0, &[7; 1000])]);
        if kinds(&answer[0]) == [ABORT] {
            assert_eq!(cause(&answer[0]), 4);
            assert!(i <= 20, "{i}");
            assert_eq!(net.nodes[0].down(), Some(DownReason::OutOfResource));
            return;
        }
    }
    panic!("it took all");
}

#[test] // RFC 9260 §6.9: fragments that arrive in any order make one message
fn fragments_in_reverse_order() {
    let (mut net, hand) = small_window();
    for i in (0..8u32).rev() {
        let flags = if i == 0 { BEGINNING } else { 0 } | if i == 7 { END } else { 0 };
        hand.send(&mut net, &[data(flags, hand.tsn + i, 3, 0, &[i as u8; 100])]);
    }
    let want: Vec<u8> = (0..8).flat_map(|i| [i; 100]).collect();
    assert_eq!(net.nodes[0].data(), [(3, want)]);
}

#[test] // RFC 9260 §6.2, §6.5: DATA without data, and on a stream that does not exist
fn empty_data_and_unknown_streams() {
    let (mut net, hand) = small_window();
    let answer = hand.send(&mut net, &[data(BEGINNING | END, hand.tsn, 10, 0, b"x")]);
    let all: Vec<u8> = answer.iter().flat_map(|p| kinds(p)).collect();
    assert_eq!(all, [ERROR, SACK]);
    assert_eq!(sack_of(&answer).0, hand.tsn, "acknowledged all the same");
    assert!(net.nodes[0].seen.is_empty());
    let answer = hand.send(&mut net, &[data(BEGINNING | END, hand.tsn + 1, 0, 0, b"")]);
    assert_eq!((kinds(&answer[0]), cause(&answer[0])), (vec![ABORT], 9));
    assert_eq!(net.nodes[0].down(), Some(DownReason::ProtocolViolation));
}

#[test] // RFC 9260 §6.2.1: a SACK of what was never sent
fn acknowledging_the_future_ends_the_association() {
    let (mut net, hand) = small_window();
    let answer = hand.send(&mut net, &[sack(hand.peer_tsn + 5, 10_000)]);
    assert_eq!((kinds(&answer[0]), cause(&answer[0])), (vec![ABORT], 13));
}

#[test] // RFC 9260 §3.3.4: gap ack blocks that make no sense are passed over
fn impossible_gap_blocks_acknowledge_nothing() {
    let (mut net, hand) = small_window();
    let id = net.nodes[0].endpoint.associations().next().unwrap();
    for _ in 0..3 {
        net.send(0, id, 0, b"x");
    }
    let queued = net.nodes[0].endpoint.status(id).unwrap().queued_octets;
    for [start, end] in [[0u8, 0], [0, 3], [3, 2], [200, 255]] {
        let mut v = (hand.peer_tsn - 1).to_be_bytes().to_vec();
        v.extend_from_slice(&[0, 0, 99, 0, 0, 1, 0, 0, 0, start, 0, end]);
        hand.send(&mut net, &[chunk(SACK, 0, &v)]);
    }
    assert_eq!(net.nodes[0].endpoint.status(id).unwrap().queued_octets, queued);
    hand.send(&mut net, &[sack(hand.peer_tsn + 2, 9000)]);
    assert_eq!(net.nodes[0].endpoint.status(id).unwrap().queued_octets, 0);
}

#[test] // RFC 9260 §6.1 A: a closed window gets one chunk at a time, and the association stays up while it is reported
fn a_closed_window_is_probed() {
    let mut net = Net::new(3);
    net.add(1, |_| {});
    let hand = Hand::open(&mut net, 5000, 1500);
    let id = net.nodes[0].up().unwrap();
    let before = net.sent.len();
    for _ in 0..10 {
        net.send(0, id, 0, &[7; 1000]);
    }
    assert_eq!(net.sent.len(), before + 1, "the window has room for one");
    assert!(net.nodes[0].endpoint.has_unsent());
    for _ in 0..200 {
        let answer = hand.send(&mut net, &[sack(hand.peer_tsn - 1, 0)]);
        assert!(answer.is_empty());
        net.seconds(10);
    }
    assert_eq!(net.nodes[0].down(), None, "the peer lives, it only has no room");
    let tsns = |packets: &[(_, _, Vec<u8>)]| -> Vec<u32> {
        let of = |p: &(_, _, Vec<u8>)| chunks(&p.2).into_iter().filter(|c| c.0 == DATA).collect::<Vec<_>>();
        packets.iter().flat_map(of).map(|c| word(&c.2, 0)).collect()
    };
    assert!(tsns(&net.sent[before..]).iter().all(|t| *t == hand.peer_tsn));
    let mut next = hand.peer_tsn;
    let start = net.sent.len();
    while next != hand.peer_tsn + 10 {
        hand.send(&mut net, &[sack(next, 100_000)]);
        net.seconds(1);
        next = tsns(&net.sent[start..]).last().map_or(next, |t| t + 1).max(next);
        hand.send(&mut net, &[sack(next - 1, 100_000)]);
    }
    assert_eq!(net.nodes[0].endpoint.status(id).unwrap().queued_octets, 0);
    assert!(!net.nodes[0].endpoint.has_unsent());
}

#[test] // RFC 9260 §6.1 A, §6.1 B: a window that has opened, and an association that has ended, keep nothing back
fn messages_that_no_window_keeps_back_have_left() {
    let mut net = Net::new(3);
    net.add(1, |_| {});
    let hand = Hand::open(&mut net, 5000, 1500);
    let id = net.nodes[0].up().unwrap();
    let unsent = |net: &Net| net.nodes[0].endpoint.has_unsent();
    net.send(0, id, 0, &[7; 1000]);
    assert!(!unsent(&net), "it is under way");
    net.send(0, id, 0, &[7; 1000]);
    assert!(unsent(&net));
    hand.send(&mut net, &[sack(hand.peer_tsn, 100_000)]);
    assert!(!unsent(&net));
    hand.send(&mut net, &[sack(hand.peer_tsn + 1, 0)]);
    net.send(0, id, 0, &[7; 1000]);
    net.send(0, id, 0, &[7; 1000]);
    assert!(unsent(&net));
    hand.send(&mut net, &[chunk(ABORT, 0, &[])]);
    assert!(!unsent(&net));
}

#[test] // the send buffer is bounded, and refuses with a reason
fn a_full_send_buffer_refuses() {
    let mut net = Net::new(4);
    let (a, b) = (net.add(1, |c| c.send_buffer_octets = 50_000), net.add(1, |_| {}));
    let id = net.connect(a, b);
    net.send(a, id, 0, b"too early");
    assert_eq!(net.nodes[a].seen, [Seen::Refused(RequestRefusal::NotEstablished)]);
    net.seconds(1);
    net.cut = vec![address(1, 0)];
    net.nodes[a].seen.clear();
    for _ in 0..100 {
        net.send(a, id, 0, &[7; 1000]);
    }
    let refused =
        net.nodes[a].seen.iter().filter(|s| **s == Seen::Refused(RequestRefusal::SendBufferFull)).count();
    assert_eq!(refused, 100 - 50_000 / 1128);
    net.cut.clear();
    net.seconds(30);
    assert_eq!(net.nodes[b].data().len(), 50_000 / 1128);
    net.send(a, id, 0, b"room again");
    for (stream, octets, why) in
        [(32, &b"x"[..], RequestRefusal::InvalidStream), (0, b"", RequestRefusal::EmptyMessage)]
    {
        let send = Send { association: id, stream, ppid: 60, unordered: false, octets };
        net.input_and_flush(a, Input::Send(send));
        assert_eq!(net.nodes[a].seen.last(), Some(&Seen::Refused(why)));
    }
    net.seconds(1);
    assert_eq!(net.nodes[b].data().last().unwrap().1, b"room again");
}

#[test] // the table is bounded; before a cookie returns, nothing is kept at all
fn associations_are_bounded() {
    let mut net = Net::new(5);
    net.add(1, |c| c.associations_max = 2);
    for port in 1..1000 {
        let init = chunk(INIT, 0, &init_value(7, 9000, (5, 5), 5, &[]));
        assert_eq!(give_from(&mut net, address(9, 9), &packet(port, 0, &[init])).len(), 1);
    }
    assert_eq!(net.nodes[0].endpoint.associations().count(), 0);
    Hand::open(&mut net, 5000, 9000);
    let second = Hand::open(&mut net, 5001, 9000);
    let init = packet(5002, 0, &[chunk(INIT, 0, &init_value(7, 9000, (5, 5), 5, &[]))]);
    let ack = chunks(&give_from(&mut net, address(99, 0), &init)[0])[0].2.clone();
    let echo = packet(5002, word(&ack, 0), &[chunk(COOKIE_ECHO, 0, &cookie(&ack))]);
    let answer = give_from(&mut net, address(99, 0), &echo);
    assert_eq!((kinds(&answer[0]), cause(&answer[0])), (vec![ABORT], 4));
    second.send(&mut net, &[chunk(ABORT, 0, &[])]);
    Hand::open(&mut net, 5003, 9000);
    let names: Vec<_> = net.nodes[0].endpoint.associations().map(|a| (a.slot, a.generation)).collect();
    assert_eq!(names, [(0, 0), (1, 1)], "the slot is used again, under another name");
}

#[test] // RFC 9260 §6.10: as many messages as fit leave in one packet, and many chunks in one are read
fn small_messages_are_bundled() {
    let (mut net, id, _) = pair(6);
    let before = net.sent.len();
    for i in 0..40u8 {
        let send = Send { association: id, stream: 0, ppid: 60, unordered: false, octets: &[i; 20] };
        net.input(0, Input::Send(send));
    }
    net.flush(0);
    assert_eq!(net.sent.len(), before + 1);
    assert_eq!(kinds(&net.sent[before].2).len(), 40);
    net.run(Duration::from_millis(5));
    assert_eq!(net.nodes[1].data().len(), 40);
    assert_eq!(net.sent.len(), before + 2, "and one SACK");
}

/// A SACK with one gap ack block.
fn sack_with_gap(cum: u32, rwnd: u32, (start, end): (u16, u16)) -> Vec<u8> {
    let mut v = cum.to_be_bytes().to_vec();
    v.extend_from_slice(&rwnd.to_be_bytes());
    v.extend_from_slice(&[0, 1, 0, 0]);
    v.extend_from_slice(&start.to_be_bytes());
    v.extend_from_slice(&end.to_be_bytes());
    chunk(SACK, 0, &v)
}

fn tsns(packets: &[Vec<u8>]) -> Vec<u32> {
    let data = packets.iter().flat_map(|p| chunks(p)).filter(|c| c.0 == DATA);
    data.map(|c| word(&c.2, 0)).collect()
}

#[test] // RFC 9260 §6.1 A: with nothing under way, even a window of zero gets one chunk
fn a_window_of_zero_gets_one_chunk() {
    let (mut net, hand) = small_window();
    let id = net.nodes[0].endpoint.associations().next().unwrap();
    net.send(0, id, 0, b"first");
    hand.send(&mut net, &[sack(hand.peer_tsn, 0)]);
    let before = net.sent.len();
    net.send(0, id, 0, b"probe");
    net.send(0, id, 0, b"waits");
    let sent: Vec<_> = net.sent[before..].iter().map(|s| s.2.clone()).collect();
    assert_eq!(tsns(&sent), [hand.peer_tsn + 1]);
    assert_eq!(tsns(&hand.send(&mut net, &[sack(hand.peer_tsn + 1, 100)])), [hand.peer_tsn + 2]);
}

#[test] // RFC 9260 §6.2.1 D: what a peer acknowledged in a gap, it may take back; then it is sent again
fn a_reneging_peer_gets_its_data_again() {
    let (mut net, hand) = small_window();
    let id = net.nodes[0].endpoint.associations().next().unwrap();
    for _ in 0..3 {
        net.send(0, id, 0, b"x");
    }
    let t = hand.peer_tsn;
    assert!(tsns(&hand.send(&mut net, &[sack_with_gap(t - 1, 9000, (2, 3))])).is_empty());
    let again = tsns(&hand.send(&mut net, &[sack(t, 9000)]));
    assert_eq!(again, [t + 1, t + 2]);
    hand.send(&mut net, &[sack(t + 2, 9000)]);
    assert_eq!(net.nodes[0].endpoint.status(id).unwrap().queued_octets, 0);
}

#[test] // RFC 9260 §7.2.4: a loss halves the window once; it grows again when recovery is over
fn fast_recovery_begins_and_ends() {
    let mut net = Net::new(7);
    net.add(1, |_| {});
    let hand = Hand::open(&mut net, 5000, 1_000_000);
    let id = net.nodes[0].up().unwrap();
    let cwnd = |net: &Net| net.nodes[0].endpoint.status(id).unwrap().cwnd_octets;
    for _ in 0..400 {
        net.send(0, id, 0, &[7; 1400]);
    }
    let mut t = hand.peer_tsn;
    for _ in 0..60 {
        hand.send(&mut net, &[sack(t, 1_000_000)]);
        t += 1;
    }
    let open = cwnd(&net);
    assert!(open > 20_000, "{open}");
    // The chunk t is lost: three reports.
    let mut again = Vec::new();
    for end in 2..5 {
        again = tsns(&hand.send(&mut net, &[sack_with_gap(t - 1, 1_000_000, (2, end))]));
    }
    assert_eq!(again[0], t, "sent again");
    let halved = cwnd(&net);
    assert_eq!(halved, (open / 2).max(4 * 1480));
    hand.send(&mut net, &[sack(t + 3, 1_000_000)]);
    assert_eq!(cwnd(&net), halved, "still recovering");
    for _ in 0..100 {
        let last = net.sent.iter().flat_map(|s| tsns(std::slice::from_ref(&s.2))).max().unwrap();
        hand.send(&mut net, &[sack(last, 1_000_000)]);
    }
    assert!(cwnd(&net) > halved, "and growing again");
}

#[test] // packets to another port belong to another program, perhaps on this host
fn packets_to_other_ports_are_ignored() {
    let (mut net, hand) = small_window();
    let mut p = packet(hand.port, hand.tag, &[data(BEGINNING | END, hand.tsn, 0, 0, b"x")]);
    p[2..4].copy_from_slice(&9u16.to_be_bytes());
    seal(&mut p);
    assert!(hand.give(&mut net, &p).is_empty());
    assert!(net.nodes[0].data().is_empty());
    assert_eq!(net.nodes[0].endpoint.counters().foreign, 1);
}
