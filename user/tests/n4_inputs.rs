//! N4 inputs that felled other user planes, each named after the input. For every one of them: an answer with the clause's
//! cause where one is due, nothing half done, nothing lost, and another session's packets as before.

use super::common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::*;
use whimbrel_ids::{Seid, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::AssociationReleaseRequest;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_pfcp::{Frame, Message};
use whimbrel_user::*;

/// Elements that hold elements (TS 29.244 table 8.1.2-1), of those that an SMF sends.
const GROUPS: [u16; 24] =
    [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 77, 85, 86, 87, 127, 129, 132];

/// An element as a tree, so that one of them can be spoilt and the lengths around it still be right.
#[derive(Clone)]
struct Ie {
    kind: u16,
    value: Value,
    /// Written instead of the true length.
    length: Option<u16>,
}

#[derive(Clone)]
enum Value {
    Octets(Vec<u8>),
    Group(Vec<Ie>),
}

fn read(mut octets: &[u8]) -> Vec<Ie> {
    let mut all = Vec::new();
    while let [a, b, c, d, rest @ ..] = octets {
        let (kind, len) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
        let (value, next) = rest.split_at(len);
        let value =
            if GROUPS.contains(&kind) { Value::Group(read(value)) } else { Value::Octets(value.to_vec()) };
        all.push(Ie { kind, value, length: None });
        octets = next;
    }
    all
}

fn write(all: &[Ie], out: &mut Vec<u8>) {
    for ie in all {
        let mut value = Vec::new();
        match &ie.value {
            Value::Octets(o) => value.extend_from_slice(o),
            Value::Group(g) => write(g, &mut value),
        }
        out.extend_from_slice(&ie.kind.to_be_bytes());
        out.extend_from_slice(&ie.length.unwrap_or(value.len() as u16).to_be_bytes());
        out.extend_from_slice(&value);
    }
}

/// How many elements there are, at all depths.
fn count(all: &[Ie]) -> usize {
    all.iter().map(|ie| 1 + if let Value::Group(g) = &ie.value { count(g) } else { 0 }).sum()
}

/// Lets `spoil` have the `n`th element, counted at all depths, with the list that it stands in.
fn spoil_nth(all: &mut Vec<Ie>, n: &mut usize, spoil: &dyn Fn(&mut Vec<Ie>, usize)) -> bool {
    for i in 0..all.len() {
        if *n == 0 {
            spoil(all, i);
            return true;
        }
        *n -= 1;
        if let Value::Group(g) = &mut all[i].value
            && spoil_nth(g, n, spoil)
        {
            return true;
        }
    }
    false
}

/// A whole message of those elements.
fn message(message_type: u8, seid: Option<Seid>, sequence: u32, all: &[Ie]) -> Vec<u8> {
    let mut m = vec![0x20 | u8::from(seid.is_some()), message_type, 0, 0];
    if let Some(seid) = seid {
        m.extend_from_slice(&seid.0.to_be_bytes());
    }
    m.extend_from_slice(&sequence.to_be_bytes()[1..]);
    m.push(0);
    write(all, &mut m);
    let length = (m.len() - 4) as u16;
    m[2..4].copy_from_slice(&length.to_be_bytes());
    m
}

/// A UPF with a session that must not notice anything.
struct Bench {
    net: Net,
    canary: Session,
    sequence: u32,
}

impl Bench {
    fn new() -> Self {
        let mut net = Net::new();
        let canary = net.session(0xca, true, false);
        Self { net, canary, sequence: 10_000 }
    }

    /// Sends octets; what came back, if anything.
    fn send(&mut self, octets: &[u8]) -> Option<Message> {
        self.net.upf.pfcp(self.net.now, SMF, octets, &mut self.net.out);
        let (_, answer) = self.net.out.datagrams.pop()?;
        assert!(self.net.out.datagrams.is_empty());
        Message::parse(&Frame::parse(&answer).unwrap()).ok()
    }

    fn next(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    /// The canary's packets pass, both sides agree, and the others' sessions can all be ended without a loss.
    fn unharmed(&mut self, what: &str) {
        let ue = self.canary.ipv4.unwrap();
        let canary = self.canary.clone();
        let up = self.net.uplink(&canary, &udp4(ue, SERVER, (1, 2), 0)).0;
        assert_eq!(up, PacketVerdict::Send(Destination::N6 { dn: DnIndex(0) }), "{what}");
        let (verdict, octets) = self.net.downlink(&udp4(SERVER, ue, (1, 2), 0));
        assert_eq!((verdict, at_gnb(&octets).0), (PacketVerdict::Send(to_gnb()), GNB_TEID), "{what}");
        self.net.outputs();
        self.net.out.datagrams.clear();
        for event in std::mem::take(&mut self.net.out.events) {
            if let Event::SessionEstablished { session, .. } = event {
                let seid = session.seid();
                if seid != canary.up_seid {
                    let octets = Message::from(SessionDeletionRequest {}).to_octets(Some(seid), self.next());
                    self.send(&octets);
                }
            }
        }
        assert_eq!((self.net.upf.c.session_count(), self.net.upf.u.counters().sessions), (1, 1), "{what}");
        assert_eq!(self.net.upf.c.free_addresses(DnIndex(0)).unwrap().0, 4, "{what}");
    }
}

fn elements(m: Message) -> Vec<Ie> {
    read(Frame::parse(&m.to_octets(None, 0)).unwrap().body)
}

/// An establishment and a modification with one of everything.
fn rich_establishment() -> SessionEstablishmentRequest {
    let mut m = establishment(7, true, true);
    m.create_bars = vec![CreateBar {
        bar_id: BarId(1),
        downlink_data_notification_delay: Some(DownlinkDataNotificationDelay(2)),
        suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(5)),
    }];
    m.create_fars[1].bar_id = Some(BarId(1));
    m.create_pdrs[1].pdi.sdf_filters = vec![SdfFilter {
        tos_traffic_class: Some([0, 0]),
        filter_id: Some(1),
        ..SdfFilter::flow("permit out ip from any to assigned")
    }];
    let q = &mut m.create_qers[0];
    q.gbr = q.mbr;
    (q.rqi, q.averaging_window) = (Some(Rqi::RQI), Some(AveragingWindow(100)));
    q.paging_policy_indicator = Some(PagingPolicyIndicator(1));
    let u = &mut m.create_urrs[0];
    u.volume_threshold = Some(Volume { total: Some(1000), ul: Some(1), dl: Some(1) });
    u.volume_quota = Some(Volume { total: Some(1 << 40), ..Volume::default() });
    u.time_threshold = Some(TimeThreshold(60));
    u.time_quota = Some(TimeQuota(600));
    u.measurement_period = Some(MeasurementPeriod(60));
    u.measurement_information = Some(MeasurementInformation::MNOP);
    m.user_plane_inactivity_timer = Some(UserPlaneInactivityTimer(60));
    m
}

fn rich_modification() -> SessionModificationRequest {
    let mut m = activation(Teid(5), GNB.ip());
    let p = m.update_fars[0].update_forwarding_parameters.as_mut().unwrap();
    p.pfcpsmreq_flags = Some(SessionModificationFlags::SNDEM);
    p.transport_level_marking = Some(TransportLevelMarking { value: 0xb8, mask: 0xfc });
    m.update_qers =
        vec![UpdateQer { mbr: Some(QerBitRate { ul_kbps: 9, dl_kbps: 9 }), ..UpdateQer::new(QerId(1)) }];
    m.update_urrs = vec![UpdateUrr { time_quota: Some(TimeQuota(5)), ..UpdateUrr::new(UrrId(1)) }];
    m.update_pdrs = vec![UpdatePdr { precedence: Some(Precedence(9)), ..UpdatePdr::new(PdrId(2)) }];
    m.query_urrs = vec![QueryUrr { urr_id: UrrId(1) }];
    m.pfcpsmreq_flags = Some(SessionModificationFlags::QAURR);
    m
}

/// Spoils every element of every request, one at a time.
fn each_element(what: &str, spoil: &dyn Fn(&mut Vec<Ie>, usize)) {
    let mut bench = Bench::new();
    let node: Vec<(u8, Message)> = vec![
        (1, HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(1) }.into()),
        (
            7,
            AssociationUpdateRequest {
                node_id: NodeId::Fqdn("elsewhere".into()),
                up_function_features: None,
                cp_function_features: Some(CpFunctionFeatures::LOAD),
                pfcp_association_release_request: None,
                graceful_release_period: None,
                user_plane_ip_resource_information: vec![],
                alternative_smf_ip_addresses: Vec::new(),
            }
            .into(),
        ),
        (9, AssociationReleaseRequest { node_id: NodeId::Fqdn("elsewhere".into()) }.into()),
    ];
    for (message_type, m) in node {
        let whole = elements(m);
        for n in 0..count(&whole) {
            let mut all = whole.clone();
            spoil_nth(&mut all, &mut { n }, spoil);
            let sequence = bench.next();
            bench.send(&message(message_type, None, sequence, &all));
            bench.unharmed(&format!("{what}: element {n} of message {message_type}"));
        }
    }
    let whole = elements(rich_establishment().into());
    for n in 0..count(&whole) {
        let mut all = whole.clone();
        spoil_nth(&mut all, &mut { n }, spoil);
        let sequence = bench.next();
        let octets = message(50, Some(Seid(0)), sequence, &all);
        let name = format!("{what}: element {n} of an establishment");
        let answer = bench.send(&octets);
        let Some(Message::SessionEstablishmentResponse(r)) = answer else { panic!("{name}: {answer:?}") };
        assert_eq!(r.cause.is_accepted(), r.up_f_seid.is_some(), "{name}");
        bench.unharmed(&name);
    }
    let whole = elements(rich_modification().into());
    for n in 0..count(&whole) {
        let mut all = whole.clone();
        spoil_nth(&mut all, &mut { n }, spoil);
        let name = format!("{what}: element {n} of a modification");
        let r = bench.net.establish(establishment(7, true, false));
        let seid = r.up_f_seid.unwrap().seid;
        let sequence = bench.next();
        let answer = bench.send(&message(52, Some(seid), sequence, &all));
        assert!(matches!(answer, Some(Message::SessionModificationResponse(_))), "{name}: {answer:?}");
        bench.unharmed(&name);
    }
}

#[test] // TS 29.244 §7.6.7
fn element_of_length_zero_everywhere() {
    each_element("length zero", &|list, i| {
        (list[i].value, list[i].length) = (Value::Octets(vec![]), None);
    });
}

#[test] // TS 29.244 §7.6.7
fn element_longer_than_its_message_everywhere() {
    for length in [0xffff, 0x8000, 4096] {
        each_element("beyond the message", &|list, i| list[i].length = Some(length));
    }
}

#[test] // TS 29.244 §7.6.7
fn element_cut_by_one_octet_everywhere() {
    each_element("cut", &|list, i| {
        if let Value::Octets(o) = &mut list[i].value {
            o.pop();
        }
    });
}

#[test] // TS 29.244 §7.6.6: absent
fn element_left_out_everywhere() {
    each_element("left out", &|list, i| {
        list.remove(i);
    });
}

#[test] // TS 29.244 §7.6.10: twice
fn element_repeated_everywhere() {
    each_element("twice", &|list, i| list.insert(i, list[i].clone()));
}

#[test] // TS 29.244 §7.6.9, §8.1.1: vendor elements (types above 0x7fff), known and unknown
fn element_of_a_vendor_everywhere() {
    each_element("vendor", &|list, i| list[i].kind |= 0x8000);
}

#[test] // all octets of a value set
fn element_of_ones_everywhere() {
    each_element("ones", &|list, i| {
        // A time of recovery in the far future is a restart, and no mistake.
        if list[i].kind == 96 {
            return;
        }
        if let Value::Octets(o) = &mut list[i].value {
            o.fill(0xff);
        }
    });
}

#[test] // groups in groups in groups, none of which the outer one has
fn groups_nested_deeper_than_any_message() {
    let mut bench = Bench::new();
    let mut all = elements(rich_establishment().into());
    let mut inner = Ie { kind: 2, value: Value::Group(vec![]), length: None };
    for depth in 0..7_999u16 {
        let kind = [1, 2, 132][usize::from(depth) % 3];
        inner = Ie { kind, value: Value::Group(vec![inner]), length: None };
    }
    all.push(inner);
    let sequence = bench.next();
    let answer = bench.send(&message(50, Some(Seid(0)), sequence, &all));
    assert!(matches!(answer, Some(Message::SessionEstablishmentResponse(r)) if !r.cause.is_accepted()));
    bench.unharmed("nested");
}

#[test] // TS 29.244 §7.6.3
fn message_length_other_than_the_datagrams() {
    let mut bench = Bench::new();
    let whole = Message::from(establishment(7, true, false)).to_octets(Some(Seid(0)), 77);
    for (name, change) in [("longer", 1i32), ("much longer", 60_000 - whole.len() as i32)] {
        let mut m = whole.clone();
        let length = (i32::from(u16::from_be_bytes([m[2], m[3]])) + change) as u16;
        m[2..4].copy_from_slice(&length.to_be_bytes());
        assert!(bench.send(&m).is_none(), "{name}");
        bench.unharmed(name);
    }
    for cut in 0..16 {
        assert!(bench.send(&whole[..cut]).is_none());
    }
    let mut trailing = whole.clone();
    trailing.extend_from_slice(&[0; 7]);
    assert!(
        matches!(bench.send(&trailing), Some(Message::SessionEstablishmentResponse(r)) if r.cause.is_accepted())
    );
    bench.unharmed("octets behind the message");
}

#[test] // TS 29.244 §6.4: the answer to nothing, and the largest sequence number
fn answers_to_nothing_and_sequence_numbers_at_the_end() {
    let mut bench = Bench::new();
    for sequence in [0, 1, 0x7f_ffff, 0xff_ffff] {
        let report = Message::from(SessionReportResponse::new(Cause::RequestAccepted));
        assert!(bench.send(&report.to_octets(Some(bench.canary.up_seid), sequence)).is_none());
        let unknown = Message::from(SessionReportResponse::new(Cause::SessionContextNotFound));
        assert!(bench.send(&unknown.to_octets(Some(bench.canary.up_seid), sequence)).is_none());
        let heartbeat = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(u32::MAX) };
        assert!(bench.send(&Message::from(heartbeat).to_octets(None, sequence)).is_none());
        bench.unharmed("an answer to nothing");
    }
}

#[test] // TS 29.244 §7.6.5: what only a user plane function sends, and answers to what it never asks
fn messages_that_an_smf_never_sends() {
    let mut bench = Bench::new();
    for message_type in [10, 11, 12, 51, 53, 55, 56] {
        for seid in [None, Some(bench.canary.up_seid)] {
            let sequence = bench.next();
            assert!(bench.send(&message(message_type, seid, sequence, &[])).is_none(), "{message_type}");
            bench.unharmed("a message in the wrong direction");
        }
    }
    let report = SessionReportRequest::new(ReportType::default());
    let sequence = bench.next();
    let octets = Message::from(report).to_octets(Some(bench.canary.up_seid), sequence);
    assert!(bench.send(&octets).is_none());
    bench.unharmed("a report to the user plane");
}

#[test] // TS 29.244 §7.6.6: a report's answer without a cause is no answer
fn report_response_without_cause() {
    let mut bench = Bench::new();
    let s = bench.net.idle_session(2, true, false);
    bench.net.downlink(&udp4(SERVER, s.ipv4.unwrap(), (1, 2), 0));
    let (_, sequence, _) = bench.net.reports().remove(0);
    assert!(bench.send(&message(57, Some(s.up_seid), sequence, &[])).is_none());
    let at = bench.net.now + Duration::from_secs(4);
    bench.net.advance(at);
    assert_eq!(bench.net.reports().len(), 1, "asked again");
    bench.net.delete(&s);
}

#[test] // TS 29.244 §7.6.6: heartbeats without the time of recovery
fn heartbeats_without_recovery_time_stamp() {
    let mut bench = Bench::new();
    for message_type in [1, 2] {
        let sequence = bench.next();
        assert!(bench.send(&message(message_type, None, sequence, &[])).is_none());
        bench.unharmed("a heartbeat without recovery time stamp");
    }
}

#[test] // TS 29.244 §7.6.6
fn association_without_recovery_time_stamp_or_node() {
    let mut bench = Bench::new();
    for left_out in [96, 60] {
        let mut all = elements(association(1).into());
        all.retain(|ie| ie.kind != left_out);
        let sequence = bench.next();
        let answer = bench.send(&message(5, None, sequence, &all));
        assert!(
            matches!(&answer, Some(Message::AssociationSetupResponse(r)) if r.cause == Cause::MandatoryIeMissing),
            "{answer:?}"
        );
        bench.unharmed("an association that does not exist");
    }
}

#[test] // TS 29.244 §7.6.6: an establishment of nothing
fn establishment_empty_or_of_an_endless_name() {
    let mut bench = Bench::new();
    let sequence = bench.next();
    let answer = bench.send(&message(50, Some(Seid(0)), sequence, &[]));
    assert!(
        matches!(answer, Some(Message::SessionEstablishmentResponse(r)) if r.cause == Cause::MandatoryIeMissing)
    );
    for octets in [255usize, 256, 4096] {
        let mut all = elements(establishment(7, true, false).into());
        let name = [vec![2], vec![b'a'; octets]].concat();
        all.iter_mut().filter(|ie| ie.kind == 60).for_each(|ie| ie.value = Value::Octets(name.clone()));
        let sequence = bench.next();
        let answer = bench.send(&message(50, Some(Seid(0)), sequence, &all));
        let Some(Message::SessionEstablishmentResponse(r)) = answer else { panic!("{octets}") };
        assert!(matches!(r.cause, Cause::NoEstablishedPfcpAssociation | Cause::InvalidLength), "{r:?}");
        bench.unharmed("an endless name");
    }
}

#[test] // TS 29.244 §7.2.2.4.2: SEID zero names no session, in the header or as the SMF's own
fn seid_zero() {
    let mut bench = Bench::new();
    for seid in [0, 1 << 32, u64::MAX, u64::from(u32::MAX)] {
        let sequence = bench.next();
        let m = Message::from(activation(Teid(5), GNB.ip())).to_octets(Some(Seid(seid)), sequence);
        let answer = bench.send(&m);
        assert!(
            matches!(&answer, Some(Message::SessionModificationResponse(r)) if r.cause == Cause::SessionContextNotFound),
            "{seid}: {answer:?}"
        );
    }
    let r = bench.net.establish(establishment(0, true, false));
    assert_eq!((r.cause, r.offending_ie), (Cause::MandatoryIeIncorrect, Some(OffendingIe(57))));
    bench.unharmed("SEID zero");
}

#[test] // TS 29.244 §6.2.1: nothing of sessions before the association
fn session_messages_before_association() {
    let mut net = Net::without_association(config());
    let Message::SessionEstablishmentResponse(r) = net.ask(Some(Seid(0)), rich_establishment().into()) else {
        panic!()
    };
    assert_eq!(r.cause, Cause::NoEstablishedPfcpAssociation);
    let m = net.ask(Some(Seid(1 << 32 | 1)), rich_modification().into());
    assert!(matches!(m, Message::SessionModificationResponse(r) if r.cause == Cause::SessionContextNotFound));
    let m = net.ask(Some(Seid(1 << 32 | 1)), SessionDeletionRequest {}.into());
    assert!(matches!(m, Message::SessionDeletionResponse(r) if r.cause == Cause::SessionContextNotFound));
    assert_eq!((net.upf.c.session_count(), net.upf.u.counters().sessions), (0, 0));
    assert_eq!(net.upf.c.free_addresses(DnIndex(0)).unwrap().0, 5);
}

#[test] // TS 29.244 §6.2.6.2.2: another SMF of the same name does not end the sessions of the one that is alive
fn association_from_a_second_smf_with_the_same_node_id() {
    let mut bench = Bench::new();
    let second: SocketAddr = "127.0.0.66:8805".parse().unwrap();
    let set_up = |bench: &mut Bench| {
        let sequence = bench.next();
        let octets = Message::from(association(5)).to_octets(None, sequence);
        bench.net.upf.pfcp(bench.net.now, second, &octets, &mut bench.net.out);
        let datagrams = std::mem::take(&mut bench.net.out.datagrams);
        let probe = datagrams.iter().find(|(to, _)| *to == SMF).expect("the SMF is asked whether it lives");
        assert!(datagrams.iter().all(|(to, _)| *to == SMF), "the other one waits");
        Frame::parse(&probe.1).unwrap().header.sequence
    };
    let answered = |bench: &mut Bench| {
        let datagrams = std::mem::take(&mut bench.net.out.datagrams);
        let answer = datagrams.iter().find(|(to, _)| *to == second).expect("an answer");
        let Message::AssociationSetupResponse(m) = Message::parse(&Frame::parse(&answer.1).unwrap()).unwrap()
        else {
            panic!()
        };
        m.cause
    };
    let sequence = set_up(&mut bench);
    let alive = HeartbeatResponse { recovery_time_stamp: RecoveryTimeStamp(1) };
    let alive = Message::from(alive).to_octets(None, sequence);
    bench.net.upf.pfcp(bench.net.now, SMF, &alive, &mut bench.net.out);
    assert_eq!(answered(&mut bench), Cause::RequestRejected);
    bench.unharmed("a second SMF");
    // This time it does not answer: the second takes its place.
    set_up(&mut bench);
    let at = bench.net.now + Duration::from_secs(20);
    bench.net.advance(at);
    assert_eq!(answered(&mut bench), Cause::RequestAccepted);
    assert_eq!(bench.net.upf.c.session_count(), 0);
}

#[test] // TS 29.244 §8.2.79: PDN type zero
fn pdn_type_zero() {
    let mut bench = Bench::new();
    let mut all = elements(establishment(7, true, false).into());
    all.iter_mut().filter(|ie| ie.kind == 113).for_each(|ie| ie.value = Value::Octets(vec![0]));
    let sequence = bench.next();
    let answer = bench.send(&message(50, Some(Seid(0)), sequence, &all));
    assert!(
        matches!(&answer, Some(Message::SessionEstablishmentResponse(r)) if r.cause == Cause::MandatoryIeIncorrect)
    );
    bench.unharmed("PDN type zero");
}

#[test] // TS 29.244 §8.2.24: then a packet
fn destination_interface_0x99_and_then_a_packet() {
    let mut bench = Bench::new();
    let mut all = elements(activation(Teid(5), GNB.ip()).into());
    let mut n = 0;
    let spoil = |list: &mut Vec<Ie>, i: usize| {
        if list[i].kind == 42 {
            list[i].value = Value::Octets(vec![0x99]);
        }
    };
    while spoil_nth(&mut all, &mut { n }, &spoil) {
        n += 1;
    }
    let seid = bench.canary.up_seid;
    let sequence = bench.next();
    let answer = bench.send(&message(52, Some(seid), sequence, &all));
    let Some(Message::SessionModificationResponse(r)) = answer else { panic!("{answer:?}") };
    assert_eq!((r.cause, r.offending_ie), (Cause::MandatoryIeIncorrect, Some(OffendingIe(42))));
    bench.unharmed("destination interface 0x99");
}

#[test] // TS 29.244 §8.2.56
fn outer_header_creation_of_few_octets_or_unknown_description() {
    let mut bench = Bench::new();
    let values: [&[u8]; 10] = [
        &[],
        &[1],
        &[1, 0],
        &[1, 0, 0, 0, 0, 5],
        &[1, 0, 0, 0, 0, 5, 127, 0, 0],
        &[2, 0, 0, 0, 0, 5, 0x20, 1, 0xd, 0xb8],
        &[0, 0, 0, 0, 0, 0],
        &[0x40, 0, 1, 2, 3, 4],
        &[4, 0, 127, 0, 0, 9, 8],
        &[0xff, 0xff],
    ];
    for value in values {
        let mut all = elements(activation(Teid(5), GNB.ip()).into());
        let mut n = 0;
        let spoil = |list: &mut Vec<Ie>, i: usize| {
            if list[i].kind == 84 {
                list[i].value = Value::Octets(value.to_vec());
            }
        };
        while spoil_nth(&mut all, &mut { n }, &spoil) {
            n += 1;
        }
        let seid = bench.canary.up_seid;
        let sequence = bench.next();
        let answer = bench.send(&message(52, Some(seid), sequence, &all));
        let Some(Message::SessionModificationResponse(r)) = answer else { panic!("{value:?} {answer:?}") };
        assert!(!r.cause.is_accepted(), "{value:?}");
        assert_eq!(r.offending_ie, Some(OffendingIe(84)), "{value:?}");
        bench.unharmed("an outer header");
    }
}

#[test] // TS 29.244 §8.2.64: description 6, and unknown ones
fn outer_header_removal_of_each_description() {
    let mut bench = Bench::new();
    for description in 0..=255u8 {
        let mut all = elements(establishment(7, true, false).into());
        let mut n = 0;
        let spoil = |list: &mut Vec<Ie>, i: usize| {
            if list[i].kind == 95 {
                list[i].value = Value::Octets(vec![description]);
            }
        };
        while spoil_nth(&mut all, &mut { n }, &spoil) {
            n += 1;
        }
        let sequence = bench.next();
        let answer = bench.send(&message(50, Some(Seid(0)), sequence, &all));
        let Some(Message::SessionEstablishmentResponse(r)) = answer else { panic!("{answer:?}") };
        assert_eq!(r.cause.is_accepted(), description <= 8, "{description}");
        bench.unharmed("an outer header removal");
    }
}

#[test] // TS 29.244 §8.2.5, TS 29.212 §5.4.2
fn flow_descriptions_of_every_bad_kind() {
    let mut bench = Bench::new();
    let many = format!(
        "permit out 17 from any {} to any",
        (1..=70).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
    );
    let long = format!("permit out ip from any to any{}", " ".repeat(30_000));
    let cases = [
        ("permit", false),
        ("", false),
        ("permit out udp from any to assigned", false),
        ("permit out 17 from any 65536 to assigned", false),
        ("permit out 17 from any 5-1-2 to assigned", false),
        ("permit out 17 from any -1 to assigned", false),
        ("permit out 17 from 300.1.1.1 to assigned", false),
        ("permit out 17 from ::1/129 to assigned", false),
        ("permit out 17 from 1.2.3.4/ to assigned", false),
        ("permit out 17 from any to", false),
        ("permit out 17 from any to assigned\0", false),
        (many.as_str(), false),
        (long.as_str(), true),
        ("permit out 17 from any 9-1 to assigned", true),
    ];
    for (text, accepted) in cases {
        let mut m = establishment(7, true, false);
        m.create_pdrs[1].pdi.sdf_filters = vec![SdfFilter::flow(text)];
        let r = bench.net.establish(m);
        assert_eq!(r.cause.is_accepted(), accepted, "{text:.60}");
        if !accepted {
            assert_eq!(
                (r.offending_ie, r.failed_rule_id),
                (Some(OffendingIe(23)), Some(FailedRuleId::Pdr(PdrId(2))))
            );
        }
        bench.unharmed("a flow description");
    }
    // A length of its own that is wrong, and octets that are not text.
    for value in [vec![1, 0, 0xff, 0xff, b'p'], vec![1, 0, 0, 2, 0xff, 0xfe], vec![1, 0], vec![1]] {
        let mut all = elements(rich_establishment().into());
        let mut n = 0;
        let spoil = |list: &mut Vec<Ie>, i: usize| {
            if list[i].kind == 23 {
                list[i].value = Value::Octets(value.clone());
            }
        };
        while spoil_nth(&mut all, &mut { n }, &spoil) {
            n += 1;
        }
        let sequence = bench.next();
        let answer = bench.send(&message(50, Some(Seid(0)), sequence, &all));
        assert!(matches!(answer, Some(Message::SessionEstablishmentResponse(r)) if !r.cause.is_accepted()));
        bench.unharmed("a flow description of a wrong length");
    }
}

#[test] // TS 29.244 table 7.5.2.2-2: filters beyond the bound
fn more_filters_than_a_rule_may_have() {
    let mut bench = Bench::new();
    for (n, accepted) in [(FILTERS_PER_PDR_MAX, true), (FILTERS_PER_PDR_MAX + 1, false), (257, false)] {
        let mut m = establishment(7, true, false);
        m.create_pdrs[1].pdi.sdf_filters = vec![SdfFilter::flow("permit out ip from any to any"); n];
        let r = bench.net.establish(m);
        assert_eq!(r.cause.is_accepted(), accepted, "{n}");
        assert!(accepted || r.cause == Cause::NoResourcesAvailable, "{n}");
        bench.unharmed("filters");
    }
}

#[test] // rules until there is no room: what stood before stands
fn rules_until_the_pool_is_empty() {
    let mut bench = Bench::new();
    let canary = bench.canary.clone();
    let pdr = |id: u16| {
        let pdi =
            Pdi { network_instance: NetworkInstance::new("internet"), ..Pdi::from(SourceInterface::Core) };
        CreatePdr::new(PdrId(id), Precedence(1 << 20), pdi, FarId(2))
    };
    let mut last = Cause::RequestAccepted;
    for id in 100..400u16 {
        let n = u32::from(id);
        let r = bench.net.modify(
            &canary,
            SessionModificationRequest {
                create_pdrs: vec![pdr(id)],
                create_fars: vec![CreateFar::action(FarId(n), ApplyAction::DROP)],
                create_qers: vec![CreateQer::new(QerId(n))],
                create_urrs: vec![CreateUrr::new(
                    UrrId(n),
                    MeasurementMethod::VOLUM,
                    ReportingTriggers::default(),
                )],
                ..Default::default()
            },
        );
        last = r.cause;
        if !last.is_accepted() {
            assert_eq!(usize::from(id) - 100, RULES_PER_SESSION_MAX - 2);
            break;
        }
    }
    assert_eq!(last, Cause::NoResourcesAvailable);
    bench.unharmed("rules without end");
    // The same at once, and above what one message may hold.
    for n in [129u16, 257, 400] {
        let create_pdrs = (1000..1000 + n).map(pdr).collect();
        let r = bench.net.modify(&canary, SessionModificationRequest { create_pdrs, ..Default::default() });
        assert_eq!(r.cause, Cause::NoResourcesAvailable);
        bench.unharmed("rules at once");
    }
}

#[test] // TS 29.244 §7.5.4.2, table 8.2.1-1
fn update_and_removal_of_rules_that_are_not_there() {
    let mut bench = Bench::new();
    let canary = bench.canary.clone();
    let none = SessionModificationRequest::default;
    let cases = [
        (
            FailedRuleId::Pdr(PdrId(9)),
            SessionModificationRequest { update_pdrs: vec![UpdatePdr::new(PdrId(9))], ..none() },
        ),
        (
            FailedRuleId::Far(FarId(9)),
            SessionModificationRequest { update_fars: vec![UpdateFar::new(FarId(9))], ..none() },
        ),
        (
            FailedRuleId::Qer(QerId(9)),
            SessionModificationRequest { update_qers: vec![UpdateQer::new(QerId(9))], ..none() },
        ),
        (
            FailedRuleId::Urr(UrrId(65_535)),
            SessionModificationRequest { update_urrs: vec![UpdateUrr::new(UrrId(65_535))], ..none() },
        ),
        (
            FailedRuleId::Pdr(PdrId(9)),
            SessionModificationRequest { remove_pdrs: vec![RemovePdr { pdr_id: PdrId(9) }], ..none() },
        ),
        (
            FailedRuleId::Far(FarId(9)),
            SessionModificationRequest { remove_fars: vec![RemoveFar { far_id: FarId(9) }], ..none() },
        ),
        (
            FailedRuleId::Qer(QerId(9)),
            SessionModificationRequest { remove_qers: vec![RemoveQer { qer_id: QerId(9) }], ..none() },
        ),
        (
            FailedRuleId::Urr(UrrId(u32::MAX)),
            SessionModificationRequest { remove_urrs: vec![RemoveUrr { urr_id: UrrId(u32::MAX) }], ..none() },
        ),
        (
            FailedRuleId::Bar(BarId(9)),
            SessionModificationRequest { remove_bars: vec![RemoveBar { bar_id: BarId(9) }], ..none() },
        ),
    ];
    for (rule, m) in cases {
        let r = bench.net.modify(&canary, m);
        assert_eq!((r.cause, r.failed_rule_id), (Cause::RuleCreationModificationFailure, Some(rule)));
        bench.unharmed("a rule that is not there");
    }
}

#[test] // TS 29.244 table 8.2.1-1
fn duplicate_identities() {
    let mut bench = Bench::new();
    let twice: [fn(&mut SessionEstablishmentRequest); 4] = [
        |m| m.create_pdrs.push(m.create_pdrs[0].clone()),
        |m| m.create_fars.push(m.create_fars[0].clone()),
        |m| m.create_qers.push(m.create_qers[0].clone()),
        |m| m.create_urrs.push(m.create_urrs[0].clone()),
    ];
    for spoil in twice {
        let mut m = establishment(7, true, false);
        spoil(&mut m);
        let r = bench.net.establish(m);
        assert_eq!(r.cause, Cause::RuleCreationModificationFailure);
        assert!(r.failed_rule_id.is_some());
        bench.unharmed("twice");
    }
}

#[test] // TS 29.244 §8.2.8: rates of a wrong length, and the largest
fn bit_rates_of_every_length_and_two_to_the_sixty_three() {
    let mut bench = Bench::new();
    for length in 0..16usize {
        let mut all = elements(establishment(7, true, false).into());
        let mut n = 0;
        let spoil = |list: &mut Vec<Ie>, i: usize| {
            if list[i].kind == 26 {
                list[i].value = Value::Octets(vec![0xff; length]);
            }
        };
        while spoil_nth(&mut all, &mut { n }, &spoil) {
            n += 1;
        }
        let sequence = bench.next();
        let answer = bench.send(&message(50, Some(Seid(0)), sequence, &all));
        let Some(Message::SessionEstablishmentResponse(r)) = answer else { panic!("{answer:?}") };
        assert_eq!(r.cause.is_accepted(), length >= 10, "{length}");
        bench.unharmed("a bit rate");
    }
    let mut m = establishment(7, true, false);
    m.create_qers[0].mbr = Some(QerBitRate { ul_kbps: 1 << 63, dl_kbps: u64::MAX });
    assert_eq!(bench.net.establish(m).cause, Cause::RequestAccepted);
    bench.unharmed("2^63");
}

#[test] // TS 29.244 §5.21
fn second_session_for_an_address_in_use() {
    let mut bench = Bench::new();
    let address = bench.canary.ipv4.unwrap();
    let mut m = establishment(7, true, false);
    m.create_pdrs.iter_mut().for_each(|p| p.pdi.ue_ip_addresses[0].ipv4 = Some(Choice::Given(address)));
    assert_eq!(bench.net.establish(m).cause, Cause::RuleCreationModificationFailure);
    bench.unharmed("an address in use");
}

#[test] // a datagram that says to come from the SMF but for its address
fn forged_source_address() {
    let mut bench = Bench::new();
    let unknown_peer: SocketAddr = "127.0.0.66:8805".parse().unwrap();
    let seid = bench.canary.up_seid;
    for m in [
        Message::from(activation(Teid(5), Ipv4Addr::new(127, 0, 0, 66).into())),
        SessionDeletionRequest {}.into(),
    ] {
        let octets = m.to_octets(Some(seid), 5);
        bench.net.upf.pfcp(bench.net.now, unknown_peer, &octets, &mut bench.net.out);
        bench.unharmed("an unknown peer");
    }
    let release = Message::from(AssociationReleaseRequest { node_id: SMF.ip().into() }).to_octets(None, 6);
    bench.net.upf.pfcp(bench.net.now, unknown_peer, &release, &mut bench.net.out);
    bench.unharmed("an unknown peer's release");
    let heartbeat = HeartbeatRequest { recovery_time_stamp: RecoveryTimeStamp(u32::MAX) };
    bench.net.upf.pfcp(
        bench.net.now,
        unknown_peer,
        &Message::from(heartbeat).to_octets(None, 7),
        &mut bench.net.out,
    );
    bench.unharmed("an unknown peer's restart");
    // A new session by an unknown peer in the SMF's name.
    let octets = Message::from(establishment(9, true, false)).to_octets(Some(Seid(0)), 8);
    bench.net.upf.pfcp(bench.net.now, unknown_peer, &octets, &mut bench.net.out);
    assert_eq!(bench.net.upf.c.session_count(), 1);
    bench.unharmed("an unknown peer's session");
}

#[test] // TS 23.527 §4.3: the UPF restarts between request and answer; the sessions that the SMF knew do not exist
fn upf_restarts_between_request_and_answer() {
    let mut net = Net::new();
    let s = net.session(1, true, false);
    let octets = Message::from(SessionDeletionRequest {}).to_octets(Some(s.up_seid), 900);
    net.upf = Upf::new(Config { seed: 99, ..config() }, START + Duration::from_secs(5)).unwrap();
    let Some(Message::SessionDeletionResponse(r)) = net.ask_octets(&octets) else { panic!() };
    assert_eq!(r.cause, Cause::SessionContextNotFound);
    let late = g_pdu(s.teid, 1, &udp4(s.ipv4.unwrap(), SERVER, (1, 2), 0));
    assert_eq!(net.packet(from_gnb(), &late).0, PacketVerdict::Drop(DropReason::UnknownTunnel));
    assert_eq!(net.outputs().len(), 1, "an error indication goes to the gNB");
    let r = net.establish(establishment(1, true, false));
    assert_eq!(r.cause, Cause::NoEstablishedPfcpAssociation, "the SMF learns of it at once");
}
