//! Joins cases with code and tests, and writes the table.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::cases::{Case, List};
use crate::mark::Mark;
use crate::tree::{FOLDERS, Found, Test};

/// Files and tests that one line shows; the rest is counted.
const SHOWN: usize = 3;

#[derive(Default)]
struct Totals {
    cases: usize,
    out_of_scope: usize,
    code: usize,
    tests: usize,
}

/// The whole file.
pub fn write(lists: &[List], found: &Found) -> String {
    let mut body = String::new();
    let mut summary = String::new();
    let mut all = Totals::default();
    let mut met = BTreeSet::new();
    for list in lists {
        let mut totals = Totals::default();
        let _ = write!(body, "\n## {}\n", list.title);
        for (heading, cases) in &list.sections {
            if !heading.is_empty() {
                let _ = write!(body, "\n### {heading}\n");
            }
            body.push_str("\n| clause | case | code | test |\n| --- | --- | --- | --- |\n");
            for case in cases {
                line(&mut body, case, found, &mut totals, &mut met);
            }
        }
        row(&mut summary, &list.title, &totals);
        all.cases += totals.cases;
        all.out_of_scope += totals.out_of_scope;
        all.code += totals.code;
        all.tests += totals.tests;
    }
    let mut text = String::from(
        "<!-- Written by `./x conformance`: change docs/conformance/*.md, or the marks. -->\n# Conformance\n\n",
    );
    let served = all.cases - all.out_of_scope;
    let _ = writeln!(
        text,
        "**{} cases; {served} in scope, of which {} have code and {} have a test; {} without test.**\n",
        all.cases,
        all.code,
        all.tests,
        served - all.tests
    );
    text.push_str(
        "The cases are taken from the clauses ([conformance/](conformance/)) before they are built. Code is the file whose \
         comments name the clause, or the clause around it; a test is one that names clause and case \
         ([CONTRIBUTING.md](../CONTRIBUTING.md)). What has none is **missing**.\n\n",
    );
    text.push_str("| list | cases | out of scope | with code | with test | missing |\n| --- | --: | --: | --: | --: | --: |\n");
    text.push_str(&summary);
    text.push_str(&body);
    strays(&mut text, lists, found, &met);
    text
}

fn row(out: &mut String, title: &str, totals: &Totals) {
    let missing = totals.cases - totals.out_of_scope - totals.tests;
    let _ = writeln!(
        out,
        "| {title} | {} | {} | {} | {} | {missing} |",
        totals.cases, totals.out_of_scope, totals.code, totals.tests
    );
}

fn line(out: &mut String, case: &Case, found: &Found, totals: &mut Totals, met: &mut BTreeSet<Mark>) {
    totals.cases += 1;
    let text = case.text.replace('|', "\\|");
    let tests = tests_of(case, found, met);
    if let Some(why) = &case.out_of_scope {
        totals.out_of_scope += 1;
        let _ = writeln!(out, "| {} | {text} | out of scope: {why} | |", case.written);
        return;
    }
    let files = code_of(&case.mark, found);
    totals.code += usize::from(!files.is_empty());
    totals.tests += usize::from(!tests.is_empty());
    let files: Vec<_> = files.iter().map(|f| format!("[{f}](../{f})")).collect();
    let tests: Vec<_> =
        tests.iter().map(|t| format!("[{}](../{})", t.name.replace('|', "\\|"), t.file)).collect();
    let _ = writeln!(out, "| {} | {text} | {} | {} |", case.written, cell(&files), cell(&tests));
}

fn cell(entries: &[String]) -> String {
    match entries.len() {
        0 => "**missing**".to_owned(),
        n if n <= SHOWN => entries.join("<br>"),
        n => format!("{}<br>and {} more", entries[..SHOWN].join("<br>"), n - SHOWN),
    }
}

/// Tests that name the clause and what of it; of a clause as a whole, each that names the clause.
fn tests_of(case: &Case, found: &Found, met: &mut BTreeSet<Mark>) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for (mark, named) in &found.tests {
        let same = mark.spec == case.mark.spec && mark.clause == case.mark.clause;
        if same && (mark.qualifier == case.mark.qualifier || case.mark.qualifier.is_empty()) {
            if mark.qualifier == case.mark.qualifier {
                met.insert(mark.clone());
            }
            for test in named {
                if !tests.contains(test) {
                    tests.push(test.clone());
                }
            }
        }
    }
    tests
}

/// Files that name the clause, or the nearest one around it of three numbers at least.
fn code_of(mark: &Mark, found: &Found) -> Vec<String> {
    let mut clause = mark.clause.as_str();
    loop {
        if let Some(files) = found.code.get(&(mark.spec.clone(), clause.to_owned())) {
            let mut files = files.clone();
            let rank = |f: &String| FOLDERS.iter().position(|c| f.starts_with(c)).unwrap_or(FOLDERS.len());
            files.sort_by_key(|f| (rank(f), f.clone()));
            files.dedup();
            return files;
        }
        match clause.rsplit_once('.') {
            Some((outer, _)) if outer.matches('.').count() >= 2 => clause = outer,
            _ => return Vec::new(),
        }
    }
}

/// Marks of tests that meet no case of the lists, though their specification is listed: a case that the list lacks, or a
/// clause mistyped.
fn strays(out: &mut String, lists: &[List], found: &Found, met: &BTreeSet<Mark>) {
    let cases = || lists.iter().flat_map(|l| &l.sections).flat_map(|(_, cases)| cases);
    // Of a chapter that is listed: the chapters of messages and elements are the codecs' business.
    let chapter = |m: &Mark| (m.spec.clone(), m.clause.split('.').take(2).collect::<Vec<_>>().join("."));
    let listed: BTreeSet<_> = cases().map(|c| chapter(&c.mark)).collect();
    let whole: BTreeSet<(&str, &str)> = cases()
        .filter(|c| c.mark.qualifier.is_empty())
        .map(|c| (c.mark.spec.as_str(), c.mark.clause.as_str()))
        .collect();
    let strays: Vec<_> = found
        .tests
        .iter()
        .filter(|(m, _)| listed.contains(&chapter(m)) && !met.contains(*m))
        .filter(|(m, _)| !whole.contains(&(m.spec.as_str(), m.clause.as_str())))
        .collect();
    if strays.is_empty() {
        return;
    }
    out.push_str("\n## Clauses that tests name and the lists do not\n\n| clause | test |\n| --- | --- |\n");
    for (mark, tests) in strays {
        let qualifier =
            if mark.qualifier.is_empty() { String::new() } else { format!(" {}", mark.qualifier) };
        let tests: Vec<_> = tests.iter().map(|t| format!("[{}](../{})", t.name, t.file)).collect();
        let _ = writeln!(out, "| TS {} §{}{qualifier} | {} |", mark.spec, mark.clause, cell(&tests));
    }
}
