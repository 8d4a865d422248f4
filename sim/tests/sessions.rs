//! PDU sessions: TS 24.501 §6.4.1 (establishment), §6.4.3 (release); TS 23.502 §4.2.3.2, §4.2.6 (user plane deactivated and set
//! up again).

use crate::common::*;
use whimbrel_control::smf::UpState;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Refusal, UpfId};
use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::{PduSessionType, SmCause};
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ran::UeId;
use whimbrel_ran::gnb;
use whimbrel_ran::ue::{Event, Reason, SessionInfo, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex};

fn internet(pdu_session_type: PduSessionType) -> UeCommand {
    session("internet", pdu_session_type)
}

fn session(dnn: &str, pdu_session_type: PduSessionType) -> UeCommand {
    let dnn = Some(dnn.parse().expect("a DNN"));
    UeCommand::EstablishSession(SessionRequest { dnn, s_nssai: None, pdu_session_type })
}

/// A registered UE.
fn on_air(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

fn sessions_up(net: &Sim, ue: UeIndex) -> Vec<SessionInfo> {
    let up = |(_, e): &(_, Event)| match e {
        Event::SessionUp { session, .. } => Some((**session).clone()),
        _ => None,
    };
    net.ue_events(ue).iter().filter_map(up).collect()
}

fn psi(n: u8) -> PduSessionId {
    PduSessionId::new(n).expect("1 to 15")
}

fn up_state(net: &Sim, n: u8) -> Option<UpState> {
    net.cta().contexts().find_map(|p| p.sessions.get(&psi(n)).map(|s| s.up))
}

#[test] // TS 23.502 §4.3.2.2.1, step 11, §4.4.1.2, §4.4.1.3; TS 24.501 §6.4.1.2, §6.4.1.3; TS 29.244 §6.3.2.2, §6.3.3.2
fn ipv4_session() {
    let (mut net, ue) = on_air(1);
    net.command(ue, internet(PduSessionType::Ipv4));
    net.settle(SECOND);
    let up = sessions_up(&net, ue);
    assert_eq!(up.len(), 1);
    assert!(up[0].ipv4.is_some_and(|a| a.octets()[..2] == [10, 45]));
    assert!(!up[0].dns_ipv4.is_empty(), "DNS comes with the session");
    assert_eq!(up[0].mtu, Some(1400));
    assert_eq!(up_state(&net, 1), Some(UpState::Active));
    assert!(net.ue_ref(ue).has_user_plane(psi(1)));
    no_violations(&net);
}

#[test] // TS 24.501 §6.4.1.3; TS 23.501 §5.6.9.2.1: both families, SSC mode 1
fn ipv4v6_session() {
    let (mut net, ue) = on_air(2);
    net.command(ue, internet(PduSessionType::Ipv4v6));
    net.settle(SECOND);
    let up = sessions_up(&net, ue);
    assert!(up[0].ipv4.is_some() && up[0].interface_id.is_some());
    assert!(!up[0].dns_ipv6.is_empty());
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.2.2.1; TS 24.501 §6.4.1.3
fn ipv6_session() {
    let (mut net, ue) = on_air(3);
    net.command(ue, internet(PduSessionType::Ipv6));
    net.settle(SECOND);
    let up = sessions_up(&net, ue);
    assert!(up[0].ipv4.is_none() && up[0].interface_id.is_some());
    no_violations(&net);
}

#[test] // TS 24.501 §6.4.1.3 #50: IPv4v6 is narrowed with cause #50 where the subscription has IPv4 alone
fn ipv4v6_is_narrowed_to_ipv4() {
    let (mut net, ue) = one_ue(4);
    let mut subscription = subscription();
    subscription.slices[0].dnns[0].session_types.ipv6 = false;
    net.home().subscribe(subscription);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, internet(PduSessionType::Ipv4v6));
    net.settle(SECOND);
    let up = sessions_up(&net, ue);
    assert_eq!(up[0].pdu_session_type, PduSessionType::Ipv4);
    assert_eq!(up[0].cause, Some(SmCause::PduSessionTypeIpv4OnlyAllowed));
}

#[test] // several sessions of one UE
fn two_sessions_of_one_ue() {
    let (mut net, ue) = on_air(5);
    net.command(ue, internet(PduSessionType::Ipv4));
    net.command(ue, session("ims", PduSessionType::Ipv4v6));
    net.settle(SECOND);
    let up = sessions_up(&net, ue);
    assert_eq!(up.len(), 2);
    assert!(up.iter().any(|s| s.ipv4.is_some_and(|a| a.octets()[1] == 46)));
    no_violations(&net);
}

#[test] // TS 24.501 §5.4.5.2.5 #91; TS 23.502 §4.3.2.2.1 step 7: a data network that is not subscribed
fn unknown_dnn_is_refused() {
    let (mut net, ue) = on_air(6);
    net.command(ue, session("nowhere", PduSessionType::Ipv4));
    net.settle(SECOND);
    assert!(matches!(first_refusal(&net), Some(Refusal::DnnNotSubscribed { .. })));
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Refused { .. })));
    assert!(registered(&net, ue), "the registration stands");
}

#[test] // TS 24.501 §6.4.1.4.1 #57: Ethernet is not had here
fn unsupported_session_type_is_refused() {
    let (mut net, ue) = on_air(7);
    net.command(ue, internet(PduSessionType::Ethernet));
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Sm(SmCause::PduSessionTypeIpv4v6OnlyAllowed)));
    assert_eq!(up_state(&net, 1), None);
}

#[test] // TS 24.501 §6.4.3.2, §6.4.3.3; TS 23.502 §4.3.4.2 step 1a
fn session_released_by_the_ue() {
    let (mut net, ue) = on_air(8);
    net.command(ue, internet(PduSessionType::Ipv4));
    net.settle(SECOND);
    net.command(ue, UeCommand::ReleaseSession(psi(1)));
    net.settle(SECOND);
    assert_eq!(up_state(&net, 1), None);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::SessionReleased { .. })));
    assert!(!net.gnb_ref(whimbrel_sim::GnbIndex(0)).config().name.is_empty());
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.6, step 1b, step 5, §4.2.3.2 step 4; TS 38.413 §8.3.2.2, §8.3.3.2; TS 24.501 §5.6.1.2; TS 23.501 §5.8.3.2: packets wait while the UE is idle, and flow again when it returns
fn idle_and_back() {
    let (mut net, ue) = on_air(9);
    net.command(ue, internet(PduSessionType::Ipv4));
    net.settle(SECOND);
    go_idle(&mut net, ue);
    assert_eq!(up_state(&net, 1), Some(UpState::Inactive));
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::ServiceAccepted { .. })));
    assert_eq!(up_state(&net, 1), Some(UpState::Active));
    assert!(net.ue_ref(ue).has_user_plane(psi(1)));
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.2.3.2, §4.4.1.4; TS 24.501 §5.5.2.2.2; TS 29.244 §6.3.4.2: all sessions end with the registration
fn deregistration_by_the_ue() {
    for switch_off in [false, true] {
        let (mut net, ue) = on_air(10);
        net.command(ue, internet(PduSessionType::Ipv4));
        net.settle(SECOND);
        net.command(ue, UeCommand::Deregister { switch_off });
        net.settle(SECOND);
        assert_eq!(net.cta().contexts().count(), 0);
        assert_eq!(net.cta().occupancy(), (0, 0));
        assert_eq!(net.upf_sessions(), 0, "the UPF has released it too");
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.2.2.3.3; TS 24.501 §5.5.2.3.1, §5.5.2.3.3
fn deregistration_by_the_operator() {
    let (mut net, ue) = on_air(11);
    net.command(ue, internet(PduSessionType::Ipv4));
    net.settle(SECOND);
    let context = net.cta().contexts().next().expect("it is registered").id;
    net.order(context, whimbrel_control::Command::Deregister);
    net.settle(SECOND);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Deregistered { .. })));
    assert_eq!(net.cta().contexts().count(), 0);
    assert_eq!(net.upf_sessions(), 0);
    no_violations(&net);
}

#[test] // TS 24.501 §5.5.1.3.4 uplink; TS 23.502 §4.2.2.2.2 step 1: a registration update keeps the sessions and wakes those with uplink data
fn sessions_survive_a_mobility_registration() {
    let (mut net, ue) = on_air(12);
    net.command(ue, internet(PduSessionType::Ipv4));
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(up_state(&net, 1).is_some());
    assert!(core_events(&net).all(|e| !matches!(e, CoreEvent::Refused { .. })));
    no_violations(&net);
}

#[test] // TS 23.501 §5.10.3; TS 33.501 §6.6.1: sent where the operator configured it, and only there
fn security_indication_as_configured() {
    use whimbrel_control::config::{UpProtection, UpSecurity};
    use whimbrel_ngap::ie::{ConfidentialityProtectionIndication, IntegrityProtectionIndication};
    for configured in [
        None,
        Some(UpSecurity { integrity: UpProtection::Preferred, confidentiality: UpProtection::Required }),
    ] {
        let mut config = whimbrel_sim::default_config();
        config.smf.data_networks.values_mut().for_each(|n| n.up_security = configured);
        let mut net = Sim::builder(20).config(config).build();
        let gnb = net.add_gnb(gnb_config(1));
        let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
        net.settle(SECOND / 10);
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        net.tap();
        net.command(ue, internet(PduSessionType::Ipv4));
        net.settle(SECOND);
        let transfer = net.tapped().into_iter().find_map(|m| match m {
            whimbrel_ngap::Message::PduSessionResourceSetupRequest(m) => m
                .pdu_session_resource_setup_list_su_req
                .into_iter()
                .next()
                .map(|i| i.pdu_session_resource_setup_request_transfer),
            _ => None,
        });
        let transfer =
            whimbrel_ngap::PduSessionResourceSetupRequestTransfer::decode(&transfer.expect("a setup"))
                .expect("its transfer");
        let reported = transfer.security_indication;
        assert_eq!(reported.is_some(), configured.is_some());
        if let Some(reported) = reported {
            assert_eq!(reported.integrity_protection_indication, IntegrityProtectionIndication::Preferred);
            assert_eq!(
                reported.confidentiality_protection_indication,
                ConfidentialityProtectionIndication::Required
            );
            assert!(
                reported.maximum_integrity_protected_data_rate_ul.is_some(),
                "mandatory with integrity (§9.3.1.27)"
            );
        }
    }
}

#[test] // TS 38.413 §8.3.1.2: sessions that begin at once share one INITIAL CONTEXT SETUP
fn sessions_that_begin_before_the_context_is_set_up() {
    let (mut net, ue) = one_ue(21);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.tap();
    net.command(ue, internet(PduSessionType::Ipv4));
    net.command(ue, session("ims", PduSessionType::Ipv4v6));
    net.settle(SECOND);
    let requests = net
        .tapped()
        .iter()
        .filter(|m| matches!(m, whimbrel_ngap::Message::InitialContextSetupRequest(_)))
        .count();
    assert_eq!((requests, sessions_up(&net, ue).len()), (1, 2));
    no_violations(&net);
}

#[test] // TS 23.501 §5.8.2.2.1: the address that the subscription says
fn a_static_address_is_given() {
    let (mut net, ue) = one_ue(40);
    let mut subscription = subscription();
    subscription.slices[0].dnns[0].static_ipv4 = Some([10, 45, 7, 7].into());
    net.home().subscribe(subscription);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, internet(PduSessionType::Ipv4));
    net.settle(SECOND);
    let up = sessions_up(&net, ue);
    assert_eq!(up.first().and_then(|s| s.ipv4), Some([10, 45, 7, 7].into()));
    no_violations(&net);
}

#[test] // TS 24.501 §9.11.3.2 against §9.11.4.2: a number that the operator set for 5GSM is not sent as 5GMM
fn an_operators_session_cause_stays_in_its_protocol() {
    use whimbrel_control::config::RefusalAnswer;
    use whimbrel_control::refusal::RefusalKind;
    let mut config = whimbrel_sim::default_config();
    config.refusals.insert(RefusalKind::Dnn, RefusalAnswer { cause: Some(27), back_off: None });
    let dnn = "nowhere".parse().expect("a DNN");
    let s_nssai = whimbrel_ids::SNssai::sst(1);
    let refusal = Refusal::DnnNotSubscribed { dnn, s_nssai, subscribed: Vec::new() };
    assert_eq!(refusal.sm_cause(&config), SmCause::MissingOrUnknownDnn);
    assert_eq!(refusal.mm_cause(&config), whimbrel_nas::ie::MmCause::DnnNotSupportedOrNotSubscribed);
}

#[test] // TS 24.501 §5.3.1.3: a UE with a follow-on request that sends nothing is released all the same
fn a_promise_to_follow_on_is_not_believed_for_ever() {
    let (mut net, ue) = on_air(41);
    net.settle(std::time::Duration::from_secs(60));
    assert!(!net.ue_ref(ue).is_connected());
    assert!(registered(&net, ue));
}

#[test] // TS 38.413 §8.7.1.4: a gNB that lost its power is back before SCTP finds out: its former association ends, and its UEs are idle
fn a_gnb_that_comes_back_ends_its_former_association() {
    let former = whimbrel_sim::GnbIndex(0);
    for elsewhere in [false, true] {
        let (mut net, ue) = on_air(42);
        net.command(ue, internet(PduSessionType::Ipv4));
        net.settle(SECOND);
        net.silence_gnb(former);
        let its = net.gnb_address(former);
        let address = if elsewhere { [192, 0, 2, 1].into() } else { its };
        let back = net.add_gnb_at(gnb_config(1), vec![address]);
        net.settle(SECOND);
        // From another address it gets its identity when the former association was silent for 3 s.
        assert_eq!(net.gnb_ref(back).is_up(), !elsewhere);
        if elsewhere {
            assert_eq!(up_state(&net, 1), Some(UpState::Active));
            net.advance(SECOND * 3);
        }
        assert!(net.gnb_ref(back).is_up());
        assert_eq!(net.cta().ran_nodes().iter().filter(|(_, n)| n.gnb.is_some()).count(), 1);
        assert_eq!(up_state(&net, 1), Some(UpState::Inactive));
    }
}

#[test] // TS 38.413 §8.7.1.4: two gNBs of one identity, both alive, take it from each other: nothing of either outlives its association
fn gnbs_of_one_identity_leave_nothing_behind() {
    let (mut net, ue) = on_air(43);
    let address = net.gnb_address(whimbrel_sim::GnbIndex(0)); // without a list, no other address gets the identity of a live gNB
    net.add_gnb_at(gnb_config(1), vec![address]);
    net.settle(SECOND);
    net.restart_gnb(whimbrel_sim::GnbIndex(0));
    net.settle(SECOND);
    net.command(ue, UeCommand::Register);
    net.settle(std::time::Duration::from_secs(60));
    assert_eq!(net.cta().ran_nodes().iter().filter(|(_, n)| n.gnb.is_some()).count(), 1);
    net.restart_gnb(whimbrel_sim::GnbIndex(1));
    net.settle(SECOND);
    assert_eq!(net.cta().ran_nodes().iter().count(), 2, "one for each association that stands");
    assert_eq!(net.cta().ran_nodes().iter().filter(|(_, n)| n.gnb.is_some()).count(), 1);
}

#[test] // TS 23.502 §4.3.4.2, §4.2.3.2: the network ends sessions while their UE wants them: whatever comes first, UE, gNB, AMF, SMF and UPF agree
fn sessions_that_end_while_they_are_requested() {
    for connected in [false, true] {
        for after in -40..100_i32 {
            let (mut net, ue) = on_air(31);
            for _ in 0..2 {
                net.command(ue, internet(PduSessionType::Ipv4));
                net.settle(SECOND);
            }
            match connected {
                true => net.gnb_input(GnbIndex(0), gnb::Input::LetSessionGo(UeId(0), psi(2))),
                false => net.release(ue, CauseRadioNetwork::UserInactivity.into()),
            }
            net.settle(SECOND);
            assert_eq!(up_state(&net, 2), Some(UpState::Inactive));
            let expected = |net: &mut Sim| net.command(ue, UeCommand::ServiceRequest);
            let ended = |net: &mut Sim| {
                let context = net.cta().contexts().next().expect("a UE").id;
                net.order(context, CoreCommand::LeaveUpf(UpfId(0)));
            };
            let between = SECOND / 4000 * after.unsigned_abs();
            if after < 0 {
                ended(&mut net);
                net.advance(between);
                expected(&mut net);
            } else {
                expected(&mut net);
                net.advance(between);
                ended(&mut net);
            }
            net.settle(SECOND / 5); // before a UE without sessions is released
            assert_eq!(net.agree(), Ok(()), "connected {connected}, after {after} quarters of a millisecond");
            no_violations(&net);
        }
    }
}
