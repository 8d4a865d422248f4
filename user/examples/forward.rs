//! What a packet costs the pipeline: nanoseconds each, uplink and downlink, over many sessions in random order.
//!
//! `cargo run --release -p whimbrel-user --example forward [SESSIONS] [ROUNDS] [FLOWS]`; with FLOWS, each session has so many
//! pairs of PDRs with a filter in front of those that the packets match.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::Ipv4Addr;

use common::*;
use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::{CreatePdr, Pdi};
use whimbrel_user::*;

/// Packets of a burst.
const BURST: usize = 32;
/// Octets of a packet's payload: a small one, as the cost is the packet's, not the octet's.
const PAYLOAD_OCTETS: usize = 36;

/// Pairs of PDRs for what other servers send and get.
fn other_flows(s: &Session, flows: u16) -> SessionModificationRequest {
    let pair = |n: u16| {
        let filter = SdfFilter::flow(&format!("permit out 17 from 198.51.100.{n} to assigned"));
        let up = Pdi {
            f_teid: Some(FTeid::given(s.teid, UPF.into())),
            sdf_filters: vec![filter.clone()],
            ..Pdi::from(SourceInterface::Access)
        };
        let down = Pdi { sdf_filters: vec![filter], ..Pdi::from(SourceInterface::Core) };
        [(0, up, FarId(1)), (1, down, FarId(2))]
            .map(|(at, pdi, far)| CreatePdr::new(PdrId(10 + 2 * n + at), Precedence(100), pdi, far))
    };
    SessionModificationRequest { create_pdrs: (0..flows).flat_map(pair).collect(), ..Default::default() }
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let (sessions, rounds) = (numbers.next().unwrap_or(10_000), numbers.next().unwrap_or(40_000));
    let mut config = config();
    config.sessions_max = SESSIONS_MAX - 1;
    config.data_networks[0].ipv4_pools = vec![Ipv4Net { address: Ipv4Addr::new(10, 0, 0, 0), prefix: 8 }];
    let mut net = Net::with(config);
    let flows = numbers.next().unwrap_or(0) as u16;
    let sessions: Vec<_> = (1..=sessions).map(|n| net.session(n, true, false)).collect();
    for s in sessions.iter().filter(|_| flows > 0) {
        assert_eq!(net.modify(s, other_flows(s, flows)).cause, Cause::RequestAccepted);
    }
    let up: Vec<_> = sessions
        .iter()
        .map(|s| (from_gnb(), g_pdu(s.teid, 1, &udp4(s.ipv4.expect("IPv4"), SERVER, (1, 2), PAYLOAD_OCTETS))))
        .collect();
    let down: Vec<_> = sessions
        .iter()
        .map(|s| {
            let packet = udp4(SERVER, s.ipv4.expect("IPv4"), (2, 1), PAYLOAD_OCTETS);
            (Origin::N6 { dn: DnIndex(0) }, packet)
        })
        .collect();
    let slot = |_| BurstPacket {
        origin: from_gnb(),
        packet: Packet::with_room(2048),
        verdict: PacketVerdict::Pending,
    };
    let mut slots: Vec<_> = (0..BURST).map(slot).collect();
    for (name, packets) in [("uplink", &up), ("downlink", &down)] {
        let (mut spent, mut sent, mut seed) = (std::time::Duration::ZERO, 0u64, 1u64);
        for round in 0..rounds {
            for slot in &mut slots {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (origin, octets) = &packets[(seed >> 33) as usize % packets.len()];
                slot.origin = *origin;
                slot.packet.fill(octets);
            }
            let now = Instant(net.now.0 + round);
            let start = std::time::Instant::now();
            net.upf.u.burst(now, &mut slots);
            spent += start.elapsed();
            sent += slots.iter().filter(|s| matches!(s.verdict, PacketVerdict::Send(_))).count() as u64;
        }
        let packets = rounds * BURST as u64;
        println!(
            "{name}: {:.1} ns a packet, {sent} of {packets} sent",
            spent.as_nanos() as f64 / packets as f64
        );
    }
}
