//! Generic UE configuration update: TS 24.501 §5.4.4.

use whimbrel_ids::Instant;
use whimbrel_nas::ie::MobileIdentity;
use whimbrel_nas::mm::{ConfigurationUpdateCommand, ConfigurationUpdateComplete};

use super::{Event, Output, Timer, Ue, event};
use crate::outbox::Outbox;

impl Ue {
    /// CONFIGURATION UPDATE COMMAND (§5.4.4.3).
    pub(super) fn configuration_update(
        &mut self,
        now: Instant,
        m: ConfigurationUpdateCommand,
        out: &mut Outbox<Output>,
    ) {
        let new_guti = matches!(m.guti, Some(MobileIdentity::Guti(_)));
        if let Some(MobileIdentity::Guti(guti)) = m.guti {
            self.guti = Some(guti);
            self.fresh_suci = None;
            self.timers.stop(Timer::T3519);
        }
        if let Some(tai_list) = m.tai_list {
            self.registration_area = tai_list;
        }
        if let Some(allowed) = m.allowed_nssai {
            self.allowed_nssai = allowed.0.iter().map(|s| s.s_nssai).collect();
        }
        let indication = m.update_indication.unwrap_or_default();
        if indication.acknowledgement_requested {
            self.send(ConfigurationUpdateComplete::new(), out);
        }
        // §5.4.4.3: it registers once the connection is released.
        self.register_again |= indication.registration_requested;
        event(Event::ConfigurationUpdated { new_guti }, out);
        if indication.registration_requested {
            self.timers.start(Timer::T3540, now);
        }
    }
}
