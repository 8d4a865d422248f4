//! Writes docs/conformance.md, or with `--check` says whether it is what it would write. With `words`, checks the counts of denied
//! words; with `words --update`, lowers them.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|a| a == option);
    let root = arguments.iter().find(|a| !a.starts_with("--") && *a != "words").map_or(".", String::as_str);
    let done = match has("words") {
        true => words(Path::new(root), has("--update")),
        false => run(Path::new(root), has("--check")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, check: bool) -> std::io::Result<bool> {
    let (table, wrong) = whimbrel_conformance::generate(root)?;
    for line in &wrong {
        eprintln!("conformance: {line}");
    }
    let path = root.join("docs/conformance.md");
    let stands = std::fs::read_to_string(&path).unwrap_or_default() == table;
    let totals = table.lines().find(|l| l.starts_with("**")).unwrap_or_default().replace('*', "");
    if !check {
        std::fs::write(&path, &table)?;
        println!("docs/conformance.md: {totals}");
    } else if !stands {
        eprintln!("conformance: docs/conformance.md is not up to date; `./x conformance` writes it");
    }
    Ok(wrong.is_empty() && (stands || !check))
}

fn words(root: &Path, update: bool) -> std::io::Result<bool> {
    let outcome = whimbrel_conformance::words::check(root, update)?;
    for line in &outcome.risen {
        eprintln!("words: {line}");
    }
    if outcome.fallen > 0 && !update {
        println!(
            "words: {} fewer than allowed: lower the counts with `./x lint words --update`",
            outcome.fallen
        );
    }
    println!("words: {} to replace (docs/glossary.md)", outcome.total);
    Ok(outcome.risen.is_empty())
}
