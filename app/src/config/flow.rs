//! QoS flows of a data network beside the default one (TS 23.501 §5.7, TS 23.503 §6.3.1).

use whimbrel_control::policy::{FlowGate, FlowName, FlowPolicy, Gbr, Setup, packet_filter};
use whimbrel_control::udm::{self, Arp};
use whimbrel_ids::FiveQi;
use whimbrel_nas::ie::PacketFilter;
use whimbrel_store::BitRate;

use super::section::Section;
use super::value::{Value, words};

words! { Setup {
    Setup::Always = "always",
    Setup::OnRequest = "on-request",
    Setup::ByOperator = "by-operator",
} }

/// The words for a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateWord {
    Open,
    Uplink,
    Downlink,
    Closed,
}

words! { GateWord {
    GateWord::Open = "open",
    GateWord::Uplink = "uplink",
    GateWord::Downlink = "downlink",
    GateWord::Closed = "closed",
} }

impl From<GateWord> for FlowGate {
    fn from(word: GateWord) -> Self {
        Self {
            uplink: matches!(word, GateWord::Open | GateWord::Uplink),
            downlink: matches!(word, GateWord::Open | GateWord::Downlink),
        }
    }
}

/// A packet filter as it stands in the file.
struct Filter(PacketFilter);

impl Value for Filter {
    fn read(text: &str) -> Result<Self, String> {
        let expected = "a packet filter such as `permit out 17 from 192.0.2.0/24 5004 to assigned`, behind `uplink` or \
                        `downlink` where it has one direction only, or `ethernet type 88f7`";
        packet_filter(text).map(Self).ok_or_else(|| expected.into())
    }

    fn show(&self) -> String {
        whimbrel_control::policy::describe(&self.0)
    }
}

impl Value for FlowName {
    fn read(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "a name of 1 to 16 lower-case letters, digits or dashes".into())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for BitRate {
    fn read(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "a bit rate such as 256 Kbps or 2.5 Mbps".into())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

pub(super) fn read(s: &mut Section<'_, '_>) -> Vec<FlowPolicy> {
    let doc = "QoS flows beside the default one. Each has a name and says which packets are its own, in what quality \
               they travel, and who sets it up.";
    s.sections("flows", 0, doc, |s, _| {
        let name = s.optional("name", "voice", "By which it is set up and taken down.").unwrap_or_default();
        let five_qi = FiveQi(s.value("five_qi", 9, "5QI (TS 23.501 table 5.7.4-1)."));
        let arp = Arp {
            priority: s.value("arp_priority", 8, "Allocation and retention priority, 1 (highest) to 15."),
            may_preempt: s.value("may_preempt", false, "It may take the resources of others."),
            preemptable: s.value("preemptable", true, "Others may take its resources."),
        };
        let mut rate = |key, doc| s.optional::<BitRate>(key, "64 Kbps", doc);
        let guaranteed = (
            rate("guaranteed_up", "Promised rate of a GBR flow from the phone."),
            rate("guaranteed_down", "And to the phone."),
        );
        let maximum = (
            rate("maximum_up", "What is above is dropped. The default is the guaranteed rate."),
            rate("maximum_down", "Likewise, to the phone."),
        );
        let policy = FlowPolicy {
            name,
            five_qi,
            arp,
            gbr: gbr(guaranteed, maximum),
            precedence: s.value("precedence", 100, "Of its QoS rule: the lowest is tried first."),
            filters: s.list::<Filter>("filters", vec![], "Its packets.").into_iter().map(|f| f.0).collect(),
            gate: s
                .value("gate", GateWord::Open, "Which directions pass: open, uplink, downlink, closed.")
                .into(),
            setup: s.value(
                "setup",
                Setup::Always,
                "Who sets it up: always, on-request (a phone), by-operator.",
            ),
        };
        if policy.name.is_empty() {
            s.refuse("name", "a flow without a name cannot be told from others", "give it a `name`");
        }
        if let Err(wrong) = policy.check() {
            s.refuse("name", wrong.to_string(), "correct the flow");
        }
        policy
    })
}

/// The rates of a GBR flow: what is not said of the maximum is as guaranteed.
fn gbr(
    guaranteed: (Option<BitRate>, Option<BitRate>),
    maximum: (Option<BitRate>, Option<BitRate>),
) -> Option<Gbr> {
    let (up, down) = (guaranteed.0?.kbps(), guaranteed.1?.kbps());
    Some(Gbr {
        guaranteed: udm::Ambr { ul_kbps: up, dl_kbps: down },
        maximum: udm::Ambr {
            ul_kbps: maximum.0.map_or(up, BitRate::kbps),
            dl_kbps: maximum.1.map_or(down, BitRate::kbps),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(text: &str) -> Result<Vec<FlowPolicy>, String> {
        let text = format!("data_networks:\n  - dnn: internet\n    flows:\n{text}");
        let config = crate::config::parse(&text, std::path::Path::new("w.yaml"));
        config.map(|c| c.data_networks[0].flows.clone()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_flow_of_guaranteed_rate() {
        let text = "      - name: voice\n        five_qi: 1\n        guaranteed_up: 64 Kbps\n        guaranteed_down: 64 Kbps\n        \
                    filters: [\"permit out 17 from any to assigned 5004\"]\n        precedence: 10\n";
        let flows = flows(text).unwrap();
        assert_eq!(flows[0].name.as_str(), "voice");
        assert_eq!(flows[0].gbr.map(|g| g.maximum.ul_kbps), Some(64));
    }

    #[test]
    fn a_flow_that_contradicts_itself_is_refused() {
        let refused = flows(
            "      - name: voice\n        five_qi: 1\n        filters: [\"permit out ip from any to any\"]\n",
        );
        assert!(refused.unwrap_err().contains("guaranteed rates"));
        let refused = flows("      - name: x\n        filters: [\"deny out ip from any to any\"]\n");
        assert!(refused.unwrap_err().contains("packet filter"));
    }
}
