//! Random octets as input: each packet is forwarded by a rule or counted as dropped; nothing panics, nothing grows.

use super::common;

use common::*;
use proptest::prelude::*;
use whimbrel_ids::Seid;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::msg::SessionDeletionRequest;
use whimbrel_user::*;

/// What every packet must be: sent, taken, or counted under the reason it was dropped for.
fn judge(net: &mut Net, origin: Origin, octets: &[u8]) {
    let total = |net: &Net| net.upf.u.counters().dropped.iter().sum::<u64>();
    let before = total(net);
    let (verdict, out) = net.packet(origin, octets);
    match verdict {
        PacketVerdict::Drop(_) => assert_eq!(total(net), before + 1),
        PacketVerdict::Send(_) => assert!(out.len() <= octets.len() + PACKET_HEADROOM),
        PacketVerdict::Taken => {}
        PacketVerdict::Pending | PacketVerdict::Hand { .. } => panic!("a packet without verdict"),
    }
    net.outputs();
    net.out.datagrams.clear();
}

fn mutate(octets: &mut Vec<u8>, edits: &[(prop::sample::Index, u8)], cut: Option<prop::sample::Index>) {
    for (at, v) in edits {
        let at = at.index(octets.len());
        octets[at] = *v;
    }
    if let Some(cut) = cut {
        octets.truncate(cut.index(octets.len()));
    }
}

fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn malformed_packets_are_counted(
        packets in proptest::collection::vec((edits(), any::<Option<prop::sample::Index>>(), 0u8..6), 1..40),
    ) {
        let mut net = Net::new();
        let s = net.session(1, true, true);
        let idle = net.idle_session(2, true, false);
        let ue6 = std::net::Ipv6Addr::from_bits(s.ipv6.unwrap().to_bits() | 5);
        let far6 = "2001:db8::1".parse().unwrap();
        // A hop-by-hop header, then UDP.
        let options = [17, 0, 1, 4, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 0];
        for (edits, cut, kind) in packets {
            let (origin, mut octets) = match kind {
                0 => (from_gnb(), g_pdu(s.teid, 1, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 9))),
                1 => (from_gnb(), g_pdu(s.teid, 1, &ipv6(ue6, far6, 0, &options))),
                2 => (Origin::N6 { dn: DnIndex(0) }, udp4(SERVER, s.ipv4.unwrap(), (1, 2), 9)),
                3 => (Origin::N6 { dn: DnIndex(0) }, ipv6(far6, ue6, 44, &options)),
                4 => (Origin::N6 { dn: DnIndex(0) }, udp4(SERVER, idle.ipv4.unwrap(), (1, 2), 9)),
                _ => (from_gnb(), vec![0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x10, 1, 0]),
            };
            mutate(&mut octets, &edits, cut);
            judge(&mut net, origin, &octets);
        }
        prop_assert!(net.upf.u.counters().held <= u64::from(Buffering::default().packets));
    }

    #[test]
    fn any_octets_are_counted(octets in proptest::collection::vec(any::<u8>(), 0..120), n3: bool) {
        let mut net = Net::new();
        net.session(1, true, true);
        let origin = if n3 { from_gnb() } else { Origin::N6 { dn: DnIndex(9) } };
        judge(&mut net, origin, &octets);
    }

    /// Random PFCP, much of it almost right: control side and packet side agree on what stands.
    #[test]
    fn malformed_pfcp_leaves_both_sides_agreeing(
        messages in proptest::collection::vec((edits(), any::<Option<prop::sample::Index>>(), 0u8..5, 1u64..6), 1..30),
    ) {
        let mut net = Net::new();
        let mut known = vec![];
        for (i, (edits, cut, kind, cp)) in messages.into_iter().enumerate() {
            let seid = known.get(cp as usize % known.len().max(1)).copied().unwrap_or(Seid(cp));
            let (header, m): (_, Message) = match kind {
                0 | 1 => (Seid(0), establishment(cp, true, kind == 1).into()),
                2 => (seid, activation(GNB_TEID, GNB.ip()).into()),
                3 => (seid, SessionDeletionRequest {}.into()),
                _ => {
                    let at = net.now + std::time::Duration::from_secs(2);
                    net.advance(at);
                    continue;
                }
            };
            let mut octets = m.to_octets(Some(header), 100 + i as u32);
            mutate(&mut octets, &edits, cut);
            net.upf.pfcp(net.now, SMF, &octets, &mut net.out);
            for e in net.out.events.drain(..) {
                if let Event::SessionEstablished { session, .. } = e {
                    known.push(session.seid());
                }
            }
            net.out.datagrams.clear();
            prop_assert_eq!(net.upf.c.session_count() as u64, net.upf.u.counters().sessions);
        }
        let sessions = net.upf.c.session_count() as u64;
        let (ipv4, _) = net.upf.c.free_addresses(DnIndex(0)).unwrap();
        prop_assert!(ipv4 + sessions >= 5, "addresses are neither lost nor given twice");
        let m = Message::from(whimbrel_pfcp::msg::AssociationReleaseRequest { node_id: config_smf() });
        net.upf.pfcp(net.now, SMF, &m.to_octets(None, 5000), &mut net.out);
        prop_assert_eq!(net.upf.c.session_count(), 0);
        prop_assert_eq!(net.upf.u.counters().sessions, 0);
        prop_assert_eq!(net.upf.c.free_addresses(DnIndex(0)).unwrap().0, 5);
    }
}

fn config_smf() -> whimbrel_pfcp::ie::NodeId {
    SMF.ip().into()
}
