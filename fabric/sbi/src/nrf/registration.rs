//! Registration and heartbeats: TS 29.510 §5.2.2.2 and §5.2.2.3.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tracing::{info, warn};
use whimbrel_sbi_types::nnrf::{NfProfile, ServiceName, heartbeat};
use whimbrel_sbi_types::to_vec;

use super::{NrfError, NrfShared};
use crate::message::{PATCH_JSON, SbiResponse};

/// Interval of heartbeats where neither side names one.
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(60);
/// Longest interval that is kept: an NRF that names a longer one would learn of a lost instance too late.
const HEARTBEAT_MAX: Duration = Duration::from_secs(3600);

/// State of the registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NrfState {
    /// Registered, with heartbeats at this interval.
    Registered(Duration),
    /// Registered before, but the last heartbeat had no answer, for this reason.
    Unreachable(Box<str>),
    /// Not registered, for this reason.
    Unregistered(Box<str>),
}

/// Keeps the instance registered, for ever.
pub(super) async fn keep(shared: Arc<NrfShared>) {
    loop {
        match register(&shared).await {
            Ok(interval) => {
                set(&shared, NrfState::Registered(interval));
                beat(&shared, interval).await;
            }
            Err(e) => {
                set(&shared, NrfState::Unregistered(e.to_string().into()));
                tokio::time::sleep(shared.retry_every).await;
            }
        }
    }
}

fn set(shared: &NrfShared, state: NrfState) {
    let id = &shared.nf_instance_id;
    shared.state.send_if_modified(|before| {
        if *before == state {
            return false;
        }
        match &state {
            NrfState::Registered(interval) => {
                info!(
                    "NF instance {id} is registered at the NRF, with a heartbeat every {} s",
                    interval.as_secs()
                );
            }
            NrfState::Unreachable(reason) => warn!("NF instance {id}: the heartbeat has no answer: {reason}"),
            NrfState::Unregistered(reason) => warn!("NF instance {id} is not registered: {reason}"),
        }
        *before = state;
        true
    });
}

/// NFRegister. The interval of heartbeats is the NRF's.
async fn register(shared: &NrfShared) -> Result<Duration, NrfError> {
    let profile = shared.profile().clone();
    let request = shared.request(Method::PUT).json(&profile);
    let response = shared.send(request, &shared.instance_path(), None).await?;
    Ok(interval(&response, &profile))
}

/// The interval in an answer, which repeats the profile or has the members that the NRF changed.
fn interval(response: &SbiResponse, own: &NfProfile) -> Duration {
    /// The one member that matters here: an NRF may answer with anything beside it.
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        heart_beat_timer: Option<u32>,
    }
    let answer = serde_json::from_slice::<Answer>(&response.body).ok();
    let seconds =
        answer.and_then(|answer| answer.heart_beat_timer).or(own.heart_beat_timer).filter(|s| *s > 0);
    seconds.map_or(HEARTBEAT_DEFAULT, |s| Duration::from_secs(s.into()).min(HEARTBEAT_MAX))
}

/// Heartbeats, until the instance has to be registered again.
async fn beat(shared: &NrfShared, interval: Duration) {
    let mut wait = interval;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.changed.notified() => return,
        }
        let profile = shared.profile().clone();
        // A load that was not in the registration cannot be replaced.
        let patch = heartbeat(&profile.nf_status, profile.load);
        let request = shared.request(Method::PATCH).body(PATCH_JSON, to_vec(&patch).into());
        wait = match shared.send(request, &shared.instance_path(), Some(ServiceName::NnrfNfm)).await {
            Ok(response) => {
                let interval =
                    if response.body.is_empty() { interval } else { self::interval(&response, &profile) };
                set(shared, NrfState::Registered(interval));
                interval
            }
            // TS 29.510 §5.2.2.3.2: an instance that the NRF does not know registers again.
            Err(NrfError::Refused(problem)) if problem.status == Some(404) => return,
            Err(e @ NrfError::Refused(_)) => {
                set(shared, NrfState::Unregistered(e.to_string().into()));
                tokio::time::sleep(shared.retry_every).await;
                return;
            }
            Err(e) => {
                set(shared, NrfState::Unreachable(e.to_string().into()));
                shared.retry_every.min(interval)
            }
        };
    }
}
