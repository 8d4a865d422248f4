//! What a broker has granted to a veiled UE, and what was used of it (LOCA, chapter 4.4).

use serde::{Deserialize, Serialize};
use whimbrel_ids::Instant;
use whimbrel_privacy::msg::SignedGrant;

use super::Tunnel;
use super::session_grant::UsageReporting;

/// The grant of a veiled session. It names no user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VeilSession {
    /// The grant, as a judge believes it.
    pub grant: SignedGrant,
    /// Octets that UPFs reported since it began, uplink and downlink, of all PDU sessions.
    pub used: (u64, u64),
    /// The operator's LI function, to which copies of the UE's packets go.
    pub copies_to: Option<Tunnel>,
}

impl VeilSession {
    /// One of which nothing was used.
    pub const fn new(grant: SignedGrant) -> Self {
        Self { grant, used: (0, 0), copies_to: None }
    }

    /// The first moment at which it is not valid any more.
    pub const fn until(&self) -> Instant {
        Instant(self.grant.grant.validity.until.saturating_add(1).saturating_mul(1_000_000))
    }

    /// Whether the slice of a prepaid user is used up: the UE registers again, and the broker decides again.
    pub fn is_used_up(&self) -> bool {
        let (ul, dl) = self.used;
        self.grant.grant.slice_octets.is_some_and(|slice| ul.saturating_add(dl) >= slice)
    }

    /// When UPFs report a session's usage before the session ends: when the slice is used up.
    pub(crate) const fn usage_reporting(&self) -> UsageReporting {
        UsageReporting { threshold: self.grant.grant.slice_octets, cycle_s: None }
    }

    /// Notes what a UPF has reported.
    pub(crate) const fn count(&mut self, ul: u64, dl: u64) {
        self.used = (self.used.0.saturating_add(ul), self.used.1.saturating_add(dl));
    }
}
