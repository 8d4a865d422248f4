//! Messages to octets and back; untrusted octets.

use super::common;

use proptest::prelude::*;
use whimbrel_ids::{DecodeErrorKind, Seid};
use whimbrel_pfcp::ie::{Cause, NetworkInstance};
use whimbrel_pfcp::msg::{HeartbeatRequest, SessionEstablishmentRequest};
use whimbrel_pfcp::{Error, Frame, HeaderError, Message, message_type};

fn parse(octets: &[u8]) -> Result<Message, Error> {
    Message::parse(&Frame::parse(octets).expect("a header"))
}

fn ie(ie_type: u16, value: &[u8]) -> Vec<u8> {
    let mut v = ie_type.to_be_bytes().to_vec();
    v.extend_from_slice(&(value.len() as u16).to_be_bytes());
    v.extend_from_slice(value);
    v
}

fn message(message_type: u8, body: &[Vec<u8>]) -> Vec<u8> {
    let body: Vec<u8> = body.concat();
    let mut v = vec![0x20, message_type];
    v.extend_from_slice(&(body.len() as u16 + 4).to_be_bytes());
    v.extend_from_slice(&[0, 0, 1, 0]);
    v.extend_from_slice(&body);
    v
}

#[test]
fn every_message_comes_back_as_it_was() {
    for (i, (seid, m)) in common::all().into_iter().enumerate() {
        let octets = m.to_octets(seid, 0x0a_0000 + i as u32);
        let frame = Frame::parse(&octets).expect("a header");
        assert_eq!(frame.header.seid, seid);
        assert_eq!(frame.header.sequence, 0x0a_0000 + i as u32);
        assert_eq!(frame.header.message_type, m.message_type());
        assert!(frame.rest.is_empty());
        assert_eq!(Message::parse(&frame).as_ref(), Ok(&m), "{m:?}");
    }
}

#[test] // TS 29.244 §7.2.2.3, §7.4.2.1
fn heartbeat_request_octet_for_octet() {
    let octets = [0x20, 1, 0, 12, 0, 0, 7, 0, 0, 96, 0, 4, 0xe8, 0x74, 0xd2, 0x80];
    let recovery_time_stamp = whimbrel_pfcp::ie::RecoveryTimeStamp(0xe874_d280);
    let m = Message::from(HeartbeatRequest { recovery_time_stamp });
    assert_eq!(parse(&octets), Ok(m.clone()));
    assert_eq!(m.to_octets(None, 7), octets);
}

#[test] // TS 29.244 §7.6.9, §8.1.1: unknown elements are skipped, also those of a vendor
fn unknown_elements_are_skipped() {
    let m = message(1, &[ie(0x7fff, &[1, 2, 3]), ie(0x8001, &[0, 10, 1]), ie(96, &[0, 0, 0, 1])]);
    assert!(matches!(parse(&m), Ok(Message::HeartbeatRequest(h)) if h.recovery_time_stamp.0 == 1));
}

#[test] // TS 29.244 §7.6.10
fn of_a_repeated_element_the_first_counts() {
    let m = message(1, &[ie(96, &[0, 0, 0, 1]), ie(96, &[0, 0, 0, 2])]);
    assert!(matches!(parse(&m), Ok(Message::HeartbeatRequest(h)) if h.recovery_time_stamp.0 == 1));
}

#[test] // TS 29.244 §7.6.7: octets behind the known part belong to a later release
fn longer_elements_are_read_as_far_as_known() {
    let m = message(1, &[ie(96, &[0, 0, 0, 1, 9, 9])]);
    assert!(matches!(parse(&m), Ok(Message::HeartbeatRequest(h)) if h.recovery_time_stamp.0 == 1));
}

#[test] // TS 29.244 §7.6.6
fn missing_mandatory_element_is_named() {
    let e =
        parse(&message(message_type::ASSOCIATION_SETUP_REQUEST, &[ie(60, &[0, 127, 0, 0, 1])])).unwrap_err();
    assert_eq!((e.cause(), e.offending_ie), (Cause::MandatoryIeMissing, 96));
}

#[test] // TS 29.244 §7.6.6: within a group, the innermost element is the offender
fn missing_element_within_a_group_is_named() {
    let pdr = ie(1, &[ie(56, &[0, 1]), ie(29, &[0, 0, 0, 1]), ie(2, &[])].concat());
    let seid = ie(57, &[2, 0, 0, 0, 0, 0, 0, 0, 1, 127, 0, 0, 1]);
    let m = message(message_type::SESSION_ESTABLISHMENT_REQUEST, &[ie(60, &[0, 127, 0, 0, 1]), seid, pdr]);
    let e = parse(&m).unwrap_err();
    assert_eq!((e.cause(), e.offending_ie), (Cause::MandatoryIeMissing, 20));
}

#[test] // TS 29.244 §7.6.7
fn short_mandatory_element_is_an_invalid_length() {
    let e = parse(&message(1, &[ie(96, &[0, 0, 1])])).unwrap_err();
    assert_eq!((e.cause(), e.offending_ie), (Cause::InvalidLength, 96));
}

#[test] // TS 29.244 §7.6.8
fn wrong_mandatory_value_is_incorrect() {
    let node = ie(60, &[7, 127, 0, 0, 1]);
    let e = parse(&message(message_type::ASSOCIATION_SETUP_REQUEST, &[node, ie(96, &[0; 4])])).unwrap_err();
    assert_eq!((e.cause(), e.offending_ie), (Cause::MandatoryIeIncorrect, 60));
}

#[test] // TS 29.244 §7.6.4
fn unknown_message_type_is_distinguished() {
    let e = parse(&message(99, &[])).unwrap_err();
    assert_eq!((e.decode.kind, e.offending_ie), (DecodeErrorKind::Unknown, 0));
}

#[test] // TS 29.244 §7.6.2
fn later_version_is_distinguished() {
    let e = Frame::parse(&[0x40, 1, 0, 4, 0, 0, 9, 0]).unwrap_err();
    assert_eq!(e, HeaderError::Version { sequence: 9 });
}

#[test] // TS 29.244 §7.6.3
fn message_shorter_than_its_length_is_malformed() {
    assert!(matches!(Frame::parse(&[0x20, 1, 0, 12, 0, 0, 9, 0]), Err(HeaderError::Malformed(_))));
    assert!(matches!(Frame::parse(&[0x21, 1, 0, 4, 0, 0, 9, 0]), Err(HeaderError::Malformed(_))));
}

#[test] // TS 29.244 §7.2.1A
fn bundled_messages_are_split() {
    let mut first = message(1, &[ie(96, &[0, 0, 0, 1])]);
    first[0] |= 4;
    let second = message(1, &[ie(96, &[0, 0, 0, 2])]);
    let both = [first, second.clone()].concat();
    let frame = Frame::parse(&both).unwrap();
    assert!(frame.header.follow_on);
    assert_eq!(frame.rest, second);
}

#[test] // TS 29.244 §8.2.4: labels or plain text, as peers send either
fn network_instance_in_both_spellings() {
    for octets in
        [&b"\x08internet\x04mnc1"[..], b"internet.mnc1", b"Internet.mnc1", b"\x08internet\x04mnc1\x00"]
    {
        let pdi = ie(2, &[ie(20, &[0]), ie(22, octets)].concat());
        let pdr = ie(1, &[ie(56, &[0, 1]), ie(29, &[0, 0, 0, 1]), pdi].concat());
        let seid = ie(57, &[2, 0, 0, 0, 0, 0, 0, 0, 1, 127, 0, 0, 1]);
        let m =
            message(message_type::SESSION_ESTABLISHMENT_REQUEST, &[ie(60, &[0, 127, 0, 0, 1]), seid, pdr]);
        let Ok(Message::SessionEstablishmentRequest(m)) = parse(&m) else { panic!("{octets:?}") };
        assert_eq!(
            m.create_pdrs[0].pdi.network_instance,
            NetworkInstance::new("internet.mnc1"),
            "{octets:?}"
        );
    }
}

#[test] // TS 29.244 §7.6.8: a bad optional element counts as absent
fn bad_optional_element_counts_as_absent() {
    let Message::SessionEstablishmentRequest(m) = Message::from(common::establishment()) else {
        unreachable!()
    };
    let plain = SessionEstablishmentRequest { user_id: None, ..*m };
    let mut octets = Message::from(plain.clone()).to_octets(Some(Seid(0)), 1);
    octets.extend_from_slice(&ie(141, &[1, 200, 0]));
    let len = octets.len() as u16 - 4;
    octets[2..4].copy_from_slice(&len.to_be_bytes());
    assert_eq!(parse(&octets), Ok(plain.into()));
}

#[test] // one datagram must not make us hold an unbounded list
fn repetitions_are_bounded() {
    let many: Vec<_> = (0..300).map(|_| ie(16, &ie(108, &[0, 0, 0, 1]))).collect();
    let e = parse(&message(message_type::SESSION_MODIFICATION_REQUEST, &many)).unwrap_err();
    assert_eq!((e.decode.kind, e.cause()), (DecodeErrorKind::TooMany, Cause::NoResourcesAvailable));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_octets_return(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(f) = Frame::parse(&octets) {
            let _ = Message::parse(&f);
        }
    }

    /// Whatever is understood is understood the same when written again.
    #[test]
    fn mutated_messages_return(
        which in 0usize..19,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        shorten in any::<bool>(),
    ) {
        let (seid, m) = common::all().swap_remove(which);
        let mut octets = m.to_octets(seid, 1);
        for (at, v) in edits {
            let at = at.index(octets.len());
            octets[at] = v;
        }
        if shorten {
            octets.truncate(cut.index(octets.len()));
        }
        if let Ok(f) = Frame::parse(&octets)
            && let Ok(m) = Message::parse(&f)
        {
            let again = m.to_octets(f.header.seid, f.header.sequence);
            prop_assert_eq!(parse(&again), Ok(m));
        }
    }
}

#[test] // TS 29.244 §6.2.3, §6.2.4: read without reading the rest; what cannot be read counts as absent
fn load_and_overload_are_found_in_a_session_message() {
    let load = ie(51, &[ie(52, &[0, 0, 0, 9]), ie(53, &[30])].concat());
    let overload = ie(54, &[ie(52, &[0, 0, 0, 4]), ie(53, &[80]), ie(55, &[0x21]), ie(110, &[1])].concat());
    let octets = message(53, &[ie(19, &[1]), load, overload.clone()]);
    let (load, over) = whimbrel_pfcp::control_information(&Frame::parse(&octets).unwrap());
    let load = load.unwrap();
    assert_eq!((load.sequence_number.0, load.metric.0), (9, 30));
    let over = over.unwrap();
    assert_eq!((over.metric.0, over.period_of_validity.seconds()), (80, Some(60)));
    let octets = message(53, &[ie(51, &[1, 2, 3]), ie(19, &[1]), ie(54, &ie(53, &[1]))]);
    assert_eq!(whimbrel_pfcp::control_information(&Frame::parse(&octets).unwrap()), (None, None));
    assert_eq!(
        whimbrel_pfcp::control_information(&Frame::parse(&message(53, &[vec![0; 3]])).unwrap()),
        (None, None)
    );
}

#[test] // TS 29.244 §8.2.78
fn times_are_packed_upwards() {
    use whimbrel_pfcp::ie::PackedTimer;
    for (given, packed) in
        [(0, 0), (1, 2), (62, 62), (63, 120), (1860, 1860), (1861, 2400), (200_000, 216_000)]
    {
        assert_eq!(PackedTimer::from_seconds(given).seconds(), Some(packed), "{given}");
    }
    assert_eq!(PackedTimer::from_seconds(u32::MAX).seconds(), Some(31 * 36_000));
}
