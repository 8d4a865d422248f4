//! tshark reads what we write: nothing malformed, nothing unknown, and the values that we meant.

use std::io::Write;
use std::num::NonZeroU8;
use std::process::{Command, Stdio};

use whimbrel_bfd::{ControlPacket, Diagnostic, Discriminator, PORT, State};

/// A capture file (classic pcap, raw IPv4) of one UDP datagram a packet, from an initiator's port to a reflector's.
fn capture(packets: &[ControlPacket]) -> Vec<u8> {
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0002_0004, 0, 0, 65_535, 101] {
        pcap.extend_from_slice(&word.to_be_bytes());
    }
    for packet in packets {
        let octets = packet.to_octets();
        let len = 28 + octets.len();
        for word in [0, 0, len as u32, len as u32] {
            pcap.extend_from_slice(&word.to_be_bytes());
        }
        pcap.extend_from_slice(&[0x45, 0]);
        pcap.extend_from_slice(&(len as u16).to_be_bytes());
        pcap.extend_from_slice(&[0, 0, 0, 0, 255, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 2]);
        let (from, to) = if packet.demand { (49_152, PORT) } else { (PORT, 49_152) };
        for word in [from, to, 8 + octets.len() as u16, 0] {
            pcap.extend_from_slice(&word.to_be_bytes());
        }
        pcap.extend_from_slice(&octets);
    }
    pcap
}

/// tshark's fields of each packet, or `None` where it is not installed.
fn tshark(pcap: &[u8], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-T", "fields", "-E", "separator=,"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: tshark is not installed");
        return None;
    };
    child.stdin.take().expect("piped").write_all(pcap).expect("tshark reads its input");
    let out = child.wait_with_output().expect("tshark ends");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    Some(text.lines().map(|line| line.split(',').map(Into::into).collect()).collect())
}

#[test]
fn tshark_reads_probe_and_answer() {
    let probe = ControlPacket {
        diagnostic: Diagnostic::DETECTION_TIME_EXPIRED,
        state: State::Down,
        poll: false,
        r#final: false,
        control_plane_independent: false,
        demand: true,
        multiplier: NonZeroU8::new(3).expect("not zero"),
        mine: Discriminator::new(0x0102_0304).expect("not zero"),
        yours: Discriminator::new(0xc000_0201),
        desired_min_tx_us: 5_000,
        required_min_rx_us: 0,
        required_min_echo_rx_us: 0,
    };
    let answer = ControlPacket {
        diagnostic: Diagnostic::NONE,
        state: State::Up,
        r#final: true,
        control_plane_independent: true,
        demand: false,
        mine: Discriminator::new(0xc000_0201).expect("not zero"),
        yours: Discriminator::new(0x0102_0304),
        required_min_rx_us: 1_000,
        ..probe
    };
    let fields = [
        "bfd.version",
        "bfd.diag",
        "bfd.sta",
        "bfd.flags.p",
        "bfd.flags.f",
        "bfd.flags.c",
        "bfd.flags.a",
        "bfd.flags.d",
        "bfd.flags.m",
        "bfd.detect_time_multiplier",
        "bfd.message_length",
        "bfd.my_discriminator",
        "bfd.your_discriminator",
        "bfd.desired_min_tx_interval",
        "bfd.required_min_rx_interval",
        "bfd.required_min_echo_interval",
        "_ws.malformed",
        "_ws.expert",
    ];
    let Some(read) = tshark(&capture(&[probe, answer]), &fields) else { return };
    let plain = |line: &[String]| -> Vec<String> {
        let truth = |v: &String| match v.as_str() {
            "True" => "1".into(),
            "False" => "0".into(),
            v if v.starts_with("0x") => u32::from_str_radix(&v[2..], 16).map_or(v.into(), |n| n.to_string()),
            v => v.to_string(),
        };
        line.iter().map(truth).collect()
    };
    let expected = [
        "1,1,1,0,0,0,0,1,0,3,24,16909060,3221225985,5000,0,0,,",
        "1,0,3,0,1,1,0,0,0,3,24,3221225985,16909060,5000,1000,0,,",
    ];
    let read: Vec<String> = read.iter().map(|line| plain(line).join(",")).collect();
    assert_eq!(read, expected);
}
