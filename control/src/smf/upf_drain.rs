//! A UPF is drained before maintenance, or asks for its release: its sessions get another anchor (TS 23.502 §4.3.5, TS 29.244 §6.2.8.3).
//!
//! The address of a session is of a pool of its UPF, so another anchor means another address. A session of SSC mode 3 is replaced before it ends
//! (TS 23.501 §5.6.9.2.3), one of mode 2 is released and set up again (§5.6.9.2.2), and one of mode 1 keeps its anchor (§5.6.9.2.1) until the time that
//! the operator has stated.

use serde::{Deserialize, Serialize};
use whimbrel_ids::PduSessionId;
use whimbrel_nas::ie::{SmCause, SscMode};

use super::path_switch::is_being_released;
use super::pending_change::set_pending;
use super::release;
use crate::procedure::Ue;
use crate::state::SmContext;
use crate::upf::UpfId;

/// The sessions that a drained UPF loses. Each step includes those of the steps before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DrainStep {
    /// Those of SSC mode 2 and 3. An idle UE is paged.
    Movable,
    /// Those of SSC mode 1 too, which are released like those of mode 2. An idle UE is paged.
    All,
    /// Those that are left: a UE that was not reached gets no message.
    Rest,
}

/// The UE's sessions at the UPF get another anchor, as an anchor or an intermediate UPF of theirs is drained. A step that was ordered before has no effect;
/// an emergency session stays until it ends.
pub(crate) fn move_sessions(ue: Ue, upf: UpfId, step: DrainStep) {
    let sessions: Vec<PduSessionId> = ue.with(|p| {
        let through = |psi| p.intermediate_upfs.iter().any(|i| i.upf == upf && i.psi == psi);
        let is_of_step = |s: &SmContext| step > DrainStep::Movable || s.ssc_mode != SscMode::One;
        let here = p.sessions.values().filter(|s| s.upf == upf || through(s.psi));
        // One that is being set up is found in the next round.
        let moves = here.filter(|s| s.n3.is_some() && !s.emergency && is_of_step(s));
        moves.map(|s| s.psi).collect()
    });
    let moves = sessions.into_iter().filter(|psi| !is_being_released(ue, *psi));
    match step {
        DrainStep::Movable | DrainStep::All => {
            // Made by `modification::begin_pending_changes` when the UE is connected and no other procedure runs.
            moves.for_each(|psi| drop(set_pending(ue, psi, |w| w.leaving = true)));
            ue.amf().page_if_awaited(ue);
        }
        DrainStep::Rest => moves.for_each(|psi| release::withdraw(ue, psi, SmCause::ReactivationRequested)),
    }
}
