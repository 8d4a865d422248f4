//! The lists and marks of this tree can be read.

use std::path::Path;

#[test] // CONTRIBUTING.md: a list's line is a case, no two are the same, a mark at a test names its specification
fn lists_and_marks_are_well_formed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (table, wrong) = whimbrel_conformance::generate(&root).expect("the tree can be read");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(table.contains("| §5.5.1.2.8 c |"), "the cases are in the table");
}
