//! Veiled UEs (LOCA, chapter 4.4.2): attach under a token, and what goes wrong on the way.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::common::*;
use crate::open::nas_of;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::open::Unreachable;
use whimbrel_control::refusal::BrokerFault;
use whimbrel_control::smf::Tunnel;
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Refusal, UeId, UpfId};
use whimbrel_ids::{Supi, Teid};
use whimbrel_nas::ie::MmCause;
use whimbrel_nas::mm;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_privacy::msg::{Answer, AnswerBody, RefusalCause};
use whimbrel_ran::ue::{MmState, Reason, SessionRequest, SuciSource, UeCommand};
use whimbrel_security::{Sqn, UsimSqn};
use whimbrel_sim::{
    BrokerLoss, BrokerState, CpfLoss, CtaLoss, GnbIndex, Sim, UeIndex, VEIL_BROKER, default_config,
    ue_config, veil_config,
};
use whimbrel_user::{Destination, DnIndex, Origin};

fn config() -> whimbrel_control::config::Config {
    let mut config = default_config();
    veil_config(&mut config);
    config
}

/// A network, the broker with a token that is broadcast, and a veiled UE.
fn populate(mut net: Sim) -> (Sim, UeIndex) {
    net.add_veil_broker();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_veil_ue(gnb, 1, false);
    net.settle(SECOND / 10);
    (net, ue)
}

fn one_veiled(seed: u64) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).config(config()).build();
    net.recorder().on = true;
    populate(net)
}

/// A veiled UE whose user has paid in advance.
fn one_prepaid(seed: u64) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).config(config()).build();
    net.add_veil_broker();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_veil_ue(gnb, 1, true);
    net.settle(SECOND / 10);
    (net, ue)
}

/// The name under which the UE is served, if both sides hold it registered under the same one.
fn served(net: &Sim, ue: UeIndex) -> Option<Supi> {
    let grant = &net.ue_ref(ue).veil_session()?.grant;
    let supi = Supi::from_nai(grant.pseudonym.0, grant.broker.as_str())?;
    let registered = net.ue_ref(ue).state() == MmState::Registered
        && net.contexts().any(|c| c.amf.registered && c.amf.supi == Some(supi));
    registered.then_some(supi)
}

fn fault(net: &Sim) -> BrokerFault {
    match first_refusal(net) {
        Some(Refusal::Broker { broker, why }) if broker == VEIL_BROKER => why,
        other => panic!("{other:?}"),
    }
}

fn replays(net: &mut Sim) {
    let config = net.config();
    let ues: BTreeSet<UeId> = net.recorder().contexts().map(|(ue, _)| ue).collect();
    let ran: usize = ues.into_iter().map(|ue| net.recorder().replay(ue, &config)).sum();
    assert!(ran > 0);
}

#[test] // chapter 4.4.2: one question to the broker, one challenge to the UE
fn a_veiled_ue_registers_with_one_question_and_one_challenge() {
    let (mut net, ue) = one_veiled(1);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let supi = served(&net, ue).expect("it is served");
    assert!(supi.to_string().ends_with("@veil.example"));
    assert_eq!((net.veil_asked(), net.veil_granted().len()), (1, 1));
    let downlink = nas_of(&net.tapped());
    let challenges = downlink.iter().filter(|m| matches!(m, mm::Message::AuthenticationRequest(_))).count();
    assert_eq!(challenges, 1);
    assert!(!downlink.iter().any(|m| matches!(m, mm::Message::IdentityRequest(_))));
    let command = downlink.iter().find_map(|m| match m {
        mm::Message::SecurityModeCommand(m) => Some(m),
        _ => None,
    });
    assert!(command.expect("SECURITY MODE COMMAND").imeisv_request.is_none());
    assert!(net.contexts().all(|c| c.amf.pei.is_none()), "the UE hides its equipment");
    no_violations(&net);
    replays(&mut net);
}

#[test] // chapter 4.4.3: every identifier of the core changes with each attach
fn all_identifiers_of_a_veiled_ue_change_at_each_attach() {
    let (mut net, ue) = one_veiled(2);
    let mut seen = BTreeSet::new();
    for attach in 0..3 {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND * 2);
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
        let supi = served(&net, ue).expect("it is served");
        let context = net.contexts().find(|c| c.amf.supi == Some(supi)).expect("its context");
        let session = context.sessions.values().next().expect("its session");
        let connection = context.amf.connection.as_ref().expect("connected");
        let ids = [
            format!("{supi}"),
            format!("tmsi {:?}", context.amf.tmsi.expect("a 5G-TMSI")),
            format!("amf {:?}", connection.amf_ue_ngap_id),
            format!("tunnel {:?}", session.n3.as_ref().expect("a tunnel").teid),
            format!("address {:?}", session.address.ipv4),
        ];
        for id in ids {
            assert!(seen.insert(id.clone()), "attach {attach}: {id} was used before");
        }
        net.command(ue, UeCommand::Deregister { switch_off: false });
        net.settle(SECOND * 6);
        net.rotate_token();
    }
    no_violations(&net);
}

#[test] // chapter 4.4.2, step i: UEs attach with the token that they heard, while its group is open
fn a_ue_that_heard_the_token_before_is_served_until_its_group_ends() {
    let (mut net, ue) = one_veiled(3);
    let heard = net.ue_ref(ue).heard_token();
    net.rotate_token();
    net.ue_mut(ue).hear_token(heard);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(served(&net, ue).is_some());
    no_violations(&net);
}

#[test]
fn a_ue_whose_token_opens_no_group_is_refused_and_registers_with_the_next_one() {
    let (mut net, ue) = one_veiled(4);
    net.lose_groups();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(fault(&net), BrokerFault::Unreachable(Unreachable::NoToken));
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
    assert_eq!(net.veil_asked(), 0, "nothing leaves without a token");
    net.rotate_token();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 2);
    assert!(served(&net, ue).is_some(), "{:?}", net.ue_events(ue));
    replays(&mut net);
}

#[test] // TS 24.501 §5.4.1.2.2: T3560
fn the_challenge_of_a_veiled_ue_is_repeated() {
    use mm::MessageType;
    for lost in [
        MessageType::AuthenticationRequest,
        MessageType::SecurityModeCommand,
        MessageType::RegistrationAccept,
    ] {
        let (mut net, ue) = one_veiled(5);
        net.ue_mut(ue).faults_mut().ignore.push((lost, 1));
        net.command(ue, UeCommand::Register);
        net.settle(Duration::from_secs(8));
        assert!(served(&net, ue).is_some() && net.veil_asked() == 1, "{lost:?}");
        no_violations(&net);
        replays(&mut net);
    }
}

#[test] // chapter 4.4.2, step v: without the UE's response the operator has no key
fn a_wrong_response_ends_the_attach() {
    let (mut net, ue) = one_veiled(6);
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(served(&net, ue).is_none());
    assert_eq!(first_refusal(&net), Some(Refusal::WrongResponse));
    assert!(!core_events(&net).any(|e| matches!(e, CoreEvent::VeilGranted { .. })), "nothing to bill");
    replays(&mut net);
}

#[test]
fn a_refusal_of_the_broker_reaches_its_veiled_user_and_names_no_user() {
    let (mut net, ue) = one_veiled(7);
    let SuciSource::Veil(card) = &net.ue_ref(ue).config().suci else { panic!("it has a SIM") };
    let user = card.sim.user;
    net.veil_broker_mut().revoke_user(user);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let BrokerFault::Refused(refused) = fault(&net) else { panic!("{:?}", fault(&net)) };
    assert_eq!(refused.cause, RefusalCause::User.to_string());
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::IllegalUe)));
}

#[test] // less than T3510 (TS 24.501 Table 10.2.1)
fn a_broker_of_veiled_ues_that_is_silent_or_slow() {
    let (mut net, ue) = one_veiled(8);
    net.set_veil_broker(BrokerState::Silent);
    net.command(ue, UeCommand::Register);
    net.advance(SECOND * 11);
    assert_eq!(fault(&net), BrokerFault::Unreachable(Unreachable::TimedOut));
    let (mut net, ue) = one_veiled(9);
    net.set_veil_broker(BrokerState::Slow(Duration::from_secs(4)));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 9);
    assert!(served(&net, ue).is_some());
    assert_eq!((net.veil_asked(), net.veil_granted().len()), (2, 1), "asked twice, granted once");
    no_violations(&net);
}

#[test]
fn veiled_ues_are_refused_where_they_are_not_served() {
    let (mut net, ue) = populate(Sim::builder(10).build());
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!((fault(&net), net.veil_asked()), (BrokerFault::NotServed, 0));
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::PlmnNotAllowed)));
}

/// An attach, a session, and the end.
fn life(net: &mut Sim, ue: UeIndex, of: &dyn Fn() -> String) {
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 8);
    assert!(served(net, ue).is_some(), "{}: {:?}", of(), net.ue_events(ue));
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND * 8);
    assert_eq!(net.ue_ref(ue).sessions().count(), 1, "{}: {:?}", of(), net.ue_events(ue));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 8);
    assert_eq!((net.cta().occupancy(), net.upf_sessions()), ((0, 0), 0), "{}", of());
    assert_eq!(net.veil_granted().len(), 1, "{}: one attach, one grant", of());
}

#[test] // Neutrino §4.2.5 with a question to a broker under way
fn a_cpf_lost_at_any_message_costs_a_veiled_ue_nothing() {
    let begin = || populate(Sim::builder(11).config(config()).cpfs(3, 1).build());
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
fn a_cta_lost_at_any_input_costs_a_veiled_ue_nothing() {
    let begin = || populate(Sim::builder(12).config(config()).cpfs(2, 1).cta_replica().build());
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
            // What the CTA replica does not know to have left is sent again, and gNBs say that they know it already.
            if !matches!(how, CtaLoss::AfterOutput | CtaLoss::BeforeReplication) {
                no_violations(&net);
            }
        }
    }
}

#[test]
fn a_broker_of_veiled_ues_lost_at_its_question_costs_its_ue_seconds() {
    for how in BrokerLoss::ALL {
        let (mut net, ue) = one_veiled(13);
        net.lose_veil_broker_at(1, how);
        life(&mut net, ue, &|| format!("{how:?}"));
        no_violations(&net);
    }
}

#[test] // the broker's half of the secret and the ephemeral key are erased when the attach completes
fn what_leads_to_the_keys_of_a_veiled_attach_is_gone_when_the_attach_completes() {
    let begin = || populate(Sim::builder(14).config(config()).cpfs(2, 1).build());
    let holds = |net: &mut Sim| {
        let answer = Answer::parse(net.veil_last_answer().expect("it has answered")).expect("an answer");
        let AnswerBody::Granted { orders, .. } = answer.0 else { panic!("it has granted") };
        let snapshot = net.snapshot().expect("the CTA has no replica");
        snapshot.octets().windows(orders.len()).any(|w| w == &orders[..])
    };
    let (mut net, ue) = begin();
    net.ue_mut(ue).faults_mut().ignore.push((mm::MessageType::AuthenticationRequest, 1));
    net.command(ue, UeCommand::Register);
    net.advance(SECOND);
    assert!(holds(&mut net), "the log leads through the attach as long as that lasts");
    let (mut net, ue) = begin();
    net.command(ue, UeCommand::Register);
    net.advance(SECOND);
    assert!(served(&net, ue).is_some() && !holds(&mut net), "the log is over");
}

#[test] // chapter 4.4.4: a prepaid user gets equal slices; an exact remainder would link sessions
fn a_prepaid_ue_whose_slice_is_used_up_registers_again_under_another_name() {
    let (mut net, ue) = one_prepaid(15);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let first = served(&net, ue).expect("it is served");
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
    send(&mut net, 500);
    assert_eq!(served(&net, ue), Some(first), "half of the slice is left");
    send(&mut net, 600);
    net.advance(Duration::from_secs(5));
    let second = served(&net, ue);
    assert!(second.is_some_and(|second| second != first), "{second:?}");
    let used_up =
        |e: &CoreEvent| matches!(e, CoreEvent::Deregistered { why: DeregistrationReason::CreditUsedUp, .. });
    assert!(core_events(&net).any(used_up));
    no_violations(&net);
}

#[test] // TS 23.527 §4.3: a session that the UPF gets again is metered as it was
fn the_session_of_a_prepaid_ue_is_metered_after_the_upf_has_restarted() {
    let (mut net, ue) = one_prepaid(17);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    let address = net.ue_ref(ue).sessions().next().and_then(|s| s.ipv4).expect("an address");
    net.advance(Duration::from_secs(5)); // recovery time stamps count seconds
    net.restart_nth_upf_with_its_key(UpfId(0));
    net.advance(Duration::from_secs(60));
    let packet = whimbrel_sim::udp(address, &[7; 1_000]);
    let sent: usize = (0..1_100).map(|_| net.packet(Origin::N6 { dn: DnIndex(0) }, &packet).len()).sum();
    assert!(sent > 500, "the UPF has the session again: {sent} packets");
    net.advance(Duration::from_secs(5));
    let used_up =
        |e: &CoreEvent| matches!(e, CoreEvent::Deregistered { why: DeregistrationReason::CreditUsedUp, .. });
    assert!(core_events(&net).any(used_up));
}

#[test] // the operator's predictor of handovers follows no veiled UE
fn the_movement_of_a_veiled_ue_is_not_reported_to_the_predictor() {
    let mut config = config();
    config.amf.signs = true;
    let (mut net, veiled) = populate(Sim::builder(16).config(config).build());
    let ordinary = net.add_ue(GnbIndex(0), ue_config(1));
    let signs = |net: &Sim| core_events(net).filter(|e| matches!(e, CoreEvent::Sign { .. })).count();
    let mut counted = Vec::new();
    for ue in [veiled, ordinary] {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert_eq!(net.ue_ref(ue).state(), MmState::Registered);
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
        counted.push(signs(&net));
    }
    assert_eq!(counted[0], 0);
    assert!(counted[1] > 0, "an ordinary UE is followed");
}

/// The broker's ordinary UEs are served too.
fn ordinary_config() -> whimbrel_control::config::Config {
    let mut config = config();
    config.veil.as_mut().expect("veiled UEs are served").ordinary_ues = true;
    config
}

/// A network with the broker, whose token is broadcast, and an ordinary UE of the broker's.
fn populate_ordinary(net: Sim) -> (Sim, UeIndex) {
    populate_with_sqn(net, UsimSqn::default())
}

fn populate_with_sqn(mut net: Sim, sqn: UsimSqn) -> (Sim, UeIndex) {
    net.add_veil_broker();
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_veil_home_ue(gnb, 1, sqn);
    net.settle(SECOND / 10);
    (net, ue)
}

fn one_ordinary(seed: u64) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).config(ordinary_config()).build();
    net.recorder().on = true;
    populate_ordinary(net)
}

/// The name under which the only UE is served.
fn served_ordinary(net: &Sim, ue: UeIndex) -> Option<Supi> {
    let context = net.contexts().find(|c| c.amf.registered && c.veil.is_some())?;
    (net.ue_ref(ue).state() == MmState::Registered).then_some(context.amf.supi?)
}

#[test] // LOCA, chapter 4.4.2, second class; TS 33.501 §6.1.3.2
fn an_ordinary_ue_of_the_broker_is_served_under_a_random_name() {
    let (mut net, ue) = one_ordinary(20);
    net.tap();
    let mut names = BTreeSet::new();
    for attach in 0..2 {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        let supi = served_ordinary(&net, ue).unwrap_or_else(|| panic!("{:?}", net.ue_events(ue)));
        assert!(supi.to_string().ends_with("@veil.example") && names.insert(supi), "attach {attach}: {supi}");
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
        assert_eq!(net.ue_ref(ue).sessions().count(), 1);
        net.command(ue, UeCommand::Deregister { switch_off: false });
        net.settle(SECOND * 6);
    }
    assert_eq!((net.veil_asked(), net.veil_granted().len()), (2, 2));
    // The operator asks for no equipment identity, and the events name no IMSI.
    let imsi = net.ue_ref(ue).config().supi.to_string();
    assert!(!core_events(&net).any(|e| format!("{e:?}").contains(&imsi)));
    let asked = nas_of(&net.tapped()).iter().any(|m| match m {
        mm::Message::SecurityModeCommand(m) => m.imeisv_request.is_some(),
        _ => false,
    });
    assert!(!asked);
    no_violations(&net);
    replays(&mut net);
}

#[test] // the operator has no key for a UE that is not there, and nothing to bill
fn a_wrong_response_of_an_ordinary_ue_ends_the_attach() {
    let (mut net, ue) = one_ordinary(21);
    net.ue_mut(ue).faults_mut().wrong_res_star = true;
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(served_ordinary(&net, ue).is_none());
    assert_eq!(first_refusal(&net), Some(Refusal::WrongResponse));
    assert!(!core_events(&net).any(|e| matches!(e, CoreEvent::VeilGranted { .. })));
    replays(&mut net);
}

#[test] // a SUCI of the null scheme would show the operator the identity
fn an_ordinary_ue_that_does_not_conceal_its_identity_is_refused() {
    let (mut net, _) = one_ordinary(22);
    let plain = net.add_ue(GnbIndex(0), ue_config(2));
    net.command(plain, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!((fault(&net), net.veil_asked()), (BrokerFault::InClear, 0));
    assert!(refused_with(&net, plain, Reason::Mm(MmCause::PlmnNotAllowed)));
}

#[test] // TS 24.501 §5.4.1.3.7 e: SQN out of range
fn an_ordinary_ue_resynchronises_its_broker() {
    let mut ahead = UsimSqn::default();
    ahead.accept(Sqn::new(1 << 20, 1)).expect("a fresh USIM");
    let mut net = Sim::builder(23).config(ordinary_config()).build();
    net.recorder().on = true;
    let (mut net, ue) = populate_with_sqn(net, ahead);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(served_ordinary(&net, ue).is_some(), "{:?}", net.ue_events(ue));
    assert_eq!(net.veil_asked(), 2);
    no_violations(&net);
    replays(&mut net);
}

#[test]
fn an_ordinary_ue_is_refused_while_no_token_is_broadcast() {
    let (mut net, ue) = one_ordinary(24);
    net.lose_groups();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(fault(&net), BrokerFault::Unreachable(Unreachable::NoToken));
    net.rotate_token();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 2);
    assert!(served_ordinary(&net, ue).is_some(), "{:?}", net.ue_events(ue));
}

#[test] // Neutrino §4.2.5 with a question to a broker under way
fn a_cpf_lost_at_any_message_costs_an_ordinary_ue_nothing() {
    let begin = || populate_ordinary(Sim::builder(25).config(ordinary_config()).cpfs(3, 1).build());
    let life = |net: &mut Sim, ue, of: &dyn Fn() -> String| {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND * 8);
        assert!(served_ordinary(net, ue).is_some(), "{}: {:?}", of(), net.ue_events(ue));
        net.command(ue, UeCommand::Deregister { switch_off: false });
        net.settle(SECOND * 8);
        assert_eq!((net.cta().occupancy(), net.veil_granted().len()), ((0, 0), 1), "{}", of());
    };
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

/// The LI function of the operator.
fn li_function() -> Tunnel {
    Tunnel { teid: Teid(0x4c49_0001), address: Ipv4Addr::new(192, 0, 2, 150).into() }
}

/// The UE of the only context.
fn only_ue(net: &Sim) -> UeId {
    net.contexts().next().expect("its context").id
}

/// Whether a downlink packet to the UE is copied to the LI function. `None`: it does not reach the gNB.
fn is_copied(net: &mut Sim, ue: UeIndex) -> Option<bool> {
    let address = net.ue_ref(ue).sessions().next()?.ipv4?;
    let packet = whimbrel_sim::udp(address, &[7; 100]);
    let sent = net.packet(Origin::N6 { dn: DnIndex(0) }, &packet);
    let li =
        |to: &Destination| matches!(to, Destination::N3 { peer, .. } if peer.ip() == li_function().address);
    let delivered = sent.iter().any(|(to, _)| matches!(to, Destination::N3 { .. }) && !li(to));
    delivered.then(|| sent.iter().any(|(to, octets)| li(to) && octets.ends_with(&packet)))
}

#[test] // TS 33.127 §6.2.3, TS 29.244 §5.2.3.1
fn an_intercepted_ue_is_copied_in_all_sessions_until_the_order_ends() {
    let (mut net, ue) = one_veiled(30);
    let (register, session) =
        (UeCommand::Register, || UeCommand::EstablishSession(SessionRequest::default()));
    net.command(ue, register);
    net.settle(SECOND);
    net.command(ue, session());
    net.settle(SECOND);
    assert_eq!(is_copied(&mut net, ue), Some(false));
    let id = only_ue(&net);
    net.order(id, CoreCommand::Intercept(Some(li_function())));
    net.settle(SECOND);
    assert_eq!(is_copied(&mut net, ue), Some(true));
    // The UE becomes idle and comes back: its new tunnel is copied too.
    net.release(ue, CauseRadioNetwork::UserInactivity.into());
    net.settle(SECOND);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(is_copied(&mut net, ue), Some(true));
    replays(&mut net);
}

#[test]
fn an_interception_ends_with_the_order_and_no_ordinary_subscriber_has_one() {
    let (mut net, ue) = one_veiled(31);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    // Before there is a session.
    let id = only_ue(&net);
    net.order(id, CoreCommand::Intercept(Some(li_function())));
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    assert_eq!(is_copied(&mut net, ue), Some(true));
    net.order(id, CoreCommand::Intercept(None));
    net.settle(SECOND);
    assert_eq!(is_copied(&mut net, ue), Some(false));
    let mut plain = Sim::builder(32).build();
    let gnb = plain.add_gnb(gnb_config(1));
    let ue = plain.add_ue(gnb, ue_config(1));
    plain.settle(SECOND / 10);
    plain.command(ue, UeCommand::Register);
    plain.settle(SECOND);
    plain.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    plain.settle(SECOND);
    let id = only_ue(&plain);
    plain.order(id, CoreCommand::Intercept(Some(li_function())));
    plain.settle(SECOND);
    assert_eq!(is_copied(&mut plain, ue), Some(false));
}

#[test] // Neutrino §4.2.5: the interception is part of the UE's context
fn an_interception_survives_the_loss_of_a_cpf_at_any_message() {
    let begin = || populate(Sim::builder(33).config(config()).cpfs(3, 1).build());
    let life = |net: &mut Sim, ue, of: &dyn Fn() -> String| {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND * 8);
        let id = only_ue(net);
        net.order(id, CoreCommand::Intercept(Some(li_function())));
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND * 8);
        assert_eq!(is_copied(net, ue), Some(true), "{}", of());
    };
    let taken = {
        let (mut net, ue) = begin();
        life(&mut net, ue, &|| "no loss".into());
        net.links_taken()
    };
    for message in 1..=taken {
        let (mut net, ue) = begin();
        net.lose_cpf_at(message, CpfLoss::ALL[0]);
        life(&mut net, ue, &|| format!("at message {message} of {taken}"));
        no_violations(&net);
    }
}
