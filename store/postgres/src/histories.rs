//! The audit logs and the charging records of all homes, which each home writes behind from its own files.
//!
//! A home asks which of its own entries the database has last, and goes on from there. So a database that has lost some gets them again, as far as the home
//! has kept them, and nothing has to be noted at the home.

use tokio_postgres::types::{ToSql, Type};
use whimbrel_ids::Instant;
use whimbrel_store::{Store, StoreError};

use crate::database::{PostgresDatabase, batch, get, within};
use crate::failure::failure_of;

/// Name of a home for the operator, beside the random name of its file.
#[derive(Clone, Copy, Debug)]
pub struct HomeName<'a> {
    /// Random name of the home's file.
    pub file: &'a str,
    /// A name for the operator.
    pub name: &'a str,
}

/// An entry of a home's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeEntry {
    /// Name of the home.
    pub home: String,
    /// Number of its arrival in the database.
    pub number: i64,
    /// A line of the audit log, or the JSON of a charging record.
    pub text: String,
}

/// A charging record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// Its number at its home, which rises.
    pub number: u64,
    /// The identity of the session's resource at its home; a late report gives it another number and the whole usage.
    pub session: String,
    /// Digits of the subscriber's SUPI.
    pub supi: String,
    /// When the session ended.
    pub at: Instant,
    /// JSON of the record.
    pub record: String,
}

fn micros(at: Instant) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

impl PostgresDatabase {
    /// The line of a home's audit log that the database got last.
    pub fn last_audit_line(&mut self, replica: &Store, home: &str) -> Result<Option<String>, StoreError> {
        self.run(within(0), replica, async |session| {
            let sql = "SELECT line FROM whimbrel.audit WHERE home = $1 ORDER BY number DESC LIMIT 1";
            let rows = session.client.query_typed(sql, &[(&home, Type::TEXT)]).await;
            rows.map_err(|e| failure_of(&e))?.first().map(|row| get(row, 0)).transpose()
        })
    }

    /// Writes lines of a home's audit log with their times, in their order; those that are there already stay.
    pub fn write_audit(
        &mut self,
        replica: &Store,
        home: HomeName<'_>,
        lines: &[(Instant, String)],
    ) -> Result<(), StoreError> {
        let times: Vec<i64> = lines.iter().map(|(at, _)| micros(*at)).collect();
        let texts: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&home.file, Type::TEXT),
            (&home.name, Type::TEXT),
            (&times, Type::INT8_ARRAY),
            (&texts, Type::TEXT_ARRAY),
        ];
        self.run(within(lines.len()), replica, async |session| {
            let sql = "INSERT INTO whimbrel.audit (home, name, at, line, hash) \
                       SELECT $1, $2, to_timestamp(l.at / 1000000.0), l.line, sha256(convert_to(l.line, 'UTF8')) \
                       FROM unnest($3::bigint[], $4::text[]) WITH ORDINALITY AS l (at, line, n) ORDER BY l.n ON CONFLICT DO NOTHING";
            session.client.execute_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
            Ok(())
        })
    }

    /// The newest lines of the audit logs of all homes but this one, newest first.
    pub fn audit_of_others(
        &mut self,
        replica: &Store,
        home: &str,
        limit: usize,
    ) -> Result<Vec<HomeEntry>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = "SELECT name, number, line FROM whimbrel.audit WHERE home <> $1 ORDER BY at DESC, number DESC LIMIT $2";
        self.entries(replica, sql, &[(&home, Type::TEXT), (&limit, Type::INT8)])
    }

    /// Number and session of the charging record of a home that the database got last.
    pub fn last_usage(&mut self, replica: &Store, home: &str) -> Result<Option<(u64, String)>, StoreError> {
        self.run(within(0), replica, async |session| {
            let sql =
                "SELECT number, session FROM whimbrel.usage WHERE home = $1 ORDER BY arrival DESC LIMIT 1";
            let rows = session.client.query_typed(sql, &[(&home, Type::TEXT)]).await;
            let last = |row| Ok((get::<i64>(row, 0)?.unsigned_abs(), get(row, 1)?));
            rows.map_err(|e| failure_of(&e))?.first().map(last).transpose()
        })
    }

    /// Writes charging records of a home; one of a session that is there already replaces it.
    pub fn write_usage(
        &mut self,
        replica: &Store,
        home: HomeName<'_>,
        rows: &[UsageRow],
    ) -> Result<(), StoreError> {
        fn column<'a, T>(rows: &[&'a UsageRow], of: impl Fn(&'a UsageRow) -> T) -> Vec<T> {
            rows.iter().map(|row| of(row)).collect()
        }
        // A session with a late report may be among them twice, and the later record counts: a statement writes a row once.
        let rows: Vec<&UsageRow> = rows
            .iter()
            .enumerate()
            .filter(|(n, row)| !rows[n + 1..].iter().any(|later| later.session == row.session))
            .map(|(_, row)| row)
            .collect();
        let numbers = column(&rows, |row| i64::try_from(row.number).unwrap_or(i64::MAX));
        let sessions = column(&rows, |row| row.session.as_str());
        let supis = column(&rows, |row| row.supi.as_str());
        let times = column(&rows, |row| micros(row.at));
        let records = column(&rows, |row| row.record.as_str());
        let values: [(&(dyn ToSql + Sync), Type); 7] = [
            (&home.file, Type::TEXT),
            (&home.name, Type::TEXT),
            (&numbers, Type::INT8_ARRAY),
            (&sessions, Type::TEXT_ARRAY),
            (&supis, Type::TEXT_ARRAY),
            (&times, Type::INT8_ARRAY),
            (&records, Type::TEXT_ARRAY),
        ];
        self.run(within(rows.len()), replica, async |session| {
            let sql = "INSERT INTO whimbrel.usage AS u (home, name, number, session, supi, at, record) \
                       SELECT $1, $2, r.number, r.session, r.supi, to_timestamp(r.at / 1000000.0), r.record \
                       FROM unnest($3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[]) AS r (number, session, supi, at, record) \
                       ORDER BY r.number \
                       ON CONFLICT (home, session) DO UPDATE SET number = excluded.number, at = excluded.at, record = excluded.record, arrival = DEFAULT \
                       WHERE u.record <> excluded.record";
            // Arrivals are in the order of the commits, so that a reader that goes on behind the last one misses none.
            batch(&session.client, "BEGIN; LOCK TABLE whimbrel.usage IN SHARE ROW EXCLUSIVE MODE").await?;
            session.client.execute_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
            batch(&session.client, "COMMIT").await
        })
    }

    /// Charging records of all homes, of one subscriber or of all, in the order of their arrival after `after`.
    pub fn usage_after(
        &mut self,
        replica: &Store,
        supi: Option<&str>,
        after: i64,
        limit: usize,
    ) -> Result<Vec<HomeEntry>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = "SELECT name, arrival, record FROM whimbrel.usage WHERE ($1::text IS NULL OR supi = $1) AND arrival > $2 ORDER BY arrival LIMIT $3";
        self.entries(replica, sql, &[(&supi, Type::TEXT), (&after, Type::INT8), (&limit, Type::INT8)])
    }

    /// Deletes what this home keeps no longer: its own entries, and those of homes that were removed.
    pub fn prune_histories(
        &mut self,
        replica: &Store,
        home: &str,
        audit_days: u32,
        usage_days: u32,
    ) -> Result<(), StoreError> {
        let (audit_days, usage_days) = (f64::from(audit_days), f64::from(usage_days));
        let sql = "WITH a AS (DELETE FROM whimbrel.audit WHERE at < clock_timestamp() - $2 * interval '1 day' \
                       AND (home = $1 OR home NOT IN (SELECT file FROM whimbrel.home)) RETURNING 1), \
                   u AS (DELETE FROM whimbrel.usage WHERE at < clock_timestamp() - $3 * interval '1 day' \
                       AND (home = $1 OR home NOT IN (SELECT file FROM whimbrel.home)) RETURNING 1) \
                   SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM u)";
        let values: [(&(dyn ToSql + Sync), Type); 3] =
            [(&home, Type::TEXT), (&audit_days, Type::FLOAT8), (&usage_days, Type::FLOAT8)];
        self.run(within(0), replica, async |session| {
            session.client.query_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
            Ok(())
        })
    }

    fn entries(
        &mut self,
        replica: &Store,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<HomeEntry>, StoreError> {
        self.run(within(0), replica, async |session| {
            let rows = session.client.query_typed(sql, values).await.map_err(|e| failure_of(&e))?;
            rows.iter()
                .map(|row| Ok(HomeEntry { home: get(row, 0)?, number: get(row, 1)?, text: get(row, 2)? }))
                .collect()
        })
    }
}
