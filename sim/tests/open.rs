//! Users of brokers (CellBricks, chapter 3): attach by SAP, and what goes wrong on the way to a broker.

use std::time::Duration;

use crate::common::*;
use whimbrel_control::open::Unreachable;
use whimbrel_control::refusal::BrokerFault;
use whimbrel_control::{Event as CoreEvent, Refusal, UeId};
use whimbrel_ids::Supi;
use whimbrel_nas::ie::MmCause;
use whimbrel_nas::mm;
use whimbrel_ngap::Message;
use whimbrel_open::crypto::{PrivateKey, hash};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::{AnswerBody, AnswerT, RefusalCause};
use whimbrel_open::usage::SealedReport;
use whimbrel_ran::ue::{Event, MmState, Reason, SessionRequest, SuciSource, UeCommand};
use whimbrel_sim::{BrokerLoss, BrokerState, CpfLoss, CtaLoss, Sim, UeIndex, default_config, open_config};

pub(crate) const BROKER: &str = "b.example";

pub(crate) fn config() -> whimbrel_control::config::Config {
    let mut config = default_config();
    open_config(&mut config);
    config
}

/// A network, a broker, and a UE of that broker's.
fn populate(mut net: Sim) -> (Sim, UeIndex) {
    net.add_broker(BROKER);
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_sap_ue(gnb, 1, BROKER);
    net.settle(SECOND / 10);
    (net, ue)
}

fn one_guest(seed: u64) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).config(config()).build();
    net.recorder().on = true;
    populate(net)
}

/// The SUPI under which the UE is served, if both sides hold it registered under the same one.
fn served(net: &Sim, ue: UeIndex) -> Option<Supi> {
    let session = net.ue_ref(ue).sap_session()?;
    let supi = Supi::from_nai(session.grant.pseudonym.0, session.grant.broker.as_str())?;
    let registered = net.ue_ref(ue).state() == MmState::Registered
        && net.contexts().any(|c| c.amf.registered && c.amf.supi == Some(supi));
    registered.then_some(supi)
}

fn user(net: &Sim, ue: UeIndex) -> UserId {
    let SuciSource::Sap(card) = &net.ue_ref(ue).config().suci else { panic!("it has a broker's SIM") };
    card.sim.user
}

/// The broker's refusal that the UE got.
fn broker_refusal(net: &Sim, ue: UeIndex) -> Option<Option<RefusalCause>> {
    net.ue_events(ue).iter().find_map(|(_, e)| match e {
        Event::BrokerRefused(cause) => Some(*cause),
        _ => None,
    })
}

pub(crate) fn fault(net: &Sim) -> BrokerFault {
    match first_refusal(net) {
        Some(Refusal::Broker { broker, why }) if broker == BROKER => why,
        other => panic!("{other:?}"),
    }
}

/// The plain 5GMM messages, and the SECURITY MODE COMMANDs, that the core has sent.
pub(crate) fn nas_of(messages: &[Message]) -> Vec<mm::Message> {
    let downlink = messages.iter().filter_map(|m| match m {
        Message::DownlinkNasTransport(m) => Some(m.nas_pdu.clone()),
        _ => None,
    });
    let inner = |nas: Vec<u8>| mm::Message::decode(&nas).or_else(|_| mm::Message::decode(&nas[7..])).ok();
    downlink.filter_map(|nas| inner(nas.to_vec())).collect()
}

#[test] // chapter 3.4.1, Figure 3.3: one round trip to the broker, and one message to the UE
fn a_brokers_ue_registers_with_one_question_and_without_a_challenge() {
    let (mut net, ue) = one_guest(1);
    net.tap();
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let supi = served(&net, ue).expect("it is served");
    assert!(supi.to_string().starts_with("nai-") && supi.to_string().ends_with("@b.example"));
    assert_eq!((net.asked(BROKER), net.granted().len()), (1, 1));
    let downlink = nas_of(&net.tapped());
    assert!(
        !downlink
            .iter()
            .any(|m| matches!(m, mm::Message::AuthenticationRequest(_) | mm::Message::IdentityRequest(_)))
    );
    let command = downlink.iter().find_map(|m| match m {
        mm::Message::SecurityModeCommand(m) => Some(m),
        _ => None,
    });
    let command = command.expect("SECURITY MODE COMMAND");
    assert!(command.eap_message.is_some() && command.imeisv_request.is_none());
    assert!(net.contexts().all(|c| c.amf.pei.is_none()), "the UE hides its equipment");
    assert!(core_events(&net).any(|e| matches!(e, CoreEvent::Granted { broker, .. } if broker == BROKER)));
    no_violations(&net);
    replays(&mut net);
}

pub(crate) fn replays(net: &mut Sim) {
    let config = net.config();
    let ues: Vec<UeId> = net.recorder().contexts().map(|(ue, _)| ue).collect();
    let ran: usize = ues.into_iter().map(|ue| net.recorder().replay(ue, &config)).sum();
    assert!(ran > 0);
}

#[test] // the QoS of the grant (qosInfo, chapter 3.4.1)
fn a_session_of_a_brokers_ue_has_the_qos_that_the_broker_granted() {
    let (mut net, ue) = one_guest(2);
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    let sessions: Vec<_> = net.ue_ref(ue).sessions().collect();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].ambr_kbps, (50_000, 20_000));
    assert!(net.ue_ref(ue).has_user_plane(sessions[0].id) && net.upf_sessions() == 1);
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    assert_eq!((net.cta().occupancy(), net.upf_sessions(), net.cta().registered()), ((0, 0), 0, 0));
    no_violations(&net);
    replays(&mut net);
}

#[test] // chapter 3.4.3: U's report is signed, sealed to B, and goes through the network that serves U, which cannot read it
fn a_brokers_ue_reports_each_cycle_and_when_it_leaves() {
    let (mut net, ue) = one_guest(4);
    net.command(ue, UeCommand::Register);
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND);
    assert_eq!(net.ue_ref(ue).metered_octets(), Some((0, 0)));
    net.settle(61 * SECOND);
    go_idle(&mut net, ue);
    net.settle(61 * SECOND);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND);
    let sealed = core_events(&net).filter_map(|e| match e {
        CoreEvent::UsageReported { sealed, .. } => Some(sealed.clone()),
        _ => None,
    });
    let private = PrivateKey::new(hash(&[&[1], BROKER.as_bytes()].concat()));
    let open = |octets: Vec<u8>| SealedReport::parse(&octets).unwrap().open(&private).unwrap();
    let reports: Vec<_> = sealed.map(open).collect();
    let SuciSource::Sap(card) = &net.ue_ref(ue).config().suci else { panic!("it has a broker's SIM") };
    assert!(reports.iter().all(|r| r.is_signed_by(&card.sim.signing.verifying_key())));
    let cycles: Vec<_> = reports.iter().map(|r| (r.report.cycle, r.report.closed)).collect();
    // The second cycle ended while the UE was idle: it reports when it is connected again.
    assert_eq!(cycles, [(1, false), (2, false), (3, true)]);
    no_violations(&net);
    replays(&mut net);
}

#[test] // each attach has a pseudonym of its own
fn a_brokers_ue_is_known_by_another_name_at_each_attach() {
    let (mut net, ue) = one_guest(3);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let first = served(&net, ue).expect("it is served");
    net.command(ue, UeCommand::PeriodicRegistration);
    net.settle(SECOND);
    assert_eq!((served(&net, ue), net.asked(BROKER)), (Some(first), 1), "the keys in force are proof enough");
    net.lose_power(ue);
    net.switch_on(ue);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 2);
    let second = served(&net, ue).expect("it is served again");
    assert!(first != second && net.granted().len() == 2);
}

#[test] // TS 33.501 §6.1.2: keys that are old are replaced, by SAP as well
fn keys_of_a_brokers_ue_are_replaced_by_another_attach() {
    let mut config = config();
    config.amf.access.authentication.every_registrations = Some(1);
    let (mut net, ue) = populate(Sim::builder(4).config(config).build());
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let first = served(&net, ue).expect("it is served");
    for _ in 0..2 {
        net.command(ue, UeCommand::PeriodicRegistration);
        net.settle(SECOND);
    }
    let second = served(&net, ue).expect("it is served");
    assert!(first != second && net.asked(BROKER) == 2, "{} questions", net.asked(BROKER));
    assert_eq!(net.cta().registered(), 1, "the former name is given up");
    no_violations(&net);
}

#[test] // less than T3510 (TS 24.501 Table 10.2.1)
fn a_broker_that_is_silent_costs_its_ues_ten_seconds() {
    let (mut net, ue) = one_guest(5);
    net.set_broker(BROKER, BrokerState::Silent);
    net.command(ue, UeCommand::Register);
    net.advance(Duration::from_secs(9));
    assert_eq!(first_refusal(&net), None);
    net.advance(SECOND * 2);
    assert_eq!(fault(&net), BrokerFault::Unreachable(Unreachable::TimedOut));
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
    assert_eq!(broker_refusal(&net, ue), Some(None), "no word of the broker");
    assert_eq!(net.cta().occupancy().0, 0);
    replays(&mut net);
}

#[test]
fn a_broker_that_cannot_be_reached_at_all_is_not_waited_for() {
    for why in [Unreachable::NoAddress, Unreachable::ForbiddenAddress, Unreachable::Tls] {
        let (mut net, ue) = one_guest(6);
        net.set_broker(BROKER, BrokerState::Unreachable(why));
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert_eq!(fault(&net), BrokerFault::Unreachable(why));
    }
}

#[test]
fn a_broker_that_comes_back_within_seconds_is_asked_again() {
    let (mut net, ue) = one_guest(7);
    net.set_broker(BROKER, BrokerState::Unreachable(Unreachable::NotConnected));
    net.command(ue, UeCommand::Register);
    net.advance(SECOND * 2);
    net.set_broker(BROKER, BrokerState::Answering);
    net.advance(SECOND * 2);
    assert!(served(&net, ue).is_some() && net.granted().len() == 1);
    no_violations(&net);
}

#[test] // the same request gets the stored answer
fn a_broker_that_is_slow_is_asked_twice_and_grants_once() {
    let (mut net, ue) = one_guest(8);
    net.set_broker(BROKER, BrokerState::Slow(Duration::from_secs(4)));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND * 9);
    assert!(served(&net, ue).is_some());
    assert_eq!((net.asked(BROKER), net.granted().len()), (2, 1));
    no_violations(&net);
    replays(&mut net);
}

#[test]
fn an_answer_of_another_session_is_not_taken() {
    let (mut net, ue) = one_guest(9);
    let gnb = net.gnb_of(ue);
    let other = net.add_sap_ue(gnb, 2, BROKER);
    net.command(other, UeCommand::Register);
    net.settle(SECOND);
    net.set_broker(BROKER, BrokerState::OneBehind);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(fault(&net), BrokerFault::BadAnswer("the answer is for another request".into()));
    assert!(served(&net, ue).is_none() && served(&net, other).is_some());
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::Congestion)));
}

#[test] // REGISTRATION REJECT with the broker's signed word
fn a_refusal_of_the_broker_reaches_its_user_signed() {
    let (mut net, ue) = one_guest(10);
    let id = user(&net, ue);
    net.broker_mut(BROKER).revoke_user(id);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(broker_refusal(&net, ue), Some(Some(RefusalCause::UserRevoked)));
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::IllegalUe)));
    let BrokerFault::Refused(refused) = fault(&net) else { panic!("{:?}", fault(&net)) };
    assert!(!refused.of_operator);
    replays(&mut net);
}

#[test]
fn a_refusal_of_the_operator_sends_its_users_elsewhere() {
    let (mut net, ue) = one_guest(11);
    net.broker_mut(BROKER).config.policy.operators = Some([].into());
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert_eq!(broker_refusal(&net, ue), Some(Some(RefusalCause::OperatorNotAllowed)));
    assert!(refused_with(&net, ue, Reason::Mm(MmCause::PlmnNotAllowed)));
}

#[test]
fn a_ue_whose_epoch_key_is_over_learns_the_new_one_and_registers() {
    let (mut net, ue) = one_guest(12);
    let broker = net.broker_mut(BROKER);
    broker.begin_epoch(2, PrivateKey::new([8; 32]));
    broker.end_epoch(1);
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(15));
    assert_eq!(broker_refusal(&net, ue), Some(Some(RefusalCause::UnknownKey)));
    assert!(served(&net, ue).is_some());
}

#[test] // TS 24.501 §5.5.1.2.5, cause #11
fn users_of_brokers_that_are_not_served_are_refused_without_a_question() {
    let of_others = |config: &mut whimbrel_control::config::Config| {
        config.open.as_mut().unwrap().brokers = Some(["other.example".parse().unwrap()].into());
    };
    let of_none = |config: &mut whimbrel_control::config::Config| config.open = None;
    for change in [of_others, of_none as fn(&mut _)] {
        let mut config = config();
        change(&mut config);
        let (mut net, ue) = populate(Sim::builder(13).config(config).build());
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        assert_eq!((fault(&net), net.asked(BROKER)), (BrokerFault::NotServed, 0));
        assert!(refused_with(&net, ue, Reason::Mm(MmCause::PlmnNotAllowed)));
    }
}

#[test] // an operator that does not trust the broker's authority serves none of its users
fn a_broker_without_a_certificate_is_not_believed() {
    let mut config = config();
    config.open.as_mut().unwrap().trust = Default::default();
    let (mut net, ue) = populate(Sim::builder(14).config(config).build());
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    assert!(matches!(fault(&net), BrokerFault::BadAnswer(why) if why.contains("not believed")));
}

#[test] // TS 24.501 §5.4.2.7: T3560
fn security_mode_command_with_a_brokers_answer_is_repeated() {
    for lost in [mm::MessageType::SecurityModeCommand, mm::MessageType::RegistrationAccept] {
        let (mut net, ue) = one_guest(15);
        net.ue_mut(ue).faults_mut().ignore.push((lost, 1));
        net.command(ue, UeCommand::Register);
        net.settle(Duration::from_secs(8));
        assert!(served(&net, ue).is_some() && net.asked(BROKER) == 1);
        no_violations(&net);
    }
}

/// An attach, a session, a change to idle and back, and the end.
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
    assert_eq!(net.granted().len(), 1, "{}: one attach, one grant", of());
}

#[test] // Neutrino §4.2.5 with a question to a broker under way
fn a_cpf_lost_at_any_message_costs_a_brokers_ue_nothing() {
    let begin = || populate(Sim::builder(16).config(config()).cpfs(3, 1).build());
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
fn a_cta_lost_at_any_input_costs_a_brokers_ue_nothing() {
    let begin = || populate(Sim::builder(17).config(config()).cpfs(2, 1).cta_replica().build());
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
fn a_broker_lost_at_its_question_costs_its_ue_seconds() {
    for how in BrokerLoss::ALL {
        let (mut net, ue) = one_guest(18);
        net.lose_broker_at(BROKER, 1, how);
        life(&mut net, ue, &|| format!("{how:?}"));
        no_violations(&net);
    }
}

/// What a broker has sealed to the operator: the broker's secret, which the ephemeral key opens.
fn orders(net: &mut Sim) -> Vec<u8> {
    let answer = AnswerT::parse(net.last_answer(BROKER).expect("it has answered")).expect("it is an answer");
    let AnswerBody::Granted { orders, .. } = answer.body else { panic!("it has granted") };
    orders.into()
}

#[test] // ephemeral keys and ss are erased when the attach completes
fn what_leads_to_the_keys_of_an_attach_is_gone_when_the_attach_completes() {
    let begin = || populate(Sim::builder(19).config(config()).cpfs(2, 1).build());
    let holds = |net: &mut Sim| {
        let orders = orders(net);
        let snapshot = net.snapshot().expect("the CTA has no replica");
        snapshot.octets().windows(orders.len()).any(|w| w == orders)
    };
    let (mut net, ue) = begin();
    net.ue_mut(ue).faults_mut().ignore.push((mm::MessageType::SecurityModeCommand, 1));
    net.command(ue, UeCommand::Register);
    net.advance(SECOND);
    assert!(holds(&mut net), "the log leads through the attach as long as that lasts");
    let (mut net, ue) = begin();
    net.command(ue, UeCommand::Register);
    net.advance(SECOND);
    assert!(
        served(&net, ue).is_some() && !holds(&mut net),
        "the log is over, with the seed of the ephemeral key"
    );
}
