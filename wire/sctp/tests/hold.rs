//! Acknowledgements that wait for the user, and messages that come back when an association ends: together nothing is lost that the
//! user of the other side does not answer for.

use super::sim;

use std::collections::BTreeSet;
use std::time::Duration;

use sim::{Net, Seen, Weather};
use whimbrel_sctp::{AssociationId, DownReason, Input};

const WINDOW: u32 = 64 * 1024;

/// A client that gets back what was not acknowledged, and a server that acknowledges what it releases.
fn holding(seed: u64) -> (Net, AssociationId, AssociationId) {
    let mut net = Net::new(seed);
    net.add(1, |c| c.return_unacknowledged = true);
    net.add(1, |c| (c.hold_acknowledgements, c.receive_window_octets) = (true, WINDOW));
    let client = net.connect(0, 1);
    net.seconds(1);
    let server = net.nodes[1].up().expect("the server saw the association");
    (net, client, server)
}

fn queued(net: &Net, id: AssociationId) -> usize {
    net.nodes[0].endpoint.status(id).expect("it stands").queued_octets
}

fn release(net: &mut Net, server: AssociationId, messages: u64) {
    net.nodes[1].endpoint.release(server, messages);
    net.flush(1);
    net.run(Duration::from_millis(2));
}

fn returned(net: &Net) -> Vec<(u16, Vec<u8>)> {
    let of = |s: &Seen| match s {
        Seen::Unacknowledged(stream, octets) => Some((*stream, octets.clone())),
        _ => None,
    };
    net.nodes[0].seen.iter().filter_map(of).collect()
}

fn retransmitted(net: &Net) -> u64 {
    net.nodes[0].endpoint.counters().data_chunks_retransmitted
}

#[test]
fn messages_are_acknowledged_when_they_are_released() {
    let (mut net, client, server) = holding(1);
    for stream in 0..3 {
        net.send(0, client, stream, b"message");
    }
    net.run(Duration::from_millis(20));
    assert_eq!(net.nodes[1].data().len(), 3, "they are delivered at once");
    let all = queued(&net, client);
    release(&mut net, server, 2);
    assert_eq!(queued(&net, client) * 3, all);
    release(&mut net, server, 1);
    assert_eq!(queued(&net, client) * 3, all, "what was released before changes nothing");
    release(&mut net, server, 99);
    assert_eq!((queued(&net, client), retransmitted(&net)), (0, 0));
}

#[test] // only the end of a message waits: its sender could not go on else, and gets it back whole as long as that is missing
fn a_message_of_many_packets_comes_through_and_waits_as_one() {
    let (mut net, client, server) = holding(2);
    let long = vec![7; 50_000];
    net.send(0, client, 1, b"first");
    net.run(Duration::from_millis(5));
    net.send(0, client, 2, &long);
    net.run(Duration::from_millis(5));
    release(&mut net, server, 1);
    net.run(Duration::from_millis(50));
    assert_eq!(net.nodes[1].data(), [(1, b"first".to_vec()), (2, long.clone())]);
    assert!(queued(&net, client) > 0 && retransmitted(&net) == 0);
    net.input_and_flush(0, Input::Abort { association: client });
    assert_eq!(returned(&net), [(2, long)], "whole, though most of it was acknowledged");
}

#[test] // RFC 9260 §11.1.1 L, M
fn unacknowledged_messages_are_returned_in_order_before_the_end_is_reported() {
    let (mut net, client, server) = holding(3);
    let messages: Vec<(u16, Vec<u8>)> =
        (0..40).map(|n| (n % 5, vec![n as u8; if n % 7 == 0 { 5_000 } else { 100 }])).collect();
    for (stream, octets) in &messages {
        net.send(0, client, *stream, octets);
    }
    net.run(Duration::from_millis(50));
    assert!(net.nodes[1].data().len() < messages.len(), "some cannot leave yet");
    release(&mut net, server, 3);
    net.cut.push(sim::address(1, 0));
    net.input_and_flush(0, Input::Abort { association: client });
    assert_eq!(returned(&net), messages[3..]);
    assert_eq!(net.nodes[0].seen.last(), Some(&Seen::Down(client, DownReason::Aborted)));
}

#[test]
fn nothing_comes_back_that_was_acknowledged() {
    let (mut net, client, server) = holding(4);
    net.send(0, client, 1, b"message");
    net.run(Duration::from_millis(5));
    release(&mut net, server, 1);
    net.input_and_flush(0, Input::Abort { association: client });
    assert_eq!(returned(&net), []);
}

#[test] // RFC 9260 §5.2.4.1 A: what was released of a former life is none of the next one's
fn a_peer_that_restarts_is_counted_on() {
    let (mut net, client, server) = holding(5);
    net.send(0, client, 1, b"former");
    net.run(Duration::from_millis(5));
    net.reboot(0);
    let client = net.connect(0, 1);
    net.seconds(1);
    net.send(0, client, 1, b"later");
    net.run(Duration::from_millis(5));
    release(&mut net, server, 1);
    assert!(queued(&net, client) > 0, "the first message is that of the former life");
    release(&mut net, server, 2);
    assert_eq!(queued(&net, client), 0);
}

#[test] // RFC 9260 §6.1 A: a_rwnd counts what is not released
fn what_is_not_released_fills_the_window() {
    let (mut net, client, server) = holding(6);
    let octets = vec![1; 1_000];
    for _ in 0..400 {
        net.send(0, client, 1, &octets);
    }
    net.seconds(1);
    let before = net.nodes[1].data().len();
    assert!(before * octets.len() <= 2 * WINDOW as usize, "{before} messages are held");
    for round in 0..400 {
        let released = net.nodes[1].data().len() as u64;
        release(&mut net, server, released);
        if queued(&net, client) == 0 {
            break;
        }
        assert!(round < 399, "{released} came");
        net.run(Duration::from_millis(200));
    }
    assert_eq!(net.nodes[1].data().len(), 400);
}

#[test]
fn holding_begins_and_ends_at_any_moment() {
    let (mut net, client, _) = sim::pair(7);
    net.nodes[1].endpoint.hold_acknowledgements(true);
    net.send(0, client, 1, b"held");
    net.run(Duration::from_millis(5));
    assert!(queued(&net, client) > 0);
    net.nodes[1].endpoint.hold_acknowledgements(false);
    net.flush(1);
    net.run(Duration::from_millis(2));
    assert_eq!(queued(&net, client), 0);
}

#[test] // whatever the network does: what the server has not answered for comes back
fn released_and_returned_together_are_all() {
    for seed in 0..200 {
        let (mut net, client, server) = holding(seed);
        net.weather = Weather {
            loss_percent: seed % 4 * 10,
            duplicate_percent: 5,
            delay_us: 500,
            jitter_us: 1_000,
            ..Weather::default()
        };
        let (mut sent, mut released) = (0..60u16, 0);
        for n in sent.clone() {
            let length = 2 + net.random.below(if n % 9 == 0 { 6_000 } else { 300 }) as usize;
            let mut octets = vec![0; length];
            octets[..2].copy_from_slice(&n.to_be_bytes());
            net.send(0, client, n % 7, &octets);
            let pause = net.random.below(20_000);
            net.run(Duration::from_micros(pause));
            let lag = net.random.below(4) as usize;
            released = released.max(net.nodes[1].data().len().saturating_sub(lag));
            net.nodes[1].endpoint.release(server, released as u64);
            net.flush(1);
        }
        let rest = net.random.below(3_000);
        net.run(Duration::from_millis(rest));
        let number = |(_, octets): &(u16, Vec<u8>)| u16::from_be_bytes([octets[0], octets[1]]);
        let came: Vec<u16> = net.nodes[1].data().iter().map(number).collect();
        let once: BTreeSet<u16> = came.iter().copied().collect();
        assert_eq!(once.len(), came.len(), "seed {seed}: each comes once");
        net.input_and_flush(0, Input::Abort { association: client });
        let back: Vec<u16> = returned(&net).iter().map(number).collect();
        assert!(back.is_sorted(), "seed {seed}: in order");
        let both: BTreeSet<u16> = came[..released].iter().chain(&back).copied().collect();
        assert!(sent.all(|n| both.contains(&n)), "seed {seed}: one is lost");
    }
}
