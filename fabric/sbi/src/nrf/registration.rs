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

/// Times of heartbeats, so that one that is lost is followed by another within the NRF's interval: an NRF takes an instance for lost soon
/// after it (Open5GS: one second after it).
///
/// Spec: TS 29.510 §5.2.2.3.2, which lets the interval be the longest time between two heartbeats.
#[derive(Clone, Copy, Debug)]
struct HeartbeatPace {
    /// The NRF's interval.
    interval: Duration,
    /// Between heartbeats while the NRF does not answer.
    retry_every: Duration,
    /// Longest time for one request.
    request_within: Duration,
}

impl HeartbeatPace {
    /// From an answered heartbeat to the next.
    fn after_answer(&self) -> Duration {
        self.interval / 2
    }

    /// Time for the answer. A second is enough for an NRF that lives; with intervals below three seconds it leaves no time for a second
    /// heartbeat within the same interval.
    fn within(&self) -> Duration {
        (self.interval / 4).max(Duration::from_secs(1)).min(self.request_within)
    }

    /// From a lost heartbeat to the next: soon after the first, then as an NRF that is down may be asked.
    fn after_loss(&self, lost: u32) -> Duration {
        match lost {
            0 | 1 => self.retry_every.min(self.interval / 8),
            _ => self.retry_every.min(self.interval / 2),
        }
    }
}

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
    struct RegistrationAnswer {
        heart_beat_timer: Option<u32>,
    }
    let answer = serde_json::from_slice::<RegistrationAnswer>(&response.body).ok();
    let seconds =
        answer.and_then(|answer| answer.heart_beat_timer).or(own.heart_beat_timer).filter(|s| *s > 0);
    seconds.map_or(HEARTBEAT_DEFAULT, |s| Duration::from_secs(s.into()).min(HEARTBEAT_MAX))
}

/// Heartbeats, until the instance has to be registered again.
async fn beat(shared: &NrfShared, interval: Duration) {
    let NrfShared { retry_every, request_within, .. } = *shared;
    let mut pace = HeartbeatPace { interval, retry_every, request_within };
    let mut wait = pace.after_answer();
    let mut lost = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.changed.notified() => return,
        }
        let profile = shared.profile().clone();
        // A load that was not in the registration cannot be replaced.
        let patch = heartbeat(&profile.nf_status, profile.load);
        let mut request = shared.request(Method::PATCH).body(PATCH_JSON, to_vec(&patch).into());
        request.within = pace.within();
        wait = match shared.send(request, &shared.instance_path(), Some(ServiceName::NnrfNfm)).await {
            Ok(response) => {
                lost = 0;
                if !response.body.is_empty() {
                    pace.interval = self::interval(&response, &profile);
                }
                set(shared, NrfState::Registered(pace.interval));
                pace.after_answer()
            }
            // TS 29.510 §5.2.2.3.2: an instance that the NRF does not know registers again.
            Err(NrfError::Refused(problem)) if problem.status == Some(404) => return,
            Err(e @ NrfError::Refused(_)) => {
                set(shared, NrfState::Unregistered(e.to_string().into()));
                tokio::time::sleep(shared.retry_every).await;
                return;
            }
            Err(e) => {
                lost += 1;
                set(shared, NrfState::Unreachable(e.to_string().into()));
                pace.after_loss(lost)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(interval_ms: u64) -> HeartbeatPace {
        HeartbeatPace {
            interval: Duration::from_millis(interval_ms),
            retry_every: Duration::from_secs(5),
            request_within: Duration::from_secs(3),
        }
    }

    /// When heartbeats leave after one that was answered at time zero, of which the first ones are lost without an answer.
    fn departures(pace: &HeartbeatPace, lost: u32) -> Vec<Duration> {
        let mut at = pace.after_answer();
        let mut all = vec![at];
        for n in 1..=lost {
            at += pace.within() + pace.after_loss(n);
            all.push(at);
        }
        all
    }

    #[test] // TS 29.510 §5.2.2.3.2: the NRF has a heartbeat within its interval, also where one is lost
    fn a_lost_heartbeat_is_followed_by_another_within_the_interval() {
        for interval_s in 3..=3600 {
            let pace = pace(interval_s * 1000);
            let departures = departures(&pace, 1);
            assert!(departures[1] < pace.interval, "{interval_s} s: {departures:?}");
            let left = pace.interval - departures[1];
            assert!(left >= pace.interval / 25, "{interval_s} s: {left:?} for the way");
        }
    }

    #[test] // Open5GS's NRF has 10 s and removes an instance after 11 s
    fn heartbeats_of_ten_seconds_leave_after_five_and_before_nine() {
        let seconds: Vec<f32> = departures(&pace(10_000), 3).iter().map(Duration::as_secs_f32).collect();
        assert_eq!(seconds, [5.0, 8.75, 16.25, 23.75]);
    }

    #[test] // intervals of which a second heartbeat has no room keep a second for the answer
    fn heartbeats_of_a_second_leave_after_half_of_it() {
        let pace = pace(1000);
        assert_eq!((pace.after_answer().as_millis(), pace.within().as_millis()), (500, 1000));
        assert_eq!((pace.after_loss(1).as_millis(), pace.after_loss(2).as_millis()), (125, 500));
    }
}
