//! The SMF's service operations (TS 29.502).

use std::collections::BTreeMap;
use std::net::IpAddr;

use whimbrel_ids::{PduSessionId, SNssai, Seid, Tac, Tai};
use whimbrel_nas::ie::MmCause;
use whimbrel_ngap::ie::{Cause, PduSessionResourceItem};

use super::{
    area, establishment, handover, intermediate_upf, modification, modify_indication, notify, operation,
    path_switch, policy_change, release, relocation, secondary_rat, up_connection,
};
use crate::n14::HandedOverSession;
use crate::procedure::{Interrupt, Lane, Ue};
use crate::services::ServiceFuture;
use crate::services::nsmf::{
    AdmittedSession, MovedTunnel, NsmfPduSession, PathUpdates, SmContextCreateData, SmContextReleaseData,
    SmContextStatus, SmContextUpdateData, SwitchedSession, TakenOverSessions,
};
use crate::state::{Ambr, IncomingSession, SmContext, Subscription};

/// The SMF's services for the AMF.
pub(crate) struct Smf;

impl NsmfPduSession for Smf {
    fn create_sm_context(&self, ue: Ue, data: SmContextCreateData, n1: &[u8]) {
        establishment::create_sm_context(ue, data, n1);
    }

    fn update_sm_context(&self, ue: Ue, psi: PduSessionId, data: SmContextUpdateData<'_>) {
        match data {
            SmContextUpdateData::N1Sm(n1) => super::n1_message(ue, psi, n1),
            SmContextUpdateData::N2Sm { outcome, transfer, serving } => {
                super::n2_information(ue, psi, outcome, transfer, serving);
            }
            SmContextUpdateData::Notify(transfer) => notify::notified(ue, psi, transfer),
            SmContextUpdateData::SecondaryRatUsage(transfer) => {
                secondary_rat::secondary_rat_usage(ue, psi, transfer);
            }
            SmContextUpdateData::Activate => up_connection::reactivate(ue, psi),
            SmContextUpdateData::SetupRequested => up_connection::asked_for(ue, psi),
            SmContextUpdateData::Deactivate => up_connection::deactivate(ue.on(Lane::Session(psi)), psi),
        }
    }

    fn release_sm_context(&self, ue: Ue, psi: PduSessionId, data: SmContextReleaseData) {
        match data {
            SmContextReleaseData::Local => release::release_locally(ue, psi),
            SmContextReleaseData::WithConnection => release::forget(ue, psi),
            SmContextReleaseData::Command(cause) => release::withdraw(ue, psi, cause),
        }
    }

    fn sm_contexts(&self, ue: Ue) -> Vec<SmContextStatus> {
        ue.with(|p| {
            let status = |s: &SmContext| SmContextStatus {
                psi: s.psi,
                s_nssai: s.s_nssai,
                dnn: s.dnn.clone(),
                emergency: s.emergency,
                active: up_connection::is_active(s),
                can_be_activated: up_connection::can_be_activated(s),
                awaited: s.awaited,
                being_released: path_switch::is_releasing(p.lanes.procedure(Lane::Session(s.psi))),
                leaving: s.is_leaving(),
            };
            p.sessions.values().map(|s| status(s)).collect()
        })
    }

    fn session_ids(&self, ue: Ue) -> Vec<PduSessionId> {
        ue.with(|p| p.sessions.keys().copied().collect())
    }

    fn has_user_plane(&self, ue: Ue) -> bool {
        ue.with(|p| super::any_active(p))
    }

    fn is_coming_up(&self, ue: Ue, psi: PduSessionId) -> bool {
        up_connection::is_coming_up(ue, psi)
    }

    fn sessions_with_user_plane(&self, ue: Ue) -> Vec<PduSessionId> {
        up_connection::with_user_plane(ue)
    }

    fn ue_ambr(&self, ue: Ue, coming: &[PduSessionId]) -> Option<Ambr> {
        ue.with(|p| super::aggregate(p, coming))
    }

    fn barred(&self, ue: Ue, psi: PduSessionId, tac: Tac) -> Option<MmCause> {
        let config = ue.config();
        ue.with(|p| area::barred(p, p.sessions.get(&psi)?, &config, tac))
    }

    fn needs_ue(&self, ue: Ue) -> bool {
        ue.with(|p| up_connection::awaited(p) || modification::has_pending_change(p))
    }

    fn paging_priority(&self, ue: Ue) -> Option<u8> {
        ue.with(|p| up_connection::awaited_priority(p))
    }

    fn paging_area(&self, ue: Ue) -> Vec<Tai> {
        area::where_awaited(ue)
    }

    fn paging_deferred(&self, ue: Ue, why: &'static str) {
        operation::deferred(ue, why);
    }

    fn paging_failed(&self, ue: Ue, why: &'static str) {
        operation::deferred(ue, why);
        up_connection::give_up_waiting(ue);
    }

    fn subscription_changed(&self, ue: Ue, former: &Subscription) {
        policy_change::subscription_changed(ue, former);
    }

    fn n2_setup_info(&self, ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)> {
        super::n2_setup_info(ue, psi)
    }

    fn prepare_upfs<'a>(
        &'a self,
        ue: Ue,
        sessions: &'a [PduSessionId],
        tac: Tac,
    ) -> ServiceFuture<'a, Result<Vec<PduSessionId>, Interrupt>> {
        Box::pin(async move {
            let sessions: Vec<_> = sessions.iter().map(|psi| (*psi, None)).collect();
            intermediate_upf::prepare(ue, &sessions, tac).await
        })
    }

    fn changes_upf(&self, ue: Ue, sessions: &[PduSessionId], tac: Tac) -> bool {
        intermediate_upf::changes(ue, sessions, tac)
    }

    fn prepare_handover(&self, ue: Ue, psi: PduSessionId) -> Option<(SNssai, Vec<u8>)> {
        handover::handover_required(ue, psi)
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
        direct: Vec<PduSessionId>,
        expected: bool,
    ) -> ServiceFuture<'_, Result<Vec<AdmittedSession>, Interrupt>> {
        Box::pin(handover::start_forwarding(ue, admitted, direct, expected))
    }

    fn expect_arrival(&self, ue: Ue, admitted: &[AdmittedSession]) {
        admitted.iter().for_each(|s| handover::expect_arrival(ue, s));
    }

    fn complete_handover(&self, ue: Ue, admitted: &[AdmittedSession]) -> PathUpdates {
        handover::request_path_updates(ue, admitted)
    }

    fn path_updates_answered(&self, ue: Ue, asked: PathUpdates) -> ServiceFuture<'_, Result<(), Interrupt>> {
        Box::pin(handover::paths_switched(ue, asked))
    }

    fn stop_forwarding(&self, ue: Ue) {
        handover::stop_forwarding(ue);
    }

    fn is_forwarding(&self, ue: Ue) -> bool {
        handover::is_forwarding(ue)
    }

    fn handover_ended(&self, ue: Ue) {
        handover::handover_ended(ue);
    }

    fn switch_paths<'a>(
        &'a self,
        ue: Ue,
        items: &'a [PduSessionResourceItem],
        tac: Option<Tac>,
    ) -> ServiceFuture<'a, Result<Vec<SwitchedSession>, Interrupt>> {
        Box::pin(path_switch::switch_paths(ue, items, tac))
    }

    fn not_switched(&self, ue: Ue, switched: &[SwitchedSession], failed: &[PduSessionResourceItem]) {
        path_switch::not_switched(ue, switched, failed);
    }

    fn move_tunnels<'a>(
        &'a self,
        ue: Ue,
        items: &'a [PduSessionResourceItem],
    ) -> ServiceFuture<'a, Result<Vec<MovedTunnel>, Interrupt>> {
        Box::pin(modify_indication::move_tunnels(ue, items))
    }

    fn session_upfs(&self, ue: Ue) -> Vec<(PduSessionId, IpAddr)> {
        relocation::upfs(ue)
    }

    fn hand_over_sessions<'a>(
        &'a self,
        ue: Ue,
        taken: &'a [(PduSessionId, Seid)],
        smf: IpAddr,
        admitted: Option<&'a [AdmittedSession]>,
    ) -> ServiceFuture<'a, Result<Vec<HandedOverSession>, Interrupt>> {
        Box::pin(relocation::hand_over_sessions(ue, taken, smf, admitted))
    }

    fn take_over_sessions(
        &self,
        ue: Ue,
        sessions: BTreeMap<PduSessionId, Box<SmContext>>,
        upfs: &[(PduSessionId, IpAddr)],
    ) -> TakenOverSessions {
        relocation::take_over(ue, sessions, upfs)
    }

    fn await_sessions(&self, ue: Ue, admitted: &[AdmittedSession]) {
        relocation::await_sessions(ue, admitted);
    }

    fn sessions_handed_over(&self, ue: Ue, coming: &[IncomingSession], given: &[HandedOverSession]) {
        relocation::came(ue, coming, given);
    }

    fn claim_sessions<'a>(
        &'a self,
        ue: Ue,
        coming: &'a [IncomingSession],
        admitted: &'a [AdmittedSession],
    ) -> ServiceFuture<'a, Result<(), Interrupt>> {
        Box::pin(relocation::claim(ue, coming, admitted))
    }

    fn disown_sessions(&self, ue: Ue, coming: &[IncomingSession]) {
        relocation::disown(ue, coming);
    }
}
