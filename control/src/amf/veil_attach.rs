//! Attach of a veiled UE, in place of primary authentication (LOCA, chapter 4.4.2); messages and checks are those of `whimbrel_veil`.
//!
//! ```text
//! UE                          AMF                                     broker
//! ├─ REGISTRATION REQUEST ───►│                                       │
//! │  SUCI, scheme 0xD         ├─ question, signed by the token ──────►│
//! │                           │◄─ answer: grant, orders, challenge ───┤
//! │◄─ AUTHENTICATION REQUEST ─┤
//! │   EAP-Request: challenge  │
//! ├─ AUTHENTICATION RESPONSE ►│  K_SEAF of half and response
//! │   EAP-Response: response  │
//! │◄─ SECURITY MODE COMMAND ──┤
//! │   EAP-Success             │
//! ```
//! The UE's SUPI is the random name of this session. The AMF knows no other, and asks for no equipment identity.
//!
//! The ephemeral key and the broker's half live in the procedure's future, and in the log until the next checkpoint of the UE.

use std::sync::Arc;

use whimbrel_ids::Supi;
use whimbrel_nas::ie::{EapMessage, MmCause, NgKsi};
use whimbrel_nas::mm::{self, AuthenticationRequest};
use whimbrel_open::carriage::{EapCode, EapExpanded, SuciNai};
use whimbrel_privacy::crypto::Response;
use whimbrel_privacy::msg::{Challenge, Failure, SignedGrant, SignedRefusal, UserRequest};
use whimbrel_privacy::operator::{Challenging, OperatorAttach, OperatorError, OperatorSession};
use whimbrel_security::KSeaf;

use super::ask::ask;
use super::authentication::{ABBA, Authenticated, abba, next_ksi, not_accepted};
use super::five_g_aka::is_answer;
use super::open_attach::{
    Authentication, BrokerGrant, GrantedAttach, answer, eap_message, seed, subscription,
};
use crate::config::VeilPolicy;
use crate::event::Event;
use crate::open::BrokerQuestion;
use crate::procedure::{ProcedureEnd, RepeatedMessage, Ue};
use crate::refusal::{BrokerFault, BrokerRefusal, Refusal};
use crate::state::{DownlinkProtection, VeilSession};

const _: () = assert!(Challenge::OCTETS_MAX + 12 <= whimbrel_open::carriage::EAP_OCTETS_MAX);
const _: () = assert!(SignedRefusal::OCTETS_MAX + 12 <= whimbrel_open::carriage::EAP_OCTETS_MAX);

/// Step 9 of TS 23.502 §4.2.2.2.2 for a veiled UE.
pub(super) async fn attach(ue: Ue, suci: SuciNai, offered: NgKsi) -> Result<Authentication, ProcedureEnd> {
    let config = ue.config();
    let broker = suci.realm.clone();
    let refused = |why| ProcedureEnd::from(Refusal::Broker { broker: broker.to_string(), why });
    let veil = config.veil.as_ref().filter(|veil| veil.broker == broker);
    let veil = veil.ok_or_else(|| refused(BrokerFault::NotServed))?;
    let request = UserRequest::from_scheme_output(broker.clone(), suci.key_id, &suci.output)
        .map_err(|_| Refusal::BadSuci)?;
    let asked = OperatorAttach::ask(veil.contract(config.amf.plmn), request, &seed(ue));
    let (asked, question) = asked.map_err(|e| refused(fault(e)))?;
    let octets = match answer(ue, BrokerQuestion::Veil(question), veil.answer_timeout).await? {
        Ok(octets) => octets,
        Err(why) => return Err(refused(BrokerFault::Unreachable(why))),
    };
    let challenging = Box::new(asked.answer(&octets, ue.now()).map_err(|e| refused(fault(e)))?);
    drop((asked, octets));
    let name = {
        let grant = &challenging.grant().grant;
        Supi::from_nai(grant.pseudonym.0, broker.as_str())
    };
    let supi = name.ok_or_else(|| refused(BrokerFault::BadAnswer("it names no user".into())))?;
    ue.with(|p| p.amf.claimed = Some(supi));
    let ng_ksi = next_ksi(ue, offered);
    let session = respond(ue, challenging, ng_ksi).await?;
    // Interception begins with the agency's order; the broker's word alone has no copy made.
    let OperatorSession { grant, presence, k_seaf, filters, .. } = session;
    if !filters.is_empty() {
        return Err(refused(BrokerFault::Orders));
    }
    let k_amf = KSeaf::new(*k_seaf.octets()).k_amf(supi, ABBA);
    let proof = Authenticated { supi, k_amf, ng_ksi, eap_success: eap_success(ue) };
    Ok(Authentication { proof, granted: Some(granted(ue, veil, grant, &presence)) })
}

/// The broker has granted and the UE has responded: for the log and the report, and for the registration.
pub(super) fn granted(ue: Ue, veil: &VeilPolicy, grant: SignedGrant, presence: &Response) -> GrantedAttach {
    let former = ue.with(|p| p.amf.supi).filter(|former| former.is_nai());
    let terms = subscription(&grant.grant.qos, veil.s_nssai, &veil.dnn);
    let (subject, broker) = (ue.with(|p| p.subject()), grant.grant.broker.to_string());
    let (group, session) = (grant.grant.group.0, grant.grant.request);
    ue.event(Event::VeilGranted { subject, broker, group, session, presence: *presence.octets() });
    let grant = BrokerGrant::Veil(Box::new(VeilSession::new(grant)));
    GrantedAttach { grant, subscription: Arc::new(terms), former }
}

/// The challenge, repeated under T3560 (TS 24.501 §5.4.1.2.2.2), and the UE's response. A UE that does not accept the challenge says why to
/// its broker alone.
async fn respond(
    ue: Ue,
    challenging: Box<Challenging>,
    ng_ksi: NgKsi,
) -> Result<OperatorSession, ProcedureEnd> {
    let mut ng_ksi = ng_ksi;
    for _ in 0..CHALLENGES_MAX {
        let octets = challenging.challenge().to_octets();
        let eap = eap_message(ue, &octets).ok_or(Refusal::Protocol("a broker's challenge is too long"))?;
        let mut request = AuthenticationRequest::new(ng_ksi, abba()?);
        request.eap_message = Some(eap);
        let timer = RepeatedMessage::new("AUTHENTICATION REQUEST", "T3560", ue.config().timers.t3560);
        match *ask(ue, Box::new(request.into()), DownlinkProtection::Current, timer, is_answer).await? {
            mm::Message::AuthenticationResponse(m) => {
                let response = m.eap_message.as_ref().and_then(response);
                let Some(response) = response else { return Err(failed(ue, m.eap_message.as_ref())) };
                let session = challenging.respond(&response);
                return session.map_err(|_| not_accepted(ue, Refusal::WrongResponse, None));
            }
            // TS 24.501 §5.4.1.2.2.10.
            mm::Message::AuthenticationFailure(f) if f.cause == MmCause::NgKsiAlreadyInUse => {
                ng_ksi = next_ksi(ue, ng_ksi);
            }
            mm::Message::AuthenticationFailure(f) => {
                return Err(not_accepted(ue, Refusal::ChallengeRefused(f.cause.value()), None));
            }
            _ => return Err(Refusal::Protocol("an answer that was not awaited").into()),
        }
    }
    Err(Refusal::ChallengeRefused(MmCause::NgKsiAlreadyInUse.value()).into())
}

/// Challenges in one attach: the first, and one under another key set identifier.
const CHALLENGES_MAX: u8 = 2;

fn packet(eap: &EapMessage) -> Option<EapExpanded> {
    EapExpanded::parse(eap).ok().filter(|packet| packet.code == EapCode::Response)
}

fn response(eap: &EapMessage) -> Option<Response> {
    Response::parse(packet(eap)?.data()).ok()
}

/// The UE does not accept the challenge: what it says to its broker is passed on.
fn failed(ue: Ue, eap: Option<&EapMessage>) -> ProcedureEnd {
    if let Some(failure) = eap.and_then(packet).filter(|p| Failure::parse(p.data()).is_ok()) {
        ue.event(Event::VeilFailed { sealed: failure.data().to_vec() });
    }
    not_accepted(ue, Refusal::WrongResponse, None)
}

fn eap_success(ue: Ue) -> Option<EapMessage> {
    const SUCCESS: u8 = 3;
    EapMessage::new(vec![SUCCESS, ue.random()[0], 0, 4])
}

pub(super) fn fault(error: OperatorError) -> BrokerFault {
    match error {
        OperatorError::Refused(refusal) => BrokerFault::Refused(Box::new(BrokerRefusal {
            cause: refusal.cause.to_string(),
            of_operator: false,
            signed: refusal.to_octets(),
        })),
        OperatorError::Rejected(cause) => BrokerFault::Rejected(cause.to_string()),
        other => BrokerFault::BadAnswer(other.to_string()),
    }
}
