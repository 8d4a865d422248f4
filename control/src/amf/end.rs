//! How procedures leave a phone behind.

use whimbrel_nas::ie::MmCause;
use whimbrel_ngap::ie::CauseNas;

use super::connection::{ids, send_release_command};
use super::udm_client;
use super::{an_release, n14};
use crate::envelope::Disposition;
use crate::event::Event;
use crate::refusal::Refusal;
use crate::shard::{Interrupt, Procedure, Ue};
use crate::smf;

/// The phone's context ends: its sessions, its connection, its registration at the UDM, its slot.
pub(crate) fn dismiss(ue: Ue) {
    drop(super::target::abandon(ue));
    n14::target::forget(ue);
    smf::forget_all(ue);
    if ue.with(|p| p.amf.subscription.is_some()) {
        udm_client::deregister(ue); // harmless where the subscriber is registered in another slot by now
    }
    send_release_command(ue, CauseNas::Deregister);
    ue.with(|p| {
        p.amf.connection = None;
        p.amf.registered = false;
    });
    ue.forget_queued();
    ue.remark(|b| b.disposition = Disposition::Ended);
}

/// A procedure was refused: the operator learns why, and the phone's context ends.
pub(crate) fn refused(ue: Ue, procedure: Procedure, refusal: Refusal) {
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id, refusal });
    dismiss(ue);
}

/// A procedure of a registered phone was refused. Whether the phone is registered still, the cause says to both sides.
pub(crate) fn refused_with(ue: Ue, procedure: Procedure, refusal: Refusal, cause: MmCause) {
    if !stays_registered(cause) {
        return refused(ue, procedure, refusal);
    }
    let subject = ue.with(|p| p.subject());
    let ran_ue_ngap_id = ids(ue).map(|(_, ran)| ran);
    ue.event(Event::Refused { procedure, subject, ran_ue_ngap_id, refusal });
    an_release::start(ue, CauseNas::NormalRelease.into());
}

/// What a phone hears and stays registered by, though it is not served here or now: it tries elsewhere, or later
/// (TS 24.501 §5.5.1.3.5, §5.6.1.5). After all else it begins anew.
fn stays_registered(cause: MmCause) -> bool {
    matches!(
        cause,
        MmCause::RoamingNotAllowedInTrackingArea
            | MmCause::NoSuitableCellsInTrackingArea
            | MmCause::Congestion
            | MmCause::RestrictedServiceArea
    )
}

/// A procedure was interrupted. Its successor takes over; without one, a phone that had not come far is forgotten.
pub(crate) fn interrupted(ue: Ue, why: Interrupt) {
    ue.with(|p| p.amf.proposed = None);
    if why == Interrupt::ConnectionLost && ue.with(|p| p.amf.connection.is_none() && !p.amf.registered) {
        dismiss(ue);
    }
}

/// A connection without active session is let go after a while (TS 24.501 §5.3.1.3).
pub(crate) fn let_go_when_unused(ue: Ue) {
    let timers = ue.config().timers;
    let now = ue.now();
    ue.with(|p| {
        let Some(connection) = &p.amf.connection else { return };
        let patience = if connection.follow_on { timers.follow_on } else { timers.connection_idle };
        p.amf.connection_until = (!smf::any_active(p)).then_some(now + patience);
    });
}

/// After each input: the time of an unused connection begins when its last procedure or its last active session has ended, and begins
/// anew whenever it is used.
pub(crate) fn watch_connection(ue: Ue) {
    let (used, armed) = ue.with(|p| {
        let used = !p.lanes.idle() || smf::any_active(p);
        (used, p.amf.connection_until.is_some())
    });
    match (used, armed) {
        (true, true) => ue.with(|p| p.amf.connection_until = None),
        (false, false) => let_go_when_unused(ue),
        _ => {}
    }
}
