//! Writes docs/conformance.md, or with `--check` says whether it is what it would write.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.iter().any(|a| a == "--check");
    let root = arguments.iter().find(|a| !a.starts_with("--")).map_or(".", String::as_str);
    match run(Path::new(root), check) {
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
