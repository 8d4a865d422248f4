//! QoS flows of a data network beside the default one (TS 23.501 §5.7, TS 23.503 §6.3.1).

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_control::config::Buffering;
use whimbrel_control::policy::{
    FlowGate, FlowName, FlowPolicy, Gbr, InvalidFlow, Setup, Treatment, packet_filter,
};
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

/// The flows, and what is done with those of a name.
pub(super) fn read(s: &mut Section<'_, '_>) -> (Vec<FlowPolicy>, BTreeMap<FlowName, Treatment>) {
    let doc = "QoS flows beside the default one. Each has a name and says which packets are its own, in what quality \
               they travel, and who sets it up.";
    let all = s.sections("flows", 0, doc, |s, _| {
        let name = s.optional("name", "voice", "By which it is set up and taken down.").unwrap_or_default();
        let five_qi = FiveQi(s.value("five_qi", 9, "5QI (TS 23.501 table 5.7.4-1)."));
        let arp = Arp {
            priority: s.value("arp_priority", 8, "Allocation and retention priority, 1 (highest) to 15."),
            may_preempt: s.value("may_preempt", false, "It may take the resources of others."),
            preemptable: s.value("preemptable", true, "Others may take its resources."),
        };
        let mut rate = |key, doc| s.optional::<BitRate>(key, "64 Kbps", doc);
        let guaranteed = (
            rate("guaranteed_up", "Promised rate of a GBR flow from the UE."),
            rate("guaranteed_down", "And to the UE."),
        );
        let maximum = (
            rate("maximum_up", "What is above is dropped. The default is the guaranteed rate."),
            rate("maximum_down", "Likewise, to the UE."),
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
                "Who sets it up: always, on-request (a UE), by-operator.",
            ),
        };
        let treatment = Treatment {
            dscp: s.optional(
                "dscp",
                "46",
                "The DSCP of its packets to the gNB, outside, 0 to 63. Not said: as its 5QI has it (`markings`).",
            ),
            reflective: s.value(
                "reflective",
                false,
                "UEs that can learn its uplink rules from downlink packets are told no others (TS 23.501 §5.7.5).",
            ),
            applications: s
                .list::<String>("applications", vec![], "Packets of these applications are its own too (docs/applications.md).")
                .into_iter()
                .map(Into::into)
                .collect(),
        };
        if policy.name.is_empty() {
            s.refuse("name", "a flow without a name cannot be told from others", "give it a `name`");
        }
        if let Err(wrong) = policy.check_with(&treatment) {
            s.refuse("name", wrong.to_string(), "correct the flow");
        }
        (policy, treatment)
    });
    let treatments = all.iter().filter(|(_, t)| *t != Treatment::default()).map(|(p, t)| (p.name, t.clone()));
    let treatments = treatments.collect();
    (all.into_iter().map(|(policy, _)| policy).collect(), treatments)
}

/// The DSCP of packets to gNBs by 5QI, where it is another than usual.
pub(super) fn markings(root: &mut Section<'_, '_>) -> BTreeMap<FiveQi, u8> {
    let doc = "The DSCP of packets to gNBs, outside, of the flows of a 5QI, where it shall be another than docs/upf.md lists:";
    let all = root.sections("markings", 0, doc, |s, _| {
        let five_qi = FiveQi(s.value("five_qi", 5, "5QI (TS 23.501 table 5.7.4-1)."));
        let dscp = s.value("dscp", 0, "0 to 63 (RFC 2474).");
        if dscp > 63 {
            s.refuse(
                "dscp",
                InvalidFlow::Dscp(dscp).to_string(),
                "write 0 to 63, such as 46 for expedited forwarding",
            );
        }
        (five_qi, dscp)
    });
    all.into_iter().collect()
}

/// What UPFs are told of keeping packets for idle UEs.
pub(super) fn downlink_data(root: &mut Section<'_, '_>) -> Buffering {
    const UNIT: Duration = Duration::from_millis(50);
    let doc = "What the SMF asks of UPFs, this program's and others, of packets that wait for idle UEs (BAR, TS 29.244 §5.2.4).";
    root.section("downlink_data", doc, |s| {
        let delay = s.value(
            "notification_delay",
            Duration::ZERO,
            "Between the first packet and the paging, up to 12s, in steps of 50ms: UEs that are about to come are not paged.",
        );
        let units = u8::try_from(delay.as_millis() / UNIT.as_millis()).unwrap_or(u8::MAX);
        if UNIT * u32::from(units) != delay || delay > Duration::from_secs(12) {
            s.refuse("notification_delay", "it cannot be told to UPFs", "write 0ms to 12s in steps of 50ms");
        }
        Buffering {
            notification_delay: units,
            packets: s.optional("packets", "64", "Packets of one session. Not said: as the UPF has it."),
            extended_packets: s.optional(
                "extended_packets",
                "16",
                "The same for UEs that sleep for long (MICO, eDRX). How long packets wait for them, the UPF is told in any case.",
            ),
        }
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
        let refused = flows(
            "      - name: x\n        dscp: 64\n        filters: [\"permit out ip from any to any\"]\n",
        );
        assert!(refused.unwrap_err().contains("DSCP 64 is not within 0 to 63"));
    }

    #[test]
    fn what_is_done_with_a_flow_is_read_beside_it() {
        let flow = "data_networks:\n  - dnn: internet\n    flows:\n      - name: video\n        dscp: 34\n        reflective: true\n        \
                    applications: [video]\n";
        let read = |text: &str| crate::config::parse(text, std::path::Path::new("w.yaml"));
        let unknown = read(flow).unwrap_err().to_string();
        assert!(
            unknown.contains("w.yaml:7:") && unknown.contains("the application `video` is not described"),
            "{unknown}"
        );
        let described = format!(
            "{flow}detection:\n  applications:\n    - id: video\n      names: [video.example]\nmarkings:\n  - five_qi: 5\n    dscp: 40\n"
        );
        let control = read(&described).unwrap().control();
        let network = &control.smf.data_networks[&"internet".parse().unwrap()];
        let treatment = &network.treatments[&"video".parse().unwrap()];
        assert_eq!((treatment.dscp, treatment.reflective), (Some(34), true));
        assert_eq!(treatment.applications, ["video".into()]);
        assert_eq!([5, 9, 1].map(|q| control.smf.dscp(FiveQi(q))), [40, 0, 46]);
    }
}
