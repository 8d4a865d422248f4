//! The scripted core's handovers: what TS 23.502 §4.9.1 has an AMF and an SMF do, for one UE.

use std::net::Ipv4Addr;

use whimbrel_ids::{PduSessionId, RanUeNgapId, Teid};
use whimbrel_ngap as ngap;
use whimbrel_ngap::{Message, PduSessionResourceItem};
use whimbrel_security::{KAmf, KGnb, Nh};

use crate::fake_core::{Core, SLICE, capabilities, guami, transfer};

/// What the core knows of a UE's moves.
#[derive(Default)]
pub struct Mobility {
    chain: Option<(KAmf, Nh, u8)>,
    /// The gNB's tunnels of the sessions.
    pub tunnels: Tunnels,
    /// At the target of an N2 handover: stream and context.
    target: Option<(usize, u16, RanUeNgapId, Tunnels)>,
    pub required: Option<ngap::HandoverRequired>,
    pub path_switch: Option<ngap::PathSwitchRequest>,
    pub notified: bool,
    pub cancelled: Option<ngap::Cause>,
}

type Tunnels = Vec<(PduSessionId, Teid)>;
pub type Outs = Vec<(usize, u16, Message)>;

fn tunnel(t: &ngap::UpTransportLayerInformation) -> Teid {
    let ngap::UpTransportLayerInformation::GtpTunnel(tunnel) = t;
    tunnel.gtp_teid
}

impl Mobility {
    pub fn begin(&mut self, k_amf: &KAmf, k_gnb: &KGnb) {
        self.chain = Some((k_amf.clone(), k_amf.first_nh(k_gnb), 1));
    }

    /// TS 33.501 §6.9.2.3.2: the count goes up by one, and a fresh NH belongs to it.
    fn next(&mut self, wrong: bool) -> ngap::SecurityContext {
        let (k_amf, nh, ncc) = self.chain.as_mut().unwrap();
        *nh = k_amf.next_nh(nh);
        *ncc = (*ncc + 1) % 8;
        let mut octets = *nh.octets();
        octets[0] ^= u8::from(wrong);
        ngap::SecurityContext::new(*ncc, ngap::SecurityKey(octets))
    }
}

impl Core {
    /// What the core does about a message of mobility, if it is one.
    pub fn mobility(&mut self, from: usize, stream: u16, message: &Message) -> Option<Outs> {
        if self.knobs.silent {
            return None;
        }
        let out = match message {
            Message::PathSwitchRequest(m) => self.path_switch(from, stream, m),
            Message::HandoverRequired(m) => self.handover_required(m),
            Message::HandoverRequestAcknowledge(m) => self.acknowledged(from, stream, m),
            Message::HandoverFailure(m) => {
                let (amf, ran) = (self.amf_ue_ngap_id, self.ran_ue_ngap_id);
                let failure = ngap::HandoverPreparationFailure::new(amf, ran, m.cause.clone());
                vec![(self.serving, self.stream, failure.into())]
            }
            Message::UplinkRanStatusTransfer(m) => {
                let (to, stream, ran, _) = self.mobility.target.clone().unwrap();
                let mut container = m.ran_status_transfer_transparent_container.clone();
                container[3] ^= u8::from(self.knobs.spoil_containers);
                let m = ngap::DownlinkRanStatusTransfer::new(self.amf_ue_ngap_id, ran, container);
                vec![(to, stream, m.into())]
            }
            Message::HandoverNotify(_) => self.notified(from, stream),
            Message::HandoverCancel(m) => self.cancel(m),
            // A gNB that is in service takes part; the second one's setup is answered like the first one's.
            _ => return None,
        };
        self.ngap.push(message.name());
        Some(out)
    }

    fn path_switch(&mut self, from: usize, stream: u16, m: &ngap::PathSwitchRequest) -> Outs {
        self.mobility.path_switch = Some(m.clone());
        assert_eq!(m.source_amf_ue_ngap_id, self.amf_ue_ngap_id);
        let amf = self.amf_ue_ngap_id;
        if self.knobs.refuse_path_switch {
            let failure = ngap::PathSwitchRequestFailure::new(amf, m.ran_ue_ngap_id);
            return vec![(from, stream, failure.into())];
        }
        (self.serving, self.stream, self.ran_ue_ngap_id) = (from, stream, m.ran_ue_ngap_id);
        let security = self.mobility.next(self.knobs.wrong_next_hop);
        let mut answer =
            ngap::PathSwitchRequestAcknowledge::new(amf, m.ran_ue_ngap_id, security, vec![SLICE]);
        let received = m.ue_security_capabilities.as_ref();
        answer.ue_security_capabilities = match self.knobs.believe_capabilities {
            true => None,
            false => (received != Some(&capabilities())).then(capabilities),
        };
        self.mobility.tunnels.clear();
        for item in &m.pdu_session_resource_to_be_switched_dl_list {
            let id = item.pdu_session_id;
            let transfer = ngap::PathSwitchRequestTransfer::decode(&item.transfer).unwrap();
            if self.knobs.release_in_handover.contains(&id) {
                let cause = ngap::Cause::RadioNetwork(ngap::CauseRadioNetwork::Unspecified);
                let transfer = ngap::PathSwitchRequestUnsuccessfulTransfer::new(cause).to_vec();
                let released = PduSessionResourceItem::new(id, transfer);
                answer.pdu_session_resource_released_list_ps_ack.push(released);
                continue;
            }
            self.mobility.tunnels.push((id, tunnel(&transfer.dl_ngu_up_tnl_information)));
            let switched = ngap::PathSwitchRequestAcknowledgeTransfer::new().to_vec();
            answer.pdu_session_resource_switched_list.push(PduSessionResourceItem::new(id, switched));
        }
        vec![(from, stream, answer.into())]
    }

    fn handover_required(&mut self, m: &ngap::HandoverRequired) -> Outs {
        self.mobility.required = Some(m.clone());
        let security = self.mobility.next(self.knobs.wrong_next_hop);
        let cause = m.cause.clone();
        let item = |item: &PduSessionResourceItem| {
            let (id, transfer) = (item.pdu_session_id, transfer(self.index));
            ngap::PduSessionResourceSetupItemHoReq::new(id, SLICE, transfer)
        };
        let kept =
            |item: &&PduSessionResourceItem| !self.knobs.release_in_handover.contains(&item.pdu_session_id);
        let sessions = m.pdu_session_resource_list_ho_rqd.iter().filter(kept).map(item).collect();
        let mut container = m.source_to_target_transparent_container.clone();
        container[2] ^= u8::from(self.knobs.spoil_containers);
        let request = ngap::HandoverRequest::new(
            self.amf_ue_ngap_id,
            ngap::HandoverType::Intra5gs,
            cause,
            ngap::UeAggregateMaximumBitRate::new(1_000_000, 1_000_000),
            capabilities(),
            security,
            sessions,
            vec![SLICE],
            container,
            guami(),
        );
        vec![(1 - self.serving, 3, request.into())]
    }

    fn acknowledged(&mut self, from: usize, stream: u16, m: &ngap::HandoverRequestAcknowledge) -> Outs {
        let mut container = m.target_to_source_transparent_container.clone();
        container[4] ^= u8::from(self.knobs.spoil_containers);
        let (amf, ran) = (self.amf_ue_ngap_id, self.ran_ue_ngap_id);
        let mut command = ngap::HandoverCommand::new(amf, ran, ngap::HandoverType::Intra5gs, container);
        let mut tunnels = Vec::new();
        for item in &m.pdu_session_resource_admitted_list {
            let transfer = ngap::HandoverRequestAcknowledgeTransfer::decode(&item.transfer).unwrap();
            tunnels.push((item.pdu_session_id, tunnel(&transfer.dl_ngu_up_tnl_information)));
            let mut forwarding = ngap::HandoverCommandTransfer::new();
            forwarding.dl_forwarding_up_tnl_information = match self.knobs.indirect {
                true => {
                    let upf = ngap::GtpTunnel::new(Ipv4Addr::new(127, 0, 0, 9).into(), Teid(0x99));
                    Some(ngap::UpTransportLayerInformation::GtpTunnel(upf))
                }
                false => transfer.dl_forwarding_up_tnl_information,
            };
            let item = PduSessionResourceItem::new(item.pdu_session_id, forwarding.to_vec());
            command.pdu_session_resource_handover_list.push(item);
        }
        let required = self.mobility.required.as_ref().unwrap();
        for item in &required.pdu_session_resource_list_ho_rqd {
            let id = item.pdu_session_id;
            if !tunnels.iter().any(|(t, _)| *t == id) {
                let cause = ngap::Cause::RadioNetwork(ngap::CauseRadioNetwork::Unspecified);
                let transfer = ngap::HandoverPreparationUnsuccessfulTransfer::new(cause).to_vec();
                let item = PduSessionResourceItem::new(id, transfer);
                command.pdu_session_resource_to_release_list_ho_cmd.push(item);
            }
        }
        self.mobility.target = Some((from, stream, m.ran_ue_ngap_id, tunnels));
        vec![(self.serving, self.stream, command.into())]
    }

    fn notified(&mut self, from: usize, stream: u16) -> Outs {
        let (to, _, ran, tunnels) = self.mobility.target.take().unwrap();
        assert_eq!(to, from);
        self.mobility.notified = true;
        self.mobility.tunnels = tunnels;
        let pair = ngap::UeNgapIdPair::new(self.amf_ue_ngap_id, self.ran_ue_ngap_id);
        let cause = ngap::Cause::RadioNetwork(ngap::CauseRadioNetwork::SuccessfulHandover);
        let release = ngap::UeContextReleaseCommand::new(ngap::UeNgapIds::UeNgapIdPair(pair), cause);
        let old = (self.serving, self.stream, release.into());
        (self.serving, self.stream, self.ran_ue_ngap_id) = (from, stream, ran);
        vec![old]
    }

    fn cancel(&mut self, m: &ngap::HandoverCancel) -> Outs {
        self.mobility.cancelled = Some(m.cause.clone());
        let (amf, ran) = (self.amf_ue_ngap_id, self.ran_ue_ngap_id);
        let mut out =
            vec![(self.serving, self.stream, Message::from(ngap::HandoverCancelAcknowledge::new(amf, ran)))];
        if let Some((to, stream, ran, _)) = self.mobility.target.take() {
            let pair = ngap::UeNgapIdPair::new(amf, ran);
            let ids = ngap::UeNgapIds::UeNgapIdPair(pair);
            out.push((to, stream, ngap::UeContextReleaseCommand::new(ids, m.cause.clone()).into()));
        }
        out
    }
}
