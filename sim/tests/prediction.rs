//! The events that a handover predictor gets, and the use of its predictions in the user plane: Synergy §III-C.

use crate::common::by_hand::*;
use crate::common::*;
use whimbrel_control::event::Sign;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Locate};
use whimbrel_gtpu::{GpduHeader, PduSessionInformation};
use whimbrel_ids::{GlobalGnbId, PlmnId, Qfi, Tac, Tai};
use whimbrel_ngap::ie::{CauseRadioNetwork, UeNgapIds};
use whimbrel_ngap::msg::{
    HandoverCancel, HandoverFailure, LocationReport, UeContextReleaseRequest,
    UplinkUeAssociatedNrppaTransport,
};
use whimbrel_ngap::{EarlyHandover, Message};
use whimbrel_ran::ue::SessionRequest;
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
    let (ours, address) = (s.n3.expect("a tunnel"), s.address.ipv4.expect("an address"));
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

/// Both gNBs are driven by hand, handovers are predicted, and gNBs are asked for their containers or not.
fn predicted(seed: u64, early_containers: bool) -> Sim {
    let (mut net, _) = scene(seed);
    let mut config = (*net.config()).clone();
    config.amf.signs = true;
    config.amf.prediction.early_containers = early_containers;
    net.configure(config);
    net.take_over(SOURCE);
    predict(&mut net);
    net
}

fn target_gnb() -> GlobalGnbId {
    GlobalGnbId::new(PlmnId::TEST, 2, 28).expect("28 bits")
}

fn target_tai() -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits") }
}

/// The UE is expected at the target.
fn predict(net: &mut Sim) {
    let id = context(net).id;
    net.predict(id, target_gnb(), target_tai());
    net.settle(SECOND / 20);
}

/// The source hands its container over early.
fn hands_over_early(net: &mut Sim) {
    let heard = net.take_ngap(SOURCE);
    let [Message::DownlinkUeAssociatedNrppaTransport(m)] = heard.as_slice() else { panic!("{heard:?}") };
    let asked = EarlyHandover::Ask { gnb: target_gnb(), tai: target_tai() };
    assert_eq!(EarlyHandover::read(&m.nrppa_pdu), Some(asked));
    let pdu = EarlyHandover::Required(octets(directly(handover_required(net, &[1])))).to_octets();
    let c = connection(net).clone();
    let routing_id = m.routing_id.clone();
    say(
        net,
        SOURCE,
        UplinkUeAssociatedNrppaTransport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, routing_id, pdu),
    );
}

/// The target of a predicted handover is prepared: our name of the UE there.
fn prepared(seed: u64) -> (Sim, whimbrel_ids::AmfUeNgapId) {
    let mut net = predicted(seed, true);
    hands_over_early(&mut net);
    let id = request(&mut net).amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
    assert_eq!((net.take_ngap(SOURCE), net.take_ngap(TARGET)), (vec![], vec![]), "nothing has begun");
    assert!(context(&net).amf.mobility.target.is_none() && !context(&net).is_idle());
    (net, id)
}

/// The target has to release the UE.
fn is_released(net: &mut Sim, id: whimbrel_ids::AmfUeNgapId) -> bool {
    matches!(net.take_ngap(TARGET).as_slice(), [Message::UeContextReleaseCommand(m)]
        if matches!(&m.ue_ngap_ids, UeNgapIds::UeNgapIdPair(pair) if pair.amf_ue_ngap_id == id))
}

#[test] // Synergy §III-C: with the target prepared, HANDOVER REQUIRED is answered at once, and the first uplink packet brings the path
fn a_handover_to_a_prepared_target_asks_the_target_nothing_more() {
    let (mut net, id) = prepared(10);
    let source = an(&net, 1);
    assert_eq!(downlink(&mut net, 1).0, source, "the UE is where it was");
    let m = directly(handover_required(&net, &[1]));
    say(&mut net, SOURCE, m);
    assert_eq!(command(&mut net).target_to_source_transparent_container, TARGET_TO_SOURCE);
    assert_eq!(net.take_ngap(TARGET), []);
    assert_eq!(downlink(&mut net, 1).0, None, "packets wait until the UE is there");
    uplink_by_target(&mut net);
    assert_eq!(downlink(&mut net, 1).0, at_target(1), "there was no HANDOVER NOTIFY yet");
    say(&mut net, TARGET, notify(id));
    assert_eq!(an(&net, 1), at_target(1));
    net.settle(SECOND * 2);
    assert!(context(&net).is_idle());
}

#[test] // Synergy §III-C: the core alone: gNBs notice nothing, and no {NH, NCC} is used; HANDOVER COMMAND does not wait for the UPF
fn the_core_alone_is_prepared_without_a_message_to_a_gnb() {
    let ncc = |predicted: bool| {
        let (mut net, _) = scene(11);
        let mut config = (*net.config()).clone();
        config.amf.signs = true;
        net.configure(config);
        net.take_over(SOURCE);
        if predicted {
            predict(&mut net);
            assert_eq!((net.take_ngap(SOURCE), net.take_ngap(TARGET)), (vec![], vec![]));
            assert!(!context(&net).is_idle(), "it is prepared");
        }
        let m = directly(handover_required(&net, &[1]));
        say(&mut net, SOURCE, m);
        let m = request(&mut net);
        say(&mut net, TARGET, acknowledgement(m.amf_ue_ngap_id, vec![admitted(1, true)]));
        command(&mut net);
        say(&mut net, TARGET, notify(m.amf_ue_ngap_id));
        assert_eq!(downlink(&mut net, 1).0, at_target(1));
        m.security_context.next_hop_chaining_count
    };
    assert_eq!(ncc(true), ncc(false));
}

#[test] // Synergy §III-C: a prediction that does not come true leaves nothing behind
fn a_wrong_prediction_is_taken_back_after_five_seconds() {
    for target_prepared in [true, false] {
        let (mut net, id) = match target_prepared {
            true => prepared(12),
            false => (predicted(12, false), connection(&predicted(12, false)).amf_ue_ngap_id),
        };
        let source = an(&net, 1);
        net.advance(SECOND * 4);
        assert!(!context(&net).is_idle());
        net.advance(SECOND * 2);
        assert_eq!(is_released(&mut net, id), target_prepared);
        assert!(context(&net).is_idle());
        assert_eq!(sent_by_target(&mut net), [], "the UPF does not expect it there");
        assert_eq!(downlink(&mut net, 1).0, source);
    }
}

#[test] // TS 23.502 §4.9.1.2: the UE goes elsewhere, or by Xn, or its connection ends: the prepared target releases it
fn a_prepared_target_is_released_when_the_ue_goes_another_way() {
    for other in ["xn", "release", "cancelled"] {
        let (mut net, id) = prepared(13);
        match other {
            "xn" => {
                let m = path_switch_request(&net, &[1]);
                say(&mut net, TARGET, m);
                let heard = net.take_ngap(TARGET);
                let [Message::UeContextReleaseCommand(_), Message::PathSwitchRequestAcknowledge(_)] =
                    heard.as_slice()
                else {
                    panic!("{heard:?}")
                };
                assert_eq!(an(&net, 1), at_target(1));
                continue;
            }
            "release" => {
                let c = connection(&net).clone();
                let cause = CauseRadioNetwork::UserInactivity.into();
                let m = UeContextReleaseRequest::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause);
                say(&mut net, SOURCE, m);
            }
            _ => {
                let m = directly(handover_required(&net, &[1]));
                say(&mut net, SOURCE, m);
                command(&mut net);
                let c = connection(&net).clone();
                let cause = CauseRadioNetwork::HandoverCancelled.into();
                say(&mut net, SOURCE, HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause));
            }
        }
        assert!(is_released(&mut net, id), "{other}");
    }
}

#[test] // Synergy §III-C: predictions for a UE that has left, for a gNB that is gone, for where the UE is, and for an excluded UE have no effect
fn a_prediction_that_cannot_come_true_has_no_effect() {
    let mut net = predicted(14, true);
    net.advance(SECOND * 6);
    net.take_ngap(SOURCE);
    let id = context(&net).id;
    let own = GlobalGnbId::new(PlmnId::TEST, 1, 28).expect("28 bits");
    let unknown = GlobalGnbId::new(PlmnId::TEST, 3, 28).expect("28 bits");
    let gone = whimbrel_control::UeId { generation: id.generation.wrapping_add(1), ..id };
    let elsewhere = Tai { tac: Tac::new(2).expect("24 bits"), ..target_tai() };
    for (ue, gnb, tai) in [
        (id, own, target_tai()),
        (id, unknown, target_tai()),
        (gone, target_gnb(), target_tai()),
        (id, target_gnb(), elsewhere),
    ] {
        net.predict(ue, gnb, tai);
        net.settle(SECOND / 20);
        assert!(context(&net).is_idle() && net.take_ngap(SOURCE).is_empty(), "{gnb} {tai:?}");
    }
    for excluded in [true, false] {
        let mut config = (*net.config()).clone();
        let internet = context(&net).sessions[&psi(1)].dnn.clone();
        config.amf.prediction.excluded_dnns = excluded.then_some(internet).into_iter().collect();
        net.configure(config);
        predict(&mut net);
        assert_eq!(context(&net).is_idle(), excluded);
    }
    net.disconnect(TARGET);
    net.advance(SECOND * 6);
    net.take_ngap(SOURCE);
    predict(&mut net);
    assert!(context(&net).is_idle() && net.take_ngap(SOURCE).is_empty(), "its gNB is gone");
}

#[test] // TS 38.413 §8.4.2: the association of a prepared target is lost: the UE stays, and the UPF does not expect it there
fn a_prediction_ends_with_its_target_gnb() {
    let (mut net, _) = prepared(18);
    let source = an(&net, 1);
    net.disconnect(TARGET);
    net.settle(SECOND / 10);
    assert!(context(&net).is_idle());
    assert_eq!(sent_by_target(&mut net), []);
    assert_eq!(downlink(&mut net, 1).0, source);
}

#[test] // TS 38.413 §8.10.3: a container that was not requested, or that comes late, asks no gNB
fn a_late_container_prepares_nothing() {
    let mut net = predicted(15, true);
    net.advance(SECOND * 6);
    hands_over_early(&mut net);
    assert_eq!(net.take_ngap(TARGET), []);
    assert!(context(&net).is_idle());
}

#[test] // TS 38.413 §8.4.2.3: a target that cannot be prepared is asked again when the gNB requires the handover
fn a_target_that_refuses_early_is_asked_again() {
    let mut net = predicted(16, true);
    hands_over_early(&mut net);
    let id = request(&mut net).amf_ue_ngap_id;
    let cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell.into();
    say(&mut net, TARGET, HandoverFailure::new(id, cause));
    assert_eq!(net.take_ngap(SOURCE), []);
    let m = directly(handover_required(&net, &[1]));
    say(&mut net, SOURCE, m);
    let id = request(&mut net).amf_ue_ngap_id;
    say(&mut net, TARGET, acknowledgement(id, vec![admitted(1, true)]));
    command(&mut net);
    say(&mut net, TARGET, notify(id));
    assert_eq!(an(&net, 1), at_target(1));
}

#[test] // Synergy §III-C: emulated gNBs that cooperate: each UE is handed over, whether its prediction was right or wrong
fn cooperating_gnbs_hand_over_predicted_ues() {
    let mut net = network(17);
    for n in 1..=3 {
        let mut gnb = gnb_config(n);
        gnb.hands_over_early = true;
        net.add_gnb(gnb);
    }
    let mut config = (*net.config()).clone();
    (config.amf.signs, config.amf.prediction.early_containers) = (true, true);
    config.smf.upfs[0].predicts = true;
    net.configure(config);
    let ue = net.add_ue(SOURCE, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, whimbrel_ran::ue::UeCommand::Register);
    net.settle(SECOND);
    let session =
        SessionRequest { dnn: None, s_nssai: None, pdu_session_type: whimbrel_nas::ie::PduSessionType::Ipv4 };
    net.command(ue, whimbrel_ran::ue::UeCommand::EstablishSession(session));
    net.settle(SECOND);
    for (expected, to) in [(2, 2), (3, 3), (2, 1), (2, 2), (1, 3)] {
        let gnb = GlobalGnbId::new(PlmnId::TEST, expected, 28).expect("28 bits");
        let id = context(&net).id;
        net.predict(id, gnb, target_tai());
        net.settle(SECOND / 10);
        net.hand_over(ue, whimbrel_sim::GnbIndex(to - 1), whimbrel_ran::gnb::Via::N2);
        net.settle(SECOND);
        assert_eq!(net.gnb_of(ue), whimbrel_sim::GnbIndex(to - 1));
        net.settle(SECOND * 6);
        assert!(context(&net).is_idle());
    }
    let prepared =
        core_events(&net).filter(|e| matches!(e, CoreEvent::Sign { sign: Sign::Prepared, .. })).count();
    assert_eq!(prepared, 5);
    net.check_invariants();
}
