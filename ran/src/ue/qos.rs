//! The QoS rules and flow descriptions of a session, as the network changes them: TS 24.501 §6.3.2.3, §6.3.2.4.

use whimbrel_nas::ie::{FlowOperation, PacketFilter, QosFlowDescription, QosRule, RuleOperation, SmCause};
use whimbrel_nas::sm::ModificationCommand;

use super::SessionInfo;

/// Applies the changes of a command. Errors: the cause with which the UE rejects the command, without a change.
pub(super) fn apply(info: &mut SessionInfo, m: &ModificationCommand) -> Result<(), SmCause> {
    let (mut rules, mut flows) = (info.rules.clone(), info.flows.clone());
    if let Some(changes) = &m.qos_flow_descriptions {
        changes.flows()?.into_iter().try_for_each(|d| describe(&mut flows, d))?;
    }
    if let Some(changes) = &m.qos_rules {
        changes.rules()?.into_iter().try_for_each(|r| rule(&mut rules, r))?;
    }
    // Each rule needs a described flow, and precedences are unique (§6.3.2.4 a).
    let leads = |r: &QosRule| r.binding.is_some_and(|b| flows.iter().any(|f| f.qfi == b.qfi));
    let precedence = |r: &QosRule| r.binding.map(|b| b.precedence);
    let twice =
        rules.iter().enumerate().any(|(i, r)| rules.iter().take(i).any(|q| precedence(q) == precedence(r)));
    if !rules.iter().all(leads) || twice || rules.iter().filter(|r| r.default).count() != 1 {
        return Err(SmCause::SemanticErrorInQosOperation);
    }
    (info.rules, info.flows) = (rules, flows);
    Ok(())
}

fn describe(flows: &mut Vec<QosFlowDescription>, d: QosFlowDescription) -> Result<(), SmCause> {
    let known = flows.iter().position(|f| f.qfi == d.qfi);
    match (d.operation, known) {
        (FlowOperation::Create, _) => {
            flows.retain(|f| f.qfi != d.qfi);
            flows.push(d);
        }
        (FlowOperation::Delete, _) => flows.retain(|f| f.qfi != d.qfi),
        (FlowOperation::Modify, Some(at)) => flows[at].parameters = d.parameters,
        (FlowOperation::Modify, None) => return Err(SmCause::SemanticErrorInQosOperation),
    }
    Ok(())
}

fn rule(rules: &mut Vec<QosRule>, change: QosRule) -> Result<(), SmCause> {
    let known = rules.iter().position(|r| r.id == change.id);
    match (&change.operation, known) {
        (RuleOperation::Create(filters), _) if filters.is_empty() => {
            return Err(SmCause::SyntacticalErrorInQosOperation);
        }
        (RuleOperation::Create(_), _) => {
            rules.retain(|r| r.id != change.id);
            rules.push(change);
        }
        (RuleOperation::Delete, Some(at)) if rules[at].default => {
            return Err(SmCause::SemanticErrorInQosOperation);
        }
        (RuleOperation::Delete, _) => rules.retain(|r| r.id != change.id),
        (_, None) => return Err(SmCause::SemanticErrorInQosOperation),
        (operation, Some(at)) => {
            let there = match &rules[at].operation {
                RuleOperation::Create(filters) => filters.clone(),
                _ => Vec::new(),
            };
            let filters = changed(there, operation);
            if filters.is_empty() {
                return Err(SmCause::SemanticErrorInQosOperation);
            }
            rules[at].operation = RuleOperation::Create(filters);
            rules[at].binding = change.binding.or(rules[at].binding);
        }
    }
    Ok(())
}

fn changed(mut filters: Vec<PacketFilter>, operation: &RuleOperation) -> Vec<PacketFilter> {
    match operation {
        RuleOperation::AddFilters(more) => {
            filters.retain(|f| more.iter().all(|m| m.id != f.id));
            filters.extend(more.iter().cloned());
        }
        RuleOperation::ReplaceFilters(all) => filters.clone_from(all),
        RuleOperation::DeleteFilters(ids) => filters.retain(|f| !ids.contains(&f.id)),
        _ => {}
    }
    filters
}
