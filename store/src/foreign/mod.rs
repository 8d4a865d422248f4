//! Subscribers in the exported databases of other cores: documents that `mongoexport` (JSON) or `mongodump` (BSON) write, an SQL dump, an
//! SQLite file, or lines of values.
//!
//! A document becomes the JSON of a record of ours, which is then checked as every import is. What has no counterpart here is left out,
//! and a sentence says so ([`ImportNote`]).

mod bson;
mod ella;
mod flows;
mod free5gc;
mod notes;
mod oai;
pub(crate) mod open5gs;
mod sql;
mod srsran;

use std::io::{self, BufRead, Read};
use std::net::Ipv6Addr;
use std::sync::Arc;

use serde_json::Value;

use crate::csv::CsvRows;
use crate::error::StoreError;
use crate::import::ImportProblem;

pub use flows::FlowCheck;
pub use notes::ImportNote;
pub(crate) use notes::ImportNotes;

/// Octets of one JSON document at most: MongoDB's own bound for BSON.
const DOCUMENT_OCTETS_MAX: usize = 16 << 20;
/// Octets of an array of documents at most, which is read whole: a million subscribers.
const ARRAY_OCTETS_MAX: u64 = 2 << 30;

/// A core whose exported database can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// Open5GS: the collection `subscribers` of the database `open5gs`.
    Open5gs,
    /// free5GC: the collections `subscriptionData.*` and `policyData.ues.*` of the database `free5gc`.
    Free5gc,
    /// Ella Core: its SQLite database `ella.db`.
    EllaCore,
    /// OpenAirInterface: an SQL dump of the database `oai_db`.
    OpenAirInterface,
    /// srsRAN 4G: the list `user_db.csv`.
    Srsran4g,
}

/// Where a subscriber was found, and what was made of it.
pub(crate) struct Document {
    pub(crate) file: Arc<str>,
    pub(crate) line: u64,
    /// The subscriber's name and the JSON of its record.
    record: Option<Result<(String, Value), ImportProblem>>,
}

impl Document {
    fn good(place: &DocumentPosition, name: &str, record: Value) -> Self {
        Self { file: place.file.clone(), line: place.line, record: Some(Ok((name.to_owned(), record))) }
    }

    fn bad(place: &DocumentPosition, problem: ImportProblem) -> Self {
        Self { file: place.file.clone(), line: place.line, record: Some(Err(problem)) }
    }

    /// What was made of it, once.
    pub(crate) fn take(&mut self) -> Result<(String, Value), ImportProblem> {
        self.record.take().unwrap_or_else(|| Err(ImportProblem::Json("the document was read twice".into())))
    }
}

/// What the files hold.
#[derive(Default)]
pub(crate) struct Database {
    pub(crate) documents: Vec<Document>,
    pub(crate) notes: ImportNotes,
}

/// A file and a line, or in BSON a document.
#[derive(Clone)]
struct DocumentPosition {
    file: Arc<str>,
    line: u64,
}

/// Reads all files; flows that `check` refuses are left out. Errors: a file cannot be read.
pub(crate) fn read(
    core: Core,
    files: Vec<(String, Box<dyn BufRead>)>,
    check: &FlowCheck<'_>,
) -> Result<Database, StoreError> {
    let mut database = Database::default();
    let mut join = free5gc::Join::default();
    for (name, mut input) in files {
        let file: Arc<str> = name.into();
        match core {
            Core::Open5gs | Core::Free5gc => documents(&mut input, &mut |line, document| {
                let place = DocumentPosition { file: file.clone(), line };
                match (document, core) {
                    (Err(problem), _) => database.documents.push(Document::bad(&place, problem)),
                    (Ok(document), Core::Open5gs) => {
                        open5gs_document(&mut database, &place, &document, check)
                    }
                    (Ok(document), _) => join.take(&mut database, &place, document),
                }
            })?,
            Core::EllaCore => ella::read(&mut input, &file, &mut database)?,
            Core::OpenAirInterface => oai::documents(&mut input, &file, &mut |place, part| match part {
                oai::DumpPart::Document(document) => join.take(&mut database, place, document),
                oai::DumpPart::OtherTable(table) => {
                    let sentence =
                        format!("The table {table} is left out, because it holds no subscription.");
                    database.notes.add(place, "", vec![sentence]);
                }
                oai::DumpPart::Problem(problem) => database.documents.push(Document::bad(place, problem)),
            })?,
            Core::Srsran4g => srsran_lines(input, &file, &mut database)?,
        }
    }
    join.finish(&mut database, check);
    Ok(database)
}

fn open5gs_document(
    database: &mut Database,
    place: &DocumentPosition,
    document: &Value,
    check: &FlowCheck<'_>,
) {
    let mut notes = Vec::new();
    match open5gs::converted(document, check, &mut notes) {
        Some(record) => {
            let imsi = document["imsi"].as_str().unwrap_or_default();
            database.notes.add(place, imsi, notes);
            database.documents.push(Document::good(place, imsi, record));
        }
        None => {
            let text = "this is no document of Open5GS's collection `subscribers`: it lacks imsi or security";
            database.documents.push(Document::bad(place, ImportProblem::Json(text.into())));
        }
    }
}

fn srsran_lines(input: Box<dyn BufRead>, file: &Arc<str>, database: &mut Database) -> io::Result<()> {
    let mut rows = CsvRows::new(input);
    while let Some(row) = rows.next()? {
        let place = DocumentPosition { file: file.clone(), line: row.line };
        let mut notes = Vec::new();
        match srsran::line(row.fields, &mut notes) {
            srsran::ListedUe::Record(imsi, record) => {
                database.notes.add(&place, &imsi, notes);
                database.documents.push(Document::good(&place, &imsi, record));
            }
            srsran::ListedUe::Xor(imsi) => {
                let sentence = "A subscriber with the algorithm XOR is left out, because 5G has Milenage and TUAK alone.";
                database.notes.add(&place, &imsi, vec![sentence.into()]);
            }
            srsran::ListedUe::Problem(problem) => database.documents.push(Document::bad(&place, problem)),
        }
    }
    Ok(())
}

/// The prefix of 64 bits of an address, as a session has it (TS 23.501 §5.8.2.2).
fn prefix_of(address: Ipv6Addr) -> String {
    let prefix = Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX));
    format!("{prefix}/64")
}

type Each<'a> = dyn FnMut(u64, Result<Value, ImportProblem>) + 'a;

/// Reads the documents of a file: JSON, one after the other or in an array, or BSON.
fn documents(input: &mut dyn BufRead, each: &mut Each<'_>) -> Result<(), StoreError> {
    let begin = input.fill_buf()?;
    if begin.iter().take(4).any(|octet| *octet == 0) {
        return bson::documents(input, each).map_err(StoreError::from);
    }
    let begin = begin.strip_prefix("\u{feff}".as_bytes()).unwrap_or(begin);
    match begin.iter().find(|c| !c.is_ascii_whitespace()) {
        Some(b'[') => array(input, each).map_err(StoreError::from),
        _ => one_by_one(input, each).map_err(StoreError::from),
    }
}

/// An array, read whole so that each document has the line on which it begins.
fn array(input: &mut dyn BufRead, each: &mut Each<'_>) -> io::Result<()> {
    let mut text = String::new();
    let read = input.take(ARRAY_OCTETS_MAX).read_to_string(&mut text)?;
    if read as u64 == ARRAY_OCTETS_MAX {
        each(
            1,
            Err(ImportProblem::Json("the array is larger than 2 GiB: export one document a line".into())),
        );
        return Ok(());
    }
    let (mut line, mut counted) = (1, 0);
    // Behind the bracket, which the caller has seen.
    let mut at = text.find('[').map_or(text.len(), |at| at + 1);
    loop {
        at += text[at..].len() - text[at..].trim_start().len();
        line += text.as_bytes()[counted..at].iter().filter(|c| **c == b'\n').count() as u64;
        counted = at;
        if text[at..].starts_with(']') {
            return Ok(());
        }
        let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => each(line, Ok(value)),
            Some(Err(e)) => {
                each(line + e.line().max(1) as u64 - 1, Err(syntax(&e)));
                return Ok(());
            }
            None => {
                each(line, Err(ImportProblem::Json("the array ends early: the file was cut short".into())));
                return Ok(());
            }
        }
        at += values.byte_offset();
        at += text[at..].len() - text[at..].trim_start().len();
        match text[at..].chars().next() {
            Some(',') => at += 1,
            Some(']') | None => {}
            Some(_) => {
                each(line, Err(ImportProblem::Json("a comma is expected behind this document".into())));
                return Ok(());
            }
        }
    }
}

/// Documents one after the other, each on a line or on several. A line that is not JSON is reported, and the next one is read.
fn one_by_one(input: &mut dyn BufRead, each: &mut Each<'_>) -> io::Result<()> {
    let (mut text, mut first, mut line) = (Vec::new(), 1, 0);
    loop {
        let before = text.len();
        let room = DOCUMENT_OCTETS_MAX as u64 + 1;
        if (&mut *input).take(room).read_until(b'\n', &mut text)? == 0 {
            if !text.trim_ascii().is_empty() {
                each(
                    first,
                    Err(ImportProblem::Json("the document ends early: the file was cut short".into())),
                );
            }
            return Ok(());
        }
        line += 1;
        if before == 0 {
            first = line;
        }
        let document = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
        if document.trim_ascii().is_empty() {
            text.clear();
            continue;
        }
        match serde_json::from_slice::<Value>(document) {
            Ok(value) => each(first, Ok(value)),
            Err(e) if e.is_eof() && text.len() < DOCUMENT_OCTETS_MAX => continue,
            Err(e) => each(first + e.line().max(1) as u64 - 1, Err(syntax(&e))),
        }
        text.clear();
    }
}

/// What is wrong with the syntax, without the position, which is reported separately.
fn syntax(e: &serde_json::Error) -> ImportProblem {
    let whole = e.to_string();
    ImportProblem::Json(whole.rsplit_once(" at line ").map_or(whole.as_str(), |(text, _)| text).to_owned())
}

/// A whole number, also as MongoDB's extended JSON writes it: `{"$numberLong": "97"}`.
fn number(value: &Value) -> Option<u64> {
    let extended = || value.as_object()?.values().next()?.as_str()?.parse().ok();
    let real = || value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n)).map(|n| n as u64);
    value.as_u64().or_else(extended).or_else(real)
}

/// Whether a field says something: neither null, nor empty, nor zero.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(set) => *set,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(says_something),
        Value::Object(map) => map.values().any(says_something),
    }
}
