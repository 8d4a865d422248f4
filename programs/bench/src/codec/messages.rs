//! Messages of real procedures, as this core and its gNBs send them: a UE that registers, sets up a session, comes
//! back from idle and moves.

use std::net::Ipv4Addr;

use whimbrel_ids::{
    AmfId, AmfUeNgapId, FiveQi, GlobalGnbId, Guami, NrCellId, PduSessionId, PlmnId, Qfi, RanUeNgapId, SNssai,
    STmsi, Tac, Tai, Teid, Tmsi,
};
use whimbrel_ngap::*;

const AMF: u64 = 0x01_0000_2a17;
const RAN: RanUeNgapId = RanUeNgapId(0x0001_83c4);

/// Some ciphered NAS message of this many octets.
fn nas(octets: usize) -> Vec<u8> {
    let head = [0x7e, 0x02];
    head.into_iter().chain((0_u32..).map(|i| (i * 167 + 13) as u8)).take(octets).collect()
}

/// Values that exist: the constants below are valid.
fn valid<T>(v: Option<T>) -> T {
    v.expect("the constants are valid")
}

fn amf() -> AmfUeNgapId {
    valid(AmfUeNgapId::new(AMF))
}

fn plmn() -> PlmnId {
    valid(PlmnId::from_ngap_octets([0x99, 0xf9, 0x07]))
}

fn guami() -> Guami {
    Guami { plmn: plmn(), amf_id: AmfId::from_octets([0xca, 0x01, 0x41]) }
}

fn slice() -> SNssai {
    SNssai::new(1, Some(0x01_0203))
}

fn location() -> UserLocationInformation {
    let cell = NrCgi::new(plmn(), valid(NrCellId::new(0x1_2345_6010)));
    let tai = Tai { plmn: plmn(), tac: Tac::from_octets([0, 0, 1]) };
    let mut location = UserLocationInformationNr::new(cell, tai);
    location.time_stamp = Some([0xec, 0x12, 0x34, 0x56]);
    UserLocationInformation::UserLocationInformationNr(location)
}

fn capabilities() -> UeSecurityCapabilities {
    UeSecurityCapabilities::new(0xe000, 0xe000, 0xe000, 0xe000)
}

fn ambr() -> UeAggregateMaximumBitRate {
    UeAggregateMaximumBitRate::new(2_000_000_000, 1_000_000_000)
}

fn psi(v: u8) -> PduSessionId {
    valid(PduSessionId::new(v))
}

fn tunnel(teid: u32) -> UpTransportLayerInformation {
    let address = TransportLayerAddress::V4(Ipv4Addr::new(10, 45, 0, 7));
    UpTransportLayerInformation::GtpTunnel(GtpTunnel::new(address, Teid(teid)))
}

/// A PDU Session Resource Setup Request Transfer of one QoS flow.
fn setup_request() -> Vec<u8> {
    let priority = AllocationAndRetentionPriority::new(
        8,
        PreEmptionCapability::ShallNotTriggerPreEmption,
        PreEmptionVulnerability::NotPreEmptable,
    );
    let characteristics = QosCharacteristics::NonDynamic5qi(NonDynamic5qiDescriptor::new(FiveQi(9)));
    let flow =
        QosFlowSetupRequestItem::new(flow(), QosFlowLevelQosParameters::new(characteristics, priority));
    let mut transfer =
        PduSessionResourceSetupRequestTransfer::new(tunnel(7), PduSessionType::Ipv4, vec![flow]);
    transfer.pdu_session_aggregate_maximum_bit_rate =
        Some(PduSessionAggregateMaximumBitRate::new(1_000_000_000, 500_000_000));
    transfer.to_vec()
}

/// What a gNB answers to it.
fn setup_response() -> Vec<u8> {
    let flows = vec![AssociatedQosFlowItem::new(flow())];
    let tunnel = QosFlowPerTnlInformation::new(tunnel(0x1001), flows);
    PduSessionResourceSetupResponseTransfer::new(tunnel).to_vec()
}

fn flow() -> Qfi {
    valid(Qfi::new(1))
}

/// What the target of a handover says of a session whose packets the source passes on.
fn admitted() -> Vec<u8> {
    let mut flow = QosFlowItemWithDataForwarding::new(flow());
    flow.data_forwarding_accepted = Some(DataForwardingAccepted::DataForwardingAccepted);
    let mut transfer = HandoverRequestAcknowledgeTransfer::new(tunnel(0x1002), vec![flow]);
    transfer.dl_forwarding_up_tnl_information = Some(tunnel(0x1003));
    transfer.to_vec()
}

/// The transfer for the source.
fn command() -> Vec<u8> {
    let mut transfer = HandoverCommandTransfer::new();
    transfer.dl_forwarding_up_tnl_information = Some(tunnel(0x1003));
    transfer.qos_flow_to_be_forwarded_list = vec![flow()];
    transfer.to_vec()
}

fn switched() -> Vec<u8> {
    PathSwitchRequestTransfer::new(tunnel(0x1002), vec![QosFlowAcceptedItem::new(flow())]).to_vec()
}

fn acknowledged() -> Vec<u8> {
    let mut transfer = PathSwitchRequestAcknowledgeTransfer::new();
    transfer.ul_ngu_up_tnl_information = Some(tunnel(7));
    transfer.to_vec()
}

fn target() -> TargetId {
    let gnb = valid(GlobalGnbId::new(plmn(), 0x1234, 28));
    let tai = Tai { plmn: plmn(), tac: Tac::from_octets([0, 0, 1]) };
    TargetId::TargetRanNodeId(TargetRanNodeId::new(GlobalRanNodeId::GlobalGnbId(gnb), tai))
}

fn context_setup(sessions: u8) -> InitialContextSetupRequest {
    let mut m = InitialContextSetupRequest::new(
        amf(),
        RAN,
        guami(),
        vec![slice()],
        capabilities(),
        SecurityKey([0x5a; 32]),
    );
    m.masked_imeisv = Some(0x3520_9900_1761_ffff);
    m.nas_pdu = Some(nas(60));
    m.pdu_session_resource_setup_list_cxt_req = (1..=sessions)
        .map(|i| PduSessionResourceSetupItemCxtReq::new(psi(i), slice(), setup_request()))
        .collect();
    if sessions > 0 {
        m.ue_aggregate_maximum_bit_rate = Some(ambr());
        m.ue_radio_capability = Some(nas(180));
    }
    m
}

/// The messages, by the names of the standard.
pub(crate) fn all() -> Vec<(&'static str, Message)> {
    let mut initial = InitialUeMessage::new(RAN, nas(35), location(), RrcEstablishmentCause::MoSignalling);
    initial.five_g_s_tmsi = Some(STmsi { set: 5, pointer: 1, tmsi: Tmsi(0xc0ff_ee01) });
    initial.ue_context_request = Some(UeContextRequest::Requested);

    let mut uplink = UplinkNasTransport::new(amf(), RAN, nas(40));
    uplink.user_location_information = Some(location());

    let mut response = InitialContextSetupResponse::new(amf(), RAN);
    response.pdu_session_resource_setup_list_cxt_res =
        vec![PduSessionResourceItem::new(psi(1), setup_response())];

    let session = PduSessionResourceSetupItemSuReq::new(psi(1), slice(), setup_request());
    let mut setup = PduSessionResourceSetupRequest::new(amf(), RAN, vec![session]);
    setup.ue_aggregate_maximum_bit_rate = Some(ambr());

    let cause = || CauseRadioNetwork::HandoverDesirableForRadioReason.into();
    let direct = DirectForwardingPathAvailability::DirectPathAvailable;
    let mut transfer = HandoverRequiredTransfer::new();
    transfer.direct_forwarding_path_availability = Some(direct);
    let sessions = |transfer: &[u8]| vec![PduSessionResourceItem::new(psi(1), transfer.to_vec())];
    let required = HandoverRequired::new(
        amf(),
        RAN,
        HandoverType::Intra5gs,
        cause(),
        target(),
        sessions(&transfer.to_vec()),
        nas(220),
    );
    let mut granted = HandoverRequestAcknowledge::new(amf(), RAN, nas(120));
    granted.pdu_session_resource_admitted_list = sessions(&admitted());
    let mut commanded = HandoverCommand::new(amf(), RAN, HandoverType::Intra5gs, nas(120));
    commanded.pdu_session_resource_handover_list = sessions(&command());

    let item = |i| PduSessionResourceSetupItemHoReq::new(psi(i), slice(), setup_request());
    let handover = HandoverRequest::new(
        amf(),
        HandoverType::Intra5gs,
        cause(),
        ambr(),
        capabilities(),
        SecurityContext::new(2, SecurityKey([0xa5; 32])),
        vec![item(1), item(2)],
        vec![slice()],
        nas(220),
        guami(),
    );

    let mut path_switch = PathSwitchRequest::new(RAN, amf(), sessions(&switched()));
    path_switch.user_location_information = Some(location());
    path_switch.ue_security_capabilities = Some(capabilities());
    let mut switched_path = PathSwitchRequestAcknowledge::new(
        amf(),
        RAN,
        SecurityContext::new(3, SecurityKey([0x3c; 32])),
        vec![slice()],
    );
    switched_path.pdu_session_resource_switched_list = sessions(&acknowledged());

    let pair = UeNgapIds::UeNgapIdPair(UeNgapIdPair::new(amf(), RAN));
    vec![
        ("INITIAL UE MESSAGE", initial.into()),
        ("DOWNLINK NAS TRANSPORT", DownlinkNasTransport::new(amf(), RAN, nas(42)).into()),
        ("UPLINK NAS TRANSPORT", uplink.into()),
        ("INITIAL CONTEXT SETUP REQUEST", context_setup(0).into()),
        ("INITIAL CONTEXT SETUP REQUEST, one session", context_setup(1).into()),
        ("INITIAL CONTEXT SETUP RESPONSE", response.into()),
        ("PDU SESSION RESOURCE SETUP REQUEST", setup.into()),
        ("HANDOVER REQUIRED", required.into()),
        ("HANDOVER REQUEST, two sessions", handover.into()),
        ("HANDOVER REQUEST ACKNOWLEDGE", granted.into()),
        ("HANDOVER COMMAND", commanded.into()),
        ("PATH SWITCH REQUEST", path_switch.into()),
        ("PATH SWITCH REQUEST ACKNOWLEDGE", switched_path.into()),
        (
            "UE CONTEXT RELEASE COMMAND",
            UeContextReleaseCommand::new(pair, CauseNas::NormalRelease.into()).into(),
        ),
    ]
}
