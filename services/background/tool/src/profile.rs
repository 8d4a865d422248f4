//! A profile: how often each instruction ran, and how often each load missed the last cache. One text format, whatever the source.
//!
//! ```text
//! whimbrel-harvest profile 1
//! build 3f0c…
//! source callgrind LL=33554432,16,64
//! memory-ns 101.5
//! instruction-ns 0.21
//! i 0x1189 20000000 20000000 19000000       address, times run, loads, loads that missed
//! c 0x1195 100 5000                         address of a call, calls, instructions within
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::refusal::ProgramRefusal;

const FIRST_LINE: &str = "whimbrel-harvest profile 1";

/// What one instruction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) runs: u64,
    pub(crate) loads: u64,
    pub(crate) misses: u64,
}

/// A profile of one program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Profile {
    pub(crate) build: String,
    /// What counted, and with which last cache.
    pub(crate) source: String,
    /// Nanoseconds of a load that misses.
    pub(crate) memory_ns: f64,
    /// Nanoseconds of an instruction, misses apart.
    pub(crate) instruction_ns: f64,
    pub(crate) instructions: BTreeMap<u64, Counts>,
    /// By the address of the call: calls, and instructions that ran within them.
    pub(crate) calls: BTreeMap<u64, (u64, u64)>,
}

impl Profile {
    /// The text of a profile.
    pub(crate) fn write(&self) -> String {
        let mut text = format!(
            "{FIRST_LINE}\nbuild {}\nsource {}\nmemory-ns {:.1}\ninstruction-ns {:.3}\n",
            self.build, self.source, self.memory_ns, self.instruction_ns
        );
        for (at, c) in &self.instructions {
            let _ = writeln!(text, "i {at:#x} {} {} {}", c.runs, c.loads, c.misses);
        }
        for (at, (calls, within)) in &self.calls {
            let _ = writeln!(text, "c {at:#x} {calls} {within}");
        }
        text
    }

    /// Reads a profile. Errors: a line is not of the format.
    pub(crate) fn read(text: &str) -> Result<Self, ProgramRefusal> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(ProgramRefusal::Profile(format!("its first line is not {FIRST_LINE:?}")));
        }
        let mut profile = Self::default();
        for (number, line) in lines.enumerate() {
            profile
                .read_line(line)
                .ok_or_else(|| ProgramRefusal::Profile(format!("line {}: {line:?}", number + 2)))?;
        }
        let sensible = |ns: f64| ns.is_finite() && ns > 0.0;
        if profile.build.is_empty() || !sensible(profile.memory_ns) || !sensible(profile.instruction_ns) {
            return Err(ProgramRefusal::Profile("build, memory-ns or instruction-ns is missing".into()));
        }
        Ok(profile)
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let (key, rest) = line.split_once(' ')?;
        match key {
            "build" => self.build = rest.into(),
            "source" => self.source = rest.into(),
            "memory-ns" => self.memory_ns = rest.parse().ok()?,
            "instruction-ns" => self.instruction_ns = rest.parse().ok()?,
            "i" | "c" => {
                let mut words = rest.split(' ');
                let at = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
                let mut number = || words.next()?.parse::<u64>().ok();
                let (a, b) = (number()?, number()?);
                if key == "i" {
                    self.instructions.insert(at, Counts { runs: a, loads: b, misses: number()? });
                } else {
                    self.calls.insert(at, (a, b));
                }
                words.next().is_none().then_some(())?;
            }
            _ => return None,
        }
        Some(())
    }

    /// How often an instruction ran.
    pub(crate) fn runs(&self, at: u64) -> u64 {
        self.instructions.get(&at).map_or(0, |c| c.runs)
    }

    /// Nanoseconds that the profiled program took.
    pub(crate) fn total_ns(&self) -> f64 {
        self.instructions
            .values()
            .map(|c| c.runs as f64 * self.instruction_ns + c.misses as f64 * self.memory_ns)
            .sum()
    }
}

/// Instructions that ran, and loads that missed, in all objects of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessCounts {
    pub(crate) runs: u64,
    pub(crate) misses: u64,
}

/// Reads what callgrind wrote with instruction addresses and cache simulation, as far as it is of one object, and the totals of all.
///
/// Errors: the events are not those that are asked for.
pub(crate) fn from_callgrind(text: &str, object: &str) -> Result<(Profile, ProcessCounts), ProgramRefusal> {
    let mut profile = Profile::default();
    let mut totals = ProcessCounts::default();
    let (mut of_object, mut call) = (false, None);
    let mut events = Vec::new();
    for line in text.lines() {
        if let Some(names) = line.strip_prefix("events:") {
            events = names.split_whitespace().collect();
        } else if let Some(name) = line.strip_prefix("ob=") {
            of_object = name.trim() == object;
        } else if let Some(count) = line.strip_prefix("calls=") {
            call = count.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
        } else if let Some(costs) = line.strip_prefix("0x") {
            let mut words = costs.split_whitespace();
            let at = words.next().and_then(|w| u64::from_str_radix(w, 16).ok());
            let costs: Vec<u64> = words.skip(1).filter_map(|w| w.parse().ok()).collect();
            let cost = |name| {
                events.iter().position(|e| *e == name).and_then(|i| costs.get(i)).copied().unwrap_or(0)
            };
            let calls = call.take();
            if calls.is_none() {
                totals.runs += cost("Ir");
                totals.misses += cost("DLmr");
            }
            let (Some(at), true) = (at, of_object) else { continue };
            if let Some(calls) = calls {
                let known = profile.calls.entry(at).or_default();
                *known = (known.0 + calls, known.1 + cost("Ir"));
            } else {
                let known = profile.instructions.entry(at).or_default();
                known.runs += cost("Ir");
                known.loads += cost("Dr");
                known.misses += cost("DLmr");
            }
        }
    }
    for name in ["Ir", "Dr", "DLmr"] {
        if !events.contains(&name) {
            return Err(ProgramRefusal::Profile(format!("callgrind did not count {name}")));
        }
    }
    Ok((profile, totals))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As callgrind 3.24 writes for two objects, with calls.
    const CALLGRIND: &str = "\
version: 1
positions: instr line
events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw

ob=/lib/libc.so.6
fn=memcpy
0x100 0 7 7 0 0 7 0 0 7 0

ob=/tmp/chase
fn=main
0x1190 12 1000 0 0 0 0 0 0 0 0
0x1194 12 1000 1000 0 1 990 0 1 900 0
0x1194 12 5 5 0 0 5 0 0 5 0
cob=/lib/libc.so.6
cfn=memcpy
calls=3 0x100 0
0x119a 13 21 21 0 0 21 0 0 21 0
0x119a 13 3 0 3 0 0 0 0 0 0
";

    #[test]
    fn counts_are_those_of_the_object_with_calls_apart() {
        let (profile, totals) = from_callgrind(CALLGRIND, "/tmp/chase").expect("a profile");
        assert_eq!(profile.instructions[&0x1194], Counts { runs: 1005, loads: 1005, misses: 905 });
        assert_eq!(profile.instructions[&0x119a], Counts { runs: 3, loads: 0, misses: 0 });
        assert_eq!(profile.calls[&0x119a], (3, 21));
        assert!(!profile.instructions.contains_key(&0x100));
        // Time is that of all objects, so an instruction's is that of all instructions.
        assert_eq!(totals, ProcessCounts { runs: 7 + 1000 + 1000 + 5 + 3, misses: 7 + 905 });
        assert!(from_callgrind("events: Ir\n", "/tmp/chase").is_err());
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let (mut profile, _) = from_callgrind(CALLGRIND, "/tmp/chase").expect("a profile");
        profile.build = "3f0c".into();
        profile.source = "callgrind LL=33554432,16,64".into();
        (profile.memory_ns, profile.instruction_ns) = (101.5, 0.25);
        assert_eq!(Profile::read(&profile.write()), Ok(profile));
    }

    #[test]
    fn a_damaged_profile_is_refused_with_its_line() {
        let text =
            "whimbrel-harvest profile 1\nbuild 1\nsource s\nmemory-ns 1\ninstruction-ns 1\ni 0x10 1 1\n";
        assert_eq!(Profile::read(text), Err(ProgramRefusal::Profile("line 6: \"i 0x10 1 1\"".into())));
        assert!(Profile::read("whimbrel-harvest profile 2\n").is_err());
        assert!(
            Profile::read("whimbrel-harvest profile 1\nbuild 1\nsource s\nmemory-ns NaN\ninstruction-ns 1\n")
                .is_err()
        );
    }
}
