//! QoS requested by a UE: TS 24.501 §6.4.2.2 to §6.4.2.4. Its rules and flow descriptions are checked as a whole
//! against the session and the policy; a refused request changes nothing.

use whimbrel_ids::{FiveQi, Qfi};
use whimbrel_nas::ie::{
    FlowOperation, FlowParameter, PacketFilter, PduSessionType, QosFlowDescription, QosRule, RuleOperation,
    SmCause,
};

use super::qos::{Numbering, QosConstraints, numbered};
use crate::filter;
use crate::policy::{
    DEFAULT_PRECEDENCE, DERIVED_PRECEDENCE, FILTERS_MAX, FlowPolicy, Gbr, Setup, is_gbr, is_non_gbr,
};
use crate::state::{Ambr, DEFAULT_QFI, DEFAULT_RULE, FlowRule, QosFlow};

const SEMANTIC: SmCause = SmCause::SemanticErrorInQosOperation;
const SYNTACTICAL: SmCause = SmCause::SyntacticalErrorInQosOperation;

/// The constraints on a request.
pub(super) struct Terms<'a> {
    /// Of the session and of the operator.
    pub(super) ground: QosConstraints<'a>,
    /// The flow policies.
    pub(super) policies: Vec<&'a FlowPolicy>,
}

/// The session's flows if the request is granted.
///
/// Errors: the 5GSM cause of the first violation.
pub(super) fn grant(
    terms: &Terms<'_>,
    flows: &[QosFlow],
    rules: &[QosRule],
    descriptions: &[QosFlowDescription],
) -> Result<Vec<QosFlow>, SmCause> {
    // An unstructured session has one flow (TS 23.501 §5.6.10.3).
    if terms.ground.session_type == PduSessionType::Unstructured
        && !(rules.is_empty() && descriptions.is_empty())
    {
        return Err(SEMANTIC);
    }
    let mut request = QosModification { terms, flows: flows.to_vec(), named: Vec::new() };
    descriptions.iter().try_for_each(|d| request.describe(d))?;
    rules.iter().try_for_each(|r| request.rule(r))?;
    let QosModification { mut flows, .. } = request;
    flows.retain(|f| !f.rules.is_empty()); // a flow without rules is removed
    if Numbering::new(&flows).filters() > usize::from(terms.ground.filters_max) {
        return Err(SmCause::InsufficientResources);
    }
    Ok(flows)
}

/// A request that is being processed.
struct QosModification<'a> {
    terms: &'a Terms<'a>,
    flows: Vec<QosFlow>,
    /// New flows: the UE's identifier and the assigned one.
    named: Vec<(Qfi, Qfi)>,
}

impl QosModification<'_> {
    fn describe(&mut self, d: &QosFlowDescription) -> Result<(), SmCause> {
        let known = self.flows.iter().position(|f| f.qfi == d.qfi);
        match (d.operation, known) {
            // Errors: to create an existing flow, to change or delete an unknown one, or to change the default flow.
            (FlowOperation::Create, Some(_)) => Err(SEMANTIC),
            (FlowOperation::Create, None) if d.qfi == DEFAULT_QFI => Err(SEMANTIC),
            (FlowOperation::Create, None) if self.named.iter().any(|n| n.0 == d.qfi) => Err(SEMANTIC),
            (FlowOperation::Create, None) => self.create_flow(d),
            (_, None) => Err(SEMANTIC),
            (_, Some(at)) if !self.flows[at].of_ue => Err(SmCause::FiveGsQosNotAccepted),
            (FlowOperation::Delete, Some(_)) if !d.parameters.is_empty() => Err(SYNTACTICAL),
            (FlowOperation::Delete, Some(at)) => {
                self.flows.remove(at);
                Ok(())
            }
            (FlowOperation::Modify, Some(at)) => self.modify_flow(at, d),
        }
    }

    fn create_flow(&mut self, d: &QosFlowDescription) -> Result<(), SmCause> {
        let wish = Wish::of(&d.parameters);
        let five_qi = wish.five_qi.ok_or(SYNTACTICAL)?;
        if !is_gbr(five_qi) && !is_non_gbr(five_qi) {
            return Err(SmCause::Unsupported5qiValue);
        }
        let fitting = |p: &&&FlowPolicy| p.setup == Setup::OnRequest && p.five_qi == five_qi;
        if !self.terms.policies.iter().any(|p| fitting(&p)) {
            return Err(SmCause::Unsupported5qiValue);
        }
        let mut free = self.terms.policies.iter().filter(|p| fitting(p));
        let policy = free.find(|p| self.flows.iter().all(|f| f.name != p.name));
        let policy = policy.ok_or(SmCause::InsufficientResources)?;
        let gbr = wish.within(policy)?;
        let qfi = Numbering::new(&self.flows).qfi().ok_or(SmCause::InsufficientResources)?;
        self.named.push((d.qfi, qfi));
        self.flows.push(QosFlow {
            qfi,
            name: policy.name,
            five_qi,
            arp: policy.arp,
            gbr,
            gate: policy.gate,
            rules: Vec::new(),
            mark: self.terms.ground.mark(policy.name, five_qi),
            reflective: false,
            of_ue: true,
            fulfilled: true,
        });
        Ok(())
    }

    fn modify_flow(&mut self, at: usize, d: &QosFlowDescription) -> Result<(), SmCause> {
        let mut wish = Wish::of(&d.parameters);
        let flow = &mut self.flows[at];
        let policy = self.terms.policies.iter().find(|p| p.name == flow.name);
        let policy = policy.ok_or(SmCause::FiveGsQosNotAccepted)?;
        if wish.five_qi.is_some_and(|q| q != policy.five_qi) {
            return Err(SmCause::Unsupported5qiValue);
        }
        if !d.e_bit {
            wish.extend(flow.gbr); // parameters that are absent stay (TS 24.501 §9.11.4.12)
        }
        flow.gbr = wish.within(policy)?;
        Ok(())
    }

    fn rule(&mut self, r: &QosRule) -> Result<(), SmCause> {
        if r.default || r.id == DEFAULT_RULE {
            return Err(SEMANTIC); // the default rule cannot be changed (TS 24.501 §6.2.5.1.1.2)
        }
        match &r.operation {
            RuleOperation::Create(filters) => self.create_rule(r, filters),
            RuleOperation::Delete => {
                let (flow, rule) = self.of_ue(r.id)?;
                self.flows[flow].rules.remove(rule);
                Ok(())
            }
            RuleOperation::AddFilters(more) if more.is_empty() => Err(SYNTACTICAL),
            RuleOperation::AddFilters(more) => {
                self.filters_of(r, |filters| filters.iter().chain(more).cloned().collect())
            }
            RuleOperation::ReplaceFilters(all) if all.is_empty() => Err(SYNTACTICAL),
            RuleOperation::ReplaceFilters(all) => self.filters_of(r, |_| all.clone()),
            RuleOperation::DeleteFilters(ids) => {
                let (flow, rule) = self.of_ue(r.id)?;
                let there = &self.flows[flow].rules[rule].filters;
                if ids.is_empty() || ids.iter().any(|id| there.iter().all(|f| f.id != *id)) {
                    return Err(SYNTACTICAL);
                }
                let rest: Vec<_> = there.iter().filter(|f| !ids.contains(&f.id)).cloned().collect();
                if rest.is_empty() {
                    return Err(SEMANTIC);
                }
                self.filters_of(r, |_| rest)
            }
            RuleOperation::KeepFilters => self.filters_of(r, <[PacketFilter]>::to_vec),
        }
    }

    fn create_rule(&mut self, r: &QosRule, filters: &[PacketFilter]) -> Result<(), SmCause> {
        let binding = r.binding.ok_or(SYNTACTICAL)?;
        if filters.is_empty() {
            return Err(SYNTACTICAL);
        }
        if r.id != 0 && self.flows.iter().flat_map(|f| &f.rules).any(|known| known.id == r.id) {
            return Err(SEMANTIC);
        }
        self.judge(filters)?;
        self.precedence(binding.precedence)?;
        let flow = self.flow_of(binding.qfi)?;
        let id = Numbering::new(&self.flows).rule().ok_or(SmCause::InsufficientResources)?;
        let filters = numbered(filters.iter().cloned());
        self.flows[flow].rules.push(FlowRule {
            id,
            precedence: binding.precedence,
            filters,
            application: None,
        });
        Ok(())
    }

    /// Changes the filters of a rule, and its precedence where one is given.
    fn filters_of(
        &mut self,
        r: &QosRule,
        change: impl FnOnce(&[PacketFilter]) -> Vec<PacketFilter>,
    ) -> Result<(), SmCause> {
        let (flow, rule) = self.of_ue(r.id)?;
        if let Some(binding) = r.binding {
            if binding.qfi != self.flows[flow].qfi {
                return Err(SEMANTIC);
            }
            if binding.precedence != self.flows[flow].rules[rule].precedence {
                self.precedence(binding.precedence)?;
            }
        }
        let filters = change(&self.flows[flow].rules[rule].filters);
        self.judge(&filters)?;
        let rule = &mut self.flows[flow].rules[rule];
        rule.filters = numbered(filters);
        rule.precedence = r.binding.map_or(rule.precedence, |b| b.precedence);
        Ok(())
    }

    /// The position of a rule that the UE may change.
    fn of_ue(&self, id: u8) -> Result<(usize, usize), SmCause> {
        let at = |f: &QosFlow| f.rules.iter().position(|r| r.id == id);
        let mut all = self.flows.iter().enumerate();
        let (flow, rule) = all.find_map(|(i, f)| Some((i, at(f)?))).ok_or(SEMANTIC)?;
        if self.flows[flow].of_ue { Ok((flow, rule)) } else { Err(SmCause::FiveGsQosNotAccepted) }
    }

    /// The flow of a new rule: one that this request creates, or one of the UE's.
    fn flow_of(&self, asked: Qfi) -> Result<usize, SmCause> {
        if asked == DEFAULT_QFI {
            return Err(SmCause::FiveGsQosNotAccepted);
        }
        let qfi = self.named.iter().find(|n| n.0 == asked).map_or(asked, |n| n.1);
        let at = self.flows.iter().position(|f| f.qfi == qfi).ok_or(SEMANTIC)?;
        if self.flows[at].of_ue { Ok(at) } else { Err(SmCause::FiveGsQosNotAccepted) }
    }

    fn precedence(&self, precedence: u8) -> Result<(), SmCause> {
        let reserved = matches!(precedence, DEFAULT_PRECEDENCE | DERIVED_PRECEDENCE);
        let free = Numbering::new(&self.flows).precedence_is_free(precedence);
        if reserved || !free { Err(SEMANTIC) } else { Ok(()) }
    }

    fn judge(&self, filters: &[PacketFilter]) -> Result<(), SmCause> {
        if filters.len() > FILTERS_MAX {
            return Err(SYNTACTICAL);
        }
        for (i, f) in filters.iter().enumerate() {
            filter::judge(f, self.terms.ground.session_type)?;
            let same = |g: &PacketFilter| (&g.components, g.direction) == (&f.components, f.direction);
            if filters.iter().take(i).any(same) {
                return Err(SmCause::SemanticErrorsInPacketFilters); // it can never match
            }
        }
        Ok(())
    }
}

/// The parameters of a description.
#[derive(Default)]
struct Wish {
    five_qi: Option<FiveQi>,
    guaranteed: (Option<u64>, Option<u64>),
    maximum: (Option<u64>, Option<u64>),
}

impl Wish {
    fn of(parameters: &[FlowParameter]) -> Self {
        let mut wish = Self::default();
        for p in parameters {
            match p {
                FlowParameter::FiveQi(q) => wish.five_qi = Some(*q),
                FlowParameter::GfbrUplink(r) => wish.guaranteed.0 = Some(r.kbps()),
                FlowParameter::GfbrDownlink(r) => wish.guaranteed.1 = Some(r.kbps()),
                FlowParameter::MfbrUplink(r) => wish.maximum.0 = Some(r.kbps()),
                FlowParameter::MfbrDownlink(r) => wish.maximum.1 = Some(r.kbps()),
                FlowParameter::AveragingWindow(_) | FlowParameter::EpsBearerIdentity(_) => {}
            }
        }
        wish
    }

    fn extend(&mut self, stands: Option<Gbr>) {
        let Some(Gbr { guaranteed, maximum }) = stands else { return };
        self.guaranteed.0.get_or_insert(guaranteed.ul_kbps);
        self.guaranteed.1.get_or_insert(guaranteed.dl_kbps);
        self.maximum.0.get_or_insert(maximum.ul_kbps);
        self.maximum.1.get_or_insert(maximum.dl_kbps);
    }

    /// The granted rates: as requested, limited by the policy; absent ones are the policy's.
    fn within(&self, policy: &FlowPolicy) -> Result<Option<Gbr>, SmCause> {
        let Some(most) = policy.gbr else {
            let rates = [self.guaranteed.0, self.guaranteed.1];
            return if rates.iter().all(Option::is_none) { Ok(None) } else { Err(SEMANTIC) };
        };
        let ambr = |wish: (Option<u64>, Option<u64>), most: Ambr| Ambr {
            ul_kbps: wish.0.unwrap_or(most.ul_kbps),
            dl_kbps: wish.1.unwrap_or(most.dl_kbps),
        };
        let above = |a: Ambr, b: Ambr| a.ul_kbps > b.ul_kbps || a.dl_kbps > b.dl_kbps;
        let guaranteed = ambr(self.guaranteed, most.guaranteed);
        let maximum = ambr(self.maximum, most.maximum);
        if above(guaranteed, maximum) {
            return Err(SEMANTIC);
        }
        if above(guaranteed, most.guaranteed) || above(maximum, most.maximum) {
            return Err(SmCause::FiveGsQosNotAccepted);
        }
        Ok(Some(Gbr { guaranteed, maximum }))
    }
}

#[cfg(test)]
#[path = "requested_qos_tests.rs"]
mod tests;
