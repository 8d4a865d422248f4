//! N2 inputs that felled other cores, each named after what it is: no fault, no UE of anybody else is touched, nothing is
//! left, and the UE that is meant can come back.

use crate::common::pdu::Pdu;
use crate::common::stage::*;
use crate::common::*;
use whimbrel_control::Event as CoreEvent;
use whimbrel_control::event::MessageDropReason;
use whimbrel_ids::{GlobalGnbId, PlmnId, RanUeNgapId, STmsi, Tac, Tai, Tmsi};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{
    CauseRadioNetwork, GlobalN3iwfId, GlobalRanNodeId, HandoverType, N3iwfId, PduSessionResourceItem,
    TargetId, TargetRanNodeId,
};
use whimbrel_ngap::msg::{HandoverRequired, UplinkNasTransport};
use whimbrel_ngap::transfer::HandoverRequiredTransfer;
use whimbrel_ran::ue::{self, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex};

const AMF_UE_NGAP_ID: u16 = 10;
const NAS_PDU: u16 = 38;

fn ready(seed: u64) -> Sim {
    stage(network(seed))
}

/// The UE registers and has a session.
fn registered_victim(seed: u64) -> Sim {
    let mut net = ready(seed);
    net.command(VICTIM, UeCommand::Register);
    net.command(VICTIM, session());
    net.settle(SECOND);
    assert!(registered(&net, VICTIM));
    net
}

/// The names of the victim's connection.
fn victims_names(net: &Sim) -> (whimbrel_ids::AmfUeNgapId, RanUeNgapId) {
    let supi = net.ue_ref(VICTIM).config().supi;
    let ue = net.cta().contexts().find(|p| p.amf.supi == Some(supi)).expect("it is known");
    let c = ue.amf.connection.as_ref().expect("it is connected");
    (c.amf_ue_ngap_id, c.ran_ue_ngap_id)
}

fn octets(m: impl Into<Message>) -> Vec<u8> {
    m.into().to_vec()
}

#[test] // TS 38.413 §10.2, TS 33.117 §4.4.4
fn a_single_octet_over_and_over_and_an_empty_payload() {
    let mut net = ready(1);
    net.tap();
    for _ in 0..10_000 {
        net.inject(BY_HAND, &[0]);
        net.inject(BY_HAND, &[]);
    }
    net.settle(SECOND);
    let answers = net.tapped();
    assert!(answers.iter().all(|m| matches!(m, Message::ErrorIndication(_))), "{answers:?}");
    assert!((1..=100).contains(&answers.len()), "{} answers in a second", answers.len());
    judge(&mut net, &|| "single octets".into());
}

#[test] // TS 38.413 §8.6.1, §8.6.3: in X.691's fragments
fn a_nas_message_beyond_32_kilobytes() {
    let mut net = registered_victim(2);
    let (amf, ran) = victims_names(&net);
    for n in [16_383, 16_384, 32_768, 40_000, 65_535, 100_000] {
        let nas = vec![0x7e; n];
        net.inject(GnbIndex(0), &octets(UplinkNasTransport::new(amf, ran, nas.clone())));
        net.inject(BY_HAND, &octets(first_of(n as u32, &nas, None)));
        net.settle(SECOND);
    }
    assert!(registered(&net, VICTIM));
    judge(&mut net, &|| "long NAS messages".into());
}

#[test] // TS 38.413 §10.3.6: 65,535 elements, of one kind and of every kind
fn as_many_elements_as_can_be_counted() {
    let mut net = registered_victim(3);
    let (amf, ran) = victims_names(&net);
    let whole = Pdu::of(&octets(UplinkNasTransport::new(amf, ran, vec![0x7e, 0, 0x43])));
    for of_one_kind in [true, false] {
        let mut many = whole.clone();
        for n in 0..65_535u16 {
            let id = if of_one_kind { NAS_PDU } else { n };
            many.elements.push(([id.to_be_bytes()[0], id.to_be_bytes()[1], 0x40], vec![]));
        }
        many.elements.truncate(65_535);
        net.inject(GnbIndex(0), &many.to_octets());
        net.settle(SECOND);
        // The count alone, and nothing behind it.
        let mut announced = many.to_octets();
        announced.truncate(40);
        net.inject(GnbIndex(0), &announced);
        net.settle(SECOND);
    }
    assert!(registered(&net, VICTIM));
    judge(&mut net, &|| "65,535 elements".into());
}

#[test] // TS 38.412 §7: what leaves keeps to the streams that there are (the simulation asserts it)
fn a_gnb_with_a_single_stream() {
    for streams in [1, 2] {
        let mut net = ready(4);
        net.restart_with_streams(GnbIndex(0), streams);
        net.settle(SECOND);
        net.command(VICTIM, UeCommand::Register);
        net.command(VICTIM, session());
        net.settle(SECOND);
        assert!(registered(&net, VICTIM) && net.ue_ref(VICTIM).sessions().count() == 1);
        go_idle(&mut net, VICTIM);
        net.command(VICTIM, UeCommand::ServiceRequest);
        net.settle(SECOND);
        judge(&mut net, &|| format!("{streams} streams"));
        no_violations(&net);
    }
}

#[test] // TS 38.412 §7, TS 38.413 §8.4.4: the source has more streams than the target
fn a_path_switch_to_a_gnb_of_fewer_streams() {
    for via in [whimbrel_ran::gnb::Via::Xn, whimbrel_ran::gnb::Via::N2] {
        let mut net = network(5);
        let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
        net.restart_with_streams(gnbs[1], 1);
        net.settle(SECOND);
        let ues: Vec<UeIndex> = (1..=20).map(|n| net.add_ue(gnbs[0], whimbrel_sim::ue_config(n))).collect();
        for &ue in &ues {
            net.command(ue, UeCommand::Register);
            net.command(ue, session());
        }
        net.settle(SECOND);
        for &ue in &ues {
            net.hand_over(ue, gnbs[1], via);
        }
        net.settle(SECOND * 3);
        for &ue in &ues {
            assert!(registered(&net, ue) && net.gnb_of(ue) == gnbs[1]);
            net.command(ue, UeCommand::PeriodicRegistration);
        }
        net.settle(SECOND * 3);
        no_violations(&net);
    }
}

#[test] // TS 38.412 §7
fn associations_that_come_and_go() {
    let mut net = registered_victim(6);
    let connect = [UeCommand::Register, UeCommand::ServiceRequest, session()];
    for n in 0..300 {
        net.restart_gnb(GnbIndex(0));
        net.command(VICTIM, connect[n % 3].clone());
        // At every point of what the UE does next.
        net.advance(std::time::Duration::from_millis(n as u64 % 60));
    }
    net.disconnect(GnbIndex(0));
    net.disconnect(GnbIndex(0));
    net.restart_gnb(GnbIndex(0));
    judge(&mut net, &|| "restarts".into());
    assert_eq!(net.upf_sessions(), 1, "the canary's");
}

#[test] // TS 38.413 §8.3.3: the association ends while its UEs are being released
fn an_association_lost_in_the_middle_of_a_clean_up() {
    for millis in 0..40 {
        let mut net = registered_victim(7);
        deregister(&mut net, VICTIM);
        net.release(VICTIM, CauseRadioNetwork::UserInactivity.into());
        net.advance(std::time::Duration::from_millis(millis));
        net.disconnect(GnbIndex(0));
        net.advance(std::time::Duration::from_millis(1));
        net.restart_gnb(GnbIndex(0));
        judge(&mut net, &|| format!("a loss after {millis} ms"));
    }
}

#[test] // TS 38.412 §7: UEs come back at another gNB, and their former connections are released on their own streams
fn the_release_of_a_superseded_connection_keeps_to_its_stream() {
    let slow = whimbrel_sim::Faults { n2_latency_micros: (100, 80_000), ..Default::default() };
    let mut net = Sim::builder(16).faults(slow).build();
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    net.settle(SECOND);
    let ues: Vec<UeIndex> =
        (1..=24).map(|n| net.add_ue(gnbs[n as usize % 2], whimbrel_sim::ue_config(n))).collect();
    for &ue in &ues {
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
    }
    for round in 0..10 {
        // In another order each time, so that each gets another stream.
        for &ue in ues.iter().cycle().skip(round * 5).take(ues.len()) {
            let to = gnbs[usize::from(net.gnb_of(ue) == gnbs[0])];
            net.move_ue(ue, to);
            net.command(ue, UeCommand::ServiceRequest);
        }
        net.settle(SECOND * 20);
    }
    let wrong = net.events.gnbs.iter().filter(|(_, e)| format!("{e:?}").contains("WrongStream")).count();
    assert_eq!(wrong, 0);
    assert!(ues.iter().all(|&ue| registered(&net, ue)));
}

/// Where a UE's connection is.
fn place(ue: &whimbrel_control::UeContext) -> Option<whimbrel_control::AssociationId> {
    Some(ue.amf.connection.as_ref()?.association)
}

#[test] // TS 38.413 §8.3.3, §10.6: what a gNB sent before it heard that the connection is over is no mistake of the gNB
fn a_message_that_crosses_the_end_of_its_connection() {
    let mut net = network(17);
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb_config(n)));
    net.settle(SECOND);
    let ue = net.add_ue(gnbs[0], whimbrel_sim::ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    let supi = net.ue_ref(ue).config().supi;
    let name = |net: &Sim| {
        let context = net.cta().contexts().find(|p| p.amf.supi == Some(supi)).expect("it is known");
        let c = context.amf.connection.as_ref().expect("it is connected");
        (c.amf_ue_ngap_id, c.ran_ue_ngap_id)
    };
    let late = |(amf, ran)| octets(UplinkNasTransport::new(amf, ran, vec![0x7e, 0, 0x43]));
    let violations = |net: &Sim| {
        net.events.gnbs.iter().filter(|(_, e)| format!("{e:?}").contains("ErrorIndicated")).count()
    };
    for (n, how) in [whimbrel_ran::gnb::Via::Xn, whimbrel_ran::gnb::Via::N2].into_iter().enumerate() {
        let (from, to) = (gnbs[n % 2], gnbs[(n + 1) % 2]);
        net.command(ue, session());
        net.settle(SECOND);
        let former = name(&net);
        net.hand_over(ue, to, how);
        // Until the core has it elsewhere; Xn does not change the name that the core has for it.
        let at = |net: &Sim| net.cta().contexts().find(|p| p.amf.supi == Some(supi)).and_then(place);
        let before = at(&net);
        while at(&net).is_none_or(|now| Some(now) == before) {
            net.advance(SECOND / 1000);
        }
        net.inject(from, &late(former));
        net.settle(SECOND * 4);
        assert_eq!(net.gnb_of(ue), to, "{how:?}");
        assert_eq!(violations(&net), n, "{how:?}: it crossed");
        net.inject(from, &late(former));
        net.settle(SECOND / 10);
        assert_eq!(violations(&net), n + 1, "{how:?}: it is late");
        assert!(registered(&net, ue), "{how:?}");
    }
}

#[test] // TS 38.413 §9.3.3.1: an AMF UE NGAP ID has 40 bits
fn an_amf_ue_ngap_id_beyond_40_bits() {
    let mut net = registered_victim(8);
    let mut seen = std::collections::BTreeSet::new();
    let mut source = whimbrel_ngap::Source::without_fragments(8);
    let values: [&[u8]; 6] = [
        &[0xa0, 1, 0, 0, 0, 0, 0],
        &[0xc0, 1, 0, 0, 0, 0, 0, 0],
        &[0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x80, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x80, 1],
        &[],
    ];
    for _ in 0..3000 {
        let message = Message::sample(&mut source);
        let octets = octets(message.clone());
        if octets.len() > 8000 || !seen.insert(message.name()) {
            continue;
        }
        let pdu = Pdu::of(&octets);
        if pdu.value(AMF_UE_NGAP_ID).is_none() {
            seen.remove(message.name());
            continue;
        }
        for value in values {
            let mut pdu = pdu.clone();
            pdu.set(AMF_UE_NGAP_ID, value);
            net.inject(GnbIndex(0), &pdu.to_octets());
            net.settle(SECOND / 100);
        }
    }
    assert!(seen.len() > 30, "{}", seen.len());
    assert!(registered(&net, VICTIM));
    judge(&mut net, &|| "long names".into());
}

#[test] // TS 38.413 §9.3.3.2: the gNB gives a new connection the name of one that stands: the former is over, its UE is not
fn a_first_message_under_the_name_of_a_live_connection() {
    let mut net = registered_victim(9);
    let (_, ran) = victims_names(&net);
    // From another gNB, the same number is another connection.
    let heard = first(&mut net, ran.0, &registration(77, &CAPABILITY));
    assert!(names(&heard).is_some() && net.cta().contexts().filter(|p| p.is_connected()).count() == 3);
    // From its own, the former connection is gone without a word, and the newcomer is served.
    let (before, sessions) = (net.cta().contexts().count(), net.upf_sessions());
    net.inject(GnbIndex(0), &octets(first_of(ran.0, &registration(78, &CAPABILITY), None)));
    let victim = net.cta().find(net.ue_ref(VICTIM).config().supi).expect("it is registered still");
    assert!(net.cta().context(victim).is_some_and(|p| !p.is_connected()), "its connection is over");
    assert_eq!((net.cta().contexts().count(), net.upf_sessions()), (before + 1, sessions));
    judge(&mut net, &|| "a name used twice".into());
}

#[test] // TS 38.413 §8.6.1.2: a UE's own first message again, and again with another one's name
fn first_messages_of_one_name_in_a_row() {
    let mut net = ready(10);
    for n in 0..50 {
        first(&mut net, 5, &registration(100 + n, &CAPABILITY));
    }
    assert_eq!(net.cta().occupancy().1, 1, "one connection of that name at a time");
    let again = registration(900, &CAPABILITY);
    for _ in 0..50 {
        first(&mut net, 6, &again);
    }
    assert_eq!(net.cta().occupancy().1, 2);
    judge(&mut net, &|| "first messages in a row".into());
}

fn n3iwf() -> GlobalRanNodeId {
    GlobalRanNodeId::GlobalN3iwfId(GlobalN3iwfId::new(PlmnId::TEST, N3iwfId::N3iwfId(7)))
}

fn tai() -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits") }
}

#[test] // TS 38.413 §8.4.1.3: to a node that is no gNB, and to a gNB that is not connected
fn a_handover_to_an_n3iwf_or_to_an_unknown_gnb() {
    let mut net = registered_victim(11);
    let (amf, ran) = victims_names(&net);
    let unknown = GlobalRanNodeId::GlobalGnbId(GlobalGnbId::new(PlmnId::TEST, 99, 28).expect("28 bits"));
    net.tap();
    for node in [n3iwf(), unknown] {
        let target = TargetId::TargetRanNodeId(TargetRanNodeId::new(node, tai()));
        let cause = CauseRadioNetwork::HandoverDesirableForRadioReason.into();
        let kind = HandoverType::Intra5gs;
        let item = PduSessionResourceItem::new(by_hand::psi(1), HandoverRequiredTransfer::new().to_vec());
        let m = HandoverRequired::new(amf, ran, kind, cause, target, vec![item], vec![1]);
        net.inject(GnbIndex(0), &octets(m));
        net.settle(SECOND);
    }
    let failures =
        net.tapped().into_iter().filter(|m| matches!(m, Message::HandoverPreparationFailure(_))).count();
    assert_eq!(failures, 2);
    assert!(registered(&net, VICTIM));
    judge(&mut net, &|| "targets that are none".into());
}

#[test] // TS 38.413 §8.6.1.4: INITIAL UE MESSAGE with NAS of no octet, one, two and three, and a header without its message
fn nas_of_few_octets_begins_nothing() {
    let mut net = ready(12);
    let few: [&[u8]; 12] = [
        &[],
        &[0],
        &[0x7e],
        &[0x2e],
        &[0x7e, 0],
        &[0x7e, 1],
        &[0x7e, 0, 0x41],
        &[0x7e, 0, 0xff],
        &[0x7e, 2, 0x5f, 0x74],
        &[0x7e, 4, 0, 0, 0, 0, 0],
        &[0x7e, 1, 0, 0, 0, 0, 0, 0x7e],
        &[0x2e, 1, 1, 0xc1],
    ];
    for (n, nas) in few.iter().enumerate() {
        let heard = first(&mut net, 50 + n as u32, nas);
        assert!(
            heard
                .iter()
                .any(|m| matches!(m, Message::UeContextReleaseCommand(_) | Message::ErrorIndication(_))),
            "{nas:02x?}: {heard:?}"
        );
        assert_eq!(net.cta().occupancy().1, 0, "{nas:02x?}");
    }
    let dropped = core_events(&net).filter(|e| matches!(e, CoreEvent::Dropped { .. })).count();
    assert_eq!(dropped, few.len(), "each is counted");
    judge(&mut net, &|| "few octets".into());
}

#[test] // TS 38.413 §8.6.1.2: a 5G-S-TMSI of another AMF set, of another pointer, and one that is not assigned
fn a_first_message_with_the_name_of_another_amfs_ue() {
    let mut net = registered_victim(13);
    let own = net.ue_ref(VICTIM).s_tmsi().expect("it has one");
    let others = [
        STmsi { set: 1023, ..own },
        STmsi { pointer: 63, ..own },
        STmsi { tmsi: Tmsi(0), ..own },
        STmsi { tmsi: Tmsi(u32::MAX), ..own },
        STmsi { set: 0, pointer: 0, tmsi: Tmsi(0) },
        own,
    ];
    for (n, s_tmsi) in others.into_iter().enumerate() {
        let nas = registration(500 + n as u32, &CAPABILITY);
        let heard = say(&mut net, first_of(60 + n as u32, &nas, Some(s_tmsi)));
        assert!(!types(&heard).is_empty(), "{s_tmsi:?}: it is handled as an unknown UE: {heard:?}");
    }
    assert!(registered(&net, VICTIM), "whose name was used");
    assert!(net.cta().contexts().any(|p| p.amf.registered && p.is_connected()));
    judge(&mut net, &|| "names of others".into());
}

#[test] // TS 23.502 §4.2.2.2: a UE returns under the name of one whose place another UE has, which has yet to prove itself
fn an_amf_ue_ngap_id_of_the_former_user_of_a_slot() {
    for millis in 0..60 {
        let mut net = network(18);
        let gnb = net.add_gnb(gnb_config(1));
        net.settle(SECOND);
        let [before, now] = [1, 2].map(|n| net.add_ue(gnb, whimbrel_sim::ue_config(n)));
        net.command(before, UeCommand::Register);
        net.settle(SECOND);
        deregister(&mut net, before);
        net.settle(SECOND);
        net.command(now, UeCommand::Register);
        net.advance(std::time::Duration::from_millis(millis));
        net.command(before, UeCommand::Register);
        net.settle(SECOND);
        assert!(registered(&net, before) && registered(&net, now), "after {millis} ms");
        no_violations(&net);
        let failed = |ue| net.ue_events(ue).iter().any(|(_, e)| matches!(e, ue::Event::Refused { .. }));
        assert!(!failed(before) && !failed(now), "after {millis} ms");
    }
}

#[test] // TS 24.501 §7.4: what can begin no connection does not keep the UE from beginning one
fn a_first_message_that_is_no_first_message() {
    for kind in 0x41..=0x68 {
        if [0x41, 0x45, 0x4c].contains(&kind) {
            continue;
        }
        let mut net = ready(14);
        let heard = first(&mut net, 3, &mm(kind, &[0; 12]));
        assert!(names(&heard).is_none() || kind == 0x4f, "{kind:x}: {heard:?}");
        assert_eq!(net.cta().occupancy().1, 0, "{kind:x}");
        // The same gNB, the same name, a UE in earnest.
        let heard = first(&mut net, 3, &registration(40, &CAPABILITY));
        assert!(!types(&heard).is_empty(), "{kind:x}: {heard:?}");
        net.settle(SECOND * 60);
        judge(&mut net, &|| format!("{kind:x}"));
    }
}

#[test] // TS 24.501 §4.4.4.3: as the counters show
fn what_is_dropped_is_counted_once() {
    let mut net = registered_victim(15);
    let (amf, ran) = victims_names(&net);
    net.inject(
        GnbIndex(0),
        &octets(UplinkNasTransport::new(amf, ran, vec![0x7e, 2, 1, 2, 3, 4, 9, 1, 2, 3])),
    );
    let dropped: Vec<MessageDropReason> = core_events(&net)
        .filter_map(|e| match e {
            CoreEvent::Dropped { why, .. } => Some(*why),
            _ => None,
        })
        .collect();
    assert_eq!(dropped, [MessageDropReason::Integrity]);
}
