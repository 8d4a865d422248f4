//! The state of a UE after its procedures: refused, deregistered, released, or deleted.

use whimbrel_nas::ie::MmCause;
use whimbrel_ngap::ie::CauseNas;

use super::n2::{ids, send_release_command};
use super::udm_client;
use super::{an_release, n14, predicted_handover, session_resources};
use crate::envelope::Disposition;
use crate::event::Event;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::refusal::Refusal;
use crate::state::{AmfContext, UeLocation, UeRadio, UeSecurity};

/// Deletes the UE's context: its sessions, its connection, its registration at the UDM, its slot.
pub(crate) fn dismiss(ue: Ue) {
    drop(super::target::abandon(ue));
    n14::target::forget(ue);
    session_resources::forget_all(ue);
    if ue.with(|p| p.amf.subscription.is_some()) {
        udm_client::deregister(ue); // no effect if the subscriber is registered in another slot by now
    }
    send_release_command(ue, CauseNas::Deregister);
    ue.with(|p| {
        p.amf.connection = None;
        p.amf.registered = false;
    });
    ue.forget_queued();
    ue.update_batch(|b| b.disposition = Disposition::Ended);
}

/// A procedure was refused: reports why and deletes the UE's context.
pub(crate) fn refused(ue: Ue, procedure: Procedure, refusal: Refusal) {
    report_refusal(ue, procedure, refusal);
    dismiss(ue);
}

/// A procedure has ended with a reject of this cause. The cause decides, for UE and network alike, whether the registration stays and when
/// the connection is released. `registered`: the UE is registered, if the cause does not end that.
pub(crate) fn refused_with(ue: Ue, procedure: Procedure, refusal: Refusal, cause: MmCause, registered: bool) {
    report_refusal(ue, procedure, refusal);
    match (registered && stays_registered(cause), registers_again(cause)) {
        (true, true) => release_later(ue),
        (true, false) => an_release::start(ue, CauseNas::NormalRelease.into()),
        (false, true) if ue.with(|p| p.lanes.no_other_lane_runs(Lane::Mobility)) => {
            keep_connection(ue, Keys::Removed)
        }
        (false, _) => dismiss(ue),
    }
}

fn report_refusal(ue: Ue, procedure: Procedure, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id, refusal });
}

/// The causes after which a UE stays registered: it tries elsewhere, or later (TS 24.501 §5.5.1.3.5, §5.6.1.5). After
/// all other causes it starts with an initial registration.
fn stays_registered(cause: MmCause) -> bool {
    matches!(
        cause,
        MmCause::RoamingNotAllowedInTrackingArea
            | MmCause::NoSuitableCellsInTrackingArea
            | MmCause::Congestion
            | MmCause::RestrictedServiceArea
    )
}

/// The causes upon which a UE registers again in the same cell without a pause: initially after #9 and #10 (TS 24.501 §5.5.1.3.5,
/// §5.6.1.5), as a mobility update after #28 (§5.6.1.5). After all others it selects another cell or network, waits for T3346, T3502 or
/// T3511, or its USIM is invalid, as after AUTHENTICATION REJECT (§5.4.1.3.5): the connection is released at once.
fn registers_again(cause: MmCause) -> bool {
    matches!(
        cause,
        MmCause::UeIdentityCannotBeDerived | MmCause::ImplicitlyDeregistered | MmCause::RestrictedServiceArea
    )
}

/// What is done with the security context when a registration has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Deregistration: the UE may use it when it registers again (TS 33.501 §6.8.1.1.1).
    Kept,
    /// Reject: both sides delete it (TS 33.501 §6.8.1.1.1, TS 24.501 §5.6.1.5 #9).
    Removed,
}

/// Ends the UE's registration now and its connection a little later; if a procedure still runs, both end at once.
pub(crate) fn dismiss_later(ue: Ue, keys: Keys) {
    predicted_handover::withdraw(ue);
    if ue.with(|p| p.lanes.idle()) { keep_connection(ue, keys) } else { dismiss(ue) }
}

/// Ends the UE's registration, and its connection after `release_delay`: the UE may register again on it at once. TS 24.501 §5.3.1.3 gives
/// the network until T3540 expires in the UE. A second refusal within that time does not extend it.
fn keep_connection(ue: Ue, keys: Keys) {
    let delay = ue.config().timers.release_delay;
    let rests = ue.with(|p| {
        let settled = p.amf.mobility.target.is_none()
            && p.amf.mobility.forwarding_source.is_none()
            && p.amf.mobility.context_transfer.is_none();
        settled && p.amf.connection.as_ref().is_some_and(|c| !c.releasing) && !p.awaits_release()
    });
    if delay.is_zero() || !rests {
        return dismiss(ue);
    }
    if ue.with(|p| p.amf.subscription.is_some()) {
        udm_client::deregister(ue);
    }
    // The gNB keeps the resources of active sessions until its UE context ends or the UE registers again.
    session_resources::forget_inactive(ue);
    let until = Some(ue.now() + delay);
    ue.with(|p| {
        let former = std::mem::take(&mut p.amf);
        let UeSecurity { current, k_amf, next_hop, ng_ksi, .. } = former.security;
        // The AS keys stay as long as the gNB's UE context: a new K_AMF gets another ngKSI than theirs.
        let of_gnb = UeSecurity { next_hop, ng_ksi, ..UeSecurity::default() };
        let kept = match keys {
            Keys::Kept => AmfContext {
                supi: former.supi,
                pei: former.pei,
                ue_security_capability: former.ue_security_capability,
                security: UeSecurity { current, k_amf, ..of_gnb },
                radio: UeRadio { paging_aid: None, ..former.radio },
                ..AmfContext::default()
            },
            Keys::Removed => AmfContext { security: of_gnb, ..AmfContext::default() },
        };
        p.amf = AmfContext {
            connection: former.connection,
            inactivity_deadline: until,
            location: UeLocation {
                tai: former.location.tai,
                seen: former.location.seen,
                ..UeLocation::default()
            },
            recently_released: former.recently_released,
            ..kept
        };
        if let Some(c) = &mut p.amf.connection {
            // The next message need not be protected: the UE has deleted its keys, or may have.
            (c.secured, c.follow_on) = (false, false);
        }
    });
}

/// The same for a UE that stays registered.
fn release_later(ue: Ue) {
    let delay = ue.config().timers.release_delay;
    if delay.is_zero() || ue.smf().has_user_plane(ue) {
        return an_release::start(ue, CauseNas::NormalRelease.into());
    }
    let now = ue.now();
    ue.with(|p| p.amf.inactivity_deadline = Some(now + delay));
}

/// The UE registers again on its connection in time: its gNB releases the earlier sessions. If the UE has deleted its keys, the AMF deletes
/// them too.
pub(crate) fn registers_in_time(ue: Ue, protected: bool) {
    session_resources::release_all(ue);
    ue.with(|p| {
        p.amf.inactivity_deadline = None;
        (p.grant, p.veil) = (None, None); // it gets another with its registration
        if !protected {
            (p.amf.supi, p.amf.pei, p.amf.security.current, p.amf.security.k_amf) = (None, None, None, None);
        }
    });
}

/// A procedure was interrupted. If no other procedure follows it, the context of an unregistered UE is deleted.
pub(crate) fn interrupted(ue: Ue, why: Interrupt) {
    ue.with(|p| p.amf.security.proposed = None);
    if why == Interrupt::ConnectionLost && ue.with(|p| p.amf.connection.is_none() && !p.amf.registered) {
        dismiss(ue);
    }
}

/// Starts the inactivity timer of a connection without active session: its expiry starts the AN release (TS 24.501
/// §5.3.1.3).
pub(crate) fn arm_inactivity_timer(ue: Ue) {
    let timers = ue.config().timers;
    let (now, active) = (ue.now(), ue.smf().has_user_plane(ue));
    ue.with(|p| {
        let Some(connection) = p.amf.connection.as_ref().filter(|_| p.amf.registered) else { return };
        let patience = if connection.follow_on { timers.follow_on } else { timers.connection_idle };
        p.amf.inactivity_deadline = (!active).then_some(now + patience);
    });
}

/// After each input: the inactivity timer starts when the last procedure or the last active session has ended, and restarts
/// with each use.
pub(crate) fn watch_connection(ue: Ue) {
    let active = ue.smf().has_user_plane(ue);
    let (used, armed) = ue.with(|p| {
        // The gNB releases the resources of a deregistered UE with its connection.
        let used = !p.awaits_release() && (!p.lanes.idle() || active);
        (used, p.amf.inactivity_deadline.is_some())
    });
    match (used, armed) {
        (true, true) => ue.with(|p| p.amf.inactivity_deadline = None),
        (false, false) => arm_inactivity_timer(ue),
        _ => {}
    }
}
