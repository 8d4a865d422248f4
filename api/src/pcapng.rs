//! A capture as a stream of pcapng blocks (draft-ietf-opsawg-pcapng), which Wireshark reads while it grows.
//!
//! Interface 0 has IP packets. Interface 1 has NAS messages that were deciphered, each named to its dissector (LINKTYPE_WIRESHARK_UPPER_PDU):
//! the packet that carried it has it ciphered, as it was.

use whimbrel_ids::Instant;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// LINKTYPE_RAW: each packet begins with its IP header.
const LINKTYPE_RAW: u32 = 101;
/// Tags that name a dissector, then what it gets.
const LINKTYPE_UPPER_PDU: u32 = 252;
/// Codes of the options of a block.
const COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const USER_APPLICATION: u16 = 4;
/// The tag of LINKTYPE_UPPER_PDU that holds the name of a dissector.
const DISSECTOR_NAME: u16 = 12;

/// The head of a stream: one section with the two interfaces.
pub fn head() -> Vec<u8> {
    let mut out = Vec::new();
    let mut section = Vec::new();
    // Byte order, version 1.0, a length that is not known.
    section.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
    section.extend_from_slice(&1u16.to_le_bytes());
    section.extend_from_slice(&0u16.to_le_bytes());
    section.extend_from_slice(&u64::MAX.to_le_bytes());
    option(&mut section, USER_APPLICATION, concat!("whimbrel ", env!("CARGO_PKG_VERSION")).as_bytes());
    end_of_options(&mut section);
    block(&mut out, SECTION_HEADER, &section);
    for (linktype, name) in [(LINKTYPE_RAW, "N2, N3, N4"), (LINKTYPE_UPPER_PDU, "NAS, deciphered")] {
        let mut interface = Vec::new();
        interface.extend_from_slice(&linktype.to_le_bytes());
        interface.extend_from_slice(&0u32.to_le_bytes()); // no limit of a packet's length
        option(&mut interface, IF_NAME, name.as_bytes());
        end_of_options(&mut interface);
        block(&mut out, INTERFACE_DESCRIPTION, &interface);
    }
    out
}

/// Adds an IP packet.
pub fn packet(out: &mut Vec<u8>, at: Instant, octets: &[u8], comment: &str) {
    enhanced(out, 0, at, octets, comment);
}

/// Adds a NAS message in clear.
pub fn nas(out: &mut Vec<u8>, at: Instant, octets: &[u8], comment: &str) {
    let name = b"nas-5gs\0";
    let mut pdu = Vec::with_capacity(16 + octets.len());
    // Tags are in network order: type, length, value; the last one is empty.
    pdu.extend_from_slice(&DISSECTOR_NAME.to_be_bytes());
    pdu.extend_from_slice(&(name.len() as u16).to_be_bytes());
    pdu.extend_from_slice(name);
    pdu.extend_from_slice(&[0; 4]);
    pdu.extend_from_slice(octets);
    enhanced(out, 1, at, &pdu, comment);
}

fn enhanced(out: &mut Vec<u8>, interface: u32, at: Instant, octets: &[u8], comment: &str) {
    let length = octets.len() as u32;
    let mut body = Vec::with_capacity(40 + octets.len() + comment.len());
    for word in [interface, (at.0 >> 32) as u32, at.0 as u32, length, length] {
        body.extend_from_slice(&word.to_le_bytes());
    }
    body.extend_from_slice(octets);
    pad(&mut body);
    if !comment.is_empty() {
        option(&mut body, COMMENT, comment.as_bytes());
        end_of_options(&mut body);
    }
    block(out, ENHANCED_PACKET, &body);
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let length = (body.len() + 12) as u32;
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&length.to_le_bytes());
}

/// Adds an option; of a value that is too long, what fits.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out);
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}

fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// REGISTRATION COMPLETE (TS 24.501 §8.2.8) in clear.
    const REGISTRATION_COMPLETE: [u8; 3] = [0x7e, 0, 0x43];

    #[test]
    fn blocks_are_whole_words_and_say_their_length_twice() {
        let mut stream = head();
        packet(&mut stream, Instant(5), &[0x45, 0, 0], "from gnb-999/70-1");
        nas(&mut stream, Instant(u64::MAX), &REGISTRATION_COMPLETE, "");
        let mut rest = &stream[..];
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let length = word(4) as usize;
            assert!(length.is_multiple_of(4) && word(length - 4) as usize == length);
            kinds.push(word(0));
            rest = &rest[length..];
        }
        assert_eq!(
            kinds,
            [SECTION_HEADER, INTERFACE_DESCRIPTION, INTERFACE_DESCRIPTION, ENHANCED_PACKET, ENHANCED_PACKET]
        );
    }

    #[test] // TS 24.501 §8.2.8
    fn tshark_decodes_packets_and_deciphered_nas_from_a_pipe() {
        let mut stream = head();
        let heartbeat = [0x20, 1, 0, 12, 0, 0, 1, 0, 0, 96, 0, 4, 0xe0, 0, 0, 1];
        let (smf, upf) = ("127.0.0.1:8805".parse().unwrap(), "127.0.0.2:8805".parse().unwrap());
        let datagram = whimbrel_node::observation::capture::udp_packet(smf, upf, &heartbeat).unwrap();
        packet(&mut stream, Instant(1_700_000_000_000_000), &datagram, "");
        nas(&mut stream, Instant(1_700_000_000_000_001), &REGISTRATION_COMPLETE, "deciphered");
        let tshark = Command::new("tshark")
            .args(["-r", "-", "-V"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut tshark) = tshark else {
            eprintln!("skipped: tshark is not installed");
            return;
        };
        tshark.stdin.take().unwrap().write_all(&stream).unwrap();
        let out = tshark.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        for part in ["PFCP Heartbeat Request", "Registration complete", "NAS, deciphered"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("Malformed"), "{text}");
    }
}
