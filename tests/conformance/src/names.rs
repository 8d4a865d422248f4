//! The ratchet on names and docs: type names that stand in more than two crates, docs of one or two words, and docs that open with
//! What, Whether or It. No count may rise.
//!
//! `words/types` lists the type names with their number of crates, `words/docs` the docs by top-level folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::words::{self, Counts};

/// The table of type names, from the root.
pub const TYPES: &str = "tests/conformance/words/types";
/// The table of docs, from the root.
pub const DOCS: &str = "tests/conformance/words/docs";

/// Most crates that may have a type of one name.
const CRATES_MAX: usize = 2;
/// Names that each crate may use for its own type: the crate's name says of what. `Input`, `Output`, `Outbox` and `Counters` are the
/// surface that all state machines share: inputs are handled, outputs wait in an outbox, and counters are read.
const NAMES_EXEMPT: [&str; 9] =
    ["Config", "Counters", "Error", "Event", "Input", "Message", "Options", "Outbox", "Output"];
/// Folders whose crates are programs: no other crate sees their types.
const FOLDERS_OF_PROGRAMS: [&str; 2] = ["programs", "tests"];
/// Folders that are not read, wherever they are.
const FOLDERS_EXCLUDED: [&str; 3] = ["target", "testdata", "fuzz"];
/// Fewest words of a doc.
const WORDS_MIN: usize = 3;
/// Words with which a doc does not open: the sentence has no subject then.
const OPENINGS: [&str; 3] = ["What", "Whether", "It"];

/// Rows of the table of docs.
const SHORT: &str = "short";
const OPENING: &str = "opening";

const TYPES_HEAD: &str = "# Type names in more than two crates, with the number of crates. Numbers only fall: `./x lint names --update`.\n";
const DOCS_HEAD: &str = "# Docs of one or two words, and docs that open with What, Whether or It, by top-level folder. Counts only fall: `./x lint names --update`.\n";

/// Counts of a tree.
#[derive(Debug, Default)]
pub struct Found {
    /// The crates of each type name.
    pub crates: BTreeMap<String, BTreeSet<String>>,
    /// Docs of one or two words, and docs with a denied opening, by folder.
    pub docs: Counts,
    /// Number of all docs.
    pub docs_total: u64,
}

/// The result of a comparison of a tree with its tables.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Counts that rose.
    pub risen: Vec<String>,
    /// How much lower all counts together are than they may be.
    pub fallen: u64,
    /// Type names in more than two crates.
    pub types: usize,
    /// Docs of one or two words.
    pub short: u64,
    /// Docs that open with What, Whether or It.
    pub opening: u64,
    /// Number of all docs.
    pub docs: u64,
}

/// The name of the type that a line declares. Associated types are none: a `type` counts only at the beginning of a line.
#[must_use]
pub fn declared_type(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    let is_indented = rest.len() < line.len();
    if let Some(behind) = rest.strip_prefix("pub") {
        rest = match behind.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => behind,
        };
    }
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let is_type =
        ["struct", "enum", "trait", "union"].contains(&keyword) || (keyword == "type" && !is_indented);
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

/// The docs of a source text: the lines of each, joined.
#[must_use]
pub fn docs(text: &str) -> Vec<String> {
    let mut docs: Vec<String> = Vec::new();
    let mut mark = "";
    for line in text.lines().map(str::trim) {
        let now = ["///", "//!"].into_iter().find(|m| line.starts_with(m) && !line.starts_with("////"));
        let Some(now) = now else {
            mark = "";
            continue;
        };
        if now != mark {
            docs.push(String::new());
            mark = now;
        }
        if let Some(doc) = docs.last_mut() {
            doc.push_str(line[now.len()..].trim());
            doc.push(' ');
        }
    }
    docs.into_iter().map(|doc| doc.trim().to_owned()).filter(|doc| !doc.is_empty()).collect()
}

/// A doc of one or two words. A name of the standard or of the code, in back ticks, is none.
fn is_short(doc: &str) -> bool {
    !doc.starts_with('`') && !doc.starts_with("[`") && doc.split_whitespace().count() < WORDS_MIN
}

fn has_denied_opening(doc: &str) -> bool {
    doc.split_whitespace().next().is_some_and(|word| OPENINGS.contains(&word))
}

/// Counts the types and docs of a tree.
///
/// # Errors
/// What could not be read.
pub fn count(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for row in [SHORT, OPENING] {
        found.docs.insert(row.to_owned(), BTreeMap::new());
    }
    walk(root, "", "", &mut found)?;
    found.crates.retain(|name, crates| crates.len() > CRATES_MAX && !NAMES_EXEMPT.contains(&name.as_str()));
    Ok(found)
}

fn walk(root: &Path, folder: &str, of_crate: &str, found: &mut Found) -> io::Result<()> {
    let has_manifest = !folder.is_empty() && root.join(folder).join("Cargo.toml").exists();
    let of_crate = if has_manifest { folder } else { of_crate };
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !FOLDERS_EXCLUDED.contains(&name.as_str()) {
                walk(root, &path, of_crate, found)?;
            }
        } else if name.ends_with(".rs") {
            read_source(&fs::read_to_string(entry.path())?, &path, of_crate, found);
        }
    }
    Ok(())
}

fn read_source(text: &str, path: &str, of_crate: &str, found: &mut Found) {
    let top = path.split('/').next().unwrap_or_default();
    let is_source = path.strip_prefix(of_crate).is_some_and(|rest| rest.starts_with("/src/"));
    if is_source && !FOLDERS_OF_PROGRAMS.contains(&top) {
        for name in text.lines().filter_map(declared_type) {
            found.crates.entry(name.to_owned()).or_default().insert(of_crate.to_owned());
        }
    }
    for doc in docs(text) {
        found.docs_total += 1;
        let rows = [(SHORT, is_short(&doc)), (OPENING, has_denied_opening(&doc))];
        for (row, _) in rows.into_iter().filter(|(_, counts)| *counts) {
            *found.docs.entry(row.to_owned()).or_default().entry(top.to_owned()).or_default() += 1;
        }
    }
}

/// Compares a tree with its tables; with `update`, lowers the tables to what is found. A table that is not there is written as the
/// tree is.
///
/// # Errors
/// What could not be read or written.
pub fn check(root: &Path, update: bool) -> io::Result<Outcome> {
    let found = count(root)?;
    let sum = |row: &str| found.docs.get(row).map_or(0, |by_folder| by_folder.values().sum());
    let mut outcome = Outcome {
        types: found.crates.len(),
        short: sum(SHORT),
        opening: sum(OPENING),
        docs: found.docs_total,
        ..Outcome::default()
    };
    let types = compare_types(root, &found, &mut outcome);
    let docs = compare_docs(root, &found, &mut outcome);
    if update {
        let lines = types.iter().map(|(name, crates)| format!("{name} {crates}\n"));
        fs::write(root.join(TYPES), lines.fold(TYPES_HEAD.to_owned(), |text, line| text + &line))?;
        fs::write(root.join(DOCS), words::write_table(DOCS_HEAD, &docs))?;
    }
    Ok(outcome)
}

/// Compares the type names with their table, and gives the lowered table.
fn compare_types(root: &Path, found: &Found, outcome: &mut Outcome) -> BTreeMap<String, usize> {
    let is_of = |name: &str| found.crates.get(name).map_or(0, BTreeSet::len);
    let Ok(table) = fs::read_to_string(root.join(TYPES)) else {
        return found.crates.iter().map(|(name, crates)| (name.clone(), crates.len())).collect();
    };
    let line =
        |line: &str| line.split_once(' ').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    let allowed: BTreeMap<String, usize> =
        table.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect();
    for (name, crates) in &found.crates {
        let may = allowed.get(name).copied().unwrap_or(CRATES_MAX);
        if crates.len() > may {
            let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
            let where_it_is = crates.join(", ");
            outcome.risen.push(format!(
                "the type name `{name}` stands in {} crates, {may} are allowed: say of what, as `UnitDirectory` does ({where_it_is})",
                crates.len()
            ));
        }
    }
    outcome.fallen += allowed.iter().map(|(name, may)| may.saturating_sub(is_of(name)) as u64).sum::<u64>();
    let lowered = allowed.into_iter().map(|(name, may)| (may.min(is_of(&name)), name));
    lowered.filter(|(n, _)| *n > CRATES_MAX).map(|(n, name)| (name, n)).collect()
}

/// Compares the docs with their table, and gives the lowered table.
fn compare_docs(root: &Path, found: &Found, outcome: &mut Outcome) -> Counts {
    let Ok(table) = fs::read_to_string(root.join(DOCS)) else {
        return found.docs.clone();
    };
    let allowed = words::read(&table);
    let mut lowered = Counts::new();
    for (row, by_folder) in &found.docs {
        let none = BTreeMap::new();
        let may_by_folder = allowed.get(row).unwrap_or(&none);
        let folders: BTreeSet<&String> = may_by_folder.keys().chain(by_folder.keys()).collect();
        for folder in folders {
            let count_of = |counts: &BTreeMap<String, u64>| counts.get(folder).copied().unwrap_or(0);
            let (may, is) = (count_of(may_by_folder), count_of(by_folder));
            lowered.entry(row.clone()).or_default().insert(folder.clone(), may.min(is));
            outcome.fallen += may.saturating_sub(is);
            if is > may {
                let what = match row.as_str() {
                    SHORT => "docs have one or two words; say what the name does not",
                    _ => "docs open with What, Whether or It; begin with the subject",
                };
                outcome.risen.push(format!("{folder}: {is} {what} ({may} are allowed)"));
            }
        }
    }
    lowered
}
