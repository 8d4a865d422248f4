//! The keys of a configuration, each named once: the same call reads it from a file and prints it as documentation.
//!
//! A function that takes a [`Section`] asks it for its keys one by one, with default and comment. Over a parsed file
//! the section returns the values and collects the problems; in printing it writes the commented default. A key that was not asked
//! for is unknown. So reader, defaults and documentation cannot disagree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::operator_keys::leads_to_operator_key;
use super::problem::{ConfigProblem, did_you_mean};
use super::reference::{DescribedKey, Reference, kind_of};
use super::removed_keys::value_in_force;
use super::value::Value;
use super::yaml::{Node, NodeValue, Position, YamlKey};

/// Columns of a comment line in the printed defaults.
const COMMENT_WIDTH: usize = 110;

/// State of one pass over all keys.
#[derive(Default)]
pub(super) struct Pass {
    /// The problems so far.
    pub problems: Vec<ConfigProblem>,
    /// Positions of the keys in the file, by dotted path.
    positions: BTreeMap<String, Position>,
    /// The commented YAML, while printing.
    text: Option<String>,
    /// Only the keys that an operator sets are printed.
    is_for_operators: bool,
    /// Nesting, for the indentation of the printed text.
    depth: usize,
    /// The next printed key begins a list's item.
    item: bool,
    /// Files that the file names.
    pub files: Vec<PathBuf>,
    /// The only files that may be opened; `None`: each that the file names.
    pub openable: Option<BTreeSet<PathBuf>>,
    /// Keys whose file was not opened, with the file.
    pub not_checked: Vec<String>,
    /// Dotted paths of the values that no message repeats.
    pub secrets: Vec<String>,
    /// Names of the keys that have such values.
    pub secret_keys: BTreeSet<&'static str>,
    /// Where their texts stand.
    pub secret_places: Vec<(Position, String)>,
    /// The keys by section, while the reference is written.
    reference: Option<Reference>,
}

impl Pass {
    /// A pass that prints the defaults.
    pub(super) fn printing() -> Self {
        Self { text: Some(String::new()), ..Self::default() }
    }

    /// A pass that prints the defaults of the keys that an operator sets.
    pub(super) fn printing_for_operators() -> Self {
        Self { is_for_operators: true, ..Self::printing() }
    }

    /// A pass that opens only these of the files that the file names.
    pub(super) fn opening_only(openable: BTreeSet<PathBuf>) -> Self {
        Self { openable: Some(openable), ..Self::default() }
    }

    /// A pass that opens none of the files that the file names.
    pub(super) fn without_files() -> Self {
        Self::opening_only(BTreeSet::new())
    }

    /// A pass that collects the reference of all keys.
    pub(super) fn describing() -> Self {
        Self { reference: Some(Reference::default()), ..Self::printing() }
    }

    /// The collected reference.
    pub(super) fn into_reference(self) -> Reference {
        self.reference.unwrap_or_default()
    }

    /// Whether this pass prints the defaults and reads no file.
    pub(super) fn is_printing(&self) -> bool {
        self.text.is_some()
    }

    /// The printed text.
    pub(super) fn into_text(self) -> String {
        self.text.unwrap_or_default()
    }

    /// Reports a problem at `key`, or at its nearest parent in the file.
    pub(super) fn refuse(&mut self, key: &str, what: impl Into<String>, fix: impl Into<String>) {
        let mut part = key;
        let at = loop {
            if let Some(at) = self.positions.get(part) {
                break *at;
            }
            match part.rfind(['.', '[']) {
                Some(cut) => part = &part[..cut],
                None => break Position::START,
            }
        };
        self.problems.push(ConfigProblem { at, key: key.into(), what: what.into(), fix: fix.into() });
    }

    /// Whether the file has this key.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.positions.contains_key(key)
    }

    /// True if this pass prints a key, or a section or a list for what is in it.
    fn prints(&self, path: &str) -> bool {
        self.text.is_some() && (!self.is_for_operators || leads_to_operator_key(path))
    }

    fn comment(&mut self, doc: &str) {
        let depth = self.depth;
        let Some(text) = &mut self.text else { return };
        let indent = "  ".repeat(depth);
        let mut line = String::new();
        for word in doc.split_whitespace() {
            if !line.is_empty() && indent.len() + line.len() + word.len() + 3 > COMMENT_WIDTH {
                let _ = writeln!(text, "{indent}# {line}");
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        let _ = writeln!(text, "{indent}# {line}");
    }

    fn line(&mut self, content: &str) {
        let (depth, item) = (self.depth, std::mem::take(&mut self.item));
        let Some(text) = &mut self.text else { return };
        let indent = "  ".repeat(if item { depth - 1 } else { depth });
        let _ = writeln!(text, "{indent}{}{content}", if item { "- " } else { "" });
    }
}

/// One map of the configuration.
pub(super) struct Section<'p, 'n> {
    pass: &'p mut Pass,
    path: String,
    map: &'n [(YamlKey, Node)],
    known: Vec<&'static str>,
}

impl<'p, 'n> Section<'p, 'n> {
    /// The file as a whole.
    pub(super) fn root(pass: &'p mut Pass, node: &'n Node) -> Self {
        let map = map_of(pass, node, "");
        Self { pass, path: String::new(), map, known: Vec::new() }
    }

    /// The dotted path of one of this section's keys.
    pub(super) fn path(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.into(),
            path => format!("{path}.{key}"),
        }
    }

    /// True if the file under a key may be opened. Otherwise the check's answer lists it as not checked.
    pub(super) fn may_open(&mut self, key: &str, file: &Path) -> bool {
        let may = self.pass.openable.as_ref().is_none_or(|openable| openable.contains(file));
        if !may {
            let path = self.path(key);
            self.pass.not_checked.push(format!("{path}: {}", file.display()));
        }
        may
    }

    /// Reports a problem at one of this section's keys.
    pub(super) fn refuse(&mut self, key: &str, what: impl Into<String>, fix: impl Into<String>) {
        let path = self.path(key);
        self.pass.refuse(&path, what, fix);
    }

    /// Has the reference show the bounds of a key.
    pub(super) fn show_bounds(&mut self, key: &str, bounds: &str) {
        if let Some(reference) = &mut self.pass.reference {
            reference.bound(&self.path, key, bounds.into());
        }
    }

    /// Refuses the value of a key that is out of its bounds. The reference shows `bounds`; after "write" they are the fix.
    pub(super) fn bound(
        &mut self,
        key: &str,
        is_within: bool,
        what: impl Into<String>,
        bounds: impl AsRef<str>,
    ) {
        let bounds = bounds.as_ref();
        self.show_bounds(key, bounds);
        if !is_within {
            self.refuse(key, what, format!("write {bounds}"));
        }
    }

    /// Adds a key to the reference, if this pass collects one.
    fn describe(&mut self, key: &'static str, kind: String, default: String, doc: &str) {
        if let Some(reference) = &mut self.pass.reference {
            let entry = DescribedKey { key, kind, default, bounds: Vec::new(), doc: doc.into() };
            reference.add(&self.path, entry);
        }
    }

    /// A value with a default.
    pub(super) fn value<T: Value>(&mut self, key: &'static str, default: T, doc: &str) -> T {
        self.describe(key, kind_of::<T>(), format!("`{}`", default.show()), doc);
        if let Some(node) = self.take(key, doc, &format!("{key}: {}", default.show())) {
            return self.scalar(key, node).unwrap_or(default);
        }
        default
    }

    /// A value without a default; the printed text shows the example commented out.
    pub(super) fn optional<T: Value>(&mut self, key: &'static str, example: &str, doc: &str) -> Option<T> {
        self.describe(key, kind_of::<T>(), format!("none; example: `{example}`"), doc);
        if T::SECRET {
            self.pass.secret_keys.insert(key);
        }
        let node = self.take(key, doc, &format!("# {key}: {example}"))?;
        self.scalar(key, node)
    }

    /// A list of values; a single value is a list of one.
    pub(super) fn list<T: Value>(&mut self, key: &'static str, default: Vec<T>, doc: &str) -> Vec<T> {
        let shown: Vec<String> = default.iter().map(Value::show).collect();
        self.describe(key, format!("list: {}", kind_of::<T>()), format!("`[{}]`", shown.join(", ")), doc);
        let Some(node) = self.take(key, doc, &format!("{key}: [{}]", shown.join(", "))) else {
            return default;
        };
        match &node.value {
            NodeValue::List(items) => items.iter().filter_map(|item| self.scalar(key, item)).collect(),
            _ => self.scalar(key, node).into_iter().collect(),
        }
    }

    /// A map within this one.
    pub(super) fn section<R>(
        &mut self,
        key: &'static str,
        doc: &str,
        read: impl FnOnce(&mut Section<'_, '_>) -> R,
    ) -> R {
        self.part(key);
        let node = self.take(key, doc, &format!("{key}:"));
        let path = self.path(key);
        if let Some(reference) = &mut self.pass.reference {
            reference.begin(&path, doc);
        }
        let map = node.map_or(&[][..], |node| map_of(self.pass, node, &path));
        self.pass.depth += 1;
        let mut inner = Section { pass: self.pass, path, map, known: Vec::new() };
        let value = read(&mut inner);
        inner.finish();
        self.pass.depth -= 1;
        value
    }

    /// A small map that the reference and the printed text show as one key, with an example of it.
    pub(super) fn small_map<R>(
        &mut self,
        key: &'static str,
        kind: &str,
        example: &str,
        doc: &str,
        read: impl FnOnce(&mut Section<'_, '_>) -> R,
    ) -> R {
        self.describe(key, kind.into(), format!("`{example}`"), doc);
        let node = self.take(key, doc, &format!("# {key}: {example}"));
        let path = self.path(key);
        let map = node.map_or(&[][..], |node| map_of(self.pass, node, &path));
        // The keys in it are neither printed nor described.
        let (text, reference) = (self.pass.text.take(), self.pass.reference.take());
        let mut inner = Section { pass: self.pass, path, map, known: Vec::new() };
        let value = read(&mut inner);
        inner.finish();
        (self.pass.text, self.pass.reference) = (text, reference);
        value
    }

    /// A list of maps. Where the file has none, `default_items` empty maps are read in their place, so that each
    /// key's own default stands. `read` gets the index in the list.
    pub(super) fn sections<R>(
        &mut self,
        key: &'static str,
        default_items: usize,
        doc: &str,
        mut read: impl FnMut(&mut Section<'_, '_>, usize) -> R,
    ) -> Vec<R> {
        self.part(key);
        let node = self.take(key, doc, &format!("{key}:{}", if default_items == 0 { " []" } else { "" }));
        let items: &[Node] = match node.map(|node| &node.value) {
            Some(NodeValue::List(items)) => items,
            Some(_) => {
                self.refuse(key, "a list is expected here", "begin each entry with a hyphen (`- `)");
                &[]
            }
            None => &[],
        };
        let list = self.path(key);
        // The reference describes one item of each list.
        let count = match &mut self.pass.reference {
            Some(reference) => {
                reference.begin(&format!("{list}[]"), doc);
                1
            }
            None if node.is_some() => items.len(),
            None => default_items,
        };
        let mut values = Vec::new();
        for i in 0..count {
            let path =
                if self.pass.reference.is_some() { format!("{list}[]") } else { format!("{list}[{i}]") };
            let map = match items.get(i) {
                Some(item) => {
                    self.pass.positions.insert(path.clone(), item.at);
                    map_of(self.pass, item, &path)
                }
                None => &[],
            };
            self.pass.depth += 2;
            self.pass.item = true;
            let mut inner = Section { pass: self.pass, path, map, known: Vec::new() };
            values.push(read(&mut inner, i));
            inner.finish();
            self.pass.item = false;
            self.pass.depth -= 2;
        }
        values
    }

    /// Reports unknown keys.
    pub(super) fn finish(self) {
        for (key, _) in self.map.iter().filter(|(k, _)| !self.known.contains(&k.name.as_str())) {
            let removed = value_in_force(&self.path(&key.name));
            let fix = match did_you_mean(&key.name, self.known.iter().copied()) {
                _ if removed.is_some() => "delete the line".into(),
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known keys: {}", self.known.join(", ")),
            };
            let what = match self.path.as_str() {
                "" => format!("`{}` is not a configuration key", key.name),
                path => format!("`{}` is not a key of `{path}`", key.name),
            };
            let what = match removed {
                Some(value) => format!("{what} any more: {value}"),
                None => what,
            };
            self.pass.problems.push(ConfigProblem { at: key.at, key: String::new(), what, fix });
        }
    }

    /// A blank line between the parts of the printed file.
    fn part(&mut self, key: &str) {
        let is_printed = self.path.is_empty() && self.pass.prints(key);
        if let (Some(text), true) = (&mut self.pass.text, is_printed) {
            text.push('\n');
        }
    }

    fn take(&mut self, key: &'static str, doc: &str, printed: &str) -> Option<&'n Node> {
        debug_assert!(!self.known.contains(&key), "`{key}` is asked for twice");
        self.known.push(key);
        let path = self.path(key);
        if self.pass.prints(&path) {
            if !self.pass.item && !doc.is_empty() {
                self.pass.comment(doc);
            }
            self.pass.line(printed);
        }
        let (_, node) = self.map.iter().find(|(k, _)| k.name == key)?;
        self.pass.positions.insert(path, node.at);
        (node.value != NodeValue::Null).then_some(node)
    }

    fn scalar<T: Value>(&mut self, key: &str, node: &Node) -> Option<T> {
        if T::SECRET {
            let path = self.path(key);
            self.pass.secrets.push(path);
            texts(node, &mut self.pass.secret_places);
        }
        if let (true, NodeValue::Text(text)) = (T::FILE, &node.value) {
            self.pass.files.push(text.trim().into());
        }
        let refusal = match &node.value {
            NodeValue::Text(text) => match T::read(text) {
                Ok(value) => return Some(value),
                Err(expected) if T::SECRET => ("this value is not understood".into(), expected),
                Err(expected) => (format!("`{}` is not understood", shorten(text)), expected),
            },
            _ => (format!("found {}", node.kind()), T::read("").err().unwrap_or_default()),
        };
        let (key, what, fix) = (self.path(key), refusal.0, format!("write {}", refusal.1));
        self.pass.problems.push(ConfigProblem { at: node.at, key, what, fix });
        None
    }
}

/// The texts at and below a node, with their places.
pub(super) fn texts(node: &Node, found: &mut Vec<(Position, String)>) {
    match &node.value {
        NodeValue::Null => {}
        NodeValue::Text(text) => found.push((node.at, text.clone())),
        NodeValue::List(items) => items.iter().for_each(|item| texts(item, found)),
        NodeValue::Map(map) => map.iter().for_each(|(_, item)| texts(item, found)),
    }
}

fn map_of<'n>(pass: &mut Pass, node: &'n Node, key: &str) -> &'n [(YamlKey, Node)] {
    match &node.value {
        NodeValue::Map(map) => map,
        NodeValue::Null => &[],
        _ => {
            let what = format!("found {} where a map of keys is expected", node.kind());
            let fix = "write one `key: value` a line, indented".into();
            pass.problems.push(ConfigProblem { at: node.at, key: key.into(), what, fix });
            &[]
        }
    }
}

/// A value, shortened for a sentence.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
