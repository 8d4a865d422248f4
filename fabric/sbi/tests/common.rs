//! Servers and clients that the tests share.

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use whimbrel_sbi::server::{ReceivedRequest, SbiServer, ServerSettings};
use whimbrel_sbi::{ClientSettings, SbiClient, SbiRequest, SbiResponse};

/// Longer than any exchange on loopback takes on a busy host.
pub(crate) const WITHIN: Duration = Duration::from_secs(20);

/// Runs a test on a runtime of two threads.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.unwrap() })
}

pub(crate) fn listener() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).unwrap()
}

/// A server that answers with the method, the path and the body.
pub(crate) fn echo(settings: ServerSettings) -> SbiServer {
    SbiServer::start(listener(), settings, |request| async move { echoed(&request) }).unwrap()
}

pub(crate) fn echoed(request: &ReceivedRequest) -> SbiResponse {
    let body = serde_json::json!({
        "method": request.method.as_str(),
        "uri": request.uri.path_and_query().map(|p| p.as_str()),
        "octets": request.body.len(),
        "agent": request.headers.get("user-agent").and_then(|v| v.to_str().ok()),
    });
    SbiResponse::json(hyper::StatusCode::OK, &body)
}

pub(crate) fn client() -> SbiClient {
    SbiClient::new(ClientSettings::new("AMF"))
}

pub(crate) fn get(at: SocketAddr, path: &str) -> SbiRequest {
    SbiRequest::get(format!("http://{at}{path}").parse().unwrap(), WITHIN)
}

pub(crate) fn post(at: SocketAddr, path: &str, octets: usize) -> SbiRequest {
    let mut request = get(at, path);
    request.method = hyper::Method::POST;
    request.body(whimbrel_sbi::message::JSON, vec![b' '; octets].into())
}

/// A connection of h2 itself, for what no honest client does.
pub(crate) async fn raw(at: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender
}

pub(crate) fn request(method: &str, path: &str) -> hyper::Request<()> {
    let uri = format!("http://peer{path}");
    hyper::Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", "application/json")
        .body(())
        .unwrap()
}

/// A server of h2 itself, which treats each connection as `serve` says; the number is that of the connection.
pub(crate) fn raw_server<F>(
    serve: impl Fn(u64, h2::server::Connection<tokio::net::TcpStream, Bytes>) -> F + Send + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = listener();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let connection = h2::server::handshake(stream).await.unwrap();
            tokio::spawn(serve(number, connection));
            number += 1;
        }
    });
    at
}

/// Answers a request of a raw server with a JSON body.
pub(crate) fn reply(mut respond: h2::server::SendResponse<Bytes>, status: u16, body: &'static str) {
    let response = hyper::Response::builder().status(status).header("content-type", "application/json");
    let mut stream = respond.send_response(response.body(()).unwrap(), body.is_empty()).unwrap();
    if !body.is_empty() {
        stream.send_data(Bytes::from_static(body.as_bytes()), true).unwrap();
    }
}
