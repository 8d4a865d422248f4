//! Packets from nowhere and from the worst of peers: nothing panics, nothing grows, others are not disturbed.

use super::sim;

use proptest::collection::vec;
use proptest::prelude::*;
use sim::craft::*;
use sim::{Net, Random, Weather, address};
use std::time::Duration;
use whimbrel_sctp::{Input, Path};

/// Sends on an association of an honest peer and checks that it still works.
fn honest_peer_works(net: &mut Net, honest: usize) {
    net.weather = Weather { delay_us: 300, ..Weather::default() };
    let id = net.nodes[honest].up().unwrap();
    let (before, down) = (net.nodes[0].data().len(), net.nodes[honest].down());
    assert_eq!(down, None);
    net.send(honest, id, 1, b"ordinary");
    net.seconds(20);
    let data = net.nodes[0].data();
    assert!(data[before..].contains(&(1, b"ordinary".to_vec())));
}

fn with_honest_peer() -> Net {
    let mut net = Net::new(1);
    let (server, honest) = (net.add(2, |c| c.associations_max = 50), net.add(1, |_| {}));
    net.connect(honest, server);
    net.seconds(1);
    net
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300)
}

/// Chunks that make some sense.
fn any_chunk() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![0u8..16, any::<u8>()], any::<u8>(), octets(), any::<u16>(), any::<bool>()).prop_map(
        |(kind, flags, value, len, wrong_length)| {
            let mut c = chunk(kind, flags, &value);
            if wrong_length {
                c[2..4].copy_from_slice(&(len % 400).to_be_bytes());
            }
            c
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test] // with a right checksum, and the association's own tag or any other
    fn random_chunks(packets in vec((vec(any_chunk(), 0..6), 0u8..4, any::<u32>(), 4999u16..5003), 1..40)) {
        let mut net = with_honest_peer();
        let hand = Hand::open(&mut net, 5000, 50_000);
        for (chunks, tag, other, port) in packets {
            let tag = [hand.tag, hand.tag, 0, other][usize::from(tag)];
            give_from(&mut net, hand.at, &packet(port, tag, &chunks));
            net.run(Duration::from_millis(50));
        }
        prop_assert!(net.nodes[0].endpoint.associations().count() <= 50);
        honest_peer_works(&mut net, 1);
    }

    #[test] // no SCTP at all
    fn random_octets(packets in vec(octets(), 1..40)) {
        let mut net = with_honest_peer();
        for p in packets {
            prop_assert!(give_from(&mut net, address(77, 0), &p).is_empty());
        }
        honest_peer_works(&mut net, 1);
    }

    #[test] // DATA, SACK and SHUTDOWN that fit their association, in any order
    fn plausible_nonsense(steps in vec((0u8..6, -3i64..40, 0u16..12, 0u16..5, any::<u8>(), 1usize..1500), 1..200)) {
        let mut net = with_honest_peer();
        let hand = Hand::open(&mut net, 5000, 50_000);
        let id = net.nodes[0].up().unwrap();
        for (kind, offset, stream, ssn, flags, len) in steps {
            let tsn = hand.tsn.wrapping_add_signed(offset as i32);
            let ours = hand.peer_tsn.wrapping_add_signed(offset as i32 / 4);
            let chunk = match kind {
                0..=2 => data(flags, tsn, stream, ssn, &vec![flags; len]),
                3 => {
                    let mut v = ours.to_be_bytes().to_vec();
                    v.extend_from_slice(&[0, 0, len as u8, 0, 0, 2, 0, 0]);
                    v.extend_from_slice(&[0, flags % 8, 0, flags % 11, 0, ssn as u8, 0, stream as u8]);
                    chunk(SACK, 0, &v)
                }
                4 if flags > 240 => chunk(SHUTDOWN, 0, &ours.to_be_bytes()),
                _ => chunk(HEARTBEAT, 0, &vec![flags; len]),
            };
            hand.send(&mut net, &[chunk]);
            net.send(0, id, 0, b"from us");
            net.run(Duration::from_millis(u64::from(flags)));
        }
        honest_peer_works(&mut net, 1);
    }

    #[test] // a whole conversation, recorded and mutated, checksum mended
    fn mutated_conversations(seed in any::<u64>()) {
        let mut random = Random(seed);
        let mut net = with_honest_peer();
        let other = net.add(1, |_| {});
        let id = net.connect(other, 0);
        net.seconds(1);
        for i in 0..10u8 {
            net.send(other, id, u16::from(i % 3), &vec![i; 700]);
        }
        net.run(Duration::from_millis(20));
        let (from, recorded) = (address(other as u8, 0), net.sent.clone());
        for (_, to, octets) in recorded.iter().filter(|s| s.0 == from) {
            let mut octets = octets.clone();
            for _ in 0..random.below(4) {
                let at = random.below(octets.len() as u64) as usize;
                octets[at] = random.next() as u8;
            }
            octets.truncate(octets.len() - random.below(2) as usize * random.below(20) as usize);
            seal(&mut octets);
            let path = Path { local: *to, remote: from, udp_port: 0 };
            net.input_and_flush(0, Input::Packet { path, octets: &octets });
        }
        net.seconds(2);
        honest_peer_works(&mut net, 1);
    }
}
