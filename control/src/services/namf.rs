//! Namf_Communication (TS 29.518 §5.2.2): the AMF's services for the SMF.

use std::time::Duration;

use whimbrel_ids::{PduSessionId, Tai};
use whimbrel_nas::sm;

use super::ServiceFuture;
use crate::procedure::{ProcedureEnd, Ue};

/// Time limit of handover execution: longer than the source's (TNGRELOCoverall, TS 38.413 §9.5, some seconds), so that
/// the source gives up first.
pub(crate) const HANDOVER_EXECUTION: Duration = Duration::from_secs(15);

/// N2 SM information of N1N2MessageTransfer without an awaited answer (TS 29.502 §6.1.6.3.10).
pub(crate) enum N2SmInformation {
    /// None: the 5GSM message goes in DOWNLINK NAS TRANSPORT.
    None,
    /// PDU_RES_REL_CMD: the gNB releases the session's resources.
    Release,
    /// PDU_RES_MOD_REQ, with its transfer.
    Modify(Vec<u8>),
}

/// The AMF's state of a UE that its sessions depend on.
///
/// Deviation: TS 29.502 §6.1.6.2.2 and §6.1.6.2.11 have the AMF send it and each change; here the SMF asks, so that there is one copy.
#[derive(Clone, Copy, Default)]
pub(crate) struct UeState {
    /// True in 5GMM-REGISTERED.
    pub(crate) registered: bool,
    /// True in 5GMM-CONNECTED.
    pub(crate) connected: bool,
    /// NAS security is established on the connection.
    pub(crate) secured: bool,
    /// The gNB has the UE's context.
    pub(crate) context_set_up: bool,
    /// The UE comes from another AMF, and its sessions were not handed over yet.
    pub(crate) incoming: bool,
    /// The UE goes to another AMF, or has gone there, with its sessions.
    pub(crate) leaving: bool,
    /// The tracking area where it was last seen.
    pub(crate) tai: Option<Tai>,
}

/// The service operations of the AMF. `ue` names the UE.
pub(crate) trait NamfCommunication: Sync {
    /// N1N2MessageTransfer (TS 29.518 §5.2.2.3.1): a 5GSM message to a connected UE, N2 SM information to its gNB.
    fn n1_n2_message_transfer(
        &self,
        ue: Ue,
        psi: PduSessionId,
        n1: Option<&sm::Message>,
        n2: N2SmInformation,
    );
    /// N1N2MessageTransfer with PDU_RES_SETUP_REQ. Waits until the gNB may be asked: no handover runs and no other setup of the
    /// session is outstanding.
    fn set_up_session_resources<'a>(
        &'a self,
        ue: Ue,
        psi: PduSessionId,
        n1: Option<&'a sm::Message>,
    ) -> ServiceFuture<'a, Result<(), ProcedureEnd>>;
    /// N1N2MessageTransfer for downlink packets (TS 23.502 §4.2.3.3 step 3a): an idle UE is paged.
    fn downlink_data(&self, ue: Ue, psi: PduSessionId);
    /// Pages an idle UE if anything waits for it.
    fn page_if_awaited(&self, ue: Ue);
    /// How long an idle UE cannot be paged (TS 23.502 §4.2.3.3 step 2): MICO mode or eDRX.
    fn unreachable_for(&self, ue: Ue) -> Option<Duration>;
    /// The state of the UE.
    fn ue_state(&self, ue: Ue) -> UeState;
    /// The UE's registration area (TS 24.501 §5.3.4).
    fn registration_area(&self, ue: Ue) -> Vec<Tai>;
    /// A session has got its user plane: the connection is in use, and a follow-on request has been fulfilled.
    fn user_plane_activated(&self, ue: Ue);
    /// Waits until no handover is in progress.
    fn handover_over(&self, ue: Ue) -> ServiceFuture<'_, Result<(), ProcedureEnd>>;
    /// A session was used or has ended: restarts the inactivity timer of the connection (TS 24.501 §5.3.1.3).
    fn arm_inactivity_timer(&self, ue: Ue);
    /// AN release because the last user plane was inactive for too long (TS 23.502 §4.2.6).
    fn release_for_inactivity(&self, ue: Ue);
    /// Nsmf_PDUSession_SMContextStatusNotify (TS 29.502 §5.2.2.5): the SM context was released.
    fn sm_context_released(&self, ue: Ue, psi: PduSessionId);
}
