//! Start and end of a UE's N2 connection: TS 23.502 §4.2.2.2.2, §4.2.3.2, §4.2.6.

use whimbrel_ids::AmfUeNgapId;
use whimbrel_ngap::ie::{CauseRadioNetwork, UeNgapIdPair};
use whimbrel_ngap::msg::InitialUeMessage;

use super::an_release;
use super::n2::{emit, note_released, release_command};
use super::session_resources;
use super::user_location::locate;
use super::{location_reporting, paging, target};
use crate::envelope::AssociationId;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::state::Connection;

/// Replaces the UE's earlier connection, if it has one (TS 23.502 §4.2.2.2.2, §4.2.3.2): the earlier gNB gets UE
/// CONTEXT RELEASE COMMAND, and procedures over that connection end.
pub(crate) fn adopt(
    ue: Ue,
    association: AssociationId,
    amf_ue_ngap_id: AmfUeNgapId,
    m: &InitialUeMessage,
    secured: bool,
) {
    if let Some(former) = ue.with(|p| p.amf.connection.take()) {
        let ids = UeNgapIdPair::new(former.amf_ue_ngap_id, former.ran_ue_ngap_id);
        let command = release_command(ids, CauseRadioNetwork::ReleaseDueTo5gcGeneratedReason);
        emit(ue, former.association, &command.into(), None);
        note_released(ue, former.association, former.amf_ue_ngap_id);
        detach(ue);
    }
    ue.with(|p| {
        let secured = secured && !p.amf.has_unknown_nas_counts();
        p.amf.implicit_deregistration_at = None;
        p.amf.inactivity_deadline = None;
        p.amf.connection = Some(Box::new(Connection {
            association,
            amf_ue_ngap_id,
            ran_ue_ngap_id: m.ran_ue_ngap_id,
            context_set_up: false,
            context_pending: false,
            context_requested: m.ue_context_request.is_some(),
            ambr_sent: None,
            follow_on: false,
            secured,
            releasing: false,
            establishment_cause: m.rrc_establishment_cause,
            rrc_inactive: false,
            pending_setups: Vec::new(),
        }));
    });
    locate(ue, &m.user_location_information);
    location_reporting::found(ue);
}

/// The connection has ended, for any reason: its procedures are interrupted, the sessions' user planes are deactivated,
/// and the UE is paged if downlink data wait.
pub(crate) fn lost(ue: Ue) {
    detach(ue);
    an_release::begin_reachability(ue);
    paging::page_if_awaited(ue);
}

fn detach(ue: Ue) {
    drop(target::abandon(ue));
    let sessions = ue.smf().sessions_with_user_plane(ue);
    let all = ue.smf().session_ids(ue);
    ue.with(|p| {
        p.amf.connection = None;
        p.amf.security.next_hop = None;
        p.amf.inactivity_deadline = None;
        p.lanes.interrupt(Lane::Mobility, Interrupt::ConnectionLost);
        p.lanes.interrupt_pending_setups(Interrupt::ConnectionLost);
        for psi in all {
            // The deactivation of a user plane does not need the connection.
            if p.lanes.procedure(Lane::Session(psi)) != Some(Procedure::UpConnectionDeactivation) {
                p.lanes.interrupt(Lane::Session(psi), Interrupt::ConnectionLost);
            }
        }
    });
    session_resources::deactivate_all(ue, sessions);
}
