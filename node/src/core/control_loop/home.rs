//! Registrations at this home go to the database that several homes share, and those at other homes end the ones here (TS 29.503 §5.3.2).

use whimbrel_ids::Instant;
use whimbrel_resilience::Input;

use super::ControlLoop;
use crate::observation::Metric;

impl ControlLoop {
    /// Passes changes of registrations on, and carries out orders.
    pub(super) fn exchange_with_homes(&mut self, now: Instant) {
        let Some(home) = &mut self.home else { return };
        if let Some(slot) = home.new_sqn_slot() {
            self.active.set_sqn_slot(Some(slot));
        }
        let cta = self.active.cta();
        let limits = &cta.config().amf.access.slice_ues_max;
        if let Some(shares) = home.exchange_slices(limits, cta.slice_counts()) {
            self.active.set_slice_shares(shares.clone());
        }
        let changed = self.active.take_changed_registrations();
        if !changed.is_empty() {
            home.changed(now, changed);
        }
        if !home.has_orders() {
            return;
        }
        let (registered, unknown): (Vec<_>, Vec<_>) =
            home.orders().into_iter().partition(|supi| self.active.cta().find(*supi).is_some());
        for supi in registered {
            self.console.metrics.add(Metric::RegistrationsElsewhere, 1);
            self.handle_input(now, Input::DeregisteredByUdm(supi));
        }
        let changed = self.active.take_changed_registrations();
        if let Some(home) = &self.home {
            home.changed(now, changed);
            home.carried_out(unknown);
        }
    }

    /// Once this process serves UEs, all that are registered are compared with the database.
    pub(super) fn begin_as_home(&mut self) {
        if let Some(home) = self.home.as_mut().filter(|home| home.is_to_begin()) {
            home.begin(self.active.cta().registered_subscribers().filter(|supi| !supi.is_nai()).collect());
        }
    }
}
