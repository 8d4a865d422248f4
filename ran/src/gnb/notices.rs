//! Notifications of the gNB and of the AMF: TS 38.413 §8.2.4, §8.2.5 sessions; §8.3.5 RRC inactive; §8.7.4 NG
//! RESET; §8.7.7, §8.7.8 overload; §8.9 warnings; §8.12 location.

use whimbrel_ids::{PduSessionId, Qfi, Teid};
use whimbrel_ngap::{
    AssociatedQosFlowItem, BroadcastCompletedAreaList, EventType, LocationReport, LocationReportingControl,
    LocationReportingRequestType, NgReset, NotificationCause, NrCgi, OverloadAction, OverloadResponse,
    OverloadStart, PduSessionResourceItem, PduSessionResourceModifyConfirm,
    PduSessionResourceModifyConfirmTransfer, PduSessionResourceModifyIndication,
    PduSessionResourceModifyIndicationTransfer, PduSessionResourceNotify,
    PduSessionResourceNotifyReleasedTransfer, PduSessionResourceNotifyTransfer, PwsCancelRequest,
    PwsCancelResponse, QosFlowNotifyItem, QosFlowPerTnlInformation, ResetType, RrcEstablishmentCause,
    RrcInactiveTransitionReport, RrcState, UeAssociatedLogicalNgConnectionItem, WriteReplaceWarningRequest,
    WriteReplaceWarningResponse,
};
use whimbrel_ngap::{Cause, CauseRadioNetwork};

use super::config::cell_of;
use super::tunnel::{GnbSession, GnbTunnel};
use super::{Event, Gnb, Output, ReceivedMessage, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::UeId;

impl Gnb {
    /// PDU SESSION RESOURCE NOTIFY (§8.2.4): the guarantee of a GBR flow is no longer fulfilled, or is again.
    pub(super) fn notify_qos_flow(
        &mut self,
        ue: UeId,
        session: PduSessionId,
        qfi: Qfi,
        fulfilled: bool,
        out: &mut Outbox<Output>,
    ) {
        let cause = if fulfilled { NotificationCause::Fulfilled } else { NotificationCause::NotFulfilled };
        let mut transfer = PduSessionResourceNotifyTransfer::new();
        transfer.qos_flow_notify_list = vec![QosFlowNotifyItem::new(qfi, cause)];
        let Some(context) = self.of_ue(ue) else { return };
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let mut m = PduSessionResourceNotify::new(amf_ue_ngap_id, context.ran_ue_ngap_id);
        m.pdu_session_resource_notify_list = vec![PduSessionResourceItem::new(session, transfer.to_vec())];
        m.user_location_information = Some(self.config.location());
        self.send(context.stream, &m.into(), out);
    }

    /// PDU SESSION RESOURCE NOTIFY (§8.2.4): the gNB has released a session.
    pub(super) fn release_session(&mut self, ue: UeId, session: PduSessionId, out: &mut Outbox<Output>) {
        let Some(context) = self.of_ue(ue) else { return };
        let (id, stream) = (context.ran_ue_ngap_id, context.stream);
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        if !self.take_down(id, session, out) {
            return;
        }
        let cause = Cause::RadioNetwork(CauseRadioNetwork::RadioResourcesNotAvailable);
        let transfer = PduSessionResourceNotifyReleasedTransfer::new(cause).to_vec();
        let mut m = PduSessionResourceNotify::new(amf_ue_ngap_id, id);
        m.pdu_session_resource_released_list_not = vec![PduSessionResourceItem::new(session, transfer)];
        m.user_location_information = Some(self.config.location());
        self.send(stream, &m.into(), out);
    }

    /// PDU SESSION RESOURCE MODIFY INDICATION (§8.2.5): changes the downlink tunnels of all sessions of a UE.
    pub(super) fn indicate_modification(&mut self, ue: UeId, out: &mut Outbox<Output>) {
        let Some(context) = self.of_ue(ue).filter(|c| !c.sessions.is_empty()) else { return };
        let (id, stream) = (context.ran_ue_ngap_id, context.stream);
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let sessions: Vec<PduSessionId> = context.sessions.iter().map(|s| s.id).collect();
        let mut items = Vec::new();
        for session in sessions {
            let Some(teid) = self.tunnels.insert(|_| GnbTunnel::N3(id.0, session)) else { continue };
            let tunnel = self.tunnel(Teid(teid));
            let context = self.contexts.get_mut(id.0);
            let Some(s) = context.and_then(|c| c.sessions.iter_mut().find(|s| s.id == session)) else {
                continue;
            };
            s.next_downlink_teid = Some(Teid(teid));
            let flows = s.flows.iter().map(|f| AssociatedQosFlowItem::new(f.qfi)).collect();
            let flows = QosFlowPerTnlInformation::new(tunnel, flows);
            let transfer = PduSessionResourceModifyIndicationTransfer::new(flows).to_vec();
            items.push(PduSessionResourceItem::new(session, transfer));
        }
        let mut m = PduSessionResourceModifyIndication::new(amf_ue_ngap_id, id, items);
        m.user_location_information = Some(self.config.location());
        self.send(stream, &m.into(), out);
    }

    /// PDU SESSION RESOURCE MODIFY CONFIRM (§8.2.5.2).
    pub(super) fn handle_modify_confirm(
        &mut self,
        at: ReceivedMessage,
        m: &PduSessionResourceModifyConfirm,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let ue = context.ue;
        let asked: Vec<PduSessionId> =
            context.sessions.iter().filter(|s| s.next_downlink_teid.is_some()).map(|s| s.id).collect();
        if asked.is_empty() {
            return violation(Some(ue), Violation::Unexpected("PduSessionResourceModifyConfirm"), out);
        }
        let mut confirmed = Vec::new();
        for item in &m.pdu_session_resource_modify_list_mod_cfm {
            let id = item.pdu_session_id;
            match PduSessionResourceModifyConfirmTransfer::decode(&item.transfer) {
                Ok(transfer) => match self.peer(&transfer.ul_ngu_up_tnl_information) {
                    Some(uplink) => confirmed.push((id, uplink)),
                    None => violation(Some(ue), Violation::UnusableTunnel(id), out),
                },
                Err(e) => violation(Some(ue), Violation::Transfer(id, e), out),
            }
        }
        let failed = &m.pdu_session_resource_failed_to_modify_list_mod_cfm;
        let mut gone = Vec::new();
        for id in asked {
            let confirmed = confirmed.iter().find(|(c, _)| *c == id);
            if confirmed.is_some() == failed.iter().any(|f| f.pdu_session_id == id) {
                violation(Some(ue), Violation::SessionUnaccounted(id), out);
            }
            let Some(session) = self
                .contexts
                .get_mut(m.ran_ue_ngap_id.0)
                .and_then(|c| c.sessions.iter_mut().find(|s| s.id == id))
            else {
                continue;
            };
            // A session that could not be modified stays as it was.
            gone.extend(complete_tunnel_change(session, confirmed.map(|(_, uplink)| *uplink)));
        }
        gone.into_iter().for_each(|teid: Teid| {
            self.tunnels.remove(teid.0);
        });
        event(Event::ModificationConfirmed(ue), out);
    }

    /// NG RESET of some connections (§8.7.4.2.2).
    pub(super) fn reset_connections(
        &mut self,
        now: whimbrel_ids::Instant,
        ues: &[UeId],
        out: &mut Outbox<Output>,
    ) {
        let cause = Cause::RadioNetwork(CauseRadioNetwork::Unspecified);
        let mut items = Vec::new();
        for ue in ues {
            let Some(id) = self.of_ue(*ue).map(|c| c.ran_ue_ngap_id) else { continue };
            let Some(context) = self.drop_context(now, id, out) else { continue };
            let mut item = UeAssociatedLogicalNgConnectionItem::new();
            item.amf_ue_ngap_id = context.amf_ue_ngap_id;
            item.ran_ue_ngap_id = Some(id);
            items.push(item);
            event(Event::ContextReleased(*ue, cause.clone()), out);
        }
        if !items.is_empty() {
            self.send(0, &NgReset::new(cause, ResetType::PartOfNgInterface(items)).into(), out);
        }
    }

    /// RRC INACTIVE TRANSITION REPORT (§8.3.5), if requested.
    pub(super) fn report_inactive(&self, ue: UeId, inactive: bool, out: &mut Outbox<Output>) {
        let Some(context) = self.of_ue(ue).filter(|c| c.reports_inactive) else { return };
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let mut m = RrcInactiveTransitionReport::new(amf_ue_ngap_id, context.ran_ue_ngap_id);
        m.rrc_state = Some(if inactive { RrcState::Inactive } else { RrcState::Connected });
        m.user_location_information = Some(self.config.location());
        self.send(context.stream, &m.into(), out);
    }

    /// LOCATION REPORTING CONTROL (§8.12.1).
    pub(super) fn location_control(
        &mut self,
        at: ReceivedMessage,
        m: LocationReportingControl,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let Some(requested) = m.location_reporting_request_type else { return };
        match requested.event_type {
            EventType::Direct => {
                let id = context.ran_ue_ngap_id;
                self.report_location(id, requested, out);
            }
            EventType::StopChangeOfServeCell
            | EventType::StopUePresenceInAreaOfInterest
            | EventType::CancelLocationReportingForTheUe => context.location_reporting = None,
            _ => context.location_reporting = Some(requested),
        }
    }

    /// LOCATION REPORT (§8.12.3).
    pub(super) fn report_location(
        &self,
        id: whimbrel_ids::RanUeNgapId,
        requested: LocationReportingRequestType,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let mut m = LocationReport::new(amf_ue_ngap_id, id);
        m.user_location_information = Some(self.config.location());
        m.location_reporting_request_type = Some(requested);
        self.send(context.stream, &m.into(), out);
    }

    /// OVERLOAD START and STOP (§8.7.7, §8.7.8). Its slice lists do not apply: these UEs name no slice to their gNB (NSSAI
    /// inclusion mode D, TS 24.501 §4.6.2.3).
    pub(super) fn handle_overload(&mut self, m: Option<OverloadStart>, out: &mut Outbox<Output>) {
        event(Event::Overload(m.is_some()), out);
        self.overload = m.and_then(|m| {
            let OverloadResponse::OverloadAction(action) = m.amf_overload_response?;
            let percent = m.amf_traffic_load_reduction_indication.unwrap_or(100);
            Some(Overload { action, percent, owed: 0 })
        });
    }

    /// WRITE-REPLACE WARNING (§8.9.1): broadcast in the one cell.
    pub(super) fn broadcast_warning(&self, m: &WriteReplaceWarningRequest, out: &mut Outbox<Output>) {
        let mut answer = WriteReplaceWarningResponse::new(m.message_identifier, m.serial_number);
        let cell = NrCgi::new(self.config.id.plmn, cell_of(self.config.id));
        answer.broadcast_completed_area_list =
            Some(BroadcastCompletedAreaList::CellIdBroadcastNr(vec![cell]));
        self.send(0, &answer.into(), out);
        event(Event::Warning { message: m.message_identifier, serial: m.serial_number, on_air: true }, out);
    }

    /// PWS CANCEL (§8.9.2).
    pub(super) fn cancel_warning(&self, m: &PwsCancelRequest, out: &mut Outbox<Output>) {
        let answer = PwsCancelResponse::new(m.message_identifier, m.serial_number);
        self.send(0, &answer.into(), out);
        event(Event::Warning { message: m.message_identifier, serial: m.serial_number, on_air: false }, out);
    }
}

/// Switches a session to its new tunnel if that was confirmed, or keeps the old one; returns the unused
/// tunnel.
fn complete_tunnel_change(
    session: &mut GnbSession,
    uplink: Option<(core::net::IpAddr, Teid)>,
) -> Option<Teid> {
    let next = session.next_downlink_teid.take()?;
    match uplink {
        Some(uplink) => {
            session.uplink = uplink;
            Some(core::mem::replace(&mut session.downlink_teid, next))
        }
        None => Some(next),
    }
}

/// The traffic reduction requested by an overloaded AMF.
#[derive(Debug)]
pub(super) struct Overload {
    action: OverloadAction,
    /// The percentage of the action's connections to reject.
    percent: u8,
    /// Accumulated hundredths of connections to reject.
    owed: u8,
}

impl Overload {
    /// Whether a connection is rejected. Rejections are spaced evenly, so that the percentage is met without randomness.
    pub(super) fn is_barred(&mut self, cause: RrcEstablishmentCause) -> bool {
        if !applies_to(self.action, cause) {
            return false;
        }
        self.owed += self.percent;
        let barred = self.owed >= 100;
        if barred {
            self.owed -= 100;
        }
        barred
    }
}

/// Whether an action applies to connections with this cause (§8.7.7.2).
fn applies_to(action: OverloadAction, cause: RrcEstablishmentCause) -> bool {
    use OverloadAction as A;
    use RrcEstablishmentCause as C;
    let data = matches!(cause, C::MoData | C::MoSms | C::MoVideoCall | C::MoVoiceCall);
    let spared = matches!(cause, C::Emergency | C::MtAccess);
    let high = matches!(cause, C::HighPriorityAccess | C::MpsPriorityAccess | C::McsPriorityAccess);
    match action {
        A::RejectNonEmergencyMoDt => data,
        A::RejectRrcCrSignalling => data || cause == C::MoSignalling,
        A::PermitEmergencySessionsAndMobileTerminatedServicesOnly => !spared,
        A::PermitHighPrioritySessionsAndMobileTerminatedServicesOnly => !spared && !high,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OverloadAction as A;
    use RrcEstablishmentCause as C;

    const CAUSES: [C; 10] = [
        C::Emergency,
        C::HighPriorityAccess,
        C::MtAccess,
        C::MoSignalling,
        C::MoData,
        C::MoVoiceCall,
        C::MoVideoCall,
        C::MoSms,
        C::MpsPriorityAccess,
        C::McsPriorityAccess,
    ];

    #[test] // TS 38.413 §8.7.7.2: what each action is about
    fn each_action_names_its_causes() {
        let data = [C::MoData, C::MoVoiceCall, C::MoVideoCall, C::MoSms];
        for (action, named) in [
            (A::RejectNonEmergencyMoDt, data.to_vec()),
            (A::RejectRrcCrSignalling, [&[C::MoSignalling], &data[..]].concat()),
            (
                A::PermitEmergencySessionsAndMobileTerminatedServicesOnly,
                [
                    &[C::HighPriorityAccess, C::MoSignalling],
                    &data[..],
                    &[C::MpsPriorityAccess, C::McsPriorityAccess],
                ]
                .concat(),
            ),
            (
                A::PermitHighPrioritySessionsAndMobileTerminatedServicesOnly,
                [&[C::MoSignalling], &data[..]].concat(),
            ),
        ] {
            let found: Vec<C> = CAUSES.into_iter().filter(|c| applies_to(action, *c)).collect();
            assert_eq!(found, named, "{action:?}");
        }
    }

    #[test] // TS 38.413 §8.7.7.2: the part that is to be reduced
    fn the_part_that_is_asked_for_is_kept_away() {
        for percent in [1, 33, 50, 99, 100] {
            let mut overload = Overload { action: A::RejectRrcCrSignalling, percent, owed: 0 };
            let mut barred = 0;
            for _ in 0..1000 {
                assert!(!overload.is_barred(C::MtAccess) && !overload.is_barred(C::Emergency));
                barred += u32::from(overload.is_barred(C::MoData));
            }
            assert_eq!(barred, u32::from(percent) * 10);
        }
    }
}
