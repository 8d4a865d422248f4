//! What an operator does with flows beside their rates, end to end: marking towards gNBs, reflective QoS, rules about applications, and
//! packets that wait for UEs which sleep.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use whimbrel_control::UpfId;
use whimbrel_control::config::Buffering;
use whimbrel_control::policy::{FlowGate, FlowPolicy, Gbr, Setup, Treatment, packet_filter};
use whimbrel_control::udm::{Ambr, Arp};
use whimbrel_gtpu::{GpduHeader, Gtpu, PduSessionInformation};
use whimbrel_ids::{FiveQi, Qfi};
use whimbrel_nas::ie::{GprsTimer3, MicoIndication, PduSessionType};
use whimbrel_ngap::PduSessionResourceSetupRequestTransfer;
use whimbrel_ngap::ie::ReflectiveQosAttribute;
use whimbrel_ran::gnb::Via;
use whimbrel_ran::ue::{AskFor, Profile, SessionRequest, UeCommand};
use whimbrel_sim::{GnbIndex, Sim, UeIndex, default_config, ue_config};
use whimbrel_user::{Application, Destination, DnIndex, GuaranteedRates, Origin, Pfd};

const UE: UeIndex = UeIndex(0);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TCP: u8 = 6;
const UDP: u8 = 17;

fn qfi(n: u8) -> Qfi {
    Qfi::new(n).expect("6 bits")
}

/// A flow without guaranteed rates, for TCP from this port of a server.
fn web(port: u16) -> FlowPolicy {
    let filter = packet_filter(&format!("permit out 6 from any {port} to assigned"));
    FlowPolicy {
        name: "web".parse().expect("a name"),
        five_qi: FiveQi(8),
        arp: Arp { priority: 8, may_preempt: false, preemptable: true },
        gbr: None,
        precedence: 20,
        filters: vec![filter.expect("a filter")],
        gate: FlowGate::default(),
        setup: Setup::Always,
    }
}

fn voice() -> FlowPolicy {
    let rate = Ambr { ul_kbps: 640, dl_kbps: 640 };
    FlowPolicy {
        name: "voice".parse().expect("a name"),
        five_qi: FiveQi(1),
        gbr: Some(Gbr { guaranteed: rate, maximum: rate }),
        precedence: 10,
        filters: vec![packet_filter("permit out 17 from any 5004 to assigned").expect("a filter")],
        ..web(443)
    }
}

/// Two gNBs, and a UE with a session at the first.
fn scene(seed: u64, flows: Vec<FlowPolicy>, treatment: Treatment, reflects: bool) -> Sim {
    let mut config = default_config();
    for network in config.smf.data_networks.values_mut() {
        network.flows.clone_from(&flows);
        network.treatments.insert("web".parse().expect("a name"), treatment.clone());
    }
    config.smf.marking.insert(FiveQi(9), 8);
    let mut net = Sim::builder(seed).config(config).recorded().build();
    if !treatment.applications.is_empty() {
        net.replace_upf(UpfId(0), |upf| upf.applications.known = vec![video()]);
        net.associate_upf(UpfId(0));
    }
    for n in 1..=2 {
        net.add_gnb(gnb_config(n));
    }
    let mut ue = ue_config(1);
    ue.profile = Arc::new(Profile { reflective_qos: reflects, ..Profile::clone(&ue.profile) });
    net.add_ue(GnbIndex(0), ue);
    net.settle(SECOND / 10);
    net.command(UE, UeCommand::Register);
    net.settle(SECOND);
    net.tap();
    let pdu_session_type = PduSessionType::Ipv4;
    net.command(UE, UeCommand::EstablishSession(SessionRequest { pdu_session_type, ..Default::default() }));
    net.settle(SECOND);
    assert_eq!(net.ue_ref(UE).sessions().count(), 1);
    net
}

fn video() -> Application {
    let names = vec!["*.video.example".parse().expect("a name")];
    Application { id: "video".into(), pfds: vec![Pfd { flows: vec![], names }] }
}

fn address(net: &Sim) -> Ipv4Addr {
    net.ue_ref(UE).sessions().next().and_then(|s| s.ipv4).expect("an address")
}

/// An IPv4 packet whose payload begins with ports.
fn packet(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, ports: (u16, u16), rest: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0];
    p.extend((32 + rest.len() as u16).to_be_bytes());
    p.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    p.extend(source.octets().into_iter().chain(destination.octets()));
    p.extend([ports.0, ports.1, 12 + rest.len() as u16, 0].into_iter().flat_map(u16::to_be_bytes));
    p.truncate(28);
    p.extend_from_slice(rest);
    let length = (p.len() as u16).to_be_bytes();
    p[2..4].copy_from_slice(&length);
    p[24..26].copy_from_slice(&(8 + rest.len() as u16).to_be_bytes());
    p
}

/// Where a packet of the server to the UE goes: the gNB, the DSCP outside, the flow, and whether the UE is to learn.
fn down(net: &mut Sim, protocol: u8, ports: (u16, u16)) -> (IpAddr, u8, u8, bool) {
    let octets = packet(SERVER, address(net), protocol, ports, &[]);
    let sent = net.packet(Origin::N6 { dn: DnIndex(0) }, &octets);
    let (Destination::N3 { peer, tos }, octets) = sent.last().expect("it is sent") else {
        panic!("not to a gNB: {sent:?}")
    };
    assert_eq!(tos & 3, 0, "no ECN of its own");
    match Gtpu::parse(octets).expect("GTP-U").pdu_session {
        Some(PduSessionInformation::Dl { qfi, rqi, .. }) => (peer.ip(), tos >> 2, qfi.value(), rqi),
        other => panic!("no container: {other:?}"),
    }
}

/// Whether a packet that the UE sends in a flow reaches the data network.
fn up(net: &mut Sim, flow: u8, protocol: u8, ports: (u16, u16), rest: &[u8]) -> bool {
    let ue = net.cta().contexts().next().expect("a UE");
    let n3 = ue.sessions.values().next().and_then(|s| s.n3).expect("a tunnel");
    let inner = packet(address(net), SERVER, protocol, ports, rest);
    let header = GpduHeader::new(n3.teid, Some(PduSessionInformation::Ul { qfi: qfi(flow) }));
    let mut octets = vec![0; header.octets_len()];
    header.write_before(inner.len(), &mut octets).expect("room");
    octets.extend(inner);
    let gnb: IpAddr = [127, 0, 1, 1].into();
    let sent = net.packet(Origin::N3 { peer: (gnb, 2152).into(), local: n3.address }, &octets);
    matches!(sent[..], [(Destination::N6 { .. }, _)])
}

fn gnb(n: u8) -> IpAddr {
    [127, 0, 1, n].into()
}

#[test] // TS 23.501 §5.8.2.11.6: packets bear their flow's DSCP, wherever the UE goes
fn packets_bear_the_dscp_of_their_flow_at_each_gnb() {
    let mut net =
        scene(1, vec![voice(), web(443)], Treatment { dscp: Some(30), ..Treatment::default() }, false);
    let seen = |net: &mut Sim| {
        let ports = [(UDP, 5004), (TCP, 443), (UDP, 80)];
        ports.map(|(protocol, port)| down(net, protocol, (port, 9)))
    };
    let at = |n: u8| [(gnb(n), 46, 2, false), (gnb(n), 30, 3, false), (gnb(n), 8, 1, false)];
    assert_eq!(seen(&mut net), at(1), "of the 5QI, of the flow, and of the operator's table");
    net.hand_over(UE, GnbIndex(1), Via::N2);
    net.settle(SECOND);
    assert_eq!(seen(&mut net), at(2), "all its FARs lead to the new gNB");
    net.hand_over(UE, GnbIndex(0), Via::Xn);
    net.settle(SECOND);
    assert_eq!(seen(&mut net), at(1));
    go_idle(&mut net, UE);
    let held = packet(SERVER, address(&net), UDP, (5004, 9), &[]);
    assert!(net.packet(Origin::N6 { dn: DnIndex(0) }, &held).is_empty(), "it waits");
    net.settle(SECOND);
    let after = net.upf_sent();
    assert!(matches!(after[..], [(Destination::N3 { tos: 0xb8, .. }, _)]), "the UE was paged: {after:?}");
    assert_eq!(seen(&mut net), at(1));
    no_violations(&net);
}

/// The flows that the gNB gets: identifiers, and whether they are subject to reflective QoS.
fn at_gnb(net: &mut Sim) -> Vec<(Qfi, bool)> {
    let asked = net.tapped().into_iter().find_map(|m| match m {
        whimbrel_ngap::Message::PduSessionResourceSetupRequest(m) => {
            m.pdu_session_resource_setup_list_su_req.into_iter().next()
        }
        _ => None,
    });
    let transfer = asked.expect("a setup").pdu_session_resource_setup_request_transfer;
    let transfer = PduSessionResourceSetupRequestTransfer::decode(&transfer).expect("its transfer");
    let reflective =
        |a: Option<ReflectiveQosAttribute>| a.is_some_and(|a| a == ReflectiveQosAttribute::SubjectTo);
    let flows = transfer.qos_flow_setup_request_list.into_iter();
    flows
        .map(|f| {
            let level = f.qos_flow_level_qos_parameters;
            (f.qos_flow_identifier, reflective(level.reflective_qos_attribute))
        })
        .collect()
}

#[test] // TS 23.501 §5.7.5.3: RQA to the gNB, the RQ timer to the UE, RQI in packets; what the UE learns passes
fn a_ue_with_reflective_qos_gets_no_rule() {
    let reflective = Treatment { reflective: true, ..Treatment::default() };
    let mut net = scene(2, vec![web(443)], reflective, true);
    assert_eq!(at_gnb(&mut net), [(qfi(1), false), (qfi(2), true)]);
    let session = net.ue_ref(UE).sessions().next().expect("a session");
    assert_eq!((session.rules.len(), session.flows.len()), (1, 1), "the default flow's");
    assert_eq!(session.rq_timer, Some(Duration::from_secs(60)));
    assert_eq!(down(&mut net, TCP, (443, 9)), (gnb(1), 10, 2, true));
    assert_eq!(down(&mut net, TCP, (80, 9)), (gnb(1), 8, 1, false));
    assert!(up(&mut net, 2, TCP, (9, 443), &[]), "as learnt");
    assert!(up(&mut net, 1, TCP, (9, 443), &[]), "before it is learnt");
    no_violations(&net);
}

#[test] // TS 23.501 §5.7.5.3 signalled: a UE without reflective QoS gets the rules
fn a_ue_without_reflective_qos_gets_the_rules() {
    let reflective = Treatment { reflective: true, ..Treatment::default() };
    let mut net = scene(3, vec![web(443)], reflective, false);
    assert_eq!(at_gnb(&mut net), [(qfi(1), false), (qfi(2), false)]);
    let session = net.ue_ref(UE).sessions().next().expect("a session");
    assert_eq!((session.rules.len(), session.flows.len(), session.rq_timer), (2, 2, None));
    assert_eq!(down(&mut net, TCP, (443, 9)), (gnb(1), 10, 2, false));
    no_violations(&net);
}

/// A DNS message about one name, with an address if it is the answer.
fn dns(name: &str, answer: Option<Ipv4Addr>) -> Vec<u8> {
    let flags = if answer.is_some() { 0x8180 } else { 0x0100 };
    let words = [7, flags, 1, u16::from(answer.is_some()), 0, 0];
    let label = |l: &str| [&[l.len() as u8], l.as_bytes()].concat();
    let name: Vec<u8> = name.split('.').flat_map(label).chain([0]).collect();
    let mut m: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    m.extend(name.iter().copied().chain([0, 1, 0, 1]));
    if let Some(a) = answer {
        m.extend(name.into_iter().chain([0, 1, 0, 1, 0, 0, 0, 60, 0, 4]).chain(a.octets()));
    }
    m
}

#[test] // TS 29.244 §5.2.1 application: a flow to a name gets its QoS, once the UE has asked for the name
fn a_flow_to_a_name_gets_its_qos() {
    let named = Treatment { applications: vec!["video".into()], reflective: true, ..Treatment::default() };
    let mut net = scene(4, vec![FlowPolicy { filters: vec![], ..web(443) }], named, true);
    assert_eq!(
        net.ue_ref(UE).sessions().next().map(|s| s.rules.len()),
        Some(1),
        "it cannot know whose packets they are"
    );
    assert_eq!(down(&mut net, TCP, (443, 9)), (gnb(1), 8, 1, false), "not assigned yet");
    assert!(up(&mut net, 1, UDP, (4000, 53), &dns("www.video.example", None)));
    let answer = packet(SERVER, address(&net), UDP, (53, 4000), &dns("www.video.example", Some(SERVER)));
    net.packet(Origin::N6 { dn: DnIndex(0) }, &answer);
    assert_eq!(
        down(&mut net, TCP, (443, 10)),
        (gnb(1), 10, 2, true),
        "the application's flow and its marking"
    );
    assert!(up(&mut net, 1, TCP, (10, 443), &[]), "by the default flow, which the UE knows");
    assert!(up(&mut net, 2, TCP, (10, 443), &[]), "or as it has learnt");
    no_violations(&net);
}

#[test] // TS 23.501 §5.7.2.5 SMF: a flow that the UPF cannot keep its promise to is left out
fn a_flow_that_cannot_be_kept_is_left_out() {
    let mut config = default_config();
    config.smf.data_networks.values_mut().for_each(|n| n.flows = vec![voice()]);
    let mut net = Sim::builder(7).config(config).recorded().build();
    let guaranteed = Some(GuaranteedRates { ul_kbps: 1_000, dl_kbps: 1_000 });
    net.replace_upf(UpfId(0), |upf| upf.guaranteed = guaranteed);
    net.associate_upf(UpfId(0));
    let first = net.add_gnb(gnb_config(1));
    for n in 1..=2 {
        let ue = net.add_ue(first, ue_config(n));
        net.settle(SECOND / 10);
        net.command(ue, UeCommand::Register);
        net.settle(SECOND);
        net.command(ue, UeCommand::EstablishSession(SessionRequest::default()));
        net.settle(SECOND);
    }
    let flows = [0, 1].map(|n| net.ue_ref(UeIndex(n)).sessions().next().map(|s| s.flows.len()));
    assert_eq!(flows, [Some(2), Some(1)], "640 kbit/s of 1,000, and then no more");
    no_violations(&net);
}

/// A network whose SMF wishes this, and an idle UE that asked for that.
fn idle(seed: u64, buffering: Buffering, ask: AskFor) -> Sim {
    let mut config = default_config();
    config.smf.buffering = buffering;
    let mut net = Sim::builder(seed).config(config).build();
    let first = net.add_gnb(gnb_config(1));
    net.add_ue(first, ue_config(1));
    net.settle(SECOND / 10);
    net.ue_mut(UE).faults_mut().ask_for = Some(ask.into());
    net.command(UE, UeCommand::Register);
    let pdu_session_type = PduSessionType::Ipv4;
    net.command(UE, UeCommand::EstablishSession(SessionRequest { pdu_session_type, ..Default::default() }));
    net.settle(SECOND);
    net.carry();
    go_idle(&mut net, UE);
    net
}

#[test] // TS 29.244 §5.2.4.2 SMF: what comes while a UE sleeps for long waits until it comes
fn packets_wait_for_a_ue_that_sleeps() {
    let mico = MicoIndication { all_plmn_registration_area: false, strictly_periodic: false };
    let t3512 = Some(GprsTimer3::from_duration(Duration::from_secs(7_200)));
    let ask = || AskFor { mico: Some(mico), t3512, ..AskFor::default() };
    let wishes = Buffering { extended_packets: Some(2), ..Buffering::default() };
    for (buffering, come) in [(Buffering::default(), vec![1, 2, 3]), (wishes, vec![1, 2])] {
        let mut net = idle(5, buffering, ask());
        let session = net.ue_ref(UE).sessions().next().expect("a session").id;
        net.send_down(UE, session, 1);
        net.advance(SECOND);
        (2..4).for_each(|n| net.send_down(UE, session, n));
        net.advance(Duration::from_secs(3_600)); // sixty times as long as packets wait else
        assert_eq!(net.upf().u.counters().held as usize, come.len());
        net.command(UE, UeCommand::ServiceRequest);
        net.settle(SECOND);
        net.advance(SECOND);
        assert_eq!(net.received(UE), come);
        no_violations(&net);
    }
}

#[test] // TS 29.244 §5.2.4 SMF: the report of the first packet is delayed, and a UE that comes meanwhile is not paged
fn paging_waits_for_the_delay() {
    let buffering = Buffering { notification_delay: 10, ..Buffering::default() };
    for comes in [false, true] {
        let mut net = idle(6, buffering, AskFor::default());
        let session = net.ue_ref(UE).sessions().next().expect("a session").id;
        net.tap();
        let paged =
            |net: &mut Sim| net.tapped().iter().any(|m| matches!(m, whimbrel_ngap::Message::Paging(_)));
        net.send_down(UE, session, 7);
        net.advance(Duration::from_millis(400));
        assert!(!paged(&mut net));
        if comes {
            net.command(UE, UeCommand::ServiceRequest);
        }
        net.advance(2 * SECOND);
        assert_eq!(paged(&mut net), !comes);
        assert_eq!(net.received(UE), [7]);
        no_violations(&net);
    }
}
