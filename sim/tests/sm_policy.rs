//! Sessions whose policies are a PCF's (TS 23.502 §4.16.4 to §4.16.6, TS 29.512): they begin with its rules, change as it decides, and a lost
//! PCF has the configured effect.

use crate::common::*;
use whimbrel_control::config::FailureHandling;
use whimbrel_control::policy::{FlowGate, FlowPolicy, Gbr, Setup, packet_filter};
use whimbrel_control::sm_policy::{
    PccRule, PolicyDecision, PolicyDenial, PolicyNotification, PolicyOperation, PolicyReport, PolicyTriggers,
    RuleFailure, RuleQos, SessionRule,
};
use whimbrel_control::smf::UpState;
use whimbrel_control::udm::{Ambr, Arp};
use whimbrel_control::{NfType, Refusal, ServiceFault};
use whimbrel_ids::{FiveQi, PduSessionId, Supi};
use whimbrel_nas::ie::SmCause;
use whimbrel_ran::ue::{Reason, SessionRequest, UeCommand};
use whimbrel_sim::{
    CpfLoss, CtaLoss, PcfState, Sim, SimBuilder, UeIndex, default_config, procedures_config, ue_config,
};

const AMBR: Ambr = Ambr { ul_kbps: 2_000, dl_kbps: 3_000 };
const ARP: Arp = Arp { priority: 3, may_preempt: false, preemptable: true };

fn builder(seed: u64, failure_handling: FailureHandling) -> SimBuilder {
    let mut config = default_config();
    config.smf.pcf = Some(failure_handling);
    // What a session has without the PCF.
    let flows = procedures_config().smf.data_networks.into_values().next().map(|n| n.flows);
    let flows = flows.unwrap_or_default().into_iter().map(|f| FlowPolicy { setup: Setup::Always, ..f });
    let flows: Vec<FlowPolicy> = flows.take(1).collect();
    config.smf.data_networks.values_mut().for_each(|network| network.flows.clone_from(&flows));
    Sim::builder(seed).config(config)
}

fn populate(mut net: Sim) -> (Sim, UeIndex, Supi) {
    let gnb = net.add_gnb(gnb_config(1));
    let ue = net.add_ue(gnb, ue_config(1));
    let supi = net.ue_ref(ue).config().supi;
    net.pcf().decision = decision(64);
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

/// A session AMBR and a voice flow of so many kbit/s.
fn decision(kbps: u64) -> PolicyDecision {
    let filters = vec![packet_filter("permit out 17 from any 5004 to assigned").expect("a filter")];
    let rule = PccRule { precedence: Some(20), filters, qos: Some("qos-1".into()), ..PccRule::default() };
    PolicyDecision {
        session_rule: SessionRule { ambr: Some(AMBR), default_qos: Some((FiveQi(8), ARP)) },
        rules: vec![("Voice.1".into(), Some(rule))],
        qos: vec![("qos-1".into(), Some(voice(kbps)))],
        gates: Vec::new(),
        triggers: Some(PolicyTriggers::SESSION_AMBR_CHANGE.with(PolicyTriggers::QOS_NOTIFICATION)),
    }
}

fn voice(kbps: u64) -> RuleQos {
    let rate = Ambr { ul_kbps: kbps, dl_kbps: kbps };
    let gbr = Some(Gbr { guaranteed: rate, maximum: rate });
    RuleQos { five_qi: Some(FiveQi(1)), arp: Some(ARP), gbr, is_default_flow: false }
}

/// The flows of the session: names and guaranteed rates.
fn flows(net: &Sim) -> Vec<(String, Option<u64>)> {
    let sessions = net.contexts().flat_map(|ue| ue.sessions.values());
    let flows = sessions.flat_map(|s| &s.qos.flows);
    flows.map(|f| (f.name.to_string(), f.gbr.map(|g| g.guaranteed.dl_kbps))).collect()
}

/// The session AMBR that the UE has, in kbit/s: down, and up.
fn ambr(net: &Sim, ue: UeIndex) -> Option<(u64, u64)> {
    net.ue_ref(ue).sessions().next().map(|s| s.ambr_kbps)
}

/// QoS rules of the UE: precedences.
fn rules(net: &Sim, ue: UeIndex) -> Vec<u8> {
    let rules = net.ue_ref(ue).sessions().flat_map(|s| &s.rules);
    rules.filter_map(|r| Some(r.binding?.precedence)).collect()
}

fn reports(net: &mut Sim) -> Vec<PolicyReport> {
    let report = |operation: &PolicyOperation| match operation {
        PolicyOperation::Update { report, .. } => Some((**report).clone()),
        PolicyOperation::Create(_) | PolicyOperation::Delete { .. } => None,
    };
    net.pcf().requests.iter().filter_map(|r| report(&r.operation)).collect()
}

#[test] // TS 23.502 §4.16.4
fn a_session_has_the_flows_and_rates_of_the_pcf_from_its_beginning_to_its_end() {
    let (mut net, ue, _) = populate(builder(1, FailureHandling::Terminate).recorded().build());
    establish(&mut net, ue).expect("a session");
    assert_eq!(flows(&net), [("voice-1".to_owned(), Some(64))]);
    assert_eq!((ambr(&net, ue), rules(&net, ue)), (Some((3_000, 2_000)), vec![255, 20]));
    let request = net.pcf().requests[0].clone();
    let PolicyOperation::Create(session) = request.operation else { panic!("{request:?}") };
    assert!(session.address.ipv4.is_some(), "the PCF knows the UE's address");
    assert_eq!(session.subscribed.default_qos.map(|(five_qi, _)| five_qi), Some(FiveQi(9)));
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 8);
    assert_eq!((net.pcf().open_associations(), net.pcf().requests.len()), (0, 2));
    no_violations(&net);
}

#[test] // TS 29.512 §4.2.3.2; TS 23.502 §4.3.3.2 step 1b
fn the_pcf_changes_a_session_of_a_connected_and_of_an_idle_ue() {
    let (mut net, ue, supi) = populate(builder(2, FailureHandling::Terminate).recorded().build());
    let session = establish(&mut net, ue).expect("a session");
    // QoS data alone change: the rules that refer to them do.
    let faster = PolicyDecision {
        qos: vec![("qos-1".into(), Some(voice(128)))],
        session_rule: SessionRule { ambr: Some(Ambr { dl_kbps: 9_000, ..AMBR }), default_qos: None },
        ..PolicyDecision::default()
    };
    net.pcf_notifies(supi, session, PolicyNotification::Changed(faster));
    net.settle(SECOND * 4);
    assert_eq!(flows(&net), [("voice-1".to_owned(), Some(128))]);
    assert_eq!(ambr(&net, ue), Some((9_000, 2_000)));
    go_idle(&mut net, ue);
    let none = PolicyDecision { rules: vec![("Voice.1".into(), None)], ..PolicyDecision::default() };
    net.pcf_notifies(supi, session, PolicyNotification::Changed(none));
    net.settle(SECOND * 8);
    assert_eq!((flows(&net), rules(&net, ue)), (vec![], vec![255]));
    let closed = FlowGate { uplink: false, downlink: false };
    let mut again = decision(64);
    again.gates = vec![("closed".into(), Some(closed))];
    again.rules[0].1.as_mut().expect("a rule").gate = Some("closed".into());
    net.pcf_notifies(supi, session, PolicyNotification::Changed(again));
    net.settle(SECOND * 8);
    let gates: Vec<FlowGate> = net
        .contexts()
        .flat_map(|ue| ue.sessions.values())
        .flat_map(|s| s.qos.flows.iter().map(|f| f.gate))
        .collect();
    assert_eq!(gates, [closed]);
    assert!(reports(&mut net).is_empty());
    no_violations(&net);
}

#[test] // TS 23.503 §6.1.1.2: the policy of the data network takes the place of the PCF's
fn without_a_pcf_sessions_begin_or_do_not_as_configured() {
    for (seed, handling) in [(3, FailureHandling::Terminate), (4, FailureHandling::Continue)] {
        for state in [PcfState::Silent, PcfState::AnswersLost, PcfState::Failing(ServiceFault::NotConnected)]
        {
            let (mut net, ue, _) = populate(builder(seed, handling).build());
            net.pcf().state = state;
            let begun = establish(&mut net, ue);
            let fault = match state {
                PcfState::Failing(fault) => fault,
                _ => ServiceFault::TimedOut,
            };
            assert_eq!(first_refusal(&net), Some(Refusal::NetworkFunction(NfType::Pcf, fault)));
            assert_eq!(begun.is_some(), handling == FailureHandling::Continue, "{handling:?} {state:?}");
            if begun.is_some() {
                assert_eq!(flows(&net), [("voice".to_owned(), None)], "the data network's own");
                assert_eq!(ambr(&net, ue), Some((1_000_000, 1_000_000)), "as subscribed");
            }
            net.pcf().state = PcfState::Answering;
            net.command(ue, UeCommand::Deregister { switch_off: false });
            net.settle(SECOND * 8);
            assert_eq!(net.pcf().open_associations(), 0, "{state:?}");
        }
    }
}

#[test] // TS 29.512 §5.7.3, TS 29.524 §5.2.3
fn a_session_that_the_pcf_denies_is_refused() {
    let (mut net, ue, _) = populate(builder(5, FailureHandling::Continue).build());
    net.pcf().denial = Some(PolicyDenial::ContextDenied);
    assert_eq!(establish(&mut net, ue), None);
    assert!(
        refused_with(&net, ue, Reason::Sm(SmCause::UserAuthenticationOrAuthorizationFailed)),
        "{:?}",
        net.ue_events(ue)
    );
    assert_eq!(net.upf_sessions(), 0);
}

#[test] // TS 29.512 §4.2.4.15
fn rules_that_are_not_in_force_are_reported_to_the_pcf() {
    let (mut net, ue, supi) = populate(builder(6, FailureHandling::Terminate).build());
    let too_many = PccRule {
        filters: decision(64).rules[0].1.as_ref().map(|r| vec![r.filters[0].clone(); 20]).unwrap_or_default(),
        qos: Some("qos-1".into()),
        precedence: Some(30),
        ..PccRule::default()
    };
    net.pcf()
        .decision
        .rules
        .extend([("many".into(), Some(too_many)), ("nothing".into(), Some(PccRule::default()))]);
    let session = establish(&mut net, ue).expect("a session");
    assert_eq!(flows(&net), [("voice-1".to_owned(), Some(64))]);
    let failed: Vec<_> = reports(&mut net).into_iter().flat_map(|report| report.failed).collect();
    let expected =
        [("many".into(), RuleFailure::UnsuccessfulQos), ("nothing".into(), RuleFailure::MissingFlows)];
    assert_eq!(failed, expected);
    // The association is lost at the PCF, and made again at the next event.
    net.pcf().forget();
    net.pcf().decision = decision(32);
    let unknown = vec![("other".into(), Some(PccRule { has_application: true, ..PccRule::default() }))];
    let change = PolicyDecision { rules: unknown, ..PolicyDecision::default() };
    net.pcf_notifies(supi, session, PolicyNotification::Changed(change));
    net.settle(SECOND * 8);
    assert_eq!((net.pcf().open_associations(), flows(&net)), (1, vec![("voice-1".to_owned(), Some(32))]));
    no_violations(&net);
}

#[test] // TS 29.512 §4.2.4.7
fn a_change_of_the_subscription_is_the_pcfs_to_decide() {
    let (mut net, ue, supi) = populate(builder(7, FailureHandling::Terminate).build());
    establish(&mut net, ue).expect("a session");
    let mut subscription = subscription();
    let slower = Ambr { ul_kbps: 500, dl_kbps: 600 };
    subscription.slices[0].dnns.iter_mut().for_each(|d| d.session_ambr = slower);
    net.home().subscribe(subscription);
    net.subscriber_changed(supi);
    net.settle(SECOND * 4);
    let subscribed: Vec<_> = reports(&mut net).iter().map(|r| r.subscribed.ambr).collect();
    assert_eq!((subscribed, ambr(&net, ue)), (vec![Some(slower)], Some((3_000, 2_000))));
}

#[test] // TS 29.512 §4.2.3.3
fn a_session_ends_with_its_association() {
    let (mut net, ue, supi) = populate(builder(8, FailureHandling::Terminate).build());
    let session = establish(&mut net, ue).expect("a session");
    net.pcf_notifies(supi, session, PolicyNotification::Terminated { reactivate: false });
    net.settle(SECOND * 8);
    assert_eq!((net.ue_ref(ue).sessions().count(), net.pcf().open_associations()), (0, 0));
    assert_eq!(net.upf_sessions(), 0);
}

#[test] // TS 29.512 §4.2.3.2: also while the gNB sets the session up
fn an_order_that_comes_during_the_establishment_is_in_force_after_it() {
    let step = std::time::Duration::from_micros(20);
    let mut orders = 0;
    loop {
        let (mut net, ue, supi) = populate(builder(11, FailureHandling::Terminate).build());
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        // The order comes one step later each time, until it no longer comes during the establishment.
        let associated = loop {
            net.advance(step);
            let mut sessions = net.contexts().flat_map(|ue| ue.sessions.values());
            if let Some(s) = sessions.find(|s| s.policy.as_ref().is_some_and(|p| !p.reference.is_empty())) {
                break s.psi;
            }
        };
        net.advance(step * orders);
        if net.contexts().flat_map(|ue| ue.sessions.values()).all(|s| s.up != UpState::Establishing) {
            break;
        }
        orders += 1;
        let faster =
            PolicyDecision { qos: vec![("qos-1".into(), Some(voice(128)))], ..PolicyDecision::default() };
        net.pcf_notifies(supi, associated, PolicyNotification::Changed(faster));
        net.settle(SECOND * 8);
        assert_eq!(flows(&net), [("voice-1".to_owned(), Some(128))], "order {orders}");
        assert_eq!(rules(&net, ue), [255, 20], "order {orders}");
        no_violations(&net);
    }
    assert!(orders > 2, "{orders} orders during the establishment");
}

#[test] // TS 29.512 §4.2.4: the association is lost, and the PCF does not answer when it is made again
fn a_pcf_that_forgets_and_is_silent_leaves_the_session_the_data_networks_policy() {
    let (mut net, ue, supi) = populate(builder(12, FailureHandling::Continue).build());
    let session = establish(&mut net, ue).expect("a session");
    net.pcf().forget();
    net.pcf().state = PcfState::SilentToCreate;
    let wrong = vec![("other".into(), Some(PccRule { has_application: true, ..PccRule::default() }))];
    let change = PolicyDecision { rules: wrong, ..PolicyDecision::default() };
    net.pcf_notifies(supi, session, PolicyNotification::Changed(change));
    net.settle(SECOND * 40);
    assert_eq!(flows(&net), [("voice".to_owned(), None)], "the data network's own");
    net.pcf().state = PcfState::Answering;
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 8);
    assert_eq!((net.pcf().open_associations(), net.upf_sessions()), (0, 0));
    no_violations(&net);
}

/// A session that the PCF changes twice, and its end. An order whose acknowledgement may be lost is sent so often.
fn life(net: &mut Sim, ue: UeIndex, supi: Supi, orders: usize, of: &dyn Fn() -> String) {
    let session = establish(net, ue).unwrap_or_else(|| panic!("{}: {:?}", of(), net.ue_events(ue)));
    for kbps in [96, 128] {
        let change =
            PolicyDecision { qos: vec![("qos-1".into(), Some(voice(kbps)))], ..PolicyDecision::default() };
        for _ in 0..orders {
            net.pcf_notifies(supi, session, PolicyNotification::Changed(change.clone()));
            net.settle(SECOND * 8);
        }
        assert_eq!(flows(net), [("voice-1".to_owned(), Some(kbps))], "{}", of());
    }
    net.command(ue, UeCommand::Deregister { switch_off: false });
    net.settle(SECOND * 40);
    assert_eq!((net.pcf().open_associations(), net.upf_sessions()), (0, 0), "{}", of());
}

#[test] // Neutrino §4.2.5 with a request to the PCF under way
fn a_session_has_its_policies_whichever_message_a_cpf_is_lost_at() {
    let begin = || populate(builder(9, FailureHandling::Terminate).cpfs(3, 1).build());
    let (before, taken) = {
        let (mut net, ue, supi) = begin();
        let before = net.links_taken();
        life(&mut net, ue, supi, 1, &|| "no loss".into());
        (before, net.links_taken())
    };
    let mut taken_over = 0;
    for how in CpfLoss::ALL {
        for message in before + 1..=taken {
            let (mut net, ue, supi) = begin();
            net.lose_cpf_at(message, how);
            life(&mut net, ue, supi, 1, &|| format!("{how:?} at message {message} of {before} to {taken}"));
            no_violations(&net);
            taken_over += net.cta().replication_counters().taken_over;
            assert_eq!(net.cta().replication_counters().diverged, 0);
        }
    }
    assert!(taken_over > (taken - before) / 4, "{taken_over} takeovers in {} messages", taken - before);
}

#[test]
fn a_session_has_its_policies_whichever_input_a_cta_is_lost_at() {
    let begin = || populate(builder(10, FailureHandling::Terminate).cpfs(2, 1).cta_replica().build());
    let (before, taken) = {
        let (mut net, ue, supi) = begin();
        let before = net.inputs_taken();
        life(&mut net, ue, supi, 2, &|| "no loss".into());
        (before, net.inputs_taken())
    };
    for how in CtaLoss::ALL {
        for input in before + 1..=taken {
            let (mut net, ue, supi) = begin();
            net.lose_cta_at(input, how);
            life(&mut net, ue, supi, 2, &|| format!("{how:?} at input {input} of {before} to {taken}"));
        }
    }
}
