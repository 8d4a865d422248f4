//! N2 handover: TS 38.413 §8.4.1 to §8.4.3, §8.4.5 to §8.4.7; TS 23.502 §4.9.1.3.

use core::net::IpAddr;

use whimbrel_ids::{AmfUeNgapId, Instant, PduSessionId, RanUeNgapId, Teid};
use whimbrel_ngap::{
    Cause, CauseRadioNetwork, DataForwardingAccepted, DirectForwardingPathAvailability,
    DownlinkRanStatusTransfer, DownlinkUeAssociatedNrppaTransport, EarlyHandover, GlobalRanNodeId,
    HandoverCancel, HandoverCancelAcknowledge, HandoverCommand, HandoverCommandTransfer, HandoverFailure,
    HandoverNotify, HandoverPreparationFailure, HandoverRequest, HandoverRequestAcknowledge,
    HandoverRequestAcknowledgeTransfer, HandoverRequired, HandoverRequiredTransfer,
    HandoverResourceAllocationUnsuccessfulTransfer, HandoverType, Message, PduSessionResourceItem,
    PduSessionResourceSetupItemHoReq, QosFlowItemWithDataForwarding, TargetId, TargetRanNodeId,
    UplinkRanStatusTransfer, UplinkUeAssociatedNrppaTransport,
};

use super::container::{self, RAN_STATUS, TargetParameters};
use super::handover::{Handover, HandoverOrigin};
use super::keys::Keys;
use super::pdu_session::{RefusedSetup, RequestedSession};
use super::tunnel::GnbSession;
use super::{Event, Gnb, Neighbour, Output, ReceivedMessage, Via, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::UeId;

impl From<PduSessionResourceSetupItemHoReq> for RequestedSession {
    fn from(item: PduSessionResourceSetupItemHoReq) -> Self {
        let transfer = item.handover_request_transfer;
        Self { id: item.pdu_session_id, nas: None, s_nssai: item.s_nssai, transfer }
    }
}

impl Gnb {
    /// Source: HANDOVER REQUIRED (§8.4.1.2).
    pub(super) fn handover_required(
        &mut self,
        now: Instant,
        id: RanUeNgapId,
        to: Neighbour,
        out: &mut Outbox<Output>,
    ) {
        let (Some(m), Some(context)) = (self.required(id, to), self.contexts.get(id.0)) else { return };
        let asked = context.sessions.iter().map(|s| s.id).collect();
        self.send(context.stream, &m.into(), out);
        let until = now + self.config.handover_preparation;
        self.set_handover(id, Handover::Preparing { via: Via::N2, to, until, asked });
    }

    /// HANDOVER REQUIRED for a UE.
    fn required(&self, id: RanUeNgapId, to: Neighbour) -> Option<HandoverRequired> {
        let context = self.contexts.get(id.0)?;
        let direct =
            self.config.direct_forwarding.then_some(DirectForwardingPathAvailability::DirectPathAvailable);
        let mut transfer = HandoverRequiredTransfer::new();
        transfer.direct_forwarding_path_availability = direct;
        let item = |s: &GnbSession| PduSessionResourceItem::new(s.id, transfer.to_vec());
        let target = TargetRanNodeId::new(GlobalRanNodeId::GlobalGnbId(to.id), to.tai);
        let mut m = HandoverRequired::new(
            context.amf_ue_ngap_id?,
            id,
            HandoverType::Intra5gs,
            Cause::RadioNetwork(CauseRadioNetwork::HandoverDesirableForRadioReason),
            TargetId::TargetRanNodeId(target),
            context.sessions.iter().map(item).collect(),
            container::source_to_target(self.config.id, to.id, &context.sessions, true),
        );
        m.direct_forwarding_path_availability = direct;
        Some(m)
    }

    /// NRPPa transport: a cooperating gNB hands its container for a predicted target over early ([`EarlyHandover`]). It begins no handover.
    pub(super) fn nrppa(
        &mut self,
        at: ReceivedMessage,
        m: &DownlinkUeAssociatedNrppaTransport,
        out: &mut Outbox<Output>,
    ) {
        let early = self.config.hands_over_early;
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (stream, sessions) = (context.stream, !context.sessions.is_empty());
        let free = context.set_up && matches!(context.handover, Handover::None);
        let asked = EarlyHandover::read(&m.nrppa_pdu).filter(|_| m.routing_id == EarlyHandover::ROUTING_ID);
        let Some(EarlyHandover::Ask { gnb: id, tai }) = asked.filter(|_| early && free && sessions) else {
            return;
        };
        let Some(required) = self.required(m.ran_ue_ngap_id, Neighbour { id, tai }) else { return };
        let mut octets = Vec::new();
        Message::from(required).encode(&mut octets);
        let pdu = EarlyHandover::Required(octets).to_octets();
        let routing_id = m.routing_id.clone();
        let answer =
            UplinkUeAssociatedNrppaTransport::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id, routing_id, pdu);
        self.send(stream, &answer.into(), out);
    }

    /// Source: HANDOVER COMMAND (§8.4.1.2).
    pub(super) fn handover_command(
        &mut self,
        now: Instant,
        at: ReceivedMessage,
        m: &HandoverCommand,
        out: &mut Outbox<Output>,
    ) {
        let cancel = self.faults.cancel_at_command;
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (ue, id, stream) = (context.ue, m.ran_ue_ngap_id, context.stream);
        let (to, asked) = match &context.handover {
            Handover::Preparing { via: Via::N2, to, asked, .. } => (*to, asked.clone()),
            // It crossed the cancellation.
            Handover::Cancelling { .. } => return,
            _ => return violation(Some(ue), Violation::Unexpected("HandoverCommand"), out),
        };
        if cancel {
            let cause = Cause::RadioNetwork(CauseRadioNetwork::HandoverCancelled);
            return self.send_cancel(now, id, cause, out);
        }
        let Some(command) = TargetParameters::of_container(&m.target_to_source_transparent_container) else {
            self.set_handover(id, Handover::None);
            return violation(Some(ue), Violation::ContainerAltered, out);
        };
        let admitted: Vec<_> = m
            .pdu_session_resource_handover_list
            .iter()
            .map(|item| (item.pdu_session_id, self.forwarding_of(ue, item, out)))
            .collect();
        let released = &m.pdu_session_resource_to_release_list_ho_cmd;
        for id in asked {
            let moves = admitted.iter().any(|(a, _)| *a == id);
            if moves == released.iter().any(|r| r.pdu_session_id == id) {
                violation(Some(ue), Violation::SessionUnaccounted(id), out);
            }
        }
        self.command_ue(now, id, (Via::N2, to), command, &admitted, out);
        let mut m = UplinkRanStatusTransfer::new(m.amf_ue_ngap_id, id, Vec::new());
        m.ran_status_transfer_transparent_container = RAN_STATUS.to_vec();
        self.send(stream, &m.into(), out);
    }

    /// The forwarding tunnel of a session: the target's, or the UPF's.
    fn forwarding_of(
        &self,
        ue: UeId,
        item: &PduSessionResourceItem,
        out: &mut Outbox<Output>,
    ) -> Option<(IpAddr, Teid)> {
        match HandoverCommandTransfer::decode(&item.transfer) {
            Ok(transfer) => transfer.dl_forwarding_up_tnl_information.and_then(|t| self.peer(&t)),
            Err(e) => {
                violation(Some(ue), Violation::Transfer(item.pdu_session_id, e), out);
                None
            }
        }
    }

    /// Source: HANDOVER PREPARATION FAILURE (§8.4.1.3).
    pub(super) fn handover_preparation_failed(
        &mut self,
        at: ReceivedMessage,
        m: HandoverPreparationFailure,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let ue = context.ue;
        match context.handover {
            Handover::Preparing { via: Via::N2, .. } => {
                context.handover = Handover::None;
                event(Event::HandoverFailed { ue, via: Via::N2, cause: m.cause }, out);
            }
            Handover::Cancelling { .. } => {}
            _ => violation(Some(ue), Violation::Unexpected("HandoverPreparationFailure"), out),
        }
    }

    /// Source: HANDOVER CANCEL (§8.4.5.2).
    pub(super) fn send_cancel(
        &mut self,
        now: Instant,
        id: RanUeNgapId,
        cause: Cause,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        self.send(context.stream, &HandoverCancel::new(amf_ue_ngap_id, id, cause).into(), out);
        self.set_handover(id, Handover::Cancelling { until: now + self.config.handover_overall });
    }

    /// Source: HANDOVER CANCEL ACKNOWLEDGE (§8.4.5.2).
    pub(super) fn cancel_acknowledged(
        &mut self,
        at: ReceivedMessage,
        m: &HandoverCancelAcknowledge,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let ue = context.ue;
        if !matches!(context.handover, Handover::Cancelling { .. }) {
            return violation(Some(ue), Violation::Unexpected("HandoverCancelAcknowledge"), out);
        }
        context.handover = Handover::None;
        event(Event::HandoverCancelled(ue), out);
    }

    /// Target: HANDOVER REQUEST (§8.4.2.2).
    pub(super) fn handover_request(
        &mut self,
        at: ReceivedMessage,
        m: HandoverRequest,
        out: &mut Outbox<Output>,
    ) {
        if self.faults.ignore_handover_request {
            return event(Event::HandoverRequestIgnored, out);
        }
        let amf_ue_ngap_id = m.amf_ue_ngap_id;
        self.judge_handover_request(&m, out);
        if let Some(cause) = self.faults.refuse_handover.clone() {
            return self.handover_failure(at, amf_ue_ngap_id, cause, out);
        }
        let proposed =
            container::forwarding_proposed(self.config.id, &m.source_to_target_transparent_container);
        if proposed.is_none() {
            violation(None, Violation::ContainerAltered, out);
        }
        let none = Cause::RadioNetwork(CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell);
        let Some(id) = self.new_context(UeId::NOT_ARRIVED, Some(at.stream)) else {
            return self.handover_failure(at, amf_ue_ngap_id, none, out);
        };
        let security = m.security_context;
        let (ncc, nh) = (security.next_hop_chaining_count, security.next_hop_nh.0);
        let key_set_change = m.new_security_context_ind.is_some();
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.amf_ue_ngap_id = Some(amf_ue_ngap_id);
            context.set_up = true;
            context.radio_lost = true;
            context.keys = Some(Keys::of_next_hop(ncc, nh, self.config.id));
            context.guami = Some(m.guami);
            context.capabilities = Some(m.ue_security_capabilities);
            context.ambr = Some(m.ue_aggregate_maximum_bit_rate);
            context.allowed_nssai = m.allowed_nssai;
            context.reports_inactive =
                super::ue_context::reports(m.rrc_inactive_transition_report_request.as_ref(), false);
            context.location_reporting = m.location_reporting_request_type;
            context.handover = Handover::Awaiting { from: HandoverOrigin::N2, until: None };
        }
        let (mut admitted, mut failed) = (Vec::new(), Vec::new());
        for item in m.pdu_session_resource_setup_list_ho_req {
            let requested = RequestedSession::from(item);
            let forwarding = proposed.as_ref().is_some_and(|p| p.contains(&requested.id));
            match self.admit_handed_over(id, &requested, forwarding, out) {
                Ok(transfer) => admitted.push(PduSessionResourceItem::new(requested.id, transfer.to_vec())),
                Err(RefusedSetup(cause)) => {
                    let transfer = HandoverResourceAllocationUnsuccessfulTransfer::new(cause);
                    failed.push(PduSessionResourceItem::new(requested.id, transfer.to_vec()));
                }
            }
        }
        if admitted.is_empty() {
            self.contexts.remove(id.0);
            return self.handover_failure(at, amf_ue_ngap_id, none, out);
        }
        let container = TargetParameters { target: id, ncc, key_set_change }.to_container();
        let mut answer = HandoverRequestAcknowledge::new(amf_ue_ngap_id, id, container);
        answer.pdu_session_resource_admitted_list = admitted;
        answer.pdu_session_resource_failed_to_setup_list_ho_ack = failed;
        let stream = self.contexts.get(id.0).map_or(at.stream, |c| c.stream);
        self.send(stream, &answer.into(), out);
    }

    fn judge_handover_request(&self, m: &HandoverRequest, out: &mut Outbox<Output>) {
        let mut breach = |v| violation(None, v, out);
        if m.security_context.next_hop_nh.0 == [0; 32] {
            breach(Violation::ZeroSecurityKey);
        }
        if !self.served_guamis.contains(&m.guami) {
            breach(Violation::ForeignGuami);
        }
        if !m.allowed_nssai.iter().any(|s| self.config.serves_slice(*s)) {
            breach(Violation::AllowedNssaiNotServed);
        }
    }

    fn admit_handed_over(
        &mut self,
        id: RanUeNgapId,
        requested: &RequestedSession,
        forwarding: bool,
        out: &mut Outbox<Output>,
    ) -> Result<HandoverRequestAcknowledgeTransfer, RefusedSetup> {
        let not_possible = self.faults.refuse_forwarding || self.forwarding_not_possible(&requested.transfer);
        let admitted = self.admit_session(id, requested, out)?;
        let tunnel = match forwarding && !not_possible {
            true => self.open_forwarding(id, requested.id).map(|teid| self.tunnel(teid)),
            false => None,
        };
        let flow = |qfi| {
            let mut item = QosFlowItemWithDataForwarding::new(qfi);
            item.data_forwarding_accepted =
                tunnel.is_some().then_some(DataForwardingAccepted::DataForwardingAccepted);
            item
        };
        let flows = admitted.flows.into_iter().map(flow).collect();
        let mut transfer = HandoverRequestAcknowledgeTransfer::new(admitted.downlink, flows);
        transfer.dl_forwarding_up_tnl_information = tunnel;
        transfer.security_result = admitted.security_result;
        Ok(transfer)
    }

    /// Whether the SMF has set "data forwarding not possible" (§9.3.1.63).
    fn forwarding_not_possible(&self, transfer: &[u8]) -> bool {
        whimbrel_ngap::PduSessionResourceSetupRequestTransfer::decode(transfer)
            .is_ok_and(|t| t.data_forwarding_not_possible.is_some())
    }

    /// Target: HANDOVER FAILURE (§8.4.2.3).
    fn handover_failure(&self, at: ReceivedMessage, id: AmfUeNgapId, cause: Cause, out: &mut Outbox<Output>) {
        self.send(at.stream, &HandoverFailure::new(id, cause).into(), out);
    }

    /// Target: DOWNLINK RAN STATUS TRANSFER (§8.4.7), as sent by the source.
    pub(super) fn status_transferred(
        &mut self,
        at: ReceivedMessage,
        m: &DownlinkRanStatusTransfer,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        context.status_transferred = true;
        let ue = context.ue;
        if m.ran_status_transfer_transparent_container != RAN_STATUS {
            violation(Some(ue), Violation::ContainerAltered, out);
        }
    }

    /// Target: HANDOVER NOTIFY (§8.4.3.2).
    pub(super) fn handover_notify(&mut self, id: RanUeNgapId, stream: u16, out: &mut Outbox<Output>) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let (ue, Some(amf_ue_ngap_id)) = (context.ue, context.amf_ue_ngap_id) else { return };
        let mut m = HandoverNotify::new(amf_ue_ngap_id, id);
        m.user_location_information = Some(self.config.location());
        self.send(stream, &m.into(), out);
        event(Event::HandedOver { ue, via: Via::N2, released: Vec::<PduSessionId>::new() }, out);
    }
}
