//! What concerns a gNB rather than a UE: TS 38.413 §8.7 (interface management), §10 (wrong names, wrong octets).

use std::time::Duration;

use crate::common::by_hand::to_switch;
use crate::common::*;
use whimbrel_control::RanEvent;
use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, NrCellId, PlmnId, RanUeNgapId, SNssai, Tac, Tai};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    Cause, CauseMisc, CauseRadioNetwork, NrCgi, ResetType, RrcEstablishmentCause,
    UeAssociatedLogicalNgConnectionItem, UserLocationInformation, UserLocationInformationNr,
};
use whimbrel_ngap::msg::{
    ErrorIndication, InitialUeMessage, NasNonDeliveryIndication, NgReset, PathSwitchRequest,
    UeContextReleaseComplete, UplinkNasTransport,
};
use whimbrel_ran::gnb::{self, Event as GnbEvent, GnbConfig};
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, UeIndex, ue_config};

fn octets(message: impl Into<Message>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.into().encode(&mut octets);
    octets
}

/// Why a gNB of this configuration may not come up: its cause, and the event for the operator.
fn refused(config: GnbConfig) -> (Cause, String) {
    let mut net = network(1);
    net.add_gnb(config);
    net.settle(SECOND);
    let cause = net.events.gnbs.iter().find_map(|(_, e)| match e {
        GnbEvent::SetupFailed(m) => Some(m.cause.clone()),
        _ => None,
    });
    let why = net.events.ran.iter().find_map(|e| match e {
        RanEvent::SetupRefused { why, .. } => Some(format!("{why:?}")),
        _ => None,
    });
    (cause.expect("NG SETUP FAILURE"), why.expect("an event for the operator"))
}

#[test] // TS 38.413 §8.7.1.3: none of its networks is served
fn setup_of_another_network_is_refused() {
    let mut config = gnb_config(1);
    config.supported_tas[0].plmns[0].0 = "001/01".parse().expect("a PLMN");
    let (cause, why) = refused(config);
    assert_eq!(cause, CauseMisc::UnknownPlmnOrSNpn.into());
    assert!(why.contains("001/01") && why.contains(&PlmnId::TEST.to_string()), "{why}");
}

#[test] // TS 38.413 §8.7.1.3: none of its tracking areas is served
fn setup_of_another_tracking_area_is_refused() {
    let mut config = gnb_config(1);
    config.supported_tas[0].tac = Tac::new(77).expect("24 bits");
    let (_, why) = refused(config);
    assert!(why.contains("Tac") && why.contains("77"), "{why}");
}

#[test] // TS 38.413 §8.7.1.3: no slice in common
fn setup_without_a_common_slice_is_refused() {
    let mut config = gnb_config(1);
    config.supported_tas[0].plmns[0].1 = vec![SNssai::sst(200)];
    let (cause, why) = refused(config);
    assert_eq!(cause, CauseRadioNetwork::SliceNotSupported.into());
    assert!(why.contains("200"), "{why}");
}

#[test] // TS 38.413 §8.7.2.2, §8.7.2.3: what is served is taken, what is not is refused and changes nothing
fn ran_configuration_update() {
    let (mut net, ue) = one_ue(2);
    let mut renamed = gnb_config(1);
    renamed.name = "elsewhere".to_owned();
    net.gnb_input(GnbIndex(0), gnb::Input::Reconfigure(renamed));
    net.settle(SECOND);
    assert!(net.events.gnbs.iter().any(|(_, e)| matches!(e, GnbEvent::Reconfigured(Ok(())))));
    let name = net.cta().ran_nodes().iter().next().and_then(|(_, n)| n.name.clone());
    assert_eq!(name.as_deref(), Some("elsewhere"));
    let mut foreign = gnb_config(1);
    foreign.supported_tas[0].tac = Tac::new(9).expect("24 bits");
    net.gnb_input(GnbIndex(0), gnb::Input::Reconfigure(foreign));
    net.settle(SECOND);
    assert!(net.events.gnbs.iter().any(|(_, e)| matches!(e, GnbEvent::Reconfigured(Err(_)))));
    net.gnb_input(GnbIndex(0), gnb::Input::Reconfigure(gnb_config(1)));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue), "the gNB serves on");
}

#[test] // TS 38.413 §8.7.1.4 identity: two gNBs under one Global RAN GnbNode ID displace each other once, not for ever
fn two_gnbs_of_one_identity_displace_each_other_once() {
    let mut net = network(3);
    let first = net.add_gnb(gnb_config(1));
    net.settle(SECOND);
    let there = net.gnb_address(first);
    let second = net.add_gnb_at(gnb_config(1), vec![there]);
    net.settle(SECOND);
    let ue = net.add_ue(second, ue_config(0));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue), "the second one is served at once: it might be the first, restarted");
    for minute in 0..5 {
        // The first one is aborted when it is not set up, and comes back; refused, it tries again.
        net.advance(Duration::from_secs(31));
        net.restart_gnb(first);
        net.advance(Duration::from_secs(29));
        assert!(net.gnb_ref(second).is_up() && !net.gnb_ref(first).is_up(), "minute {minute}");
    }
    let count = |of: fn(&RanEvent) -> bool| net.events.ran.iter().filter(|e| of(e)).count();
    assert_eq!(count(|e| matches!(e, RanEvent::SameIdentity { .. })), 1);
    assert_eq!(count(|e| matches!(e, RanEvent::IdentityContested { .. })), 1);
    assert!(count(|e| matches!(e, RanEvent::SetupRefused { .. })) >= 5);
    assert!(registered(&net, ue));
    net.disconnect(second);
    net.restart_gnb(first);
    net.settle(SECOND);
    assert!(net.gnb_ref(first).is_up(), "the identity is free");
}

#[test] // TS 38.413 §8.7.1.1: a gNB that lost its power sets up over another association
fn the_former_association_of_a_gnb_ends_before_the_new_one_is_up() {
    let mut net = network(41);
    for _ in 0..2 {
        net.add_gnb_at(gnb_config(1), vec![[192, 0, 2, 1].into()]);
        net.settle(SECOND);
    }
    let order: Vec<&str> = net
        .events
        .ran
        .iter()
        .filter_map(|e| match e {
            RanEvent::Up { .. } => Some("up"),
            RanEvent::SameIdentity { .. } => Some("same identity"),
            RanEvent::Down { .. } => Some("down"),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["up", "same identity", "down", "up"]);
}

/// Two gNBs with two registered UEs each.
fn four_ues(seed: u64) -> Sim {
    let mut net = network(seed);
    let gnbs = [net.add_gnb(gnb_config(1)), net.add_gnb(gnb_config(2))];
    net.settle(SECOND / 10);
    for n in 0..4 {
        let ue = net.add_ue(gnbs[n as usize / 2], ue_config(n));
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
    }
    for n in 0..4 {
        assert!(registered(&net, UeIndex(n)) && net.ue_ref(UeIndex(n)).is_connected());
    }
    net
}

fn connection(net: &Sim, ue: UeIndex) -> Option<(AmfUeNgapId, RanUeNgapId)> {
    let supi = net.ue_ref(ue).config().supi;
    let context = net.cta().contexts().find(|p| p.amf.supi == Some(supi))?;
    context.amf.connection.as_ref().map(|c| (c.amf_ue_ngap_id, c.ran_ue_ngap_id))
}

#[test] // TS 38.413 §8.7.4.2.2: all of its UEs lose their connections, none its registration, and no other gNB's is touched
fn ng_reset_of_the_whole_interface() {
    let mut net = four_ues(3);
    net.gnb_input(GnbIndex(0), gnb::Input::Reset);
    net.settle(SECOND);
    assert!(net.events.gnbs.iter().any(|(_, e)| matches!(e, GnbEvent::ResetAcknowledged)));
    let connected: Vec<bool> = (0..4).map(|n| connection(&net, UeIndex(n)).is_some()).collect();
    assert_eq!(connected, [false, false, true, true]);
    assert_eq!(net.cta().contexts().filter(|p| p.amf.registered).count(), 4);
}

#[test] // TS 38.413 §8.7.4.2.2, §8.7.4.4: only what is named, by either identity; the list comes back whole, with what is unknown
fn ng_reset_of_some_connections() {
    let mut net = four_ues(4);
    let (amf_id, _) = connection(&net, UeIndex(0)).expect("connected");
    let (others, _) = connection(&net, UeIndex(2)).expect("connected");
    let item = |amf: Option<AmfUeNgapId>, ran: Option<RanUeNgapId>| {
        let mut item = UeAssociatedLogicalNgConnectionItem::new();
        (item.amf_ue_ngap_id, item.ran_ue_ngap_id) = (amf, ran);
        item
    };
    let list =
        vec![item(Some(amf_id), None), item(Some(others), None), item(None, Some(RanUeNgapId(4_000_000)))];
    let reset = NgReset::new(CauseMisc::OmIntervention.into(), ResetType::PartOfNgInterface(list.clone()));
    net.tap();
    net.inject(GnbIndex(0), &octets(reset));
    net.settle(SECOND);
    let acknowledged = net.tapped().into_iter().find_map(|m| match m {
        Message::NgResetAcknowledge(m) => Some(m.ue_associated_logical_ng_connection_list),
        _ => None,
    });
    assert_eq!(acknowledged, Some(list));
    let connected: Vec<bool> = (0..4).map(|n| connection(&net, UeIndex(n)).is_some()).collect();
    assert_eq!(connected, [false, true, true, true], "the UE of the other gNB is not this gNB's to reset");
}

#[test] // TS 38.413 §8.6.1.3, §9.3.3.2: a first message under a name that a UE's connection has: the gNB has forgotten that one, and no other is touched
fn a_first_message_under_the_name_of_a_connection() {
    let mut net = four_ues(14);
    let (_, ran_id) = connection(&net, UeIndex(0)).expect("connected");
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(0x10).expect("36 bits"));
    let tai = Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits") };
    let place = UserLocationInformation::UserLocationInformationNr(UserLocationInformationNr::new(cell, tai));
    let m = InitialUeMessage::new(ran_id, vec![0x7e, 0, 0x55], place, RrcEstablishmentCause::MoSignalling);
    net.inject(GnbIndex(0), &octets(m));
    let connected: Vec<bool> = (0..4).map(|n| connection(&net, UeIndex(n)).is_some()).collect();
    assert_eq!(connected, [false, true, true, true]);
    assert_eq!(net.cta().contexts().filter(|p| p.amf.registered).count(), 4);
}

#[test] // TS 38.413 §8.7.4.4: resets cross: each is done and acknowledged, and no UE is left connected
fn resets_that_cross() {
    let mut net = four_ues(15);
    let gnb = GlobalGnbId::new(PlmnId::TEST, 1, 28).expect("28 bits");
    net.reset_gnb(gnb);
    net.gnb_input(GnbIndex(0), gnb::Input::Reset);
    net.settle(SECOND);
    let connected: Vec<bool> = (0..4).map(|n| connection(&net, UeIndex(n)).is_some()).collect();
    assert_eq!(connected, [false, false, true, true]);
    assert!(net.events.gnbs.iter().any(|(_, e)| matches!(e, GnbEvent::ResetAcknowledged)));
    assert!(net.events.ran.iter().any(|e| matches!(e, RanEvent::ResetAcknowledged { .. })));
}

#[test] // TS 38.413 §8.7.4.2.2: named by the gNB's own identity alone
fn ng_reset_of_a_connection_by_its_ran_ue_ngap_id() {
    let mut net = four_ues(11);
    let (_, ran_id) = connection(&net, UeIndex(1)).expect("connected");
    let mut item = UeAssociatedLogicalNgConnectionItem::new();
    item.ran_ue_ngap_id = Some(ran_id);
    let reset = NgReset::new(CauseMisc::OmIntervention.into(), ResetType::PartOfNgInterface(vec![item]));
    net.inject(GnbIndex(0), &octets(reset));
    let connected: Vec<bool> = (0..4).map(|n| connection(&net, UeIndex(n)).is_some()).collect();
    assert_eq!(connected, [true, false, true, true]);
}

#[test] // TS 38.413 §10.6: one gNB's message with another's identities reaches no UE
fn another_gnbs_identities_reach_no_ue() {
    let mut net = four_ues(5);
    let before = net.cta().contexts().map(|p| format!("{p:?}")).collect::<Vec<_>>();
    let (amf, ran) = connection(&net, UeIndex(0)).expect("connected");
    net.tap();
    let detach = UplinkNasTransport::new(amf, ran, vec![0x7e, 0x00, 0x45, 0x09, 0x00, 0x01, 0x00]);
    net.inject(GnbIndex(1), &octets(detach));
    let answers = net.tapped();
    let [Message::ErrorIndication(m)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(m.cause, Some(CauseRadioNetwork::UnknownLocalUeNgapId.into()));
    // An end, or an error, gets no answer.
    let mut error = ErrorIndication::new();
    (error.amf_ue_ngap_id, error.ran_ue_ngap_id) = (Some(amf), Some(ran));
    for m in [Message::from(UeContextReleaseComplete::new(amf, ran)), error.into()] {
        net.inject(GnbIndex(1), &octets(m));
    }
    assert_eq!(net.tapped().len(), 0);
    let counted =
        |e: &&RanEvent| matches!(e, RanEvent::Unserved { what, .. } if what.contains("never there"));
    assert_eq!(net.events.ran.iter().filter(counted).count(), 2);
    let after = net.cta().contexts().map(|p| format!("{p:?}")).collect::<Vec<_>>();
    assert_eq!(before, after, "not even the clock of the UE has moved");
    let reported =
        |e: &&RanEvent| matches!(e, RanEvent::Refused { what, .. } if what.contains("never there"));
    assert_eq!(net.events.ran.iter().filter(reported).count(), 1);
}

#[test] // TS 38.413 §10.6: also what the UE's own machine finds; a connection that was is no reason to take the UE to where the gNB is
fn errors_that_a_ue_reports_are_counted_and_logged_within_bounds() {
    let mut net = four_ues(8);
    let (former, _) = connection(&net, UeIndex(0)).expect("connected");
    go_idle(&mut net, UeIndex(0));
    net.command(UeIndex(0), UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_ne!(connection(&net, UeIndex(0)).expect("connected").0, former);
    net.tap();
    for n in 0..150 {
        net.inject(GnbIndex(1), &octets(PathSwitchRequest::new(RanUeNgapId(n), former, vec![to_switch(1)])));
    }
    net.settle(SECOND / 10);
    let reported = net.tapped();
    let errors = reported.iter().filter(|m| matches!(m, Message::ErrorIndication(_))).count();
    assert!((50..=110).contains(&errors), "{errors} of 150");
    let counted =
        |e: &&RanEvent| matches!(e, RanEvent::Refused { what, .. } if what.contains("a UE's connection"));
    assert_eq!(net.events.ran.iter().filter(counted).count(), errors);
    let bitten = |e: &&RanEvent| matches!(e, RanEvent::Limited { limit: "error_indications", .. });
    assert!(net.events.ran.iter().any(|e| bitten(&e)));
}

#[test] // TS 38.413 §10.6: an unknown UE NGAP ID
fn an_unknown_ue_ngap_id_gets_error_indication() {
    let (mut net, _) = one_ue(6);
    net.tap();
    let unknown = AmfUeNgapId::new(123_456).expect("40 bits");
    net.inject(GnbIndex(0), &octets(UplinkNasTransport::new(unknown, RanUeNgapId(9), vec![0x7e, 0, 0x43])));
    let answers = net.tapped();
    let [Message::ErrorIndication(m)] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(m.cause, Some(CauseRadioNetwork::UnknownLocalUeNgapId.into()));
    assert_eq!((m.amf_ue_ngap_id, m.ran_ue_ngap_id), (Some(unknown), Some(RanUeNgapId(9))));
}

#[test] // TS 38.413 §8.3.3, §10.6: NAS that crosses the command that ends its connection is no error; much later it is
fn what_crosses_a_release_is_no_error() {
    let mut net = four_ues(7);
    let (amf, ran) = connection(&net, UeIndex(1)).expect("connected");
    net.command(UeIndex(1), UeCommand::Deregister { switch_off: false });
    net.settle(SECOND / 2);
    assert_eq!(connection(&net, UeIndex(1)), None);
    net.tap();
    let late = octets(UplinkNasTransport::new(amf, ran, vec![0x7e, 0, 0x43]));
    net.inject(GnbIndex(0), &late);
    assert!(net.tapped().is_empty());
    net.advance(SECOND * 3);
    net.inject(GnbIndex(0), &late);
    let answers = net.tapped();
    assert!(matches!(answers.as_slice(), [Message::ErrorIndication(_)]), "{answers:?}");
}

#[test] // TS 38.413 §10.6: the gNB does not have the connection: it is released here too, and the UE stays registered
fn error_indication_of_an_unknown_connection_ends_it() {
    let mut net = four_ues(7);
    let (amf, ran) = connection(&net, UeIndex(1)).expect("connected");
    let mut m = ErrorIndication::new();
    (m.amf_ue_ngap_id, m.ran_ue_ngap_id) = (Some(amf), Some(ran));
    m.cause = Some(CauseRadioNetwork::UnknownLocalUeNgapId.into());
    net.inject(GnbIndex(0), &octets(m));
    assert_eq!(connection(&net, UeIndex(1)), None);
    assert_eq!(net.cta().contexts().filter(|p| p.amf.registered).count(), 4);
}

#[test] // TS 38.413 §8.6.4.2: what is being repeated is sent again at once, and once only
fn nas_non_delivery_hastens_a_repetition() {
    let (mut net, ue) = one_ue(8);
    net.ue_mut(ue).faults_mut().ignore.push((whimbrel_nas::mm::MessageType::AuthenticationRequest, 99));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND / 10);
    let (amf, ran) = net
        .cta()
        .contexts()
        .next()
        .and_then(|p| p.amf.connection.as_ref())
        .map(|c| (c.amf_ue_ngap_id, c.ran_ue_ngap_id))
        .expect("it asks");
    net.tap();
    let cause = CauseRadioNetwork::RadioConnectionWithUeLost;
    let undelivered = NasNonDeliveryIndication::new(amf, ran, cause.into());
    for _ in 0..3 {
        net.inject(GnbIndex(0), &octets(undelivered.clone()));
    }
    let again = net.tapped().iter().filter(|m| matches!(m, Message::DownlinkNasTransport(_))).count();
    assert_eq!(again, 1);
}

#[test] // TS 38.413 §8.3.3: nothing is sent on the connection after UE CONTEXT RELEASE COMMAND
fn what_crosses_the_release_gets_no_answer() {
    let (mut net, ue) = one_ue(12);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    for stray in [vec![0x7e, 0, 0x55], vec![0x7e, 0, 0x5e], vec![0x7e, 0, 0x4c, 0x10, 0, 1, 0]] {
        net.tap();
        net.release(ue, CauseRadioNetwork::UserInactivity.into());
        net.command(ue, UeCommand::Say(stray));
        net.settle(SECOND);
        let messages = net.tapped();
        let mut messages = messages.iter().skip_while(|m| !matches!(m, Message::UeContextReleaseCommand(_)));
        assert!(messages.next().is_some() && messages.next().is_none());
        assert!(!net.ue_ref(ue).is_connected() && registered(&net, ue));
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(net.ue_ref(ue).is_connected());
    }
    no_violations(&net);
}
