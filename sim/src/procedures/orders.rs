//! What operator, subscribers' store and UPF begin (TS 23.502 §4.2.2.3.3, §4.3.3.2, §4.3.4.2, §4.5.1, §4.10; TS 23.527 §4.3.2), and UEs that
//! are to be served by another CPF.

use std::time::Duration;

use whimbrel_control::smf::Modification;
use whimbrel_control::udm::{Ambr, Subscribers};
use whimbrel_control::{Command as CoreCommand, Locate, UpfId};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ran::ue::UeCommand;

use super::bring::{
    VOICE, all_flow, connected, first, first_is_deactivated, go_idle, idle, is_gone, modify, order, session,
    with_flow, with_session, with_two, without_flows,
};
use super::{ProcedureCase, ProcedureEffect, UeSnapshot, flows};
use crate::{Sim, UeIndex, registered};

pub(super) static ALL: &[ProcedureCase] = &[
    ProcedureCase::new(
        "modification by the network",
        without_flows,
        |net, ue| modify(net, ue, Modification::AddFlow(VOICE.parse().expect("a name"))),
        has_flow,
    )
    .ordered(),
    ProcedureCase::new(
        "modification by the network, of an idle UE",
        |net, ue| {
            without_flows(net, ue);
            go_idle(net, ue);
        },
        |net, ue| modify(net, ue, Modification::AddFlow(VOICE.parse().expect("a name"))),
        has_flow,
    )
    .ordered(),
    ProcedureCase::new(
        "removal of a flow",
        with_flow,
        |net, ue| modify(net, ue, Modification::RemoveFlow(VOICE.parse().expect("a name"))),
        |net, ue, _| net.known(ue).is_some_and(|p| flows(p) == 0),
    )
    .ordered(),
    ProcedureCase::new(
        "another session AMBR",
        with_session,
        |net, ue| {
            let kbps = 1000 + net.now().0 % 1000;
            modify(net, ue, Modification::Ambr(Ambr { ul_kbps: kbps, dl_kbps: kbps }));
        },
        |net, ue, _| {
            let session = first(net, ue);
            net.known(ue).is_some_and(|p| p.sessions[&session].qos.ambr.dl_kbps < 2000)
        },
    )
    .ordered(),
    ProcedureCase::new(
        "deactivation of a user plane by the operator",
        with_session,
        |net, ue| modify(net, ue, Modification::Deactivate),
        |net, ue, _| first_is_deactivated(net, ue),
    )
    .ordered(),
    ProcedureCase::new(
        "session release by the network",
        with_two,
        |net, ue| modify(net, ue, Modification::Release),
        |net, ue, was| net.ue_ref(ue).sessions().count() + 1 == was.sessions.len(),
    )
    .ends(ProcedureEffect::Session)
    .ordered(),
    ProcedureCase::new(
        "session release by the network, of an idle UE, which hears of it when it comes",
        idle,
        |net, ue| {
            modify(net, ue, Modification::Release);
            net.command(ue, UeCommand::ServiceRequest);
        },
        |net, ue, was| net.ue_ref(ue).sessions().count() + 1 == was.sessions.len(),
    )
    .ends(ProcedureEffect::Session)
    .ordered(),
    ProcedureCase::new(
        "session release by both sides at once",
        with_two,
        |net, ue| {
            modify(net, ue, Modification::Release);
            net.command(ue, UeCommand::ReleaseSession(first(net, ue)));
        },
        |net, ue, was| net.ue_ref(ue).sessions().count() + 1 == was.sessions.len(),
    )
    .ends(ProcedureEffect::Session)
    .ordered(),
    ProcedureCase::new(
        "another UE-AMBR: configuration update and UE context modification",
        with_session,
        |net, ue| {
            let supi = net.ue_ref(ue).config().supi;
            let mut terms = (*net.home().subscription(supi).expect("it is subscribed")).clone();
            terms.ue_ambr.dl_kbps = if terms.ue_ambr.dl_kbps == 50_000 { 60_000 } else { 50_000 };
            net.home().subscribe(terms);
            net.subscriber_changed(supi);
        },
        |net, ue, was| UeSnapshot::of(net, ue).dl_kbps != was.dl_kbps,
    )
    .ends(ProcedureEffect::Nothing)
    .ordered(),
    ProcedureCase::new(
        "deregistration by the network",
        with_session,
        |net, ue| order(net, ue, CoreCommand::Deregister),
        |net, ue, _| is_gone(net, ue),
    )
    .ends(ProcedureEffect::Registration)
    .ordered(),
    ProcedureCase::new(
        "deregistration by the network, of an idle UE",
        idle,
        |net, ue| order(net, ue, CoreCommand::Deregister),
        |net, ue, _| is_gone(net, ue),
    )
    .ends(ProcedureEffect::Registration)
    .ordered(),
    ProcedureCase::new(
        "location reporting, of an idle UE",
        |net, ue| {
            connected(net, ue);
            go_idle(net, ue);
        },
        |net, ue| order(net, ue, CoreCommand::Locate(Locate::Now)),
        |net, ue, _| net.known(ue).is_some_and(|p| p.amf.location.seen.is_some()),
    )
    .ordered(),
    ProcedureCase::new(
        "location reporting",
        connected,
        |net, ue| order(net, ue, CoreCommand::Locate(Locate::Now)),
        |net, ue, _| net.known(ue).is_some_and(|p| p.amf.location.seen.is_some()),
    )
    .ordered(),
    ProcedureCase::new(
        "NG RESET by the AMF",
        with_session,
        |net, ue| assert!(net.reset_gnb(net.gnb_ref(net.gnb_of(ue)).config().id)),
        |net, ue, _| net.known(ue).is_some_and(|p| !p.is_connected()),
    )
    .ends(ProcedureEffect::Others)
    .ordered(),
    ProcedureCase::new(
        "restart of a UPF",
        |net, ue| {
            with_session(net, ue);
            net.advance(Duration::from_secs(2)); // recovery time stamps count seconds
        },
        |net, _| {
            net.restart_upf();
            net.associate_upf(UpfId(0));
        },
        |net, ue, _| {
            net.cta().upf_is_up() && net.known(ue).is_some_and(|p| net.upf_sessions() >= p.sessions.len())
        },
    )
    .ends(ProcedureEffect::Others),
    ProcedureCase::new("another CPF for an idle UE's context", with_session, change_cpf, |net, ue, _| {
        registered(net, ue) && all_flow(net, ue)
    })
    .ordered(),
    ProcedureCase::new(
        "another CPF during a procedure",
        with_session,
        |net, ue| {
            net.command(ue, session(PduSessionType::Ipv4));
            net.settle(Duration::from_millis(5));
            change_cpf(net, ue);
        },
        |net, ue, was| net.ue_ref(ue).sessions().count() == was.sessions.len() + 1 && all_flow(net, ue),
    ),
    ProcedureCase::new(
        "a CPF that is drained during a procedure of its UE",
        idle,
        |net, ue| {
            let serves = net.known(ue).and_then(|p| net.cta().served_by(p.id));
            net.command(ue, UeCommand::ServiceRequest);
            serves.into_iter().for_each(|cpf| net.drain_cpf(cpf));
        },
        |net, ue, _| net.ue_ref(ue).is_connected() && all_flow(net, ue),
    ),
    ProcedureCase::new(
        "a CPF that joins during a procedure",
        idle,
        |net, ue| {
            net.command(ue, UeCommand::ServiceRequest);
            net.add_cpf();
        },
        |net, ue, _| net.ue_ref(ue).is_connected() && all_flow(net, ue),
    ),
];

fn has_flow(net: &Sim, ue: UeIndex, _: &UeSnapshot) -> bool {
    net.known(ue).is_some_and(|p| flows(p) == 1)
}

/// To one of those that could, by the time.
fn change_cpf(net: &mut Sim, ue: UeIndex) {
    let Some(context) = net.known(ue).map(|p| p.id) else { return }; // it is being taken over
    let others: Vec<_> = net.members().filter(|cpf| net.cta().served_by(context) != Some(*cpf)).collect();
    let nth = net.now().0 as usize % others.len().max(1);
    if let Some(&cpf) = others.get(nth) {
        net.move_context(context, cpf);
    }
}
