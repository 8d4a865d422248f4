//! Client of the HTTP API of a running program, for `why`, `ue`, `gnb`, `top` and the other commands.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error as TlsError,
    SignatureScheme, StreamOwned,
};

use crate::api_files::certificate_file;
use crate::config::Config;
use crate::function::UnitDirectory;
use crate::local_socket;
use crate::observation::Metric;

/// Most octets of an answer: a page of a thousand UEs has a tenth of it.
const ANSWER_OCTETS_MAX: u64 = 64 << 20;
/// The program answers in milliseconds; a host under load may need longer.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// With an API token in this variable, commands go over the network instead of the socket of this host.
const TOKEN_VARIABLE: &str = "WHIMBREL_TOKEN";

/// The API of a running program.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    answer_within: Duration,
    /// The socket of this host's commands; `None`: a core that is reached over the network, or a program without users.
    socket: Option<PathBuf>,
    /// The store of the core, beside which its certificate is. `None` for a program without users.
    store: Option<PathBuf>,
}

impl Client {
    /// The API at an address.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, answer_within: ANSWER_WITHIN, socket: None, store: None }
    }

    /// The core of this host with that configuration.
    pub fn of(config: &Config) -> Self {
        Self { socket: Some(local_socket::of(config)), ..Self::new(config.api.address) }
            .with_certificate_of(&config.store.path)
    }

    /// The same, which is a unit even if the configuration leaves that to the command line.
    pub fn of_unit(config: &Config) -> Self {
        let socket = UnitDirectory::of(&config.unit.directory).api_socket();
        Self { socket: Some(socket), ..Self::of(config) }
    }

    /// The same, of the core of this host with that store.
    pub fn by_store(self, store: &Path) -> Self {
        Self { socket: Some(local_socket::beside(store)), ..self }.with_certificate_of(store)
    }

    /// The same over the network, of the core whose certificate is beside that store.
    pub fn with_certificate_of(self, store: &Path) -> Self {
        Self { store: Some(store.to_path_buf()), ..self }
    }

    /// The socket over which it is reached. An API token is for the network.
    fn local(&self) -> Option<&Path> {
        self.socket.as_deref().filter(|_| self.token().is_none())
    }

    /// How it is reached, for messages.
    fn place(&self) -> String {
        self.local().map_or_else(|| self.url(), |socket| socket.display().to_string())
    }

    /// Where the console is: `https://192.0.2.1:8070`.
    pub fn url(&self) -> String {
        let scheme = if self.speaks_tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// A core's API does where it listens beyond loopback.
    fn speaks_tls(&self) -> bool {
        self.store.is_some() && !self.address.ip().is_loopback()
    }

    /// The API token that the user of a command has given.
    fn token(&self) -> Option<String> {
        let given = std::env::var(TOKEN_VARIABLE).ok().filter(|t| !t.is_empty());
        given.map(|t| t.trim().to_owned())
    }

    /// The same, for requests whose answer may take this many seconds longer.
    pub fn patient(self, seconds: u64) -> Self {
        Self { answer_within: ANSWER_WITHIN + Duration::from_secs(seconds), ..self }
    }

    /// Gets a value. Errors: one sentence.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.ask("GET", path)
    }

    /// Posts a request that has no body and no answer.
    pub fn post(&self, path: &str) -> Result<(), String> {
        self.ask::<Value>("POST", path).map(drop)
    }

    /// Sends a value and gets one.
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, String> {
        self.ask_with(method, path, &body.map(Value::to_string).unwrap_or_default())
    }

    /// The body of `/metrics`. Errors: one sentence.
    pub fn metrics(&self) -> Result<String, String> {
        let octets = self.exchange("GET", "/metrics", "").map_err(|e| format!("no metrics: {e}"))?;
        let text = String::from_utf8_lossy(&octets);
        text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).ok_or_else(|| "no metrics".into())
    }

    /// A metric's reading, of its series with this label value; 0 if `/metrics` has none. Errors: one sentence.
    pub fn metric(&self, metric: Metric, label: Option<&str>) -> Result<f64, String> {
        self.reading(&metric.series(label))
    }

    /// The reading of a series; 0 if `/metrics` has none. Errors: one sentence.
    pub fn reading(&self, series: &str) -> Result<f64, String> {
        let octets = self.exchange("GET", "/metrics", "").map_err(|e| format!("no metrics: {e}"))?;
        let text = String::from_utf8_lossy(&octets);
        let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' ')?.trim().parse().ok());
        Ok(line.unwrap_or(0.0))
    }

    /// Copies the body of an answer as it comes, for as long as it comes; the end of its reader is no failure. Errors: one sentence.
    pub fn copy(&self, path: &str, to: &mut dyn Write) -> Result<(), String> {
        // A body of HTTP/1.0 ends with its connection.
        let host = self.address;
        let head = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{}\r\n", self.authorization());
        let mut stream = self.connect(None).map_err(|e| self.without_answer(&e))?;
        stream.write_all(head.as_bytes()).map_err(|e| self.without_answer(&e))?;
        self.copy_body(&mut stream, to)
    }

    /// A connection to the core. `read_within`: how long a read may wait; `None`: as long as it takes.
    fn connect(&self, read_within: Option<Duration>) -> std::io::Result<Box<dyn Connection>> {
        if let Some(socket) = self.local() {
            let stream = local_socket::reach(socket, CONNECT_WITHIN)?;
            stream.set_read_timeout(read_within)?;
            stream.set_write_timeout(Some(ANSWER_WITHIN))?;
            return Ok(Box::new(stream));
        }
        let stream = TcpStream::connect_timeout(&self.address, CONNECT_WITHIN)?;
        stream.set_read_timeout(read_within)?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(match self.store.as_deref().filter(|_| self.speaks_tls()) {
            Some(store) => Box::new(tls(stream, self.address, &certificate_file(store))?),
            None => Box::new(stream),
        })
    }

    /// Why a command gets no answer.
    fn without_answer(&self, e: &std::io::Error) -> String {
        use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
        match (e.kind(), self.local()) {
            (ConnectionRefused, _) | (NotFound, Some(_)) => self.no_core(),
            (PermissionDenied, Some(socket)) => format!(
                "this user may not command the core at {}: run this command as root or as the core's user, or set {TOKEN_VARIABLE} to an API token",
                socket.display()
            ),
            _ => format!("the core at {} does not answer: {e}", self.place()),
        }
    }

    fn copy_body(&self, from: &mut impl Read, to: &mut dyn Write) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("the answer of the core at {} ended: {e}", self.place());
        let mut part = vec![0; 64 << 10];
        let mut start = Vec::new();
        let body = loop {
            let n = from.read(&mut part).map_err(failed)?;
            start.extend_from_slice(&part[..n]);
            if let Some(end) = start.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            if n == 0 || start.len() > part.len() {
                return Err(format!("the server at {} is not whimbrel", self.place()));
            }
        };
        let status = start.get(9..12).and_then(|s| std::str::from_utf8(s).ok()?.parse().ok());
        if status != Some(200u16) {
            from.take(ANSWER_OCTETS_MAX).read_to_end(&mut start).map_err(failed)?;
            return self.value::<Value>(&start).and(Err("the core sent no capture".into()));
        }
        let mut written = to.write_all(&start[body..]);
        loop {
            written = written.and_then(|()| to.flush());
            match written {
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                Err(e) => return Err(format!("the output cannot be written: {e}")),
                Ok(()) => {}
            }
            match from.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(n) => written = to.write_all(&part[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => written = Ok(()),
                // A core that stops closes its connections without a TLS close_notify.
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(failed(e)),
            }
        }
    }

    fn no_core(&self) -> String {
        format!(
            "no core answers at {}: start it with `whimbrel run`, or name its configuration with -c",
            self.place()
        )
    }

    fn authorization(&self) -> String {
        self.token().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
    }

    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, String> {
        self.ask_with(method, path, "")
    }

    fn ask_with<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> Result<T, String> {
        let octets = self.exchange(method, path, body).map_err(|e| self.without_answer(&e))?;
        self.value(&octets)
    }

    /// The value that an answer brings.
    fn value<T: DeserializeOwned>(&self, octets: &[u8]) -> Result<T, String> {
        let strange = || format!("the server at {} is not whimbrel", self.place());
        let end = octets.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(strange)?;
        let (head, body) = (&octets[..end], &octets[end + 4..]);
        let status = head.get(9..12).and_then(|s| std::str::from_utf8(s).ok()?.parse::<u16>().ok());
        match status.ok_or_else(strange)? {
            200..=299 if body.is_empty() => serde_json::from_str("null").map_err(|_| strange()),
            200..=299 => serde_json::from_slice(body).map_err(|_| strange()),
            401 => Err(self.without_token()),
            status => {
                let problem: Value = serde_json::from_slice(body).unwrap_or_default();
                Err(problem["detail"].as_str().map_or(format!("HTTP status {status}"), str::to_string))
            }
        }
    }

    /// The error when the core does not authenticate this command.
    fn without_token(&self) -> String {
        match self.token() {
            Some(_) => format!("the core at {} does not accept the token in {TOKEN_VARIABLE}", self.url()),
            None => format!(
                "the core at {} requires an API token: set {TOKEN_VARIABLE}, or leave `--api` out to reach the core of this host",
                self.url()
            ),
        }
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let host = self.address;
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let token = self.authorization();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}{kind}Content-Length: {length}\r\n\r\n{body}"
        );
        whole(&mut self.connect(Some(self.answer_within))?, &head)
    }
}

/// A byte stream to the core: a Unix socket, TCP, or TLS over TCP.
trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// Sends a request and reads the answer to its end.
fn whole(stream: &mut (impl Read + Write), head: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(head.as_bytes())?;
    let mut octets = Vec::new();
    match stream.take(ANSWER_OCTETS_MAX).read_to_end(&mut octets) {
        // A core that stops closes its connections without a TLS close_notify.
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof && !octets.is_empty() => Ok(octets),
        read => read.map(|_| octets),
    }
}

/// TLS to a server that has exactly this certificate.
fn tls(
    stream: TcpStream,
    to: SocketAddr,
    file: &Path,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let other = |e: &dyn std::fmt::Display| std::io::Error::other(format!("{}: {e}", file.display()));
    let pem = whimbrel_files::read(file, whimbrel_files::PEM_OCTETS_MAX).map_err(|e| other(&e))?;
    let certificate = CertificateDer::from_pem_slice(&pem).map_err(|e| other(&e))?;
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|e| other(&e))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedCertificate { certificate, provider }))
        .with_no_client_auth();
    let connection =
        ClientConnection::new(Arc::new(config), ServerName::from(to.ip())).map_err(|e| other(&e))?;
    Ok(StreamOwned::new(connection, stream))
}

/// Trusts one certificate, which is stored on this host, whatever its names and its authority.
#[derive(Debug)]
struct PinnedCertificate {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        match *end_entity == self.certificate {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A text as one part of a path (RFC 3986 §2.3).
pub fn path_part(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_encoded() {
        assert_eq!(path_part("gnb-999/70-1"), "gnb-999%2F70-1");
        assert_eq!(path_part("ü"), "%C3%BC");
    }

    #[test]
    fn a_refused_connection_is_reported_with_the_fix() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = Client::new(address).get::<Value>("/api/v1/status").unwrap_err();
        assert!(error.contains("whimbrel run"), "{error}");
    }

    #[test]
    fn an_answer_of_another_server_is_reported() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for answer in [&b"SSH-2.0-x\r\n"[..], b"", b"HTTP/1.1 200 OK\r\n\r\nnot json", b"\r\n\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer);
            }
        });
        for _ in 0..4 {
            assert!(Client::new(address).get::<Value>("/").unwrap_err().contains("is not whimbrel"));
        }
        server.join().unwrap();
    }
}
