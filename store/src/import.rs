//! Bulk import: all of a file in one transaction, or nothing.

use core::fmt;
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::rc::Rc;
use std::sync::Arc;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use whimbrel_ids::Supi;

use crate::columns::ColumnHeader;
use crate::csv::{CsvRows, RowError};
use crate::error::StoreError;
use crate::foreign::{self, Core, Document, FlowCheck, ImportNote};
use crate::record::{InvalidRecord, RawRecord, SubscriberRecord};
use crate::store::{Store, TransactionWriter};
use crate::subscription::SubscribedFlow;

/// Bad lines that one report names; after these, reading stops.
pub const BAD_LINES_MAX: usize = 100;
/// How a list of subscribers is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Values separated by commas, semicolons or tabs, with a header line; the columns are in this crate's README.
    Csv,
    /// A JSON array of records, or one record after the other; also the documents of Open5GS's database.
    Json,
}

impl Format {
    /// How a list is written, by its first character; nothing is consumed.
    pub fn detect(input: &mut impl BufRead) -> io::Result<Self> {
        let begin = input.fill_buf()?;
        let begin = begin.strip_prefix("\u{feff}".as_bytes()).unwrap_or(begin);
        let first = begin.iter().find(|c| !c.is_ascii_whitespace());
        Ok(if matches!(first, Some(b'[' | b'{')) { Self::Json } else { Self::Csv })
    }
}

/// What an import does with a SUPI that the store has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExisting {
    /// It is an error.
    Refuse,
    /// The line replaces the record.
    Replace,
    /// The record stays.
    Skip,
}

/// Whether an import is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// The import is kept.
    Keep,
    /// It is checked whole, and then undone.
    Rehearse,
}

/// What an import did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Number of new subscribers.
    pub added: u64,
    /// Number of records that were replaced.
    pub replaced: u64,
    /// Lines passed over.
    pub skipped: u64,
    /// Headings of the columns that are not imported.
    pub ignored_columns: Vec<String>,
    /// Parts of another core's database that are not imported, or not as they were written.
    pub notes: Vec<ImportNote>,
}

/// A line that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The file, where several are imported at once.
    pub file: Option<Arc<str>>,
    /// Its number, from 1; of a record over several lines the first in CSV, the last in JSON. In BSON, the number of the document.
    pub line: u64,
    /// What is wrong with it.
    pub problem: ImportProblem,
}

/// What can be wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportProblem {
    /// There is no header line.
    NoHeader,
    /// The header names a column twice, perhaps by two headings.
    ColumnTwice(&'static str),
    /// The header lacks a column that every line needs.
    NoColumn(&'static str),
    /// A field that every line needs is empty.
    Missing(&'static str),
    /// The row has another number of fields than the header.
    FieldCount {
        /// Of the row.
        found: usize,
        /// Of the header.
        expected: usize,
    },
    /// A field that is not what its column holds.
    Field {
        /// The column with the fault.
        column: &'static str,
        /// What it holds.
        expected: &'static str,
    },
    /// A number that a spreadsheet has rounded, such as 9.9970E+14.
    Rounded(&'static str),
    /// OPc is not what K and OP give (TS 35.206 §8.2).
    OpAgainstOpc,
    /// SQN beside the offset that gives it.
    SqnTwice,
    /// The column `subscription` beside one of those that it contains.
    SubscriptionTwice(&'static str),
    /// The column `subscription` does not hold the JSON of a subscription.
    Subscription(String),
    /// Quotation marks are not balanced.
    Quotes,
    /// The line is longer than a megabyte.
    TooLong,
    /// The line is not UTF-8.
    Encoding,
    /// Not JSON, or not of a record.
    Json(String),
    /// A document of another core's database does not make a subscriber.
    Document {
        /// The subscriber, as the document names it.
        subscriber: String,
        /// What is wrong.
        why: String,
    },
    /// The record is not valid.
    Record(InvalidRecord),
    /// The SUPI is in the store already.
    Exists(Supi),
    /// The SUPI is on an earlier line.
    Repeated {
        /// The SUPI that stands there twice.
        supi: Supi,
        /// The earlier line.
        first: u64,
    },
    /// The MSISDN is another subscriber's.
    MsisdnTaken,
}

impl BadLine {
    /// With the file and the line of a document, of which `line` is the place among all so far.
    fn placed<'d>(mut self, place: &impl Fn(u64) -> Option<&'d Document>) -> Self {
        if let ImportProblem::Repeated { first, .. } = &mut self.problem {
            *first = place(*first).map_or(0, |document| document.line);
        }
        if let Some(document) = place(self.line) {
            (self.file, self.line) = (Some(Arc::clone(&document.file)), document.line);
        }
        self
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}, ")?;
        }
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl fmt::Display for ImportProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeader => {
                f.write_str("no column is named: begin the list with a header line such as imsi,k,opc")
            }
            Self::ColumnTwice(name) => write!(f, "two columns are headed {name}: remove or rename one"),
            Self::NoColumn("supi") => f.write_str("no column is headed imsi or supi: add it or rename one"),
            Self::NoColumn("k") => f.write_str("no column is headed k or ki: add it or rename one"),
            Self::NoColumn(name) => write!(f, "no column is headed {name}: add it or rename one"),
            Self::Missing(name) => write!(f, "{name} is missing"),
            Self::FieldCount { found, expected } => write!(
                f,
                "{found} fields where the header has {expected}: add what is missing, or quote a field that holds a separator"
            ),
            Self::Field { column, expected } => write!(f, "{column} must be {expected}"),
            Self::Rounded(name) => write!(
                f,
                "{name} was rounded by a spreadsheet: format the column as text there and export the list again"
            ),
            Self::OpAgainstOpc => f.write_str(
                "op and opc contradict each other (OPc follows from K and OP): keep the right one",
            ),
            Self::SqnTwice => f.write_str("sqn and sqn_offset contradict each other: give one of them"),
            Self::SubscriptionTwice(name) => {
                write!(f, "{name} and subscription contradict each other: give one of them")
            }
            Self::Subscription(e) => write!(f, "subscription is not valid: {e}"),
            Self::Quotes => f.write_str("quotation marks are not balanced"),
            Self::TooLong => f.write_str("the line is longer than a megabyte"),
            Self::Encoding => f.write_str("the line is not UTF-8: export the list as CSV in UTF-8"),
            Self::Json(e) => f.write_str(e),
            Self::Document { subscriber, why } => write!(f, "{subscriber}: {why}"),
            Self::Record(e) => fmt::Display::fmt(e, f),
            Self::Exists(supi) => write!(
                f,
                "{supi} is a subscriber already: remove the line, or have existing ones replaced or skipped (on-existing)"
            ),
            Self::Repeated { supi, first } => {
                write!(f, "{supi} is on line {first} already: remove one of the two")
            }
            Self::MsisdnTaken => {
                f.write_str("another subscriber has this msisdn: correct it or leave it empty")
            }
        }
    }
}

impl From<RowError> for ImportProblem {
    fn from(e: RowError) -> Self {
        match e {
            RowError::Quotes => Self::Quotes,
            RowError::TooLong => Self::TooLong,
            RowError::Encoding => Self::Encoding,
        }
    }
}

impl Store {
    /// Imports a list of subscribers in one transaction; `each` is called for each valid record.
    ///
    /// Errors: [`StoreError::Import`] with up to [`BAD_LINES_MAX`] bad lines; nothing is imported then.
    pub fn import(
        &mut self,
        input: impl BufRead,
        format: Format,
        on_existing: OnExisting,
        each: &mut dyn FnMut(Supi),
    ) -> Result<ImportCounts, StoreError> {
        self.import_all(Run::Keep, on_existing, each, |import| match format {
            Format::Csv => import.csv(input),
            Format::Json => import.json(input),
        })
    }

    /// Imports the subscribers of another core from the exported files of its database, in one transaction; `each` is called for
    /// each valid record, and flows that `check` refuses are left out. `Core` says which files are read.
    ///
    /// Errors: [`StoreError::Import`] with up to [`BAD_LINES_MAX`] bad documents; nothing is imported then.
    pub fn import_database(
        &mut self,
        core: Core,
        files: Vec<(String, Box<dyn BufRead>)>,
        on_existing: OnExisting,
        run: Run,
        check: &FlowCheck<'_>,
        each: &mut dyn FnMut(Supi),
    ) -> Result<ImportCounts, StoreError> {
        let database = foreign::read(core, files, check)?;
        let mut documents = database.documents;
        let imported = self.import_all(run, on_existing, each, |import| {
            import.imported.notes = database.notes.into_list();
            // The place of a document is counted as its line, and named when the import has ended.
            for (place, document) in documents.iter_mut().enumerate() {
                let record = document.take().and_then(|(name, value)| {
                    let record = ListedRecord::of(value).checked();
                    record.map_err(|e| ImportProblem::Document { subscriber: name, why: e.to_string() })
                });
                import.take(place as u64, record)?;
                if import.bad.len() == BAD_LINES_MAX {
                    break;
                }
            }
            Ok(())
        });
        let place = |at: u64| usize::try_from(at).ok().and_then(|at| documents.get(at));
        imported.map_err(|e| match e {
            StoreError::Import(bad) => {
                StoreError::Import(bad.into_iter().map(|b| b.placed(&place)).collect())
            }
            other => other,
        })
    }

    fn import_all(
        &mut self,
        run: Run,
        on_existing: OnExisting,
        each: &mut dyn FnMut(Supi),
        read: impl FnOnce(&mut Import<'_, '_>) -> Result<(), StoreError>,
    ) -> Result<ImportCounts, StoreError> {
        let done = self.change_if(run == Run::Keep, |writer| {
            let mut import = Import {
                writer,
                on_existing,
                each,
                lines: HashMap::new(),
                replaced_subscriptions: false,
                imported: ImportCounts::default(),
                bad: Vec::new(),
            };
            read(&mut import)?;
            import.finish()
        })?;
        self.clear_cache();
        Ok(done)
    }
}

/// The subscribers of a CSV list, without a store.
///
/// Errors: [`StoreError::Import`] with the first bad line; [`StoreError::Io`].
pub fn read_csv(input: impl BufRead) -> Result<Vec<SubscriberRecord>, StoreError> {
    let bad = |line, problem| StoreError::Import(vec![BadLine { file: None, line, problem }]);
    let mut rows = CsvRows::new(input);
    let Some(first) = rows.next()? else { return Err(bad(1, ImportProblem::NoHeader)) };
    let header = first.fields.map_err(ImportProblem::from).and_then(|f| ColumnHeader::read(&f));
    let mut header = header.map_err(|problem| bad(first.line, problem))?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let record = row.fields.map_err(ImportProblem::from).and_then(|f| header.record(&f));
        records.push(record.map_err(|problem| bad(row.line, problem))?);
    }
    Ok(records)
}

struct Import<'a, 'w> {
    writer: &'a mut TransactionWriter<'w>,
    on_existing: OnExisting,
    each: &'a mut dyn FnMut(Supi),
    /// The line of each SUPI so far.
    lines: HashMap<Supi, u64>,
    replaced_subscriptions: bool,
    imported: ImportCounts,
    bad: Vec<BadLine>,
}

impl Import<'_, '_> {
    fn csv(&mut self, input: impl BufRead) -> Result<(), StoreError> {
        let mut rows = CsvRows::new(input);
        let Some(first) = rows.next()? else {
            self.bad.push(BadLine { file: None, line: 1, problem: ImportProblem::NoHeader });
            return Ok(());
        };
        let mut header = match first.fields.map_err(ImportProblem::from).and_then(|f| ColumnHeader::read(&f))
        {
            Ok(header) => header,
            Err(problem) => {
                self.bad.push(BadLine { file: None, line: first.line, problem });
                return Ok(());
            }
        };
        self.imported.ignored_columns = header.ignored().to_vec();
        while let Some(row) = rows.next()? {
            let record = row.fields.map_err(ImportProblem::from).and_then(|f| header.record(&f));
            self.take(row.line, record)?;
            if self.bad.len() == BAD_LINES_MAX {
                break;
            }
        }
        Ok(())
    }

    fn json(&mut self, mut input: impl BufRead) -> Result<(), StoreError> {
        let lines = Rc::new(Cell::new(1));
        let array = begins_array(&mut input, &lines)?;
        let before = lines.get() - 1;
        let counted = CountedLines { input, lines: Rc::clone(&lines) };
        let mut reader = serde_json::Deserializer::from_reader(counted);
        let read = if array {
            reader.deserialize_seq(Records { import: self, lines: &lines }).and_then(|done| {
                reader.end()?;
                Ok(done)
            })
        } else {
            self.json_one_by_one(reader, &lines)
        };
        match read {
            Ok(done) => done,
            Err(e) if e.is_io() => Err(StoreError::Io(e.into())),
            Err(e) => {
                // The line number is reported separately, so serde_json's suffix is removed.
                let whole = e.to_string();
                let text = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(text, _)| text);
                let line = before + (e.line() as u64).max(1);
                self.bad.push(BadLine { file: None, line, problem: ImportProblem::Json(text.to_owned()) });
                Ok(())
            }
        }
    }

    fn json_one_by_one<R: Read>(
        &mut self,
        reader: serde_json::Deserializer<serde_json::de::IoRead<R>>,
        lines: &Cell<u64>,
    ) -> serde_json::Result<Result<(), StoreError>> {
        for record in reader.into_iter::<ListedRecord>() {
            let taken = self.take(lines.get(), record?.checked());
            if taken.is_err() || self.bad.len() == BAD_LINES_MAX {
                return Ok(taken);
            }
        }
        Ok(Ok(()))
    }

    /// Writes the record of a line, or remembers what is wrong with it.
    fn take(&mut self, line: u64, record: Result<SubscriberRecord, ImportProblem>) -> Result<(), StoreError> {
        match record.map(|r| self.put(line, &r)) {
            Ok(Err(StoreError::MsisdnTaken)) => {
                self.bad.push(BadLine { file: None, line, problem: ImportProblem::MsisdnTaken })
            }
            Ok(Ok(Some(problem))) | Err(problem) => self.bad.push(BadLine { file: None, line, problem }),
            Ok(Ok(None)) => {}
            Ok(Err(e)) => return Err(e),
        }
        Ok(())
    }

    fn put(&mut self, line: u64, record: &SubscriberRecord) -> Result<Option<ImportProblem>, StoreError> {
        let supi = record.supi;
        if let Some(&first) = self.lines.get(&supi) {
            return Ok(Some(ImportProblem::Repeated { supi, first }));
        }
        self.lines.insert(supi, line);
        (self.each)(supi);
        match (self.writer.exists(supi)?, self.on_existing) {
            (false, _) => self.imported.added += 1,
            (true, OnExisting::Refuse) => return Ok(Some(ImportProblem::Exists(supi))),
            (true, OnExisting::Replace) => {
                self.imported.replaced += 1;
                self.replaced_subscriptions = true;
            }
            (true, OnExisting::Skip) => {
                self.imported.skipped += 1;
                return Ok(None);
            }
        }
        self.writer.put(record).map(|()| None)
    }

    fn finish(self) -> Result<ImportCounts, StoreError> {
        if !self.bad.is_empty() {
            return Err(StoreError::Import(self.bad));
        }
        if self.replaced_subscriptions {
            self.writer.sweep_all()?;
        }
        self.writer.log(None)?;
        Ok(self.imported)
    }
}

/// Visits the records of a JSON array without holding them.
struct Records<'i, 'a, 'w> {
    import: &'i mut Import<'a, 'w>,
    lines: &'i Cell<u64>,
}

impl<'de> Visitor<'de> for Records<'_, '_, '_> {
    type Value = Result<(), StoreError>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of subscribers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while let Some(record) = seq.next_element::<ListedRecord>()? {
            let taken = self.import.take(self.lines.get(), record.checked());
            if taken.is_err() || self.import.bad.len() == BAD_LINES_MAX {
                // What is left must be read, or the array seems not to end.
                while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                return Ok(taken);
            }
        }
        Ok(Ok(()))
    }
}

/// A record in a JSON list, ours or of another core. What is wrong with it is kept apart from its syntax, so that the error has
/// the record's line and the next one is read.
struct ListedRecord(Result<RawRecord, String>);

impl<'de> Deserialize<'de> for ListedRecord {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(d)?;
        // PCC rules go in by the import of a database, which has the core's check of flows.
        let refuse = |_: &SubscribedFlow| Err(String::new());
        Ok(Self::of(foreign::open5gs::converted(&value, &refuse, &mut Vec::new()).unwrap_or(value)))
    }
}

impl ListedRecord {
    fn of(value: Value) -> Self {
        Self(serde_json::from_value(value).map_err(|e| e.to_string()))
    }

    fn checked(self) -> Result<SubscriberRecord, ImportProblem> {
        self.0.map_err(ImportProblem::Json)?.try_into().map_err(ImportProblem::Record)
    }
}

/// Passes over white space; returns whether an array begins.
fn begins_array(input: &mut impl BufRead, lines: &Cell<u64>) -> io::Result<bool> {
    loop {
        let Some(&next) = input.fill_buf()?.first() else { return Ok(false) };
        if !next.is_ascii_whitespace() {
            return Ok(next == b'[');
        }
        lines.set(lines.get() + u64::from(next == b'\n'));
        input.consume(1);
    }
}

/// Counts the line breaks that pass.
struct CountedLines<R> {
    input: R,
    lines: Rc<Cell<u64>>,
}

impl<R: BufRead> Read for CountedLines<R> {
    /// One octet at a time, as serde_json asks: a larger read would count lines that are not parsed yet.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let (Some(place), Some(&next)) = (out.first_mut(), self.input.fill_buf()?.first()) else {
            return Ok(0);
        };
        *place = next;
        self.input.consume(1);
        self.lines.set(self.lines.get() + u64::from(next == b'\n'));
        Ok(1)
    }
}
