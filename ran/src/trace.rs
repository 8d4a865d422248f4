//! Traces of load: UEs' procedures with their times, as lines `SECONDS,UE,PROCEDURE`.

use core::time::Duration;

use crate::scenario::{HandoverKind, HandoverStep, SessionStep, Step};

/// Limit of events of one trace.
const EVENTS_MAX: usize = 10_000_000;
/// The latest time of an event, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;

/// A UE starts a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    /// Time since the start of the trace.
    pub at: Duration,
    /// Which UE, counted from 0.
    pub ue: u32,
    /// The procedure as a step of a scenario.
    pub step: Step,
}

/// An error in a trace, with its line, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Number of the line.
    pub line: usize,
    /// The error as text.
    pub what: String,
}

impl core::fmt::Display for TraceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for TraceError {}

/// Reads a trace. Empty lines and those that begin with `#` are ignored; events are in the order of their times.
///
/// Errors: [`TraceError`] of the first line that is wrong.
pub fn read(text: &str) -> Result<Vec<TraceEvent>, TraceError> {
    let mut events: Vec<TraceEvent> = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let wrong = |what: String| TraceError { line, what };
        let event = event(content).map_err(wrong)?;
        if events.last().is_some_and(|before| before.at > event.at) {
            return Err(wrong("it is earlier than the line before".into()));
        }
        if events.len() == EVENTS_MAX {
            return Err(wrong(format!("more than {EVENTS_MAX} events")));
        }
        events.push(event);
    }
    match events.is_empty() {
        true => Err(TraceError { line: 1, what: "there is no event".into() }),
        false => Ok(events),
    }
}

fn event(line: &str) -> Result<TraceEvent, String> {
    let mut fields = line.split(',').map(str::trim);
    let (Some(at), Some(ue), Some(procedure), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err("expected SECONDS,UE,PROCEDURE".into());
    };
    let seconds = at.parse::<f64>().ok().filter(|s| (0.0..=SECONDS_MAX).contains(s));
    let seconds = seconds.ok_or_else(|| format!("`{at}` is no time: expected seconds, at most a day"))?;
    let ue = ue.parse().map_err(|_| format!("`{ue}` is no UE: expected a number from 0"))?;
    let step = procedure_named(procedure)
        .ok_or_else(|| format!("`{procedure}` is no procedure: expected one of {}", PROCEDURES.join(", ")))?;
    Ok(TraceEvent { at: Duration::from_secs_f64(seconds), ue, step })
}

/// The procedures that a trace may name.
pub const PROCEDURES: [&str; 10] = [
    "register",
    "deregister",
    "switch-off",
    "session",
    "release-session",
    "return",
    "idle",
    "handover-xn",
    "handover-n2",
    "periodic-registration",
];

/// The step of this name, with its defaults. A handover may name its target gNB after `@`, counted from 0.
pub fn procedure_named(name: &str) -> Option<Step> {
    if let Some((name, gnb)) = name.split_once('@') {
        let Step::Handover(step) = procedure_named(name)? else { return None };
        return Some(Step::Handover(HandoverStep { to: Some(gnb.parse().ok()?), ..step }));
    }
    Some(match name {
        "register" => Step::Register,
        "deregister" => Step::Deregister,
        "switch-off" => Step::SwitchOff,
        "session" => Step::Session(SessionStep::default()),
        "release-session" => Step::ReleaseSession,
        "return" => Step::Return,
        "idle" => Step::Idle,
        "handover-xn" => Step::Handover(HandoverStep { via: HandoverKind::Xn, to: None }),
        "handover-n2" => Step::Handover(HandoverStep { via: HandoverKind::N2, to: None }),
        "periodic-registration" => Step::PeriodicRegistration,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read() {
        let events = read("# comment\n0.5, 3, register\n\n0.5,4,handover-n2\n1.25,3,return\n").unwrap();
        let at = Duration::from_millis;
        assert_eq!(events.len(), 3);
        assert_eq!(events[0], TraceEvent { at: at(500), ue: 3, step: Step::Register });
        assert_eq!(events[2], TraceEvent { at: at(1250), ue: 3, step: Step::Return });
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, part) in [
            ("", 1, "no event"),
            ("1,2", 1, "expected"),
            ("1,2,return,", 1, "expected"),
            ("#\n-1,2,return", 2, "no time"),
            ("NaN,2,return", 1, "no time"),
            ("1,two,return", 1, "no UE"),
            ("1,2,return\n1,2,fly", 2, "no procedure"),
            ("1,2,return@1", 1, "no procedure"),
            ("1,2,handover-xn@1@2", 1, "no procedure"),
            ("1,2,handover-xn@there", 1, "no procedure"),
            ("2,2,return\n1,2,return", 2, "earlier"),
        ] {
            let e = read(text).unwrap_err();
            assert!(e.line == line && e.what.contains(part), "{text:?}: {e}");
        }
    }

    #[test]
    fn a_handover_may_name_its_target() {
        let step = HandoverStep { via: HandoverKind::N2, to: Some(3) };
        assert_eq!(procedure_named("handover-n2@3"), Some(Step::Handover(step)));
    }

    #[test]
    fn each_procedure_has_its_name() {
        for name in PROCEDURES {
            assert_eq!(procedure_named(name).map(|s| s.name()), Some(name));
        }
    }
}
