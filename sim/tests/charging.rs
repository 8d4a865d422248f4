//! Sessions that a CHF charges (TS 32.255 §5.2.2.2): the quota is enforced, each octet is reported once, and a lost CHF has the configured effect.

use crate::common::*;
use whimbrel_control::charging::{ChargingOperation, ChargingTrigger, RatingGroup};
use whimbrel_control::config::{ChargingPolicy, FailureHandling};
use whimbrel_control::{NfType, Refusal, ServiceFault};
use whimbrel_ids::{PduSessionId, Supi};
use whimbrel_nas::ie::SmCause;
use whimbrel_ran::ue::{Reason, SessionRequest, UeCommand};
use whimbrel_sim::{ChfState, CpfLoss, CtaLoss, Sim, SimBuilder, UeIndex, default_config, ue_config};

/// Octets of the packets that the data network sends.
const PACKET: u64 = 1_000;

fn builder(seed: u64, failure_handling: FailureHandling) -> SimBuilder {
    let mut config = default_config();
    let policy = ChargingPolicy { rating_group: RatingGroup(7), failure_handling };
    config.smf.data_networks.values_mut().for_each(|network| network.charging = Some(policy));
    Sim::builder(seed).config(config)
}

/// A gNB and a UE with this credit, in octets.
fn populate(mut net: Sim, credit: u64) -> (Sim, UeIndex, Supi) {
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    let supi = net.ue_ref(ue).config().supi;
    net.chf().credit.insert(supi, credit);
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    (net, ue, supi)
}

fn establish(net: &mut Sim, ue: UeIndex) -> Option<PduSessionId> {
    net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
    net.settle(SECOND * 8);
    net.ue_ref(ue).sessions().map(|s| s.id).next()
}

/// Octets that the UPF forwards of so many packets, in bursts with time for reports between them.
fn download(net: &mut Sim, ue: UeIndex, session: PduSessionId, packets: usize) -> u64 {
    let mut forwarded = 0;
    for _ in 0..packets / 10 {
        forwarded += net.burst_down(ue, session, 10);
        net.settle(SECOND / 10);
    }
    forwarded
}

fn triggers(net: &mut Sim) -> Vec<ChargingTrigger> {
    let trigger = |operation: &ChargingOperation| match operation {
        ChargingOperation::Create(..) => None,
        ChargingOperation::Update { used, .. } | ChargingOperation::Release { used, .. } => {
            Some(used.trigger)
        }
    };
    net.chf().requests.iter().filter_map(|r| trigger(&r.operation)).collect()
}

#[test] // TS 32.255 §5.2.2.2.2 to §5.2.2.2.4
fn traffic_stops_with_the_packet_that_crosses_the_last_quota() {
    let (mut net, ue, supi) = populate(builder(1, FailureHandling::Terminate).recorded().build(), 250_000);
    let session = establish(&mut net, ue).expect("a session");
    let forwarded = download(&mut net, ue, session, 1_000);
    // Three quotas: packets that come before the next one is there are dropped.
    assert!((250_000..250_000 + 3 * PACKET).contains(&forwarded), "{forwarded}");
    net.settle(SECOND * 8);
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (forwarded, 0));
    assert_eq!((net.upf_sessions(), net.ue_ref(ue).sessions().count()), (0, 0), "the session is released");
    let exhausted = ChargingTrigger::QuotaExhausted;
    assert_eq!(triggers(&mut net), [exhausted, exhausted, ChargingTrigger::Final]);
    no_violations(&net);
    // Another session is refused.
    assert_eq!(establish(&mut net, ue), None);
    assert!(
        refused_with(&net, ue, Reason::Sm(SmCause::UserAuthenticationOrAuthorizationFailed)),
        "{:?}",
        net.ue_events(ue)
    );
}

#[test] // TS 32.290 §5.4.1: the next quota comes before the former one is used up
fn with_a_threshold_no_packet_waits_for_a_quota() {
    let (mut net, ue, supi) = populate(builder(2, FailureHandling::Terminate).build(), 10_000_000);
    net.chf().threshold = Some(50_000);
    let session = establish(&mut net, ue).expect("a session");
    assert_eq!(download(&mut net, ue, session, 1_000), 1_000 * PACKET);
    assert!(triggers(&mut net).iter().all(|t| *t == ChargingTrigger::QuotaThreshold));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 8);
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (1_000 * PACKET, 0));
    assert_eq!(net.chf().credit[&supi], 9_000_000, "what was not used is given back");
}

#[test] // TS 32.290 §5.4.1: a quota begins with the report to which it is the answer
fn what_is_used_while_a_quota_is_asked_for_is_part_of_it() {
    let (mut net, ue, supi) = populate(builder(13, FailureHandling::Terminate).build(), 250_000);
    net.chf().threshold = Some(80_000); // of 100,000: traffic goes on for long after the report
    let session = establish(&mut net, ue).expect("a session");
    let mut forwarded = 0;
    for _ in 0..100 {
        forwarded += net.burst_down(ue, session, 30); // passes the threshold, and goes on until the answer is there
        net.advance(std::time::Duration::from_millis(2));
    }
    net.settle(SECOND * 8);
    assert!((250_000..250_000 + 4 * PACKET).contains(&forwarded), "{forwarded}");
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (forwarded, 0));
}

#[test]
fn an_idle_ue_whose_context_ends_is_charged_for_its_last_octets() {
    let (mut net, ue, supi) = populate(builder(3, FailureHandling::Terminate).build(), 10_000_000);
    let session = establish(&mut net, ue).expect("a session");
    let forwarded = download(&mut net, ue, session, 50);
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::Deregister { switch_off: true });
    net.settle(SECOND * 8);
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (forwarded, 0));
}

#[test] // TS 32.291 §6.1.6.3.10
fn without_a_chf_sessions_begin_or_do_not_as_configured() {
    for (seed, handling) in [(4, FailureHandling::Terminate), (5, FailureHandling::Continue)] {
        for state in [ChfState::Silent, ChfState::Failing(ServiceFault::NotConnected)] {
            let (mut net, ue, _) = populate(builder(seed, handling).build(), 1_000_000);
            net.chf().state = state;
            let begun = establish(&mut net, ue);
            let fault = match state {
                ChfState::Failing(fault) => fault,
                _ => ServiceFault::TimedOut,
            };
            assert_eq!(first_refusal(&net), Some(Refusal::NetworkFunction(NfType::Chf, fault)));
            assert_eq!(begun.is_some(), handling == FailureHandling::Continue, "{handling:?} {state:?}");
            if let Some(session) = begun {
                assert_eq!(download(&mut net, ue, session, 500), 500 * PACKET);
            }
        }
    }
}

#[test] // TS 32.255 §5.2.2.2.3
fn a_chf_that_is_lost_in_mid_session_has_the_configured_effect_and_gets_the_usage_later() {
    let (mut net, ue, supi) = populate(builder(6, FailureHandling::Continue).build(), 10_000_000);
    let session = establish(&mut net, ue).expect("a session");
    net.chf().state = ChfState::Failing(ServiceFault::NotConnected);
    let first = download(&mut net, ue, session, 150);
    let later = download(&mut net, ue, session, 500);
    assert_eq!(later, 500 * PACKET, "nothing is limited");
    net.chf().state = ChfState::Answering;
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 8);
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (first + later, 0));

    let (mut net, ue, supi) = populate(builder(7, FailureHandling::Terminate).build(), 10_000_000);
    let session = establish(&mut net, ue).expect("a session");
    net.chf().state = ChfState::Failing(ServiceFault::NotConnected);
    let forwarded = download(&mut net, ue, session, 500);
    net.settle(SECOND * 8);
    assert_eq!(net.ue_ref(ue).sessions().count(), 0, "released when its quota was used up");
    // The release is sent again until the CHF has it.
    net.chf().state = ChfState::Answering;
    net.settle(SECOND * 40);
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (forwarded, 0));
}

#[test]
fn a_request_whose_answer_was_lost_is_repeated_and_counted_once() {
    let (mut net, ue, supi) = populate(builder(8, FailureHandling::Terminate).build(), 10_000_000);
    let session = establish(&mut net, ue).expect("a session");
    net.chf().state = ChfState::AnswersLost;
    let mut forwarded = net.burst_down(ue, session, 120);
    net.settle(SECOND);
    net.chf().state = ChfState::Answering;
    net.settle(SECOND * 8);
    forwarded += download(&mut net, ue, session, 100);
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 40);
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (forwarded, 0));
}

#[test] // TS 32.290 §5.3.2.5
fn a_chf_orders_a_report_and_the_end_of_a_session() {
    let (mut net, ue, supi) = populate(builder(11, FailureHandling::Terminate).build(), 10_000_000);
    let session = establish(&mut net, ue).expect("a session");
    let forwarded = download(&mut net, ue, session, 30);
    let id = net.cta().find(supi).expect("a context");
    net.order(id, whimbrel_control::Command::ReportCharging(session));
    net.settle(SECOND);
    assert_eq!(net.chf().used[&supi], forwarded);
    assert_eq!(triggers(&mut net), [ChargingTrigger::ForcedReauthorisation]);
    let more = download(&mut net, ue, session, 20);
    net.order(id, whimbrel_control::Command::AbortCharging(session));
    net.settle(SECOND * 8);
    assert_eq!(net.ue_ref(ue).sessions().count(), 0);
    assert_eq!((net.chf().used[&supi], net.chf().open_sessions()), (forwarded + more, 0));
}

#[test]
fn a_chf_whose_answer_comes_too_late_has_its_session_released() {
    let (mut net, ue, supi) = populate(builder(12, FailureHandling::Terminate).build(), 1_000_000);
    net.chf().state = ChfState::AnswersLost;
    assert_eq!(establish(&mut net, ue), None);
    net.chf().state = ChfState::Answering;
    net.settle(SECOND * 40);
    assert_eq!((net.chf().credit[&supi], net.chf().open_sessions()), (1_000_000, 0));
}

/// A session that uses some quotas, and its end. What was forwarded.
fn life(net: &mut Sim, ue: UeIndex, of: &dyn Fn() -> String) -> u64 {
    let session = establish(net, ue).unwrap_or_else(|| panic!("{}: {:?}", of(), net.ue_events(ue)));
    let mut forwarded = 0;
    for _ in 0..4 {
        forwarded += net.burst_down(ue, session, 60);
        net.settle(SECOND * 8);
    }
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 80);
    forwarded
}

#[test] // Neutrino §4.2.5 with a request to the CHF under way
fn each_octet_is_charged_once_whichever_message_a_cpf_is_lost_at() {
    let begin = || populate(builder(9, FailureHandling::Terminate).cpfs(3, 1).build(), 10_000_000);
    let (before, taken) = {
        let (mut net, ue, _) = begin();
        let before = net.links_taken();
        life(&mut net, ue, &|| "no loss".into());
        (before, net.links_taken())
    };
    let mut taken_over = 0;
    for how in CpfLoss::ALL {
        for message in before + 1..=taken {
            let (mut net, ue, supi) = begin();
            net.lose_cpf_at(message, how);
            let of = || format!("{how:?} at message {message} of {before} to {taken}");
            let forwarded = life(&mut net, ue, &of);
            no_violations(&net);
            assert_eq!(
                (net.chf().used.get(&supi).copied(), net.chf().open_sessions()),
                (Some(forwarded), 0),
                "{}",
                of()
            );
            taken_over += net.cta().replication_counters().taken_over;
            assert_eq!(net.cta().replication_counters().diverged, 0);
        }
    }
    assert!(taken_over > (taken - before) / 4, "{taken_over} takeovers in {} messages", taken - before);
}

#[test]
fn each_octet_is_charged_once_whichever_input_a_cta_is_lost_at() {
    let begin = || {
        let net = builder(10, FailureHandling::Terminate).cpfs(2, 1).cta_replica().build();
        populate(net, 10_000_000)
    };
    let (before, taken) = {
        let (mut net, ue, _) = begin();
        let before = net.inputs_taken();
        life(&mut net, ue, &|| "no loss".into());
        (before, net.inputs_taken())
    };
    for how in CtaLoss::ALL {
        for input in before + 1..=taken {
            let (mut net, ue, supi) = begin();
            net.lose_cta_at(input, how);
            let of = || format!("{how:?} at input {input} of {before} to {taken}");
            let forwarded = life(&mut net, ue, &of);
            assert_eq!(
                (net.chf().used.get(&supi).copied(), net.chf().open_sessions()),
                (Some(forwarded), 0),
                "{}",
                of()
            );
        }
    }
}
