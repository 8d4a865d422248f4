//! This home's audit log and charging records on their way to the database that all homes share, so that they can be read at each.
//!
//! The files of this home are what waits while the database is away, also through a restart. Where to go on is asked of the database: it gets again what it has
//! lost, as far as the files go back.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jiff::Timestamp;
use tracing::warn;
use whimbrel_charging::{ChargingFunction, ChargingRecord};
use whimbrel_ids::Instant;
use whimbrel_postgres::{HomeName, PostgresDatabase, UsageRow};
use whimbrel_store::{Store, StoreError};

use crate::api_files::{audit_file, audit_parts};
use crate::config::Config;
use crate::{accounts, clock};

/// Octets of the audit log that are written at once: some thousand lines.
const AUDIT_OCTETS: u64 = 1 << 20;
/// Charging records that are written at once.
const USAGE_ROWS: usize = 1_000;
/// Writes of one turn: a home that was away for long goes on with the next one.
const WRITES_MAX: usize = 8;
/// Between two deletions of what is kept no longer.
const PRUNE_INTERVAL_S: u64 = 3_600;

/// The audit log and charging records of this home that are written behind, and how far they are.
pub(super) struct HistoryWriter {
    audit: AuditReader,
    /// The charging function, if this home has one.
    usage: Option<UsageReader>,
    audit_days: u32,
    usage_days: u32,
    /// A name of this home for the operator.
    name: String,
    last_prune: Option<Instant>,
    /// The error of a file that was logged last.
    logged: Option<String>,
}

struct UsageReader {
    config: Config,
    /// Opened when it is read first.
    function: Option<ChargingFunction>,
    /// The number of the last record that the database has; `None`: it is to be asked.
    last: Option<u64>,
}

impl HistoryWriter {
    pub(super) fn new(config: &Config, name: &str) -> Self {
        let usage =
            config.uses_own_chf().then(|| UsageReader { config: config.clone(), function: None, last: None });
        Self {
            audit: AuditReader::new(audit_file(&config.store.path)),
            usage,
            audit_days: config.audit.keep_days,
            usage_days: u32::try_from(config.chf.policy.records_kept.as_secs() / 86_400).unwrap_or(u32::MAX),
            name: name.to_owned(),
            last_prune: None,
            logged: None,
        }
    }

    /// The database may lack what it had, or the outcome of a write is unknown.
    pub(super) fn ask_again(&mut self) {
        self.audit.place = None;
        if let Some(usage) = &mut self.usage {
            usage.last = None;
        }
    }

    /// Writes what the database does not have. Errors: those of the database; a file that cannot be read is logged.
    pub(super) fn write(
        &mut self,
        database: &mut PostgresDatabase,
        replica: &Store,
    ) -> Result<(), StoreError> {
        let file = replica.home()?.file;
        let Self { audit, usage, name, logged, .. } = self;
        let home = HomeName { file: &file, name };
        let mut problem = write_audit(audit, database, replica, home)?.err();
        if let Some(usage) = usage {
            problem = problem.or(usage.write(database, replica, home)?.err());
        }
        if problem.is_some() && problem != *logged {
            warn!(
                "this home's history is not written to PostgreSQL: {}",
                problem.as_deref().unwrap_or_default()
            );
        }
        *logged = problem;
        let now = clock::now();
        if self.last_prune.is_none_or(|at| now.since(at).as_secs() >= PRUNE_INTERVAL_S) {
            database.prune_histories(replica, &file, self.audit_days, self.usage_days)?;
            self.last_prune = Some(now);
        }
        Ok(())
    }
}

fn write_audit(
    audit: &mut AuditReader,
    database: &mut PostgresDatabase,
    replica: &Store,
    home: HomeName<'_>,
) -> Result<Result<(), String>, StoreError> {
    if audit.place.is_none() {
        let last = database.last_audit_line(replica, home.file)?;
        if let Err(e) = audit.find(last.as_deref()) {
            return Ok(Err(audit.sentence(&e)));
        }
    }
    for _ in 0..WRITES_MAX {
        let (lines, after) = match audit.next() {
            Ok(Some(next)) => next,
            Ok(None) => break,
            Err(e) => return Ok(Err(audit.sentence(&e))),
        };
        database.write_audit(replica, home, &lines)?;
        audit.place = Some(after);
    }
    Ok(Ok(()))
}

impl UsageReader {
    fn write(
        &mut self,
        database: &mut PostgresDatabase,
        replica: &Store,
        home: HomeName<'_>,
    ) -> Result<Result<(), String>, StoreError> {
        let last = match self.last {
            Some(last) => last,
            None => {
                let known = database.last_usage(replica, home.file)?;
                // Another record under that number: the accounts are in another file than before, and all is compared.
                let is_known = |(number, session): (u64, String)| {
                    let here = self.records(number.saturating_sub(1), 1).ok()?.pop()?;
                    (here.number == number && *here.session == *session).then_some(number)
                };
                known.and_then(is_known).unwrap_or(0)
            }
        };
        self.last = Some(last);
        for _ in 0..WRITES_MAX {
            let records = match self.records(self.last.unwrap_or(0), USAGE_ROWS) {
                Ok(records) => records,
                Err(e) => return Ok(Err(e)),
            };
            let Some(number) = records.last().map(|record| record.number) else { break };
            let rows: Vec<UsageRow> = records.iter().filter_map(row_of).collect();
            database.write_usage(replica, home, &rows)?;
            self.last = Some(number);
        }
        Ok(Ok(()))
    }

    fn records(&mut self, after: u64, limit: usize) -> Result<Vec<ChargingRecord>, String> {
        let function = match &mut self.function {
            Some(function) => function,
            none => none.insert(accounts::open(&self.config)?),
        };
        function.records(None, after, limit).map_err(|e| e.to_string())
    }
}

fn row_of(record: &ChargingRecord) -> Option<UsageRow> {
    Some(UsageRow {
        number: record.number,
        session: record.session.to_string(),
        supi: record.supi.to_string(),
        at: record.end,
        record: serde_json::to_string(record).ok()?,
    })
}

/// A place in the audit log: a part, which keeps its inode when it is set aside, and the octets before it.
type AuditPlace = (u64, u64);

/// Lines of the audit log with their times, and the place after them.
type AuditLines = (Vec<(Instant, String)>, AuditPlace);

/// Reads the audit log on from where it was written to the database.
struct AuditReader {
    file: PathBuf,
    /// `None`: it is to be found.
    place: Option<AuditPlace>,
}

impl AuditReader {
    fn new(file: PathBuf) -> Self {
        Self { file, place: None }
    }

    fn sentence(&self, e: &io::Error) -> String {
        format!("{} cannot be read: {e}", self.file.display())
    }

    /// All parts, oldest first.
    fn parts(&self) -> io::Result<Vec<PathBuf>> {
        let aside = audit_parts(&self.file)?.into_iter().map(|(_, path)| path);
        Ok(aside.chain(self.file.exists().then(|| self.file.clone())).collect())
    }

    /// Finds the place after the line that the database has last; the beginning, if no part has it.
    fn find(&mut self, last: Option<&str>) -> io::Result<()> {
        let parts = self.parts()?;
        if let Some(last) = last {
            for part in parts.iter().rev() {
                let text = fs::read(part)?;
                let mut at = 0;
                for line in text.split(|octet| *octet == b'\n') {
                    at += line.len() as u64 + 1;
                    if line == last.as_bytes() {
                        self.place = Some((fs::metadata(part)?.ino(), at));
                        return Ok(());
                    }
                }
            }
        }
        self.place = match parts.first() {
            Some(first) => Some((fs::metadata(first)?.ino(), 0)),
            None => None,
        };
        Ok(())
    }

    /// The next whole lines with their times, and the place after them. `None`: there are none yet.
    fn next(&mut self) -> io::Result<Option<AuditLines>> {
        let parts = self.parts()?;
        let Some((inode, mut offset)) = self.place else { return Ok(None) };
        let inodes = parts.iter().map(|part| fs::metadata(part).map(|meta| meta.ino()));
        let inodes = inodes.collect::<io::Result<Vec<u64>>>()?;
        let at = inodes.iter().position(|found| *found == inode);
        if at.is_none() {
            // It was deleted when its time was over.
            offset = 0;
        }
        for (part, inode) in parts.iter().zip(inodes).skip(at.unwrap_or(0)) {
            let mut file = File::open(part)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut octets = Vec::new();
            file.take(AUDIT_OCTETS).read_to_end(&mut octets)?;
            // A line without its end is still being written.
            let whole = octets.iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
            if whole > 0 {
                let text = String::from_utf8_lossy(&octets[..whole]);
                let lines = text.lines().filter(|line| !line.is_empty());
                let lines = lines.map(|line| (time_of(line), line.replace('\0', " "))).collect();
                return Ok(Some((lines, (inode, offset + whole as u64))));
            }
            offset = 0;
        }
        Ok(None)
    }
}

/// The time with which a line begins; that of now, if it begins otherwise.
fn time_of(line: &str) -> Instant {
    let at = line.split(' ').next().and_then(|word| word.parse::<Timestamp>().ok());
    at.and_then(|at| u64::try_from(at.as_microsecond()).ok()).map_or_else(clock::now, Instant)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(reader: &mut AuditReader) -> Vec<String> {
        let mut all = Vec::new();
        while let Some((lines, after)) = reader.next().unwrap() {
            reader.place = Some(after);
            all.extend(lines.into_iter().map(|(_, line)| line));
        }
        all
    }

    #[test]
    fn lines_are_read_once_through_parts_that_are_set_aside_and_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s.db.audit");
        let mut reader = AuditReader::new(file.clone());
        reader.find(None).unwrap();
        assert!(lines(&mut reader).is_empty());
        fs::write(
            &file,
            "2026-01-01T00:00:00.000Z a\n2026-01-01T00:00:00.001Z b\n2026-01-01T00:00:00.002Z c",
        )
        .unwrap();
        reader.find(None).unwrap();
        let read = lines(&mut reader);
        assert_eq!(
            read,
            ["2026-01-01T00:00:00.000Z a", "2026-01-01T00:00:00.001Z b"],
            "c is still being written"
        );
        assert_eq!(time_of(&read[1]), Instant(1_767_225_600_001_000));
        let whole = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{whole}\n")).unwrap();
        fs::rename(&file, folder.path().join("s.db.audit.1")).unwrap();
        fs::write(&file, "d\n").unwrap();
        assert_eq!(lines(&mut reader), ["2026-01-01T00:00:00.002Z c", "d"]);
        // After a restart, the database says what it has.
        for (last, rest) in
            [("d", 0), ("2026-01-01T00:00:00.002Z c", 1), ("2026-01-01T00:00:00.000Z a", 3), ("lost", 4)]
        {
            let mut again = AuditReader::new(file.clone());
            again.find(Some(last)).unwrap();
            assert_eq!(lines(&mut again).len(), rest, "{last}");
        }
        fs::remove_file(folder.path().join("s.db.audit.1")).unwrap();
        let mut again = AuditReader::new(file);
        again.place = Some((0, 70));
        assert_eq!(lines(&mut again), ["d"], "the part that was being read is deleted");
    }
}
