//! Configuration of the firewall between UEs and a data network: which flows may begin, and to which addresses UEs are translated.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use whimbrel_classifier::Pdi;
use whimbrel_pfcp::ie::SdfFilter;

use crate::config::Ipv4Net;
use crate::rules::{Flow, PdiFilter};

/// The firewall of a data network. What belongs to a flow that stands passes both ways; a packet that would begin one passes if the first
/// rule that it meets allows it. What meets none may begin if it is a UE's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firewall {
    /// In order, at most [`crate::FIREWALL_RULES_MAX`].
    pub rules: Vec<FirewallRule>,
    /// UEs may begin flows to UEs of this network.
    pub between_ues: bool,
    /// Flows at a time, up to [`crate::FLOWS_MAX`]; a further one takes the place of the one whose time would be over first.
    pub flows_max: u32,
    /// Flows of one UE at a time; a further one takes the place of the UE's own that was idle longest.
    pub flows_per_ue: u16,
    /// How long a flow stands without a packet.
    pub timeouts: Timeouts,
    /// What IPv4 UEs are translated to, if they are.
    pub nat: Option<Nat>,
}

impl Default for Firewall {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            between_ues: true,
            flows_max: Self::FLOWS_MAX,
            flows_per_ue: Self::FLOWS_PER_UE,
            timeouts: Timeouts::default(),
            nat: None,
        }
    }
}

impl Firewall {
    /// Flows by default: a hundred each of 2,600 active UEs, in 25 MiB.
    pub const FLOWS_MAX: u32 = 262_144;
    /// Flows of one UE by default: several busy browsers behind a UE.
    pub const FLOWS_PER_UE: u16 = 2_048;
}

/// Translation of IPv4 UEs' addresses (RFC 3022): endpoint-independent mapping, one outside address a UE (RFC 4787 §4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat {
    /// Every address of them is used; at most [`crate::NAT_ADDRESSES_MAX`].
    pub pools: Vec<Ipv4Net>,
    /// Ports of TCP and UDP, and identifiers of ICMP, that one UE has at a time.
    pub ports_per_ue: u16,
    /// Whoever learns of a UE's outside port reaches it there (endpoint-independent filtering, RFC 4787 §5), not only those that
    /// the UE has sent to.
    pub reachable: bool,
}

impl Nat {
    /// Ports of a UE by default.
    pub const PORTS_PER_UE: u16 = 1_024;

    /// How many addresses there are.
    pub(crate) fn addresses(&self) -> u64 {
        self.pools.iter().map(|p| 1u64 << 32u8.saturating_sub(p.prefix)).sum()
    }
}

/// How long a flow stands without a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Timeout of UDP flows.
    pub udp: Duration,
    /// TCP whose ends have greeted each other.
    pub tcp: Duration,
    /// TCP that is opening, closing or was reset.
    pub tcp_transitory: Duration,
    /// Timeout of ICMP queries.
    pub icmp: Duration,
    /// Any other protocol.
    pub other: Duration,
}

impl Default for Timeouts {
    /// What RFC 4787 §4.3 recommends, and the least that RFC 5382 §5 and RFC 5508 §3.2 permit; other protocols are as UDP.
    fn default() -> Self {
        let least = Self::LEAST;
        let udp = Duration::from_secs(300);
        Self { udp, other: udp, ..least }
    }
}

impl Timeouts {
    /// What the RFCs permit at least.
    pub const LEAST: Self = Self {
        udp: Duration::from_secs(120),
        tcp: Duration::from_secs(7_440),
        tcp_transitory: Duration::from_secs(240),
        icmp: Duration::from_secs(60),
        other: Duration::from_secs(60),
    };
}

/// A rule about packets that would begin a flow, in the words of RFC 6733 §4.3.1 without options: `permit` or `deny`, `in` (from the
/// UE) or `out` (to it), protocol, `from` and `to`: `deny in 6 from any to any 25`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallRule {
    pub(crate) permits: bool,
    pub(crate) from_ue: bool,
    filter: PdiFilter,
    text: Box<str>,
}

impl FirewallRule {
    /// Whether it meets every packet that `other` would.
    pub fn covers(&self, other: &Self) -> bool {
        self.from_ue == other.from_ue && self.filter.covers(&other.filter)
    }

    /// Whether it says the same of packets that it meets.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.permits == other.permits
    }

    /// The UEs that it names, as a network; `None` if all.
    pub fn ues(&self) -> Option<(IpAddr, u8)> {
        self.filter.local_network()
    }

    /// Whether it is a `permit in`: that packets from UEs may pass.
    pub fn permits_from_ue(&self) -> bool {
        self.permits && self.from_ue
    }

    /// Whether it is for a packet of a UE; of a later fragment, which has no ports, whether it may be for the first one.
    pub(crate) fn is_for(&self, flow: &Flow, later_fragment: bool) -> bool {
        if later_fragment { self.filter.matches_but_ports(flow) } else { self.filter.matches(flow) }
    }

    /// As conditions of a classifier, of which `base` says what else is asked for.
    pub(crate) fn conditions(&self, base: Pdi) -> impl Iterator<Item = Pdi> {
        self.filter.conditions(base)
    }
}

impl fmt::Display for FirewallRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// It is none of those rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirewallRuleError;

impl FromStr for FirewallRule {
    type Err = FirewallRuleError;

    fn from_str(text: &str) -> Result<Self, FirewallRuleError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (permits, from_ue) = match words[..] {
            ["permit", "in", ..] => (true, true),
            ["permit", "out", ..] => (true, false),
            ["deny", "in", ..] => (false, true),
            ["deny", "out", ..] => (false, false),
            _ => return Err(FirewallRuleError),
        };
        let permit = format!("permit {}", words[1..].join(" "));
        let filter = PdiFilter::new(&SdfFilter::flow(&permit)).ok_or(FirewallRuleError)?;
        Ok(Self { permits, from_ue, filter, text: words.join(" ").into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> FirewallRule {
        text.parse().unwrap_or_else(|_| panic!("{text}"))
    }

    #[test]
    fn rules_are_ip_filter_rules_of_two_actions_and_two_directions() {
        let r = rule(" deny  in 6 from any to 192.0.2.0/24 25,465-587");
        assert!(!r.permits && r.from_ue);
        assert_eq!(r.to_string(), "deny in 6 from any to 192.0.2.0/24 25,465-587");
        assert_eq!(
            rule("permit out 17 from any to 10.45.0.7 5060").ues(),
            Some(("10.45.0.7".parse().unwrap(), 32))
        );
        for bad in [
            "",
            "allow in ip from any to any",
            "deny ip from any to any",
            "deny in 300 from any to any",
            "deny in ip from any",
        ] {
            assert_eq!(bad.parse::<FirewallRule>(), Err(FirewallRuleError), "{bad}");
        }
    }

    #[test]
    fn a_rule_covers_what_is_no_wider_in_any_field() {
        let wide = rule("deny in ip from any to 192.0.2.0/24");
        assert!(wide.covers(&rule("permit in 6 from any to 192.0.2.7 80")));
        assert!(!wide.covers(&rule("permit out 6 from 192.0.2.7 80 to any")), "the other direction");
        assert!(!wide.covers(&rule("permit in 6 from any to 192.0.0.0/16")));
        let ports = rule("deny in 6 from any to any 80-90,443");
        assert!(ports.covers(&rule("deny in 6 from any to any 443,81-82")));
        assert!(!ports.covers(&rule("deny in 6 from any to any 85-95")));
        assert!(!ports.covers(&rule("deny in 6 from any to any")), "all ports are more than some");
        assert!(!ports.covers(&rule("deny in ip from any to any 80")), "all protocols are more than one");
        assert!(!rule("deny in ip from 10.0.0.0/8 to any").covers(&rule("deny in ip from fd00::/8 to any")));
    }
}
