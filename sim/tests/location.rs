//! Where a UE is: TS 23.502 §4.10, TS 23.501 §5.4.7, TS 38.413 §8.12.

use crate::common::by_hand::{
    SOURCE, TARGET, acknowledgement, admitted, command, connection, handover_required, notify,
};
use crate::common::by_hand::{context, octets, path_switch_request, request, say, two_gnbs};
use crate::common::*;
use whimbrel_control::{Command as Order, Event, Locate};
use whimbrel_ids::{NrCellId, PlmnId, Tac, Tai};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    CauseRadioNetwork, EventType, LocationReportingRequestType, NgranCgi, NrCgi, UePresence,
    UePresenceInAreaOfInterestItem, UserLocationInformation, UserLocationInformationNr,
};
use whimbrel_ngap::msg::{LocationReport, LocationReportingFailureIndication};
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, UeIndex};

fn locate(net: &mut Sim, wish: Locate) {
    let id = context(net).id;
    net.order(id, Order::Locate(wish));
}

fn tai(tac: u32) -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(tac).expect("24 bits") }
}

/// What the core has asked of gNBs.
fn asked(heard: Vec<Message>) -> Vec<LocationReportingRequestType> {
    let asked = heard.into_iter().filter_map(|m| match m {
        Message::LocationReportingControl(m) => m.location_reporting_request_type,
        _ => None,
    });
    asked.collect()
}

/// The UEs found so far, by their cells.
fn located(net: &Sim) -> Vec<Option<NgranCgi>> {
    let cell = |e: &Event| if let Event::Located { cell, .. } = e { Some(cell.clone()) } else { None };
    core_events(net).filter_map(cell).collect()
}

fn place(cell: u64, tac: u32, seconds_since_1900: Option<u32>) -> UserLocationInformation {
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(cell).expect("36 bits"));
    let mut nr = UserLocationInformationNr::new(cell, tai(tac));
    nr.time_stamp = seconds_since_1900.map(u32::to_be_bytes);
    UserLocationInformation::UserLocationInformationNr(nr)
}

/// The first gNB, by hand, reports on the UE.
fn report(net: &mut Sim, place: UserLocationInformation, presence: &[(u8, UePresence)]) {
    let c = connection(net).clone();
    let mut m = LocationReport::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id);
    m.user_location_information = Some(place);
    m.ue_presence_in_area_of_interest_list =
        presence.iter().map(|&(n, p)| UePresenceInAreaOfInterestItem::new(n, p)).collect();
    net.inject(SOURCE, &octets(m));
}

fn registered_ue(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    (net, ue)
}

#[test] // TS 38.413 §8.12.1.2, §8.12.3.2; TS 23.502 §4.10: a connected UE's gNB is asked once, and its report is stored
fn a_connected_ue_is_located_once() {
    let (mut net, _) = two_gnbs(1, 1);
    let seen = context(&net).amf.location.seen.clone().expect("reported with its first message");
    net.advance(SECOND * 10);
    net.tap();
    locate(&mut net, Locate::Now);
    net.settle(SECOND);
    let controls = asked(net.tapped());
    assert_eq!(controls.iter().map(|c| c.event_type).collect::<Vec<_>>(), [EventType::Direct]);
    let now = context(&net).amf.location.seen.clone().expect("reported again");
    assert_eq!(located(&net), [Some(now.cell.clone())]);
    assert_eq!(now.cell, seen.cell);
    assert!(now.at >= seen.at + SECOND * 10, "it was seen there now");
    no_violations(&net);
}

#[test] // TS 23.502 §4.10, §4.2.3.3; TS 23.501 §5.4.7: an idle UE is paged, and found by the message with which it answers
fn an_idle_ue_is_paged_to_be_located() {
    let (mut net, ue) = registered_ue(2);
    go_idle(&mut net, ue);
    net.tap();
    locate(&mut net, Locate::Now);
    net.settle(SECOND);
    let messages = net.tapped();
    assert_eq!(messages.iter().filter(|m| matches!(m, Message::Paging(_))).count(), 1);
    assert!(asked(messages).is_empty(), "its gNB has reported already");
    assert_eq!(located(&net).len(), 1);
    no_violations(&net);
}

#[test] // TS 23.502 §4.10, §4.2.3.3 step 5: it does not answer to paging: the operator learns so, and where it was stands
fn a_ue_that_cannot_be_located() {
    let (mut net, ue) = registered_ue(3);
    go_idle(&mut net, ue);
    let before = context(&net).amf.location.seen.clone();
    net.leave_coverage(ue);
    locate(&mut net, Locate::Now);
    net.advance(SECOND * 30);
    assert!(core_events(&net).any(|e| matches!(e, Event::NotLocated { .. })));
    assert_eq!((context(&net).amf.location.seen.clone(), located(&net).len()), (before, 0));
    net.tap();
    net.advance(SECOND * 60);
    assert!(net.tapped().is_empty(), "it is given up");
}

#[test] // TS 38.413 §8.12.1.2, §8.12.3.2: each change of the cell, also by a handover over Xn or through the core, until stopped
fn a_ue_is_followed_from_cell_to_cell() {
    for via in [Via::Xn, Via::N2] {
        let (mut net, ue) = two_gnbs(4, 1);
        let second = net.add_gnb(gnb_config(3));
        net.settle(SECOND / 10);
        locate(&mut net, Locate::CellChanges);
        net.settle(SECOND);
        assert_eq!(located(&net).len(), 0, "nothing has changed");
        net.hand_over(ue, second, via);
        net.settle(SECOND * 3);
        assert_eq!(net.gnb_of(ue), second);
        let reported = located(&net);
        assert_eq!(reported.len(), 1, "{via:?}");
        assert_eq!(reported.last(), Some(&context(&net).amf.location.seen.clone().map(|s| s.cell)));
        locate(&mut net, Locate::Stop);
        net.settle(SECOND);
        net.hand_over(ue, GnbIndex(0), via);
        net.settle(SECOND * 3);
        assert_eq!((net.gnb_of(ue), located(&net).len()), (GnbIndex(0), 1), "{via:?}");
        no_violations(&net);
    }
}

#[test] // TS 38.413 §8.12.1.2, §8.12.3.2: areas of interest, each under its reference; unknown references are ignored
fn presence_in_areas_of_interest() {
    let (mut net, _) = registered_ue(5);
    net.take_over(SOURCE);
    for tac in [7, 8, 7] {
        locate(&mut net, Locate::Presence(tai(tac)));
    }
    net.settle(SECOND / 10);
    let controls = asked(net.take_ngap(SOURCE));
    assert_eq!(controls.len(), 2, "one area is watched once");
    for (control, (reference, tac)) in controls.iter().zip([(1, 7), (2, 8)]) {
        assert_eq!(control.event_type, EventType::UePresenceInAreaOfInterest);
        let [item] = control.area_of_interest_list.as_slice() else { panic!("{control:?}") };
        assert_eq!(item.location_reporting_reference_id, reference);
        assert_eq!(item.area_of_interest.area_of_interest_tai_list, [tai(tac)]);
    }
    report(&mut net, place(0x21, 8, None), &[(1, UePresence::Out), (2, UePresence::In), (9, UePresence::In)]);
    let reported: Vec<_> = core_events(&net)
        .filter_map(
            |e| if let Event::Presence { area, inside, .. } = e { Some((*area, *inside)) } else { None },
        )
        .collect();
    assert_eq!(reported, [(tai(7), Some(false)), (tai(8), Some(true))]);
    assert_eq!(context(&net).amf.location.tai, Some(tai(8)));
    locate(&mut net, Locate::Stop);
    net.settle(SECOND / 10);
    let events: Vec<_> = asked(net.take_ngap(SOURCE)).iter().map(|c| c.event_type).collect();
    assert_eq!(events, [EventType::CancelLocationReportingForTheUe]);
    let before = located(&net).len();
    report(&mut net, place(0x22, 7, None), &[(1, UePresence::In)]);
    assert_eq!(
        (located(&net).len(), context(&net).amf.location.tai),
        (before, Some(tai(8))),
        "it crossed the end"
    );
}

#[test] // TS 38.413 §8.12.1.2: a hundred areas are not watched: so many references one UE does not get
fn areas_are_bounded() {
    let (mut net, _) = registered_ue(6);
    net.take_over(SOURCE);
    (1..=100).for_each(|tac| locate(&mut net, Locate::Presence(tai(tac))));
    net.settle(SECOND / 10);
    assert_eq!(asked(net.take_ngap(SOURCE)).len(), 16);
}

#[test] // TS 23.501 §5.4.7, TS 38.413 §9.3.1.16: of a UE in RRC_INACTIVE the gNB reports the last place, and when that was
fn a_place_with_a_time_stamp_is_as_old_as_that() {
    let (mut net, _) = registered_ue(7);
    net.take_over(SOURCE);
    let ntp = |at: whimbrel_ids::Instant| (at.as_secs() + 2_208_988_800) as u32;
    for (ago, kept) in [(600, 600), (0, 0)] {
        locate(&mut net, Locate::Now);
        let then = ntp(net.now()) - ago;
        report(&mut net, place(0x30, 1, Some(then)), &[]);
        let seen = context(&net).amf.location.seen.clone().expect("it was reported");
        assert_eq!(net.now().as_secs() - seen.at.as_secs(), kept);
    }
    locate(&mut net, Locate::Now);
    let ahead = ntp(net.now()) + 3600;
    report(&mut net, place(0x31, 1, Some(ahead)), &[]);
    let seen = context(&net).amf.location.seen.clone().expect("it was reported");
    assert!(net.now().since(seen.at) < SECOND, "a clock that is ahead makes nothing newer than now");
    for stamp in [0, 1, 2_208_988_799] {
        locate(&mut net, Locate::Now);
        report(&mut net, place(0x31, 1, Some(stamp)), &[]);
    }
    assert_eq!(located(&net).len(), 6);
}

#[test] // TS 38.413 §8.12.2.2: the gNB cannot: the operator learns its cause; what stands is asked of the next gNB
fn location_reporting_fails() {
    let (mut net, _) = two_gnbs(8, 1);
    net.take_over(SOURCE);
    locate(&mut net, Locate::CellChanges);
    net.settle(SECOND / 10);
    net.take_ngap(SOURCE);
    let c = connection(&net).clone();
    let cause = CauseRadioNetwork::Unspecified;
    let failure = LocationReportingFailureIndication::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause.into());
    net.inject(SOURCE, &octets(failure.clone()));
    let failed = |net: &Sim| core_events(net).filter(|e| matches!(e, Event::NotLocated { .. })).count();
    assert_eq!(failed(&net), 1);
    let required = handover_required(&net, &[1]);
    say(&mut net, SOURCE, required);
    let asked = request(&mut net).location_reporting_request_type.expect("the target is asked");
    assert_eq!(asked.event_type, EventType::ChangeOfServeCell);
    locate(&mut net, Locate::Stop);
    net.inject(SOURCE, &octets(failure));
    assert_eq!(failed(&net), 1, "no request is pending");
}

#[test] // TS 38.413 §8.4.2.2; TS 23.502 §4.10: what is wished during a handover is asked where the UE then is
fn a_wish_during_a_handover() {
    let (mut net, _) = two_gnbs(9, 1);
    net.take_over(SOURCE);
    locate(&mut net, Locate::Presence(tai(7)));
    net.settle(SECOND / 10);
    net.take_ngap(SOURCE);
    let required = handover_required(&net, &[1]);
    say(&mut net, SOURCE, required);
    let m = request(&mut net);
    let reported = m.location_reporting_request_type.expect("the target is asked");
    assert_eq!(reported.event_type, EventType::UePresenceInAreaOfInterest);
    locate(&mut net, Locate::CellChanges);
    locate(&mut net, Locate::Now);
    assert!(asked(net.take_ngap(SOURCE)).is_empty());
    say(&mut net, TARGET, acknowledgement(m.amf_ue_ngap_id, vec![admitted(1, false)]));
    command(&mut net);
    say(&mut net, TARGET, notify(m.amf_ue_ngap_id));
    let controls = asked(net.take_ngap(TARGET));
    let events: Vec<_> = controls.iter().map(|c| c.event_type).collect();
    assert_eq!(events, [EventType::ChangeOfServingCellAndUePresenceInTheAreaOfInterest]);
    assert_eq!(controls[0].area_of_interest_list.len(), 1);
    assert_eq!(located(&net).len(), 1, "HANDOVER NOTIFY has its location");
}

#[test] // TS 38.413 §8.4.4.2, TS 23.502 §4.10: over Xn the source has forwarded the request to the target; the core does not send it again
fn a_path_switch_asks_nothing_again() {
    let (mut net, _) = two_gnbs(10, 1);
    locate(&mut net, Locate::CellChanges);
    net.settle(SECOND);
    let m = path_switch_request(&net, &[1]);
    say(&mut net, TARGET, m);
    let heard = net.take_ngap(TARGET);
    assert!(heard.iter().any(|m| matches!(m, Message::PathSwitchRequestAcknowledge(_))));
    assert!(asked(heard).is_empty());
}

#[test] // TS 38.413 §8.3.1.2: a request for an idle UE is sent in the INITIAL CONTEXT SETUP REQUEST of its next connection
fn a_wish_waits_for_the_next_connection() {
    let (mut net, ue) = registered_ue(11);
    let request = whimbrel_ran::ue::SessionRequest {
        dnn: None,
        s_nssai: None,
        pdu_session_type: whimbrel_nas::ie::PduSessionType::Ipv4,
    };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.tap();
    locate(&mut net, Locate::CellChanges);
    net.settle(SECOND);
    assert!(net.tapped().is_empty(), "no UE is paged for this");
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    let messages = net.tapped();
    let setup = messages.iter().find_map(|m| match m {
        Message::InitialContextSetupRequest(m) => Some(m.location_reporting_request_type.clone()),
        _ => None,
    });
    let expected = setup.expect("its session has data").expect("the wish stands in it");
    assert_eq!(expected.event_type, EventType::ChangeOfServeCell);
    assert!(asked(messages).is_empty());
    no_violations(&net);
}
