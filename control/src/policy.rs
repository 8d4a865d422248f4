//! What an operator says of QoS flows: the policy of a data network and of a subscriber (TS 23.503 §6.3.1, TS 23.501 §5.7).
//!
//! A flow has a name, by which operators set it up and take it down again; the flows of a subscriber come on top of those
//! of the data network, and take the place of those of the same name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{FiveQi, serde_as_octets};
use whimbrel_nas::ie::PacketFilter;

use crate::filter;
use crate::udm::{Ambr, Arp};

/// Flows that a policy may have: what is left of the 63 identifiers of one session (TS 24.501 §9.11.4.12) is the phone's.
pub const FLOWS_MAX: usize = 16;
/// Packet filters of one flow: four bits count those of a QoS rule (TS 24.501 §9.11.4.13).
pub const FILTERS_MAX: usize = 15;

/// The name of a flow: up to sixteen lower-case letters, digits and dashes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowName([u8; 16]);

impl FlowName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|&o| o == 0).unwrap_or(self.0.len());
        self.0.get(..len).and_then(|o| std::str::from_utf8(o).ok()).unwrap_or_default()
    }

    /// A flow that a phone asked for has the name of the policy that allows it; one without policy has none.
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

impl fmt::Display for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowName({self})")
    }
}

impl FromStr for FlowName {
    type Err = &'static str;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let fits = |o: u8| o.is_ascii_lowercase() || o.is_ascii_digit() || o == b'-';
        if s.is_empty() || s.len() > 16 || !s.bytes().all(fits) {
            return Err("a flow's name has 1 to 16 lower-case letters, digits or dashes");
        }
        let mut name = [0; 16];
        name.iter_mut().zip(s.bytes()).for_each(|(to, from)| *to = from);
        Ok(Self(name))
    }
}

serde_as_octets! {
    FlowName: FlowName::as_str, |v| match v {
        [] => Some(FlowName::default()),
        v => std::str::from_utf8(v).ok()?.parse().ok(),
    };
}

/// Rates of a GBR flow, in kbit/s (TS 23.501 §5.7.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gbr {
    /// Promised.
    pub guaranteed: Ambr,
    /// What is above is dropped.
    pub maximum: Ambr,
}

/// Which directions of a flow pass (TS 23.503 §6.3.1, TS 29.244 §5.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowGate {
    /// From the phone.
    pub uplink: bool,
    /// To the phone.
    pub downlink: bool,
}

impl Default for FlowGate {
    /// Both open.
    fn default() -> Self {
        Self { uplink: true, downlink: true }
    }
}

/// Who sets a flow up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Setup {
    /// The network, with each session.
    #[default]
    Always,
    /// A phone that asks for it (TS 24.501 §6.4.2), within these rates.
    OnRequest,
    /// The operator, by its name.
    ByOperator,
}

/// One flow of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowPolicy {
    /// Its name.
    pub name: FlowName,
    /// 5QI.
    pub five_qi: FiveQi,
    /// Allocation and retention priority.
    pub arp: Arp,
    /// The rates of a GBR flow; `None`: it shares the session's AMBR.
    pub gbr: Option<Gbr>,
    /// Precedence of its QoS rule: the lowest is tried first.
    pub precedence: u8,
    /// Its packets. A flow that phones ask for brings the phone's own.
    pub filters: Vec<PacketFilter>,
    /// Which directions pass.
    pub gate: FlowGate,
    /// Who sets it up.
    pub setup: Setup,
}

/// What is wrong with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidFlow {
    /// A 5QI of guaranteed rate without rates, or the reverse (TS 23.501 table 5.7.4-1).
    Rates(FiveQi),
    /// More is guaranteed than there may be at most.
    GuaranteedAboveMaximum,
    /// The precedence of the default rule, or that of derived rules (TS 24.501 §6.2.5.1.1.3).
    Precedence(u8),
    /// No filter, or more than [`FILTERS_MAX`].
    FilterCount,
    /// An ARP priority level outside 1 to 15.
    Arp(u8),
}

impl fmt::Display for InvalidFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rates(q) if is_gbr(*q) => write!(f, "5QI {} has guaranteed rates: say which", q.0),
            Self::Rates(q) => write!(f, "5QI {} has no guaranteed rates", q.0),
            Self::GuaranteedAboveMaximum => f.write_str("the guaranteed rate is above the maximum"),
            Self::Precedence(p) => write!(f, "precedence {p} is taken: use 1 to 254, but not 80"),
            Self::FilterCount => write!(f, "a flow has 1 to {FILTERS_MAX} packet filters"),
            Self::Arp(v) => write!(f, "ARP priority level {v} is not within 1 to 15"),
        }
    }
}

/// The default rule's precedence: every other comes before it.
pub(crate) const DEFAULT_PRECEDENCE: u8 = 255;
/// That of rules which phones derive themselves by reflective QoS (TS 24.501 §6.2.5.1.4.2).
pub(crate) const DERIVED_PRECEDENCE: u8 = 80;

/// Standardised 5QIs of GBR and delay-critical GBR flows (TS 23.501 table 5.7.4-1).
pub fn is_gbr(five_qi: FiveQi) -> bool {
    matches!(five_qi.0, 1..=4 | 65..=67 | 71..=76 | 82..=90)
}

/// Standardised 5QIs of non-GBR flows, and those that an operator defines (TS 23.501 table 5.7.4-1).
pub fn is_non_gbr(five_qi: FiveQi) -> bool {
    matches!(five_qi.0, 5..=10 | 69 | 70 | 79 | 80 | 128..=254)
}

impl FlowPolicy {
    /// Whether it keeps to the standard. Errors: the first contradiction.
    pub fn check(&self) -> Result<(), InvalidFlow> {
        if is_gbr(self.five_qi) != self.gbr.is_some() || !(is_gbr(self.five_qi) || is_non_gbr(self.five_qi)) {
            return Err(InvalidFlow::Rates(self.five_qi));
        }
        if let Some(Gbr { guaranteed: g, maximum: m }) = self.gbr
            && (g.ul_kbps > m.ul_kbps || g.dl_kbps > m.dl_kbps)
        {
            return Err(InvalidFlow::GuaranteedAboveMaximum);
        }
        if matches!(self.precedence, 0 | DERIVED_PRECEDENCE | DEFAULT_PRECEDENCE) {
            return Err(InvalidFlow::Precedence(self.precedence));
        }
        let least = usize::from(self.setup != Setup::OnRequest);
        if !(least..=FILTERS_MAX).contains(&self.filters.len()) {
            return Err(InvalidFlow::FilterCount);
        }
        if !(1..=15).contains(&self.arp.priority) {
            return Err(InvalidFlow::Arp(self.arp.priority));
        }
        Ok(())
    }
}

/// Reads one packet filter from the operator's words; `filter.rs` has their grammar.
pub fn packet_filter(text: &str) -> Option<PacketFilter> {
    filter::parse(text)
}

/// A packet filter in the words in which [`packet_filter`] reads it.
pub fn describe(filter: &PacketFilter) -> String {
    filter::text(filter)
}

/// The flows of a subscriber on top of those of the data network.
pub(crate) fn merged<'a>(
    network: &'a [FlowPolicy],
    subscriber: &'a [FlowPolicy],
) -> impl Iterator<Item = &'a FlowPolicy> {
    let own = |name: FlowName| subscriber.iter().any(|s| s.name == name);
    network.iter().filter(move |n| !own(n.name)).chain(subscriber)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice() -> FlowPolicy {
        let rate = Ambr { ul_kbps: 100, dl_kbps: 100 };
        FlowPolicy {
            name: "voice".parse().unwrap(),
            five_qi: FiveQi(1),
            arp: Arp { priority: 2, may_preempt: true, preemptable: false },
            gbr: Some(Gbr { guaranteed: rate, maximum: rate }),
            precedence: 10,
            filters: vec![packet_filter("permit out 17 from any to assigned 5004").unwrap()],
            gate: FlowGate::default(),
            setup: Setup::Always,
        }
    }

    #[test]
    fn names_are_short_and_plain() {
        assert_eq!("voice-1".parse::<FlowName>().unwrap().as_str(), "voice-1");
        assert_eq!("sixteen-letters-".parse::<FlowName>().unwrap().as_str(), "sixteen-letters-");
        for bad in ["", "Voice", "seventeen-letters", "a b"] {
            assert!(bad.parse::<FlowName>().is_err(), "{bad}");
        }
    }

    #[test] // TS 23.501 §5.7.2.5
    fn contradictions_are_found() {
        assert_eq!(voice().check(), Ok(()));
        assert_eq!(FlowPolicy { gbr: None, ..voice() }.check(), Err(InvalidFlow::Rates(FiveQi(1))));
        let best_effort = FlowPolicy { five_qi: FiveQi(9), ..voice() };
        assert_eq!(best_effort.check(), Err(InvalidFlow::Rates(FiveQi(9))));
        assert_eq!(FlowPolicy { precedence: 255, ..voice() }.check(), Err(InvalidFlow::Precedence(255)));
        assert_eq!(FlowPolicy { filters: vec![], ..voice() }.check(), Err(InvalidFlow::FilterCount));
        let mut greedy = voice();
        greedy.gbr.as_mut().unwrap().guaranteed.ul_kbps = 101;
        assert_eq!(greedy.check(), Err(InvalidFlow::GuaranteedAboveMaximum));
    }

    #[test] // TS 23.501 §5.7.4, §5.7.3.6: standardised 5QIs have rates or not as the table says; those that the operator defines have none
    fn standardised_and_other_5qis() {
        let rates = |q| is_gbr(FiveQi(q)) as u8 * 2 + is_non_gbr(FiveQi(q)) as u8;
        assert_eq!([1, 4, 65, 82].map(rates), [2; 4]);
        assert_eq!([5, 9, 69, 80].map(rates), [1; 4]);
        assert_eq!([128, 200, 254].map(rates), [1; 3]);
        assert_eq!([0, 11, 127, 255].map(rates), [0; 4], "reserved");
        let own = FlowPolicy { five_qi: FiveQi(200), gbr: None, ..voice() };
        assert_eq!(own.check(), Ok(()));
    }

    #[test] // TS 23.503 §6.3.1: the subscriber's own come before the data network's
    fn a_subscribers_flow_takes_the_place_of_the_networks() {
        let other = FlowPolicy { name: "game".parse().unwrap(), ..voice() };
        let own = FlowPolicy { precedence: 20, ..voice() };
        let (network, subscriber) = ([voice(), other], [own]);
        let all: Vec<_> = merged(&network, &subscriber).map(|f| (f.name.as_str(), f.precedence)).collect();
        assert_eq!(all, [("game", 10), ("voice", 20)]);
    }
}
