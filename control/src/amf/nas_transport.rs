//! NAS transport of payloads: TS 24.501 §5.4.5, TS 23.501 §5.6.2. Session management goes to the SMF; other payloads are dropped, or
//! returned where the clause says so. IEs that a payload makes mandatory: TS 24.501 §7.7.2.

use whimbrel_ids::{Dnn, PduSessionId, SNssai, Supi};
use whimbrel_nas::ie::{GprsTimer3, MmCause, PayloadContainer, PayloadContainerType, RequestType};
use whimbrel_nas::mm::{DlNasTransport, MmStatus, UlNasTransport};

use super::mobility_restrictions::service_allowed;
use super::n2::send_nas;
use super::session_resources::has_session;
use crate::event::{Event, MessageDropReason};
use crate::procedure::{Procedure, Ue};
use crate::refusal::Refusal;
use crate::services::nsmf::{SmContextCreateData, SmContextReleaseData, SmContextUpdateData};
use crate::state::DownlinkProtection;

/// A payload from the UE.
pub(crate) fn uplink(ue: Ue, m: UlNasTransport) {
    if m.payload_container_type == PayloadContainerType::SOR && is_of_sap(ue) {
        return usage_report(ue, &m.payload_container);
    }
    if m.payload_container_type != PayloadContainerType::N1_SM_INFORMATION {
        // SMS, LPP, SOR acknowledgement, UE policy: no function here serves them (§5.4.5.2.5 has them ignored).
        let subject = ue.with(|p| p.subject());
        return ue.event(Event::Dropped { subject, why: MessageDropReason::UnservedPayload });
    }
    let Some(psi) = m.pdu_session_id else {
        // TS 24.501 §7.7.2: an element that this payload makes mandatory is missing.
        crate::procedure::out_of_state(ue);
        return send_nas(ue, &MmStatus::new(MmCause::ConditionalIeError).into(), DownlinkProtection::Current);
    };
    if !ue.with(|p| p.amf.registered) {
        return crate::procedure::out_of_state(ue);
    }
    let known = has_session(ue, psi);
    match m.request_type {
        Some(RequestType::InitialRequest) => create(ue, psi, &m),
        Some(RequestType::InitialEmergencyRequest) => create_emergency(ue, psi, m.payload_container),
        // §5.4.5.2.5: an emergency session that does not exist.
        Some(RequestType::ExistingEmergencyPduSession) if !known => {
            not_forwarded(ue, psi, m.payload_container, MmCause::PayloadWasNotForwarded);
        }
        Some(RequestType::ExistingPduSession) if !known => {
            create(ue, psi, &m) // unknown session: the SMF answers with 5GSM cause #54
        }
        // §5.4.5.2.5 a 1 iv: a session that does not exist.
        None if !known => not_forwarded(ue, psi, m.payload_container, MmCause::PayloadWasNotForwarded),
        // §5.4.5.2.5 #28: in a non-allowed area sessions are not modified either.
        Some(RequestType::ModificationRequest) if is_barred(ue, psi) => {
            not_forwarded(ue, psi, m.payload_container, MmCause::RestrictedServiceArea);
        }
        _ => ue.smf().update_sm_context(ue, psi, SmContextUpdateData::N1Sm(&m.payload_container)),
    }
}

/// Whether it is registered under a broker's pseudonym.
fn is_of_sap(ue: Ue) -> bool {
    ue.with(|p| p.amf.registered && p.amf.supi.is_some_and(Supi::is_nai))
}

/// A UE's sealed usage report to its broker (CellBricks, chapter 3.4.3), to be passed on.
///
/// Deviation: TS 24.501 §9.11.3.40 has the SOR transparent container for what goes between a UE and its home through a network that cannot
/// read it, and names one content. A broker is the home of its UEs, and no other UE is taken to send this one.
fn usage_report(ue: Ue, sealed: &[u8]) {
    let subject = ue.with(|p| p.subject());
    if sealed.len() > whimbrel_open::usage::SealedReport::OCTETS_MAX {
        return ue.event(Event::Dropped { subject, why: MessageDropReason::UnservedPayload });
    }
    ue.event(Event::UsageReported { subject, sealed: sealed.to_vec() });
}

/// Whether the UE is in a non-allowed area and the session is no emergency session.
fn is_barred(ue: Ue, psi: PduSessionId) -> bool {
    service_allowed(ue).is_err() && ue.smf().sm_contexts(ue).iter().any(|s| s.psi == psi && !s.emergency)
}

/// Nsmf_PDUSession_CreateSMContext (TS 23.502 §4.3.2.2.1 steps 2 and 3): the AMF chooses slice and DNN if the UE names
/// none (TS 24.501 §5.4.5.2.3).
fn create(ue: Ue, psi: PduSessionId, m: &UlNasTransport) {
    match choose(ue, psi, m).and_then(|chosen| uncongested(ue, chosen)) {
        Ok((s_nssai, dnn)) => {
            let existing = matches!(m.request_type, Some(RequestType::ExistingPduSession));
            ue.smf().create_sm_context(
                ue,
                SmContextCreateData { psi, s_nssai, dnn, existing, emergency: false },
                &m.payload_container,
            );
        }
        Err(refusal) => {
            let cause = match refusal {
                Refusal::Congested("slices") => MmCause::InsufficientResourcesForSlice,
                Refusal::Limit("sessions_per_ue") => MmCause::MaximumNumberOfPduSessionsReached,
                _ => refusal.mm_cause(&ue.config()),
            };
            let back_off = refusal.back_off(&ue.config());
            let subject = ue.with(|p| p.subject());
            let ran_ue_ngap_id = super::n2::ids(ue).map(|(_, ran)| ran);
            let procedure = Procedure::PduSessionEstablishment;
            ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id, refusal });
            let mut answer = returned(psi, m.payload_container.clone(), cause);
            answer.back_off_timer = back_off.map(GprsTimer3::from_duration);
            send_nas(ue, &answer.into(), DownlinkProtection::Current);
        }
    }
}

/// An emergency session: the operator's emergency configuration replaces the UE's request and subscription (TS 23.501
/// §5.16.4.3). A UE has at most one: a new one replaces it.
fn create_emergency(ue: Ue, psi: PduSessionId, payload: PayloadContainer) {
    let config = ue.config();
    let Some(emergency) = &config.amf.access.emergency else {
        return not_forwarded(ue, psi, payload, MmCause::PayloadWasNotForwarded);
    };
    for former in ue.smf().sm_contexts(ue).iter().filter(|s| s.emergency && s.psi != psi) {
        ue.smf().release_sm_context(ue, former.psi, SmContextReleaseData::Local);
    }
    let (s_nssai, dnn) = (emergency.s_nssai, emergency.dnn.clone());
    let data = SmContextCreateData { psi, s_nssai, dnn, existing: false, emergency: true };
    ue.smf().create_sm_context(ue, data, &payload);
}

/// TS 24.501 §5.4.5.2.5 #22, TS 24.501 §5.4.5.2.5 #69; TS 24.501 §5.3.10, TS 24.501 §5.3.11: requests without priority
/// get a back-off timer.
fn uncongested(ue: Ue, (s_nssai, dnn): (SNssai, Dnn)) -> Result<(SNssai, Dnn), Refusal> {
    let config = ue.config();
    let congestion = &config.amf.access.congestion;
    if congestion.slices.contains(&s_nssai) {
        return Err(Refusal::Congested("slices"));
    }
    if congestion.dnns.contains(&dnn) {
        return Err(Refusal::Congested("dnns"));
    }
    Ok((s_nssai, dnn))
}

fn choose(ue: Ue, psi: PduSessionId, m: &UlNasTransport) -> Result<(SNssai, Dnn), Refusal> {
    service_allowed(ue)?; // §5.4.5.2.5: #28
    let (config, contexts) = (ue.config(), ue.smf().sm_contexts(ue));
    let context = |psi: PduSessionId| contexts.iter().find(|s| s.psi == psi);
    ue.with(|p| {
        // A UE registered for emergency services gets no other session (TS 23.501 §5.16.4.9).
        if p.amf.emergency {
            return Err(Refusal::Protocol("a session that is no emergency's, of a UE that is here for one"));
        }
        // In SSC mode 3 the new session exists beside the old one for a while, with the same DNN (TS 23.502 §4.3.5.2 step 4).
        let former = m.old_pdu_session_id.and_then(context);
        let former = former.filter(|s| s.leaving);
        let room = contexts.len() < usize::from(config.limits.sessions_per_ue);
        if !room && former.is_none() && context(psi).is_none() {
            return Err(Refusal::Limit("sessions_per_ue"));
        }
        let subscription = p.amf.subscription.as_ref().ok_or(Refusal::NoIdentity)?;
        let default = former.map(|s| s.s_nssai).or(p.amf.slices.allowed.first().copied());
        let s_nssai = match m.s_nssai.map(|s| s.s_nssai).or(default) {
            Some(s) if p.amf.slices.allowed.contains(&s) => s,
            Some(s) => return Err(Refusal::SliceNotAllowed(s)),
            None => return Err(Refusal::NoSlice { requested: Vec::new(), subscribed: Vec::new() }),
        };
        let slice = subscription.slice(s_nssai).ok_or(Refusal::SliceNotAllowed(s_nssai))?;
        let default = || slice.dnns.iter().find(|d| d.default).or(slice.dnns.first());
        let named = m.dnn.as_ref().or(former.map(|s| &s.dnn));
        let chosen = match named {
            Some(dnn) => slice.dnns.iter().find(|d| d.dnn == *dnn),
            None => default(),
        };
        match (chosen, named) {
            (Some(d), _) if config.smf.data_networks.contains_key(&d.dnn) => Ok((s_nssai, d.dnn.clone())),
            (Some(d), _) => Err(Refusal::DnnNotConfigured(d.dnn.clone())),
            (None, Some(dnn)) => Err(Refusal::DnnNotSubscribed {
                dnn: dnn.clone(),
                s_nssai,
                subscribed: slice.dnns.iter().map(|d| d.dnn.clone()).collect(),
            }),
            (None, None) => Err(Refusal::SliceNotAllowed(s_nssai)),
        }
    })
}

/// TS 24.501 §5.4.5.3.1 e: the payload goes back with the cause.
pub(super) fn not_forwarded(ue: Ue, psi: PduSessionId, payload: PayloadContainer, cause: MmCause) {
    send_nas(ue, &returned(psi, payload, cause).into(), DownlinkProtection::Current);
}

fn returned(psi: PduSessionId, payload: PayloadContainer, cause: MmCause) -> DlNasTransport {
    let mut m = DlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, payload);
    m.pdu_session_id = Some(psi);
    m.cause = Some(cause);
    m
}

/// A session management message to the UE.
#[derive(Clone, Copy)]
pub(crate) enum N1Sm<'a> {
    /// Of this program's SMF.
    Message(&'a whimbrel_nas::sm::Message),
    /// Of another SMF, unread.
    Octets(&'a [u8]),
}

impl N1Sm<'_> {
    /// The message as DL NAS TRANSPORT.
    pub(crate) fn transport(self, psi: PduSessionId) -> Option<whimbrel_nas::mm::Message> {
        let octets = match self {
            Self::Message(message) => {
                let mut octets = Vec::with_capacity(128);
                message.encode(&mut octets);
                octets
            }
            Self::Octets(octets) => octets.to_vec(),
        };
        let container = PayloadContainer::new(octets)?;
        let mut m = DlNasTransport::new(PayloadContainerType::N1_SM_INFORMATION, container);
        m.pdu_session_id = Some(psi);
        Some(m.into())
    }
}
