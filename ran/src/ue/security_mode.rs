//! Security mode control: TS 24.501 §5.4.2.

use whimbrel_ids::Instant;
use whimbrel_nas::ie::{MmCause, MobileIdentity, NasMessageContainer, SecurityAlgorithms};
use whimbrel_nas::mm::{Message, SecurityModeCommand, SecurityModeComplete, SecurityModeReject};
use whimbrel_security::{
    Bearer, CipheringAlgorithm, IntegrityAlgorithm, KAmf, NasCounts, NasSecurityContext, NasSide,
    SecurityHeaderType, UnprotectError,
};

use super::authentication::Partial;
use super::protection::Security;
use super::{Discard, Event, Output, Timer, Ue, Violation, event, violation};
use crate::outbox::Outbox;

impl Ue {
    /// SECURITY MODE COMMAND, the only message under a context not yet in use (§5.4.2.3). It is not ciphered.
    pub(super) fn security_mode_command(
        &mut self,
        now: Instant,
        octets: &[u8],
        plain: &[u8],
        out: &mut Outbox<Output>,
    ) {
        let m = match Message::decode(plain) {
            Ok(Message::SecurityModeCommand(m)) => m,
            Ok(other) => return violation(Violation::Unexpected(other.message_type()), out),
            Err(e) => return violation(Violation::Malformed(e.message_type), out),
        };
        if self.ignores(whimbrel_nas::mm::MessageType::SecurityModeCommand) {
            return;
        }
        let tentative = self.tentative(now, &m);
        let partial = tentative.as_ref().map(|(_, partial)| partial).or(self.partial.as_ref());
        let Some(mut security) = self.candidate(&m, partial) else {
            return event(Event::Discarded(Discard::NoContext), out);
        };
        match security.nas.unprotect(octets, &mut Vec::new()) {
            Ok(_) => {}
            Err(UnprotectError::Replayed) => return event(Event::Discarded(Discard::Replayed), out),
            Err(_) => return self.refuse_security_mode(MmCause::SecurityModeRejectedUnspecified, out),
        }
        if m.replayed_ue_security_capability != self.config.profile.security_capability
            || !self.supports(m.selected_algorithms)
        {
            return self.refuse_security_mode(MmCause::UeSecurityCapabilitiesMismatch, out);
        }
        if let Some(eap) = &m.eap_message {
            self.eap_ended(m.ng_ksi, eap);
        }
        if self.partial.as_ref().is_some_and(|p| p.ng_ksi == m.ng_ksi && p.awaits_eap_success) {
            return self.refuse_security_mode(MmCause::SecurityModeRejectedUnspecified, out);
        }
        if let Some((session, _)) = tentative {
            self.commit_sap(session);
        }
        if self.partial.as_ref().is_some_and(|p| p.ng_ksi == m.ng_ksi) {
            self.commit_veil();
        }
        self.security = Some(security);
        self.partial = None;
        self.secure = true;
        self.timers.stop(Timer::T3516);
        self.timers.stop(Timer::T3520);
        self.refused_challenge = None;
        self.complete_security_mode(&m, out);
    }

    /// The context that the command would take into use: that of the new key if its ngKSI is named, else the one in use
    /// with other algorithms and its COUNTs (§4.4.3.1).
    fn candidate(&self, m: &SecurityModeCommand, partial: Option<&Partial>) -> Option<Security> {
        let context = |k_amf: &KAmf, counts: NasCounts| {
            let ciphering = CipheringAlgorithm::from_identity(m.selected_algorithms.ciphering.value())?;
            let integrity = IntegrityAlgorithm::from_identity(m.selected_algorithms.integrity.value())?;
            let nas =
                NasSecurityContext::new(NasSide::Ue, Bearer::NAS_3GPP, k_amf, ciphering, integrity, counts);
            Some(Security { ng_ksi: m.ng_ksi, k_amf: k_amf.clone(), nas, heard: Box::default() })
        };
        if let Some(partial) = partial.filter(|p| p.ng_ksi == m.ng_ksi) {
            return context(&partial.k_amf, NasCounts::default());
        }
        if self.faults().no_usim && m.selected_algorithms.integrity.value() == 0 {
            return context(&KAmf::new([0; 32]), NasCounts::default());
        }
        let current = self.security.as_ref().filter(|s| s.ng_ksi == m.ng_ksi)?;
        context(&current.k_amf, current.nas.counts())
    }

    /// Whether the UE supports both algorithms; it does not accept null integrity (TS 33.501 §5.2.3).
    fn supports(&self, selected: SecurityAlgorithms) -> bool {
        let own = &self.config.profile.security_capability;
        let (ciphering, integrity) = (selected.ciphering.value(), selected.integrity.value());
        // Without a USIM there are no keys (TS 33.501 §10.2.2.2).
        if self.faults().no_usim {
            return (ciphering, integrity) == (0, 0);
        }
        integrity != 0 && own.supports_nea(ciphering) && own.supports_nia(integrity)
    }

    /// SECURITY MODE COMPLETE, with the complete initial message if the network requests it (§5.4.2.3).
    fn complete_security_mode(&mut self, m: &SecurityModeCommand, out: &mut Outbox<Output>) {
        let mut answer = SecurityModeComplete::new();
        if m.imeisv_request.is_some_and(|r| r.requested) && !self.hides_equipment() {
            answer.imeisv = Some(MobileIdentity::Pei(self.config.pei));
        }
        let again = m.additional_security.as_ref().is_some_and(|a| a.retransmission_requested());
        let whole = self.initial.as_ref().filter(|i| again || i.cleartext_only);
        answer.nas_message_container = whole.and_then(|i| NasMessageContainer::new(i.message.clone()));
        let plain = Message::from(answer).to_octets();
        let header = SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext;
        if let Some((nas, count)) = self.protect_as(header, &plain) {
            self.k_gnb_count = Some(count);
            out.push(Output::Radio(crate::radio::UplinkMessage::Nas(nas)));
        }
    }

    /// SECURITY MODE REJECT (§5.4.2.5): under the former context, if any.
    fn refuse_security_mode(&mut self, cause: MmCause, out: &mut Outbox<Output>) {
        self.refused_security_mode = Some(cause);
        self.send(SecurityModeReject::new(cause), out);
    }
}
