//! The identity of a gNB that is up: TS 38.413 §8.7.1, §9.3.1.5. Cells broadcast the identity, so it matters where NG SETUP comes from.

use std::net::IpAddr;
use std::time::Duration;

use crate::common::*;
use whimbrel_control::RanEvent;
use whimbrel_control::config::{AllowedGnb, IpPrefix};
use whimbrel_control::event::SetupRefusal;
use whimbrel_ids::{GlobalGnbId, PlmnId};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{CauseMisc, CauseProtocol, GlobalRanNodeId, ResetAll, ResetType, TimeToWait};
use whimbrel_ngap::msg::{NgReset, RanConfigurationUpdate};
use whimbrel_ran::gnb::Event as GnbEvent;
use whimbrel_ran::ue::UeCommand;
use whimbrel_sim::{CtaLoss, GnbIndex, Sim, UeIndex, default_config, ue_config};

const HOLDER: GnbIndex = GnbIndex(0);

fn id(n: u32) -> GlobalGnbId {
    GlobalGnbId::new(PlmnId::TEST, n, 28).expect("28 bits")
}

fn address(last: u8) -> IpAddr {
    [192, 0, 2, last].into()
}

/// A gNB at these addresses with two UEs.
fn holder_at(net: &mut Sim, addresses: &[u8]) {
    net.add_gnb_at(gnb_config(1), addresses.iter().copied().map(address).collect());
    net.settle(SECOND);
    for n in 0..2 {
        let ue = net.add_ue(HOLDER, ue_config(n));
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
    }
    assert_eq!(connected(net), 2);
}

/// UEs that are connected over the association of the first gNB, as the core and they see it.
fn connected(net: &Sim) -> usize {
    let both = |n: usize| registered(net, UeIndex(n)) && net.ue_ref(UeIndex(n)).is_connected();
    (0..2).filter(|n| both(*n)).count()
}

/// A newcomer under the identity of the first gNB, from this address.
fn newcomer(net: &mut Sim, from: u8) -> GnbIndex {
    net.add_gnb_at(gnb_config(1), vec![address(from)])
}

fn refusals(net: &Sim) -> Vec<SetupRefusal> {
    let why = |e: &RanEvent| match e {
        RanEvent::SetupRefused { why, .. } => Some(why.clone()),
        _ => None,
    };
    net.events.ran.iter().filter_map(why).collect()
}

fn has(net: &Sim, what: fn(&RanEvent) -> bool) -> bool {
    net.events.ran.iter().any(what)
}

#[test] // TS 38.413 §8.7.1.4: the gNB is alive, so a newcomer from another address is refused with a time to wait, and no UE notices
fn an_attacker_at_another_address_does_not_get_the_identity_of_a_gnb_that_lives() {
    let mut net = network(1);
    holder_at(&mut net, &[1]);
    let attacker = newcomer(&mut net, 66);
    net.settle(SECOND);
    assert!(net.gnb_ref(HOLDER).is_up() && !net.gnb_ref(attacker).is_up());
    assert!(matches!(refusals(&net)[..], [SetupRefusal::IdentityInUse { .. }]));
    let answer = net.events.gnbs.iter().find_map(|(gnb, e)| match e {
        GnbEvent::SetupFailed(m) if *gnb == attacker => Some(m.clone()),
        _ => None,
    });
    let answer = answer.expect("NG SETUP FAILURE");
    let cause = CauseProtocol::MessageNotCompatibleWithReceiverState.into();
    assert_eq!((answer.cause, answer.time_to_wait), (cause, Some(TimeToWait::V10s)));
    // It tries again and again, and lists the address of the gNB as one of its own.
    let boaster = net.add_gnb_at(gnb_config(1), vec![address(67), address(1)]);
    net.advance(Duration::from_secs(35));
    // An association without NG SETUP is aborted after 30 s; they connect again.
    assert_eq!(net.events.ran.iter().filter(|e| matches!(e, RanEvent::NeverSetUp { .. })).count(), 2);
    [attacker, boaster].into_iter().for_each(|gnb| net.restart_gnb(gnb));
    net.advance(Duration::from_secs(25));
    assert!(net.gnb_ref(HOLDER).is_up() && !net.gnb_ref(attacker).is_up() && !net.gnb_ref(boaster).is_up());
    assert!(refusals(&net).len() > 6, "it is refused each time");
    assert!(!has(&net, |e| matches!(e, RanEvent::SameIdentity { .. })));
    let held = net.cta().ran_nodes().find(id(1)).and_then(|a| net.cta().ran_nodes().get(a).cloned());
    assert!(held.is_some_and(|n| n.gnb == Some(id(1))));
    assert_eq!(net.cta().ran_nodes().addresses(id(1)), [address(1)]);
    assert_eq!(net.cta().contexts().filter(|c| c.amf.registered).count(), 2);
}

#[test] // TS 23.527 §6.2.2: it crashed, and its host with it; it comes back under a new address
fn a_gnb_that_crashed_gets_its_identity_at_a_new_address_when_the_former_one_is_silent() {
    let mut net = network(2);
    holder_at(&mut net, &[1]);
    net.silence_gnb(HOLDER);
    let began = net.now();
    let back = newcomer(&mut net, 2);
    net.advance(Duration::from_millis(2_900));
    assert!(!net.gnb_ref(back).is_up(), "the former one has 3 s for a sign of life");
    net.advance(Duration::from_millis(2_100));
    assert!(net.gnb_ref(back).is_up(), "it is answered within 5 s");
    assert!(net.now() <= began + Duration::from_secs(5));
    assert!(has(&net, |e| matches!(e, RanEvent::HolderSilent { .. })));
    assert!(has(&net, |e| matches!(e, RanEvent::SameIdentity { .. })));
    assert_eq!(net.cta().ran_nodes().addresses(id(1)), [address(2)]);
}

#[test] // a new pod is up while the old one still drains: it waits until that one has gone, and no UE of it is cut off
fn a_new_gnb_waits_while_the_old_one_drains() {
    let mut net = network(3);
    holder_at(&mut net, &[1]);
    let pod = newcomer(&mut net, 2);
    net.advance(Duration::from_secs(15));
    assert!(!net.gnb_ref(pod).is_up());
    assert_eq!(net.cta().contexts().filter(|c| c.amf.registered).count(), 2);
    net.disconnect(HOLDER);
    net.advance(Duration::from_secs(11));
    assert!(net.gnb_ref(pod).is_up(), "it tries again after its time to wait, and the identity is free");
    assert!(!has(&net, |e| matches!(e, RanEvent::SameIdentity { .. })));
}

#[test] // the old one ends while it is probed: no gNB has to wait for the end of that
fn an_identity_whose_holder_goes_while_it_is_probed_is_given_at_once() {
    let mut net = network(4);
    holder_at(&mut net, &[1]);
    net.silence_gnb(HOLDER);
    let pod = newcomer(&mut net, 2);
    net.advance(Duration::from_millis(600));
    net.disconnect(HOLDER);
    net.advance(Duration::from_millis(300));
    assert!(net.gnb_ref(pod).is_up());
}

#[test] // RFC 9260 §6.4: each address of a multi-homed gNB is its own
fn a_gnb_with_two_addresses_comes_back_from_either_at_once() {
    let mut net = network(5);
    holder_at(&mut net, &[1, 2]);
    net.silence_gnb(HOLDER);
    let back = newcomer(&mut net, 2);
    net.advance(SECOND / 2);
    assert!(net.gnb_ref(back).is_up());
    assert!(!has(&net, |e| matches!(e, RanEvent::IdentityClaimed { .. })));
}

#[test] // an attacker has the identity before the gNB comes: the operator disconnects it, and the gNB comes first
fn an_attacker_that_came_first_is_disconnected_by_the_operator() {
    let mut net = network(6);
    let attacker = net.add_gnb_at(gnb_config(1), vec![address(66)]);
    net.settle(SECOND);
    let own = newcomer(&mut net, 1);
    net.advance(SECOND);
    assert!(net.gnb_ref(attacker).is_up() && !net.gnb_ref(own).is_up(), "it lives");
    assert!(matches!(refusals(&net)[..], [SetupRefusal::IdentityInUse { .. }]));
    assert!(net.disconnect_gnb(id(1)));
    assert!(!net.disconnect_gnb(id(1)), "it is not up any more");
    net.restart_gnb(attacker); // it is faster
    net.advance(SECOND);
    assert!(!net.gnb_ref(attacker).is_up(), "its address does not get the identity");
    assert!(refusals(&net).contains(&SetupRefusal::Disconnected));
    net.advance(Duration::from_secs(10));
    assert!(net.gnb_ref(own).is_up(), "the gNB tries again after its time to wait");
    net.advance(Duration::from_secs(120));
    assert!(net.gnb_ref(own).is_up() && !net.gnb_ref(attacker).is_up());
}

#[test] // the list of gNBs and their networks: one that is listed for another network is refused, as is one that is not listed
fn a_listed_gnb_sets_up_from_its_networks_alone() {
    let mut config = default_config();
    let network = IpPrefix { address: [192, 0, 2, 0].into(), length: 26 };
    config.amf.gnbs = vec![AllowedGnb { plmn: PlmnId::TEST, gnb_id: 1, networks: vec![network] }];
    let mut net = Sim::builder(7).config(config).build();
    let outside = newcomer(&mut net, 66);
    net.settle(SECOND);
    assert!(!net.gnb_ref(outside).is_up());
    let other = net.add_gnb_at(gnb_config(2), vec![address(1)]);
    net.settle(SECOND);
    assert!(!net.gnb_ref(other).is_up());
    assert_eq!(refusals(&net), [SetupRefusal::OutsideNetworks, SetupRefusal::NotListed]);
    let causes = net.events.gnbs.iter().filter_map(|(_, e)| match e {
        GnbEvent::SetupFailed(m) => Some(m.cause.clone()),
        _ => None,
    });
    assert!(causes.eq([CauseMisc::Unspecified.into(), CauseMisc::Unspecified.into()]));
    for from in [1, 63] {
        let inside = newcomer(&mut net, from);
        net.settle(SECOND / 2);
        assert!(net.gnb_ref(inside).is_up(), "it needs no proof but its network");
    }
    assert!(!has(&net, |e| matches!(e, RanEvent::IdentityClaimed { .. })));
}

#[test] // TS 38.412 §7, TS 38.413 §8.7.2.2: a host that joins a gNB by a further association could reset all its connections
fn a_further_association_comes_from_where_its_gnb_is() {
    let mut net = network(8);
    holder_at(&mut net, &[1]);
    let other = net.add_gnb_at(gnb_config(2), vec![address(66)]);
    net.take_over(other);
    net.restart_gnb(other);
    let mut update = RanConfigurationUpdate::new();
    update.global_ran_node_id = Some(GlobalRanNodeId::GlobalGnbId(id(1)));
    net.inject(other, &Message::from(update).to_vec());
    net.settle(SECOND / 2);
    let answers = net.take_ngap(other);
    assert!(matches!(answers[..], [Message::RanConfigurationUpdateFailure(_)]), "{answers:?}");
    let all = ResetType::NgInterface(ResetAll::ResetAll);
    net.inject(other, &Message::from(NgReset::new(CauseMisc::Unspecified.into(), all)).to_vec());
    net.settle(SECOND / 2);
    assert_eq!(net.cta().ran_nodes().siblings(net.cta().ran_nodes().find(id(1)).expect("up")).len(), 1);
    assert_eq!(connected(&net), 2, "no connection was reset");
}

#[test] // a CTA is lost while a holder is probed: under its replica the gNB that lives keeps its identity, too, and one that is silent loses it
fn a_probe_outlasts_a_takeover() {
    for lives in [true, false] {
        let mut net = Sim::builder(9).cpfs(2, 1).cta_replica().build();
        holder_at(&mut net, &[1]);
        if !lives {
            net.silence_gnb(HOLDER);
        }
        let back = newcomer(&mut net, 2);
        net.lose_cta_at(net.inputs_taken() + 3, CtaLoss::AfterReplication);
        net.advance(Duration::from_secs(20));
        assert_eq!(net.takeovers(), 1);
        assert!(has(&net, |e| matches!(e, RanEvent::IdentityClaimed { .. })));
        assert_eq!(net.gnb_ref(back).is_up(), !lives);
        if lives {
            assert!(net.gnb_ref(HOLDER).is_up());
            assert!(!has(&net, |e| matches!(e, RanEvent::SameIdentity { .. })));
            // Their connections were released for want of use meanwhile; they come back.
            (0..2).for_each(|n| net.command(UeIndex(n), UeCommand::ServiceRequest));
            net.settle(SECOND);
            assert_eq!(connected(&net), 2);
        }
    }
}

#[test] // one host cannot take all places before NG SETUP, nor those of gNBs
fn one_host_does_not_keep_gnbs_out() {
    let mut config = default_config();
    (config.limits.ran_nodes_waiting, config.limits.ran_nodes) = (8, 8);
    let mut net = Sim::builder(10).config(config).build();
    net.add_gnb_at(gnb_config(1), vec![address(1)]);
    net.settle(SECOND);
    for n in 0..20 {
        net.add_gnb_at(gnb_config(100 + n), vec![address(66)]);
        net.settle(SECOND / 10);
    }
    assert!(net.gnb_ref(HOLDER).is_up(), "it has its place");
    assert!(refusals(&net).contains(&SetupRefusal::Limit(8)), "one source does not push itself out");
    let own = net.add_gnb_at(gnb_config(2), vec![address(2)]);
    net.settle(SECOND);
    assert!(net.gnb_ref(HOLDER).is_up() && net.gnb_ref(own).is_up(), "one of the other host has gone");
}
