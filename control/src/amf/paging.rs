//! Network triggered service request: TS 23.502 §4.2.3.3, TS 24.501 §5.6.2, TS 38.413 §8.5; where a UE is paged first:
//! TS 23.501 §5.4.3.2; its radio capability for paging: TS 23.501 §5.4.4.2.

use whimbrel_ids::{PduSessionId, STmsi, Tai};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    AmfPagingTarget, AssistanceDataForPaging, NextPagingAreaScope, NgranCgi, PagingAttemptInformation,
    PagingPriority, UePagingIdentity, UeRadioCapabilityForPaging,
};
use whimbrel_ngap::msg::{Paging, UeContextReleaseComplete};

use super::{deregistration, location_reporting, reach};
use crate::envelope::Effect;
use crate::event::DeregistrationReason;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::services::nsmf::SmContextUpdateData;

/// Attempts before paging fails; with T3513 they span the longest common paging cycle (2.56 s) twice.
const PAGINGS: u8 = 4;

/// The longest UE radio capability for paging that is kept: it is part of every PAGING, and is a list of bands of a few octets
/// each (TS 38.331 §6.2.2, UERadioPagingInformation).
const CAPABILITY_OCTETS_MAX: usize = 512;

/// UE RADIO CAPABILITY INFO INDICATION (TS 38.413 §8.14.1.2).
pub(super) fn keep_capability(ue: Ue, capability: UeRadioCapabilityForPaging) {
    let octets = |o: &Option<Vec<u8>>| o.as_ref().map_or(0, Vec::len);
    let nr = octets(&capability.ue_radio_capability_for_paging_of_nr);
    if nr + octets(&capability.ue_radio_capability_for_paging_of_eutra) <= CAPABILITY_OCTETS_MAX {
        ue.with(|p| p.amf.radio.paging_aid.get_or_insert_default().capability = Some(capability));
    }
}

/// UE CONTEXT RELEASE COMPLETE (TS 38.413 §8.3.3.2): its recommendations replace those of an earlier gNB.
pub(super) fn keep_recommended(ue: Ue, m: &UeContextReleaseComplete) {
    let recommended = m.info_on_recommended_cells_and_ran_nodes_for_paging.as_ref();
    let cells = recommended.map(|r| r.recommended_cells_for_paging.clone()).unwrap_or_default();
    let nodes = recommended.map(|r| r.recommend_ran_nodes_for_paging.clone()).unwrap_or_default();
    ue.with(|p| {
        if !cells.is_empty() || !nodes.is_empty() || p.amf.radio.paging_aid.is_some() {
            let aid = p.amf.radio.paging_aid.get_or_insert_default();
            (aid.recommended, aid.nodes) = (cells, nodes);
        }
    });
}

/// Downlink packets wait for a session: its user plane is set up; an idle UE is paged first.
pub(crate) fn downlink_data(ue: Ue, psi: PduSessionId) {
    let (secured, releasing) = ue.with(|p| {
        let releasing = p.lanes.procedure(Lane::Mobility) == Some(Procedure::AnRelease);
        (p.amf.connection.as_ref().map(|c| c.secured), releasing)
    });
    match (secured, releasing) {
        (_, true) => {} // once released, the UE is paged
        // The UE is being authenticated: its gNB would get a key that ends with that. The procedure sets up what waits (TS 33.501 §6.9.4.2).
        (Some(false), false) => {}
        // Packets that arrived before the UPF had the gNB's tunnel are sent when it has.
        (Some(true), false) if ue.smf().is_coming_up(ue, psi) => {}
        (Some(true), false) => ue.smf().update_sm_context(ue, psi, SmContextUpdateData::Activate),
        (None, false) => page_if_awaited(ue),
    }
}

/// Pages an idle UE if downlink packets, sessions or the operator wait for it, unless it is being paged.
pub(crate) fn page_if_awaited(ue: Ue) {
    let ue = ue.on(Lane::Mobility);
    let (now, needed) = (ue.now(), ue.smf().needs_ue(ue));
    let page_now = ue.with(|p| {
        // A procedure that just lost the connection is about to end.
        let busy = p.lanes.procedure(Lane::Mobility).is_some_and(|l| l == Procedure::Paging);
        let awaited = needed || p.amf.deregistration_requested;
        let awaited = awaited || location_reporting::is_requested(p, now);
        // A UE that goes from one AMF to another is paged by the one that has it then.
        let moves = p.amf.mobility.context_transfer.is_some();
        p.amf.connection.is_none() && p.amf.registered && awaited && !busy && !moves
    });
    if !page_now {
        return;
    }
    // TS 24.501 §5.3.6: MICO mode; what waits for the UE goes on waiting.
    if ue.with(|p| !reach::is_reachable(p, now)) {
        let why = "the UE does not listen to paging now (MICO mode)";
        location_reporting::unreachable(ue);
        ue.smf().paging_deferred(ue, why);
        if ue.with(|p| p.amf.deregistration_requested) {
            give_up(ue, why);
        }
        return;
    }
    // TS 23.501 §5.3.4.1.1, §5.6.5: the UE is not paged for a service that it may not use anywhere in its registration
    // area.
    if ue.with(|p| !p.amf.deregistration_requested) && where_to_page(ue).is_empty() {
        return give_up(ue, "the UE may not have it anywhere in its registration area, so it is not paged");
    }
    // TS 24.501 §5.3.7: once the mobile reachable timer has expired, the UE is not paged.
    let patience = ue.config().timers.implicit_deregistration;
    if ue.with(|p| p.amf.implicit_deregistration_at.is_some_and(|until| until <= now + patience)) {
        return give_up(ue, "the mobile reachable timer of the UE has expired, so it is not paged");
    }
    ue.start(Lane::Mobility, Procedure::Paging, paging(ue));
}

async fn paging(ue: Ue) {
    let near = is_near(ue);
    for attempt in 0..PAGINGS {
        page(ue, attempt, near && attempt == 0);
        // Between two paging time windows of eDRX the UE does not listen: the next attempt waits for the next window.
        let cycle = ue.with(|p| reach::edrx_cycle(p)).unwrap_or_default();
        match ue.receive(|_| false, ue.config().timers.t3513 + cycle).await {
            Ok(_) | Err(Interrupt::TimedOut) => {} // §5.6.2.3 b
            Err(_) => return, // the UE has answered, or will: its own procedure continues
        }
    }
    give_up(ue, "the UE did not answer PAGING");
}

/// The UE cannot be reached (TS 23.502 §4.2.3.3 step 5).
fn give_up(ue: Ue, why: &'static str) {
    if ue.with(|p| p.amf.deregistration_requested) {
        return deregistration::implicitly(ue, DeregistrationReason::ByOperator);
    }
    location_reporting::unreachable(ue);
    ue.smf().paging_failed(ue, why);
}

/// Whether the UE is paged first where it was seen last, and in its whole registration area only if it does not answer
/// (TS 23.501 §5.4.3.2). Not for an emergency, and not if the next attempt has to wait for a long eDRX cycle.
fn is_near(ue: Ue) -> bool {
    let (now, near) = (ue.now(), ue.config().amf.access.paging_near);
    ue.with(|p| {
        let lately = p.amf.location.seen.as_ref().is_some_and(|s| now.since(s.at) < near);
        lately && !p.amf.emergency && reach::edrx_cycle(p).is_none()
    })
}

/// The tracking areas in which the waiting service may be used.
fn where_to_page(ue: Ue) -> Vec<Tai> {
    let now = ue.now();
    let everywhere = ue.with(|p| {
        let everywhere = p.amf.deregistration_requested || location_reporting::is_requested(p, now);
        everywhere.then(|| p.amf.location.registration_area.to_vec())
    });
    everywhere.unwrap_or_else(|| ue.smf().paging_area(ue))
}

/// Alternates between the 5G-GUTI that the UE confirmed and the newer one that it may have received (TS 24.501 §5.4.4.6
/// b).
fn page(ue: Ue, attempt: u8, near: bool) {
    let config = ue.config();
    let gutis: Vec<_> = ue.with(|p| p.amf.gutis(config.amf.amf_id).collect());
    let Some(&(amf_id, tmsi)) = gutis.get(usize::from(attempt) % gutis.len().max(1)) else { return };
    let s_tmsi = STmsi { set: amf_id.set(), pointer: amf_id.pointer(), tmsi };
    let tais = where_to_page(ue);
    let mut message = Paging::new(UePagingIdentity::FiveGSTmsi(s_tmsi));
    message.tai_list_for_paging.clone_from(&tais);
    (message.paging_drx, message.nr_paging_edrx_information) =
        ue.with(|p| (reach::paging_drx(p), reach::paging_edrx(p)));
    let mut assistance = AssistanceDataForPaging::new();
    let mut attempts = PagingAttemptInformation::new(attempt + 1, PAGINGS);
    let scope = if near { NextPagingAreaScope::Changed } else { NextPagingAreaScope::Same };
    attempts.next_paging_area_scope = (attempt + 1 < PAGINGS).then_some(scope);
    assistance.paging_attempt_information = Some(attempts);
    message.paging_priority = ue.smf().paging_priority(ue).and_then(priority);
    ue.with(|p| {
        if let Some(aid) = &p.amf.radio.paging_aid {
            message.ue_radio_capability_for_paging = aid.capability.clone();
            assistance.assistance_data_for_recommended_cells.clone_from(&aid.recommended);
        }
    });
    message.assistance_data_for_paging = Some(assistance);
    let mut octets = Vec::with_capacity(64);
    Message::from(message).encode(&mut octets);
    let (near, cells) = if near { likely(ue) } else { Default::default() };
    ue.emit(Effect::Page { tais, near, cells, octets }, None);
}

/// Where the UE is likely to be: its last cell, and the recommendations of its last gNB.
fn likely(ue: Ue) -> (Vec<AmfPagingTarget>, Vec<NgranCgi>) {
    ue.with(|p| {
        let aid = p.amf.radio.paging_aid.as_deref();
        let recommended = aid.into_iter().flat_map(|a| a.recommended.iter().map(|c| &c.ngran_cgi));
        let cells = p.amf.location.seen.iter().map(|s| &s.cell).chain(recommended);
        (aid.map(|a| a.nodes.clone()).unwrap_or_default(), cells.cloned().collect())
    })
}

/// The paging priority of an allocation and retention priority (TS 38.413 §8.5.1.2, §9.3.1.78): the upper eight of the fifteen
/// levels have one each, the others none.
fn priority(arp: u8) -> Option<PagingPriority> {
    PagingPriority::ALL.get(usize::from(arp).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 38.413 §9.3.1.78
    fn the_upper_levels_of_arp_are_paged_first() {
        assert_eq!(priority(1), Some(PagingPriority::Priolevel1));
        assert_eq!(priority(8), Some(PagingPriority::Priolevel8));
        assert_eq!((priority(0), priority(9), priority(15)), (None, None, None));
    }
}
