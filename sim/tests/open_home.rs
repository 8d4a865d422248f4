//! Ordinary 3GPP UEs of brokers (class 2): the broker is the home network and authenticates them through the operator (TS 33.501
//! §6.1.3.2); and grants, which end.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use crate::open::{BROKER, config, fault, nas_of, replays};
use whimbrel_control::config::Config;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::open::Unreachable;
use whimbrel_control::refusal::BrokerFault;
use whimbrel_control::{Event as CoreEvent, Refusal};
use whimbrel_ids::Supi;
use whimbrel_nas::ie::MmCause;
use whimbrel_nas::mm;
use whimbrel_open::broker::Home;
use whimbrel_open::msg::Grant;
use whimbrel_ran::ue::{Reason, SessionRequest, SuciSource, UeCommand, UeConfig};
use whimbrel_security::{HomeNetworkKeys, Sqn, UsimSqn};
use whimbrel_sim::{BrokerLoss, BrokerState, CpfLoss, CtaLoss, Sim, UeIndex, home_key, home_plmn};
use whimbrel_user::{DnIndex, Origin};

/// The broker serves the ordinary UEs of [`home_plmn`].
fn home_config() -> Config {
    let mut config = config();
    let open = config.open.as_mut().expect("users of brokers are served");
    open.homes.insert(home_plmn(), BROKER.parse().expect("a domain"));
    config
}

/// A network, a broker, and an ordinary UE of that broker's.
fn populate(mut net: Sim, change: impl FnOnce(&mut UeConfig)) -> (Sim, UeIndex) {
    net.add_broker(BROKER);
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_home_ue(gnb, 1, BROKER, change);
    net.settle(SECOND / 10);
    (net, ue)
}

fn one_guest_as(seed: u64, change: impl FnOnce(&mut UeConfig)) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).config(home_config()).build();
    net.recorder().on = true;
    populate(net, change)
}

fn one_guest(seed: u64) -> (Sim, UeIndex) {
    one_guest_as(seed, |_| {})
}

fn conceals(config: &mut UeConfig) {
    config.suci = SuciSource::Concealed { key: Arc::new(home_key().public_key()), key_id: 1, seed: [5; 32] };
}

fn only_grant(net: &Sim) -> Grant {
    assert_eq!(net.granted().len(), 1);
    net.granted().values().next().expect("one").clone()
}

fn supi(net: &Sim, ue: UeIndex) -> Supi {
    net.ue_ref(ue).config().supi
}

#[test] // TS 33.501 §6.1.3.2: 5G-AKA; step 7 to 12 of the home network, which is the broker
fn an_ordinary_ue_of_a_broker_registers_by_5g_aka_with_the_broker_as_its_home() {
    for (change, seed) in [((|_| {}) as fn(&mut UeConfig), 1), (conceals, 2)] {
        let (mut net, ue) = one_guest_as(seed, change);
        net.tap();
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
        assert_eq!(net.asked(BROKER), 2, "a challenge, and the key for the response");
        let grant = only_grant(&net);
        assert!(grant.is_of_ordinary_ue() && grant.credit_micros == 2_000);
        let sent = nas_of(&net.tapped());
        let challenged = |m: &mm::Message| matches!(m, mm::Message::AuthenticationRequest(_));
        assert_eq!(sent.iter().filter(|m| challenged(m)).count(), 1);
        let plain = |m: &mm::Message| matches!(m, mm::Message::SecurityModeCommand(m) if m.eap_message.is_none() && m.imeisv_request.is_some());
        assert!(sent.iter().any(plain), "the UE sees what it sees everywhere");
        assert!(
            core_events(&net).any(|e| matches!(e, CoreEvent::Granted { broker, .. } if broker == BROKER))
        );
        no_violations(&net);
        replays(&mut net);
    }
}

#[test] // the QoS of the grant, and every procedure of a UE's life
fn an_ordinary_ue_of_a_broker_is_served_as_any_other() {
    let (mut net, ue) = one_guest(3);
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    let sessions: Vec<_> = net.ue_ref(ue).sessions().collect();
    assert_eq!((sessions.len(), sessions[0].ambr_kbps), (1, (50_000, 20_000)));
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(SECOND);
    assert!(registered(&net, ue) && net.asked(BROKER) == 2, "the keys in force are proof enough");
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    assert_eq!((net.cta().occupancy(), net.upf_sessions(), net.cta().registered()), ((0, 0), 0, 0));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue) && net.granted().len() == 2, "another registration, another grant");
    no_violations(&net);
    replays(&mut net);
}

#[test] // TS 33.501 §6.1.2: the SEAF may ask by SUPI
fn an_ordinary_ue_that_is_known_is_authenticated_again_by_its_supi() {
    let mut config = home_config();
    config.amf.access.authentication.every_registrations = Some(1);
    let (mut net, ue) = populate(Sim::builder(4).config(config).build(), conceals);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    for _ in 0..2 {
        net.command(ue, UeCommand::PeriodicRegistration);
        net.settle(SECOND);
    }
    assert!(registered(&net, ue) && net.asked(BROKER) == 4, "{} questions", net.asked(BROKER));
    let sent = nas_of(&net.tapped());
    assert!(!sent.iter().any(|m| matches!(m, mm::Message::IdentityRequest(_))));
    assert_eq!(net.cta().registered(), 1);
    no_violations(&net);
}

#[test] // TS 33.102 §6.3.5, TS 24.501 §5.4.1.3.7 f
fn a_usim_that_is_ahead_of_its_broker_is_resynchronised() {
    let (mut net, ue) = one_guest_as(5, |config| {
        let mut sqn = UsimSqn::default();
        (0..32).for_each(|ind| sqn.accept(Sqn::new(500 + u64::from(ind), ind)).expect("it is fresh"));
        config.sqn = sqn;
    });
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(registered(&net, ue), "{:?}", net.ue_events(ue));
    assert_eq!((net.asked(BROKER), net.granted().len()), (3, 1), "two challenges and a response");
    let supi = supi(&net, ue);
    assert!(net.broker_mut(BROKER).home_user(supi).expect("a user").sqn.seq() > 531);
    no_violations(&net);
    replays(&mut net);
}

#[test] // TS 24.501 §5.4.1.3.5: RES* is wrong
fn a_ue_that_does_not_prove_its_key_gets_no_grant() {
    let (mut net, ue) = one_guest(6);
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(matches!(first_refusal(&net), Some(Refusal::WrongResponse)), "{:?}", first_refusal(&net));
    assert_eq!((net.asked(BROKER), net.granted().len()), (1, 0), "HXRES* has shown it");
}

#[test] // TS 24.501 §5.5.1.2.5: cause #3; the UE is one that has never heard of brokers
fn what_a_broker_refuses_an_ordinary_ue_is_rejected_without_an_eap_message() {
    let (mut net, ue) = one_guest(7);
    let (supi, broker) = (supi(&net, ue), net.broker_mut(BROKER));
    let mut user = broker.home_user(supi).expect("a user").clone();
    user.revoked = true;
    broker.set_home_user(supi, user);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::IllegalUe)));
    let plain = |m: &mm::Message| matches!(m, mm::Message::RegistrationReject(m) if m.eap_message.is_none());
    assert!(nas_of(&net.tapped()).iter().any(plain));
    assert!(matches!(fault(&net), BrokerFault::Refused(refused) if !refused.of_operator));
}

#[test] // TS 24.501 §5.5.1.2.5, cause #11 of a home network that is not served
fn ues_of_a_home_network_that_is_not_listed_are_refused_without_a_question() {
    let (mut net, ue) = populate(Sim::builder(8).config(config()).build(), |_| {});
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(matches!(first_refusal(&net), Some(Refusal::OtherHomeNetwork(plmn)) if plmn == home_plmn()));
    assert_eq!(net.asked(BROKER), 0);
}

#[test] // a UE of class 3 is never made to fall back to class 2
fn a_sap_ue_is_never_challenged() {
    let (mut net, _) = one_guest(9);
    let gnb = net.gnb_of(UeIndex(0));
    let sap = net.add_sap_ue(gnb, 2, BROKER);
    net.broker_mut(BROKER).config.policy.operators = Some([].into());
    net.tap();
    net.command(sap, UeCommand::Register);
    net.settle(SECOND * 30);
    let sent = nas_of(&net.tapped());
    let falls_back = |m: &mm::Message| {
        matches!(m, mm::Message::AuthenticationRequest(_) | mm::Message::IdentityRequest(_))
    };
    assert!(!sent.is_empty() && !sent.iter().any(falls_back), "{sent:?}");
}

#[test]
fn a_broker_that_is_silent_between_challenge_and_response_costs_ten_seconds() {
    let (mut net, ue) = one_guest(10);
    net.lose_broker_at(BROKER, 2, BrokerLoss::Before);
    net.command(ue, UeCommand::Register);
    net.advance(SECOND);
    net.set_broker(BROKER, BrokerState::Silent);
    net.advance(SECOND * 11);
    assert_eq!(fault(&net), BrokerFault::Unreachable(Unreachable::TimedOut));
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
    assert_eq!((net.granted().len(), net.cta().occupancy().0), (0, 0));
    replays(&mut net);
}

/// An attach, a session, and the end.
fn life(net: &mut Sim, ue: UeIndex, of: &dyn Fn() -> String) {
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 8);
    assert!(registered(net, ue), "{}: {:?}", of(), net.ue_events(ue));
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND * 8);
    assert_eq!(net.ue_ref(ue).sessions().count(), 1, "{}: {:?}", of(), net.ue_events(ue));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 8);
    assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0), "{}", of());
    assert_eq!(net.granted().len(), 1, "{}: one attach, one grant", of());
}

#[test] // Neutrino §4.2.5 with a question to a broker under way
fn a_cpf_lost_at_any_message_costs_an_ordinary_ue_of_a_broker_nothing() {
    let begin = || populate(Sim::builder(11).config(home_config()).cpfs(3, 1).build(), conceals);
    let taken = {
        let (mut net, ue) = begin();
        life(&mut net, ue, &|| "no loss".into());
        net.links_taken()
    };
    let mut taken_over = 0;
    for how in CpfLoss::ALL {
        for message in 1..=taken {
            let (mut net, ue) = begin();
            net.lose_cpf_at(message, how);
            life(&mut net, ue, &|| format!("{how:?} at message {message} of {taken}"));
            no_violations(&net);
            taken_over += net.cta().replication_counters().taken_over;
            assert_eq!(net.cta().replication_counters().diverged, 0);
        }
    }
    assert!(taken_over > taken / 2, "{taken_over} takeovers in {taken} messages");
}

#[test]
fn a_cta_lost_at_any_input_costs_an_ordinary_ue_of_a_broker_nothing() {
    let begin = || populate(Sim::builder(12).config(home_config()).cpfs(2, 1).cta_replica().build(), |_| {});
    let (before, taken) = {
        let (mut net, ue) = begin();
        let before = net.inputs_taken();
        life(&mut net, ue, &|| "no loss".into());
        (before, net.inputs_taken())
    };
    for how in CtaLoss::ALL {
        for input in before + 1..=taken {
            let (mut net, ue) = begin();
            net.lose_cta_at(input, how);
            life(&mut net, ue, &|| format!("{how:?} at input {input} of {before} to {taken}"));
        }
    }
}

#[test]
fn a_broker_lost_at_either_question_costs_its_ordinary_ue_seconds() {
    for how in BrokerLoss::ALL {
        for question in [1, 2] {
            let (mut net, ue) = one_guest(13);
            net.lose_broker_at(BROKER, question, how);
            life(&mut net, ue, &|| format!("{how:?} at question {question}"));
            no_violations(&net);
        }
    }
}

#[test] // a flood behind one gNB takes nothing from another
fn questions_to_brokers_are_limited_per_gnb_where_cpfs_are_their_own() {
    let mut config = home_config();
    config.open.as_mut().expect("served").questions_per_gnb = 2;
    let (mut net, first) = populate(Sim::builder(14).config(config).cpfs(2, 1).build(), |_| {});
    let gnb = net.gnb_of(first);
    let other = net.add_gnb(gnb_config(3));
    let flood: Vec<_> = (2..8).map(|n| net.add_sap_ue(gnb, n, BROKER)).collect();
    let elsewhere = net.add_sap_ue(other, 9, BROKER);
    net.settle(SECOND / 10);
    for ue in flood.iter().chain([&elsewhere]) {
        net.command(*ue, UeCommand::Register);
    }
    net.advance(SECOND);
    assert_eq!(net.asked(BROKER), 3, "two of one gNB, one of the other");
    assert!(net.ue_ref(elsewhere).sap_session().is_some());
    assert_eq!(net.cta().bounds().collect::<Vec<_>>(), [("questions_per_gnb", 4)]);
    net.settle(SECOND * 10);
    assert!(flood.iter().all(|ue| net.ue_ref(*ue).sap_session().is_some()), "they are asked for again");
}

fn deregistered(net: &Sim) -> Vec<DeregistrationReason> {
    let why = |e: &CoreEvent| match e {
        CoreEvent::Deregistered { why, .. } => Some(*why),
        _ => None,
    };
    core_events(net).filter_map(why).collect()
}

#[test] // TS 24.501 §5.5.2.3.1: re-registration required
fn a_grant_that_expires_ends_the_registration_and_another_may_follow() {
    for cpfs in [None, Some((3, 1))] {
        let builder = Sim::builder(15).config(home_config());
        let builder = match cpfs {
            Some((cpfs, replicas)) => builder.cpfs(cpfs, replicas),
            None => builder,
        };
        let (mut net, ue) = populate(builder.build(), |_| {});
        net.broker_mut(BROKER).config.policy.validity_s = 30;
        net.command(ue, UeCommand::Register);
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
        assert!(registered(&net, ue));
        net.advance(SECOND * 25);
        assert_eq!((deregistered(&net), net.granted().len()), (vec![], 1));
        net.broker_mut(BROKER).config.policy.validity_s = 24 * 3_600;
        net.advance(SECOND * 10);
        assert_eq!(deregistered(&net), [DeregistrationReason::GrantExpired]);
        assert!(registered(&net, ue) && net.granted().len() == 2, "the broker has decided again");
        assert_eq!(net.cta().registered(), 1);
        no_violations(&net);
    }
}

#[test] // TS 24.501 §5.3.7: it learns it when it comes
fn a_grant_of_an_idle_ue_that_expires_ends_its_registration_without_a_message() {
    let (mut net, ue) = one_guest(16);
    net.broker_mut(BROKER).config.policy.validity_s = 30;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.advance(SECOND * 35);
    assert_eq!(deregistered(&net), [DeregistrationReason::GrantExpired]);
    assert_eq!(net.cta().occupancy(), (0, 0));
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND * 5);
    assert!(registered(&net, ue) && net.granted().len() == 2, "{:?}", net.ue_events(ue));
    replays(&mut net);
}

#[test] // TS 23.502 §4.2.2.3.3: the sessions may be released before the UE answers
fn a_ue_that_does_not_answer_is_served_no_longer_than_its_credit_pays() {
    let (mut net, ue) = one_guest(18);
    let mut keys = HomeNetworkKeys::new();
    keys.insert(1, home_key());
    net.broker_mut(BROKER).set_home(Home { plmn: home_plmn(), keys, credit_micros: 50 });
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    net.ue_mut(ue).faults_mut().ignore.push((mm::MessageType::DeregistrationRequestUeTerminated, 10));
    let address = net.ue_ref(ue).sessions().next().and_then(|s| s.ipv4).expect("an address");
    let packet = whimbrel_sim::udp(address, &[7; 1_000]);
    for _ in 0..350 {
        net.packet(Origin::N6 { dn: DnIndex(0) }, &packet);
    }
    net.advance(SECOND);
    assert_eq!((deregistered(&net), net.upf_sessions()), (vec![], 0), "it is asked, and has no session");
    net.advance(SECOND * 60);
    assert_eq!(deregistered(&net), [DeregistrationReason::CreditUsedUp]);
    assert_eq!(net.cta().occupancy(), (0, 0));
}

#[test] // TS 29.244 §5.2.2.2: a volume threshold; T stops at the credit limit in the grant
fn a_credit_that_is_used_up_ends_the_registration() {
    let (mut net, ue) = one_guest(17);
    let mut keys = HomeNetworkKeys::new();
    keys.insert(1, home_key());
    // 200 millionths a MiB: 256 KiB.
    net.broker_mut(BROKER).set_home(Home { plmn: home_plmn(), keys, credit_micros: 50 });
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    let address = net.ue_ref(ue).sessions().next().and_then(|s| s.ipv4).expect("an address");
    let packet = whimbrel_sim::udp(address, &[7; 1_000]);
    let send = |net: &mut Sim, packets: usize| {
        for _ in 0..packets {
            net.packet(Origin::N6 { dn: DnIndex(0) }, &packet);
        }
        net.settle(SECOND);
    };
    send(&mut net, 200);
    let used = |net: &Sim| net.contexts().find_map(|c| c.grant.as_ref().map(|g| g.used));
    let (ul, dl) = used(&net).expect("a grant");
    assert!(ul == 0 && (128 << 10..=206_000).contains(&dl), "{dl} octets are reported");
    assert_eq!((deregistered(&net), net.granted().len()), (vec![], 1));
    send(&mut net, 150);
    assert_eq!(deregistered(&net), [DeregistrationReason::CreditUsedUp]);
    net.advance(Duration::from_secs(5));
    assert!(registered(&net, ue) && net.granted().len() == 2);
    assert_eq!(used(&net), Some((0, 0)), "another grant, another credit");
    no_violations(&net);
    replays(&mut net);
}
