//! The program under test: its folder, its process, and what can be seen of it from outside.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use whimbrel_ran::fleet::ProvisionedUe;

/// Where the program is, on N2, N3 and N4.
pub(crate) const CORE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);
/// Address of the program's API.
pub(crate) const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8070);
/// The core's end of the data network.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 1);
/// How long it may take to be ready, and to stop, on a busy host.
const READY_WITHIN: Duration = Duration::from_secs(30);
const STOPPED_WITHIN: Duration = Duration::from_secs(15);
/// A log longer than this is truncated, so that hours of refusals fill no disk.
const LOG_OCTETS_MAX: u64 = 64 << 20;
/// Words of a log line that no input of a peer may cause.
const FAULTS: [&str; 4] = ["panicked at", "fault of the program", "in a panic", "thread panicked"];

/// The header of requests that go over the core's socket, as commands of this host do.
pub(crate) const AS_LOCAL: &str = "X-Of-This-Host: yes";
/// That socket, once the core is ready.
static LOCAL_SOCKET: Mutex<Option<PathBuf>> = Mutex::new(None);
/// The program that runs, and the folder of its files.
static RUNNING: Mutex<Option<(PathBuf, PathBuf)>> = Mutex::new(None);

/// The program that runs.
pub(crate) fn executable() -> Option<PathBuf> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(program, _)| program.clone())
}

/// The folder of its files.
pub(crate) fn folder() -> Option<PathBuf> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, folder)| folder.clone())
}

/// A connection for a request: over the socket of commands if it has [`AS_LOCAL`], otherwise over TCP.
pub(crate) fn connect(request: &[u8], within: Duration) -> std::io::Result<TcpStream> {
    let local = LOCAL_SOCKET.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_local = request.windows(AS_LOCAL.len()).any(|w| w == AS_LOCAL.as_bytes());
    let stream = match local.filter(|_| is_local) {
        // What is used of it is the same for both kinds of socket.
        Some(socket) => TcpStream::from(OwnedFd::from(UnixStream::connect(socket)?)),
        None => TcpStream::connect_timeout(&API, within)?,
    };
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    Ok(stream)
}

/// How the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As one process.
    Process,
    /// As a unit: a manager, and a process for each function.
    Unit,
}

/// The running program.
pub(crate) struct Program {
    folder: TempDir,
    child: Child,
    log_read: u64,
    form: Form,
}

/// What it takes of the host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) resident_kib: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

impl Program {
    /// Starts it with these subscribers. Errors: one sentence.
    pub(crate) fn start(program: &Path, subscribers: &[ProvisionedUe], form: Form) -> Result<Self, String> {
        Self::begin(program, subscribers, "", form)
    }

    /// The same, with everything logged that can be.
    pub(crate) fn start_logging_all(program: &Path, subscribers: &[ProvisionedUe]) -> Result<Self, String> {
        Self::begin(program, subscribers, "log: { level: trace }\n", Form::Process)
    }

    fn begin(program: &Path, subscribers: &[ProvisionedUe], more: &str, form: Form) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("whimbrel-live-").tempdir();
        let folder = folder.map_err(|e| format!("there is no place for its files: {e}"))?;
        let file = folder.path().join("whimbrel.yaml");
        let unit = format!("unit: {{ directory: {}/unit }}\n", folder.path().display());
        let unit = if form == Form::Unit { unit } else { String::new() };
        fs::write(&file, yaml(folder.path()) + &unit + more)
            .map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
        let log = fs::OpenOptions::new().create(true).append(true).open(folder.path().join("core.log"));
        let log = log.map_err(|e| format!("the core's log: {e}"))?;
        let mut command = Command::new(program);
        let how = if form == Form::Unit { "--unit" } else { "--strict" };
        command.args(["run", how, "--config"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some(file) = std::env::var_os("WHIMBREL_LIVE_CAPTURE") {
            command.arg("--capture").arg(file);
        }
        let child =
            command.stderr(log).spawn().map_err(|e| format!("{} cannot be run: {e}", program.display()))?;
        let mut core = Self { folder, child, log_read: 0, form };
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((program.to_owned(), core.folder.path().to_owned()));
        core.await_ready()?;
        core.provision(subscribers)?;
        Ok(core)
    }

    fn await_ready(&mut self) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the core ended at its start ({status}): {}", self.log_tail()));
            }
            if exchange(b"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1:8070\r\nConnection: close\r\n\r\n")
                .is_ok()
            {
                let name = if self.form == Form::Unit { "unit/api" } else { "whimbrel.db.socket" };
                let socket = self.folder.path().join(name);
                *LOCAL_SOCKET.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
                return Ok(());
            }
            if begin.elapsed() > READY_WITHIN {
                return Err(format!("the core is not ready after {READY_WITHIN:?}: {}", self.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn provision(&self, subscribers: &[ProvisionedUe]) -> Result<(), String> {
        let hex = |octets: &[u8]| octets.iter().map(|o| format!("{o:02x}")).collect::<String>();
        let lines = subscribers.iter().map(|s| format!("{},{},{}\n", s.supi, hex(&s.k), hex(&s.opc)));
        let csv: String = std::iter::once("supi,k,opc\n".to_owned()).chain(lines).collect();
        let head = format!(
            "POST /api/v1/subscribers/import HTTP/1.1\r\nHost: {API}\r\n{AS_LOCAL}\r\nContent-Type: text/csv\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{csv}",
            csv.len()
        );
        match exchange(head.as_bytes()) {
            Ok(answer) if status(&answer).is_some_and(|s| (200..300).contains(&s)) => Ok(()),
            Ok(answer) => Err(format!("the subscribers were refused: {}", String::from_utf8_lossy(&answer))),
            Err(e) => Err(format!("the subscribers could not be given: {e}")),
        }
    }

    /// Keeps its log, which is about to go with its folder; `None`: that could not be done.
    pub(crate) fn keep_log(&self, to: &Path) -> Option<()> {
        fs::copy(self.folder.path().join("core.log"), to).ok().map(drop)
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read(self.folder.path().join("core.log")).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(4000)..]).into_owned()
    }

    /// All that it logged, and what it wrote down of accesses.
    pub(crate) fn logged(&self) -> String {
        let files = ["core.log", "whimbrel.db.audit"]
            .map(|f| fs::read(self.folder.path().join(f)).unwrap_or_default());
        String::from_utf8_lossy(&files.concat()).into_owned()
    }

    /// Whether it has ended: how.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// The first new log line that no peer may cause.
    pub(crate) fn logged_fault(&mut self) -> Option<String> {
        let path = self.folder.path().join("core.log");
        let mut file = fs::File::open(&path).ok()?;
        let mut text = Vec::new();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(self.log_read)).ok()?;
        file.read_to_end(&mut text).ok()?;
        self.log_read += text.len() as u64;
        if self.log_read > LOG_OCTETS_MAX
            && fs::OpenOptions::new().write(true).truncate(true).open(&path).is_ok()
        {
            self.log_read = 0;
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let at = lines.iter().position(|line| is_fault(line))?;
        // A panic's message stands on the line after its place.
        Some(lines[at..lines.len().min(at + 2)].join(" / "))
    }

    /// What it takes of the host now.
    pub(crate) fn usage(&self) -> Usage {
        let id = self.child.id();
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).map_or(0, |all| all.count() as u64);
        let functions = if self.form == Form::Unit { children(id) } else { Vec::new() };
        let resident_kib = resident_kib(id) + functions.into_iter().map(resident_kib).sum::<u64>();
        Usage { resident_kib, descriptors, threads: of_status(id, "Threads:") }
    }

    /// Stops it as an operator would. Errors: it did not end in order.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let begin = Instant::now();
        while begin.elapsed() < STOPPED_WITHIN {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the core ended with {status}: {}", self.log_tail())),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(e) => return Err(format!("the core cannot be waited for: {e}")),
            }
        }
        Err(format!("the core does not stop within {STOPPED_WITHIN:?}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Short timers, so that what waits and what is forgotten is met within a run.
fn yaml(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "store: {{ path: {folder}/whimbrel.db, key_file: {folder}/whimbrel.key }}\n\
         n2: {{ addresses: [{CORE}], sctp: udp }}\n\
         n3: {{ address: {CORE} }}\n\
         n4: {{ listen: \"{CORE}:8805\", path_failure: 10s }}\n\
         n6: {{ nat: false, forwarding: false }}\n\
         api: {{ address: \"{API}\" }}\n\
         timers: {{ t3512: 60s, implicit_deregistration: 10s, t3522: 2s, t3550: 2s, t3555: 2s, t3560: 2s, t3570: 2s, \
         t3591: 2s, t3592: 2s, guard: 2s, connection_idle: 5s }}\n"
    )
}

/// True if no input of a peer may cause this line of a log.
pub(crate) fn is_fault(line: &str) -> bool {
    is_error(line) || FAULTS.iter().any(|f| line.contains(f))
}

/// A number of a process's status.
fn of_status(id: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The resident memory of a process.
pub(crate) fn resident_kib(id: u32) -> u64 {
    of_status(id, "VmRSS:")
}

/// The processes that a process has started.
fn children(id: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|child| of_status(*child, "PPid:") == u64::from(id)).collect()
}

/// Whether a line is of the level at which an operator must act; it stands behind the time.
fn is_error(line: &str) -> bool {
    line.split_whitespace().nth(1) == Some("ERROR")
}

/// Sends a request to the API and reads until the end.
pub(crate) fn exchange(request: &[u8]) -> std::io::Result<Vec<u8>> {
    const WITHIN: Duration = Duration::from_secs(8);
    let mut stream = connect(request, WITHIN)?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.take(16 << 20).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The status of an HTTP answer.
pub(crate) fn status(answer: &[u8]) -> Option<u16> {
    std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
}

/// The program's metrics; those of one name are summed.
pub(crate) fn metrics() -> Option<BTreeMap<String, u64>> {
    let answer =
        exchange(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:8070\r\nConnection: close\r\n\r\n").ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with("whimbrel_") && !l.contains("_bucket")) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or(name).to_owned();
        *all.entry(name).or_insert(0) += value.parse::<f64>().unwrap_or(0.0) as u64;
    }
    Some(all)
}
