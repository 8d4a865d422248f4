//! The operations on accounts and sessions, within one transaction.

use core::time::Duration;
use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use sha2::{Digest, Sha256};
use whimbrel_ids::{Instant, Supi};

use crate::account::{Account, AccountKind, AccountStatus};
use crate::record::ClosingCause;
use crate::request::{
    CONTAINERS_MAX, ChargedSession, ChargingDataRequest, ChargingDataResponse, ChargingOperation,
    ChargingPolicy, ChargingRefusal, Denial, GrantedUnit, MultipleUnitInformation, MultipleUnitUsage,
    OCTETS_MAX, RATING_GROUPS_MAX, SessionReference, UnitResult,
};

/// The end of an operation: a refusal undoes it.
pub(crate) enum Ended {
    Refused(ChargingRefusal),
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Ended {
    fn from(e: rusqlite::Error) -> Self {
        Self::Failed(e)
    }
}

impl From<ChargingRefusal> for Ended {
    fn from(refusal: ChargingRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A transaction on the file.
pub(crate) struct Ledger<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) policy: &'a ChargingPolicy,
    pub(crate) now: Instant,
}

/// A session, as its row has it.
struct SessionRow {
    id: i64,
    resource: Box<str>,
    supi: Supi,
    is_last: bool,
    sequence: u32,
    digest: [u8; 16],
    answer: String,
    cause: Option<ClosingCause>,
}

/// Usage of one rating group of a session.
#[derive(Clone, Copy, Default)]
struct GroupUsage {
    reserved: u64,
    /// The last localSequenceNumber that was counted.
    number: u32,
    uplink: u64,
    downlink: u64,
    total: u64,
    time_s: u64,
}

const SESSION: &str = "id, resource, supi, is_last, sequence, digest, answer, cause";

impl SessionRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let cause: Option<String> = row.get(7)?;
        let cause = cause.map(|cause| ClosingCause::read(&cause).ok_or_else(|| damaged(7))).transpose()?;
        Ok(Self {
            id: row.get(0)?,
            resource: row.get(1)?,
            supi: supi_in(row, 2)?,
            is_last: row.get(3)?,
            sequence: row.get(4)?,
            digest: row.get(5)?,
            answer: row.get(6)?,
            cause,
        })
    }
}

impl Ledger<'_> {
    /// Executes a request.
    pub(crate) fn handle(&self, request: &ChargingDataRequest) -> Result<ChargingDataResponse, Ended> {
        check(request)?;
        match &request.operation {
            ChargingOperation::Create(session) => self.create(session, request),
            ChargingOperation::Update(reference) => self.report(reference, request, false),
            ChargingOperation::Release(reference) => self.report(reference, request, true),
        }
    }

    /// Nchf_ConvergedCharging_Create (TS 32.290 §5.3.2.2).
    fn create(
        &self,
        charged: &ChargedSession,
        request: &ChargingDataRequest,
    ) -> Result<ChargingDataResponse, Ended> {
        let key = charged.key.text();
        let former = match &key {
            Some(key) => self.session("key = ?1 AND end IS NULL", key)?,
            None => None,
        };
        let digest = digest_of(request);
        if let Some(former) = former {
            // While nothing has followed it, this is the same request again. Otherwise the consumer has lost its state, and its
            // charging identifiers start from the beginning.
            if (former.sequence, former.digest) == (request.sequence, digest) {
                return answer_in(&former.answer);
            }
            self.close(former.id, former.supi, ClosingCause::Superseded)?;
        }
        let supi = charged.key.supi;
        let mut account = self.account_of(supi)?;
        if account.status == AccountStatus::Barred {
            return Err(ChargingRefusal::EndUserRequestDenied.into());
        }
        if self.total("sessions")? >= self.policy.sessions_max {
            return Err(ChargingRefusal::TooManySessions.into());
        }
        let mut groups = BTreeMap::new();
        count(&mut groups, Some(&mut account), &request.usage)?;
        let (units, is_last) = self.grant(&mut groups, Some(&mut account), &request.usage);
        let is_refused = |unit: &MultipleUnitInformation| matches!(unit.result, UnitResult::Denied(_));
        // Usage of a session that has begun without this function is charged in any case.
        let has_usage = request.usage.iter().any(|usage| !usage.used.is_empty());
        if !units.is_empty() && units.iter().all(is_refused) && !has_usage {
            return Err(ChargingRefusal::QuotaLimitReached.into());
        }
        let response = ChargingDataResponse { resource: charged.resource.clone(), units };
        let answer = text_of(&response)?;
        let key_of = &charged.key;
        let mut insert = self.db.prepare_cached(
            "INSERT INTO session (resource, key, supi, consumer, charging_id, pdu_session_id, notify_uri, dnn, s_nssai, start, expires, \
             is_last, sequence, digest, answer) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?;
        insert.execute(params![
            charged.resource,
            key,
            supi.to_string(),
            key_of.consumer,
            key_of.charging_id,
            key_of.pdu_session_id,
            charged.notify_uri,
            charged.dnn,
            charged.s_nssai,
            sql(self.now.0),
            sql(self.expires().0),
            is_last == Some(true),
            request.sequence,
            digest,
            answer,
        ])?;
        let id = self.db.last_insert_rowid();
        self.add_to_total("sessions", 1)?;
        self.put_usage(id, &groups)?;
        self.put_account(&account)?;
        Ok(response)
    }

    /// Nchf_ConvergedCharging_Update and Release (TS 32.290 §5.3.2.3, §5.3.2.4).
    fn report(
        &self,
        reference: &SessionReference,
        request: &ChargingDataRequest,
        is_release: bool,
    ) -> Result<ChargingDataResponse, Ended> {
        let found = match reference {
            SessionReference::Resource(resource, _) => self.session("resource = ?1", resource)?,
            SessionReference::Key(key) => match key.text() {
                Some(key) => self.session("key = ?1 ORDER BY id DESC LIMIT 1", &key)?,
                None => None,
            },
        };
        let names_other = |session: &SessionRow| matches!(reference, SessionReference::Resource(_, Some(supi)) if *supi != session.supi);
        let session = found.filter(|session| !names_other(session)).ok_or(ChargingRefusal::NoSuchResource)?;
        let digest = digest_of(request);
        if (session.sequence, session.digest) == (request.sequence, digest) {
            return answer_in(&session.answer);
        }
        if request.sequence < session.sequence {
            return Err(ChargingRefusal::SequenceWentBack { last: session.sequence }.into());
        }
        match session.cause {
            None => {}
            Some(ClosingCause::Released) => return Err(ChargingRefusal::NoSuchResource.into()),
            // The consumer was away: its usage is charged all the same.
            Some(ClosingCause::NoReport | ClosingCause::Superseded) => self.reopen(session.id)?,
        }
        let mut account = self.account(session.supi)?;
        let mut groups = self.usage(session.id)?;
        count(&mut groups, account.as_mut(), &request.usage)?;
        let (units, is_last) = match is_release {
            true => (Vec::new(), None),
            false => self.grant(&mut groups, account.as_mut(), &request.usage),
        };
        if is_release {
            give_back(&mut groups, account.as_mut());
        }
        self.put_usage(session.id, &groups)?;
        account.iter().try_for_each(|account| self.put_account(account))?;
        let response = ChargingDataResponse { resource: session.resource, units };
        let mut update = self.db.prepare_cached(
            "UPDATE session SET expires = ?2, is_last = ?3, sequence = ?4, digest = ?5, answer = ?6 WHERE id = ?1",
        )?;
        let is_last = is_last.unwrap_or(session.is_last);
        let answer = text_of(&response)?;
        update.execute(params![
            session.id,
            sql(self.expires().0),
            is_last,
            request.sequence,
            digest,
            answer
        ])?;
        if is_release {
            self.mark_closed(session.id, ClosingCause::Released)?;
        }
        Ok(response)
    }

    /// Reserves what is asked for and is left. The second: whether the last quota was granted, or none; `None` if nothing was asked for.
    fn grant(
        &self,
        groups: &mut BTreeMap<u32, GroupUsage>,
        mut account: Option<&mut Account>,
        usage: &[MultipleUnitUsage],
    ) -> (Vec<MultipleUnitInformation>, Option<bool>) {
        let mut asked: BTreeMap<u32, u64> = BTreeMap::new();
        for usage in usage {
            // A request for nothing comes with a last report.
            if let Some(octets) = usage.requested.map(|octets| octets.unwrap_or(self.policy.grant_octets))
                && octets > 0
            {
                let sum = asked.entry(usage.rating_group).or_default();
                *sum = sum.saturating_add(octets).min(self.policy.grant_octets);
            }
        }
        // The rests of the former quotas first, so that each group finds all that is left.
        for group in asked.keys() {
            let group = groups.entry(*group).or_default();
            if let Some(account) = &mut account {
                account.give_back(std::mem::take(&mut group.reserved));
            }
        }
        let mut is_last = None;
        let mut units = Vec::new();
        for (rating_group, requested) in asked {
            let result = match &mut account {
                None => UnitResult::Denied(Denial::UserUnknown),
                Some(account) if account.status == AccountStatus::Barred => {
                    UnitResult::Denied(Denial::EndUserServiceDenied)
                }
                Some(account) if account.kind == AccountKind::Postpaid => UnitResult::NotApplicable,
                Some(account) => {
                    // What other sessions have reserved may come back.
                    let is_alone = account.reserved_octets == 0;
                    let octets = account.reserve(requested);
                    groups.entry(rating_group).or_default().reserved = octets;
                    let is_last = is_alone && account.balance_octets == 0;
                    let threshold = octets / 100 * u64::from(self.policy.threshold_percent);
                    let threshold_octets = (!is_last && threshold > 0).then_some(threshold);
                    let validity_s = self.policy.validity_s;
                    match octets {
                        0 => UnitResult::Denied(Denial::QuotaLimitReached),
                        _ => {
                            UnitResult::Granted(GrantedUnit { octets, threshold_octets, validity_s, is_last })
                        }
                    }
                }
            };
            let ends = match result {
                UnitResult::Granted(unit) => unit.is_last,
                UnitResult::NotApplicable => false,
                UnitResult::Denied(_) => true,
            };
            is_last = Some(is_last.unwrap_or(false) || ends);
            units.push(MultipleUnitInformation { rating_group, result });
        }
        (units, is_last)
    }

    /// Closes sessions whose consumers have not reported for two validity times. Returns their number.
    pub(crate) fn expire(&self, max: usize) -> rusqlite::Result<usize> {
        let sql_text =
            "SELECT id, supi FROM session WHERE end IS NULL AND expires <= ?1 ORDER BY expires LIMIT ?2";
        let mut due = self.db.prepare_cached(sql_text)?;
        let read = |row: &Row<'_>| Ok((row.get(0)?, supi_in(row, 1)?));
        let due: Vec<(i64, Supi)> =
            due.query_map(params![sql(self.now.0), max as i64], read)?.collect::<Result<_, _>>()?;
        for (id, supi) in &due {
            self.close(*id, *supi, ClosingCause::NoReport)?;
        }
        let (kept, max) = (sql((self.now - self.policy.records_kept).0), max as i64);
        let old = "DELETE FROM session WHERE id IN (SELECT id FROM session WHERE end IS NOT NULL AND end < ?1 LIMIT ?2)";
        self.db.prepare_cached(old)?.execute(params![kept, max])?;
        self.db.prepare_cached("DELETE FROM credit WHERE at < ?1")?.execute([kept])?;
        Ok(due.len())
    }

    /// Gives the reservations of a session back and closes it.
    fn close(&self, id: i64, supi: Supi, cause: ClosingCause) -> rusqlite::Result<()> {
        let (mut account, mut groups) = (self.account(supi)?, self.usage(id)?);
        give_back(&mut groups, account.as_mut());
        self.put_usage(id, &groups)?;
        account.iter().try_for_each(|account| self.put_account(account))?;
        self.mark_closed(id, cause)
    }

    fn mark_closed(&self, id: i64, cause: ClosingCause) -> rusqlite::Result<()> {
        self.add_to_total("sessions", -1)?;
        self.add_to_total("records", 1)?;
        let record = self.total("records")?;
        let closed = "UPDATE session SET end = ?2, cause = ?3, record = ?4 WHERE id = ?1";
        self.db.prepare_cached(closed)?.execute(params![id, sql(self.now.0), cause.as_str(), sql(record)])?;
        self.db.prepare_cached("DELETE FROM notification WHERE session = ?1")?.execute([id])?;
        Ok(())
    }

    /// A session that its consumer reports on after it was closed. Its key may be another one's by now.
    fn reopen(&self, id: i64) -> rusqlite::Result<()> {
        let opened = "UPDATE session SET end = NULL, cause = NULL, record = NULL, \
                      key = CASE WHEN key IN (SELECT key FROM session WHERE end IS NULL) THEN NULL ELSE key END WHERE id = ?1";
        self.db.prepare_cached(opened)?.execute([id])?;
        self.add_to_total("sessions", 1)
    }

    /// The account of a subscriber whose session begins.
    fn account_of(&self, supi: Supi) -> Result<Account, Ended> {
        if let Some(account) = self.account(supi)? {
            return Ok(account);
        }
        let (kind, credit) =
            self.policy.default_account.filter(|_| !supi.is_nai()).ok_or(ChargingRefusal::UserUnknown)?;
        if self.total("accounts")? >= self.policy.accounts_max {
            return Err(ChargingRefusal::TooManyAccounts.into());
        }
        let mut account = Account::new(supi, kind);
        let credit = i64::try_from(credit).ok().and_then(|credit| account.credit(credit));
        credit.ok_or(ChargingRefusal::VolumeOutOfRange)?;
        Ok(account)
    }

    pub(crate) fn account(&self, supi: Supi) -> rusqlite::Result<Option<Account>> {
        let text = format!("SELECT {ACCOUNT} FROM account WHERE supi = ?1");
        self.db.prepare_cached(&text)?.query_row([supi.to_string()], account_in).optional()
    }

    pub(crate) fn put_account(&self, account: &Account) -> rusqlite::Result<()> {
        assert!(account.is_balanced(), "an account's octets are each in one place");
        let known = self.account(account.supi)?.is_some();
        let put = "INSERT INTO account VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
                   ON CONFLICT (supi) DO UPDATE SET kind = ?2, status = ?3, credited = ?4, balance = ?5, reserved = ?6, used = ?7, \
                   overdraft = ?8, postpaid = ?9";
        self.db.prepare_cached(put)?.execute(params![
            account.supi.to_string(),
            kind_text(account.kind),
            status_text(account.status),
            sql(account.credited_octets),
            sql(account.balance_octets),
            sql(account.reserved_octets),
            sql(account.used_octets),
            sql(account.overdraft_octets),
            sql(account.postpaid_octets),
        ])?;
        match known {
            true => Ok(()),
            false => self.add_to_total("accounts", 1),
        }
    }

    /// One of the columns of `total`.
    pub(crate) fn total(&self, column: &str) -> rusqlite::Result<u64> {
        self.db.prepare_cached(&format!("SELECT {column} FROM total"))?.query_row([], |row| octets(row, 0))
    }

    pub(crate) fn add_to_total(&self, column: &str, change: i64) -> rusqlite::Result<()> {
        let add = format!("UPDATE total SET {column} = {column} + ?1");
        self.db.prepare_cached(&add)?.execute([change]).map(drop)
    }

    fn session(&self, condition: &str, value: &str) -> rusqlite::Result<Option<SessionRow>> {
        let text = format!("SELECT {SESSION} FROM session WHERE {condition}");
        self.db.prepare_cached(&text)?.query_row([value], SessionRow::read).optional()
    }

    fn usage(&self, session: i64) -> rusqlite::Result<BTreeMap<u32, GroupUsage>> {
        let text = "SELECT rating_group, reserved, number, uplink, downlink, total, time_s FROM usage WHERE session = ?1";
        let read = |row: &Row<'_>| {
            let usage = GroupUsage {
                reserved: octets(row, 1)?,
                number: row.get(2)?,
                uplink: octets(row, 3)?,
                downlink: octets(row, 4)?,
                total: octets(row, 5)?,
                time_s: octets(row, 6)?,
            };
            Ok((row.get(0)?, usage))
        };
        self.db.prepare_cached(text)?.query_map([session], read)?.collect()
    }

    fn put_usage(&self, session: i64, groups: &BTreeMap<u32, GroupUsage>) -> rusqlite::Result<()> {
        let put = "INSERT OR REPLACE INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let mut put = self.db.prepare_cached(put)?;
        for (rating_group, usage) in groups {
            let GroupUsage { reserved, number, uplink, downlink, total, time_s } = *usage;
            put.execute(params![
                session,
                rating_group,
                sql(reserved),
                number,
                sql(uplink),
                sql(downlink),
                sql(total),
                sql(time_s)
            ])?;
        }
        Ok(())
    }

    /// When a session that reports now is closed without a further report.
    fn expires(&self) -> Instant {
        self.now + Duration::from_secs(2 * u64::from(self.policy.validity_s))
    }
}

/// Bounds of a request.
fn check(request: &ChargingDataRequest) -> Result<(), ChargingRefusal> {
    let containers = || request.usage.iter().flat_map(|usage| &usage.used);
    if containers().count() > CONTAINERS_MAX {
        return Err(ChargingRefusal::TooManyContainers);
    }
    let is_within = containers().all(|used| used.octets() <= OCTETS_MAX);
    is_within.then_some(()).ok_or(ChargingRefusal::VolumeOutOfRange)
}

/// Counts each container once, and charges it.
fn count(
    groups: &mut BTreeMap<u32, GroupUsage>,
    mut account: Option<&mut Account>,
    usage: &[MultipleUnitUsage],
) -> Result<(), ChargingRefusal> {
    for usage in usage {
        if groups.len() >= RATING_GROUPS_MAX && !groups.contains_key(&usage.rating_group) {
            return Err(ChargingRefusal::TooManyRatingGroups);
        }
        let group = groups.entry(usage.rating_group).or_default();
        let mut containers = usage.used.clone();
        containers.sort_by_key(|used| used.number);
        for used in containers {
            if used.number != 0 && used.number <= group.number {
                continue;
            }
            group.number = group.number.max(used.number);
            let add = |counter: &mut u64, more: u64| *counter = (*counter + more).min(i64::MAX as u64);
            add(&mut group.uplink, used.uplink);
            add(&mut group.downlink, used.downlink);
            add(&mut group.total, used.octets());
            add(&mut group.time_s, used.time_s.into());
            if let Some(account) = &mut account {
                let rest = account.settle(group.reserved, used.octets());
                group.reserved = rest.ok_or(ChargingRefusal::VolumeOutOfRange)?;
            }
        }
    }
    Ok(())
}

/// Gives all reservations of a session back.
fn give_back(groups: &mut BTreeMap<u32, GroupUsage>, account: Option<&mut Account>) {
    let reserved = groups.values_mut().map(|group| std::mem::take(&mut group.reserved)).sum();
    if let Some(account) = account {
        account.give_back(reserved);
    }
}

/// The content by which a repeated request is known. The times of numbered containers are not part of it: after a takeover of its consumer a
/// request comes again with others.
///
/// Deviation: consumers that number neither their requests nor their containers exist. Their requests differ by these times.
fn digest_of(request: &ChargingDataRequest) -> [u8; 16] {
    let kind: u8 = match request.operation {
        ChargingOperation::Create(_) => 0,
        ChargingOperation::Update(_) => 1,
        ChargingOperation::Release(_) => 2,
    };
    let mut digest = Sha256::new();
    let mut add = |number: u64| digest.update(number.to_be_bytes());
    add(kind.into());
    for usage in &request.usage {
        add(usage.rating_group.into());
        let (is_asked, octets) = match usage.requested {
            None => (0, 0),
            Some(None) => (1, 0),
            Some(Some(octets)) => (2, octets),
        };
        [is_asked, octets, usage.used.len() as u64].into_iter().for_each(&mut add);
        for used in &usage.used {
            let at = used.at.filter(|_| used.number == 0).map_or(0, |at| at.0);
            [used.number.into(), used.uplink, used.downlink, used.total, used.time_s.into(), at]
                .into_iter()
                .for_each(&mut add);
        }
    }
    let mut first = [0; 16];
    first.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    first
}

fn text_of(response: &ChargingDataResponse) -> rusqlite::Result<String> {
    serde_json::to_string(response).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
}

fn answer_in(text: &str) -> Result<ChargingDataResponse, Ended> {
    serde_json::from_str(text).map_err(|_| damaged(6).into())
}

pub(crate) const ACCOUNT: &str = "supi, kind, status, credited, balance, reserved, used, overdraft, postpaid";

pub(crate) fn account_in(row: &Row<'_>) -> rusqlite::Result<Account> {
    let (kind, status): (String, String) = (row.get(1)?, row.get(2)?);
    let kinds = [AccountKind::Prepaid, AccountKind::Postpaid];
    let statuses = [AccountStatus::Active, AccountStatus::Barred];
    let account = Account {
        supi: supi_in(row, 0)?,
        kind: kinds.into_iter().find(|k| kind_text(*k) == kind).ok_or_else(|| damaged(1))?,
        status: statuses.into_iter().find(|s| status_text(*s) == status).ok_or_else(|| damaged(2))?,
        credited_octets: octets(row, 3)?,
        balance_octets: octets(row, 4)?,
        reserved_octets: octets(row, 5)?,
        used_octets: octets(row, 6)?,
        overdraft_octets: octets(row, 7)?,
        postpaid_octets: octets(row, 8)?,
    };
    account.is_balanced().then_some(account).ok_or_else(|| damaged(4))
}

fn kind_text(kind: AccountKind) -> &'static str {
    match kind {
        AccountKind::Prepaid => "prepaid",
        AccountKind::Postpaid => "postpaid",
    }
}

fn status_text(status: AccountStatus) -> &'static str {
    match status {
        AccountStatus::Active => "active",
        AccountStatus::Barred => "barred",
    }
}

/// A number as SQLite has it. Counters and times are below 2^63.
pub(crate) fn sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn octets(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| damaged(column))
}

pub(crate) fn supi_in(row: &Row<'_>, column: usize) -> rusqlite::Result<Supi> {
    row.get::<_, String>(column)?.parse().map_err(|_| damaged(column))
}

pub(crate) fn damaged(column: usize) -> rusqlite::Error {
    let what = "the value is not of the form that this program writes".into();
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what)
}
