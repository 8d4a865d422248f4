//! Handovers (TS 23.502 §4.9.1).

use whimbrel_control::config::HandoverDownlink;

use super::section::Section;
use super::value::words;

/// What is decided of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handover {
    pub(crate) downlink: HandoverDownlink,
    pub(crate) signs: bool,
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
            "Through the core, packets on the way: `buffer` in the UPF, or `forward` by the gNB that is left.",
        ),
        signs: s.value(
            "signs",
            false,
            "Tell every sign of where connected UEs go as an event, for who predicts handovers.",
        ),
    })
}
