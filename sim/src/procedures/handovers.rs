//! Handovers between gNBs (TS 23.502 §4.9.1), of which the second may be of another region.

use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_ran::gnb::{self, Via};
use whimbrel_ran::ue::UeCommand;

use super::bring::{all_flow, first, other_gnb, ran_ue_id, session, with_session, with_two};
use super::{ProcedureCase, UeSnapshot};
use crate::{GnbIndex, Sim, UeIndex};

pub(super) static ALL: &[ProcedureCase] = &[
    ProcedureCase::new("Xn handover", with_session, |net, ue| go(net, ue, Via::Xn), has_gone),
    ProcedureCase::new("N2 handover", with_session, |net, ue| go(net, ue, Via::N2), has_gone),
    ProcedureCase::new(
        "Xn handover, there and back",
        with_session,
        |net, ue| {
            let here = net.gnb_of(ue);
            go(net, ue, Via::Xn);
            net.settle(std::time::Duration::from_millis(12));
            if net.gnb_of(ue) != here {
                net.hand_over(ue, here, Via::Xn);
            }
        },
        |net, ue, _| all_flow(net, ue),
    ),
    ProcedureCase::new(
        "Xn handover right after a service request",
        super::bring::idle,
        |net, ue| {
            net.command(ue, UeCommand::ServiceRequest);
            net.settle(std::time::Duration::from_millis(8));
            go(net, ue, Via::Xn);
        },
        |net, ue, _| net.ue_ref(ue).is_connected(),
    ),
    ProcedureCase::new(
        "N2 handover that the target refuses",
        |net, ue| {
            with_session(net, ue);
            let cause = CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell;
            net.gnb_mut(other_gnb(net, ue)).faults_mut().refuse_handover = Some(cause.into());
        },
        |net, ue| go(net, ue, Via::N2),
        has_stayed,
    ),
    ProcedureCase::new(
        "N2 handover that the source cancels",
        |net, ue| {
            with_session(net, ue);
            net.gnb_mut(net.gnb_of(ue)).faults_mut().cancel_at_command = true;
        },
        |net, ue| go(net, ue, Via::N2),
        has_stayed,
    ),
    ProcedureCase::new(
        "N2 handover that the source cancels while it is prepared",
        with_session,
        |net, ue| {
            let here = net.gnb_of(ue);
            go(net, ue, Via::N2);
            let cause = CauseRadioNetwork::HandoverCancelled.into();
            net.gnb_input(here, gnb::Input::CancelHandover(ran_ue_id(ue), cause));
        },
        has_stayed,
    ),
    ProcedureCase::new(
        "N2 handover that the target does not answer",
        |net, ue| {
            with_session(net, ue);
            net.gnb_mut(other_gnb(net, ue)).faults_mut().ignore_handover_request = true;
        },
        |net, ue| go(net, ue, Via::N2),
        has_stayed,
    )
    .astonishes(),
    ProcedureCase::new(
        "N2 handover with one session of two",
        one_is_refused,
        |net, ue| go(net, ue, Via::N2),
        |net, ue, was| net.gnb_of(ue) != was.gnb && !net.ue_ref(ue).has_user_plane(last(net, ue)),
    ),
    ProcedureCase::new(
        "Xn handover with one session of two",
        one_is_refused,
        |net, ue| go(net, ue, Via::Xn),
        |net, ue, was| net.gnb_of(ue) != was.gnb && !net.ue_ref(ue).has_user_plane(last(net, ue)),
    ),
    ProcedureCase::new(
        "Xn handover while a session is established",
        with_session,
        |net, ue| {
            net.command(ue, session(whimbrel_nas::ie::PduSessionType::Ipv4));
            go(net, ue, Via::Xn);
        },
        |net, ue, was| net.gnb_of(ue) != was.gnb && net.ue_ref(ue).has_user_plane(first(net, ue)),
    ),
];

fn go(net: &mut Sim, ue: UeIndex, via: Via) {
    let there = other_gnb(net, ue);
    net.hand_over(ue, there, via);
}

fn has_gone(net: &Sim, ue: UeIndex, was: &UeSnapshot) -> bool {
    net.gnb_of(ue) != was.gnb && all_flow(net, ue)
}

fn has_stayed(net: &Sim, ue: UeIndex, was: &UeSnapshot) -> bool {
    net.gnb_of(ue) == was.gnb
        && all_flow(net, ue)
        && net.known(ue).is_some_and(|p| p.amf.mobility.target.is_none())
}

fn last(net: &Sim, ue: UeIndex) -> whimbrel_ids::PduSessionId {
    net.ue_ref(ue).sessions().map(|s| s.id).max().expect("it has sessions")
}

/// The other gNB takes all but the last session.
fn one_is_refused(net: &mut Sim, ue: UeIndex) {
    with_two(net, ue);
    let (there, refused): (GnbIndex, _) = (other_gnb(net, ue), last(net, ue));
    net.gnb_mut(there).faults_mut().refuse_sessions = vec![refused];
}
