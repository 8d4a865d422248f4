//! The server: one thread, bounded connections, headers, bodies and times.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, watch};

use super::problem::Problem;
use super::routes::{self, BODY_OCTETS_MAX, Reply, Request, Route};
use super::{Shared, port_owner, subscribers};
use crate::console::{Component, Condition, Metric};

/// Connections at once: some operators, a dashboard, a Prometheus; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 128;
/// A client that takes longer for its header blocks a connection that others need.
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (stop, stopped) = watch::channel(false);
    let serve = move || runtime.block_on(accept(listener, shared, stopped));
    let thread = std::thread::Builder::new().name("api".into()).spawn(serve).map_err(cannot)?;
    Ok(Server { address, stop, thread: Some(thread) })
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
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
        let (shared, mut stopped) = (shared.clone(), stopped.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| answer(shared.clone(), peer, request));
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER_WITHIN).max_buf_size(HEADER_OCTETS_MAX);
            let connection = http.serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            // If the connection breaks, there is no client left to answer.
            tokio::select! {
                _ = connection.as_mut() => {}
                _ = stopped.changed() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(STOP_WITHIN, connection).await;
                }
            }
            drop(permit);
        });
    }
    let all = room.acquire_many(CONNECTIONS_MAX as u32);
    let _ = tokio::time::timeout(STOP_WITHIN, all).await;
}

async fn answer(
    shared: Arc<Shared>,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
    shared.console.metrics.add(Metric::ApiRequests, 1);
    let handled = tokio::time::timeout(REQUEST_WITHIN, handle(shared.clone(), peer, request)).await;
    let reply = match handled {
        Ok(Ok(reply)) => reply,
        Ok(Err(problem)) => {
            shared.console.metrics.add(Metric::ApiRefused, 1);
            problem.into()
        }
        Err(_) => {
            shared.console.metrics.add(Metric::ApiRefused, 1);
            Problem::timeout(format!("not done within {} s", REQUEST_WITHIN.as_secs())).into()
        }
    };
    Ok(reply.into_response())
}

async fn handle(
    shared: Arc<Shared>,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
) -> Result<Reply, Problem> {
    let (head, body) = request.into_parts();
    from_here(&head.headers, shared.config.api.address)?;
    let (route, params) = routes::find(&head.method, head.uri.path())?;
    serves(&shared, route)?;
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
    if !route.is_personal() {
        return (route.handler)(shared.clone(), Request { params, query, content_type, body }).await;
    }
    let subscriber = params.first().cloned().or_else(|| subscribers::named_by(&body));
    let answer = (route.handler)(shared.clone(), Request { params, query, content_type, body }).await;
    let outcome = answer.as_ref().map_or_else(Problem::status, Reply::status);
    let what = format!("{} {}", head.method, route.path);
    subscribers::accessed(&shared, peer.to_string(), what, subscriber, outcome).await;
    answer
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
    match other {
        Some(detail) if !ITS_OWN.contains(&route.path) => {
            Err(Problem::unavailable(format!("{detail}; ask the primary")))
        }
        _ => Ok(()),
    }
}

/// Waits for the turn of a request with a large body, for a bounded time: a slow sender must not block the next one.
async fn turn(shared: &Shared) -> Result<tokio::sync::SemaphorePermit<'_>, Problem> {
    let turn = tokio::time::timeout(TURN_WITHIN, shared.imports.acquire()).await;
    turn.map_err(|_| Problem::unavailable("another import is under way; try again when it has ended"))?
        .map_err(|_| Problem::unavailable("the API is stopping"))
}

/// Refuses requests that a browser sends for a foreign web page, because the API has no authentication.
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
