//! HTTP/1.1 to etcd.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// An etcd on the same network answers in milliseconds; one that has to elect a leader, in a second or two. The membership waits a
/// second longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Octets of an answer: ten thousand members, and a configuration.
const ANSWER_OCTETS_MAX: usize = 16 << 20;

/// Where an etcd serves its clients: `http://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `HOST:PORT`.
    authority: String,
}

/// What is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadEndpoint {
    /// TLS, which is not spoken here.
    Tls(String),
    /// Something else than `http://HOST:PORT`.
    Form(String),
    /// There is none.
    None,
}

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(text) => write!(
                f,
                "`{text}`: TLS to etcd is not supported; use http:// over a protected network or to an etcd on this host"
            ),
            Self::Form(text) => write!(f, "`{text}` is no etcd endpoint: write http://HOST:PORT"),
            Self::None => f.write_str("no etcd endpoint is given"),
        }
    }
}

impl std::error::Error for BadEndpoint {}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if text.starts_with("https://") {
            return Err(BadEndpoint::Tls(text.into()));
        }
        let authority = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let serves = |a: &&str| {
            let plain = a.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b));
            plain
                && a.rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        match authority.filter(serves) {
            Some(authority) => Ok(Self { authority: authority.into() }),
            None => Err(BadEndpoint::Form(text.into())),
        }
    }
}

/// An answer whose body is still to come. Its connection ends with it.
pub(crate) struct Opened {
    ok: bool,
    body: Incoming,
    _connection: Connection,
}

struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Endpoint {
    /// Posts a body and takes the whole answer: whether its status is one of success, and its body. Errors: one sentence.
    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Result<(bool, Bytes), String> {
        self.in_time(async { self.open(path, body).await?.whole().await }).await
    }

    /// Posts a body, and waits for the head of the answer only. Errors: one sentence.
    pub(crate) async fn listen(&self, path: &str, body: &Value) -> Result<Opened, String> {
        self.in_time(self.open(path, body)).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let within = tokio::time::timeout(ANSWER_WITHIN, answer);
        within.await.map_err(|_| format!("etcd at {} does not answer", self.authority))?
    }

    async fn open(&self, path: &str, body: &Value) -> Result<Opened, String> {
        let wrong = |e: &dyn fmt::Display| format!("etcd at {}: {e}", self.authority);
        let stream = TcpStream::connect(&self.authority).await.map_err(|e| wrong(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| wrong(&e))?;
        let connection = Connection(tokio::spawn(connection).abort_handle());
        let request = hyper::Request::post(path)
            .header("host", &self.authority)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|e| wrong(&e))?;
        let response = sender.send_request(request).await.map_err(|e| wrong(&e))?;
        Ok(Opened { ok: response.status().is_success(), body: response.into_body(), _connection: connection })
    }
}

impl Opened {
    async fn whole(self) -> Result<(bool, Bytes), String> {
        let whole = Limited::new(self.body, ANSWER_OCTETS_MAX).collect().await;
        Ok((self.ok, whole.map_err(|e| format!("etcd's answer: {e}"))?.to_bytes()))
    }

    /// Each line of the body as it comes, until it ends or `told` says that it is enough.
    pub(crate) async fn lines(mut self, mut told: impl FnMut(&[u8]) -> bool) {
        let mut held = Vec::new();
        while let Some(Ok(frame)) = self.body.frame().await {
            let Ok(octets) = frame.into_data() else { continue };
            held.extend_from_slice(&octets);
            while let Some(end) = held.iter().position(|b| *b == b'\n') {
                let goes_on = told(&held[..end]);
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

    #[test]
    fn endpoints_are_read_and_what_is_none_is_told() {
        for (text, authority) in [
            ("http://127.0.0.1:2379", "127.0.0.1:2379"),
            ("http://etcd-1.example:2379/", "etcd-1.example:2379"),
            ("http://[2001:db8::1]:2379", "[2001:db8::1]:2379"),
        ] {
            assert_eq!(text.parse(), Ok(Endpoint { authority: authority.into() }));
        }
        for text in [
            "",
            "127.0.0.1:2379",
            "http://127.0.0.1",
            "http://:2379",
            "http://a:b",
            "http://a\r\n:1",
            "http://a/b:1",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(BadEndpoint::Form(text.into())), "{text}");
        }
        assert!(
            "https://a:1"
                .parse::<Endpoint>()
                .unwrap_err()
                .to_string()
                .contains("TLS to etcd is not supported")
        );
    }
}
