//! The decision of a PCF (SmPolicyDecision, TS 29.512 §5.6.2.4) as the SMF takes it.

use whimbrel_control::policy::{FlowGate, Gbr, packet_filter};
use whimbrel_control::sm_policy::{
    PccRule, PolicyDecision, PolicyTriggers, RuleFailure, RuleQos, SessionRule,
};
use whimbrel_control::udm::Ambr;
use whimbrel_ids::FiveQi;
use whimbrel_nas::ie::PacketFilter;
use whimbrel_sbi_types::BoundedMap;
use whimbrel_sbi_types::common::{SbiArp, SbiBitRate, ShortText};
use whimbrel_sbi_types::npcf_sm::{
    self as body, FlowDirection, FlowInformation, FlowStatus, PolicyControlRequestTrigger, QosData,
    RuleFailureCode, SmPolicyDecision,
};

use crate::sbi::subscription::{ambr, arp};

/// The longest identity of a rule, or of data that rules refer to.
const ID_OCTETS_MAX: usize = 128;

/// Packet filters of one rule that are read.
const FILTERS_MAX: usize = 64;

/// Reads a decision, whole or a change. `note` logs what this core does not do. Errors: why it cannot be used.
pub(in crate::sbi) fn read_decision(
    decision: &SmPolicyDecision,
    note: impl Fn(&str),
) -> Result<PolicyDecision, &'static str> {
    for (is_there, name) in [
        (decision.um_decs.as_ref().is_some_and(|all| !all.is_empty()), "usage monitoring"),
        (decision.conds.as_ref().is_some_and(|all| !all.is_empty()), "conditions with times"),
        (decision.qos_chars.as_ref().is_some_and(|all| !all.is_empty()), "5QIs of its own"),
        (decision.revalidation_time.is_some(), "a revalidation time"),
    ] {
        if is_there {
            note(&format!("it decides on {name}, which has no effect here"));
        }
    }
    let mut session_rules = decision.sess_rules.iter().flat_map(|all| all.values()).flatten();
    let session_rule = session_rules.rfind(|rule| rule.ref_cond_data.is_none());
    Ok(PolicyDecision {
        session_rule: session_rule.map(session_rule_of).unwrap_or_default(),
        rules: entries(&decision.pcc_rules, |rule| pcc_rule(rule, &note))?,
        qos: entries(&decision.qos_decs, |data| qos(data, &note))?,
        gates: entries(&decision.traff_cont_decs, |data| gate(data.flow_status.as_ref()))?,
        triggers: decision.policy_ctrl_req_triggers.as_ref().map(|all| triggers(all)),
    })
}

/// Entries by their identities; those without a value are removed.
type Entries<T> = Vec<(Box<str>, Option<T>)>;

/// Reads the entries of a map. Errors: an identity is too long, or empty.
fn entries<V, T>(
    all: &Option<BoundedMap<ShortText, Option<V>>>,
    read: impl Fn(&V) -> T,
) -> Result<Entries<T>, &'static str> {
    let all = all.iter().flat_map(|all| all.iter());
    all.map(|(id, value)| {
        let id = id.as_str();
        let fits = (1..=ID_OCTETS_MAX).contains(&id.len());
        fits.then(|| (id.into(), value.as_ref().map(&read)))
            .ok_or("an identity of a rule is too long, or empty")
    })
    .collect()
}

fn session_rule_of(rule: &body::SessionRule) -> SessionRule {
    let default = rule.auth_def_qos.as_ref();
    let five_qi = default.and_then(|qos| qos.five_qi).map(|five_qi| FiveQi(five_qi.value()));
    SessionRule {
        ambr: rule.auth_sess_ambr.as_ref().map(ambr),
        default_qos: five_qi.zip(default.and_then(|qos| qos.arp.as_ref()).map(arp)),
    }
}

fn pcc_rule(rule: &body::PccRule, note: &impl Fn(&str)) -> PccRule {
    let flows = rule.flow_infos.as_deref().unwrap_or_default();
    let filters: Vec<Option<PacketFilter>> = flows.iter().take(FILTERS_MAX).map(filter).collect();
    let has_unknown_filter = filters.iter().any(Option::is_none);
    if has_unknown_filter {
        note("it gives a rule with a packet filter that is not understood: the rule is not in force");
    }
    let first = |list: Option<&[ShortText]>| list.and_then(<[_]>::first).map(|id| Box::from(id.as_str()));
    PccRule {
        precedence: rule.precedence,
        filters: filters.into_iter().flatten().collect(),
        has_unknown_filter,
        has_application: rule.app_id.is_some(),
        qos: first(rule.ref_qos_data.as_deref()),
        gate: first(rule.ref_tc_data.as_deref()),
    }
}

/// The packet filter of a flow (TS 29.512 §5.6.2.14). A type of service, SPI or flow label is not understood.
fn filter(flow: &FlowInformation) -> Option<PacketFilter> {
    if flow.tos_traffic_class.is_some() || flow.spi.is_some() || flow.flow_label.is_some() {
        return None;
    }
    let direction = match flow.flow_direction {
        Some(FlowDirection::Downlink) => "downlink ",
        Some(FlowDirection::Uplink) => "uplink ",
        Some(FlowDirection::Bidirectional | FlowDirection::Unspecified | FlowDirection::Unknown(_))
        | None => "",
    };
    // Deviation: PCFs give the text of an application function, which may name its protocol.
    let text = flow.flow_description.as_ref()?.as_str();
    let text = text.replacen(" out udp ", " out 17 ", 1).replacen(" out tcp ", " out 6 ", 1);
    packet_filter(&format!("{direction}{text}"))
}

fn qos(data: &QosData, note: &impl Fn(&str)) -> RuleQos {
    let rates = |ul: Option<SbiBitRate>, dl: Option<SbiBitRate>| {
        let kbps = |rate: Option<SbiBitRate>| rate.map_or(0, |rate| rate.0.div_ceil(1000));
        Some(Ambr { ul_kbps: kbps(ul), dl_kbps: kbps(dl) }).filter(|r| (r.ul_kbps, r.dl_kbps) != (0, 0))
    };
    let guaranteed = rates(data.gbr_ul, data.gbr_dl);
    let maximum = rates(data.maxbr_ul, data.maxbr_dl);
    if guaranteed.is_none() && maximum.is_some() {
        note(
            "it gives a rule without a guaranteed bit rate a maximum bit rate: only the session AMBR limits it",
        );
    }
    RuleQos {
        five_qi: data.five_qi.map(|five_qi| FiveQi(five_qi.value())),
        arp: data.arp.as_ref().map(|value: &SbiArp| arp(value)),
        gbr: guaranteed.map(|guaranteed| Gbr { guaranteed, maximum: maximum.unwrap_or(guaranteed) }),
        is_default_flow: data.def_qos_flow_indication == Some(true),
    }
}

fn gate(status: Option<&FlowStatus>) -> FlowGate {
    match status {
        Some(FlowStatus::EnabledUplink) => FlowGate { uplink: true, downlink: false },
        Some(FlowStatus::EnabledDownlink) => FlowGate { uplink: false, downlink: true },
        Some(FlowStatus::Disabled | FlowStatus::Removed) => FlowGate { uplink: false, downlink: false },
        Some(FlowStatus::Enabled | FlowStatus::Unknown(_)) | None => FlowGate::default(),
    }
}

fn triggers(all: &[PolicyControlRequestTrigger]) -> PolicyTriggers {
    all.iter().fold(PolicyTriggers::default(), |triggers, trigger| {
        triggers.with(match trigger {
            PolicyControlRequestTrigger::SeAmbrCh => PolicyTriggers::SESSION_AMBR_CHANGE,
            PolicyControlRequestTrigger::DefQosCh => PolicyTriggers::DEFAULT_QOS_CHANGE,
            PolicyControlRequestTrigger::QosNotif => PolicyTriggers::QOS_NOTIFICATION,
            _ => PolicyTriggers::default(),
        })
    })
}

pub(super) fn failure_code(why: RuleFailure) -> RuleFailureCode {
    match why {
        RuleFailure::ApplicationUnknown => RuleFailureCode::AppIdErr,
        RuleFailure::MissingFlows => RuleFailureCode::MissFlowInfo,
        RuleFailure::IncorrectFlows => RuleFailureCode::IncorFlowInfo,
        RuleFailure::UnsuccessfulQos => RuleFailureCode::UnsuccQosVal,
        RuleFailure::UnknownReference => RuleFailureCode::UnknownRefId,
        RuleFailure::TooManyFlows => RuleFailureCode::MaxNrQosFlow,
        RuleFailure::AllocationFailed => RuleFailureCode::ResAlloFail,
    }
}
