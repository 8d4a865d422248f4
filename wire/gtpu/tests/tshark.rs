//! tshark reads what we write: nothing malformed, nothing unknown, and the values that we meant.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use whimbrel_gtpu::signalling::{
    echo_request, echo_response, error_indication, supported_extension_headers_notification,
};
use whimbrel_gtpu::{GpduHeader, PduSessionInformation};
use whimbrel_ids::{Qfi, Teid};

/// A capture file (classic pcap, raw IPv4) of one UDP datagram a message.
fn capture(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 101] {
        pcap.extend_from_slice(&word.to_be_bytes());
    }
    for m in messages {
        let len = 28 + m.len();
        for word in [0, 0, len as u32, len as u32] {
            pcap.extend_from_slice(&word.to_be_bytes());
        }
        pcap.extend_from_slice(&[0x45, 0]);
        pcap.extend_from_slice(&(len as u16).to_be_bytes());
        pcap.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 2]);
        pcap.extend_from_slice(&[0x08, 0x68, 0x08, 0x68]);
        pcap.extend_from_slice(&(8 + m.len() as u16).to_be_bytes());
        pcap.extend_from_slice(&[0, 0]);
        pcap.extend_from_slice(m);
    }
    pcap
}

/// tshark's full decode, or `None` where it is not installed.
fn tshark(pcap: &[u8]) -> Option<String> {
    let child = Command::new("tshark")
        .args(["-r", "-", "-V"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: tshark is not installed");
        return None;
    };
    child.stdin.take().expect("piped").write_all(pcap).expect("tshark reads its input");
    let out = child.wait_with_output().expect("tshark ends");
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[test]
fn tshark_reads_each_message() {
    let qfi = Qfi::new(9).expect("six bits");
    let dl =
        GpduHeader::new(Teid(0x0102_0304), Some(PduSessionInformation::Dl { qfi, rqi: true, ppi: Some(5) }));
    let ul = GpduHeader::new(Teid(0x0a0b_0c0d), Some(PduSessionInformation::Ul { qfi }));
    let ping =
        [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 45, 0, 2, 10, 45, 0, 1, 8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let g_pdu = |h: GpduHeader| {
        let mut b = vec![0; h.octets_len()];
        h.write_before(ping.len(), &mut b).expect("room");
        b.extend_from_slice(&ping);
        b
    };
    let end = GpduHeader::new(Teid(0x0102_0304), None);
    let messages = [
        g_pdu(dl),
        g_pdu(ul),
        end.end_marker()[..end.octets_len()].to_vec(),
        echo_request(7).as_ref().to_vec(),
        echo_response(7).as_ref().to_vec(),
        error_indication(Teid(0x0102_0304), Ipv4Addr::LOCALHOST.into(), 2152).as_ref().to_vec(),
        supported_extension_headers_notification(1).as_ref().to_vec(),
    ];
    let Some(text) = tshark(&capture(&messages)) else { return };
    assert_eq!(text.matches("GPRS Tunneling Protocol").count(), messages.len(), "{text}");
    for line in text.lines() {
        let bad = ["Malformed", "Expert Info (Error", "Expert Info (Warning", "Unknown"];
        assert!(!bad.iter().any(|b| line.contains(b)), "{line}\n---\n{text}");
    }
    for expected in [
        "TEID: 0x01020304",
        "PDU Type: DL PDU SESSION INFORMATION (0)",
        "PDU Type: UL PDU SESSION INFORMATION (1)",
        "= Paging Policy Presence (PPP): Present",
        "= Reflective QoS Indicator (RQI): ",
        "= QoS Flow Identifier (QFI): 9",
        "Message Type: End Marker (0xfe)",
        "Message Type: Echo request (0x01)",
        "Recovery: 0",
        "TEID Data I: 0x01020304",
        "UDP Port: 2152",
    ] {
        assert!(text.contains(expected), "tshark does not say {expected:?}\n---\n{text}");
    }
}
