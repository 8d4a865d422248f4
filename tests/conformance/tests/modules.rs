//! node/README.md lists node's modules, lowest first, and each uses those of earlier lines alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The number of the line of each module, from the first block of the README.
fn listed(readme: &str) -> BTreeMap<String, usize> {
    let block = readme.lines().skip_while(|line| *line != "```text").skip(1);
    let lines = block.take_while(|line| *line != "```").enumerate();
    lines.flat_map(|(n, line)| line.split_whitespace().map(move |module| (module.to_owned(), n))).collect()
}

/// The modules that a file names by `crate::module` or `crate::{module, …}`, outside comments.
fn used(text: &str) -> BTreeSet<String> {
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            _ if !is_whole => {}
            Some(group) => found.extend(names_of_group(group)),
            None => found.extend(first_name(rest)),
        }
    }
    found
}

/// The first names of `a::b, c::{d, e}, f}`.
fn names_of_group(group: &str) -> Vec<String> {
    let (mut depth, mut begins, mut names) = (1, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => begins = true,
            c if begins && !c.is_whitespace() => {
                names.extend(first_name(&group[at..]));
                begins = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// The name with which a path begins.
fn first_name(path: &str) -> Option<String> {
    let name = path.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// The Rust files of a folder, with those of the folders in it.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { files_of(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Uses that are against the order: `module uses module`.
fn wrong(listed: &BTreeMap<String, usize>, module: &str, used: &BTreeSet<String>) -> Vec<String> {
    let is_lower = |other: &&String| listed.get(*other).is_none_or(|line| *line < listed[module]);
    let others = used.iter().filter(|other| *other != module && !is_lower(other));
    others.map(|other| format!("{module} uses {other}")).collect()
}

#[test]
fn each_module_of_node_uses_only_modules_below_it() {
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../node");
    let listed = listed(&fs::read_to_string(node.join("README.md")).unwrap());
    let source = node.join("src");
    let mut found = BTreeSet::new();
    let mut against = Vec::new();
    for file in files_of(&source) {
        let first = file.strip_prefix(&source).unwrap().components().next().unwrap();
        let module = first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        assert!(listed.contains_key(&module), "node/README.md does not list the module {module}");
        let text = fs::read_to_string(&file).unwrap();
        let of_file = wrong(&listed, &module, &used(&text));
        against.extend(of_file.into_iter().map(|line| format!("{}: {line}", file.display())));
        found.insert(module);
    }
    let listed: BTreeSet<String> = listed.into_keys().collect();
    assert_eq!(listed, found, "modules that node/README.md lists, and those that are there");
    assert!(against.is_empty(), "against the order of node/README.md:\n{}", against.join("\n"));
}

#[test]
fn a_use_against_the_order_is_found() {
    let listed = listed("# node\n```text\nclock\nconfig  sbfd\nunit\n```\n");
    assert_eq!((listed["clock"], listed["sbfd"], listed["unit"]), (0, 1, 2));
    let text = "use crate::{clock, config::{Config, Limits}, unit::{self, Share}};\n// crate::comment\nlet a = crate::sbfd::Peer;\nxcrate::no::x;";
    let used = used(text);
    assert_eq!(used, BTreeSet::from(["clock", "config", "sbfd", "unit"].map(str::to_owned)));
    assert_eq!(wrong(&listed, "config", &used), ["config uses sbfd", "config uses unit"]);
    assert_eq!(wrong(&listed, "unit", &used), [""; 0]);
}
