//! The messages of registration and session with values chosen by hand: the octets are pycrate 0.8.1's for the same values.

use std::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{
    AmfId, AmfUeNgapId, FiveQi, GlobalGnbId, Guami, NrCellId, PduSessionId, PlmnId, Qfi, RanUeNgapId, SNssai,
    STmsi, Tac, Tai, Teid, Tmsi,
};
use whimbrel_ngap::*;

const NG_SETUP_REQUEST: &str = "00150035000004001b00080099f90710001234005240070200676e622d310066001200000000070099f9\
    070001000880400000ab0015400120";
const INITIAL_UE_MESSAGE: &str = "000f4046000007005500048001020300260005047e004179007900135099f907123456789099f90700\
    0007e1234567005a400120001a0007155a80deadbeef0003400255400070400100";
const SETUP_REQUEST_TRANSFER: &str = "0000050082000a0c3b9aca003002faf080008b001a09f00a00000120010db80000000000000000\
    00000001cafe00010086000120008a000208800088001b04010000091c002400000105404001f4002001f7e810fa0010fde8";
const INITIAL_CONTEXT_SETUP_REQUEST: &str = "000e0080f300000c000a0006800102030405005500020007006e000a0c77359400300\
    5f5e100001c00070099f90702556a00470065004005027e0240200000ab590000050082000a0c3b9aca003002faf080008b001a09f00a0000\
    0120010db8000000000000000000000001cafe00010086000120008a000208800088001b04010000091c002400000105404001f4002001f7e\
    810fa0010fde80000000502010000ab007700091c0006000600008000005e0020000102030405060708090a0b0c0d0e0f1011121314151617\
    18191a1b1c1d1e1f002440040099f9070075400403010203002240081122334455ff001100264004037e0201";

fn octets(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[track_caller]
fn same(message: impl Into<Message>, hex: &str) {
    let message = message.into();
    assert_eq!(Message::decode(&octets(hex)).as_ref(), Ok(&message));
    assert_eq!(message.to_vec(), octets(hex));
}

fn plmn() -> PlmnId {
    "999/70".parse().unwrap()
}

fn slice() -> SNssai {
    "1-0000ab".parse().unwrap()
}

fn tai() -> Tai {
    Tai { plmn: plmn(), tac: Tac::new(7).unwrap() }
}

fn session() -> PduSessionResourceSetupRequestTransfer {
    let tunnel = GtpTunnel::new(
        TransportLayerAddress::V4V6(
            Ipv4Addr::new(10, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        ),
        Teid(0xcafe_0001),
    );
    let flow = |qfi, five_qi, arp, gbr| {
        let characteristics =
            QosCharacteristics::NonDynamic5qi(NonDynamic5qiDescriptor::new(FiveQi(five_qi)));
        let mut parameters = QosFlowLevelQosParameters::new(characteristics, arp);
        parameters.gbr_qos_information = gbr;
        QosFlowSetupRequestItem::new(Qfi::new(qfi).unwrap(), parameters)
    };
    let low = AllocationAndRetentionPriority::new(
        8,
        PreEmptionCapability::ShallNotTriggerPreEmption,
        PreEmptionVulnerability::NotPreEmptable,
    );
    let high = AllocationAndRetentionPriority::new(
        2,
        PreEmptionCapability::MayTriggerPreEmption,
        PreEmptionVulnerability::PreEmptable,
    );
    PduSessionResourceSetupRequestTransfer {
        pdu_session_aggregate_maximum_bit_rate: Some(PduSessionAggregateMaximumBitRate::new(
            1_000_000_000,
            50_000_000,
        )),
        security_indication: Some(SecurityIndication::new(
            IntegrityProtectionIndication::NotNeeded,
            ConfidentialityProtectionIndication::Preferred,
        )),
        ..PduSessionResourceSetupRequestTransfer::new(
            UpTransportLayerInformation::GtpTunnel(tunnel),
            PduSessionType::Ipv4v6,
            vec![
                flow(1, 9, low, None),
                flow(2, 1, high, Some(GbrQosInformation::new(128_000, 129_000, 64_000, 65_000))),
            ],
        )
    }
}

fn ng_setup_request_of(plmn: PlmnId) -> NgSetupRequest {
    let gnb = GlobalGnbId::new(plmn, 0x1234, 24).unwrap();
    let plmns = vec![BroadcastPlmnItem::new(plmn, vec![SNssai::sst(1), slice()])];
    let areas = vec![SupportedTaItem::new(Tac::new(7).unwrap(), plmns)];
    let mut m = NgSetupRequest::new(GlobalRanNodeId::GlobalGnbId(gnb), areas, PagingDrx::V64);
    m.ran_node_name = Some("gnb-1".into());
    m
}

#[test] // TS 38.413 §9.2.6.1
fn ng_setup_request() {
    same(ng_setup_request_of(plmn()), NG_SETUP_REQUEST);
}

#[test] // TS 38.413 §9.3.3.5: the order of digits is not that of NAS, which would have 130062
fn plmn_identity_with_an_mnc_of_three_digits() {
    let request = ng_setup_request_of("310/260".parse().unwrap());
    same(request.clone(), &NG_SETUP_REQUEST.replace("99f907", "132006"));
    let request = Message::from(request);
    let mut fast = Vec::new();
    request.encode_in(TransferSyntax::Fastwire, &mut fast);
    assert!(fast.windows(3).any(|o| o == [0x13, 0x20, 0x06]));
    assert_eq!(Message::decode(&fast), Ok(request));
}

#[test] // TS 38.413 §9.2.5.1
fn initial_ue_message() {
    let cell = NrCgi::new(plmn(), NrCellId::new(0x1_2345_6789).unwrap());
    let mut location = UserLocationInformationNr::new(cell, tai());
    location.time_stamp = Some([0xe1, 0x23, 0x45, 0x67]);
    let mut m = InitialUeMessage::new(
        RanUeNgapId(0x10203),
        vec![0x7e, 0x00, 0x41, 0x79],
        UserLocationInformation::UserLocationInformationNr(location),
        RrcEstablishmentCause::MoData,
    );
    m.five_g_s_tmsi = Some(STmsi { set: 0x155, pointer: 0x2a, tmsi: Tmsi(0xdead_beef) });
    m.amf_set_id = Some(0x155);
    m.ue_context_request = Some(UeContextRequest::Requested);
    let peek = peek(&octets(INITIAL_UE_MESSAGE)).unwrap();
    assert_eq!((peek.ran_ue_ngap_id, peek.five_g_s_tmsi), (Some(m.ran_ue_ngap_id), m.five_g_s_tmsi));
    same(m, INITIAL_UE_MESSAGE);
}

#[test] // TS 38.413 §9.3.4.1
fn pdu_session_resource_setup_request_transfer() {
    let session = session();
    assert_eq!(
        PduSessionResourceSetupRequestTransfer::decode(&octets(SETUP_REQUEST_TRANSFER)),
        Ok(session.clone())
    );
    assert_eq!(session.to_vec(), octets(SETUP_REQUEST_TRANSFER));
}

#[test] // TS 38.413 §9.2.2.1
fn initial_context_setup_request() {
    let guami = Guami { plmn: plmn(), amf_id: AmfId::new(2, 0x155, 0x2a).unwrap() };
    let mut item =
        PduSessionResourceSetupItemCxtReq::new(PduSessionId::new(5).unwrap(), slice(), session().to_vec());
    item.nas_pdu = Some(vec![0x7e, 2]);
    same(
        InitialContextSetupRequest {
            ue_aggregate_maximum_bit_rate: Some(UeAggregateMaximumBitRate::new(2_000_000_000, 100_000_000)),
            pdu_session_resource_setup_list_cxt_req: vec![item],
            mobility_restriction_list: Some(MobilityRestrictionList::new(plmn())),
            ue_radio_capability: Some(vec![1, 2, 3]),
            masked_imeisv: Some(0x1122_3344_55ff_0011),
            nas_pdu: Some(vec![0x7e, 2, 1]),
            ..InitialContextSetupRequest::new(
                AmfUeNgapId::new(0x01_0203_0405).unwrap(),
                RanUeNgapId(7),
                guami,
                vec![slice()],
                UeSecurityCapabilities::new(0xe000, 0x6000, 0xc000, 0x2000),
                SecurityKey(std::array::from_fn(|i| i as u8)),
            )
        },
        INITIAL_CONTEXT_SETUP_REQUEST,
    );
}

#[test] // A key in a log line gives a UE away
fn keys_hide_in_debug() {
    let Ok(Message::InitialContextSetupRequest(m)) = Message::decode(&octets(INITIAL_CONTEXT_SETUP_REQUEST))
    else {
        panic!()
    };
    assert!(format!("{m:?}").contains("SecurityKey(…)"));
}

#[test] // TS 38.413 §9.3.1.2
fn causes_print_in_the_words_of_the_standard() {
    let cause: Cause = CauseRadioNetwork::UserInactivity.into();
    assert_eq!(cause.to_string(), "radioNetwork user-inactivity");
}

#[test] // TS 38.413 §8.11.4.2: the octets of pycrate
fn cell_traffic_trace() {
    let cell = NrCgi::new(plmn(), NrCellId::new(0x1_2345_6789).unwrap());
    let collector = TransportLayerAddress::V4(Ipv4Addr::new(10, 0, 0, 1));
    let (amf, ran) = (AmfUeNgapId::new(7).unwrap(), RanUeNgapId(9));
    let m = CellTrafficTrace::new(amf, ran, [1, 2, 3, 4, 5, 6, 7, 8], NgranCgi::NrCgi(cell), collector);
    same(
        m,
        "00024032000005000a00020007005500020009002c40080102030405060708002b40090099f9071234567890006d40060f800a000001",
    );
}

#[test] // TS 38.413 §9.2.2.14 to §9.2.2.19: the octets of pycrate
fn suspension_and_resumption() {
    let (amf, ran) = (AmfUeNgapId::new(7).unwrap(), RanUeNgapId(9));
    let psi = |n| PduSessionId::new(n).unwrap();
    let unspecified = || Cause::Misc(CauseMisc::Unspecified);
    let mut suspend = UeContextSuspendRequest::new(amf, ran);
    suspend.pdu_session_resource_suspend_list_sus_req = vec![PduSessionResourceItem::new(psi(1), vec![0])];
    same(suspend, "003b0018000003000a0002000700550002000900e700050000010100");
    same(
        UeContextSuspendFailure::new(amf, ran, unspecified()),
        "403b0014000003000a40020007005540020009000f40018a",
    );
    let mut resume = UeContextResumeRequest::new(amf, ran, RrcEstablishmentCause::MoData);
    resume.pdu_session_resource_resume_list_res_req = vec![PduSessionResourceItem::new(psi(1), vec![0])];
    resume.pdu_session_resource_failed_to_resume_list_res_req =
        vec![PduSessionResourceFailedToResumeItem::new(psi(2), unspecified())];
    same(resume, "003a0025000005000a0002000700550002000900ed40012000e80005000001010000e500040000028a");
    same(
        UeContextResumeFailure::new(amf, ran, unspecified()),
        "403a0014000003000a40020007005540020009000f40018a",
    );
}
