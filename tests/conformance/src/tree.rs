//! The marks of the tree: comments of the program's code, and comments at tests.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::mark::{self, Mark};

/// The folders with code and tests of the core, nearest to the procedures first: what stands in the table where many files
/// name a clause. The emulated UEs and gNBs of `ran/` are the other side of a clause, and so are their tests.
pub const FOLDERS: [&str; 13] = [
    "control",
    "user",
    "resilience",
    "security",
    "wire",
    "node",
    "api",
    "programs",
    "services",
    "store",
    "fabric",
    "sim",
    "tests",
];

/// A test that names clauses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    /// Its file, from the root.
    pub file: String,
    /// Name of the test.
    pub name: String,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Files by the clauses that their comments name, what of it left out.
    pub code: BTreeMap<(String, String), Vec<String>>,
    /// Tests by what they name.
    pub tests: BTreeMap<Mark, Vec<Test>>,
    /// Marks that cannot be read.
    pub wrong: Vec<String>,
}

/// Reads the tree.
///
/// # Errors
/// What could not be read.
pub fn scan(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for folder in FOLDERS {
        walk(root, folder, &mut found)?;
    }
    Ok(found)
}

fn walk(root: &Path, folder: &str, found: &mut Found) -> io::Result<()> {
    let mut entries: Vec<_> = match fs::read_dir(root.join(folder)) {
        Ok(entries) => entries.collect::<Result<_, _>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.file_type()?.is_dir() {
            if name != "target" && path != "tests/conformance" {
                walk(root, &path, found)?;
            }
        } else if name.ends_with(".rs") {
            rust(&path, &fs::read_to_string(entry.path())?, found);
        } else if folder.starts_with("tests") && !name.ends_with(".md") {
            script(&path, &fs::read_to_string(entry.path()).unwrap_or_default(), found);
        }
    }
    Ok(())
}

fn rust(path: &str, text: &str, found: &mut Found) {
    // Examples, the simulation and tests are not what serves a clause.
    let serves = path.contains("/src/") && !path.starts_with("sim/") && !path.ends_with("tests.rs");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let tests_from = lines.iter().position(|l| *l == "#[cfg(test)]").unwrap_or(lines.len());
    let mut i = 0;
    while i < lines.len() {
        if let Some(comment) = lines[i].strip_prefix("#[test]") {
            test(path, comment, &lines[i + 1..], found);
        } else if serves && i < tests_from && lines[i].contains("//") {
            let (comment, used) = block(&lines[i..]);
            for sentence in sentences(&comment) {
                for mark in mark::parse(sentence) {
                    let files = found.code.entry((mark.spec, mark.clause)).or_default();
                    if files.last().is_none_or(|f| f != path) {
                        files.push(path.to_owned());
                    }
                }
            }
            i += used;
            continue;
        }
        i += 1;
    }
}

/// A comment at the end of a line of code, or the lines of a comment joined; and how many lines it has.
fn block(lines: &[&str]) -> (String, usize) {
    let Some(first) = lines.first() else { return (String::new(), 1) };
    if !first.starts_with("//") {
        return (first.split_once("//").map(|(_, c)| c.to_owned()).unwrap_or_default(), 1);
    }
    let whole: Vec<_> = lines.iter().take_while(|l| l.starts_with("//")).collect();
    (whole.iter().map(|l| l.trim_start_matches(['/', '!']).trim()).collect::<Vec<_>>().join(" "), whole.len())
}

/// The comment from each `TS` on: in prose there are several.
fn sentences(comment: &str) -> impl Iterator<Item = &str> {
    comment.match_indices("TS ").map(|(at, _)| &comment[at..])
}

/// The mark of a test: behind its attribute, and on comment lines that follow.
fn test(path: &str, comment: &str, after: &[&str], found: &mut Found) {
    let mut comment = comment.trim().trim_start_matches('/').trim().to_owned();
    let mut name = None;
    for line in after.iter().take(12) {
        if let Some(more) = line.strip_prefix("//") {
            comment = format!("{comment} {}", more.trim_start_matches('/').trim());
        } else if let Some(rest) = line.strip_prefix("fn ") {
            name = rest.split(['(', '<']).next().map(str::to_owned);
            break;
        }
    }
    let Some(name) = name else { return };
    if comment.starts_with('§') {
        found.wrong.push(format!("{path}: {name}: the clause lacks its specification"));
    }
    for mark in mark::parse(&comment) {
        let tests = found.tests.entry(mark).or_default();
        let test = Test { file: path.to_owned(), name: name.clone() };
        if !tests.contains(&test) {
            tests.push(test);
        }
    }
}

/// In a script of `tests/`, a test's mark is a line of its own: `# test: TS 38.413 §8.7.1.2: the name that it prints`.
fn script(path: &str, text: &str, found: &mut Found) {
    for line in text.lines().filter_map(|l| l.trim().strip_prefix("# test: ")) {
        let marks = mark::parse(line);
        let name = line.split_once(": ").map_or("", |(_, name)| name.trim());
        if marks.is_empty() || name.is_empty() {
            found.wrong.push(format!("{path}: no mark or no name: {line}"));
        }
        for mark in marks {
            let test = Test { file: path.to_owned(), name: name.to_owned() };
            found.tests.entry(mark).or_default().push(test);
        }
    }
}
