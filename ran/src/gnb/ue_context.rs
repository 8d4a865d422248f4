//! UE context management (TS 38.413 §8.3) and the radio capability (§8.14.1).

use whimbrel_ids::{Instant, RanUeNgapId};
use whimbrel_ngap::{
    Cause, CauseRadioNetwork, ImsVoiceSupportIndicator, InitialContextSetupFailure,
    InitialContextSetupRequest, InitialContextSetupResponse, PduSessionResourceItemCxtRelCpl,
    RrcInactiveTransitionReportRequest, UeContextModificationRequest, UeContextModificationResponse,
    UeContextReleaseCommand, UeContextReleaseComplete, UeContextReleaseRequest, UeNgapIds,
    UeRadioCapabilityCheckRequest, UeRadioCapabilityCheckResponse, UeRadioCapabilityInfoIndication,
    UeSecurityCapabilities,
};

use super::keys::Keys;
use super::pdu_session::RequestedSession;
use super::{Event, Gnb, Output, ReceivedMessage, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::{DownlinkMessage, UeId};

/// NEA1 to NEA3 or NIA1 to NIA3 in NGAP: the highest bits (TS 38.413 §9.3.1.86; all zero: only the null algorithm).
const ALGORITHMS_1_TO_3: u16 = 0xe000;

impl Gnb {
    /// INITIAL CONTEXT SETUP (§8.3.1).
    pub(super) fn initial_context_setup(
        &mut self,
        at: ReceivedMessage,
        m: InitialContextSetupRequest,
        out: &mut Outbox<Output>,
    ) {
        let sessions_asked = !m.pdu_session_resource_setup_list_cxt_req.is_empty();
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (ue, stream) = (context.ue, context.stream);
        context.ambr = m.ue_aggregate_maximum_bit_rate.clone().or(context.ambr.take());
        let (radio_lost, has_ue_ambr) = (context.radio_lost, context.ambr.is_some());
        if sessions_asked && !has_ue_ambr {
            violation(Some(ue), Violation::MissingUeAmbr, out);
        }
        self.judge_context(ue, &m, out);
        let refused = if radio_lost {
            Some(CauseRadioNetwork::RadioConnectionWithUeLost)
        } else if !has_common_algorithms(&m.ue_security_capabilities) {
            Some(CauseRadioNetwork::EncryptionAndOrIntegrityProtectionAlgorithmsNotSupported)
        } else {
            None
        };
        if let Some(cause) = refused {
            let cause = Cause::RadioNetwork(cause);
            let failure = InitialContextSetupFailure::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, cause);
            return self.send(stream, &failure.into(), out);
        }
        if let Some(context) = self.contexts.get_mut(m.ran_ue_ngap_id.0) {
            context.set_up = true;
            context.keys = Some(Keys::initial(m.security_key.0));
            context.guami = Some(m.guami);
            context.capabilities = Some(m.ue_security_capabilities.clone());
            context.allowed_nssai.clone_from(&m.allowed_nssai);
            context.reports_inactive = reports(m.rrc_inactive_transition_report_request.as_ref(), false);
        }
        out.push(Output::Radio(ue, DownlinkMessage::AsSecurity { k_gnb: m.security_key.0 }));
        let requested: Vec<RequestedSession> =
            m.pdu_session_resource_setup_list_cxt_req.into_iter().map(RequestedSession::from).collect();
        let done = self.set_up_sessions(m.ran_ue_ngap_id, requested, out);
        let mut answer = InitialContextSetupResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        answer.pdu_session_resource_setup_list_cxt_res = done.set_up;
        answer.pdu_session_resource_failed_to_setup_list_cxt_res = done.failed;
        // The capability is reported only if the request did not contain it (§8.14.1).
        if m.ue_radio_capability.is_none() {
            self.report_radio_capability(m.ran_ue_ngap_id, out);
        }
        self.send(stream, &answer.into(), out);
        event(Event::ContextSetUp(ue), out);
        self.deliver(ue, m.nas_pdu, out);
        for nas in done.nas {
            self.deliver(ue, Some(nas), out);
        }
    }

    fn judge_context(&self, ue: UeId, m: &InitialContextSetupRequest, out: &mut Outbox<Output>) {
        let mut breach = |v| violation(Some(ue), v, out);
        if m.security_key.0 == [0; 32] {
            breach(Violation::ZeroSecurityKey);
        }
        if !self.served_guamis.contains(&m.guami) {
            breach(Violation::ForeignGuami);
        }
        if !m.allowed_nssai.iter().any(|s| self.config.serves_slice(*s)) {
            breach(Violation::AllowedNssaiNotServed);
        }
        if m.ue_radio_capability.as_ref().is_some_and(|c| *c != self.config.radio_capability) {
            breach(Violation::RadioCapabilityAltered);
        }
    }

    fn report_radio_capability(&self, id: RanUeNgapId, out: &mut Outbox<Output>) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let mut m = UeRadioCapabilityInfoIndication::new(amf_ue_ngap_id, id);
        m.ue_radio_capability.clone_from(&self.config.radio_capability);
        self.send(context.stream, &m.into(), out);
    }

    /// UE RADIO CAPABILITY CHECK (§8.14.2): every UE here supports voice.
    pub(super) fn radio_capability_check(
        &mut self,
        at: ReceivedMessage,
        m: &UeRadioCapabilityCheckRequest,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (stream, supported) = (context.stream, ImsVoiceSupportIndicator::Supported);
        let answer = UeRadioCapabilityCheckResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, supported);
        self.send(stream, &answer.into(), out);
    }

    /// UE CONTEXT MODIFICATION (§8.3.4).
    pub(super) fn ue_context_modification(
        &mut self,
        at: ReceivedMessage,
        m: &UeContextModificationRequest,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        context.ambr = m.ue_aggregate_maximum_bit_rate.clone().or(context.ambr.take());
        context.guami = m.new_guami.or(context.guami);
        context.reports_inactive =
            reports(m.rrc_inactive_transition_report_request.as_ref(), context.reports_inactive);
        context.capabilities = m.ue_security_capabilities.clone().or(context.capabilities.take());
        let stream = context.stream;
        // A key of a new K_AMF, taken into use at once (TS 33.501 §6.9.4.4).
        if let Some(key) = &m.security_key {
            context.keys = Some(Keys::initial(key.0));
            if !context.radio_lost {
                out.push(Output::Radio(context.ue, DownlinkMessage::AsSecurity { k_gnb: key.0 }));
            }
        }
        let mut named = m.amf_ue_ngap_id;
        if let Some(new) = m.new_amf_ue_ngap_id {
            context.amf_ue_ngap_id = Some(new);
            named = new;
        }
        self.send(stream, &UeContextModificationResponse::new(named, m.ran_ue_ngap_id).into(), out);
    }

    /// The UE no longer answers.
    pub(super) fn ue_gone(&mut self, ue: UeId, out: &mut Outbox<Output>) {
        let Some(id) = self.of_ue(ue).map(|c| c.ran_ue_ngap_id) else { return };
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.radio_lost = true;
        }
        self.request_release(ue, Cause::RadioNetwork(CauseRadioNetwork::RadioConnectionWithUeLost), out);
    }

    /// UE CONTEXT RELEASE REQUEST (§8.3.2).
    pub(super) fn request_release(&mut self, ue: UeId, cause: Cause, out: &mut Outbox<Output>) {
        let Some(id) = self.of_ue(ue).map(|c| c.ran_ue_ngap_id) else { return };
        let Some(context) = self.contexts.get_mut(id.0) else { return };
        let lost = cause == Cause::RadioNetwork(CauseRadioNetwork::RadioConnectionWithUeLost);
        if lost && !context.radio_lost {
            context.radio_lost = true;
            out.push(Output::Radio(ue, DownlinkMessage::Released));
        }
        self.request_context_release(id, cause, out);
    }

    pub(super) fn request_context_release(
        &mut self,
        id: RanUeNgapId,
        cause: Cause,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let stream = context.stream;
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let mut m = UeContextReleaseRequest::new(amf_ue_ngap_id, id, cause);
        m.pdu_session_resource_list_cxt_rel_req = context.sessions.iter().map(|s| s.id).collect();
        self.send(stream, &m.into(), out);
    }

    /// UE CONTEXT RELEASE (§8.3.3).
    pub(super) fn release_command(
        &mut self,
        now: Instant,
        at: ReceivedMessage,
        m: &UeContextReleaseCommand,
        out: &mut Outbox<Output>,
    ) {
        let ids = match &m.ue_ngap_ids {
            UeNgapIds::UeNgapIdPair(pair) => Some((pair.amf_ue_ngap_id, pair.ran_ue_ngap_id)),
            UeNgapIds::AmfUeNgapId(amf) => {
                let named = |id: &u32| self.contexts.get(*id).is_some_and(|c| c.amf_ue_ngap_id == Some(*amf));
                self.contexts.ids().find(named).map(|id| (*amf, RanUeNgapId(id)))
            }
        };
        let Some((amf, ran)) = ids else {
            return violation(None, Violation::Unexpected("UeContextReleaseCommand"), out);
        };
        if self.context(at, amf, ran, out).is_none() {
            return;
        }
        let Some(context) = self.drop_context(now, ran, out) else { return };
        // A duplicate HANDOVER REQUEST has created two contexts.
        if let UeNgapIds::AmfUeNgapId(_) = m.ue_ngap_ids {
            let named = |id: &u32| self.contexts.get(*id).is_some_and(|c| c.amf_ue_ngap_id == Some(amf));
            for id in self.contexts.ids().filter(named).collect::<Vec<_>>() {
                self.drop_context(now, RanUeNgapId(id), out);
            }
        }
        let mut answer = UeContextReleaseComplete::new(amf, ran);
        answer.user_location_information = Some(self.config.location());
        answer.pdu_session_resource_list_cxt_rel_cpl =
            context.sessions.iter().map(|s| PduSessionResourceItemCxtRelCpl::new(s.id)).collect();
        self.send(context.stream, &answer.into(), out);
        event(Event::ContextReleased(context.ue, m.cause.clone()), out);
    }
}

/// Whether changes of the RRC state are to be reported (TS 38.413 §9.3.1.91): each of them, or only the next one, which
/// is treated alike here.
pub(super) fn reports(asked: Option<&RrcInactiveTransitionReportRequest>, before: bool) -> bool {
    match asked {
        None => before,
        Some(RrcInactiveTransitionReportRequest::CancelReport) => false,
        Some(_) => true,
    }
}

/// Whether there is a common integrity algorithm and a common ciphering algorithm: the gNB has all three, and accepts
/// null ciphering but not null integrity (TS 33.501 §5.3).
fn has_common_algorithms(capabilities: &UeSecurityCapabilities) -> bool {
    capabilities.nr_integrity_protection_algorithms & ALGORITHMS_1_TO_3 != 0
}
