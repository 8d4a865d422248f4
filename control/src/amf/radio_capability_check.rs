//! UE radio capability check: TS 38.413 §8.14.2.2, TS 23.502 §4.2.8a: whether the UE's radio carries IMS voice here.
//!
//! If configured, the gNB is asked once it has the UE's context, and again when the UE's radio capability has changed.
//! The answer takes effect at the next registration (TS 23.501 §5.16.3.2).

use whimbrel_ngap::ie::ImsVoiceSupportIndicator;
use whimbrel_ngap::msg::{UeRadioCapabilityCheckRequest, UeRadioCapabilityCheckResponse};

use super::n2::{ids, send};
use crate::procedure::{Ue, out_of_state};
use crate::state::VoiceMatch;

/// The UE's radio capability has changed: the earlier answer is discarded.
pub(crate) fn forget(ue: Ue) {
    ue.with(|p| p.amf.radio.voice_match = VoiceMatch::Unknown);
}

/// UE RADIO CAPABILITY CHECK REQUEST, where the operator configures it and the answer is not known.
pub(crate) fn begin(ue: Ue) {
    let config = ue.config();
    if !config.amf.ims_vops || !config.amf.access.voice_match {
        return;
    }
    let capability = ue.with(|p| {
        let ready = p.amf.connection.as_ref().is_some_and(|c| c.context_set_up);
        let unknown = matches!(p.amf.radio.voice_match, VoiceMatch::Unknown | VoiceMatch::Asked);
        p.amf.radio.capability.as_ref().filter(|_| ready && unknown).map(|c| c.to_vec())
    });
    let (Some(capability), Some((amf_id, ran_id))) = (capability, ids(ue)) else { return };
    let mut m = UeRadioCapabilityCheckRequest::new(amf_id, ran_id);
    m.ue_radio_capability = Some(capability);
    ue.with(|p| p.amf.radio.voice_match = VoiceMatch::Asked);
    send(ue, &m.into(), None);
}

/// UE RADIO CAPABILITY CHECK RESPONSE.
pub(crate) fn answered(ue: Ue, m: &UeRadioCapabilityCheckResponse) {
    if ue.with(|p| p.amf.radio.voice_match != VoiceMatch::Asked) {
        return out_of_state(ue);
    }
    let known = match m.ims_voice_support_indicator {
        ImsVoiceSupportIndicator::Supported => VoiceMatch::Supported,
        ImsVoiceSupportIndicator::NotSupported => VoiceMatch::NotSupported,
    };
    ue.with(|p| p.amf.radio.voice_match = known);
}

/// Whether REGISTRATION ACCEPT indicates IMS voice over PS sessions.
pub(crate) fn carries_voice(ue: Ue) -> bool {
    ue.config().amf.ims_vops && ue.with(|p| p.amf.radio.voice_match != VoiceMatch::NotSupported)
}
