//! Reboots, cut paths, shutdowns and aborts at any moment, in bad weather; once that ends, all works again.

use super::sim;

use proptest::prelude::*;
use sim::{Net, Random, Weather, address};
use std::time::Duration;
use whimbrel_sctp::{AssociationId, Connect, Input, Outbox, State};

/// The node's association, if it has one.
fn association(net: &Net, n: usize) -> Option<AssociationId> {
    net.nodes[n].endpoint.associations().next()
}

/// Connects to the other node unless there is an association already.
fn connect(net: &mut Net, n: usize) {
    if association(net, n).is_none() {
        let to = net.nodes[1 - n].addresses.clone();
        let connect = Connect { addresses: &to, port: sim::PORT, udp_port: 0 };
        net.input_and_flush(n, Input::Connect(connect));
    }
}

fn step(net: &mut Net, random: &mut Random) {
    let n = random.below(2) as usize;
    let here = association(net, n);
    match (random.below(20), here) {
        (0, _) => net.reboot(n),
        (1, _) => net.cut.push(address(random.below(2) as u8, random.below(2) as u8)),
        (2..=4, _) => net.cut.clear(),
        (5, Some(association)) => net.input_and_flush(n, Input::Shutdown { association }),
        (6, Some(association)) => net.input_and_flush(n, Input::Abort { association }),
        (7..=9, _) => connect(net, n),
        (_, Some(id)) => {
            let size = 1 + random.below(6000) as usize;
            net.send(n, id, random.below(4) as u16, &vec![n as u8; size]);
        }
        _ => {}
    }
    let pause = 1 << random.below(24); // up to 16 s
    net.run(Duration::from_micros(random.below(pause)));
}

/// After all faults ended, a message must get through in bounded time, whatever state both sides are in.
fn recovers(net: &mut Net) -> bool {
    net.cut.clear();
    net.weather = Weather { delay_us: 500, ..Weather::default() };
    for _ in 0..40 {
        net.seconds(10);
        connect(net, 0);
        net.seconds(5);
        let Some(id) = association(net, 0) else { continue };
        if net.nodes[0].endpoint.status(id).is_none_or(|s| s.state != State::Established) {
            continue;
        }
        net.send(0, id, 0, b"are we well?");
        net.seconds(5);
        if net.nodes[1].data().last().is_some_and(|d| d.1 == b"are we well?") {
            return net.nodes.iter().all(|n| n.endpoint.associations().count() == 1);
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn everything_recovers(seed in any::<u64>(), steps in 1usize..120, loss in 0u64..30, jitter in 0u64..50_000) {
        let mut net = Net::new(seed);
        for _ in 0..2 {
            net.add(2, |_| {});
        }
        net.weather = Weather { loss_percent: loss, duplicate_percent: loss / 2, corrupt_percent: loss / 4, delay_us: 300, jitter_us: jitter };
        let mut random = Random(seed);
        for _ in 0..steps {
            step(&mut net, &mut random);
        }
        prop_assert!(recovers(&mut net));
    }
}

#[test] // an endpoint that is not flushed asks for it
fn what_waits_for_a_flush_is_due_at_once() {
    let (mut net, id, _) = sim::pair(1);
    let mut out = Outbox::default();
    let send = whimbrel_sctp::Send { association: id, stream: 0, ppid: 60, unordered: false, octets: b"x" };
    net.nodes[0].endpoint.handle(net.now, Input::Send(send), &mut out);
    assert_eq!(net.nodes[0].endpoint.next_deadline(), Some(whimbrel_ids::Instant::ZERO));
    assert!(out.packets.is_empty());
    net.nodes[0].endpoint.flush(net.now, &mut out);
    assert_eq!(out.packets.len(), 1);
    assert!(net.nodes[0].endpoint.next_deadline() > Some(net.now));
}
