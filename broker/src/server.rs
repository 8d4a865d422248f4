//! The broker's listeners: HTTP/2 over TLS 1.3 for operators, HTTP/1.1 for health and metrics.

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
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tracing::warn;
use whimbrel_open::admission::{Peer, WAIT_MAX};
use whimbrel_open::msg::{AuthReqT, Confirmation, VectorRequest};
use whimbrel_open::usage::Delivery;

use crate::engine::Entrance;
use crate::{ATTACH_PATH, MEDIA_TYPE, USAGE_PATH};

/// Connections at once: each operator keeps a few open. Further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 4_096;
/// Connections of health checks and metrics at once.
const ADMIN_CONNECTIONS_MAX: usize = 32;
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
    /// Where health and metrics are.
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

/// Starts both. Errors: one sentence that names the address.
pub fn start(
    listen: SocketAddr,
    admin: SocketAddr,
    tls: Arc<ServerConfig>,
    entrance: Entrance,
) -> Result<Server, String> {
    let bind = |at: SocketAddr, key: &str| {
        let failed = |e| format!("the broker cannot listen on {at} (TCP): {e}; choose another `{key}`");
        let listener = TcpListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok::<_, String>((listener.local_addr().map_err(failed)?, listener))
    };
    let ((address, operators), (admin, checks)) = (bind(listen, "listen")?, bind(admin, "admin.address")?);
    let cannot = |e: std::io::Error| format!("the broker cannot serve on {address}: {e}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (stop, stopped) = watch::channel(false);
    let serve = move || {
        runtime.block_on(async {
            let admin = tokio::spawn(accept_admin(checks, entrance.clone(), stopped.clone()));
            accept(operators, tls, entrance, stopped).await;
            let _ = admin.await;
        });
    };
    let thread = std::thread::Builder::new().name("broker-http".into()).spawn(serve).map_err(cannot)?;
    Ok(Server { address, admin, stop, thread: Some(thread) })
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
    entrance: Entrance,
    mut stopped: watch::Receiver<bool>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let (acceptor, room) = (TlsAcceptor::from(tls), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    let mut peers = 0;
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Some((stream, from)) = next(&listener, &mut stopped).await else { break };
        peers += 1;
        let (peer, entrance, stopped) = (Peer(peers), entrance.clone(), stopped.clone());
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // Answers are a few hundred octets that must not wait for more.
            let _ = stream.set_nodelay(true);
            match tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    entrance.metrics.connected();
                    serve(stream, peer, &entrance, stopped).await;
                    entrance.metrics.disconnected();
                }
                Ok(Err(e)) => {
                    entrance.metrics.tls_failed();
                    tracing::debug!("the TLS handshake with {from} failed: {e}");
                }
                Err(_) => entrance.metrics.tls_failed(),
            }
            drop(permit);
        });
    }
    let _ = tokio::time::timeout(STOP_WITHIN, room.acquire_many(CONNECTIONS_MAX as u32)).await;
}

async fn serve(
    stream: tokio_rustls::server::TlsStream<TcpStream>,
    peer: Peer,
    entrance: &Entrance,
    mut stopped: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let entrance = entrance.clone();
        async move {
            let response = exchange(&entrance, peer, request).await.unwrap_or_else(|refusal| {
                entrance.metrics.http_refused();
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
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(STOP_WITHIN, connection).await;
        }
    }
}

/// A request that SAP does not see.
struct HttpRefusal(StatusCode, &'static str);

impl HttpRefusal {
    fn response(self) -> Response<Full<Bytes>> {
        let mut response = text(self.0, self.1.to_owned() + "\n");
        if self.0 == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

async fn exchange(
    entrance: &Entrance,
    peer: Peer,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, HttpRefusal> {
    let is_usage = request.uri().path() == USAGE_PATH;
    if !is_usage && request.uri().path() != ATTACH_PATH {
        let what = "the paths here are /sap/v1/attach and /sap/v1/usage";
        return Err(HttpRefusal(StatusCode::NOT_FOUND, what));
    }
    if request.method() != Method::POST {
        return Err(HttpRefusal(StatusCode::METHOD_NOT_ALLOWED, "attaches and reports are sent by POST"));
    }
    if request.headers().get(CONTENT_TYPE).is_none_or(|v| v != MEDIA_TYPE) {
        let what = "the body is a SAP message of type application/octet-stream";
        return Err(HttpRefusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let octets_max = if is_usage { Delivery::OCTETS_MAX } else { BODY_OCTETS_MAX };
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
    let asked = if is_usage { entrance.deliver(octets) } else { entrance.ask(peer, octets) };
    let answer = asked.ok_or_else(busy)?;
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(octets)) => {
            let mut response = Response::new(Full::new(Bytes::from(octets)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
            Ok(response)
        }
        Ok(Err(_)) | Err(_) => Err(busy()),
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn accept_admin(listener: TcpListener, entrance: Entrance, mut stopped: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        warn!("health and metrics are not served: the listener cannot be watched");
        return;
    };
    let room = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Some((stream, _)) = next(&listener, &mut stopped).await else { return };
        let (entrance, mut stopped) = (entrance.clone(), stopped.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let response = admin(&entrance, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_WITHIN).max_buf_size(16 << 10);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = connection => {}
                _ = stopped.changed() => {}
            }
            drop(permit);
        });
    }
}

fn admin(entrance: &Entrance, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n".into());
    }
    match (request.uri().path(), entrance.metrics.problem()) {
        ("/health", None) => text(StatusCode::OK, "ok\n".into()),
        ("/health", Some(problem)) => text(StatusCode::SERVICE_UNAVAILABLE, problem + "\n"),
        ("/metrics", _) => text(StatusCode::OK, entrance.metrics.text()),
        _ => text(StatusCode::NOT_FOUND, "the paths here are /health and /metrics\n".into()),
    }
}
