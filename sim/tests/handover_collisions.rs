//! A handover and something else at once: TS 23.502 §4.9.1, TS 38.413 §8.4, TS 33.501 §6.9.5. Which gives way, the core decides in
//! one place (`control/src/collision.rs`); here it is seen from outside.

use crate::common::by_hand::*;
use crate::common::*;
use whimbrel_control::smf::Modification;
use whimbrel_control::udm::Ambr;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Procedure};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ngap::msg::HandoverCancel;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::{MmState, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex, UpfState, default_config, ue_config};

/// How far a handover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The target was asked.
    Preparing,
    /// The source got HANDOVER COMMAND, which the UE does not receive.
    Executing,
    /// A target wants its path switched, and the UPF has not answered.
    Switching,
}

const ALL: [At; 3] = [At::Preparing, At::Executing, At::Switching];

/// A UE with a session, and a handover of it that is so far.
fn handed_over(seed: u64, at: At) -> (Sim, UeIndex) {
    let (mut net, ue) = two_gnbs(seed, 1);
    begin(&mut net, ue, at);
    (net, ue)
}

fn begin(net: &mut Sim, ue: UeIndex, at: At) {
    if at == At::Switching {
        net.set_upf(UpfState::Silent);
        let request = path_switch_request(net, &[1]);
        net.inject(TARGET, &octets(request));
        return;
    }
    net.ue_mut(ue).faults_mut().ignore_handovers = 1;
    net.hand_over(ue, TARGET, Via::N2);
    net.settle(SECOND / 20);
    if at == At::Executing {
        let asked = request(net);
        say(net, TARGET, acknowledgement(asked.amf_ue_ngap_id, vec![admitted(1, true)]));
    }
    assert!(context(net).amf.mobility.target.is_some());
}

/// The handover comes to nothing: the source keeps the UE, or the UPF does not answer. Both time out by themselves as well.
fn end(net: &mut Sim, at: At) {
    net.set_upf(UpfState::Answering);
    if at != At::Switching && net.cta().contexts().any(|p| p.amf.mobility.target.is_some()) {
        let c = connection(net);
        let cause = CauseRadioNetwork::HandoverCancelled.into();
        let cancel = HandoverCancel::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause);
        net.inject(SOURCE, &octets(cancel));
    }
    net.settle(SECOND);
}

fn internet() -> UeCommand {
    let pdu_session_type = PduSessionType::Ipv4;
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

/// The target was informed that the handover is cancelled.
fn was_refused(net: &mut Sim) -> bool {
    net.take_ngap(TARGET)
        .iter()
        .any(|m| matches!(m, Message::UeContextReleaseCommand(_) | Message::PathSwitchRequestFailure(_)))
}

/// How often new NAS keys were proposed since the last look: SECURITY MODE COMMAND alone has this header (TS 24.501 §9.3.1).
fn proposed(net: &mut Sim) -> usize {
    let pdus = net.tapped().into_iter().filter_map(|m| match m {
        Message::DownlinkNasTransport(m) => Some(m.nas_pdu),
        _ => None,
    });
    pdus.filter(|pdu| pdu.get(1) == Some(&3)).count()
}

fn completed(net: &Sim, expected: Procedure) -> bool {
    core_events(net).any(|e| matches!(e, CoreEvent::Completed { procedure, .. } if *procedure == expected))
}

#[test] // TS 24.501 §5.5.2.2, TS 23.502 §4.9.1 collision: the UE leaves while it is handed over: source and target release it
fn a_deregistration_by_the_ue() {
    for at in ALL {
        for switch_off in [false, true] {
            let (mut net, ue) = handed_over(1, at);
            net.command(ue, UeCommand::Deregister { switch_off });
            net.settle(SECOND / 5);
            net.set_upf(UpfState::Answering);
            net.settle(SECOND * 30);
            assert!(was_refused(&mut net), "{at:?}");
            assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0), "{at:?}");
        }
    }
}

#[test] // TS 23.502 §4.2.2.3.3, §4.9.1 collision: the network deregisters a UE that is handed over: it hears it where it is, and leaves
fn a_deregistration_by_the_network() {
    for at in ALL {
        let (mut net, ue) = handed_over(2, at);
        let id = context(&net).id;
        net.order(id, CoreCommand::Deregister);
        net.settle(SECOND / 5);
        end(&mut net, at);
        net.settle(SECOND * 60);
        assert_eq!(net.cta().contexts().count(), 0, "{at:?}");
        assert_eq!(net.upf_sessions(), 0, "{at:?}");
        // One that went over to a gNB that is driven by hand hears nothing there.
        assert!(at == At::Switching || net.ue_ref(ue).state() != MmState::Registered, "{at:?}");
        assert!(was_refused(&mut net), "{at:?}");
    }
}

#[test] // TS 23.502 §4.9.1 collision, TS 24.501 §5.5.1.3: a registration goes on beside a handover; its accept waits for a UE on its way
fn a_mobility_registration() {
    for at in ALL {
        let (mut net, ue) = handed_over(3, at);
        net.command(ue, UeCommand::Register);
        net.settle(SECOND / 5);
        end(&mut net, at);
        net.settle(SECOND * 20);
        assert!(registered(&net, ue) && completed(&net, Procedure::Registration), "{at:?}");
        assert!(context(&net).amf.mobility.target.is_none(), "{at:?}");
    }
}

#[test] // TS 23.502 §4.9.1 collision, TS 24.501 §5.6.1: a service request of a UE that is connected and handed over
fn a_service_request() {
    for at in ALL {
        let (mut net, ue) = handed_over(4, at);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND / 5);
        end(&mut net, at);
        net.settle(SECOND * 20);
        assert!(registered(&net, ue) && net.ue_ref(ue).sessions().count() == 1, "{at:?}");
        assert!(context(&net).is_idle() || context(&net).amf.mobility.target.is_none(), "{at:?}");
    }
}

#[test] // TS 23.502 §4.9.1 collision, §4.9.1.3.1: sessions begin, change and end when the handover is over, not at a gNB that the UE leaves
fn session_procedures() {
    for at in [At::Preparing, At::Executing] {
        let (mut net, ue) = handed_over(5, at);
        net.tap();
        net.command(ue, internet());
        let id = context(&net).id;
        let ambr = Ambr { ul_kbps: 777, dl_kbps: 888 };
        net.order(id, CoreCommand::ModifySession(psi(1), Modification::Ambr(ambr)));
        net.settle(SECOND / 5);
        let asked = net.tapped().into_iter().any(|m| {
            matches!(
                m,
                Message::PduSessionResourceSetupRequest(_) | Message::PduSessionResourceModifyRequest(_)
            )
        });
        assert!(!asked, "no gNB is asked for anything meanwhile: {at:?}");
        end(&mut net, at);
        net.settle(SECOND * 20);
        assert_eq!(net.ue_ref(ue).sessions().count(), 2, "{at:?}");
        assert_eq!(context(&net).sessions[&psi(1)].qos.ambr, ambr, "{at:?}");
    }
}

#[test] // TS 23.502 §4.9.1 collision, §4.2.3.3: data for a UE that is handed over causes no paging
fn downlink_data() {
    for at in [At::Preparing, At::Executing] {
        let (mut net, _) = handed_over(6, at);
        net.tap();
        let (to, _) = downlink(&mut net, 1);
        match at {
            At::Preparing | At::Switching => assert_eq!(to, an(&net, 1), "they go where the UE is"),
            At::Executing => assert_eq!(to, None, "they wait until it has arrived"),
        }
        net.settle(SECOND / 5);
        assert!(!net.tapped().iter().any(|m| matches!(m, Message::Paging(_))), "{at:?}");
        end(&mut net, at);
    }
}

#[test] // TS 33.501 §6.9.5; TS 23.502 §4.9.1 collision: while a handover runs no new NAS keys are proposed; when it is over they are
fn a_rekeying_waits_for_the_handover() {
    for at in [At::Preparing, At::Executing] {
        let mut config = default_config();
        config.amf.access.authentication.every_registrations = Some(1);
        let mut net = Sim::builder(7).config(config).build();
        net.add_gnb(gnb_config(1));
        net.add_gnb(gnb_config(2));
        let ue = net.add_ue(SOURCE, ue_config(1));
        net.command(ue, UeCommand::Register);
        net.command(ue, internet());
        net.settle(SECOND);
        net.take_over(TARGET);
        begin(&mut net, ue, at);
        net.tap();
        net.command(ue, UeCommand::Register);
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert_eq!(proposed(&mut net), 0, "no new keys yet: {at:?}");
        end(&mut net, at);
        net.settle(SECOND * 20);
        assert!(registered(&net, ue) && proposed(&mut net) > 0, "{at:?}");
    }
}

#[test] // TS 33.501 §6.9.5; TS 23.502 §4.9.1 collision: a handover during the security mode control goes by the keys in force
fn a_handover_during_the_security_mode() {
    let mut config = default_config();
    config.amf.access.authentication.every_registrations = Some(1);
    let mut net = Sim::builder(8).config(config).build();
    net.add_gnb(gnb_config(1));
    net.add_gnb(gnb_config(2));
    let ue = net.add_ue(SOURCE, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.command(ue, internet());
    net.settle(SECOND);
    net.take_over(TARGET);
    net.command(ue, UeCommand::Register); // the next one has to prove its key
    net.settle(SECOND);
    net.tap();
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::SecurityModeCommand, 1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(proposed(&mut net), 1, "the command is on its way");
    begin(&mut net, ue, At::Preparing);
    let asked = request(&mut net);
    assert!(asked.new_security_context_ind.is_none(), "the keys in force: {asked:?}");
    end(&mut net, At::Preparing);
    net.settle(SECOND * 30);
    assert!(registered(&net, ue) && proposed(&mut net) > 0, "it is sent again");
}

#[test] // TS 23.502 §4.9.1 collision, TS 38.413 §8.4.1.3: HANDOVER REQUIRED for a connection that is being released
fn an_an_release() {
    let (mut net, _) = two_gnbs(9, 1);
    net.take_over(SOURCE); // it does not answer the release
    let required = handover_required(&net, &[1]);
    let c = connection(&net).clone();
    let cause = CauseRadioNetwork::UserInactivity.into();
    let release = whimbrel_ngap::msg::UeContextReleaseRequest::new(c.amf_ue_ngap_id, c.ran_ue_ngap_id, cause);
    say(&mut net, SOURCE, release);
    say(&mut net, SOURCE, required);
    let heard = net.take_ngap(SOURCE);
    assert!(
        matches!(heard.as_slice(), [Message::UeContextReleaseCommand(_)]),
        "the command is the answer: {heard:?}"
    );
    let refused = |e: &CoreEvent| matches!(e, CoreEvent::Refused { procedure: Procedure::Handover, .. });
    assert!(core_events(&net).any(refused));
    assert!(net.take_ngap(TARGET).is_empty(), "no other gNB was asked");
}

#[test] // TS 23.502 §4.9.1 collision, §4.2.6: the source gives the UE up while it is handed over
fn the_source_asks_for_the_release() {
    for at in ALL {
        let (mut net, ue) = handed_over(10, at);
        net.release(ue, CauseRadioNetwork::RadioConnectionWithUeLost.into());
        net.settle(SECOND / 5);
        end(&mut net, at);
        net.settle(SECOND * 30);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND * 30);
        assert!(registered(&net, ue) && context(&net).amf.mobility.target.is_none(), "{at:?}");
        net.check_invariants();
    }
}
