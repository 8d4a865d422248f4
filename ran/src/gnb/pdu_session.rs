//! PDU session resources (TS 38.413 §8.2).

use core::net::IpAddr;

use whimbrel_ids::{Instant, PduSessionId, Qfi, RanUeNgapId, SNssai, Teid};
use whimbrel_ngap::{
    AssociatedQosFlowItem, Cause, CauseProtocol, CauseRadioNetwork, ConfidentialityProtectionIndication,
    ConfidentialityProtectionResult, GtpTunnel, IntegrityProtectionIndication, IntegrityProtectionResult,
    PduSessionResourceItem, PduSessionResourceModifyRequest, PduSessionResourceModifyRequestTransfer,
    PduSessionResourceModifyResponse, PduSessionResourceModifyResponseTransfer,
    PduSessionResourceModifyUnsuccessfulTransfer, PduSessionResourceReleaseCommand,
    PduSessionResourceReleaseResponse, PduSessionResourceReleaseResponseTransfer,
    PduSessionResourceSetupItemCxtReq, PduSessionResourceSetupItemSuReq, PduSessionResourceSetupRequest,
    PduSessionResourceSetupRequestTransfer, PduSessionResourceSetupResponse,
    PduSessionResourceSetupResponseTransfer, PduSessionResourceSetupUnsuccessfulTransfer,
    QosFlowPerTnlInformation, SecurityIndication, SecurityResult, TransportLayerAddress,
    UpTransportLayerInformation,
};

use super::tunnel::{GnbSession, GnbTunnel, LATE, SessionFlow};
use super::{Gnb, Output, ReceivedMessage, Violation, violation};
use crate::outbox::Outbox;
use crate::radio::{DownlinkMessage, UeId};

/// A session that the AMF requests, from any of the messages.
pub(super) struct RequestedSession {
    pub(super) id: PduSessionId,
    pub(super) nas: Option<Vec<u8>>,
    pub(super) s_nssai: SNssai,
    pub(super) transfer: Vec<u8>,
}

impl From<PduSessionResourceSetupItemCxtReq> for RequestedSession {
    fn from(item: PduSessionResourceSetupItemCxtReq) -> Self {
        let transfer = item.pdu_session_resource_setup_request_transfer;
        Self { id: item.pdu_session_id, nas: item.nas_pdu, s_nssai: item.s_nssai, transfer }
    }
}

impl From<PduSessionResourceSetupItemSuReq> for RequestedSession {
    fn from(item: PduSessionResourceSetupItemSuReq) -> Self {
        let transfer = item.pdu_session_resource_setup_request_transfer;
        Self { id: item.pdu_session_id, nas: item.pdu_session_nas_pdu, s_nssai: item.s_nssai, transfer }
    }
}

/// The result of setups.
#[derive(Default)]
pub(super) struct SetupResult {
    pub(super) set_up: Vec<PduSessionResourceItem>,
    pub(super) failed: Vec<PduSessionResourceItem>,
    /// NAS messages of the sessions that were set up, for the UE; those of the others are not delivered (§8.2.1.3).
    pub(super) nas: Vec<Vec<u8>>,
}

/// A failed setup, with its cause.
pub(super) struct RefusedSetup(pub(super) Cause);

/// An admitted session.
pub(super) struct AdmittedSession {
    pub(super) downlink: UpTransportLayerInformation,
    pub(super) flows: Vec<Qfi>,
    pub(super) security_result: Option<SecurityResult>,
}

impl From<CauseRadioNetwork> for RefusedSetup {
    fn from(cause: CauseRadioNetwork) -> Self {
        Self(Cause::RadioNetwork(cause))
    }
}

impl Gnb {
    /// PDU SESSION RESOURCE SETUP (§8.2.1).
    pub(super) fn session_setup(
        &mut self,
        at: ReceivedMessage,
        m: PduSessionResourceSetupRequest,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (ue, stream) = (context.ue, context.stream);
        context.ambr = m.ue_aggregate_maximum_bit_rate.or(context.ambr.take());
        if context.ambr.is_none() {
            violation(Some(ue), Violation::MissingUeAmbr, out);
        }
        if self.contexts.get(m.ran_ue_ngap_id.0).is_some_and(|c| !c.set_up) {
            // Without AS security there are no radio bearers (TS 38.413 §8.2.1.1: the UE context is a condition).
            violation(Some(ue), Violation::Unexpected("PduSessionResourceSetupRequest"), out);
        }
        self.deliver(ue, m.nas_pdu, out);
        let requested =
            m.pdu_session_resource_setup_list_su_req.into_iter().map(RequestedSession::from).collect();
        let done = self.set_up_sessions(m.ran_ue_ngap_id, requested, out);
        let mut answer = PduSessionResourceSetupResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        answer.pdu_session_resource_setup_list_su_res = done.set_up;
        answer.pdu_session_resource_failed_to_setup_list_su_res = done.failed;
        self.send(stream, &answer.into(), out);
        for nas in done.nas {
            self.deliver(ue, Some(nas), out);
        }
    }

    pub(super) fn set_up_sessions(
        &mut self,
        id: RanUeNgapId,
        requested: Vec<RequestedSession>,
        out: &mut Outbox<Output>,
    ) -> SetupResult {
        let mut done = SetupResult::default();
        for w in requested {
            match self.set_up_session(id, &w, out) {
                Ok(transfer) => {
                    done.set_up.push(PduSessionResourceItem::new(w.id, transfer.to_vec()));
                    done.nas.extend(w.nas);
                }
                Err(RefusedSetup(cause)) => {
                    let transfer = PduSessionResourceSetupUnsuccessfulTransfer::new(cause);
                    done.failed.push(PduSessionResourceItem::new(w.id, transfer.to_vec()));
                }
            }
        }
        done
    }

    fn set_up_session(
        &mut self,
        id: RanUeNgapId,
        requested: &RequestedSession,
        out: &mut Outbox<Output>,
    ) -> Result<PduSessionResourceSetupResponseTransfer, RefusedSetup> {
        let lost = CauseRadioNetwork::RadioConnectionWithUeLost;
        let context = self.contexts.get(id.0).ok_or(lost)?;
        if context.radio_lost {
            return Err(context.lost_cause().into());
        }
        let ue = context.ue;
        let admitted = self.admit_session(id, requested, out)?;
        out.push(Output::Radio(ue, DownlinkMessage::UserPlane { session: requested.id, up: true }));
        let flows = admitted.flows.into_iter().map(AssociatedQosFlowItem::new).collect();
        let flows = QosFlowPerTnlInformation::new(admitted.downlink, flows);
        let mut answer = PduSessionResourceSetupResponseTransfer::new(flows);
        answer.security_result = admitted.security_result;
        Ok(answer)
    }

    /// Admits a session to a context.
    pub(super) fn admit_session(
        &mut self,
        id: RanUeNgapId,
        requested: &RequestedSession,
        out: &mut Outbox<Output>,
    ) -> Result<AdmittedSession, RefusedSetup> {
        let lost = CauseRadioNetwork::RadioConnectionWithUeLost;
        let context = self.contexts.get(id.0).ok_or(lost)?;
        let (ue, session_id) = (context.ue, requested.id);
        if context.sessions.iter().any(|s| s.id == session_id) {
            violation(Some(ue), Violation::SessionExists(session_id), out);
            return Err(CauseRadioNetwork::MultiplePduSessionIdInstances.into());
        }
        if !self.config.serves_slice(requested.s_nssai) {
            return Err(CauseRadioNetwork::SliceNotSupported.into());
        }
        if self.faults.refuse_sessions.contains(&session_id) {
            return Err(CauseRadioNetwork::RadioResourcesNotAvailable.into());
        }
        let transfer = PduSessionResourceSetupRequestTransfer::decode(&requested.transfer).map_err(|e| {
            violation(Some(ue), Violation::Transfer(session_id, e), out);
            RefusedSetup(Cause::Protocol(CauseProtocol::TransferSyntaxError))
        })?;
        if transfer.pdu_session_aggregate_maximum_bit_rate.is_none() {
            violation(Some(ue), Violation::MissingSessionAmbr(session_id), out);
        }
        let flows = flows(&transfer).ok_or_else(|| {
            violation(Some(ue), Violation::BadQosFlows(session_id), out);
            CauseRadioNetwork::MultipleQosFlowIdInstances
        })?;
        let uplink = self.peer(&transfer.ul_ngu_up_tnl_information).ok_or_else(|| {
            violation(Some(ue), Violation::UnusableTunnel(session_id), out);
            CauseRadioNetwork::Unspecified
        })?;
        let security_result = transfer.security_indication.as_ref().map(security_result);
        let session = GnbSession {
            id: session_id,
            s_nssai: requested.s_nssai,
            downlink_teid: Teid(0),
            uplink,
            flows,
            ambr: transfer.pdu_session_aggregate_maximum_bit_rate,
            pdu_session_type: transfer.pdu_session_type,
            security: transfer.security_indication,
            former_flows: Vec::new(),
            next_downlink_teid: None,
            forward_to: None,
            forwarding_teid: None,
            reordering: None,
        };
        let flows = session.flows.iter().map(|f| f.qfi).collect();
        let downlink = self.keep_session(id, session).ok_or(CauseRadioNetwork::RadioResourcesNotAvailable)?;
        Ok(AdmittedSession { downlink: self.tunnel(downlink), flows, security_result })
    }

    /// Adds a session with a tunnel to a context; `None` if there is no free tunnel.
    pub(super) fn keep_session(&mut self, id: RanUeNgapId, mut session: GnbSession) -> Option<Teid> {
        self.contexts.get(id.0)?;
        let teid = Teid(self.tunnels.insert(|_| GnbTunnel::N3(id.0, session.id))?);
        session.downlink_teid = teid;
        self.contexts.get_mut(id.0)?.sessions.push(session);
        Some(teid)
    }

    /// A tunnel that ends here.
    pub(super) fn tunnel(&self, teid: Teid) -> UpTransportLayerInformation {
        UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(self.config.transport_address(), teid))
    }

    /// The uplink tunnel, of the gNB's address family.
    pub(super) fn peer(&self, tunnel: &UpTransportLayerInformation) -> Option<(IpAddr, Teid)> {
        let UpTransportLayerInformation::GtpTunnel(tunnel) = tunnel;
        let address = match (self.config.gtp_address, tunnel.transport_layer_address) {
            (IpAddr::V4(_), TransportLayerAddress::V4(a) | TransportLayerAddress::V4V6(a, _)) => {
                IpAddr::V4(a)
            }
            (IpAddr::V6(_), TransportLayerAddress::V6(a) | TransportLayerAddress::V4V6(_, a)) => {
                IpAddr::V6(a)
            }
            _ => return None,
        };
        (tunnel.gtp_teid != Teid(0) && !address.is_unspecified()).then_some((address, tunnel.gtp_teid))
    }

    /// PDU SESSION RESOURCE MODIFY (§8.2.3).
    pub(super) fn session_modify(
        &mut self,
        now: Instant,
        at: ReceivedMessage,
        m: PduSessionResourceModifyRequest,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (ue, stream) = (context.ue, context.stream);
        let mut answer = PduSessionResourceModifyResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        let mut nas = Vec::new();
        for item in m.pdu_session_resource_modify_list_mod_req {
            let (id, transfer) = (item.pdu_session_id, item.pdu_session_resource_modify_request_transfer);
            match self.modify_session(now, (m.ran_ue_ngap_id, ue), id, &transfer, out) {
                Ok(transfer) => {
                    let done = PduSessionResourceItem::new(id, transfer.to_vec());
                    answer.pdu_session_resource_modify_list_mod_res.push(done);
                    nas.extend(item.nas_pdu);
                }
                Err(RefusedSetup(cause)) => {
                    let transfer = PduSessionResourceModifyUnsuccessfulTransfer::new(cause);
                    let failed = PduSessionResourceItem::new(id, transfer.to_vec());
                    answer.pdu_session_resource_failed_to_modify_list_mod_res.push(failed);
                }
            }
        }
        self.send(stream, &answer.into(), out);
        for nas in nas {
            self.deliver(ue, Some(nas), out);
        }
    }

    fn modify_session(
        &mut self,
        now: Instant,
        (ran, ue): (RanUeNgapId, UeId),
        id: PduSessionId,
        transfer: &[u8],
        out: &mut Outbox<Output>,
    ) -> Result<PduSessionResourceModifyResponseTransfer, RefusedSetup> {
        let transfer = PduSessionResourceModifyRequestTransfer::decode(transfer).map_err(|e| {
            violation(Some(ue), Violation::Transfer(id, e), out);
            RefusedSetup(Cause::Protocol(CauseProtocol::TransferSyntaxError))
        })?;
        let tunnel = transfer.ul_ngu_up_tnl_modify_list.first();
        let peer = tunnel.and_then(|t| self.peer(&t.ul_ngu_up_tnl_information));
        let context = self.contexts.get_mut(ran.0).ok_or(CauseRadioNetwork::UnknownLocalUeNgapId)?;
        if context.radio_lost {
            return Err(context.lost_cause().into());
        }
        let Some(session) = context.sessions.iter_mut().find(|s| s.id == id) else {
            violation(Some(ue), Violation::UnknownSession(id), out);
            return Err(CauseRadioNetwork::UnknownPduSessionId.into());
        };
        session.uplink = peer.unwrap_or(session.uplink);
        let ambr = transfer.pdu_session_aggregate_maximum_bit_rate.clone();
        session.ambr = ambr.or(session.ambr.take());
        Ok(modify_flows(now, ue, session, &transfer, out))
    }

    /// PDU SESSION RESOURCE RELEASE (§8.2.2).
    pub(super) fn session_release(
        &mut self,
        at: ReceivedMessage,
        m: PduSessionResourceReleaseCommand,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (ue, stream) = (context.ue, context.stream);
        self.deliver(ue, m.nas_pdu, out);
        let mut answer = PduSessionResourceReleaseResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        for item in m.pdu_session_resource_to_release_list_rel_cmd {
            let id = item.pdu_session_id;
            if !self.take_down(m.ran_ue_ngap_id, id, out) {
                violation(Some(ue), Violation::UnknownSession(id), out);
            }
            let transfer = PduSessionResourceReleaseResponseTransfer::new().to_vec();
            answer.pdu_session_resource_released_list_rel_res.push(PduSessionResourceItem::new(id, transfer));
        }
        self.send(stream, &answer.into(), out);
    }

    pub(super) fn take_down(&mut self, ran: RanUeNgapId, id: PduSessionId, out: &mut Outbox<Output>) -> bool {
        let Some(context) = self.contexts.get_mut(ran.0) else { return false };
        let Some(place) = context.sessions.iter().position(|s| s.id == id) else { return false };
        let session = context.sessions.remove(place);
        self.tunnels.remove(session.downlink_teid.0);
        if let Some(teid) = session.forwarding_teid {
            self.tunnels.remove(teid.0);
        }
        if !context.radio_lost {
            out.push(Output::Radio(context.ue, DownlinkMessage::UserPlane { session: id, up: false }));
        }
        true
    }
}

/// The flows of a session; an error if there are none or duplicates.
fn flows(transfer: &PduSessionResourceSetupRequestTransfer) -> Option<Vec<SessionFlow>> {
    let flows: Vec<SessionFlow> = transfer
        .qos_flow_setup_request_list
        .iter()
        .map(|f| SessionFlow {
            qfi: f.qos_flow_identifier,
            parameters: f.qos_flow_level_qos_parameters.clone(),
        })
        .collect();
    let twice = flows.iter().enumerate().any(|(i, f)| flows.iter().take(i).any(|g| f.qfi == g.qfi));
    (!flows.is_empty() && !twice).then_some(flows)
}

/// Adds, changes and removes flows (§8.2.3.2).
fn modify_flows(
    now: Instant,
    ue: UeId,
    session: &mut GnbSession,
    transfer: &PduSessionResourceModifyRequestTransfer,
    out: &mut Outbox<Output>,
) -> PduSessionResourceModifyResponseTransfer {
    let mut answer = PduSessionResourceModifyResponseTransfer::new();
    for item in &transfer.qos_flow_add_or_modify_request_list {
        let qfi = item.qos_flow_identifier;
        let known = session.flows.iter_mut().find(|f| f.qfi == qfi);
        match (known, item.qos_flow_level_qos_parameters.clone()) {
            (Some(flow), Some(parameters)) => flow.parameters = parameters,
            (Some(_), None) => {}
            (None, Some(parameters)) => session.flows.push(SessionFlow { qfi, parameters }),
            // A new flow without parameters cannot be set up (§9.3.4.3).
            (None, None) => violation(Some(ue), Violation::BadQosFlows(session.id), out),
        }
        answer.qos_flow_add_or_modify_response_list.push(qfi);
    }
    for item in &transfer.qos_flow_to_release_list {
        let before = session.flows.len();
        session.former_flows.retain(|(_, until)| now < *until);
        session.former_flows.push((item.qos_flow_identifier, now + LATE));
        session.flows.retain(|f| f.qfi != item.qos_flow_identifier);
        if session.flows.len() == before || session.flows.is_empty() {
            violation(Some(ue), Violation::BadQosFlows(session.id), out);
        }
    }
    answer
}

/// The emulated radio supports all user plane security (TS 38.413 §9.3.1.59).
pub(super) fn security_result(requested: &SecurityIndication) -> SecurityResult {
    let integrity = match requested.integrity_protection_indication {
        IntegrityProtectionIndication::NotNeeded => IntegrityProtectionResult::NotPerformed,
        _ => IntegrityProtectionResult::Performed,
    };
    let confidentiality = match requested.confidentiality_protection_indication {
        ConfidentialityProtectionIndication::NotNeeded => ConfidentialityProtectionResult::NotPerformed,
        _ => ConfidentialityProtectionResult::Performed,
    };
    SecurityResult::new(integrity, confidentiality)
}
