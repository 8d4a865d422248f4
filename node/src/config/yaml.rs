//! A YAML document as a tree in which every node knows its line and column.
//!
//! Only what a configuration needs: maps, lists and scalars. Scalars stay text, so that no value changes its type
//! behind the writer's back (`NO`, `1e3`, `0123`). Anchors, tags and several documents are refused.

use std::borrow::Cow;
use std::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Nesting of the deepest configuration is 4; a few more leave room, and recursion stays bounded.
const DEPTH_MAX: usize = 16;
/// Nodes of one file: thousands of data networks and keys fit, a decompression-bomb of a file does not.
const NODES_MAX: usize = 100_000;

/// A place in the file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the column, from 1.
    pub column: usize,
}

impl Position {
    /// The beginning of the file.
    pub const START: Position = Position { line: 1, column: 1 };

    fn of(span: Span) -> Self {
        Self { line: span.start.line().max(1), column: span.start.col() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A node and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub at: Position,
    pub value: NodeValue,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeValue {
    /// Nothing, `~` or `null`: as if the key were absent.
    Null,
    /// A scalar as it was written, quotes removed.
    Text(String),
    /// A list of nodes.
    List(Vec<Node>),
    /// A map in the order of the file.
    Map(Vec<(YamlKey, Node)>),
}

/// The key of a map's entry.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlKey {
    pub at: Position,
    pub name: String,
}

impl Node {
    /// What it is, as one says it in a sentence.
    pub fn kind(&self) -> &'static str {
        match self.value {
            NodeValue::Null => "nothing",
            NodeValue::Text(_) => "a single value",
            NodeValue::List(_) => "a list",
            NodeValue::Map(_) => "a map of keys",
        }
    }
}

/// Why the text is no configuration file: where, and one sentence.
pub type YamlError = (Position, String);

/// Reads one document. An empty one is [`NodeValue::Null`].
pub fn parse(text: &str) -> Result<Node, YamlError> {
    let mut events = YamlEvents { parser: Parser::new_from_str(text), nodes: 0 };
    let mut document = None;
    loop {
        let (event, at) = events.next()?;
        match event {
            Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
            _ if document.is_some() => {
                return Err((at, "a second YAML document begins here; keep one document per file".into()));
            }
            event => document = Some(events.node(event, at, 0)?),
        }
    }
    Ok(document.unwrap_or(Node { at: Position::START, value: NodeValue::Null }))
}

struct YamlEvents<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    nodes: usize,
}

impl<'a> YamlEvents<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Position), YamlError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, Position::of(span))),
            Some(Err(e)) => {
                let at = Position { line: e.marker().line().max(1), column: e.marker().col() + 1 };
                Err((at, format!("this is not YAML: {}", e.info())))
            }
            None => Ok((Event::StreamEnd, Position::START)),
        }
    }

    fn node(&mut self, event: Event<'a>, at: Position, depth: usize) -> Result<Node, YamlError> {
        self.nodes += 1;
        if depth > DEPTH_MAX || self.nodes > NODES_MAX {
            return Err((at, "the file is nested too deep or too large for a configuration".into()));
        }
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                plain(anchor, tag.is_some(), at)?;
                scalar(text, style)
            }
            Event::SequenceStart(anchor, tag) => {
                plain(anchor, tag.is_some(), at)?;
                NodeValue::List(self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                plain(anchor, tag.is_some(), at)?;
                NodeValue::Map(self.map(depth)?)
            }
            Event::Alias(_) => return Err((at, "aliases (*name) are not used here; write the value".into())),
            _ => return Err((at, "the document ends within a value".into())),
        };
        Ok(Node { at, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, YamlError> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (event, at) => list.push(self.node(event, at, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<(YamlKey, Node)>, YamlError> {
        let mut map: Vec<(YamlKey, Node)> = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(map),
                (Event::Scalar(text, ..), at) => YamlKey { at, name: text.into_owned() },
                (_, at) => return Err((at, "a key must be a plain word".into())),
            };
            if let Some((first, _)) = map.iter().find(|(k, _)| k.name == key.name) {
                let sentence =
                    format!("`{}` is given twice, first in line {}; keep one", key.name, first.at.line);
                return Err((key.at, sentence));
            }
            let (event, at) = self.next()?;
            let value = self.node(event, at, depth + 1)?;
            map.push((key, value));
        }
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> NodeValue {
    let plain = matches!(style, ScalarStyle::Plain);
    if plain && matches!(text.as_ref(), "" | "~" | "null" | "Null" | "NULL") {
        return NodeValue::Null;
    }
    NodeValue::Text(text.into_owned())
}

fn plain(anchor: usize, tagged: bool, at: Position) -> Result<(), YamlError> {
    if anchor != 0 || tagged {
        return Err((at, "anchors (&name) and tags (!name) are not used here; write the value alone".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_know_their_lines_and_columns() {
        let doc = parse("# first\nn2:\n  port: 38412\ntac: [1, 2]\n").unwrap();
        let NodeValue::Map(map) = doc.value else { panic!() };
        assert_eq!((map[0].0.name.as_str(), map[0].0.at), ("n2", Position { line: 2, column: 1 }));
        let NodeValue::Map(n2) = &map[0].1.value else { panic!() };
        assert_eq!(n2[0].1.at, Position { line: 3, column: 9 });
        let NodeValue::List(tac) = &map[1].1.value else { panic!() };
        assert_eq!(tac[1].at, Position { line: 4, column: 10 });
        assert_eq!(tac[1].value, NodeValue::Text("2".into()));
    }

    #[test]
    fn what_a_configuration_does_not_need_is_refused_with_its_place() {
        for (text, line, part) in [
            ("a: 1\nb: *x\n", 2, "anchor"),
            ("a: &x 1\n", 1, "anchors"),
            ("a: !!str 1\n", 1, "tags"),
            ("a: 1\na: 2\n", 2, "twice"),
            ("a: 1\n---\nb: 2\n", 3, "second"),
            ("a: [1, 2\nb: 3\n", 2, "YAML"),
            ("[1]: 3\n", 1, "plain word"),
        ] {
            match parse(text) {
                Err((at, sentence)) => {
                    assert!(sentence.contains(part), "{text:?}: {sentence}");
                    assert_eq!(at.line, line, "{text:?}: {sentence}");
                }
                Ok(n) => panic!("{text:?} was read as {n:?}"),
            }
        }
    }

    #[test]
    fn depth_is_bounded() {
        assert!(parse(&"[".repeat(5000)).is_err());
        assert!(parse(&format!("{}{}", "[".repeat(40), "]".repeat(40))).is_err());
    }
}
