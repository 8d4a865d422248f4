//! Packets of a capture through a user plane, into another capture.

use super::common;

use std::fs;
use std::net::Ipv4Addr;

use common::*;
use whimbrel_gtpu::Gtpu;
use whimbrel_user_io::{N3Io, StartError, UserPlane};

/// A frame of Ethernet with an IPv4 packet.
fn framed(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 8, 0][..], packet].concat()
}

/// A datagram over IPv4, without a checksum of its own.
fn datagram(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let octets = (28 + payload.len()) as u16;
    let mut p = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0];
    p[2..4].copy_from_slice(&octets.to_be_bytes());
    p.extend([from.octets(), to.octets()].concat());
    let sum = checksum(&p, 0);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend([2152u16, 2152, octets - 20, 0].map(u16::to_be_bytes).concat());
    p.extend_from_slice(payload);
    p
}

/// A file of libpcap, in either order of octets.
fn capture(frames: &[Vec<u8>], big_endian: bool, sort: u32) -> Vec<u8> {
    let word = |w: u32| if big_endian { w.to_be_bytes() } else { w.to_le_bytes() };
    let mut file = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, sort].map(word).concat();
    for frame in frames {
        file.extend([1, 2, frame.len() as u32, frame.len() as u32].map(word).concat());
        file.extend_from_slice(frame);
    }
    file
}

/// The frames of a file that this host has written.
fn frames(file: &[u8]) -> Vec<&[u8]> {
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!((word(0), word(20)), (0xa1b2_c3d4, 1));
    let (mut all, mut at) = (Vec::new(), 24);
    while at < file.len() {
        let octets = word(at + 8);
        assert_eq!(word(at + 12), octets);
        all.push(&file[at + 16..at + 16 + octets]);
        at += 16 + octets;
    }
    all
}

#[test]
fn packets_of_a_capture_are_decided_on_and_come_out_in_another() {
    let folder = std::env::temp_dir().join(format!("whimbrel-capture-io-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (from, to) = (folder.join("in.pcap"), folder.join("out.pcap"));
    // Sessions are the same each time, so a first user plane says what is in the capture.
    let config = config(N3Io::Udp);
    let (handle, _) = UserPlane::start_in_memory(config.clone()).unwrap_or_else(|e| panic!("{e}"));
    let (_, teid, ue, _) = Control::with(handle, config.clone()).next_session();
    const PACKETS: u16 = 500;
    let up = |n| framed(&datagram(GNB, UPF, &g_pdu(teid, &ping4(ue, SERVER, n, 100))));
    let down = |n| framed(&ping4(SERVER, ue, n, 900));
    let nobodys = framed(&ping4(SERVER, Ipv4Addr::new(198, 51, 100, 9), 1, 10));
    let mut all: Vec<_> = (0..PACKETS).flat_map(|n| [up(n), down(n)]).collect();
    all.extend([nobodys, vec![0; 5], vec![]]);
    for big_endian in [false, true] {
        let mut file = capture(&all, big_endian, 1);
        file.extend_from_slice(&[0; 9]); // one that was not written whole
        fs::write(&from, file).unwrap();
        let (handle, replay) =
            UserPlane::start_on_capture(config.clone(), &from, &to).unwrap_or_else(|e| panic!("{e}"));
        let mut net = Control::with(handle, config.clone());
        assert_eq!(net.next_session().1, teid);
        replay.begin();
        eventually(|| replay.has_ended(), || format!("{:?}", net.handle.io_counters()));
        eventually(|| net.handle.io_counters().malformed == 3, || format!("{:?}", net.handle.io_counters()));
        let (c, io) = (net.handle.counters(), net.handle.io_counters());
        assert_eq!((c.ul_packets, c.dl_packets), (PACKETS.into(), PACKETS.into()));
        assert_eq!((io.n3_received, io.n6_received), (PACKETS.into(), PACKETS.into()));
        net.handle.stop().unwrap();
        let written = fs::read(&to).unwrap();
        let (mut ups, mut downs) = (0u16, 0u16);
        for frame in frames(&written) {
            let packet = &frame[14..];
            if packet[16..20] == SERVER.octets() {
                // A hop less, and nothing else.
                let mut expected = ping4(ue, SERVER, ups, 100);
                expected[8] -= 1;
                expected[10..12].fill(0);
                let sum = checksum(&expected[..20], 0);
                expected[10..12].copy_from_slice(&sum.to_be_bytes());
                assert_eq!(packet, expected);
                ups += 1;
            } else {
                assert_eq!((&packet[12..16], &packet[16..20]), (&UPF.octets()[..], &GNB.octets()[..]));
                let m = Gtpu::parse(&packet[28..]).unwrap();
                if m.payload[0] >> 4 == 4 {
                    assert_eq!((m.teid, &m.payload[26..28]), (GNB_TEID, &downs.to_be_bytes()[..]));
                    downs += 1;
                }
            }
        }
        assert_eq!((ups, downs), (PACKETS, PACKETS));
    }
    for (file, what) in [
        (b"what is no capture at all".to_vec(), "no capture"),
        (capture(&[], false, 101), "no frames of Ethernet"),
    ] {
        fs::write(&from, file).unwrap();
        match UserPlane::start_on_capture(config.clone(), &from, &to) {
            Err(StartError::System(e)) => assert!(e.to_string().contains(what), "{e}"),
            other => panic!("{:?}", other.err()),
        }
    }
    fs::remove_dir_all(folder).unwrap();
}
