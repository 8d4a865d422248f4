//! One request to several instances of a producer: TS 29.500 §5.2.8, §6.4 and TS 23.527 §6.

use std::time::{Duration, Instant};

use hyper::Method;

use crate::client::SbiClient;
use crate::endpoint::{ApiRoot, SbiEndpoint};
use crate::error::SendError;
use crate::headers::{REQUEST_INFO, RequestInfo, now, retry_after};
use crate::message::{SbiRequest, SbiResponse};

/// Attempts of a request: the first, another instance, and one more where two are down.
const ATTEMPTS_MAX: usize = 3;
/// Wait after a 429 or 503 that names none.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Statuses after which another instance may serve the request: TS 29.500 §6.4 and §6.10.8.
fn is_elsewhere(status: u16) -> bool {
    matches!(status, 429 | 503 | 504)
}

impl SbiClient {
    /// Sends a request to the first of these instances that takes it; `request.uri` is overwritten by each root with `path_and_query`.
    ///
    /// The next instance is tried when one cannot be reached, answers 429, 503 or 504, or is within a `Retry-After` of an earlier answer.
    /// After a timeout or a broken connection the producer may have acted: then only a request that can be repeated is, which is one of
    /// `GET`, `PUT`, `DELETE`, or with an idempotency key in `3gpp-Sbi-Request-Info`. The last response or error is the result.
    pub async fn send_to_any(
        &self,
        request: &SbiRequest,
        path_and_query: &str,
        roots: &[ApiRoot],
    ) -> Result<SbiResponse, SendError> {
        let started = Instant::now();
        let mut last = Err(SendError::NoInstance);
        let mut attempts = 0;
        for root in roots {
            let at = root.endpoint()?;
            let wait = self.wait_of(&at);
            if !wait.is_zero() {
                if matches!(last, Err(SendError::NoInstance)) {
                    last = Err(SendError::RetryAfter(at, wait));
                }
                continue;
            }
            let left = request.within.saturating_sub(started.elapsed());
            if attempts == ATTEMPTS_MAX || left.is_zero() {
                break;
            }
            let mut attempt = SbiRequest { uri: root.uri(path_and_query)?, within: left, ..request.clone() };
            if attempts > 0 {
                note_repetition(&mut attempt);
            }
            attempts += 1;
            last = self.send(attempt).await;
            match &last {
                Ok(response) if is_elsewhere(response.status.as_u16()) => self.note_overload(&at, response),
                Ok(_) => break,
                Err(e) if !e.is_unprocessed() && !is_repeatable(request) => break,
                Err(_) => {}
            }
        }
        // All of them wait: the first is asked when its time has come, if the request has time for it.
        if let Err(SendError::RetryAfter(..)) = &last
            && let Some((wait, root)) = self.shortest_wait(roots)
            && let Some(left) = request.within.checked_sub(started.elapsed() + wait)
        {
            tokio::time::sleep(wait).await;
            let attempt = SbiRequest { uri: root.uri(path_and_query)?, within: left, ..request.clone() };
            last = self.send(attempt).await;
        }
        last
    }

    fn note_overload(&self, at: &SbiEndpoint, response: &SbiResponse) {
        // A 504 is of a node behind: this one is not overloaded.
        if response.status != hyper::StatusCode::GATEWAY_TIMEOUT {
            let wait = retry_after(&response.headers, now()).unwrap_or(RETRY_AFTER_DEFAULT);
            self.note_retry_after(at, wait);
        }
    }

    fn shortest_wait<'a>(&self, roots: &'a [ApiRoot]) -> Option<(Duration, &'a ApiRoot)> {
        let waits = roots.iter().filter_map(|root| Some((self.wait_of(&root.endpoint().ok()?), root)));
        waits.min_by_key(|(wait, _)| *wait)
    }
}

/// True if a request that may have been acted on may be sent again.
fn is_repeatable(request: &SbiRequest) -> bool {
    let method = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE];
    method.contains(&request.method) || RequestInfo::of(&request.headers).idempotency_key.is_some()
}

/// Marks a request with an idempotency key as one that may have been sent before.
fn note_repetition(request: &mut SbiRequest) {
    let info = RequestInfo::of(&request.headers);
    if info.idempotency_key.is_some()
        && let Some(value) = (RequestInfo { retrans: true, ..info }).header()
    {
        request.headers.insert(REQUEST_INFO, value);
    }
}
