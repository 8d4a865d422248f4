//! Protection of NAS messages: TS 24.501 §4.4, TS 33.501 §6.4 and, for K_gNB, §6.8.1.1.2.2.

use whimbrel_ids::Instant;
use whimbrel_nas::Envelope;
use whimbrel_nas::ie::{IdentityType, MmCause, NasMessageContainer, NgKsi};
use whimbrel_nas::mm::{Message, MessageType, MmStatus};
use whimbrel_nas::security::SecurityProtected;
use whimbrel_security::{Direction, KAmf, NasCount, NasSecurityContext, SecurityHeaderType, UnprotectError};

use super::handover::AsKeys;
use super::{Discard, Event, Output, Ue, Violation, event, violation};
use crate::outbox::Outbox;

/// A 5G NAS security context in use.
#[derive(Clone, Debug)]
pub(super) struct Security {
    pub(super) ng_ksi: NgKsi,
    pub(super) k_amf: KAmf,
    pub(super) nas: NasSecurityContext,
    pub(super) heard: Box<AcceptedDownlink>,
}

/// The last accepted downlink messages: sequence number and MAC. The network may repeat one, but never use its COUNT for another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AcceptedDownlink {
    last: [Option<(u8, [u8; 4])>; 8],
    next: usize,
}

impl AcceptedDownlink {
    fn take(&mut self, message: &SecurityProtected<'_>) {
        self.last[self.next] = Some((message.sequence_number, message.mac));
        self.next = (self.next + 1) % self.last.len();
    }

    /// Whether another message was accepted under this COUNT.
    fn contradicts(&self, message: &SecurityProtected<'_>) -> bool {
        let mut of_count = self.last.iter().flatten().filter(|(n, _)| *n == message.sequence_number);
        of_count.clone().next().is_some() && of_count.all(|(_, mac)| *mac != message.mac)
    }
}

impl Ue {
    /// Handles a NAS message from the network.
    pub(super) fn receive(&mut self, now: Instant, octets: &[u8], out: &mut Outbox<Output>) {
        match Envelope::parse(octets) {
            Ok(Envelope::PlainMm(plain)) => self.receive_plain(now, plain, out),
            Ok(Envelope::Protected(envelope)) => self.receive_protected(now, octets, &envelope, out),
            // A bare 5GSM message never comes over N1 (§9.1.1: it is carried by NAS TRANSPORT).
            Ok(Envelope::PlainSm(_)) | Err(_) => violation(Violation::Malformed(octets.get(2).copied()), out),
        }
    }

    fn receive_plain(&mut self, now: Instant, plain: &[u8], out: &mut Outbox<Output>) {
        let Some(message) = self.decode(plain, out) else { return };
        if self.secure || !may_be_plain(&message) {
            return violation(Violation::Unprotected(message.message_type()), out);
        }
        if !self.ignores(message.message_type()) {
            self.dispatch(now, message, out);
        }
    }

    fn receive_protected(
        &mut self,
        now: Instant,
        octets: &[u8],
        envelope: &SecurityProtected<'_>,
        out: &mut Outbox<Output>,
    ) {
        if envelope.header_type.is_new_context() {
            return self.security_mode_command(now, octets, envelope.payload, out);
        }
        let Some(security) = &mut self.security else {
            return event(Event::Discarded(Discard::NoContext), out);
        };
        // An ignored message counts as lost on the radio: its COUNT is not used up, so that the same octets may be
        // repeated.
        let before = self.faults.as_ref().is_some_and(|f| !f.ignore.is_empty()).then(|| security.nas.clone());
        let mut plain = Vec::new();
        match security.nas.unprotect(octets, &mut plain) {
            Ok(_) => {}
            Err(UnprotectError::Replayed) if security.heard.contradicts(envelope) => {
                return violation(Violation::NasCountReuse, out);
            }
            Err(UnprotectError::Replayed) => return event(Event::Discarded(Discard::Replayed), out),
            Err(UnprotectError::MacMismatch | UnprotectError::CountExhausted) => {
                return event(Event::Discarded(Discard::MacMismatch), out);
            }
            Err(UnprotectError::Decode(_)) => return violation(Violation::Malformed(None), out),
        }
        let Some(message) = self.decode(&plain, out) else { return };
        if self.ignores(message.message_type()) {
            if let (Some(before), Some(security)) = (before, &mut self.security) {
                security.nas = before;
            }
            return;
        }
        if let Some(security) = &mut self.security {
            security.heard.take(envelope);
        }
        self.secure = true;
        self.dispatch(now, message, out);
    }

    /// Decodes a plain message; errors are answered as in §7.
    fn decode(&mut self, plain: &[u8], out: &mut Outbox<Output>) -> Option<Message> {
        match Message::decode(plain) {
            Ok(message) => Some(message),
            Err(e) => {
                violation(Violation::Malformed(e.message_type), out);
                if let Some(cause) = e.mm_cause() {
                    self.send(MmStatus::new(cause), out);
                }
                None
            }
        }
    }

    /// Whether a configured fault drops this message.
    pub(super) fn ignores(&mut self, message_type: MessageType) -> bool {
        let ignore = self.faults.iter_mut().flat_map(|f| &mut f.ignore);
        let Some((_, left)) = ignore.into_iter().find(|(t, n)| *t == message_type && *n > 0) else {
            return false;
        };
        *left -= 1;
        true
    }

    fn dispatch(&mut self, now: Instant, message: Message, out: &mut Outbox<Output>) {
        match message {
            Message::AuthenticationRequest(m) => self.authentication_request(now, &m, out),
            Message::AuthenticationReject(_) => self.authentication_reject(now, out),
            Message::AuthenticationResult(m) => self.authentication_result(&m),
            Message::IdentityRequest(m) => self.identity_request(now, &m, out),
            Message::RegistrationAccept(m) => self.registration_accept(now, m, out),
            Message::RegistrationReject(m) => self.registration_reject(now, &m, out),
            Message::ServiceAccept(m) => self.service_accept(&m, out),
            Message::ServiceReject(m) => self.service_reject(now, &m, out),
            Message::ConfigurationUpdateCommand(m) => self.configuration_update(now, m, out),
            Message::DeregistrationAcceptUeOriginating(_) => self.deregistration_accept(now, out),
            Message::DeregistrationRequestUeTerminated(m) => self.deregistration_request(now, &m, out),
            Message::DlNasTransport(m) => self.downlink_transport(now, m, out),
            Message::MmStatus(m) => event(Event::Status(m.cause), out),
            Message::Notification(_) => {
                self.send(whimbrel_nas::mm::NotificationResponse::new(), out);
            }
            other => {
                violation(Violation::Unexpected(other.message_type()), out);
                self.send(MmStatus::new(MmCause::MessageTypeNotCompatible), out);
            }
        }
    }

    /// Protects and ciphers a message under the current context.
    pub(super) fn protect(&mut self, plain: Vec<u8>) -> Vec<u8> {
        self.protect_as(SecurityHeaderType::IntegrityProtectedAndCiphered, &plain)
            .map_or(plain, |(nas, _)| nas)
    }

    /// The protected message and its COUNT; `None` without a context, or when its COUNTs are used up.
    pub(super) fn protect_as(
        &mut self,
        header: SecurityHeaderType,
        plain: &[u8],
    ) -> Option<(Vec<u8>, NasCount)> {
        let security = self.security.as_mut()?;
        let mut altered = Vec::new();
        let plain = match self.faults.as_mut().and_then(|f| f.alter.take()) {
            Some(alter) => {
                altered.extend_from_slice(plain);
                alter.0(&mut altered);
                &altered
            }
            None => plain,
        };
        let mut nas = Vec::new();
        let count = security.nas.protect(header, plain, &mut nas).ok()?;
        if let Some(faults) = self.faults.as_mut().filter(|f| f.wrong_mac > 0) {
            faults.wrong_mac -= 1;
            if let Some(octet) = nas.get_mut(2) {
                *octet ^= 0xff;
            }
        }
        Some((nas, count))
    }

    /// The complete initial message as a NAS message container, ciphered under the COUNT of the outer message (§4.4.6).
    pub(super) fn container(&mut self, whole: &[u8]) -> Option<NasMessageContainer> {
        let security = self.security.as_mut()?;
        let count = security.nas.next_sent()?;
        let mut value = whole.to_vec();
        security.nas.apply_to_container(Direction::Uplink, count, &mut value);
        NasMessageContainer::new(value)
    }

    /// AS security starts: checks the gNB's key against the UE's.
    pub(super) fn as_security(&mut self, k_gnb: &[u8; 32], out: &mut Outbox<Output>) {
        let (Some(security), Some(count)) = (&self.security, self.k_gnb_count) else {
            return violation(Violation::AsSecurityTooEarly, out);
        };
        let own = security.k_amf.k_gnb(count);
        if own.octets() != k_gnb {
            violation(Violation::KGnbDiffers, out);
        }
        self.as_keys = Some(Box::new(AsKeys::initial(&security.k_amf, own)));
    }
}

/// The messages that a UE accepts without protection before security is established (§4.4.4.2).
fn may_be_plain(message: &Message) -> bool {
    match message {
        Message::IdentityRequest(m) => m.identity_type == IdentityType::Suci,
        Message::AuthenticationRequest(_)
        | Message::AuthenticationResult(_)
        | Message::AuthenticationReject(_)
        | Message::RegistrationReject(_)
        | Message::DeregistrationAcceptUeOriginating(_)
        | Message::ServiceReject(_) => true,
        _ => false,
    }
}
