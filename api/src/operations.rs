//! Operations: orders whose outcome comes later, and how long a request waits for it.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use whimbrel_store::{Count, Whole};

use super::HandlerContext;
use super::input::{PathParts, Query};
use super::problem::ProblemDetails;
use super::routes::{HandlerResult, Json, OperationAnswer, RoutedRequest, TypedReply};
use whimbrel_node::observation::OperationView;

/// The longest that a request may wait: half of what any request may take, so that its answer is certain.
const WAIT_S_MAX: u64 = 30;

/// How long a request waits for the outcome.
#[derive(Deserialize, JsonSchema)]
pub(super) struct WaitQuery {
    /// Seconds to wait for the outcome; without it the answer comes at once.
    wait: Option<Whole<0, WAIT_S_MAX>>,
}

impl WaitQuery {
    /// The time to wait; by default none.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.wait.map_or(0, Whole::value))
    }
}

/// Answers with an operation: 200 once its outcome is known, 202 while it is not.
pub(super) async fn answer(
    shared: &HandlerContext,
    id: u64,
    patience: Duration,
) -> HandlerResult<OperationAnswer> {
    let known = shared.console.operations.wait(id, patience).await;
    let operation = known.ok_or_else(|| {
        ProblemDetails::not_found(format!("there is no operation {id}; the newest 256 are kept"))
    })?;
    TypedReply::operation(&operation)
}

pub(super) async fn list(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
) -> HandlerResult<Json<Vec<OperationView>>> {
    TypedReply::json(&shared.console.operations.all())
}

/// An operation by its number.
#[derive(Deserialize, JsonSchema)]
pub(super) struct OperationPath {
    /// Number of the operation.
    id: Count,
}

pub(super) async fn show(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<OperationPath>,
    Query(wait): Query<WaitQuery>,
) -> HandlerResult<OperationAnswer> {
    answer(&shared, path.id.value(), wait.patience()).await
}
