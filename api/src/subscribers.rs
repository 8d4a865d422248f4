//! The subscribers' routes. SQLite blocks, so each request works on a thread of the runtime's pool.

use std::io::Cursor;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use hyper::body::Bytes;
use hyper::header::{ETAG, HeaderValue};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracing::warn;
use whimbrel_ids::Supi;
use whimbrel_node::clock;
use whimbrel_node::subscribers::{EditError, is_of, open, patch};
use whimbrel_store::{Format, OnExisting, Store, StoreError, SubscriberRecord, WithSecrets};
use zeroize::Zeroizing;

use super::HandlerContext;
use super::auth::source_of;
use super::input::{HandlerInput, IfMatch, JsonBody, PageQuery, PathParts, Query, SupiPart, page};
use super::openapi::OperationDescription;
use super::problem::{LineProblem, ProblemDetails};
use super::routes::{Created, Empty, HandlerResult, Json, RoutedRequest, TypedReply};
use crate::audit::repeated::{COUNTED_FOR, RecordingTime, RequestKind};
use crate::audit::{self, AuditedAccess};

/// Octets of an import: 100,000 subscribers as JSON are 25 MB.
pub(super) const IMPORT_OCTETS_MAX: usize = 64 << 20;

/// The login, as the audit log names it: a name in a request is no authentication.
const LOGIN: &str = "POST /api/v1/session";
/// The check of a configuration, which a page may send with each key stroke.
const CONFIGURATION_CHECK: &str = "POST /api/v1/config/check";

impl From<StoreError> for ProblemDetails {
    fn from(e: StoreError) -> Self {
        let detail = e.to_string();
        match e {
            StoreError::Exists(_)
            | StoreError::MsisdnTaken
            | StoreError::ChangedMeanwhile(_)
            | StoreError::DocumentsChangedMeanwhile => ProblemDetails::conflict(detail),
            StoreError::Unknown(_) => ProblemDetails::not_found(detail),
            StoreError::Invalid(_) | StoreError::SupiChanged(_) | StoreError::Import(_) => {
                ProblemDetails::unprocessable(detail)
            }
            _ => ProblemDetails::unavailable(detail),
        }
    }
}

/// Runs a function on the store, which is opened at first use and retried after a failure.
async fn with_store<R: Send + 'static>(
    shared: &Arc<HandlerContext>,
    work: impl FnOnce(&mut Store) -> Result<R, ProblemDetails> + Send + 'static,
) -> Result<R, ProblemDetails> {
    let shared = shared.clone();
    let worked = tokio::task::spawn_blocking(move || {
        let mut store = shared.store.lock().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            *store = Some(open(&shared.config.store).map_err(ProblemDetails::unavailable)?);
        }
        match store.as_mut() {
            Some(store) => work(store),
            None => Err(ProblemDetails::unavailable("the store is not open")),
        }
    });
    worked.await.unwrap_or_else(|_| Err(ProblemDetails::internal("the work on the store ended early")))
}

/// Records an access to personal data. A refusal that anybody can cause, and a check of a configuration, is a line of its own once a minute
/// for each source; further ones are counted.
pub(super) async fn accessed(
    shared: &Arc<HandlerContext>,
    address: String,
    user: Option<String>,
    what: String,
    subscriber: Option<String>,
    outcome: u16,
) {
    let is_login = what == LOGIN;
    let is_repeatable = (outcome >= 400 && (user.is_none() || is_login)) || what == CONFIGURATION_CHECK;
    if is_repeatable {
        let source =
            address.parse().map_or(address.clone(), |peer: SocketAddr| source_of(peer.ip()).to_string());
        let kind =
            RequestKind { source, user: user.clone(), request: what.clone(), outcome: outcome.to_string() };
        let now = clock::now();
        let recorded = {
            let which = if user.is_some() && !is_login { &shared.checks } else { &shared.refusals };
            let mut repeated = which.lock().unwrap_or_else(PoisonError::into_inner);
            repeated.count(now, kind)
        };
        match recorded {
            RecordingTime::Later => return,
            RecordingTime::Now { begins: false } => {}
            RecordingTime::Now { begins: true } => {
                let shared = Arc::downgrade(shared);
                tokio::spawn(async move {
                    tokio::time::sleep(COUNTED_FOR).await;
                    let record =
                        move || shared.upgrade().inspect(|shared| shared.record_repeated(false)).map(drop);
                    let _ = tokio::task::spawn_blocking(record).await;
                });
            }
        }
    }
    let shared = shared.clone();
    let recorded = tokio::task::spawn_blocking(move || {
        let mut names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.is_none() {
            *names = open(&shared.config.store).ok();
        }
        let outcome = outcome.to_string();
        let access = AuditedAccess {
            caller: &address,
            user: user.as_deref(),
            request: &what,
            subscriber: subscriber.as_deref(),
            outcome: &outcome,
        };
        audit::record(&shared.config.store.path, &shared.config.audit, names.as_ref(), &access);
    });
    if recorded.await.is_err() {
        warn!("an access to personal data could not be recorded");
    }
}

/// The SUPI in the body of a subscriber to add.
pub(super) fn named_by(body: &[u8]) -> Option<String> {
    const LOOKED_AT_MAX: usize = 64 << 10; // an import names many: none stands for all
    let value: Value = serde_json::from_slice(body.get(..body.len().min(LOOKED_AT_MAX))?).ok()?;
    Some(value.get("supi")?.as_str()?.to_owned())
}

/// Some subscribers in the order of their SUPI, without their keys.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SubscriberPage")]
pub(super) struct Page {
    /// The subscribers of this page.
    subscribers: Vec<SubscriberRecord>,
    /// The `after` of the next request; null at the end.
    next: Option<String>,
}

pub(super) async fn list(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<PageQuery>,
) -> HandlerResult<Json<Page>> {
    let (after, limit) = (query.after.map(|after| after.0), page(query.limit));
    let subscribers = with_store(&shared, move |store| Ok(store.list(after, limit)?)).await?;
    let next = subscribers.last().filter(|_| subscribers.len() == limit).map(|s| s.supi.to_string());
    TypedReply::json(&Page { subscribers, next })
}

pub(super) async fn show(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
) -> HandlerResult<Json<SubscriberRecord>> {
    let supi = path.supi();
    let found = with_store(&shared, move |store| Ok(store.get(supi)?)).await?;
    tagged(&*found.ok_or_else(|| ProblemDetails::from(StoreError::Unknown(supi)))?)
}

/// A record with the tag by which a later change names it (RFC 9110 §8.8.3).
fn tagged(record: &SubscriberRecord) -> HandlerResult<Json<SubscriberRecord>> {
    let tag = HeaderValue::try_from(tag(record)).map_err(|e| ProblemDetails::internal(e.to_string()))?;
    Ok(TypedReply::json(record)?.header(ETAG, tag))
}

/// A tag that changes with the record, keys included: a digest, from which no key follows.
fn tag(record: &SubscriberRecord) -> String {
    let octets = Zeroizing::new(serde_json::to_vec(&WithSecrets(record)).unwrap_or_default());
    let digest = ring::digest::digest(&ring::digest::SHA256, &octets);
    let first: String = digest.as_ref().iter().take(12).map(|o| format!("{o:02x}")).collect();
    format!("\"{first}\"")
}

/// Refuses a change of a record that is not the one that the caller saw (RFC 9110 §13.1.1), if it names one; returns that record.
fn unchanged(
    store: &mut Store,
    supi: Supi,
    if_match: &str,
) -> Result<Option<Arc<SubscriberRecord>>, ProblemDetails> {
    if if_match.is_empty() || if_match == "*" {
        return Ok(None);
    }
    // Another home may have changed it within the last second.
    store.catch_up()?;
    let record = store.get(supi)?.ok_or(StoreError::Unknown(supi))?;
    if if_match.split(',').any(|t| t.trim() == tag(&record)) {
        return Ok(Some(record));
    }
    Err(ProblemDetails::precondition_failed(format!(
        "{supi} was changed by another user after you read it: read it again, and make your change to what it is now"
    )))
}

pub(super) async fn add(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    JsonBody(record): JsonBody<SubscriberRecord>,
) -> HandlerResult<Created<SubscriberRecord>> {
    let added = with_store(&shared, move |store| {
        store.add(&record)?;
        Ok(record)
    });
    Ok(TypedReply::json(&added.await?)?.created())
}

/// A merge patch of a subscriber (RFC 7396).
pub(super) struct SubscriberPatch(Map<String, Value>);

impl HandlerInput for SubscriberPatch {
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails> {
        match serde_json::from_slice(&request.body) {
            Ok(Value::Object(changes)) => Ok(Self(changes)),
            Ok(_) => Err(ProblemDetails::bad_request(
                "the body must be a JSON object with what changes (RFC 7396)",
            )),
            Err(e) => Err(ProblemDetails::bad_request(format!("the body is not JSON: {e}"))),
        }
    }

    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_body::<Self>("application/merge-patch+json");
        operation.add_body::<Self>("application/json");
    }
}

/// The members of a subscriber that is added, each of which may be absent, or null to return to its default.
impl JsonSchema for SubscriberPatch {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SubscriberPatch".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let whole = SubscriberRecord::json_schema(generator).to_value();
        let name = whole["$ref"].as_str().and_then(|r| r.rsplit('/').next()).unwrap_or_default();
        let mut members = generator.definitions()[name]["properties"].clone();
        // Within the subscription, too, what is absent stays.
        members["subscription"] = json!({ "type": "object" });
        for member in members.as_object_mut().into_iter().flat_map(Map::values_mut) {
            member["nullable"] = true.into();
        }
        json_schema!({
            "type": "object",
            "description": "What changes of a subscriber (RFC 7396); null returns to the default.",
            "properties": members,
            "additionalProperties": false,
        })
    }
}

pub(super) async fn edit(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
    IfMatch(if_match): IfMatch,
    SubscriberPatch(changes): SubscriberPatch,
) -> HandlerResult<Json<SubscriberRecord>> {
    let supi = path.supi();
    let edited = with_store(&shared, move |store| {
        let seen = unchanged(store, supi, &if_match)?;
        patch(store, supi, &changes, seen.as_deref()).map_err(|e| match e {
            EditError::Store(e) => e.into(),
            EditError::Invalid(_) => ProblemDetails::unprocessable(e.to_string()),
        })
    });
    tagged(&edited.await?)
}

pub(super) async fn remove(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    path: PathParts<SupiPart>,
    IfMatch(if_match): IfMatch,
) -> HandlerResult<Empty> {
    let supi = path.supi();
    with_store(&shared, move |store| {
        unchanged(store, supi, &if_match)?;
        Ok(store.remove(supi)?)
    })
    .await?;
    Ok(TypedReply::empty())
}

/// The result of an import.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Imported")]
pub(super) struct ImportResult {
    /// New subscribers of the store.
    added: u64,
    /// Records that were replaced.
    replaced: u64,
    /// Lines of subscribers that stay as they were.
    skipped: u64,
    /// Headings of the columns of a CSV list that were not imported.
    ignored_columns: Vec<String>,
    /// Subscribers of the list whose IMSI does not begin with the PLMN that the core serves.
    other_plmn: u64,
}

/// What was wrong with an import, line by line.
fn import_problem(e: StoreError) -> ProblemDetails {
    let lines = match &e {
        StoreError::Import(lines) => {
            lines.iter().map(|l| LineProblem { line: l.line, problem: l.problem.to_string() }).collect()
        }
        _ => Vec::new(),
    };
    ProblemDetails::from(e).with_lines(lines)
}

/// A list of subscribers, which the store reads.
pub(super) struct SubscriberList {
    format: Format,
    octets: Bytes,
}

impl HandlerInput for SubscriberList {
    fn read(request: &RoutedRequest) -> Result<Self, ProblemDetails> {
        if request.body.is_empty() {
            return Err(ProblemDetails::bad_request("the body is empty: send a list of subscribers"));
        }
        let format = if request.content_type == "text/csv" { Format::Csv } else { Format::Json };
        Ok(Self { format, octets: request.body.clone() })
    }

    fn describe(operation: &mut OperationDescription<'_>) {
        operation.add_body::<Vec<SubscriberRecord>>("application/json");
        operation.add_body::<String>("text/csv");
    }
}

/// The treatment of subscribers that the store has.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ExistingSubscribers {
    /// The import is refused.
    #[default]
    Refuse,
    /// The record of the list replaces that of the store.
    Replace,
    /// The record of the store stays.
    Skip,
}

/// The options of an import.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ImportQuery {
    /// The treatment of subscribers that the store has; `refuse` if absent.
    on_existing: Option<ExistingSubscribers>,
}

pub(super) async fn import(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<ImportQuery>,
    list: SubscriberList,
) -> HandlerResult<Json<ImportResult>> {
    let on_existing = match query.on_existing.unwrap_or_default() {
        ExistingSubscribers::Refuse => OnExisting::Refuse,
        ExistingSubscribers::Replace => OnExisting::Replace,
        ExistingSubscribers::Skip => OnExisting::Skip,
    };
    let (SubscriberList { format, octets: body }, served) = (list, shared.config.amf.plmn);
    let done = with_store(&shared, move |store| {
        let mut other_plmn = 0;
        let mut each = |supi| other_plmn += u64::from(!is_of(supi, served));
        let done = store.import(Cursor::new(body), format, on_existing, &mut each).map_err(import_problem)?;
        Ok(ImportResult {
            added: done.added,
            replaced: done.replaced,
            skipped: done.skipped,
            ignored_columns: done.ignored_columns,
            other_plmn,
        })
    });
    TypedReply::json(&done.await?)
}

/// The record of a subscriber; the outer `None` if the store does not answer.
pub(super) async fn record(
    shared: &Arc<HandlerContext>,
    supi: Supi,
) -> Option<Option<Arc<SubscriberRecord>>> {
    with_store(shared, move |store| Ok(store.get(supi)?)).await.ok()
}
