//! The level of the log, which can be changed while the core runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use whimbrel_store::Whole;

use super::HandlerContext;
use super::input::{PathParts, Query};
use super::problem::ProblemDetails;
use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};
use whimbrel_node::config::LogLevel;
use whimbrel_node::config::value::Value;
use whimbrel_node::logging;

/// Longest time for which a level can be set: a day, so that a forgotten `trace` does not fill the disk.
const SECONDS_MAX: u64 = 86_400;
/// Changes so far: a level that was set for some time is undone only if no other level was set since.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The answer to a question for the log's level.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LogLevel")]
pub(crate) struct LogLevelView {
    /// The level in force.
    pub level: String,
    /// The level in the configuration.
    pub configured: String,
}

fn view(shared: &HandlerContext) -> HandlerResult<Json<LogLevelView>> {
    let configured = shared.config.log.level;
    let level = logging::level().unwrap_or(configured);
    TypedReply::json(&LogLevelView { level: level.show(), configured: configured.show() })
}

pub(super) async fn show(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult<Json<LogLevelView>> {
    view(&shared)
}

/// A level by its name.
struct NamedLevel(LogLevel);

impl<'de> Deserialize<'de> for NamedLevel {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        LogLevel::read(&text)
            .map(Self)
            .map_err(|e| serde::de::Error::custom(format_args!("the level is {e}")))
    }
}

impl JsonSchema for NamedLevel {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NamedLevel".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": LogLevel::ALL.map(|level| level.show()) })
    }
}

/// The level to set.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LevelPath {
    /// Lowest level of the lines that are written.
    level: NamedLevel,
}

/// The time for which a level is set.
#[derive(Deserialize, JsonSchema)]
pub(super) struct LevelQuery {
    /// Seconds until the former level returns; 0 or absent: until the next start.
    seconds: Option<Whole<0, SECONDS_MAX>>,
}

pub(super) async fn set(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<LevelPath>,
    Query(query): Query<LevelQuery>,
) -> HandlerResult<Json<LogLevelView>> {
    let (level, seconds) = (path.level.0, query.seconds.map_or(0, Whole::value));
    let former = logging::level().unwrap_or(shared.config.log.level);
    logging::set_level(level).map_err(ProblemDetails::unavailable)?;
    let change = CHANGES.fetch_add(1, Ordering::AcqRel) + 1;
    if seconds > 0 {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            if CHANGES.load(Ordering::Acquire) == change {
                let _ = logging::set_level(former);
            }
        });
    }
    view(&shared)
}
