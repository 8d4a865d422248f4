//! Writes docs/conformance.md, or with `--check` says whether it is what it would write. With `words`, checks the counts of denied
//! words, with `names` those of type names and docs; with `--update`, lowers them.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|a| a == option);
    let root = arguments
        .iter()
        .find(|a| !a.starts_with("--") && !["words", "names"].contains(&a.as_str()))
        .map_or(".", String::as_str);
    let root = Path::new(root);
    let done = if has("words") {
        words(root, has("--update"))
    } else if has("names") {
        names(root, has("--update"))
    } else {
        run(root, has("--check"))
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

fn names(root: &Path, update: bool) -> std::io::Result<bool> {
    let outcome = whimbrel_conformance::names::check(root, update)?;
    for line in &outcome.risen {
        eprintln!("names: {line}");
    }
    if outcome.fallen > 0 && !update {
        println!(
            "names: {} fewer than allowed: lower the counts with `./x lint names --update`",
            outcome.fallen
        );
    }
    let per_cent = outcome.opening as f64 * 100.0 / outcome.docs.max(1) as f64;
    println!(
        "names: {} type names in more than two crates; of {} docs, {} have one or two words and {} ({per_cent:.1} %) open with What, \
         Whether or It",
        outcome.types, outcome.docs, outcome.short, outcome.opening
    );
    Ok(outcome.risen.is_empty())
}
