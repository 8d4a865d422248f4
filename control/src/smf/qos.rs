//! The QoS flows of a session: their encoding for UE and gNB (TS 23.501 §5.7.1, TS 24.501 §9.11.4.12, §9.11.4.13, TS
//! 38.413 §9.3.1.12).

use std::collections::BTreeMap;

use whimbrel_ids::{FiveQi, Qfi};
use whimbrel_nas::ie::{
    BitRate, FlowOperation, FlowParameter, PacketFilter, PduSessionType, QosFlowBinding, QosFlowDescription,
    QosRule, RuleOperation,
};
use whimbrel_ngap::ie::{
    AllocationAndRetentionPriority, GbrQosInformation, NonDynamic5qiDescriptor, NotificationControl,
    PreEmptionCapability, PreEmptionVulnerability, QosCharacteristics, QosFlowLevelQosParameters,
    ReflectiveQosAttribute,
};

use crate::config::{Config, DataNetwork, Smf};
use crate::filter;
use crate::policy::{DEFAULT_PRECEDENCE, FlowName, FlowPolicy, Gbr, Setup, Treatment};
use crate::state::{Arp, DEFAULT_QFI, DEFAULT_RULE, FlowRule, Marks, QosFlow, SmContext, bits};

/// A 5QI with its priority and rates in the form for the gNB.
pub(super) fn level_qos(
    five_qi: FiveQi,
    arp: Arp,
    gbr: Option<Gbr>,
    reflective: bool,
) -> QosFlowLevelQosParameters {
    let arp = AllocationAndRetentionPriority::new(
        arp.priority,
        if arp.may_preempt {
            PreEmptionCapability::MayTriggerPreEmption
        } else {
            PreEmptionCapability::ShallNotTriggerPreEmption
        },
        if arp.preemptable {
            PreEmptionVulnerability::PreEmptable
        } else {
            PreEmptionVulnerability::NotPreEmptable
        },
    );
    let characteristics = QosCharacteristics::NonDynamic5qi(NonDynamic5qiDescriptor::new(five_qi));
    let mut parameters = QosFlowLevelQosParameters::new(characteristics, arp);
    parameters.gbr_qos_information = gbr.map(|Gbr { guaranteed, maximum }| {
        let mut gbr = GbrQosInformation::new(
            bits(maximum.dl_kbps),
            bits(maximum.ul_kbps),
            bits(guaranteed.dl_kbps),
            bits(guaranteed.ul_kbps),
        );
        // Notification control: a gNB that cannot fulfil the guarantee notifies that before it releases the flow (TS
        // 23.501 §5.7.2.4).
        gbr.notification_control = Some(NotificationControl::NotificationRequested);
        gbr
    });
    parameters.reflective_qos_attribute = reflective.then_some(ReflectiveQosAttribute::SubjectTo);
    parameters
}

impl QosFlow {
    /// Its form for the gNB.
    pub(super) fn level_qos(&self) -> QosFlowLevelQosParameters {
        level_qos(self.five_qi, self.arp, self.gbr, self.reflective)
    }

    /// Whether the gNB's parameters differ.
    pub(super) fn differs_for_gnb(&self, other: &Self) -> bool {
        let seen = |f: &Self| (f.five_qi, f.arp, f.gbr, f.reflective);
        seen(self) != seen(other)
    }

    /// Its form for the UE: none if the UE derives the rules (TS 23.501 §5.7.5.3, TS 24.501 §6.2.5.1.4), or if it has only application
    /// rules.
    pub(super) fn for_ue(&self) -> Option<Self> {
        let rules: Vec<FlowRule> =
            self.rules.iter().filter(|r| r.application.is_none() && !self.reflective).cloned().collect();
        (!rules.is_empty()).then(|| Self { rules, ..self.clone() })
    }

    /// Its description for the UE.
    pub(super) fn description(&self, operation: FlowOperation) -> QosFlowDescription {
        let mut parameters = vec![FlowParameter::FiveQi(self.five_qi)];
        if let Some(Gbr { guaranteed, maximum }) = self.gbr {
            parameters.extend([
                FlowParameter::GfbrUplink(BitRate::from_kbps(guaranteed.ul_kbps)),
                FlowParameter::GfbrDownlink(BitRate::from_kbps(guaranteed.dl_kbps)),
                FlowParameter::MfbrUplink(BitRate::from_kbps(maximum.ul_kbps)),
                FlowParameter::MfbrDownlink(BitRate::from_kbps(maximum.dl_kbps)),
            ]);
        }
        if operation == FlowOperation::Delete {
            parameters.clear();
        }
        QosFlowDescription { qfi: self.qfi, operation, e_bit: operation != FlowOperation::Delete, parameters }
    }
}

impl FlowRule {
    /// The rule for the UE, with its operation code.
    pub(super) fn rule(&self, qfi: Qfi, operation: RuleOperation) -> QosRule {
        let binding = QosFlowBinding { precedence: self.precedence, segregation: false, qfi };
        let binding = (operation != RuleOperation::Delete).then_some(binding);
        QosRule { id: self.id, operation, default: false, binding }
    }
}

/// The default QoS rule: match-all, bidirectional, for the default flow (TS 23.501 §5.7.1.4).
pub(super) fn default_rule() -> QosRule {
    QosRule::new_default(DEFAULT_RULE, DEFAULT_PRECEDENCE, DEFAULT_QFI)
}

impl SmContext {
    /// All rules and flows of the session, for the establishment accept.
    pub(super) fn authorised(&self) -> (Vec<QosRule>, Vec<QosFlowDescription>) {
        let mut rules = vec![default_rule()];
        let mut descriptions = vec![QosFlowDescription::non_gbr(DEFAULT_QFI, self.qos.five_qi)];
        for flow in self.qos.flows.iter().filter_map(QosFlow::for_ue) {
            descriptions.push(flow.description(FlowOperation::Create));
            rules.extend(
                flow.rules.iter().map(|r| r.rule(flow.qfi, RuleOperation::Create(r.filters.clone()))),
            );
        }
        (rules, descriptions)
    }
}

/// Free identifiers of a session.
pub(super) struct Numbering<'a> {
    flows: &'a [QosFlow],
}

impl<'a> Numbering<'a> {
    pub(super) fn new(flows: &'a [QosFlow]) -> Self {
        Self { flows }
    }

    /// A free flow identifier.
    pub(super) fn qfi(&self) -> Option<Qfi> {
        let free = |q: &Qfi| *q != DEFAULT_QFI && self.flows.iter().all(|f| f.qfi != *q);
        (1..64).filter_map(Qfi::new).find(free)
    }

    /// A free rule identifier.
    pub(super) fn rule(&self) -> Option<u8> {
        self.rules().next()
    }

    /// All of them.
    pub(super) fn rules(&self) -> impl Iterator<Item = u8> + use<'a> {
        let flows = self.flows;
        let taken = move |id: u8| flows.iter().flat_map(|f| &f.rules).any(|r| r.id == id);
        (DEFAULT_RULE + 1..=u8::MAX).filter(move |id| !taken(*id))
    }

    /// Whether no rule has this precedence.
    pub(super) fn precedence_is_free(&self, precedence: u8) -> bool {
        precedence != DEFAULT_PRECEDENCE
            && self.flows.iter().flat_map(|f| &f.rules).all(|r| r.precedence != precedence)
    }

    /// Packet filters of the UE in use, the default rule's among them.
    pub(super) fn filters(&self) -> usize {
        let explicit = self.flows.iter().filter(|f| !f.reflective);
        1 + explicit.flat_map(|f| &f.rules).map(|r| r.filters.len()).sum::<usize>()
    }
}

/// Gives packet filters their identifiers within a rule.
pub(super) fn numbered(filters: impl IntoIterator<Item = PacketFilter>) -> Vec<PacketFilter> {
    filters.into_iter().zip(0..16).map(|(f, id)| PacketFilter { id, ..f }).collect()
}

/// The constraints on flows, of the session and of the operator.
#[derive(Clone, Copy)]
pub(super) struct QosConstraints<'a> {
    /// The session's type.
    pub(super) session_type: PduSessionType,
    /// Packet filters that the UE supports.
    pub(super) filters_max: u16,
    /// The UE supports reflective QoS.
    pub(super) reflects: bool,
    /// The session's markings.
    pub(super) marks: &'a Marks,
    /// The operator's DSCPs of 5QIs.
    pub(super) smf: &'a Smf,
    /// Treatment of the data network's flows.
    pub(super) treatments: Option<&'a BTreeMap<FlowName, Treatment>>,
}

impl<'a> QosConstraints<'a> {
    /// For an existing session.
    pub(super) fn of(s: &'a SmContext, config: &'a Config) -> Self {
        Self {
            session_type: s.session_type,
            filters_max: s.qos.filters_max,
            reflects: s.qos.reflects,
            marks: &s.qos.marks,
            smf: &config.smf,
            treatments: config.smf.data_networks.get(&s.dnn).map(|n| &n.treatments),
        }
    }

    fn treatment(&self, name: FlowName) -> Option<&'a Treatment> {
        self.treatments?.get(&name)
    }

    /// The index of a flow's marking.
    pub(super) fn mark(&self, name: FlowName, five_qi: FiveQi) -> u8 {
        self.marks.place(dscp(self.smf, self.treatment(name), five_qi))
    }
}

fn dscp(smf: &Smf, treatment: Option<&Treatment>, five_qi: FiveQi) -> u8 {
    treatment.and_then(|t| t.dscp).unwrap_or_else(|| smf.dscp(five_qi))
}

/// The markings of a session whose default flow has this 5QI, and which may have the flows of these policies.
pub(super) fn marks<'a>(
    smf: &Smf,
    network: &DataNetwork,
    default: FiveQi,
    policies: impl Iterator<Item = &'a FlowPolicy>,
) -> Marks {
    let of = |p: &FlowPolicy| dscp(smf, network.treatments.get(&p.name), p.five_qi);
    Marks::of(smf.dscp(default), policies.map(of))
}

/// The flow of a policy in a session that has `flows`. `None` if none of its filters suits the session, the UE supports no
/// further packet filters, or its precedence is in use.
pub(super) fn flow_of(policy: &FlowPolicy, flows: &[QosFlow], ground: QosConstraints<'_>) -> Option<QosFlow> {
    let suiting = policy.filters.iter().filter(|f| filter::suits(f, ground.session_type)).cloned();
    let filters = numbered(suiting);
    let treatment = ground.treatment(policy.name);
    let ip = super::families(ground.session_type) != (false, false);
    let applications = treatment.filter(|_| ip).map_or(&[][..], |t| &t.applications);
    let reflective = treatment.is_some_and(|t| t.reflective) && ground.reflects && policy.gbr.is_none();
    let numbers = Numbering::new(flows);
    let room = reflective || numbers.filters() + filters.len() <= usize::from(ground.filters_max);
    if filters.is_empty() && applications.is_empty()
        || !room
        || !numbers.precedence_is_free(policy.precedence)
    {
        return None;
    }
    let by_filters = (!filters.is_empty()).then_some((filters, None));
    let by_names = applications.iter().map(|a| (Vec::new(), Some(a.clone())));
    let all = by_filters.into_iter().chain(by_names).zip(numbers.rules());
    let rules = all.map(|((filters, application), id)| FlowRule {
        id,
        precedence: policy.precedence,
        filters,
        application,
    });
    Some(QosFlow {
        qfi: numbers.qfi()?,
        name: policy.name,
        five_qi: policy.five_qi,
        arp: policy.arp,
        gbr: policy.gbr,
        gate: policy.gate,
        rules: rules.collect(),
        mark: ground.mark(policy.name, policy.five_qi),
        reflective,
        of_ue: false,
        fulfilled: true,
    })
}

/// The flows with which a session begins.
pub(super) fn initial_flows<'a>(
    policies: impl Iterator<Item = &'a FlowPolicy>,
    ground: QosConstraints<'_>,
) -> Vec<QosFlow> {
    let mut flows = Vec::new();
    for policy in policies.filter(|p| p.setup == Setup::Always) {
        flows.extend(flow_of(policy, &flows, ground));
    }
    flows
}
