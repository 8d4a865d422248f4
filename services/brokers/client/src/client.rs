//! An operator's connections to brokers: HTTP/2 over TLS 1.3, kept open between attaches.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, CertificateError, ClientConfig};
use whimbrel_open::id::Domain;
use whimbrel_open::usage::DeliveryAnswer;

use crate::veil::TlsEndpoint;
use crate::{ATTACH_PATH, MEDIA_TYPE, USAGE_PATH};

/// Brokers to which connections are kept. Past this, the one that was used least recently is closed.
pub const CONNECTIONS_MAX: usize = 256;
/// For TCP and TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// A warm connection that answers no ping is replaced before a UE needs it.
const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_WITHIN: Duration = Duration::from_secs(5);
/// Octets of an answer: three parts of some hundred octets each.
const ANSWER_OCTETS_MAX: usize = 4 << 10;

/// Why a broker gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskError {
    /// No connection: refused, no route, or no answer in time.
    Unreachable(SocketAddr, String),
    /// The broker's TLS certificate is not for its domain.
    TlsName(Domain),
    /// The broker's TLS certificate has expired or is not valid yet.
    TlsTime(Domain),
    /// The broker's TLS certificate is of no authority that is trusted here.
    TlsUntrusted(Domain),
    /// TLS failed in another way.
    Tls(Domain, String),
    /// What answers is no broker, or the broker is overloaded.
    Http(Domain, u16),
    /// The connection broke before the answer.
    Broken(Domain, String),
    /// The answer is longer than any answer of a broker.
    TooLong(Domain),
    /// No answer in time.
    Late(Domain, Duration),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(at, e) => write!(f, "no connection to {at}: {e}"),
            Self::TlsName(domain) => write!(f, "the TLS certificate of {domain} names another host"),
            Self::TlsTime(domain) => {
                write!(f, "the TLS certificate of {domain} has expired or is not valid yet")
            }
            Self::TlsUntrusted(domain) => {
                write!(f, "no authority that is trusted here signed the TLS certificate of {domain}")
            }
            Self::Tls(domain, e) => write!(f, "TLS with {domain} fails: {e}"),
            Self::Http(domain, 503) => write!(f, "{domain} has no room for the request now"),
            Self::Http(domain, status) => {
                write!(f, "{domain} answers with HTTP status {status}, not as a broker")
            }
            Self::Broken(domain, e) => write!(f, "the connection to {domain} broke: {e}"),
            Self::TooLong(domain) => {
                write!(f, "the answer of {domain} is longer than any answer of a broker")
            }
            Self::Late(domain, within) => {
                write!(f, "{domain} has not answered within {} ms", within.as_millis())
            }
        }
    }
}

impl core::error::Error for AskError {}

type RequestSender = SendRequest<Full<Bytes>>;

/// The connection to one broker. It is locked while one is being made, so that a burst of attaches makes one.
#[derive(Default)]
struct BrokerConnection {
    sender: Mutex<Option<(SocketAddr, RequestSender)>>,
}

/// The connections. Used within a tokio runtime.
pub struct Client {
    connector: TlsConnector,
    /// Where connections come from; `None`: the address that the route has.
    source: Option<IpAddr>,
    links: std::sync::Mutex<BrokerConnections>,
}

/// Connections by domain; numbers order them by their last use.
#[derive(Default)]
struct BrokerConnections {
    uses: u64,
    links: BTreeMap<Domain, (u64, Arc<BrokerConnection>)>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client(…)")
    }
}

impl Client {
    /// With what TLS trusts.
    pub fn new(tls: Arc<ClientConfig>) -> Self {
        Self { connector: TlsConnector::from(tls), source: None, links: std::sync::Mutex::default() }
    }

    /// The same from this address, where the host has several.
    pub fn from_address(self, source: Option<IpAddr>) -> Self {
        Self { source, ..self }
    }

    /// Makes the connection to a broker before it is needed.
    pub async fn warm(&self, domain: &Domain, at: SocketAddr) -> Result<(), AskError> {
        self.sender(&self.link(domain), domain, at).await.map(drop)
    }

    /// Sends a request and waits for its answer. A connection that broke meanwhile is replaced once: the
    /// broker gives the same answer again.
    pub async fn ask(
        &self,
        domain: &Domain,
        at: SocketAddr,
        octets: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, AskError> {
        self.ask_at((ATTACH_PATH, ANSWER_OCTETS_MAX), domain, at, octets, within).await
    }

    /// Sends usage reports and waits for the receipts. Sent twice, they count once.
    pub async fn deliver(
        &self,
        domain: &Domain,
        at: SocketAddr,
        octets: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, AskError> {
        self.ask_at((USAGE_PATH, DeliveryAnswer::OCTETS_MAX), domain, at, octets, within).await
    }

    /// Sends a request to a path and waits for an answer of so many octets at most.
    pub async fn post(
        &self,
        path: (&str, usize),
        to: &TlsEndpoint,
        octets: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, AskError> {
        self.ask_at(path, &to.domain, to.address, octets, within).await
    }

    async fn ask_at(
        &self,
        path: (&str, usize),
        domain: &Domain,
        at: SocketAddr,
        octets: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, AskError> {
        let exchange = async {
            let link = self.link(domain);
            let sender = self.sender(&link, domain, at).await?;
            match exchange(sender, domain, path, octets).await {
                Err(AskError::Broken(..)) => {
                    let sender = self.sender(&link, domain, at).await?;
                    exchange(sender, domain, path, octets).await
                }
                done => done,
            }
        };
        match tokio::time::timeout(within, exchange).await {
            Ok(done) => done,
            Err(_) => Err(AskError::Late(domain.clone(), within)),
        }
    }

    fn link(&self, domain: &Domain) -> Arc<BrokerConnection> {
        let mut links = self.links.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let BrokerConnections { uses, links } = &mut *links;
        *uses += 1;
        if links.len() >= CONNECTIONS_MAX
            && !links.contains_key(domain)
            && let Some(oldest) = links.iter().min_by_key(|(_, (used, _))| *used).map(|(d, _)| d.clone())
        {
            links.remove(&oldest);
        }
        let (used, link) = links.entry(domain.clone()).or_default();
        *used = *uses;
        link.clone()
    }

    /// The open connection, or a new one.
    async fn sender(
        &self,
        link: &BrokerConnection,
        domain: &Domain,
        at: SocketAddr,
    ) -> Result<RequestSender, AskError> {
        let mut open = link.sender.lock().await;
        if let Some((to, sender)) = &*open
            && *to == at
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        *open = None;
        let connect = self.connect(domain, at);
        let sender = match tokio::time::timeout(CONNECT_WITHIN, connect).await {
            Ok(sender) => sender?,
            Err(_) => return Err(AskError::Unreachable(at, "no answer in time".into())),
        };
        *open = Some((at, sender.clone()));
        Ok(sender)
    }

    async fn reach(&self, at: SocketAddr) -> std::io::Result<TcpStream> {
        let Some(source) = self.source else { return TcpStream::connect(at).await };
        let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(source, 0))?;
        socket.connect(at).await
    }

    async fn connect(&self, domain: &Domain, at: SocketAddr) -> Result<RequestSender, AskError> {
        let stream = self.reach(at).await.map_err(|e| AskError::Unreachable(at, e.to_string()))?;
        // A request is one small packet that must not wait for more.
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(domain.as_str().to_owned())
            .map_err(|e| AskError::Tls(domain.clone(), e.to_string()))?;
        let stream = self.connector.connect(name, stream).await.map_err(|e| of_tls(domain, &e))?;
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .keep_alive_while_idle(true);
        let (sender, connection) =
            http.handshake(TokioIo::new(stream)).await.map_err(|e| broken(domain, &e))?;
        tokio::spawn(async move {
            // Its end shows at the next request.
            let _ = connection.await;
        });
        Ok(sender)
    }
}

/// `path`: where, and how many octets an answer has at most.
async fn exchange(
    mut sender: RequestSender,
    domain: &Domain,
    (path, octets_max): (&str, usize),
    octets: &[u8],
) -> Result<Vec<u8>, AskError> {
    let broken = |e: &hyper::Error| broken(domain, e);
    sender.ready().await.map_err(|e| broken(&e))?;
    let request = Request::post(format!("https://{domain}{path}"))
        .header(HOST, domain.as_str())
        .header(CONTENT_TYPE, MEDIA_TYPE)
        .body(Full::new(Bytes::copy_from_slice(octets)))
        .map_err(|e| AskError::Broken(domain.clone(), e.to_string()))?;
    let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(AskError::Http(domain.clone(), status));
    }
    let body = Limited::new(response.into_body(), octets_max).collect().await;
    body.map(|b| b.to_bytes().to_vec()).map_err(|e| match e.is::<LengthLimitError>() {
        true => AskError::TooLong(domain.clone()),
        false => AskError::Broken(domain.clone(), e.to_string()),
    })
}

fn broken(domain: &Domain, e: &hyper::Error) -> AskError {
    AskError::Broken(domain.clone(), e.to_string())
}

/// What a failed handshake says about the broker's certificate.
fn of_tls(domain: &Domain, e: &std::io::Error) -> AskError {
    let domain = domain.clone();
    let cause = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(cause)) = cause else {
        return AskError::Tls(domain, e.to_string());
    };
    match cause {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            AskError::TlsName(domain)
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => AskError::TlsTime(domain),
        // A signature that is wrong is that of another authority of the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => AskError::TlsUntrusted(domain),
        other => AskError::Tls(domain, other.to_string()),
    }
}
