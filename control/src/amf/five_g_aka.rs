//! 5G-AKA: TS 33.501 §6.1.3.2, TS 24.501 §5.4.1.3.

use whimbrel_nas::ie::{self, MmCause, NgKsi};
use whimbrel_nas::mm::{self, AuthenticationFailure, AuthenticationRequest, AuthenticationResponse};
use whimbrel_security::{AuthenticationVector, Auts, ResStar};

use super::ask::ask_past;
use super::authentication::{Step, abba};
use crate::input::Input;
use crate::procedure::{End, Repeated, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::Resynchronisation;
use crate::state::Security;

/// One challenge. HRES* is checked as the SEAF, RES* as the AUSF (TS 33.501 §6.1.3.2 steps 9 and 11). `resynchronised`: the
/// AUTHENTICATION FAILURE that answered the challenge before this one. The UE repeats it if it got that challenge twice, after a
/// late answer or a takeover.
pub(super) async fn challenge(
    ue: Ue,
    vector: Box<AuthenticationVector>,
    ng_ksi: NgKsi,
    resynchronised: Option<Auts>,
) -> Result<Step, End> {
    let mut request = AuthenticationRequest::new(ng_ksi, abba()?);
    request.rand = Some(ie::Rand(vector.rand.0));
    request.autn = Some(ie::Autn(vector.autn.0));
    let timer = Repeated::new("AUTHENTICATION REQUEST", "T3560", ue.config().timers.t3560);
    let stale = |m: &mm::Message| match m {
        mm::Message::AuthenticationFailure(f) => {
            resynchronised.is_some_and(|before| f.auts.is_some_and(|auts| auts.0 == before.0))
        }
        _ => false,
    };
    match *ask_past(ue, Box::new(request.into()), Security::Current, timer, is_answer, stale).await? {
        mm::Message::AuthenticationResponse(m) if answers(&m, &vector) => {
            Ok(Step::Proved(vector.k_seaf.clone(), None))
        }
        mm::Message::AuthenticationResponse(_) => Ok(Step::Failed(Refusal::WrongResponse, None)),
        mm::Message::AuthenticationFailure(f) => failed(&f, &vector),
        _ => Err(Refusal::Protocol("an answer that was not awaited").into()),
    }
}

/// What answers an AUTHENTICATION REQUEST.
pub(super) fn is_answer(input: &Input) -> bool {
    let Input::Mm(m) = input else { return false };
    matches!(**m, mm::Message::AuthenticationResponse(_) | mm::Message::AuthenticationFailure(_))
}

/// RES* absent under 5G-AKA counts as wrong (TS 24.501 §5.4.1.3.5).
fn answers(m: &AuthenticationResponse, vector: &AuthenticationVector) -> bool {
    m.res_star.is_some_and(|r| {
        let res_star = ResStar::new(r.0);
        vector.hres_star_matches(&res_star) && vector.res_star_matches(&res_star)
    })
}

/// TS 33.512 §4.2.2.1.1, TS 24.501 §5.4.1.3.7 c, TS 24.501 §5.4.1.3.7 d, TS 24.501 §5.4.1.3.7 e, TS 24.501 §5.4.1.3.7 f.
fn failed(f: &AuthenticationFailure, vector: &AuthenticationVector) -> Result<Step, End> {
    match f.cause {
        MmCause::SynchFailure => {
            let auts = f.auts.ok_or(Refusal::Protocol("AUTHENTICATION FAILURE #21 without AUTS"))?;
            Ok(Step::Resynchronise(Resynchronisation { rand: vector.rand, auts: Auts(auts.0) }))
        }
        MmCause::NgKsiAlreadyInUse => Ok(Step::KsiInUse),
        MmCause::MacFailure => Ok(Step::Failed(Refusal::MacFailure, None)),
        other => Ok(Step::Failed(Refusal::ChallengeRefused(other.value()), None)),
    }
}
