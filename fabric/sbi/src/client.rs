//! The consumer's side: HTTP/2 connections to producers, kept open between requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_LENGTH, HeaderValue, USER_AGENT};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::endpoint::SbiEndpoint;
use crate::error::SendError;
use crate::headers::{ResponseDeadline, SENDER_TIMESTAMP, now};
use crate::message::{JSON, MULTIPART, SbiRequest, SbiResponse, media_type};
use crate::tls::ReplaceableConfig;

/// Octets of a response's header list: `Location`, `3gpp-Sbi-Binding` and the like have some hundred each.
const HEADER_OCTETS_MAX: u32 = 16 << 10;

/// Connections on which one request is tried, where each is closed before the peer looks at it. Servers of free5GC close a connection that
/// is idle for a millisecond, and so often while a request is on its way.
const CONNECTIONS_OF_REQUEST_MAX: u32 = 6;

/// Bounds and identity of a client.
#[derive(Clone)]
pub struct ClientSettings {
    /// Trusted authorities and the own certificate; without, `https` is refused.
    pub tls: Option<ReplaceableConfig<rustls::ClientConfig>>,
    /// Address that connections come from, where the host has several.
    pub source: Option<IpAddr>,
    /// Peers to which connections are kept. Past this, the one that was used least recently is closed.
    pub connections_max: usize,
    /// Requests to one peer at once. A peer with a lower `SETTINGS_MAX_CONCURRENT_STREAMS` has the rest wait here.
    pub streams_max: usize,
    /// Time for TCP and TLS.
    pub connect_within: Duration,
    /// Between two pings on a connection, so that one that broke is replaced before a UE needs it.
    pub ping_every: Duration,
    /// Time for the answer to a ping.
    pub pong_within: Duration,
    /// NF type, optionally with `-` and an instance: `User-Agent` of TS 29.500 §5.2.2.2.
    pub user_agent: HeaderValue,
    /// Send `3gpp-Sbi-Sender-Timestamp` and `3gpp-Sbi-Max-Rsp-Time` (TS 29.500 §6.11): for networks with synchronised clocks.
    pub announces_deadline: bool,
}

impl ClientSettings {
    /// Defaults for an NF of this type, such as `AMF`. Text that cannot stand in a header is left out.
    pub fn new(user_agent: &str) -> Self {
        Self {
            tls: None,
            source: None,
            // An operator has some dozens of UDMs, AUSFs, PCFs and NRFs.
            connections_max: 256,
            // Some thousands of registrations a second, each with requests of some milliseconds.
            streams_max: 1024,
            connect_within: Duration::from_secs(3),
            ping_every: Duration::from_secs(15),
            pong_within: Duration::from_secs(5),
            user_agent: HeaderValue::try_from(user_agent).unwrap_or_else(|_| HeaderValue::from_static("AMF")),
            announces_deadline: false,
        }
    }
}

type Sender = SendRequest<RequestBody>;

/// Runs while its connection is open.
type ConnectionTask = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An open connection.
#[derive(Clone)]
struct OpenConnection {
    number: u64,
    /// A response has come on it.
    answered: Arc<AtomicBool>,
    /// The reason for which it ended, as the TLS alert of a server that refuses the client's certificate.
    end: watch::Receiver<Option<SendError>>,
}

/// Time between the failure of a request and that of its connection, which says why.
const END_WITHIN: Duration = Duration::from_millis(100);

impl OpenConnection {
    /// A better reason for a request that failed with its connection.
    async fn explain(mut self, e: SendError) -> SendError {
        let is_of_connection = matches!(e, SendError::Refused(_) | SendError::Broken(..));
        if !is_of_connection || self.answered.load(Ordering::Relaxed) {
            return e;
        }
        let end = tokio::time::timeout(END_WITHIN, self.end.wait_for(Option::is_some)).await;
        match end {
            Ok(Ok(end)) => end.clone().unwrap_or(e),
            _ => e,
        }
    }
}

/// The connection to one peer. It is locked while one is being made, so that a burst of requests makes one.
///
/// A request that is handed to a connection while that connection ends can be left in the queue between the two. It comes back, for a
/// new connection, when the last sender is dropped: so a sender lives here while its connection is open, and in a request until it is sent.
struct PeerConnection {
    open: tokio::sync::Mutex<Option<(Sender, OpenConnection)>>,
    streams: Semaphore,
}

impl PeerConnection {
    /// Drops the connection of this number, unless a new one took its place.
    async fn forget(&self, number: u64) {
        let mut open = self.open.lock().await;
        if open.as_ref().is_some_and(|(_, open)| open.number == number) {
            *open = None;
        }
    }
}

/// Connections by peer; numbers order them by their last use.
#[derive(Default)]
struct PeerConnections {
    uses: u64,
    peers: BTreeMap<SbiEndpoint, (u64, Arc<PeerConnection>)>,
    /// Peers that asked to be left alone, until when.
    retry_after: BTreeMap<SbiEndpoint, Instant>,
}

/// The consumer's side. Cloned handles share the connections. Used within a tokio runtime.
#[derive(Clone)]
pub struct SbiClient(Arc<ClientState>);

struct ClientState {
    settings: ClientSettings,
    connections: Mutex<PeerConnections>,
    opened: AtomicU64,
}

impl core::fmt::Debug for SbiClient {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SbiClient(…)")
    }
}

impl SbiClient {
    /// No connection yet.
    pub fn new(settings: ClientSettings) -> Self {
        Self(Arc::new(ClientState { settings, connections: Mutex::default(), opened: AtomicU64::new(0) }))
    }

    /// Sends a request and reads its response, of any status. A request that the peer has certainly not looked at, as on a connection that
    /// it was about to close, is sent again on a new connection; one that is idempotent also, once, where the connection broke.
    pub async fn send(&self, request: SbiRequest) -> Result<SbiResponse, SendError> {
        let at = SbiEndpoint::of(&request.uri)?;
        let within = request.within;
        let until = tokio::time::Instant::now() + within;
        let peer = self.peer(&at);
        // Waits one after the other with one end: of two timers for the same time, either could be the first.
        let Ok(Ok(_stream)) = tokio::time::timeout_at(until, peer.streams.acquire()).await else {
            return Err(SendError::Busy(at, self.0.settings.streams_max));
        };
        match tokio::time::timeout_at(until, self.exchange(&at, &peer, request)).await {
            Ok(done) => done,
            Err(_) => Err(SendError::TimedOut(at, within)),
        }
    }

    /// Makes the connection to a peer before it is needed.
    pub async fn warm(&self, at: &SbiEndpoint) -> Result<(), SendError> {
        self.open(&self.peer(at), at).await.map(drop)
    }

    /// Connections that were made since the start.
    pub fn connections_opened(&self) -> u64 {
        self.0.opened.load(Ordering::Relaxed)
    }

    async fn exchange(
        &self,
        at: &SbiEndpoint,
        peer: &Arc<PeerConnection>,
        mut request: SbiRequest,
    ) -> Result<SbiResponse, SendError> {
        self.complete(&mut request);
        let mut connections = 1;
        let mut is_broken_before = false;
        loop {
            let (sender, open) = self.open(peer, at).await?;
            let e = match attempt(sender, &open, at, &request).await {
                Err(e @ (SendError::Refused(_) | SendError::Broken(..) | SendError::NotHttp2(_))) => e,
                done => return done,
            };
            peer.forget(open.number).await;
            let is_tried_again = match &e {
                SendError::Refused(_) => true,
                // RFC 9110 §9.2.2: what is idempotent may be repeated where the connection broke.
                SendError::Broken(..) => !is_broken_before && request.method.is_idempotent(),
                _ => false,
            };
            if !is_tried_again || connections == CONNECTIONS_OF_REQUEST_MAX {
                return Err(open.explain(e).await);
            }
            is_broken_before |= matches!(e, SendError::Broken(..));
            connections += 1;
        }
    }

    /// Adds the headers that each request has.
    fn complete(&self, request: &mut SbiRequest) {
        let settings = &self.0.settings;
        let headers = &mut request.headers;
        headers.entry(USER_AGENT).or_insert_with(|| settings.user_agent.clone());
        headers
            .entry(ACCEPT)
            .or_insert(HeaderValue::from_static("application/json, application/problem+json"));
        if settings.announces_deadline && !headers.contains_key(SENDER_TIMESTAMP) {
            ResponseDeadline { sent: now(), within: request.within }.write(headers);
        }
    }

    fn connections(&self) -> MutexGuard<'_, PeerConnections> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn peer(&self, at: &SbiEndpoint) -> Arc<PeerConnection> {
        let settings = &self.0.settings;
        let mut connections = self.connections();
        let PeerConnections { uses, peers, .. } = &mut *connections;
        *uses += 1;
        if peers.len() >= settings.connections_max
            && !peers.contains_key(at)
            && let Some(oldest) = peers.iter().min_by_key(|(_, (used, _))| *used).map(|(at, _)| at.clone())
        {
            peers.remove(&oldest);
        }
        let (used, peer) = peers.entry(at.clone()).or_insert_with(|| {
            let streams = Semaphore::new(settings.streams_max);
            (0, Arc::new(PeerConnection { open: tokio::sync::Mutex::default(), streams }))
        });
        *used = *uses;
        peer.clone()
    }

    /// Time for which a peer has asked to be left alone.
    pub(crate) fn wait_of(&self, at: &SbiEndpoint) -> Duration {
        let mut connections = self.connections();
        let now = Instant::now();
        connections.retry_after.retain(|_, until| *until > now);
        connections.retry_after.get(at).map_or(Duration::ZERO, |until| until.duration_since(now))
    }

    /// Notes that a peer asked to be left alone.
    pub(crate) fn note_retry_after(&self, at: &SbiEndpoint, wait: Duration) {
        let most = self.0.settings.connections_max;
        let mut connections = self.connections();
        if connections.retry_after.len() < most || connections.retry_after.contains_key(at) {
            connections.retry_after.insert(at.clone(), Instant::now() + wait);
        }
    }

    /// The open connection, or a new one.
    async fn open(
        &self,
        peer: &Arc<PeerConnection>,
        at: &SbiEndpoint,
    ) -> Result<(Sender, OpenConnection), SendError> {
        let mut open = peer.open.lock().await;
        if let Some((sender, open)) = &*open
            && !sender.is_closed()
        {
            return Ok((sender.clone(), open.clone()));
        }
        *open = None;
        let (sender, connection) =
            match tokio::time::timeout(self.0.settings.connect_within, self.connect(at)).await {
                Ok(connection) => connection?,
                Err(_) => return Err(SendError::Connect(at.clone(), "no answer in time".into())),
            };
        let number = self.0.opened.fetch_add(1, Ordering::Relaxed);
        let (ended, end) = watch::channel(None);
        let new = (sender, OpenConnection { number, answered: Arc::default(), end });
        *open = Some(new.clone());
        let (peer, at) = (Arc::downgrade(peer), at.clone());
        tokio::spawn(async move {
            if let Err(e) = connection.await {
                ended.send_replace(SendError::of_connection(&at, &e));
            }
            drop(ended);
            if let Some(peer) = peer.upgrade() {
                peer.forget(number).await;
            }
        });
        Ok(new)
    }

    async fn connect(&self, at: &SbiEndpoint) -> Result<(Sender, ConnectionTask), SendError> {
        let settings = &self.0.settings;
        if !at.tls {
            let stream = self.reach(at).await?;
            return self.handshake(at, stream).await;
        }
        let Some(tls) = &settings.tls else { return Err(SendError::NoTls(at.clone())) };
        let name = ServerName::try_from(at.host.to_string())
            .map_err(|e| SendError::Tls(at.clone(), e.to_string().into()))?;
        let stream = self.reach(at).await?;
        let stream = TlsConnector::from(tls.current())
            .connect(name, stream)
            .await
            .map_err(|e| SendError::of_tls(at, &e))?;
        // RFC 9113 §3.2: HTTP/2 over TLS is agreed by ALPN.
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(SendError::NotHttp2(at.clone()));
        }
        self.handshake(at, stream).await
    }

    /// TCP to the first of the host's addresses that answers.
    async fn reach(&self, at: &SbiEndpoint) -> Result<TcpStream, SendError> {
        /// Addresses of a name that are tried: more than one IPv4 and one IPv6 address of two hosts.
        const ADDRESSES_MAX: usize = 4;
        let addresses: Vec<SocketAddr> = match at.host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, at.port)],
            Err(_) => tokio::net::lookup_host((&*at.host, at.port))
                .await
                .map_err(|e| SendError::Resolve(at.clone(), e.to_string().into()))?
                .take(ADDRESSES_MAX)
                .collect(),
        };
        let mut failure: Box<str> = "it has none".into();
        for address in &addresses {
            match self.reach_address(*address).await {
                Ok(stream) => {
                    // A request is one small packet that must not wait for more.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(e) => failure = e.to_string().into(),
            }
        }
        match addresses.is_empty() {
            true => Err(SendError::Resolve(at.clone(), failure)),
            false => Err(SendError::Connect(at.clone(), failure)),
        }
    }

    async fn reach_address(&self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let Some(source) = self.0.settings.source.filter(|s| s.is_ipv4() == address.is_ipv4()) else {
            return TcpStream::connect(address).await;
        };
        let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(source, 0))?;
        socket.connect(address).await
    }

    async fn handshake<S>(&self, at: &SbiEndpoint, stream: S) -> Result<(Sender, ConnectionTask), SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = &self.0.settings;
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(settings.ping_every)
            .keep_alive_timeout(settings.pong_within)
            .keep_alive_while_idle(true)
            .max_header_list_size(HEADER_OCTETS_MAX);
        let (sender, connection) =
            http.handshake(TokioIo::new(stream)).await.map_err(|e| SendError::of_http(at, &e, false))?;
        Ok((sender, Box::pin(connection)))
    }
}

/// Body of a request.
///
/// hyper says that a connection ended by a GOAWAY of a request whose stream the peer did not look at, and also of one whose head has left
/// while the GOAWAY came: that one may be among those that the peer looked at, but its body stays here. A request that must not be repeated
/// therefore ends with its body and never with its head, even if its body is empty.
struct RequestBody {
    octets: Bytes,
    ends_with_head: bool,
}

impl RequestBody {
    fn of(request: &SbiRequest) -> Self {
        let ends_with_head = request.body.is_empty() && request.method.is_idempotent();
        Self { octets: request.body.clone(), ends_with_head }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let octets = std::mem::take(&mut self.octets);
        self.ends_with_head = true;
        Poll::Ready((!octets.is_empty()).then(|| Ok(Frame::data(octets))))
    }

    fn is_end_stream(&self) -> bool {
        self.octets.is_empty() && self.ends_with_head
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.octets.len() as u64)
    }
}

/// One exchange on a connection.
async fn attempt(
    mut sender: Sender,
    open: &OpenConnection,
    at: &SbiEndpoint,
    request: &SbiRequest,
) -> Result<SbiResponse, SendError> {
    let has_answered = || open.answered.load(Ordering::Relaxed);
    let failed = |e: &hyper::Error| SendError::of_http(at, e, has_answered());
    let mut http = Request::new(RequestBody::of(request));
    *http.method_mut() = request.method.clone();
    *http.uri_mut() = request.uri.clone();
    *http.headers_mut() = request.headers.clone();
    sender.ready().await.map_err(|e| match failed(&e) {
        // Nothing was written yet.
        SendError::Broken(at, _) => SendError::Refused(at),
        other => other,
    })?;
    let response = sender.try_send_request(http);
    drop(sender);
    let response = response.await.map_err(|mut e| match e.take_message() {
        Some(_) if !e.error().is_user() => match failed(e.error()) {
            SendError::NotHttp2(at) => SendError::NotHttp2(at),
            _ => SendError::Refused(at.clone()),
        },
        _ if e.error().is_user() => SendError::Request(at.clone(), e.error().to_string().into()),
        _ => failed(e.error()),
    })?;
    open.answered.store(true, Ordering::Relaxed);
    let (head, body) = response.into_parts();
    let most = request.response_octets_max;
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|octets| octets > most as u64) {
        return Err(SendError::TooLong(at.clone(), most));
    }
    let body =
        Limited::new(body, most).collect().await.map_err(|e| match e.downcast_ref::<hyper::Error>() {
            _ if e.is::<LengthLimitError>() => SendError::TooLong(at.clone(), most),
            // A response has begun: the peer has acted.
            Some(e) => match failed(e) {
                SendError::Refused(at) => SendError::Broken(at, "it was closed within a response".into()),
                other => other,
            },
            None => SendError::Broken(at.clone(), e.to_string().into()),
        })?;
    let mut body = body.to_bytes();
    let media_type = media_type(&head.headers);
    let is_read = media_type == JSON || media_type.ends_with("+json") || media_type == MULTIPART;
    if !body.is_empty() && !is_read {
        if head.status.is_success() {
            let named = if media_type.is_empty() { "of no media type" } else { &media_type };
            let named: String = named.chars().take(100).collect();
            return Err(SendError::ContentType(at.clone(), named.into()));
        }
        // The status says enough: a page of a proxy has no cause.
        body = Bytes::new();
    }
    Ok(SbiResponse { status: head.status, headers: head.headers, body })
}
