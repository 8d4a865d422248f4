//! Two ends without sockets, and an attacker between them.

use proptest::prelude::*;

use crate::ClusterKey;
use crate::event::{DownReason, Event};
use crate::hostile::{self, FRAME_MAX, HostileEnd, settle};
use crate::seal::RECORDS_PER_KEY;

fn keys(of: &[u8]) -> Vec<ClusterKey> {
    of.iter().map(|n| ClusterKey::new([*n; 32])).collect()
}

/// A caller and a called end under one key.
fn ends() -> (HostileEnd, HostileEnd) {
    (HostileEnd::new(true, keys(&[1])), HostileEnd::new(false, keys(&[1])))
}

fn linked() -> (HostileEnd, HostileEnd) {
    let (mut a, mut b) = ends();
    settle(&mut a, &mut b).unwrap();
    assert!(a.protocol.is_up() && b.protocol.is_up());
    (a, b)
}

fn send(end: &mut HostileEnd, frame: &[u8]) {
    end.protocol.send(frame, &end.settings).unwrap();
}

fn frames(end: &HostileEnd) -> Vec<Vec<u8>> {
    let frame = |e| if let Event::Frame { octets, .. } = e { Some(octets.to_vec()) } else { None };
    end.events.iter().filter_map(frame).collect()
}

fn hello(end: &HostileEnd) -> Option<Vec<u8>> {
    end.events.iter().find_map(|e| if let Event::Up { hello, .. } = e { Some(hello.to_vec()) } else { None })
}

#[test]
fn under_one_key_both_ends_get_the_hello() {
    let (a, b) = linked();
    assert_eq!((hello(&a), hello(&b)), (Some(b"called".to_vec()), Some(b"caller".to_vec())));
}

#[test]
fn hello_and_frames_are_not_readable_on_the_way() {
    let (mut a, mut b) = ends();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (x, y) = (a.wire(), b.wire());
        b.take(&x).unwrap();
        a.take(&y).unwrap();
        seen.extend([x, y].concat());
    }
    send(&mut a, b"the key of a UE");
    let x = a.wire();
    b.take(&x).unwrap();
    seen.extend(x);
    assert_eq!(frames(&b), [b"the key of a UE"]);
    for secret in [&b"caller"[..], b"called", b"the key"] {
        assert!(!seen.windows(secret.len()).any(|w| w == secret));
    }
}

#[test]
fn two_links_under_one_key_have_different_octets() {
    let wires: Vec<Vec<u8>> = (0..2)
        .map(|_| {
            let (mut a, _) = linked();
            send(&mut a, &[0; 100]);
            a.wire()
        })
        .collect();
    assert_ne!(wires[0], wires[1]);
}

#[test]
fn a_peer_with_another_key_is_refused_and_gets_no_octet() {
    let (mut a, mut b) = (HostileEnd::new(true, keys(&[1])), HostileEnd::new(false, keys(&[2])));
    assert_eq!(b.take(&a.wire()), Err(DownReason::WrongKey));
    assert_eq!(b.wire(), [], "the called end sends nothing to a peer without the key");
    // And a caller learns that the called end has another key.
    let (mut a, mut c) = (HostileEnd::new(true, keys(&[1])), HostileEnd::new(true, keys(&[2])));
    assert_eq!(a.take(&c.wire()), Err(DownReason::WrongKey));
}

#[test]
fn while_keys_change_either_key_is_accepted() {
    for called in [&[1, 2][..], &[2, 1]] {
        for caller in [&[1][..], &[2], &[1, 2], &[2, 1]] {
            let (mut a, mut b) = (HostileEnd::new(true, keys(caller)), HostileEnd::new(false, keys(called)));
            assert_eq!(settle(&mut a, &mut b), Ok(()));
            assert!(b.protocol.is_up());
        }
    }
}

#[test]
fn a_plain_end_and_a_keyed_end_refuse_each_other() {
    for (caller, called) in [(&[][..], &[1][..]), (&[1], &[])] {
        let (mut a, mut b) = (HostileEnd::new(true, keys(caller)), HostileEnd::new(false, keys(called)));
        assert_eq!(b.take(&a.wire()), Err(DownReason::Protection));
        assert_eq!((hello(&a), hello(&b)), (None, None));
    }
}

#[test]
fn a_recorded_greeting_does_not_bring_a_link_up() {
    let (mut a, mut b) = ends();
    let recorded = a.wire();
    b.take(&recorded).unwrap();
    let answer = b.wire();
    a.take(&answer).unwrap();
    let proof = a.wire();
    b.take(&proof).unwrap();
    assert!(b.protocol.is_up());
    // An attacker repeats the recorded octets.
    let mut again = HostileEnd::new(false, keys(&[1]));
    again.take(&recorded).unwrap();
    assert_eq!(hello(&again), None);
    assert_eq!(again.take(&proof), Err(DownReason::Forged));
    // A recorded answer does not serve a new call, either.
    let mut now = HostileEnd::new(true, keys(&[1]));
    assert_eq!(now.take(&answer), Err(DownReason::WrongKey));
}

#[test]
fn a_greeting_sent_back_does_not_bring_a_link_up() {
    let mut a = HostileEnd::new(true, keys(&[1]));
    let own = a.wire();
    assert_eq!(a.take(&own), Err(DownReason::WrongKey));
}

#[test]
fn records_repeated_left_out_exchanged_or_sent_back_end_the_link() {
    let (mut a, mut b) = linked();
    let records: Vec<Vec<u8>> = (0..3u8)
        .map(|n| {
            send(&mut a, &[n]);
            a.wire()
        })
        .collect();
    b.take(&records[0]).unwrap();
    assert_eq!(a.take(&records[1]), Err(DownReason::Forged), "sent back");
    assert_eq!(b.take(&records[2]), Err(DownReason::Forged), "one is missing");
    assert_eq!(frames(&b), [[0]]);
    let (mut a, mut b) = linked();
    send(&mut a, &[9]);
    let record = a.wire();
    b.take(&record).unwrap();
    assert_eq!(b.take(&record), Err(DownReason::Forged), "repeated");
    let (_, mut c) = linked();
    assert_eq!(c.take(&record), Err(DownReason::Forged), "of another link");
    assert_eq!(frames(&c), Vec::<Vec<u8>>::new());
}

#[test]
fn a_link_that_ends_within_a_record_or_a_frame_is_truncated() {
    let (mut a, mut b) = linked();
    send(&mut a, &[5; 100]);
    let record = a.wire();
    b.take(&record[..50]).unwrap();
    assert_eq!(b.protocol.closed(), DownReason::Truncated);
    b.take(&record[50..]).unwrap();
    assert_eq!(b.protocol.closed(), DownReason::Closed);
    a.protocol.send_raw(&[0, 0, 0, 2, 1]);
    b.take(&a.wire()).unwrap();
    assert_eq!(b.protocol.closed(), DownReason::Truncated);
    assert_eq!(HostileEnd::new(false, keys(&[1])).protocol.closed(), DownReason::Left);
}

#[test]
fn the_bounds_hold_for_a_peer_with_the_key_too() {
    let (mut a, mut b) = linked();
    a.protocol.send_raw(&(FRAME_MAX as u32 + 1).to_be_bytes());
    assert_eq!(b.take(&a.wire()), Err(DownReason::FrameTooLong));
    let (_, mut b) = linked();
    assert_eq!(b.take(&[0, 15]), Err(DownReason::Forged), "a record shorter than its tag");
}

#[test]
fn keys_are_renewed_while_the_link_is_up() {
    let (mut a, mut b) = linked();
    for n in 0..RECORDS_PER_KEY + 10 {
        send(&mut a, &n.to_be_bytes());
        b.take(&a.wire()).unwrap();
        assert_eq!(b.counters.frames_in, n + 1);
    }
    send(&mut b, b"back");
    a.take(&b.wire()).unwrap();
    assert_eq!(frames(&a), [b"back"]);
}

#[test]
fn the_seeds_of_the_fuzzer_do_no_harm() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/link");
    let mut inputs = 0;
    for entry in std::fs::read_dir(folder).expect("the seeds") {
        hostile::run(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs > 20);
}

/// Exchanges octets, cut into pieces, through an attacker that changes one bit of one direction. Returns what ended which end.
fn tampered(
    a: &mut HostileEnd,
    b: &mut HostileEnd,
    piece: usize,
    caller_side: bool,
    at: usize,
    bit: u8,
) -> Option<DownReason> {
    let mut passed = [0, 0];
    loop {
        let wires = [a.wire(), b.wire()];
        if wires.iter().all(Vec::is_empty) {
            return None;
        }
        for (side, mut wire) in wires.into_iter().enumerate() {
            let start = passed[side];
            passed[side] += wire.len();
            if (side == 0) == caller_side && (start..passed[side]).contains(&at) {
                wire[at - start] ^= 1 << bit;
            }
            let to = if side == 0 { &mut *b } else { &mut *a };
            for octets in wire.chunks(piece) {
                if let Err(reason) = to.take(octets) {
                    return Some(reason);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn frames_come_whole_and_in_order_however_they_are_cut(
        keyed: bool,
        sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
        piece in 1usize..2000,
    ) {
        let of: &[u8] = if keyed { &[1] } else { &[] };
        let (mut a, mut b) = (HostileEnd::new(true, keys(of)), HostileEnd::new(false, keys(of)));
        for frame in &sent {
            send(&mut a, frame);
            send(&mut b, frame);
        }
        prop_assert_eq!(tampered(&mut a, &mut b, piece, true, usize::MAX, 0), None);
        prop_assert_eq!(frames(&a), sent.clone());
        prop_assert_eq!(frames(&b), sent);
    }

    #[test]
    fn a_bit_changed_anywhere_ends_the_link_and_no_frame_is_changed(
        at in 0usize..700,
        bit in 0u8..8,
        piece in 1usize..500,
        caller_side: bool,
    ) {
        let (mut a, mut b) = ends();
        let sent: Vec<Vec<u8>> = (0..5u8).map(|n| vec![n; 100]).collect();
        for frame in &sent {
            send(&mut a, frame);
            send(&mut b, frame);
        }
        let reason = tampered(&mut a, &mut b, piece, caller_side, at, bit);
        for end in [&a, &b] {
            let came = frames(end);
            prop_assert_eq!(&came[..], &sent[..came.len()]);
        }
        // A length that was made longer waits for octets that never come; the greeting timeout and TCP end that.
        let waits = a.protocol.held() + b.protocol.held() > 0;
        let whole = frames(&a).len() + frames(&b).len() == 2 * sent.len();
        let past_the_end = at >= 600;
        prop_assert!(reason.is_some() || waits || (whole && past_the_end), "no end noticed");
        if let Some(reason) = reason {
            use DownReason::{Foreign, Forged, HelloTooLong, Protection, Version, WrongKey};
            prop_assert!([Foreign, Version, Protection, HelloTooLong, WrongKey, Forged].contains(&reason), "{:?}", reason);
        }
    }

    #[test]
    fn any_octets_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..600)) {
        hostile::run(&input);
    }
}
