//! Processes at the socket of a unit's manager: functions that are none, orders, lines that are no question, descriptors that are not awaited.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::Value;

use crate::mutate;
use crate::program;
use crate::rng::Rng;

/// Connections that are kept open and silent at once: fewer than the manager takes, so that its functions are judged.
const IDLE_MAX: usize = 60;
/// How long the manager may take for an answer, on a busy host; it gives up a silent peer after 2 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Functions of a unit as small as ours has at least.
const FUNCTIONS_MIN: usize = 4;

const FUNCTIONS: [&str; 9] =
    ["cta-1", "cta-2", "cpf-1", "cpf-99", "upf", "upf-replica", "", "manager", "cta-1\u{0}"];

/// What a line is about, behind the token. None of them names a program that exists.
const SUBJECTS: [&str; 18] = [
    "\"status\":{}",
    "\"status\":[]",
    "\"hello\":{\"function\":\"FUNCTION\",\"code\":\"00000001\",\"descriptors\":[],\"areas\":true}",
    "\"hello\":{\"function\":\"FUNCTION\",\"code\":\"\",\"descriptors\":[\"n2/0\",\"n3/1\",\"n2/0\"]}",
    "\"hello\":{\"function\":\"FUNCTION\",\"code\":\"1\",\"descriptors\":[\"area/control-00\",\"\",\"../x\"]}",
    "\"request\":{\"Grant\":{\"ttl_s\":4294967295}}",
    "\"request\":{\"KeepAlive\":{\"lease\":-1}}",
    "\"request\":{\"Revoke\":{\"lease\":1}}",
    "\"request\":{\"Swap\":{\"key\":\"primary\",\"expected\":0,\"value\":[1,2,3],\"lease\":0}}",
    "\"request\":{\"List\":{\"prefix\":\"\"}}",
    "\"request\":{\"Watch\":{\"prefix\":\"\",\"from\":0}}",
    "\"upgrade\":{\"program\":\"/nonexistent/whimbrel\"}",
    "\"canary\":{\"begin\":{\"program\":\"/nonexistent/whimbrel\",\"share\":{\"Percent\":10}}}",
    "\"canary\":{\"share\":{\"Percent\":255}}",
    "\"canary\":{\"share\":{\"Ues\":[\"imsi-999700000000001\"]}}",
    "\"canary\":{\"promote\":{}}",
    "\"canary\":{\"roll_back\":{}}",
    "\"status\":{},\"status\":{}",
];

/// The processes at the socket.
pub(crate) struct Managers {
    socket: PathBuf,
    token: String,
    idle: Vec<UnixStream>,
    tried: Instant,
    pub(crate) lines: u64,
}

impl Managers {
    pub(crate) fn open() -> Result<Self, String> {
        let directory = program::folder().ok_or("the program does not run")?.join("unit");
        let token = std::fs::read_to_string(directory.join("token"));
        let token = token.map_err(|e| format!("the unit's token: {e}"))?.trim_end().to_owned();
        let socket = directory.join("manager");
        Ok(Self { socket, token, idle: Vec::new(), tried: Instant::now(), lines: 0 })
    }

    /// One connection with a line or more. Errors: the manager takes none, or gives no end.
    pub(crate) fn perform(&mut self, seed: u64) -> Result<(), String> {
        let rng = &mut Rng::new(seed);
        let octets = self.lines(rng);
        self.lines += 1;
        let stream = self.connect()?;
        send(rng, &stream, &octets);
        match rng.below(40) {
            0 => {
                self.idle.insert(0, stream);
                self.idle.truncate(IDLE_MAX);
                return Ok(());
            }
            1 => return Ok(()), // Gone before the answer.
            _ => {}
        }
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        match stream.take(1 << 20).read_to_end(&mut answer) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Err(format!(
                "the manager does not end {:?} within {PATIENCE:?}",
                String::from_utf8_lossy(&octets)
            )),
            _ => Ok(()),
        }
    }

    fn lines(&self, rng: &mut Rng) -> Vec<u8> {
        if rng.once_in(30) {
            let n = rng.below(200);
            return rng.octets(n);
        }
        let mut octets = Vec::new();
        for _ in 0..=rng.below(3) / 2 {
            let token = match rng.below(6) {
                0 => "",
                1 => "0000000000000000000000000000000000000000000000000000000000000000",
                _ => &self.token,
            };
            let subject = SUBJECTS[rng.below(SUBJECTS.len())];
            let subject = subject.replace("FUNCTION", FUNCTIONS[rng.below(FUNCTIONS.len())]);
            octets.extend_from_slice(format!("{{\"token\":\"{token}\",{subject}}}\n").as_bytes());
        }
        match rng.below(40) {
            0 => octets = vec![b'x'; 200_000],
            1 => octets = b"[".repeat(60_000),
            2..=17 => mutate::octets(rng, &mut octets),
            _ => {}
        }
        // What restarts functions is no misuse: root may order it.
        if octets.windows(7).any(|w| w == b"restart") { Vec::new() } else { octets }
    }

    fn connect(&self) -> Result<UnixStream, String> {
        let cannot = |e: std::io::Error| format!("the manager takes no connection: {e}");
        let stream = UnixStream::connect(&self.socket).map_err(cannot)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(cannot)?;
        Ok(stream)
    }

    /// Every second, an operator asks for the functions. Errors: what the answer lacks.
    pub(crate) fn canary(&mut self) -> Result<(), String> {
        if self.tried.elapsed() < Duration::from_secs(1) {
            return Ok(());
        }
        let mut stream = self.connect()?;
        let line = format!("{{\"token\":\"{}\",\"status\":{{}}}}\n", self.token);
        let mut answer = String::new();
        let asked = stream.write_all(line.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        asked.map_err(|e| format!("the manager does not show its functions within {PATIENCE:?}: {e}"))?;
        let status: Value = serde_json::from_str(&answer).unwrap_or_default();
        let functions = status["functions"].as_array().map_or(0, Vec::len);
        if functions < FUNCTIONS_MIN {
            return Err(format!("the manager shows {functions} functions: {answer}"));
        }
        self.tried = Instant::now();
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.idle.clear();
    }
}

/// Sends the octets, in one piece or in two, and some descriptors with the first.
fn send(rng: &mut Rng, stream: &UnixStream, octets: &[u8]) {
    let (first, rest) = octets.split_at(if rng.once_in(4) { rng.below(octets.len()) } else { octets.len() });
    let mut sent = 0;
    if rng.once_in(6)
        && !first.is_empty()
        && let Ok(file) = File::open("/dev/null")
    {
        let descriptors = vec![file.as_fd(); 1 + rng.below(64)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let slices = [IoSlice::new(first)];
        sent =
            rustix::net::sendmsg(stream, &slices, &mut ancillary, SendFlags::NOSIGNAL).unwrap_or(first.len());
    }
    // It may have ended the connection at the first octets.
    let mut stream = stream;
    let _ = stream.write_all(first.get(sent..).unwrap_or_default());
    let _ = stream.write_all(rest);
}
