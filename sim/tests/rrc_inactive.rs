//! UEs that rest in RRC_INACTIVE: TS 23.501 §5.3.3.2.5, TS 23.502 §4.8, TS 38.413 §8.3.5.

use crate::common::by_hand::{
    SOURCE, TARGET, connection, context, handover_required, octets, path_switch_request, request,
};
use crate::common::by_hand::{say, two_gnbs};
use crate::common::*;
use whimbrel_ids::Tmsi;
use whimbrel_nas::ie::GprsTimer3;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    CoreNetworkAssistanceInformationForInactive, RrcInactiveTransitionReportRequest, RrcState,
    UeIdentityIndexValue,
};
use whimbrel_ngap::msg::RrcInactiveTransitionReport;
use whimbrel_ran::gnb::Input;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, ue_config};

fn index(tmsi: Tmsi) -> UeIdentityIndexValue {
    UeIdentityIndexValue::IndexLength10((tmsi.0 % 1024) as u16)
}

/// What a gNB needs to page the UE as it is registered now.
fn current(net: &Sim) -> CoreNetworkAssistanceInformationForInactive {
    let amf = &context(net).amf;
    let timer = GprsTimer3::from_duration(whimbrel_sim::default_config().timers.t3512);
    CoreNetworkAssistanceInformationForInactive::new(
        index(amf.tmsi.expect("it is registered")),
        timer.octet(),
        amf.location.registration_area.to_vec(),
    )
}

#[test] // TS 23.501 §5.3.3.2.5; TS 23.502 §4.8.1.1; TS 38.413 §8.3.1.2: with its context the gNB learns how the UE listens
fn assistance_goes_with_the_context() {
    let (mut net, ue) = one_ue(1);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let reported = net.tapped().into_iter().find_map(|m| match m {
        Message::InitialContextSetupRequest(m) => Some(m),
        _ => None,
    });
    let reported = reported.expect("the gNB got a context");
    assert_eq!(reported.core_network_assistance_information_for_inactive, Some(current(&net)));
    assert_eq!(reported.rrc_inactive_transition_report_request, None, "no reports were requested");
    no_violations(&net);
}

#[test] // TS 23.501 §5.3.3.2.5: not where the operator leaves it to idle mode
fn no_rrc_inactive_assistance_if_not_configured() {
    let mut config = whimbrel_sim::default_config();
    config.amf.access.rrc_inactive = false;
    let mut net = Sim::builder(2).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.settle(SECOND / 10);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    for m in net.tapped() {
        if let Message::InitialContextSetupRequest(m) = m {
            assert_eq!(m.core_network_assistance_information_for_inactive, None);
        }
    }
}

#[test] // TS 38.413 §8.4.2.2, §8.4.4.2; TS 23.502 §4.8.1.1: a gNB that takes the UE over learns it, too, by either way
fn assistance_goes_with_a_handover() {
    let (mut net, _) = two_gnbs(3, 1);
    let expected = current(&net);
    let required = handover_required(&net, &[1]);
    say(&mut net, SOURCE, required);
    assert_eq!(request(&mut net).core_network_assistance_information_for_inactive, Some(expected.clone()));
    let (mut net, _) = two_gnbs(3, 1);
    let m = path_switch_request(&net, &[1]);
    say(&mut net, TARGET, m);
    let reported = net.take_ngap(TARGET).into_iter().find_map(|m| match m {
        Message::PathSwitchRequestAcknowledge(m) => Some(m.core_network_assistance_information_for_inactive),
        _ => None,
    });
    assert_eq!(reported, Some(Some(expected)));
}

#[test] // TS 23.502 §4.2.4.2, §4.8.1.1; TS 38.413 §8.3.4.2: a new 5G-GUTI, or another area, of a UE whose context a gNB has
fn a_new_guti_is_sent_to_the_gnb() {
    let (mut net, ue) = two_gnbs(4, 1);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let reported: Vec<_> = net
        .tapped()
        .into_iter()
        .filter_map(|m| match m {
            Message::UeContextModificationRequest(m) => m.core_network_assistance_information_for_inactive,
            _ => None,
        })
        .collect();
    assert_eq!(reported, [current(&net)]);
    no_violations(&net);
}

#[test] // TS 38.413 §8.3.5.2; TS 23.502 §4.8.3; TS 23.501 §5.3.3.2.5: the gNB reports RRC_INACTIVE and the return to RRC_CONNECTED
fn the_rrc_state_is_reported_and_kept() {
    let mut config = whimbrel_sim::default_config();
    config.amf.access.rrc_reports = true;
    let mut net = Sim::builder(6).config(config).build();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.settle(SECOND / 10);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let asked = net.tapped().into_iter().any(|m| {
        let expected = Some(RrcInactiveTransitionReportRequest::SubsequentStateTransitionReport);
        matches!(m, Message::InitialContextSetupRequest(m) if m.rrc_inactive_transition_report_request == expected)
    });
    assert!(asked);
    for inactive in [true, false, true] {
        let before = context(&net).amf.location.seen.clone().expect("it was seen");
        net.advance(SECOND / 2);
        net.gnb_input(gnb, Input::Inactive(whimbrel_ran::UeId(0), inactive));
        net.settle(SECOND / 10);
        assert_eq!(connection(&net).rrc_inactive, inactive);
        let now = context(&net).amf.location.seen.clone().expect("it was seen");
        assert!(now.at > before.at && context(&net).is_connected());
    }
    no_violations(&net);
}

#[test] // TS 38.413 §8.3.5.2: a report without request is accepted; one without a state is ignored
fn a_report_out_of_the_blue() {
    let (mut net, _) = two_gnbs(7, 1);
    let c = connection(&net).clone();
    let mut m = RrcInactiveTransitionReport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id);
    net.inject(GnbIndex(0), &octets(m.clone()));
    assert!(!connection(&net).rrc_inactive);
    m.rrc_state = Some(RrcState::Inactive);
    net.inject(GnbIndex(0), &octets(m));
    assert!(connection(&net).rrc_inactive);
}
