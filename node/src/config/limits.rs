//! Limits on the resources that peers can occupy.

use super::section::Section;

/// The section `limits` of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub ues: u32,
    pub ran_nodes: u32,
    pub sessions_per_ue: u8,
    pub unauthenticated_ues: u32,
    pub unauthenticated_ues_per_gnb: u32,
    pub first_messages_per_s: u32,
    pub ran_nodes_waiting: u32,
    pub pagings_per_s: u32,
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Limits {
    root.section(
        "limits",
        "Limits on the resources that peers can occupy (docs/limits.md).",
        |s| {
            let limits = Limits {
                ues: s.value("ues", 1 << 20, "UE contexts, registered or registering."),
                ran_nodes: s.value("ran_nodes", 1024, "gNBs."),
                sessions_per_ue: s.value(
                    "sessions_per_ue",
                    8,
                    "PDU sessions of one UE, up to 15 (TS 24.501 §9.4).",
                ),
                unauthenticated_ues: s.value(
                    "unauthenticated_ues",
                    65_536,
                    "UEs that are not authenticated yet: the most that a flood of initial messages can occupy.",
                ),
                unauthenticated_ues_per_gnb: s.value(
                    "unauthenticated_ues_per_gnb",
                    16_384,
                    "Of these, the UEs of one gNB, so that a flood through it leaves room for the UEs of other gNBs.",
                ),
                first_messages_per_s: s.value(
                    "first_messages_per_s",
                    10_000,
                    "INITIAL UE MESSAGEs of one gNB in a second, and in one burst.",
                ),
                ran_nodes_waiting: s.value(
                    "ran_nodes_waiting",
                    256,
                    "SCTP associations without NG Setup; each is aborted after 30 s.",
                ),
                pagings_per_s: s.value(
                    "pagings_per_s",
                    10_000,
                    "UEs paged in a second, each by all gNBs of its area; further ones are paged when T3513 expires.",
                ),
            };
            // Slots are 24 bits of the AMF-UE-NGAP-ID; the generation takes the rest.
            within(s, "ues", limits.ues, 1, 1 << 24);
            within(s, "ran_nodes", limits.ran_nodes, 1, 65_536);
            within(s, "sessions_per_ue", limits.sessions_per_ue.into(), 1, 15);
            within(s, "unauthenticated_ues", limits.unauthenticated_ues, 1, limits.ues);
            within(s, "unauthenticated_ues_per_gnb", limits.unauthenticated_ues_per_gnb, 1, 1 << 24);
            within(s, "first_messages_per_s", limits.first_messages_per_s, 1, 1_000_000);
            within(s, "ran_nodes_waiting", limits.ran_nodes_waiting, 1, 65_536);
            within(s, "pagings_per_s", limits.pagings_per_s, 1, 1_000_000);
            limits
        },
    )
}

fn within(s: &mut Section<'_, '_>, key: &str, value: u32, least: u32, most: u32) {
    let is_within = (least..=most).contains(&value);
    s.bound(key, is_within, format!("{value} is out of bounds"), format!("{least} to {most}"));
}
