//! Attach of a broker's user by SAP, in place of primary authentication: CellBricks, chapter 3.4.1; messages and checks are those of
//! `whimbrel_open`.
//!
//! ```text
//! UE                          AMF                                     broker
//! ├─ REGISTRATION REQUEST ───►│                                       │
//! │  SUCI, scheme 0xC to 0xF  ├─ question, signed at the edge ───────►│
//! │                           │◄─ answer: grant, orders, answer to UE ┤
//! │◄─ SECURITY MODE COMMAND ──┤
//! │   EAP-Request             │
//! ```
//! The UE's proof is SECURITY MODE COMPLETE: only the UE to which the broker's answer is sealed can derive K_SEAF.
//!
//! Deviation: that EAP-Request travels in SECURITY MODE COMMAND, where TS 24.501 §5.4.2.2 has EAP-Success only, saves a round trip. It
//! is sent to no UE but one that has sent a SUCI of such a scheme, which is the broker's own.
//!
//! The ephemeral key and the broker's secret live in the procedure's future, and in the log until the next checkpoint of the UE.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{Dnn, FiveQi, SNssai, Supi};
use whimbrel_nas::ie::{EapMessage, NaiFormat, NgKsi, SscMode, Suci};
use whimbrel_open::carriage::{EapCode, EapExpanded, Scheme, SuciNai};
use whimbrel_open::crypto::Seed;
use whimbrel_open::msg::{Qos, RefusalCause, SignedGrant, SignedRefusal};
use whimbrel_open::operator::{OperatorAttach, OperatorError, OperatorSession};
use whimbrel_security::KSeaf;

use super::authentication::{
    self, ABBA, Authenticated, ClaimedIdentity, FailedAuthentication, HomeGrant, HomeNetworks, next_ksi,
};
use super::identification::ask_suci;
use super::{udm_client, veil_attach, veil_home};
use crate::envelope::Effect;
use crate::event::Event;
use crate::input::Input;
use crate::open::{BrokerAnswer, BrokerQuestion, Unreachable};
use crate::procedure::{Interrupt, ProcedureEnd, Ue};
use crate::refusal::{BrokerFault, BrokerRefusal, Refusal};
use crate::services::nudm::Identity;
use crate::state::{
    Ambr, Arp, DownlinkProtection, SessionGrant, SessionTypes, SubscribedDnn, SubscribedSlice, Subscription,
    VeilSession,
};

/// After how long without an answer the broker is asked again: a question or an answer may have been lost with a process.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// How the UE was authenticated.
pub(crate) struct Authentication {
    /// That it was.
    pub(crate) proof: Authenticated,
    /// What its broker has granted, if it is a broker's user.
    pub(crate) granted: Option<GrantedAttach>,
}

/// What a broker has granted to a UE.
pub(crate) struct GrantedAttach {
    pub(super) grant: BrokerGrant,
    pub(super) subscription: Arc<Subscription>,
    /// The pseudonym of the UE's session before this one.
    pub(super) former: Option<Supi>,
}

/// A grant of either kind.
pub(super) enum BrokerGrant {
    /// By SAP, or to an ordinary UE.
    Open(Box<SessionGrant>),
    /// To a veiled UE.
    Veil(Box<VeilSession>),
}

/// In place of step 14 of TS 23.502 §4.2.2.2.2: the UE is registered under its pseudonym, and its former one is given up. Nothing new is
/// granted to a UE that comes from another AMF.
pub(crate) async fn register(
    ue: Ue,
    supi: Supi,
    granted: Option<GrantedAttach>,
) -> Result<Arc<Subscription>, ProcedureEnd> {
    let Some(GrantedAttach { grant, subscription, former }) = granted else {
        let subscription = ue.with(|p| p.amf.subscription.clone()).ok_or(Refusal::NoIdentity)?;
        udm_client::register_guest(ue, supi, None).await?;
        return Ok(subscription);
    };
    ue.with(|p| {
        (p.grant, p.veil) = match grant {
            BrokerGrant::Open(grant) => (Some(grant), None),
            BrokerGrant::Veil(session) => (None, Some(session)),
        }
    });
    udm_client::register_guest(ue, supi, former).await?;
    Ok(subscription)
}

/// Step 9 of TS 23.502 §4.2.2.2.2, or SAP in its place: a UE whose SUPI is a network specific identifier has no other way, and one that
/// has an IMSI has not this one.
pub(crate) async fn authenticate(
    ue: Ue,
    claim: ClaimedIdentity,
    offered: NgKsi,
) -> Result<Authentication, ProcedureEnd> {
    let claim = match claim {
        ClaimedIdentity::Remembered(Identity::Supi(supi)) if supi.is_nai() => {
            let suci = ask_suci(ue, DownlinkProtection::Current).await?;
            if !matches!(suci, Suci::Nai { .. }) && veil_home::suci_of_ordinary_ue(ue, &suci).is_none() {
                return Err(Refusal::BadSuci.into());
            }
            ClaimedIdentity::Received(Identity::Suci(suci))
        }
        claim => claim,
    };
    if let ClaimedIdentity::Received(Identity::Suci(suci @ Suci::Nai { .. })) = &claim {
        return Box::pin(attach(ue, suci, offered)).await;
    }
    let homes = HomeNetworks::Brokers;
    let (proof, grant) =
        authentication::authenticate(ue, claim, offered, FailedAuthentication::Rejected, homes).await?;
    let granted = grant.and_then(|grant| match grant {
        HomeGrant::Open(grant) => granted(ue, *grant, None),
        HomeGrant::Veil(session) => veil_home::granted(ue, *session),
    });
    Ok(Authentication { proof, granted })
}

async fn attach(ue: Ue, suci: &Suci, offered: NgKsi) -> Result<Authentication, ProcedureEnd> {
    let config = ue.config();
    let Suci::Nai { format: NaiFormat::NetworkSpecific, nai } = suci else {
        return Err(Refusal::BadSuci.into());
    };
    let suci = SuciNai::parse(nai).map_err(|_| Refusal::BadSuci)?;
    if suci.scheme == Scheme::D {
        return Box::pin(veil_attach::attach(ue, suci, offered)).await;
    }
    let broker = suci.realm.clone();
    let refused = |why| Refusal::Broker { broker: broker.to_string(), why };
    let open =
        config.open.as_ref().filter(|o| o.serves(&broker)).ok_or_else(|| refused(BrokerFault::NotServed))?;
    let request = suci.to_request().map_err(|_| Refusal::BadSuci)?;
    let (asked, question) =
        OperatorAttach::ask(open.operator(config.amf.plmn), open.terms.clone(), request, &seed(ue));
    let octets = match answer(ue, BrokerQuestion::Sap(question), open.answer_timeout).await? {
        Ok(octets) => octets,
        Err(why) => return Err(refused(BrokerFault::Unreachable(why)).into()),
    };
    let session = asked.answer(&octets, &open.trust, ue.now()).map_err(|e| refused(fault(e)))?;
    drop(asked); // the ephemeral key
    let OperatorSession { grant, k_seaf, intercept, filters, answer_u } = session;
    if intercept || !filters.is_empty() {
        return Err(refused(BrokerFault::Orders).into());
    }
    let name = Supi::from_nai(grant.grant.pseudonym.0, broker.as_str());
    let supi = name.ok_or_else(|| refused(BrokerFault::BadAnswer("it names no user".into())))?;
    ue.with(|p| p.amf.claimed = Some(supi));
    let eap =
        eap_message(ue, &answer_u.to_octets()).ok_or(Refusal::Protocol("a broker's answer is too long"))?;
    let k_amf = KSeaf::new(*k_seaf.octets()).k_amf(supi, ABBA);
    let proof = Authenticated { supi, k_amf, ng_ksi: next_ksi(ue, offered), eap_success: Some(eap) };
    let former = ue.with(|p| p.amf.supi).filter(|former| former.is_nai());
    Ok(Authentication { proof, granted: granted(ue, grant, former) })
}

/// A broker has granted: for the log, and for the registration.
fn granted(ue: Ue, grant: SignedGrant, former: Option<Supi>) -> Option<GrantedAttach> {
    let config = ue.config();
    let open = config.open.as_ref()?;
    let subscription = Arc::new(subscription(&grant.grant.qos, open.s_nssai, &open.dnn));
    let (subject, broker) = (ue.with(|p| p.subject()), grant.grant.broker.to_string());
    ue.event(Event::Granted { subject, broker, grant: grant.to_octets() });
    Some(GrantedAttach { grant: BrokerGrant::Open(Box::new(SessionGrant::new(grant))), subscription, former })
}

/// Entropy of an attach: what the machine draws a second time in a replay, it draws alike.
pub(super) fn seed(ue: Ue) -> Seed {
    let mut octets = [0; 32];
    octets[..16].copy_from_slice(&ue.random());
    octets[16..].copy_from_slice(&ue.random());
    Seed::new(octets)
}

/// Asks the broker, again and again until it answers or `timeout` is over.
pub(super) async fn answer(
    ue: Ue,
    question: BrokerQuestion,
    timeout: Duration,
) -> Result<Result<Vec<u8>, Unreachable>, ProcedureEnd> {
    let until = ue.now() + timeout;
    let (mut asked, mut why) = (Vec::new(), Unreachable::TimedOut);
    while ue.now() < until {
        asked.push(ue.emit(Effect::Broker(question.clone()), None));
        let again = until.min(ue.now() + ASKED_AGAIN_AFTER);
        loop {
            match ue.any_answer(asked.clone(), again.since(ue.now())).await {
                Ok(Input::Broker(BrokerAnswer::Octets(octets))) => return Ok(Ok(octets)),
                Ok(Input::Broker(BrokerAnswer::Unreachable(lasting))) if lasting.is_lasting() => {
                    return Ok(Err(lasting));
                }
                Ok(Input::Broker(BrokerAnswer::Unreachable(passing))) => why = passing,
                Ok(_) | Err(Interrupt::TimedOut) => break,
                Err(interrupt) => return Err(interrupt.into()),
            }
        }
    }
    Ok(Err(why))
}

pub(super) fn fault(error: OperatorError) -> BrokerFault {
    match error {
        OperatorError::Refused(refusal) => BrokerFault::Refused(Box::new(BrokerRefusal {
            cause: refusal.cause.to_string(),
            of_operator: is_of_operator(refusal.cause),
            signed: refusal.to_octets(),
        })),
        OperatorError::Rejected(cause) => BrokerFault::Rejected(cause.to_string()),
        other => BrokerFault::BadAnswer(other.to_string()),
    }
}

/// Whether a broker refuses the operator, and not the user.
fn is_of_operator(cause: RefusalCause) -> bool {
    match cause {
        RefusalCause::OperatorNotAllowed
        | RefusalCause::OperatorReputation
        | RefusalCause::PriceTooHigh
        | RefusalCause::QosTooLow => true,
        RefusalCause::UnknownKey
        | RefusalCause::Envelope
        | RefusalCause::UnknownUser
        | RefusalCause::UserSignature
        | RefusalCause::OtherOperator
        | RefusalCause::UserRevoked
        | RefusalCause::CounterUsed
        | RefusalCause::WeakShare
        | RefusalCause::Resynchronisation
        | RefusalCause::Response
        | RefusalCause::NoChallenge => false,
    }
}

/// EAP-Request of the expanded type.
pub(super) fn eap_message(ue: Ue, data: &[u8]) -> Option<EapMessage> {
    let identifier = ue.random()[0];
    EapMessage::new(EapExpanded::new(EapCode::Request, identifier, data)?.to_octets())
}

/// The broker's signed refusal, which REGISTRATION REJECT takes to the UE.
pub(crate) fn refusal_for_ue(ue: Ue, refusal: &Refusal) -> Option<EapMessage> {
    let Refusal::Broker { why: BrokerFault::Refused(refused), .. } = refusal else { return None };
    if refused.signed.is_empty() {
        return None;
    }
    const { assert!(SignedRefusal::OCTETS_MAX < whimbrel_open::carriage::EAP_OCTETS_MAX) };
    eap_message(ue, &refused.signed)
}

/// What the broker has granted, as the terms of a subscription.
pub(super) fn subscription(qos: &Qos, s_nssai: SNssai, dnn: &Dnn) -> Subscription {
    let ambr = Ambr { ul_kbps: qos.ul_kbps.into(), dl_kbps: qos.dl_kbps.into() };
    let dnn = SubscribedDnn {
        dnn: dnn.clone(),
        default: true,
        session_types: SessionTypes::IP,
        ssc_mode: SscMode::One,
        five_qi: FiveQi(qos.five_qi),
        arp: GUEST_ARP,
        session_ambr: ambr,
        static_ipv4: None,
        static_ipv6: None,
        flows: Vec::new(),
        framed_routes: Vec::new(),
        up_security: None,
    };
    let slice = SubscribedSlice { s_nssai, default: true, dnns: vec![dnn] };
    Subscription {
        ue_ambr: ambr,
        slices: vec![slice],
        rfsp: None,
        restrictions: Default::default(),
        priority: Default::default(),
    }
}

/// The terms of a grant name no priority: a guest preempts no UE, and may be preempted.
const GUEST_ARP: Arp = Arp { priority: 15, may_preempt: false, preemptable: true };
