//! The NRF of this core, for its own functions and those of other vendors: Nnrf_NFManagement, Nnrf_NFDiscovery and Nnrf_AccessToken over
//! HTTP (TS 29.510 §6.1.3, §6.2.3, §6.3.3). Its state machine is the crate `whimbrel-nrf`.

mod files;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::header::{CACHE_CONTROL, HeaderValue, USER_AGENT};
use hyper::{StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::{debug, info, warn};
use whimbrel_nrf::registry::NOTIFICATIONS_MAX;
use whimbrel_nrf::{
    DiscoveryParameters, Nrf, NrfIdentity, NrfRefusal, StatusNotification, StoredProfile, TokenRefusal, token,
};
use whimbrel_sbi::message::JSON;
use whimbrel_sbi::problem::{congestion, of_status, problem, with_details};
use whimbrel_sbi::token::TokenSigner;
use whimbrel_sbi::{
    ProtocolCause, ReceivedRequest, SbiClient, SbiRequest, SbiResponse, SendError, headers, tls,
};
use whimbrel_sbi_types::common::{
    InvalidParam, JsonPointer, NfInstanceId, PatchItem, ProblemDetails, Sentence, ShortText,
};
use whimbrel_sbi_types::nnrf::{
    AccessTokenErr, AccessTokenErrorCode, AccessTokenRsp, NfProfile, NfStatus, NfType, ServiceName,
    SubscriptionId, TokenType,
};
use whimbrel_sbi_types::{BoundedList, to_vec};

use self::files::NrfFiles;
use super::offered::{CallbackPolicy, is_of_this_host, random_name};
use super::registration;
use super::udm::Consumer;
use crate::clock;
use crate::config::Config;
use crate::config::sbi::Sbi;
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Console};

/// How often heartbeats are looked at, and the state is written if it has changed.
const TICK: Duration = Duration::from_secs(1);
/// How long a subscriber may take to answer a notification.
const NOTIFIED_WITHIN: Duration = Duration::from_secs(5);
/// Wait of a function that finds the NRF full: until instances that are lost may have been removed.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Addresses and URIs of one profile, each of which is compared with those of this host: more than services have.
const ADDRESSES_MAX: usize = 64;
/// Media type of lists with links (TS 29.510 §6.1.2.2.2).
const HAL_JSON: &str = "application/3gppHal+json";

/// The NRF with its key and its files.
pub(super) struct NrfService {
    nrf: Mutex<Nrf>,
    signer: TokenSigner,
    files: NrfFiles,
    /// The root of this core's services, without a slash at its end.
    root: String,
    callbacks: CallbackPolicy,
    /// This core's own functions, which are registered from this host alone.
    own_functions: Vec<NfInstanceId>,
    client: SbiClient,
    console: Arc<Console>,
    log: Mutex<LogLimiter<String>>,
    registration_log: Mutex<LogLimiter<NfInstanceId>>,
    /// Room for notifications under way.
    notifications: Arc<Semaphore>,
    /// Held while the state is written.
    saving: Mutex<()>,
}

/// The result of a service operation; the error is its refusal.
type Served = Result<SbiResponse, SbiResponse>;

impl NrfService {
    /// Takes the state of the last run. Errors: one sentence.
    pub(super) fn new(
        config: &Config,
        sbi: &Sbi,
        consumer: &Consumer,
        console: Arc<Console>,
        client: SbiClient,
    ) -> Result<Self, String> {
        let files = NrfFiles::new(config);
        let signer = files.signer()?;
        info!(
            "the NRF of this core is NF instance {}; the public key of its access tokens is {}",
            consumer.nrf,
            files.public_key.display()
        );
        let identity = NrfIdentity {
            profile: own_profile(sbi, consumer),
            root: consumer.root.clone(),
            plmn: consumer.plmn.into(),
            demands_heartbeats: sbi.demand_heartbeats,
        };
        let mut nrf = Nrf::new(identity).map_err(|e| format!("the NRF of this core cannot start: {e}"))?;
        match files.read_state() {
            Ok(None) => {}
            Ok(Some(state)) => {
                let left_out = nrf.restore(clock::now(), &state);
                let (instances, _) = nrf.counts();
                info!(
                    "the NRF knows {instances} instances of its last run; {left_out} entries could not be used"
                );
            }
            Err(e) => warn!("the NRF has forgotten its instances, which register again: {e}"),
        }
        Ok(Self {
            nrf: Mutex::new(nrf),
            signer,
            files,
            root: consumer.root.clone(),
            callbacks: CallbackPolicy::new(vec![sbi.address, config.api.address]),
            own_functions: [
                &consumer.amf,
                &consumer.smf,
                &consumer.ausf,
                &consumer.udm,
                &consumer.pcf,
                &consumer.chf,
            ]
            .map(Clone::clone)
            .into(),
            client,
            console,
            log: Mutex::new(LogLimiter::new("the NRF of this core")),
            registration_log: Mutex::new(LogLimiter::new("registrations at the NRF of this core")),
            notifications: Arc::new(Semaphore::new(NOTIFICATIONS_MAX)),
            saving: Mutex::new(()),
        })
    }

    fn nrf(&self) -> MutexGuard<'_, Nrf> {
        self.nrf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at heartbeats and writes the state, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TICK).await;
            self.advance();
            let service = self.clone();
            // The disk may be slow, and requests do not wait for it.
            let _ = tokio::task::spawn_blocking(move || service.save()).await;
        }
    }

    /// Suspends and removes instances without heartbeats.
    fn advance(&self) {
        let mut nrf = self.nrf();
        nrf.advance(clock::now());
        let (instances, suspended) = nrf.counts();
        drop(nrf);
        self.notify();
        let (condition, detail) = match suspended {
            0 => (Condition::Up, format!("{instances} instances are registered")),
            _ => (
                Condition::Limited,
                format!(
                    "{instances} instances are registered, of which {suspended} send no heartbeats: check that they run"
                ),
            ),
        };
        self.console.components(|c| c.set("nrf", condition, detail));
    }

    /// Writes the state if it has changed.
    pub(super) fn save(&self) {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.nrf().take_changed();
        if let Some(state) = changed
            && let Err(e) = self.files.write_state(&state)
        {
            self.warn(
                "state",
                &format!("the instances of the NRF have to register again after a restart: {e}"),
            );
        }
    }

    fn warn(&self, problem: &str, sentence: &str) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.allows(clock::now(), problem.to_owned()) {
            warn!("{sentence}");
        }
    }

    /// Answers a request; `None` if its path is of no service of an NRF.
    pub(super) fn serve(&self, request: &ReceivedRequest) -> Option<SbiResponse> {
        let path: Vec<&str> = request.uri.path().trim_start_matches('/').split('/').collect();
        let served = match path.as_slice() {
            ["nnrf-nfm", "v1", rest @ ..] => self.manage(request, rest),
            ["nnrf-disc", "v1", "nf-instances"] => self.discover(request),
            ["nnrf-nfm" | "nnrf-disc", ..] => Err(no_such_resource()),
            ["oauth2", "token"] => Ok(self.token(request)),
            _ => return None,
        };
        self.notify();
        Some(served.unwrap_or_else(|refusal| refusal))
    }

    /// Nnrf_NFManagement (TS 29.510 §6.1.3).
    fn manage(&self, request: &ReceivedRequest, path: &[&str]) -> Served {
        let now = clock::now();
        match (request.method.as_str(), path) {
            ("GET", ["nf-instances"]) => {
                let (instances, found) = self
                    .nrf()
                    .list(request.uri.query().unwrap_or_default())
                    .map_err(|e| self.refusal(request, e))?;
                Ok(self.list(&instances, found))
            }
            ("GET", ["nf-instances", id]) => {
                let profile = self.nrf().profile(&instance(id)?).map_err(|e| self.refusal(request, e))?;
                Ok(SbiResponse::json(StatusCode::OK, &profile))
            }
            ("PUT", ["nf-instances", id]) => {
                let id = instance(id)?;
                self.check_sender(request, &id)?;
                let profile = StoredProfile::read(json_of(request)?).map_err(|e| self.refusal(request, e))?;
                self.check_addresses(request, &id, &profile)?;
                let nf_type = profile.profile().nf_type.clone();
                let registered =
                    self.nrf().register(now, &id, profile).map_err(|e| self.refusal(request, e))?;
                if !registered.is_new {
                    return Ok(SbiResponse::json(StatusCode::OK, &registered.profile));
                }
                let mut log = self.registration_log.lock().unwrap_or_else(PoisonError::into_inner);
                if log.allows(now, id.clone()) {
                    info!("NF instance {id} ({nf_type}) of {} registers", request.peer.ip());
                }
                drop(log);
                Ok(SbiResponse::created(&self.instance_uri(&id), &registered.profile))
            }
            ("PATCH", ["nf-instances", id]) => {
                let id = instance(id)?;
                self.check_sender(request, &id)?;
                let patch: BoundedList<PatchItem> = request.read()?;
                if !whimbrel_nrf::patch::is_heartbeat(&patch) {
                    let before = self.nrf().profile(&id).map_err(|e| self.refusal(request, e))?;
                    let patched = whimbrel_nrf::patch::apply(&before, &patch).and_then(StoredProfile::read);
                    let patched = patched.map_err(|e| self.refusal(request, e))?;
                    self.check_addresses(request, &id, &patched)?;
                }
                let updated = self.nrf().update(now, &id, &patch).map_err(|e| self.refusal(request, e))?;
                Ok(match updated.is_heartbeat {
                    true => SbiResponse::no_content(),
                    false => SbiResponse::json(StatusCode::OK, &updated.profile),
                })
            }
            ("DELETE", ["nf-instances", id]) => {
                let id = instance(id)?;
                self.check_sender(request, &id)?;
                self.nrf().deregister(&id).map_err(|e| self.refusal(request, e))?;
                Ok(SbiResponse::no_content())
            }
            ("POST", ["subscriptions"]) => self.subscribe(request),
            ("PATCH", ["subscriptions", name]) => {
                let name = self.subscription(request, name)?;
                let patch: BoundedList<PatchItem> = request.read()?;
                let renewed = self.nrf().renew(now, &name, &patch).map_err(|e| self.refusal(request, e))?;
                Ok(SbiResponse::json(StatusCode::OK, &renewed))
            }
            ("DELETE", ["subscriptions", name]) => {
                let name = self.subscription(request, name)?;
                self.nrf().unsubscribe(&name).map_err(|e| self.refusal(request, e))?;
                Ok(SbiResponse::no_content())
            }
            (_, ["nf-instances"] | ["nf-instances", _] | ["subscriptions"] | ["subscriptions", _]) => {
                Err(not_allowed())
            }
            _ => Err(no_such_resource()),
        }
    }

    fn instance_uri(&self, id: &NfInstanceId) -> String {
        format!("{}/nnrf-nfm/v1/nf-instances/{id}", self.root)
    }

    fn list(&self, instances: &[NfInstanceId], found: usize) -> SbiResponse {
        let items: Vec<Value> = instances.iter().map(|id| json!({"href": self.instance_uri(id)})).collect();
        let body = json!({
            "_links": {"self": {"href": format!("{}/nnrf-nfm/v1/nf-instances", self.root)}, "item": items},
            "totalItemCount": found,
        });
        SbiResponse::with_body(StatusCode::OK, HAL_JSON, to_vec(&body).into())
    }

    fn subscribe(&self, request: &ReceivedRequest) -> Served {
        let body = json_of(request)?;
        let uri = body.get("nfStatusNotificationUri").and_then(Value::as_str).unwrap_or_default();
        let checked = self.callbacks.check(uri, request.peer.ip());
        checked.map_err(|why| incorrect("/nfStatusNotificationUri", why))?;
        if let Some(subscriber) = body.get("reqNfInstanceId").and_then(Value::as_str) {
            let id = NfInstanceId::new(subscriber).map_err(|e| incorrect("/reqNfInstanceId", e.expected))?;
            self.check_certificate(request, Some(&id))?;
        }
        let name: SubscriptionId = random_name().parse().map_err(|_| no_such_resource())?;
        let subscribed =
            self.nrf().subscribe(clock::now(), &body, &name).map_err(|e| self.refusal(request, e))?;
        let location = format!("{}/nnrf-nfm/v1/subscriptions/{name}", self.root);
        Ok(SbiResponse::created(&location, &subscribed))
    }

    /// The subscription of a path, which the client's certificate allows to change.
    fn subscription(&self, request: &ReceivedRequest, name: &str) -> Result<SubscriptionId, SbiResponse> {
        let not_found = || problem(ProtocolCause::SubscriptionNotFound, "there is no such subscription");
        let name: SubscriptionId = name.parse().map_err(|_| not_found())?;
        let subscriber = self.nrf().subscriber(&name).cloned();
        self.check_certificate(request, subscriber.as_ref())?;
        Ok(name)
    }

    /// Nnrf_NFDiscovery (TS 29.510 §6.2.3).
    fn discover(&self, request: &ReceivedRequest) -> Served {
        if request.method != hyper::Method::GET {
            return Err(not_allowed());
        }
        let query = DiscoveryParameters::read(request.uri.query().unwrap_or_default())
            .map_err(|e| self.refusal(request, e))?;
        let found = self.nrf().discover(&query);
        let kept = HeaderValue::from_str(&format!("max-age={}", whimbrel_nrf::discovery::VALIDITY_PERIOD_S));
        let response = SbiResponse::json(StatusCode::OK, &found);
        Ok(match kept {
            Ok(kept) => response.header(CACHE_CONTROL, kept),
            Err(_) => response,
        })
    }

    /// Nnrf_AccessToken (TS 29.510 §6.3.3).
    fn token(&self, request: &ReceivedRequest) -> SbiResponse {
        if request.method != hyper::Method::POST {
            return not_allowed();
        }
        let granted = token::read_form(&request.body).and_then(|form| {
            let invalid =
                |description| TokenRefusal { error: AccessTokenErrorCode::InvalidClient, description };
            self.check_certificate(request, Some(&form.nf_instance_id))
                .map_err(|_| invalid("the client's certificate is for another instance"))?;
            let claims = self.nrf().grant(clock::now(), &form)?;
            let too_long = || TokenRefusal {
                error: AccessTokenErrorCode::InvalidScope,
                description: "the token would be too long",
            };
            Ok((self.signer.sign(&claims).ok_or_else(too_long)?, claims))
        });
        let response = match granted {
            Ok((access_token, claims)) => SbiResponse::json(
                StatusCode::OK,
                &AccessTokenRsp {
                    access_token,
                    token_type: TokenType::Bearer,
                    expires_in: u32::try_from(token::TOKEN_LIFE.as_secs()).ok(),
                    scope: Some(claims.scope),
                },
            ),
            Err(refusal) => {
                let sentence =
                    format!("a token for {} is refused: {}", request.peer.ip(), refusal.description);
                self.warn(&sentence, &sentence);
                SbiResponse::json(
                    StatusCode::BAD_REQUEST,
                    &AccessTokenErr {
                        error: refusal.error,
                        error_description: Sentence::new(refusal.description).ok(),
                        error_uri: None,
                    },
                )
            }
        };
        response.header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
    }

    /// Checks that the sender of a request may act for an instance: by its certificate, and those of this core from this host alone.
    fn check_sender(&self, request: &ReceivedRequest, id: &NfInstanceId) -> Result<(), SbiResponse> {
        if self.is_own_function(id) && !is_of_this_host(request.peer.ip().to_canonical()) {
            return Err(of_status(403, None, "the instance is a function of this core"));
        }
        self.check_certificate(request, Some(id))
    }

    fn is_own_function(&self, id: &NfInstanceId) -> bool {
        self.own_functions.iter().any(|own| own.as_str().eq_ignore_ascii_case(id.as_str()))
    }

    /// A certificate that names instances is for these alone (TS 33.310 §6.1.3c.3, TS 33.501 §13.3.1.2).
    fn check_certificate(
        &self,
        request: &ReceivedRequest,
        id: Option<&NfInstanceId>,
    ) -> Result<(), SbiResponse> {
        let Some(named) = request.client_certificate.as_ref().and_then(|c| tls::nf_instances(c)) else {
            return Ok(());
        };
        let is_named =
            |id: &NfInstanceId| named.iter().any(|named| named.as_str().eq_ignore_ascii_case(id.as_str()));
        match id.is_none_or(is_named) {
            true => Ok(()),
            false => {
                let sentence = format!(
                    "a request of {} is refused: its certificate is for another NF instance",
                    request.peer.ip()
                );
                self.warn(&sentence, &sentence);
                Err(of_status(403, None, "the client's certificate is for another NF instance"))
            }
        }
    }

    /// Refuses a profile that would lead its consumers to this core, or from another host into this one.
    fn check_addresses(
        &self,
        request: &ReceivedRequest,
        id: &NfInstanceId,
        profile: &StoredProfile,
    ) -> Result<(), SbiResponse> {
        if self.is_own_function(id) {
            return Ok(());
        }
        let (addresses, uris) = profile.addresses();
        let of_uri = |uri: &str| {
            let uri: Uri = uri.parse().ok()?;
            let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            let host = uri.host()?.trim_matches(['[', ']']);
            // A name is the consumers' to resolve: this core sends nothing to it.
            Some((host.parse().ok()?, Some(uri.port_u16().unwrap_or(default_port))))
        };
        let mut all: BTreeSet<(IpAddr, Option<u16>)> = addresses.into_iter().collect();
        all.extend(uris.into_iter().filter_map(of_uri));
        if all.len() > ADDRESSES_MAX {
            let detail = format!("a profile names {ADDRESSES_MAX} addresses at most");
            return Err(of_status(400, Some("OPTIONAL_IE_INCORRECT"), &detail));
        }
        let refused = all.iter().find_map(|(address, port)| {
            let checked = self.callbacks.check_endpoint(*address, *port, request.peer.ip());
            checked.err().map(|_| address)
        });
        match refused {
            None => Ok(()),
            Some(address) => {
                let sentence = format!(
                    "the registration of {} is refused: {address} is an address of this core or of this host",
                    request.peer.ip()
                );
                self.warn(&sentence, &sentence);
                let detail =
                    format!("functions cannot be led to {address}, which is this core, this host or no host");
                Err(of_status(400, Some("OPTIONAL_IE_INCORRECT"), &detail))
            }
        }
    }

    /// The refusal as problem details, with one log line an hour if the NRF is full.
    fn refusal(&self, request: &ReceivedRequest, refusal: NrfRefusal) -> SbiResponse {
        if refusal.status == 503 {
            self.warn(
                "full",
                &format!("requests are refused, as one of {}: {}", request.peer.ip(), refusal.detail),
            );
            return congestion(&refusal.detail, RETRY_AFTER);
        }
        let param = refusal.param.and_then(|param| JsonPointer::new(&param).ok());
        let reason = Sentence::new(&refusal.detail).ok();
        let body = ProblemDetails {
            status: Some(refusal.status),
            cause: ShortText::new(refusal.cause).ok(),
            detail: reason.clone(),
            invalid_params: param.map(|param| BoundedList::one(InvalidParam { param, reason })),
            ..ProblemDetails::default()
        };
        with_details(refusal.status, &body)
    }

    /// Sends the notifications that wait: Nnrf_NFManagement_NFStatusNotify (TS 29.510 §5.2.2.6). A failure is for the log alone.
    fn notify(&self) {
        let waiting = self.nrf().take_notifications();
        for notification in waiting {
            let Ok(uri) = notification.uri.parse::<Uri>() else { continue };
            let Ok(room) = self.notifications.clone().try_acquire_owned() else {
                self.warn(
                    "notifications",
                    "notifications of the NRF are lost: its subscribers answer too slowly",
                );
                return;
            };
            let client = self.client.clone();
            let body = notification.body.to_vec();
            tokio::spawn(async move {
                let _room = room;
                let mut answer = post(&client, &uri, body.clone()).await;
                if answer.as_ref().is_ok_and(|response| response.status == StatusCode::BAD_REQUEST)
                    && let Some(body) = StatusNotification::without_changes(&body)
                {
                    answer = post(&client, &uri, body).await;
                }
                match answer {
                    Ok(response) if response.status.is_success() => {}
                    Ok(response) => debug!("{NOTIFY} to {uri}: HTTP status {}", response.status.as_u16()),
                    Err(e) => debug!("{NOTIFY} to {uri}: {e}"),
                }
            });
        }
    }
}

/// The name of notifications (TS 29.500 Annex B).
const NOTIFY: &str = "Nnrf_NFManagement_NFStatusNotify";

/// Sends a notification.
async fn post(client: &SbiClient, uri: &Uri, body: Vec<u8>) -> Result<SbiResponse, SendError> {
    let mut request = SbiRequest::new(hyper::Method::POST, uri.clone(), NOTIFIED_WITHIN)
        .body(JSON, body.into())
        .header(USER_AGENT, HeaderValue::from_static("NRF"));
    if let Some(value) = headers::callback(NOTIFY, 1) {
        request = request.header(headers::CALLBACK, value);
    }
    client.send(request).await
}

/// The NRF's own profile.
fn own_profile(sbi: &Sbi, consumer: &Consumer) -> NfProfile {
    let mut profile = NfProfile::new(consumer.nrf.clone(), NfType::Nrf, NfStatus::Registered);
    profile.plmn_list = BoundedList::new(vec![consumer.plmn.into()]);
    match sbi.address.ip() {
        IpAddr::V4(address) => profile.ipv4_addresses = BoundedList::new(vec![address]),
        IpAddr::V6(address) => profile.ipv6_addresses = BoundedList::new(vec![address]),
    }
    let services = [ServiceName::NnrfNfm, ServiceName::NnrfDisc, ServiceName::NnrfOauth2];
    let services = services.iter().filter_map(|name| registration::service(sbi, name, "v1")).collect();
    profile.nf_services = BoundedList::new(services);
    profile
}

fn instance(text: &str) -> Result<NfInstanceId, SbiResponse> {
    NfInstanceId::new(text)
        .map_err(|_| problem(ProtocolCause::ResourceUriStructureNotFound, "the path names no UUID"))
}

/// The body as it came.
fn json_of(request: &ReceivedRequest) -> Result<Value, SbiResponse> {
    serde_json::from_slice(&request.body)
        .map_err(|e| problem(ProtocolCause::InvalidMsgFormat, &format!("the body is no JSON: {e}")))
}

fn incorrect(param: &str, reason: &str) -> SbiResponse {
    let reason = Sentence::new(reason).ok();
    let param = JsonPointer::new(param).ok();
    let body = ProblemDetails {
        status: Some(400),
        cause: ShortText::new("MANDATORY_IE_INCORRECT").ok(),
        detail: reason.clone(),
        invalid_params: param.map(|param| BoundedList::one(InvalidParam { param, reason })),
        ..ProblemDetails::default()
    };
    with_details(400, &body)
}

fn no_such_resource() -> SbiResponse {
    problem(ProtocolCause::ResourceUriStructureNotFound, "there is no such resource")
}

fn not_allowed() -> SbiResponse {
    of_status(StatusCode::METHOD_NOT_ALLOWED.as_u16(), None, "the resource has no such method")
}
