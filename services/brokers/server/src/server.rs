//! The broker's listeners: HTTP/2 over TLS 1.3 for operators, HTTP/1.1 for health and metrics.

use core::future::Future;
use core::pin::Pin;
use core::time::Duration;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tracing::warn;
use whimbrel_broker_client::slots::{ConnectionSlots, PeerPrefix, SlotBounds};
use whimbrel_broker_client::veil::QuestionKind;
use whimbrel_broker_client::{ATTACH_PATH, MEDIA_TYPE, USAGE_PATH};
use whimbrel_open::admission::{Peer, WAIT_MAX};
use whimbrel_open::msg::{AuthReqT, Confirmation, VectorRequest};
use whimbrel_open::usage::Delivery;

use crate::engine::Entrance;
use crate::metrics::Metrics;
use crate::veil::engine::VeilEntrance;

/// Connections at once: each operator keeps a few open, and several may share an address.
const CONNECTIONS: SlotBounds = SlotBounds { total: 4_096, share: 256 };
/// Connections of health checks and metrics at once.
const ADMIN_CONNECTIONS: SlotBounds = SlotBounds { total: 32, share: 16 };
/// A connection over which no request comes for this long is closed. Operators make a new one before they need it.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// A peer that takes longer for its TLS handshake holds a connection that others need.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Requests of one connection at once: an operator's busy second.
const STREAMS_MAX: u32 = 1_024;
/// A request that is not complete by then is ended.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// From a complete request to its answer: what admission allows, and a commit.
const ANSWER_WITHIN: Duration = Duration::from_secs(WAIT_MAX.as_secs() + 3);
/// A connection on which nothing comes back is closed after these two.
const PING_EVERY: Duration = Duration::from_secs(20);
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// How long requests in progress may take to end at a stop.
const STOP_WITHIN: Duration = Duration::from_millis(200);

/// The longest request of an operator.
const BODY_OCTETS_MAX: usize = AuthReqT::OCTETS_MAX;
const _: () =
    assert!(VectorRequest::OCTETS_MAX <= BODY_OCTETS_MAX && Confirmation::OCTETS_MAX <= BODY_OCTETS_MAX);

/// The running listeners; they stop when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where operators connect.
    pub address: SocketAddr,
    /// Where health and metrics are; of a relay, which has none, where its requests go.
    pub admin: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers a request, given the sender's network prefix and address.
pub(crate) type Handler = Arc<
    dyn Fn(
            (Peer, SocketAddr),
            Request<Incoming>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, HttpRefusal>> + Send>>
        + Send
        + Sync,
>;

/// Where requests of SAP go, and those of veiled users if they are served.
#[derive(Clone, Debug)]
pub struct Entrances {
    /// The entrance of SAP requests.
    pub open: Entrance,
    /// The entrance of veiled users' requests.
    pub veil: Option<VeilEntrance>,
}

impl From<Entrance> for Entrances {
    fn from(open: Entrance) -> Self {
        Self { open, veil: None }
    }
}

/// Starts both. Errors: one sentence that names the address.
pub fn start(
    listen: SocketAddr,
    admin: SocketAddr,
    tls: Arc<ServerConfig>,
    entrances: impl Into<Entrances>,
) -> Result<Server, String> {
    let entrances = entrances.into();
    let metrics = entrances.open.metrics.clone();
    let of = entrances.clone();
    let handler: Handler = Arc::new(move |from, request| {
        let entrances = of.clone();
        Box::pin(async move { exchange(&entrances, from, request).await })
    });
    start_with(listen, Some((admin, entrances)), tls, handler, metrics)
}

/// Starts a listener for `handler`, and one for health and metrics if there are any. Errors: one sentence that names the address.
pub(crate) fn start_with(
    listen: SocketAddr,
    admin: Option<(SocketAddr, Entrances)>,
    tls: Arc<ServerConfig>,
    handler: Handler,
    metrics: Arc<Metrics>,
) -> Result<Server, String> {
    let bind = |at: SocketAddr, key: &str| {
        let failed = |e| format!("the broker cannot listen on {at} (TCP): {e}; choose another `{key}`");
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok::<_, String>((listener.local_addr().map_err(failed)?, listener))
    };
    let (address, operators) = bind(listen, "listen")?;
    let admin = admin.map(|(at, entrances)| Ok::<_, String>((bind(at, "admin.address")?, entrances)));
    let admin = admin.transpose()?;
    let admin_address = admin.as_ref().map(|((at, _), _)| *at);
    let cannot = |e: std::io::Error| format!("the broker cannot serve on {address}: {e}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (stop, stopped) = watch::channel(false);
    let serve = move || {
        runtime.block_on(async {
            let admin = admin.map(|((_, checks), entrances)| {
                tokio::spawn(accept_admin(checks, entrances, stopped.clone()))
            });
            accept(operators, tls, (handler, metrics), stopped).await;
            if let Some(admin) = admin {
                let _ = admin.await;
            }
        });
    };
    let thread = std::thread::Builder::new().name("broker-http".into()).spawn(serve).map_err(cannot)?;
    Ok(Server { address, admin: admin_address.unwrap_or(address), stop, thread: Some(thread) })
}

/// The next connection; `None` at a stop.
async fn next(
    listener: &tokio::net::TcpListener,
    stopped: &mut watch::Receiver<bool>,
) -> Option<(TcpStream, SocketAddr)> {
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => return None,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => return Some(accepted),
                // Out of descriptors: the next try would fail at once as well.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

async fn accept(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    (handler, metrics): (Handler, Arc<Metrics>),
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let (acceptor, slots) = (TlsAcceptor::from(tls), ConnectionSlots::new("broker", CONNECTIONS));
    while let Some((stream, from)) = next(&listener, &mut stopped).await {
        let prefix = PeerPrefix::of(from.ip());
        let (peer, mut slot) = (Peer(prefix.number()), slots.take(prefix));
        metrics.closed_for_others(slots.closed());
        let (handler, metrics, stopped) = (handler.clone(), metrics.clone(), stopped.clone());
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // Answers are a few hundred octets that must not wait for more.
            let _ = stream.set_nodelay(true);
            let handshake = tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream));
            let handshake = tokio::select! {
                handshake = handshake => handshake,
                () = slot.revoked() => return,
            };
            match handshake {
                Ok(Ok(stream)) => {
                    metrics.connected();
                    tokio::select! {
                        () = serve(stream, (peer, from), (&handler, &metrics), stopped) => {}
                        () = slot.revoked() => {}
                    }
                    metrics.disconnected();
                }
                Ok(Err(e)) => {
                    metrics.tls_failed();
                    tracing::debug!("the TLS handshake with {from} failed: {e}");
                }
                Err(_) => metrics.tls_failed(),
            }
        });
    }
    let _ = tokio::time::timeout(STOP_WITHIN, slots.emptied()).await;
}

/// When a connection was used last.
struct Use {
    /// Requests in progress, and the end of the last one.
    state: std::sync::Mutex<(u64, Instant)>,
}

impl Use {
    fn state(&self) -> std::sync::MutexGuard<'_, (u64, Instant)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Ends when no request has come for so long.
    async fn idle(&self, idle_max: Duration) {
        loop {
            let (in_progress, ended) = *self.state();
            let since = if in_progress > 0 { Instant::now() } else { ended };
            if since.elapsed() >= idle_max {
                return;
            }
            tokio::time::sleep_until(since + idle_max).await;
        }
    }
}

/// A request in progress on a connection.
struct InProgress(Arc<Use>);

impl InProgress {
    fn on(connection: &Arc<Use>) -> Self {
        connection.state().0 += 1;
        Self(connection.clone())
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut state = self.0.state();
        *state = (state.0 - 1, Instant::now());
    }
}

async fn serve(
    stream: tokio_rustls::server::TlsStream<TcpStream>,
    from: (Peer, SocketAddr),
    (handler, metrics): (&Handler, &Arc<Metrics>),
    mut stopped: watch::Receiver<bool>,
) {
    let connection_use = Arc::new(Use { state: std::sync::Mutex::new((0, Instant::now())) });
    let of = connection_use.clone();
    let service = service_fn(move |request| {
        let (handler, metrics) = (handler.clone(), metrics.clone());
        let in_progress = InProgress::on(&of);
        async move {
            let _in_progress = in_progress;
            let response = handler(from, request).await.unwrap_or_else(|refusal| {
                metrics.http_refused();
                refusal.response()
            });
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(8 << 10)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let end_within = tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.changed() => STOP_WITHIN,
        () = connection_use.idle(IDLE_MAX) => HANDSHAKE_WITHIN,
    };
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(end_within, connection).await;
}

/// A request that no machine sees.
pub(crate) struct HttpRefusal(pub(crate) StatusCode, pub(crate) &'static str);

impl HttpRefusal {
    fn response(self) -> Response<Full<Bytes>> {
        let mut response = text(self.0, self.1.to_owned() + "\n");
        if matches!(self.0, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What a path leads to.
enum PathTarget {
    Attach,
    Usage,
    Veil(QuestionKind),
}

async fn exchange(
    entrances: &Entrances,
    (peer, from): (Peer, SocketAddr),
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, HttpRefusal> {
    let target = match request.uri().path() {
        ATTACH_PATH => PathTarget::Attach,
        USAGE_PATH => PathTarget::Usage,
        other => match QuestionKind::of_path(other).filter(|_| entrances.veil.is_some()) {
            Some(kind) => PathTarget::Veil(kind),
            None => {
                let what = "the paths here are /sap/v1/attach and /sap/v1/usage";
                return Err(HttpRefusal(StatusCode::NOT_FOUND, what));
            }
        },
    };
    if request.method() != Method::POST {
        return Err(HttpRefusal(StatusCode::METHOD_NOT_ALLOWED, "attaches and reports are sent by POST"));
    }
    if request.headers().get(CONTENT_TYPE).is_none_or(|v| v != MEDIA_TYPE) {
        let what = "the body is a SAP message of type application/octet-stream";
        return Err(HttpRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let octets_max = match target {
        PathTarget::Attach => BODY_OCTETS_MAX,
        PathTarget::Usage => Delivery::OCTETS_MAX,
        PathTarget::Veil(kind) => kind.octets_max(),
    };
    let body = Limited::new(request.into_body(), octets_max).collect();
    let octets = match tokio::time::timeout(BODY_WITHIN, body).await {
        Ok(Ok(body)) => body.to_bytes().to_vec(),
        Ok(Err(e)) if e.is::<LengthLimitError>() => {
            let what = "the body is longer than any SAP request";
            return Err(HttpRefusal(StatusCode::PAYLOAD_TOO_LARGE, what));
        }
        Ok(Err(_)) => return Err(HttpRefusal(StatusCode::BAD_REQUEST, "the body ended early")),
        Err(_) => return Err(HttpRefusal(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    };
    let busy = || HttpRefusal(StatusCode::SERVICE_UNAVAILABLE, "the broker has no room now");
    let asked = match target {
        PathTarget::Attach => entrances.open.ask(peer, octets),
        PathTarget::Usage => entrances.open.deliver(octets),
        PathTarget::Veil(kind) => {
            entrances.veil.as_ref().and_then(|veil| veil.ask(kind, from.to_string(), octets))
        }
    };
    let answer = asked.ok_or_else(busy)?;
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(octets)) => Ok(octets_response(octets)),
        Ok(Err(_)) | Err(_) => Err(busy()),
    }
}

/// The octets of an answer.
pub(crate) fn octets_response(octets: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(octets)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn accept_admin(listener: TcpListener, entrances: Entrances, mut stopped: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        warn!("health and metrics are not served: the listener cannot be watched");
        return;
    };
    let slots = ConnectionSlots::new("health and metrics of the broker", ADMIN_CONNECTIONS);
    while let Some((stream, from)) = next(&listener, &mut stopped).await {
        let mut slot = slots.take(PeerPrefix::of(from.ip()));
        let (entrances, mut stopped) = (entrances.clone(), stopped.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = admin(&entrances, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_WITHIN).max_buf_size(16 << 10);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                _ = stopped.changed() => {}
                () = slot.revoked() => {}
            }
        });
    }
}

fn admin(entrances: &Entrances, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".into());
    }
    let metrics = &entrances.open.metrics;
    match (request.uri().path(), metrics.problem()) {
        ("/health", None) => text(StatusCode::OK, "ok\n".into()),
        ("/health", Some(problem)) => text(StatusCode::SERVICE_UNAVAILABLE, problem + "\n"),
        ("/metrics", _) => text(StatusCode::OK, metrics.text() + &veil_text(entrances)),
        _ => text(StatusCode::NOT_FOUND, "the paths here are /health and /metrics\n".into()),
    }
}

/// The counters of veiled users in the text form of Prometheus.
fn veil_text(entrances: &Entrances) -> String {
    let values = entrances.veil.iter().flat_map(|veil| veil.metrics.values());
    values
        .map(|(name, help, value)| format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}\n"))
        .collect()
}
