//! Nausf_UEAuthentication (TS 29.509 §5.2, §6.1): the challenge of an AMF's UE, and its confirmation.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION};
use whimbrel_control::udm::{Identity, Vector};
use whimbrel_ids::{Instant, Supi};
use whimbrel_sbi::problem::{of_status, problem};
use whimbrel_sbi::{ProtocolCause, ReceivedRequest, SbiResponse};
use whimbrel_sbi_types::BoundedMap;
use whimbrel_sbi_types::common::{Link, Links, LinksValueSchema, ShortText, Uri};
use whimbrel_sbi_types::nausf::{
    AuthResult, AuthenticationInfo, Av5gAka, ConfirmationData, ConfirmationDataResponse, EapPayload,
    EapSession, FiveGAuthData, HxresStar, Kseaf, UEAuthenticationCtx,
};
use whimbrel_sbi_types::nudm_ueau::{
    self as ueau, AuthType, Autn, Rand, ResynchronizationInfo, ServingNetworkName,
};
use whimbrel_security::{AuthenticationVector, EapAkaPrimeServer, EapVerdict, ResStar};

use super::super::identity::identity_of;
use super::{OfferedServices, Served, no_such_resource, random_name, user_not_found};
use crate::clock;

/// Media type of a challenge with its links (TS 29.509 §6.1.2.2).
const HAL_JSON: &str = "application/3gppHal+json";
/// Challenges under way: more than UEs that a busy network authenticates in [`OPEN_FOR`].
const CHALLENGES_MAX: usize = 16_384;
/// How long a challenge may be answered: five times T3560 (TS 24.501 Table 10.2.2) and some.
const OPEN_FOR: Duration = Duration::from_secs(60);

/// The challenges under way, by the identity of their resource.
#[derive(Default)]
pub(super) struct Ausf(Mutex<BTreeMap<String, UeChallenge>>);

struct UeChallenge {
    supi: Supi,
    serving_network: ServingNetworkName,
    begun: Instant,
    method: Method,
}

enum Method {
    FiveGAka(Box<AuthenticationVector>),
    EapAkaPrime(Box<EapAkaPrimeServer>),
}

impl Ausf {
    /// Keeps a challenge. Returns its identity; `None` if there is no room.
    fn keep(&self, challenge: UeChallenge) -> Option<String> {
        let id = random_name();
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if all.len() >= CHALLENGES_MAX {
            let now = challenge.begun;
            all.retain(|_, open| now.since(open.begun) < OPEN_FOR);
        }
        (all.len() < CHALLENGES_MAX).then(|| {
            all.insert(id.clone(), challenge);
            id
        })
    }

    /// Takes a challenge: each is answered once.
    fn take(&self, id: &str) -> Result<UeChallenge, SbiResponse> {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let open = all.remove(id).filter(|challenge| clock::now().since(challenge.begun) < OPEN_FOR);
        open.ok_or_else(|| {
            of_status(404, Some("CONTEXT_NOT_FOUND"), "there is no such authentication under way")
        })
    }
}

impl OfferedServices {
    pub(super) async fn authenticate(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        match (request.method.as_str(), path) {
            ("POST", ["ue-authentications"]) => {
                let info: AuthenticationInfo = request.read()?;
                let identity = identity_of(info.supi_or_suci.as_str()).ok_or_else(user_not_found)?;
                let token = info.resynchronization_info.as_ref();
                let (id, challenge) = self.challenge(identity, info.serving_network_name, token).await?;
                let location = format!("{}/nausf-auth/v1/ue-authentications/{id}", self.root);
                let body = whimbrel_sbi_types::to_vec(&challenge);
                let response = SbiResponse::with_body(StatusCode::CREATED, HAL_JSON, body.into());
                let location = HeaderValue::try_from(location).map_err(|_| super::system_failure())?;
                Ok(response.header(LOCATION, location))
            }
            ("PUT", ["ue-authentications", id, "5g-aka-confirmation"]) => {
                let data: ConfirmationData = request.read()?;
                let challenge = self.ausf.take(id)?;
                let Method::FiveGAka(vector) = challenge.method else { return Err(no_such_resource()) };
                let success = data.res_star.is_some_and(|res| vector.res_star_matches(&ResStar::new(res.0)));
                let outcome = ConfirmationDataResponse {
                    auth_result: if success { AuthResult::Success } else { AuthResult::Failure },
                    supi: success.then(|| challenge.supi.into()),
                    kseaf: success.then(|| Kseaf(*vector.k_seaf.octets())),
                };
                Ok(SbiResponse::json(StatusCode::OK, &outcome))
            }
            ("POST", ["ue-authentications", id, "eap-session"]) => {
                let session: EapSession = request.read()?;
                let challenge = self.ausf.take(id)?;
                self.eap_session(challenge, session.eap_payload.octets()).await
            }
            ("DELETE", ["ue-authentications", id, "5g-aka-confirmation" | "eap-session"]) => {
                // The UE has deregistered: its authentication is forgotten already (TS 29.509 §5.2.2.2.5).
                let _ = self.ausf.take(id);
                Ok(SbiResponse::no_content())
            }
            ("POST", ["ue-authentications", "deregister"]) => Ok(SbiResponse::no_content()),
            _ => Err(no_such_resource()),
        }
    }

    /// A challenge of the subscriber's method, with the identity of its resource.
    async fn challenge(
        &self,
        identity: Identity,
        serving_network: ServingNetworkName,
        token: Option<&ResynchronizationInfo>,
    ) -> Result<(String, UEAuthenticationCtx), SbiResponse> {
        let data = self.auth_data(identity, &serving_network, token).await?;
        let (auth_type, challenge, method) = match data.vector {
            Vector::FiveGAka(vector) => {
                let challenge = Av5gAka {
                    rand: Rand(vector.rand.0),
                    hxres_star: HxresStar(*vector.hxres_star.octets()),
                    autn: Autn(vector.autn.0),
                };
                (AuthType::FiveGAka, FiveGAuthData::FiveGAka(challenge), Method::FiveGAka(vector))
            }
            Vector::EapAkaPrime(vector, identity) => {
                let identifier = super::random()[0];
                let server = Box::new(EapAkaPrimeServer::new(*vector, &identity, identifier));
                let payload = EapPayload::new(&server.challenge()).ok_or_else(super::system_failure)?;
                (AuthType::EapAkaPrime, FiveGAuthData::Eap(payload), Method::EapAkaPrime(server))
            }
        };
        let relation = match method {
            Method::FiveGAka(_) => (UEAuthenticationCtx::FIVE_G_AKA, "5g-aka-confirmation"),
            Method::EapAkaPrime(_) => (UEAuthenticationCtx::EAP_SESSION, "eap-session"),
        };
        let kept = UeChallenge {
            supi: data.supi,
            serving_network: serving_network.clone(),
            begun: clock::now(),
            method,
        };
        let id = self.ausf.keep(kept).ok_or_else(|| {
            problem(ProtocolCause::InsufficientResources, "too many authentications are under way")
        })?;
        let links = self.links(&id, relation).ok_or_else(super::system_failure)?;
        let serving_network_name = Some(serving_network);
        Ok((id, UEAuthenticationCtx { auth_type, five_g_auth_data: challenge, links, serving_network_name }))
    }

    fn links(&self, id: &str, (relation, resource): (&str, &str)) -> Option<Links> {
        let href =
            Uri::new(&format!("{}/nausf-auth/v1/ue-authentications/{id}/{resource}", self.root)).ok()?;
        let link = LinksValueSchema::One(Link { href });
        BoundedMap::new(BTreeMap::from([(ShortText::new(relation).ok()?, link)]))
    }

    /// The UE's EAP-Response (TS 33.501 §6.1.3.1 steps 8 to 10).
    async fn eap_session(&self, challenge: UeChallenge, response: &[u8]) -> Served {
        let UeChallenge { supi, serving_network, method: Method::EapAkaPrime(server), .. } = challenge else {
            return Err(no_such_resource());
        };
        let session = |packet: Vec<u8>, result, kseaf, supi, links| {
            let eap_payload = EapPayload::new(&packet).ok_or_else(super::system_failure)?;
            let session = EapSession {
                eap_payload,
                kseaf,
                links,
                auth_result: Some(result),
                supi,
                supported_features: None,
                msk: None,
            };
            Ok(SbiResponse::json(StatusCode::OK, &session))
        };
        match server.judge(response) {
            EapVerdict::Accepted(k_ausf) => {
                let name = whimbrel_security::ServingNetworkName::new(self.plmn);
                let kseaf = Kseaf(*k_ausf.k_seaf(&name).octets());
                session(server.success(), AuthResult::Success, Some(kseaf), Some(supi.into()), None)
            }
            EapVerdict::SynchronizationFailure(auts) => {
                let token = ResynchronizationInfo { rand: Rand(server.rand().0), auts: ueau::Auts(auts.0) };
                let (_, next) = self.challenge(Identity::Supi(supi), serving_network, Some(&token)).await?;
                match next.five_g_auth_data {
                    FiveGAuthData::Eap(payload) => {
                        let packet = payload.octets().to_vec();
                        session(packet, AuthResult::Ongoing, None, None, Some(next.links))
                    }
                    FiveGAuthData::FiveGAka(_) => {
                        session(server.failure(false), AuthResult::Failure, None, None, None)
                    }
                }
            }
            EapVerdict::Refused(_) => session(server.failure(false), AuthResult::Failure, None, None, None),
        }
    }
}
