//! The audit log, newest lines first.

use std::sync::Arc;

use super::Shared;
use super::handlers::{Answer, page};
use super::problem::Problem;
use super::routes::{Reply, Request};
use crate::audit;

pub(super) async fn list(shared: Arc<Shared>, request: Request) -> Answer {
    let limit = page(&request)?;
    let store = shared.config.store.path.clone();
    let read = tokio::task::spawn_blocking(move || audit::newest(&store, limit));
    let lines = read.await.map_err(|_| Problem::internal("the audit log could not be read"))?;
    Reply::json(&lines.map_err(|e| Problem::unavailable(format!("the audit log cannot be read: {e}")))?)
}
