//! The server: one thread, bounded connections, headers, bodies and times; TLS beyond loopback.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{HeaderMap, Method};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tracing::info;

use super::auth::{Caller, Peer};
use super::patience::Patient;
use super::problem::Problem;
use super::routes::{self, BODY_OCTETS_MAX, Needs, ROUTES, Reply, Request, Route};
use super::{Shared, assets, port_owner, subscribers, tls, uri};
use crate::console::{Component, Condition, Metric};

/// Connections at once: some operators, a dashboard, a Prometheus; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 128;
/// A client that takes longer for its header, or for the TLS handshake, blocks a connection that others need.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// From the end of the header to the end of the answer; an import of 100,000 subscribers takes seconds.
const REQUEST_WITHIN: Duration = Duration::from_secs(60);
/// How long an import waits for another one to end; most do within it.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Octets of a header.
const HEADER_OCTETS_MAX: usize = 16 << 10;
/// How long requests in progress may take to end at a stop.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The running API; it stops when this is dropped.
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the API. Errors: one sentence that says why it cannot listen.
pub(crate) fn start(address: SocketAddr, shared: Arc<Shared>) -> Result<Server, String> {
    let key = if shared.is_core { "api.address" } else { "--api" };
    let listener =
        TcpListener::bind(address).map_err(|e| port_owner::cannot_listen(key, "TCP", address, &e))?;
    start_on(listener, address, shared)
}

/// Starts the API on an open listener. Errors: one sentence.
pub(crate) fn start_on(
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
) -> Result<Server, String> {
    let cannot = |e: std::io::Error| format!("the API cannot run on {address}: {e}");
    listener.set_nonblocking(true).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let store = &shared.config.store.path;
    let acceptor = match shared.is_tls() {
        true => Some(TlsAcceptor::from(tls::server(store, address.ip())?)),
        false => None,
    };
    if shared.is_core {
        // Not before the port is ours: a second start must not take the token from under the first.
        shared.auth.issue_local_token(store)?;
        if shared.auth.is_without_users() {
            info!(
                "the console has no user yet: `whimbrel console` prints a one-time link that makes the first"
            );
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (stop, stopped) = watch::channel(false);
    let serve = move || runtime.block_on(accept(listener, acceptor, shared, stopped));
    let thread = std::thread::Builder::new().name("api".into()).spawn(serve).map_err(cannot)?;
    Ok(Server { address, stop, thread: Some(thread) })
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let router = TowerToHyperService::new(router(shared.clone()));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = stream else {
            // Out of descriptors: the next try would fail at once as well.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (shared, router, stopped) = (shared.clone(), router.clone(), stopped.clone());
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let _permit = permit;
            // If the connection breaks, there is no client left to answer.
            match acceptor {
                None => serve(Patient::new(stream), peer, shared, router, stopped).await,
                Some(acceptor) => {
                    if let Ok(Some(stream)) = tokio::time::timeout(HEADER_WITHIN, tls(stream, acceptor)).await
                    {
                        serve(stream, peer, shared, router, stopped).await;
                    }
                }
            }
        });
    }
    let all = room.acquire_many(CONNECTIONS_MAX as u32);
    let _ = tokio::time::timeout(STOP_WITHIN, all).await;
}

type TlsStream = tokio_rustls::server::TlsStream<Patient<TcpStream>>;

/// The TLS handshake. A client that sends a request in clear gets an answer that says so.
async fn tls(stream: TcpStream, acceptor: TlsAcceptor) -> Option<TlsStream> {
    /// The first octet of a TLS record with a handshake message (RFC 8446 §5.1).
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 1 && first[0] != HANDSHAKE {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = stream;
        // What has come is read: a connection that is closed with unread octets would lose the answer.
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let problem = Problem::bad_request(IN_CLEAR);
        let body = serde_json::to_string(&problem).unwrap_or_default();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        return None;
    }
    acceptor.accept(Patient::new(stream)).await.ok()
}

/// The answer to a request in clear where TLS is spoken.
const IN_CLEAR: &str = "beyond loopback the API speaks HTTPS only: write https:// instead of http://";

async fn serve<S>(
    stream: S,
    peer: SocketAddr,
    shared: Arc<Shared>,
    router: TowerToHyperService<Router>,
    mut stopped: watch::Receiver<bool>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let service = service_fn(|request| answer(&shared, &router, peer, request));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_WITHIN).max_buf_size(HEADER_OCTETS_MAX);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(STOP_WITHIN, connection).await;
        }
    }
}

async fn answer(
    shared: &Shared,
    router: &TowerToHyperService<Router>,
    peer: SocketAddr,
    mut request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    shared.console.metrics.add(Metric::ApiRequests, 1);
    request.extensions_mut().insert(Peer(peer));
    let response = match tokio::time::timeout(REQUEST_WITHIN, router.call(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => refusal(Problem::timeout(format!("not done within {} s", REQUEST_WITHIN.as_secs()))),
    };
    if !response.status().is_success() && response.status() != hyper::StatusCode::NOT_MODIFIED {
        shared.console.metrics.add(Metric::ApiRefused, 1);
    }
    Ok(response)
}

fn refusal(problem: Problem) -> Response {
    Reply::from(problem).into_response()
}

/// The routes of the table, and the console's files.
fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        // The table names only methods that axum knows.
        let Ok(filter) = MethodFilter::try_from(route.method.clone()) else { continue };
        let handler = move |State(shared): State<Arc<Shared>>, request: HttpRequest| async move {
            let handled = handle(shared, route, request).await;
            handled.unwrap_or_else(Reply::from).into_response()
        };
        router = router.route(route.path, on(filter, handler));
    }
    let otherwise = |State(shared): State<Arc<Shared>>, request: HttpRequest| async move {
        match from_here(request.headers(), shared.config.api.address) {
            Ok(()) => otherwise(&shared, &request).unwrap_or_else(Reply::from).into_response(),
            Err(problem) => refusal(problem),
        }
    };
    router.fallback(otherwise).method_not_allowed_fallback(otherwise).with_state(shared)
}

/// A request of no route: one of the console's files, or a mistake.
fn otherwise(shared: &Shared, request: &HttpRequest) -> Result<Reply, Problem> {
    let path = request.uri().path();
    let methods = routes::methods_of(path);
    if !methods.is_empty() {
        return Err(Problem::method_not_allowed(&methods.join(", ")));
    }
    if shared.is_core
        && let Some(file) = assets::find(path)
    {
        return match *request.method() {
            Method::GET | Method::HEAD => Ok(file.reply(request.headers())),
            _ => Err(Problem::method_not_allowed("GET")),
        };
    }
    Err(Problem::not_found("no such path; GET /openapi.json lists them"))
}

async fn handle(shared: Arc<Shared>, route: &'static Route, request: HttpRequest) -> Result<Reply, Problem> {
    let (head, body) = request.into_parts();
    let peer = head.extensions.get::<Peer>().map_or_else(|| SocketAddr::from(([0; 4], 0)), |p| p.0);
    from_here(&head.headers, shared.config.api.address)?;
    let params = uri::matches(route.path, head.uri.path()).flatten();
    let params = params.ok_or_else(|| Problem::bad_request("the path is not percent-encoded UTF-8"))?;
    serves(&shared, route)?;
    let caller = match caller(&shared, route, &head.method, &head.headers) {
        Ok(caller) => caller,
        Err(problem) => {
            if route.is_audited() {
                let what = format!("{} {}", head.method, route.path);
                let (status, subscriber) = (problem.status(), params.first().cloned());
                subscribers::accessed(&shared, peer.to_string(), None, what, subscriber, status).await;
            }
            return Err(problem);
        }
    };
    if let Some(caller) = &caller {
        shared.auth.count(caller)?;
    }
    let query = routes::query(head.uri.query().unwrap_or_default())?;
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let _one_at_a_time = match route.body_max > BODY_OCTETS_MAX {
        true => Some(turn(&shared).await?),
        false => None,
    };
    let body = match Limited::new(body, route.body_max).collect().await {
        Ok(body) => body.to_bytes(),
        Err(e) if e.is::<LengthLimitError>() => return Err(Problem::too_large(route.body_max)),
        Err(_) => return Err(Problem::bad_request("the body ended early")),
    };
    if head.method != Method::GET && !body.is_empty() {
        const TAKEN: [&str; 3] = ["application/json", "application/merge-patch+json", "text/csv"];
        // None of these can be sent by a foreign web page without the browser asking first, which is refused.
        if !TAKEN.contains(&content_type.as_str()) {
            return Err(Problem::unsupported(&TAKEN.join(" or ")));
        }
    }
    let name = match &caller {
        Some(caller) => Some(caller.name.clone()),
        None => shared.auth.user_in_login(&body),
    };
    let subscriber = match route.is_personal() {
        true => params.first().cloned().or_else(|| subscribers::named_by(&body)),
        false => None,
    };
    let request = Request { params, query, content_type, headers: head.headers, body, peer, caller };
    if !route.is_audited() {
        return (route.handler)(shared.clone(), request).await;
    }
    let answer = (route.handler)(shared.clone(), request).await;
    let outcome = answer.as_ref().map_or_else(Problem::status, Reply::status);
    let what = format!("{} {}", head.method, route.path);
    subscribers::accessed(&shared, peer.to_string(), name, what, subscriber, outcome).await;
    answer
}

/// The sender of a request, if the route allows it.
fn caller(
    shared: &Shared,
    route: &Route,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Option<Caller>, Problem> {
    // A CPF has no users: it shows its own condition, and nothing of a UE.
    if !shared.is_core || route.needs == Needs::Nothing {
        return Ok(None);
    }
    let caller = shared.auth.caller(method, headers);
    if route.needs == Needs::Metrics && !shared.is_tls() {
        // A dashboard's session may be over.
        return Ok(caller.ok().flatten());
    }
    let caller = caller?.ok_or_else(|| {
        Problem::unauthorized(
            "this needs a login, or `Authorization: Bearer TOKEN`; commands on the core's host use the token file beside the store",
        )
    })?;
    let needed = match route.needs {
        Needs::May(scope) => scope,
        Needs::Metrics => super::auth::Scope::Metrics,
        Needs::Login | Needs::Nothing => return Ok(Some(caller)),
    };
    match caller.may(needed) {
        true => Ok(Some(caller)),
        false => Err(Problem::forbidden(format!(
            "{} may not do this: it needs the scope `{}`",
            caller.name,
            needed.word()
        ))),
    }
}

/// A CTA replica has no UEs to show, and its subscribers are copied from the primary: its answers would be wrong, and changes would be
/// overwritten.
fn serves(shared: &Shared, route: &Route) -> Result<(), Problem> {
    const ITS_OWN: [&str; 5] =
        ["/api/v1/status", "/api/v1/events", "/api/v1/refusals", "/metrics", "/openapi.json"];
    const OF_CPF: [&str; 3] = ["/api/v1/status", "/metrics", "/openapi.json"];
    if !shared.is_core {
        return if OF_CPF.contains(&route.path) {
            Ok(())
        } else {
            Err(Problem::not_found("a CPF shows only its own state: ask the CTA"))
        };
    }
    let is_other = |c: &&Component| c.name == "cta" && c.condition != Condition::Up;
    let other = shared.console.components(|c| c.all().find(is_other).map(|c| c.detail.clone()));
    let is_own = ITS_OWN.contains(&route.path) || matches!(route.needs, Needs::Login | Needs::Nothing);
    match other {
        Some(detail) if !is_own => Err(Problem::unavailable(format!("{detail}; ask the primary"))),
        _ => Ok(()),
    }
}

/// Waits for the turn of a request with a large body, for a bounded time: a slow sender must not block the next one.
async fn turn(shared: &Shared) -> Result<tokio::sync::SemaphorePermit<'_>, Problem> {
    let turn = tokio::time::timeout(TURN_WITHIN, shared.imports.acquire()).await;
    turn.map_err(|_| Problem::unavailable("another import is under way; try again when it has ended"))?
        .map_err(|_| Problem::unavailable("the API is stopping"))
}

/// Refuses requests that a browser sends for a foreign web page: a second defence beside tokens and cookies of this site alone.
fn from_here(headers: &HeaderMap, listens: SocketAddr) -> Result<(), Problem> {
    let host = headers.get(HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) && !port.is_empty() => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    if listens.ip().is_loopback() && !is_address && name != "localhost" {
        let detail = "the Host header names another host; use the address in `api.address`";
        return Err(Problem::forbidden(detail));
    }
    if let Some(origin) = headers.get("origin").and_then(|v| v.to_str().ok())
        && origin.split_once("://").map(|(_, o)| o) != Some(host)
    {
        return Err(Problem::forbidden("the request comes from a web page of another origin"));
    }
    Ok(())
}
