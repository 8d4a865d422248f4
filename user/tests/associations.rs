//! What a UP function does with its associations beside their set-up: TS 29.244 §6.2.3, §6.2.4, §6.2.6.3, §6.2.7, §6.2.8.

use super::common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::*;
use whimbrel_ids::Seid;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::CreateUrr;
use whimbrel_pfcp::{Frame, Message, message_type};
use whimbrel_user::{Event, REPORTS_KEPT_MAX};

/// An SMF's update of this node, with these features.
fn update(node: NodeId, features: CpFunctionFeatures) -> AssociationUpdateRequest {
    AssociationUpdateRequest {
        node_id: node,
        up_function_features: None,
        cp_function_features: Some(features),
        pfcp_association_release_request: None,
        graceful_release_period: None,
        user_plane_ip_resource_information: Vec::new(),
        alternative_smf_ip_addresses: Vec::new(),
    }
}

fn updated(net: &mut Net, m: AssociationUpdateRequest) -> Cause {
    match net.ask(None, m.into()) {
        Message::AssociationUpdateResponse(m) => m.cause,
        other => panic!("{other:?}"),
    }
}

/// A UPF of so few sessions whose SMF knows what load and overload are.
fn small(sessions_max: u32) -> Net {
    let mut config = config();
    config.sessions_max = sessions_max;
    config.data_networks[0].ipv4_pools[0].prefix = 16;
    let mut net = Net::with(config);
    let both = CpFunctionFeatures::LOAD | CpFunctionFeatures::OVRL;
    assert_eq!(updated(&mut net, update(smf_node(), both)), Cause::RequestAccepted);
    net
}

fn smf_node() -> NodeId {
    association(1).node_id
}

#[test] // TS 29.244 §6.2.7.2, TS 23.502 §4.4.3.2: of an association that stands, and of none
fn an_smf_updates_its_association() {
    let mut net = small(10);
    let unknown = NodeId::Ipv4([127, 0, 0, 99].into());
    let cause = updated(&mut net, update(unknown, CpFunctionFeatures::default()));
    assert_eq!(cause, Cause::NoEstablishedPfcpAssociation);
    // Without the features there is no load control information.
    assert_eq!(updated(&mut net, update(smf_node(), CpFunctionFeatures::default())), Cause::RequestAccepted);
    for n in 1..=5 {
        assert_eq!(net.establish(establishment(n, true, false)).load_control_information, None);
    }
}

#[test] // TS 29.244 §5.22.2, §6.4: another SMF of the set goes on; what it repeats is answered from memory, and it gets the reports
fn another_smf_of_a_set_goes_on_from_its_own_address() {
    let other = SocketAddr::new([127, 0, 0, 4].into(), 8805);
    let says = |net: &mut Net, octets: &[u8]| {
        net.upf.pfcp(net.now, other, octets, &mut net.out);
        let datagrams = std::mem::take(&mut net.out.datagrams);
        assert!(datagrams.iter().all(|(to, _)| *to == other));
        let parsed = datagrams.iter().map(|(_, o)| Message::parse(&Frame::parse(o).unwrap()).unwrap());
        parsed.collect::<Vec<Message>>()
    };
    let mut net = small(10);
    let session = net.idle_session(1, true, false);
    let establishment = Message::from(establishment(2, true, false)).to_octets(Some(Seid(0)), 900);
    let modification = Message::from(activation(GNB_TEID, GNB.ip())).to_octets(Some(session.up_seid), 901);

    // An address that was not announced is refused.
    let strange = says(&mut net, &modification);
    let of = |m: &Message| match m {
        Message::SessionModificationResponse(m) => m.cause,
        Message::SessionEstablishmentResponse(m) => m.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(strange.iter().map(of).collect::<Vec<_>>(), [Cause::SessionContextNotFound]);

    let announced = AssociationUpdateRequest {
        alternative_smf_ip_addresses: vec![other.ip().into()],
        ..update(smf_node(), CpFunctionFeatures::default())
    };
    assert_eq!(updated(&mut net, announced), Cause::RequestAccepted);
    let first = net.ask_octets(&establishment).unwrap();
    let sessions = net.upf.c.sessions().count();
    assert_eq!(says(&mut net, &establishment), [first], "it asks again, and there is no second session");
    assert_eq!(net.upf.c.sessions().count(), sessions);
    let moved = |e: &Event| matches!(e, Event::AssociationMoved { peer, .. } if *peer == other);
    assert_eq!(net.out.events.iter().filter(|e| moved(e)).count(), 1);
    assert_eq!(net.upf.c.associations().map(|(_, at)| at).collect::<Vec<_>>(), [other]);
    let modification = Message::from(activation(GNB_TEID, GNB.ip())).to_octets(Some(session.up_seid), 902);
    assert_eq!(says(&mut net, &modification).iter().map(of).collect::<Vec<_>>(), [Cause::RequestAccepted]);
}

#[test] // TS 29.244 §7.5.4.1: a session that its SMF gives to another one is that one's: it alone may speak of it, and it outlives the former
fn a_session_is_given_to_another_smf() {
    let other = SocketAddr::new([127, 0, 0, 4].into(), 8805);
    let mut net = small(10);
    let mut sequence = 900;
    let mut says = |net: &mut Net, seid: Option<Seid>, m: Message| {
        sequence += 1;
        net.upf.pfcp(net.now, other, &m.to_octets(seid, sequence), &mut net.out);
        let (_, answer) = net.out.datagrams.pop().expect("an answer");
        Message::parse(&Frame::parse(&answer).unwrap()).unwrap()
    };
    let second = AssociationSetupRequest { node_id: NodeId::from(other.ip()), ..association(1) };
    says(&mut net, None, second.into());
    let session = net.idle_session(1, true, false);
    let path = || activation(GNB_TEID, GNB.ip());
    let cause = |m: Message| match m {
        Message::SessionModificationResponse(m) => m.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(says(&mut net, Some(session.up_seid), path().into())), Cause::SessionContextNotFound);
    let given = SessionModificationRequest {
        cp_f_seid: Some(FSeid::new(Seid(77), other.ip())),
        ..SessionModificationRequest::default()
    };
    assert_eq!(net.modify(&session, given).cause, Cause::RequestAccepted);
    assert_eq!(cause(says(&mut net, Some(session.up_seid), path().into())), Cause::RequestAccepted);
    assert_eq!(
        net.modify(&session, path()).cause,
        Cause::SessionContextNotFound,
        "it is not the former's any more"
    );
    // The former restarts: the session stays.
    net.upf.pfcp(net.now, SMF, &Message::from(association(2)).to_octets(None, 990), &mut net.out);
    assert_eq!(net.answer_heartbeats(2), 1);
    assert_eq!(net.upf.c.sessions().map(|(_, cp)| cp).collect::<Vec<_>>(), [Seid(77)]);
}

#[test] // TS 29.244 §6.2.3: the load is reported when it has changed, with growing sequence numbers
fn load_is_reported_when_it_changes() {
    let mut net = small(100);
    let mut reported = Vec::new();
    for n in 1..=20 {
        let m = net.establish(establishment(n, true, false));
        assert_eq!(m.overload_control_information, None);
        reported.extend(m.load_control_information);
    }
    let metrics: Vec<u8> = reported.iter().map(|t| t.metric.0).collect();
    assert_eq!(metrics, [5, 10, 15, 20], "in steps");
    assert!(reported.windows(2).all(|w| w[0].sequence_number < w[1].sequence_number));
    assert_eq!(net.upf.c.load(), 20);
}

#[test] // TS 29.244 §6.2.4: from 95 percent on a UPF asks to be spared, the more the fuller; and says when it is over
fn overload_is_reported_and_ends() {
    let mut net = small(100);
    let mut reported = Vec::new();
    let mut sessions = Vec::new();
    for n in 1..=100 {
        let m = net.establish(establishment(n, true, false));
        reported.extend(m.overload_control_information.map(|o| o.metric.0));
        sessions.push(net.seated(n, &m));
    }
    assert_eq!(reported, [16, 32, 48, 64, 80]);
    let last = sessions.split_off(90);
    let ended: Vec<u8> = last
        .iter()
        .filter_map(|s| net.delete(s).overload_control_information)
        .inspect(|o| assert_eq!(o.period_of_validity.seconds(), Some(60)))
        .map(|o| o.metric.0)
        .collect();
    assert_eq!(ended, [64, 48, 32, 16, 0]);
}

#[test] // TS 29.244 §6.2.6.3, TS 23.502 §4.4.3.1: a UPF asks for its association; an answer to nothing makes none
fn a_upf_asks_for_its_association() {
    let mut net = Net::without_association(config());
    let accepted = |sequence| {
        let response = AssociationSetupResponse {
            node_id: smf_node(),
            cause: Cause::RequestAccepted,
            recovery_time_stamp: RecoveryTimeStamp(77),
            up_function_features: None,
            cp_function_features: None,
            announced_pools: None,
            user_plane_ip_resource_information: Vec::new(),
            pfcpasrsp_flags: None,
        };
        Message::from(response).to_octets(None, sequence)
    };
    net.upf.pfcp(net.now, SMF, &accepted(1), &mut net.out);
    assert_eq!(net.upf.c.associations().count(), 0);
    net.upf.c.associate(net.now, SMF, &mut net.out);
    let (to, octets) = net.out.datagrams.pop().unwrap();
    let frame = Frame::parse(&octets).unwrap();
    assert_eq!(to, SMF);
    let Ok(Message::AssociationSetupRequest(m)) = Message::parse(&frame) else { panic!() };
    assert!(
        m.up_function_features.is_some_and(|f| f.has(UpFunctionFeatures::FTUP | UpFunctionFeatures::UEIP))
    );
    net.upf.pfcp(net.now, SMF, &accepted(frame.header.sequence), &mut net.out);
    assert_eq!(net.upf.c.associations().count(), 1);
    assert_eq!(net.establish(establishment(1, true, false)).cause, Cause::RequestAccepted);
}

#[test] // TS 29.244 §6.2.8.3, TS 23.502 §4.4.3.3: a UPF asks to be left, with its patience; repeated until it is heard
fn a_upf_asks_to_be_left() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    net.upf.c.retire(net.now, Duration::from_secs(90), &mut net.out);
    let (_, octets) = net.out.datagrams.pop().unwrap();
    let frame = Frame::parse(&octets).unwrap();
    let Ok(Message::AssociationUpdateRequest(m)) = Message::parse(&frame) else { panic!() };
    assert!(
        m.pfcp_association_release_request
            .is_some_and(|f| f.has(whimbrel_pfcp::ie::AssociationReleaseRequest::SARR))
    );
    assert_eq!(m.graceful_release_period.and_then(|p| p.seconds()), Some(120), "whole minutes, rounded up");
    net.now = net.upf.c.next_deadline().unwrap();
    net.upf.tick(net.now, &mut net.out);
    assert_eq!(net.out.datagrams.pop().unwrap().1, octets);
    let heard = AssociationUpdateResponse {
        node_id: smf_node(),
        cause: Cause::RequestAccepted,
        up_function_features: None,
        cp_function_features: None,
    };
    let heard = Message::from(heard).to_octets(None, frame.header.sequence);
    net.upf.pfcp(net.now, SMF, &heard, &mut net.out);
    net.now = net.now + Duration::from_secs(30);
    net.upf.tick(net.now, &mut net.out);
    assert!(net.out.datagrams.iter().all(|(_, o)| *o != octets), "it is not repeated any more");
    // Until it is released it goes on to serve.
    assert!(matches!(
        net.uplink(&s, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0)).0,
        whimbrel_user::PacketVerdict::Send(_)
    ));
    let release = whimbrel_pfcp::msg::AssociationReleaseRequest { node_id: smf_node() };
    assert!(
        matches!(net.ask(None, release.into()), Message::AssociationReleaseResponse(m) if m.cause.is_accepted())
    );
    assert_eq!((net.upf.c.session_count(), net.upf.c.associations().count()), (0, 0));
}

#[test] // TS 29.244 §6.2.6.3: both ask at once: the SMF's request is granted, and the UPF's is not repeated
fn both_ask_for_the_association() {
    let mut net = Net::without_association(config());
    net.upf.c.associate(net.now, SMF, &mut net.out);
    let asked = net.out.datagrams.pop().unwrap();
    assert!(
        matches!(net.ask(None, association(1).into()), Message::AssociationSetupResponse(m) if m.cause.is_accepted())
    );
    net.now = net.now + Duration::from_secs(30);
    net.upf.tick(net.now, &mut net.out);
    assert!(!net.out.datagrams.contains(&asked));
    assert_eq!(net.upf.c.associations().count(), 1);
}

#[test] // TS 29.244 §5.22.2: one of a set was asked for the association, and another one has it: the first, were it to come back, is not asked again
fn what_one_of_a_set_has_no_other_is_asked_for() {
    let other = SocketAddr::new([127, 0, 0, 77].into(), 8805);
    let mut net = Net::without_association(config());
    net.upf.c.associate(net.now, other, &mut net.out);
    let asked = net.out.datagrams.pop().unwrap();
    net.ask(None, association(1).into());
    let announced = AssociationUpdateRequest {
        alternative_smf_ip_addresses: vec![other.ip().into()],
        ..update(smf_node(), CpFunctionFeatures::default())
    };
    assert_eq!(updated(&mut net, announced), Cause::RequestAccepted);
    net.out.datagrams.clear();
    net.advance(net.now + Duration::from_secs(30));
    assert!(!net.out.datagrams.contains(&asked));
    assert_eq!(net.upf.c.associations().map(|(_, at)| at).collect::<Vec<_>>(), [SMF]);
}

#[test] // TS 29.244 §5.22.2: what the former one of a set had under way, and what it answers, does not take the association back; what it asks later does
fn what_the_former_smf_of_a_set_says_late() {
    let other = SocketAddr::new([127, 0, 0, 77].into(), 8805);
    let heartbeat = |sequence| {
        let request = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) };
        Message::from(request).to_octets(None, sequence)
    };
    let mut net = Net::without_association(config());
    let set =
        AssociationSetupRequest { alternative_smf_ip_addresses: vec![other.ip().into()], ..association(1) };
    net.ask(None, set.into());
    let peers = |net: &Net| net.upf.c.associations().map(|(_, at)| at).collect::<Vec<SocketAddr>>();
    net.upf.pfcp(net.now, other, &heartbeat(900), &mut net.out);
    assert_eq!(peers(&net), [other]);
    net.out.datagrams.clear();
    let answer = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(1) };
    net.upf.pfcp(net.now, SMF, &Message::from(answer).to_octets(None, 1), &mut net.out);
    net.upf.pfcp(net.now, SMF, &heartbeat(899), &mut net.out);
    assert_eq!(peers(&net), [other], "these were under way");
    assert!(net.out.datagrams.iter().all(|(to, _)| *to == other), "no report goes to the ended association");
    net.upf.pfcp(net.now, SMF, &heartbeat(901), &mut net.out);
    assert_eq!(peers(&net), [SMF], "the set has asked this since: it goes on in its turn");
    net.upf.pfcp(net.now, other, &heartbeat(901), &mut net.out);
    assert_eq!(peers(&net), [SMF]);
    // One that counts for itself is heard once nothing can be under way from it.
    net.advance(net.now + Duration::from_secs(2));
    net.upf.pfcp(net.now, other, &heartbeat(7), &mut net.out);
    assert_eq!(peers(&net), [other]);
}

#[test] // TS 29.244 §5.22.2: what the one that died was asked and had not answered, and all that is reported from now on
fn another_smf_of_a_set_gets_the_reports() {
    let other = SocketAddr::new([127, 0, 0, 77].into(), 8805);
    let sent = |net: &mut Net| -> Vec<(SocketAddr, u8)> {
        let kind = |octets: &[u8]| Frame::parse(octets).unwrap().header.message_type;
        std::mem::take(&mut net.out.datagrams).into_iter().map(|(to, octets)| (to, kind(&octets))).collect()
    };
    let report = whimbrel_pfcp::message_type::SESSION_REPORT_REQUEST;
    let mut net = Net::without_association(config());
    let set =
        AssociationSetupRequest { alternative_smf_ip_addresses: vec![other.ip().into()], ..association(1) };
    let Message::AssociationSetupResponse(m) = net.ask(None, set.into()) else { panic!() };
    assert!(m.up_function_features.is_some_and(|f| f.has(UpFunctionFeatures::SSET)));
    let (one, two) = (net.idle_session(1, true, false), net.idle_session(2, true, false));
    net.downlink(&udp4(SERVER, one.ipv4.unwrap(), (1, 2), 0));
    assert_eq!(sent(&mut net), [(SMF, report)]);
    // Neither answers: both get heartbeats.
    net.advance(net.now + Duration::from_secs(4));
    let asked: Vec<SocketAddr> = sent(&mut net).into_iter().filter(|s| s.1 == report).map(|s| s.0).collect();
    assert_eq!(asked, [SMF, other]);
    let request = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) };
    net.upf.pfcp(net.now, other, &Message::from(request).to_octets(None, 900), &mut net.out);
    assert!(sent(&mut net).contains(&(other, report)), "the one that speaks is asked at once");
    net.downlink(&udp4(SERVER, two.ipv4.unwrap(), (1, 2), 0));
    assert_eq!(sent(&mut net), [(other, report)], "whatever address its session was made with");
    assert_eq!(net.upf.c.session_count(), 2);
}

/// Another program of the SMF's host, and another host.
const SAME_HOST: SocketAddr = SocketAddr::new(SMF.ip(), 40_000);
const OTHER_HOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 66)), 8805);

/// The UPF with one session of an SMF that started at 1.
fn serving() -> (Net, Session) {
    let mut net = small(10);
    let session = net.session(1, true, false);
    (net, session)
}

/// A message comes from there. Returns the answers to it, as far as there are any yet.
fn from(net: &mut Net, peer: SocketAddr, m: impl Into<Message>, sequence: u32) -> Vec<Message> {
    net.upf.pfcp(net.now, peer, &m.into().to_octets(None, sequence), &mut net.out);
    answers(net, peer, sequence)
}

/// The answers that were sent there.
fn answers(net: &mut Net, peer: SocketAddr, sequence: u32) -> Vec<Message> {
    let is_answer = |to: &SocketAddr, octets: &[u8]| {
        let header = Frame::parse(octets).unwrap().header;
        *to == peer && header.sequence == sequence && header.message_type != message_type::HEARTBEAT_REQUEST
    };
    let all = net.out.datagrams.extract_if(.., |(to, octets)| is_answer(to, octets));
    all.map(|(_, octets)| Message::parse(&Frame::parse(&octets).unwrap()).unwrap()).collect()
}

fn causes(answers: &[Message]) -> Vec<Cause> {
    let of = |m: &Message| match m {
        Message::AssociationSetupResponse(m) => m.cause,
        Message::AssociationReleaseResponse(m) => m.cause,
        Message::AssociationUpdateResponse(m) => m.cause,
        other => panic!("{other:?}"),
    };
    answers.iter().map(of).collect()
}

fn retaining(recovery: u32) -> AssociationSetupRequest {
    AssociationSetupRequest {
        session_retention_information: Some(SessionRetentionInformation::default()),
        ..association(recovery)
    }
}

fn peers(net: &Net) -> Vec<SocketAddr> {
    net.upf.c.associations().map(|(_, at)| at).collect()
}

#[test] // TS 29.244 §6.2.6.2.2, TS 23.527 §4.2: one forged request ended all sessions of an SMF that lives
fn a_set_up_in_the_name_of_an_smf_that_lives_is_refused_and_its_sessions_stay() {
    // From the SMF's own address and port (a forged source), from another port of its host, from another host; of a later life, of this
    // one, of an earlier one; and with retention, which would lead the SMF's reports elsewhere.
    let forged = [
        (SMF, association(2)),
        (SMF, association(0)),
        (SAME_HOST, association(2)),
        (SAME_HOST, association(1)),
        (SAME_HOST, retaining(1)),
        (OTHER_HOST, association(2)),
        (OTHER_HOST, association(1)),
        (OTHER_HOST, retaining(2)),
    ];
    for (peer, request) in forged {
        let (mut net, _) = serving();
        assert!(from(&mut net, peer, request.clone(), 700).is_empty(), "{peer}: the SMF is asked first");
        assert!(from(&mut net, peer, request, 700).is_empty(), "{peer}: nor is a repetition answered");
        assert_eq!(net.answer_heartbeats(1), 1, "{peer}: asked once");
        assert_eq!(causes(&answers(&mut net, peer, 700)), [Cause::RequestRejected], "{peer}");
        assert_eq!((net.upf.c.session_count(), peers(&net)), (1, vec![SMF]), "{peer}");
        let contested = |e: &Event| matches!(e, Event::AssociationContested { peer: p, .. } if *p == peer);
        assert_eq!(net.out.events.iter().filter(|e| contested(e)).count(), 1, "{peer}");
    }
}

#[test] // TS 23.527 §4.2: the SMF says itself that it has restarted
fn a_set_up_of_an_smf_that_has_restarted_is_accepted_when_it_has_confirmed_that() {
    for peer in [SMF, SAME_HOST] {
        let (mut net, _) = serving();
        assert!(from(&mut net, peer, association(2), 700).is_empty());
        assert_eq!(net.upf.c.session_count(), 1);
        assert_eq!(net.answer_heartbeats(2), 1);
        assert_eq!(causes(&answers(&mut net, peer, 700)), [Cause::RequestAccepted]);
        assert_eq!((net.upf.c.session_count(), peers(&net)), (0, vec![peer]));
    }
    // A Recovery Time Stamp is no secret, so another host does not get the association by it.
    let (mut net, _) = serving();
    from(&mut net, OTHER_HOST, association(2), 700);
    net.answer_heartbeats(2);
    assert_eq!(causes(&answers(&mut net, OTHER_HOST, 700)), [Cause::RequestRejected]);
    assert_eq!((net.upf.c.session_count(), peers(&net)), (0, vec![SMF]), "restarted it has");
    assert_eq!(causes(&from(&mut net, SMF, association(2), 701)), [Cause::RequestAccepted]);
}

#[test] // TS 29.244 §6.4: N1 times T1 without an answer: the SMF is dead, or elsewhere
fn a_set_up_is_accepted_when_the_smf_of_the_association_does_not_answer() {
    for peer in [SMF, SAME_HOST, OTHER_HOST] {
        let (mut net, _) = serving();
        assert!(from(&mut net, peer, association(2), 700).is_empty());
        net.advance(START + Duration::from_millis(8_900));
        assert_eq!((answers(&mut net, peer, 700).len(), net.upf.c.session_count()), (0, 1));
        net.advance(START + Duration::from_millis(9_100));
        assert_eq!(causes(&answers(&mut net, peer, 700)), [Cause::RequestAccepted]);
        assert_eq!((net.upf.c.session_count(), peers(&net)), (0, vec![peer]));
    }
}

#[test] // TS 23.527 §4.2: an SMF that has moved is not refused for ever because another node has its former address and answers there
fn an_smf_that_moved_gets_its_association_though_its_former_address_answers() {
    let later = |ms| START + Duration::from_millis(ms);
    // The node there has started after the SMF, at the same time as it starts again, or before it: its sessions are void in any case.
    for there in [3, 2, 0] {
        let (mut net, _) = serving();
        for sequence in [700, 701] {
            assert!(from(&mut net, OTHER_HOST, association(2), sequence).is_empty(), "{there}");
            assert_eq!(net.answer_heartbeats(there), 1, "{there}");
            assert_eq!(causes(&answers(&mut net, OTHER_HOST, sequence)), [Cause::RequestRejected], "{there}");
        }
        net.advance(later(8_900));
        assert!(from(&mut net, OTHER_HOST, association(2), 702).is_empty(), "{there}");
        assert_eq!(net.answer_heartbeats(there), 1);
        net.advance(later(9_100));
        assert_eq!(
            causes(&from(&mut net, OTHER_HOST, association(2), 703)),
            [Cause::RequestAccepted],
            "{there}"
        );
        assert_eq!((net.upf.c.session_count(), peers(&net)), (0, vec![OTHER_HOST]), "{there}");
    }
    // An SMF that has restarted at its address sets the association up before that, and keeps it.
    let (mut net, _) = serving();
    from(&mut net, OTHER_HOST, association(2), 700);
    net.answer_heartbeats(2);
    net.advance(later(5_000));
    assert_eq!(causes(&from(&mut net, SMF, association(2), 701)), [Cause::RequestAccepted]);
    net.advance(later(20_000));
    assert!(from(&mut net, OTHER_HOST, association(2), 702).is_empty());
    assert_eq!(net.answer_heartbeats(2), 1);
    assert_eq!(causes(&answers(&mut net, OTHER_HOST, 702)), [Cause::RequestRejected]);
    assert_eq!(peers(&net), [SMF]);
}

#[test] // TS 29.244 §6.2.6.2.2: it lost the answer, not its sessions
fn the_smf_itself_sets_up_again_with_its_recovery_time_stamp_and_its_sessions_are_kept() {
    let (mut net, session) = serving();
    let again = from(&mut net, SMF, association(1), 700);
    let [Message::AssociationSetupResponse(m)] = again.as_slice() else { panic!("{again:?}") };
    assert_eq!(
        (m.cause, m.pfcpasrsp_flags),
        (Cause::RequestAccepted, Some(AssociationSetupResponseFlags::PSREI))
    );
    assert_eq!(net.modify(&session, activation(GNB_TEID, GNB.ip())).cause, Cause::RequestAccepted);
}

#[test] // TS 29.244 §5.22.2, §6.2.6.2.1: a CTA that takes over, at the address of the former one or at another one of the set
fn a_takeover_with_retention_never_waits() {
    let (mut net, _) = serving();
    assert_eq!(causes(&from(&mut net, SMF, retaining(1), 700)), [Cause::RequestAccepted]);
    let announced = AssociationUpdateRequest {
        alternative_smf_ip_addresses: vec![OTHER_HOST.ip().into()],
        ..update(smf_node(), CpFunctionFeatures::default())
    };
    assert_eq!(updated(&mut net, announced), Cause::RequestAccepted);
    assert_eq!(causes(&from(&mut net, OTHER_HOST, retaining(1), 701)), [Cause::RequestAccepted]);
    assert_eq!((net.upf.c.session_count(), peers(&net)), (1, vec![OTHER_HOST]));
    assert!(net.answer_heartbeats(1) == 0);
}

#[test]
fn set_ups_that_wait_are_bounded_and_the_smf_itself_is_not_kept_out() {
    let (mut net, _) = serving();
    let mut refused = 0;
    for port in 1..=1_000 {
        let peer = SocketAddr::new(OTHER_HOST.ip(), port);
        refused += from(&mut net, peer, association(2), 700).len();
    }
    assert_eq!(refused, 996);
    let heartbeats = net.out.datagrams.iter().filter(|(to, _)| *to == SMF).count();
    assert_eq!(heartbeats, 4, "as many as wait");
    assert!(from(&mut net, SMF, association(2), 701).is_empty(), "it displaces one of them");
    net.answer_heartbeats(2);
    assert_eq!(peers(&net), [SMF]);
    // Of many associations.
    let mut net = Net::without_association(config());
    let node = |n: u8| NodeId::Ipv4([10, 0, 0, n].into());
    let of = |n: u8, recovery| AssociationSetupRequest { node_id: node(n), ..association(recovery) };
    for n in 0..200 {
        let peer = SocketAddr::new([10, 0, 0, n].into(), 8805);
        assert_eq!(causes(&from(&mut net, peer, of(n, 1), 1)), [Cause::RequestAccepted]);
    }
    let answered = (0..200).map(|n| from(&mut net, OTHER_HOST, of(n, 2), 1_000 + u32::from(n)).len());
    assert_eq!(answered.sum::<usize>(), 200 - 64);
}

#[test] // TS 29.244 §6.2.8.2.2, §6.2.7.2.2, §6.2.2.2, TS 23.527 §4.2: the same by other messages, and by a forged answer
fn no_other_message_from_another_port_ends_sessions() {
    let (mut net, _) = serving();
    let release = whimbrel_pfcp::msg::AssociationReleaseRequest { node_id: smf_node() };
    let none = [Cause::NoEstablishedPfcpAssociation];
    for peer in [SAME_HOST, OTHER_HOST] {
        assert_eq!(causes(&from(&mut net, peer, release.clone(), 1)), none);
        assert_eq!(causes(&from(&mut net, peer, update(smf_node(), CpFunctionFeatures::default()), 2)), none);
        let later = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(9) };
        from(&mut net, peer, later.clone(), 3);
        from(&mut net, peer, later, 4);
    }
    let asked = |(to, octets): &(SocketAddr, Vec<u8>)| {
        let header = Frame::parse(octets).unwrap().header;
        (*to == SMF && header.message_type == message_type::HEARTBEAT_REQUEST).then_some(header.sequence)
    };
    let sequences: Vec<u32> = net.out.datagrams.iter().filter_map(asked).collect();
    assert_eq!(sequences.len(), 1, "the SMF is asked once whether it has restarted");
    let forged = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(9) };
    from(&mut net, SAME_HOST, forged, sequences[0]);
    assert_eq!(net.answer_heartbeats(1), 1);
    assert_eq!((net.upf.c.session_count(), peers(&net)), (1, vec![SMF]));
}

/// Sessions of an SMF that has each of them report its usage every second, and then goes away.
const REPORTING_SESSIONS: u64 = 150;

fn seconds_later(net: &mut Net, seconds: u64) {
    net.advance(net.now + Duration::from_secs(seconds));
}

/// The requests of this type to the SMF since the last look.
fn requests(net: &mut Net, message_type: u8) -> usize {
    let all = std::mem::take(&mut net.out.datagrams);
    let of_type = |o: &[u8]| Frame::parse(o).unwrap().header.message_type == message_type;
    all.iter().filter(|(to, octets)| *to == SMF && of_type(octets)).count()
}

fn reporting_sessions() -> Net {
    let mut config = config();
    config.data_networks[0].ipv4_pools[0].prefix = 16;
    (config.heartbeat_interval, config.path_failure) =
        (Some(Duration::from_secs(60)), Duration::from_secs(90));
    let mut net = Net::with(config);
    for n in 1..=REPORTING_SESSIONS {
        let mut m = establishment(n, true, false);
        let method = MeasurementMethod::VOLUM | MeasurementMethod::DURAT;
        m.create_urrs = vec![CreateUrr {
            measurement_period: Some(MeasurementPeriod(1)),
            ..CreateUrr::new(UrrId(1), method, ReportingTriggers::PERIO)
        }];
        assert_eq!(net.establish(m).cause, Cause::RequestAccepted);
    }
    net
}

#[test] // TS 29.244 §6.4, §6.2.2.2; TS 23.527 §4.4
fn reports_to_an_smf_that_went_away_are_kept_up_to_a_bound_and_not_sent() {
    let mut net = reporting_sessions();
    seconds_later(&mut net, 30);
    assert!(requests(&mut net, message_type::SESSION_REPORT_REQUEST) > 0);
    seconds_later(&mut net, 30);
    assert_eq!(
        requests(&mut net, message_type::SESSION_REPORT_REQUEST),
        0,
        "all have been sent for the last time"
    );
    seconds_later(&mut net, 10);
    assert!(
        (3..=6).contains(&requests(&mut net, message_type::HEARTBEAT_REQUEST)),
        "it is asked for instead"
    );
    let about_reports = |e: &&Event| {
        matches!(e, Event::ReportsKept { .. } | Event::ReportsNotKept { .. } | Event::ReportUnanswered { .. })
    };
    let events = |net: &Net| net.out.events.iter().filter(about_reports).cloned().collect::<Vec<_>>();
    let begun = Event::ReportsKept { node: smf_node(), peer: SMF };
    assert_eq!(events(&net), [begun], "once, not for each report");

    // This UPF would stop now: there is no SMF that it would ask to leave, and wait for.
    assert_eq!(net.upf.c.answering_associations().count(), 0);
    net.upf.c.retire(net.now, Duration::from_secs(10), &mut net.out);
    assert_eq!(requests(&mut net, message_type::ASSOCIATION_UPDATE_REQUEST), 0);

    // The SMF speaks again.
    net.out.events.clear();
    net.ask(None, HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) }.into());
    let [Event::ReportsNotKept { node, repeated, lost }] = &events(&net)[..] else {
        panic!("{:?}", net.out.events)
    };
    assert_eq!((node, *repeated), (&smf_node(), REPORTS_KEPT_MAX));
    assert!(*lost > 30 * REPORTING_SESSIONS && *lost < 70 * REPORTING_SESSIONS, "{lost}");
    assert_eq!(net.upf.c.answering_associations().count(), 1);
    assert_eq!(requests(&mut net, message_type::SESSION_REPORT_REQUEST), REPORTS_KEPT_MAX);
    seconds_later(&mut net, 2);
    assert!(
        requests(&mut net, message_type::SESSION_REPORT_REQUEST) as u64 >= REPORTING_SESSIONS,
        "as before"
    );

    // It goes away for good: its association ends, and what is kept for it with it.
    net.out.events.clear();
    seconds_later(&mut net, 200);
    let ended = net.out.events.iter().filter(|e| matches!(e, Event::AssociationEnded { .. })).count();
    assert_eq!((ended, net.upf.c.session_count(), net.upf.c.associations().count()), (1, 0, 0));
    let last = events(&net).pop();
    assert!(matches!(last, Some(Event::ReportsNotKept { repeated: 0, lost: 128.., .. })), "{last:?}");
    net.out.datagrams.clear();
    seconds_later(&mut net, 60);
    assert!(net.out.datagrams.is_empty() && net.upf.c.next_deadline().is_none(), "nothing is left of it");
}
