//! The audit log, newest lines first.

use std::sync::Arc;

use super::HandlerContext;
use super::handlers::{HandlerResult, page};
use super::problem::ProblemDetails;
use super::routes::{Reply, RoutedRequest};
use crate::audit;

pub(super) async fn list(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let limit = page(&request)?;
    let store = shared.config.store.path.clone();
    let read = tokio::task::spawn_blocking(move || audit::newest(&store, limit));
    let lines = read.await.map_err(|_| ProblemDetails::internal("the audit log could not be read"))?;
    Reply::json(
        &lines.map_err(|e| ProblemDetails::unavailable(format!("the audit log cannot be read: {e}")))?,
    )
}
