//! Primary authentication by either method, with either algorithm: TS 24.501 §5.4.1, TS 33.501 §6.1.3.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::Refusal;
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ran::ue::{Reason, UeCommand};
use whimbrel_security::{K, Milenage, Opc, Usim, UsimSqn};
use whimbrel_sim::{Faults, Sim, UeIndex, tuak_of};

/// A network with one UE that has EAP-AKA'.
fn eap(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    let supi = net.ue_ref(ue).config().supi;
    net.home().eap_aka_prime.push(supi);
    (net, ue)
}

#[test] // TS 24.501 §5.4.1.2.2.4: EAP-AKA', EAP-Success in SECURITY MODE COMMAND
fn eap_aka_prime() {
    let (mut net, ue) = eap(1);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 24.501 §5.4.1.2.2.2: T3560
fn an_eap_request_lost_once() {
    let (mut net, ue) = eap(2);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::AuthenticationRequest, 1));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(12));
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 24.501 §5.4.1.2.2.5, RFC 4187 §6.3.1: AT_RES or AT_MAC is wrong: a notification, then EAP-Failure
fn a_wrong_eap_response_is_notified_and_rejected() {
    let (mut net, ue) = eap(3);
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(first_refusal(&net), Some(Refusal::WrongResponse));
    assert!(refused_with(&net, ue, Reason::AuthenticationRejected), "{:?}", net.ue_events(ue));
    assert_eq!(net.cta().occupancy(), (0, 0), "nothing is left of it");
}

#[test] // TS 24.501 §5.4.1.2.2.10, RFC 4187 §9.5: the UE finds AUTN wrong: EAP-Failure in AUTHENTICATION REJECT
fn a_wrong_key_under_eap() {
    let (mut net, ue) = eap(4);
    let other = Milenage::new(&K::new([0x5a; 16]), Opc::new([0x5a; 16]));
    net.ue_mut(ue).insert(Usim::new(other, UsimSqn::default()));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::AuthenticationRejected));
    assert_eq!(first_refusal(&net), Some(Refusal::MacFailure));
}

#[test] // TS 24.501 §5.4.1.2.2.6, RFC 4187 §9.6: EAP-Response/AKA'-Synchronization-Failure
fn sqn_out_of_range_is_repaired_under_eap() {
    let (mut net, ue) = eap(5); // a fresh USIM, to which the time is too far ahead
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(net.tapped().iter().filter(|m| asks(m)).count(), 2);
    assert!(registered(&net, ue));
    no_violations(&net);
}

#[test] // TS 24.501 §5.4.1.3.7 f, §5.4.1.2.2.6: it hears the request twice, and fails twice before it hears the next one
fn a_failure_to_synchronise_that_comes_twice() {
    for repeated_per_mille in [0, 500, 1000] {
        for (mut net, ue) in [one_ue(9), eap(9)] {
            net.set_faults(Faults { repeated_per_mille, ..Faults::default() });
            net.tap();
            net.command(ue, UeCommand::Register);
            net.settle(SECOND * 5);
            let requests = net.tapped().iter().filter(|m| asks(m)).count();
            assert_eq!(requests, 2, "a challenge that fails, and one that does not");
            assert_eq!(first_refusal(&net), None, "{repeated_per_mille}");
            assert!(registered(&net, ue));
        }
    }
}

/// AUTHENTICATION REQUEST in DOWNLINK NAS TRANSPORT.
fn asks(m: &Message) -> bool {
    const AUTHENTICATION_REQUEST: u8 = 0x56;
    matches!(m, Message::DownlinkNasTransport(m) if m.nas_pdu.get(2) == Some(&AUTHENTICATION_REQUEST))
}

#[test] // TS 35.231: a USIM with TUAK, under both methods
fn tuak() {
    for method in 0..2 {
        let (mut net, ue) = if method == 0 { one_ue(6) } else { eap(6) };
        let supi = net.ue_ref(ue).config().supi;
        net.home().tuak.push(supi);
        net.ue_mut(ue).insert(Usim::new(tuak_of(supi), UsimSqn::default()));
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert!(registered(&net, ue));
        no_violations(&net);
    }
}

#[test] // TS 33.501 §6.1.3: a UE that has the one algorithm where the store has the other
fn another_algorithm_is_another_key() {
    let (mut net, ue) = one_ue(7);
    let supi = net.ue_ref(ue).config().supi;
    net.ue_mut(ue).insert(Usim::new(tuak_of(supi), UsimSqn::default()));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(first_refusal(&net), Some(Refusal::MacFailure));
}

#[test] // TS 33.501 §6.1.2: the subscriber's method changes between two registrations
fn the_method_is_the_subscribers() {
    let (mut net, ue) = one_ue(8);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    let supi = net.ue_ref(ue).config().supi;
    net.home().eap_aka_prime.push(supi);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 20);
    assert!(registered(&net, ue));
    no_violations(&net);
}
