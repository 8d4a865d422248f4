//! Primary authentication by 5G-AKA: TS 24.501 §5.4.1.3, TS 33.501 §6.1.3.2.

use whimbrel_ids::Instant;
use whimbrel_nas::ie::{Auts, MmCause, NgKsi, ResStar};
use whimbrel_nas::mm::{AuthenticationFailure, AuthenticationRequest, AuthenticationResponse};
use whimbrel_security::AuthenticationFailure as Refusal;
use whimbrel_security::{Abba, Autn, KAmf, Rand, ServingNetworkName};

use super::{Event, MmState, Output, Procedure, Reason, Timer, Ue, event};
use crate::outbox::Outbox;

/// A 5G NAS security context that SECURITY MODE COMMAND may take into use.
#[derive(Clone, Debug)]
pub(super) struct Partial {
    pub(super) ng_ksi: NgKsi,
    pub(super) k_amf: KAmf,
    /// The challenge and its answer, while T3516 runs; a repeated challenge is answered alike.
    answered: Option<(Rand, [u8; 16])>,
}

impl Ue {
    /// AUTHENTICATION REQUEST (§5.4.1.3.3).
    pub(super) fn authentication_request(
        &mut self,
        now: Instant,
        m: &AuthenticationRequest,
        out: &mut Outbox<Output>,
    ) {
        let (Some(rand), Some(autn)) = (m.rand, m.autn) else {
            // EAP-AKA' is not what this phone has.
            return self.refuse_challenge(now, MmCause::InvalidMandatoryInformation, None, out);
        };
        let (rand, autn) = (Rand(rand.0), Autn(autn.0));
        let again = self.partial.as_ref().and_then(|p| p.answered.as_ref()).filter(|(r, _)| *r == rand);
        if let Some((_, res_star)) = again {
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
            answered: Some((rand, res_star)),
        });
        self.timers.stop(Timer::T3520);
        self.timers.start(Timer::T3516, now);
        self.answer_challenge(res_star, out);
    }

    fn answer_challenge(&mut self, mut res_star: [u8; 16], out: &mut Outbox<Output>) {
        if self.faults.wrong_res_star {
            res_star.iter_mut().for_each(|o| *o ^= 0xff);
        }
        let mut answer = AuthenticationResponse::new();
        answer.res_star = Some(ResStar(res_star));
        self.send(answer, out);
    }

    /// AUTHENTICATION FAILURE (§5.4.1.3.6, §5.4.1.3.7 c to f).
    fn refuse_challenge(
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

    /// T3520 has expired: the network is taken for a false one, and the phone leaves it (§5.4.1.3.7).
    pub(super) fn challenge_unanswered(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let cause = self.refused_challenge.unwrap_or(MmCause::ProtocolErrorUnspecified);
        self.abandon(now, Reason::ChallengeRefused(cause), out);
        self.leave(now, out);
    }

    /// AUTHENTICATION REJECT (§5.4.1.3.5): the subscription is not valid here; everything of it is forgotten.
    pub(super) fn authentication_reject(&mut self, now: Instant, out: &mut Outbox<Output>) {
        self.abandon(now, Reason::AuthenticationRejected, out);
        self.forget_registration();
        self.timers.start(Timer::T3540, now);
    }

    /// Ends whatever mobility procedure runs, for good.
    fn abandon(&mut self, now: Instant, reason: Reason, out: &mut Outbox<Output>) {
        let procedure = match self.state {
            MmState::RegisteredInitiated => Procedure::Registration,
            MmState::ServiceRequestInitiated => Procedure::ServiceRequest,
            MmState::DeregisteredInitiated => Procedure::Deregistration,
            MmState::Deregistered | MmState::Registered => Procedure::Registration,
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
