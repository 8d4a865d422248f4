//! TS 24.501 §7: what unknown, unforeseen and erroneous octets do.

use super::common;

use common::{hex, unhex};
use whimbrel_ids::DecodeErrorKind;
use whimbrel_nas::ie::{MmCause, SmCause};
use whimbrel_nas::security::{ProtectedBuilder, SecurityHeaderType, SecurityProtected};
use whimbrel_nas::{Envelope, NasErrorKind, mm, sm};

/// REGISTRATION REQUEST of a UE with a SUCI: the mandatory part alone.
const REGISTRATION: &str = "7e0041 79 000d 0199f907f0ff00000000000010";

fn octets(parts: &str) -> Vec<u8> {
    unhex(&parts.replace(' ', ""))
}

fn mm_of(parts: &str) -> Result<mm::Message, whimbrel_nas::NasError> {
    mm::Message::decode(&octets(parts))
}

fn registration(optional: &str) -> mm::RegistrationRequest {
    match mm_of(&format!("{REGISTRATION}{optional}")) {
        Ok(mm::Message::RegistrationRequest(m)) => m,
        other => panic!("{other:?}"),
    }
}

#[test] // TS 24.501 §7.2.1
fn too_short_is_ignored() {
    for short in ["", "7e", "7e00", "2e", "2e05", "2e0501"] {
        let o = octets(short);
        let errors = [
            mm::Message::decode(&o).map(|_| ()).unwrap_err(),
            sm::Message::decode(&o).map(|_| ()).unwrap_err(),
        ];
        for e in errors {
            assert!(
                matches!(e.kind, NasErrorKind::TooShort | NasErrorKind::ProtocolDiscriminator(_)),
                "{short}: {e}"
            );
            assert_eq!((e.mm_cause(), e.sm_cause()), (None, None));
        }
    }
    assert_eq!(Envelope::parse(&[]).unwrap_err().kind, NasErrorKind::TooShort);
    assert_eq!(Envelope::parse(&[0x7e, 0x01, 0, 0, 0, 0, 7, 0x7e]).unwrap_err().kind, NasErrorKind::TooShort);
}

#[test] // TS 24.007 §11.2.3.1.1A: another protocol is none of ours
fn another_discriminator_is_ignored() {
    assert_eq!(
        Envelope::parse(&[0x07, 0x41, 0]).unwrap_err().kind,
        NasErrorKind::ProtocolDiscriminator(0x07)
    );
    assert_eq!(mm_of("2e0501c1ffff").unwrap_err().kind, NasErrorKind::ProtocolDiscriminator(0x2e));
}

#[test] // TS 24.501 §7.3.2
fn reserved_pdu_session_identity_is_ignored() {
    let e = sm::Message::decode(&octets("2e1001c1ffff")).unwrap_err();
    assert_eq!(e.kind, NasErrorKind::PduSessionIdentity(16));
    assert_eq!(e.sm_cause(), None);
}

#[test] // TS 24.501 §7.3.1: the procedures answer it, so it is decoded as received
fn reserved_pti_is_kept() {
    let m = sm::Message::decode(&octets("2e05ffc1ffff")).unwrap();
    assert!(!m.pti.is_assigned());
    assert_eq!(m.pti.0, 255);
}

#[test] // TS 24.501 §7.4
fn unknown_message_type_is_97() {
    let e = mm_of("7e00ff").unwrap_err();
    assert_eq!((e.mm_cause(), e.message_type), (Some(MmCause::MessageTypeNonExistent), Some(0xff)));
    let e = sm::Message::decode(&octets("2e0511ff")).unwrap_err();
    assert_eq!((e.sm_cause(), e.sm_header), (Some(SmCause::MessageTypeNonExistent), Some((5, 17))));
}

#[test] // TS 24.501 §7.5.1
fn missing_or_malformed_mandatory_element_is_96() {
    for (bad, kind) in [
        ("7e0041", DecodeErrorKind::MissingMandatory),
        ("7e004179", DecodeErrorKind::MissingMandatory),
        ("7e00417900", DecodeErrorKind::MissingMandatory),
        ("7e004179 000d 01", DecodeErrorKind::Truncated),
        ("7e004179 0000", DecodeErrorKind::Truncated),
        ("7e004179 000d 0199f9a7f0ff00000000000010", DecodeErrorKind::InvalidValue),
        ("7e005d 80 02 02f0f0", DecodeErrorKind::InvalidValue),
        ("7e005d 02 02 01f0", DecodeErrorKind::InvalidLength),
    ] {
        let e = mm_of(bad).unwrap_err();
        assert_eq!(e.mm_cause(), Some(MmCause::InvalidMandatoryInformation), "{bad}: {e}");
        assert!(matches!(e.kind, NasErrorKind::Mandatory(d) if d.kind == kind), "{bad}: {e:?}");
    }
    let e = sm::Message::decode(&octets("2e0511c1ff")).unwrap_err();
    assert_eq!((e.sm_cause(), e.message_type), (Some(SmCause::InvalidMandatoryInformation), Some(0xc1)));
}

#[test] // TS 24.501 §7.5.1 with TS 24.007 §11.2.4: bits 8 to 5 of the identifier are zero
fn unknown_element_that_demands_comprehension_is_96() {
    let e = mm_of(&format!("{REGISTRATION} 0a 01 00")).unwrap_err();
    assert_eq!(e.kind, NasErrorKind::ComprehensionRequired(0x0a));
    assert_eq!(e.mm_cause(), Some(MmCause::InvalidMandatoryInformation));
}

#[test] // TS 24.501 §7.6.1: each format of an unknown element is stepped over by its identifier
fn unknown_elements_are_skipped() {
    let m = registration("d5 5f 02 1234 7f 0003 123456 9f 10 01 03");
    assert!(m.mm_capability.unwrap().s1_mode());
    assert!(m.network_slicing_indication.is_some(), "9- is known here");
    assert!(m.requested_nssai.is_none());
}

#[test] // TS 24.501 §7.6.2
fn out_of_sequence_elements_are_taken() {
    let m = registration("2e 02 e0e0 10 01 03");
    assert!(m.ue_security_capability.is_some() && m.mm_capability.is_some());
}

#[test] // TS 24.501 §7.6.3
fn the_first_of_repeated_elements_counts() {
    let m = registration("2e 02 e0e0 2e 02 0000 c1 c2");
    assert_eq!(m.ue_security_capability.unwrap().octets(), [0xe0, 0xe0]);
    assert_eq!(m.non_current_native_ng_ksi.unwrap().value(), 1);
}

#[test] // TS 24.501 §7.2.2: what is longer than any message is read as far as it goes, and no octet of it twice
fn too_long_is_read_as_far_as_it_goes() {
    // An unknown element of 60,000 octets, a known one behind it, and then more than a message may have.
    let mut o = octets(REGISTRATION);
    o.extend([0x7f, 0xea, 0x60]);
    o.resize(o.len() + 60_000, 0x55);
    o.extend([0x51]); // DRX parameters follow
    o.extend([1, 2]);
    o.resize(70_000, 0xc0);
    let Ok(mm::Message::RegistrationRequest(m)) = mm::Message::decode(&o) else { panic!("not read") };
    assert!(m.requested_drx_parameters.is_some());
}

#[test] // TS 24.501 §7.7.1
fn malformed_optional_element_reads_as_absent() {
    let m = registration("2e 01 e0 2f 02 0301 50 02 2000");
    assert!(m.ue_security_capability.is_none() && m.requested_nssai.is_none());
    assert!(m.pdu_session_status.is_some(), "reading goes on behind it");
    for truncated in ["50 02 20", "50", "71 0100 00", "71 00", "52 99f907"] {
        let m = registration(&format!("10 01 03 {truncated}"));
        assert!(m.mm_capability.is_some(), "{truncated}");
        assert!(m.pdu_session_status.is_none() && m.nas_message_container.is_none());
    }
}

#[test] // TS 24.501 §7.2.2, TS 24.007 §11.4.2: a later release may have made an element longer
fn octets_beyond_an_element_are_ignored() {
    let m = registration("50 04 20000000 53 02 01ff");
    assert_eq!(m.pdu_session_status.unwrap().bits(), 0x20);
    assert!(m.update_type.unwrap().sms_requested());
}

#[test] // TS 24.501 §9.11.3.2: an undefined value is taken as "protocol error, unspecified"
fn undefined_cause_is_111() {
    assert!(matches!(mm_of("7e0064 01"),
        Ok(mm::Message::MmStatus(m)) if m.cause == MmCause::ProtocolErrorUnspecified));
}

#[test] // TS 24.501 §9.1.1, §9.3
fn protected_message_is_seen_as_one() {
    let received = octets("7e 02 a1b2c3d4 05 7e0067");
    let Ok(Envelope::Protected(p)) = Envelope::parse(&received) else { panic!("not protected") };
    assert_eq!(p.header_type, SecurityHeaderType::IntegrityProtectedCiphered);
    assert_eq!((p.mac, p.sequence_number), ([0xa1, 0xb2, 0xc3, 0xd4], 5));
    assert_eq!((hex(p.payload), hex(p.authenticated)), ("7e0067".into(), "057e0067".into()));
    let built = ProtectedBuilder::new(p.header_type, p.sequence_number, p.payload).seal(p.mac);
    assert_eq!(built, received);
    let e = mm::Message::decode(&received).unwrap_err();
    assert_eq!((e.kind, e.mm_cause()), (NasErrorKind::SecurityProtected(2), None));
}

#[test] // TS 24.501 §9.3.1: reserved security header types
fn reserved_security_header_types_are_ignored() {
    for kind in 5..=15 {
        let received = [0x7e, kind, 0, 0, 0, 0, 0, 0x7e, 0, 0x41];
        assert_eq!(
            SecurityProtected::parse(&received).unwrap_err().kind,
            NasErrorKind::SecurityProtected(kind)
        );
    }
}

#[test] // TS 24.501 §9.11.3.4: an octet less, a digit that is none, a type that contradicts the digits
fn mobile_identity_is_checked() {
    let identity = |hex: &str| {
        let value = octets(hex);
        let mut message = octets("7e005c");
        message.extend([0, value.len() as u8]);
        message.extend(value);
        mm::Message::decode(&message)
    };
    for good in [
        "00",
        "01 99f907 f0ff 00 00 10",
        "f2 130014 02556a deadbeef",
        "f4 ff7f 01020304",
        "3b15325476981032",
        "35 1532547698 1032f4",
        "06 02005e100001",
        "07 02005efffe100003",
    ] {
        assert!(identity(good).is_ok(), "{good}: {:?}", identity(good));
    }
    for bad in [
        "",
        "01 99f907 f0ff 00",
        "01 9af907 f0ff 00 00 10",
        "01 99f907 ffff 00 00 10",
        "01 99f907 f01f 00 00 10",
        "01 99f907 f0ff 00 00 1a",
        "41 99f907",
        "f2 130014 02556a dead",
        "f2 1a0014 02556a deadbeef",
        "f4 ff7f 010203",
        "33 15325476981032",
        "3b 153254769810",
        "3b 1532547698103a",
        "35 1532547698 103214",
        "3d 1532547698 1032f4",
        "06 02005e1000",
        "07 02005efffe1000",
    ] {
        let e = identity(bad).expect_err(bad);
        assert_eq!(e.mm_cause(), Some(MmCause::InvalidMandatoryInformation), "{bad}");
    }
}
