//! The ratchet on words: private synonyms and archaisms are counted by top-level folder, and no count may rise.
//!
//! `words/denied` lists the words and what to write instead, `words/allowed` how often each may stand in each folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// The list of words, from the root.
pub const DENIED: &str = "tests/conformance/words/denied";
/// The counts that may not rise, from the root.
pub const ALLOWED: &str = "tests/conformance/words/allowed";

/// Files that are read.
const ENDINGS: [&str; 4] = [".rs", ".md", ".sh", ".yaml"];
/// Files that are not ours to word, are generated, or speak of the words themselves.
const EXCLUDED: [&str; 5] = [
    "CHANGELOG.md",
    "docs/conformance.md",
    "docs/glossary.md",
    "tests/conformance/src/words.rs",
    "tests/conformance/tests/words.rs",
];
/// Folders that are not read, wherever they are.
const FOLDERS_EXCLUDED: [&str; 3] = ["target", "testdata", "words"];
/// The name of the root among the folders.
const ROOT: &str = ".";

/// A word that is not to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Its forms; each is one word or several in a row, in lower case. The first one names it.
    pub forms: Vec<Vec<String>>,
    /// What to write instead.
    pub instead: String,
}

impl Denied {
    /// Its name in the table of counts.
    #[must_use]
    pub fn name(&self) -> String {
        self.forms.first().map(|form| form.join("-")).unwrap_or_default()
    }
}

/// Counts by word and folder.
pub type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// What a check found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Counts that rose, each with what to write instead.
    pub risen: Vec<String>,
    /// How much lower all counts together are than they may be.
    pub fallen: u64,
    /// How often denied words stand in the tree.
    pub total: u64,
}

/// Reads the list of words. A line is `form, form: instead`; lines that begin with `#` are comments.
#[must_use]
pub fn denied(text: &str) -> Vec<Denied> {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let read = |(forms, instead): (&str, &str)| Denied {
        forms: forms.split(',').map(words).collect(),
        instead: instead.trim().to_owned(),
    };
    lines.filter_map(|l| l.split_once(':')).map(read).collect()
}

/// The words of a text in lower case. Signs, digits, underscores and a capital behind a small letter separate words.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut small = false;
    for c in text.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && small) {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        if c.is_alphabetic() {
            word.extend(c.to_lowercase());
        }
        small = c.is_lowercase();
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// Counts the denied words of a tree.
///
/// # Errors
/// What could not be read.
pub fn count(root: &Path, list: &[Denied]) -> io::Result<Counts> {
    let mut counts: Counts = list.iter().map(|d| (d.name(), BTreeMap::new())).collect();
    walk(root, "", list, &mut counts)?;
    Ok(counts)
}

fn walk(root: &Path, folder: &str, list: &[Denied], counts: &mut Counts) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !FOLDERS_EXCLUDED.contains(&name.as_str()) {
                walk(root, &path, list, counts)?;
            }
        } else if ENDINGS.iter().any(|e| name.ends_with(e)) && !EXCLUDED.contains(&path.as_str()) {
            let text = words(&without_examples(&fs::read_to_string(entry.path())?));
            let top = path.split_once('/').map_or(ROOT, |(top, _)| top);
            for (name, found) in found_in(&text, list) {
                *counts.entry(name).or_default().entry(top.to_owned()).or_default() += found;
            }
        }
    }
    Ok(())
}

/// A text without the column `before` of its tables: it quotes what is not to be written.
fn without_examples(text: &str) -> String {
    let mut column = None;
    let mut kept = String::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').collect();
        if !line.starts_with('|') {
            column = None;
        } else if column.is_none() {
            column = cells.iter().position(|cell| cell.trim() == "before");
        }
        let rest = cells.iter().enumerate().filter(|(n, _)| Some(*n) != column);
        rest.for_each(|(_, cell)| kept.extend([cell, "|"]));
        kept.push('\n');
    }
    kept
}

/// How often each denied word stands among these.
fn found_in(text: &[String], list: &[Denied]) -> Vec<(String, u64)> {
    let is_at = |i: usize, d: &Denied| d.forms.iter().any(|f| text[i..].starts_with(f));
    let times = |d: &Denied| (0..text.len()).filter(|i| is_at(*i, d)).count() as u64;
    list.iter().map(|d| (d.name(), times(d))).filter(|(_, n)| *n > 0).collect()
}

/// The table of counts that may not rise: a line a word, a column a folder.
#[must_use]
pub fn write(counts: &Counts) -> String {
    let head = "# How often each word of `denied` may stand in each top-level folder. Counts only fall: `./x lint words --update`.\n";
    write_table(head, counts)
}

/// A table of counts below a line that says what it is.
pub(crate) fn write_table(head: &str, counts: &Counts) -> String {
    let folders: std::collections::BTreeSet<&String> = counts.values().flat_map(BTreeMap::keys).collect();
    let mut text = String::from(head);
    let width = |folder: &str| folder.len().max(5);
    text += &format!("{:<12}", "word");
    folders.iter().for_each(|f| text += &format!(" {f:>0$}", width(f)));
    for (word, by_folder) in counts {
        text += &format!("\n{word:<12}");
        folders.iter().for_each(|f| {
            text += &format!(" {:>1$}", by_folder.get(*f).copied().unwrap_or(0), width(f));
        });
    }
    text + "\n"
}

/// Reads such a table.
#[must_use]
pub fn read(text: &str) -> Counts {
    let mut lines = text.lines().filter(|l| !l.starts_with('#')).map(str::split_whitespace);
    let folders: Vec<&str> = lines.next().into_iter().flatten().skip(1).collect();
    let row = |mut cells: std::str::SplitWhitespace<'_>| {
        let word = cells.next()?.to_owned();
        let counts = folders.iter().zip(cells).filter_map(|(f, n)| Some(((*f).to_owned(), n.parse().ok()?)));
        Some((word, counts.collect()))
    };
    lines.filter_map(row).collect()
}

/// Compares a tree with its table; with `update`, lowers the table to what is found. A word that the table does not have yet
/// enters it as it stands in the tree; a folder that it does not have is to be without such words.
///
/// # Errors
/// What could not be read or written.
pub fn check(root: &Path, update: bool) -> io::Result<Outcome> {
    let list = denied(&fs::read_to_string(root.join(DENIED))?);
    let found = count(root, &list)?;
    let table = fs::read_to_string(root.join(ALLOWED)).unwrap_or_default();
    let allowed = read(&table);
    let mut outcome = Outcome::default();
    let mut lowered = Counts::new();
    for (word, by_folder) in &found {
        outcome.total += by_folder.values().sum::<u64>();
        let Some(may) = allowed.get(word) else {
            lowered.insert(word.clone(), by_folder.clone());
            if !update {
                let sum: u64 = by_folder.values().sum();
                outcome
                    .risen
                    .push(format!("`{word}` is new in {DENIED}: `./x lint words --update` enters its {sum}"));
            }
            continue;
        };
        let instead = list.iter().find(|d| d.name() == *word).map_or("", |d| d.instead.as_str());
        for folder in may.keys().chain(by_folder.keys().filter(|f| !may.contains_key(*f))) {
            let (may, is) =
                (may.get(folder).copied().unwrap_or(0), by_folder.get(folder).copied().unwrap_or(0));
            lowered.entry(word.clone()).or_default().insert(folder.clone(), may.min(is));
            outcome.fallen += may.saturating_sub(is);
            if is > may {
                outcome.risen.push(format!(
                    "{folder}: `{word}` stands {is} times, {may} are allowed; write: {instead}"
                ));
            }
        }
    }
    if update {
        fs::write(root.join(ALLOWED), write(&lowered))?;
    }
    Ok(outcome)
}
