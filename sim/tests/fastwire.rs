//! gNBs that agreed on fastwire among others that keep to ASN.1. Every second gNB of all these simulations does, and the simulation
//! asserts that each hears and says what was agreed on; here is what is peculiar to it.

use crate::common::stage::*;
use crate::common::*;
use whimbrel_control::AssociationId;
use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};
use whimbrel_ngap::ie::{Cause, CauseProtocol};
use whimbrel_ngap::msg::{ErrorIndication, UplinkNasTransport};
use whimbrel_ngap::{Message, TransferSyntax};
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{GnbIndex, Sim, UeIndex, ue_config};

const FAST: GnbIndex = GnbIndex(0);
const PER: GnbIndex = GnbIndex(1);

/// A UE with a session at a gNB that speaks fastwire, beside one that does not.
fn scene(mut net: Sim) -> (Sim, UeIndex) {
    net.add_gnb(gnb_config(2));
    net.add_gnb(gnb_config(1));
    net.settle(SECOND);
    let ue = net.add_ue(FAST, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.command(ue, session());
    net.settle(SECOND);
    assert!(registered(&net, ue));
    (net, ue)
}

fn fast(m: impl Into<Message>) -> Vec<u8> {
    let mut octets = Vec::new();
    m.into().encode_in(TransferSyntax::Fastwire, &mut octets);
    octets
}

/// The names of the UE's connection, and its association.
fn names(net: &Sim) -> (AmfUeNgapId, RanUeNgapId, AssociationId) {
    let ue = net.contexts().next().expect("it is known");
    let c = ue.amf.connection.as_ref().expect("it is connected");
    (c.amf_ue_ngap_id, c.ran_ue_ngap_id, c.association)
}

fn errors(heard: &[Message]) -> Vec<&ErrorIndication> {
    heard.iter().filter_map(|m| if let Message::ErrorIndication(m) = m { Some(m) } else { None }).collect()
}

#[test] // TS 38.413 §8.4.2, §8.4.4: source and target write each in its own form, and what one says of the UE reaches the other
fn a_ue_goes_to_and_fro_between_the_two_forms() {
    let (mut net, ue) = scene(Sim::builder(1).cpfs(3, 1).build());
    for (to, via) in [(PER, Via::N2), (FAST, Via::N2), (PER, Via::Xn), (FAST, Via::Xn)] {
        net.hand_over(ue, to, via);
        net.settle(SECOND * 2);
        let (.., association) = names(&net);
        let syntax = if to == FAST { TransferSyntax::Fastwire } else { TransferSyntax::Per };
        assert_eq!(association.syntax(), syntax, "after {via:?} to {to:?}");
        net.check_user_plane();
    }
    no_violations(&net);
}

#[test] // TS 38.413 §10.2
fn an_undecodable_message_gets_error_indication_and_affects_no_other_ue() {
    let (mut net, ue) = scene(network(2));
    let (amf, ran, _) = names(&net);
    let whole = fast(UplinkNasTransport::new(amf, ran, vec![0x7e, 0, 0x43]));
    net.tap();
    // Its end is the NAS message; without it the names can still be read.
    net.inject(FAST, &whole[..whole.len() - 3]);
    net.settle(SECOND / 10);
    let reported = net.tapped();
    let [of_ue] = errors(&reported)[..] else { panic!("{reported:?}") };
    assert_eq!((of_ue.amf_ue_ngap_id, of_ue.ran_ue_ngap_id), (Some(amf), Some(ran)));
    for octets in [&whole[..1], &[12; 40][..], &whole[..20]] {
        net.inject(FAST, octets);
    }
    net.settle(SECOND / 10);
    let reported = net.tapped();
    let syntax = Some(Cause::Protocol(CauseProtocol::TransferSyntaxError));
    assert!(errors(&reported).iter().all(|m| m.cause == syntax), "{reported:?}");
    assert_eq!(errors(&reported).len(), 3);
    assert!(registered(&net, ue));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    assert_eq!(net.contexts().count(), 0);
}

#[test] // both are read wherever they come from: a gNB may say what it wrote for another association of its own
fn a_gnb_that_agreed_may_still_speak_per() {
    let (mut net, ue) = scene(network(3));
    let (amf, ran, _) = names(&net);
    net.tap();
    let release = whimbrel_ngap::msg::UeContextReleaseRequest::new(
        amf,
        ran,
        whimbrel_ngap::ie::CauseRadioNetwork::UserInactivity.into(),
    );
    net.inject(FAST, &Message::from(release).to_vec());
    net.settle(SECOND);
    assert!(net.tapped().iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_))));
    assert!(registered(&net, ue));
}
