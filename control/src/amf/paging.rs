//! Network triggered service request: TS 23.502 §4.2.3.3, TS 24.501 §5.6.2, TS 38.413 §8.5.

use whimbrel_ids::{Guti, PduSessionId};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::UePagingIdentity;
use whimbrel_ngap::msg::Paging;

use super::{deregistration, reach};
use crate::envelope::Effect;
use crate::event::Deregistered;
use crate::shard::{Interrupt, Lane, Procedure, Ue};
use crate::smf::{self, UpState};

/// How often a phone is paged before it is given up; with T3513 it spans the longest common paging cycle (2.56 s) twice over.
const PAGINGS: u8 = 4;

/// Downlink packets wait for a session: its user plane is set up, after paging where the phone is idle.
pub(crate) fn downlink_data(ue: Ue, psi: PduSessionId) {
    let (waits, connected, releasing) = ue.with(|p| {
        let waits = p.sessions.get_mut(&psi).is_some_and(|s| {
            s.awaited = s.up == UpState::Inactive;
            s.awaited
        });
        let releasing = p.lanes.procedure(Lane::Mobility) == Some(Procedure::AnRelease);
        (waits, p.amf.connection.is_some(), releasing)
    });
    match (waits, connected, releasing) {
        (false, ..) | (_, _, true) => {} // once released, the phone is paged
        (true, true, false) => smf::reactivate(ue, psi),
        (true, false, _) => page_if_awaited(ue),
    }
}

/// Pages an idle phone for which packets or the network wait, unless something with it is under way.
pub(crate) fn page_if_awaited(ue: Ue) {
    let ue = ue.on(Lane::Mobility);
    let wanted = ue.with(|p| {
        // A procedure that just lost the connection is at its end and in nobody's way.
        let busy = p.lanes.procedure(Lane::Mobility).is_some_and(|l| l == Procedure::Paging);
        let awaited = smf::awaited(p) || smf::is_wanted(p) || p.amf.deregistration_wanted;
        p.amf.connection.is_none() && p.amf.registered && awaited && !busy
    });
    if !wanted {
        return;
    }
    // TS 24.501 §5.3.6: it does not hear now; what waits for it waits on.
    let now = ue.now();
    if ue.with(|p| !reach::is_reachable(p, now)) {
        if ue.with(|p| p.amf.deregistration_wanted) {
            give_up(ue);
        }
        return;
    }
    // TS 24.501 §5.3.7: once the mobile reachable timer has expired, nobody is paged.
    let patience = ue.config().timers.implicit_deregistration;
    if ue.with(|p| p.amf.reachable_until.is_some_and(|until| until <= now + patience)) {
        return give_up(ue);
    }
    ue.start(Lane::Mobility, Procedure::Paging, paging(ue));
}

async fn paging(ue: Ue) {
    for attempt in 0..PAGINGS {
        page(ue, attempt);
        // Between two windows of its extended cycle the phone hears nothing: the next page waits for the next one.
        let cycle = ue.with(|p| reach::edrx_cycle(p)).unwrap_or_default();
        match ue.receive(|_| false, ue.config().timers.t3513 + cycle).await {
            Ok(_) | Err(Interrupt::TimedOut) => {} // §5.6.2.3 b
            Err(_) => return, // it has come, or will: its own procedure goes on from here
        }
    }
    give_up(ue);
}

/// The phone cannot be reached (TS 23.502 §4.2.3.3 step 5).
fn give_up(ue: Ue) {
    if ue.with(|p| p.amf.deregistration_wanted) {
        return deregistration::implicitly(ue, Deregistered::ByOperator);
    }
    smf::give_up_waiting(ue);
}

/// By turns under the 5G-TMSI that the phone surely had and the one that it may have got since (TS 24.501 §5.4.4.6 b).
fn page(ue: Ue, attempt: u8) {
    let config = ue.config();
    let (former, tmsi) = ue.with(|p| (p.amf.former_tmsi, p.amf.tmsi));
    let Some(tmsi) = former.filter(|_| attempt.is_multiple_of(2)).or(tmsi) else { return };
    let s_tmsi = Guti { guami: config.amf.guami(), tmsi }.s_tmsi();
    let tais = ue.with(|p| p.amf.registration_area.to_vec());
    let mut message = Paging::new(UePagingIdentity::FiveGSTmsi(s_tmsi));
    message.tai_list_for_paging.clone_from(&tais);
    (message.paging_drx, message.nr_paging_edrx_information) =
        ue.with(|p| (reach::paging_drx(p), reach::paging_edrx(p)));
    let mut octets = Vec::with_capacity(64);
    Message::from(message).encode(&mut octets);
    ue.emit(Effect::Page { tais, octets }, None);
}
