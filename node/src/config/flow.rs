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

/// States of a gate.
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

/// A packet filter.
struct ConfiguredFilter(PacketFilter);

impl Value for ConfiguredFilter {
    fn read(text: &str) -> Result<Self, String> {
        let expected = "a packet filter such as `permit out 17 from 192.0.2.0/24 5004 to assigned`, preceded by `uplink` or \
                        `downlink` if it has one direction only, or `ethernet type 88f7`";
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

/// The flows, and the treatment of each by name.
pub(super) fn read(s: &mut Section<'_, '_>) -> (Vec<FlowPolicy>, BTreeMap<FlowName, Treatment>) {
    let doc = "QoS flows beside the default one. Each has a name, its packets (filters or applications), its QoS, and \
               the side that sets it up.";
    let all = s.sections("flows", 0, doc, |s, _| {
        let name = s.optional("name", "voice", "Name, used by `whimbrel session modify`.").unwrap_or_default();
        let five_qi = FiveQi(s.value("five_qi", 9, "5QI (TS 23.501 table 5.7.4-1)."));
        let arp = Arp {
            priority: s.value("arp_priority", 8, "Allocation and retention priority, 1 (highest) to 15."),
            may_preempt: s.value("may_preempt", false, "ARP pre-emption capability: it may pre-empt others."),
            preemptable: s.value("preemptable", true, "ARP pre-emption vulnerability: others may pre-empt it."),
        };
        let mut rate = |key, doc| s.optional::<BitRate>(key, "64 Kbps", doc);
        let guaranteed = (
            rate("guaranteed_up", "Guaranteed uplink rate (GFBR) of a GBR flow."),
            rate("guaranteed_down", "Guaranteed downlink rate (GFBR)."),
        );
        let maximum = (
            rate("maximum_up", "Maximum uplink rate (MFBR); packets beyond it are dropped. Default: the guaranteed rate."),
            rate("maximum_down", "Maximum downlink rate (MFBR)."),
        );
        let policy = FlowPolicy {
            name,
            five_qi,
            arp,
            gbr: gbr(guaranteed, maximum),
            precedence: s.value("precedence", 100, "Precedence of its QoS rule; the lowest is evaluated first."),
            filters: s.list::<ConfiguredFilter>("filters", vec![], "Packet filters.").into_iter().map(|f| f.0).collect(),
            gate: s
                .value("gate", GateWord::Open, "Gate: open, uplink (only), downlink (only), or closed.")
                .into(),
            setup: s.value(
                "setup",
                Setup::Always,
                "When it is set up: always, on-request (by the UE), by-operator.",
            ),
        };
        let treatment = Treatment {
            dscp: s.optional(
                "dscp",
                "46",
                "Outer DSCP of its packets towards the gNB, 0 to 63. Default: that of its 5QI (`markings`).",
            ),
            reflective: s.value(
                "reflective",
                false,
                "Use reflective QoS with UEs that support it, instead of signalled QoS rules (TS 23.501 §5.7.5).",
            ),
            applications: s
                .list::<String>("applications", vec![], "Applications whose packets belong to it too (docs/applications.md).")
                .into_iter()
                .map(Into::into)
                .collect(),
        };
        if policy.name.is_empty() {
            s.refuse("name", "the flow has no name", "give it a `name`");
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

/// The DSCP of packets to gNBs by 5QI, if not the default.
pub(super) fn markings(root: &mut Section<'_, '_>) -> BTreeMap<FiveQi, u8> {
    let doc = "Outer DSCP of packets towards gNBs by 5QI, if not the one that docs/upf.md lists:";
    let all = root.sections("markings", 0, doc, |s, _| {
        let five_qi = FiveQi(s.value("five_qi", 5, "5QI (TS 23.501 table 5.7.4-1)."));
        let dscp = s.value("dscp", 0, "0 to 63 (RFC 2474).");
        let bounds = "0 to 63, such as 46 for expedited forwarding";
        s.bound("dscp", dscp <= 63, InvalidFlow::Dscp(dscp).to_string(), bounds);
        (five_qi, dscp)
    });
    all.into_iter().collect()
}

/// Buffering of downlink packets for idle UEs, as the SMF requests it from UPFs.
pub(super) fn downlink_data(root: &mut Section<'_, '_>) -> Buffering {
    const UNIT: Duration = Duration::from_millis(50);
    let doc = "Buffering of downlink packets for idle UEs that the SMF requests from all UPFs (BAR, TS 29.244 §5.2.4).";
    root.section("downlink_data", doc, |s| {
        let delay = s.value(
            "notification_delay",
            Duration::ZERO,
            "Delay between the first packet and the paging, up to 12s in steps of 50ms, so that UEs that connect anyway are not paged.",
        );
        let units = u8::try_from(delay.as_millis() / UNIT.as_millis()).unwrap_or(u8::MAX);
        let is_codable = UNIT * u32::from(units) == delay && delay <= Duration::from_secs(12);
        s.bound("notification_delay", is_codable, "it cannot be coded in PFCP", "0ms to 12s in steps of 50ms");
        Buffering {
            notification_delay: units,
            packets: s.optional("packets", "64", "Packets of one session. Default: that of the UPF."),
            extended_packets: s.optional(
                "extended_packets",
                "16",
                "The same for UEs in MICO mode or with extended DRX; the SMF also sets how long packets are buffered for them.",
            ),
        }
    })
}

/// The rates of a GBR flow; the default of a maximum is the guaranteed rate.
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
    fn the_treatment_of_a_flow_is_read_with_it() {
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
