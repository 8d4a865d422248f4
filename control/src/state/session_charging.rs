//! Charging of a session, as the SMF stores it (TS 32.255 §5.2.1).

use serde::{Deserialize, Serialize};

use super::sm_context::CountedReports;
use crate::services::nchf::{ChargingTrigger, GrantedQuota, RatingGroup, UsedUnits};

/// Charging of a session by the CHF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCharging {
    /// The session's resource at the CHF; empty before the CHF has created it.
    pub reference: Box<str>,
    /// The charging identifier of the session (TS 32.255 §5.1.1).
    pub charging_id: u32,
    /// The rating group of all traffic.
    pub rating_group: RatingGroup,
    /// invocationSequenceNumber of the last request.
    pub sequence: u32,
    /// localSequenceNumber of the last container.
    pub number: u32,
    /// The quota that the UPF enforces; none: traffic is not limited.
    pub quota: Option<GrantedQuota>,
    /// Octets of the uplink that the CHF does not know of.
    pub uplink: u64,
    /// Octets of the downlink that the CHF does not know of.
    pub downlink: u64,
    /// Seconds of use that the CHF does not know of.
    pub time_s: u32,
    /// The reports of the UPF that are counted.
    pub counted: Option<Box<CountedReports>>,
    /// The event at which the next report to the CHF is due.
    pub due: Option<ChargingTrigger>,
    /// The quota is used up, and the UPF lets nothing pass.
    pub exhausted: bool,
    /// The UR-SEQN of the report of that.
    pub exhausted_by: u32,
    /// No CHF has answered: traffic passes without a quota ([`FailureHandling::Continue`](crate::config::FailureHandling)).
    pub without_chf: bool,
}

impl SessionCharging {
    /// Takes what the CHF does not know of, as a container for it.
    pub(crate) fn take_used(&mut self, trigger: ChargingTrigger) -> UsedUnits {
        self.number += 1;
        UsedUnits {
            rating_group: self.rating_group,
            uplink: std::mem::take(&mut self.uplink),
            downlink: std::mem::take(&mut self.downlink),
            time_s: std::mem::take(&mut self.time_s),
            trigger,
            number: self.number,
        }
    }

    /// The rest of a quota that began with the last report; `None` if nothing is.
    pub(crate) fn rest_of(&self, quota: GrantedQuota) -> Option<GrantedQuota> {
        let less = |granted: Option<u64>, used: u64| match granted {
            Some(granted) => granted.checked_sub(used).filter(|rest| *rest > 0).map(Some),
            None => Some(None),
        };
        let time = less(quota.time_s.map(u64::from), self.time_s.into())?;
        Some(GrantedQuota {
            total: less(quota.total, self.uplink.saturating_add(self.downlink))?,
            uplink: less(quota.uplink, self.uplink)?,
            downlink: less(quota.downlink, self.downlink)?,
            time_s: time.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
            ..quota
        })
    }

    /// Takes back what did not reach the CHF.
    pub(crate) fn put_back(&mut self, used: UsedUnits) {
        self.uplink = self.uplink.saturating_add(used.uplink);
        self.downlink = self.downlink.saturating_add(used.downlink);
        self.time_s = self.time_s.saturating_add(used.time_s);
    }
}
