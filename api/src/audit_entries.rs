//! The audit log, newest lines first.

use std::sync::Arc;

use super::HandlerContext;
use super::input::{LimitQuery, Query, page};
use super::problem::ProblemDetails;
use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};
use crate::audit;

pub(super) async fn list(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    Query(query): Query<LimitQuery>,
) -> HandlerResult<Json<Vec<String>>> {
    let limit = page(query.limit);
    let store = shared.config.store.path.clone();
    let read = tokio::task::spawn_blocking(move || audit::newest(&store, limit));
    let lines = read.await.map_err(|_| ProblemDetails::internal("the audit log could not be read"))?;
    TypedReply::json(
        &lines.map_err(|e| ProblemDetails::unavailable(format!("the audit log cannot be read: {e}")))?,
    )
}
