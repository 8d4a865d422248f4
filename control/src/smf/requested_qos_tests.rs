//! The cases of TS 24.501 §6.4.2.4 and §6.3.2.4, one by one.

use whimbrel_nas::ie::{BitRate, FilterComponent as C, FilterDirection, QosFlowBinding};

use super::*;
use crate::policy::FlowGate;
use crate::state::Arp;

fn qfi(n: u8) -> Qfi {
    Qfi::new(n).unwrap()
}

fn policy(name: &str, five_qi: u8, setup: Setup) -> FlowPolicy {
    let rate = Ambr { ul_kbps: 100, dl_kbps: 200 };
    FlowPolicy {
        name: name.parse().unwrap(),
        five_qi: FiveQi(five_qi),
        arp: Arp { priority: 5, may_preempt: false, preemptable: true },
        gbr: is_gbr(FiveQi(five_qi)).then_some(Gbr { guaranteed: rate, maximum: rate }),
        precedence: 20,
        filters: Vec::new(),
        gate: FlowGate::default(),
        setup,
    }
}

fn filter(id: u8, port: u8) -> PacketFilter {
    PacketFilter {
        id,
        direction: FilterDirection::Bidirectional,
        components: vec![C::Protocol([17]), C::RemotePort([0, port])],
    }
}

/// Flow 2 is the network's, with rule 2; flow 3 the UE's, with rule 3 and two filters.
fn flows() -> Vec<QosFlow> {
    let flow = |n: u8, of_ue| QosFlow {
        qfi: qfi(n),
        name: if of_ue { "game" } else { "voice" }.parse().unwrap(),
        five_qi: FiveQi(if of_ue { 3 } else { 1 }),
        arp: Arp { priority: 5, may_preempt: false, preemptable: true },
        gbr: Some(Gbr {
            guaranteed: Ambr { ul_kbps: 50, dl_kbps: 50 },
            maximum: Ambr { ul_kbps: 100, dl_kbps: 100 },
        }),
        gate: FlowGate::default(),
        rules: vec![FlowRule {
            id: n,
            precedence: 10 * n,
            filters: vec![filter(0, n), filter(1, 10 + n)],
            application: None,
        }],
        mark: 0,
        reflective: false,
        of_ue,
        fulfilled: true,
    };
    vec![flow(2, false), flow(3, true)]
}

fn asked(rules: &[QosRule], descriptions: &[QosFlowDescription]) -> Result<Vec<QosFlow>, SmCause> {
    asked_of(PduSessionType::Ipv4, rules, descriptions)
}

fn asked_of(
    session_type: PduSessionType,
    rules: &[QosRule],
    descriptions: &[QosFlowDescription],
) -> Result<Vec<QosFlow>, SmCause> {
    let policies = [
        policy("voice", 1, Setup::Always),
        policy("game", 3, Setup::OnRequest),
        policy("video", 2, Setup::OnRequest),
        policy("bulk", 8, Setup::OnRequest),
    ];
    let smf = crate::ue_harness::config().smf;
    let ground = QosConstraints {
        session_type,
        filters_max: 16,
        reflects: true,
        marks: &Default::default(),
        smf: &smf,
        treatments: None,
    };
    let terms = Terms { ground, policies: policies.iter().collect() };
    grant(&terms, &flows(), rules, descriptions)
}

fn rule(id: u8, precedence: u8, flow: u8, operation: RuleOperation) -> QosRule {
    let binding = Some(QosFlowBinding { precedence, segregation: false, qfi: qfi(flow) });
    let binding = binding.filter(|_| operation != RuleOperation::Delete);
    QosRule { id, operation, default: false, binding }
}

fn description(n: u8, operation: FlowOperation, parameters: Vec<FlowParameter>) -> QosFlowDescription {
    QosFlowDescription { qfi: qfi(n), operation, e_bit: true, parameters }
}

fn five_qi(n: u8) -> Vec<FlowParameter> {
    vec![FlowParameter::FiveQi(FiveQi(n))]
}

fn create(five: u8) -> QosFlowDescription {
    description(0, FlowOperation::Create, five_qi(five))
}

#[test] // TS 24.501 §6.4.2.2: a new flow with a rule, within what the policy lets UEs ask for
fn a_new_flow_is_granted() {
    let granted = asked(&[rule(0, 70, 0, RuleOperation::Create(vec![filter(0, 80)]))], &[create(2)]).unwrap();
    let new = granted.last().unwrap();
    assert_eq!((new.qfi, new.name.as_str(), new.of_ue), (qfi(4), "video", true));
    assert_eq!((new.rules[0].id, new.rules[0].precedence), (4, 70));
    assert_eq!(new.gbr.unwrap().guaranteed, Ambr { ul_kbps: 100, dl_kbps: 200 });
}

#[test] // TS 24.501 §6.4.2.2: its own flows the UE may take down
fn the_ues_own_flow_is_deleted() {
    let granted = asked(&[rule(3, 0, 0, RuleOperation::Delete)], &[]).unwrap();
    assert_eq!(granted.len(), 1, "a flow that nothing leads to is gone");
    let granted = asked(&[], &[description(3, FlowOperation::Delete, vec![])]).unwrap();
    assert_eq!(granted.len(), 1);
}

#[test] // TS 24.501 §6.4.2.2: filters added, replaced, deleted
fn filters_of_the_ues_own_rule_are_changed() {
    let filters = |operation| asked(&[rule(3, 31, 3, operation)], &[]).unwrap()[1].rules[0].clone();
    let added = filters(RuleOperation::AddFilters(vec![filter(0, 99)]));
    assert_eq!((added.filters.len(), added.precedence), (3, 31));
    assert_eq!(added.filters.iter().map(|f| f.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(filters(RuleOperation::ReplaceFilters(vec![filter(0, 99)])).filters.len(), 1);
    assert_eq!(filters(RuleOperation::DeleteFilters(vec![1])).filters.len(), 1);
}

#[test] // TS 24.501 §6.4.2.4: #59
fn a_5qi_that_no_policy_has_is_not_supported() {
    for five in [4, 11, 1] {
        assert_eq!(asked(&[], &[create(five)]), Err(SmCause::Unsupported5qiValue), "{five}");
    }
}

#[test] // TS 24.501 §6.4.2.4: #37
fn rates_above_the_policy_are_not_accepted() {
    let greedy = vec![
        FlowParameter::FiveQi(FiveQi(2)),
        FlowParameter::GfbrUplink(BitRate::from_kbps(101)),
        FlowParameter::MfbrUplink(BitRate::from_kbps(101)),
    ];
    let not_accepted = Err(SmCause::FiveGsQosNotAccepted);
    assert_eq!(asked(&[], &[description(0, FlowOperation::Create, greedy)]), not_accepted);
    // The network's own flow, and the default one, are not the UE's to change.
    assert_eq!(asked(&[], &[description(2, FlowOperation::Delete, vec![])]), not_accepted);
    assert_eq!(asked(&[rule(2, 0, 0, RuleOperation::Delete)], &[]), not_accepted);
    assert_eq!(asked(&[rule(0, 70, 1, RuleOperation::Create(vec![filter(0, 80)]))], &[]), not_accepted);
}

#[test] // TS 24.501 §6.4.2.4: #26
fn more_filters_than_the_ue_holds_are_refused() {
    let many: Vec<_> = (100..112).map(|p| filter(0, p)).collect();
    let asked = asked(&[rule(0, 70, 0, RuleOperation::Create(many))], &[create(2)]);
    assert_eq!(asked, Err(SmCause::InsufficientResources));
}

#[test] // TS 24.501 §6.4.2.4: #83
fn operations_that_make_no_sense_are_semantic_errors() {
    let new = || RuleOperation::Create(vec![filter(0, 80)]);
    let default = QosRule { default: true, ..rule(0, 70, 3, new()) };
    for r in [
        rule(DEFAULT_RULE, 0, 0, RuleOperation::Delete),
        rule(DEFAULT_RULE, 255, 1, RuleOperation::ReplaceFilters(vec![filter(0, 80)])),
        default,
        rule(3, 70, 3, new()),
        rule(0, 20, 3, new()),
        rule(0, 255, 3, new()),
        rule(0, 80, 3, new()),
        rule(0, 70, 9, new()),
        rule(9, 0, 0, RuleOperation::Delete),
        rule(9, 70, 3, RuleOperation::AddFilters(vec![filter(0, 80)])),
        rule(3, 20, 3, RuleOperation::KeepFilters),
        rule(3, 30, 2, RuleOperation::KeepFilters),
        rule(3, 30, 3, RuleOperation::DeleteFilters(vec![0, 1])),
    ] {
        assert_eq!(asked(std::slice::from_ref(&r), &[]), Err(SEMANTIC), "{r:?}");
    }
    for d in [
        description(3, FlowOperation::Create, five_qi(2)),
        description(1, FlowOperation::Create, five_qi(2)),
        description(9, FlowOperation::Modify, five_qi(2)),
        description(9, FlowOperation::Delete, vec![]),
        description(1, FlowOperation::Delete, vec![]),
    ] {
        assert_eq!(asked(&[], std::slice::from_ref(&d)), Err(SEMANTIC), "{d:?}");
    }
    assert_eq!(asked(&[], &[create(2), create(8)]), Err(SEMANTIC), "one name for two flows");
    let rated = vec![FlowParameter::FiveQi(FiveQi(8)), FlowParameter::GfbrUplink(BitRate::from_kbps(1))];
    assert_eq!(asked(&[], &[description(0, FlowOperation::Create, rated)]), Err(SEMANTIC));
}

#[test] // TS 24.501 §6.4.2.4: #84
fn operations_that_are_not_well_formed_are_syntactical_errors() {
    let unbound = QosRule { binding: None, ..rule(0, 70, 3, RuleOperation::Create(vec![filter(0, 80)])) };
    let sixteen = (100..116).map(|p| filter(0, p)).collect();
    for r in [
        unbound,
        rule(0, 70, 3, RuleOperation::Create(vec![])),
        rule(3, 30, 3, RuleOperation::AddFilters(vec![])),
        rule(3, 30, 3, RuleOperation::ReplaceFilters(vec![])),
        rule(3, 30, 3, RuleOperation::ReplaceFilters(sixteen)),
        rule(3, 30, 3, RuleOperation::DeleteFilters(vec![])),
        rule(3, 30, 3, RuleOperation::DeleteFilters(vec![7])),
    ] {
        assert_eq!(asked(std::slice::from_ref(&r), &[]), Err(SYNTACTICAL), "{r:?}");
    }
    for d in
        [description(0, FlowOperation::Create, vec![]), description(3, FlowOperation::Delete, five_qi(2))]
    {
        assert_eq!(asked(&[], std::slice::from_ref(&d)), Err(SYNTACTICAL), "{d:?}");
    }
}

#[test] // TS 24.501 §6.4.2.4: #44 and #45; match-all twice
fn packet_filters_are_judged() {
    let with = |components: Vec<C>| PacketFilter { components, ..filter(0, 0) };
    let create = |filters| asked(&[rule(0, 70, 3, RuleOperation::Create(filters))], &[]);
    let semantic = Err(SmCause::SemanticErrorsInPacketFilters);
    let all = || with(vec![C::MatchAll]);
    assert_eq!(create(vec![all(), all()]), semantic);
    assert_eq!(create(vec![with(vec![C::Ipv6Local([0; 17])])]), semantic);
    let syntactical = Err(SmCause::SyntacticalErrorInPacketFilters);
    assert_eq!(create(vec![with(vec![])]), syntactical);
    assert_eq!(create(vec![with(vec![C::MatchAll, C::MatchAll])]), syntactical);
    assert!(create(vec![all()]).is_ok());
}

#[test] // TS 23.501 §5.6.10.3: a session without structure has one flow
fn an_unstructured_session_gets_no_requested_rules() {
    assert_eq!(asked_of(PduSessionType::Unstructured, &[], &[create(2)]), Err(SEMANTIC));
    assert!(asked_of(PduSessionType::Unstructured, &[], &[]).is_ok());
}
