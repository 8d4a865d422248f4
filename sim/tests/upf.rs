//! The UPF fails: TS 29.244 §6.4 (no answer), TS 23.527 §4.3.2 (restart), TS 23.502 §4.3.2.2.1 (the cause that the UE gets).

use std::time::Duration;

use crate::common::*;
use whimbrel_control::Refusal;
use whimbrel_nas::ie::{PduSessionType, SmCause};
use whimbrel_ran::ue::{Event, Reason, SessionRequest, UeCommand};
use whimbrel_sim::{Sim, UeIndex, UpfState};

fn session() -> UeCommand {
    UeCommand::EstablishSession(SessionRequest {
        dnn: None,
        s_nssai: None,
        pdu_session_type: PduSessionType::Ipv4,
    })
}

fn on_air(seed: u64) -> (Sim, UeIndex) {
    let (mut net, ue) = one_ue(seed);
    net.command(ue, UeCommand::Register);
    net.settle(SECOND);
    (net, ue)
}

fn sessions(net: &Sim) -> usize {
    net.cta().contexts().map(|p| p.sessions.len()).sum()
}

#[test] // TS 29.244 §6.4, TS 23.502 §4.3.2.2.1 step 10, TS 24.501 §6.4.1.4.1 #38: N1 attempts of T1, then the UE gets #38
fn a_silent_upf_refuses_the_session() {
    let (mut net, ue) = on_air(1);
    net.set_upf(UpfState::Silent);
    net.command(ue, session());
    net.settle(Duration::from_secs(30));
    assert!(refused_with(&net, ue, Reason::Sm(SmCause::NetworkFailure)));
    assert_eq!(first_refusal(&net), Some(Refusal::Upf(None)));
    assert_eq!(sessions(&net), 0);
    assert!(registered(&net, ue), "the registration stands");
    assert!(!net.cta().upf_is_up(), "and the operator learns it");
}

#[test] // the UPF set the session up and its answer was lost: nothing is left over once it is back
fn a_session_set_up_in_vain_is_taken_down() {
    let (mut net, ue) = on_air(2);
    net.set_upf(UpfState::Mute);
    net.command(ue, session());
    net.settle(Duration::from_secs(2));
    net.set_upf(UpfState::Answering);
    net.settle(Duration::from_secs(60));
    assert_eq!(net.upf_sessions(), sessions(&net));
    net.command(ue, session());
    net.settle(Duration::from_secs(60));
    assert!(net.cta().upf_is_up());
    assert_eq!(net.upf_sessions(), sessions(&net));
}

#[test] // TS 23.527 §4.3.2; TS 24.501 §6.3.3.2 #39: sessions are gone with a restart; a connected UE has to request them again (#39)
fn a_upf_restart_releases_sessions_with_reactivation_requested() {
    let (mut net, ue) = on_air(3);
    net.command(ue, session());
    net.settle(SECOND);
    assert_eq!(sessions(&net), 1);
    net.advance(Duration::from_secs(5)); // recovery time stamps count seconds
    net.restart_upf();
    net.settle(Duration::from_secs(60));
    let released = net.ue_events(ue).iter().any(|(_, e)| {
        matches!(e, Event::SessionReleased { cause: Some(SmCause::ReactivationRequested), .. })
    });
    assert!(released, "{:?}", net.ue_events(ue));
    assert!(net.cta().upf_is_up() && registered(&net, ue));
    net.command(ue, session());
    net.settle(SECOND);
    assert_eq!((sessions(&net), net.upf_sessions()), (1, 1), "and it works again");
    no_violations(&net);
}

#[test] // TS 24.501 §5.6.1.4.1: an idle UE learns from the PDU session status that its session is gone
fn an_idle_ue_learns_of_a_upf_restart_when_it_returns() {
    let (mut net, ue) = on_air(4);
    net.command(ue, session());
    net.settle(SECOND);
    go_idle(&mut net, ue);
    net.advance(Duration::from_secs(5)); // recovery time stamps count seconds
    net.restart_upf();
    net.settle(Duration::from_secs(60));
    assert_eq!(sessions(&net), 0);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND);
    assert_eq!(net.ue_ref(ue).sessions().count(), 0, "{:?}", net.ue_events(ue));
    no_violations(&net);
}

#[test] // TS 23.527 §4.3.2: the UPF says that it has lost the session while another gNB is asked for it: UE and gNB are informed
fn a_upf_restart_is_found_out_as_the_ue_comes_back_on_another_connection() {
    let (mut net, ue) = on_air(8);
    net.command(ue, session());
    net.settle(SECOND);
    net.restart_upf();
    net.lose_radio(ue);
    net.command(ue, UeCommand::ServiceRequest);
    net.settle(SECOND * 5);
    assert_eq!((sessions(&net), net.ue_ref(ue).sessions().count()), (0, 0), "{:?}", net.ue_events(ue));
    assert_eq!(net.agree(), Ok(()));
}

#[test] // TS 23.527 §5.3.1, §5.3: the gNB does not know the tunnel any more: packets wait, and the next one brings the user plane back
fn an_error_indication_of_the_gnb() {
    use whimbrel_gtpu::signalling::error_indication;
    use whimbrel_user::{Origin, PacketVerdict};
    let (mut net, ue) = on_air(5);
    net.command(ue, session());
    net.settle(SECOND);
    let an = |net: &Sim| {
        let session = net.cta().contexts().flat_map(|p| p.sessions.values()).next().expect("the session");
        session.an.as_deref().copied()
    };
    let tunnel = an(&net).expect("it is active");
    let from = Origin::N3 { peer: (tunnel.address, 2152).into(), local: [127, 0, 0, 8].into() };
    net.packet(from, error_indication(tunnel.teid, tunnel.address, 2152).as_ref());
    net.settle(SECOND);
    assert_eq!(an(&net), None, "packets go there no more");
    let psi = net.ue_ref(ue).sessions().next().expect("the UE has its session").id;
    assert_eq!(net.downlink(ue, psi), Some(PacketVerdict::Taken), "it waits");
    net.settle(SECOND);
    assert!(an(&net).is_some(), "and has brought the user plane back");
    net.check_path(ue, psi);
    no_violations(&net);
}

#[test] // TS 29.244 §8.2.71: a report that comes again under another sequence number of PFCP counts once, in whatever order reports come
fn a_usage_report_that_is_repeated_counts_once() {
    use whimbrel_pfcp::Message;
    use whimbrel_pfcp::ie::{ReportType, UrSeqn, UrrId, UsageReportTrigger, VolumeMeasurement};
    use whimbrel_pfcp::msg::SessionReportRequest;
    use whimbrel_pfcp::rule::UsageReport;
    let (mut net, ue) = on_air(6);
    net.command(ue, session());
    net.settle(SECOND);
    let now = |net: &Sim| {
        let session = net.cta().contexts().flat_map(|p| p.sessions.values()).next().expect("the session");
        (session.cp_seid, session.usage.octets)
    };
    let (seid, before) = now(&net);
    assert_eq!(before, (0, 0));
    let mut says = |sequence, urr, number| {
        let volume = VolumeMeasurement { ul: Some(10), dl: Some(200), ..VolumeMeasurement::default() };
        let usage = UsageReport {
            volume_measurement: Some(volume),
            ..UsageReport::new(UrrId(urr), UrSeqn(number), UsageReportTrigger::PERIO)
        };
        let report = SessionReportRequest {
            usage_reports: vec![usage],
            ..SessionReportRequest::new(ReportType::USAR)
        };
        net.inject_pfcp(&Message::from(report).to_octets(Some(seid), sequence));
        net.settle(SECOND);
        now(&net).1
    };
    assert_eq!(says(500, 1, 3), (10, 200));
    assert_eq!(says(501, 1, 3), (10, 200), "the same again");
    assert_eq!(says(502, 1, 5), (20, 400));
    assert_eq!(says(503, 1, 4), (30, 600), "it was on its way for longer");
    assert_eq!(says(504, 1, 3), (30, 600));
    assert_eq!(says(505, 2, 6), (30, 600), "that was not requested");
    assert_eq!(says(506, 1, 6), (40, 800));
    no_violations(&net);
}
