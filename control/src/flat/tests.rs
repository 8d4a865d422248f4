use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;
use whimbrel_ids::{STmsi, Tmsi};
use whimbrel_nas::ie::{MobileIdentity, NgKsi, RegistrationKind, ServiceType};
use whimbrel_nas::mm::ServiceRequest;
use whimbrel_ngap::ie::CauseRadioNetwork;
use whimbrel_pfcp::ie::{ReportType, UrSeqn, UrrId, UsageReportTrigger, VolumeMeasurement};
use whimbrel_pfcp::msg::SessionReportRequest;
use whimbrel_pfcp::rule::UsageReport;

use super::*;
use crate::config::Config;
use crate::envelope::{Batch, Command, Envelope, Locate, Payload, UeId};
use crate::n14::{
    ForwardedUe, HandedOverSession, N14, N14Body, PreparedResources, Relation, TransferCompletion,
    TransferredUe, UeProof, UeTransferState,
};
use crate::shard::Shard;
use crate::state::{Ambr, AmfContext, Modification, SmContext, UeContext};
use crate::ue_harness::{INTEGRITY, UeHarness, psi, registration_request};
use crate::upf::UpfId;

/// Frames of each version that is read, a line each, as `sim/examples/flat.rs` writes them.
const CHECKPOINTS: [(u16, &str); 1] = [(10, include_str!("testdata/checkpoint.hex"))];
const ENVELOPES: &str = include_str!("testdata/envelope.hex");
const BATCHES: &str = include_str!("testdata/batch.hex");
const CONFIGS: &str = include_str!("testdata/config.hex");

fn frames(hex: &str) -> Vec<Vec<u8>> {
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.lines().map(|line| line.as_bytes().chunks(2).map(octet).collect()).collect()
}

/// A registered UE with one session, connected.
fn registered() -> UeContext {
    UeHarness::registered().context().unwrap().clone()
}

fn checkpoint(ue: &UeContext) -> Checkpoint {
    Checkpoint::of(ue).unwrap()
}

/// A frame with the CRC that its octets should have: what a peer writes that is at fault itself.
fn sealed(mut octets: Vec<u8>) -> Vec<u8> {
    let at = octets.len().saturating_sub(CRC);
    let crc = crc32c::crc32c(&octets[..at]);
    octets.splice(at.., crc.to_be_bytes());
    octets
}

/// All that is done with octets that came; what of them was taken is written as it is read.
fn take(octets: &[u8]) -> Option<FlatError> {
    let errors = [
        Checkpoint::from_octets(octets).and_then(|c| c.context()).map(|p| {
            let again = checkpoint(&p);
            assert_eq!(checkpoint(&again.context().unwrap()), again);
        }),
        Delta::from_octets(octets).map(|_| ()),
        Envelope::from_flat(octets).map(|e| {
            let again = e.to_flat();
            assert_eq!(Envelope::from_flat(again.octets()).unwrap().to_flat(), again);
        }),
        Batch::from_flat(octets).map(|b| {
            let again = b.to_flat();
            assert_eq!(Batch::from_flat(again.octets()).unwrap().to_flat(), again);
        }),
        Config::from_flat(octets).map(|c| {
            let again = c.to_flat();
            assert_eq!(Config::from_flat(again.octets()).unwrap().to_flat(), again);
        }),
        N14::from_octets(octets).map(|m| {
            let again = m.to_flat();
            assert_eq!(N14::from_octets(again.octets()).unwrap().to_flat(), again);
        }),
    ];
    // Of the six, the one that is meant does not say that it is another.
    errors.into_iter().find_map(|e| e.err().filter(|e| !matches!(e, FlatError::NotA(_))))
}

/// The N14 messages about the harness's UE.
fn n14() -> Vec<Vec<u8>> {
    let relation = Relation { source: registered().id, token: [7; 16] };
    let (up_seid, upf) = (whimbrel_ids::Seid(9), [127, 0, 0, 8].into());
    let given = HandedOverSession { psi: psi(1), upf, up_seid, forwarding: Some(2) };
    let bodies = [
        N14Body::HandoverComplete,
        N14Body::TransferUeContext(UeProof {
            amf_id: whimbrel_ids::AmfId::new(2, 1, 3).unwrap(),
            tmsi: whimbrel_ids::Tmsi(7),
            nas: vec![0x7e, 1, 2],
            by_replica: true,
        }),
        N14Body::UeContextTransferred(Box::new(TransferredUe {
            asker: registered().id,
            state: checkpoint(&registered()).into_flat(),
            upfs: vec![(psi(1), upf)],
        })),
        N14Body::UeContextNotTransferred(registered().id),
        N14Body::Registered { smf: upf, sessions: vec![(psi(1), up_seid)] },
        N14Body::NotRegistered,
        N14Body::RegisteredThere,
        N14Body::ForwardUeContext(Box::new(ForwardedUe {
            ue: UeTransferState { state: checkpoint(&registered()).into_flat(), upfs: vec![(psi(1), upf)] },
            gnb: None,
        })),
        N14Body::Uplink(vec![1, 2, 3]),
        N14Body::Replica(Box::new(UeTransferState {
            state: checkpoint(&registered()).into_flat(),
            upfs: vec![(psi(1), upf)],
        })),
        N14Body::ReplicaGone,
        N14Body::WholeRequested,
        N14Body::not_created(CauseRadioNetwork::UnknownTargetId, None),
        N14Body::Completed(TransferCompletion::HandedOver(vec![given])),
        N14Body::UeContextCreated(Box::new(PreparedResources {
            acknowledge: vec![1, 2, 3],
            smf: upf,
            sessions: vec![(psi(1), up_seid)],
        })),
    ];
    bodies.map(|body| N14 { relation, body }.to_flat().octets().to_vec()).into()
}

/// Every frame of the test data, a delta, and what AMFs say.
fn all() -> Vec<Vec<u8>> {
    let texts = CHECKPOINTS.iter().map(|(_, hex)| *hex).chain([ENVELOPES, BATCHES, CONFIGS]);
    let mut all: Vec<_> = texts.flat_map(frames).collect();
    let base = registered();
    let mut next = base.clone();
    (next.clock, next.amf.location.is_area_check_pending) = (base.clock + 1, true);
    all.push(Delta::between(&checkpoint(&base), &checkpoint(&next)).unwrap().octets().into());
    all.extend(n14());
    all
}

#[test]
fn frames_of_every_version_are_read_and_the_present_one_is_written_again() {
    assert_eq!(CHECKPOINTS.map(|(v, _)| v), checkpoint::READERS.map(|(v, _)| v));
    for (version, hex) in CHECKPOINTS {
        for frame in frames(hex) {
            let read = Checkpoint::from_octets(&frame).and_then(|c| c.context());
            let again = checkpoint(&read.expect("a form changes with its version alone"));
            if version == checkpoint::VERSION {
                assert_eq!(again.octets(), frame, "a form changes with its version alone");
            }
        }
    }
    for frame in frames(ENVELOPES) {
        let read = Envelope::from_flat(&frame).expect("a form changes with its version alone");
        assert_eq!(read.to_flat().octets(), frame);
    }
    for frame in frames(BATCHES) {
        let read = Batch::from_flat(&frame).expect("a form changes with its version alone");
        assert_eq!(read.to_flat().octets(), frame);
    }
    for frame in frames(CONFIGS) {
        let read = Config::from_flat(&frame).expect("a form changes with its version alone");
        assert_eq!(read.to_flat().octets(), frame);
    }
}

#[test] // DESIGN: checkpoints are readable at N-1, one type per version
fn a_checkpoint_of_the_former_version_is_read_and_others_are_refused() {
    /// An invented former version, in which a UE had neither a broker nor intermediate UPFs, and its sessions
    /// came first.
    #[derive(Serialize, Deserialize)]
    struct FormerUe {
        id: UeId,
        clock: u64,
        terms: (u32, u32),
        sessions: std::collections::BTreeMap<whimbrel_ids::PduSessionId, Box<SmContext>>,
        amf: AmfContext,
    }
    impl From<FormerUe> for UeContext {
        fn from(f: FormerUe) -> Self {
            let FormerUe { id, clock, terms, sessions, amf } = f;
            Self { clock, terms, amf, sessions, ..Self::new(id) }
        }
    }
    let readers = [(1007, checkpoint::open::<UeContext> as _), (1006, checkpoint::open::<FormerUe> as _)];
    let ue = registered();
    let former =
        FormerUe { id: ue.id, clock: 9, terms: (3, 4), sessions: ue.sessions.clone(), amf: ue.amf.clone() };
    let frame = |version| FrameWriter::frame(Form::Checkpoint, version, 0, &former);
    let of = |version| Checkpoint::read_by(&readers, frame(version));
    let taken = of(1006).unwrap();
    assert_eq!((taken.ue_id(), taken.clock(), taken.terms()), (ue.id, 9, (3, 4)));
    let read = taken.ue_by(&readers).unwrap();
    assert_eq!((read.clock, read.terms), (9, (3, 4)));
    assert_eq!(format!("{:?} {:?}", read.amf, read.sessions), format!("{:?} {:?}", ue.amf, ue.sessions));
    assert_eq!(checkpoint(&read).context().unwrap().clock, 9, "it is written in the present form");
    assert_eq!(of(1005).unwrap_err(), FlatError::UnknownVersion(1005));
    let present = of(1007).unwrap().ue_by(&readers);
    assert!(
        matches!(present, Err(FlatError::Malformed | FlatError::Contradiction(_))),
        "each has its own reader"
    );
    assert_eq!(Checkpoint::from_made(frame(1006)).unwrap_err(), FlatError::UnknownVersion(1006));
}

#[test]
fn frames_of_an_unknown_version_are_refused_by_that_name() {
    for mut frame in all() {
        frame[2] ^= 0x80;
        assert!(matches!(take(&sealed(frame)), Some(FlatError::UnknownVersion(_))));
    }
}

#[test]
fn a_truncated_frame_is_refused() {
    for frame in all() {
        for len in 0..frame.len() {
            for octets in [frame[..len].to_vec(), sealed(frame[..len].to_vec())] {
                let refused = [
                    Checkpoint::from_octets(&octets).and_then(|c| c.context()).is_err(),
                    Delta::from_octets(&octets).is_err(),
                    Envelope::from_flat(&octets).is_err(),
                    Batch::from_flat(&octets).is_err(),
                    N14::from_octets(&octets).is_err(),
                ];
                assert_eq!(refused, [true; 5], "{len} of {} octets", frame.len());
            }
        }
    }
}

#[test]
fn a_frame_with_one_other_octet_is_refused() {
    for frame in all() {
        for at in 0..frame.len() {
            let mut octets = frame.clone();
            octets[at] ^= 1 << (at % 8);
            assert!(Checkpoint::from_octets(&octets).is_err());
            assert!(Delta::from_octets(&octets).is_err());
            assert!(Envelope::from_flat(&octets).is_err());
            assert!(Batch::from_flat(&octets).is_err());
            assert!(N14::from_octets(&octets).is_err());
        }
    }
}

#[test]
fn a_longer_frame_is_refused() {
    for frame in all() {
        let mut octets = frame.clone();
        octets.insert(frame.len() - CRC, 0);
        assert_eq!(take(&sealed(octets)), Some(FlatError::Malformed));
    }
}

#[test]
fn a_contradiction_is_refused() {
    let mut beyond = registered();
    beyond.id.slot = UeId::SLOTS;
    let frame = checkpoint(&beyond);
    assert!(matches!(Checkpoint::from_octets(frame.octets()), Err(FlatError::Contradiction(_))));
    let wrong: [fn(&mut UeContext); 14] = [
        |p| {
            let mico = Some(Duration::MAX);
            p.amf.set_reach(crate::state::ReachabilityParameters { mico_active_time: mico, ..p.amf.reach() });
        },
        |p| p.sessions.values_mut().for_each(|s| s.qos.flows[0].rules[0].id = 1),
        |p| {
            let (_, session) = p.sessions.pop_first().unwrap();
            p.sessions.insert(psi(2), session);
        },
        |p| p.amf.location.registration_area = vec![p.amf.location.tai.unwrap(); 17].into(),
        |p| p.amf.slices.allowed = vec![p.amf.slices.allowed[0]; 9],
        |p| p.sessions.values_mut().for_each(|s| s.qos.flows.push(s.qos.flows[0].clone())),
        |p| {
            p.sessions
                .values_mut()
                .for_each(|s| s.qos.flows[0].rules = vec![s.qos.flows[0].rules[0].clone(); 255])
        },
        |p| {
            let filters = |s: &mut SmContext| s.qos.flows[0].rules[0].filters.push(any_packet());
            p.sessions.values_mut().for_each(|s| filters(s));
        },
        |p| p.sessions.values_mut().for_each(|s| s.qos.arp.priority = 0),
        |p| p.sessions.values_mut().for_each(|s| s.qos.flows[62].arp.priority = 16),
        |p| p.sessions.values_mut().for_each(|s| s.qos.pending_change.as_mut().unwrap().arp.priority = 16),
        |p| {
            p.sessions
                .values_mut()
                .for_each(|s| s.qos.pending_change.as_mut().unwrap().flows[0].arp.priority = 16)
        },
        |p| subscription(p).slices[300].dnns[0].arp.priority = 16,
        |p| subscription(p).slices[0].dnns[0].flows[0].arp.priority = 0,
    ];
    for (n, change) in wrong.into_iter().enumerate() {
        let mut ue = registered();
        fill(&mut ue);
        assert!(checkpoint(&ue).context().is_ok());
        change(&mut ue);
        let read = Checkpoint::from_octets(checkpoint(&ue).octets()).unwrap().context();
        assert!(matches!(read, Err(FlatError::Contradiction(_))), "{n}");
    }
}

fn subscription(ue: &mut UeContext) -> &mut crate::state::Subscription {
    Arc::make_mut(ue.amf.subscription.as_mut().unwrap())
}

fn any_packet() -> whimbrel_nas::ie::PacketFilter {
    crate::policy::packet_filter("permit out ip from any to assigned").unwrap()
}

#[test]
fn a_ue_with_a_procedure_in_flight_has_no_checkpoint() {
    let mut harness = UeHarness::registered();
    harness.input(Payload::Command(Command::Deregister));
    let ue = harness.context().unwrap();
    assert!(!ue.is_idle());
    assert_eq!(Checkpoint::of(ue), None);
}

#[test]
fn equal_values_are_shared_again_when_ues_are_restored() {
    let mut shard = Shard::new(Arc::new(crate::ue_harness::config()));
    let mut ue = registered();
    ue.amf.radio.capability = Some(vec![7; 900].into());
    let mut restored = Vec::new();
    for slot in [1, 2] {
        ue.id.slot = slot;
        shard.restore(checkpoint(&ue).context().unwrap());
        restored.push(shard.context(ue.id).unwrap().amf.clone());
    }
    let [a, b] = &restored[..] else { panic!("two UEs") };
    let (a, b) = (
        (a.subscription.as_ref(), a.radio.capability.as_ref()),
        (b.subscription.as_ref(), b.radio.capability.as_ref()),
    );
    assert!(Arc::ptr_eq(a.0.unwrap(), b.0.unwrap()));
    assert!(Arc::ptr_eq(a.1.unwrap(), b.1.unwrap()));
}

#[test]
fn forms_show_no_octets_in_debug() {
    let flat = checkpoint(&registered());
    let shown = format!("{flat:?} {:?}", Delta::between(&flat, &next(&flat)));
    assert!(shown.contains("octets)") && !shown.contains('['), "{shown}");
}

/// The UE a little later: its session has had another tunnel, and its keys were renewed.
fn next(base: &Checkpoint) -> Checkpoint {
    let mut ue = base.context().unwrap();
    ue.clock += 3;
    ue.amf.security.k_amf = Some(whimbrel_security::KAmf::new([9; 32]));
    ue.sessions.values_mut().for_each(|s| s.an = None);
    checkpoint(&ue)
}

#[test]
fn a_delta_leads_from_its_own_base_to_the_next_checkpoint_and_from_no_other() {
    let base = checkpoint(&registered());
    let next = next(&base);
    let delta = Delta::between(&base, &next).unwrap();
    let delta = Delta::from_octets(delta.octets()).unwrap();
    assert_eq!((delta.base_clock(), delta.clock()), (base.clock(), next.clock()));
    assert_eq!(delta.ue_id(), base.ue_id());
    assert!(delta.octets().len() < next.octets().len() / 3);
    assert_eq!(delta.apply(&base), Ok(next.clone()));
    assert_eq!(delta.apply(&next), Err(FlatError::OtherBase));
    // Another state of the same clock: one of two primaries wrote it that was not to.
    let mut twin = base.context().unwrap();
    twin.amf.emergency = true;
    assert_eq!(delta.apply(&checkpoint(&twin)), Err(FlatError::OtherBase));
    let mut other = base.context().unwrap();
    other.id.generation += 1;
    assert_eq!(delta.apply(&checkpoint(&other)), Err(FlatError::OtherBase));
}

#[test]
fn there_is_no_delta_backwards_nor_to_another_ue_nor_where_all_is_new() {
    let base = checkpoint(&registered());
    let next = next(&base);
    assert_eq!(Delta::between(&next, &base), None);
    assert_eq!(Delta::between(&base, &base), None);
    let mut other = next.context().unwrap();
    other.id.slot += 1;
    assert_eq!(Delta::between(&base, &checkpoint(&other)), None);
    let empty = checkpoint(&UeContext::new(base.ue_id()));
    assert_eq!(Delta::between(&empty, &next), None, "the checkpoint itself is shorter");
}

#[test]
fn a_delta_with_a_wrong_result_is_refused() {
    let base = checkpoint(&registered());
    let next = next(&base);
    let frame = Delta::between(&base, &next).unwrap().octets().to_vec();
    let mut taken = 0;
    for at in HEAD..frame.len() - CRC {
        for bit in 0..8 {
            let mut octets = frame.clone();
            octets[at] ^= 1 << bit;
            let Ok(delta) = Delta::from_octets(&sealed(octets)) else { continue };
            taken += 1;
            assert!(delta.apply(&base).is_err(), "octet {at} bit {bit}");
        }
    }
    assert!(taken > 100, "{taken} deltas were read");
}

#[test] // the log of an active UE, and what a replica holds of one, are to be under 2 KB
fn a_registered_ue_with_one_session_and_its_inputs_are_small() {
    let ue = registered();
    let state = checkpoint(&ue).octets().len();
    let delta = Delta::between(&checkpoint(&ue), &next(&checkpoint(&ue))).unwrap().octets().len();
    let longest = |hex| frames(hex).iter().map(Vec::len).max().unwrap();
    let (envelope, batch) = (longest(ENVELOPES), longest(BATCHES));
    println!("octets: state {state}, delta {delta}, longest envelope {envelope}, longest batch {batch}");
    // The longest envelope has a broker's answer, with its grant.
    assert!(state < 512 && delta < 128 && envelope < 1024 && batch < 1024);
}

#[test]
fn a_value_that_its_clause_forbids_is_refused() {
    fn refused<T: serde::de::DeserializeOwned>(octets: &[u8]) {
        assert!(postcard::from_bytes::<T>(octets).is_err(), "{} {octets:?}", std::any::type_name::<T>());
    }
    use whimbrel_ids::*;
    use whimbrel_nas::ie;
    [[0], [16]].iter().for_each(|o| refused::<PduSessionId>(o));
    refused::<Qfi>(&[64]);
    refused::<Tac>(&[0x80, 0x80, 0x80, 0x08]); // 2^24
    refused::<PlmnId>(&[0xa9, 0xf9, 0x07]);
    refused::<AmfUeNgapId>(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x20]); // 2^40
    refused::<NrCellId>(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x02]); // 2^36
    refused::<SNssai>(&[1, 1, 0xff, 0xff, 0xff, 0x07]); // FFFFFF: none
    refused::<Supi>(&[5, 1]);
    refused::<Supi>(&[6, 0xc0, 0x84, 0x3d]); // 1,000,000
    refused::<Pei>(&[2, 1]);
    refused::<Dnn>(b"\x04a..b");
    refused::<ie::NgKsi>(&[15]);
    refused::<ie::PduSessionType>(&[6]);
    refused::<ie::SscMode>(&[0]);
    refused::<ie::SmCause>(&[0]);
    refused::<ie::UeSecurityCapability>(&[1, 0xf0]);
    refused::<ie::DrxParameters>(&[2, 1, 1]);
    refused::<whimbrel_ngap::ie::RrcEstablishmentCause>(&[2, 0, 0]);
    refused::<whimbrel_security::KAmf>(&[&[31][..], &[7; 31]].concat());
    refused::<whimbrel_security::NasCounts>(&[0x81, 0x80, 0x80, 0x08, 0]); // 2^24 + 1
    refused::<crate::policy::FlowName>(b"\x01A");
    refused::<crate::upf::UpfStates>(&[1, 1, 101, 0]);
    refused::<crate::upf::UpfStates>(&[&[1, 17][..], &[1; 34]].concat());
}

/// As much of everything as is read, and numbers that no network has: only a peer at fault writes it.
fn fill(ue: &mut UeContext) {
    let amf = &mut ue.amf;
    let many = 300;
    amf.location.registration_area = vec![amf.location.tai.unwrap(); 16].into();
    amf.slices.allowed = vec![amf.slices.allowed[0]; 8];
    amf.slices.requested = amf.slices.allowed.clone().into();
    amf.security.registrations = u32::MAX;
    let mut subscription = (**amf.subscription.as_ref().unwrap()).clone();
    subscription.ue_ambr = Ambr { ul_kbps: u64::MAX, dl_kbps: u64::MAX };
    subscription.rfsp = Some(u16::MAX);
    subscription.restrictions.forbidden_areas = vec![amf.location.tai.unwrap().tac; many];
    subscription.slices[0].dnns[0].framed_routes = vec![(std::net::Ipv4Addr::LOCALHOST.into(), 255); many];
    let dnn = &mut subscription.slices[0].dnns[0];
    let flow = crate::policy::FlowPolicy {
        name: Default::default(),
        five_qi: dnn.five_qi,
        arp: dnn.arp,
        gbr: None,
        precedence: 255,
        filters: Vec::new(),
        gate: Default::default(),
        setup: Default::default(),
    };
    dnn.flows.push(flow);
    let slice = subscription.slices[0].clone();
    subscription.slices.extend(vec![slice; many]);
    amf.subscription = Some(Arc::new(subscription));
    let t3512 = Some(Duration::from_secs(31 * 320 * 3600));
    amf.set_reach(crate::state::ReachabilityParameters {
        t3512,
        mico_active_time: t3512,
        edrx: Some(255),
        ..amf.reach()
    });
    for s in ue.sessions.values_mut() {
        s.qos.ambr = Ambr { ul_kbps: u64::MAX, dl_kbps: u64::MAX };
        s.qos.arp.priority = 15;
        s.upf = UpfId(255);
        s.forwarding = Some(255);
        s.usage.octets = (u64::MAX, u64::MAX);
        s.usage.secondary = Some(Box::new((u64::MAX, u64::MAX)));
        let rule = crate::state::FlowRule {
            id: 2,
            precedence: 0,
            filters: vec![any_packet(); 15],
            application: Some("x".into()),
        };
        let flow = crate::state::QosFlow {
            qfi: whimbrel_ids::Qfi::new(63).unwrap(),
            name: Default::default(),
            five_qi: s.qos.five_qi,
            arp: s.qos.arp,
            gbr: Some(crate::policy::Gbr { guaranteed: s.qos.ambr, maximum: s.qos.ambr }),
            gate: Default::default(),
            rules: vec![rule; 4],
            mark: 255,
            reflective: true,
            of_ue: true,
            fulfilled: true,
        };
        s.qos.flows = vec![flow; 63];
        s.qos.pending_change = Some(Box::new(crate::state::PendingChange::of(s)));
    }
}

/// A UPF counted further than there is to count.
fn volume_report() -> Vec<u8> {
    let mut usage = UsageReport::new(UrrId(1), UrSeqn(1), UsageReportTrigger::VOLTH);
    let (ul, dl) = (Some(u64::MAX), Some(u64::MAX));
    usage.volume_measurement = Some(VolumeMeasurement { ul, dl, ..VolumeMeasurement::default() });
    let mut m = SessionReportRequest::new(ReportType::USAR);
    m.usage_reports = vec![usage];
    whimbrel_pfcp::Message::from(m).to_octets(Some(whimbrel_ids::Seid(1)), 9)
}

#[test]
fn a_ue_that_no_network_has_does_not_take_its_shard_down() {
    let inputs: [fn(&mut UeHarness) -> Batch; 11] = [
        |d| d.input(Payload::PfcpReport { psi: 1, upf: UpfId(255), octets: volume_report().into() }),
        |d| {
            let pdu = d.protect(INTEGRITY, registration_request(RegistrationKind::MobilityUpdating));
            d.first(pdu, Some(Tmsi(0x1234)))
        },
        |d| {
            let pdu = d.protect(INTEGRITY, registration_request(RegistrationKind::Initial));
            d.first(pdu, Some(Tmsi(0x1234)))
        },
        |d| {
            let identity = MobileIdentity::STmsi(STmsi { set: 1, pointer: 0, tmsi: Tmsi(0x1234) });
            let request = ServiceRequest::new(NgKsi::native(0).unwrap(), ServiceType::Signalling, identity);
            let pdu = d.protect(INTEGRITY, request);
            d.first(pdu, Some(Tmsi(0x1234)))
        },
        |d| d.input(Payload::Command(Command::Deregister)),
        |d| d.input(Payload::Command(Command::SubscriptionChanged)),
        |d| d.input(Payload::Command(Command::PolicyChanged)),
        |d| d.input(Payload::Command(Command::LocalTimeChanged)),
        |d| d.input(Payload::Command(Command::Locate(Locate::CellChanges))),
        |d| {
            let ambr = Modification::Ambr(Ambr { ul_kbps: 7, dl_kbps: u64::MAX });
            d.input(Payload::Command(Command::ModifySession(psi(1), ambr)))
        },
        |d| d.input(Payload::Command(Command::ConnectionLost(d.association()))),
    ];
    for (n, input) in inputs.into_iter().enumerate() {
        println!("input {n}");
        let mut harness = UeHarness::registered();
        let mut ue = harness.shard.checkpoint(harness.id).unwrap();
        fill(&mut ue);
        harness.shard.restore(checkpoint(&ue).context().unwrap());
        let batch = input(&mut harness);
        let next = harness.settle(batch);
        let last = next.last().unwrap();
        if last.next_deadline.is_some() {
            harness.expire(last);
        }
    }
}

/// Every input of the test data, and the time that a UE has to answer.
fn serve(ue: Box<UeContext>) {
    let mut shard = Shard::new(Arc::new(crate::ue_harness::config()));
    let (id, terms, mut clock) = (ue.id, ue.terms, ue.clock);
    for frame in frames(ENVELOPES) {
        shard.restore(ue.clone());
        for payload in [Envelope::from_flat(&frame).unwrap().payload, Payload::Tick] {
            clock = clock.max(ue.clock).saturating_add(1);
            if clock == u64::MAX {
                return; // no CTA has come this far
            }
            let time = whimbrel_ids::Instant(clock.wrapping_mul(1 << 20));
            let envelope = Envelope {
                ue: id,
                cta_term: terms.0,
                owner_term: terms.1,
                clock,
                time,
                payload,
                ..envelope()
            };
            shard.handle(&envelope);
        }
    }
}

fn envelope() -> Envelope {
    Envelope::from_flat(&frames(ENVELOPES)[0]).unwrap()
}

proptest! {
    #[test]
    fn any_octets_are_refused_or_read(octets in proptest::collection::vec(any::<u8>(), 0..200), form in 1u8..6) {
        take(&octets);
        let mut octets = [&[form, 0, 1], octets.as_slice(), &[0; CRC]].concat();
        take(&sealed(std::mem::take(&mut octets)));
    }

    #[test]
    fn a_frame_that_a_peer_changed_is_refused_or_read(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..4),
    ) {
        let all = all();
        let mut octets = all[which.index(all.len())].clone();
        for (at, octet, how) in changes {
            let at = HEAD + at.index(octets.len() - HEAD - CRC);
            match how {
                0 => octets[at] = octet,
                1 => octets.insert(at, octet),
                _ => drop(octets.remove(at)),
            }
        }
        take(&sealed(octets));
    }

    #[test]
    fn a_ue_that_a_peer_made_up_does_not_take_its_shard_down(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let all = frames(CHECKPOINTS[0].1);
        let mut octets = all[which.index(all.len())].clone();
        for (at, octet) in changes {
            let at = HEAD + at.index(octets.len() - HEAD - CRC);
            octets[at] = octet;
        }
        let read = Checkpoint::from_octets(&sealed(octets)).and_then(|c| c.context());
        if let Ok(ue) = read {
            serve(ue);
        }
    }

    #[test]
    fn any_octets_have_a_delta_between_them(
        old in proptest::collection::vec(0u8..3, 0..300),
        cuts in proptest::collection::vec((0usize..300, 0usize..40, proptest::collection::vec(0u8..3, 0..40)), 0..5),
    ) {
        let mut new = old.clone();
        for (at, len, put) in cuts {
            let at = at.min(new.len());
            let end = (at + len).min(new.len());
            new.splice(at..end, put);
        }
        let mut made = FrameWriter(Vec::new());
        prop_assert_eq!(delta::edit(&old, delta::edits(&old, &new).into_iter().map(Ok), &mut made), Ok(()));
        prop_assert_eq!(&made.0, &new);
    }
}
