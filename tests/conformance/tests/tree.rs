//! The lists and marks of this tree can be read.

use std::fs;
use std::path::Path;

#[test] // CONTRIBUTING.md: a list's line is a case, no two are the same, a mark at a test names its specification
fn lists_and_marks_are_well_formed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (table, wrong) = whimbrel_conformance::generate(&root).expect("the tree can be read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(table.contains("| §5.5.1.2.8 c |"), "the cases are in the table");
}

/// A crate's tests are one program, since each program is linked with all that the crate is made of. A file that `tests/main.rs` does not name
/// would never run.
#[test]
fn every_file_of_tests_is_in_the_test_program_of_its_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let mut wrong = Vec::new();
    for member in members.split('"').skip(1).step_by(2) {
        let folder = root.join(member).join("tests");
        let files = test_files(&folder);
        match fs::read_to_string(folder.join("main.rs")) {
            Ok(program) => wrong.extend(
                files
                    .iter()
                    .filter(|file| !names(&program, file))
                    .map(|file| format!("{member}/tests/main.rs: {file}")),
            ),
            Err(_) if files.len() > 1 => wrong.push(format!("{member}/tests has {files:?} and no main.rs")),
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Files that Cargo would take for test programs, by their paths in `folder`; none where there is no such folder.
fn test_files(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.join("main.rs").exists() {
            files.push(format!("{name}/main.rs"));
        } else if name.ends_with(".rs") && name != "main.rs" {
            files.push(name);
        }
    }
    files
}

fn names(program: &str, file: &str) -> bool {
    match file.split_once('/') {
        Some(_) => program.contains(&format!("#[path = \"{file}\"]")),
        None => program.contains(&format!("\nmod {};", file.trim_end_matches(".rs"))),
    }
}
