//! QoS flow policies of data networks and subscribers (TS 23.503 §6.3.1, TS 23.501 §5.7).
//!
//! A flow has a name, by which operators set it up and remove it; the flows of a subscriber are added to those of the
//! data network, and replace those of the same name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{FiveQi, serde_as_octets};
use whimbrel_nas::ie::PacketFilter;

use crate::filter;
use crate::state::{Ambr, Arp};

/// Flows of a policy; the rest of the 63 identifiers of one session (TS 24.501 §9.11.4.12) is for flows that the UE
/// requests.
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

    /// The name of the policy of a flow, also of one that a UE requested; none without policy.
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
    /// Guaranteed bit rate.
    pub guaranteed: Ambr,
    /// Maximum bit rate; packets above it are dropped.
    pub maximum: Ambr,
}

/// Which directions of a flow pass (TS 23.503 §6.3.1, TS 29.244 §5.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowGate {
    /// From the UE.
    pub uplink: bool,
    /// To the UE.
    pub downlink: bool,
}

impl Default for FlowGate {
    /// A gate that is open in both directions.
    fn default() -> Self {
        Self { uplink: true, downlink: true }
    }
}

/// What sets a flow up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Setup {
    /// The network, with each session.
    #[default]
    Always,
    /// A UE that asks for it (TS 24.501 §6.4.2), within these rates.
    OnRequest,
    /// The operator, by its name.
    ByOperator,
}

/// One flow of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FlowPolicy {
    /// Name of the flow.
    pub name: FlowName,
    /// 5QI of the flow.
    pub five_qi: FiveQi,
    /// Allocation and retention priority.
    pub arp: Arp,
    /// The rates of a GBR flow; `None`: it shares the session's AMBR.
    pub gbr: Option<Gbr>,
    /// Precedence of its QoS rule: the lowest is tried first.
    pub precedence: u8,
    /// Its packets. Empty for a flow that UEs request with their own filters.
    pub filters: Vec<PacketFilter>,
    /// Which directions pass.
    pub gate: FlowGate,
    /// What sets it up.
    pub setup: Setup,
}

/// Treatment of a flow besides its rates, by the flow's name: it applies to a subscriber's flow of that name too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Treatment {
    /// The DSCP of its packets to the gNB, outside (RFC 2474); `None`: as its 5QI has it ([`dscp_of`]).
    pub dscp: Option<u8>,
    /// UEs that support reflective QoS derive its uplink rules and get no explicit ones (TS 23.501 §5.7.5).
    pub reflective: bool,
    /// The packets of these applications belong to it too, as detected by the UPF (Application ID, TS 29.244 §8.2.6). The UE gets no
    /// rule for them: its packets use the default flow, unless it derives rules by reflective QoS.
    pub applications: Vec<Box<str>>,
}

/// Applications of one flow.
pub const APPLICATIONS_MAX: usize = 8;
/// Octets of an application's name.
pub const APPLICATION_NAME_MAX: usize = 64;

/// The default outer DSCP of a standardised 5QI towards the gNB: as in GSMA IR.34 §6.2 for the QCIs of the same numbers, and for later
/// ones that of the same kind of traffic. Operator-defined 5QIs are best effort.
pub const fn dscp_of(five_qi: FiveQi) -> u8 {
    const EF: u8 = 46;
    const AF41: u8 = 34;
    const AF31: u8 = 26;
    const AF32: u8 = 28;
    const AF21: u8 = 18;
    const AF11: u8 = 10;
    match five_qi.0 {
        1..=3 | 65 | 66 | 82..=90 => EF, // conversation, games in real time, mission critical voice, delay-critical
        4 | 67 | 71..=76 => AF41,        // streaming, mission critical video
        5 | 69 => AF31,                  // signalling of the IMS and of mission critical services
        6 | 70 => AF32,
        7 | 79 | 80 => AF21,
        8 => AF11,
        _ => 0,
    }
}

/// An error in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidFlow {
    /// A 5QI of guaranteed rate without rates, or the reverse (TS 23.501 table 5.7.4-1).
    Rates(FiveQi),
    /// The guaranteed rate exceeds the maximum rate.
    GuaranteedAboveMaximum,
    /// A precedence that is reserved for the default rule or for derived rules (TS 24.501 §6.2.5.1.1.3).
    Precedence(u8),
    /// No filter, or more than [`FILTERS_MAX`].
    FilterCount,
    /// An ARP priority level outside 1 to 15.
    Arp(u8),
    /// A DSCP of more than six bits.
    Dscp(u8),
    /// Reflective QoS for a GBR flow (TS 23.501 §5.7.2.3), or for one that UEs request with their own rules.
    Reflective,
    /// More applications than [`APPLICATIONS_MAX`], an empty name or one of more than [`APPLICATION_NAME_MAX`] octets, or applications
    /// for a flow that UEs request with their own rules.
    Applications,
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
            Self::Dscp(v) => write!(f, "DSCP {v} is not within 0 to 63"),
            Self::Reflective => f.write_str(
                "reflective QoS is for flows without guaranteed rates that UEs do not ask for themselves",
            ),
            Self::Applications => write!(
                f,
                "a flow has up to {APPLICATIONS_MAX} applications, with names of up to {APPLICATION_NAME_MAX} octets, and none if UEs ask for it"
            ),
        }
    }
}

/// The default rule's precedence, the last one.
pub(crate) const DEFAULT_PRECEDENCE: u8 = 255;
/// That of rules which UEs derive themselves by reflective QoS (TS 24.501 §6.2.5.1.4.2).
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
    /// Checks it against the standard. Errors: the first violation.
    pub fn check(&self) -> Result<(), InvalidFlow> {
        self.check_with(&Treatment::default())
    }

    /// The same with the flow's treatment.
    pub fn check_with(&self, treatment: &Treatment) -> Result<(), InvalidFlow> {
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
        let of_ue = self.setup == Setup::OnRequest;
        let names = &treatment.applications;
        let least = usize::from(!of_ue && names.is_empty());
        if !(least..=FILTERS_MAX).contains(&self.filters.len()) {
            return Err(InvalidFlow::FilterCount);
        }
        if !(1..=15).contains(&self.arp.priority) {
            return Err(InvalidFlow::Arp(self.arp.priority));
        }
        if let Some(dscp) = treatment.dscp.filter(|d| *d > 63) {
            return Err(InvalidFlow::Dscp(dscp));
        }
        if treatment.reflective && (self.gbr.is_some() || of_ue) {
            return Err(InvalidFlow::Reflective);
        }
        let fits = |n: &str| (1..=APPLICATION_NAME_MAX).contains(&n.len());
        if names.len() > APPLICATIONS_MAX || !names.iter().all(|n| fits(n)) || of_ue && !names.is_empty() {
            return Err(InvalidFlow::Applications);
        }
        Ok(())
    }
}

/// Reads one packet filter from configuration text; `filter.rs` has the grammar.
pub fn packet_filter(text: &str) -> Option<PacketFilter> {
    filter::parse(text)
}

/// A packet filter as text, as [`packet_filter`] reads it.
pub fn describe(filter: &PacketFilter) -> String {
    filter::text(filter)
}

/// Merges the flows of a subscriber with those of the data network.
pub fn merged<'a>(
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
    fn contradictory_policies_are_refused() {
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

    #[test]
    fn invalid_treatments_are_refused() {
        let check = |flow: FlowPolicy, treatment: Treatment| flow.check_with(&treatment).err();
        let with = |applications: &[&str]| Treatment {
            applications: applications.iter().map(|a| Box::from(*a)).collect(),
            ..Treatment::default()
        };
        let unfiltered = || FlowPolicy { filters: vec![], ..voice() };
        let best_effort = || FlowPolicy { five_qi: FiveQi(9), gbr: None, ..voice() };
        let reflective = Treatment { reflective: true, ..Treatment::default() };
        assert_eq!(check(unfiltered(), with(&["video"])), None, "its applications' packets are its own");
        assert_eq!(check(unfiltered(), with(&[""])), Some(InvalidFlow::Applications));
        assert_eq!(check(voice(), with(&["x"; APPLICATIONS_MAX + 1])), Some(InvalidFlow::Applications));
        assert_eq!(check(voice(), reflective.clone()), Some(InvalidFlow::Reflective));
        assert_eq!(check(best_effort(), reflective.clone()), None);
        let asked_for = FlowPolicy { setup: Setup::OnRequest, ..best_effort() };
        assert_eq!(check(asked_for, reflective), Some(InvalidFlow::Reflective));
        let dscp = |dscp| Treatment { dscp: Some(dscp), ..Treatment::default() };
        assert_eq!((check(voice(), dscp(63)), check(voice(), dscp(64))), (None, Some(InvalidFlow::Dscp(64))));
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
    fn a_subscribers_flow_replaces_the_networks() {
        let other = FlowPolicy { name: "game".parse().unwrap(), ..voice() };
        let own = FlowPolicy { precedence: 20, ..voice() };
        let (network, subscriber) = ([voice(), other], [own]);
        let all: Vec<_> = merged(&network, &subscriber).map(|f| (f.name.as_str(), f.precedence)).collect();
        assert_eq!(all, [("game", 10), ("voice", 20)]);
    }
}
