//! The lists of cases: `docs/conformance/*.md`. A title that names a specification is the specification of the lines under
//! it; a line `- §5.5.1.2.8 d: what happens` is a case, in the form of a mark; `(out of scope: why)` at its end says that the
//! product does not do it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::mark::{self, Mark};

/// One case of a clause.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its clause and what of it.
    pub mark: Mark,
    /// The clause as it was written.
    pub written: String,
    /// The case in the words of the list.
    pub text: String,
    /// Why the product does not do it, where it does not.
    pub out_of_scope: Option<String>,
}

/// The cases of one file, in its order, under their headings.
#[derive(Clone, Debug)]
pub struct List {
    /// The file's title.
    pub title: String,
    /// Headings and the cases under each.
    pub sections: Vec<(String, Vec<Case>)>,
}

/// Reads all lists of a folder, by name; and what is wrong in them.
///
/// # Errors
/// What could not be read.
pub fn read(folder: &Path) -> io::Result<(Vec<List>, Vec<String>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    let mut lists = Vec::new();
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        if name == "README.md" || !name.ends_with(".md") {
            continue;
        }
        let list = parse(&name, &std::fs::read_to_string(file.path())?, &mut wrong);
        for case in list.sections.iter().flat_map(|(_, cases)| cases) {
            if !seen.insert(case.mark.clone()) {
                wrong.push(format!("{name}: {} stands twice", case.written));
            }
        }
        lists.push(list);
    }
    Ok((lists, wrong))
}

fn parse(name: &str, text: &str, wrong: &mut Vec<String>) -> List {
    let mut list = List { title: String::new(), sections: Vec::new() };
    let mut spec = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            title.clone_into(&mut list.title);
            if title.starts_with("TS ") {
                title.chars().take(9).collect::<String>().clone_into(&mut spec);
            }
        } else if let Some(heading) = line.strip_prefix("## ") {
            list.sections.push((heading.to_owned(), Vec::new()));
        } else if let Some(line) = line.strip_prefix("- ") {
            if list.sections.is_empty() {
                list.sections.push((String::new(), Vec::new()));
            }
            match (case(&spec, line), list.sections.last_mut()) {
                (Some(case), Some((_, cases))) => cases.push(case),
                _ => wrong.push(format!("{name}: no case: {line}")),
            }
        }
    }
    list
}

fn case(spec: &str, line: &str) -> Option<Case> {
    let (written, text) = line.split_once(": ")?;
    let whole = if written.starts_with("TS ") { written.to_owned() } else { format!("{spec} {written}") };
    let mut marks = mark::parse(&whole).into_iter();
    let (Some(mark), None) = (marks.next(), marks.next()) else { return None };
    let (text, out_of_scope) = match text.split_once(" (out of scope: ") {
        Some((text, why)) => (text, Some(why.trim_end_matches(')').to_owned())),
        None => (text, None),
    };
    Some(Case { mark, written: written.to_owned(), text: text.to_owned(), out_of_scope })
}
