//! The ratchet on names and docs, on a tree of its own.

use std::fs;
use std::path::PathBuf;

use whimbrel_conformance::names::{DOCS, TYPES, check, declared_type, docs};

/// A tree of crates that is gone with the test.
struct Crates(PathBuf);

impl Crates {
    fn new(name: &str, folders: &[&str]) -> Self {
        let root = std::env::temp_dir().join(format!("whimbrel-names-{name}-{}", std::process::id()));
        let crates = Self(root);
        folders.iter().for_each(|folder| crates.write(&format!("{folder}/Cargo.toml"), ""));
        fs::create_dir_all(crates.0.join("tests/conformance/words")).unwrap();
        crates
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Crates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_type_name_counts_in_each_crate_but_in_programs_and_a_third_crate_fails() {
    let crates = Crates::new("types", &["user", "user/io", "sim", "programs/a"]);
    for path in [
        "user/src/a.rs",
        "user/src/b.rs",
        "user/io/src/lib.rs",
        "programs/a/src/main.rs",
        "sim/tests/main.rs",
    ] {
        crates.write(path, "pub(crate) struct Held<T>(T);\nstruct Error;\n");
    }
    let outcome = check(&crates.0, true).unwrap();
    assert!(outcome.risen.is_empty() && outcome.types == 0, "{outcome:?}");
    crates.write("sim/src/lib.rs", "/// A doc of enough words.\nenum Held {}\npub struct Error;\n");
    let outcome = check(&crates.0, false).unwrap();
    assert_eq!(outcome.risen.len(), 1, "{outcome:?}");
    assert!(outcome.risen[0].contains("`Held` stands in 3 crates, 2 are allowed"), "{outcome:?}");
    // An update does not let it in; a table that is not there is written as the tree is.
    assert_eq!(check(&crates.0, true).unwrap().risen.len(), 1);
    assert_eq!(check(&crates.0, false).unwrap().risen.len(), 1);
    fs::remove_file(crates.0.join(TYPES)).unwrap();
    assert!(check(&crates.0, true).unwrap().risen.is_empty());
    assert!(check(&crates.0, false).unwrap().risen.is_empty());
    crates.write("sim/src/lib.rs", "enum HeldPacket {}\n");
    assert_eq!(check(&crates.0, true).unwrap().fallen, 3);
    assert_eq!(check(&crates.0, false).unwrap().fallen, 0);
}

#[test]
fn docs_that_say_too_little_are_counted_by_folder_and_a_count_that_rises_fails() {
    let crates = Crates::new("docs", &["user", "sim"]);
    crates.write(
        "user/src/a.rs",
        "//! The name.\n\n/// What\n/// it is.\nstruct A;\n/// `AMF-UE-NGAP-ID`.\nstruct B;\n",
    );
    check(&crates.0, true).unwrap();
    let outcome = check(&crates.0, false).unwrap();
    assert!(outcome.risen.is_empty(), "{outcome:?}");
    assert_eq!((outcome.docs, outcome.short, outcome.opening), (3, 1, 1));
    crates.write("sim/src/a.rs", "/// The name.\n/// Whether it is named.\nstruct A;\n/// Why.\nstruct B;\n");
    let risen = check(&crates.0, false).unwrap().risen;
    assert_eq!(risen, ["sim: 1 docs have one or two words; say what the name does not (0 are allowed)"]);
    crates.write("sim/src/a.rs", "");
    crates.write("user/src/a.rs", "");
    assert_eq!(check(&crates.0, true).unwrap().fallen, 2);
    let table = fs::read_to_string(crates.0.join(DOCS)).unwrap();
    assert!(table.contains("user") && !table.contains('1'), "{table}");
}

#[test]
fn declarations_of_types_are_read_at_any_depth_and_associated_types_are_none() {
    for (line, name) in [
        ("pub struct Slot<'a> {", Some("Slot")),
        ("    enum Step {", Some("Step")),
        ("pub(in crate::a) trait Port: Send {", Some("Port")),
        ("pub type Result<T> = core::result::Result<T, Error>;", Some("Result")),
        ("    type Item = u8;", None),
        ("let struct_of = 1;", None),
        ("// struct Slot is gone", None),
        ("pub fn new() -> Self {", None),
    ] {
        assert_eq!(declared_type(line), name, "{line}");
    }
    assert_eq!(
        docs("/// One\n/// two.\n\n/// Three.\n//// none\n//! Four.\n"),
        ["One two.", "Three.", "Four."]
    );
}
