//! The AMF's service operations (TS 29.518).

use std::time::Duration;

use whimbrel_ids::{PduSessionId, Tai};
use whimbrel_nas::sm;
use whimbrel_ngap::ie::CauseRadioNetwork;

use super::nas_transport::N1Sm;
use super::{an_release, context_setup, end, n2, paging, pending_setup, reach, target};
use crate::procedure::{ProcedureEnd, Ue};
use crate::services::ServiceFuture;
use crate::services::namf::{N2SmInformation, NamfCommunication, UeState};
use crate::state::DownlinkProtection;

/// The AMF's services for the SMF.
pub(crate) struct Amf;

impl NamfCommunication for Amf {
    fn n1_n2_message_transfer(
        &self,
        ue: Ue,
        psi: PduSessionId,
        n1: Option<&sm::Message>,
        n2: N2SmInformation,
    ) {
        let n1 = n1.map(N1Sm::Message);
        match n2 {
            N2SmInformation::None => {
                if let Some(m) = n1.and_then(|n1| n1.transport(psi)) {
                    n2::send_nas(ue, &m, DownlinkProtection::Current);
                }
            }
            N2SmInformation::Release => context_setup::release_session_resources(ue, psi, n1),
            N2SmInformation::Modify(transfer) => {
                context_setup::modify_session_resources(ue, psi, transfer, n1);
            }
        }
    }

    fn set_up_session_resources<'a>(
        &'a self,
        ue: Ue,
        psi: PduSessionId,
        n1: Option<&'a sm::Message>,
    ) -> ServiceFuture<'a, Result<(), ProcedureEnd>> {
        Box::pin(context_setup::n1_n2_message_transfer(ue, psi, n1.map(N1Sm::Message)))
    }

    fn downlink_data(&self, ue: Ue, psi: PduSessionId) {
        paging::downlink_data(ue, psi);
    }

    fn page_if_awaited(&self, ue: Ue) {
        paging::page_if_awaited(ue);
    }

    fn unreachable_for(&self, ue: Ue) -> Option<Duration> {
        let now = ue.now();
        ue.with(|p| reach::unreachable_time(p, now))
    }

    fn ue_state(&self, ue: Ue) -> UeState {
        ue.with(|p| {
            let connection = p.amf.connection.as_ref();
            UeState {
                registered: p.amf.registered,
                connected: connection.is_some(),
                secured: connection.is_some_and(|c| c.secured),
                context_set_up: connection.is_some_and(|c| c.context_set_up),
                incoming: p.amf.inbound().is_some(),
                leaving: p.amf.outbound().is_some(),
                tai: p.amf.location.tai,
            }
        })
    }

    fn registration_area(&self, ue: Ue) -> Vec<Tai> {
        ue.with(|p| p.amf.location.registration_area.to_vec())
    }

    fn user_plane_activated(&self, ue: Ue) {
        ue.with(|p| {
            p.amf.inactivity_deadline = None;
            if let Some(c) = &mut p.amf.connection {
                c.follow_on = false;
            }
        });
    }

    fn handover_over(&self, ue: Ue) -> ServiceFuture<'_, Result<(), ProcedureEnd>> {
        Box::pin(target::handover_over(ue))
    }

    fn arm_inactivity_timer(&self, ue: Ue) {
        end::arm_inactivity_timer(ue);
    }

    fn release_for_inactivity(&self, ue: Ue) {
        an_release::start(ue, CauseRadioNetwork::UserInactivity.into());
    }

    fn sm_context_released(&self, ue: Ue, psi: PduSessionId) {
        pending_setup::session_ended(ue, psi);
    }
}
