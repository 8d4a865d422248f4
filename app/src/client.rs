//! Client of the HTTP API of a running program, for `why`, `ue`, `gnb`, `top` and the other commands.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::console::Metric;

/// Most octets of an answer: a page of a thousand UEs has a tenth of it.
const ANSWER_OCTETS_MAX: u64 = 64 << 20;
/// The program answers in milliseconds; a host under load may need longer.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The API of a running program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    answer_within: Duration,
}

impl Client {
    /// The API at an address.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, answer_within: ANSWER_WITHIN }
    }

    /// The same, for requests whose answer may take this many seconds longer.
    pub(crate) fn patient(self, seconds: u64) -> Self {
        Self { answer_within: ANSWER_WITHIN + Duration::from_secs(seconds), ..self }
    }

    /// Gets a value. Errors: one sentence.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.ask("GET", path)
    }

    /// Posts a request that has no body and no answer.
    pub(crate) fn post(&self, path: &str) -> Result<(), String> {
        self.ask::<Value>("POST", path).map(drop)
    }

    /// Sends a value and gets one.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, String> {
        self.ask_with(method, path, &body.map(Value::to_string).unwrap_or_default())
    }

    /// A metric's reading, of its series with this label value; 0 if `/metrics` has none. Errors: one sentence.
    pub(crate) fn metric(&self, metric: Metric, label: Option<&str>) -> Result<f64, String> {
        self.reading(&metric.series(label))
    }

    /// The reading of a series; 0 if `/metrics` has none. Errors: one sentence.
    pub(crate) fn reading(&self, series: &str) -> Result<f64, String> {
        let octets = self.exchange("GET", "/metrics", "").map_err(|e| format!("no metrics: {e}"))?;
        let text = String::from_utf8_lossy(&octets);
        let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' ')?.trim().parse().ok());
        Ok(line.unwrap_or(0.0))
    }

    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str) -> Result<T, String> {
        self.ask_with(method, path, "")
    }

    fn ask_with<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> Result<T, String> {
        let octets = self.exchange(method, path, body).map_err(|e| match e.kind() {
            std::io::ErrorKind::ConnectionRefused => format!(
                "no core answers at http://{}: start it with `whimbrel run`, or name its configuration with -c",
                self.address
            ),
            _ => format!("the core at http://{} does not answer: {e}", self.address),
        })?;
        let strange = || format!("the server at http://{} is not whimbrel", self.address);
        let end = octets.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(strange)?;
        let (head, body) = (&octets[..end], &octets[end + 4..]);
        let status = head.get(9..12).and_then(|s| std::str::from_utf8(s).ok()?.parse::<u16>().ok());
        match status.ok_or_else(strange)? {
            200..=299 if body.is_empty() => serde_json::from_str("null").map_err(|_| strange()),
            200..=299 => serde_json::from_slice(body).map_err(|_| strange()),
            status => {
                let problem: Value = serde_json::from_slice(body).unwrap_or_default();
                Err(problem["detail"].as_str().map_or(format!("HTTP status {status}"), str::to_string))
            }
        }
    }

    fn exchange(&self, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, CONNECT_WITHIN)?;
        stream.set_read_timeout(Some(self.answer_within))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let host = self.address;
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{kind}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes())?;
        let mut octets = Vec::new();
        stream.take(ANSWER_OCTETS_MAX).read_to_end(&mut octets)?;
        Ok(octets)
    }
}

/// A text as one part of a path (RFC 3986 §2.3).
pub(crate) fn path_part(text: &str) -> String {
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
