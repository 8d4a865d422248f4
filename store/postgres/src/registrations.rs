//! The home at which each subscriber is registered (TS 29.503 Nudm_UECM), as the homes write it behind their answers to UEs.

use tokio_postgres::types::{ToSql, Type};
use whimbrel_ids::Instant;
use whimbrel_store::{OwnRegistration, Store, StoreError};

use crate::database::{PostgresDatabase, get, one, within};
use crate::failure::failure_of;

/// A subscriber that has registered at another home since it registered here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deregistration {
    /// Digits of the SUPI, as any program may have written them.
    pub supi: String,
    /// The time of the other registration, by the database's clock.
    at: i64,
    /// The subscriber is registered here again.
    pub is_outdated: bool,
}

impl PostgresDatabase {
    /// Writes registrations of this AMF and ends of registrations. Returns the digits of the subscribers that are registered elsewhere since.
    ///
    /// A registration before 1970 plus one second is one of unknown time, and earlier than any other.
    pub fn write_registrations(
        &mut self,
        replica: &Store,
        amf: &str,
        now: Instant,
        changes: &[OwnRegistration],
    ) -> Result<Vec<String>, StoreError> {
        let (mut supis, mut ages, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for OwnRegistration { supi, at } in changes {
            match at {
                Some(at) => {
                    supis.push(supi.as_str());
                    ages.push(i64::try_from(now.0.saturating_sub(at.0)).unwrap_or(i64::MAX));
                }
                None => gone.push(supi.as_str()),
            }
        }
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&amf, Type::TEXT),
            (&supis, Type::TEXT_ARRAY),
            (&ages, Type::INT8_ARRAY),
            (&gone, Type::TEXT_ARRAY),
        ];
        self.run(within(changes.len()), replica, async |session| {
            let sql = "SELECT * FROM whimbrel.register($1, $2, $3, $4)";
            let lost = session.client.query_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
            lost.iter().map(|row| get(row, 0)).collect()
        })
    }

    /// The subscribers, some of them if there are many, that this AMF has lost to other ones.
    pub fn deregistrations(
        &mut self,
        replica: &Store,
        amf: &str,
        limit: usize,
    ) -> Result<Vec<Deregistration>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.run(within(0), replica, async |session| {
            let sql = "SELECT d.supi, d.at, r.amf IS NOT DISTINCT FROM d.amf FROM whimbrel.deregistration d \
                       LEFT JOIN whimbrel.registration r ON r.supi = d.supi WHERE d.amf = $1 ORDER BY d.supi LIMIT $2";
            let values: [(&(dyn ToSql + Sync), Type); 2] = [(&amf, Type::TEXT), (&limit, Type::INT8)];
            let rows = session.client.query_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
            rows.iter()
                .map(|row| {
                    Ok(Deregistration { supi: get(row, 0)?, at: get(row, 1)?, is_outdated: get(row, 2)? })
                })
                .collect()
        })
    }

    /// Removes deregistrations that this AMF has carried out, unless the subscriber has moved again since.
    pub fn remove_deregistrations(
        &mut self,
        replica: &Store,
        amf: &str,
        done: &[Deregistration],
    ) -> Result<(), StoreError> {
        let supis: Vec<&str> = done.iter().map(|d| d.supi.as_str()).collect();
        let times: Vec<i64> = done.iter().map(|d| d.at).collect();
        self.run(within(done.len()), replica, async |session| {
            let sql = "DELETE FROM whimbrel.deregistration d USING unnest($2::text[], $3::bigint[]) AS done (supi, at) \
                       WHERE d.amf = $1 AND d.supi = done.supi AND d.at = done.at";
            let values: [(&(dyn ToSql + Sync), Type); 3] =
                [(&amf, Type::TEXT), (&supis, Type::TEXT_ARRAY), (&times, Type::INT8_ARRAY)];
            session.client.execute_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
            Ok(())
        })
    }

    /// The digits of the next subscribers after `after` that the database has as registered at this AMF.
    pub fn registered_at(
        &mut self,
        replica: &Store,
        amf: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<String>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.run(within(limit.unsigned_abs() as usize), replica, async |session| {
            let sql = "SELECT coalesce(array_agg(supi), '{}') FROM \
                       (SELECT supi FROM whimbrel.registration WHERE amf = $1 AND supi > $2 ORDER BY supi LIMIT $3) p";
            let values: [(&(dyn ToSql + Sync), Type); 3] =
                [(&amf, Type::TEXT), (&after, Type::TEXT), (&limit, Type::INT8)];
            let mut supis: Vec<String> = get(&one(&session.client, sql, &values).await?, 0)?;
            supis.sort();
            Ok(supis)
        })
    }
}
