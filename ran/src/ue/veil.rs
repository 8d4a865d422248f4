//! Veiled attach from the UE's side: LOCA, chapter 4.4.2; the checks are those of [`whimbrel_privacy::user`].
//!
//! The UE's request travels in a SUCI, the broker's challenge and the UE's response in EAP messages of AUTHENTICATION REQUEST and
//! AUTHENTICATION RESPONSE, and SECURITY MODE COMMAND proves that the network has the key. Each initial registration begins with no
//! GUTI, no keys and no last visited TAI: by these the operator would know the UE again.

use whimbrel_ids::{Instant, Supi};
use whimbrel_nas::ie::{EapMessage, MmCause, NaiFormat, Octets, Suci};
use whimbrel_nas::mm::AuthenticationRequest;
use whimbrel_open::carriage::{EapCode, EapExpanded, Scheme, SuciNai};
use whimbrel_open::crypto::Seed;
use whimbrel_privacy::token::TokenHash;
use whimbrel_privacy::user::{Responding, UserAttach, UserSession};
use whimbrel_security::{Abba, KSeaf, kdf};

use super::authentication::Partial;
use super::{Output, SuciSource, Ue, VeilCard};
use crate::outbox::Outbox;

/// Function code under which the entropy of attaches is drawn from the card's seed: one that TS 33.220 Annex B leaves to no use.
const FC_ATTACH: u8 = 0xf3;

/// An attach, and the session that came of the last one.
#[derive(Debug, Default)]
pub(super) struct VeiledAttach {
    attach: Option<UserAttach>,
    /// A challenge, its answer, and what comes of it once SECURITY MODE COMMAND is verified.
    answered: Option<(EapMessage, EapMessage)>,
    responding: Option<Responding>,
    session: Option<UserSession>,
}

/// A copy of a card has nothing under way.
impl Clone for VeiledAttach {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Ue {
    /// Its card, where it attaches veiled.
    fn veil(&self) -> Option<&VeilCard> {
        if let SuciSource::Veil(card) = &self.config.suci { Some(card) } else { None }
    }

    fn veil_mut(&mut self) -> Option<&mut VeilCard> {
        if let SuciSource::Veil(card) = &mut self.config.suci { Some(card) } else { None }
    }

    /// Whether it attaches veiled.
    pub(super) fn is_veil(&self) -> bool {
        self.veil().is_some()
    }

    /// Whether it gives no IMEI and no IMEISV: a broker's UE, one of whose sessions would be known by another.
    pub(super) fn hides_equipment(&self) -> bool {
        self.is_sap() || self.is_veil()
    }

    /// H(token) that its cell broadcasts; the UE attaches with the last one that it heard.
    pub fn hear_token(&mut self, token: Option<TokenHash>) {
        if let Some(card) = self.veil_mut() {
            card.token = token;
        }
    }

    /// The token that it heard last.
    pub fn heard_token(&self) -> Option<TokenHash> {
        self.veil()?.token
    }

    /// What its broker has granted, once the network has proved to have the key.
    pub fn veil_session(&self) -> Option<&UserSession> {
        self.veil()?.state.session.as_ref()
    }

    /// An initial registration begins: nothing of the session before goes with it.
    pub(super) fn begin_unknown(&mut self) {
        if !self.is_veil() {
            return;
        }
        let attempts = self.registration_attempts;
        self.forget_registration();
        self.registration_attempts = attempts;
        self.veil_mut().into_iter().for_each(|card| card.state = VeiledAttach::default());
        self.fresh_suci = None;
    }

    /// The UE's request for the owner of the token that it hears, as a SUCI. `None` where it hears none.
    pub(super) fn begin_veil(&mut self) -> Option<Suci> {
        let VeilCard { sim, seed, token, state } = self.veil_mut()?;
        let next = sim.counter.wrapping_add(1);
        let seed = Seed::new(kdf(seed.octets(), FC_ATTACH, &[&next.to_be_bytes()]));
        let (attach, request) = UserAttach::begin(sim, (*token)?, &seed)?;
        *state = VeiledAttach { attach: Some(attach), ..VeiledAttach::default() };
        let suci = SuciNai {
            routing_indicator: 0,
            scheme: Scheme::D,
            key_id: request.key_id(),
            output: request.to_scheme_output(),
            realm: request.broker().clone(),
        };
        let nai = Octets::new(suci.to_text().into_bytes())?;
        Some(Suci::Nai { format: NaiFormat::NetworkSpecific, nai })
    }

    /// AUTHENTICATION REQUEST with the broker's challenge. The answer is a response, or a failure whose cause only the broker reads.
    pub(super) fn veil_challenge(
        &mut self,
        now: Instant,
        m: &AuthenticationRequest,
        eap: &EapMessage,
        out: &mut Outbox<Output>,
    ) {
        let Some(card) = self.veil() else { return };
        let veil = &card.state;
        if let Some((request, response)) = &veil.answered
            && request == eap
        {
            let response = response.clone();
            return self.answer_eap(response, out);
        }
        if self.security.as_ref().is_some_and(|s| s.ng_ksi == m.ng_ksi) {
            return self.refuse_challenge(now, MmCause::NgKsiAlreadyInUse, None, out);
        }
        let (Some(attach), Ok(packet)) = (&veil.attach, EapExpanded::parse(eap)) else { return };
        if packet.code != EapCode::Request {
            return;
        }
        let taken = attach.challenge(packet.data(), now).and_then(|responding| {
            let grant = responding.grant();
            let supi = Supi::from_nai(grant.pseudonym.0, grant.broker.as_str());
            Ok((supi.ok_or(whimbrel_privacy::user::UserError::OtherBroker)?, responding))
        });
        let data = match &taken {
            Ok((_, responding)) => self.response(responding),
            Err(error) => {
                let parts = [&card.sim.counter.to_be_bytes()[..], eap];
                let seed = Seed::new(kdf(card.seed.octets(), FC_ATTACH, &parts));
                let Some(failure) = attach.fail(error, &seed) else { return };
                failure.to_octets()
            }
        };
        let answer = EapExpanded::new(EapCode::Response, packet.identifier, &data);
        let Some(answer) = answer.and_then(|answer| EapMessage::new(answer.to_octets())) else { return };
        if let Ok((supi, responding)) = taken {
            let abba = <[u8; 2]>::try_from(&*m.abba).map_or(Abba::RELEASE_15, Abba);
            let k_amf = KSeaf::new(*responding.k_seaf().octets()).k_amf(supi, abba);
            let mut partial = Partial::of_key(m.ng_ksi, k_amf);
            partial.awaits_eap_success = true;
            self.partial = Some(partial);
            if let Some(card) = self.veil_mut() {
                card.state.responding = Some(responding);
                card.state.answered = Some((eap.clone(), answer.clone()));
            }
            self.begin_t3516(now);
        }
        self.answer_eap(answer, out);
    }

    fn response(&self, responding: &Responding) -> Vec<u8> {
        let mut octets = responding.response().to_message();
        if self.faults().wrong_res_star {
            octets.iter_mut().skip(2).for_each(|o| *o ^= 0xff);
        }
        octets
    }

    /// SECURITY MODE COMMAND took the key of the challenge into use: the network has it too.
    pub(super) fn commit_veil(&mut self) {
        let Some(VeilCard { sim, state, .. }) = self.veil_mut() else { return };
        let (Some(responding), Some(attach)) = (state.responding.take(), state.attach.take()) else { return };
        *state = VeiledAttach { session: Some(responding.commit(attach, sim)), ..VeiledAttach::default() };
        self.fresh_suci = None;
    }

    /// The broker's word in REGISTRATION REJECT, if the UE believes it: a broker that has a new key is asked again under that.
    pub(super) fn veil_refused(&mut self, eap: Option<&EapMessage>) {
        let Some(VeilCard { sim, state, .. }) = self.veil_mut() else { return };
        let Some(attach) = state.attach.take() else { return };
        let packet = eap.and_then(|eap| EapExpanded::parse(eap).ok());
        let key =
            packet.and_then(|packet| attach.refusal(packet.data()).ok()).and_then(|refusal| refusal.key);
        if let Some(key) = key {
            sim.epoch = key;
            self.register_again = true;
        }
        self.fresh_suci = None;
    }
}
