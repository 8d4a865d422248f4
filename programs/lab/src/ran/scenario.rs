//! Scenarios in YAML: the tree of the configuration's reader, given to the scenario's types by serde, so that each
//! error is reported with its line.

use std::path::Path;

use serde::Deserialize;
use whimbrel_node::config::yaml::{self, Node, NodeValue, Position, YamlKey};
use whimbrel_node::config::yaml_types::TypeMismatch;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};

/// The largest file: thousands of steps fit.
const FILE_OCTETS_MAX: usize = 1 << 20;

/// Reads a scenario from a file, or from standard input if it is named `-`. Errors: one sentence with file and line.
pub(super) fn read(file: &Path) -> Result<Scenario, String> {
    use std::io::Read;
    let mut text = String::new();
    let limit = FILE_OCTETS_MAX as u64 + 1;
    let got = match file.to_str() {
        Some("-") => std::io::stdin().take(limit).read_to_string(&mut text),
        _ => whimbrel_files::open(file).and_then(|f| f.take(limit).read_to_string(&mut text)),
    };
    let name = if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
    match got {
        Err(e) => Err(format!("the scenario {name} cannot be read: {e}")),
        Ok(n) if n > FILE_OCTETS_MAX => Err(format!("{name} is too large for a scenario")),
        Ok(_) => parse(&text).map_err(|(at, what)| format!("{name}:{at}: {what}")),
    }
}

/// Reads a scenario. Errors: where something is wrong, and what.
pub(crate) fn parse(text: &str) -> Result<Scenario, (Position, String)> {
    let node = yaml::parse(text)?;
    if !matches!(node.value, NodeValue::Map(_)) {
        return Err((
            node.at,
            format!("a scenario is a map of keys with `steps` among them, not {}", node.kind()),
        ));
    }
    let scenario: Scenario =
        Deserialize::deserialize(&node).map_err(|e: TypeMismatch| (e.at.unwrap_or(node.at), e.what))?;
    // Each step alone first, so that the one that cannot be played is named by its line.
    for (step, at) in scenario.steps.iter().zip(steps(&node)) {
        let alone = Scenario { steps: vec![step.clone()], ..default(false) };
        alone.check().map_err(|e| (at, e.to_string()))?;
    }
    scenario.check().map_err(|e| {
        let text = e.to_string();
        let key = text.split(':').next().and_then(|name| entry(&node, name));
        (key.map_or(node.at, |(key, _)| key.at), text)
    })?;
    Ok(scenario)
}

fn entry<'a>(node: &'a Node, name: &str) -> Option<&'a (YamlKey, Node)> {
    match &node.value {
        NodeValue::Map(map) => map.iter().find(|(key, _)| key.name == name),
        _ => None,
    }
}

/// Where each step stands.
fn steps(node: &Node) -> Vec<Position> {
    match entry(node, "steps").map(|(_, list)| &list.value) {
        Some(NodeValue::List(items)) => items.iter().map(|item| item.at).collect(),
        _ => Vec::new(),
    }
}

/// The steps of UEs without a scenario: register, open a session and leave; or stay, with a session that programs can use for IPv4 and IPv6.
pub(super) fn default(stay: bool) -> Scenario {
    let session =
        |pdu_session_type| Step::Session(SessionStep { pdu_session_type, ..SessionStep::default() });
    let steps = match stay {
        true => vec![Step::Register, session(SessionType::Ipv4v6)],
        false => vec![Step::Register, session(SessionType::default()), Step::Deregister],
    };
    Scenario {
        ues: 1,
        gnbs: 1,
        before: Vec::new(),
        before_rate: 500.0,
        arrival: ArrivalPattern::AtOnce,
        steps,
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 30.0,
        again: false,
        tun: false,
    }
}

/// Names the data network of sessions whose step names none.
pub(super) fn use_dnn(scenario: &mut Scenario, dnn: &str) {
    let groups = scenario.groups.iter_mut().flat_map(|g| [&mut g.begin, &mut g.repeat, &mut g.end]);
    for step in groups.chain([&mut scenario.before, &mut scenario.steps]).flatten() {
        if let Step::Session(session) = step {
            session.dnn.get_or_insert_with(|| dnn.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_that_come_with_the_program_can_be_played() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ran/scenarios");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
        assert!(!files.is_empty());
        for file in files {
            read(&file).unwrap();
        }
    }

    #[test]
    fn every_form_of_a_step_and_an_arrival_is_read() {
        let text = "ues: 3\narrival: { rates: { rates: [10, 2.5], seconds: 1 } }\nagain: true\nsteps:\n  - register\n  \
                    - session\n  - session: { dnn: ims, s-nssai: 1-0000ab, type: ipv4v6 }\n  - wait: 0.5\n  - ping: 10.45.0.1\n";
        let s = parse(text).unwrap();
        assert_eq!(s.arrival, ArrivalPattern::Rates { rates: vec![10.0, 2.5], seconds: 1.0 });
        assert_eq!(s.steps[1], Step::Session(SessionStep::default()));
        let ims = SessionStep {
            dnn: Some("ims".into()),
            s_nssai: Some("1-0000ab".into()),
            pdu_session_type: SessionType::Ipv4v6,
        };
        assert_eq!(s.steps[2..4], [Step::Session(ims), Step::Wait(0.5)]);
        assert!((s.ues, s.gnbs, s.again) == (3, 1, true));
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        for (text, line, part) in [
            ("steps:\n  - register\n  - fly\n", 3, "fly"),
            ("steps: [register]\nuez: 3\n", 2, "uez"),
            ("ues: many\nsteps: [register]\n", 1, "`many`"),
            ("steps: [register]\nues: 0\n", 2, "ues"),
            ("steps:\n  - register\n  - fetch: ftp://x/\n", 3, "ftp"),
            ("steps:\n  - wait\n", 2, "needs an argument"),
            ("steps:\n  - session: { dnn: 'a b' }\n", 2, "dnn"),
            ("steps:\n  - idle: 3\n", 2, "nothing"),
            ("ues: 3\n", 1, "steps"),
            ("", 1, "map"),
            ("steps: [\n", 1, "YAML"),
        ] {
            let (at, what) = parse(text).unwrap_err();
            assert!(what.contains(part), "{text:?}: {what}");
            assert!(at.line >= line && at.line <= line + 1, "{text:?}: {at}: {what}");
        }
    }
}
