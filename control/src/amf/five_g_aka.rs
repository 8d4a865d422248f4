//! 5G-AKA: TS 33.501 §6.1.3.2, TS 24.501 §5.4.1.3.

use whimbrel_ids::Supi;
use whimbrel_nas::ie::{self, MmCause, NgKsi};
use whimbrel_nas::mm::{self, AuthenticationFailure, AuthenticationRequest, AuthenticationResponse};
use whimbrel_security::{AuthenticationVector, Autn, Auts, HresStar, Rand, ResStar};

use super::ask::ask_past;
use super::authentication::{ChallengeProof, ChallengeStep, ProvedKey, abba};
use crate::input::Input;
use crate::procedure::{ProcedureEnd, RepeatedMessage, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::Resynchronisation;
use crate::state::DownlinkProtection;

/// What the SEAF has of a vector (TS 33.501 §6.1.3.2 step 5).
pub(super) struct AkaChallenge {
    pub(super) rand: Rand,
    pub(super) autn: Autn,
    pub(super) hxres_star: HresStar,
}

/// One challenge by a vector of this network. HRES* is checked as the SEAF, RES* as the AUSF (TS 33.501 §6.1.3.2 steps 9 and 11). `resynchronised`: the
/// AUTHENTICATION FAILURE that answered the challenge before this one. The UE repeats it if it got that challenge twice, after a
/// late answer or a takeover.
pub(super) async fn challenge(
    ue: Ue,
    supi: Supi,
    vector: Box<AuthenticationVector>,
    ng_ksi: NgKsi,
    resynchronised: Option<Auts>,
) -> Result<ChallengeStep, ProcedureEnd> {
    let challenge =
        AkaChallenge { rand: vector.rand, autn: vector.autn, hxres_star: vector.hxres_star.clone() };
    Ok(match respond(ue, challenge, ng_ksi, resynchronised).await? {
        Ok(res_star) if vector.res_star_matches(&res_star) => {
            let key = ProvedKey::Seaf(vector.k_seaf.clone());
            ChallengeStep::Proved(ChallengeProof { supi, key, eap_success: None, grant: None })
        }
        Ok(_) => ChallengeStep::Failed(Refusal::WrongResponse, None),
        Err(step) => step,
    })
}

/// One challenge, up to the check of HRES* as the SEAF (TS 33.501 §6.1.3.2 step 9); what else the UE answers is a step of its own.
/// `resynchronised`: how the UE failed the challenge before this one. It says so again if it got that one twice, as it does when an
/// answer is late or a failover has repeated the request.
pub(super) async fn respond(
    ue: Ue,
    challenge: AkaChallenge,
    ng_ksi: NgKsi,
    resynchronised: Option<Auts>,
) -> Result<Result<ResStar, ChallengeStep>, ProcedureEnd> {
    let mut request = AuthenticationRequest::new(ng_ksi, abba()?);
    request.rand = Some(ie::Rand(challenge.rand.0));
    request.autn = Some(ie::Autn(challenge.autn.0));
    let timer = RepeatedMessage::new("AUTHENTICATION REQUEST", "T3560", ue.config().timers.t3560);
    let stale = |m: &mm::Message| match m {
        mm::Message::AuthenticationFailure(f) => {
            resynchronised.is_some_and(|before| f.auts.is_some_and(|auts| auts.0 == before.0))
        }
        _ => false,
    };
    match *ask_past(ue, Box::new(request.into()), DownlinkProtection::Current, timer, is_answer, stale)
        .await?
    {
        mm::Message::AuthenticationResponse(m) => {
            Ok(answered(&m, &challenge).ok_or(ChallengeStep::Failed(Refusal::WrongResponse, None)))
        }
        mm::Message::AuthenticationFailure(f) => failed(&f, challenge.rand).map(Err),
        _ => Err(Refusal::Protocol("an answer that was not awaited").into()),
    }
}

/// What answers an AUTHENTICATION REQUEST.
pub(super) fn is_answer(input: &Input) -> bool {
    let Input::Mm(m) = input else { return false };
    matches!(**m, mm::Message::AuthenticationResponse(_) | mm::Message::AuthenticationFailure(_))
}

/// RES* absent under 5G-AKA counts as wrong (TS 24.501 §5.4.1.3.5).
fn answered(m: &AuthenticationResponse, challenge: &AkaChallenge) -> Option<ResStar> {
    let res_star = ResStar::new(m.res_star?.0);
    (HresStar::derive(&challenge.rand, &res_star) == challenge.hxres_star).then_some(res_star)
}

/// TS 33.512 §4.2.2.1.1, TS 24.501 §5.4.1.3.7 c, TS 24.501 §5.4.1.3.7 d, TS 24.501 §5.4.1.3.7 e, TS 24.501 §5.4.1.3.7 f.
fn failed(f: &AuthenticationFailure, rand: Rand) -> Result<ChallengeStep, ProcedureEnd> {
    match f.cause {
        MmCause::SynchFailure => {
            let auts = f.auts.ok_or(Refusal::Protocol("AUTHENTICATION FAILURE #21 without AUTS"))?;
            Ok(ChallengeStep::Resynchronise(Resynchronisation { rand, auts: Auts(auts.0) }))
        }
        MmCause::NgKsiAlreadyInUse => Ok(ChallengeStep::KsiInUse),
        MmCause::MacFailure => Ok(ChallengeStep::Failed(Refusal::MacFailure, None)),
        other => Ok(ChallengeStep::Failed(Refusal::ChallengeRefused(other.value()), None)),
    }
}
