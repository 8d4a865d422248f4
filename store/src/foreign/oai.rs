//! Subscribers as OpenAirInterface's UDR keeps them: a MySQL database whose tables have the columns of TS 29.505, with JSON in those that
//! are structured. Its dump is read as SQL text, and each row becomes the document that free5GC has for the same resource.

use std::io::{self, BufRead, Read};

use serde_json::{Value, json};

use super::sql::{self, SqlRow};
use super::{ARRAY_OCTETS_MAX, DocumentPosition};
use crate::import::ImportProblem;

/// Tables that hold a subscriber's parts.
const TABLES: [&str; 3] =
    ["AuthenticationSubscription", "AccessAndMobilitySubscriptionData", "SessionManagementSubscriptionData"];

/// A row of a dump, as it is imported.
pub(super) enum DumpPart {
    /// A document in the form of free5GC's.
    Document(Value),
    /// A row of another table.
    OtherTable(String),
    Problem(ImportProblem),
}

/// Reads the rows of a dump. Errors: the file cannot be read.
pub(super) fn documents(
    input: &mut dyn BufRead,
    file: &std::sync::Arc<str>,
    each: &mut dyn FnMut(&DocumentPosition, DumpPart),
) -> io::Result<()> {
    let mut octets = Vec::new();
    let read = input.take(ARRAY_OCTETS_MAX).read_to_end(&mut octets)?;
    let mut place = |line, part| each(&DocumentPosition { file: file.clone(), line }, part);
    let problem = |text: &str| DumpPart::Problem(ImportProblem::Json(text.to_owned()));
    if read as u64 == ARRAY_OCTETS_MAX {
        place(1, problem("the dump is larger than 2 GiB: dump the tables of subscribers alone"));
        return Ok(());
    }
    let Ok(text) = std::str::from_utf8(&octets) else {
        place(1, problem("the dump is not UTF-8: dump it with --default-character-set=utf8mb4"));
        return Ok(());
    };
    let rows = sql::rows(text, &mut |row: SqlRow| {
        let line = row.line;
        place(line, part(row));
    });
    if let Err((line, why)) = rows {
        place(line, problem(why));
    }
    Ok(())
}

fn part(row: SqlRow) -> DumpPart {
    if !TABLES.contains(&row.table.as_str()) {
        return DumpPart::OtherTable(row.table);
    }
    let mut columns = row.columns;
    columns.retain(|_, value| !value.is_null());
    // The column's name in MySQL; the value is the IMSI without its prefix.
    if let Some(Value::String(imsi)) = columns.remove("ueid") {
        columns.insert("ueId".into(), json!(format!("imsi-{}", imsi.trim_start_matches("imsi-"))));
    }
    // In a table without JSON columns the structured ones are texts of another form, which free5GC's reader reports.
    DumpPart::Document(Value::Object(columns))
}
