//! PDU session modification over the whole network: TS 23.502 §4.3.3.2.

use crate::common::*;
use whimbrel_control::policy::{FlowGate, FlowPolicy, Gbr, Setup, packet_filter};
use whimbrel_control::smf::Modification;
use whimbrel_control::udm::{Ambr, Arp};
use whimbrel_control::{Command as CoreCommand, Event, SessionOutcome};
use whimbrel_ids::{FiveQi, PduSessionId};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{Faults, Sim, UeIndex, default_config};

fn psi() -> PduSessionId {
    PduSessionId::new(1).expect("1 to 15")
}

fn flow(name: &str, precedence: u8) -> FlowPolicy {
    let rate = Ambr { ul_kbps: 64, dl_kbps: 64 };
    FlowPolicy {
        name: name.parse().expect("a name"),
        five_qi: FiveQi(1),
        arp: Arp { priority: 2, may_preempt: true, preemptable: false },
        gbr: Some(Gbr { guaranteed: rate, maximum: rate }),
        precedence,
        filters: vec![packet_filter("permit out 17 from any 5004 to assigned").expect("a filter")],
        gate: FlowGate::default(),
        setup: Setup::ByOperator,
    }
}

fn with_session(seed: u64, faults: Faults) -> (Sim, UeIndex) {
    let mut config = default_config();
    let flows = vec![flow("voice", 10), flow("video", 11)];
    config.smf.data_networks.values_mut().for_each(|n| n.flows.clone_from(&flows));
    let net = Sim::builder(seed).config(config).build();
    let (mut net, ue) = session_in(net);
    net.set_faults(faults);
    (net, ue)
}

fn session_in(mut net: Sim) -> (Sim, UeIndex) {
    net.recorder().on = true;
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, whimbrel_sim::ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let dnn = Some("internet".parse().expect("a DNN"));
    let request = SessionRequest { dnn, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
    net.command(ue, UeCommand::EstablishSession(request));
    net.settle(SECOND);
    (net, ue)
}

fn order(net: &mut Sim, modification: Modification) {
    let ue = net.cta().contexts().next().expect("a UE").id;
    net.order(ue, CoreCommand::ModifySession(psi(), modification));
}

fn add(net: &mut Sim, name: &str) {
    order(net, Modification::AddFlow(name.parse().expect("a name")));
}

#[test] // TS 23.502 §4.3.3.2: whoever ordered the change learns its outcome where a CPF elsewhere makes it
fn the_outcome_of_an_order_comes_back_from_a_cpf_in_another_process() {
    let (mut net, _) = session_in(Sim::builder(9).cpfs(2, 1).build());
    let ue = net.contexts().next().expect("a UE").id;
    let ambr = Modification::Ambr(Ambr { ul_kbps: 500, dl_kbps: 700 });
    net.order(ue, CoreCommand::ModifySession(psi(), ambr));
    net.order(ue, CoreCommand::ModifySession(psi(), Modification::Reanchor));
    net.settle(SECOND);
    let operations: Vec<_> = net
        .events
        .ues
        .iter()
        .filter_map(|(_, e)| match &e.event {
            Event::SessionOperation { order, outcome, .. } => Some((*order, outcome.clone())),
            _ => None,
        })
        .collect();
    let completed = SessionOutcome::Completed { failed_flows: Vec::new(), not_at_gnb: None, more: false };
    let refused = SessionOutcome::NotPossible("a session of SSC mode 1 keeps its anchor");
    assert_eq!(operations, [(Some(Modification::Reanchor), refused), (None, completed)]);
    no_violations(&net);
}

/// The core's flows and the UE's rules and descriptions.
fn flows(net: &Sim, ue: UeIndex) -> (usize, usize, usize) {
    let context = net.cta().contexts().next().expect("a UE");
    let info = net.ue_ref(ue).sessions().next().expect("a session");
    (context.sessions[&psi()].qos.flows.len(), info.rules.len(), info.flows.len())
}

#[test] // TS 23.502 §4.3.3.2
fn flows_come_and_go() {
    let (mut net, ue) = with_session(1, Faults::default());
    assert_eq!(flows(&net, ue), (0, 1, 1));
    add(&mut net, "voice");
    add(&mut net, "video");
    net.settle(SECOND);
    assert_eq!(flows(&net, ue), (2, 3, 3), "two changes at once are one after the other");
    order(&mut net, Modification::RemoveFlow("voice".parse().expect("a name")));
    net.settle(SECOND);
    assert_eq!(flows(&net, ue), (1, 2, 2));
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.3.2, TS 23.501 §5.7.1.6: the session's AMBR
fn the_ambr_is_changed() {
    let (mut net, ue) = with_session(2, Faults::default());
    order(&mut net, Modification::Ambr(Ambr { ul_kbps: 500, dl_kbps: 700 }));
    net.settle(SECOND);
    assert_eq!(net.ue_ref(ue).sessions().next().map(|s| s.ambr_kbps), Some((700, 500)));
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.3.2 step 3b: an idle UE is paged, connects, and gets the command
fn an_idle_ue_is_paged_for_the_modification() {
    let (mut net, ue) = with_session(3, Faults::default());
    go_idle(&mut net, ue);
    add(&mut net, "voice");
    net.settle(SECOND * 5);
    assert_eq!(flows(&net, ue), (1, 2, 2));
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.3.2: an unreachable UE gets the command when it returns
fn an_unreachable_ue_gets_the_modification_later() {
    let (mut net, ue) = with_session(4, Faults::default());
    go_idle(&mut net, ue);
    net.leave_coverage(ue);
    add(&mut net, "voice");
    net.settle(SECOND * 30);
    assert_eq!(flows(&net, ue), (0, 1, 1));
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND * 5);
    assert_eq!(flows(&net, ue), (1, 2, 2));
}

#[test] // TS 24.501 §6.3.2.5 a: lost commands are sent again, and in the end both sides agree
fn both_sides_agree_in_spite_of_losses() {
    for seed in 10..20 {
        let lossy = Faults { lost_per_mille: 200, ..Faults::default() };
        let (mut net, ue) = with_session(seed, lossy);
        add(&mut net, "voice");
        net.settle(SECOND * 90);
        net.set_faults(Faults::default());
        add(&mut net, "voice");
        add(&mut net, "video");
        net.settle(SECOND * 90);
        if net.ue_ref(ue).sessions().next().is_some() {
            let (core, rules, descriptions) = flows(&net, ue);
            assert_eq!((core + 1, core + 1), (rules, descriptions), "seed {seed}");
        }
    }
}

#[test] // TS 23.502 §4.2.3.2: flows are set up again with the user plane
fn flows_survive_an_idle_phase() {
    let (mut net, ue) = with_session(5, Faults::default());
    add(&mut net, "voice");
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.tap();
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    let again = net.tapped().into_iter().find_map(|m| match m {
        whimbrel_ngap::Message::InitialContextSetupRequest(m) => {
            m.pdu_session_resource_setup_list_cxt_req.into_iter().next()
        }
        _ => None,
    });
    let transfer = again.expect("a setup").pdu_session_resource_setup_request_transfer;
    let transfer =
        whimbrel_ngap::PduSessionResourceSetupRequestTransfer::decode(&transfer).expect("its transfer");
    assert_eq!(transfer.qos_flow_setup_request_list.len(), 2);
    assert_eq!(flows(&net, ue), (1, 2, 2));
    no_violations(&net);
}

#[test] // DESIGN §4 rule 5: a modification replays as it ran
fn nothing_is_left_when_the_session_ends() {
    let (mut net, ue) = with_session(6, Faults::default());
    add(&mut net, "voice");
    net.settle(SECOND);
    net.command(ue, UeCommand::ReleaseSession(psi()));
    net.settle(SECOND);
    assert_eq!(net.upf_sessions(), 0);
    no_violations(&net);
}
