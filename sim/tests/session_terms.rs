//! Sessions whose terms change while they stand, and that move to another anchor, over the whole network: TS 23.502 §4.3.3.2,
//! §4.3.5.2, §4.3.7.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::Command as CoreCommand;
use whimbrel_control::smf::{Modification, UpState};
use whimbrel_control::udm::{Ambr, Subscription};
use whimbrel_ids::{FiveQi, PduSessionId};
use whimbrel_nas::ie::{SmCause, SscMode};
use whimbrel_nas::mm::MessageType;
use whimbrel_ran::ue::{Event, SessionRequest, UeCommand};
use whimbrel_sim::{Faults, Sim, UeIndex, UpfState};

fn psi(n: u8) -> PduSessionId {
    PduSessionId::new(n).expect("1 to 15")
}

/// A UE with a session of this SSC mode, which it asks for and subscribes to.
fn with_session(seed: u64, mode: SscMode) -> (Sim, UeIndex) {
    let mut net = network(seed);
    net.home().subscribe(subscribed(mode));
    let gnb = net.add_gnb(gnb_config(1));
    let mut context = whimbrel_sim::ue_config(1);
    let mut profile = (*context.profile).clone();
    profile.ssc_mode = mode;
    context.profile = profile.into();
    let ue = net.add_ue(gnb, context);
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    assert_eq!(up(&net), [(1, UpState::Active)]);
    (net, ue)
}

fn subscribed(mode: SscMode) -> Subscription {
    let mut subscription = subscription();
    subscription.slices[0].dnns[0].ssc_mode = mode;
    subscription
}

/// The core's sessions.
fn up(net: &Sim) -> Vec<(u8, UpState)> {
    let sessions = net.cta().contexts().flat_map(|p| p.sessions.values());
    sessions.map(|s| (s.psi.value(), s.up)).collect()
}

/// The UE's sessions.
fn at_ue(net: &Sim, ue: UeIndex) -> Vec<u8> {
    net.ue_ref(ue).sessions().map(|s| s.id.value()).collect()
}

fn order(net: &mut Sim, modification: Modification) {
    let ue = net.cta().contexts().next().expect("a UE").id;
    net.order(ue, CoreCommand::ModifySession(psi(1), modification));
}

fn released_with(net: &Sim, ue: UeIndex) -> Option<SmCause> {
    net.ue_events(ue).iter().find_map(|(_, e)| match e {
        Event::SessionReleased { cause, .. } => *cause,
        _ => None,
    })
}

#[test] // TS 23.502 §4.3.5.2, TS 23.501 §5.6.9.2.3, §5.6.9.3: the successor first, then the former goes with its lifetime
fn the_successor_is_there_before_the_former_goes() {
    let (mut net, ue) = with_session(1, SscMode::Three);
    order(&mut net, Modification::Reanchor);
    net.settle(SECOND);
    assert_eq!(up(&net), [(1, UpState::Active), (2, UpState::Active)], "both carry packets");
    assert_eq!((at_ue(&net, ue), net.upf_sessions()), (vec![1, 2], 2));
    let addresses: Vec<_> =
        net.cta().contexts().flat_map(|p| p.sessions.values()).map(|s| s.address.ipv4).collect();
    assert_ne!(addresses[0], addresses[1]);
    net.advance(Duration::from_secs(118));
    assert_eq!(up(&net).len(), 2, "not before its time");
    net.advance(SECOND * 3);
    assert_eq!(up(&net), [(2, UpState::Active)]);
    assert_eq!((at_ue(&net, ue), net.upf_sessions()), (vec![2], 1));
    assert_eq!(released_with(&net, ue), Some(SmCause::RegularDeactivation));
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.5.2 step 5: the UE releases the former itself
fn the_ue_releases_the_former() {
    let (mut net, ue) = with_session(2, SscMode::Three);
    order(&mut net, Modification::Reanchor);
    net.settle(SECOND);
    net.command(ue, UeCommand::ReleaseSession(psi(1)));
    net.settle(Duration::from_secs(300));
    assert_eq!(at_ue(&net, ue), [2]);
    assert_eq!(up(&net), [(2, UpState::Active)]);
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.5.2: an idle UE is woken, and moves
fn an_idle_ue_moves() {
    let (mut net, ue) = with_session(3, SscMode::Three);
    go_idle(&mut net, ue);
    order(&mut net, Modification::Reanchor);
    net.settle(SECOND * 5);
    assert_eq!(at_ue(&net, ue), [1, 2]);
    net.settle(Duration::from_secs(130));
    assert_eq!(at_ue(&net, ue), [2]);
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.5.2: the new session is refused: the former one ends all the same, and the UE gets the cause to request a new one
fn no_successor_can_be_had() {
    let (mut net, ue) = with_session(4, SscMode::Three);
    net.home().subscribe(Subscription { slices: Vec::new(), ..subscription() });
    net.set_upf(UpfState::Silent);
    order(&mut net, Modification::Reanchor);
    net.settle(SECOND * 8);
    assert_eq!(at_ue(&net, ue), [1], "the former stands");
    net.set_upf(UpfState::Answering);
    net.settle(Duration::from_secs(130));
    assert_eq!(released_with(&net, ue), Some(SmCause::ReactivationRequested));
    assert!(up(&net).is_empty() && at_ue(&net, ue).is_empty());
}

#[test] // TS 24.501 §6.3.2.5 a: the command is lost and sent again; the successor is one
fn the_command_is_lost_once() {
    let (mut net, ue) = with_session(5, SscMode::Three);
    net.ue_mut(ue).faults_mut().ignore.push((MessageType::DlNasTransport, 1));
    order(&mut net, Modification::Reanchor);
    net.settle(Duration::from_secs(40));
    assert_eq!(at_ue(&net, ue), [1, 2]);
    no_violations(&net);
}

#[test] // TS 24.501 §5.4.5.2.5 #65: the successor has room beside the sessions that a UE may have
fn the_successor_is_one_more() {
    let mut config = whimbrel_sim::default_config();
    config.limits.sessions_per_ue = 1;
    let (mut net, ue) = with_session(6, SscMode::Three);
    net.configure(config);
    order(&mut net, Modification::Reanchor);
    net.settle(SECOND);
    assert_eq!(at_ue(&net, ue), [1, 2]);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    assert_eq!(at_ue(&net, ue), [1, 2], "and no other has");
}

#[test] // TS 23.502 §4.3.3.2 step 1c: the subscription's AMBR and 5QI reach the UE, whether it is there or idle
fn another_subscription_reaches_the_ue() {
    for idle in [false, true] {
        let (mut net, ue) = with_session(7, SscMode::One);
        if idle {
            go_idle(&mut net, ue);
        }
        let mut other = subscription();
        let dnn = &mut other.slices[0].dnns[0];
        (dnn.session_ambr, dnn.five_qi) = (Ambr { ul_kbps: 300, dl_kbps: 400 }, FiveQi(7));
        net.home().subscribe(other);
        let supi = net.ue_ref(ue).config().supi;
        net.subscriber_changed(supi);
        net.settle(SECOND * 5);
        let session = net.ue_ref(ue).sessions().next().expect("a session");
        assert_eq!(session.ambr_kbps, (400, 300), "idle: {idle}");
        let core = net.cta().contexts().flat_map(|p| p.sessions.values()).next().expect("a session");
        assert_eq!(
            (core.qos.five_qi, core.qos.ambr.dl_kbps, core.qos.pending_change.is_none()),
            (FiveQi(7), 400, true)
        );
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.3.4.2 step 1b: a data network that the operator takes away ends its sessions, of UEs that are idle too
fn a_data_network_is_taken_away() {
    for idle in [false, true] {
        let (mut net, ue) = with_session(8, SscMode::One);
        if idle {
            go_idle(&mut net, ue);
        }
        let mut config = whimbrel_sim::default_config();
        config.smf.data_networks.retain(|dnn, _| dnn.as_str() != "internet");
        net.configure(config);
        net.settle(SECOND);
        assert!(up(&net).is_empty() && net.upf_sessions() == 0);
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(SECOND);
        assert!(at_ue(&net, ue).is_empty());
        assert!(registered(&net, ue));
        no_violations(&net);
    }
}

#[test] // TS 23.502 §4.3.7, §4.2.3.2 connected: one session's user plane goes, the other's stays; the UE has it set up again
fn one_user_plane_of_two_is_deactivated() {
    let (mut net, ue) = with_session(9, SscMode::One);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    order(&mut net, Modification::Deactivate);
    net.settle(SECOND);
    assert_eq!(up(&net), [(1, UpState::Inactive), (2, UpState::Active)]);
    assert!(!net.ue_ref(ue).has_user_plane(psi(1)) && net.ue_ref(ue).has_user_plane(psi(2)));
    assert!(net.ue_ref(ue).is_connected());
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(up(&net), [(1, UpState::Active), (2, UpState::Active)]);
    assert!(net.ue_ref(ue).has_user_plane(psi(1)));
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.2.2.1 step 17: the UPF knows the gNB's tunnel: the first downlink packet goes into it
fn the_first_downlink_packet() {
    let (mut net, _) = by_hand::two_gnbs(10, 1);
    let (sent_to, before) = by_hand::downlink(&mut net, 1);
    assert!(sent_to.is_some() && before.is_empty());
    assert_eq!(sent_to, by_hand::an(&net, 1));
}

#[test] // TS 24.501 §6.3.2.5 a, TS 38.413 §8.2.3.3: under losses all sides agree in the end
fn all_sides_agree_after_losses() {
    for seed in 20..26 {
        let (mut net, ue) = with_session(seed, SscMode::Three);
        net.set_faults(Faults { lost_per_mille: 200, ..Faults::default() });
        order(&mut net, Modification::Ambr(Ambr { ul_kbps: 500, dl_kbps: 700 }));
        order(&mut net, Modification::Reanchor);
        net.settle(Duration::from_secs(240));
        net.set_faults(Faults::default());
        net.command(ue, UeCommand::ServiceRequest);
        net.settle(Duration::from_secs(240));
        let core: Vec<u8> = up(&net).into_iter().map(|(n, _)| n).collect();
        assert_eq!((core.len(), core), (net.upf_sessions(), at_ue(&net, ue)), "seed {seed}");
    }
}
