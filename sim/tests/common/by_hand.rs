//! Two gNBs, of which a test drives the second by hand.

use std::net::{IpAddr, Ipv4Addr};

use whimbrel_control::smf::UpState;
use whimbrel_control::{Connection, UeContext};
use whimbrel_gtpu::Gtpu;
use whimbrel_ids::{
    AmfUeNgapId, GlobalGnbId, NrCellId, PduSessionId, PlmnId, Qfi, RanUeNgapId, Tac, Tai, Teid,
};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    CauseRadioNetwork, DataForwardingAccepted, DirectForwardingPathAvailability, GlobalRanNodeId, GtpTunnel,
    HandoverType, NrCgi, PduSessionResourceItem, QosFlowAcceptedItem, QosFlowItemWithDataForwarding,
    TargetId, TargetRanNodeId, TransportLayerAddress, UeSecurityCapabilities, UpTransportLayerInformation,
    UserLocationInformation, UserLocationInformationNr,
};
use whimbrel_ngap::msg::{
    HandoverCommand, HandoverNotify, HandoverRequest, HandoverRequestAcknowledge, HandoverRequired,
    PathSwitchRequest,
};
use whimbrel_ngap::transfer::{
    HandoverRequestAcknowledgeTransfer, HandoverRequiredTransfer, PathSwitchRequestTransfer,
};
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, ue_config};
use whimbrel_user::{Destination, DnIndex, Origin};

use super::{SECOND, gnb_config, network};

/// The gNB at which the UE registers; it is an emulated one.
pub(crate) const SOURCE: GnbIndex = GnbIndex(0);
/// The gNB to which the UE goes.
pub(crate) const TARGET: GnbIndex = GnbIndex(1);
/// What the second gNB calls the UE.
pub(crate) const RAN_ID: RanUeNgapId = RanUeNgapId(4711);
/// Where the second gNB has its tunnels: session `n` at this TEID plus `n`.
pub(crate) const TUNNELS: u32 = 0x7700_0000;
/// The second gNB's N3 address.
pub(crate) const TARGET_N3: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 2);

/// A registered UE with so many sessions at the first of two gNBs; the second is driven by hand.
pub(crate) fn two_gnbs(seed: u64, sessions: usize) -> (Sim, UeIndex) {
    let mut net = network(seed);
    net.add_gnb(gnb_config(1));
    net.add_gnb(gnb_config(2));
    let ue = net.add_ue(SOURCE, ue_config(1));
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    for _ in 0..sessions {
        let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
        net.command(ue, UeCommand::EstablishSession(request));
        net.settle(SECOND);
    }
    net.take_over(TARGET);
    assert_eq!(context(&net).sessions.values().filter(|s| s.up == UpState::Active).count(), sessions);
    (net, ue)
}

/// The only UE.
pub(crate) fn context(net: &Sim) -> &UeContext {
    net.cta().contexts().next().expect("a UE")
}

pub(crate) fn connection(net: &Sim) -> &Connection {
    context(net).amf.connection.as_ref().expect("a connection")
}

pub(crate) fn psi(n: u8) -> PduSessionId {
    PduSessionId::new(n).expect("a PDU session identity")
}

/// The UE's security capabilities as its first gNB got them.
pub(crate) fn capabilities(net: &Sim) -> UeSecurityCapabilities {
    let c = context(net).amf.ue_security_capability.expect("received at registration");
    let shifted = |map: u8| u16::from(map << 1) << 8;
    UeSecurityCapabilities::new(shifted(c.nea()), shifted(c.nia()), shifted(c.eea()), shifted(c.eia()))
}

pub(crate) fn octets(message: impl Into<Message>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.into().encode(&mut octets);
    octets
}

/// The second gNB's end of a session's tunnel.
pub(crate) fn tunnel(n: u8) -> UpTransportLayerInformation {
    let teid = Teid(TUNNELS + u32::from(n));
    UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(TransportLayerAddress::V4(TARGET_N3), teid))
}

pub(crate) fn location(tac: u32) -> UserLocationInformation {
    let tai = Tai { plmn: PlmnId::TEST, tac: Tac::new(tac).expect("24 bits") };
    let cell = NrCgi::new(PlmnId::TEST, NrCellId::new(0x20).expect("36 bits"));
    UserLocationInformation::UserLocationInformationNr(UserLocationInformationNr::new(cell, tai))
}

/// A session of the list of those whose path is to be switched.
pub(crate) fn to_switch(n: u8) -> PduSessionResourceItem {
    let flow = QosFlowAcceptedItem::new(Qfi::new(1).expect("a QFI"));
    PduSessionResourceItem::new(psi(n), PathSwitchRequestTransfer::new(tunnel(n), vec![flow]).to_vec())
}

/// PATH SWITCH REQUEST of the second gNB for these sessions.
pub(crate) fn path_switch_request(net: &Sim, sessions: &[u8]) -> PathSwitchRequest {
    let list = sessions.iter().map(|&n| to_switch(n)).collect();
    let mut m = PathSwitchRequest::new(RAN_ID, connection(net).amf_ue_ngap_id, list);
    m.user_location_information = Some(location(1));
    m.ue_security_capabilities = Some(capabilities(net));
    m
}

/// One end of a tunnel.
pub(crate) type End = (IpAddr, Teid);

/// A packet for a session's UE: the tunnel that the UPF sends it into, and what the UPF sent before.
pub(crate) fn downlink(net: &mut Sim, n: u8) -> (Option<End>, Vec<(End, u8)>) {
    let address = context(net).sessions.get(&psi(n)).and_then(|s| s.address.ipv4).expect("an address");
    let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
    packet.extend(address.octets());
    packet.extend([0x10, 0, 0x10, 1, 0, 12, 0, 0, 1, 2, 3, 4]);
    let sent = net.packet(Origin::N6 { dn: DnIndex(0) }, &packet);
    let mut sent: Vec<_> = sent
        .into_iter()
        .filter_map(|(to, octets)| {
            let Destination::N3 { peer, .. } = to else { return None };
            let m = Gtpu::parse(&octets).ok()?;
            Some(((peer.ip(), m.teid), m.message_type))
        })
        .collect();
    let last = sent.pop_if(|(_, kind)| *kind == G_PDU).map(|(to, _)| to);
    (last, sent)
}

/// Message types of TS 29.281 §6.1.
pub(crate) const G_PDU: u8 = 255;
pub(crate) const END_MARKER: u8 = 254;

/// The tunnel of a session at its gNB, as the SMF has it.
pub(crate) fn an(net: &Sim, n: u8) -> Option<End> {
    context(net).sessions.get(&psi(n)).and_then(|s| s.an.as_deref()).map(|t| (t.address, t.teid))
}

/// The second gNB's tunnel of a session.
pub(crate) fn at_target(n: u8) -> Option<End> {
    Some((TARGET_N3.into(), Teid(TUNNELS + u32::from(n))))
}

/// HANDOVER REQUIRED of the serving gNB, to the second one, for these sessions.
pub(crate) fn handover_required(net: &Sim, sessions: &[u8]) -> HandoverRequired {
    let c = connection(net);
    let tai = Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits") };
    let gnb = GlobalRanNodeId::GlobalGnbId(GlobalGnbId::new(PlmnId::TEST, 2, 28).expect("28 bits"));
    let transfer = HandoverRequiredTransfer::new().to_vec();
    let item = |&n: &u8| PduSessionResourceItem::new(psi(n), transfer.clone());
    HandoverRequired::new(
        c.amf_ue_ngap_id,
        c.ran_ue_ngap_id,
        HandoverType::Intra5gs,
        CauseRadioNetwork::HandoverDesirableForRadioReason.into(),
        TargetId::TargetRanNodeId(TargetRanNodeId::new(gnb, tai)),
        sessions.iter().map(item).collect(),
        SOURCE_TO_TARGET.to_vec(),
    )
}

/// With direct forwarding.
pub(crate) fn directly(mut m: HandoverRequired) -> HandoverRequired {
    m.direct_forwarding_path_availability = Some(DirectForwardingPathAvailability::DirectPathAvailable);
    m
}

/// What source and target say to each other through the core.
pub(crate) const SOURCE_TO_TARGET: &[u8] = &[1, 2, 3, 4];
pub(crate) const TARGET_TO_SOURCE: &[u8] = &[9, 8, 7];

/// Where the target takes what the source forwards: its tunnels plus this.
pub(crate) const FORWARDED: u8 = 100;

/// A session that the target admits, with or without forwarding.
pub(crate) fn admitted(n: u8, forwarding: bool) -> PduSessionResourceItem {
    let mut flow = QosFlowItemWithDataForwarding::new(Qfi::new(1).expect("a QFI"));
    flow.data_forwarding_accepted = forwarding.then_some(DataForwardingAccepted::DataForwardingAccepted);
    let mut transfer = HandoverRequestAcknowledgeTransfer::new(tunnel(n), vec![flow]);
    transfer.dl_forwarding_up_tnl_information = forwarding.then(|| tunnel(FORWARDED + n));
    PduSessionResourceItem::new(psi(n), transfer.to_vec())
}

/// HANDOVER REQUEST as the target hears it.
pub(crate) fn request(net: &mut Sim) -> Box<HandoverRequest> {
    let heard = net.take_ngap(TARGET);
    match heard.as_slice() {
        [Message::HandoverRequest(m)] => m.clone().into(),
        other => panic!("{other:?}"),
    }
}

/// HANDOVER REQUEST ACKNOWLEDGE of the target.
pub(crate) fn acknowledgement(
    amf_id: AmfUeNgapId,
    list: Vec<PduSessionResourceItem>,
) -> HandoverRequestAcknowledge {
    let mut m = HandoverRequestAcknowledge::new(amf_id, RAN_ID, TARGET_TO_SOURCE.to_vec());
    m.pdu_session_resource_admitted_list = list;
    m
}

/// HANDOVER COMMAND as the source hears it.
pub(crate) fn command(net: &mut Sim) -> Box<HandoverCommand> {
    let heard = net.take_ngap(SOURCE);
    match heard.as_slice() {
        [Message::HandoverCommand(m)] => m.clone().into(),
        other => panic!("{other:?}"),
    }
}

/// HANDOVER NOTIFY of the target.
pub(crate) fn notify(amf_id: AmfUeNgapId) -> HandoverNotify {
    let mut m = HandoverNotify::new(amf_id, RAN_ID);
    m.user_location_information = Some(location(1));
    m
}

/// A gNB says something.
pub(crate) fn say(net: &mut Sim, gnb: GnbIndex, m: impl Into<Message>) {
    net.inject(gnb, &octets(m));
    net.settle(SECOND / 20);
}
