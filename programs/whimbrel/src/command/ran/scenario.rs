//! Scenarios in YAML: the tree of the configuration's reader, given to the scenario's types by serde, so that each
//! error is reported with its line.

use std::fmt::{self, Display};
use std::path::Path;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};

use crate::config::yaml::{self, Key, Node, NodeValue, Position};

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
        de::Deserialize::deserialize(&node).map_err(|e: Wrong| (e.at.unwrap_or(node.at), e.what))?;
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

fn entry<'a>(node: &'a Node, name: &str) -> Option<&'a (Key, Node)> {
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

/// What UEs do without a scenario: register, open a session and leave; or stay, with a session that programs can use for IPv4 and IPv6.
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

/// What is wrong, and where.
#[derive(Debug)]
pub(crate) struct Wrong {
    at: Option<Position>,
    what: String,
}

impl Wrong {
    /// The innermost place is the one that helps.
    fn at(mut self, at: Position) -> Self {
        self.at.get_or_insert(at);
        self
    }
}

impl Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    fn custom<T: Display>(what: T) -> Self {
        Self { at: None, what: what.to_string() }
    }
}

fn wrong<T>(at: Position, what: String) -> Result<T, Wrong> {
    Err(Wrong { at: Some(at), what })
}

/// A number; scalars are text until they are read as another type.
macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
            match &self.value {
                NodeValue::Text(text) => match text.trim().parse::<$type>() {
                    Ok(number) => visitor.$visit(number).map_err(|e: Wrong| e.at(self.at)),
                    Err(_) => wrong(self.at, format!("`{text}` is not the number that is expected here")),
                },
                _ => wrong(self.at, format!("a number is expected here, not {}", self.kind())),
            }
        })*
    };
}

impl<'de> de::Deserializer<'de> for &'de Node {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let value = match &self.value {
            NodeValue::Null => visitor.visit_unit(),
            NodeValue::Text(text) => visitor.visit_str(text),
            NodeValue::List(items) => visitor.visit_seq(Items(items.iter())),
            NodeValue::Map(map) => visitor.visit_map(Entries { rest: map.iter(), value: None }),
        };
        value.map_err(|e| e.at(self.at))
    }

    numbers! {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i64 visit_i64 i64,
        deserialize_f64 visit_f64 f64,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.value {
            NodeValue::Text(text) if text == "true" => visitor.visit_bool(true),
            NodeValue::Text(text) if text == "false" => visitor.visit_bool(false),
            _ => wrong(self.at, "true or false is expected here".into()),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.value {
            NodeValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let variant = match &self.value {
            NodeValue::Text(name) => Variant { name, at: self.at, value: None },
            NodeValue::Map(map) => match map.as_slice() {
                [(key, value)] => Variant { name: &key.name, at: key.at, value: Some(value) },
                _ => return wrong(self.at, format!("one key is expected here, not {}", map.len())),
            },
            _ => return wrong(self.at, format!("one of {} is expected here", variants.join(", "))),
        };
        visitor.visit_enum(variant)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        self.0.next().map(|item| seed.deserialize(item)).transpose()
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, (Key, Node)>,
    value: Option<&'de Node>,
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        let name: StrDeserializer<'_, Wrong> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|e| e.at(key.at))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        match self.value.take() {
            Some(value) => seed.deserialize(value),
            None => Err(de::Error::custom("a value was asked for before its key")),
        }
    }
}

/// One of several: a word, or a word with what belongs to it.
struct Variant<'de> {
    name: &'de str,
    at: Position,
    value: Option<&'de Node>,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = Wrong;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Wrong> {
        let name: StrDeserializer<'_, Wrong> = self.name.into_deserializer();
        let variant = seed.deserialize(name).map_err(|e| e.at(self.at))?;
        Ok((variant, self))
    }
}

/// `session` alone is a session with defaults.
static NOTHING: Node = Node { at: Position::START, value: NodeValue::Map(Vec::new()) };

impl<'de> de::VariantAccess<'de> for Variant<'de> {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        match self.value {
            Some(value) if value.value != NodeValue::Null => {
                wrong(value.at, format!("`{}` takes nothing behind it", self.name))
            }
            _ => Ok(()),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Wrong> {
        let given = self.value.filter(|v| v.value != NodeValue::Null);
        let missing = |_| format!("`{}` needs an argument", self.name);
        match given {
            Some(value) => seed.deserialize(value),
            None => seed.deserialize(&NOTHING).map_err(|e| Wrong { at: Some(self.at), what: missing(e) }),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Wrong> {
        de::Deserializer::deserialize_any(self.value.unwrap_or(&NOTHING), visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        de::Deserializer::deserialize_any(self.value.unwrap_or(&NOTHING), visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_that_come_with_the_program_can_be_played() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ran/scenarios");
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
