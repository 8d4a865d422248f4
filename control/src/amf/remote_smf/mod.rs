//! The facade of another vendor's SMF (TS 29.502): the AMF's procedures call it as they call this program's SMF. What an answer of the SMF
//! brings is kept in the [`RemoteSession`], since procedures ask for it at once.
//!
//! The requests of one session leave one after the other, on the session's lane ([`exchange`]); those of a handover and a path switch
//! leave on the lane of the handover, which waits for their answers.

mod exchange;
mod handover;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use whimbrel_ids::{PduSessionId, SNssai, Seid, Tac, Tai};
use whimbrel_nas::ie::MmCause;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork, PduSessionResourceItem};

use super::context_setup::release_session_resources;
use super::pending_setup;
use crate::envelope::Effect;
use crate::input::Input;
use crate::n14::HandedOverSession;
use crate::procedure::{Interrupt, Lane, Procedure, Ue};
use crate::services::ServiceFuture;
use crate::services::nsmf::{
    AdmittedSession, MovedTunnel, N2Outcome, NsmfPduSession, PathUpdates, SmContextCreateData,
    SmContextReleaseData, SmContextStatus, SmContextUpdateData, SwitchedSession, TakenOverSessions,
};
use crate::services::sm_contexts::{
    N2SmKind, NewSmContext, SmContextChange, SmfOperation, SmfRequest, UePlace, UserPlaneChange,
};
use crate::state::{Ambr, IncomingSession, RemoteSession, SessionWork, SmContext, Subscription, UpState};

pub(crate) use exchange::answered_late;
pub(crate) use messages::ordered;

/// Another vendor's SMF, as the AMF calls it.
pub(crate) struct RemoteSmf;

/// Where the UE is.
fn place(ue: Ue) -> UePlace {
    ue.with(|p| {
        let location = &p.amf.location;
        UePlace { tai: location.tai, cell: location.seen.as_ref().map(|seen| seen.cell.clone()) }
    })
}

/// Borrows a session for the length of `f`.
fn with_session<R>(ue: Ue, psi: PduSessionId, f: impl FnOnce(&mut RemoteSession) -> R) -> Option<R> {
    ue.with(|p| p.remote_sessions.get_mut(psi).map(f))
}

/// The sessions for which `which` is true.
fn sessions(ue: Ue, which: impl Fn(&RemoteSession) -> bool) -> Vec<PduSessionId> {
    ue.with(|p| p.remote_sessions.all().filter(|s| which(s)).map(|s| s.psi).collect())
}

/// Sends the SMF a change, after those before it.
fn change(ue: Ue, psi: PduSessionId, change: SmContextChange) {
    exchange::add(ue, psi, SessionWork::Update(SmContextChange { place: place(ue), ..change }.into()));
}

fn tell_n2(ue: Ue, psi: PduSessionId, kind: N2SmKind, transfer: Vec<u8>) {
    change(ue, psi, SmContextChange { n2: Some((kind, transfer)), ..SmContextChange::default() });
}

/// Packets for the UE wait in the UPF from now on.
fn deactivate(ue: Ue, psi: PduSessionId) {
    let is_known = with_session(ue, psi, |s| {
        s.up = UpState::Inactive;
        !s.reference.is_empty()
    });
    if is_known == Some(true) {
        let user_plane = Some(UserPlaneChange::Deactivated);
        change(ue, psi, SmContextChange { user_plane, ..SmContextChange::default() });
    }
}

/// Nsmf_PDUSession_ReleaseSMContext (TS 29.502 §5.2.2.4). Nothing waits for the answer: an SMF that does not get it releases the context when
/// the UE uses the identity again.
fn release(ue: Ue, psi: PduSessionId, at_gnb: bool) {
    let Some(session) = ue.with(|p| p.remote_sessions.remove(psi)) else { return };
    ue.with(|p| {
        let end = Interrupt::Superseded(Procedure::PduSessionReleaseByNetwork);
        p.lanes.interrupt(Lane::Session(psi), end);
    });
    if at_gnb && session.up == UpState::Active {
        release_session_resources(ue, psi, None);
    }
    pending_setup::session_ended(ue, psi);
    if !session.reference.is_empty() {
        let operation = SmfOperation::Release { reference: session.reference, place: place(ue) };
        ue.emit(Effect::SmContext(SmfRequest { supi: session.supi, psi, operation }.into()), None);
    }
}

impl NsmfPduSession for RemoteSmf {
    fn answers_later(&self) -> bool {
        true
    }

    fn create_sm_context(&self, ue: Ue, data: SmContextCreateData, n1: &[u8]) {
        let SmContextCreateData { psi, s_nssai, dnn, existing, emergency } = data;
        let (supi, pei) = ue.with(|p| (p.amf.supi, p.amf.pei));
        let Some(supi) = supi else { return }; // emergency sessions of UEs without a subscriber stay without a session
        release(ue, psi, true); // TS 29.502 §5.2.2.2.1: the identity is used again
        let session = RemoteSession::new((supi, psi), (s_nssai, dnn.clone()), emergency, ue.now());
        ue.with(|p| p.remote_sessions.insert(session));
        let place = place(ue);
        let new = NewSmContext { s_nssai, dnn, existing, emergency, pei, place, n1: n1.to_vec() };
        exchange::add(ue, psi, SessionWork::Create(new.into()));
    }

    fn update_sm_context(&self, ue: Ue, psi: PduSessionId, data: SmContextUpdateData<'_>) {
        match data {
            SmContextUpdateData::N1Sm(n1) => {
                change(ue, psi, SmContextChange { n1: Some(n1.to_vec()), ..SmContextChange::default() });
            }
            SmContextUpdateData::N2Sm { outcome, transfer, serving } => {
                let kind = match outcome {
                    // The SMF would lead the packets to a gNB that the UE has left.
                    N2Outcome::SetUp if !serving => return,
                    N2Outcome::SetUp => N2SmKind::PduResSetupRsp,
                    N2Outcome::SetupFailed => N2SmKind::PduResSetupFail,
                    N2Outcome::Modified => N2SmKind::PduResModRsp,
                    N2Outcome::ModifyFailed => N2SmKind::PduResModFail,
                    N2Outcome::Released => N2SmKind::PduResRelRsp,
                    N2Outcome::Lost => N2SmKind::PduResNtyRel,
                    N2Outcome::GnbLeft => return,
                };
                tell_n2(ue, psi, kind, transfer);
            }
            SmContextUpdateData::Notify(transfer) => tell_n2(ue, psi, N2SmKind::PduResNty, transfer.to_vec()),
            SmContextUpdateData::SecondaryRatUsage(transfer) => {
                tell_n2(ue, psi, N2SmKind::SecondaryRatUsage, transfer.to_vec());
            }
            SmContextUpdateData::Activate | SmContextUpdateData::SetupRequested => {
                messages::activate(ue, psi)
            }
            SmContextUpdateData::Deactivate => deactivate(ue, psi),
        }
    }

    fn release_sm_context(&self, ue: Ue, psi: PduSessionId, data: SmContextReleaseData) {
        release(ue, psi, data != SmContextReleaseData::WithConnection);
    }

    fn sm_contexts(&self, ue: Ue) -> Vec<SmContextStatus> {
        ue.with(|p| {
            let status = |s: &RemoteSession| SmContextStatus {
                psi: s.psi,
                s_nssai: s.s_nssai,
                dnn: s.dnn.clone(),
                emergency: s.emergency,
                active: s.up == UpState::Active,
                can_be_activated: s.up == UpState::Inactive && !s.reference.is_empty(),
                awaited: s.waiting.is_some(),
                being_released: s.releasing,
                leaving: false,
            };
            p.remote_sessions.all().map(status).collect()
        })
    }

    fn session_ids(&self, ue: Ue) -> Vec<PduSessionId> {
        ue.with(|p| p.remote_sessions.all().map(|s| s.psi).collect())
    }

    fn has_user_plane(&self, ue: Ue) -> bool {
        ue.with(|p| p.remote_sessions.all().any(|s| s.up != UpState::Inactive))
    }

    fn is_coming_up(&self, ue: Ue, psi: PduSessionId) -> bool {
        let lane = Lane::Session(psi);
        ue.with(|p| {
            let begun = p.remote_sessions.get(psi).is_some_and(|s| s.up != UpState::Active)
                && p.lanes.procedure(lane).is_some();
            // A setup that waits for the handover itself does not count.
            let held = [Input::HandoverOver, Input::ContextSetUp, Input::SessionSettled];
            begun && !held.iter().any(|i| p.lanes.awaits(lane, i))
        })
    }

    fn sessions_with_user_plane(&self, ue: Ue) -> Vec<PduSessionId> {
        sessions(ue, |s| s.up != UpState::Inactive)
    }

    /// The session AMBRs are the SMF's: the subscribed UE-AMBR stands for their sum.
    fn ue_ambr(&self, ue: Ue, _: &[PduSessionId]) -> Option<Ambr> {
        ue.with(|p| p.subscription().map(|s| s.ue_ambr))
    }

    /// The areas of data networks are the SMF's to check.
    fn barred(&self, _: Ue, _: PduSessionId, _: Tac) -> Option<MmCause> {
        None
    }

    fn needs_ue(&self, ue: Ue) -> bool {
        ue.with(|p| p.remote_sessions.all().any(|s| s.waiting.is_some()))
    }

    fn paging_priority(&self, ue: Ue) -> Option<u8> {
        ue.with(|p| p.remote_sessions.all().filter_map(|s| s.waiting.as_ref()?.priority).min())
    }

    fn paging_area(&self, ue: Ue) -> Vec<Tai> {
        ue.with(|p| p.amf.location.registration_area.to_vec())
    }

    fn paging_deferred(&self, _: Ue, _: &'static str) {}

    fn paging_failed(&self, ue: Ue, _: &'static str) {
        for psi in sessions(ue, |s| s.waiting.is_some()) {
            messages::not_reached(ue, psi);
        }
    }

    /// The SMF has a subscription of its own to changes.
    fn subscription_changed(&self, _: Ue, _: &Subscription) {}

    fn n2_setup_info(&self, ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)> {
        with_session(ue, psi, |s| (s.s_nssai, s.setup.clone())).filter(|(_, setup)| !setup.is_empty())
    }

    fn prepare_upfs<'a>(
        &'a self,
        ue: Ue,
        sessions: &'a [PduSessionId],
        _: Tac,
    ) -> ServiceFuture<'a, Result<Vec<PduSessionId>, Interrupt>> {
        Box::pin(handover::prepare(ue, sessions))
    }

    fn changes_upf(&self, _: Ue, _: &[PduSessionId], _: Tac) -> bool {
        true
    }

    fn prepare_handover(&self, ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)> {
        let is_active = with_session(ue, psi, |s| s.up == UpState::Active && !s.releasing);
        if is_active == Some(true) { self.n2_setup_info(ue, psi) } else { None }
    }

    fn handover_admitted(
        &self,
        ue: Ue,
        psi: PduSessionId,
        transfer: &[u8],
    ) -> Result<AdmittedSession, Cause> {
        handover::admitted(ue, psi, transfer)
    }

    fn start_forwarding(
        &self,
        ue: Ue,
        admitted: Vec<AdmittedSession>,
        _: Vec<PduSessionId>,
        _: bool,
    ) -> ServiceFuture<'_, Result<Vec<AdmittedSession>, Interrupt>> {
        Box::pin(handover::prepared(ue, admitted))
    }

    fn expect_arrival(&self, _: Ue, _: &[AdmittedSession]) {}

    fn complete_handover(&self, ue: Ue, admitted: &[AdmittedSession]) -> PathUpdates {
        handover::complete(ue, admitted)
    }

    fn path_updates_answered(&self, ue: Ue, asked: PathUpdates) -> ServiceFuture<'_, Result<(), Interrupt>> {
        Box::pin(handover::completed(ue, asked))
    }

    /// The SMF ends forwarding by a timer of its own (TS 23.502 §4.9.1.3.3 step 15).
    fn stop_forwarding(&self, ue: Ue) {
        ue.with(|p| p.remote_sessions.all_mut().for_each(|s| s.forwarding = false));
    }

    /// The AMF knows neither whether the SMF's UPF forwards nor when the old path has ended: an SMF may answer before its UPF does.
    fn is_forwarding(&self, ue: Ue) -> bool {
        ue.with(|p| p.remote_sessions.all().any(|s| s.forwarding))
    }

    fn handover_ended(&self, ue: Ue) {
        handover::cancel(ue);
    }

    fn switch_paths<'a>(
        &'a self,
        ue: Ue,
        items: &'a [PduSessionResourceItem],
        _: Option<Tac>,
    ) -> ServiceFuture<'a, Result<Vec<SwitchedSession>, Interrupt>> {
        Box::pin(handover::switch_paths(ue, items))
    }

    fn not_switched(&self, ue: Ue, switched: &[SwitchedSession], failed: &[PduSessionResourceItem]) {
        handover::not_switched(ue, switched, failed);
    }

    fn move_tunnels<'a>(
        &'a self,
        ue: Ue,
        items: &'a [PduSessionResourceItem],
    ) -> ServiceFuture<'a, Result<Vec<MovedTunnel>, Interrupt>> {
        Box::pin(handover::move_tunnels(ue, items))
    }

    // Sessions of another SMF do not go to another AMF: the configuration refuses both at once.

    fn session_upfs(&self, _: Ue) -> Vec<(PduSessionId, IpAddr)> {
        Vec::new()
    }

    fn hand_over_sessions<'a>(
        &'a self,
        _: Ue,
        _: &'a [(PduSessionId, Seid)],
        _: IpAddr,
        _: Option<&'a [AdmittedSession]>,
    ) -> ServiceFuture<'a, Result<Vec<HandedOverSession>, Interrupt>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn take_over_sessions(
        &self,
        _: Ue,
        sessions: BTreeMap<PduSessionId, Box<SmContext>>,
        _: &[(PduSessionId, IpAddr)],
    ) -> TakenOverSessions {
        let refuse = |psi| (psi, CauseRadioNetwork::UnknownPduSessionId.into());
        let refused = sessions.into_keys().map(refuse).collect();
        TakenOverSessions { sessions: BTreeMap::new(), coming: Vec::new(), refused }
    }

    fn await_sessions(&self, _: Ue, _: &[AdmittedSession]) {}

    fn sessions_handed_over(&self, _: Ue, _: &[IncomingSession], _: &[HandedOverSession]) {}

    fn claim_sessions<'a>(
        &'a self,
        _: Ue,
        _: &'a [IncomingSession],
        _: &'a [AdmittedSession],
    ) -> ServiceFuture<'a, Result<(), Interrupt>> {
        Box::pin(async { Ok(()) })
    }

    fn disown_sessions(&self, _: Ue, _: &[IncomingSession]) {}
}
