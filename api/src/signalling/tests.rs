//! Tests of decoded messages.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};
use whimbrel_ngap::ie::SecurityKey;
use whimbrel_ngap::{DownlinkNasTransport, Message as Ngap, UplinkNasTransport};
use whimbrel_node::config::value::unhex;
use whimbrel_node::observation::Signalling;

use super::*;

const AMF: u64 = 7;

fn uplink(nas: &[u8]) -> Vec<u8> {
    let (amf, ran) = (AmfUeNgapId::new(AMF).unwrap(), RanUeNgapId(9));
    Ngap::from(UplinkNasTransport::new(amf, ran, nas.to_vec())).to_vec()
}

fn names(fields: &[Field]) -> String {
    serde_json::to_string(fields).unwrap()
}

#[test] // TS 38.413 §9.2.5.3, TS 24.501 §8.2.2
fn a_message_is_named_by_its_nas_message_with_both_clauses() {
    // AUTHENTICATION RESPONSE with RES*.
    let nas = unhex("7e00572d10000102030405060708090a0b0c0d0e0f").unwrap();
    let decoded = ngap(&uplink(&nas));
    assert_eq!(
        (decoded.name.as_str(), decoded.clause.as_str()),
        ("UPLINK NAS TRANSPORT", "TS 38.413 §9.2.5.3")
    );
    let [only] = &decoded.nas[..] else { panic!("{:?}", decoded.nas) };
    assert_eq!(
        (only.name.as_str(), only.clause.as_str(), only.protection),
        ("AUTHENTICATION RESPONSE", "TS 24.501 §8.2.2", "plain")
    );
    let shown = names(&decoded.fields);
    assert!(shown.contains("AMF UE NGAP ID") && shown.contains("\"7\""), "{shown}");
}

#[test] // TS 24.501 §8.2.10, §8.3.1
fn a_session_management_message_is_found_in_its_container() {
    // UL NAS TRANSPORT with PDU SESSION ESTABLISHMENT REQUEST, as integrity protected with null ciphering.
    let plain = unhex("7e00670100072e0101c1ffff91120181220101250908696e7465726e6574").unwrap();
    let nas = [&unhex("7e02aabbccdd00").unwrap()[..], &plain].concat();
    let decoded = ngap(&uplink(&nas));
    let names: Vec<&str> = decoded.nas.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["UL NAS TRANSPORT", "PDU SESSION ESTABLISHMENT REQUEST"], "{:?}", decoded.fields);
    assert_eq!(decoded.nas[1].clause, "TS 24.501 §8.3.1");
}

#[test] // TS 24.501 §9.1.1
fn a_ciphered_message_is_shown_as_ciphered_until_it_is_opened() {
    let nas = unhex("7e02aabbccdd05112233445566").unwrap();
    let mut decoded = ngap(&uplink(&nas));
    assert_eq!((decoded.nas[0].name.as_str(), decoded.nas[0].protection), (CIPHERED, "ciphered"));
    assert_eq!(decoded.ciphered, std::slice::from_ref(&nas));
    let mut found = Vec::new();
    let inner = nas_fields(&unhex("7e0043").unwrap(), "ciphered", 0, &mut found, &mut Vec::new());
    put(&mut decoded.fields, &nas, &inner);
    assert_eq!(found[0].name, "REGISTRATION COMPLETE");
    assert!(!names(&decoded.fields).contains("sequence number"), "the plain fields stand for it");
}

#[test] // TS 33.117 §4.2.3.2.2: keys do not leave
fn no_key_is_among_the_fields() {
    let (amf, ran) = (AmfUeNgapId::new(AMF).unwrap(), RanUeNgapId(9));
    let mut message = whimbrel_ngap::InitialContextSetupRequest::new(
        amf,
        ran,
        whimbrel_ids::Guami {
            plmn: whimbrel_ids::PlmnId::TEST,
            amf_id: whimbrel_ids::AmfId::new(1, 1, 1).unwrap(),
        },
        vec![whimbrel_ids::SNssai::sst(1)],
        whimbrel_ngap::ie::UeSecurityCapabilities {
            nr_encryption_algorithms: 0xe000,
            nr_integrity_protection_algorithms: 0xe000,
            eutra_encryption_algorithms: 0,
            eutra_integrity_protection_algorithms: 0,
        },
        SecurityKey([0xab; 32]),
    );
    message.nas_pdu = Some(unhex("7e0042").unwrap());
    let decoded = ngap(&Ngap::from(message).to_vec());
    assert_eq!(decoded.name, "INITIAL CONTEXT SETUP REQUEST");
    let shown = names(&decoded.fields);
    assert!(shown.contains("security key") && !shown.contains("abab") && !shown.contains("171"), "{shown}");
}

#[test]
fn any_octets_are_shown() {
    for octets in [&[][..], &[0x7e], &[0, 15, 0x40, 0x80], &uplink(&[0x7e; 40]), &[0x20, 50, 0, 0]] {
        for shown in [ngap(octets), pfcp(octets)] {
            assert!(!shown.name.is_empty());
        }
    }
    let mut nested = vec![0x7e, 1, 0, 0, 0, 0, 0];
    for _ in 0..50 {
        nested = [&[0x7e, 1, 0, 0, 0, 0, 0][..], &nested].concat();
    }
    ngap(&uplink(&nested));
}

#[test]
fn an_arrow_leads_from_the_sender_to_the_receiver() {
    let mut s = Signalling::new(1 << 20);
    let ue = UeId { slot: 1, generation: 1 };
    let names = whimbrel_node::observation::Names { ue: Some(ue), ..Default::default() };
    let (amf, ran) = (AmfUeNgapId::new(AMF).unwrap(), RanUeNgapId(9));
    let down = Ngap::from(DownlinkNasTransport::new(amf, ran, vec![0x7e, 0, 0x42])).to_vec();
    s.push(
        whimbrel_ids::Instant(1_700_000_000_123_456),
        (Interface::N2, false),
        "gnb-999/70-1".into(),
        names,
        &down,
    );
    let message = &s.of(&[ue], 0, 9).messages[0];
    let arrow = arrow(decoded(message), message);
    assert_eq!((arrow.from.as_str(), arrow.to.as_str()), ("AMF", "gnb-999/70-1"));
    assert!(arrow.at.ends_with(".123456Z"), "{}", arrow.at);
}
