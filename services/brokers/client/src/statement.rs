//! Settlement statements in files: the broker's certificate and the statement, as hexadecimal digits with comments behind `#`.

use std::path::Path;

use whimbrel_open::msg::Certificate;
use whimbrel_open::usage::Statement;

use crate::{hex, unhex};

/// Octets of a file: a million receipts, twice as many digits as octets.
const FILE_OCTETS_MAX: u64 = 1 << 30;

/// The text of a statement's file.
pub fn text(certificate: &Certificate, statement: &Statement) -> String {
    let totals = &statement.totals;
    format!(
        "# Settlement statement of broker {} for operator {}\n# {} receipts, {} octets paid, {} millionths; check it with `whimbrel open verify-statement`\n{}\n{}\n",
        statement.broker,
        statement.operator,
        statement.lines.len(),
        u128::from(totals.paid.0) + u128::from(totals.paid.1),
        totals.micros,
        hex(&certificate.to_octets()),
        hex(&statement.to_octets()),
    )
}

/// Reads one. Errors: one sentence.
pub fn read(path: &Path) -> Result<(Certificate, Statement), String> {
    let cannot = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
    let text = whimbrel_files::read_text(path, FILE_OCTETS_MAX).map_err(cannot)?;
    let mut lines =
        text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()).map(|l| unhex(l.trim()));
    let mut next = |what: &str| {
        let octets = lines.next().flatten();
        octets.ok_or_else(|| format!("{} does not hold {what} in hexadecimal digits", path.display()))
    };
    let (certificate, statement) = (next("a certificate")?, next("a statement")?);
    let wrong = |e| format!("{} is no statement: {e}", path.display());
    Ok((Certificate::parse(&certificate).map_err(wrong)?, Statement::parse(&statement).map_err(wrong)?))
}
