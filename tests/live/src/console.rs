//! Users and programs at the API's port: logins, sessions and tokens, checks of configurations, streams of events; over connections that go on.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use serde_json::{Value, json};

use crate::mutate;
use crate::program::{API, AS_LOCAL, exchange, status};
use crate::rng::Rng;

/// Where the fuzzer's users are, and the well-behaved ones: networks of their own, as logins that fail count for one.
const BAD_FROM: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);
const GOOD_FROM: Ipv4Addr = Ipv4Addr::new(127, 8, 0, 1);
/// Streams and half requests that are kept open at once: more than a source's share of connections.
const OPEN_MAX: usize = 100;
/// How long an answer may take, on a busy host. A password is hashed with 19 MiB.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two logins of the well-behaved user.
const LOGIN_EVERY: Duration = Duration::from_secs(15);
const PASSWORD: &str = "a good password of the fuzzer";

/// Routes, without those that would change what canaries need: overload, gNBs that exist, the log's level, the configuration in force.
const ROUTES: [(&str, &str); 28] = [
    ("POST", "/api/v1/session"),
    ("POST", "/api/v1/session"),
    ("GET", "/api/v1/session"),
    ("PUT", "/api/v1/session/password"),
    ("POST", "/api/v1/session/second-factor"),
    ("PUT", "/api/v1/session/second-factor"),
    ("POST", "/api/v1/config/check"),
    ("POST", "/api/v1/config/check"),
    ("POST", "/api/v1/config/check"),
    ("POST", "/api/v1/config/check"),
    ("GET", "/api/v1/config"),
    ("GET", "/api/v1/config/defaults"),
    ("GET", "/api/v1/config/history/{}"),
    ("GET", "/api/v1/users"),
    ("PATCH", "/api/v1/users/{}"),
    ("DELETE", "/api/v1/users/{}/second-factor"),
    ("GET", "/api/v1/tokens"),
    ("DELETE", "/api/v1/tokens/{}"),
    ("POST", "/api/v1/links"),
    ("GET", "/api/v1/audit?limit=5"),
    ("GET", "/api/v1/alarms"),
    ("GET", "/api/v1/network"),
    ("GET", "/api/v1/operations/{}"),
    ("GET", "/api/v1/events?since=0"),
    ("GET", "/api/v1/ues/{}/capture"),
    ("POST", "/api/v1/gnbs/{}/disconnect"),
    ("GET", "/"),
    ("GET", "/app.js"),
];

const NAMES: [&str; 9] =
    ["", "absent", "%00", "..%2f..", "0", "99999999999999999999", "gnb-000/00-1", "*", "%ff"];

/// Texts of a configuration, for a check.
const TEXTS: [&str; 10] = [
    "",
    "amf: { name: x }\n",
    "n2: { addresses: [127.0.0.5], sctp: udp }\nn2: {}\n",
    "store: { path: /dev/zero, key_file: /dev/full }\n",
    "home_network_keys:\n  - { id: 1, scheme: A, private_key: \"(secret 1)\" }\n",
    "\"(secret 1)\": 1\n",
    "a: &a [*a, *a]\nb: &b [*a, *a, *a]\n",
    "data_networks: [{ dnn: internet, ipv4_pool: 10.45.0.0/16, dns: [8.8.8.8] }]\n",
    "limits: { ues: -1, ran_nodes: 99999999999999999999 }\n",
    "{{{{[[[[? : ? :\n",
];

/// The users that log in, good and bad.
pub(crate) struct Console {
    /// The session of the fuzzer's user, as headers.
    session: String,
    token: String,
    connection: Option<TcpStream>,
    open: Vec<TcpStream>,
    tried: Instant,
    logged_in: Option<Instant>,
    pub(crate) requests: u64,
}

impl Console {
    /// Makes a user for each side, and a token.
    pub(crate) fn open() -> Result<Self, String> {
        for (name, role) in [("good", "admin"), ("bad", "operator")] {
            as_local("/api/v1/users", &json!({"name": name, "role": role, "password": PASSWORD}))?;
        }
        let token = as_local("/api/v1/tokens", &json!({"name": "good", "scopes": ["read"]}))?;
        let token = token["token"].as_str().ok_or("a token was not shown")?.to_owned();
        let session = log_in(BAD_FROM, "bad")?;
        Ok(Self {
            session,
            token,
            connection: None,
            open: Vec::new(),
            tried: Instant::now(),
            logged_in: None,
            requests: 0,
        })
    }

    /// One request. Errors: an answer that no request may get.
    pub(crate) fn perform(&mut self, seed: u64) -> Result<(), String> {
        let rng = &mut Rng::new(seed);
        self.requests += 1;
        let (octets, is_whole, is_stream) = self.request(rng);
        let kept = self.connection.take().filter(|_| is_whole && !is_stream);
        let mut stream = match kept {
            Some(stream) => stream,
            None => connect(BAD_FROM)?,
        };
        let sent = stream.write_all(&octets);
        if is_stream || rng.once_in(30) {
            self.open.insert(0, stream);
            self.open.truncate(OPEN_MAX);
            return Ok(());
        }
        if sent.is_err() || rng.once_in(30) {
            return Ok(()); // The connection was kept for too long, or the client goes before the answer.
        }
        if !is_whole {
            let _ = stream.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            let _ = (&stream).take(1 << 20).read_to_end(&mut answer);
            return judge(&answer);
        }
        let answer = read_answer(&mut stream).map_err(|e| {
            format!("no whole answer within {PATIENCE:?} to {:?}: {e}", String::from_utf8_lossy(&octets))
        })?;
        judge(&answer)?;
        if !answer.is_empty() {
            self.connection = Some(stream);
        }
        Ok(())
    }

    /// A request; whether it is whole, so that an answer must come; whether its answer has no end.
    fn request(&self, rng: &mut Rng) -> (Vec<u8>, bool, bool) {
        let (method, path) = ROUTES[rng.below(ROUTES.len())];
        let mut path = path.replace("{}", NAMES[rng.below(NAMES.len())]);
        let is_stream = path.ends_with("since=0") && rng.once_in(4) || path.ends_with("capture");
        let mut body = body(rng, &path);
        if rng.once_in(3) {
            mutate::octets(rng, &mut body);
        }
        if rng.once_in(12) {
            path.push_str(["?", "//", "%zz", "?limit=-1", "#x"][rng.below(5)]);
        }
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {API}\r\n");
        match rng.below(12) {
            0 => {}
            1 => head.push_str("Cookie: whimbrel_session=x; whimbrel_session=y\r\n"),
            2 => head.push_str("Authorization: Bearer whimbrel_x\r\n"),
            3 => head.push_str(&format!("Authorization: {}\r\n", "B".repeat(rng.below(20_000)))),
            _ => head.push_str(&self.session),
        }
        if is_stream {
            head.push_str("Accept: text/event-stream\r\nLast-Event-ID: 18446744073709551615\r\n");
        }
        match rng.below(24) {
            0 => head.push_str("Origin: http://elsewhere.test\r\n"),
            1 => head.push_str("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"),
            2 => head.push_str("X-CSRF-Token: x\r\n"),
            _ => {}
        }
        head.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len()));
        let mut octets = [head.as_bytes(), &body].concat();
        let is_altered = rng.once_in(6);
        if is_altered {
            mutate::octets(rng, &mut octets);
        }
        (octets, !is_altered, is_stream && !is_altered)
    }

    /// Every second a program of another host reads its state, and every fifteen a user logs in. Errors: what they were not given.
    pub(crate) fn canary(&mut self) -> Result<(), String> {
        if self.tried.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        self.tried = Instant::now();
        let mut stream = connect(GOOD_FROM)?;
        let request = format!(
            "GET /api/v1/status HTTP/1.1\r\nHost: {API}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.token
        );
        let answer = stream.write_all(request.as_bytes()).and_then(|()| read_answer(&mut stream));
        let answer =
            answer.map_err(|e| format!("a well-behaved program gets no answer within {PATIENCE:?}: {e}"))?;
        if status(&answer) != Some(200) {
            return Err(format!("a well-behaved program is answered {:?}", String::from_utf8_lossy(&answer)));
        }
        if self.logged_in.is_none_or(|at| at.elapsed() > LOGIN_EVERY) {
            self.logged_in = Some(Instant::now());
            log_in(GOOD_FROM, "good")?;
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.open.clear();
        self.connection = None;
    }
}

fn body(rng: &mut Rng, path: &str) -> Vec<u8> {
    // A name that no user has: what fails costs no user anything.
    let name = ["absent", "", "local", "good\u{0}"][rng.below(4)];
    let password = ["", "a wrong password", PASSWORD][rng.below(3)];
    let value = match path {
        p if p.ends_with("/check") => {
            let mut text = TEXTS[rng.below(TEXTS.len())].as_bytes().to_vec();
            match rng.below(12) {
                0 => text = b"a: ".repeat(3_000),
                1 => text = "[".repeat(50_000).into_bytes(),
                2..=7 => mutate::octets(rng, &mut text),
                _ => {}
            }
            json!({"text": String::from_utf8_lossy(&text)})
        }
        p if p.ends_with("/session") && rng.once_in(3) => json!({"link": "x".repeat(rng.below(100))}),
        p if p.ends_with("/session") => json!({"name": name, "password": password, "code": "000000"}),
        p if p.ends_with("/password") => json!({"old": "x", "new": password}),
        p if p.ends_with("/second-factor") => json!({"password": "x", "code": "1"}),
        p if p.contains("/users") => json!({"role": "admin"}),
        _ => Value::Null,
    };
    value.to_string().into_bytes()
}

fn judge(answer: &[u8]) -> Result<(), String> {
    match status(answer) {
        Some(500) => Err(format!("status 500: {}", String::from_utf8_lossy(answer))),
        _ => Ok(()),
    }
}

/// A connection to the API from this address.
fn connect(from: Ipv4Addr) -> Result<TcpStream, String> {
    let connected = || -> std::io::Result<TcpStream> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(from, 0))?;
        rustix::net::connect(&socket, &API)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    connected().map_err(|e| format!("the API takes no connection from {from}: {e}"))
}

/// One answer of a connection that goes on; nothing, if it was closed before.
fn read_answer(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        let n = match stream.read(&mut buffer) {
            Ok(n) => n,
            // Sent to what the API has given up meanwhile.
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        answer.extend_from_slice(buffer.get(..n).unwrap_or_default());
        if n == 0 || is_whole(&answer) {
            return Ok(answer);
        }
    }
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let header = |name: &str| head.lines().find_map(|l| l.strip_prefix(name).map(str::trim));
    if ["204", "304"].iter().any(|code| head.get(9..12) == Some(code)) {
        return true;
    }
    match header("content-length:").and_then(|n| n.parse::<usize>().ok()) {
        Some(n) => answer.len() >= end + 4 + n,
        None => header("transfer-encoding:").is_some() && answer.ends_with(b"0\r\n\r\n"),
    }
}

/// A request of this host's commands.
fn as_local(path: &str, body: &Value) -> Result<Value, String> {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {API}\r\n{AS_LOCAL}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(request.as_bytes()).map_err(|e| format!("{path}: {e}"))?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    if !status(&answer).is_some_and(|s| (200..300).contains(&s)) {
        return Err(format!("{path} was refused: {text}"));
    }
    Ok(text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok()).unwrap_or_default())
}

/// Logs a user in; returns the session as headers of a request.
fn log_in(from: Ipv4Addr, name: &str) -> Result<String, String> {
    let body = json!({"name": name, "password": PASSWORD}).to_string();
    let request = format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: {API}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = connect(from)?;
    let answer = stream.write_all(request.as_bytes()).and_then(|()| read_answer(&mut stream));
    let answer =
        answer.map_err(|e| format!("the login of {name} gets no answer within {PATIENCE:?}: {e}"))?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let refused = || format!("the login of {name} was refused: {text}");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(refused)?;
    let cookie = head.lines().find_map(|l| l.split_once("whimbrel_session=")?.1.split(';').next());
    let csrf: Value = serde_json::from_str(body).unwrap_or_default();
    let (Some(cookie), Some(csrf)) = (cookie, csrf["csrf"].as_str()) else { return Err(refused()) };
    Ok(format!("Cookie: whimbrel_session={cookie}\r\nX-CSRF-Token: {csrf}\r\n"))
}
