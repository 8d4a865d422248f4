//! Access control: slices, congestion, equipment, changes of the subscription, new keys, unreachable UEs.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::config::{Config, EquipmentPrefix, LocalTime};
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::udm::Subscription;
use whimbrel_control::{Event as CoreEvent, Procedure, Refusal};
use whimbrel_ids::{SNssai, Tac};
use whimbrel_nas::ie::{DrxParameters, GprsTimer3, MicoIndication, MmCause, SliceRejectCause};
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ran::ue::{AskFor, Event, MmState, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex, default_config, ue_config};

/// A network of this configuration with one UE that asks for these slices.
fn with(seed: u64, slices: &[u8], change: impl FnOnce(&mut Config)) -> (Sim, UeIndex) {
    let mut config = default_config();
    config.amf.slices = (1..=3).map(SNssai::sst).collect();
    change(&mut config);
    let mut net = Sim::builder(seed).config(config).build();
    let mut gnb = gnb_config(1);
    gnb.supported_tas[0].plmns[0].1 = (1..=3).map(SNssai::sst).collect();
    let gnb = net.add_gnb(gnb);
    let mut context = ue_config(1);
    let mut profile = (*context.profile).clone();
    profile.requested_nssai = slices.iter().copied().map(SNssai::sst).collect();
    context.profile = profile.into();
    let ue = net.add_ue(gnb, context);
    net.settle(SECOND / 10);
    (net, ue)
}

/// The slices of these types.
fn subscribed(slices: &[u8]) -> Subscription {
    let mut subscription = subscription();
    let one = subscription.slices[0].clone();
    subscription.slices = slices
        .iter()
        .map(|sst| {
            let mut slice = one.clone();
            slice.s_nssai = SNssai::sst(*sst);
            slice.default = *sst == slices[0];
            slice
        })
        .collect();
    subscription
}

fn allowed(net: &Sim, ue: UeIndex) -> Vec<u8> {
    net.ue_ref(ue).allowed_nssai().iter().map(|s| s.sst).collect()
}

fn completed(net: &Sim, expected: Procedure) -> usize {
    core_events(net)
        .filter(|e| matches!(e, CoreEvent::Completed { procedure, .. } if *procedure == expected))
        .count()
}

fn internet() -> UeCommand {
    UeCommand::EstablishSession(SessionRequest {
        dnn: Some("internet".parse().expect("a DNN")),
        s_nssai: None,
        pdu_session_type: whimbrel_nas::ie::PduSessionType::Ipv4v6,
    })
}

#[test] // TS 24.501 §4.6.2.2; TS 23.501 §5.15.3: requested, subscribed and offered slices; the others are rejected with their cause
fn slices_are_allowed_or_rejected_with_their_cause() {
    let (mut net, ue) = with(1, &[1, 2, 3, 9], |c| {
        c.amf.access.slice_areas.insert(SNssai::sst(2), [Tac::new(7).expect("24 bits")].into());
    });
    net.home().subscribe(subscribed(&[1, 2]));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(allowed(&net, ue), [1]);
    let rejected = net.ue_ref(ue).rejected_nssai().to_vec();
    let cause = |sst| rejected.iter().find(|(s, _)| s.sst == sst).map(|(_, c)| *c);
    assert_eq!(cause(2), Some(SliceRejectCause::NotAvailableInRegistrationArea), "it is had elsewhere");
    assert_eq!(cause(3), Some(SliceRejectCause::NotAvailableInPlmn), "not subscribed");
    assert_eq!(cause(9), Some(SliceRejectCause::NotAvailableInPlmn), "not offered");
    no_violations(&net);
}

#[test] // TS 23.501 §5.15.5.2.1: the registration area holds only tracking areas that have all allowed slices
fn the_registration_area_has_the_allowed_slices() {
    let tac = |n| Tac::new(n).expect("24 bits");
    let (mut net, ue) = with(2, &[1, 2], |c| {
        c.amf.tacs = vec![tac(1), tac(2), tac(3)];
        c.amf.access.slice_areas.insert(SNssai::sst(2), [tac(1), tac(3)].into());
    });
    net.home().subscribe(subscribed(&[1, 2]));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let area = net.ue_ref(ue).registration_area();
    let tai = |n| whimbrel_ids::Tai { plmn: whimbrel_ids::PlmnId::TEST, tac: tac(n) };
    assert!(area.contains(tai(1)) && !area.contains(tai(2)) && area.contains(tai(3)));
}

#[test] // TS 23.501 §5.15.11.1: a slice that is full takes no further UE, until one leaves
fn a_full_slice_is_refused_for_now() {
    let (mut net, ue) = with(3, &[2, 1], |c| {
        c.amf.access.slice_ues_max.insert(SNssai::sst(2), 1);
    });
    net.home().subscribe(subscribed(&[1, 2]));
    let mut other = ue_config(2);
    other.profile = net.ue_ref(ue).config().profile.clone();
    let other = net.add_ue(whimbrel_sim::GnbIndex(0), other);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(other, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!((allowed(&net, ue), allowed(&net, other)), (vec![2, 1], vec![1]));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    net.command(other, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(allowed(&net, other), [2, 1]);
    no_violations(&net);
}

#[test] // TS 23.501 §5.15.5.2.2; TS 24.501 §5.4.4.2; TS 23.502 §4.2.4.2: the subscription gains a slice: the UE gets CONFIGURATION UPDATE COMMAND, and registers with the slice
fn a_slice_that_is_subscribed_later() {
    let (mut net, ue) = with(4, &[1, 2], |_| {});
    net.home().subscribe(subscribed(&[1]));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(allowed(&net, ue), [1]);
    net.home().subscribe(subscribed(&[1, 2]));
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND * 15);
    assert_eq!(allowed(&net, ue), [1, 2]);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::ConfigurationUpdated { .. })));
    assert_eq!(completed(&net, Procedure::SubscriptionChange), 1);
    assert!(registered(&net, ue) && completed(&net, Procedure::Registration) == 2);
    no_violations(&net);
}

#[test] // TS 23.501 §5.15.5.2.2; TS 23.502 §4.2.2.2.2 step 17: the subscription loses a slice: its sessions end
fn a_slice_that_is_withdrawn_takes_its_sessions_along() {
    let (mut net, ue) = with(5, &[1, 2], |_| {});
    net.home().subscribe(subscribed(&[1, 2]));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(
        ue,
        UeCommand::EstablishSession(SessionRequest {
            dnn: None,
            s_nssai: Some(SNssai::sst(2)),
            pdu_session_type: whimbrel_nas::ie::PduSessionType::Ipv4,
        }),
    );
    net.command(ue, internet());
    net.settle(SECOND);
    assert_eq!(net.upf_sessions(), 2);
    net.home().subscribe(subscribed(&[1]));
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND * 15);
    assert_eq!((allowed(&net, ue), net.upf_sessions()), (vec![1], 1));
    no_violations(&net);
}

#[test] // TS 24.501 §5.4.4.6 b: CONFIGURATION UPDATE COMMAND with new slices is repeated
fn configuration_update_command_is_resent_when_t3555_expires() {
    let (mut net, ue) = with(6, &[1, 2], |_| {});
    net.home().subscribe(subscribed(&[1]));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::ConfigurationUpdateCommand, 1));
    net.home().subscribe(subscribed(&[1, 2]));
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND * 30);
    assert_eq!(allowed(&net, ue), [1, 2]);
}

#[test] // TS 23.502 §4.5.1: an idle UE learns with its next registration that its slices have changed
fn an_idle_ue_learns_its_slices_when_it_registers() {
    let (mut net, ue) = with(7, &[1, 2], |_| {});
    net.home().subscribe(subscribed(&[1]));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.home().subscribe(subscribed(&[1, 2]));
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND);
    assert_eq!(allowed(&net, ue), [1]);
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(SECOND);
    assert_eq!(allowed(&net, ue), [1, 2]);
    no_violations(&net);
}

#[test] // TS 23.501 §5.7.2.6, TS 38.413 §8.3.4.2: another UE-AMBR reaches the gNB
fn another_ambr_reaches_the_gnb() {
    let (mut net, ue) = with(8, &[1], |_| {});
    net.home().subscribe(subscribed(&[1]));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, internet());
    net.settle(SECOND);
    let mut poorer = subscribed(&[1]);
    poorer.ue_ambr.dl_kbps = 50_000;
    net.home().subscribe(poorer);
    net.tap();
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND);
    let reported = net.tapped().into_iter().find_map(|m| match m {
        Message::UeContextModificationRequest(m) => m.ue_aggregate_maximum_bit_rate,
        _ => None,
    });
    assert_eq!(reported.map(|a| a.ue_aggregate_maximum_bit_rate_dl), Some(50_000_000));
    assert_eq!(net.upf_sessions(), 1);
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.2.3.3, TS 24.501 §5.5.2.3.1: the subscription ends: the UE gets DEREGISTRATION REQUEST with the cause
fn a_subscriber_that_is_barred_has_to_leave() {
    let (mut net, ue) = with(9, &[1], |_| {});
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let supi = net.ue_ref(ue).config().supi;
    net.home().barred.push(supi);
    net.subscriber_changed(supi);
    net.settle(SECOND);
    assert_eq!(net.ue_ref(ue).state(), MmState::Deregistered);
    let cause = net.ue_events(ue).iter().find_map(|(_, e)| match e {
        Event::Deregistered { cause, .. } => Some(*cause),
        _ => None,
    });
    assert_eq!(cause, Some(Some(MmCause::FiveGsServicesNotAllowed)));
    assert!(
        core_events(&net)
            .any(|e| matches!(e, CoreEvent::Deregistered { why: DeregistrationReason::BySubscription, .. }))
    );
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 23.502 §4.5.1: what does not concern the UE changes nothing
fn a_change_that_changes_nothing() {
    let (mut net, ue) = with(10, &[1], |_| {});
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let supi = net.ue_ref(ue).config().supi;
    net.subscriber_changed(supi);
    net.settle(SECOND);
    assert!(registered(&net, ue) && completed(&net, Procedure::Registration) == 1);
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.2.5 #22, §5.3.9; TS 23.501 §5.19.7.2: T3346 keeps the UE away, and only for so long
fn congestion_keeps_registrations_back() {
    let (mut net, ue) = with(11, &[1], |c| c.amf.access.congestion.general = true);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
    assert_eq!(first_refusal(&net), Some(Refusal::Congested("general")));
    let mut free = default_config();
    free.version = 2;
    net.configure(free);
    net.advance(Duration::from_secs(130));
    assert!(registered(&net, ue), "T3346 is over");
}

#[test] // TS 24.501 §5.6.1.5 #22: a service request is kept back, and the UE stays registered
fn congestion_keeps_service_requests_back() {
    let (mut net, ue) = with(12, &[1], |_| {});
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, internet());
    net.settle(SECOND);
    go_idle(&mut net, ue);
    let mut busy = default_config();
    busy.amf.access.congestion.general = true;
    busy.version = 2;
    net.configure(busy);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
    assert!(registered(&net, ue));
    assert_eq!(net.upf_sessions(), 1);
}

#[test] // TS 24.501 §5.4.5.2.5 #22, §5.3.10; TS 23.501 §5.19.7.3: a congested data network gives the payload back, with a back-off timer
fn congestion_of_a_data_network() {
    let (mut net, ue) = with(13, &[1], |c| {
        c.amf.access.congestion.dnns.insert("internet".parse().expect("a DNN"));
    });
    net.command(ue, UeCommand::Register);
    net.command(ue, internet());
    net.settle(SECOND);
    let reported = net.ue_events(ue).iter().find_map(|(_, e)| match e {
        Event::Refused { reason, retry_after, .. } => Some((*reason, *retry_after)),
        _ => None,
    });
    assert!(matches!(reported, Some((Reason::Mm(MmCause::Congestion), Some(_)))), "{reported:?}");
}

#[test] // TS 24.501 §5.4.5.2.5 #69, §5.3.11; TS 23.501 §5.19.7.4: a congested slice
fn congestion_of_a_slice() {
    let (mut net, ue) = with(14, &[1], |c| {
        c.amf.access.congestion.slices.insert(SNssai::sst(1));
    });
    net.command(ue, UeCommand::Register);
    net.command(ue, internet());
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::InsufficientResourcesForSlice)));
}

#[test] // TS 24.501 §5.5.1.2.5 #6; TS 23.502 §4.2.2.2.2 step 11: equipment on the list
fn equipment_that_is_refused() {
    let (mut net, ue) = with(15, &[1], |c| {
        c.amf.access.refused_equipment.push(EquipmentPrefix::new("35609204").expect("8 digits"));
    });
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::IllegalMe)));
    assert_eq!(first_refusal(&net), Some(Refusal::EquipmentRefused));
}

#[test] // TS 33.501 §6.1.2; TS 24.501 §5.5.1.3.3: the operator has UEs authenticated every third time
fn ues_prove_their_key_as_often_as_the_operator_wants() {
    let (mut net, ue) = with(16, &[1], |c| c.amf.access.authentication.every_registrations = Some(3));
    net.tap();
    let challenges = |net: &mut Sim| {
        let plain = net.tapped().into_iter().filter_map(|m| match m {
            Message::DownlinkNasTransport(m) => Some(m.nas_pdu),
            _ => None,
        });
        // SECURITY MODE COMMAND: integrity protected with a new context.
        plain.filter(|pdu| pdu.get(1) == Some(&3)).count()
    };
    let mut seen = Vec::new();
    for _ in 0..8 {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert!(registered(&net, ue));
        seen.push(challenges(&mut net));
    }
    assert_eq!(seen, [1, 0, 0, 0, 1, 0, 0, 0]);
    no_violations(&net);
}

#[test] // TS 33.501 §6.1.2: the operator has UEs authenticated once their key is old
fn old_keys_are_followed_by_a_new_authentication() {
    let (mut net, ue) =
        with(17, &[1], |c| c.amf.access.authentication.after = Some(Duration::from_secs(3600)));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let first = net.cta().contexts().next().and_then(|p| p.amf.security.current.as_ref().map(|s| s.counts()));
    net.advance(Duration::from_secs(3000));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let second =
        net.cta().contexts().next().and_then(|p| p.amf.security.current.as_ref().map(|s| s.counts()));
    assert!(second.map(|c| c.uplink_next) > first.map(|c| c.uplink_next), "the same keys");
    net.advance(Duration::from_secs(700));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let third = net.cta().contexts().next().and_then(|p| p.amf.security.current.as_ref().map(|s| s.counts()));
    assert!(third.map(|c| c.uplink_next) < second.map(|c| c.uplink_next), "new keys begin at zero");
    no_violations(&net);
}

fn asking(seed: u64, ask: AskFor) -> (Sim, UeIndex) {
    let (mut net, ue) = with(seed, &[1], |_| {});
    net.ue_mut(ue).faults_mut().ask_for = Some(ask.into());
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

#[test] // TS 24.501 §5.3.6, §5.3.7 T3324, §5.5.1.2.4 MICO; TS 23.501 §5.4.1.3: MICO with active time and a periodic timer of the UE's own
fn a_ue_that_is_not_to_be_reached() {
    let hour = GprsTimer3::from_duration(Duration::from_secs(2 * 3600));
    let mico = Some(MicoIndication { all_plmn_registration_area: false, strictly_periodic: false });
    let active = Some(GprsTimer3::from_duration(Duration::from_secs(20)));
    let (mut net, ue) = asking(18, AskFor { mico, t3324: active, t3512: Some(hour), ..AskFor::default() });
    net.command(ue, internet());
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.advance(Duration::from_secs(30));
    net.tapped();
    downlink_data(&mut net);
    net.settle(SECOND);
    assert!(!net.tapped().iter().any(|m| matches!(m, Message::Paging(_))), "its active time is over");
    // Within T3512 of everybody else it would be deregistered; it asked for twice as much.
    net.advance(Duration::from_secs(90 * 60));
    assert!(registered(&net, ue));
    no_violations(&net);
}

/// The UPF reports a buffered downlink packet.
fn downlink_data(net: &mut Sim) {
    let session = net.cta().contexts().next().and_then(|p| p.sessions.values().next());
    let seid = session.expect("a session").cp_seid;
    let mut m = whimbrel_pfcp::msg::SessionReportRequest::new(whimbrel_pfcp::ie::ReportType::DLDR);
    m.downlink_data_report = Some(whimbrel_pfcp::msg::DownlinkDataReport {
        pdr_ids: vec![whimbrel_pfcp::ie::PdrId(2)],
        downlink_data_service_information: Vec::new(),
        dl_data_packets_size: None,
        data_status: None,
    });
    net.inject_pfcp(&whimbrel_pfcp::Message::from(m).to_octets(Some(seid), 77));
}

#[test] // TS 24.501 §5.3.16; TS 23.501 §5.31.7.2, §5.4.5: an extended paging cycle reaches the gNB, and so does the ordinary one
fn paging_cycles_are_agreed() {
    let ask = AskFor { drx: Some(DrxParameters::T64), edrx: Some(0x35), ..AskFor::default() };
    let (mut net, ue) = asking(19, ask);
    net.command(ue, internet());
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.tapped();
    downlink_data(&mut net);
    net.settle(SECOND / 10);
    let paging = net.tapped().into_iter().find_map(|m| match m {
        Message::Paging(m) => Some(m),
        _ => None,
    });
    let paging = paging.expect("the UE is paged");
    assert_eq!(paging.paging_drx, Some(whimbrel_ngap::ie::PagingDrx::V64));
    let edrx = paging.nr_paging_edrx_information.expect("its extended cycle");
    assert_eq!(edrx.nr_paging_edrx_cycle, whimbrel_ngap::ie::NrPagingEdrxCycle::Hf8);
    assert_eq!(edrx.nr_paging_time_window, Some(whimbrel_ngap::ie::NrPagingTimeWindow::S4));
}

#[test] // TS 24.501 §5.3.16: what this network does not have is negotiated away
fn what_is_not_supported_is_negotiated_away() {
    let mico = Some(MicoIndication { all_plmn_registration_area: true, strictly_periodic: true });
    let ask = AskFor { mico, edrx: Some(0x04), ..AskFor::default() };
    let (mut net, ue) = with(20, &[1], |c| {
        (c.amf.access.mico, c.amf.access.edrx) = (false, false);
    });
    net.ue_mut(ue).faults_mut().ask_for = Some(ask.into());
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 24.501 §5.4.4.2: the offset of local time changes: a connected UE gets it at once, an idle one when it is connected next
fn a_change_of_local_time_reaches_every_ue() {
    let (mut net, ue) = with(21, &[1], |_| {});
    net.home().subscribe(subscribed(&[1]));
    let mut other = ue_config(2);
    other.profile = net.ue_ref(ue).config().profile.clone();
    let idle = net.add_ue(whimbrel_sim::GnbIndex(0), other);
    let updates = |net: &Sim, ue| {
        let update = |(_, e): &&(_, Event)| matches!(e, Event::ConfigurationUpdated { .. });
        net.ue_events(ue).iter().filter(update).count()
    };
    for ue in [ue, idle] {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
    }
    go_idle(&mut net, idle);
    let before = [updates(&net, ue), updates(&net, idle)];
    let mut summer = (**net.cta().config()).clone();
    summer.amf.local_time = LocalTime { quarters: 8, daylight_saving_hours: Some(1), since: net.now() };
    net.configure(summer.clone());
    net.settle(SECOND);
    assert_eq!([updates(&net, ue), updates(&net, idle)], [before[0] + 1, before[1]]);
    net.command(idle, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(updates(&net, idle), before[1] + 1);
    // Another change of the configuration is of no concern to them.
    summer.timers.connection_idle = SECOND * 7;
    net.configure(summer);
    net.settle(SECOND);
    assert_eq!([updates(&net, ue), updates(&net, idle)], before.map(|n| n + 1));
    no_violations(&net);
}
