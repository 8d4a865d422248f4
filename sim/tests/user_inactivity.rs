//! Idle connections: the first uplink packet after idle (TS 23.502 §4.2.3.2), and when a UE that has nothing to say becomes idle
//! (TS 24.501 §5.3.1.3, TS 23.502 §4.3.7).

use std::time::Duration;

use crate::common::by_hand::*;
use crate::common::*;
use whimbrel_control::config::Config;
use whimbrel_control::smf::{Tunnel, UpState};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::{TransportLayerAddress, UpTransportLayerInformation};
use whimbrel_ngap::transfer::PduSessionResourceSetupRequestTransfer;
use whimbrel_ran::UeId;
use whimbrel_ran::gnb;
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, default_config, ue_config};
use whimbrel_user::{Destination, Origin};

const GNB: GnbIndex = GnbIndex(0);

/// A G-PDU with a PDU session container (TS 38.415 §5.5.2.2) that a gNB sends into a tunnel for a UE of this address.
fn g_pdu(to: Tunnel, from: std::net::Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.octets());
    packet.extend([192, 0, 2, 1, 0x10, 0, 0x10, 1, 0, 12, 0, 0, 1, 2, 3, 4]);
    let length = 8 + packet.len() as u16;
    let mut octets = vec![0x34, G_PDU];
    octets.extend(length.to_be_bytes());
    octets.extend(to.teid.0.to_be_bytes());
    octets.extend([0, 0, 0, 0x85, 1, 0x10, 1, 0]);
    octets.extend(packet);
    octets
}

#[test] // TS 23.502 §4.2.3.2 uplink: the tunnel that the gNB is given is open before the gNB can use it
fn the_first_uplink_packet_after_idle_passes_before_the_gnb_has_answered() {
    let (mut net, ue) = two_gnbs(1, 1);
    let before = context(&net).sessions[&psi(1)].n3.expect("a tunnel");
    go_idle(&mut net, ue);
    net.command(ue, UeCommand::ServiceRequest);
    while !context(&net).amf.connection.as_ref().is_some_and(|c| c.context_pending) {
        net.advance(SECOND / 10_000);
    }
    net.take_over(SOURCE);
    net.settle(SECOND / 20);
    let heard = net.take_ngap(SOURCE);
    let [Message::InitialContextSetupRequest(m)] = heard.as_slice() else { panic!("{heard:?}") };
    let item = &m.pdu_session_resource_setup_list_cxt_req[0];
    let transfer = &item.pdu_session_resource_setup_request_transfer;
    let transfer = PduSessionResourceSetupRequestTransfer::decode(transfer).expect("a transfer");
    let UpTransportLayerInformation::GtpTunnel(given) = transfer.ul_ngu_up_tnl_information;
    let TransportLayerAddress::V4(address) = given.transport_layer_address else { panic!("IPv4") };
    let given = Tunnel { teid: given.gtp_teid, address: address.into() };
    assert_eq!(given, before, "its tunnel is the same for as long as it stands");
    let from = context(&net).sessions[&psi(1)].address.ipv4.expect("an address");
    let gnb = net.gnb_ref(SOURCE).config().gtp_address;
    let origin = Origin::N3 { peer: (gnb, 2152).into(), local: given.address };
    let sent = net.packet(origin, &g_pdu(given, from));
    assert!(matches!(sent.as_slice(), [(Destination::N6 { .. }, _)]), "{sent:?}");
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Inactive, "the gNB has not answered");
}

/// A registered UE with so many sessions.
fn with_sessions(seed: u64, config: Config, sessions: u8, follow_on: bool) -> (Sim, UeIndex) {
    let mut net = Sim::builder(seed).config(config).recorded().build();
    net.add_gnb(gnb_config(1));
    let mut ue = ue_config(1);
    std::sync::Arc::make_mut(&mut ue.profile).follow_on_request = follow_on;
    let ue = net.add_ue(GNB, ue);
    net.settle(SECOND / 10);
    net.command(ue, UeCommand::Register);
    net.advance(SECOND / 10);
    for _ in 0..sessions {
        let pdu_session_type = PduSessionType::Ipv4;
        net.command(
            ue,
            UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type }),
        );
        net.advance(SECOND / 10);
    }
    assert!(registered(&net, ue));
    assert_eq!(
        context(&net).sessions.values().filter(|s| s.up == UpState::Active).count(),
        usize::from(sessions)
    );
    (net, ue)
}

/// How long it takes from now until the UE is idle; at most five minutes.
fn until_idle(net: &mut Sim, ue: UeIndex) -> Duration {
    let begun = net.now();
    while net.ue_ref(ue).is_connected() && net.now().since(begun) < SECOND * 300 {
        net.advance(SECOND / 20);
    }
    net.now().since(begun)
}

/// The time of ten seconds, and what messages take.
fn is_ten_seconds(time: Duration) -> bool {
    (SECOND * 10 - SECOND / 2..SECOND * 11).contains(&time)
}

#[test] // TS 24.501 §5.3.1.3, §5.5.1.2.4: a connection without session is released after `connection_idle`, with and without Follow-on request
fn a_connection_without_session_is_released_after_ten_seconds() {
    for follow_on in [false, true] {
        let (mut net, ue) = with_sessions(2, default_config(), 0, follow_on);
        let time = until_idle(&mut net, ue);
        assert!(is_ten_seconds(time), "{time:?}, follow-on {follow_on}");
        assert!(registered(&net, ue));
    }
}

#[test] // TS 24.501 §5.3.1.3; TS 38.413 §8.2.4.2: the time begins when the last of several sessions has lost its user plane
fn a_connection_is_released_ten_seconds_after_its_last_session_has_lost_its_user_plane() {
    let (mut net, ue) = with_sessions(3, default_config(), 2, true);
    net.gnb_input(GNB, gnb::Input::LetSessionGo(UeId(0), psi(1)));
    net.advance(SECOND * 30);
    assert!(net.ue_ref(ue).is_connected(), "a session has its user plane");
    net.gnb_input(GNB, gnb::Input::LetSessionGo(UeId(0), psi(2)));
    let time = until_idle(&mut net, ue);
    assert!(is_ten_seconds(time), "{time:?}");
    assert_eq!(context(&net).sessions.len(), 2);
    // Where it returns for one session, the timer starts again.
    net.command(ue, UeCommand::ServiceRequest);
    net.advance(SECOND * 5);
    assert!(net.ue_ref(ue).is_connected());
}

fn quiet_after_ten_seconds() -> Config {
    let mut config = default_config();
    config.timers.session_inactivity = SECOND * 10;
    config
}

/// Packets for a session, one a second.
fn traffic(net: &mut Sim, ue: UeIndex, session: u8, seconds: u32) {
    for _ in 0..seconds {
        net.downlink(ue, psi(session));
        net.advance(SECOND);
    }
    net.downlink(ue, psi(session));
}

#[test] // TS 23.502 §4.2.6 silence: a UE whose traffic has stopped is idle ten seconds after its last packet
fn a_ue_whose_traffic_has_stopped_is_released_ten_seconds_later() {
    let (mut net, ue) = with_sessions(4, quiet_after_ten_seconds(), 1, true);
    traffic(&mut net, ue, 1, 25);
    let time = until_idle(&mut net, ue);
    assert!(is_ten_seconds(time), "{time:?}");
    net.settle(SECOND);
    assert_eq!((net.gnb_ref(GNB).tunnels(), context(&net).sessions[&psi(1)].up), (0, UpState::Inactive));
    // A packet brings it back, and it is idle again ten seconds after that.
    net.downlink(ue, psi(1));
    net.advance(SECOND);
    assert!(net.ue_ref(ue).is_connected(), "paged");
    let time = until_idle(&mut net, ue) + SECOND;
    assert!(is_ten_seconds(time), "{time:?}");
    // Even where nothing comes at all.
    net.command(ue, UeCommand::ServiceRequest);
    net.advance(SECOND);
    assert!(net.ue_ref(ue).is_connected());
    let time = until_idle(&mut net, ue) + SECOND;
    assert!(is_ten_seconds(time), "{time:?}");
    no_violations(&net);
}

#[test] // TS 23.502 §4.3.7: of several sessions each loses its user plane in its own time; the connection ends with the last
fn each_session_loses_its_user_plane_ten_seconds_after_its_last_packet() {
    let (mut net, ue) = with_sessions(5, quiet_after_ten_seconds(), 2, true);
    traffic(&mut net, ue, 1, 9);
    assert!(context(&net).sessions.values().all(|s| s.up == UpState::Active));
    traffic(&mut net, ue, 1, 11);
    let up = [1, 2].map(|n| context(&net).sessions[&psi(n)].up);
    assert_eq!(up, [UpState::Active, UpState::Inactive]);
    assert_eq!(net.gnb_ref(GNB).tunnels(), 1);
    assert!(net.ue_ref(ue).is_connected());
    let time = until_idle(&mut net, ue);
    assert!(is_ten_seconds(time), "{time:?}");
    no_violations(&net);
}

#[test] // TS 23.502 §4.2.6 silence: without `session_inactivity` the gNB alone decides that a UE with a session is inactive
fn a_session_without_traffic_keeps_its_user_plane_by_default() {
    let (mut net, ue) = with_sessions(6, default_config(), 1, true);
    assert_eq!(until_idle(&mut net, ue), SECOND * 300);
    assert_eq!(context(&net).sessions[&psi(1)].up, UpState::Active);
}
