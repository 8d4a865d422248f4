//! HTTP/1.1 to etcd.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::access::EtcdAccess;
use crate::failure;

/// An etcd on the same network answers in milliseconds; one that has to elect a leader, in a second or two. The membership waits a
/// second longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A watch may have no change for days. If a firewall or a NAT has forgotten its connection, neither end would notice: TCP probes it
/// after this time without data, and this many times.
const TRIED_AFTER: Duration = Duration::from_secs(10);
const TRIED_AGAIN: Duration = Duration::from_secs(5);
const TRIES: u32 = 3;
/// Octets of an answer: ten thousand members, and a configuration.
const ANSWER_OCTETS_MAX: usize = 16 << 20;

/// Where an etcd serves its clients: `http://HOST:PORT`, or `https://` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayEndpoint {
    /// `HOST:PORT`.
    authority: String,
    /// The name in its certificate, with TLS.
    sealed: Option<ServerName<'static>>,
}

/// Why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadEndpoint {
    /// It is something else than `http://HOST:PORT` or `https://HOST:PORT`.
    Form(String),
    /// No endpoint is given.
    None,
}

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(text) => {
                write!(f, "`{text}` is not an etcd endpoint: write http://HOST:PORT or https://HOST:PORT")
            }
            Self::None => f.write_str("no etcd endpoint is given"),
        }
    }
}

impl Error for BadEndpoint {}

impl FromStr for GatewayEndpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let wrong = || BadEndpoint::Form(text.into());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let plain = authority.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b));
        let (host, port) = authority.rsplit_once(':').filter(|_| plain).ok_or_else(wrong)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        let sealed = match scheme {
            "http" => None,
            "https" => {
                let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                Some(ServerName::try_from(name).map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
        Ok(Self { authority: authority.into(), sealed })
    }
}

impl GatewayEndpoint {
    /// Whether it uses TLS.
    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }
}

/// An answer whose body is still to come. Its connection ends with it.
pub(crate) struct OpenedAnswer {
    ok: bool,
    body: Incoming,
    _connection: ConnectionTask,
}

struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The endpoints, and the token that etcd gave this process.
pub(crate) struct Gateway {
    access: EtcdAccess,
    endpoints: Vec<GatewayEndpoint>,
    /// The token of the user, valid for some minutes.
    token: Mutex<Option<String>>,
}

impl Gateway {
    /// Errors: one sentence.
    pub(crate) fn new(access: EtcdAccess) -> Result<Self, String> {
        let endpoints = access.check()?;
        Ok(Self { access, endpoints, token: Mutex::new(None) })
    }

    /// Posts a body to an endpoint and reads the whole answer: whether its status is a success, and its body. Errors: one sentence.
    pub(crate) async fn ask(&self, nth: usize, path: &str, body: &Value) -> Result<(bool, Bytes), String> {
        let at = self.endpoint(nth);
        let token = self.token(at).await?;
        let answer = in_time(at, async { self.open(at, path, body, &token).await?.whole().await }).await?;
        if answer.0 || token.is_none() || !is_of_token(&answer.1) {
            return Ok(answer);
        }
        self.forget_token();
        let token = self.token(at).await?;
        in_time(at, async { self.open(at, path, body, &token).await?.whole().await }).await
    }

    /// Posts a body, and waits for the head of the answer only. Errors: one sentence.
    pub(crate) async fn listen(&self, nth: usize, path: &str, body: &Value) -> Result<OpenedAnswer, String> {
        let at = self.endpoint(nth);
        let token = self.token(at).await?;
        in_time(at, self.open(at, path, body, &token)).await
    }

    fn endpoint(&self, nth: usize) -> &GatewayEndpoint {
        &self.endpoints[nth % self.endpoints.len()]
    }

    /// The user's token, requested if there is none yet; `None` without a user.
    async fn token(&self, at: &GatewayEndpoint) -> Result<Option<String>, String> {
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((user, password)) = self.access.password()?.filter(|_| known.is_none()) else {
            return Ok(known);
        };
        let body = json!({ "name": user, "password": password });
        let asked = async { self.open(at, "/v3/auth/authenticate", &body, &None).await?.whole().await };
        let (ok, answer) = in_time(at, asked).await?;
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct AuthenticateAnswer {
            token: String,
            error: String,
        }
        let AuthenticateAnswer { token, error } = serde_json::from_slice(&answer).unwrap_or_default();
        if !ok || token.is_empty() {
            // The gateway refuses certificates with a common name in plain text.
            let error = if error.is_empty() { String::from_utf8_lossy(&answer).into_owned() } else { error };
            let error: String = error.trim().chars().filter(|c| !c.is_control()).take(200).collect();
            return Err(format!("etcd at {} does not accept the user {user}: {error}", at.authority));
        }
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(Some(token))
    }

    fn forget_token(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn open(
        &self,
        at: &GatewayEndpoint,
        path: &str,
        body: &Value,
        token: &Option<String>,
    ) -> Result<OpenedAnswer, String> {
        let wrong = |e: &(dyn Error + 'static)| {
            format!("etcd at {}: {}", at.authority, failure::sentence(e, at.is_sealed(), &self.access))
        };
        let stream = connect(&at.authority).await.map_err(|e| wrong(&e))?;
        let mut request = hyper::Request::post(path)
            .header("host", &at.authority)
            .header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.body(Full::new(Bytes::from(body.to_string()))).map_err(|e| wrong(&e))?;
        let opened = match &at.sealed {
            None => send(stream, request).await,
            Some(name) => {
                let connector = self.access.connector()?;
                send(connector.connect(name.clone(), stream).await.map_err(|e| wrong(&e))?, request).await
            }
        };
        opened.map_err(|e| wrong(&e))
    }
}

/// Connects, with TCP keep-alive.
async fn connect(authority: &str) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(authority).await?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, TRIED_AFTER)?;
    sockopt::set_tcp_keepintvl(&stream, TRIED_AGAIN)?;
    sockopt::set_tcp_keepcnt(&stream, TRIES)?;
    Ok(stream)
}

async fn in_time<T>(
    at: &GatewayEndpoint,
    answer: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let within = tokio::time::timeout(ANSWER_WITHIN, answer);
    within.await.map_err(|_| format!("etcd at {} does not answer", at.authority))?
}

async fn send<S>(stream: S, request: hyper::Request<Full<Bytes>>) -> hyper::Result<OpenedAnswer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = ConnectionTask(tokio::spawn(connection).abort_handle());
    let response = sender.send_request(request).await?;
    Ok(OpenedAnswer {
        ok: response.status().is_success(),
        body: response.into_body(),
        _connection: connection,
    })
}

/// Whether an answer says that the token is no longer valid: it has expired, or etcd's users have changed.
fn is_of_token(body: &[u8]) -> bool {
    let says = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    says("invalid auth token") || says("revision of auth store is old")
}

impl OpenedAnswer {
    async fn whole(self) -> Result<(bool, Bytes), String> {
        let whole = Limited::new(self.body, ANSWER_OCTETS_MAX).collect().await;
        Ok((self.ok, whole.map_err(|e| format!("etcd's answer: {e}"))?.to_bytes()))
    }

    /// Hands out each line of the body as it comes, until the body ends or `on_line` returns false.
    pub(crate) async fn lines(mut self, mut on_line: impl FnMut(&[u8]) -> bool) {
        let mut held = Vec::new();
        while let Some(Ok(frame)) = self.body.frame().await {
            let Ok(octets) = frame.into_data() else { continue };
            held.extend_from_slice(&octets);
            while let Some(end) = held.iter().position(|b| *b == b'\n') {
                let goes_on = on_line(&held[..end]);
                held.drain(..=end);
                if !goes_on {
                    return;
                }
            }
            if held.len() > ANSWER_OCTETS_MAX {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // a firewall between it and etcd was restarted: neither changes nor the end of the watch arrive
    fn a_connection_that_is_silent_is_tried() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(connect(&authority)).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let within = sockopt::tcp_keepidle(&stream).unwrap()
            + sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        assert!(within <= Duration::from_secs(30), "{within:?}");
    }

    #[test]
    fn endpoints_are_read_and_others_refused() {
        for (text, authority) in [
            ("http://127.0.0.1:2379", "127.0.0.1:2379"),
            ("http://etcd-1.example:2379/", "etcd-1.example:2379"),
            ("http://[2001:db8::1]:2379", "[2001:db8::1]:2379"),
            ("https://[2001:db8::1]:2379", "[2001:db8::1]:2379"),
            ("https://etcd-1.example:2379", "etcd-1.example:2379"),
        ] {
            let read: GatewayEndpoint = text.parse().unwrap();
            assert_eq!((read.authority.as_str(), read.is_sealed()), (authority, text.starts_with("https")));
        }
        for text in [
            "",
            "127.0.0.1:2379",
            "http://127.0.0.1",
            "http://:2379",
            "http://a:b",
            "http://a\r\n:1",
            "http://a/b:1",
            "https://a..b:1",
            "ftp://a:1",
        ] {
            assert_eq!(text.parse::<GatewayEndpoint>(), Err(BadEndpoint::Form(text.into())), "{text}");
        }
    }
}
