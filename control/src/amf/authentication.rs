//! Primary authentication by 5G-AKA: TS 33.501 §6.1.3.2, TS 24.501 §5.4.1.3.

use whimbrel_ids::Supi;
use whimbrel_nas::ie::{self, MmCause, NgKsi};
use whimbrel_nas::mm::{self, AuthenticationFailure, AuthenticationReject, AuthenticationRequest};
use whimbrel_security::{Abba, AuthenticationVector, Auts, KAmf, ResStar};

use super::connection::send_nas;
use super::nas::Security;
use super::udm_client;
use crate::input::Input;
use crate::procedure::{End, Repeated, ask};
use crate::refusal::Refusal;
use crate::shard::Ue;
use crate::udm::{AuthData, Identity, Resynchronisation};

/// Proof that the phone holds the subscriber's key. Only [`authenticate`] makes one, and the security mode demands it.
pub(crate) struct Authenticated {
    /// Who it is.
    pub(crate) supi: Supi,
    /// The key that both sides now share.
    pub(crate) k_amf: KAmf,
    /// The name of that key.
    pub(crate) ng_ksi: NgKsi,
}

/// What the phone made of a challenge.
enum Reply {
    ResStar(ResStar),
    Failure(AuthenticationFailure),
}

/// How often one phone is challenged in one procedure: once, once more after resynchronisation, once more for an ngKSI in
/// use. A phone that fails for ever ends here.
const CHALLENGES_MAX: u8 = 3;

/// The ABBA of Release 15 to 17 (TS 33.501 §A.7.1).
const ABBA: Abba = Abba::RELEASE_15;

/// Step 9. HRES* is checked as the SEAF, RES* as the AUSF: TS 33.501 §6.1.3.2.
pub(crate) async fn authenticate(ue: Ue, identity: Identity, offered: NgKsi) -> Result<Authenticated, End> {
    let mut ng_ksi = next_ksi(ue, offered);
    let mut resynchronisation = None;
    for _ in 0..CHALLENGES_MAX {
        let was_resynchronised = resynchronisation.is_some();
        let AuthData { supi, vector } =
            udm_client::auth_data(ue, identity.clone(), resynchronisation.take()).await?;
        ue.with(|p| p.amf.claimed = Some(supi));
        match challenge(ue, &vector, ng_ksi).await? {
            Reply::ResStar(res_star) => {
                if !vector.hres_star_matches(&res_star) || !vector.res_star_matches(&res_star) {
                    return Err(not_accepted(ue, Refusal::WrongResponse)); // TS 24.501 §5.4.1.3.5
                }
                return Ok(Authenticated { supi, k_amf: vector.k_seaf.k_amf(supi, ABBA), ng_ksi });
            }
            Reply::Failure(f) => match f.cause {
                MmCause::SynchFailure if was_resynchronised => {
                    return Err(not_accepted(ue, Refusal::SynchFailure));
                }
                MmCause::SynchFailure => {
                    let auts = f.auts.ok_or(Refusal::Protocol("AUTHENTICATION FAILURE #21 without AUTS"))?;
                    resynchronisation = Some(Resynchronisation { rand: vector.rand, auts: Auts(auts.0) });
                }
                MmCause::NgKsiAlreadyInUse => ng_ksi = after(ng_ksi),
                MmCause::MacFailure => return Err(not_accepted(ue, Refusal::MacFailure)),
                _ => {
                    return Err(not_accepted(
                        ue,
                        Refusal::Protocol("AUTHENTICATION FAILURE of another cause"),
                    ));
                }
            },
        }
    }
    Err(not_accepted(ue, Refusal::SynchFailure))
}

async fn challenge(ue: Ue, vector: &AuthenticationVector, ng_ksi: NgKsi) -> Result<Reply, End> {
    let abba = ie::Abba::new(ABBA.0).ok_or(Refusal::Protocol("ABBA"))?;
    let mut request = AuthenticationRequest::new(ng_ksi, abba);
    request.rand = Some(ie::Rand(vector.rand.0));
    request.autn = Some(ie::Autn(vector.autn.0));
    let timer = Repeated::new("AUTHENTICATION REQUEST", ue.config().timers.t3560);
    let accepts = |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::AuthenticationResponse(_) | mm::Message::AuthenticationFailure(_)));
    match *ask(ue, Box::new(request.into()), Security::Current, timer, accepts).await? {
        mm::Message::AuthenticationResponse(m) => {
            // Absent under 5G-AKA counts as wrong (TS 24.501 §5.4.1.3.5).
            let res_star = m.res_star.map_or([0; 16], |r| r.0);
            Ok(Reply::ResStar(ResStar::new(res_star)))
        }
        mm::Message::AuthenticationFailure(f) => Ok(Reply::Failure(f)),
        _ => Err(Refusal::Protocol("an answer that was not awaited").into()),
    }
}

/// TS 24.501 §5.4.1.3.5: the phone learns that it is not who it claims to be.
fn not_accepted(ue: Ue, refusal: Refusal) -> End {
    send_nas(ue, &AuthenticationReject::new().into(), Security::Current);
    refusal.into()
}

/// The first key set identifier.
const FIRST_KSI: NgKsi = match NgKsi::native(0) {
    Some(ksi) => ksi,
    None => NgKsi::NO_KEY,
};

/// Another than the phone has in use, or it would refuse the challenge with #71 (TS 24.501 §5.4.1.3.2).
fn next_ksi(ue: Ue, offered: NgKsi) -> NgKsi {
    let last = ue.with(|p| p.amf.ng_ksi).unwrap_or(offered);
    let next = if last.has_key() { after(last) } else { FIRST_KSI };
    if next == offered { after(next) } else { next }
}

/// Key set identifiers are 0 to 6; 7 names none (TS 24.501 §9.11.3.32).
fn after(ng_ksi: NgKsi) -> NgKsi {
    NgKsi::native((ng_ksi.value() + 1) % 7).unwrap_or(FIRST_KSI)
}
