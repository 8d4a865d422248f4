//! The table of clauses, code and tests: `docs/conformance.md`, made of the cases that `docs/conformance/*.md` list and of
//! the marks that code and tests carry. CONTRIBUTING.md says what a mark looks like; [`mark`] reads them, [`cases`] reads
//! the lists, [`tree`] finds the marks in the tree, [`table`] joins and writes. Besides, [`words`]: the words that are not to be
//! written here, and [`names`]: type names and docs that say too little.

#![forbid(unsafe_code)]

pub mod cases;
pub mod mark;
pub mod names;
pub mod table;
pub mod tree;
pub mod words;

use std::path::Path;

/// The table of the tree at `root`, and what is wrong with its lists.
///
/// # Errors
/// What could not be read.
pub fn generate(root: &Path) -> std::io::Result<(String, Vec<String>)> {
    let (cases, mut wrong) = cases::read(&root.join("docs/conformance"))?;
    let found = tree::scan(root)?;
    wrong.extend(found.wrong.iter().cloned());
    Ok((table::write(&cases, &found), wrong))
}
