//! Handovers through the core (TS 23.502 §4.9.1.3).

use whimbrel_control::config::HandoverDownlink;

use super::section::Section;
use super::value::words;

/// What is decided of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handover {
    pub(crate) downlink: HandoverDownlink,
}

words! { HandoverDownlink {
    HandoverDownlink::Buffer = "buffer",
    HandoverDownlink::Forward = "forward",
} }

pub(super) fn read(root: &mut Section<'_, '_>) -> Handover {
    root.section("handover", "Handovers through the core (N2; TS 23.502 §4.9.1.3).", |s| Handover {
        downlink: s.value(
            "downlink",
            HandoverDownlink::default(),
            "Packets for a phone between two gNBs: `buffer` in the UPF, or `forward` by the gNB that it leaves.",
        ),
    })
}
