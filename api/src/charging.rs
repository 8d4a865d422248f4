//! The routes of the charging function of this core: accounts, credit, charging records. SQLite blocks, so each request works on a thread of
//! the runtime's pool.

use std::sync::{Arc, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_charging::{
    Account, AccountKind, AccountStatus, CSV_HEADING, ChargingError, ChargingFunction, ChargingRecord,
    ClosingCause, CreditRefusal, OpenSession, RatingGroupUsage,
};
use whimbrel_ids::Supi;
use whimbrel_node::{accounts, clock, subscribers};
use whimbrel_store::Text;

use super::HandlerContext;
use super::audit_entries::Homes;
use super::input::{JsonBody, PageLimit, PageQuery, PathParts, Query, SupiPart, page};
use super::openapi::OperationDescription;
use super::problem::ProblemDetails;
use super::routes::{AnswerKind, Empty, HandlerResult, Json, Reply, RoutedRequest, TypedReply};

/// Octets of a reference of a credit: a UUID, or the number of a voucher or payment.
const REFERENCE_OCTETS_MAX: usize = 64;

impl From<ChargingError> for ProblemDetails {
    fn from(e: ChargingError) -> Self {
        ProblemDetails::unavailable(e.to_string())
    }
}

/// Runs a function on the accounts, which are opened at first use.
async fn with_accounts<R: Send + 'static>(
    shared: &Arc<HandlerContext>,
    work: impl FnOnce(&mut ChargingFunction) -> Result<R, ProblemDetails> + Send + 'static,
) -> Result<R, ProblemDetails> {
    if !shared.config.uses_own_chf() {
        return Err(ProblemDetails::not_found(
            "this core has no charging function of its own: `sbi.chf: embedded` or `sbi.offer: [chf]` starts it (docs/sbi.md)",
        ));
    }
    let shared = shared.clone();
    let worked = tokio::task::spawn_blocking(move || {
        let mut function = shared.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if function.is_none() {
            *function = Some(accounts::open(&shared.config).map_err(ProblemDetails::unavailable)?);
        }
        match function.as_mut() {
            Some(function) => work(function),
            None => Err(ProblemDetails::unavailable("the accounts are not open")),
        }
    });
    worked.await.unwrap_or_else(|_| Err(ProblemDetails::internal("the work on the accounts ended early")))
}

fn no_account(supi: Supi) -> ProblemDetails {
    ProblemDetails::not_found(format!("{supi} has no account"))
}

/// Some accounts in the order of their SUPI.
#[derive(Serialize, JsonSchema)]
pub(super) struct AccountPage {
    /// The accounts of this page.
    accounts: Vec<Account>,
    /// The `after` of the next request; null at the end.
    next: Option<String>,
}

pub(super) async fn list(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<PageQuery>,
) -> HandlerResult<Json<AccountPage>> {
    let (after, limit) = (query.after.map(|after| after.0), page(query.limit));
    let accounts = with_accounts(&shared, move |function| Ok(function.accounts(after, limit)?)).await?;
    let next = accounts.last().filter(|_| accounts.len() == limit).map(|account| account.supi.to_string());
    TypedReply::json(&AccountPage { accounts, next })
}

/// An account with the sessions that are charged to it now.
#[derive(Serialize, JsonSchema)]
pub(super) struct AccountView {
    account: Account,
    /// Its open sessions, oldest first.
    sessions: Vec<OpenSessionView>,
}

/// A session that is charged.
#[derive(Serialize, JsonSchema)]
struct OpenSessionView {
    /// The identity of its charging data resource.
    session: String,
    /// The function that charges; null: the SMF of this core.
    consumer: Option<String>,
    pdu_session_id: Option<u8>,
    dnn: Option<String>,
    s_nssai: Option<String>,
    /// When charging began.
    start: String,
    /// Octets that are reserved for it.
    reserved_octets: u64,
    /// Usage until its last report.
    rating_groups: Vec<RatingGroupUsage>,
}

impl From<OpenSession> for OpenSessionView {
    fn from(session: OpenSession) -> Self {
        Self {
            session: session.session.into(),
            consumer: session.consumer.map(Into::into),
            pdu_session_id: session.pdu_session_id,
            dnn: session.dnn.map(Into::into),
            s_nssai: session.s_nssai.map(Into::into),
            start: clock::rfc3339(session.start),
            reserved_octets: session.reserved_octets,
            rating_groups: session.rating_groups,
        }
    }
}

pub(super) async fn show(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
) -> HandlerResult<Json<AccountView>> {
    let supi = path.supi();
    let found = with_accounts(&shared, move |function| {
        let account = function.account(supi)?.ok_or_else(|| no_account(supi))?;
        let sessions = function.open_sessions(supi)?.into_iter().map(OpenSessionView::from).collect();
        Ok(AccountView { account, sessions })
    });
    TypedReply::json(&found.await?)
}

/// An account to make, or to change.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountInput {
    kind: AccountKind,
    /// `active` if absent.
    #[serde(default)]
    status: AccountStatus,
}

pub(super) async fn put(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
    JsonBody(input): JsonBody<AccountInput>,
) -> HandlerResult<Json<Account>> {
    let supi = path.supi();
    let put =
        with_accounts(&shared, move |function| Ok(function.put_account(supi, input.kind, input.status)?.0));
    TypedReply::json(&put.await?)
}

pub(super) async fn remove(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
) -> HandlerResult<Empty> {
    let supi = path.supi();
    let removed = with_accounts(&shared, move |function| Ok(function.remove_account(supi)?));
    removed.await?.then(TypedReply::empty).ok_or_else(|| no_account(supi))
}

/// A change of the credit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreditInput {
    /// Octets to add; fewer than zero take back what is left.
    octets: i64,
    /// The number of a payment or voucher, of up to 64 characters: the same one again changes nothing.
    reference: Option<String>,
}

pub(super) async fn credit(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
    JsonBody(input): JsonBody<CreditInput>,
) -> HandlerResult<Json<Account>> {
    let supi = path.supi();
    if input.reference.as_ref().is_some_and(|r| r.is_empty() || r.len() > REFERENCE_OCTETS_MAX) {
        return Err(ProblemDetails::unprocessable("`reference` has 1 to 64 characters"));
    }
    let credited = with_accounts(&shared, move |function| {
        let credited = function.credit(clock::now(), supi, input.octets, input.reference.as_deref())?;
        credited.map_err(|refusal| match refusal {
            CreditRefusal::Unknown(_) => ProblemDetails::not_found(refusal.to_string()),
            CreditRefusal::OutOfRange { .. } => ProblemDetails::unprocessable(refusal.to_string()),
            CreditRefusal::ReferenceUsed => ProblemDetails::conflict(refusal.to_string()),
        })
    });
    TypedReply::json(&credited.await?)
}

/// Selects the records to return.
#[derive(Deserialize, JsonSchema)]
pub(super) struct RecordQuery {
    /// Only those of this subscriber.
    supi: Option<Text<Supi>>,
    /// Only records with greater numbers.
    after: Option<u64>,
    /// Most records to return; 100 if absent.
    limit: Option<PageLimit>,
    /// `all`: the records of all homes that share PostgreSQL, numbered in the order in which they came there; `own` if absent.
    homes: Option<Homes>,
}

/// Some charging records in the order of their numbers.
#[derive(Serialize, JsonSchema)]
pub(super) struct RecordPage {
    /// The records of this page.
    records: Vec<RecordView>,
    /// The `after` of the next request; null at the end.
    next: Option<u64>,
}

/// The charging record of a session (TS 32.255 §6.1.3).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ChargingRecord")]
struct RecordView {
    /// The home that charged; only with `homes=all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    home: Option<String>,
    /// Rises with each record. A session on which a late report came has a new record, with all of its usage.
    number: u64,
    /// The identity of the session's charging data resource.
    session: String,
    supi: String,
    /// The function that charged; null: the SMF of this core.
    consumer: Option<String>,
    charging_id: Option<u32>,
    pdu_session_id: Option<u8>,
    dnn: Option<String>,
    s_nssai: Option<String>,
    start: String,
    end: String,
    uplink_octets: u64,
    downlink_octets: u64,
    /// Octets that were charged.
    total_octets: u64,
    /// Time of use, in seconds.
    time_s: u64,
    rating_groups: Vec<RatingGroupUsage>,
    cause: ClosingCause,
}

impl From<&ChargingRecord> for RecordView {
    fn from(record: &ChargingRecord) -> Self {
        let total = record.total();
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        Self {
            home: None,
            number: record.number,
            session: record.session.to_string(),
            supi: record.supi.to_string(),
            consumer: text(&record.consumer),
            charging_id: record.charging_id,
            pdu_session_id: record.pdu_session_id,
            dnn: text(&record.dnn),
            s_nssai: text(&record.s_nssai),
            start: clock::rfc3339(record.start),
            end: clock::rfc3339(record.end),
            uplink_octets: total.uplink_octets,
            downlink_octets: total.downlink_octets,
            total_octets: total.total_octets,
            time_s: total.time_s,
            rating_groups: record.rating_groups.clone(),
            cause: record.cause,
        }
    }
}

/// Records, each with the name of its home if those of all homes are asked for. Those have the numbers of their arrival in place of their own.
async fn read_records(
    shared: &Arc<HandlerContext>,
    query: RecordQuery,
) -> Result<Vec<(Option<String>, ChargingRecord)>, ProblemDetails> {
    let (supi, after, limit) = (query.supi.map(|supi| supi.0), query.after.unwrap_or(0), page(query.limit));
    if query.homes == Some(Homes::All) {
        let shared = shared.clone();
        let read = tokio::task::spawn_blocking(move || {
            let (mut database, replica) = subscribers::open_database(&shared.config.store)?;
            let (supi, after) = (supi.map(|supi| supi.to_string()), i64::try_from(after).unwrap_or(i64::MAX));
            let rows = database.usage_after(&replica, supi.as_deref(), after, limit)?;
            let mut records = Vec::new();
            for row in rows {
                let record: ChargingRecord = serde_json::from_str(&row.text)
                    .map_err(|_| ProblemDetails::unavailable("a charging record in PostgreSQL is none"))?;
                records
                    .push((Some(row.home), ChargingRecord { number: row.number.unsigned_abs(), ..record }));
            }
            Ok(records)
        });
        return read.await.map_err(|_| ProblemDetails::internal("the records could not be read"))?;
    }
    let own = with_accounts(shared, move |function| Ok(function.records(supi, after, limit)?)).await?;
    Ok(own.into_iter().map(|record| (None, record)).collect())
}

/// Records as CSV, with a last column for their home if they have homes.
fn csv_text(records: &[(Option<String>, ChargingRecord)], has_homes: bool) -> String {
    let mut text = match has_homes {
        true => CSV_HEADING.replace("\r\n", ",home\r\n"),
        false => CSV_HEADING.to_owned(),
    };
    for (home, record) in records {
        let line = record.csv_line(clock::rfc3339);
        match home {
            // Any program may have written the name.
            Some(home) => {
                text += &format!("{},\"{}\"\r\n", line.trim_end(), home.replace(['"', '\r', '\n'], " "))
            }
            None => text += &line,
        }
    }
    text
}

pub(super) async fn records(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<RecordQuery>,
) -> HandlerResult<Json<RecordPage>> {
    let limit = page(query.limit);
    let records = read_records(&shared, query).await?;
    let next = records.last().filter(|_| records.len() == limit).map(|(_, record)| record.number);
    let view = |(home, record): &(Option<String>, ChargingRecord)| RecordView {
        home: home.clone(),
        ..record.into()
    };
    TypedReply::json(&RecordPage { records: records.iter().map(view).collect(), next })
}

/// Records as CSV (RFC 4180).
pub(super) struct CsvText;

impl AnswerKind for CsvText {
    fn describe(operation: &mut OperationDescription<'_>) {
        let schema = operation.answer_schema::<String>();
        operation.add_answer("200", "Done", &[("text/csv", schema)]);
    }
}

pub(super) async fn records_as_csv(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<RecordQuery>,
) -> HandlerResult<CsvText> {
    let has_homes = query.homes == Some(Homes::All);
    let records = read_records(&shared, query).await?;
    let text = csv_text(&records, has_homes);
    Ok(Reply::text("text/csv; charset=utf-8", text).into())
}
