//! A session with more rules than a packet meets one after the other: TS 29.244 §5.2.1 all the same.

use super::common;

use std::net::Ipv4Addr;
use std::sync::Arc;

use common::*;
use whimbrel_ids::Qfi;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

/// A server that the rules are about.
fn server(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, n)
}

/// PDRs of both directions for each server: what it sends, and what it gets from QoS flow 9, is dropped.
fn barred(s: &Session, servers: impl Iterator<Item = u8>, precedence: u32) -> SessionModificationRequest {
    let pair = |n: u8| {
        let filter = SdfFilter::flow(&format!("permit out 17 from {} 1000-2000,5000 to assigned", server(n)));
        let id = 10 + 2 * u16::from(n);
        let up = Pdi {
            f_teid: Some(FTeid::given(s.teid, UPF.into())),
            qfis: vec![Qfi::new(9).unwrap()],
            sdf_filters: vec![filter.clone()],
            ..Pdi::from(SourceInterface::Access)
        };
        let down = Pdi { sdf_filters: vec![filter], ..Pdi::from(SourceInterface::Core) };
        [
            CreatePdr::new(PdrId(id), Precedence(precedence), up, FarId(9)),
            CreatePdr::new(PdrId(id + 1), Precedence(precedence), down, FarId(9)),
        ]
    };
    SessionModificationRequest { create_pdrs: servers.flat_map(pair).collect(), ..Default::default() }
}

fn drop_far_again() -> SessionModificationRequest {
    let update_fars = vec![UpdateFar { apply_action: Some(ApplyAction::DROP), ..UpdateFar::new(FarId(9)) }];
    SessionModificationRequest { update_fars, ..Default::default() }
}

fn drop_far() -> SessionModificationRequest {
    SessionModificationRequest {
        create_fars: vec![CreateFar::action(FarId(9), ApplyAction::DROP)],
        ..Default::default()
    }
}

#[test]
fn former_rules_of_many_filters_are_freed_by_upf_c_once_the_pipeline_has_others() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    net.modify(&s, drop_far());
    let mut ask = |m: SessionModificationRequest, sequence| {
        let octets = Message::from(m).to_octets(Some(s.up_seid), sequence);
        net.upf.c.handle(net.now, Input::Pfcp { peer: SMF, octets: &octets }, &mut net.out);
        let change = net.out.changes.pop().unwrap();
        let UserPlaneChange::Put { rules, .. } = &change else { panic!() };
        let weak = Arc::downgrade(rules);
        (change, weak)
    };
    let (many, former) = ask(barred(&s, 0..30, 100), 1_000);
    let (none, _) = ask(drop_far_again(), 1_001);
    for change in [many, none] {
        assert!(former.upgrade().is_some());
        net.upf.u.apply(net.now, change);
    }
    assert_eq!(former.strong_count(), 1, "UPF-C alone has them");
    net.upf.c.handle(net.now, Input::Tick, &mut net.out);
    assert_eq!(former.strong_count(), 0);
}

#[test] // TS 29.244 §5.2.1
fn among_many_rules_the_lowest_precedence_value_decides() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let ue = s.ipv4.unwrap();
    assert_eq!(net.modify(&s, drop_far()).cause, Cause::RequestAccepted);
    assert_eq!(net.modify(&s, barred(&s, 0..30, 100)).cause, Cause::RequestAccepted);

    for (remote, port, passes) in
        [(server(7), 1000, false), (server(7), 5000, false), (server(7), 4999, true), (SERVER, 1000, true)]
    {
        let (down, up) = (udp4(remote, ue, (port, 1), 8), udp4(ue, remote, (1, port), 8));
        let drop = PacketVerdict::Drop(DropReason::FarDrop);
        let network = PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) });
        assert_eq!(
            net.downlink(&down).0,
            if passes { PacketVerdict::Send(to_gnb()) } else { drop },
            "{remote}:{port}"
        );
        // PDR 1 is of QoS flow 1.
        let of_flow_9 = if passes { PacketVerdict::Drop(DropReason::QfiMismatch) } else { drop };
        assert_eq!(net.packet(from_gnb(), &g_pdu(s.teid, 9, &up)).0, of_flow_9, "{remote}:{port}");
        assert_eq!(net.uplink(&s, &up).0, network);
    }

    // What stands before them decides; without it they do again.
    let all = SdfFilter::flow("permit out ip from any to assigned");
    let first = CreatePdr::new(
        PdrId(5),
        Precedence(99),
        Pdi { sdf_filters: vec![all], ..Pdi::from(SourceInterface::Core) },
        FarId(2),
    );
    let m = SessionModificationRequest { create_pdrs: vec![first], ..Default::default() };
    assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
    let down = udp4(server(7), ue, (1000, 1), 8);
    assert_eq!(net.downlink(&down).0, PacketVerdict::Send(to_gnb()));
    let gone = SessionModificationRequest {
        remove_pdrs: vec![RemovePdr { pdr_id: PdrId(5) }],
        ..Default::default()
    };
    assert_eq!(net.modify(&s, gone).cause, Cause::RequestAccepted);
    assert_eq!(net.downlink(&down).0, PacketVerdict::Drop(DropReason::FarDrop));
}
