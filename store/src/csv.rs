//! Rows of separated values (RFC 4180), with the line on which each begins. Commas, semicolons or tabs separate them: the
//! first row decides.

use std::io::{self, BufRead, Read};

/// Octets of a row at most: a subscription of all slices and DNNs that are allowed is a quarter of this.
pub(crate) const ROW_OCTETS_MAX: usize = 1 << 20;

/// What may separate the fields of a row; where the first row has none of them, or as many of each, the earlier one.
const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// Why a row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowError {
    /// A quotation mark where none may be, or one that is never closed.
    Quotes,
    /// More than [`ROW_OCTETS_MAX`].
    TooLong,
    /// The row is not UTF-8.
    Encoding,
}

/// A row: its fields, unquoted.
pub(crate) struct CsvRow {
    pub(crate) line: u64,
    pub(crate) fields: Result<Vec<String>, RowError>,
}

/// Reads rows; empty lines and lines that begin with `#` are passed over.
pub(crate) struct CsvRows<R> {
    input: R,
    line: u64,
    /// Known once the first row is read.
    separator: Option<char>,
}

impl<R: BufRead> CsvRows<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: 0, separator: None }
    }

    /// The next row, or `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<CsvRow>> {
        loop {
            let line = self.line + 1;
            let mut text = Vec::new();
            if !self.read_line(&mut text)? {
                return Ok(None);
            }
            // A byte order mark, as spreadsheets write it.
            if line == 1 && text.starts_with("\u{feff}".as_bytes()) {
                text.drain(..3);
            }
            if text.starts_with(b"#") || text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            // A line break within quotation marks belongs to the row.
            while text.iter().filter(|&&c| c == b'"').count() % 2 == 1 && text.len() <= ROW_OCTETS_MAX {
                if !self.read_line(&mut text)? {
                    break;
                }
            }
            let fields = if text.len() > ROW_OCTETS_MAX { Err(RowError::TooLong) } else { self.split(text) };
            return Ok(Some(CsvRow { line, fields }));
        }
    }

    fn split(&mut self, text: Vec<u8>) -> Result<Vec<String>, RowError> {
        let text = String::from_utf8(text).map_err(|_| RowError::Encoding)?;
        let row = text.trim_end_matches(['\r', '\n']);
        split(row, *self.separator.get_or_insert_with(|| separator_of(row)))
    }

    /// Appends a line and its break; `false` at the end. Of a line that is too long, the rest is passed over.
    fn read_line(&mut self, text: &mut Vec<u8>) -> io::Result<bool> {
        let room = (ROW_OCTETS_MAX + 1).saturating_sub(text.len());
        let read = self.input.by_ref().take(room as u64).read_until(b'\n', text)?;
        if read == 0 {
            return Ok(false);
        }
        if read == room && text.last() != Some(&b'\n') {
            self.input.skip_until(b'\n')?;
        }
        self.line += 1;
        Ok(true)
    }
}

/// The separator that a row has most often outside of quotation marks.
fn separator_of(row: &str) -> char {
    let unquoted = || row.split('"').step_by(2).flat_map(str::chars);
    let count = |separator| unquoted().filter(|c| *c == separator).count();
    let [first, ..] = SEPARATORS;
    SEPARATORS.into_iter().fold(first, |most, s| if count(s) > count(most) { s } else { most })
}

fn split(row: &str, separator: char) -> Result<Vec<String>, RowError> {
    let mut rest = row;
    let mut fields = Vec::new();
    loop {
        let (field, after) = match rest.trim_start_matches(' ').strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (field, after) = rest.split_at(rest.find(separator).unwrap_or(rest.len()));
                if field.contains('"') {
                    return Err(RowError::Quotes);
                }
                (field.trim().to_owned(), after)
            }
        };
        fields.push(field);
        match after.trim_start_matches(' ').strip_prefix(separator) {
            Some(after) => rest = after,
            None if after.trim().is_empty() => return Ok(fields),
            None => return Err(RowError::Quotes),
        }
    }
}

/// A quoted field from behind its opening mark, and what comes after the closing one.
fn unquote(mut rest: &str) -> Result<(String, &str), RowError> {
    let mut field = String::new();
    loop {
        let (part, after) = rest.split_once('"').ok_or(RowError::Quotes)?;
        field.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                field.push('"');
                rest = after;
            }
            None => return Ok((field, after)),
        }
    }
}

/// A field as it is written: quoted where it must be.
pub(crate) fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r', '#']) || field.trim() != field {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(text: &[u8]) -> Vec<(u64, Result<Vec<String>, RowError>)> {
        let mut rows = CsvRows::new(text);
        std::iter::from_fn(|| rows.next().unwrap()).map(|r| (r.line, r.fields)).collect()
    }

    #[test] // RFC 4180 §2
    fn rows_are_split() {
        let found = rows(b"\xef\xbb\xbfa, b ,c\r\n\n# note\n\"x, \"\"y\"\"\n\",,\n1,\"2\"3\n\"open\n");
        let ok = |f: &[&str]| Ok(f.iter().map(|s| (*s).to_owned()).collect());
        let expected: [(u64, Result<Vec<String>, RowError>); 4] = [
            (1, ok(&["a", "b", "c"])),
            (4, ok(&["x, \"y\"\n", "", ""])),
            (6, Err(RowError::Quotes)),
            (7, Err(RowError::Quotes)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_first_row_decides_what_separates_fields() {
        for (text, separator) in [
            ("IMSI;Ki;OPC\r\n1;2,5;3\r\n", ';'),
            ("IMSI\tKi\tOPC\n1\t2,5\t3\n", '\t'),
            ("\"IMSI,\";Ki; \"OPC\" \n1;\"2,5\"; \"3\" \n", ';'),
        ] {
            let found = rows(text.as_bytes());
            assert_eq!(found[0].1.as_ref().unwrap().len(), 3, "{separator:?}");
            let second: Vec<String> = ["1", "2,5", "3"].map(str::to_owned).into();
            assert_eq!(found[1], (2, Ok(second)), "{separator:?}");
        }
        assert_eq!(separator_of("imsi"), ',');
    }

    #[test]
    fn a_row_too_long_is_reported_and_the_next_is_read() {
        let mut text = vec![b'a'; ROW_OCTETS_MAX + 10];
        text.extend_from_slice(b"\nb\n");
        let found = rows(&text);
        assert_eq!(found[0], (1, Err(RowError::TooLong)));
        assert_eq!(found[1], (2, Ok(vec!["b".to_owned()])));
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(fields in proptest::collection::vec("[a-z\",#\n\r ]{0,8}", 2..5)) {
            let text = fields.iter().map(|f| quoted(f)).collect::<Vec<_>>().join(",") + "\n";
            let found = rows(text.as_bytes());
            prop_assume!(!text.starts_with('#') && !text.trim().is_empty());
            prop_assert_eq!(found, [(1, Ok(fields))]);
        }

        #[test]
        fn any_octets_are_answered(octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            rows(&octets);
        }
    }
}
