//! ARCHITECTURE.md names the dependencies between folders as the manifests have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Edges = BTreeMap<String, BTreeSet<String>>;

/// The lines `folder ─► folder, folder` of ARCHITECTURE.md.
fn documented(text: &str) -> Edges {
    let lines = text.lines().filter_map(|line| line.split_once("─►"));
    let folders =
        |list: &str| list.split(',').map(|f| f.trim().to_owned()).filter(|f| !f.is_empty()).collect();
    lines.map(|(from, to)| (from.trim().to_owned(), folders(to))).collect()
}

/// The folder of the list that a crate's path is in: the longest that fits.
fn folder_of<'a>(path: &str, folders: &'a Edges) -> Option<&'a str> {
    let inside = |folder: &&String| path == folder.as_str() || path.starts_with(&format!("{folder}/"));
    folders.keys().filter(inside).max_by_key(|folder| folder.len()).map(String::as_str)
}

/// The paths of the workspace's crates by name, from the table `[workspace.dependencies]` and the list of members.
fn crates(root: &Path, manifest: &str) -> BTreeMap<String, String> {
    let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let paths = members.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next());
    paths
        .map(|path| {
            let text = fs::read_to_string(root.join(path).join("Cargo.toml")).unwrap();
            let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
            (name.unwrap().to_owned(), path.to_owned())
        })
        .collect()
}

/// The names under `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|n| n.starts_with("whimbrel"))
        .collect()
}

#[test]
fn architecture_names_each_dependency_between_folders_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documented = documented(&fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap());
    let crates = crates(&root, &fs::read_to_string(root.join("Cargo.toml")).unwrap());
    assert!(crates.len() > 30, "{crates:?}");
    let mut found: Edges = documented.keys().map(|folder| (folder.clone(), BTreeSet::new())).collect();
    for path in crates.values() {
        let from =
            folder_of(path, &documented).unwrap_or_else(|| panic!("ARCHITECTURE.md has no line for {path}"));
        let manifest = fs::read_to_string(root.join(path).join("Cargo.toml")).unwrap();
        for name in dependencies(&manifest) {
            let to = folder_of(&crates[name], &documented).unwrap();
            if to != from {
                found.get_mut(from).unwrap().insert(to.to_owned());
            }
        }
    }
    for (folder, is) in &found {
        assert_eq!(
            &documented[folder], is,
            "dependencies of {folder}: ARCHITECTURE.md on the left, the manifests on the right"
        );
    }
}

#[test]
fn a_dependency_that_is_not_documented_is_found() {
    let edges = documented("wire\nnode ─► wire, control\ncontrol ─► wire\nwire ─► \n");
    assert_eq!(folder_of("node", &edges), Some("node"));
    assert_eq!(folder_of("wire/ids", &edges), Some("wire"));
    assert_eq!(folder_of("wires", &edges), None);
    assert_eq!(
        dependencies(
            "[package]\n[dependencies]\nwhimbrel-ids.workspace = true\nserde = \"1\"\n[x]\nwhimbrel-y = 1"
        ),
        ["whimbrel-ids"]
    );
    assert_eq!(edges["node"], BTreeSet::from(["control".into(), "wire".into()]));
}

#[test] // a core in service must not record what passes, or report more than it measured
fn no_package_is_built_with_a_feature() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let x = fs::read_to_string(root.join("x")).unwrap();
    let package = x.split("\ncmd_package() {").nth(1).and_then(|rest| rest.split("\n}\n").next()).unwrap();
    assert!(package.contains("cargo build") && !package.contains("--features"), "{package}");
    for path in ["node/Cargo.toml", "programs/whimbrel/Cargo.toml", "programs/lab/Cargo.toml"] {
        let manifest = fs::read_to_string(root.join(path)).unwrap();
        assert!(manifest.contains("\ndemonstrations = [") && !manifest.contains("\ndefault = "), "{path}");
    }
}
