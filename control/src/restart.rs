//! UE contexts of a core that starts again: what they are after it, and the slices that their UEs count in.

use whimbrel_ids::{Instant, SNssai};

use crate::amf::reach;
use crate::config::{Config, Timers};
use crate::envelope::AssociationId;
use crate::procedure::Lanes;
use crate::smf;
use crate::state::UeContext;
use crate::upf::UpfId;

/// Clock of a UE context that was restored: its log begins there.
pub const RESTORED_CLOCK: u64 = 1;

impl UeContext {
    /// The context after a restart of the core (TS 23.527 §4.3): the UE is idle, since its gNB's association has ended, and its sessions have their
    /// addresses and tunnels but are at no UPF. `exact`: no COUNT was used after it was written. Else its keys are doubtful, and the UE is authenticated
    /// before it is served. `None`: there is nothing to restore, as the UE is not registered.
    pub fn restarted(mut self: Box<Self>, now: Instant, exact: bool, timers: &Timers) -> Option<Box<Self>> {
        if !self.amf.registered || self.amf.emergency || self.amf.security.current.is_none() {
            return None;
        }
        (self.clock, self.terms, self.lanes) = (RESTORED_CLOCK, (0, 0), Lanes::default());
        if !exact {
            self.doubt_nas_counts();
        }
        let amf = &mut self.amf;
        (
            amf.connection,
            amf.mobility.target,
            amf.mobility.forwarding_source,
            amf.mobility.context_transfer,
        ) = (None, None, None, None);
        (amf.security.proposed, amf.security.next_hop, amf.recently_released, amf.inactivity_deadline) =
            (None, None, None, None);
        amf.initial_nas_digest = 0;
        self.intermediate_upfs.clear(); // anchors serve the UE until its next handover
        self.sessions.retain(|_, s| s.n3.is_some() && !s.emergency);
        for s in self.sessions.values_mut() {
            s.inactive();
            (s.up_seid, s.forwarding, s.awaited) = (None, None, false);
        }
        self.amf.implicit_deregistration_at = Some(reach::implicitly_deregistered_at(&self, timers, now));
        reach::becomes_idle(&mut self, now);
        Some(self)
    }

    /// NAS COUNTs may have been used that this context does not show: the UE is authenticated before anything is sent under its keys.
    pub fn doubt_nas_counts(&mut self) {
        self.amf.security.authenticated_at = Some(Instant::ZERO);
    }

    /// The context after a restart of the control plane alone, where nothing has happened since it was written: the UPFs have its sessions (TS 23.527
    /// §4.2), and a UE that is connected stays so if its gNBs' associations stand. Errors: the context, if it cannot go on like this, as an association has
    /// ended, or a packet waits for the UE.
    pub fn continued(
        mut self: Box<Self>,
        stands: impl Fn(AssociationId) -> bool,
    ) -> Result<Box<Self>, Box<Self>> {
        let served = self.remote_amf.is_some()
            || self.amf.registered
                && self.amf.security.current.is_some()
                && !self.amf.has_unknown_nas_counts();
        let fits = served
            && self.amf.mobility.target.is_none()
            && self.n2_names().into_iter().flatten().all(|names| stands(names.association))
            && self.sessions.values().all(|s| s.n3.is_some() && s.up_seid.is_some() && !s.awaited);
        if !fits {
            return Err(self);
        }
        (self.clock, self.terms, self.lanes) = (RESTORED_CLOCK, (0, 0), Lanes::default());
        self.amf.mobility.context_transfer = None;
        Ok(self)
    }

    /// The requests that delete its sessions, by UPF.
    pub fn deletions_of_sessions(&self) -> Vec<(UpfId, Vec<u8>)> {
        let intermediate = self.intermediate_upfs.iter().map(|i| (i.upf, i.up_seid));
        let anchors = self.sessions.values().filter_map(|s| Some((s.upf, s.up_seid?)));
        anchors.chain(intermediate).map(|(upf, seid)| (upf, smf::deletion(seid))).collect()
    }

    /// The slices with a limit that the UE counts in, and their limits (TS 23.501 §5.15.11.1).
    pub fn limited_slices(&self, config: &Config) -> Vec<(SNssai, u32)> {
        let limits = &config.amf.access.slice_ues_max;
        self.amf.slices.allowed.iter().filter_map(|s| Some((*s, *limits.get(s)?))).collect()
    }
}
