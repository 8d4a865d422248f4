//! Traces: each procedure of a UE that ended becomes a span, sent to a collector by OTLP over HTTP with JSON
//! (opentelemetry.io: OTLP specification 1.x, `/v1/traces`).
//!
//! The control thread only puts a span into a bounded queue; a thread of its own writes JSON and HTTP. A collector that is slow or away
//! costs spans, which are counted, and never delays a UE. The exporter is our own: the OpenTelemetry crates bring a second HTTP client,
//! protobuf and a runtime for what is one POST a second.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant as Clock};

use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, ClientConnection, InvalidMessage, StreamOwned,
};
use tracing::{info, warn};
use whimbrel_broker_client::tls;
use whimbrel_ids::Instant;

use crate::config::{HttpEndpoint, Otlp};
use crate::observation::{Console, Metric};

/// Spans that wait for the exporter: four seconds of a thousand procedures a second.
const SPANS_WAITING_MAX: usize = 4096;
/// Spans of one request: some 300 KB of JSON.
const BATCH_MAX: usize = 512;
/// How long spans are gathered for a request.
const GATHER: Duration = Duration::from_secs(1);
/// A collector answers in milliseconds; meanwhile the queue holds what comes.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Octets of an answer that are read.
const ANSWER_OCTETS_MAX: u64 = 16 << 10;

/// A procedure that ended.
#[derive(Debug)]
pub struct Span {
    /// Its word in metrics and logs.
    pub procedure: &'static str,
    /// The UE, by its pseudonym.
    pub ue: String,
    /// The SUPI, where `log.supi` permits it.
    pub supi: Option<String>,
    /// The gNB over which the UE is connected.
    pub gnb: Option<Arc<str>>,
    pub begin: Instant,
    pub end: Instant,
    /// Why it was refused; `None`: it was completed.
    pub refusal: Option<String>,
}

/// Where spans are put.
#[derive(Debug)]
pub struct Traces(SyncSender<Span>);

impl Traces {
    /// Takes a span, unless the queue is full. Never waits.
    pub fn offer(&self, span: Span) -> bool {
        match self.0.try_send(span) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

/// The collector, and TLS to it.
struct TraceCollector {
    endpoint: HttpEndpoint,
    /// The name in its certificate, and what verifies it; `None` with `http`.
    tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
}

impl TraceCollector {
    /// The configured collector; the file with CA certificates has been read. Errors: one sentence.
    fn of(endpoint: &HttpEndpoint, otlp: &Otlp) -> Result<Self, String> {
        let tls = endpoint.has_tls.then(|| {
            let name = ServerName::try_from(endpoint.host().to_owned()).map_err(|_| {
                format!("otlp.endpoint: {} is no name that a certificate can have", endpoint.host())
            })?;
            let mut config = (*tls::client(&otlp.ca_file).map_err(|e| format!("otlp.ca_file: {e}"))?).clone();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok::<_, String>((name, Arc::new(config)))
        });
        Ok(Self { endpoint: endpoint.clone(), tls: tls.transpose()? })
    }

    /// Posts a body. Errors: the collector does not answer in time, or with anything but 200.
    fn post(&self, body: &str) -> io::Result<()> {
        let authority = &self.endpoint.authority;
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let address = authority.to_socket_addrs()?.next().ok_or_else(no_address)?;
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let Some((name, config)) = &self.tls else { return exchange(&mut stream, authority, body) };
        let connection = ClientConnection::new(config.clone(), name.clone())
            .map_err(|e| io::Error::other(e.to_string()))?;
        exchange(&mut StreamOwned::new(connection, stream), authority, body).map_err(|e| {
            let of_tls = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            of_tls.map(tls_failure).map_or(e, io::Error::other)
        })
    }
}

/// Why TLS to the collector failed, as what an operator has to check.
fn tls_failure(e: &rustls::Error) -> String {
    use CertificateError as C;
    use rustls::Error as E;
    match e {
        E::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "it does not use TLS: write http:// in otlp.endpoint".into()
        }
        E::InvalidCertificate(C::UnknownIssuer | C::BadSignature) => {
            "its certificate is not signed by a CA in otlp.ca_file".into()
        }
        E::InvalidCertificate(C::Expired | C::ExpiredContext { .. }) => {
            "its certificate has expired, by this host's clock".into()
        }
        E::InvalidCertificate(C::NotValidForNameContext { presented, .. }) => {
            format!("its certificate is not for this name but for {}", presented.join(", "))
        }
        e => e.to_string(),
    }
}

/// Begins to export spans, if a collector is configured. Errors: no thread can be had, or no certificate can be verified.
pub fn start(otlp: &Otlp, console: &Arc<Console>) -> Result<(), String> {
    let Some(endpoint) = &otlp.endpoint else { return Ok(()) };
    let collector = TraceCollector::of(endpoint, otlp)?;
    let (sender, spans) = sync_channel(SPANS_WAITING_MAX);
    let (service, of_thread) = (otlp.service_name.clone(), console.clone());
    info!(endpoint = endpoint.authority, "traces of procedures are exported");
    std::thread::Builder::new()
        .name("otlp".into())
        .spawn(move || export(&spans, &collector, &service, &of_thread))
        .map_err(|e| format!("traces cannot be exported: {e}"))?;
    let _ = console.traces.set(Traces(sender));
    Ok(())
}

/// Sends what comes, in batches, until the queue's other end is gone.
fn export(spans: &Receiver<Span>, collector: &TraceCollector, service: &str, console: &Console) {
    let endpoint = &collector.endpoint;
    let mut is_failing = false;
    while let Ok(first) = spans.recv() {
        let batch = gathered(first, spans);
        let count = batch.len() as u64;
        match random(count as usize).and_then(|ids| collector.post(&body(service, &batch, &ids))) {
            Ok(()) => {
                console.metrics.add(Metric::TraceSpansSent, count);
                if std::mem::take(&mut is_failing) {
                    info!(endpoint = endpoint.authority, "the collector of traces accepts spans again");
                }
            }
            Err(e) => {
                console.metrics.add(Metric::TraceSpansLost, count);
                if !std::mem::replace(&mut is_failing, true) {
                    let metric = Metric::TraceSpansLost.name();
                    warn!(
                        endpoint = endpoint.authority,
                        "the collector of traces does not accept spans: {e}; they are dropped and counted ({metric})"
                    );
                }
            }
        }
    }
}

/// The first span and those that follow within a second.
fn gathered(first: Span, spans: &Receiver<Span>) -> Vec<Span> {
    let (mut batch, until) = (vec![first], Clock::now() + GATHER);
    while batch.len() < BATCH_MAX {
        match spans.recv_timeout(until.saturating_duration_since(Clock::now())) {
            Ok(span) => batch.push(span),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    batch
}

/// Octets of a trace's and a span's identifier.
const ID_OCTETS: usize = 16 + 8;

/// Identifiers of that many spans.
fn random(spans: usize) -> io::Result<Vec<u8>> {
    let mut octets = vec![0; spans * ID_OCTETS];
    let mut filled = 0;
    while filled < octets.len() {
        match getrandom(&mut octets[filled..], GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(octets)
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// An attribute with a text.
fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// The request's body: each span is a trace of its own, because procedures of a UE are not nested.
fn body(service: &str, spans: &[Span], ids: &[u8]) -> String {
    const SPAN_KIND_SERVER: u8 = 2;
    const STATUS_OK: u8 = 1;
    const STATUS_ERROR: u8 = 2;
    let nanoseconds = |at: Instant| (u128::from(at.0) * 1000).to_string();
    let written = spans.iter().zip(ids.chunks_exact(ID_OCTETS)).map(|(span, id)| {
        let (trace, own) = id.split_at(16);
        let mut attributes = vec![
            attribute("whimbrel.procedure", span.procedure),
            attribute("whimbrel.ue", &span.ue),
            attribute("whimbrel.result", if span.refusal.is_some() { "refused" } else { "completed" }),
        ];
        attributes.extend(span.supi.as_deref().map(|supi| attribute("whimbrel.supi", supi)));
        attributes.extend(span.gnb.as_deref().map(|gnb| attribute("whimbrel.gnb", gnb)));
        let status = match &span.refusal {
            Some(why) => json!({ "code": STATUS_ERROR, "message": why }),
            None => json!({ "code": STATUS_OK }),
        };
        json!({
            "traceId": hex(trace), "spanId": hex(own), "name": span.procedure, "kind": SPAN_KIND_SERVER,
            "startTimeUnixNano": nanoseconds(span.begin), "endTimeUnixNano": nanoseconds(span.end),
            "attributes": attributes, "status": status,
        })
    });
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [attribute("service.name", service), attribute("service.version", version)] },
        "scopeSpans": [{ "scope": { "name": "whimbrel", "version": version }, "spans": written.collect::<Vec<_>>() }],
    }]})
    .to_string()
}

/// Writes the request and reads the answer's status. Errors: any but 200.
fn exchange(stream: &mut (impl Read + Write), authority: &str, body: &str) -> io::Result<()> {
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    let mut part = [0; 512];
    // Until the status line is there: some collectors keep the connection open all the same.
    while !answer.windows(2).any(|w| w == b"\r\n") && (answer.len() as u64) < ANSWER_OCTETS_MAX {
        match stream.read(&mut part)? {
            0 => break,
            n => answer.extend_from_slice(&part[..n]),
        }
    }
    let line = String::from_utf8_lossy(&answer);
    let status = line.split(' ').nth(1).unwrap_or_default();
    match status {
        "200" => Ok(()),
        _ => Err(io::Error::other(format!(
            "it answered with status {}",
            if status.is_empty() { "none" } else { status }
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use whimbrel_control::{Event, Procedure, UeEvent, UeId, UeIdentities};

    use super::*;
    use crate::observation::observer::Observer;

    /// A collector that answers each request with this status, and the bodies that came.
    fn collector(status: &'static str, requests: usize) -> (HttpEndpoint, thread::JoinHandle<Vec<Value>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let take = move || take_request(&mut listener.accept().unwrap().0, status);
        let taken = thread::spawn(move || (0..requests).map(|_| take()).collect());
        (HttpEndpoint { has_tls: false, authority }, taken)
    }

    /// The body of a request, which is answered with this status.
    fn take_request(stream: &mut (impl Read + Write), status: &str) -> Value {
        let (mut octets, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&octets).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap();
                if body.len() >= length.parse::<usize>().unwrap() {
                    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
                    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
                    let _ = stream.flush();
                    return serde_json::from_str(body).unwrap();
                }
            }
            let n = stream.read(&mut part).unwrap();
            octets.extend_from_slice(&part[..n]);
        }
    }

    fn console() -> Arc<Console> {
        Console::new(Instant(1_000_000)).unwrap()
    }

    fn completed(procedure: Procedure) -> UeEvent {
        let subject = UeIdentities { supi: "imsi-999700000000001".parse().ok(), ..UeIdentities::default() };
        UeEvent {
            ue: UeId { slot: 7, generation: 1 },
            on: None,
            event: Event::Completed { procedure, subject, took: Duration::from_millis(20) },
        }
    }

    fn settings(endpoint: HttpEndpoint) -> Otlp {
        Otlp { endpoint: Some(endpoint), ca_file: "/nowhere".into(), service_name: "core-1".into() }
    }

    #[test]
    fn a_procedure_that_ends_is_a_span_at_the_collector_without_the_supi() {
        let (endpoint, taken) = collector("200 OK", 1);
        let console = console();
        start(&settings(endpoint), &console).unwrap();
        let config = Arc::new(crate::config::default().control());
        let mut observer = Observer::new(console.clone(), config, false);
        observer.ue(Instant(5_000_000), &completed(Procedure::Registration));
        observer.ue(Instant(5_100_000), &completed(Procedure::PduSessionEstablishment));
        let bodies = taken.join().unwrap();
        let resource = &bodies[0]["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "core-1");
        let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
        let names: Vec<&str> = spans.iter().map(|s| s["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["registration", "pdu_session_establishment"]);
        assert_eq!(spans[0]["startTimeUnixNano"], "4980000000");
        assert_eq!(
            (&spans[0]["endTimeUnixNano"], &spans[0]["status"]["code"]),
            (&json!("5000000000"), &json!(1))
        );
        let [trace, own] = ["traceId", "spanId"].map(|id| spans[0][id].as_str().unwrap().len());
        assert_eq!((trace, own), (32, 16));
        assert_ne!(spans[0]["traceId"], spans[1]["traceId"]);
        assert!(!bodies[0].to_string().contains("99970000"), "{}", bodies[0]);
        // The count follows the answer.
        while console.metrics.value(Metric::TraceSpansSent) < 2 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_collector_that_refuses_or_is_away_costs_spans_that_are_counted() {
        let (refusing, taken) = collector("503 Service Unavailable", 1);
        let away = HttpEndpoint { has_tls: false, authority: "127.0.0.1:1".into() };
        for endpoint in [refusing, away] {
            let console = console();
            start(&settings(endpoint), &console).unwrap();
            let config = Arc::new(crate::config::default().control());
            Observer::new(console.clone(), config, true).ue(Instant(9), &completed(Procedure::Registration));
            while console.metrics.value(Metric::TraceSpansLost) < 1 {
                thread::yield_now();
            }
            assert_eq!(console.metrics.value(Metric::TraceSpansSent), 0);
        }
        let body = &taken.join().unwrap()[0];
        assert!(body.to_string().contains("imsi-999700000000001"), "log.supi permits it");
    }

    #[test]
    fn a_collector_is_reached_over_tls_if_a_ca_in_the_file_signs_its_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        for name in ["127.0.0.1", "other.example.net"] {
            let made = tls::self_signed(name, now_s).unwrap();
            std::fs::write(file(&format!("{name}.pem")), made.certificate).unwrap();
            std::fs::write(file(&format!("{name}.key")), made.key).unwrap();
        }
        // The certificate of the collector, the CA certificates of the core, and what the collector's side is.
        let failure = |certificate: &str, trusted: &str, speaks_tls: bool| {
            let pem = file(&format!("{certificate}.pem"));
            let mut config = (*tls::server(&pem, &file(&format!("{certificate}.key"))).unwrap()).clone();
            config.alpn_protocols.clear();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let authority = listener.local_addr().unwrap().to_string();
            let taken = thread::spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                if !speaks_tls {
                    return write!(stream, "HTTP/1.1 400 Bad Request\r\n\r\n")
                        .map_or(None, |()| Some(Value::Null));
                }
                let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
                while connection.is_handshaking() {
                    connection.complete_io(&mut stream).ok()?;
                }
                Some(take_request(&mut StreamOwned::new(connection, stream), "200 OK"))
            });
            let endpoint = HttpEndpoint { has_tls: true, authority };
            let otlp = Otlp { ca_file: file(&format!("{trusted}.pem")), ..settings(endpoint.clone()) };
            let posted = TraceCollector::of(&endpoint, &otlp).unwrap().post("{\"resourceSpans\":[]}");
            let taken = taken.join().unwrap();
            assert!(posted.is_err() || taken == Some(json!({ "resourceSpans": [] })), "{taken:?}");
            posted.err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert_eq!(failure("127.0.0.1", "127.0.0.1", true), "");
        assert!(
            failure("127.0.0.1", "other.example.net", true).contains("not signed by a CA in otlp.ca_file")
        );
        let other = "other.example.net";
        assert!(failure(other, other, true).contains("not for this name but for"));
        assert!(failure("127.0.0.1", "127.0.0.1", false).contains("it does not use TLS: write http://"));
        let endpoint = HttpEndpoint { has_tls: true, authority: "[::1]:4318".into() };
        assert_eq!(endpoint.host(), "::1");
        let unreadable = TraceCollector::of(&endpoint, &settings(endpoint.clone())).err().unwrap();
        assert!(unreadable.starts_with("otlp.ca_file: /nowhere: "), "{unreadable}");
    }

    #[test]
    fn a_full_queue_delays_nothing() {
        let (sender, spans) = sync_channel(1);
        let traces = Traces(sender);
        let span = || Span {
            procedure: "registration",
            ue: "ue-1.1".into(),
            supi: None,
            gnb: None,
            begin: Instant(0),
            end: Instant(1),
            refusal: Some("it is barred".into()),
        };
        assert!(traces.offer(span()) && !traces.offer(span()));
        let body: Value =
            serde_json::from_str(&body("s", &[spans.recv().unwrap()], &[1; ID_OCTETS])).unwrap();
        let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["status"], json!({ "code": 2, "message": "it is barred" }));
    }
}
