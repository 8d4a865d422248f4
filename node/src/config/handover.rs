//! Handovers (TS 23.502 §4.9.1).

use whimbrel_control::config::HandoverDownlink;

use super::section::Section;
use super::value::words;

/// How handovers are done.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    pub downlink: HandoverDownlink,
    pub signs: bool,
}

words! { HandoverDownlink {
    HandoverDownlink::Buffer = "buffer",
    HandoverDownlink::Forward = "forward",
} }

pub(super) fn read(root: &mut Section<'_, '_>) -> Handover {
    root.section("handover", "Handovers (TS 23.502 §4.9.1).", |s| Handover {
        downlink: s.value(
            "downlink",
            HandoverDownlink::default(),
            "Downlink packets during an N2 handover: `buffer` them in the UPF, or `forward` them through the source gNB.",
        ),
        signs: s.value(
            "signs",
            false,
            "Emit an event for each indication of where a connected UE moves, for the prediction of handovers.",
        ),
    })
}
