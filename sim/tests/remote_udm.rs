//! Another vendor's UDM: its answers come later, or not (TS 23.502 §4.2.2.2.2 steps 9 and 14, §4.3.2.2.1 step 4; TS 29.503).

use crate::common::*;
use whimbrel_control::config::UdmFunction;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::udm::{AuthMethod, ServiceFault, UdmRequest};
use whimbrel_control::{Event as CoreEvent, NfType, Refusal};
use whimbrel_nas::ie::MmCause;
use whimbrel_ran::ue::{Reason, SessionRequest, UeCommand};
use whimbrel_sim::{CpfLoss, CtaLoss, Sim, SimBuilder, UdmState, UeIndex, default_config, ue_config};

fn builder(seed: u64) -> SimBuilder {
    let mut config = default_config();
    config.udm = UdmFunction::Remote;
    Sim::builder(seed).config(config)
}

/// A gNB and a UE. No subscriber of the core's own store exists.
fn populate(mut net: Sim) -> (Sim, UeIndex) {
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    let supi = net.ue_ref(ue).config().supi;
    net.home().unknown.push(supi);
    net.settle(SECOND / 10);
    (net, ue)
}

/// The operations that the UDM has executed, by name.
fn operations(net: &mut Sim) -> Vec<&'static str> {
    let name = |request: &UdmRequest| match request {
        UdmRequest::GenerateAuthData { .. } => "generate-auth-data",
        UdmRequest::ConfirmAuthentication { success: true, .. } => "authenticated",
        UdmRequest::ConfirmAuthentication { success: false, .. } => "not authenticated",
        UdmRequest::Register(_) => "register",
        UdmRequest::Subscription(_) => "subscription",
        UdmRequest::Deregister(_) => "deregister",
        UdmRequest::RegisterSession { .. } => "register session",
        UdmRequest::DeregisterSession(..) => "deregister session",
        UdmRequest::EnterSlices(_) | UdmRequest::RegisterGuest { .. } => "not for it",
    };
    net.remote_udm().requests.iter().map(name).collect()
}

/// A registration, a session, and the end.
fn life(net: &mut Sim, ue: UeIndex, of: &dyn Fn() -> String) {
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 8);
    assert!(registered(net, ue), "{}: {:?}", of(), net.ue_events(ue));
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND * 8);
    assert_eq!(net.ue_ref(ue).sessions().count(), 1, "{}: {:?}", of(), net.ue_events(ue));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 8);
    assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0), "{}", of());
}

#[test] // A fresh USIM, to which the time is too far ahead, resynchronises first (TS 33.102 §6.3.5).
fn a_remote_udm_has_each_operation_in_the_order_of_the_call_flow() {
    let (mut net, ue) = populate(builder(1).recorded().build());
    life(&mut net, ue, &|| "no fault".into());
    let expected = [
        "generate-auth-data",
        "generate-auth-data",
        "authenticated",
        "register",
        "register session",
        "deregister session",
        "deregister",
    ];
    let mut executed = operations(&mut net);
    // Nothing waits for the last two, which may pass each other on the way.
    executed[5..].sort_unstable_by_key(|name| std::cmp::Reverse(*name));
    assert_eq!(executed, expected);
    no_violations(&net);
}

#[test] // TS 33.501 §6.1.4: the home network learns of each outcome, with its method
fn a_remote_udm_learns_that_an_authentication_failed() {
    let (mut net, ue) = populate(builder(2).build());
    let supi = net.ue_ref(ue).config().supi;
    net.remote_udm().subscribers.eap_aka_prime.push(supi);
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 8);
    assert_eq!(first_refusal(&net), Some(Refusal::WrongResponse));
    let confirmed = net.remote_udm().requests.iter().find_map(|r| match r {
        UdmRequest::ConfirmAuthentication { supi, method, success } => Some((*supi, *method, *success)),
        _ => None,
    });
    assert_eq!(confirmed, Some((supi, AuthMethod::EapAkaPrime, false)));
}

#[test] // TS 29.524 §4.3.2; TS 24.501 Annex A
fn what_a_remote_udm_reports_reaches_the_ue_as_its_cause() {
    let faults = [
        ServiceFault::NoInstance,
        ServiceFault::NotConnected,
        ServiceFault::NotTrusted,
        ServiceFault::Status(503),
        ServiceFault::InvalidAnswer,
        ServiceFault::Busy,
    ];
    for (seed, fault) in (10..).zip(faults) {
        let (mut net, ue) = populate(builder(seed).build());
        net.remote_udm().state = UdmState::Failing(fault);
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert_eq!(first_refusal(&net), Some(Refusal::NetworkFunction(NfType::Udm, fault)));
        assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)), "{:?}", net.ue_events(ue));
        assert_eq!(net.cta().occupancy(), (0, 0));
    }
}

#[test]
fn a_lost_udm_costs_new_authentications_only() {
    let (mut net, ue) = populate(builder(4).build());
    let other = net.add_ue(net.gnb_of(ue), ue_config(2));
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    net.remote_udm().state = UdmState::Silent;
    net.command(other, UeCommand::Register);
    net.settle(SECOND * 12);
    let timed_out = Refusal::NetworkFunction(NfType::Udm, ServiceFault::TimedOut);
    assert_eq!(first_refusal(&net), Some(timed_out));
    assert!(refused_with(&net, other, Reason::Mm(MmCause::Congestion)), "{:?}", net.ue_events(other));
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert!(net.ue_ref(ue).is_connected() && registered(&net, ue), "{:?}", net.ue_events(ue));
    net.remote_udm().state = UdmState::Answering;
    net.settle(SECOND * 200);
    net.command(other, UeCommand::Register);
    net.settle(SECOND * 8);
    assert!(registered(&net, other), "{:?}", net.ue_events(other));
}

#[test]
fn a_request_whose_answer_was_lost_is_repeated_and_harmless() {
    let (mut net, ue) = populate(builder(5).build());
    net.remote_udm().state = UdmState::AnswersLost;
    net.command(ue, UeCommand::Register);
    net.advance(SECOND);
    net.remote_udm().state = UdmState::Answering;
    net.settle(SECOND * 8);
    assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
    let asked = operations(&mut net).iter().filter(|name| **name == "generate-auth-data").count();
    assert_eq!(asked, 3, "one answer was lost, and the USIM resynchronises");
}

#[test] // TS 29.503 §5.3.2.3.2: the UE is at another AMF, whose registration must not be removed
fn a_ue_that_the_udm_deregisters_leaves_without_a_deregistration_at_the_udm() {
    let (mut net, ue) = populate(builder(6).build());
    let supi = net.ue_ref(ue).config().supi;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.deregister_by_udm(supi);
    net.settle(SECOND);
    assert_eq!(net.cta().occupancy(), (0, 0));
    let superseded =
        |e: &CoreEvent| matches!(e, CoreEvent::Deregistered { why: DeregistrationReason::Superseded, .. });
    assert!(core_events(&net).any(superseded));
    assert!(!operations(&mut net).contains(&"deregister"));
    // An answer that crosses it, or a second notification, has no effect.
    net.deregister_by_udm(supi);
    net.settle(SECOND);
}

#[test] // TS 23.502 §4.5.1: Nudm_SDM_Notification, then Nudm_SDM_Get
fn a_changed_subscription_is_read_from_the_remote_udm() {
    let (mut net, ue) = populate(builder(7).build());
    let supi = net.ue_ref(ue).config().supi;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let mut changed = subscription();
    changed.ue_ambr.ul_kbps = 7_000;
    net.remote_udm().subscribers.subscribe_one(supi, changed);
    net.subscriber_changed(supi);
    net.settle(SECOND);
    let ambr = net.contexts().find_map(|p| p.amf.subscription.as_ref().map(|s| s.ue_ambr.ul_kbps));
    assert_eq!(ambr, Some(7_000));
    assert_eq!(operations(&mut net).last(), Some(&"subscription"));
}

#[test] // Neutrino §4.2.5 with a request to the UDM under way
fn a_cpf_lost_at_any_message_repeats_nothing_that_harms() {
    let begin = || populate(builder(8).cpfs(3, 1).build());
    let taken = {
        let (mut net, ue) = begin();
        life(&mut net, ue, &|| "no loss".into());
        net.links_taken()
    };
    let mut taken_over = 0;
    for how in CpfLoss::ALL {
        for message in 1..=taken {
            let (mut net, ue) = begin();
            net.lose_cpf_at(message, how);
            life(&mut net, ue, &|| format!("{how:?} at message {message} of {taken}"));
            no_violations(&net);
            taken_over += net.cta().replication_counters().taken_over;
            assert_eq!(net.cta().replication_counters().diverged, 0);
        }
    }
    assert!(taken_over > taken / 2, "{taken_over} takeovers in {taken} messages");
}

#[test]
fn a_cta_lost_at_any_input_repeats_the_request() {
    let begin = || populate(builder(9).cpfs(2, 1).cta_replica().build());
    let (before, taken) = {
        let (mut net, ue) = begin();
        let before = net.inputs_taken();
        life(&mut net, ue, &|| "no loss".into());
        (before, net.inputs_taken())
    };
    for how in CtaLoss::ALL {
        for input in before + 1..=taken {
            let (mut net, ue) = begin();
            net.lose_cta_at(input, how);
            life(&mut net, ue, &|| format!("{how:?} at input {input} of {before} to {taken}"));
        }
    }
}
