use super::*;
use proptest::prelude::*;

const PLAIN: [u8; 9] = [0x7e, 0, 0x43, 1, 2, 3, 4, 5, 6];

fn k_amf() -> KAmf {
    KAmf::new([0x5a; 32])
}

fn context(
    side: NasSide,
    ciphering: CipheringAlgorithm,
    integrity: IntegrityAlgorithm,
) -> NasSecurityContext {
    NasSecurityContext::new(side, Bearer::NAS_3GPP, &k_amf(), ciphering, integrity, NasCounts::default())
}

fn pair() -> (NasSecurityContext, NasSecurityContext) {
    let of = |side| context(side, CipheringAlgorithm::Nea2, IntegrityAlgorithm::Nia2);
    (of(NasSide::Network), of(NasSide::Ue))
}

fn at(side: NasSide, counts: NasCounts) -> NasSecurityContext {
    NasSecurityContext { counts, ..context(side, CipheringAlgorithm::Nea2, IntegrityAlgorithm::Nia2) }
}

fn sent(from: &mut NasSecurityContext, header: SecurityHeaderType) -> Vec<u8> {
    let mut out = Vec::new();
    from.protect(header, &PLAIN, &mut out).unwrap();
    out
}

const CIPHERED: SecurityHeaderType = SecurityHeaderType::IntegrityProtectedAndCiphered;

#[test] // TS 24.501 §9.1.1; TS 33.501 §5.11.1.1, §5.11.1.2, §6.4.3, §6.4.4
fn every_algorithm_and_header_comes_through() {
    for ciphering in CipheringAlgorithm::ALL {
        for integrity in IntegrityAlgorithm::ALL {
            let (mut amf, mut ue) =
                (context(NasSide::Network, ciphering, integrity), context(NasSide::Ue, ciphering, integrity));
            for (n, header) in (1..=4).filter_map(SecurityHeaderType::from_value).enumerate() {
                let message = sent(&mut amf, header);
                assert_eq!((message[0], message[1], message[6]), (0x7e, header as u8, n as u8));
                let clear = !header.is_ciphered() || ciphering == CipheringAlgorithm::Nea0;
                assert_eq!(message[7..] == PLAIN, clear);
                let mut plain = Vec::new();
                let count = NasCount::new(n as u32).unwrap();
                assert_eq!(ue.unprotect(&message, &mut plain), Ok(Unprotected { header, count }));
                assert_eq!(plain, PLAIN);
            }
        }
    }
}

#[test] // TS 24.501 §4.4.3.2; TS 33.512 §4.2.2.3.1; TS 33.501 §6.4.5
fn a_repeated_message_is_refused_and_changes_nothing() {
    let (mut amf, mut ue) = pair();
    let (first, second) = (sent(&mut ue, CIPHERED), sent(&mut ue, CIPHERED));
    let mut plain = Vec::new();
    amf.unprotect(&first, &mut plain).unwrap();
    assert_eq!(amf.unprotect(&first, &mut plain), Err(UnprotectError::Replayed));
    assert!(plain.is_empty());
    amf.unprotect(&second, &mut plain).unwrap();
    assert_eq!(amf.unprotect(&first, &mut plain), Err(UnprotectError::Replayed));
    assert_eq!(amf.newest(Direction::Uplink), NasCount::new(1));
    assert_eq!(amf.newest(Direction::Downlink), None);
}

#[test] // TS 33.501 §6.4.3: direction and connection are part of what is protected
fn a_message_of_the_other_direction_or_connection_is_refused() {
    let (mut amf, mut ue) = pair();
    let mut plain = Vec::new();
    let own = sent(&mut amf, CIPHERED);
    assert_eq!(amf.unprotect(&own, &mut plain), Err(UnprotectError::MacMismatch));
    amf.bearer = Bearer::NAS_NON_3GPP;
    let up = sent(&mut ue, CIPHERED);
    assert_eq!(amf.unprotect(&up, &mut plain), Err(UnprotectError::MacMismatch));
}

#[test] // TS 24.501 §4.4.3.1: lost messages, over an overflow of the sequence number
fn count_is_estimated_over_gaps() {
    let (mut amf, mut ue) = pair();
    let mut plain = Vec::new();
    for gap in [0u32, 255, 3, 200, 254, 1] {
        for _ in 0..gap {
            sent(&mut ue, CIPHERED);
        }
        let expected = ue.next_sent().unwrap();
        let message = sent(&mut ue, CIPHERED);
        assert_eq!(amf.unprotect(&message, &mut plain).unwrap().count, expected);
    }
    assert_eq!(amf.counts().uplink_next, 719);
}

#[test] // TS 24.501 §4.4.3.5
fn a_count_is_never_used_twice() {
    let counts = NasCounts { uplink_next: NasCount::MAX, downlink_next: NasCount::MAX };
    let (mut amf, mut ue) = (at(NasSide::Network, counts), at(NasSide::Ue, counts));
    assert!(amf.wrap_is_near() && !pair().0.wrap_is_near());
    let message = sent(&mut ue, CIPHERED);
    let mut out = Vec::new();
    assert_eq!(ue.protect(CIPHERED, &PLAIN, &mut out), Err(ProtectError::CountExhausted));
    assert!(out.is_empty());
    let mut plain = Vec::new();
    assert_eq!(amf.unprotect(&message, &mut plain).unwrap().count.value(), NasCount::MAX);
    assert_eq!(amf.unprotect(&message, &mut plain), Err(UnprotectError::Replayed));
    let mut other = message;
    other[6] = 0;
    assert_eq!(amf.unprotect(&other, &mut plain), Err(UnprotectError::CountExhausted));
}

#[test]
fn a_context_goes_on_after_a_checkpoint_and_without_its_schedules() {
    let (mut amf, mut ue) = pair();
    let mut plain = Vec::new();
    amf.unprotect(&sent(&mut ue, CIPHERED), &mut plain).unwrap();
    amf.release_schedules();
    amf.unprotect(&sent(&mut ue, CIPHERED), &mut plain).unwrap();
    let (c, i) = (amf.ciphering(), amf.integrity());
    let mut amf = NasSecurityContext::new(NasSide::Network, Bearer::NAS_3GPP, &k_amf(), c, i, amf.counts());
    amf.unprotect(&sent(&mut ue, CIPHERED), &mut plain).unwrap();
    assert_eq!(plain, PLAIN);
}

#[test] // TS 24.501 §4.4.6; TS 33.501 §6.4.6
fn a_container_is_deciphered_under_its_messages_count() {
    let (mut amf, mut ue) = pair();
    let mut value = PLAIN;
    let count = ue.next_sent().unwrap();
    ue.apply_to_container(Direction::Uplink, count, &mut value);
    assert_ne!(value, PLAIN);
    let message = sent(&mut ue, SecurityHeaderType::IntegrityProtected);
    let taken = amf.unprotect(&message, &mut Vec::new()).unwrap();
    amf.apply_to_container(Direction::Uplink, taken.count, &mut value);
    assert_eq!(value, PLAIN);
}

#[test]
fn past_messages_are_read_again_under_the_same_keys_alone() {
    let (mut amf, mut ue) = pair();
    let messages: Vec<_> = (0..600).map(|_| sent(&mut ue, CIPHERED)).collect();
    for message in &messages {
        amf.unprotect(message, &mut Vec::new()).unwrap();
    }
    let counts = amf.counts();
    for message in &messages[100..] {
        assert_eq!(amf.read_again(Direction::Uplink, message).as_deref(), Some(&PLAIN[..]));
    }
    assert_eq!(amf.read_again(Direction::Uplink, &messages[0]), None, "too old to tell its COUNT");
    assert_eq!(amf.read_again(Direction::Downlink, &messages[599]), None);
    let mut altered = messages[599].clone();
    altered[9] ^= 1;
    assert_eq!(amf.read_again(Direction::Uplink, &altered), None);
    assert_eq!(amf.counts(), counts, "nothing changes");
}

#[test]
fn what_is_no_protected_message_is_named() {
    let (mut amf, _) = pair();
    for (octets, ie) in [
        (&[][..], "Extended protocol discriminator"),
        (&[0x2e, 2, 0, 0, 0, 0, 0, 1], "Extended protocol discriminator"),
        (&[0x7e, 0, 0x41], "Security header type"),
        (&[0x7e, 5, 0, 0, 0, 0, 0, 1], "Security header type"),
        (&[0x7e, 2, 0, 0, 0], "Message authentication code"),
        (&[0x7e, 2, 0, 0, 0, 0], "Sequence number"),
        (&[0x7e, 2, 0, 0, 0, 0, 0], "Plain 5GS NAS message"),
    ] {
        let Err(UnprotectError::Decode(e)) = amf.unprotect(octets, &mut Vec::new()) else {
            panic!("{octets:?}")
        };
        assert_eq!(e.ie, ie);
    }
}

#[test]
fn an_idle_context_is_small() {
    assert!(size_of::<NasSecurityContext>() <= 56, "{}", size_of::<NasSecurityContext>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_altered_message_is_refused(at in 2usize..16, bit in 0u8..8) {
        // The security header type, octet 1, is not under the MAC (TS 24.501 §4.4.3.3).
        let (mut amf, mut ue) = pair();
        let mut message = sent(&mut ue, CIPHERED);
        message[at] ^= 1 << bit;
        prop_assert!(amf.unprotect(&message, &mut Vec::new()).is_err());
        prop_assert_eq!(amf.counts(), NasCounts::default());
    }

    #[test]
    fn any_octets_are_answered(octets in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = pair().0.unprotect(&octets, &mut Vec::new());
    }
}
