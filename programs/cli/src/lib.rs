//! What the command lines of all programs share: output, tables, pages that are made from the declarations of commands, and how a program ends.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "documents"))]
pub mod documents;
pub mod pages;
pub mod reference;

use std::io::Write;
use std::process::ExitCode;

/// Nothing, or the sentence that says what went wrong.
pub type Done = Result<(), String>;

/// The exit status of a command that is now one of another program.
const MOVED_STATUS: u8 = 2;

/// The exit status of a program whose command has ended; the sentence of a failure goes to standard error.
pub fn exit_status(ended: Result<ExitCode, String>) -> ExitCode {
    match ended {
        Ok(status) => status,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Ends a command that another program has now: `former` and `current` are its lines, as they are typed.
pub fn moved(former: &str, current: &str) -> ExitCode {
    let program = current.split(' ').next().unwrap_or_default();
    eprintln!("`{former}` is a command of the program {program} now: `{current}`");
    ExitCode::from(MOVED_STATUS)
}

/// Writes to standard output; a reader that has gone (`| head`) is no failure.
pub fn print(text: &str) -> Done {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("the output cannot be written: {e}"))
        }
        _ => Ok(()),
    }
}

/// Writes a value as JSON that a person can read.
pub fn print_json(value: &serde_json::Value) -> Done {
    print(&(serde_json::to_string_pretty(value).unwrap_or_default() + "\n"))
}

/// A short time of the command line: `500us`, `1ms`, at most a second. Errors: one sentence.
pub fn short_time(text: &str) -> Result<std::time::Duration, String> {
    let unit =
        |name, micros: u64| Some(text.strip_suffix(name)?.trim().parse::<u64>().ok()?.saturating_mul(micros));
    let micros = unit("us", 1).or_else(|| unit("ms", 1_000)).filter(|micros| *micros <= 1_000_000);
    let micros = micros.ok_or_else(|| format!("`{text}` is no time: write 500us or 1ms, at most 1000ms"))?;
    Ok(std::time::Duration::from_micros(micros))
}

/// Rows under their heads, each column as wide as its widest cell.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        rows.iter()
            .filter_map(|r| r.get(i))
            .map(|c| c.chars().count())
            .chain([heads[i].len()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(c, &w)| format!("{c:<w$}")).collect();
        padded.join("  ").trim_end().to_string() + "\n"
    };
    let mut text = line(heads.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["imsi-1".to_string(), "x".to_string()], vec!["i".to_string(), String::new()]];
        assert_eq!(table(&["SUPI", "B"], &rows), "SUPI    B\nimsi-1  x\ni\n");
    }
}
