//! Brings a UE into the state in which a procedure begins, from any state. No process is lost meanwhile.

use std::time::Duration;

use whimbrel_control::Command as CoreCommand;
use whimbrel_control::smf::{Modification, UpState};
use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::UeId as RanUe;
use whimbrel_ran::gnb;
use whimbrel_ran::ue::{MmState, SessionRequest, UeCommand};
use whimbrel_security::{Usim, UsimSqn};

use super::flows;
use crate::{GnbIndex, Sim, UeIndex, registered};

/// All that brings a UE somewhere is over by then: what is not sent again after that was given up.
const PATIENCE: Duration = Duration::from_secs(120);
const BRIEFLY: Duration = Duration::from_secs(8);
/// More would be another test than of procedures.
const SESSIONS_MAX: usize = 3;

/// A UE, by its gNB's name.
pub(super) fn ran_ue_id(ue: UeIndex) -> RanUe {
    RanUe(ue.0 as u32)
}

/// The gNB that it is not at.
pub(super) fn other_gnb(net: &Sim, ue: UeIndex) -> GnbIndex {
    GnbIndex(1 - net.gnb_of(ue).0)
}

/// Its first session.
pub(super) fn first(net: &Sim, ue: UeIndex) -> PduSessionId {
    net.ue_ref(ue).sessions().map(|s| s.id).min().expect("it has a session")
}

/// A session of the default network.
pub(super) fn session(pdu_session_type: PduSessionType) -> UeCommand {
    UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type })
}

fn brought(net: &mut Sim, what: &str, is_there: impl Fn(&Sim) -> bool) {
    assert!(net.settle_until(PATIENCE, is_there), "{what}, and no process was lost: {}", net.trace_text());
}

pub(super) fn order(net: &mut Sim, ue: UeIndex, command: CoreCommand) {
    let context = net.known(ue).expect("it is registered").id;
    net.order(context, command);
}

pub(super) fn modify(net: &mut Sim, ue: UeIndex, modification: Modification) {
    let session = first(net, ue);
    order(net, ue, CoreCommand::ModifySession(session, modification));
}

/// It has left, and the core has forgotten it.
pub(super) fn gone(net: &mut Sim, ue: UeIndex) {
    leave(net, ue);
    // A release of its connection may have crossed its request: it has left then without anybody's knowing (TS 24.501 §5.5.2.2.6 c).
    if !net.settle_until(BRIEFLY, |net| is_gone(net, ue)) {
        register(net, ue);
        leave(net, ue);
    }
    brought(net, "it is forgotten", |net| is_gone(net, ue));
}

fn leave(net: &mut Sim, ue: UeIndex) {
    if net.ue_ref(ue).state() != MmState::Deregistered {
        net.command(ue, UeCommand::Deregister { switch_off: false });
    }
    brought(net, "it leaves", |net| net.ue_ref(ue).state() == MmState::Deregistered);
}

pub(super) fn is_gone(net: &Sim, ue: UeIndex) -> bool {
    let tmsi = net.ue_ref(ue).s_tmsi().map(|t| t.tmsi);
    // A UE that is registered for emergency services is known by its 5G-TMSI only.
    let known = |p: &whimbrel_control::UeContext| p.amf.emergency && p.amf.tmsi == tmsi;
    net.ue_ref(ue).state() == MmState::Deregistered && net.known(ue).is_none() && !net.contexts().any(known)
}

/// It has left, and its USIM has seen no challenge yet: the first one is too far ahead.
pub(super) fn gone_and_fresh(net: &mut Sim, ue: UeIndex) {
    gone(net, ue);
    let config = net.ue_ref(ue).config();
    let milenage = whimbrel_security::Milenage::new(&config.k, config.opc.clone());
    net.ue_mut(ue).insert(Usim::new(milenage, UsimSqn::default()));
}

/// It is registered, with its subscription.
pub(super) fn at_home(net: &mut Sim, ue: UeIndex) {
    if net.contexts().any(|p| p.amf.emergency) {
        gone(net, ue);
    }
    if !registered(net, ue) {
        register(net, ue);
    }
}

pub(super) fn register(net: &mut Sim, ue: UeIndex) {
    net.command(ue, UeCommand::Register);
    brought(net, "it registers", |net| registered(net, ue));
}

/// It is registered and has a connection.
pub(super) fn connected(net: &mut Sim, ue: UeIndex) {
    at_home(net, ue);
    if !net.ue_ref(ue).is_connected() {
        net.command(ue, UeCommand::ServiceRequest);
        brought(net, "it is served", |net| net.ue_ref(ue).is_connected());
    }
}

/// It is connected and has a session whose packets flow, and not so many that it cannot have more.
pub(super) fn with_session(net: &mut Sim, ue: UeIndex) {
    connected(net, ue);
    while net.ue_ref(ue).sessions().count() > SESSIONS_MAX {
        let (session, before) = (first(net, ue), net.ue_ref(ue).sessions().count());
        net.command(ue, UeCommand::ReleaseSession(session));
        brought(net, "a session ends", |net| net.ue_ref(ue).sessions().count() < before);
    }
    // The first request after a restart of the UPF may be what shows it; and the UPF may wait for an SMF that is gone.
    for _ in 0..5 {
        if net.ue_ref(ue).sessions().count() == 0 {
            net.command(ue, session(PduSessionType::Ipv4));
            net.settle_until(BRIEFLY, |net| net.ue_ref(ue).sessions().count() > 0);
        }
    }
    // A release of its connection may have crossed a request, which is repeated later than the next one was made (T3580).
    let is_there = |net: &Sim| net.ue_ref(ue).sessions().count() > 0 && !net.ue_ref(ue).awaits_session();
    brought(net, "it has a session", is_there);
    if !all_flow(net, ue) {
        net.command(ue, UeCommand::ServiceRequest);
        brought(net, "packets flow", |net| all_flow(net, ue));
    }
}

/// Whether packets of all its sessions flow.
pub(super) fn all_flow(net: &Sim, ue: UeIndex) -> bool {
    let context = net.ue_ref(ue);
    context.sessions().all(|s| context.has_user_plane(s.id))
}

/// Whether the core has deactivated the user plane of its first session.
pub(super) fn first_is_deactivated(net: &Sim, ue: UeIndex) -> bool {
    net.known(ue).is_some_and(|p| p.sessions[&first(net, ue)].up == UpState::Inactive)
}

/// The same with two sessions.
pub(super) fn with_two(net: &mut Sim, ue: UeIndex) {
    with_session(net, ue);
    if net.ue_ref(ue).sessions().count() < 2 {
        net.command(ue, session(PduSessionType::Ipv4));
        brought(net, "it has two sessions", |net| net.ue_ref(ue).sessions().count() == 2);
    }
}

/// It has a session and no connection.
pub(super) fn idle(net: &mut Sim, ue: UeIndex) {
    with_session(net, ue);
    go_idle(net, ue);
}

pub(super) fn go_idle(net: &mut Sim, ue: UeIndex) {
    net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
    brought(net, "it is idle", |net| {
        let connected = net.known(ue).is_some_and(whimbrel_control::UeContext::is_connected);
        !net.ue_ref(ue).is_connected() && !connected
    });
}

/// Its first session has no flow but the default one.
pub(super) fn without_flows(net: &mut Sim, ue: UeIndex) {
    with_session(net, ue);
    while net.known(ue).is_some_and(|p| flows(p) > 0) {
        let session = first(net, ue);
        net.command(ue, UeCommand::ReleaseSession(session));
        brought(net, "a session ends", |net| net.ue_ref(ue).sessions().all(|s| s.id != session));
        with_session(net, ue);
    }
}

/// It has the operator's.
pub(super) fn with_flow(net: &mut Sim, ue: UeIndex) {
    without_flows(net, ue);
    modify(net, ue, Modification::AddFlow(VOICE.parse().expect("a name")));
    brought(net, "it has a flow", |net| net.known(ue).is_some_and(|p| flows(p) == 1));
}

/// The name of the operator's flow.
pub(super) const VOICE: &str = "voice";

/// Its gNB has released the user plane of its first session.
pub(super) fn without_user_plane(net: &mut Sim, ue: UeIndex) {
    with_session(net, ue);
    let session = first(net, ue);
    net.gnb_input(net.gnb_of(ue), gnb::Input::LetSessionGo(ran_ue_id(ue), session));
    brought(net, "a user plane is deactivated", |net| first_is_deactivated(net, ue));
}
