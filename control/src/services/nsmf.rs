//! Nsmf_PDUSession (TS 29.502 §5.2.2): the SMF's services for the AMF.

use std::collections::BTreeMap;
use std::net::IpAddr;

use whimbrel_ids::{Dnn, PduSessionId, SNssai, Seid, Tac, Tai};
use whimbrel_nas::ie::{MmCause, SmCause};
use whimbrel_ngap::ie::{Cause, PduSessionResourceItem};
use whimbrel_ngap::transfer::HandoverCommandTransfer;

use super::ServiceFuture;
use crate::envelope::OutputId;
use crate::n14::HandedOverSession;
use crate::procedure::{Interrupt, Ue};
use crate::state::{Ambr, IncomingSession, SmContext, Subscription, Tunnel};

/// SmContextCreateData (TS 29.502 §6.1.6.2.2).
#[derive(Clone, Debug)]
pub(crate) struct SmContextCreateData {
    /// Identity of the session.
    pub(crate) psi: PduSessionId,
    /// Its slice, allowed and subscribed.
    pub(crate) s_nssai: SNssai,
    /// Its data network, subscribed and configured.
    pub(crate) dnn: Dnn,
    /// An existing PDU session of the UE (request type).
    pub(crate) existing: bool,
    /// An emergency session: the operator's emergency configuration applies, not the subscription (TS 23.501
    /// §5.16.4.3).
    pub(crate) emergency: bool,
}

/// An update of an SM context (TS 29.502 §6.1.6.2.11).
pub(crate) enum SmContextUpdateData<'a> {
    /// A 5GSM message of the UE.
    N1Sm(&'a [u8]),
    /// N2 SM information: the session's part of the gNB's answer or report.
    N2Sm {
        /// The gNB's success or failure.
        outcome: N2Outcome,
        /// The transfer container of NGAP.
        transfer: Vec<u8>,
        /// The gNB that sent it serves the UE. If it does not, it does not get the downlink tunnel.
        serving: bool,
    },
    /// PDU SESSION RESOURCE NOTIFY: QoS flows that the gNB released, or whose guarantee changed (TS 38.413 §8.2.4).
    Notify(&'a [u8]),
    /// The volume that a secondary RAT carried (TS 38.413 §8.15.1).
    SecondaryRatUsage(&'a [u8]),
    /// upCnxState ACTIVATING: the SMF has the user plane set up at the UE's gNB.
    Activate,
    /// upCnxState ACTIVATING: the AMF has sent the setup request to the gNB with a message of its own.
    SetupRequested,
    /// upCnxState DEACTIVATED: downlink packets are buffered.
    Deactivate,
}

/// How an SM context is released (TS 29.502 §5.2.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmContextReleaseData {
    /// The gNB releases its resources; the UE gets no message.
    Local,
    /// The N2 connection ends as well: neither UE nor gNB gets a message.
    WithConnection,
    /// A connected UE gets PDU SESSION RELEASE COMMAND with this cause; of an idle UE, the release is local.
    Command(SmCause),
}

/// The result of a session at a gNB (TS 38.413 §8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum N2Outcome {
    /// Resources set up; the transfer has the tunnel.
    SetUp,
    /// Setup failed; the transfer has the cause.
    SetupFailed,
    /// Modified, except the flows listed in the transfer.
    Modified,
    /// Modification failed; the transfer has the cause.
    ModifyFailed,
    /// Released as commanded.
    Released,
    /// Released by the gNB (PDU SESSION RESOURCE NOTIFY).
    Lost,
    /// The UE was handed over to another gNB before this one answered.
    GnbLeft,
}

/// A session that the target gNB admits.
pub(crate) struct AdmittedSession {
    /// Identity of the session.
    pub(crate) psi: PduSessionId,
    /// The transfer for the source, with the forwarding tunnel.
    pub(crate) command: HandoverCommandTransfer,
    /// The downlink tunnel at the target.
    pub(crate) tunnel: Tunnel,
}

/// The result of a session in a path switch: the transfer of the acknowledgement, or the cause of failure.
pub(crate) struct SwitchedSession {
    /// Identity of the session.
    pub(crate) psi: PduSessionId,
    /// The transfer for the gNB, or the cause.
    pub(crate) transfer: Result<Vec<u8>, Cause>,
}

/// The result of a tunnel change: the transfer of the confirmation, or the cause of failure.
pub(crate) struct MovedTunnel {
    /// Identity of the session.
    pub(crate) psi: PduSessionId,
    /// The transfer for the gNB, or the cause.
    pub(crate) transfer: Result<Vec<u8>, Cause>,
}

/// The AMF's view of an SM context.
#[derive(Clone, Debug)]
pub(crate) struct SmContextStatus {
    /// PDU session identity.
    pub(crate) psi: PduSessionId,
    /// Slice of the session.
    pub(crate) s_nssai: SNssai,
    /// Its data network.
    pub(crate) dnn: Dnn,
    /// An emergency session.
    pub(crate) emergency: bool,
    /// Packets flow (upCnxState ACTIVATED).
    pub(crate) active: bool,
    /// Its user plane is deactivated and can be set up again.
    pub(crate) can_be_activated: bool,
    /// Downlink packets wait for the UE.
    pub(crate) awaited: bool,
    /// A release is in progress.
    pub(crate) being_released: bool,
    /// SSC mode 3: the UE was asked to set up the session that replaces it (TS 23.502 §4.3.5.2).
    pub(crate) leaving: bool,
}

/// The sessions of a UE that comes from another AMF.
pub(crate) struct TakenOverSessions {
    /// Sessions that can be served here.
    pub(crate) sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    /// Their data at the UPF.
    pub(crate) coming: Vec<IncomingSession>,
    /// Sessions that cannot, with the cause.
    pub(crate) refused: Vec<(PduSessionId, Cause)>,
}

/// N4 requests whose answers are awaited together.
pub(crate) type PathUpdates = Vec<(PduSessionId, (), OutputId)>;

/// The service operations of the SMF. `ue` names the UE, a PDU session identity its SM context.
pub(crate) trait NsmfPduSession: Sync {
    /// The SMF is another vendor's, whose answers are later inputs: a user plane that is to be activated comes after the message that
    /// accepts the UE's request.
    fn answers_later(&self) -> bool {
        false
    }
    /// CreateSMContext (TS 29.502 §5.2.2.2), with the UE's 5GSM message.
    fn create_sm_context(&self, ue: Ue, data: SmContextCreateData, n1: &[u8]);
    /// UpdateSMContext (TS 29.502 §5.2.2.3).
    fn update_sm_context(&self, ue: Ue, psi: PduSessionId, data: SmContextUpdateData<'_>);
    /// ReleaseSMContext (TS 29.502 §5.2.2.4).
    fn release_sm_context(&self, ue: Ue, psi: PduSessionId, data: SmContextReleaseData);
    /// The SM contexts of the UE, by PDU session identity.
    ///
    /// Deviation: TS 29.502 §5.2.2.5 has the SMF notify each change and the AMF store it; here the AMF asks, so that there is one copy.
    fn sm_contexts(&self, ue: Ue) -> Vec<SmContextStatus>;
    /// The PDU session identities of the SM contexts.
    fn session_ids(&self, ue: Ue) -> Vec<PduSessionId>;
    /// Whether any session has, or is getting, a user plane.
    fn has_user_plane(&self, ue: Ue) -> bool;
    /// Whether the user plane of a session is being set up: the gNB's answer or the UPF's is outstanding.
    fn is_coming_up(&self, ue: Ue, psi: PduSessionId) -> bool;
    /// The sessions to deactivate when the N2 connection ends.
    fn sessions_with_user_plane(&self, ue: Ue) -> Vec<PduSessionId>;
    /// The sum of the session AMBRs with a user plane, and of these sessions, within the subscribed UE-AMBR (TS 23.501 §5.7.2.6).
    fn ue_ambr(&self, ue: Ue, coming: &[PduSessionId]) -> Option<Ambr>;
    /// Why a session must not have a user plane in a tracking area (TS 24.501 §5.6.1.4.1).
    fn barred(&self, ue: Ue, psi: PduSessionId, tac: Tac) -> Option<MmCause>;
    /// Whether a session needs an idle UE: downlink packets or a modification wait.
    fn needs_ue(&self, ue: Ue) -> bool;
    /// The highest ARP priority among the sessions with waiting packets (TS 23.502 §4.2.3.3 step 3a).
    fn paging_priority(&self, ue: Ue) -> Option<u8>;
    /// The part of the registration area in which a waiting session may have its user plane.
    fn paging_area(&self, ue: Ue) -> Vec<Tai>;
    /// N1N2TransferFailureNotification (TS 29.518 §5.2.2.3.2): the UE cannot be reached now; the sessions go on waiting.
    fn paging_deferred(&self, ue: Ue, why: &'static str);
    /// The same; the waiting packets are discarded (TS 23.502 §4.2.3.3 step 5).
    fn paging_failed(&self, ue: Ue, why: &'static str);
    /// Nudm_SDM_Notification to the SMF (TS 23.502 §4.3.3.2 step 1c): the subscription was `former`.
    fn subscription_changed(&self, ue: Ue, former: &Subscription);
    /// The N2 SM information of a setup at the gNB (TS 38.413 §9.3.4.1), with the session's slice.
    fn n2_setup_info(&self, ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)>;

    /// UpdateSMContext, hoState PREPARING (TS 23.502 §4.9.1.3.2 steps 5 and 6): the UPFs of the target's area get these sessions. Returns the
    /// sessions that none can serve there.
    fn prepare_upfs<'a>(
        &'a self,
        ue: Ue,
        sessions: &'a [PduSessionId],
        tac: Tac,
    ) -> ServiceFuture<'a, Result<Vec<PduSessionId>, Interrupt>>;
    /// Whether a handover to this area changes the UPF of any of these sessions.
    fn changes_upf(&self, ue: Ue, sessions: &[PduSessionId], tac: Tac) -> bool;
    /// UpdateSMContext, hoState PREPARING (TS 23.502 §4.9.1.3.2 steps 4 to 7): the N2 SM information for the target gNB. `None`: the
    /// session has no user plane, or is being released.
    fn prepare_handover(&self, ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)>;
    /// UpdateSMContext, hoState PREPARED (step 10): HANDOVER REQUEST ACKNOWLEDGE TRANSFER of the target gNB.
    fn handover_admitted(&self, ue: Ue, psi: PduSessionId, transfer: &[u8])
    -> Result<AdmittedSession, Cause>;
    /// Steps 11 and 12: the UPF buffers, and forwards where the gNBs have no path of their own (all but `direct`). `expected`: the handover
    /// was predicted, so that only tunnels for forwarding are awaited from the UPF.
    fn start_forwarding(
        &self,
        ue: Ue,
        admitted: Vec<AdmittedSession>,
        direct: Vec<PduSessionId>,
        expected: bool,
    ) -> ServiceFuture<'_, Result<Vec<AdmittedSession>, Interrupt>>;
    /// The target of a predicted handover has admitted these sessions: the UPF expects the UE there (Synergy §III-C).
    fn expect_arrival(&self, ue: Ue, admitted: &[AdmittedSession]);
    /// UpdateSMContext, hoState COMPLETED (TS 23.502 §4.9.1.3.3 steps 7 and 8): downlink packets go to the target gNB.
    fn complete_handover(&self, ue: Ue, admitted: &[AdmittedSession]) -> PathUpdates;
    /// Steps 8 to 10: the UPF's answers.
    fn path_updates_answered(&self, ue: Ue, asked: PathUpdates) -> ServiceFuture<'_, Result<(), Interrupt>>;
    /// Step 15, or hoState CANCELLED: the UPF removes its forwarding tunnels.
    fn stop_forwarding(&self, ue: Ue);
    /// Whether the UPF or the gNBs forward packets of any session.
    fn is_forwarding(&self, ue: Ue) -> bool;
    /// The handover has ended: the UPF sends its buffered packets to the serving gNB.
    fn handover_ended(&self, ue: Ue);

    /// UpdateSMContext of an Xn handover (TS 23.502 §4.9.1.2.2 steps 2 to 6, §4.9.1.2.3, §4.9.1.2.4), with PATH SWITCH REQUEST TRANSFERs. `tac`: the
    /// target's tracking area, if it is known.
    fn switch_paths<'a>(
        &'a self,
        ue: Ue,
        items: &'a [PduSessionResourceItem],
        tac: Option<Tac>,
    ) -> ServiceFuture<'a, Result<Vec<SwitchedSession>, Interrupt>>;
    /// Steps 2 and 7: handles the sessions that were not switched; `failed` are those that the target gNB could not set
    /// up.
    fn not_switched(&self, ue: Ue, switched: &[SwitchedSession], failed: &[PduSessionResourceItem]);
    /// PDU SESSION RESOURCE MODIFY INDICATION (TS 38.413 §8.2.5): the gNB moves its end of tunnels.
    fn move_tunnels<'a>(
        &'a self,
        ue: Ue,
        items: &'a [PduSessionResourceItem],
    ) -> ServiceFuture<'a, Result<Vec<MovedTunnel>, Interrupt>>;

    /// The N4 address of each session's UPF, if other SMFs reach it.
    fn session_upfs(&self, ue: Ue) -> Vec<(PduSessionId, IpAddr)>;
    /// Hands these sessions to the SMF at `smf`, each under its CP SEID there (TS 23.502 §4.9.1.3.3 steps 7 to 10). Without `admitted`, the UE stays at its gNB.
    fn hand_over_sessions<'a>(
        &'a self,
        ue: Ue,
        taken: &'a [(PduSessionId, Seid)],
        smf: IpAddr,
        admitted: Option<&'a [AdmittedSession]>,
    ) -> ServiceFuture<'a, Result<Vec<HandedOverSession>, Interrupt>>;
    /// Checks the sessions of a UE that comes from another AMF: slice, data network and UPF must be known here.
    fn take_over_sessions(
        &self,
        ue: Ue,
        sessions: BTreeMap<PduSessionId, Box<SmContext>>,
        upfs: &[(PduSessionId, IpAddr)],
    ) -> TakenOverSessions;
    /// The UE has arrived; its sessions wait until the former SMF has handed them over.
    fn await_sessions(&self, ue: Ue, admitted: &[AdmittedSession]);
    /// The former SMF has handed over the `given` ones of the sessions awaited.
    fn sessions_handed_over(&self, ue: Ue, coming: &[IncomingSession], given: &[HandedOverSession]);
    /// The former SMF does not answer: asks the UPF about each session.
    fn claim_sessions<'a>(
        &'a self,
        ue: Ue,
        coming: &'a [IncomingSession],
        admitted: &'a [AdmittedSession],
    ) -> ServiceFuture<'a, Result<(), Interrupt>>;
    /// The UE's context ends before its sessions were handed over: the UPF deletes those that are this SMF's.
    fn disown_sessions(&self, ue: Ue, coming: &[IncomingSession]);
}
