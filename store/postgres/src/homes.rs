//! The homes of a database: which file is which AMF, and the slot that each AMF has in the USIMs' arrays (TS 33.102 Annex C).

use std::collections::BTreeMap;

use tokio_postgres::types::{ToSql, Type};
use whimbrel_ids::SNssai;
use whimbrel_security::SqnSlot;
use whimbrel_store::{DatabaseFailure, HomeRecord, Store, StoreError};

use crate::database::{PostgresDatabase, Session, get, one, within};
use crate::failure::failure_of;

/// Writes after which the file keeps their number: a kill loses fewer.
const WRITES_KEPT_EVERY: i64 = 64;

/// The AMF that this home is, or a CTA of it.
#[derive(Clone, Debug)]
pub struct HomePlace {
    /// The digits of its PLMN, `-`, and its AMF identifier in six hexadecimal digits (TS 23.003 §2.10.1).
    pub amf: String,
    /// Number of the CTA, where an AMF has two with a file each.
    pub cta: i32,
    /// A name for the operator.
    pub name: String,
    /// The slot that the configuration names.
    pub sqn_slot: Option<SqnSlot>,
}

/// The answer to a home that enters itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnteredHome {
    /// The database does not have all that this home has written.
    pub is_lost: bool,
    /// The AMF's slot, as it is in the file now.
    pub sqn_slot: Option<SqnSlot>,
    /// Another AMF with the same slot.
    pub shared_with: Option<String>,
}

/// The UEs of one slice at an AMF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceUse {
    /// The limit in the whole network.
    pub most: u32,
    /// UEs that are counted here.
    pub used: u32,
    /// The share that is in force here.
    pub share: u32,
}

/// A home, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedHome {
    /// The AMF, as in [`HomePlace`].
    pub amf: String,
    /// Number of the CTA.
    pub cta: i32,
    /// A name for the operator.
    pub name: String,
    /// Seconds since it was connected last.
    pub seconds_ago: i64,
    /// The AMF's slot.
    pub sqn_slot: Option<i16>,
    /// Subscribers that are registered at the AMF.
    pub registrations: i64,
}

impl PostgresDatabase {
    /// Says that this home runs, and leases what it needs.
    ///
    /// Errors: [`DatabaseFailure::AmfTaken`].
    pub fn enter(&mut self, replica: &mut Store, place: &HomePlace) -> Result<EnteredHome, StoreError> {
        let mut home = replica.home()?;
        let known = self.writes.max(home.writes);
        let configured = place.sqn_slot.map(|slot| i16::from(slot.number()));
        let kept = home.sqn_slot.map(i16::from);
        let values: [(&(dyn ToSql + Sync), Type); 7] = [
            (&place.amf, Type::TEXT),
            (&place.cta, Type::INT4),
            (&home.file, Type::TEXT),
            (&place.name, Type::TEXT),
            (&known, Type::INT8),
            (&configured, Type::INT2),
            (&kept, Type::INT2),
        ];
        let row = self.run(within(0), replica, async |session| {
            one(&session.client, "SELECT * FROM whimbrel.enter($1, $2, $3, $4, $5, $6, $7)", &values).await
        })?;
        (home.amf, home.cta) = (Some(place.amf.clone()), place.cta);
        let Some(writes) = get::<Option<i64>>(&row, 3)? else {
            let by =
                get::<Option<String>>(&row, 0)?.map_or_else(|| "of another file".into(), |name| line(&name));
            let seconds_ago = get::<Option<i64>>(&row, 1)?.unwrap_or(0).unsigned_abs();
            // The file says which home it is, for commands of the operator.
            replica.set_home(&home)?;
            return Err(DatabaseFailure::AmfTaken { by, seconds_ago }.into());
        };
        self.writes = writes;
        let slot: Option<i16> = get(&row, 4)?;
        let sqn_slot = slot.and_then(|slot| u8::try_from(slot).ok());
        let before = replica.home()?;
        if sqn_slot != home.sqn_slot || home != before || writes >= home.writes + WRITES_KEPT_EVERY {
            (home.sqn_slot, home.writes) = (sqn_slot, writes);
            replica.set_home(&home)?;
        }
        Ok(EnteredHome {
            is_lost: get::<Option<bool>>(&row, 2)?.unwrap_or(false),
            sqn_slot: sqn_slot.and_then(SqnSlot::new),
            shared_with: get(&row, 5)?,
        })
    }

    /// Leases a share of the limit of a slice for this AMF, which has `had` in force and `used` of it (TS 23.501 §5.15.11.1). Returns the share that is
    /// leased, and the one that the AMF should have: a smaller one is to be in force before the rest is given back.
    pub fn lease_slice_share(
        &mut self,
        replica: &Store,
        amf: &str,
        slice: SNssai,
        use_of_slice: SliceUse,
    ) -> Result<(u32, u32), StoreError> {
        let SliceUse { most, used, share } = use_of_slice;
        let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let (name, most, had, used) = (slice.to_string(), i64::from(most), number(share), number(used));
        let values: [(&(dyn ToSql + Sync), Type); 5] = [
            (&amf, Type::TEXT),
            (&name, Type::TEXT),
            (&most, Type::INT8),
            (&had, Type::INT4),
            (&used, Type::INT4),
        ];
        self.run(within(0), replica, async |session| {
            let sql = "SELECT granted, target FROM whimbrel.lease_share($1, $2, $3, $4, $5)";
            let row = one(&session.client, sql, &values).await?;
            Ok((get::<i32>(&row, 0)?.unsigned_abs(), get::<i32>(&row, 1)?.unsigned_abs()))
        })
    }

    /// The shares that this AMF has leased.
    pub fn slice_shares(&mut self, replica: &Store, amf: &str) -> Result<BTreeMap<SNssai, u32>, StoreError> {
        self.run(within(0), replica, async |session| {
            let sql = "SELECT slice, share FROM whimbrel.slice_share WHERE amf = $1";
            let rows =
                session.client.query_typed(sql, &[(&amf, Type::TEXT)]).await.map_err(|e| failure_of(&e))?;
            let mut shares = BTreeMap::new();
            for row in &rows {
                // A slice that is none was written by another program.
                if let Ok(slice) = get::<&str>(row, 0)?.parse() {
                    shares.insert(slice, get::<i32>(row, 1)?.unsigned_abs());
                }
            }
            Ok(shares)
        })
    }

    /// Gives back the shares of slices that have no limit any more.
    pub fn keep_slice_shares(&mut self, replica: &Store, amf: &str, of: &[SNssai]) -> Result<(), StoreError> {
        let of: Vec<String> = of.iter().map(SNssai::to_string).collect();
        self.run(within(0), replica, async |session| {
            let sql = "DELETE FROM whimbrel.slice_share WHERE amf = $1 AND slice <> ALL ($2)";
            let values: [(&(dyn ToSql + Sync), Type); 2] = [(&amf, Type::TEXT), (&of, Type::TEXT_ARRAY)];
            session.client.execute_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
            Ok(())
        })
    }

    /// All homes, in the order of their AMFs.
    pub fn homes(&mut self, replica: &Store) -> Result<Vec<ListedHome>, StoreError> {
        self.run(within(0), replica, async |session| {
            let sql = "SELECT h.amf, h.cta, h.name, CASE WHEN isfinite(h.seen) THEN extract(epoch FROM clock_timestamp() - h.seen)::bigint ELSE 0 END, \
                       (SELECT slot FROM whimbrel.sqn_slot s WHERE s.amf = h.amf), \
                       (SELECT count(*) FROM whimbrel.registration r WHERE r.amf = h.amf) FROM whimbrel.home h ORDER BY h.amf, h.cta";
            let rows = session.client.query_typed(sql, &[]).await.map_err(|e| failure_of(&e))?;
            rows.iter()
                .map(|row| {
                    Ok(ListedHome {
                        amf: get(row, 0)?,
                        cta: get(row, 1)?,
                        name: line(get(row, 2)?),
                        seconds_ago: get(row, 3)?,
                        sqn_slot: get(row, 4)?,
                        registrations: get(row, 5)?,
                    })
                })
                .collect()
        })
    }

    /// Removes an AMF that has gone for good, with what it has leased and the registrations at it.
    ///
    /// Errors: [`DatabaseFailure::HomeRuns`]; [`DatabaseFailure::NoSuchHome`].
    pub fn remove_home(&mut self, replica: &Store, amf: &str) -> Result<(), StoreError> {
        self.run(within(0), replica, async |session| {
            let sql = "SELECT name FROM whimbrel.home WHERE amf = $1 AND whimbrel.runs(seen) LIMIT 1";
            let client = &session.client;
            let running = client.query_typed(sql, &[(&amf, Type::TEXT)]).await.map_err(|e| failure_of(&e))?;
            if let Some(row) = running.first() {
                return Err(DatabaseFailure::HomeRuns { name: line(get(row, 0)?) }.into());
            }
            let sql = "WITH h AS (DELETE FROM whimbrel.home WHERE amf = $1 RETURNING 1), s AS (DELETE FROM whimbrel.sqn_slot WHERE amf = $1 RETURNING 1), \
                       r AS (DELETE FROM whimbrel.registration WHERE amf = $1), d AS (DELETE FROM whimbrel.deregistration WHERE amf = $1), \
                       l AS (DELETE FROM whimbrel.slice_share WHERE amf = $1) \
                       SELECT (SELECT count(*) FROM h) + (SELECT count(*) FROM s)";
            match get::<i64>(&one(client, sql, &[(&amf, Type::TEXT)]).await?, 0)? {
                0 => Err(DatabaseFailure::NoSuchHome.into()),
                _ => Ok(()),
            }
        })
    }
}

/// A home whose AMF identifier another one has changes nothing.
pub(crate) async fn check_place(session: &Session, home: &HomeRecord) -> Result<(), StoreError> {
    let Some(amf) = &home.amf else { return Ok(()) };
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(amf, Type::TEXT), (&home.cta, Type::INT4), (&home.file, Type::TEXT)];
    let sql = "SELECT name, seconds_ago FROM whimbrel.rival($1, $2, $3)";
    let rivals = session.client.query_typed(sql, &values).await.map_err(|e| failure_of(&e))?;
    match rivals.first() {
        None => Ok(()),
        Some(row) => Err(DatabaseFailure::AmfTaken {
            by: line(get(row, 0)?),
            seconds_ago: get::<Option<i64>>(row, 1)?.unwrap_or(0).unsigned_abs(),
        }
        .into()),
    }
}

/// A name as one short line: any program may have written it.
fn line(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).take(80).collect()
}
