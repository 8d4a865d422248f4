//! Sessions, connections and what gNBs and packets have to do with them (TS 23.502 §4.2.3, §4.2.6, §4.3, §4.8).

use whimbrel_ids::{FiveQi, Qfi};
use whimbrel_nas::ie::{
    FilterComponent, FilterDirection, FlowOperation, FlowParameter, PacketFilter, PduSessionType,
    QosFlowBinding, QosFlowDescription, QosRule, RuleOperation,
};
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb;
use whimbrel_ran::ue::{QosRequest, UeCommand};

use super::bring::{
    all_flow, connected, first, first_is_deactivated, go_idle, idle, ran_ue_id, session, with_session,
    with_two, without_flows, without_user_plane,
};
use super::{ProcedureCase, ProcedureEffect, flows};
use crate::{Sim, UeIndex};

pub(super) static ALL: &[ProcedureCase] = &[
    ProcedureCase::new(
        "service request by the UE",
        idle,
        |net, ue| net.command(ue, UeCommand::ServiceRequest),
        |net, ue, _| all_flow(net, ue) && net.ue_ref(ue).is_connected(),
    ),
    ProcedureCase::new(
        "service request for signalling",
        |net, ue| {
            connected(net, ue);
            go_idle(net, ue);
        },
        |net, ue| net.command(ue, UeCommand::ServiceRequest),
        |net, ue, _| net.ue_ref(ue).is_connected(),
    ),
    ProcedureCase::new(
        "network triggered service request",
        idle,
        |net, ue| assert!(net.downlink(ue, first(net, ue)).is_some()),
        |net, ue, _| net.ue_ref(ue).has_user_plane(first(net, ue)),
    ),
    ProcedureCase::new(
        "network triggered service request while the UE comes by itself",
        idle,
        |net, ue| {
            assert!(net.downlink(ue, first(net, ue)).is_some());
            net.command(ue, UeCommand::ServiceRequest);
        },
        |net, ue, _| all_flow(net, ue),
    ),
    ProcedureCase::new(
        "a packet for a connected UE",
        without_user_plane,
        |net, ue| assert!(net.downlink(ue, first(net, ue)).is_some()),
        |net, ue, _| net.ue_ref(ue).has_user_plane(first(net, ue)),
    ),
    ProcedureCase::new(
        "service request of a connected UE",
        without_user_plane,
        |net, ue| net.command(ue, UeCommand::ServiceRequest),
        |net, ue, _| all_flow(net, ue),
    ),
    ProcedureCase::new(
        "radio link failure that the gNB does not detect",
        with_session,
        |net, ue| {
            net.lose_radio(ue);
            net.command(ue, UeCommand::ServiceRequest);
        },
        |net, ue, _| net.ue_ref(ue).is_connected() && all_flow(net, ue),
    ),
    ProcedureCase::new(
        "session establishment",
        with_session,
        |net, ue| net.command(ue, session(PduSessionType::Ipv4)),
        |net, ue, was| net.ue_ref(ue).sessions().count() > was.sessions.len(),
    ),
    ProcedureCase::new(
        "session establishment, with IPv6",
        with_session,
        |net, ue| net.command(ue, session(PduSessionType::Ipv4v6)),
        |net, ue, was| net.ue_ref(ue).sessions().count() > was.sessions.len(),
    ),
    ProcedureCase::new(
        "session establishment by an idle UE",
        idle,
        |net, ue| net.command(ue, session(PduSessionType::Ipv4)),
        |net, ue, was| net.ue_ref(ue).sessions().count() > was.sessions.len(),
    ),
    ProcedureCase::new(
        "session release by the UE",
        with_two,
        |net, ue| net.command(ue, UeCommand::ReleaseSession(first(net, ue))),
        |net, ue, was| net.ue_ref(ue).sessions().count() + 1 == was.sessions.len(),
    )
    .ends(ProcedureEffect::Session),
    ProcedureCase::new(
        "session release by an idle UE",
        idle,
        |net, ue| net.command(ue, UeCommand::ReleaseSession(first(net, ue))),
        |net, ue, was| net.ue_ref(ue).sessions().count() + 1 == was.sessions.len(),
    )
    .ends(ProcedureEffect::Session),
    ProcedureCase::new(
        "modification by the UE",
        without_flows,
        |net, ue| net.command(ue, UeCommand::ModifySession(first(net, ue), Box::new(wish()))),
        |net, ue, was| net.known(ue).is_some_and(|p| flows(p) == was.flows + 1),
    ),
    ProcedureCase::new(
        "modification by the gNB",
        with_session,
        |net, ue| net.gnb_input(net.gnb_of(ue), gnb::Input::IndicateModification(ran_ue_id(ue))),
        |net, ue, _| all_flow(net, ue),
    ),
    ProcedureCase::new(
        "release of a user plane by the gNB",
        with_session,
        |net, ue| {
            let session = first(net, ue);
            net.gnb_input(net.gnb_of(ue), gnb::Input::LetSessionGo(ran_ue_id(ue), session));
        },
        |net, ue, _| first_is_deactivated(net, ue),
    ),
    ProcedureCase::new(
        "AN release",
        with_session,
        |net, ue| net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity)),
        |net, ue, _| !net.ue_ref(ue).is_connected(),
    ),
    ProcedureCase::new(
        "AN release after a radio link failure",
        with_session,
        |net, ue| {
            net.lose_radio(ue);
            net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::RadioConnectionWithUeLost));
        },
        |net, ue, _| !net.ue_ref(ue).is_connected(),
    ),
    ProcedureCase::new(
        "RRC_INACTIVE",
        active,
        |net, ue| net.gnb_input(net.gnb_of(ue), gnb::Input::Inactive(ran_ue_id(ue), true)),
        |net, ue, _| is_inactive(net, ue),
    ),
    ProcedureCase::new(
        "RRC_INACTIVE, and back",
        active,
        |net, ue| {
            for inactive in [true, false] {
                net.gnb_input(net.gnb_of(ue), gnb::Input::Inactive(ran_ue_id(ue), inactive));
            }
        },
        |net, ue, _| !is_inactive(net, ue),
    ),
    ProcedureCase::new(
        "NG RESET by the gNB",
        with_session,
        |net, ue| net.gnb_input(net.gnb_of(ue), gnb::Input::Reset),
        |net, ue, _| net.known(ue).is_some_and(|p| !p.is_connected()),
    )
    .ends(ProcedureEffect::Others),
    ProcedureCase::new(
        "NG RESET of one connection by the gNB",
        with_session,
        |net, ue| net.gnb_input(net.gnb_of(ue), gnb::Input::ResetSome(&[ran_ue_id(ue)])),
        |net, ue, _| net.known(ue).is_some_and(|p| !p.is_connected()),
    ),
    ProcedureCase::new(
        "restart of a gNB",
        with_session,
        |net, ue| net.restart_gnb(net.gnb_of(ue)),
        |net, ue, _| net.known(ue).is_some_and(|p| !p.is_connected()),
    )
    .ends(ProcedureEffect::Others),
];

/// It is in RRC_CONNECTED.
fn active(net: &mut Sim, ue: UeIndex) {
    with_session(net, ue);
    if is_inactive(net, ue) {
        net.gnb_input(net.gnb_of(ue), gnb::Input::Inactive(ran_ue_id(ue), false));
        net.settle(std::time::Duration::from_secs(1));
    }
}

fn is_inactive(net: &Sim, ue: UeIndex) -> bool {
    net.known(ue).and_then(|p| p.amf.connection.as_ref()).is_some_and(|c| c.rrc_inactive)
}

/// A flow of the policy `game`, for UDP to one port.
fn wish() -> QosRequest {
    let qfi = Qfi::new(0).expect("6 bits");
    let components = vec![FilterComponent::Protocol([17]), FilterComponent::RemotePort([0, 80])];
    let filter = PacketFilter { id: 0, direction: FilterDirection::Bidirectional, components };
    let binding = Some(QosFlowBinding { precedence: 70, segregation: false, qfi });
    let rule = QosRule { id: 0, operation: RuleOperation::Create(vec![filter]), default: false, binding };
    let parameters = vec![FlowParameter::FiveQi(FiveQi(7))];
    let flow = QosFlowDescription { qfi, operation: FlowOperation::Create, e_bit: true, parameters };
    QosRequest { rules: vec![rule], flows: vec![flow] }
}
