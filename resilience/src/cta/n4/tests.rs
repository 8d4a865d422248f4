//! The association and the requests of one N4.

use super::*;
use whimbrel_pfcp::ie::{
    AssociationReleaseRequest as ReleaseFlags, Cause, Choice, FSeid, FarId, Metric, NodeId, PackedTimer,
    PdrId, Precedence, SequenceNumber, SourceInterface, UeIpAddress,
};
use whimbrel_pfcp::msg::{
    AssociationReleaseResponse, AssociationSetupResponse, AssociationUpdateRequest,
    AssociationUpdateResponse, HeartbeatResponse, LoadControlInformation, OverloadControlInformation,
    SessionDeletionRequest, SessionDeletionResponse, SessionEstablishmentRequest,
    SessionEstablishmentResponse, SessionModificationRequest, SessionModificationResponse,
};
use whimbrel_pfcp::rule::{CreatePdr, Pdi};

const UE: UeId = UeId { slot: 7, generation: 1 };
const TO: OutputId = OutputId { clock: 3, index: 0 };

fn association_answered(
    cause: Cause,
    up_function_features: Option<UpFunctionFeatures>,
) -> AssociationSetupResponse {
    AssociationSetupResponse {
        node_id: NodeId::Ipv4([127, 0, 0, 2].into()),
        cause,
        recovery_time_stamp: RecoveryTimeStamp(9),
        up_function_features,
        cp_function_features: None,
        pfcpasrsp_flags: None,
        announced_pools: None,
        user_plane_ip_resource_information: vec![],
    }
}

fn up() -> N4 {
    let mut n4 = N4::new(UpfId(0), [127, 0, 0, 1].into(), &[], Instant(1_000_000));
    let (mut out, mut arrived) = (vec![], vec![]);
    n4.tick(Instant(1_000_000), &mut out, &mut arrived);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let response = association_answered(Cause::RequestAccepted, Some(NEEDED));
    let octets = Message::from(response).to_octets(None, sequence);
    n4.receive(Instant(1_000_001), &octets, &mut vec![], &mut arrived);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Up)]);
    n4
}

fn request() -> Vec<u8> {
    Message::from(SessionDeletionRequest::default()).to_octets(Some(Seid(5)), 0)
}

#[test] // TS 29.244 §6.2.6.2.1, §6.2.1; TS 23.502 §4.4.3.1: asked for until it is granted; there is no session before
fn an_association_is_set_up() {
    let mut n4 = N4::new(UpfId(3), [127, 0, 0, 1].into(), &[], Instant(1_000_000));
    let (mut out, mut arrived) = (vec![], vec![]);
    let none = n4.request(Instant(1_000_000), UE, TO, request(), &mut out);
    assert_eq!(none, Some(N4Arrival::Answer { ue: UE, to: TO, octets: None }));
    while out.len() < 2 * usize::from(N1) {
        n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    }
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Unanswered)], "after each N1 requests");
    assert!(out.iter().all(|(upf, _)| *upf == UpfId(3)));
    let asked = |octets: &[u8]| match Message::parse(&Frame::parse(octets).unwrap()).unwrap() {
        Message::AssociationSetupRequest(m) => *m,
        other => panic!("{other:?}"),
    };
    let m = asked(&out[0].1);
    assert_eq!((m.node_id, m.cp_function_features), (NodeId::Ipv4([127, 0, 0, 1].into()), Some(FEATURES)));
    let sequence = |n: usize| Frame::parse(&out[n].1).unwrap().header.sequence;
    assert!(sequence(0) == sequence(2) && sequence(2) != sequence(3), "N1 times, then a new request");
    // A refusal is no association; another attempt follows.
    let refusal = association_answered(Cause::NoResourcesAvailable, None);
    let (_, arrived) = says(&mut n4, 20_000_000, refusal, sequence(5));
    assert!(arrived.is_empty() && !n4.is_up());
    assert_eq!(n4.next_deadline(), Instant(20_000_000) + RETRY);
}

#[test] // TS 29.244 §6.4
fn an_unanswered_request_is_repeated_unchanged_until_n1() {
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    let mut now = Instant(2_000_000);
    assert_eq!(n4.request(now, UE, TO, request(), &mut out), None);
    while arrived.is_empty() {
        now = n4.next_deadline();
        n4.tick(now, &mut out, &mut arrived);
    }
    let sent: Vec<_> =
        out.iter().map(|(_, o)| o).filter(|o| o[1] == message_type::SESSION_DELETION_REQUEST).collect();
    assert_eq!(sent.len(), usize::from(N1));
    assert!(sent.iter().all(|o| *o == sent[0]));
    assert_eq!(arrived, [N4Arrival::Answer { ue: UE, to: TO, octets: None }]);
}

#[test] // TS 29.244 §6.2.6.3: the UPF set it up, and the answer was lost with the CTA; its recovery time stamp is what it was
fn a_upf_that_knows_of_no_association_is_asked_for_one() {
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    n4.request(Instant(2_000_000), UE, TO, request(), &mut out);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let node_id = NodeId::Ipv4([127, 0, 0, 2].into());
    let refusal = SessionEstablishmentResponse::new(node_id, Cause::NoEstablishedPfcpAssociation);
    let refusal = Message::from(refusal).to_octets(Some(Seid(0)), sequence);
    out.clear();
    n4.receive(Instant(2_000_100), &refusal, &mut out, &mut arrived);
    let answer = N4Arrival::Answer { ue: UE, to: TO, octets: Some(refusal) };
    assert_eq!(arrived, [answer, N4Arrival::Upf(UpfChange::Lost)]);
    n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    assert_eq!(types(&out), [message_type::ASSOCIATION_SETUP_REQUEST]);
    // A UPF that has sessions still would keep them for an SMF that started when this one did; and it asks whether it has restarted.
    let Ok(Message::AssociationSetupRequest(m)) = Message::parse(&Frame::parse(&out[0].1).unwrap()) else {
        panic!()
    };
    assert!(m.recovery_time_stamp > RecoveryTimeStamp::at(Instant(1_000_000)));
    let asks = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(9) };
    let (sent, _) = says(&mut n4, 2_000_300, asks, 77);
    let Ok(Message::HeartbeatResponse(answer)) = Message::parse(&Frame::parse(&sent[0].1).unwrap()) else {
        panic!()
    };
    assert_eq!(answer.recovery_time_stamp, m.recovery_time_stamp);
}

#[test] // TS 23.527 §4.2: killed and started again within a second, it has the stamp of before, and the UPF keeps sessions that no SMF knows
fn a_upf_that_keeps_sessions_unasked_is_asked_again_with_a_later_stamp() {
    // One that says so whatever it is asked gets no third request.
    for keeps_again in [false, true] {
        let started = Instant(1_000_000);
        let mut n4 = N4::new(UpfId(0), [127, 0, 0, 1].into(), &[], started);
        let mut stamps = vec![];
        for keeps in [true, keeps_again] {
            let (mut out, mut arrived) = (vec![], vec![]);
            n4.tick(started, &mut out, &mut arrived);
            let frame = Frame::parse(&out[0].1).unwrap();
            let Ok(Message::AssociationSetupRequest(m)) = Message::parse(&frame) else { panic!() };
            assert_eq!(m.session_retention_information, None);
            stamps.push(m.recovery_time_stamp);
            let mut response = association_answered(Cause::RequestAccepted, Some(NEEDED));
            response.pfcpasrsp_flags = keeps.then_some(SetupFlags::PSREI);
            let (_, arrived) = says(&mut n4, 1_000_000, response, frame.header.sequence);
            let up: &[N4Arrival] = &[N4Arrival::Upf(UpfChange::Up)];
            assert_eq!(arrived, if stamps.len() == 1 { &[] } else { up });
        }
        assert!(stamps[1] > stamps[0] && n4.is_up(), "{stamps:?}");
    }
}

#[test] // DESIGN §4 rule 8: what a UPF may have done without our knowing is found out when it shows that it lives
fn a_request_that_was_given_up_is_repeated_once_the_upf_lives() {
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    n4.request(Instant(2_000_000), UE, TO, request(), &mut out);
    let asked = out[0].clone();
    while arrived.is_empty() {
        n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    }
    out.clear();
    n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    out.clear();
    let beat = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(9) };
    let beat = Message::from(beat).to_octets(None, sequence);
    n4.receive(Instant(14_000_000), &beat, &mut out, &mut arrived);
    assert_eq!(out, [asked]);
}

#[test] // TS 29.244 §6.4: a request may come late, repeated, and what came meanwhile must stand
fn changes_of_a_session_wait_for_each_other() {
    let mut n4 = up();
    let change = |seid| Message::from(SessionModificationRequest::default()).to_octets(Some(Seid(seid)), 0);
    let sequence = |octets: &[u8]| Frame::parse(octets).unwrap().header.sequence;
    let (mut out, mut arrived) = (vec![], vec![]);
    let [second, other] = [4, 5].map(|clock| OutputId { clock, index: 0 });
    n4.request(Instant(2_000_000), UE, TO, change(5), &mut out);
    n4.request(Instant(2_000_000), UE, second, change(5), &mut out);
    n4.request(Instant(2_000_000), UE, other, change(6), &mut out);
    n4.request(Instant(2_000_000), UE, other, request(), &mut out);
    let sent: Vec<_> = out.drain(..).map(|(_, o)| o).collect();
    assert_eq!(sent.len(), 3, "another session's goes, and the end of this one");
    let answer = |n: u32| {
        let response = SessionModificationResponse::new(Cause::RequestAccepted);
        Message::from(response).to_octets(Some(UE.seid(1, 7)), n)
    };
    n4.receive(Instant(2_000_001), &answer(sequence(&sent[0])), &mut out, &mut arrived);
    assert_eq!(arrived.len(), 1);
    let (_, next) = out.pop().expect("the next one goes");
    assert_eq!((next[1], changed_session(&next)), (sent[0][1], Some(Seid(5))));
    arrived.clear();
    n4.receive(Instant(2_000_002), &answer(sequence(&next)), &mut out, &mut arrived);
    assert!(matches!(arrived[..], [N4Arrival::Answer { to, .. }] if to == second));
    arrived.clear();
    // One that is given up lets the next one go, and with the association all end.
    n4.request(Instant(3_000_000), UE, TO, change(5), &mut out);
    n4.request(Instant(3_000_000), UE, second, change(5), &mut out);
    n4.request(Instant(3_000_000), UE, second, change(5), &mut out);
    while !arrived.contains(&N4Arrival::Answer { ue: UE, to: TO, octets: None }) {
        n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    }
    assert_eq!(out.iter().filter(|(_, o)| changed_session(o) == Some(Seid(5))).count(), usize::from(N1) + 1);
    arrived.clear();
    n4.release(Instant(9_000_000), &mut out, &mut arrived);
    let unanswered = N4Arrival::Answer { ue: UE, to: second, octets: None };
    assert_eq!(arrived.iter().filter(|a| **a == unanswered).count(), 2);
}

#[test]
fn an_answer_reaches_its_ue_once() {
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    n4.request(Instant(2), UE, TO, request(), &mut out);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let response = SessionDeletionResponse::new(Cause::RequestAccepted);
    let octets = Message::from(response).to_octets(Some(UE.seid(1, 7)), sequence);
    n4.receive(Instant(3), &octets, &mut out, &mut arrived);
    n4.receive(Instant(4), &octets, &mut out, &mut arrived);
    assert_eq!(arrived, [N4Arrival::Answer { ue: UE, to: TO, octets: Some(octets) }]);
}

#[test] // TS 23.527 §4.3.2
fn another_recovery_time_stamp_means_that_sessions_are_to_be_restored() {
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let beat = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(10) };
    n4.receive(Instant(3), &Message::from(beat).to_octets(None, sequence), &mut out, &mut arrived);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Restarted)]);
    assert!(!n4.is_up());
    // A UPF that grants no association in time gets none of them.
    let (mut now, mut late) = (Instant(3), vec![]);
    while late.is_empty() {
        now = n4.next_deadline();
        n4.tick(now, &mut out, &mut late);
    }
    assert_eq!((late, now), (vec![N4Arrival::Upf(UpfChange::Lost)], Instant(3) + PATH_FAILURE));
    let mut more = (0..9).flat_map(|_| {
        let mut more = vec![];
        n4.tick(n4.next_deadline(), &mut out, &mut more);
        more
    });
    assert!(more.all(|a| a == N4Arrival::Upf(UpfChange::Unanswered)), "the loss is reported once");
}

#[test]
fn garbage_is_ignored() {
    let mut n4 = up();
    for octets in [&[][..], &[0x21], &[0x20; 8], &[0xff; 64]] {
        n4.receive(Instant(3), octets, &mut vec![], &mut vec![]);
    }
    assert!(n4.is_up());
}

/// The requests that the UPF gets in the end, by message type.
fn types(out: &OutgoingPfcp) -> Vec<u8> {
    out.iter().map(|(_, o)| o[1]).collect()
}

/// The UPF sends this.
fn says(n4: &mut N4, now: u64, m: impl Into<Message>, sequence: u32) -> (OutgoingPfcp, Vec<N4Arrival>) {
    let (mut out, mut arrived) = (vec![], vec![]);
    let m: Message = m.into();
    n4.receive(Instant(now), &m.to_octets(None, sequence), &mut out, &mut arrived);
    (out, arrived)
}

/// Lets heartbeats go unanswered until something comes of it.
fn silence(n4: &mut N4) -> (Instant, Vec<N4Arrival>) {
    let (mut out, mut arrived) = (vec![], vec![]);
    loop {
        let now = n4.next_deadline();
        n4.tick(now, &mut out, &mut arrived);
        if !arrived.is_empty() {
            return (now, arrived);
        }
    }
}

#[test] // TS 23.527 §4.4: a path that fails and comes back costs no session; a request in doubt is repeated then
fn a_path_that_comes_back() {
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    let (now, silent) = silence(&mut n4);
    assert_eq!(silent, [N4Arrival::Upf(UpfChange::Silent)]);
    assert!(!n4.state().usable, "new sessions go elsewhere");
    assert_eq!(n4.request(now, UE, TO, request(), &mut out), None, "its own may get through");
    let (now, given_up) = silence(&mut n4);
    assert_eq!(given_up, [N4Arrival::Answer { ue: UE, to: TO, octets: None }]);
    let asked = out.pop().unwrap();
    n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    let beat = out.iter().rfind(|(_, o)| o[1] == message_type::HEARTBEAT_REQUEST).unwrap();
    let sequence = Frame::parse(&beat.1).unwrap().header.sequence;
    let beat = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(9) };
    let (out, arrived) = says(&mut n4, now.0 + 1_000_000, beat, sequence);
    assert_eq!((out, arrived), (vec![asked], vec![N4Arrival::Upf(UpfChange::Back)]));
    assert!(n4.is_up() && n4.state().usable);
}

#[test] // TS 23.527 §4.4: S-BFD finds a path that has failed sooner than heartbeats, and the next heartbeat decides whether it has
fn a_path_that_sbfd_finds_failed_is_silent_until_a_heartbeat_is_answered() {
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    let now = Instant(1_500_000);
    n4.path_failed(now, &mut arrived);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Silent)]);
    assert!(!n4.state().usable, "new sessions go elsewhere");
    n4.path_failed(now, &mut arrived);
    assert_eq!(arrived.len(), 1, "it is reported once");
    assert_eq!(n4.next_deadline(), now, "a heartbeat leaves at once");
    n4.tick(now, &mut out, &mut arrived);
    n4.path_failed(now, &mut arrived);
    assert!(n4.next_deadline() > now, "one is under way");
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let beat = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(9) };
    let (_, arrived) = says(&mut n4, now.0 + 1_000, beat, sequence);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Back)]);
    // Without an answer the sessions are lost after the time that the operator has, as ever.
    n4.path_failed(Instant(2_000_000), &mut vec![]);
    let (lost_at, lost) = silence(&mut n4);
    assert_eq!(lost, [N4Arrival::Upf(UpfChange::Lost)]);
    assert!(lost_at.since(Instant(2_000_000)) >= PATH_FAILURE);
}

#[test] // TS 23.527 §4.4: a path that stays away costs the sessions, after the time that the operator has
fn a_path_that_stays_away() {
    let mut n4 = up();
    let (began, _) = silence(&mut n4);
    let (now, lost) = silence(&mut n4);
    assert_eq!(lost, [N4Arrival::Upf(UpfChange::Lost)]);
    assert!(now.since(began) >= PATH_FAILURE && now.since(began) < PATH_FAILURE * 2);
    assert_eq!(n4.link, N4Association::Down);
}

#[test] // TS 29.244 §6.2.6.3, TS 23.502 §4.4.3.1: the UPF may set the association up; what stood before is over
fn an_association_set_up_by_the_upf() {
    let mut n4 = N4::new(UpfId(0), [127, 0, 0, 1].into(), &[], Instant(1_000_000));
    let set_up = |features| AssociationSetupRequest {
        announced_pools: None,
        smf_set_id: None,
        node_id: NodeId::Ipv4([127, 0, 0, 2].into()),
        recovery_time_stamp: RecoveryTimeStamp(9),
        up_function_features: features,
        cp_function_features: None,
        session_retention_information: None,
        user_plane_ip_resource_information: Vec::new(),
        alternative_smf_ip_addresses: Vec::new(),
    };
    let (out, arrived) = says(&mut n4, 2_000_000, set_up(Some(NEEDED)), 1);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Up)]);
    let answer = Message::parse(&Frame::parse(&out[0].1).unwrap()).unwrap();
    assert!(matches!(answer, Message::AssociationSetupResponse(m) if m.cause.is_accepted()));
    // What it asks again, since the answer was lost, is answered as before (TS 29.244 §6.4).
    assert_eq!(says(&mut n4, 2_500_000, set_up(Some(NEEDED)), 1), (out, vec![]));
    let (_, arrived) = says(&mut n4, 3_000_000, set_up(None), 2);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Restarted), N4Arrival::Upf(UpfChange::Unfit)]);
    assert!(!n4.state().usable, "it would choose neither tunnels nor addresses");
}

#[test] // TS 29.244 §6.2.7.3, TS 23.502 §4.4.3.2: what a UPF can do may change
fn an_association_updated_by_the_upf() {
    let mut n4 = up();
    let update = |features| AssociationUpdateRequest {
        node_id: NodeId::Ipv4([127, 0, 0, 2].into()),
        up_function_features: Some(features),
        cp_function_features: None,
        pfcp_association_release_request: None,
        graceful_release_period: None,
        user_plane_ip_resource_information: Vec::new(),
        alternative_smf_ip_addresses: Vec::new(),
    };
    let (out, _) = says(&mut n4, 2_000_000, update(UpFunctionFeatures::FTUP), 1);
    assert_eq!(types(&out), [message_type::ASSOCIATION_UPDATE_RESPONSE]);
    assert!(!n4.state().usable);
    says(&mut n4, 2_000_000, update(NEEDED), 2);
    assert!(n4.state().usable);
    // Without association there is nothing to change.
    n4.lost(Instant(3_000_000), &mut vec![]);
    let (out, _) = says(&mut n4, 3_000_000, update(NEEDED), 3);
    let answer = Message::parse(&Frame::parse(&out[0].1).unwrap()).unwrap();
    let Message::AssociationUpdateResponse(m) = answer else { panic!("{answer:?}") };
    assert_eq!(m.cause, Cause::NoEstablishedPfcpAssociation);
}

#[test] // TS 29.244 §5.22.2, §6.2.7.2: a UPF gets the alternative SMF addresses, now and when it comes back
fn alternative_smf_addresses_are_sent() {
    let addresses = |out: &OutgoingPfcp| -> Vec<AlternativeSmfIpAddress> {
        let all = out.iter().map(|(_, o)| Message::parse(&Frame::parse(o).unwrap()).unwrap());
        all.flat_map(|m| match m {
            Message::AssociationSetupRequest(m) => m.alternative_smf_ip_addresses,
            Message::AssociationUpdateRequest(m) => m.alternative_smf_ip_addresses,
            _ => Vec::new(),
        })
        .collect()
    };
    let cta_replica: IpAddr = [127, 0, 0, 5].into();
    let mut n4 = up();
    let (mut out, mut arrived) = (vec![], vec![]);
    n4.announce(Instant(2_000_000), vec![cta_replica]);
    n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    // The CTA replica may say it one day, from its own address, and F-SEIDs name this one's.
    let own: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(addresses(&out), [cta_replica.into(), own.into()]);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let accepted = AssociationUpdateResponse {
        node_id: NodeId::Ipv4([127, 0, 0, 2].into()),
        cause: Cause::RequestAccepted,
        up_function_features: None,
        cp_function_features: None,
    };
    says(&mut n4, 2_000_100, accepted, sequence);
    // Of a pair, the one that does not name the node names itself as well.
    let mut other = up();
    let mut out = vec![];
    other.announce(Instant(2_000_000), vec![own, cta_replica]);
    other.tick(other.next_deadline(), &mut out, &mut arrived);
    assert_eq!(addresses(&out), [own.into(), cta_replica.into()]);
    // Addresses that change during association setup are sent when it is established.
    let mut young = N4::new(UpfId(0), [127, 0, 0, 1].into(), &[], Instant(1_000_000));
    let mut out = vec![];
    young.tick(Instant(1_000_000), &mut out, &mut arrived);
    young.announce(Instant(1_000_001), vec![cta_replica]);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let granted = association_answered(Cause::RequestAccepted, Some(NEEDED));
    says(&mut young, 1_000_002, granted, sequence);
    let mut out = vec![];
    young.tick(young.next_deadline(), &mut out, &mut arrived);
    assert_eq!(
        (types(&out), addresses(&out)),
        (vec![message_type::ASSOCIATION_UPDATE_REQUEST], vec![cta_replica.into(), own.into()])
    );
    // Sent once; heartbeats follow, and the next association setup sends them again.
    let mut out = vec![];
    n4.tick(n4.next_deadline(), &mut out, &mut arrived);
    assert_eq!((types(&out), addresses(&out)), (vec![message_type::HEARTBEAT_REQUEST], vec![]));
    n4.lost(Instant(9_000_000), &mut arrived);
    let mut out = vec![];
    n4.tick(Instant(9_000_000), &mut out, &mut arrived);
    assert_eq!(addresses(&out), [cta_replica.into(), own.into()]);
}

#[test] // TS 29.244 §6.2.8.3, §6.2.8.2, TS 23.502 §4.4.3.3: a UPF asks to be left; it gets no new session, and is released
fn a_release_asked_by_the_upf() {
    let mut n4 = up();
    let ask = AssociationUpdateRequest {
        node_id: NodeId::Ipv4([127, 0, 0, 2].into()),
        up_function_features: None,
        cp_function_features: None,
        pfcp_association_release_request: Some(ReleaseFlags::SARR),
        graceful_release_period: Some(PackedTimer::from_seconds(60)),
        user_plane_ip_resource_information: Vec::new(),
        alternative_smf_ip_addresses: Vec::new(),
    };
    let (_, arrived) = says(&mut n4, 2_000_000, ask.clone(), 1);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Leaving)]);
    assert!(n4.is_up() && !n4.state().usable);
    assert_eq!(n4.leaving(), Some(Instant(62_000_000)));
    let (_, again) = says(&mut n4, 3_000_000, ask, 2);
    assert!(again.is_empty(), "it has asked already");

    let (mut out, mut arrived) = (vec![], vec![]);
    n4.release(Instant(4_000_000), &mut out, &mut arrived);
    assert_eq!(types(&out), [message_type::ASSOCIATION_RELEASE_REQUEST]);
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Released)]);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let node_id = NodeId::Ipv4([127, 0, 0, 2].into());
    says(&mut n4, 5_000_000, AssociationReleaseResponse { node_id, cause: Cause::RequestAccepted }, sequence);
    assert_eq!(n4.next_deadline(), Instant(5_000_000) + RELEASED, "it is left alone for a while");
}

#[test] // TS 29.244 §6.2.8.1: only an SMF releases
fn a_upf_does_not_release() {
    let mut n4 = up();
    let release = AssociationReleaseRequest { node_id: NodeId::Ipv4([127, 0, 0, 2].into()) };
    let (out, arrived) = says(&mut n4, 2_000_000, release, 1);
    assert_eq!(types(&out), [message_type::ASSOCIATION_RELEASE_RESPONSE]);
    assert!(arrived.is_empty() && n4.is_up());
}

#[test] // TS 29.244 §6.2.3, §6.2.4: the newest counts, whatever comes late; an overload that is not repeated is over
fn the_newest_load_and_overload_information_counts() {
    let mut n4 = up();
    let mut tell = |sequence, load, reduction, now| {
        let sequence_number = SequenceNumber(sequence);
        let (metric, period_of_validity) = (Metric(reduction), PackedTimer::from_seconds(60));
        let response = SessionDeletionResponse {
            load_control_information: Some(LoadControlInformation { sequence_number, metric: Metric(load) }),
            overload_control_information: Some(OverloadControlInformation {
                sequence_number,
                metric,
                period_of_validity,
            }),
            ..SessionDeletionResponse::new(Cause::RequestAccepted)
        };
        says(&mut n4, now, response, 77);
        (n4.state().load, n4.state().reduction)
    };
    assert_eq!(tell(u32::MAX, 40, 0, 2_000_000), (40, 0));
    assert_eq!(tell(1, 250, 30, 2_000_000), (100, 30), "numbers wrap, percents end at 100");
    assert_eq!(tell(0, 10, 0, 3_000_000), (100, 30), "late");
    n4.tick(Instant(61_999_999), &mut vec![], &mut vec![]);
    assert_eq!(n4.state().reduction, 30);
    n4.tick(Instant(62_000_000), &mut vec![], &mut vec![]);
    assert_eq!((n4.state().load, n4.state().reduction), (100, 0));
}

fn pools() -> Vec<UePool> {
    let ipv6 = ("fd00:9997:46::".parse().unwrap(), 62);
    vec![UePool { dnn: dnn(), ipv4: Some(([10, 46, 0, 0].into(), 29)), ipv6: Some(ipv6) }]
}

fn dnn() -> Dnn {
    "internet".parse().unwrap()
}

/// A UPF that chooses tunnels but no UE addresses.
fn up_with_pools() -> N4 {
    let mut n4 = N4::new(UpfId(0), [127, 0, 0, 1].into(), &pools(), Instant(1_000_000));
    let (mut out, mut arrived) = (vec![], vec![]);
    n4.tick(Instant(1_000_000), &mut out, &mut arrived);
    let sequence = Frame::parse(&out[0].1).unwrap().header.sequence;
    let response = association_answered(Cause::RequestAccepted, Some(UpFunctionFeatures::FTUP));
    n4.receive(
        Instant(1_000_001),
        &Message::from(response).to_octets(None, sequence),
        &mut vec![],
        &mut arrived,
    );
    assert_eq!(arrived, [N4Arrival::Upf(UpfChange::Up)]);
    n4
}

fn establishment(address: UeIpAddress) -> Vec<u8> {
    let node = IpAddr::from([127, 0, 0, 1]);
    let mut request = SessionEstablishmentRequest::new(node.into(), FSeid::new(Seid(77), node));
    request.apn_dnn = Some(dnn());
    for (id, source) in [(1, SourceInterface::Access), (2, SourceInterface::Core)] {
        let mut pdi = Pdi::from(source);
        pdi.ue_ip_addresses.extend((id == 2).then_some(address));
        request.create_pdrs.push(CreatePdr::new(PdrId(id), Precedence(255), pdi, FarId(id.into())));
    }
    Message::from(request).to_octets(Some(Seid(0)), 0)
}

fn any_address() -> UeIpAddress {
    let (ipv4, ipv6) = (Some(Choice::Choose), Some(Choice::Choose));
    UeIpAddress { destination: true, ipv4, ipv6, ..UeIpAddress::default() }
}

fn given(octets: &[u8]) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let addresses = match Message::parse(&Frame::parse(octets).unwrap()).unwrap() {
        Message::SessionEstablishmentRequest(m) => {
            m.create_pdrs.into_iter().flat_map(|pdr| pdr.pdi.ue_ip_addresses).collect::<Vec<_>>()
        }
        Message::SessionEstablishmentResponse(m) => {
            m.created_pdrs.into_iter().flat_map(|pdr| pdr.ue_ip_addresses).collect()
        }
        other => panic!("{other:?}"),
    };
    let [address] = addresses.as_slice() else { panic!("{addresses:?}") };
    (address.ipv4.and_then(Choice::given), address.ipv6.and_then(Choice::given))
}

/// The UPF answers the newest request, without a word about UE addresses. Returns what reached the UE.
fn answers(n4: &mut N4, response: impl Into<Message>) -> Option<Vec<u8>> {
    let octets = response.into().to_octets(Some(Seid(77)), n4.sequence);
    let mut arrived = vec![];
    n4.receive(Instant(1_000_002), &octets, &mut vec![], &mut arrived);
    match arrived.pop() {
        Some(N4Arrival::Answer { octets, .. }) => octets,
        other => panic!("{other:?}"),
    }
}

fn accepted(up_seid: u64) -> SessionEstablishmentResponse {
    let node = IpAddr::from([127, 0, 0, 2]);
    let mut response = SessionEstablishmentResponse::new(node.into(), Cause::RequestAccepted);
    response.up_f_seid = Some(FSeid::new(Seid(up_seid), node));
    response
}

/// Asks for a session. Returns the address that the request had.
fn asks(n4: &mut N4, address: UeIpAddress) -> Result<(Option<Ipv4Addr>, Option<Ipv6Addr>), Cause> {
    let mut out = vec![];
    match n4.request(Instant(1_000_002), UE, TO, establishment(address), &mut out) {
        None => Ok(given(&out[0].1)),
        Some(N4Arrival::Answer { octets: Some(octets), .. }) => {
            match Message::parse(&Frame::parse(&octets).unwrap()).unwrap() {
                Message::SessionEstablishmentResponse(m) => Err(m.cause),
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

fn deletes(n4: &mut N4, up_seid: u64) {
    let request = Message::from(SessionDeletionRequest::default()).to_octets(Some(Seid(up_seid)), 0);
    assert_eq!(n4.request(Instant(1_000_002), UE, TO, request, &mut vec![]), None);
    answers(n4, SessionDeletionResponse::new(Cause::RequestAccepted)).unwrap();
}

fn pair(last: u8, prefix: u16) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    (Some([10, 46, 0, last].into()), Some([0xfd00, 0x9997, 0x46, prefix, 0, 0, 0, 0].into()))
}

#[test] // TS 23.501 §5.8.2.2.1: the SMF allocates the address; to the UE's procedures it is as if the UPF had
fn ue_addresses_come_from_the_pools_of_the_smf() {
    let mut n4 = up_with_pools();
    assert_eq!(asks(&mut n4, any_address()), Ok(pair(2, 1)));
    assert_eq!(given(&answers(&mut n4, accepted(1)).unwrap()), pair(2, 1));
    // Of a refused session, and of a deleted one, they are free again, and given out after all others.
    assert_eq!(asks(&mut n4, any_address()), Ok(pair(3, 2)));
    answers(
        &mut n4,
        SessionEstablishmentResponse::new(NodeId::Ipv4([127, 0, 0, 2].into()), Cause::NoResourcesAvailable),
    );
    assert_eq!(asks(&mut n4, any_address()), Ok(pair(4, 3)));
    answers(&mut n4, accepted(2));
    deletes(&mut n4, 1);
    assert_eq!(asks(&mut n4, any_address()), Ok(pair(5, 2)));
    answers(&mut n4, accepted(3));
    assert_eq!(asks(&mut n4, any_address()), Ok(pair(6, 1)));
    answers(&mut n4, accepted(4));
    assert_eq!(
        asks(&mut n4, any_address()),
        Err(Cause::AllDynamicAddressesAreOccupied),
        "four prefixes, one the UPF's"
    );
    let ipv4_only = UeIpAddress { ipv6: None, ..any_address() };
    assert_eq!(asks(&mut n4, ipv4_only), Ok((pair(2, 0).0, None)));
    assert_eq!(asks(&mut n4, ipv4_only), Ok((pair(3, 0).0, None)), "the refusal has lost no address");
}

#[test] // TS 23.527 §4.3: sessions keep their addresses when the UPF restarts, and when this SMF does
fn ue_addresses_stay_with_their_sessions() {
    let mut n4 = up_with_pools();
    asks(&mut n4, any_address()).unwrap();
    answers(&mut n4, accepted(1));
    // The UPF has restarted: the session is established again with its address, and has another SEID.
    let (v4, v6) = pair(2, 1);
    let own = UeIpAddress { ipv4: v4.map(Choice::Given), ipv6: v6.map(Choice::Given), ..any_address() };
    assert_eq!(asks(&mut n4, own), Ok(pair(2, 1)));
    answers(&mut n4, accepted(9));
    deletes(&mut n4, 1);
    assert_eq!(asks(&mut n4, any_address()), Ok(pair(3, 2)), "the former SEID deletes nothing");

    let mut later = up_with_pools();
    later.restore_addresses(Seid(9), &dnn(), v4, v6);
    assert_eq!(asks(&mut later, any_address()), Ok(pair(3, 2)));
    // All is given up with the association.
    later.lost(Instant(1_000_003), &mut vec![]);
    assert!(later.addresses.is_unused());
}
