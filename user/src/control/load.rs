//! Load and overload control information for SMFs: TS 29.244 §6.2.3, §6.2.4. It is in the answers that change the load:
//! those to establishments and deletions.

use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_pfcp::ie::{CpFunctionFeatures, Metric, PackedTimer, SequenceNumber};
use whimbrel_pfcp::msg::{LoadControlInformation, OverloadControlInformation};

use super::UpfC;
use super::association::Association;

/// The load is reported again when it has changed by this many percent: an SMF distributes sessions by tens of percent.
const STEP: u8 = 5;
/// From this load on the UPF asks to be spared: what is left is for sessions that matter and for those on their way.
const OVERLOAD: u8 = 95;
/// Of new sessions so many percent are to be kept away for each percent of load beyond it: at 100 nearly all.
const REDUCTION_PER_PERCENT: u8 = 16;
/// How long an overload is valid unless it is reported again.
const VALIDITY: Duration = Duration::from_secs(60);

/// What was last reported to one SMF.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastReported {
    load: u8,
    reduction: u8,
    at: Instant,
    /// The sequence number of the last report (TS 29.244 §6.2.3.3.1).
    sequence: u32,
}

impl LastReported {
    /// Nothing yet, in the life of this number of a UPF that goes on: sequence numbers are above those of the life before.
    pub(super) fn of_life(life: u32) -> Self {
        Self { sequence: life << 16, ..Self::default() }
    }
}

/// What goes into one answer.
pub(super) type Information = (Option<LoadControlInformation>, Option<OverloadControlInformation>);

impl UpfC {
    /// Percent of the sessions that can be had at most.
    pub fn load(&self) -> u8 {
        let (used, most) = (self.sessions.len() as u64, u64::from(self.config.sessions_max.max(1)));
        (used * 100 / most).min(100) as u8
    }

    /// What is to be reported to the SMF of an association now: nearly always nothing.
    pub(super) fn tell_load(&mut self, now: Instant, association: u32) -> Information {
        let load = self.load();
        match self.associations.by_id_mut(association) {
            Some(a) => tell(a, now, load, self.recovery.0),
            None => (None, None),
        }
    }
}

/// `base` begins the sequence numbers of this life above those of the former.
fn tell(a: &mut Association, now: Instant, load: u8, base: u32) -> Information {
    let reduction = load.saturating_sub(OVERLOAD).saturating_mul(REDUCTION_PER_PERCENT);
    let reported = &mut a.reported;
    let again = reduction > 0 && now.since(reported.at) * 2 >= VALIDITY;
    if load.abs_diff(reported.load) < STEP && reduction == reported.reduction && !again {
        return (None, None);
    }
    let overload_changed = reduction != reported.reduction || again;
    *reported = LastReported { load, reduction, at: now, sequence: reported.sequence.wrapping_add(1) };
    let sequence_number = SequenceNumber(base.wrapping_add(reported.sequence));
    let loads = a.features.has(CpFunctionFeatures::LOAD);
    let overloads = a.features.has(CpFunctionFeatures::OVRL) && overload_changed;
    let information = LoadControlInformation { sequence_number, metric: Metric(load) };
    let period_of_validity = PackedTimer::from_seconds(VALIDITY.as_secs() as u32);
    let spare = OverloadControlInformation { sequence_number, metric: Metric(reduction), period_of_validity };
    (loads.then_some(information), overloads.then_some(spare))
}
