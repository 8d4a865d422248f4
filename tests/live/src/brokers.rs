//! Operators at a broker's listener: TLS cut short, HTTP/2 altered frame by frame, sealed attach requests altered inside and outside. The
//! broker is a process of its own beside the core, and a well-behaved operator's users must go on attaching.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::net::{AddressFamily, SocketType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;
use whimbrel_ids::PlmnId;
use whimbrel_open::crypto::{Seed, Share, SigningKey, VerifyingKey};
use whimbrel_open::id::{OperatorId, UserId};
use whimbrel_open::msg::{Certificate, EpochKey, FiveQis, Price, QosOffer, Subject, Terms, Trust, Validity};
use whimbrel_open::operator::{Operator, OperatorAttach};
use whimbrel_open::user::{UserAttach, UserSim};

use crate::mutate;
use crate::program;
use crate::rng::Rng;

const LISTENS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7443);
const ADMIN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8071);
const DOMAIN: &str = "b.example";
const OPERATOR: OperatorId = OperatorId { plmn: PlmnId::TEST, nid: None };
/// Where the fuzzer's operators are, and the well-behaved one.
const BAD_FROM: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);
const GOOD_FROM: Ipv4Addr = Ipv4Addr::new(127, 8, 0, 1);
/// How long an answer may take, on a busy host.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests of one connection, before it is made again.
const REQUESTS_MAX: u32 = 500;
const OPEN_MAX: usize = 60;
/// Memory that the broker may use above its first level.
const GROWTH_KIB_MAX: u64 = 256 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Frames of RFC 9113 §6.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK_OR_END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One HTTP/2 connection.
struct Link {
    tls: StreamOwned<ClientConnection, TcpStream>,
    stream: u32,
    requests: u32,
}

/// The operators, and the broker.
pub(crate) struct Brokers {
    folder: TempDir,
    child: Child,
    tls: Arc<ClientConfig>,
    operator: Operator,
    /// SIMs of the fuzzer's user and of the well-behaved one.
    sims: [UserSim; 2],
    link: Option<Link>,
    good: Option<Link>,
    open: Vec<TcpStream>,
    tried: Instant,
    log_read: usize,
    first_kib: u64,
    pub(crate) requests: u64,
}

impl Brokers {
    pub(crate) fn open() -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("whimbrel-live-broker-").tempdir();
        let folder = folder.map_err(|e| format!("there is no place for the broker's files: {e}"))?;
        let at = folder.path();
        let program = std::env::var_os("WHIMBREL_BROKER").map(PathBuf::from);
        let program = program.or_else(|| Some(program::executable()?.with_file_name("whimbrel-broker")));
        let program = program.ok_or("the program does not run")?;
        let config = at.join("broker.yaml");
        let cannot = |e: std::io::Error| format!("the broker's files: {e}");
        run(&program, &["init", "--domain", DOMAIN], &[at])?;
        let authority = SigningKey::new(&[3; 32]);
        let text = fs::read_to_string(&config).map_err(cannot)?;
        let text = text
            .replace(
                "authorities: []",
                &format!("authorities: [\"{}\"]", hex(&authority.verifying_key().octets())),
            )
            .replace("0.0.0.0:7443", &LISTENS.to_string());
        fs::write(&config, text).map_err(cannot)?;
        let key = fs::read_to_string(at.join("broker.key")).map_err(cannot)?;
        let key = key.lines().find(|l| !l.starts_with('#')).and_then(|l| unhex(l.trim()));
        let signing =
            SigningKey::new(&key.and_then(|k| k.try_into().ok()).ok_or("the broker's key cannot be read")?);
        let domain = DOMAIN.parse().map_err(|_| "the broker's domain")?;
        let certificate = issue(&authority, Subject::Broker(domain), signing.verifying_key(), 2);
        let mut octets = certificate.to_octets();
        octets = hex(&octets).into_bytes();
        fs::write(at.join("broker.cert"), octets).map_err(cannot)?;
        let mut sims = Vec::new();
        for name in ["bad", "good"] {
            let sim = at.join(format!("{name}.sim.json"));
            run(&program, &["user", "add", name, "--sim"], &[&sim, Path::new("-c"), &config])?;
            sims.push(read_sim(&sim)?);
        }
        let sims = sims.try_into().map_err(|_| "two SIMs")?;
        let log = fs::File::create(at.join("broker.log")).map_err(cannot)?;
        let mut command = Command::new(&program);
        command.args(["run", "-c"]).arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|e| format!("the broker cannot be run: {e}"))?;
        let terms = Terms {
            price: Price::new(*b"EUR", 100, 200).ok_or("a price")?,
            qos: QosOffer {
                ul_kbps_max: 50_000,
                dl_kbps_max: 200_000,
                five_qis: FiveQis::new(&[9]).ok_or("5QIs")?,
            },
            report_cycle_s: 60,
        };
        let own = SigningKey::new(&[4; 32]);
        let certificate = issue(&authority, Subject::Operator(OPERATOR), own.verifying_key(), 1);
        let trust = Trust::new(vec![authority.verifying_key()]).ok_or("an authority")?;
        let operator = Operator::new(certificate, own, trust, terms).ok_or("an operator")?;
        let tls = tls(&at.join("tls.pem"))?;
        let mut all = Self {
            tls,
            folder,
            child,
            operator,
            sims,
            link: None,
            good: None,
            open: Vec::new(),
            tried: Instant::now(),
            log_read: 0,
            first_kib: 0,
            requests: 0,
        };
        let begin = Instant::now();
        while all.health().is_err() {
            if begin.elapsed() > PATIENCE {
                return Err(format!("the broker is not ready: {}", all.log()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        all.first_kib = all.resident_kib();
        Ok(all)
    }

    /// One request, or what looks like one. Errors: the broker takes no connection.
    pub(crate) fn perform(&mut self, seed: u64) -> Result<(), String> {
        let rng = &mut Rng::new(seed);
        self.requests += 1;
        if rng.once_in(40) {
            // No TLS, or its first octets only.
            let mut stream = connect(BAD_FROM)?;
            let n = rng.below(600);
            let mut octets = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &rng.octets(n)].concat();
            mutate::octets(rng, &mut octets);
            let _ = stream.write_all(&octets);
            self.open.insert(0, stream);
            self.open.truncate(OPEN_MAX);
            return Ok(());
        }
        let [sim, _] = &mut self.sims;
        let body = body(rng, sim, &self.operator, seed);
        let link = self.link.take().filter(|link| link.requests < REQUESTS_MAX);
        let Ok(mut link) = link.map_or_else(|| Link::open(BAD_FROM, &self.tls), Ok) else {
            return Ok(()); // Its share of connections is used up by the halves above.
        };
        let path =
            ["/sap/v1/attach", "/sap/v1/attach", "/sap/v1/usage", "/veil/v1/attach", "/", ""][rng.below(6)];
        let is_altered = rng.once_in(5);
        let mut octets = link.request(path, &body);
        if is_altered {
            mutate::octets(rng, &mut octets);
        }
        if link.tls.write_all(&octets).and_then(|()| link.tls.flush()).is_err() {
            return Ok(()); // The broker has given it up.
        }
        if is_altered {
            let _ = link.tls.sock.shutdown(Shutdown::Write);
            let mut rest = Vec::new();
            let _ = (&mut link.tls).take(1 << 16).read_to_end(&mut rest);
            return Ok(());
        }
        match link.answer() {
            Ok(Some(_)) => self.link = Some(link),
            Ok(None) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(format!("the broker does not answer within {PATIENCE:?}"));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Every two seconds, a user attaches through a well-behaved operator. Errors: what it was not given, or what the broker's log says.
    pub(crate) fn canary(&mut self) -> Result<(), String> {
        if self.tried.elapsed() < Duration::from_secs(2) {
            return Ok(());
        }
        self.tried = Instant::now();
        self.health()?;
        let log = self.log();
        let new = log.get(self.log_read..).unwrap_or_default();
        if let Some(line) = new.lines().find(|l| program::is_fault(l)) {
            return Err(format!("the broker's log says: {line}"));
        }
        self.log_read = log.len();
        let kib = self.resident_kib();
        if kib > self.first_kib + GROWTH_KIB_MAX {
            return Err(format!("the broker takes {kib} KiB, after {} at first", self.first_kib));
        }
        let seed = Seed::new(seed_octets());
        let [_, sim] = &mut self.sims;
        let (_, request) = UserAttach::begin(sim, OPERATOR, &seed).ok_or("the SIM's counter")?;
        let (waiting, octets) = OperatorAttach::begin(&self.operator, request, now(), &seed);
        let mut link = match self.good.take().filter(|link| link.requests < REQUESTS_MAX) {
            Some(link) => link,
            None => Link::open(GOOD_FROM, &self.tls)
                .map_err(|e| format!("a well-behaved operator gets no connection: {e}"))?,
        };
        let octets = link.request("/sap/v1/attach", &octets);
        let sent = link.tls.write_all(&octets).and_then(|()| link.tls.flush());
        let answer = sent.and_then(|()| link.answer());
        let answer =
            answer.map_err(|e| format!("a well-behaved operator gets no answer within {PATIENCE:?}: {e}"))?;
        let answer = answer.ok_or("the connection of a well-behaved operator was ended")?;
        let session = waiting.answer(&answer, &self.operator.trust, now());
        session.map_err(|e| format!("the attach of a well-behaved operator was refused: {e:?}"))?;
        self.good = Some(link);
        Ok(())
    }

    fn health(&mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the broker ended ({status}): {}", self.log()));
        }
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::V4(ADMIN), PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = ask().map_err(|e| format!("the broker's health: {e}"))?;
        if text.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(format!("the broker's health: {text}")) }
    }

    fn log(&self) -> String {
        let octets = fs::read(self.folder.path().join("broker.log")).unwrap_or_default();
        String::from_utf8_lossy(&octets).into_owned()
    }

    fn resident_kib(&self) -> u64 {
        program::resident_kib(self.child.id())
    }

    pub(crate) fn leave(&mut self) {
        self.open.clear();
        (self.link, self.good) = (None, None);
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Link {
    fn open(from: Ipv4Addr, tls: &Arc<ClientConfig>) -> Result<Self, String> {
        let name = ServerName::try_from(DOMAIN).map_err(|e| e.to_string())?;
        let connection = ClientConnection::new(tls.clone(), name).map_err(|e| e.to_string())?;
        let mut tls = StreamOwned::new(connection, connect(from)?);
        let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        tls.write_all(&begin).and_then(|()| tls.flush()).map_err(|e| e.to_string())?;
        Ok(Self { tls, stream: 1, requests: 0 })
    }

    /// A POST on the next stream; its fields stand as literals (RFC 7541 §6.2.2).
    fn request(&mut self, path: &str, body: &[u8]) -> Vec<u8> {
        self.requests += 1;
        let mut fields = vec![0x83, 0x87]; // :method POST, :scheme https
        for (index, value) in
            [(&[0x04][..], path), (&[0x01], DOMAIN), (&[0x0f, 0x10], "application/octet-stream")]
        {
            fields.extend_from_slice(index);
            fields.push(value.len() as u8);
            fields.extend_from_slice(value.as_bytes());
        }
        let mut octets = frame(HEADERS, END_HEADERS, self.stream, &fields);
        let mut pieces = body.chunks(16_000).peekable();
        if pieces.peek().is_none() {
            octets.extend(frame(DATA, ACK_OR_END_STREAM, self.stream, &[]));
        }
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { ACK_OR_END_STREAM } else { 0 };
            octets.extend(frame(DATA, flags, self.stream, piece));
        }
        self.stream += 2;
        octets
    }

    /// The body of the answer on the last stream; `None` if that stream or the connection was ended.
    fn answer(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let (stream, mut body) = (self.stream - 2, Vec::new());
        loop {
            let mut head = [0; 9];
            self.tls.read_exact(&mut head)?;
            let [a, b, c, kind, flags, id @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.tls.read_exact(&mut payload)?;
            let is_ours = u32::from_be_bytes(id) & 0x7fff_ffff == stream;
            match kind {
                SETTINGS if flags & ACK_OR_END_STREAM == 0 => {
                    self.tls.write_all(&frame(SETTINGS, ACK_OR_END_STREAM, 0, &[]))?;
                }
                PING if flags & ACK_OR_END_STREAM == 0 => {
                    self.tls.write_all(&frame(PING, ACK_OR_END_STREAM, 0, &payload))?;
                }
                DATA => {
                    if !payload.is_empty() {
                        let more = (payload.len() as u32).to_be_bytes();
                        self.tls.write_all(&frame(WINDOW_UPDATE, 0, 0, &more))?;
                    }
                    body.extend_from_slice(&payload);
                }
                GOAWAY => return Ok(None),
                RST_STREAM if is_ours => return Ok(None),
                _ => {}
            }
            if is_ours && matches!(kind, DATA | HEADERS) && flags & ACK_OR_END_STREAM != 0 {
                return Ok(Some(body));
            }
        }
    }
}

/// The body of a request: an attach as it should be, altered inside its seal or outside, or something else.
fn body(rng: &mut Rng, sim: &mut UserSim, operator: &Operator, seed: u64) -> Vec<u8> {
    let n = rng.below(3_000);
    if rng.once_in(8) {
        return rng.octets(n);
    }
    let mut octets = [7; 32];
    octets[..8].copy_from_slice(&seed.to_be_bytes());
    let seed = Seed::new(octets);
    let (counter, ticket) = (sim.counter, sim.ticket);
    let begun = UserAttach::begin(sim, OPERATOR, &seed);
    // An answer is not waited for in order: the counter goes back now and then, and no ticket is used.
    sim.ticket = ticket;
    if rng.once_in(4) {
        sim.counter = counter;
    }
    let Some((_, request)) = begun else { return Vec::new() };
    let at = if rng.once_in(10) { whimbrel_ids::Instant(rng.number()) } else { now() };
    let (_, mut octets) = OperatorAttach::begin(operator, request, at, &seed);
    match rng.below(8) {
        0..=3 => mutate::octets(rng, &mut octets),
        4 => octets.truncate(n),
        5 if rng.once_in(4) => octets = octets.repeat(200),
        _ => {}
    }
    octets
}

fn issue(authority: &SigningKey, subject: Subject, key: VerifyingKey, serial: u64) -> Certificate {
    let now = now().as_secs();
    let validity = Validity { from: now - 86_400, until: now + 86_400 };
    Certificate::issue(authority, subject, key, validity, serial)
}

fn now() -> whimbrel_ids::Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    whimbrel_ids::Instant(since.as_micros() as u64)
}

fn seed_octets() -> [u8; 32] {
    let mut octets = [9; 32];
    octets[..8].copy_from_slice(&now().0.to_be_bytes());
    octets
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let mut octets = vec![a, b, c, kind, flags];
    octets.extend_from_slice(&stream.to_be_bytes());
    octets.extend_from_slice(payload);
    octets
}

fn connect(from: Ipv4Addr) -> Result<TcpStream, String> {
    let connected = || -> std::io::Result<TcpStream> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(from, 0))?;
        rustix::net::connect(&socket, &LISTENS)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    connected().map_err(|e| format!("the broker takes no connection from {from}: {e}"))
}

/// TLS that trusts the broker's own certificate.
fn tls(pem: &Path) -> Result<Arc<ClientConfig>, String> {
    let certificate = CertificateDer::from_pem_file(pem).map_err(|e| format!("{}: {e}", pem.display()))?;
    let mut store = RootCertStore::empty();
    store.add(certificate).map_err(|e| e.to_string())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| e.to_string())?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn read_sim(file: &Path) -> Result<UserSim, String> {
    let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let profile: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
    let octets = |field: &str| unhex(profile[field].as_str().unwrap_or_default()).unwrap_or_default();
    let wrong = || format!("{} is not as expected", file.display());
    let key = |field: &str| <[u8; 32]>::try_from(octets(field)).map_err(|_| wrong());
    Ok(UserSim {
        user: UserId(octets("user").try_into().map_err(|_| wrong())?),
        broker: DOMAIN.parse().map_err(|_| wrong())?,
        broker_key: VerifyingKey::from_octets(key("broker_key")?).ok_or_else(wrong)?,
        epoch: EpochKey {
            id: profile["epoch"].as_u64().and_then(|id| id.try_into().ok()).ok_or_else(wrong)?,
            public: Share(key("epoch_key")?),
        },
        signing: SigningKey::new(&key("private_key")?),
        counter: profile["counter"].as_u64().ok_or_else(wrong)?,
        ticket: None,
    })
}

fn run(program: &Path, words: &[&str], files: &[&Path]) -> Result<(), String> {
    let done = Command::new(program).args(words).args(files).stdin(Stdio::null()).output();
    let done = done.map_err(|e| format!("{} cannot be run: {e}", program.display()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("`{}` fails: {}", words.join(" "), String::from_utf8_lossy(&done.stderr))),
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|o| format!("{o:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
