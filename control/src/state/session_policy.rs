//! Policies of a PCF for a session, as the SMF stores them (TS 29.512 §4.2.6), and the QoS flows that follow from them.

use serde::{Deserialize, Serialize};
use whimbrel_ids::FiveQi;

use super::sm_context::UeAddress;
use super::subscription::Arp;
use crate::filter;
use crate::policy::{
    DEFAULT_PRECEDENCE, DERIVED_PRECEDENCE, FLOWS_MAX, FlowGate, FlowName, FlowPolicy, Setup, is_non_gbr,
};
use crate::services::npcf::{
    PccRule, PolicyDecision, PolicyReport, PolicyTriggers, RuleFailure, RuleQos, SessionRule,
};

/// PCC rules, QoS data and gates of one session, of each: a decision with more of them loses the rest.
const ENTRIES_MAX: usize = 64;

/// The policies of a session whose PCF is another function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPolicy {
    /// The association at the PCF.
    pub reference: Box<str>,
    /// QoS of the session.
    pub session_rule: SessionRule,
    /// The PCC rules.
    pub rules: Vec<InstalledRule>,
    /// QoS data by their identities.
    pub qos: Vec<(Box<str>, RuleQos)>,
    /// Gates of traffic control data by their identities.
    pub gates: Vec<(Box<str>, FlowGate)>,
    /// The events that the PCF wants to know of.
    pub triggers: PolicyTriggers,
    /// The flows that follow from the rules.
    pub flows: Vec<FlowPolicy>,
    /// Events that have not been reported to the PCF yet.
    pub due: PolicyReport,
}

/// A PCC rule with the name of its flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledRule {
    /// Its identity at the PCF.
    pub id: Box<str>,
    /// The name of its QoS flow.
    pub name: FlowName,
    /// The rule with its changes so far.
    pub rule: PccRule,
}

impl InstalledRule {
    fn change(&mut self, change: PccRule) {
        let PccRule { precedence, filters, has_unknown_filter, has_application, qos, gate } = change;
        let rule = &mut self.rule;
        rule.precedence = precedence.or(rule.precedence);
        if !filters.is_empty() || has_unknown_filter {
            (rule.filters, rule.has_unknown_filter) = (filters, has_unknown_filter);
        }
        rule.has_application |= has_application;
        rule.qos = qos.or(rule.qos.take());
        rule.gate = gate.or(rule.gate.take());
    }

    /// The greatest precedence is that of rules without one.
    fn precedence(&self) -> u32 {
        self.rule.precedence.unwrap_or(u32::MAX)
    }
}

impl SessionPolicy {
    /// Takes over a decision, whole or a change. `predefined`: flows of the data network, which the PCF may activate by name; `default`:
    /// QoS of the default flow unless the PCF has decided that; `address`: the UE's. Rules that cannot be in force are removed, and due to be reported.
    pub(crate) fn decide(
        &mut self,
        decision: PolicyDecision,
        predefined: &[FlowPolicy],
        default: (FiveQi, Arp),
        address: UeAddress,
    ) {
        let PolicyDecision { session_rule, mut rules, qos, gates, triggers } = decision;
        let filters =
            rules.iter_mut().filter_map(|(_, rule)| rule.as_mut()).flat_map(|rule| &mut rule.filters);
        filters.for_each(|filter| filter::turn_towards(filter, address));
        self.session_rule.ambr = session_rule.ambr.or(self.session_rule.ambr);
        // The default flow has no guaranteed rates (TS 23.501 §5.7.1.1).
        let default_qos = session_rule.default_qos.filter(|(five_qi, _)| is_non_gbr(*five_qi));
        self.session_rule.default_qos = default_qos.or(self.session_rule.default_qos);
        self.triggers = triggers.unwrap_or(self.triggers);
        let names = |reference: fn(&PccRule) -> &Option<Box<str>>| {
            self.rules.iter().filter_map(|r| reference(&r.rule).clone()).collect::<Vec<_>>()
        };
        let (used_qos, used_gates) = (names(|rule| &rule.qos), names(|rule| &rule.gate));
        change(&mut self.qos, qos, &used_qos);
        change(&mut self.gates, gates, &used_gates);
        for (id, rule) in rules {
            let known = self.rules.iter().position(|r| r.id == id);
            match (known, rule) {
                (Some(at), Some(rule)) => self.rules[at].change(rule),
                (Some(at), None) => drop(self.rules.remove(at)),
                (None, Some(rule)) if self.rules.len() < ENTRIES_MAX => {
                    self.make_way(&rule);
                    let name = self.name_for(&id);
                    self.rules.push(InstalledRule { id, name, rule });
                }
                (None, Some(_)) => self.fail(id, RuleFailure::TooManyFlows),
                (None, None) => {}
            }
        }
        self.rules.sort_by(|a, b| (a.precedence(), &a.id).cmp(&(b.precedence(), &b.id)));
        self.bind(predefined, self.session_rule.default_qos.unwrap_or(default));
    }

    /// A rule of exactly these packets is gone: packets could never match the second of two.
    ///
    /// Deviation: free5GC's PCF changes a rule of an application function by a new one, and does not remove the old one.
    fn make_way(&mut self, new: &PccRule) {
        self.rules.retain(|old| new.filters.is_empty() || old.rule.filters != new.filters);
    }

    /// A rule is not in force any more: this is reported to the PCF.
    pub(crate) fn lose(&mut self, flow: FlowName) {
        let lost: Vec<_> = self.rules.extract_if(.., |rule| rule.name == flow).collect();
        lost.into_iter().for_each(|rule| self.fail(rule.id, RuleFailure::AllocationFailed));
        self.flows.retain(|f| f.name != flow);
    }

    /// The gNB fulfils the guarantee of a flow again, or does not any more (TS 29.512 §4.2.4.11).
    pub(crate) fn guarantee_changed(&mut self, flow: FlowName, fulfilled: bool) {
        let rule = self.rules.iter().find(|rule| rule.name == flow).map(|rule| rule.id.clone());
        let Some(rule) = rule.filter(|_| self.triggers.has(PolicyTriggers::QOS_NOTIFICATION)) else { return };
        self.due.triggers = self.due.triggers.with(PolicyTriggers::QOS_NOTIFICATION);
        self.due.guarantees.retain(|(id, _)| *id != rule);
        self.due.guarantees.push((rule, fulfilled));
    }

    fn fail(&mut self, rule: Box<str>, why: RuleFailure) {
        if self.due.failed.len() < ENTRIES_MAX {
            self.due.failed.push((rule, why));
        }
    }

    /// Binds rules to QoS flows (TS 23.503 §6.1.3.2.4): each to one of its own, unless its QoS is that of the default flow.
    fn bind(&mut self, predefined: &[FlowPolicy], default: (FiveQi, Arp)) {
        let mut flows: Vec<FlowPolicy> = Vec::new();
        let rules = std::mem::take(&mut self.rules);
        let count = rules.len();
        for (i, installed) in rules.into_iter().enumerate() {
            match self.flow(&installed, predefined, default) {
                Ok(None) => self.rules.push(installed),
                Ok(Some(_)) if flows.len() >= FLOWS_MAX => {
                    self.fail(installed.id, RuleFailure::TooManyFlows);
                }
                Ok(Some(mut flow)) => {
                    let before = flows.last().map_or(0, |f| f.precedence);
                    flow.precedence = precedence(installed.precedence(), before, count - 1 - i);
                    match flow.check() {
                        Ok(()) => {
                            flows.push(flow);
                            self.rules.push(installed);
                        }
                        Err(_) => self.fail(installed.id, RuleFailure::UnsuccessfulQos),
                    }
                }
                Err(why) => self.fail(installed.id, why),
            }
        }
        self.flows = flows;
    }

    /// The flow of a rule; none: the default flow.
    fn flow(
        &self,
        installed: &InstalledRule,
        predefined: &[FlowPolicy],
        default: (FiveQi, Arp),
    ) -> Result<Option<FlowPolicy>, RuleFailure> {
        let InstalledRule { id, name, rule } = installed;
        if rule.has_application {
            return Err(RuleFailure::ApplicationUnknown);
        }
        if rule.has_unknown_filter {
            return Err(RuleFailure::IncorrectFlows);
        }
        if rule.filters.is_empty() {
            let known = predefined.iter().find(|flow| flow.name.as_str() == &**id);
            let known = known.ok_or(RuleFailure::MissingFlows)?;
            return Ok(Some(FlowPolicy { name: *name, setup: Setup::Always, ..known.clone() }));
        }
        let qos = match &rule.qos {
            Some(id) => Some(of(&self.qos, id).ok_or(RuleFailure::UnknownReference)?),
            None => None,
        };
        let gate = match &rule.gate {
            Some(id) => of(&self.gates, id).ok_or(RuleFailure::UnknownReference)?,
            None => FlowGate::default(),
        };
        let five_qi = qos.and_then(|q| q.five_qi).unwrap_or(default.0);
        let arp = qos.and_then(|q| q.arp).unwrap_or(default.1);
        let gbr = qos.and_then(|q| q.gbr);
        let is_default = qos.is_none_or(|q| q.is_default_flow) || (five_qi, arp) == default && gbr.is_none();
        if is_default && gate == FlowGate::default() {
            return Ok(None);
        }
        let filters = rule.filters.clone();
        Ok(Some(FlowPolicy {
            name: *name,
            five_qi,
            arp,
            gbr,
            precedence: 1,
            filters,
            gate,
            setup: Setup::Always,
        }))
    }

    /// A name for the flow of a rule that no other rule has: its identity, as far as a name can have it.
    fn name_for(&self, id: &str) -> FlowName {
        let plain: String = id
            .bytes()
            .map(|octet| match octet.to_ascii_lowercase() {
                letter if letter.is_ascii_lowercase() || letter.is_ascii_digit() => char::from(letter),
                _ => '-',
            })
            .take(16)
            .collect();
        let is_free = |name: &FlowName| self.rules.iter().all(|rule| rule.name != *name);
        let numbered = (2..=ENTRIES_MAX + 1).map(|n| format!("{:.13}-{n}", plain));
        let names = std::iter::once(plain.clone()).chain(numbered);
        names.filter_map(|name| name.parse().ok()).find(is_free).unwrap_or_default()
    }
}

/// The precedence of a QoS rule among 1 to 254 that keeps the order of the PCC rules, with as many after it.
fn precedence(of_rule: u32, before: u8, after: usize) -> u8 {
    let last = usize::from(DEFAULT_PRECEDENCE - 1).saturating_sub(after) as u8;
    let candidate = u8::try_from(of_rule).unwrap_or(last).min(last).max(before.saturating_add(1));
    if candidate == DERIVED_PRECEDENCE { candidate + 1 } else { candidate }
}

fn of<T: Copy>(entries: &[(Box<str>, T)], id: &str) -> Option<T> {
    entries.iter().find(|(name, _)| **name == *id).map(|(_, value)| *value)
}

/// Takes changed entries over. At the bound, those that no rule uses go: free5GC's PCF removes none.
fn change<T>(entries: &mut Vec<(Box<str>, T)>, changes: Vec<(Box<str>, Option<T>)>, used: &[Box<str>]) {
    if entries.len() + changes.len() > ENTRIES_MAX {
        entries.retain(|(name, _)| used.contains(name));
    }
    for (id, value) in changes {
        entries.retain(|(name, _)| *name != id);
        if let Some(value) = value.filter(|_| entries.len() < ENTRIES_MAX) {
            entries.push((id, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use whimbrel_nas::ie::PacketFilter;

    use crate::policy::{Gbr, packet_filter};
    use crate::state::Ambr;

    const DEFAULT: (FiveQi, Arp) = (FiveQi(9), Arp { priority: 8, may_preempt: false, preemptable: true });

    const ADDRESS: UeAddress =
        UeAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 7)), ipv6: None, interface_id: [0; 8] };

    fn rule(precedence: u32, qos: &str) -> Option<PccRule> {
        rule_for(5004, precedence, qos)
    }

    fn rule_for(port: usize, precedence: u32, qos: &str) -> Option<PccRule> {
        let text = format!("permit out 17 from 198.51.100.1 to assigned {port}");
        let filters = vec![packet_filter(&text).unwrap()];
        Some(PccRule { precedence: Some(precedence), filters, qos: Some(qos.into()), ..PccRule::default() })
    }

    fn voice(kbps: u64) -> Option<RuleQos> {
        let rate = Ambr { ul_kbps: kbps, dl_kbps: kbps };
        let gbr = Some(Gbr { guaranteed: rate, maximum: rate });
        Some(RuleQos { five_qi: Some(FiveQi(1)), arp: Some(DEFAULT.1), gbr, is_default_flow: false })
    }

    fn decided(decision: PolicyDecision) -> SessionPolicy {
        let mut policy = SessionPolicy::default();
        policy.decide(decision, &[], DEFAULT, ADDRESS);
        policy
    }

    fn flows(policy: &SessionPolicy) -> Vec<(&str, u8, Option<u64>)> {
        let flow = |f: &'_ FlowPolicy| f.gbr.map(|g| g.guaranteed.dl_kbps);
        policy.flows.iter().map(|f| (f.name.as_str(), f.precedence, flow(f))).collect()
    }

    #[test] // TS 29.512 §4.2.6.2
    fn a_change_of_qos_data_changes_the_flows_of_rules_that_refer_to_them() {
        let mut policy = decided(PolicyDecision {
            rules: vec![("PccRule:1".into(), rule(10, "q1"))],
            qos: vec![("q1".into(), voice(64))],
            ..Default::default()
        });
        assert_eq!(flows(&policy), [("pccrule-1", 10, Some(64))]);
        policy.decide(
            PolicyDecision { qos: vec![("q1".into(), voice(128))], ..Default::default() },
            &[],
            DEFAULT,
            ADDRESS,
        );
        assert_eq!(flows(&policy), [("pccrule-1", 10, Some(128))]);
        policy.decide(
            PolicyDecision { rules: vec![("PccRule:1".into(), None)], ..Default::default() },
            &[],
            DEFAULT,
            ADDRESS,
        );
        assert!(policy.flows.is_empty() && policy.rules.is_empty() && policy.due.is_empty());
    }

    #[test] // TS 29.512 §4.2.6.2.1, as Open5GS's PCF changes a rule
    fn what_a_change_of_a_rule_does_not_name_stays() {
        let mut policy = decided(PolicyDecision {
            rules: vec![("r".into(), rule(10, "q1"))],
            qos: vec![("q1".into(), voice(64))],
            ..Default::default()
        });
        let before = policy.clone();
        let rules = vec![("r".into(), Some(PccRule::default()))];
        policy.decide(PolicyDecision { rules, ..Default::default() }, &[], DEFAULT, ADDRESS);
        assert_eq!(policy, before);
        let rules = vec![("r".into(), Some(PccRule { qos: Some("q2".into()), ..Default::default() }))];
        let qos = vec![("q2".into(), voice(96)), ("q1".into(), None)];
        policy.decide(PolicyDecision { rules, qos, ..Default::default() }, &[], DEFAULT, ADDRESS);
        assert_eq!(flows(&policy), [("r", 10, Some(96))]);
        assert_eq!(policy.flows[0].filters, before.flows[0].filters);
    }

    #[test]
    fn an_uplink_filter_that_names_the_ue_first_is_turned_round() {
        let text = "uplink permit out 17 from 10.45.0.7 7000 to 198.51.100.9 6000";
        let filters =
            vec![packet_filter(text).unwrap(), packet_filter(&text.replace("uplink ", "")).unwrap()];
        let rules = vec![("r".into(), rule(1, "q1").map(|rule| PccRule { filters, ..rule }))];
        let policy =
            decided(PolicyDecision { rules, qos: vec![("q1".into(), voice(64))], ..Default::default() });
        let right = packet_filter("uplink permit out 17 from 198.51.100.9 6000 to 10.45.0.7 7000").unwrap();
        let same = |a: &PacketFilter| a.components.iter().all(|c| right.components.contains(c));
        assert_eq!(policy.flows[0].filters.iter().map(same).collect::<Vec<_>>(), [true, true]);
    }

    #[test] // TS 23.503 §6.1.3.2.4
    fn a_rule_with_the_qos_of_the_default_flow_needs_no_flow_unless_its_gate_is_closed() {
        let default = RuleQos { five_qi: Some(FiveQi(9)), arp: None, gbr: None, is_default_flow: false };
        let mut policy = decided(PolicyDecision {
            rules: vec![("all".into(), rule(255, "q1"))],
            qos: vec![("q1".into(), Some(default))],
            ..Default::default()
        });
        assert!(policy.flows.is_empty() && policy.due.is_empty());
        let closed = FlowGate { uplink: false, downlink: false };
        let with_gate = rule(255, "q1").map(|r| PccRule { gate: Some("t1".into()), ..r });
        policy.decide(
            PolicyDecision {
                rules: vec![("all".into(), with_gate)],
                gates: vec![("t1".into(), Some(closed))],
                ..Default::default()
            },
            &[],
            DEFAULT,
            ADDRESS,
        );
        assert_eq!((policy.flows.len(), policy.flows[0].gate), (1, closed));
    }

    #[test]
    fn the_order_of_rules_is_kept_within_the_precedences_of_qos_rules() {
        let all = [("c", 4_000_000_000), ("b", 300), ("a", 299), ("d", 79), ("e", 80), ("f", 0)];
        let policy = decided(PolicyDecision {
            rules: all
                .iter()
                .enumerate()
                .map(|(n, (id, p))| (Box::from(*id), rule_for(n, *p, "q1")))
                .collect(),
            qos: vec![("q1".into(), voice(64))],
            ..Default::default()
        });
        let names: Vec<_> = flows(&policy).iter().map(|f| (f.0, f.1)).collect();
        assert_eq!(names, [("f", 1), ("d", 79), ("e", 81), ("a", 252), ("b", 253), ("c", 254)]);
    }

    #[test] // TS 29.512 §4.2.4.15
    fn rules_that_cannot_be_in_force_are_reported_once_and_forgotten() {
        let mut policy = decided(PolicyDecision {
            rules: vec![
                ("none".into(), Some(PccRule::default())),
                ("lost".into(), rule_for(1, 1, "elsewhere")),
                ("rates".into(), rule(2, "q1")),
                ("app".into(), Some(PccRule { has_application: true, ..PccRule::default() })),
            ],
            qos: vec![("q1".into(), voice(64).map(|q| RuleQos { gbr: None, ..q }))],
            ..Default::default()
        });
        let mut failed = std::mem::take(&mut policy.due).failed;
        failed.sort_by(|a, b| a.0.cmp(&b.0));
        let all = [
            ("app", RuleFailure::ApplicationUnknown),
            ("lost", RuleFailure::UnknownReference),
            ("none", RuleFailure::MissingFlows),
            ("rates", RuleFailure::UnsuccessfulQos),
        ];
        assert_eq!(failed, all.map(|(id, why)| (Box::from(id), why)));
        policy.decide(PolicyDecision::default(), &[], DEFAULT, ADDRESS);
        assert!(policy.due.is_empty() && policy.rules.is_empty());
    }

    #[test]
    fn more_rules_than_flows_are_bounded_and_similar_names_stay_distinct() {
        let rules =
            (0..100).map(|n| (format!("a rule with a long name, number {n}").into(), rule_for(n, 5, "q1")));
        let policy = decided(PolicyDecision {
            rules: rules.collect(),
            qos: vec![("q1".into(), voice(64))],
            ..Default::default()
        });
        let names: std::collections::BTreeSet<_> = policy.flows.iter().map(|f| f.name).collect();
        assert_eq!((policy.flows.len(), names.len()), (FLOWS_MAX, FLOWS_MAX));
        assert_eq!(policy.due.failed.len(), ENTRIES_MAX, "the report is bounded");
    }

    #[test] // as free5GC's PCF changes a rule
    fn a_new_rule_of_the_same_packets_takes_the_place_of_the_old_one() {
        let mut policy = decided(PolicyDecision {
            rules: vec![("r2".into(), rule(23, "q1"))],
            qos: vec![("q1".into(), voice(64))],
            ..Default::default()
        });
        let (rules, qos) = (vec![("r3".into(), rule(23, "q3"))], vec![("q3".into(), voice(96))]);
        policy.decide(PolicyDecision { rules, qos, ..Default::default() }, &[], DEFAULT, ADDRESS);
        assert_eq!(flows(&policy), [("r3", 23, Some(96))]);
        assert!(policy.due.is_empty());
    }

    #[test] // as free5GC's PCF, which never removes QoS data
    fn data_that_no_rule_uses_do_not_fill_the_session() {
        let mut policy = decided(PolicyDecision {
            rules: vec![("kept".into(), rule_for(1, 1, "kept"))],
            qos: vec![("kept".into(), voice(32))],
            ..Default::default()
        });
        for n in 0..500 {
            let id: Box<str> = format!("r{n}").into();
            let (rules, qos) = (vec![(id.clone(), rule_for(2, 23, &id))], vec![(id.clone(), voice(64))]);
            policy.decide(PolicyDecision { rules, qos, ..Default::default() }, &[], DEFAULT, ADDRESS);
            assert_eq!((policy.flows.len(), policy.due.is_empty()), (2, true), "{n}");
            policy.decide(
                PolicyDecision { rules: vec![(id, None)], ..Default::default() },
                &[],
                DEFAULT,
                ADDRESS,
            );
        }
        assert_eq!(flows(&policy), [("kept", 1, Some(32))]);
        assert!(policy.qos.len() <= ENTRIES_MAX);
    }

    #[test] // TS 23.501 §5.7.1.1
    fn the_default_flow_gets_no_5qi_of_guaranteed_rates() {
        let session_rule = SessionRule { ambr: None, default_qos: Some((FiveQi(1), DEFAULT.1)) };
        let policy = decided(PolicyDecision { session_rule, ..Default::default() });
        assert_eq!(policy.session_rule.default_qos, None);
    }

    #[test] // TS 23.503 §6.3.1: predefined PCC rules
    fn a_rule_without_flows_activates_the_data_networks_flow_of_its_name() {
        let predefined = FlowPolicy {
            name: "voice".parse().unwrap(),
            five_qi: FiveQi(1),
            arp: DEFAULT.1,
            gbr: voice(64).unwrap().gbr,
            precedence: 7,
            filters: rule(1, "").unwrap().filters,
            gate: FlowGate::default(),
            setup: Setup::ByOperator,
        };
        let mut policy = SessionPolicy::default();
        let rules = vec![("voice".into(), Some(PccRule { precedence: Some(7), ..PccRule::default() }))];
        policy.decide(PolicyDecision { rules, ..Default::default() }, &[predefined], DEFAULT, ADDRESS);
        assert_eq!(flows(&policy), [("voice", 7, Some(64))]);
        policy.lose("voice".parse().unwrap());
        assert_eq!(policy.due.failed, [("voice".into(), RuleFailure::AllocationFailed)]);
    }
}
