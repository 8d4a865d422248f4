//! The AMF of another vendor, as the SMF's procedures see an AMF.

use std::time::Duration;

use whimbrel_ids::{PduSessionId, Tai};
use whimbrel_nas::ie::SmCause;
use whimbrel_nas::sm;
use whimbrel_ngap::ie::{Cause, CauseNas, PduSessionAggregateMaximumBitRate};
use whimbrel_ngap::transfer::{
    PduSessionResourceModifyRequestTransfer, PduSessionResourceReleaseCommandTransfer,
};

use super::super::up_connection;
use super::{exchange, with_amf};
use crate::envelope::Effect;
use crate::procedure::{ProcedureEnd, Ue};
use crate::services::ServiceFuture;
use crate::services::namf::{N2SmInformation, NamfCommunication, UeState};
use crate::services::nsmf::SmContextUpdateData;
use crate::services::remote_amf::{
    AmfOperation, AmfRequest, N1N2Transfer, N2SmKind, SmContextError, UserPlaneState,
};
use crate::state::bits;

/// The services of the AMF that serves the UE.
pub(crate) struct RemoteAmf;

impl NamfCommunication for RemoteAmf {
    fn n1_n2_message_transfer(
        &self,
        ue: Ue,
        psi: PduSessionId,
        n1: Option<&sm::Message>,
        n2: N2SmInformation,
    ) {
        let refuses_session = matches!(n1.map(|n1| &n1.body), Some(sm::Body::EstablishmentReject(_)));
        if let Some(n1) = n1
            && exchange::refuse_creation(ue, psi, error_of(n1), n1.to_octets())
        {
            return;
        }
        let n2 = match n2 {
            N2SmInformation::None => None,
            N2SmInformation::Release => {
                let cause = Cause::Nas(CauseNas::NormalRelease);
                let transfer = PduSessionResourceReleaseCommandTransfer::new(cause).to_vec();
                Some((N2SmKind::PduResRelCmd, transfer))
            }
            N2SmInformation::Modify(transfer) => Some((N2SmKind::PduResModReq, transfer)),
        };
        let n2 = n2.or_else(|| companion(ue, psi, n1?));
        let n1 = n1.map(sm::Message::to_octets);
        if !refuses_session && exchange::add_messages(ue, psi, n1.as_deref(), n2.as_ref()) {
            return;
        }
        transfer(ue, psi, n1, n2);
    }

    fn set_up_session_resources<'a>(
        &'a self,
        ue: Ue,
        psi: PduSessionId,
        n1: Option<&'a sm::Message>,
    ) -> ServiceFuture<'a, Result<(), ProcedureEnd>> {
        Box::pin(async move {
            let Some((_, request)) = ue.smf().n2_setup_info(ue, psi) else { return Ok(()) };
            let n2 = (N2SmKind::PduResSetupReq, request);
            if !exchange::add_setup(ue, psi, &n2) {
                transfer(ue, psi, n1.map(sm::Message::to_octets), Some(n2));
            }
            Ok(())
        })
    }

    fn downlink_data(&self, ue: Ue, psi: PduSessionId) {
        // Packets that arrived before the UPF had the gNB's tunnel are sent when it has.
        if !up_connection::is_coming_up(ue, psi) {
            ue.smf().update_sm_context(ue, psi, SmContextUpdateData::Activate);
        }
    }

    fn page_if_awaited(&self, _: Ue) {} // the AMF pages at a transfer

    fn unreachable_for(&self, _: Ue) -> Option<Duration> {
        None // the AMF says so in its answer to a transfer
    }

    fn ue_state(&self, ue: Ue) -> UeState {
        let state = with_amf(ue, |amf| UeState {
            registered: true,
            connected: amf.connected,
            secured: true, // the AMF pages an idle UE for a message
            context_set_up: amf.connected,
            incoming: false,
            leaving: false,
            tai: amf.tai,
        });
        state.unwrap_or_default()
    }

    fn registration_area(&self, ue: Ue) -> Vec<Tai> {
        with_amf(ue, |amf| amf.tai).flatten().into_iter().collect()
    }

    fn user_plane_activated(&self, ue: Ue) {
        with_amf(ue, |amf| amf.connected = true);
    }

    fn handover_over(&self, _: Ue) -> ServiceFuture<'_, Result<(), ProcedureEnd>> {
        // The AMF delays or refuses transfers during a handover (TS 29.518 §5.2.2.3.1); a session's own handover has the session's lane.
        Box::pin(async { Ok(()) })
    }

    fn arm_inactivity_timer(&self, _: Ue) {} // the connection is the AMF's

    fn release_for_inactivity(&self, ue: Ue) {
        // TS 23.502 §4.3.7: each session is deactivated, and the AMF releases a connection without any.
        for psi in ue.smf().sessions_with_user_plane(ue) {
            up_connection::deactivate_at_gnb(ue, psi);
        }
    }

    fn sm_context_released(&self, ue: Ue, psi: PduSessionId) {
        let uri = with_amf(ue, |amf| {
            let session = amf.sessions.get_mut(&psi)?;
            std::mem::take(&mut session.created).then(|| session.status_uri.clone())
        });
        if let Some(uri) = uri.flatten() {
            ask(ue, psi, AmfOperation::ContextReleased { uri });
        }
    }
}

/// N2 SM information beside a command that has none.
///
/// Deviation: Open5GS's AMF takes each lone 5GSM message of a transfer for PDU SESSION ESTABLISHMENT REJECT, and deletes the session. What is sent
/// instead changes nothing at a gNB.
fn companion(ue: Ue, psi: PduSessionId, n1: &sm::Message) -> Option<(N2SmKind, Vec<u8>)> {
    match n1.body {
        sm::Body::ReleaseCommand(_) => {
            let cause = Cause::Nas(CauseNas::NormalRelease);
            let transfer = PduSessionResourceReleaseCommandTransfer::new(cause).to_vec();
            Some((N2SmKind::PduResRelCmd, transfer))
        }
        sm::Body::ModificationCommand(_) => {
            let ambr = ue.with(|p| p.sessions.get(&psi).map(|s| s.qos.ambr))?;
            let mut transfer = PduSessionResourceModifyRequestTransfer::new();
            let ambr = PduSessionAggregateMaximumBitRate::new(bits(ambr.dl_kbps), bits(ambr.ul_kbps));
            transfer.pdu_session_aggregate_maximum_bit_rate = Some(ambr);
            Some((N2SmKind::PduResModReq, transfer.to_vec()))
        }
        _ => None,
    }
}

/// N1N2MessageTransfer (TS 29.518 §5.2.2.3.1).
fn transfer(ue: Ue, psi: PduSessionId, n1: Option<Vec<u8>>, n2: Option<(N2SmKind, Vec<u8>)>) {
    let Some((reference, s_nssai, arp)) =
        ue.with(|p| p.sessions.get(&psi).map(|s| (s.cp_seid, s.s_nssai, s.qos.arp)))
    else {
        return; // the session has ended, and its AMF knows or will
    };
    ask(ue, psi, AmfOperation::Transfer(N1N2Transfer { reference, s_nssai, n1, n2, arp }.into()));
}

fn ask(ue: Ue, psi: PduSessionId, operation: AmfOperation) {
    let supi = ue.with(|p| p.subject().supi);
    let (Some(supi), Some(amf)) = (supi, with_amf(ue, |amf| amf.amf.clone())) else { return };
    ue.emit(Effect::RemoteAmf(AmfRequest { supi, amf, psi, operation }.into()), None);
}

/// The cause for the AMF of a session that the UE is refused (TS 29.502 Table 6.1.7.3-1, TS 24.501 §9.11.4.2).
fn error_of(n1: &sm::Message) -> SmContextError {
    let sm::Body::EstablishmentReject(reject) = &n1.body else { return SmContextError::N1SmError };
    match reject.cause {
        SmCause::MissingOrUnknownDnn => SmContextError::DnnDenied,
        SmCause::MissingOrUnknownDnnInSlice => SmContextError::SNssaiDenied,
        SmCause::UserAuthenticationOrAuthorizationFailed => SmContextError::SubscriptionDenied,
        SmCause::OutOfLadnServiceArea => SmContextError::OutOfLadnServiceArea,
        SmCause::IntegrityProtectionDataRateTooLow => SmContextError::IntegrityProtectedMdrNotAcceptable,
        SmCause::NotSupportedSscMode => SmContextError::SscDenied,
        SmCause::UnknownPduSessionType
        | SmCause::PduSessionTypeIpv4OnlyAllowed
        | SmCause::PduSessionTypeIpv6OnlyAllowed
        | SmCause::PduSessionTypeIpv4v6OnlyAllowed
        | SmCause::PduSessionTypeUnstructuredOnlyAllowed
        | SmCause::PduSessionTypeEthernetOnlyAllowed => SmContextError::PduTypeDenied,
        SmCause::InsufficientResources => SmContextError::InsufficientResources,
        SmCause::NetworkFailure => SmContextError::NetworkFailure,
        // The other causes are about the message of the UE.
        _ => SmContextError::N1SmError,
    }
}

/// The state of a session's user plane, for the AMF.
pub(super) fn user_plane(ue: Ue, psi: PduSessionId) -> Option<UserPlaneState> {
    ue.with(|p| {
        p.sessions.get(&psi).map(|s| match up_connection::is_active(s) {
            true => UserPlaneState::Activated,
            false => UserPlaneState::Deactivated,
        })
    })
}
