//! Requests of UEs to the CHF, and the ends of charged sessions: they outlive the UE's context, since the answer of the UPF to a session's
//! deletion has the last usage, and are sent again until the CHF has them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_control::charging::{ChargingAnswer, ChargingOperation, ChargingRequest};
use whimbrel_control::envelope::Payload;
use whimbrel_control::udm::Subscribers;
use whimbrel_control::{OutputId, UeId, smf};
use whimbrel_ids::Instant;

use super::{Cta, Entropy, Inspect, Outbox};

/// How long the answer to a release is awaited before it is sent again.
const RELEASE_AGAIN: Duration = Duration::from_secs(30);
/// How often a release is sent at most: for a day.
const RELEASES_MAX: u32 = 24 * 60 * 2;
/// Ended sessions whose release the CHF does not have. Of further ones it learns nothing.
const ENDED_MAX: usize = 1 << 16;

/// A request of a UE to the CHF.
#[derive(Clone, Debug)]
pub struct ChargingQuery {
    /// The UE whose session is charged.
    pub ue: UeId,
    /// The output that the answer names.
    pub to: OutputId,
    /// Operation of the CHF.
    pub request: ChargingRequest,
}

/// Charged sessions that have ended.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct EndedCharging {
    /// By the deletion at the UPF, whose answer has the rest of the usage.
    at_upf: BTreeMap<(UeId, OutputId), (OutputId, ChargingRequest)>,
    /// By the output, until the CHF has answered.
    at_chf: BTreeMap<(UeId, OutputId), SentRelease>,
}

/// A release that the CHF has not acknowledged.
#[derive(Serialize, Deserialize)]
struct SentRelease {
    request: ChargingRequest,
    sent: u32,
    again: Instant,
}

impl EndedCharging {
    /// When a release is to be sent again.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.at_chf.values().map(|release| release.again).min()
    }

    fn send(&mut self, now: Instant, (ue, to): (UeId, OutputId), request: ChargingRequest, out: &mut Outbox) {
        if self.at_chf.len() < ENDED_MAX {
            let release = SentRelease { request: request.clone(), sent: 1, again: now + RELEASE_AGAIN };
            self.at_chf.insert((ue, to), release);
        }
        out.charging.push(ChargingQuery { ue, to, request });
    }
}

impl<S: Subscribers, E: Entropy, I: Inspect> Cta<S, E, I> {
    /// Passes a request on. A release waits for the answer of the UPF.
    pub(super) fn ask_chf(&mut self, now: Instant, query: ChargingQuery, out: &mut Outbox) {
        let ChargingQuery { ue, to, request } = query;
        match request.operation {
            ChargingOperation::Release { deletion: Some(deletion), .. }
                if self.ended_charging.at_upf.len() < ENDED_MAX =>
            {
                self.ended_charging.at_upf.insert((ue, deletion), (to, request));
            }
            ChargingOperation::Release { .. } => self.ended_charging.send(now, (ue, to), request, out),
            ChargingOperation::Create(..) | ChargingOperation::Update { .. } => {
                out.charging.push(ChargingQuery { ue, to, request });
            }
        }
    }

    /// The UPF has deleted a session, or did not answer: the CHF gets the last usage.
    pub(super) fn charged_session_deleted(
        &mut self,
        now: Instant,
        (ue, to): (UeId, OutputId),
        octets: Option<&[u8]>,
        out: &mut Outbox,
    ) {
        let Some((release, mut request)) = self.ended_charging.at_upf.remove(&(ue, to)) else { return };
        if let ChargingOperation::Release { used, .. } = &mut request.operation {
            smf::add_last_usage(used, octets.unwrap_or_default());
        }
        self.ended_charging.send(now, (ue, release), request, out);
    }

    /// The CHF has answered, or was not reached.
    pub(super) fn chf_answered(&mut self, ue: UeId, to: OutputId, answer: Box<ChargingAnswer>) {
        match self.ended_charging.at_chf.get(&(ue, to)) {
            Some(_) if !matches!(*answer, ChargingAnswer::Failed(_)) => {
                self.ended_charging.at_chf.remove(&(ue, to));
            }
            Some(_) => {} // it is sent again
            None if self.is_served(ue) => self.inbox.push_back((ue, Payload::Charging { to, answer })),
            None => {}
        }
    }

    /// Sends releases again that the CHF does not have.
    pub(super) fn repeat_releases(&mut self, now: Instant, out: &mut Outbox) {
        self.ended_charging.at_chf.retain(|&(ue, to), release| {
            if release.again <= now {
                (release.sent, release.again) = (release.sent + 1, now + RELEASE_AGAIN);
                out.charging.push(ChargingQuery { ue, to, request: release.request.clone() });
            }
            release.sent < RELEASES_MAX
        });
    }
}
