//! The producer's side: HTTP/2 in clear or over TLS, with bounds on connections, streams, headers, bodies and times.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, EXPECT};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tracing::debug;

use crate::headers::{ResponseDeadline, now};
use crate::message::{
    FORM, JSON, MERGE_PATCH_JSON, MULTIPART, PATCH_JSON, SbiResponse, content_type, media_type,
};
use crate::problem::{ProtocolCause, of_status, problem};
use crate::tls::ReplaceableConfig;

/// A request as a handler gets it.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Method of HTTP.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// Body; empty for none.
    pub body: Bytes,
    /// Address of the sender.
    pub peer: SocketAddr,
    /// The client's certificate, where TLS asked for one and it was checked.
    pub client_certificate: Option<CertificateDer<'static>>,
}

impl ReceivedRequest {
    /// The JSON body as a type; the error is the refusal to answer with.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, SbiResponse> {
        if media_type(&self.headers) == MULTIPART {
            return Err(unsupported_media_type());
        }
        whimbrel_sbi_types::from_slice(&self.body).map_err(|e| SbiResponse::from(&e))
    }

    /// The header with the media type, such as the boundary of several parts; empty for none.
    pub fn content_type(&self) -> &str {
        content_type(&self.headers)
    }
}

fn unsupported_media_type() -> SbiResponse {
    of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE.as_u16(), None, "send application/json")
}

/// Longest bodies of requests below a path.
#[derive(Clone, Debug)]
pub struct BodyBound {
    /// Beginning of the paths.
    pub path_prefix: Box<str>,
    /// Octets of the longest body.
    pub octets_max: usize,
}

/// Bounds of a server.
#[derive(Clone)]
pub struct ServerSettings {
    /// Certificate and demand for client certificates; without, the server speaks in clear.
    pub tls: Option<ReplaceableConfig<rustls::ServerConfig>>,
    /// Connections at once.
    pub connections_max: usize,
    /// Connections at once of one address.
    pub connections_of_source_max: usize,
    /// Requests at once on a connection.
    pub streams_max: u32,
    /// Octets of a request's header list.
    pub header_octets_max: u32,
    /// Octets of a request's body, where `body_bounds` has no other bound.
    pub body_octets_max: usize,
    /// Other bounds of bodies by path; the first that fits is taken.
    pub body_bounds: Vec<BodyBound>,
    /// Time for the TLS handshake.
    pub handshake_within: Duration,
    /// From the header of a request to the end of its body.
    pub body_within: Duration,
    /// From the header of a request to the end of its response.
    pub request_within: Duration,
    /// A connection without a request for this long is closed.
    pub idle_within: Duration,
    /// Refuse requests whose sender waits no longer (TS 29.500 §6.11.2): for networks with synchronised clocks.
    pub refuses_late_requests: bool,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            tls: None,
            // Consumers and SCPs of an operator, some connections each.
            connections_max: 1024,
            connections_of_source_max: 256,
            streams_max: 256,
            header_octets_max: 16 << 10,
            body_octets_max: 64 << 10,
            body_bounds: Vec::new(),
            handshake_within: Duration::from_secs(5),
            body_within: Duration::from_secs(5),
            request_within: Duration::from_secs(15),
            // Consumers ping warm connections; one that is not used for so long is opened again when it is needed.
            idle_within: Duration::from_secs(300),
            refuses_late_requests: false,
        }
    }
}

/// Numbers of a server since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Connections that are open now.
    pub connections: u64,
    /// Connections that were closed at once: there were too many.
    pub connections_refused: u64,
    /// Requests that were handed to the handler.
    pub requests: u64,
    /// Requests that were refused before: too large, late, of another media type, incomplete.
    pub requests_refused: u64,
    /// Connections that were closed because their peer reset streams all the time, or took no response.
    pub connections_aborted: u64,
}

#[derive(Default)]
struct AtomicServerCounts {
    connections_refused: AtomicU64,
    requests: AtomicU64,
    requests_refused: AtomicU64,
    connections_aborted: AtomicU64,
    /// Open connections by source.
    open: Mutex<BTreeMap<IpAddr, usize>>,
}

impl AtomicServerCounts {
    fn open(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A server that runs; it stops when this is dropped.
pub struct SbiServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    counters: Arc<AtomicServerCounts>,
}

impl core::fmt::Debug for SbiServer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SbiServer({})", self.address)
    }
}

impl SbiServer {
    /// Serves on a bound listener, within a tokio runtime. A handler that panics, or takes longer than `request_within`, is answered with
    /// 500 or 504 in its place.
    pub fn start<H, F>(listener: TcpListener, settings: ServerSettings, handler: H) -> std::io::Result<Self>
    where
        H: Fn(ReceivedRequest) -> F + Send + Sync + 'static,
        F: Future<Output = SbiResponse> + Send + 'static,
    {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (stop, stopped) = watch::channel(false);
        let counters = Arc::new(AtomicServerCounts::default());
        let shared = Arc::new(Served { settings, counters: counters.clone(), handler });
        tokio::spawn(accept(listener, shared, stopped));
        Ok(Self { address, stop, counters })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Numbers since the start.
    pub fn counts(&self) -> ServerCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        ServerCounts {
            connections: c.open().values().sum::<usize>() as u64,
            connections_refused: of(&c.connections_refused),
            requests: of(&c.requests),
            requests_refused: of(&c.requests_refused),
            connections_aborted: of(&c.connections_aborted),
        }
    }
}

impl Drop for SbiServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

struct Served<H> {
    settings: ServerSettings,
    counters: Arc<AtomicServerCounts>,
    handler: H,
}

/// The place of a connection among those of its source.
struct ConnectionPlace {
    counters: Arc<AtomicServerCounts>,
    source: IpAddr,
}

impl ConnectionPlace {
    /// `None` if there are too many.
    fn take(counters: &Arc<AtomicServerCounts>, source: IpAddr, settings: &ServerSettings) -> Option<Self> {
        let mut open = counters.open();
        let own = open.get(&source).copied().unwrap_or_default();
        if own >= settings.connections_of_source_max
            || open.values().sum::<usize>() >= settings.connections_max
        {
            return None;
        }
        open.insert(source, own + 1);
        drop(open);
        Some(Self { counters: counters.clone(), source })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut open = self.counters.open();
        if let Some(own) = open.get_mut(&self.source) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.source);
            }
        }
    }
}

/// How long requests in progress may take to end at a stop.
const STOP_WITHIN: Duration = Duration::from_secs(1);

async fn accept<H, F>(
    listener: tokio::net::TcpListener,
    shared: Arc<Served<H>>,
    mut stopped: watch::Receiver<bool>,
) where
    H: Fn(ReceivedRequest) -> F + Send + Sync + 'static,
    F: Future<Output = SbiResponse> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.changed() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            // Out of descriptors: the next try would fail at once as well.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let source = peer.ip().to_canonical();
        let Some(slot) = ConnectionPlace::take(&shared.counters, source, &shared.settings) else {
            shared.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let acceptor = shared.settings.tls.as_ref().map(|tls| TlsAcceptor::from(tls.current()));
        let (shared, stopped) = (shared.clone(), stopped.clone());
        tokio::spawn(async move {
            let _slot = slot;
            connection(stream, peer, acceptor, shared, stopped).await;
        });
    }
}

async fn connection<H, F>(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    shared: Arc<Served<H>>,
    stopped: watch::Receiver<bool>,
) where
    H: Fn(ReceivedRequest) -> F + Send + Sync + 'static,
    F: Future<Output = SbiResponse> + Send + 'static,
{
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return serve(stream, peer, None, shared, stopped).await };
    match tokio::time::timeout(shared.settings.handshake_within, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            let certificate = session.peer_certificates().and_then(|chain| chain.first());
            let certificate = certificate.map(|certificate| certificate.clone().into_owned());
            serve(stream, peer, certificate, shared, stopped).await;
        }
        Ok(Err(e)) => debug!("the TLS handshake with {peer} fails: {e}"),
        Err(_) => debug!("the TLS handshake with {peer} was not complete in time"),
    }
}

/// Requests of a connection that are not answered yet, by number, and what is needed to end it.
#[derive(Default)]
struct StreamTable {
    next: u64,
    open: BTreeMap<u64, Instant>,
    last_end: Option<Instant>,
    /// Requests that the peer has given up, less those that were answered, and never below zero.
    given_up: u32,
}

/// Requests that a peer may give up beyond those that it takes an answer to: those of a consumer that is stopped or whose UEs go, up to two
/// full connections. RFC 9113 §10.5 leaves the number to the server.
const GIVEN_UP_MAX: u32 = 512;

/// The streams of a connection.
#[derive(Default)]
struct ConnectionStreams {
    table: Mutex<StreamTable>,
    abort: Notify,
}

impl ConnectionStreams {
    fn table(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>) -> OpenStream {
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Instant::now());
        drop(table);
        OpenStream { streams: self.clone(), number, is_sent: false }
    }
}

/// A request of a connection until its response has left, or the peer has given it up.
struct OpenStream {
    streams: Arc<ConnectionStreams>,
    number: u64,
    is_sent: bool,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut table = self.streams.table();
        table.open.remove(&self.number);
        table.last_end = Some(Instant::now());
        // An answered request makes up for one: a peer that takes an answer now and then gives up without bound otherwise.
        table.given_up =
            if self.is_sent { table.given_up.saturating_sub(1) } else { table.given_up.saturating_add(1) };
        if table.given_up > GIVEN_UP_MAX {
            self.streams.abort.notify_one();
        }
    }
}

/// The body of a response, in pieces, of which the next is taken when the peer has room for it. Its end is that of the request.
struct ResponseBody {
    octets: Bytes,
    stream: OpenStream,
}

/// Octets of a piece: a frame of HTTP/2 that each peer takes (RFC 9113 §4.2).
const PIECE_OCTETS: usize = 16 << 10;

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = PIECE_OCTETS.min(self.octets.len());
        let piece = self.octets.split_to(piece);
        self.stream.is_sent = self.octets.is_empty();
        Poll::Ready(if piece.is_empty() { None } else { Some(Ok(Frame::data(piece))) })
    }

    fn is_end_stream(&self) -> bool {
        self.octets.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.octets.len() as u64)
    }
}

async fn serve<S, H, F>(
    stream: S,
    peer: SocketAddr,
    certificate: Option<CertificateDer<'static>>,
    shared: Arc<Served<H>>,
    mut stopped: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(ReceivedRequest) -> F + Send + Sync + 'static,
    F: Future<Output = SbiResponse> + Send + 'static,
{
    /// Streams that a peer resets before they are looked at, and that we reset for its errors: as h2 has it (CVE-2023-44487).
    const RESET_STREAMS_MAX: usize = 20;
    let settings = &shared.settings;
    let streams = Arc::new(ConnectionStreams::default());
    let service = service_fn({
        let (shared, streams) = (shared.clone(), streams.clone());
        move |request| {
            let (shared, mut stream, certificate) = (shared.clone(), streams.begin(), certificate.clone());
            async move {
                let response = answer(&shared, peer, certificate, request).await;
                let octets = response.body;
                // A body that is empty is not polled.
                stream.is_sent = octets.is_empty();
                let mut http = hyper::Response::new(ResponseBody { octets, stream });
                *http.status_mut() = response.status;
                *http.headers_mut() = response.headers;
                Ok::<_, Infallible>(http)
            }
        }
    });
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams_max)
        .max_header_list_size(settings.header_octets_max)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(RESET_STREAMS_MAX)
        .max_send_buf_size(64 << 10);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let started = Instant::now();
    let mut is_stopping = false;
    // The response has its own time behind that of the handler.
    let response_within = settings.request_within * 2;
    let tick = settings.idle_within.min(response_within) / 4;
    loop {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = streams.abort.notified() => break,
            _ = stopped.changed() => {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(STOP_WITHIN, connection).await;
                return;
            }
            () = tokio::time::sleep(tick) => {
                let table = streams.table();
                let (oldest, last_end) = (table.open.values().next().copied(), table.last_end);
                drop(table);
                match oldest {
                    Some(oldest) if oldest.elapsed() > response_within => break,
                    Some(_) => {}
                    None if is_stopping => return,
                    None if last_end.unwrap_or(started).elapsed() >= settings.idle_within => {
                        connection.as_mut().graceful_shutdown();
                        is_stopping = true;
                    }
                    None => {}
                }
            }
        }
    }
    debug!("the connection of {peer} is closed: it gives requests up, or takes no response");
    shared.counters.connections_aborted.fetch_add(1, Ordering::Relaxed);
}

async fn answer<H, F>(
    shared: &Arc<Served<H>>,
    peer: SocketAddr,
    certificate: Option<CertificateDer<'static>>,
    request: hyper::Request<Incoming>,
) -> SbiResponse
where
    H: Fn(ReceivedRequest) -> F + Send + Sync + 'static,
    F: Future<Output = SbiResponse> + Send + 'static,
{
    let settings = &shared.settings;
    let started = Instant::now();
    let request = match receive(settings, peer, certificate, request).await {
        Ok(request) => request,
        Err(refusal) => {
            shared.counters.requests_refused.fetch_add(1, Ordering::Relaxed);
            return refusal;
        }
    };
    shared.counters.requests.fetch_add(1, Ordering::Relaxed);
    let left = settings.request_within.saturating_sub(started.elapsed());
    // In a task of its own, so that a panic is an answer.
    let mut handler = AbortOnDrop(tokio::spawn((shared.handler)(request)));
    match tokio::time::timeout(left, &mut handler.0).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => problem(ProtocolCause::SystemFailure, "the handler of the request failed"),
        Err(_) => problem(ProtocolCause::TimedOutRequest, "the request was not served in time"),
    }
}

/// A task that ends with what waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads the body of a request, within its bounds. The error is the refusal.
async fn receive(
    settings: &ServerSettings,
    peer: SocketAddr,
    client_certificate: Option<CertificateDer<'static>>,
    request: hyper::Request<Incoming>,
) -> Result<ReceivedRequest, SbiResponse> {
    let (head, body) = request.into_parts();
    if settings.refuses_late_requests
        && ResponseDeadline::read(&head.headers).is_some_and(|d| d.is_over(now()))
    {
        let detail = "the sender of the request waits no longer";
        return Err(problem(ProtocolCause::TimedOutRequest, detail));
    }
    if head.headers.contains_key(EXPECT) {
        return Err(of_status(417, None, "an expectation is not supported"));
    }
    let path = head.uri.path();
    let bound = settings.body_bounds.iter().find(|bound| path.starts_with(&*bound.path_prefix));
    let octets_max = bound.map_or(settings.body_octets_max, |bound| bound.octets_max);
    let too_large = || of_status(413, None, &format!("at most {octets_max} octets are taken here"));
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|octets| octets > octets_max as u64) {
        return Err(too_large());
    }
    let body = Limited::new(body, octets_max).collect();
    let body = match tokio::time::timeout(settings.body_within, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(e)) if e.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(_)) => return Err(problem(ProtocolCause::InvalidMsgFormat, "the body ended early")),
        Err(_) => return Err(of_status(408, None, "the body did not come in time")),
    };
    if !body.is_empty() {
        let media_type = media_type(&head.headers);
        if ![JSON, MERGE_PATCH_JSON, PATCH_JSON, FORM, MULTIPART].contains(&media_type.as_str()) {
            return Err(unsupported_media_type());
        }
    }
    let hyper::http::request::Parts { method, uri, headers, .. } = head;
    Ok(ReceivedRequest { method, uri, headers, body, peer, client_certificate })
}
