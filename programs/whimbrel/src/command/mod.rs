//! What each command does, one a file. A command fails with one sentence, which the caller prints.

pub(crate) mod agency;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod broker;
pub(crate) mod capture;
pub(crate) mod check;
pub(crate) mod console;
pub(crate) mod cpf;
pub(crate) mod demo;
pub(crate) mod foresight;
pub(crate) mod gnb_config;
pub(crate) mod import;
pub(crate) mod locate;
pub(crate) mod log_level;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod operation;
pub(crate) mod packet_logger;
pub(crate) mod radio;
pub(crate) mod ran;
pub(crate) mod reference;
pub(crate) mod reflect;
pub(crate) mod relay;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod show;
pub(crate) mod subscriber;
pub(crate) mod support_bundle;
pub(crate) mod top;
pub(crate) mod unit;
pub(crate) mod why;

use std::io::Write;

/// Nothing, or the sentence that says what went wrong.
pub(crate) type Done = Result<(), String>;

/// Writes to standard output; a reader that has gone (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Done {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("the output cannot be written: {e}"))
        }
        _ => Ok(()),
    }
}

/// Writes a value as JSON that a person can read.
pub(crate) fn print_json(value: &serde_json::Value) -> Done {
    print(&(serde_json::to_string_pretty(value).unwrap_or_default() + "\n"))
}

/// A short time of the command line: `500us`, `1ms`, at most a second. Errors: one sentence.
pub(crate) fn short_time(text: &str) -> Result<std::time::Duration, String> {
    let unit =
        |name, micros: u64| Some(text.strip_suffix(name)?.trim().parse::<u64>().ok()?.saturating_mul(micros));
    let micros = unit("us", 1).or_else(|| unit("ms", 1_000)).filter(|micros| *micros <= 1_000_000);
    let micros = micros.ok_or_else(|| format!("`{text}` is no time: write 500us or 1ms, at most 1000ms"))?;
    Ok(std::time::Duration::from_micros(micros))
}

/// Rows under their heads, each column as wide as its widest cell.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
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
