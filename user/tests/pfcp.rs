//! UPF-C as an SMF meets it.

use super::common;

use std::net::Ipv4Addr;
use std::time::Duration;

use common::*;
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

#[test] // TS 29.244 §6.2.6
fn association_setup_response_has_the_features_of_the_upf() {
    let mut net = Net::without_association(config());
    let Message::AssociationSetupResponse(m) = net.ask(None, association(1).into()) else { panic!() };
    assert_eq!((m.cause, m.node_id), (Cause::RequestAccepted, NodeId::Ipv4(UPF)));
    assert_eq!(m.recovery_time_stamp, RecoveryTimeStamp::at(START));
    let features = m.up_function_features.unwrap();
    assert!(features.has(UpFunctionFeatures::FTUP | UpFunctionFeatures::UEIP | UpFunctionFeatures::EMPU));
    assert_eq!(net.upf.c.associations().count(), 1);
}

#[test] // TS 29.244 §6.2.1
fn session_without_association_is_refused() {
    let mut net = Net::without_association(config());
    let r = net.establish(establishment(1, true, false));
    assert_eq!(r.cause, Cause::NoEstablishedPfcpAssociation);
}

#[test] // TS 29.244 §6.3.2.3, §7.5.3, §5.21
fn establishment_answers_with_tunnel_and_addresses_of_the_pools() {
    let mut net = Net::new();
    let r = net.establish(establishment(0x77, true, true));
    assert_eq!(r.cause, Cause::RequestAccepted);
    let f_seid = r.up_f_seid.unwrap();
    assert_eq!(f_seid.ipv4, Some(UPF));
    let s = net.seated(0x77, &r);
    assert_eq!(s.ipv4, Some(Ipv4Addr::new(10, 45, 0, 2)), "after the gateway");
    assert_eq!(s.ipv6, Some("2001:db8:45:1::".parse().unwrap()), "after the gateway's prefix");
    assert_eq!(r.created_pdrs[0].local_f_teid, Some(FTeid::given(s.teid, UPF.into())));
    assert!(r.created_pdrs[1].ue_ip_addresses[0].destination);
    assert_eq!(r.created_pdrs[1].ue_ip_addresses[0].ipv4, Some(Choice::Given(s.ipv4.unwrap())));
}

#[test] // TS 29.244 §6.4: a retransmitted request gets the same octets and changes nothing
fn repeated_request_is_answered_from_the_cache() {
    let mut net = Net::new();
    let octets = Message::from(establishment(1, true, true)).to_octets(Some(Seid(0)), 500);
    net.upf.pfcp(net.now, SMF, &octets, &mut net.out);
    net.upf.pfcp(net.now, SMF, &octets, &mut net.out);
    let answers = std::mem::take(&mut net.out.datagrams);
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], answers[1]);
    assert_eq!(net.upf.c.session_count(), 1);
}

#[test] // a repeated request gets the same answer
fn repeated_cp_f_seid_is_the_same_session() {
    let mut net = Net::new();
    let first = net.establish(establishment(1, true, true));
    let s = net.seated(1, &first);
    let again = net.establish(establishment(1, true, true));
    assert_eq!(first, again);
    assert_eq!(net.upf.c.session_count(), 1);
    assert_eq!(net.upf.u.counters().sessions, 1);
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    assert!(matches!(net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0)).0, PacketVerdict::Send(_)));
}

#[test] // the SMF has forgotten the session and its address
fn repeated_cp_f_seid_with_another_address_or_network_is_a_new_session() {
    let mut net = Net::new();
    let old = net.session(1, true, false);
    let mut m = establishment(1, true, false);
    for pdr in &mut m.create_pdrs {
        pdr.pdi.ue_ip_addresses[0].ipv4 = Some(Choice::Given(Ipv4Addr::new(10, 45, 0, 6)));
    }
    let r = net.establish(m);
    assert_eq!((r.cause, net.upf.c.session_count()), (Cause::RequestAccepted, 1));
    assert_ne!(r.up_f_seid.unwrap().seid, old.up_seid);
    let mut m = establishment(1, true, false);
    for pdr in &mut m.create_pdrs {
        pdr.pdi.network_instance = NetworkInstance::new("ims");
    }
    assert_eq!(net.establish(m).cause, Cause::RequestAccepted);
    assert_eq!((net.upf.c.session_count(), net.upf.u.counters().sessions), (1, 1));
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)).unwrap().0, 5);
}

#[test] // TS 29.244 §5.21, table 8.2.1-1
fn exhausted_pool_is_refused_and_a_freed_address_is_reused() {
    let mut net = Net::new();
    // A /29 has eight addresses: network, gateway and broadcast are not given.
    let all: Vec<_> = (1..=5).map(|i| net.idle_session(i, true, false)).collect();
    let r = net.establish(establishment(6, true, false));
    assert_eq!((r.cause, r.offending_ie), (Cause::AllDynamicAddressesAreOccupied, Some(OffendingIe(93))));
    assert_eq!(net.upf.c.session_count(), 5);
    net.delete(&all[2]);
    assert_eq!(net.idle_session(7, true, false).ipv4, all[2].ipv4);
}

#[test] // TS 29.244 §5.21: an address of the SMF's choice
fn static_address_is_taken_when_free() {
    let mut net = Net::new();
    let with = |cp_seid, address| {
        let mut m = establishment(cp_seid, true, false);
        for pdr in &mut m.create_pdrs {
            pdr.pdi.ue_ip_addresses[0].ipv4 = Some(Choice::Given(address));
        }
        m
    };
    let fixed = Ipv4Addr::new(10, 45, 0, 4);
    assert_eq!(net.establish(with(1, fixed)).cause, Cause::RequestAccepted);
    let r = net.establish(with(2, fixed));
    assert_eq!((r.cause, r.offending_ie), (Cause::RuleCreationModificationFailure, Some(OffendingIe(93))));
    let outside = Ipv4Addr::new(100, 64, 0, 9);
    assert_eq!(net.establish(with(3, outside)).cause, Cause::RequestAccepted);
    assert!(
        matches!(net.downlink(&udp4(SERVER, outside, (1, 2), 0)).0, PacketVerdict::Taken),
        "held for the UE"
    );
    let dynamic: Vec<_> = (10..14).map(|i| net.idle_session(i, true, false).ipv4.unwrap()).collect();
    assert!(!dynamic.contains(&fixed));
}

#[test] // TS 29.244 table 8.2.1-1: each wrong rule set and the cause of the answer
fn wrong_rule_sets_are_refused_with_their_causes() {
    type Spoil = fn(&mut SessionEstablishmentRequest);
    const FAILED: Cause = Cause::RuleCreationModificationFailure;
    let cases: &[(&str, Spoil, Cause, Option<u16>)] = &[
        ("no PDR", |m| m.create_pdrs.clear(), Cause::MandatoryIeMissing, Some(1)),
        ("no FAR", |m| m.create_fars.clear(), Cause::MandatoryIeMissing, Some(3)),
        ("PDR without FAR", |m| m.create_pdrs[1].far_id = None, Cause::ConditionalIeMissing, Some(108)),
        ("unknown FAR", |m| m.create_pdrs[1].far_id = Some(FarId(9)), FAILED, Some(108)),
        ("unknown QER", |m| m.create_pdrs[1].qer_ids.push(QerId(9)), FAILED, Some(109)),
        ("unknown URR", |m| m.create_pdrs[1].urr_ids.push(UrrId(9)), FAILED, Some(81)),
        ("twice", |m| m.create_pdrs[1].pdr_id = PdrId(1), FAILED, None),
        ("no tunnel", |m| m.create_pdrs[0].pdi.f_teid = None, Cause::ConditionalIeMissing, Some(21)),
        (
            "F-TEID of the SMF",
            |m| m.create_pdrs[0].pdi.f_teid = Some(FTeid::given(Teid(5), UPF.into())),
            Cause::InvalidFTeidAllocationOption,
            Some(21),
        ),
        (
            "IPv6 tunnel",
            |m| {
                m.create_pdrs[0].pdi.f_teid = Some(FTeid::Choose { ipv4: false, ipv6: true, choose_id: None })
            },
            FAILED,
            Some(21),
        ),
        (
            "unknown network",
            |m| m.create_pdrs[1].pdi.network_instance = NetworkInstance::new("nowhere"),
            FAILED,
            Some(22),
        ),
        (
            "bad filter",
            |m| m.create_pdrs[1].pdi.sdf_filters = vec![SdfFilter::flow("drop everything")],
            FAILED,
            Some(23),
        ),
        (
            "application",
            |m| m.create_pdrs[1].pdi.application_id = Some(ApplicationId("video".into())),
            Cause::UnknownApplicationId,
            Some(24),
        ),
        (
            "predefined",
            |m| m.create_pdrs[1].activate_predefined_rules = vec![PredefinedRules("x".into())],
            Cause::UnknownPreDefinedRule,
            Some(106),
        ),
        (
            "forward without parameters",
            |m| m.create_fars[0].forwarding_parameters = None,
            Cause::ConditionalIeMissing,
            Some(4),
        ),
        (
            "drop and forward",
            |m| m.create_fars[0].apply_action = ApplyAction::DROP | ApplyAction::FORW,
            Cause::MandatoryIeIncorrect,
            Some(44),
        ),
        (
            "to the CP function",
            |m| {
                let p = m.create_fars[0].forwarding_parameters.as_mut().unwrap();
                p.destination_interface = DestinationInterface::CpFunction;
            },
            FAILED,
            Some(42),
        ),
        ("Ethernet", |m| m.pdn_type = Some(PdnType::Ethernet), Cause::ServiceNotSupported, Some(113)),
        (
            "policy",
            |m| {
                let p = m.create_fars[0].forwarding_parameters.as_mut().unwrap();
                p.forwarding_policy = Some(ForwardingPolicy("x".into()));
            },
            Cause::InvalidForwardingPolicy,
            Some(41),
        ),
    ];
    let mut net = Net::new();
    let free = net.upf.c.free_addresses(DnIndex(0));
    for (name, spoil, cause, offending) in cases {
        let mut m = establishment(1, true, true);
        spoil(&mut m);
        let r = net.establish(m);
        assert_eq!((r.cause, r.offending_ie.map(|o| o.0)), (*cause, *offending), "{name}");
        assert!(r.up_f_seid.is_none() && r.created_pdrs.is_empty(), "{name}");
        let refused = net.out.events.drain(..).any(|e| matches!(e, Event::SessionRefused { .. }));
        assert!(refused, "{name}");
    }
    assert_eq!(net.upf.c.session_count(), 0);
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)), free, "nothing stays taken");
}

#[test] // TS 29.244 §5.6.2: a network by its name, also with its operator identifier
fn data_network_is_found_by_network_instance_or_dnn() {
    let mut net = Net::new();
    let named = |cp, name: &str| {
        let mut m = establishment(cp, true, false);
        for pdr in &mut m.create_pdrs {
            pdr.pdi.network_instance = NetworkInstance::new(name);
        }
        m
    };
    let r = net.establish(named(1, "IMS.mnc070.mcc999.gprs"));
    assert_eq!(net.seated(1, &r).ipv4, Some(Ipv4Addr::new(10, 46, 0, 2)));
    let mut m = establishment(2, true, false);
    m.create_pdrs.iter_mut().for_each(|p| p.pdi.network_instance = None);
    m.create_fars[0].forwarding_parameters.as_mut().unwrap().network_instance = None;
    m.apn_dnn = Some("ims".parse().unwrap());
    let r = net.establish(m);
    assert_eq!(net.seated(2, &r).ipv4, Some(Ipv4Addr::new(10, 46, 0, 3)));
}

#[test] // TS 29.244 §6.3.4.3, §5.2.2.3.1: the last figures come with the deletion
fn deletion_answers_with_usage() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 72));
    let r = net.delete(&s);
    assert_eq!(r.cause, Cause::RequestAccepted);
    let usage = &r.usage_reports[0];
    assert_eq!(usage.usage_report_trigger, UsageReportTrigger::TERMR);
    assert_eq!(usage.volume_measurement.unwrap().ul, Some(100));
    let free = net.upf.c.free_addresses(DnIndex(0)).unwrap();
    assert_eq!(free.0, 5);
    assert_eq!(net.upf.u.counters().sessions, 0);
}

#[test] // the figures do not come: the SMF is answered without, in time
fn deletion_is_answered_without_figures_when_the_pipeline_is_silent() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let octets = Message::from(SessionDeletionRequest {}).to_octets(Some(s.up_seid), 900);
    let input = || Input::Pfcp { peer: SMF, octets: &octets };
    net.upf.c.handle(net.now, input(), &mut net.out);
    net.upf.c.handle(net.now, input(), &mut net.out);
    assert!(net.out.datagrams.is_empty(), "also the repetition waits");
    let at = net.upf.c.next_deadline().unwrap();
    assert_eq!(at, net.now + Duration::from_secs(1));
    net.upf.c.handle(at, Input::Tick, &mut net.out);
    assert_eq!(net.out.datagrams.len(), 1);
}

#[test] // TS 29.244 §6.3.3, §6.3.3.3: queried, and of rules removed
fn modification_answers_with_usage_asked_for() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 72));
    let query_urrs = vec![QueryUrr { urr_id: UrrId(1) }];
    let r = net.modify(&s, SessionModificationRequest { query_urrs, ..Default::default() });
    assert_eq!(r.usage_reports[0].usage_report_trigger, UsageReportTrigger::IMMER);
    assert_eq!(r.usage_reports[0].volume_measurement.unwrap().total, Some(100));
    let flags = Some(SessionModificationFlags::QAURR);
    let r = net.modify(&s, SessionModificationRequest { pfcpsmreq_flags: flags, ..Default::default() });
    assert_eq!(
        (r.usage_reports[0].ur_seqn, r.usage_reports[0].volume_measurement.unwrap().total),
        (UrSeqn(1), Some(0))
    );
    let remove_urrs = vec![RemoveUrr { urr_id: UrrId(1) }];
    let r = net.modify(&s, SessionModificationRequest { remove_urrs, ..Default::default() });
    assert_eq!(r.usage_reports[0].usage_report_trigger, UsageReportTrigger::TERMR);
    assert!(net.delete(&s).usage_reports.is_empty());
}

#[test] // TS 29.244 §7.2.2.4.2, table 8.2.1-1
fn messages_for_an_unknown_session_get_session_context_not_found() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    net.delete(&s);
    assert_eq!(net.delete(&s).cause, Cause::SessionContextNotFound);
    assert_eq!(net.modify(&s, SessionModificationRequest::default()).cause, Cause::SessionContextNotFound);
    let again = (2..2_000).any(|n| {
        let next = net.session(n, true, false);
        let same = next.id().index == s.id().index;
        if !same {
            net.delete(&next);
        }
        same
    });
    assert!(again, "the place is used again, in the end");
    assert_eq!(net.delete(&s).cause, Cause::SessionContextNotFound, "its name is not");
    assert_eq!(net.upf.c.session_count(), 1);
}

#[test] // an unknown peer that guesses a SEID has no effect
fn session_is_not_touched_from_another_address() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let octets = Message::from(SessionDeletionRequest {}).to_octets(Some(s.up_seid), 77);
    net.upf.pfcp(net.now, "127.0.0.66:8805".parse().unwrap(), &octets, &mut net.out);
    assert_eq!(net.upf.c.session_count(), 1);
}

#[test] // TS 29.244 §7.6: causes with the offending element
fn unreadable_requests_are_answered_with_cause_and_offending_ie() {
    let mut net = Net::new();
    let mut octets = Message::from(establishment(1, true, false)).to_octets(Some(Seid(0)), 9);
    let at = octets.windows(4).position(|w| w == [0, 57, 0, 13]).unwrap();
    octets[at + 4] = 0; // an F-SEID without address
    let Some(Message::SessionEstablishmentResponse(r)) = net.ask_octets(&octets) else { panic!() };
    assert_eq!((r.cause, r.offending_ie), (Cause::MandatoryIeIncorrect, Some(OffendingIe(57))));
    assert_eq!(net.ask_octets(&[0x20, 99, 0, 4, 0, 0, 1, 0]), None, "an unknown message is discarded");
    let m = net.ask_octets(&[0x20, 5, 0, 4, 0, 0, 2, 0]);
    assert!(matches!(m, Some(Message::AssociationSetupResponse(m)) if m.cause == Cause::MandatoryIeMissing));
    net.upf.pfcp(net.now, SMF, &[0x40, 1, 0, 4, 0, 0, 3, 0], &mut net.out);
    assert_eq!(net.out.datagrams, [(SMF, vec![0x20, 11, 0, 4, 0, 0, 3, 0])], "version not supported");
}

#[test] // TS 29.244 §6.2.6.2.2; TS 23.527 §4.2, §4.3.1
fn sessions_of_a_restarted_smf_are_deleted() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let kept = AssociationSetupRequest {
        session_retention_information: Some(SessionRetentionInformation::default()),
        ..association(1)
    };
    let Message::AssociationSetupResponse(r) = net.ask(None, kept.into()) else { panic!() };
    assert_eq!(r.pfcpasrsp_flags, Some(AssociationSetupResponseFlags::PSREI));
    assert_eq!(net.upf.c.session_count(), 1);
    let heartbeat = |at| Message::from(HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(at) });
    net.ask(None, heartbeat(1));
    assert_eq!(net.upf.c.session_count(), 1);
    net.ask(None, heartbeat(2));
    assert_eq!(net.upf.c.session_count(), 1, "anybody may say so: the SMF is asked");
    net.answer_heartbeats(2);
    assert_eq!((net.upf.c.session_count(), net.upf.u.counters().sessions), (0, 0));
    let up = net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0));
    assert_eq!(up.0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    net.idle_session(2, true, false);
    net.upf.pfcp(net.now, SMF, &Message::from(association(3)).to_octets(None, 900), &mut net.out);
    net.answer_heartbeats(3);
    assert_eq!(net.upf.c.session_count(), 0);
    let Message::AssociationReleaseResponse(r) = net
        .ask(None, whimbrel_pfcp::msg::AssociationReleaseRequest { node_id: NodeId::from(SMF.ip()) }.into())
    else {
        panic!()
    };
    assert_eq!((r.cause, net.upf.c.associations().count()), (Cause::RequestAccepted, 0));
}

#[test] // two SMFs behind one address are distinguished by their ports
fn restart_of_one_smf_leaves_its_neighbour_alone() {
    let mut net = Net::new();
    net.session(1, true, false);
    let other = "127.0.0.3:8806".parse().unwrap();
    let m = AssociationSetupRequest { node_id: NodeId::Fqdn("other".into()), ..association(9) };
    let octets = Message::from(m).to_octets(None, 1);
    net.upf.pfcp(net.now, other, &octets, &mut net.out);
    let heartbeat = Message::from(HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(9) });
    net.upf.pfcp(net.now, other, &heartbeat.to_octets(None, 2), &mut net.out);
    assert_eq!((net.upf.c.associations().count(), net.upf.c.session_count()), (2, 1));
}

#[test] // TS 29.244 §6.4: T1 and N1 of our own requests
fn unanswered_report_is_sent_three_times() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    assert_eq!(net.reports().len(), 1);
    net.advance(START + Duration::from_secs(8));
    net.ask(None, HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) }.into());
    net.advance(START + Duration::from_secs(59)); // less than packets wait
    assert_eq!(net.reports().len(), 2);
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    assert_eq!(net.reports().len(), 1, "the next packet asks again");
    assert_eq!(net.upf.u.counters().held, 2);
    assert!(net.out.events.iter().any(|e| matches!(e, Event::ReportUnanswered { .. })));
    assert_eq!(net.upf.c.session_count(), 1);
}

#[test] // TS 29.244 §6.4, §6.2.2: nothing comes from the SMF either, so its report is kept until something does
fn report_to_a_silent_smf_is_sent_when_it_speaks_again() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    net.advance(START + Duration::from_secs(59)); // less than packets wait
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    assert!(net.out.events.iter().any(|e| matches!(e, Event::ReportsKept { .. })));
    let asked = |(_, octets): &&(_, Vec<u8>)| Frame::parse(octets).unwrap().header.message_type == 1;
    assert!(net.out.datagrams.iter().filter(asked).count() > 3, "it is asked whether it is there again");
    assert_eq!(net.reports().len(), 3);
    net.ask(None, HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) }.into());
    let repeated = Event::ReportsNotKept { node: NodeId::from(SMF.ip()), repeated: 1, lost: 0 };
    assert!(net.out.events.contains(&repeated), "{:?}", net.out.events);
    let (_, sequence, _) = net.reports().remove(0);
    let answer = Message::from(SessionReportResponse::new(Cause::RequestAccepted));
    net.upf.pfcp(net.now, SMF, &answer.to_octets(Some(s.up_seid), sequence), &mut net.out);
    net.advance(START + Duration::from_secs(80)); // heartbeat requests of before are given up
    net.out.datagrams.clear();
    net.advance(START + Duration::from_secs(200));
    assert!(net.out.datagrams.is_empty(), "and is not asked any more");
    net.advance(START + Config::PATH_FAILURE * 2);
    assert_eq!(net.upf.c.session_count(), 1, "nor given up");
}

#[test] // TS 29.244 §6.3.5.3
fn session_that_the_smf_does_not_know_is_deleted_with_the_report() {
    let mut net = Net::new();
    let s = net.idle_session(1, true, false);
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    let (_, sequence, _) = net.reports().remove(0);
    let answer = Message::from(SessionReportResponse::new(Cause::SessionContextNotFound));
    net.upf.pfcp(net.now, SMF, &answer.to_octets(Some(s.up_seid), sequence), &mut net.out);
    assert_eq!((net.upf.c.session_count(), net.upf.u.counters().sessions), (0, 0));
}

#[test] // TS 29.244 §6.2.2
fn silent_smf_is_noticed_and_keeps_its_sessions() {
    let mut net = Net::with(Config { heartbeat_interval: Some(Duration::from_secs(60)), ..config() });
    net.idle_session(1, true, false);
    net.advance(START + Duration::from_secs(80));
    let heartbeats =
        net.out.datagrams.iter().filter(|(_, o)| Frame::parse(o).unwrap().header.message_type == 1);
    assert_eq!(heartbeats.count(), 3);
    assert!(net.out.events.iter().any(|e| matches!(e, Event::AssociationSilent { .. })));
    assert_eq!(net.upf.c.session_count(), 1);
}

#[test] // TS 23.527 §4.4
fn an_smf_that_stays_silent_is_given_up_with_its_sessions() {
    let (heartbeat_interval, path_failure) = (Some(Duration::from_secs(60)), Duration::from_secs(100));
    let mut net = Net::with(Config { heartbeat_interval, path_failure, ..config() });
    net.idle_session(1, true, false);
    net.advance(START + Duration::from_secs(168));
    assert_eq!(net.upf.c.session_count(), 1, "69 s until it is silent, and 100 s more");
    net.advance(START + Duration::from_secs(170));
    let ended = |e: &Event| {
        matches!(e, Event::AssociationEnded { why: AssociationEnd::Silent, sessions_deleted: 1, .. })
    };
    assert!(net.out.events.iter().any(ended));
    assert_eq!((net.upf.c.session_count(), net.upf.u.counters().sessions), (0, 0));
    assert_eq!(net.upf.c.associations().count(), 0);
}

#[test] // TS 29.244 §6.2.2: it leaves heartbeats unanswered, and asks for sessions all the while
fn an_smf_that_speaks_is_not_given_up() {
    let (heartbeat_interval, path_failure) = (Some(Duration::from_secs(60)), Duration::from_secs(55));
    let mut net = Net::with(Config { heartbeat_interval, path_failure, ..config() });
    for n in 1..=4 {
        net.advance(START + Duration::from_secs(50 * n));
        net.idle_session(n, true, false);
    }
    assert_eq!(net.upf.c.session_count(), 4);
}

#[test] // TS 29.244 §5.2.1A.2A (PDI optimisation): endpoint instead of tunnel and address in each PDR
fn traffic_endpoints_stand_for_tunnel_and_address() {
    let mut net = Net::new();
    let mut m = establishment(1, true, false);
    let address = m.create_pdrs[0].pdi.ue_ip_addresses.remove(0);
    let local_f_teid = m.create_pdrs[0].pdi.f_teid.take();
    m.create_pdrs[0].pdi.traffic_endpoint_ids = vec![TrafficEndpointId(1)];
    m.create_traffic_endpoints = vec![CreateTrafficEndpoint {
        traffic_endpoint_id: TrafficEndpointId(1),
        local_f_teid,
        network_instance: NetworkInstance::new("internet"),
        ue_ip_addresses: vec![address],
    }];
    let r = net.establish(m);
    assert_eq!(r.cause, Cause::RequestAccepted, "{r:?}");
    let endpoint = &r.created_traffic_endpoints[0];
    let Some(FTeid::Given { teid, .. }) = endpoint.local_f_teid else { panic!() };
    let ipv4 = endpoint.ue_ip_addresses[0].ipv4.and_then(Choice::given).unwrap();
    let s =
        Session { up_seid: r.up_f_seid.unwrap().seid, cp_seid: Seid(1), teid, ipv4: Some(ipv4), ipv6: None };
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let (verdict, _) = net.uplink(&s, &udp4(ipv4, SERVER, (1, 2), 0));
    assert_eq!(verdict, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }));
}
