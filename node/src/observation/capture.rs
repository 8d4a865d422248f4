//! A capture of N2, N3 and N4 that tshark decodes whole: `whimbrel run --capture FILE`.
//!
//! The program sees messages, not packets: kernel SCTP keeps its packets to itself, and N4 within one process has
//! none. So each message is written as the packet that would have carried it: IP and SCTP DATA chunks around NGAP,
//! IP and UDP around PFCP and GTP-U. Addresses, ports, streams and times are the real ones; TSNs, stream sequence
//! numbers and verification tags are counted here. Retransmissions and acknowledgements do not show.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use whimbrel_ids::Instant;

/// LINKTYPE_RAW: each packet begins with its IP header.
const LINKTYPE_RAW: u32 = 101;
/// Octets of a message in one DATA chunk. Larger ones are fragmented, as no IPv4 packet could carry them.
const CHUNK_OCTETS_MAX: usize = 32_768;
/// Octets of a file at most, so that a forgotten capture does not fill the disk: half an hour at 10 Mbit/s.
const FILE_OCTETS_MAX: u64 = 2 << 30;
/// Directions of associations that are counted; more than `limits.ran_nodes` allows do not exist at once.
const COUNTED_MAX: usize = 1 << 17;

/// One direction of one association.
#[derive(Default)]
struct CapturedDirection {
    tsn: u32,
    ssn: BTreeMap<u16, u16>,
}

/// The file being written.
pub struct Capture {
    out: BufWriter<File>,
    written: u64,
    packets: N2Packets,
    /// Why it ended, once it has.
    ended: Option<String>,
}

impl Capture {
    /// Makes the file, readable by its owner only: it holds identities, and NAS in clear where NEA0 is used.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut out = BufWriter::with_capacity(256 << 10, file);
        // Magic of microseconds, version 2.4, no offset, no accuracy, snapshot length, link type.
        for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 262_144, LINKTYPE_RAW] {
            out.write_all(&word.to_be_bytes())?;
        }
        Ok(Self { out, written: 24, packets: N2Packets::default(), ended: None })
    }

    /// Writes an NGAP message.
    pub fn ngap(&mut self, at: Instant, from: SocketAddr, to: SocketAddr, stream: u16, octets: &[u8]) {
        for packet in self.packets.ngap(from, to, stream, octets) {
            self.write(at, &packet);
        }
    }

    /// Writes a datagram: PFCP or GTP-U, as its ports say.
    pub fn udp(&mut self, at: Instant, from: SocketAddr, to: SocketAddr, octets: &[u8]) {
        if let Some(packet) = udp_packet(from, to, octets) {
            self.write(at, &packet);
        }
    }

    /// Brings to disk what waits. Errors: the sentence that says why the capture ended, once.
    pub fn flush(&mut self) -> Result<(), String> {
        if self.ended.is_none()
            && let Err(e) = self.out.flush()
        {
            self.ended = Some(format!("the capture ended: its file cannot be written: {e}"));
        }
        match &mut self.ended {
            Some(sentence) if !sentence.is_empty() => Err(std::mem::take(sentence)),
            _ => Ok(()),
        }
    }

    fn write(&mut self, at: Instant, packet: &[u8]) {
        let length = packet.len();
        if self.ended.is_some() {
            return;
        }
        if self.written + 16 + length as u64 > FILE_OCTETS_MAX {
            self.ended = Some(format!("the capture ended: its file has {} MiB", FILE_OCTETS_MAX >> 20));
            return;
        }
        let record = [at.as_secs() as u32, (at.0 % 1_000_000) as u32, length as u32, length as u32];
        let mut write = || -> io::Result<()> {
            for word in record {
                self.out.write_all(&word.to_be_bytes())?;
            }
            self.out.write_all(packet)
        };
        match write() {
            Ok(()) => self.written += 16 + length as u64,
            Err(e) => self.ended = Some(format!("the capture ended: its file cannot be written: {e}")),
        }
    }
}

/// Makes the packets that would have carried N2 messages.
#[derive(Default)]
pub struct N2Packets {
    counted: BTreeMap<(SocketAddr, SocketAddr), CapturedDirection>,
}

impl N2Packets {
    /// The packets of an NGAP message.
    pub fn ngap(&mut self, from: SocketAddr, to: SocketAddr, stream: u16, octets: &[u8]) -> Vec<Vec<u8>> {
        if self.counted.len() >= COUNTED_MAX {
            self.counted.clear();
        }
        let counted = self.counted.entry((from, to)).or_default();
        let ssn = counted.ssn.entry(stream).or_default();
        let this_ssn = *ssn;
        *ssn = ssn.wrapping_add(1);
        let chunks = octets.chunks(CHUNK_OCTETS_MAX).count().max(1);
        let packet = |i: usize| {
            let begin = i * CHUNK_OCTETS_MAX;
            let part = octets.get(begin..(begin + CHUNK_OCTETS_MAX).min(octets.len())).unwrap_or_default();
            // Flags of RFC 9260 §3.3.1: B for the first fragment, E for the last.
            let flags = u8::from(i == 0) << 1 | u8::from(i + 1 == chunks);
            counted.tsn = counted.tsn.wrapping_add(1);
            let packet = sctp(from, to, counted.tsn, stream, this_ssn, flags, part);
            ip_packet(from.ip(), to.ip(), 132, &packet)
        };
        (0..chunks).map(packet).collect()
    }
}

/// The packet of a datagram; `None` if none can carry it.
pub fn udp_packet(from: SocketAddr, to: SocketAddr, octets: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(8 + octets.len()).ok()?;
    let mut datagram = Vec::with_capacity(length.into());
    for word in [from.port(), to.port(), length, 0] {
        datagram.extend_from_slice(&word.to_be_bytes());
    }
    datagram.extend_from_slice(octets);
    let (from, to) = one_family(from.ip(), to.ip());
    let sum = transport_checksum(from, to, 17, &datagram);
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    Some(ip_packet(from, to, 17, &datagram))
}

fn ip_packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ip_header(from, to, protocol, payload.len());
    packet.extend_from_slice(payload);
    packet
}

fn sctp(
    from: SocketAddr,
    to: SocketAddr,
    tsn: u32,
    stream: u16,
    ssn: u16,
    flags: u8,
    part: &[u8],
) -> Vec<u8> {
    let length = 16 + part.len();
    let mut packet = Vec::with_capacity(12 + length + 3);
    packet.extend_from_slice(&from.port().to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&verification_tag(from, to).to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(&[0, flags]);
    packet.extend_from_slice(&(length as u16).to_be_bytes());
    packet.extend_from_slice(&tsn.to_be_bytes());
    packet.extend_from_slice(&stream.to_be_bytes());
    packet.extend_from_slice(&ssn.to_be_bytes());
    packet.extend_from_slice(&whimbrel_ngap::PPID.to_be_bytes());
    packet.extend_from_slice(part);
    packet.resize(packet.len().next_multiple_of(4), 0);
    let sum = crc32c(&packet);
    packet[8..12].copy_from_slice(&sum.to_le_bytes());
    packet
}

/// A verification tag that is the same for one direction of an association, as if its INIT had been seen, and another one for each
/// association: dissectors tell by it what is a retransmission.
fn verification_tag(from: SocketAddr, to: SocketAddr) -> u32 {
    let octets = [from, to]
        .into_iter()
        .flat_map(|end| six(end.ip()).octets().into_iter().chain(end.port().to_be_bytes()));
    // FNV-1a.
    octets.fold(0x811c_9dc5u32, |sum, octet| (sum ^ u32::from(octet)).wrapping_mul(0x0100_0193)) | 1
}

/// RFC 791 §3.1 and RFC 8200 §3.
fn ip_header(from: IpAddr, to: IpAddr, protocol: u8, payload: usize) -> Vec<u8> {
    match one_family(from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut h = vec![0x45, 0];
            h.extend_from_slice(&((20 + payload) as u16).to_be_bytes());
            h.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0]);
            h.extend_from_slice(&from.octets());
            h.extend_from_slice(&to.octets());
            let sum = !folded(sum_of(&h));
            h[10..12].copy_from_slice(&sum.to_be_bytes());
            h
        }
        (from, to) => {
            let mut h = vec![0x60, 0, 0, 0];
            h.extend_from_slice(&(payload as u16).to_be_bytes());
            h.extend_from_slice(&[protocol, 64]);
            h.extend_from_slice(&six(from).octets());
            h.extend_from_slice(&six(to).octets());
            h
        }
    }
}

/// Both addresses of one family: where they differ, IPv4 is mapped into IPv6.
fn one_family(a: IpAddr, b: IpAddr) -> (IpAddr, IpAddr) {
    if a.is_ipv4() == b.is_ipv4() { (a, b) } else { (six(a).into(), six(b).into()) }
}

fn six(a: IpAddr) -> Ipv6Addr {
    match a {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

/// The checksum over the pseudo header and a UDP datagram (RFC 768, RFC 8200 §8.1).
fn transport_checksum(from: IpAddr, to: IpAddr, protocol: u8, datagram: &[u8]) -> u16 {
    let addresses = |a: IpAddr| match a {
        IpAddr::V4(a) => sum_of(&a.octets()),
        IpAddr::V6(a) => sum_of(&a.octets()),
    };
    let pseudo = addresses(from) + addresses(to) + u64::from(protocol) + datagram.len() as u64;
    match !folded(pseudo + sum_of(datagram)) {
        0 => 0xffff,
        sum => sum,
    }
}

fn sum_of(octets: &[u8]) -> u64 {
    octets.chunks(2).map(|c| u64::from(c[0]) << 8 | c.get(1).map_or(0, |&b| b.into())).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// CRC32c (RFC 9260 Appendix A), by table: a capture is no fast path.
fn crc32c(octets: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !octets.iter().fold(!0, |crc, &o| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ o)])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn a(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// An NG SETUP REQUEST from the vectors of `wire/ngap`, which pycrate made.
    const NG_SETUP_REQUEST: &str =
        "00150027000003001b0007807116161902000066001000003ffc5000593813000204d83cc1420015400100";

    #[test] // RFC 9260 Appendix A, RFC 3720 §B.4: the check value of CRC32c
    fn crc32c_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn the_file_is_what_tshark_reads() {
        let path = std::env::temp_dir().join(format!("whimbrel-capture-{}.pcap", std::process::id()));
        let mut capture = Capture::create(&path).unwrap();
        let (gnb, amf) = (a("127.0.0.2:38412"), a("127.0.0.1:38412"));
        let at = |n: u64| Instant(1_700_000_000_000_000 + n);
        let ng_setup = crate::config::value::unhex(NG_SETUP_REQUEST).unwrap();
        capture.ngap(at(0), gnb, amf, 0, &ng_setup);
        // A PFCP heartbeat request, and an echo request of GTP-U over IPv6.
        let heartbeat = [0x20, 1, 0, 12, 0, 0, 1, 0, 0, 96, 0, 4, 0xe0, 0, 0, 1];
        capture.udp(at(1), a("127.0.0.1:8805"), a("127.0.0.1:8805"), &heartbeat);
        let echo = [0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0];
        capture.udp(at(2), a("[::1]:2152"), a("[::2]:2152"), &echo);
        capture.ngap(at(3), amf, a("[::1]:9"), 3, &vec![0; 70_000]);
        capture.flush().unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        assert_eq!(meta.len(), capture.written);
        let checks =
            ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-o", "sctp.checksum:CRC 32c"];
        let tshark =
            Command::new("tshark").args(["-r"]).arg(&path).args(["-V", "-c", "3"]).args(checks).output();
        let Ok(tshark) = tshark else {
            eprintln!("skipped: tshark is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&tshark.stdout);
        std::fs::remove_file(&path).unwrap();
        for part in ["NG Application Protocol", "NGSetupRequest", "PFCP Heartbeat Request", "Echo request"] {
            assert!(text.contains(part), "{part} in {text}\n{}", String::from_utf8_lossy(&tshark.stderr));
        }
        assert!(!text.contains("Malformed") && !text.contains("incorrect"), "{text}");
        assert!(
            text.matches("Checksum Status: Good").count() + text.matches("(correct)").count() >= 3,
            "{text}"
        );
    }

    #[test] // RFC 9260 §8.5: gNBs that use the same port, as emulated ones do, are not mistaken for one
    fn messages_of_two_gnbs_with_equal_ports_and_tsns_are_both_decoded() {
        let path = std::env::temp_dir().join(format!("whimbrel-capture-two-{}.pcap", std::process::id()));
        let mut capture = Capture::create(&path).unwrap();
        let ng_setup = crate::config::value::unhex(NG_SETUP_REQUEST).unwrap();
        for gnb in ["127.0.1.1:61000", "127.0.2.1:61000"] {
            capture.ngap(Instant(1_700_000_000_000_000), a(gnb), a("127.0.0.1:38412"), 0, &ng_setup);
        }
        capture.flush().unwrap();
        let tshark = Command::new("tshark").args(["-Y", "ngap", "-r"]).arg(&path).output();
        let Ok(tshark) = tshark else {
            eprintln!("skipped: tshark is not installed");
            return;
        };
        std::fs::remove_file(&path).unwrap();
        assert_eq!(String::from_utf8_lossy(&tshark.stdout).matches("NGSetupRequest").count(), 2);
    }

    #[test]
    fn a_full_disk_ends_the_capture_with_one_sentence() {
        let Ok(file) = OpenOptions::new().write(true).open("/dev/full") else { return };
        let mut capture =
            Capture { out: BufWriter::new(file), written: 0, packets: N2Packets::default(), ended: None };
        capture.udp(Instant(0), a("127.0.0.1:1"), a("127.0.0.1:2"), &[0; 60_000]);
        let errors: Vec<_> = (0..3).filter_map(|_| capture.flush().err()).collect();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("No space left"), "{errors:?}");
    }
}
