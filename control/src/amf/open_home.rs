//! An ordinary 3GPP UE of a broker's: 5G-AKA with the broker as home network (CellBricks, chapter 3; TS 33.501 §6.1.3.2).
//!
//! ```text
//! UE                          AMF (SEAF)                       broker (UDM, AUSF)
//! ├─ REGISTRATION REQUEST ───►│                                │
//! │  SUCI of its home PLMN    ├─ vector request ──────────────►│
//! │                           │◄─ RAND, AUTN, HXRES* ──────────┤
//! │◄─ AUTHENTICATION REQUEST ─┤                                │
//! ├─ RES* ───────────────────►│ HRES* is compared              │
//! │                           ├─ confirmation: RES* ──────────►│ RES* is compared
//! │                           │◄─ SUPI, K_SEAF, grant ─────────┤
//! │◄─ SECURITY MODE COMMAND ──┤                                │
//! ```
//! The broker that serves a home PLMN is configured ([`Open::homes`](crate::config::Open::homes)). The UE and its gNB notice nothing.

use whimbrel_ids::{PlmnId, Supi};
use whimbrel_nas::ie::{NgKsi, SchemeOutput, Suci};
use whimbrel_open::id::Domain;
use whimbrel_open::msg::{self, RefusalCause, Subscriber};
use whimbrel_open::operator::{HomeAttach, HomeSession, OperatorError};
use whimbrel_security::suci::msin_of_supi;
use whimbrel_security::{Autn, Auts, HresStar, KSeaf, ProtectionScheme, Rand};

use super::authentication::{ChallengeProof, ChallengeStep, HomeGrant, ProvedKey};
use super::five_g_aka::{self, AkaChallenge};
use super::open_attach::{answer, fault, seed};
use crate::config::Open;
use crate::open::BrokerQuestion;
use crate::procedure::{ProcedureEnd, Ue};
use crate::refusal::{BrokerFault, Refusal};
use crate::services::nudm::{Identity, Resynchronisation};

/// The home PLMN of an identity, and the broker that is configured for it.
pub(super) fn broker_of(ue: Ue, identity: &Identity) -> Option<(PlmnId, Domain)> {
    let config = ue.config();
    let open = config.open.as_ref()?;
    match identity {
        Identity::Supi(supi) => open.home_of(*supi).map(|(plmn, broker)| (plmn, broker.clone())),
        Identity::Suci(Suci::Imsi { plmn, .. }) => Some((*plmn, open.homes.get(plmn)?.clone())),
        Identity::Suci(Suci::Nai { .. }) => None,
    }
}

/// One challenge. `resynchronised`: how the UE failed the challenge before this one.
pub(super) async fn challenge(
    ue: Ue,
    (home, broker): (PlmnId, Domain),
    identity: &Identity,
    token: Option<Resynchronisation>,
    (ng_ksi, resynchronised): (NgKsi, Option<Auts>),
) -> Result<ChallengeStep, ProcedureEnd> {
    let config = ue.config();
    let open = config.open.as_ref().ok_or(Refusal::OtherHomeNetwork(home))?;
    let refused = |why| ProcedureEnd::from(Refusal::Broker { broker: broker.to_string(), why });
    let known = in_clear(identity);
    ue.with(|p| p.amf.claimed = known);

    let token = token.map(|t| msg::Resynchronisation { rand: t.rand.0, auts: t.auts.0 });
    let offer = (open.operator(config.amf.plmn), open.terms.clone());
    let subscriber = subscriber(identity)?;
    let (asked, question) = HomeAttach::ask(offer, broker.clone(), subscriber, token, &seed(ue));
    let octets = match answer(ue, BrokerQuestion::Sap(question), open.answer_timeout).await? {
        Ok(octets) => octets,
        Err(why) => return Err(refused(BrokerFault::Unreachable(why))),
    };
    let challenge = match asked.challenge(&octets, &open.trust, ue.now()) {
        Ok(challenge) => challenge,
        Err(e) if is_refusal(&e, RefusalCause::Resynchronisation) => return Err(Refusal::BadAuts.into()),
        Err(e) => return Err(refused(of_ordinary_ue(e))),
    };
    let challenge = AkaChallenge {
        rand: Rand(challenge.rand),
        autn: Autn(challenge.autn),
        hxres_star: HresStar::new(challenge.hxres_star),
    };
    let res_star = match five_g_aka::respond(ue, challenge, ng_ksi, resynchronised).await? {
        Ok(res_star) => *res_star.octets(),
        Err(step) => return Ok(step),
    };
    let octets = match answer(ue, BrokerQuestion::Sap(asked.confirm(res_star)), open.answer_timeout).await? {
        Ok(octets) => octets,
        Err(why) => return Err(refused(BrokerFault::Unreachable(why))),
    };
    let session = match asked.release(&octets, res_star, &open.trust, ue.now()) {
        Ok(session) => session,
        Err(e) if is_refusal(&e, RefusalCause::Response) => {
            return Ok(ChallengeStep::Failed(Refusal::WrongResponse, None));
        }
        Err(e) => return Err(refused(of_ordinary_ue(e))),
    };
    drop(asked); // the ephemeral key
    let HomeSession { grant, supi, k_seaf, intercept, filters } = session;
    if !supi.is_of(home) || known.is_some_and(|known| known != supi) {
        return Err(refused(BrokerFault::BadAnswer("it names another subscriber".into())));
    }
    if intercept || !filters.is_empty() {
        return Err(refused(BrokerFault::Orders));
    }
    ue.with(|p| p.amf.claimed = Some(supi));
    let key = ProvedKey::Seaf(KSeaf::new(*k_seaf.octets()));
    let grant = Some(HomeGrant::Open(Box::new(grant)));
    Ok(ChallengeStep::Proved(ChallengeProof { supi, key, eap_success: None, grant }))
}

/// How the broker is asked.
fn subscriber(identity: &Identity) -> Result<Subscriber, Refusal> {
    let (plmn, output) = match identity {
        Identity::Supi(supi) => return Ok(Subscriber::Supi(*supi)),
        Identity::Suci(Suci::Imsi { plmn, output, .. }) => (*plmn, output),
        Identity::Suci(Suci::Nai { .. }) => return Err(Refusal::BadSuci),
    };
    let (scheme, key_id, output) = match output {
        SchemeOutput::Null(_) => {
            let msin = in_clear(identity).and_then(|supi| msin_of_supi(plmn, supi));
            (ProtectionScheme::Null.identifier(), 0, msin.ok_or(Refusal::BadSuci)?)
        }
        SchemeOutput::Concealed { scheme, key_id, output } => (scheme.value(), *key_id, output.to_vec()),
    };
    if output.len() > msg::SCHEME_OUTPUT_OCTETS_MAX {
        return Err(Refusal::BadSuci);
    }
    Ok(Subscriber::Suci { plmn, scheme, key_id, output: output.into() })
}

/// The subscriber, where the identity is not concealed.
fn in_clear(identity: &Identity) -> Option<Supi> {
    match identity {
        Identity::Supi(supi) => Some(*supi),
        Identity::Suci(suci) => suci.plain_supi(),
    }
}

fn is_refusal(error: &OperatorError, cause: RefusalCause) -> bool {
    matches!(error, OperatorError::Refused(refusal) if refusal.cause == cause)
}

/// An ordinary UE does not get its broker's signed refusal: it would not understand it.
fn of_ordinary_ue(error: OperatorError) -> BrokerFault {
    match fault(error) {
        BrokerFault::Refused(mut refused) => {
            refused.signed = Vec::new();
            BrokerFault::Refused(refused)
        }
        other => other,
    }
}

impl Open {
    /// The home PLMN of a broker's subscriber, and the broker.
    pub fn home_of(&self, supi: Supi) -> Option<(PlmnId, &Domain)> {
        self.homes.iter().find(|(plmn, _)| supi.is_of(**plmn)).map(|(plmn, broker)| (*plmn, broker))
    }
}
