//! What the documents name exists: every path and every test in back ticks of every *.md, and every command of `./x`.
//!
//! The `whimbrel` commands of the documents are parsed by a test of `programs/whimbrel/src/cli.rs`, which has the command line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Endings by which a word in back ticks is taken for a file of this tree.
const FILE_ENDINGS: [&str; 7] = [".rs", ".md", ".sh", ".py", ".toml", ".awk", ".txt"];

/// Endings of files whose names a document may use.
const SOURCE_ENDINGS: [&str; 4] = [".rs", ".sh", ".py", ".yaml"];

/// Words with so many underscores are names of this tree; shorter ones may be a protocol's or a tool's.
const NAME_UNDERSCORES: usize = 4;

#[test] // CONTRIBUTING.md: a document that names a file or a folder names one that exists
fn paths_in_documents_exist() {
    let tree = Tree::read();
    let mut missing = Vec::new();
    for document in tree.documents() {
        let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
        for word in words_in_back_ticks(&tree.text(document)).filter(|word| tree.is_path(word)) {
            if !alternatives(word).iter().all(|path| tree.has(folder, path)) {
                missing.push(format!("{document}: `{word}` does not exist"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test] // CONTRIBUTING.md: a document that names a command of `./x` names one that `./x help` lists
fn commands_of_x_in_documents_exist() {
    let tree = Tree::read();
    let script = tree.text("x");
    let known: BTreeSet<&str> =
        script.lines().filter_map(|line| line.strip_prefix("  ")?.split([' ', ',']).next()).collect();
    let mut unknown = Vec::new();
    for document in tree.documents() {
        for command in tree.text(document).split("./x ").skip(1) {
            let name: String = command.chars().take_while(char::is_ascii_lowercase).collect();
            if !name.is_empty() && !known.contains(name.as_str()) {
                unknown.push(format!("{document}: ./x {name}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test] // a document that names a test, a metric or a key names one that exists
fn long_names_in_documents_exist() {
    let tree = Tree::read();
    let sources = tree.paths.iter().filter(|p| SOURCE_ENDINGS.iter().any(|e| p.ends_with(e)));
    let text: Vec<String> = sources.map(|p| tree.text(p)).collect();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = text.iter().flat_map(|t| t.split(|c| !is_part(c))).collect();
    let mut unknown = Vec::new();
    // CONTRIBUTING.md shows names that were replaced.
    for document in tree.documents().filter(|d| *d != "CONTRIBUTING.md") {
        let text = tree.text(document);
        let names = words_in_back_ticks(&text).filter(|w| w.chars().all(is_part));
        for name in names.filter(|w| w.matches('_').count() >= NAME_UNDERSCORES && !known.contains(w)) {
            unknown.push(format!("{document}: `{name}`"));
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test] // CONTRIBUTING.md: each block of commands in the book is run by a test, or says why not
fn each_block_of_commands_in_the_book_has_a_mark() {
    let tree = Tree::read();
    let mut unmarked = Vec::new();
    let mut blocks = 0;
    for page in tree.pages_of_the_book() {
        let text = tree.text(&page);
        let mut mark = "";
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line == "```sh" {
                blocks += 1;
                let is_run = mark.starts_with("<!-- run") && mark.ends_with("-->");
                let reason = mark.strip_prefix("<!-- not run: ").and_then(|rest| rest.strip_suffix(" -->"));
                if !is_run && reason.is_none_or(|reason| reason.trim().is_empty()) {
                    unmarked.push(format!("{page}: below `{mark}`"));
                }
            }
            mark = line;
        }
    }
    assert!(blocks > 50, "{blocks} blocks were found");
    assert!(unmarked.is_empty(), "tests/interop/book.py has the marks:\n{}", unmarked.join("\n"));
}

#[test] // docs/SUMMARY.md is the table of contents of the book
fn the_book_has_every_document() {
    let tree = Tree::read();
    let pages: BTreeSet<String> = tree.pages_of_the_book().collect();
    let missing: Vec<&String> = tree
        .documents()
        .filter(|d| d.starts_with("docs/") && !d.starts_with("docs/conformance/") && *d != "docs/SUMMARY.md")
        .filter(|d| !pages.contains(*d))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test] // a link in a document leads to a file, and its anchor to a heading
fn links_in_documents_lead_somewhere() {
    let tree = Tree::read();
    let mut wrong = Vec::new();
    for document in tree.documents() {
        let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
        for target in links(&tree.text(document)) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() { document.clone() } else { resolved(folder, file) };
            if !path.is_empty() && !tree.paths.contains(path.trim_end_matches('/')) {
                wrong.push(format!("{document}: {target}: there is no {path}"));
            } else if !anchor.is_empty() && !headings(&tree.text(&path)).contains(anchor) {
                wrong.push(format!("{document}: {target}: there is no such heading"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The targets of the links within the tree, outside of code.
fn links(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    let prose: String = prose.split('`').step_by(2).collect();
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|t| !t.contains(':') && !t.contains(' ')).map(str::to_owned).collect()
}

/// A relative path from the root.
fn resolved(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a document's headings.
fn headings(text: &str) -> BTreeSet<String> {
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines).filter(|line| line.starts_with('#'));
    lines.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// The anchor that Markdown renderers give a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn an_anchor_has_neither_signs_nor_capitals() {
    assert_eq!(anchor("A CPF (`whimbrel cpf --api`)"), "a-cpf-whimbrel-cpf---api");
    assert_eq!(resolved("docs/ran", "../../store/README.md"), "store/README.md");
    assert_eq!(links("a [b](c.md#d), `[e](f)` and [g](https://h)"), ["c.md#d"]);
}

/// The files and folders of this tree, as paths from its root.
struct Tree {
    root: PathBuf,
    paths: BTreeSet<String>,
}

impl Tree {
    fn read() -> Self {
        let mut tree =
            Self { root: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), paths: BTreeSet::new() };
        tree.walk("");
        tree
    }

    fn walk(&mut self, folder: &str) {
        for entry in fs::read_dir(self.root.join(folder)).expect("a folder can be read").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let is_folder = entry.file_type().is_ok_and(|t| t.is_dir());
            if is_folder && ["target", ".git", ".x", "corpus", "artifacts"].contains(&name.as_str()) {
                continue;
            }
            if is_folder {
                self.walk(&path);
            }
            self.paths.insert(path);
        }
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).expect("a file can be read")
    }

    /// The pages of the book, as paths from the root.
    fn pages_of_the_book(&self) -> impl Iterator<Item = String> {
        links(&self.text("docs/SUMMARY.md")).into_iter().map(|page| resolved("docs", &page))
    }

    /// Every document but the change log, which speaks of what is gone.
    fn documents(&self) -> impl Iterator<Item = &String> {
        self.paths.iter().filter(|p| p.ends_with(".md") && *p != "CHANGELOG.md")
    }

    /// A word that names a file by its ending, or begins with a folder of the root. Words with blanks, placeholders or
    /// variables are none, nor are paths of the host.
    fn is_path(&self, word: &str) -> bool {
        let placeholder = |c: char| c.is_whitespace() || "<>…$=:\"'()[]|~".contains(c);
        if word.contains(placeholder)
            || word.starts_with('/')
            || word.chars().all(|c| !c.is_ascii_lowercase())
        {
            return false;
        }
        let first = word.split('/').next().unwrap_or_default();
        let in_root = word.contains('/') && self.paths.contains(first);
        in_root || (FILE_ENDINGS.iter().any(|e| word.ends_with(e)) && word.contains('/'))
    }

    /// Whether a path exists from the root or from the document's folder, or ends an existing path (`cta/slots/mod.rs`).
    fn has(&self, folder: &str, path: &str) -> bool {
        let path = path.trim_start_matches("./").trim_end_matches('/');
        let from_folder = match path.strip_prefix("../") {
            Some(rest) => join(folder.rsplit_once('/').map_or("", |(parent, _)| parent), rest),
            None => join(folder, path),
        };
        self.paths.iter().any(|p| {
            matches(p, path) || matches(p, &from_folder) || {
                let ending = p.match_indices('/').map(|(at, _)| &p[at + 1..]).find(|end| matches(end, path));
                ending.is_some()
            }
        })
    }
}

fn join(folder: &str, path: &str) -> String {
    if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
}

/// What stands between back ticks, outside blocks of code.
fn words_in_back_ticks(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// `a/{b,c}.rs` names two files.
fn alternatives(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else { return vec![word.to_owned()] };
    let Some((inside, after)) = rest.split_once('}') else { return vec![word.to_owned()] };
    inside.split(',').map(|one| format!("{before}{}{after}", one.trim())).collect()
}

/// Whether a path is what a pattern says, in which each `*` stands for anything.
fn matches(path: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        let found =
            if parts.peek().is_none() { rest.ends_with(part).then_some(rest.len()) } else { rest.find(part) };
        match found {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.is_empty()
}

#[test]
fn a_star_in_a_path_stands_for_anything() {
    assert!(matches("wire/ngap/testdata/judge.py", "wire/*/testdata/judge.py"));
    assert!(matches("docs/conformance/nas.md", "docs/conformance/*.md"));
    assert!(!matches("docs/conformance/nas.rs", "docs/conformance/*.md"));
    assert!(!matches("wire/nas", "wire/nas/src"));
    assert_eq!(alternatives("node/{pair,replica}.rs"), ["node/pair.rs", "node/replica.rs"]);
}
