//! Re-authentication while a UE is connected, and the radio's keys after that: TS 33.501 §6.9.2.3.2, §6.9.2.3.3.

use crate::common::by_hand::psi;
use crate::common::stage::session;
use crate::common::*;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, UeIndex, procedures_config, ue_config};

/// A connected UE with a session, whose radio has keys of a K_AMF that is not the one in use.
fn reauthenticated() -> (Sim, UeIndex, [GnbIndex; 2]) {
    let mut net = Sim::builder(1).config(procedures_config()).build();
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    let ue = net.add_ue(gnbs[0], ue_config(1));
    net.settle(SECOND / 10);
    let name = |net: &Sim| net.ue_ref(ue).security().map(|(name, _)| name);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, session());
    net.settle(SECOND);
    let before = name(&net);
    (0..3).for_each(|_| {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
    });
    assert!(net.ue_ref(ue).is_connected() && name(&net) != before);
    // A message on the connection that stands does not begin new keys of the radio.
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    (net, ue, gnbs)
}

fn goes(net: &mut Sim, ue: UeIndex, to: GnbIndex, via: Via) {
    net.hand_over(ue, to, via);
    net.settle(SECOND);
    assert_eq!(net.gnb_of(ue), to, "{via:?}");
    assert!(net.ue_ref(ue).has_user_plane(psi(1)));
    no_violations(net);
}

#[test]
fn the_next_handover_brings_the_keys_along() {
    for via in [Via::Xn, Via::N2] {
        let (mut net, ue, [here, there]) = reauthenticated();
        goes(&mut net, ue, there, via);
        goes(&mut net, ue, here, Via::Xn);
        goes(&mut net, ue, there, Via::N2);
    }
}

#[test] // its radio has the keys of before still, so the next ones have to be sent as well
fn a_handover_that_fails_does_not_bring_them() {
    for via in [Via::Xn, Via::N2] {
        let (mut net, ue, [here, there]) = reauthenticated();
        let none = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell;
        net.gnb_mut(there).faults_mut().refuse_handover = Some(none.into());
        net.hand_over(ue, there, Via::N2);
        net.settle(SECOND * 10);
        assert_eq!(net.gnb_of(ue), here);
        net.gnb_mut(there).faults_mut().refuse_handover = None;
        goes(&mut net, ue, there, via);
        goes(&mut net, ue, here, Via::Xn);
    }
}
