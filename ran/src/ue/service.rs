//! Service request: TS 24.501 §5.6.1; answer to paging: §5.6.2.

use whimbrel_ids::Instant;
use whimbrel_nas::ie::{MmCause, MobileIdentity, NgKsi, RegistrationKind, ServiceType};
use whimbrel_nas::mm::{Message, MessageType, ServiceAccept, ServiceReject, ServiceRequest};
use whimbrel_ngap::RrcEstablishmentCause;
use whimbrel_security::SecurityHeaderType;

use super::{
    Event, Initial, MeasuredProcedure, MmState, Output, Reason, Timer, Ue, UeCommand, Violation, event,
    not_possible, violation,
};
use crate::outbox::Outbox;

/// Service request attempts before the pause of T3525 (§5.6.1.7).
const ATTEMPTS_MAX: u8 = 5;

impl Ue {
    /// The UE is paged (§5.6.2.2.1).
    pub(super) fn paged(&mut self, now: Instant, out: &mut Outbox<Output>) {
        if self.state == MmState::Registered && !self.connected {
            event(Event::Paged, out);
            // §5.3.9: paging ends the back-off.
            self.timers.stop(Timer::T3346);
            self.request_service(now, ServiceType::MobileTerminatedServices, out);
        }
    }

    /// SERVICE REQUEST (§5.6.1.2). For data it requests the user plane of all sessions.
    pub(super) fn request_service(
        &mut self,
        now: Instant,
        service_type: ServiceType,
        out: &mut Outbox<Output>,
    ) {
        let inactive = self.inactive_sessions();
        let idle_wish = service_type == ServiceType::Data && self.connected && inactive.is_empty();
        if idle_wish {
            return event(Event::ServiceAccepted { since: now }, out);
        }
        let barred = self.timers.runs(Timer::T3346) || self.timers.runs(Timer::T3525);
        let (Some(s_tmsi), false) = (self.s_tmsi(), barred || self.security.is_none()) else {
            self.fail_waiting_for_service(now, out);
            return not_possible(now, MeasuredProcedure::ServiceRequest, out);
        };
        if !self.strictly_periodic {
            self.timers.stop(Timer::T3512);
        }
        let ng_ksi = self.security.as_ref().map_or(NgKsi::NO_KEY, |s| s.ng_ksi);
        let cleartext = ServiceRequest::new(ng_ksi, service_type, MobileIdentity::STmsi(s_tmsi));
        let mut whole = cleartext.clone();
        whole.pdu_session_status = Some(self.session_set());
        whole.uplink_data_status =
            Some(inactive).filter(|w| service_type == ServiceType::Data && !w.is_empty());
        let message = Message::from(whole).to_octets();
        let Some(nas) = self.protect_service_request(cleartext, &message) else {
            return not_possible(now, MeasuredProcedure::ServiceRequest, out);
        };
        let cause = match service_type {
            ServiceType::Data => RrcEstablishmentCause::MoData,
            ServiceType::MobileTerminatedServices => RrcEstablishmentCause::MtAccess,
            _ => RrcEstablishmentCause::MoSignalling,
        };
        self.send_initial(nas, cause, out);
        let since = self.initial.take().filter(|_| self.service_attempts > 0).map_or(now, |i| i.since);
        let kind = RegistrationKind::MobilityUpdating;
        self.initial = Some(Initial { since, message, cleartext_only: false, kind });
        self.state = MmState::ServiceRequestInitiated;
        self.timers.start(Timer::T3517, now);
    }

    /// Complete and ciphered on a secured connection; else cleartext IEs with the complete message in a container
    /// (§4.4.6).
    fn protect_service_request(&mut self, mut cleartext: ServiceRequest, whole: &[u8]) -> Option<Vec<u8>> {
        if self.connected && self.secure {
            return self
                .protect_as(SecurityHeaderType::IntegrityProtectedAndCiphered, whole)
                .map(|(nas, _)| nas);
        }
        cleartext.nas_message_container = self.container(whole);
        let plain = Message::from(cleartext).to_octets();
        let (nas, count) = self.protect_as(SecurityHeaderType::IntegrityProtected, &plain)?;
        self.k_gnb_count = Some(count);
        Some(nas)
    }

    /// SERVICE ACCEPT (§5.6.1.4).
    pub(super) fn service_accept(&mut self, m: &ServiceAccept, out: &mut Outbox<Output>) {
        if self.state != MmState::ServiceRequestInitiated {
            return violation(Violation::Unexpected(MessageType::ServiceAccept), out);
        }
        self.timers.stop(Timer::T3517);
        self.service_attempts = 0;
        self.state = MmState::Registered;
        if let Some(status) = m.pdu_session_status {
            self.keep_sessions(status, out);
        }
        if let Some(initial) = &self.initial {
            event(Event::ServiceAccepted { since: initial.since }, out);
        }
    }

    /// SERVICE REJECT (§5.6.1.5).
    pub(super) fn service_reject(&mut self, now: Instant, m: &ServiceReject, out: &mut Outbox<Output>) {
        if self.state != MmState::ServiceRequestInitiated {
            return violation(Violation::Unexpected(MessageType::ServiceReject), out);
        }
        self.timers.stop(Timer::T3517);
        self.service_attempts = 0;
        if let Some(status) = m.pdu_session_status {
            self.keep_sessions(status, out);
        }
        self.state = MmState::Registered;
        match m.cause {
            MmCause::UeIdentityCannotBeDerived | MmCause::ImplicitlyDeregistered => {
                self.drop_sessions(out);
                self.forget_registration();
                self.state = MmState::Deregistered;
                self.register_again = true;
            }
            // A mobility update returns the areas where it may have service.
            MmCause::RestrictedServiceArea => self.register_again = self.faults().at_once.is_some(),
            MmCause::IllegalUe | MmCause::IllegalMe | MmCause::FiveGsServicesNotAllowed => {
                self.drop_sessions(out);
                self.forget_registration();
                self.state = MmState::Deregistered;
            }
            MmCause::Congestion => {
                if let Some(wait) = m.t3346.and_then(|t| t.duration()).filter(|t| !t.is_zero()) {
                    self.timers.start_for(Timer::T3346, now, wait);
                }
            }
            _ => {}
        }
        self.fail_waiting_for_service(now, out);
        self.service_refused(now, Reason::Mm(m.cause), out);
        self.timers.start(Timer::T3540, now);
        self.register_unless_it_waits();
    }

    /// T3517 has expired (§5.6.1.7 a).
    pub(super) fn service_timed_out(&mut self, now: Instant, out: &mut Outbox<Output>) {
        self.service_failed(now, Reason::TimedOut, out);
        self.leave(now, out);
    }

    /// The request failed; it is repeated up to a limit.
    pub(super) fn service_failed(&mut self, now: Instant, reason: Reason, out: &mut Outbox<Output>) {
        self.timers.stop(Timer::T3517);
        self.state = MmState::Registered;
        self.service_attempts += 1;
        if self.service_attempts >= ATTEMPTS_MAX {
            self.timers.start(Timer::T3525, now);
            self.fail_waiting_for_service(now, out);
        }
        self.service_refused(now, reason, out);
    }

    fn service_refused(&mut self, now: Instant, reason: Reason, out: &mut Outbox<Output>) {
        let since = self.initial.as_ref().map_or(now, |i| i.since);
        let procedure = MeasuredProcedure::ServiceRequest;
        event(Event::Refused { since, procedure, session: None, reason, retry_after: None }, out);
    }

    /// Fails the commands that wait for a connection.
    fn fail_waiting_for_service(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let waits = |c: &UeCommand| {
            matches!(
                c,
                UeCommand::EstablishSession(_) | UeCommand::ModifySession(..) | UeCommand::ReleaseSession(_)
            )
        };
        while self.pending.front().is_some_and(waits) {
            match self.pending.pop_front() {
                Some(UeCommand::ModifySession(..)) => {
                    not_possible(now, MeasuredProcedure::SessionModification, out)
                }
                Some(UeCommand::ReleaseSession(_)) => {
                    not_possible(now, MeasuredProcedure::SessionRelease, out)
                }
                _ => not_possible(now, MeasuredProcedure::SessionEstablishment, out),
            }
        }
    }
}
