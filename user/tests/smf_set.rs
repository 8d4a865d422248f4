//! SMFs of one set (TS 29.244 §5.22.3): one goes on with the sessions of another.

use super::common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::*;
use whimbrel_ids::Seid;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::{Frame, Message, message_type};
use whimbrel_user::Config;

/// Another SMF of the set.
const OTHER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77)), 8805);

/// An SMF of this set, at this address, sets its association up.
fn associate_of_set(net: &mut Net, smf: SocketAddr, set: &str) {
    let m = AssociationSetupRequest {
        node_id: NodeId::from(smf.ip()),
        smf_set_id: Some(SmfSetId(set.into())),
        ..association(1)
    };
    net.upf.pfcp(net.now, smf, &Message::from(m).to_octets(None, 7), &mut net.out);
}

/// The session reports among what was sent: receiver, SEID of the header, former CP F-SEID.
fn sent_reports(net: &mut Net) -> Vec<(SocketAddr, Option<Seid>, Option<FSeid>)> {
    let sent = std::mem::take(&mut net.out.datagrams).into_iter().filter_map(|(to, octets)| {
        let frame = Frame::parse(&octets).unwrap();
        let Ok(Message::SessionReportRequest(m)) = Message::parse(&frame) else { return None };
        Some((to, frame.header.seid, m.old_cp_f_seid))
    });
    sent.collect()
}

#[test] // TS 29.244 §5.22.3
fn what_an_smf_leaves_unanswered_is_reported_to_its_set_and_to_the_one_that_goes_on() {
    let of_another_set = SocketAddr::from(([127, 0, 0, 78], 8805));
    let mut net = Net::without_association(config());
    associate_of_set(&mut net, SMF, "set.one");
    associate_of_set(&mut net, OTHER, "set.one");
    associate_of_set(&mut net, of_another_set, "set.two");
    let s = net.idle_session(1, true, false);
    net.out.datagrams.clear();
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    assert_eq!(sent_reports(&mut net), [(SMF, Some(Seid(1)), None)]);
    net.advance(net.now + Duration::from_secs(3));
    let former = Some(FSeid::new(Seid(1), SMF.ip()));
    assert_eq!(sent_reports(&mut net), [(SMF, Some(Seid(1)), None), (OTHER, Some(Seid(0)), former)]);
    let takes = |from: SocketAddr| SessionModificationRequest {
        cp_f_seid: Some(FSeid::new(Seid(9), from.ip())),
        ..SessionModificationRequest::default()
    };
    for (from, reports) in [(of_another_set, vec![]), (OTHER, vec![(OTHER, Some(Seid(9)), None)])] {
        let octets = Message::from(takes(from)).to_octets(Some(s.up_seid), 8);
        net.upf.pfcp(net.now, from, &octets, &mut net.out);
        assert_eq!(sent_reports(&mut net), reports);
    }
    net.advance(net.now + Duration::from_secs(3));
    let repeated =
        [(OTHER, Some(Seid(9)), None), (SMF, Some(Seid(0)), Some(FSeid::new(Seid(9), OTHER.ip())))];
    assert_eq!(sent_reports(&mut net), repeated, "the former SMF is of the set");
}

#[test] // two that have a copy of the UE's context would both go on with its sessions
fn what_an_smf_leaves_unanswered_is_reported_to_one_of_its_set_after_the_other() {
    let third = SocketAddr::from(([127, 0, 0, 78], 8805));
    let mut net = Net::without_association(config());
    for smf in [SMF, OTHER, third] {
        associate_of_set(&mut net, smf, "set.one");
    }
    let s = net.idle_session(1, true, false);
    net.out.datagrams.clear();
    net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    net.out.datagrams.clear();
    let mut reported = [(); 2].map(|()| {
        net.advance(net.now + Duration::from_secs(3));
        let others = sent_reports(&mut net).into_iter().map(|(to, ..)| to).filter(|to| *to != SMF);
        others.collect::<Vec<_>>()
    });
    reported.sort();
    assert_eq!(reported, [vec![OTHER], vec![third]]);
}

#[test] // TS 29.244 §7.5.9, §5.22.3: the former SMF does not know the session any more
fn an_answer_of_the_former_smf_does_not_end_a_session_that_another_one_has_taken_over() {
    for is_taken_over in [false, true] {
        let mut net = Net::without_association(config());
        associate_of_set(&mut net, SMF, "set.one");
        associate_of_set(&mut net, OTHER, "set.one");
        let s = net.session(1, true, false);
        net.out.datagrams.clear();
        net.packet(
            from_gnb(),
            whimbrel_gtpu::signalling::error_indication(GNB_TEID, GNB.ip(), 2152).as_ref(),
        );
        let (_, asked) = net.out.datagrams.pop().expect("the error indication is reported");
        if is_taken_over {
            let takes = SessionModificationRequest {
                cp_f_seid: Some(FSeid::new(Seid(9), OTHER.ip())),
                ..SessionModificationRequest::default()
            };
            let octets = Message::from(takes).to_octets(Some(s.up_seid), 8);
            net.upf.pfcp(net.now, OTHER, &octets, &mut net.out);
        }
        let unknown = Message::from(SessionReportResponse::new(Cause::SessionContextNotFound));
        let octets = unknown.to_octets(Some(Seid(0)), Frame::parse(&asked).unwrap().header.sequence);
        net.upf.pfcp(net.now, SMF, &octets, &mut net.out);
        assert_eq!(net.upf.c.session_count(), usize::from(is_taken_over));
    }
}

#[test] // TS 23.527 §4.4: without another SMF after ten minutes; an idle UE comes within the hour for its periodic registration
fn sessions_of_a_dead_smf_stay_for_an_hour_while_another_of_its_set_answers() {
    for other_lives in [false, true] {
        let heartbeat_interval = Some(Duration::from_secs(60));
        let mut net = Net::without_association(Config { heartbeat_interval, ..config() });
        associate_of_set(&mut net, SMF, "set.one");
        associate_of_set(&mut net, OTHER, "set.one");
        net.idle_session(1, true, false);
        let ends = (0..90).find(|_| {
            for _ in 0..60 {
                net.advance(net.now + Duration::from_secs(1));
                let asked = std::mem::take(&mut net.out.datagrams);
                for (to, octets) in asked.into_iter().filter(|(to, _)| *to == OTHER && other_lives) {
                    let header = Frame::parse(&octets).unwrap().header;
                    if header.message_type == message_type::HEARTBEAT_REQUEST {
                        let alive = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(1) };
                        let octets = Message::from(alive).to_octets(None, header.sequence);
                        net.upf.pfcp(net.now, to, &octets, &mut net.out);
                    }
                }
            }
            net.upf.c.session_count() == 0
        });
        let ends = ends.expect("it ends");
        let minutes = if other_lives { 60..65 } else { 9..15 };
        assert!(minutes.contains(&ends), "{other_lives}: {ends} minutes");
    }
}
