//! Rules that name applications: TS 23.503 §6.1.2.3, TS 29.244 §5.2.1, §6.2.5.

use super::common;
mod model;
mod octets;

use std::net::Ipv4Addr;
use std::time::Duration;

use common::*;
use octets::*;
use proptest::prelude::*;
use whimbrel_pfcp::Message;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

const RESOLVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
const VIDEO: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);

fn application(id: &str, pfds: &[(&[&str], &[&str])]) -> Application {
    let pfd = |(flows, names): &(&[&str], &[&str])| Pfd {
        flows: flows.iter().map(|f| f.parse().unwrap()).collect(),
        names: names.iter().map(|n| n.parse().unwrap()).collect(),
    };
    Application { id: id.into(), pfds: pfds.iter().map(pfd).collect() }
}

/// An application by names, and one by flows and names.
fn applications() -> Applications {
    let games: &[(&[&str], &[&str])] = &[
        (&["permit out 17 from 203.0.113.0/24 to assigned"], &[]),
        (&["permit out 17 from any 7000-7999 to assigned"], &["dns games.example"]),
    ];
    Applications {
        known: vec![
            application("video", &[(&[], &["video.example", "*.video.example"])]),
            application("games", games),
        ],
        resolvers: Vec::new(),
    }
}

fn net() -> Net {
    Net::with(Config { applications: applications(), ..config() })
}

/// Rules of both directions: packets of the application are dropped, by the FAR's word or at a closed gate.
fn barring(s: &Session, id: &str, n: u16, gate: bool) -> SessionModificationRequest {
    let application_id = Some(ApplicationId(id.into()));
    let up = Pdi {
        f_teid: Some(FTeid::given(s.teid, UPF.into())),
        application_id: application_id.clone(),
        ..Pdi::from(SourceInterface::Access)
    };
    let down = Pdi { application_id, ..Pdi::from(SourceInterface::Core) };
    let far = |up: bool| {
        FarId(if gate && up {
            1
        } else if gate {
            2
        } else {
            8 + u32::from(n)
        })
    };
    let pdr = |id, pdi, up| CreatePdr {
        qer_ids: if gate { vec![QerId(9)] } else { vec![] },
        ..CreatePdr::new(PdrId(id), Precedence(n.into()), pdi, far(up))
    };
    let closed = GateStatus { ul: Gate::Closed, dl: Gate::Closed };
    SessionModificationRequest {
        create_fars: if gate { vec![] } else { vec![CreateFar::action(far(true), ApplyAction::DROP)] },
        create_qers: if gate {
            vec![CreateQer { gate_status: closed, ..CreateQer::new(QerId(9)) }]
        } else {
            vec![]
        },
        create_pdrs: vec![pdr(10 + 2 * n, up, true), pdr(11 + 2 * n, down, false)],
        ..Default::default()
    }
}

/// A session in which `video` is dropped by the FAR, and `games` at a gate.
fn session(net: &mut Net, n: u64) -> Session {
    let s = net.session(n, true, false);
    for m in [barring(&s, "video", 1, false), barring(&s, "games", 2, true)] {
        assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
    }
    s
}

const FAR: PacketVerdict = PacketVerdict::Drop(DropReason::FarDrop);
const GATE: PacketVerdict = PacketVerdict::Drop(DropReason::GateClosed);

impl Net {
    fn sends(&mut self, s: &Session, to: Ipv4Addr, protocol: u8, payload: &[u8]) -> PacketVerdict {
        self.uplink(s, &ipv4(s.ipv4.unwrap(), to, protocol, payload)).0
    }

    fn gets(&mut self, s: &Session, from: Ipv4Addr, protocol: u8, payload: &[u8]) -> PacketVerdict {
        self.downlink(&ipv4(from, s.ipv4.unwrap(), protocol, payload)).0
    }

    /// A UE asks a name server, which answers.
    fn resolves(&mut self, s: &Session, name: &'static str, to: Ipv4Addr, ttl: u32) {
        self.sends(s, RESOLVER, 17, &udp((4000, 53), &question(7, name)));
        self.gets(s, RESOLVER, 17, &udp((53, 4000), &answer(7, name, &[Record::Address(name, to, ttl)])));
    }

    fn passes(&mut self, s: &Session, server: Ipv4Addr) -> bool {
        let up = self.sends(s, server, 6, &tcp((5000, 443), b"x"));
        let down = self.gets(s, server, 6, &tcp((443, 5000), b"x"));
        assert_eq!(matches!(up, PacketVerdict::Send(_)), matches!(down, PacketVerdict::Send(_)));
        matches!(up, PacketVerdict::Send(_))
    }

    fn later(&mut self, time: Duration) {
        self.advance(self.now + time);
    }
}

#[test]
fn application_is_detected_by_its_flows() {
    let (net, games) = (&mut net(), Ipv4Addr::new(203, 0, 113, 9));
    let s = session(net, 1);
    assert_eq!(net.sends(&s, games, 17, &udp((5000, 9), b"")), GATE);
    assert_eq!(net.gets(&s, games, 17, &udp((9, 5000), b"")), GATE);
    assert!(net.passes(&s, games), "TCP is not of it");
}

#[test] // TS 29.244 §5.2.2.3.1 application: the start and the stop of an application's traffic, and whose it is
fn an_application_is_named_when_its_traffic_starts_and_stops() {
    let (net, games) = (&mut net(), Ipv4Addr::new(203, 0, 113, 9));
    let s = net.session(1, true, false);
    let mut m = barring(&s, "games", 2, true);
    let triggers = ReportingTriggers::START | ReportingTriggers::STOPT;
    m.create_qers.clear();
    m.create_urrs = vec![CreateUrr {
        inactivity_detection_time: Some(InactivityDetectionTime(10)),
        ..CreateUrr::new(UrrId(9), MeasurementMethod::EVENT, triggers)
    }];
    for pdr in &mut m.create_pdrs {
        (pdr.qer_ids, pdr.urr_ids) = (vec![], vec![UrrId(9)]);
    }
    assert_eq!(net.modify(&s, m).cause, Cause::RequestAccepted);
    assert!(net.passes(&s, games), "TCP is not of it");
    net.sends(&s, games, 17, &udp((5000, 9), b""));
    net.later(Duration::from_secs(10));
    let mut reported = Vec::new();
    for report in net.accepted_reports().into_iter().flat_map(|(_, _, r)| r.usage_reports) {
        let of = report.application_detection_information.map(|d| d.application_id.0);
        reported.push((report.usage_report_trigger, of, report.event_time_stamps.len()));
    }
    let games: Option<Box<str>> = Some("games".into());
    reported.dedup(); // a report without an answer is repeated
    let [start, stop] = [UsageReportTrigger::START, UsageReportTrigger::STOPT];
    assert_eq!(reported, [(start, games.clone(), 1), (stop, games, 0)]);
}

#[test]
fn dns_answer_maps_an_address_for_its_ttl_and_a_running_flow_for_longer() {
    let net = &mut net();
    let s = session(net, 1);
    assert!(net.passes(&s, VIDEO));
    net.resolves(&s, "www.video.example", VIDEO, 60);
    net.later(Duration::from_secs(59));
    assert_eq!(net.sends(&s, VIDEO, 17, &udp((5001, 443), b"")), FAR);
    assert_eq!(net.gets(&s, VIDEO, 1, b"whatever"), FAR, "what has no ports");
    net.later(Duration::from_secs(2));
    assert!(net.passes(&s, VIDEO), "a flow that is new");
    assert_eq!(net.gets(&s, VIDEO, 17, &udp((443, 5001), b"")), FAR, "the flow that stands");
    net.later(Duration::from_secs(301));
    assert!(
        matches!(net.gets(&s, VIDEO, 17, &udp((443, 5001), b"")), PacketVerdict::Send(_)),
        "it has rested"
    );
}

#[test]
fn what_one_ue_asks_says_nothing_of_another_ues_packets() {
    let net = &mut net();
    let (a, b) = (session(net, 1), session(net, 2));
    net.resolves(&a, "video.example", VIDEO, 60);
    assert!(!net.passes(&a, VIDEO) && net.passes(&b, VIDEO));
}

#[test]
fn unsolicited_dns_answer_is_ignored() {
    let net = &mut net();
    let s = session(net, 1);
    let reported = answer(7, "video.example", &[Record::Address("video.example", VIDEO, 60)]);
    let good = udp((53, 4000), &reported);
    net.gets(&s, RESOLVER, 17, &good);
    assert!(net.passes(&s, VIDEO), "there was no query");
    net.sends(&s, RESOLVER, 17, &udp((4000, 53), &question(7, "video.example")));
    let mut wrong = reported.clone();
    wrong[1] = 8;
    net.gets(&s, RESOLVER, 17, &udp((53, 4000), &wrong));
    net.gets(&s, RESOLVER, 17, &udp((53, 4001), &reported));
    net.gets(&s, OTHER, 17, &good);
    assert!(net.passes(&s, VIDEO), "another identifier, port, or server");
    net.gets(&s, RESOLVER, 17, &good);
    assert!(!net.passes(&s, VIDEO));
    net.gets(
        &s,
        RESOLVER,
        17,
        &udp((53, 4000), &answer(7, "video.example", &[Record::Address("video.example", OTHER, 60)])),
    );
    assert!(net.passes(&s, OTHER), "it was answered already");
}

#[test]
fn where_resolvers_are_named_others_are_not_believed() {
    let applications = Applications { resolvers: vec![OTHER.into()], ..applications() };
    let net = &mut Net::with(Config { applications, ..config() });
    let s = session(net, 1);
    net.resolves(&s, "video.example", VIDEO, 60);
    assert!(net.passes(&s, VIDEO));
}

#[test]
fn tls_server_name_classifies_its_flow_from_that_packet_on() {
    let net = &mut net();
    let s = session(net, 1);
    assert!(net.passes(&s, VIDEO), "nothing is known of the flow's first packets");
    assert_eq!(net.sends(&s, VIDEO, 6, &tcp((5000, 443), &hello("www.VIDEO.example"))), FAR);
    assert!(!net.passes(&s, VIDEO));
    let another = net.sends(&s, VIDEO, 6, &tcp((5001, 443), b"x"));
    assert!(matches!(another, PacketVerdict::Send(_)), "another flow of that server");
    let games = net.sends(&s, OTHER, 6, &tcp((5002, 443), &hello("games.example")));
    assert!(matches!(games, PacketVerdict::Send(_)), "a name that is looked for in questions alone");
    let forged = net.gets(&s, OTHER, 6, &tcp((443, 5003), &hello("video.example")));
    assert!(matches!(forged, PacketVerdict::Send(_)), "a server does not greet");
}

#[test]
fn a_description_of_flows_and_names_wants_both() {
    let net = &mut net();
    let s = session(net, 1);
    let at = |port| udp((5000, port), b"");
    assert!(matches!(net.sends(&s, OTHER, 17, &at(7_100)), PacketVerdict::Send(_)));
    net.resolves(&s, "games.example", OTHER, 60);
    assert_eq!(net.sends(&s, OTHER, 17, &at(7_100)), GATE);
    assert!(matches!(net.sends(&s, OTHER, 17, &at(443)), PacketVerdict::Send(_)));
}

/// More filters than are asked one after the other, and as many as make answers worth to be remembered.
#[test]
fn a_remembered_flow_is_asked_again_when_it_becomes_known_by_a_name() {
    for filters in [10, 40] {
        let net = &mut net();
        let s = session(net, 1);
        let filter = |n| SdfFilter::flow(&format!("permit out 17 from 192.0.2.{n} 9 to assigned"));
        let pdrs = (0..filters).map(|n| {
            let pdi = Pdi { sdf_filters: vec![filter(n)], ..Pdi::from(SourceInterface::Core) };
            CreatePdr::new(PdrId(100 + n), Precedence(50), pdi, FarId(2))
        });
        net.modify(&s, SessionModificationRequest { create_pdrs: pdrs.collect(), ..Default::default() });
        let remembered = |net: &Net| net.upf.u.counters().flows_first + net.upf.u.counters().flows_second;
        assert!(net.passes(&s, VIDEO) && net.passes(&s, VIDEO));
        let before = remembered(net);
        assert!(before > 0, "{filters}");
        net.resolves(&s, "video.example", VIDEO, 20);
        assert!(!net.passes(&s, VIDEO), "{filters}");
        assert!(!net.passes(&s, VIDEO) && remembered(net) > before, "{filters}");
        let games = Ipv4Addr::new(203, 0, 113, 9);
        assert_eq!(net.gets(&s, games, 17, &udp((9, 5000), b"")), GATE, "{filters}");
    }
}

#[test]
fn applications_that_are_not_known_beside_filters_or_of_frames_are_refused() {
    let net = &mut net();
    let s = session(net, 1);
    let asked = |m| SessionModificationRequest { create_pdrs: vec![m], ..Default::default() };
    let pdi =
        |id: &str| Pdi { application_id: Some(ApplicationId(id.into())), ..Pdi::from(SourceInterface::Core) };
    let unknown = CreatePdr::new(PdrId(50), Precedence(3), pdi("chess"), FarId(2));
    assert_eq!(net.modify(&s, asked(unknown)).cause, Cause::UnknownApplicationId);
    let sdf_filters = vec![SdfFilter::flow("permit out ip from any to assigned")];
    let both = CreatePdr::new(PdrId(50), Precedence(3), Pdi { sdf_filters, ..pdi("video") }, FarId(2));
    assert_eq!(net.modify(&s, asked(both)).cause, Cause::ServiceNotSupported);
}

fn pfds(id: &str, flows: &[&str], names: &[&str]) -> ApplicationPfds {
    let name = |n: &&str| PfdDomainName { name: (*n).into(), protocol: None };
    let contents = PfdContents {
        flow_descriptions: flows.iter().map(|f| (*f).into()).collect(),
        domain_names: names.iter().map(name).collect(),
        ..PfdContents::default()
    };
    ApplicationPfds {
        application_id: ApplicationId(id.into()),
        pfd_contexts: vec![PfdContext { pfd_contents: vec![contents] }],
    }
}

impl Net {
    fn tell(&mut self, applications: Vec<ApplicationPfds>) -> Cause {
        let m = PfdManagementRequest { applications, node_id: Some(NodeId::from(SMF.ip())) };
        let Message::PfdManagementResponse(m) = self.ask(None, m.into()) else { panic!() };
        self.later(Duration::from_millis(1));
        m.cause
    }
}

#[test] // TS 29.244 §6.2.5
fn provisioned_pfds_apply_at_once_and_until_they_are_removed() {
    let net = &mut net();
    let s = session(net, 1);
    net.resolves(&s, "video.example", VIDEO, 60);
    assert!(!net.passes(&s, VIDEO));
    assert_eq!(
        net.tell(vec![pfds("video", &["permit out 6 from 198.51.100.2 to assigned"], &[])]),
        Cause::RequestAccepted
    );
    assert!(net.passes(&s, VIDEO) && !net.passes(&s, OTHER), "instead of what is configured");
    assert_eq!(
        net.tell(vec![ApplicationPfds {
            application_id: ApplicationId("video".into()),
            pfd_contexts: vec![]
        }]),
        Cause::RequestAccepted
    );
    assert!(net.passes(&s, OTHER), "as it is configured");
    assert_eq!(net.tell(vec![pfds("chess", &[], &["chess.example"])]), Cause::RequestAccepted);
    assert_eq!(net.modify(&s, barring(&s, "chess", 3, false)).cause, Cause::RequestAccepted);
    net.resolves(&s, "chess.example", OTHER, 60);
    assert!(!net.passes(&s, OTHER));
    assert_eq!(net.tell(vec![]), Cause::RequestAccepted);
    assert!(net.passes(&s, OTHER), "its rules stand, and nothing is of it");
    assert_eq!(net.upf.u.counters().sessions, 1);
}

/// A description that stays lets flows stay known.
#[test]
fn a_flow_stays_known_by_a_description_that_does_not_change() {
    let net = &mut net();
    net.tell(vec![pfds("chess", &[], &["chess.example"])]);
    let s = net.session(1, true, false);
    net.modify(&s, barring(&s, "chess", 3, false));
    net.resolves(&s, "chess.example", OTHER, 60);
    assert!(!net.passes(&s, OTHER));
    let mut more = pfds("chess", &[], &["chess.example"]);
    more.pfd_contexts.extend(pfds("", &["permit out 17 from 203.0.113.1 to assigned"], &[]).pfd_contexts);
    net.tell(vec![more]);
    assert!(!net.passes(&s, OTHER));
    net.tell(vec![pfds("chess", &[], &["*.chess.example"])]);
    assert!(net.passes(&s, OTHER), "by another name");
}

#[test]
fn pfds_that_are_not_understood_change_nothing() {
    let net = &mut net();
    let s = session(net, 1);
    let with = |change: fn(&mut PfdContents)| {
        let mut m = pfds("video", &[], &["other.example"]);
        change(&mut m.pfd_contexts[0].pfd_contents[0]);
        m
    };
    for bad in [
        with(|c| c.urls.push("http://video.example/a".into())),
        with(|c| c.custom = Some([1].into())),
        with(|c| c.domain_names[0].protocol = Some("TLS_SAN".into())),
        with(|c| c.domain_names[0].name = "[a-z]+".into()),
        with(|c| c.flow_descriptions.push("permit".into())),
        with(|c| *c = PfdContents::default()),
    ] {
        let good = pfds("games", &[], &["other.example"]);
        assert_eq!(net.tell(vec![good, bad]), Cause::ServiceNotSupported);
    }
    let many: Vec<String> = (0..=APPLICATIONS_MAX).map(|n| format!("app{n}")).collect();
    let many = many.iter().map(|id| pfds(id, &[], &["a.example"])).take(APPLICATIONS_MAX);
    assert_eq!(net.tell(many.collect()), Cause::NoResourcesAvailable);
    net.resolves(&s, "other.example", OTHER, 60);
    assert!(net.passes(&s, OTHER));
    net.resolves(&s, "video.example", VIDEO, 60);
    assert!(!net.passes(&s, VIDEO));
}

#[test]
fn pfds_end_with_the_association_of_their_smf() {
    let net = &mut net();
    net.tell(vec![pfds("chess", &[], &["chess.example"])]);
    net.ask(None, whimbrel_pfcp::msg::AssociationReleaseRequest { node_id: NodeId::from(SMF.ip()) }.into());
    let Message::PfdManagementResponse(m) = net.ask(None, PfdManagementRequest::default().into()) else {
        panic!()
    };
    assert_eq!(m.cause, Cause::NoEstablishedPfcpAssociation);
    net.ask(None, association(1).into());
    let s = net.session(1, true, false);
    assert_eq!(net.modify(&s, barring(&s, "chess", 3, false)).cause, Cause::UnknownApplicationId);
    assert_eq!(net.modify(&s, barring(&s, "video", 3, false)).cause, Cause::RequestAccepted);
}

#[test]
fn what_is_known_by_name_is_bounded_and_goes_with_the_session() {
    let net = &mut net();
    let s = session(net, 1);
    for n in 0..400u16 {
        let address = Ipv4Addr::new(198, 18, (n >> 8) as u8, n as u8);
        net.resolves(&s, "video.example", address, 3_600);
        net.sends(&s, address, 17, &udp((n, 443), b""));
        net.later(Duration::from_millis(50));
    }
    let known = net.upf.u.counters().names_known;
    assert_eq!(known, (NAMED_ADDRESSES_MAX + NAMED_FLOWS_MAX) as u64);
    net.delete(&s);
    assert_eq!(net.upf.u.counters().names_known, 0);
}

#[test]
fn a_ue_that_says_more_names_than_are_read_in_a_second_is_heard_again_in_the_next() {
    let net = &mut net();
    let s = session(net, 1);
    for _ in 0..NAMES_READ_PER_SECOND_MAX {
        net.sends(&s, RESOLVER, 17, &udp((4000, 53), &question(7, "other.example")));
    }
    net.resolves(&s, "video.example", VIDEO, 60);
    assert!(net.passes(&s, VIDEO));
    net.later(Duration::from_secs(1));
    net.resolves(&s, "video.example", VIDEO, 60);
    assert!(!net.passes(&s, VIDEO));
}

#[test]
fn an_answer_about_another_name_than_was_asked_for_changes_nothing() {
    let net = &mut net();
    let s = session(net, 1);
    net.resolves(&s, "video.example", VIDEO, 60);
    net.sends(&s, RESOLVER, 17, &udp((4000, 53), &question(7, "video.example")));
    let records = [Record::Address("other.example", VIDEO, 10)];
    net.gets(&s, RESOLVER, 17, &udp((53, 4000), &answer(7, "other.example", &records)));
    net.later(Duration::from_secs(30));
    assert!(!net.passes(&s, VIDEO));
}

const NAMES: [&str; 5] =
    ["video.example", "a.video.example", "games.example", "other.example", "cdn.example"];
/// As [`applications`] has them: 0 is video's, 1 games'.
const APPLICATION_NAMES: model::ApplicationNames = model::ApplicationNames {
    asked: |name| match name {
        "video.example" | "a.video.example" => vec![0],
        "games.example" => vec![1],
        _ => vec![],
    },
    greeted: |name| if name.ends_with("video.example") { vec![0] } else { vec![] },
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn packets_are_known_as_the_model_knows_them(
        steps in proptest::collection::vec(any::<(u8, u16, u16)>(), 1..80),
    ) {
        let net = &mut net();
        let mut ues = [session(net, 1), session(net, 2)].map(|s| (s, model::Ue::default()));
        for (what, n, m) in steps {
            let (s, ue) = &mut ues[usize::from(n >> 15)];
            let now = net.now.0 / 1_000_000;
            let pick = |list: &[&'static str], by: u16| list[usize::from(by) % list.len()];
            let name = pick(&NAMES, n);
            let server = Ipv4Addr::new(198, 51, 100, (m % 4) as u8);
            let (port, id) = (4000 + (n >> 4) % 2, (n >> 5) % 2);
            match what % 8 {
                0 | 1 => {
                    ue.ask(&APPLICATION_NAMES, now, RESOLVER, port, id, name);
                    // What asks is a packet, too.
                    ue.packet(&APPLICATION_NAMES, now, (RESOLVER, 53, port, 17), None);
                    net.sends(s, RESOLVER, 17, &udp((port, 53), &question(id, name)));
                }
                2 | 3 => {
                    let ttl = [0, 15, 60, 100_000][usize::from(m >> 2) % 4];
                    let owner = pick(&NAMES, m >> 4);
                    let records = [
                        Record::Alias(name, owner, ttl / 2 + 10),
                        Record::Address(pick(&NAMES, m >> 6), server, ttl),
                        Record::Address(owner, Ipv4Addr::new(198, 51, 100, (m >> 8) as u8 % 4), 40),
                    ];
                    let records = &records[usize::from(m >> 12) % 3..];
                    ue.answer(&APPLICATION_NAMES, now, (RESOLVER, port, id), name, records);
                    ue.packet(&APPLICATION_NAMES, now, (RESOLVER, 53, port, 17), None);
                    net.gets(s, RESOLVER, 17, &udp((53, port), &answer(id, name, records)));
                }
                4 => net.later(Duration::from_secs([1, 9, 30, 301][usize::from(n) % 4])),
                _ => {
                    let udp_ports = [7_100, 443];
                    let (protocol, far) = if m & 16 == 0 { (17, udp_ports[usize::from(m >> 5) % 2]) } else { (6, 443) };
                    let own = 5_000 + (m >> 6) % 2;
                    let greets = (protocol == 6 && m & 0x300 == 0).then_some(name);
                    let known = ue.packet(&APPLICATION_NAMES, now, (server, far, own, protocol), greets);
                    let expected = match () {
                        () if known.contains(&0) => Some(FAR),
                        () if known.contains(&1) && far == 7_100 => Some(GATE),
                        () => None,
                    };
                    let got = match (protocol, greets, m & 0x400 == 0) {
                        (17, _, true) => net.sends(s, server, 17, &udp((own, far), b"x")),
                        (17, _, false) => net.gets(s, server, 17, &udp((far, own), b"x")),
                        (_, Some(name), _) => net.sends(s, server, 6, &tcp((own, far), &hello(name))),
                        (_, None, true) => net.sends(s, server, 6, &tcp((own, far), b"x")),
                        (_, None, false) => net.gets(s, server, 6, &tcp((far, own), b"x")),
                    };
                    match expected {
                        Some(verdict) => prop_assert_eq!(got, verdict),
                        None => prop_assert!(matches!(got, PacketVerdict::Send(_)), "{:?}", got),
                    }
                }
            }
        }
    }
}
