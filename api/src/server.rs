//! The server: one thread, bounded connections, headers, bodies and times; TLS beyond loopback. Commands of this host come over a Unix
//! socket, whose connections have slots of their own.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
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
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};
use whimbrel_broker_client::slots::{ConnectionSlot, ConnectionSlots, PeerPrefix, SlotBounds};
use whimbrel_node::local_socket::{self, ListenError, Uid};
use whimbrel_node::observation::{Component, Condition, Metric};
use whimbrel_node::port_owner;

use super::auth::{Caller, RequestPeer};
use super::patience::Patient;
use super::problem::ProblemDetails;
use super::routes::{self, BODY_OCTETS_MAX, Needs, ROUTES, Reply, Route, RoutedRequest};
use super::{HandlerContext, assets, subscribers, tls, uri};

/// Connections at once: some operators, a dashboard, a Prometheus. One address may be a port forward of several browsers, each of which opens
/// six.
const CONNECTIONS: SlotBounds = SlotBounds { total: 128, share: 64 };
/// Connections of this host's commands at once. They are of two users at most: root and the core's own.
const LOCAL_CONNECTIONS: SlotBounds = SlotBounds { total: 64, share: 48 };
/// A client that takes longer for its header, or for the TLS handshake, blocks a connection that others need.
const HEADER_WITHIN: Duration = Duration::from_secs(5);
/// From the end of the header to the end of the answer; an import of 100,000 subscribers takes seconds.
const REQUEST_WITHIN: Duration = Duration::from_secs(60);
/// A body without authentication is a login of some hundred octets: a client that takes longer blocks a connection that others need.
const UNAUTHENTICATED_BODY_WITHIN: Duration = Duration::from_secs(5);
/// How long an import waits for another one to end; most do within it.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Octets of a header.
const HEADER_OCTETS_MAX: usize = 16 << 10;
/// Between two looks for the socket of commands that is not there yet: an operator that waits for a command does not notice it.
const LOCAL_RETRY: Duration = Duration::from_secs(1);
/// How long requests in progress may take to end at a stop.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The running API; it stops when this is dropped.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
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
pub fn start(address: SocketAddr, shared: Arc<HandlerContext>) -> Result<Server, String> {
    let key = if shared.is_core { "api.address" } else { "--api" };
    let listener =
        TcpListener::bind(address).map_err(|e| port_owner::cannot_listen(key, "TCP", address, &e))?;
    // Not before the port is ours: a second start must not take the socket from under the first.
    let mut local = match shared.is_core {
        true => listen_locally(&shared)?,
        false => None,
    };
    start_on(listener, move || local.take(), address, shared)
}

/// Opens the socket of this host's commands. `None`: another core with this store has it. Errors: one sentence.
fn listen_locally(shared: &HandlerContext) -> Result<Option<UnixListener>, String> {
    match local_socket::listen(&local_socket::of(&shared.config)) {
        Ok(listener) => Ok(Some(listener)),
        Err(e @ ListenError::InUse(_)) => {
            warn!("commands on this host do not reach this process: {e}");
            Ok(None)
        }
        Err(e) => Err(e.to_string()),
    }
}

/// Starts the API on open listeners: that of the network, and that of this host's commands, for which `local` is asked once a second until
/// it gives one. In a unit that was upgraded the socket of commands may come after the start. Errors: one sentence.
pub fn start_on(
    listener: TcpListener,
    local: impl FnMut() -> Option<UnixListener> + Send + 'static,
    address: SocketAddr,
    shared: Arc<HandlerContext>,
) -> Result<Server, String> {
    let cannot = |e: std::io::Error| format!("the API cannot run on {address}: {e}");
    listener.set_nonblocking(true).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let store = &shared.config.store.path;
    let acceptor = match shared.is_tls() {
        true => Some(TlsAcceptor::from(tls::server(store, address.ip())?)),
        false => None,
    };
    if shared.is_core && shared.auth.is_without_users() {
        info!("the console has no user yet: `whimbrel console` prints a one-time link that makes the first");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (stop, stopped) = watch::channel(false);
    let serve = move || {
        runtime.block_on(async {
            let importing = shared.clone();
            tokio::task::spawn_blocking(move || importing.auth.import_former());
            let (of_local, mut stopped_local) = (shared.clone(), stopped.clone());
            let locally = async {
                if let Some(local) = first_listener(local, &mut stopped_local).await {
                    accept_local(local, of_local, stopped_local).await;
                }
            };
            tokio::join!(accept(listener, acceptor, shared, stopped), locally);
        });
    };
    let thread = std::thread::Builder::new().name("api".into()).spawn(serve).map_err(cannot)?;
    Ok(Server { address, stop, thread: Some(thread) })
}

/// The listener of this host's commands, as soon as there is one; `None` when the server stops before.
async fn first_listener(
    mut local: impl FnMut() -> Option<UnixListener>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<UnixListener> {
    loop {
        if let Some(listener) = local() {
            return Some(listener);
        }
        tokio::select! {
            biased;
            _ = stopped.changed() => return None,
            () = tokio::time::sleep(LOCAL_RETRY) => {}
        }
    }
}

/// Accepts the next connection; `None` when the server stops.
async fn next<T>(
    stopped: &mut watch::Receiver<bool>,
    mut accept: impl AsyncFnMut() -> std::io::Result<T>,
) -> Option<T> {
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => return None,
            accepted = accept() => match accepted {
                Ok(accepted) => return Some(accepted),
                // Out of descriptors: the next try would fail at once as well.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<HandlerContext>,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let slots = ConnectionSlots::new("API", CONNECTIONS);
    let mut counted = 0;
    let router = TowerToHyperService::new(router(shared.clone()));
    while let Some((stream, peer)) = next(&mut stopped, async || listener.accept().await).await {
        let (shared, router, stopped) = (shared.clone(), router.clone(), stopped.clone());
        let slot = slots.take(PeerPrefix::of(peer.ip()));
        shared.console.metrics.add(Metric::ApiConnectionsClosed, slots.closed() - counted);
        counted = slots.closed();
        let acceptor = acceptor.clone();
        let peer = RequestPeer::Network(peer);
        // If the connection breaks, there is no client left to answer.
        let connection = async move {
            match acceptor {
                None => serve(Patient::new(stream), peer, shared, router, stopped).await,
                Some(acceptor) => {
                    if let Ok(Some(stream)) = tokio::time::timeout(HEADER_WITHIN, tls(stream, acceptor)).await
                    {
                        serve(stream, peer, shared, router, stopped).await;
                    }
                }
            }
        };
        tokio::spawn(within(slot, connection));
    }
    let _ = tokio::time::timeout(STOP_WITHIN, slots.emptied()).await;
}

/// A connection until it ends, or until its slot is needed for another one.
async fn within<S: Copy + Ord>(mut slot: ConnectionSlot<S>, connection: impl Future<Output = ()>) {
    tokio::select! {
        () = connection => {}
        () = slot.revoked() => {}
    }
}

/// Serves commands of this host: their users are known by the kernel, and need no token.
async fn accept_local(
    listener: UnixListener,
    shared: Arc<HandlerContext>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = listener.set_nonblocking(true).and_then(|()| tokio::net::UnixListener::from_std(listener));
    let listener = match listener {
        Ok(listener) => listener,
        Err(e) => {
            warn!("commands on this host do not reach this process: its socket cannot be used: {e}");
            return;
        }
    };
    let slots = ConnectionSlots::new("socket of commands", LOCAL_CONNECTIONS);
    let router = TowerToHyperService::new(router(shared.clone()));
    while let Some((stream, _)) = next(&mut stopped, async || listener.accept().await).await {
        let Ok(uid) = stream.peer_cred().map(|user| Uid(user.uid())) else { continue };
        let (shared, router, stopped) = (shared.clone(), router.clone(), stopped.clone());
        let slot = slots.take(uid);
        let connection = async move {
            match uid.commands_the_core() {
                true => serve(Patient::new(stream), RequestPeer::Local(uid), shared, router, stopped).await,
                false => {
                    let _ = tokio::time::timeout(HEADER_WITHIN, refuse_user(stream, uid)).await;
                }
            }
        };
        tokio::spawn(within(slot, connection));
    }
    let _ = tokio::time::timeout(STOP_WITHIN, slots.emptied()).await;
}

/// The answer to a user of this host that may not command the core.
async fn refuse_user(stream: UnixStream, uid: Uid) {
    warn!(from = %uid, "a user of this host may not command the core, and is refused");
    let problem = ProblemDetails::forbidden(format!(
        "{uid} may not command the core: root and the core's own user may"
    ));
    refuse_in_clear(stream, "403 Forbidden", &problem).await;
}

type TlsStream = tokio_rustls::server::TlsStream<Patient<TcpStream>>;

/// The TLS handshake. A client that sends a request in clear gets an answer that says so.
async fn tls(stream: TcpStream, acceptor: TlsAcceptor) -> Option<TlsStream> {
    /// The first octet of a TLS record with a handshake message (RFC 8446 §5.1).
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 1 && first[0] != HANDSHAKE {
        refuse_in_clear(stream, "400 Bad Request", &ProblemDetails::bad_request(IN_CLEAR)).await;
        return None;
    }
    acceptor.accept(Patient::new(stream)).await.ok()
}

/// Answers a request that is not looked at.
async fn refuse_in_clear(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    status: &str,
    problem: &ProblemDetails,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    // What has come is read: a connection that is closed with unread octets would lose the answer.
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await;
    let body = serde_json::to_string(problem).unwrap_or_default();
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// The answer to a request in clear where TLS is spoken.
const IN_CLEAR: &str = "beyond loopback the API speaks HTTPS only: write https:// instead of http://";

async fn serve<S>(
    stream: S,
    peer: RequestPeer,
    shared: Arc<HandlerContext>,
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
    shared: &HandlerContext,
    router: &TowerToHyperService<Router>,
    peer: RequestPeer,
    mut request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    shared.console.metrics.add(Metric::ApiRequests, 1);
    request.extensions_mut().insert(peer);
    let response = match tokio::time::timeout(REQUEST_WITHIN, router.call(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => refusal(ProblemDetails::timeout(format!("not done within {} s", REQUEST_WITHIN.as_secs()))),
    };
    if !response.status().is_success() && response.status() != hyper::StatusCode::NOT_MODIFIED {
        shared.console.metrics.add(Metric::ApiRefused, 1);
    }
    Ok(response)
}

fn refusal(problem: ProblemDetails) -> Response {
    Reply::from(problem).into_response()
}

/// The routes of the table, and the console's files.
fn router(shared: Arc<HandlerContext>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        // The table names only methods that axum knows.
        let Ok(filter) = MethodFilter::try_from(route.method.clone()) else { continue };
        let handler = move |State(shared): State<Arc<HandlerContext>>, request: HttpRequest| async move {
            let handled = handle(shared, route, request).await;
            handled.unwrap_or_else(Reply::from).into_response()
        };
        router = router.route(route.path, on(filter, handler));
    }
    let otherwise = |State(shared): State<Arc<HandlerContext>>, request: HttpRequest| async move {
        match from_here(request.headers(), shared.config.api.address) {
            Ok(()) => otherwise(&shared, &request).unwrap_or_else(Reply::from).into_response(),
            Err(problem) => refusal(problem),
        }
    };
    router.fallback(otherwise).method_not_allowed_fallback(otherwise).with_state(shared)
}

/// A request of no route: one of the console's files, or a mistake.
fn otherwise(shared: &HandlerContext, request: &HttpRequest) -> Result<Reply, ProblemDetails> {
    let path = request.uri().path();
    let methods = routes::methods_of(path);
    if !methods.is_empty() {
        return Err(ProblemDetails::method_not_allowed(&methods.join(", ")));
    }
    if shared.is_core
        && let Some(file) = assets::find(path)
    {
        return match *request.method() {
            Method::GET | Method::HEAD => Ok(file.reply(request.headers())),
            _ => Err(ProblemDetails::method_not_allowed("GET")),
        };
    }
    Err(ProblemDetails::not_found("no such path; GET /openapi.json lists them"))
}

/// Status of the answer to a caller that may not do what it asks for.
const FORBIDDEN: u16 = 403;

async fn handle(
    shared: Arc<HandlerContext>,
    route: &'static Route,
    request: HttpRequest,
) -> Result<Reply, ProblemDetails> {
    let (head, body) = request.into_parts();
    let peer = head.extensions.get::<RequestPeer>().copied();
    let peer = peer.ok_or_else(|| ProblemDetails::internal("the sender of the request is not known"))?;
    from_here(&head.headers, shared.config.api.address)?;
    let params = uri::matches(route.path, head.uri.path()).flatten();
    let params =
        params.ok_or_else(|| ProblemDetails::bad_request("the path is not percent-encoded UTF-8"))?;
    serves(&shared, route)?;
    let caller = match caller(&shared, route, peer, (&head.method, &head.headers)) {
        Ok(caller) => caller,
        Err(problem) => {
            // A caller that may not do this is known: it is recorded by its name, and its requests are counted.
            let known = match problem.status() {
                FORBIDDEN => shared.auth.caller(peer, &head.method, &head.headers).ok().flatten(),
                _ => None,
            };
            if let Some(known) = &known {
                shared.auth.count(known)?;
            }
            if route.is_audited() {
                let what = format!("{} {}", head.method, route.path);
                let (status, subscriber) = (problem.status(), params.first().cloned());
                let name = known.map(|known| known.name);
                subscribers::accessed(&shared, peer.to_string(), name, what, subscriber, status).await;
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
    let body = Limited::new(body, route.body_max).collect();
    let body_within = if caller.is_some() { REQUEST_WITHIN } else { UNAUTHENTICATED_BODY_WITHIN };
    let body = match tokio::time::timeout(body_within, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(e)) if e.is::<LengthLimitError>() => return Err(ProblemDetails::too_large(route.body_max)),
        Ok(Err(_)) => return Err(ProblemDetails::bad_request("the body ended early")),
        Err(_) => {
            let detail = format!("the body did not come within {} s", body_within.as_secs());
            return Err(ProblemDetails::timeout(detail));
        }
    };
    if head.method != Method::GET && !body.is_empty() {
        const TAKEN: [&str; 3] = ["application/json", "application/merge-patch+json", "text/csv"];
        // None of these can be sent by a foreign web page without the browser asking first, which is refused.
        if !TAKEN.contains(&content_type.as_str()) {
            return Err(ProblemDetails::unsupported(&TAKEN.join(" or ")));
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
    let path = route.path;
    let request =
        RoutedRequest { path, params, query, content_type, headers: head.headers, body, peer, caller };
    if !route.is_audited() {
        return (route.handler)(shared.clone(), request).await;
    }
    let answer = (route.handler)(shared.clone(), request).await;
    let outcome = answer.as_ref().map_or_else(ProblemDetails::status, Reply::status);
    let what = format!("{} {}", head.method, route.path);
    subscribers::accessed(&shared, peer.to_string(), name, what, subscriber, outcome).await;
    answer
}

/// The sender of a request, if the route allows it.
fn caller(
    shared: &HandlerContext,
    route: &Route,
    peer: RequestPeer,
    (method, headers): (&Method, &HeaderMap),
) -> Result<Option<Caller>, ProblemDetails> {
    // A CPF has no users: it shows its own condition, and nothing of a UE.
    if !shared.is_core || route.needs == Needs::Nothing {
        return Ok(None);
    }
    let caller = shared.auth.caller(peer, method, headers);
    if route.needs == Needs::Metrics && !shared.is_tls() {
        // A dashboard's session may be over.
        return Ok(caller.ok().flatten());
    }
    let caller = caller?.ok_or_else(|| {
        ProblemDetails::unauthorized(
            "this needs a login, or `Authorization: Bearer TOKEN`; commands on the core's host come over its socket",
        )
    })?;
    let needed = match route.needs {
        Needs::May(scope) => scope,
        Needs::Metrics => super::auth::Scope::Metrics,
        Needs::Login | Needs::Nothing => return Ok(Some(caller)),
    };
    match caller.may(needed) {
        true => Ok(Some(caller)),
        false => Err(ProblemDetails::forbidden(format!(
            "{} may not do this: it needs the scope `{}`",
            caller.name,
            needed.word()
        ))),
    }
}

/// A CTA replica has no UEs to show, and its subscribers are copied from the primary: its answers would be wrong, and changes would be
/// overwritten.
fn serves(shared: &HandlerContext, route: &Route) -> Result<(), ProblemDetails> {
    const ITS_OWN: [&str; 5] =
        ["/api/v1/status", "/api/v1/events", "/api/v1/refusals", "/metrics", "/openapi.json"];
    const OF_CPF: [&str; 3] = ["/api/v1/status", "/metrics", "/openapi.json"];
    if !shared.is_core {
        return if OF_CPF.contains(&route.path) {
            Ok(())
        } else {
            Err(ProblemDetails::not_found("a CPF shows only its own state: ask the CTA"))
        };
    }
    let is_other = |c: &&Component| c.name == "cta" && c.condition != Condition::Up;
    let other = shared.console.components(|c| c.all().find(is_other).map(|c| c.detail.clone()));
    let is_own = ITS_OWN.contains(&route.path) || matches!(route.needs, Needs::Login | Needs::Nothing);
    match other {
        Some(detail) if !is_own => Err(ProblemDetails::unavailable(format!("{detail}; ask the primary"))),
        _ => Ok(()),
    }
}

/// Waits for the turn of a request with a large body, for a bounded time: a slow sender must not block the next one.
async fn turn(shared: &HandlerContext) -> Result<tokio::sync::SemaphorePermit<'_>, ProblemDetails> {
    let turn = tokio::time::timeout(TURN_WITHIN, shared.imports.acquire()).await;
    turn.map_err(|_| ProblemDetails::unavailable("another import is under way; try again when it has ended"))?
        .map_err(|_| ProblemDetails::unavailable("the API is stopping"))
}

/// Refuses requests that a browser sends for a foreign web page: a second defence beside tokens and cookies of this site alone.
fn from_here(headers: &HeaderMap, listens: SocketAddr) -> Result<(), ProblemDetails> {
    let host = headers.get(HOST).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) && !port.is_empty() => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let is_address = name.parse::<std::net::IpAddr>().is_ok();
    if listens.ip().is_loopback() && !is_address && name != "localhost" {
        let detail = "the Host header names another host; use the address in `api.address`";
        return Err(ProblemDetails::forbidden(detail));
    }
    if let Some(origin) = headers.get("origin").and_then(|v| v.to_str().ok())
        && origin.split_once("://").map(|(_, o)| o) != Some(host)
    {
        return Err(ProblemDetails::forbidden("the request comes from a web page of another origin"));
    }
    Ok(())
}
