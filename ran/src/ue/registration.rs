//! Registration: TS 24.501 §5.5.1.

use whimbrel_ids::{Instant, SNssai, Tai};
use whimbrel_nas::ie::{
    MmCause, MobileIdentity, NgKsi, Nssai, PduSessionSet, RegistrationKind, RegistrationType,
};
use whimbrel_nas::mm::{
    Message, RegistrationAccept, RegistrationComplete, RegistrationReject, RegistrationRequest,
};
use whimbrel_ngap::RrcEstablishmentCause;
use whimbrel_security::SecurityHeaderType;

use super::{
    Event, Initial, MeasuredProcedure, MmState, Output, Reason, Timer, Ue, UeCommand, Violation, event,
    not_possible, violation,
};
use crate::outbox::Outbox;

/// Registration attempts before the long pause of T3502 (§5.5.1.2.7).
const ATTEMPTS_MAX: u8 = 5;

impl Ue {
    /// Begins a registration (§5.5.1.2.2, §5.5.1.3.2).
    pub(super) fn register(&mut self, now: Instant, kind: RegistrationKind, out: &mut Outbox<Output>) {
        if self.timers.runs(Timer::T3346) {
            return not_possible(now, MeasuredProcedure::Registration, out);
        }
        self.timers.stop(Timer::T3502);
        self.timers.stop(Timer::T3511);
        self.timers.stop(Timer::T3512);
        self.timers.stop(Timer::T3540);
        self.forget_sap();
        if kind == RegistrationKind::Initial {
            self.begin_unknown();
        }
        let whole = self.registration_request(now, kind);
        let outer = cleartext(&whole);
        let message = Message::from(whole.clone()).to_octets();
        let cleartext_only = self.send_registration(whole, outer, &message, out);
        // A repetition keeps the time of the first attempt.
        let since = self.initial.take().filter(|_| self.registration_attempts > 0).map_or(now, |i| i.since);
        self.initial = Some(Initial { since, message, cleartext_only, kind });
        self.state = MmState::RegisteredInitiated;
        self.timers.start(Timer::T3510, now);
    }

    fn registration_request(&mut self, now: Instant, kind: RegistrationKind) -> RegistrationRequest {
        let identity = match self.guti {
            _ if self.faults().no_usim => MobileIdentity::Pei(self.config.pei),
            Some(guti) => MobileIdentity::Guti(guti),
            None => self.suci_identity(now),
        };
        let profile = self.config.profile.clone();
        let ng_ksi = self.security.as_ref().map_or(NgKsi::NO_KEY, |s| s.ng_ksi);
        let follow_on_request = profile.follow_on_request || !self.pending.is_empty();
        let mut m = RegistrationRequest::new(RegistrationType { follow_on_request, kind }, ng_ksi, identity);
        m.last_visited_registered_tai = self.last_visited_tai;
        if kind != RegistrationKind::PeriodicUpdating {
            m.mm_capability = Some(profile.mm_capability.clone());
            m.ue_security_capability = Some(self.faults().bid_down.unwrap_or(profile.security_capability));
            if !profile.requested_nssai.is_empty() {
                m.requested_nssai = Some(profile.requested_nssai.iter().copied().collect::<Nssai>());
            }
        }
        if let Some(more) = &self.faults().ask_for {
            more.ask(&mut m);
        }
        if !matches!(kind, RegistrationKind::Initial | RegistrationKind::Emergency) {
            m.pdu_session_status = Some(self.session_set());
            m.uplink_data_status = Some(self.inactive_sessions()).filter(|s| !s.is_empty());
        }
        m
    }

    /// Sends the request as in §4.4.6; returns whether it was sent unprotected with only its cleartext IEs.
    fn send_registration(
        &mut self,
        whole: RegistrationRequest,
        mut outer: RegistrationRequest,
        message: &[u8],
        out: &mut Outbox<Output>,
    ) -> bool {
        let emergency = whole.registration_type.kind == RegistrationKind::Emergency;
        let cause =
            if emergency { RrcEstablishmentCause::Emergency } else { RrcEstablishmentCause::MoSignalling };
        if self.connected && self.secure {
            let nas = self.protect(message.to_vec());
            self.send_initial(nas, cause, out);
            return false;
        }
        let has_more = whole != outer;
        if has_more {
            outer.nas_message_container = self.container(message);
        }
        let plain = Message::from(outer).to_octets();
        match self.protect_as(SecurityHeaderType::IntegrityProtected, &plain) {
            Some((nas, count)) => {
                self.k_gnb_count = Some(count);
                self.send_initial(nas, cause, out);
                false
            }
            None => {
                self.send_initial(plain, cause, out);
                has_more
            }
        }
    }

    /// REGISTRATION ACCEPT (§5.5.1.2.4, §5.5.1.3.4).
    pub(super) fn registration_accept(
        &mut self,
        now: Instant,
        m: RegistrationAccept,
        out: &mut Outbox<Output>,
    ) {
        let awaited = self.state == MmState::RegisteredInitiated;
        if !awaited && self.state != MmState::Registered {
            return violation(Violation::Unexpected(whimbrel_nas::mm::MessageType::RegistrationAccept), out);
        }
        self.judge_accept(&m, out);
        let mut acknowledge = m.configured_nssai.is_some();
        acknowledge |= m.network_slicing_indication.is_some_and(|i| i.subscription_changed);
        if let Some(MobileIdentity::Guti(guti)) = m.guti {
            self.guti = Some(guti);
            self.fresh_suci = None;
            self.timers.stop(Timer::T3519);
            acknowledge = true;
        }
        if let Some(tai_list) = m.tai_list {
            self.registration_area = tai_list;
        }
        self.last_visited_tai = self.cell;
        if let Some(allowed) = m.allowed_nssai {
            self.allowed_nssai = allowed.0.iter().map(|s| s.s_nssai).collect();
        }
        self.rejected_nssai = m.rejected_nssai.map(|r| r.0.into()).unwrap_or_default();
        if let Some(t3512) = m.t3512 {
            // Deactivated: never expires.
            self.t3512 = t3512.duration().unwrap_or(core::time::Duration::MAX);
        }
        self.priority = m.network_feature_support.as_ref().and_then(|f| match (f.mps(), f.mcs()) {
            (true, _) => Some(RrcEstablishmentCause::MpsPriorityAccess),
            (false, true) => Some(RrcEstablishmentCause::McsPriorityAccess),
            (false, false) => None,
        });
        self.strictly_periodic = m.mico_indication.is_some_and(|m| m.strictly_periodic);
        if self.strictly_periodic {
            self.timers.start_for(Timer::T3512, now, self.t3512);
        }
        self.t3502 = m.t3502.and_then(|t| t.duration()).unwrap_or(Timer::T3502.default_value());
        if let Some(status) = m.pdu_session_status {
            self.keep_sessions(status, out);
        }
        self.timers.stop(Timer::T3510);
        self.registration_attempts = 0;
        self.state = MmState::Registered;
        if acknowledge {
            self.send(RegistrationComplete::new(), out);
        }
        if let Some(initial) = self.initial.as_ref().filter(|_| awaited) {
            event(Event::Registered { since: initial.since, kind: initial.kind }, out);
        }
    }

    /// Checks an accept.
    fn judge_accept(&self, m: &RegistrationAccept, out: &mut Outbox<Output>) {
        let asked = &self.config.profile.requested_nssai;
        let initial = self.initial.as_ref().is_some_and(|i| i.kind == RegistrationKind::Initial);
        let allowed =
            |s: &SNssai| m.allowed_nssai.as_ref().is_some_and(|a| a.0.iter().any(|x| x.s_nssai == *s));
        // The subscribed defaults may replace the requested slices if those are listed as rejected (TS 23.501 §5.15.5.2.1).
        let others_rejected = m.pending_nssai.is_some() || m.rejected_nssai.is_some();
        let none = m.allowed_nssai.as_ref().is_none_or(|a| a.0.is_empty());
        let others = !asked.is_empty() && !asked.iter().any(allowed);
        if initial && others && (none || !others_rejected) {
            violation(Violation::AllowedNssai, out);
        }
        if let (Some(cell), Some(area)) = (self.cell, &m.tai_list)
            && !area.contains(cell)
        {
            violation(Violation::RegistrationArea, out);
        }
    }

    /// REGISTRATION REJECT (§5.5.1.2.5, §5.5.1.3.5).
    pub(super) fn registration_reject(
        &mut self,
        now: Instant,
        m: &RegistrationReject,
        out: &mut Outbox<Output>,
    ) {
        if self.state != MmState::RegisteredInitiated {
            return violation(Violation::Unexpected(whimbrel_nas::mm::MessageType::RegistrationReject), out);
        }
        // After the UE's own refusal, its reason is more precise than the network's cause.
        let reason = match self.refused_security_mode.take() {
            Some(own) => Reason::SecurityModeRefused(own),
            None => Reason::Mm(m.cause),
        };
        self.timers.stop(Timer::T3510);
        self.timers.stop(Timer::T3520);
        self.sap_refused(m.eap_message.as_ref(), out);
        self.veil_refused(m.eap_message.as_ref());
        let begins = |k| matches!(k, RegistrationKind::Initial | RegistrationKind::Emergency);
        let initial = self.initial.as_ref().is_none_or(|i| begins(i.kind));
        let retry_after = match m.cause {
            MmCause::UeIdentityCannotBeDerived | MmCause::ImplicitlyDeregistered if !initial => {
                self.forget_registration();
                // The next attempt is a new one, with the SUCI, as soon as this connection is released.
                self.register_again = true;
                Some(core::time::Duration::ZERO)
            }
            MmCause::Congestion => {
                let wait = m.t3346.and_then(|t| t.duration()).filter(|t| !t.is_zero());
                wait.inspect(|wait| self.timers.start_for(Timer::T3346, now, *wait))
            }
            // It stays registered, and tries elsewhere (§5.5.1.3.5).
            MmCause::RoamingNotAllowedInTrackingArea | MmCause::NoSuitableCellsInTrackingArea if !initial => {
                None
            }
            MmCause::IllegalUe
            | MmCause::IllegalMe
            | MmCause::FiveGsServicesNotAllowed
            | MmCause::PlmnNotAllowed
            | MmCause::TrackingAreaNotAllowed
            | MmCause::RoamingNotAllowedInTrackingArea
            | MmCause::NoSuitableCellsInTrackingArea
            | MmCause::N1ModeNotAllowed
            | MmCause::NoNetworkSlicesAvailable
            | MmCause::ServingNetworkNotAuthorized => {
                self.forget_registration();
                None
            }
            _ => Some(self.pause(now)),
        };
        self.registration_ended(now, reason, retry_after, out);
        self.timers.start(Timer::T3540, now);
        self.register_unless_it_waits();
    }

    /// The registration failed without an answer of the network (§5.5.1.2.7 a to c).
    pub(super) fn registration_failed(&mut self, now: Instant, reason: Reason, out: &mut Outbox<Output>) {
        self.timers.stop(Timer::T3510);
        let retry_after = self.pause(now);
        self.registration_ended(now, reason, Some(retry_after), out);
        self.leave(now, out);
    }

    /// Starts T3511, or T3502 after the fifth attempt; returns how long.
    fn pause(&mut self, now: Instant) -> core::time::Duration {
        self.registration_attempts += 1;
        let (timer, value) = if self.registration_attempts < ATTEMPTS_MAX {
            (Timer::T3511, Timer::T3511.default_value())
        } else {
            self.registration_attempts = 0;
            (Timer::T3502, self.t3502)
        };
        self.timers.start_for(timer, now, value);
        value
    }

    fn registration_ended(
        &mut self,
        now: Instant,
        reason: Reason,
        retry_after: Option<core::time::Duration>,
        out: &mut Outbox<Output>,
    ) {
        let (since, kind) =
            self.initial.as_ref().map_or((now, RegistrationKind::Initial), |i| (i.since, i.kind));
        let was_registered = kind != RegistrationKind::Initial && self.guti.is_some();
        self.state = if was_registered { MmState::Registered } else { MmState::Deregistered };
        if self.state == MmState::Deregistered {
            self.fail_pending(now, out);
            self.drop_sessions(out);
        }
        let procedure = MeasuredProcedure::Registration;
        event(Event::Refused { since, procedure, session: None, reason, retry_after }, out);
    }

    /// The timer has expired: repeats the registration.
    pub(super) fn registration_due(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let kind = self.initial.as_ref().map_or(RegistrationKind::Initial, |i| i.kind);
        match self.state {
            MmState::Deregistered => self.register(now, RegistrationKind::Initial, out),
            MmState::Registered if kind != RegistrationKind::Initial => self.register(now, kind, out),
            _ => {}
        }
    }

    /// Deletes all data of a registration, with the keys.
    pub(super) fn forget_registration(&mut self) {
        self.guti = None;
        self.security = None;
        self.secure = false;
        self.partial = None;
        self.k_gnb_count = None;
        self.registration_area = Default::default();
        self.last_visited_tai = None;
        self.allowed_nssai.clear();
        self.registration_attempts = 0;
    }

    /// The UE camps on a cell; it registers if that is outside its registration area (§5.5.1.3.2 a).
    pub(super) fn camp(&mut self, now: Instant, tai: Tai, out: &mut Outbox<Output>) {
        self.cell = Some(tai);
        if self.state == MmState::Registered && !self.registration_area.contains(tai) {
            self.register(now, RegistrationKind::MobilityUpdating, out);
        }
    }

    /// Fails the commands that wait for a failed registration.
    pub(super) fn fail_pending(&mut self, now: Instant, out: &mut Outbox<Output>) {
        for command in core::mem::take(&mut self.pending) {
            match command {
                UeCommand::EstablishSession(_) | UeCommand::EstablishEmergencySession => {
                    not_possible(now, MeasuredProcedure::SessionEstablishment, out)
                }
                UeCommand::ModifySession(..) => {
                    not_possible(now, MeasuredProcedure::SessionModification, out)
                }
                UeCommand::ReleaseSession(_) => not_possible(now, MeasuredProcedure::SessionRelease, out),
                UeCommand::ServiceRequest => not_possible(now, MeasuredProcedure::ServiceRequest, out),
                UeCommand::Deregister { .. } => {
                    event(Event::Deregistered { since: Some(now), cause: None }, out)
                }
                UeCommand::Register
                | UeCommand::RegisterForEmergency
                | UeCommand::PeriodicRegistration
                | UeCommand::Say(_) => {}
            }
        }
    }

    /// PDU session status.
    pub(super) fn session_set(&self) -> PduSessionSet {
        self.sessions().map(|s| s.id).collect()
    }
}

/// The cleartext IEs (§4.4.6).
fn cleartext(whole: &RegistrationRequest) -> RegistrationRequest {
    let mut m =
        RegistrationRequest::new(whole.registration_type, whole.ng_ksi, whole.mobile_identity.clone());
    m.ue_security_capability = whole.ue_security_capability;
    m.additional_guti.clone_from(&whole.additional_guti);
    m.ue_status.clone_from(&whole.ue_status);
    m.eps_nas_message_container.clone_from(&whole.eps_nas_message_container);
    m
}
