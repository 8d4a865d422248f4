//! Load and overload control information of a UPF: TS 29.244 §6.2.3, §6.2.4.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;
use whimbrel_pfcp::Frame;

/// The newest information of each kind.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Control {
    load: Option<(u32, u8)>,
    overload: Option<(u32, u8)>,
    /// When the overload ends unless the UPF extends it; `None`: no overload, or one without an end.
    over_at: Option<Instant>,
}

impl Control {
    /// Percent of its capacity.
    pub(super) fn load(&self) -> u8 {
        self.load.map_or(0, |(_, metric)| metric)
    }

    /// Percent of requests to hold back.
    pub(super) fn reduction(&self) -> u8 {
        self.overload.map_or(0, |(_, metric)| metric)
    }

    /// Reads a session message. The sequence number shows late information (TS 29.244 §6.2.3.3.1, §6.2.4.3.1).
    pub(super) fn take(&mut self, now: Instant, frame: &Frame<'_>) {
        let (load, overload) = whimbrel_pfcp::control_information(frame);
        if let Some(new) = load
            && is_newer(new.sequence_number.0, self.load)
        {
            self.load = Some((new.sequence_number.0, new.metric.0.min(100)));
        }
        if let Some(new) = overload
            && is_newer(new.sequence_number.0, self.overload)
        {
            let seconds = new.period_of_validity.seconds();
            self.overload = Some((new.sequence_number.0, new.metric.0.min(100)));
            self.over_at = seconds.map(|s| now + Duration::from_secs(s.into()));
        }
    }

    /// An overload that was not repeated in its period of validity is over (TS 29.244 §6.2.4.3.2).
    pub(super) fn tick(&mut self, now: Instant) {
        if self.over_at.is_some_and(|at| at <= now) {
            self.over_at = None;
            self.overload = self.overload.map(|(sequence, _)| (sequence, 0));
        }
    }

    pub(super) fn next_deadline(&self) -> Instant {
        self.over_at.unwrap_or(Instant::FAR_FUTURE)
    }
}

/// Whether information of this number is newer than what is known; numbers wrap.
fn is_newer(sequence: u32, known: Option<(u32, u8)>) -> bool {
    known.is_none_or(|(known, _)| sequence != known && sequence.wrapping_sub(known) < 1 << 31)
}
