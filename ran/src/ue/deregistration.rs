//! Deregistration from either side: TS 24.501 §5.5.2.

use whimbrel_ids::Instant;
use whimbrel_nas::ie::{Accesses, DeregistrationType, MmCause, MobileIdentity, NgKsi, RegistrationKind};
use whimbrel_nas::mm::{
    DeregistrationAcceptUeTerminated, DeregistrationRequestUeOriginating, DeregistrationRequestUeTerminated,
    Message, MessageType,
};
use whimbrel_ngap::RrcEstablishmentCause;
use whimbrel_security::SecurityHeaderType;

use super::{AtOnce, Event, Initial, MmState, Output, Timer, Ue, Violation, event, violation};
use crate::outbox::Outbox;

/// How often DEREGISTRATION REQUEST is sent: on the fifth expiry of T3521 the UE gives up (§5.5.2.2.6 d).
const ATTEMPTS_MAX: u8 = 5;

impl Ue {
    /// Begins deregistration (§5.5.2.2.1).
    pub(super) fn deregister(&mut self, now: Instant, switch_off: bool, out: &mut Outbox<Output>) {
        self.report_usage(now, true, out);
        self.timers.stop_procedures();
        self.deregistration_attempts = 0;
        let accesses = Accesses::ThreeGpp;
        let kind = DeregistrationType { switch_off, re_registration_required: false, accesses };
        let ng_ksi = self.security.as_ref().map_or(NgKsi::NO_KEY, |s| s.ng_ksi);
        let identity = match self.guti {
            Some(guti) => MobileIdentity::Guti(guti),
            None => self.suci_identity(now),
        };
        let message =
            Message::from(DeregistrationRequestUeOriginating::new(kind, ng_ksi, identity)).to_octets();
        let kind = RegistrationKind::Initial;
        self.initial = Some(Initial { since: now, message, cleartext_only: false, kind });
        self.state = MmState::DeregisteredInitiated;
        self.send_deregistration(now, out);
        if switch_off {
            self.deregistered(None, out);
            self.timers.start(Timer::T3540, now);
        }
    }

    fn send_deregistration(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let Some(initial) = &self.initial else { return };
        let plain = initial.message.clone();
        let header = if self.connected && self.secure {
            SecurityHeaderType::IntegrityProtectedAndCiphered
        } else {
            SecurityHeaderType::IntegrityProtected
        };
        let nas = self.protect_as(header, &plain).map_or(plain, |(nas, _)| nas);
        self.send_initial(nas, RrcEstablishmentCause::MoSignalling, out);
        self.timers.start(Timer::T3521, now);
    }

    /// T3521 has expired (§5.5.2.2.6 d).
    pub(super) fn deregistration_timed_out(&mut self, now: Instant, out: &mut Outbox<Output>) {
        self.deregistration_attempts += 1;
        if self.deregistration_attempts < ATTEMPTS_MAX {
            return self.send_deregistration(now, out);
        }
        self.deregistered(None, out);
        self.leave(now, out);
    }

    /// DEREGISTRATION ACCEPT (§5.5.2.2.2).
    pub(super) fn deregistration_accept(&mut self, now: Instant, out: &mut Outbox<Output>) {
        if self.state != MmState::DeregisteredInitiated {
            return violation(Violation::Unexpected(MessageType::DeregistrationAcceptUeOriginating), out);
        }
        self.deregistered(None, out);
        if self.faults().at_once == Some(AtOnce::WithoutKeys) {
            (self.security, self.secure) = (None, false);
        }
        self.timers.start(Timer::T3540, now);
    }

    /// DEREGISTRATION REQUEST of the network (§5.5.2.3.2).
    pub(super) fn deregistration_request(
        &mut self,
        now: Instant,
        m: &DeregistrationRequestUeTerminated,
        out: &mut Outbox<Output>,
    ) {
        self.send(DeregistrationAcceptUeTerminated::new(), out);
        self.deregistered(m.cause, out);
        match m.cause {
            Some(MmCause::IllegalUe | MmCause::IllegalMe | MmCause::FiveGsServicesNotAllowed) => {
                self.forget_registration();
            }
            _ if m.deregistration_type.re_registration_required => self.register_again = true,
            _ => {}
        }
        self.timers.start(Timer::T3540, now);
    }

    /// The UE is not registered any more; it keeps its 5G-GUTI and keys for the next time.
    pub(super) fn deregistered(&mut self, cause: Option<MmCause>, out: &mut Outbox<Output>) {
        let asked = self.state == MmState::DeregisteredInitiated;
        let since = self.initial.as_ref().filter(|_| asked).map(|i| i.since);
        self.timers.stop_procedures();
        self.pending.retain(|c| matches!(c, super::UeCommand::Register));
        self.drop_sessions(out);
        self.state = MmState::Deregistered;
        event(Event::Deregistered { since, cause }, out);
    }
}
