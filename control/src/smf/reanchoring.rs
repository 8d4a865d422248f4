//! SSC mode 3: the new session is established before the old one is released (TS 23.501 §5.6.9.2.3, TS 23.502 §4.3.5.2;
//! NAS part TS 24.501 §6.3.2.2, §6.4.1.2).
//!
//! PDU SESSION MODIFICATION COMMAND has the remaining lifetime of the session; the UE sets up another one, and the
//! former is released by the UE, or when its lifetime ends.

use std::time::Duration;

use whimbrel_ids::{Instant, PduSessionId};
use whimbrel_nas::ie::{Container, ExtendedPco, PcoDirection, SmCause};
use whimbrel_nas::sm::ModificationCommand;

use super::release;
use crate::procedure::Ue;
use crate::state::{SmContext, UeContext};

/// Step 2: requests the UE to set up the new session, with the remaining lifetime of the old one.
pub(super) fn add_lifetime(lifetime: Duration, m: &mut ModificationCommand) {
    m.cause = Some(SmCause::ReactivationRequested);
    let seconds = u16::try_from(lifetime.as_secs()).unwrap_or(u16::MAX);
    m.extended_pco = ExtendedPco::new(PcoDirection::ToUe, &[Container::address_lifetime(seconds)]);
}

/// Step 5: releases sessions whose lifetime has ended. A UE without a replacement is asked to set up the session again.
pub(crate) fn lifetimes_over(ue: Ue) {
    let now = ue.now();
    let over: Vec<(PduSessionId, SmCause)> = ue.with(|p| {
        let over = p.sessions.values().filter(|s| s.until <= now);
        let over: Vec<_> = over.map(|s| (s.psi, cause(p, s))).collect();
        for (psi, _) in &over {
            p.sessions.get_mut(psi).iter_mut().for_each(|s| s.until = Instant::FAR_FUTURE);
        }
        over
    });
    for (psi, cause) in over {
        release::withdraw(ue, psi, cause);
    }
}

fn cause(ue: &UeContext, former: &SmContext) -> SmCause {
    let same = |s: &SmContext| (s.s_nssai, &s.dnn) == (former.s_nssai, &former.dnn);
    let succeeds = |s: &SmContext| s.psi != former.psi && !s.is_leaving() && same(s);
    let succeeded = ue.sessions.values().any(|s| succeeds(s));
    if succeeded { SmCause::RegularDeactivation } else { SmCause::ReactivationRequested }
}
