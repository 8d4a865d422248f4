//! Sessions, service request, paging and the gNB's own checks against a scripted core.

use crate::fake_core::{NOW, Net, UE};
use whimbrel_gtpu::Gtpu;
use whimbrel_ids::{PduSessionId, Qfi, Teid};
use whimbrel_nas::ie::{MmCause, PcoDirection, PduSessionType, SmCause, container_id};
use whimbrel_nas::mm::MessageType;
use whimbrel_ngap::{Cause, CauseRadioNetwork, TransferSyntax};
use whimbrel_ran::gnb::{self, GTPU_HEADROOM};
use whimbrel_ran::ue::{Event, MeasuredProcedure, MmState, Reason, SessionRequest, UeCommand};

pub fn internet() -> UeCommand {
    let dnn = "internet".parse().ok();
    UeCommand::EstablishSession(SessionRequest {
        dnn,
        s_nssai: Some(crate::fake_core::SLICE),
        pdu_session_type: PduSessionType::Ipv4,
    })
}

fn one() -> PduSessionId {
    PduSessionId::new(1).unwrap()
}

fn with_session() -> Net {
    let mut net = Net::new();
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    net.command(internet());
    net
}

fn go_idle(net: &mut Net) {
    let cause = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
    net.gnb(gnb::Input::Release(UE, cause));
}

#[test] // TS 24.501 §6.4.1
fn establishment() {
    let mut net = with_session();
    let events = net.take_events();
    let session = net.ue.sessions().next().unwrap();
    assert_eq!(session.ipv4, Some([10, 45, 0, 2].into()));
    assert_eq!((session.dns_ipv4.as_slice(), session.mtu), (&[[10, 45, 0, 1].into()][..], Some(1400)));
    assert!(net.ue.has_user_plane(one()));
    assert_eq!(events[1], Event::UserPlane { session: one(), up: true });
    assert!(matches!(events[2], Event::SessionUp { since: NOW, .. }));
    let (request, transport) = net.core.session_request.as_ref().unwrap();
    let asked: Vec<u16> =
        request.extended_pco.as_ref().unwrap().containers(PcoDirection::FromUe).map(|c| c.id).collect();
    assert!(asked.contains(&container_id::DNS_SERVER_IPV4) && asked.contains(&container_id::IPV4_LINK_MTU));
    assert_eq!(transport.dnn.as_ref().unwrap().as_str(), "internet");
}

#[test] // TS 24.501 §5.6.1: an idle UE that wants a session asks for service first
fn establishment_from_idle() {
    let mut net = Net::registered();
    net.command(internet());
    assert!(net.core.uplink.contains(&MessageType::ServiceRequest));
    assert_eq!(net.ue.sessions().count(), 1);
    net.take_events();
}

#[test] // TS 29.281, TS 38.415
fn packets_through_the_tunnel() {
    let mut net = with_session();
    let mut buffer = vec![0; GTPU_HEADROOM];
    buffer.extend_from_slice(b"packet");
    let (peer, at) = net.gnb.encapsulate(UE, one(), None, &mut buffer, GTPU_HEADROOM).unwrap();
    assert_eq!(peer.to_string(), "127.0.0.9");
    let sent = Gtpu::parse(&buffer[at..]).unwrap();
    assert_eq!((sent.teid, sent.payload), (Teid(0x55), &b"packet"[..]));
    assert_eq!(sent.pdu_session.unwrap().qfi().value(), 1);
    // The gNB's own tunnel is the first that it gave out.
    let qfi = Qfi::new(1).unwrap();
    net.downlink(Teid(1), qfi, b"answer");
    assert_eq!(net.take_packets(), [(one(), b"answer".to_vec())]);
    net.take_events();
    // An unknown tunnel is answered by an error indication (TS 29.281 §7.3.1).
    net.gtpu(&[0x30, 255, 0, 0, 0, 0, 0, 9]);
    let sent = net.take_gtpu();
    assert_eq!(sent[0].0, "127.0.0.9:2152".parse().unwrap());
    assert_eq!(Gtpu::parse(&sent[0].1).unwrap().message_type, whimbrel_gtpu::message_type::ERROR_INDICATION);
    // Neither a flow that the session does not have, nor octets that are no GTP-U, go by unseen.
    net.downlink(Teid(1), Qfi::new(7).unwrap(), b"answer");
    net.gtpu(&[0xff]);
    assert_eq!(net.violations().len(), 2);
}

#[test] // TS 24.501 §6.4.1.4, §5.4.5.3.1
fn refused_sessions() {
    let mut net = Net::new();
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    net.take_events();
    net.core.knobs.reject_session = Some(SmCause::MissingOrUnknownDnn);
    net.command(internet());
    net.core.knobs.not_forwarded = Some(MmCause::DnnNotSupportedOrNotSubscribed);
    net.command(internet());
    let reasons: Vec<Reason> = net
        .take_events()
        .iter()
        .filter_map(|e| match e {
            Event::Refused { procedure: MeasuredProcedure::SessionEstablishment, reason, .. } => {
                Some(*reason)
            }
            _ => None,
        })
        .collect();
    let expected =
        [Reason::Sm(SmCause::MissingOrUnknownDnn), Reason::Mm(MmCause::DnnNotSupportedOrNotSubscribed)];
    assert_eq!(reasons, expected);
}

#[test] // TS 24.501 §6.4.3
fn release_by_the_ue() {
    let mut net = with_session();
    net.take_events();
    net.command(UeCommand::ReleaseSession(one()));
    let events = net.take_events();
    let cause = Some(SmCause::RegularDeactivation);
    assert!(
        events.contains(&Event::SessionReleased { since: Some(NOW), session: one(), cause }),
        "{events:?}"
    );
    assert_eq!(net.ue.sessions().count(), 0);
    assert!(net.core.sessions.is_empty());
}

#[test] // TS 24.501 §5.6.1: user inactivity, then uplink data
fn idle_and_return() {
    let mut net = with_session();
    go_idle(&mut net);
    assert!(!net.ue.is_connected() && !net.ue.has_user_plane(one()));
    assert_eq!(net.gnb.contexts(), 0);
    net.take_events();
    net.command(UeCommand::ServiceRequest);
    let service = net.core.last_service.as_ref().unwrap();
    assert!(service.uplink_data_status.unwrap().contains(one()));
    assert!(net.ue.has_user_plane(one()));
    assert!(net.take_events().contains(&Event::ServiceAccepted { since: NOW }));
}

#[test] // TS 24.501 §5.6.2
fn paging() {
    let mut net = with_session();
    go_idle(&mut net);
    net.core(|core, out| core.page(out));
    assert_eq!(net.gnb.pagings(), 1);
    assert!(net.ue.is_connected());
    assert_eq!(net.ue.state(), MmState::Registered);
    assert!(net.take_events().contains(&Event::Paged));
}

#[test] // TS 24.501 §5.6.1.4: sessions that the network does not have any more
fn session_lost_by_the_network() {
    let mut net = with_session();
    go_idle(&mut net);
    net.core.sessions = Default::default();
    net.core(|core, out| core.page(out));
    assert_eq!(net.ue.sessions().count(), 0);
    net.take_events();
}

#[test] // TS 24.501 §5.6.1.5: cause #9 leads to a new registration
fn service_rejected_by_a_core_that_forgot() {
    let mut net = with_session();
    go_idle(&mut net);
    net.core.forget();
    net.take_events();
    net.command(UeCommand::ServiceRequest);
    let events = net.take_events();
    let refused = Reason::Mm(MmCause::UeIdentityCannotBeDerived);
    assert!(
        events.iter().any(|e| matches!(e, Event::Refused { reason, .. } if *reason == refused)),
        "{events:?}"
    );
    assert!(events.iter().any(|e| matches!(e, Event::Registered { .. })), "{events:?}");
}

#[test] // TS 24.501 §4.4.4.3: a service request that cannot be verified is refused, and the UE registers again
fn service_request_with_a_wrong_mac() {
    let mut net = with_session();
    go_idle(&mut net);
    net.ue.faults_mut().wrong_mac = 1;
    net.take_events();
    net.command(UeCommand::ServiceRequest);
    let events = net.take_events();
    assert!(events.iter().any(|e| matches!(e, Event::Registered { .. })), "{events:?}");
}

#[test] // TS 24.501 §5.6.1.7 a: T3517
fn service_request_without_an_answer() {
    let mut net = with_session();
    go_idle(&mut net);
    net.core.knobs.silent = true;
    net.take_events();
    net.command(UeCommand::ServiceRequest);
    while net.ue.state() != MmState::Registered {
        net.until_next_timer();
    }
    let events = net.take_events();
    let timed_out = |e: &Event| {
        matches!(
            e,
            Event::Refused { procedure: MeasuredProcedure::ServiceRequest, reason: Reason::TimedOut, .. }
        )
    };
    assert!(events.iter().any(timed_out), "{events:?}");
}

#[test] // TS 24.501 §6.4.1.6 a: T3580 five times
fn establishment_without_an_answer() {
    let mut net = Net::new();
    net.core.knobs.keep_connection = true;
    net.command(UeCommand::Register);
    net.core.knobs.silent = true;
    net.take_events();
    net.command(internet());
    let mut refused = Vec::new();
    while refused.is_empty() {
        net.until_next_timer();
        refused = net.take_events();
    }
    assert_eq!(net.now.since(NOW).as_secs(), 5 * 16);
    assert!(matches!(refused[0], Event::Refused { reason: Reason::TimedOut, .. }), "{refused:?}");
}

#[test] // TS 38.413 §8.2.1.2
fn missing_ue_ambr_is_a_violation() {
    let mut net = Net::new();
    net.core.knobs.keep_connection = true;
    net.core.knobs.without_ue_ambr = true;
    net.command(UeCommand::Register);
    net.command(internet());
    assert_eq!(net.violations(), ["the first session came without UE Aggregate Maximum Bit Rate"]);
}

#[test] // TS 38.413 §8.7.3, §8.7.1: what the gNB forgets, its UEs lose
fn reset_and_loss_of_the_association() {
    let mut net = with_session();
    net.gnb(gnb::Input::Reset);
    assert!(!net.ue.is_connected());
    assert_eq!(net.core.ngap.last(), Some(&"NgReset"));
    let mut net = with_session();
    net.gnb(gnb::Input::AssociationDown);
    assert!(!net.ue.is_connected() && !net.gnb.is_up());
    net.command(UeCommand::ServiceRequest);
    assert!(!net.ue.is_connected());
    let mut net = with_session();
    net.gnb(gnb::Input::AssociationUp { streams: 4, syntax: TransferSyntax::Per });
    assert!(!net.ue.is_connected() && net.gnb.is_up());
    net.take_events();
}

#[test] // TS 38.413 §8.7.4, §10
fn garbage_and_unknown_ues_get_error_indication() {
    let mut net = Net::registered();
    net.take_events();
    net.gnb(gnb::Input::Ngap { stream: 0, octets: &[0xff; 9] });
    let unknown = whimbrel_ngap::DownlinkNasTransport::new(
        whimbrel_ids::AmfUeNgapId::new(7).unwrap(),
        whimbrel_ids::RanUeNgapId(77),
        vec![0x7e],
    );
    let octets = whimbrel_ngap::Message::from(unknown).to_vec();
    net.gnb(gnb::Input::Ngap { stream: 1, octets: &octets });
    assert_eq!(net.core.ngap.iter().filter(|n| **n == "ErrorIndication").count(), 2);
    assert_eq!(net.violations().len(), 2);
}

#[test] // TS 38.413 §8.6.4, §8.3.2: a UE that is out of reach
fn radio_lost() {
    let mut net = with_session();
    net.core.knobs.silent = true;
    net.gnb(gnb::Input::Release(UE, Cause::RadioNetwork(CauseRadioNetwork::RadioConnectionWithUeLost)));
    assert!(!net.ue.is_connected());
    net.core(|core, out| core.update_configuration(out));
    assert_eq!(net.core.ngap.last(), Some(&"NasNonDeliveryIndication"));
    net.take_events();
}
