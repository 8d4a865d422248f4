//! Requests of the SMF to a remote UDM. Nothing waits for their answers; the embedded UDM has no use for them.

use whimbrel_ids::{PduSessionId, Supi};

use crate::config::UdmFunction;
use crate::envelope::Effect;
use crate::procedure::Ue;
use crate::services::nudm::UdmRequest;

/// Nudm_UECM_Registration (TS 23.502 §4.3.2.2.1 step 4): this SMF serves the session.
pub(super) fn register_session(ue: Ue, psi: PduSessionId) {
    let session = ue.with(|p| p.sessions.get(&psi).map(|s| (s.s_nssai, s.dnn.clone())));
    if let (Some(supi), Some((s_nssai, dnn))) = (subscriber(ue, psi), session) {
        ue.emit(Effect::Udm(UdmRequest::RegisterSession { supi, psi, s_nssai, dnn }), None);
    }
}

/// Nudm_UECM_Deregistration (TS 23.502 §4.3.4.2 step 12): the session has ended.
pub(super) fn deregister_session(ue: Ue, psi: PduSessionId) {
    if let Some(supi) = subscriber(ue, psi) {
        ue.emit(Effect::Udm(UdmRequest::DeregisterSession(supi, psi)), None);
    }
}

/// The subscriber of the remote UDM whose session this is. Emergency sessions and those of brokers' users are not registered.
fn subscriber(ue: Ue, psi: PduSessionId) -> Option<Supi> {
    if ue.config().udm == UdmFunction::Embedded {
        return None;
    }
    ue.with(|p| {
        let ordinary = p.grant.is_none() && p.sessions.get(&psi).is_some_and(|s| !s.emergency);
        p.subject().supi.filter(|supi| ordinary && !supi.is_nai())
    })
}
