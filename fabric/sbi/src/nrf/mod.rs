//! The consumer of the NRF: registration with heartbeats, discovery, subscriptions and access tokens (TS 29.510).
//!
//! While the NRF is down, its last answers stay in use: discoveries beyond their validity, tokens until they expire. The profile is
//! registered again when it is back, also when it has forgotten the instance.

mod cache;
mod query;
mod registration;
mod tokens;

use core::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Method, StatusCode};
use tokio::sync::{Notify, watch};
use whimbrel_sbi_types::BodyError;
use whimbrel_sbi_types::common::{NfInstanceId, ProblemDetails, UriScheme};
use whimbrel_sbi_types::nnrf::{
    AccessToken, NfProfile, NfService, NfServiceStatus, NfStatus, NfType, NotificationData,
    NotificationEventType, ServiceName, SubscriptionData,
};

pub use cache::Discovered;
pub use query::DiscoveryQuery;
pub use registration::NrfState;

use crate::client::SbiClient;
use crate::endpoint::ApiRoot;
use crate::error::SendError;
use crate::message::{SbiRequest, SbiResponse};
use cache::DiscoveryCache;
use tokens::TokenCache;

/// The NRF and the instance that registers there.
#[derive(Clone, Debug)]
pub struct NrfSettings {
    /// NRFs in the order in which they are asked.
    pub roots: Vec<ApiRoot>,
    /// The instance as it is registered.
    pub profile: NfProfile,
    /// Requests to the NRF carry a token of it (TS 33.501 §13.4.1), except for registration and token requests.
    pub uses_tokens: bool,
    /// Time for one request.
    pub request_within: Duration,
    /// Between attempts to register, or to send a heartbeat that failed.
    pub retry_every: Duration,
}

impl NrfSettings {
    /// Defaults for this instance at these NRFs.
    pub fn new(roots: Vec<ApiRoot>, profile: NfProfile) -> Self {
        Self {
            roots,
            profile,
            uses_tokens: false,
            request_within: Duration::from_secs(3),
            retry_every: Duration::from_secs(5),
        }
    }
}

/// Why the NRF gave no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NrfError {
    /// The NRF sent no response.
    Send(SendError),
    /// The NRF refused the request.
    Refused(Box<ProblemDetails>),
    /// The body of the response is not what it should be.
    Body(BodyError),
    /// A header or a query would have to hold what it cannot.
    Unwritable,
}

impl fmt::Display for NrfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(e) => write!(f, "the NRF does not answer: {e}"),
            Self::Refused(problem) => {
                write!(f, "the NRF answers with status {}", problem.status.unwrap_or_default())?;
                if let Some(cause) = &problem.cause {
                    write!(f, ", {cause}")?;
                }
                match &problem.detail {
                    Some(detail) => write!(f, ": {detail}"),
                    None => Ok(()),
                }
            }
            Self::Body(e) => write!(f, "the body of the NRF's answer is wrong: {e}"),
            Self::Unwritable => f.write_str("the request to the NRF cannot be written"),
        }
    }
}

impl core::error::Error for NrfError {}

impl From<SendError> for NrfError {
    fn from(e: SendError) -> Self {
        Self::Send(e)
    }
}

impl From<BodyError> for NrfError {
    fn from(e: BodyError) -> Self {
        Self::Body(e)
    }
}

/// The consumer of the NRF. Cloned handles share it; the registration ends with the last of them.
#[derive(Clone)]
pub struct NrfClient(Arc<NrfHandle>);

struct NrfHandle {
    shared: Arc<NrfShared>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for NrfHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct NrfShared {
    client: SbiClient,
    roots: Vec<ApiRoot>,
    nf_instance_id: NfInstanceId,
    nf_type: NfType,
    uses_tokens: bool,
    request_within: Duration,
    retry_every: Duration,
    profile: Mutex<NfProfile>,
    /// The profile has changed, and is to be registered again.
    changed: Notify,
    state: watch::Sender<NrfState>,
    discoveries: DiscoveryCache,
    tokens: TokenCache,
}

impl fmt::Debug for NrfClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NrfClient({})", self.0.shared.nf_instance_id)
    }
}

impl NrfClient {
    /// Registers the instance, and keeps it registered. Within a tokio runtime.
    pub fn start(client: SbiClient, settings: NrfSettings) -> Self {
        let NrfSettings { roots, profile, uses_tokens, request_within, retry_every } = settings;
        let shared = Arc::new(NrfShared {
            client,
            roots,
            nf_instance_id: profile.nf_instance_id.clone(),
            nf_type: profile.nf_type.clone(),
            uses_tokens,
            request_within,
            retry_every,
            profile: Mutex::new(profile),
            changed: Notify::new(),
            state: watch::Sender::new(NrfState::Unregistered(
                "the registration has not been answered yet".into(),
            )),
            discoveries: DiscoveryCache::default(),
            tokens: TokenCache::default(),
        });
        let task = tokio::spawn(registration::keep(shared.clone()));
        Self(Arc::new(NrfHandle { shared, task }))
    }

    /// The state of the registration, as it changes.
    pub fn state(&self) -> watch::Receiver<NrfState> {
        self.0.shared.state.subscribe()
    }

    /// Changes the profile, and registers it again if it differs. The load alone goes with the next heartbeat.
    pub fn update(&self, change: impl FnOnce(&mut NfProfile)) {
        let mut profile = self.0.shared.profile();
        let before = profile.clone();
        change(&mut profile);
        let with_load_of_before =
            NfProfile { load: before.load, load_time_stamp: before.load_time_stamp, ..profile.clone() };
        let is_changed = with_load_of_before != before;
        drop(profile);
        if is_changed {
            self.0.shared.changed.notify_one();
        }
    }

    /// Ends the registration: NFDeregister (TS 29.510 §5.2.2.4).
    pub async fn deregister(&self) -> Result<(), NrfError> {
        self.0.task.abort();
        let shared = &self.0.shared;
        shared.state.send_replace(NrfState::Unregistered("the instance was deregistered".into()));
        let path = shared.instance_path();
        let request = shared.request(Method::DELETE);
        match shared.send(request, &path, Some(ServiceName::NnrfNfm)).await {
            // It was forgotten already.
            Err(NrfError::Refused(problem)) if problem.status == Some(404) => Ok(()),
            done => done.map(drop),
        }
    }

    /// The instances that fit a query: NFDiscover (TS 29.510 §5.3.2.2), from the cache while it is valid. Where the NRF does not answer, its
    /// last answer is the result, marked as stale.
    pub async fn discover(&self, query: &DiscoveryQuery) -> Result<Discovered, NrfError> {
        let shared = &self.0.shared;
        let text = query.to_query(&shared.nf_type).ok_or(NrfError::Unwritable)?;
        shared.discoveries.get(&text, shared.fetch(&text)).await
    }

    /// A token for services of a type of producer: TS 29.510 §5.4.2.2, from the cache while it is valid. `scope`: names of services,
    /// separated by blanks. Some NRFs give a token for one service only.
    pub async fn token(&self, producers: &NfType, scope: &str) -> Result<AccessToken, NrfError> {
        self.0.shared.token(producers, scope).await
    }

    /// Forgets the tokens that are kept: a producer has refused one, as after a change of the NRF's key.
    pub fn forget_tokens(&self) {
        self.0.shared.tokens.clear();
    }

    /// The type of the registered instance.
    pub fn nf_type(&self) -> &NfType {
        &self.0.shared.nf_type
    }

    /// Subscribes to the state of instances, `POST /subscriptions`: TS 29.510 §5.2.2.5. The answer has the identity and the validity.
    pub async fn subscribe(&self, subscription: &SubscriptionData) -> Result<SubscriptionData, NrfError> {
        let shared = &self.0.shared;
        let request = shared.request(Method::POST).json(subscription);
        let response = shared.send(request, "/nnrf-nfm/v1/subscriptions", Some(ServiceName::NnrfNfm)).await?;
        Ok(response.read()?)
    }

    /// Ends a subscription: TS 29.510 §5.2.2.6.
    pub async fn unsubscribe(&self, subscription: &SubscriptionData) -> Result<(), NrfError> {
        let shared = &self.0.shared;
        let id = subscription.subscription_id.as_ref().ok_or(NrfError::Unwritable)?;
        let mut path = String::from("/nnrf-nfm/v1/subscriptions/");
        whimbrel_sbi_types::nnrf::push_encoded(&mut path, id.as_str());
        shared.send(shared.request(Method::DELETE), &path, Some(ServiceName::NnrfNfm)).await.map(drop)
    }

    /// Takes a notification of the NRF into what is known: TS 29.510 §5.2.2.7.
    pub fn notify(&self, notification: &NotificationData) {
        let uri = notification.nf_instance_uri.as_str();
        let id = uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let Ok(id) = NfInstanceId::new(id) else { return };
        let discoveries = &self.0.shared.discoveries;
        match (&notification.event, &notification.nf_profile) {
            (NotificationEventType::NfDeregistered, _) => discoveries.remove(&id),
            (_, Some(profile)) if profile.nf_instance_id == id => discoveries.replace(profile),
            // A new instance, or changes that are not the whole profile: the NRF is asked again.
            _ => discoveries.expire(),
        }
    }
}

impl NrfShared {
    fn profile(&self) -> MutexGuard<'_, NfProfile> {
        self.profile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instance_path(&self) -> String {
        format!("/nnrf-nfm/v1/nf-instances/{}", self.nf_instance_id)
    }

    /// A request whose URI the roots give.
    fn request(&self, method: Method) -> SbiRequest {
        SbiRequest::new(method, hyper::Uri::default(), self.request_within)
    }

    /// Sends a request to the first NRF that answers. `service`: the scope of the token that goes with it.
    async fn send(
        &self,
        request: SbiRequest,
        path: &str,
        service: Option<ServiceName>,
    ) -> Result<SbiResponse, NrfError> {
        let mut request = request;
        if self.uses_tokens
            && let Some(service) = service
        {
            let token = Box::pin(self.token(&NfType::Nrf, service.as_str())).await?;
            request = authorized(request, &token).ok_or(NrfError::Unwritable)?;
        }
        let response = self.client.send_to_any(&request, path, &self.roots).await?;
        match response.status.is_success() {
            true => Ok(response),
            false => {
                if response.status == StatusCode::UNAUTHORIZED {
                    self.tokens.clear();
                }
                Err(NrfError::Refused(Box::new(response.problem())))
            }
        }
    }

    async fn fetch(&self, query: &str) -> Result<whimbrel_sbi_types::nnrf::SearchResult, NrfError> {
        let path = format!("/nnrf-disc/v1/nf-instances?{query}");
        let response = self.send(self.request(Method::GET), &path, Some(ServiceName::NnrfDisc)).await?;
        Ok(response.read()?)
    }
}

/// A request with a token (RFC 6750 §2.1); `None` if it cannot stand in a header.
pub fn authorized(request: SbiRequest, token: &AccessToken) -> Option<SbiRequest> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(request.header(AUTHORIZATION, value))
}

/// The roots at which a profile offers a service, best first: those of a service by its priority and its addresses (TS 29.510 §6.1.6.2.3).
pub fn roots_of(profile: &NfProfile, service_name: &ServiceName) -> Vec<ApiRoot> {
    let is_offered = |service: &&NfService| {
        service.service_name == *service_name && service.nf_service_status == NfServiceStatus::Registered
    };
    let mut services: Vec<&NfService> = profile.services().filter(is_offered).collect();
    services.sort_by_key(|service| service.priority.unwrap_or(u16::MAX));
    services.into_iter().flat_map(|service| addresses(profile, service)).collect()
}

/// The instances of an answer that can be used, best first: by priority, then by load and capacity. `turn` is a number that grows with each
/// call, and spreads requests over equal instances.
pub fn producers(profiles: &[NfProfile], turn: usize) -> Vec<&NfProfile> {
    let mut usable: Vec<&NfProfile> =
        profiles.iter().filter(|profile| profile.nf_status == NfStatus::Registered).collect();
    let rank = |profile: &NfProfile| {
        let load = profile.load.map_or(0, |load| load.value() / 10);
        (profile.priority.unwrap_or(u16::MAX), load, core::cmp::Reverse(profile.capacity.unwrap_or_default()))
    };
    usable.sort_by_key(|profile| rank(profile));
    let equal =
        usable.iter().take_while(|profile| Some(rank(profile)) == usable.first().map(|p| rank(p))).count();
    if let Some(best) = usable.get_mut(..equal)
        && equal > 1
    {
        best.rotate_left(turn % equal);
    }
    usable
}

fn addresses(profile: &NfProfile, service: &NfService) -> Vec<ApiRoot> {
    let scheme = service.scheme.as_str();
    // free5GC has the whole root in the member that is for the prefix of the path: the addresses say the same.
    let prefix = service.api_prefix.as_ref().map_or("", |prefix| prefix.as_str());
    let prefix = if prefix.contains("://") { "" } else { prefix.trim_matches('/') };
    let separator = if prefix.is_empty() { "" } else { "/" };
    let root = |host: String, port: Option<u16>| -> Option<ApiRoot> {
        let port = port.map_or(String::new(), |port| format!(":{port}"));
        format!("{scheme}://{host}{port}{separator}{prefix}").parse().ok()
    };
    let v4 = |address: &Ipv4Addr| address.to_string();
    let v6 = |address: &Ipv6Addr| format!("[{address}]");
    let end_points = service.ip_end_points.as_deref().unwrap_or_default();
    let first_port = end_points.first().and_then(|point| point.port);
    let fqdn = service.fqdn.as_ref().or(profile.fqdn.as_ref()).map(|fqdn| root(fqdn.to_string(), first_port));
    let mut by_address = Vec::new();
    for point in end_points {
        by_address.extend(point.ipv4_address.as_ref().map(|address| root(v4(address), point.port)));
        by_address.extend(point.ipv6_address.as_ref().map(|address| root(v6(address), point.port)));
    }
    if by_address.is_empty() {
        let hosts = profile.ipv4_addresses.iter().flatten().map(v4);
        let hosts = hosts.chain(profile.ipv6_addresses.iter().flatten().map(v6));
        by_address.extend(hosts.map(|host| root(host, first_port)));
    }
    // The certificate of TLS names the FQDN (TS 33.310 §6.1.3c); in clear an address needs no resolver.
    let mut all: Vec<ApiRoot> = match service.scheme {
        UriScheme::Https => fqdn.into_iter().chain(by_address).flatten().collect(),
        _ => by_address.into_iter().chain(fqdn).flatten().collect(),
    };
    all.dedup();
    all
}
