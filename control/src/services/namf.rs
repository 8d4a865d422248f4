//! Namf_Communication (TS 29.518 §5.2.2): what the SMF asks of the AMF.

use std::time::Duration;

use whimbrel_ids::PduSessionId;
use whimbrel_nas::sm;

use super::Answer;
use crate::procedure::{End, Ue};

/// How long a UE may take from its source to its target: longer than the source waits (TNGRELOCoverall, TS 38.413 §9.5,
/// is seconds), for it is the source that is to give up first.
pub(crate) const HANDOVER_EXECUTION: Duration = Duration::from_secs(15);

/// N2 SM information of N1N2MessageTransfer that has no answer to await (TS 29.502 §6.1.6.3.10).
pub(crate) enum N2SmInformation {
    /// None: the 5GSM message goes in DOWNLINK NAS TRANSPORT.
    None,
    /// PDU_RES_REL_CMD: the gNB releases the session's resources.
    Release,
    /// PDU_RES_MOD_REQ, with its transfer.
    Modify(Vec<u8>),
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
    /// N1N2MessageTransfer with PDU_RES_SETUP_REQ. Waits until the gNB may be asked: no handover, no other setup of it is outstanding.
    fn set_up_session_resources<'a>(
        &'a self,
        ue: Ue,
        psi: PduSessionId,
        n1: Option<&'a sm::Message>,
    ) -> Answer<'a, Result<(), End>>;
    /// N1N2MessageTransfer for downlink packets (TS 23.502 §4.2.3.3 step 3a): an idle UE is paged.
    fn downlink_data(&self, ue: Ue, psi: PduSessionId);
    /// Pages an idle UE if anything waits for it.
    fn page_if_awaited(&self, ue: Ue);
    /// How long an idle UE cannot be paged (TS 23.502 §4.2.3.3 step 2): MICO mode or eDRX.
    fn unreachable_for(&self, ue: Ue) -> Option<Duration>;
    /// Waits until no handover is in progress.
    fn handover_over(&self, ue: Ue) -> Answer<'_, Result<(), End>>;
    /// A session was used or has ended: restarts the inactivity timer of the connection (TS 24.501 §5.3.1.3).
    fn arm_inactivity_timer(&self, ue: Ue);
    /// The last user plane was inactive for too long: AN release (TS 23.502 §4.2.6).
    fn release_for_inactivity(&self, ue: Ue);
    /// Nsmf_PDUSession_SMContextStatusNotify (TS 29.502 §5.2.2.5): the SM context was released.
    fn sm_context_released(&self, ue: Ue, psi: PduSessionId);
}
