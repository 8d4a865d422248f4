//! The events that a handover predictor gets, and the use of its predictions in the user plane: Synergy §III-C.

use crate::common::by_hand::*;
use crate::common::*;
use whimbrel_control::event::Sign;
use whimbrel_control::smf::Tunnel;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Locate};
use whimbrel_gtpu::{GpduHeader, PduSessionInformation};
use whimbrel_ids::{Qfi, Teid};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ngap::msg::{HandoverCancel, LocationReport};
use whimbrel_sim::Sim;
use whimbrel_user::{Destination, Origin};

/// Two gNBs, a UE with a session at the first, and a UPF that is asked for what is predicted.
fn scene(seed: u64) -> (Sim, whimbrel_sim::UeIndex) {
    let (mut net, ue) = two_gnbs(seed, 1);
    let mut config = (*net.config()).clone();
    config.smf.upfs[0].predicts = true;
    net.configure(config);
    (net, ue)
}

/// The UE has a packet for the network, by way of the target.
fn uplink_by_target(net: &mut Sim) {
    assert!(!sent_by_target(net).is_empty(), "it goes on to the network");
}

/// What the UPF sends when the UE has.
fn sent_by_target(net: &mut Sim) -> Vec<(Destination, Vec<u8>)> {
    let s = &context(net).sessions[&psi(1)];
    let (ours, address) = (s.n3.expect("a tunnel"), s.ipv4.expect("an address"));
    let mut inner = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    inner.extend(address.octets());
    inner.extend([192, 0, 2, 1, 0x10, 1, 0x10, 0, 0, 8, 0, 0]);
    let flow = PduSessionInformation::Ul { qfi: Qfi::new(1).expect("a QFI") };
    let header = GpduHeader::new(ours.teid, Some(flow));
    let mut octets = vec![0; header.octets_len()];
    header.write_before(inner.len(), &mut octets).expect("room");
    octets.extend(inner);
    net.packet(Origin::N3 { peer: (TARGET_N3, 2152).into(), local: ours.address }, &octets)
}

/// Where the target awaits the packets of the first session.
fn expected() -> Tunnel {
    let (address, teid) = at_target(1).expect("a tunnel");
    Tunnel { teid, address }
}

#[test] // Synergy §III-C: the path switches with the UE's first packet from the target, and what was held goes first; HANDOVER NOTIFY finds it done
fn packets_follow_the_ue_before_handover_notify() {
    let (mut net, _) = scene(1);
    net.take_over(SOURCE);
    let source = an(&net, 1).expect("a tunnel");
    let m = directly(handover_required(&net, &[1]));
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
    command(&mut net);
    assert_eq!(downlink(&mut net, 1), (None, vec![]));
    uplink_by_target(&mut net);
    let there = at_target(1).expect("a tunnel");
    let (last, _) = downlink(&mut net, 1);
    assert_eq!(last, Some(there), "there was no HANDOVER NOTIFY yet");
    assert_eq!(net.upf().u.counters().predictions_true, 1);
    say(&mut net, TARGET, notify(id));
    assert_eq!(downlink(&mut net, 1), (Some(there), vec![]), "one end marker to {source:?} is enough");
    assert_eq!(an(&net, 1), Some(there));
}

#[test] // TS 23.502 §4.9.1.4: the target is lost after the UPF has seen the UE there: the packets go back
fn a_handover_that_fails_all_the_same_is_taken_back() {
    for cancelled in [true, false] {
        let (mut net, _) = scene(2);
        net.take_over(SOURCE);
        let source = an(&net, 1);
        let m = directly(handover_required(&net, &[1]));
        say(&mut net, SOURCE, m);
        let id = request(&mut net).amf_ue_ngap_id;
        say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
        command(&mut net);
        uplink_by_target(&mut net);
        assert_eq!(downlink(&mut net, 1).0, at_target(1));
        if cancelled {
            let c = connection(&net).clone();
            let cause = CauseRadioNetwork::HandoverCancelled.into();
            say(&mut net, SOURCE, HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
        } else {
            net.disconnect(TARGET);
            net.settle(SECOND / 10);
        }
        assert_eq!(downlink(&mut net, 1).0, source);
    }
}

#[test] // Synergy §III-C: a predictor says where the UE will be; it is forgotten if the UE does not come
fn a_predicted_handover_is_prepared_at_the_upf() {
    let (mut net, _) = scene(3);
    let (id, source) = (context(&net).id, an(&net, 1));
    net.order(id, CoreCommand::Expected(psi(1), expected()));
    net.settle(SECOND / 10);
    assert_eq!(downlink(&mut net, 1).0, source, "the UE is where it was");
    uplink_by_target(&mut net);
    assert_eq!(downlink(&mut net, 1).0, at_target(1));
    // Over Xn the target says so later.
    let m = path_switch_request(&net, &[1]);
    say(&mut net, TARGET, m);
    assert!(matches!(net.take_ngap(TARGET).as_slice(), [Message::PathSwitchRequestAcknowledge(_)]));
    assert_eq!(downlink(&mut net, 1), (at_target(1), vec![]));

    let (mut net, _) = scene(4);
    let (id, source) = (context(&net).id, an(&net, 1));
    net.order(id, CoreCommand::Expected(psi(1), expected()));
    net.advance(SECOND * 6);
    assert_eq!(sent_by_target(&mut net), [], "it waits for the SMF to name the gNB");
    assert_eq!(downlink(&mut net, 1).0, source, "it was five seconds ago");
    // Of what nothing can show that the UE is there, nothing is expected; nor of a session that is none.
    let there = source.expect("a tunnel");
    net.order(id, CoreCommand::Expected(psi(1), Tunnel { teid: Teid(9), address: there.0 }));
    net.order(id, CoreCommand::Expected(psi(7), expected()));
    net.settle(SECOND / 10);
    assert_eq!(downlink(&mut net, 1).0, source);
}

#[test] // Synergy §III-C.1: location reports, the measurements behind HANDOVER REQUIRED, and arrivals are reported, if configured
fn signs_of_a_handover_are_reported_if_configured() {
    for requested in [true, false] {
        let (mut net, _) = two_gnbs(5, 1);
        let mut config = (*net.config()).clone();
        config.amf.signs = requested;
        net.configure(config);
        let id = context(&net).id;
        net.take_over(SOURCE);
        net.order(id, CoreCommand::Locate(Locate::CellChanges));
        net.settle(SECOND / 10);
        let heard = net.take_ngap(SOURCE);
        let Some(Message::LocationReportingControl(asked)) = heard.last() else { panic!("{heard:?}") };
        let asked_for = asked.location_reporting_request_type.clone().expect("a request type");
        let c = connection(&net).clone();
        let mut m = LocationReport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id);
        m.location_reporting_request_type = Some(asked_for);
        m.user_location_information = Some(location(1));
        say(&mut net, SOURCE, m);
        let m = handover_required(&net, &[1]);
        say(&mut net, SOURCE, m);
        let id = request(&mut net).amf_ue_ngap_id;
        say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
        say(&mut net, TARGET, notify(id));
        let signs: Vec<_> = core_events(&net)
            .filter_map(|e| match e {
                CoreEvent::Sign { sign, seen: Some(_), .. } => Some(sign.clone()),
                _ => None,
            })
            .collect();
        match requested {
            false => assert_eq!(signs, []),
            true => {
                let [Sign::Reported, Sign::Required(cause, tai), Sign::Arrived] = signs.as_slice() else {
                    panic!("{signs:?}")
                };
                let why: whimbrel_ngap::ie::Cause = CauseRadioNetwork::HandoverDesirableForRadioReason.into();
                assert_eq!((cause, tai.tac.value()), (&why.to_string(), 1));
            }
        }
    }
}
