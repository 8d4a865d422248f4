//! What a broker has granted for one of its users, and what was used of it.

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;
use whimbrel_open::msg::SignedGrant;

/// When a UPF reports a session's volume before the session ends (TS 29.244 §5.2.2.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageReporting {
    /// After so many octets.
    pub(crate) threshold: Option<u64>,
    /// In cycles of so many seconds, because a broker pays by them.
    pub(crate) cycle_s: Option<u16>,
}

/// A broker's grant, under which a UE is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGrant {
    /// The grant, as a judge believes it.
    pub grant: SignedGrant,
    /// Octets that UPFs reported since it began, uplink and downlink, of all PDU sessions.
    pub used: (u64, u64),
}

impl SessionGrant {
    /// Usage is reported in so many parts of the credit, so that what is served beyond it is at most one part.
    const CREDIT_PARTS: u64 = 16;
    /// The least volume after which a report is due, in octets: a small credit must not make a UPF report each packet.
    const THRESHOLD_MIN: u64 = 64 << 10;

    /// One of which nothing was used.
    pub fn new(grant: SignedGrant) -> Self {
        Self { grant, used: (0, 0) }
    }

    /// The first moment at which it is not valid any more.
    pub fn until(&self) -> Instant {
        Instant(self.grant.grant.validity.until.saturating_add(1).saturating_mul(1_000_000))
    }

    /// What the broker pays for what was used, in millionths of a unit, the credit apart.
    pub fn cost_micros(&self) -> u64 {
        let (ul, dl) = self.used;
        self.grant.grant.terms.price.cost_micros(ul, dl)
    }

    /// Whether all of the credit was used. What costs nothing needs none.
    pub fn is_used_up(&self) -> bool {
        let free = self.grant.grant.terms.price.cost_micros(u64::MAX, u64::MAX) == 0;
        !free && self.cost_micros() >= self.grant.grant.credit_micros
    }

    /// When UPFs report a session's usage before the session ends.
    pub(crate) fn usage_reporting(&self) -> UsageReporting {
        let cycle_s = Some(self.grant.grant.terms.report_cycle_s).filter(|seconds| *seconds > 0);
        UsageReporting { threshold: self.report_threshold(), cycle_s }
    }

    /// After how many octets a UPF is to report; `None` where they cost nothing.
    fn report_threshold(&self) -> Option<u64> {
        let price = &self.grant.grant.terms.price;
        let dearest = u64::from(price.ul_micros_per_mib.max(price.dl_micros_per_mib));
        let part = self.grant.grant.credit_micros / Self::CREDIT_PARTS;
        let octets = (u128::from(part) << 20).checked_div(dearest.into())?;
        Some(u64::try_from(octets).unwrap_or(u64::MAX).max(Self::THRESHOLD_MIN))
    }

    /// Notes what a UPF has reported.
    pub(crate) fn count(&mut self, ul: u64, dl: u64) {
        self.used = (self.used.0.saturating_add(ul), self.used.1.saturating_add(dl));
    }
}
