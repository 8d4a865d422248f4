//! Notifications of gNBs and of the AMF, against a scripted core.

use std::net::Ipv4Addr;

use whimbrel_ids::{PduSessionId, Qfi, Teid};
use whimbrel_nas::ie::{FlowOperation, FlowParameter, QosFlowDescription, SmCause};
use whimbrel_ngap as ngap;
use whimbrel_ngap::EventType;
use whimbrel_ran::gnb::{self, Event as GnbEvent, Via};
use whimbrel_ran::ue::{Event, MeasuredProcedure, MmState, QosRequest, Reason, UeCommand};

use crate::fake_core::{Net, SLICE, UE, gnb_config, gpdu};
use crate::session::internet;

fn one() -> PduSessionId {
    PduSessionId::new(1).unwrap()
}

fn flow() -> Qfi {
    Qfi::new(1).unwrap()
}

fn with_session() -> Net {
    let mut net = Net::new();
    net.add_target(gnb_config(1));
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    net.command(internet());
    net.take_events();
    net.core.ngap.clear();
    net
}

#[test] // TS 38.413 §8.9.1, §8.9.2
fn warnings_go_on_the_air_and_off_it() {
    let mut net = with_session();
    net.core(|_, out| out.push((0, ngap::WriteReplaceWarningRequest::new(0x1112, 7, 30, 3).into())));
    net.core(|_, out| out.push((0, ngap::PwsCancelRequest::new(0x1112, 7).into())));
    assert_eq!(net.core.ngap, ["WriteReplaceWarningResponse", "PwsCancelResponse"]);
    for on_air in [true, false] {
        assert!(net.gnb_events.contains(&GnbEvent::Warning { message: 0x1112, serial: 7, on_air }));
    }
    net.take_events();
}

#[test] // TS 38.413 §8.7.7.2, §8.7.8.2, §9.3.1.105: without a percentage, all connections of the action are rejected
fn connections_are_rejected_after_overload_start() {
    use ngap::OverloadAction as A;
    for (action, lets_in) in [
        (A::RejectNonEmergencyMoDt, true),
        (A::RejectRrcCrSignalling, false),
        (A::PermitEmergencySessionsAndMobileTerminatedServicesOnly, false),
        (A::PermitHighPrioritySessionsAndMobileTerminatedServicesOnly, false),
    ] {
        let mut net = Net::new();
        let mut start = ngap::OverloadStart::new();
        start.amf_overload_response = Some(ngap::OverloadResponse::OverloadAction(action));
        net.core(|_, out| out.push((0, start.into())));
        net.command(UeCommand::Register);
        assert_eq!(net.ue.state() == MmState::Registered, lets_in, "{action:?}");
        assert_eq!(net.gnb_events.contains(&GnbEvent::Barred(UE)), !lets_in);
        // It is distinguished from a connection that was lost.
        let barred = |e: &Event| matches!(e, Event::Refused { reason: Reason::Barred, .. });
        assert_eq!(net.events.iter().any(barred), !lets_in);
        net.core(|_, out| out.push((0, ngap::OverloadStop::new().into())));
        if !lets_in {
            net.until_next_timer();
        }
        assert_eq!(net.ue.state(), MmState::Registered);
    }
}

#[test] // TS 38.413 §8.7.7.2, TS 24.501 §4.6.2.3: slice lists do not apply to UEs that name no slice to their gNB
fn an_overload_of_slices_alone_keeps_no_ue_away() {
    let mut net = Net::new();
    let mut start = ngap::OverloadStart::new();
    let mut item = ngap::OverloadStartNssaiItem::new(vec![SLICE]);
    let action = ngap::OverloadAction::RejectRrcCrSignalling;
    item.slice_overload_response = Some(ngap::OverloadResponse::OverloadAction(action));
    start.overload_start_nssai_list = vec![item];
    net.core(|_, out| out.push((0, start.into())));
    net.command(UeCommand::Register);
    assert_eq!(net.ue.state(), MmState::Registered);
}

#[test] // TS 38.413 §8.12.1, §8.12.3: once, and whenever the cell changes
fn location_is_reported() {
    let mut net = with_session();
    for event in [EventType::Direct, EventType::ChangeOfServeCell] {
        net.core(|core, out| {
            let mut m = ngap::LocationReportingControl::new(core.amf_ue_ngap_id, core.ran_ue_ngap_id);
            let request = ngap::LocationReportingRequestType::new(event, ngap::ReportArea::Cell);
            m.location_reporting_request_type = Some(request);
            out.push((core.stream, m.into()));
        });
    }
    let reports = |net: &Net| net.core.ngap.iter().filter(|n| **n == "LocationReport").count();
    assert_eq!(reports(&net), 1);
    let to = net.gnb_mut(1).as_neighbour();
    net.gnb(gnb::Input::HandOver { ue: UE, to, via: Via::Xn });
    assert_eq!(reports(&net), 2);
    net.take_events();
}

#[test] // TS 38.413 §8.2.5.2
fn sessions_go_over_to_other_tunnels_when_that_is_confirmed() {
    let mut net = with_session();
    let confirm = |net: &mut Net, failed: bool| {
        net.gnb(gnb::Input::IndicateModification(UE));
        net.core(|core, out| {
            let mut m = ngap::PduSessionResourceModifyConfirm::new(core.amf_ue_ngap_id, core.ran_ue_ngap_id);
            let tunnel = ngap::GtpTunnel::new(Ipv4Addr::new(127, 0, 0, 9).into(), Teid(0x77));
            let tunnel = ngap::UpTransportLayerInformation::GtpTunnel(tunnel);
            let done = ngap::PduSessionResourceModifyConfirmTransfer::new(vec![flow()], tunnel).to_vec();
            let cause = ngap::Cause::RadioNetwork(ngap::CauseRadioNetwork::Unspecified);
            let not = ngap::PduSessionResourceModifyIndicationUnsuccessfulTransfer::new(cause).to_vec();
            if failed {
                let item = ngap::PduSessionResourceItem::new(one(), not);
                m.pdu_session_resource_failed_to_modify_list_mod_cfm = vec![item];
            } else {
                let item = ngap::PduSessionResourceItem::new(one(), done);
                m.pdu_session_resource_modify_list_mod_cfm = vec![item];
            }
            out.push((core.stream, m.into()));
        });
    };
    confirm(&mut net, true);
    net.gtpu(&gpdu(Teid(1), flow(), b"old"));
    assert_eq!((net.take_packets().len(), net.gnb.tunnels()), (1, 1));
    confirm(&mut net, false);
    net.take_events();
    assert_eq!(net.gnb.tunnels(), 1);
    net.gtpu(&gpdu(Teid(1), flow(), b"old"));
    assert!(net.take_packets().is_empty(), "the old tunnel is gone");
}

#[test] // TS 38.413 §8.2.4, §8.7.4.2.2
fn notifications_and_a_reset_of_one_ue() {
    let mut net = with_session();
    net.gnb(gnb::Input::Notify { ue: UE, session: one(), qfi: flow(), fulfilled: false });
    net.gnb(gnb::Input::LetSessionGo(UE, one()));
    assert!(!net.ue.has_user_plane(one()));
    // No report was requested.
    net.gnb(gnb::Input::Inactive(UE, true));
    net.gnb(gnb::Input::ResetSome(&[UE]));
    assert_eq!(net.core.ngap, ["PduSessionResourceNotify", "PduSessionResourceNotify", "NgReset"]);
    assert!(!net.ue.is_connected());
    net.take_events();
}

#[test] // TS 24.501 §6.4.2.4, §6.4.2.6 a: T3581
fn modification_that_is_refused_or_not_answered() {
    let mut net = with_session();
    let qfi = Qfi::new(0).unwrap();
    let parameters = vec![FlowParameter::FiveQi(whimbrel_ids::FiveQi(3))];
    let wish = QosFlowDescription { qfi, operation: FlowOperation::Create, e_bit: true, parameters };
    let request = QosRequest { rules: Vec::new(), flows: vec![wish] };
    net.core.knobs.reject_modification = Some(SmCause::Unsupported5qiValue);
    net.command(UeCommand::ModifySession(one(), Box::new(request.clone())));
    let refused = |events: &[Event], expected: Reason| {
        events.iter().any(|e| {
            matches!(e, Event::Refused { procedure: MeasuredProcedure::SessionModification, reason, .. } if *reason == expected)
        })
    };
    assert!(refused(&net.take_events(), Reason::Sm(SmCause::Unsupported5qiValue)));
    net.core.knobs.reject_modification = None;
    net.command(UeCommand::ModifySession(one(), Box::new(request)));
    let begun = net.now;
    let mut events = Vec::new();
    while !refused(&events, Reason::TimedOut) {
        net.until_next_timer();
        events.extend(net.take_events());
    }
    assert_eq!(net.now.since(begun).as_secs(), 5 * 16);
    assert_eq!(net.ue.sessions().count(), 1);
}
