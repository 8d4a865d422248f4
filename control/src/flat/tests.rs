use std::sync::Arc;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::desk::Desk;
use crate::envelope::{Batch, Command, Envelope, Payload, PhoneId};
use crate::phone::{AmfContext, Phone};
use crate::shard::Shard;
use crate::smf::SmContext;

/// Frames of each version that is read, a line each, as `sim/examples/flat.rs` writes them.
const CHECKPOINTS: [(u16, &str); 1] = [(1, include_str!("testdata/checkpoint-1.hex"))];
const ENVELOPES: &str = include_str!("testdata/envelope-1.hex");
const BATCHES: &str = include_str!("testdata/batch-1.hex");

fn frames(hex: &str) -> Vec<Vec<u8>> {
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.lines().map(|line| line.as_bytes().chunks(2).map(octet).collect()).collect()
}

/// A registered phone with one session, connected.
fn registered() -> Phone {
    Desk::registered().phone().unwrap().clone()
}

fn checkpoint(phone: &Phone) -> Checkpoint {
    Checkpoint::of(phone).unwrap()
}

/// A frame with the CRC that its octets should have: what a peer writes that is at fault itself.
fn sealed(mut octets: Vec<u8>) -> Vec<u8> {
    let at = octets.len().saturating_sub(CRC);
    let crc = crc32c::crc32c(&octets[..at]);
    octets.splice(at.., crc.to_be_bytes());
    octets
}

/// All that is done with octets that came; what of them was taken is written as it is read.
fn take(octets: &[u8]) -> Option<FlatError> {
    let errors = [
        Checkpoint::from_octets(octets).and_then(|c| c.phone()).map(|p| {
            let again = checkpoint(&p);
            assert_eq!(checkpoint(&again.phone().unwrap()), again);
        }),
        Delta::from_octets(octets).map(|_| ()),
        Envelope::from_flat(octets).map(|e| {
            let again = e.to_flat();
            assert_eq!(Envelope::from_flat(again.octets()).unwrap().to_flat(), again);
        }),
        Batch::from_flat(octets).map(|b| {
            let again = b.to_flat();
            assert_eq!(Batch::from_flat(again.octets()).unwrap().to_flat(), again);
        }),
    ];
    // Of the four, the one that is meant does not say that it is another.
    errors.into_iter().find_map(|e| e.err().filter(|e| !matches!(e, FlatError::NotA(_))))
}

/// Every frame of the test data, and a delta.
fn all() -> Vec<Vec<u8>> {
    let texts = CHECKPOINTS.iter().map(|(_, hex)| *hex).chain([ENVELOPES, BATCHES]);
    let mut all: Vec<_> = texts.flat_map(frames).collect();
    let base = registered();
    let mut next = base.clone();
    (next.clock, next.amf.moved) = (base.clock + 1, true);
    all.push(Delta::between(&checkpoint(&base), &checkpoint(&next)).unwrap().octets().into());
    all
}

#[test]
fn frames_of_every_version_are_read_and_todays_written_again() {
    assert_eq!(CHECKPOINTS.map(|(v, _)| v), checkpoint::VERSIONS.map(|(v, _)| v));
    for (version, hex) in CHECKPOINTS {
        for frame in frames(hex) {
            let read = Checkpoint::from_octets(&frame).and_then(|c| c.phone());
            let again = checkpoint(&read.expect("a form changes with its version alone"));
            if version == checkpoint::VERSION {
                assert_eq!(again.octets(), frame, "a form changes with its version alone");
            }
        }
    }
    for frame in frames(ENVELOPES) {
        let read = Envelope::from_flat(&frame).expect("a form changes with its version alone");
        assert_eq!(read.to_flat().octets(), frame);
    }
    for frame in frames(BATCHES) {
        let read = Batch::from_flat(&frame).expect("a form changes with its version alone");
        assert_eq!(read.to_flat().octets(), frame);
    }
}

#[test] // DESIGN: checkpoints are readable at N-1, one type per version
fn a_checkpoint_of_the_version_before_is_read_and_one_of_another_is_not() {
    /// As if a former phone had had no terms.
    #[derive(Serialize, Deserialize)]
    struct Former {
        id: PhoneId,
        clock: u64,
        amf: AmfContext,
        sessions: std::collections::BTreeMap<whimbrel_ids::PduSessionId, Box<SmContext>>,
    }
    impl From<Former> for Phone {
        fn from(f: Former) -> Self {
            Self { clock: f.clock, amf: f.amf, sessions: f.sessions, ..Self::new(f.id) }
        }
    }
    let versions = [(7, checkpoint::open::<Phone> as _), (6, checkpoint::open::<Former> as _)];
    let phone = registered();
    let former = Former { id: phone.id, clock: 9, amf: phone.amf.clone(), sessions: phone.sessions.clone() };
    let about = checkpoint(&phone).about;
    let of = |version| Checkpoint { flat: Writer::frame(Form::Checkpoint, version, 0, &former), about };
    let read = of(6).phone_of(&versions).unwrap();
    assert_eq!((read.clock, read.terms), (9, (0, 0)));
    assert_eq!(format!("{:?}", read.amf), format!("{:?}", phone.amf));
    assert_eq!(of(5).phone_of(&versions).unwrap_err(), FlatError::UnknownVersion(5));
    assert!(matches!(of(7).phone_of(&versions), Err(FlatError::Malformed | FlatError::Contradiction(_))));
    assert_eq!(of(6).phone().unwrap_err(), FlatError::UnknownVersion(6));
}

#[test]
fn frames_of_an_unknown_version_are_refused_by_that_name() {
    for mut frame in all() {
        frame[2] ^= 0x80;
        assert!(matches!(take(&sealed(frame)), Some(FlatError::UnknownVersion(_))));
    }
}

#[test]
fn a_truncated_frame_is_refused() {
    for frame in all() {
        for len in 0..frame.len() {
            for octets in [frame[..len].to_vec(), sealed(frame[..len].to_vec())] {
                let refused = [
                    Checkpoint::from_octets(&octets).and_then(|c| c.phone()).is_err(),
                    Delta::from_octets(&octets).is_err(),
                    Envelope::from_flat(&octets).is_err(),
                    Batch::from_flat(&octets).is_err(),
                ];
                assert_eq!(refused, [true; 4], "{len} of {} octets", frame.len());
            }
        }
    }
}

#[test]
fn a_frame_with_one_other_octet_is_refused() {
    for frame in all() {
        for at in 0..frame.len() {
            let mut octets = frame.clone();
            octets[at] ^= 1 << (at % 8);
            assert!(Checkpoint::from_octets(&octets).is_err());
            assert!(Delta::from_octets(&octets).is_err());
            assert!(Envelope::from_flat(&octets).is_err());
            assert!(Batch::from_flat(&octets).is_err());
        }
    }
}

#[test]
fn a_longer_frame_is_refused() {
    for frame in all() {
        let mut octets = frame.clone();
        octets.insert(frame.len() - CRC, 0);
        assert_eq!(take(&sealed(octets)), Some(FlatError::Malformed));
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    let mut beyond = registered();
    beyond.id.slot = PhoneId::SLOTS;
    let frame = checkpoint(&beyond);
    assert!(matches!(Checkpoint::from_octets(frame.octets()), Err(FlatError::Contradiction(_))));
    let mut other = registered();
    let mut session = other.sessions.pop_first().unwrap().1;
    session.psi = crate::desk::psi(2);
    other.sessions.insert(crate::desk::psi(1), session);
    let read = Checkpoint::from_octets(checkpoint(&other).octets()).unwrap().phone();
    assert!(matches!(read, Err(FlatError::Contradiction(_))));
}

#[test]
fn a_phone_with_a_procedure_in_flight_has_no_checkpoint() {
    let mut desk = Desk::registered();
    desk.input(Payload::Command(Command::Deregister));
    let phone = desk.phone().unwrap();
    assert!(!phone.is_idle());
    assert_eq!(Checkpoint::of(phone), None);
}

#[test]
fn what_phones_have_in_common_is_shared_again_when_they_are_restored() {
    let mut shard = Shard::new(Arc::new(crate::desk::config()));
    let mut phone = registered();
    phone.amf.radio_capability = Some(vec![7; 900].into());
    let mut restored = Vec::new();
    for slot in [1, 2] {
        phone.id.slot = slot;
        shard.restore(checkpoint(&phone).phone().unwrap());
        restored.push(shard.phone(phone.id).unwrap().amf.clone());
    }
    let [a, b] = &restored[..] else { panic!("two phones") };
    let (a, b) = (
        (a.subscription.as_ref(), a.radio_capability.as_ref()),
        (b.subscription.as_ref(), b.radio_capability.as_ref()),
    );
    assert!(Arc::ptr_eq(a.0.unwrap(), b.0.unwrap()));
    assert!(Arc::ptr_eq(a.1.unwrap(), b.1.unwrap()));
}

#[test]
fn forms_show_no_octets_in_debug() {
    let flat = checkpoint(&registered());
    let shown = format!("{flat:?} {:?}", Delta::between(&flat, &next(&flat)));
    assert!(shown.contains("octets)") && !shown.contains('['), "{shown}");
}

/// The phone a little later: its session has had another tunnel, and its keys were renewed.
fn next(base: &Checkpoint) -> Checkpoint {
    let mut phone = base.phone().unwrap();
    phone.clock += 3;
    phone.amf.k_amf = Some(whimbrel_security::KAmf::new([9; 32]));
    phone.sessions.values_mut().for_each(|s| s.an = None);
    checkpoint(&phone)
}

#[test]
fn a_delta_leads_from_its_own_base_to_the_next_checkpoint_and_from_no_other() {
    let base = checkpoint(&registered());
    let next = next(&base);
    let delta = Delta::between(&base, &next).unwrap();
    let delta = Delta::from_octets(delta.octets()).unwrap();
    assert_eq!((delta.base_clock(), delta.clock()), (base.clock(), next.clock()));
    assert_eq!(delta.phone_id(), base.phone_id());
    assert!(delta.octets().len() < next.octets().len() / 3);
    assert_eq!(delta.apply(&base), Ok(next.clone()));
    assert_eq!(delta.apply(&next), Err(FlatError::OtherBase));
    // Another state of the same clock: one of two primaries wrote it that was not to.
    let mut twin = base.phone().unwrap();
    twin.amf.emergency = true;
    assert_eq!(delta.apply(&checkpoint(&twin)), Err(FlatError::OtherBase));
    let mut stranger = base.phone().unwrap();
    stranger.id.generation += 1;
    assert_eq!(delta.apply(&checkpoint(&stranger)), Err(FlatError::OtherBase));
}

#[test]
fn there_is_no_delta_backwards_nor_to_another_phone_nor_where_all_is_new() {
    let base = checkpoint(&registered());
    let next = next(&base);
    assert_eq!(Delta::between(&next, &base), None);
    assert_eq!(Delta::between(&base, &base), None);
    let mut other = next.phone().unwrap();
    other.id.slot += 1;
    assert_eq!(Delta::between(&base, &checkpoint(&other)), None);
    let nobody = checkpoint(&Phone::new(base.phone_id()));
    assert_eq!(Delta::between(&nobody, &next), None, "the checkpoint itself is shorter");
}

#[test]
fn a_delta_that_lies_about_where_it_leads_is_refused() {
    let base = checkpoint(&registered());
    let next = next(&base);
    let frame = Delta::between(&base, &next).unwrap().octets().to_vec();
    let mut taken = 0;
    for at in HEAD..frame.len() - CRC {
        for bit in 0..8 {
            let mut octets = frame.clone();
            octets[at] ^= 1 << bit;
            let Ok(delta) = Delta::from_octets(&sealed(octets)) else { continue };
            taken += 1;
            assert!(delta.apply(&base).is_err(), "octet {at} bit {bit}");
        }
    }
    assert!(taken > 100, "{taken} deltas were read");
}

#[test] // the log of an active phone, and what a replica holds of one, are to be under 2 KB
fn a_registered_phone_with_one_session_and_its_inputs_are_small() {
    let phone = registered();
    let state = checkpoint(&phone).octets().len();
    let delta = Delta::between(&checkpoint(&phone), &next(&checkpoint(&phone))).unwrap().octets().len();
    let longest = |hex| frames(hex).iter().map(Vec::len).max().unwrap();
    let (envelope, batch) = (longest(ENVELOPES), longest(BATCHES));
    println!("octets: state {state}, delta {delta}, longest envelope {envelope}, longest batch {batch}");
    assert!(state < 512 && delta < 128 && envelope < 512 && batch < 1024);
}

/// Every input of the test data, and the time that a phone has to answer.
fn serve(phone: Box<Phone>) {
    let mut shard = Shard::new(Arc::new(crate::desk::config()));
    let (id, terms, mut clock) = (phone.id, phone.terms, phone.clock);
    for frame in frames(ENVELOPES) {
        shard.restore(phone.clone());
        for payload in [Envelope::from_flat(&frame).unwrap().payload, Payload::Tick] {
            clock = clock.max(phone.clock).saturating_add(1);
            if clock == u64::MAX {
                return; // no aggregator has come this far
            }
            let time = whimbrel_ids::Instant(clock.wrapping_mul(1 << 20));
            let envelope = Envelope {
                phone: id,
                cta_term: terms.0,
                owner_term: terms.1,
                clock,
                time,
                payload,
                ..envelope()
            };
            shard.handle(&envelope);
        }
    }
}

fn envelope() -> Envelope {
    Envelope::from_flat(&frames(ENVELOPES)[0]).unwrap()
}

proptest! {
    #[test]
    fn any_octets_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..200), form in 1u8..5) {
        take(&octets);
        let mut octets = [&[form, 0, 1], octets.as_slice(), &[0; CRC]].concat();
        take(&sealed(std::mem::take(&mut octets)));
    }

    #[test]
    fn a_frame_that_a_peer_changed_is_refused_or_read(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..4),
    ) {
        let all = all();
        let mut octets = all[which.index(all.len())].clone();
        for (at, octet, how) in changes {
            let at = HEAD + at.index(octets.len() - HEAD - CRC);
            match how {
                0 => octets[at] = octet,
                1 => octets.insert(at, octet),
                _ => drop(octets.remove(at)),
            }
        }
        take(&sealed(octets));
    }

    #[test]
    fn a_phone_that_a_peer_made_up_does_not_take_its_shard_down(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let all = frames(CHECKPOINTS[0].1);
        let mut octets = all[which.index(all.len())].clone();
        for (at, octet) in changes {
            let at = HEAD + at.index(octets.len() - HEAD - CRC);
            octets[at] = octet;
        }
        let read = Checkpoint::from_octets(&sealed(octets)).and_then(|c| c.phone());
        if let Ok(phone) = read {
            serve(phone);
        }
    }

    #[test]
    fn any_two_strings_of_octets_have_a_delta_between_them(
        old in proptest::collection::vec(0u8..3, 0..300),
        cuts in proptest::collection::vec((0usize..300, 0usize..40, proptest::collection::vec(0u8..3, 0..40)), 0..5),
    ) {
        let mut new = old.clone();
        for (at, len, put) in cuts {
            let at = at.min(new.len());
            let end = (at + len).min(new.len());
            new.splice(at..end, put);
        }
        let mut made = Writer(Vec::new());
        prop_assert_eq!(delta::edit(&old, &delta::edits(&old, &new), &mut made), Ok(()));
        prop_assert_eq!(&made.0, &new);
    }
}
