//! Xn handover (TS 38.423 §8.2.1, §8.2.2, §8.2.4, §8.2.7) and path switch (TS 38.413 §8.4.4). Xn messages between two gNBs
//! of one emulated RAN are values, not octets.

use core::fmt;
use core::net::IpAddr;

use whimbrel_ids::{AmfUeNgapId, GlobalGnbId, Guami, Instant, PduSessionId, RanUeNgapId, SNssai, Teid};
use whimbrel_ngap::{
    Cause, CauseRadioNetwork, LocationReportingRequestType, PathSwitchRequest, PathSwitchRequestAcknowledge,
    PathSwitchRequestAcknowledgeTransfer, PathSwitchRequestFailure, PathSwitchRequestSetupFailedTransfer,
    PathSwitchRequestTransfer, PduSessionAggregateMaximumBitRate, PduSessionResourceItem, PduSessionType,
    QosFlowAcceptedItem, SecurityIndication, UeAggregateMaximumBitRate, UeSecurityCapabilities,
    UserPlaneSecurityInformation,
};
use whimbrel_security::{KGnb, Nh};

use super::container::TargetParameters;
use super::handover::{Handover, HandoverOrigin};
use super::keys::Keys;
use super::pdu_session::security_result;
use super::tunnel::{GnbSession, SessionFlow};
use super::ue_context::reports;
use super::{Event, Gnb, Neighbour, Output, ReceivedMessage, Via, Violation, event, violation};
use crate::outbox::Outbox;
use crate::radio::{DownlinkMessage, UeId};

/// An Xn message.
#[derive(Clone, Debug)]
pub enum XnMessage {
    /// HANDOVER REQUEST (TS 38.423 §9.1.1.1).
    HandoverRequest(Box<XnHandoverRequest>),
    /// HANDOVER REQUEST ACKNOWLEDGE (§9.1.1.2).
    HandoverRequestAcknowledge(Box<XnHandoverRequestAcknowledge>),
    /// HANDOVER PREPARATION FAILURE (§9.1.1.3).
    HandoverPreparationFailure {
        /// The source's identifier of the context.
        source: RanUeNgapId,
        /// Cause of the refusal.
        cause: Cause,
    },
    /// UE CONTEXT RELEASE (§9.1.1.5): the source may release the UE.
    UeContextRelease {
        /// The source's identifier of the context.
        source: RanUeNgapId,
    },
    /// HANDOVER CANCEL (§9.1.1.6).
    HandoverCancel {
        /// The source's identifier of the context.
        source: RanUeNgapId,
    },
}

/// A UE context in a handover request.
#[derive(Clone)]
pub struct XnHandoverRequest {
    source: RanUeNgapId,
    amf_ue_ngap_id: AmfUeNgapId,
    guami: Guami,
    k_ng_ran_star: [u8; 32],
    ncc: u8,
    capabilities: UeSecurityCapabilities,
    ambr: Option<UeAggregateMaximumBitRate>,
    allowed_nssai: Vec<SNssai>,
    location_reporting: Option<LocationReportingRequestType>,
    sessions: Vec<XnSession>,
}

/// Redacted: it holds a key.
impl fmt::Debug for XnHandoverRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XnHandoverRequest({}, {} sessions)", self.amf_ue_ngap_id, self.sessions.len())
    }
}

#[derive(Clone)]
struct XnSession {
    id: PduSessionId,
    s_nssai: SNssai,
    uplink: (IpAddr, Teid),
    flows: Vec<SessionFlow>,
    ambr: Option<PduSessionAggregateMaximumBitRate>,
    pdu_session_type: PduSessionType,
    security: Option<SecurityIndication>,
}

/// The sessions that the target admitted.
#[derive(Clone, Debug)]
pub struct XnHandoverRequestAcknowledge {
    source: RanUeNgapId,
    /// With the tunnels for forwarding.
    admitted: Vec<(PduSessionId, Option<(IpAddr, Teid)>)>,
    container: Vec<u8>,
}

impl Gnb {
    /// Handles a message of another gNB.
    pub(super) fn xn(
        &mut self,
        now: Instant,
        from: GlobalGnbId,
        message: XnMessage,
        out: &mut Outbox<Output>,
    ) {
        match message {
            XnMessage::HandoverRequest(m) => self.xn_admit(now, from, *m, out),
            XnMessage::HandoverRequestAcknowledge(m) => self.xn_acknowledged(now, &m, out),
            XnMessage::HandoverPreparationFailure { source, cause } => {
                let Some(context) = self.contexts.get_mut(source.0) else { return };
                context.handover = Handover::None;
                event(Event::HandoverFailed { ue: context.ue, via: Via::Xn, cause }, out);
            }
            XnMessage::UeContextRelease { source } => {
                if let Some(context) = self.drop_context(now, source, out) {
                    let cause = Cause::RadioNetwork(CauseRadioNetwork::SuccessfulHandover);
                    event(Event::ContextReleased(context.ue, cause), out);
                }
            }
            XnMessage::HandoverCancel { source } => {
                let origin = HandoverOrigin::Xn(from, source);
                let meant = |id: &u32| {
                    self.contexts.get(*id).is_some_and(
                        |c| matches!(c.handover, Handover::Awaiting { from, .. } if from == origin),
                    )
                };
                let found = self.contexts.ids().find(meant);
                if let Some(id) = found {
                    self.drop_context(now, RanUeNgapId(id), out);
                }
            }
        }
    }

    /// Source: asks the target (TS 38.423 §8.2.1.2), with the key of the target's cell (TS 33.501 §6.9.2.3.2).
    pub(super) fn xn_handover_request(
        &mut self,
        now: Instant,
        id: RanUeNgapId,
        to: Neighbour,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let (Some(keys), Some(amf_ue_ngap_id), Some(guami), Some(capabilities)) =
            (&context.keys, context.amf_ue_ngap_id, context.guami, context.capabilities.clone())
        else {
            return;
        };
        let next = keys.towards(to.id);
        let session = |s: &GnbSession| XnSession {
            id: s.id,
            s_nssai: s.s_nssai,
            uplink: s.uplink,
            flows: s.flows.clone(),
            ambr: s.ambr.clone(),
            pdu_session_type: s.pdu_session_type,
            security: s.security.clone(),
        };
        let request = XnHandoverRequest {
            source: id,
            amf_ue_ngap_id,
            guami,
            k_ng_ran_star: *next.k_gnb.octets(),
            ncc: next.ncc,
            capabilities,
            ambr: context.ambr.clone(),
            allowed_nssai: context.allowed_nssai.clone(),
            location_reporting: context.location_reporting.clone(),
            sessions: context.sessions.iter().map(session).collect(),
        };
        let asked = request.sessions.iter().map(|s| s.id).collect();
        let until = now + self.config.handover_preparation;
        self.set_handover(id, Handover::Preparing { via: Via::Xn, to, until, asked });
        out.push(Output::Xn { to: to.id, message: XnMessage::HandoverRequest(Box::new(request)) });
    }

    /// Target: admits the sessions that it can.
    fn xn_admit(&mut self, now: Instant, from: GlobalGnbId, m: XnHandoverRequest, out: &mut Outbox<Output>) {
        let source = m.source;
        let refuse = |cause| XnMessage::HandoverPreparationFailure { source, cause };
        let none = Cause::RadioNetwork(CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell);
        if let Some(cause) = self.faults.refuse_handover.clone() {
            return out.push(Output::Xn { to: from, message: refuse(cause) });
        }
        let id = if self.is_up() { self.new_context(UeId::NOT_ARRIVED, None) } else { None };
        let Some(id) = id else { return out.push(Output::Xn { to: from, message: refuse(none) }) };
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.amf_ue_ngap_id = Some(m.amf_ue_ngap_id);
            context.set_up = true;
            context.radio_lost = true;
            context.keys = Some(Keys { k_gnb: KGnb::new(m.k_ng_ran_star), ncc: m.ncc, fresh: None });
            context.guami = Some(m.guami);
            context.capabilities = Some(m.capabilities);
            context.ambr = m.ambr;
            context.allowed_nssai = m.allowed_nssai;
            context.location_reporting = m.location_reporting;
        }
        // If the UE has not arrived by then, its source has lost it too, as it waits half as long.
        let until = Some(now + self.config.handover_overall * 2);
        self.set_handover(id, Handover::Awaiting { from: HandoverOrigin::Xn(from, source), until });
        let mut admitted = Vec::new();
        let mut refused = Vec::new();
        for session in m.sessions {
            let session_id = session.id;
            match self.xn_admit_session(id, session) {
                true => {
                    let teid = self.open_forwarding(id, session_id);
                    admitted.push((session_id, teid.map(|t| (self.config.gtp_address, t))));
                }
                false => refused.push(session_id),
            }
        }
        if admitted.is_empty() {
            self.contexts.remove(id.0);
            return out.push(Output::Xn { to: from, message: refuse(none) });
        }
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.refused_sessions = refused;
        }
        let container = TargetParameters { target: id, ncc: m.ncc, key_set_change: false }.to_container();
        let answer = XnHandoverRequestAcknowledge { source, admitted, container };
        let message = XnMessage::HandoverRequestAcknowledge(Box::new(answer));
        out.push(Output::Xn { to: from, message });
    }

    fn xn_admit_session(&mut self, id: RanUeNgapId, s: XnSession) -> bool {
        if !self.config.serves_slice(s.s_nssai) || self.faults.refuse_sessions.contains(&s.id) {
            return false;
        }
        let session = GnbSession {
            id: s.id,
            s_nssai: s.s_nssai,
            downlink_teid: Teid(0),
            uplink: s.uplink,
            flows: s.flows,
            ambr: s.ambr,
            pdu_session_type: s.pdu_session_type,
            security: s.security,
            former_flows: Vec::new(),
            next_downlink_teid: None,
            forward_to: None,
            forwarding_teid: None,
            reordering: None,
        };
        self.keep_session(id, session).is_some()
    }

    /// Source: the target is ready.
    fn xn_acknowledged(&mut self, now: Instant, m: &XnHandoverRequestAcknowledge, out: &mut Outbox<Output>) {
        let Some(context) = self.contexts.get(m.source.0) else { return };
        let Handover::Preparing { via: Via::Xn, to, .. } = context.handover else { return };
        let Some(command) = TargetParameters::of_container(&m.container) else { return };
        self.command_ue(now, m.source, (Via::Xn, to), command, &m.admitted, out);
    }

    /// Target: PATH SWITCH REQUEST (TS 38.413 §8.4.4.2).
    pub(super) fn path_switch_request(
        &mut self,
        now: Instant,
        id: RanUeNgapId,
        from: HandoverOrigin,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.contexts.get(id.0) else { return };
        let Some(amf_ue_ngap_id) = context.amf_ue_ngap_id else { return };
        let item = |s: &GnbSession| {
            let flows = s.flows.iter().map(|f| QosFlowAcceptedItem::new(f.qfi)).collect();
            let mut transfer = PathSwitchRequestTransfer::new(self.tunnel(s.downlink_teid), flows);
            let security = s.security.as_ref();
            transfer.user_plane_security_information =
                security.map(|i| UserPlaneSecurityInformation::new(security_result(i), i.clone()));
            PduSessionResourceItem::new(s.id, transfer.to_vec())
        };
        let sessions: Vec<_> = context.sessions.iter().map(item).collect();
        let mut m = PathSwitchRequest::new(id, amf_ue_ngap_id, sessions);
        m.user_location_information = Some(self.config.location());
        m.ue_security_capabilities =
            self.faults.altered_capabilities.clone().or(context.capabilities.clone());
        let cause = Cause::RadioNetwork(CauseRadioNetwork::NoRadioResourcesAvailableInTargetCell);
        let failed = PathSwitchRequestSetupFailedTransfer::new(cause).to_vec();
        m.pdu_session_resource_failed_to_setup_list_ps_req = context
            .refused_sessions
            .iter()
            .map(|s| PduSessionResourceItem::new(*s, failed.clone()))
            .collect();
        let asked = context.sessions.iter().map(|s| s.id).collect();
        self.send(context.stream, &m.into(), out);
        let until = now + self.config.handover_overall;
        self.set_handover(id, Handover::Switching { from, asked, until });
    }

    /// PATH SWITCH REQUEST ACKNOWLEDGE (§8.4.4.2): the next {NH, NCC}, and the results of the sessions.
    pub(super) fn path_switched(
        &mut self,
        at: ReceivedMessage,
        m: PathSwitchRequestAcknowledge,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let ue = context.ue;
        let Handover::Switching { from, asked, .. } =
            core::mem::replace(&mut context.handover, Handover::None)
        else {
            return violation(Some(ue), Violation::Unexpected("PathSwitchRequestAcknowledge"), out);
        };
        let (ncc, nh) = (m.security_context.next_hop_chaining_count, m.security_context.next_hop_nh.0);
        let used = context.keys.as_ref().map(|k| k.ncc);
        context.reports_inactive = reports(m.rrc_inactive_transition_report_request.as_ref(), false);
        let known = context.capabilities.clone();
        if m.new_security_context_ind.is_some() {
            // A key of a new K_AMF, taken into use at once (TS 33.501 §6.9.2.3.2).
            context.keys = Some(Keys::initial(nh));
            out.push(Output::Radio(ue, DownlinkMessage::AsSecurity { k_gnb: nh }));
        } else {
            if let Some(keys) = &mut context.keys {
                keys.fresh = Some((ncc, Nh::new(nh)));
            }
            if used == Some(ncc) {
                violation(Some(ue), Violation::NextHopNotFresh, out);
            }
            out.push(Output::Radio(ue, DownlinkMessage::NextHop { ncc, nh }));
        }
        self.judge_capabilities(m.ran_ue_ngap_id, known, m.ue_security_capabilities, out);
        if !m.allowed_nssai.iter().any(|s| self.config.serves_slice(*s)) {
            violation(Some(ue), Violation::AllowedNssaiNotServed, out);
        }
        let switched: Vec<PduSessionId> =
            m.pdu_session_resource_switched_list.iter().map(|s| s.pdu_session_id).collect();
        for item in &m.pdu_session_resource_switched_list {
            self.session_switched(m.ran_ue_ngap_id, ue, item, out);
        }
        let released: Vec<PduSessionId> =
            m.pdu_session_resource_released_list_ps_ack.iter().map(|s| s.pdu_session_id).collect();
        for id in asked {
            if switched.contains(&id) == released.contains(&id) {
                violation(Some(ue), Violation::SessionUnaccounted(id), out);
            }
            if released.contains(&id) {
                self.take_down(m.ran_ue_ngap_id, id, out);
            }
        }
        if let HandoverOrigin::Xn(source, id) = from {
            out.push(Output::Xn { to: source, message: XnMessage::UeContextRelease { source: id } });
        }
        event(Event::HandedOver { ue, via: Via::Xn, released }, out);
    }

    /// The core sends the UE's security capabilities only if the gNB's differ from its own (TS 33.501 §6.7.3.1).
    fn judge_capabilities(
        &mut self,
        id: RanUeNgapId,
        known: Option<UeSecurityCapabilities>,
        received: Option<UeSecurityCapabilities>,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.contexts.get_mut(id.0) else { return };
        let altered = self.faults.altered_capabilities.as_ref().is_some_and(|a| Some(a) != known.as_ref());
        match (&received, altered) {
            (Some(received), _) if Some(received) != known.as_ref() => {
                violation(Some(context.ue), Violation::SecurityCapabilitiesAltered, out);
            }
            (None, true) => {
                violation(Some(context.ue), Violation::SecurityCapabilitiesNotCorrected, out);
            }
            _ => {}
        }
        context.capabilities = received.or(known);
    }

    fn session_switched(
        &mut self,
        ran: RanUeNgapId,
        ue: UeId,
        item: &PduSessionResourceItem,
        out: &mut Outbox<Output>,
    ) {
        let id = item.pdu_session_id;
        let transfer = match PathSwitchRequestAcknowledgeTransfer::decode(&item.transfer) {
            Ok(transfer) => transfer,
            Err(e) => return violation(Some(ue), Violation::Transfer(id, e), out),
        };
        let uplink = match transfer.ul_ngu_up_tnl_information.as_ref().map(|t| self.peer(t)) {
            Some(None) => return violation(Some(ue), Violation::UnusableTunnel(id), out),
            Some(uplink) => uplink,
            None => None,
        };
        let sessions = self.contexts.get_mut(ran.0).map(|c| &mut c.sessions);
        let Some(session) = sessions.and_then(|s| s.iter_mut().find(|s| s.id == id)) else {
            return violation(Some(ue), Violation::UnknownSession(id), out);
        };
        session.uplink = uplink.unwrap_or(session.uplink);
    }

    /// PATH SWITCH REQUEST FAILURE (§8.4.4.3): the UE cannot be served here. The source still has its connection, and asks
    /// for its release when TXnRELOCoverall ends.
    pub(super) fn path_switch_failed(
        &mut self,
        now: Instant,
        at: ReceivedMessage,
        m: &PathSwitchRequestFailure,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let ue = context.ue;
        if !matches!(context.handover, Handover::Switching { .. }) {
            return violation(Some(ue), Violation::Unexpected("PathSwitchRequestFailure"), out);
        }
        self.drop_context(now, m.ran_ue_ngap_id, out);
        let cause = Cause::RadioNetwork(CauseRadioNetwork::HoFailureInTarget5GcNgranNodeOrTargetSystem);
        event(Event::HandoverFailed { ue, via: Via::Xn, cause }, out);
    }
}
