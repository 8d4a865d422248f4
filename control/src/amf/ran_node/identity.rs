//! Two gNBs under one Global RAN Node ID (TS 38.413 §9.3.1.5).
//!
//! A gNB that has restarted without its state sends NG SETUP on a new association under the identity of an older one (§8.7.1.1, TS
//! 23.527 §6.2.2): the new association takes the identity over at once, and the former one counts as not set up.
//!
//! A restarted gNB is silent on its former association, which SCTP soon aborts. If a message arrives over it all the same, or if it still
//! stands when NG SETUP is due there, two gNBs use one identity. The identity is *contested* from then on: the gNB that has it keeps it as
//! long as its association stands, and NG SETUP under it on any other association is refused, with a time to wait. So two gNBs displace
//! each other only once.

use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, Instant};

use super::{RanNodes, RanOutput};
use crate::envelope::AssociationId;
use crate::event::RanEvent;

/// How long an identity stays contested after the last sign of a second gNB. A gNB that is refused comes back within a minute, the longest
/// time to wait (TS 38.413 §9.3.1.56).
const CONTESTED_FOR: Duration = Duration::from_secs(600);

impl RanNodes {
    /// The association that holds a contested identity, for which NG SETUP on another one is refused.
    pub(super) fn holder_of_contested(
        &mut self,
        now: Instant,
        association: AssociationId,
        gnb: GlobalGnbId,
    ) -> Option<AssociationId> {
        self.contested.get(&gnb).filter(|until| now < **until)?;
        let holder = self.find(gnb).filter(|holder| *holder != association)?;
        self.contested.insert(gnb, now + CONTESTED_FOR);
        Some(holder)
    }

    /// A message came over an association, or it still stands when a dead one would not: if its identity was taken over, two gNBs use
    /// that identity.
    pub(super) fn is_alive(&mut self, now: Instant, association: AssociationId, out: &mut RanOutput) {
        let displaced = self.nodes.get_mut(&association).and_then(|n| n.displaced.take());
        let Some(gnb) = displaced else { return };
        let Some(holder) = self.find(gnb) else { return };
        self.contested.retain(|_, until| now < *until);
        // Each conflict needs two associations that are set up; beyond the limit of gNBs it is reported but not stored.
        if self.contested.len() < self.config.limits.ran_nodes as usize {
            self.contested.insert(gnb, now + CONTESTED_FOR);
        }
        out.events.push(RanEvent::IdentityContested { gnb, holder, other: association });
    }
}
