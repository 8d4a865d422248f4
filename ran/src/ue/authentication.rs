//! Primary authentication: 5G-AKA (TS 24.501 §5.4.1.3, TS 33.501 §6.1.3.2) and EAP-AKA' (TS 24.501 §5.4.1.2, RFC 9048).

use whimbrel_ids::Instant;
use whimbrel_nas::ie::{Auts, EapMessage, MmCause, NgKsi, ResStar};
use whimbrel_nas::mm::{
    AuthenticationFailure, AuthenticationRequest, AuthenticationResponse, AuthenticationResult,
};
use whimbrel_security::AuthenticationFailure as Refusal;
use whimbrel_security::{Abba, Autn, EapAkaPrimePeer, KAmf, PeerAnswer, Rand, ServingNetworkName};

use super::{Event, MeasuredProcedure, MmState, Output, Reason, Timer, Ue, event};
use crate::outbox::Outbox;

/// A 5G NAS security context that SECURITY MODE COMMAND may take into use.
#[derive(Clone, Debug)]
pub(super) struct Partial {
    pub(super) ng_ksi: NgKsi,
    pub(super) k_amf: KAmf,
    /// The challenge and its answer, while T3516 runs; a repeated challenge is answered alike.
    answered: Option<AnsweredChallenge>,
    /// EAP-Success is outstanding: without it the key is not taken into use (§5.4.1.2.2.4).
    pub(super) awaits_eap_success: bool,
}

impl Partial {
    /// For a key without a challenge.
    pub(super) const fn of_key(ng_ksi: NgKsi, k_amf: KAmf) -> Self {
        Self { ng_ksi, k_amf, answered: None, awaits_eap_success: false }
    }
}

/// A challenge and its answer.
#[derive(Clone, Debug)]
enum AnsweredChallenge {
    FiveGAka(Rand, [u8; 16]),
    Eap { request: EapMessage, response: EapMessage },
}

impl Ue {
    /// AUTHENTICATION REQUEST (§5.4.1.3.3).
    pub(super) fn authentication_request(
        &mut self,
        now: Instant,
        m: &AuthenticationRequest,
        out: &mut Outbox<Output>,
    ) {
        if self.is_sap() {
            // A broker's SIM has no K, so that no network can make its UE an ordinary one.
            return self.refuse_challenge(now, MmCause::MacFailure, None, out);
        }
        if let Some(eap) = &m.eap_message {
            return self.eap_request(now, m, eap, out);
        }
        if self.is_veil() {
            // It has no K, and so takes no network for one that has.
            return self.refuse_challenge(now, MmCause::MacFailure, None, out);
        }
        let (Some(rand), Some(autn)) = (m.rand, m.autn) else {
            return self.refuse_challenge(now, MmCause::InvalidMandatoryInformation, None, out);
        };
        let (rand, autn) = (Rand(rand.0), Autn(autn.0));
        if let Some(AnsweredChallenge::FiveGAka(answered, res_star)) = self.answered()
            && *answered == rand
        {
            let res_star = *res_star;
            return self.answer_challenge(res_star, out);
        }
        if self.security.as_ref().is_some_and(|s| s.ng_ksi == m.ng_ksi) {
            return self.refuse_challenge(now, MmCause::NgKsiAlreadyInUse, None, out);
        }
        let name = ServingNetworkName::new(self.config.profile.plmn);
        let done = match self.usim.authenticate(&rand, &autn, &name) {
            Ok(done) => done,
            Err(Refusal::MacFailure) => return self.refuse_challenge(now, MmCause::MacFailure, None, out),
            Err(Refusal::Non5gAuthenticationUnacceptable) => {
                return self.refuse_challenge(now, MmCause::Non5gAuthenticationUnacceptable, None, out);
            }
            Err(Refusal::SynchFailure(auts)) => {
                return self.refuse_challenge(now, MmCause::SynchFailure, Some(Auts(auts.0)), out);
            }
        };
        let abba = <[u8; 2]>::try_from(&*m.abba).map_or(Abba::RELEASE_15, Abba);
        let res_star = *done.res_star.octets();
        self.partial = Some(Partial {
            ng_ksi: m.ng_ksi,
            k_amf: done.k_seaf.k_amf(self.config.supi, abba),
            answered: Some(AnsweredChallenge::FiveGAka(rand, res_star)),
            awaits_eap_success: false,
        });
        self.timers.stop(Timer::T3520);
        self.timers.start(Timer::T3516, now);
        self.answer_challenge(res_star, out);
    }

    fn answered(&self) -> Option<&AnsweredChallenge> {
        self.partial.as_ref()?.answered.as_ref()
    }

    /// AUTHENTICATION REQUEST with an EAP message (§5.4.1.2.2.3).
    fn eap_request(
        &mut self,
        now: Instant,
        m: &AuthenticationRequest,
        eap: &EapMessage,
        out: &mut Outbox<Output>,
    ) {
        if self.is_veil() {
            return self.veil_challenge(now, m, eap, out);
        }
        if let Some(AnsweredChallenge::Eap { request, response }) = self.answered()
            && request == eap
        {
            let response = response.clone();
            return self.answer_eap(response, out);
        }
        if self.security.as_ref().is_some_and(|s| s.ng_ksi == m.ng_ksi) {
            return self.refuse_challenge(now, MmCause::NgKsiAlreadyInUse, None, out);
        }
        let profile = &self.config.profile;
        let name = ServingNetworkName::new(profile.plmn);
        let peer = EapAkaPrimePeer::new(self.config.supi, profile.home_plmn, name);
        match peer.answer(&mut self.usim, eap) {
            Some(PeerAnswer::Accepted(octets, k_ausf)) => {
                let Some(response) = self.proof(octets) else { return };
                let abba = <[u8; 2]>::try_from(&*m.abba).map_or(Abba::RELEASE_15, Abba);
                let answered = AnsweredChallenge::Eap { request: eap.clone(), response: response.clone() };
                self.partial = Some(Partial {
                    ng_ksi: m.ng_ksi,
                    k_amf: k_ausf.k_seaf(&name).k_amf(self.config.supi, abba),
                    answered: Some(answered),
                    awaits_eap_success: true,
                });
                self.timers.stop(Timer::T3520);
                self.timers.start(Timer::T3516, now);
                self.answer_eap(response, out);
            }
            Some(PeerAnswer::Answered(octets)) => {
                if let Some(response) = EapMessage::new(octets) {
                    self.answer_eap(response, out);
                }
            }
            Some(PeerAnswer::Success | PeerAnswer::Failure) | None => {}
        }
    }

    /// A challenge is answered: its answer is kept for a repetition until T3516 expires.
    pub(super) fn begin_t3516(&mut self, now: Instant) {
        self.timers.stop(Timer::T3520);
        self.timers.start(Timer::T3516, now);
    }

    pub(super) fn answer_eap(&mut self, response: EapMessage, out: &mut Outbox<Output>) {
        let mut answer = AuthenticationResponse::new();
        answer.eap_message = Some(response);
        self.send(answer, out);
    }

    /// Its answer to a challenge, or one with a wrong AT_RES (RFC 4187 §9.4): eight octets behind two headers.
    fn proof(&self, mut octets: Vec<u8>) -> Option<EapMessage> {
        if self.faults().wrong_res_star {
            octets.iter_mut().skip(12).take(8).for_each(|o| *o ^= 0xff);
        }
        EapMessage::new(octets)
    }

    /// An EAP message that ends an authentication: in AUTHENTICATION RESULT or in SECURITY MODE COMMAND (§5.4.1.2.2.4).
    pub(super) fn eap_ended(&mut self, ng_ksi: NgKsi, eap: &EapMessage) {
        const SUCCESS: u8 = 3;
        if let Some(partial) = self.partial.as_mut().filter(|p| p.ng_ksi == ng_ksi)
            && eap.first() == Some(&SUCCESS)
        {
            partial.awaits_eap_success = false;
        }
    }

    /// AUTHENTICATION RESULT (§5.4.1.2.2.4, §5.4.1.2.2.5).
    pub(super) fn authentication_result(&mut self, m: &AuthenticationResult) {
        self.eap_ended(m.ng_ksi, &m.eap_message);
    }

    fn answer_challenge(&mut self, mut res_star: [u8; 16], out: &mut Outbox<Output>) {
        if self.faults().wrong_res_star {
            res_star.iter_mut().for_each(|o| *o ^= 0xff);
        }
        let mut answer = AuthenticationResponse::new();
        answer.res_star = Some(ResStar(res_star));
        self.send(answer, out);
    }

    /// AUTHENTICATION FAILURE (§5.4.1.3.6, §5.4.1.3.7 c to f).
    pub(super) fn refuse_challenge(
        &mut self,
        now: Instant,
        cause: MmCause,
        auts: Option<Auts>,
        out: &mut Outbox<Output>,
    ) {
        let mut answer = AuthenticationFailure::new(cause);
        answer.auts = auts;
        self.refused_challenge = Some(cause);
        self.timers.start(Timer::T3520, now);
        self.send(answer, out);
    }

    /// T3516 has expired: RAND and RES* are forgotten (§5.4.1.3.7).
    pub(super) fn forget_challenge(&mut self) {
        if let Some(partial) = &mut self.partial {
            partial.answered = None;
        }
    }

    /// T3520 has expired: the network is considered false, and the UE releases the connection (§5.4.1.3.7).
    pub(super) fn challenge_unanswered(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let cause = self.refused_challenge.unwrap_or(MmCause::ProtocolErrorUnspecified);
        self.abandon(now, Reason::ChallengeRefused(cause), out);
        self.leave(now, out);
    }

    /// AUTHENTICATION REJECT (§5.4.1.3.5): the USIM is invalid; all contexts are deleted.
    pub(super) fn authentication_reject(&mut self, now: Instant, out: &mut Outbox<Output>) {
        self.abandon(now, Reason::AuthenticationRejected, out);
        self.forget_registration();
        self.timers.start(Timer::T3540, now);
    }

    /// Ends the running mobility procedure without a retry.
    fn abandon(&mut self, now: Instant, reason: Reason, out: &mut Outbox<Output>) {
        let procedure = match self.state {
            MmState::RegisteredInitiated => MeasuredProcedure::Registration,
            MmState::ServiceRequestInitiated => MeasuredProcedure::ServiceRequest,
            MmState::DeregisteredInitiated => MeasuredProcedure::Deregistration,
            MmState::Deregistered | MmState::Registered => MeasuredProcedure::Registration,
        };
        let since = self.initial.as_ref().map_or(now, |i| i.since);
        self.timers.stop_procedures();
        self.partial = None;
        self.fail_pending(now, out);
        self.drop_sessions(out);
        self.state = MmState::Deregistered;
        event(Event::Refused { since, procedure, session: None, reason, retry_after: None }, out);
    }
}
