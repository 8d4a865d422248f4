//! The level of the log, which can be changed while the core runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::HandlerContext;
use super::handlers::HandlerResult;
use super::problem::ProblemDetails;
use super::routes::{Reply, RoutedRequest};
use whimbrel_node::config::LogLevel;
use whimbrel_node::config::value::Value;
use whimbrel_node::logging;

/// Longest time for which a level can be set: a day, so that a forgotten `trace` does not fill the disk.
const SECONDS_MAX: u64 = 86_400;
/// Changes so far: a level that was set for some time is undone only if no other level was set since.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The answer to a question for the log's level.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LogLevelView {
    /// The level in force.
    pub level: String,
    /// Of the configuration.
    pub configured: String,
}

fn view(shared: &HandlerContext) -> HandlerResult {
    let configured = shared.config.log.level;
    let level = logging::level().unwrap_or(configured);
    Reply::json(&LogLevelView { level: level.show(), configured: configured.show() })
}

pub(super) async fn show(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    view(&shared)
}

pub(super) async fn set(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let level = LogLevel::read(request.param(0))
        .map_err(|e| ProblemDetails::bad_request(format!("the level is {e}")))?;
    let seconds = request.number("seconds", 0)?;
    if seconds > SECONDS_MAX {
        return Err(ProblemDetails::bad_request(format!("`seconds` must be at most {SECONDS_MAX}")));
    }
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
