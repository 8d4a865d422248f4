//! Inputs that felled other cores' transport, each by its name, against the running program; and an evening of everything, after
//! which nothing that was logged or counted may show a subscriber or a key.
//!
//! `whimbrel-live named` prints a line for each: `ok - NAME` or `not ok - NAME: WHAT`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whimbrel_ran::fleet::ProvisionedUe;

use crate::canary::{self, Health};
use crate::hunt::Crowd;
use crate::op::{Act, Op, Part};
use crate::program::{self, Program};
use crate::radio::{GNBS, Radio, UES};
use crate::rng::Rng;

/// Canaries that must end their rounds after each input: one of each second, and one more.
const ROUNDS: u64 = 6;
/// How long that may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(40);
/// Descriptors above those of before that an input may leave for as long as it is remembered.
const DESCRIPTORS_MORE: u64 = 40;
/// What the program may grow by, over all of them: 100,000 inputs of which each left an octet would show.
const GROWTH_KIB_MAX: u64 = 64 << 10;
/// Things done in the evening.
const EVENING: usize = 1500;

type Input = (&'static str, fn(&mut Radio));

const INPUTS: [Input; 9] = [
    ("a single octet as an NGAP message, 10,000 times", |r| r.flood(10_000, &[0])),
    ("messages of other payload protocols", |r| {
        for n in 0..1000u32 {
            r.raw(
                0,
                n as u16 % 3,
                [0, 1, 46, 61, 0x3c00_0000, u32::MAX][n as usize % 6],
                &[0, 21, 0, 3, 0, 0, 0],
            );
        }
    }),
    ("messages of 33,000 and 70,000 octets, in fragments", |r| {
        for n in [32_768, 33_000, 70_000] {
            (0..20).for_each(|_| r.raw(0, 1, 60, &vec![0x40; n]));
        }
    }),
    ("thousands of messages bundled in packets", |r| r.flood(20_000, &[0x00, 0x0f, 0x40, 0x03, 0, 0, 0])),
    ("a peer of a single stream", |r| r.with_streams(1)),
    ("associations that are set up and aborted, 400 times", |r| r.come_and_go(400, false)),
    ("associations that are set up and shut down, 400 times", |r| r.come_and_go(400, true)),
    ("associations lost in the middle of a clean-up", |r| {
        for n in 0..60 {
            (0..UES).for_each(|ue| r.perform(&Op::Ue { ue, act: Act::Register }));
            (0..UES).for_each(|ue| r.perform(&Op::Ue { ue, act: Act::SwitchOff }));
            (0..GNBS).for_each(|gnb| r.perform(&Op::Restart { gnb, gracefully: n % 2 == 0 }));
            r.perform(&Op::Pause { ms: 20 });
        }
    }),
    ("a peer that never reads", |r| r.deaf(12_000)),
];

/// Does all of it. `Ok(false)`: something went wrong, and was printed. Errors: it could not begin.
pub(crate) fn named(program: &Path) -> Result<bool, String> {
    // Of digits that nothing else has.
    let crowd = Crowd::from("999705837260413", "999707946138527");
    let all: Vec<ProvisionedUe> = crowd.canaries.iter().chain(&crowd.bad).cloned().collect();
    let mut core = Program::start_logging_all(program, &all)?;
    let (health, over) = (Arc::new(Health::default()), Arc::new(AtomicBool::new(false)));
    let keeper = {
        let (ues, health, over) = (crowd.canaries.clone(), health.clone(), over.clone());
        std::thread::spawn(move || canary::keep(&ues, 3600.0, health, over))
    };
    let mut radio = Radio::open(0, crowd.bad.get(..usize::from(UES)).unwrap_or_default(), &crowd.canaries)?;
    let mut outcomes = Outcomes { clean: true };
    outcomes.of("canaries before anything is done", judge(&mut core, &health, 0));
    let before = core.usage();
    for (name, input) in INPUTS {
        input(&mut radio);
        radio.perform(&Op::Renew);
        let mut judged = judge(&mut core, &health, before.descriptors + DESCRIPTORS_MORE);
        let grown = core.usage().resident_kib.saturating_sub(before.resident_kib);
        if grown > GROWTH_KIB_MAX {
            judged = judged.and(Err(format!("the program has grown by {grown} KiB")));
        }
        outcomes.of(name, judged);
    }
    let mut rng = Rng::new(7);
    for _ in 0..EVENING {
        radio.perform(&Part::N2.draw(&mut rng, UES, GNBS));
    }
    outcomes
        .of("a random mix of all inputs", judge(&mut core, &health, before.descriptors + DESCRIPTORS_MORE));
    radio.leave();
    over.store(true, Ordering::Relaxed);
    let _ = keeper.join();
    outcomes.of("nothing logged or counted shows a subscriber or a key", secret(&core, &all));
    outcomes.of("it stops in order", core.stop());
    Ok(outcomes.clean)
}

struct Outcomes {
    clean: bool,
}

impl Outcomes {
    fn of(&mut self, name: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => println!("ok - {name}"),
            Err(what) => {
                self.clean = false;
                println!("not ok - {name}: {what}");
            }
        }
    }
}

/// Whether the program runs, has logged no fault, holds no more descriptors, and serves its canaries.
fn judge(core: &mut Program, health: &Health, descriptors_max: u64) -> Result<(), String> {
    let begin = Instant::now();
    let before = health.completed.load(Ordering::Relaxed);
    while health.completed.load(Ordering::Relaxed) < before + ROUNDS {
        if let Some(line) = core.logged_fault() {
            return Err(format!("the log says: {line}"));
        }
        if let Some(how) = core.ended() {
            return Err(format!("the core ended ({how}): {}", core.log_tail()));
        }
        if let Some(failure) = health.failure() {
            return Err(failure);
        }
        if begin.elapsed() > PATIENCE {
            return Err(format!("canaries do not end their rounds within {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let held = core.usage().descriptors;
    if descriptors_max > 0 && held > descriptors_max {
        return Err(format!("it holds {held} descriptors"));
    }
    program::metrics().map(drop).ok_or_else(|| "the API does not give its metrics".into())
}

/// Searches what the program logged and exports for what may stand nowhere: SUPIs and MSINs, equipment, K and OPc, as text, as
/// hexadecimal digits, as lists of numbers, in BCD, and in Base64.
fn secret(core: &Program, all: &[ProvisionedUe]) -> Result<(), String> {
    let logged = core.logged();
    if logged.len() < 100_000 {
        return Err(format!("only {} octets were logged: this would find nothing", logged.len()));
    }
    let metrics =
        program::exchange(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:8070\r\nConnection: close\r\n\r\n");
    let metrics = metrics.map_err(|e| format!("no metrics: {e}"))?;
    let outputs = [("the log", logged), ("the metrics", String::from_utf8_lossy(&metrics).into_owned())];
    let sought = Sought::of(all);
    for (place, text) in &outputs {
        for line in text.lines() {
            if let Some(what) = sought.within(line) {
                return Err(format!("{what} stands in {place}: {line}"));
            }
        }
    }
    Ok(())
}

/// What may stand nowhere.
struct Sought {
    /// Words and parts of words, by their lengths.
    words: BTreeMap<usize, BTreeMap<String, &'static str>>,
    /// Numbers between commas.
    lists: Vec<(String, &'static str)>,
}

impl Sought {
    fn of(all: &[ProvisionedUe]) -> Self {
        let mut sought = Self { words: BTreeMap::new(), lists: Vec::new() };
        for s in all {
            let msin: Vec<u8> = s.supi.digits().skip(5).collect();
            let bcd: Vec<u8> = msin.chunks(2).map(|p| p[0] | p.get(1).copied().unwrap_or(15) << 4).collect();
            let text = |digits: &mut dyn Iterator<Item = u8>| {
                digits.map(|d| char::from(b'0' + d)).collect::<String>()
            };
            for (what, word) in [
                ("a SUPI", s.supi.imsi()),
                ("an MSIN", text(&mut msin.iter().copied())),
                ("an MSIN in BCD", hex(&bcd)),
                ("an equipment's identity", text(&mut s.pei.digits())),
                ("K in hexadecimal", hex(&s.k)),
                ("OPc in hexadecimal", hex(&s.opc)),
                ("K in Base64", base64(&s.k)),
                ("OPc in Base64", base64(&s.opc)),
            ] {
                sought.words.entry(word.len()).or_default().insert(word, what);
            }
            sought.lists.extend(
                [("an MSIN", &bcd[..]), ("K", &s.k), ("OPc", &s.opc)].map(|(what, o)| (list(o), what)),
            );
        }
        sought
    }

    fn within(&self, line: &str) -> Option<&'static str> {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        for word in line.split(|c| !is_of_word(c)) {
            for (&len, words) in self.words.range(..=word.len()) {
                let parts = (0..=word.len() - len).map(|at| &word[at..at + len]);
                let mut found =
                    parts.filter_map(|p| words.get(p).or_else(|| words.get(&p.to_ascii_lowercase())));
                if let Some(what) = found.next() {
                    return Some(what);
                }
            }
        }
        let commas = line.matches(", ").count();
        let list = || self.lists.iter().find(|(list, _)| line.contains(list.as_str()));
        (commas >= 4).then(list).flatten().map(|(_, what)| *what)
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|o| format!("{o:02x}")).collect()
}

fn list(octets: &[u8]) -> String {
    let numbers: Vec<String> = octets.iter().map(u8::to_string).collect();
    numbers.join(", ")
}

fn base64(octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |n: u32| char::from(DIGITS[(n & 63) as usize]);
    let mut text = String::new();
    for piece in octets.chunks(3) {
        let n = (0..3).fold(0, |n, i| n << 8 | u32::from(piece.get(i).copied().unwrap_or(0)));
        let digits = [n >> 18, n >> 12, n >> 6, n];
        text.extend(digits.into_iter().take(piece.len() + 1).map(digit));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planted_is_found() {
        let crowd = Crowd::from("999705837260413", "999707946138527");
        let sought = Sought::of(&crowd.canaries);
        let s = &crowd.canaries[3];
        for planted in [
            s.supi.imsi(),
            format!("imsi-{}", s.supi.imsi()),
            hex(&s.k).to_uppercase(),
            format!("K([{}])", list(&s.k)),
            base64(&s.opc),
        ] {
            assert!(
                sought.within(&format!("2026-11-20 DEBUG subject={planted} completed")).is_some(),
                "{planted}"
            );
        }
        assert_eq!(
            sought.within("2026-11-20T20:37:57.170702Z DEBUG cp_seid: 0009000000000101, [1, 2, 3, 4, 5]"),
            None
        );
    }

    #[test]
    fn base64_of_the_rfc() {
        assert_eq!(
            (base64(b"f"), base64(b"fo"), base64(b"foobar")),
            ("Zg".into(), "Zm8".into(), "Zm9vYmFy".into())
        );
    }
}
