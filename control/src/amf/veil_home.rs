//! An ordinary 3GPP UE that is hidden from this operator: 5G-AKA with the broker as home network (LOCA, chapter 4.4.2; TS 33.501 §6.1.3.2).
//!
//! ```text
//! UE                          AMF (SEAF)                              broker (UDM, AUSF)
//! ├─ REGISTRATION REQUEST ───►│                                       │
//! │  SUCI of the broker's PLMN├─ question, signed by the token ──────►│
//! │                           │◄─ RAND, AUTN, HXRES*, sealed K_AMF ───┤
//! │◄─ AUTHENTICATION REQUEST ─┤
//! ├─ RES* ───────────────────►│  HRES* is compared; RES* opens K_AMF
//! │◄─ SECURITY MODE COMMAND ──┤
//! ```
//! The AMF learns neither SUPI nor K_SEAF; the UE's SUPI is here the random name of this session. The UE notices nothing.
//!
//! Deviation: HRES* is not confirmed to the AUSF (TS 33.501 §6.1.3.2 step 10): the key that the broker has sealed opens under the right RES* alone.

use whimbrel_ids::Supi;
use whimbrel_nas::ie::{self, NgKsi, SchemeOutput};
use whimbrel_open::msg;
use whimbrel_privacy::msg::Suci;
use whimbrel_privacy::operator::{HomeAttach, HomeSession, OperatorError};
use whimbrel_security::{Autn, Auts, HresStar, Rand};

use super::authentication::{ChallengeProof, ChallengeStep, HomeGrant, ProvedKey};
use super::five_g_aka::{self, AkaChallenge};
use super::open_attach::{GrantedAttach, answer, seed};
use super::veil_attach;
use crate::open::BrokerQuestion;
use crate::procedure::{ProcedureEnd, Ue};
use crate::refusal::{BrokerFault, Refusal};
use crate::services::nudm::{Identity, Resynchronisation};

/// The SUCI of a UE that is to be hidden. `None`: the UE is of another network, or this operator has no such UEs.
pub(super) fn suci_of(ue: Ue, identity: &Identity) -> Option<Result<Suci, ProcedureEnd>> {
    match identity {
        Identity::Suci(suci) => suci_of_ordinary_ue(ue, suci),
        Identity::Supi(_) => None,
    }
}

/// The same of a SUCI that the UE has sent. Errors: it is not concealed.
pub(super) fn suci_of_ordinary_ue(ue: Ue, suci: &ie::Suci) -> Option<Result<Suci, ProcedureEnd>> {
    let config = ue.config();
    let veil = config.veil.as_ref().filter(|veil| veil.ordinary_ues)?;
    let ie::Suci::Imsi { plmn, output, .. } = suci else { return None };
    if *plmn != config.amf.plmn {
        return None;
    }
    let suci = match output {
        SchemeOutput::Null(_) => None,
        SchemeOutput::Concealed { scheme, key_id, output } => {
            Suci::new(scheme.value(), *key_id, output.to_vec().into())
        }
    };
    let in_clear = || Refusal::Broker { broker: veil.broker.to_string(), why: BrokerFault::InClear };
    Some(suci.ok_or_else(|| in_clear().into()))
}

/// One challenge. `resynchronised`: how the UE failed the challenge before this one.
pub(super) async fn challenge(
    ue: Ue,
    suci: Suci,
    token: Option<Resynchronisation>,
    (ng_ksi, resynchronised): (NgKsi, Option<Auts>),
) -> Result<ChallengeStep, ProcedureEnd> {
    let config = ue.config();
    let veil = config.veil.as_ref().ok_or(Refusal::OtherHomeNetwork(config.amf.plmn))?;
    let refused = |why| ProcedureEnd::from(Refusal::Broker { broker: veil.broker.to_string(), why });
    let token = token.map(|t| msg::Resynchronisation { rand: t.rand.0, auts: t.auts.0 });
    let (asked, question) = HomeAttach::ask(veil.contract(config.amf.plmn), suci, token, &seed(ue));
    let octets = match answer(ue, BrokerQuestion::VeilHome(question), veil.answer_timeout).await? {
        Ok(octets) => octets,
        Err(why) => return Err(refused(BrokerFault::Unreachable(why))),
    };
    let challenging = Box::new(asked.answer(&octets, ue.now()).map_err(|e| refused(of_ordinary_ue(e)))?);
    drop((asked, octets));
    let name = Supi::from_nai(challenging.grant().grant.pseudonym.0, veil.broker.as_str());
    let supi = name.ok_or_else(|| refused(BrokerFault::BadAnswer("it names no user".into())))?;
    ue.with(|p| p.amf.claimed = Some(supi));
    let vector = challenging.vector();
    let challenge = AkaChallenge {
        rand: Rand(vector.rand),
        autn: Autn(vector.autn),
        hxres_star: HresStar::new(vector.hxres_star),
    };
    let res_star = match five_g_aka::respond(ue, challenge, ng_ksi, resynchronised).await? {
        Ok(res_star) => *res_star.octets(),
        Err(step) => return Ok(step),
    };
    let session = challenging.respond(&res_star).map_err(|e| refused(of_ordinary_ue(e)))?;
    if !session.filters.is_empty() {
        return Err(refused(BrokerFault::Orders));
    }
    let key = ProvedKey::Amf(session.k_amf.clone());
    let grant = Some(HomeGrant::Veil(Box::new(session)));
    Ok(ChallengeStep::Proved(ChallengeProof { supi, key, eap_success: None, grant }))
}

/// For the log and the report, and for the registration.
pub(super) fn granted(ue: Ue, session: HomeSession) -> Option<GrantedAttach> {
    let config = ue.config();
    let HomeSession { grant, presence, .. } = session;
    Some(veil_attach::granted(ue, config.veil.as_ref()?, grant, &presence))
}

/// An ordinary UE does not get its broker's signed refusal: it would not understand it.
fn of_ordinary_ue(error: OperatorError) -> BrokerFault {
    match veil_attach::fault(error) {
        BrokerFault::Refused(mut refused) => {
            refused.signed = Vec::new();
            BrokerFault::Refused(refused)
        }
        other => other,
    }
}
