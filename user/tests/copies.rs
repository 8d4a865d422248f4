//! Copies of what a session's rules forward, for lawful interception (TS 29.244 §5.2.3.1).

use super::common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use common::*;
use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const LI: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const LI_TEID: Teid = Teid(0x4c49_0001);

/// Has both rules copy to the LI function, or none.
fn copied(on: bool) -> SessionModificationRequest {
    let far = |id| {
        let mut far = UpdateFar::new(FarId(id));
        far.apply_action = Some(if on { ApplyAction::FORW | ApplyAction::DUPL } else { ApplyAction::FORW });
        if on {
            far.update_duplicating_parameters = vec![to(Some(DestinationInterface::LiFunction))];
        }
        far
    };
    SessionModificationRequest { update_fars: [1, 2].map(far).into(), ..Default::default() }
}

fn to(destination_interface: Option<DestinationInterface>) -> UpdateDuplicatingParameters {
    UpdateDuplicatingParameters {
        destination_interface,
        outer_header_creation: Some(OuterHeaderCreation::gtpu(LI_TEID, IpAddr::V4(LI))),
        transport_level_marking: None,
        forwarding_policy: None,
    }
}

/// The copies that went out.
fn copies(net: &mut Net) -> Vec<Vec<u8>> {
    let li = SocketAddr::new(IpAddr::V4(LI), 2152);
    let sent = net.outputs().into_iter();
    let of = sent.filter(|(to, _)| matches!(to, Destination::N3 { peer, .. } if *peer == li));
    of.map(|(_, octets)| {
        let (teid, flow, inner) = at_gnb(&octets);
        assert_eq!((teid, flow), (LI_TEID, None));
        inner
    })
    .collect()
}

#[test] // TS 29.244 §5.2.3.1, §8.2.24, §8.2.26
fn packets_of_both_directions_are_copied_while_the_rules_duplicate() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let ue = s.ipv4.unwrap();
    let (up, down) = (udp4(ue, SERVER, (7, 8), 40), udp4(SERVER, ue, (8, 7), 90));
    let pass = |net: &mut Net| {
        assert!(matches!(net.uplink(&s, &up).0, PacketVerdict::Send(Destination::N6 { .. })));
        assert_eq!(net.downlink(&down).0, PacketVerdict::Send(to_gnb()));
        copies(net)
    };
    assert!(pass(&mut net).is_empty());
    assert_eq!(net.modify(&s, copied(true)).cause, Cause::RequestAccepted);
    assert_eq!(pass(&mut net), [up.clone(), down.clone()]);
    // The tunnel changes, and the rules do not name copies: their destination stays, and DUPL is not set.
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert_eq!(pass(&mut net), std::slice::from_ref(&up));
    assert_eq!(net.modify(&s, copied(false)).cause, Cause::RequestAccepted);
    assert!(pass(&mut net).is_empty());
    assert_eq!(net.upf.u.counters().copies_sent, 3);
}

#[test] // TS 29.244 §5.2.3.1
fn what_is_not_forwarded_is_not_copied() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    net.modify(&s, copied(true));
    let buffer =
        UpdateFar { apply_action: Some(ApplyAction::BUFF | ApplyAction::NOCP), ..UpdateFar::new(FarId(2)) };
    net.modify(&s, SessionModificationRequest { update_fars: vec![buffer], ..Default::default() });
    assert_eq!(net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (8, 7), 90)).0, PacketVerdict::Taken);
    assert!(copies(&mut net).is_empty());
}

#[test] // TS 29.244 §8.2.24: nothing but an LI function gets copies
fn duplication_to_anything_but_one_li_function_is_refused() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let far = |change: &dyn Fn(&mut UpdateFar)| {
        let mut far = copied(true).update_fars.remove(0);
        change(&mut far);
        SessionModificationRequest { update_fars: vec![far], ..Default::default() }
    };
    let core = Some(DestinationInterface::Core);
    let own = OuterHeaderCreation::gtpu(LI_TEID, IpAddr::V4(UPF));
    let refused: [&dyn Fn(&mut UpdateFar); 5] = [
        &|f| f.update_duplicating_parameters = vec![to(core)],
        &|f| f.update_duplicating_parameters.push(to(Some(DestinationInterface::LiFunction))),
        &|f| f.update_duplicating_parameters.clear(),
        &|f| f.apply_action = Some(ApplyAction::BUFF | ApplyAction::DUPL),
        &|f| f.update_duplicating_parameters[0].outer_header_creation = Some(own),
    ];
    for change in refused {
        assert_ne!(net.modify(&s, far(change)).cause, Cause::RequestAccepted);
    }
    assert_eq!(net.modify(&s, far(&|_| {})).cause, Cause::RequestAccepted);
}
