//! Headers and messages, octet for octet, and untrusted octets.

use std::net::IpAddr;

use proptest::prelude::*;
use whimbrel_gtpu::signalling::{
    ErrorIndication, echo_request, echo_response, error_indication, supported_extension_headers_notification,
};
use whimbrel_gtpu::{
    ExtensionType, GpduHeader, Gtpu, GtpuError, PduSessionInformation, message_type,
    remove_extensions_in_transit,
};
use whimbrel_ids::{Qfi, Teid};

const TEID: Teid = Teid(0x0102_0304);

fn encapsulate(header: GpduHeader, payload: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0xee; 64];
    let n = header.write_before(payload.len(), &mut buffer).expect("headroom");
    let mut m = buffer.split_off(64 - n);
    m.extend_from_slice(payload);
    m
}

#[test] // TS 29.281 §5.1
fn g_pdu_without_options() {
    let m = encapsulate(GpduHeader::new(TEID, None), b"abc");
    assert_eq!(m, [0x30, 255, 0, 3, 1, 2, 3, 4, b'a', b'b', b'c']);
    let v = Gtpu::parse(&m).unwrap();
    assert_eq!(
        (v.teid, v.message_type, v.payload, v.payload_at),
        (TEID, message_type::G_PDU, &b"abc"[..], 8)
    );
}

#[test] // TS 29.281 §5.2.2.7, TS 38.415 §5.5.2.1
fn g_pdu_with_dl_pdu_session_information() {
    let info = PduSessionInformation::Dl { qfi: Qfi::new(9).unwrap(), rqi: true, ppi: None };
    let m = encapsulate(GpduHeader::new(TEID, Some(info)), b"ab");
    assert_eq!(m, [0x34, 255, 0, 10, 1, 2, 3, 4, 0, 0, 0, 0x85, 1, 0x00, 0x49, 0, b'a', b'b']);
    let v = Gtpu::parse(&m).unwrap();
    assert_eq!((v.pdu_session, v.payload), (Some(info), &b"ab"[..]));
}

#[test] // TS 38.415 §5.5.2.1: paging policy present
fn dl_pdu_session_information_with_paging_policy() {
    let info = PduSessionInformation::Dl { qfi: Qfi::new(63).unwrap(), rqi: false, ppi: Some(5) };
    let m = encapsulate(GpduHeader::new(TEID, Some(info)), &[]);
    assert_eq!(m[2..4], [0, 12]);
    assert_eq!(m[12..], [2, 0, 0xbf, 0xa0, 0, 0, 0, 0]);
    assert_eq!(Gtpu::parse(&m).unwrap().pdu_session, Some(info));
}

#[test] // TS 38.415 §5.5.2.2
fn ul_pdu_session_information() {
    let info = PduSessionInformation::Ul { qfi: Qfi::new(1).unwrap() };
    let m = encapsulate(GpduHeader::new(TEID, Some(info)), b"x");
    assert_eq!(m[12..], [1, 0x10, 1, 0, b'x']);
    assert_eq!(Gtpu::parse(&m).unwrap().pdu_session, Some(info));
}

#[test] // TS 29.281 §7.2.1, §7.2.2
fn echo() {
    assert_eq!(echo_request(7).as_ref(), [0x32, 1, 0, 4, 0, 0, 0, 0, 0, 7, 0, 0]);
    assert_eq!(echo_response(7).as_ref(), [0x32, 2, 0, 6, 0, 0, 0, 0, 0, 7, 0, 0, 14, 0]);
    assert_eq!(Gtpu::parse(echo_response(7).as_ref()).unwrap().sequence, Some(7));
}

#[test] // TS 29.281 §7.3.1
fn error_indication_names_tunnel_and_address() {
    for peer in ["127.0.0.1", "::1"] {
        let peer: IpAddr = peer.parse().unwrap();
        let m = error_indication(TEID, peer, 2152);
        let v = Gtpu::parse(m.as_ref()).unwrap();
        assert_eq!(
            (v.message_type, v.teid, v.udp_port),
            (message_type::ERROR_INDICATION, Teid(0), Some(2152))
        );
        assert_eq!(ErrorIndication::parse(v.payload), Ok(ErrorIndication { teid: TEID, peer }));
    }
    assert!(ErrorIndication::parse(&[16, 0, 0, 0, 1]).is_err());
}

#[test] // TS 29.281 §7.3.2
fn end_marker_is_of_the_tunnel_and_carries_nothing() {
    let header = GpduHeader::new(TEID, None);
    assert_eq!(header.end_marker()[..header.octets_len()], [0x30, 254, 0, 0, 1, 2, 3, 4]);
}

#[test] // TS 29.281 §7.2.3, §8.5
fn supported_extension_headers() {
    let m = supported_extension_headers_notification(3);
    assert_eq!(m.as_ref()[..12], [0x32, 31, 0, 12, 0, 0, 0, 0, 0, 3, 0, 0]);
    assert_eq!(m.as_ref()[12..], [141, 6, 0x85, 0xc0, 0x40, 0x20, 0x03, 0x82]);
}

/// Rows of figure 5.2.1-3, and types that it leaves free: whether the endpoint of a tunnel uses the message, and whether a node that forwards it does, and
/// with the header.
const EXTENSION_TYPES: [(u8, bool, Option<bool>); 17] = [
    (0x01, true, Some(true)),  // control plane only
    (0x02, true, Some(true)),  // control plane only
    (0x03, true, Some(true)),  // Long PDCP PDU number
    (0x20, true, Some(true)),  // service class indicator
    (0x21, true, Some(true)),  // free
    (0x40, true, Some(false)), // UDP port
    (0x61, true, Some(false)), // free
    (0x81, false, Some(true)), // RAN container
    (0x82, true, Some(true)),  // Long PDCP PDU number, older type
    (0x83, false, Some(true)), // Xw RAN container
    (0x84, false, Some(true)), // NR RAN container
    (0x85, true, Some(true)),  // PDU session container
    (0x8f, false, Some(true)), // free
    (0xc0, true, Some(true)),  // PDCP PDU number
    (0xc1, false, None),       // control plane only
    (0xc2, false, None),       // control plane only
    (0xcf, false, None),       // free
];

#[test] // TS 29.281 §5.2.1: comprehension by the two upper bits of the type
fn extension_headers_of_each_type_are_used_and_forwarded_as_their_bits_say() {
    for (t, is_used, is_forwarded) in EXTENSION_TYPES {
        let m = [0x34, 255, 0, 9, 1, 2, 3, 4, 0, 0, 0, t, 1, 0x10, 1, 0, b'x'];
        let unknown = Err(GtpuError::UnknownExtension(ExtensionType(t)));
        let payload = |m: Result<Gtpu<'_>, GtpuError>| m.map(|m| m.payload.to_vec());
        let used = if is_used { Ok(b"x".to_vec()) } else { unknown.clone() };
        assert_eq!(payload(Gtpu::parse(&m)), used, "{t:#x}");
        let forwarded = if is_forwarded.is_some() { Ok(b"x".to_vec()) } else { unknown };
        assert_eq!(payload(Gtpu::parse_in_transit(&m)), forwarded, "{t:#x}");
        // Alone, and in front of, between and behind others.
        let mut alone = m;
        let removed = remove_extensions_in_transit(&mut alone);
        match is_forwarded {
            Some(false) => {
                assert_eq!(alone[removed..], [0x34, 255, 0, 5, 1, 2, 3, 4, 0, 0, 0, 0, b'x'], "{t:#x}");
            }
            _ => assert_eq!((removed, alone), (0, m), "{t:#x}"),
        }
        for place in 0..3 {
            let mut types = vec![0x85, 0xc0];
            types.insert(place, t);
            let chain = |types: &[u8]| {
                let next = types.iter().skip(1).chain(&[0]);
                let headers: Vec<u8> = types
                    .iter()
                    .zip(next)
                    .flat_map(|(t, next)| [1, 0x10 | t >> 6, *t & 0x3f, *next])
                    .collect();
                let length = 4 + headers.len() as u8 + 1;
                [&[0x34, 255, 0, length, 1, 2, 3, 4, 0, 0, 0, types[0]][..], &headers, b"x"].concat()
            };
            let mut forwarded = chain(&types);
            let removed = remove_extensions_in_transit(&mut forwarded);
            types.retain(|of| *of != t || is_forwarded != Some(false));
            assert_eq!(forwarded[removed..], chain(&types), "{t:#x} at {place}");
        }
    }
}

#[test]
fn what_is_not_gtpu_is_refused() {
    for m in [
        &[0x50, 255, 0, 0, 0, 0, 0, 1][..],                        // version 2
        &[0x20, 255, 0, 0, 0, 0, 0, 1],                            // GTP'
        &[0x30, 255, 0, 1, 0, 0, 0, 1],                            // shorter than it says
        &[0x32, 255, 0, 2, 0, 0, 0, 1, 0, 0],                      // sequence number cut
        &[0x34, 255, 0, 8, 1, 2, 3, 4, 0, 0, 0, 0x85, 0, 0, 0, 0], // extension header of no length
        &[0x34, 255, 0, 8, 1, 2, 3, 4, 0, 0, 0, 0x85, 9, 0, 0, 0], // extension header past the end
        &[],
    ] {
        assert!(matches!(Gtpu::parse(m), Err(GtpuError::Malformed(_))), "{m:?}");
    }
}

#[test]
fn headroom_and_length_are_checked() {
    let h = GpduHeader::new(TEID, None);
    assert_eq!(h.write_before(1, &mut [0; 7]), None);
    assert_eq!(h.write_before(65_536, &mut [0; 20]), None);
    assert_eq!(h.write_before(65_535, &mut [0; 8]), Some(8));
}

proptest! {
    #[test]
    fn any_octets_return(octets in proptest::collection::vec(any::<u8>(), 0..100), first in 0x30u8..0x38) {
        let mut octets = octets;
        let _ = Gtpu::parse(&octets);
        let _ = ErrorIndication::parse(&octets);
        if let Some(o) = octets.first_mut() {
            *o = first;
        }
        if octets.len() > 8 {
            let len = (octets.len() - 8) as u16;
            octets[2..4].copy_from_slice(&len.to_be_bytes());
        }
        if let Ok(m) = Gtpu::parse(&octets) {
            prop_assert_eq!(&octets[m.payload_at..], m.payload);
        }
        let mut copy = octets.clone();
        let removed = remove_extensions_in_transit(&mut copy);
        if let Ok(m) = Gtpu::parse_in_transit(&octets) {
            prop_assert_eq!(Gtpu::parse_in_transit(&copy[removed..]).map(|m| m.payload), Ok(m.payload));
        }
    }

    #[test]
    fn what_is_written_is_read(teid: u32, qfi in 0u8..64, rqi: bool, ppi in proptest::option::of(0u8..8),
                               payload in proptest::collection::vec(any::<u8>(), 0..64)) {
        let info = PduSessionInformation::Dl { qfi: Qfi::new(qfi).unwrap(), rqi, ppi };
        let m = encapsulate(GpduHeader::new(Teid(teid), Some(info)), &payload);
        let v = Gtpu::parse(&m).unwrap();
        prop_assert_eq!((v.teid, v.pdu_session, v.payload), (Teid(teid), Some(info), &payload[..]));
    }
}
