//! Scenarios: what UEs do, one step after the other, and when they begin.
//!
//! The types match the files under `scenarios/` and derive serde.

use core::time::Duration;

use serde::Deserialize;

use crate::trace::TraceEvent;

/// A scenario as its file has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scenario {
    /// How many UEs.
    #[serde(default = "one")]
    pub ues: u32,
    /// Number of gNBs; the UEs are assigned in turn.
    #[serde(default = "one")]
    pub gnbs: u16,
    /// When UEs begin.
    #[serde(default)]
    pub arrival: ArrivalPattern,
    /// Steps of every UE before the first arrival; only failures are reported.
    #[serde(default)]
    pub before: Vec<Step>,
    /// UEs a second that start with it, at most: they wait while many are under way.
    #[serde(default = "before_rate")]
    pub before_rate: f64,
    /// What each UE does.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// UEs that do different things; in place of `ues` and `steps`.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// Duration of the groups' repeated part, in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Timeout of a step, in seconds.
    #[serde(default = "patience")]
    pub patience_s: f64,
    /// A UE that has completed all steps starts again in turn, while UEs arrive.
    #[serde(default)]
    pub again: bool,
    /// Create TUN devices for each UE's sessions, instead of using the stack in the process.
    #[serde(default)]
    pub tun: bool,
}

/// The default rate, which a slower core serves too.
const fn before_rate() -> f64 {
    500.0
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

/// Well above a core's retransmission timers, and below the UE's long pauses.
const fn patience() -> f64 {
    30.0
}

/// UEs with the same steps.
#[derive(Clone, Debug, PartialEq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Group {
    /// Name of the group.
    pub name: String,
    /// Number of UEs in the group.
    pub ues: u32,
    /// Steps at the beginning, once.
    #[serde(default)]
    pub begin: Vec<Step>,
    /// Steps repeated until the scenario's seconds are over.
    #[serde(default)]
    pub repeat: Vec<Step>,
    /// Steps at the end, once.
    #[serde(default)]
    pub end: Vec<Step>,
}

/// When UEs begin.
#[derive(Clone, Debug, PartialEq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ArrivalPattern {
    /// All at the start.
    #[default]
    AtOnce,
    /// UEs a second, whether earlier ones have ended or not.
    Rate(f64),
    /// A sequence of rates, each for some seconds; each has its own report.
    Rates {
        /// UEs a second.
        rates: Vec<f64>,
        /// Seconds of each.
        seconds: f64,
    },
    /// Repeated bursts of UEs, as from meters at the full hour.
    #[serde(rename_all = "kebab-case")]
    Bursts {
        /// UEs of each burst.
        ues: u32,
        /// Within how many milliseconds.
        within_ms: f64,
        /// Seconds from one such burst to the next.
        every_s: f64,
        /// Number of bursts.
        times: u32,
    },
    /// From a trace, which also names the procedures. A UE that is still busy starts late, and its time is measured from when it
    /// was due.
    #[serde(skip_deserializing)]
    Trace(Vec<TraceEvent>),
}

/// The parts of what a UE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScenarioPart {
    Before,
    Trace,
    Begin,
    Repeat,
    End,
}

/// One thing that a UE does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// The UE registers.
    Register,
    /// Set up a session.
    Session(SessionStep),
    /// Request a QoS flow of the newest session for packets to a port.
    Modify(ModifyStep),
    /// Release that flow.
    EndFlow,
    /// Release the newest session.
    ReleaseSession,
    /// Resolve a name at the session's DNS server.
    Resolve(String),
    /// Fetch a page: `http://HOST[:PORT]/PATH`; a name is resolved first.
    Fetch(String),
    /// One ICMP echo to an address or a name.
    Ping(String),
    /// The gNB releases the UE for inactivity.
    Idle,
    /// The UE sends SERVICE REQUEST.
    Return,
    /// Wait until paged, and answer.
    Paged,
    /// The UE deregisters.
    Deregister,
    /// Deregister as if switched off.
    SwitchOff,
    /// Handover to another gNB.
    Handover(HandoverStep),
    /// Send and receive numbered packets over the newest session with an IPv4 address, during the next steps.
    Stream(StreamStep),
    /// End the stream, and count its packets.
    StopStream,
    /// Have the other end of an ended stream send one packet after some seconds; followed by `idle` and `paged`.
    Ring(f64),
    /// Camp on the next gNB's cell, as an idle UE that moves; in another area it registers there.
    Move,
    /// The UE sends a periodic registration.
    PeriodicRegistration,
    /// Wait for some seconds.
    Wait(f64),
}

/// A handover of the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct HandoverStep {
    /// The interface of the handover.
    #[serde(default)]
    pub via: HandoverKind,
    /// To which gNB, counted from 0; without it to the next one.
    pub to: Option<u16>,
}

/// Which QoS flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ModifyStep {
    /// 5QI (TS 23.501 §5.7.4).
    pub five_qi: u8,
    /// UDP port at the other end.
    pub port: u16,
}

/// Ways of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandoverKind {
    /// Xn handover with path switch.
    #[default]
    Xn,
    /// A handover over N2.
    N2,
}

/// Parameters of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StreamStep {
    /// Address and UDP port of the server that answers streams.
    pub to: core::net::SocketAddrV4,
    /// Milliseconds between packets, in each direction.
    #[serde(default = "stream_interval_ms")]
    pub interval_ms: u16,
    /// Octets of the UE's packets.
    #[serde(default = "stream_octets")]
    pub octets: u16,
}

/// As voice does (20 ms).
const fn stream_interval_ms() -> u16 {
    20
}

/// As voice does, with room.
const fn stream_octets() -> u16 {
    200
}

impl Step {
    /// The name under which the step is counted.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Session(_) => "session",
            Self::Modify(_) => "modify",
            Self::EndFlow => "end-flow",
            Self::ReleaseSession => "release-session",
            Self::Resolve(_) => "resolve",
            Self::Fetch(_) => "fetch",
            Self::Ping(_) => "ping",
            Self::Idle => "idle",
            Self::Return => "return",
            Self::Paged => "paged",
            Self::Deregister => "deregister",
            Self::SwitchOff => "switch-off",
            Self::Handover(HandoverStep { via: HandoverKind::Xn, .. }) => "handover-xn",
            Self::Handover(HandoverStep { via: HandoverKind::N2, .. }) => "handover-n2",
            Self::Stream(_) => "stream",
            Self::StopStream => "stop-stream",
            Self::Ring(_) => "ring",
            Self::Move => "move",
            Self::PeriodicRegistration => "periodic-registration",
            Self::Wait(_) => "wait",
        }
    }
}

/// A session that is established.
#[derive(Clone, Debug, PartialEq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SessionStep {
    /// The data network; without one the network chooses.
    pub dnn: Option<String>,
    /// The slice as `SST` or `SST-SD`; without one the network chooses.
    pub s_nssai: Option<String>,
    /// Type of the session.
    #[serde(rename = "type", default)]
    pub pdu_session_type: SessionType,
}

/// PDU session types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionType {
    /// A session of type IPv4.
    #[default]
    Ipv4,
    /// A session of type IPv6.
    Ipv6,
    /// A session of both IP types.
    Ipv4v6,
    /// A session of Ethernet frames.
    Ethernet,
    /// A session of unstructured data.
    Unstructured,
}

/// An invalid scenario, with the part and the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(pub String);

impl core::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ScenarioError {}

/// Limit of UEs in one scenario: the contexts of one gNB.
const UES_MAX: u32 = 1 << 20;
/// gNBs in one scenario: the loopback addresses 127.0.1.1 to 127.0.1.254.
const GNBS_MAX: u16 = 254;
/// Limit of durations, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// Limit of UEs a second.
const RATE_MAX: f64 = 1e6;

impl Scenario {
    /// Validates the values.
    ///
    /// Errors: [`ScenarioError`] names the first part that cannot be played.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let wrong = |what: &str| Err(ScenarioError(what.to_owned()));
        if !(1..=UES_MAX).contains(&self.count()) {
            return wrong("ues: expected 1 to 1048576");
        }
        if !(1..=GNBS_MAX).contains(&self.gnbs) {
            return wrong("gnbs: expected 1 to 254");
        }
        if !(self.patience_s > 0.0 && self.patience_s <= SECONDS_MAX) {
            return wrong("patience-s: expected seconds above 0, at most a day");
        }
        let rate_fits = |r: &f64| *r > 0.0 && *r <= RATE_MAX;
        match &self.arrival {
            ArrivalPattern::AtOnce => {}
            ArrivalPattern::Rate(rate) if rate_fits(rate) => {}
            ArrivalPattern::Rates { rates, seconds }
                if !rates.is_empty()
                    && rates.iter().all(rate_fits)
                    && *seconds > 0.0
                    && *seconds <= SECONDS_MAX => {}
            ArrivalPattern::Rate(_) | ArrivalPattern::Rates { .. } => {
                return wrong("arrival: expected UEs a second above 0");
            }
            ArrivalPattern::Bursts { ues, within_ms, every_s, times }
                if (1..=UES_MAX).contains(ues)
                    && *times > 0
                    && (0.0..=SECONDS_MAX).contains(every_s)
                    && (0.0..=*every_s * 1e3).contains(within_ms) => {}
            ArrivalPattern::Bursts { .. } => {
                return wrong("arrival: expected UEs, times above 0, and no burst longer than its period");
            }
            ArrivalPattern::Trace(events) => {
                if let Some(unknown) = events.iter().map(|e| e.ue).find(|ue| *ue >= self.count()) {
                    return wrong(&format!("arrival: the trace names UE {unknown}; they count from 0"));
                }
                if !self.steps.is_empty() || !self.groups.is_empty() {
                    return wrong("steps: expected none beside a trace");
                }
            }
        }
        if !rate_fits(&self.before_rate) {
            return wrong("before-rate: expected UEs a second above 0");
        }
        let traced = matches!(self.arrival, ArrivalPattern::Trace(_));
        if self.steps.is_empty() && self.groups.is_empty() && !traced {
            return wrong("steps: expected at least one");
        }
        if !self.steps.is_empty() && !self.groups.is_empty() {
            return wrong("groups: expected in place of steps, not beside them");
        }
        if !(0.0..=SECONDS_MAX).contains(&self.seconds) {
            return wrong("seconds: expected at most a day");
        }
        if self.groups.iter().any(|g| g.ues == 0 || g.begin.is_empty()) {
            return wrong("groups: expected UEs and something to begin with in each");
        }
        let of_groups = self.groups.iter().flat_map(|g| g.begin.iter().chain(&g.repeat).chain(&g.end));
        for step in self.before.iter().chain(&self.steps).chain(of_groups) {
            check_step(step)?;
        }
        Ok(())
    }

    /// How many UEs there are.
    pub fn count(&self) -> u32 {
        match self.groups.is_empty() {
            true => self.ues,
            false => self.groups.iter().fold(0, |n, g| n.saturating_add(g.ues)),
        }
    }

    /// The steps of a UE, by its number: the scenario's, or its group's.
    pub(crate) fn part(&self, ue: u32, part: ScenarioPart) -> &[Step] {
        if part == ScenarioPart::Before {
            return &self.before;
        }
        if self.groups.is_empty() {
            return if part == ScenarioPart::Begin { &self.steps } else { &[] };
        }
        let mut before = 0u32;
        for group in &self.groups {
            before = before.saturating_add(group.ues);
            if ue < before {
                return match part {
                    ScenarioPart::Before | ScenarioPart::Trace => &[],
                    ScenarioPart::Begin => &group.begin,
                    ScenarioPart::Repeat => &group.repeat,
                    ScenarioPart::End => &group.end,
                };
            }
        }
        &[]
    }

    /// How long a UE may take for one step.
    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience_s)
    }
}

fn check_step(step: &Step) -> Result<(), ScenarioError> {
    match step {
        Step::Fetch(url) => Url::parse(url).map(|_| ()),
        Step::Wait(seconds) if !(0.0..=SECONDS_MAX).contains(seconds) => {
            Err(ScenarioError("wait: expected seconds, at most a day".into()))
        }
        Step::Ring(seconds) if !(0.0..=SECONDS_MAX).contains(seconds) => {
            Err(ScenarioError("ring: expected seconds, at most a day".into()))
        }
        Step::Stream(s) if s.interval_ms == 0 || !(100..=1400).contains(&s.octets) => {
            Err(ScenarioError("stream: expected at least 1 ms, and 100 to 1400 octets".into()))
        }
        Step::Session(s) => {
            let bad_dnn = s.dnn.as_ref().is_some_and(|d| d.parse::<whimbrel_ids::Dnn>().is_err());
            let bad_slice = s.s_nssai.as_ref().is_some_and(|s| s.parse::<whimbrel_ids::SNssai>().is_err());
            match (bad_dnn, bad_slice) {
                (true, _) => Err(ScenarioError("session: the dnn is none, expected such as internet".into())),
                (_, true) => {
                    Err(ScenarioError("session: the s-nssai is none, expected such as 1 or 1-0000ab".into()))
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// A parsed URL, HTTP only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, ScenarioError> {
        let wrong = || ScenarioError(format!("fetch: {text} is no URL such as http://example.test/"));
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = if path.is_empty() { "/" } else { path };
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, rest) = v6.split_once(']').ok_or_else(wrong)?;
                (host, rest.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Ok(80), |p| p.parse().map_err(|_| wrong()))?;
        if host.is_empty() || text.bytes().any(|b| b.is_ascii_control() || b == b' ') {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Scenario, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_scenario_and_its_defaults() {
        let s = read(
            r#"{"ues": 100, "gnbs": 2, "steps": ["register", {"session": {"dnn": "internet"}},
                {"resolve": "example.test"}, {"fetch": "http://example.test/"}, {"wait": 0.5}, "idle", "deregister"]}"#,
        )
        .unwrap();
        s.check().unwrap();
        assert_eq!((s.ues, s.gnbs, s.arrival), (100, 2, ArrivalPattern::AtOnce));
        assert_eq!(s.steps[4], Step::Wait(0.5));
        let s = read(r#"{"arrival": {"rates": {"rates": [10, 20], "seconds": 5}}, "steps": ["register"]}"#)
            .unwrap();
        assert_eq!(s.arrival, ArrivalPattern::Rates { rates: vec![10.0, 20.0], seconds: 5.0 });
    }

    #[test]
    fn what_cannot_be_played_is_named() {
        assert!(read(r#"{"steps": ["fly"]}"#).is_err());
        assert!(read(r#"{"steps": [], "uez": 1}"#).is_err());
        for (bad, part) in [
            (r#"{"steps": []}"#, "steps"),
            (r#"{"ues": 0, "steps": ["register"]}"#, "ues"),
            (r#"{"arrival": {"rate": 0}, "steps": ["register"]}"#, "arrival"),
            (
                r#"{"arrival": {"bursts": {"ues": 2, "within-ms": 1500, "every-s": 1, "times": 1}}, "steps": ["idle"]}"#,
                "arrival",
            ),
            (r#"{"before": [{"wait": -1}], "steps": ["register"]}"#, "wait"),
            (r#"{"before-rate": 0, "steps": ["register"]}"#, "before-rate"),
            (r#"{"steps": [{"fetch": "ftp://x/"}]}"#, "fetch"),
            (r#"{"steps": [{"wait": -1}]}"#, "wait"),
            (r#"{"steps": [{"session": {"dnn": "a b"}}]}"#, "session"),
        ] {
            let e = read(bad).unwrap().check().unwrap_err();
            assert!(e.0.starts_with(part), "{e}");
        }
    }

    #[test]
    fn urls() {
        let url = |host: &str, port, path: &str| Url { host: host.into(), port, path: path.into() };
        assert_eq!(Url::parse("http://a.test"), Ok(url("a.test", 80, "/")));
        assert_eq!(Url::parse("http://10.0.0.1:8080/x"), Ok(url("10.0.0.1", 8080, "/x")));
        assert_eq!(Url::parse("http://[2001:db8::1]:81/"), Ok(url("2001:db8::1", 81, "/")));
        for bad in ["http://", "http://a b/", "http://a:b/", "http://[::1/"] {
            assert!(Url::parse(bad).is_err(), "{bad}");
        }
    }
}
