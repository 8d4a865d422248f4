//! N3 as gNBs and unknown peers use it: paths, echoes, error indications, malformed GTP-U; and what TS 33.513 asks of it.
//!
//! Not here: confidentiality, integrity and replay protection of N3 and N9 (TS 33.513 §4.2.2.1 to §4.2.2.4) are the
//! transport's (IPsec between gNB and UPF, TS 33.501 §9.3), which the host provides below these sockets.

use super::common;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::*;
use whimbrel_gtpu::signalling::{echo_request, echo_response, error_indication};
use whimbrel_gtpu::{Gtpu, message_type};
use whimbrel_ids::{Instant, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

const MINUTE: Duration = Duration::from_secs(60);

fn supervised() -> Net {
    Net::with(Config { echo_interval: Some(MINUTE), ..config() })
}

/// Sequence numbers of the echo requests that went to the gNB since the last look.
fn echoes(net: &mut Net) -> Vec<u16> {
    let to_gnb = to_gnb();
    let all = net.outputs().into_iter();
    all.map(|(to, octets)| {
        let m = Gtpu::parse(&octets).unwrap();
        assert_eq!((to, m.message_type, m.teid), (to_gnb, message_type::ECHO_REQUEST, Teid(0)));
        m.sequence.unwrap()
    })
    .collect()
}

/// Node reports since the last look: type and peer.
fn node_reports(net: &mut Net) -> Vec<(NodeReportType, Option<Ipv4Addr>)> {
    let mut all = Vec::new();
    for (_, octets) in std::mem::take(&mut net.out.datagrams) {
        let frame = Frame::parse(&octets).unwrap();
        if let Message::NodeReportRequest(m) = Message::parse(&frame).unwrap() {
            let failure = m.user_plane_path_failure_report.map(|r| r.remote_gtpu_peers);
            let peers = failure.or(m.user_plane_path_recovery_report.map(|r| r.remote_gtpu_peers)).unwrap();
            all.push((m.node_report_type, peers[0].ipv4));
            let answer = NodeReportResponse {
                node_id: SMF.ip().into(),
                cause: Cause::RequestAccepted,
                offending_ie: None,
            };
            let answer = Message::from(answer).to_octets(None, frame.header.sequence);
            net.upf.pfcp(net.now, SMF, &answer, &mut net.out);
        }
    }
    all
}

fn advance(net: &mut Net, seconds: u64) {
    let to = net.now + Duration::from_secs(seconds);
    net.advance(to);
}

#[test] // TS 29.281 §7.2.1: not more often than once in 60 s
fn path_is_asked_once_a_minute_while_it_answers() {
    let mut net = supervised();
    net.session(1, true, false);
    net.session(2, true, false);
    advance(&mut net, 59);
    assert!(echoes(&mut net).is_empty());
    for _ in 0..3 {
        advance(&mut net, 1);
        let asked = echoes(&mut net);
        assert_eq!(asked.len(), 1, "one path, two sessions");
        assert_eq!(net.packet(from_gnb(), echo_response(asked[0]).as_ref()).0, PacketVerdict::Taken);
        advance(&mut net, 59);
        assert!(echoes(&mut net).is_empty());
    }
    assert!(node_reports(&mut net).is_empty());
    assert_eq!((net.upf.u.counters().paths, net.upf.u.counters().paths_failed), (1, 0));
}

#[test] // TS 23.527 §5.2; TS 29.281 §7.2.2: a restart counter means nothing; a peer that lost its tunnels says so, one by one
fn peer_that_restarted() {
    let mut net = supervised();
    let s = net.session(1, true, false);
    for restarts in [0, 1] {
        advance(&mut net, 60);
        let mut answer = echo_response(echoes(&mut net)[0]).as_ref().to_vec();
        *answer.last_mut().unwrap() = restarts; // the recovery element is the last
        net.packet(from_gnb(), &answer);
        assert!(node_reports(&mut net).is_empty() && net.upf.c.session_count() == 1);
        assert_eq!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0)).0, PacketVerdict::Send(to_gnb()));
    }
    net.packet(from_gnb(), error_indication(GNB_TEID, GNB.ip(), 2152).as_ref());
    assert_eq!(net.reports().len(), 1);
}

#[test] // TS 29.281 §7.2.1, TS 29.244 §6.2.9, TS 23.527 §5.4: path failure and recovery are each reported once
fn path_failure_and_recovery_are_reported_to_the_smf() {
    let mut net = supervised();
    let s = net.session(1, true, false);
    advance(&mut net, 60 + 9);
    let asked = echoes(&mut net);
    assert_eq!(asked.len(), 3, "T3, N3");
    assert!(asked.iter().all(|n| *n == asked[0]), "one request, repeated");
    let IpAddr::V4(gnb) = GNB.ip() else { panic!() };
    assert_eq!(node_reports(&mut net), [(NodeReportType::UPFR, Some(gnb))]);
    assert_eq!(net.upf.u.counters().paths_failed, 1);
    // It goes on to be asked, and packets go on to be sent.
    assert_eq!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0)).0, PacketVerdict::Send(to_gnb()));
    advance(&mut net, 75);
    assert!(node_reports(&mut net).is_empty(), "once");
    assert_eq!(echoes(&mut net).len(), 3);
    advance(&mut net, 57);
    let asked = echoes(&mut net);
    net.packet(from_gnb(), echo_response(asked[0]).as_ref());
    assert_eq!(node_reports(&mut net), [(NodeReportType::UPRR, Some(gnb))]);
    assert_eq!(net.upf.u.counters().paths_failed, 0);
}

#[test] // an echo response of another peer, or without a request, does not restore a path
fn echo_response_counts_only_from_the_peer_and_to_the_request() {
    let mut net = supervised();
    net.session(1, true, false);
    advance(&mut net, 60);
    let asked = echoes(&mut net)[0];
    let other_peer = Origin::N3 { peer: SocketAddr::from(([127, 0, 0, 66], 2152)), local: UPF.into() };
    for (origin, sequence) in [(other_peer, asked), (from_gnb(), asked ^ 1)] {
        let (verdict, _) = net.packet(origin, echo_response(sequence).as_ref());
        assert_eq!(verdict, PacketVerdict::Drop(DropReason::GtpuUnexpected));
    }
    advance(&mut net, 9);
    assert_eq!(node_reports(&mut net).len(), 1);
}

/// The Echo Response of srsRAN 4G's gNB (1fab3df86): its length says 8, and 4 octets follow the header.
fn echo_response_of_wrong_length(sequence: u16) -> Vec<u8> {
    let [s0, s1] = sequence.to_be_bytes();
    vec![0x32, 2, 0, 8, 0, 0, 0, 0, s0, s1, 0, 0]
}

#[test] // TS 29.281 §7.2.2 length: an answer with the right number is one, though its length is wrong and Recovery is missing
fn echo_response_of_wrong_length_keeps_the_path_up() {
    let mut net = supervised();
    net.session(1, true, false);
    advance(&mut net, 60);
    let asked = echoes(&mut net)[0];
    let other = Origin::N3 { peer: SocketAddr::from(([127, 0, 0, 66], 2152)), local: UPF.into() };
    for (origin, sequence) in [(other, asked), (from_gnb(), asked ^ 1)] {
        let (verdict, _) = net.packet(origin, &echo_response_of_wrong_length(sequence));
        assert_eq!(verdict, PacketVerdict::Drop(DropReason::GtpuUnexpected));
    }
    let answer = echo_response_of_wrong_length(asked);
    for cut in 0..answer.len() {
        assert!(matches!(net.packet(from_gnb(), &answer[..cut]).0, PacketVerdict::Drop(_)));
    }
    assert_eq!(net.packet(from_gnb(), &answer).0, PacketVerdict::Taken);
    advance(&mut net, 9);
    assert!(node_reports(&mut net).is_empty() && echoes(&mut net).is_empty());
}

#[test] // TS 29.281 §7.2.1 life: a peer that answers no echo request is alive all the same while its G-PDUs come
fn a_g_pdu_keeps_the_path_up_and_brings_it_back() {
    let mut net = supervised();
    let s = net.session(1, true, false);
    let packet = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0);
    advance(&mut net, 60 + 8);
    assert_eq!(echoes(&mut net).len(), 3);
    assert!(matches!(net.uplink(&s, &packet).0, PacketVerdict::Send(_)));
    advance(&mut net, 59);
    assert!(
        node_reports(&mut net).is_empty() && echoes(&mut net).is_empty(),
        "it is asked again after a minute"
    );
    advance(&mut net, 10);
    assert_eq!((node_reports(&mut net).len(), net.upf.u.counters().paths_failed), (1, 1), "silent");
    // One that does not pass, or comes from elsewhere, is none.
    net.packet(from_gnb(), &g_pdu(Teid(s.teid.0 ^ 1), 1, &packet));
    net.packet(
        Origin::N3 { peer: SocketAddr::from(([127, 0, 0, 66], 2152)), local: UPF.into() },
        &g_pdu(s.teid, 1, &packet),
    );
    assert_eq!(net.upf.u.counters().paths_failed, 1);
    net.uplink(&s, &packet);
    let IpAddr::V4(gnb) = GNB.ip() else { panic!() };
    assert_eq!(node_reports(&mut net), [(NodeReportType::UPRR, Some(gnb))]);
    assert_eq!(net.upf.u.counters().paths_failed, 0);
}

#[test] // paths come and go with the sessions
fn path_is_forgotten_with_its_last_session() {
    let mut net = supervised();
    let s = net.session(1, true, false);
    net.delete(&s);
    advance(&mut net, 120);
    assert!(echoes(&mut net).is_empty());
    assert_eq!((net.upf.u.counters().paths, net.upf.u.next_deadline()), (0, None));
}

#[test] // TS 29.281 §7.2.2
fn echo_flood_is_answered_at_a_bounded_rate() {
    let mut net = Net::new();
    for n in 0..ECHOES_PER_SECOND_MAX + 500 {
        net.packet(from_gnb(), echo_request(n as u16).as_ref());
    }
    assert_eq!(net.outputs().len(), ECHOES_PER_SECOND_MAX as usize);
    assert_eq!(net.dropped(DropReason::EchoRate), 500);
    net.now = net.now + Duration::from_secs(1);
    assert_eq!(net.packet(from_gnb(), echo_request(1).as_ref()).0, PacketVerdict::Taken);
}

#[test] // TS 29.281 §7.3.1: a forged error indication for a live tunnel
fn error_indication_from_another_address_than_the_tunnels_has_no_effect() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let m = error_indication(GNB_TEID, GNB.ip(), 2152);
    let other_peer = Origin::N3 { peer: SocketAddr::from(([127, 0, 0, 66], 2152)), local: UPF.into() };
    assert_eq!(net.packet(other_peer, m.as_ref()).0, PacketVerdict::Drop(DropReason::ErrorIndicationForged));
    // In its own name it knows no tunnel.
    let own = error_indication(GNB_TEID, "127.0.0.66".parse().unwrap(), 2152);
    assert_eq!(net.packet(other_peer, own.as_ref()).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    assert!(net.reports().is_empty());
    assert!(matches!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0)).0, PacketVerdict::Send(_)));
}

#[test] // TS 29.281 §7.3.1
fn error_indication_without_its_elements_is_malformed() {
    let mut net = Net::new();
    net.session(1, true, false);
    let whole = error_indication(GNB_TEID, GNB.ip(), 2152);
    for cut in 12..whole.as_ref().len() {
        let mut m = whole.as_ref()[..cut].to_vec();
        let length = (cut - 8) as u16;
        m[2..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(net.packet(from_gnb(), &m).0, PacketVerdict::Drop(DropReason::GtpuMalformed), "{cut}");
    }
}

#[test] // TS 29.281 §11: shorter than a header
fn header_shorter_than_eight_octets() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let whole = g_pdu(s.teid, 1, &[]);
    for cut in 0..8 {
        assert_eq!(net.packet(from_gnb(), &whole[..cut]).0, PacketVerdict::Drop(DropReason::GtpuMalformed));
    }
}

/// A G-PDU with the E flag, whose extension headers are `chain`, the first of type `first`.
fn with_chain(teid: Teid, first: u8, chain: &[u8]) -> Vec<u8> {
    let mut m = vec![0x34, message_type::G_PDU];
    m.extend_from_slice(&(chain.len() as u16 + 4).to_be_bytes());
    m.extend_from_slice(&teid.0.to_be_bytes());
    m.extend_from_slice(&[0, 0, 0, first]);
    m.extend_from_slice(chain);
    m
}

#[test] // TS 29.281 §5.2.1
fn extension_header_chains_that_never_end_or_end_outside() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let endless = [1, 0, 0, 0x40].repeat(16_000);
    let cases: [(&str, u8, &[u8]); 5] = [
        ("never ends", 0x40, &endless),
        ("length zero", 0x40, &[0, 0, 0, 0x40]),
        ("beyond the packet", 0x40, &[255, 0, 0, 0]),
        ("no octets behind the flags", 0x85, &[]),
        ("container cut short", 0x85, &[1, 0x10]),
    ];
    for (name, first, chain) in cases {
        let (verdict, _) = net.packet(from_gnb(), &with_chain(s.teid, first, chain));
        assert_eq!(verdict, PacketVerdict::Drop(DropReason::GtpuMalformed), "{name}");
    }
    let unknown = with_chain(s.teid, 0xc1, &[1, 0, 0, 0]);
    assert_eq!(net.packet(from_gnb(), &unknown).0, PacketVerdict::Drop(DropReason::GtpuUnknownExtension));
    assert_eq!(net.outputs().len(), 1, "supported extension headers notification");
}

#[test]
fn flags_without_their_octets() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    for flags in 1..8 {
        let mut m = vec![0x30 | flags, message_type::G_PDU, 0, 0];
        m.extend_from_slice(&s.teid.0.to_be_bytes());
        assert_eq!(net.packet(from_gnb(), &m).0, PacketVerdict::Drop(DropReason::GtpuMalformed), "{flags}");
    }
}

#[test] // TS 29.281 §11: of a wrong length
fn length_field_larger_or_smaller_than_the_datagram() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let inner = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 10);
    let mut m = g_pdu(s.teid, 1, &inner);
    let length = u16::from_be_bytes([m[2], m[3]]);
    m[2..4].copy_from_slice(&(length + 1).to_be_bytes());
    assert_eq!(net.packet(from_gnb(), &m).0, PacketVerdict::Drop(DropReason::GtpuMalformed), "larger");
    m[2..4].copy_from_slice(&(length - 1).to_be_bytes());
    assert_eq!(
        net.packet(from_gnb(), &m).0,
        PacketVerdict::Drop(DropReason::InnerMalformed),
        "cuts the inner packet"
    );
    m[2..4].copy_from_slice(&length.to_be_bytes());
    m.extend_from_slice(&[0xee; 9]);
    let (verdict, octets) = net.packet(from_gnb(), &m);
    assert_eq!(
        (verdict, octets),
        (PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }), inner),
        "smaller"
    );
}

#[test] // TS 29.281 §11: unknown, and of another version
fn message_types_that_have_no_use_here() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    for message_type in 0..=255 {
        if matches!(message_type, 1 | 26 | 254 | 255) {
            continue;
        }
        let mut m = vec![0x30, message_type, 0, 0];
        m.extend_from_slice(&s.teid.0.to_be_bytes());
        assert_eq!(
            net.packet(from_gnb(), &m).0,
            PacketVerdict::Drop(DropReason::GtpuUnexpected),
            "{message_type}"
        );
    }
    let version_2 = [0x48, 1, 0, 4, 0, 0, 0, 0];
    assert_eq!(net.packet(from_gnb(), &version_2).0, PacketVerdict::Drop(DropReason::GtpuMalformed));
    assert!(net.outputs().is_empty());
}

#[test]
fn zero_length_g_pdu() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    assert_eq!(
        net.packet(from_gnb(), &g_pdu(s.teid, 1, &[])).0,
        PacketVerdict::Drop(DropReason::InnerMalformed)
    );
    let bare = [&[0x30, message_type::G_PDU, 0, 0][..], &s.teid.0.to_be_bytes()].concat();
    assert_eq!(net.packet(from_gnb(), &bare).0, PacketVerdict::Drop(DropReason::InnerMalformed));
    let teid_zero = [&[0x30, message_type::G_PDU, 0, 0][..], &[0; 4]].concat();
    assert_eq!(net.packet(from_gnb(), &teid_zero).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    assert!(net.outputs().is_empty(), "TS 29.281 §7.3.1: no error indication about TEID zero");
}

#[test] // TS 23.501 §5.6.10.4: a packet of MTU+1 goes on whole, never cut, held or not
fn packet_of_mtu_and_one_octet() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    let down = udp4(SERVER, s.ipv4.unwrap(), (1, 2), 1401 - 28);
    assert_eq!(net.downlink(&down).0, PacketVerdict::Taken);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(at_gnb(&net.outputs()[0].1).2, down);
    assert_eq!(at_gnb(&net.downlink(&down).1).2, down);
    let up = udp4(s.ipv4.unwrap(), SERVER, (1, 2), 1401 - 28);
    assert_eq!(net.uplink(&s, &up), (PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }), up));
}

#[test] // TS 29.281 §5.1: with its header a packet of 65,535 octets exceeds the length field
fn packet_as_long_as_ip_permits() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let down = udp4(SERVER, s.ipv4.unwrap(), (1, 2), 65_535 - 28);
    assert_eq!(net.downlink(&down).0, PacketVerdict::Drop(DropReason::TooLong));
    assert_eq!(net.upf.u.session_counters(s.id()).unwrap().dl_packets, 0);
}

#[test] // TS 33.513 §4.2.2.6: TEIDs are unique
fn teids_are_unique_among_sessions_and_tunnels() {
    let mut net = Net::with(Config {
        data_networks: vec![DataNetwork {
            ipv4_pools: vec![Ipv4Net { address: Ipv4Addr::new(10, 45, 0, 0), prefix: 16 }],
            ..config().data_networks[0].clone()
        }],
        ..config()
    });
    let all: Vec<_> = (1..=900).map(|n| net.idle_session(n, true, false)).collect();
    let teids: BTreeSet<_> = all.iter().map(|s| s.teid).collect();
    assert_eq!(teids.len(), all.len());
    assert!(!teids.contains(&Teid(0)));
    // A new session at the place of an old one has another TEID, so that late packets do not reach it.
    for s in &all {
        net.delete(s);
    }
    let next: BTreeSet<_> = (1..=900).map(|n| net.idle_session(n, true, false).teid).collect();
    assert!(next.intersection(&teids).count() <= 4, "{} came back", next.intersection(&teids).count());
}

#[test] // TS 33.513 §4.2.2.6, the far end: two gNBs, or two sessions, may use one TEID each in its own address
fn same_teid_at_two_gnbs_is_two_tunnels() {
    let mut net = Net::new();
    let a = net.session(1, true, false);
    let b = net.idle_session(2, true, false);
    let other: IpAddr = Ipv4Addr::new(127, 0, 0, 10).into();
    net.modify(&b, activation(GNB_TEID, other));
    let m = error_indication(GNB_TEID, other, 2152);
    let origin = Origin::N3 { peer: SocketAddr::new(other, 2152), local: UPF.into() };
    assert_eq!(net.packet(origin, m.as_ref()).0, PacketVerdict::Taken);
    let reports = net.reports();
    assert_eq!((reports.len(), reports[0].0), (1, b.cp_seid));
    assert!(matches!(net.downlink(&udp4(SERVER, a.ipv4.unwrap(), (1, 2), 0)).0, PacketVerdict::Send(_)));
}

#[test] // TS 33.513 §4.2.2.7; TS 33.513 §4.2.2.6: a packet by another session's tunnel is not that session's
fn a_ue_cannot_speak_through_another_ues_tunnel() {
    let mut net = Net::new();
    let (a, b) = (net.session(1, true, false), net.session(2, true, false));
    let of_a = udp4(a.ipv4.unwrap(), SERVER, (1, 2), 0);
    assert_eq!(net.uplink(&b, &of_a).0, PacketVerdict::Drop(DropReason::SpoofedSource));
}

#[test] // time does not go back, whatever the caller says
fn clock_that_steps_back_opens_no_bucket_and_loses_no_timer() {
    let mut net = supervised();
    let s = net.session(1, true, false);
    let p = udp4(SERVER, s.ipv4.unwrap(), (1, 2), 972);
    for at in [START, Instant(START.0 - 1_000_000), Instant(0), START] {
        net.now = at;
        assert!(matches!(net.downlink(&p).0, PacketVerdict::Send(_)));
    }
    net.now = START;
    advance(&mut net, 60);
    assert_eq!(echoes(&mut net).len(), 1);
}
