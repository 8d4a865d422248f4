//! PDU session resources (TS 38.413 §8.2).

use core::net::IpAddr;

use whimbrel_ids::{PduSessionId, Qfi, RanUeNgapId, SNssai, Teid};
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

use super::tunnel::Session;
use super::{Arrival, Gnb, Output, Violation, violation};
use crate::outbox::Outbox;
use crate::radio::{Down, PhoneId};

/// A session that the AMF wants set up, in whichever message it asks.
pub(super) struct Wanted {
    id: PduSessionId,
    nas: Option<Vec<u8>>,
    s_nssai: SNssai,
    transfer: Vec<u8>,
}

impl From<PduSessionResourceSetupItemCxtReq> for Wanted {
    fn from(item: PduSessionResourceSetupItemCxtReq) -> Self {
        let transfer = item.pdu_session_resource_setup_request_transfer;
        Self { id: item.pdu_session_id, nas: item.nas_pdu, s_nssai: item.s_nssai, transfer }
    }
}

impl From<PduSessionResourceSetupItemSuReq> for Wanted {
    fn from(item: PduSessionResourceSetupItemSuReq) -> Self {
        let transfer = item.pdu_session_resource_setup_request_transfer;
        Self { id: item.pdu_session_id, nas: item.pdu_session_nas_pdu, s_nssai: item.s_nssai, transfer }
    }
}

/// What came of setting up sessions.
#[derive(Default)]
pub(super) struct Done {
    pub(super) set_up: Vec<PduSessionResourceItem>,
    pub(super) failed: Vec<PduSessionResourceItem>,
    /// NAS messages of the sessions that were set up, for the phone; those of the others are not delivered (§8.2.1.3).
    pub(super) nas: Vec<Vec<u8>>,
}

/// A session is not set up, for this cause.
struct Refused(Cause);

impl From<CauseRadioNetwork> for Refused {
    fn from(cause: CauseRadioNetwork) -> Self {
        Self(Cause::RadioNetwork(cause))
    }
}

impl Gnb {
    /// PDU SESSION RESOURCE SETUP (§8.2.1).
    pub(super) fn session_setup(
        &mut self,
        at: Arrival,
        m: PduSessionResourceSetupRequest,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (phone, stream) = (context.phone, context.stream);
        context.has_ue_ambr |= m.ue_aggregate_maximum_bit_rate.is_some();
        if !context.has_ue_ambr {
            violation(Some(phone), Violation::MissingUeAmbr, out);
        }
        if self.contexts.get(m.ran_ue_ngap_id.0).is_some_and(|c| !c.set_up) {
            // Without AS security there are no radio bearers (TS 38.413 §8.2.1.1: the UE context is a condition).
            violation(Some(phone), Violation::Unexpected("PduSessionResourceSetupRequest"), out);
        }
        self.deliver(phone, m.nas_pdu, out);
        let wanted = m.pdu_session_resource_setup_list_su_req.into_iter().map(Wanted::from).collect();
        let done = self.set_up_sessions(m.ran_ue_ngap_id, wanted, out);
        let mut answer = PduSessionResourceSetupResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        answer.pdu_session_resource_setup_list_su_res = done.set_up;
        answer.pdu_session_resource_failed_to_setup_list_su_res = done.failed;
        self.send(stream, &answer.into(), out);
        for nas in done.nas {
            self.deliver(phone, Some(nas), out);
        }
    }

    pub(super) fn set_up_sessions(
        &mut self,
        id: RanUeNgapId,
        wanted: Vec<Wanted>,
        out: &mut Outbox<Output>,
    ) -> Done {
        let mut done = Done::default();
        for w in wanted {
            match self.set_up_session(id, &w, out) {
                Ok(transfer) => {
                    done.set_up.push(PduSessionResourceItem::new(w.id, transfer.to_vec()));
                    done.nas.extend(w.nas);
                }
                Err(Refused(cause)) => {
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
        wanted: &Wanted,
        out: &mut Outbox<Output>,
    ) -> Result<PduSessionResourceSetupResponseTransfer, Refused> {
        let lost = CauseRadioNetwork::RadioConnectionWithUeLost;
        let context = self.contexts.get(id.0).filter(|c| !c.radio_lost).ok_or(lost)?;
        let (phone, session_id) = (context.phone, wanted.id);
        if context.sessions.iter().any(|s| s.id == session_id) {
            violation(Some(phone), Violation::SessionExists(session_id), out);
            return Err(CauseRadioNetwork::MultiplePduSessionIdInstances.into());
        }
        if !self.config.serves_slice(wanted.s_nssai) {
            return Err(CauseRadioNetwork::SliceNotSupported.into());
        }
        let transfer = PduSessionResourceSetupRequestTransfer::decode(&wanted.transfer).map_err(|e| {
            violation(Some(phone), Violation::Transfer(session_id, e), out);
            Refused(Cause::Protocol(CauseProtocol::TransferSyntaxError))
        })?;
        if transfer.pdu_session_aggregate_maximum_bit_rate.is_none() {
            violation(Some(phone), Violation::MissingSessionAmbr(session_id), out);
        }
        let qfis = qfis(&transfer).ok_or_else(|| {
            violation(Some(phone), Violation::BadQosFlows(session_id), out);
            CauseRadioNetwork::MultipleQosFlowIdInstances
        })?;
        let (peer, uplink_teid) = self.peer(&transfer.ul_ngu_up_tnl_information).ok_or_else(|| {
            violation(Some(phone), Violation::UnusableTunnel(session_id), out);
            CauseRadioNetwork::Unspecified
        })?;
        let none_left = CauseRadioNetwork::RadioResourcesNotAvailable;
        let downlink_teid = Teid(self.tunnels.insert(|_| (phone, session_id)).ok_or(none_left)?);
        let first = qfis.first().copied().ok_or(CauseRadioNetwork::Unspecified)?;
        let context = self.contexts.get_mut(id.0).ok_or(lost)?;
        context.sessions.push(Session::new(session_id, downlink_teid, peer, uplink_teid, first));
        out.push(Output::Radio(phone, Down::UserPlane { session: session_id, up: true }));
        let flows = qfis.into_iter().map(AssociatedQosFlowItem::new).collect();
        let tunnel = GtpTunnel::new(self.config.transport_address(), downlink_teid);
        let flows = QosFlowPerTnlInformation::new(UpTransportLayerInformation::GtpTunnel(tunnel), flows);
        let mut answer = PduSessionResourceSetupResponseTransfer::new(flows);
        answer.security_result = transfer.security_indication.as_ref().map(security_result);
        Ok(answer)
    }

    /// Where uplink packets go; the family is the one that the gNB has.
    fn peer(&self, tunnel: &UpTransportLayerInformation) -> Option<(IpAddr, Teid)> {
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
        at: Arrival,
        m: PduSessionResourceModifyRequest,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (phone, stream) = (context.phone, context.stream);
        let mut answer = PduSessionResourceModifyResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        let mut nas = Vec::new();
        for item in m.pdu_session_resource_modify_list_mod_req {
            let (id, transfer) = (item.pdu_session_id, item.pdu_session_resource_modify_request_transfer);
            match self.modify_session(m.ran_ue_ngap_id, phone, id, &transfer, out) {
                Ok(transfer) => {
                    let done = PduSessionResourceItem::new(id, transfer.to_vec());
                    answer.pdu_session_resource_modify_list_mod_res.push(done);
                    nas.extend(item.nas_pdu);
                }
                Err(Refused(cause)) => {
                    let transfer = PduSessionResourceModifyUnsuccessfulTransfer::new(cause);
                    let failed = PduSessionResourceItem::new(id, transfer.to_vec());
                    answer.pdu_session_resource_failed_to_modify_list_mod_res.push(failed);
                }
            }
        }
        self.send(stream, &answer.into(), out);
        for nas in nas {
            self.deliver(phone, Some(nas), out);
        }
    }

    fn modify_session(
        &mut self,
        ran: RanUeNgapId,
        phone: PhoneId,
        id: PduSessionId,
        transfer: &[u8],
        out: &mut Outbox<Output>,
    ) -> Result<PduSessionResourceModifyResponseTransfer, Refused> {
        let transfer = PduSessionResourceModifyRequestTransfer::decode(transfer).map_err(|e| {
            violation(Some(phone), Violation::Transfer(id, e), out);
            Refused(Cause::Protocol(CauseProtocol::TransferSyntaxError))
        })?;
        let tunnel = transfer.ul_ngu_up_tnl_modify_list.first();
        let peer = tunnel.and_then(|t| self.peer(&t.ul_ngu_up_tnl_information));
        let sessions = self.contexts.get_mut(ran.0).map(|c| &mut c.sessions);
        let Some(session) = sessions.and_then(|s| s.iter_mut().find(|s| s.id == id)) else {
            violation(Some(phone), Violation::UnknownSession(id), out);
            return Err(CauseRadioNetwork::UnknownPduSessionId.into());
        };
        if let Some((peer, teid)) = peer {
            session.redirect(peer, teid);
        }
        let mut answer = PduSessionResourceModifyResponseTransfer::new();
        answer.qos_flow_add_or_modify_response_list =
            transfer.qos_flow_add_or_modify_request_list.iter().map(|f| f.qos_flow_identifier).collect();
        Ok(answer)
    }

    /// PDU SESSION RESOURCE RELEASE (§8.2.2).
    pub(super) fn session_release(
        &mut self,
        at: Arrival,
        m: PduSessionResourceReleaseCommand,
        out: &mut Outbox<Output>,
    ) {
        let Some(context) = self.context(at, m.amf_ue_ngap_id, m.ran_ue_ngap_id, out) else { return };
        let (phone, stream) = (context.phone, context.stream);
        self.deliver(phone, m.nas_pdu, out);
        let mut answer = PduSessionResourceReleaseResponse::new(m.amf_ue_ngap_id, m.ran_ue_ngap_id);
        for item in m.pdu_session_resource_to_release_list_rel_cmd {
            let id = item.pdu_session_id;
            if !self.take_down(m.ran_ue_ngap_id, id, out) {
                violation(Some(phone), Violation::UnknownSession(id), out);
            }
            let transfer = PduSessionResourceReleaseResponseTransfer::new().to_vec();
            answer.pdu_session_resource_released_list_rel_res.push(PduSessionResourceItem::new(id, transfer));
        }
        self.send(stream, &answer.into(), out);
    }

    fn take_down(&mut self, ran: RanUeNgapId, id: PduSessionId, out: &mut Outbox<Output>) -> bool {
        let Some(context) = self.contexts.get_mut(ran.0) else { return false };
        let Some(place) = context.sessions.iter().position(|s| s.id == id) else { return false };
        let session = context.sessions.remove(place);
        self.tunnels.remove(session.downlink_teid.0);
        out.push(Output::Radio(context.phone, Down::UserPlane { session: id, up: false }));
        true
    }
}

/// The flows of a session, if there are some and none is named twice.
fn qfis(transfer: &PduSessionResourceSetupRequestTransfer) -> Option<Vec<Qfi>> {
    let qfis: Vec<Qfi> = transfer.qos_flow_setup_request_list.iter().map(|f| f.qos_flow_identifier).collect();
    let twice = qfis.iter().enumerate().any(|(i, q)| qfis.iter().take(i).any(|p| p == q));
    (!qfis.is_empty() && !twice).then_some(qfis)
}

/// The emulated radio protects user data wherever it is asked for (TS 38.413 §9.3.1.59).
fn security_result(wanted: &SecurityIndication) -> SecurityResult {
    let integrity = match wanted.integrity_protection_indication {
        IntegrityProtectionIndication::NotNeeded => IntegrityProtectionResult::NotPerformed,
        _ => IntegrityProtectionResult::Performed,
    };
    let confidentiality = match wanted.confidentiality_protection_indication {
        ConfidentialityProtectionIndication::NotNeeded => ConfidentialityProtectionResult::NotPerformed,
        _ => ConfidentialityProtectionResult::Performed,
    };
    SecurityResult::new(integrity, confidentiality)
}
