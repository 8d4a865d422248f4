//! Each procedure repeats what was lost: TS 24.501 Table 10.2.2, Table 10.3.2.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::Event as CoreEvent;
use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_nas::mm::MessageType;
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex};

fn on_air(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

fn repeated(net: &Sim, message: &str) -> usize {
    core_events(net).filter(|e| matches!(e, CoreEvent::Repeated(m) if *m == message)).count()
}

#[test] // TS 24.501 §5.4.3.6 b: T3570
fn identity_request_lost_once() {
    let (mut net, ue) = on_air(1);
    go_idle(&mut net, ue);
    let context = net.cta().contexts().next().expect("it is registered").id;
    net.order(context, whimbrel_control::Command::Superseded); // it does not learn it
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::IdentityRequest, 1));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(14));
    assert_eq!(repeated(&net, "IDENTITY REQUEST"), 1);
    assert!(registered(&net, ue));
}

#[test] // TS 24.501 §5.5.2.3.5 a: T3522
fn deregistration_request_lost_once() {
    let (mut net, ue) = on_air(2);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::DeregistrationRequestUeTerminated, 1));
    let context = net.cta().contexts().next().expect("it is registered").id;
    net.order(context, whimbrel_control::Command::Deregister);
    net.settle(Duration::from_secs(10));
    assert_eq!(repeated(&net, "DEREGISTRATION REQUEST"), 1);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::Deregistered { .. })));
    assert_eq!(net.cta().contexts().count(), 0);
}

#[test] // TS 24.501 §6.3.3.5 a: T3592
fn session_release_command_lost_once() {
    let (mut net, ue) = on_air(3);
    let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::DlNasTransport, 1));
    net.command(ue, UeCommand::ReleaseSession(PduSessionId::new(1).expect("1 to 15")));
    net.settle(Duration::from_secs(40));
    assert!(repeated(&net, "PDU SESSION RELEASE COMMAND") >= 1);
    assert!(net.ue_events(ue).iter().any(|(_, e)| matches!(e, Event::SessionReleased { .. })));
    assert_eq!(net.upf_sessions(), 0);
}
