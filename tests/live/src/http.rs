//! Requests to the API: each route with what it takes, altered; and what is no HTTP at all.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::mutate;
use crate::program::{API, AS_LOCAL, connect, status};
use crate::rng::Rng;

/// Connections that are kept open and slow at once: fewer than the API takes, so that others can be judged.
const SLOW_MAX: usize = 60;
/// How long an answer may take, on a busy host. The API itself ends a request after 60 s at most.
const PATIENCE: Duration = Duration::from_secs(10);

const ROUTES: [(&str, &str); 18] = [
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/gnbs"),
    ("GET", "/api/v1/ues?limit=10"),
    ("GET", "/api/v1/ues/{}"),
    ("GET", "/api/v1/ues/{}/signalling"),
    ("POST", "/api/v1/ues/{}/deregister"),
    ("GET", "/api/v1/why/{}"),
    ("GET", "/api/v1/refusals?limit=5"),
    ("GET", "/api/v1/events?since=0&limit=5"),
    ("GET", "/api/v1/subscribers?limit=3"),
    ("POST", "/api/v1/subscribers"),
    ("POST", "/api/v1/subscribers/import"),
    ("GET", "/api/v1/subscribers/{}"),
    ("PATCH", "/api/v1/subscribers/{}"),
    ("DELETE", "/api/v1/subscribers/{}"),
    ("POST", "/api/v1/session"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
];

/// Path parts that name no subscriber, or all.
const NAMES: [&str; 14] = [
    "",
    "%00",
    "..",
    "../../etc/passwd",
    "%2e%2e%2f",
    "imsi-",
    "imsi-00101",
    "gnb-999/70-1",
    "%ff%fe",
    "%",
    "nai-x",
    "imsi-999999999999999999999",
    "*",
    "imsi-%20999709000000001",
];

const BODIES: [&str; 16] = [
    "",
    "{}",
    "null",
    "[]",
    "{\"supi\": \"imsi-99970900000000N\", \"k\": \"465b5ce8b199b49faa5f0a2ee238a6bc\", \"opc\": \"cd63cb71954a9f4e48a5994e37a02baf\"}",
    "{\"supi\": \"imsi-99970900000000N\", \"k\": \"46\", \"opc\": \"\"}",
    "{\"supi\": \"\", \"k\": null}",
    "{\"status\": \"barred\"}",
    "{\"subscription\": {\"ue_ambr\": {\"uplink\": \"1 Gbps\", \"downlink\": \"0 bps\"}}}",
    "{\"subscription\": {\"ue_ambr\": {\"uplink\": \"abc\", \"downlink\": 9223372036854775808}}}",
    "{\"subscription\": {\"slices\": []}}",
    "{\"subscription\": {\"slices\": [{\"s_nssai\": \"1\", \"dnns\": [{\"dnn\": \"\"}]}]}}",
    "{\"status\": NaN}",
    "{\"status\": \"enabled\", \"status\": \"barred\"}",
    "supi,k,opc\nimsi-99970900000000N,465b5ce8b199b49faa5f0a2ee238a6bc,cd63cb71954a9f4e48a5994e37a02baf\n",
    "supi,k,opc\nimsi-99970900000000N,46,\n\"",
];

const TYPES: [&str; 7] = [
    "application/json",
    "application/json; charset=utf-8",
    "text/csv",
    "text/plain",
    "multipart/form-data",
    "application/merge-patch+json",
    "",
];

/// The clients of the API.
#[derive(Default)]
pub(crate) struct Clients {
    slow: Vec<TcpStream>,
    pub(crate) requests: u64,
}

impl Clients {
    /// One request. Errors: an answer that no request may get.
    pub(crate) fn perform(&mut self, seed: u64) -> Result<(), String> {
        let rng = &mut Rng::new(seed);
        let (octets, whole) = request(rng);
        // The canaries' subscriptions are not the fuzzer's to change.
        if octets.windows(9).any(|w| w == b"999700000") {
            return Ok(());
        }
        self.requests += 1;
        let Ok(mut stream) = connect(&octets, PATIENCE) else {
            return Err(format!("the API takes no connection within {PATIENCE:?}"));
        };
        let fate = rng.below(12);
        if fate == 0 {
            // Half of it, and then nothing more for a long while.
            let _ = stream.write_all(octets.get(..rng.below(octets.len())).unwrap_or_default());
            self.slow.insert(0, stream);
            self.slow.truncate(SLOW_MAX);
            return Ok(());
        }
        let sent = stream.write_all(&octets);
        if fate == 1 {
            return Ok(()); // Gone before the answer.
        }
        // What is not whole gets no answer until its time is up: the client says that nothing more comes.
        if sent.is_ok() && !whole {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let mut answer = Vec::new();
        let read = stream.take(1 << 20).read_to_end(&mut answer);
        match (status(&answer), read) {
            (Some(500), _) => Err(format!("status 500: {}", String::from_utf8_lossy(&answer))),
            (None, Err(e)) if whole && e.kind() == std::io::ErrorKind::WouldBlock => {
                Err(format!("no answer within {PATIENCE:?} to {:?}", String::from_utf8_lossy(&octets)))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn leave(&mut self) {
        self.slow.clear();
    }
}

/// A request, and whether it is whole, so that an answer must come.
fn request(rng: &mut Rng) -> (Vec<u8>, bool) {
    let (method, path) = ROUTES[rng.below(ROUTES.len())];
    let method =
        if rng.once_in(12) { ["PUT", "HEAD", "OPTIONS", "TRACE", "G\0T", ""][rng.below(6)] } else { method };
    let unknown = format!("imsi-99970900000{:04}", rng.below(20));
    let name = match rng.below(3) {
        0 => NAMES[rng.below(NAMES.len())].to_owned(),
        1 if rng.once_in(10) => "9".repeat(4096 << rng.below(4)),
        _ => unknown,
    };
    let mut path = path.replace("{}", &name);
    if rng.once_in(10) {
        path.push_str(
            ["?limit=-1", "?limit=99999999999999999999", "?after=x", "?a=%zz", "?limit=1&limit=2", "//"]
                [rng.below(6)],
        );
    }
    let mut body = BODIES[rng.below(BODIES.len())].replace('N', &rng.below(10).to_string()).into_bytes();
    match rng.below(24) {
        0 => body = "[".repeat(10_000).into_bytes(),
        1 => body = [b"{\"k\":\"".as_slice(), &vec![b'a'; 300_000], b"\"}"].concat(),
        2 => body = "{\"a\":".repeat(5_000).into_bytes(),
        3..=6 => mutate::octets(rng, &mut body),
        _ => {}
    }
    let content_type = TYPES[rng.below(TYPES.len())];
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {API}\r\nConnection: close\r\n");
    if !rng.once_in(20) {
        head.push_str(&format!("{AS_LOCAL}\r\n"));
    }
    if !content_type.is_empty() {
        head.push_str(&format!("Content-Type: {content_type}\r\n"));
    }
    match rng.below(30) {
        0 => head.push_str("Host: elsewhere.test\r\n"),
        1 => (0..200).for_each(|n| head.push_str(&format!("X-{n}: {n}\r\n"))),
        2 => head.push_str(&format!("X: {}\r\n", "y".repeat(20_000))),
        3 => head.push_str("Origin: http://elsewhere.test\r\n"),
        4 => head.push_str("Expect: 100-continue\r\n"),
        _ => {}
    }
    let mut whole = true;
    match rng.below(20) {
        0 => {
            head.push_str("Content-Length: 104857600\r\n\r\n");
            whole = false;
        }
        1 => {
            head.push_str("Transfer-Encoding: chunked\r\n\r\nffffffff\r\n");
            whole = false;
        }
        2 => head.push_str(&format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len())),
        3 => head.push_str(&format!("Content-Length: {}\r\nContent-Length: 3\r\n\r\n", body.len())),
        _ => head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len())),
    }
    whole &= !head.contains("chunked");
    let mut octets = [head.as_bytes(), &body].concat();
    if rng.once_in(5) {
        mutate::octets(rng, &mut octets);
        whole = false;
    }
    (octets, whole)
}
