//! Messages of handovers by hand (TS 38.413 §8.4), as a source or a target would write them.

use std::net::Ipv4Addr;

use whimbrel_ids::{
    AmfUeNgapId, GlobalGnbId, NrCellId, PduSessionId, PlmnId, Qfi, RanUeNgapId, Tac, Tai, Teid,
};
use whimbrel_ngap::ie::{
    CauseRadioNetwork, DataForwardingAccepted, DirectForwardingPathAvailability, GlobalRanNodeId, GtpTunnel,
    HandoverType, NrCgi, PduSessionResourceItem, QosFlowAcceptedItem, QosFlowItemWithDataForwarding,
    TargetId, TargetRanNodeId, TransportLayerAddress, UeSecurityCapabilities, UpTransportLayerInformation,
    UserLocationInformation, UserLocationInformationNr,
};
use whimbrel_ngap::msg::{
    HandoverCancel, HandoverFailure, HandoverNotify, HandoverRequestAcknowledge, HandoverRequired,
    PathSwitchRequest, UplinkRanStatusTransfer,
};
use whimbrel_ngap::transfer::{
    HandoverRequestAcknowledgeTransfer, HandoverRequiredTransfer, PathSwitchRequestTransfer,
};
use whimbrel_ngap::{Message, ProcedureCode};

use crate::mutate::Pdu;
use crate::rng::Rng;

/// Whether the message has a new RAN UE NGAP ID, different from the serving gNB's.
pub(crate) fn has_new_id(pdu: &Pdu) -> bool {
    // PATH SWITCH REQUEST, and the acknowledgement of HANDOVER REQUEST (TS 38.413 §9.4.7).
    let code = ProcedureCode(pdu.head[1]);
    code == ProcedureCode::PATH_SWITCH_REQUEST
        || (pdu.head[0] == 0x20 && code == ProcedureCode::HANDOVER_RESOURCE_ALLOCATION)
}

/// One of them. Names of the UE are put in by the caller.
pub(crate) fn message(rng: &mut Rng, to: GlobalGnbId, near: u8) -> Vec<u8> {
    let amf = AmfUeNgapId::new(1).expect("one is a name");
    let ran = RanUeNgapId(u32::from(near) + rng.below(4) as u32);
    let sessions: Vec<u8> = (0..=rng.below(3)).map(|_| 1 + rng.below(4) as u8).collect();
    let cause = CauseRadioNetwork::HandoverDesirableForRadioReason;
    let m: Message = match rng.below(9) {
        0 | 1 => {
            let list = sessions.iter().map(|&n| to_switch(rng, n)).collect();
            let mut m = PathSwitchRequest::new(ran, amf, list);
            m.user_location_information = Some(location(rng));
            m.ue_security_capabilities = Some(UeSecurityCapabilities::new(0xe000, 0xe000, 0xe000, 0xe000));
            m.into()
        }
        2 | 3 => required(rng, amf, ran, to, &sessions).into(),
        4 => {
            let mut m = HandoverRequestAcknowledge::new(amf, ran, rng.octets(20));
            m.pdu_session_resource_admitted_list = sessions.iter().map(|&n| admitted(rng, n)).collect();
            m.into()
        }
        5 => HandoverFailure::new(amf, cause.into()).into(),
        6 => {
            let mut m = HandoverNotify::new(amf, ran);
            m.user_location_information = Some(location(rng));
            m.into()
        }
        7 => HandoverCancel::new(amf, ran, cause.into()).into(),
        _ => UplinkRanStatusTransfer::new(amf, ran, rng.octets(16)).into(),
    };
    let mut octets = Vec::new();
    m.encode(&mut octets);
    octets
}

fn required(
    rng: &mut Rng,
    amf: AmfUeNgapId,
    ran: RanUeNgapId,
    to: GlobalGnbId,
    sessions: &[u8],
) -> HandoverRequired {
    let target = TargetId::TargetRanNodeId(TargetRanNodeId::new(GlobalRanNodeId::GlobalGnbId(to), tai(rng)));
    let cause = CauseRadioNetwork::HandoverDesirableForRadioReason.into();
    let item = |&n: &u8| PduSessionResourceItem::new(psi(n), HandoverRequiredTransfer::new().to_vec());
    let list = sessions.iter().map(item).collect();
    let mut m = HandoverRequired::new(amf, ran, HandoverType::Intra5gs, cause, target, list, rng.octets(40));
    if rng.once_in(2) {
        m.direct_forwarding_path_availability = Some(DirectForwardingPathAvailability::DirectPathAvailable);
    }
    m
}

fn psi(n: u8) -> PduSessionId {
    PduSessionId::new(n).expect("one of 1 to 15")
}

fn tai(rng: &mut Rng) -> Tai {
    let tac = if rng.once_in(10) { 9 } else { 1 };
    Tai { plmn: PlmnId::TEST, tac: Tac::new(tac).expect("24 bits hold it") }
}

fn location(rng: &mut Rng) -> UserLocationInformation {
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(0x20).expect("36 bits hold it"));
    UserLocationInformation::UserLocationInformationNr(UserLocationInformationNr::new(cell, tai(rng)))
}

fn tunnel(rng: &mut Rng) -> UpTransportLayerInformation {
    let address = Ipv4Addr::new(127, 0, 2, 1 + rng.below(3) as u8);
    let teid = Teid(rng.below(64) as u32);
    UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(TransportLayerAddress::V4(address), teid))
}

fn qfi(rng: &mut Rng) -> Qfi {
    Qfi::new(if rng.once_in(8) { rng.below(64) as u8 } else { 1 }).expect("six bits hold it")
}

fn to_switch(rng: &mut Rng, n: u8) -> PduSessionResourceItem {
    let flow = QosFlowAcceptedItem::new(qfi(rng));
    PduSessionResourceItem::new(psi(n), PathSwitchRequestTransfer::new(tunnel(rng), vec![flow]).to_vec())
}

fn admitted(rng: &mut Rng, n: u8) -> PduSessionResourceItem {
    let mut flow = QosFlowItemWithDataForwarding::new(qfi(rng));
    let forwarded = rng.once_in(2);
    flow.data_forwarding_accepted = forwarded.then_some(DataForwardingAccepted::DataForwardingAccepted);
    let mut transfer = HandoverRequestAcknowledgeTransfer::new(tunnel(rng), vec![flow]);
    transfer.dl_forwarding_up_tnl_information = forwarded.then(|| tunnel(rng));
    PduSessionResourceItem::new(psi(n), transfer.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_read_by_the_codec() {
        let mut rng = Rng::new(3);
        let to = GlobalGnbId::new(PlmnId::TEST, 16, 28).expect("28 bits hold it");
        for _ in 0..1000 {
            let octets = message(&mut rng, to, 7);
            assert!(Message::decode(&octets).is_ok(), "{octets:02x?}");
            assert!(Pdu::parse(&octets).is_some());
        }
    }
}
