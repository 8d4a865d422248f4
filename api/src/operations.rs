//! Operations: orders whose outcome comes later, and how long a request waits for it.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

use super::HandlerContext;
use super::problem::ProblemDetails;
use super::routes::{Reply, RoutedRequest};
use whimbrel_node::observation::OperationState;

/// The longest that a request may wait: half of what any request may take, so that its answer is certain.
const WAIT_S_MAX: u64 = 30;

type HandlerResult = Result<Reply, ProblemDetails>;

/// How long a request waits for the outcome; by default not at all.
pub(super) fn patience(request: &RoutedRequest) -> Result<Duration, ProblemDetails> {
    match request.number("wait", 0)? {
        seconds @ 0..=WAIT_S_MAX => Ok(Duration::from_secs(seconds)),
        _ => Err(ProblemDetails::bad_request(format!("`wait` is 0 to {WAIT_S_MAX} seconds"))),
    }
}

/// Answers with an operation: 200 once its outcome is known, 202 while it is not.
pub(super) async fn answer(shared: &HandlerContext, id: u64, patience: Duration) -> HandlerResult {
    let known = shared.console.operations.wait(id, patience).await;
    let operation = known.ok_or_else(|| {
        ProblemDetails::not_found(format!("there is no operation {id}; the newest 256 are kept"))
    })?;
    let status = match operation.state {
        OperationState::Pending => StatusCode::ACCEPTED,
        OperationState::Succeeded | OperationState::Failed | OperationState::Deferred => StatusCode::OK,
    };
    Ok(Reply::json(&operation)?.with(status))
}

pub(super) async fn list(shared: Arc<HandlerContext>, _: RoutedRequest) -> HandlerResult {
    Reply::json(&shared.console.operations.all())
}

pub(super) async fn show(shared: Arc<HandlerContext>, request: RoutedRequest) -> HandlerResult {
    let id =
        request.param(0).parse().map_err(|_| ProblemDetails::bad_request("an operation has a number"))?;
    answer(&shared, id, patience(&request)?).await
}
