//! tshark reads what we write: nothing malformed, nothing unknown, and the values that we meant.

use super::common;

use std::io::Write;
use std::process::{Command, Stdio};

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
        pcap.extend_from_slice(&[0x22, 0x65, 0x22, 0x65]);
        pcap.extend_from_slice(&(8 + m.len() as u16).to_be_bytes());
        pcap.extend_from_slice(&[0, 0]);
        pcap.extend_from_slice(m);
    }
    pcap
}

/// tshark's full decode, or `None` where it is not installed.
fn tshark(pcap: &[u8]) -> Option<String> {
    let child = Command::new("tshark")
        .args(["-r", "-", "-V", "-o", "pfcp.track_pfcp_session:FALSE"])
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
fn tshark_finds_each_message_well_formed() {
    let octets: Vec<_> = common::all().iter().map(|(s, m)| m.to_octets(*s, 1)).collect();
    let Some(text) = tshark(&capture(&octets)) else { return };
    assert_eq!(text.matches("Packet Forwarding Control Protocol").count(), octets.len(), "{text}");
    let bad = ["Malformed", "Expert Info (Error", "Expert Info (Warning", "Unknown", "undecoded", "Invalid"];
    // The test network's operator has no name there.
    for line in text.lines().filter(|l| !l.contains("Mobile")) {
        assert!(!bad.iter().any(|b| line.contains(b)), "{line}\n---\n{text}");
    }
}

#[test]
fn tshark_reads_the_values_that_were_meant() {
    let octets: Vec<_> = common::all().iter().map(|(s, m)| m.to_octets(*s, 1)).collect();
    let Some(text) = tshark(&capture(&octets)) else { return };
    for expected in include_str!("../testdata/tshark-expects.txt").lines().filter(|l| !l.starts_with('#')) {
        assert!(text.contains(expected), "tshark does not say {expected:?}\n---\n{text}");
    }
}
