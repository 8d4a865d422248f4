//! Which PDR a packet meets: TS 29.244 §5.2.1.

use whimbrel_ids::Teid;
use whimbrel_pfcp::ie::{ApplyAction, SourceInterface};

use super::DropReason;
use super::drops::Counters;
use super::flows::{FlowKey, Flows, Known};
use super::session::SessionState;
use super::shared::PipelineContext;
use super::stages::{Ingress, Pdu};
use crate::limits::RULES_PER_SESSION_MAX;
use crate::rules::{NONE, Names, Pdr, SessionRules};

/// The first PDR, by precedence, that the packet matches (TS 29.244 §5.2.1): as remembered of its flow, where there are filters.
#[inline]
pub(super) fn detect<'r, C: Pdu>(
    rules: &'r SessionRules,
    state: &SessionState,
    shared: &mut PipelineContext,
    ingress: Ingress,
    pdu: &C,
    names: Names,
) -> Result<&'r Pdr, DropReason> {
    let place = match &mut shared.flows {
        Some(flows) if rules.compared.worth => {
            remembered(rules, state, (flows, &mut shared.counters), ingress, pdu, names)
        }
        _ => asked(rules, ingress, pdu, names),
    }?;
    rules.pdrs.get(usize::from(place)).ok_or(DropReason::NoMatchingPdr)
}

/// The PDR's place, as the flow's packets before this one have met it, or as the filters say.
fn remembered<C: Pdu>(
    rules: &SessionRules,
    state: &SessionState,
    (flows, counters): (&mut Flows, &mut Counters),
    ingress: Ingress,
    pdu: &C,
    names: Names,
) -> Result<u8, DropReason> {
    // A flow that becomes known by a name is another one, and asked again.
    let (Some(flow), Some(word)) = (pdu.flow(ingress.teid != Teid(0)), names.word()) else {
        return asked(rules, ingress, pdu, names);
    };
    let key = FlowKey::new(state.rules_number, rules.compared, ingress, &flow, word);
    let hash = flows.hash(&key);
    let passes = |met: u8| {
        let far = rules.pdrs.get(usize::from(met)).and_then(|p| rules.fars.get(usize::from(p.far)));
        far.is_some_and(|f| f.action.has(ApplyAction::FORW))
    };
    if let Some((met, known)) = flows.find(&key, hash, passes) {
        *(match known {
            Known::First => &mut counters.flows_first,
            Known::Second => &mut counters.flows_second,
        }) += 1;
        return FlowMatch(met).read();
    }
    counters.flows_asked += 1;
    let met = asked(rules, ingress, pdu, names);
    flows.keep(&key, hash, FlowMatch::of(met).0);
    met
}

/// What a flow has met, in an octet: the place of a PDR, or why there is none.
struct FlowMatch(u8);

impl FlowMatch {
    const QFI_MISMATCH: u8 = NONE - 1;

    fn of(met: Result<u8, DropReason>) -> Self {
        Self(match met {
            Ok(place) => place,
            Err(DropReason::QfiMismatch) => Self::QFI_MISMATCH,
            Err(_) => NONE,
        })
    }

    fn read(self) -> Result<u8, DropReason> {
        match self.0 {
            NONE => Err(DropReason::NoMatchingPdr),
            Self::QFI_MISMATCH => Err(DropReason::QfiMismatch),
            place => Ok(place),
        }
    }
}

const _: () = assert!(RULES_PER_SESSION_MAX <= FlowMatch::QFI_MISMATCH as usize);

/// The PDR's place, by its filters.
///
/// An uplink packet whose filters match while its QoS flow is another one's is distinguished from one that nothing matches:
/// the UE or its gNB does not keep to the QoS rules (TS 23.501 §5.7.1.7).
fn asked<C: Pdu>(rules: &SessionRules, ingress: Ingress, pdu: &C, names: Names) -> Result<u8, DropReason> {
    let qfi = ingress.qfi();
    if let Some(place) = find(rules, ingress, pdu, names) {
        return Ok(place);
    }
    let mut none = DropReason::NoMatchingPdr;
    for (place, p) in (0..).zip(&rules.pdrs) {
        let here = p.teid == ingress.teid
            && (p.teid != Teid(0) || matches!(p.source, SourceInterface::Core | SourceInterface::N6Lan))
            && pdu.matches(p, names);
        if here && p.accepts(qfi) {
            return Ok(place);
        }
        if here {
            none = DropReason::QfiMismatch;
        }
    }
    Err(none)
}

/// The first PDR by the index, where the session has one. A packet that it finds none for is dropped, unless a PDR of several
/// QoS flows, not of the packet's, stands before its own.
fn find<C: Pdu>(rules: &SessionRules, ingress: Ingress, pdu: &C, names: Names) -> Option<u8> {
    let index = rules.index.as_ref()?;
    let flow = pdu.flow(ingress.teid != Teid(0))?;
    let at = index.find(ingress.teid, ingress.qfi(), &flow, &rules.applications, names)?;
    let accepts = rules.pdrs.get(at).is_some_and(|p| p.accepts(ingress.qfi()));
    u8::try_from(at).ok().filter(|_| accepts)
}
