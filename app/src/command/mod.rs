//! What each command does, one a file. A command fails with one sentence, which the caller prints.

pub(crate) mod check;

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
