//! Area restrictions of sessions: service areas (TS 23.501 §5.3.4.1.1, TS 24.501 §5.3.5) and local area data networks (TS
//! 23.501 §5.6.5, TS 24.501 §6.2.6).
//!
//! A session whose user plane is not allowed in the UE's present area keeps its context: its user plane is not activated, or is
//! deactivated (TS 23.502 §4.3.7); if so configured for its data network, the session is released.

use whimbrel_ids::{PduSessionId, Tac, Tai};
use whimbrel_nas::ie::{MmCause, SmCause};

use super::path_switch::is_being_released;
use super::{release, up_connection};
use crate::config::Config;
use crate::procedure::Ue;
use crate::state::{SmContext, UeContext, UpState};

/// Why a session must not have a user plane in a tracking area (TS 24.501 §5.6.1.4.1).
pub(crate) fn barred(p: &UeContext, s: &SmContext, config: &Config, tac: Tac) -> Option<MmCause> {
    if s.emergency {
        return None; // TS 23.501 §5.16.4.2
    }
    if outside(config, &s.dnn, tac) {
        return Some(MmCause::LadnNotAvailable);
    }
    let area = p.subscription()?.restrictions.service_area.as_ref()?;
    (!area.allows(tac)).then_some(MmCause::RestrictedServiceArea)
}

/// Whether a tracking area is outside the data network's LADN service area.
pub(super) fn outside(config: &Config, dnn: &whimbrel_ids::Dnn, tac: Tac) -> bool {
    let ladn = config.smf.data_networks.get(dnn).and_then(|n| n.ladn.as_ref());
    ladn.is_some_and(|l| !l.tacs.contains(&tac))
}

/// Whether a session must not have a user plane in the UE's present area.
pub(super) fn is_barred_here(ue: Ue, psi: PduSessionId) -> bool {
    let (config, tai) = (ue.config(), ue.amf().ue_state(ue).tai);
    ue.with(|p| {
        let (Some(tai), Some(s)) = (tai, p.sessions.get(&psi)) else { return false };
        barred(p, s, &config, tai.tac).is_some()
    })
}

/// The part of the registration area in which a waiting session may have its user plane: the UE is paged only there (TS
/// 23.502 §4.2.3.3 step 3, TS 23.501 §5.6.5).
pub(crate) fn where_awaited(ue: Ue) -> Vec<Tai> {
    let (config, area) = (ue.config(), ue.amf().registration_area(ue));
    let waits = |s: &SmContext| (s.awaited && s.up == UpState::Inactive) || s.qos.pending_change.is_some();
    ue.with(|p| {
        let may =
            |tai: &Tai| p.sessions.values().any(|s| waits(s) && barred(p, s, &config, tai.tac).is_none());
        area.into_iter().filter(may).collect()
    })
}

/// The UE's tracking area has changed: deactivates or releases sessions that are not allowed there.
pub(crate) fn area_changed(ue: Ue) {
    let (config, state) = (ue.config(), ue.amf().ue_state(ue));
    let Some(tai) = state.tai.filter(|_| state.registered && state.connected) else { return };
    let gone: Vec<(PduSessionId, MmCause, bool)> = ue.with(|p| {
        let ends = |s: &SmContext| {
            let ladn = config.smf.data_networks.get(&s.dnn).and_then(|n| n.ladn.as_ref());
            ladn.is_some_and(|l| l.release)
        };
        let sessions = p.sessions.values().filter(|s| s.up != UpState::Establishing);
        sessions.filter_map(|s| Some((s.psi, barred(p, s, &config, tai.tac)?, ends(s)))).collect()
    });
    for (psi, why, ends) in gone {
        if is_being_released(ue, psi) {
        } else if ends && why == MmCause::LadnNotAvailable {
            release::withdraw(ue, psi, SmCause::OutOfLadnServiceArea);
        } else {
            up_connection::deactivate_at_gnb(ue, psi);
        }
    }
}
