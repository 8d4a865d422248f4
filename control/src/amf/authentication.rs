//! Primary authentication: TS 33.501 §6.1.3, TS 24.501 §5.4.1. The method is the subscriber's ([`AuthMethod`]).
//!
//! [`AuthMethod`]: crate::udm::AuthMethod

use whimbrel_ids::Supi;
use whimbrel_nas::ie::{self, NgKsi};
use whimbrel_nas::mm::AuthenticationReject;
use whimbrel_open::msg::SignedGrant;
use whimbrel_privacy::operator::HomeSession;
use whimbrel_security::{Abba, KAmf, KSeaf};

use super::identification::ask_suci;
use super::n2::send_nas;
use super::{eap_aka_prime, five_g_aka, open_home, udm_client, veil_home};
use crate::procedure::{ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nudm::{AuthData, Identity, Resynchronisation, Vector};
use crate::state::DownlinkProtection;

/// Proof that the UE holds the subscriber's key. Only [`authenticate`] and [`open_attach`](super::open_attach) make one, and the security mode demands it.
pub(crate) struct Authenticated {
    /// SUPI of the authenticated subscriber.
    pub(crate) supi: Supi,
    /// The K_AMF that both sides now share.
    pub(crate) k_amf: KAmf,
    /// Its key set identifier.
    pub(crate) ng_ksi: NgKsi,
    /// EAP-Success, or a broker's answer, where EAP is used: it is sent to the UE in SECURITY MODE COMMAND.
    pub(crate) eap_success: Option<ie::EapMessage>,
}

/// The answer to a UE whose authentication failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailedAuthentication {
    /// AUTHENTICATION REJECT has to be sent.
    Rejected,
    /// None: an emergency registration goes on without authentication (TS 24.501 §5.4.1.3.5).
    Tolerated,
}

/// The outcome of one challenge.
pub(super) enum ChallengeStep {
    /// The UE is authenticated.
    Proved(ChallengeProof),
    /// The USIM reported SQN out of range.
    Resynchronise(Resynchronisation),
    /// The UE has another key under this key set identifier (#71).
    KsiInUse,
    /// The UE is not authenticated; with the reject to send.
    Failed(Refusal, Option<ie::EapMessage>),
}

/// The result of a challenge that the UE has answered correctly.
pub(super) struct ChallengeProof {
    pub(super) supi: Supi,
    pub(super) key: ProvedKey,
    pub(super) eap_success: Option<ie::EapMessage>,
    /// From the broker that is its home network.
    pub(super) grant: Option<HomeGrant>,
}

/// The key that the home network gives for the answer.
pub(super) enum ProvedKey {
    /// The anchor key.
    Seaf(KSeaf),
    /// K_AMF, where the serving network must not learn the SUPI from which it is derived.
    Amf(KAmf),
}

impl ProvedKey {
    fn k_amf(self, supi: Supi) -> KAmf {
        match self {
            Self::Seaf(k_seaf) => k_seaf.k_amf(supi, ABBA),
            Self::Amf(k_amf) => k_amf,
        }
    }
}

/// What a broker grants as the home network of an ordinary UE.
pub(crate) enum HomeGrant {
    /// Under the UE's name.
    Open(Box<SignedGrant>),
    /// Under the name of this session alone.
    Veil(Box<HomeSession>),
}

/// The home networks whose subscribers are authenticated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HomeNetworks {
    /// This network only.
    Own,
    /// This network, and those of configured brokers.
    Brokers,
}

/// The identity to authenticate, and where it comes from.
pub(crate) enum ClaimedIdentity {
    /// The UE has just sent its SUCI.
    Received(Identity),
    /// The SUPI of the UE's context; if authentication fails, the UE is identified first (TS 24.501 §5.4.1.3.5).
    Remembered(Identity),
}

/// Challenges in one procedure: the first, one after resynchronisation, one for an ngKSI in use, one after
/// identification. It bounds a UE that fails each time.
const CHALLENGES_MAX: u8 = 4;

/// The ABBA of Release 15 to 17 (TS 33.501 §A.7.1).
pub(super) const ABBA: Abba = Abba::RELEASE_15;

/// Step 9 of TS 23.502 §4.2.2.2.2. With the grant, if the UE's home network is a broker.
pub(crate) async fn authenticate(
    ue: Ue,
    claim: ClaimedIdentity,
    offered: NgKsi,
    failure: FailedAuthentication,
    homes: HomeNetworks,
) -> Result<(Authenticated, Option<HomeGrant>), ProcedureEnd> {
    let (mut identity, mut remembered) = match claim {
        ClaimedIdentity::Received(identity) => (identity, false),
        ClaimedIdentity::Remembered(identity) => (identity, true),
    };
    let mut ng_ksi = next_ksi(ue, offered);
    let mut resynchronisation = None;
    let mut resynchronised = None;
    let mut identifier = None;
    for _ in 0..CHALLENGES_MAX {
        let token = resynchronisation.take();
        let brokers = homes == HomeNetworks::Brokers;
        let broker = open_home::broker_of(ue, &identity).filter(|_| brokers);
        let hidden = veil_home::suci_of(ue, &identity).filter(|_| brokers);
        let step = match (hidden, broker) {
            (Some(suci), _) => veil_home::challenge(ue, suci?, token, (ng_ksi, resynchronised)).await?,
            (None, Some(broker)) => {
                open_home::challenge(ue, broker, &identity, token, (ng_ksi, resynchronised)).await?
            }
            (None, None) => {
                let AuthData { supi, vector } = udm_client::auth_data(ue, identity.clone(), token).await?;
                ue.with(|p| p.amf.claimed = Some(supi));
                let method = vector.method();
                let step = match vector {
                    Vector::FiveGAka(vector) => {
                        five_g_aka::challenge(ue, supi, vector, ng_ksi, resynchronised).await?
                    }
                    Vector::EapAkaPrime(vector, identity) => {
                        // After the first, a notification may have had the next one.
                        let fresh =
                            identifier.map_or_else(|| ue.random()[0], |before: u8| before.wrapping_add(2));
                        identifier = Some(fresh);
                        eap_aka_prime::challenge(ue, supi, vector, identity, ng_ksi, fresh).await?
                    }
                };
                match step {
                    ChallengeStep::Proved(_) => udm_client::confirm_authentication(ue, supi, method, true),
                    ChallengeStep::Failed(..) => udm_client::confirm_authentication(ue, supi, method, false),
                    ChallengeStep::Resynchronise(_) | ChallengeStep::KsiInUse => {}
                }
                step
            }
        };
        match step {
            ChallengeStep::Proved(ChallengeProof { supi, key, eap_success, grant }) => {
                let k_amf = key.k_amf(supi);
                return Ok((Authenticated { supi, k_amf, ng_ksi, eap_success }, grant));
            }
            ChallengeStep::Resynchronise(_) if resynchronised.is_some() => break,
            ChallengeStep::Resynchronise(token) => {
                resynchronised = Some(token.auts);
                resynchronisation = Some(token);
            }
            ChallengeStep::KsiInUse => ng_ksi = after(ng_ksi),
            // TS 24.501 §5.4.1.3.5, §5.4.1.3.7 c: perhaps the UE is not the one that the 5G-GUTI named.
            ChallengeStep::Failed(..) if remembered => {
                identity = Identity::Suci(ask_suci(ue, DownlinkProtection::Plain).await?);
                (remembered, resynchronised) = (false, None);
            }
            ChallengeStep::Failed(refusal, _) if failure == FailedAuthentication::Tolerated => {
                return Err(refusal.into());
            }
            ChallengeStep::Failed(refusal, eap) => return Err(not_accepted(ue, refusal, eap)),
        }
    }
    if failure == FailedAuthentication::Tolerated {
        return Err(Refusal::SynchFailure.into());
    }
    Err(not_accepted(ue, Refusal::SynchFailure, None))
}

/// ABBA as AUTHENTICATION REQUEST has it.
pub(super) fn abba() -> Result<ie::Abba, Refusal> {
    ie::Abba::new(ABBA.0).ok_or(Refusal::Protocol("ABBA"))
}

/// TS 33.512 §4.2.2.1.2, TS 24.501 §5.4.1.2.2.5, §5.4.1.3.5: AUTHENTICATION REJECT.
pub(super) fn not_accepted(ue: Ue, refusal: Refusal, eap_failure: Option<ie::EapMessage>) -> ProcedureEnd {
    let mut reject = AuthenticationReject::new();
    reject.eap_message = eap_failure;
    send_nas(ue, &reject.into(), DownlinkProtection::Current);
    refusal.into()
}

/// The first key set identifier.
const FIRST_KSI: NgKsi = match NgKsi::native(0) {
    Some(ksi) => ksi,
    None => NgKsi::NO_KEY,
};

/// A key set identifier that the UE does not use now, for else it refuses the challenge with #71 (TS 24.501
/// §5.4.1.3.2).
pub(super) fn next_ksi(ue: Ue, offered: NgKsi) -> NgKsi {
    let last = ue.with(|p| p.amf.security.ng_ksi).unwrap_or(offered);
    let next = if last.has_key() { after(last) } else { FIRST_KSI };
    if next == offered { after(next) } else { next }
}

/// Key set identifiers are 0 to 6; 7 names none (TS 24.501 §9.11.3.32).
fn after(ng_ksi: NgKsi) -> NgKsi {
    NgKsi::native((ng_ksi.value() + 1) % 7).unwrap_or(FIRST_KSI)
}
