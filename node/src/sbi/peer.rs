//! One remote network function: where it is, and what its failures mean to UEs, to the log and to the operator.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Method, StatusCode, Uri};
use tracing::{info, warn};
use whimbrel_control::udm::{NfType, ServiceFault};
use whimbrel_files::PEM_OCTETS_MAX;
use whimbrel_sbi::message::{JSON, MERGE_PATCH_JSON};
use whimbrel_sbi::nrf::{self, DiscoveryQuery, NrfClient, NrfError};
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiResponse, SendError, ServerSettings};
use whimbrel_sbi_types::common::ProblemDetails;
use whimbrel_sbi_types::nnrf::{self, AccessToken, ServiceName};

use super::SbiFigures;
use super::reload::SbiTlsConfig;
use crate::clock;
use crate::config::sbi::ApiRoot;
use crate::log_limiter::LogLimiter;
use crate::observation::{Condition, Console};

/// The longest identity of a resource of another function.
const IDENTITY_OCTETS_MAX: usize = 256;

/// Where the function is.
pub(super) enum PeerSource {
    /// At this API root.
    At(ApiRoot),
    /// Where the NRF says.
    Nrf {
        /// The NRF, as this core's functions use it; the first is the AMF.
        nrf: Vec<NrfClient>,
        /// The type that is asked for.
        target: nnrf::NfType,
        /// Requests carry access tokens of the NRF (TS 33.501 §13.4.1).
        uses_tokens: bool,
    },
}

/// A remote network function.
pub(super) struct Peer {
    nf: NfType,
    source: PeerSource,
    client: SbiClient,
    within: Duration,
    console: Arc<Console>,
    counts: Arc<SbiFigures>,
    log: Mutex<LogState>,
    /// The API root that was used last.
    root: Mutex<String>,
    /// Grows with each request, which spreads them over equal instances.
    turn: AtomicUsize,
}

struct LogState {
    limiter: LogLimiter<(&'static str, String)>,
    /// An operation has failed since one was answered.
    failing: bool,
}

/// A response, as far as consumers look at it.
pub(super) struct Reply {
    pub(super) status: u16,
    /// The cause of a refusal (TS 29.500 §5.2.7.2).
    pub(super) cause: Option<String>,
    /// Explanation of a refusal in plain text.
    detail: Option<String>,
    pub(super) body: Vec<u8>,
    /// The header with the media type of the body.
    pub(super) content_type: String,
    /// The URI of a created resource.
    pub(super) location: Option<String>,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The identity of the resource that was created in a collection, from the URI in Location.
    ///
    /// The host there is not taken: requests go to the function that is configured.
    pub(super) fn created_in(&self, collection: &str) -> Option<&str> {
        let path = self.location.as_deref()?.split(['?', '#']).next().unwrap_or_default();
        let identity = path.rsplit('/').next().unwrap_or_default();
        // RFC 3986 §3.3.
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@%".contains(c);
        let is_plain = (1..=IDENTITY_OCTETS_MAX).contains(&identity.len()) && identity.chars().all(plain);
        let is_collection = collection.rsplit('/').next() == Some(identity);
        (is_plain && !is_collection && !matches!(identity, "." | "..")).then_some(identity)
    }

    pub(super) fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }
}

impl From<SbiResponse> for Reply {
    fn from(response: SbiResponse) -> Self {
        // free5GC sends problem details as application/json.
        let refusal =
            if response.status.is_success() { None } else { response.read::<ProblemDetails>().ok() };
        let detail = refusal.as_ref().and_then(|problem| {
            let texts = [problem.detail.as_ref(), problem.title.as_ref()];
            texts.into_iter().flatten().map(|text| text.as_str().to_owned()).next()
        });
        Self {
            status: response.status.as_u16(),
            detail,
            cause: refusal.and_then(|problem| problem.cause).map(|cause| cause.as_str().to_owned()),
            location: response.location().map(str::to_owned),
            content_type: response.content_type().to_owned(),
            body: response.body.to_vec(),
        }
    }
}

impl Peer {
    pub(super) fn new(
        nf: NfType,
        source: PeerSource,
        client: SbiClient,
        within: Duration,
        console: Arc<Console>,
        counts: Arc<SbiFigures>,
    ) -> Self {
        let log = LogState { limiter: LogLimiter::new("network functions"), failing: false };
        let root = match &source {
            PeerSource::At(root) => root.uri(),
            PeerSource::Nrf { .. } => "that the NRF names".into(),
        };
        let (log, root) = (Mutex::new(log), Mutex::new(root));
        Self { nf, source, client, within, console, counts, log, root, turn: AtomicUsize::new(0) }
    }

    /// The API root that was used last, as text.
    pub(super) fn root_text(&self) -> String {
        self.root.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The NRF as the consumer uses it: tokens are for the function that shows them. A function that is not registered has the AMF ask.
    fn nrf_of(&self, consumer: &str) -> Option<&NrfClient> {
        match &self.source {
            PeerSource::At(_) => None,
            PeerSource::Nrf { nrf, .. } => {
                nrf.iter().find(|nrf| nrf.nf_type().as_str() == consumer).or_else(|| nrf.first())
            }
        }
    }

    /// The roots of a service, best first, and the token for it.
    async fn roots(
        &self,
        service: &str,
        consumer: &str,
    ) -> Result<(Vec<whimbrel_sbi::ApiRoot>, Option<AccessToken>), (ServiceFault, String)> {
        let (target, uses_tokens) = match &self.source {
            PeerSource::At(root) => {
                let root = root.uri().parse().map_err(|e: SendError| (fault_of(&e), e.to_string()))?;
                return Ok((vec![root], None));
            }
            PeerSource::Nrf { target, uses_tokens, .. } => (target, *uses_tokens),
        };
        let nrf =
            self.nrf_of(consumer).ok_or_else(|| (ServiceFault::NoInstance, "no NRF is named".into()))?;
        let of_nrf = |e: NrfError| match e {
            NrfError::Send(e) => (fault_of(&e), format!("the NRF does not answer: {e}")),
            e => (ServiceFault::NoInstance, format!("the NRF: {e}")),
        };
        let name: ServiceName =
            service.parse().map_err(|_| (ServiceFault::NoInstance, "no such service".into()))?;
        let mut query = DiscoveryQuery::new(target.clone(), [name.clone()]);
        // UDMs may allow nudm-ueau to AUSFs alone: Open5GS's does.
        query.requester_nf_type = consumer.parse().ok();
        let found = nrf.discover(&query).await.map_err(of_nrf)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let roots: Vec<_> = nrf::producers(&found.instances, turn)
            .into_iter()
            .flat_map(|profile| nrf::roots_of(profile, &name))
            .collect();
        if roots.is_empty() {
            return Err((
                ServiceFault::NoInstance,
                format!("the NRF knows no registered instance with {service}"),
            ));
        }
        let token = if uses_tokens { Some(nrf.token(target, service).await.map_err(of_nrf)?) } else { None };
        Ok((roots, token))
    }

    /// Sends a request for an operation, with a JSON body. A failure is logged and counted here.
    pub(super) async fn send(
        &self,
        operation: &'static str,
        method: RequestMethod,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Reply, ServiceFault> {
        let media_type = if method == RequestMethod::MergePatch { MERGE_PATCH_JSON } else { JSON };
        let body = body.map(|octets| (HeaderValue::from_static(media_type), octets));
        self.send_body(operation, method, path, body).await
    }

    /// The same with a body of a media type.
    pub(super) async fn send_body(
        &self,
        operation: &'static str,
        method: RequestMethod,
        path: &str,
        body: Option<(HeaderValue, Vec<u8>)>,
    ) -> Result<Reply, ServiceFault> {
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let (roots, token) = match self.roots(service, consumer(path)).await {
            Ok(found) => found,
            Err((fault, detail)) => {
                self.failed(operation, fault, &detail);
                return Err(fault);
            }
        };
        if let Some(first) = roots.first() {
            *self.root.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = first.to_string();
        }
        let http = match method {
            RequestMethod::Get => Method::GET,
            RequestMethod::Post => Method::POST,
            RequestMethod::Put => Method::PUT,
            RequestMethod::Delete => Method::DELETE,
            RequestMethod::MergePatch => Method::PATCH,
        };
        let request = SbiRequest::new(http, Uri::default(), self.within)
            .header(USER_AGENT, HeaderValue::from_static(consumer(path)));
        let request = match body {
            Some((content_type, octets)) => request.content(content_type, octets.into()),
            None => request,
        };
        let request = match token.as_ref().map(|token| nrf::authorized(request.clone(), token)) {
            Some(Some(authorized)) => authorized,
            Some(None) | None => request,
        };
        match self.client.send_to_any(&request, path, &roots).await {
            Ok(response) => {
                // The next request has another token: the NRF may have changed its key.
                if response.status == StatusCode::UNAUTHORIZED
                    && token.is_some()
                    && let Some(nrf) = self.nrf_of(consumer(path))
                {
                    nrf.forget_tokens();
                }
                self.counts.answered.fetch_add(1, Ordering::Relaxed);
                self.answered();
                Ok(response.into())
            }
            Err(e) => {
                let fault = fault_of(&e);
                self.failed(operation, fault, &e.to_string());
                Err(fault)
            }
        }
    }

    /// An answer cannot be used.
    pub(super) fn invalid(&self, operation: &'static str, why: &str) {
        self.failed(operation, ServiceFault::InvalidAnswer, &format!("its answer cannot be used: {why}"));
    }

    /// An operation was refused for a reason that is not the subscriber's.
    pub(super) fn refused(&self, operation: &'static str, reply: &Reply) {
        let texts: Vec<String> =
            [&reply.cause, &reply.detail].into_iter().flatten().map(|text| printable(text)).collect();
        let cause = if texts.is_empty() { String::new() } else { format!(" ({})", texts.join(": ")) };
        let detail = format!("it answered with HTTP status {}{cause}", reply.status);
        self.failed(operation, ServiceFault::Status(reply.status), &detail);
    }

    /// An answer has a part that has no effect here.
    pub(super) fn note(&self, operation: &'static str, text: &str) {
        let mut log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if log.limiter.allows(clock::now(), (operation, text.to_owned())) {
            info!("{operation} at the {} {}: {text}", self.nf, self.root_text());
        }
    }

    fn failed(&self, operation: &'static str, fault: ServiceFault, detail: &str) {
        let word = word_of(fault);
        *self
            .counts
            .faults
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .entry(word)
            .or_default() += 1;
        let sentence =
            format!("{operation} at the {} {} fails: {detail}; {}", self.nf, self.root_text(), remedy(fault));
        let mut log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        log.failing = true;
        if log.limiter.allows(clock::now(), (operation, word.to_owned())) {
            warn!("{sentence}");
        }
        drop(log);
        self.console.components(|c| c.set(component_of(self.nf), Condition::Limited, sentence));
    }

    fn answered(&self) {
        let mut log = self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if std::mem::take(&mut log.failing) {
            log.limiter = LogLimiter::new("network functions");
            info!("the {} {} answers again", self.nf, self.root_text());
        }
        drop(log);
        let detail = format!("{} answers", self.root_text());
        self.console.components(|c| c.set(component_of(self.nf), Condition::Up, detail));
    }
}

/// The function of this core that is the consumer (TS 29.500 §5.2.2.2).
fn consumer(path: &str) -> &'static str {
    match path {
        path if path.starts_with("/nudm-ueau/") => "AUSF",
        path if path.starts_with("/nchf-convergedcharging/") => "SMF",
        path if path.starts_with("/npcf-smpolicycontrol/") => "SMF",
        path if path.contains("/smf-registrations/") || path.contains("/sm-data") => "SMF",
        _ => "AMF",
    }
}

/// Methods of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestMethod {
    Get,
    Post,
    Put,
    Delete,
    /// PATCH with a merge patch (RFC 7396).
    MergePatch,
}

/// The function's part in the status.
const fn component_of(nf: NfType) -> &'static str {
    match nf {
        NfType::Udm => "udm",
        NfType::Chf => "chf",
        NfType::Pcf => "pcf",
        NfType::Smf => "smf",
    }
}

pub(super) fn fault_of(e: &SendError) -> ServiceFault {
    match e {
        SendError::NoInstance => ServiceFault::NoInstance,
        SendError::Uri(_) | SendError::Resolve(..) | SendError::Connect(..) | SendError::NotHttp2(_) => {
            ServiceFault::NotConnected
        }
        SendError::Refused(_) | SendError::Reset(..) | SendError::Broken(..) => ServiceFault::NotConnected,
        SendError::NoTls(_)
        | SendError::TlsName(_)
        | SendError::TlsExpired(_)
        | SendError::TlsUntrusted(_)
        | SendError::Tls(..) => ServiceFault::NotTrusted,
        SendError::TimedOut(..) => ServiceFault::TimedOut,
        SendError::Busy(..) | SendError::RetryAfter(..) => ServiceFault::Busy,
        SendError::Request(..) | SendError::TooLong(..) | SendError::ContentType(..) => {
            ServiceFault::InvalidAnswer
        }
    }
}

/// The client of all functions.
pub(super) fn client(tls: &SbiTlsConfig) -> SbiClient {
    SbiClient::new(ClientSettings { tls: tls.client.clone(), ..ClientSettings::new("AMF") })
}

/// Bounds and certificates of the server.
pub(super) fn server_settings(tls: &SbiTlsConfig) -> ServerSettings {
    ServerSettings { tls: tls.server.clone(), ..ServerSettings::default() }
}

pub(super) fn read(file: &Path, key: &str) -> Result<Vec<u8>, String> {
    whimbrel_files::read(file, PEM_OCTETS_MAX)
        .map_err(|e| format!("`{key}`: {} cannot be read: {e}", file.display()))
}

/// The reason in metrics.
const fn word_of(fault: ServiceFault) -> &'static str {
    match fault {
        ServiceFault::NoInstance => "no_instance",
        ServiceFault::NotConnected => "not_connected",
        ServiceFault::NotTrusted => "not_trusted",
        ServiceFault::TimedOut => "timed_out",
        ServiceFault::Status(_) => "http_status",
        ServiceFault::InvalidAnswer => "invalid_answer",
        ServiceFault::Busy => "busy",
    }
}

const fn remedy(fault: ServiceFault) -> &'static str {
    match fault {
        ServiceFault::NoInstance => "check that it is registered at the NRF",
        ServiceFault::NotConnected => {
            "check that it runs, that its address in `sbi` is right, and that no firewall is between"
        }
        ServiceFault::NotTrusted => "check the certificates and authorities of `sbi.tls` on both sides",
        ServiceFault::TimedOut => "it is slow or overloaded, or the network loses packets",
        ServiceFault::Status(_) => "its log says why",
        ServiceFault::InvalidAnswer => "it does not answer as Release 17 has it: ask its vendor",
        ServiceFault::Busy => {
            "too many requests await its answers: it is slow, or more UEs come than it can serve"
        }
    }
}

/// The printable part of a text of another function, for the log, without its numbers: they may name a subscriber.
fn printable(text: &str) -> String {
    let plain = text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(64);
    plain.map(|c| if c.is_ascii_digit() { 'x' } else { c }).collect()
}
